/* sampling: from logits to a token, by llama.cpp's samplers.
 *
 * The samplers of a sample are its own: their state belongs to its tokens, wherever its KV is. They
 * see copies of the logits. llama_sampler_sample is not used: it wants to know the context. */
#ifndef KVPI_SERVE_SAMPLING_H
#define KVPI_SERVE_SAMPLING_H

#include <llama.h>

enum { KVPI_BIASES_MOST = 300, KVPI_LOGPROBS_MOST = 20 };

typedef struct kvpi_sampling {
    float temperature; /* 0: the most probable token */
    float top_p;
    float min_p;
    int32_t top_k; /* 0: all */
    float repeat_penalty;
    int32_t repeat_last_n;
    float frequency_penalty;
    float presence_penalty;
    uint32_t seed;
    int ignore_eos;
    int32_t n_logprobs; /* -1: none; 0: of the token; else of so many others, too */
    uint32_t n_biases;
    llama_logit_bias biases[KVPI_BIASES_MOST];
    char *grammar; /* NULL: none */
} kvpi_sampling;

/* llama-server's defaults. */
void kvpi_sampling_init(kvpi_sampling *sampling);

typedef struct kvpi_sampler {
    struct llama_sampler *chain;
    struct llama_sampler *grammar; /* NULL: none. It is asked about the token that was chosen, and
                                      about all only if it refuses that one */
    int is_greedy;                 /* nothing but the largest logit counts */
} kvpi_sampler;

/* Makes the samplers of sample number `sample`. The prompt counts for the repeat penalty.
 * -1: the grammar is none. */
int kvpi_sampler_init(kvpi_sampler *sampler, const kvpi_sampling *sampling,
                      const struct llama_vocab *vocab, uint32_t sample, const int32_t *prompt,
                      uint32_t n_prompt);

void kvpi_sampler_free(kvpi_sampler *sampler);

/* Chooses a token and accepts it. `room` has place for the vocabulary. */
int32_t kvpi_sampler_pick(kvpi_sampler *sampler, const float *logits, int32_t n_vocab,
                          llama_token_data *room);

typedef struct kvpi_logprob {
    int32_t token;
    float logprob;
} kvpi_logprob;

/* The log-probability of a token before any sampler, and the n_top largest ones, in order.
 * Gives out_logprobs [1 + n_top]. */
void kvpi_logprobs(const float *logits, int32_t n_vocab, int32_t token, uint32_t n_top,
                   kvpi_logprob *out_logprobs);

#endif

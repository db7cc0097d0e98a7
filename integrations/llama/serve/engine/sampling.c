/* sampling: chains of samplers, in llama-server's order. */
#include "sampling.h"

#include <math.h>
#include <string.h>

void kvpi_sampling_init(kvpi_sampling *sampling)
{
    memset(sampling, 0, sizeof *sampling);
    sampling->temperature = 0.8f;
    sampling->top_p = 0.95f;
    sampling->min_p = 0.05f;
    sampling->top_k = 40;
    sampling->repeat_penalty = 1;
    sampling->repeat_last_n = 64;
    sampling->seed = UINT32_MAX;
    sampling->n_logprobs = -1;
}

static int has_penalties(const kvpi_sampling *sampling)
{
    return sampling->frequency_penalty != 0 || sampling->presence_penalty != 0;
}

/* The repeat penalty counts the prompt, as llama-server's does; the other two only what was
 * generated, as OpenAI's do. */
static void add_penalties(struct llama_sampler *chain, const kvpi_sampling *sampling,
                          int32_t n_vocab, const int32_t *prompt, uint32_t n_prompt)
{
    if (sampling->repeat_penalty != 1) {
        const uint32_t last = (uint32_t)sampling->repeat_last_n;
        struct llama_sampler *repeat = llama_sampler_init_penalties(
            n_vocab, sampling->repeat_last_n, sampling->repeat_penalty, 0, 0);
        for (uint32_t i = n_prompt > last ? n_prompt - last : 0; i < n_prompt; i++)
            llama_sampler_accept(repeat, prompt[i]);
        llama_sampler_chain_add(chain, repeat);
    }
    if (has_penalties(sampling))
        llama_sampler_chain_add(chain,
                                llama_sampler_init_penalties(n_vocab, sampling->repeat_last_n, 1,
                                                             sampling->frequency_penalty,
                                                             sampling->presence_penalty));
}

int kvpi_sampler_init(kvpi_sampler *sampler, const kvpi_sampling *sampling,
                      const struct llama_vocab *vocab, uint32_t sample, const int32_t *prompt,
                      uint32_t n_prompt)
{
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    memset(sampler, 0, sizeof *sampler);
    if (sampling->grammar != NULL) {
        sampler->grammar = llama_sampler_init_grammar(vocab, sampling->grammar, "root");
        if (sampler->grammar == NULL)
            return -1;
    }
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    sampler->chain = chain;
    sampler->is_greedy = sampling->temperature <= 0 && sampling->n_biases == 0 &&
                         sampling->repeat_penalty == 1 && !has_penalties(sampling);
    if (sampling->n_biases > 0)
        llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(
                                           n_vocab, (int32_t)sampling->n_biases, sampling->biases));
    add_penalties(chain, sampling, n_vocab, prompt, n_prompt);
    if (sampling->temperature <= 0) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return 0;
    }
    if (sampling->top_k > 0)
        llama_sampler_chain_add(chain, llama_sampler_init_top_k(sampling->top_k));
    if (sampling->top_p < 1)
        llama_sampler_chain_add(chain, llama_sampler_init_top_p(sampling->top_p, 1));
    if (sampling->min_p > 0)
        llama_sampler_chain_add(chain, llama_sampler_init_min_p(sampling->min_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(sampling->temperature));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(sampling->seed + sample));
    return 0;
}

void kvpi_sampler_free(kvpi_sampler *sampler)
{
    if (sampler->chain != NULL)
        llama_sampler_free(sampler->chain);
    if (sampler->grammar != NULL)
        llama_sampler_free(sampler->grammar);
    memset(sampler, 0, sizeof *sampler);
}

/* -------------------------------------------------------------------------------------- picking */

static int32_t largest(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static llama_token_data_array fill(const float *logits, int32_t n_vocab, llama_token_data *room)
{
    for (int32_t i = 0; i < n_vocab; i++)
        room[i] = (llama_token_data){i, logits[i], 0};
    return (llama_token_data_array){room, (size_t)n_vocab, -1, false};
}

static int32_t apply(struct llama_sampler *chain, llama_token_data_array *array)
{
    llama_sampler_apply(chain, array);
    const size_t at =
        array->selected >= 0 && (size_t)array->selected < array->size ? (size_t)array->selected : 0;
    return array->data[at].id;
}

static int grammar_allows(struct llama_sampler *grammar, int32_t token)
{
    llama_token_data one = {token, 1, 0};
    llama_token_data_array array = {&one, 1, -1, false};
    llama_sampler_apply(grammar, &array);
    return array.size == 1 && !isinf(one.logit);
}

int32_t kvpi_sampler_pick(kvpi_sampler *sampler, const float *logits, int32_t n_vocab,
                          llama_token_data *room)
{
    int32_t token;
    if (sampler->is_greedy) {
        token = largest(logits, n_vocab);
    } else {
        llama_token_data_array array = fill(logits, n_vocab, room);
        token = apply(sampler->chain, &array);
    }
    if (sampler->grammar != NULL && !grammar_allows(sampler->grammar, token)) {
        llama_token_data_array array = fill(logits, n_vocab, room);
        llama_sampler_apply(sampler->grammar, &array);
        token = apply(sampler->chain, &array);
    }
    if (sampler->grammar != NULL)
        llama_sampler_accept(sampler->grammar, token);
    llama_sampler_accept(sampler->chain, token);
    return token;
}

/* ------------------------------------------------------------------------------------- logprobs */

void kvpi_logprobs(const float *logits, int32_t n_vocab, int32_t token, uint32_t n_top,
                   kvpi_logprob *out_logprobs)
{
    const float most = logits[largest(logits, n_vocab)];
    kvpi_logprob *top = &out_logprobs[1];
    double sum = 0;
    uint32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)(logits[i] - most));
        if (n_top == 0 || (n == n_top && logits[i] <= top[n - 1].logprob))
            continue;
        uint32_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < logits[i]; at--)
            top[at] = top[at - 1];
        top[at] = (kvpi_logprob){i, logits[i]};
    }
    const float norm = most + (float)log(sum);
    out_logprobs[0] = (kvpi_logprob){token, logits[token] - norm};
    for (uint32_t i = 0; i < n_top; i++) {
        if (i >= n)
            top[i] = (kvpi_logprob){-1, -INFINITY};
        top[i].logprob -= norm;
    }
}

/* model: a small decoder-only transformer like Llama, with random weights.
 *
 * Grouped-query attention, RMS norm, SwiGLU. Layers may have a recurrent state in place of
 * attention, a gated delta net: for each KV head a matrix that maps keys to values. It computes the
 * tokens of a step, one row each, for any number of sequences. It knows nothing of caches or
 * positions. The caller passes attention as a function: with KV in blocks (engine.c), or with KV in
 * one piece (plain.c).
 *
 * Shape letters: T tokens of a step, Q query heads, H KV heads, D head size, W width, F hidden size
 * of the feed-forward part, V vocabulary. */
#ifndef TINY_LLAMA_MODEL_H
#define TINY_LLAMA_MODEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct model_config {
    uint32_t n_layers;
    uint32_t n_heads;    /* Q */
    uint32_t n_kv_heads; /* H */
    uint32_t head_size;  /* D */
    uint32_t width;      /* W */
    uint32_t hidden;     /* F */
    uint32_t vocabulary; /* V */
    uint32_t max_tokens; /* T of the largest step */
    uint64_t seed;       /* of the weights */
    /* for those who attend: */
    double theta;              /* rotary embedding, pairs i and i + D/2 */
    uint32_t window_layers;    /* bit i: layer i has a window; 0: all attend to everything */
    uint32_t sink_tokens;      /* of the window: the query at position p sees 0 .. sink - 1 and */
    uint32_t recent_tokens;    /* p - recent + 1 .. p */
    uint32_t recurrent_layers; /* bit i: layer i has a state, and does not attend */
} model_config;

struct model;

/* One layer's attention: keep k and v, compute out. Returns 0, or what model_run is to return. */
typedef struct model_attention {
    uint32_t layer;
    uint32_t n_tokens; /* T */
    const float *q;    /* [T, Q, D], not turned to their positions yet */
    const float *k;    /* [T, H, D], not turned either */
    const float *v;    /* [T, H, D] */
    const float
        *gates; /* [T, 2, H] of a recurrent layer: what is kept, what is written; else NULL */
    float *out; /* [T, Q, D] */
} model_attention;

typedef int (*model_attend)(void *context, const model_attention *attention);

typedef struct model_step {
    const int32_t *tokens; /* [T] */
    uint32_t n_tokens;
    uint32_t n_rows;
    const uint32_t *rows; /* [n_rows] tokens of the step after which something is sampled */
    model_attend attend;
    void *context;
} model_step;

/* NULL when there is no memory. */
struct model *model_create(const model_config *config);
void model_destroy(struct model *model);
const model_config *model_config_of(const struct model *model);
int model_has_window(const model_config *config, uint32_t layer);
int model_is_recurrent(const model_config *config, uint32_t layer);

/* Floats of one layer's state: [H, D, D]. All 0: no token yet. */
size_t model_state_size(const model_config *config);

/* Tokens [from, to) of the step, which follow each other in a sequence, for a recurrent layer: its
 * state before them is read, and the one after them is written. Both may be the same. */
void model_recur(const model_config *config, const model_attention *a, uint32_t from, uint32_t to,
                 const float *read, float *write);

/* Gives: out_logits [n_rows, V]. Returns 0, or what attend returned. */
int model_run(struct model *model, const model_step *step, float *out_logits);

/* ------------------------------------------------------------------------------------
 * generation */

/* What is asked for. */
struct generation {
    const int32_t *prompt;
    uint32_t n_prompt;
    uint32_t n_new;     /* tokens to generate */
    uint32_t n_samples; /* sequences that continue the prompt */
    uint32_t is_beam;   /* 1: the n_samples best by beam search; 0: drawn independently */
    uint64_t seed;      /* of what is drawn */
    int32_t *out;       /* [n_samples, n_new] */
};

/* Draw a token: which one depends on the logits, the generation, the sample and the position only,
 * so that it does not matter how often a step is computed, or with whom. */
int32_t generation_draw(const struct model *model, const struct generation *generation,
                        const float *logits, uint32_t sample, uint32_t position);

/* One step of beam search: of all continuations of n_rows beams, the best n_samples.
 *
 * Takes:   logits      [n_rows] pointers to [V]
 *          scores      [n_samples] logarithms of the beams' probabilities so far; and after
 * Gives:   parents     [n_samples] the row that each continues
 *          tokens      [n_samples] */
void generation_choose(const struct model *model, const struct generation *generation,
                       const float *const *logits, uint32_t n_rows, double *scores,
                       uint32_t *parents, int32_t *tokens);

#endif

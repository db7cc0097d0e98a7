/* model: weights from a seed, one step at a time. Plain loops that know no cache. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BEAMS = 8 };

/* ----------------------------------------------------------------------------------------
 * weights */

typedef struct layer_weights {
    const float *attention_norm; /* [W] */
    const float *q;              /* [Q x D, W] */
    const float *k;              /* [H x D, W] */
    const float *v;              /* [H x D, W] */
    const float *gates;          /* [2 x H, W], of a recurrent layer; else NULL */
    const float *o;              /* [W, Q x D] */
    const float *forward_norm;   /* [W] */
    const float *gate;           /* [F, W] */
    const float *up;             /* [F, W] */
    const float *down;           /* [W, F] */
} layer_weights;

struct model {
    model_config config;
    float *memory;          /* all that follows */
    const float *embedding; /* [V, W] */
    const float *last_norm; /* [W] */
    const float *head;      /* [V, W] */
    layer_weights *layers;
    float *x;      /* [T, W] the residual stream */
    float *normed; /* [T, W] */
    float *q;      /* [T, Q, D] */
    float *k;      /* [T, H, D] */
    float *v;      /* [T, H, D] */
    float *gates;  /* [T, 2, H] of a recurrent layer */
    float *mixed;  /* [T, Q, D] */
    float *gate;   /* [F] */
    float *up;     /* [F] */
};

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* 0 < u < 1 */
static double uniform(uint64_t x)
{
    return ((double)(mix(x) >> 12) + 0.5) / 4503599627370496.0;
}

/* Cuts arrays out of one allocation; with memory NULL it only adds up. */
struct cutter {
    float *memory;
    size_t used;
    uint64_t random;
};

static float *cut(struct cutter *cutter, size_t n)
{
    float *array = cutter->memory != NULL ? cutter->memory + cutter->used : NULL;
    cutter->used += n;
    return array;
}

/* Uniform weights with variance size^2 / n_in, so that what comes out is about `size` large. */
static const float *draw_matrix(struct cutter *cutter, size_t n_out, size_t n_in, double size)
{
    float *matrix = cut(cutter, n_out * n_in);
    for (size_t i = 0; matrix != NULL && i < n_out * n_in; i++)
        matrix[i] =
            (float)((2.0 * uniform(cutter->random++) - 1.0) * size * sqrt(3.0 / (double)n_in));
    return matrix;
}

static const float *draw_norm(struct cutter *cutter, size_t n)
{
    float *norm = cut(cutter, n);
    for (size_t i = 0; norm != NULL && i < n; i++)
        norm[i] = (float)(0.75 + 0.5 * uniform(cutter->random++));
    return norm;
}

/* q and k are large, so that attention is sharp, and what it finds changes what comes out. */
static void cut_model(struct model *model, struct cutter *cutter)
{
    const model_config *c = &model->config;
    const size_t Q = (size_t)c->n_heads * c->head_size, H = (size_t)c->n_kv_heads * c->head_size;
    const size_t W = c->width, F = c->hidden, V = c->vocabulary, T = c->max_tokens;
    model->embedding = draw_matrix(cutter, V, W, sqrt((double)W));
    for (uint32_t i = 0; i < c->n_layers; i++) {
        layer_weights *layer = &model->layers[i];
        layer->attention_norm = draw_norm(cutter, W);
        layer->q = draw_matrix(cutter, Q, W, 2.0);
        layer->k = draw_matrix(cutter, H, W, 2.0);
        layer->v = draw_matrix(cutter, H, W, 1.0);
        layer->gates = model_is_recurrent(c, i)
                           ? draw_matrix(cutter, 2 * (size_t)c->n_kv_heads, W, 2.0)
                           : NULL;
        layer->o = draw_matrix(cutter, W, Q, 1.0);
        layer->forward_norm = draw_norm(cutter, W);
        layer->gate = draw_matrix(cutter, F, W, 1.0);
        layer->up = draw_matrix(cutter, F, W, 1.0);
        layer->down = draw_matrix(cutter, W, F, 1.0);
    }
    model->last_norm = draw_norm(cutter, W);
    model->head = draw_matrix(cutter, V, W, 3.0);
    model->x = cut(cutter, T * W);
    model->normed = cut(cutter, T * W);
    model->q = cut(cutter, T * Q);
    model->k = cut(cutter, T * H);
    model->v = cut(cutter, T * H);
    model->gates = cut(cutter, T * 2 * c->n_kv_heads);
    model->mixed = cut(cutter, T * Q);
    model->gate = cut(cutter, F);
    model->up = cut(cutter, F);
}

struct model *model_create(const model_config *config)
{
    struct model *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    struct cutter cutter = {NULL, 0, 0};
    made->config = *config;
    made->layers = calloc(config->n_layers, sizeof *made->layers);
    if (made->layers != NULL) {
        cut_model(made, &cutter);
        made->memory = malloc(cutter.used * sizeof *made->memory);
    }
    if (made->layers == NULL || made->memory == NULL) {
        model_destroy(made);
        return NULL;
    }
    cutter.memory = made->memory;
    cutter.used = 0;
    cutter.random = mix(config->seed);
    cut_model(made, &cutter);
    return made;
}

void model_destroy(struct model *model)
{
    if (model == NULL)
        return;
    free(model->memory);
    free(model->layers);
    free(model);
}

const model_config *model_config_of(const struct model *model)
{
    return &model->config;
}

int model_has_window(const model_config *config, uint32_t layer)
{
    return layer < 32 && (config->window_layers >> layer & 1) != 0;
}

int model_is_recurrent(const model_config *config, uint32_t layer)
{
    return layer < 32 && (config->recurrent_layers >> layer & 1) != 0;
}

/* out [n_out] = matrix [n_out, n_in] x in [n_in] */
static void multiply(const float *matrix, const float *in, size_t n_in, float *out, size_t n_out)
{
    for (size_t i = 0; i < n_out; i++) {
        const float *row = matrix + i * n_in;
        float sum = 0.0f;
        for (size_t j = 0; j < n_in; j++)
            sum += row[j] * in[j];
        out[i] = sum;
    }
}

/* ------------------------------------------------------------------------------------
 * recurrent state */

size_t model_state_size(const model_config *config)
{
    return (size_t)config->n_kv_heads * config->head_size * config->head_size;
}

static float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* One head's state [D, D] takes a token: it fades, and what it has for the key, which is as long as
 * 1, moves towards the value. state = keep x state; state += write x (v - state k) k^T */
static void recur_head(float *state, uint32_t size, const float *k, const float *v,
                       const float *gates)
{
    float length = 1e-6f;
    for (uint32_t i = 0; i < size; i++)
        length += k[i] * k[i];
    length = sqrtf(length);
    for (uint32_t i = 0; i < size; i++) {
        float *row = state + (size_t)i * size, found = 0.0f;
        for (uint32_t j = 0; j < size; j++) {
            row[j] *= gates[0];
            found += row[j] * k[j] / length;
        }
        for (uint32_t j = 0; j < size; j++)
            row[j] += gates[1] * (v[i] - found) * k[j] / length;
    }
}

void model_recur(const model_config *config, const model_attention *a, uint32_t from, uint32_t to,
                 const float *read, float *write)
{
    const uint32_t D = config->head_size, H = config->n_kv_heads, n_queries = config->n_heads / H;
    if (read != write)
        memcpy(write, read, model_state_size(config) * sizeof *write);
    for (size_t t = from; t < to; t++)
        for (uint32_t h = 0; h < H; h++) {
            float *state = write + (size_t)h * D * D;
            const float gates[2] = {logistic(4.0f + a->gates[t * 2 * H + h]),
                                    logistic(a->gates[t * 2 * H + H + h])};
            recur_head(state, D, a->k + (t * H + h) * D, a->v + (t * H + h) * D, gates);
            for (uint32_t q = h * n_queries; q < (h + 1) * n_queries; q++)
                multiply(state, a->q + (t * config->n_heads + q) * D, D,
                         a->out + (t * config->n_heads + q) * D, D);
        }
}

/* ---------------------------------------------------------------------------------------- a
 * step */

/* x += matrix x in */
static void multiply_add(const float *matrix, const float *in, size_t n_in, float *x, size_t n_out)
{
    for (size_t i = 0; i < n_out; i++) {
        float sum;
        multiply(matrix + i * n_in, in, n_in, &sum, 1);
        x[i] += sum;
    }
}

static void normalise(const float *x, const float *weight, size_t n, float *out)
{
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(sum / (float)n + 1e-5f);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static int attend(struct model *model, const model_step *step, uint32_t layer_idx)
{
    const model_config *c = &model->config;
    const layer_weights *layer = &model->layers[layer_idx];
    const size_t Q = (size_t)c->n_heads * c->head_size, H = (size_t)c->n_kv_heads * c->head_size;
    const size_t W = c->width;
    for (size_t t = 0; t < step->n_tokens; t++) {
        float *normed = model->normed + t * W;
        normalise(model->x + t * W, layer->attention_norm, W, normed);
        multiply(layer->q, normed, W, model->q + t * Q, Q);
        multiply(layer->k, normed, W, model->k + t * H, H);
        multiply(layer->v, normed, W, model->v + t * H, H);
        if (layer->gates != NULL)
            multiply(layer->gates, normed, W, model->gates + t * 2 * c->n_kv_heads,
                     2 * (size_t)c->n_kv_heads);
    }
    const model_attention attention = {.layer = layer_idx,
                                       .n_tokens = step->n_tokens,
                                       .q = model->q,
                                       .k = model->k,
                                       .v = model->v,
                                       .gates = layer->gates != NULL ? model->gates : NULL,
                                       .out = model->mixed};
    const int status = step->attend(step->context, &attention);
    for (size_t t = 0; status == 0 && t < step->n_tokens; t++)
        multiply_add(layer->o, model->mixed + t * Q, Q, model->x + t * W, W);
    return status;
}

static void feed_forward(struct model *model, uint32_t n_tokens, uint32_t layer_idx)
{
    const layer_weights *layer = &model->layers[layer_idx];
    const size_t W = model->config.width, F = model->config.hidden;
    for (size_t t = 0; t < n_tokens; t++) {
        float *normed = model->normed + t * W;
        normalise(model->x + t * W, layer->forward_norm, W, normed);
        multiply(layer->gate, normed, W, model->gate, F);
        multiply(layer->up, normed, W, model->up, F);
        for (size_t i = 0; i < F; i++)
            model->gate[i] *= model->up[i] / (1.0f + expf(-model->gate[i])); /* SiLU x up */
        multiply_add(layer->down, model->gate, F, model->x + t * W, W);
    }
}

int model_run(struct model *model, const model_step *step, float *out_logits)
{
    const size_t W = model->config.width, V = model->config.vocabulary;
    for (size_t t = 0; t < step->n_tokens; t++)
        memcpy(model->x + t * W, model->embedding + (size_t)step->tokens[t] * W,
               W * sizeof *model->x);
    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        const int status = attend(model, step, i);
        if (status != 0)
            return status;
        feed_forward(model, step->n_tokens, i);
    }
    for (uint32_t i = 0; i < step->n_rows; i++) {
        normalise(model->x + step->rows[i] * W, model->last_norm, W, model->normed);
        multiply(model->head, model->normed, W, out_logits + i * V, V);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------
 * generation */

int32_t generation_draw(const struct model *model, const struct generation *generation,
                        const float *logits, uint32_t sample, uint32_t position)
{
    const uint64_t random = mix(mix(generation->seed + sample) + position);
    int32_t best = 0;
    double most = -INFINITY;
    for (uint32_t token = 0; token < model->config.vocabulary; token++) {
        const double noise =
            -log(-log(uniform(random + token))); /* Gumbel: the largest is a draw */
        if (logits[token] + noise > most) {
            most = logits[token] + noise;
            best = (int32_t)token;
        }
    }
    return best;
}

static double log_of_sum(const float *logits, uint32_t n)
{
    double most = logits[0], sum = 0.0;
    for (uint32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

/* Put a continuation among the best n, which are in order; of equal ones the first stays before. */
struct candidate {
    double score;
    uint32_t parent;
    int32_t token;
};

static void offer(struct candidate *best, uint32_t n, const struct candidate *candidate)
{
    uint32_t at = n;
    while (at > 0 && candidate->score > best[at - 1].score)
        at--;
    if (at == n)
        return;
    memmove(best + at + 1, best + at, (n - at - 1) * sizeof *best);
    best[at] = *candidate;
}

void generation_choose(const struct model *model, const struct generation *generation,
                       const float *const *logits, uint32_t n_rows, double *scores,
                       uint32_t *parents, int32_t *tokens)
{
    struct candidate best[MAX_BEAMS];
    const uint32_t n = generation->n_samples < MAX_BEAMS ? generation->n_samples : MAX_BEAMS;
    for (uint32_t i = 0; i < n; i++)
        best[i] = (struct candidate){-INFINITY, 0, 0};
    for (uint32_t row = 0; row < n_rows; row++) {
        const double all = log_of_sum(logits[row], model->config.vocabulary);
        for (uint32_t token = 0; token < model->config.vocabulary; token++) {
            const struct candidate next = {scores[row] + logits[row][token] - all, row,
                                           (int32_t)token};
            offer(best, n, &next);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        scores[i] = best[i].score;
        parents[i] = best[i].parent;
        tokens[i] = best[i].token;
    }
}

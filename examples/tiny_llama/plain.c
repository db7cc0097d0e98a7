/* plain: K and V are [layers, positions, H, D], and grow at the end. Textbook attention. */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct plain {
    struct model *model;
    uint32_t capacity; /* positions */
    uint32_t n_tokens; /* computed */
    float *k;
    float *v;
    float *states;   /* of all layers, after n_tokens */
    double *weights; /* [capacity] */
    float *logits;   /* [V] */
};

/* What one head of one query reads and writes. */
struct head {
    const float *q; /* [D] */
    const float *k; /* of position 0 */
    const float *v;
    float *out; /* [D] */
};

static size_t layer_size(const struct plain *plain)
{
    const model_config *c = model_config_of(plain->model);
    return (size_t)plain->capacity * c->n_kv_heads * c->head_size;
}

static void turn(float *vector, uint32_t size, double theta, uint32_t position)
{
    for (uint32_t i = 0; i < size / 2; i++) {
        const double angle = position * pow(theta, -2.0 * i / size);
        const double x = vector[i], y = vector[i + size / 2];
        vector[i] = (float)(x * cos(angle) - y * sin(angle));
        vector[i + size / 2] = (float)(x * sin(angle) + y * cos(angle));
    }
}

/* May the query at the last of n positions see position i? */
static int sees(const model_config *c, uint32_t layer, uint32_t n, uint32_t i)
{
    return !model_has_window(c, layer) || i < c->sink_tokens || i + c->recent_tokens >= n;
}

/* One head of one query over positions 0 .. n-1. */
static void attend_head(struct plain *plain, uint32_t layer, uint32_t n, const struct head *head)
{
    const model_config *c = model_config_of(plain->model);
    const size_t step = (size_t)c->n_kv_heads * c->head_size;
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        double score = 0.0;
        for (uint32_t e = 0; e < c->head_size; e++)
            score += (double)head->q[e] * head->k[i * step + e];
        plain->weights[i] = sees(c, layer, n, i) ? exp(score / sqrt(c->head_size)) : 0.0;
        sum += plain->weights[i];
    }
    for (uint32_t e = 0; e < c->head_size; e++) {
        double value = 0.0;
        for (uint32_t i = 0; i < n; i++)
            value += plain->weights[i] / sum * head->v[i * step + e];
        head->out[e] = (float)value;
    }
}

static int attend(void *context, const model_attention *a)
{
    struct plain *plain = context;
    const model_config *c = model_config_of(plain->model);
    const size_t D = c->head_size, row = c->n_kv_heads * D;
    float *k = plain->k + a->layer * layer_size(plain),
          *v = plain->v + a->layer * layer_size(plain);
    float q[256];
    if (a->gates != NULL) {
        float *state = plain->states + a->layer * model_state_size(c);
        model_recur(c, a, 0, a->n_tokens, state, state);
        return 0;
    }
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const uint32_t position = plain->n_tokens + t;
        memcpy(k + position * row, a->k + t * row, row * sizeof *k);
        memcpy(v + position * row, a->v + t * row, row * sizeof *v);
        for (uint32_t head = 0; head < c->n_kv_heads; head++)
            turn(k + position * row + head * D, c->head_size, c->theta, position);
        for (uint32_t i = 0; i < c->n_heads; i++) {
            const uint32_t kv_head = i / (c->n_heads / c->n_kv_heads);
            const size_t at = (t * c->n_heads + i) * D;
            const struct head head = {q, k + kv_head * D, v + kv_head * D, a->out + at};
            memcpy(q, a->q + at, D * sizeof *q);
            turn(q, c->head_size, c->theta, position);
            attend_head(plain, a->layer, position + 1, &head);
        }
    }
    return 0;
}

/* Compute tokens behind those that are there; logits of the last one. */
static void run(struct plain *plain, const int32_t *tokens, uint32_t n_tokens)
{
    const uint32_t most = model_config_of(plain->model)->max_tokens;
    for (uint32_t done = 0, n; done < n_tokens; done += n) {
        n = n_tokens - done < most ? n_tokens - done : most;
        const uint32_t last = n - 1;
        const model_step step = {.tokens = tokens + done,
                                 .n_tokens = n,
                                 .n_rows = 1,
                                 .rows = &last,
                                 .attend = attend,
                                 .context = plain};
        (void)model_run(plain->model, &step, plain->logits); /* attend does not fail */
        plain->n_tokens += n;
    }
}

/* Begin a sequence. */
static void begin(struct plain *plain)
{
    const model_config *c = model_config_of(plain->model);
    plain->n_tokens = 0;
    memset(plain->states, 0, c->n_layers * model_state_size(c) * sizeof *plain->states);
}

static void draw_samples(struct plain *plain, const struct generation *g)
{
    for (uint32_t sample = 0; sample < g->n_samples; sample++) {
        int32_t *out = g->out + (size_t)sample * g->n_new;
        begin(plain);
        run(plain, g->prompt, g->n_prompt);
        for (uint32_t i = 0; i < g->n_new; i++) {
            out[i] = generation_draw(plain->model, g, plain->logits, sample, g->n_prompt + i);
            run(plain, out + i, 1);
        }
    }
}

/* Each beam's logits are computed from nothing, from the prompt and what the beam has. */
static void search_beams(struct plain *plain, const struct generation *g)
{
    enum { MOST = 8 };
    const size_t V = model_config_of(plain->model)->vocabulary;
    const float *rows[MOST];
    double scores[MOST] = {0};
    uint32_t parents[MOST];
    int32_t tokens[MOST];
    float *logits = malloc(MOST * V * sizeof *logits);
    int32_t *before = malloc((size_t)g->n_samples * g->n_new * sizeof *before);
    for (uint32_t i = 0; logits != NULL && before != NULL && i < g->n_new; i++) {
        const uint32_t n_rows = i == 0 ? 1 : g->n_samples;
        for (uint32_t row = 0; row < n_rows; row++) {
            begin(plain);
            run(plain, g->prompt, g->n_prompt);
            run(plain, g->out + (size_t)row * g->n_new, i);
            memcpy(logits + row * V, plain->logits, V * sizeof *logits);
            rows[row] = logits + row * V;
        }
        generation_choose(plain->model, g, rows, n_rows, scores, parents, tokens);
        memcpy(before, g->out, (size_t)g->n_samples * g->n_new * sizeof *before);
        for (uint32_t beam = 0; beam < g->n_samples; beam++) {
            int32_t *out = g->out + (size_t)beam * g->n_new;
            memcpy(out, before + (size_t)parents[beam] * g->n_new, i * sizeof *out);
            out[i] = tokens[beam];
        }
    }
    free(logits);
    free(before);
}

int plain_generate(struct model *model, const struct generation *g)
{
    const model_config *c = model_config_of(model);
    struct plain plain = {.model = model, .capacity = g->n_prompt + g->n_new};
    const size_t n = c->n_layers * layer_size(&plain);
    plain.k = malloc(n * sizeof *plain.k);
    plain.v = malloc(n * sizeof *plain.v);
    plain.states = malloc(c->n_layers * model_state_size(c) * sizeof *plain.states);
    plain.weights = malloc(plain.capacity * sizeof *plain.weights);
    plain.logits = malloc(c->vocabulary * sizeof *plain.logits);
    const int is_ready = plain.k != NULL && plain.v != NULL && plain.states != NULL &&
                         plain.weights != NULL && plain.logits != NULL && c->head_size <= 256;
    if (is_ready && g->is_beam)
        search_beams(&plain, g);
    else if (is_ready)
        draw_samples(&plain, g);
    free(plain.k);
    free(plain.v);
    free(plain.states);
    free(plain.weights);
    free(plain.logits);
    return !is_ready;
}

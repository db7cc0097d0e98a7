/* plain: see plain.h. */
#include "plain.h"

#include <math.h>
#include <stdlib.h>

/* A number of f16. */
static double read_half(uint16_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value;
    if (exponent == 31)
        value = mantissa == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, -24);
    else
        value = ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -value : value;
}

/* What one query head has seen so far: weights are relative to exp(largest). */
struct seen {
    double largest, total;
    double *sums; /* [Dv] */
};

static void see(struct seen *seen, double score, const float *v, uint32_t v_size)
{
    if (score > seen->largest) {
        const double share = exp(seen->largest - score);
        seen->total *= share;
        for (uint32_t e = 0; e < v_size; e++)
            seen->sums[e] *= share;
        seen->largest = score;
    }
    const double weight = exp(score - seen->largest);
    seen->total += weight;
    for (uint32_t e = 0; e < v_size; e++)
        seen->sums[e] += weight * v[e];
}

static double score_of(const kvp_attention *call, const float *q, const float *k)
{
    double score = 0.0;
    for (uint32_t e = 0; e < call->layer->k.size; e++)
        score += (double)q[e] * k[e];
    score *= call->scale;
    return call->soft_cap > 0.0 ? call->soft_cap * tanh(score / call->soft_cap) : score;
}

/* Query `row` of a stream; `kv` has room for a key and a value. */
static void run_head(const kvp_attention *call, const struct kvpi_mask *mask, uint32_t stream,
                     uint32_t row, uint32_t head, struct seen *seen, float *kv)
{
    const kvp_layer *layer = call->layer;
    const uint32_t kv_head = head / (call->n_heads / layer->n_heads), v_size = layer->v.size;
    const size_t token = (size_t)stream * mask->n_rows + row;
    const float *q = call->q.data + token * call->q.token_stride + head * call->q.head_stride;
    float *out = call->out.data + token * call->out.token_stride + head * call->out.head_stride;
    const uint16_t *biases = mask->data + stream * mask->stream_stride + row * mask->row_stride;
    *seen = (struct seen){.largest = -INFINITY, .total = 0.0, .sums = seen->sums};
    for (uint32_t e = 0; e < v_size; e++)
        seen->sums[e] = 0.0;
    if (call->sink_logits != NULL) {
        seen->largest = call->sink_logits[head];
        seen->total = 1.0;
    }
    for (uint32_t cell = 0; cell < mask->n_cells; cell++) {
        const int64_t slot = 1 + (int64_t)stream * mask->stream_cells + cell;
        const double bias = read_half(biases[cell]);
        if (bias == -INFINITY)
            continue;
        (void)kvp_layer_read(layer, KVP_K, slot, kv_head, kv);
        (void)kvp_layer_read(layer, KVP_V, slot, kv_head, kv + layer->k.size);
        see(seen, score_of(call, q, kv) + bias, kv + layer->k.size, v_size);
    }
    for (uint32_t e = 0; e < v_size; e++)
        out[e] = seen->total > 0.0 ? (float)(seen->sums[e] / seen->total) : 0.0f;
}

int kvpi_plain_run(const kvp_attention *call, const struct kvpi_mask *mask)
{
    const size_t k_size = call->layer->k.size, v_size = call->layer->v.size;
    float *kv = malloc((k_size + v_size) * sizeof *kv);
    struct seen seen = {.sums = malloc(v_size * sizeof *seen.sums)};
    const int is_room = kv != NULL && seen.sums != NULL;
    for (uint32_t s = 0; is_room && s < mask->n_streams; s++) {
        for (uint32_t row = 0; row < mask->n_rows; row++) {
            for (uint32_t head = 0; head < call->n_heads; head++)
                run_head(call, mask, s, row, head, &seen, kv);
        }
    }
    free(kv);
    free(seen.sums);
    return is_room;
}

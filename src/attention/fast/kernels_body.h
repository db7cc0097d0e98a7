/* kernels_body: the kernels on f32, written once for vectors of any length. Included by one file
 * for each set of instructions, after its vec_....h, which has: vec, LANES (floats of a vector),
 * ROWS (queries whose sums fit the registers together with what they are multiplied by).
 *
 * Rows of the elements' own type are read as f32 (kvpi_read_elements) or used as they lie. */
#ifndef KVPI_KERNELS_BODY_H
#define KVPI_KERNELS_BODY_H

#include <math.h>
#include <string.h>

#include "attention/fast/kernels.h"

enum { LINE = KVPI_LINE, KEYS = 4, COLUMNS = 4, SOFTMAX_ROWS = 4 };

/* Values with 16 registers of 8 floats: twice as many queries and half as many columns at once. So
 * V is read and converted once for four queries, not twice. */
enum { TWICE = LANES == 8, TWICE_ROWS = 2 * ROWS, TWICE_COLUMNS = 2 };

/* Sums are kept in arrays that must become registers, and do only where they are used. */
#define INLINE static inline __attribute__((always_inline))

/* ---------------------------------------------------------------------------------------- read */

/* The values of e4m3 codes without a sign, by their two fields; there is no vector form. */
static float kvpi_read_e4m3(uint8_t code)
{
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    float value;
    if (exponent == 15 && mantissa == 7)
        value = NAN;
    else if (exponent == 0)
        value = (float)mantissa * 0x1p-9f;
    else
        value = (float)(8 + mantissa) * (float)(1u << exponent) * 0x1p-10f;
    return code & 0x80u ? -value : value;
}

/* 32 elements of q8_0, their scale before them. */
INLINE const unsigned char *kvpi_group_of(const void *elements, uint32_t i)
{
    return (const unsigned char *)elements + (size_t)(i / KVP_Q8_0_ELEMENTS) * KVP_Q8_0_BYTES;
}

INLINE const int8_t *kvpi_element_of(const void *elements, uint32_t i)
{
    return (const int8_t *)kvpi_group_of(elements, i) + sizeof(uint16_t) + i % KVP_Q8_0_ELEMENTS;
}

static float kvpi_read_one_q8_0(const void *elements, uint32_t i)
{
    float scale[16];
    kvpi_vec_store(scale, kvpi_vec_all_f16(kvpi_group_of(elements, i)));
    return scale[0] * (float)*kvpi_element_of(elements, i);
}

static float kvpi_read_one(uint32_t type, const void *elements, uint32_t i)
{
    float padded[16];
    uint16_t half[16] = {0};
    switch (type) {
    case KVP_F32: return ((const float *)elements)[i];
    case KVP_INT8: return ((const int8_t *)elements)[i];
    case KVP_E4M3: return kvpi_read_e4m3(((const uint8_t *)elements)[i]);
    case KVP_Q8_0: return kvpi_read_one_q8_0(elements, i);
    default: break;
    }
    half[0] = ((const uint16_t *)elements)[i];
    kvpi_vec_store(padded, type == KVP_F16 ? kvpi_vec_read_f16(half) : kvpi_vec_read_bf16(half));
    return padded[0];
}

INLINE vec kvpi_read_vec(uint32_t type, const void *elements, uint32_t i)
{
    switch (type) {
    case KVP_F32: return kvpi_vec_load((const float *)elements + i);
    case KVP_F16: return kvpi_vec_read_f16((const uint16_t *)elements + i);
    case KVP_BF16: return kvpi_vec_read_bf16((const uint16_t *)elements + i);
    case KVP_Q8_0:
        return kvpi_vec_mul(kvpi_vec_read_int8(kvpi_element_of(elements, i)),
                            kvpi_vec_all_f16(kvpi_group_of(elements, i)));
    default: return kvpi_vec_read_int8((const int8_t *)elements + i);
    }
}

/* Of a type that kvpi_read_vec reads; kvp_type_bytes, where it has to be a constant. Elements of
 * q8_0 count as a byte; for their scales a line more is asked for. */
INLINE uint32_t kvpi_element_bytes(uint32_t type)
{
    return type == KVP_F32 ? 4 : type == KVP_INT8 || type == KVP_Q8_0 ? 1 : 2;
}

/* [n] elements side by side, x scale. */
static void kvpi_read_elements(uint32_t type, float scale, const void *elements, uint32_t n,
                               float *out)
{
    uint32_t i = 0;
    if (type != KVP_E4M3) {
        for (; i + LANES <= n; i += LANES)
            kvpi_vec_store(out + i,
                           kvpi_vec_mul(kvpi_read_vec(type, elements, i), kvpi_vec_all(scale)));
    }
    for (; i < n; i++)
        out[i] = kvpi_read_one(type, elements, i) * scale;
}

static int kvpi_write_elements(uint32_t type, const float *values, uint32_t n, void *out)
{
    uint32_t i = 0;
    float rest[16] = {0};
    uint16_t halves[16];
    for (uint32_t e = 0; e < n; e++) {
        if (values[e] != values[e])
            return 0;
    }
    if (type == KVP_F32) {
        memcpy(out, values, n * sizeof *values);
        return 1;
    }
    for (; i + LANES <= n; i += LANES) {
        if (type == KVP_F16)
            kvpi_vec_write_f16((uint16_t *)out + i, kvpi_vec_load(values + i));
        else
            kvpi_vec_write_bf16((uint16_t *)out + i, kvpi_vec_load(values + i));
    }
    if (i < n) {
        memcpy(rest, values + i, (n - i) * sizeof *values);
        if (type == KVP_F16)
            kvpi_vec_write_f16(halves, kvpi_vec_load(rest));
        else
            kvpi_vec_write_bf16(halves, kvpi_vec_load(rest));
        memcpy((uint16_t *)out + i, halves, (n - i) * sizeof *halves);
    }
    return 1;
}

static float kvpi_largest_value(const float *values, uint32_t n)
{
    float largest = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        const float magnitude = fabsf(values[i]);
        largest = magnitude <= largest ? largest : magnitude;
        if (!(magnitude <= 0x1.fffffep127f))
            return INFINITY;
    }
    return largest;
}

/* In double precision, as memory.h has it: a quotient is a tie only if the true one is. */
static void kvpi_write_int8(const float *values, float scale, uint32_t n, int8_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const double x = rint((double)values[i] / (double)scale);
        out[i] = (int8_t)(x > 127.0 ? 127.0 : x < -127.0 ? -127.0 : x);
    }
}

/* --------------------------------------------------------------------------------------- scores */

static size_t kvpi_no_work_bytes(uint32_t dims, uint32_t v_dims)
{
    (void)dims;
    (void)v_dims;
    return 0;
}

/* [rows / ROWS][dims / LANES][ROWS][LANES]: in the order in which scores read them. */
static void kvpi_pack_f32(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    float *to = out;
    for (uint32_t row = 0; row < n_rows; row += ROWS) {
        for (uint32_t e = 0; e < dims; e += LANES) {
            for (uint32_t r = 0; r < ROWS; r++, to += LANES)
                kvpi_vec_store(to, kvpi_vec_load(rows + (size_t)(row + r) * dims + e));
        }
    }
}

/* Asks for four lines, into the first cache, at the pace of the work: a processor waits for no more
 * than a dozen or so at a time. */
INLINE void kvpi_ask_four(struct kvpi_ahead *ahead)
{
    const struct kvpi_lines lines = kvpi_ahead_next(ahead);
    for (uint32_t i = 0; i < 4; i++)
        __builtin_prefetch(lines.at[i], 0, 3);
}

/* Into the second cache, spread over the steps of the work: asked for all at once, most lines would
 * be dropped, or waited for. */
static inline void kvpi_ahead_step(struct kvpi_ahead *ahead)
{
    for (ahead->sum += ahead->fours; ahead->sum >= ahead->steps; ahead->sum -= ahead->steps) {
        const struct kvpi_lines lines = kvpi_ahead_next(ahead);
        for (uint32_t i = 0; i < 4; i++)
            __builtin_prefetch(lines.at[i], 0, 2);
    }
}

/* KEYS rows of K from `key` on. */
struct kvpi_key_rows {
    const unsigned char *at[KEYS];
};

INLINE struct kvpi_key_rows kvpi_key_rows_at(const struct kvpi_tile *tile, uint32_t key)
{
    struct kvpi_key_rows rows;
    for (uint32_t j = 0; j < KEYS; j++)
        rows.at[j] = tile->k.rows[key + j] + tile->k.offset;
    return rows;
}

/* ROWS queries, KEYS keys with elements of `type`. */
INLINE void kvpi_score_block(const struct kvpi_tile *tile, uint32_t type, const float *q,
                             uint32_t key, int asks, float *out)
{
    const uint32_t line = LINE / kvpi_element_bytes(type);
    const struct kvpi_key_rows k = kvpi_key_rows_at(tile, key);
    vec sums[ROWS][KEYS];
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t j = 0; j < KEYS; j++)
            sums[r][j] = kvpi_vec_zero();
    }
    for (uint32_t e = 0; e < tile->dims; e += LANES, q += ROWS * LANES) {
        vec x[KEYS];
        if (asks && e % line == 0)
            kvpi_ask_four(tile->ahead);
        if (asks && type == KVP_Q8_0 && e == 0)
            kvpi_ask_four(tile->ahead);
        for (uint32_t j = 0; j < KEYS; j++)
            x[j] = kvpi_read_vec(type, k.at[j], e);
        for (uint32_t r = 0; r < ROWS; r++) {
            const vec y = kvpi_vec_load(q + (size_t)r * LANES);
            for (uint32_t j = 0; j < KEYS; j++)
                sums[r][j] = kvpi_vec_fma(x[j], y, sums[r][j]);
        }
    }
    kvpi_vec_sum_block(sums, out + key, KVPI_TILE);
}

INLINE void kvpi_scores_of(const struct kvpi_tile *tile, uint32_t type, int asks, float *s)
{
    const float *q = tile->queries;
    for (uint32_t row = 0; row < tile->n_rows; row += ROWS) {
        for (uint32_t key = 0; key < tile->n_keys; key += KEYS)
            kvpi_score_block(tile, type, q + (size_t)row * tile->dims, key, asks && row == 0,
                             s + (size_t)row * KVPI_TILE);
    }
}

static void kvpi_scores_f32(const struct kvpi_tile *tile, float *s)
{
    kvpi_scores_of(tile, KVP_F32, 1, s);
}

/* --------------------------------------------------------------------------------------- values */

/* Some keys of a tile. */
struct kvpi_some_keys {
    uint32_t from, to;
};

/* The next ones whose V is used from end to end before others' is. Rows are longer than what fits
 * the registers, so that going back to the first of few keys costs loads of sums, and to the first
 * of many another wait for their lines: few where lines are waited for, which is at the first rows
 * of queries. */
static inline struct kvpi_some_keys kvpi_keys_from(const struct kvpi_tile *tile, uint32_t from,
                                                   uint32_t row)
{
    const uint32_t most = row == 0 ? 16 : KVPI_TILE, left = tile->n_keys - from;
    return (struct kvpi_some_keys){from, from + (left < most ? left : most)};
}

/* `n` vectors of V of a key, from `column` on. */
INLINE void kvpi_read_values(const struct kvpi_tile *tile, uint32_t type, uint32_t key,
                             uint32_t column, uint32_t n, vec out[COLUMNS])
{
    const unsigned char *v = tile->v.rows[key] + tile->v.offset;
    for (uint32_t c = 0; c < n; c++)
        out[c] = kvpi_read_vec(type, v, column + c * LANES);
}

/* ROWS rows, `n` vectors of each: COLUMNS, or one of what is left of a row. Or TWICE_ROWS rows,
 * TWICE_COLUMNS vectors of each. */
INLINE void kvpi_value_block(const struct kvpi_tile *tile, uint32_t type,
                             struct kvpi_some_keys keys, const float *weights, float *sums,
                             uint32_t column, uint32_t rows, uint32_t n, int asks)
{
    const uint32_t keys_of_four = 4 * LINE / (n * LANES * kvpi_element_bytes(type));
    vec block[TWICE_ROWS][COLUMNS];
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < n; c++)
            block[r][c] = kvpi_vec_load(sums + (size_t)r * tile->v_dims + column + c * LANES);
    }
    for (uint32_t key = keys.from; key < keys.to; key++) {
        vec x[COLUMNS];
        if (asks && key % keys_of_four == 0)
            kvpi_ask_four(tile->ahead);
        if (asks && type == KVP_Q8_0 && column == 0 && key % 4 == 0)
            kvpi_ask_four(tile->ahead);
        kvpi_read_values(tile, type, key, column, n, x);
        for (uint32_t r = 0; r < rows; r++) {
            const vec w = kvpi_vec_all(weights[(size_t)r * KVPI_TILE + key]);
            for (uint32_t c = 0; c < n; c++)
                block[r][c] = kvpi_vec_fma(x[c], w, block[r][c]);
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < n; c++)
            kvpi_vec_store(sums + (size_t)r * tile->v_dims + column + c * LANES, block[r][c]);
    }
}

INLINE void kvpi_values_twice(const struct kvpi_tile *tile, uint32_t type, const float *weights,
                              float *sums, int asks)
{
    struct kvpi_some_keys keys = {0, 0};
    while (keys.to < tile->n_keys) {
        keys = kvpi_keys_from(tile, keys.to, asks ? 0 : 1);
        for (uint32_t column = 0; column < tile->v_dims; column += TWICE_COLUMNS * LANES)
            kvpi_value_block(tile, type, keys, weights, sums, column, TWICE_ROWS, TWICE_COLUMNS,
                             asks);
    }
}

INLINE void kvpi_value_keys(const struct kvpi_tile *tile, uint32_t type, struct kvpi_some_keys keys,
                            const float *weights, float *sums, int asks)
{
    uint32_t column = 0;
    for (; column + COLUMNS * LANES <= tile->v_dims; column += COLUMNS * LANES)
        kvpi_value_block(tile, type, keys, weights, sums, column, ROWS, COLUMNS, asks);
    for (; column < tile->v_dims; column += LANES)
        kvpi_value_block(tile, type, keys, weights, sums, column, ROWS, 1, 0);
}

INLINE void kvpi_values_of(const struct kvpi_tile *tile, uint32_t type, const float *weights,
                           float *sums, int asks)
{
    uint32_t row = 0;
    for (; TWICE && row + TWICE_ROWS <= tile->n_rows; row += TWICE_ROWS)
        kvpi_values_twice(tile, type, weights + (size_t)row * KVPI_TILE,
                          sums + (size_t)row * tile->v_dims, asks && row == 0);
    for (; row < tile->n_rows; row += ROWS) {
        struct kvpi_some_keys keys = {0, 0};
        while (keys.to < tile->n_keys) {
            keys = kvpi_keys_from(tile, keys.to, row);
            kvpi_value_keys(tile, type, keys, weights + (size_t)row * KVPI_TILE,
                            sums + (size_t)row * tile->v_dims, asks && row == 0);
        }
    }
}

static void kvpi_values_f32(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    kvpi_values_of(tile, KVP_F32, weights, sums, 1);
}

/* -------------------------------------------------------------------------------------- softmax */

/* c x tanh(x / c) x log2(e): what a soft cap makes of a score, in base 2. */
static inline vec kvpi_cap_scores(vec x, float cap)
{
    const vec y = kvpi_vec_exp2(kvpi_vec_mul(x, kvpi_vec_all(2.0f * 1.44269504f / cap)));
    const vec t = kvpi_vec_sub(
        kvpi_vec_all(1.0f), kvpi_vec_div(kvpi_vec_all(2.0f), kvpi_vec_add(y, kvpi_vec_all(1.0f))));
    return kvpi_vec_mul(t, kvpi_vec_all(cap * 1.44269504f));
}

/* Hides what is not seen; returns largest scores, of every LANES keys one. */
INLINE vec kvpi_settle_scores(const struct kvpi_softmax *softmax, float *s, uint32_t n_keys,
                              uint64_t mask)
{
    const vec none = kvpi_vec_all(-INFINITY);
    vec largest = none;
    for (uint32_t i = 0; i < n_keys; i += LANES) {
        vec x = kvpi_vec_load(s + i);
        if (softmax->cap > 0.0f)
            x = kvpi_cap_scores(x, softmax->cap);
        if (mask != UINT64_MAX)
            x = kvpi_vec_pick(mask >> i, x, none);
        if (softmax->cap > 0.0f || mask != UINT64_MAX)
            kvpi_vec_store(s + i, x);
        largest = kvpi_vec_max(x, largest);
    }
    return largest;
}

/* What was summed so far, relative to a larger weight. */
static inline void kvpi_scale_row(const struct kvpi_softmax *softmax, uint32_t row, float largest)
{
    float *sums = softmax->sums + (size_t)row * softmax->v_dims;
    float factors[16];
    kvpi_vec_store(factors, kvpi_vec_exp2(kvpi_vec_all(softmax->largest[row] - largest)));
    softmax->largest[row] = largest;
    if (softmax->total[row] == 0.0f) /* and so are the sums */
        return;
    softmax->total[row] *= factors[0];
    for (uint32_t e = 0; e < softmax->v_dims; e += LANES)
        kvpi_vec_store(sums + e, kvpi_vec_mul(kvpi_vec_load(sums + e), kvpi_vec_all(factors[0])));
}

/* A tile comes between two streams of lines, and while it is computed few are asked for: so nothing
 * here waits for a number out of a whole register, unless a row's base has to be raised. */
INLINE vec kvpi_softmax_row(const struct kvpi_softmax *softmax, uint32_t row, uint32_t n_keys,
                            uint64_t mask)
{
    float *s = softmax->s + (size_t)row * KVPI_TILE;
    const vec largest = kvpi_settle_scores(softmax, s, n_keys, mask);
    if (kvpi_vec_any_above(largest, softmax->largest[row] + softmax->slack))
        kvpi_scale_row(softmax, row, kvpi_vec_largest(largest));
    const vec base = kvpi_vec_all(softmax->largest[row]);
    vec total = kvpi_vec_zero();
    uint32_t i = 0;
    for (; i < n_keys; i += LANES) {
        const vec x = kvpi_vec_exp2(kvpi_vec_sub(kvpi_vec_load(s + i), base));
        kvpi_vec_store(s + i, x);
        total = kvpi_vec_add(total, x);
    }
    for (; i < KVPI_TILE; i += LANES)
        kvpi_vec_store(s + i, kvpi_vec_zero());
    return total;
}

static void kvpi_softmax_f32(const struct kvpi_softmax *softmax)
{
    const uint64_t all = UINT64_MAX >> (KVPI_TILE - softmax->n_keys);
    for (uint32_t first = 0; first < softmax->n_rows; first += SOFTMAX_ROWS) {
        const uint32_t left = softmax->n_rows - first,
                       n = left < SOFTMAX_ROWS ? left : SOFTMAX_ROWS;
        vec totals[SOFTMAX_ROWS] = {kvpi_vec_zero(), kvpi_vec_zero(), kvpi_vec_zero(),
                                    kvpi_vec_zero()};
        float sums[SOFTMAX_ROWS];
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t query = (first + i) / softmax->group;
            const uint64_t mask = softmax->masks != NULL ? softmax->masks[query] & all : all;
            totals[i] = mask == UINT64_MAX
                            ? kvpi_softmax_row(softmax, first + i, KVPI_TILE, UINT64_MAX)
                            : kvpi_softmax_row(softmax, first + i, softmax->n_keys, mask);
        }
        kvpi_vec_sum4(totals, sums);
        for (uint32_t i = 0; i < n; i++)
            softmax->total[first + i] += sums[i];
    }
}

/* -------------------------------------------------------------------------------------- combine */

static void kvpi_combine_rows(const float *const *rows, const float *shares, uint32_t n,
                              uint32_t size, float *out)
{
    uint32_t e = 0;
    for (; e + LANES <= size; e += LANES) {
        vec sum = kvpi_vec_zero();
        for (uint32_t i = 0; i < n; i++) {
            if (shares[i] != 0.0f)
                sum = kvpi_vec_fma(kvpi_vec_load(rows[i] + e), kvpi_vec_all(shares[i]), sum);
        }
        kvpi_vec_store(out + e, sum);
    }
    for (; e < size; e++) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < n; i++)
            sum += shares[i] != 0.0f ? shares[i] * rows[i][e] : 0.0f;
        out[e] = sum;
    }
}

static const struct kvpi_path kvpi_f32_path = {.type = KVP_F32,
                                               .row_pad = ROWS,
                                               .dims_pad = KVPI_ROW_PAD,
                                               .slack = 8.0f,
                                               .query_bytes = sizeof(float),
                                               .work_bytes = kvpi_no_work_bytes,
                                               .pack = kvpi_pack_f32,
                                               .scores = kvpi_scores_f32,
                                               .values = kvpi_values_f32};

#endif

/* bf16_rows: K and V of bf16 as they lie, multiplied pair by pair (VDPBF16PS), four queries at a
 * time. For few queries: what is read of K and V is used from registers.
 *
 * A query is one row of bf16, or two: the second has what rounding removed from the first. A long
 * query that is rounded to eight bits changes its scores by more than the error that weights may
 * have. */
#ifndef KVPI_BF16_ROWS_H
#define KVPI_BF16_ROWS_H

#include "attention/fast/kernels_body.h"

enum { PAIR_ROWS = 4 };

/* A longer query (in base 2, scale included) is kept in two rows: scores of keys with elements
 * around 1 are then off by less than 0.005 either way. */
static const float longest_short_query = 4.0f;

static inline int kvpi_is_long(const float *row, uint32_t dims)
{
    vec sum = kvpi_vec_zero();
    for (uint32_t e = 0; e < dims; e += LANES)
        sum = kvpi_vec_fma(kvpi_vec_load(row + e), kvpi_vec_load(row + e), sum);
    return !(kvpi_vec_sum(sum) <= longest_short_query * longest_short_query);
}

static inline int kvpi_has_long(const float *rows, uint32_t n_rows, uint32_t dims)
{
    for (uint32_t row = 0; row < n_rows; row++) {
        if (kvpi_is_long(rows + (size_t)row * dims, dims))
            return 1;
    }
    return 0;
}

static inline void kvpi_split_bf16(const float *row, uint16_t *high, uint16_t *low)
{
    const vec x = kvpi_vec_load(row);
    kvpi_vec_write_bf16(high, x);
    kvpi_vec_write_bf16(low, kvpi_vec_sub(x, kvpi_vec_read_bf16(high)));
}

/* [rows / 4][dims / 32][4][32] in the order in which scores read them, the same of what is left
 * out, and whether that counts. */
static void kvpi_pack_bf16_rows(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    uint16_t *high = out, *low = high + (size_t)n_rows * dims;
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    memcpy(low + (size_t)n_rows * dims, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row += PAIR_ROWS) {
        for (uint32_t e = 0; e < dims; e += 2 * LANES) {
            for (uint32_t r = 0; r < PAIR_ROWS; r++, high += 2 * LANES, low += 2 * LANES) {
                const float *from = rows + (size_t)(row + r) * dims + e;
                kvpi_split_bf16(from, high, low);
                kvpi_split_bf16(from + LANES, high + LANES, low + LANES);
            }
        }
    }
}

static inline __m512bh kvpi_pairs_at(const void *at)
{
    return (__m512bh)_mm512_loadu_si512(at);
}

INLINE void kvpi_score_pairs(const struct kvpi_tile *tile, const uint16_t *q, uint32_t key,
                             int asks, vec sums[PAIR_ROWS][KEYS])
{
    const struct kvpi_key_rows k = kvpi_key_rows_at(tile, key);
    const size_t n_bytes = 2 * (size_t)tile->dims;
    for (size_t at = 0; at < n_bytes; at += LINE, q += (size_t)2 * PAIR_ROWS * LANES) {
        __m512bh x[KEYS];
        if (asks)
            kvpi_ask_four(tile->ahead);
        for (uint32_t j = 0; j < KEYS; j++)
            x[j] = kvpi_pairs_at(k.at[j] + at);
        for (uint32_t r = 0; r < PAIR_ROWS; r++) {
            const __m512bh y = kvpi_pairs_at(q + (size_t)r * 2 * LANES);
            for (uint32_t j = 0; j < KEYS; j++)
                sums[r][j] = _mm512_dpbf16_ps(sums[r][j], x[j], y);
        }
    }
}

static void kvpi_scores_bf16_rows(const struct kvpi_tile *tile, float *s)
{
    const uint16_t *q = tile->queries;
    const size_t low = (size_t)tile->n_rows * tile->dims;
    uint32_t has_low;
    memcpy(&has_low, q + 2 * low, sizeof has_low);
    for (uint32_t row = 0; row < tile->n_used; row += PAIR_ROWS) {
        const uint16_t *rows = q + (size_t)row * tile->dims;
        for (uint32_t key = 0; key < tile->n_keys; key += KEYS) {
            vec sums[PAIR_ROWS][KEYS];
            for (uint32_t r = 0; r < PAIR_ROWS; r++) {
                for (uint32_t j = 0; j < KEYS; j++)
                    sums[r][j] = kvpi_vec_zero();
            }
            kvpi_score_pairs(tile, rows, key, row == 0, sums);
            if (has_low)
                kvpi_score_pairs(tile, rows + low, key, 0, sums);
            kvpi_vec_sum_block(sums, s + (size_t)row * KVPI_TILE + key, KVPI_TILE);
        }
    }
}

/* Weights of PAIR_ROWS rows, as pairs of bf16. */
static inline void kvpi_pair_weights(const float *weights, uint32_t *out)
{
    for (uint32_t r = 0; r < PAIR_ROWS; r++) {
        for (uint32_t half = 0; half < 2; half++) {
            const float *w = weights + (size_t)r * KVPI_TILE + (size_t)half * 32;
            const __m512bh pairs =
                _mm512_cvtne2ps_pbh(_mm512_loadu_ps(w + LANES), _mm512_loadu_ps(w));
            memcpy(out + (size_t)r * KVPI_TILE / 2 + (size_t)half * LANES, &pairs, sizeof pairs);
        }
    }
}

enum { PAIR_COLUMNS = 2 }; /* of 32 dims each */

INLINE __m512i kvpi_value_pairs(const struct kvpi_tile *tile, uint32_t key, size_t at)
{
    return key < tile->n_keys
               ? _mm512_loadu_si512((const void *)(tile->v.rows[key] + tile->v.offset + at))
               : _mm512_setzero_si512();
}

/* PAIR_ROWS rows of sums, `n` times 32 dims from `e` on: each 32 come apart in unpacking. */
INLINE void kvpi_value_pair_block(const struct kvpi_tile *tile, struct kvpi_some_keys keys,
                                  const uint32_t *pairs, float *sums, uint32_t e, uint32_t n,
                                  int asks)
{
    vec block[PAIR_ROWS][PAIR_COLUMNS][2];
    for (uint32_t r = 0; r < PAIR_ROWS; r++) {
        for (uint32_t c = 0; c < 2 * n; c++)
            block[r][c / 2][c % 2] =
                kvpi_vec_load(sums + (size_t)r * tile->v_dims + e + (size_t)c * LANES);
    }
    for (uint32_t pair = keys.from / 2; 2 * pair < keys.to; pair++) {
        if (asks && pair % (2 / n) == 0)
            kvpi_ask_four(tile->ahead);
        for (uint32_t c = 0; c < n; c++) {
            const size_t at = 2 * ((size_t)e + 32 * (size_t)c);
            const __m512i a = kvpi_value_pairs(tile, 2 * pair, at);
            const __m512i b = kvpi_value_pairs(tile, 2 * pair + 1, at);
            const __m512bh low = (__m512bh)_mm512_unpacklo_epi16(a, b);
            const __m512bh high = (__m512bh)_mm512_unpackhi_epi16(a, b);
            for (uint32_t r = 0; r < PAIR_ROWS; r++) {
                const __m512bh w =
                    (__m512bh)_mm512_set1_epi32((int32_t)pairs[(size_t)r * KVPI_TILE / 2 + pair]);
                block[r][c][0] = _mm512_dpbf16_ps(block[r][c][0], low, w);
                block[r][c][1] = _mm512_dpbf16_ps(block[r][c][1], high, w);
            }
        }
    }
    for (uint32_t r = 0; r < PAIR_ROWS; r++) {
        for (uint32_t c = 0; c < 2 * n; c++)
            kvpi_vec_store(sums + (size_t)r * tile->v_dims + e + (size_t)c * LANES,
                           block[r][c / 2][c % 2]);
    }
}

static void kvpi_values_bf16_rows(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    uint32_t pairs[PAIR_ROWS * KVPI_TILE / 2];
    for (uint32_t row = 0; row < tile->n_used; row += PAIR_ROWS) {
        float *rows = sums + (size_t)row * tile->v_dims;
        struct kvpi_some_keys keys = {0, 0};
        kvpi_pair_weights(weights + (size_t)row * KVPI_TILE, pairs);
        while (keys.to < tile->n_keys) {
            uint32_t e = 0;
            keys = kvpi_keys_from(tile, keys.to, row);
            for (; e + 64 <= tile->v_dims; e += 64)
                kvpi_value_pair_block(tile, keys, pairs, rows, e, 2, row == 0);
            if (e < tile->v_dims)
                kvpi_value_pair_block(tile, keys, pairs, rows, e, 1, row == 0);
        }
    }
}

/* Each 32 dims came apart into [0-3 8-11 16-19 24-27] and [4-7 12-15 20-23 28-31]. */
static void kvpi_order_bf16(float *sums, uint32_t v_dims, float *memory)
{
    (void)memory;
    float row[32];
    for (uint32_t e = 0; e < v_dims; e += 32) {
        memcpy(row, sums + e, sizeof row);
        for (uint32_t i = 0; i < 4; i++) {
            memcpy(sums + e + (size_t)8 * i, row + (size_t)4 * i, 4 * sizeof *row);
            memcpy(sums + e + (size_t)8 * i + 4, row + 16 + (size_t)4 * i, 4 * sizeof *row);
        }
    }
}

static const struct kvpi_path kvpi_bf16_rows_path = {.type = KVP_BF16,
                                                     .row_pad = PAIR_ROWS,
                                                     .dims_pad = 32,
                                                     .slack = 8.0f,
                                                     .query_bytes = 5,
                                                     .work_bytes = kvpi_no_work_bytes,
                                                     .pack = kvpi_pack_bf16_rows,
                                                     .scores = kvpi_scores_bf16_rows,
                                                     .values = kvpi_values_bf16_rows,
                                                     .order = kvpi_order_bf16};

#endif

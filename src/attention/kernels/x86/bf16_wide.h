/* bf16_wide: K and V of bf16 as they lie, multiplied as f32, four queries at a time: each 32 dims
 * become 16 even ones by a shift and 16 odd ones by a mask. For processors on which VDPBF16PS takes
 * as long as four f32 products: its 32 products are two of those. Queries and weights stay f32. */
#ifndef KVPI_BF16_WIDE_H
#define KVPI_BF16_WIDE_H

#include "attention/fast/kernels_body.h"

enum { WIDE_ROWS = 4, WIDE_COLUMNS = 2 /* of 32 dims each */ };

/* --------------------------------------------------------------------------------------- scores */

/* Every other one of 32: the even ones (`first` 0) or the odd ones (1). */
INLINE vec kvpi_every_other(vec a, vec b, int32_t first)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(first)), b);
}

/* [rows / 4][dims / 32][even ones, odd ones][4][16]: in the order in which scores read them. */
static void kvpi_pack_bf16_wide(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    float *to = out;
    for (uint32_t row = 0; row < n_rows; row += WIDE_ROWS) {
        for (uint32_t e = 0; e < dims; e += 32, to += (size_t)2 * WIDE_ROWS * LANES) {
            for (uint32_t r = 0; r < WIDE_ROWS; r++) {
                const float *from = rows + (size_t)(row + r) * dims + e;
                const vec a = kvpi_vec_load(from), b = kvpi_vec_load(from + LANES);
                kvpi_vec_store(to + (size_t)r * LANES, kvpi_every_other(a, b, 0));
                kvpi_vec_store(to + (size_t)(WIDE_ROWS + r) * LANES, kvpi_every_other(a, b, 1));
            }
        }
    }
}

INLINE void kvpi_score_wide(const struct kvpi_tile *tile, const float *q, uint32_t key, int asks,
                            float *s)
{
    const __m512i odd = _mm512_set1_epi32((int32_t)0xFFFF0000);
    const struct kvpi_key_rows k = kvpi_key_rows_at(tile, key);
    const size_t n_bytes = 2 * (size_t)tile->dims;
    vec sums[WIDE_ROWS][KEYS];
    for (uint32_t r = 0; r < WIDE_ROWS; r++) {
        for (uint32_t j = 0; j < KEYS; j++)
            sums[r][j] = kvpi_vec_zero();
    }
    for (size_t at = 0; at < n_bytes; at += LINE, q += (size_t)2 * WIDE_ROWS * LANES) {
        __m512i x[KEYS];
        if (asks)
            kvpi_ask_four(tile->ahead);
        for (uint32_t j = 0; j < KEYS; j++)
            x[j] = _mm512_loadu_si512((const void *)(k.at[j] + at));
        for (uint32_t half = 0; half < 2; half++) {
            vec y[KEYS];
            for (uint32_t j = 0; j < KEYS; j++)
                y[j] = _mm512_castsi512_ps(half == 0 ? _mm512_slli_epi32(x[j], 16)
                                                     : _mm512_and_si512(x[j], odd));
            for (uint32_t r = 0; r < WIDE_ROWS; r++) {
                const vec z = kvpi_vec_load(q + (size_t)(half * WIDE_ROWS + r) * LANES);
                for (uint32_t j = 0; j < KEYS; j++)
                    sums[r][j] = kvpi_vec_fma(y[j], z, sums[r][j]);
            }
        }
    }
    kvpi_vec_sum_block(sums, s + key, KVPI_TILE);
}

static void kvpi_scores_bf16_wide(const struct kvpi_tile *tile, float *s)
{
    const float *q = tile->queries;
    for (uint32_t row = 0; row < tile->n_used; row += WIDE_ROWS) {
        for (uint32_t key = 0; key < tile->n_keys; key += KEYS)
            kvpi_score_wide(tile, q + (size_t)row * tile->dims, key, row == 0,
                            s + (size_t)row * KVPI_TILE);
    }
}

/* --------------------------------------------------------------------------------------- values */

/* WIDE_ROWS rows of sums, `n` times 32 dims from `e` on. */
INLINE void kvpi_value_wide_block(const struct kvpi_tile *tile, struct kvpi_some_keys keys,
                                  const float *weights, float *sums, uint32_t e, uint32_t n,
                                  int asks)
{
    const __m512i odd = _mm512_set1_epi32((int32_t)0xFFFF0000);
    vec block[WIDE_ROWS][WIDE_COLUMNS][2];
    for (uint32_t r = 0; r < WIDE_ROWS; r++) {
        for (uint32_t c = 0; c < 2 * n; c++)
            block[r][c / 2][c % 2] =
                kvpi_vec_load(sums + (size_t)r * tile->v_dims + e + (size_t)c * LANES);
    }
    for (uint32_t key = keys.from; key < keys.to; key++) {
        const unsigned char *v = tile->v.rows[key] + tile->v.offset + 2 * (size_t)e;
        if (asks && key % (4 / n) == 0)
            kvpi_ask_four(tile->ahead);
        for (uint32_t c = 0; c < n; c++) {
            const __m512i x = _mm512_loadu_si512((const void *)(v + (size_t)c * LINE));
            const vec low = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
            const vec high = _mm512_castsi512_ps(_mm512_and_si512(x, odd));
            for (uint32_t r = 0; r < WIDE_ROWS; r++) {
                const vec w = kvpi_vec_all(weights[(size_t)r * KVPI_TILE + key]);
                block[r][c][0] = kvpi_vec_fma(low, w, block[r][c][0]);
                block[r][c][1] = kvpi_vec_fma(high, w, block[r][c][1]);
            }
        }
    }
    for (uint32_t r = 0; r < WIDE_ROWS; r++) {
        for (uint32_t c = 0; c < 2 * n; c++)
            kvpi_vec_store(sums + (size_t)r * tile->v_dims + e + (size_t)c * LANES,
                           block[r][c / 2][c % 2]);
    }
}

static void kvpi_values_bf16_wide(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    for (uint32_t row = 0; row < tile->n_used; row += WIDE_ROWS) {
        const float *w = weights + (size_t)row * KVPI_TILE;
        float *rows = sums + (size_t)row * tile->v_dims;
        struct kvpi_some_keys keys = {0, 0};
        while (keys.to < tile->n_keys) {
            uint32_t e = 0;
            keys = kvpi_keys_from(tile, keys.to, row);
            for (; e + 64 <= tile->v_dims; e += 64)
                kvpi_value_wide_block(tile, keys, w, rows, e, 2, row == 0);
            if (e < tile->v_dims)
                kvpi_value_wide_block(tile, keys, w, rows, e, 1, row == 0);
        }
    }
}

/* Each 32 dims came apart into even and odd ones. */
static void kvpi_order_bf16_wide(float *sums, uint32_t v_dims, float *memory)
{
    (void)memory;
    for (uint32_t e = 0; e < v_dims; e += 2 * LANES)
        kvpi_vec_interleave(kvpi_vec_load(sums + e), kvpi_vec_load(sums + e + LANES), sums + e);
}

static const struct kvpi_path kvpi_bf16_wide_path = {.type = KVP_BF16,
                                                     .row_pad = WIDE_ROWS,
                                                     .dims_pad = 32,
                                                     .slack = 8.0f,
                                                     .query_bytes = sizeof(float),
                                                     .work_bytes = kvpi_no_work_bytes,
                                                     .pack = kvpi_pack_bf16_wide,
                                                     .scores = kvpi_scores_bf16_wide,
                                                     .values = kvpi_values_bf16_wide,
                                                     .order = kvpi_order_bf16_wide};

#endif

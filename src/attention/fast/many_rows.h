/* many_rows: scores and values of many queries, as products of matrices in f32. K is transposed
 * once a tile, so that keys lie side by side. Then nothing is summed across a register, and all
 * queries share the cost. For processors without tiles.
 *
 * work: [dims, 64] K. */
#ifndef KVPI_MANY_ROWS_H
#define KVPI_MANY_ROWS_H

#include "attention/fast/kernels_body.h"

enum { MANY_ROWS = 4, MANY_KEYS = KVPI_TILE / LANES /* vectors of keys */, FEW_ROWS = 8 };

/* --------------------------------------------------------------------------------------- scores */

/* [rows / 4][dims][4]: in the order in which scores read them. */
static void kvpi_pack_many(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    float *to = out;
    for (uint32_t row = 0; row < n_rows; row += MANY_ROWS) {
        for (uint32_t e = 0; e < dims; e++) {
            for (uint32_t r = 0; r < MANY_ROWS; r++)
                *to++ = rows[(size_t)(row + r) * dims + e];
        }
    }
}

/* 16 keys of 16 dims become 16 dims of 16 keys. */
INLINE void kvpi_turn_16(vec x[16])
{
    vec y[16];
    for (uint32_t i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (uint32_t i = 0; i < 16; i += 4) {
        for (uint32_t half = 0; half < 2; half++) {
            const __m512d a = _mm512_castps_pd(y[i + half]), b = _mm512_castps_pd(y[i + half + 2]);
            x[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    /* x[4 g + i]: of keys 4 g to 4 g + 3, dims i, 4 + i, 8 + i and 12 + i */
    for (uint32_t i = 0; i < 4; i++) {
        const vec a = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x88);
        const vec b = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x88);
        const vec c = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xdd);
        const vec d = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xdd);
        y[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        y[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88);
        y[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        y[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
    for (uint32_t i = 0; i < 16; i++)
        x[i] = y[i];
}

INLINE void kvpi_turn_keys(const struct kvpi_tile *tile, uint32_t type, float *out)
{
    const uint32_t element = kvpi_element_bytes(type);
    for (uint32_t key = 0; key < tile->n_keys; key += LANES) {
        for (uint32_t e = 0; e < tile->dims; e += LANES) {
            vec x[LANES];
            for (uint32_t i = 0; i < LANES; i++) {
                if (i % 4 == 0 && e * element % LINE == 0)
                    kvpi_ask_four(tile->ahead);
                if (i % 4 == 0 && e == 0 && type == KVP_Q8_0)
                    kvpi_ask_four(tile->ahead);
                x[i] = kvpi_read_vec(type, tile->k.rows[key + i] + tile->k.offset, e);
            }
            kvpi_turn_16(x);
            for (uint32_t i = 0; i < LANES; i++)
                kvpi_vec_store(out + (size_t)(e + i) * KVPI_TILE + key, x[i]);
        }
    }
}

/* MANY_ROWS queries, n vectors of keys. */
INLINE void kvpi_score_many(const float *k, const float *q, uint32_t dims, uint32_t n, float *s)
{
    vec sums[MANY_ROWS][MANY_KEYS];
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            sums[r][c] = kvpi_vec_zero();
    }
    for (uint32_t e = 0; e < dims; e++, k += KVPI_TILE, q += MANY_ROWS) {
        vec x[MANY_KEYS];
        for (uint32_t c = 0; c < n; c++)
            x[c] = kvpi_vec_load(k + (size_t)c * LANES);
        for (uint32_t r = 0; r < MANY_ROWS; r++) {
            const vec y = kvpi_vec_all(q[r]);
            for (uint32_t c = 0; c < n; c++)
                sums[r][c] = kvpi_vec_fma(x[c], y, sums[r][c]);
        }
    }
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            kvpi_vec_store(s + (size_t)r * KVPI_TILE + (size_t)c * LANES, sums[r][c]);
    }
}

INLINE void kvpi_scores_many(const struct kvpi_tile *tile, uint32_t type, float *s)
{
    const uint32_t n = (tile->n_keys + LANES - 1) / LANES;
    const float *q = tile->queries;
    float *k = tile->work;
    kvpi_turn_keys(tile, type, k);
    for (uint32_t row = 0; row < tile->n_used;
         row += MANY_ROWS, q += (size_t)MANY_ROWS * tile->dims, s += MANY_ROWS * KVPI_TILE) {
        switch (n) {
        case 1: kvpi_score_many(k, q, tile->dims, 1, s); break;
        case 2: kvpi_score_many(k, q, tile->dims, 2, s); break;
        case 3: kvpi_score_many(k, q, tile->dims, 3, s); break;
        default: kvpi_score_many(k, q, tile->dims, 4, s); break;
        }
    }
}

/* ----------------------------------------------------------------------------------------- f32 */

static size_t kvpi_many_f32_bytes(uint32_t dims, uint32_t v_dims)
{
    (void)v_dims;
    return (size_t)KVPI_TILE * dims * sizeof(float);
}

static void kvpi_scores_many_f32(const struct kvpi_tile *tile, float *s)
{
    kvpi_scores_many(tile, KVP_F32, s);
}

static const struct kvpi_path kvpi_f32_many_path = {.type = KVP_F32,
                                                    .row_pad = MANY_ROWS,
                                                    .dims_pad = KVPI_ROW_PAD,
                                                    .slack = 8.0f,
                                                    .query_bytes = sizeof(float),
                                                    .work_bytes = kvpi_many_f32_bytes,
                                                    .pack = kvpi_pack_many,
                                                    .scores = kvpi_scores_many_f32,
                                                    .values = kvpi_values_f32,
                                                    .few_rows = FEW_ROWS,
                                                    .few = &kvpi_f32_path};

#endif

/* bf16_many: many queries on K and V of bf16, as products of matrices (VDPBF16PS) without tiles. K
 * is transposed once a tile, so that pairs of dims of 16 keys fill a register; V is interleaved, so
 * that pairs of keys do. Then nothing is summed across a register, and all queries share the cost.
 * For processors on which VDPBF16PS takes no longer than one product of f32; for few queries see
 * bf16_rows.h.
 *
 * work: [dims / 2, 64 keys] K, then [v_dims / 64][32 pairs of keys, 64 dims] V. */
#ifndef KVPI_BF16_MANY_H
#define KVPI_BF16_MANY_H

#include "attention/fast/many_rows.h"
#include "attention/kernels/x86/bf16_rows.h"

enum { PAIRS = KVPI_TILE / 2, VALUE_VECS = 4 /* of 16 sums */, BF16_FEW_ROWS = 16 };

static size_t kvpi_bf16_many_bytes(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * 2 * (dims + (v_dims + 63) / 64 * 64);
}

/* Lines of the next head are asked for while the rows of this one are computed. */
static inline void kvpi_begin_row_steps(const struct kvpi_tile *tile)
{
    tile->ahead->fours = KVPI_TILE * 2 * (tile->dims + tile->v_dims) / LINE / 4;
    tile->ahead->steps = 2 * ((tile->n_used + MANY_ROWS - 1) / MANY_ROWS);
    tile->ahead->sum = 0;
}

/* --------------------------------------------------------------------------------------- scores */

/* [rows / 4][dims / 2][4] pairs in the order in which scores read them, the same of what is left
 * out, and whether that counts. */
static void kvpi_pack_bf16_many(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    const size_t n = (size_t)n_rows * dims / 2;
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    uint32_t *high = out, *low = high + n;
    memcpy(low + n, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row++) {
        const size_t first = (size_t)(row / MANY_ROWS) * MANY_ROWS * dims / 2 + row % MANY_ROWS;
        for (uint32_t e = 0; e < dims; e += LANES) {
            uint32_t pairs[2][LANES / 2];
            kvpi_split_bf16(rows + (size_t)row * dims + e, (uint16_t *)(void *)pairs[0],
                            (uint16_t *)(void *)pairs[1]);
            for (uint32_t i = 0; i < LANES / 2; i++) {
                high[first + (size_t)MANY_ROWS * (e / 2 + i)] = pairs[0][i];
                low[first + (size_t)MANY_ROWS * (e / 2 + i)] = pairs[1][i];
            }
        }
    }
}

static void kvpi_turn_pairs(const struct kvpi_tile *tile, float *out)
{
    for (uint32_t key = 0; key < tile->n_keys; key += LANES) {
        for (uint32_t pair = 0; pair < tile->dims / 2; pair += LANES) {
            vec x[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = _mm512_loadu_ps(tile->k.rows[key + i] + tile->k.offset + (size_t)4 * pair);
            kvpi_turn_16(x);
            for (uint32_t i = 0; i < LANES; i++)
                kvpi_vec_store(out + (size_t)(pair + i) * KVPI_TILE + key, x[i]);
        }
    }
}

/* MANY_ROWS queries, n vectors of keys. */
INLINE void kvpi_add_pair_scores(const float *k, const uint32_t *q, uint32_t n_pairs, uint32_t n,
                                 vec sums[MANY_ROWS][MANY_KEYS])
{
    for (uint32_t pair = 0; pair < n_pairs; pair++, k += KVPI_TILE, q += MANY_ROWS) {
        __m512bh x[MANY_KEYS];
        for (uint32_t c = 0; c < n; c++)
            x[c] = kvpi_pairs_at(k + (size_t)c * LANES);
        for (uint32_t r = 0; r < MANY_ROWS; r++) {
            const __m512bh y = (__m512bh)_mm512_set1_epi32((int32_t)q[r]);
            for (uint32_t c = 0; c < n; c++)
                sums[r][c] = _mm512_dpbf16_ps(sums[r][c], x[c], y);
        }
    }
}

/* `low`: what rounding took from the queries; NULL: it does not count. */
INLINE void kvpi_score_pair_rows(const float *k, const uint32_t *q, const uint32_t *low,
                                 uint32_t dims, uint32_t n, float *s)
{
    vec sums[MANY_ROWS][MANY_KEYS];
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            sums[r][c] = kvpi_vec_zero();
    }
    kvpi_add_pair_scores(k, q, dims / 2, n, sums);
    if (low != NULL)
        kvpi_add_pair_scores(k, low, dims / 2, n, sums);
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            kvpi_vec_store(s + (size_t)r * KVPI_TILE + (size_t)c * LANES, sums[r][c]);
    }
}

static void kvpi_scores_bf16_many(const struct kvpi_tile *tile, float *s)
{
    const uint32_t *q = tile->queries;
    const size_t n_packed = (size_t)tile->n_rows * tile->dims / 2;
    float *k = tile->work;
    uint32_t has_low;
    memcpy(&has_low, q + 2 * n_packed, sizeof has_low);
    kvpi_begin_row_steps(tile);
    kvpi_turn_pairs(tile, k);
    for (uint32_t row = 0; row < tile->n_used; row += MANY_ROWS, s += MANY_ROWS * KVPI_TILE) {
        const uint32_t *rows = q + (size_t)row * tile->dims / 2;
        const uint32_t *low = has_low ? rows + n_packed : NULL;
        kvpi_ahead_step(tile->ahead);
        switch ((tile->n_keys + LANES - 1) / LANES) {
        case 1: kvpi_score_pair_rows(k, rows, low, tile->dims, 1, s); break;
        case 2: kvpi_score_pair_rows(k, rows, low, tile->dims, 2, s); break;
        case 3: kvpi_score_pair_rows(k, rows, low, tile->dims, 3, s); break;
        default: kvpi_score_pair_rows(k, rows, low, tile->dims, 4, s); break;
        }
    }
}

/* --------------------------------------------------------------------------------------- values */

/* Zeros behind the last key. Each 32 dims come apart; see kvpi_order_bf16. */
static void kvpi_interleave_pairs(const struct kvpi_tile *tile, uint32_t e, uint32_t n,
                                  unsigned char *out)
{
    for (uint32_t pair = 0; pair < PAIRS; pair++, out += VALUE_VECS * LINE) {
        for (uint32_t c = 0; c < n; c += 2) {
            const size_t at = 2 * (e + (size_t)c * LANES);
            const __m512i a = kvpi_value_pairs(tile, 2 * pair, at);
            const __m512i b = kvpi_value_pairs(tile, 2 * pair + 1, at);
            _mm512_storeu_si512((void *)(out + (size_t)c * LINE), _mm512_unpacklo_epi16(a, b));
            _mm512_storeu_si512((void *)(out + (size_t)(c + 1) * LINE),
                                _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* n vectors of the sums of MANY_ROWS rows. */
INLINE void kvpi_add_pair_values(const unsigned char *v, const uint32_t *pairs, uint32_t n,
                                 float *sums, size_t stride)
{
    vec block[MANY_ROWS][VALUE_VECS];
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            block[r][c] = kvpi_vec_load(sums + r * stride + (size_t)c * LANES);
    }
    for (uint32_t pair = 0; pair < PAIRS; pair++, v += VALUE_VECS * LINE) {
        __m512bh x[VALUE_VECS];
        for (uint32_t c = 0; c < n; c++)
            x[c] = kvpi_pairs_at(v + (size_t)c * LINE);
        for (uint32_t r = 0; r < MANY_ROWS; r++) {
            const __m512bh w =
                (__m512bh)_mm512_set1_epi32((int32_t)pairs[(size_t)r * PAIRS + pair]);
            for (uint32_t c = 0; c < n; c++)
                block[r][c] = _mm512_dpbf16_ps(block[r][c], x[c], w);
        }
    }
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            kvpi_vec_store(sums + r * stride + (size_t)c * LANES, block[r][c]);
    }
}

static void kvpi_values_bf16_many(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    enum { WIDE = VALUE_VECS * LANES };
    unsigned char *v = (unsigned char *)tile->work + (size_t)KVPI_TILE * 2 * tile->dims;
    const size_t block_bytes = (size_t)PAIRS * VALUE_VECS * LINE;
    uint32_t pairs[PAIR_ROWS * PAIRS];
    for (uint32_t e = 0; e < tile->v_dims; e += WIDE)
        kvpi_interleave_pairs(tile, e, e + WIDE <= tile->v_dims ? VALUE_VECS : 2,
                              v + e / WIDE * block_bytes);
    for (uint32_t row = 0; row < tile->n_used; row += MANY_ROWS) {
        float *rows = sums + (size_t)row * tile->v_dims;
        uint32_t e = 0;
        kvpi_ahead_step(tile->ahead);
        kvpi_pair_weights(weights + (size_t)row * KVPI_TILE, pairs);
        for (; e + WIDE <= tile->v_dims; e += WIDE)
            kvpi_add_pair_values(v + e / WIDE * block_bytes, pairs, VALUE_VECS, rows + e,
                                 tile->v_dims);
        if (e < tile->v_dims)
            kvpi_add_pair_values(v + e / WIDE * block_bytes, pairs, 2, rows + e, tile->v_dims);
    }
}

static const struct kvpi_path kvpi_bf16_pairs_path = {.type = KVP_BF16,
                                                      .row_pad = MANY_ROWS,
                                                      .dims_pad = 32,
                                                      .slack = 8.0f,
                                                      .query_bytes = 5,
                                                      .work_bytes = kvpi_bf16_many_bytes,
                                                      .pack = kvpi_pack_bf16_many,
                                                      .asks_early = 1,
                                                      .scores = kvpi_scores_bf16_many,
                                                      .values = kvpi_values_bf16_many,
                                                      .order = kvpi_order_bf16,
                                                      .few_rows = BF16_FEW_ROWS,
                                                      .few = &kvpi_bf16_rows_path};

#endif

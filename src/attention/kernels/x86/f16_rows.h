/* f16_rows: K and V of f16 as they lie, in products of f16, four queries at a time.
 *
 * Sums of f16 are short: of a score, every 32nd product and then neighbours, four times; of values,
 * those of 32 keys. Queries and weights are scaled so that no such sum exceeds the largest element
 * of K or V: nothing overflows that was not infinite. */
#ifndef KVPI_F16_ROWS_H
#define KVPI_F16_ROWS_H

#include "attention/fast/kernels_body.h"

enum { HALF_LANES = 32, HALF_ROWS = 4, HALF_FLUSH = 32 };

/* The largest |x|, or NaN if one of them is none. */
static inline float kvpi_largest_of(const float *row, uint32_t n)
{
    vec largest = kvpi_vec_zero();
    int has_nan = 0;
    for (uint32_t e = 0; e < n; e += LANES) {
        const vec x = kvpi_vec_load(row + e);
        has_nan |= kvpi_vec_has_nan(x);
        largest = kvpi_vec_max(_mm512_abs_ps(x), largest);
    }
    return has_nan ? NAN : kvpi_vec_largest(largest);
}

/* [rows / 4][dims / 32][4][32] f16 in the order in which scores read them, then [rows] what they
 * were divided by. A sum of f16 is one of D / 32 products in each lane, and of 16 lanes: D / 2
 * products in all. */
static void kvpi_pack_f16_rows(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    uint16_t *halves = out;
    float *scales = (float *)(void *)(halves + (size_t)n_rows * dims);
    for (uint32_t row = 0; row < n_rows; row++) {
        const float *from = rows + (size_t)row * dims;
        const float largest = kvpi_largest_of(from, dims);
        const float scale =
            largest > 0.0f || largest != largest ? largest * (float)dims / 2.0f : 1.0f;
        uint16_t *to = halves + (size_t)(row - row % HALF_ROWS) * dims +
                       (size_t)(row % HALF_ROWS) * HALF_LANES;
        for (uint32_t e = 0; e < dims; e += LANES)
            kvpi_vec_write_f16(to + (size_t)(e / HALF_LANES) * HALF_ROWS * HALF_LANES +
                                   e % HALF_LANES,
                               kvpi_vec_div(kvpi_vec_load(from + e), kvpi_vec_all(scale)));
        scales[row] = scale;
    }
}

INLINE __m512h kvpi_halves_at(const void *at)
{
    return _mm512_castsi512_ph(_mm512_loadu_si512(at));
}

INLINE __m512i kvpi_add_halves(__m512i a, __m512i b)
{
    return _mm512_castph_si512(_mm512_add_ph(_mm512_castsi512_ph(a), _mm512_castsi512_ph(b)));
}

/* Of each two groups of 16 (32, 64, 128) bits that are neighbours the sum, those of a beside those
 * of b. */
INLINE __m512i kvpi_add_pairs16(__m512h a, __m512h b)
{
    const __m512i x = _mm512_castph_si512(a), y = _mm512_castph_si512(b);
    return kvpi_add_halves(_mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y));
}

INLINE __m512i kvpi_add_pairs32(__m512i a, __m512i b)
{
    return kvpi_add_halves(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i kvpi_add_pairs64(__m512i a, __m512i b)
{
    return kvpi_add_halves(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

INLINE __m512i kvpi_add_pairs128(__m512i a, __m512i b)
{
    return kvpi_add_halves(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xEE));
}

INLINE void kvpi_score_halves(const struct kvpi_tile *tile, const uint16_t *q, uint32_t key,
                              int asks, __m512h sums[HALF_ROWS][KEYS])
{
    const struct kvpi_key_rows k = kvpi_key_rows_at(tile, key);
    const size_t n_bytes = 2 * (size_t)tile->dims;
    for (size_t at = 0; at < n_bytes; at += LINE, q += HALF_ROWS * HALF_LANES) {
        __m512h x[KEYS];
        if (asks)
            kvpi_ask_four(tile->ahead);
        for (uint32_t j = 0; j < KEYS; j++)
            x[j] = kvpi_halves_at(k.at[j] + at);
        for (uint32_t r = 0; r < HALF_ROWS; r++) {
            const __m512h y = kvpi_halves_at(q + (size_t)r * HALF_LANES);
            for (uint32_t j = 0; j < KEYS; j++)
                sums[r][j] = _mm512_fmadd_ph(x[j], y, sums[r][j]);
        }
    }
}

/* The sum of each x[row][i] x scales' quarter `row` to out[row x 64 + i]: sixteen sums of 32
 * numbers at once, each step half as long as the one before. The last one is f32. */
INLINE void kvpi_sum_halves(__m512h x[HALF_ROWS][KEYS], vec scales, float *out)
{
    __m512i of_four[HALF_ROWS];
    for (uint32_t r = 0; r < HALF_ROWS; r++)
        of_four[r] = kvpi_add_pairs32(kvpi_add_pairs16(x[r][0], x[r][1]),
                                      kvpi_add_pairs16(x[r][2], x[r][3]));
    const __m512i low = kvpi_add_pairs64(of_four[0], of_four[1]);
    const __m512i high = kvpi_add_pairs64(of_four[2], of_four[3]);
    const __m512i bits = kvpi_add_pairs128(low, high);
    const vec a = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
    const vec b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
    const vec sums =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    kvpi_vec_store_quarters(kvpi_vec_mul(sums, scales), out, KVPI_TILE);
}

static void kvpi_scores_f16_rows(const struct kvpi_tile *tile, float *s)
{
    const uint16_t *q = tile->queries;
    const float *scales = (const float *)(const void *)(q + (size_t)tile->n_rows * tile->dims);
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    for (uint32_t row = 0; row < tile->n_used; row += HALF_ROWS) {
        const vec of_rows =
            _mm512_permutexvar_ps(quarters, _mm512_castps128_ps512(_mm_loadu_ps(scales + row)));
        for (uint32_t key = 0; key < tile->n_keys; key += KEYS) {
            __m512h sums[HALF_ROWS][KEYS];
            for (uint32_t r = 0; r < HALF_ROWS; r++) {
                for (uint32_t j = 0; j < KEYS; j++)
                    sums[r][j] = _mm512_setzero_ph();
            }
            kvpi_score_halves(tile, q + (size_t)row * tile->dims, key, row == 0, sums);
            kvpi_sum_halves(sums, of_rows, s + (size_t)row * KVPI_TILE + key);
        }
    }
}

/* Weights of HALF_ROWS rows as f16, of which any 16 add up to 1 at most. */
struct kvpi_half_weights {
    uint16_t w[HALF_ROWS][KVPI_TILE];
    float scale[HALF_ROWS];
};

static inline void kvpi_halve_weights(const float *weights, struct kvpi_half_weights *out)
{
    for (uint32_t r = 0; r < HALF_ROWS; r++) {
        const float *w = weights + (size_t)r * KVPI_TILE;
        vec most = kvpi_vec_zero();
        for (uint32_t i = 0; i < KVPI_TILE; i += LANES)
            most = kvpi_vec_max(most, kvpi_vec_load(w + i));
        const float largest = kvpi_vec_largest(most);
        out->scale[r] = (largest > 0.0f ? largest : 1.0f) * (float)HALF_FLUSH;
        const vec times = kvpi_vec_all(1.0f / out->scale[r]);
        for (uint32_t i = 0; i < KVPI_TILE; i += LANES)
            kvpi_vec_write_f16(out->w[r] + i, kvpi_vec_mul(kvpi_vec_load(w + i), times));
    }
}

enum { HALF_COLUMNS = 4 }; /* of 32 dims each */

/* Sums of f16 to sums of f32. */
INLINE void kvpi_flush_halves(__m512h block[HALF_ROWS][HALF_COLUMNS],
                              const struct kvpi_half_weights *w, float *sums, size_t stride,
                              uint32_t n)
{
    for (uint32_t r = 0; r < HALF_ROWS; r++, sums += stride) {
        const vec scale = kvpi_vec_all(w->scale[r]);
        for (uint32_t c = 0; c < n; c++) {
            const __m512i bits = _mm512_castph_si512(block[r][c]);
            float *at = sums + (size_t)c * HALF_LANES;
            const vec low = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
            const vec high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
            kvpi_vec_store(at, kvpi_vec_fma(low, scale, kvpi_vec_load(at)));
            kvpi_vec_store(at + LANES, kvpi_vec_fma(high, scale, kvpi_vec_load(at + LANES)));
        }
    }
}

/* HALF_ROWS rows of sums, `n` times 32 dims from `e` on, of HALF_FLUSH keys from `key` on. */
INLINE void kvpi_value_halves(const struct kvpi_tile *tile, const struct kvpi_half_weights *w,
                              uint32_t key, float *sums, uint32_t e, uint32_t n, int asks)
{
    const uint32_t left = tile->n_keys - key, end = key + (left < HALF_FLUSH ? left : HALF_FLUSH);
    __m512h block[HALF_ROWS][HALF_COLUMNS];
    for (uint32_t r = 0; r < HALF_ROWS; r++) {
        for (uint32_t c = 0; c < n; c++)
            block[r][c] = _mm512_setzero_ph();
    }
    for (; key < end; key++) {
        const unsigned char *v = tile->v.rows[key] + tile->v.offset;
        __m512h x[HALF_COLUMNS];
        if (asks && key % (4 / n) == 0)
            kvpi_ask_four(tile->ahead);
        for (uint32_t c = 0; c < n; c++)
            x[c] = kvpi_halves_at(v + 2 * ((size_t)e + (size_t)c * HALF_LANES));
        for (uint32_t r = 0; r < HALF_ROWS; r++) {
            const __m512h y = _mm512_castsi512_ph(_mm512_set1_epi16((int16_t)w->w[r][key]));
            for (uint32_t c = 0; c < n; c++)
                block[r][c] = _mm512_fmadd_ph(x[c], y, block[r][c]);
        }
    }
    kvpi_flush_halves(block, w, sums + e, tile->v_dims, n);
}

static void kvpi_values_f16_rows(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    enum { WIDE = HALF_COLUMNS * HALF_LANES };
    struct kvpi_half_weights w;
    for (uint32_t row = 0; row < tile->n_used; row += HALF_ROWS) {
        float *rows = sums + (size_t)row * tile->v_dims;
        kvpi_halve_weights(weights + (size_t)row * KVPI_TILE, &w);
        for (uint32_t key = 0; key < tile->n_keys; key += HALF_FLUSH) {
            uint32_t e = 0;
            for (; e + WIDE <= tile->v_dims; e += WIDE)
                kvpi_value_halves(tile, &w, key, rows, e, HALF_COLUMNS, row == 0);
            for (; e < tile->v_dims; e += HALF_LANES)
                kvpi_value_halves(tile, &w, key, rows, e, 1, row == 0);
        }
    }
}

static const struct kvpi_path kvpi_f16_rows_path = {.type = KVP_F16,
                                                    .row_pad = HALF_ROWS,
                                                    .dims_pad = HALF_LANES,
                                                    .slack = 8.0f,
                                                    .query_bytes = 3,
                                                    .work_bytes = kvpi_no_work_bytes,
                                                    .pack = kvpi_pack_f16_rows,
                                                    .scores = kvpi_scores_f16_rows,
                                                    .values = kvpi_values_f16_rows};

#endif

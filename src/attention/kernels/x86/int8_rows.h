/* int8_rows: K and V of int8 as they lie, multiplied four by four (VPDPBUSD), four queries at a
 * time.
 *
 * The instruction multiplies unsigned by signed numbers and adds up exactly. So K becomes k + 128,
 * and 128 times the sum of the query is taken off again. A query is high + low / 128 times a scale,
 * and a weight is high + low / 255 times the largest of its tile. With a single number of 8 bits,
 * many small weights beside a large one would all become 0. */
#ifndef KVPI_INT8_ROWS_H
#define KVPI_INT8_ROWS_H

#include "attention/fast/kernels_body.h"

enum { QUAD_ROWS = 4 };

/* Of each row: what its numbers are multiplied by, 128 times their sums, and whether the low ones
 * count. */
struct kvpi_int8_query {
    float scale;
    int32_t high_128;
    int32_t low_128;
    uint32_t has_low;
};

/* Rounding a query to 8 bits moves its scores by about largest / 254 x sqrt(D / 3), in base 2,
 * where keys have elements around 1: up to so much is left alone. */
static const float most_off = 0.02f;

static inline void kvpi_pack_int8_row(const float *row, uint32_t dims, int8_t *high, int8_t *low,
                                      struct kvpi_int8_query *query)
{
    vec most = kvpi_vec_zero();
    __m512i high_sum = _mm512_setzero_si512(), low_sum = _mm512_setzero_si512();
    int has_nan = 0;
    for (uint32_t e = 0; e < dims; e += LANES) {
        const vec x = kvpi_vec_load(row + e);
        has_nan |= kvpi_vec_has_nan(x);
        most = kvpi_vec_max(most, _mm512_abs_ps(x));
    }
    const float largest = has_nan ? NAN : kvpi_vec_largest(most);
    const float times = largest > 0.0f ? 127.0f / largest : 0.0f;
    const __mmask16 is_number = isfinite(times) && isfinite(largest) ? 0xFFFF : 0;
    query->scale = largest / 127.0f;
    for (uint32_t e = 0; e < dims; e += LANES) {
        const vec x = _mm512_maskz_mul_ps(is_number, kvpi_vec_load(row + e), kvpi_vec_all(times));
        const __m512i h = _mm512_cvtps_epi32(x);
        const vec rest = kvpi_vec_sub(x, _mm512_cvtepi32_ps(h));
        const __m512i l = _mm512_cvtps_epi32(kvpi_vec_mul(rest, kvpi_vec_all(128.0f)));
        _mm_storeu_si128((void *)(high + e), _mm512_cvtepi32_epi8(h));
        _mm_storeu_si128((void *)(low + e), _mm512_cvtepi32_epi8(l));
        high_sum = _mm512_add_epi32(high_sum, h);
        low_sum = _mm512_add_epi32(low_sum, l);
    }
    query->has_low = !(largest / 254.0f * sqrtf((float)dims / 3.0f) <= most_off);
    query->high_128 = 128 * _mm512_reduce_add_epi32(high_sum);
    query->low_128 = 128 * _mm512_reduce_add_epi32(low_sum);
}

/* [rows, dims] high, [rows, dims] low, [rows] kvpi_int8_query. */
static void kvpi_pack_int8_rows(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    int8_t *high = out, *low = high + (size_t)n_rows * dims;
    struct kvpi_int8_query *queries =
        (struct kvpi_int8_query *)(void *)(low + (size_t)n_rows * dims);
    for (uint32_t row = 0; row < n_rows; row++) {
        const size_t at = (size_t)row * dims;
        kvpi_pack_int8_row(rows + at, dims, high + at, low + at, &queries[row]);
    }
}

/* out[r] = of each x[r] the sum: all of them at once, so that each step is half as long. */
INLINE void kvpi_sum16_int(__m512i x[QUAD_ROWS][KEYS], __m128i out[QUAD_ROWS])
{
    __m512i y[QUAD_ROWS];
    for (uint32_t r = 0; r < QUAD_ROWS; r++) {
        const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(x[r][0], x[r][1]),
                                            _mm512_unpackhi_epi32(x[r][0], x[r][1]));
        const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(x[r][2], x[r][3]),
                                            _mm512_unpackhi_epi32(x[r][2], x[r][3]));
        y[r] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    }
    const __m512i low = _mm512_add_epi32(_mm512_shuffle_i32x4(y[0], y[1], 0x44),
                                         _mm512_shuffle_i32x4(y[0], y[1], 0xEE));
    const __m512i high = _mm512_add_epi32(_mm512_shuffle_i32x4(y[2], y[3], 0x44),
                                          _mm512_shuffle_i32x4(y[2], y[3], 0xEE));
    const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88),
                                          _mm512_shuffle_i32x4(low, high, 0xDD));
    out[0] = _mm512_castsi512_si128(sums);
    out[1] = _mm512_extracti32x4_epi32(sums, 1);
    out[2] = _mm512_extracti32x4_epi32(sums, 2);
    out[3] = _mm512_extracti32x4_epi32(sums, 3);
}

INLINE void kvpi_score_quads(const struct kvpi_tile *tile, const int8_t *q, uint32_t key, int asks,
                             __m512i sums[QUAD_ROWS][KEYS])
{
    const __m512i flip = _mm512_set1_epi8((char)-128);
    const struct kvpi_key_rows k = kvpi_key_rows_at(tile, key);
    for (uint32_t e = 0; e < tile->dims; e += LINE) {
        __m512i x[KEYS];
        if (asks)
            kvpi_ask_four(tile->ahead);
        for (uint32_t j = 0; j < KEYS; j++)
            x[j] = _mm512_xor_si512(_mm512_loadu_si512((const void *)(k.at[j] + e)), flip);
        for (uint32_t r = 0; r < QUAD_ROWS; r++) {
            const __m512i y = _mm512_loadu_si512((const void *)(q + (size_t)r * tile->dims + e));
            for (uint32_t j = 0; j < KEYS; j++)
                sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], x[j], y);
        }
    }
}

INLINE void kvpi_sum_quads(const struct kvpi_tile *tile, const int8_t *q, uint32_t key, int asks,
                           __m128i out[QUAD_ROWS])
{
    __m512i sums[QUAD_ROWS][KEYS];
    for (uint32_t r = 0; r < QUAD_ROWS; r++) {
        for (uint32_t j = 0; j < KEYS; j++)
            sums[r][j] = _mm512_setzero_si512();
    }
    kvpi_score_quads(tile, q, key, asks, sums);
    kvpi_sum16_int(sums, out);
}

/* Scores of KEYS keys for the QUAD_ROWS rows from `row` on. */
INLINE void kvpi_score_quad_block(const struct kvpi_tile *tile, uint32_t row, uint32_t key,
                                  float *s)
{
    const size_t n = (size_t)tile->n_rows * tile->dims;
    const int8_t *q = tile->queries;
    const struct kvpi_int8_query *queries =
        (const struct kvpi_int8_query *)(const void *)(q + 2 * n) + row;
    __m128i high[QUAD_ROWS], low[QUAD_ROWS];
    q += (size_t)row * tile->dims;
    const uint32_t has_low =
        queries[0].has_low | queries[1].has_low | queries[2].has_low | queries[3].has_low;
    kvpi_sum_quads(tile, q, key, row == 0, high);
    if (has_low)
        kvpi_sum_quads(tile, q + n, key, 0, low);
    for (uint32_t r = 0; r < QUAD_ROWS; r++) {
        const __m128i a = _mm_sub_epi32(high[r], _mm_set1_epi32(queries[r].high_128));
        __m128 sum = _mm_cvtepi32_ps(a);
        if (has_low) {
            const __m128i b = _mm_sub_epi32(low[r], _mm_set1_epi32(queries[r].low_128));
            sum = _mm_fmadd_ps(_mm_cvtepi32_ps(b), _mm_set1_ps(1.0f / 128.0f), sum);
        }
        __m128 scale = _mm_set1_ps(queries[r].scale);
        if (tile->k.scales != NULL)
            scale = _mm_mul_ps(scale, _mm_loadu_ps(tile->k.scales + key));
        _mm_storeu_ps(s + (size_t)(row + r) * KVPI_TILE + key, _mm_mul_ps(sum, scale));
    }
}

static void kvpi_scores_int8_rows(const struct kvpi_tile *tile, float *s)
{
    for (uint32_t row = 0; row < tile->n_used; row += QUAD_ROWS) {
        for (uint32_t key = 0; key < tile->n_keys; key += KEYS)
            kvpi_score_quad_block(tile, row, key, s);
    }
}

/* Where all weights of a tile add up to so many times the largest, one byte is enough for each:
 * what 64 of them are off is below 64 / 2 / 255 / 8 = 1.6 % of the sum, were they all off alike. */
static const float flat_weights = 8.0f;

/* Weights of a row, times the keys' scales, as two rows of bytes; returns whether the second one
 * counts. Gives what a unit of the first one stands for. */
static inline int kvpi_split_weights(const struct kvpi_tile *tile, const float *weights,
                                     uint32_t *high, uint32_t *low, float *out_scale)
{
    vec w[KVPI_TILE / LANES];
    vec largest = kvpi_vec_zero(), sum = kvpi_vec_zero();
    for (uint32_t i = 0; i < KVPI_TILE / LANES; i++) {
        w[i] = kvpi_vec_load(weights + (size_t)i * LANES);
        if (tile->v.scales != NULL)
            w[i] = kvpi_vec_mul(w[i], kvpi_vec_load(tile->v.scales + (size_t)i * LANES));
        largest = kvpi_vec_max(w[i], largest);
        sum = kvpi_vec_add(sum, w[i]);
    }
    const float most = kvpi_vec_largest(largest), total = kvpi_vec_sum(sum);
    const __m512i none = _mm512_setzero_si512();
    const int has_low = !(total >= flat_weights * most);
    const vec times = kvpi_vec_all(most > 0.0f ? 255.0f / most : 0.0f);
    for (uint32_t i = 0; i < KVPI_TILE / LANES; i++) {
        const vec x = kvpi_vec_mul(w[i], times);
        const __m512i h = has_low ? _mm512_cvttps_epi32(x) : _mm512_cvtps_epi32(x);
        const vec rest = kvpi_vec_sub(x, _mm512_cvtepi32_ps(h));
        const __m512i l =
            has_low ? _mm512_cvtps_epi32(kvpi_vec_mul(rest, kvpi_vec_all(255.0f))) : none;
        _mm_storeu_si128((void *)(high + (size_t)i * 4), _mm512_cvtusepi32_epi8(h));
        _mm_storeu_si128((void *)(low + (size_t)i * 4), _mm512_cvtusepi32_epi8(l));
    }
    *out_scale = isfinite(total) ? most / 255.0f : NAN;
    return has_low;
}

/* Weights of QUAD_ROWS rows as bytes, four keys in each number. */
struct kvpi_quad_weights {
    uint32_t w[QUAD_ROWS][KVPI_TILE / 4];
    float scale[QUAD_ROWS];
};

/* 64 dims of four keys, key by key beside each other: they come apart into four times 16. */
INLINE void kvpi_unpack_quad(const struct kvpi_tile *tile, uint32_t quad, size_t at, __m512i out[4])
{
    __m512i x[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t key = 4 * quad + i;
        x[i] = key < tile->n_keys
                   ? _mm512_loadu_si512((const void *)(tile->v.rows[key] + tile->v.offset + at))
                   : _mm512_setzero_si512();
    }
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), b = _mm512_unpacklo_epi8(x[2], x[3]);
    const __m512i c = _mm512_unpackhi_epi8(x[0], x[1]), d = _mm512_unpackhi_epi8(x[2], x[3]);
    out[0] = _mm512_unpacklo_epi16(a, b);
    out[1] = _mm512_unpackhi_epi16(a, b);
    out[2] = _mm512_unpacklo_epi16(c, d);
    out[3] = _mm512_unpackhi_epi16(c, d);
}

/* 64 dims of QUAD_ROWS rows of sums. */
INLINE void kvpi_value_quad_block(const struct kvpi_tile *tile, const struct kvpi_quad_weights *w,
                                  float *sums, size_t at, int asks)
{
    __m512i block[QUAD_ROWS][4];
    for (uint32_t r = 0; r < QUAD_ROWS; r++) {
        for (uint32_t i = 0; i < 4; i++)
            block[r][i] = _mm512_setzero_si512();
    }
    for (uint32_t quad = 0; 4 * quad < tile->n_keys; quad++) {
        __m512i y[4];
        if (asks)
            kvpi_ask_four(tile->ahead);
        kvpi_unpack_quad(tile, quad, at, y);
        for (uint32_t r = 0; r < QUAD_ROWS; r++) {
            const __m512i x = _mm512_set1_epi32((int32_t)w->w[r][quad]);
            for (uint32_t i = 0; i < 4; i++)
                block[r][i] = _mm512_dpbusd_epi32(block[r][i], x, y[i]);
        }
    }
    for (uint32_t r = 0; r < QUAD_ROWS; r++) {
        for (uint32_t i = 0; i < 4; i++) {
            float *to = sums + (size_t)r * tile->v_dims + at + (size_t)i * LANES;
            kvpi_vec_store(to, kvpi_vec_fma(_mm512_cvtepi32_ps(block[r][i]),
                                            kvpi_vec_all(w->scale[r]), kvpi_vec_load(to)));
        }
    }
}

static void kvpi_values_int8_rows(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    struct kvpi_quad_weights high, low;
    for (uint32_t row = 0; row < tile->n_used; row += QUAD_ROWS) {
        float *rows = sums + (size_t)row * tile->v_dims;
        int has_low = 0;
        for (uint32_t r = 0; r < QUAD_ROWS; r++) {
            has_low |= kvpi_split_weights(tile, weights + (size_t)(row + r) * KVPI_TILE, high.w[r],
                                          low.w[r], &high.scale[r]);
            low.scale[r] = high.scale[r] / 255.0f;
        }
        for (size_t at = 0; at < tile->v_dims; at += LINE) {
            kvpi_value_quad_block(tile, &high, rows, at, row == 0);
            if (has_low)
                kvpi_value_quad_block(tile, &low, rows, at, 0);
        }
    }
}

/* Each 64 dims came apart into four times 16: [0-3 16-19 32-35 48-51], [4-7 20-23 ...], ... */
static void kvpi_order_int8(float *sums, uint32_t v_dims, float *memory)
{
    (void)memory;
    float row[LINE];
    for (uint32_t e = 0; e < v_dims; e += LINE) {
        memcpy(row, sums + e, sizeof row);
        for (size_t i = 0; i < 16; i++)
            memcpy(sums + e + 16 * (i % 4) + 4 * (i / 4), row + 4 * i, 4 * sizeof *row);
    }
}

static const struct kvpi_path kvpi_int8_rows_path = {.type = KVP_INT8,
                                                     .row_pad = QUAD_ROWS,
                                                     .dims_pad = LINE,
                                                     .slack = 8.0f,
                                                     .query_bytes = 3,
                                                     .work_bytes = kvpi_no_work_bytes,
                                                     .pack = kvpi_pack_int8_rows,
                                                     .scores = kvpi_scores_int8_rows,
                                                     .values = kvpi_values_int8_rows,
                                                     .order = kvpi_order_int8};

#endif

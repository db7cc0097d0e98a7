/* vec_avx2: eight floats, with FMA and F16C. See kernels_body.h. */
#ifndef KVPI_VEC_AVX2_H
#define KVPI_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, ROWS = 2 };

typedef __m256 vec;

static inline vec kvpi_vec_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vec kvpi_vec_all(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec kvpi_vec_load(const float *at)
{
    return _mm256_loadu_ps(at);
}

static inline void kvpi_vec_store(float *at, vec x)
{
    _mm256_storeu_ps(at, x);
}

static inline vec kvpi_vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec kvpi_vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec kvpi_vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

static inline vec kvpi_vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

static inline vec kvpi_vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* b where either is NaN. */
static inline vec kvpi_vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

/* out[i] = sum of x[i] */
static inline void kvpi_vec_sum4(const vec x[4], float *out)
{
    const vec ab = _mm256_hadd_ps(x[0], x[1]), cd = _mm256_hadd_ps(x[2], x[3]);
    const vec sums = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

/* The sum of each x[row][i] to out[row x stride + i]. */
static inline void kvpi_vec_sum_block(vec x[ROWS][4], float *out, size_t stride)
{
    for (uint32_t row = 0; row < ROWS; row++)
        kvpi_vec_sum4(x[row], out + row * stride);
}

static inline float kvpi_vec_sum(vec x)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

static inline float kvpi_vec_largest(vec x)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

/* Whether any lane is above; NaN is not. */
static inline int kvpi_vec_any_above(vec x, float limit)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, kvpi_vec_all(limit), _CMP_GT_OQ)) != 0;
}

/* x where the lane's bit is set, else y. */
static inline vec kvpi_vec_pick(uint64_t bits, vec x, vec y)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int32_t)(bits & 255)), lane);
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)));
}

/* 2^x; NaN stays NaN. */
static inline vec kvpi_vec_exp2(vec x)
{
    const vec low = _mm256_min_ps(kvpi_vec_all(200.0f), _mm256_max_ps(kvpi_vec_all(-160.0f), x));
    const vec whole = _mm256_round_ps(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const vec f = _mm256_sub_ps(low, whole);
    /* 2^f within 2e-7, in a form that is four steps long */
    const vec f2 = kvpi_vec_mul(f, f);
    const vec high = kvpi_vec_fma(f, kvpi_vec_all(1.3264727e-3f), kvpi_vec_all(9.6715130e-3f));
    const vec middle = kvpi_vec_fma(f, kvpi_vec_all(5.5507336e-2f), kvpi_vec_all(2.4022242e-1f));
    const vec y = kvpi_vec_fma(kvpi_vec_fma(high, f2, middle), f2,
                               kvpi_vec_fma(f, kvpi_vec_all(6.9314700e-1f), kvpi_vec_all(1.0f)));
    /* The power in two halves: each is a normal number. */
    const __m256i power = _mm256_cvtps_epi32(whole);
    const __m256i half = _mm256_srai_epi32(power, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(power, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

static inline vec kvpi_vec_read_f16(const uint16_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
}

/* An f16, in all lanes. */
static inline vec kvpi_vec_all_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

static inline vec kvpi_vec_read_bf16(const uint16_t *at)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec kvpi_vec_read_int8(const int8_t *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)));
}

static inline void kvpi_vec_write_f16(uint16_t *at, vec x)
{
    _mm_storeu_si128((void *)at, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest, ties to even. */
static inline void kvpi_vec_write_bf16(uint16_t *at, vec x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i high = _mm256_srli_epi32(up, 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((void *)at, packed);
}

static inline int kvpi_vec_has_nan(vec x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}

#endif

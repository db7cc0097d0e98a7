/* vec_avx512: sixteen floats. See kernels_body.h. */
#ifndef KVPI_VEC_AVX512_H
#define KVPI_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Without optimisation gcc's intrinsics are macros, and convert their own masks. */
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#endif

enum { LANES = 16, ROWS = 4 };

typedef __m512 vec;

static inline vec kvpi_vec_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vec kvpi_vec_all(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec kvpi_vec_load(const float *at)
{
    return _mm512_loadu_ps(at);
}

static inline void kvpi_vec_store(float *at, vec x)
{
    _mm512_storeu_ps(at, x);
}

static inline vec kvpi_vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec kvpi_vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec kvpi_vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec kvpi_vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

static inline vec kvpi_vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* b where either is NaN. */
static inline vec kvpi_vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline float kvpi_vec_sum(vec x)
{
    return _mm512_reduce_add_ps(x);
}

static inline float kvpi_vec_largest(vec x)
{
    return _mm512_reduce_max_ps(x);
}

/* even[0], odd[0], even[1], ...: two vectors to `out`. */
static inline void kvpi_vec_interleave(vec even, vec odd, float *out)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    kvpi_vec_store(out, _mm512_permutex2var_ps(even, low, odd));
    kvpi_vec_store(out + LANES, _mm512_permutex2var_ps(even, high, odd));
}

/* Whether any lane is above; NaN is not. */
static inline int kvpi_vec_any_above(vec x, float limit)
{
    return _mm512_cmp_ps_mask(x, kvpi_vec_all(limit), _CMP_GT_OQ) != 0;
}

/* Of each x four sums of lanes that lie four apart. */
static inline vec kvpi_vec_fold4(const vec x[4])
{
    const vec ab = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const vec cd = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    const vec low =
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
    const vec high =
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
    return _mm512_add_ps(low, high);
}

/* The 128-bit quarters of a and b, added up in pairs: two of a, then two of b. */
static inline vec kvpi_vec_add_quarters(vec a, vec b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

static inline void kvpi_vec_store_quarters(vec x, float *out, size_t stride)
{
    _mm_storeu_ps(out, _mm512_castps512_ps128(x));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(x, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(x, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(x, 3));
}

/* The sum of each x[row][i] to out[row x stride + i]. */
static inline void kvpi_vec_sum_block(vec x[ROWS][4], float *out, size_t stride)
{
    const vec ab = kvpi_vec_add_quarters(kvpi_vec_fold4(x[0]), kvpi_vec_fold4(x[1]));
    const vec cd = kvpi_vec_add_quarters(kvpi_vec_fold4(x[2]), kvpi_vec_fold4(x[3]));
    kvpi_vec_store_quarters(kvpi_vec_add_quarters(ab, cd), out, stride);
}

/* The sum of each x[i] to out[i]. */
static inline void kvpi_vec_sum4(const vec x[4], float out[4])
{
    const vec quarters = kvpi_vec_fold4(x);
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
    _mm_storeu_ps(out,
                  _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

/* x where the lane's bit is set, else y. */
static inline vec kvpi_vec_pick(uint64_t bits, vec x, vec y)
{
    return _mm512_mask_blend_ps((__mmask16)bits, y, x);
}

/* 2^x; NaN stays NaN. */
static inline vec kvpi_vec_exp2(vec x)
{
    const vec low = _mm512_max_ps(kvpi_vec_all(-160.0f), x); /* -infinity has no fraction */
    const vec whole = _mm512_roundscale_ps(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const vec f = _mm512_sub_ps(low, whole);
    /* 2^f within 2e-7, in a form that is four steps long */
    const vec f2 = kvpi_vec_mul(f, f);
    const vec high = kvpi_vec_fma(f, kvpi_vec_all(1.3264727e-3f), kvpi_vec_all(9.6715130e-3f));
    const vec middle = kvpi_vec_fma(f, kvpi_vec_all(5.5507336e-2f), kvpi_vec_all(2.4022242e-1f));
    const vec y = kvpi_vec_fma(kvpi_vec_fma(high, f2, middle), f2,
                               kvpi_vec_fma(f, kvpi_vec_all(6.9314700e-1f), kvpi_vec_all(1.0f)));
    return _mm512_scalef_ps(y, whole);
}

static inline vec kvpi_vec_read_f16(const uint16_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

/* An f16, in all lanes. */
static inline vec kvpi_vec_all_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

static inline vec kvpi_vec_read_bf16(const uint16_t *at)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec kvpi_vec_read_int8(const int8_t *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
}

static inline void kvpi_vec_write_f16(uint16_t *at, vec x)
{
    _mm256_storeu_si256((void *)at, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest, ties to even. */
static inline void kvpi_vec_write_bf16(uint16_t *at, vec x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    _mm256_storeu_si256((void *)at, _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

static inline int kvpi_vec_has_nan(vec x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
}

#endif

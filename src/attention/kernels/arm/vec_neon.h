/* vec_neon: four floats, with the instructions that every aarch64 has. See kernels_body.h. */
#ifndef KVPI_VEC_NEON_H
#define KVPI_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4, ROWS = 4 };

typedef float32x4_t vec;

static inline vec kvpi_vec_zero(void)
{
    return vdupq_n_f32(0.0f);
}

static inline vec kvpi_vec_all(float x)
{
    return vdupq_n_f32(x);
}

static inline vec kvpi_vec_load(const float *at)
{
    return vld1q_f32(at);
}

static inline void kvpi_vec_store(float *at, vec x)
{
    vst1q_f32(at, x);
}

static inline vec kvpi_vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}

static inline vec kvpi_vec_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}

static inline vec kvpi_vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

static inline vec kvpi_vec_div(vec a, vec b)
{
    return vdivq_f32(a, b);
}

static inline vec kvpi_vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

/* The other one where one is NaN. */
static inline vec kvpi_vec_max(vec a, vec b)
{
    return vmaxnmq_f32(a, b);
}

static inline float kvpi_vec_largest(vec x)
{
    return vmaxvq_f32(x);
}

/* out[i] = sum of x[i] */
static inline void kvpi_vec_sum4(const vec x[4], float *out)
{
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3])));
}

/* The sum of each x[row][i] to out[row x stride + i]. */
static inline void kvpi_vec_sum_block(vec x[ROWS][4], float *out, size_t stride)
{
    for (uint32_t row = 0; row < ROWS; row++)
        kvpi_vec_sum4(x[row], out + row * stride);
}

/* Whether any lane is above; NaN is not. */
static inline int kvpi_vec_any_above(vec x, float limit)
{
    return vmaxvq_u32(vcgtq_f32(x, kvpi_vec_all(limit))) != 0;
}

/* x where the lane's bit is set, else y. */
static inline vec kvpi_vec_pick(uint64_t bits, vec x, vec y)
{
    static const uint32_t lanes[LANES] = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32((uint32_t)bits), vld1q_u32(lanes)), x, y);
}

/* 2^x; NaN stays NaN. */
static inline vec kvpi_vec_exp2(vec x)
{
    const vec low = vminq_f32(vmaxq_f32(x, kvpi_vec_all(-160.0f)), kvpi_vec_all(200.0f));
    const vec whole = vrndnq_f32(low);
    const vec f = kvpi_vec_sub(low, whole);
    /* 2^f within 2e-7, in a form that is four steps long */
    const vec f2 = kvpi_vec_mul(f, f);
    const vec high = kvpi_vec_fma(f, kvpi_vec_all(1.3264727e-3f), kvpi_vec_all(9.6715130e-3f));
    const vec middle = kvpi_vec_fma(f, kvpi_vec_all(5.5507336e-2f), kvpi_vec_all(2.4022242e-1f));
    const vec y = kvpi_vec_fma(kvpi_vec_fma(high, f2, middle), f2,
                               kvpi_vec_fma(f, kvpi_vec_all(6.9314700e-1f), kvpi_vec_all(1.0f)));
    /* The power in two halves: each is a normal number. */
    const int32x4_t power = vcvtq_s32_f32(whole), half = vshrq_n_s32(power, 1);
    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(power, half), bias), 23);
    return kvpi_vec_mul(kvpi_vec_mul(y, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}

static inline vec kvpi_vec_read_f16(const uint16_t *at)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
}

/* An f16, in all lanes. */
static inline vec kvpi_vec_all_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

static inline vec kvpi_vec_read_bf16(const uint16_t *at)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at), 16));
}

static inline vec kvpi_vec_read_int8(const int8_t *at)
{
    int32_t four;
    memcpy(&four, at, sizeof four);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

static inline void kvpi_vec_write_f16(uint16_t *at, vec x)
{
    vst1_u16(at, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

/* To the nearest, ties to even. */
static inline void kvpi_vec_write_bf16(uint16_t *at, vec x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    vst1_u16(at, vshrn_n_u32(up, 16));
}

#endif

/* vec_plain: four floats in plain C, which a compiler turns into what the processor has. See
 * kernels_body.h. */
#ifndef KVPI_VEC_PLAIN_H
#define KVPI_VEC_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4, ROWS = 2 };

typedef struct vec {
    float e[LANES];
} vec;

static inline vec kvpi_vec_all(float x)
{
    return (vec){{x, x, x, x}};
}

static inline vec kvpi_vec_zero(void)
{
    return kvpi_vec_all(0.0f);
}

static inline vec kvpi_vec_load(const float *at)
{
    return (vec){{at[0], at[1], at[2], at[3]}};
}

static inline void kvpi_vec_store(float *at, vec x)
{
    memcpy(at, x.e, sizeof x.e);
}

static inline vec kvpi_vec_add(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        a.e[i] += b.e[i];
    return a;
}

static inline vec kvpi_vec_sub(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        a.e[i] -= b.e[i];
    return a;
}

static inline vec kvpi_vec_mul(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        a.e[i] *= b.e[i];
    return a;
}

static inline vec kvpi_vec_div(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        a.e[i] /= b.e[i];
    return a;
}

static inline vec kvpi_vec_fma(vec a, vec b, vec c)
{
    for (int i = 0; i < LANES; i++)
        c.e[i] += a.e[i] * b.e[i];
    return c;
}

/* b where either is NaN. */
static inline vec kvpi_vec_max(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        b.e[i] = a.e[i] > b.e[i] ? a.e[i] : b.e[i];
    return b;
}

static inline float kvpi_vec_sum(vec x)
{
    return (x.e[0] + x.e[2]) + (x.e[1] + x.e[3]);
}

static inline float kvpi_vec_largest(vec x)
{
    const float a = x.e[0] > x.e[2] ? x.e[0] : x.e[2], b = x.e[1] > x.e[3] ? x.e[1] : x.e[3];
    return a > b ? a : b;
}

/* Whether any lane is above; NaN is not. */
static inline int kvpi_vec_any_above(vec x, float limit)
{
    return (x.e[0] > limit) | (x.e[1] > limit) | (x.e[2] > limit) | (x.e[3] > limit);
}

/* out[i] = sum of x[i] */
static inline void kvpi_vec_sum4(const vec x[4], float *out)
{
    for (int i = 0; i < 4; i++)
        out[i] = kvpi_vec_sum(x[i]);
}

/* The sum of each x[row][i] to out[row x stride + i]. */
static inline void kvpi_vec_sum_block(vec x[ROWS][4], float *out, size_t stride)
{
    for (uint32_t row = 0; row < ROWS; row++)
        kvpi_vec_sum4(x[row], out + row * stride);
}

/* x where the lane's bit is set, else y. */
static inline vec kvpi_vec_pick(uint64_t bits, vec x, vec y)
{
    for (int i = 0; i < LANES; i++)
        y.e[i] = bits >> i & 1 ? x.e[i] : y.e[i];
    return y;
}

static inline float kvpi_exp2_of(float x)
{
    if (!(x > -126.0f)) /* denormal weights are nothing */
        return x == x ? 0.0f : x;
    if (x > 127.0f)
        return INFINITY;
    const float whole = floorf(x + 0.5f), f = x - whole;
    float y = 1.3264727e-3f * f + 9.6715130e-3f; /* 2^f within 2e-7 */
    y = y * f + 5.5507336e-2f;
    y = y * f + 2.4022242e-1f;
    y = y * f + 6.9314700e-1f;
    y = y * f + 1.0f;
    const uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

/* 2^x; NaN stays NaN. */
static inline vec kvpi_vec_exp2(vec x)
{
    for (int i = 0; i < LANES; i++)
        x.e[i] = kvpi_exp2_of(x.e[i]);
    return x;
}

static inline float kvpi_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t kvpi_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The exponent is moved by a multiplication, which is exact, denormal elements included. */
static inline float kvpi_float_of_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, rest = (h & 0x7FFFu) << 13;
    if ((h & 0x7C00u) == 0x7C00u)
        return kvpi_float_of(sign | 0x7F800000u | rest);
    const float magnitude = kvpi_float_of(rest) * 0x1p112f;
    return kvpi_float_of(sign | kvpi_bits_of(magnitude));
}

static inline vec kvpi_vec_read_f16(const uint16_t *at)
{
    vec x;
    for (int i = 0; i < LANES; i++)
        x.e[i] = kvpi_float_of_f16(at[i]);
    return x;
}

/* An f16, in all lanes. */
static inline vec kvpi_vec_all_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return kvpi_vec_all(kvpi_float_of_f16(half));
}

static inline vec kvpi_vec_read_bf16(const uint16_t *at)
{
    vec x;
    for (int i = 0; i < LANES; i++)
        x.e[i] = kvpi_float_of((uint32_t)at[i] << 16);
    return x;
}

static inline vec kvpi_vec_read_int8(const int8_t *at)
{
    vec x;
    for (int i = 0; i < LANES; i++)
        x.e[i] = at[i];
    return x;
}

/* To the nearest, ties to even: adding a power of two whose last bit is the element's last bit
 * makes the addition round there. */
static inline uint16_t kvpi_f16_of_float(float value)
{
    const uint32_t bits = kvpi_bits_of(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x47800000u) /* 65536: infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) /* 2^-14: denormal, or 0 */
        return (uint16_t)(sign |
                          (kvpi_bits_of(kvpi_float_of(magnitude) + 0.5f) - kvpi_bits_of(0.5f)));
    magnitude += 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (magnitude - 0x38000000u) >> 13);
}

static inline void kvpi_vec_write_f16(uint16_t *at, vec x)
{
    for (int i = 0; i < LANES; i++)
        at[i] = kvpi_f16_of_float(x.e[i]);
}

/* To the nearest, ties to even. */
static inline void kvpi_vec_write_bf16(uint16_t *at, vec x)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t bits = kvpi_bits_of(x.e[i]);
        at[i] = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    }
}

static inline int kvpi_vec_has_nan(vec x)
{
    int has = 0;
    for (int i = 0; i < LANES; i++)
        has |= x.e[i] != x.e[i];
    return has;
}

#endif

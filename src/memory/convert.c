/* convert: f32 and the types that KV is stored in.
 *
 * Everything is done on the bits, or exactly, so that neither the processor nor its rounding mode
 * changes an element. Small floats are one scheme with two numbers, the bits of the mantissa and
 * the exponent of the smallest normal value:
 *
 *             sign  exponent  mantissa   smallest normal   largest          above it
 *   f16        1       5         10          2^-14           65504           infinity 0x7C00
 *   bf16       1       8          7          2^-126          3.39e38         infinity 0x7F80
 *   e4m3       1       4          3          2^-6            448    0x7E     stays 448; 0x7F is NaN
 *
 * Values are rounded from a double. A quotient of two f32 is exact enough in one: it is a tie
 * between two elements only if the true quotient is (a tie has at most 12 bits; a quotient that is
 * no tie is at least 2^-26 of its size away from one).
 */
#include "memory/convert.h"

#include <float.h>
#include <string.h>

/* A type of small floats: see above. `largest` is the code of the largest finite value, `above` of
 * what is larger, `nan` of NaN; all without the sign. */
struct small_float {
    int mantissa_bits;
    int min_exponent;
    uint32_t largest;
    uint32_t above;
    uint32_t nan;
};

static const struct small_float F16 = {10, -14, 0x7BFF, 0x7C00, 0x7E00};
static const struct small_float BF16 = {7, -126, 0x7F7F, 0x7F80, 0x7FC0};
static const struct small_float E4M3 = {3, -6, 0x7E, 0x7E, 0x7F};

enum { DOUBLE_MANTISSA_BITS = 52, FLOAT_MANTISSA_BITS = 23, FLOAT_BIAS = 127 };

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

size_t kvp_type_bytes(uint32_t type)
{
    switch (type) {
    case KVP_F32: return 4;
    case KVP_F16:
    case KVP_BF16: return 2;
    case KVP_INT8:
    case KVP_E4M3:
    case KVP_BYTES: return 1;
    default: return 0;
    }
}

/* m / 2^shift to the nearest, ties to even. m < 2^53; shift >= 1. */
static uint64_t shift_to_nearest(uint64_t m, int shift)
{
    if (shift > DOUBLE_MANTISSA_BITS + 1) {
        return 0; /* less than half */
    }
    const uint64_t half = UINT64_C(1) << (shift - 1);
    const uint64_t kept = m >> shift;
    const uint64_t rest = m & ((half << 1) - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

/* The code of `value` without its sign. A carry out of the mantissa raises the exponent by itself:
 * codes ascend with the values. */
static uint32_t encode_magnitude(const struct small_float *type, double value)
{
    const uint64_t bits = bits_of_double(value) & (UINT64_MAX >> 1);
    const int field = (int)(bits >> DOUBLE_MANTISSA_BITS);
    const uint64_t fraction = bits & ((UINT64_C(1) << DOUBLE_MANTISSA_BITS) - 1);
    if (field == 0x7FF) {
        return fraction ? type->nan : type->above;
    }
    if (field == 0) {
        return 0; /* a denormal double is far below all types */
    }
    const int exponent = field - 1023;
    if (exponent > FLOAT_BIAS) {
        return type->above;
    }
    const uint64_t m = fraction | (UINT64_C(1) << DOUBLE_MANTISSA_BITS);
    const int shift = DOUBLE_MANTISSA_BITS - type->mantissa_bits;
    uint64_t code;
    if (exponent < type->min_exponent) {
        code = shift_to_nearest(m, shift + (type->min_exponent - exponent));
    } else {
        code = shift_to_nearest(m, shift) +
               ((uint64_t)(exponent - type->min_exponent) << type->mantissa_bits);
    }
    return code > type->largest ? type->above : (uint32_t)code;
}

/* The value of a code without its sign; exact, as every value of these types is an f32. */
static float decode_magnitude(const struct small_float *type, uint32_t code)
{
    const uint32_t mantissa = code & ((1u << type->mantissa_bits) - 1);
    const uint32_t field = code >> type->mantissa_bits;
    const int up = FLOAT_MANTISSA_BITS - type->mantissa_bits;
    if (code > type->largest) {
        const uint32_t infinity = 0x7F800000;
        if (code == type->above) {
            return float_of_bits(infinity);
        }
        return float_of_bits(infinity | 0x400000 | (mantissa << up));
    }
    if (field == 0) {
        /* mantissa x 2^(min_exponent - mantissa_bits); the power is a normal f32 */
        const int exponent = type->min_exponent - type->mantissa_bits;
        return (float)mantissa *
               float_of_bits((uint32_t)(exponent + FLOAT_BIAS) << FLOAT_MANTISSA_BITS);
    }
    const uint32_t float_field = field + (uint32_t)(type->min_exponent - 1 + FLOAT_BIAS);
    return float_of_bits((float_field << FLOAT_MANTISSA_BITS) | (mantissa << up));
}

static uint32_t encode(const struct small_float *type, int sign_bit, double value)
{
    const uint32_t sign = (uint32_t)(bits_of_double(value) >> 63) << sign_bit;
    return sign | encode_magnitude(type, value);
}

static float decode(const struct small_float *type, int sign_bit, uint32_t code)
{
    const uint32_t sign = (code >> sign_bit) & 1u;
    const float magnitude = decode_magnitude(type, code & ((1u << sign_bit) - 1));
    return sign ? -magnitude : magnitude;
}

static int8_t encode_int8(double value)
{
    if (!(value > -127)) {
        return value <= -127 ? -127 : 0; /* NaN: 0 */
    }
    if (value >= 127) {
        return 127;
    }
    const int whole = (int)value; /* towards zero */
    const double rest = value - whole;
    const int away = rest > 0.5 || rest < -0.5 || ((rest == 0.5 || rest == -0.5) && whole % 2 != 0);
    return (int8_t)(whole + (away ? (rest > 0 ? 1 : -1) : 0));
}

/* The scale of each group is before it. */
static void read_q8_0(const uint8_t *bytes, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *group = bytes + i / KVP_Q8_0_ELEMENTS * KVP_Q8_0_BYTES;
        uint16_t scale;
        memcpy(&scale, group, sizeof(scale));
        const uint8_t code = group[sizeof(scale) + i % KVP_Q8_0_ELEMENTS];
        values[i] = decode(&F16, 15, scale) * (float)(int8_t)code;
    }
}

void kvpi_convert_read(uint32_t type, float scale, const void *elements, size_t n, float *values)
{
    const uint16_t *halves = elements;
    const uint8_t *bytes = elements;
    const int8_t *integers = elements;
    switch (type) {
    case KVP_F32: memmove(values, elements, n * sizeof(float)); break;
    case KVP_F16:
        for (size_t i = 0; i < n; i++) {
            values[i] = decode(&F16, 15, halves[i]);
        }
        break;
    case KVP_BF16:
        for (size_t i = 0; i < n; i++) {
            values[i] = float_of_bits((uint32_t)halves[i] << 16);
        }
        break;
    case KVP_INT8:
        for (size_t i = 0; i < n; i++) {
            values[i] = (float)integers[i];
        }
        break;
    case KVP_Q8_0: read_q8_0(bytes, n, values); break;
    default:
        for (size_t i = 0; i < n; i++) {
            values[i] = decode(&E4M3, 7, bytes[i]);
        }
        break;
    }
    for (size_t i = 0; scale != 1 && i < n; i++) {
        values[i] *= scale;
    }
}

void kvpi_convert_write(uint32_t type, float scale, const float *values, size_t n, void *elements)
{
    float *floats = elements;
    uint16_t *halves = elements;
    uint8_t *bytes = elements;
    int8_t *integers = elements;
    if (type == KVP_F32 && scale == 1) {
        memmove(elements, values, n * sizeof(float)); /* NaN keeps its bits */
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const double value = (double)values[i] / (double)scale;
        switch (type) {
        case KVP_F32: floats[i] = (float)value; break;
        case KVP_F16: halves[i] = (uint16_t)encode(&F16, 15, value); break;
        case KVP_BF16: halves[i] = (uint16_t)encode(&BF16, 15, value); break;
        case KVP_INT8: integers[i] = encode_int8(value); break;
        default: bytes[i] = (uint8_t)encode(&E4M3, 7, value); break;
        }
    }
}

void kvpi_convert_rescale(uint32_t type, float from, float to, size_t n, void *elements)
{
    uint8_t *bytes = elements;
    int8_t *integers = elements;
    const double ratio = (double)from / (double)to;
    for (size_t i = 0; i < n; i++) {
        if (type == KVP_INT8) {
            integers[i] = encode_int8(integers[i] * ratio);
        } else {
            bytes[i] = (uint8_t)encode(&E4M3, 7, (double)decode(&E4M3, 7, bytes[i]) * ratio);
        }
    }
}

float kvpi_convert_max_abs(const float *values, size_t n)
{
    float max = 0;
    for (size_t i = 0; i < n; i++) {
        const float magnitude = values[i] < 0 ? -values[i] : values[i];
        if (magnitude > max && magnitude <= FLT_MAX) {
            max = magnitude;
        }
    }
    return max;
}

float kvp_type_scale(uint32_t type, float max_abs)
{
    const float largest = type == KVP_INT8 ? 127.0f : 448.0f;
    if ((type != KVP_INT8 && type != KVP_E4M3) || max_abs != max_abs) {
        return 1;
    }
    const float magnitude = max_abs < 0 ? -max_abs : max_abs;
    const float scale = (magnitude > FLT_MAX ? FLT_MAX : magnitude) / largest;
    return scale < FLT_MIN ? FLT_MIN : scale;
}

static int is_usable(uint32_t type, const void *elements, const float *values, size_t n)
{
    const size_t bytes = kvp_type_bytes(type);
    if (bytes == 0 || type == KVP_BYTES) {
        return 0;
    }
    return n == 0 || (elements && values && (uintptr_t)elements % bytes == 0 &&
                      (uintptr_t)values % sizeof(float) == 0);
}

kvp_status kvp_type_to_f32(uint32_t type, float scale, const void *elements, size_t n,
                           float *out_values)
{
    if (!is_usable(type, elements, out_values, n)) {
        return KVP_E_ARG;
    }
    if (n > 0) {
        kvpi_convert_read(type, scale, elements, n, out_values);
    }
    return KVP_OK;
}

kvp_status kvp_type_from_f32(uint32_t type, float scale, const float *values, size_t n,
                             void *out_elements)
{
    if (!is_usable(type, out_elements, values, n) || !(scale > 0) || scale > FLT_MAX) {
        return KVP_E_ARG;
    }
    if (n > 0) {
        kvpi_convert_write(type, scale, values, n, out_elements);
    }
    return KVP_OK;
}

/* Element types: against vectors of an independent program (test/golden/make_float_vectors.py), and
 * by what rounding means, for every code of every type. */
#include <string.h>

#include "mocka.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include <kvpager/memory.h>

#include <golden/float_vectors.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* An element as this machine stores it. */
union element {
    uint8_t one;
    uint16_t two;
    uint32_t four;
};

/* The code that a value gets, whatever the type's size. */
static uint32_t write_one(uint32_t type, float scale, float value)
{
    union element element = {.four = 0};
    assert_int_equal(kvp_type_from_f32(type, scale, &value, 1, &element), KVP_OK);
    const size_t size = kvp_type_bytes(type);
    return size == 1 ? element.one : size == 2 ? element.two : element.four;
}

static float read_one(uint32_t type, float scale, uint32_t code)
{
    float value;
    union element element = {.four = code};
    const size_t size = kvp_type_bytes(type);
    if (size == 1)
        element.one = (uint8_t)code;
    else if (size == 2)
        element.two = (uint16_t)code;
    assert_int_equal(kvp_type_to_f32(type, scale, &element, 1, &value), KVP_OK);
    return value;
}

TEST(test_sizes)
{
    const size_t bytes[] = {0, 4, 2, 2, 1, 1, 0};
    for (uint32_t type = 0; type < COUNT(bytes); type++)
        assert_int_equal(kvp_type_bytes(type), bytes[type]);
    assert_int_equal(kvp_type_bytes(UINT32_MAX), 0);
}

static void expect_vectors(void)
{
    for (size_t i = 0; i < COUNT(float_vectors); i++) {
        const float_vector *v = &float_vectors[i];
        const float value = of_bits(v->bits);
        assert_int_equal(write_one(KVP_F32, 1, value), v->bits);
        assert_int_equal(write_one(KVP_F16, 1, value), v->f16);
        assert_int_equal(write_one(KVP_BF16, 1, value), v->bf16);
        assert_int_equal(write_one(KVP_E4M3, 1, value), v->e4m3);
        assert_int_equal((int8_t)write_one(KVP_INT8, 1, value), v->int8);
    }
    for (size_t i = 0; i < COUNT(scaled_vectors); i++) {
        const scaled_vector *v = &scaled_vectors[i];
        const float scale = of_bits(v->scale);
        assert_int_equal((int8_t)write_one(KVP_INT8, scale, of_bits(v->value)), v->int8);
        assert_int_equal(write_one(KVP_E4M3, scale, of_bits(v->value)), v->e4m3);
    }
}

TEST(test_vectors)
{
    expect_vectors();
}

TEST(test_rounding_mode_does_not_matter)
{
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < COUNT(modes); i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        expect_vectors();
        assert_int_equal(fesetround(FE_TONEAREST), 0);
    }
}

TEST(test_e4m3_values)
{
    for (uint32_t code = 0; code < COUNT(e4m3_values); code++) {
        assert_int_equal(bits_of(read_one(KVP_E4M3, 1, code)), e4m3_values[code]);
        assert_int_equal(bits_of(read_one(KVP_E4M3, 1, code | 0x80)),
                         e4m3_values[code] | 0x80000000u);
    }
    assert_true(isnan(read_one(KVP_E4M3, 1, 0x7F)) && isnan(read_one(KVP_E4M3, 1, 0xFF)));
}

/* By the formula: (-1)^s 2^(e-15) (1 + m / 1024), and 2^-14 m / 1024 for e = 0. */
TEST(test_f16_values)
{
    for (uint32_t code = 0; code < 0x10000; code++) {
        const uint32_t e = code >> 10 & 31;
        const uint32_t m = code & 1023;
        const float sign = code >> 15 ? -1.0f : 1.0f;
        const float value = read_one(KVP_F16, 1, code);
        if (e == 31) {
            /* A NaN that signals becomes a quiet one, as by the processor's instructions. */
            assert_true(m ? isnan(value) && bits_of(value) & 0x400000
                          : isinf(value) && value * sign > 0);
        } else {
            const double magnitude = e ? ldexp(1024 + m, (int)e - 25) : ldexp(m, -24);
            assert_true(value == sign * (float)magnitude);
            assert_true(!signbit(value) == !(code >> 15));
        }
    }
}

TEST(test_bf16_values)
{
    for (uint32_t code = 0; code < 0x10000; code++) {
        /* The floating-point unit of the first x86 processors makes every NaN a quiet one. */
        const uint32_t quiet = FLT_EVAL_METHOD == 2 && (code & 0x7FFF) > 0x7F80 ? 1u << 22 : 0;
        assert_int_equal(bits_of(read_one(KVP_BF16, 1, code)), code << 16 | quiet);
    }
}

/* Each value is written as itself; halfway between two goes to the even one, and what is a little
 * less or more goes to its side. Codes without sign, 0 .. last finite one. */
static void expect_nearest(uint32_t type, uint32_t last, uint32_t sign)
{
    for (uint32_t code = 0; code <= last; code++) {
        const float value = read_one(type, 1, code);
        assert_int_equal(write_one(type, 1, value), code);
        assert_int_equal(write_one(type, 1, -value), code | sign);
        if (code == last)
            break;
        const float next = read_one(type, 1, code + 1);
        const float middle = value + (next - value) / 2;
        assert_true(value < middle && middle < next); /* exact: each type has room for it in f32 */
        assert_int_equal(write_one(type, 1, middle), code + (code & 1));
        assert_int_equal(write_one(type, 1, nextafterf(middle, 0)), code);
        assert_int_equal(write_one(type, 1, nextafterf(middle, INFINITY)), code + 1);
    }
}

TEST(test_nearest)
{
    expect_nearest(KVP_F16, 0x7BFF, 0x8000);
    expect_nearest(KVP_BF16, 0x7F7F, 0x8000);
    expect_nearest(KVP_E4M3, 0x7E, 0x80);
    for (int q = -127; q <= 127; q++) {
        assert_true(read_one(KVP_INT8, 0.5f, (uint8_t)q) == 0.5f * (float)q);
        assert_int_equal((int8_t)write_one(KVP_INT8, 0.5f, 0.5f * (float)q), q);
        if (q < 127) {
            const float middle = (float)q + 0.5f;
            assert_int_equal((int8_t)write_one(KVP_INT8, 1, middle), q + (q % 2 != 0));
            assert_int_equal((int8_t)write_one(KVP_INT8, 1, nextafterf(middle, -200)), q);
            assert_int_equal((int8_t)write_one(KVP_INT8, 1, nextafterf(middle, 200)), q + 1);
        }
    }
}

TEST(test_what_is_no_number)
{
    assert_int_equal(write_one(KVP_F16, 1, INFINITY), 0x7C00);
    assert_int_equal(write_one(KVP_F16, 1, -INFINITY), 0xFC00);
    assert_int_equal(write_one(KVP_F16, 1, FLT_MAX), 0x7C00);
    assert_int_equal(write_one(KVP_BF16, 1, -INFINITY), 0xFF80);
    assert_int_equal(write_one(KVP_BF16, 1, FLT_MAX), 0x7F80);
    assert_int_equal(write_one(KVP_E4M3, 1, INFINITY), 0x7E);
    assert_int_equal(write_one(KVP_E4M3, 1, -FLT_MAX), 0xFE);
    assert_int_equal(write_one(KVP_E4M3, 1, NAN) & 0x7F, 0x7F);
    assert_int_equal(write_one(KVP_INT8, 1, NAN), 0);
    assert_int_equal((int8_t)write_one(KVP_INT8, 1, -INFINITY), -127);
    assert_int_equal((int8_t)write_one(KVP_INT8, 1, INFINITY), 127);
    assert_true(isnan(read_one(KVP_F16, 1, write_one(KVP_F16, 1, NAN))));
    assert_true(isnan(read_one(KVP_BF16, 1, write_one(KVP_BF16, 1, NAN))));
    const uint32_t payload = 0x7FA12345; /* f32 is copied, bit for bit */
    assert_int_equal(write_one(KVP_F32, 1, of_bits(payload)), payload);
}

TEST(test_scale_for)
{
    assert_true(kvp_type_scale(KVP_INT8, 127) == 1);
    assert_true(kvp_type_scale(KVP_INT8, -254) == 2);
    assert_true(kvp_type_scale(KVP_E4M3, 448) == 1);
    assert_true(kvp_type_scale(KVP_E4M3, INFINITY) == FLT_MAX / 448);
    assert_true(kvp_type_scale(KVP_INT8, 0) == FLT_MIN);
    assert_true(kvp_type_scale(KVP_INT8, 100 * FLT_MIN) == FLT_MIN); /* / 127 is below it */
    assert_true(kvp_type_scale(KVP_INT8, NAN) == 1);
    assert_true(kvp_type_scale(KVP_BF16, 5) == 1);
    for (int i = 0; i < 1000; i++) { /* the largest value fits */
        const float max = 0.37f * (float)i;
        assert_int_equal(write_one(KVP_INT8, kvp_type_scale(KVP_INT8, max), max), i ? 127 : 0);
        assert_int_equal(write_one(KVP_E4M3, kvp_type_scale(KVP_E4M3, max), max), i ? 0x7E : 0);
    }
}

TEST(test_refusals)
{
    float values[4] = {1, 2, 3, 4};
    uint32_t elements[4] = {9, 9, 9, 9};
    unsigned char *odd = (unsigned char *)elements + 1;
    float *odd_floats = (float *)(void *)((unsigned char *)values + 2);
    assert_int_equal(kvp_type_from_f32(0, 1, values, 1, elements), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(6, 1, values, 1, elements), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_F16, 1, NULL, 1, elements), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_F16, 1, values, 1, NULL), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_F16, 1, values, 1, odd), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_INT8, 1, odd_floats, 1, elements), KVP_E_ARG);
    const float scales[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < COUNT(scales); i++)
        assert_int_equal(kvp_type_from_f32(KVP_INT8, scales[i], values, 1, elements), KVP_E_ARG);
    assert_int_equal(kvp_type_to_f32(9, 1, elements, 1, values), KVP_E_ARG);
    assert_int_equal(kvp_type_to_f32(KVP_BF16, 1, NULL, 1, values), KVP_E_ARG);
    assert_int_equal(kvp_type_to_f32(KVP_BF16, 1, elements, 1, NULL), KVP_E_ARG);
    assert_int_equal(kvp_type_to_f32(KVP_F32, 1, odd, 1, values), KVP_E_ARG);
    assert_int_equal(elements[0], 9);
    assert_true(values[0] == 1);
    assert_int_equal(kvp_type_from_f32(KVP_F16, 1, NULL, 0, NULL), KVP_OK);
    assert_int_equal(kvp_type_to_f32(KVP_F16, 1, NULL, 0, NULL), KVP_OK);
}

TEST_MAIN(NULL, NULL)

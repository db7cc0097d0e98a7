#!/usr/bin/env python3
"""Vectors for kvpager's element types, from a program that shares nothing with the library.

    make_float_vectors.py OUT    write them to OUT, as C tables

A type is the list of all its values as exact fractions, from the definition of sign, exponent and
mantissa. To write a value is to look for the nearest in the list; between two, the even code. f16 is
made by Python's own struct.pack('e') besides, and both must agree.
"""

import random
import struct
import sys
from fractions import Fraction

COUNT = 600


class Small:
    """Codes without sign, ascending; values as fractions."""

    def __init__(self, mantissa_bits, bias, n_finite, overflow):
        self.overflow = overflow  # code of what is too large
        self.values = []
        for code in range(n_finite):
            field, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
            if field == 0:
                value = Fraction(mantissa, 1 << mantissa_bits) * Fraction(2) ** (1 - bias)
            else:
                value = (1 + Fraction(mantissa, 1 << mantissa_bits)) * Fraction(2) ** (field - bias)
            self.values.append(value)

    def nearest(self, value):
        """Code of |value|. What would be the next value after the last one is where too large
        begins, and half of the way there belongs to it (to the even code)."""
        value = abs(value)
        low, high = 0, len(self.values) - 1
        if value >= self.values[high]:
            step = self.values[high] - self.values[high - 1]
            return self.overflow if value >= self.values[high] + step / 2 else high
        while high - low > 1:
            middle = (low + high) // 2
            if self.values[middle] <= value:
                low = middle
            else:
                high = middle
        below, above = value - self.values[low], self.values[high] - value
        if below != above:
            return low if below < above else high
        return low if low % 2 == 0 else high


F16 = Small(10, 15, 0x7C00, 0x7C00)
BF16 = Small(7, 127, 0x7F80, 0x7F80)
E4M3 = Small(3, 7, 0x7F, 0x7E)


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def fraction(bits):
    return Fraction(f32(bits))


def int8(value):
    """Python rounds fractions to the nearest, ties to even."""
    return max(-127, min(127, round(value)))


def f16_by_struct(bits):
    try:
        return struct.unpack("<H", struct.pack("<e", f32(bits)))[0]
    except OverflowError:
        return 0x7C00 | (bits >> 31) << 15


def encode(bits):
    """(f16, bf16, e4m3, int8) of a finite f32."""
    value, sign = fraction(bits), bits >> 31
    half = F16.nearest(value) | sign << 15
    if half != f16_by_struct(bits):
        raise SystemExit(f"f16 of {bits:08x}: {half:04x}, struct says {f16_by_struct(bits):04x}")
    return half, BF16.nearest(value) | sign << 15, E4M3.nearest(value) | sign << 7, int8(value)


def interesting():
    """Powers of two with their neighbours, edges of each type, and ties."""
    bits = []
    for exponent in list(range(-30, 20)) + [-126, -127, -133, -134, -149, 127]:
        at = bits_of(2.0 ** exponent)
        bits += [at - 1, at, at + 1, at | 0x400000]
    for value in (0.5, 1.5, 2.5, 126.5, 127.0, 127.5, 240, 448, 463.99, 464, 464.01, 480, 65503,
                  65504, 65519.99, 65520, 65536, 3.38e38):
        bits += [bits_of(value) - 1, bits_of(value), bits_of(value) + 1]
    bits += [0x00000000, 0x00000001, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF]
    return [b for b in bits if b < 0x7F800000]


def vectors():
    draw = random.Random(4)
    bits = interesting()
    while len(bits) < COUNT:
        exponent = draw.choice([draw.randrange(1, 255), draw.randrange(117, 137)])
        bits.append(exponent << 23 | draw.randrange(1 << 23) & draw.choice([-1, -1 << 11, -1 << 18]))
    return [b | draw.randrange(2) << 31 for b in bits]


def scaled():
    """(value, scale, int8, e4m3) of value / scale, the quotient exact."""
    draw = random.Random(5)
    rows = []
    for _ in range(200):
        scale = bits_of(draw.choice([0.5, 0.25, 1.0, draw.uniform(1e-4, 3), 2.0 ** -140]))
        times = draw.choice([draw.uniform(-130, 130), draw.randrange(-128, 128) + 0.5,
                             draw.uniform(-500, 500), draw.uniform(-0.02, 0.02)])
        value = bits_of(f32(scale) * times)
        quotient = fraction(value) / fraction(scale)
        sign = (value >> 31) << 7
        rows.append((value, scale, int8(quotient), E4M3.nearest(quotient) | sign))
    return rows


def header_text():
    lines = [
        "/* Made by make_float_vectors.py. */",
        "#ifndef KVP_TEST_FLOAT_VECTORS_H",
        "#define KVP_TEST_FLOAT_VECTORS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* An f32, and what it is written as. */",
        "typedef struct float_vector {",
        "    uint32_t bits;",
        "    uint16_t f16;",
        "    uint16_t bf16;",
        "    uint8_t e4m3;",
        "    int8_t int8;",
        "} float_vector;",
        "",
        "/* Two f32, value and scale, and what value / scale is written as. */",
        "typedef struct scaled_vector {",
        "    uint32_t value;",
        "    uint32_t scale;",
        "    int8_t int8;",
        "    uint8_t e4m3;",
        "} scaled_vector;",
        "",
        "static const float_vector float_vectors[] = {",
    ]
    for bits in vectors():
        half, brain, fp8, integer = encode(bits)
        lines.append(f"    {{0x{bits:08x}, 0x{half:04x}, 0x{brain:04x}, 0x{fp8:02x}, {integer}}},")
    lines += ["};", "", "static const scaled_vector scaled_vectors[] = {"]
    for value, scale, integer, fp8 in scaled():
        lines.append(f"    {{0x{value:08x}, 0x{scale:08x}, {integer}, 0x{fp8:02x}}},")
    lines += ["};", "", "/* The values of the e4m3 codes 0x00..0x7e, as f32. */",
              "static const uint32_t e4m3_values[127] = {"]
    for first in range(0, 127, 8):
        row = [f"0x{bits_of(float(v)):08x}," for v in E4M3.values[first:first + 8]]
        lines.append("    " + " ".join(row))
    lines += ["};", "", "#endif", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(header_text())

/* scan: 64 numbers of an f16 mask at a time. 0 lets a query see a cell, minus infinity does not. */
#ifndef KVPI_GGML_SCAN_H
#define KVPI_GGML_SCAN_H

#include <stdint.h>

enum { SCAN_MINUS_INFINITY = 0xfc00, SCAN_SIGN = 0x8000 };

/* Bits of what is seen; *other becomes 1 if a number is neither 0 nor minus infinity. */
static inline uint64_t kvpi_scan_some(const uint16_t *mask, uint32_t n, int *other)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int is_zero = (mask[i] & (uint16_t)~SCAN_SIGN) == 0;
        *other |= !is_zero && mask[i] != SCAN_MINUS_INFINITY;
        seen |= (uint64_t)is_zero << i;
    }
    return seen;
}

#ifdef __SSE2__
#include <emmintrin.h>

static inline uint64_t kvpi_scan_64(const uint16_t *mask, int *other)
{
    const __m128i infinity = _mm_set1_epi16((short)SCAN_MINUS_INFINITY);
    __m128i known = _mm_set1_epi8(-1);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 64; i += 16) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(mask + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(mask + i + 8));
        const __m128i zero_a = _mm_cmpeq_epi16(_mm_add_epi16(a, a), _mm_setzero_si128());
        const __m128i zero_b = _mm_cmpeq_epi16(_mm_add_epi16(b, b), _mm_setzero_si128());
        known = _mm_and_si128(known, _mm_or_si128(zero_a, _mm_cmpeq_epi16(a, infinity)));
        known = _mm_and_si128(known, _mm_or_si128(zero_b, _mm_cmpeq_epi16(b, infinity)));
        const int bits = _mm_movemask_epi8(_mm_packs_epi16(zero_a, zero_b));
        seen |= (uint64_t)(uint32_t)bits << i;
    }
    *other |= _mm_movemask_epi8(known) != 0xffff;
    return seen;
}
#else
static inline uint64_t kvpi_scan_64(const uint16_t *mask, int *other)
{
    return kvpi_scan_some(mask, 64, other);
}
#endif

#endif

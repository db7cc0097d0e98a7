/* chain_x86: SHA-NI. Its instructions keep the eight words A..H of the state as ABEF and CDGH, with
 * the first in the highest lane. */
#include "store/identity/chain.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

enum { PIECE = 16, PARENT = 8 }; /* words */

typedef struct state {
    __m128i abef;
    __m128i cdgh;
} state;

static const uint32_t constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static const uint32_t start[8] __attribute__((aligned(16))) = {
    0x9b05688c, 0x510e527f, 0xbb67ae85, 0x6a09e667, /* F, E, B, A */
    0x5be0cd19, 0x1f83d9ab, 0xa54ff53a, 0x3c6ef372, /* H, G, D, C */
};

WITH_SHA static inline __m128i load(const uint32_t *words)
{
    return _mm_loadu_si128((const __m128i *)words);
}

/* Four words as they are in memory, which is big-endian. */
WITH_SHA static inline __m128i swap(__m128i words)
{
    return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

WITH_SHA static inline void do_four(state *s, uint32_t round, __m128i words)
{
    const __m128i sum = _mm_add_epi32(words, _mm_load_si128((const __m128i *)(constants + round)));
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, sum);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

/* The four words after the last 16. */
WITH_SHA static inline __m128i extend(__m128i w0, __m128i w4, __m128i w8, __m128i w12)
{
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w4), _mm_alignr_epi8(w12, w8, 4));
    return _mm_sha256msg2_epu32(sum, w12);
}

WITH_SHA static inline state compress(state s, __m128i w0, __m128i w4, __m128i w8, __m128i w12)
{
    const state before = s;
    do_four(&s, 0, w0);
    do_four(&s, 4, w4);
    do_four(&s, 8, w8);
    do_four(&s, 12, w12);
    for (uint32_t round = 16; round < 64; round += 16) {
        w0 = extend(w0, w4, w8, w12);
        do_four(&s, round, w0);
        w4 = extend(w4, w8, w12, w0);
        do_four(&s, round + 4, w4);
        w8 = extend(w8, w12, w0, w4);
        do_four(&s, round + 8, w8);
        w12 = extend(w12, w0, w4, w8);
        do_four(&s, round + 12, w12);
    }
    s.abef = _mm_add_epi32(s.abef, before.abef);
    s.cdgh = _mm_add_epi32(s.cdgh, before.cdgh);
    return s;
}

/* What stands behind the tokens: no keys, and the padding. Returns: pieces of a message */
static uint32_t write_end(uint32_t *behind_parent, uint32_t size)
{
    const uint32_t n_words = PARENT + size + 1;
    const uint32_t n_pieces = (n_words + 3 + PIECE - 1) / PIECE;
    behind_parent[size + 1] = 0x80000000;
    behind_parent[n_pieces * PIECE - PARENT - 1] = n_words * 32;
    return n_pieces;
}

/* Nothing is called in the loop, because abcd and efgh would leave their registers. */
WITH_SHA static void chain(const kvp_digest *parent, const int32_t *tokens, uint32_t size,
                           uint32_t n, kvp_digest *out_digests)
{
    uint32_t behind[KVPI_CHAIN_TOKENS + PIECE] __attribute__((aligned(16))) = {0}; /* the parent */
    const uint32_t n_pieces = write_end(behind, size);
    const state first = {load(start), load(start + 4)};
    __m128i abcd = swap(_mm_loadu_si128((const __m128i *)parent->bytes));
    __m128i efgh = swap(_mm_loadu_si128((const __m128i *)(parent->bytes + 16)));
    for (uint32_t i = 0; i < n; i++, tokens += size) {
        for (uint32_t j = 0; j < size; j++)
            behind[j] = __builtin_bswap32((uint32_t)tokens[j]);
        state s = compress(first, abcd, efgh, load(behind), load(behind + 4));
        const uint32_t *piece = behind + PIECE - PARENT;
        for (uint32_t left = n_pieces - 1; left > 0; left--, piece += PIECE)
            s = compress(s, load(piece), load(piece + 4), load(piece + 8), load(piece + 12));
        const __m128i abef = _mm_shuffle_epi32(s.abef, 0x1b);
        const __m128i cdgh = _mm_shuffle_epi32(s.cdgh, 0x1b);
        abcd = _mm_unpacklo_epi64(abef, cdgh);
        efgh = _mm_unpackhi_epi64(abef, cdgh);
        _mm_storeu_si128((__m128i *)out_digests[i].bytes, swap(abcd));
        _mm_storeu_si128((__m128i *)(out_digests[i].bytes + 16), swap(efgh));
    }
}

kvpi_chain_fn kvpi_chain_x86(void)
{
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    const int has_sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
    return has_sha && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") ? chain
                                                                                          : NULL;
}

#else

kvpi_chain_fn kvpi_chain_x86(void)
{
    return NULL;
}

#endif

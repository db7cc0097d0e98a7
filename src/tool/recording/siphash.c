/* See siphash.h. Words are little-endian on every machine. */
#include "tool/recording/siphash.h"

typedef struct sip {
    uint64_t v[4];
} sip;

static uint64_t read_word(const uint8_t *bytes, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static void write_word(uint8_t *bytes, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
}

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void rounds(sip *of, unsigned n)
{
    uint64_t a = of->v[0], b = of->v[1], c = of->v[2], d = of->v[3];
    for (unsigned i = 0; i < n; i++) {
        a += b;
        c += d;
        b = rotate(b, 13) ^ a;
        d = rotate(d, 16) ^ c;
        a = rotate(a, 32) + d;
        c += b;
        d = rotate(d, 21) ^ a;
        b = rotate(b, 17) ^ c;
        c = rotate(c, 32);
    }
    of->v[0] = a;
    of->v[1] = b;
    of->v[2] = c;
    of->v[3] = d;
}

static void absorb(sip *of, uint64_t word)
{
    of->v[3] ^= word;
    rounds(of, 2);
    of->v[0] ^= word;
}

static uint64_t squeeze(sip *of)
{
    rounds(of, 4);
    return of->v[0] ^ of->v[1] ^ of->v[2] ^ of->v[3];
}

void kvpi_siphash(const uint8_t key[16], const void *bytes, size_t n, uint8_t out[16])
{
    const uint8_t *from = bytes;
    const uint64_t low = read_word(key, 8), high = read_word(key + 8, 8);
    /* "somepseudorandomlygeneratedbytes"; 0xee: 128 bits come out. */
    sip state = {{low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                  low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573)}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        absorb(&state, read_word(from + i, 8));
    absorb(&state, (n == i ? 0 : read_word(from + i, n - i)) | (uint64_t)n << 56);
    state.v[2] ^= 0xee;
    write_word(out, squeeze(&state));
    state.v[1] ^= 0xdd;
    write_word(out + 8, squeeze(&state));
}

/* hash_chain: the hashes of a run of units of 16 tokens without keys, one after the other.
 *
 * XXH3-128 of the 84 bytes parent | tokens | 0, as its specification gives it for 17 to 128 bytes
 * of input: three rounds over 32 bytes from the front and the back, then a final mix. It is written
 * out because with a buffer every unit waits for its stores to come back as loads. Here the parent
 * stays in registers and the tokens are read in place, 3 to 4 times as fast. The parent enters in
 * the last round only, so everything else is off the chain from unit to unit.
 *
 *   input, bytes    0        16                                       80    84
 *                   | parent | tokens (t + 0 .. t + 64)               | 0   |
 *   rounds          3 front    2 front   1 front 1 back  2 back    3 back
 *
 * test/unit/test_hash.c compares it with the library's own function. Little-endian machines with
 * 128-bit products; others take the general way.
 */
#ifndef KVPI_HASH_CHAIN_H
#define KVPI_HASH_CHAIN_H

#include <kvpager/types.h>

#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__SIZEOF_INT128__)
#define KVPI_CHAIN_16 1
#else
#define KVPI_CHAIN_16 0
#endif

/* A hash's canonical bytes as two words in memory order. */
struct kvpi_hash_chain {
    uint64_t word[2];
};

static inline struct kvpi_hash_chain kvpi_chain_begin(const kvp_hash *parent)
{
    struct kvpi_hash_chain chain;
    memcpy(chain.word, parent->bytes, sizeof(chain.word));
    return chain;
}

static inline void kvpi_chain_store(const struct kvpi_hash_chain *chain, kvp_hash *out)
{
    memcpy(out->bytes, &chain->word[0], 8);
    memcpy(out->bytes + 8, &chain->word[1], 8);
}

#if KVPI_CHAIN_16

/* The first 96 bytes of XXH3's default secret, as little-endian words. */
static const uint64_t kvpi_chain_secret[12] = {
    0xBE4BA423396CFEB8u, 0x1CAD21F72C81017Cu, 0xDB979083E96DD4DEu, 0x1F67B3B7A4A44072u,
    0x78E5C0CC4EE679CBu, 0x2172FFCC7DD05A82u, 0x8E2443F7744608B8u, 0x4C263A81E69035E0u,
    0xCB00C391BB52283Cu, 0xA32E531B8B65D088u, 0x4EF90DA297486471u, 0xD8ACDEA946EF1938u,
};

static inline uint64_t kvpi_chain_read(const int32_t *tokens, uint32_t byte)
{
    uint64_t word;
    memcpy(&word, (const char *)(const void *)tokens + byte, 8);
    return word;
}

static inline uint64_t kvpi_chain_fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t kvpi_chain_avalanche(uint64_t h)
{
    h ^= h >> 37;
    h *= 0x165667919E3779F9u;
    return h ^ (h >> 32);
}

/* Go on by one unit: tokens [16]. */
static inline void kvpi_chain_16(struct kvpi_hash_chain *chain, const int32_t *tokens)
{
    const uint64_t *secret = kvpi_chain_secret;
    const uint64_t prime_1 = 0x9E3779B185EBCA87u;
    const uint64_t prime_2 = 0xC2B2AE3D27D4EB4Fu;
    const uint64_t prime_4 = 0x85EBCA77C2B2AE63u;
    const uint64_t parent_0 = chain->word[0];
    const uint64_t parent_1 = chain->word[1];
    uint64_t low = 84 * prime_1;
    uint64_t high = 0;
    uint32_t last;

    uint64_t a = kvpi_chain_read(tokens, 16); /* input + 32 */
    uint64_t b = kvpi_chain_read(tokens, 24);
    uint64_t c = kvpi_chain_read(tokens, 20); /* input + 84 - 48 */
    uint64_t d = kvpi_chain_read(tokens, 28);
    low += kvpi_chain_fold(a ^ secret[8], b ^ secret[9]);
    low ^= c + d;
    high += kvpi_chain_fold(c ^ secret[10], d ^ secret[11]);
    high ^= a + b;

    a = kvpi_chain_read(tokens, 0); /* input + 16 */
    b = kvpi_chain_read(tokens, 8);
    c = kvpi_chain_read(tokens, 36); /* input + 84 - 32 */
    d = kvpi_chain_read(tokens, 44);
    low += kvpi_chain_fold(a ^ secret[4], b ^ secret[5]);
    low ^= c + d;
    high += kvpi_chain_fold(c ^ secret[6], d ^ secret[7]);
    high ^= a + b;

    c = kvpi_chain_read(tokens, 52); /* input + 84 - 16; the last 4 bytes are the number of keys */
    memcpy(&last, (const char *)(const void *)tokens + 60, 4);
    d = last;
    high += kvpi_chain_fold(c ^ secret[2], d ^ secret[3]);
    low += kvpi_chain_fold(parent_0 ^ secret[0], parent_1 ^ secret[1]);
    low ^= c + d;
    high ^= parent_0 + parent_1;

    const uint64_t mixed = low * prime_1 + high * prime_4 + 84 * prime_2;
    chain->word[0] = __builtin_bswap64(0 - kvpi_chain_avalanche(mixed));
    chain->word[1] = __builtin_bswap64(kvpi_chain_avalanche(low + high));
}

#else

static inline void kvpi_chain_16(struct kvpi_hash_chain *chain, const int32_t *tokens)
{
    (void)chain;
    (void)tokens;
}

#endif
#endif

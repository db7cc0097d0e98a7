/* hash: XXH3-128 over (parent, tokens, keys), as kvpager/hash.h spells out. Frozen.
 *
 * A unit without keys is hashed in one call over a small buffer. Large units and units with keys go
 * through the streaming form, which gives the same hash; so does hash_chain.h, which walks a prompt
 * in units of 16 tokens, the usual ones, without a buffer.
 */
#include "core/stages/hash.h"

#include <string.h>

#include "base/base.h"
#include "core/stages/hash_chain.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SMALL_TOKENS 64u
#define KEYS_MAX     64u

static const char VERSION_TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', '1'};

static inline uint32_t little_endian(uint32_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return value;
#else
    return __builtin_bswap32(value);
#endif
}

static void put_u32(uint8_t *out, uint32_t value)
{
    value = little_endian(value);
    memcpy(out, &value, 4);
}

static void put_tokens(uint8_t *out, const int32_t *tokens, uint32_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, tokens, (size_t)n * 4);
#else
    for (uint32_t i = 0; i < n; i++) {
        put_u32(out + (size_t)i * 4, (uint32_t)tokens[i]);
    }
#endif
}

static void store(kvp_hash *out, XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out->bytes, canonical.digest, sizeof(out->bytes));
}

static void hash_small(const kvp_hash *parent, const int32_t *tokens, uint32_t n, kvp_hash *out)
{
    uint8_t buffer[16 + SMALL_TOKENS * 4 + 4];
    memcpy(buffer, parent->bytes, 16);
    put_tokens(buffer + 16, tokens, n);
    memset(buffer + 16 + (size_t)n * 4, 0, 4);
    store(out, XXH3_128bits(buffer, 20 + (size_t)n * 4));
}

static void update_tokens(XXH3_state_t *state, const int32_t *tokens, uint32_t n)
{
    uint8_t buffer[SMALL_TOKENS * 4];
    while (n > 0) {
        const uint32_t part = kvpi_min_u32(n, SMALL_TOKENS);
        put_tokens(buffer, tokens, part);
        XXH3_128bits_update(state, buffer, (size_t)part * 4);
        tokens += part;
        n -= part;
    }
}

static void hash_any(const kvp_hash *parent, const int32_t *tokens, uint32_t n,
                     const struct kvpi_key *keys, uint32_t n_keys, kvp_hash *out)
{
    XXH3_state_t state;
    uint8_t word[12];
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, parent->bytes, sizeof(parent->bytes));
    update_tokens(&state, tokens, n);
    put_u32(word, n_keys);
    XXH3_128bits_update(&state, word, 4);
    for (uint32_t i = 0; i < n_keys; i++) {
        put_u32(word, keys[i].type);
        put_u32(word + 4, (uint32_t)keys[i].offset);
        put_u32(word + 8, keys[i].n_bytes);
        XXH3_128bits_update(&state, word, 12);
        XXH3_128bits_update(&state, keys[i].bytes, keys[i].n_bytes);
    }
    store(out, XXH3_128bits_digest(&state));
}

void kvpi_hash_unit(const kvp_hash *parent, const int32_t *tokens, uint32_t unit_tokens,
                    const struct kvpi_key *keys, uint32_t n_keys, kvp_hash *out_hash)
{
    if (KVPI_CHAIN_16 && unit_tokens == 16 && n_keys == 0) {
        struct kvpi_hash_chain chain = kvpi_chain_begin(parent);
        kvpi_chain_16(&chain, tokens);
        kvpi_chain_store(&chain, out_hash);
    } else if (unit_tokens <= SMALL_TOKENS && n_keys == 0) {
        hash_small(parent, tokens, unit_tokens, out_hash);
    } else {
        hash_any(parent, tokens, unit_tokens, keys, n_keys, out_hash);
    }
}

kvp_status kvp_hash_root(uint32_t unit_tokens, uint64_t seed, const void *name, size_t name_bytes,
                         kvp_hash *out_root)
{
    uint8_t buffer[sizeof(VERSION_TAG) + 12 + KVP_NAME_MAX_BYTES];
    if (out_root == NULL || (name == NULL && name_bytes > 0) || name_bytes > KVP_NAME_MAX_BYTES ||
        unit_tokens == 0 || unit_tokens > KVP_BLOCK_TOKENS_MAX) {
        return KVP_E_ARG;
    }
    memcpy(buffer, VERSION_TAG, sizeof(VERSION_TAG));
    put_u32(buffer + 8, unit_tokens);
    put_u32(buffer + 12, (uint32_t)seed);
    put_u32(buffer + 16, (uint32_t)(seed >> 32));
    if (name_bytes > 0) {
        memcpy(buffer + 20, name, name_bytes);
    }
    store(out_root, XXH3_128bits(buffer, 20 + name_bytes));
    return KVP_OK;
}

int kvpi_keys_valid(const kvp_key *keys, uint32_t n_keys, uint32_t begin, uint32_t end)
{
    uint32_t last = begin;
    for (uint32_t i = 0; i < n_keys; i++) {
        const kvp_key *key = &keys[i];
        if (key->begin < last || key->begin >= key->end || key->end > end ||
            key->n_bytes > KVP_KEY_MAX_BYTES || (key->bytes == NULL && key->n_bytes > 0)) {
            return 0;
        }
        last = key->begin;
    }
    return 1;
}

uint32_t kvpi_keys_of_unit(const kvp_key *keys, uint32_t n_keys, uint32_t begin,
                           uint32_t unit_tokens, struct kvpi_key *out, uint32_t capacity,
                           uint32_t *cursor)
{
    uint32_t n = 0;
    const uint64_t end = (uint64_t)begin + unit_tokens;
    while (*cursor < n_keys && keys[*cursor].end <= begin) {
        (*cursor)++;
    }
    for (uint32_t i = *cursor; i < n_keys && keys[i].begin < end; i++) {
        if (keys[i].end <= begin) {
            continue;
        }
        if (n < capacity) {
            struct kvpi_key *key = &out[n];
            memset(key, 0, sizeof(*key));
            key->type = keys[i].type;
            key->offset = (int32_t)((int64_t)keys[i].begin - (int64_t)begin);
            key->n_bytes = keys[i].n_bytes;
            if (key->n_bytes > 0) {
                memcpy(key->bytes, keys[i].bytes, key->n_bytes);
            }
        }
        n++;
    }
    return n;
}

kvp_status kvp_hash_units(const kvp_hash_input *input, const kvp_hash *parent, kvp_hash *out_hashes)
{
    struct kvpi_key unit_keys[KEYS_MAX];
    uint32_t cursor = 0;
    if (input == NULL || parent == NULL || input->unit_tokens == 0 ||
        input->unit_tokens > KVP_BLOCK_TOKENS_MAX ||
        (input->tokens == NULL && input->n_tokens > 0) ||
        (input->keys == NULL && input->n_keys > 0) ||
        input->first_position % input->unit_tokens != 0 ||
        input->n_tokens > UINT32_MAX - input->first_position) {
        return KVP_E_ARG;
    }
    const uint32_t U = input->unit_tokens;
    const uint32_t n_units = input->n_tokens / U;
    if (!kvpi_keys_valid(input->keys, input->n_keys, 0, UINT32_MAX) ||
        (out_hashes == NULL && n_units > 0)) {
        return KVP_E_ARG;
    }
    for (uint32_t u = 0; u < n_units && input->n_keys > 0; u++) {
        if (kvpi_keys_of_unit(input->keys, input->n_keys, input->first_position + u * U, U,
                              unit_keys, 0, &cursor) > KEYS_MAX) {
            return KVP_E_ARG;
        }
    }
    if (KVPI_CHAIN_16 && U == 16 && input->n_keys == 0) {
        struct kvpi_hash_chain chain = kvpi_chain_begin(parent);
        for (uint32_t u = 0; u < n_units; u++) {
            kvpi_chain_16(&chain, input->tokens + (size_t)u * 16);
            kvpi_chain_store(&chain, &out_hashes[u]);
        }
        return KVP_OK;
    }
    cursor = 0;
    for (uint32_t u = 0; u < n_units; u++) {
        uint32_t n_keys = 0;
        if (input->n_keys > 0) {
            n_keys = kvpi_keys_of_unit(input->keys, input->n_keys, input->first_position + u * U, U,
                                       unit_keys, KEYS_MAX, &cursor);
        }
        kvpi_hash_unit(u == 0 ? parent : &out_hashes[u - 1], input->tokens + (size_t)u * U, U,
                       unit_keys, n_keys, &out_hashes[u]);
    }
    return KVP_OK;
}

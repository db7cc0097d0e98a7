/* hash: one unit's content hash. The public form is kvpager/hash.h. */
#ifndef KVPI_HASH_H
#define KVPI_HASH_H

#include <kvpager/hash.h>
#include <kvpager/types.h>

/* An extra key as a unit has it: where it begins is relative to the unit. One cache line. */
struct kvpi_key {
    uint32_t type;
    int32_t offset;
    uint32_t n_bytes;
    uint8_t bytes[KVP_KEY_MAX_BYTES];
};

/* Hash one unit: tokens [unit_tokens] after `parent`, with n_keys keys. Pure. */
void kvpi_hash_unit(const kvp_hash *parent, const int32_t *tokens, uint32_t unit_tokens,
                    const struct kvpi_key *keys, uint32_t n_keys, kvp_hash *out_hash);

/* The 32 bits of a hash that look-ups use. */
static inline uint32_t kvpi_hash_tag(const kvp_hash *hash)
{
    const uint8_t *b = hash->bytes + 12;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
}

/* Tell whether a list of keys is well formed: ascending by begin, no empty range, no key longer
 * than KVP_KEY_MAX_BYTES, bytes given, all inside positions [begin, end). */
int kvpi_keys_valid(const kvp_key *keys, uint32_t n_keys, uint32_t begin, uint32_t end);

/* Collect the keys that touch positions [begin, begin + unit_tokens) into `out` [capacity]; give
 * how many there are, which may exceed the capacity. *cursor speeds up ascending calls: 0 first. */
uint32_t kvpi_keys_of_unit(const kvp_key *keys, uint32_t n_keys, uint32_t begin,
                           uint32_t unit_tokens, struct kvpi_key *out, uint32_t capacity,
                           uint32_t *cursor);

#endif

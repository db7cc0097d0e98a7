/* kvpager/hash.h: the content hash. Pure, frozen, the same on every machine.
 *
 * The hash is a prefix's identity outside the process (routers, other engines, logs). Inside the
 * process it only speeds up look-ups: tokens, keys and the prefix before always decide whether
 * there is a hit. The chain:
 *
 *   root = XXH3-128( "kvpager1"              8 bytes, the version tag
 *                    U                       u32 little-endian, unit_tokens
 *                    seed                    u64 little-endian
 *                    name                    the namespace's name, name_bytes bytes )
 *   node = XXH3-128( parent                  16 bytes, canonical
 *                    tokens [U]              i32 little-endian each
 *                    n_keys                  u32 little-endian
 *                    n_keys x ( type u32, offset i32, n_bytes u32, bytes[n_bytes] ) )
 *
 * XXH3-128 with its own seed 0 and default secret (xxHash 0.8). `offset` is key.begin minus the
 * unit's first position: negative in the units after the one where the key begins. Vectors made by
 * an independent program are in test/golden/hash_vectors.json.
 */
#ifndef KVPAGER_HASH_H
#define KVPAGER_HASH_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Hash the root of a namespace.
 *
 * Takes:   unit_tokens  U, 1..KVP_BLOCK_TOKENS_MAX
 *          seed         as in kvp_config.hash_seed; secret if hashes must not be predictable
 *          name         [name_bytes], 0..KVP_NAME_MAX_BYTES bytes, any content; NULL when empty
 * Gives:   out_root     the hash
 * Returns: KVP_OK; KVP_E_ARG when a size is out of range or a needed pointer is NULL
 * After-failure: out_root is not written
 * Thread:  pure         Blocks: never
 * Cost:    O(name_bytes), allocates nothing
 */
KVP_API kvp_status kvp_hash_root(uint32_t unit_tokens, uint64_t seed, const void *name,
                                 size_t name_bytes, kvp_hash *out_root);

/* What kvp_hash_units hashes. Set everything to zero, then the fields. */
typedef struct kvp_hash_input {
    uint32_t unit_tokens;    /* U, 1..KVP_BLOCK_TOKENS_MAX */
    uint32_t n_tokens;       /* any; the tail that fills no unit is ignored */
    const int32_t *tokens;   /* [n_tokens] */
    uint32_t first_position; /* of tokens[0] in its sequence; a multiple of U; usually 0 */
    uint32_t n_keys;
    const kvp_key *keys; /* [n_keys], ascending by begin; NULL when there are none */
} kvp_hash_input;

/* Hash every full unit of a run of tokens, chained from `parent`.
 *
 * The call makes what kvp_prompt.hashes takes, in any thread. It may be continued: the last hash is
 * the parent of the tokens that follow. 131,072 tokens in units of 16 give 8,192 hashes.
 *
 * Takes:   input        see above
 *          parent       the root, or the hash of the unit before tokens[0]
 * Gives:   out_hashes   [n_tokens / U]
 * Returns: KVP_OK; KVP_E_ARG when a pointer is NULL, U or first_position is out of range, or keys
 *          are not ascending, empty (begin >= end), longer than KVP_KEY_MAX_BYTES, or more than 64
 *          in a unit
 * After-failure: out_hashes is not written
 * Thread:  pure         Blocks: never
 * Cost:    O(n_tokens + n_keys x units a key touches), allocates nothing
 */
KVP_API kvp_status kvp_hash_units(const kvp_hash_input *input, const kvp_hash *parent,
                                  kvp_hash *out_hashes);

#ifdef __cplusplus
}
#endif
#endif

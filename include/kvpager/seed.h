/* kvpager/seed.h: a seed that cannot be guessed, from the system's random numbers.
 *
 *   uint64_t seed;
 *   if (kvp_random_seed(&seed) == KVP_OK)
 *       config.hash_seed = seed;
 *
 * The cache itself never draws one, so the same configuration and calls give the same decisions.
 * Pass a seed if hashes must not be predictable. SECURITY.md says what that protects from, and
 * where the seed can be read. Caches that compare hashes (routers, snapshots that are loaded
 * elsewhere) need the same seed: draw it once, and share it.
 */
#ifndef KVPAGER_SEED_H
#define KVPAGER_SEED_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Draw 64 bits from the system's generator: getrandom, or /dev/urandom where that is not there.
 *
 * Gives:   out_seed     any number, 0 too
 * Returns: KVP_OK; KVP_E_ARG when out_seed is NULL; KVP_E_IO: the system gives none
 * After-failure: out_seed is not written; do not continue with a seed that you made up
 * Thread:  any          Blocks: io, early at boot, until the system's generator is ready
 * Cost:    O(1), a system call; allocates nothing
 */
KVP_API kvp_status kvp_random_seed(uint64_t *out_seed);

#ifdef __cplusplus
}
#endif
#endif

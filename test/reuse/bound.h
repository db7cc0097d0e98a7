/* The most tokens that any cache could reuse in a memory, knowing all requests beforehand. */
#ifndef BOUND_H
#define BOUND_H

#include <stdint.h>

/* What requests have in common. */
typedef struct sharing {
    uint32_t n;
    const uint32_t *shared; /* [n, n] i < j: tokens, in full units, that j's prompt begins with and
                               that request i computed; 0 for i >= j */
    const uint32_t *blocks; /* [n] that a request needs while it is served */
    uint32_t unit_tokens;   /* of a block, too */
} sharing;

/* Bound the reused tokens from above, for so many blocks and slots of state, in `rounds` of a
 * search for a lower bound; each gives one. Cost: O(rounds x n^2) */
uint64_t bound_reuse(const sharing *of, uint32_t blocks, uint32_t slots, uint32_t rounds);

/* The optimum itself for states, with blocks for everything, and at most `places` states left
 * behind by a request, by trying everything. For a handful of requests. */
uint64_t bound_exhaustive(const sharing *of, uint32_t slots, uint32_t places);

#endif

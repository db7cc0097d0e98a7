/* rings: extends that give tokens slots of states of their own. */
#ifndef KVPI_SEQ_RINGS_H
#define KVPI_SEQ_RINGS_H

#include "core/cache/frame.h"
#include "core/cache/state.h"

/* Are they, and may the batch ask for them? */
int kvpi_rings_allowed(const kvp_cache *cache, const kvp_batch *batch);

/* Add the slots of rings to those that the batch needs otherwise, and give the first sequence at
 * which slots run out. KVP_E_TOO_LONG is the fault of one with too many tokens. */
void kvpi_rings_count(const kvp_cache *cache, const kvp_batch *batch, struct kvpi_faults *faults,
                      uint64_t *slots, uint32_t *out_first_short);

/* Take them; the tokens have been added. */
void kvpi_rings_take(kvp_cache *cache, const kvp_batch *batch);

#endif

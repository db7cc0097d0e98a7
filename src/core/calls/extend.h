/* extend: room, and tokens, for one and many. */
#ifndef KVPI_CALLS_EXTEND_H
#define KVPI_CALLS_EXTEND_H

#include "core/cache/state.h"

/* Make slots [computed, end) writable and the row long enough; there are enough blocks. */
void kvpi_make_room(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end);

/* All or nothing. parents: NULL, or the batch adds nodes to trees. */
kvp_status kvpi_extend_all(kvp_cache *cache, const kvp_batch *batch, const int32_t *parents);

/* Pointers wrong? */
static inline int kvpi_bad_batch(const kvp_batch *batch)
{
    return batch == NULL || (batch->seqs == NULL && batch->n_seqs > 0) ||
           (batch->keys == NULL && batch->n_keys > 0) ||
           (batch->statuses == NULL && (batch->flags & KVP_BATCH_EACH) && batch->n_seqs > 0);
}

#endif

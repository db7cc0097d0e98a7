/* drafts: token trees behind a sequence, as extend makes them (trees.h). */
#ifndef KVPI_SEQ_DRAFTS_H
#define KVPI_SEQ_DRAFTS_H

#include "core/cache/state.h"

/* Are they -1, or nodes that come before? */
int kvpi_tree_parents_valid(const struct kvpi_seq *seq, const int32_t *parents, uint32_t n);

void kvpi_tree_add(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens,
                   const int32_t *parents, uint32_t n);

#endif

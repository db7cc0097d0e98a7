/* keepers: where blocks of closed sequences stay. ids.h has the whole picture. */
#ifndef KVPI_LLAMA_KEEPERS_H
#define KVPI_LLAMA_KEEPERS_H

#include "ids.h"

/* Is the block's content what its place has? out_state: KVP_BLOCK_..., may be NULL. */
int kvpi_keepers_has_content(const kvpi_ids *ids, int32_t block, uint32_t *out_state);

/* Take the entry idx out of a keeper; without entries the keeper is free. */
void kvpi_keepers_remove(kvpi_ids *ids, uint32_t keeper, uint32_t idx);

/* A block whose cells some id has: the first n_tokens of its slots, at block index idx. */
typedef struct kvpi_kept {
    int32_t block;
    uint32_t idx;
    uint32_t n_tokens;
} kvpi_kept;

/* Cells of `from` go to a keeper: the block's place from now on. No id had the block. 0: there is
 * no id. */
int kvpi_keepers_put(kvpi_ids *ids, uint32_t from, const kvpi_kept *kept);

/* An open id gives up its entry idx, and keeps the cells for the moment: if it is the block's
 * place, another id becomes that. 0: there is none. */
int kvpi_keepers_hand_over(kvpi_ids *ids, uint32_t id, uint32_t idx);

/* Ids of sequences that were closed become free, or keepers. */
kvp_status kvpi_keepers_retire(kvpi_ids *ids);

/* Empty keepers until at most max_keepers are left, or none can be emptied. */
kvp_status kvpi_keepers_limit(kvpi_ids *ids);

/* Drop the coldest cached blocks, until at most n_blocks are cached. */
kvp_status kvpi_keepers_limit_idle(kvpi_ids *ids, uint32_t n_blocks);

#endif

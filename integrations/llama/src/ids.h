/* ids: which sequence id of llama.cpp holds the cells of which block. llama.h describes the rules.
 *
 *   ids      free ......... no cells
 *            open ......... one sequence of the cache; row[i] is the block at its block index i
 *            keeper ....... blocks of closed sequences; row[i] may be null
 *            second ....... the cells of an open id or a keeper once more (second.h)
 *
 *   places   for each block the id in whose row it is, and where: the id to copy it from. Other
 *            open ids may have it, too (they share its cells); other keepers never
 *
 * A block's place counts while the block has the generation that it had when it was written. A
 * block that lost its content keeps its place, and its cells, until the engine writes the block
 * again: then kvpi_ids_claim removes them. That is what bounds the cells in use by the slots of
 * all blocks.
 *
 * Before the scheduler makes a step:
 *
 *   open        forks get ids, and the cells that they share. In the step they may get blocks of
 *               their own (copy-on-write); the plan's copies need not run, the cells stay shared
 *
 * and after it:
 *
 *   open        new sequences get ids, and the cells of what they hit. One that came back in the
 *               step may have a block of its own already (copy-on-write): it gets the cells of the
 *               block that the plan copies. They are there: another sample of the same request
 *               has that block, and holds it until the step ends, because only paused requests give
 *               way to those that come in. So no later copy of the plan replaces it (check.c, L7).
 *               (Other requests share whole blocks only, which are not written again.)
 *   retire      ids of closed sequences become free, or keepers
 *   refresh     rows whose entries were replaced: adoption, copy-on-write
 *   limit       not too many keepers
 *   claim       blocks that are written now: their places before are lost
 *
 * and after a failed decode: kvpi_ids_cut. */
#ifndef KVPI_LLAMA_IDS_H
#define KVPI_LLAMA_IDS_H

#include "moves.h"

#include <kvpager/cache.h>

enum { KVPI_ID_FREE = 0, KVPI_ID_OPEN = 1, KVPI_ID_KEEPER = 2, KVPI_ID_SECOND = 3 };

typedef struct kvpi_id {
    uint32_t state;       /* KVPI_ID_... */
    uint32_t n_tokens;    /* OPEN: cells 0..n_tokens-1 are there */
    uint32_t n_blocks;    /* entries of the row that are not null; OPEN: its first ones */
    uint32_t has_gaps;    /* OPEN: entries below n_blocks are null, for the moment */
    uint64_t released;    /* KEEPER: when its newest block was released */
    uint64_t row_version; /* OPEN: of the row as it was read last */
    kvp_seq seq;          /* OPEN */
} kvpi_id;

typedef struct kvpi_place {
    uint32_t id;       /* or KVPI_NO_ID */
    uint32_t idx;      /* block index */
    uint32_t n_tokens; /* in a keeper: cells from the block's start */
    int32_t source;    /* the device block that plan number `plan` copies to it; 0: none */
    uint64_t plan;
    uint64_t generation;
} kvpi_place;

typedef struct kvpi_ids {
    kvp_cache *cache;
    kvpi_moves moves;
    uint32_t n_ids;
    uint32_t max_keepers; /* ids of keepers, their second ones included */
    uint32_t window;      /* of the model, in tokens; 0: none */
    uint32_t block_tokens;
    uint32_t row_blocks; /* length of a row */
    uint32_t pool_blocks;
    kvpi_id *ids;           /* [n_ids] */
    int32_t *rows;          /* [n_ids x row_blocks] block ids, 0: none */
    kvpi_place *places;     /* [pool_blocks] */
    int32_t *chosen;        /* [row_blocks] scratch */
    const kvp_copy *copies; /* [n_copies] of the newest plan */
    uint32_t n_copies;
    uint64_t plan; /* its number */
    uint64_t clock;
    uint64_t emptied;
    uint64_t dropped_blocks;
    uint64_t idle_blocks; /* that were dropped because too many were idle */
} kvpi_ids;

typedef struct kvpi_ids_sizes {
    uint32_t n_ids;
    uint32_t max_keepers;
    uint32_t window;
    uint32_t block_tokens;
    uint32_t row_blocks;
    uint32_t pool_blocks;
} kvpi_ids_sizes;

/* KVP_OK, or KVP_E_NO_MEMORY: kvpi_ids_end frees what is there. */
kvp_status kvpi_ids_init(kvpi_ids *ids, kvp_cache *cache, struct llama_context *context,
                         const kvpi_ids_sizes *sizes);
void kvpi_ids_end(kvpi_ids *ids);

/* The id of an open sequence, or KVPI_NO_ID. */
uint32_t kvpi_ids_find(const kvpi_ids *ids, kvp_seq seq);

/* What the plan of the step copies from block to block. It has run, and `copies` stay there. */
void kvpi_ids_note_plan(kvpi_ids *ids, const kvp_copy *copies, uint32_t n_copies);

/* An id for a new sequence whose first n_tokens are in cells already. KVP_E_CORRUPT: they are not,
 * or there is no id. */
kvp_status kvpi_ids_open(kvpi_ids *ids, kvp_seq seq, uint32_t n_tokens, uint32_t *out_id);

/* Follow entries of rows that were replaced. */
kvp_status kvpi_ids_refresh(kvpi_ids *ids);

/* Tokens begin..begin+n_tokens-1 of an open id are written now. */
kvp_status kvpi_ids_claim(kvpi_ids *ids, uint32_t id, uint32_t begin, uint32_t n_tokens);

/* A decode failed: the id has cells before `begin` only. */
void kvpi_ids_cut(kvpi_ids *ids, uint32_t id, uint32_t begin);

/* The lowest free id, or KVPI_NO_ID. */
static inline uint32_t kvpi_ids_unused(const kvpi_ids *ids)
{
    for (uint32_t id = 0; id < ids->n_ids; id++)
        if (ids->ids[id].state == KVPI_ID_FREE)
            return id;
    return KVPI_NO_ID;
}

static inline int32_t *kvpi_ids_row(const kvpi_ids *ids, uint32_t id)
{
    return ids->rows + (size_t)id * ids->row_blocks;
}

#endif

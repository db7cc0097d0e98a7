/* pool_state: what a pool is: its blocks, accounts (pool_quotas.h) and leaves (pool_leaves.h). */
#ifndef KVPI_POOL_STATE_H
#define KVPI_POOL_STATE_H

#include <kvpager/types.h>

#include "base/base.h"

#define KVPI_POOL_JUMP 16u

/* `refs` of a block: the count in the low bits (there are at most 2^20 sequences), and above it
 * whether it goes first, the retention class, a scratch bit of one call, whether it is parked, and
 * its layer group. */
#define KVPI_REFS_MASK        0x007FFFFFu
#define KVPI_REFS_FIRST       (1u << 23) /* at count 0: kvpi_pool_put_first; above: was so */
#define KVPI_REFS_CLASS_SHIFT 24
#define KVPI_REFS_CLASS_MASK  (7u << KVPI_REFS_CLASS_SHIFT)
#define KVPI_REFS_MARKED      (1u << 27) /* clear between calls */
#define KVPI_REFS_PARKED      (1u << 28) /* at count 0: parked; above: was, when it was held */
#define KVPI_REFS_GROUP_SHIFT 29         /* the layer group that took it last */
#define KVPI_REFS_GROUP_MASK  (7u << KVPI_REFS_GROUP_SHIFT)

struct kvpi_block {
    uint32_t refs;
    uint32_t prev; /* in the queue */
    uint32_t next;
    uint32_t content;
    uint32_t jump;
    uint32_t generation; /* the low half of what never wraps: kvpi_pool_generation */
};

/* The last KVPI_POOL_JUMP blocks queued at one end, to set `jump`. */
struct kvpi_trail {
    uint32_t recent[KVPI_POOL_JUMP];
    uint32_t at; /* near: only its place in `recent`, whose size divides 2^32, is used */
};

struct kvpi_owned {
    uint64_t owner; /* 0: none */
    uint32_t prev;  /* in the ring; kept when it leaves, for kvpi_quotas_relink */
    uint32_t next;
};

struct kvpi_account {
    uint64_t owner; /* 0: closed */
    uint32_t quota; /* KVP_NO_QUOTA: none */
    uint32_t n_blocks;
    uint32_t n_cached;
    uint32_t classes;   /* bit c: ring c is not empty */
    uint32_t cursor;    /* scratch of the check, as are: */
    uint32_t n_counted; /* blocks that it has seen */
};

struct kvpi_quotas {
    uint32_t n_accounts; /* 0: nothing is counted */
    uint32_t n_blocks;   /* of the pool */
    uint32_t place_mask; /* of an owner */
    uint32_t n_over;
    uint32_t turn; /* where the search for an account that is over begins */
    size_t owned_at;
    size_t accounts_at;
    size_t over_at;
};

struct kvpi_leaf {
    uint32_t block;
    uint32_t continued;
};

struct kvpi_leaves {
    uint32_t on;           /* 0: none is kept, and there are no arrays */
    uint32_t n_blocks;     /* of the pool */
    uint32_t n_contents;   /* numbers 1 .. n_contents */
    uint32_t block_tokens; /* of the policy, as are: */
    uint32_t n_others;     /* blocks of the other tier */
    uint32_t first;        /* the number of block 0; 0: the policy lies here, else with the other */
    uint32_t lane;         /* of class 0 */
    size_t policy_at;      /* struct kvpi_policy, and its arrays */
    size_t above_at;       /* u32 [n_blocks] */
    size_t leaves_at;      /* struct kvpi_leaf [n_contents + 1] */
};

struct kvpi_pool {
    uint32_t n_blocks;
    uint32_t classes;   /* bit c: queue of class c is not empty */
    uint32_t n_lists;   /* parked lists */
    uint32_t watched;   /* 1: quotas or leaves have to know what is cached */
    uint32_t parking;   /* 0: releases are queued; else 1 + the list that they go to */
    uint32_t last_free; /* the one before the cached blocks of class 0; set while n_free > 0 */
    uint64_t n_free;
    uint64_t n_cached;
    uint64_t n_held;
    uint64_t n_parked;
    struct kvpi_trail tail_trail[KVP_RETENTION_CLASSES];
    struct kvpi_trail head_trail;
    size_t blocks_at;   /* struct kvpi_block [n_blocks + classes + n_lists] */
    size_t touched_at;  /* u64 [n_blocks], with parked lists: the newest step that was out when the
                          block last lost a reference and stayed held: it may still write there */
    size_t arriving_at; /* u64 [n_blocks], with parked lists: the step whose copy fills the block */
    size_t wraps_at;    /* u32 [n_blocks] the high half of generations */
    uint64_t newest;    /* step that is out, never wraps; meaningful while parking */
    struct kvpi_quotas quotas;
    struct kvpi_leaves leaves;
};

static inline struct kvpi_block *kvpi_blocks(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->blocks_at);
}

static inline struct kvpi_block *kvpi_block(const struct kvpi_pool *pool, uint32_t block)
{
    return kvpi_blocks(pool) + block;
}

static inline uint32_t kvpi_block_refs(const struct kvpi_block *block)
{
    return block->refs & KVPI_REFS_MASK;
}

static inline uint32_t kvpi_block_class(const struct kvpi_block *block)
{
    return (block->refs & KVPI_REFS_CLASS_MASK) >> KVPI_REFS_CLASS_SHIFT;
}

/* Not held, content known, in a queue. */
static inline int kvpi_block_is_cached(const struct kvpi_block *block)
{
    return (block->refs & (KVPI_REFS_MASK | KVPI_REFS_PARKED)) == 0 && block->content != 0;
}

#endif

/* pool: the blocks of one tier. Who holds how many references, what is free, what goes next.
 *
 * A block is in exactly one state (B1), told from its reference count, its content and its place:
 *
 *   state    refs   content   in a queue
 *   null       0       0          no        block 0 only
 *   free       0       0          yes       class 0, before every cached block of it
 *   cached     0      node        yes       its retention class
 *   held     >= 1    any          no
 *   parked     0      any         no        in the list of a step that is out, as released
 *
 *   n_blocks == 1 + n_free + n_cached + n_held + n_parked                                     (B2)
 *
 * `content` is a number that the pool does not interpret: 0 for none, else the deepest prefix node
 * attached to the block.
 *
 * Queues (B3): per retention class a circular list, headed by the sentinel block n_blocks + class.
 * Victims leave at the head. While a block is free, `last_free` is the one before the first cached
 * block. Behind these sentinels stand those of the parked lists, one for each
 * step that may be out. They hold blocks in the order of their release, which are queued when the
 * step has taken effect. A parked block is known by KVPI_REFS_PARKED at reference count 0. `jump`
 * is only a hint. It names a block that was about KVPI_POOL_JUMP places behind when the two were
 * queued. With it, a run of takes prefetches what it needs; walking `next` would wait for memory at
 * each step.
 *
 * All that is known of a block is in 24 bytes, because a hit, a release and a take each touch most
 * of it. Blocks are accessed at random, so two arrays would cost two cache misses.
 *
 * Numbers of steps never wrap. In `touched` and `arriving` a number has a meaning while its step is
 * not in effect. An older one, also 0, means nothing.
 */
#ifndef KVPI_POOL_H
#define KVPI_POOL_H

#include <kvpager/types.h>

#include "base/base.h"
#include "core/stages/pool_leaves.h"
#include "core/stages/pool_quotas.h"
#include "core/stages/pool_state.h"

/* Ask for what is known of a block, which lies in one cache line or in two. A hint. */
static inline void kvpi_pool_prefetch(const struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_block *b = kvpi_block(pool, block);
    kvpi_prefetch(b);
    kvpi_prefetch(&b->generation);
}

static inline uint32_t kvpi_pool_refs(const struct kvpi_pool *pool, uint32_t block)
{
    return kvpi_block_refs(kvpi_block(pool, block));
}

static inline uint32_t kvpi_block_group(const struct kvpi_block *block)
{
    return block->refs >> KVPI_REFS_GROUP_SHIFT;
}

static inline uint64_t kvpi_pool_available(const struct kvpi_pool *pool)
{
    return pool->n_free + pool->n_cached;
}

static inline uint64_t *kvpi_pool_touched(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->touched_at);
}

static inline uint64_t *kvpi_pool_arriving(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->arriving_at);
}

/* Are blocks counted for namespaces? */
static inline int kvpi_pool_counts(const struct kvpi_pool *pool)
{
    return kvpi_unlikely(pool->quotas.n_accounts != 0);
}

/* Must quotas or leaves (pool_leaves.h) know what becomes cached, and what is no more? */
static inline int kvpi_pool_is_watched(const struct kvpi_pool *pool)
{
    return kvpi_unlikely(pool->watched != 0);
}

/* A block became cached (at the tail of its queue), or is no more; or is again, where it stood. */
void kvpi_pool_tell_cached(struct kvpi_pool *pool, uint32_t block);
void kvpi_pool_tell_uncached(struct kvpi_pool *pool, uint32_t block);
void kvpi_pool_tell_back(struct kvpi_pool *pool, uint32_t block);

/* Raise a block's generation. Its high half lies apart: it changes once in 2^32 times. */
static inline void kvpi_pool_raise(struct kvpi_pool *pool, uint32_t block)
{
    if (kvpi_unlikely(++kvpi_block(pool, block)->generation == 0)) {
        uint32_t *wraps = kvpi_at(pool, pool->wraps_at);
        wraps[block]++;
    }
}

static inline uint64_t kvpi_pool_generation(const struct kvpi_pool *pool, uint32_t block)
{
    const uint32_t *wraps = kvpi_at(pool, pool->wraps_at);
    return (uint64_t)wraps[block] << 32 | kvpi_block(pool, block)->generation;
}

/* Plan the arrays of n_blocks blocks, n_lists parked lists, the quotas' accounts and the leaves,
 * which are set; `self` is the pool's own offset in the arena. A pool of 0 blocks has none. */
void kvpi_pool_layout(struct kvpi_pool *pool, struct kvpi_layout *layout, size_t self);

/* Make every block free, 1 .. N-1 in order. `fresh`: the arrays' content does not matter. */
void kvpi_pool_reset(struct kvpi_pool *pool, int fresh);

/* One more reference; a waiting block leaves its queue or its parked list. Cost: O(1). */
static inline void kvpi_pool_hold(struct kvpi_pool *pool, uint32_t block);

/* Hold row entries from `begin` up to `end`, or to the first that is on the other tier (negative).
 * Counts those that were cached, and those that had no holder; gives where it stopped. As
 * kvpi_pool_hold of each; for a pool that is not watched. */
uint32_t kvpi_pool_hold_run(struct kvpi_pool *pool, const int32_t *row, uint32_t begin,
                            uint32_t end, uint32_t *n_cached, uint32_t *n_idle);

/* Undo kvpi_pool_hold: the block stands where it stood. Only in the reverse order of the holds, and
 * with nothing else between: its neighbours of then are its neighbours again. */
static inline void kvpi_pool_unhold(struct kvpi_pool *pool, uint32_t block);

/* The block that is first in the queues, 0 when none is available. */
uint32_t kvpi_pool_victim(const struct kvpi_pool *pool);

/* The block that a take for `owner` takes (pool_quotas.h, pool_leaves.h), which follows. There is
 * one. Its content must be dropped before kvpi_pool_take (kvpi_pool_set_content 0). For a pool that
 * is watched; without, it is the victim. */
uint32_t kvpi_pool_choose(struct kvpi_pool *pool, uint64_t owner);

/* Has a block of `pool`, which will be evicted, content that is not worth the place on the host
 * that the victim there would leave for it? Not if a cached block there continues it. For pools
 * with leaves. */
int kvpi_pool_spares(const struct kvpi_pool *pool, uint32_t block, struct kvpi_pool *host);

/* Has `owner` as many blocks as its quota, or more, and would a take for it evict content of one
 * that is not over its own? */
int kvpi_pool_displaces(const struct kvpi_pool *pool, uint64_t owner);

/* The cached block that the first take without a namespace would evict after all free blocks; 0:
 * none is cached. *out_turn is the turn of quotas after it. */
uint32_t kvpi_pool_coldest(const struct kvpi_pool *pool, uint32_t *out_turn);

/* The coldest block lost its content (kvpi_pool_set_content 0): it stands behind all free ones. */
void kvpi_pool_last(struct kvpi_pool *pool, uint32_t block, uint32_t turn);

/* Take a queued block that has no content: reference count 1, class `retention`. It has no owner
 * yet. */
void kvpi_pool_take(struct kvpi_pool *pool, uint32_t block, uint32_t retention, uint32_t group);

/* One reference less. At 0 the block is queued: with content at the tail of its class; without,
 * at the head of class 0; or parked. Without content, its generation rises. Gives the number
 * left. */
uint32_t kvpi_pool_release(struct kvpi_pool *pool, uint32_t block);

/* Release row entries from `end` down to `begin`, last first, as long as each stays shared or has
 * content; count those that become cached. Gives where it stopped: `begin`, or one past the entry
 * that the caller must release, because it becomes free, or parked. */
uint32_t kvpi_pool_release_run(struct kvpi_pool *pool, const int32_t *row, uint32_t end,
                               uint32_t begin, uint32_t *n_cached);

/* Say what is in a held block; or take the content of one without a holder, which stays where it
 * is, counted as free if it is queued: it is taken at once, or put first (kvpi_pool_first). */
void kvpi_pool_set_content(struct kvpi_pool *pool, uint32_t block, uint32_t content);

/* Queue the blocks of a parked list, in order. Cost: O(its blocks). */
void kvpi_pool_unpark(struct kvpi_pool *pool, uint32_t list);

/* A cached block lost its content: to the head of class 0. A parked one stays where it is. */
void kvpi_pool_uncache(struct kvpi_pool *pool, uint32_t block);

/* Change the class of a held block: where it is queued when it is released with content. */
void kvpi_pool_retain(struct kvpi_pool *pool, uint32_t block, uint32_t retention);

/* A queued block with content goes before all others of its class that have some; or right behind
 * `after`, which went there before, if that is not 0. */
void kvpi_pool_expose(struct kvpi_pool *pool, uint32_t block, uint32_t after);

/* A block that was just released goes before all others of its class, if it has content and no
 * holder: now, or when it is not parked any more. It is known by KVPI_REFS_FIRST until it is
 * released again, or taken. */
void kvpi_pool_put_first(struct kvpi_pool *pool, uint32_t block);

/* A free block becomes cached, before `before` in the queue of its class (0: at the tail); its
 * content is set by the caller. For what is restored, the block that goes first as the last. */
void kvpi_pool_restore(struct kvpi_pool *pool, uint32_t block, uint32_t before, uint32_t class_,
                       uint32_t group);

/* A restored block counts for this owner, and is the first of its class to go. */
void kvpi_pool_restore_owner(struct kvpi_pool *pool, uint32_t block, uint64_t owner);

/* A free block goes to the head of class 0. */
void kvpi_pool_first(struct kvpi_pool *pool, uint32_t block);

/* Audit B1 to B3, Q1 to Q4, F1 to F4: 1 when they hold; else 0, the block (or place), and text that
 * begins with the invariant. */
int kvpi_pool_check(const struct kvpi_pool *pool, uint64_t *out_block, const char **out_detail);

/* What stood between two blocks of a queue, or of a parked list, stands there no more. */
static inline void kvpi_pool_join(struct kvpi_pool *pool, struct kvpi_block *blocks, uint32_t prev,
                                  uint32_t next)
{
    blocks[prev].next = next;
    blocks[next].prev = prev;
    if (kvpi_unlikely(prev == next) && prev - pool->n_blocks < KVP_RETENTION_CLASSES) {
        pool->classes &= ~(1u << (prev - pool->n_blocks)); /* the sentinel alone: empty now */
    }
}

static inline void kvpi_pool_unlink(struct kvpi_pool *pool, struct kvpi_block *blocks,
                                    uint32_t block)
{
    kvpi_pool_join(pool, blocks, blocks[block].prev, blocks[block].next);
}

static inline void kvpi_pool_hold(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t refs = blocks[block].refs++;
    if ((refs & KVPI_REFS_MASK) == 0) {
        KVPI_ASSERT(blocks[block].content != 0); /* only cached blocks are hit */
        kvpi_pool_unlink(pool, blocks, block);
        if (kvpi_pool_is_watched(pool) && !(refs & KVPI_REFS_PARKED)) {
            kvpi_pool_tell_uncached(pool, block);
        }
        kvpi_uncount(refs & KVPI_REFS_PARKED ? &pool->n_parked : &pool->n_cached, 1);
        kvpi_count(&pool->n_held, 1);
    }
}

static inline void kvpi_pool_unhold(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    struct kvpi_block *b = &blocks[block];
    if ((--b->refs & KVPI_REFS_MASK) == 0) {
        blocks[b->prev].next = block;
        blocks[b->next].prev = block;
        kvpi_uncount(&pool->n_held, 1);
        if (b->refs & KVPI_REFS_PARKED) {
            kvpi_count(&pool->n_parked, 1);
        } else {
            pool->classes |= 1u << kvpi_block_class(b);
            kvpi_count(&pool->n_cached, 1);
            if (kvpi_pool_is_watched(pool)) {
                kvpi_pool_tell_back(pool, block);
            }
        }
    }
}

#endif

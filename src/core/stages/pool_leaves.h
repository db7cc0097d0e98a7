/* pool_leaves: the cached blocks that the learned policy may evict (core/policy).
 *
 * These are the leaves: cached blocks that no cached block continues. A block continues the one
 * whose content ends where its own begins. What is held does not count: its holder has all before
 * it. So each content knows how many cached blocks continue it, and which block it is in:
 *
 *   above[block]          the content that the block's begins behind; 0: none        [n_blocks]
 *   leaves[content]       block     whose content it is; 0: none                     [n_contents]
 *                         continued cached blocks that are above it
 *
 *   leaves[c].block == b           <=> c != 0 is the content of b                             (F1)
 *   leaves[c].continued            ==  cached blocks b with above[b] == c                     (F2)
 *   a block is queued with the policy, in the lane of its class
 *                                  <=> it is cached, and its content is not continued         (F3)
 *   marked CACHED in the policy    <=> it is cached                                           (F4)
 *
 * Both tiers have leaves, and one policy, which numbers the host's blocks behind the device's.
 *
 * A content is a number that is not looked into, as in pool.h. The pool's queues stay as they are.
 * If a class has cached blocks, but no leaf, then the first of its queue goes.
 */
#ifndef KVPI_POOL_LEAVES_H
#define KVPI_POOL_LEAVES_H

#include "core/policy/policy.h"
#include "core/stages/pool_state.h"

/* Marks in the policy. A block that follows one of the other tier keeps the stamp that this one
 * had, until it loses its content. */
enum { KVPI_LEAF_CACHED = 1, KVPI_LEAF_FOLLOWS = 2 };

static inline struct kvpi_policy *kvpi_leaves_policy(const struct kvpi_leaves *leaves)
{
    return kvpi_at(leaves, leaves->policy_at);
}

static inline struct kvpi_order_block *kvpi_leaves_known(const struct kvpi_leaves *leaves,
                                                         uint32_t block)
{
    return kvpi_order_block(kvpi_leaves_policy(leaves)->order, leaves->first + block);
}

static inline uint32_t *kvpi_leaves_above(const struct kvpi_leaves *leaves, uint32_t block)
{
    return (uint32_t *)kvpi_at(leaves, leaves->above_at) + block;
}

static inline struct kvpi_leaf *kvpi_leaf(const struct kvpi_leaves *leaves, uint32_t content)
{
    return (struct kvpi_leaf *)kvpi_at(leaves, leaves->leaves_at) + content;
}

/* Plan the arrays of the policy and of these; on, n_blocks, n_contents and block_tokens are set.
 * `self`: its own offset. */
void kvpi_leaves_layout(struct kvpi_leaves *leaves, struct kvpi_layout *layout, size_t self);

/* Nothing is cached or remembered. */
void kvpi_leaves_reset(struct kvpi_leaves *leaves);

/* The follower, a block of `leaves` that is not queued, will have what a block of `others` has. */
void kvpi_leaves_follow(struct kvpi_leaves *leaves, uint32_t follower,
                        const struct kvpi_leaves *others, uint32_t followed);

/* The last holder left the block, which has no content. */
void kvpi_leaves_forget(struct kvpi_leaves *leaves, uint32_t block);

/* The last holder left the block, which has content. */
void kvpi_leaves_rest(struct kvpi_leaves *leaves, uint32_t block);

/* The block is cached now, or is no more. Cost: O(log blocks) expected. */
void kvpi_leaves_enter(struct kvpi_pool *pool, uint32_t block);
void kvpi_leaves_leave(struct kvpi_pool *pool, uint32_t block);

/* Row entries from `end` down to `begin`, last first, were left by their last holder, and are
 * cached: kvpi_leaves_rest and kvpi_leaves_enter for each. */
void kvpi_leaves_enter_run(struct kvpi_pool *pool, const int32_t *row, uint32_t end,
                           uint32_t begin);

/* The block will have other content; 0: none, and if it was cached, it is no more. */
void kvpi_leaves_content(struct kvpi_pool *pool, uint32_t block, uint32_t content);

/* Ask for what is known of a block, and of its content. Hints. */
static inline void kvpi_leaves_prefetch_block(const struct kvpi_leaves *leaves, uint32_t block)
{
    kvpi_prefetch(kvpi_leaves_known(leaves, block));
    kvpi_prefetch(kvpi_leaves_above(leaves, block));
}

static inline void kvpi_leaves_prefetch_content(const struct kvpi_leaves *leaves, uint32_t content)
{
    kvpi_prefetch(kvpi_leaf(leaves, content));
}

/* Every block that is in a queue with content, and not cached here, is: restored ones.
 * `known`: with what the policy knows of them; else as if left now, in the order of the queues. */
void kvpi_leaves_restored(struct kvpi_pool *pool, int known);

/* The cached block that goes, of the class of `first`, which is the first of its queue. */
uint32_t kvpi_leaves_choose(const struct kvpi_pool *pool, uint32_t first);

/* Is a block of the device worth less than one of the host? */
static inline int kvpi_leaves_is_worth_less(const struct kvpi_leaves *leaves, uint32_t block,
                                            const struct kvpi_leaves *host, uint32_t other)
{
    return kvpi_policy_is_worth_less(kvpi_leaves_policy(leaves), leaves->first + block,
                                     host->first + other);
}

/* Are the policy's sizes and offsets those that were planned? For foreign bytes. */
int kvpi_leaves_are_planned(const struct kvpi_leaves *leaves);

/* Audit F1 to F4, and the policy, of a pool whose queues are right: NULL when they hold; else the
 * block or content, and text that begins with the invariant. */
const char *kvpi_leaves_check(const struct kvpi_pool *pool, uint64_t *out_object);

#endif

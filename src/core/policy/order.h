/* order: the blocks that may go, of each class in the order of their stamps.
 *
 * Blocks do not come in that order: a prefix may go when the last that continues it is gone, and it
 * was used at any time since. So each class is a tree: a block stands below one of higher priority
 * (O1), with older ones on one side and younger ones on the other (O2). A priority is a hash of the
 * block's number. So trees are as deep as if they had been filled in random order, some 2 log2 of
 * their size, and the same calls make the same trees. (Seidel and Aragon, Randomized search trees,
 * 1996.)
 *
 * Both ends of each class are kept at hand (O3), and bit c is set if class c is not empty (O4). Of
 * two blocks with one stamp, the one with the lower number is the older; with one number, too, the
 * one that was queued first.
 *
 * A block that is expected to leave next may stay apart: trees and ends do not have it until they
 * are settled (O5).
 *
 * Several orders may share their blocks: each block is in one of them at most.
 */
#ifndef KVPI_POLICY_ORDER_H
#define KVPI_POLICY_ORDER_H

#include "base/base.h"
#include "core/policy/hits.h"

#define KVPI_ORDER_NONE UINT32_MAX

/* All that the policy knows of a block. */
struct kvpi_order_block {
    uint64_t stamp;  /* time of its last use */
    uint64_t number; /* of its last rest, of all: among blocks with one stamp; never wraps */
    uint32_t up;     /* in its class's tree, as are: */
    uint32_t older;
    uint32_t younger;
    uint8_t class_;
    uint8_t count;  /* uses; 0: content that was never used */
    uint8_t queued; /* 1 + the lane of the order that it is in; 0: in none */
    uint8_t mark;   /* the owner's */
};

struct kvpi_order {
    uint32_t n_blocks;
    uint32_t n_queued;
    uint32_t lane;  /* which of the orders of its blocks this is */
    uint32_t apart; /* a block that is queued and in no tree yet; NONE: there is none */
    uint64_t filled;
    uint32_t roots[KVPI_CLASSES]; /* NONE: the class is empty, as for: */
    uint32_t oldest[KVPI_CLASSES];
    uint32_t youngest[KVPI_CLASSES];
    size_t blocks_at; /* struct kvpi_order_block [n_blocks] */
};

static inline struct kvpi_order_block *kvpi_order_block(const struct kvpi_order *order,
                                                        uint32_t block)
{
    return (struct kvpi_order_block *)kvpi_at(order, order->blocks_at) + block;
}

/* Is block a the older one? */
static inline int kvpi_order_is_older(const struct kvpi_order *order, uint32_t a, uint32_t b)
{
    const struct kvpi_order_block *x = kvpi_order_block(order, a);
    const struct kvpi_order_block *y = kvpi_order_block(order, b);
    return x->stamp < y->stamp || (x->stamp == y->stamp && x->number < y->number);
}

/* Plan the array; n_blocks and lane are set. `self`: the order's own offset. */
void kvpi_order_layout(struct kvpi_order *order, struct kvpi_layout *layout, size_t self);

/* Forget everything; of lane 0: and all blocks. */
void kvpi_order_reset(struct kvpi_order *order);

/* A block may go, or may not any more. Its stamp and class stay while it may.
 * Cost: O(log n) expected. */
void kvpi_order_insert(struct kvpi_order *order, uint32_t block);
void kvpi_order_remove(struct kvpi_order *order, uint32_t block);

/* The block that is apart, if there is one, gets its place. */
static inline void kvpi_order_settle(struct kvpi_order *order)
{
    const uint32_t block = order->apart;
    if (kvpi_unlikely(block != KVPI_ORDER_NONE)) {
        kvpi_order_remove(order, block);
        kvpi_order_insert(order, block);
    }
}

/* A block may go, and is expected to be the next that does. Cost: O(1), if it is. */
static inline void kvpi_order_put_apart(struct kvpi_order *order, uint32_t block)
{
    kvpi_order_settle(order);
    KVPI_ASSERT(!kvpi_order_block(order, block)->queued);
    kvpi_order_block(order, block)->queued = (uint8_t)(1 + order->lane);
    order->n_queued++;
    order->apart = block;
}

/* Audit O1 to O5: NULL, or what is wrong. Cost: O(blocks). */
const char *kvpi_order_check(const struct kvpi_order *order);

#endif

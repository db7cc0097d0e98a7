/* shadow: a memory in which every slot knows what it holds.
 *
 * Two tiers of blocks, as arrays of slots. A slot has the tag of what its KV is of (truth.h), or
 * says that it holds nothing, or what was dropped, or what failed work left behind:
 *
 *            block 0      block 1             block 2
 *   device   ----------   t0 t1 t2 t3         t4 t5 poison poison
 *   host     ----------   t0 t1 t2 t3
 *
 * There are two such memories. The first runs the copies of a plan in order, one after the other;
 * the second runs them phase after phase, in any order within a phase. Everything else is done to
 * both, and after every plan they must be equal.
 */
#ifndef KVP_TEST_SHADOW_SHADOW_H
#define KVP_TEST_SHADOW_SHADOW_H

#include <kvpager/all.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>

#include "random.h"

enum { SHADOW_IN_ORDER = 0, SHADOW_BY_PHASE = 1, SHADOW_MEMORIES = 2, SHADOW_TIERS = 2 };

/* Tags that are not right for anything; those that are have SHADOW_RIGHT set. */
#define SHADOW_NOTHING 0u
#define SHADOW_POISON  1u /* content that was dropped; `by` is the call that dropped it */
#define SHADOW_GARBAGE 2u /* `by` is the step that failed */
#define SHADOW_RIGHT   0x8000000000000000u

typedef struct shadow_slot {
    uint64_t tag;
    uint64_t by;       /* a right tag: the serial of the sequence that wrote it */
    uint32_t position; /* the token's place in that sequence */
    uint32_t group;    /* and the layer group that it was written for */
} shadow_slot;

typedef struct shadow {
    uint32_t block_tokens[KVP_GROUPS_MAX]; /* S of each layer group */
    uint32_t block_slots;                  /* the largest of them */
    uint32_t n_groups;
    uint32_t n_blocks[SHADOW_TIERS];
    shadow_slot *slots[SHADOW_MEMORIES][SHADOW_TIERS];
    verdict *verdict;
} shadow;

/* Make both memories; host_blocks may be 0. */
shadow *shadow_create(const kvp_config *config, verdict *v);
void shadow_destroy(shadow *s);

/* The slot of a block; NULL, and a bad verdict, when there is no such block. */
shadow_slot *shadow_at(const shadow *s, uint32_t memory, uint32_t tier, int32_t block,
                       uint32_t offset);

/* Run one copy in one memory. */
void shadow_copy(shadow *s, uint32_t memory, const kvp_copy *copy);

/* Put one thing into slots [from, to) of a block, in one memory. */
void shadow_fill(shadow *s, uint32_t memory, const kvp_copy *where, kvp_range slots,
                 shadow_slot what);

/* Write one token's KV, device tier, in both memories. */
void shadow_write(shadow *s, uint32_t group, int64_t slot, shadow_slot what);

/* Move one token's KV, device tier, in one memory. */
void shadow_move(shadow *s, uint32_t memory, uint32_t group, const kvp_slot_move *move);

/* Make the memory that runs in order what the other one is: after half a plan. */
void shadow_level(shadow *s);

/* Compare both; false and a bad verdict when they differ. */
bool shadow_compare(shadow *s, uint64_t step);

/* Say in words what a slot holds. Gives text [n]. */
void shadow_describe(const shadow_slot *slot, char *text, size_t n);

#endif

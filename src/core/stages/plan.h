/* plan: the block copies that wait to be run, and those of steps that are out.
 *
 * Copies stand in the order in which they must take effect. The first n_out belong to steps that
 * have begun and not taken effect; the n behind them wait. Phases are computed when the plan is
 * taken. A copy goes into the current phase unless its source is a destination there, or its
 * destination is a source or a destination (X2). Then it begins the next phase.
 */
#ifndef KVPI_PLAN_H
#define KVPI_PLAN_H

#include <kvpager/cache.h>

#include "base/base.h"

/* The tiers of a copy of recurrent state: its slots, on the device or with KVP_HOST on the host. */
#define KVPI_SLOTS 2u
#define KVPI_POOLS 4u /* blocks and slots, of both tiers */

struct kvpi_copy {
    uint8_t src_tier; /* KVP_DEVICE, KVP_HOST, and KVPI_SLOTS */
    uint8_t dst_tier;
    uint8_t keeps;   /* 1: the copy itself holds its destination, until its step takes effect */
    uint8_t chained; /* 1: its source may be what an earlier copy brings */
    uint32_t group;
    uint32_t src;
    uint32_t dst;
    uint32_t n_tokens;
};

struct kvpi_plan {
    uint32_t capacity;
    uint64_t before[5]; /* marks that stand before those of a tier; the last: all of them */
    uint32_t promised;  /* copies that the running call will still add */
    uint64_t n;
    uint64_t n_out;
    size_t copies_at; /* struct kvpi_copy [capacity], those that are out first */
    size_t marks_at;  /* u8 [before[4]], for each tier's blocks or slots: destination of a waiting
                         copy; source or destination in the phase that is being made */
};

static inline struct kvpi_copy *kvpi_plan_copies(const struct kvpi_plan *plan)
{
    return kvpi_at(plan, plan->copies_at);
}

/* How many copies more it can take. */
static inline uint64_t kvpi_plan_room(const struct kvpi_plan *plan)
{
    return plan->capacity - plan->n - plan->n_out;
}

void kvpi_plan_layout(struct kvpi_plan *plan, struct kvpi_layout *layout, size_t self);

void kvpi_plan_reset(struct kvpi_plan *plan);

/* Does a copy into the block wait? */
int kvpi_plan_waits(const struct kvpi_plan *plan, uint32_t tier, uint32_t block);

/* Append a copy; the caller has made sure that there is room. */
void kvpi_plan_add(struct kvpi_plan *plan, const struct kvpi_copy *copy);

/* The waiting copy into the block copies at least n_tokens. */
void kvpi_plan_raise(struct kvpi_plan *plan, uint32_t tier, uint32_t block, uint32_t n_tokens);

/* The block became free, or lost its content: remove the waiting copies into it that no later copy
 * reads. */
void kvpi_plan_drop(struct kvpi_plan *plan, uint32_t tier, uint32_t block);

/* Give the waiting copies with their phases to `out` [n]; none waits any more. With `keep` they are
 * out from now on, else forgotten. */
void kvpi_plan_take(struct kvpi_plan *plan, kvp_copy *out, int keep);

/* Forget the first n copies that are out. */
void kvpi_plan_forget(struct kvpi_plan *plan, uint64_t n);

#endif

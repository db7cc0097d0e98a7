/* plan: the block copies that wait to be run.
 *
 * Copies stand in the order in which they must take effect. Phases are worked out when the plan is
 * taken: a copy goes into the running phase unless its source is a destination there, or its
 * destination a source or a destination (X2); then it begins the next one.
 */
#ifndef KVPI_PLAN_H
#define KVPI_PLAN_H

#include <kvpager/cache.h>

#include "base.h"

struct kvpi_plan {
    uint32_t capacity;
    uint64_t n;
    size_t copies_at; /* kvp_copy [capacity] */
    size_t marks_at;  /* u8 [n_blocks]: destination of a waiting copy; source or destination in the
                         phase that is being made */
};

void kvpi_plan_layout(struct kvpi_plan *plan, struct kvpi_layout *layout, size_t self,
                      uint32_t n_blocks);

void kvpi_plan_reset(struct kvpi_plan *plan, uint32_t n_blocks);

/* Append a copy; the caller has made sure that there is room. */
void kvpi_plan_add(struct kvpi_plan *plan, uint32_t src, uint32_t dst, uint32_t n_tokens);

/* The block became free: remove the copies into it that no later copy reads. */
void kvpi_plan_drop(struct kvpi_plan *plan, uint32_t block);

/* Give the copies with their phases to `out` [n]; the plan is empty. */
void kvpi_plan_take(struct kvpi_plan *plan, kvp_copy *out);

#endif

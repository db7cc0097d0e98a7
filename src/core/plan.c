/* plan: see plan.h. Marks are a byte per block, clear for every block that no waiting copy names as
 * its destination, so that a release costs one look. */
#include "plan.h"

#include <string.h>

enum { WAITING_DST = 1u, PHASE_SRC = 2u, PHASE_DST = 4u };

static kvp_copy *copies_of(const struct kvpi_plan *plan)
{
    return kvpi_at(plan, plan->copies_at);
}

static uint8_t *marks_of(const struct kvpi_plan *plan)
{
    return kvpi_at(plan, plan->marks_at);
}

void kvpi_plan_layout(struct kvpi_plan *plan, struct kvpi_layout *layout, size_t self,
                      uint32_t n_blocks)
{
    plan->copies_at = kvpi_layout_take(layout, plan->capacity, sizeof(kvp_copy)) - self;
    plan->marks_at = kvpi_layout_take(layout, n_blocks, sizeof(uint8_t)) - self;
}

void kvpi_plan_reset(struct kvpi_plan *plan, uint32_t n_blocks)
{
    kvpi_set(&plan->n, 0);
    memset(marks_of(plan), 0, n_blocks);
}

void kvpi_plan_add(struct kvpi_plan *plan, uint32_t src, uint32_t dst, uint32_t n_tokens)
{
    KVPI_ASSERT(plan->n < plan->capacity && src != dst && n_tokens > 0);
    kvp_copy *copy = &copies_of(plan)[plan->n];
    memset(copy, 0, sizeof(*copy));
    copy->src_block = (int32_t)src;
    copy->dst_block = (int32_t)dst;
    copy->n_tokens = n_tokens;
    marks_of(plan)[dst] |= WAITING_DST;
    kvpi_count(&plan->n, 1);
}

void kvpi_plan_drop(struct kvpi_plan *plan, uint32_t block)
{
    uint8_t *mark = &marks_of(plan)[block];
    kvp_copy *copies = copies_of(plan);
    if (!(*mark & WAITING_DST)) {
        return;
    }
    uint64_t n_read = plan->n; /* copies up to the last one that reads the block stay */
    while (n_read > 0 && copies[n_read - 1].src_block != (int32_t)block) {
        n_read--;
    }
    uint64_t kept = n_read;
    for (uint64_t i = n_read; i < plan->n; i++) {
        if (copies[i].dst_block != (int32_t)block) {
            copies[kept++] = copies[i];
        }
    }
    *mark = 0;
    for (uint64_t i = 0; i < n_read; i++) {
        *mark |= copies[i].dst_block == (int32_t)block ? WAITING_DST : 0;
    }
    kvpi_uncount(&plan->n, plan->n - kept);
}

void kvpi_plan_take(struct kvpi_plan *plan, kvp_copy *out)
{
    kvp_copy *copies = copies_of(plan);
    uint8_t *marks = marks_of(plan);
    uint32_t phase = 0;
    uint64_t phase_begin = 0;
    for (uint64_t i = 0; i < plan->n; i++) {
        const int32_t src = copies[i].src_block;
        const int32_t dst = copies[i].dst_block;
        if ((marks[src] & PHASE_DST) || (marks[dst] & (PHASE_SRC | PHASE_DST))) {
            for (uint64_t k = phase_begin; k < i; k++) {
                marks[copies[k].src_block] &= WAITING_DST;
                marks[copies[k].dst_block] &= WAITING_DST;
            }
            phase++;
            phase_begin = i;
        }
        marks[src] |= PHASE_SRC;
        marks[dst] |= PHASE_DST;
        copies[i].phase = phase;
    }
    for (uint64_t i = 0; i < plan->n; i++) {
        marks[copies[i].src_block] = 0;
        marks[copies[i].dst_block] = 0;
        out[i] = copies[i];
    }
    kvpi_uncount(&plan->n, plan->n);
}

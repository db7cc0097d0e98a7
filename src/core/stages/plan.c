/* plan: see plan.h. Marks are a byte per block, clear for every block that no waiting copy names as
 * its destination, so that a release costs one look. */
#include "core/stages/plan.h"

#include <string.h>

enum { WAITING_DST = 1u, PHASE_SRC = 2u, PHASE_DST = 4u };

static uint8_t *mark_of(const struct kvpi_plan *plan, uint32_t tier, uint32_t block)
{
    uint8_t *marks = kvpi_at(plan, plan->marks_at);
    return &marks[block + plan->before[tier]];
}

static uint8_t *mark_of_src(const struct kvpi_plan *plan, const struct kvpi_copy *copy)
{
    return mark_of(plan, copy->src_tier, copy->src);
}

static uint8_t *mark_of_dst(const struct kvpi_plan *plan, const struct kvpi_copy *copy)
{
    return mark_of(plan, copy->dst_tier, copy->dst);
}

void kvpi_plan_layout(struct kvpi_plan *plan, struct kvpi_layout *layout, size_t self)
{
    plan->copies_at = kvpi_layout_take(layout, plan->capacity, sizeof(struct kvpi_copy)) - self;
    plan->marks_at = kvpi_layout_take(layout, plan->before[4], sizeof(uint8_t)) - self;
}

void kvpi_plan_reset(struct kvpi_plan *plan)
{
    kvpi_set(&plan->n, 0);
    plan->n_out = 0;
    plan->promised = 0;
    memset(mark_of(plan, KVP_DEVICE, 0), 0, (size_t)plan->before[4]);
}

int kvpi_plan_waits(const struct kvpi_plan *plan, uint32_t tier, uint32_t block)
{
    return (*mark_of(plan, tier, block) & WAITING_DST) != 0;
}

void kvpi_plan_add(struct kvpi_plan *plan, const struct kvpi_copy *copy)
{
    KVPI_ASSERT(kvpi_plan_room(plan) > 0 && copy->n_tokens > 0);
    kvpi_plan_copies(plan)[plan->n_out + plan->n] = *copy;
    *mark_of_dst(plan, copy) |= WAITING_DST;
    kvpi_count(&plan->n, 1);
}

static int reads(const struct kvpi_copy *copy, uint32_t tier, uint32_t block)
{
    return copy->src == block && copy->src_tier == tier;
}

static int writes(const struct kvpi_copy *copy, uint32_t tier, uint32_t block)
{
    return copy->dst == block && copy->dst_tier == tier;
}

void kvpi_plan_raise(struct kvpi_plan *plan, uint32_t tier, uint32_t block, uint32_t n_tokens)
{
    struct kvpi_copy *copies = kvpi_plan_copies(plan) + plan->n_out;
    for (uint64_t i = plan->n; i > 0; i--) {
        if (writes(&copies[i - 1], tier, block)) {
            copies[i - 1].n_tokens = kvpi_max_u32(copies[i - 1].n_tokens, n_tokens);
            return;
        }
    }
}

void kvpi_plan_drop(struct kvpi_plan *plan, uint32_t tier, uint32_t block)
{
    uint8_t *mark = mark_of(plan, tier, block);
    struct kvpi_copy *copies = kvpi_plan_copies(plan) + plan->n_out;
    if (plan->n == 0 || !(*mark & WAITING_DST)) { /* a mark is a miss of the CPU caches */
        return;
    }
    uint64_t n_read = plan->n; /* copies up to the last one that reads the block stay */
    while (n_read > 0 && !reads(&copies[n_read - 1], tier, block)) {
        n_read--;
    }
    uint64_t kept = n_read;
    for (uint64_t i = n_read; i < plan->n; i++) {
        if (!writes(&copies[i], tier, block)) {
            copies[kept++] = copies[i];
        }
    }
    *mark = 0;
    for (uint64_t i = 0; i < n_read; i++) {
        *mark |= writes(&copies[i], tier, block) ? WAITING_DST : 0;
    }
    kvpi_uncount(&plan->n, plan->n - kept);
}

static void give(const struct kvpi_copy *copy, uint32_t phase, kvp_copy *out)
{
    memset(out, 0, sizeof(*out));
    out->phase = phase;
    out->group = (uint16_t)copy->group;
    out->src_tier = copy->src_tier & KVP_HOST;
    out->dst_tier = copy->dst_tier & KVP_HOST;
    out->src_block = (int32_t)copy->src;
    out->dst_block = (int32_t)copy->dst;
    out->n_tokens = copy->n_tokens;
}

void kvpi_plan_take(struct kvpi_plan *plan, kvp_copy *out, int keep)
{
    const struct kvpi_copy *copies = kvpi_plan_copies(plan) + plan->n_out;
    uint32_t phase = 0;
    uint64_t phase_begin = 0;
    for (uint64_t i = 0; i < plan->n; i++) {
        uint8_t *src = mark_of_src(plan, &copies[i]);
        uint8_t *dst = mark_of_dst(plan, &copies[i]);
        if ((*src & PHASE_DST) || (*dst & (PHASE_SRC | PHASE_DST))) {
            for (uint64_t k = phase_begin; k < i; k++) {
                *mark_of_src(plan, &copies[k]) &= WAITING_DST;
                *mark_of_dst(plan, &copies[k]) &= WAITING_DST;
            }
            phase++;
            phase_begin = i;
        }
        *src |= PHASE_SRC;
        *dst |= PHASE_DST;
        give(&copies[i], phase, &out[i]);
    }
    for (uint64_t i = 0; i < plan->n; i++) {
        *mark_of_src(plan, &copies[i]) = 0;
        *mark_of_dst(plan, &copies[i]) = 0;
    }
    plan->n_out += keep ? plan->n : 0;
    kvpi_uncount(&plan->n, plan->n);
}

void kvpi_plan_forget(struct kvpi_plan *plan, uint64_t n)
{
    struct kvpi_copy *copies = kvpi_plan_copies(plan);
    memmove(copies, copies + n, (size_t)(plan->n_out + plan->n - n) * sizeof(*copies));
    plan->n_out -= n;
}

/* See shadow.h. */
#include "shadow.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void verdict_bad(verdict *v, const char *format, ...)
{
    if (v->is_bad)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(v->why, sizeof(v->why), format, list);
    va_end(list);
    v->is_bad = true;
}

void *random_allocate(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL) {
        fprintf(stderr, "kvp_shadow: no memory\n");
        exit(2);
    }
    return memory;
}

void *random_grow(void *old, size_t n, size_t size)
{
    void *memory = realloc(old, (n + 1) * size);
    if (memory == NULL) {
        fprintf(stderr, "kvp_shadow: no memory\n");
        exit(2);
    }
    return memory;
}

static size_t slots_of(const shadow *s, uint32_t tier)
{
    return (size_t)s->n_blocks[tier] * s->block_slots;
}

shadow *shadow_create(const kvp_config *config, verdict *v)
{
    shadow *s = random_allocate(1, sizeof(*s));
    s->n_groups = config->n_groups;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        const uint32_t S = config->groups[g].block_tokens;
        s->block_tokens[g] = S;
        s->block_slots = S > s->block_slots ? S : s->block_slots;
    }
    s->n_blocks[KVP_DEVICE] = config->n_blocks;
    s->n_blocks[KVP_HOST] = config->host_blocks;
    s->verdict = v;
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++)
        for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++)
            s->slots[m][tier] = random_allocate(slots_of(s, tier), sizeof(shadow_slot));
    return s;
}

void shadow_destroy(shadow *s)
{
    if (s == NULL)
        return;
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++)
        for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++)
            free(s->slots[m][tier]);
    free(s);
}

shadow_slot *shadow_at(const shadow *s, uint32_t memory, uint32_t tier, int32_t block,
                       uint32_t offset)
{
    if (tier >= SHADOW_TIERS || block <= KVP_NULL_BLOCK || (uint32_t)block >= s->n_blocks[tier] ||
        offset >= s->block_slots) {
        verdict_bad(s->verdict,
                    "there is no slot %" PRIu32 " in block %" PRId32 " of tier %" PRIu32, offset,
                    block, tier);
        return NULL;
    }
    return &s->slots[memory][tier][(size_t)block * s->block_slots + offset];
}

void shadow_copy(shadow *s, uint32_t memory, const kvp_copy *copy)
{
    const shadow_slot *src = shadow_at(s, memory, copy->src_tier, copy->src_block, 0);
    shadow_slot *dst = shadow_at(s, memory, copy->dst_tier, copy->dst_block, 0);
    if (copy->n_tokens == 0 || copy->group >= s->n_groups ||
        copy->n_tokens > s->block_tokens[copy->group]) {
        verdict_bad(s->verdict, "a copy of %" PRIu32 " slots, group %u", copy->n_tokens,
                    copy->group);
        return;
    }
    /* What another group wrote there is of a token that is yet to be computed, from an earlier use
     * of the block; or the plan is wrong, and whoever reads it tells. */
    for (uint32_t i = 0; src != NULL && dst != NULL && i < copy->n_tokens; i++) {
        const bool is_other = (src[i].tag & SHADOW_RIGHT) != 0 && src[i].group != copy->group;
        dst[i] = is_other ? (shadow_slot){.tag = SHADOW_POISON} : src[i];
    }
}

void shadow_fill(shadow *s, uint32_t memory, const kvp_copy *where, kvp_range slots,
                 shadow_slot what)
{
    shadow_slot *dst = shadow_at(s, memory, where->dst_tier, where->dst_block, 0);
    for (uint32_t i = slots.begin; dst != NULL && i < slots.end; i++)
        dst[i] = what;
}

static shadow_slot *slot_at(const shadow *s, uint32_t memory, uint32_t group, int64_t slot)
{
    const int64_t S = s->block_tokens[group];
    return shadow_at(s, memory, KVP_DEVICE, slot < 0 ? 0 : (int32_t)(slot / S),
                     slot < 0 ? 0 : (uint32_t)(slot % S));
}

void shadow_write(shadow *s, uint32_t group, int64_t slot, shadow_slot what)
{
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++) {
        shadow_slot *dst = slot_at(s, m, group, slot);
        if (dst != NULL)
            *dst = what;
    }
}

void shadow_move(shadow *s, uint32_t memory, uint32_t group, const kvp_slot_move *move)
{
    const shadow_slot *src = slot_at(s, memory, group, move->src);
    shadow_slot *dst = slot_at(s, memory, group, move->dst);
    if (src != NULL && dst != NULL)
        *dst = *src;
}

void shadow_level(shadow *s)
{
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        memcpy(s->slots[SHADOW_IN_ORDER][tier], s->slots[SHADOW_BY_PHASE][tier],
               slots_of(s, tier) * sizeof(shadow_slot));
    }
}

bool shadow_compare(shadow *s, uint64_t step)
{
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        for (size_t i = 0; i < slots_of(s, tier); i++) {
            const shadow_slot *a = &s->slots[SHADOW_IN_ORDER][tier][i];
            const shadow_slot *b = &s->slots[SHADOW_BY_PHASE][tier][i];
            if (a->tag != b->tag || a->by != b->by || a->position != b->position) {
                char in_order[128], by_phase[128];
                shadow_describe(a, in_order, sizeof(in_order));
                shadow_describe(b, by_phase, sizeof(by_phase));
                verdict_bad(s->verdict,
                            "the plan of step %" PRIu64 ": block %zu of the %s, slot %zu: run in "
                            "order it holds %s, run phase by phase %s",
                            step, i / s->block_slots, tier == KVP_HOST ? "host" : "device",
                            i % s->block_slots, in_order, by_phase);
                return false;
            }
        }
    }
    return true;
}

void shadow_describe(const shadow_slot *slot, char *text, size_t n)
{
    if (slot->tag == SHADOW_NOTHING) {
        snprintf(text, n, "nothing");
    } else if (slot->tag == SHADOW_POISON) {
        snprintf(text, n, "content that call %" PRIu64 " dropped", slot->by);
    } else if (slot->tag == SHADOW_GARBAGE) {
        snprintf(text, n, "what step %" PRIu64 " left when it failed", slot->by);
    } else {
        snprintf(text, n, "position %" PRIu32 " of sequence %" PRIu64 " (%016" PRIx64 ")",
                 slot->position, slot->by, slot->tag);
    }
}

/* See device.h. */
#include "device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *plant_name(plant what)
{
    static const char *const names[PLANTS] = {
        [PLANT_NOTHING] = "nothing",
        [PLANT_SKIPPED_COPY] = "skipped-copy",
        [PLANT_EARLY_COPY] = "early-copy",
        [PLANT_NO_PARKING] = "no-parking",
        [PLANT_EARLY_DONE] = "early-done",
        [PLANT_SHORT_COPY] = "short-copy",
        [PLANT_WRONG_SLOT] = "wrong-slot",
        [PLANT_FORGOTTEN_STEP] = "forgotten-step",
        [PLANT_OTHER_SPACE] = "other-space",
        [PLANT_OTHER_GROUP] = "other-group",
        [PLANT_COPY_GROUP] = "copy-group",
        [PLANT_EARLY_DROP] = "early-drop",
        [PLANT_UNPARKED_DROP] = "unparked-drop",
        [PLANT_OWN_WINDOW] = "own-window",
        [PLANT_SKIPPED_MOVE] = "skipped-move",
        [PLANT_EARLY_LOAD] = "early-load",
        [PLANT_TORN_LOAD] = "torn-load",
    };
    return names[what];
}

void device_init(device *d, shadow *memory, verdict *v, bool overlapped, uint64_t seed)
{
    memset(d, 0, sizeof(*d));
    d->memory = memory;
    d->verdict = v;
    d->overlapped = overlapped;
    d->random = seed;
    d->taste = random_below(&d->random, 3);
}

void device_clear_item(work_item *item)
{
    free(item->rows);
    free(item->slots);
    free(item->tags);
    free(item->seen);
}

void device_free_items(work_item *items, uint32_t n_items)
{
    for (uint32_t i = 0; i < n_items; i++)
        device_clear_item(&items[i]);
    free(items);
}

static void free_step(work_step *step)
{
    device_free_items(step->items, step->n_items);
    free(step->copies);
    free(step->moves);
    free(step->order);
    free(step->drops);
    free(step);
}

void device_cancel(device *d)
{
    for (uint32_t i = 0; i < d->n_steps; i++)
        free_step(d->steps[i]);
    d->n_steps = 0;
    shadow_level(d->memory);
}

void device_end(device *d)
{
    device_cancel(d);
    free(d->failures);
    d->failures = NULL;
}

/* -------------------------------------------------------------------------------------- submit */

/* Within a phase no block is both source and destination, and none is a destination twice. */
static void check_phases(device *d, const work_step *step)
{
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[i];
        const uint32_t before = i == 0 ? 0 : step->copies[i - 1].phase;
        if (copy->phase < before || copy->phase > before + (i > 0)) {
            verdict_bad(d->verdict, "step %" PRIu64 ": phase %" PRIu32 " after phase %" PRIu32,
                        step->number, copy->phase, before);
        }
        for (uint32_t j = 0; j < i; j++) {
            const kvp_copy *other = &step->copies[j];
            if (other->phase == copy->phase &&
                ((other->dst_tier == copy->dst_tier && other->dst_block == copy->dst_block) ||
                 (other->dst_tier == copy->src_tier && other->dst_block == copy->src_block) ||
                 (other->src_tier == copy->dst_tier && other->src_block == copy->dst_block))) {
                verdict_bad(d->verdict,
                            "step %" PRIu64 ": copies %" PRIu32 " and %" PRIu32
                            " of one phase depend on each other",
                            step->number, j, i);
            }
        }
    }
}

static void swap_places(uint32_t *a, uint32_t *b)
{
    const uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Any order within a phase. */
static void draw_order(device *d, work_step *step)
{
    step->order = random_allocate(step->n_copies, sizeof(*step->order));
    for (uint32_t i = 0; i < step->n_copies; i++)
        step->order[i] = i;
    for (uint32_t i = 1; i < step->n_copies; i++) {
        uint32_t first = i;
        while (first > 0 && step->copies[first - 1].phase == step->copies[i].phase)
            first--;
        const uint32_t with = first + random_below(&d->random, i - first + 1);
        swap_places(&step->order[i], &step->order[with]);
        d->n_reordered += with != i;
    }
    for (uint32_t i = 1; d->planted == PLANT_EARLY_COPY && i < step->n_copies; i++) {
        if (step->copies[step->order[i - 1]].phase != step->copies[step->order[i]].phase) {
            swap_places(&step->order[i - 1], &step->order[i]);
            d->n_planted++;
            break;
        }
    }
}

void device_submit(device *d, work_step *step)
{
    if (d->n_steps == DEVICE_STEPS) {
        verdict_bad(d->verdict, "more steps than the device has room for");
        free_step(step);
        return;
    }
    check_phases(d, step);
    draw_order(d, step);
    for (uint32_t i = 0; i < step->n_items; i++) {
        work_item *item = &step->items[i];
        for (uint32_t k = 0; k < item->end - item->begin; k++)
            item->writes = item->writes || item->slots[k] != KVP_NO_SLOT;
    }
    if (step->n_copies > 0)
        d->n_later_phases += step->copies[step->n_copies - 1].phase > 0;
    step->submitted = ++d->n_submitted;
    d->steps[d->n_steps++] = step;
}

void device_remove(device *d, work_step *step)
{
    uint32_t at = 0;
    while (d->steps[at] != step)
        at++;
    memmove(d->steps + at, d->steps + at + 1, (d->n_steps - at - 1) * sizeof(*d->steps));
    d->n_steps--;
    free_step(step);
}

/* ------------------------------------------------------------------------------------ failures */

static void note_failure(device *d, uint64_t step)
{
    d->failures = random_grow(d->failures, d->n_failures + 1, sizeof(*d->failures));
    d->failures[d->n_failures++] = (work_failure){step, UINT64_MAX};
}

void device_told(device *d, uint64_t step)
{
    for (uint32_t i = 0; i < d->n_failures; i++)
        if (d->failures[i].step == step)
            d->failures[i].told = d->n_submitted;
}

/* Whether the step was on its way before anybody knew of the failure. */
static bool is_forgiven(const device *d, const work_step *step, uint64_t failed)
{
    for (uint32_t i = 0; i < d->n_failures; i++)
        if (d->failures[i].step == failed)
            return step->submitted <= d->failures[i].told;
    return false;
}

/* ---------------------------------------------------------------------------------------- plans */

static void poison(device *d, work_step *step, uint32_t memory, work_drop *drop, uint32_t from)
{
    const kvp_copy where = {.dst_tier = (uint8_t)drop->tier, .dst_block = drop->block};
    const kvp_range slots = {from, d->memory->block_slots};
    (void)step;
    shadow_fill(d->memory, memory, &where, slots,
                (shadow_slot){.tag = SHADOW_POISON, .by = drop->call});
    drop->is_poisoned[memory] = true;
    d->n_poisoned += from < slots.end;
}

static void run_copy(device *d, work_step *step, uint32_t memory, uint32_t index)
{
    kvp_copy copy = step->copies[index];
    for (uint32_t i = 0; i < step->n_drops; i++) {
        work_drop *drop = &step->drops[i];
        if (drop->is_whole && !drop->is_poisoned[memory] && drop->tier == copy.dst_tier &&
            drop->block == copy.dst_block)
            poison(d, step, memory, drop, 0);
    }
    if (d->planted == PLANT_COPY_GROUP && d->memory->n_groups > 1) {
        copy.group = (uint16_t)((copy.group + 1) % d->memory->n_groups);
        d->n_planted++;
    }
    if (d->planted == PLANT_SHORT_COPY && copy.n_tokens > 1) {
        copy.n_tokens--;
        d->n_planted++;
    }
    shadow_copy(d->memory, memory, &copy);
}

/* What copies should have written is garbage, but for those that ran. */
static void fail_plan(device *d, work_step *step)
{
    shadow_level(d->memory);
    for (uint32_t i = step->n_run; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[step->order[i]];
        for (uint32_t m = 0; m < SHADOW_MEMORIES; m++) {
            shadow_fill(d->memory, m, copy, (kvp_range){0, copy->n_tokens},
                        (shadow_slot){.tag = SHADOW_GARBAGE, .by = step->number});
        }
    }
}

static void end_plan(device *d, work_step *step)
{
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++)
        for (uint32_t i = 0; i < step->n_drops; i++)
            poison(d, step, m, &step->drops[i], step->drops[i].valid);
    shadow_compare(d->memory, step->number);
    step->plan_done = true;
    step->is_finished = step->n_items == 0;
}

bool device_has_moves(const device *d)
{
    for (uint32_t i = 0; i < d->n_steps; i++)
        if (d->steps[i]->n_moves > 0 && !d->steps[i]->is_finished)
            return true;
    return false;
}

/* Group after group, in any order of the groups. */
static void run_moves(device *d, const work_step *step)
{
    const uint32_t n_groups = d->memory->n_groups;
    for (uint32_t i = 0; i < step->n_moves; i++) {
        const bool skips = d->planted == PLANT_SKIPPED_MOVE && random_percent(&d->random, 30);
        d->n_planted += skips;
        d->n_moves++;
        for (uint32_t g = 0; g < n_groups && !skips; g++)
            shadow_move(d->memory, SHADOW_IN_ORDER, g, &step->moves[g * step->n_moves + i]);
        for (uint32_t g = n_groups; g > 0 && !skips; g--) {
            shadow_move(d->memory, SHADOW_BY_PHASE, g - 1,
                        &step->moves[(g - 1) * step->n_moves + i]);
        }
    }
}

/* Whether this copy, or pass, is the one that is to fail. */
static bool is_refused(device *d, work_step *step, uint32_t work)
{
    if (step->is_safe || step->fails || ++d->n_asked[work] != d->fail_at[work])
        return false;
    d->n_refused++;
    note_failure(d, step->number);
    return step->fails = true;
}

static void move_plan(device *d, work_step *step)
{
    run_moves(d, step);
    if (step->fails && step->n_run == 0)
        note_failure(d, step->number);
    if (d->overlapped && step->n_run < step->n_copies && is_refused(d, step, DEVICE_COPY))
        step->fail_after = step->n_run;
    if (step->fails && step->n_run == step->fail_after) {
        fail_plan(d, step);
        step->n_run = step->n_copies;
    } else if (step->n_run < step->n_copies) {
        const bool skips = d->planted == PLANT_SKIPPED_COPY && random_percent(&d->random, 30);
        d->n_planted += skips;
        for (uint32_t m = 0; m < SHADOW_MEMORIES && !skips; m++)
            run_copy(d, step, m, m == SHADOW_IN_ORDER ? step->n_run : step->order[step->n_run]);
        const kvp_copy *copy = &step->copies[step->n_run++];
        d->n_late += step->submitted < d->n_submitted;
        d->n_copies[copy->src_tier][copy->dst_tier]++;
    }
    if (step->n_run >= step->n_copies)
        end_plan(d, step);
}

/* ------------------------------------------------------------------------------- forward passes */

static int32_t entry_of(const device *d, const work_item *item, uint32_t group, uint32_t position)
{
    return item->rows[(size_t)group * item->n_row + position / d->memory->block_tokens[group]];
}

static void tell_wrong(device *d, const work_step *step, const work_item *item, uint32_t group,
                       uint32_t position, const shadow_slot *slot)
{
    const uint32_t S = d->memory->block_tokens[group];
    char text[128];
    shadow_describe(slot, text, sizeof(text));
    verdict_bad(d->verdict,
                "step %" PRIu64 ", sequence %" PRIu64 ", computing [%" PRIu32 ", %" PRIu32
                "): group %" PRIu32 ", position %" PRIu32 " (row entry %" PRIu32 ", block %" PRId32
                ", slot %" PRIu32 ") should hold %016" PRIx64 ", and holds %s",
                step->number, item->serial, item->begin, item->end, group, position, position / S,
                entry_of(d, item, group, position), position % S,
                truth_in_group(item->tags[position], group), text);
}

/* Every position before `end` that a query sees must hold what is right, in every group.
 *
 * With overlapped steps, a sequence may have been closed, cut or moved since: nobody will know what
 * was computed for it beyond, and a block that others hold may be written to. But its memory was
 * not handed out: content that was dropped is not seen. */
static void read_group(device *d, const work_step *step, work_item *item, uint32_t group,
                       uint32_t end)
{
    const uint32_t S = d->memory->block_tokens[group];
    const uint32_t live = !d->overlapped                  ? item->end
                          : !item->is_cut                 ? item->end
                          : item->commit_to > item->begin ? item->commit_to
                                                          : 0;
    const uint8_t *seen = item->seen + (size_t)group * item->end;
    for (uint32_t p = 0; p < end && item->garbage == 0; p++) {
        const uint64_t tag = truth_in_group(item->tags[p], group);
        d->n_unseen += seen[p] == 0;
        for (uint32_t m = 0; m < SHADOW_MEMORIES && seen[p] != 0; m++) {
            const int32_t block = entry_of(d, item, group, p);
            const shadow_slot *slot = shadow_at(d->memory, m, KVP_DEVICE, block, p % S);
            if (slot == NULL)
                return;
            d->n_reads++;
            if (slot->tag == SHADOW_GARBAGE && is_forgiven(d, step, slot->by)) {
                d->n_forgiven++;
                item->garbage = slot->by;
            } else if (slot->tag != tag && (p < live || slot->tag == SHADOW_POISON)) {
                tell_wrong(d, step, item, group, p, slot);
                return;
            }
        }
    }
}

static void read_all(device *d, const work_step *step, work_item *item, uint32_t end)
{
    for (uint32_t g = 0; g < d->memory->n_groups; g++)
        read_group(d, step, item, g, end);
}

static void write_group(device *d, const work_item *item, uint32_t group)
{
    const int64_t *slots = item->slots + (size_t)group * (item->end - item->begin);
    for (uint32_t p = item->begin; p < item->end; p++) {
        shadow_slot what = {.tag = truth_in_group(item->tags[p], group),
                            .by = item->serial,
                            .position = p,
                            .group = group};
        int64_t slot = slots[p - item->begin];
        if (item->garbage != 0)
            what = (shadow_slot){.tag = SHADOW_GARBAGE, .by = item->garbage};
        if (slot == KVP_NO_SLOT)
            continue;
        if (d->planted == PLANT_WRONG_SLOT && p > item->begin && slots[0] != KVP_NO_SLOT) {
            slot = slots[p - item->begin - 1];
            d->n_planted++;
        }
        shadow_write(d->memory, group, slot, what);
    }
}

static void start_item(device *d, work_step *step, work_item *item)
{
    item->stage = 1;
    d->n_items++;
    if (is_refused(d, step, DEVICE_PASS))
        step->fail_after = UINT32_MAX;
    if (step->fails)
        item->garbage = step->number;
    else
        read_all(d, step, item, item->begin);
    for (uint32_t g = 0; g < d->memory->n_groups; g++)
        write_group(d, item, g);
}

static void finish_item(device *d, work_step *step, work_item *item)
{
    item->stage = 2;
    if (item->garbage == 0)
        read_all(d, step, item, item->end);
    step->is_finished = true;
    for (uint32_t i = 0; i < step->n_items; i++)
        step->is_finished = step->is_finished && step->items[i].stage == 2;
}

/* Whether a step before this one, not finished, computes for one of its sequences. */
static bool must_wait(const device *d, uint32_t index)
{
    const work_step *step = d->steps[index];
    for (uint32_t e = 0; e < index; e++) {
        const work_step *earlier = d->steps[e];
        for (uint32_t i = 0; !earlier->is_finished && i < earlier->n_items; i++) {
            for (uint32_t k = 0; k < step->n_items; k++)
                if (earlier->items[i].serial == step->items[k].serial)
                    return true;
        }
    }
    return false;
}

static bool has_started(const work_step *step)
{
    for (uint32_t i = 0; i < step->n_items; i++)
        if (step->items[i].stage > 0)
            return true;
    return false;
}

static void move_forward(device *d, work_step *step)
{
    const uint32_t first = random_below(&d->random, step->n_items);
    for (uint32_t i = 0; i < step->n_items; i++) {
        work_item *item = &step->items[(first + i) % step->n_items];
        if (item->stage == 0) {
            start_item(d, step, item);
            return;
        }
        if (item->stage == 1) {
            finish_item(d, step, item);
            return;
        }
    }
}

/* --------------------------------------------------------------------------------------- moves */

static bool can_move(const device *d, uint32_t index)
{
    const work_step *step = d->steps[index];
    if (step->is_finished)
        return false;
    for (uint32_t e = 0; e < index; e++)
        if (d->overlapped ? !step->plan_done && !d->steps[e]->plan_done : !d->steps[e]->is_finished)
            return false;
    return !step->plan_done || has_started(step) || !must_wait(d, index);
}

bool device_move(device *d)
{
    uint32_t candidates[DEVICE_STEPS], n = 0;
    for (uint32_t i = 0; i < d->n_steps; i++)
        if (can_move(d, i))
            candidates[n++] = i;
    if (n == 0)
        return false;
    uint32_t chosen = random_below(&d->random, n);
    if (d->taste < 2 && random_percent(&d->random, 70))
        chosen = d->taste == 0 ? 0 : n - 1;
    d->n_beside += n > 1;
    work_step *step = d->steps[candidates[chosen]];
    if (step->plan_done)
        move_forward(d, step);
    else
        move_plan(d, step);
    return true;
}

void device_drain(device *d)
{
    while (device_move(d)) {}
}

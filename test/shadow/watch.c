/* See watch.h. */
#include "watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

/* A library built with KVP_CHECK 3 audits itself after every call. */
#if defined(KVP_CHECK) && KVP_CHECK >= 3
#define OWN_CHECK_LEVEL 1
#else
#define OWN_CHECK_LEVEL 3
#endif

static uint32_t n_blocks_of(const watch *w, uint32_t tier)
{
    return w->memory->n_blocks[tier];
}

static kvp_block_info block_info(watch *w, uint32_t tier, uint32_t block)
{
    kvp_block_info info;
    memset(&info, 0, sizeof(info));
    const kvp_status status = kvp_block_info_get(w->cache, 0, tier, (int32_t)block, &info);
    if (status != KVP_OK) {
        verdict_bad(w->verdict, "kvp_block_info_get: %s", kvp_status_name(status));
    }
    return info;
}

watch *watch_create(const kvp_config *config, bool device_overlapped, uint64_t seed, verdict *v)
{
    watch *w = random_allocate(1, sizeof(*w));
    w->verdict = v;
    const kvp_status status = kvp_cache_create(config, NULL, 0, &w->cache);
    if (status != KVP_OK || kvp_cache_config(w->cache, &w->config) != KVP_OK) {
        verdict_bad(v, "kvp_cache_create: %s", kvp_status_name(status));
        free(w);
        return NULL;
    }
    w->overlapped = config->steps == KVP_STEPS_OVERLAPPED;
    w->memory = shadow_create(&w->config, v);
    truth_init(&w->truth, w->config.unit_tokens, w->config.hash_seed, v);
    device_init(&w->device, w->memory, v, device_overlapped, seed);
    w->n_subjects = w->config.max_seqs;
    w->subjects = random_allocate(w->n_subjects, sizeof(*w->subjects));
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        const uint32_t n = n_blocks_of(w, tier);
        w->generations[tier] = random_allocate(n, sizeof(**w->generations));
        w->states[tier] = random_allocate(n, sizeof(**w->states));
        for (uint32_t b = 1; b < n; b++) {
            const kvp_block_info info = block_info(w, tier, b);
            w->generations[tier][b] = info.generation;
            w->states[tier][b] = (uint8_t)info.state;
        }
    }
    return w;
}

void watch_destroy(watch *w)
{
    if (w == NULL) {
        return;
    }
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        watch_end_subject(w, &w->subjects[i]);
    }
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        free(w->generations[tier]);
        free(w->states[tier]);
    }
    free(w->subjects);
    free(w->drops);
    device_end(&w->device);
    truth_end(&w->truth);
    shadow_destroy(w->memory);
    kvp_cache_destroy(w->cache);
    free(w);
}

/* ------------------------------------------------------------------------------ dropped content */

static void note_drop(watch *w, uint32_t tier, uint32_t block, bool is_whole)
{
    for (uint32_t i = 0; i < w->n_drops; i++) {
        if (w->drops[i].tier == tier && w->drops[i].block == (int32_t)block) {
            w->drops[i].is_whole = w->drops[i].is_whole || is_whole;
            w->drops[i].call = w->n_calls;
            return;
        }
    }
    if (w->n_drops == w->drops_capacity) {
        w->drops_capacity = 2 * w->drops_capacity + 64;
        w->drops = random_grow(w->drops, w->drops_capacity, sizeof(*w->drops));
    }
    w->drops[w->n_drops++] = (work_drop){
        .tier = tier, .block = (int32_t)block, .is_whole = is_whole, .call = w->n_calls};
}

/* What was evicted is named by hashes of what somebody had. */
static void check_evicted(watch *w)
{
    const kvp_evicted *evicted = NULL;
    uint32_t n = 0;
    if (kvp_cache_evicted(w->cache, &evicted, &n) != KVP_OK) {
        verdict_bad(w->verdict, "kvp_cache_evicted failed");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (truth_find(&w->truth, &evicted[i].hash) == NULL) {
            verdict_bad(w->verdict, "block %" PRId32 " of tier %u: evicted what nobody had",
                        evicted[i].block, evicted[i].tier);
        }
    }
}

void watch_called(watch *w, bool writes_over)
{
    kvp_violation violation;
    w->n_calls++;
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        for (uint32_t b = 1; b < n_blocks_of(w, tier); b++) {
            const kvp_block_info info = block_info(w, tier, b);
            const bool stays = info.state == KVP_BLOCK_HELD && w->states[tier][b] == KVP_BLOCK_HELD;
            if (info.generation != w->generations[tier][b] && (!stays || writes_over)) {
                note_drop(w, tier, b, !stays);
                w->n_parked_drops += info.state == KVP_BLOCK_PARKED;
            }
            w->n_parked += info.state == KVP_BLOCK_PARKED && w->states[tier][b] != KVP_BLOCK_PARKED;
            w->generations[tier][b] = info.generation;
            w->states[tier][b] = (uint8_t)info.state;
        }
    }
    check_evicted(w);
    if (kvp_check(w->cache, OWN_CHECK_LEVEL, &violation) != KVP_OK) {
        verdict_bad(w->verdict, "kvp_check: %s of %" PRIu64 ": %s", violation.invariant,
                    violation.object, violation.detail);
    }
}

static void raise_to(uint32_t *value, uint32_t other)
{
    if (*value < other) {
        *value = other;
    }
}

/* How far a block's slots hold something when the plan has run. */
static uint32_t valid_slots(watch *w, const work_drop *drop, const work_step *step)
{
    const uint32_t S = w->config.block_tokens;
    uint32_t valid = block_info(w, drop->tier, (uint32_t)drop->block).sealed_tokens;
    for (uint32_t i = 0; i < step->n_copies; i++) {
        if (step->copies[i].dst_tier == drop->tier && step->copies[i].dst_block == drop->block) {
            raise_to(&valid, step->copies[i].n_tokens);
        }
    }
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        const subject *s = &w->subjects[i];
        const int32_t *row;
        uint32_t n = 0;
        if (!s->is_open || s->is_swapped != (drop->tier == KVP_HOST) ||
            kvp_seq_row(w->cache, s->handle, 0, &row, &n) != KVP_OK) {
            continue;
        }
        for (uint32_t k = 0; k < n; k++) {
            if (row[k] == drop->block && s->scheduled > k * S) {
                raise_to(&valid, s->scheduled - k * S < S ? s->scheduled - k * S : S);
            }
        }
    }
    return valid;
}

/* The step poisons what was dropped since the one before. */
static void hand_over_drops(watch *w, work_step *step)
{
    uint32_t kept = 0;
    step->drops = random_allocate(w->n_drops, sizeof(*step->drops));
    for (uint32_t i = 0; i < w->n_drops; i++) {
        const work_drop *drop = &w->drops[i];
        if (w->states[drop->tier][drop->block] == KVP_BLOCK_PARKED) {
            w->drops[kept++] = *drop;
        } else if (drop->is_whole || !w->device.overlapped || w->device.n_steps == 0) {
            step->drops[step->n_drops] = *drop;
            step->drops[step->n_drops++].valid = valid_slots(w, drop, step);
        } /* else: part of a held block, which steps that are out may read in full */
    }
    w->n_drops = kept;
}

/* ------------------------------------------------------------------------------------ sequences */

kvp_stats watch_stats(watch *w)
{
    kvp_stats stats;
    memset(&stats, 0, sizeof(stats));
    if (kvp_cache_stats(w->cache, &stats) != KVP_OK) {
        verdict_bad(w->verdict, "kvp_cache_stats failed");
    }
    return stats;
}

kvp_seq_info watch_info(watch *w, const subject *s)
{
    kvp_seq_info info;
    memset(&info, 0, sizeof(info));
    const kvp_status status = kvp_seq_info_get(w->cache, s->handle, &info);
    if (status != KVP_OK) {
        verdict_bad(w->verdict, "kvp_seq_info_get, sequence %" PRIu64 ": %s", s->serial,
                    kvp_status_name(status));
    } else if (info.tokens != s->line.n || info.known_tokens != s->known ||
               (info.tier == KVP_HOST) != s->is_swapped) {
        verdict_bad(w->verdict,
                    "sequence %" PRIu64 " has %" PRIu32 " tokens, %" PRIu32 " known, tier %" PRIu32
                    "; should be %" PRIu32 ", %" PRIu32 ", %d",
                    s->serial, info.tokens, info.known_tokens, info.tier, s->line.n, s->known,
                    s->is_swapped);
    }
    return info;
}

subject *watch_new_subject(watch *w, kvp_seq handle, const char *space)
{
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        subject *s = &w->subjects[i];
        if (!s->is_open) {
            *s = (subject){.is_open = true, .handle = handle, .serial = ++w->n_serials};
            truth_line_begin(&w->truth, &s->line, space, w->config.max_seq_tokens);
            return s;
        }
    }
    verdict_bad(w->verdict, "more sequences are open than there are places");
    return NULL;
}

void watch_end_subject(watch *w, subject *s)
{
    (void)w;
    if (s->is_open) {
        truth_line_end(&s->line);
        s->is_open = false;
    }
}

subject *watch_find(watch *w, kvp_seq handle)
{
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        if (w->subjects[i].is_open && w->subjects[i].handle.bits == handle.bits) {
            return &w->subjects[i];
        }
    }
    return NULL;
}

subject *watch_find_serial(watch *w, uint64_t serial)
{
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        if (w->subjects[i].is_open && w->subjects[i].serial == serial) {
            return &w->subjects[i];
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------- steps */

bool watch_make_item(watch *w, const subject *s, kvp_range range, work_item *out_item)
{
    const uint32_t S = w->config.block_tokens;
    const kvp_seq_info info = watch_info(w, s);
    const int32_t *row = NULL;
    uint32_t n_row = 0;
    work_item item = {
        .serial = s->serial, .begin = range.begin, .end = range.end, .commit_to = range.end};
    const uint32_t n = range.end - range.begin;
    item.slots = random_allocate(n, sizeof(*item.slots));
    kvp_status status = kvp_seq_slots(w->cache, s->handle, 0, range.begin, n, item.slots);
    if (status == KVP_OK) {
        status = kvp_seq_row(w->cache, s->handle, 0, &row, &n_row);
    }
    if (status != KVP_OK || (uint64_t)n_row * S < range.end) {
        verdict_bad(w->verdict,
                    "sequence %" PRIu64 ", positions [%" PRIu32 ", %" PRIu32 "), computed %" PRIu32
                    ", writable %" PRIu32 ": %s",
                    s->serial, range.begin, range.end, info.computed_tokens, info.writable_tokens,
                    status == KVP_OK ? "the row is too short" : kvp_status_name(status));
        free(item.slots);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t p = range.begin + i;
        const int64_t slot = (int64_t)row[p / S] * S + p % S;
        if (item.slots[i] != (p < info.computed_tokens ? KVP_NO_SLOT : slot)) {
            verdict_bad(w->verdict, "sequence %" PRIu64 ", position %" PRIu32 ": slot %" PRId64,
                        s->serial, p, item.slots[i]);
        }
    }
    item.row = random_allocate(n_row, sizeof(*item.row));
    memcpy(item.row, row, n_row * sizeof(*item.row));
    item.tags = random_allocate(range.end, sizeof(*item.tags));
    memcpy(item.tags, s->line.tags, range.end * sizeof(*item.tags));
    *out_item = item;
    return true;
}

void watch_free_items(work_item *items, uint32_t n_items)
{
    for (uint32_t i = 0; i < n_items; i++) {
        free(items[i].row);
        free(items[i].slots);
        free(items[i].tags);
    }
    free(items);
}

kvp_status watch_submit(watch *w, work_item *items, uint32_t n_items, work_step **out_step)
{
    work_step *step = random_allocate(1, sizeof(*step));
    const uint32_t capacity = w->config.max_copies;
    kvp_status status;
    step->copies = random_allocate(capacity, sizeof(*step->copies));
    if (w->overlapped) {
        status = kvp_step_begin(w->cache, step->copies, capacity, &step->n_copies, &step->number);
    } else {
        status = kvp_plan_take(w->cache, step->copies, capacity, &step->n_copies);
        step->number = w->device.n_submitted + 1;
    }
    if (status != KVP_OK) {
        if (status != KVP_E_NO_STEPS) {
            verdict_bad(w->verdict, "taking the plan: %s", kvp_status_name(status));
        }
        free(step->copies);
        free(step);
        return status;
    }
    watch_called(w, false);
    hand_over_drops(w, step);
    step->items = items;
    step->n_items = n_items;
    device_submit(&w->device, step);
    *out_step = step;
    return KVP_OK;
}

/* --------------------------------------------------------------------------------------- audits */

static bool is_held(watch *w, uint32_t tier, int32_t block, uint32_t offset, uint64_t tag,
                    shadow_slot *out_found)
{
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++) {
        const shadow_slot *slot = shadow_at(w->memory, m, tier, block, offset);
        w->n_audited_slots++;
        if (slot == NULL || slot->tag != tag) {
            *out_found = slot == NULL ? (shadow_slot){.tag = 0} : *slot;
            return false;
        }
    }
    return true;
}

static void audit_block(watch *w, uint32_t tier, uint32_t block)
{
    const uint32_t U = w->config.unit_tokens;
    const kvp_block_info info = block_info(w, tier, block);
    const truth_unit *unit = truth_find(&w->truth, &info.hash);
    uint32_t end = info.sealed_tokens;
    if (info.sealed_units == 0) {
        return;
    }
    if (unit == NULL ||
        (unit->position + U) % w->config.block_tokens != end % w->config.block_tokens) {
        verdict_bad(w->verdict,
                    "block %" PRIu32 " of tier %" PRIu32 ", %" PRIu32
                    " tokens sealed: nobody ever had its unit there",
                    block, tier, end);
        return;
    }
    for (; end > 0; end -= U) {
        const uint64_t *tags = truth_tags(&w->truth, unit);
        for (uint32_t i = 0; i < U; i++) {
            shadow_slot found;
            if (!is_held(w, tier, (int32_t)block, end - U + i, tags[i], &found)) {
                if (found.tag == SHADOW_GARBAGE && !w->overlapped) {
                    return; /* behind a unit that was invalidated: not reachable, or read it is */
                }
                char text[128];
                shadow_describe(&found, text, sizeof(text));
                verdict_bad(w->verdict,
                            "block %" PRIu32 " of tier %" PRIu32 " is said to hold %" PRIu32
                            " tokens; slot %" PRIu32 " holds %s",
                            block, tier, info.sealed_tokens, end - U + i, text);
                return;
            }
        }
        unit = unit->parent == UINT32_MAX ? NULL : &w->truth.units[unit->parent];
    }
}

void watch_audit_attached(watch *w)
{
    w->n_audits++;
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        for (uint32_t b = 1; b < n_blocks_of(w, tier) && !w->verdict->is_bad; b++) {
            audit_block(w, tier, b);
        }
    }
}

static void audit_subject(watch *w, const subject *s)
{
    const uint32_t S = w->config.block_tokens;
    const uint32_t tier = s->is_swapped ? KVP_HOST : KVP_DEVICE;
    const uint32_t computed = watch_info(w, s).computed_tokens;
    const int32_t *row = NULL;
    uint32_t n = 0;
    if (kvp_seq_row(w->cache, s->handle, 0, &row, &n) != KVP_OK || (uint64_t)n * S < computed) {
        verdict_bad(w->verdict, "sequence %" PRIu64 ": a row of %" PRIu32 " blocks", s->serial, n);
        return;
    }
    for (uint32_t p = 0; p < computed; p++) {
        shadow_slot found;
        if (!is_held(w, tier, row[p / S], p % S, s->line.tags[p], &found)) {
            char text[128];
            shadow_describe(&found, text, sizeof(text));
            verdict_bad(w->verdict,
                        "sequence %" PRIu64 ", %" PRIu32 " computed, on the %s: position %" PRIu32
                        " (block %" PRId32 ", slot %" PRIu32 ") holds %s",
                        s->serial, computed, s->is_swapped ? "host" : "device", p, row[p / S],
                        p % S, text);
            return;
        }
    }
}

void watch_audit_computed(watch *w)
{
    w->n_audits++;
    for (uint32_t i = 0; i < w->n_subjects && !w->verdict->is_bad; i++) {
        if (w->subjects[i].is_open) {
            audit_subject(w, &w->subjects[i]);
        }
    }
}

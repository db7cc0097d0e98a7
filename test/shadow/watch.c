/* See watch.h. */
#include "watch.h"

#include "start.h"

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
    if (status != KVP_OK)
        verdict_bad(w->verdict, "kvp_block_info_get: %s", kvp_status_name(status));
    return info;
}

watch *watch_create(const kvp_config *config, bool device_overlapped, uint64_t seed, verdict *v)
{
    watch *w = random_allocate(1, sizeof(*w));
    w->verdict = v;
    const kvp_status status = kvp_cache_create(config, NULL, 0, &w->cache);
    if (status != KVP_OK || kvp_cache_config_get(w->cache, &w->config) != KVP_OK) {
        verdict_bad(v, "kvp_cache_create: %s", kvp_status_name(status));
        free(w);
        return NULL;
    }
    start_cache(w->cache);
    w->overlapped = config->steps == KVP_STEPS_OVERLAPPED;
    w->memory = shadow_create(&w->config, v);
    truth_init(&w->truth, w->config.unit_tokens, w->config.hash_seed, v);
    device_init(&w->device, w->memory, v, device_overlapped, seed);
    w->n_plans = watch_stats(w).plans;
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
    if (w == NULL)
        return;
    for (uint32_t i = 0; i < w->n_subjects; i++)
        watch_end_subject(w, &w->subjects[i]);
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

static bool get_row(watch *w, const subject *s, uint32_t group, const int32_t **out_row,
                    uint32_t *out_n)
{
    const kvp_status status = kvp_seq_row(w->cache, s->handle, group, out_row, out_n);
    if (status != KVP_OK) {
        verdict_bad(w->verdict, "kvp_seq_row, sequence %" PRIu64 ", group %" PRIu32 ": %s",
                    s->serial, group, kvp_status_name(status));
    }
    return status == KVP_OK;
}

/* ------------------------------------------------------------------------------ dropped content */

static void raise_to(uint32_t *value, uint32_t other)
{
    if (*value < other)
        *value = other;
}

/* How far a sequence's work fills the block, wherever it is in its rows. */
static uint32_t scheduled_slots(watch *w, const subject *s, int32_t block)
{
    const uint32_t end = s->tree.scheduled > 0 ? s->line.n + s->tree.scheduled : s->scheduled;
    uint32_t valid = 0;
    for (uint32_t g = 0; g < w->config.n_groups; g++) {
        const uint32_t S = watch_block_tokens(w, g);
        const int32_t *row = NULL;
        uint32_t n = 0;
        (void)get_row(w, s, g, &row, &n);
        for (uint32_t k = 0; k < n; k++)
            if (row[k] == block && end > k * S)
                raise_to(&valid, end - k * S < S ? end - k * S : S);
    }
    return valid;
}

/* How far a block's slots hold something. */
static uint32_t filled_slots(watch *w, uint32_t tier, uint32_t block)
{
    uint32_t filled = block_info(w, tier, block).sealed_tokens;
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        const subject *s = &w->subjects[i];
        if (s->is_open && s->is_swapped == (tier == KVP_HOST))
            raise_to(&filled, scheduled_slots(w, s, (int32_t)block));
    }
    return filled;
}

/* The same when the plan has run. What a drop of a part left stays, though its sequence may be
 * invalidated since: the block may duplicate a unit there, which nobody finds any more. */
static uint32_t valid_slots(watch *w, const work_drop *drop, const work_step *step)
{
    uint32_t valid = filled_slots(w, drop->tier, (uint32_t)drop->block);
    for (uint32_t i = 0; i < step->n_copies; i++)
        if (step->copies[i].dst_tier == drop->tier && step->copies[i].dst_block == drop->block)
            raise_to(&valid, step->copies[i].n_tokens);
    raise_to(&valid, drop->kept);
    return valid;
}

static work_drop *note_drop(watch *w, uint32_t tier, uint32_t block, bool is_whole)
{
    const uint32_t kept = is_whole ? 0 : filled_slots(w, tier, block);
    for (uint32_t i = 0; i < w->n_drops; i++) {
        work_drop *drop = &w->drops[i];
        if (drop->tier == tier && drop->block == (int32_t)block) {
            drop->is_whole = drop->is_whole || is_whole;
            drop->kept = drop->kept < kept ? drop->kept : kept;
            drop->call = w->n_calls;
            return drop;
        }
    }
    if (w->n_drops == w->drops_capacity) {
        w->drops_capacity = 2 * w->drops_capacity + 64;
        w->drops = random_grow(w->drops, w->drops_capacity, sizeof(*w->drops));
    }
    w->drops[w->n_drops++] = (work_drop){.tier = tier,
                                         .block = (int32_t)block,
                                         .kept = kept,
                                         .is_whole = is_whole,
                                         .call = w->n_calls};
    return &w->drops[w->n_drops - 1];
}

/* What was evicted is named by hashes of what somebody had. */
static void check_evicted(watch *w)
{
    const kvp_evicted *evicted = NULL;
    uint32_t n = 0;
    if (kvp_cache_evicted(w->cache, &evicted, &n) != KVP_OK)
        verdict_bad(w->verdict, "kvp_cache_evicted failed");
    for (uint32_t i = 0; i < n; i++) {
        if (truth_find(&w->truth, &evicted[i].hash) == NULL) {
            verdict_bad(w->verdict, "block %" PRId32 " of tier %u: evicted what nobody had",
                        evicted[i].block, evicted[i].tier);
        }
    }
}

/* Planted: what a window dropped is not kept for the steps that are out. */
static bool is_unparked(watch *w, const kvp_block_info *info, uint64_t n_dropped)
{
    const bool is = w->device.planted == PLANT_UNPARKED_DROP && n_dropped > w->n_dropped &&
                    info->state == KVP_BLOCK_PARKED;
    w->device.n_planted += is;
    return is;
}

static void look_at(watch *w, uint32_t tier, uint32_t b, bool writes_over, uint64_t n_dropped)
{
    const kvp_block_info info = block_info(w, tier, b);
    const uint8_t was = w->states[tier][b];
    const bool stays = info.state == KVP_BLOCK_HELD && was == KVP_BLOCK_HELD;
    const bool parks = info.state == KVP_BLOCK_PARKED && was != KVP_BLOCK_PARKED;
    if (info.generation != w->generations[tier][b] && (!stays || writes_over)) {
        (void)note_drop(w, tier, b, !stays);
        w->n_parked_drops += info.state == KVP_BLOCK_PARKED;
    }
    w->generations[tier][b] = info.generation;
    w->states[tier][b] = (uint8_t)info.state;
    w->n_parked += parks;
    w->n_parked_windows += parks && n_dropped > w->n_dropped;
    if (parks && is_unparked(w, &info, n_dropped))
        note_drop(w, tier, b, true)->is_early = true;
}

void watch_called(watch *w, bool writes_over)
{
    kvp_violation violation;
    const uint64_t n_dropped = watch_stats(w).dropped_blocks;
    w->n_calls++;
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++)
        for (uint32_t b = 1; b < n_blocks_of(w, tier); b++)
            look_at(w, tier, b, writes_over, n_dropped);
    w->n_dropped = n_dropped;
    check_evicted(w);
    if (kvp_cache_check(w->cache, OWN_CHECK_LEVEL, &violation) != KVP_OK) {
        verdict_bad(w->verdict, "kvp_cache_check: %s of %" PRIu64 ": %s", violation.invariant,
                    violation.object, violation.detail);
    }
}

/* The step poisons what was dropped since the one before. */
static void hand_over_drops(watch *w, work_step *step)
{
    uint32_t kept = 0;
    step->drops = random_allocate(w->n_drops, sizeof(*step->drops));
    for (uint32_t i = 0; i < w->n_drops; i++) {
        const work_drop *drop = &w->drops[i];
        if (w->states[drop->tier][drop->block] == KVP_BLOCK_PARKED && !drop->is_early) {
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
    if (kvp_cache_stats_get(w->cache, &stats) != KVP_OK)
        verdict_bad(w->verdict, "kvp_cache_stats_get failed");
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
    } else if (info.n_tokens != s->line.n || info.known_tokens != s->known ||
               (info.tier == KVP_HOST) != s->is_swapped || info.tree_tokens != s->tree.n) {
        verdict_bad(w->verdict,
                    "sequence %" PRIu64 " has %" PRIu32 " tokens, %" PRIu32 " known, %" PRIu32
                    " nodes, tier %" PRIu32 "; should be %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %d",
                    s->serial, info.n_tokens, info.known_tokens, info.tree_tokens, info.tier,
                    s->line.n, s->known, s->tree.n, s->is_swapped);
    }
    return info;
}

subject *watch_new_subject(watch *w, kvp_seq handle, const char *space)
{
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        subject *s = &w->subjects[i];
        if (!s->is_open) {
            *s = (subject){.is_open = true, .handle = handle, .serial = ++w->n_serials};
            for (uint32_t g = 0; g < w->config.n_groups; g++)
                s->windows[g] = watch_window(w, g);
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
    for (uint32_t i = 0; i < w->n_subjects; i++)
        if (w->subjects[i].is_open && w->subjects[i].handle.bits == handle.bits)
            return &w->subjects[i];
    return NULL;
}

subject *watch_find_serial(watch *w, uint64_t serial)
{
    for (uint32_t i = 0; i < w->n_subjects; i++)
        if (w->subjects[i].is_open && w->subjects[i].serial == serial)
            return &w->subjects[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------------- steps */

static bool keeps(const watch *w, const subject *s, uint32_t group, uint32_t entry, uint32_t query)
{
    const kvp_window window = s->windows[group];
    const uint64_t S = watch_block_tokens(w, group), begin = entry * S;
    if (window.sink_tokens == KVP_CHUNKED) /* its last token is in the query's chunk, or later */
        return (begin + S - 1) / window.recent_tokens >= query / window.recent_tokens;
    return window.recent_tokens == 0 || begin < window.sink_tokens ||
           begin + S + window.recent_tokens > (uint64_t)query + 1;
}

bool watch_lacks(watch *w, const subject *s, uint32_t query)
{
    for (uint32_t g = 0; g < w->config.n_groups; g++) {
        const int32_t *row = NULL;
        uint32_t n = 0;
        (void)get_row(w, s, g, &row, &n);
        for (uint32_t i = 0; i < n; i++)
            if (row[i] == KVP_NULL_BLOCK && keeps(w, s, g, i, query))
                return true;
    }
    return false;
}

/* The position for the model of what lies at p: a token's, or a node's by its depth. */
static uint32_t model_position(const subject *s, uint32_t p)
{
    return p < s->line.n ? p : s->line.n + s->tree.depths[p - s->line.n];
}

/* Mark what the query at p sees: tokens, and of nodes its ancestors and itself. */
static void mark_seen(const subject *s, uint32_t group, uint32_t p, uint8_t *seen)
{
    const kvp_window window = s->windows[group];
    const uint32_t n = s->line.n;
    const uint32_t query = model_position(s, p);
    for (uint32_t key = 0; key <= p && key < n; key++)
        seen[key] = seen[key] || truth_sees(window, query, key);
    for (int32_t node = p < n ? -1 : (int32_t)(p - n); node >= 0; node = s->tree.parents[node]) {
        const uint32_t key = n + (uint32_t)node;
        seen[key] = seen[key] || truth_sees(window, query, model_position(s, key));
    }
}

/* Rows and slots of one group, and what its queries see. */
static bool add_group(watch *w, const subject *s, uint32_t group, work_item *item)
{
    const uint32_t S = watch_block_tokens(w, group);
    const uint32_t n = item->end - item->begin;
    const kvp_seq_info info = watch_info(w, s);
    const int32_t *row = NULL;
    uint32_t n_row = 0;
    int64_t *slots = item->slots + (size_t)group * n;
    uint8_t *seen = item->seen + (size_t)group * item->end;
    const kvp_status status = kvp_seq_slots(w->cache, s->handle, group, item->begin, n, slots);
    if (!get_row(w, s, group, &row, &n_row) || status != KVP_OK || n_row > item->n_row ||
        (uint64_t)n_row * S < item->end) {
        verdict_bad(w->verdict,
                    "sequence %" PRIu64 ", positions [%" PRIu32 ", %" PRIu32 "), computed %" PRIu32
                    ", writable %" PRIu32 ": %s",
                    s->serial, item->begin, item->end, info.computed_tokens, info.writable_tokens,
                    status == KVP_OK ? "the row is too short" : kvp_status_name(status));
        return false;
    }
    memcpy(item->rows + (size_t)group * item->n_row, row, n_row * sizeof(*row));
    for (uint32_t p = item->begin; p < item->end; p++) {
        const int64_t slot = (int64_t)row[p / S] * S + p % S;
        if (slots[p - item->begin] != (p < info.computed_tokens ? KVP_NO_SLOT : slot)) {
            verdict_bad(w->verdict, "sequence %" PRIu64 ", position %" PRIu32 ": slot %" PRId64,
                        s->serial, p, slots[p - item->begin]);
        }
        mark_seen(s, group, p, seen);
    }
    return true;
}

/* Planted: two groups are taken for each other. */
static void confuse_groups(watch *w, work_item *item)
{
    const size_t n = item->n_row;
    if (w->device.planted != PLANT_OTHER_GROUP || w->config.n_groups < 2)
        return;
    for (size_t i = 0; i < n; i++) {
        const int32_t kept = item->rows[i];
        item->rows[i] = item->rows[n + i];
        item->rows[n + i] = kept;
    }
    w->device.n_planted++;
}

/* A position that an item computes gets its tag. */
static void compute(watch *w, subject *s, uint32_t p)
{
    const uint64_t saw =
        truth_saw(s->windows, w->config.groups, w->config.n_groups, model_position(s, p));
    w->n_own_kv += saw != 0;
    if (p < s->line.n) {
        truth_line_compute(&s->line, p, saw);
        return;
    }
    const uint32_t node = p - s->line.n;
    const int32_t parent = s->tree.parents[node];
    const uint64_t before = parent >= 0      ? s->tree.kv[parent]
                            : s->line.n == 0 ? s->line.root_tag
                                             : s->line.kv[s->line.n - 1];
    s->tree.kv[node] =
        truth_next(&s->line, before, model_position(s, p), s->tree.tokens[node], saw);
}

/* Of any group. */
static uint32_t longest_row(watch *w, const subject *s)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < w->config.n_groups; g++) {
        const int32_t *row = NULL;
        uint32_t n = 0;
        (void)get_row(w, s, g, &row, &n);
        raise_to(&most, n);
    }
    return most;
}

uint32_t watch_slots(watch *w, const subject *s)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < w->config.n_groups; g++) {
        const int32_t *row = NULL;
        uint32_t n = 0;
        (void)get_row(w, s, g, &row, &n);
        n *= watch_block_tokens(w, g);
        least = n < least ? n : least;
    }
    return least;
}

bool watch_make_item(watch *w, subject *s, kvp_range range, work_item *out_item)
{
    const uint32_t n_groups = w->config.n_groups;
    const kvp_seq_info info = watch_info(w, s);
    work_item item = {.serial = s->serial,
                      .begin = range.begin,
                      .end = range.end,
                      .base = s->line.n,
                      .commit_to = range.begin >= s->line.n ? 0
                                   : range.end < s->line.n  ? range.end
                                                            : s->line.n,
                      .n_row = longest_row(w, s)};
    item.rows = random_allocate((size_t)n_groups * item.n_row, sizeof(*item.rows));
    item.slots = random_allocate((size_t)n_groups * (range.end - range.begin), sizeof(*item.slots));
    item.seen = random_allocate((size_t)n_groups * range.end, sizeof(*item.seen));
    item.tags = random_allocate(range.end, sizeof(*item.tags));
    for (uint32_t g = 0; g < n_groups; g++) {
        if (!add_group(w, s, g, &item)) {
            device_clear_item(&item);
            return false;
        }
    }
    confuse_groups(w, &item);
    for (uint32_t p = range.begin; p < range.end; p++)
        if (p >= info.computed_tokens)
            compute(w, s, p);
    const uint32_t n_tokens = range.end < s->line.n ? range.end : s->line.n;
    memcpy(item.tags, s->line.kv, n_tokens * sizeof(*item.tags));
    for (uint32_t p = n_tokens; p < range.end; p++)
        item.tags[p] = s->tree.kv[p - s->line.n];
    *out_item = item;
    return true;
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
        step->plan = status == KVP_OK ? ++w->n_plans : 0;
    }
    if (status != KVP_OK) {
        if (status != KVP_E_NO_STEPS)
            verdict_bad(w->verdict, "taking the plan: %s", kvp_status_name(status));
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

uint64_t watch_plans_run(const watch *w)
{
    uint64_t run = w->n_plans;
    for (uint32_t i = 0; i < w->device.n_steps; i++) {
        const work_step *step = w->device.steps[i];
        if (step->plan > 0 && !step->plan_done && step->plan <= run)
            run = step->plan - 1;
    }
    return run;
}

static uint32_t strike_drop(work_drop *drops, uint32_t n, int32_t block)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (drops[i].tier != KVP_HOST || drops[i].block != block)
            drops[kept++] = drops[i];
    return kept;
}

void watch_forget_drop(watch *w, int32_t block, uint64_t after)
{
    w->n_drops = strike_drop(w->drops, w->n_drops, block);
    for (uint32_t i = 0; i < w->device.n_steps; i++) {
        work_step *step = w->device.steps[i];
        if ((w->overlapped ? step->number : step->plan) > after)
            step->n_drops = strike_drop(step->drops, step->n_drops, block);
    }
}

void watch_submit_moves(watch *w, kvp_slot_move *moves, uint32_t n_moves)
{
    work_step *step = random_allocate(1, sizeof(*step));
    step->moves = moves;
    step->n_moves = n_moves;
    step->is_reported = true; /* nobody reports it */
    device_submit(&w->device, step);
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
    const uint32_t S = watch_block_tokens(w, info.group);
    const truth_unit *unit = truth_find(&w->truth, &info.hash);
    uint32_t end = info.sealed_tokens;
    if (info.sealed_units == 0)
        return;
    if (unit == NULL || (unit->position + U) % S != end % S) {
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
            const uint64_t tag = truth_in_group(tags[i], info.group);
            if (!is_held(w, tier, (int32_t)block, end - U + i, tag, &found)) {
                if (found.tag == SHADOW_GARBAGE && !w->overlapped)
                    return; /* behind a unit that was invalidated: not reachable, or read it is */
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
    if (device_has_moves(&w->device))
        return;
    w->n_audits++;
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++)
        for (uint32_t b = 1; b < n_blocks_of(w, tier) && !w->verdict->is_bad; b++)
            audit_block(w, tier, b);
}

static void audit_row(watch *w, const subject *s, uint32_t group)
{
    const uint32_t S = watch_block_tokens(w, group);
    const uint32_t tier = s->is_swapped ? KVP_HOST : KVP_DEVICE;
    const uint32_t computed = watch_info(w, s).computed_tokens;
    const int32_t *row = NULL;
    uint32_t n = 0;
    if (!get_row(w, s, group, &row, &n) || (uint64_t)n * S < computed) {
        verdict_bad(w->verdict, "sequence %" PRIu64 ": a row of %" PRIu32 " blocks", s->serial, n);
        return;
    }
    for (uint32_t p = 0; p < computed; p++) {
        shadow_slot found;
        const uint64_t tag = truth_in_group(s->line.kv[p], group);
        if (row[p / S] != KVP_NULL_BLOCK && !is_held(w, tier, row[p / S], p % S, tag, &found)) {
            char text[128];
            shadow_describe(&found, text, sizeof(text));
            verdict_bad(w->verdict,
                        "sequence %" PRIu64 ", %" PRIu32 " computed, on the %s: group %" PRIu32
                        ", position %" PRIu32 " (block %" PRId32 ", slot %" PRIu32 ") holds %s",
                        s->serial, computed, s->is_swapped ? "host" : "device", group, p,
                        row[p / S], p % S, text);
            return;
        }
    }
}

static void audit_subject(watch *w, const subject *s)
{
    for (uint32_t g = 0; g < w->config.n_groups && !w->verdict->is_bad; g++)
        audit_row(w, s, g);
    if (!s->may_lack && watch_lacks(w, s, watch_info(w, s).computed_tokens))
        verdict_bad(w->verdict, "sequence %" PRIu64 " lacks what its windows keep", s->serial);
}

void watch_audit_computed(watch *w)
{
    w->n_audits++;
    for (uint32_t i = 0; i < w->n_subjects && !w->verdict->is_bad; i++)
        if (w->subjects[i].is_open)
            audit_subject(w, &w->subjects[i]);
}

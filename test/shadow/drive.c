/* See drive.h: configurations, streams, and the loop. */
#include "drive.h"
#include "drive_sched.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------- configuration */

static void draw_sizes(uint64_t *random, kvp_config *config)
{
    static const uint32_t sizes[] = {1, 2, 2, 3, 4, 4, 4, 6, 8, 16};
    const uint32_t S = sizes[random_below(random, sizeof(sizes) / sizeof(*sizes))];
    config->block_tokens = S;
    if (random_percent(random, 65))
        do {
            config->unit_tokens = 1 + random_below(random, S);
        } while (S % config->unit_tokens != 0);
    config->n_blocks = 2 + random_below(random, random_percent(random, 40) ? 7 : 30);
    config->max_seqs = 1 + random_below(random, random_percent(random, 30) ? 4 : 14);
    config->max_seq_tokens =
        S * (1 + random_below(random, config->n_blocks)) + random_below(random, S);
    if (config->max_seq_tokens > 12 * S + 12)
        config->max_seq_tokens = 12 * S + 12;
    config->max_namespaces = DRIVE_SPACES;
}

static void draw_host(uint64_t *random, kvp_config *config)
{
    if (random_percent(random, 75)) {
        config->host_blocks =
            2 +
            random_below(random, random_percent(random, 40) ? 6 : 2 * (uint64_t)config->n_blocks);
        config->keep_evicted = random_percent(random, 75);
    }
    if (random_percent(random, 25))
        config->max_copies = 1 + random_below(random, 12);
}

void drive_config(const drive_options *options, kvp_config *out_config, bool *out_failures)
{
    static const double watermarks[] = {0.05, 0.1, 0.25, 0.5};
    static const int32_t uncached[] = {1};
    uint64_t random = options->seed * 0x2545f4914f6cdd1du + options->index;
    kvp_config *config = out_config;
    kvp_config_init(config);
    draw_sizes(&random, config);
    draw_host(&random, config);
    const uint32_t unit = config->unit_tokens != 0 ? config->unit_tokens : config->block_tokens;
    if (random_percent(&random, 25)) {
        config->n_nodes = config->max_namespaces + 2 +
                          random_below(&random, config->n_blocks * (config->block_tokens / unit));
    }
    config->max_unit_keys = random_percent(&random, 40) ? 1 + random_below(&random, 3) : 0;
    config->commit_policy = random_percent(&random, 50) ? KVP_KEEP : KVP_ADOPT;
    config->full_hit = random_percent(&random, 25) ? KVP_FULL_HIT_RECOMPUTE : KVP_FULL_HIT_SHARE;
    config->prefix_cache = !random_percent(&random, 4);
    config->watermark = random_percent(&random, 70) ? 0 : watermarks[random_below(&random, 4)];
    config->test_hash_bits = random_percent(&random, 30) ? 1 + random_below(&random, 4) : 0;
    if (random_percent(&random, 15)) {
        config->n_uncached_tokens = 1;
        config->uncached_tokens = uncached;
    }
    config->max_steps_out = 1 + random_below(&random, 4);
    const bool overlapped = options->engine == DRIVE_OVERLAPPED ||
                            (options->engine == DRIVE_SCHED && random_percent(&random, 50));
    config->steps = overlapped && options->planted != PLANT_NO_PARKING ? KVP_STEPS_OVERLAPPED
                                                                       : KVP_STEPS_ORDERED;
    *out_failures = options->planted == PLANT_NOTHING ? random_percent(&random, 40)
                                                      : options->planted == PLANT_FORGOTTEN_STEP;
    *out_failures = *out_failures || options->sweeps;
    random = options->seed * 0x9fb21c651e98df25u + options->index;
    if (random_percent(&random, 50)) {
        drive_draw_windows(&random, config);
        config->max_tree_tokens *= options->engine != DRIVE_SCHED;
    }
    const bool lends = options->planted == PLANT_NOTHING || options->planted == PLANT_EARLY_LOAD ||
                       options->planted == PLANT_TORN_LOAD;
    random = options->seed * 0xd6e8feb86659fd93u + options->index;
    if (lends && config->host_blocks > 0 && random_percent(&random, 60)) {
        config->max_loads = 1 + random_below(&random, DRIVE_LOADS);
        config->lent_blocks =
            random_percent(&random, 40) ? 0 : 1 + random_below(&random, config->host_blocks - 1);
    }
    if (options->planted == PLANT_NOTHING && config->commit_policy == KVP_ADOPT &&
        config->n_groups == 1 && config->groups[0].recent_tokens == 0)
        config->policy = random_percent(&random, 60) ? KVP_POLICY_LEARNED : KVP_POLICY_LRU;
}

static void make_stream(drive *d, uint32_t i)
{
    drive_stream *stream = &d->streams[i];
    const uint32_t most = d->w->config.max_seq_tokens;
    uint32_t shared = 0;
    stream->tokens = random_allocate(most, sizeof(*stream->tokens));
    truth_line_begin(&d->w->truth, &stream->keys, "", 1);
    if (i > 0 && random_percent(&d->random, 80)) {
        const drive_stream *other = &d->streams[random_below(&d->random, i)];
        shared = random_below(&d->random, most + 1);
        memcpy(stream->tokens, other->tokens, shared * sizeof(*stream->tokens));
        if (random_percent(&d->random, 70)) {
            memcpy(stream->keys.keys, other->keys.keys, sizeof(stream->keys.keys));
            stream->keys.n_keys = other->keys.n_keys;
        }
    }
    for (uint32_t t = shared; t < most; t++)
        stream->tokens[t] = (int32_t)random_below(&d->random, d->alphabet);
    for (uint32_t tries = random_below(&d->random, 4); tries > 0; tries--) {
        truth_key key = {.type = 1 + random_below(&d->random, 2),
                         .begin = random_below(&d->random, most),
                         .n_bytes = random_below(&d->random, TRUTH_KEY_BYTES + 1)};
        for (uint32_t b = 0; b < key.n_bytes; b++)
            key.bytes[b] = (uint8_t)random_below(&d->random, 2);
        key.end = key.begin + truth_key_length(&d->w->truth, &key);
        if (truth_key_fits(&d->w->truth, &stream->keys, &key, d->w->config.max_unit_keys))
            stream->keys.keys[stream->keys.n_keys++] = key;
    }
}

/* ---------------------------------------------------------------------------------- small parts */

void drive_trace(const drive *d, const char *format, ...)
{
    if (!d->options.trace)
        return;
    va_list list;
    va_start(list, format);
    printf("%6" PRIu64 " ", d->n_ops);
    vprintf(format, list);
    printf("\n");
    va_end(list);
    fflush(stdout);
}

static void trace_block(drive *d)
{
    const char *name = d->options.block;
    const uint32_t tier = name[0] == 'h' ? KVP_HOST : KVP_DEVICE;
    kvp_block_info info;
    if (kvp_block_info_get(d->w->cache, 0, tier, (int32_t)strtol(name + 1, NULL, 10), &info) ==
            KVP_OK &&
        memcmp(&info, &d->traced, sizeof(info)) != 0) {
        static const char *const states[] = {"null", "free", "cached", "held", "parked"};
        d->traced = info;
        drive_trace(d,
                    "        %s: %s, %" PRIu32 " refs, generation %" PRIu64 ", %" PRIu32 " sealed",
                    name, states[info.state], info.ref_count, info.generation, info.sealed_tokens);
    }
}

bool drive_went(drive *d, const char *call, kvp_status status, const kvp_status *also,
                size_t n_also)
{
    coverage *c = d->seen;
    watch_called(d->w, strncmp(call, "kvp_seq_extend", strlen("kvp_seq_extend")) == 0);
    if (d->options.block != NULL)
        trace_block(d);
    c->points[COVER_refused_no_blocks] += status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER;
    c->points[COVER_refused_plan_full] += status == KVP_E_PLAN_FULL;
    c->points[COVER_refused_in_flight] += status == KVP_E_IN_FLIGHT;
    c->points[COVER_refused_dropped] += status == KVP_E_DROPPED;
    c->points[COVER_refused_no_steps] += status == KVP_E_NO_STEPS;
    if (status == KVP_OK)
        return true;
    drive_trace(d, "%s: %s", call, kvp_status_name(status));
    for (size_t i = 0; i < n_also; i++)
        if (also[i] == status)
            return false;
    verdict_bad(d->verdict, "%s: %s", call, kvp_status_name(status));
    return false;
}

subject *drive_pick(drive *d, bool swapped)
{
    const uint32_t n = d->w->n_subjects;
    const uint32_t first = random_below(&d->random, n);
    for (uint32_t i = 0; i < n; i++) {
        subject *s = &d->w->subjects[(first + i) % n];
        if (s->is_open && s->is_swapped == swapped)
            return s;
    }
    return NULL;
}

const char *drive_space_name(uint32_t space)
{
    static const char *const names[DRIVE_SPACES] = {"", "tenant", "adapter"};
    return names[space];
}

uint32_t *drive_finished(drive *d, const subject *s)
{
    return &d->finished[s - d->w->subjects];
}

static void lower_to(uint32_t *value, uint32_t other)
{
    if (*value > other)
        *value = other;
}

void drive_cut(drive *d, subject *s, uint32_t n)
{
    lower_to(&s->scheduled, n);
    lower_to(drive_finished(d, s), n);
    for (uint32_t i = 0; i < d->w->device.n_steps; i++) {
        work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++) {
            if (step->items[k].serial == s->serial) {
                lower_to(&step->items[k].commit_to, n);
                step->items[k].is_cut = step->items[k].is_cut || n < step->items[k].end;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- the loop */

static const struct {
    void (*run)(drive *d);
    uint32_t weight;
} ops[] = {
    {drive_open_op, 12},       {drive_step_op, 30}, {drive_extend_op, 5},  {drive_fill_op, 6},
    {drive_extend_many_op, 4}, {drive_fork_op, 6},  {drive_beam_op, 4},    {drive_replace_op, 3},
    {drive_truncate_op, 5},    {drive_close_op, 7}, {drive_commit_op, 12}, {drive_device_op, 26},
    {drive_swap_op, 8},        {drive_space_op, 2}, {drive_mark_op, 2},    {drive_invalidate_op, 1},
    {drive_flush_plan, 2},     {drive_reset_op, 0}, {drive_drop_op, 2},    {drive_reclaim_op, 3},
};

static void one_op(drive *d)
{
    uint32_t total = 0;
    if (random_below(&d->random, 1500) == 0) {
        drive_reset_op(d);
        return;
    }
    if (random_below(&d->random, 60) == 0) {
        drive_rest(d);
        return;
    }
    if (drive_has_windows(&d->w->config) && random_percent(&d->random, 6)) {
        drive_window_op(d);
        return;
    }
    if (d->w->config.max_loads > 0 && random_percent(&d->random, 30)) {
        drive_lend_op(d);
        return;
    }
    if (d->w->config.max_tree_tokens > 0 && random_percent(&d->random, 28)) {
        (random_percent(&d->random, 45) ? drive_tree_op : drive_accept_op)(d);
        return;
    }
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        total += ops[i].weight;
    uint32_t at = random_below(&d->random, total);
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (at < ops[i].weight) {
            ops[i].run(d);
            return;
        }
        at -= ops[i].weight;
    }
}

bool drive_begin(drive *d, const drive_options *options)
{
    static const uint32_t alphabets[] = {1, 2, 3, 12, 1000};
    kvp_config config;
    d->options = *options;
    drive_config(options, &config, &d->has_failures);
    const bool overlapped =
        options->engine == DRIVE_OVERLAPPED || config.steps == KVP_STEPS_OVERLAPPED;
    d->w = watch_create(&config, overlapped, options->seed + options->index, d->verdict);
    if (d->w == NULL)
        return false;
    d->w->device.planted = options->planted;
    memcpy(d->w->device.fail_at, options->fail_at, sizeof(options->fail_at));
    d->w->device.n_planted = options->planted == PLANT_NO_PARKING;
    d->random = options->seed * 0xd1342543de82ef95u + options->index + 7;
    d->max_queued = d->w->overlapped ? d->w->config.max_steps_out : 1 + random_below(&d->random, 6);
    d->alphabet = alphabets[random_below(&d->random, 5)];
    d->finished = random_allocate(d->w->n_subjects, sizeof(*d->finished));
    d->tokens = random_allocate(d->w->config.max_seq_tokens, sizeof(*d->tokens));
    d->hashes = random_allocate(d->w->config.max_seq_tokens, sizeof(*d->hashes));
    for (uint32_t i = 0; i < DRIVE_STREAMS; i++)
        make_stream(d, i);
    return true;
}

static void count(drive *d)
{
    const kvp_stats stats = watch_stats(d->w);
    const device *dev = &d->w->device;
    uint64_t *points = d->seen->points;
    d->seen->n_planted += dev->n_planted;
    d->seen->n_refused = dev->n_refused;
    memcpy(d->seen->n_asked, dev->n_asked, sizeof(dev->n_asked));
    points[COVER_copies_on_device] += dev->n_copies[KVP_DEVICE][KVP_DEVICE];
    points[COVER_copies_to_host] += dev->n_copies[KVP_DEVICE][KVP_HOST];
    points[COVER_copies_from_host] += dev->n_copies[KVP_HOST][KVP_DEVICE];
    points[COVER_plans_of_phases] += dev->n_later_phases;
    points[COVER_adopted] += stats.adopted_blocks;
    points[COVER_duplicates] += stats.duplicate_blocks;
    points[COVER_detached] += stats.detached_units;
    points[COVER_evicted] += stats.evicted_blocks;
    points[COVER_kept] += stats.kept_blocks;
    points[COVER_not_kept] += stats.unkept_blocks;
    points[COVER_host_evicted] += stats.host_evicted_blocks;
    points[COVER_poisoned] += dev->n_poisoned;
    points[COVER_garbage_forgiven] += dev->n_forgiven;
    points[COVER_parked] += d->w->n_parked;
    points[COVER_parked_without_content] += d->w->n_parked_drops;
    points[COVER_hidden_from_queries] += dev->n_unseen;
    points[COVER_moves] += dev->n_moves;
    points[COVER_dropped_by_windows] += stats.dropped_blocks;
    points[COVER_parked_by_windows] += d->w->n_parked_windows;
    points[COVER_own_kv] += d->w->n_own_kv;
    points[COVER_passes_side_by_side] += dev->n_beside;
    points[COVER_copies_reordered] += dev->n_reordered;
    points[COVER_copies_late] += dev->n_late;
    points[COVER_collisions_of_4_bits] +=
        d->w->config.test_hash_bits == 4 ? stats.hash_collisions : 0;
    points[COVER_collisions_of_1_bit] +=
        d->w->config.test_hash_bits == 1 ? stats.hash_collisions : 0;
    if (d->options.engine == DRIVE_SCHED) {
        points[COVER_hits] += stats.cached_tokens;
        points[COVER_hits_in_groups] += d->w->config.n_groups > 1 ? stats.cached_tokens : 0;
        points[COVER_hits_on_host] += stats.host_tokens;
        points[COVER_forks] += stats.forks;
        points[COVER_swapped_out] += stats.swap_outs;
        points[COVER_swapped_in] += stats.swap_ins;
    }
}

void drive_end(drive *d)
{
    count(d);
    if (d->verdict->is_bad) {
        const size_t used = strlen(d->verdict->why);
        snprintf(d->verdict->why + used, sizeof(d->verdict->why) - used, " (operation %" PRIu64 ")",
                 d->n_ops);
    }
    for (uint32_t i = 0; i < DRIVE_STREAMS; i++) {
        truth_line_end(&d->streams[i].keys);
        free(d->streams[i].tokens);
    }
    drive_lend_forget(d);
    free(d->finished);
    free(d->tokens);
    free(d->hashes);
    watch_destroy(d->w);
}

static bool run_calls(const drive_options *options, verdict *v, coverage *seen)
{
    drive d = {.verdict = v, .seen = seen};
    if (!drive_begin(&d, options))
        return false;
    while (d.n_ops < options->ops && !v->is_bad) {
        d.n_ops++;
        one_op(&d);
    }
    if (!v->is_bad)
        drive_rest(&d);
    drive_end(&d);
    return !v->is_bad;
}

bool drive_run(const drive_options *options, verdict *v, coverage *seen)
{
    return options->engine == DRIVE_SCHED ? drive_sched_run(options, v, seen)
                                          : run_calls(options, v, seen);
}

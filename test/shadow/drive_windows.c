/* See drive.h: layer groups, and windows that sequences get at any time. */
#include "drive.h"

#include <inttypes.h>

static bool percent(drive *d, uint32_t p)
{
    return random_percent(&d->random, p);
}

static uint32_t below(drive *d, uint64_t n)
{
    return random_below(&d->random, n);
}

/* Small against a block, of some blocks, or of any size. */
static kvp_window draw_window(uint64_t *random, const kvp_config *config)
{
    const uint32_t S = config->block_tokens;
    const uint32_t kind = random_below(random, 100);
    const uint32_t most = kind < 20 ? 2 : kind < 50 ? 2 * S : kind < 85 ? 5 * S : 13 * S;
    kvp_window window = {.recent_tokens = 1 + random_below(random, most)};
    if (random_percent(random, 50))
        window.sink_tokens = random_below(random, 2 * S + 1);
    if (window.sink_tokens > S + S / 2) /* no draw: seeds that have found something stay */
        window.sink_tokens = KVP_CHUNKED;
    return window;
}

bool drive_has_windows(const kvp_config *config)
{
    return config->n_groups > 1 || config->groups[0].recent_tokens > 0;
}

/* In half of them groups have blocks of their own sizes. The state is a copy: seeds that have found
 * something stay. */
static void draw_block_sizes(uint64_t random, kvp_config *config)
{
    const uint32_t unit = config->unit_tokens != 0 ? config->unit_tokens : config->block_tokens;
    const bool has_sizes = random_percent(&random, 50);
    for (uint32_t g = 0; has_sizes && g < config->n_groups; g++)
        config->groups[g].block_tokens = unit * (1 + random_below(&random, 4));
}

void drive_draw_windows(uint64_t *random, kvp_config *config)
{
    static const uint32_t counts[] = {1, 1, 2, 2, 3, 4};
    config->n_groups = counts[random_below(random, sizeof(counts) / sizeof(*counts))];
    for (uint32_t g = 0; g < config->n_groups; g++) {
        if (random_percent(random, g == 0 ? 55 : 70) || config->n_groups == 1) {
            const kvp_window window = draw_window(random, config);
            config->groups[g] = (kvp_group){window.sink_tokens, window.recent_tokens, 0};
        }
    }
    draw_block_sizes(*random, config);
    config->max_tree_tokens = random_percent(random, 60) ? 1 + random_below(random, 12) : 0;
    if (random_percent(random, 80)) {
        config->n_blocks *= config->n_groups;
        config->host_blocks *= config->n_groups;
    }
}

void drive_lacking(drive *d, const subject *s, kvp_status status)
{
    if (status == KVP_E_DROPPED) {
        d->seen->points[COVER_lacking]++;
        if (!s->may_lack)
            verdict_bad(d->verdict, "sequence %" PRIu64 " lacks what its windows keep", s->serial);
    }
}

/* Without end, the group's, a little wider than it has, or any. */
static kvp_window draw_own(drive *d, const subject *s, uint32_t group)
{
    const uint32_t kind = below(d, 100);
    kvp_window window = s->windows[group];
    if (d->options.planted == PLANT_OWN_WINDOW) /* narrow: what it keeps is there */
        return (kvp_window){0, 1};
    if (kind < 10)
        return (kvp_window){0, 0};
    if (kind < 35)
        return watch_window(d->w, group);
    if (kind < 50 && window.recent_tokens > 0) {
        window.recent_tokens += 1 + below(d, 3);
        return window;
    }
    return draw_window(&d->random, &d->w->config);
}

/* What the cache is told: with some defects, something else. */
static kvp_window told_window(drive *d, uint32_t group, kvp_window window)
{
    const plant planted = d->options.planted;
    const uint32_t S = d->w->config.block_tokens;
    if (planted == PLANT_OWN_WINDOW) {
        d->w->device.n_planted++;
        return watch_window(d->w, group);
    }
    if (planted == PLANT_EARLY_DROP && window.recent_tokens > 2 * S) {
        d->w->device.n_planted++;
        window.recent_tokens -= 2 * S;
    }
    return window;
}

static bool is_same(kvp_window a, kvp_window b)
{
    return a.sink_tokens == b.sink_tokens && a.recent_tokens == b.recent_tokens;
}

/* Whether work for it is out. */
static bool is_out(const drive *d, const subject *s)
{
    for (uint32_t i = 0; i < d->w->device.n_steps; i++) {
        const work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++)
            if (step->items[k].serial == s->serial && !step->is_finished)
                return true;
    }
    return false;
}

/* One whose work is out, most of the time: that reads what is dropped now. */
static subject *pick_out(drive *d)
{
    subject *any = drive_pick(d, false);
    const uint32_t first = below(d, d->w->n_subjects);
    for (uint32_t i = 0; i < d->w->n_subjects && percent(d, 95); i++) {
        subject *s = &d->w->subjects[(first + i) % d->w->n_subjects];
        if (s->is_open && !s->is_swapped && is_out(d, s))
            return s;
    }
    return any;
}

void drive_window_op(drive *d)
{
    static const kvp_status also[] = {KVP_E_DROPPED};
    uint64_t *points = d->seen->points;
    subject *s = pick_out(d);
    if (s == NULL)
        return;
    const bool goes_on = percent(d, 40);
    const uint32_t group = below(d, d->w->config.n_groups);
    const kvp_window window = draw_own(d, s, group);
    const kvp_window told = told_window(d, group, window);
    const bool was_own = !is_same(s->windows[group], watch_window(d->w, group));
    drive_trace(d, "window #%" PRIu64 " group %" PRIu32 ": %" PRIu32 " sinks, %" PRIu32 " recent",
                s->serial, group, window.sink_tokens, window.recent_tokens);
    if (!drive_went(d, "kvp_seq_window", kvp_seq_window(d->w->cache, s->handle, group, told, NULL),
                    also, 1))
        return;
    s->windows[group] = window;
    const bool is_own = !is_same(window, watch_window(d->w, group));
    points[COVER_own_windows] += is_own;
    points[COVER_own_windows_set_back] += was_own && !is_own;
    points[COVER_own_windows_while_out] += is_out(d, s);
    if (goes_on)
        drive_step(d, NULL); /* others take what was given up */
}

/* seq_windows: layer groups and sliding windows; windows.h says what is kept.
 *
 * A sequence has a window for each group, in an array beside its rows. What a group has dropped is
 * one run of null entries behind its sinks:
 *
 *   row      s s 0 0 0 0 r r r r .          sinks | dropped | recent, and what is not computed
 *            0   ^       ^       ^
 *                sinks   dropped computed / S, of the group
 *
 * The run only grows at its end, by commits; a new window may move its beginning down, to fewer
 * sinks. A cut of the row may take its end away. Sequences that never had a window have nothing of
 * this: seq->windowed is 0, and their array is zero.
 */
#include "core/cache/blocks.h"
#include "core/cache/dropped.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/seq/seq_windows.h"

#include <string.h>

/* The last query that may still be run: when all was hit, the last token is run again. */
static uint32_t next_query(const struct kvpi_seq *seq)
{
    return kvpi_min_u32(seq->computed, seq->tokens - (seq->tokens > 0));
}

void kvpi_windows_open(const kvp_cache *cache, struct kvpi_seq *seq, int receives)
{
    struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    if (cache->table.retains) {
        *kvpi_parted(&cache->table, seq) = UINT32_MAX;
    }
    const uint32_t q = receives ? seq->tokens - (seq->tokens > 0) : next_query(seq);
    const uint32_t n_tokens = receives ? seq->tokens : seq->computed; /* as if computed */
    for (uint32_t g = 0; g < cache->config.n_groups && cache->grouped; g++) {
        windows[g] = kvpi_window_of_group(&cache->config.groups[g]);
        seq->windowed |= windows[g].recent > 0 ? KVPI_WINDOWED : 0;
        kvpi_set_dropped(cache, g, &windows[g],
                         kvpi_min_u32(kvpi_window_end(cache, g, &windows[g], q),
                                      n_tokens / kvpi_block_tokens(cache, g)));
    }
    if (receives && (seq->windowed & KVPI_WINDOWED)) {
        seq->windowed |= KVPI_WINDOWED_AHEAD;
    }
}

void kvpi_windows_take(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    for (uint32_t t = kvpi_entry_from(cache, seq->room); t < end;
         t = kvpi_entry_from(cache, t + 1)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const uint32_t i = t / kvpi_block_tokens(cache, g);
            if (!kvpi_entry_begins(cache, g, t)) {
                continue;
            }
            const int is_dropped =
                i < windows[g].dropped && i >= kvpi_sink_blocks(cache, g, &windows[g]);
            kvpi_row(cache, seq, g)[i] =
                is_dropped ? KVP_NULL_BLOCK
                           : (int32_t)kvpi_take_block(cache, KVPI_WHERE(KVP_DEVICE, g),
                                                      seq->retention, seq->ns.bits);
        }
    }
    kvpi_set32(&seq->room, kvpi_max_u32(seq->room, end));
}

void kvpi_windows_close(const kvp_cache *cache, struct kvpi_seq *seq)
{
    memset(kvpi_windows_of(cache, seq), 0, cache->config.n_groups * sizeof(struct kvpi_window));
    seq->windowed = 0;
}

void kvpi_windows_fork(const kvp_cache *cache, const struct kvpi_seq *parent,
                       const struct kvpi_seq *child)
{
    struct kvpi_window *windows = kvpi_windows_of(cache, child);
    memcpy(windows, kvpi_windows_of(cache, parent),
           cache->config.n_groups * sizeof(struct kvpi_window));
    if (cache->table.retains) {
        *kvpi_parted(&cache->table, child) = *kvpi_parted(&cache->table, parent);
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t end = kvpi_min_u32(kvpi_window_end(cache, g, &windows[g], child->computed),
                                          kvpi_row_entries(cache, child, g));
        int32_t *row = kvpi_row(cache, child, g);
        for (uint32_t i = kvpi_sink_blocks(cache, g, &windows[g]); i < end; i++) {
            row[i] = KVP_NULL_BLOCK;
        }
        kvpi_set_dropped(cache, g, &windows[g], end);
    }
}

/* What is to be dropped of each group's row: the entries [first, end). */
struct drops {
    uint32_t first[KVP_GROUPS_MAX];
    uint32_t end[KVP_GROUPS_MAX];
};

/* The group whose last entry to be dropped begins last, of several the last one; n_groups: none. */
static uint32_t last_drop(const kvp_cache *cache, const struct drops *drops)
{
    uint32_t last = cache->config.n_groups;
    uint32_t at = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t t = (drops->end[g] - 1) * kvpi_block_tokens(cache, g);
        if (drops->end[g] > drops->first[g] && t >= at) {
            last = g;
            at = t;
        }
    }
    return last;
}

/* Gives how many there were: none that is null already. */
static uint32_t drop_entry(kvp_cache *cache, struct kvpi_seq *seq, uint32_t group, uint32_t i,
                           kvp_released *released)
{
    int32_t *entry = &kvpi_row(cache, seq, group)[i];
    const uint32_t block = (uint32_t)*entry;
    if (block == KVP_NULL_BLOCK) {
        return 0;
    }
    *entry = KVP_NULL_BLOCK;
    kvpi_leave_block(cache, seq, block, released);
    if (kvpi_unlikely(cache->table.retains)) {
        const uint32_t t = i * kvpi_block_tokens(cache, group);
        if (!kvpi_is_needed_at(cache, group, i, kvpi_place_behind(cache, seq, t))) {
            kvpi_pool_put_first(kvpi_tier_pool(cache, seq->tier), block);
        }
    }
    return 1;
}

/* What lies before what the windows keep with the next query at q, behind what they have dropped;
 * of `changed` behind the sinks, which may be fewer than they were. Nothing: most steps of
 * decoding. */
static int find_drops(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t q,
                      uint32_t changed, struct drops *out)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    int found = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const struct kvpi_window *window = &windows[g];
        out->first[g] = out->end[g] = window->dropped;
        if (g != changed &&
            kvpi_window_begin(window, q, kvpi_block_tokens(cache, g)) <= window->dropped) {
            continue;
        }
        const uint32_t sinks = kvpi_sink_blocks(cache, g, window);
        const uint32_t end =
            kvpi_min_u32(kvpi_window_end(cache, g, window, q), kvpi_row_entries(cache, seq, g));
        out->first[g] = g == changed ? sinks : kvpi_max_u32(sinks, window->dropped);
        out->end[g] = kvpi_max_u32(end, window->dropped);
        found = 1;
    }
    return found;
}

static void drop(kvp_cache *cache, struct kvpi_seq *seq, uint32_t q, uint32_t changed,
                 kvp_released *released)
{
    struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    struct drops drops = {{0}, {0}};
    uint32_t n = 0;
    if (!find_drops(cache, seq, q, changed, &drops)) {
        return;
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        kvpi_set_dropped(cache, g, &windows[g], drops.end[g]);
    }
    for (uint32_t g; (g = last_drop(cache, &drops)) < cache->config.n_groups;) {
        n += drop_entry(cache, seq, g, --drops.end[g], released);
    }
    kvpi_set(&seq->row_version, seq->row_version + (n > 0));
    kvpi_count(&cache->counters.dropped_blocks, n);
}

void kvpi_windows_drop(kvp_cache *cache, struct kvpi_seq *seq, kvp_released *released)
{
    drop(cache, seq, seq->computed, KVP_GROUPS_MAX, released);
    seq->windowed &= (uint16_t)~KVPI_WINDOWED_AHEAD; /* what was received is there */
}

/* --------------------------------------------------------------------- a sequence's own window */

/* The first position whose query does not see every key before it. */
static uint64_t full_until(const struct kvpi_window *window)
{
    return window->recent == 0 ? UINT64_MAX : (uint64_t)window->sink + window->recent;
}

/* Does the window keep an entry that is null, with the next query at the computed tokens? */
static int keeps_dropped(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                         const struct kvpi_window *wanted)
{
    const struct kvpi_window *had = &kvpi_windows_of(cache, seq)[group];
    return had->dropped > 0 &&
           (kvpi_sink_blocks(cache, group, wanted) > kvpi_sink_blocks(cache, group, had) ||
            kvpi_window_begin(wanted, seq->computed, kvpi_block_tokens(cache, group)) <
                had->dropped);
}

/* What it computes from here on is not what others compute. */
static void end_window_publishing(const kvp_cache *cache, struct kvpi_seq *seq, uint32_t group,
                                  const struct kvpi_window *window)
{
    const struct kvpi_window config = kvpi_window_of_group(&cache->config.groups[group]);
    uint64_t from = full_until(window);
    from = full_until(&config) < from ? full_until(&config) : from;
    from = from < seq->computed ? seq->computed : from;
    if ((window->sink != config.sink || window->recent != config.recent ||
         window->chunked != config.chunked) &&
        from < seq->uncached_from) {
        seq->uncached_from = (uint32_t)from;
        kvpi_set32(&seq->n_public,
                   kvpi_min_u32(seq->n_public, seq->uncached_from / cache->config.unit_tokens));
    }
}

void kvpi_windows_back(const kvp_cache *cache, struct kvpi_seq *seq)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        end_window_publishing(cache, seq, g, &windows[g]);
    }
}

static kvp_status set_window(kvp_cache *cache, kvp_seq handle, uint32_t group, kvp_window window,
                             kvp_released *released)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (group >= cache->config.n_groups || (window.recent_tokens == 0 && window.sink_tokens > 0)) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    const struct kvpi_window wanted = kvpi_window_of(window);
    if (keeps_dropped(cache, seq, group, &wanted)) {
        return KVP_E_DROPPED;
    }
    kvpi_begin_change(cache);
    struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    windows[group].sink = wanted.sink;
    windows[group].recent = wanted.recent;
    windows[group].chunked = wanted.chunked;
    seq->windowed |= KVPI_WINDOWED;
    end_window_publishing(cache, seq, group, &wanted);
    drop(cache, seq, next_query(seq), group, released);
    return KVP_OK;
}

kvp_status kvp_seq_window(kvp_cache *cache, kvp_seq seq, uint32_t group, kvp_window window,
                          kvp_released *out_released)
{
    kvp_released released = {0, 0};
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = set_window(cache, seq, group, window, &released);
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, 0);
    } else if (out_released != NULL) {
        *out_released = released;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_window(&cache->recorder, seq, group, window, status, &released);
    }
    return kvpi_leave(cache, status);
}

static void fill_info(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                      kvp_window_info *out)
{
    const struct kvpi_window *window = &kvpi_windows_of(cache, seq)[group];
    out->window = kvpi_window_given(window);
    out->dropped_begin = window->dropped > 0 ? kvpi_sink_blocks(cache, group, window) : 0;
    out->dropped_end = window->dropped;
}

kvp_status kvp_seq_window_get(const kvp_cache *cache, kvp_seq seq, uint32_t group,
                              kvp_window_info *out_info)
{
    if (cache == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    const kvp_status status = s == NULL                         ? KVP_E_HANDLE
                              : group >= cache->config.n_groups ? KVP_E_ARG
                                                                : KVP_OK;
    if (status == KVP_OK) {
        fill_info(cache, s, group, out_info);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_window_get((struct kvpi_recorder *)(uintptr_t)&cache->recorder, seq, group,
                                   status, out_info);
    }
    return status;
}

/* dropped: which entries of a row its window has dropped. */
#include "core/cache/dropped.h"
#include "core/cache/states.h"

int kvpi_windows_lack(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t q, uint32_t n)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const struct kvpi_window *window = &windows[g];
        /* The first line is part of the second, and enough for most steps. */
        if (window->dropped > kvpi_window_begin(window, q, kvpi_block_tokens(cache, g)) &&
            kvpi_min_u32(window->dropped, kvpi_row_length(cache, g, n)) >
                kvpi_window_end(cache, g, window, q)) {
            return 1;
        }
    }
    return 0;
}

static uint32_t nearer(uint32_t place, uint32_t other, uint32_t t)
{
    return other > t ? kvpi_min_u32(place, other) : place;
}

uint32_t kvpi_place_behind(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t t)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t last = seq->prompt - (seq->prompt > 0);
    const uint64_t N = cache->config.retain_tokens;
    const uint64_t multiple = ((uint64_t)t / N + 1) * N;
    uint32_t place = multiple <= cache->table.max_tokens ? (uint32_t)multiple : UINT32_MAX;
    place = nearer(place, seq->prompt - seq->prompt % U, t);
    place = nearer(place, last - last % U, t);
    place = nearer(place, seq->cached - seq->cached % U, t);
    return nearer(place, *kvpi_parted(&cache->table, seq), t);
}

int kvpi_is_needed_at(const kvp_cache *cache, uint32_t group, uint32_t i, uint32_t e)
{
    const struct kvpi_window window = kvpi_window_of_group(&cache->config.groups[group]);
    return window.recent == 0 || i < kvpi_sink_blocks(cache, group, &window) ||
           (e != UINT32_MAX && kvpi_window_begin(&window, e, kvpi_block_tokens(cache, group)) <= i);
}

uint32_t kvpi_windows_count_null(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    uint32_t n = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        n += windows[g].dropped -
             kvpi_min_u32(windows[g].dropped, kvpi_sink_blocks(cache, g, &windows[g]));
    }
    return n;
}

void kvpi_windows_cut(const kvp_cache *cache, struct kvpi_seq *seq)
{
    struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        kvpi_set_dropped(cache, g, &windows[g],
                         kvpi_min_u32(windows[g].dropped, kvpi_row_entries(cache, seq, g)));
    }
}

kvp_status kvpi_check_parts(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return ((seq->windowed & KVPI_WINDOWED) &&
            kvpi_windows_lack(cache, seq, seq->computed, seq->room)) ||
                   ((seq->windowed & KVPI_STATEFUL) && kvpi_states_of(cache, seq)->lost)
               ? KVP_E_DROPPED
               : KVP_OK;
}

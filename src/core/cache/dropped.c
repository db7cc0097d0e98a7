/* dropped: which entries of a row its window has dropped. */
#include "core/cache/dropped.h"
#include "core/cache/states.h"

int kvpi_windows_lack(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t q, uint32_t n)
{
    const struct kvpi_window *windows = kvpi_windows_of(cache, seq);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        if (kvpi_min_u32(windows[g].dropped, kvpi_row_length(cache, g, n)) >
            kvpi_window_end(cache, g, &windows[g], q)) {
            return 1;
        }
    }
    return 0;
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

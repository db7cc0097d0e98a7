/* dropped: which entries of a row its window has dropped (the figure is in windows.c). */
#ifndef KVPI_CACHE_DROPPED_H
#define KVPI_CACHE_DROPPED_H

#include "core/cache/state.h"

static inline uint32_t kvpi_sink_blocks(const kvp_cache *cache, uint32_t group,
                                        const struct kvpi_window *window)
{
    return kvpi_row_length(cache, group, window->sink);
}

static inline struct kvpi_window *kvpi_windows_of(const kvp_cache *cache,
                                                  const struct kvpi_seq *seq)
{
    return kvpi_windows(&cache->table, kvpi_seq_place(&cache->table, seq));
}

/* Where the run of null entries ends that the window implies with the next query at q; the sinks'
 * end when there is none. */
static inline uint32_t kvpi_window_end(const kvp_cache *cache, uint32_t group,
                                       const struct kvpi_window *window, uint32_t q)
{
    return kvpi_max_u32(kvpi_window_begin(window, q, kvpi_block_tokens(cache, group)),
                        kvpi_sink_blocks(cache, group, window));
}

/* Entries up to `end` are dropped; none when that is within the sinks. */
static inline void kvpi_set_dropped(const kvp_cache *cache, uint32_t group,
                                    struct kvpi_window *window, uint32_t end)
{
    window->dropped = end > kvpi_sink_blocks(cache, group, window) ? end : 0;
}

/* Would rows for n tokens keep an entry that was dropped, with the next query at q? */
int kvpi_windows_lack(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t q, uint32_t n);

/* KVP_E_DROPPED when the sequence cannot go on, for want of what was dropped, or of its state. */
kvp_status kvpi_check_parts(const kvp_cache *cache, const struct kvpi_seq *seq);

static inline kvp_status kvpi_check_windows(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_unlikely(seq->windowed != 0) ? kvpi_check_parts(cache, seq) : KVP_OK;
}

/* The first retained place of the sequence (windows.h) behind token t; UINT32_MAX: none. */
uint32_t kvpi_place_behind(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t t);

/* Does a hit that ends at token e need entry i of the group's row? `e` is the first place behind
 * the entry's first token: what that one does not need, none does. Each hit needs sinks, and all of
 * a group without a window. */
int kvpi_is_needed_at(const kvp_cache *cache, uint32_t group, uint32_t i, uint32_t e);

/* The rows were cut. */
void kvpi_windows_cut(const kvp_cache *cache, struct kvpi_seq *seq);

/* Entries of all groups that are null. */
uint32_t kvpi_windows_count_null(const kvp_cache *cache, const struct kvpi_seq *seq);

#endif

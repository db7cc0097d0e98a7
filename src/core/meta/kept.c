/* kept: what a window keeps for a step. Null entries are never among it: a step that needs
 * one is refused. */
#include "core/meta/kept.h"

#include "core/meta/meta.h"

static const struct kvpi_window *window_of(const kvp_cache *cache, const kvp_meta_batch *batch,
                                           const struct kvpi_span *span)
{
    return &kvpi_windows(&cache->table, kvpi_seq_place(&cache->table, span->seq))[batch->group];
}

int kvpi_span_lacks(const kvp_cache *cache, const kvp_meta_batch *batch,
                    const struct kvpi_span *span)
{
    const uint64_t S = kvpi_block_tokens(cache, batch->group);
    const struct kvpi_window *window = window_of(cache, batch, span);
    const uint32_t n = kvpi_min_u32(window->dropped, span->n_blocks);
    /* n > first / S, and n > ceil(sink / S), without dividing. */
    return n > 0 && n * S > kvpi_window_first(window, kvpi_span_query(span)) &&
           (n - 1) * S >= window->sink;
}

struct kvpi_kept kvpi_span_kept(const kvp_cache *cache, const kvp_meta_batch *batch,
                                const struct kvpi_span *span)
{
    const uint32_t S = kvpi_block_tokens(cache, batch->group);
    const struct kvpi_window *window = window_of(cache, batch, span);
    const uint32_t q = kvpi_span_query(span);
    static const struct kvpi_window none = {0, 0, 0, 0};
    struct kvpi_kept kept = {&none, 0, 0, 0, 0};
    if ((span->seq->windowed & KVPI_WINDOWED) == 0 || window->recent == 0) {
        return kept;
    }
    kept.window = window;
    kept.sink_len = kvpi_min_u32(window->sink, span->end);
    kept.first = kvpi_max_u32(kvpi_window_first(window, q), kept.sink_len);
    kept.n_head = kvpi_min_u32(kvpi_ceil_div(window->sink, S), span->n_blocks);
    kept.left_out = kept.first / S > kept.n_head ? kept.first / S - kept.n_head : 0;
    return kept;
}

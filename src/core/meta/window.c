/* window: windowed lists. CSR without the entries that no query of a step sees; see
 * meta.h.
 *
 * Which entries are left out follows from the window and the step's first query alone, so it does
 * not matter whether commit has dropped them yet. Null entries are always among them: a step that
 * needs one is refused.
 */
#include "core/cache/frame.h"
#include "core/meta/enter.h"
#include "core/meta/kept.h"
#include "core/meta/meta.h"
#include "core/meta/meta_tokens.h"

#include <string.h>

/* Give the number of entries listed. */
static uint32_t list_entries(const kvp_cache *cache, const kvp_meta_batch *batch,
                             const struct kvpi_span *span, const struct kvpi_kept *kept,
                             int32_t *out)
{
    const int32_t *row = kvpi_span_row(cache, batch, span);
    const uint32_t n = span->n_blocks - kept->left_out;
    if (out != NULL) {
        memcpy(out, row, kept->n_head * sizeof(*row));
        memcpy(out + kept->n_head, row + kept->n_head + kept->left_out,
               (n - kept->n_head) * sizeof(*row));
    }
    return n;
}

/* Positions, counted over kept keys. */
static void fill_relative(const kvp_cache *cache, const struct kvpi_span *span,
                          const struct kvpi_kept *kept, int32_t *out)
{
    const int32_t skipped = (int32_t)(kept->first - kept->sink_len);
    kvpi_fill_positions(cache, span, out);
    for (uint32_t i = 0; i < span->n_tokens; i++) {
        out[i] -= out[i] < (int32_t)kept->first ? 0 : skipped;
    }
}

static void put_window(uint32_t S, const struct kvpi_kept *kept, uint32_t b,
                       const kvp_meta_windowed *windowed)
{
    const uint32_t skipped_slots = kept->left_out * S;
    kvpi_put(windowed->sink_len, b, (int32_t)kept->sink_len);
    kvpi_put(windowed->window_offset, b, (int32_t)(kept->first - skipped_slots));
    kvpi_put(windowed->key_offset, b, (int32_t)(kept->first - kept->sink_len));
    const kvp_window window = kvpi_window_given(kept->window);
    if (windowed->sinks != NULL) {
        windowed->sinks[b] = window.sink_tokens;
    }
    if (windowed->recent != NULL) {
        windowed->recent[b] = window.recent_tokens;
    }
}

static void fill_windowed(const kvp_cache *cache, const kvp_meta_batch *batch,
                          const kvp_meta_windowed *windowed)
{
    const struct kvpi_token_arrays tokens = {kvpi_block_tokens(cache, batch->group),
                                             windowed->batch_indices, windowed->positions,
                                             windowed->slot_mapping};
    uint32_t n = 0;
    uint32_t e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        const struct kvpi_kept kept = kvpi_span_kept(cache, batch, &span);
        int32_t *list = windowed->kv_indices == NULL ? NULL : windowed->kv_indices + e;
        const uint32_t n_listed = list_entries(cache, batch, &span, &kept, list);
        kvpi_put_sum(windowed->qo_indptr, b, n, span.n_tokens);
        kvpi_put_sum(windowed->kv_indptr, b, e, n_listed);
        kvpi_put(windowed->last_block_len, b,
                 n_listed == 0 ? 0 : kvpi_last_block_len(cache, batch, &span));
        put_window(kvpi_block_tokens(cache, batch->group), &kept, b, windowed);
        kvpi_fill_tokens(cache, &span, kvpi_span_row(cache, batch, &span), b, n, &tokens);
        if (windowed->relative != NULL) {
            fill_relative(cache, &span, &kept, windowed->relative + n);
        }
        n += span.n_tokens;
        e += n_listed;
    }
}

kvp_status kvp_meta_fill_windowed(kvp_cache *cache, const kvp_meta_batch *batch,
                                  const kvp_meta_windowed *windowed)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    windowed = kvpi_sized(windowed, sizeof(*windowed));
    if (windowed == NULL) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    const int any_tokens = windowed->batch_indices != NULL || windowed->positions != NULL ||
                           windowed->slot_mapping != NULL || windowed->relative != NULL;
    if ((windowed->kv_indices != NULL && windowed->max_entries < sizes.n_kept) ||
        (any_tokens && windowed->max_tokens < sizes.n_tokens)) {
        status = KVP_E_TOO_SMALL;
    } else {
        fill_windowed(cache, batch, windowed);
    }
    return kvpi_leave(cache, status);
}

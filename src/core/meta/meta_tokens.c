/* meta_tokens: what formats have of each token: sequence, position, slot. */
#include "core/meta/meta_tokens.h"

#include "core/meta/meta.h"

const int32_t *kvpi_tree_depths(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    const int32_t *parents = kvpi_parents_of(cache, seq);
    int32_t *depths = kvpi_meta_scratch(cache);
    for (uint32_t j = 0; j < n; j++) {
        depths[j] = parents[j] < 0 ? 0 : depths[parents[j]] + 1;
    }
    return depths;
}

void kvpi_fill_positions(const kvp_cache *cache, const struct kvpi_span *span, int32_t *out)
{
    const uint32_t tokens = span->seq->tokens;
    const uint32_t end = kvpi_min_u32(span->end, tokens);
    for (uint32_t p = span->begin; p < end; p++) {
        *out++ = (int32_t)p;
    }
    if (span->end > tokens) {
        const int32_t *depths = kvpi_tree_depths(cache, span->seq, span->end - tokens);
        for (uint32_t p = kvpi_max_u32(span->begin, tokens); p < span->end; p++) {
            *out++ = (int32_t)tokens + depths[p - tokens];
        }
    }
}

/* -1 for tokens that are computed, else b. */
static void fill_batch_indices(const struct kvpi_span *span, uint32_t b, int32_t *out)
{
    const uint32_t computed = span->seq->computed;
    for (uint32_t p = span->begin; p < span->end; p++) {
        *out++ = p < computed ? -1 : (int32_t)b;
    }
}

/* KVP_NO_SLOT for tokens that are computed. */
static void fill_slots(uint32_t S, const struct kvpi_span *span, const int32_t *row, int64_t *out)
{
    const uint32_t computed = span->seq->computed;
    for (uint32_t p = span->begin; p < span->end; p++) {
        *out++ = p < computed ? KVP_NO_SLOT : (int64_t)row[p / S] * S + p % S;
    }
}

void kvpi_fill_many(const kvp_cache *cache, struct kvpi_span span, const int32_t *row, uint32_t b,
                    uint32_t n, const struct kvpi_token_arrays *out)
{
    if (out->batch_indices != NULL) {
        fill_batch_indices(&span, b, out->batch_indices + n);
    }
    if (out->positions != NULL) {
        kvpi_fill_positions(cache, &span, out->positions + n);
    }
    if (out->slot_mapping != NULL) {
        fill_slots(out->block_tokens, &span, row, out->slot_mapping + n);
    }
}

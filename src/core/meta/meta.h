/* meta: what the files that make metadata share.
 *
 * Every fill goes twice over the batch: once to check it and count (kvpi_meta_enter), once to
 * write. Nothing is written before everything is known to fit.
 */
#ifndef KVPI_CACHE_META_H
#define KVPI_CACHE_META_H

#include <kvpager/meta.h>

#include "core/cache/state.h"

/* What a step computes of one sequence. Positions here count nodes of its tree on behind its
 * tokens, as slots do. */
struct kvpi_span {
    const struct kvpi_seq *seq;
    uint32_t begin; /* position */
    uint32_t n_tokens;
    uint32_t end;
    uint32_t n_blocks; /* entries of the batch's group up to the end */
};

/* What a window keeps for a step: of a row's entries, and of the keys in them. All 0: everything.
 *
 *   row      | s s s . | . . . . | r r r r | r r r .      K = 3, S = 4
 *   entries    n_head    left_out                         1, 1
 *   keys       sink_len              first ...            3, 9
 */
struct kvpi_kept {
    const struct kvpi_window *window; /* never NULL; recent 0: keeps everything */
    uint32_t sink_len;                /* keys before the gap */
    uint32_t first;                   /* position of the first one after it */
    uint32_t n_head;                  /* entries that are listed before those that are left out */
    uint32_t left_out;
};

/* The first position that is not computed; when all are, the tree's, or else the last one. */
static inline uint32_t kvpi_default_begin(const struct kvpi_seq *seq)
{
    return seq->computed < seq->tokens ? seq->computed
           : seq->n_tree > 0           ? seq->tokens
                                       : seq->tokens - (seq->tokens > 0);
}

/* Sequence b of a batch, whose handle was found: it need not be right otherwise. */
static inline struct kvpi_span kvpi_span_of(const kvp_cache *cache, const kvp_meta_batch *batch,
                                            uint32_t b, const struct kvpi_seq *seq)
{
    const uint32_t all = seq->tokens + seq->n_tree;
    struct kvpi_span span = {seq, 0, 0, 0, 0};
    span.begin = batch->begin != NULL ? batch->begin[b] : kvpi_default_begin(seq);
    span.n_tokens = batch->n_tokens != NULL ? batch->n_tokens[b]
                    : span.begin < all      ? all - span.begin
                                            : 0;
    span.end = span.begin + span.n_tokens;
    span.n_blocks = kvpi_row_length(cache, batch->group, span.end);
    return span;
}

/* Sequence b of a batch that was checked: its handle is right, and only the place is looked at. */
static inline struct kvpi_span kvpi_meta_span(const kvp_cache *cache, const kvp_meta_batch *batch,
                                              uint32_t b)
{
    const struct kvpi_table *table = &cache->table;
    const uint32_t place = (uint32_t)batch->seqs[b].bits & ((1u << table->place_bits) - 1);
    return kvpi_span_of(cache, batch, b, kvpi_seq_at(table, place));
}

static inline const int32_t *kvpi_span_row(const kvp_cache *cache, const kvp_meta_batch *batch,
                                           const struct kvpi_span *span)
{
    return kvpi_group_row(&cache->table, batch->group, kvpi_seq_place(&cache->table, span->seq));
}

/* q of windows.h: the step's first query; the first position of a tree that it begins inside. */
static inline uint32_t kvpi_span_query(const struct kvpi_span *span)
{
    return kvpi_min_u32(span->begin, span->seq->tokens);
}

/* Nodes of the tree up to the end. */
static inline uint32_t kvpi_span_nodes(const struct kvpi_span *span)
{
    return span->end > span->seq->tokens ? span->end - span->seq->tokens : 0;
}

/* Tokens in the last block of the span. */
static inline int32_t kvpi_last_block_len(const kvp_cache *cache, const kvp_meta_batch *batch,
                                          const struct kvpi_span *span)
{
    const uint32_t S = kvpi_block_tokens(cache, batch->group);
    return span->n_blocks == 0 ? 0 : (int32_t)(span->end - (span->n_blocks - 1) * S);
}

/* Prefix sums of a count per sequence; no array: nothing. */
static inline void kvpi_put_sum(int32_t *indptr, uint32_t b, uint32_t before, uint32_t n)
{
    if (indptr != NULL) {
        indptr[b] = (int32_t)before;
        indptr[b + 1] = (int32_t)(before + n);
    }
}

static inline void kvpi_put(int32_t *array, uint32_t b, int32_t value)
{
    if (array != NULL) {
        array[b] = value;
    }
}

#endif

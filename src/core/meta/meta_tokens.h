/* meta_tokens: what formats have of each token: sequence, position, slot. */
#ifndef KVPI_META_TOKENS_H
#define KVPI_META_TOKENS_H

#include "core/meta/meta.h"

/* The arrays of T of a format; NULL: not wanted. */
struct kvpi_token_arrays {
    uint32_t block_tokens; /* S of the batch's group, whose slots they are */
    int32_t *batch_indices;
    int32_t *positions;
    int64_t *slot_mapping;
};

/* [max_tree], free between calls. */
static inline int32_t *kvpi_meta_scratch(const kvp_cache *cache)
{
    return kvpi_tree_tokens(&cache->table, kvpi_table_scratch(&cache->table));
}

static inline const int32_t *kvpi_parents_of(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_tree_parents(&cache->table, kvpi_seq_place(&cache->table, seq));
}

/* The depths of the first n nodes: in scratch, until the next call. */
const int32_t *kvpi_tree_depths(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* Positions of the step's tokens: a node's is by its depth. */
void kvpi_fill_positions(const kvp_cache *cache, const struct kvpi_span *span, int32_t *out);

/* Any number of tokens. The span is a copy, so that the caller's may stay in registers. */
void kvpi_fill_many(const kvp_cache *cache, struct kvpi_span span, const int32_t *row, uint32_t b,
                    uint32_t n, const struct kvpi_token_arrays *out);

/* A step of one token, which most are: no loops, no division. */
static inline void kvpi_fill_token(const struct kvpi_span *span, const int32_t *row, uint32_t b,
                                   uint32_t n, const struct kvpi_token_arrays *out)
{
    const int is_computed = span->begin < span->seq->computed;
    if (out->batch_indices != NULL) {
        out->batch_indices[n] = is_computed ? -1 : (int32_t)b;
    }
    if (out->positions != NULL) {
        out->positions[n] = (int32_t)span->begin;
    }
    if (out->slot_mapping != NULL) {
        const int64_t S = out->block_tokens;
        const uint32_t i = span->n_blocks - 1;
        out->slot_mapping[n] = is_computed ? KVP_NO_SLOT : row[i] * S + span->begin - i * S;
    }
}

/* Fill them for sequence b, whose first token is the n-th. */
static inline void kvpi_fill_tokens(const kvp_cache *cache, const struct kvpi_span *span,
                                    const int32_t *row, uint32_t b, uint32_t n,
                                    const struct kvpi_token_arrays *out)
{
    if (span->n_tokens == 1 && span->end <= span->seq->tokens) {
        kvpi_fill_token(span, row, b, n, out);
    } else if (span->n_tokens > 0) {
        kvpi_fill_many(cache, *span, row, b, n, out);
    }
}

#endif

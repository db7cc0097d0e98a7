/* attention_plan: cuts a batch into independent pieces of work of about the same size.
 *
 * A segment is a range of keys and all queries that see it: a sequence's own keys, or, in a
 * cascade, keys that several sequences share. So shared keys are read once for all of them. An item
 * is a part of a segment: some queries, some heads, some keys.
 *
 *                keys ->
 *     queries   [ split 0 | split 1 | split 2 ]     few queries: cut along the keys
 *        |      [ tile 0                      ]     many: cut along the queries,
 *        v      [ tile 1                      ]     and each head by itself
 *
 * If a query has one item for each of its heads, the item writes the result. Else items leave
 * partial results, which are merged. How a segment is cut depends only on the segment, so results
 * are the same for any number of threads.
 */
#ifndef KVPI_PLAN_H
#define KVPI_PLAN_H

#include "attention/keys.h"
#include "attention/scratch.h"

struct kvpi_segment {
    uint32_t first_query; /* in the order of the cascade */
    uint32_t n_queries;
    uint32_t seq; /* one of those that have the keys */
    uint32_t key_begin;
    uint32_t key_end;
    uint32_t split_keys;
    uint32_t n_splits;
    uint32_t heads;      /* of an item: H or 1 */
    uint32_t is_shared;  /* every query sees every key */
    uint32_t is_listed;  /* one query at a time, its keys in a list of their own */
    uint64_t first_item; /* items of the segments before */
    uint64_t first_part; /* likewise partial results, [n_splits, n_queries] */
};

struct kvpi_plan {
    const struct kvpi_batch *batch;
    uint32_t tile_queries; /* of an item, at most */
    uint32_t n_segments;
    uint64_t n_items;
    uint64_t n_parts;              /* partial results: of all heads of a query */
    struct kvpi_segment *segments; /* [n_levels * B] */
    int32_t *seq_segments;         /* [n_levels, B] each sequence's segments, in order of keys */
    uint32_t *depths;              /* [B] how many; 0: no queries */
    int32_t *token_of;             /* [T] row of q of each query, in the order of the cascade */
    int32_t *seq_of;               /* [T] */
};

struct kvpi_item {
    const struct kvpi_segment *segment;
    uint32_t first_query; /* of the segment's */
    uint32_t n_queries;
    uint32_t first_head;
    uint32_t n_heads;
    uint32_t key_begin;
    uint32_t key_end;
    uint32_t split;
};

/* Queries that an item may have. */
uint32_t kvpi_plan_tile_queries(const kvp_attention *attention);

/* KV heads of an item with that many queries. */
uint32_t kvpi_plan_heads(const kvp_attention *attention, uint32_t n_queries);

/* Partial results that a batch can have, whatever the order of its cascade. */
uint64_t kvpi_plan_max_parts(const kvp_attention *attention);

void kvpi_plan_scratch(struct kvpi_plan *out, const kvp_attention *attention,
                       struct kvpi_scratch *scratch);

/* Cut a valid batch. `places` as kvpi_batch_make leaves it. */
void kvpi_plan_make(struct kvpi_plan *plan, const struct kvpi_batch *batch, const int32_t *places);

struct kvpi_item kvpi_plan_item(const struct kvpi_plan *plan, uint64_t index);

/* Does the item write the result itself? */
static inline int kvpi_plan_is_whole(const struct kvpi_plan *plan,
                                     const struct kvpi_segment *segment)
{
    return segment->n_splits == 1 && !segment->is_shared && plan->depths[segment->seq] == 1;
}

#endif

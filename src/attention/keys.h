/* keys: from the metadata of a batch to "the keys that this query sees, and where they lie".
 *
 * Dense tables, CSR lists, lists without dropped blocks and cascades all become one picture: a
 * sequence has the lists of its row in each level, put one after the other,
 *
 *     level 0        level 1   level 2
 *     [7 7 7 7|3 3 3 3][5 5 5 5][9 9 - -]      list slots 0, 1, 2, ...
 *      ^ sink_len ^ window_offset              key i: list slot i, or i - sink_len + window_offset
 *
 * and everything else asks for key numbers.
 */
#ifndef KVPI_KEYS_H
#define KVPI_KEYS_H

#include "kvpager/attention.h"

/* A batch whose metadata was checked. */
struct kvpi_batch {
    const kvp_attention *attention;
    int32_t *rows; /* [n_levels, B] the row of each sequence in each level */
};

/* One sequence of it. */
struct kvpi_keys {
    const struct kvpi_batch *batch;
    uint32_t seq;
    uint32_t n_keys;
    uint32_t n_queries;
    uint32_t n_committed;           /* keys that are not in a tree: the first ones */
    uint32_t first_query;           /* row of q */
    uint32_t sink_len;              /* keys before the gap */
    uint32_t gap_slots;             /* list slots that the gap skips */
    uint32_t gap_keys;              /* positions that it skips */
    uint32_t sinks;                 /* K */
    uint32_t recent;                /* R; 0: no window */
    int chunked;                    /* R is the length of a chunk; K is 0 */
    const int32_t *query_positions; /* [n_queries] or NULL: the mask says */
    const int32_t *intervals;       /* [n_keys - n_committed, 2] or NULL */
    const uint8_t *bits;            /* [n_queries, n_keys] or NULL */
};

/* Check the levels' own arrays: all that needs no scratch memory, except the ids in `blocks`. */
int kvpi_levels_are_valid(const kvp_attention *attention);

/* Most keys that a sequence can have, whatever rows it uses. */
uint64_t kvpi_levels_max_keys(const kvp_attention *attention);

/* Find each sequence's rows; 0 when the order or the levels do not fit the batch. `places` [B] is
 * scratch memory. */
int kvpi_batch_make(struct kvpi_batch *batch, const kvp_attention *attention, int32_t *places);

/* Does a query ask for a sequence's keys? The rest of its arrays is not looked at if not. */
static inline int kvpi_batch_asks(const struct kvpi_batch *batch, uint32_t seq)
{
    const int32_t *query_start = batch->attention->query_start;
    return query_start[seq + 1] > query_start[seq];
}

/* Look a sequence that has queries up; 0 when its arrays do not fit each other. */
int kvpi_keys_make(struct kvpi_keys *keys, const struct kvpi_batch *batch, uint32_t seq);

/* Check that each block that its queries need is there. `seen` [n_keys] is scratch memory. */
int kvpi_keys_are_there(const struct kvpi_keys *keys, uint32_t *seen);

/* Collect the numbers of the keys that a query (0, 1, ... of its sequence) sees, ascending. */
uint32_t kvpi_keys_seen(const struct kvpi_keys *keys, uint32_t query, uint32_t *out_seen);

/* The slot in KV memory of a key. */
int64_t kvpi_keys_slot(const struct kvpi_keys *keys, uint32_t key);

/* Keys that follow each other in one block: of a key, and what comes after it. */
struct kvpi_span {
    int32_t block;
    uint32_t offset; /* in the block */
    uint32_t n_keys; /* 1 or more */
};

struct kvpi_span kvpi_keys_span(const struct kvpi_keys *keys, uint32_t key);

/* What a query sees without a mask and a tree: keys [0, sink_end) and [first, end), if first is
 * below end. */
struct kvpi_reach {
    uint32_t sink_end;
    uint32_t first;
    uint32_t end;
};

struct kvpi_reach kvpi_keys_reach(const struct kvpi_keys *keys, uint32_t query);

/* May a query see a key, as far as tree and bits say? */
int kvpi_keys_may_see(const struct kvpi_keys *keys, uint32_t query, uint32_t key);

/* Is there something besides the reach that decides? */
static inline int kvpi_keys_have_mask(const struct kvpi_keys *keys)
{
    return keys->bits != NULL || keys->intervals != NULL;
}

/* Without a mask that says otherwise, queries are the last keys. */
static inline int kvpi_keys_are_causal(const struct kvpi_keys *keys)
{
    return keys->bits == NULL && (keys->batch->attention->causal || keys->intervals != NULL);
}

/* The keys that a row of a level has. */
uint64_t kvpi_level_row_keys(const kvp_attention_level *level, uint32_t row, uint32_t block_tokens);

#endif

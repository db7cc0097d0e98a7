/* attention_plan: see the header. Sizes: an item of few queries reads about half a MiB of KV,
 * so that threads have items to share from two thousand keys of a small model on, and beginning
 * one costs little. */
#include "attention/attention_plan.h"

enum {
    SPLIT_BYTES = 512 << 10, /* of an item of up to SPLIT_ROWS rows */
    MIN_SPLIT_KEYS = 512,    /* of it, whatever their size is */
    MAX_SPLIT_KEYS = 2048,
    MANY_SPLITS = 32, /* of a segment: from so many on, they become longer, not more */
    SPLIT_ROWS = 16,
    MAX_ROWS = 128,     /* of an item: rows of queries that share a KV head */
    ALL_HEADS_ROWS = 64 /* up to so many, an item has all heads: a block is read from end to end */
};

static uint32_t group_of(const kvp_attention *attention)
{
    return attention->n_heads / attention->layer->n_heads;
}

uint32_t kvpi_plan_tile_queries(const kvp_attention *attention)
{
    const uint32_t group = group_of(attention);
    return group >= MAX_ROWS ? 1 : MAX_ROWS / group;
}

uint32_t kvpi_plan_heads(const kvp_attention *attention, uint32_t n_queries)
{
    const uint64_t rows = (uint64_t)n_queries * group_of(attention);
    return rows <= ALL_HEADS_ROWS ? attention->layer->n_heads : 1;
}

/* Keys of a split of few rows, whole tiles. Not of the number of threads: results are the same. */
static uint32_t few_rows_keys(const kvp_attention *attention)
{
    const kvp_layer *layer = attention->layer;
    const uint64_t elements =
        ((uint64_t)layer->k.size + (layer->v.base != NULL ? layer->v.size : 0)) * layer->n_heads;
    const uint64_t element = layer->type == KVP_F32                              ? 4
                             : layer->type == KVP_F16 || layer->type == KVP_BF16 ? 2
                                                                                 : 1;
    const uint64_t n = SPLIT_BYTES / (elements * element) / 64 * 64;
    return n < MIN_SPLIT_KEYS ? MIN_SPLIT_KEYS
                              : (uint32_t)(n < MAX_SPLIT_KEYS ? n : MAX_SPLIT_KEYS);
}

/* Keys of a split of a segment. */
static uint32_t split_keys(const kvp_attention *attention, uint32_t n_queries, uint32_t n_keys)
{
    const uint64_t rows = (uint64_t)n_queries * group_of(attention);
    const uint64_t times = (rows + SPLIT_ROWS - 1) / SPLIT_ROWS;
    const uint32_t least = few_rows_keys(attention), share = n_keys / MANY_SPLITS / 64 * 64;
    const uint32_t most = share < MAX_SPLIT_KEYS ? share : MAX_SPLIT_KEYS;
    const uint32_t n = least > most ? least : most;
    return times <= 1 ? n : (uint32_t)(n * times);
}

/* ------------------------------------------------------------------------------------- how much */

/* Queries that look at a row of a level. */
static uint32_t row_queries(const kvp_attention *attention, const kvp_attention_level *level,
                            uint32_t row)
{
    if (level->query_start != NULL)
        return (uint32_t)(level->query_start[row + 1] - level->query_start[row]);
    const int32_t seq = attention->order != NULL ? attention->order[row] : (int32_t)row;
    if (seq < 0 || (uint32_t)seq >= attention->n_seqs)
        return 0; /* such an order is refused */
    return (uint32_t)(attention->query_start[seq + 1] - attention->query_start[seq]);
}

/* Queries of sequences whose keys may be split. */
static uint64_t count_split_queries(const kvp_attention *attention)
{
    const uint32_t tile = kvpi_plan_tile_queries(attention);
    uint64_t n = 0;
    for (uint32_t seq = 0; seq < attention->n_seqs; seq++) {
        const int32_t *start = attention->query_start + seq;
        const uint32_t n_queries = (uint32_t)(start[1] - start[0]);
        n += n_queries <= tile ? n_queries : 0;
    }
    return n;
}

/* A row's keys are part of one segment for each of its queries, perhaps with other rows' keys. Only
 * where sequences of few queries look at them, there is more than one split. */
uint64_t kvpi_plan_max_parts(const kvp_attention *attention)
{
    const uint64_t n_split = count_split_queries(attention), n_keys_of = few_rows_keys(attention);
    uint64_t n = 0;
    for (uint32_t i = 0; i < attention->n_levels; i++) {
        const kvp_attention_level *level = &attention->levels[i];
        for (uint32_t row = 0; row < level->n_rows; row++) {
            const uint64_t n_keys = kvpi_level_row_keys(level, row, attention->layer->block_tokens);
            const uint64_t most = n_keys < INT32_MAX ? n_keys : INT32_MAX;
            const uint64_t n_splits = (most + n_keys_of - 1) / n_keys_of;
            const uint64_t n_queries = row_queries(attention, level, row);
            if (attention->n_levels > 1)
                n += n_queries + (n_queries < n_split ? n_queries : n_split) * n_splits;
            else if (n_queries <= kvpi_plan_tile_queries(attention) && n_splits > 1)
                n += n_queries * n_splits;
        }
    }
    return n;
}

void kvpi_plan_scratch(struct kvpi_plan *out, const kvp_attention *attention,
                       struct kvpi_scratch *scratch)
{
    const uint64_t n_seqs = attention->n_seqs, n_tokens = attention->n_tokens;
    const uint64_t n = n_seqs * attention->n_levels;
    out->segments = kvpi_scratch_take(scratch, n, sizeof *out->segments);
    out->seq_segments = kvpi_scratch_take(scratch, n, sizeof *out->seq_segments);
    out->depths = kvpi_scratch_take(scratch, n_seqs, sizeof *out->depths);
    out->token_of = kvpi_scratch_take(scratch, n_tokens, sizeof *out->token_of);
    out->seq_of = kvpi_scratch_take(scratch, n_tokens, sizeof *out->seq_of);
}

/* ------------------------------------------------------------------------------------- segments */

static uint32_t n_queries_of(const struct kvpi_batch *batch, int32_t seq)
{
    const int32_t *start = batch->attention->query_start;
    return (uint32_t)(start[seq + 1] - start[seq]);
}

/* The number of a sequence's keys in its segments so far. */
static uint32_t keys_before(const struct kvpi_plan *plan, int32_t seq)
{
    const uint32_t depth = plan->depths[seq];
    if (depth == 0)
        return 0;
    const size_t at = (size_t)(depth - 1) * plan->batch->attention->n_seqs + (uint32_t)seq;
    return plan->segments[plan->seq_segments[at]].key_end;
}

static int32_t segment_before(const struct kvpi_plan *plan, int32_t seq)
{
    const uint32_t depth = plan->depths[seq];
    const size_t at = (size_t)(depth - 1) * plan->batch->attention->n_seqs + (uint32_t)seq;
    return depth == 0 ? -1 : plan->seq_segments[at];
}

static void give_segment(struct kvpi_plan *plan, int32_t seq, uint32_t segment)
{
    const size_t at = (size_t)plan->depths[seq]++ * plan->batch->attention->n_seqs + (uint32_t)seq;
    plan->seq_segments[at] = (int32_t)segment;
}

/* What cannot be said with a range and a mask for each tile: positions that depend on what else a
 * query sees. */
static int needs_list(const struct kvpi_keys *keys)
{
    const int has_mask = kvpi_keys_have_mask(keys), has_window = keys->recent != 0;
    const int turns = keys->batch->attention->rope.mode == KVP_ROPE_AT_READ;
    return (has_mask && (has_window || turns)) || (has_window && turns);
}

/* Do all queries of a sequence see all of its first keys, with nothing else to decide? */
static int sees_all(const struct kvpi_plan *plan, int32_t seq, uint64_t n_first)
{
    struct kvpi_keys keys;
    (void)kvpi_keys_make(&keys, plan->batch, (uint32_t)seq);
    if (keys.recent != 0 || keys.gap_slots != 0 || keys.gap_keys != 0 || keys.bits != NULL ||
        n_first > keys.n_committed || needs_list(&keys))
        return 0;
    return !kvpi_keys_are_causal(&keys) || n_first <= keys.n_keys - keys.n_queries + 1;
}

/* Can a sequence look at this level's row together with the one that began the segment? */
static int joins(const struct kvpi_plan *plan, uint32_t level, int32_t seq, int32_t first)
{
    const kvp_attention *attention = plan->batch->attention;
    const int32_t *rows = plan->batch->rows + (size_t)level * attention->n_seqs;
    const uint64_t n = kvpi_level_row_keys(&attention->levels[level], (uint32_t)rows[seq],
                                           attention->layer->block_tokens);
    return plan->depths[seq] == level && rows[seq] == rows[first] &&
           segment_before(plan, seq) == segment_before(plan, first) && n > 0 &&
           sees_all(plan, seq, keys_before(plan, seq) + n);
}

/* Sequences at places [begin, end) share a row: one segment, if there are two that ask. */
static void share(struct kvpi_plan *plan, uint32_t level, const int32_t *places,
                  const uint32_t range[3])
{
    const struct kvpi_batch *batch = plan->batch;
    const kvp_attention *attention = batch->attention;
    const int32_t first = places[range[0]];
    uint32_t n_asking = 0;
    struct kvpi_segment *segment = &plan->segments[plan->n_segments];
    *segment = (struct kvpi_segment){.first_query = range[2],
                                     .seq = (uint32_t)first,
                                     .key_begin = keys_before(plan, first),
                                     .is_shared = 1};
    const uint32_t row = (uint32_t)batch->rows[(size_t)level * attention->n_seqs + (uint32_t)first];
    segment->key_end =
        segment->key_begin + (uint32_t)kvpi_level_row_keys(&attention->levels[level], row,
                                                           attention->layer->block_tokens);
    for (uint32_t place = range[0]; place < range[1]; place++) {
        segment->n_queries += n_queries_of(batch, places[place]);
        n_asking += n_queries_of(batch, places[place]) > 0;
    }
    if (n_asking < 2)
        return;
    for (uint32_t place = range[0]; place < range[1]; place++) {
        if (n_queries_of(batch, places[place]) > 0)
            give_segment(plan, places[place], plan->n_segments);
    }
    plan->n_segments++;
}

static void share_level(struct kvpi_plan *plan, uint32_t level, const int32_t *places)
{
    const struct kvpi_batch *batch = plan->batch;
    const uint32_t n_seqs = batch->attention->n_seqs;
    uint32_t query = 0, end;
    if (batch->attention->levels[level].query_start == NULL)
        return; /* a row for each sequence */
    for (uint32_t begin = 0; begin < n_seqs; begin = end) {
        const uint32_t first_query = query, is_asking = n_queries_of(batch, places[begin]) > 0;
        query += n_queries_of(batch, places[begin]);
        end = begin + 1;
        if (!is_asking || !joins(plan, level, places[begin], places[begin]))
            continue;
        while (end < n_seqs && (n_queries_of(batch, places[end]) == 0 ||
                                joins(plan, level, places[end], places[begin]))) {
            query += n_queries_of(batch, places[end]);
            end++;
        }
        share(plan, level, places, (const uint32_t[3]){begin, end, first_query});
    }
}

/* What a sequence does not share. */
static void keep_alone(struct kvpi_plan *plan, int32_t seq, uint32_t first_query)
{
    struct kvpi_keys keys;
    (void)kvpi_keys_make(&keys, plan->batch, (uint32_t)seq);
    plan->segments[plan->n_segments] =
        (struct kvpi_segment){.first_query = first_query,
                              .n_queries = keys.n_queries,
                              .seq = (uint32_t)seq,
                              .key_begin = keys_before(plan, seq),
                              .key_end = keys.n_keys,
                              .is_listed = (uint32_t)needs_list(&keys)};
    give_segment(plan, seq, plan->n_segments++);
}

/* Cut a segment: its splits, and where its items and parts begin. */
static void cut(struct kvpi_plan *plan, struct kvpi_segment *segment)
{
    const kvp_attention *attention = plan->batch->attention;
    const uint32_t tile = segment->is_listed ? 1 : plan->tile_queries;
    const uint32_t n_tiles = (segment->n_queries + tile - 1) / tile;
    const uint32_t n_keys = segment->key_end - segment->key_begin;
    segment->split_keys = split_keys(attention, segment->n_queries, n_keys);
    segment->n_splits = n_keys / segment->split_keys + (n_keys % segment->split_keys != 0);
    if (n_tiles > 1 || segment->is_listed || segment->n_splits == 0)
        segment->n_splits = 1;
    if (segment->n_splits == 1)
        segment->split_keys = n_keys;
    segment->heads = n_tiles > 1 && !segment->is_listed
                         ? 1
                         : kvpi_plan_heads(attention, segment->is_listed ? 1 : segment->n_queries);
    segment->first_item = plan->n_items;
    segment->first_part = plan->n_parts;
    plan->n_items +=
        (uint64_t)n_tiles * segment->n_splits * (attention->layer->n_heads / segment->heads);
    if (!kvpi_plan_is_whole(plan, segment))
        plan->n_parts += (uint64_t)segment->n_splits * segment->n_queries;
}

void kvpi_plan_make(struct kvpi_plan *plan, const struct kvpi_batch *batch, const int32_t *places)
{
    const kvp_attention *attention = batch->attention;
    uint32_t query = 0;
    plan->batch = batch;
    plan->tile_queries = kvpi_plan_tile_queries(attention);
    plan->n_segments = 0;
    plan->n_items = plan->n_parts = 0;
    for (uint32_t seq = 0; seq < attention->n_seqs; seq++)
        plan->depths[seq] = 0;
    for (uint32_t level = 0; level + 1 < attention->n_levels; level++)
        share_level(plan, level, places);
    for (uint32_t place = 0; place < attention->n_seqs; place++) {
        const int32_t seq = places[place];
        const uint32_t n = n_queries_of(batch, seq);
        if (n > 0)
            keep_alone(plan, seq, query);
        for (uint32_t i = 0; i < n; i++) {
            plan->token_of[query + i] = attention->query_start[seq] + (int32_t)i;
            plan->seq_of[query + i] = seq;
        }
        query += n;
    }
    for (uint32_t i = 0; i < plan->n_segments; i++)
        cut(plan, &plan->segments[i]);
}

/* ---------------------------------------------------------------------------------------- items */

static const struct kvpi_segment *segment_of(const struct kvpi_plan *plan, uint64_t index)
{
    uint32_t low = 0, high = plan->n_segments;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (plan->segments[middle].first_item <= index)
            low = middle;
        else
            high = middle;
    }
    return &plan->segments[low];
}

struct kvpi_item kvpi_plan_item(const struct kvpi_plan *plan, uint64_t index)
{
    const struct kvpi_segment *segment = segment_of(plan, index);
    const uint32_t tile = segment->is_listed ? 1 : plan->tile_queries;
    const uint32_t n_head_parts = plan->batch->attention->layer->n_heads / segment->heads;
    uint64_t left = index - segment->first_item;
    struct kvpi_item item = {.segment = segment, .n_heads = segment->heads};
    item.first_head = (uint32_t)(left % n_head_parts) * segment->heads;
    left /= n_head_parts;
    item.split = (uint32_t)(left % segment->n_splits);
    item.first_query = (uint32_t)(left / segment->n_splits) * tile;
    item.n_queries = segment->n_queries - item.first_query;
    item.n_queries = item.n_queries < tile ? item.n_queries : tile;
    item.key_begin = segment->key_begin + item.split * segment->split_keys;
    item.key_end = segment->key_end;
    if (segment->n_splits > 1 && item.key_end - item.key_begin > segment->split_keys)
        item.key_end = item.key_begin + segment->split_keys;
    return item;
}

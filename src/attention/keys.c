/* keys: what keys.h says. Checked first (levels, rows, sequence), then walked without checks. */
#include "attention/keys.h"

#include <string.h>

#include "attention/shape.h"

/* ----------------------------------------------------------------------------------------
 * levels */

static int is_index_array(const int32_t *values)
{
    return kvpi_is_aligned(values, sizeof(int32_t));
}

/* [n + 1], from 0 on, never falling, at most `most`. */
static int is_prefix_sum(const int32_t *values, uint32_t n, uint32_t most)
{
    if (!is_index_array(values) || values[0] != 0)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (values[i + 1] < values[i])
            return 0;
    }
    return (uint32_t)values[n] <= most;
}

static uint32_t ceil_div(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

static int are_dense_rows_valid(const kvp_attention_level *level, uint32_t block_tokens)
{
    if (!is_index_array(level->lengths) || level->row_start != NULL || level->last_len != NULL)
        return 0;
    for (uint32_t row = 0; row < level->n_rows; row++) {
        if (level->lengths[row] < 0)
            return 0;
        const uint32_t n = ceil_div((uint32_t)level->lengths[row], block_tokens);
        if (n > level->row_stride || (uint64_t)row * level->row_stride + n > level->n_blocks)
            return 0;
    }
    return 1;
}

static int are_csr_rows_valid(const kvp_attention_level *level, uint32_t block_tokens)
{
    if (level->lengths != NULL || !is_index_array(level->last_len) ||
        !is_prefix_sum(level->row_start, level->n_rows, level->n_blocks))
        return 0;
    for (uint32_t row = 0; row < level->n_rows; row++) {
        const int32_t last = level->last_len[row];
        if (level->row_start[row + 1] == level->row_start[row]
                ? last != 0
                : last < 1 || (uint32_t)last > block_tokens)
            return 0;
    }
    return 1;
}

static int is_level_valid(const kvp_attention *attention, const kvp_attention_level *level)
{
    if (level->n_blocks > INT32_MAX)
        return 0;
    if (level->n_blocks > 0 && !is_index_array(level->blocks))
        return 0;
    if (level->query_start == NULL) {
        if (level->n_rows != attention->n_seqs)
            return 0;
    } else if (!is_prefix_sum(level->query_start, level->n_rows, attention->n_tokens)) {
        return 0;
    }
    return level->row_stride > 0 ? are_dense_rows_valid(level, attention->layer->block_tokens)
                                 : are_csr_rows_valid(level, attention->layer->block_tokens);
}

int kvpi_levels_are_valid(const kvp_attention *attention)
{
    if (attention->n_levels < 1 || !kvpi_is_aligned(attention->levels, sizeof(void *)))
        return 0;
    if (!is_prefix_sum(attention->query_start, attention->n_seqs, attention->n_tokens))
        return 0;
    for (uint32_t i = 0; i < attention->n_levels; i++) {
        if (!is_level_valid(attention, &attention->levels[i]))
            return 0;
    }
    return 1;
}

uint64_t kvpi_level_row_keys(const kvp_attention_level *level, uint32_t row, uint32_t block_tokens)
{
    if (level->row_stride > 0)
        return (uint32_t)level->lengths[row];
    const uint32_t n = (uint32_t)(level->row_start[row + 1] - level->row_start[row]);
    return n == 0 ? 0 : (uint64_t)(n - 1) * block_tokens + (uint32_t)level->last_len[row];
}

static const int32_t *row_blocks(const kvp_attention_level *level, uint32_t row)
{
    const size_t first =
        level->row_stride > 0 ? (size_t)row * level->row_stride : (uint32_t)level->row_start[row];
    return level->blocks + first;
}

uint64_t kvpi_levels_max_keys(const kvp_attention *attention)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < attention->n_levels; i++) {
        const kvp_attention_level *level = &attention->levels[i];
        uint64_t most = 0;
        for (uint32_t row = 0; row < level->n_rows; row++) {
            const uint64_t n = kvpi_level_row_keys(level, row, attention->layer->block_tokens);
            most = n > most ? n : most;
        }
        sum += most;
    }
    return sum;
}

/* -----------------------------------------------------------------------------------------
 * batch */

/* places[i] = the sequence that is i-th in the cascade; a permutation. `marks` [B] is scratch. */
static int order_places(const kvp_attention *attention, int32_t *places, int32_t *marks)
{
    const uint32_t n = attention->n_seqs;
    if (attention->order != NULL && !is_index_array(attention->order))
        return 0;
    memset(marks, 0, n * sizeof *marks);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t seq = attention->order != NULL ? attention->order[i] : (int32_t)i;
        if (seq < 0 || (uint32_t)seq >= n || marks[seq] != 0)
            return 0;
        marks[seq] = 1;
        places[i] = seq;
    }
    return 1;
}

/* Rows of a level that has query_start: walk both along the queries, in the order of the cascade. A
 * sequence must lie in one row; one without queries is in none, and is not looked at again. */
static int find_rows(const kvp_attention *attention, const kvp_attention_level *level,
                     const int32_t *places, int32_t *rows)
{
    const int32_t *query_start = attention->query_start;
    int32_t begin = 0;
    uint32_t row = 0;
    for (uint32_t i = 0; i < attention->n_seqs; i++) {
        const int32_t seq = places[i];
        const int32_t end = begin + query_start[seq + 1] - query_start[seq];
        while (row + 1 < level->n_rows && begin >= level->query_start[row + 1])
            row++;
        if (end > begin && (row >= level->n_rows || end > level->query_start[row + 1]))
            return 0;
        rows[seq] = (int32_t)row;
        begin = end;
    }
    return level->n_rows == 0 || level->query_start[level->n_rows] == begin;
}

int kvpi_batch_make(struct kvpi_batch *batch, const kvp_attention *attention, int32_t *places)
{
    batch->attention = attention;
    if (!order_places(attention, places, batch->rows))
        return 0;
    for (uint32_t i = 0; i < attention->n_levels; i++) {
        const kvp_attention_level *level = &attention->levels[i];
        int32_t *rows = batch->rows + (size_t)i * attention->n_seqs;
        if (level->query_start != NULL) {
            if (!find_rows(attention, level, places, rows))
                return 0;
            continue;
        }
        for (uint32_t place = 0; place < attention->n_seqs; place++)
            rows[places[place]] = (int32_t)place;
    }
    return 1;
}

/* --------------------------------------------------------------------------------------
 * sequences */

static const kvp_attention_level *level_row(const struct kvpi_keys *keys, uint32_t i,
                                            uint32_t *out_row)
{
    const kvp_attention *attention = keys->batch->attention;
    *out_row = (uint32_t)keys->batch->rows[(size_t)i * attention->n_seqs + keys->seq];
    return &attention->levels[i];
}

static uint64_t count_key_slots(const struct kvpi_keys *keys)
{
    const kvp_attention *attention = keys->batch->attention;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < attention->n_levels; i++) {
        uint32_t row;
        const kvp_attention_level *level = level_row(keys, i, &row);
        sum += kvpi_level_row_keys(level, row, attention->layer->block_tokens);
    }
    return sum;
}

/* Windows, and the gap where blocks were dropped. */
static int take_window(struct kvpi_keys *keys, uint64_t n_slots)
{
    const kvp_attention_window *window = &keys->batch->attention->window;
    const uint32_t seq = keys->seq;
    keys->sinks = window->sinks != NULL ? window->sinks[seq] : window->sink_tokens;
    keys->recent = window->recent != NULL ? window->recent[seq] : window->recent_tokens;
    keys->chunked = keys->sinks == KVP_CHUNKED;
    keys->sinks = keys->chunked ? 0 : keys->sinks;
    keys->query_positions =
        window->query_positions != NULL ? window->query_positions + keys->first_query : NULL;
    keys->sink_len = keys->gap_slots = keys->gap_keys = 0;
    if (window->sink_len != NULL) {
        const int32_t sink_len = window->sink_len[seq], offset = window->window_offset[seq];
        if (sink_len < 0 || offset < sink_len || (uint32_t)offset > n_slots ||
            window->key_offset[seq] < 0)
            return 0;
        keys->sink_len = (uint32_t)sink_len;
        keys->gap_slots = (uint32_t)(offset - sink_len);
        keys->gap_keys = (uint32_t)window->key_offset[seq];
    }
    const uint64_t n_keys = n_slots - keys->gap_slots;
    if (n_keys + keys->gap_keys > INT32_MAX)
        return 0;
    keys->n_keys = (uint32_t)n_keys;
    return 1;
}

static int are_intervals_valid(const int32_t *intervals, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (intervals[2 * (size_t)i] >= intervals[2 * (size_t)i + 1])
            return 0;
    }
    return 1;
}

static int take_tree(struct kvpi_keys *keys)
{
    const kvp_attention_tree *tree = &keys->batch->attention->tree;
    const uint32_t seq = keys->seq;
    uint32_t n_uncommitted = 0;
    keys->intervals = NULL;
    keys->bits = NULL;
    if (tree->start != NULL) {
        n_uncommitted = (uint32_t)(tree->start[seq + 1] - tree->start[seq]);
        if (n_uncommitted > keys->n_keys)
            return 0;
        if (tree->intervals != NULL && n_uncommitted > 0)
            keys->intervals = tree->intervals + 2 * (size_t)(uint32_t)tree->start[seq];
    }
    keys->n_committed = keys->n_keys - n_uncommitted;
    if (tree->bits != NULL && tree->bits_start[seq + 1] > tree->bits_start[seq]) {
        const uint64_t n_bits = (uint64_t)keys->n_queries * keys->n_keys;
        if ((n_bits + 7) / 8 != (uint32_t)(tree->bits_start[seq + 1] - tree->bits_start[seq]))
            return 0;
        keys->bits = tree->bits + (uint32_t)tree->bits_start[seq];
    }
    return keys->intervals == NULL || are_intervals_valid(keys->intervals, n_uncommitted);
}

/* Queries that may see every key are none of them: what needs positions must be given them. */
static int are_positions_known(const struct kvpi_keys *keys)
{
    if (keys->bits != NULL || kvpi_keys_are_causal(keys))
        return 1;
    return (keys->recent == 0 || keys->query_positions != NULL) &&
           keys->batch->attention->rope.mode != KVP_ROPE_AT_READ;
}

int kvpi_keys_make(struct kvpi_keys *keys, const struct kvpi_batch *batch, uint32_t seq)
{
    const int32_t *query_start = batch->attention->query_start;
    keys->batch = batch;
    keys->seq = seq;
    keys->first_query = (uint32_t)query_start[seq];
    keys->n_queries = (uint32_t)(query_start[seq + 1] - query_start[seq]);
    return take_window(keys, count_key_slots(keys)) && take_tree(keys) &&
           are_positions_known(keys) &&
           (!kvpi_keys_are_causal(keys) || keys->n_queries <= keys->n_keys);
}

/* --------------------------------------------------------------------------------- what is seen */

/* The block that a list slot lies in, and where in it. */
static int32_t block_at(const struct kvpi_keys *keys, uint64_t slot, uint32_t *out_offset)
{
    const uint32_t block_tokens = keys->batch->attention->layer->block_tokens;
    for (uint32_t i = 0;; i++) {
        uint32_t row;
        const kvp_attention_level *level = level_row(keys, i, &row);
        const uint64_t n_slots = kvpi_level_row_keys(level, row, block_tokens);
        if (slot < n_slots) {
            *out_offset = (uint32_t)(slot % block_tokens);
            return row_blocks(level, row)[slot / block_tokens];
        }
        slot -= n_slots;
    }
}

int64_t kvpi_keys_slot(const struct kvpi_keys *keys, uint32_t key)
{
    uint32_t offset;
    const uint64_t slot = key < keys->sink_len ? key : (uint64_t)key + keys->gap_slots;
    const int64_t block = block_at(keys, slot, &offset);
    return block * keys->batch->attention->layer->block_tokens + offset;
}

int kvpi_keys_may_see(const struct kvpi_keys *keys, uint32_t query, uint32_t key)
{
    if (keys->bits != NULL) {
        const uint64_t bit = (uint64_t)query * keys->n_keys + key;
        return keys->bits[bit / 8] >> (bit % 8) & 1;
    }
    if (!kvpi_keys_are_causal(keys))
        return 1;
    const uint32_t self = keys->n_keys - keys->n_queries + query;
    if (key > self)
        return 0;
    if (keys->intervals == NULL || key < keys->n_committed)
        return 1;
    const int32_t *k = keys->intervals + 2 * (size_t)(key - keys->n_committed);
    const int32_t *q = keys->intervals + 2 * (size_t)(self - keys->n_committed);
    return k[0] <= q[0] && q[0] < k[1];
}

struct kvpi_span kvpi_keys_span(const struct kvpi_keys *keys, uint32_t key)
{
    const uint32_t block_tokens = keys->batch->attention->layer->block_tokens;
    const uint64_t slot = key < keys->sink_len ? key : (uint64_t)key + keys->gap_slots;
    const uint32_t border = key < keys->sink_len ? keys->sink_len : keys->n_keys;
    uint32_t row;
    const kvp_attention_level *level = level_row(keys, 0, &row);
    uint64_t before = 0, in_row = kvpi_level_row_keys(level, row, block_tokens);
    for (uint32_t i = 1; slot >= before + in_row; i++) {
        before += in_row;
        level = level_row(keys, i, &row);
        in_row = kvpi_level_row_keys(level, row, block_tokens);
    }
    const uint64_t at = slot - before;
    const uint32_t offset = (uint32_t)(at % block_tokens);
    uint64_t n = block_tokens - offset;
    n = in_row - at < n ? in_row - at : n;
    n = border - key < n ? border - key : n;
    return (struct kvpi_span){row_blocks(level, row)[at / block_tokens], offset, (uint32_t)n};
}

static int64_t position_of_key(const struct kvpi_keys *keys, uint32_t key)
{
    return key < keys->sink_len ? key : (int64_t)key + keys->gap_keys;
}

/* The first key at a position or behind it. */
static uint32_t first_key_at(const struct kvpi_keys *keys, int64_t position)
{
    if (position < keys->sink_len)
        return position < 0 ? 0 : (uint32_t)position;
    const int64_t key = position - keys->gap_keys;
    const int64_t first = key < keys->sink_len ? keys->sink_len : key;
    return first < keys->n_keys ? (uint32_t)first : keys->n_keys;
}

/* The first position behind the sinks that the window shows to a query; may be negative. */
static int64_t first_recent(const struct kvpi_keys *keys, int64_t position)
{
    return keys->chunked && position >= 0 ? position - position % keys->recent
                                          : position - keys->recent + 1;
}

struct kvpi_reach kvpi_keys_reach(const struct kvpi_keys *keys, uint32_t query)
{
    struct kvpi_reach reach = {0, 0, keys->n_keys};
    if (kvpi_keys_are_causal(keys))
        reach.end = keys->n_keys - keys->n_queries + query + 1;
    if (keys->recent == 0 || reach.end == 0)
        return reach;
    const uint32_t shown = reach.end, sink_end = first_key_at(keys, keys->sinks);
    int64_t position = position_of_key(keys, shown - 1);
    if (keys->query_positions != NULL) {
        position = keys->query_positions[query];
        reach.end = first_key_at(keys, position + 1);
        reach.end = reach.end < shown ? reach.end : shown;
    }
    reach.first = first_key_at(keys, first_recent(keys, position));
    reach.sink_end = sink_end < shown ? sink_end : shown;
    return reach;
}

/* Position of the i-th of the keys that the mask shows: uncommitted ones follow each other. */
static int64_t shown_position(const struct kvpi_keys *keys, const uint32_t *shown, uint32_t i,
                              uint32_t n_shown_committed)
{
    if (i < n_shown_committed)
        return position_of_key(keys, shown[i]);
    return position_of_key(keys, keys->n_committed) + (i - n_shown_committed);
}

/* Keep of the shown keys those in the window. */
static uint32_t cut_window(const struct kvpi_keys *keys, uint32_t query, uint32_t *shown,
                           uint32_t n_shown)
{
    uint32_t n_committed = 0, n = 0;
    while (n_committed < n_shown && shown[n_committed] < keys->n_committed)
        n_committed++;
    /* Nodes are counted from the first one. If a mask has left out some because their chunk had
     * ended, it has left out what was committed before, too. */
    if (n_shown == 0 || (keys->chunked && keys->n_committed > 0 && n_committed == 0))
        return n_shown;
    const int64_t last = keys->query_positions != NULL
                             ? keys->query_positions[query]
                             : shown_position(keys, shown, n_shown - 1, n_committed);
    for (uint32_t i = 0; i < n_shown; i++) {
        const int64_t position = shown_position(keys, shown, i, n_committed);
        if (position < keys->sinks || (position >= first_recent(keys, last) && position <= last))
            shown[n++] = shown[i];
    }
    return n;
}

uint32_t kvpi_keys_seen(const struct kvpi_keys *keys, uint32_t query, uint32_t *out_seen)
{
    uint32_t n = 0;
    for (uint32_t key = 0; key < keys->n_keys; key++) {
        if (kvpi_keys_may_see(keys, query, key))
            out_seen[n++] = key;
    }
    return keys->recent == 0 ? n : cut_window(keys, query, out_seen, n);
}

/* ------------------------------------------------------------------------------ are they there? */

/* Every entry of the sequence's lists that has keys lies in first .. N-1. */
static int are_entries_from(const struct kvpi_keys *keys, int32_t first)
{
    const kvp_layer *layer = keys->batch->attention->layer;
    for (uint32_t i = 0; i < keys->batch->attention->n_levels; i++) {
        uint32_t row;
        const kvp_attention_level *level = level_row(keys, i, &row);
        const uint64_t n_slots = kvpi_level_row_keys(level, row, layer->block_tokens);
        const int32_t *blocks = row_blocks(level, row);
        for (uint64_t entry = 0; entry * layer->block_tokens < n_slots; entry++) {
            if (blocks[entry] < first || (uint32_t)blocks[entry] >= layer->n_blocks)
                return 0;
        }
    }
    return 1;
}

/* No key in [from, to) lies in the null block. */
static int are_blocks_there(const struct kvpi_keys *keys, uint32_t from, uint32_t to)
{
    while (from < to) {
        const struct kvpi_span span = kvpi_keys_span(keys, from);
        if (span.block == KVP_NULL_BLOCK)
            return 0;
        from += span.n_keys;
    }
    return 1;
}

/* The same for every query's window. Queries mostly follow each other, and so do their windows:
 * what [from, to) has is known to be there. */
static int are_windows_there(const struct kvpi_keys *keys)
{
    uint32_t from = 0, to = 0;
    for (uint32_t query = 0; query < keys->n_queries; query++) {
        const struct kvpi_reach reach = kvpi_keys_reach(keys, query);
        if (reach.first < from || reach.first > to)
            from = to = reach.first;
        if (!are_blocks_there(keys, to, reach.end))
            return 0;
        to = reach.end > to ? reach.end : to;
    }
    return 1;
}

/* Dropped blocks may be null, as long as no query needs them. The last query sees the most sinks;
 * masks and trees take looking at every key of every query. */
int kvpi_keys_are_there(const struct kvpi_keys *keys, uint32_t *seen)
{
    if (keys->recent == 0)
        return are_entries_from(keys, KVP_NULL_BLOCK + 1);
    if (!are_entries_from(keys, KVP_NULL_BLOCK))
        return 0;
    if (!kvpi_keys_have_mask(keys)) {
        const struct kvpi_reach last = kvpi_keys_reach(keys, keys->n_queries - 1);
        return are_blocks_there(keys, 0, last.sink_end) && are_windows_there(keys);
    }
    for (uint32_t query = 0; query < keys->n_queries; query++) {
        const uint32_t n = kvpi_keys_seen(keys, query, seen);
        for (uint32_t i = 0; i < n; i++) {
            if (kvpi_keys_slot(keys, seen[i]) < keys->batch->attention->layer->block_tokens)
                return 0;
        }
    }
    return 1;
}

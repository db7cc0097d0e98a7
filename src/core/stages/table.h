/* table: sequences and their rows.
 *
 * A sequence has a place (0 .. max_seqs - 1), found from its handle, and there: its counts, its row
 * of block ids, the nodes of its kept units, the tokens of its last, unfilled unit, and the extra
 * keys of that unit. One place more, the last, is scratch for questions that hold nothing.
 *
 *   group_row  [max_seq_blocks] i32   a row for each layer group: block ids in order; 0: dropped.
 *                                     T1: each counts one reference
 *   row_nodes  [max_seq_units]  u32   node of unit u, u < n_units; the last one counts one user
 *   partial    [U]              i32   tokens of unit n_units, known % U of them
 *   windows    [n_groups]             what each group keeps, and has dropped
 *   tree       [2][max_tree]    i32   values and parents of the tree behind the tokens
 *   parted                      u32   tokens before the first unit whose node it made, with
 *                                     retained places
 *
 * Counts, always:  computed <= writable, public <= n_units,
 *                  n_units * U <= known <= tokens (kept), all of them have slots
 *
 * A handle is number of the cache (16 bits), generation, place + 1. A closed place goes to the top
 * of the stack of free places, and its generation rises. A place whose generation is at its largest
 * value is never used again.
 */
#ifndef KVPI_TABLE_H
#define KVPI_TABLE_H

#include <kvpager/types.h>

#include "base/base.h"
#include "core/stages/hash.h"

#define KVPI_HANDLE_CACHE_SHIFT 48

#define KVPI_NO_TOKEN UINT32_MAX /* tokens are not negative */

enum {
    KVPI_WINDOWED = 1,      /* it has, or had, a window in some group */
    KVPI_STATEFUL = 2,      /* it has recurrent state */
    KVPI_WINDOWED_AHEAD = 4 /* since it was opened, the windows have dropped what they will not keep
                               when its tokens have been received, and nothing was committed */
};

/* Two cache lines. What kvp_seq_info_get reads beside a change is stored by kvpi_set*: all but
 * root, exclusive, uncached_from, n_partial_keys, batch, windowed and the steps. */
struct kvpi_seq {
    uint64_t generation; /* odd: open; retired: kvpi_handle_last_generation */
    uint64_t tag;
    kvp_ns ns;
    uint32_t root; /* the namespace's root node when it was opened; in use */
    uint32_t tokens;
    uint32_t known;
    uint32_t prompt;
    uint32_t cached;
    uint32_t computed;
    uint32_t writable;      /* slots of [computed, writable) were made writable */
    uint32_t exclusive;     /* row positions [computed, exclusive) are known to be ours alone and
                             unsealed: an extend up to there looks at nothing */
    uint32_t room;          /* tokens: the row of a group has ceil(room / S) entries */
    uint32_t n_units;       /* kept units */
    uint32_t n_public;      /* leading units that are public */
    uint32_t uncached_from; /* lowest begin of the uncached ranges; UINT32_MAX: none */
    uint16_t stop;
    uint16_t stop_group;
    uint32_t n_partial_keys;
    uint16_t retention;
    uint16_t tier;        /* KVP_HOST: swapped out, the row's ids are the host's */
    uint32_t n_tree;      /* tokens of its tree */
    uint16_t unkept;      /* 1: no node was free, tokens from n_units * U on are not kept */
    uint16_t windowed;    /* bits: KVPI_WINDOWED and so on; 0: most calls need not look */
    uint32_t last;        /* value of the last known token; KVPI_NO_TOKEN: none, or not kept */
    uint64_t row_version; /* never wraps */
    uint64_t batch;       /* number of the last batch that named it; never wraps */
    uint64_t cut_step;    /* newest step that was out when slots that it may write were cut; one
                             that is in effect says nothing */
    uint64_t tree_step;   /* the step that its last round is for: begun + 1 then */
};

/* A sequence's window in one group. Entries [sink blocks, dropped) of the row are null, when
 * `dropped` is above the sink blocks, ceil(K / S), with S of the group. */
struct kvpi_window {
    uint32_t sink;   /* K; 0 with chunks */
    uint32_t recent; /* R; 0: none */
    uint32_t dropped;
    uint32_t chunked; /* R is the length of a chunk */
};

struct kvpi_table {
    uint32_t max_seqs;
    uint32_t max_tokens;
    uint32_t max_blocks; /* of a row, of any group */
    uint32_t max_units;
    uint32_t block_stride; /* from row to row, in entries */
    uint32_t node_stride;
    uint32_t unit_tokens;
    uint32_t max_unit_keys;
    uint32_t n_groups;
    uint32_t max_tree;   /* tokens of a tree */
    int retains;         /* windows have retained places */
    uint32_t n_free;     /* on the stack */
    uint32_t place_bits; /* of a handle */
    uint64_t n_open;
    size_t seqs_at;    /* struct kvpi_seq [max_seqs + 1] */
    size_t free_at;    /* u32 [max_seqs] stack of free places */
    size_t blocks_at;  /* i32 [n_groups][max_seqs + 1][block_stride] */
    size_t nodes_at;   /* u32 [max_seqs + 1][node_stride] */
    size_t partial_at; /* i32 [max_seqs + 1][U] */
    size_t keys_at;    /* struct kvpi_key [max_seqs + 1][max_unit_keys] */
    size_t windows_at; /* struct kvpi_window [max_seqs + 1][n_groups] */
    size_t trees_at;   /* i32 [max_seqs + 1][2][max_tree] values, then parents */
    size_t parted_at;  /* u32 [max_seqs], if it retains */
};

static inline struct kvpi_seq *kvpi_seq_at(const struct kvpi_table *table, uint32_t place)
{
    struct kvpi_seq *seqs = kvpi_at(table, table->seqs_at);
    return seqs + place;
}

static inline uint32_t kvpi_seq_place(const struct kvpi_table *table, const struct kvpi_seq *seq)
{
    return (uint32_t)(seq - kvpi_seq_at(table, 0));
}

static inline int32_t *kvpi_group_row(const struct kvpi_table *table, uint32_t group,
                                      uint32_t place)
{
    int32_t *blocks = kvpi_at(table, table->blocks_at);
    return blocks + ((size_t)group * (table->max_seqs + 1) + place) * table->block_stride;
}

/* Group 0's. */
static inline int32_t *kvpi_row_blocks(const struct kvpi_table *table, uint32_t place)
{
    return kvpi_group_row(table, 0, place);
}

static inline struct kvpi_window *kvpi_windows(const struct kvpi_table *table, uint32_t place)
{
    struct kvpi_window *windows = kvpi_at(table, table->windows_at);
    return windows + (size_t)place * table->n_groups;
}

static inline int32_t *kvpi_tree_tokens(const struct kvpi_table *table, uint32_t place)
{
    int32_t *trees = kvpi_at(table, table->trees_at);
    return trees + (size_t)place * 2 * table->max_tree;
}

static inline int32_t *kvpi_tree_parents(const struct kvpi_table *table, uint32_t place)
{
    return kvpi_tree_tokens(table, place) + table->max_tree;
}

/* Where a sequence left what was known, with retained places. UINT32_MAX: it did not. */
static inline uint32_t *kvpi_parted(const struct kvpi_table *table, const struct kvpi_seq *seq)
{
    uint32_t *parted = kvpi_at(table, table->parted_at);
    return parted + kvpi_seq_place(table, seq);
}

static inline struct kvpi_window kvpi_window_of(kvp_window window)
{
    const uint32_t chunked = window.sink_tokens == KVP_CHUNKED;
    return (struct kvpi_window){.sink = chunked ? 0 : window.sink_tokens,
                                .recent = window.recent_tokens,
                                .chunked = chunked};
}

static inline struct kvpi_window kvpi_window_of_group(const kvp_group *group)
{
    return kvpi_window_of((kvp_window){group->sink_tokens, group->recent_tokens});
}

static inline kvp_window kvpi_window_given(const struct kvpi_window *window)
{
    return (kvp_window){window->chunked ? KVP_CHUNKED : window->sink, window->recent};
}

/* The first position behind the sinks that a query at q sees. No later query sees one before it. */
static inline uint32_t kvpi_window_first(const struct kvpi_window *window, uint32_t q)
{
    if (window->recent == 0 || q < window->recent) {
        return 0;
    }
    return window->chunked ? q - q % window->recent : q + 1 - window->recent;
}

/* The first row entry that the window keeps behind its sinks, with q the next query's position and
 * the group's S. */
static inline uint32_t kvpi_window_begin(const struct kvpi_window *window, uint32_t q, uint32_t S)
{
    return kvpi_window_first(window, q) / S;
}

static inline uint32_t *kvpi_row_nodes(const struct kvpi_table *table, uint32_t place)
{
    uint32_t *nodes = kvpi_at(table, table->nodes_at);
    return nodes + (size_t)place * table->node_stride;
}

static inline int32_t *kvpi_row_partial(const struct kvpi_table *table, uint32_t place)
{
    int32_t *partial = kvpi_at(table, table->partial_at);
    return partial + (size_t)place * table->unit_tokens;
}

static inline struct kvpi_key *kvpi_row_keys(const struct kvpi_table *table, uint32_t place)
{
    struct kvpi_key *keys = kvpi_at(table, table->keys_at);
    return keys + (size_t)place * table->max_unit_keys;
}

static inline uint32_t kvpi_table_scratch(const struct kvpi_table *table)
{
    return table->max_seqs;
}

void kvpi_table_layout(struct kvpi_table *table, struct kvpi_layout *layout, size_t self);

/* Make every place free, 0 first. `fresh`: the arrays' content does not matter; else open places
 * become stale. */
void kvpi_table_reset(struct kvpi_table *table, int fresh);

/* The place that kvpi_table_open will give; -1 when none is free. */
int64_t kvpi_table_next(const struct kvpi_table *table);

/* The open sequence at the first place behind that of `seq`, of all if it is NULL; NULL: there is
 * none. What lies at the scratch place is no sequence. */
static inline struct kvpi_seq *kvpi_next_open(const struct kvpi_table *table,
                                              const struct kvpi_seq *seq)
{
    uint32_t place = seq == NULL ? 0 : kvpi_seq_place(table, seq) + 1;
    while (place < table->max_seqs && (kvpi_seq_at(table, place)->generation & 1) == 0) {
        place++;
    }
    return place < table->max_seqs ? kvpi_seq_at(table, place) : NULL;
}

/* Take a free place and open it, zeroed except its generation; NULL when none is free. */
struct kvpi_seq *kvpi_table_open(struct kvpi_table *table);

/* The same, but it is what `from` is. */
struct kvpi_seq *kvpi_table_fork(struct kvpi_table *table, const struct kvpi_seq *from);

/* Give the place back; its handle is stale. */
void kvpi_table_close(struct kvpi_table *table, struct kvpi_seq *seq);

/* The handle of an open sequence. */
kvp_seq kvpi_table_handle(const struct kvpi_table *table, const struct kvpi_seq *seq,
                          uint64_t cache_bits);

/* Handles of places in general, for namespaces too. `generation` odd. */
uint64_t kvpi_handle_make(uint64_t cache_bits, uint64_t generation, uint32_t place,
                          uint32_t place_bits);

/* Take a handle apart; 0 when it cannot be one of this cache. */
static inline int kvpi_handle_split(uint64_t bits, uint64_t cache_bits, uint32_t place_bits,
                                    uint64_t *out_generation, uint32_t *out_place)
{
    const uint64_t own = bits ^ cache_bits;
    *out_place = (uint32_t)(own & (((uint64_t)1 << place_bits) - 1));
    *out_generation = own >> place_bits;
    /* Open generations are odd, so zero is never a handle. */
    return own >> KVPI_HANDLE_CACHE_SHIFT == 0 && (*out_generation & 1) != 0;
}

/* The open sequence of a handle; NULL when the handle is closed, stale or another cache's. */
static inline struct kvpi_seq *kvpi_table_find(const struct kvpi_table *table, kvp_seq handle,
                                               uint64_t cache_bits)
{
    uint64_t generation;
    uint32_t place;
    if (!kvpi_handle_split(handle.bits, cache_bits, table->place_bits, &generation, &place) ||
        place >= table->max_seqs) {
        return NULL;
    }
    struct kvpi_seq *seq = kvpi_seq_at(table, place);
    return kvpi_read(&seq->generation) == generation ? seq : NULL;
}

/* Bits that hold n places. */
uint32_t kvpi_handle_place_bits(uint32_t n);

/* The largest generation that fits a handle: places that reach it are retired. */
uint64_t kvpi_handle_last_generation(uint32_t place_bits);

#endif

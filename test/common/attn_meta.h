/* attn_meta: the arrays that describe a batch of an attn_world's sequences, built by hand, and a
 * run of the library on them. */
#ifndef TEST_ATTN_META_H
#define TEST_ATTN_META_H

#include "attn_world.h"

enum {
    ATTENTION_DENSE = 0,         /* a table of rows */
    ATTENTION_DENSE_NULLS = 1,   /* with the null block where no query looks */
    ATTENTION_CSR = 2,           /* lists */
    ATTENTION_DROPPED = 3,       /* lists without dropped blocks; the gap is whole blocks */
    ATTENTION_DROPPED_EXACT = 4, /* the same; the gap ends at the first key that is needed */
    ATTENTION_CASCADE = 5,       /* three levels, in another order than the batch */
    ATTENTION_FORMATS = 6
};

typedef struct attn_how {
    uint32_t format;
    int has_bits;             /* trees as a bit mask; else as intervals */
    uint32_t impl;            /* KVP_ATTENTION_...; 0: the reference */
    kvp_attention_team *team; /* NULL: none */
    int has_gaps;             /* strides with room between vectors */
    int has_positions;        /* the window's, of queries; always if they may see all keys */
    uint32_t n_batch;         /* sequences of the batch ... */
    uint32_t batch[ATTENTION_MAX_SEQS]; /* ... in this order */
} attn_how;

enum { ATTENTION_ENTRIES = ATTENTION_MAX_SEQS * ATTENTION_MAX_TOKENS };

typedef struct attn_meta {
    const attn_world *world;
    attn_how how;
    kvp_attention attention;
    kvp_attention_level levels[3];
    int32_t query_start[ATTENTION_MAX_SEQS + 1];
    int32_t order[ATTENTION_MAX_SEQS];
    int32_t blocks[3][ATTENTION_ENTRIES];
    int32_t lengths[ATTENTION_MAX_SEQS];
    int32_t row_start[3][ATTENTION_MAX_SEQS + 1];
    int32_t last_len[3][ATTENTION_MAX_SEQS];
    int32_t level_query_start[3][ATTENTION_MAX_SEQS + 1];
    uint32_t sinks[ATTENTION_MAX_SEQS];
    uint32_t recent[ATTENTION_MAX_SEQS];
    int32_t sink_len[ATTENTION_MAX_SEQS];
    int32_t window_offset[ATTENTION_MAX_SEQS];
    int32_t key_offset[ATTENTION_MAX_SEQS];
    int32_t tree_start[ATTENTION_MAX_SEQS + 1];
    int32_t intervals[2 * ATTENTION_MAX_QUERIES];
    uint8_t bits[ATTENTION_ENTRIES * ATTENTION_MAX_TOKENS / 8 + ATTENTION_MAX_SEQS];
    int32_t bits_start[ATTENTION_MAX_SEQS + 1];
    int32_t positions[ATTENTION_MAX_QUERIES];
    float *q;   /* [T, Q, D] */
    float *out; /* [T, Q, Dv] */
    float *lse; /* [T, Q] */
    size_t n_out;
    size_t n_lse;
    void *scratch;
    size_t scratch_bytes;
} attn_meta;

/* All sequences in order. */
attn_how attn_how_of(const attn_world *world, uint32_t format);

/* A random one. */
attn_how attn_draw_how(attn_world *world);

/* Build the arrays; out and lse are full of a pattern. The world must stay, and not move. */
attn_meta *attn_describe(const attn_world *world, const attn_how *how);
void attn_forget(attn_meta *meta);

/* Some query sees a key of the block at this place of the sequence's row. */
int attn_is_needed(const attn_world *world, const attn_seq *seq, uint32_t block);

/* kvp_attention_bytes, and scratch memory of exactly that size. */
kvp_status attn_prepare(attn_meta *meta);
kvp_status attn_run(attn_meta *meta);

/* Results of query i of the batch's n-th sequence. */
const float *attn_out(const attn_meta *meta, uint32_t n, uint32_t query, uint32_t head);
float attn_lse(const attn_meta *meta, uint32_t n, uint32_t query, uint32_t head);

/* Everything as the oracle says, and nothing written beside it. */
void attn_assert_right(const attn_meta *meta);

/* Two runs on the same world: the same bits, sequence by sequence. */
void attn_assert_same(const attn_meta *a, const attn_meta *b);

/* Nothing was written at all. */
void attn_assert_untouched(const attn_meta *meta);

#endif

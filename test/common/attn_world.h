/* attn_world: attention as anyone would write it down, to hold the library against.
 *
 * Sequences are lists of tokens with their K, V and parents; memory is described by hand, and read
 * back by this file's own decoders. The oracle knows no block tables, no metadata and no scratch
 * memory: who sees whom follows from parents and positions, a softmax is a quotient of sums. */
#ifndef TEST_ATTN_WORLD_H
#define TEST_ATTN_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include <kvpager/attention.h>

enum {
    ATTENTION_MAX_SEQS = 6,
    ATTENTION_MAX_TOKENS = 64, /* of a sequence */
    ATTENTION_MAX_QUERIES = ATTENTION_MAX_SEQS * ATTENTION_MAX_TOKENS,
    ATTENTION_MAX_BLOCKS = ATTENTION_MAX_QUERIES + 2
};

/* How a layer lies in memory. */
enum {
    ATTENTION_NHD = 0,    /* K: [N, S, H, D], V likewise, with gaps between blocks */
    ATTENTION_HND = 1,    /* one tensor [N, 2, H, S, D] */
    ATTENTION_SPLIT = 2,  /* K: [N, H, D / x, S, x], V: [N, H, D, S]: runs */
    ATTENTION_LATENT = 3, /* K: [N, S, D] for one head; V is its beginning */
    ATTENTION_ORDERS = 4
};

typedef struct attn_params {
    uint32_t type;  /* KVP_F32 ... */
    uint32_t order; /* ATTENTION_... */
    uint32_t n_heads;
    uint32_t group; /* query heads of each KV head */
    uint32_t k_size;
    uint32_t v_size;
    uint32_t block_tokens;
    uint32_t causal;
    double scale;
    double soft_cap;
    int has_sinks; /* sink logits */
    kvp_rope rope;
} attn_params;

typedef struct attn_seq {
    uint32_t n_tokens;                       /* keys */
    uint32_t n_queries;                      /* the last ones */
    uint32_t n_tree;                         /* uncommitted: the last ones */
    uint32_t sinks;                          /* K */
    uint32_t recent;                         /* R; 0: no window */
    int chunked;                             /* R is the length of a chunk; K is 0 */
    int32_t parents[ATTENTION_MAX_TOKENS];   /* of tree nodes, numbers in the tree; -1: a root */
    int32_t positions[ATTENTION_MAX_TOKENS]; /* of all tokens: by depth in the tree */
    int32_t blocks[ATTENTION_MAX_TOKENS];    /* the row, complete */
    uint32_t n_blocks;
    uint32_t n_shared; /* leading blocks shared with sequence 0 */
    float *k;          /* [n_tokens, H, D] as given to append */
    float *v;          /* [n_tokens, H, Dv] */
    float *q;          /* [n_queries, Q, D] */
} attn_seq;

typedef struct attn_world {
    attn_params params;
    kvp_layer layer;
    unsigned char *memory; /* K, then V */
    float *scales;
    uint32_t n_blocks;
    uint32_t n_seqs;
    attn_seq seqs[ATTENTION_MAX_SEQS];
    float *sink_logits; /* [Q] */
    uint64_t random;
    uint32_t append_impl; /* KVP_ATTENTION_... */
    size_t n_bytes;       /* of memory */
} attn_world;

/* 0 .. n-1; and a number in -1 .. 1. */
uint32_t attn_draw(uint64_t *random, uint32_t n);
double attn_draw_real(uint64_t *random);

attn_params attn_draw_params(uint64_t *random);

/* Memory full of NaN, room for n_blocks blocks (the null block included), no sequences yet. */
attn_world attn_begin(const attn_params *params, uint32_t n_blocks, uint64_t seed);
void attn_end(attn_world *world);

/* Draw a sequence: tokens, K, V, q, a tree, a window, free blocks of the pool; `shared` leading
 * tokens (whole blocks) are sequence 0's. */
typedef struct attn_wish {
    uint32_t n_tokens;
    uint32_t n_queries;
    uint32_t n_tree;
    uint32_t sinks; /* or KVP_CHUNKED */
    uint32_t recent;
    uint32_t shared_blocks;
} attn_wish;

void attn_add(attn_world *world, const attn_wish *wish);

/* Random ones, up to n. */
void attn_add_some(attn_world *world, uint32_t n, int with_trees, int with_windows);

/* Append tokens [from, to) of a sequence through the library. */
void attn_append(attn_world *world, uint32_t seq, uint32_t from, uint32_t to);
void attn_append_all(attn_world *world);

/* What memory holds, by this file's own arithmetic: element e of a token's K or V. */
double attn_stored(const attn_world *world, int which, int32_t block, uint32_t offset,
                   uint32_t head, uint32_t e);

/* The nearest value of a type without scale, ties to even, by searching them all. */
double attn_nearest(uint32_t type, double value);

/* x turned to a position, all of it. */
void attn_turn(const kvp_rope *rope, uint32_t dims, double position, const double *x, double *out);

/* Who sees whom. */
int attn_may_see(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t key);
int attn_sees(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t key);

/* The result for one query and head. */
void attn_expect(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t head,
                 double *out, double *out_lse);

#endif

/* kvpager/attention.h: attention over KV memory in blocks, on the CPU.
 *
 *   kvp_append_init(&append);              new K and V, to where the slot mapping says
 *   append.layer = &layer;                 one layer: kvp_memory_layer, or filled by hand
 *   append.n_tokens = T;
 *   append.slots = slots;
 *   append.k.data = k;
 *   append.v.data = v;
 *   kvp_append_bytes(&append, &n_bytes);   scratch memory, the caller's
 *   kvp_append_run(&append, scratch, n_bytes);
 *
 *   kvp_attention_init(&attention);        then what the new queries see
 *   attention.layer = &layer;
 *   attention.n_seqs = B;
 *   attention.query_start = query_start;
 *   attention.levels = &level;             the batch's block lists, dense or CSR
 *   ...
 *   kvp_attention_bytes(&attention, &n_bytes);
 *   kvp_attention_run(&attention, scratch, n_bytes);
 *
 * What a result is, in full. It is what KVP_ATTENTION_REFERENCE computes, in double precision, from
 * K and V as kvp_layer_read gives them:
 *
 *   keys       of a sequence: the tokens that its block lists name, in order, those of this step
 *              included. Key i lies in slot i of the lists, put one after the other. With `window`
 *              arrays (blocks dropped from the lists), key i lies in slot i if i < sink_len, else
 *              in slot i - sink_len + window_offset.
 *   positions  Key i is at position i; with `window` arrays, if i >= sink_len, at i + key_offset.
 *              Of uncommitted keys (a tree), those that a query may see follow each other: the
 *              first is at the position of the first uncommitted key, the next one behind it, and
 *              so on. A query is at the position of the last key that the mask lets it see.
 *   mask       The queries of a sequence are its last keys. A query may see itself and all keys
 *              before it. In a tree, which may be the sequence's last keys, it may see itself and
 *              its ancestors. With a bit mask it may see what its bits say, and with causal = 0
 *              every key.
 *   window     With K and R, a query at position p sees only positions 0 .. K-1 and p-R+1 .. p of
 *              these. With KVP_CHUNKED for K, floor(p/R) x R .. p, and a bit mask may have left
 *              out what lies before. `query_positions` gives p, if it is there.
 *   scores     Query head h reads KV head h / (Q / H). s = scale x (q . k); with a soft cap c,
 *              s = c x tanh(s / c).
 *   result     Z is the sum of exp(s) of all keys seen, and of exp(sink) of the head if there are
 *              sink logits. The weights are exp(s) / Z. out = sum of weight x v; lse = ln Z.
 *              Nothing seen and no sink: out = 0, lse = -infinity.
 *
 * Rotary embedding. KVP_ROPE_AT_WRITE: append turns K to the position given with each token, and
 * attention turns the query likewise. KVP_ROPE_AT_READ: K is stored as it comes. The keys that a
 * query sees are turned to 0, 1, 2, ..., the query to the last of these. Without a window the
 * result is the same. With a window, positions stay below K + R however long the sequence gets
 * (StreamingLLM): keys in the window keep their distance, and sinks are never farther away than K +
 * R. V is never turned.
 *
 * The reference computes each query by itself, in the order of its keys. So it gives the same bits
 * for any order of the batch, any chunks of a prompt, and any levels of shared blocks. (Except
 * elements with scales: a scale may rise between two chunks.)
 *
 * Rules that hold for every call:
 *
 *   - A call that fails has written nothing but scratch memory. What a query needs of K and V must
 *     be there. If a query sees a key in a list entry outside 1 .. N-1, the call is KVP_E_ARG.
 *   - KVP_E_ARG: a NULL or misaligned pointer, another struct_size, a value out of
 *     range, arrays that do not fit each other, strides with which two elements written overlap.
 *   - What is written overlaps nothing that is read, except where it says so.
 *   - Nothing allocates, nothing blocks. "Thread: exclusive" names what no other thread may write,
 *     or read if it is written, during the call.
 *
 * Shape letters: B sequences, T tokens of the step (of all sequences, one after the other), Q query
 * heads, H KV heads. D elements of K, Dv elements of V, N blocks, S tokens of a block, V
 * uncommitted tokens of all trees.
 */
#ifndef KVPAGER_ATTENTION_H
#define KVPAGER_ATTENTION_H

#include "memory.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which implementation computes. One that this processor or this build does not have is refused:
 * KVP_E_ARG. All but the reference compute in f32, and agree with it. The largest error, over the
 * largest |out|, is below 1e-5 for KVP_F32, 1e-2 for 16 and 3e-2 for 8 bits. Each implementation
 * gives the same bits for the same call, whatever the number of threads. Two implementations give
 * different bits. A NaN or an infinity in K or V reaches every query that sees it, and may reach
 * other queries of the same sequence. */
enum {
    KVP_ATTENTION_AUTO = 0,      /* the fastest that there is (default) */
    KVP_ATTENTION_REFERENCE = 1, /* scalar, in double precision: the definition of what is right */
    KVP_ATTENTION_PORTABLE = 2,  /* f32 in plain C */
    KVP_ATTENTION_AVX2 = 3,      /* with FMA and F16C */
    KVP_ATTENTION_AVX512 = 4,    /* F, BW, DQ, VL */
    KVP_ATTENTION_AVX512_BF16 = 5, /* and VNNI: products of bf16 and int8 */
    KVP_ATTENTION_AVX512_FP16 = 6, /* and products of f16 */
    KVP_ATTENTION_AMX = 7,         /* and tiles of bf16 */
    KVP_ATTENTION_NEON = 8         /* aarch64: f32; f16, bf16 and int8 are multiplied as f32 */
};

/* Does this processor have an implementation? Thread: any. The first call, and the first of any
 * other with an implementation, may ask the system for the right to use AMX. */
KVP_API int kvp_attention_has(uint32_t impl);

/* Alignment of scratch memory. */
#define KVP_SCRATCH_ALIGN 64u

/* Threads that share the work of attention. Long sequences are cut into pieces, so that a single
 * one keeps all threads busy, too. */
typedef struct kvp_attention_team kvp_attention_team;

/* Most threads of a team. */
#define KVP_ATTENTION_TEAM_MAX 1024u

/* Start a team.
 *
 * Takes:   n_threads    the caller's included, 1..KVP_ATTENTION_TEAM_MAX
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY: also when a thread cannot be started
 * Owns:    n_threads - 1 threads, which sleep between calls; they end with
 * kvp_attention_team_destroy
 * Thread:  any. A team does one call at a time
 */
KVP_API kvp_status kvp_attention_team_create(uint32_t n_threads, kvp_attention_team **out_team);

/* A share of the work: `index` of n. */
typedef void (*kvp_attention_work)(void *data, uint32_t index, uint32_t n);

/* A pool of threads that are not the library's: call work(data, i, n) once for each i below n, on
 * any threads, and return when all are done. */
typedef void (*kvp_attention_pool)(void *pool, kvp_attention_work work, void *data, uint32_t n);

/* Make a team whose threads are an engine's: its own pool, OpenMP. Then an engine has one set of
 * threads, and those that spin between its own pieces of work do this one.
 *
 * Takes:   n_threads    shares, 1..KVP_ATTENTION_TEAM_MAX. If fewer threads do them, the result is
 *                       the same, and scratch memory is larger than needed
 *          run          called once or twice by each attention; not with n_threads = 1
 *          pool         handed to `run`; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY
 * Owns:    no threads; kvp_attention_team_destroy frees it. `pool` is the caller's and must outlive
 * it
 * Thread:  any. A team does one call at a time
 */
KVP_API kvp_status kvp_attention_team_wrap(uint32_t n_threads, kvp_attention_pool run, void *pool,
                                           kvp_attention_team **out_team);

/* End the threads; they must be idle. NULL is ignored. */
KVP_API void kvp_attention_team_destroy(kvp_attention_team *team);

/* ------------------------------------------------------------------------------ rotary
 * embedding */

/* When K is turned. */
enum {
    KVP_ROPE_NONE = 0,     /* never, nor the query: both come as they are to be used (default) */
    KVP_ROPE_AT_WRITE = 1, /* when it is appended */
    KVP_ROPE_AT_READ = 2   /* when it is read: positions are relative to what is seen */
};

/* Which two of n elements are turned together. */
enum {
    KVP_ROPE_SPLIT = 0,      /* i and i + n/2: Llama, GPT-NeoX (default) */
    KVP_ROPE_INTERLEAVED = 1 /* 2i and 2i + 1: GPT-J, DeepSeek */
};

/* How frequencies are stretched to more positions than the model was trained on. */
enum {
    KVP_ROPE_PLAIN = 0,  /* frequency i is theta^(-2i/n) */
    KVP_ROPE_LINEAR = 1, /* all divided by factor (position interpolation) */
    KVP_ROPE_LLAMA3 = 2, /* long waves divided by factor, short ones kept, a blend between */
    KVP_ROPE_YARN = 3    /* fast pairs kept, slow ones divided by factor, a ramp between */
};

typedef struct kvp_rope {
    size_t struct_size;       /* set by kvp_rope_init */
    uint32_t mode;            /* KVP_ROPE_NONE, KVP_ROPE_AT_WRITE, KVP_ROPE_AT_READ */
    uint32_t pairing;         /* KVP_ROPE_SPLIT, KVP_ROPE_INTERLEAVED */
    uint32_t scaling;         /* KVP_ROPE_PLAIN ... KVP_ROPE_YARN */
    uint32_t first_dim;       /* first element that is turned (MLA: 512); default 0 */
    uint32_t n_dims;          /* n, even: how many are; 0 = all from first_dim (default) */
    uint32_t original_tokens; /* llama3, YaRN: positions that the model was trained on */
    double theta;             /* default 10000 */
    double factor;            /* linear, llama3, YaRN; default 1 */
    double low_freq_factor;   /* llama3; default 1 */
    double high_freq_factor;  /* llama3; default 4 */
    double beta_fast;         /* YaRN; default 32 */
    double beta_slow;         /* YaRN; default 1 */
    uint32_t yarn_exact; /* YaRN: 1: the ramp's ends are not rounded to whole pairs (gpt-oss) */
    uint32_t reserved;   /* 0 */
    double magnitude;    /* turned elements are stretched by it; 0 = 1, or for YaRN with
                                 factor > 1: 0.1 ln(factor) + 1 (default) */
    const double *frequencies; /* [n/2] radians for each position, in place of theta and scaling; or
                                  NULL (default) */
} kvp_rope;

/* Fill `rope` with the defaults. NULL is ignored. Thread: pure. */
KVP_API void kvp_rope_init(kvp_rope *rope);

/* Work out what a rope turns by: for kernels that turn themselves.
 *
 * Takes:   dims             D of the vectors
 *          capacity         of out_frequencies; 0 asks for the number only
 * Gives:   out_frequencies  [out_n_pairs] radians for each position
 *          out_n_pairs      0 with KVP_ROPE_NONE; written also on KVP_E_TOO_SMALL
 *          out_magnitude    may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL
 * Thread:  pure. Cost: O(D)
 */
KVP_API kvp_status kvp_rope_frequencies(const kvp_rope *rope, uint32_t dims,
                                        double *out_frequencies, uint32_t capacity,
                                        uint32_t *out_n_pairs, double *out_magnitude);

/* ---------------------------------------------------------------------------------------
 * tensors */

/* Vectors of f32, [T, heads, dims]: the elements of a vector lie side by side. Strides count
 * elements; both 0: dense, in this order. */
typedef struct kvp_rows {
    const float *data;
    size_t token_stride;
    size_t head_stride;
} kvp_rows;

/* The same, to be written. */
typedef struct kvp_rows_out {
    float *data;
    size_t token_stride;
    size_t head_stride;
} kvp_rows_out;

/* ----------------------------------------------------------------------------------------
 * append */

/* New K and V. kvp_append_init, then the fields. */
typedef struct kvp_append {
    size_t struct_size;
    uint32_t impl;            /* KVP_ATTENTION_... */
    uint32_t n_tokens;        /* T */
    const kvp_layer *layer;   /* read during the call */
    const int64_t *slots;     /* [T] block * S + offset, not of block 0; KVP_NO_SLOT: not written */
    const int32_t *positions; /* [T] >= 0, with KVP_ROPE_AT_WRITE; else not looked at */
    kvp_rows k;               /* [T, H, D] */
    kvp_rows v;               /* [T, H, Dv]; data NULL for a latent layer */
    kvp_rope rope;            /* KVP_ROPE_AT_WRITE turns K; otherwise it is stored as it comes */
} kvp_append;

/* Fill `append` with the defaults. NULL is ignored. Thread: pure. */
KVP_API void kvp_append_init(kvp_append *append);

/* Check what kvp_append_bytes looks at. Gives: out_why, written always; may be NULL.
 * Returns: KVP_OK; KVP_E_ARG. Thread: pure. */
KVP_API kvp_status kvp_append_check(const kvp_append *append, kvp_why *out_why);

/* Say how many bytes of scratch memory an append needs. Data pointers, slots and positions need not
 * be set. The size is enough for fewer tokens, too.
 * Returns: KVP_OK; KVP_E_ARG. Thread: pure. Cost: O(1) */
KVP_API kvp_status kvp_append_bytes(const kvp_append *append, size_t *out_bytes);

/* Write new K and V to their slots, token after token, as kvp_layer_write does (scales of blocks
 * included). K is turned in double precision and rounded to f32 first. Every implementation writes
 * the same bits.
 *
 * Takes:   scratch      [n_bytes], aligned to KVP_SCRATCH_ALIGN; NULL only when 0 bytes are needed
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL: n_bytes
 * After-failure: nothing was written
 * Thread:  exclusive: the blocks that are written, scratch. Blocks: never
 * Cost:    O(T x H x D)
 */
KVP_API kvp_status kvp_append_run(const kvp_append *append, void *scratch, size_t n_bytes);

/* -------------------------------------------------------------------------------------
 * attention */

/* Block lists: dense (a table of rows) or CSR (one list, and where each row begins). A row belongs
 * to a sequence, or, in a cascade, to several that share its blocks. */
typedef struct kvp_attention_level {
    uint32_t n_rows;          /* B; cascade: groups */
    uint32_t n_blocks;        /* entries of `blocks` */
    const int32_t *blocks;    /* block ids */
    uint32_t row_stride;      /* dense: entries from one row to the next, >= 1. CSR: 0 */
    const int32_t *lengths;   /* dense: [rows] keys, those of this step included; else NULL */
    const int32_t *row_start; /* CSR: [rows + 1] kv_indptr; else NULL */
    const int32_t *last_len;  /* CSR: [rows] keys in the last block, 1..S; 0 for an empty row */
    const int32_t
        *query_start; /* cascade: [rows + 1] qo_indptr, in the order of the cascade; NULL: a
                                   row for each sequence */
} kvp_attention_level;

/* Windows. All zero: none. */
typedef struct kvp_attention_window {
    uint32_t sink_tokens;    /* K, or KVP_CHUNKED */
    uint32_t recent_tokens;  /* R; 0: everything is seen */
    const uint32_t *sinks;   /* [B] K of each sequence, in place of sink_tokens; both or none */
    const uint32_t *recent;  /* [B] R of each sequence; 0: that one has no window */
    const int32_t *sink_len; /* [B] lists without dropped blocks: keys before the gap; or NULL */
    const int32_t *window_offset;   /* [B] list slot of the first key after it; with sink_len */
    const int32_t *key_offset;      /* [B] its position less its number; with sink_len */
    const int32_t *query_positions; /* [T] >= 0, of the queries: for parts, whose keys do not say
                                       where a query is; or NULL. Not with KVP_ROPE_AT_READ */
} kvp_attention_window;

/* What queries may see besides "all before me". All zero: nothing else. */
typedef struct kvp_attention_tree {
    const int32_t *start;      /* [B + 1] first uncommitted token of each sequence; or NULL: none */
    const int32_t *intervals;  /* [V, 2] enter, exit: query q may see key k when
                                  enter[k] <= enter[q] < exit[k]; NULL with bits */
    const uint8_t *bits;       /* packed, row by row of [queries, keys], lowest bit first, each
                                  sequence from a byte of its own; NULL with intervals */
    const int32_t *bits_start; /* [B + 1] bytes; an empty range: a sequence without a mask */
    uint32_t n_tokens;         /* V: of `intervals`; start[B] is not above it */
    uint32_t n_bytes;          /* of `bits`; bits_start[B] is not above it */
} kvp_attention_tree;

/* Attention. kvp_attention_init, then the fields. */
typedef struct kvp_attention {
    size_t struct_size;
    uint32_t impl;          /* KVP_ATTENTION_... */
    uint32_t causal;        /* 1 (default); 0: a query may see every key, unless there is a tree.
                               Such queries have no position of their own: a window needs
                               query_positions then, and KVP_ROPE_AT_READ is refused */
    const kvp_layer *layer; /* read during the call */
    uint32_t n_seqs;        /* B */
    uint32_t n_tokens;      /* T: rows of q and out; those behind query_start[B] are left alone */
    uint32_t n_heads;       /* Q, a multiple of H */
    uint32_t v_size;        /* Dv; 0 = the layer's V. Latent layers: 1..D, V is the first Dv
                                   elements of K */
    const int32_t *query_start; /* [B + 1] first query of each sequence; 0 ones are allowed */
    uint32_t n_levels;          /* 1; more: a cascade */
    uint32_t reserved;          /* 0 */
    const kvp_attention_level
        *levels;              /* [n_levels]; a sequence's keys are those of its row in level 0,
                                     then in level 1, and so on. The last level has its own keys */
    const int32_t *order;     /* [B] cascade: which sequence of the batch is i-th there; NULL: i */
    kvp_rows q;               /* [T, Q, D], in batch order */
    kvp_rows_out out;         /* [T, Q, Dv] */
    kvp_rows_out lse;         /* [T, Q, 1]; data NULL: not wanted */
    double scale;             /* 0 = 1 / sqrt(D) (default) */
    double soft_cap;          /* c; 0: none (default) */
    const float *sink_logits; /* [Q]; NULL: none. Of partial results, give them to one only */
    kvp_attention_window window;
    kvp_attention_tree tree;
    kvp_rope rope;
    const int32_t *positions; /* [T] of the queries, with KVP_ROPE_AT_WRITE; else not looked at */
    kvp_attention_team *team; /* NULL: the calling thread only (default). The reference has no use
                                 for it. Scratch memory grows with its threads */
} kvp_attention;

/* Fill `attention` with the defaults. NULL is ignored. Thread: pure. */
KVP_API void kvp_attention_init(kvp_attention *attention);

/* Check what kvp_attention_bytes looks at. Gives: out_why, written always; may be NULL.
 * Returns: KVP_OK; KVP_E_ARG. Thread: pure. Cost: O(B) */
KVP_API kvp_status kvp_attention_check(const kvp_attention *attention, kvp_why *out_why);

/* Say how many bytes of scratch memory a call needs. The pointers q, out, lse and positions need
 * not be set. The size is enough for levels with fewer or shorter rows, too.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG: the sum does not fit size_t. Thread: pure.
 * Cost: O(rows of all levels) */
KVP_API kvp_status kvp_attention_bytes(const kvp_attention *attention, size_t *out_bytes);

/* Compute attention: prefill, chunks of it, decode, trees, in one batch.
 *
 * Partial results: run it over some of the keys only, with `lse`, and merge (kvp_merge_run). The
 * part that has the step's own keys is causal; run the others with causal = 0. With a window,
 * key_offset says where a part begins (sink_len and window_offset are 0), and the parts before the
 * step's own keys get query_positions. The result is that of one run, up to rounding. A tree lies
 * in one part. KVP_ROPE_AT_READ turns by all that a query sees, so it cannot be cut into parts.
 *
 * Takes:   scratch      [n_bytes], aligned to KVP_SCRATCH_ALIGN
 * Gives:   out, lse
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL: n_bytes; KVP_E_TOO_LONG
 * After-failure: nothing was written
 * Thread:  exclusive: out, lse, scratch, team; no other thread writes the blocks that are read.
 *          Blocks: until the team's threads are done
 * Cost:    O(queries x keys seen x Q x (D + Dv)). Blocks that several queries see (in a cascade: of
 *          several sequences) are read once for up to 128 / (Q / H) of them
 */
KVP_API kvp_status kvp_attention_run(const kvp_attention *attention, void *scratch, size_t n_bytes);

/* -----------------------------------------------------------------------------------------
 * merge */

/* Most partial results of one merge. (Merging is associative: merge results of merges.) */
#define KVP_MERGE_MAX 256u

/* A partial result: attention over some of the keys. */
typedef struct kvp_partial {
    kvp_rows out; /* [T, Q, Dv] */
    kvp_rows lse; /* [T, Q, 1] */
} kvp_partial;

/* kvp_merge_init, then the fields. */
typedef struct kvp_merge {
    size_t struct_size;
    uint32_t impl;               /* KVP_ATTENTION_... */
    uint32_t n_partials;         /* 1..KVP_MERGE_MAX */
    uint32_t n_tokens;           /* T */
    uint32_t n_heads;            /* Q */
    uint32_t size;               /* Dv */
    uint32_t reserved;           /* 0 */
    const kvp_partial *partials; /* [n_partials], of disjoint sets of keys */
    kvp_rows_out out;            /* [T, Q, Dv]; may be one of the partials' out, with its strides */
    kvp_rows_out lse; /* [T, Q, 1]; data NULL: not wanted. May be a partial's, likewise */
} kvp_merge;

/* Fill `merge` with the defaults. NULL is ignored. Thread: pure. */
KVP_API void kvp_merge_init(kvp_merge *merge);

/* Merge partial results: out = sum of exp(lse_i - lse) out_i, lse = ln of the sum of exp(lse_i).
 * Where lse_i is -infinity, out_i is not read. All of them: out = 0, lse = -infinity.
 *
 * Returns: KVP_OK; KVP_E_ARG
 * After-failure: nothing was written
 * Thread:  exclusive: out, lse. Blocks: never
 * Cost:    O(n_partials x T x Q x Dv)
 */
KVP_API kvp_status kvp_merge_run(const kvp_merge *merge);

#ifdef __cplusplus
}
#endif
#endif

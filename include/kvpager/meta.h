/* kvpager/meta.h: batch metadata. The rows of a batch as the arrays that attention kernels read.
 *
 *   kvp_meta_batch batch = {.struct_size = sizeof batch, .n_seqs = B, .seqs = seqs};
 *   kvp_meta_sizes sizes;
 *   kvp_meta_csr csr = {.struct_size = sizeof csr};
 *   kvp_meta_measure(cache, &batch, &sizes);
 *   kvp_meta_place_csr(&csr, &sizes, buffer, capacity, &n_bytes);     one buffer, one upload
 *   kvp_meta_fill_csr(cache, &batch, &csr);
 *
 * A batch is B sequences and the tokens that a step computes for each: positions begin[b] ..
 * begin[b] + n_tokens[b] - 1. T is their sum. A sequence's length in a step is begin[b] +
 * n_tokens[b]: what the step writes is counted, reserved slots are not. Example, S = 4: a decoding
 * sequence with row 7 3 9 and 9 computed tokens computes one token, begin 9. Its length is 10, with
 * three blocks and a last block length of 2. The token's position is 9, its slot 9 * 4 + 1 = 37.
 *
 * Trees (trees.h). The nodes of a sequence's tree count behind its tokens: begin and n_tokens count
 * node j as tokens + j. By default a step computes every token that is not computed, and the whole
 * tree. A later round of nodes begins at tokens + its first node. Node j is written to the slot of
 * tokens + j and is at position tokens + its depth. A length counts all nodes up to the last one
 * that the step computes. kvp_meta_tree says which keys a node sees.
 *
 * Windows (windows.h). Rows are those of batch.group. In every format but `windowed`, a dropped
 * entry is the null block. Kernels may read what the window hides, but must not use it. (Zero the
 * null block's V once for kernels that multiply masked values by 0 instead of leaving them out.) A
 * step needs the entries that windows.h calls kept with q = begin, or q = tokens when it begins
 * inside a tree. If one of them within the length was dropped, the call is KVP_E_DROPPED.
 *
 * Rules that hold for every call:
 *
 *   - Memory is the caller's: ask for sizes first, then give arrays, or let one buffer be cut into
 *     them (kvp_meta_place_...). An array pointer that is NULL is not filled. Nothing allocates.
 *   - Index arrays are int32, slots int64. Same cache, same batch: same bytes.
 *   - All or nothing: nothing is written unless the call succeeds. Checks run in this order.
 *     Pointers and struct_size, n_seqs 0, group (KVP_E_ARG); handles (KVP_E_HANDLE); a sequence
 *     named twice (KVP_E_ARG). Then for each sequence: positions beyond its tokens and its tree
 *     (KVP_E_ARG); swapped out, or slots of the step that are neither computed nor writable, so
 *     extend first (KVP_E_STATE); a dropped entry (KVP_E_DROPPED). Last: totals that do not fit
 *     int32 (KVP_E_TOO_LONG); arrays too small (KVP_E_TOO_SMALL).
 *   - Sequences may come in any order; a step's prefills, chunks, decodes and trees may be mixed.
 *   - Cost: writing positions or trees adds O(V), V as in kvp_meta_sizes.
 *   - Thread: cache, for all that take a cache (they use scratch memory; they change nothing, and
 *     are not recorded).
 *
 * Formats: dense (vLLM, FlashAttention, trtllm-gen), CSR (FlashInfer, TVM) and windowed (CSR
 * without dropped entries). Tree has intervals and FlashInfer's mask, cascade has CSR per level.
 * There are also TensorRT-LLM block offsets, and delta (what changed in rows that the caller has).
 */
#ifndef KVPAGER_META_H
#define KVPAGER_META_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------ the batch */

/* A batch. Initialise it by name: {.struct_size = sizeof(kvp_meta_batch), ...}. */
typedef struct kvp_meta_batch {
    size_t struct_size;
    uint32_t n_seqs;          /* B, >= 1 */
    uint32_t group;           /* layer group */
    const kvp_seq *seqs;      /* [B], each once */
    const uint32_t *begin;    /* [B] position of the first token that the step computes. NULL: the
                                 first that is not computed. If all are, the tree's first node, or
                                 without a tree the last token */
    const uint32_t *n_tokens; /* [B] tokens and nodes that it computes, may be 0; NULL: all from
                                 begin on */
} kvp_meta_batch;

/* How large the arrays of a batch are. */
typedef struct kvp_meta_sizes {
    uint32_t n_seqs;       /* B */
    uint32_t n_tokens;     /* T: tokens of the step, nodes included */
    uint32_t n_entries;    /* E: blocks of all sequences up to their lengths */
    uint32_t max_blocks;   /* M: blocks of the longest */
    uint32_t n_kept;       /* F: entries of windowed lists; E when nothing is left out */
    uint32_t n_nodes;      /* V: nodes of trees up to the sequences' lengths */
    uint64_t n_mask_bytes; /* of a mask over rows; one over windowed lists is no larger */
} kvp_meta_sizes;

/* Measure a batch.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_HANDLE; KVP_E_STATE; KVP_E_DROPPED; KVP_E_TOO_LONG, as at the
 *          top of this file. Thread: cache. Cost: O(B), also with trees. */
KVP_API kvp_status kvp_meta_measure(kvp_cache *cache, const kvp_meta_batch *batch,
                                    kvp_meta_sizes *out_sizes);

/* ---------------------------------------------------------------------------------------- dense */

/* Padded table. Initialise it by name: {.struct_size = sizeof(kvp_meta_dense), ...},
 * with the capacities and the arrays that are wanted. */
typedef struct kvp_meta_dense {
    size_t struct_size;
    uint32_t row_stride;   /* entries from one row to the next, >= M; rows are padded with 0 */
    uint32_t max_tokens;   /* capacity of slot_mapping and positions, >= T */
    int32_t *block_table;  /* [B, row_stride] */
    int32_t *seq_lens;     /* [B] */
    int32_t *query_start;  /* [B + 1] prefix sums of the tokens of the step */
    int64_t *slot_mapping; /* [T] block * S + offset; KVP_NO_SLOT: computed, do not write */
    int32_t *positions;    /* [T] */
} kvp_meta_dense;

/* Fill a dense table.
 * Returns: as kvp_meta_measure; KVP_E_TOO_SMALL. Thread: cache. Cost: O(B x row_stride + T). */
KVP_API kvp_status kvp_meta_fill_dense(kvp_cache *cache, const kvp_meta_batch *batch,
                                       const kvp_meta_dense *dense);

/* ------------------------------------------------------------------------------------------ CSR */

typedef struct kvp_meta_csr {
    size_t struct_size;
    uint32_t max_entries;    /* capacity of kv_indices, >= E */
    uint32_t max_tokens;     /* capacity of batch_indices and positions, >= T */
    int32_t *qo_indptr;      /* [B + 1] prefix sums of the tokens of the step */
    int32_t *kv_indptr;      /* [B + 1] prefix sums of the blocks */
    int32_t *kv_indices;     /* [E] block ids, sequence after sequence */
    int32_t *last_block_len; /* [B] tokens in the last block, 1..S; 0 for a sequence of length 0 */
    int32_t *batch_indices;  /* [T] index of the token's sequence; -1: do not write */
    int32_t *positions;      /* [T] */
    int64_t *slot_mapping;   /* [T] as kvp_meta_dense */
} kvp_meta_csr;

/* Fill CSR arrays. Returns: as kvp_meta_fill_dense. Thread: cache. Cost: O(E + T). */
KVP_API kvp_status kvp_meta_fill_csr(kvp_cache *cache, const kvp_meta_batch *batch,
                                     const kvp_meta_csr *csr);

/* ------------------------------------------------------------------------------------- windowed */

/* CSR without the entries that a window hides from the step. It lists the entries that windows.h
 * calls kept with q = begin (q = tokens when the step begins inside a tree). Of the keys in them,
 * two ranges are kept: those before K, and those from the first key that the step's first query
 * sees, position max(K, q + 1 - R). Later queries see less: kernels apply `recent` for each. (With
 * chunks it is position floor(q / R) x R. If all queries of a step lie in one chunk, each of them
 * sees every kept key up to its own, and kernels need no window.) For kept key i:
 *
 *   list slot   i  if i < sink_len, else i - sink_len + window_offset
 *   position    i  if i < sink_len, else i + key_offset     (a token's; a node's is by its depth)
 *
 * With the example of windows.h, K = 3, R = 6, S = 4, row 7 0 0 4 9, step computes position 17:
 *
 *   list 7 4 9, last block 2, sink_len 3, window_offset 4, key_offset 9; kept are positions 0..2
 *   and 12..17; the query's relative position is 8.
 *
 * These are kvp_attention_window and kvp_attention_level of attention.h, and what TVM's kernels
 * read. */
typedef struct kvp_meta_windowed {
    size_t struct_size;
    uint32_t max_entries;    /* capacity of kv_indices, >= F */
    uint32_t max_tokens;     /* capacity of the arrays of T, >= T */
    int32_t *qo_indptr;      /* [B + 1], as kvp_meta_csr */
    int32_t *kv_indptr;      /* [B + 1] prefix sums of the blocks listed */
    int32_t *kv_indices;     /* [F] block ids, none of them null */
    int32_t *last_block_len; /* [B] tokens in the last block listed, 1..S; 0 for an empty list */
    int32_t *batch_indices;  /* [T] as kvp_meta_csr */
    int32_t *positions;      /* [T] */
    int64_t *slot_mapping;   /* [T] */
    int32_t *relative;       /* [T] positions counted over kept keys, for kernels that turn kept key
                                i to position i (StreamingLLM) */
    int32_t *sink_len;       /* [B] min(K, length); 0 without a window, and with chunks */
    int32_t *window_offset;  /* [B] 0 without a window */
    int32_t *key_offset;     /* [B] likewise 0 */
    uint32_t *sinks;         /* [B] K, or KVP_CHUNKED; likewise 0 */
    uint32_t *recent;        /* [B] R; 0: no window, every key is seen */
} kvp_meta_windowed;

/* Fill windowed lists. Returns: as kvp_meta_fill_dense. Thread: cache. Cost: O(F + T). */
KVP_API kvp_status kvp_meta_fill_windowed(kvp_cache *cache, const kvp_meta_batch *batch,
                                          const kvp_meta_windowed *windowed);

/* ----------------------------------------------------------------------------------------- tree */

/* Which keys the columns of a mask stand for. */
enum {
    KVP_MASK_ROWS = 0,    /* slots 0 .. length - 1 of the row: with dense and CSR (default) */
    KVP_MASK_WINDOWED = 1 /* slots of the list of kvp_meta_windowed, gap included */
};

/* The trees of a batch, and masks. A sequence's nodes are its last keys, and its queries, too. A
 * sequence without nodes has none here, and is causal.
 *
 * The example of trees.h, nodes 0 -> 1 -> 3 and 0 -> 2 behind 9 tokens:
 *
 *   parent -1 0 0 1   depth 0 1 1 2   intervals 0 4, 1 3, 3 4, 2 3   positions 9 10 10 11
 *
 * Query q sees node k when enter[k] <= enter[q] < exit[k], and all tokens; of these, what the
 * window shows to its position: K and R with tokens + depth.
 *
 * The mask says all of this for every sequence, also without a tree. It has the form of
 * FlashInfer's packed custom mask: bit q x keys + k of the sequence's bytes, lowest bit of a byte
 * first. (For attention.h: give a mask over rows together with the window's K and R and with
 * indptr; one over windowed lists by itself.) */
typedef struct kvp_meta_tree {
    size_t struct_size;
    uint32_t max_nodes;      /* capacity of the arrays of V, >= V */
    uint32_t mask_keys;      /* KVP_MASK_... */
    uint64_t max_mask_bytes; /* capacity of mask */
    int32_t *indptr;         /* [B + 1] prefix sums of the nodes */
    int32_t *parent;         /* [V] index in the sequence's tree, or -1 */
    int32_t *depth;          /* [V] 0 for a root */
    int32_t *intervals;      /* [V, 2] enter, exit: from 0 in each sequence */
    int32_t *mask_indptr;    /* [B + 1] bytes: ceil(queries x keys / 8) for each sequence */
    uint8_t *mask;           /* [mask_indptr[B]] bits behind a sequence's last are 0 */
} kvp_meta_tree;

/* Fill trees and masks.
 * Returns: as kvp_meta_fill_dense; KVP_E_TOO_LONG also when mask or mask_indptr is wanted and the
 *          bytes do not fit int32. Thread: cache. Cost: O(V), and with a mask O(its bits). */
KVP_API kvp_status kvp_meta_fill_tree(kvp_cache *cache, const kvp_meta_batch *batch,
                                      const kvp_meta_tree *tree);

/* -------------------------------------------------------------------------------------- cascade */

#define KVP_META_LEVELS_MAX 32u

/* One level: groups of adjacent sequences (in the order of `order`) that attend to the same blocks.
 * Every level has every query once; a group may have no blocks. */
typedef struct kvp_meta_level {
    int32_t *qo_indptr;      /* [G + 1] prefix sums of the step's tokens, in the order of `order` */
    int32_t *kv_indptr;      /* [G + 1] */
    int32_t *kv_indices;     /* [entries of the level] */
    int32_t *last_block_len; /* [G] tokens in the last block, 1..S; 0 for a group without blocks */
    uint32_t n_groups;       /* G, written */
    uint32_t n_entries;      /* written */
} kvp_meta_level;

/* Sequences that share leading blocks, computed together there. Level 0 has the blocks that most
 * sequences share, the last level those of each sequence alone. Other levels than the last hold
 * only full blocks whose keys all lie before the first query of every member. So they need no mask:
 * they hold tokens, not nodes, and with a window sinks only. A shared block appears once for the
 * sequences that share it, unless that needs more than max_levels levels.
 *
 * Attention: for each level, all queries in the order of `order` against their group's blocks; the
 * results merge by their log-sum-exp. */
typedef struct kvp_meta_cascade {
    size_t struct_size;
    uint32_t max_levels;    /* 1..KVP_META_LEVELS_MAX; 1: nothing is shared */
    uint32_t max_entries;   /* capacity of each level's kv_indices, >= E */
    int32_t *order;         /* [B] index in the batch of the k-th sequence */
    kvp_meta_level *levels; /* [max_levels]; arrays of B + 1, B + 1, max_entries and B entries: all
                               must be there */
    uint32_t n_levels;      /* written: levels used, >= 1 */
    uint32_t reserved;      /* 0 */
} kvp_meta_cascade;

/* Fill a cascade. Sequences are ordered by their leading blocks that may be shared, compared id by
 * id, the shorter first. Sequences with equal blocks keep the order of the batch.
 * Returns: as kvp_meta_fill_dense. Thread: cache. Cost: O(E log B). */
KVP_API kvp_status kvp_meta_fill_cascade(kvp_cache *cache, const kvp_meta_batch *batch,
                                         kvp_meta_cascade *cascade);

/* --------------------------------------------------------------------------------- TensorRT-LLM */

/* Block offsets [B, 2, M] (K row, V row), counted in units of one layer's K or V of one block.
 * These lie as [block, layer, K and V]: the K entry of block b is b * layers_per_block * 2, for the
 * first layer; the V entry is one more. Padding is -1, which no kernel reads. A dropped entry is
 * the null block's, 0 and 1, because kernels load whole tiles across a window's edge and mask them
 * afterwards. For [pools, B, 2, M], call once for each pool. */
typedef struct kvp_meta_trtllm {
    size_t struct_size;
    uint32_t layers_per_block; /* layers of the pool, >= 1 */
    uint32_t row_stride;       /* entries from the K row to the V row, >= M */
    int32_t *block_offsets;    /* [B, 2, row_stride] */
    int32_t *seq_lens;         /* [B] */
} kvp_meta_trtllm;

/* Fill block offsets.
 * Returns: as kvp_meta_fill_dense; KVP_E_TOO_LONG also when an offset does not fit int32.
 * Thread:  cache. Cost: O(B x row_stride). */
KVP_API kvp_status kvp_meta_fill_trtllm(kvp_cache *cache, const kvp_meta_batch *batch,
                                        const kvp_meta_trtllm *trtllm);

/* ---------------------------------------------------------------------------------------- delta */

/* What changed in rows that the caller has a copy of, on a device for instance.
 *
 * The caller keeps two numbers for each sequence from the delta before: the row version, and the
 * number of entries that it has. Both are 0 for a new sequence, or to get the whole row. */
typedef struct kvp_meta_delta {
    size_t struct_size;
    uint32_t max_entries;        /* capacity of entries; 0 asks for n_entries only */
    const uint64_t *had_version; /* [B] */
    const uint32_t *had_blocks;  /* [B] */
    uint64_t *version;           /* [B] now; pass it as had_version next time */
    uint32_t *blocks;            /* [B] entries now */
    int32_t *indptr;             /* [B + 1] into entries */
    int32_t *start;              /* [B] row index of the first entry given: had_blocks, or 0 when an
                                   entry that was there changed */
    int32_t *entries;            /* [indptr[B]] block ids */
    uint32_t n_entries;          /* written, also on KVP_E_TOO_SMALL: how many there are */
    uint32_t reserved;           /* 0 */
} kvp_meta_delta;

/* Fill a delta: whole rows, with reserved blocks and dropped entries. begin and n_tokens of the
 * batch are ignored.
 * Returns: as kvp_meta_fill_dense, but never KVP_E_DROPPED. Thread: cache. Cost: O(B + entries). */
KVP_API kvp_status kvp_meta_fill_delta(kvp_cache *cache, const kvp_meta_batch *batch,
                                       kvp_meta_delta *delta);

/* ----------------------------------------------------------------------------------- one buffer */

/* Arrays within one buffer begin at multiples of this, so that copies and loads are aligned. */
#define KVP_META_ALIGN 64u

/* Cut a buffer into the arrays of one format, for a batch of these sizes, all of them. Offsets
 * depend on the sizes only.
 *
 * Takes:   sizes        of the largest batch that will be filled into it
 *          buffer       [capacity] bytes, aligned to KVP_META_ALIGN; NULL, or capacity 0: measure
 *                       only
 * Gives:   out_n_bytes  used; also on KVP_E_TOO_SMALL
 *          dense ...    every array, and the capacities; unchanged when it is measured only
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL; KVP_E_TOO_LONG when the size does not fit size_t
 * Thread:  pure
 */
KVP_API kvp_status kvp_meta_place_dense(kvp_meta_dense *dense, const kvp_meta_sizes *sizes,
                                        void *buffer, size_t capacity, size_t *out_n_bytes);
KVP_API kvp_status kvp_meta_place_csr(kvp_meta_csr *csr, const kvp_meta_sizes *sizes, void *buffer,
                                      size_t capacity, size_t *out_n_bytes);
KVP_API kvp_status kvp_meta_place_windowed(kvp_meta_windowed *windowed, const kvp_meta_sizes *sizes,
                                           void *buffer, size_t capacity, size_t *out_n_bytes);

/* The same for a tree. If sizes.n_mask_bytes is 0, mask and mask_indptr are NULL.
 * Returns: as kvp_meta_place_dense. Thread: pure. */
KVP_API kvp_status kvp_meta_place_tree(kvp_meta_tree *tree, const kvp_meta_sizes *sizes,
                                       void *buffer, size_t capacity, size_t *out_n_bytes);

#ifdef __cplusplus
}
#endif
#endif

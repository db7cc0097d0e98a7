/* visible: what a mask shows, as kvpager's attention wants it: sequences and lists of cells.
 *
 * The mask of an attention has a row for each query and a number for each cell. Its rows become
 * bits. The lists are made from the bits, and made again only when a bit has changed. So all layers
 * of a step share them, and no change is missed: the mask is read in full by every call.
 *
 *     chain    rows that follow each other, each with what the one before it shows and one cell
 *              more: a prompt, or a token that is decoded. Its list has the first row's cells, then
 *              the others one by one: causal attention.
 *     cluster  chains whose first rows have cells in common: a prefix that requests share. These
 *              cells are a row of the cascade's first level, and are read once for all.
 *     patch    rows that differ in few cells, otherwise: windows, trees of drafts, masks that are
 *              not causal. The list has what any of them shows, and each row has a bit for each.
 *
 * Cell c of stream s is block 1 + s * stream_cells + c; block 0 is the null block. */
#ifndef KVPI_GGML_VISIBLE_H
#define KVPI_GGML_VISIBLE_H

#include <kvpager/attention.h>

/* A mask of f16, as it lies. */
struct kvpi_mask {
    const uint16_t *data; /* NULL: every query sees every cell */
    uint32_t n_cells;     /* of a stream */
    uint32_t n_rows;      /* queries of a stream */
    uint32_t n_streams;
    uint32_t stream_cells; /* from a stream's first cell to the next one's */
    size_t row_stride;     /* numbers */
    size_t stream_stride;  /* numbers; 0: one mask for all */
};

enum kvpi_visible_found {
    KVPI_VISIBLE_SAME,     /* as the call before */
    KVPI_VISIBLE_CHANGED,  /* the lists were made again */
    KVPI_VISIBLE_OTHER,    /* a number is neither 0 nor minus infinity: there are no lists */
    KVPI_VISIBLE_NO_MEMORY /* there are no lists */
};

/* An array that grows. */
struct kvpi_array {
    void *data;
    size_t n_bytes;
};

/* Rows that are one sequence of the call. */
struct kvpi_group {
    uint32_t first; /* row, counted through all streams */
    uint32_t n;
    uint32_t is_patch;
    uint32_t cluster;
    uint32_t n_shared; /* cells that are in the first level */
};

struct kvpi_visible {
    struct kvpi_mask mask; /* the last one; n_rows 0: none */
    uint32_t n_words;      /* of a row */
    uint32_t n_groups, n_clusters;
    struct kvpi_array rows; /* [streams, rows, words] u64 */
    struct kvpi_array before;
    struct kvpi_array groups;   /* [groups] struct kvpi_group */
    struct kvpi_array clusters; /* [clusters, words] u64 cells of all members */
    struct kvpi_array members;  /* [clusters, 2] members, cells */
    struct kvpi_array cells[2]; /* of each level: i32 */
    struct kvpi_array starts[2];
    struct kvpi_array last_lens[2];
    struct kvpi_array shared_queries; /* query_start of the first level */
    struct kvpi_array query_start, order, bits, bits_start, spare;
    /* What to put into kvp_attention: n_seqs, query_start, order, levels, tree. */
    kvp_attention_level levels[2];
    uint32_t n_levels;
    uint32_t n_seqs;
    kvp_attention_tree tree;
};

/* All zero: nothing read yet. */
void kvpi_visible_end(struct kvpi_visible *visible);

/* Read a mask, and make the lists if it shows something else than the one before. */
enum kvpi_visible_found kvpi_visible_read(struct kvpi_visible *visible,
                                          const struct kvpi_mask *mask);

#endif

/* meta_place: one buffer for the arrays of a format, so that one copy uploads a step.
 *
 * Each format has one function that takes its arrays one after the other. It is run twice: without
 * a buffer it measures, with one it cuts.
 */
#include "core/meta/meta.h"

#include <string.h>

struct meta_cut {
    char *buffer; /* NULL: measure */
    struct kvpi_layout layout;
};

static void *take_part(struct meta_cut *cut, uint64_t n, size_t size)
{
    const size_t at = kvpi_layout_take(&cut->layout, n, size); /* whole cache lines */
    return cut->buffer == NULL ? NULL : cut->buffer + at;
}

static int bad_place(const kvp_meta_sizes *sizes, const void *buffer, const size_t *out_n_bytes)
{
    return sizes == NULL || out_n_bytes == NULL || (uintptr_t)buffer % KVP_META_ALIGN != 0;
}

/* What a measured buffer is worth: the status of placing into it. */
static kvp_status judge_buffer(const struct meta_cut *measured, const void *buffer, size_t capacity,
                               size_t *out_n_bytes)
{
    if (measured->layout.overflow) {
        return KVP_E_TOO_LONG;
    }
    *out_n_bytes = measured->layout.bytes;
    return buffer != NULL && capacity > 0 && capacity < measured->layout.bytes ? KVP_E_TOO_SMALL
                                                                               : KVP_OK;
}

static void cut_dense(struct meta_cut *cut, const kvp_meta_sizes *sizes, kvp_meta_dense *dense)
{
    const uint64_t B = sizes->n_seqs;
    dense->row_stride = sizes->max_blocks;
    dense->max_tokens = sizes->n_tokens;
    dense->block_table = take_part(cut, B * sizes->max_blocks, sizeof(int32_t));
    dense->seq_lens = take_part(cut, B, sizeof(int32_t));
    dense->query_start = take_part(cut, B + 1, sizeof(int32_t));
    dense->slot_mapping = take_part(cut, sizes->n_tokens, sizeof(int64_t));
    dense->positions = take_part(cut, sizes->n_tokens, sizeof(int32_t));
}

kvp_status kvp_meta_place_dense(kvp_meta_dense *dense, const kvp_meta_sizes *sizes, void *buffer,
                                size_t capacity, size_t *out_n_bytes)
{
    struct meta_cut cut = {NULL, {0, 0}};
    kvp_meta_dense placed;
    dense = kvpi_sized(dense, sizeof(*dense));
    if (dense == NULL || bad_place(sizes, buffer, out_n_bytes)) {
        return KVP_E_ARG;
    }
    placed = *dense;
    cut_dense(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL && capacity > 0) {
        cut = (struct meta_cut){buffer, {0, 0}};
        cut_dense(&cut, sizes, dense);
    }
    return status;
}

static void cut_csr(struct meta_cut *cut, const kvp_meta_sizes *sizes, kvp_meta_csr *csr)
{
    const uint64_t B = sizes->n_seqs;
    csr->max_entries = sizes->n_entries;
    csr->max_tokens = sizes->n_tokens;
    csr->qo_indptr = take_part(cut, B + 1, sizeof(int32_t));
    csr->kv_indptr = take_part(cut, B + 1, sizeof(int32_t));
    csr->kv_indices = take_part(cut, sizes->n_entries, sizeof(int32_t));
    csr->last_block_len = take_part(cut, B, sizeof(int32_t));
    csr->batch_indices = take_part(cut, sizes->n_tokens, sizeof(int32_t));
    csr->positions = take_part(cut, sizes->n_tokens, sizeof(int32_t));
    csr->slot_mapping = take_part(cut, sizes->n_tokens, sizeof(int64_t));
}

kvp_status kvp_meta_place_csr(kvp_meta_csr *csr, const kvp_meta_sizes *sizes, void *buffer,
                              size_t capacity, size_t *out_n_bytes)
{
    struct meta_cut cut = {NULL, {0, 0}};
    kvp_meta_csr placed;
    csr = kvpi_sized(csr, sizeof(*csr));
    if (csr == NULL || bad_place(sizes, buffer, out_n_bytes)) {
        return KVP_E_ARG;
    }
    placed = *csr;
    cut_csr(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL && capacity > 0) {
        cut = (struct meta_cut){buffer, {0, 0}};
        cut_csr(&cut, sizes, csr);
    }
    return status;
}

static void cut_windowed(struct meta_cut *cut, const kvp_meta_sizes *sizes,
                         kvp_meta_windowed *windowed)
{
    const uint64_t B = sizes->n_seqs;
    windowed->max_entries = sizes->n_kept;
    windowed->max_tokens = sizes->n_tokens;
    windowed->qo_indptr = take_part(cut, B + 1, sizeof(int32_t));
    windowed->kv_indptr = take_part(cut, B + 1, sizeof(int32_t));
    windowed->kv_indices = take_part(cut, sizes->n_kept, sizeof(int32_t));
    windowed->last_block_len = take_part(cut, B, sizeof(int32_t));
    windowed->batch_indices = take_part(cut, sizes->n_tokens, sizeof(int32_t));
    windowed->positions = take_part(cut, sizes->n_tokens, sizeof(int32_t));
    windowed->slot_mapping = take_part(cut, sizes->n_tokens, sizeof(int64_t));
    windowed->relative = take_part(cut, sizes->n_tokens, sizeof(int32_t));
    windowed->sink_len = take_part(cut, B, sizeof(int32_t));
    windowed->window_offset = take_part(cut, B, sizeof(int32_t));
    windowed->key_offset = take_part(cut, B, sizeof(int32_t));
    windowed->sinks = take_part(cut, B, sizeof(uint32_t));
    windowed->recent = take_part(cut, B, sizeof(uint32_t));
}

kvp_status kvp_meta_place_windowed(kvp_meta_windowed *windowed, const kvp_meta_sizes *sizes,
                                   void *buffer, size_t capacity, size_t *out_n_bytes)
{
    struct meta_cut cut = {NULL, {0, 0}};
    kvp_meta_windowed placed;
    windowed = kvpi_sized(windowed, sizeof(*windowed));
    if (windowed == NULL || bad_place(sizes, buffer, out_n_bytes)) {
        return KVP_E_ARG;
    }
    placed = *windowed;
    cut_windowed(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL && capacity > 0) {
        cut = (struct meta_cut){buffer, {0, 0}};
        cut_windowed(&cut, sizes, windowed);
    }
    return status;
}

/* A caller needs no room for a mask that intervals replace. */
static void cut_mask(struct meta_cut *cut, const kvp_meta_sizes *sizes, kvp_meta_tree *tree)
{
    tree->max_mask_bytes = sizes->n_mask_bytes;
    tree->mask_indptr = NULL;
    tree->mask = NULL;
    cut->layout.overflow |= sizes->n_mask_bytes > INT32_MAX; /* what mask_indptr can count */
    if (sizes->n_mask_bytes > 0) {
        tree->mask_indptr = take_part(cut, (uint64_t)sizes->n_seqs + 1, sizeof(int32_t));
        tree->mask = take_part(cut, sizes->n_mask_bytes, 1);
    }
}

static void cut_tree(struct meta_cut *cut, const kvp_meta_sizes *sizes, kvp_meta_tree *tree)
{
    tree->max_nodes = sizes->n_nodes;
    tree->indptr = take_part(cut, (uint64_t)sizes->n_seqs + 1, sizeof(int32_t));
    tree->parent = take_part(cut, sizes->n_nodes, sizeof(int32_t));
    tree->depth = take_part(cut, sizes->n_nodes, sizeof(int32_t));
    tree->intervals = take_part(cut, sizes->n_nodes, 2 * sizeof(int32_t));
    cut_mask(cut, sizes, tree);
}

kvp_status kvp_meta_place_tree(kvp_meta_tree *tree, const kvp_meta_sizes *sizes, void *buffer,
                               size_t capacity, size_t *out_n_bytes)
{
    struct meta_cut cut = {NULL, {0, 0}};
    kvp_meta_tree placed;
    tree = kvpi_sized(tree, sizeof(*tree));
    if (tree == NULL || bad_place(sizes, buffer, out_n_bytes)) {
        return KVP_E_ARG;
    }
    placed = *tree;
    cut_tree(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL && capacity > 0) {
        cut = (struct meta_cut){buffer, {0, 0}};
        cut_tree(&cut, sizes, tree);
    }
    return status;
}

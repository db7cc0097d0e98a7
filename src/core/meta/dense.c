/* dense: batch metadata. The rows of a batch as arrays for kernels; see meta.h.
 *
 * Here are the batch itself, and the formats that give rows as they are: dense, CSR, TensorRT-LLM,
 * delta. What needs more than the row has files of its own: window.c, tree.c,
 * cascade.c; meta_place.c cuts buffers. Sequences without windows and trees pay for
 * them with one test when they are counted, and one when their tokens are written.
 */
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/meta/enter.h"
#include "core/meta/meta.h"
#include "core/meta/meta_tokens.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- counting */

static uint64_t count_mask_bytes(const kvp_cache *cache, const kvp_meta_batch *batch)
{
    uint64_t n = 0; /* at most 2^31 queries, each of less than 2^32 keys */
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        n += ((uint64_t)span.n_tokens * span.end + 7) / 8;
    }
    return n;
}

kvp_status kvp_meta_measure(kvp_cache *cache, const kvp_meta_batch *batch,
                            kvp_meta_sizes *out_sizes)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    if (out_sizes == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    sizes.n_mask_bytes = count_mask_bytes(cache, batch);
    *out_sizes = sizes;
    return kvpi_leave(cache, status);
}

/* ---------------------------------------------------------------------------- shared by formats */

/* ---------------------------------------------------------------------------------------- dense */

static void fill_dense(const kvp_cache *cache, const kvp_meta_batch *batch,
                       const kvp_meta_dense *dense)
{
    const struct kvpi_token_arrays tokens = {kvpi_block_tokens(cache, batch->group), NULL,
                                             dense->positions, dense->slot_mapping};
    uint32_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        const int32_t *row = kvpi_span_row(cache, batch, &span);
        if (dense->block_table != NULL) {
            int32_t *out = dense->block_table + (size_t)b * dense->row_stride;
            memcpy(out, row, span.n_blocks * sizeof(*row));
            memset(out + span.n_blocks, 0, (dense->row_stride - span.n_blocks) * sizeof(*row));
        }
        kvpi_put(dense->seq_lens, b, (int32_t)span.end);
        kvpi_put_sum(dense->query_start, b, n, span.n_tokens);
        kvpi_fill_tokens(cache, &span, row, b, n, &tokens);
        n += span.n_tokens;
    }
}

kvp_status kvp_meta_fill_dense(kvp_cache *cache, const kvp_meta_batch *batch,
                               const kvp_meta_dense *dense)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    dense = kvpi_sized(dense, sizeof(*dense));
    if (dense == NULL) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    if ((dense->block_table != NULL && dense->row_stride < sizes.max_blocks) ||
        ((dense->slot_mapping != NULL || dense->positions != NULL) &&
         dense->max_tokens < sizes.n_tokens)) {
        status = KVP_E_TOO_SMALL;
    } else {
        fill_dense(cache, batch, dense);
    }
    return kvpi_leave(cache, status);
}

/* ------------------------------------------------------------------------------------------ CSR */

static void fill_csr(const kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_csr *csr)
{
    const struct kvpi_token_arrays tokens = {kvpi_block_tokens(cache, batch->group),
                                             csr->batch_indices, csr->positions, csr->slot_mapping};
    uint32_t n = 0;
    uint32_t e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        const int32_t *row = kvpi_span_row(cache, batch, &span);
        kvpi_put_sum(csr->qo_indptr, b, n, span.n_tokens);
        kvpi_put_sum(csr->kv_indptr, b, e, span.n_blocks);
        kvpi_put(csr->last_block_len, b, kvpi_last_block_len(cache, batch, &span));
        kvpi_fill_tokens(cache, &span, row, b, n, &tokens);
        if (csr->kv_indices != NULL) {
            memcpy(csr->kv_indices + e, row, span.n_blocks * sizeof(*row));
        }
        n += span.n_tokens;
        e += span.n_blocks;
    }
}

kvp_status kvp_meta_fill_csr(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_csr *csr)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    csr = kvpi_sized(csr, sizeof(*csr));
    if (csr == NULL) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    const int any_tokens =
        csr->batch_indices != NULL || csr->positions != NULL || csr->slot_mapping != NULL;
    if ((csr->kv_indices != NULL && csr->max_entries < sizes.n_entries) ||
        (any_tokens && csr->max_tokens < sizes.n_tokens)) {
        status = KVP_E_TOO_SMALL;
    } else {
        fill_csr(cache, batch, csr);
    }
    return kvpi_leave(cache, status);
}

/* --------------------------------------------------------------------------------- TensorRT-LLM */

static void fill_trtllm(const kvp_cache *cache, const kvp_meta_batch *batch,
                        const kvp_meta_trtllm *trtllm)
{
    const int32_t scale = (int32_t)trtllm->layers_per_block * 2;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        const int32_t *row = kvpi_span_row(cache, batch, &span);
        if (trtllm->block_offsets != NULL) {
            int32_t *k = trtllm->block_offsets + (size_t)b * 2 * trtllm->row_stride;
            int32_t *v = k + trtllm->row_stride;
            for (uint32_t i = 0; i < trtllm->row_stride; i++) {
                k[i] = i < span.n_blocks ? row[i] * scale : -1;
                v[i] = i < span.n_blocks ? row[i] * scale + 1 : -1;
            }
        }
        kvpi_put(trtllm->seq_lens, b, (int32_t)span.end);
    }
}

kvp_status kvp_meta_fill_trtllm(kvp_cache *cache, const kvp_meta_batch *batch,
                                const kvp_meta_trtllm *trtllm)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    trtllm = kvpi_sized(trtllm, sizeof(*trtllm));
    if (trtllm == NULL || trtllm->layers_per_block == 0) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    const uint64_t end = (uint64_t)cache->config.n_blocks * trtllm->layers_per_block;
    if (trtllm->layers_per_block > INT32_MAX / 2 || end > INT32_MAX / 2) {
        status = KVP_E_TOO_LONG;
    } else if (trtllm->block_offsets != NULL && trtllm->row_stride < sizes.max_blocks) {
        status = KVP_E_TOO_SMALL;
    } else {
        fill_trtllm(cache, batch, trtllm);
    }
    return kvpi_leave(cache, status);
}

/* ---------------------------------------------------------------------------------------- delta */

/* The row index of the first of n entries that the caller does not have. */
static uint32_t first_missing(const kvp_meta_delta *delta, const struct kvpi_seq *seq, uint32_t n,
                              uint32_t b)
{
    return delta->had_version[b] == seq->row_version && delta->had_blocks[b] <= n
               ? delta->had_blocks[b]
               : 0;
}

static kvp_status fill_delta(const kvp_cache *cache, const kvp_meta_batch *batch,
                             kvp_meta_delta *delta)
{
    uint64_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, batch->seqs[b]); /* enter knows it */
        const uint32_t n_row = kvpi_row_entries(cache, seq, batch->group);
        n += n_row - first_missing(delta, seq, n_row, b);
    }
    if (n > INT32_MAX) {
        return KVP_E_TOO_LONG;
    }
    delta->n_entries = (uint32_t)n;
    if (delta->max_entries == 0) {
        return KVP_OK;
    }
    if (n > delta->max_entries) {
        return KVP_E_TOO_SMALL;
    }
    uint32_t e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, batch->seqs[b]);
        const int32_t *row = kvpi_row(cache, seq, batch->group);
        const uint32_t n_row = kvpi_row_entries(cache, seq, batch->group);
        const uint32_t start = first_missing(delta, seq, n_row, b);
        memcpy(delta->entries + e, row + start, (n_row - start) * sizeof(*row));
        kvpi_put_sum(delta->indptr, b, e, n_row - start);
        delta->start[b] = (int32_t)start;
        delta->version[b] = seq->row_version;
        delta->blocks[b] = n_row;
        e += n_row - start;
    }
    return KVP_OK;
}

static int bad_delta(const kvp_meta_delta *delta)
{
    return delta == NULL || delta->reserved != 0 || delta->had_version == NULL ||
           delta->had_blocks == NULL || delta->version == NULL || delta->blocks == NULL ||
           delta->indptr == NULL || delta->start == NULL ||
           (delta->entries == NULL && delta->max_entries > 0);
}

kvp_status kvp_meta_fill_delta(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_delta *delta)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    delta = kvpi_sized(delta, sizeof(*delta));
    if (bad_delta(delta) || batch == NULL) {
        return KVP_E_ARG;
    }
    kvp_meta_batch rows = *batch; /* of rows, not of a step */
    rows.begin = NULL;
    rows.n_tokens = NULL;
    kvp_status status = kvpi_meta_enter_rows(cache, &rows, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    status = fill_delta(cache, batch, delta);
    return kvpi_leave(cache, status);
}

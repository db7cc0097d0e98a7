/* cache_meta: batch metadata. The rows of a batch as arrays for kernels; see meta.h.
 *
 * Every fill goes twice over the batch: once to check it and count, once to write. Nothing is
 * written before everything is known to fit.
 */
#include "cache_meta.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- counting */

static int bad_batch(const kvp_cache *cache, const kvp_meta_batch *batch)
{
    return cache == NULL || batch == NULL || batch->struct_size != sizeof(*batch) ||
           batch->seqs == NULL || batch->n_seqs == 0 || batch->group != 0;
}

struct kvpi_span kvpi_meta_span(const kvp_cache *cache, const kvp_meta_batch *batch, uint32_t b)
{
    const struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[b]);
    struct kvpi_span span = {seq, 0, 0, 0, 0};
    span.begin = batch->begin != NULL          ? batch->begin[b]
                 : seq->computed < seq->tokens ? seq->computed
                                               : seq->tokens - (seq->tokens > 0);
    span.n_tokens = batch->n_tokens != NULL    ? batch->n_tokens[b]
                    : span.begin < seq->tokens ? seq->tokens - span.begin
                                               : 0;
    span.end = span.begin + span.n_tokens;
    span.n_blocks = kvpi_ceil_div(span.end, cache->config.block_tokens);
    return span;
}

const int32_t *kvpi_span_row(const kvp_cache *cache, const struct kvpi_span *span)
{
    return kvpi_row_blocks(&cache->table, kvpi_seq_place(&cache->table, span->seq));
}

static kvp_status check_span(const struct kvpi_span *span)
{
    const struct kvpi_seq *seq = span->seq;
    if (span->begin > seq->tokens || span->n_tokens > seq->tokens - span->begin) {
        return KVP_E_ARG;
    }
    return seq->tier != KVP_DEVICE ||
                   (span->n_tokens > 0 && span->end > kvpi_max_u32(seq->writable, seq->computed))
               ? KVP_E_STATE
               : KVP_OK;
}

/* The first thing wrong with the batch; asking is not failing: the shortage stays as it is. */
static kvp_status measure(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_sizes *sizes)
{
    const kvp_shortage shortage = cache->shortage;
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    uint64_t n_tokens = 0;
    uint64_t n_entries = 0;
    memset(sizes, 0, sizeof(*sizes));
    sizes->n_seqs = batch->n_seqs;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        if (kvpi_faults_find(cache, &faults, batch->seqs[b], b) == NULL) {
            break;
        }
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        kvpi_faults_other(&faults, check_span(&span), b);
        n_tokens += span.n_tokens;
        n_entries += span.n_blocks;
        sizes->max_blocks = kvpi_max_u32(sizes->max_blocks, span.n_blocks);
    }
    kvp_status status = KVP_OK;
    if (kvpi_faults_any(&faults)) {
        status = kvpi_faults_fail(cache, &faults);
        cache->shortage = shortage;
    } else if (n_tokens > INT32_MAX || n_entries > INT32_MAX) {
        status = KVP_E_TOO_LONG;
    }
    sizes->n_tokens = (uint32_t)n_tokens;
    sizes->n_entries = (uint32_t)n_entries;
    return status;
}

kvp_status kvpi_meta_enter(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_sizes *sizes)
{
    if (bad_batch(cache, batch)) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_enter(cache);
    if (status == KVP_OK) {
        status = measure(cache, batch, sizes);
        if (status != KVP_OK) {
            (void)kvpi_leave(cache, KVP_OK); /* nothing was refused for want of blocks */
        }
    }
    return status;
}

kvp_status kvp_meta_measure(kvp_cache *cache, const kvp_meta_batch *batch,
                            kvp_meta_sizes *out_sizes)
{
    kvp_meta_sizes sizes;
    if (out_sizes == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    *out_sizes = sizes;
    return kvpi_leave(cache, status);
}

/* ---------------------------------------------------------------------------- shared by formats */

/* Slots of the step's tokens: KVP_NO_SLOT for those that are computed. */
static void fill_slots(const kvp_cache *cache, const struct kvpi_span *span, int64_t *out)
{
    const uint32_t S = cache->config.block_tokens;
    const int32_t *row = kvpi_span_row(cache, span);
    for (uint32_t p = span->begin; p < span->end; p++) {
        *out++ = p < span->seq->computed ? KVP_NO_SLOT : (int64_t)row[p / S] * S + p % S;
    }
}

static void fill_positions(const struct kvpi_span *span, int32_t *out)
{
    for (uint32_t p = span->begin; p < span->end; p++) {
        *out++ = (int32_t)p;
    }
}

int32_t kvpi_last_block_len(const kvp_cache *cache, uint32_t length)
{
    const uint32_t S = cache->config.block_tokens;
    return length == 0 ? 0 : (int32_t)((length - 1) % S + 1);
}

/* Prefix sums of a count per sequence. */
static void put_sum(int32_t *indptr, uint32_t b, uint32_t before, uint32_t n)
{
    if (indptr != NULL) {
        indptr[b] = (int32_t)before;
        indptr[b + 1] = (int32_t)(before + n);
    }
}

static void put(int32_t *array, uint32_t b, int32_t value)
{
    if (array != NULL) {
        array[b] = value;
    }
}

/* ---------------------------------------------------------------------------------------- dense */

static void fill_dense(const kvp_cache *cache, const kvp_meta_batch *batch,
                       const kvp_meta_dense *dense)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        if (dense->block_table != NULL) {
            int32_t *row = dense->block_table + (size_t)b * dense->row_stride;
            memcpy(row, kvpi_span_row(cache, &span), span.n_blocks * sizeof(*row));
            memset(row + span.n_blocks, 0, (dense->row_stride - span.n_blocks) * sizeof(*row));
        }
        put(dense->seq_lens, b, (int32_t)span.end);
        put_sum(dense->query_start, b, n, span.n_tokens);
        if (dense->slot_mapping != NULL) {
            fill_slots(cache, &span, dense->slot_mapping + n);
        }
        if (dense->positions != NULL) {
            fill_positions(&span, dense->positions + n);
        }
        n += span.n_tokens;
    }
}

kvp_status kvp_meta_fill_dense(kvp_cache *cache, const kvp_meta_batch *batch,
                               const kvp_meta_dense *dense)
{
    kvp_meta_sizes sizes;
    if (dense == NULL || dense->struct_size != sizeof(*dense)) {
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
    uint32_t n = 0;
    uint32_t e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        put_sum(csr->qo_indptr, b, n, span.n_tokens);
        put_sum(csr->kv_indptr, b, e, span.n_blocks);
        if (csr->kv_indices != NULL) {
            memcpy(csr->kv_indices + e, kvpi_span_row(cache, &span),
                   span.n_blocks * sizeof(int32_t));
        }
        put(csr->last_block_len, b, kvpi_last_block_len(cache, span.end));
        for (uint32_t i = 0; i < span.n_tokens && csr->batch_indices != NULL; i++) {
            csr->batch_indices[n + i] = span.begin + i < span.seq->computed ? -1 : (int32_t)b;
        }
        if (csr->positions != NULL) {
            fill_positions(&span, csr->positions + n);
        }
        if (csr->slot_mapping != NULL) {
            fill_slots(cache, &span, csr->slot_mapping + n);
        }
        n += span.n_tokens;
        e += span.n_blocks;
    }
}

kvp_status kvp_meta_fill_csr(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_csr *csr)
{
    kvp_meta_sizes sizes;
    if (csr == NULL || csr->struct_size != sizeof(*csr)) {
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
        const int32_t *row = kvpi_span_row(cache, &span);
        if (trtllm->block_offsets != NULL) {
            int32_t *k = trtllm->block_offsets + (size_t)b * 2 * trtllm->row_stride;
            int32_t *v = k + trtllm->row_stride;
            for (uint32_t i = 0; i < trtllm->row_stride; i++) {
                k[i] = i < span.n_blocks ? row[i] * scale : -1;
                v[i] = i < span.n_blocks ? row[i] * scale + 1 : -1;
            }
        }
        put(trtllm->seq_lens, b, (int32_t)span.end);
    }
}

kvp_status kvp_meta_fill_trtllm(kvp_cache *cache, const kvp_meta_batch *batch,
                                const kvp_meta_trtllm *trtllm)
{
    kvp_meta_sizes sizes;
    if (trtllm == NULL || trtllm->struct_size != sizeof(*trtllm) || trtllm->layers_per_block == 0) {
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

/* The row index of the first entry that the caller does not have. */
static uint32_t first_missing(const kvp_meta_delta *delta, const struct kvpi_seq *seq, uint32_t b)
{
    return delta->had_version[b] == seq->row_version && delta->had_blocks[b] <= seq->n_blocks
               ? delta->had_blocks[b]
               : 0;
}

static kvp_status fill_delta(const kvp_cache *cache, const kvp_meta_batch *batch,
                             kvp_meta_delta *delta)
{
    uint64_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[b]);
        n += seq->n_blocks - first_missing(delta, seq, b);
    }
    if (n > INT32_MAX) {
        return KVP_E_TOO_LONG;
    }
    delta->n_entries = (uint32_t)n;
    if (n > delta->max_entries) {
        return KVP_E_TOO_SMALL;
    }
    uint32_t e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[b]);
        const int32_t *row = kvpi_row_blocks(&cache->table, kvpi_seq_place(&cache->table, seq));
        const uint32_t start = first_missing(delta, seq, b);
        memcpy(delta->entries + e, row + start, (seq->n_blocks - start) * sizeof(*row));
        put_sum(delta->indptr, b, e, seq->n_blocks - start);
        delta->start[b] = (int32_t)start;
        delta->version[b] = seq->row_version;
        delta->blocks[b] = seq->n_blocks;
        e += seq->n_blocks - start;
    }
    return KVP_OK;
}

static int bad_delta(const kvp_meta_delta *delta)
{
    return delta == NULL || delta->struct_size != sizeof(*delta) || delta->had_version == NULL ||
           delta->had_blocks == NULL || delta->version == NULL || delta->blocks == NULL ||
           delta->indptr == NULL || delta->start == NULL ||
           (delta->entries == NULL && delta->max_entries > 0);
}

kvp_status kvp_meta_fill_delta(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_delta *delta)
{
    kvp_meta_sizes sizes;
    if (bad_delta(delta) || batch == NULL) {
        return KVP_E_ARG;
    }
    kvp_meta_batch rows = *batch; /* of rows, not of a step */
    rows.begin = NULL;
    rows.n_tokens = NULL;
    kvp_status status = kvpi_meta_enter(cache, &rows, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    status = fill_delta(cache, batch, delta);
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------- one buffer */

/* Cuts a buffer; a first pass without buffer measures. */
struct cut {
    char *buffer;
    struct kvpi_layout layout;
};

static void *take(struct cut *cut, size_t n, size_t size)
{
    const size_t at = kvpi_layout_take(&cut->layout, n, size); /* whole cache lines */
    return cut->buffer == NULL ? NULL : cut->buffer + at;
}

static void cut_dense(struct cut *cut, const kvp_meta_sizes *sizes, kvp_meta_dense *dense)
{
    const size_t B = sizes->n_seqs;
    dense->row_stride = sizes->max_blocks;
    dense->max_tokens = sizes->n_tokens;
    dense->block_table = take(cut, B * sizes->max_blocks, sizeof(int32_t));
    dense->seq_lens = take(cut, B, sizeof(int32_t));
    dense->query_start = take(cut, B + 1, sizeof(int32_t));
    dense->slot_mapping = take(cut, sizes->n_tokens, sizeof(int64_t));
    dense->positions = take(cut, sizes->n_tokens, sizeof(int32_t));
}

static void cut_csr(struct cut *cut, const kvp_meta_sizes *sizes, kvp_meta_csr *csr)
{
    const size_t B = sizes->n_seqs;
    csr->max_entries = sizes->n_entries;
    csr->max_tokens = sizes->n_tokens;
    csr->qo_indptr = take(cut, B + 1, sizeof(int32_t));
    csr->kv_indptr = take(cut, B + 1, sizeof(int32_t));
    csr->kv_indices = take(cut, sizes->n_entries, sizeof(int32_t));
    csr->last_block_len = take(cut, B, sizeof(int32_t));
    csr->batch_indices = take(cut, sizes->n_tokens, sizeof(int32_t));
    csr->positions = take(cut, sizes->n_tokens, sizeof(int32_t));
    csr->slot_mapping = take(cut, sizes->n_tokens, sizeof(int64_t));
}

/* What a measured buffer is worth: the status of placing into it. */
static kvp_status judge_buffer(const struct cut *measured, const void *buffer, size_t capacity,
                               size_t *out_n_bytes)
{
    if (measured->layout.overflow) {
        return KVP_E_TOO_LONG;
    }
    *out_n_bytes = measured->layout.bytes;
    return buffer != NULL && capacity < measured->layout.bytes ? KVP_E_TOO_SMALL : KVP_OK;
}

kvp_status kvp_meta_place_dense(kvp_meta_dense *dense, const kvp_meta_sizes *sizes, void *buffer,
                                size_t capacity, size_t *out_n_bytes)
{
    struct cut cut = {NULL, {0, 0}};
    kvp_meta_dense placed;
    if (dense == NULL || dense->struct_size != sizeof(*dense) || sizes == NULL ||
        out_n_bytes == NULL || (uintptr_t)buffer % KVP_META_ALIGN != 0) {
        return KVP_E_ARG;
    }
    placed = *dense;
    cut_dense(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL) {
        cut = (struct cut){buffer, {0, 0}};
        cut_dense(&cut, sizes, dense);
    }
    return status;
}

kvp_status kvp_meta_place_csr(kvp_meta_csr *csr, const kvp_meta_sizes *sizes, void *buffer,
                              size_t capacity, size_t *out_n_bytes)
{
    struct cut cut = {NULL, {0, 0}};
    kvp_meta_csr placed;
    if (csr == NULL || csr->struct_size != sizeof(*csr) || sizes == NULL || out_n_bytes == NULL ||
        (uintptr_t)buffer % KVP_META_ALIGN != 0) {
        return KVP_E_ARG;
    }
    placed = *csr;
    cut_csr(&cut, sizes, &placed);
    const kvp_status status = judge_buffer(&cut, buffer, capacity, out_n_bytes);
    if (status == KVP_OK && buffer != NULL) {
        cut = (struct cut){buffer, {0, 0}};
        cut_csr(&cut, sizes, csr);
    }
    return status;
}

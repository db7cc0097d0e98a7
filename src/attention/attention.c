/* attention: the public entries. Each checks what it was given, all of it, before anything is
 * written; cuts its scratch memory; and hands over to an implementation, which checks nothing.
 *
 * An implementation is three functions (append, attention, merge) and what they need of scratch
 * memory. There are two, the reference and the fast one, which has kernels for several processors;
 * `impl` chooses. Both see the same checked arguments: strides and defaults resolved, rows found
 * (struct kvpi_batch).
 */
#include "kvpager/attention.h"

#include <math.h>
#include <string.h>

#include "attention/append.h"
#include "attention/fast/fast.h"
#include "attention/fast/kernels.h"
#include "attention/keys.h"
#include "attention/reference.h"
#include "attention/rope.h"
#include "attention/scratch.h"
#include "attention/shape.h"
#include "base/sized.h"
#include "base/why.h"

/* ------------------------------------------------------------------------------ rotary
 * embedding */

void kvp_rope_init(kvp_rope *rope)
{
    if (rope == NULL)
        return;
    memset(rope, 0, sizeof *rope);
    rope->struct_size = sizeof *rope;
    rope->theta = 10000.0;
    rope->factor = 1.0;
    rope->low_freq_factor = 1.0;
    rope->high_freq_factor = 4.0;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
}

kvp_status kvp_rope_frequencies(const kvp_rope *rope, uint32_t dims, double *out_frequencies,
                                uint32_t capacity, uint32_t *out_n_pairs, double *out_magnitude)
{
    struct kvpi_rope made;
    if (rope == NULL || dims < 1 || dims > KVP_HEAD_SIZE_MAX || !kvpi_rope_is_valid(rope, dims) ||
        out_n_pairs == NULL || (capacity > 0 && !kvpi_is_aligned(out_frequencies, sizeof(double))))
        return KVP_E_ARG;
    *out_n_pairs = kvpi_rope_pairs(rope, dims);
    if (*out_n_pairs > capacity)
        return capacity == 0 ? KVP_OK : KVP_E_TOO_SMALL;
    kvpi_rope_make(&made, rope, dims, out_frequencies);
    if (out_magnitude != NULL)
        *out_magnitude = made.magnitude;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------
 * scratch */

/* NULL: the reference. */
static const struct kvpi_kernels *kernels_of(uint32_t impl)
{
    return impl == KVP_ATTENTION_REFERENCE ? NULL : kvpi_kernels_find(impl);
}

int kvp_attention_has(uint32_t impl)
{
    return kvpi_impl_is_valid(impl);
}

/* May the caller's scratch memory be used, and is it enough? */
static kvp_status check_scratch(const struct kvpi_scratch *needed, const void *scratch,
                                size_t n_bytes)
{
    if (needed->overflow)
        return KVP_E_TOO_LONG;
    if (needed->used > n_bytes)
        return KVP_E_TOO_SMALL;
    return needed->used == 0 || kvpi_is_aligned(scratch, KVP_SCRATCH_ALIGN) ? KVP_OK : KVP_E_ARG;
}

/* ----------------------------------------------------------------------------------------
 * append */

void kvp_append_init(kvp_append *append)
{
    if (append == NULL)
        return;
    memset(append, 0, sizeof *append);
    append->struct_size = sizeof *append;
    kvp_rope_init(&append->rope);
}

/* Is a field wrong that says what is appended, not where it lies? */
static int append_wrong(const kvp_append *a, kvp_why *why)
{
    const uint64_t impl = a->impl;
    return kvpi_why_if(why, !kvpi_impl_is_valid(a->impl), "impl", &impl,
                       "this processor or this build does not have it") ||
           kvpi_layer_wrong(a->layer, why) ||
           kvpi_why_range(why, "layer.type", a->layer->type, KVP_F32, KVP_E4M3) ||
           kvpi_why_if(why, !kvpi_rope_is_valid(&a->rope, a->layer->k.size), "rope", NULL,
                       "not one for vectors of this size");
}

kvp_status kvp_append_check(const kvp_append *append, kvp_why *out_why)
{
    const kvp_append *known = kvpi_sized(append, sizeof(*append));
    kvpi_why_clear(out_why);
    return kvpi_why_missing(out_why, append, known, "append") || append_wrong(known, out_why)
               ? KVP_E_ARG
               : KVP_OK;
}

static int is_append_shaped(const kvp_append *append)
{
    return append != NULL && !append_wrong(append, NULL);
}

static int are_targets_valid(const kvp_append *append)
{
    const int64_t first = append->layer->block_tokens; /* no token is in the null block */
    const int64_t end = (int64_t)append->layer->n_blocks * append->layer->block_tokens;
    const int turns = append->rope.mode == KVP_ROPE_AT_WRITE;
    if (append->n_tokens == 0)
        return 1;
    if (!kvpi_is_aligned(append->slots, sizeof(int64_t)) ||
        (turns && !kvpi_is_aligned(append->positions, sizeof(int32_t))))
        return 0;
    for (uint32_t token = 0; token < append->n_tokens; token++) {
        const int64_t slot = append->slots[token];
        if (slot == KVP_NO_SLOT)
            continue;
        if (slot < first || slot >= end || (turns && append->positions[token] < 0))
            return 0;
    }
    return 1;
}

static int is_append_valid(const kvp_append *append)
{
    const kvp_layer *layer = append->layer;
    const struct kvpi_shape k = {append->n_tokens, layer->n_heads, layer->k.size};
    const struct kvpi_shape v = {append->n_tokens, layer->n_heads, layer->v.size};
    if (!kvpi_rows_are_valid(&append->k, &k))
        return 0;
    if (layer->v.base == NULL ? append->v.data != NULL : !kvpi_rows_are_valid(&append->v, &v))
        return 0;
    return are_targets_valid(append);
}

/* Scratch memory of the implementation that is asked for. */
struct append_scratch {
    struct kvpi_append_scratch reference;
    struct kvpi_fast_append fast;
};

static void cut_append(struct append_scratch *out, const kvp_append *append,
                       struct kvpi_scratch *scratch)
{
    if (kernels_of(append->impl) != NULL)
        kvpi_fast_append_scratch(&out->fast, append, scratch);
    else
        kvpi_reference_append_scratch(&out->reference, append, scratch);
}

kvp_status kvp_append_bytes(const kvp_append *append, size_t *out_bytes)
{
    struct kvpi_scratch scratch = {NULL, 0, 0};
    struct append_scratch parts;
    append = kvpi_sized(append, sizeof(*append));
    if (!is_append_shaped(append) || out_bytes == NULL)
        return KVP_E_ARG;
    cut_append(&parts, append, &scratch);
    *out_bytes = scratch.used;
    return KVP_OK;
}

kvp_status kvp_append_run(const kvp_append *append, void *scratch, size_t n_bytes)
{
    struct kvpi_scratch cut = {NULL, 0, 0};
    struct append_scratch parts;
    append = kvpi_sized(append, sizeof(*append));
    if (!is_append_shaped(append) || !is_append_valid(append))
        return KVP_E_ARG;
    cut_append(&parts, append, &cut);
    const kvp_status status = check_scratch(&cut, scratch, n_bytes);
    if (status != KVP_OK)
        return status;
    kvp_append resolved = *append;
    kvpi_rows_resolve(&resolved.k, &(struct kvpi_shape){append->n_tokens, append->layer->n_heads,
                                                        append->layer->k.size});
    kvpi_rows_resolve(&resolved.v, &(struct kvpi_shape){append->n_tokens, append->layer->n_heads,
                                                        append->layer->v.size});
    cut = (struct kvpi_scratch){scratch, 0, 0};
    cut_append(&parts, append, &cut);
    if (kernels_of(append->impl) != NULL)
        kvpi_fast_append(&resolved, kernels_of(append->impl), &parts.fast);
    else
        kvpi_reference_append(&resolved, &parts.reference);
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------
 * attention */

void kvp_attention_init(kvp_attention *attention)
{
    if (attention == NULL)
        return;
    memset(attention, 0, sizeof *attention);
    attention->struct_size = sizeof *attention;
    attention->causal = 1;
    attention->n_levels = 1;
    kvp_rope_init(&attention->rope);
}

static uint32_t v_size_of(const kvp_attention *attention)
{
    return attention->v_size != 0 ? attention->v_size : attention->layer->v.size;
}

static int heads_wrong(const kvp_attention *attention, kvp_why *why)
{
    const kvp_layer *layer = attention->layer;
    const uint64_t n_heads = attention->n_heads;
    if (kvpi_why_range(why, "n_heads", n_heads, 1, KVP_HEADS_MAX) ||
        kvpi_why_if(why, n_heads % layer->n_heads != 0, "n_heads", &n_heads,
                    "no multiple of the layer's"))
        return 1;
    return layer->v.base != NULL
               ? kvpi_why_range(why, "v_size", v_size_of(attention), layer->v.size, layer->v.size)
               : kvpi_why_range(why, "v_size", attention->v_size, 1, layer->k.size);
}

static int has_valid_scores(const kvp_attention *attention)
{
    return isfinite(attention->scale) && isfinite(attention->soft_cap) &&
           attention->soft_cap >= 0.0 &&
           (attention->sink_logits == NULL ||
            kvpi_is_aligned(attention->sink_logits, sizeof(float)));
}

static int is_window_valid(const kvp_attention_window *window)
{
    const void *const lists[] = {window->sink_len, window->window_offset, window->key_offset};
    const void *const sizes[] = {window->sinks, window->recent};
    for (int i = 0; i < 3; i++) {
        if ((lists[i] == NULL) != (lists[0] == NULL) || (uintptr_t)lists[i] % sizeof(int32_t) != 0)
            return 0;
    }
    for (int i = 0; i < 2; i++) {
        if ((sizes[i] == NULL) != (sizes[0] == NULL) || (uintptr_t)sizes[i] % sizeof(uint32_t) != 0)
            return 0;
    }
    return window->recent_tokens != 0 || window->sink_tokens == 0;
}

static int are_ranges(const int32_t *starts, uint32_t n, uint32_t most)
{
    if (!kvpi_is_aligned(starts, sizeof(int32_t)) || starts[0] < 0)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (starts[i + 1] < starts[i])
            return 0;
    }
    return (uint32_t)starts[n] <= most;
}

static int is_tree_valid(const kvp_attention_tree *tree, uint32_t n_seqs)
{
    if (tree->intervals != NULL && (tree->bits != NULL || tree->start == NULL))
        return 0;
    if ((tree->bits == NULL) != (tree->bits_start == NULL) ||
        (uintptr_t)tree->intervals % sizeof(int32_t) != 0)
        return 0;
    if (tree->start != NULL && !are_ranges(tree->start, n_seqs, tree->n_tokens))
        return 0;
    if (tree->start != NULL && tree->intervals == NULL && tree->bits == NULL)
        return tree->start[n_seqs] == tree->start[0];
    return tree->bits == NULL || are_ranges(tree->bits_start, n_seqs, tree->n_bytes);
}

/* Is a field wrong that says what is computed, not where it lies? */
static int attention_wrong(const kvp_attention *a, kvp_why *why)
{
    const uint64_t impl = a->impl;
    return kvpi_why_if(why, !kvpi_impl_is_valid(a->impl), "impl", &impl,
                       "this processor or this build does not have it") ||
           kvpi_why_range(why, "causal", a->causal, 0, 1) || kvpi_layer_wrong(a->layer, why) ||
           heads_wrong(a, why) ||
           kvpi_why_if(why, !has_valid_scores(a), "scale", NULL,
                       "it, soft_cap or sink_logits is no number, negative or misaligned") ||
           kvpi_why_range(why, "n_seqs", a->n_seqs, 0, INT32_MAX) ||
           kvpi_why_range(why, "n_tokens", a->n_tokens, 0, INT32_MAX) ||
           kvpi_why_if(why, !kvpi_levels_are_valid(a), "levels", NULL,
                       "they, n_levels, order or query_start do not fit each other") ||
           kvpi_why_if(why, !is_window_valid(&a->window), "window", NULL,
                       "sinks without a window, or some of its arrays are missing") ||
           kvpi_why_if(why, !is_tree_valid(&a->tree, a->n_seqs), "tree", NULL,
                       "its arrays do not fit each other") ||
           kvpi_why_if(why, !kvpi_rope_is_valid(&a->rope, a->layer->k.size), "rope", NULL,
                       "not one for vectors of this size");
}

kvp_status kvp_attention_check(const kvp_attention *attention, kvp_why *out_why)
{
    const kvp_attention *known = kvpi_sized(attention, sizeof(*attention));
    kvpi_why_clear(out_why);
    return kvpi_why_missing(out_why, attention, known, "attention") ||
                   attention_wrong(known, out_why)
               ? KVP_E_ARG
               : KVP_OK;
}

static int is_attention_shaped(const kvp_attention *attention)
{
    return attention != NULL && !attention_wrong(attention, NULL);
}

static int are_positions_valid(const int32_t *positions, uint32_t n)
{
    if (n > 0 && !kvpi_is_aligned(positions, sizeof(int32_t)))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (positions[i] < 0)
            return 0;
    }
    return 1;
}

/* q, out, lse, positions. */
static int are_tensors_valid(const kvp_attention *attention)
{
    const uint32_t n_tokens = attention->n_tokens, n_heads = attention->n_heads;
    const struct kvpi_shape q = {n_tokens, n_heads, attention->layer->k.size};
    const struct kvpi_shape out = {n_tokens, n_heads, v_size_of(attention)};
    const struct kvpi_shape lse = {n_tokens, n_heads, 1};
    if (!kvpi_rows_are_valid(&attention->q, &q) || !kvpi_rows_out_are_valid(&attention->out, &out))
        return 0;
    if (attention->lse.data != NULL && !kvpi_rows_out_are_valid(&attention->lse, &lse))
        return 0;
    const uint32_t n_queries = (uint32_t)attention->query_start[attention->n_seqs];
    const int32_t *of_window = attention->window.query_positions;
    if (of_window != NULL &&
        (attention->rope.mode == KVP_ROPE_AT_READ || !are_positions_valid(of_window, n_queries)))
        return 0;
    return attention->rope.mode != KVP_ROPE_AT_WRITE ||
           are_positions_valid(attention->positions, n_queries);
}

/* Defaults filled in, so that no other function needs to know them. */
static kvp_attention resolve_call(const kvp_attention *attention)
{
    kvp_attention resolved = *attention;
    const uint32_t n_tokens = attention->n_tokens, n_heads = attention->n_heads;
    resolved.v_size = v_size_of(attention);
    if (resolved.scale == 0.0)
        resolved.scale = 1.0 / sqrt(attention->layer->k.size);
    kvpi_rows_resolve(&resolved.q,
                      &(struct kvpi_shape){n_tokens, n_heads, attention->layer->k.size});
    kvpi_rows_out_resolve(&resolved.out, &(struct kvpi_shape){n_tokens, n_heads, resolved.v_size});
    kvpi_rows_out_resolve(&resolved.lse, &(struct kvpi_shape){n_tokens, n_heads, 1});
    return resolved;
}

/* Scratch memory of a call: the batch's, then the implementation's. */
struct attention_scratch {
    int32_t *rows;   /* [n_levels, B] */
    int32_t *places; /* [B] */
    uint32_t *seen;  /* [max_keys] for checks */
    struct kvpi_attention_scratch reference;
    struct kvpi_fast fast;
};

static void cut_attention(struct attention_scratch *out, const kvp_attention *resolved,
                          struct kvpi_scratch *scratch)
{
    const uint64_t n_seqs = resolved->n_seqs;
    uint64_t max_keys = kvpi_levels_max_keys(resolved);
    if (max_keys > INT32_MAX)
        max_keys = INT32_MAX; /* a sequence with more is refused */
    out->rows = kvpi_scratch_take(scratch, n_seqs * resolved->n_levels, sizeof *out->rows);
    out->places = kvpi_scratch_take(scratch, n_seqs, sizeof *out->places);
    if (kernels_of(resolved->impl) != NULL) {
        out->seen = kvpi_scratch_take(scratch, max_keys, sizeof *out->seen);
        kvpi_fast_scratch(&out->fast, resolved, kernels_of(resolved->impl), scratch);
        return;
    }
    kvpi_reference_attention_scratch(&out->reference, resolved, max_keys, scratch);
    out->seen = out->reference.seen;
}

kvp_status kvp_attention_bytes(const kvp_attention *attention, size_t *out_bytes)
{
    struct kvpi_scratch scratch = {NULL, 0, 0};
    struct attention_scratch parts;
    attention = kvpi_sized(attention, sizeof(*attention));
    if (!is_attention_shaped(attention) || out_bytes == NULL)
        return KVP_E_ARG;
    const kvp_attention resolved = resolve_call(attention);
    cut_attention(&parts, &resolved, &scratch);
    if (scratch.overflow)
        return KVP_E_TOO_LONG;
    *out_bytes = scratch.used;
    return KVP_OK;
}

/* Every sequence's arrays fit each other, and what its queries see is there. */
static int are_sequences_valid(const struct kvpi_batch *batch, uint32_t *seen)
{
    for (uint32_t seq = 0; seq < batch->attention->n_seqs; seq++) {
        struct kvpi_keys keys;
        if (!kvpi_batch_asks(batch, seq))
            continue;
        if (!kvpi_keys_make(&keys, batch, seq) || !kvpi_keys_are_there(&keys, seen))
            return 0;
    }
    return 1;
}

kvp_status kvp_attention_run(const kvp_attention *attention, void *scratch, size_t n_bytes)
{
    struct kvpi_scratch cut = {NULL, 0, 0};
    struct attention_scratch parts;
    attention = kvpi_sized(attention, sizeof(*attention));
    if (!is_attention_shaped(attention) || !are_tensors_valid(attention))
        return KVP_E_ARG;
    const kvp_attention resolved = resolve_call(attention);
    cut_attention(&parts, &resolved, &cut);
    const kvp_status status = check_scratch(&cut, scratch, n_bytes);
    if (status != KVP_OK)
        return status;
    cut = (struct kvpi_scratch){scratch, 0, 0};
    cut_attention(&parts, &resolved, &cut);
    struct kvpi_batch batch = {.rows = parts.rows};
    if (!kvpi_batch_make(&batch, &resolved, parts.places) ||
        !are_sequences_valid(&batch, parts.seen))
        return KVP_E_ARG;
    if (kernels_of(resolved.impl) != NULL)
        kvpi_fast_attention(&parts.fast, &batch, parts.places);
    else
        kvpi_reference_attention(&resolved, &batch, &parts.reference);
    return KVP_OK;
}

/* -----------------------------------------------------------------------------------------
 * merge */

void kvp_merge_init(kvp_merge *merge)
{
    if (merge == NULL)
        return;
    memset(merge, 0, sizeof *merge);
    merge->struct_size = sizeof *merge;
}

static int is_merge_valid(const kvp_merge *merge)
{
    if (merge == NULL || !kvpi_impl_is_valid(merge->impl) || merge->n_partials < 1 ||
        merge->n_partials > KVP_MERGE_MAX || merge->n_heads > KVP_HEADS_MAX || merge->size < 1 ||
        merge->size > KVP_HEAD_SIZE_MAX || !kvpi_is_aligned(merge->partials, sizeof(void *)))
        return 0;
    const struct kvpi_shape out = {merge->n_tokens, merge->n_heads, merge->size};
    const struct kvpi_shape lse = {merge->n_tokens, merge->n_heads, 1};
    for (uint32_t i = 0; i < merge->n_partials; i++) {
        if (!kvpi_rows_are_valid(&merge->partials[i].out, &out) ||
            !kvpi_rows_are_valid(&merge->partials[i].lse, &lse))
            return 0;
    }
    return kvpi_rows_out_are_valid(&merge->out, &out) &&
           (merge->lse.data == NULL || kvpi_rows_out_are_valid(&merge->lse, &lse));
}

kvp_status kvp_merge_run(const kvp_merge *merge)
{
    merge = kvpi_sized(merge, sizeof(*merge));
    if (!is_merge_valid(merge))
        return KVP_E_ARG;
    kvp_merge resolved = *merge;
    kvpi_rows_out_resolve(&resolved.out,
                          &(struct kvpi_shape){merge->n_tokens, merge->n_heads, merge->size});
    kvpi_rows_out_resolve(&resolved.lse, &(struct kvpi_shape){merge->n_tokens, merge->n_heads, 1});
    if (kernels_of(resolved.impl) != NULL)
        kvpi_fast_merge(&resolved, kernels_of(resolved.impl));
    else
        kvpi_reference_merge(&resolved);
    return KVP_OK;
}

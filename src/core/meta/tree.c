/* tree: who sees whom. The trees of a batch as intervals, and as a mask; see meta.h.
 *
 * Nodes are numbered depth first, children in the order in which they were added. A node's interval
 * begins at its number and ends behind those of its descendants:
 *
 *   0 -> 1 -> 3       number     0 1 3 2
 *     -> 2            interval   0..4  1..3  3..4  2..3
 *
 * Sizes of subtrees come from one walk from the last node down, numbers from one walk up: a parent
 * stands before its children. Both use the tree arrays of the scratch place, as depths do.
 */
#include "core/cache/frame.h"
#include "core/meta/enter.h"
#include "core/meta/kept.h"
#include "core/meta/meta.h"
#include "core/meta/meta_tokens.h"

#include <string.h>

/* Another. */
static int32_t *scratch_b(const kvp_cache *cache)
{
    return kvpi_tree_parents(&cache->table, kvpi_table_scratch(&cache->table));
}

/* ------------------------------------------------------------------------------------ intervals */

/* Nodes of the subtree under each. */
static const int32_t *count_subtrees(const kvp_cache *cache, const int32_t *parents, uint32_t n)
{
    int32_t *sizes = kvpi_meta_scratch(cache);
    for (uint32_t j = 0; j < n; j++) {
        sizes[j] = 1;
    }
    for (uint32_t j = n; j > 0; j--) {
        if (parents[j - 1] >= 0) {
            sizes[parents[j - 1]] += sizes[j - 1];
        }
    }
    return sizes;
}

static void fill_intervals(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n,
                           int32_t *out)
{
    const int32_t *parents = kvpi_parents_of(cache, seq);
    const int32_t *sizes = count_subtrees(cache, parents, n);
    int32_t *next = scratch_b(cache); /* number of the next child of each */
    int32_t next_root = 0;
    for (uint32_t j = 0; j < n; j++) {
        int32_t *number = parents[j] < 0 ? &next_root : &next[parents[j]];
        int32_t *interval = out + 2 * (size_t)j;
        interval[0] = *number;
        interval[1] = *number + sizes[j];
        next[j] = *number + 1;
        *number += sizes[j];
    }
}

/* ----------------------------------------------------------------------------------------- mask */

/* One sequence's part of a mask. */
struct mask {
    const struct kvpi_seq *seq;
    const int32_t *parents;
    const int32_t *depths;
    struct kvpi_kept kept;
    uint32_t n_keys;  /* columns */
    uint32_t skipped; /* by how many columns keys behind the sinks are nearer than their slots */
    uint8_t *bits;
};

/* Columns of a sequence's mask: slots of the row, or of the list without what is left out. */
static uint32_t count_keys(const kvp_cache *cache, const kvp_meta_batch *batch,
                           const struct kvpi_span *span, uint32_t mask_keys)
{
    const uint32_t left_out =
        mask_keys == KVP_MASK_WINDOWED ? kvpi_span_kept(cache, batch, span).left_out : 0;
    return span->end - left_out * kvpi_block_tokens(cache, batch->group);
}

static uint64_t count_tree_mask_bytes(const kvp_cache *cache, const kvp_meta_batch *batch,
                                      const struct kvpi_span *span, uint32_t mask_keys)
{
    return ((uint64_t)span->n_tokens * count_keys(cache, batch, span, mask_keys) + 7) / 8;
}

static void set_bit(uint8_t *bits, uint64_t i)
{
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
}

static void set_bits(uint8_t *bits, uint64_t begin, uint64_t end)
{
    while (begin < end && begin % 8 != 0) {
        set_bit(bits, begin++);
    }
    if (begin < end) {
        memset(bits + begin / 8, 0xFF, (size_t)((end - begin) / 8));
    }
    for (uint64_t i = begin + (end - begin) / 8 * 8; i < end; i++) {
        set_bit(bits, i);
    }
}

/* The mask's row, from bit `row` on, of the query in this slot: a token's is its position. */
static void fill_mask_row(const struct mask *mask, uint32_t slot, uint64_t row)
{
    const uint32_t tokens = mask->seq->tokens;
    const int is_node = slot >= tokens;
    const uint32_t position = is_node ? tokens + (uint32_t)mask->depths[slot - tokens] : slot;
    const uint32_t n_seen = is_node ? tokens : slot + 1; /* tokens before it, and itself */
    const uint32_t low = kvpi_window_first(mask->kept.window, position);
    const uint32_t sinks = mask->kept.window->sink;
    if (low <= sinks) {
        set_bits(mask->bits, row, row + n_seen);
    } else {
        const uint32_t begin = kvpi_min_u32(low, n_seen);
        set_bits(mask->bits, row, row + kvpi_min_u32(sinks, n_seen));
        set_bits(mask->bits, row + begin - mask->skipped, row + n_seen - mask->skipped);
    }
    for (int32_t k = is_node ? (int32_t)(slot - tokens) : -1; k >= 0; k = mask->parents[k]) {
        const uint32_t at = tokens + (uint32_t)mask->depths[k];
        if (at < sinks || at >= low) {
            set_bit(mask->bits, row + tokens + (uint32_t)k - mask->skipped);
        }
    }
}

static void fill_mask(const kvp_cache *cache, const kvp_meta_batch *batch,
                      const struct kvpi_span *span, uint32_t mask_keys, uint8_t *out)
{
    struct mask mask = {.seq = span->seq, .bits = out};
    mask.parents = kvpi_parents_of(cache, span->seq);
    mask.depths = kvpi_tree_depths(cache, span->seq, kvpi_span_nodes(span));
    mask.kept = kvpi_span_kept(cache, batch, span);
    mask.n_keys = count_keys(cache, batch, span, mask_keys);
    mask.skipped = span->end - mask.n_keys;
    memset(out, 0, (size_t)count_tree_mask_bytes(cache, batch, span, mask_keys));
    for (uint32_t i = 0; i < span->n_tokens; i++) {
        fill_mask_row(&mask, span->begin + i, (uint64_t)i * mask.n_keys);
    }
}

/* ----------------------------------------------------------------------------------------- fill */

static void fill_nodes(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t v, uint32_t n,
                       const kvp_meta_tree *tree)
{
    if (n == 0) {
        return;
    }
    if (tree->parent != NULL) {
        memcpy(tree->parent + v, kvpi_parents_of(cache, seq), n * sizeof(int32_t));
    }
    if (tree->depth != NULL) {
        memcpy(tree->depth + v, kvpi_tree_depths(cache, seq, n), n * sizeof(int32_t));
    }
    if (tree->intervals != NULL) {
        fill_intervals(cache, seq, n, tree->intervals + 2 * (size_t)v);
    }
}

static void fill_tree(const kvp_cache *cache, const kvp_meta_batch *batch,
                      const kvp_meta_tree *tree)
{
    const int any_mask = tree->mask != NULL || tree->mask_indptr != NULL;
    uint32_t v = 0;
    uint32_t bytes = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
        const uint32_t n = kvpi_span_nodes(&span);
        kvpi_put_sum(tree->indptr, b, v, n);
        fill_nodes(cache, span.seq, v, n, tree);
        v += n;
        if (any_mask) {
            const uint32_t n_bytes =
                (uint32_t)count_tree_mask_bytes(cache, batch, &span, tree->mask_keys);
            kvpi_put_sum(tree->mask_indptr, b, bytes, n_bytes);
            if (tree->mask != NULL && n_bytes > 0) {
                fill_mask(cache, batch, &span, tree->mask_keys, tree->mask + bytes);
            }
            bytes += n_bytes;
        }
    }
}

/* Does everything that is wanted fit? */
static kvp_status check_room(const kvp_cache *cache, const kvp_meta_batch *batch,
                             const kvp_meta_tree *tree, const kvp_meta_sizes *sizes)
{
    const int any_nodes = tree->parent != NULL || tree->depth != NULL || tree->intervals != NULL;
    uint64_t bytes = 0;
    if (tree->mask != NULL || tree->mask_indptr != NULL) {
        for (uint32_t b = 0; b < batch->n_seqs; b++) {
            const struct kvpi_span span = kvpi_meta_span(cache, batch, b);
            bytes += count_tree_mask_bytes(cache, batch, &span, tree->mask_keys);
        }
    }
    if (bytes > INT32_MAX) {
        return KVP_E_TOO_LONG;
    }
    return (any_nodes && tree->max_nodes < sizes->n_nodes) ||
                   (tree->mask != NULL && tree->max_mask_bytes < bytes)
               ? KVP_E_TOO_SMALL
               : KVP_OK;
}

kvp_status kvp_meta_fill_tree(kvp_cache *cache, const kvp_meta_batch *batch,
                              const kvp_meta_tree *tree)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    tree = kvpi_sized(tree, sizeof(*tree));
    if (tree == NULL || tree->mask_keys > KVP_MASK_WINDOWED) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    status = check_room(cache, batch, tree, &sizes);
    if (status == KVP_OK) {
        fill_tree(cache, batch, tree);
    }
    return kvpi_leave(cache, status);
}

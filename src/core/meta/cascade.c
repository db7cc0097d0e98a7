/* cascade: cascade metadata. Sequences that share leading blocks, level by level; see meta.h.
 *
 * The sequences are sorted by the blocks that they may share, so that those which share lie side by
 * side; then the number of leading blocks that neighbours have in common says everything:
 *
 *   sorted rows       common with the one before     level 0    level 1    last level
 *   1 2 3 4 | 9                                      [1 2      [3 4        9
 *   1 2 3 4 | 7       4                               .         .]         7
 *   1 2 5   | 8       2                               .]       []          5 8
 *   6       | 6       0                              []        []          6 6
 *
 * A group of a level is a run of neighbours that have more in common than the levels above have
 * given; it has what all of them have in common, less that. Levels above the last are made while
 * any run has two members. The arrays of the last level the caller gave serve as scratch until it
 * is written: they are as long as the batch.
 */
#include "core/cache/frame.h"
#include "core/meta/enter.h"
#include "core/meta/kept.h"
#include "core/meta/meta.h"

#include <string.h>

/* What is being made. */
struct making {
    const kvp_cache *cache;
    const kvp_meta_batch *batch;
    int32_t *order;  /* [B] */
    int32_t *common; /* [B] leading blocks in common with the one before, in order */
    int32_t *given;  /* [B] leading blocks that levels above have given */
};

/* Leading blocks that may be shared: tokens before the first query, which every query sees. Behind
 * its sinks a window hides some. */
static uint32_t count_shareable(const struct making *making, const struct kvpi_span *span)
{
    const struct kvpi_kept kept = kvpi_span_kept(making->cache, making->batch, span);
    const uint32_t q = kvpi_span_query(span);
    return (kept.window->recent == 0 ? q : kvpi_min_u32(q, kept.window->sink)) /
           kvpi_block_tokens(making->cache, making->batch->group);
}

static uint32_t count_common(const struct making *making, int32_t a, int32_t b)
{
    const struct kvpi_span first = kvpi_meta_span(making->cache, making->batch, (uint32_t)a);
    const struct kvpi_span second = kvpi_meta_span(making->cache, making->batch, (uint32_t)b);
    const int32_t *x = kvpi_span_row(making->cache, making->batch, &first);
    const int32_t *y = kvpi_span_row(making->cache, making->batch, &second);
    const uint32_t end =
        kvpi_min_u32(count_shareable(making, &first), count_shareable(making, &second));
    uint32_t n = 0;
    while (n < end && x[n] == y[n]) {
        n++;
    }
    return n;
}

/* Does a come before b? */
static int precedes(const struct making *making, int32_t a, int32_t b)
{
    const struct kvpi_span first = kvpi_meta_span(making->cache, making->batch, (uint32_t)a);
    const struct kvpi_span second = kvpi_meta_span(making->cache, making->batch, (uint32_t)b);
    const uint32_t n = count_common(making, a, b);
    const int a_ends = n == count_shareable(making, &first);
    const int b_ends = n == count_shareable(making, &second);
    if (a_ends || b_ends) {
        return a_ends && b_ends ? a < b : a_ends;
    }
    return kvpi_span_row(making->cache, making->batch, &first)[n] <
           kvpi_span_row(making->cache, making->batch, &second)[n];
}

/* Let order[root] sink to its place in the heap of n, largest on top. */
static void sift(const struct making *making, uint32_t root, uint32_t n)
{
    int32_t *order = making->order;
    for (uint32_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && precedes(making, order[child], order[child + 1])) {
            child++;
        }
        if (!precedes(making, order[root], order[child])) {
            return;
        }
        const int32_t sunk = order[root];
        order[root] = order[child];
        order[child] = sunk;
        root = child;
    }
}

/* Heap sort: no memory of its own, and no two sequences are equal in the order. */
static void sort_sequences(const struct making *making)
{
    const uint32_t B = making->batch->n_seqs;
    int32_t *order = making->order;
    for (uint32_t k = 0; k < B; k++) {
        order[k] = (int32_t)k;
    }
    for (uint32_t root = B / 2; root > 0; root--) {
        sift(making, root - 1, B);
    }
    for (uint32_t n = B; n > 1; n--) {
        const int32_t largest = order[0];
        order[0] = order[n - 1];
        order[n - 1] = largest;
        sift(making, 0, n - 1);
    }
}

/* The end of the run that begins at `first`: neighbours with more in common than was given. */
static uint32_t run_end(const struct making *making, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < making->batch->n_seqs && making->common[end] > making->given[first]) {
        end++;
    }
    return end;
}

/* What all of a run have in common; a run of one has nothing to share. */
static int32_t run_common(const struct making *making, uint32_t first, uint32_t end)
{
    int32_t common = making->given[first];
    if (end - first > 1) {
        common = making->common[first + 1];
        for (uint32_t k = first + 2; k < end; k++) {
            common = making->common[k] < common ? making->common[k] : common;
        }
    }
    return common;
}

/* Append a group of n_queries tokens and the row's entries [begin, end) to a level; `last_len`
 * tokens in the last of them. */
static void add_group(const struct making *making, kvp_meta_level *level, uint32_t n_queries,
                      const struct kvpi_span *span, uint32_t begin, uint32_t end, int32_t last_len)
{
    const uint32_t g = level->n_groups++;
    level->qo_indptr[g + 1] = level->qo_indptr[g] + (int32_t)n_queries;
    if (end > begin) {
        memcpy(level->kv_indices + level->n_entries,
               kvpi_span_row(making->cache, making->batch, span) + begin,
               (end - begin) * sizeof(int32_t));
    }
    level->n_entries += end - begin;
    level->kv_indptr[g + 1] = (int32_t)level->n_entries;
    level->last_block_len[g] = end > begin ? last_len : 0;
}

static void begin_level(kvp_meta_level *level)
{
    level->n_groups = 0;
    level->n_entries = 0;
    level->qo_indptr[0] = 0;
    level->kv_indptr[0] = 0;
}

/* Make a level of what runs have in common; 0 when none has two members. */
static int make_shared_level(const struct making *making, kvp_meta_level *level)
{
    const uint32_t B = making->batch->n_seqs;
    int any = 0;
    begin_level(level);
    for (uint32_t first = 0; first < B;) {
        const uint32_t end = run_end(making, first);
        const int32_t given = making->given[first];
        const int32_t common = run_common(making, first, end);
        uint32_t n_queries = 0;
        for (uint32_t k = first; k < end; k++) {
            const struct kvpi_span span =
                kvpi_meta_span(making->cache, making->batch, (uint32_t)making->order[k]);
            n_queries += span.n_tokens;
            making->given[k] = common;
        }
        const struct kvpi_span span =
            kvpi_meta_span(making->cache, making->batch, (uint32_t)making->order[first]);
        add_group(making, level, n_queries, &span, (uint32_t)given, (uint32_t)common,
                  (int32_t)kvpi_block_tokens(making->cache, making->batch->group));
        any |= common > given;
        first = end;
    }
    return any;
}

/* The last level: what each has for itself. It may be written over the scratch, in order. */
static void make_last_level(const struct making *making, kvp_meta_level *level)
{
    begin_level(level);
    for (uint32_t k = 0; k < making->batch->n_seqs; k++) {
        const struct kvpi_span span =
            kvpi_meta_span(making->cache, making->batch, (uint32_t)making->order[k]);
        const uint32_t given = (uint32_t)making->given[k];
        add_group(making, level, span.n_tokens, &span, given, span.n_blocks,
                  kvpi_last_block_len(making->cache, making->batch, &span));
    }
}

static void make_cascade(const kvp_cache *cache, const kvp_meta_batch *batch,
                         kvp_meta_cascade *cascade)
{
    const kvp_meta_level *scratch = &cascade->levels[cascade->max_levels - 1];
    const struct making making = {cache, batch, cascade->order, scratch->qo_indptr,
                                  scratch->last_block_len};
    uint32_t n = 0;
    sort_sequences(&making);
    for (uint32_t k = 0; k < batch->n_seqs; k++) {
        making.given[k] = 0;
        making.common[k] =
            k == 0 ? 0 : (int32_t)count_common(&making, cascade->order[k - 1], cascade->order[k]);
    }
    while (n + 1 < cascade->max_levels && make_shared_level(&making, &cascade->levels[n])) {
        n++;
    }
    make_last_level(&making, &cascade->levels[n]);
    cascade->n_levels = n + 1;
}

static int bad_cascade(const kvp_meta_cascade *cascade)
{
    if (cascade == NULL || cascade->max_levels == 0 || cascade->max_levels > KVP_META_LEVELS_MAX ||
        cascade->reserved != 0 || cascade->order == NULL || cascade->levels == NULL) {
        return 1;
    }
    for (uint32_t l = 0; l < cascade->max_levels; l++) {
        const kvp_meta_level *level = &cascade->levels[l];
        if (level->qo_indptr == NULL || level->kv_indptr == NULL || level->last_block_len == NULL ||
            (level->kv_indices == NULL && cascade->max_entries > 0)) {
            return 1;
        }
    }
    return 0;
}

kvp_status kvp_meta_fill_cascade(kvp_cache *cache, const kvp_meta_batch *batch,
                                 kvp_meta_cascade *cascade)
{
    kvp_meta_sizes sizes;
    batch = kvpi_sized(batch, sizeof(*batch));
    cascade = kvpi_sized(cascade, sizeof(*cascade));
    if (bad_cascade(cascade)) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_meta_enter(cache, batch, &sizes);
    if (status != KVP_OK) {
        return status;
    }
    if (cascade->max_entries < sizes.n_entries) {
        status = KVP_E_TOO_SMALL;
    } else {
        make_cascade(cache, batch, cascade);
    }
    return kvpi_leave(cache, status);
}

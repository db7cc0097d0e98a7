/* visible: see visible.h. Rows are bitsets of n_words words; all loops below go over them. */
#include "visible.h"

#include <stdlib.h>
#include <string.h>

#include "scan.h"

enum {
    MIN_SHARED = 64,  /* cells: fewer are not worth a row of the cascade */
    MAX_COMPARED = 64 /* clusters that a chain is compared with: the newest */
};

/* --------------------------------------------------------------------------------------- arrays */

/* Room for n elements; what was in it stays. 0: no memory. */
static int make_room(struct kvpi_array *array, size_t n, size_t size)
{
    if (n > SIZE_MAX / 2 / size)
        return 0;
    if (n * size <= array->n_bytes)
        return 1;
    const size_t n_bytes = n * size + n * size / 2 + 64;
    void *data = realloc(array->data, n_bytes);
    if (data == NULL)
        return 0;
    array->data = data;
    array->n_bytes = n_bytes;
    return 1;
}

void kvpi_visible_end(struct kvpi_visible *visible)
{
    struct kvpi_array *const arrays[] = {
        &visible->rows,         &visible->before,       &visible->groups,
        &visible->clusters,     &visible->members,      &visible->cells[0],
        &visible->cells[1],     &visible->starts[0],    &visible->starts[1],
        &visible->last_lens[0], &visible->last_lens[1], &visible->shared_queries,
        &visible->query_start,  &visible->order,        &visible->bits,
        &visible->bits_start,   &visible->spare};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]->data);
    *visible = (struct kvpi_visible){.n_groups = 0};
}

/* ----------------------------------------------------------------------------------------- bits */

static uint32_t count_bits(const uint64_t *row, uint32_t n_words)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++)
        n += (uint32_t)__builtin_popcountll(row[w]);
    return n;
}

/* How many bits of `row` are not in `other`. */
static uint32_t count_without(const uint64_t *row, const uint64_t *other, uint32_t n_words)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++)
        n += (uint32_t)__builtin_popcountll(row[w] & ~other[w]);
    return n;
}

static void add_bits(uint64_t *row, const uint64_t *other, uint32_t n_words)
{
    for (uint32_t w = 0; w < n_words; w++)
        row[w] |= other[w];
}

static const uint64_t *row_at(const struct kvpi_visible *visible, uint32_t row)
{
    return (const uint64_t *)visible->rows.data + (size_t)row * visible->n_words;
}

static void read_row(const struct kvpi_mask *mask, const uint16_t *from, uint64_t *row, int *other)
{
    const uint32_t n_whole = mask->n_cells / 64, n_rest = mask->n_cells % 64;
    for (uint32_t w = 0; w < n_whole; w++)
        row[w] = from != NULL ? kvpi_scan_64(from + (size_t)w * 64, other) : UINT64_MAX;
    if (n_rest > 0)
        row[n_whole] = from != NULL ? kvpi_scan_some(from + (size_t)n_whole * 64, n_rest, other)
                                    : UINT64_MAX >> (64 - n_rest);
}

/* All rows become bits; those of the call before are kept beside. */
static enum kvpi_visible_found read_rows(struct kvpi_visible *visible, const struct kvpi_mask *mask)
{
    const uint32_t n_words = mask->n_cells / 64 + (mask->n_cells % 64 != 0);
    const struct kvpi_array rows = visible->before;
    int other = 0;
    visible->before = visible->rows;
    visible->rows = rows;
    visible->n_words = n_words;
    if (!make_room(&visible->rows, (size_t)mask->n_streams * mask->n_rows * n_words + 1,
                   sizeof(uint64_t)))
        return KVPI_VISIBLE_NO_MEMORY;
    uint64_t *row = visible->rows.data;
    for (uint32_t s = 0; s < mask->n_streams; s++) {
        for (uint32_t i = 0; i < mask->n_rows; i++, row += n_words)
            read_row(mask,
                     mask->data == NULL
                         ? NULL
                         : mask->data + s * mask->stream_stride + i * mask->row_stride,
                     row, &other);
    }
    return other ? KVPI_VISIBLE_OTHER : KVPI_VISIBLE_CHANGED;
}

static int is_same(const struct kvpi_visible *visible, const struct kvpi_mask *mask)
{
    const struct kvpi_mask *before = &visible->mask;
    const size_t n_bytes = (size_t)mask->n_streams * mask->n_rows * visible->n_words * 8;
    return before->n_cells == mask->n_cells && before->n_rows == mask->n_rows &&
           before->n_streams == mask->n_streams && before->stream_cells == mask->stream_cells &&
           memcmp(visible->rows.data, visible->before.data, n_bytes) == 0;
}

/* --------------------------------------------------------------------------------------- groups */

static struct kvpi_group *group_at(const struct kvpi_visible *visible, uint32_t group)
{
    return (struct kvpi_group *)visible->groups.data + group;
}

/* Does a row show what the one before it shows, and one cell more? */
static int extends_chain(const struct kvpi_visible *visible, uint32_t row)
{
    const uint64_t *now = row_at(visible, row), *before = row_at(visible, row - 1);
    uint32_t n_new = 0;
    for (uint32_t w = 0; w < visible->n_words; w++) {
        if ((before[w] & ~now[w]) != 0)
            return 0;
        n_new += (uint32_t)__builtin_popcountll(now[w] & ~before[w]);
    }
    return n_new == 1;
}

/* Is a row much like the rows of a patch? `all` is what any of these shows. */
static int fits_patch(const struct kvpi_visible *visible, uint32_t row, const uint64_t *all)
{
    const uint64_t *now = row_at(visible, row);
    const uint32_t n = count_bits(now, visible->n_words);
    return count_without(now, all, visible->n_words) <= 2 &&
           count_without(all, now, visible->n_words) <= n;
}

/* Rows that show nothing are patches: a chain has a cell for each row. */
static void begin_group(struct kvpi_visible *visible, uint32_t row, uint64_t *all)
{
    const size_t n_bytes = visible->n_words * sizeof(uint64_t);
    memcpy(all, row_at(visible, row), n_bytes);
    *group_at(visible, visible->n_groups++) = (struct kvpi_group){
        .first = row, .n = 1, .is_patch = count_bits(all, visible->n_words) == 0};
}

static int joins_group(const struct kvpi_visible *visible, struct kvpi_group *group, uint32_t row,
                       const uint64_t *all)
{
    if (!group->is_patch && extends_chain(visible, row))
        return 1;
    if ((group->n > 1 && !group->is_patch) || !fits_patch(visible, row, all))
        return 0;
    group->is_patch = 1;
    return 1;
}

/* 0: no memory. */
static int find_groups(struct kvpi_visible *visible)
{
    const struct kvpi_mask *mask = &visible->mask;
    const uint32_t n_rows = mask->n_streams * mask->n_rows;
    visible->n_groups = 0;
    if (!make_room(&visible->groups, n_rows, sizeof(struct kvpi_group)) ||
        !make_room(&visible->spare, (size_t)visible->n_words + 1, sizeof(uint64_t)))
        return 0;
    uint64_t *all = visible->spare.data;
    for (uint32_t row = 0; row < n_rows; row++) {
        const int is_first = row % mask->n_rows == 0;
        struct kvpi_group *last = is_first ? NULL : group_at(visible, visible->n_groups - 1);
        if (last == NULL || !joins_group(visible, last, row, all)) {
            begin_group(visible, row, all);
            continue;
        }
        add_bits(all, row_at(visible, row), visible->n_words);
        last->n++;
    }
    return 1;
}

/* ------------------------------------------------------------------------------------- clusters */

static uint64_t *cluster_at(const struct kvpi_visible *visible, uint32_t cluster)
{
    return (uint64_t *)visible->clusters.data + (size_t)cluster * visible->n_words;
}

/* [2]: how many chains, how many cells they have in common. */
static uint32_t *members_of(const struct kvpi_visible *visible, uint32_t cluster)
{
    return (uint32_t *)visible->members.data + 2 * (size_t)cluster;
}

static uint32_t stream_of(const struct kvpi_visible *visible, const struct kvpi_group *group)
{
    return group->first / visible->mask.n_rows;
}

/* The cluster that a chain is best put into, by cells that are not read again; n_clusters: none.
 * A chain that has less in common makes its cluster's common cells fewer, for all members. */
static uint32_t best_cluster(const struct kvpi_visible *visible, const struct kvpi_group *group,
                             uint32_t from)
{
    const uint64_t *row = row_at(visible, group->first);
    const uint32_t n_row = count_bits(row, visible->n_words);
    uint32_t best = visible->n_clusters;
    int64_t best_gain = 0;
    for (uint32_t i = from; i < visible->n_clusters; i++) {
        const int64_t n_members = members_of(visible, i)[0], n_before = members_of(visible, i)[1];
        const int64_t n =
            (int64_t)n_row - count_without(row, cluster_at(visible, i), visible->n_words);
        const int64_t gain = n_members * n - (n_members - 1) * n_before;
        if (n >= MIN_SHARED && gain > best_gain) {
            best_gain = gain;
            best = i;
        }
    }
    return best;
}

static void join_cluster(struct kvpi_visible *visible, struct kvpi_group *group, uint32_t cluster)
{
    const uint64_t *row = row_at(visible, group->first);
    uint64_t *common = cluster_at(visible, cluster);
    uint32_t *members = members_of(visible, cluster);
    group->cluster = cluster;
    if (cluster == visible->n_clusters) {
        memcpy(common, row, visible->n_words * sizeof *common);
        members[0] = 0;
        visible->n_clusters++;
    }
    for (uint32_t w = 0; w < visible->n_words; w++)
        common[w] &= row[w];
    members[0]++;
    members[1] = count_bits(common, visible->n_words);
}

/* Every group gets a cluster, patches one of their own. 0: no memory. */
static int find_clusters(struct kvpi_visible *visible)
{
    const uint32_t n = visible->n_groups;
    uint32_t stream_first = 0, is_open = 0;
    visible->n_clusters = 0;
    if (!make_room(&visible->clusters, (size_t)n * visible->n_words + 1, sizeof(uint64_t)) ||
        !make_room(&visible->members, (size_t)n * 2, sizeof(uint32_t)))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct kvpi_group *group = group_at(visible, i);
        if (i > 0 && stream_of(visible, group) != stream_of(visible, group - 1))
            stream_first = visible->n_clusters;
        uint32_t from = stream_first;
        if (visible->n_clusters - from > MAX_COMPARED)
            from = visible->n_clusters - MAX_COMPARED;
        const uint32_t cluster =
            group->is_patch ? visible->n_clusters : best_cluster(visible, group, from);
        join_cluster(visible, group, cluster);
        if (group->is_patch) /* no other has anything in common with it */
            memset(cluster_at(visible, cluster), 0, visible->n_words * sizeof(uint64_t));
        is_open |= members_of(visible, cluster)[0] > 1;
    }
    visible->n_levels = is_open ? 2 : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct kvpi_group *group = group_at(visible, i);
        const uint32_t *members = members_of(visible, group->cluster);
        group->n_shared = members[0] > 1 ? members[1] : 0;
    }
    return 1;
}

/* ---------------------------------------------------------------------------------------- lists */

/* Blocks of the cells of a bitset, in their order, behind the first *n of the list. */
static void put_cells(const struct kvpi_visible *visible, uint32_t stream, const uint64_t *row,
                      const uint64_t *without, uint32_t level)
{
    int32_t *cells = visible->cells[level].data;
    int32_t *n = (int32_t *)visible->starts[level].data;
    const uint64_t first = 1 + (uint64_t)stream * visible->mask.stream_cells;
    int32_t at = n[0];
    for (uint32_t w = 0; w < visible->n_words; w++) {
        for (uint64_t left = without != NULL ? row[w] & ~without[w] : row[w]; left != 0;
             left &= left - 1)
            cells[at++] = (int32_t)(first + w * UINT64_C(64) + (uint32_t)__builtin_ctzll(left));
    }
    n[0] = at;
}

/* Row i of a level ends where the cells that were put end. starts[0] counts them on the way. */
static void end_row(struct kvpi_visible *visible, uint32_t level, uint32_t i, int32_t before)
{
    int32_t *starts = visible->starts[level].data, *last_lens = visible->last_lens[level].data;
    starts[i + 1] = starts[0];
    last_lens[i] = starts[0] > before;
}

/* What any row of a patch shows. */
static const uint64_t *union_of(struct kvpi_visible *visible, const struct kvpi_group *group)
{
    uint64_t *all = visible->spare.data;
    memcpy(all, row_at(visible, group->first), visible->n_words * sizeof *all);
    for (uint32_t i = 1; i < group->n; i++)
        add_bits(all, row_at(visible, group->first + i), visible->n_words);
    return all;
}

static void put_chain(struct kvpi_visible *visible, const struct kvpi_group *group)
{
    const uint32_t level = visible->n_levels - 1, stream = stream_of(visible, group);
    const uint64_t *shared = group->n_shared > 0 ? cluster_at(visible, group->cluster) : NULL;
    put_cells(visible, stream, row_at(visible, group->first), shared, level);
    for (uint32_t i = 1; i < group->n; i++)
        put_cells(visible, stream, row_at(visible, group->first + i),
                  row_at(visible, group->first + i - 1), level);
}

/* A patch that shows nothing still has a key, which no query sees. */
static void put_patch(struct kvpi_visible *visible, const struct kvpi_group *group)
{
    const uint32_t level = visible->n_levels - 1, stream = stream_of(visible, group);
    int32_t *n = visible->starts[level].data;
    const int32_t before = n[0];
    put_cells(visible, stream, union_of(visible, group), NULL, level);
    if (n[0] == before)
        ((int32_t *)visible->cells[level].data)[n[0]++] =
            (int32_t)(1 + stream * visible->mask.stream_cells);
}

/* The bits of a patch, of [rows, cells of the union]. */
static void put_bits(struct kvpi_visible *visible, const struct kvpi_group *group, uint8_t *bits)
{
    const uint64_t *all = union_of(visible, group);
    size_t at = 0;
    for (uint32_t i = 0; i < group->n; i++) {
        const uint64_t *row = row_at(visible, group->first + i);
        for (uint32_t w = 0; w < visible->n_words; w++) {
            for (uint64_t left = all[w]; left != 0; left &= left - 1, at++) {
                if ((row[w] & left & (~left + 1)) != 0)
                    bits[at / 8] |= (uint8_t)(1u << at % 8);
            }
        }
    }
}

static size_t patch_bytes(struct kvpi_visible *visible, const struct kvpi_group *group)
{
    const uint32_t n = count_bits(union_of(visible, group), visible->n_words);
    return ((size_t)group->n * (n > 0 ? n : 1) + 7) / 8;
}

/* 0: no memory, or more than kvpager counts. */
static int make_bits(struct kvpi_visible *visible)
{
    size_t n_bytes = 0;
    if (!make_room(&visible->bits_start, (size_t)visible->n_groups + 1, sizeof(int32_t)))
        return 0;
    int32_t *starts = visible->bits_start.data;
    starts[0] = 0;
    for (uint32_t i = 0; i < visible->n_groups; i++) {
        const struct kvpi_group *group = group_at(visible, i);
        n_bytes += group->is_patch ? patch_bytes(visible, group) : 0;
        if (n_bytes > INT32_MAX)
            return 0;
        starts[i + 1] = (int32_t)n_bytes;
    }
    visible->tree = (kvp_attention_tree){.start = NULL};
    if (n_bytes == 0)
        return 1;
    if (!make_room(&visible->bits, n_bytes, 1))
        return 0;
    memset(visible->bits.data, 0, n_bytes);
    for (uint32_t i = 0; i < visible->n_groups; i++) {
        if (group_at(visible, i)->is_patch)
            put_bits(visible, group_at(visible, i), (uint8_t *)visible->bits.data + starts[i]);
    }
    visible->tree.bits = visible->bits.data;
    visible->tree.bits_start = starts;
    visible->tree.n_bytes = (uint32_t)n_bytes;
    return 1;
}

/* Sequences in the order of their clusters: members of one lie side by side. */
static void sort_groups(const struct kvpi_visible *visible)
{
    int32_t *order = visible->order.data, *next = visible->spare.data;
    int32_t at = 0;
    for (uint32_t i = 0; i < visible->n_clusters; i++) {
        next[i] = at;
        at += (int32_t)members_of(visible, i)[0];
    }
    for (uint32_t i = 0; i < visible->n_groups; i++)
        order[next[group_at(visible, i)->cluster]++] = (int32_t)i;
}

/* The first level: the common cells of each cluster, in the order of clusters. */
static void put_shared(struct kvpi_visible *visible)
{
    const int32_t *order = visible->order.data;
    int32_t *queries = visible->shared_queries.data, *starts = visible->starts[0].data;
    uint32_t at = 0;
    starts[0] = queries[0] = 0;
    for (uint32_t i = 0; i < visible->n_clusters; i++) {
        const uint32_t n_members = members_of(visible, i)[0];
        const int32_t before = starts[0];
        queries[i + 1] = queries[i];
        if (n_members > 1)
            put_cells(visible, stream_of(visible, group_at(visible, (uint32_t)order[at])),
                      cluster_at(visible, i), NULL, 0);
        for (uint32_t m = 0; m < n_members; m++)
            queries[i + 1] += (int32_t)group_at(visible, (uint32_t)order[at++])->n;
        end_row(visible, 0, i, before);
    }
    visible->levels[0] = (kvp_attention_level){.n_rows = visible->n_clusters,
                                               .n_blocks = (uint32_t)starts[0],
                                               .blocks = visible->cells[0].data,
                                               .row_start = starts,
                                               .last_len = visible->last_lens[0].data,
                                               .query_start = queries};
    starts[0] = 0;
}

static void put_own(struct kvpi_visible *visible)
{
    const uint32_t level = visible->n_levels - 1;
    const int32_t *order = visible->order.data;
    int32_t *starts = visible->starts[level].data;
    starts[0] = 0;
    for (uint32_t i = 0; i < visible->n_groups; i++) {
        const struct kvpi_group *group = group_at(visible, (uint32_t)order[i]);
        const int32_t before = starts[0];
        if (group->is_patch)
            put_patch(visible, group);
        else
            put_chain(visible, group);
        end_row(visible, level, i, before);
    }
    visible->levels[level] = (kvp_attention_level){.n_rows = visible->n_groups,
                                                   .n_blocks = (uint32_t)starts[0],
                                                   .blocks = visible->cells[level].data,
                                                   .row_start = starts,
                                                   .last_len = visible->last_lens[level].data};
    starts[0] = 0;
}

/* Most cells that all lists of a level have together. */
static size_t max_cells(struct kvpi_visible *visible)
{
    size_t n = 0;
    for (uint32_t i = 0; i < visible->n_groups; i++) {
        const struct kvpi_group *group = group_at(visible, i);
        n += 1 + (group->is_patch
                      ? count_bits(union_of(visible, group), visible->n_words)
                      : count_bits(row_at(visible, group->first), visible->n_words) + group->n - 1);
    }
    return n;
}

static int make_lists(struct kvpi_visible *visible)
{
    const size_t n = (size_t)visible->n_groups + 1, n_cells = max_cells(visible);
    int is_room = n_cells <= INT32_MAX;
    for (uint32_t level = 0; level < 2; level++)
        is_room = is_room && make_room(&visible->cells[level], n_cells, sizeof(int32_t)) &&
                  make_room(&visible->starts[level], n, sizeof(int32_t)) &&
                  make_room(&visible->last_lens[level], n, sizeof(int32_t));
    if (!is_room || !make_room(&visible->shared_queries, n, sizeof(int32_t)) ||
        !make_room(&visible->query_start, n, sizeof(int32_t)) ||
        !make_room(&visible->order, n, sizeof(int32_t)) ||
        !make_room(&visible->spare, n, sizeof(int32_t)))
        return 0;
    int32_t *query_start = visible->query_start.data;
    query_start[0] = 0;
    for (uint32_t i = 0; i < visible->n_groups; i++)
        query_start[i + 1] = query_start[i] + (int32_t)group_at(visible, i)->n;
    visible->n_seqs = visible->n_groups;
    sort_groups(visible);
    if (visible->n_levels == 2)
        put_shared(visible);
    put_own(visible);
    return make_bits(visible);
}

/* ------------------------------------------------------------------------------------ the whole */

enum kvpi_visible_found kvpi_visible_read(struct kvpi_visible *visible,
                                          const struct kvpi_mask *mask)
{
    const enum kvpi_visible_found found = read_rows(visible, mask);
    if (found == KVPI_VISIBLE_CHANGED && is_same(visible, mask))
        return KVPI_VISIBLE_SAME;
    visible->mask = *mask;
    if (found == KVPI_VISIBLE_CHANGED && find_groups(visible) && find_clusters(visible) &&
        make_lists(visible))
        return KVPI_VISIBLE_CHANGED;
    visible->mask.n_rows = 0; /* nothing is like it */
    return found == KVPI_VISIBLE_OTHER ? found : KVPI_VISIBLE_NO_MEMORY;
}

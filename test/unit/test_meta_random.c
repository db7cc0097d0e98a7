/* Random batches over random caches, with layer groups, windows and trees: every format against a
 * slow construction that knows only what the public headers let one read of a sequence. */
#include "world.h"

#include <kvpager/meta.h>
#include <kvpager/swap.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_B = 16,
    MAX_LEN = 96,
    MAX_TREE = 16,
    MAX_T = 1024,
    MAX_E = 1024,
    MAX_M = MAX_LEN,
    MAX_V = MAX_B * MAX_TREE,
    MAX_MASK = 65536,
    LEVELS = 5,
    UNTOUCHED = 0x5A5A5A5A
};

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    return draw(&random_state, n);
}

/* ----------------------------------------------------------------------------- what is expected */

/* What a step computes of one sequence, told by what can be read of it. */
struct told {
    kvp_status status;
    uint32_t begin, n, length, q, computed, tokens, S;
    uint32_t K, R;
    const int32_t *row;
    int32_t parents[MAX_TREE];
    uint32_t depth[MAX_TREE];
};

static uint32_t position_of(const struct told *t, uint32_t slot)
{
    return slot < t->tokens ? slot : t->tokens + t->depth[slot - t->tokens];
}

/* Does windows.h keep entry i, with q the step's first query? */
static int is_kept_entry(const struct told *t, uint32_t i)
{
    return t->R == 0 || i * t->S < t->K ||
           (int64_t)(i + 1) * t->S > (int64_t)t->q + 1 - (int64_t)t->R;
}

/* Does meta.h keep the key of this slot? */
static int is_kept_key(const struct told *t, uint32_t slot)
{
    return t->R == 0 || slot < t->K || (int64_t)slot >= (int64_t)t->q + 1 - (int64_t)t->R;
}

static int is_ancestor(const struct told *t, int32_t above, int32_t node)
{
    while (node > above) {
        node = t->parents[node];
    }
    return node == above;
}

/* Does the query of slot x see the key of slot s? */
static int sees(const struct told *t, uint32_t x, uint32_t s)
{
    const int64_t p = position_of(t, s);
    const int masked = s < t->tokens ? s > x
                                     : x < t->tokens || !is_ancestor(t, (int32_t)(s - t->tokens),
                                                                     (int32_t)(x - t->tokens));
    return !masked && (t->R == 0 || p < t->K || p > (int64_t)position_of(t, x) - (int64_t)t->R);
}

static kvp_status judge(const struct told *t, const kvp_seq_info *info)
{
    if (t->begin > info->tokens + info->tree_tokens ||
        t->n > info->tokens + info->tree_tokens - t->begin) {
        return KVP_E_ARG;
    }
    const uint32_t usable = info->writable_tokens > info->computed_tokens ? info->writable_tokens
                                                                          : info->computed_tokens;
    if (info->tier != KVP_DEVICE || (t->n > 0 && t->length > usable)) {
        return KVP_E_STATE;
    }
    for (uint32_t i = 0; i * t->S < t->length; i++) {
        if (t->row[i] == KVP_NULL_BLOCK && is_kept_entry(t, i)) {
            return KVP_E_DROPPED;
        }
    }
    return KVP_OK;
}

static void tell(const world *w, const kvp_meta_batch *batch, uint32_t b, struct told *t)
{
    const kvp_seq_info info = info_of(w, batch->seqs[b]);
    const uint32_t all = info.tokens + info.tree_tokens;
    kvp_window_info window;
    kvp_config config;
    uint32_t n;
    memset(t, 0, sizeof(*t));
    assert_ok(kvp_cache_config(w->cache, &config));
    assert_ok(kvp_seq_window_get(w->cache, batch->seqs[b], batch->group, &window));
    assert_ok(kvp_seq_row(w->cache, batch->seqs[b], batch->group, &t->row, &n));
    assert_ok(kvp_seq_tree(w->cache, batch->seqs[b], NULL, t->parents, MAX_TREE, &n));
    for (uint32_t j = 0; j < n; j++) {
        t->depth[j] = t->parents[j] < 0 ? 0 : t->depth[t->parents[j]] + 1;
    }
    t->S = config.block_tokens;
    t->K = window.window.sink_tokens;
    t->R = window.window.recent_tokens;
    t->tokens = info.tokens;
    t->computed = info.computed_tokens;
    t->begin = info.computed_tokens;
    if (info.computed_tokens == info.tokens && info.tokens > 0 && info.tree_tokens == 0) {
        t->begin--;
    }
    t->begin = batch->begin != NULL ? batch->begin[b] : t->begin;
    t->n = batch->n_tokens != NULL ? batch->n_tokens[b] : t->begin < all ? all - t->begin : 0;
    t->length = t->begin + t->n;
    t->q = t->begin < t->tokens ? t->begin : t->tokens;
    t->status = judge(t, &info);
}

/* ------------------------------------------------------------------------------------- compared */

/* Arrays of T, the same in all formats that have them. */
struct of_tokens {
    int32_t positions[MAX_T], batch[MAX_T], relative[MAX_T];
    int64_t slots[MAX_T];
};

static void compare_tokens(const world *w, const kvp_meta_batch *batch, uint32_t b,
                           const struct told *t, uint32_t n, const struct of_tokens *got)
{
    int64_t slots[MAX_LEN + MAX_TREE];
    assert_ok(kvp_seq_slots(w->cache, batch->seqs[b], batch->group, t->begin, t->n, slots));
    for (uint32_t i = 0; i < t->n; i++) {
        assert_int_equal(got->positions[n + i], position_of(t, t->begin + i));
        assert_int_equal(got->slots[n + i], slots[i]);
        assert_int_equal(got->batch[n + i], slots[i] == KVP_NO_SLOT ? -1 : (int32_t)b);
    }
}

static void compare_csr(world *w, const kvp_meta_batch *batch)
{
    static struct of_tokens tokens;
    static int32_t qo[MAX_B + 1], kv[MAX_B + 1], indices[MAX_E], last[MAX_B];
    const kvp_meta_csr csr = {
        sizeof csr,       MAX_E,       MAX_T, qo, kv, indices, last, tokens.batch,
        tokens.positions, tokens.slots};
    memset(&tokens, 0x5A, sizeof tokens);
    memset(indices, 0x5A, sizeof indices);
    assert_ok(kvp_meta_fill_csr(w->cache, batch, &csr));
    uint32_t n = 0, e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        struct told t;
        tell(w, batch, b, &t);
        assert_int_equal(qo[b], n);
        assert_int_equal(kv[b], e);
        compare_tokens(w, batch, b, &t, n, &tokens);
        for (uint32_t i = 0; i * t.S < t.length; i++) {
            assert_int_equal(indices[e++], t.row[i]);
        }
        const uint32_t blocks = e - (uint32_t)kv[b];
        assert_int_equal(blocks == 0 ? 0 : (blocks - 1) * t.S + (uint32_t)last[b], t.length);
        assert_true(blocks == 0 ? last[b] == 0 : last[b] >= 1 && last[b] <= (int32_t)t.S);
        n += t.n;
    }
    assert_int_equal(qo[batch->n_seqs], n);
    assert_int_equal(kv[batch->n_seqs], e);
    assert_int_equal(indices[e], UNTOUCHED);
    assert_int_equal(tokens.positions[n], UNTOUCHED);
}

static void compare_tables(world *w, const kvp_meta_batch *batch)
{
    static struct of_tokens tokens;
    static int32_t table[MAX_B * MAX_M], offsets[MAX_B * 2 * MAX_M], lens[2][MAX_B];
    int32_t start[MAX_B + 1];
    const kvp_meta_dense dense = {sizeof dense, MAX_M, MAX_T,        table,
                                  lens[0],      start, tokens.slots, tokens.positions};
    const kvp_meta_trtllm trtllm = {sizeof trtllm, 3, MAX_M, offsets, lens[1]};
    assert_ok(kvp_meta_fill_dense(w->cache, batch, &dense));
    assert_ok(kvp_meta_fill_trtllm(w->cache, batch, &trtllm));
    uint32_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        struct told t;
        tell(w, batch, b, &t);
        assert_int_equal(lens[0][b], t.length);
        assert_int_equal(lens[1][b], t.length);
        assert_int_equal(start[b], n);
        for (uint32_t i = 0; i < MAX_M; i++) {
            const int there = i * t.S < t.length;
            assert_int_equal(table[b * MAX_M + i], there ? t.row[i] : 0);
            assert_int_equal(offsets[b * 2 * MAX_M + i], there ? t.row[i] * 6 : -1);
            assert_int_equal(offsets[(b * 2 + 1) * MAX_M + i], there ? t.row[i] * 6 + 1 : -1);
        }
        for (uint32_t i = 0; i < t.n; i++) {
            tokens.batch[n + i] = tokens.slots[n + i] == KVP_NO_SLOT ? -1 : (int32_t)b;
        }
        compare_tokens(w, batch, b, &t, n, &tokens);
        n += t.n;
    }
    assert_int_equal(start[batch->n_seqs], n);
}

/* Windowed lists, and what they must serve: every key that a query sees is kept, and found where
 * the arrays say. */
struct windowed_arrays {
    struct of_tokens tokens;
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], indices[MAX_E], last[MAX_B];
    int32_t sink_len[MAX_B], offset[MAX_B], key[MAX_B];
    uint32_t sinks[MAX_B], recent[MAX_B];
};

static void compare_kept(const struct told *t, const struct windowed_arrays *a, uint32_t b,
                         uint32_t n)
{
    const int32_t *list = a->indices + a->kv[b];
    const uint32_t blocks = (uint32_t)(a->kv[b + 1] - a->kv[b]);
    const uint32_t n_slots = blocks == 0 ? 0 : (blocks - 1) * t->S + (uint32_t)a->last[b];
    uint32_t kept = 0;
    assert_true(blocks > 0 || a->last[b] == 0);
    for (uint32_t s = 0; s < t->length; s++) {
        if (!is_kept_key(t, s)) {
            for (uint32_t i = 0; i < t->n; i++) {
                assert_false(sees(t, t->begin + i, s));
            }
            continue;
        }
        const uint32_t i = kept++;
        const int is_sink = i < (uint32_t)a->sink_len[b];
        const uint32_t at = is_sink ? i : i - (uint32_t)a->sink_len[b] + (uint32_t)a->offset[b];
        assert_int_equal(s, is_sink ? i : i + (uint32_t)a->key[b]);
        assert_in_range(at, 0, n_slots - 1);
        assert_int_equal(list[at / t->S], t->row[s / t->S]);
        assert_int_equal(at % t->S, s % t->S);
    }
    assert_int_equal(kept, n_slots - (uint32_t)(a->offset[b] - a->sink_len[b]));
    for (uint32_t i = 0; i < t->n; i++) { /* relative: kept keys before one of the same position */
        const uint32_t p = position_of(t, t->begin + i);
        uint32_t before = 0;
        for (uint32_t s = 0; s < p; s++) {
            before += (uint32_t)is_kept_key(t, s);
        }
        assert_int_equal(a->tokens.relative[n + i], before);
    }
}

static void compare_windowed(world *w, const kvp_meta_batch *batch, const kvp_meta_sizes *sizes)
{
    static struct windowed_arrays a;
    memset(&a, 0x5A, sizeof a);
    const kvp_meta_windowed windowed = {sizeof windowed,
                                        sizes->n_kept,
                                        sizes->n_tokens,
                                        a.qo,
                                        a.kv,
                                        a.indices,
                                        a.last,
                                        a.tokens.batch,
                                        a.tokens.positions,
                                        a.tokens.slots,
                                        a.tokens.relative,
                                        a.sink_len,
                                        a.offset,
                                        a.key,
                                        a.sinks,
                                        a.recent};
    assert_ok(kvp_meta_fill_windowed(w->cache, batch, &windowed));
    uint32_t n = 0, e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        struct told t;
        tell(w, batch, b, &t);
        assert_int_equal(a.qo[b], n);
        assert_int_equal(a.kv[b], e);
        for (uint32_t i = 0; i * t.S < t.length; i++) {
            if (is_kept_entry(&t, i)) {
                assert_true(t.row[i] > 0);
                assert_int_equal(a.indices[e++], t.row[i]);
            }
        }
        assert_int_equal(a.kv[b + 1], e);
        assert_int_equal(a.sinks[b], t.R == 0 ? 0 : t.K);
        assert_int_equal(a.recent[b], t.R);
        assert_true(t.R > 0 || (a.sink_len[b] | a.offset[b] | a.key[b]) == 0);
        compare_tokens(w, batch, b, &t, n, &a.tokens);
        compare_kept(&t, &a, b, n);
        n += t.n;
    }
    assert_int_equal(sizes->n_kept, e);
    assert_int_equal(a.indices[e], UNTOUCHED);
    assert_int_equal(a.tokens.relative[n], UNTOUCHED);
}

/* ------------------------------------------------------------------------------ trees and masks */

/* A mask's bits of one sequence; columns are the slots of the entries that are listed. */
static void compare_mask(const struct told *t, const uint8_t *mask, uint32_t n_bytes,
                         uint32_t mask_keys)
{
    uint32_t bit = 0;
    for (uint32_t x = t->begin; x < t->length; x++) {
        for (uint32_t s = 0; s < t->length; s++) {
            if (mask_keys == KVP_MASK_ROWS || is_kept_entry(t, s / t->S)) {
                assert_int_equal(mask[bit / 8] >> bit % 8 & 1, sees(t, x, s));
                bit++;
            } else {
                assert_false(sees(t, x, s));
            }
        }
    }
    assert_int_equal((bit + 7) / 8, n_bytes);
    for (; bit < n_bytes * 8; bit++) {
        assert_int_equal(mask[bit / 8] >> bit % 8 & 1, 0);
    }
}

static void compare_nodes(const struct told *t, const kvp_meta_tree *tree, int32_t v, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        const int32_t *one = &tree->intervals[2 * ((size_t)v + j)];
        assert_int_equal(tree->parent[(uint32_t)v + j], t->parents[j]);
        assert_int_equal(tree->depth[(uint32_t)v + j], t->depth[j]);
        assert_in_range(one[0], 0, n - 1);
        assert_true(one[0] < one[1]);
        for (uint32_t k = 0; k < n; k++) {
            const int32_t *other = &tree->intervals[2 * ((size_t)v + k)];
            assert_int_equal(other[0] <= one[0] && one[0] < other[1],
                             is_ancestor(t, (int32_t)k, (int32_t)j));
        }
    }
}

static void compare_tree(world *w, const kvp_meta_batch *batch, const kvp_meta_sizes *sizes,
                         uint32_t mask_keys)
{
    static int32_t indptr[MAX_B + 1], parent[MAX_V + 1], depth[MAX_V + 1], intervals[2 * MAX_V];
    static int32_t mask_indptr[MAX_B + 1];
    static uint8_t mask[MAX_MASK + 1];
    const kvp_meta_tree tree = {sizeof tree, sizes->n_nodes, mask_keys, sizes->n_mask_bytes, indptr,
                                parent,      depth,          intervals, mask_indptr,         mask};
    memset(mask, 0x5A, sizeof mask);
    memset(parent, 0x5A, sizeof parent);
    memset(depth, 0x5A, sizeof depth);
    assert_ok(kvp_meta_fill_tree(w->cache, batch, &tree));
    int32_t v = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        struct told t;
        tell(w, batch, b, &t);
        const uint32_t n = t.length > t.tokens ? t.length - t.tokens : 0;
        assert_int_equal(indptr[b], v);
        compare_nodes(&t, &tree, v, n);
        compare_mask(&t, mask + mask_indptr[b], (uint32_t)(mask_indptr[b + 1] - mask_indptr[b]),
                     mask_keys);
        v += (int32_t)n;
    }
    const int32_t n_bytes = mask_indptr[batch->n_seqs];
    assert_int_equal(indptr[batch->n_seqs], v);
    assert_int_equal(sizes->n_nodes, v);
    assert_int_equal(parent[v], UNTOUCHED);
    assert_int_equal(depth[v], UNTOUCHED);
    assert_int_equal(mask[n_bytes], 0x5A);
    assert_true(mask_keys == KVP_MASK_ROWS ? (uint64_t)n_bytes == sizes->n_mask_bytes
                                           : (uint64_t)n_bytes <= sizes->n_mask_bytes);
}

/* -------------------------------------------------------------------------------------- cascade */

/* May entry i be given in a level that has no mask? */
static int is_shareable(const struct told *t, uint32_t i)
{
    return (i + 1) * t->S <= t->q && (t->R == 0 || (i + 1) * t->S <= t->K);
}

/* The group of a level that the query is in; a sequence without queries attends to nothing. */
static uint32_t group_of(const kvp_meta_level *level, int32_t query)
{
    uint32_t g = 0;
    while (level->qo_indptr[g + 1] <= query) {
        g++;
        assert_true(g < level->n_groups);
    }
    return g;
}

/* The levels of the k-th sequence give its row, once and in order. */
static void compare_levels(const struct told *t, const kvp_meta_cascade *cascade, uint32_t k,
                           int32_t query)
{
    uint32_t i = 0;
    for (uint32_t l = 0; l < cascade->n_levels && t->n > 0; l++) {
        const kvp_meta_level *level = &cascade->levels[l];
        const int is_last = l + 1 == cascade->n_levels;
        const uint32_t g = is_last ? k : group_of(level, query);
        assert_true(level->qo_indptr[g] <= query &&
                    query + (int32_t)t->n <= level->qo_indptr[g + 1]);
        for (int32_t e = level->kv_indptr[g]; e < level->kv_indptr[g + 1]; e++, i++) {
            assert_int_equal(level->kv_indices[e], t->row[i]);
            assert_true(is_last || is_shareable(t, i));
        }
        const int empty = level->kv_indptr[g + 1] == level->kv_indptr[g];
        assert_int_equal(level->last_block_len[g], empty     ? 0
                                                   : is_last ? (t->length - 1) % t->S + 1
                                                             : t->S);
    }
    assert_true(t->n == 0 || i == (t->length + t->S - 1) / t->S);
}

/* Levels were enough: nothing that two could share is among what each has alone. */
static void compare_shared(world *w, const kvp_meta_batch *batch, const kvp_meta_cascade *cascade)
{
    const kvp_meta_level *last = &cascade->levels[cascade->n_levels - 1];
    for (uint32_t a = 0; a < batch->n_seqs; a++) {
        for (uint32_t b = a + 1; b < batch->n_seqs; b++) {
            struct told x, y;
            uint32_t common = 0;
            tell(w, batch, (uint32_t)cascade->order[a], &x);
            tell(w, batch, (uint32_t)cascade->order[b], &y);
            while (is_shareable(&x, common) && is_shareable(&y, common) &&
                   x.row[common] == y.row[common]) {
                common++;
            }
            const uint32_t own = (uint32_t)(last->kv_indptr[a + 1] - last->kv_indptr[a]);
            assert_true((x.length + x.S - 1) / x.S - own >= common);
        }
    }
}

static void compare_cascade(world *w, const kvp_meta_batch *batch, uint32_t max_levels)
{
    static int32_t store[LEVELS][4][MAX_E];
    kvp_meta_level levels[LEVELS];
    int32_t order[MAX_B];
    kvp_meta_cascade cascade = {sizeof cascade, max_levels, MAX_E, order, levels, 0};
    for (uint32_t l = 0; l < max_levels; l++) {
        levels[l] = (kvp_meta_level){store[l][0], store[l][1], store[l][2], store[l][3], 0, 0};
    }
    assert_ok(kvp_meta_fill_cascade(w->cache, batch, &cascade));
    assert_in_range(cascade.n_levels, 1, max_levels);
    uint32_t seen[MAX_B] = {0};
    int32_t query = 0;
    for (uint32_t k = 0; k < batch->n_seqs; k++) {
        struct told t;
        assert_in_range(order[k], 0, batch->n_seqs - 1);
        assert_int_equal(seen[order[k]]++, 0);
        tell(w, batch, (uint32_t)order[k], &t);
        compare_levels(&t, &cascade, k, query);
        query += (int32_t)t.n;
    }
    for (uint32_t l = 0; l < cascade.n_levels; l++) {
        assert_int_equal(levels[l].qo_indptr[levels[l].n_groups], query);
        assert_int_equal(levels[l].kv_indptr[levels[l].n_groups], levels[l].n_entries);
    }
    if (cascade.n_levels < max_levels) {
        compare_shared(w, batch, &cascade);
    }
}

/* -------------------------------------------------------------------------------- random caches */

static kvp_window random_window(void)
{
    return below(3) == 0 ? (kvp_window){0, 0} : (kvp_window){below(20), 1 + below(30)};
}

static world random_world(void)
{
    static const uint32_t sizes[] = {1, 2, 4, 8, 16};
    const uint32_t s = below(5);
    kvp_config config = config_of(sizes[s], sizes[below(s + 1)], 900);
    config.max_seqs = MAX_B;
    config.max_seq_tokens = MAX_LEN;
    config.max_tree_tokens = MAX_TREE;
    config.commit_policy = below(2);
    config.host_blocks = below(2) * 200;
    config.n_groups = 1 + below(3);
    for (uint32_t g = 0; g < config.n_groups; g++) {
        config.groups[g] = random_window();
    }
    return make_world(&config);
}

static void grow_tree(world *w, kvp_seq seq, const int32_t *tokens)
{
    int32_t parents[MAX_TREE];
    const uint32_t had = info_of(w, seq).tree_tokens, n = below(MAX_TREE / 2 + 1);
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = tokens};
    for (uint32_t i = 0; i < n; i++) {
        parents[i] = below(4) == 0 ? -1 : (int32_t)below(had + i + 1) - 1;
    }
    (void)kvp_seq_extend_tree(w->cache, &batch, parents);
}

/* One thing that may happen to a sequence; most of what is refused is refused for good reasons. */
static void happen(world *w, kvp_seq seq, const int32_t *tokens, uint32_t n_groups)
{
    const kvp_seq_info info = info_of(w, seq);
    switch (below(9)) {
    case 0:
    case 1: (void)kvp_seq_commit(w->cache, seq, below(info.tokens + 1)); break;
    case 2: (void)kvp_seq_commit(w->cache, seq, info.tokens); break;
    case 3: (void)kvp_seq_extend(w->cache, seq, tokens, below(9), below(3)); break;
    case 4: (void)kvp_seq_window(w->cache, seq, below(n_groups), random_window(), NULL); break;
    case 5:
        (void)kvp_seq_truncate(w->cache, seq, info.tokens - below(info.tokens / 4 + 1), NULL);
        break;
    case 6:
        (void)kvp_seq_invalidate(w->cache, seq, info.computed_tokens - below(4) % (1 + info.tokens),
                                 NULL, 0, NULL);
        (void)kvp_seq_extend(w->cache, seq, NULL, 0, 0);
        break;
    default: grow_tree(w, seq, tokens); break;
    }
}

static uint32_t random_seqs(world *w, kvp_seq *seqs)
{
    const uint32_t wanted = 3 + below(MAX_B - 3);
    int32_t tokens[MAX_LEN];
    kvp_config config;
    uint32_t n = 0;
    assert_ok(kvp_cache_config(w->cache, &config));
    while (n < wanted) {
        const uint32_t length = below(64);
        for (uint32_t i = 0; i < length + 9; i++) {
            tokens[i] = (int32_t)(i % 16 == 3 ? below(2) : i);
        }
        const kvp_prompt prompt = prompt_of(tokens, length);
        if (n > 0 && below(4) == 0) {
            const kvp_seq parent = seqs[below(n)];
            if (kvp_seq_fork(w->cache, parent, info_of(w, parent).computed_tokens, 0, &seqs[n]) !=
                KVP_OK) {
                continue;
            }
        } else if (kvp_seq_open(w->cache, w->ns, &prompt, &seqs[n], NULL) != KVP_OK) {
            break;
        }
        for (uint32_t i = below(6); i > 0; i--) {
            happen(w, seqs[n], tokens, config.n_groups);
        }
        if (config.host_blocks > 0 && below(40) == 0) {
            (void)kvp_seq_swap_out(w->cache, &seqs[n], 1, NULL);
        }
        n++;
    }
    return n;
}

/* Some of the sequences, in any order, and what to compute of them: often what is the default. */
static uint32_t random_batch(const world *w, const kvp_seq *seqs, uint32_t n, kvp_seq *out,
                             uint32_t *begin, uint32_t *n_tokens)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (below(4) > 0 || (i + 1 == n && n_out == 0)) {
            const uint32_t at = below(n_out + 1);
            memmove(out + at + 1, out + at, (n_out - at) * sizeof *out);
            out[at] = seqs[i];
            n_out++;
        }
    }
    for (uint32_t b = 0; b < n_out; b++) {
        const kvp_seq_info info = info_of(w, out[b]);
        const uint32_t all = info.tokens + info.tree_tokens;
        begin[b] = info.computed_tokens + below(all - info.computed_tokens + 1);
        begin[b] = below(12) == 0 ? below(all + 1) : begin[b];
        n_tokens[b] = below(3) == 0 ? below(all - begin[b] + 1) : all - begin[b];
        n_tokens[b] += below(200) == 0;
    }
    return n_out;
}

/* The first fault of the batch, as meta.h orders them. */
static kvp_status expected_status(const world *w, const kvp_meta_batch *batch)
{
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        struct told t;
        tell(w, batch, b, &t);
        if (t.status != KVP_OK) {
            return t.status;
        }
    }
    return KVP_OK;
}

/* What the turns came across: a test that never sees a thing does not test it. */
static struct {
    uint32_t batches, left_out, nodes, dropped, states;
} met;

static void compare_batch(world *w, const kvp_meta_batch *batch)
{
    kvp_meta_sizes sizes;
    const kvp_status status = expected_status(w, batch);
    met.dropped += status == KVP_E_DROPPED;
    met.states += status == KVP_E_STATE;
    assert_status(status, kvp_meta_measure(w->cache, batch, &sizes));
    if (status != KVP_OK || sizes.n_mask_bytes > MAX_MASK || sizes.n_entries > MAX_E - 1) {
        return;
    }
    met.batches++;
    met.left_out += sizes.n_kept < sizes.n_entries;
    met.nodes += sizes.n_nodes > 0;
    compare_csr(w, batch);
    compare_tables(w, batch);
    compare_windowed(w, batch, &sizes);
    compare_tree(w, batch, &sizes, KVP_MASK_ROWS);
    compare_tree(w, batch, &sizes, KVP_MASK_WINDOWED);
    compare_cascade(w, batch, 1 + below(LEVELS));
}

static void test_random_batches_equal_the_slow_construction(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 500; turn++) {
        random_state = turn + 1;
        world w = random_world();
        kvp_seq seqs[MAX_B], chosen[MAX_B];
        uint32_t begin[MAX_B], n_tokens[MAX_B];
        kvp_config config;
        assert_ok(kvp_cache_config(w.cache, &config));
        const uint32_t n = random_seqs(&w, seqs);
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t B = random_batch(&w, seqs, n, chosen, begin, n_tokens);
            const kvp_meta_batch batch = {sizeof batch,
                                          B,
                                          below(config.n_groups),
                                          chosen,
                                          below(3) == 0 ? NULL : begin,
                                          below(3) == 0 ? NULL : n_tokens};
            compare_batch(&w, &batch);
        }
        end_world(&w);
    }
    printf("%u batches, %u with entries left out, %u with nodes; refused: %u dropped, %u state\n",
           met.batches, met.left_out, met.nodes, met.dropped, met.states);
    assert_true(met.batches > 1000 && met.left_out > 300 && met.nodes > 500);
    assert_true(met.dropped > 30 && met.states > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_batches_equal_the_slow_construction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

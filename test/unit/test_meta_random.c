/* Random batches over random caches, with layer groups, windows and trees: every format against a
 * slow construction that knows only what the public headers let one read of a sequence. */
#include "meta_cases.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_T = 1024,
    MAX_E = 1024,
    MAX_M = META_TOKENS,
    MAX_V = META_SEQS * META_NODES,
    MAX_MASK = 65536,
    LEVELS = 5,
    UNTOUCHED = 0x5A5A5A5A
};

/* ------------------------------------------------------------------------------------- compared */

/* Arrays of T, the same in all formats that have them. */
struct of_tokens {
    int32_t positions[MAX_T], batch[MAX_T], relative[MAX_T];
    int64_t slots[MAX_T];
};

static void compare_tokens(const world *w, const kvp_meta_batch *batch, uint32_t b,
                           const meta_told *t, uint32_t n, const struct of_tokens *got)
{
    int64_t slots[META_TOKENS + META_NODES];
    assert_ok(kvp_seq_slots(w->cache, batch->seqs[b], batch->group, t->begin, t->n, slots));
    for (uint32_t i = 0; i < t->n; i++) {
        assert_int_equal(got->positions[n + i], meta_position(t, t->begin + i));
        assert_int_equal(got->slots[n + i], slots[i]);
        assert_int_equal(got->batch[n + i], slots[i] == KVP_NO_SLOT ? -1 : (int32_t)b);
    }
}

static void compare_csr(world *w, const kvp_meta_batch *batch)
{
    static struct of_tokens tokens;
    static int32_t qo[META_SEQS + 1], kv[META_SEQS + 1], indices[MAX_E], last[META_SEQS];
    const kvp_meta_csr csr = {
        sizeof csr,       MAX_E,       MAX_T, qo, kv, indices, last, tokens.batch,
        tokens.positions, tokens.slots};
    memset(&tokens, 0x5A, sizeof tokens);
    memset(indices, 0x5A, sizeof indices);
    assert_ok(kvp_meta_fill_csr(w->cache, batch, &csr));
    uint32_t n = 0, e = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        meta_told t;
        meta_tell(w, batch, b, &t);
        assert_int_equal(qo[b], n);
        assert_int_equal(kv[b], e);
        compare_tokens(w, batch, b, &t, n, &tokens);
        for (uint32_t i = 0; i * t.S < t.length; i++)
            assert_int_equal(indices[e++], t.row[i]);
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
    static int32_t table[META_SEQS * MAX_M], offsets[META_SEQS * 2 * MAX_M], lens[2][META_SEQS];
    int32_t start[META_SEQS + 1];
    const kvp_meta_dense dense = {sizeof dense, MAX_M, MAX_T,        table,
                                  lens[0],      start, tokens.slots, tokens.positions};
    const kvp_meta_trtllm trtllm = {sizeof trtllm, 3, MAX_M, offsets, lens[1]};
    assert_ok(kvp_meta_fill_dense(w->cache, batch, &dense));
    assert_ok(kvp_meta_fill_trtllm(w->cache, batch, &trtllm));
    uint32_t n = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        meta_told t;
        meta_tell(w, batch, b, &t);
        assert_int_equal(lens[0][b], t.length);
        assert_int_equal(lens[1][b], t.length);
        assert_int_equal(start[b], n);
        for (uint32_t i = 0; i < MAX_M; i++) {
            const int there = i * t.S < t.length;
            assert_int_equal(table[b * MAX_M + i], there ? t.row[i] : 0);
            assert_int_equal(offsets[b * 2 * MAX_M + i], there ? t.row[i] * 6 : -1);
            assert_int_equal(offsets[(b * 2 + 1) * MAX_M + i], there ? t.row[i] * 6 + 1 : -1);
        }
        for (uint32_t i = 0; i < t.n; i++)
            tokens.batch[n + i] = tokens.slots[n + i] == KVP_NO_SLOT ? -1 : (int32_t)b;
        compare_tokens(w, batch, b, &t, n, &tokens);
        n += t.n;
    }
    assert_int_equal(start[batch->n_seqs], n);
}

/* Windowed lists, and what they must serve: every key that a query sees is kept, and found where
 * the arrays say. */
struct windowed_arrays {
    struct of_tokens tokens;
    int32_t qo[META_SEQS + 1], kv[META_SEQS + 1], indices[MAX_E], last[META_SEQS];
    int32_t sink_len[META_SEQS], offset[META_SEQS], key[META_SEQS];
    uint32_t sinks[META_SEQS], recent[META_SEQS];
};

static void compare_kept(const meta_told *t, const struct windowed_arrays *a, uint32_t b,
                         uint32_t n)
{
    const int32_t *list = a->indices + a->kv[b];
    const uint32_t blocks = (uint32_t)(a->kv[b + 1] - a->kv[b]);
    const uint32_t n_slots = blocks == 0 ? 0 : (blocks - 1) * t->S + (uint32_t)a->last[b];
    uint32_t kept = 0;
    assert_true(blocks > 0 || a->last[b] == 0);
    for (uint32_t s = 0; s < t->length; s++) {
        if (!meta_keeps_key(t, s)) {
            for (uint32_t i = 0; i < t->n; i++)
                assert_false(meta_sees(t, t->begin + i, s));
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
        const uint32_t p = meta_position(t, t->begin + i);
        uint32_t before = 0;
        for (uint32_t s = 0; s < p; s++)
            before += (uint32_t)meta_keeps_key(t, s);
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
        meta_told t;
        meta_tell(w, batch, b, &t);
        assert_int_equal(a.qo[b], n);
        assert_int_equal(a.kv[b], e);
        for (uint32_t i = 0; i * t.S < t.length; i++) {
            if (meta_keeps_entry(&t, i)) {
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
static void compare_mask(const meta_told *t, const uint8_t *mask, uint32_t n_bytes,
                         uint32_t mask_keys)
{
    uint32_t bit = 0;
    for (uint32_t x = t->begin; x < t->length; x++) {
        for (uint32_t s = 0; s < t->length; s++) {
            if (mask_keys == KVP_MASK_ROWS || meta_keeps_entry(t, s / t->S)) {
                assert_int_equal(mask[bit / 8] >> bit % 8 & 1, meta_sees(t, x, s));
                bit++;
            } else {
                assert_false(meta_sees(t, x, s));
            }
        }
    }
    assert_int_equal((bit + 7) / 8, n_bytes);
    for (; bit < n_bytes * 8; bit++)
        assert_int_equal(mask[bit / 8] >> bit % 8 & 1, 0);
}

static void compare_nodes(const meta_told *t, const kvp_meta_tree *tree, int32_t v, uint32_t n)
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
                             meta_is_ancestor(t, (int32_t)k, (int32_t)j));
        }
    }
}

static void compare_tree(world *w, const kvp_meta_batch *batch, const kvp_meta_sizes *sizes,
                         uint32_t mask_keys)
{
    static int32_t indptr[META_SEQS + 1], parent[MAX_V + 1], depth[MAX_V + 1], intervals[2 * MAX_V];
    static int32_t mask_indptr[META_SEQS + 1];
    static uint8_t mask[MAX_MASK + 1];
    const kvp_meta_tree tree = {sizeof tree, sizes->n_nodes, mask_keys, sizes->n_mask_bytes, indptr,
                                parent,      depth,          intervals, mask_indptr,         mask};
    memset(mask, 0x5A, sizeof mask);
    memset(parent, 0x5A, sizeof parent);
    memset(depth, 0x5A, sizeof depth);
    assert_ok(kvp_meta_fill_tree(w->cache, batch, &tree));
    int32_t v = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        meta_told t;
        meta_tell(w, batch, b, &t);
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
static int is_shareable(const meta_told *t, uint32_t i)
{
    return (i + 1) * t->S <= t->q && (t->R == 0 || (t->K != KVP_CHUNKED && (i + 1) * t->S <= t->K));
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
static void compare_levels(const meta_told *t, const kvp_meta_cascade *cascade, uint32_t k,
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
            meta_told x, y;
            uint32_t common = 0;
            meta_tell(w, batch, (uint32_t)cascade->order[a], &x);
            meta_tell(w, batch, (uint32_t)cascade->order[b], &y);
            while (is_shareable(&x, common) && is_shareable(&y, common) &&
                   x.row[common] == y.row[common])
                common++;
            const uint32_t own = (uint32_t)(last->kv_indptr[a + 1] - last->kv_indptr[a]);
            assert_true((x.length + x.S - 1) / x.S - own >= common);
        }
    }
}

static void compare_cascade(world *w, const kvp_meta_batch *batch, uint32_t max_levels)
{
    static int32_t store[LEVELS][4][MAX_E];
    kvp_meta_level levels[LEVELS];
    int32_t order[META_SEQS];
    kvp_meta_cascade cascade = {sizeof cascade, max_levels, MAX_E, order, levels, 0, 0};
    for (uint32_t l = 0; l < max_levels; l++)
        levels[l] = (kvp_meta_level){store[l][0], store[l][1], store[l][2], store[l][3], 0, 0};
    assert_ok(kvp_meta_fill_cascade(w->cache, batch, &cascade));
    assert_in_range(cascade.n_levels, 1, max_levels);
    uint32_t seen[META_SEQS] = {0};
    int32_t query = 0;
    for (uint32_t k = 0; k < batch->n_seqs; k++) {
        meta_told t;
        assert_in_range(order[k], 0, batch->n_seqs - 1);
        assert_int_equal(seen[order[k]]++, 0);
        meta_tell(w, batch, (uint32_t)order[k], &t);
        compare_levels(&t, &cascade, k, query);
        query += (int32_t)t.n;
    }
    for (uint32_t l = 0; l < cascade.n_levels; l++) {
        assert_int_equal(levels[l].qo_indptr[levels[l].n_groups], query);
        assert_int_equal(levels[l].kv_indptr[levels[l].n_groups], levels[l].n_entries);
    }
    if (cascade.n_levels < max_levels)
        compare_shared(w, batch, &cascade);
}

/* ----------------------------------------------------------------------------------- the turns */

/* What the turns came across: a test that never sees a thing does not test it. */
static struct {
    uint32_t batches, left_out, nodes, dropped, states;
} met;

static void compare_batch(world *w, const kvp_meta_batch *batch)
{
    kvp_meta_sizes sizes;
    const kvp_status status = meta_expected_status(w, batch);
    met.dropped += status == KVP_E_DROPPED;
    met.states += status == KVP_E_STATE;
    assert_status(status, kvp_meta_measure(w->cache, batch, &sizes));
    if (status != KVP_OK || sizes.n_mask_bytes > MAX_MASK || sizes.n_entries > MAX_E - 1)
        return;
    met.batches++;
    met.left_out += sizes.n_kept < sizes.n_entries;
    met.nodes += sizes.n_nodes > 0;
    compare_csr(w, batch);
    compare_tables(w, batch);
    compare_windowed(w, batch, &sizes);
    compare_tree(w, batch, &sizes, KVP_MASK_ROWS);
    compare_tree(w, batch, &sizes, KVP_MASK_WINDOWED);
    compare_cascade(w, batch, 1 + meta_below(LEVELS));
}

TEST(test_random_batches_equal_the_slow_construction)
{
    for (uint32_t turn = 0; turn < 500; turn++) {
        meta_seed(turn + 1);
        scoped_world w = meta_random_world();
        kvp_seq seqs[META_SEQS], chosen[META_SEQS];
        uint32_t begin[META_SEQS], n_tokens[META_SEQS];
        kvp_config config;
        assert_ok(kvp_cache_config_get(w.cache, &config));
        const uint32_t n = meta_random_seqs(&w, seqs);
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t B = meta_random_batch(&w, seqs, n, chosen, begin, n_tokens);
            const kvp_meta_batch batch = {sizeof batch,
                                          B,
                                          meta_below(config.n_groups),
                                          chosen,
                                          meta_below(3) == 0 ? NULL : begin,
                                          meta_below(3) == 0 ? NULL : n_tokens};
            compare_batch(&w, &batch);
        }
    }
    printf("%u batches, %u with entries left out, %u with nodes; refused: %u dropped, %u state\n",
           met.batches, met.left_out, met.nodes, met.dropped, met.states);
    assert_true(met.batches > 1000 && met.left_out > 300 && met.nodes > 500);
    assert_true(met.dropped > 30 && met.states > 30);
}

TEST_MAIN(NULL, NULL)

/* Metadata of token trees: the worked numbers of trees.h and meta.h in every format, masks bit by
 * bit, rounds, what is refused. Random ones are in test_meta_random.c. */
#include "world.h"

#include <kvpager/meta.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_B = 8, MAX_T = 64, MAX_E = 64, MAX_M = 16, MASK = 512, UNTOUCHED = 0x5A5A5A5A };

/* Arrays of CSR and of trees, with room to spare, filled with what no call writes. */
struct arrays {
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], indices[MAX_E], last[MAX_B], batch[MAX_T];
    int32_t positions[MAX_T];
    int64_t slots[MAX_T];
    int32_t indptr[MAX_B + 1], parent[MAX_T], depth[MAX_T], intervals[2 * MAX_T];
    int32_t mask_indptr[MAX_B + 1];
    uint8_t mask[MASK];
};

static kvp_meta_csr csr_in(struct arrays *a)
{
    return (kvp_meta_csr){sizeof(kvp_meta_csr), MAX_E,   MAX_T,    a->qo,        a->kv,
                          a->indices,           a->last, a->batch, a->positions, a->slots};
}

static kvp_meta_tree tree_in(struct arrays *a)
{
    memset(a, 0x5A, sizeof(*a));
    return (kvp_meta_tree){
        sizeof(kvp_meta_tree), MAX_T,          KVP_MASK_ROWS, MASK, a->indptr, a->parent, a->depth,
        a->intervals,          a->mask_indptr, a->mask};
}

static kvp_meta_batch batch_for(const kvp_seq *seqs, uint32_t n)
{
    return (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch), .n_seqs = n, .seqs = seqs};
}

static kvp_config tree_config(void)
{
    kvp_config config = config_of(4, 4, 63);
    config.max_tree_tokens = 32;
    return config;
}

static world tree_world(void)
{
    const kvp_config config = tree_config();
    return make_world(&config);
}

static kvp_status add_nodes(world *w, kvp_seq seq, const int32_t *parents, uint32_t n)
{
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_tokens = &n,
                             .tokens = ints(700)};
    return kvp_seq_extend_tree(w->cache, &batch, parents);
}

/* 7 -> 8 -> 5, and 7 -> 9, behind 9 computed tokens. */
static const int32_t example[] = {-1, 0, 0, 1};

static kvp_seq example_seq(world *w)
{
    const kvp_seq seq = open_done(w, ints(0), 9);
    assert_ok(add_nodes(w, seq, example, 4));
    return seq;
}

/* Does row `row` of a mask say exactly this? A string of one character a key. */
static int row_is(const uint8_t *mask, uint32_t row, const char *expected)
{
    const uint32_t n_keys = (uint32_t)strlen(expected);
    for (uint32_t k = 0; k < n_keys; k++) {
        const uint32_t bit = row * n_keys + k;
        if ((mask[bit / 8] >> bit % 8 & 1) != (expected[k] == '1'))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------------ worked examples */

TEST(test_the_header_s_example)
{
    scoped_world w = tree_world();
    const kvp_seq seq = example_seq(&w);
    const kvp_meta_batch batch = batch_for(&seq, 1);
    kvp_meta_sizes sizes;
    struct arrays a;
    const kvp_meta_tree tree = tree_in(&a);
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    assert_fields(sizes, n_tokens, 4, n_nodes, 4, n_entries, 4);
    assert_int_equal(sizes.n_mask_bytes, 7); /* 4 x 13 bits */
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_int_equal(a.indptr[1], 4);
    assert_memory_equal(a.parent, example, sizeof example);
    const int32_t depth[] = {0, 1, 1, 2};
    const int32_t intervals[] = {0, 4, 1, 3, 3, 4, 2, 3};
    assert_memory_equal(a.depth, depth, sizeof depth);
    assert_memory_equal(a.intervals, intervals, sizeof intervals);
    assert_fields(a, parent[4], UNTOUCHED, mask_indptr[1], 7);
    assert_true(row_is(a.mask, 0, "1111111111000"));
    assert_true(row_is(a.mask, 1, "1111111111100"));
    assert_true(row_is(a.mask, 2, "1111111111010"));
    assert_true(row_is(a.mask, 3, "1111111111101"));
    assert_int_equal(a.mask[6] >> 4, 0);
    assert_int_equal(a.mask[7], 0x5A);
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    const int32_t positions[] = {9, 10, 10, 11};
    assert_memory_equal(a.positions, positions, sizeof positions);
    assert_fields(a, kv[1], 4, last[0], 1);
    for (uint32_t j = 0; j < 4; j++) {
        assert_fields(a, slots[j], row_entry(&w, seq, (9 + j) / 4) * 4 + (int32_t)(9 + j) % 4,
                      batch[j], 0);
    }
}

/* A token that is not computed is run with its tree, in one step; or without, or the tree alone. */
TEST(test_tokens_and_nodes_in_one_step)
{
    scoped_world w = tree_world();
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(500), 1, 0));
    assert_ok(add_nodes(&w, seq, (const int32_t[]){-1, -1}, 2));
    kvp_meta_batch batch = batch_for(&seq, 1);
    struct arrays a;
    const kvp_meta_tree tree = tree_in(&a);
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, qo[1], 3, positions[0], 6, positions[1], 7, positions[2], 7);
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_int_equal(a.indptr[1], 2);
    assert_true(row_is(a.mask, 0, "111111100"));
    assert_true(row_is(a.mask, 1, "111111110"));
    assert_true(row_is(a.mask, 2, "111111101"));
    const uint32_t one = 1, seven = 7;
    batch.n_tokens = &one; /* the token only: an ordinary decode step */
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_fields(a, last[0], 3, indptr[1], 0);
    batch.n_tokens = NULL;
    batch.begin = &seven; /* the tree only */
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, qo[1], 2, slots[0], row_entry(&w, seq, 1) * 4 + 3, slots[1],
                  row_entry(&w, seq, 2) * 4);
}

/* A draft model's rounds: each computes the nodes that are new, and sees all before them. */
TEST(test_rounds_compute_their_own_nodes)
{
    scoped_world w = tree_world();
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(add_nodes(&w, seq, (const int32_t[]){-1, -1}, 2));
    assert_ok(add_nodes(&w, seq, (const int32_t[]){1, 0, 2}, 3));
    kvp_meta_batch batch = batch_for(&seq, 1);
    const uint32_t begin = 6, two = 2;
    batch.begin = &begin;
    struct arrays a;
    const kvp_meta_tree tree = tree_in(&a);
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, qo[1], 3, positions[0], 5, positions[1], 5, positions[2], 6, indptr[1], 5);
    assert_true(row_is(a.mask, 0, "111101100"));
    assert_true(row_is(a.mask, 1, "111110010"));
    assert_true(row_is(a.mask, 2, "111101101"));
    batch.n_tokens = &two; /* but not the last one: it is not a key either */
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, indptr[1], 4, last[0], 4);
    assert_true(row_is(a.mask, 0, "11110110"));
    assert_int_equal(a.intervals[0], 0); /* 0 -> 3, 1 -> 2 */
    assert_fields(a, intervals[1], 2, intervals[2], 2, intervals[3], 4);
}

/* K = 2, R = 4: a node at depth d hides what lies 4 before tokens + d, nodes of its path too, and
 * never the sinks. */
TEST(test_windows_count_depth)
{
    kvp_config config = tree_config();
    config.groups[0] = (kvp_group){2, 4, 0};
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 15);
    const int32_t parents[] = {-1, 0, 0, 1, 3, 4, 2}; /* a path of 0 1 3 4 5; 0 2 6 */
    assert_ok(add_nodes(&w, seq, parents, 7));
    const kvp_meta_batch batch = batch_for(&seq, 1);
    struct arrays a;
    kvp_meta_tree tree = tree_in(&a);
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_true(row_is(a.mask, 0, "1100000000001111000000"));
    assert_true(row_is(a.mask, 1, "1100000000000111100000"));
    assert_true(row_is(a.mask, 2, "1100000000000111010000"));
    assert_true(row_is(a.mask, 3, "1100000000000011101000"));
    assert_true(row_is(a.mask, 4, "1100000000000001101100"));
    assert_true(row_is(a.mask, 5, "1100000000000000101110"));
    assert_true(row_is(a.mask, 6, "1100000000000011010001"));
    tree.mask_keys = KVP_MASK_WINDOWED; /* entries 0, 3, 4, 5: eight columns less */
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_int_equal(a.mask_indptr[1], (7 * 14 + 7) / 8);
    assert_true(row_is(a.mask, 0, "11001111000000"));
    assert_true(row_is(a.mask, 5, "11000000101110"));
    assert_true(row_is(a.mask, 6, "11000011010001"));
    int32_t relative[7], offset, key;
    const kvp_meta_windowed windowed = {.struct_size = sizeof windowed,
                                        .max_tokens = 7,
                                        .relative = relative,
                                        .window_offset = &offset,
                                        .key_offset = &key};
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_int_equal(offset, 4); /* position 12, the first one that a root sees */
    assert_int_equal(key, 10);
    assert_int_equal(relative[0], 5);
    assert_int_equal(relative[5], 9);
    assert_int_equal(relative[6], 7);
}

/* Prefill, tree, decode, tree, an empty sequence: in any order, each by itself. */
TEST(test_trees_mix_with_everything)
{
    scoped_world w = tree_world();
    kvp_seq seqs[5] = {open_seq(&w, ints(100), 6, NULL), example_seq(&w),
                       open_done(&w, ints(200), 3), open_done(&w, ints(300), 2),
                       open_seq(&w, NULL, 0, NULL)};
    assert_ok(kvp_seq_extend(w.cache, seqs[2], ints(500), 1, 0));
    assert_ok(add_nodes(&w, seqs[3], (const int32_t[]){-1, -1, 1}, 3));
    const uint32_t queries[5] = {6, 4, 1, 3, 0}, keys[5] = {6, 13, 4, 5, 0};
    const uint32_t nodes[5] = {0, 4, 0, 3, 0};
    struct arrays alone[5], a;
    for (uint32_t i = 0; i < 5; i++) {
        const kvp_meta_batch batch = batch_for(&seqs[i], 1);
        const kvp_meta_tree tree = tree_in(&alone[i]);
        const kvp_meta_csr csr = csr_in(&alone[i]);
        assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
        assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    }
    assert_true(row_is(alone[0].mask, 2, "111000"));
    assert_true(row_is(alone[2].mask, 0, "1111"));
    assert_true(row_is(alone[3].mask, 2, "11011"));
    for (uint32_t turn = 0; turn < 5; turn++) {
        kvp_seq order[5];
        for (uint32_t b = 0; b < 5; b++)
            order[b] = seqs[(b * 2 + turn) % 5];
        const kvp_meta_batch batch = batch_for(order, 5);
        const kvp_meta_tree tree = tree_in(&a);
        const kvp_meta_csr csr = csr_in(&a);
        assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
        assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
        for (uint32_t b = 0; b < 5; b++) {
            const uint32_t i = (b * 2 + turn) % 5, bytes = (queries[i] * keys[i] + 7) / 8;
            const int32_t v = a.indptr[b], q = a.qo[b];
            assert_int_equal(a.indptr[b + 1] - v, nodes[i]);
            assert_int_equal(a.qo[b + 1] - q, queries[i]);
            assert_int_equal(a.mask_indptr[b + 1] - a.mask_indptr[b], bytes);
            assert_memory_equal(a.parent + v, alone[i].parent, nodes[i] * 4);
            assert_memory_equal(a.intervals + 2 * v, alone[i].intervals, nodes[i] * 8);
            assert_memory_equal(a.mask + a.mask_indptr[b], alone[i].mask, bytes);
            assert_memory_equal(a.positions + q, alone[i].positions, queries[i] * 4);
            assert_memory_equal(a.slots + q, alone[i].slots, queries[i] * 8);
        }
    }
}

/* A chain as deep as can be: what follows parents one by one must not take the square of it. */
TEST(test_a_chain_of_65536)
{
    enum { N = 65536 };
    kvp_config config = config_of(16, 16, N / 16 + 4);
    config.max_seq_tokens = N + 64;
    config.max_tree_tokens = N;
    scoped_world w = make_world(&config);
    int32_t *parents = malloc(N * sizeof *parents), *out = malloc(3 * N * sizeof *out);
    int32_t *tokens = calloc(N, sizeof *tokens);
    assert_true(parents != NULL && out != NULL && tokens != NULL);
    for (int32_t j = 0; j < N; j++)
        parents[j] = j - 1;
    const kvp_seq seq = open_done(&w, ints(0), 5);
    const uint32_t n = N;
    const kvp_batch extend = {
        .struct_size = sizeof extend, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = tokens};
    assert_ok(kvp_seq_extend_tree(w.cache, &extend, parents));
    kvp_meta_batch batch = batch_for(&seq, 1);
    const kvp_meta_tree tree = {
        .struct_size = sizeof tree, .max_nodes = N, .depth = out, .intervals = out + N};
    for (int i = 0; i < 20; i++)
        assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_int_equal(out[N - 1], N - 1);
    assert_int_equal(out[N + 2 * (N - 1)], N - 1);
    assert_int_equal(out[N + 2 * (N - 1) + 1], N);
    const uint32_t last = 5 + N - 1; /* one query of all keys: its mask is 8,193 bytes */
    batch.begin = &last;
    uint8_t *mask = malloc(8193);
    assert_non_null(mask);
    const kvp_meta_tree masked = {
        .struct_size = sizeof masked, .max_mask_bytes = 8193, .mask = mask};
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &masked));
    assert_int_equal(mask[0], 0xFF);
    assert_int_equal(mask[8191], 0xFF);
    assert_int_equal(mask[8192], 0x1F);
    free(mask);
    free(tokens);
    free(parents);
    free(out);
}

/* -------------------------------------------------------------------------------------- refused */

TEST(test_bad_input)
{
    scoped_world w = tree_world();
    const kvp_seq seqs[2] = {open_done(&w, ints(100), 8), example_seq(&w)};
    kvp_meta_batch batch = batch_for(seqs, 2);
    struct arrays a, before;
    kvp_meta_tree tree = tree_in(&before);
    tree = tree_in(&a);
    const uint32_t begin[2] = {8, 12}, n[2] = {0, 2}, behind[2] = {8, 14}, node[2] = {9, 9};
    batch.begin = begin;
    batch.n_tokens = n; /* node 3 and one that is not there */
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    batch.n_tokens = NULL;
    batch.begin = behind;
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    batch.begin = node; /* only the other one has a tree */
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    batch.begin = NULL;
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, NULL, &tree));
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(NULL, &batch, &tree));
    tree.mask_keys = 2;
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    tree.mask_keys = KVP_MASK_ROWS;
    tree.struct_size++;
    assert_status(KVP_E_ARG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    tree.struct_size--;
    tree.max_nodes = 3;
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_tree(w.cache, &batch, &tree));
    tree.max_nodes = 4;
    tree.max_mask_bytes = 7; /* one row of 8 keys, and 7 bytes */
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_memory_equal(&a, &before, sizeof a);
    tree.max_mask_bytes = 8;
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    tree.mask = NULL; /* where it would lie may be asked without room for it */
    tree.max_mask_bytes = 0;
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_ok(kvp_seq_invalidate(w.cache, seqs[1], 5, NULL, 0, NULL)); /* the tree is gone */
    assert_status(KVP_E_STATE, kvp_meta_fill_tree(w.cache, &batch, &tree));
}

/* Bytes that mask_indptr cannot count: refused where a mask is wanted, and only there. */
TEST(test_a_mask_too_long)
{
    enum { N = 150000 };
    kvp_config config = config_of(64, 64, N / 64 + 8);
    config.max_seq_tokens = N;
    scoped_world w = make_world(&config);
    int32_t *tokens = calloc(N, sizeof *tokens), mask_indptr[2], indptr[2];
    assert_non_null(tokens);
    const kvp_seq seq = open_seq(&w, tokens, N, NULL);
    const kvp_meta_batch batch = batch_for(&seq, 1);
    kvp_meta_tree tree = {.struct_size = sizeof tree, .indptr = indptr, .mask_indptr = mask_indptr};
    kvp_meta_sizes sizes;
    size_t n_bytes;
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    assert_true(sizes.n_mask_bytes == (uint64_t)N * N / 8);
    assert_status(KVP_E_TOO_LONG, kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_status(KVP_E_TOO_LONG, kvp_meta_place_tree(&tree, &sizes, NULL, 0, &n_bytes));
    tree.mask_indptr = NULL;
    assert_ok(kvp_meta_fill_tree(w.cache, &batch, &tree));
    assert_int_equal(indptr[1], 0);
    free(tokens);
}

TEST(test_a_buffer_for_trees)
{
    kvp_meta_sizes sizes = {3, 20, 7, 4, 7, 9, 65};
    kvp_meta_tree tree = {.struct_size = sizeof tree};
    size_t n_bytes = 0;
    assert_ok(kvp_meta_place_tree(&tree, &sizes, NULL, 0, &n_bytes));
    assert_int_equal(n_bytes, (4 + 2 + 1 + 1) * 64); /* intervals and mask take two lines each */
    char *buffer = aligned_alloc(64, n_bytes);
    assert_non_null(buffer);
    assert_status(KVP_E_TOO_SMALL,
                  kvp_meta_place_tree(&tree, &sizes, buffer, n_bytes - 1, &n_bytes));
    assert_null(tree.indptr);
    assert_ok(kvp_meta_place_tree(&tree, &sizes, buffer, n_bytes, &n_bytes));
    assert_ptr_equal(tree.indptr, buffer);
    assert_ptr_equal(tree.mask, buffer + 6 * 64);
    assert_fields(tree, max_nodes, 9, max_mask_bytes, 65);
    sizes.n_mask_bytes = 0; /* intervals will do */
    assert_ok(kvp_meta_place_tree(&tree, &sizes, buffer, n_bytes, &n_bytes));
    assert_int_equal(n_bytes, 5 * 64);
    assert_null(tree.mask);
    assert_null(tree.mask_indptr);
    assert_status(KVP_E_ARG, kvp_meta_place_tree(NULL, &sizes, NULL, 0, &n_bytes));
    free(buffer);
}

TEST_MAIN(NULL, NULL)

/* Token trees: nodes with parents, slots for them, and the path that is accepted. What ends a tree
 * otherwise, and trees in steps: test_cache_trees_life.c. */
#include <string.h>

#include "groups.h"

static world tree_world(uint32_t usable, uint32_t max_tree)
{
    kvp_config config = config_of(4, 4, usable);
    config.max_tree_tokens = max_tree;
    return make_world(&config);
}

/* 7 -> 8 -> 5, and 7 -> 9: the example of trees.h. */
static const int32_t four_tokens[] = {7, 8, 9, 5};
static const int32_t four_parents[] = {-1, 0, 0, 1};

/* ------------------------------------------------------------------------------------------ add */

TEST(test_nodes_have_the_slots_behind_the_tokens)
{
    scoped_world w = tree_world(7, 8);
    int64_t slots[4];
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    const kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, n_tokens, 5, known_tokens, 5, computed_tokens, 5);
    assert_fields(info, tree_tokens, 4, writable_tokens, 9, last_token, 4);
    assert_row(&w, seq, 1, 2, 3);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 5, 4, slots));
    const int64_t expected[] = {9, 10, 11, 12};
    assert_memory_equal(slots, expected, sizeof(slots));
    assert_tree(&w, seq, four_tokens, four_parents, 4);
    assert_int_equal(stats_of(&w).tree_tokens, 4);
}

TEST(test_nodes_are_added_in_rounds)
{
    scoped_world w = tree_world(7, 8);
    kvp_slot_move moves[8];
    const int32_t tokens[] = {7, 8, 9, 5, 60, 61, 62, 63};
    const int32_t parents[] = {-1, 0, 0, 1, 3, -1, 4, 6}; /* a second root; all counted from 0 */
    const kvp_seq seq = open_done(&w, ints(0), 4);
    add_tree(&w, seq, tokens, parents, 4);
    add_tree(&w, seq, tokens + 4, parents + 4, 1);
    add_tree(&w, seq, NULL, NULL, 0);
    add_tree(&w, seq, tokens + 5, parents + 5, 3);
    assert_tree(&w, seq, tokens, parents, 8);
    assert_int_equal(info_of(&w, seq).n_blocks, 3);
    assert_int_equal(accept_path(&w, seq, 7, moves, 8), 4); /* 7 8 5 60 62 63: from the third on */
    const kvp_slot_move expected[] = {{11, 10}, {12, 11}, {14, 12}, {15, 13}};
    assert_memory_equal(moves, expected, sizeof(expected));
    assert_int_equal(info_of(&w, seq).n_tokens, 10);
}

TEST(test_a_parent_comes_before_its_node)
{
    scoped_world w = tree_world(7, 8);
    kvp_seq seqs[2];
    const uint32_t n_tokens[] = {2, 2};
    const int32_t bad[][2] = {{-2, 0}, {0, -1}, {-1, 1}, {1, 0}, {INT32_MIN, 0}, {-1, INT32_MAX}};
    seqs[0] = open_done(&w, ints(0), 5);
    seqs[1] = open_done(&w, ints(100), 5);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_unchanged(&w, assert_status(KVP_E_ARG, try_tree(&w, seqs[0], ints(7), bad[i], 2)));
        assert_shortage(&w, KVP_E_ARG, 0, 0);
    }
    const int32_t parents[] = {-1, 0, -1, 2}; /* 2 is not before the second node of its own tree */
    kvp_batch batch = batch_of(seqs, n_tokens, 2);
    batch.tokens = ints(50);
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents)));
    assert_shortage(&w, KVP_E_ARG, 1, 0);
    const int32_t first[] = {-1, 0};
    add_tree(&w, seqs[1], ints(7), first, 2);
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents)); /* now it is */
}

TEST(test_what_an_extend_of_trees_refuses)
{
    scoped_world w = tree_world(7, 4);
    const int32_t parents[] = {-1, 0};
    const int32_t negative[] = {3, -3};
    uint32_t n = 2;
    kvp_status each;
    const kvp_seq seq = open_done(&w, ints(0), 5);
    kvp_batch batch = batch_of(&seq, &n, 1);
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents)); /* no values */
    batch.tokens = ints(7);
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, NULL));
    batch.n_tokens = NULL; /* one for each */
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, NULL));
    batch.n_tokens = &n;
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(NULL, &batch, parents));
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, NULL, parents));
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = &each;
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents));
    batch.flags = 0;
    const kvp_key key = {.type = 1, .begin = 5, .end = 6};
    batch.keys = &key;
    batch.n_keys = 1;
    assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents));
    assert_status(KVP_E_ARG, try_tree(&w, seq, negative, parents, 2));
    assert_status(KVP_E_HANDLE, try_tree(&w, (kvp_seq){0}, ints(7), parents, 2));
    const kvp_seq twice[] = {seq, seq};
    const uint32_t counts[] = {1, 1};
    batch = batch_of(twice, counts, 2);
    batch.tokens = ints(7);
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents)));
}

TEST(test_a_tree_has_a_largest_size)
{
    kvp_config config = config_of(4, 4, 7);
    const int32_t parents[] = {-1, -1, -1, -1, -1};
    config.max_tree_tokens = 4;
    config.max_seq_tokens = 13;
    world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_unchanged(&w, assert_status(KVP_E_TOO_LONG, try_tree(&w, seq, ints(7), parents, 5)));
    assert_shortage(&w, KVP_E_TOO_LONG, 0, 0);
    add_tree(&w, seq, ints(7), parents, 3);
    assert_unchanged(&w, assert_status(KVP_E_TOO_LONG, try_tree(&w, seq, ints(7), parents, 2)));
    add_tree(&w, seq, ints(7), parents, 1);
    (void)accept_path(&w, seq, 0, NULL, 0);
    decode(&w, seq, 1);
    assert_status(KVP_E_TOO_LONG, try_tree(&w, seq, ints(7), parents, 4)); /* 10 and 4 tokens */
    add_tree(&w, seq, ints(7), parents, 3);
    assert_status(KVP_E_TOO_LONG, kvp_seq_extend(w.cache, seq, NULL, 0, 1)); /* and a reserve */
    end_world(&w);

    w = tree_world(7, 0); /* the default: no trees */
    const kvp_seq other = open_done(&w, ints(0), 4);
    assert_status(KVP_E_TOO_LONG, try_tree(&w, other, ints(7), parents, 1));
    add_tree(&w, other, NULL, NULL, 0);
    assert_int_equal(accept_path(&w, other, -1, NULL, 0), 0);
    end_world(&w);
}

TEST(test_blocks_for_nodes_all_or_nothing)
{
    scoped_world w = tree_world(5, 8);
    const int32_t parents[] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    uint32_t n_tokens[] = {5, 6};
    kvp_seq seqs[2];
    seqs[0] = open_done(&w, ints(0), 4);
    seqs[1] = open_done(&w, ints(100), 7);
    kvp_batch batch = batch_of(seqs, n_tokens, 2);
    batch.tokens = ints(50);
    assert_admission(can_extend(&w, seqs, n_tokens, 2), KVP_ADMIT_LATER, 4, 2, 2);
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_tree(w.cache, &batch, parents)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 1, 2);
    n_tokens[0] = 4;
    n_tokens[1] = 6;
    assert_admission(can_extend(&w, seqs, n_tokens, 2), KVP_ADMIT_LATER, 3, 2, 1);
    n_tokens[1] = 1;
    assert_admission(can_extend(&w, seqs, n_tokens, 2), KVP_ADMIT_OK, 1, 2, 0);
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
    assert_row(&w, seqs[0], 1, 4);
    assert_row(&w, seqs[1], 2, 3);
    /* What it asks for comes behind the tree that is there. */
    assert_admission(can_extend(&w, seqs, n_tokens, 2), KVP_ADMIT_LATER, 2, 1, 1);
    n_tokens[0] = 20;
    assert_admission(can_extend(&w, seqs, n_tokens, 1), KVP_ADMIT_NEVER, 5, 1, 2);
}

/* One each, when no counts are given; room behind the tree, when some is reserved. */
TEST(test_counts_and_reserve_of_a_batch)
{
    scoped_world w = tree_world(7, 8);
    kvp_seq seqs[2];
    const int32_t parents[] = {-1, -1};
    seqs[0] = open_done(&w, ints(0), 3);
    seqs[1] = open_done(&w, ints(100), 4);
    kvp_batch batch = batch_of(seqs, NULL, 2);
    batch.tokens = ints(50);
    batch.reserve_tokens = 4;
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
    assert_tree(&w, seqs[0], ints(50), parents, 1);
    assert_tree(&w, seqs[1], ints(51), parents, 1);
    assert_int_equal(info_of(&w, seqs[0]).writable_tokens, 8);
    assert_int_equal(info_of(&w, seqs[1]).writable_tokens, 9);
    assert_row(&w, seqs[1], 2, 4, 5);
}

TEST(test_a_tree_is_read)
{
    scoped_world w = tree_world(7, 8);
    int32_t nodes[4] = {77, 77, 77, 77};
    uint32_t n = 77;
    const kvp_seq seq = open_done(&w, ints(0), 5);
    assert_ok(kvp_seq_tree(w.cache, seq, NULL, NULL, 0, &n));
    assert_int_equal(n, 0);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_status(KVP_E_TOO_SMALL, kvp_seq_tree(w.cache, seq, nodes, NULL, 3, &n));
    assert_int_equal(n, 4);
    assert_int_equal(nodes[0], 77);
    n = 77;
    assert_ok(kvp_seq_tree(w.cache, seq, nodes, nodes, 0, &n));
    assert_int_equal(n, 4);
    assert_int_equal(nodes[0], 77);
    assert_ok(kvp_seq_tree(w.cache, seq, NULL, nodes, 4, &n));
    assert_memory_equal(nodes, four_parents, sizeof(nodes));
    assert_ok(kvp_seq_tree(w.cache, seq, nodes, NULL, 9, &n));
    assert_memory_equal(nodes, four_tokens, sizeof(nodes));
    assert_status(KVP_E_HANDLE, kvp_seq_tree(w.cache, (kvp_seq){0}, nodes, NULL, 9, &n));
    assert_status(KVP_E_ARG, kvp_seq_tree(w.cache, seq, nodes, NULL, 9, NULL));
    assert_status(KVP_E_ARG, kvp_seq_tree(NULL, seq, nodes, NULL, 9, &n));
}

/* ------------------------------------------------------------------ beside what a sequence does */

TEST(test_a_tree_is_no_part_of_the_sequence)
{
    scoped_world w = tree_world(7, 8);
    int32_t tokens[5];
    const kvp_seq seq = open_done(&w, ints(0), 5);
    const uint64_t nodes = stats_of(&w).nodes_used;
    const int32_t chain[] = {-1, 0, 1, 2, 3, 4, 5};
    add_tree(&w, seq, ints(5), chain, 7); /* fills two units, were it part of it */
    assert_int_equal(stats_of(&w).nodes_used, nodes);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    assert_int_equal(info_of(&w, seq).public_tokens, 4);
    assert_status(KVP_E_ARG, kvp_seq_commit(w.cache, seq, 6));
    assert_status(KVP_E_ARG, kvp_seq_tokens(w.cache, seq, 0, 6, tokens));
    assert_status(KVP_E_ARG, kvp_seq_fork(w.cache, seq, 6, 0, &(kvp_seq){0}));
    assert_status(KVP_E_STATE, kvp_seq_fill(w.cache, seq, ints(5), 1));
    assert_status(KVP_E_STATE, kvp_seq_extend(w.cache, seq, ints(5), 1, 0));
    assert_status(KVP_E_STATE, kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    assert_int_equal(stats_of(&w).sealed_units, 1);
}

TEST(test_an_extend_without_tokens_reserves_behind_the_tree)
{
    scoped_world w = tree_world(7, 8);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 4));
    assert_row(&w, seq, 1, 2, 3, 4);
    assert_fields(info_of(&w, seq), writable_tokens, 13, tree_tokens, 4);
    (void)accept_path(&w, seq, 1, NULL, 0);
    assert_row(&w, seq, 1, 2); /* reserved ones are given back */
    assert_int_equal(info_of(&w, seq).writable_tokens, 7);
}

/* A tree may be added behind tokens that are not computed, or have no value; these go on. */
TEST(test_commit_and_fill_work_before_the_tree)
{
    scoped_world w = tree_world(7, 8);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 3, 0));
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, seq, 0, NULL, 0)));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, seq, 0, NULL, 0)));
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(5), 3));
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    (void)accept_path(&w, seq, 1, NULL, 0);
    assert_int_equal(info_of(&w, seq).n_tokens, 10);
}

TEST(test_a_path_behind_uncomputed_tokens_is_not_accepted)
{
    scoped_world w = tree_world(7, 8);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    extend_seq(&w, seq, 1); /* has a value */
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, seq, 0, NULL, 0)));
    assert_ok(kvp_seq_commit(w.cache, seq, 5));
    (void)accept_path(&w, seq, 0, NULL, 0);
}

TEST(test_an_accept_that_releases_no_block_keeps_the_rows_version)
{
    scoped_world w = tree_world(7, 8);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 3);
    (void)accept_path(&w, seq, 1, NULL, 0);
    assert_fields(info_of(&w, seq), row_version, 0, writable_tokens, 7);
}

TEST(test_nothing_may_be_accepted_at_any_time)
{
    scoped_world w = tree_world(7, 8);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0));
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_row(&w, seq, 1, 2, 3);
    assert_int_equal(accept_path(&w, seq, -1, NULL, 0), 0);
    const kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, n_tokens, 7, computed_tokens, 5, writable_tokens, 7, tree_tokens, 0,
                  row_version, 1);
    assert_row(&w, seq, 1, 2);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(5), 3));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
}

/* --------------------------------------------------------------------------------------- accept */

/* The example's tree behind five tokens; the leaf, and what it should come to. */
static void check_leaf(int32_t leaf, const int32_t *path, uint32_t n_path,
                       const kvp_slot_move *expected, uint32_t n_expected)
{
    scoped_world w = tree_world(7, 8);
    kvp_slot_move moves[4];
    int32_t tokens[9];
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_int_equal(accept_path(&w, seq, leaf, moves, 4), n_expected);
    assert_memory_equal(moves, expected, n_expected * sizeof(*moves));
    const kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, n_tokens, 5 + n_path, computed_tokens, 5 + n_path, known_tokens,
                  5 + n_path);
    assert_fields(info, writable_tokens, 5 + n_path, tree_tokens, 0, row_version, 1);
    assert_row(&w, seq, 1, 2);
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 5 + n_path, tokens));
    assert_memory_equal(tokens, ints(0), 5 * sizeof(*tokens));
    assert_memory_equal(tokens + 5, path, n_path * sizeof(*tokens));
    assert_int_equal(match(&w, tokens, 5 + n_path).hit_tokens, (5 + n_path) / 4 * 4);
    assert_int_equal(stats_of(&w).accepted_tokens, n_path);
    assert_queue(&w, 0, 3, 4, 5, 6, 7);
    decode(&w, seq, 5);
}

TEST(test_each_leaf_of_the_example)
{
    const kvp_slot_move third[] = {{12, 11}};  /* node 3, from position 8 to 7 */
    const kvp_slot_move second[] = {{11, 10}}; /* node 2, from position 7 to 6 */
    check_leaf(-1, NULL, 0, NULL, 0);
    check_leaf(0, (const int32_t[]){7}, 1, NULL, 0);
    check_leaf(1, (const int32_t[]){7, 8}, 2, NULL, 0);
    check_leaf(2, (const int32_t[]){7, 9}, 2, second, 1);
    check_leaf(3, (const int32_t[]){7, 8, 5}, 3, third, 1);
}

TEST(test_a_path_moves_in_its_order)
{
    scoped_world w = tree_world(7, 8);
    kvp_slot_move moves[3];
    const int32_t tokens[] = {30, 31, 32, 33, 34};
    const int32_t parents[] = {-1, -1, 1, 0, 2}; /* 31, 32, 34 from the second root */
    int32_t all[7];
    const kvp_seq seq = open_done(&w, ints(0), 4);
    add_tree(&w, seq, tokens, parents, 5);
    assert_int_equal(accept_path(&w, seq, 4, moves, 3), 3);
    const kvp_slot_move expected[] = {{9, 8}, {10, 9}, {12, 10}};
    assert_memory_equal(moves, expected, sizeof(moves)); /* no source is overwritten before */
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 7, all));
    assert_int_equal(all[4], 31);
    assert_int_equal(all[5], 32);
    assert_int_equal(all[6], 34);
}

TEST(test_a_sequence_may_begin_with_a_tree)
{
    scoped_world w = tree_world(7, 8);
    kvp_slot_move move;
    const int32_t parents[] = {-1, 0, 1, 2, 2};
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    add_tree(&w, seq, ints(0), parents, 5);
    assert_row(&w, seq, 1, 2);
    assert_int_equal(accept_path(&w, seq, 4, &move, 1), 1);
    assert_fields(move, src, 8, dst, 7);
    assert_int_equal(info_of(&w, seq).n_tokens, 4);
    assert_int_equal(block_of(&w, 1).sealed_units, 1);
}

/* What is sealed is what was accepted, and nothing before that. */
TEST(test_nodes_are_sealed_when_they_are_accepted)
{
    scoped_world w = tree_world(9, 8);
    const int32_t parents[] = {-1, 0, 1, 2, 3, 4, 5, 1};
    kvp_slot_move move;
    int32_t tokens[10];
    memcpy(tokens, ints(0), sizeof(tokens));
    const kvp_seq seq = open_done(&w, ints(0), 3);
    add_tree(&w, seq, ints(3), parents, 8);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 0);
    assert_int_equal(accept_path(&w, seq, 7, &move, 1), 1); /* 3, 4, and 10 */
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    assert_int_equal(stats_of(&w).sealed_units, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(50), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    tokens[5] = 10;
    tokens[6] = 50;
    tokens[7] = 51;
    assert_int_equal(match(&w, tokens, 9).hit_tokens, 8);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 4); /* the rejected path is nobody's */
}

TEST(test_an_accepted_unit_that_is_there_already_is_adopted)
{
    scoped_world w = tree_world(9, 8);
    const int32_t parents[] = {-1, -1, 1, 2, 3};
    const int32_t tokens[] = {99, 3, 4, 5, 6};
    kvp_slot_move moves[4];
    leave_cached(&w, ints(0), 8); /* 1 and 2 */
    const kvp_seq seq = open_done(&w, ints(0), 3);
    assert_row(&w, seq, 3);
    add_tree(&w, seq, tokens, parents, 5);
    assert_row(&w, seq, 3, 4);
    assert_int_equal(accept_path(&w, seq, 4, moves, 4), 4);
    assert_row(&w, seq, 1, 4); /* what moves into block 3 is of no use, and of no harm */
    const kvp_slot_move expected[] = {{16, 15}, {17, 16}, {18, 17}, {19, 18}};
    assert_memory_equal(moves, expected, sizeof(moves));
    assert_int_equal(stats_of(&w).adopted_blocks, 1);
    assert_int_equal(info_of(&w, seq).n_tokens, 7);
}

TEST(test_accepted_tokens_that_must_not_be_cached)
{
    kvp_config config = config_of(4, 4, 9);
    const int32_t uncached = 5;
    const int32_t parents[] = {-1, 0, 1, 2, 3, 4, 5, 6};
    config.max_tree_tokens = 8;
    config.n_uncached_tokens = 1;
    config.uncached_tokens = &uncached;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 3);
    add_tree(&w, seq, ints(3), parents, 8);
    (void)accept_path(&w, seq, 7, NULL, 0);
    assert_fields(info_of(&w, seq), n_tokens, 11, public_tokens, 4);
    assert_int_equal(match(&w, ints(0), 11).hit_tokens, 4);
}

/* ------------------------------------------------------------------------------ several at once */

enum { MANY = 4, NODES = 4 };

/* MANY sequences of 5 tokens, each with a tree: 10 s + {0, 1, 2, 3}, as in the example. */
static void open_many(world *w, kvp_seq seqs[MANY])
{
    int32_t tokens[MANY * NODES];
    int32_t parents[MANY * NODES];
    uint32_t n_tokens[MANY];
    for (uint32_t s = 0; s < MANY; s++) {
        seqs[s] = open_done(w, ints((int32_t)(100 * s)), 5);
        n_tokens[s] = NODES;
        for (uint32_t j = 0; j < NODES; j++) {
            tokens[s * NODES + j] = (int32_t)(10 * s + j);
            parents[s * NODES + j] = four_parents[j];
        }
    }
    kvp_batch batch = batch_of(seqs, n_tokens, MANY);
    batch.tokens = tokens;
    assert_ok(kvp_seq_extend_tree(w->cache, &batch, parents));
}

static kvp_accept accept_many(const kvp_seq *seqs, const int32_t *leaves, uint32_t n,
                              kvp_slot_move *moves, uint32_t max_moves)
{
    return (kvp_accept){.struct_size = sizeof(kvp_accept),
                        .n_seqs = n,
                        .max_moves = max_moves,
                        .seqs = seqs,
                        .leaves = leaves,
                        .moves = moves};
}

TEST(test_any_of_them_are_accepted_in_any_order)
{
    scoped_world w = tree_world(31, 8);
    kvp_seq seqs[MANY];
    kvp_slot_move moves[4];
    open_many(&w, seqs);
    assert_row(&w, seqs[0], 1, 2, 9);
    assert_row(&w, seqs[2], 5, 6, 11);
    const kvp_seq some[] = {seqs[2], seqs[0], seqs[1]};
    const int32_t leaves[] = {3, 2, -1};
    kvp_accept accept = accept_many(some, leaves, 3, moves, 4);
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_int_equal(accept.n_moves, 2);
    const kvp_slot_move expected[] = {{44, 27}, {11, 10}}; /* sequence after sequence */
    assert_memory_equal(moves, expected, sizeof(expected));
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 7);
    assert_int_equal(info_of(&w, seqs[0]).last_token, 2);
    assert_int_equal(info_of(&w, seqs[1]).n_tokens, 5);
    assert_int_equal(info_of(&w, seqs[1]).tree_tokens, 0);
    assert_int_equal(info_of(&w, seqs[2]).n_tokens, 8);
    assert_int_equal(info_of(&w, seqs[2]).last_token, 23);
    assert_tree(&w, seqs[3], ((const int32_t[]){30, 31, 32, 33}), four_parents, 4);
    assert_int_equal(stats_of(&w).accepted_tokens, 5);
    assert_int_equal(accept_path(&w, seqs[3], 1, NULL, 0), 0); /* another time */
    assert_int_equal(info_of(&w, seqs[3]).last_token, 31);
}

TEST(test_a_sequence_without_a_tree_is_left_as_it_is)
{
    scoped_world w = tree_world(31, 8);
    kvp_prompt prompt = prompt_of(ints(0), 5);
    prompt.reserve_tokens = 8;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    (void)accept_path(&w, seq, -1, NULL, 0);
    assert_row(&w, seq, 1, 2, 3, 4);
    assert_fields(info_of(&w, seq), row_version, 0, writable_tokens, 13);
    assert_status(KVP_E_ARG, try_accept(&w, seq, 0, NULL, 0));
}

TEST(test_what_an_accept_refuses)
{
    scoped_world w = tree_world(31, 8);
    kvp_seq seqs[MANY];
    kvp_slot_move moves[4];
    open_many(&w, seqs);
    const int32_t leaves[] = {3, 3, 4};
    const int32_t below[] = {3, -2, 3};
    kvp_accept accept = accept_many(seqs, leaves, 3, moves, 4);
    accept.n_moves = 77;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept)));
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    accept.leaves = below;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept)));
    assert_shortage(&w, KVP_E_ARG, 1, 0);
    const kvp_seq twice[] = {seqs[1], seqs[0], seqs[1]};
    accept.seqs = twice;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept)));
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    const kvp_seq stale[] = {seqs[1], seqs[1], {0}};
    accept.seqs = stale;
    assert_unchanged(&w, assert_status(KVP_E_HANDLE, kvp_seq_accept(w.cache, &accept)));
    assert_int_equal(accept.n_moves, 77);
    accept.struct_size--;
    assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept));
    accept = accept_many(seqs, leaves, 1, NULL, 4);
    assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept));
    accept = accept_many(seqs, NULL, 1, moves, 4);
    assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept));
    assert_status(KVP_E_ARG, kvp_seq_accept(NULL, &accept));
}

TEST(test_the_moves_must_all_fit)
{
    scoped_world w = tree_world(31, 8);
    kvp_seq seqs[MANY];
    kvp_slot_move moves[2] = {{77, 77}, {77, 77}};
    const int32_t leaves[] = {3, 2, 1, 3};
    open_many(&w, seqs);
    kvp_accept accept = accept_many(seqs, leaves, MANY, moves, 2);
    assert_unchanged(&w, assert_status(KVP_E_TOO_SMALL, kvp_seq_accept(w.cache, &accept)));
    assert_int_equal(accept.n_moves, 3);
    assert_int_equal(moves[0].src, 77);
    accept.moves = NULL;
    accept.max_moves = 0;
    accept.n_moves = 0;
    assert_unchanged(&w, assert_status(KVP_E_TOO_SMALL, kvp_seq_accept(w.cache, &accept)));
    assert_int_equal(accept.n_moves, 3);
    accept.n_seqs = 2;
    accept.moves = moves;
    accept.max_moves = 2;
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_int_equal(accept.n_moves, 2);
}

TEST(test_moves_are_listed_for_every_group)
{
    const kvp_window windows[] = {{0, 0}, {0, 4}, {0, 0}};
    kvp_config config = groups_config(4, 31, windows, 3);
    kvp_slot_move moves[3 * 5];
    config.max_tree_tokens = 8;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    memset(moves, 0, sizeof(moves));
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_row_in(&w, 2, seq, 3, 6, 9);
    assert_int_equal(accept_path(&w, seq, 3, moves, 5), 1);
    for (int32_t g = 0; g < 3; g++) {
        assert_int_equal(moves[5 * g].src, (7 + g) * 4);
        assert_int_equal(moves[5 * g].dst, (4 + g) * 4 + 3);
        assert_int_equal(moves[5 * g + 1].dst, 0);
    }
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 4);
    assert_row_in(&w, 1, seq, 0, 5);                   /* 8 sees 5 and after */
    assert_int_equal(info_of(&w, seq).row_version, 2); /* dropped, and cut */
}

TEST_MAIN(NULL, NULL)

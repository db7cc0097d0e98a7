/* Defects seen in the paged KV cache of Apache TVM and the prefix cache of MLC-LLM, each a
 * regression test by its number. A window of W there, sinks included, is R = W - K + 1
 * (windows.h), and one less in these tests; to pop is to truncate; a block is a page of theirs, a
 * sequence's tree is committed where ours is accepted.
 *
 *    1  a fork inside the sinks of a sequence that has slid corrupts the parent
 *    2  whether nodes must move is decided by the last sequence of the batch
 *    3  after several rounds, rejected nodes stay in the sequence
 *    4  a commit in another order, or of a subset, works on the wrong sequences
 *    5  trees of sequences that share different prefixes lose their structure
 *    6  a pop on a slid sequence frees a page that the window needs
 *    7  a pop into a shared block of a windowed sequence fails half-way
 *    8  a windowed sequence forked at its end, at a page boundary, can never append again
 *    9  an append that is refused has changed lengths and taken pages
 *   10  a fork that is refused for lack of a page loses blocks for ever
 *   11  a sequence twice in a batch is accepted
 *   12  calls between the begin of a step and its end hand out memory that the step writes
 *   13  windows are counted from shared blocks on, and save no memory
 *   14  a reset loses nodes; the prefix cache evicts what was used last
 *
 * and then limits of the design. What kernels are told of windows and trees (5 and 13 again):
 * the tests of metadata. */
#include <string.h>

#include "groups.h"

enum { S = 4, ROW_MAX = 64 };

static const int32_t four_parents[] = {-1, 0, 0, 1};

static kvp_config tree_config(uint32_t usable)
{
    kvp_config config = config_of(S, S, usable);
    config.max_tree_tokens = 32;
    return config;
}

static world tree_world(uint32_t usable)
{
    const kvp_config config = tree_config(usable);
    return make_world(&config);
}

/* Every entry that the window keeps is a held block, and no other is. */
static void expect_live(const world *w, kvp_seq seq, uint32_t block_tokens)
{
    const kvp_seq_info info = info_of(w, seq);
    const kvp_window window = window_of(w, 0, seq).window;
    for (uint32_t i = 0; i < info.n_blocks; i++) {
        const int32_t block = row_entry(w, seq, i);
        assert_int_equal(block != KVP_NULL_BLOCK,
                         keeps(window, block_tokens, i, info.computed_tokens));
        if (block != KVP_NULL_BLOCK)
            assert_int_equal(block_of(w, block).state, KVP_BLOCK_HELD);
    }
}

/* Another sequence takes all that can be taken: nothing of it is in the row. */
static void expect_not_taken(world *w, kvp_seq seq)
{
    kvp_prompt prompt = prompt_of(NULL, 0);
    const kvp_stats stats = stats_of(w);
    prompt.reserve_tokens = (uint32_t)(stats.free_blocks + stats.cached_blocks) * S;
    const kvp_seq other = open_with(w, &prompt, NULL);
    for (uint32_t i = 0; i < info_of(w, other).n_blocks; i++)
        for (uint32_t k = 0; k < info_of(w, seq).n_blocks; k++)
            assert_int_not_equal(row_entry(w, other, i), row_entry(w, seq, k));
    close_seq(w, other);
}

/* -------------------------------------------------------------------------------------------- 1 */

/* Window 40, 20 of it sinks, 60 tokens, a fork at 18; and the same when blocks were dropped. */
TEST(test_1_a_fork_inside_the_sinks_of_a_slid_sequence)
{
    const uint32_t lengths[] = {60, 100};
    for (uint32_t k = 0; k < 2; k++) {
        kvp_config config = groups_config(16, 31, &(kvp_window){20, 20}, 1);
        int32_t before[ROW_MAX];
        scoped_world w = make_world(&config);
        const kvp_seq parent = open_done(&w, ints(0), lengths[k]);
        const uint32_t n_blocks = info_of(&w, parent).n_blocks;
        memcpy(before, row_of(&w, 0, parent), n_blocks * sizeof(*before));
        const kvp_seq child = fork_seq(&w, parent, 18);
        assert_memory_equal(row_of(&w, 0, parent), before, n_blocks * sizeof(*before));
        assert_row(&w, child, 1, 2);
        assert_ok(kvp_seq_extend(w.cache, child, ints(999), 1, 0));
        decode(&w, child, 60);
        decode(&w, parent, 60);
        expect_live(&w, parent, 16);
        expect_live(&w, child, 16);
        assert_int_equal(row_entry(&w, parent, 0), before[0]);
        assert_int_equal(row_entry(&w, parent, 1), before[1]);
        assert_int_equal(row_entry(&w, child, 0), before[0]);
        assert_int_not_equal(row_entry(&w, child, 1), before[1]); /* it wrote there: a copy */
    }
}

/* -------------------------------------------------------------------------------------------- 2 */

TEST(test_2_moves_of_every_sequence_of_a_batch)
{
    const int32_t chain[] = {-1, 0, 1, 2};
    for (uint32_t tree_at = 0; tree_at < 2; tree_at++) { /* the tree first; the chain first */
        scoped_world w = tree_world(15);
        kvp_seq seqs[2];
        kvp_slot_move moves[4];
        const int32_t leaves[] = {3, 3};
        seqs[0] = open_done(&w, ints(0), 4);
        seqs[1] = open_done(&w, ints(100), 4);
        add_tree(&w, seqs[tree_at], ints(50), four_parents, 4);
        add_tree(&w, seqs[1 - tree_at], ints(60), chain, 4);
        kvp_accept accept = {sizeof(accept), 2, 4, seqs, leaves, moves, 0, 0};
        assert_ok(kvp_seq_accept(w.cache, &accept));
        assert_int_equal(accept.n_moves, 1);
        assert_int_equal(moves[0].src - moves[0].dst, 1);
        assert_int_equal(moves[0].dst / S, row_entry(&w, seqs[tree_at], 1));
        assert_int_equal(info_of(&w, seqs[tree_at]).n_tokens, 7);
        assert_int_equal(info_of(&w, seqs[1 - tree_at]).n_tokens, 8);
    }
}

/* -------------------------------------------------------------------------------------------- 3 */

/* Ten tokens, then rounds of 7 and 10 nodes; a path of two is accepted: 12 tokens. */
TEST(test_3_rejected_nodes_of_all_rounds_are_dropped)
{
    const int32_t first[] = {-1, 0, 0, 1, 1, 2, 2};
    const int32_t second[] = {3, 3, 4, 4, 5, 5, 6, 6, 7, 8};
    const int32_t leaves[] = {1, 2, 6, 16};
    const uint32_t lengths[] = {12, 12, 13, 15};
    for (uint32_t k = 0; k < 4; k++) {
        scoped_world w = tree_world(15);
        kvp_slot_move moves[8];
        int32_t tokens[1];
        const kvp_seq seq = open_done(&w, ints(0), 10);
        add_tree(&w, seq, ints(50), first, 7);
        add_tree(&w, seq, ints(57), second, 10);
        assert_int_equal(info_of(&w, seq).n_blocks, 7);
        const uint32_t n = accept_path(&w, seq, leaves[k], moves, 8);
        assert_int_equal(info_of(&w, seq).n_tokens, lengths[k]);
        assert_int_equal(info_of(&w, seq).n_blocks, (lengths[k] + 3) / S);
        assert_int_equal(info_of(&w, seq).tree_tokens, 0);
        assert_ok(kvp_seq_tokens(w.cache, seq, lengths[k] - 1, 1, tokens));
        assert_int_equal(tokens[0], 50 + leaves[k]);
        for (uint32_t m = 0; m < n; m++) /* the last one comes from the slot of the leaf */
            assert_true(moves[m].src > moves[m].dst);
        assert_int_equal(n == 0, k == 0);
        assert_true(n == 0 || moves[n - 1].src == S + 10 + leaves[k]); /* the row is 1, 2, 3 ... */
    }
}

/* -------------------------------------------------------------------------------------------- 4 */

TEST(test_4_paths_are_of_the_sequences_that_are_named)
{
    scoped_world w = tree_world(31);
    kvp_seq seqs[3];
    const uint32_t n_tokens[] = {4, 4, 4};
    int32_t parents[12];
    for (uint32_t s = 0; s < 3; s++) {
        seqs[s] = open_done(&w, ints((int32_t)(100 * s)), 6 + s);
        memcpy(parents + 4 * s, four_parents, sizeof(four_parents));
    }
    kvp_batch batch = batch_of(seqs, n_tokens, 3);
    batch.tokens = ints(50);
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
    (void)accept_path(&w, seqs[1], 1, NULL, 0); /* of a batch of three, the second */
    assert_int_equal(info_of(&w, seqs[0]).tree_tokens, 4);
    assert_int_equal(info_of(&w, seqs[1]).n_tokens, 9);
    assert_int_equal(info_of(&w, seqs[1]).last_token, 55);
    assert_int_equal(info_of(&w, seqs[2]).tree_tokens, 4);
    const kvp_seq turned[] = {seqs[2], seqs[0]};
    const int32_t leaves[] = {-1, 0};
    kvp_accept accept = {sizeof(accept), 2, 0, turned, leaves, NULL, 0, 0};
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 7);
    assert_int_equal(info_of(&w, seqs[0]).last_token, 50);
    assert_int_equal(info_of(&w, seqs[2]).n_tokens, 8);
}

/* -------------------------------------------------------------------------------------------- 5 */

TEST(test_5_trees_keep_their_shape_whatever_is_shared)
{
    scoped_world w = tree_world(31);
    kvp_seq seqs[3];
    const uint32_t n_tokens[] = {4, 4, 4};
    const int32_t parents[] = {-1, 0, 0, 1, -1, -1, 0, 1, -1, 0, 1, 2};
    seqs[0] = open_done(&w, ints(0), 12); /* a tree after one block */
    seqs[1] = fork_seq(&w, seqs[0], 8);   /* two shared ones, then its own */
    decode(&w, seqs[1], 4);
    seqs[2] = fork_seq(&w, seqs[1], KVP_END); /* three levels */
    kvp_batch batch = batch_of(seqs, n_tokens, 3);
    batch.tokens = ints(50);
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
    for (uint32_t s = 0; s < 3; s++)
        assert_tree(&w, seqs[s], ints((int32_t)(50 + 4 * s)), parents + 4 * s, 4);
}

/* -------------------------------------------------------------------------------------------- 6 */

/* Window 20 with 6 sinks, slid by 14 to 19, and one token popped. */
TEST(test_6_a_pop_frees_nothing_that_the_window_needs)
{
    for (uint32_t slid = 0; slid <= 19; slid++) {
        for (uint32_t popped = 1; popped <= 3; popped++) {
            scoped_world w = window_world(15, 6, 14);
            const kvp_seq seq = open_done(&w, ints(0), 20);
            decode(&w, seq, slid);
            const kvp_status status = kvp_seq_truncate(w.cache, seq, 20 + slid - popped, NULL);
            if (status == KVP_OK) {
                assert_int_equal(info_of(&w, seq).n_tokens, 20 + slid - popped);
            } else { /* the block that would be seen again is gone, and nothing has changed */
                assert_int_equal(status, KVP_E_DROPPED);
                assert_int_equal(info_of(&w, seq).n_tokens, 20 + slid);
                expect_live(&w, seq, S);
            }
            expect_not_taken(&w, seq);
            decode(&w, seq, 9);
            expect_live(&w, seq, S);
        }
    }
}

/* -------------------------------------------------------------------------------------------- 7 */

TEST(test_7_a_pop_into_a_shared_block_succeeds_or_changes_nothing)
{
    for (uint32_t to = 0; to <= 20; to++) {
        scoped_world w = window_world(31, 2, 10);
        const kvp_seq parent = open_done(&w, ints(0), 12);
        const kvp_seq seq = fork_seq(&w, parent, 11);
        decode(&w, seq, 9);
        observed before = observe(&w);
        const kvp_status status = kvp_seq_truncate(w.cache, seq, to, NULL);
        if (status == KVP_OK) {
            drop_observed(&before);
            assert_int_equal(info_of(&w, seq).n_tokens, to);
        } else {
            assert_int_equal(status, KVP_E_DROPPED);
            assert_observed(&w, &before, __FILE__, __LINE__);
        }
        decode(&w, seq, 10); /* either way it goes on */
        expect_live(&w, seq, S);
        assert_row(&w, parent, 1, 2, 3);
    }
}

/* -------------------------------------------------------------------------------------------- 8 */

TEST(test_8_a_windowed_parent_forked_at_a_block_boundary_goes_on)
{
    for (uint32_t n = 8; n <= 24; n++) {
        scoped_world w = window_world(31, 6, 6);
        const kvp_seq parent = open_done(&w, ints(0), n);
        const kvp_seq child = fork_seq(&w, parent, KVP_END);
        decode(&w, parent, 30);
        decode(&w, child, 30);
        expect_live(&w, parent, S);
        expect_live(&w, child, S);
        assert_int_equal(row_entry(&w, child, 0), row_entry(&w, parent, 0)); /* a sink, shared */
    }
}

/* -------------------------------------------------------------------------------------------- 9 */

TEST(test_9_an_append_that_is_refused_changes_nothing)
{
    const kvp_config config = tree_config(13);
    scoped_world w = make_world(&config);
    const uint32_t n_tokens[] = {51, 0, 4};
    const int32_t bad[] = {-1, 0, 0, 4};
    kvp_seq seqs[3];
    seqs[0] = open_done(&w, ints(0), 16);
    seqs[1] = open_done(&w, ints(100), 16);
    seqs[2] = open_done(&w, ints(200), 16);
    const kvp_batch batch = batch_of(seqs, n_tokens, 3);
    assert_unchanged(&w, assert_status(KVP_E_NEVER, kvp_seq_extend_many(w.cache, &batch)));
    const uint32_t fewer[] = {4, 0, 4};
    const kvp_batch smaller = batch_of(seqs, fewer, 3);
    assert_unchanged(&w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &smaller)));
    assert_unchanged(&w, assert_status(KVP_E_ARG, try_tree(&w, seqs[2], ints(50), bad, 4)));
    close_seq(&w, seqs[1]);
    seqs[1] = seqs[2];
    const uint32_t last[] = {4, 4};
    const kvp_batch retry = batch_of(seqs, last, 2);
    assert_ok(kvp_seq_extend_many(w.cache, &retry)); /* the same again, and it works */
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 20);
}

/* Nothing for one in the middle of a batch is no mistake. */
TEST(test_9_an_append_of_nothing_in_the_middle_of_a_batch)
{
    scoped_world w = tree_world(15);
    const uint32_t n_tokens[] = {1, 0, 2};
    kvp_seq seqs[3];
    for (uint32_t s = 0; s < 3; s++)
        seqs[s] = open_done(&w, ints((int32_t)(100 * s)), 6);
    kvp_batch batch = batch_of(seqs, n_tokens, 3);
    batch.tokens = ints(50);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    for (uint32_t s = 0; s < 3; s++)
        assert_int_equal(info_of(&w, seqs[s]).n_tokens, 6 + n_tokens[s]);
    assert_int_equal(info_of(&w, seqs[2]).last_token, 52);
}

/* ------------------------------------------------------------------------------------------- 10 */

TEST(test_10_a_fork_needs_no_block_and_loses_none)
{
    scoped_world w = small_world(3);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    assert_int_equal(stats_of(&w).free_blocks, 0);
    const kvp_seq child = fork_seq(&w, parent, 7);
    assert_unchanged(&w, assert_status(KVP_E_NEVER, kvp_seq_extend(w.cache, child, NULL, 6, 0)));
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend(w.cache, child, NULL, 1, 0)));
    close_seq(&w, child);
    close_seq(&w, parent);
    const kvp_stats stats = stats_of(&w);
    assert_int_equal(stats.free_blocks + stats.cached_blocks, 3);
    assert_int_equal(stats.open_seqs, 0);
    (void)open_seq(&w, ints(100), 12, NULL);
}

/* ------------------------------------------------------------------------------------------- 11 */

TEST(test_11_a_sequence_twice_in_a_batch_is_refused)
{
    scoped_world w = tree_world(15);
    const int32_t parents[] = {-1, -1, -1};
    const uint32_t n_tokens[] = {1, 1, 1};
    const int32_t leaves[] = {-1, -1, -1};
    kvp_seq seqs[3];
    seqs[0] = seqs[2] = open_done(&w, ints(0), 6);
    seqs[1] = open_done(&w, ints(100), 6);
    kvp_batch batch = batch_of(seqs, n_tokens, 3);
    batch.tokens = ints(50);
    kvp_accept accept = {sizeof(accept), 3, 0, seqs, leaves, NULL, 0, 0};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch)));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend_tree(w.cache, &batch, parents)));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_accept(w.cache, &accept)));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_commit_many(w.cache, seqs, n_tokens, 3)));
    assert_shortage(&w, KVP_E_ARG, 2, 0);
}

/* ------------------------------------------------------------------------------------------- 12 */

TEST(test_12_a_step_that_is_out_writes_into_nobodys_memory)
{
    const kvp_config config = steps_config(4, 4, 9, 0);
    scoped_world w = make_world(&config);
    const kvp_seq closed = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq popped = open_seq(&w, ints(100), 8, NULL);
    const uint64_t step = begin_step(&w);
    const uint64_t again = begin_step(&w); /* a begin twice is two steps */
    assert_int_equal(again, step + 1);
    close_seq(&w, closed);
    assert_ok(kvp_seq_truncate(w.cache, popped, 4, NULL));
    assert_int_equal(stats_of(&w).parked_blocks, 3); /* 1, 2 and 4 are written still */
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend(w.cache, popped, NULL, 24, 0)));
    (void)done_step(&w, step);
    assert_int_equal(stats_of(&w).parked_blocks, 3); /* and by the second one */
    (void)done_step(&w, again);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
    assert_ok(kvp_seq_extend(w.cache, popped, NULL, 24, 0));
}

TEST(test_12_steps_are_bounded_and_batches_may_be_empty)
{
    kvp_config config = steps_config(4, 4, 9, 0);
    config.max_steps_out = 2;
    scoped_world w = make_world(&config);
    uint32_t n;
    uint64_t step;
    (void)begin_step(&w);
    (void)begin_step(&w);
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_STEPS, kvp_step_begin(w.cache, NULL, 0, &n, &step)));
    const kvp_batch batch = batch_of(NULL, NULL, 0);
    kvp_accept accept = {sizeof(accept), 0, 0, NULL, NULL, NULL, 0, 0};
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, NULL));
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_ok(kvp_seq_commit_many(w.cache, NULL, NULL, 0));
}

/* ------------------------------------------------------------------------------------------- 13 */

/* A shared prefix of 16, a suffix of 9, a window of 8: the prefix is out of the window. */
TEST(test_13_a_window_is_counted_over_the_whole_sequence)
{
    const kvp_window windows[] = {{0, 0}, {0, 8}};
    const kvp_config config = groups_config(S, 31, windows, 2);
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 16);
    const kvp_seq child = fork_seq(&w, parent, 16);
    decode(&w, child, 9);
    assert_dropped(&w, 0, child, 0, 0);
    assert_dropped(&w, 1, child, 0, 4);  /* 25 sees 18 and after */
    assert_dropped(&w, 1, parent, 0, 2); /* 16 sees 9 and after */
    assert_int_equal(stats_of(&w).held_blocks, 4 + 3 + 2 + 3);
}

TEST(test_13_windows_save_memory_also_when_all_layers_slide)
{
    scoped_world w = window_world(3, 0, 8);
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    decode(&w, seq, 250); /* 63 blocks without a window */
    assert_true(stats_of(&w).peak_held_blocks <= 3);
}

/* ------------------------------------------------------------------------------------------- 14 */

TEST(test_14_a_reset_loses_nothing)
{
    scoped_world w = tree_world(12);
    const uint64_t nodes = stats_of(&w).nodes_used;
    for (uint32_t round = 0; round < 200; round++) {
        const kvp_seq seq = open_done(&w, ints(0), 20);
        (void)fork_seq(&w, seq, 10);
        leave_cached(&w, ints(100), 20);
        add_tree(&w, seq, ints(50), four_parents, 4);
        assert_ok(kvp_cache_reset(w.cache));
        assert_fields(stats_of(&w), nodes_used, nodes, free_blocks, 12);
    }
    leave_cached(&w, ints(0), 48);
    assert_int_equal(match(&w, ints(0), 48).hit_tokens, 48);
    assert_int_equal(stats_of(&w).unkept_units, 0);
}

/* Ten prompts of one block each; each new block takes the oldest one's. */
TEST(test_14_the_oldest_is_evicted_first)
{
    enum { N = 10 };
    scoped_world w = small_world(N);
    for (int32_t i = 0; i < N; i++)
        leave_cached(&w, ints(100 * i), 4);
    for (int32_t i = 0; i < 2 * N; i++) { /* and so on, with the pool full */
        for (int32_t k = i; k < i + N; k++)
            assert_int_equal(match(&w, ints(100 * k), 4).hit_tokens, 4);
        leave_cached(&w, ints(100 * (i + N)), 4);
        assert_int_equal(match(&w, ints(100 * i), 4).hit_tokens, 0);
    }
}

TEST(test_14_what_was_hit_is_not_the_oldest_any_more)
{
    scoped_world w = small_world(3);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    leave_cached(&w, ints(200), 4);
    close_seq(&w, open_seq(&w, ints(0), 4, NULL));
    leave_cached(&w, ints(300), 4);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 4);
    assert_int_equal(match(&w, ints(100), 4).hit_tokens, 0);
}

/* ------------------------------------------------------------------------- limits of the design */

/* There each fork and removal lengthens the chain of blocks for ever. */
TEST(test_forks_that_end_leave_no_trace)
{
    scoped_world w = small_world(31);
    int32_t before[ROW_MAX];
    const kvp_seq seq = open_done(&w, ints(0), 42);
    memcpy(before, row_of(&w, 0, seq), 11 * sizeof(*before));
    for (uint32_t round = 0; round < 1000; round++)
        close_seq(&w, fork_seq(&w, seq, 1 + round % 42));
    assert_memory_equal(row_of(&w, 0, seq), before, 11 * sizeof(*before));
    assert_fields(info_of(&w, seq), n_blocks, 11, row_version, 0);
    assert_int_equal(stats_of(&w).nodes_used, 1 + 10);
}

/* There each fork copies the part of a page at once, and sequences' lengths are added up. */
TEST(test_forks_copy_nothing_and_count_nothing_twice)
{
    scoped_world w = small_world(31);
    const uint32_t one = 1;
    kvp_seq seqs[8];
    seqs[0] = open_done(&w, ints(0), 42);
    for (uint32_t s = 1; s < 8; s++)
        seqs[s] = fork_seq(&w, seqs[0], 41);
    assert_fields(stats_of(&w), pending_copies, 0, held_blocks, 11);
    assert_admission(can_extend(&w, &seqs[1], &one, 1), KVP_ADMIT_OK, 1, 20, 0);
    decode(&w, seqs[1], 1);
    assert_int_equal(stats_of(&w).pending_copies, 1); /* who writes copies, and nobody else */
}

/* There a windowed sequence can only be forked inside its sinks, and its prefix hit only whole. */
TEST(test_prefixes_and_forks_of_windowed_sequences)
{
    scoped_world w = window_world(31, 4, 8);
    const kvp_seq seq = open_done(&w, ints(0), 30);
    const kvp_seq child = fork_seq(&w, seq, 30);
    decode(&w, child, 20);
    expect_live(&w, child, S);
    close_seq(&w, child);
    close_seq(&w, seq);
    for (uint32_t n = 5; n <= 30; n++) /* as long as nothing is evicted, any prefix */
        assert_int_equal(match(&w, ints(0), n).hit_tokens, n / S * S);
}

/* There trees exclude windows. */
TEST(test_a_windowed_sequence_speculates)
{
    kvp_config config = groups_config(S, 7, &(kvp_window){4, 8}, 1);
    config.max_tree_tokens = 4;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    for (uint32_t round = 0; round < 60; round++) { /* in blocks that a sixth would need no more */
        kvp_slot_move move;
        add_tree(&w, seq, ints(50), four_parents, 4);
        (void)accept_path(&w, seq, (int32_t)(round % 5) - 1, &move, 1);
        expect_live(&w, seq, S);
    }
    assert_int_equal(info_of(&w, seq).n_tokens, 5 + 12 * (0 + 1 + 2 + 2 + 3));
}

TEST_MAIN(NULL, NULL)

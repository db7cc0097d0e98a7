/* Token trees and the rest of the cache: forks, copies that wait, windows, steps, and what ends a
 * tree without a word. */
#include <string.h>

#include "groups.h"

static const int32_t four_tokens[] = {7, 8, 9, 5};
static const int32_t four_parents[] = {-1, 0, 0, 1};

static world tree_world(uint32_t usable)
{
    kvp_config config = config_of(4, 4, usable);
    config.max_tree_tokens = 8;
    return make_world(&config);
}

static world tree_steps_world(uint32_t usable, uint32_t host)
{
    kvp_config config = steps_config(4, 4, usable, host);
    config.max_tree_tokens = 8;
    return make_world(&config);
}

/* ---------------------------------------------------------------------------------------- forks */

TEST(test_a_tree_behind_a_shared_block_copies_it_on_write)
{
    scoped_world w = tree_world(7);
    kvp_slot_move moves[2];
    const kvp_seq parent = open_done(&w, ints(0), 5);
    const kvp_seq child = fork_seq(&w, parent, 5);
    add_tree(&w, child, four_tokens, four_parents, 4);
    assert_row(&w, child, 1, 3, 4);
    assert_row(&w, parent, 1, 2);
    assert_int_equal(stats_of(&w).pending_copies, 1);

    /* The copy is of the tokens only. It must run before anything moves in that block. */
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, child, 3, moves, 2)));
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_plan(&w, ON_DEVICE(0, 2, 3, 1));
    assert_int_equal(accept_path(&w, child, 3, moves, 2), 1);
    assert_fields(moves[0], src, 16, dst, 15);
    decode(&w, parent, 4);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_a_copy_that_waits_is_in_the_way_of_moves_only)
{
    scoped_world w = tree_world(9);
    const int32_t parents[] = {-1, 0, 1, 2, 3, 4, 4};
    const kvp_seq parent = open_done(&w, ints(0), 5);
    const kvp_seq child = fork_seq(&w, parent, 5);
    add_tree(&w, child, ints(5), parents, 7);
    assert_int_equal(accept_path(&w, child, 2, NULL, 0), 0); /* nothing moves */
    assert_int_equal(stats_of(&w).pending_copies, 1);
    assert_row(&w, child, 1, 3);

    const int32_t two[] = {-1, -1};
    add_tree(&w, child, ints(60), two, 2); /* in block 4, the other one waits for block 3 */
    assert_row(&w, child, 1, 3, 4);
    assert_int_equal(accept_path(&w, child, 1, (kvp_slot_move[1]){{0, 0}}, 1), 1);
}

/* A sequence that went out and back twice in one plan has a block into which its first way back
 * copies, behind one that nothing waits for. */
TEST(test_a_copy_that_waits_where_a_move_comes_from)
{
    const int32_t three_parents[] = {-1, 0, 0};
    kvp_config config = tiers_config(4, 4, 9, 9);
    config.max_tree_tokens = 3;
    scoped_world w = make_world(&config);
    kvp_slot_move move;
    const kvp_seq seq = open_done(&w, ints(0), 6);
    (void)swap_out(&w, &seq, 1);
    (void)swap_in(&w, &seq, 1, 0);
    assert_row(&w, seq, 1, 2);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(6), 4, 0));
    (void)swap_out(&w, &seq, 1);
    const kvp_seq other = open_seq(&w, ints(100), 4, NULL); /* takes block 2 */
    (void)swap_in(&w, &seq, 1, 0);
    assert_row(&w, other, 2);
    close_seq(&w, other);
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    add_tree(&w, seq, ints(60), three_parents, 3);
    assert_row(&w, seq, 1, 3, 4, 2);
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, seq, 2, &move, 1)));
    drop_plan(&w);
    assert_int_equal(accept_path(&w, seq, 2, &move, 1), 1);
}

TEST(test_a_fork_has_nothing_of_the_tree)
{
    scoped_world w = tree_world(9);
    kvp_slot_move move;
    const kvp_seq parent = open_done(&w, ints(0), 5);
    add_tree(&w, parent, four_tokens, four_parents, 4);
    const kvp_seq child = fork_seq(&w, parent, KVP_END);
    assert_row(&w, child, 1, 2);
    assert_fields(info_of(&w, child), tree_tokens, 0, writable_tokens, 5);
    assert_tree(&w, parent, four_tokens, four_parents, 4);
    decode(&w, child, 1);
    assert_row(&w, child, 1, 4);
    assert_plan(&w, ON_DEVICE(0, 2, 4, 1)); /* the one token that they share of it */
    assert_int_equal(accept_path(&w, parent, 3, &move, 1), 1);
    assert_fields(move, src, 12, dst, 11);
}

/* The tree's first round is computed; its block is shared since, and a second round comes. */
TEST(test_copy_on_write_takes_the_nodes_along)
{
    scoped_world w = tree_world(9);
    const int32_t more[] = {1};
    const kvp_seq parent = open_done(&w, ints(0), 5);
    add_tree(&w, parent, four_tokens, four_parents, 2); /* positions 5 and 6 */
    const kvp_seq child = fork_seq(&w, parent, 5);
    add_tree(&w, parent, four_tokens + 3, more, 1);
    assert_row(&w, parent, 1, 3);
    assert_row(&w, child, 1, 2);
    assert_plan(&w, ON_DEVICE(0, 2, 3, 3));
    assert_int_equal(accept_path(&w, parent, 2, NULL, 0), 0);
    assert_int_equal(info_of(&w, parent).n_tokens, 8);
}

TEST(test_copy_on_write_takes_blocks_of_nodes_alone_along)
{
    scoped_world w = tree_world(9);
    const kvp_seq parent = open_done(&w, ints(0), 4);
    const int32_t parents[] = {-1, 0, 1, 2};
    add_tree(&w, parent, ints(4), parents, 4);
    assert_int_equal(accept_path(&w, parent, 3, NULL, 0), 0);
    const kvp_seq child = fork_seq(&w, parent, 8);
    assert_ok(kvp_seq_truncate(w.cache, parent, 6, NULL)); /* two computed slots of block 2 */
    add_tree(&w, parent, ints(60), parents, 3);
    assert_row(&w, parent, 1, 3, 4);
    assert_plan(&w, ON_DEVICE(0, 2, 3, 2));
    assert_row(&w, child, 1, 2);
}

/* Nodes go into slots that are sealed, when nobody else has the block: its unit is given up. */
TEST(test_nodes_are_written_over_sealed_slots)
{
    scoped_world w = tree_world(9);
    const int32_t parents[] = {-1, -1};
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    add_tree(&w, seq, ints(60), parents, 2);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 4);
    assert_int_equal(stats_of(&w).detached_units, 1);
    (void)accept_path(&w, seq, -1, NULL, 0);
    assert_row(&w, seq, 1, 2);
    decode(&w, seq, 2);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
}

TEST(test_beside_ordinary_sequences)
{
    scoped_world w = tree_world(15);
    kvp_seq seqs[2];
    seqs[0] = open_done(&w, ints(0), 5);
    seqs[1] = open_done(&w, ints(100), 5);
    add_tree(&w, seqs[0], four_tokens, four_parents, 4);
    decode(&w, seqs[1], 6);
    const int32_t leaves[] = {1, -1};
    kvp_accept accept = {
        .struct_size = sizeof(accept), .n_seqs = 2, .seqs = seqs, .leaves = leaves};
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 7);
    assert_int_equal(info_of(&w, seqs[1]).n_tokens, 11);
    const uint32_t n_tokens[] = {1, 1};
    kvp_batch batch = batch_of(seqs, n_tokens, 2);
    batch.tokens = ints(50);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
}

/* -------------------------------------------------------------------------------------- windows */

TEST(test_a_window_drops_when_a_path_is_accepted)
{
    kvp_config config = groups_config(4, 9, &(kvp_window){0, 4}, 1);
    config.max_tree_tokens = 8;
    scoped_world w = make_world(&config);
    kvp_slot_move moves[4];
    const int32_t parents[] = {-1, -1, 1, 2, 3, 4, 5, 6};
    const kvp_seq seq = open_done(&w, ints(0), 6);
    add_tree(&w, seq, ints(50), parents, 8);
    assert_row(&w, seq, 1, 2, 3, 4); /* nothing is dropped for nodes */
    assert_int_equal(accept_path(&w, seq, 5, (kvp_slot_move[8]){{0, 0}}, 8), 5);
    assert_int_equal(info_of(&w, seq).n_tokens, 11);
    assert_row(&w, seq, 0, 0, 3); /* 11 sees 8 and after */
    assert_int_equal(info_of(&w, seq).row_version, 2);
    /* Dropped, sealed blocks last first; then what lies behind. */
    assert_queue(&w, 0, 4, 5, 6, 7, 8, 9, 2, 1);

    add_tree(&w, seq, ints(50), parents, 3);
    (void)accept_path(&w, seq, -1, moves, 4);
    assert_row(&w, seq, 0, 0, 3);
    decode(&w, seq, 5);
    assert_dropped(&w, 0, seq, 0, 3);
}

TEST(test_a_long_path_may_drop_what_it_was_moved_to)
{
    kvp_config config = groups_config(4, 9, &(kvp_window){0, 1}, 1);
    config.max_tree_tokens = 12;
    scoped_world w = make_world(&config);
    kvp_slot_move moves[12];
    int32_t parents[12] = {-1, -1};
    for (int32_t i = 2; i < 12; i++)
        parents[i] = i - 1;
    const kvp_seq seq = open_done(&w, ints(0), 3);
    add_tree(&w, seq, ints(50), parents, 12);
    assert_int_equal(accept_path(&w, seq, 9, moves, 12), 9);
    assert_row(&w, seq, 0, 0, 0); /* 12 tokens, and the next query sees none of them */
    assert_fields(moves[0], src, 2 * 4, dst, 1 * 4 + 3);
    assert_int_equal(stats_of(&w).held_blocks, 0);
    decode(&w, seq, 1);
}

TEST(test_a_window_of_its_own_makes_what_is_accepted_private)
{
    scoped_world w = tree_world(9);
    const int32_t parents[] = {-1, 0, 1, 2, 3, 4, 5, 6};
    const kvp_seq seq = open_done(&w, ints(0), 5);
    (void)set_window(&w, 0, seq, 0, 6);
    add_tree(&w, seq, ints(5), parents, 8);
    (void)accept_path(&w, seq, 7, NULL, 0);
    assert_int_equal(info_of(&w, seq).n_tokens, 13);
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 4);
}

/* -------------------------------------------------------------------- what ends a tree silently */

static void expect_no_tree(const world *w, kvp_seq seq, uint32_t n_tokens)
{
    uint32_t n = 77;
    assert_fields(info_of(w, seq), tree_tokens, 0, n_tokens, n_tokens);
    assert_ok(kvp_seq_tree(w->cache, seq, NULL, NULL, 0, &n));
    assert_int_equal(n, 0);
}

TEST(test_truncate_drops_the_tree_at_any_length)
{
    for (uint32_t to = 0; to <= 5; to++) {
        scoped_world w = tree_world(9);
        kvp_released released;
        const kvp_seq seq = open_done(&w, ints(0), 5);
        add_tree(&w, seq, four_tokens, four_parents, 4);
        assert_status(KVP_E_ARG, kvp_seq_truncate(w.cache, seq, 6, NULL));
        assert_ok(kvp_seq_truncate(w.cache, seq, to, &released));
        expect_no_tree(&w, seq, to);
        assert_int_equal(info_of(&w, seq).n_blocks, (to + 3) / 4);
        assert_fields(info_of(&w, seq), writable_tokens, to, row_version, 1);
        assert_int_equal(released.freed_blocks, to == 5 ? 1 : 2);
        decode(&w, seq, 9 - to);
        assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    }
}

TEST(test_invalidate_drops_the_tree)
{
    for (uint32_t from = 3; from <= 5; from++) {
        scoped_world w = tree_world(9);
        const kvp_seq seq = open_done(&w, ints(0), 5);
        add_tree(&w, seq, four_tokens, four_parents, 4);
        assert_ok(kvp_seq_invalidate(w.cache, seq, from, NULL, 0, NULL));
        expect_no_tree(&w, seq, 5);
        assert_fields(info_of(&w, seq), computed_tokens, from, writable_tokens, from);
        assert_ok(kvp_seq_extend(w.cache, seq, ints(5), 1, 0));
        assert_ok(kvp_seq_commit(w.cache, seq, 6));
    }
}

TEST(test_swap_and_close_drop_the_tree)
{
    kvp_config config = tiers_config(4, 4, 9, 9);
    config.max_tree_tokens = 8;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_admission(can_swap_out(&w, &seq, 1), KVP_ADMIT_OK, 2, 9, 0);
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 2, 1);
    expect_no_tree(&w, seq, 5);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 1)); /* no node is copied */
    assert_unchanged(&w,
                     assert_status(KVP_E_STATE, try_tree(&w, seq, four_tokens, four_parents, 4)));
    assert_unchanged(&w, assert_status(KVP_E_STATE, try_accept(&w, seq, -1, NULL, 0)));
    assert_status(KVP_E_ARG, try_accept(&w, seq, 0, NULL, 0));
    (void)swap_in(&w, &seq, 1, 0);
    expect_no_tree(&w, seq, 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_released(close_seq(&w, seq), 2, 1);
    const kvp_seq again = open_done(&w, ints(50), 5); /* in its place */
    expect_no_tree(&w, again, 5);
}

TEST(test_a_reset_drops_trees)
{
    scoped_world w = tree_world(9);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_ok(kvp_cache_reset(w.cache));
    assert_status(KVP_E_HANDLE, try_accept(&w, seq, 1, NULL, 0));
    expect_no_tree(&w, open_done(&w, ints(0), 5), 5);
}

/* ---------------------------------------------------------------------------------------- steps */

TEST(test_a_path_is_accepted_when_its_step_is_over)
{
    scoped_world w = tree_steps_world(9, 0);
    kvp_slot_move move;
    const kvp_seq seq = open_done(&w, ints(0), 5);
    pass_step(&w);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_unchanged(&w, assert_status(KVP_E_IN_FLIGHT, try_accept(&w, seq, 3, &move, 1)));
    assert_shortage(&w, KVP_E_IN_FLIGHT, 0, 0);
    const uint64_t first = begin_step(&w);
    assert_unchanged(&w, assert_status(KVP_E_IN_FLIGHT, try_accept(&w, seq, 3, &move, 1)));
    const uint64_t second = begin_step(&w);
    (void)done_step(&w, second); /* only noted */
    assert_status(KVP_E_IN_FLIGHT, try_accept(&w, seq, 3, &move, 1));
    assert_int_equal(done_step(&w, first), second);
    assert_int_equal(accept_path(&w, seq, 3, &move, 1), 1);
}

TEST(test_the_last_round_is_what_counts)
{
    scoped_world w = tree_steps_world(9, 0);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    const int32_t second_parents[] = {1};
    add_tree(&w, seq, four_tokens, four_parents, 3);
    const uint64_t first = begin_step(&w);
    add_tree(&w, seq, four_tokens + 3, second_parents, 1);
    (void)done_step(&w, first);
    assert_status(KVP_E_IN_FLIGHT, try_accept(&w, seq, 0, NULL, 0)); /* though that one is there */
    add_tree(&w, seq, NULL, NULL, 0);                                /* no round */
    const uint64_t second = begin_step(&w);
    add_tree(&w, seq, NULL, NULL, 0);
    (void)done_step(&w, second);
    assert_int_equal(accept_path(&w, seq, 1, NULL, 0), 0);
}

TEST(test_a_tree_that_is_rejected_whole_waits_for_nothing)
{
    scoped_world w = tree_steps_world(9, 0);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 4);
    const uint64_t step = begin_step(&w);
    (void)accept_path(&w, seq, -1, NULL, 0);
    assert_int_equal(stats_of(&w).parked_blocks, 1); /* the step writes there still */
    decode(&w, seq, 1);
    (void)done_step(&w, step);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
}

/* Rejected nodes may be written still: who has their block alone by then writes into a copy. */
static void check_rejected(int reported)
{
    scoped_world w = tree_steps_world(9, 0);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 2);
    const uint64_t step = begin_step(&w);
    (void)accept_path(&w, seq, -1, NULL, 0);
    const kvp_seq child = fork_seq(&w, seq, 5);
    close_seq(&w, seq);
    if (reported)
        (void)done_step(&w, step);
    extend_seq(&w, child, 1);
    assert_int_equal(row_entry(&w, child, 1) == 2, reported);
}

TEST(test_a_rejected_tree_is_written_until_its_step_is_over)
{
    check_rejected(0);
    check_rejected(1);
}

TEST(test_what_is_accepted_is_found_and_released_as_ever)
{
    scoped_world w = tree_steps_world(9, 0);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, ints(5), (const int32_t[]){-1, 0, 1, 2}, 4);
    const uint64_t first = begin_step(&w);
    const uint64_t second = begin_step(&w); /* of other sequences */
    (void)done_step(&w, first);
    assert_int_equal(accept_path(&w, seq, 2, NULL, 0), 0);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    assert_int_equal(stats_of(&w).parked_blocks, 1);
    (void)done_step(&w, second);
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 8, 9);
}

/* The nodes that a copy would take along are written by a step that is out. */
TEST(test_nodes_in_flight_are_not_copied)
{
    scoped_world w = tree_steps_world(9, 0);
    const int32_t more[] = {1};
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 2);
    const uint64_t first = begin_step(&w);
    const kvp_seq child = fork_seq(&w, seq, 5);
    assert_unchanged(&w, assert_status(KVP_E_IN_FLIGHT, kvp_seq_extend(w.cache, seq, NULL, 0, 1)));
    assert_unchanged(&w,
                     assert_status(KVP_E_IN_FLIGHT, try_tree(&w, seq, four_tokens + 3, more, 1)));
    const uint64_t second = begin_step(&w);
    (void)done_step(&w, first);
    add_tree(&w, seq, four_tokens + 3, more, 1); /* they are there now, whatever else is out */
    (void)done_step(&w, second);
    assert_step(&w, 3, ON_DEVICE(0, 2, 3, 3));
    (void)done_step(&w, 3);
    assert_int_equal(accept_path(&w, seq, 2, NULL, 0), 0);
    assert_row(&w, child, 1, 2);
}

/* Three trees: of a step that is over, of the first that is out, of the second. */
static void fail_one(uint32_t failed, uint32_t n_lost)
{
    scoped_world w = tree_steps_world(15, 0);
    kvp_seq seqs[3], cut[3];
    uint64_t steps[3];
    uint32_t n = 77;
    for (uint32_t i = 0; i < 3; i++)
        seqs[i] = open_done(&w, ints((int32_t)(100 * i)), 5);
    for (uint32_t i = 0; i < 3; i++) {
        add_tree(&w, seqs[i], four_tokens, four_parents, 4);
        steps[i] = begin_step(&w);
    }
    (void)done_step(&w, steps[0]);
    const kvp_status expected = n_lost > 1 ? KVP_E_TOO_SMALL : KVP_OK; /* with 0 it is asked */
    assert_unchanged(
        &w, assert_status(expected, kvp_step_failed(w.cache, steps[failed], cut, n_lost - 1, &n)));
    assert_int_equal(n, n_lost);
    assert_ok(kvp_step_failed(w.cache, steps[failed], cut, 3, &n));
    assert_int_equal(n, n_lost);
    for (uint32_t i = 0; i < 3; i++) {
        const int lost = i >= failed;
        assert_int_equal(info_of(&w, seqs[i]).tree_tokens, lost ? 0 : 4);
        assert_int_equal(info_of(&w, seqs[i]).computed_tokens, 5);
        if (lost) {
            assert_int_equal(cut[i - failed].bits, seqs[i].bits);
            extend_seq(&w, seqs[i], 1); /* it goes on */
        }
    }
    assert_int_equal(accept_path(&w, seqs[0], 1, NULL, 0), 0);
}

TEST(test_a_failed_step_drops_its_trees_and_later_ones)
{
    fail_one(1, 2);
    fail_one(2, 1);
}

/* A step that fails cuts a sequence whose copy it had; its tree goes, though of no step yet. */
TEST(test_a_sequence_that_is_cut_loses_its_tree)
{
    scoped_world w = tree_steps_world(9, 9);
    kvp_seq cut[1];
    uint32_t n;
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    add_tree(&w, seq, four_tokens, four_parents, 4);
    assert_ok(kvp_step_failed(w.cache, step, cut, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 0);
    expect_no_tree(&w, seq, 9);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
}

/* The nodes were there, but the copy that should have taken them along has failed. */
TEST(test_a_failed_copy_of_nodes_drops_the_tree)
{
    scoped_world w = tree_steps_world(9, 0);
    kvp_seq cut[1];
    uint32_t n;
    const kvp_seq seq = open_done(&w, ints(0), 5);
    add_tree(&w, seq, four_tokens, four_parents, 2);
    pass_step(&w);
    (void)fork_seq(&w, seq, 5);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 1));
    assert_step(&w, 2, ON_DEVICE(0, 2, 3, 3));
    assert_ok(kvp_step_failed(w.cache, 2, cut, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(cut[0].bits, seq.bits);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    expect_no_tree(&w, seq, 5);
}

TEST_MAIN(NULL, NULL)

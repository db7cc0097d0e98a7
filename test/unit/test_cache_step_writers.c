/* Writing beside steps that are out: copies of what is still being computed, blocks that a writer
 * has left, and swaps that have nothing to do with either. */
#include <string.h>

#include "tiers.h"

static void expect_states(const world *w, uint32_t state, int32_t first, int32_t last)
{
    for (int32_t b = first; b <= last; b++)
        assert_int_equal(block_of(w, b).state, state);
}

/* The parent's block, which the child shares, holds a token of its that is not computed. */
TEST(test_a_copy_of_what_is_still_being_computed_is_refused)
{
    scoped_world w = steps_world(15, 0);
    kvp_admission admission;
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    const kvp_seq seqs[] = {open_done(&w, ints(100), 1), parent};
    const kvp_seq child = fork_seq(&w, parent, 6);
    kvp_batch batch = batch_of(seqs, NULL, 2);
    batch.tokens = ints(7);
    (void)begin_step(&w);
    assert_unchanged(
        &w, assert_status(KVP_E_IN_FLIGHT, kvp_seq_extend(w.cache, parent, ints(7), 1, 0)));
    assert_shortage(&w, KVP_E_IN_FLIGHT, 0, 0);
    assert_unchanged(&w, assert_status(KVP_E_IN_FLIGHT, kvp_seq_extend_many(w.cache, &batch)));
    assert_shortage(&w, KVP_E_IN_FLIGHT, 1, 0);
    assert_unchanged(
        &w, assert_status(KVP_E_IN_FLIGHT, kvp_cache_can_extend(w.cache, &batch, &admission)));
    assert_ok(kvp_seq_commit(w.cache, parent, 7)); /* it was finished: now it can be copied */
    assert_ok(kvp_seq_extend(w.cache, parent, ints(7), 1, 0));
    assert_step(&w, 2, ON_DEVICE(0, 2, row_entry(&w, parent, 1), 3));
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* alone: no copy */
}

TEST(test_a_copy_of_what_is_still_being_computed_can_wait_for_the_step)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    (void)fork_seq(&w, parent, 6);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, parent, 7);
    assert_status(KVP_E_IN_FLIGHT, kvp_seq_extend(w.cache, parent, ints(7), 1, 0));
    (void)done_step(&w, step);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(7), 1, 0));
}

TEST(test_who_shares_only_computed_tokens_may_copy_them)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    const kvp_seq child = fork_seq(&w, parent, 6);
    (void)begin_step(&w);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_step(&w, 2, ON_DEVICE(0, 2, row_entry(&w, child, 1), 2));
}

/* The block has one holder left, but the step that is out writes there for the one that left. */
TEST(test_a_block_that_a_writer_has_left_is_copied_on_write)
{
    static const uint32_t one = 1;
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    const kvp_seq child = fork_seq(&w, parent, 6);
    (void)begin_step(&w); /* writes slot 10 */
    close_seq(&w, parent);
    assert_int_equal(block_of(&w, 2).ref_count, 1);
    assert_int_equal(can_extend(&w, &child, &one, 1).need_blocks, 1);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_row(&w, child, 1, 3);
    assert_step(&w, 2, ON_DEVICE(0, 2, 3, 2));
    expect_states(&w, KVP_BLOCK_PARKED, 2, 2);
}

TEST(test_a_block_that_a_writer_has_left_is_written_when_its_step_is_done)
{
    static const uint32_t one = 1;
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    const kvp_seq child = fork_seq(&w, parent, 6);
    (void)begin_step(&w);
    close_seq(&w, parent);
    (void)begin_step(&w); /* began later: nothing to it */
    (void)done_step(&w, 1);
    assert_int_equal(can_extend(&w, &child, &one, 1).need_blocks, 0);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_row(&w, child, 1, 2);
    assert_empty_step(&w, 3);
}

/* Its slot was cut off, and the step may write it all the same. */
TEST(test_a_writer_that_was_cut_before_it_left_is_one_too)
{
    static const uint32_t one = 1;
    for (int invalidates = 0; invalidates < 2; invalidates++) {
        scoped_world w = steps_world(15, 0);
        const kvp_seq parent = open_done(&w, ints(0), 6);
        assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
        (void)begin_step(&w); /* writes slot 10 */
        if (invalidates)
            assert_ok(kvp_seq_invalidate(w.cache, parent, 6, NULL, 0, NULL));
        else
            assert_ok(kvp_seq_truncate(w.cache, parent, 6, NULL));
        const kvp_seq child = fork_seq(&w, parent, 6);
        close_seq(&w, parent);
        assert_int_equal(can_extend(&w, &child, &one, 1).need_blocks, 1);
        (void)done_step(&w, 1);
        assert_int_equal(can_extend(&w, &child, &one, 1).need_blocks, 0);
    }
}

TEST(test_a_fork_of_a_writer_is_none)
{
    static const uint32_t one = 1;
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0));
    (void)begin_step(&w);
    assert_ok(kvp_seq_truncate(w.cache, parent, 6, NULL));
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* copies, and leaves */
    assert_int_equal(can_extend(&w, &parent, &one, 1).need_blocks, 0);
}

TEST(test_in_a_batch_nobody_keeps_a_block_that_a_writer_leaves)
{
    for (int writer_first = 0; writer_first < 2; writer_first++) {
        scoped_world w = steps_world(15, 0);
        kvp_prompt prompt = prompt_of(ints(0), 6);
        prompt.reserve_tokens = 1;
        const kvp_seq writer = open_with(&w, &prompt, NULL);
        assert_ok(kvp_seq_commit(w.cache, writer, 6)); /* slot 10 is writable */
        const kvp_seq child = fork_seq(&w, writer, 6);
        const kvp_seq seqs[] = {writer_first ? writer : child, writer_first ? child : writer};
        kvp_batch batch = batch_of(seqs, NULL, 2);
        batch.tokens = ints(50);
        (void)begin_step(&w);
        const uint32_t need = writer_first ? 2 : 1;
        assert_int_equal(can_extend(&w, seqs, NULL, 2).need_blocks, need);
        assert_ok(kvp_seq_extend_many(w.cache, &batch));
        assert_int_equal(stats_of(&w).free_blocks, 13 - need);
        assert_int_equal(block_of(&w, 2).state, writer_first ? KVP_BLOCK_PARKED : KVP_BLOCK_HELD);
    }
}

TEST(test_steps_know_nothing_of_the_blocks_that_come_with_a_swap_in)
{
    static const uint32_t one = 1;
    scoped_world w = steps_world(15, 15);
    const kvp_seq a = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, a, ints(6), 1, 0));
    (void)begin_step(&w);
    assert_ok(kvp_seq_truncate(w.cache, a, 6, NULL)); /* the step may write slot 10 */
    swap_out(&w, &a, 1);
    swap_in(&w, &a, 1, 0);
    assert_row(&w, a, 1, 3);
    const kvp_seq b = fork_seq(&w, a, 6);
    assert_ok(kvp_seq_extend(w.cache, a, ints(60), 1, 0)); /* leaves block 3, where nobody writes */
    assert_int_equal(can_extend(&w, &b, &one, 1).need_blocks, 0);
}

/* The header's four beams again: nobody who moves was written for in the new blocks. */
TEST(test_a_swap_in_while_a_step_is_out_copies_no_more_than_else)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq beams[4] = {open_done(&w, ints(0), 10)};
    for (int i = 1; i < 4; i++) {
        beams[i] = fork_seq(&w, beams[0], 10);
        assert_ok(kvp_seq_extend(w.cache, beams[i], NULL, 0, 0));
    }
    (void)begin_step(&w);
    swap_out(&w, beams, 4);
    (void)begin_step(&w);
    assert_admission(can_swap_in(&w, beams, 4, 1), KVP_ADMIT_OK, 4, 12, 0);
    assert_moved(swap_in(&w, beams, 4, 1), 1, 2, 3, 0); /* what the host should get is not there */
    assert_row(&w, beams[0], 1, 2, 5);
    assert_row(&w, beams[3], 1, 2, 4);
    assert_step(&w, 3, TO_DEVICE(0, 3, 4, 2), ON_DEVICE(1, 4, 5, 2), ON_DEVICE(1, 4, 6, 2),
                ON_DEVICE(1, 4, 7, 2));
}

/* A hit inside a block is copied from it: who copies held the block, and leaves it no writer. */
TEST(test_a_prompt_that_copies_from_a_block_is_no_writer)
{
    static const uint32_t one = 1;
    const kvp_config config = steps_config(4, 2, 15, 0);
    scoped_world w = make_world(&config);
    const kvp_seq holder = open_done(&w, ints(0), 2);
    close_seq(&w, fork_seq(&w, holder, 2)); /* its block is looked at before it is written to */
    (void)begin_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_int_equal(info_of(&w, seq).computed_tokens, 2);
    assert_int_equal(can_extend(&w, &holder, &one, 1).need_blocks, 0);
}

TEST_MAIN(NULL, NULL)

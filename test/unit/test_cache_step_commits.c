/* Commits that take effect with their step; what becomes of them when the sequence is cut, moved or
 * closed before; steps that fail. */
#include <string.h>

#include "tiers.h"

static uint32_t computed(const world *w, kvp_seq seq)
{
    return info_of(w, seq).computed_tokens;
}

/* -------------------------------------------------------------------------------------- commits */

TEST(test_a_commit_takes_effect_with_its_step)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 10);
    assert_int_equal(computed(&w, seq), 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 10);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_int_equal(stats_of(&w).sealed_units, 2);
}

TEST(test_steps_may_be_scheduled_ahead)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    commit_at(&w, begin_step(&w), seq, 8);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 1, 0)); /* its value is not known yet */
    commit_at(&w, begin_step(&w), seq, 9);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    commit_at(&w, begin_step(&w), seq, 10);
    (void)done_step(&w, 1);
    assert_int_equal(computed(&w, seq), 8);
    (void)done_step(&w, 3);
    assert_int_equal(computed(&w, seq), 8);
    assert_int_equal(done_step(&w, 2), 3);
    assert_int_equal(computed(&w, seq), 10);
}

TEST(test_a_step_brings_its_copies_then_commits_then_queues_what_was_parked)
{
    scoped_world w = steps_world(15, 7);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    const kvp_seq a = open_done(&w, ints(0), 4);
    swap_out(&w, &a, 1);
    pass_step(&w);
    close_seq(&w, a);
    wipe_device(&w);                                          /* the queue is 2 3 ... 15 1 */
    const kvp_seq from_host = open_seq(&w, ints(0), 5, NULL); /* 2 and 3 */
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq own = open_with(&w, &prompt, NULL);        /* 4 */
    const kvp_seq parked = open_seq(&w, ints(100), 4, NULL); /* 5 */
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, own, 4);
    close_seq(&w, parked);
    (void)done_step(&w, step);
    assert_row(&w, own, 2); /* adopts what the copy brought */
    assert_row(&w, from_host, 2, 3);
    assert_queue(&w, 0, 5, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1); /* 4 was queued first */
}

TEST(test_commits_of_a_step_go_in_the_order_given)
{
    for (int turn = 0; turn < 2; turn++) {
        scoped_world w = steps_world(15, 0);
        kvp_prompt prompt = prompt_of(ints(0), 4);
        kvp_seq seqs[2] = {open_with(&w, &prompt, NULL)};
        prompt.flags = KVP_OPEN_NO_MATCH;
        seqs[1] = open_with(&w, &prompt, NULL);
        const uint64_t step = begin_step(&w);
        commit_at(&w, step, seqs[turn], 2);
        commit_at(&w, step, seqs[!turn], 4);
        commit_at(&w, step, seqs[turn], 4); /* keeps its place, and the larger count */
        commit_at(&w, step, seqs[turn], 3);
        (void)done_step(&w, step);
        assert_row(&w, seqs[0], turn + 1); /* the other one adopts */
        assert_row(&w, seqs[1], turn + 1);
        assert_int_equal(computed(&w, seqs[turn]), 4);
    }
}

TEST(test_a_commit_of_nothing_does_nothing)
{
    scoped_world w = steps_world(15, 0);
    const uint32_t none = 0;
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_step_commit(w.cache, step, &seq, &none, 1));
    assert_ok(kvp_step_commit(w.cache, step, &seq, &none, 0));
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 0);
}

TEST(test_finished_work_may_be_committed_before_its_step)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 6);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(computed(&w, seq), 8);
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 8);
}

TEST(test_a_closed_sequences_commit_is_left_out)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 8);
    close_seq(&w, seq);
    const kvp_seq next = open_seq(&w, ints(100), 8, NULL); /* has its place now */
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, next), 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
}

TEST(test_a_truncated_sequences_commit_counts_up_to_there)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 10);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(60), 4, 0)); /* not meant */
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 6);
}

TEST(test_an_invalidated_sequences_commit_counts_up_to_there)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 10);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 5);
}

TEST(test_a_swapped_sequences_commit_is_left_out)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 4, 0));
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 8);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0); /* in other blocks: what the step writes is not in them */
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seq), 4);
}

TEST(test_adopting_at_the_end_of_a_step_parks_for_those_that_are_out)
{
    scoped_world w = steps_world(7, 0);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    (void)open_done(&w, ints(0), 4);
    const kvp_seq seq = open_with(&w, &prompt, NULL); /* 2 */
    commit_at(&w, begin_step(&w), seq, 4);
    (void)begin_step(&w); /* may read block 2 */
    (void)done_step(&w, 1);
    assert_row(&w, seq, 1);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_PARKED);
    (void)done_step(&w, 2);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_FREE);
}

static void expect_commit(world *w, kvp_status expected, uint64_t step, const kvp_seq *seqs,
                          const uint32_t *n_tokens)
{
    assert_unchanged(w,
                     assert_status(expected, kvp_step_commit(w->cache, step, seqs, n_tokens, 2)));
}

TEST(test_commits_that_are_refused)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq seqs[] = {open_seq(&w, ints(0), 8, NULL), open_seq(&w, ints(100), 8, NULL)};
    const kvp_seq twice[] = {seqs[0], seqs[0]};
    const kvp_seq stale[] = {seqs[0], {77}};
    const uint32_t all[] = {8, 8};
    const uint32_t more[] = {8, 9};
    pass_step(&w);
    const uint64_t step = begin_step(&w);
    expect_commit(&w, KVP_E_ARG, 0, seqs, all);
    expect_commit(&w, KVP_E_ARG, step - 1, seqs, all);
    expect_commit(&w, KVP_E_ARG, step + 1, seqs, all);
    assert_shortage(&w, KVP_E_ARG, 0, 0);
    expect_commit(&w, KVP_E_HANDLE, step, stale, all);
    assert_shortage(&w, KVP_E_HANDLE, 1, 0);
    expect_commit(&w, KVP_E_ARG, step, twice, all);
    assert_shortage(&w, KVP_E_ARG, 1, 0);
    expect_commit(&w, KVP_E_ARG, step, seqs, more);
    assert_shortage(&w, KVP_E_ARG, 1, 0);
    assert_ok(kvp_seq_invalidate(w.cache, seqs[1], 4, NULL, 0, NULL));
    expect_commit(&w, KVP_E_STATE, step, seqs, all);
    assert_shortage(&w, KVP_E_STATE, 1, 0);
    assert_ok(kvp_seq_commit(w.cache, seqs[0], 8));
    swap_out(&w, &seqs[0], 1);
    expect_commit(&w, KVP_E_STATE, step, seqs, all); /* though it is computed */
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    (void)done_step(&w, step);
    assert_int_equal(computed(&w, seqs[1]), 0); /* none of it was noted */
}

/* --------------------------------------------------------------------------------------- failed */

static uint32_t fail_step(world *w, uint64_t step, kvp_seq seqs[4])
{
    uint32_t n = 77;
    memset(seqs, 0, 4 * sizeof(*seqs));
    assert_ok(kvp_step_failed(w->cache, step, seqs, 4, &n));
    return n;
}

TEST(test_a_failed_step_commits_nothing)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    commit_at(&w, step, seq, 8);
    assert_int_equal(fail_step(&w, step, cut), 0); /* nothing computed was cut */
    assert_int_equal(computed(&w, seq), 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_fields(stats_of(&w), failed_steps, 1, steps_out, 0);
    assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* the slots are writable: it can be run again */
}

TEST(test_later_commits_of_its_sequences_are_dropped_too)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq a = open_seq(&w, ints(0), 9, NULL);
    const kvp_seq b = open_seq(&w, ints(100), 9, NULL);
    commit_at(&w, begin_step(&w), a, 8);
    const uint64_t second = begin_step(&w);
    commit_at(&w, second, a, 9);
    commit_at(&w, second, b, 9);
    assert_int_equal(fail_step(&w, 1, cut), 0);
    (void)done_step(&w, second);
    assert_int_equal(computed(&w, a), 0);
    assert_int_equal(computed(&w, b), 9); /* had nothing to do with it */
}

TEST(test_earlier_commits_stand)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    commit_at(&w, begin_step(&w), seq, 8);
    commit_at(&w, begin_step(&w), seq, 9);
    assert_int_equal(fail_step(&w, 2, cut), 0);
    (void)done_step(&w, 1);
    assert_int_equal(computed(&w, seq), 8);
}

TEST(test_a_failed_copy_on_write_cuts_the_writer)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 1);
    assert_int_equal(cut[0].bits, child.bits);
    assert_int_equal(computed(&w, child), 4);
    assert_fields(info_of(&w, child), writable_tokens, 4, n_tokens, 7);
    assert_int_equal(computed(&w, parent), 6);
    assert_status(KVP_E_STATE, kvp_seq_commit(w.cache, child, 7));
    assert_ok(kvp_seq_extend(w.cache, child, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, child, 7));
}

TEST(test_a_failed_swap_in_cuts_at_the_first_block_that_it_should_have_filled)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    pass_step(&w);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 2, 1, 2);
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 1);
    assert_int_equal(computed(&w, seq), 8); /* two blocks were found */
    assert_int_equal(info_of(&w, seq).tier, KVP_DEVICE);
    assert_row(&w, seq, 1, 2, 3);
}

TEST(test_a_failed_open_from_the_host_is_computed_after_all)
{
    scoped_world w = steps_world(7, 7);
    kvp_seq cut[4];
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_int_equal(computed(&w, seq), 8);
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 1);
    assert_int_equal(computed(&w, seq), 0);
    assert_int_equal(info_of(&w, seq).writable_tokens, 0);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 8); /* there as ever */
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 0);
}

TEST(test_a_failed_swap_out_leaves_what_the_host_had)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    const kvp_seq first = open_done(&w, ints(0), 4);
    swap_out(&w, &first, 1);
    pass_step(&w); /* the host has the first block */
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    assert_moved(swap_out(&w, &seq, 1), 2, 1, 1, 2);
    const uint64_t step = begin_step(&w);
    assert_int_equal(fail_step(&w, step, cut), 1);
    assert_int_equal(cut[0].bits, seq.bits);
    assert_row(&w, seq, 1); /* entries beyond are released */
    assert_int_equal(computed(&w, seq), 4);
    assert_fields(info_of(&w, seq), n_tokens, 10, tier, KVP_HOST);
    assert_int_equal(stats_of(&w).host_free_blocks, 14);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8); /* the device still has it, cached */
    swap_in(&w, &seq, 1, 0);
    assert_int_equal(info_of(&w, seq).writable_tokens, 10);
}

TEST(test_every_sequence_that_got_such_kv_is_cut_and_told_in_order_of_places)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    uint32_t n = 77;
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq b = fork_seq(&w, a, 6);
    const kvp_seq apart = open_done(&w, ints(100), 6);
    const kvp_seq b_first[] = {b, a};
    swap_out(&w, b_first, 2);
    const uint64_t step = begin_step(&w);
    assert_unchanged(&w,
                     assert_status(KVP_E_TOO_SMALL, kvp_step_failed(w.cache, step, cut, 1, &n)));
    assert_int_equal(n, 2);
    assert_shortage(&w, KVP_E_TOO_SMALL, 0, 0);
    n = 77;
    assert_unchanged(&w, assert_ok(kvp_step_failed(w.cache, step, NULL, 0, &n)));
    assert_int_equal(n, 2);
    assert_int_equal(fail_step(&w, step, cut), 2);
    assert_int_equal(cut[0].bits, a.bits);
    assert_int_equal(cut[1].bits, b.bits);
    assert_int_equal(computed(&w, a), 0);
    assert_no_row(&w, b);
    assert_int_equal(computed(&w, apart), 6);
}

TEST(test_nobody_need_be_told)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    assert_ok(kvp_step_failed(w.cache, begin_step(&w), NULL, 0, NULL));
    assert_int_equal(computed(&w, seq), 0);
}

/* Out in one step, back in the next: the second copy carried what the first one never wrote. */
TEST(test_later_copies_carry_the_failure_on)
{
    for (int begun = 0; begun < 2; begun++) {
        scoped_world w = steps_world(15, 15);
        kvp_seq cut[4];
        const kvp_seq seq = open_done(&w, ints(0), 6);
        swap_out(&w, &seq, 1);
        const uint64_t first = begin_step(&w);
        swap_in(&w, &seq, 1, 0);
        const kvp_seq child = fork_seq(&w, seq, 5);
        if (begun)
            (void)begin_step(&w);
        assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* a copy of the copy */
        assert_int_equal(fail_step(&w, first, cut), 2);
        assert_int_equal(computed(&w, seq), 4); /* the first block was on the device all along */
        assert_int_equal(computed(&w, child), 4);
        assert_int_equal(info_of(&w, seq).tier, KVP_DEVICE);
    }
}

TEST(test_what_was_copied_before_the_failure_is_good)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq a = fork_seq(&w, parent, 6);
    const kvp_seq b = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, a, ints(60), 1, 0));
    const uint64_t first = begin_step(&w);
    assert_ok(kvp_seq_extend(w.cache, b, ints(70), 1, 0));
    const uint64_t second = begin_step(&w);
    assert_int_equal(fail_step(&w, second, cut), 1);
    assert_int_equal(cut[0].bits, b.bits);
    (void)done_step(&w, first);
    assert_int_equal(computed(&w, a), 6);
    assert_int_equal(computed(&w, b), 4);
}

TEST(test_commits_before_the_failure_end_where_it_cut)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(
        kvp_seq_extend(w.cache, parent, ints(6), 1, 0)); /* copies: the parent is in block 3 */
    const uint64_t first = begin_step(&w);
    commit_at(&w, first, parent, 7);
    (void)fork_seq(&w, parent, 6);
    assert_status(KVP_E_IN_FLIGHT, kvp_seq_extend(w.cache, parent, ints(7), 1, 0));
    assert_int_equal(fail_step(&w, first, cut), 2); /* the fork of it, too */
    assert_int_equal(computed(&w, parent), 4);
    assert_int_equal(computed(&w, child), 6);
}

/* Declared for a step before it, though the tokens were computed already: the cut stands. */
TEST(test_a_commit_before_the_failure_does_not_undo_the_cut)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    const uint64_t first = begin_step(&w);
    commit_at(&w, first, child, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 1);
    (void)done_step(&w, first);
    assert_int_equal(computed(&w, child), 4);
}

TEST(test_later_commits_of_those_that_are_cut_are_dropped_too)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    const uint64_t first = begin_step(&w);
    const uint64_t second = begin_step(&w);
    commit_at(&w, second, child, 7);
    assert_int_equal(fail_step(&w, first, cut), 1);
    (void)done_step(&w, second);
    assert_int_equal(computed(&w, child), 4);
}

/* A block of the host that two steps write, one after the other: only the first one failed. */
TEST(test_what_is_copied_over_a_failed_copy_is_good)
{
    scoped_world w = steps_world(15, 1);
    kvp_seq cut[4];
    const kvp_seq a = open_done(&w, ints(0), 2);
    const kvp_seq b = open_done(&w, ints(100), 3);
    swap_out(&w, &a, 1);
    const uint64_t first = begin_step(&w);
    close_seq(&w, a);
    swap_out(&w, &b, 1);
    assert_row(&w, b, 1);
    const uint64_t second = begin_step(&w);
    assert_int_equal(fail_step(&w, first, cut), 0);
    (void)done_step(&w, second);
    assert_int_equal(computed(&w, b), 3);
    assert_row(&w, b, 1);
}

TEST(test_what_a_failed_step_should_have_kept_is_gone)
{
    scoped_world w = steps_world(1, 3);
    kvp_seq cut[4];
    leave_cached(&w, ints(0), 4);
    const kvp_seq seq = open_seq(&w, ints(100), 4, NULL);
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 0);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    assert_int_equal(host_block(&w, 1).state, KVP_BLOCK_FREE);
    assert_int_equal(stats_of(&w).host_free_blocks, 3);
    close_seq(&w, seq);
}

/* Values that come while the copy of their KV is out: their unit is found when its step is done. */
TEST(test_a_unit_filled_while_its_copy_is_out_is_found_when_its_step_is_done)
{
    for (int fails = 0; fails < 2; fails++) {
        scoped_world w = steps_world(15, 15);
        kvp_seq cut[4];
        const kvp_seq seq = open_done(&w, ints(0), 4);
        assert_ok(kvp_seq_extend(w.cache, seq, NULL, 4, 0));
        assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* computed, values unknown */
        swap_out(&w, &seq, 1);
        pass_step(&w);
        swap_in(&w, &seq, 1, 0);
        const uint64_t step = begin_step(&w);
        assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 4));
        assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
        if (fails)
            assert_int_equal(fail_step(&w, step, cut), 1);
        else
            (void)done_step(&w, step);
        assert_int_equal(match(&w, ints(0), 8).hit_tokens, fails ? 4 : 8);
    }
}

/* Committed too early: the tokens before them came with a copy that failed. */
TEST(test_a_unit_that_a_failed_copy_is_part_of_is_not_found)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    pass_step(&w);
    swap_in(&w, &seq, 1, 0);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(6), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(fail_step(&w, step, cut), 1);
    assert_int_equal(computed(&w, seq), 4);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
}

/* While an older step is out the failed one has no effect yet: nothing may wait for its copy. */
TEST(test_a_unit_computed_anew_after_a_failed_copy_is_found_at_once)
{
    scoped_world w = steps_world(15, 0);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    const uint64_t older = begin_step(&w);
    assert_ok(kvp_seq_extend(w.cache, child, ints(6), 2, 0));
    assert_int_equal(fail_step(&w, begin_step(&w), cut), 1);
    assert_row(&w, child, 1, 3);
    assert_ok(kvp_seq_extend(w.cache, child, NULL, 0, 0)); /* slots to compute 4 to 7 again */
    assert_row(&w, child, 1, 3);
    assert_ok(kvp_seq_commit(w.cache, child, 8));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_int_equal(done_step(&w, older), 2);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

/* A copy of a copy fails, and then the first one: what was computed in its block since is good. */
TEST(test_what_is_computed_anew_outlives_the_failure_before)
{
    kvp_config config = steps_config(4, 4, 15, 0);
    config.commit_policy = KVP_KEEP;
    scoped_world w = make_world(&config);
    kvp_seq cut[4];
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    const kvp_seq grandchild = fork_seq(&w, child, 6);
    assert_step(&w, 1, ON_DEVICE(0, 2, 3, 2));
    assert_ok(kvp_seq_extend(w.cache, grandchild, ints(6), 2, 0));
    assert_step(&w, 2, ON_DEVICE(0, 3, 4, 2));
    assert_int_equal(fail_step(&w, 2, cut), 1);
    assert_int_equal(cut[0].bits, grandchild.bits);
    assert_ok(kvp_seq_extend(w.cache, grandchild, NULL, 0, 0));
    assert_row(&w, grandchild, 1, 4);
    assert_ok(kvp_seq_commit(w.cache, grandchild, 8)); /* a duplicate of the parent's */
    assert_int_equal(fail_step(&w, 1, cut), 1);
    assert_int_equal(cut[0].bits, child.bits);
    assert_int_equal(computed(&w, child), 4);
    assert_int_equal(computed(&w, grandchild), 8);
    close_seq(&w, parent);
    close_seq(&w, open_done(&w, ints(1000), 44)); /* evicts block 2, not its duplicate */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_blocks_parked_for_a_failed_step_are_queued)
{
    scoped_world w = steps_world(7, 0);
    kvp_seq cut[4];
    const kvp_seq seq = open_done(&w, ints(0), 6);
    (void)begin_step(&w);
    (void)begin_step(&w);
    close_seq(&w, seq);
    assert_int_equal(fail_step(&w, 1, cut), 0);
    assert_int_equal(stats_of(&w).parked_blocks, 2);
    assert_int_equal(done_step(&w, 2), 2);
    assert_queue(&w, 0, 2, 3, 4, 5, 6, 7, 1);
}

/* ---------------------------------------------------------------------------------------- reset */

TEST(test_reset_forgets_the_steps_that_are_out)
{
    scoped_world w = steps_world(7, 5);
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq b = open_seq(&w, ints(100), 4, NULL);
    swap_out(&w, &a, 1);
    commit_at(&w, begin_step(&w), b, 4);
    (void)begin_step(&w);
    close_seq(&w, b);
    assert_ok(kvp_cache_reset(w.cache));
    assert_queue(&w, 0, 1, 2, 3, 4, 5, 6, 7);
    assert_host_queue(&w, 0, 1, 2, 3, 4, 5);
    const kvp_stats s = stats_of(&w);
    assert_fields(s, parked_blocks, 0, steps_out, 0, steps, 2, failed_steps, 0);
    assert_status(KVP_E_ARG, kvp_step_done(w.cache, 1, NULL));
    assert_status(KVP_E_ARG, kvp_step_failed(w.cache, 2, NULL, 0, NULL));
    leave_cached(&w, ints(100), 4); /* nothing is out: nothing parks */
    assert_queue(&w, 0, 2, 3, 4, 5, 6, 7, 1);
    const kvp_seq c = open_seq(&w, ints(0), 4, NULL);
    assert_int_equal(begin_step(&w), 3); /* numbers are since creation */
    assert_int_equal(done_step(&w, 3), 3);
    assert_int_equal(computed(&w, c), 0);
}

TEST_MAIN(NULL, NULL)

/* Overlapped steps: numbers, parking, what a plan brings, commits that take effect later. */
#include <string.h>

#include "tiers.h"

static void expect_states(const world *w, uint32_t state, int32_t first, int32_t last)
{
    for (int32_t b = first; b <= last; b++)
        assert_int_equal(block_of(w, b).state, state);
}

static uint32_t hit_tokens(world *w, const int32_t *tokens, uint32_t n)
{
    return match(w, tokens, n).hit_tokens;
}

/* ---------------------------------------------------------------------------------------- begin */

TEST(test_a_step_takes_the_plan_and_the_next_number)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_empty_step(&w, 1);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_step(&w, 2, ON_DEVICE(0, 2, 3, 2));
    assert_empty_step(&w, 3); /* the plan was taken */
    assert_fields(stats_of(&w), steps, 3, steps_out, 3);
    assert_int_equal(done_step(&w, 1), 1);
    assert_int_equal(stats_of(&w).steps_out, 2);
}

TEST(test_phases_count_from_0_in_each_step)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 2);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    assert_step(&w, 1, TO_HOST(0, 1, 1, 2), TO_DEVICE(1, 1, 1, 2));
    swap_out(&w, &seq, 1);
    assert_step(&w, 2, TO_HOST(0, 1, 1, 2));
}

TEST(test_ordered_caches_have_no_steps)
{
    scoped_world w = small_world(15);
    kvp_copy copies[1];
    uint32_t n = 77;
    uint64_t step = 77;
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_step_begin(w.cache, copies, 1, &n, &step)));
    assert_int_equal(step, 77);
    assert_int_equal(n, 77);
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_status(KVP_E_ARG, kvp_step_commit(w.cache, 1, &seq, &n, 0));
    assert_status(KVP_E_ARG, kvp_step_done(w.cache, 1, &step));
    assert_status(KVP_E_ARG, kvp_step_failed(w.cache, 1, NULL, 0, NULL));
}

TEST(test_overlapped_plans_are_taken_by_steps_only)
{
    scoped_world w = steps_world(15, 0);
    kvp_copy copies[4];
    uint32_t n = 77;
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_plan_take(w.cache, copies, 4, &n)));
    assert_status(KVP_E_STATE, kvp_plan_take(w.cache, NULL, 0, &n));
    assert_int_equal(n, 77);
}

TEST(test_too_small_an_array_begins_no_step)
{
    scoped_world w = steps_world(15, 15);
    kvp_copy copies[3];
    uint32_t n = 77;
    uint64_t step = 77;
    const kvp_seq seq = open_done(&w, ints(0), 12);
    swap_out(&w, &seq, 1);
    assert_unchanged(&w,
                     assert_status(KVP_E_TOO_SMALL, kvp_step_begin(w.cache, copies, 2, &n, &step)));
    assert_int_equal(n, 3);
    assert_int_equal(step, 77);
    assert_shortage(&w, KVP_E_TOO_SMALL, 0, 0);
    assert_unchanged(&w, assert_ok(kvp_step_begin(w.cache, NULL, 0, &n, &step)));
    assert_int_equal(step, 77); /* it was only asked */
    assert_ok(kvp_step_begin(w.cache, copies, 3, &n, &step));
    assert_int_equal(step, 1);
    assert_unchanged(&w, assert_ok(kvp_step_begin(w.cache, NULL, 0, &n, &step)));
    assert_int_equal(n, 0);
    assert_ok(kvp_step_begin(w.cache, copies, 1, &n, &step)); /* nothing to copy */
    assert_int_equal(step, 2);
    assert_int_equal(n, 0);
}

TEST(test_only_so_many_steps_are_out_noted_ones_too)
{
    kvp_config config = steps_config(4, 4, 15, 0);
    config.max_steps_out = 2;
    scoped_world w = make_world(&config);
    uint32_t n;
    uint64_t step = 77;
    (void)begin_step(&w);
    (void)begin_step(&w);
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_STEPS, kvp_step_begin(w.cache, NULL, 0, &n, &step)));
    assert_shortage(&w, KVP_E_NO_STEPS, 0, 0);
    assert_int_equal(done_step(&w, 2), 0); /* noted */
    assert_status(KVP_E_NO_STEPS, kvp_step_begin(w.cache, NULL, 0, &n, &step));
    assert_int_equal(step, 77);
    assert_int_equal(done_step(&w, 1), 2); /* both */
    assert_int_equal(begin_step(&w), 3);
}

TEST(test_a_step_is_reported_once)
{
    scoped_world w = steps_world(15, 0);
    uint64_t effective = 77;
    (void)begin_step(&w);
    (void)begin_step(&w);
    (void)begin_step(&w);
    (void)done_step(&w, 2);
    const uint64_t bad[] = {0, 2, 4, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_step_done(w.cache, bad[i], &effective)));
        assert_shortage(&w, KVP_E_ARG, 0, 0);
        assert_unchanged(&w,
                         assert_status(KVP_E_ARG, kvp_step_failed(w.cache, bad[i], NULL, 0, NULL)));
    }
    assert_int_equal(effective, 77);
    assert_ok(kvp_step_failed(w.cache, 3, NULL, 0, NULL));
    assert_status(KVP_E_ARG, kvp_step_done(w.cache, 3, NULL));
    assert_ok(kvp_step_done(w.cache, 1, NULL));
    assert_status(KVP_E_ARG, kvp_step_done(w.cache, 1, NULL));
    assert_int_equal(stats_of(&w).steps_out, 0);
}

/* -------------------------------------------------------------------------------------- parking */

TEST(test_without_a_step_out_blocks_are_released_at_once)
{
    scoped_world w = steps_world(7, 0);
    pass_step(&w);
    close_seq(&w, open_done(&w, ints(0), 10));
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 2, 1);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
}

TEST(test_released_blocks_are_parked_while_a_step_is_out)
{
    scoped_world w = steps_world(7, 0);
    const kvp_seq a = open_done(&w, ints(0), 10);
    const kvp_seq b = open_done(&w, ints(100), 4);
    (void)begin_step(&w);
    const kvp_released released = close_seq(&w, a);
    assert_int_equal(released.freed_blocks, 1); /* what they will be */
    assert_int_equal(released.cached_blocks, 2);
    close_seq(&w, b);
    expect_states(&w, KVP_BLOCK_PARKED, 1, 4);
    assert_queue(&w, 0, 5, 6, 7);
    const kvp_stats s = stats_of(&w);
    assert_fields(s, parked_blocks, 4, free_blocks, 3, cached_blocks, 0, held_blocks, 0);
    (void)done_step(&w, 1);
    assert_queue(&w, 0, 3, 5, 6, 7, 2, 1, 4); /* in the order of their release */
    expect_states(&w, KVP_BLOCK_FREE, 3, 3);
    expect_states(&w, KVP_BLOCK_CACHED, 1, 2);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
}

TEST(test_parked_blocks_are_not_available)
{
    scoped_world w = steps_world(7, 0);
    const kvp_prompt prompt = prompt_of(ints(200), 20);
    kvp_seq seq;
    const kvp_seq a = open_done(&w, ints(0), 12);
    (void)begin_step(&w);
    close_seq(&w, a);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_LATER, 5, 4, 1);
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 1);
    (void)done_step(&w, 1);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 5, 7, 0);
}

TEST(test_blocks_stay_parked_until_every_step_that_was_out_is_reported)
{
    scoped_world w = steps_world(7, 0);
    const kvp_seq a = open_done(&w, ints(0), 4);
    const kvp_seq b = open_done(&w, ints(100), 4);
    (void)begin_step(&w);
    close_seq(&w, a); /* 1, waits for step 1 */
    (void)begin_step(&w);
    close_seq(&w, b); /* 2, waits for both */
    (void)begin_step(&w);
    (void)done_step(&w, 1);
    expect_states(&w, KVP_BLOCK_CACHED, 1, 1);
    expect_states(&w, KVP_BLOCK_PARKED, 2, 2);
    (void)done_step(&w, 2); /* the third is nothing to it */
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 1, 2);
}

TEST(test_a_step_that_is_only_noted_releases_nothing)
{
    scoped_world w = steps_world(7, 0);
    const kvp_seq a = open_done(&w, ints(0), 4);
    (void)begin_step(&w);
    (void)begin_step(&w);
    close_seq(&w, a);
    (void)done_step(&w, 2);
    expect_states(&w, KVP_BLOCK_PARKED, 1, 1);
    (void)done_step(&w, 1);
    expect_states(&w, KVP_BLOCK_CACHED, 1, 1);
}

TEST(test_a_parked_block_can_be_hit_and_costs_nothing)
{
    scoped_world w = steps_world(2, 0);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    const kvp_seq a = open_done(&w, ints(0), 8);
    (void)begin_step(&w);
    close_seq(&w, a);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 0, 0, 0);
    const kvp_seq again = open_seq(&w, ints(0), 8, NULL);
    assert_row(&w, again, 1, 2);
    expect_states(&w, KVP_BLOCK_HELD, 1, 2);
    assert_int_equal(block_of(&w, 1).ref_count, 1);
    (void)done_step(&w, 1);
    expect_states(&w, KVP_BLOCK_HELD, 1, 2); /* is not queued under its holder */
    assert_no_queue(&w, 0);
    close_seq(&w, again);
    assert_queue(&w, 0, 2, 1);
}

TEST(test_parked_hits_are_not_held_for_the_watermark)
{
    kvp_config config = steps_config(4, 4, 4, 0);
    config.watermark = 0.5;
    scoped_world w = make_world(&config);
    const kvp_prompt prompt = prompt_of(ints(0), 16);
    const kvp_seq a = open_done(&w, ints(0), 8);
    (void)begin_step(&w);
    close_seq(&w, a); /* nothing is held: the watermark counts as 0 */
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 2, 2, 0);
    (void)open_with(&w, &prompt, NULL);
}

TEST(test_a_hit_block_parks_again_for_the_steps_out_then)
{
    scoped_world w = steps_world(3, 0);
    const kvp_seq a = open_done(&w, ints(0), 4);
    (void)begin_step(&w);
    close_seq(&w, a);
    const kvp_seq again = open_seq(&w, ints(0), 4, NULL);
    (void)begin_step(&w);
    close_seq(&w, again);
    (void)done_step(&w, 1);
    expect_states(&w, KVP_BLOCK_PARKED, 1, 1);
    (void)done_step(&w, 2);
    assert_queue(&w, 0, 2, 3, 1);
}

TEST(test_a_parked_block_that_loses_its_content_stays_parked)
{
    scoped_world w = steps_world(7, 0);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq a = open_done(&w, ints(0), 8);
    const kvp_seq same = open_with(&w, &prompt, NULL); /* 3 4 */
    (void)begin_step(&w);
    close_seq(&w, a);
    assert_ok(kvp_seq_invalidate(w.cache, same, 4, NULL, 0, NULL));
    expect_states(&w, KVP_BLOCK_PARKED, 1, 2);
    assert_fields(block_of(&w, 2), sealed_units, 0, generation, 1);
    assert_int_equal(block_of(&w, 1).generation, 0);
    assert_int_equal(hit_tokens(&w, ints(0), 8), 4);
    (void)done_step(&w, 1);
    assert_queue(&w, 0, 2, 5, 6, 7, 1);
    assert_int_equal(block_of(&w, 2).generation, 1);
}

TEST(test_the_generation_rises_when_a_block_parks_without_content)
{
    scoped_world w = steps_world(7, 0);
    const kvp_seq a = open_done(&w, ints(0), 6);
    (void)begin_step(&w);
    close_seq(&w, a);
    assert_int_equal(block_of(&w, 1).generation, 0);
    assert_int_equal(block_of(&w, 2).generation, 1);
    (void)done_step(&w, 1);
    assert_int_equal(block_of(&w, 2).generation, 1);
}

TEST(test_parked_blocks_go_to_the_tail_of_their_class)
{
    scoped_world w = steps_world(3, 0);
    const kvp_seq a = open_done(&w, ints(0), 12);
    assert_ok(kvp_seq_retain(w.cache, a, (kvp_range){4, 8}, 3));
    (void)begin_step(&w);
    close_seq(&w, a);
    assert_no_queue(&w, 3);
    (void)done_step(&w, 1);
    assert_queue(&w, 0, 3, 1);
    assert_queue(&w, 3, 2);
}

TEST(test_truncate_parks_and_adopt_parks)
{
    scoped_world w = steps_world(7, 0);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq a = open_done(&w, ints(0), 8);
    const kvp_seq b = open_with(&w, &prompt, NULL); /* 3 */
    (void)begin_step(&w);
    assert_ok(kvp_seq_truncate(w.cache, a, 4, NULL));
    expect_states(&w, KVP_BLOCK_PARKED, 2, 2);
    assert_ok(kvp_seq_commit(w.cache, b, 4));
    assert_row(&w, b, 1);
    expect_states(&w, KVP_BLOCK_PARKED, 3, 3);
    (void)done_step(&w, 1);
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 2);
}

TEST(test_swap_out_parks_on_the_device_and_never_on_the_host)
{
    scoped_world w = steps_world(7, 7);
    const kvp_seq a = open_done(&w, ints(0), 6);
    (void)begin_step(&w);
    swap_out(&w, &a, 1);
    expect_states(&w, KVP_BLOCK_PARKED, 1, 2);
    (void)begin_step(&w);
    close_seq(&w, a);
    const kvp_stats s = stats_of(&w);
    assert_int_equal(s.host_free_blocks + s.host_cached_blocks + s.host_held_blocks, 7);
    assert_int_equal(s.parked_blocks, 2);
    (void)done_step(&w, 1);
    assert_queue(&w, 0, 2, 3, 4, 5, 6, 7, 1);
}

/* --------------------------------------------------------------------------- what a plan brings */

TEST(test_what_a_plan_brings_counts_as_computed_at_once)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_int_equal(info_of(&w, child).computed_tokens, 6);
    (void)begin_step(&w);
    (void)fork_seq(&w, child, 6);
    swap_out(&w, &parent, 1);
    assert_int_equal(info_of(&w, parent).computed_tokens, 6);
}

TEST(test_what_swaps_out_is_found_on_the_host_when_its_step_is_done)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq a = open_done(&w, ints(0), 8);
    const kvp_seq b = fork_seq(&w, a, 8);
    const kvp_seq c = fork_seq(&w, a, 8);
    const kvp_seq d = fork_seq(&w, a, 8);
    assert_moved(swap_out(&w, &a, 1), 2, 0, 0, 0);
    assert_moved(swap_out(&w, &b, 1), 2, 0, 0, 0); /* a's copies wait in the plan */
    (void)begin_step(&w);
    assert_moved(swap_out(&w, &c, 1), 2, 0, 0, 0); /* and now they are out */
    assert_int_equal(host_block(&w, 1).sealed_units, 0);
    (void)done_step(&w, 1);
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    swap_out(&w, &d, 1);
    assert_row(&w, d, 1, 2);
}

TEST(test_a_prompt_from_the_host_is_found_on_the_device_when_its_step_is_done)
{
    scoped_world w = steps_world(7, 7);
    kvp_open_info info;
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    pass_step(&w);
    close_seq(&w, a);
    wipe_device(&w);
    const kvp_seq b = open_seq(&w, ints(0), 8, &info);
    assert_int_equal(info.host_tokens, 8);
    assert_int_equal(info_of(&w, b).computed_tokens, 8);
    const uint64_t step = begin_step(&w);
    const kvp_seq c = open_seq(&w, ints(0), 8, &info); /* not from b yet */
    assert_int_equal(info.host_tokens, 8);
    assert_int_not_equal(row_entry(&w, c, 0), row_entry(&w, b, 0));
    (void)done_step(&w, step);
    (void)open_seq(&w, ints(0), 8, &info);
    assert_fields(info, host_tokens, 0, shared_blocks, 2);
    assert_int_equal(block_of(&w, row_entry(&w, b, 0)).ref_count, 2);
    pass_step(&w); /* c's come too late: the units have blocks */
    assert_int_equal(block_of(&w, row_entry(&w, c, 0)).sealed_units, 0);
}

TEST(test_what_is_kept_is_held_by_its_copy_until_the_step_is_done)
{
    scoped_world w = steps_world(1, 3);
    leave_cached(&w, ints(0), 4);
    const kvp_seq seq = open_seq(&w, ints(100), 4, NULL);
    assert_fields(host_block(&w, 1), state, KVP_BLOCK_HELD, ref_count, 1);
    assert_int_equal(stats_of(&w).host_held_blocks, 1);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    assert_step(&w, 1, TO_HOST(0, 1, 1, 4));
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    (void)done_step(&w, 1);
    assert_int_equal(host_block(&w, 1).state, KVP_BLOCK_CACHED);
    assert_int_equal(match(&w, ints(0), 4).host_tokens, 4);
    close_seq(&w, seq);
}

TEST(test_copies_take_effect_in_the_order_of_their_steps)
{
    scoped_world w = steps_world(2, 5);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    const kvp_seq a = open_seq(&w, ints(200), 4, NULL); /* evicts the first */
    (void)begin_step(&w);
    const kvp_seq b = open_seq(&w, ints(300), 4, NULL); /* evicts the second */
    (void)begin_step(&w);
    (void)done_step(&w, 2);
    assert_int_equal(hit_tokens(&w, ints(0), 4), 0);
    assert_int_equal(hit_tokens(&w, ints(100), 4), 0);
    assert_int_equal(done_step(&w, 1), 2);
    assert_int_equal(match(&w, ints(0), 4).host_tokens, 4);
    assert_int_equal(match(&w, ints(100), 4).host_tokens, 4);
    close_seq(&w, a);
    close_seq(&w, b);
}

TEST(test_what_was_released_by_then_is_left_out)
{
    scoped_world w = steps_world(7, 7);
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    pass_step(&w);
    close_seq(&w, a);
    wipe_device(&w);
    const kvp_seq b = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    close_seq(&w, b);
    (void)done_step(&w, step);
    assert_fields(stats_of(&w), cached_blocks, 0, free_blocks, 7);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 8);
}

TEST(test_what_was_withdrawn_by_then_is_left_out)
{
    scoped_world w = steps_world(7, 7);
    const kvp_seq a = open_done(&w, ints(0), 8);
    const kvp_seq b = fork_seq(&w, a, 8);
    swap_out(&w, &a, 1);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_invalidate(w.cache, b, 4, NULL, 0, NULL));
    (void)done_step(&w, step);
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 0);
    close_seq(&w, a);
    assert_int_equal(stats_of(&w).host_cached_blocks, 1);
}

TEST(test_what_was_written_over_by_then_is_left_out)
{
    scoped_world w = steps_world(7, 7);
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    pass_step(&w);
    close_seq(&w, a);
    wipe_device(&w);
    const kvp_seq b = open_seq(&w, ints(0), 8, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_truncate(w.cache, b, 6, NULL));
    assert_ok(kvp_seq_extend(w.cache, b, ints(60), 2, 0)); /* into the second block, its own */
    (void)done_step(&w, step);
    assert_int_equal(block_of(&w, row_entry(&w, b, 0)).sealed_units, 1);
    assert_int_equal(block_of(&w, row_entry(&w, b, 1)).sealed_units, 0);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 4);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

/* The host's only block, written by two steps for two sequences. */
TEST(test_each_step_brings_its_own_copies)
{
    kvp_config config = steps_config(4, 4, 15, 1);
    config.keep_evicted = 0;
    scoped_world w = make_world(&config);
    const kvp_seq a = open_done(&w, ints(0), 4);
    const kvp_seq b = open_done(&w, ints(100), 4);
    swap_out(&w, &a, 1);
    (void)begin_step(&w);
    close_seq(&w, a);
    swap_out(&w, &b, 1);
    (void)begin_step(&w);
    (void)done_step(&w, 1);
    assert_int_equal(host_block(&w, 1).sealed_units, 0);
    (void)done_step(&w, 2);
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    close_seq(&w, b);
    wipe_device(&w);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    assert_int_equal(match(&w, ints(100), 4).host_tokens, 4);
}

TEST(test_a_copy_into_a_freed_block_does_not_begin)
{
    scoped_world w = steps_world(15, 15);
    const kvp_seq a = open_done(&w, ints(0), 6);
    swap_out(&w, &a, 1);
    close_seq(&w, a);
    assert_empty_step(&w, 1); /* nothing is found before it is done, so nothing is left to hit */
    assert_int_equal(stats_of(&w).host_free_blocks, 15);
}

/* The block was to get a copy, was freed, and taken anew: what is sealed there now is found. */
TEST(test_a_block_taken_anew_awaits_nothing)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* 3, by a copy */
    close_seq(&w, child);
    const kvp_seq seq = open_seq(&w, ints(100), 4, NULL);
    assert_row(&w, seq, 3);
    assert_empty_step(&w, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(hit_tokens(&w, ints(100), 4), 4);
}

TEST(test_copies_count_until_their_step_takes_effect)
{
    kvp_config config = steps_config(4, 4, 15, 0);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq a = fork_seq(&w, parent, 6);
    const kvp_seq b = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, a, ints(60), 1, 0));
    (void)begin_step(&w);
    (void)begin_step(&w);
    assert_unchanged(&w,
                     assert_status(KVP_E_PLAN_FULL, kvp_seq_extend(w.cache, b, ints(70), 1, 0)));
    (void)done_step(&w, 2);
    assert_ok(kvp_step_done(w.cache, 1, NULL));
    assert_ok(kvp_seq_extend(w.cache, b, ints(70), 1, 0));
}

/* Half of the plan, those of steps that are out included, is for what is kept. */
TEST(test_copies_that_are_out_leave_less_room_to_keep)
{
    kvp_config config = steps_config(4, 4, 4, 7);
    config.max_copies = 4;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 16);
    for (int32_t i = 0; i < 3; i++) {
        (void)open_seq(&w, ints(100 * i + 100), 4, NULL); /* evicts one */
        (void)begin_step(&w);
        assert_int_equal(stats_of(&w).kept_blocks, i < 2 ? i + 1 : 2);
    }
    assert_int_equal(stats_of(&w).unkept_blocks, 1);
    (void)done_step(&w, 1);
    (void)open_seq(&w, ints(500), 4, NULL);
    assert_int_equal(stats_of(&w).kept_blocks, 3);
}

TEST_MAIN(NULL, NULL)

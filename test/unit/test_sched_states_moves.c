/* The scheduler over a cache with recurrent state, overlapped steps and a host tier: slots that are
 * promised on the way back, and states that do not arrive. Every step runs on slots that know what
 * they hold. */
#include "sched_world.h"
#include "slots.h"

enum { S = 4 };

static sched_world moving_world(uint32_t usable, uint32_t usable_slots)
{
    kvp_config cache_config = config_of(S, S, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = usable_slots + 1;
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    cache_config.max_steps_out = 8;
    cache_config.host_blocks = 33;
    cache_config.host_state_slots = 9;
    cache_config.max_seqs = 16;
    config.preempt = KVP_PREEMPT_SWAP;
    return make_reading_world(&cache_config, &config);
}

/* Pause it, and make a step in which a prompt of n tokens comes in for its blocks. */
static kvp_step push_out(sched_world *s, kvp_request request, uint32_t n)
{
    assert_ok(kvp_sched_pause(s->sched, request));
    (void)submit(s, 500, n, 2);
    const kvp_step step = make_step(s);
    assert_true(request_of(s, request).is_swapped);
    assert_int_equal(slots_of(&s->w).host_held_slots, 1);
    return step;
}

/* What the step's plan was to copy has not been copied. */
static void fail_step(sched_world *s)
{
    assert_true(sched_memory_spoil(&s->memory, s->copies, s->n_copies));
    sched_states_miss(&s->states, s->copies, s->n_copies);
    assert_ok(kvp_step_failed(s->w.cache, s->number, NULL, 0, NULL));
    assert_ok(kvp_sched_fail(s->sched));
}

TEST(test_there_and_back)
{
    scoped_sched_world s = moving_world(6, 4);
    const kvp_request a = submit(&s, 0, 10, 9);
    run_to(&s, a, 12);
    const kvp_step step = push_out(&s, a, 17);
    (void)finish_step(&s, &step);
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 2);
    assert_fields(sched_stats_of(&s), swapped_in, 1, recomputed, 0);
    assert_int_equal(slots_of(&s.w).host_held_slots, 0);
}

/* Two samples share the state after their prompt, and come back so: they hold three slots, and will
 * hold four. */
TEST(test_who_shares_a_state_is_promised_another_slot)
{
    scoped_sched_world s = moving_world(8, 6);
    const kvp_request a = submit_rank(&s, 0, 10, 9, 0, 2);
    (void)run_step(&s); /* up to the last full unit */
    (void)run_step(&s); /* the prompt: both have a token that is not computed */
    const kvp_step step = push_out(&s, a, 21);
    (void)finish_step(&s, &step);
    run_until_over(&s, 1);
    assert_ok(kvp_sched_resume(s.sched, a));
    const kvp_step back = make_step(&s);
    assert_int_equal(back.n_swapped_in, 1);
    assert_int_equal(slots_of(&s.w).held_slots, 3);
    assert_int_equal(sched_stats_of(&s).promised_slots, 1);
    (void)finish_step(&s, &back);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).left_out, 0);
}

/* The step that swaps it out fails: it computes everything anew. */
TEST(test_a_state_that_did_not_leave)
{
    scoped_sched_world s = moving_world(6, 4);
    const kvp_request a = submit(&s, 0, 10, 9);
    run_to(&s, a, 12);
    (void)push_out(&s, a, 17);
    fail_step(&s);
    assert_false(request_of(&s, a).is_swapped);
    assert_int_equal(slots_of(&s.w).host_held_slots, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 2);
}

/* The KV is on the host already, when the state is copied there: only that is lost. */
TEST(test_only_the_state_did_not_leave)
{
    scoped_sched_world s = moving_world(6, 4);
    const kvp_request a = submit(&s, 0, 12, 9);
    kvp_seq own;
    run_to(&s, a, 13);
    assert_ok(kvp_seq_fork(s.w.cache, sample_of(&s, a, 0).seq, 12, 0, &own));
    assert_ok(kvp_seq_swap_out(s.w.cache, &own, 1, NULL));
    assert_ok(kvp_sched_pause(s.sched, a));
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_seqs, 0);
    (void)submit(&s, 500, 17, 2);
    step = make_step(&s);
    assert_true(request_of(&s, a).is_swapped);
    assert_int_equal(s.n_copies, 1); /* of the state */
    fail_step(&s);
    assert_false(request_of(&s, a).is_swapped);
    assert_ok(kvp_seq_close(s.w.cache, own, NULL));
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 2);
}

/* The step that brings it back fails. */
TEST(test_a_state_that_did_not_come_back)
{
    scoped_sched_world s = moving_world(6, 4);
    const kvp_request a = submit(&s, 0, 10, 9);
    run_to(&s, a, 12);
    const kvp_step step = push_out(&s, a, 17);
    (void)finish_step(&s, &step);
    run_until_over(&s, 1);
    assert_ok(kvp_sched_resume(s.sched, a));
    const kvp_step back = make_step(&s);
    assert_int_equal(back.n_swapped_in, 1);
    fail_step(&s);
    assert_false(request_of(&s, a).is_swapped);
    run_until_over(&s, 2);
}

TEST_MAIN(NULL, NULL)

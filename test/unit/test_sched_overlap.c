/* The scheduler over a cache with overlapped steps: parked blocks are on their way back, copies
 * that must wait, steps that fail. */
#include "sched_world.h"

static sched_world overlapped_world(uint32_t usable, uint32_t preempt, double watermark)
{
    kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    cache_config.max_steps_out = 8;
    cache_config.host_blocks = 33;
    cache_config.keep_evicted = 0;
    cache_config.max_seqs = 16;
    cache_config.watermark = watermark;
    config.preempt = preempt;
    return make_reading_world(&cache_config, &config);
}

static void end_own(sched_world *s, uint64_t step)
{
    assert_ok(kvp_step_done(s->w.cache, step, NULL));
}

TEST(test_life_of_a_victim)
{
    for (uint32_t preempt = KVP_PREEMPT_RECOMPUTE; preempt <= KVP_PREEMPT_SWAP; preempt++) {
        scoped_sched_world s = overlapped_world(4, preempt, 0);
        kvp_request a, b;
        start_both(&s, &a, &b);
        const kvp_step step = run_step(&s);
        assert_int_equal(step.n_preempted + step.n_swapped_out, 1);
        run_until_over(&s, 2);
        assert_int_equal(sched_stats_of(&s).preemptions, 1);
    }
}

/* An abort parks what the next step needs: nobody is preempted for it. */
TEST(test_nobody_gives_way_for_parked_blocks)
{
    scoped_sched_world s = overlapped_world(6, KVP_PREEMPT_SWAP, 0);
    kvp_request a, b;
    start_both(&s, &a, &b);
    const kvp_request c = submit(&s, 200, 7, 8);
    for (int i = 0; i < 4; i++)
        (void)run_step(&s); /* a and b take the last two, and fill them */
    assert_int_equal(request_of(&s, c).state, KVP_REQUEST_WAITING);
    assert_int_equal(stats_of(&s.w).held_blocks, 6);
    const uint64_t own = begin_own(&s);
    const kvp_request d = submit(&s, 300, 4, 4);
    assert_ok(kvp_sched_abort(s.sched, b)); /* three blocks are parked */
    kvp_step step = run_step(&s);           /* a needs one */
    assert_int_equal(stats_of(&s.w).parked_blocks, 3);
    assert_fields(step, n_left_out, 1, n_seqs, 0);
    assert_int_equal(step.n_preempted + step.n_swapped_out, 0);
    assert_int_equal(step.waited[KVP_WAIT_PREEMPTION], 2);
    end_own(&s, own);
    step = make_step(&s);
    assert_non_null(item_of(&step, a, 0));
    assert_non_null(item_of(&step, c, 0));
    assert_null(item_of(&step, d, 0));
    (void)finish_step(&s, &step);
    run_until_over(&s, 3);
}

/* When they do not suffice, somebody does, and what that gives up is parked, too. */
TEST(test_parked_blocks_do_not_suffice)
{
    scoped_sched_world s = overlapped_world(6, KVP_PREEMPT_SWAP, 0);
    const kvp_request a = submit_rank(&s, 1, 4, 8, 0, 2);
    const kvp_request b = submit(&s, 100, 8, 12);
    for (int i = 0; i < 5; i++)
        (void)run_step(&s); /* three blocks each, all full */
    assert_int_equal(stats_of(&s.w).held_blocks, 6);
    const uint64_t own = begin_own(&s);
    kvp_step step = run_step(&s); /* both samples of a need one */
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    assert_int_equal(stats_of(&s.w).parked_blocks, 3);
    assert_fields(step, n_left_out, 1, n_seqs, 0);
    end_own(&s, own);
    step = make_step(&s);
    assert_int_equal(step.n_decoding, 2);
    assert_int_equal(step.seqs[0].request.bits, a.bits);
    (void)finish_step(&s, &step);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 0);
}

/* Nothing is held, everything is parked: who needs it waits, however often it is tried. The
 * watermark does not count then. */
TEST(test_nobody_is_hopeless)
{
    scoped_sched_world s = overlapped_world(6, KVP_PREEMPT_SWAP, 0.34); /* two blocks */
    const kvp_request a = submit(&s, 1, 14, 9);
    (void)run_step(&s);
    const uint64_t own = begin_own(&s);
    (void)submit(&s, 100, 16, 8);
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_ok(kvp_sched_abort(s.sched, a));
    assert_int_equal(stats_of(&s.w).held_blocks, 0);
    for (int i = 0; i < 3; i++) {
        step = run_step(&s);
        assert_fields(step, n_seqs, 0, waited[KVP_WAIT_BLOCKS], 1);
    }
    end_own(&s, own);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    run_until_over(&s, 1);
}

TEST(test_paused_is_left_alone)
{
    scoped_sched_world s = overlapped_world(6, KVP_PREEMPT_SWAP, 0);
    kvp_request a, b;
    start_both(&s, &a, &b);
    assert_ok(kvp_sched_pause(s.sched, b));
    const uint64_t own = begin_own(&s);
    assert_ok(kvp_sched_abort(s.sched, a));
    const kvp_request c = submit(&s, 200, 16, 4); /* 4 of 2, and two are parked */
    kvp_step step = run_step(&s);
    assert_fields(step, n_swapped_out, 0, waited[KVP_WAIT_BLOCKS], 1);
    end_own(&s, own);
    step = run_step(&s);
    assert_int_equal(step.admitted[0].bits, c.bits);
    assert_int_equal(request_of(&s, b).preemptions, 0);
    assert_ok(kvp_sched_resume(s.sched, b));
    run_until_over(&s, 2);
}

/* Blocks that were given up ahead of need are on their way: nobody else goes for them. */
TEST(test_ahead_counts_parked_blocks)
{
    kvp_config cache_config = config_of(4, 4, 10);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    cache_config.host_blocks = 33;
    cache_config.watermark = 0.3;
    config.swap_ahead = 1;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    for (int32_t i = 0; i < 3; i++)
        (void)submit(&s, 1 + 100 * i, 8, 12);
    (void)run_step(&s);
    (void)run_step(&s); /* 9 are held */
    const uint64_t own = begin_own(&s);
    assert_int_equal(run_step(&s).n_swapped_out, 1);
    assert_int_equal(stats_of(&s.w).parked_blocks, 3);
    assert_int_equal(run_step(&s).n_swapped_out, 0);
    end_own(&s, own);
    run_until_over(&s, 3);
}

/* A copy that must wait for steps that are out: left out, nothing else. (The caller has taken back
 * a token behind the scheduler's back, and shares the block it was in.) */
TEST(test_in_flight_is_left_out)
{
    scoped_sched_world s = overlapped_world(8, KVP_PREEMPT_SWAP, 0);
    s.reads_kv = 0;
    const kvp_request a = submit(&s, 1, 6, 8);
    const kvp_request b = submit(&s, 100, 6, 8);
    (void)run_step(&s);
    const kvp_seq seq = sample_of(&s, a, 0).seq;
    const kvp_seq fork = fork_seq(&s.w, seq, 6);
    assert_ok(kvp_seq_invalidate(s.w.cache, seq, 5, NULL, 0, NULL));
    const uint64_t own = begin_own(&s);
    kvp_step step;
    assert_ok(kvp_sched_step(s.sched, &step));
    assert_int_equal(step.n_left_out, 1);
    assert_int_equal(step.n_preempted + step.n_swapped_out + step.n_ended, 0);
    assert_int_equal(step.n_seqs, 1);
    assert_int_equal(step.seqs[0].request.bits, b.bits);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_RUNNING);
    assert_ok(kvp_sched_finish(s.sched, ints(7), NULL, NULL));
    end_own(&s, own);
    assert_ok(kvp_sched_abort(s.sched, a));
    (void)close_seq(&s.w, fork);
    run_until_over(&s, 1);
}

/* A step fails with its plan: who went to the host by it has lost its KV, and computes it anew. */
TEST(test_failed_plan)
{
    scoped_sched_world s = overlapped_world(4, KVP_PREEMPT_SWAP, 0);
    kvp_request a, b;
    start_both(&s, &a, &b);
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(s.n_copies, 2);
    assert_true(sched_memory_spoil(&s.memory, s.copies, s.n_copies));
    kvp_seq cut[4];
    uint32_t n_cut;
    assert_ok(kvp_step_failed(s.w.cache, s.number, cut, 4, &n_cut));
    assert_int_equal(n_cut, 1);
    assert_ok(kvp_sched_fail(s.sched));
    check_sched(&s);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_WAITING);
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_WAITING);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 0);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 16);
    run_until_over(&s, 2);
}

/* Who went there by an earlier step has it. */
TEST(test_failed_step_of_others)
{
    scoped_sched_world s = overlapped_world(4, KVP_PREEMPT_SWAP, 0);
    kvp_request a, b;
    start_both(&s, &a, &b);
    assert_int_equal(run_step(&s).n_swapped_out, 1);
    (void)make_step(&s);
    assert_true(sched_memory_spoil(&s.memory, s.copies, s.n_copies));
    assert_ok(kvp_step_failed(s.w.cache, s.number, NULL, 0, NULL));
    assert_ok(kvp_sched_fail(s.sched));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_WAITING);
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_SWAPPED);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    run_until_over(&s, 2);
}

/* Begin a step of the caller's own that has so many copies. */
static uint64_t begin_copies(sched_world *s, uint32_t n_expected)
{
    uint64_t step;
    assert_ok(kvp_step_begin(s->w.cache, s->copies, 256, &s->n_copies, &step));
    assert_int_equal(s->n_copies, n_expected);
    return step;
}

/* A request is tried while copies are under way that will bring its prompt. When they are there, it
 * needs far less than when it was tried: a copy counts from when its step has taken effect. */
TEST(test_what_arrives_is_hoped_for)
{
    scoped_sched_world s = overlapped_world(10, KVP_PREEMPT_SWAP, 0);
    s.reads_kv = 0; /* the caller's own sequences are not computed */
    const kvp_seq x = open_done(&s.w, ints(1), 24);
    assert_ok(kvp_seq_swap_out(s.w.cache, &x, 1, NULL));
    end_own(&s, begin_copies(&s, 6));
    close_seq(&s.w, open_seq(&s.w, ints(500), 40, NULL)); /* nothing is cached on the device now */
    const kvp_seq z = open_seq(&s.w, ints(700), 8, NULL);
    assert_ok(kvp_seq_swap_in(s.w.cache, &x, 1, 0, NULL));
    const uint64_t own = begin_copies(&s, 6);
    const kvp_request r = submit(&s, 1, 24, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(run_step(&s).waited[KVP_WAIT_BLOCKS], 1);
    end_own(&s, own);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_non_null(item_of(&step, r, 0));
    (void)finish_step(&s, &step);
    (void)close_seq(&s.w, x);
    (void)close_seq(&s.w, z);
}

TEST_MAIN(NULL, NULL)

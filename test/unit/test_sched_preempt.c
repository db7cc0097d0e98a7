/* The scheduler when blocks are short: victims, pause, requests that grew, abort, failed steps, and
 * overload for a long time. */
#include "sched_world.h"

/* Two decoding requests of 2 blocks each in a pool of 4, and each is about to begin a block. */
static void start_two(sched_world *s, kvp_request *a, kvp_request *b, int32_t priority_of_a)
{
    *a = submit_rank(s, 1, 8, 8, priority_of_a, 1);
    *b = submit_rank(s, 100, 8, 8, 0, 1);
    (void)run_step(s);
}

TEST(test_latest_is_preempted)
{
    scoped_sched_world s = small_sched_world(4);
    kvp_request a, b;
    start_two(&s, &a, &b, 0);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_fields(step, n_seqs, 1, waited[KVP_WAIT_PREEMPTION], 1);
    assert_fields(request_of(&s, b), state, KVP_REQUEST_WAITING, preemptions, 1);
    assert_int_equal(sample_of(&s, b, 0).n_tokens, 9); /* what it generated is kept */
    assert_int_equal(sched_stats_of(&s).lost_tokens, 8);
    (void)finish_step(&s, &step);
    while (sched_stats_of(&s).ended < 2)
        (void)run_step(&s);
}

TEST(test_lower_priority_is_preempted_first)
{
    scoped_sched_world s = small_sched_world(4);
    kvp_request a, b;
    start_two(&s, &a, &b, 3); /* arrived first, but matters less */
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, a.bits);
}

/* What was sealed is hit when a victim comes back. */
TEST(test_recompute_hits_the_cache)
{
    scoped_sched_world s = small_sched_world(4);
    kvp_request a, b;
    start_two(&s, &a, &b, 0);
    kvp_step step = run_step(&s); /* a takes the end of b's prompt */
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_ok(kvp_sched_abort(s.sched, a));
    step = make_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.seqs[0].begin, 4); /* the prompt's first block is cached */
    assert_int_equal(step.n_tokens, 5);
    assert_int_equal(step.tokens[4], 1001); /* generated before */
}

/* With the learned policy a request that comes back counts as one use. */
TEST(test_a_preemption_is_no_use)
{
    kvp_config cache_config = config_of(4, 4, 4);
    const kvp_sched_config config = sched_config_of(8, 64);
    cache_config.policy = KVP_POLICY_LEARNED;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_request a, b;
    start_two(&s, &a, &b, 0);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(stats_of(&s.w).references, 0);
    while (sched_stats_of(&s).ended < 2)
        (void)run_step(&s);
    assert_int_equal(stats_of(&s.w).references, 2 * 3); /* 8 + 7 computed tokens: 3 full blocks */
}

/* What it had generated is output still, for the learned policy. */
TEST(test_a_prompt_ends_where_it_did)
{
    for (uint32_t policy = KVP_POLICY_LRU; policy <= KVP_POLICY_LEARNED; policy++) {
        kvp_config cache_config = config_of(4, 4, 4);
        const kvp_sched_config config = sched_config_of(8, 64);
        cache_config.policy = policy;
        scoped_sched_world s = make_sched_world(&cache_config, &config);
        kvp_request a, b;
        start_two(&s, &a, &b, 0);
        assert_int_equal(run_step(&s).preempted[0].bits, b.bits);
        assert_ok(kvp_sched_abort(s.sched, a));
        assert_int_equal(run_step(&s).n_admitted, 1);
        const kvp_seq_info info = info_of(&s.w, sample_of(&s, b, 0).seq);
        assert_fields(info, n_tokens, 9, prompt_tokens, policy == KVP_POLICY_LEARNED ? 8 : 9);
    }
}

/* Of two groups one has a window, which drops the prompt's end as samples go on. */
static sched_world windowed_world(uint32_t usable)
{
    kvp_config cache_config = config_of(4, 4, usable);
    const kvp_sched_config config = sched_config_of(8, 64);
    cache_config.n_groups = 2;
    cache_config.groups[1] = (kvp_group){0, 4, 0};
    return make_reading_world(&cache_config, &config);
}

/* Back from a recompute, samples are forked at the prompt's end before the window passes it. */
TEST(test_samples_come_back_behind_a_window)
{
    scoped_sched_world s = windowed_world(60);
    const kvp_request a = submit_rank(&s, 1, 10, 30, 0, 3);
    for (int i = 0; i < 12; i++)
        (void)run_step(&s);
    const uint32_t known = sample_of(&s, a, 0).n_tokens;
    assert_int_equal(known, 22);
    kvp_step step = make_step(&s);
    run_work(&s, &step);
    assert_ok(kvp_sched_fail(s.sched)); /* preempted by recompute */
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_WAITING);
    step = run_step(&s);
    assert_int_equal(step.n_ended, 0);
    assert_int_equal(step.n_seqs, 1); /* the trunk, to the prompt's end */
    assert_int_equal(step.seqs[0].begin + step.seqs[0].n_tokens, 10);
    assert_fields(step, n_sampled, 0, n_tokens, 10 - 8);
    step = make_step(&s); /* all catch up */
    assert_int_equal(step.n_seqs, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_fields(*item_of(&step, a, i), begin, 10, n_tokens, known - 1 - 10);
    (void)finish_step(&s, &step);
    step = run_step(&s);
    assert_int_equal(step.n_decoding, 3);
    run_until_over(&s, 1);
}

/* What the trunk will need after the fork is promised, too: nobody comes in into it. */
TEST(test_a_trunk_behind_a_window_is_promised_its_blocks)
{
    scoped_sched_world s = windowed_world(60);
    const kvp_request a = submit_rank(&s, 1, 10, 30, 0, 3);
    for (int i = 0; i < 12; i++)
        (void)run_step(&s);
    kvp_step step = make_step(&s);
    run_work(&s, &step);
    assert_ok(kvp_sched_fail(s.sched));
    step = make_step(&s);
    /* In each of two groups: the trunk's 21 tokens need 6 blocks and have the prompt's 3; the
     * others' 22 tokens need 6 each, 2 of which they share. */
    assert_int_equal(sched_stats_of(&s).promised_blocks, 2 * (3 + 4 + 4));
    (void)finish_step(&s, &step);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 0);
    assert_ok(kvp_sched_abort(s.sched, a));
}

/* The last in rank shares every block: preempting it would release nothing. */
TEST(test_no_victim_that_releases_nothing)
{
    scoped_sched_world s = small_sched_world(5);
    const kvp_request a = submit(&s, 1, 8, 8);
    const kvp_request b = submit(&s, 100, 8, 8);
    kvp_step step = make_step(&s);
    (void)finish_step(&s, &step); /* 4 held, both prompts sealed */
    const kvp_request c = submit(&s, 1, 8, 8);
    assert_ok(kvp_sched_pause(s.sched, b));
    step = run_step(&s); /* a takes the fifth block; c shares a's two */
    assert_int_equal(step.n_admitted, 1);
    assert_ok(kvp_sched_resume(s.sched, b));
    step = make_step(&s); /* b and c need a block each */
    assert_fields(step, n_preempted, 0, n_left_out, 2);
    assert_non_null(item_of(&step, a, 0));
    (void)finish_step(&s, &step);
    for (int i = 0; i < 4 && step.n_preempted == 0; i++)
        step = run_step(&s); /* until a needs a block: b's, since c's are a's */
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_int_equal(request_of(&s, c).preemptions, 0);
}

/* A block that only samples of the victim share is released with it. */
TEST(test_group_releases_what_it_shares)
{
    scoped_sched_world s = small_sched_world(6);
    (void)submit(&s, 1, 1, 8);
    const kvp_request a = submit(&s, 100, 7, 8);
    const kvp_request group = submit_rank(&s, 200, 8, 4, 0, 2); /* two blocks, both shared */
    (void)run_step(&s);
    const kvp_seq mine = open_seq(&s.w, ints(500), 4, NULL); /* the sixth block */
    kvp_step step = run_step(&s);
    assert_fields(step, n_left_out, 1, n_preempted, 0);
    step = run_step(&s); /* a needs a block, and is not the first in rank */
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, group.bits);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_RUNNING);
    (void)close_seq(&s.w, mine);
}

/* Only together do victims release anything; the first in rank goes on all the same. */
TEST(test_first_in_rank_always_goes_on)
{
    scoped_sched_world s = small_sched_world(5);
    leave_cached(&s.w, ints(100), 8);
    const kvp_request a = submit(&s, 1, 8, 8); /* 2 blocks, 4 in the end */
    const kvp_request b = submit(&s, 100, 8, 4);
    const kvp_request c = submit(&s, 100, 8, 4); /* both hold the same two */
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 3);
    assert_int_equal(stats_of(&s.w).held_blocks, 4);
    for (int i = 0; i < 4; i++) {
        step = run_step(&s); /* a has taken the fifth */
        assert_fields(step, n_preempted, 0, n_left_out, 2);
    }
    step = run_step(&s);
    assert_int_equal(step.n_preempted, 2);
    assert_int_equal(step.preempted[0].bits, c.bits);
    assert_int_equal(step.preempted[1].bits, b.bits);
    assert_int_equal(step.seqs[0].request.bits, a.bits);
    while (sched_stats_of(&s).ended < 3)
        (void)run_step(&s);
}

/* --------------------------------------------------------------------------------------- pause */

TEST(test_paused_is_first_victim)
{
    scoped_sched_world s = small_sched_world(4);
    kvp_request a, b;
    start_two(&s, &a, &b, 0);
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_PAUSED);
    assert_true(request_of(&s, a).holds_blocks);
    kvp_step step = run_step(&s);
    assert_int_equal(step.preempted[0].bits, a.bits);
    assert_int_equal(step.n_seqs, 1);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_PAUSED);
    assert_false(request_of(&s, a).holds_blocks);
    for (int i = 0; i < 10; i++) {
        step = run_step(&s);
        assert_null(item_of(&step, a, 0));
    }
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_WAITING);
    while (sched_stats_of(&s).ended < 2)
        (void)run_step(&s);
}

TEST(test_paused_makes_room_for_waiting)
{
    scoped_sched_world s = small_sched_world(4);
    const kvp_request a = submit(&s, 1, 12, 4);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    const kvp_request b = submit(&s, 100, 12, 4);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 1, n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, b.bits);
}

/* Two paused requests hold the same blocks: neither releases any without the other. */
TEST(test_paused_make_room_together)
{
    scoped_sched_world s = small_sched_world(4);
    leave_cached(&s.w, ints(1), 12);
    const kvp_request a = submit(&s, 1, 12, 4);
    const kvp_request b = submit(&s, 1, 12, 4);
    assert_int_equal(run_step(&s).n_admitted, 2);
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_ok(kvp_sched_pause(s.sched, b));
    (void)submit(&s, 100, 12, 4);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 2, n_admitted, 1);
}

/* It gives up its place of max_running, even if no block comes with it. */
TEST(test_paused_gives_up_its_place)
{
    const kvp_config cache_config = config_of(4, 4, 16);
    const kvp_sched_config config = sched_config_of(2, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    leave_cached(&s.w, ints(1), 12);
    const kvp_request a = submit(&s, 1, 12, 4);
    (void)submit(&s, 1, 12, 4);
    assert_int_equal(run_step(&s).n_admitted, 2);
    assert_ok(kvp_sched_pause(s.sched, a)); /* all its blocks are the other's as well */
    (void)submit(&s, 100, 12, 4);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 1, n_admitted, 1);
}

TEST(test_paused_goes_on_where_it_was)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request a = submit(&s, 1, 8, 8);
    (void)run_step(&s);
    kvp_step step = make_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a)); /* still takes part in the step that is out */
    (void)finish_step(&s, &step);
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 10);
    step = run_step(&s);
    assert_int_equal(step.n_seqs, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_RUNNING);
    step = make_step(&s);
    assert_int_equal(step.seqs[0].begin, 9);
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_ok(kvp_sched_resume(s.sched, a));
    (void)finish_step(&s, &step);
    step = make_step(&s);
    assert_int_equal(step.seqs[0].begin, 10);
}

TEST(test_waiting_can_be_paused)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request a = submit(&s, 1, 8, 8);
    const kvp_request b = submit(&s, 100, 8, 8);
    assert_ok(kvp_sched_pause(s.sched, a));
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_ok(kvp_sched_resume(s.sched, a));
    step = run_step(&s);
    assert_int_equal(step.admitted[0].bits, a.bits);
}

/* ----------------------------------------------------------------------- grown, abort, failure */

/* It grew past usable - watermark, was preempted, and is admitted once nothing else is held. */
TEST(test_grown_request_finishes)
{
    kvp_config cache_config = config_of(4, 4, 8);
    cache_config.watermark = 0.5;
    const kvp_sched_config config = sched_config_of(4, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit_rank(&s, 100, 4, 28, 1, 1); /* 8 blocks in the end */
    run_to(&s, a, 25);                                       /* 6 blocks: more than 4 */
    (void)submit_rank(&s, 1, 4, 12, 0, 1);
    assert_status(KVP_E_STATE, kvp_sched_fail(s.sched));
    kvp_step step = make_step(&s);
    assert_ok(kvp_sched_fail(s.sched)); /* everybody waits again */
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_WAITING);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1); /* the other one */
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    while (sched_stats_of(&s).ended < 2)
        (void)run_step(&s);
}

TEST(test_abort_returns_every_block)
{
    for (uint32_t when = 0; when < 8; when++) {
        scoped_sched_world s = small_sched_world(32);
        const kvp_request r = submit_rank(&s, 1, 10, 8, 0, 3);
        for (uint32_t i = 0; i < when / 2; i++)
            (void)run_step(&s);
        const kvp_step step = when % 2 ? make_step(&s) : (kvp_step){0};
        assert_ok(kvp_sched_abort(s.sched, r));
        check_sched(&s);
        assert_int_equal(stats_of(&s.w).held_blocks, 0);
        assert_int_equal(sched_stats_of(&s).reserved_pages, 0);
        (void)finish_step(&s, &step);
        assert_int_equal(make_step(&s).n_seqs, 0);
    }
}

TEST(test_failed_step_leaves_nothing)
{
    scoped_sched_world s = small_sched_world(32);
    const kvp_request a = submit(&s, 1, 8, 8);
    (void)run_step(&s);
    (void)submit(&s, 100, 8, 8);
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    check_sched(&s);
    assert_int_equal(stats_of(&s.w).held_blocks, 0);
    assert_int_equal(match(&s.w, ints(100), 8).hit_tokens, 0);
    assert_int_equal(match(&s.w, ints(1), 8).hit_tokens, 8); /* of the step before */
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_admitted, 2);
    assert_int_equal(item_of(&step, a, 0)->begin, 8);
}

/* Sequences that the caller holds leave no room, for a while: requests wait, none is lost. */
TEST(test_outside_holder)
{
    scoped_sched_world s = small_sched_world(6);
    const kvp_request a = submit(&s, 1, 8, 8);
    (void)run_step(&s);
    const kvp_seq mine = open_seq(&s.w, ints(500), 16, NULL);
    kvp_step step = run_step(&s);
    assert_fields(step, n_left_out, 1, n_seqs, 0);
    (void)close_seq(&s.w, mine);
    step = make_step(&s);
    assert_int_equal(step.seqs[0].request.bits, a.bits);
}

/* ------------------------------------------------------------------------------------ overload */

struct load {
    sched_world s;
    uint64_t random;
    uint64_t n_submitted;
    uint64_t n_preempted;
};

static void submit_random(struct load *load)
{
    load->n_submitted += submit_by_chance(&load->s, &load->random, 5, 3);
}

static void run_load_step(struct load *load)
{
    kvp_step step;
    kvp_copy copies[64];
    (void)take_plan(&load->s.w, copies, 64);
    assert_ok(kvp_sched_step(load->s.sched, &step));
    for (uint32_t i = 0; i < step.n_preempted; i++)
        for (uint32_t j = 0; j < step.n_admitted; j++)
            assert_true(step.preempted[i].bits != step.admitted[j].bits);
    load->n_preempted += step.n_preempted;
    if (step.n_seqs > 0) {
        int32_t tokens[16];
        for (uint32_t i = 0; i < step.n_sampled; i++)
            tokens[i] = (int32_t)draw(&load->random, 5);
        assert_ok(kvp_sched_finish(load->s.sched, tokens, NULL, NULL));
    }
}

/* Far more is asked for than there is room for, all the time; everything finishes, in bounded
 * time. */
TEST(test_overload_finishes)
{
    kvp_config cache_config = config_of(4, 4, 36);
    cache_config.watermark = 0.05;
    cache_config.max_seqs = 16;
    cache_config.max_copies = 64;
    kvp_sched_config config = sched_config_of(16, 48);
    config.chunk_tokens = 16;
    config.max_passed_over = 3;
    struct load load = {.s = make_sched_world(&cache_config, &config), .random = 5};
    uint32_t n_steps = 0;
    for (; n_steps < 20000; n_steps++) {
        while (sched_stats_of(&load.s).waiting_requests < 20)
            submit_random(&load);
        run_load_step(&load);
        if (n_steps % 50 == 0)
            check_sched(&load.s);
    }
    while (sched_stats_of(&load.s).ended < load.n_submitted) {
        assert_true(n_steps++ < 40000);
        run_load_step(&load);
    }
    assert_true(load.n_preempted > 1000);
    assert_true(load.n_submitted > 2000);
    end_sched_world(&load.s);
}

TEST_MAIN(NULL, NULL)

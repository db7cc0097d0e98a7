/* The scheduler with a host tier: who goes there and when, who comes back and when, prices. KV is
 * looked at in every step. */
#include "sched_world.h"

static kvp_sched_config swap_config(void)
{
    kvp_sched_config config = sched_config_of(8, 64);
    config.preempt = KVP_PREEMPT_SWAP;
    return config;
}

static kvp_config host_config(uint32_t usable, uint32_t host_usable)
{
    kvp_config config = config_of(4, 4, usable);
    config.host_blocks = host_usable + 1;
    config.max_seqs = 16;
    return config;
}

static sched_world world_of(const kvp_config *cache_config, const kvp_sched_config *config)
{
    sched_world s = make_sched_world(cache_config, config);
    s.reads_kv = 1;
    return s;
}

/* ------------------------------------------------------------------------------------ out, in */

TEST(test_victim_goes_to_the_host_and_back)
{
    scoped_sched_world s = swap_world(4, 8);
    kvp_request a, b;
    start_both(&s, &a, &b);
    kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 0, n_swapped_out, 1);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    assert_int_equal(step.waited_swapped[KVP_WAIT_PREEMPTION], 1);
    const kvp_request_info info = request_of(&s, b);
    assert_int_equal(info.state, KVP_REQUEST_SWAPPED);
    assert_true(info.is_swapped && !info.holds_blocks);
    assert_fields(info, preemptions, 1, swaps, 1);
    assert_int_equal(sample_of(&s, b, 0).computed_tokens, 8);
    assert_int_equal(info_of(&s.w, sample_of(&s, b, 0).seq).tier, KVP_HOST);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 2);
    assert_int_equal(sched_stats_of(&s).swapped_seqs, 1);
    while (request_of(&s, b).state == KVP_REQUEST_SWAPPED) {
        assert_true(step.number < 20);
        step = make_step(&s);
        (void)finish_step(&s, &step);
        assert_true(step.n_swapped_in == 1 || step.waited_swapped[KVP_WAIT_BLOCKS] == 1);
    }
    assert_int_equal(step.swapped_in[0].bits, b.bits);
    assert_int_equal(step.n_seqs, 1); /* it has gone on in the step that it came back in */
    assert_int_equal(step.n_tokens, 1);
    assert_int_equal(sample_of(&s, b, 0).n_tokens, 10);
    run_until_over(&s, 2);
    const kvp_sched_stats stats = sched_stats_of(&s);
    assert_int_equal(stats.lost_tokens, 0);
    assert_int_equal(stats.scheduled_tokens, 2 * (8 + 7)); /* nothing twice */
    assert_fields(stats, preemptions, 1, swapped_out_blocks, 2, swapped_in, 1);
}

TEST(test_abort_on_the_host)
{
    scoped_sched_world s = swap_world(4, 8);
    kvp_request a, b;
    start_both(&s, &a, &b);
    (void)run_step(&s);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 2);
    assert_ok(kvp_sched_abort(s.sched, b));
    check_sched(&s);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 0);
    assert_int_equal(sched_stats_of(&s).swapped_seqs, 0);
    run_until_over(&s, 1);
}

TEST(test_destroyed_with_requests_on_the_host)
{
    sched_world s = swap_world(4, 8);
    kvp_request a, b;
    start_both(&s, &a, &b);
    (void)run_step(&s);
    assert_int_equal(stats_of(&s.w).swapped_seqs, 1);
    end_sched_world(&s); /* checks that no sequence is left */
}

TEST(test_recompute_when_the_host_is_full)
{
    scoped_sched_world s = swap_world(4, 1);
    kvp_request a, b;
    start_both(&s, &a, &b);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_swapped_out, 0, n_preempted, 1);
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_WAITING);
    assert_int_equal(sched_stats_of(&s).recomputed, 1);
    run_until_over(&s, 2);
}

TEST(test_recompute_without_a_host_tier)
{
    const kvp_config cache_config = config_of(4, 4, 4);
    const kvp_sched_config config = swap_config();
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_request a, b;
    start_both(&s, &a, &b);
    assert_int_equal(run_step(&s).n_preempted, 1);
    run_until_over(&s, 2);
}

/* What might not come back in one plan does not go. */
TEST(test_recompute_when_the_way_back_is_too_long)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t n_groups = 1 + i / 2, lack = i % 2;
        kvp_config cache_config = host_config(4 * n_groups, 8 * n_groups);
        kvp_sched_config config = swap_config();
        config.max_running = 2;
        cache_config.n_groups = n_groups;
        cache_config.max_copies = 3 * n_groups - lack; /* two blocks and one sample */
        scoped_sched_world s = world_of(&cache_config, &config);
        kvp_request a, b;
        start_both(&s, &a, &b);
        const kvp_step step = run_step(&s);
        assert_fields(step, n_preempted, lack, n_swapped_out, !lack);
        run_until_over(&s, 2);
    }
}

/* A prompt that is computed in chunks goes on where it was; what its samples will need is promised
 * anew when it comes back. */
static void check_prompt_under_way(uint32_t n_groups)
{
    kvp_config cache_config = host_config(12 * n_groups, 16 * n_groups);
    cache_config.n_groups = n_groups;
    kvp_sched_config config = swap_config();
    config.chunk_tokens = 4;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 4, 20);
    (void)run_step(&s);
    const kvp_request b = submit_rank(&s, 100, 18, 4, 0, 3);
    kvp_step step = run_step(&s); /* for each group a has 2 blocks, b 5 */
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 2 * n_groups);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, b));
    const kvp_request c = submit(&s, 200, 16, 1); /* 4 of 5, two of them promised */
    step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(step.admitted[0].bits, c.bits);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 0);
    assert_int_equal(sample_of(&s, b, 0).computed_tokens, 8);
    assert_int_equal(stats_of(&s.w).host_held_blocks,
                     2 * n_groups); /* what is not computed has no KV */
    assert_ok(kvp_sched_resume(s.sched, b));
    step = run_step(&s); /* 5 of 6, and two to be promised */
    assert_int_equal(step.waited_swapped[KVP_WAIT_BLOCKS], 1);
    assert_ok(kvp_sched_abort(s.sched, a));
    step = make_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 2 * n_groups);
    assert_int_equal(item_of(&step, b, 0)->begin, 8);
    (void)finish_step(&s, &step);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 0);
}

TEST(test_prompt_under_way)
{
    check_prompt_under_way(1);
    check_prompt_under_way(2); /* blocks are promised in each group */
}

/* A block that samples share is one block on the host, and again one when they come back. */
TEST(test_group_keeps_what_it_shares)
{
    scoped_sched_world s = swap_world(12, 16);
    const kvp_request a = submit(&s, 1, 8, 16);
    const kvp_request group = submit_rank(&s, 100, 8, 8, 0, 4);
    for (int i = 0; i < 5; i++)
        (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, group));
    (void)submit(&s, 200, 16, 1); /* 4 of 3 */
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, group.bits);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 2 + 4);
    assert_int_equal(sched_stats_of(&s).swapped_seqs, 4);
    assert_ok(kvp_sched_resume(s.sched, group));
    assert_ok(kvp_sched_pause(s.sched, a));
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_int_equal(step.swapped_out[0].bits, a.bits); /* paused, and in the way */
    assert_int_equal(step.n_decoding, 4);
    assert_int_equal(stats_of(&s.w).held_blocks, 2 + 4 + 4);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(row_entry(&s.w, sample_of(&s, group, i).seq, 1),
                         row_entry(&s.w, sample_of(&s, group, 0).seq, 1));
    }
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 3);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 0);
}

/* ---------------------------------------------------------------------------------------- order */

/* Whatever the priorities. */
TEST(test_swapped_before_waiting)
{
    scoped_sched_world s = swap_world(4, 8);
    kvp_request a, b;
    start_both(&s, &a, &b);
    (void)run_step(&s);
    const kvp_request c = submit_rank(&s, 200, 12, 4, -1, 1);
    assert_ok(kvp_sched_abort(s.sched, a));
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_int_equal(step.swapped_in[0].bits, b.bits);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(request_of(&s, c).state, KVP_REQUEST_WAITING);
    run_until_over(&s, 2);
}

/* Both on the host: who ranks first comes back first. */
TEST(test_swapped_in_by_rank)
{
    scoped_sched_world s = swap_world(6, 16);
    const kvp_request a = submit_rank(&s, 1, 8, 9, -1, 1);
    const kvp_request b = submit_rank(&s, 100, 8, 4, 1, 1);
    const kvp_request c = submit_rank(&s, 200, 8, 4, 0, 1);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, b));
    assert_ok(kvp_sched_pause(s.sched, c));
    kvp_step step = run_step(&s); /* a needs a block */
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    const kvp_request d = submit(&s, 300, 11, 1);
    step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, c.bits);
    assert_int_equal(step.admitted[0].bits, d.bits);
    assert_ok(kvp_sched_resume(s.sched, b));
    assert_ok(kvp_sched_resume(s.sched, c));
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_int_equal(step.swapped_in[0].bits, c.bits);
    assert_int_equal(step.waited_swapped[KVP_WAIT_BLOCKS], 1);
    assert_ok(kvp_sched_abort(s.sched, a));
    step = run_step(&s);
    assert_int_equal(step.swapped_in[0].bits, b.bits);
    run_until_over(&s, 3);
}

/* One on the host that does not fit is passed over K times, by whomever; then everybody waits. */
TEST(test_passed_over_at_most_k_times)
{
    const kvp_config cache_config = host_config(8, 16);
    kvp_sched_config config = swap_config();
    config.max_passed_over = 2;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 12, 20);
    const kvp_request b = submit(&s, 100, 15, 8);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, b));
    const kvp_request c = submit(&s, 200, 8, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    assert_int_equal(step.admitted[0].bits, c.bits);
    assert_ok(kvp_sched_resume(s.sched, b)); /* needs 4 of 4; but see d */
    for (int32_t i = 0; i < 3; i++)
        (void)submit_rank(&s, 300 + 10 * i, 4, 9, -1, 1);
    const kvp_seq mine = open_seq(&s.w, ints(500), 4, NULL);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 2);
    assert_int_equal(request_of(&s, b).passed_over, 2);
    assert_int_equal(step.waited[KVP_WAIT_ORDER], 1);
    (void)close_seq(&s.w, mine);
    step = run_step(&s); /* one would fit */
    assert_fields(step, n_admitted, 0, waited_swapped[KVP_WAIT_BLOCKS], 1, waited[KVP_WAIT_ORDER],
                  1);
    assert_ok(kvp_sched_abort(s.sched, a));
    do {
        assert_true(step.number < 30);
        step = make_step(&s);
        assert_true(step.n_admitted == 0 || step.n_swapped_in == 1);
        (void)finish_step(&s, &step);
    } while (step.n_swapped_in == 0);
    assert_int_equal(request_of(&s, b).passed_over, 0);
    run_until_over(&s, 5);
}

TEST(test_watermark_is_kept)
{
    kvp_config cache_config = host_config(10, 16);
    cache_config.watermark = 0.2; /* two blocks */
    const kvp_sched_config config = swap_config();
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 17, 10);   /* 5 blocks */
    const kvp_request b = submit(&s, 100, 10, 12); /* 3 */
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, b));
    const kvp_request c = submit(&s, 200, 9, 2);
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    assert_int_equal(step.admitted[0].bits, c.bits);
    assert_ok(kvp_sched_resume(s.sched, b));
    assert_ok(kvp_sched_abort(s.sched, c)); /* 5 are left: three and two */
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_ok(kvp_sched_pause(s.sched, b));
    const kvp_request d = submit(&s, 300, 9, 2);
    step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    assert_ok(kvp_sched_resume(s.sched, b));
    assert_ok(kvp_sched_abort(s.sched, d));
    const kvp_seq mine = open_seq(&s.w, ints(500), 4, NULL); /* 4 are left */
    step = run_step(&s);
    assert_fields(step, n_swapped_in, 0, waited_swapped[KVP_WAIT_BLOCKS], 1);
    (void)close_seq(&s.w, mine);
    assert_ok(kvp_sched_abort(s.sched, a));
    run_until_over(&s, 1);
}

TEST(test_short_of_places)
{
    const kvp_config cache_config = host_config(8, 16);
    kvp_sched_config config = swap_config();
    config.max_running = 2;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit_rank(&s, 1, 4, 9, 0, 2);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    const kvp_request b = submit_rank(&s, 100, 4, 9, 0, 2);
    kvp_step step = run_step(&s); /* it gives up its places */
    assert_int_equal(step.swapped_out[0].bits, a.bits);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_ok(kvp_sched_resume(s.sched, a));
    step = run_step(&s);
    assert_int_equal(step.waited_swapped[KVP_WAIT_SEQS], 1);
    run_until_over(&s, 2);
}

/* Copies that wait leave no room for the way back: it waits, and nothing else happens. */
TEST(test_plan_full)
{
    kvp_config cache_config = host_config(8, 16);
    cache_config.max_copies = 4;
    kvp_sched_config config = swap_config();
    config.max_running = 4;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 12, 9);
    (void)run_step(&s);
    const kvp_seq mine = open_seq(&s.w, ints(500), 3, NULL);
    assert_ok(kvp_seq_commit(s.w.cache, mine, 3));
    assert_ok(kvp_sched_pause(s.sched, a));
    const kvp_request b = submit(&s, 100, 20, 1); /* 5 of 4 */
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, a.bits);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_ok(kvp_sched_resume(s.sched, a));
    kvp_seq forks[2];
    for (int i = 0; i < 2; i++) {
        forks[i] = fork_seq(&s.w, mine, 3);
        assert_ok(kvp_seq_extend(s.w.cache, forks[i], ints(9), 1, 0)); /* a copy each */
    }
    kvp_step made;
    assert_ok(kvp_sched_step(s.sched, &made)); /* three copies, and there is room for two */
    assert_fields(made, n_swapped_in, 0, n_seqs, 0, waited_swapped[KVP_WAIT_PLAN], 1);
    kvp_copy copies[8];
    assert_int_equal(take_plan(&s.w, copies, 8), 2);
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    for (int i = 0; i < 2; i++)
        (void)close_seq(&s.w, forks[i]);
    (void)close_seq(&s.w, mine);
    run_until_over(&s, 2);
}

/* It has come back, and there is no room in the plan for what it computes next: it is left out, and
 * nobody is admitted. (A group that is catching up: its second sample must copy a block on write.)
 * */
TEST(test_left_out_on_the_way_in)
{
    kvp_config cache_config = host_config(16, 32);
    cache_config.max_copies = 7; /* five entries of its rows, two samples */
    cache_config.keep_evicted = 0;
    kvp_sched_config config = swap_config();
    config.max_running = 4;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request r = submit_rank(&s, 1, 6, 12, 0, 2);
    for (int i = 0; i < 5; i++)
        (void)run_step(&s);
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    (void)run_step(&s); /* the first sample is there, the second is forked at the prompt's end */
    assert_ok(kvp_sched_pause(s.sched, r));
    (void)submit(&s, 100, 56, 1);
    kvp_step step = run_step(&s);
    assert_fields(step, n_swapped_out, 1, n_admitted, 1);
    assert_ok(kvp_sched_resume(s.sched, r));
    const kvp_request small = submit(&s, 200, 3, 2);
    kvp_seq own[5] = {open_seq(&s.w, ints(500), 3, NULL)};
    assert_ok(kvp_seq_commit(s.w.cache, own[0], 3));
    for (int i = 1; i < 5; i++) {
        own[i] = fork_seq(&s.w, own[0], 3);
        assert_ok(kvp_seq_extend(s.w.cache, own[i], ints(9), 1, 0)); /* a copy each */
    }
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_int_equal(s.n_copies, 7);
    assert_fields(step, n_left_out, 1, n_seqs, 0, waited[KVP_WAIT_PREEMPTION], 1);
    assert_int_equal(request_of(&s, r).state, KVP_REQUEST_RUNNING);
    step = make_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, small.bits);
    assert_int_equal(item_of(&step, r, 1)->begin, 6);
    (void)finish_step(&s, &step);
    for (int i = 0; i < 5; i++)
        (void)close_seq(&s.w, own[i]);
    run_until_over(&s, 3);
}

/* A group that catches up comes back when there is room for what its samples take at once in each
 * layer group: the block in which the prompt ends, and the next one. */
static void check_at_once(uint32_t n_groups, uint32_t lack)
{
    kvp_config cache_config = host_config((3 + 2 * 2 + 1) * n_groups - lack, 32);
    cache_config.n_groups = n_groups;
    cache_config.keep_evicted = 0;
    const kvp_sched_config config = swap_config();
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request r = submit_rank(&s, 1, 6, 6, 0, 3);
    for (int i = 0; i < 5; i++)
        (void)run_step(&s);
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    (void)run_step(&s); /* the first sample is there, the others are forked at the prompt's end */
    assert_ok(kvp_sched_pause(s.sched, r));
    (void)submit(&s, 100, 27, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 1);
    const kvp_seq own = open_seq(&s.w, ints(500), 3, NULL); /* a block of each group */
    assert_ok(kvp_sched_resume(s.sched, r));
    step = run_step(&s);
    assert_fields(step, n_swapped_in, !lack, waited_swapped[KVP_WAIT_BLOCKS], lack, n_left_out, 0);
    (void)close_seq(&s.w, own);
    run_until_over(&s, 2);
}

TEST(test_what_a_group_takes_at_once)
{
    for (uint32_t i = 0; i < 6; i++)
        check_at_once(1 + i / 2, i % 2);
}

/* --------------------------------------------------------------------------------------- paused */

TEST(test_paused_stays_on_the_host)
{
    scoped_sched_world s = swap_world(4, 8);
    kvp_request a, b;
    start_both(&s, &a, &b);
    assert_ok(kvp_sched_pause(s.sched, a));
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, a.bits);
    kvp_request_info info = request_of(&s, a);
    assert_int_equal(info.state, KVP_REQUEST_PAUSED);
    assert_true(info.is_swapped && !info.holds_blocks);
    assert_int_equal(step.waited_swapped[KVP_WAIT_PREEMPTION], 0); /* it wants nothing */
    run_until_over(&s, 1);
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_SWAPPED);
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_PAUSED);
    assert_int_equal(run_step(&s).n_swapped_in, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_int_equal(run_step(&s).n_swapped_in, 1);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 0);
}

/* The cache's sequences run short: paused requests on the host give theirs up, last in rank first,
 * if that helps. */
TEST(test_sequences_run_short)
{
    kvp_config cache_config = host_config(6, 16);
    cache_config.max_seqs = 4;
    kvp_sched_config config = swap_config();
    config.max_running = 4;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 12, 4);
    const kvp_request b = submit(&s, 100, 12, 4);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    assert_ok(kvp_sched_pause(s.sched, b));
    const kvp_request c = submit(&s, 200, 20, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 2);
    assert_int_equal(step.admitted[0].bits, c.bits);
    (void)submit_rank(&s, 300, 4, 1, 0, 4);
    step = run_step(&s);
    assert_int_equal(step.n_preempted, 2);
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_int_equal(step.preempted[1].bits, a.bits);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_PAUSED);
    assert_false(request_of(&s, a).is_swapped);
    assert_int_equal(stats_of(&s.w).host_held_blocks, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_ok(kvp_sched_resume(s.sched, b));
    run_until_over(&s, 4);
}

/* Those that are not paused give nothing up: who waits, waits. */
TEST(test_sequences_of_swapped_ones_are_kept)
{
    kvp_config cache_config = host_config(4, 16);
    cache_config.max_seqs = 2;
    kvp_sched_config config = swap_config();
    config.max_running = 2;
    scoped_sched_world s = world_of(&cache_config, &config);
    kvp_request a, b;
    start_both(&s, &a, &b);
    (void)submit_rank(&s, 300, 1, 1, -1, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_SEQS], 1); /* a block would be there */
    assert_int_equal(step.n_preempted, 0);
    run_until_over(&s, 3);
}

/* --------------------------------------------------------------------------------------- prices */

/* The header's first example: swap costs 500, recompute is of 64 tokens. */
static kvp_step preempt_example(uint64_t recompute_cost, uint64_t token_cost)
{
    kvp_config cache_config = config_of(16, 16, 16);
    cache_config.host_blocks = 64;
    cache_config.max_seqs = 16;
    kvp_sched_config config = sched_config_of(8, 256);
    config.preempt = KVP_PREEMPT_CHEAPER;
    config.swap_cost = 20;
    config.swap_block_cost = 80;
    config.recompute_cost = recompute_cost;
    config.recompute_token_cost = token_cost;
    sched_world s = world_of(&cache_config, &config);
    (void)submit(&s, 1, 17, 30); /* holds the block of tokens 1..16, too */
    (void)run_step(&s);
    const kvp_request victim = submit_rank(&s, 1, 40, 40, 0, 2);
    for (int i = 0; i < 21; i++)
        (void)run_step(&s);
    assert_int_equal(sample_of(&s, victim, 1).computed_tokens, 60);
    assert_int_equal(stats_of(&s.w).held_blocks, 6 + 3 - 1);
    assert_ok(kvp_sched_pause(s.sched, victim));
    (void)submit(&s, 1000, 12 * 16, 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    end_sched_world(&s);
    return step;
}

TEST(test_prices_of_the_example)
{
    assert_int_equal(preempt_example(0, 40).n_swapped_out, 1);
    assert_int_equal(preempt_example(500 - 64, 1).n_swapped_out, 1); /* equal */
    assert_int_equal(preempt_example(499 - 64, 1).n_preempted, 1);
    assert_int_equal(preempt_example(500 - 7 * 64, 7).n_swapped_out, 1);
    assert_int_equal(preempt_example(499 - 7 * 64, 7).n_preempted, 1);
    assert_int_equal(preempt_example(UINT64_MAX, UINT64_MAX).n_swapped_out, 1);
}

/* The second one: 17 tokens, of which 16 are shared: two blocks, or one token. */
TEST(test_prices_of_a_short_one)
{
    for (uint64_t token_cost = 179; token_cost <= 180; token_cost++) {
        kvp_config cache_config = config_of(16, 16, 4);
        cache_config.host_blocks = 64;
        kvp_sched_config config = sched_config_of(8, 256);
        config.preempt = KVP_PREEMPT_CHEAPER;
        config.swap_cost = 20;
        config.swap_block_cost = 80;
        config.recompute_token_cost = token_cost;
        scoped_sched_world s = world_of(&cache_config, &config);
        (void)submit(&s, 1, 17, 30);
        (void)run_step(&s);
        const kvp_request victim = submit(&s, 1, 17, 4);
        (void)run_step(&s);
        assert_ok(kvp_sched_pause(s.sched, victim));
        (void)submit(&s, 1000, 32, 1);
        const kvp_step step = run_step(&s);
        assert_fields(step, n_preempted, token_cost == 179, n_swapped_out, token_cost == 180);
    }
}

/* Who was out before has most of it on the host still: only what is new costs. */
TEST(test_prices_count_copies)
{
    const kvp_config cache_config = host_config(8, 32);
    kvp_sched_config config = swap_config();
    config.preempt = KVP_PREEMPT_CHEAPER;
    config.swap_block_cost = 10;
    config.recompute_token_cost = 2;
    scoped_sched_world s = world_of(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 20, 12);
    for (int i = 0; i < 3; i++) {
        (void)run_step(&s);
        (void)run_step(&s);
        const uint64_t n_copied = sched_stats_of(&s).swapped_out_blocks;
        assert_ok(kvp_sched_pause(s.sched, a));
        const kvp_request big = submit(&s, 1000 + 100 * i, 28, 1);
        const kvp_step step = run_step(&s);
        /* 6 blocks for 60, or 21 tokens for 42; later the last block or two for 20 at most */
        assert_fields(step, n_preempted, i == 0, n_swapped_out, i > 0);
        assert_true(sched_stats_of(&s).swapped_out_blocks - n_copied <= 2);
        assert_int_equal(step.admitted[0].bits, big.bits);
        assert_ok(kvp_sched_resume(s.sched, a));
    }
    run_until_over(&s, 4);
}

/* -------------------------------------------------------------------------------- ahead of need */

static kvp_sched_config ahead_config(void)
{
    kvp_sched_config config = sched_config_of(8, 64);
    config.swap_ahead = 1;
    return config;
}

TEST(test_ahead_of_need)
{
    kvp_config cache_config = host_config(10, 16);
    cache_config.watermark = 0.3; /* three blocks */
    const kvp_sched_config config = ahead_config();
    scoped_sched_world s = world_of(&cache_config, &config);
    (void)submit(&s, 1, 8, 12);
    const kvp_request b = submit(&s, 100, 8, 12);
    const kvp_request c = submit(&s, 200, 8, 12);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 3); /* 4 blocks are left */
    step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 0);
    step = run_step(&s); /* one is left */
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(step.swapped_out[0].bits, c.bits);
    assert_int_equal(step.n_decoding, 2);
    assert_fields(sched_stats_of(&s), swapped_ahead, 1, preemptions, 1);
    step = run_step(&s); /* 4 are: enough, but not for c */
    assert_fields(step, n_swapped_out, 0, waited_swapped[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(request_of(&s, b).swaps, 0);
    run_until_over(&s, 3);
}

/* Never the first in rank; paused ones first; and nothing when the host is full. */
TEST(test_ahead_whom)
{
    for (uint32_t host = 1; host <= 8; host += 7) {
        kvp_config cache_config = host_config(10, host);
        cache_config.watermark = 0.5;
        const kvp_sched_config config = ahead_config();
        scoped_sched_world s = world_of(&cache_config, &config);
        const kvp_request a = submit(&s, 1, 11, 20);
        (void)run_step(&s);
        const kvp_request b = submit_rank(&s, 100, 7, 25, -1, 1);
        assert_int_equal(run_step(&s).n_admitted, 1);
        assert_ok(kvp_sched_pause(s.sched, a));
        assert_int_equal(run_step(&s).n_swapped_out, 0);
        assert_int_equal(run_step(&s).n_swapped_out, 0); /* 4 are left after it */
        const kvp_step step = run_step(&s);
        assert_int_equal(step.n_swapped_out, host == 8);
        assert_true(host == 1 || step.swapped_out[0].bits == a.bits);
        for (int i = 0; i < 20; i++) /* b goes on alone, far below the watermark in the end */
            assert_int_equal(run_step(&s).n_swapped_out, 0);
        assert_int_equal(request_of(&s, b).preemptions, 0);
        assert_int_equal(sample_of(&s, b, 0).n_tokens, 7 + 24);
    }
}

TEST_MAIN(NULL, NULL)

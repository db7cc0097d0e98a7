/* Requests that need not wait for long: others make way for them (config.make_way), and a long
 * prompt leaves them a part of each step (KVP_SCHED_CHUNK_HALF). */
#include "sched_world.h"

enum { PLACES = 2, LONG = 1000 };

static sched_world way_world(uint32_t max_seqs, uint32_t host, uint32_t preempt)
{
    kvp_config cache_config = config_of(4, 4, 200);
    kvp_sched_config config = sched_config_of(PLACES, 64);
    cache_config.max_seqs = max_seqs;
    cache_config.max_seq_tokens = LONG;
    cache_config.host_blocks = host;
    config.preempt = preempt;
    config.make_way = 1;
    return make_reading_world(&cache_config, &config);
}

/* All places are taken, for hundreds of steps, by requests of priority 5. */
static void fill_places(sched_world *s, kvp_request *a, kvp_request *b)
{
    *a = submit_rank(s, 1, 8, 300, 5, 1);
    *b = submit_rank(s, 100, 8, 300, 5, 1);
    (void)run_step(s);
    (void)run_step(s);
}

TEST(test_the_last_in_rank_makes_way)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    kvp_request a, b;
    fill_places(&s, &a, &b);
    const kvp_request urgent = submit_rank(&s, 200, 9, 2, 4, 1);
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, urgent.bits);
    assert_int_equal(item_of(&step, urgent, 0)->n_tokens, 9); /* its whole prompt, in this step */
    assert_non_null(item_of(&step, a, 0));
    assert_int_equal(step.waited[KVP_WAIT_PREEMPTION], 1);
    (void)finish_step(&s, &step);
    step = run_step(&s); /* no place for b */
    assert_int_equal(step.waited[KVP_WAIT_SEQS], 1);
    step = run_step(&s); /* the urgent one has ended */
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_int_equal(request_of(&s, b).preemptions, 1);
}

TEST(test_nobody_makes_way_within_a_priority)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    kvp_request a, b;
    fill_places(&s, &a, &b);
    (void)submit_rank(&s, 200, 9, 2, 5, 1);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 0, waited[KVP_WAIT_SEQS], 1);
}

/* Without the option it waits for an end. */
TEST(test_by_default_it_waits)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    assert_int_equal(config.make_way, 0);
    const kvp_config cache_config = config_of(4, 4, 200);
    config = sched_config_of(PLACES, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_request a, b;
    a = submit_rank(&s, 1, 8, 30, 5, 1);
    b = submit_rank(&s, 100, 8, 30, 5, 1);
    (void)run_step(&s);
    const kvp_request urgent = submit_rank(&s, 200, 9, 2, 4, 1);
    for (uint32_t i = 0; i < 29; i++)
        assert_int_equal(run_step(&s).n_admitted, 0);
    assert_int_equal(run_step(&s).admitted[0].bits, urgent.bits);
    (void)a;
    (void)b;
}

/* Two places are needed, and one may be had: nobody is preempted in vain. */
TEST(test_nobody_is_preempted_in_vain)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    (void)submit_rank(&s, 1, 8, 300, 1, 1);
    const kvp_request low = submit_rank(&s, 100, 8, 300, 5, 1);
    (void)run_step(&s);
    (void)submit_rank(&s, 200, 9, 2, 2, 2);
    assert_int_equal(run_step(&s).n_preempted, 0);
    const kvp_request one = submit_rank(&s, 300, 9, 2, 0, 1); /* first in rank: the other waits */
    kvp_step step = run_step(&s);
    assert_int_equal(step.preempted[0].bits, low.bits);
    assert_int_equal(step.admitted[0].bits, one.bits);
}

TEST(test_blocks_are_not_taken_from_those_that_run)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    (void)submit_rank(&s, 1, 700, 20, 5, 1); /* 175 blocks of 200 */
    (void)submit_rank(&s, 1000, 8, 300, 5, 1);
    for (uint32_t i = 0; i < 14; i++)
        (void)run_step(&s);
    (void)submit_rank(&s, 2000, 300, 2, 0, 1);
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 0, waited[KVP_WAIT_SEQS], 1);
}

/* Paused requests go first, whatever their priority. */
TEST(test_paused_ones_go_first)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    const kvp_request a = submit_rank(&s, 1, 8, 300, 0, 1);
    const kvp_request b = submit_rank(&s, 100, 8, 300, 5, 1);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    (void)submit_rank(&s, 200, 9, 2, 4, 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.preempted[0].bits, a.bits);
    assert_non_null(item_of(&step, b, 0));
}

TEST(test_swapped_ones_stay_behind)
{
    scoped_sched_world s = way_world(8, 100, KVP_PREEMPT_SWAP);
    kvp_request a, b;
    fill_places(&s, &a, &b);
    (void)submit_rank(&s, 200, 9, 4, 4, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 1);
    assert_int_equal(step.swapped_out[0].bits, b.bits);
    const kvp_request second = submit_rank(&s, 300, 9, 4, 3, 1);
    step = run_step(&s);
    assert_int_equal(step.swapped_out[0].bits, a.bits);
    assert_int_equal(step.admitted[0].bits, second.bits);
    assert_int_equal(sched_stats_of(&s).passed_over, 0);
    step = run_step(&s); /* both urgent ones run, nobody comes back */
    assert_fields(step, n_swapped_in, 0, n_decoding, 2);
    for (uint32_t i = 0; i < 4; i++)
        step = run_step(&s);
    assert_int_equal(request_of(&s, a).state, KVP_REQUEST_RUNNING);
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_RUNNING);
}

/* As many sequences as places: what is swapped keeps one, so who makes way is closed. */
TEST(test_without_sequences_they_are_closed)
{
    scoped_sched_world s = way_world(PLACES, 100, KVP_PREEMPT_SWAP);
    kvp_request a, b;
    fill_places(&s, &a, &b);
    const kvp_request urgent = submit_rank(&s, 200, 9, 4, 4, 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 0);
    assert_int_equal(step.preempted[0].bits, b.bits);
    assert_int_equal(step.admitted[0].bits, urgent.bits);
}

/* Several come in at once, each for one of those behind it. */
TEST(test_all_that_are_urgent_come_in)
{
    scoped_sched_world s = way_world(8, 0, KVP_PREEMPT_RECOMPUTE);
    kvp_request a, b;
    fill_places(&s, &a, &b);
    (void)submit_rank(&s, 200, 5, 4, 4, 1);
    (void)submit_rank(&s, 300, 5, 4, 3, 1);
    (void)submit_rank(&s, 400, 5, 4, 4, 1); /* there are two places */
    const kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 2, n_preempted, 2, n_seqs, 2, waited[KVP_WAIT_PREEMPTION], 3);
    run_until_over(&s, 5);
}

/* --------------------------------------------------------------------------------------- chunks */

TEST(test_a_long_prompt_leaves_half_of_each_step)
{
    kvp_config cache_config = config_of(4, 4, 300);
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    assert_int_equal(config.chunk_tokens, KVP_SCHED_CHUNK_HALF);
    config = sched_config_of(8, 65);
    cache_config.max_seq_tokens = LONG;
    config.chunk_tokens = KVP_SCHED_CHUNK_HALF;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request first = submit(&s, 1, 900, 2);
    kvp_step step = make_step(&s);
    assert_int_equal(item_of(&step, first, 0)->n_tokens, 33); /* rounded up */
    (void)finish_step(&s, &step);
    const kvp_request second = submit(&s, 2000, 20, 2);
    step = make_step(&s);
    assert_int_equal(item_of(&step, first, 0)->n_tokens, 33);
    assert_fields(*item_of(&step, second, 0), n_tokens, 20, n_sampled, 1);
}

TEST_MAIN(NULL, NULL)

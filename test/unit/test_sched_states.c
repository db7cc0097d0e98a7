/* The scheduler over a cache with recurrent state (states.h): where chunks end, what is kept and
 * hit, slots that are promised, lacked and given up. Every step runs on slots that know what they
 * hold. */
#include "sched_world.h"
#include "slots.h"

enum { S = 4 };

static sched_world states_world(uint32_t usable_slots, uint32_t wait_for_prefix)
{
    kvp_config cache_config = config_of(S, S, 64);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = usable_slots + 1;
    config.wait_for_prefix = wait_for_prefix;
    return make_reading_world(&cache_config, &config);
}

/* A prompt of 0, 1, ... up to `common`, then tokens of its own. */
static kvp_request submit_branch(sched_world *s, uint32_t common, uint32_t n, int32_t own)
{
    int32_t tokens[64];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)i + (i < common ? 0 : own);
    const kvp_prompt prompt = prompt_of(tokens, n);
    const kvp_submission submission = {
        .struct_size = sizeof(submission), .prompt = &prompt, .ns = s->w.ns, .max_new_tokens = 3};
    return submit_with(s, &submission);
}

/* Run a step, in which the request computes n tokens from `begin` on. */
static kvp_step run_chunk(sched_world *s, kvp_request request, uint32_t begin, uint32_t n)
{
    const kvp_step step = make_step(s);
    const kvp_step_seq *item = item_of(&step, request, 0);
    assert_non_null(item);
    assert_fields(*item, begin, begin, n_tokens, n);
    (void)finish_step(s, &step);
    return step;
}

/* ------------------------------------------------------------------------- chunks, checkpoints */

TEST(test_a_prompt_stops_at_its_last_unit_and_is_hit_there)
{
    scoped_sched_world s = states_world(8, 0);
    const kvp_request a = submit(&s, 0, 10, 3);
    kvp_step step = run_chunk(&s, a, 0, 8);
    assert_int_equal(step.n_sampled, 0);
    assert_int_equal(slots_of(&s.w).made, 1);
    step = run_chunk(&s, a, 8, 2);
    assert_int_equal(step.n_sampled, 1);
    const kvp_request b = submit(&s, 0, 10, 3);
    (void)run_chunk(&s, b, 8, 2);
    run_until_over(&s, 2);
    assert_fields(slots_of(&s.w), made, 1, hits, 1);
    assert_int_equal(sched_stats_of(&s).checkpoints, 1);
    assert_int_equal(slots_of(&s.w).held_slots, 0);
}

/* The second prompt leaves the path of the first, and leaves a state there for the third. */
TEST(test_the_second_prompt_stops_at_the_branch)
{
    scoped_sched_world s = states_world(12, 0);
    (void)submit_branch(&s, 8, 22, 100);
    run_until_over(&s, 1);
    const kvp_request b = submit_branch(&s, 8, 22, 200);
    (void)run_chunk(&s, b, 0, 8);
    (void)run_chunk(&s, b, 8, 12);
    (void)run_chunk(&s, b, 20, 2);
    const kvp_request c = submit_branch(&s, 8, 22, 300);
    (void)run_chunk(&s, c, 8, 12);
    run_until_over(&s, 3);
}

TEST(test_a_short_chunk_reaches_no_place)
{
    kvp_config cache_config = config_of(S, S, 64);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = 9;
    config.chunk_tokens = 3;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 0, 10, 1);
    const uint32_t ends[] = {3, 6, 8, 10};
    for (uint32_t i = 0; i < 4; i++) {
        (void)run_chunk(&s, a, i == 0 ? 0 : ends[i - 1], ends[i] - (i == 0 ? 0 : ends[i - 1]));
        assert_int_equal(slots_of(&s.w).made, i >= 2);
    }
}

/* -------------------------------------------------------------------------------------- slots */

TEST(test_slots_of_samples_are_promised)
{
    scoped_sched_world s = states_world(3, 0);
    (void)submit_rank(&s, 0, 6, 3, 0, 2);
    const kvp_request b = submit(&s, 100, 6, 3);
    kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 1, waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 2);
    assert_int_equal(sched_stats_of(&s).checkpoints, 0); /* at 4: the slot is promised */
    assert_int_equal(sched_stats_of(&s).skipped_checkpoints, 1);
    run_until_over(&s, 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    assert_int_equal(request_of(&s, b).preemptions, 0);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

TEST(test_with_a_slot_more_both_come_in)
{
    scoped_sched_world s = states_world(4, 0);
    (void)submit_rank(&s, 0, 6, 3, 0, 2);
    (void)submit(&s, 100, 6, 3);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 2);
    assert_int_equal(sched_stats_of(&s).checkpoints, 0); /* both would take what is promised */
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

TEST(test_more_beams_than_slots_are_never_served)
{
    static const struct {
        uint32_t n, usable;
        kvp_status status;
    } cases[] = {{1, 1, KVP_OK}, {2, 2, KVP_E_NEVER}, {2, 3, KVP_OK}, {3, 3, KVP_E_NEVER},
                 {3, 4, KVP_OK}, {4, 5, KVP_E_NEVER}, {4, 6, KVP_OK}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        scoped_sched_world s = states_world(cases[i].usable, 0);
        const kvp_prompt prompt = prompt_of(ints(0), 6);
        const kvp_submission submission = {.struct_size = sizeof(submission),
                                           .prompt = &prompt,
                                           .ns = s.w.ns,
                                           .n_samples = cases[i].n,
                                           .max_new_tokens = 4};
        kvp_sched_limit limit;
        kvp_request request;
        assert_status(cases[i].status, kvp_sched_submit(s.sched, &submission, &request, &limit));
        assert_int_equal(limit.max_tokens > 0, cases[i].status == KVP_OK);
        assert_int_equal(limit.max_prompt_tokens > 0, cases[i].status == KVP_OK);
    }
}

/* Beams of one parent take slots while they read the parent's: the largest number that a request
 * may have. Whoever ranks behind it gives way. */
TEST(test_beams_take_a_victim_for_slots)
{
    static const uint32_t parents[] = {0, 0};
    scoped_sched_world s = states_world(4, 0);
    const kvp_request a = submit_rank(&s, 0, 3, 6, 0, 2);
    (void)run_step(&s);
    (void)submit(&s, 100, 3, 6);
    const kvp_request c = submit(&s, 200, 3, 6);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted,
                     1); /* both beams read the prompt's slot and write their own */
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(slots_of(&s.w).free_slots, 0);
    assert_ok(kvp_sched_reorder(s.sched, a, parents, NULL));
    step = run_step(&s);
    assert_int_equal(step.n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, c.bits);
    assert_int_equal(request_of(&s, a).preemptions, 0);
    run_until_over(&s, 3);
}

/* Two equal prompts share every block once they are computed, but no slot. Either is a victim for
 * slots, for a request that is not the first in rank. */
TEST(test_a_victim_for_slots_need_not_release_a_block)
{
    static const uint32_t parents[] = {0, 0};
    scoped_sched_world s = states_world(5, 0);
    (void)submit_rank(&s, 300, 3, 20, -1, 1);
    const kvp_request c = submit_rank(&s, 0, 3, 20, 0, 2);
    (void)run_step(&s);
    (void)run_step(&s);
    (void)submit_rank(&s, 100, 8, 6, 1, 1);
    const kvp_request b = submit_rank(&s, 100, 8, 6, 1, 1);
    const kvp_step both = run_step(&s);
    assert_int_equal(both.n_admitted, 2);
    (void)run_step(&s);
    assert_ok(kvp_sched_reorder(s.sched, c, parents, NULL));
    const kvp_step step = run_step(&s);
    assert_fields(step, n_left_out, 0, n_preempted, 1);
    assert_int_equal(step.preempted[0].bits, b.bits);
    run_until_over(&s, 4);
}

/* Three slots, all there: a checkpoint that is hit would be one too many for two samples. */
TEST(test_a_hit_that_makes_the_request_not_fit_is_given_up)
{
    scoped_sched_world s = states_world(3, 0);
    (void)submit(&s, 0, 10, 3);
    run_until_over(&s, 1);
    assert_int_equal(slots_of(&s.w).cached_slots, 1);
    const kvp_request b = submit_rank(&s, 0, 10, 3, 0, 2);
    (void)run_chunk(&s, b, 0, 8);
    assert_int_equal(slots_of(&s.w).hits, 0);
    run_until_over(&s, 2);
}

TEST(test_samples_come_back_through_their_prompt)
{
    scoped_sched_world s = states_world(6, 0);
    const kvp_request a = submit_rank(&s, 0, 10, 8, 0, 3);
    for (uint32_t i = 0; i < 4; i++)
        (void)run_step(&s);
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_seqs, 3);
    assert_ok(kvp_sched_fail(s.sched));
    assert_int_equal(request_of(&s, a).preemptions, 1);
    step = run_chunk(&s, a, 8, 2); /* the state after 8 tokens was kept */
    assert_int_equal(step.n_sampled, 0);
    run_until_over(&s, 1);
    assert_int_equal(sched_stats_of(&s).preemptions, 1);
}

/* ----------------------------------------------------------------------------- who follows whom */

TEST(test_an_equal_prompt_waits_for_the_checkpoint)
{
    scoped_sched_world s = states_world(8, 1);
    (void)submit(&s, 0, 10, 3);
    const kvp_request b = submit(&s, 0, 10, 3);
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_PREFIX], 1);
    (void)run_chunk(&s, b, 8, 2);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).followed, 1);
}

/* No state will be left in what the two have in common. */
TEST(test_nobody_waits_for_a_state_that_is_not_kept)
{
    scoped_sched_world s = states_world(8, 1);
    (void)submit_branch(&s, 8, 14, 100);
    const kvp_request b = submit_branch(&s, 8, 14, 200);
    const kvp_step step = run_chunk(&s, b, 0, 8);
    assert_int_equal(step.waited[KVP_WAIT_PREFIX], 0);
    run_until_over(&s, 2);
}

/* ------------------------------------------------------------------------------- kvp_state_need */

static uint32_t need_of(sched_world *s, const int32_t *tokens, uint32_t n)
{
    const kvp_prompt prompt = prompt_of(tokens, n);
    uint32_t need = 77;
    assert_ok(kvp_state_need(s->w.cache, s->w.ns, &prompt, &need));
    return need;
}

TEST(test_what_an_open_needs)
{
    sched_world s = states_world(8, 0);
    assert_int_equal(need_of(&s, NULL, 0), 0);
    assert_int_equal(need_of(&s, ints(0), 10), 1);
    (void)submit(&s, 0, 10, 3);
    (void)run_step(&s);
    assert_int_equal(need_of(&s, ints(0), 10), 1); /* the checkpoint is read by the next step */
    (void)run_step(&s);
    assert_int_equal(need_of(&s, ints(0), 10), 2);
    assert_int_equal(need_of(&s, ints(0), 8), 1); /* its last token is computed */
    const kvp_prompt prompt = prompt_of(ints(0), 10);
    uint32_t need;
    assert_status(KVP_E_ARG, kvp_state_need(s.w.cache, s.w.ns, &prompt, NULL));
    assert_status(KVP_E_ARG, kvp_state_need(s.w.cache, s.w.ns, NULL, &need));
    assert_status(KVP_E_ARG, kvp_state_need(NULL, s.w.ns, &prompt, &need));
    assert_status(KVP_E_HANDLE, kvp_state_need(s.w.cache, (kvp_ns){0}, &prompt, &need));
    run_until_over(&s, 1);
    end_sched_world(&s);
    scoped_world w = small_world(8);
    assert_status(KVP_E_STATE, kvp_state_need(w.cache, w.ns, &prompt, &need));
}

TEST_MAIN(NULL, NULL)

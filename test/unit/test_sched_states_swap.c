/* Preemption by swap over a cache with recurrent state: slots that the way back needs, what it
 * costs, and requests that could not come back. */
#include "sched_world.h"
#include "slots.h"

enum { S = 4, USABLE = 6 };

struct setup {
    uint32_t slots;      /* usable */
    uint32_t host_slots; /* the same */
    uint32_t max_copies;
    uint32_t preempt;
    uint64_t recompute_token_cost;
    uint64_t swap_state_cost;
    uint32_t usable; /* blocks; 0: USABLE */
    uint32_t chunk_tokens;
};

static sched_world swap_states_world(const struct setup *setup)
{
    kvp_config cache_config = config_of(S, S, setup->usable > 0 ? setup->usable : USABLE);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = setup->slots + 1;
    cache_config.host_blocks = 33;
    cache_config.host_state_slots = setup->host_slots + 1;
    cache_config.max_seqs = 16;
    if (setup->max_copies > 0)
        cache_config.max_copies = setup->max_copies;
    config.preempt = setup->preempt;
    config.recompute_token_cost = setup->recompute_token_cost;
    config.swap_state_cost = setup->swap_state_cost;
    config.chunk_tokens = setup->chunk_tokens;
    return make_reading_world(&cache_config, &config);
}

static sched_world usual_world(uint32_t slots)
{
    const struct setup setup = {.slots = slots, .host_slots = 8, .preempt = KVP_PREEMPT_SWAP};
    return swap_states_world(&setup);
}

static uint32_t available(const sched_world *s)
{
    const kvp_state_stats stats = slots_of(&s->w);
    return (uint32_t)(stats.free_slots + stats.cached_slots);
}

static uint32_t held_on_host(const sched_world *s)
{
    return (uint32_t)slots_of(&s->w).host_held_slots;
}

/* Pause it, and let another one come in that needs its blocks. */
static kvp_request push_out(sched_world *s, kvp_request request, uint32_t new_tokens)
{
    assert_ok(kvp_sched_pause(s->sched, request));
    const kvp_request other = submit(s, 500, 17, new_tokens);
    (void)run_step(s);
    assert_false(request_of(s, request).holds_blocks);
    return other;
}

/* It comes back, and the test is over with the n-th end. */
static void go_on(sched_world *s, kvp_request request, uint64_t n)
{
    assert_ok(kvp_sched_resume(s->sched, request));
    run_until_over(s, n);
    end_sched_world(s);
}

static uint32_t need_back(sched_world *s, kvp_request request, uint32_t n, uint32_t reserve)
{
    kvp_seq seqs[4];
    uint32_t need = 77;
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = sample_of(s, request, i).seq;
    assert_ok(kvp_state_swap_need(s->w.cache, seqs, n, reserve, &need));
    return need;
}

/* ----------------------------------------------------------------------------- there and back */

TEST(test_a_state_goes_to_the_host_and_back)
{
    scoped_sched_world s = usual_world(4);
    const kvp_request a = submit(&s, 0, 10, 9);
    run_to(&s, a, 12);
    const kvp_request b = push_out(&s, a, 2);
    assert_true(request_of(&s, a).is_swapped);
    assert_int_equal(held_on_host(&s), 1);
    assert_int_equal(need_back(&s, a, 1, 0), 1);
    assert_int_equal(need_back(&s, a, 1, 1), 1); /* it writes the slot that it reads */
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 2);
    assert_fields(sched_stats_of(&s), swapped_in, 1, recomputed, 0, lost_tokens, 0);
    assert_int_equal(held_on_host(&s), 0);
    (void)b;
}

TEST(test_ahead_of_need)
{
    kvp_config cache_config = config_of(S, S, 8);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = 5;
    cache_config.host_blocks = 17;
    cache_config.host_state_slots = 5;
    cache_config.watermark = 0.25;
    config.swap_ahead = 1;
    scoped_sched_world s = make_reading_world(&cache_config, &config);
    (void)submit(&s, 0, 10, 9);
    (void)submit(&s, 100, 10, 9);
    run_until_over(&s, 2);
    assert_true(sched_stats_of(&s).swapped_ahead > 0);
    assert_int_equal(sched_stats_of(&s).recomputed, 0);
}

TEST(test_without_room_on_the_host_it_computes_again)
{
    const struct setup setup = {.slots = 8, .host_slots = 1, .preempt = KVP_PREEMPT_SWAP};
    sched_world s = swap_states_world(&setup);
    const kvp_request a = submit_rank(&s, 0, 6, 6, 0, 2);
    run_to(&s, a, 9);
    (void)push_out(&s, a, 1); /* two states */
    assert_int_equal(request_of(&s, a).is_swapped, 0);
    assert_int_equal(sched_stats_of(&s).recomputed, 1);
    go_on(&s, a, 2);
}

/* Rows of three blocks each, and two samples, once for blocks and once for states: ten copies. */
TEST(test_states_count_for_the_plan_of_the_way_back)
{
    for (uint32_t max_copies = 9; max_copies <= 10; max_copies++) {
        const struct setup setup = {
            .slots = 8, .host_slots = 8, .max_copies = max_copies, .preempt = KVP_PREEMPT_SWAP};
        sched_world s = swap_states_world(&setup);
        const kvp_request a = submit_rank(&s, 0, 6, 6, 0, 2);
        run_to(&s, a, 10);
        (void)push_out(&s, a, 1);
        assert_int_equal(request_of(&s, a).is_swapped, max_copies == 10);
        go_on(&s, a, 2);
    }
}

/* ------------------------------------------------------------------------------------- prices */

/* A sample of 11 computed tokens: 11 tokens at 3 are 33. */
TEST(test_a_state_has_a_price)
{
    for (uint64_t cost = 33; cost <= 34; cost++) {
        const struct setup setup = {.slots = 4,
                                    .host_slots = 4,
                                    .preempt = KVP_PREEMPT_CHEAPER,
                                    .recompute_token_cost = 3,
                                    .swap_state_cost = cost};
        sched_world s = swap_states_world(&setup);
        const kvp_request a = submit(&s, 0, 10, 9);
        run_to(&s, a, 12);
        (void)push_out(&s, a, 1);
        assert_int_equal(request_of(&s, a).is_swapped, cost == 33);
        go_on(&s, a, 2);
    }
}

/* Two samples that have just been forked read one state: 6 computed tokens at 3 are 18. */
TEST(test_a_state_that_is_shared_is_copied_once)
{
    const struct setup setup = {.slots = 4,
                                .host_slots = 4,
                                .preempt = KVP_PREEMPT_CHEAPER,
                                .recompute_token_cost = 3,
                                .swap_state_cost = 18};
    sched_world s = swap_states_world(&setup);
    const kvp_request a = submit_rank(&s, 0, 6, 6, 0, 2);
    run_to(&s, a, 7);
    (void)push_out(&s, a, 1);
    assert_true(request_of(&s, a).is_swapped);
    assert_int_equal(held_on_host(&s), 1);
    assert_int_equal(need_back(&s, a, 2, 0), 1);
    assert_int_equal(need_back(&s, a, 2, 1), 3); /* both write others */
    go_on(&s, a, 2);
}

/* -------------------------------------------------------------------------------------- slots */

/* The only slot is another one's. */
TEST(test_who_lacks_a_slot_waits)
{
    scoped_sched_world s = usual_world(1);
    const kvp_request a = submit(&s, 0, 3, 9);
    run_to(&s, a, 6);
    const kvp_request b = push_out(&s, a, 3);
    assert_true(request_of(&s, a).is_swapped);
    assert_ok(kvp_sched_resume(s.sched, a));
    const kvp_step step = run_step(&s);
    assert_fields(step, waited_swapped[KVP_WAIT_BLOCKS], 1, n_preempted, 0);
    assert_int_equal(available(&s), 0);
    assert_true(stats_of(&s.w).free_blocks + stats_of(&s.w).cached_blocks < USABLE);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).recomputed, 0);
    (void)b;
}

/* Prompts of two samples are checkpoints now: these two and slots to write are four of three. */
TEST(test_who_could_never_come_back_computes_again)
{
    scoped_sched_world s = usual_world(3);
    const kvp_request a = submit_rank(&s, 0, 6, 6, 0, 2);
    run_to(&s, a, 9);
    int32_t texts[2][9];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sample_of(&s, a, i).computed_tokens, 8);
        assert_ok(kvp_request_tokens(s.sched, a, i, (kvp_range){0, 9}, texts[i]));
    }
    (void)push_out(&s, a, 1);
    assert_true(request_of(&s, a).is_swapped);
    run_until_over(&s, 1);
    for (uint32_t i = 0; i < 2; i++) {
        const kvp_prompt prompt = prompt_of(texts[i], 9);
        const kvp_submission submission = {.struct_size = sizeof(submission),
                                           .prompt = &prompt,
                                           .ns = s.w.ns,
                                           .max_new_tokens = 1};
        (void)submit_with(&s, &submission);
        run_until_over(&s, 2 + i);
    }
    assert_int_equal(need_back(&s, a, 2, 1), 4);
    assert_int_equal(available(&s), 3);
    assert_ok(kvp_sched_resume(s.sched, a));
    const kvp_step step = run_step(&s);
    assert_fields(step, n_preempted, 1, n_admitted, 1, waited_swapped[KVP_WAIT_BLOCKS], 0);
    run_until_over(&s, 4);
}

/* Prompts in chunks of 3: the trunk of two samples comes back, and they are promised two. */
TEST(test_samples_to_be_forked_are_promised_slots_again)
{
    const struct setup setup = {
        .slots = 4, .host_slots = 8, .preempt = KVP_PREEMPT_SWAP, .chunk_tokens = 3};
    scoped_sched_world s = swap_states_world(&setup);
    const kvp_request a = submit_rank(&s, 0, 10, 4, 0, 2);
    (void)run_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 2);
    (void)push_out(&s, a, 1);
    assert_true(request_of(&s, a).is_swapped);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    assert_ok(kvp_sched_resume(s.sched, a));
    while (request_of(&s, a).is_swapped)
        (void)run_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 2);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
}

/* Three slots: the trunk of two samples has one, and the others are promised to them. */
TEST(test_promised_slots_are_not_for_who_comes_back)
{
    const struct setup setup = {
        .slots = 3, .host_slots = 8, .preempt = KVP_PREEMPT_SWAP, .usable = 16, .chunk_tokens = 3};
    scoped_sched_world s = swap_states_world(&setup);
    const kvp_request a = submit(&s, 0, 30, 9);
    run_to(&s, a, 32);
    assert_ok(kvp_sched_pause(s.sched, a));
    const kvp_request b = submit(&s, 100, 40, 1);
    (void)run_step(&s);
    assert_true(request_of(&s, a).is_swapped);
    assert_ok(kvp_sched_abort(s.sched, b));
    (void)submit_rank(&s, 200, 20, 2, 0, 2);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 2);
    assert_ok(kvp_sched_resume(s.sched, a));
    assert_int_equal(run_step(&s).waited_swapped[KVP_WAIT_BLOCKS], 1);
    run_until_over(&s, 2);
}

/* ------------------------------------------------------------------------- kvp_state_swap_need */

TEST(test_what_a_way_back_needs)
{
    sched_world s = usual_world(6);
    const kvp_request a = submit(&s, 0, 10, 9);
    (void)run_step(&s); /* 8 tokens, and their state is kept */
    uint32_t need = 0;
    kvp_seq seq = sample_of(&s, a, 0).seq;
    assert_status(KVP_E_STATE, kvp_state_swap_need(s.w.cache, &seq, 1, 0, &need));
    (void)push_out(&s, a, 1);
    assert_int_equal(need_back(&s, a, 1, 0), 2); /* the checkpoint, and a slot to write */
    seq = sample_of(&s, a, 0).seq;
    const kvp_seq none = {0};
    assert_status(KVP_E_ARG, kvp_state_swap_need(NULL, &seq, 1, 0, &need));
    assert_status(KVP_E_ARG, kvp_state_swap_need(s.w.cache, NULL, 1, 0, &need));
    assert_status(KVP_E_ARG, kvp_state_swap_need(s.w.cache, &seq, 1, 0, NULL));
    assert_status(KVP_E_HANDLE, kvp_state_swap_need(s.w.cache, &none, 1, 0, &need));
    assert_status(KVP_E_TOO_LONG, kvp_state_swap_need(s.w.cache, &seq, 1, UINT32_MAX, &need));
    go_on(&s, a, 2);
    scoped_world w = small_world(8);
    assert_status(KVP_E_STATE, kvp_state_swap_need(w.cache, NULL, 0, 0, &need));
}

TEST_MAIN(NULL, NULL)

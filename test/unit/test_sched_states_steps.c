/* The scheduler over a cache with recurrent state and overlapped steps: every step of a sequence
 * writes another slot than it reads. What is promised for that, what is parked, what fails. Every
 * step runs on slots that know what they hold. */
#include "sched_world.h"
#include "slots.h"

enum { S = 4 };

static sched_world steps_world(uint32_t usable_slots, uint32_t chunk_tokens)
{
    kvp_config cache_config = config_of(S, S, 64);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.state_slots = usable_slots + 1;
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    cache_config.max_steps_out = 8;
    config.chunk_tokens = chunk_tokens;
    return make_reading_world(&cache_config, &config);
}

static kvp_state_info sample_state_of(const sched_world *s, kvp_request request, uint32_t sample)
{
    return state_of(&s->w, sample_of(s, request, sample).seq);
}

/* ------------------------------------------------------------------------------- two slots each */

TEST(test_a_step_writes_another_slot_than_it_reads)
{
    scoped_sched_world s = steps_world(2, 3);
    const kvp_request a = submit(&s, 0, 7, 4);
    uint32_t last = 0;
    for (uint32_t i = 0; i < 5; i++) {
        const kvp_step step = make_step(&s);
        const kvp_state_info info = sample_state_of(&s, a, 0);
        assert_int_equal(info.read_slot, last);
        assert_int_not_equal(info.write_slot, 0);
        assert_int_not_equal(info.write_slot, info.read_slot);
        last = info.write_slot;
        assert_int_equal(slots_of(&s.w).held_slots, i == 0 ? 1 : 2);
        (void)finish_step(&s, &step);
        assert_int_equal(slots_of(&s.w).held_slots, 1);
    }
    run_until_over(&s, 1);
    assert_fields(sched_stats_of(&s), preemptions, 0, left_out, 0);
}

/* A chunk that does not get its turn has its slot all the same. */
TEST(test_prompts_under_way_keep_a_slot_to_write)
{
    kvp_config cache_config = config_of(S, S, 64);
    kvp_sched_config config = sched_config_of(4, 6);
    cache_config.state_slots = 5;
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 0, 4, 8);
    const kvp_request b = submit(&s, 100, 20, 4);
    (void)run_step(&s);
    assert_int_equal(sample_state_of(&s, b, 0).write_slot, 0);
    const kvp_step step = make_step(&s);
    assert_int_not_equal(sample_state_of(&s, a, 0).write_slot, 0);
    assert_int_not_equal(sample_state_of(&s, b, 0).write_slot, 0);
    (void)finish_step(&s, &step);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

TEST(test_who_comes_in_leaves_others_their_slots)
{
    for (uint32_t usable = 2; usable <= 5; usable++) {
        scoped_sched_world s = steps_world(usable, 0);
        (void)submit(&s, 0, 3, 4);
        (void)submit(&s, 100, 3, 4);
        const kvp_step step = run_step(&s);
        assert_fields(step, n_admitted, usable / 2, waited[KVP_WAIT_BLOCKS], usable < 4);
        run_until_over(&s, 2);
        assert_fields(sched_stats_of(&s), preemptions, 0, left_out, 0);
    }
}

TEST(test_a_request_needs_two_slots_for_each_sample)
{
    static const struct {
        uint32_t n, usable;
        kvp_status status;
    } cases[] = {{1, 1, KVP_E_NEVER}, {1, 2, KVP_OK},      {2, 3, KVP_E_NEVER},
                 {2, 4, KVP_OK},      {4, 7, KVP_E_NEVER}, {4, 8, KVP_OK}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        scoped_sched_world s = steps_world(cases[i].usable, 0);
        const kvp_prompt prompt = prompt_of(ints(0), 6);
        const kvp_submission submission = {.struct_size = sizeof(submission),
                                           .prompt = &prompt,
                                           .ns = s.w.ns,
                                           .n_samples = cases[i].n,
                                           .max_new_tokens = 4};
        kvp_sched_limit limit;
        kvp_request request;
        assert_status(cases[i].status, kvp_sched_submit(s.sched, &submission, &request, &limit));
        assert_int_equal(limit.max_prompt_tokens > 0, cases[i].status == KVP_OK);
        if (cases[i].status == KVP_OK) {
            run_until_over(&s, 1);
            assert_int_equal(sched_stats_of(&s).preemptions, 0);
        }
    }
}

/* ------------------------------------------------------------------------------------- promises */

TEST(test_a_promise_ends_with_the_first_chunk)
{
    scoped_sched_world s = steps_world(8, 0);
    (void)submit(&s, 0, 10, 2); /* 8 tokens, then 2: the state after 8 is kept */
    kvp_step step = make_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 1);
    (void)finish_step(&s, &step);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    run_until_over(&s, 1);
    (void)submit(&s, 0, 10, 2); /* it holds the checkpoint, and the slot to write */
    step = make_step(&s);
    assert_int_equal(slots_of(&s.w).hits, 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    (void)submit(&s, 0, 10, 2); /* it shares the checkpoint */
    (void)finish_step(&s, &step);
    (void)submit(&s, 0, 10, 2);
    step = make_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 1);
    (void)finish_step(&s, &step);
    run_until_over(&s, 4);
}

TEST(test_samples_are_promised_slots_until_they_decode)
{
    scoped_sched_world s = steps_world(8, 0);
    const kvp_request a = submit_rank(&s, 0, 3, 6, 0, 3);
    (void)submit(&s, 100, 3, 4);
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_admitted, 2); /* six, and two */
    assert_int_equal(sched_stats_of(&s).promised_slots, 5 + 1);
    (void)finish_step(&s, &step);
    assert_int_equal(sched_stats_of(&s).promised_slots, 5);
    assert_int_equal(sample_state_of(&s, a, 0).read_slot, sample_state_of(&s, a, 2).read_slot);
    (void)submit(&s, 200, 3, 4);
    step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    assert_int_not_equal(sample_state_of(&s, a, 0).read_slot, sample_state_of(&s, a, 2).read_slot);
    run_until_over(&s, 3);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

TEST(test_beams_that_share_a_slot_are_promised_one)
{
    static const uint32_t parents[] = {1, 1, 1};
    static const uint32_t others[] = {0, 0, 2};
    scoped_sched_world s = steps_world(8, 0);
    const kvp_request a = submit_rank(&s, 0, 3, 9, 0, 3);
    (void)run_step(&s);
    (void)run_step(&s);
    assert_ok(kvp_sched_reorder(s.sched, a, parents, NULL));
    assert_int_equal(sched_stats_of(&s).promised_slots, 2);
    (void)submit(&s, 100, 3, 4);
    (void)submit(&s, 200, 3, 4);
    kvp_step step = run_step(&s); /* four of eight are held, and two promised */
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    assert_ok(kvp_sched_reorder(s.sched, a, others, NULL));
    assert_int_equal(sched_stats_of(&s).promised_slots, 1);
    run_until_over(&s, 3);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

/* Whatever is promised: a checkpoint takes no slot. */
TEST(test_every_checkpoint_is_made)
{
    scoped_sched_world s = steps_world(4, 0);
    (void)submit_rank(&s, 0, 6, 3, 0, 2);
    (void)run_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 3);
    assert_int_equal(slots_of(&s.w).free_slots, 3);
    assert_fields(sched_stats_of(&s), checkpoints, 1, skipped_checkpoints, 0);
}

/* --------------------------------------------------------------------------------------- parked */

/* While a step of the caller's own is out, what steps have read is parked, and nobody is preempted
 * for it. */
TEST(test_nobody_gives_way_for_parked_slots)
{
    scoped_sched_world s = steps_world(5, 0);
    const kvp_request a = submit(&s, 0, 3, 9);
    const kvp_request b = submit(&s, 100, 3, 9);
    (void)run_step(&s);
    const uint64_t own = begin_own(&s);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_decoding, 2);
    assert_int_equal(slots_of(&s.w).parked_slots, 2);
    step = run_step(&s); /* one of five is free */
    assert_fields(step, n_preempted, 0, n_left_out, 1);
    assert_non_null(item_of(&step, a, 0));
    step = run_step(&s);
    assert_fields(step, n_left_out, 2, n_seqs, 0);
    assert_ok(kvp_step_done(s.w.cache, own, NULL));
    step = run_step(&s);
    assert_non_null(item_of(&step, a, 0));
    assert_non_null(item_of(&step, b, 0));
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

/* Nor does a paused request make room for one that waits. */
TEST(test_who_is_paused_keeps_its_slots_for_parked_ones)
{
    scoped_sched_world s = steps_world(5, 0);
    const kvp_request a = submit(&s, 0, 3, 9);
    const kvp_request b = submit(&s, 100, 3, 9);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, b));
    const uint64_t own = begin_own(&s);
    assert_ok(kvp_sched_abort(s.sched, a));
    assert_fields(slots_of(&s.w), parked_slots, 1, free_slots, 3);
    const kvp_request c = submit_rank(&s, 200, 3, 4, 0, 1);
    kvp_step step = run_step(&s);
    assert_int_equal(step.admitted[0].bits, c.bits);
    (void)submit(&s, 300, 3, 4); /* one is free, one parked */
    step = run_step(&s);
    assert_int_equal(step.n_preempted, 0);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS] + step.waited[KVP_WAIT_PREEMPTION], 1);
    assert_ok(kvp_step_done(s.w.cache, own, NULL));
    run_until_over(&s, 2);
    assert_ok(kvp_sched_resume(s.sched, b));
    run_until_over(&s, 3);
}

/* What others ranked before need and parked slots do not make up for is taken from victims. */
TEST(test_a_victim_gives_its_slots)
{
    static const uint32_t parents[] = {0, 0};
    scoped_sched_world s = steps_world(6, 0);
    const kvp_request a = submit_rank(&s, 0, 3, 9, 0, 2);
    (void)submit(&s, 100, 3, 9);
    (void)run_step(&s);
    (void)run_step(&s);
    kvp_seq own[2]; /* the caller's, which the scheduler does not count */
    const kvp_prompt prompt = prompt_of(ints(500), 3);
    (void)run_step(&s);
    assert_int_equal(slots_of(&s.w).free_slots, 3);
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_seq_open(s.w.cache, s.w.ns, &prompt, &own[i], NULL));
    kvp_step step = run_step(&s); /* one is free for three */
    assert_fields(step, n_preempted, 1, n_decoding, 2);
    assert_ok(kvp_sched_reorder(s.sched, a, parents, NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_seq_close(s.w.cache, own[i], NULL));
    run_until_over(&s, 2);
}

/* ------------------------------------------------------------------------------------- failures */

TEST(test_a_failed_step_leaves_nothing)
{
    scoped_sched_world s = steps_world(6, 0);
    const kvp_request a = submit(&s, 0, 10, 6);
    for (int i = 0; i < 4; i++)
        (void)run_step(&s);
    const kvp_step failed = make_step(&s);
    assert_true(sched_states_spoil(&s.states, s.w.cache, failed.seqs[0].seq));
    assert_ok(kvp_step_failed(s.w.cache, s.number, NULL, 0, NULL));
    assert_ok(kvp_sched_fail(s.sched));
    assert_int_equal(request_of(&s, a).preemptions, 1);
    assert_int_equal(slots_of(&s.w).held_slots + slots_of(&s.w).parked_slots, 0);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.seqs[0].begin, 8); /* the state after 8 tokens was kept */
    (void)finish_step(&s, &step);
    run_until_over(&s, 1);
}

TEST(test_samples_come_back_through_their_prompt)
{
    scoped_sched_world s = steps_world(7, 2);
    const kvp_request a = submit_rank(&s, 0, 10, 8, 0, 3);
    run_to(&s, a, 14);
    const kvp_step failed = make_step(&s);
    assert_int_equal(failed.n_seqs, 3);
    assert_ok(kvp_step_failed(s.w.cache, s.number, NULL, 0, NULL));
    assert_ok(kvp_sched_fail(s.sched));
    (void)run_step(&s);
    assert_int_equal(sched_stats_of(&s).promised_slots, 6 - 2);
    run_to(&s, a, 15);
    assert_int_equal(sched_stats_of(&s).promised_slots, 0);
    run_until_over(&s, 1);
    assert_int_equal(sched_stats_of(&s).preemptions, 1);
}

/* The caller has committed the step behind the scheduler's back. */
TEST(test_the_audit_misses_a_slot_to_write)
{
    scoped_sched_world s = steps_world(4, 0);
    kvp_violation violation;
    (void)submit(&s, 0, 3, 3);
    const kvp_step step = make_step(&s);
    run_work(&s, &step);
    assert_ok(kvp_seq_commit(s.w.cache, step.seqs[0].seq, 3));
    assert_status(KVP_E_CORRUPT, kvp_sched_check(s.sched, &violation));
    assert_string_equal(violation.invariant, "Q3");
    assert_non_null(strstr(violation.detail, "slot of state"));
    assert_ok(kvp_sched_finish(s.sched, ints(1000), NULL, NULL));
    run_until_over(&s, 1);
}

/* --------------------------------------------------------------------------------------- drafts */

static sched_world drafts_world(uint32_t usable_slots, uint32_t state_rings)
{
    kvp_config cache_config = config_of(S, S, 64);
    kvp_sched_config config = sched_config_of(4, 64);
    cache_config.state_slots = usable_slots + 1;
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    config.draft_tokens = 2;
    config.state_rings = state_rings;
    return make_sched_world(&cache_config, &config);
}

/* Each draft has a slot; the prompt under way in the same step has one to write. */
TEST(test_drafts_have_rings)
{
    scoped_sched_world s = drafts_world(6, 1);
    const kvp_request a = submit(&s, 0, 3, 8);
    const kvp_request b = submit(&s, 100, 13, 8); /* in chunks of 12 and 1 */
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    const uint32_t counts[] = {2};
    int32_t writes[KVP_STATE_RING_MAX];
    uint32_t n;
    assert_fields(step, n_drafts, 2, n_seqs, 2);
    assert_int_equal(slots_of(&s.w).held_slots, 4 + 2);
    assert_int_equal(sample_state_of(&s, b, 0).ring_slots, 0);
    assert_int_not_equal(sample_state_of(&s, b, 0).write_slot, 0);
    assert_ok(kvp_meta_state_rings(s.w.cache, &step.seqs[0].seq, 1, KVP_STATE_RING_MAX, NULL, &n,
                                   writes));
    assert_int_equal(n, 3);
    run_work(&s, &step);
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(40), counts, NULL, NULL));
    check_sched(&s);
    assert_int_equal(sample_of(&s, a, 0).computed_tokens, 5);
    assert_fields(sample_state_of(&s, a, 0), read_slot, writes[1], write_slot, 0);
}

/* One slot fewer: the step has no drafts. */
TEST(test_no_drafts_without_slots_for_all)
{
    scoped_sched_world s = drafts_world(5, 1);
    (void)submit(&s, 0, 3, 8);
    (void)submit(&s, 100, 13, 8);
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    assert_fields(step, n_drafts, 0, n_seqs, 2);
    assert_int_equal(slots_of(&s.w).held_slots, 4);
    (void)finish_step(&s, &step);
}

/* Without rings the engine leaves the state after the accepted tokens in the slot of the step. */
TEST(test_drafts_move_on_from_slot_to_slot)
{
    scoped_sched_world s = drafts_world(4, 0);
    const kvp_request a = submit(&s, 0, 3, 8);
    const kvp_request b = submit(&s, 100, 13, 8); /* in chunks of 12 and 1 */
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    const uint32_t counts[] = {2};
    assert_fields(step, n_decoding, 1, n_drafts, 2, n_seqs, 2);
    const uint32_t written = sample_state_of(&s, a, 0).write_slot;
    assert_int_not_equal(sample_state_of(&s, b, 0).write_slot, 0);
    run_work(&s, &step);
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(40), counts, NULL, NULL));
    check_sched(&s);
    assert_int_equal(sample_of(&s, a, 0).computed_tokens, 5);
    assert_fields(sample_state_of(&s, a, 0), read_slot, written, write_slot, 0);
}

TEST_MAIN(NULL, NULL)

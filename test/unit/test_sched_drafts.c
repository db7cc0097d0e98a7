/* Drafts of the scheduler: slots behind those that decode, what is accepted, what is taken back.
 * With recurrent state, the state after the accepted tokens is in the slot that the step writes. */
#include <kvpager/trees.h>

#include "sched_world.h"

enum { S = 4, MOST = 16 };

static sched_world drafts_world_of(uint32_t usable, uint32_t draft_tokens, uint32_t state_slots,
                                   uint32_t state_rings)
{
    kvp_config cache_config = config_of(S, S, usable);
    kvp_sched_config config = sched_config_of(4, 4 * (1 + draft_tokens));
    config.draft_tokens = draft_tokens;
    config.state_rings = state_rings;
    cache_config.state_slots = state_slots;
    return make_reading_world(&cache_config, &config);
}

static sched_world drafts_world(uint32_t usable, uint32_t draft_tokens, uint32_t state_slots)
{
    return drafts_world_of(usable, draft_tokens, state_slots, 0);
}

/* The pass of one item that decodes: its token and drafts, of which the first ones are accepted. */
static void verify(sched_world *s, const kvp_step *step, uint32_t k, const int32_t *tokens,
                   uint32_t n_accepted)
{
    const kvp_step_seq *item = &step->seqs[k];
    const uint32_t end = item->begin + 1;
    const kvp_range written = {item->begin, end + step->drafts[k]};
    const kvp_range kept = {item->begin, end + n_accepted};
    int32_t text[256];
    assert_ok(kvp_request_tokens(s->sched, item->request, item->sample, (kvp_range){0, end}, text));
    for (uint32_t i = 0; i < step->drafts[k]; i++)
        text[end + i] = i < n_accepted ? tokens[i] : 7;
    assert_true(sched_memory_write(&s->memory, s->w.cache, item->seq, text, written));
    assert_true(sched_memory_read(&s->memory, s->w.cache, item->seq, text, kept));
    assert_true(sched_states_pass(&s->states, s->w.cache, item->seq, text, kept, 0));
    assert_true(sched_states_pass(&s->states, s->w.cache, item->seq, text, kept, 1));
}

/* A step in which one request decodes: as many of its drafts are accepted. The tokens are 2000 and
 * so on. */
static kvp_step_end accept(sched_world *s, uint32_t n_accepted)
{
    const kvp_step step = make_step(s);
    const uint32_t count = 1 + n_accepted;
    kvp_step_end end;
    assert_fields(step, n_seqs, 1, n_decoding, 1);
    assert_true(sched_memory_copy(&s->memory, s->copies, s->n_copies));
    verify(s, &step, 0, ints(2000), n_accepted);
    assert_ok(kvp_sched_finish_drafts(s->sched, ints(2000), &count, NULL, &end));
    check_sched(s);
    return end;
}

static uint32_t drafts_of(sched_world *s)
{
    const kvp_step step = make_step(s);
    const uint32_t n = step.n_decoding > 0 ? step.drafts[0] : 0;
    assert_int_equal(step.n_tokens + step.n_drafts <= 4 * 17, 1);
    (void)finish_step(s, &step);
    return n;
}

/* The first step in which two requests decode. */
static kvp_step make_step_of_two(sched_world *s, kvp_request *out_a, kvp_request *out_b)
{
    *out_a = submit(s, 0, 6, 12);
    *out_b = submit(s, 100, 6, 12);
    (void)run_step(s);
    return make_step(s);
}

static void expect_text(const sched_world *s, kvp_request request, uint32_t from,
                        const int32_t *tokens, uint32_t n)
{
    int32_t text[64];
    assert_ok(kvp_request_tokens(s->sched, request, 0, (kvp_range){from, from + n}, text));
    assert_memory_equal(text, tokens, n * sizeof(*tokens));
}

/* ------------------------------------------------------------------------------------ one chain */

/* Six tokens, 1000 sampled, then 2000, 2001 accepted and 2002 sampled behind them, then none. */
static void accept_some(uint32_t state_slots, uint32_t state_rings)
{
    scoped_sched_world s = drafts_world_of(32, 3, state_slots, state_rings);
    const kvp_request a = submit(&s, 0, 6, 12);
    run_to(&s, a, 7);
    (void)accept(&s, 2);
    assert_fields(sample_of(&s, a, 0), n_tokens, 10, computed_tokens, 9);
    expect_text(&s, a, 7, ints(2000), 3);
    const kvp_seq_info info = info_of(&s.w, sample_of(&s, a, 0).seq);
    assert_fields(info, n_tokens, 9, computed_tokens, 9, known_tokens, 9);
    (void)accept(&s, 0);
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 11);
    (void)accept(&s, 3);
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 15);
    assert_fields(sched_stats_of(&s), draft_tokens, 9, accepted_tokens, 5, sampled_tokens,
                  1 + 3 + 1 + 4);
    const kvp_step_end end = accept(&s, 2);
    assert_int_equal(end.n_ended, 1);
    assert_int_equal(end.ended[0].reason, KVP_END_LENGTH);
    assert_int_equal(end.ended[0].new_tokens, 12);
}

TEST(test_accepted_drafts_are_tokens)
{
    accept_some(0, 0);
}

TEST(test_with_states_too)
{
    accept_some(5, 0);
    accept_some(9, 1);
}

static uint64_t held_slots(const sched_world *s)
{
    kvp_state_stats stats;
    assert_ok(kvp_cache_state_stats_get(s->w.cache, &stats));
    return stats.held_slots;
}

/* Two sequences have a slot each, and three for their drafts. With one slot less nobody has drafts,
 * and nobody gives way. */
TEST(test_rings_are_there_in_steps_only)
{
    for (uint32_t lacking = 0; lacking < 2; lacking++) {
        scoped_sched_world s = drafts_world_of(32, 3, 1 + 2 * 4 - lacking, 1);
        (void)submit(&s, 0, 6, 12);
        (void)submit(&s, 100, 6, 12);
        (void)run_step(&s); /* a chunk ends at the checkpoint */
        (void)run_step(&s);
        const kvp_step step = make_step(&s);
        const uint32_t counts[] = {2, 1};
        assert_fields(step, n_decoding, 2, n_drafts, lacking ? 0 : 6);
        assert_int_equal(held_slots(&s), lacking ? 2 : 2 * 4);
        for (uint32_t k = 0; k < 2 && !lacking; k++)
            verify(&s, &step, k, ints(2000), counts[k] - 1);
        assert_ok(
            kvp_sched_finish_drafts(s.sched, ints(2000), lacking ? NULL : counts, NULL, NULL));
        check_sched(&s);
        assert_int_equal(held_slots(&s), 2);
        assert_int_equal(sched_stats_of(&s).preemptions, 0);
    }
}

/* max_new_tokens 4: after the first token three are left, so two drafts are of use, then one. */
TEST(test_no_more_drafts_than_tokens_that_are_left)
{
    scoped_sched_world s = drafts_world(32, MOST, 0);
    (void)submit(&s, 0, 6, 4);
    (void)run_step(&s);
    assert_int_equal(drafts_of(&s), 2);
    assert_int_equal(drafts_of(&s), 1);
    assert_int_equal(drafts_of(&s), 0);
}

/* An engine that has no drafts finishes as ever. */
TEST(test_drafts_need_not_be_used)
{
    scoped_sched_world s = drafts_world(32, 5, 5);
    (void)submit(&s, 0, 6, 9);
    (void)submit(&s, 50, 6, 9);
    run_until_over(&s, 2);
    assert_true(sched_stats_of(&s).draft_tokens > 0);
    assert_fields(sched_stats_of(&s), accepted_tokens, 0, sampled_tokens, 18);
}

/* A token with which the sample ends may stand behind accepted drafts. */
TEST(test_a_sample_ends_with_its_last_token)
{
    static const uint32_t count = 3;
    static const uint8_t ended = 1;
    scoped_sched_world s = drafts_world(32, 3, 0);
    (void)submit(&s, 0, 6, 12);
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    verify(&s, &step, 0, ints(2000), 2);
    kvp_step_end end;
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(2000), &count, &ended, &end));
    assert_int_equal(end.n_ended, 1);
    assert_int_equal(end.ended[0].reason, KVP_END_STOPPED);
    assert_int_equal(end.ended[0].new_tokens, 4);
}

/* What was accepted is in the cache, what was not is not. */
TEST(test_only_what_was_accepted_is_hit)
{
    int32_t tokens[16];
    kvp_open_info info;
    scoped_sched_world s = drafts_world(32, 3, 0);
    const kvp_request a = submit(&s, 0, 8, 20);
    (void)run_step(&s);
    (void)accept(&s, 3); /* 12 tokens are computed */
    assert_ok(kvp_request_tokens(s.sched, a, 0, (kvp_range){0, 13}, tokens));
    kvp_prompt prompt = prompt_of(tokens, 13);
    assert_ok(kvp_cache_match(s.w.cache, s.w.ns, &prompt, &info));
    assert_int_equal(info.hit_tokens, 12);
    (void)accept(&s, 1);
    tokens[13] = 2000;
    tokens[14] = tokens[15] = 7;
    prompt = prompt_of(tokens, 16);
    assert_ok(kvp_cache_match(s.w.cache, s.w.ns, &prompt, &info));
    assert_int_equal(info.hit_tokens, 12);
}

/* ------------------------------------------------------------------------ blocks and the budget */

/* Two sequences fill all blocks. With two drafts each they would need two blocks more. */
TEST(test_without_blocks_for_all_there_are_none)
{
    scoped_sched_world s = drafts_world(4, 3, 0);
    (void)submit(&s, 0, 7, 4);
    (void)submit(&s, 50, 7, 4);
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    assert_fields(step, n_decoding, 2, n_drafts, 0);
    assert_int_equal(step.drafts[0] + step.drafts[1], 0);
    assert_int_equal(step.n_preempted, 0);
    (void)finish_step(&s, &step);
    run_until_over(&s, 2);
}

/* Who is swapped in decodes in the same step, without drafts. */
TEST(test_none_for_what_is_swapped_in)
{
    kvp_config cache_config = config_of(S, S, 16);
    kvp_sched_config config = sched_config_of(4, 64);
    cache_config.host_blocks = 17;
    config.preempt = KVP_PREEMPT_SWAP;
    config.draft_tokens = 3;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 0, 40, 20);
    (void)run_step(&s);
    (void)run_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    const kvp_request b = submit(&s, 100, 30, 6);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_swapped_out, 1);
    assert_ok(kvp_sched_resume(s.sched, a));
    while (request_of(&s, a).is_swapped) {
        step = make_step(&s);
        const kvp_step_seq *item = item_of(&step, a, 0);
        if (item != NULL) {
            assert_int_equal(step.n_swapped_in, 1);
            assert_int_equal(step.drafts[item - step.seqs], 0);
        }
        (void)finish_step(&s, &step);
    }
    step = make_step(&s);
    assert_true(item_of(&step, a, 0) != NULL && item_of(&step, b, 0) == NULL);
    assert_int_equal(step.drafts[0], 3);
    (void)finish_step(&s, &step);
}

/* Drafts count for the budget: 20 tokens, less 1 and 4 drafts. */
TEST(test_drafts_count_for_the_budget)
{
    scoped_sched_world s = drafts_world(32, 4, 0);
    (void)submit(&s, 0, 6, 12);
    (void)run_step(&s);
    const kvp_request b = submit(&s, 100, 30, 2);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_drafts, 4);
    assert_int_equal(item_of(&step, b, 0)->n_tokens, 15);
    (void)finish_step(&s, &step);
}

/* -------------------------------------------------------------------------------------- groups */

TEST(test_samples_accept_equally_many)
{
    scoped_sched_world s = drafts_world(32, 3, 0);
    const kvp_request a = submit_rank(&s, 0, 6, 12, 0, 2);
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    assert_fields(step, n_decoding, 2, n_drafts, 6);
    assert_true(sched_memory_copy(&s.memory, s.copies, s.n_copies));
    verify(&s, &step, 0, ints(2000), 1);
    verify(&s, &step, 1, ints(2002), 1);
    const uint32_t unequal[][2] = {{2, 1}, {1, 2}};
    const uint32_t equal[] = {2, 2};
    for (uint32_t i = 0; i < 2; i++) {
        assert_status(KVP_E_ARG,
                      kvp_sched_finish_drafts(s.sched, ints(2000), unequal[i], NULL, NULL));
    }
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(2000), equal, NULL, NULL));
    check_sched(&s);
    expect_text(&s, a, 7, ints(2000 + 2 * (int)step.seqs[0].sample), 2);
}

/* ------------------------------------------------------------------------ what comes in between */

/* A fork that the caller makes while the step is out moves nothing that the step writes. */
TEST(test_a_fork_meanwhile_moves_no_draft)
{
    static const uint32_t count = 3;
    scoped_sched_world s = drafts_world(32, 3, 0);
    const kvp_request a = submit(&s, 0, 6, 12);
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    kvp_seq child;
    assert_ok(kvp_seq_fork(s.w.cache, step.seqs[0].seq, 6, 0, &child));
    verify(&s, &step, 0, ints(2000), 2);
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(2000), &count, NULL, NULL));
    check_sched(&s);
    (void)accept(&s, 1); /* reads all that was written before */
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 12);
    assert_ok(kvp_seq_close(s.w.cache, child, NULL));
}

TEST(test_paused_and_failed_with_drafts)
{
    static const uint32_t count = 3;
    scoped_sched_world s = drafts_world(32, 3, 5);
    const kvp_request a = submit(&s, 0, 6, 12);
    run_to(&s, a, 7);
    kvp_step step = make_step(&s);
    assert_ok(kvp_sched_pause(s.sched, a));
    check_sched(&s);
    verify(&s, &step, 0, ints(2000), 2);
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(2000), &count, NULL, NULL));
    check_sched(&s);
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 10);
    assert_ok(kvp_sched_resume(s.sched, a));
    step = make_step(&s);
    assert_int_equal(step.n_drafts, 3);
    assert_ok(kvp_sched_fail(s.sched));
    check_sched(&s);
    assert_int_equal(request_of(&s, a).preemptions, 1);
    run_until_over(&s, 1);
}

/* Its results are ignored, and those of the other stand where they should. */
TEST(test_aborted_with_drafts)
{
    scoped_sched_world s = drafts_world(32, 3, 0);
    kvp_request a, b;
    const kvp_step step = make_step_of_two(&s, &a, &b);
    const uint32_t kb = step.seqs[0].request.bits == b.bits ? 0 : 1;
    uint32_t counts[2] = {3, 3};
    const int32_t first[] = {5, 6, 7};
    int32_t tokens[] = {-1, -1, -1, -1, -1};
    counts[kb] = 2;
    for (uint32_t i = 0; i < 2; i++)
        tokens[(kb == 0 ? 0 : 3) + i] = first[i];
    assert_ok(kvp_sched_abort(s.sched, a));
    verify(&s, &step, kb, first, 1);
    assert_ok(kvp_sched_finish_drafts(s.sched, tokens, counts, NULL, NULL));
    check_sched(&s);
    expect_text(&s, b, 7, first, 2);
    assert_int_equal(sched_stats_of(&s).accepted_tokens, 1);
    run_until_over(&s, 1);
}

/* If the caller closed one of the step's sequences, nothing is changed. */
TEST(test_a_sequence_that_was_closed)
{
    scoped_sched_world s = drafts_world(32, 3, 0);
    kvp_request a, b;
    const kvp_step step = make_step_of_two(&s, &a, &b);
    const uint32_t counts[] = {3, 3};
    assert_ok(kvp_seq_close(s.w.cache, sample_of(&s, b, 0).seq, NULL));
    assert_status(KVP_E_HANDLE, kvp_sched_finish_drafts(s.sched, ints(2000), counts, NULL, NULL));
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 7);
    assert_int_equal(info_of(&s.w, sample_of(&s, a, 0).seq).known_tokens, 7);
    assert_int_equal(sched_stats_of(&s).accepted_tokens, 0);
    assert_ok(kvp_sched_abort(s.sched, b));
    assert_ok(kvp_sched_finish_drafts(s.sched, ints(2000), counts, NULL, NULL));
    assert_int_equal(sample_of(&s, a, 0).n_tokens, 10);
    assert_int_equal(step.n_decoding, 2);
}

/* ------------------------------------------------------------------------------------ refusals */

TEST(test_refusals)
{
    scoped_sched_world s = drafts_world(32, 3, 0);
    kvp_sched_config config = sched_config_of(4, 64);
    kvp_why why;
    config.draft_tokens = MOST + 1;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&config, s.w.cache, &why));
    assert_string_equal(why.field, "draft_tokens");
    assert_true(why.highest == MOST);
    config.draft_tokens = MOST;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&config, s.w.cache, &why));
    assert_string_equal(why.field, "step_tokens");
    assert_true(why.lowest == 4 * 17);
    config.step_tokens = 4 * 17;
    assert_ok(kvp_sched_config_check(&config, s.w.cache, &why));
    config.state_rings = 1; /* of a cache without states */
    assert_status(KVP_E_ARG, kvp_sched_config_check(&config, s.w.cache, &why));
    assert_string_equal(why.field, "state_rings");
    assert_true(why.value == 1 && why.highest == 0);

    (void)submit(&s, 0, 6, 12);
    const uint32_t counts[] = {1, 0, 5};
    assert_status(KVP_E_STATE, kvp_sched_finish_drafts(s.sched, NULL, NULL, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_sched_finish_drafts(NULL, NULL, NULL, NULL, NULL));
    (void)run_step(&s);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.drafts[0], 3);
    for (uint32_t i = 1; i < 3; i++) /* none, and one more than there were */
        assert_status(KVP_E_ARG, kvp_sched_finish_drafts(s.sched, ints(0), counts + i, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_sched_finish_drafts(s.sched, NULL, counts, NULL, NULL));
    const int32_t negative[] = {3, -1};
    const uint32_t two = 2;
    assert_status(KVP_E_ARG, kvp_sched_finish_drafts(s.sched, negative, &two, NULL, NULL));
    (void)finish_step(&s, &step);
}

/* Drafts of the scheduler are chains: a sequence that an engine gives a tree ends its request. */
TEST(test_a_tree_ends_its_request)
{
    static const int32_t root = -1;
    const uint32_t one = 1;
    kvp_config cache_config = config_of(S, S, 32);
    kvp_sched_config config = sched_config_of(4, 16);
    config.draft_tokens = 3;
    cache_config.max_tree_tokens = 4;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 0, 6, 12);
    const kvp_request b = submit(&s, 50, 6, 12);
    (void)run_step(&s);
    const kvp_seq seq = sample_of(&s, a, 0).seq;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_tokens = &one,
                             .tokens = ints(7)};
    assert_ok(kvp_seq_extend_tree(s.w.cache, &batch, &root));
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_ended, 1);
    assert_int_equal(step.ended[0].request.bits, a.bits);
    assert_int_equal(step.ended[0].reason, KVP_END_REFUSED);
    assert_int_equal(step.ended[0].status, KVP_E_STATE);
    assert_int_equal(step.n_decoding, 1);
    assert_int_equal(step.seqs[0].request.bits, b.bits);
    (void)finish_step(&s, &step);
    run_until_over(&s, 1);
}

TEST(test_rings_are_for_drafts_only)
{
    scoped_sched_world s = drafts_world(32, 3, 20);
    kvp_sched_config config = sched_config_of(4, 64);
    kvp_why why;
    config.state_rings = 1;
    assert_status(KVP_E_ARG, kvp_sched_config_check(&config, s.w.cache, &why));
    assert_string_equal(why.field, "state_rings");
    assert_true(why.value == 1 && why.highest == 0);
    config.draft_tokens = 3;
    assert_ok(kvp_sched_config_check(&config, s.w.cache, &why));
}

TEST_MAIN(NULL, NULL)

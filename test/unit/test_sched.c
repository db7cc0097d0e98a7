/* The scheduler: what a step is made of, admission, groups, and what callers may get wrong. */
#include "sched_world.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- steps */

TEST(test_one_request)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request r = submit(&s, 1, 6, 3);
    assert_int_equal(request_of(&s, r).state, KVP_REQUEST_WAITING);
    kvp_step step = make_step(&s);
    assert_fields(step, n_seqs, 1, n_tokens, 6, n_sampled, 1, n_admitted, 1);
    assert_memory_equal(step.tokens, ints(1), 6 * sizeof(int32_t));
    assert_int_equal(request_of(&s, r).state, KVP_REQUEST_RUNNING);
    assert_status(KVP_E_STATE, kvp_sched_step(s.sched, &step));
    (void)finish_step(&s, &step);
    assert_int_equal(sample_of(&s, r, 0).computed_tokens, 6);
    step = run_step(&s);
    assert_int_equal(step.n_decoding, 1);
    step = make_step(&s);
    assert_int_equal(step.tokens[0], 1000);
    assert_int_equal(step.seqs[0].begin, 7);
    const kvp_step_end end = finish_step(&s, &step);
    assert_int_equal(end.n_ended, 1);
    assert_int_equal(end.ended[0].reason, KVP_END_LENGTH);
    assert_int_equal(end.ended[0].new_tokens, 3);
    assert_true(end.ended[0].is_last);
    kvp_request_info info;
    assert_status(KVP_E_HANDLE, kvp_request_info_get(s.sched, r, &info));
    step = make_step(&s);
    assert_int_equal(step.n_seqs, 0);
    assert_status(KVP_E_STATE, kvp_sched_finish(s.sched, NULL, NULL, NULL));
    assert_int_equal(stats_of(&s.w).cached_blocks, 2);
}

TEST(test_stopped_by_caller)
{
    scoped_sched_world s = small_sched_world(16);
    (void)submit(&s, 1, 6, 30);
    const uint8_t ended[] = {1};
    kvp_step_end end;
    (void)make_step(&s);
    assert_ok(kvp_sched_finish(s.sched, ints(9), ended, &end));
    assert_int_equal(end.n_ended, 1);
    assert_int_equal(end.ended[0].reason, KVP_END_STOPPED);
    assert_int_equal(end.ended[0].new_tokens, 1);
}

/* Decoding comes first, then chunks of prompts within the budget, and hits cost none of it. */
TEST(test_budget_and_chunks)
{
    const kvp_config cache_config = config_of(4, 4, 64);
    kvp_sched_config config = sched_config_of(4, 10);
    config.chunk_tokens = 8;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 4, 20);
    (void)run_step(&s);
    const kvp_request b = submit(&s, 100, 20, 20);
    const kvp_request c = submit(&s, 200, 20, 20);
    kvp_step step = make_step(&s); /* a 1, b a chunk of 8, c 1 */
    assert_int_equal(step.n_tokens, 10);
    assert_int_equal(item_of(&step, a, 0)->n_tokens, 1);
    assert_int_equal(item_of(&step, b, 0)->n_tokens, 8);
    assert_int_equal(item_of(&step, c, 0)->n_tokens, 1);
    assert_int_equal(step.n_sampled, 1);
    (void)finish_step(&s, &step);
    step = make_step(&s); /* a 1, b 8, c 1 */
    assert_int_equal(item_of(&step, b, 0)->begin, 8);
    assert_int_equal(item_of(&step, c, 0)->begin, 1);
    (void)finish_step(&s, &step);
    step = make_step(&s); /* a 1, b the last 4, c 5 */
    assert_int_equal(item_of(&step, b, 0)->n_sampled, 1);
    assert_int_equal(item_of(&step, c, 0)->n_tokens, 5);
    assert_int_equal(step.tokens[5], 202); /* after a's one and b's four */
    (void)finish_step(&s, &step);
    assert_ok(kvp_sched_abort(s.sched, c));
    const kvp_request d = submit(&s, 100, 21, 20); /* all of b's prompt is cached */
    step = make_step(&s);
    assert_fields(*item_of(&step, d, 0), begin, 20, n_tokens, 1);
}

/* The whole prompt's blocks are taken when it is admitted, and computed in chunks. */
TEST(test_admission_takes_whole_prompt)
{
    const kvp_config cache_config = config_of(4, 4, 8);
    const kvp_sched_config config = sched_config_of(4, 4);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 24, 4);
    const kvp_request b = submit(&s, 100, 24, 4);
    (void)run_step(&s);
    assert_int_equal(stats_of(&s.w).held_blocks, 6);
    assert_int_equal(sample_of(&s, a, 0).computed_tokens, 4);
    for (int i = 0; i < 4; i++) {
        const kvp_step step = run_step(&s); /* the budget is a's alone */
        assert_int_equal(step.waited[KVP_WAIT_TOKENS], 1);
    }
    (void)run_step(&s); /* the rest of a's prompt: it decodes from now on */
    const kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_WAITING);
    assert_int_equal(sched_stats_of(&s).preemptions, 0);
}

TEST(test_watermark)
{
    kvp_config cache_config = config_of(4, 4, 10);
    cache_config.watermark = 0.2; /* two blocks */
    const kvp_sched_config config = sched_config_of(4, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit(&s, 1, 15, 4); /* 4 blocks */
    (void)submit(&s, 100, 15, 4);
    (void)submit(&s, 200, 4, 4); /* fits, but not above the watermark */
    const kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 2, waited[KVP_WAIT_BLOCKS], 1);
}

TEST(test_order_is_priority_then_arrival)
{
    scoped_sched_world s = small_sched_world(64);
    const kvp_request a = submit_rank(&s, 1, 4, 4, 5, 1);
    const kvp_request b = submit_rank(&s, 100, 4, 4, 0, 1);
    const kvp_request c = submit_rank(&s, 200, 4, 4, 5, 1);
    const kvp_request d = submit_rank(&s, 300, 4, 4, -1, 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 4);
    const kvp_request order[] = {d, b, a, c};
    assert_memory_equal(step.admitted, order, sizeof order);
}

/* A request that does not fit is passed over K times, then everybody waits behind it. */
TEST(test_passed_over_at_most_k_times)
{
    const kvp_config cache_config = config_of(4, 4, 8);
    kvp_sched_config config = sched_config_of(8, 64);
    config.max_passed_over = 2;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit(&s, 1, 12, 20); /* 3 blocks, more later */
    (void)run_step(&s);
    const kvp_request big = submit(&s, 100, 24, 4); /* 6 */
    for (int i = 0; i < 4; i++)
        (void)submit(&s, 200 + 10 * i, 3, 1); /* one block, one token: over at once */
    kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 2, waited[KVP_WAIT_BLOCKS], 1, waited[KVP_WAIT_ORDER], 2);
    assert_int_equal(request_of(&s, big).passed_over, 2);
    while (request_of(&s, big).state == KVP_REQUEST_WAITING) {
        step = run_step(&s);
        assert_true(step.n_admitted == 0 || step.admitted[0].bits == big.bits);
    }
    assert_int_equal(request_of(&s, big).passed_over, 0);
}

TEST(test_at_most_max_tries)
{
    const kvp_config cache_config = config_of(4, 4, 8);
    kvp_sched_config config = sched_config_of(8, 64);
    config.max_tries = 2;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit(&s, 1, 16, 8);
    (void)run_step(&s);
    for (int i = 0; i < 3; i++)
        (void)submit(&s, 100 + 50 * i, 24, 4);
    (void)submit(&s, 300, 3, 1); /* would fit */
    const kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 0, waited[KVP_WAIT_BLOCKS], 2, waited[KVP_WAIT_ORDER], 2);
}

/* A request that waits for blocks is not matched anew in every step. */
TEST(test_waiting_costs_little)
{
    scoped_sched_world s = small_sched_world(40);
    (void)submit(&s, 1, 40, 100); /* 10 blocks, 35 in the end */
    (void)run_step(&s);
    const kvp_request big = submit(&s, 200, 152, 4); /* 38 */
    const uint64_t before = sched_stats_of(&s).tries;
    uint32_t n_steps = 0;
    while (request_of(&s, big).state == KVP_REQUEST_WAITING) {
        (void)run_step(&s);
        n_steps++;
    }
    assert_int_equal(n_steps, 100);
    assert_in_range(sched_stats_of(&s).tries - before, 2, 10);
}

/* What was promised to others may be what it waited for. */
TEST(test_promise_taken_back)
{
    const kvp_config cache_config = config_of(4, 4, 20);
    kvp_sched_config config = sched_config_of(8, 8);
    config.chunk_tokens = 2;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit(&s, 1, 1, 8);
    const kvp_request group = submit_rank(&s, 100, 4, 4, 0, 6); /* 1 block, 5 are promised */
    const kvp_request big = submit(&s, 200, 72, 4);             /* 18, all that is not held */
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_ok(kvp_sched_abort(s.sched, group));
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, big.bits);
}

TEST(test_sequence_limit)
{
    const kvp_config cache_config = config_of(4, 4, 64);
    const kvp_sched_config config = sched_config_of(3, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit_rank(&s, 1, 4, 4, 0, 2);
    (void)submit_rank(&s, 100, 4, 4, 0, 2);
    (void)submit_rank(&s, 200, 4, 4, 0, 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 2); /* the second does not fit and is passed over */
    assert_int_equal(step.waited[KVP_WAIT_SEQS], 1);
}

/* -------------------------------------------------------------------------------------- groups */

TEST(test_samples_share_the_prompt)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request r = submit_rank(&s, 1, 10, 4, 0, 3);
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_seqs, 1); /* the prompt is computed once */
    assert_int_equal(step.n_sampled, 3);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 2);
    assert_int_equal(stats_of(&s.w).held_blocks, 3);
    const int32_t sampled[] = {50, 60, 70};
    assert_ok(kvp_sched_finish(s.sched, sampled, NULL, NULL));
    check_sched(&s);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 0);
    assert_int_equal(stats_of(&s.w).held_blocks, 3);
    step = run_step(&s);
    assert_int_equal(step.n_decoding, 3);
    assert_int_equal(stats_of(&s.w).held_blocks, 5); /* two of three copied the partly filled one */
    int32_t text[12];
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(kvp_request_tokens(s.sched, r, i, (kvp_range){8, 12}, text));
        assert_int_equal(text[0], 9);
        assert_int_equal(text[2], sampled[i]);
        assert_ok(kvp_seq_tokens(s.w.cache, sample_of(&s, r, i).seq, 10, 1, text));
        assert_int_equal(text[0], sampled[i]);
    }
}

TEST(test_admission_counts_a_block_per_sample)
{
    scoped_sched_world s = small_sched_world(8);
    (void)submit(&s, 1, 12, 4);             /* 3 blocks */
    (void)submit_rank(&s, 100, 8, 4, 0, 3); /* 2 + 2, and 4 at the most */
    (void)submit(&s, 200, 5, 1);            /* 2: one is left besides what is promised */
    const kvp_step step = run_step(&s);
    assert_fields(step, n_admitted, 2, waited[KVP_WAIT_BLOCKS], 1);
}

/* And keeps the watermark beside what is promised. */
TEST(test_promises_keep_the_watermark)
{
    kvp_config cache_config = config_of(4, 4, 10);
    cache_config.watermark = 0.2; /* two blocks */
    const kvp_sched_config config = sched_config_of(8, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit_rank(&s, 1, 8, 4, 0, 3); /* 2 and 2 promised: 4 are left above the watermark */
    const kvp_request b = submit(&s, 100, 20, 4);
    const kvp_request c = submit(&s, 200, 16, 4);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 2);
    assert_int_equal(request_of(&s, b).passed_over, 1);
    assert_int_equal(request_of(&s, c).state, KVP_REQUEST_RUNNING);
}

/* A group that comes back: the first sample finds what was cached, the others are forked from it
 * and compute what they had generated; admission counts all of it. Nobody samples before all are
 * there. */
TEST(test_group_comes_back)
{
    kvp_config cache_config = config_of(4, 4, 14);
    cache_config.watermark = 0.5; /* does not count while nothing is held */
    const kvp_sched_config config = sched_config_of(8, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request r = submit_rank(&s, 1, 10, 12, 0, 3);
    for (int i = 0; i < 7; i++)
        (void)run_step(&s);
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    kvp_step step = make_step(&s); /* 17 tokens each: 16 of the first are cached */
    assert_int_equal(step.n_seqs, 1);
    assert_int_equal(step.seqs[0].begin, 15);
    assert_int_equal(step.seqs[0].n_tokens, 1);
    assert_int_equal(step.n_sampled, 0);
    assert_int_equal(sched_stats_of(&s).promised_blocks, 2 * 3); /* 5 less the prompt's full 2 */
    (void)finish_step(&s, &step);
    step = make_step(&s);
    assert_fields(step, n_seqs, 2, n_decoding, 0);
    assert_int_equal(item_of(&step, r, 1)->begin, 10);
    assert_int_equal(item_of(&step, r, 2)->n_tokens, 6);
    assert_int_equal(step.n_sampled, 0);
    (void)finish_step(&s, &step);
    step = make_step(&s);
    assert_int_equal(step.n_decoding, 3);
    assert_int_equal(step.seqs[0].begin, 16);
}

/* One sample catches up faster than another: it waits for it. */
TEST(test_samples_wait_for_each_other)
{
    const kvp_config cache_config = config_of(4, 4, 32);
    kvp_sched_config config = sched_config_of(8, 64);
    config.chunk_tokens = 4;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request r = submit_rank(&s, 1, 8, 20, 0, 3);
    const kvp_request other = submit(&s, 100, 4, 40);
    for (int i = 0; i < 8; i++)
        (void)run_step(&s);
    const uint32_t length = sample_of(&s, r, 0).n_tokens;
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    kvp_step step = make_step(&s);
    assert_int_equal(step.n_admitted, 2);
    while (item_of(&step, r, 0) == NULL || item_of(&step, r, 0)->n_sampled == 0) {
        assert_true(step.number < 20);
        (void)finish_step(&s, &step);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(sample_of(&s, r, i).n_tokens, length);
        step = make_step(&s);
    }
    assert_int_equal(step.number, 13); /* one chunk for the first, two for the others */
    assert_int_equal(step.n_decoding, 4);
    assert_non_null(item_of(&step, other, 0));
}

TEST(test_samples_end_one_by_one)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request r = submit_rank(&s, 1, 10, 4, 0, 3);
    const uint8_t ended[] = {0, 1, 0};
    kvp_step_end end;
    (void)make_step(&s);
    assert_ok(kvp_sched_finish(s.sched, ints(50), ended, &end));
    check_sched(&s);
    assert_int_equal(end.n_ended, 1);
    assert_int_equal(end.ended[0].sample, 1);
    assert_false(end.ended[0].is_last);
    assert_int_equal(request_of(&s, r).n_live, 2);
    assert_true(sample_of(&s, r, 1).has_ended);
    int32_t token;
    assert_ok(kvp_request_tokens(s.sched, r, 1, (kvp_range){10, 11}, &token));
    assert_int_equal(token, 51);
    for (int i = 0; i < 2; i++)
        (void)run_step(&s);
    const kvp_step step = make_step(&s);
    end = finish_step(&s, &step);
    assert_int_equal(end.n_ended, 2);
    assert_true(!end.ended[0].is_last && end.ended[1].is_last);
}

TEST(test_reorder)
{
    scoped_sched_world s = small_sched_world(32);
    const kvp_request r = submit_rank(&s, 1, 6, 20, 0, 4);
    for (int i = 0; i < 4; i++)
        (void)run_step(&s);
    int32_t before[4][10], after[10];
    for (uint32_t i = 0; i < 4; i++)
        assert_ok(kvp_request_tokens(s.sched, r, i, (kvp_range){0, 10}, before[i]));
    const uint32_t parents[] = {1, 1, 3, 0};
    const int32_t newest[] = {7, 8, 9, 10};
    const uint64_t n_forks = stats_of(&s.w).forks;
    assert_ok(kvp_sched_reorder(s.sched, r, parents, newest));
    check_sched(&s);
    assert_int_equal(stats_of(&s.w).forks, n_forks + 1); /* only what is named twice is forked */
    for (uint32_t i = 0; i < 4; i++) {
        assert_ok(kvp_request_tokens(s.sched, r, i, (kvp_range){0, 10}, after));
        before[parents[i]][9] = newest[i];
        assert_memory_equal(after, before[parents[i]], sizeof after);
        assert_ok(kvp_seq_tokens(s.w.cache, sample_of(&s, r, i).seq, 0, 9, after));
        assert_memory_equal(after, before[parents[i]], 9 * sizeof(int32_t));
    }
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_decoding, 4);
    assert_ok(kvp_sched_reorder(s.sched, r, parents, NULL));
    check_sched(&s);
}

TEST(test_reorder_refuses)
{
    scoped_sched_world s = small_sched_world(32);
    const kvp_request r = submit_rank(&s, 1, 6, 20, 0, 2);
    const uint32_t parents[] = {1, 0};
    const uint32_t wrong[] = {2, 0};
    const int32_t negative[] = {1, -1};
    assert_status(KVP_E_STATE, kvp_sched_reorder(s.sched, r, parents, NULL));
    (void)run_step(&s);
    assert_status(KVP_E_ARG, kvp_sched_reorder(s.sched, r, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_sched_reorder(s.sched, r, wrong, NULL));
    assert_status(KVP_E_ARG, kvp_sched_reorder(s.sched, r, parents, negative));
    assert_status(KVP_E_HANDLE, kvp_sched_reorder(s.sched, (kvp_request){77}, parents, NULL));
    (void)make_step(&s);
    assert_status(KVP_E_STATE, kvp_sched_reorder(s.sched, r, parents, NULL));
}

/* -------------------------------------------------------------------------- submission's memory */

TEST(test_arena_full_is_retry)
{
    const kvp_config cache_config = config_of(4, 4, 64);
    kvp_sched_config config = sched_config_of(4, 64);
    config.arena_tokens = 4 * KVP_SCHED_PAGE_TOKENS;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_request r;
    const kvp_request a = submit(&s, 1, 65, 64); /* two pages and one */
    const kvp_status status = try_submit(&s, 1, 2, 2, &r, NULL);
    assert_int_equal(status, KVP_E_NO_BLOCKS);
    assert_int_equal(kvp_status_class(status), KVP_CLASS_RETRY);
    const int32_t mine[] = {5, 6, 7};
    const kvp_prompt prompt = prompt_of(mine, 3);
    const kvp_submission borrowed = {.struct_size = sizeof borrowed,
                                     .prompt = &prompt,
                                     .ns = s.w.ns,
                                     .max_new_tokens = 2,
                                     .flags = KVP_SUBMIT_BORROW};
    (void)submit_with(&s, &borrowed); /* one page */
    assert_ok(kvp_sched_abort(s.sched, a));
    (void)submit(&s, 1, 2, 2);
    const kvp_step step = make_step(&s);
    assert_memory_equal(step.tokens, mine, sizeof mine);
}

TEST(test_places_full_is_retry)
{
    const kvp_config cache_config = config_of(4, 4, 64);
    kvp_sched_config config = sched_config_of(4, 64);
    config.max_requests = config.max_samples = 2;
    config.max_tries = 2;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_request r;
    (void)submit(&s, 1, 2, 2);
    (void)submit(&s, 1, 2, 2);
    assert_status(KVP_E_NO_SEQS, try_submit(&s, 1, 2, 2, &r, NULL));
    (void)run_step(&s);
    (void)run_step(&s);
    assert_ok(try_submit(&s, 1, 2, 2, &r, NULL));
}

/* What can never be served is refused, with what could be; and that can. */
static void check_limit(double watermark, uint32_t n_samples)
{
    kvp_config cache_config = config_of(4, 4, 12);
    cache_config.watermark = watermark;
    cache_config.max_seq_tokens = 60;
    const kvp_sched_config config = sched_config_of(4, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    kvp_sched_limit limit = {0, 0};
    kvp_prompt prompt = prompt_of(ints(1), 50);
    kvp_submission submission = {.struct_size = sizeof submission,
                                 .prompt = &prompt,
                                 .ns = s.w.ns,
                                 .n_samples = n_samples,
                                 .max_new_tokens = 1};
    kvp_request r;
    assert_status(KVP_E_NEVER, kvp_sched_submit(s.sched, &submission, &r, &limit));
    prompt.n_tokens = limit.max_prompt_tokens + 1;
    assert_status(KVP_E_NEVER, kvp_sched_submit(s.sched, &submission, &r, &limit));
    prompt.n_tokens = limit.max_prompt_tokens;
    submission.max_new_tokens = 1000;
    assert_status(KVP_E_TOO_LONG, kvp_sched_submit(s.sched, &submission, &r, &limit));
    submission.max_new_tokens = limit.max_tokens - prompt.n_tokens + 1;
    assert_status(KVP_E_NEVER, kvp_sched_submit(s.sched, &submission, &r, &limit));
    submission.max_new_tokens--;
    assert_ok(kvp_sched_submit(s.sched, &submission, &r, &limit));
    while (sched_stats_of(&s).ended == 0)
        (void)run_step(&s);
}

TEST(test_refused_with_the_limit)
{
    for (uint32_t n_samples = 1; n_samples <= 4; n_samples++) {
        check_limit(0, n_samples);
        check_limit(0.25, n_samples);
    }
}

/* ---------------------------------------------------------------------------------- wrong calls */

TEST(test_configuration_refused)
{
    scoped_world w = small_world(8);
    kvp_config cache_config;
    assert_ok(kvp_cache_config_get(w.cache, &cache_config));
    kvp_sched *sched;
    size_t bytes;
    kvp_sched_config good;
    kvp_sched_config_init(&good);
    assert_ok(kvp_sched_bytes(&good, w.cache, &bytes));
    kvp_sched_config bad[12];
    for (int i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].struct_size = 1;
    bad[1].max_requests = 0;
    bad[2].max_samples = good.max_requests - 1;
    bad[3].max_running = cache_config.max_seqs + 1;
    bad[4].step_tokens = 0;
    bad[5].max_tries = 0;
    bad[6].preempt = 3;
    bad[7].arena_tokens = UINT64_MAX;
    bad[8].swap_ahead = 2;
    bad[9].wait_for_prefix = 2;
    bad[10].free_target = 2; /* 8 blocks allow 1 */
    bad[11].make_way = 2;
    for (int i = 0; i < 12; i++)
        assert_status(KVP_E_ARG, kvp_sched_create(&bad[i], w.cache, NULL, 0, &sched));
    assert_status(KVP_E_ARG, kvp_sched_create(&good, NULL, NULL, 0, &sched));
    void *arena = aligned_alloc(64, bytes);
    memset(arena, 0xa5, bytes);
    assert_status(KVP_E_TOO_SMALL, kvp_sched_create(&good, w.cache, arena, bytes - 1, &sched));
    assert_ok(kvp_sched_create(&good, w.cache, arena, bytes, &sched));
    kvp_sched_destroy(sched);
    free(arena);
    kvp_sched_destroy(NULL);
}

TEST(test_submission_refused)
{
    scoped_sched_world s = small_sched_world(16);
    const int32_t negative[] = {1, -2};
    const kvp_prompt good = prompt_of(ints(1), 4);
    kvp_prompt reserving = good;
    kvp_prompt wrong = prompt_of(negative, 2);
    const kvp_prompt empty = prompt_of(ints(1), 0);
    const kvp_submission base = {
        .struct_size = sizeof base, .prompt = &good, .ns = s.w.ns, .max_new_tokens = 2};
    kvp_request r;
    reserving.reserve_tokens = 1;
    kvp_prompt received = good;
    received.flags = KVP_OPEN_RECEIVE;
    kvp_submission bad[9];
    for (int i = 0; i < 9; i++)
        bad[i] = base;
    bad[0].struct_size = 3;
    bad[1].prompt = NULL;
    bad[2].prompt = &reserving;
    bad[3].prompt = &wrong;
    bad[4].prompt = &empty;
    bad[5].n_samples = 9;
    bad[6].max_new_tokens = 0;
    bad[7].flags = 8;
    bad[8].prompt = &received;
    for (int i = 0; i < 9; i++)
        assert_status(KVP_E_ARG, kvp_sched_submit(s.sched, &bad[i], &r, NULL));
    assert_int_equal(sched_stats_of(&s).refused, 1); /* only what reached the cache counts */
    kvp_submission stale = base;
    stale.ns.bits ^= 1;
    assert_status(KVP_E_HANDLE, kvp_sched_submit(s.sched, &stale, &r, NULL));
    assert_status(KVP_E_ARG, kvp_sched_submit(s.sched, &base, NULL, NULL));
    assert_int_equal(sched_stats_of(&s).submitted, 0);
}

TEST(test_finish_refused)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request a = submit(&s, 1, 4, 4);
    const kvp_request b = submit(&s, 50, 4, 4);
    (void)make_step(&s);
    const int32_t negative[] = {3, -1};
    assert_status(KVP_E_ARG, kvp_sched_finish(s.sched, NULL, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_sched_finish(s.sched, negative, NULL, NULL));
    assert_int_equal(sample_of(&s, a, 0).computed_tokens, 0); /* unchanged */
    assert_ok(kvp_sched_abort(s.sched, b));
    assert_ok(kvp_sched_finish(s.sched, negative, NULL, NULL)); /* b's is not looked at */
    assert_int_equal(sample_of(&s, a, 0).computed_tokens, 4);
    assert_status(KVP_E_STATE, kvp_sched_fail(s.sched));
    assert_status(KVP_E_HANDLE, kvp_sched_abort(s.sched, b));
    assert_status(KVP_E_HANDLE, kvp_sched_pause(s.sched, b));
    assert_status(KVP_E_HANDLE, kvp_sched_resume(s.sched, b));
    kvp_sample_info info;
    int32_t token;
    assert_status(KVP_E_ARG, kvp_request_sample(s.sched, a, 1, &info));
    assert_status(KVP_E_ARG, kvp_request_tokens(s.sched, a, 0, (kvp_range){5, 6}, &token));
}

/* Sequences of the caller's own leave none to fork samples: try again. */
TEST(test_no_sequences_to_fork)
{
    scoped_sched_world s = small_sched_world(32); /* 8 sequences */
    (void)submit_rank(&s, 1, 6, 4, 0, 3);
    kvp_seq mine[6];
    const kvp_step step = make_step(&s);
    for (int i = 0; i < 6; i++)
        mine[i] = open_seq(&s.w, ints(1), 1, NULL);
    assert_unchanged(&s.w,
                     assert_status(KVP_E_NO_SEQS, kvp_sched_finish(s.sched, ints(1), NULL, NULL)));
    (void)close_seq(&s.w, mine[0]);
    (void)finish_step(&s, &step);
    assert_int_equal(stats_of(&s.w).open_seqs, 8);
    for (int i = 1; i < 6; i++)
        (void)close_seq(&s.w, mine[i]);
}

/* Hashes are of the prompt: when generated tokens come back with it they do not count. */
TEST(test_hashes)
{
    scoped_sched_world s = small_sched_world(16);
    kvp_hash root, hashes[2];
    const kvp_hash_input input = {.unit_tokens = 4, .n_tokens = 8, .tokens = ints(1)};
    assert_ok(kvp_hash_root(4, 0, "", 0, &root));
    assert_ok(kvp_hash_units(&input, &root, hashes));
    kvp_prompt prompt = prompt_of(ints(1), 8);
    prompt.hashes = hashes;
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = s.w.ns, .max_new_tokens = 12};
    const kvp_request r = submit_with(&s, &submission);
    for (int i = 0; i < 6; i++)
        (void)run_step(&s);
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_ended, 0);
    assert_int_equal(item_of(&step, r, 0)->begin, 12); /* a generated unit is hit as well */
}

/* A namespace that closes ends its waiting requests; those that run go on. */
TEST(test_namespace_closed)
{
    scoped_sched_world s = small_sched_world(16);
    kvp_ns ns;
    assert_ok(kvp_ns_open(s.w.cache, "other", 5, &ns));
    const kvp_prompt prompt = prompt_of(ints(1), 4);
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = 2};
    const kvp_request runs = submit_with(&s, &submission);
    (void)run_step(&s);
    const kvp_request waits = submit_with(&s, &submission);
    assert_ok(kvp_ns_close(s.w.cache, ns));
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_ended, 1);
    assert_int_equal(step.ended[0].request.bits, waits.bits);
    assert_int_equal(step.ended[0].reason, KVP_END_REFUSED);
    assert_int_equal(step.ended[0].status, KVP_E_HANDLE);
    assert_non_null(item_of(&step, runs, 0));
}

/* A caller who closes the scheduler's sequence loses that request, and no other. */
TEST(test_sequence_closed_behind_its_back)
{
    scoped_sched_world s = small_sched_world(16);
    const kvp_request a = submit(&s, 1, 4, 4);
    const kvp_request b = submit(&s, 50, 4, 4);
    (void)run_step(&s);
    assert_ok(kvp_seq_close(s.w.cache, sample_of(&s, a, 0).seq, NULL));
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_ended, 1);
    assert_int_equal(step.ended[0].request.bits, a.bits);
    assert_int_equal(step.n_seqs, 1);
    assert_non_null(item_of(&step, b, 0));
}

TEST_MAIN(NULL, NULL)

/* Requests that wait while another one computes their prefix (kvp_sched_config.wait_for_prefix):
 * what is computed then, whom they follow, for how long, and what ends it. */
#include "sched_world.h"

#include <string.h>

enum { S = 4, MOST = 640 };

/* chunk_tokens 0: none. */
static sched_world chunk_world(uint32_t usable, uint32_t step_tokens, uint32_t chunk_tokens,
                               uint32_t wait_for_prefix)
{
    kvp_config cache_config = config_of(S, S, usable);
    kvp_sched_config config = sched_config_of(8, step_tokens);
    cache_config.max_seq_tokens = MOST;
    cache_config.max_unit_keys = 2;
    config.chunk_tokens = chunk_tokens;
    config.max_passed_over = 0; /* strict order: whoever is tried and does not fit blocks all */
    config.wait_for_prefix = wait_for_prefix;
    config.max_loading = 1;
    return make_reading_world(&cache_config, &config);
}

static sched_world follow_world(uint32_t usable, uint32_t step_tokens, uint32_t wait_for_prefix)
{
    return chunk_world(usable, step_tokens, 0, wait_for_prefix);
}

/* A prompt of 0, 1, ... up to `common`, then tokens of its own. */
typedef struct text {
    int32_t tokens[MOST];
    kvp_prompt prompt;
    kvp_submission submission;
} text;

static void make_text(const sched_world *s, text *t, uint32_t common, uint32_t n, int32_t own)
{
    for (uint32_t i = 0; i < n; i++)
        t->tokens[i] = i < common ? (int32_t)i : own + (int32_t)i;
    t->prompt = prompt_of(t->tokens, n);
    t->submission = (kvp_submission){.struct_size = sizeof(t->submission),
                                     .prompt = &t->prompt,
                                     .ns = s->w.ns,
                                     .max_new_tokens = 3};
}

static kvp_request submit_common(sched_world *s, uint32_t common, uint32_t n, int32_t own)
{
    text t;
    make_text(s, &t, common, n, own);
    return submit_with(s, &t.submission);
}

static uint32_t state_of(const sched_world *s, kvp_request request)
{
    return request_of(s, request).state;
}

/* ------------------------------------------------------------------------------- what it is for */

static uint64_t count_computed(uint32_t step_tokens, uint32_t wait_for_prefix)
{
    sched_world s = follow_world(1300, step_tokens, wait_for_prefix);
    for (int32_t i = 0; i < 8; i++)
        (void)submit_common(&s, 560, 588, 1000 * (i + 1));
    run_until_over(&s, 8);
    const kvp_sched_stats stats = sched_stats_of(&s);
    end_sched_world(&s);
    return stats.scheduled_tokens;
}

/* Eight prompts of 560 common and 28 own tokens. After a prompt's step two tokens more are run. */
TEST(test_a_cold_prefix_is_computed_once_whatever_the_budget)
{
    static const uint32_t budgets[] = {16, 256, 2048, 8192};
    const uint64_t least = 560 + 8 * 28 + 8 * 2;
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(count_computed(budgets[i], 1), least);
    assert_true(count_computed(8192, 0) > 2 * least); /* all that fit at once compute it */
}

TEST(test_off_by_default)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    assert_int_equal(config.wait_for_prefix, 0);
    scoped_sched_world s = follow_world(64, 64, 0);
    (void)submit(&s, 0, 12, 2);
    (void)submit(&s, 0, 12, 2);
    assert_int_equal(run_step(&s).n_admitted, 2);
    assert_int_equal(sched_stats_of(&s).followed, 0);
}

/* b waits for a, and c for what it has in common with b, when a has computed the rest. */
TEST(test_one_follows_another_in_turn)
{
    scoped_sched_world s = follow_world(64, 64, 1);
    (void)submit_common(&s, 16, 24, 1000);
    const kvp_request b = submit_common(&s, 32, 36, 2000);
    const kvp_request c = submit_common(&s, 32, 40, 3000);
    kvp_step step = run_step(&s);
    assert_fields(step, n_tokens, 24, waited[KVP_WAIT_PREFIX], 2);
    step = run_step(&s);
    assert_int_equal(step.n_tokens, 1 + 20);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_int_equal(step.waited[KVP_WAIT_PREFIX], 1);
    step = run_step(&s);
    assert_int_equal(step.admitted[0].bits, c.bits);
    assert_int_equal(step.n_tokens, 1 + 1 + 8);
    assert_fields(sched_stats_of(&s), followed, 3, waited[KVP_WAIT_PREFIX], 3);
    run_until_over(&s, 3);
}

/* Chunks of 8: the follower is kept back until the last common unit is computed, and no longer. */
TEST(test_kept_back_for_as_long_as_it_pays)
{
    scoped_sched_world s = chunk_world(64, 64, 8, 1);
    (void)submit_common(&s, 22, 60, 1000);
    const kvp_request b = submit_common(&s, 22, 30, 2000);
    for (uint32_t i = 0; i < 3; i++) { /* 8, 16, 24 tokens: 20 of them are whole common units */
        assert_int_equal(run_step(&s).waited[KVP_WAIT_PREFIX], 1);
        assert_int_equal(request_of(&s, b).passed_over, 0);
    }
    assert_int_equal(run_step(&s).admitted[0].bits, b.bits);
    assert_int_equal(sched_stats_of(&s).followed, 1);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).cached_tokens, 20);
}

/* ------------------------------------------------------------------------------ what others do */

/* Strict order: a request that is kept back is no obstacle to others. */
TEST(test_others_come_in_past_it)
{
    scoped_sched_world s = chunk_world(80, 64, 16, 1);
    (void)submit_common(&s, 120, 120, 0);
    const kvp_request b = submit_common(&s, 120, 124, 2000);
    for (uint32_t i = 0; i < 7; i++) {
        const kvp_request past = submit(&s, 3000 + 10 * (int32_t)i, 3, 2);
        assert_int_equal(run_step(&s).waited[KVP_WAIT_PREFIX], 1);
        assert_int_equal(state_of(&s, past), KVP_REQUEST_RUNNING);
        assert_int_equal(request_of(&s, b).passed_over, 0);
        assert_int_equal(state_of(&s, b), KVP_REQUEST_WAITING);
    }
    assert_int_equal(sched_stats_of(&s).passed_over, 0);
    run_until_over(&s, 9);
}

/* --------------------------------------------------------------------------------- what ends it */

/* a has computed 16 of 60 tokens, b waits for it. */
static sched_world half_way(kvp_request *out_a, kvp_request *out_b)
{
    sched_world s = chunk_world(64, 64, 16, 1);
    *out_a = submit_common(&s, 60, 60, 0);
    *out_b = submit_common(&s, 60, 64, 2000);
    assert_int_equal(run_step(&s).waited[KVP_WAIT_PREFIX], 1);
    assert_int_equal(state_of(&s, *out_b), KVP_REQUEST_WAITING);
    return s;
}

static void expect_in(sched_world *s, kvp_request b, uint32_t cached)
{
    const kvp_step step = make_step(s);
    assert_int_equal(state_of(s, b), KVP_REQUEST_RUNNING);
    assert_int_equal(item_of(&step, b, 0)->begin, cached);
    (void)finish_step(s, &step);
}

TEST(test_in_when_the_other_is_aborted)
{
    kvp_request a, b;
    scoped_sched_world s = half_way(&a, &b);
    assert_ok(kvp_sched_abort(s.sched, a));
    expect_in(&s, b, 16);
    run_until_over(&s, 1);
}

TEST(test_in_when_the_other_is_paused)
{
    kvp_request a, b;
    scoped_sched_world s = half_way(&a, &b);
    assert_ok(kvp_sched_pause(s.sched, a));
    expect_in(&s, b, 16);
    assert_ok(kvp_sched_resume(s.sched, a));
    run_until_over(&s, 2);
}

/* A step that fails sends a back; it comes in before b, which follows it anew. */
TEST(test_again_when_the_step_failed)
{
    kvp_request a, b;
    scoped_sched_world s = half_way(&a, &b);
    kvp_step step = make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    check_sched(&s);
    assert_int_equal(state_of(&s, a), KVP_REQUEST_WAITING);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, a.bits);
    assert_int_equal(state_of(&s, b), KVP_REQUEST_WAITING);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).followed, 2); /* a runs anew, and is followed anew */
}

/* The other way round: b ranks before a that was sent back, computes the rest, and a follows it. */
TEST(test_roles_change)
{
    scoped_sched_world s = chunk_world(64, 64, 16, 1);
    text t;
    make_text(&s, &t, 60, 60, 0);
    t.submission.priority = 5;
    const kvp_request a = submit_with(&s, &t.submission);
    (void)run_step(&s);
    const kvp_request b = submit_common(&s, 60, 64, 2000);
    kvp_step step = make_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_PREFIX], 1);
    assert_ok(kvp_sched_fail(s.sched));
    step = make_step(&s);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_int_equal(item_of(&step, b, 0)->begin, 16);
    assert_int_equal(step.n_admitted, 1);
    (void)finish_step(&s, &step);
    for (uint32_t i = 0; i < 2; i++) { /* 32 of 60, then 48 */
        step = run_step(&s);
        assert_int_equal(state_of(&s, a), KVP_REQUEST_WAITING);
    }
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).lost_tokens, 16);
}

/* What is held is not followed, and what follows may be held. */
TEST(test_holds_and_followers)
{
    kvp_request a, b;
    scoped_sched_world s = half_way(&a, &b);
    assert_ok(kvp_sched_hold(s.sched, b, 9));
    assert_int_equal(run_step(&s).n_loading, 1);
    assert_ok(kvp_sched_release(s.sched, b));
    assert_int_equal(run_step(&s).n_admitted, 0);
    assert_int_equal(state_of(&s, b), KVP_REQUEST_WAITING);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).followed, 1);
    const kvp_request c = submit(&s, 3000, 12, 2);
    const kvp_request d = submit(&s, 3000, 12, 2);
    assert_ok(kvp_sched_hold(s.sched, c, 9));
    assert_int_equal(run_step(&s).admitted[0].bits, d.bits);
    assert_ok(kvp_sched_release(s.sched, c));
    run_until_over(&s, 4);
}

/* ------------------------------------------------------------------ what prompts have in common */

static void expect_both_in(sched_world *s, const text *a, const text *b)
{
    (void)submit_with(s, &a->submission);
    (void)submit_with(s, &b->submission);
    assert_int_equal(run_step(s).n_admitted, 2);
    assert_int_equal(sched_stats_of(s).followed, 0);
    end_sched_world(s);
}

TEST(test_keys_namespaces_and_flags_part_prompts)
{
    static const uint8_t one[1] = {1};
    static const uint8_t two[1] = {2};
    const kvp_key first = {.type = 1, .begin = 0, .end = 2, .n_bytes = 1, .bytes = one};
    const kvp_key other = {.type = 1, .begin = 0, .end = 2, .n_bytes = 1, .bytes = two};
    text a, b;
    for (uint32_t i = 0; i < 6; i++) {
        sched_world s = follow_world(64, 64, 1);
        const kvp_range none = {2, 3};
        make_text(&s, &a, 12, 12, 0);
        make_text(&s, &b, 12, 12, 0);
        if (i == 0) {
            a.prompt.keys = &first;
            a.prompt.n_keys = 1;
        } else if (i == 1) {
            a.prompt.keys = &first;
            b.prompt.keys = &other;
            a.prompt.n_keys = b.prompt.n_keys = 1;
        } else if (i == 2) {
            assert_ok(kvp_ns_open(s.w.cache, "other", 5, &b.submission.ns));
        } else if (i == 3) {
            b.prompt.flags = KVP_OPEN_NO_MATCH;
        } else {
            text *which = i == 4 ? &a : &b;
            which->prompt.uncached = &none;
            which->prompt.n_uncached = 1;
        }
        expect_both_in(&s, &a, &b);
    }
    sched_world s = follow_world(64, 64, 1); /* less than a unit */
    make_text(&s, &a, 3, 12, 1000);
    make_text(&s, &b, 3, 12, 2000);
    expect_both_in(&s, &a, &b);
}

/* Equal keys do not, and a key further on parts them there. */
TEST(test_equal_keys_are_common)
{
    static const uint8_t bytes[2] = {1, 2};
    const kvp_key a_keys[] = {{.type = 1, .begin = 0, .end = 2, .n_bytes = 1, .bytes = bytes},
                              {.type = 1, .begin = 9, .end = 10, .n_bytes = 1, .bytes = bytes}};
    const kvp_key b_keys[] = {{.type = 1, .begin = 0, .end = 2, .n_bytes = 1, .bytes = bytes},
                              {.type = 1, .begin = 9, .end = 10, .n_bytes = 1, .bytes = bytes + 1}};
    scoped_sched_world s = chunk_world(64, 64, 16, 1);
    text a, b;
    make_text(&s, &a, 40, 40, 0);
    make_text(&s, &b, 40, 40, 0);
    a.prompt.keys = a_keys;
    b.prompt.keys = b_keys;
    a.prompt.n_keys = b.prompt.n_keys = 2;
    (void)submit_with(&s, &a.submission);
    (void)submit_with(&s, &b.submission);
    assert_int_equal(run_step(&s).waited[KVP_WAIT_PREFIX], 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 1); /* a is at 16 of 40, but 8 is all that they share */
    assert_int_equal(step.n_tokens, 16 + 16);
    assert_int_equal(sched_stats_of(&s).cached_tokens, 8);
}

/* -------------------------------------------------------------------------- groups and samples */

/* Two groups, one with a window (S = 4, U = 1). */
TEST(test_with_windows_whole_units_are_common)
{
    kvp_config cache_config = config_of(S, 1, 96);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.n_groups = 2;
    cache_config.groups[1] = (kvp_group){0, 6, 0};
    config.wait_for_prefix = 1;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    (void)submit_common(&s, 15, 20, 1000);
    (void)submit_common(&s, 15, 20, 2000);
    (void)submit_common(&s, 0, 20, 3000);
    const kvp_step first = run_step(&s);
    assert_fields(first, waited[KVP_WAIT_PREFIX], 1, n_tokens, 40);
    assert_int_equal(run_step(&s).n_tokens, 1 + 1 + 5); /* 15 are hit */
    run_until_over(&s, 3);
}

/* All 4 samples of the first one are forked when the second one may come in. */
TEST(test_a_group_is_followed)
{
    scoped_sched_world s = follow_world(128, 64, 1);
    (void)submit_rank(&s, 0, 40, 4, 0, 4);
    const kvp_request b = submit_rank(&s, 0, 40, 4, 0, 4);
    assert_int_equal(run_step(&s).waited[KVP_WAIT_PREFIX], 1);
    const kvp_step step = run_step(&s);
    assert_int_equal(step.admitted[0].bits, b.bits);
    assert_int_equal(step.n_tokens, 4 + 1);
    run_until_over(&s, 2);
}

TEST_MAIN(NULL, NULL)

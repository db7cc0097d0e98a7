/* Groups of beams: reordered after every finish, for long, with swaps and recomputes in between.
 * What each beam should contain is kept aside, and so is whether the KV is its own. */
#include "sched_world.h"

#include <string.h>

enum { BEAMS = 4, PROMPT = 10, STEPS = 50 };

struct search {
    sched_world s;
    kvp_request request;
    uint64_t random;
    int32_t text[BEAMS][PROMPT + STEPS + 2];
    uint32_t n;
    uint32_t n_reordered;
};

static sched_world beam_world(uint32_t usable, uint32_t preempt)
{
    kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.host_blocks = 129;
    cache_config.max_seqs = 16;
    config.preempt = preempt;
    return make_reading_world(&cache_config, &config);
}

static void begin_search(struct search *search)
{
    search->request = submit_rank(&search->s, 1, PROMPT, STEPS + 2, 1, BEAMS);
    search->n = PROMPT;
    for (uint32_t i = 0; i < BEAMS; i++)
        memcpy(search->text[i], ints(1), PROMPT * sizeof(int32_t));
}

static int has_sampled(const struct search *search, const kvp_step *step)
{
    for (uint32_t i = 0; i < step->n_seqs; i++)
        if (step->seqs[i].request.bits == search->request.bits && step->seqs[i].n_sampled > 0)
            return 1;
    return 0;
}

/* The best continuations: of any beams. */
static void choose_best(struct search *search)
{
    static int32_t before[BEAMS][PROMPT + STEPS + 2];
    uint32_t parents[BEAMS];
    int32_t tokens[BEAMS];
    memcpy(before, search->text, sizeof before);
    for (uint32_t i = 0; i < BEAMS; i++) {
        parents[i] = draw(&search->random, BEAMS);
        tokens[i] = (int32_t)(2000 + draw(&search->random, 1000));
        memcpy(search->text[i], before[parents[i]], sizeof before[i]);
        search->text[i][search->n] = tokens[i];
    }
    search->n++;
    search->n_reordered++;
    assert_ok(kvp_sched_reorder(search->s.sched, search->request, parents, tokens));
    check_sched(&search->s);
}

static void check_text(const struct search *search)
{
    int32_t text[PROMPT + STEPS + 2];
    for (uint32_t i = 0; i < BEAMS; i++) {
        const kvp_sample_info info = sample_of(&search->s, search->request, i);
        assert_int_equal(info.n_tokens, search->n);
        assert_ok(kvp_request_tokens(search->s.sched, search->request, i, (kvp_range){0, search->n},
                                     text));
        assert_memory_equal(text, search->text[i], search->n * sizeof *text);
        if (info.seq.bits != 0 && info.computed_tokens > 0) {
            assert_ok(kvp_seq_tokens(search->s.w.cache, info.seq, 0, info.computed_tokens, text));
            assert_memory_equal(text, search->text[i], info.computed_tokens * sizeof *text);
        }
    }
}

static kvp_step search_step(struct search *search)
{
    const kvp_step step = make_step(&search->s);
    const int sampled = has_sampled(search, &step);
    (void)finish_step(&search->s, &step);
    if (sampled)
        choose_best(search);
    check_text(search);
    return step;
}

static void end_search(struct search *search)
{
    assert_int_equal(search->n_reordered, STEPS);
    assert_ok(kvp_sched_abort(search->s.sched, search->request));
    run_until_over(&search->s, sched_stats_of(&search->s).submitted - 1);
    end_sched_world(&search->s);
}

TEST(test_fifty_steps)
{
    struct search search = {.s = beam_world(80, KVP_PREEMPT_RECOMPUTE), .random = 3};
    begin_search(&search);
    while (search.n_reordered < STEPS) {
        const kvp_step step = search_step(&search);
        assert_true(step.number <= STEPS);
    }
    /* what beams share, they share: far fewer than four rows of 15 blocks */
    assert_true(stats_of(&search.s.w).held_blocks <= 2 + 4 * 8);
    end_search(&search);
}

/* Others take its blocks, again and again. */
static void run_with_others(uint32_t preempt, kvp_sched_stats *out_stats)
{
    struct search search = {.s = beam_world(62, preempt), .random = 4};
    begin_search(&search);
    for (int32_t i = 0; search.n_reordered < STEPS; i++) {
        if (i % 12 == 5)
            (void)submit_rank(&search.s, 100 + 50 * i % 3900, 40, 4, 0, 4); /* ranks before it */
        if (i % 12 == 10) {
            assert_ok(kvp_sched_pause(search.s.sched, search.request));
            (void)submit(&search.s, 110 + 50 * i % 3900, 200, 2);
        }
        if (i % 12 == 11)
            assert_ok(kvp_sched_resume(search.s.sched, search.request));
        assert_true(i < 1000);
        (void)search_step(&search);
    }
    const kvp_request_info info = request_of(&search.s, search.request);
    assert_true(info.preemptions >= 4);
    assert_int_equal(info.swaps, preempt == KVP_PREEMPT_SWAP ? info.preemptions : 0);
    *out_stats = sched_stats_of(&search.s);
    end_search(&search);
}

TEST(test_fifty_steps_with_swaps)
{
    kvp_sched_stats stats;
    run_with_others(KVP_PREEMPT_SWAP, &stats);
    assert_true(stats.swapped_in >= 4);
    assert_int_equal(stats.lost_tokens, 0);
}

TEST(test_fifty_steps_with_recomputes)
{
    kvp_sched_stats stats;
    run_with_others(KVP_PREEMPT_RECOMPUTE, &stats);
    assert_int_equal(stats.swapped_in, 0);
}

/* A beam that goes on from another one's is of the same request, and its sequence says so. */
TEST(test_forks_keep_the_tag)
{
    enum { TAG = 4711 };
    static const int32_t tokens[10];
    kvp_config cache_config = config_of(4, 4, 16);
    kvp_sched_config config = sched_config_of(8, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 10, .tag = TAG};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .ns = s.w.ns,
                                       .prompt = &prompt,
                                       .max_new_tokens = 9,
                                       .n_samples = 3};
    static const uint32_t parents[] = {2, 2, 2};
    const kvp_request request = submit_with(&s, &submission);
    (void)run_step(&s);
    for (int reordered = 0; reordered < 2; reordered++) {
        for (uint32_t i = 0; i < 3; i++) {
            kvp_sample_info sample;
            kvp_seq_info info;
            assert_ok(kvp_request_sample(s.sched, request, i, &sample));
            assert_ok(kvp_seq_info_get(s.w.cache, sample.seq, &info));
            assert_int_equal(info.tag, TAG);
        }
        assert_ok(kvp_sched_reorder(s.sched, request, parents, NULL));
    }
}

/* A group that may be reordered after each finish is not swapped out before that, ahead of need or
 * not; on the host it cannot be. */
TEST(test_when_it_may_be_reordered)
{
    kvp_config cache_config = config_of(4, 4, 16);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.host_blocks = 65;
    cache_config.watermark = 0.5;
    config.swap_ahead = 1;
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    const kvp_request a = submit(&s, 1, 15, 20);
    const kvp_request r = submit_rank(&s, 100, 10, 20, 0, 2);
    const uint32_t parents[] = {1, 0};
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 2);
    for (int i = 0; i < 2; i++) {
        assert_ok(kvp_sched_reorder(s.sched, r, parents, NULL));
        step = run_step(&s);
    }
    assert_ok(kvp_sched_reorder(s.sched, r, parents, NULL));
    step = run_step(&s); /* now it goes */
    assert_int_equal(step.n_swapped_out, 1);
    assert_status(KVP_E_STATE, kvp_sched_reorder(s.sched, r, parents, NULL));
    assert_ok(kvp_sched_abort(s.sched, a));
    step = run_step(&s);
    assert_int_equal(step.n_swapped_in, 1);
    assert_ok(kvp_sched_reorder(s.sched, r, parents, NULL));
    (void)make_step(&s);
    assert_ok(kvp_sched_fail(s.sched));
    assert_status(KVP_E_STATE, kvp_sched_reorder(s.sched, r, parents, NULL));
}

/* Beams that have ended stay as they are. */
TEST(test_some_have_ended)
{
    scoped_sched_world s = small_sched_world(32);
    const kvp_request r = submit_rank(&s, 1, 6, 20, 0, 4);
    const uint8_t ended[] = {0, 1, 0, 0};
    (void)make_step(&s);
    assert_ok(kvp_sched_finish(s.sched, ints(50), ended, NULL));
    const uint32_t wrong[] = {1, 0, 0, 0};
    const uint32_t right[] = {2, 77, 2, 3};
    const int32_t tokens[] = {60, -1, 62, 63};
    assert_status(KVP_E_ARG, kvp_sched_reorder(s.sched, r, wrong, NULL));
    assert_ok(kvp_sched_reorder(s.sched, r, right, tokens));
    check_sched(&s);
    for (uint32_t i = 0; i < 4; i++) {
        int32_t token;
        assert_ok(kvp_request_tokens(s.sched, r, i, (kvp_range){6, 7}, &token));
        assert_int_equal(token, i == 1 ? 51 : tokens[i]);
        assert_int_equal(sample_of(&s, r, i).has_ended, i == 1);
    }
    assert_int_equal(run_step(&s).n_decoding, 3);
    assert_ok(kvp_sched_reorder(s.sched, r, right, NULL));
    check_sched(&s);
    run_until_over(&s, 1);
}

TEST_MAIN(NULL, NULL)

/* The example model generates the same tokens whatever the engine is like: random requests that
 * share prefixes, random engines, random windows, against KV in one piece; and, for types that
 * round, engines against each other. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/attention.h>

#include "../../examples/tiny_llama/chains.h"
#include "../../examples/tiny_llama/engine.h"
#include "../../examples/tiny_llama/model.h"
#include "../../examples/tiny_llama/plain.h"
#include "../../examples/tiny_llama/speculate.h"

enum { MAX_REQUESTS = 7, MAX_PROMPT = 48, MAX_OUT = 3 * 10, VOCABULARY = 97, ROUNDS = 40 };

struct requests {
    uint32_t n;
    int32_t prompts[MAX_REQUESTS][MAX_PROMPT];
    int32_t out[MAX_REQUESTS][MAX_OUT];
    struct generation generations[MAX_REQUESTS];
};

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*random >> 33) % n);
}

static model_config make_config(void)
{
    return (model_config){.n_layers = 2,
                          .n_heads = 4,
                          .n_kv_heads = 2,
                          .head_size = 8,
                          .width = 32,
                          .hidden = 48,
                          .vocabulary = VOCABULARY,
                          .max_tokens = 800,
                          .seed = 5,
                          .theta = 10000.0};
}

static struct model *make_model(void)
{
    const model_config config = make_config();
    struct model *model = model_create(&config);
    assert_non_null(model);
    return model;
}

/* One of the two layers has a window, often of less than a block. */
static struct model *draw_windowed_model(uint64_t *random)
{
    model_config config = make_config();
    config.window_layers = 1 + draw(random, 2);
    config.sink_tokens = draw(random, 6);
    config.recent_tokens = 1 + draw(random, 20);
    struct model *model = model_create(&config);
    assert_non_null(model);
    return model;
}

static void draw_requests(struct requests *requests, uint64_t *random)
{
    memset(requests, 0, sizeof *requests);
    requests->n = 1 + draw(random, MAX_REQUESTS);
    for (uint32_t i = 0; i < requests->n; i++) {
        struct generation *g = &requests->generations[i];
        const uint32_t like = draw(random, i + 1), shared = draw(random, MAX_PROMPT);
        for (uint32_t at = 0; at < MAX_PROMPT; at++)
            requests->prompts[i][at] =
                at < shared ? requests->prompts[like][at] : (int32_t)draw(random, VOCABULARY);
        *g = (struct generation){.prompt = requests->prompts[i],
                                 .n_prompt = 1 + draw(random, MAX_PROMPT),
                                 .n_new = 1 + draw(random, 10),
                                 .n_samples = draw(random, 2) ? 1 : 1 + draw(random, 3),
                                 .is_beam = draw(random, 4) == 0,
                                 .seed = draw(random, 1000),
                                 .out = requests->out[i]};
    }
}

static engine_options draw_options(uint64_t *random)
{
    engine_options options = engine_default_options();
    options.block_tokens = 1 + draw(random, 9);
    options.step_tokens = 24 + draw(random, 16);
    options.chunk_tokens = draw(random, 2) ? 0 : 1 + draw(random, 12);
    options.max_running = 3 + draw(random, 20);
    options.max_running =
        options.max_running > options.step_tokens ? options.step_tokens : options.max_running;
    options.prefix_cache = draw(random, 3) > 0;
    options.cascade = draw(random, 2);
    options.rope_mode = draw(random, 2) ? KVP_ROPE_AT_READ : KVP_ROPE_AT_WRITE;
    options.preempt = draw(random, 3);
    options.host_blocks = draw(random, 2) ? 0 : 8 + draw(random, 100);
    options.overlapped = draw(random, 2);
    options.lose_steps = draw(random, 4) == 0;
    return options;
}

/* Run in a new engine, twice; the tokens of both runs are the same, and are left in `requests`. */
static engine_counts run(struct model *model, const engine_options *options,
                         struct requests *requests)
{
    struct engine *engine;
    struct requests again = *requests;
    assert_int_equal(engine_create(model, options, &engine), KVP_OK);
    for (uint32_t i = 0; i < requests->n; i++)
        again.generations[i].out = again.out[i];
    assert_int_equal(engine_run(engine, requests->generations, requests->n), KVP_OK);
    assert_int_equal(engine_run(engine, again.generations, again.n), KVP_OK);
    assert_memory_equal(again.out, requests->out, sizeof again.out);
    const engine_counts counts = engine_counts_of(engine);
    if (!options->prefix_cache)
        assert_int_equal(counts.cached_tokens, 0);
    engine_destroy(engine);
    return counts;
}

static void compute_plain(struct model *model, struct requests *requests)
{
    for (uint32_t i = 0; i < requests->n; i++)
        assert_int_equal(plain_generate(model, &requests->generations[i]), 0);
}

static void copy_requests(struct requests *to, const struct requests *from)
{
    *to = *from;
    memset(to->out, 0, sizeof to->out);
    for (uint32_t i = 0; i < to->n; i++)
        to->generations[i].out = to->out[i];
}

TEST(test_any_engine_gives_the_tokens_of_plain_kv)
{
    struct model *model = make_model();
    static struct requests expected, found;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        uint64_t random = seed;
        draw_requests(&expected, &random);
        const engine_options options = draw_options(&random);
        copy_requests(&found, &expected);
        compute_plain(model, &expected);
        (void)run(model, &options, &found);
        assert_memory_equal(found.out, expected.out, sizeof found.out);
    }
    model_destroy(model);
}

/* Pools in which not all fit. */
TEST(test_preempted_requests_give_the_same_tokens)
{
    struct model *model = make_model();
    static struct requests expected, found;
    uint64_t n_recomputed = 0, n_swapped = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        uint64_t random = 100 + seed;
        draw_requests(&expected, &random);
        engine_options options = draw_options(&random);
        options.n_blocks = 6 + (MAX_PROMPT + MAX_OUT) / options.block_tokens;
        options.lose_steps = 0;
        if (seed % 2 == 0) {
            options.preempt = KVP_PREEMPT_SWAP;
            options.host_blocks = 100;
        }
        copy_requests(&found, &expected);
        compute_plain(model, &expected);
        const engine_counts counts = run(model, &options, &found);
        n_recomputed += counts.preemptions - counts.swaps;
        n_swapped += counts.swaps;
        assert_memory_equal(found.out, expected.out, sizeof found.out);
    }
    assert_true(n_recomputed >= 4 && n_swapped >= 4);
    model_destroy(model);
}

/* K and V rounded to 16 bits are other K and V, but in every engine the same ones. */
TEST(test_rounded_kv_is_the_same_in_every_engine)
{
    struct model *model = make_model();
    static struct requests first, second;
    for (uint64_t seed = 1; seed <= ROUNDS / 2; seed++) {
        uint64_t random = 200 + seed;
        draw_requests(&first, &random);
        engine_options a = draw_options(&random), b = draw_options(&random);
        a.type = b.type = seed % 2 ? KVP_BF16 : KVP_F16;
        b.rope_mode = a.rope_mode; /* what is rounded is turned, or it is not */
        copy_requests(&second, &first);
        (void)run(model, &a, &first);
        (void)run(model, &b, &second);
        assert_memory_equal(first.out, second.out, sizeof first.out);
    }
    model_destroy(model);
}

/* K stays turned to where it is, and requests with samples are not computed anew: engine.h. */
static engine_options draw_windowed_options(uint64_t *random)
{
    engine_options options = draw_options(random);
    options.rope_mode = KVP_ROPE_AT_WRITE;
    options.lose_steps = 0;
    return options;
}

TEST(test_any_engine_gives_the_tokens_of_a_windowed_model)
{
    static struct requests expected, found;
    uint64_t n_dropped = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        uint64_t random = 300 + seed;
        struct model *model = draw_windowed_model(&random);
        draw_requests(&expected, &random);
        const engine_options options = draw_windowed_options(&random);
        copy_requests(&found, &expected);
        compute_plain(model, &expected);
        n_dropped += run(model, &options, &found).dropped_blocks;
        assert_memory_equal(found.out, expected.out, sizeof found.out);
        model_destroy(model);
    }
    assert_true(n_dropped >= 1000);
}

/* Pools in which not all fit. */
TEST(test_preempted_requests_of_a_windowed_model_give_the_same_tokens)
{
    static struct requests expected, found;
    uint64_t n_recomputed = 0, n_swapped = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        uint64_t random = 400 + seed;
        struct model *model = draw_windowed_model(&random);
        draw_requests(&expected, &random);
        engine_options options = draw_windowed_options(&random);
        for (uint32_t i = 0; i < expected.n; i++) {
            expected.generations[i].n_samples = 1;
            expected.generations[i].is_beam = 0;
        }
        options.n_blocks = 4 + 2 * (MAX_PROMPT + 10) / options.block_tokens;
        if (seed % 2 == 0) {
            options.preempt = KVP_PREEMPT_SWAP;
            options.host_blocks = 200;
        }
        copy_requests(&found, &expected);
        compute_plain(model, &expected);
        const engine_counts counts = run(model, &options, &found);
        n_recomputed += counts.preemptions - counts.swaps;
        n_swapped += counts.swaps;
        assert_memory_equal(found.out, expected.out, sizeof found.out);
        model_destroy(model);
    }
    assert_true(n_recomputed >= 4 && n_swapped >= 4);
}

/* Token trees, with windows and without: as many right nodes, wrong ones and forks as there are. */
TEST(test_accepted_paths_are_the_tokens_of_plain_kv)
{
    static struct requests expected;
    uint64_t n_accepted = 0, n_moved = 0, n_cached = 0, n_dropped = 0;
    for (uint64_t seed = 1; seed <= 2 * ROUNDS; seed++) {
        uint64_t random = 500 + seed;
        struct model *model = seed % 2 ? make_model() : draw_windowed_model(&random);
        draw_requests(&expected, &random);
        const speculate_options options = {.block_tokens = 1 + draw(&random, 9),
                                           .together = draw(&random, 2),
                                           .rounds = 1 + draw(&random, 2),
                                           .fork = draw(&random, 2),
                                           .again = draw(&random, 2)};
        speculate_counts counts;
        expected.n = expected.n < 4 ? expected.n : 4;
        compute_plain(model, &expected);
        assert_int_equal(speculate_run(model, &options, expected.generations, expected.n, &counts),
                         KVP_OK);
        assert_int_equal(counts.different, 0);
        n_accepted += counts.accepted_tokens;
        n_moved += counts.moved_slots;
        n_cached += counts.cached_tokens;
        n_dropped += counts.dropped_blocks;
        model_destroy(model);
    }
    assert_true(n_accepted >= 500 && n_moved >= 300 && n_cached >= 1000 && n_dropped >= 500);
}

/* Chains of drafts with recurrent state, half of them in pools in which not all fit. */
TEST(test_accepted_chains_are_the_tokens_of_plain_states)
{
    static struct requests expected;
    uint64_t n_accepted = 0, n_refused = 0, n_preempted = 0, n_hits = 0;
    for (uint64_t seed = 1; seed <= 2 * ROUNDS; seed++) {
        uint64_t random = 600 + seed;
        model_config config = make_config();
        config.recurrent_layers = 1u << draw(&random, 2);
        struct model *model = model_create(&config);
        assert_non_null(model);
        draw_requests(&expected, &random);
        const uint32_t block_tokens = 1 + draw(&random, 9), is_small = (uint32_t)(seed % 2);
        for (uint32_t i = 0; is_small && i < expected.n; i++) {
            expected.generations[i].n_samples = 1;
            expected.generations[i].is_beam = 0;
        }
        const chains_options options = {.block_tokens = block_tokens,
                                        .n_blocks = 4 + (is_small ? 1u : 4u) * (MAX_PROMPT + 10) /
                                                            block_tokens,
                                        .state_slots = 8 + draw(&random, 60),
                                        .max_running = 3 + draw(&random, 6),
                                        .draft_tokens = draw(&random, 1 + KVP_SCHED_DRAFTS_MAX),
                                        .chunk_tokens = draw(&random, 12),
                                        .lose_steps = draw(&random, 4) == 0,
                                        .times = 1 + draw(&random, 2)};
        compute_plain(model, &expected);
        chains_counts counts;
        assert_int_equal(chains_run(model, &options, expected.generations, expected.n, &counts),
                         KVP_OK);
        assert_int_equal(counts.missing, 0);
        n_accepted += counts.sched.accepted_tokens;
        n_refused += counts.sched.draft_tokens - counts.sched.accepted_tokens;
        n_preempted += options.lose_steps ? 0 : counts.sched.preemptions;
        n_hits += counts.hits;
        model_destroy(model);
    }
    assert_true(n_accepted >= 1000 && n_refused >= 500 && n_preempted >= 8 && n_hits >= 150);
}

TEST_MAIN(NULL, NULL)

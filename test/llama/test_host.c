/* The host tier over the fake llama.cpp: what is evicted goes out in pieces of neighbouring blocks,
 * comes back in one call, and only where that is faster. S = 4. */
#include <string.h>

#include "mocka.h"
#include "fake/fake.h"
#include "scoped_engine.h"

#include "engine.h"

enum { S = 4, BLOCKS = 6, PIECE = 3 }; /* blocks of the device; of the longest piece */
enum { ALL = BLOCKS * S - 1 };         /* a prompt that takes all blocks, and fills five */
enum { LONGEST = 1024 };

static struct llama_model plain = {.architecture = "llama"};

/* A clock that moves while pieces are put, and while prompts are computed. */
static uint64_t now, each_put, each_decode, n_put;

static uint32_t n_blocks; /* of the engine */

static uint64_t read_clock(void *clock)
{
    (void)clock;
    now += n_put == fake_states_set ? each_decode : each_put;
    n_put = fake_states_set;
    return now;
}

static kvp_llama *make_of(uint32_t blocks, uint32_t host_blocks, uint32_t preempt, kvp_why *why)
{
    kvp_llama_config config;
    kvp_sched_config sched;
    kvp_llama *engine;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    kvp_sched_config_init(&sched);
    sched.preempt = preempt;
    sched.recompute_token_cost = 1;
    sched.swap_block_cost = 5;
    config.sched = &sched;
    config.block_tokens = S;
    config.max_ids = 16;
    config.max_running = 2;
    config.watermark = 0;
    config.host_blocks = host_blocks;
    config.stretch_tokens = PIECE * S;
    config.now_ns = read_clock;
    params.n_ctx = (blocks + PIECE) * S;
    params.flash_attn_type =
        why == NULL ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_AUTO;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, why), KVP_OK);
    n_blocks = blocks;
    each_put = 1;
    each_decode = 1000;
    return engine;
}

static kvp_llama *make(uint32_t host_blocks, uint32_t preempt, kvp_why *why)
{
    return make_of(BLOCKS, host_blocks, preempt, why);
}

static kvp_llama_stats check(const kvp_llama *engine)
{
    kvp_violation violation;
    kvp_llama_stats stats;
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_OK);
    assert_true(fake_used(kvp_llama_context(engine)) <= n_blocks * S);
    kvp_llama_stats_get(engine, &stats);
    return stats;
}

static kvp_request submit_samples(kvp_llama *engine, int32_t first, uint32_t n, uint32_t n_new,
                                  uint32_t n_samples)
{
    int32_t tokens[LONGEST];
    kvp_ns ns;
    kvp_request request;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), KVP_OK);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = ns,
                                       .max_new_tokens = n_new,
                                       .n_samples = n_samples};
    assert_int_equal(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL),
                     KVP_OK);
    return request;
}

static void submit(kvp_llama *engine, int32_t first, uint32_t n, uint32_t n_new)
{
    (void)submit_samples(engine, first, n, n_new, 1);
}

/* The logits of each sequence are what its tokens alone give. */
static uint32_t make_step(kvp_llama *engine)
{
    const int32_t sampled[4] = {0, 1, 2, 3};
    kvp_step step;
    int32_t tokens[LONGEST];
    uint32_t at = 0;
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    for (uint32_t k = 0; k < step.n_seqs; k++) {
        const kvp_range range = {0, step.seqs[k].begin + step.seqs[k].n_tokens};
        uint64_t kv = 0, seen = 0;
        assert_int_equal(kvp_request_tokens(kvp_llama_sched(engine), step.seqs[k].request,
                                            step.seqs[k].sample, range, tokens),
                         KVP_OK);
        for (uint32_t i = 0; i < range.end; i++) {
            kv = fake_kv(tokens[i], i, seen);
            seen += fake_seen(kv, i);
        }
        for (uint32_t i = 0; i < step.seqs[k].n_sampled; i++)
            assert_true(kvp_llama_logits(engine, at++)[0] == fake_logit(kv, 0));
    }
    if (step.n_seqs > 0)
        assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    (void)check(engine);
    return step.n_seqs;
}

/* Gives the tokens that were computed. */
static uint64_t run_prompt(kvp_llama *engine, int32_t first, uint32_t n)
{
    const uint64_t before = check(engine).decoded_tokens;
    submit(engine, first, n, 1);
    while (make_step(engine) > 0)
        ;
    return check(engine).decoded_tokens - before;
}

TEST(without_flash_attention_there_is_none)
{
    kvp_why why;
    kvp_stats stats;
    scoped_engine *engine = make(20, 0, &why);
    assert_string_equal(why.field, "flash_attn_type");
    assert_non_null(strstr(why.text, "no host tier"));
    assert_int_equal(kvp_cache_stats_get(kvp_llama_cache(engine), &stats), KVP_OK);
    assert_fields(stats, host_usable_blocks, 0, usable_blocks, BLOCKS + PIECE);
}

TEST(pieces_need_cells)
{
    kvp_llama_config config;
    kvp_llama *engine;
    kvp_why why;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 64;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    kvp_llama_config_init(&config);
    config.host_blocks = 10;
    config.stretch_tokens = 0;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);
    assert_string_equal(why.text, "stretch_tokens is 0, expected 1 to 32");
    config.stretch_tokens = 33;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);
    config.stretch_tokens = 32;
    config.block_tokens = 40;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);
    assert_string_equal(why.field, "block_tokens");
}

TEST(neighbours_go_together)
{
    scoped_engine *engine = make(20, 0, NULL);
    const uint64_t got = fake_states_got, set = fake_states_set;
    assert_int_equal(run_prompt(engine, 100, 5 * S), 5 * S);
    assert_int_equal(run_prompt(engine, 200, ALL), ALL);
    assert_int_equal(fake_states_got - got, 2); /* 3 blocks and 2 */
    assert_fields(check(engine), stretches_out, 2, host_dead_bytes, 0);
    assert_int_equal(run_prompt(engine, 100, 5 * S + 1), 1);
    assert_int_equal(fake_states_set - set, 2);
    assert_int_equal(check(engine).stretches_in, 2);
    assert_int_equal(run_prompt(engine, 300, ALL), ALL);
    assert_int_equal(run_prompt(engine, 100, S + 1), 1); /* one block of a piece */
    assert_int_equal(run_prompt(engine, 200, 4 * S + 1), 1);
}

TEST(pieces_are_freed_with_their_last_block)
{
    scoped_engine *engine = make(4, 0, NULL); /* three blocks */
    (void)run_prompt(engine, 100, 3 * S);
    (void)run_prompt(engine, 200, ALL);
    const uint64_t whole = check(engine).host_bytes;
    assert_true(whole > 0);
    assert_int_equal(check(engine).host_dead_bytes, 0);
    (void)run_prompt(engine, 300, 2 * S); /* evicts one: it goes where one of the piece was */
    assert_int_equal(check(engine).host_dead_bytes, whole / 3);
    assert_true(check(engine).host_bytes > whole);
    (void)run_prompt(engine, 400, ALL);
    assert_int_equal(check(engine).host_dead_bytes, 0);
}

TEST(what_is_slow_does_not_come_back)
{
    scoped_engine *engine = make(20, 0, NULL);
    each_put = 1000000;
    (void)run_prompt(engine, 100, 5 * S);
    (void)run_prompt(engine, 200, ALL);
    assert_int_equal(run_prompt(engine, 100, 5 * S + 1), 1); /* not measured yet */
    assert_true(check(engine).slow_blocks > 0);
    assert_int_equal(run_prompt(engine, 300, ALL), ALL);
    assert_int_equal(run_prompt(engine, 100, 5 * S + 1), 5 * S + 1); /* dropped */
    const uint64_t out = check(engine).stretches_out;
    uint32_t n = 0;
    while (check(engine).stretches_out == out && n++ < 1000) /* after some time again */
        (void)run_prompt(engine, 1000 + 100 * (int32_t)n, ALL);
    assert_in_range(n, KVPI_RATES_REFUSALS / 4, KVPI_RATES_REFUSALS);
}

/* All blocks go to the host and come back from there in one step, and none is lost. */
TEST(a_step_may_exchange_all_blocks)
{
    enum { MANY = 100, HALF = MANY / 2 * S };
    scoped_engine *engine = make_of(MANY, 4 * MANY, 0, NULL);
    kvp_stats stats;
    (void)run_prompt(engine, 10000, HALF - 1);
    (void)run_prompt(engine, 20000, HALF - 1);
    (void)run_prompt(engine, 30000, MANY * S - 1);
    const uint64_t before = check(engine).decoded_tokens;
    submit(engine, 10000, HALF - 1, 1);
    submit(engine, 20000, HALF - 1, 1);
    assert_int_equal(make_step(engine), 2);
    assert_int_equal(check(engine).decoded_tokens - before, 2 * (S - 1)); /* no whole block */
    while (make_step(engine) > 0)
        ;
    assert_int_equal(run_prompt(engine, 30000, MANY * S - 1), S - 1);
    assert_int_equal(kvp_cache_stats_get(kvp_llama_cache(engine), &stats), KVP_OK);
    assert_int_equal(stats.unkept_blocks, 0);
}

TEST(requests_are_swapped)
{
    scoped_engine *engine = make(20, KVP_PREEMPT_SWAP, NULL);
    kvp_sched_stats stats;
    submit(engine, 100, 2 * S + 1, 2 * S);
    submit(engine, 200, 2 * S + 1, 2 * S);
    const uint64_t least = 2 * (2 * S + 1 + 2 * S - 1);
    while (make_step(engine) > 0)
        ;
    assert_int_equal(kvp_sched_stats_get(kvp_llama_sched(engine), &stats), KVP_OK);
    assert_true(stats.swapped_out > 0);
    assert_int_equal(stats.swapped_in, stats.swapped_out);
    assert_int_equal(check(engine).decoded_tokens, least); /* nothing is computed twice */
}

static uint64_t count_swapped(const kvp_llama *engine)
{
    kvp_sched_stats stats;
    assert_int_equal(kvp_sched_stats_get(kvp_llama_sched(engine), &stats), KVP_OK);
    return stats.swapped_out;
}

/* In the newest plan. */
static uint32_t copies_on_write(const kvp_llama *engine)
{
    const kvp_copy *copies = engine->ids.copies;
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->ids.n_copies; i++)
        n += copies[i].src_tier == KVP_DEVICE && copies[i].dst_tier == KVP_DEVICE;
    return n;
}

/* Two samples that share a partly filled block are swapped out, and come back: one gets a block of
 * its own in the plan that brings both. */
TEST(samples_come_back_with_a_block_of_their_own)
{
    scoped_engine *engine = make(20, KVP_PREEMPT_SWAP, NULL);
    kvp_sched *sched = kvp_llama_sched(engine);
    const kvp_request request = submit_samples(engine, 100, S + 1, S, 2);
    assert_int_equal(make_step(engine), 1);
    assert_int_equal(kvp_sched_pause(sched, request), KVP_OK);
    assert_int_equal(run_prompt(engine, 200, ALL), ALL);
    assert_int_equal(kvp_sched_resume(sched, request), KVP_OK);
    assert_int_equal(make_step(engine), 2);
    assert_int_equal(copies_on_write(engine), 1);
    while (make_step(engine) > 0)
        ;
}

/* The same with a block that is still on the device: the first sample has computed all of it again,
 * the second one has been forked at the prompt's end, inside it. */
TEST(samples_come_back_to_a_block_that_is_there)
{
    scoped_engine *engine = make(20, KVP_PREEMPT_CHEAPER, NULL);
    kvp_sched *sched = kvp_llama_sched(engine);
    const kvp_request request = submit_samples(engine, 100, S + 2, S, 2);
    for (uint32_t i = 0; i < 3; i++)
        (void)make_step(engine);
    assert_int_equal(kvp_sched_pause(sched, request), KVP_OK);
    assert_int_equal(run_prompt(engine, 200, ALL), ALL);
    assert_int_equal(count_swapped(engine), 0); /* computing is cheaper */
    assert_int_equal(kvp_sched_resume(sched, request), KVP_OK);
    assert_int_equal(make_step(engine), 1);
    assert_int_equal(kvp_sched_pause(sched, request), KVP_OK);
    (void)run_prompt(engine, 300, 4 * S - 1);
    assert_int_equal(count_swapped(engine), 1); /* most is on the host already */
    assert_int_equal(kvp_sched_resume(sched, request), KVP_OK);
    assert_int_equal(make_step(engine), 1);
    assert_int_equal(copies_on_write(engine), 1);
    while (make_step(engine) > 0)
        ;
}

TEST(a_copied_block_that_is_replaced_is_found)
{
    scoped_engine *engine = make(20, 0, NULL);
    kvp_violation violation;
    kvp_copy copies[2] = {{.src_block = 3, .dst_block = 4, .n_tokens = 2},
                          {.src_tier = KVP_HOST, .src_block = 1, .dst_block = 3, .n_tokens = S}};
    kvpi_ids_note_plan(&engine->ids, copies, 1);
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_OK);
    kvpi_ids_note_plan(&engine->ids, copies, 2);
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_E_CORRUPT);
    assert_string_equal(violation.invariant, "L7");
    assert_int_equal(violation.object, 3);
}

TEST_MAIN(NULL, NULL)

/* The engine over the fake llama.cpp: what is refused, how keepers are packed and emptied, and what
 * is left after a decode that fails. S = 4. */
#include <string.h>

#include "mocka.h"
#include "fake/fake.h"
#include "scoped_engine.h"

#include "engine.h"
#include "models.h"

enum { S = 4 };

static struct llama_model plain = {.architecture = "llama"};

static kvp_llama *make(uint32_t max_ids, uint32_t max_running, uint32_t n_cells)
{
    kvp_llama_config config;
    kvp_llama *engine;
    kvp_why why;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    config.block_tokens = S;
    config.max_ids = max_ids;
    config.max_running = max_running;
    config.watermark = 0;
    params.n_ctx = n_cells;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_OK);
    assert_string_equal(why.text, "");
    return engine;
}

static void check(const kvp_llama *engine)
{
    kvp_violation violation;
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_OK);
}

/* A prompt of first, first + 1, ... with one new token; runs until nothing is left to do. Gives the
 * tokens that the cache had. */
static uint64_t run_prompt(kvp_llama *engine, int32_t first, uint32_t n)
{
    int32_t tokens[64];
    const int32_t sampled[8] = {0};
    kvp_ns ns;
    kvp_request request;
    kvp_step step;
    kvp_sched_stats before, after;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), KVP_OK);
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = 1};
    kvp_sched *sched = kvp_llama_sched(engine);
    assert_int_equal(kvp_sched_stats_get(sched, &before), KVP_OK);
    assert_int_equal(kvp_sched_submit(sched, &submission, &request, NULL), KVP_OK);
    while (kvp_llama_run(engine, &step) == KVP_OK && step.n_seqs > 0)
        assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    assert_int_equal(kvp_sched_stats_get(sched, &after), KVP_OK);
    check(engine);
    return after.cached_tokens - before.cached_tokens;
}

static kvp_llama_stats stats_of(const kvp_llama *engine)
{
    kvp_llama_stats stats;
    kvp_llama_stats_get(engine, &stats);
    return stats;
}

/* ---------------------------------------------------------------------------- what is refused */

static void refuse(const struct llama_model *model, const struct llama_context_params *params,
                   const char *field, const char *word)
{
    kvp_why why;
    assert_int_equal(kvp_llama_check_model(model, params, &why), KVP_E_ARG);
    assert_string_equal(why.field, field);
    assert_non_null(strstr(why.text, word));
}

TEST(models_are_refused_by_name)
{
    struct llama_context_params params = llama_context_default_params();
    kvp_why why;
    const struct {
        struct llama_model model;
        const char *word;
    } cases[] = {{{.is_recurrent = true, .architecture = "mamba"}, "recurrent"},
                 {{.is_hybrid = true, .architecture = "jamba"}, "hybrid"},
                 {{.is_diffusion = true, .architecture = "llada"}, "diffusion"},
                 {{.has_encoder = true, .architecture = "t5"}, "encoder"},
                 {{.lacks_decoder = true, .architecture = "bert"}, "decoder"},
                 {{.rope = LLAMA_ROPE_TYPE_MROPE, .architecture = "qwen2vl"}, "M-RoPE"},
                 {{.rope = LLAMA_ROPE_TYPE_IMROPE, .architecture = "qwen3vl"}, "M-RoPE"},
                 {{.rope = LLAMA_ROPE_TYPE_VISION, .architecture = "x"}, "M-RoPE"},
                 {{.architecture = "deepseek4"}, "deepseek4"},
                 {{.architecture = NULL}, "general.architecture"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(&cases[i].model, &params, "model", cases[i].word);
    assert_int_equal(kvp_llama_check_model(&plain, &params, &why), KVP_OK);
    assert_string_equal(why.text, "");
    assert_int_equal(kvp_llama_check_model(NULL, &params, NULL), KVP_E_ARG);
    assert_int_equal(kvp_llama_check_model(&plain, NULL, NULL), KVP_E_ARG);
}

TEST(contexts_are_refused_by_name)
{
    const struct llama_model windowed = {.n_swa = 512, .architecture = "gemma3"};
    struct llama_context_params params = llama_context_default_params();
    kvp_why why;
    assert_int_equal(kvp_llama_check_model(&windowed, &params, &why), KVP_OK);
    params.swa_full = false;
    refuse(&windowed, &params, "swa_full", "windows");
    assert_int_equal(kvp_llama_check_model(&plain, &params, &why), KVP_OK);
    params.embeddings = true;
    refuse(&plain, &params, "embeddings", "logits");
    params.embeddings = false;
    params.n_samplers = 1;
    refuse(&plain, &params, "n_samplers", "samplers");
    params.n_samplers = 0;
    params.ctx_other = (struct llama_context *)&why;
    refuse(&plain, &params, "ctx_other", "another context");
}

TEST(windows_limit_configurations)
{
    scoped_engine *engine = NULL;
    kvp_why why;
    kvp_llama_config config, good;
    struct llama_model windowed = {.n_swa = 128, .architecture = "gemma3"};
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&good);
#define LIMITED(name, value, word)                                                                 \
    config = good;                                                                                 \
    config.name = (value);                                                                         \
    assert_int_equal(kvp_llama_create(&config, &windowed, &params, &engine, &why), KVP_E_ARG);     \
    assert_non_null(strstr(why.text, word))
    LIMITED(block_tokens, 129, "block_tokens is 129, expected 1 to 128");
    LIMITED(max_running, 64, "max_running is 64, expected 1 to 63");
    LIMITED(max_ids, 6, "max_ids is 6, expected 7 to 256");
    windowed.architecture = "llama4";
    LIMITED(max_seq_tokens, 128, "llama4: its layers attend in chunks of 128 tokens");
    config.max_running = 64; /* shorter sequences need one id */
    config.max_seq_tokens = 127;
    assert_int_equal(kvp_llama_create(&config, &windowed, &params, &engine, &why), KVP_OK);
}

/* S = 4, and a window of 12: 11 tokens need one id, 12 two. What a closed sequence leaves in its id
 * needs a second one only if it is as long. */
TEST(long_ids_have_second_ones)
{
    scoped_engine *engine;
    kvp_llama_config config;
    struct llama_model windowed = {.n_swa = 12, .architecture = "gemma3"};
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 64;
    kvp_llama_config_init(&config);
    config.block_tokens = S;
    config.max_running = 4;
    config.watermark = 0;
    assert_int_equal(kvp_llama_create(&config, &windowed, &params, &engine, NULL), KVP_OK);
    (void)run_prompt(engine, 0, 11);
    assert_int_equal(stats_of(engine).second_ids, 0);
    (void)run_prompt(engine, 100, 12);
    kvp_step step;
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK); /* retires it: 4..7 is packed */
    assert_fields(stats_of(engine), second_ids, 1, keepers, 2);
    assert_int_equal(run_prompt(engine, 100, 12), 8);
    assert_int_equal(run_prompt(engine, 500, 60), 0); /* evicts all */
    assert_int_equal(run_prompt(engine, 500, 60), 56);
    assert_int_equal(run_prompt(engine, 800, 56), 0); /* leaves 500 to 507 in their keeper */
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    assert_int_equal(stats_of(engine).keepers, 2);
    assert_int_equal(stats_of(engine).second_ids, 1); /* 800 to 807 are alone, and need none */
    assert_int_equal(run_prompt(engine, 800, 56), 52);
}

/* A later release with a field at the end. */
typedef struct longer_params {
    struct llama_context_params params;
    uint64_t more;
} longer_params;

static longer_params longer_defaults(void)
{
    return (longer_params){llama_context_default_params(), 7};
}

static struct llama_context_params other_defaults(void)
{
    struct llama_context_params params = llama_context_default_params();
    params.offload_kqv = false;
    return params;
}

TEST(another_libllama_is_refused)
{
    kvp_why why;
    longer_params (*function)(void) = longer_defaults;
    kvpi_models_defaults longer;
    memcpy(&longer, &function, sizeof longer);
    assert_true(kvpi_models_fits(llama_context_default_params, &why));
    assert_false(kvpi_models_fits(other_defaults, &why));
    assert_string_equal(why.field, "libllama");
    assert_non_null(strstr(why.text, "default"));
#if defined(__x86_64__) && !defined(_WIN32)
    assert_int_equal(kvpi_models_size((kvpi_models_function)longer), sizeof(longer_params));
    /* A library whose llama_model_params is as long as this one. */
    assert_true(kvpi_models_fits_programs((kvpi_models_function)llama_model_default_params, &why));
    assert_false(kvpi_models_fits_programs((kvpi_models_function)longer, &why));
    assert_non_null(strstr(why.text, "llama_model_params"));
    assert_false(kvpi_models_fits(longer, &why));
    assert_non_null(strstr(why.text, "size"));
#endif
}

TEST(configurations_are_refused_by_name)
{
    kvp_llama *engine = NULL;
    kvp_why why;
    kvp_llama_config config, good;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(NULL);
    kvp_llama_config_init(&good);
    good.step_tokens = 64;
#define REFUSED(name, value, word)                                                                 \
    config = good;                                                                                 \
    config.name = (value);                                                                         \
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);        \
    assert_non_null(strstr(why.text, word))
    REFUSED(block_tokens, 0, "block_tokens is 0, expected 1 to 1024");
    REFUSED(max_ids, 3, "max_ids is 3, expected 4 to 256");
    REFUSED(max_ids, 257, "max_ids");
    REFUSED(max_running, 128, "max_running is 128, expected 1 to 127");
    REFUSED(max_seq_tokens, 513, "max_seq_tokens is 513, expected 1 to 512");
    REFUSED(step_tokens, 31, "step_tokens is 31, expected 32 to 2048");
    REFUSED(step_tokens, 2049, "step_tokens");
    REFUSED(watermark, 1.5, "watermark");
    REFUSED(max_requests, 0, "max_requests");
    config.struct_size--;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, NULL), KVP_E_ARG);
    params.n_ctx = 0;
    assert_int_equal(kvp_llama_create(&good, &plain, &params, &engine, &why), KVP_E_NO_MEMORY);
    assert_string_equal(why.field, "params");
    assert_null(engine);
}

TEST(caches_and_schedulers_are_prepared)
{
    scoped_engine *engine = NULL;
    kvp_why why;
    kvp_llama_config config;
    kvp_config cache, good;
    kvp_sched_config sched;
    kvp_sched_stats stats;
    const struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    kvp_config_init(&good);
    kvp_sched_config_init(&sched);
    config.cache = &cache;
    config.sched = &sched;
    config.max_requests = 8;
    sched.max_samples = 7;
    cache = good;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);
    assert_string_equal(why.field, "max_samples");
    sched.max_samples = 24;
#define REFUSED_CACHE(name, value)                                                                 \
    cache = good;                                                                                  \
    cache.name = (value);                                                                          \
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);        \
    assert_string_equal(why.field, #name)
    REFUSED_CACHE(unit_tokens, 8);
    REFUSED_CACHE(commit_policy, KVP_KEEP);
    REFUSED_CACHE(n_groups, 2);
    REFUSED_CACHE(max_tree_tokens, 4);
    REFUSED_CACHE(state_slots, 4);
    REFUSED_CACHE(host_blocks, 16);
    REFUSED_CACHE(max_namespaces, 0);
    cache.struct_size--;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_E_ARG);
    assert_string_equal(why.field, "cache");
    cache = good;
    cache.max_namespaces = 3;
    cache.quotas = 1;
    cache.n_blocks = 7; /* these three are the engine's */
    cache.max_seqs = 1;
    cache.steps = KVP_STEPS_OVERLAPPED;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, &why), KVP_OK);
    assert_int_equal(kvp_cache_config_get(kvp_llama_cache(engine), &cache), KVP_OK);
    assert_fields(cache, max_namespaces, 3, quotas, 1, n_blocks, 512 / 16 + 1);
    assert_fields(cache, max_seqs, 32, steps, KVP_STEPS_ORDERED, full_hit, KVP_FULL_HIT_RECOMPUTE);
    assert_int_equal(kvp_sched_stats_get(kvp_llama_sched(engine), &stats), KVP_OK);
}

/* ---------------------------------------------------------------------------- ids and keepers */

TEST(keepers_are_packed)
{
    scoped_engine *engine = make(16, 2, 128);
    const kvpi_ids *ids = &engine->ids;
    (void)run_prompt(engine, 100, 2 * S); /* blocks 0, 1 */
    (void)run_prompt(engine, 200, 1 * S); /* block 0: another keeper */
    (void)run_prompt(engine, 300, 3 * S); /* 0 fits nowhere; 1 in the second; 2 in the first */
    assert_fields(stats_of(engine), keepers, 3, kept_blocks, 6);
    assert_int_equal(ids->ids[0].n_blocks, 3);
    assert_int_equal(ids->ids[1].n_blocks, 2);
    assert_int_equal(ids->ids[2].n_blocks, 1);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 6 * S);
    /* What is kept in three keepers is found again; the last block is computed once more. */
    assert_int_equal(run_prompt(engine, 300, 3 * S), 2 * S);
    assert_int_equal(run_prompt(engine, 100, 2 * S), 1 * S);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 6 * S);
}

TEST(without_ids_the_oldest_keeper_is_emptied)
{
    scoped_engine *engine = make(5, 1, 128); /* 4 ids, 2 of them for keepers */
    (void)run_prompt(engine, 100, 2 * S);
    (void)run_prompt(engine, 200, 2 * S);
    assert_int_equal(run_prompt(engine, 100, 2 * S + 1), 2 * S); /* used again: not the oldest */
    assert_int_equal(stats_of(engine).emptied, 0);
    (void)run_prompt(engine, 300, 2 * S);
    assert_fields(stats_of(engine), emptied, 1, dropped_blocks, 2, keepers, 2);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 4 * S);
    assert_int_equal(run_prompt(engine, 100, 2 * S + 1), 2 * S);
    assert_int_equal(run_prompt(engine, 200, 2 * S + 1), 0);
}

TEST(evicted_blocks_leave_their_keeper)
{
    scoped_engine *engine = make(16, 2, 4 * S);
    (void)run_prompt(engine, 100, 3 * S);
    (void)run_prompt(engine, 200, 3 * S); /* takes one free block and two of the first prompt's */
    assert_int_equal(fake_used(kvp_llama_context(engine)), 4 * S);
    assert_int_equal(fake_most_used(kvp_llama_context(engine)), 4 * S);
    assert_int_equal(stats_of(engine).kept_blocks, 4);
    assert_int_equal(run_prompt(engine, 100, S + 1), S); /* its first block is left */
}

TEST(idle_cells_are_limited)
{
    kvp_llama_config config;
    scoped_engine *engine;
    kvp_step step;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    config.block_tokens = S;
    config.idle_cells = 3 * S + 1;
    params.n_ctx = 32 * S;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, NULL), KVP_OK);
    (void)run_prompt(engine, 100, 2 * S);
    (void)run_prompt(engine, 200, 2 * S);
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    assert_int_equal(step.n_seqs, 0);
    check(engine);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 3 * S);
    assert_int_equal(stats_of(engine).idle_blocks, 1);
    assert_int_equal(run_prompt(engine, 200, 2 * S + 1), 2 * S);
    assert_int_equal(run_prompt(engine, 100, 2 * S + 1), S); /* its end was the coldest */
}

/* The logit after `n` tokens of first, first + 1, ..., as the adapter sees them. */
static float logit_of(int32_t first, uint32_t n, int32_t shift)
{
    uint64_t kv = 0, seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        kv = fake_kv(first + (int32_t)i + shift, i, seen);
        seen += fake_seen(kv, i);
    }
    return fake_logit(kv, 0);
}

TEST(adapters_have_decodes_of_their_own)
{
    static struct llama_adapter_lora a = {.shift = 1000}, by_token = {.n_invocation_tokens = 2};
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6}, sampled[4] = {0};
    scoped_engine *engine = make(16, 3, 128);
    kvp_request request;
    kvp_step step;
    kvp_ns ns[2];
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 6};
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns[0]), KVP_OK);
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "a", 1, &ns[1]), KVP_OK);
    assert_int_equal(kvp_llama_adapter_set(engine, ns[1], &by_token, 1), KVP_E_ARG);
    assert_int_equal(kvp_llama_adapter_set(engine, ns[1], &a, 2), KVP_OK);
    for (uint32_t i = 0; i < 3; i++) { /* the one in the middle has the adapter */
        const kvp_submission submission = {.struct_size = sizeof submission,
                                           .prompt = &prompt,
                                           .ns = ns[i == 1],
                                           .n_samples = 1,
                                           .max_new_tokens = 1};
        assert_int_equal(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL),
                         KVP_OK);
    }
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    assert_int_equal(kvp_llama_adapter_set(engine, ns[1], NULL, 1), KVP_E_STATE);
    const uint64_t n_decodes = stats_of(engine).decodes;
    uint32_t n_adapted = 0;
    for (uint32_t i = 0; i < step.n_sampled; i++) {
        const float logit = kvp_llama_logits(engine, i)[0];
        n_adapted += logit == logit_of(1, 6, 2000);
        assert_true(logit == logit_of(1, 6, 0) || logit == logit_of(1, 6, 2000));
    }
    assert_int_equal(n_adapted, 1);
    assert_int_equal(n_decodes, 2);
    assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    while (kvp_llama_run(engine, &step) == KVP_OK && step.n_seqs > 0)
        assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    assert_int_equal(run_prompt(engine, 1, 6), S); /* without it: what was cached stays */
    assert_int_equal(kvp_llama_adapter_set(engine, ns[0], &a, 1), KVP_OK);
    assert_int_equal(run_prompt(engine, 1, 6), 0);
    assert_int_equal(kvp_llama_adapter_set(engine, ns[0], NULL, 1), KVP_OK);
    assert_int_equal(run_prompt(engine, 1, 6), 0);
    assert_int_equal(kvp_llama_adapter_set(NULL, ns[0], NULL, 1), KVP_E_ARG);
}

/* ------------------------------------------------------------------------------------- failures */

static uint32_t fails_at; /* this calloc from now on; 0: none */

void *__real_calloc(size_t n, size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    return fails_at > 0 && --fails_at == 0 ? NULL : __real_calloc(n, n_bytes);
}

TEST(every_allocation_may_fail)
{
    scoped_engine *engine = NULL;
    kvp_llama_config config;
    kvp_status status = KVP_E_NO_MEMORY;
    struct llama_context_params params = llama_context_default_params();
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    kvp_llama_config_init(&config);
    config.host_blocks = 8;
    uint32_t n = 0;
    while (status == KVP_E_NO_MEMORY) {
        fails_at = ++n;
        status = kvp_llama_create(&config, &plain, &params, &engine, NULL);
    }
    fails_at = 0;
    assert_int_equal(status, KVP_OK);
    assert_in_range(n, 19, 40);
}

TEST(a_failed_decode_leaves_nothing)
{
    static const int32_t results[] = {2, -3};
    static const kvp_status statuses[] = {KVP_E_AGAIN, KVP_E_IO};
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    scoped_engine *engine = make(16, 2, 128);
    kvp_ns ns;
    kvp_step step;
    kvp_request request;
    assert_int_equal(run_prompt(engine, 1, S), 0);
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), KVP_OK);
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 10};
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = 1};
    assert_int_equal(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL),
                     KVP_OK);
    for (uint32_t i = 0; i < 2; i++) {
        fake_fail(kvp_llama_context(engine), results[i], 5);
        assert_int_equal(kvp_llama_run(engine, &step), statuses[i]);
        check(engine);
        assert_int_equal(fake_used(kvp_llama_context(engine)), S);
        assert_null(kvp_llama_logits(engine, 0));
    }
    assert_int_equal(stats_of(engine).failed_decodes, 2);
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    assert_int_equal(step.seqs[0].begin, S);
    assert_non_null(kvp_llama_logits(engine, 0));
    assert_null(kvp_llama_logits(engine, 1));
    assert_int_equal(kvp_llama_run(engine, &step), KVP_E_STATE);
}

TEST(the_audit_sees_what_llama_has)
{
    kvp_llama *engine = make(16, 2, 128);
    kvp_violation violation;
    (void)run_prompt(engine, 100, 2 * S);
    assert_true(llama_memory_seq_rm(llama_get_memory(kvp_llama_context(engine)), 0, S, S + 1));
    check(engine); /* first and last position are as before */
    assert_true(llama_memory_seq_rm(llama_get_memory(kvp_llama_context(engine)), 0, 0, 1));
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_E_CORRUPT);
    assert_string_equal(violation.invariant, "L5");
    kvp_llama_destroy(engine);
    engine = make(16, 2, 128); /* ids 0 to 14, and 15 is spare */
    (void)run_prompt(engine, 100, 2 * S);
    llama_memory_seq_cp(llama_get_memory(kvp_llama_context(engine)), 0, 15, 0, S);
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_E_CORRUPT);
    assert_string_equal(violation.invariant, "L5");
    assert_int_equal(violation.object, 15);
    assert_int_equal(kvp_llama_check(NULL, NULL), KVP_E_ARG);
    kvp_llama_destroy(engine);
    kvp_llama_destroy(NULL);
}

TEST_MAIN(NULL, NULL)

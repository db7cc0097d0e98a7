/* Snapshots of the engine over the fake llama.cpp: what is saved is restored with its KV, every
 * damaged byte and every cut is noticed, and the file is replaced as a whole. S = 4. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mocka.h"
#include "fake/fake.h"
#include "scoped_engine.h"

#include "engine.h"

enum { S = 4, CELLS = 64, MOST = 1 << 16 };

static struct llama_model plain = {.architecture = "llama", .n_params = 7};
static char path[64];
static uint8_t bytes[MOST];

static kvp_llama *make_of(uint32_t n_cells, uint32_t block_tokens)
{
    kvp_llama_config config;
    kvp_llama *engine;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    config.block_tokens = block_tokens;
    config.max_ids = 16;
    config.max_running = 3;
    config.watermark = 0;
    params.n_ctx = n_cells;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, NULL), KVP_OK);
    return engine;
}

static kvp_llama *make(void)
{
    return make_of(CELLS, S);
}

static void check(const kvp_llama *engine)
{
    kvp_violation violation;
    assert_int_equal(kvp_llama_check(engine, &violation), KVP_OK);
    assert_true(fake_used(kvp_llama_context(engine)) <= CELLS);
}

static void submit(kvp_llama *engine, int32_t first, uint32_t n)
{
    int32_t tokens[CELLS];
    kvp_ns ns;
    kvp_request request;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "a", 1, &ns), KVP_OK);
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = 2};
    assert_int_equal(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL),
                     KVP_OK);
}

/* One step; the logits are what the tokens alone give. Returns how many sequences it had. */
static uint32_t make_step(kvp_llama *engine, int32_t first)
{
    const int32_t sampled[4] = {0};
    kvp_step step;
    int32_t tokens[CELLS + 2];
    uint64_t kv = 0, seen = 0;
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    if (step.n_seqs == 0)
        return 0;
    const kvp_range range = {0, step.seqs[0].begin + step.seqs[0].n_tokens};
    assert_int_equal(
        kvp_request_tokens(kvp_llama_sched(engine), step.seqs[0].request, 0, range, tokens),
        KVP_OK);
    assert_int_equal(tokens[0], first);
    for (uint32_t i = 0; i < range.end; i++) {
        kv = fake_kv(tokens[i], i, seen);
        seen += fake_seen(kv, i);
    }
    if (step.n_sampled > 0)
        assert_true(kvp_llama_logits(engine, 0)[0] == fake_logit(kv, 0));
    assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    return step.n_seqs;
}

/* Gives the tokens that the cache had. */
static uint64_t run_prompt(kvp_llama *engine, int32_t first, uint32_t n)
{
    kvp_sched_stats before, after;
    assert_int_equal(kvp_sched_stats_get(kvp_llama_sched(engine), &before), KVP_OK);
    submit(engine, first, n);
    while (make_step(engine, first) > 0)
        ;
    assert_int_equal(kvp_sched_stats_get(kvp_llama_sched(engine), &after), KVP_OK);
    check(engine);
    return after.cached_tokens - before.cached_tokens;
}

static size_t read_file(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static void write_file(size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Two prompts of 12 and 8 tokens, and the first two blocks of a request that still runs. */
static void save_some(void)
{
    scoped_engine *engine = make();
    (void)run_prompt(engine, 100, 12);
    (void)run_prompt(engine, 200, 8);
    submit(engine, 300, 9);
    (void)make_step(engine, 300);
    assert_int_equal(kvp_llama_save(engine, "weights", path, NULL), KVP_OK);
    check(engine);
    while (make_step(engine, 300) > 0) /* it goes on */
        ;
}

static void note_name(void *context, const void *name, size_t name_bytes)
{
    char *names = context;
    const size_t n = strlen(names);
    assert_true(n + name_bytes + 2 < 16);
    memcpy(&names[n], name, name_bytes);
    memcpy(&names[n + name_bytes], ";", 2);
}

TEST(what_is_saved_is_restored)
{
    char names[16] = "";
    kvp_llama_restored restored = {.tell = note_name, .context = names};
    kvp_why why;
    struct stat info;
    save_some();
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    scoped_engine *engine = make();
    assert_int_equal(kvp_llama_load(engine, "weights", path, &restored, &why), KVP_OK);
    assert_string_equal(why.text, "");
    assert_string_equal(names, "a;");
    assert_fields(restored, blocks, 7, dropped_blocks, 0);
    check(engine);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 7 * S);
    assert_int_equal(run_prompt(engine, 100, 12), 8);
    assert_int_equal(run_prompt(engine, 100, 13), 12);
    assert_int_equal(run_prompt(engine, 200, 9), 8);
    assert_int_equal(run_prompt(engine, 300, 9), 8);
    assert_int_equal(run_prompt(engine, 400, 40), 0); /* evicts */
}

static void refuse(kvp_llama *engine, const char *model, kvp_status status, const char *word)
{
    kvp_why why;
    assert_int_equal(kvp_llama_load(engine, model, path, NULL, &why), status);
    assert_non_null(strstr(why.text, word));
    check(engine);
    assert_int_equal(fake_used(kvp_llama_context(engine)), 0);
}

TEST(others_are_refused_with_a_sentence)
{
    scoped_engine *engine = make();
    save_some();
    refuse(engine, "other weights", KVP_E_MISMATCH, "another model");
    plain.n_params++;
    refuse(engine, "weights", KVP_E_MISMATCH, "another model");
    plain.n_params--;
    kvp_llama *larger = make_of(CELLS + S, S);
    refuse(larger, "weights", KVP_E_MISMATCH, "cells");
    kvp_llama_destroy(larger);
    kvp_llama *other = make_of(CELLS, 2);
    refuse(other, "weights", KVP_E_MISMATCH, "block_tokens");
    kvp_llama_destroy(other);
    const size_t n = read_file();
    bytes[8]++;
    write_file(n);
    refuse(engine, "weights", KVP_E_VERSION, "another version");
    bytes[0]++;
    write_file(n);
    refuse(engine, "weights", KVP_E_FORMAT, "no snapshot");
    assert_int_equal(remove(path), 0);
    refuse(engine, "weights", KVP_E_IO, "No such file");
    save_some();
    (void)run_prompt(engine, 1, 2);
    assert_int_equal(kvp_llama_load(engine, "weights", path, NULL, NULL), KVP_E_STATE);
    assert_int_equal(kvp_llama_load(NULL, "weights", path, NULL, NULL), KVP_E_ARG);
    assert_int_equal(kvp_llama_save(NULL, "weights", path, NULL), KVP_E_ARG);
    assert_int_equal(kvp_llama_save(engine, "weights", "", NULL), KVP_E_ARG);
}

/* Whatever was restored is right: run_prompt compares logits. */
static void load_damaged(void)
{
    kvp_llama_restored restored = {0};
    scoped_engine *engine = make();
    const kvp_status status = kvp_llama_load(engine, "weights", path, &restored, NULL);
    assert_true(status == KVP_OK || status == KVP_E_FORMAT || status == KVP_E_VERSION ||
                status == KVP_E_MISMATCH);
    check(engine);
    assert_true(restored.blocks <= 7); /* all of them, if it was the mark at the tree's end */
    assert_int_equal(fake_used(kvp_llama_context(engine)), restored.blocks * S);
    (void)run_prompt(engine, 100, 13);
    (void)run_prompt(engine, 200, 9);
    (void)run_prompt(engine, 300, 9);
}

TEST(every_damaged_byte_is_noticed)
{
    save_some();
    const size_t n = read_file();
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= (uint8_t)(1 << i % 8);
        write_file(n);
        load_damaged();
        bytes[i] ^= (uint8_t)(1 << i % 8);
    }
}

TEST(every_cut_is_noticed)
{
    save_some();
    const size_t n = read_file();
    for (size_t i = 0; i < n; i++) {
        write_file(i);
        load_damaged();
    }
}

TEST(refused_states_are_dropped)
{
    static const uint32_t blocks[] = {3, 2, 2}; /* of the records, oldest first */
    save_some();
    for (uint32_t i = 0; i < 3; i++) {
        kvp_llama_restored restored = {0};
        scoped_engine *engine = make();
        fake_refuse_state(i + 1);
        assert_int_equal(kvp_llama_load(engine, "weights", path, &restored, NULL), KVP_OK);
        fake_refuse_state(0);
        assert_fields(restored, blocks, 7 - blocks[i], dropped_blocks, blocks[i]);
        check(engine);
    }
}

TEST(a_full_disk_leaves_the_old_file)
{
    struct rlimit limit, small;
    kvp_why why;
    save_some();
    const size_t n = read_file();
    scoped_engine *engine = make();
    (void)run_prompt(engine, 500, 24);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const kvp_status status = kvp_llama_save(engine, "weights", path, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, KVP_E_IO);
    assert_string_not_equal(why.text, "");
    check(engine);
    uint8_t *old = malloc(n);
    assert_non_null(old);
    memcpy(old, bytes, n);
    assert_int_equal(read_file(), n);
    assert_memory_equal(old, bytes, n);
    free(old);
    assert_int_equal(kvp_llama_save(engine, "weights", "no/such/folder", &why), KVP_E_IO);
    assert_non_null(strstr(why.text, "No such file"));
}

int main(void)
{
    (void)snprintf(path, sizeof path, "test_llama_snapshot.%d", (int)getpid());
    (void)signal(SIGXFSZ, SIG_IGN);
    const int failed = run_all_tests(NULL, NULL);
    (void)remove(path);
    return failed;
}

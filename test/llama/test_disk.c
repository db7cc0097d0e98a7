/* The disk over the fake llama.cpp: records are written while they are computed and come back in
 * other engines, and nothing that a disk does loses a request or gives wrong KV. S = 4; a record
 * has three blocks. The store has no thread, and works when an engine runs. */
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "fake/fake.h"
#include "scoped_engine.h"

#include "disk/disk.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { S = 4, PIECE = 3, RECORD = S * PIECE, BLOCKS = 12, LONGEST = 512 };

static struct llama_model plain = {.architecture = "llama"};

static char folder[64];
static uint64_t now, each_call; /* a clock that moves with every look at it */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
static uint32_t fail_calloc; /* the n-th from now on; 0: none */

void *__wrap_calloc(size_t n, size_t size)
{
    if (fail_calloc > 0 && --fail_calloc == 0)
        return NULL;
    return __real_calloc(n, size);
}

static uint64_t read_clock(void *clock)
{
    (void)clock;
    return now += each_call;
}

/* ---------------------------------------------------------------------------------- an engine */

/* What a test changes. */
typedef struct setting {
    const char *model;
    const char *name; /* of the namespace */
    uint64_t epoch;
    uint32_t blocks;
    uint32_t host_blocks;
    uint32_t lent_blocks;
    uint32_t max_loads;
    uint32_t size_kib;
    enum ggml_type type_k;
    uint32_t step_tokens;
    struct llama_adapter_lora *adapter;
    uint32_t is_never_held; /* max_loading is 0 */
    uint32_t window;        /* of the model; 0: none */
} setting;

static const setting usual = {.model = "m",
                              .name = "",
                              .blocks = BLOCKS,
                              .host_blocks = 40,
                              .max_loads = 4,
                              .size_kib = 1024,
                              .type_k = GGML_TYPE_F16};

static kvp_llama *make_engine(const setting *s)
{
    kvp_llama_config config;
    kvp_config cache;
    kvp_sched_config sched;
    kvp_llama *engine;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    kvp_config_init(&cache);
    kvp_sched_config_init(&sched);
    cache.max_unit_keys = 1;
    cache.max_loads = s->max_loads;
    cache.lent_blocks = s->lent_blocks;
    sched.max_loading = s->is_never_held ? 0 : 8;
    config.cache = &cache;
    config.sched = &sched;
    plain.n_swa = (int32_t)s->window;
    config.block_tokens = s->window > 0 && s->window < S ? s->window : S;
    config.max_ids = s->window > 0 ? 32 : 16;
    config.max_running = 2;
    config.watermark = 0;
    config.host_blocks = s->host_blocks;
    config.stretch_tokens = RECORD;
    config.step_tokens = s->step_tokens;
    config.now_ns = read_clock;
    params.n_ctx = (s->blocks + PIECE) * S;
    params.type_k = s->type_k;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    assert_int_equal(kvp_llama_create(&config, &plain, &params, &engine, NULL), KVP_OK);
    each_call = 1;
    return engine;
}

static kvp_status open_disk(kvp_llama *engine, const setting *s, kvp_why *why)
{
    char url[128];
    kvp_llama_disk_config config;
    kvp_llama_disk_config_init(&config);
    (void)snprintf(url, sizeof url, "file:%s?size=%uKiB", folder, s->size_kib);
    config.url = url;
    config.model = s->model;
    config.threads = 0;
    return kvp_llama_disk_open(engine, &config, why);
}

static kvp_ns open_space(kvp_llama *engine, const setting *s)
{
    kvp_ns ns;
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), s->name, strlen(s->name), &ns), KVP_OK);
    if (s->adapter != NULL)
        assert_int_equal(kvp_llama_adapter_set(engine, ns, s->adapter, 1), KVP_OK);
    assert_int_equal(kvp_llama_disk_space(engine, ns, s->name, strlen(s->name), s->epoch), KVP_OK);
    return ns;
}

static kvp_llama *make(const setting *s)
{
    kvp_llama *engine = make_engine(s);
    assert_int_equal(open_disk(engine, s, NULL), KVP_OK);
    (void)open_space(engine, s);
    return engine;
}

static kvp_llama_disk_stats figures(const kvp_llama *engine)
{
    kvp_llama_disk_stats stats;
    kvp_llama_disk_stats_get(engine, &stats);
    assert_int_equal(stats.asked, stats.loaded + stats.nothing + stats.slow + stats.no_room +
                                      stats.failed + stats.late + stats.aborted + stats.asking);
    return stats;
}

/* -------------------------------------------------------------------------------- a request */

static kvp_request submit_prompt(kvp_llama *engine, const setting *s, const kvp_prompt *prompt)
{
    kvp_ns ns;
    kvp_request request;
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), s->name, strlen(s->name), &ns), KVP_OK);
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = prompt, .ns = ns, .max_new_tokens = 1};
    assert_int_equal(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL),
                     KVP_OK);
    return request;
}

static kvp_request submit(kvp_llama *engine, const setting *s, int32_t first, uint32_t n)
{
    int32_t tokens[LONGEST];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    return submit_prompt(engine, s, &prompt);
}

static void compare_logits(kvp_llama *engine, const kvp_step *step, int32_t shift)
{
    int32_t tokens[LONGEST];
    uint32_t at = 0;
    for (uint32_t k = 0; k < step->n_seqs; k++) {
        const kvp_step_seq *seq = &step->seqs[k];
        const kvp_range range = {0, seq->begin + seq->n_tokens};
        uint64_t kv = 0, seen = 0;
        assert_int_equal(
            kvp_request_tokens(kvp_llama_sched(engine), seq->request, 0, range, tokens), KVP_OK);
        for (uint32_t i = 0; i < range.end; i++) {
            kv = fake_kv(tokens[i] + shift, i, seen);
            seen += fake_seen(kv, i);
        }
        if (seq->n_sampled > 0)
            assert_true(kvp_llama_logits(engine, at++)[0] == fake_logit(kv, 0));
    }
}

/* Runs until nothing waits. Gives the tokens that were computed. */
static uint64_t run(kvp_llama *engine, const setting *s)
{
    const int32_t sampled[4] = {0};
    kvp_llama_stats stats;
    kvp_violation violation;
    kvp_step step;
    kvp_llama_stats_get(engine, &stats);
    const uint64_t before = stats.decoded_tokens;
    do {
        assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
        compare_logits(engine, &step, s->adapter != NULL ? s->adapter->shift : 0);
        if (step.n_seqs > 0)
            assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
        assert_int_equal(kvp_llama_check(engine, &violation), KVP_OK);
        assert_true(fake_used(kvp_llama_context(engine)) <= s->blocks * S);
    } while (step.n_seqs > 0 || step.n_loading > 0);
    kvp_llama_stats_get(engine, &stats);
    return stats.decoded_tokens - before;
}

static uint64_t ask(kvp_llama *engine, const setting *s, int32_t first, uint32_t n)
{
    (void)submit(engine, s, first, n);
    return run(engine, s);
}

/* An engine computes the prompt, and ends. */
static void fill(const setting *s, int32_t first, uint32_t n)
{
    scoped_engine *engine = make(s);
    assert_int_equal(ask(engine, s, first, n), n);
}

/* Prompts with nothing in common, all of which are computed. */
static void ask_many(kvp_llama *engine, const setting *s, int32_t n_prompts)
{
    for (int32_t i = 0; i < n_prompts; i++)
        assert_int_equal(ask(engine, s, 1000 * i, 40), 40);
}

/* An engine whose device and host are too small for two prompts, after four. */
static kvp_llama *make_cold(setting *cold)
{
    *cold = usual;
    cold->host_blocks = 14;
    cold->lent_blocks = 12;
    kvp_llama *engine = make(cold);
    ask_many(engine, cold, 4);
    return engine;
}

/* How much of the prompt is computed by a new engine. */
static uint64_t compute_again(const setting *s, int32_t first, uint32_t n)
{
    kvp_llama *engine = make(s);
    const uint64_t n_computed = ask(engine, s, first, n);
    kvp_llama_destroy(engine);
    return n_computed;
}

/* ------------------------------------------------------------------------------------ a folder */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return ftw->level > 0 ? remove(path) : 0;
}

static int change_slabs(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    if (type != FTW_F || strncmp(path + ftw->base, "slab", 4) != 0)
        return 0;
    FILE *file = fopen(path, "r+b");
    if (file == NULL)
        return 1;
    for (long at = 64; at < info->st_size; at += 128) {
        const int c = fseek(file, at, SEEK_SET) == 0 ? fgetc(file) : EOF;
        if (c == EOF || fseek(file, at, SEEK_SET) != 0 || fputc(c ^ 1, file) == EOF)
            break;
    }
    return fclose(file);
}

static int cut_slabs(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    return type == FTW_F && strncmp(path + ftw->base, "slab", 4) == 0 ? truncate(path, 100) : 0;
}

static void walk(int (*each)(const char *, const struct stat *, int, struct FTW *))
{
    assert_int_equal(nftw(folder, each, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "llama_disk.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    walk(remove_entry);
    fake_commit = "fake";
    return rmdir(folder);
}

/* ------------------------------------------------------------------------------ what comes back */

TEST_WITH(test_restart, set_up, tear_down)
{
    fill(&usual, 1, 40);
    kvp_llama *engine = make(&usual);
    assert_int_equal(ask(engine, &usual, 1, 40), 40 - 3 * RECORD);
    const kvp_llama_disk_stats stats = figures(engine);
    assert_fields(stats, loaded, 1, loaded_tokens, 3 * RECORD, record_tokens, RECORD);
    assert_int_equal(stats.store.puts, 0); /* the disk has them */
    assert_int_equal(stats.store.records, 3);
    assert_true(stats.load_ns > 0 && stats.record_bytes % 4096 == 0);
    kvp_llama_destroy(engine);
    assert_int_equal(compute_again(&usual, 1, 3 * RECORD), RECORD); /* for logits */
    assert_int_equal(compute_again(&usual, 2, 40), 40);
    assert_int_equal(compute_again(&usual, 1, RECORD - 1), RECORD - 1);
}

/* A window is the most that a record has, down to one token, whose state cannot grow. */
TEST_WITH(test_window, set_up, tear_down)
{
    setting s = usual;
    s.host_blocks = 64; /* half of them may be lent: all of a prompt */
    for (s.window = 1; s.window <= RECORD + 1; s.window++) {
        const uint32_t block = s.window < S ? s.window : S;
        const uint32_t record = (s.window < RECORD ? s.window : RECORD) / block * block;
        kvp_llama *engine = make(&s);
        assert_int_equal(figures(engine).record_tokens, record);
        assert_int_equal(ask(engine, &s, 100 * (int32_t)s.window, 30), 30);
        kvp_llama_destroy(engine);
        assert_int_equal(compute_again(&s, 100 * (int32_t)s.window, 30), 30 - 29 / record * record);
    }
}

/* The engine ends with the step that computed the last record. */
TEST_WITH(test_end, set_up, tear_down)
{
    const int32_t sampled[1] = {0};
    kvp_step step;
    kvp_llama *engine = make(&usual);
    (void)submit(engine, &usual, 1, 40);
    while (kvp_llama_run(engine, &step) == KVP_OK && step.n_seqs == 0)
        continue; /* it waits for the disk */
    assert_int_equal(kvp_llama_finish(engine, sampled, NULL, NULL), KVP_OK);
    kvp_llama_destroy(engine);
    assert_int_equal(compute_again(&usual, 1, 40), 4);
}

/* Computed in chunks, and longer in the second engine: what is missing is written behind. */
TEST_WITH(test_longer, set_up, tear_down)
{
    setting chunks = usual;
    chunks.step_tokens = 7;
    fill(&chunks, 1, 2 * RECORD + 3);
    kvp_llama *engine = make(&chunks);
    assert_int_equal(ask(engine, &chunks, 1, 3 * RECORD + 3), RECORD + 3);
    assert_int_equal(ask(engine, &chunks, 1, 3 * RECORD + 3), 3);
    assert_int_equal(figures(engine).store.stored, 1);
    kvp_llama_destroy(engine);
    assert_int_equal(compute_again(&chunks, 1, 3 * RECORD + 3), 3);
}

TEST_WITH(test_evicted, set_up, tear_down)
{
    setting cold;
    scoped_engine *engine = make_cold(&cold);
    assert_int_equal(ask(engine, &cold, 0, 40), 40 - 3 * RECORD);
    assert_int_equal(figures(engine).loaded, 1);
    assert_int_equal(ask(engine, &cold, 1000, 40), 40 - 3 * RECORD);
}

/* More records in one step than are written at once, and the sequence ends with it. */
TEST_WITH(test_many, set_up, tear_down)
{
    enum { MOST = 32, N = MOST + 3 };
    setting large = usual;
    large.blocks = N * PIECE + 1;
    large.host_blocks = 3 * large.blocks;
    kvp_llama *engine = make(&large);
    assert_int_equal(ask(engine, &large, 1, N * RECORD), N * RECORD);
    assert_int_equal(figures(engine).skipped, 3);
    assert_int_equal(figures(engine).store.stored, MOST);
    kvp_llama_destroy(engine);
    assert_int_equal(compute_again(&large, 1, N * RECORD), 3 * RECORD);
}

/* Two requests with one prefix, and one with another. */
TEST_WITH(test_shared, set_up, tear_down)
{
    fill(&usual, 1, RECORD + 2);
    fill(&usual, 500, RECORD + 2);
    scoped_engine *engine = make(&usual);
    for (int32_t i = 0; i < 3; i++)
        (void)submit(engine, &usual, i < 2 ? 1 : 500, RECORD + 2);
    assert_true(run(engine, &usual) <= 3 * 2);
    const kvp_llama_disk_stats stats = figures(engine);
    assert_fields(stats, asked, 3, loaded, 3);
    assert_int_equal(stats.store.gets, 2);
}

/* Host memory for one of three records. */
TEST_WITH(test_part, set_up, tear_down)
{
    setting narrow = usual;
    narrow.lent_blocks = PIECE;
    narrow.max_loads = 1;
    fill(&usual, 1, 40);
    kvp_llama *engine = make(&narrow);
    assert_int_equal(ask(engine, &narrow, 1, 40), 40 - RECORD);
    kvp_llama_destroy(engine);
    narrow.lent_blocks = PIECE - 1;
    engine = make(&narrow);
    assert_int_equal(ask(engine, &narrow, 1, 40), 40);
    assert_int_equal(figures(engine).no_room, 1);
    kvp_llama_destroy(engine);
}

/* ---------------------------------------------------------------------------- what does not */

TEST_WITH(test_others, set_up, tear_down)
{
    static struct llama_adapter_lora adapter = {.shift = 1000};
    setting other = usual;
    fill(&usual, 1, 40);
    other.model = "n";
    assert_int_equal(compute_again(&other, 1, 40), 40);
    other = usual;
    other.type_k = GGML_TYPE_Q8_0;
    assert_int_equal(compute_again(&other, 1, 40), 40);
    other = usual;
    other.name = "tenant";
    assert_int_equal(compute_again(&other, 1, 40), 40);
    other = usual;
    other.epoch = 1;
    assert_int_equal(compute_again(&other, 1, 40), 40);
    other = usual;
    other.name = "adapter";
    other.adapter = &adapter;
    fill(&other, 1, 40);
    assert_int_equal(compute_again(&other, 1, 40), 4);
    fake_commit = "another";
    assert_int_equal(compute_again(&usual, 1, 40), 40);
    fake_commit = "fake";
    plain.n_params = 7;
    assert_int_equal(compute_again(&usual, 1, 40), 40);
    plain.n_params = 0;
    assert_int_equal(compute_again(&usual, 1, 40), 4);
}

/* Keys, what must not be cached, and namespaces without a name. */
TEST_WITH(test_not_stored, set_up, tear_down)
{
    int32_t tokens[40];
    const kvp_key key = {.begin = 3, .end = 5, .n_bytes = 1, .bytes = "k"};
    const kvp_range secret = {0, 40};
    for (int32_t i = 0; i < 40; i++)
        tokens[i] = 1 + i;
    const kvp_prompt with_keys = {.struct_size = sizeof with_keys,
                                  .tokens = tokens,
                                  .n_tokens = 40,
                                  .keys = &key,
                                  .n_keys = 1};
    const kvp_prompt with_secret = {.struct_size = sizeof with_secret,
                                    .tokens = tokens,
                                    .n_tokens = 40,
                                    .uncached = &secret,
                                    .n_uncached = 1};
    scoped_engine *engine = make(&usual);
    (void)submit_prompt(engine, &usual, &with_keys);
    (void)run(engine, &usual);
    (void)submit_prompt(engine, &usual, &with_secret);
    (void)run(engine, &usual);
    setting nameless = usual;
    nameless.name = "nameless";
    const kvp_ns ns = open_space(engine, &nameless);
    kvp_llama_disk_space_close(engine, ns);
    assert_int_equal(ask(engine, &nameless, 1, 40), 40);
    assert_int_equal(figures(engine).asked, 2);
    assert_int_equal(figures(engine).store.puts, 0);
    kvp_llama_disk_space_close(engine, ns); /* not known any more */
}

/* The namespace gets another adapter: what it is known by is to be said anew. */
TEST_WITH(test_adapter, set_up, tear_down)
{
    static struct llama_adapter_lora adapter = {.shift = 1000};
    setting other = usual;
    kvp_ns ns;
    scoped_engine *engine = make(&usual);
    assert_int_equal(ask(engine, &usual, 1, 40), 40);
    assert_int_equal(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), KVP_OK);
    assert_int_equal(kvp_llama_adapter_set(engine, ns, &adapter, 1), KVP_OK);
    other.adapter = &adapter;
    assert_int_equal(ask(engine, &other, 1, 40), 40);
    assert_int_equal(figures(engine).store.records, 3);
}

/* ----------------------------------------------------------------------------------- slow disks */

TEST_WITH(test_slow, set_up, tear_down)
{
    setting cold;
    scoped_engine *engine = make_cold(&cold);
    uint32_t n_slow = 0;
    each_call = 10000;
    assert_int_equal(ask(engine, &cold, 0, 40), 40 - 3 * RECORD); /* the first one is measured */
    each_call = 1;
    engine->host.rates.computing.ns = 1;
    while (n_slow < 600 && ask(engine, &cold, 1000 * (int32_t)((1 + n_slow) % 4), 40) == 40)
        n_slow++;
    assert_int_equal(n_slow, 512); /* and then it is tried again */
    assert_int_equal(figures(engine).slow, n_slow);
    assert_int_equal(figures(engine).store.gets, 6);
}

/* Putting back counts, too. */
TEST_WITH(test_slow_host, set_up, tear_down)
{
    for (int32_t i = 0; i < 3; i++)
        fill(&usual, 1000 * i, 40);
    scoped_engine *engine = make(&usual);
    each_call = 1000;
    assert_int_equal(ask(engine, &usual, 0, 40), 40 - 3 * RECORD); /* it is measured */
    each_call = 1;
    for (uint32_t i = 0; i < 2; i++) {
        engine->host.rates.computing.ns = 1000;
        engine->host.rates.back[1].ns = i == 0 ? 0 : 999;
        assert_int_equal(ask(engine, &usual, 1000 * (int32_t)(1 + i), 40), i == 0 ? 4 : 40);
        assert_int_equal(figures(engine).slow, i);
    }
}

/* The clock jumps: requests do not wait longer, and what comes later is cached. */
TEST_WITH(test_late, set_up, tear_down)
{
    fill(&usual, 1, 40);
    scoped_engine *engine = make(&usual);
    (void)submit(engine, &usual, 1, 40);
    each_call = 20000000000;
    assert_int_equal(run(engine, &usual), 40);
    assert_fields(figures(engine), late, 1, loaded, 0);
}

TEST_WITH(test_aborted, set_up, tear_down)
{
    kvp_step step;
    fill(&usual, 1, 40);
    kvp_llama *engine = make(&usual);
    const kvp_request request = submit(engine, &usual, 1, 40);
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    assert_int_equal(step.n_loading, 1);
    assert_int_equal(figures(engine).asking, 1);
    assert_int_equal(kvp_sched_abort(kvp_llama_sched(engine), request), KVP_OK);
    assert_int_equal(run(engine, &usual), 0);
    assert_int_equal(figures(engine).aborted, 1);
    assert_int_equal(ask(engine, &usual, 1, 40), 40 - 3 * RECORD); /* it came all the same */
    assert_int_equal(figures(engine).asked, 1);
    (void)submit(engine, &usual, 1, 40);
    kvp_llama_destroy(engine); /* with requests, and reads under way */
    engine = make(&usual);
    (void)submit(engine, &usual, 1, 40);
    assert_int_equal(kvp_llama_run(engine, &step), KVP_OK);
    kvp_llama_destroy(engine);
}

/* -------------------------------------------------------------------------------- failing disks */

TEST_WITH(test_damaged, set_up, tear_down)
{
    fill(&usual, 1, 40);
    walk(change_slabs);
    kvp_llama *engine = make(&usual);
    assert_int_equal(ask(engine, &usual, 1, 40), 40);
    assert_fields(figures(engine), failed, 1, loaded_tokens, 0);
    kvp_llama_destroy(engine);
    assert_int_equal(compute_again(&usual, 1, 40), 4); /* it was written anew */
}

TEST_WITH(test_cut, set_up, tear_down)
{
    fill(&usual, 1, 40);
    walk(cut_slabs);
    assert_int_equal(compute_again(&usual, 1, 40), 40);
}

TEST_WITH(test_full, set_up, tear_down)
{
    setting small = usual;
    small.size_kib = 20; /* of two records */
    scoped_engine *engine = make(&small);
    ask_many(engine, &small, 8);
    assert_true(figures(engine).store.records <= 2 && figures(engine).store.bytes <= 20 * 1024);
}

/* Files vanish below an engine that runs. */
TEST_WITH(test_gone, set_up, tear_down)
{
    setting cold;
    scoped_engine *engine = make_cold(&cold);
    walk(cut_slabs);
    assert_int_equal(ask(engine, &cold, 0, 40), 40);
    assert_int_equal(figures(engine).failed, 1);
    walk(remove_entry);
    for (int32_t i = 0; i < 4; i++)
        assert_true(ask(engine, &cold, 1000 * i, 40) > 0);
}

/* llama.cpp refuses the first record that it is given: the disk is left alone. */
TEST_WITH(test_refused_state, set_up, tear_down)
{
    fill(&usual, 1, 40);
    scoped_engine *engine = make(&usual);
    fake_refuse_state(1);
    assert_int_equal(ask(engine, &usual, 1, 40), 40);
    fake_refuse_state(0);
    assert_int_equal(figures(engine).is_off, 1);
    assert_int_equal(ask(engine, &usual, 500, 40), 40);
    assert_int_equal(figures(engine).asked, 1);
    assert_int_equal(figures(engine).store.puts, 0);
}

/* ------------------------------------------------------------------------------------- refusals */

static void refuse(const setting *s, kvp_status status, const char *field)
{
    kvp_why why;
    scoped_engine *engine = make_engine(s);
    assert_int_equal(open_disk(engine, s, &why), status);
    assert_string_equal(why.field, field);
    assert_true(why.text[0] != '\0');
    assert_int_equal(kvp_llama_disk_space(engine, (kvp_ns){1}, "", 0, 0), KVP_E_STATE);
    assert_int_equal(figures(engine).record_tokens, 0);
    (void)ask(engine, s, 1, 40);
}

TEST_WITH(test_refusals, set_up, tear_down)
{
    setting wrong = usual;
    kvp_why why;
    kvp_llama_disk_config config;
    wrong.model = "";
    refuse(&wrong, KVP_E_ARG, "model");
    wrong.model = NULL;
    refuse(&wrong, KVP_E_ARG, "model");
    wrong = usual;
    wrong.host_blocks = 0;
    refuse(&wrong, KVP_E_STATE, "host_blocks");
    wrong = usual;
    wrong.max_loads = 0;
    refuse(&wrong, KVP_E_STATE, "max_loads");
    wrong = usual;
    wrong.is_never_held = 1;
    refuse(&wrong, KVP_E_STATE, "max_loading");
    wrong = usual;
    wrong.size_kib = 1;
    refuse(&wrong, KVP_E_ARG, "url");
    kvp_llama *engine = make(&usual);
    assert_int_equal(open_disk(engine, &usual, &why), KVP_E_STATE);
    assert_string_equal(why.text, "it has a disk already");
    assert_int_equal(kvp_llama_disk_space(engine, (kvp_ns){0}, "", 0, 0), KVP_E_ARG);
    for (uint64_t i = 1; i < 64; i++)
        (void)kvp_llama_disk_space(engine, (kvp_ns){i << 40}, "", 0, 0);
    assert_int_equal(kvp_llama_disk_space(engine, (kvp_ns){77}, "", 0, 0), KVP_E_NO_NAMESPACES);
    assert_int_equal(kvp_llama_disk_space(engine, (kvp_ns){1ull << 40}, "x", 1, 0), KVP_OK);
    kvp_llama_destroy(engine);
    engine = make_engine(&usual);
    (void)ask(engine, &usual, 1, 40);
    assert_int_equal(open_disk(engine, &usual, &why), KVP_E_STATE);
    assert_string_equal(why.text, "it has run or restored something already");
    kvp_llama_disk_config_init(&config);
    kvp_llama_disk_config_init(NULL);
    assert_int_equal(kvp_llama_disk_open(engine, &config, NULL), KVP_E_ARG); /* no url */
    config.url = "memory:?size=1MiB";
    config.model = "m";
    config.reserved = 1;
    assert_int_equal(kvp_llama_disk_open(engine, &config, NULL), KVP_E_ARG);
    assert_int_equal(kvp_llama_disk_open(NULL, &config, NULL), KVP_E_ARG);
    kvp_llama_disk_stats_get(NULL, NULL);
    kvp_llama_disk_space_close(NULL, (kvp_ns){1});
    kvp_llama_destroy(engine);
}

static bool aborts_nth(void *n_left)
{
    return --*(uint32_t *)n_left == 0;
}

/* A folder that cannot be one; a model that cannot be computed; every allocation. */
TEST_WITH(test_open_failures, set_up, tear_down)
{
    char url[128];
    kvp_why why;
    kvp_llama_disk_config config;
    kvp_llama_disk_config_init(&config);
    (void)snprintf(url, sizeof url, "file:%s/file/below?size=1MiB", folder);
    config.url = url;
    config.model = "m";
    char path[96];
    (void)snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    scoped_engine *engine = make_engine(&usual);
    assert_int_equal(kvp_llama_disk_open(engine, &config, &why), KVP_E_IO);
    assert_string_equal(why.field, "url");
    plain.step_us = 500; /* a decode asks once whether it is aborted */
    for (uint32_t decode = 1; decode <= 3; decode++) {
        uint32_t n_left = decode;
        llama_set_abort_callback(kvp_llama_context(engine), aborts_nth, &n_left);
        assert_int_equal(open_disk(engine, &usual, &why), decode <= 2 ? KVP_E_IO : KVP_OK);
        assert_string_equal(why.text, decode <= 2 ? "llama.cpp gives no bytes of KV" : "");
        assert_int_equal(fake_used(kvp_llama_context(engine)), 0);
    }
    plain.step_us = 0;
}

/* Each allocation fails once. (A store can do without some.) */
TEST_WITH(test_no_memory, set_up, tear_down)
{
    kvp_why why;
    uint32_t n_refused = 0;
    for (uint32_t n = 1, is_over = 0; !is_over; n++) {
        scoped_engine *engine = make_engine(&usual);
        fail_calloc = n;
        const kvp_status status = open_disk(engine, &usual, &why);
        is_over = fail_calloc > 0;
        fail_calloc = 0;
        assert_true(is_over ? status == KVP_OK
                            : status == KVP_OK || status == KVP_E_NO_MEMORY || status == KVP_E_IO);
        n_refused += status != KVP_OK;
        if (status == KVP_OK)
            (void)open_space(engine, &usual);
        (void)ask(engine, &usual, (int32_t)n * 100, 40);
    }
    assert_true(n_refused > 20);
}

TEST_MAIN(NULL, NULL)

/* What a store adds to the scheduler's thread.
 *
 *   spill_step_p99       the slowest step but 1 %: requests are admitted, decode and end. The
 *                        yardstick has no store
 *   spill_step_rise      by how much more than 2 % that is longer than without one
 *   spill_written        what is written meanwhile
 *   spill_read           and read
 *   spill_sealed_131072  a report of a sequence of 131,072 tokens that has nothing new
 *   spill_hit_131072     a hit of 131,072 tokens whose records are stored. The yardstick makes all
 *                        their digests
 *
 * Blocks have 2 MiB, as those of a model of 8 G parameters. A step lasts 30 ms, and the thread
 * sleeps when its part is done: an engine would compute. 256 requests decode, which seals 16 blocks
 * a step; they are written. One request a step has a prefix of 15 blocks that is read. So it is
 * about 1 GB/s each way, in a store in memory, whose thread has a CPU for itself if there is a
 * second one. KV is not computed; plans are reported run at once. With --quick blocks are small. */
#define _POSIX_C_SOURCE 200809L

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <kvpager/sched.h>
#include <kvpager/spill.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "world.h"

enum {
    BLOCK_BYTES = 2 << 20,
    QUICK_BYTES = 4096,
    STORE_BLOCKS = 720,
    PROMPT = 15 * BLOCK_TOKENS,
    NEW_TOKENS = 4,
    RUNNING = 256, /* requests that decode all the time */
    START_TOKENS = 112,
    DECODED = 384, /* tokens, by each of them */
    MAX_TOKENS = 1024,
    DEVICE_SPARE = 400, /* blocks */
    HOST_BLOCKS = 256,
    AGE = 20, /* steps after which a prompt comes again: the cache has lost it by then */
    WARM = 4 * AGE,
    STEPS = 200,
    QUICK_STEPS = 20,
    DECODER = 1, /* tag */
    SEQS = RUNNING + 64,
    ASKS = 64
};

#define STEP_NS  UINT64_C(30000000)
#define QUICK_NS UINT64_C(1000000)

/* An engine with or without a store. */
typedef struct engine {
    kvp_cache *cache;
    kvp_ns ns;
    kvp_sched *sched;
    kvp_store *store; /* NULL: none */
    kvp_spill *spill;
    uint8_t *host;
    kvp_copy *copies; /* [max_copies] */
    uint32_t max_copies;
    uint64_t n_steps;
    uint64_t n_decoders;
    uint32_t n_missing; /* decoders that ended in this step */
    uint32_t n_held;    /* requests that wait for the store */
    uint64_t random;
    uint64_t next_ns;
    kvp_seq reports[SEQS];
    uint32_t n_reports;
    int32_t prompt[PROMPT + 1];
    int32_t sampled[SEQS];
    double took[STEPS];
} engine;

typedef struct spill_state {
    engine with;
    engine without;
    uint32_t n_steps;
    uint64_t step_ns;
    double p99[2];
    double written; /* GB/s */
    double read;
} spill_state;

/* ---------------------------------------------------------------------------------- set up, end */

static void create_cache(engine *e)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = RUNNING * ((START_TOKENS + DECODED / 2) / BLOCK_TOKENS + 1) + DEVICE_SPARE;
    config.host_blocks = HOST_BLOCKS;
    config.max_seqs = SEQS;
    config.max_seq_tokens = MAX_TOKENS;
    config.max_loads = 64;
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &e->cache));
    REQUIRE_OK(kvp_cache_config(e->cache, &config));
    REQUIRE_OK(kvp_ns_open(e->cache, "bench", 5, &e->ns));
    e->max_copies = config.max_copies;
    e->copies = allocate(config.max_copies * sizeof *e->copies);
}

static void create_store(engine *e, const char *url, uint32_t host_blocks, uint64_t block_bytes,
                         uint32_t record_blocks)
{
    kvp_store_config config;
    kvp_spill_config spill;
    char why[300] = "";
    kvp_store_config_init(&config);
    config.url = url;
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = BLOCK_TOKENS;
    config.block_bytes[0] = block_bytes;
    config.record_blocks = record_blocks;
    config.max_ops = 256;
    REQUIRE_OK(kvp_store_open(&config, &e->store, why, sizeof why));
    e->host = aligned_alloc(4096, (size_t)host_blocks * block_bytes);
    REQUIRE(e->host != NULL);
    memset(e->host, 0x5A, (size_t)host_blocks * block_bytes);
    kvp_spill_config_init(&spill);
    spill.cache = e->cache;
    spill.store = e->store;
    spill.fingerprint = config.fingerprint;
    spill.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    spill.block_bytes[0] = block_bytes;
    spill.host[0] = (kvp_spill_host){e->host, (size_t)block_bytes};
    spill.policy = KVP_SPILL_THROUGH;
    spill.max_puts = 4096;
    spill.max_asks = ASKS;
    spill.compute_tokens_s = 1000; /* so that loading always pays */
    spill.min_tokens = BLOCK_TOKENS;
    REQUIRE_OK(kvp_spill_create(&spill, &e->spill, why, sizeof why));
    REQUIRE_OK(kvp_spill_space(e->spill, e->ns, "bench", 5, 0));
}

static void submit(engine *e, uint64_t number, uint32_t n_tokens, uint32_t n_new, uint32_t flags)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tag = n_new > NEW_TOKENS ? DECODER : 0,
                               .tokens = e->prompt,
                               .n_tokens = n_tokens};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = e->ns,
                                       .max_new_tokens = n_new,
                                       .flags = flags};
    kvp_request request;
    world_fill_tokens(number, e->prompt, n_tokens);
    REQUIRE_OK(kvp_sched_submit(e->sched, &submission, &request, NULL));
}

/* One that decodes for a while. */
static void submit_decoder(engine *e)
{
    const uint64_t i = e->n_decoders++;
    submit(e, (UINT64_C(1) << 40) + i, START_TOKENS + (uint32_t)(i % BLOCK_TOKENS),
           i < RUNNING ? (uint32_t)(i + 1) * DECODED / RUNNING + NEW_TOKENS : DECODED,
           KVP_SUBMIT_NO_LOAD);
}

static void create_engine(engine *e, bool with_store, uint64_t block_bytes)
{
    char url[64];
    kvp_sched_config config;
    create_cache(e);
    kvp_sched_config_init(&config);
    config.max_requests = 4 * SEQS;
    config.max_running = SEQS;
    config.arena_tokens = UINT64_C(1) << 23;
    config.step_tokens = 1 << 20;
    config.max_loading = with_store ? ASKS : 0;
    REQUIRE_OK(kvp_sched_create(&config, e->cache, NULL, 0, &e->sched));
    snprintf(url, sizeof url, "memory:?size=%llu",
             (unsigned long long)(STORE_BLOCKS * (block_bytes + 4096)));
    if (with_store)
        create_store(e, url, HOST_BLOCKS, block_bytes, 1);
    for (uint32_t i = 0; i < RUNNING; i++)
        submit_decoder(e);
}

static void destroy_engine(engine *e)
{
    kvp_store_close(e->store);
    kvp_spill_destroy(e->spill);
    kvp_sched_destroy(e->sched);
    kvp_cache_destroy(e->cache);
    free(e->host);
    free(e->copies);
}

/* --------------------------------------------------------------------------------------- a step */

static void take_answers(engine *e, uint64_t now)
{
    kvp_spill_answer answers[ASKS];
    uint32_t n = 0;
    REQUIRE_OK(kvp_spill_work(e->spill, now, answers, ASKS, &n));
    for (uint32_t i = 0; i < n; i++)
        (void)kvp_sched_release(e->sched, (kvp_request){answers[i].tag});
    e->n_held -= n;
    REQUIRE_OK(kvp_sched_tick(e->sched, now, NULL));
}

static void ask_all(engine *e, uint64_t now)
{
    kvp_request requests[ASKS];
    uint32_t n = 0;
    REQUIRE_OK(kvp_sched_loadable(e->sched, ASKS, requests, &n));
    for (uint32_t i = 0; i < n; i++) {
        const kvp_prompt prompt = {
            .struct_size = sizeof prompt, .tokens = e->prompt, .n_tokens = PROMPT + 1};
        const kvp_spill_request request = {.struct_size = sizeof request, .tag = requests[i].bits};
        kvp_spill_answer answer = {0};
        REQUIRE_OK(
            kvp_request_tokens(e->sched, requests[i], 0, (kvp_range){0, PROMPT + 1}, e->prompt));
        REQUIRE_OK(kvp_spill_ask(e->spill, e->ns, &prompt, &request, now, &answer));
        e->n_held += answer.outcome == KVP_SPILL_WAITS;
        if (answer.outcome == KVP_SPILL_WAITS)
            REQUIRE_OK(kvp_sched_hold(e->sched, requests[i], now + UINT64_C(1000000000)));
        else
            REQUIRE_OK(kvp_sched_skip_load(e->sched, requests[i]));
    }
}

/* Which sequences will have a new block, and are still open when the step is done. */
static void note_reports(engine *e, const kvp_step *step)
{
    e->n_reports = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *seq = &step->seqs[i];
        if ((seq->begin + seq->n_tokens) / BLOCK_TOKENS > seq->begin / BLOCK_TOKENS)
            e->reports[e->n_reports++] = seq->seq;
    }
}

static void report_hits(engine *e, const kvp_step *step, uint64_t now)
{
    for (uint32_t i = 0; i < step->n_admitted; i++) {
        kvp_sample_info sample;
        kvp_seq_info info;
        REQUIRE_OK(kvp_request_sample(e->sched, step->admitted[i], 0, &sample));
        REQUIRE_OK(kvp_seq_info_get(e->cache, sample.seq, &info));
        REQUIRE_OK(kvp_spill_hit(e->spill, sample.seq, info.cached_tokens, now));
    }
}

static void run_plan(engine *e)
{
    kvp_stats stats;
    uint32_t n = 0;
    REQUIRE_OK(kvp_plan_take(e->cache, e->copies, e->max_copies, &n));
    REQUIRE_OK(kvp_cache_stats(e->cache, &stats));
    REQUIRE_OK(kvp_plan_done(e->cache, stats.plans));
}

/* What the scheduler's thread does for a step. */
static void schedule(engine *e, uint64_t now)
{
    kvp_step step;
    kvp_step_end end;
    if (e->spill) {
        take_answers(e, now);
        ask_all(e, now);
    }
    REQUIRE_OK(kvp_sched_step(e->sched, &step));
    if (e->spill) {
        report_hits(e, &step, now);
        note_reports(e, &step);
    }
    run_plan(e);
    REQUIRE_OK(kvp_sched_finish(e->sched, e->sampled, NULL, &end));
    for (uint32_t i = 0; i < end.n_ended; i++)
        e->n_missing += end.ended[i].tag == DECODER;
    for (uint32_t i = 0; e->spill && i < e->n_reports; i++) {
        const kvp_status status = kvp_spill_sealed(e->spill, e->reports[i], now);
        REQUIRE(status == KVP_OK || status == KVP_E_HANDLE); /* it ended in this step */
    }
}

static void sleep_until(uint64_t ns)
{
    const struct timespec until = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                                   .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {}
}

/* CPU time: what else runs on the machine is not counted, but for what it does to caches. Nothing
 * of a step waits. */
static uint64_t thread_ns(void)
{
    struct timespec now;
    REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Requests come before the step, and are no part of it. */
static double step(engine *e, uint64_t period_ns)
{
    const uint64_t n = e->n_steps++;
    for (uint32_t i = 0; i < SEQS; i++)
        e->sampled[i] = (int32_t)(world_draw(&e->random) % 128256);
    for (; e->n_missing > 0; e->n_missing--)
        submit_decoder(e);
    if (e->n_held < ASKS / 2) /* else the store is too slow: `spill_read` tells */
        submit(e, n % AGE, PROMPT + 1, NEW_TOKENS, 0);
    const uint64_t start = now_ns();
    const uint64_t before = thread_ns();
    schedule(e, start);
    const uint64_t took = thread_ns() - before;
    e->next_ns = e->next_ns + period_ns > start ? e->next_ns + period_ns : start + period_ns;
    if (period_ns > 0)
        sleep_until(e->next_ns);
    return (double)took / 1000;
}

/* --------------------------------------------------------------------------------- many of them */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p99(engine *e, uint32_t n_steps, uint64_t period_ns)
{
    e->next_ns = now_ns();
    for (uint32_t i = 0; i < n_steps; i++)
        e->took[i] = step(e, period_ns);
    qsort(e->took, n_steps, sizeof *e->took, compare);
    return e->took[n_steps - 1 - n_steps / 100];
}

static void *set_up(const bench_options *options)
{
    spill_state *s = allocate(sizeof *s);
    s->n_steps = options->quick ? QUICK_STEPS : STEPS;
    s->step_ns = options->quick ? QUICK_NS : STEP_NS;
    create_engine(&s->with, true, options->quick ? QUICK_BYTES : BLOCK_BYTES);
    create_engine(&s->without, false, 0);
    for (uint32_t i = 0; i < (options->quick ? 2 * AGE : WARM); i++) {
        (void)step(&s->with, s->step_ns);
        (void)step(&s->without, 0);
    }
    return s;
}

static void tear_down(void *state)
{
    spill_state *s = state;
    destroy_engine(&s->with);
    destroy_engine(&s->without);
    free(s);
}

static double p99_with(void *state)
{
    spill_state *s = state;
    kvp_spill_stats before;
    kvp_spill_stats after;
    REQUIRE_OK(kvp_spill_stats_get(s->with.spill, &before));
    const uint64_t start = now_ns();
    s->p99[0] = p99(&s->with, s->n_steps, s->step_ns);
    const uint64_t took = now_ns() - start;
    REQUIRE_OK(kvp_spill_stats_get(s->with.spill, &after));
    REQUIRE(after.written > before.written);
    s->written = (double)(after.written_bytes - before.written_bytes) / (double)took;
    s->read = (double)(after.loaded_bytes - before.loaded_bytes) / (double)took;
    return s->p99[0];
}

static double p99_without(void *state)
{
    spill_state *s = state;
    s->p99[1] = p99(&s->without, s->n_steps, s->step_ns);
    return s->p99[1];
}

static double rise(void *state)
{
    spill_state *s = state;
    (void)p99_with(s);
    (void)p99_without(s);
    return s->p99[0] - 1.02 * s->p99[1];
}

static double written(void *state)
{
    return ((const spill_state *)state)->written;
}

static double read_back(void *state)
{
    return ((const spill_state *)state)->read;
}

/* -------------------------------------------------------------------------------- a long prompt */

enum { CALLS = 100, LONG_BLOCK_BYTES = 64, LONG_RECORD = 4 };

typedef struct long_state {
    engine e;
    kvp_seq seq;
    int32_t *tokens;
    kvp_digest *digests;
    kvp_digester *digester;
} long_state;

static void *set_up_long(const bench_options *options)
{
    long_state *s = allocate(sizeof *s);
    kvp_config config;
    kvp_spill_answer answers[1];
    kvp_spill_stats stats = {.puts = 1};
    uint32_t n;
    (void)options;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = PROMPT_BLOCKS + 16;
    config.host_blocks = 2 * PROMPT_BLOCKS;
    config.max_seqs = 4;
    config.max_seq_tokens = PROMPT_TOKENS;
    config.max_copies = 2 * PROMPT_BLOCKS;
    config.max_loads = 4;
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &s->e.cache));
    REQUIRE_OK(kvp_ns_open(s->e.cache, "bench", 5, &s->e.ns));
    s->e.max_copies = config.max_copies;
    s->e.copies = allocate(config.max_copies * sizeof *s->e.copies);
    create_store(&s->e, "memory:?size=64MiB", config.host_blocks, LONG_BLOCK_BYTES, LONG_RECORD);
    REQUIRE_OK(kvp_digester_create(&s->digester));
    s->tokens = allocate(PROMPT_TOKENS * sizeof *s->tokens);
    s->digests = allocate(PROMPT_BLOCKS * sizeof *s->digests);
    world_fill_tokens(1, s->tokens, PROMPT_TOKENS);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->tokens, .n_tokens = PROMPT_TOKENS};
    REQUIRE_OK(kvp_seq_open(s->e.cache, s->e.ns, &prompt, &s->seq, NULL));
    REQUIRE_OK(kvp_seq_commit(s->e.cache, s->seq, PROMPT_TOKENS));
    REQUIRE_OK(kvp_spill_sealed(s->e.spill, s->seq, now_ns()));
    while (stats.puts > 0) {
        run_plan(&s->e);
        REQUIRE_OK(kvp_spill_work(s->e.spill, now_ns(), answers, 1, &n));
        (void)kvp_store_wait(s->e.store, UINT64_C(1000000));
        REQUIRE_OK(kvp_spill_stats_get(s->e.spill, &stats));
    }
    REQUIRE(stats.written == PROMPT_TOKENS / (LONG_RECORD * BLOCK_TOKENS));
    return s;
}

static void tear_down_long(void *state)
{
    long_state *s = state;
    destroy_engine(&s->e);
    kvp_digester_destroy(s->digester);
    free(s->tokens);
    free(s->digests);
    free(s);
}

static double sealed(void *state)
{
    long_state *s = state;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        REQUIRE_OK(kvp_spill_sealed(s->e.spill, s->seq, start));
    return (double)(now_ns() - start) / (CALLS * 1000.0);
}

static double hit(void *state)
{
    long_state *s = state;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        REQUIRE_OK(kvp_spill_hit(s->e.spill, s->seq, PROMPT_TOKENS, start));
    return (double)(now_ns() - start) / (CALLS * 1000.0);
}

static double digests(void *state)
{
    long_state *s = state;
    const kvp_digest root = {{1}};
    const kvp_hash_input input = {
        .unit_tokens = BLOCK_TOKENS, .n_tokens = PROMPT_TOKENS, .tokens = s->tokens};
    const uint64_t start = now_ns();
    REQUIRE_OK(kvp_digest_blocks(s->digester, &input, &root, s->digests));
    return (double)(now_ns() - start) / 1000;
}

static const measurement step_rows[] = {
    {"spill_step_p99", "us", 0, 3, p99_with, p99_without,
     "99 % of steps are no longer; yardstick: without a store"},
    {"spill_step_rise", "us", 20, 3, rise, NULL, "of that, what is beyond 2 %"},
    {"spill_written", "GB/s", 0, 1, written, NULL, "meanwhile"},
    {"spill_read", "GB/s", 0, 1, read_back, NULL, "meanwhile"},
};

static const measurement long_rows[] = {
    {"spill_sealed_131072", "us", 20, 31, sealed, digests,
     "a report with nothing new; yardstick: all digests"},
    {"spill_hit_131072", "us", 0, 31, hit, digests, "a hit that is stored"},
};

const group spill_step_group = {step_rows, 4, set_up, tear_down};
const group spill_long_group = {long_rows, 2, set_up_long, tear_down_long};

#else

const group spill_step_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */
const group spill_long_group = {NULL, 0, NULL, NULL};

#endif

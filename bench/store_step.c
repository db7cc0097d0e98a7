/* A scheduler's step with a store behind it, by the store's health. Each row gives the steps in a
 * second that 99 % of the steps reach, in time of this thread on the processor.
 *
 *   store_step_well  the yardstick has no store
 *   store_step_full  each put is refused for want of room
 *   store_step_late  each operation ends 20 steps after it was accepted
 *   store_step_away  each operation fails
 *
 * RUNNING requests decode. Their prompts are DOCUMENTS, of which device and host have room for a
 * third: others are asked for, loaded and written. Of the step are the spill's calls and those of
 * the scheduler, not what the store's thread does: it has no thread here, and works in between. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <kvpager/sched.h>
#include <kvpager/spill.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/backend.h"
#include "world.h"

enum {
    STEPS = 1000, /* of a sample */
    RUNNING = 48,
    WAITING = 16,
    JOBS = RUNNING + WAITING,
    DOCUMENTS = 200,
    DOCUMENT_TOKENS = 512,
    PROMPT = DOCUMENT_TOKENS + 40,
    NEW_TOKENS = 24,
    BLOCKS = RUNNING * 40 + 100,
    RECORD_BLOCKS = 4,
    BLOCK_BYTES = 512,
    MAX_OPS = 256,
    LATE_STEPS = 20
};

#define STEP_NS UINT64_C(10000000)

enum health { NONE, WELL, FULL, LATE, AWAY, HEALTHS }; /* NONE: there is no store */

/* A store in memory, and what is wrong with it. */
typedef struct sick_store {
    void *memory;
    enum health health;
    const uint64_t *now_ns;
    struct kvpi_store_op *held[MAX_OPS]; /* in the order of their begin */
    uint32_t n_held;
} sick_store;

/* A request; its tag is the job's number. */
typedef struct job_state {
    bool is_there;
    kvp_request request;
    int32_t tokens[PROMPT];
} job_state;

typedef struct engine {
    kvp_cache *cache;
    kvp_sched *sched;
    kvp_ns ns;
    kvp_store *store;
    kvp_spill *spill;
    uint8_t *host;
    uint64_t now_ns;
    uint64_t random;
    uint64_t number; /* of the next request */
    job_state jobs[JOBS];
    int32_t sampled[RUNNING];
    kvp_copy copies[4096];
} engine;

typedef struct step_state {
    engine *engines[HEALTHS];
    int32_t (*documents)[DOCUMENT_TOKENS];
} step_state;

static enum health next_health; /* of the store that is opened next */
static const uint64_t *next_now;

/* ------------------------------------------------------------------------------------ the store */

static kvp_status sick_open(const struct kvpi_backend_config *config, void **out_self,
                            char *out_why, size_t why_bytes)
{
    sick_store *s = allocate(sizeof *s);
    s->health = next_health;
    s->now_ns = next_now;
    *out_self = s;
    return kvpi_memory_backend.open(config, &s->memory, out_why, why_bytes);
}

static void sick_close(void *self)
{
    kvpi_memory_backend.close(((sick_store *)self)->memory);
    free(self);
}

static uint32_t sick_prepare(void *self, struct kvpi_store_op *op)
{
    sick_store *s = self;
    if (s->health == FULL && op->kind == KVP_STORE_PUT)
        return KVP_STORE_NO_ROOM;
    return kvpi_memory_backend.prepare(s->memory, op);
}

static void sick_begin(void *self, struct kvpi_store_op *op)
{
    sick_store *s = self;
    if (op->kind == KVP_STORE_HAVE)
        kvpi_memory_backend.have(s->memory, op->keys, op->n_keys, op->bits);
    else
        kvpi_memory_backend.begin(s->memory, op);
    if (op->kind == KVP_STORE_HAVE)
        s->held[s->n_held++] = op;
}

static uint32_t sick_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    sick_store *s = self;
    uint32_t n = 0;
    s->n_held += kvpi_memory_backend.reap(s->memory, s->held + s->n_held, MAX_OPS - s->n_held);
    const uint64_t delay = s->health == LATE ? LATE_STEPS * STEP_NS : 0;
    while (n < s->n_held && n < capacity && s->held[n]->accepted_ns + delay <= *s->now_ns) {
        out_ops[n] = s->held[n];
        out_ops[n++]->io_failed = s->health == AWAY;
    }
    s->n_held -= n;
    memmove(s->held, s->held + n, s->n_held * sizeof(struct kvpi_store_op *));
    return n;
}

static uint32_t sick_end(void *self, struct kvpi_store_op *op, uint32_t how)
{
    if (op->kind != KVP_STORE_PUT && op->kind != KVP_STORE_GET)
        return how;
    return kvpi_memory_backend.end(((sick_store *)self)->memory, op, how);
}

static void sick_wait(void *self, int wake, int timeout_ms)
{
    (void)self;
    (void)wake;
    (void)timeout_ms;
}

static void sick_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    kvpi_memory_backend.usage(((const sick_store *)self)->memory, out_usage);
}

static void sick_describe(const void *self, char *out_text, size_t text_bytes)
{
    kvpi_memory_backend.describe(((const sick_store *)self)->memory, out_text, text_bytes);
}

static const struct kvpi_backend sick_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "memory",
    .open = sick_open,
    .close = sick_close,
    .prepare = sick_prepare,
    .begin = sick_begin,
    .reap = sick_reap,
    .end = sick_end,
    .wait = sick_wait,
    .usage = sick_usage,
    .describe = sick_describe,
};

static uint64_t simulated(void *context)
{
    return *(const uint64_t *)context;
}

/* ---------------------------------------------------------------------------------- open, close */

static void open_cache(engine *e, uint32_t max_loading)
{
    kvp_config config;
    kvp_sched_config sched;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = config.host_blocks = BLOCKS;
    config.max_seqs = RUNNING;
    config.max_seq_tokens = 1024;
    config.max_copies = sizeof e->copies / sizeof *e->copies;
    config.max_loads = 32;
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &e->cache));
    REQUIRE_OK(kvp_ns_open(e->cache, "bench", 5, &e->ns));
    kvp_sched_config_init(&sched);
    sched.max_requests = JOBS;
    sched.max_running = RUNNING;
    sched.step_tokens = 2048;
    sched.max_loading = max_loading;
    REQUIRE_OK(kvp_sched_create(&sched, e->cache, NULL, 0, &e->sched));
}

static void open_spill(engine *e, enum health health)
{
    kvp_store_config config;
    kvp_spill_config spill;
    kvp_store_config_init(&config);
    config.url = "memory:?size=256MiB";
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = BLOCK_TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = RECORD_BLOCKS;
    config.max_ops = MAX_OPS;
    config.threads = 0;
    config.now = simulated;
    config.now_context = &e->now_ns;
    next_health = health;
    next_now = &e->now_ns;
    REQUIRE_OK(kvpi_store_open(&config, &sick_backend, &e->store, NULL, 0));
    e->host = allocate((size_t)BLOCKS * BLOCK_BYTES);
    kvp_spill_config_init(&spill);
    spill.cache = e->cache;
    spill.store = e->store;
    spill.fingerprint = config.fingerprint;
    spill.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    spill.block_bytes[0] = BLOCK_BYTES;
    spill.host[0] = (kvp_spill_host){e->host, BLOCK_BYTES};
    spill.policy = KVP_SPILL_THROUGH;
    spill.max_asks = WAITING;
    REQUIRE_OK(kvp_spill_create(&spill, &e->spill, NULL, 0));
    REQUIRE_OK(kvp_spill_space(e->spill, e->ns, "bench", 5, 0));
}

static engine *open_engine(enum health health)
{
    engine *e = allocate(sizeof *e);
    open_cache(e, health == NONE ? 0 : WAITING);
    e->now_ns = STEP_NS;
    if (health != NONE)
        open_spill(e, health);
    return e;
}

static void close_engine(engine *e)
{
    if (e == NULL)
        return;
    e->now_ns = UINT64_MAX / 2;
    kvp_sched_destroy(e->sched);
    kvp_store_close(e->store);
    kvp_spill_destroy(e->spill);
    kvp_cache_destroy(e->cache);
    free(e->host);
    free(e);
}

static void tear_down(void *state)
{
    step_state *s = state;
    for (uint32_t i = 0; i < HEALTHS; i++)
        close_engine(s->engines[i]);
    free(s->documents);
    free(s);
}

static void *set_up(const bench_options *options)
{
    step_state *s = allocate(sizeof *s);
    (void)options;
    s->documents = allocate(DOCUMENTS * sizeof *s->documents);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        world_fill_tokens(i, s->documents[i], DOCUMENT_TOKENS);
    for (uint32_t i = 0; i < HEALTHS; i++)
        s->engines[i] = open_engine((enum health)i);
    return s;
}

/* --------------------------------------------------------------------------------------- a step */

static kvp_prompt prompt_of(const job_state *job, uint64_t tag)
{
    return (kvp_prompt){
        .struct_size = sizeof(kvp_prompt), .tokens = job->tokens, .n_tokens = PROMPT, .tag = tag};
}

static void submit(const step_state *s, engine *e, uint32_t number)
{
    job_state *job = &e->jobs[number];
    const kvp_prompt prompt = prompt_of(job, number);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = e->ns,
                                       .max_new_tokens = NEW_TOKENS};
    memcpy(job->tokens, s->documents[world_draw(&e->random) % DOCUMENTS], sizeof *s->documents);
    world_fill_tokens(DOCUMENTS + e->number++, job->tokens + DOCUMENT_TOKENS,
                      PROMPT - DOCUMENT_TOKENS);
    REQUIRE_OK(kvp_sched_submit(e->sched, &submission, &job->request, NULL));
    job->is_there = true;
}

static void take_answers(engine *e)
{
    kvp_spill_answer answers[WAITING];
    uint32_t n = 0;
    REQUIRE_OK(kvp_spill_work(e->spill, e->now_ns, answers, WAITING, &n));
    for (uint32_t i = 0; i < n; i++)
        REQUIRE_OK(kvp_sched_release(e->sched, e->jobs[answers[i].tag].request));
}

static void ask_all(engine *e)
{
    kvp_request requests[WAITING];
    uint32_t n = 0;
    REQUIRE_OK(kvp_sched_loadable(e->sched, WAITING, requests, &n));
    for (uint32_t i = 0; i < n; i++) {
        kvp_request_info info;
        kvp_spill_answer answer;
        REQUIRE_OK(kvp_request_info_get(e->sched, requests[i], &info));
        const kvp_prompt prompt = prompt_of(&e->jobs[info.tag], info.tag);
        const kvp_spill_request asked = {.struct_size = sizeof asked, .tag = info.tag};
        const kvp_status status =
            kvp_spill_ask(e->spill, e->ns, &prompt, &asked, e->now_ns, &answer);
        if (status == KVP_E_AGAIN)
            return;
        REQUIRE_OK(status);
        REQUIRE_OK(answer.outcome == KVP_SPILL_WAITS
                       ? kvp_sched_hold(e->sched, requests[i], UINT64_MAX)
                       : kvp_sched_skip_load(e->sched, requests[i]));
    }
}

/* What was hit and what was computed is offered to the store. */
static void report(engine *e, const kvp_step *step)
{
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *seq = &step->seqs[i];
        if (seq->n_tokens == 1 && seq->begin >= PROMPT)
            continue;
        if (e->spill)
            REQUIRE_OK(kvp_spill_hit(e->spill, seq->seq, seq->begin, e->now_ns));
        REQUIRE_OK(kvp_seq_commit(e->cache, seq->seq, seq->begin + seq->n_tokens));
        if (e->spill)
            REQUIRE_OK(kvp_spill_sealed(e->spill, seq->seq, e->now_ns));
    }
}

static void take_plan(engine *e)
{
    kvp_stats stats;
    uint32_t n = 0;
    REQUIRE_OK(kvp_plan_take(e->cache, e->copies, sizeof e->copies / sizeof *e->copies, &n));
    REQUIRE_OK(kvp_cache_stats_get(e->cache, &stats));
    REQUIRE_OK(kvp_plan_done(e->cache, stats.plans));
}

static void step(engine *e)
{
    kvp_step made;
    kvp_step_end end = {0};
    if (e->spill) {
        take_answers(e);
        ask_all(e);
    }
    REQUIRE_OK(kvp_sched_step(e->sched, &made));
    take_plan(e);
    if (made.n_seqs == 0)
        return;
    report(e, &made);
    REQUIRE_OK(kvp_sched_finish(e->sched, e->sampled, NULL, &end));
    for (uint32_t i = 0; i < end.n_ended; i++)
        e->jobs[end.ended[i].tag].is_there = false;
}

static uint64_t thread_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static double take_steps(step_state *s, enum health health)
{
    static double ns[STEPS];
    engine *e = s->engines[health];
    for (uint32_t i = 0; i < STEPS; i++) {
        int idle = 0;
        for (uint32_t j = 0; j < JOBS; j++)
            if (!e->jobs[j].is_there)
                submit(s, e, j);
        const uint64_t start = thread_ns();
        step(e);
        ns[i] = (double)(thread_ns() - start);
        e->now_ns += STEP_NS;
        for (uint32_t j = 0; j < 100 && !idle && e->store; j++)
            REQUIRE_OK(kvp_store_work(e->store, &idle));
    }
    sort_samples(ns, STEPS);
    return 1e6 / quantile(ns, STEPS, 0.99);
}

static double none(void *state)
{
    return take_steps(state, NONE);
}

static double well(void *state)
{
    return take_steps(state, WELL);
}

static double full(void *state)
{
    return take_steps(state, FULL);
}

static double late(void *state)
{
    return take_steps(state, LATE);
}

static double away(void *state)
{
    return take_steps(state, AWAY);
}

static const measurement rows[] = {
    {"store_step_well", "k/s", 0.8, 21, well, none, "99 % of steps; yardstick: without a store"},
    {"store_step_full", "k/s", 0.9, 21, full, well, "the store refuses all puts"},
    {"store_step_late", "k/s", 0.9, 21, late, well, "it answers after 20 steps"},
    {"store_step_away", "k/s", 0.9, 21, away, well, "it fails; yardstick of these: it is well"},
};

const group store_step_group = {rows, 4, set_up, tear_down};

#else

const group store_step_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */

#endif

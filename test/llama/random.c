/* kvp_llama_random: random engines over the fake llama.cpp (fake/).
 *
 *   kvp_llama_random [--seed N] [--steps N] [--plant]
 *   kvp_llama_random --own N    how many of 65,536 cells stay empty for want of ids
 *
 * Requests share prefixes, fork, are aborted, paused and reordered. Decodes fail half-way, cells
 * and ids are scarce, disks fail (random_disk.h), engines end and others begin with what they
 * saved, or with what their disk has. After every step logits of
 * each sequence are compared with what its tokens alone give, and kvp_llama_check audits ids and
 * blocks. Every engine is decided by its seed. A run of 100,000 steps fails also when something on
 * its list never happened. With --plant one cell gets wrong content, and the run must end with a
 * wrong logit. */
#include "fake/fake.h"
#include "random_disk.h"

#include <kvpager/llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 12, MAX_TOKENS = 96, STEPS_EACH = 1500, N_DOCUMENTS = 5, LONG_RUN = 100000 };

typedef struct generator {
    uint64_t state;
} generator;

typedef struct totals {
    uint64_t steps;
    uint64_t tokens;
    uint64_t checked;
    uint64_t engines;
    uint64_t hits;
    uint64_t adopted;
    uint64_t copies; /* in plans */
    uint64_t evicted;
    uint64_t preempted;
    uint64_t reordered;
    uint64_t emptied;
    uint64_t failed;
    uint64_t full; /* steps in which no cell was left */
    uint64_t restarts;
    uint64_t restored; /* blocks, at restarts */
    uint64_t lost;
    uint64_t stretches_out;
    uint64_t stretches_in;
    uint64_t host_hits; /* tokens */
    uint64_t swapped_out;
    uint64_t swapped_in;
    uint64_t slow; /* blocks that computing was faster for */
    uint64_t idle; /* blocks that were dropped for it */
    uint64_t decodes;
    uint64_t dead;    /* steps with bytes of blocks that were gone */
    uint64_t seconds; /* steps with second ids */
    random_disk_totals disk;
} totals;

typedef struct run {
    generator random;
    kvp_llama *engine;
    struct llama_context *context;
    kvp_sched *sched;
    kvp_ns ns[3];
    struct llama_adapter_lora adapters[3]; /* of the namespaces; shift 0: none */
    uint32_t block_tokens;
    uint32_t n_cells;
    uint32_t n_usable;
    uint32_t max_running;
    uint32_t max_prompt;
    uint32_t fail_rate; /* one of so many steps; 0: none */
    kvp_request requests[MAX_REQUESTS];
    uint32_t samples[MAX_REQUESTS];
    uint32_t n_requests;
    int plants;
    totals *totals;
    kvp_llama_config config;
    kvp_sched_config sched_config;
    kvp_config cache_config;
    uint64_t disk_wait_ns; /* 0: no disk */
    struct llama_context_params params;
    struct llama_model model;
    uint64_t now; /* of the engine's clock, which goes at random, less than clock_most at a time */
    uint32_t clock_most; /* 1: it stands, and nothing is ever slow */
} run;

static uint64_t draw(generator *g)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint32_t below(generator *g, uint32_t n)
{
    return (uint32_t)(draw(g) % n);
}

static uint32_t between(generator *g, uint32_t low, uint32_t high)
{
    return low + below(g, high - low + 1);
}

static void must(kvp_status status, const char *what)
{
    if (status != KVP_OK)
        fake_broken(what, status, 0);
}

/* --------------------------------------------------------------------------------------
 * requests */

/* The beginning of one of a few documents, then tokens of its own: few values, so that sequences
 * often compute the same. */
static void make_prompt(run *r, int32_t *tokens, uint32_t n)
{
    generator document = {below(&r->random, N_DOCUMENTS)};
    const uint32_t n_shared = below(&r->random, n + 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)below(i < n_shared ? &document : &r->random, 3);
}

static void submit(run *r)
{
    int32_t tokens[MAX_TOKENS];
    const uint32_t n = between(&r->random, 1, r->max_prompt);
    const uint32_t most = r->max_running < 4 ? r->max_running : 4;
    kvp_request request;
    make_prompt(r, tokens, n);
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    const kvp_submission submission = {
        .struct_size = sizeof submission,
        .prompt = &prompt,
        .ns = r->ns[below(&r->random, 4) > 0 ? 0 : below(&r->random, 3)],
        .priority = (int32_t)below(&r->random, 2),
        .n_samples = below(&r->random, 3) == 0 ? between(&r->random, 1, most) : 1,
        .max_new_tokens = between(&r->random, 1, 20)};
    if (kvp_sched_submit(r->sched, &submission, &request, NULL) != KVP_OK)
        return; /* too long for these cells */
    r->requests[r->n_requests] = request;
    r->samples[r->n_requests++] = submission.n_samples;
}

static void forget_ended(run *r)
{
    kvp_request_info info;
    for (uint32_t i = 0; i < r->n_requests;) {
        if (kvp_request_info_get(r->sched, r->requests[i], &info) == KVP_OK) {
            i++;
            continue;
        }
        r->n_requests--;
        r->requests[i] = r->requests[r->n_requests];
        r->samples[i] = r->samples[r->n_requests];
    }
}

static void reorder(run *r, uint32_t i)
{
    uint32_t parents[4];
    for (uint32_t k = 0; k < r->samples[i]; k++)
        parents[k] = below(&r->random, r->samples[i]);
    if (kvp_sched_reorder(r->sched, r->requests[i], parents, NULL) == KVP_OK)
        r->totals->reordered++;
}

static void disturb(run *r)
{
    if (r->n_requests < MAX_REQUESTS && below(&r->random, 3) != 0)
        submit(r);
    if (r->n_requests == 0)
        return;
    const uint32_t i = below(&r->random, r->n_requests);
    switch (below(&r->random, 24)) {
    case 0: must(kvp_sched_abort(r->sched, r->requests[i]), "abort"); break;
    case 1: must(kvp_sched_pause(r->sched, r->requests[i]), "pause"); break;
    case 2:
    case 3: must(kvp_sched_resume(r->sched, r->requests[i]), "resume"); break;
    case 4:
    case 5: reorder(r, i); break;
    default: break;
    }
    forget_ended(r);
}

/* ------------------------------------------------------------------------------------ the audit */

/* KV of a sequence's last token, from its tokens alone. */
static uint64_t expected_kv(const run *r, const kvp_step_seq *seq)
{
    int32_t tokens[2 * MAX_TOKENS];
    kvp_request_info info;
    int32_t shift = 0;
    must(kvp_request_info_get(r->sched, seq->request, &info), "info");
    for (uint32_t i = 0; i < 3; i++)
        shift += info.ns.bits == r->ns[i].bits ? r->adapters[i].shift : 0;
    uint64_t seen = 0, kv = 0;
    const kvp_range range = {0, seq->begin + seq->n_tokens};
    must(kvp_request_tokens(r->sched, seq->request, seq->sample, range, tokens), "tokens");
    for (uint32_t i = 0; i < range.end; i++) {
        kv = fake_kv(tokens[i] + shift, i, seen);
        seen += fake_seen(kv, i);
    }
    return kv;
}

static int logits_are_right(run *r, const kvp_step *step)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *seq = &step->seqs[i];
        const uint64_t kv = seq->n_sampled > 0 ? expected_kv(r, seq) : 0;
        for (uint32_t k = 0; k < seq->n_sampled; k++, at++) {
            const float *logits = kvp_llama_logits(r->engine, at);
            for (uint32_t v = 0; v < FAKE_VOCABULARY; v++)
                if (logits == NULL || logits[v] != fake_logit(kv, v))
                    return 0;
            r->totals->checked++;
        }
    }
    return kvp_llama_logits(r->engine, at) == NULL;
}

static void audit(run *r)
{
    kvp_violation violation;
    kvp_llama_stats stats;
    kvp_llama_stats_get(r->engine, &stats);
    r->totals->dead += stats.host_dead_bytes > 0;
    r->totals->seconds += stats.second_ids > 0;
    if (kvp_llama_check(r->engine, &violation) != KVP_OK) {
        fprintf(stderr, "%s: %s\n", violation.invariant, violation.detail);
        fake_broken("kvp_llama_check", (int64_t)violation.object, 0);
    }
}

/* --------------------------------------------------------------------------------------- a step */

static void finish(run *r, const kvp_step *step)
{
    int32_t tokens[256];
    uint8_t ended[256];
    for (uint32_t i = 0; i < step->n_sampled; i++) {
        tokens[i] = (int32_t)below(&r->random, 3);
        ended[i] = below(&r->random, 12) == 0;
    }
    must(kvp_llama_finish(r->engine, tokens, ended, NULL), "finish");
}

/* 0: a logit was wrong. */
static int make_step(run *r)
{
    kvp_step step;
    const int fails = r->fail_rate != 0 && below(&r->random, r->fail_rate) == 0;
    if (fails)
        fake_fail(r->context, below(&r->random, 2) ? 2 : -3, below(&r->random, 12));
    if (r->plants && r->totals->steps > 200)
        fake_plant(r->context, (llama_seq_id)below(&r->random, 4), 0);
    const kvp_status status = kvp_llama_run(r->engine, &step);
    fake_fail(r->context, 0, 0);
    r->totals->steps++;
    if (status == KVP_E_AGAIN || status == KVP_E_IO) {
        if (!fails)
            fake_broken("a decode failed by itself", status, 0);
        audit(r);
        return 1;
    }
    must(status, "run");
    r->totals->tokens += step.n_tokens;
    r->totals->full += fake_used(r->context) + r->block_tokens > r->n_usable;
    if (fake_used(r->context) > r->n_usable)
        fake_broken("more cells than slots", fake_used(r->context), r->n_usable);
    if (step.n_seqs == 0) {
        audit(r);
        return 1;
    }
    if (!logits_are_right(r, &step))
        return 0;
    finish(r, &step);
    forget_ended(r);
    audit(r);
    return 1;
}

/* ------------------------------------------------------------------------------------ an engine */

static uint64_t read_clock(void *context)
{
    run *r = context;
    return r->now += below(&r->random, r->clock_most);
}

/* A window that sequences reach, or one that they do not. */
static void draw_window(run *r, const kvp_llama_config *config)
{
    generator *g = &r->random;
    r->model = (struct llama_model){.architecture = "llama"};
    if (below(g, 2))
        return;
    r->model.n_swa = (int32_t)between(g, config->block_tokens, below(g, 2) ? 12 : 80);
}

static void draw_host(run *r, kvp_llama_config *config)
{
    generator *g = &r->random;
    const uint32_t stretch_tokens = between(g, 1, r->n_cells / 2);
    const uint32_t window = (uint32_t)r->model.n_swa;
    const uint32_t n_blocks =
        (window > 0 && window < stretch_tokens ? window : stretch_tokens) / config->block_tokens;
    const uint32_t n_spare = (n_blocks > 0 ? n_blocks : 1) * config->block_tokens;
    if (below(g, 3) == 0 || r->n_usable < n_spare + 2 * config->block_tokens)
        return;
    config->max_ids += config->max_running;
    r->clock_most = 1000;
    config->stretch_tokens = stretch_tokens;
    config->host_blocks = between(g, 2, below(g, 2) ? 12 : 60);
    if (below(g, 2)) {
        config->now_ns = read_clock;
        config->clock = r;
    }
    r->params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    kvp_sched_config_init(&r->sched_config);
    r->sched_config.preempt = below(g, 3);
    r->sched_config.swap_ahead = below(g, 2);
    r->sched_config.recompute_token_cost = below(g, 3);
    r->sched_config.swap_block_cost = 1;
    config->sched = &r->sched_config;
    r->n_usable -= n_spare;
}

static void draw_disk(run *r, kvp_llama_config *config, uint64_t seed)
{
    generator *g = &r->random;
    if (config->host_blocks == 0 || below(g, 2) == 0)
        return;
    kvp_config_init(&r->cache_config);
    r->cache_config.max_loads = between(g, 1, 6);
    r->cache_config.lent_blocks = below(g, 2) ? 0 : between(g, 1, config->host_blocks - 1);
    r->sched_config.max_loading = between(g, 1, 8);
    config->cache = &r->cache_config;
    config->now_ns = read_clock;
    config->clock = r;
    r->clock_most = below(g, 2) ? 1 : 1000;
    r->disk_wait_ns = below(g, 2) ? 10000000 : between(g, 1, 5000);
    random_disk_begin(seed, below(g, 2) ? 0 : between(g, 1, 200));
}

static void draw_engine(run *r, uint64_t seed)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 8};
    generator *g = &r->random;
    kvp_llama_config config;
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config_init(&config);
    config.block_tokens = r->block_tokens = sizes[below(g, 5)];
    config.max_running = r->max_running = between(g, 1, 6);
    config.max_ids = 2 * config.max_running + 1 + between(g, 1, below(g, 2) ? 3 : 30);
    config.max_requests = 64;
    config.chunk_tokens = below(g, 3) == 0 ? between(g, 1, 9) : 0;
    config.wait_for_prefix = below(g, 2);
    config.step_tokens = between(g, config.max_running, 40);
    config.arena_tokens = 1 << 16;
    config.watermark = below(g, 2) ? 0.0 : 0.05;
    params.n_ctx = r->n_cells = between(g, 12, below(g, 2) ? 60 : 240);
    params.n_batch = 64;
    r->params = params;
    r->n_usable = r->n_cells / r->block_tokens * r->block_tokens;
    draw_window(r, &config);
    draw_host(r, &config);
    draw_disk(r, &config, seed);
    config.max_ids *= r->model.n_swa > 0 ? 2 : 1;
    for (uint32_t i = 0; i < 3; i++)
        r->adapters[i].shift = below(g, 3) == 0 ? (int32_t)(1000 * (i + 1)) : 0;
    config.idle_cells = below(g, 4) == 0 ? between(g, 1, r->n_cells) : 0;
    r->config = config;
    r->max_prompt = r->n_cells < MAX_TOKENS ? r->n_cells : MAX_TOKENS;
    r->fail_rate = below(g, 2) ? between(g, 3, 60) : 0;
}

static void make_engine(run *r)
{
    kvp_why why;
    const kvp_status status = kvp_llama_create(&r->config, &r->model, &r->params, &r->engine, &why);
    if (status != KVP_OK)
        fprintf(stderr, "%s\n", why.text);
    must(status, "create");
    r->context = kvp_llama_context(r->engine);
    r->sched = kvp_llama_sched(r->engine);
    if (r->disk_wait_ns > 0)
        random_disk_open(r->engine, r->disk_wait_ns);
}

static void open_namespaces(run *r)
{
    must(kvp_ns_open(kvp_llama_cache(r->engine), "a", 1, &r->ns[0]), "namespace");
    must(kvp_ns_open(kvp_llama_cache(r->engine), "b", 1, &r->ns[1]), "namespace");
    must(kvp_ns_open(kvp_llama_cache(r->engine), "c", 1, &r->ns[2]), "namespace");
    for (uint32_t i = 0; i < 3; i++)
        if (r->adapters[i].shift != 0)
            must(kvp_llama_adapter_set(r->engine, r->ns[i], &r->adapters[i], 1.0f), "adapter");
    for (uint32_t i = 0; i < 3 && r->disk_wait_ns > 0; i++)
        random_disk_name(r->engine, r->ns[i], i == 0 ? "a" : i == 1 ? "b" : "c");
}

static void add_totals(const run *r)
{
    kvp_stats cache;
    kvp_sched_stats sched;
    kvp_llama_stats engine;
    totals *t = r->totals;
    must(kvp_cache_stats_get(kvp_llama_cache(r->engine), &cache), "statistics");
    must(kvp_sched_stats_get(r->sched, &sched), "statistics");
    kvp_llama_stats_get(r->engine, &engine);
    t->engines++;
    t->hits += cache.cached_tokens;
    t->adopted += cache.adopted_blocks;
    t->copies += cache.copies;
    t->evicted += cache.evicted_blocks;
    t->preempted += sched.preemptions;
    t->emptied += engine.emptied;
    t->failed += engine.failed_decodes;
    t->stretches_out += engine.stretches_out;
    t->stretches_in += engine.stretches_in;
    t->host_hits += cache.host_tokens;
    t->swapped_out += sched.swapped_out;
    t->swapped_in += sched.swapped_in;
    t->slow += engine.slow_blocks;
    t->idle += engine.idle_blocks;
    t->decodes += engine.decodes;
    if (r->disk_wait_ns > 0)
        random_disk_add(r->engine, &t->disk);
}

/* A byte of the file is another one, or its end is missing. */
static void damage(run *r, const char *path)
{
    FILE *file = fopen(path, "r+b");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fake_broken("the snapshot cannot be damaged", 0, 0);
    const uint32_t n = (uint32_t)ftell(file), at = below(&r->random, n);
    if (fseek(file, (long)at, SEEK_SET) != 0 || fputc((int)below(&r->random, 256), file) == EOF)
        fake_broken("the snapshot cannot be damaged", at, n);
    (void)fclose(file);
}

/* The same without a snapshot: the disk is all that is left. */
static void restart_with_disk(run *r)
{
    add_totals(r);
    kvp_llama_destroy(r->engine);
    r->n_requests = 0;
    make_engine(r);
    open_namespaces(r);
    r->totals->disk.restarts++;
}

/* The engine ends between two steps, and another one begins with what it saved. */
static void restart(run *r, uint64_t seed)
{
    char path[64];
    kvp_llama_restored restored = {0};
    (void)snprintf(path, sizeof path, "llama_random.%llu.snapshot", (unsigned long long)seed);
    must(kvp_llama_save(r->engine, "m", path, NULL), "save");
    audit(r);
    add_totals(r);
    kvp_llama_destroy(r->engine);
    r->n_requests = 0;
    const int is_damaged = below(&r->random, 2) == 0;
    if (is_damaged)
        damage(r, path);
    make_engine(r);
    fake_refuse_state(below(&r->random, 4));
    const kvp_status status = kvp_llama_load(r->engine, "m", path, &restored, NULL);
    fake_refuse_state(0);
    if (status != KVP_OK && (!is_damaged || status == KVP_E_CORRUPT))
        fake_broken("load", status, is_damaged);
    (void)remove(path);
    audit(r);
    open_namespaces(r);
    r->totals->restarts++;
    r->totals->restored += restored.blocks;
    r->totals->lost += restored.dropped_blocks;
}

static int run_engine(uint64_t seed, int plants, totals *t)
{
    run r;
    int right = 1;
    memset(&r, 0, sizeof r);
    r.random.state = seed;
    r.plants = plants;
    r.totals = t;
    draw_engine(&r, seed);
    make_engine(&r);
    open_namespaces(&r);
    const uint32_t ends_at = below(&r.random, 4) == 0 ? below(&r.random, STEPS_EACH) : UINT32_MAX;
    for (uint32_t i = 0; i < STEPS_EACH && right; i++) {
        if (i == ends_at)
            restart(&r, seed);
        if (r.disk_wait_ns > 0 && below(&r.random, 400) == 0)
            restart_with_disk(&r);
        disturb(&r);
        right = make_step(&r);
    }
    add_totals(&r);
    kvp_llama_destroy(r.engine);
    return right;
}

static int something_never_happened(const totals *t)
{
    const struct {
        const char *name;
        uint64_t n;
    } list[] = {
        {"hit", t->hits},
        {"adoption", t->adopted},
        {"copy", t->copies},
        {"eviction", t->evicted},
        {"preemption", t->preempted},
        {"reorder", t->reordered},
        {"emptied keeper", t->emptied},
        {"failed decode", t->failed},
        {"full context", t->full},
        {"restored block", t->restored},
        {"lost block", t->lost},
        {"piece that went to the host", t->stretches_out},
        {"piece that came back", t->stretches_in},
        {"hit on the host", t->host_hits},
        {"request that was swapped out", t->swapped_out},
        {"request that was swapped in", t->swapped_in},
        {"block that was slow", t->slow},
        {"idle block", t->idle},
        {"dead bytes", t->dead},
        {"second id", t->seconds},
#ifdef KVP_RANDOM_DISK
        {"record", t->disk.written},
        {"restart with a disk", t->disk.restarts},
        {"request that the disk had something for", t->disk.loaded},
        {"request that it had nothing for", t->disk.nothing},
        {"request that it was too slow for", t->disk.slow},
        {"request without room on the host", t->disk.no_room},
        {"request that the disk failed", t->disk.failed},
        {"request that the disk was late for", t->disk.late},
        {"request that was aborted before the disk answered", t->disk.aborted},
#endif
    };
    int n = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].n == 0) {
            printf("never: %s\n", list[i].name);
            n++;
        }
    return n;
}

static void print_totals(const totals *t)
{
    printf("%llu steps of %llu engines, %llu tokens, %llu logits compared\n",
           (unsigned long long)t->steps, (unsigned long long)t->engines,
           (unsigned long long)t->tokens, (unsigned long long)t->checked);
    printf("hit tokens %llu, adopted %llu, copies %llu, evicted %llu, preempted %llu, "
           "reordered %llu, emptied keepers %llu, failed decodes %llu, full %llu, "
           "restarts %llu with %llu blocks\n"
           "pieces to the host %llu, back %llu, hit tokens there %llu, requests swapped out %llu, "
           "in %llu, slow blocks %llu\n",
           (unsigned long long)t->hits, (unsigned long long)t->adopted,
           (unsigned long long)t->copies, (unsigned long long)t->evicted,
           (unsigned long long)t->preempted, (unsigned long long)t->reordered,
           (unsigned long long)t->emptied, (unsigned long long)t->failed,
           (unsigned long long)t->full, (unsigned long long)t->restarts,
           (unsigned long long)t->restored, (unsigned long long)t->stretches_out,
           (unsigned long long)t->stretches_in, (unsigned long long)t->host_hits,
           (unsigned long long)t->swapped_out, (unsigned long long)t->swapped_in,
           (unsigned long long)t->slow);
    printf(
        "disks %llu, restarts with them alone %llu, records %llu, requests with something from "
        "there %llu (%llu tokens), nothing %llu, slow %llu, no room %llu, failed %llu, late %llu, "
        "aborted %llu, off %llu\n",
        (unsigned long long)t->disk.engines, (unsigned long long)t->disk.restarts,
        (unsigned long long)t->disk.written, (unsigned long long)t->disk.loaded,
        (unsigned long long)t->disk.loaded_tokens, (unsigned long long)t->disk.nothing,
        (unsigned long long)t->disk.slow, (unsigned long long)t->disk.no_room,
        (unsigned long long)t->disk.failed, (unsigned long long)t->disk.late,
        (unsigned long long)t->disk.aborted, (unsigned long long)t->disk.off);
}

/* Conversations that share nothing, with so many tokens each, one after the other. */
static void print_empty(uint32_t own_tokens)
{
    static struct llama_model model = {.architecture = "llama"};
    enum { CELLS = 65536 };
    kvp_llama_config config;
    kvp_stats cache;
    kvp_ns ns;
    kvp_step step;
    kvp_llama *engine;
    int32_t *tokens = calloc(own_tokens, sizeof *tokens);
    const int32_t sampled[1] = {0};
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = CELLS;
    kvp_llama_config_init(&config);
    must(kvp_llama_create(&config, &model, &params, &engine, NULL), "create");
    must(kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns), "namespace");
    for (uint32_t i = 0; tokens != NULL && i < 3 * (CELLS / own_tokens) + 10; i++) {
        kvp_request request;
        for (uint32_t k = 0; k < own_tokens; k++)
            tokens[k] = (int32_t)(i * own_tokens + k);
        const kvp_prompt prompt = {
            .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = own_tokens};
        const kvp_submission submission = {
            .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = 1};
        must(kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL), "submit");
        while (kvp_llama_run(engine, &step) == KVP_OK && step.n_seqs > 0)
            must(kvp_llama_finish(engine, step.n_sampled > 0 ? sampled : NULL, NULL, NULL),
                 "finish");
    }
    must(kvp_cache_stats_get(kvp_llama_cache(engine), &cache), "statistics");
    printf("%u own tokens: %.1f %% of the cells are empty\n", own_tokens,
           100.0 * (double)cache.free_blocks / (double)cache.usable_blocks);
    kvp_llama_destroy(engine);
    free(tokens);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, steps = 20000;
    int plants = 0;
    totals t;
    memset(&t, 0, sizeof t);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--plant") == 0)
            plants = 1;
        else if (strcmp(argv[i], "--own") == 0 && i + 1 < argc) {
            print_empty((uint32_t)strtoul(argv[++i], NULL, 10));
            return 0;
        } else
            return 2;
    for (uint64_t n = 0; t.steps < steps; n++) {
        if (run_engine(seed * 1000003 + n, plants, &t))
            continue;
        printf("seed %llu, engine %llu: a wrong logit\n", (unsigned long long)seed,
               (unsigned long long)n);
        return 1;
    }
    print_totals(&t);
    return steps >= LONG_RUN && something_never_happened(&t) > 0;
}

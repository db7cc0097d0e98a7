/* disk: opens and closes, and what is done in each step. */
#include "disk.h"

#include "../models.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, MS = 1000000, CLOSE_WAITS_MS = 10000, AT_ONCE = 64 };

/* Records that are under way at once, each way: in so many bytes, if that is not too few. */
enum { MOVES_LEAST = 4, MOVES_MOST = 32, MOVES_BYTES = 256 << 20, ASKS = 16 };

void kvp_llama_disk_config_init(kvp_llama_disk_config *config)
{
    if (config == NULL)
        return;
    memset(config, 0, sizeof *config);
    config->struct_size = sizeof *config;
    config->max_wait_ns = 10000ull * MS;
    config->threads = 1;
}

static uint64_t now(const kvp_llama *engine)
{
    return kvpi_rates_now(&engine->host.rates);
}

static kvp_spill_stats figures(const kvpi_disk *disk)
{
    kvp_spill_stats stats = {0};
    (void)kvp_spill_stats_get(disk->spill, &stats);
    return stats;
}

/* ------------------------------------------------------------------------------------- writing */

static uint32_t count_left_out(const kvpi_disk *disk)
{
    const kvp_spill_stats stats = figures(disk);
    return (uint32_t)(stats.no_place + stats.over_budget);
}

/* Offers what open ids have committed. Gives how many records found no place. */
static uint32_t offer(kvp_llama *engine, kvpi_disk *disk)
{
    uint32_t n_left = 0;
    for (uint32_t id = 0; id < engine->ids.n_ids && !disk->stats.is_off; id++) {
        const kvpi_id *entry = &engine->ids.ids[id];
        const uint32_t before = count_left_out(disk);
        if (entry->state != KVPI_ID_OPEN ||
            kvp_spill_sealed(disk->spill, entry->seq, now(engine)) != KVP_OK)
            continue;
        disk->left[id] = count_left_out(disk) - before;
        n_left += disk->left[id];
    }
    return n_left;
}

/* The scheduler commits a step and closes what ends with it in one call: what was computed is
 * committed, and offered, before that. */
static void end_step(kvp_llama *engine)
{
    for (uint32_t id = 0; id < engine->ids.n_ids && engine->is_out; id++) {
        const kvpi_id *entry = &engine->ids.ids[id];
        if (entry->state == KVPI_ID_OPEN)
            (void)kvp_seq_commit(engine->cache, entry->seq, entry->n_tokens);
    }
    (void)offer(engine, engine->disk);
}

/* A sequence that has ended gives its cells up in this step. */
static void count_skipped(const kvp_llama *engine, kvpi_disk *disk)
{
    kvp_seq_info info;
    for (uint32_t id = 0; id < engine->ids.n_ids; id++)
        if (disk->left[id] > 0 &&
            kvp_seq_info_get(engine->cache, engine->ids.ids[id].seq, &info) == KVP_E_HANDLE) {
            disk->stats.skipped += disk->left[id];
            disk->left[id] = 0;
        }
}

/* ------------------------------------------------------------------------------------- reading */

/* 0: the request is not held. */
static int ask(kvp_llama *engine, kvpi_disk *disk, kvp_request request)
{
    kvp_request_info info;
    kvp_sample_info sample;
    kvp_spill_answer answer;
    const kvp_spill_request asked = {
        .struct_size = sizeof asked, .tag = request.bits, .deadline_ns = UINT64_MAX};
    if (kvp_request_info_get(engine->sched, request, &info) != KVP_OK ||
        kvp_request_sample(engine->sched, request, 0, &sample) != KVP_OK ||
        sample.n_tokens > disk->max_seq_tokens ||
        kvp_request_tokens(engine->sched, request, 0, (kvp_range){0, sample.n_tokens},
                           disk->tokens) != KVP_OK)
        return 0;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = disk->tokens, .n_tokens = sample.n_tokens};
    const kvp_status status =
        kvp_spill_ask(disk->spill, info.ns, &prompt, &asked, now(engine), &answer);
    disk->stats.busy += status == KVP_E_AGAIN;
    if (status != KVP_OK || answer.outcome != KVP_SPILL_WAITS)
        return 0;
    if (kvp_sched_hold(engine->sched, request, UINT64_MAX) != KVP_OK) {
        (void)kvp_spill_abort(disk->spill, request.bits);
        return 0;
    }
    disk->stats.asked++;
    disk->stats.asking++;
    return 1;
}

static void ask_all(kvp_llama *engine, kvpi_disk *disk)
{
    kvp_request requests[AT_ONCE];
    uint32_t n = 0;
    do {
        if (kvp_sched_loadable(engine->sched, AT_ONCE, requests, &n) != KVP_OK)
            return;
        for (uint32_t i = 0; i < n; i++)
            if (!ask(engine, disk, requests[i]))
                (void)kvp_sched_skip_load(engine->sched, requests[i]);
    } while (n > 0);
}

/* The request goes on. */
static void take_answer(kvp_llama *engine, kvpi_disk *disk, const kvp_spill_answer *answer)
{
    kvp_llama_disk_stats *stats = &disk->stats;
    stats->asking--;
    if (kvp_sched_release(engine->sched, (kvp_request){answer->tag}) != KVP_OK) {
        stats->aborted++;
        return;
    }
    switch (answer->outcome) {
    case KVP_SPILL_LOADED:
        stats->loaded++;
        stats->load_ns += answer->waited_ns;
        break;
    case KVP_SPILL_NOTHING: stats->nothing++; break;
    case KVP_SPILL_COMPUTE: disk->n_computed++; break;
    case KVP_SPILL_DEADLINE: stats->late++; break;
    default: stats->failed++; break;
    }
}

/* ------------------------------------------------------------------------------------- a step */

/* Without a thread the store works here, and what it ends is taken at once. */
static void work(kvp_llama *engine, kvpi_disk *disk)
{
    kvp_spill_answer answers[AT_ONCE];
    for (uint32_t round = disk->threads > 0; round < 2; round++) {
        uint32_t n = AT_ONCE;
        int is_idle = disk->threads > 0;
        while (!is_idle && kvp_store_work(disk->store, &is_idle) == KVP_OK)
            continue;
        while (n == AT_ONCE) {
            if (kvp_spill_work(disk->spill, now(engine), answers, AT_ONCE, &n) != KVP_OK)
                disk->stats.is_off = 1;
            for (uint32_t i = 0; i < n; i++)
                take_answer(engine, disk, &answers[i]);
        }
    }
}

/* Reading and putting back together must be faster than computing. */
static void learn_computing(const kvp_llama *engine, const kvpi_disk *disk)
{
    enum { N_TOKENS = 1000 };
    const double computing = engine->host.rates.computing.ns;
    const double back = kvpi_rates_back_ns(&engine->host.rates, disk->record_blocks);
    const double ns = computing > back + 1 ? computing - back : 1;
    if (computing > 0)
        (void)kvp_spill_computed(disk->spill, N_TOKENS, (uint64_t)(ns * N_TOKENS));
}

/* If every request waits for the disk, there is nothing better to do for a moment. */
static void wait_for_store(const kvp_llama *engine, const kvpi_disk *disk)
{
    kvp_sched_stats stats;
    if (disk->stats.asking > 0 && disk->threads > 0 &&
        kvp_sched_stats_get(engine->sched, &stats) == KVP_OK && stats.running_requests == 0 &&
        stats.waiting_requests == 0)
        (void)kvp_store_wait(disk->store, MS);
}

static void begin_step(kvp_llama *engine)
{
    kvpi_disk *disk = engine->disk;
    count_skipped(engine, disk);
    learn_computing(engine, disk);
    if (!disk->stats.is_off)
        ask_all(engine, disk);
    wait_for_store(engine, disk);
    work(engine, disk);
}

/* The step's copies have run. */
static void end_plan(kvp_llama *engine)
{
    (void)kvp_plan_done(engine->cache, ++((kvpi_disk *)engine->disk)->n_plans);
}

/* ------------------------------------------------------------------------------- open and close */

static void free_disk(kvpi_disk *disk)
{
    kvp_store_close(disk->store); /* nothing is on its way any more */
    kvp_spill_destroy(disk->spill);
    free(disk->tokens);
    free(disk->left);
    free(disk);
}

static kvp_status open_store(kvpi_disk *disk, const kvp_llama_disk_config *config,
                             const kvp_digest *fingerprint, kvp_why *why)
{
    kvp_store_config store;
    char text[sizeof why->text];
    kvp_store_config_init(&store);
    store.url = config->url;
    store.fingerprint = *fingerprint;
    store.block_tokens = disk->stats.record_tokens;
    store.block_bytes[0] = disk->stats.record_bytes;
    store.record_blocks = 1;
    store.key_bytes = 0;
    store.threads = config->threads;
    const kvp_status status = kvp_store_open(&store, &disk->store, text, sizeof text);
    if (status != KVP_OK)
        (void)kvpi_models_say(why, "url", text);
    return status;
}

/* A match finds no extra keys: what has some is not stored. */
static kvp_status open_spill(kvp_llama *engine, kvpi_disk *disk,
                             const kvp_llama_disk_config *config, const kvp_digest *fingerprint,
                             kvp_why *why)
{
    const uint64_t record_bytes = disk->stats.record_bytes, n = MOVES_BYTES / record_bytes;
    kvp_spill_config spill;
    char text[sizeof why->text];
    kvp_spill_config_init(&spill);
    spill.cache = engine->cache;
    spill.store = disk->store;
    spill.fingerprint = *fingerprint;
    spill.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    spill.block_bytes[0] = record_bytes;
    spill.record_blocks = disk->record_blocks;
    spill.policy = KVP_SPILL_THROUGH;
    spill.max_asks = ASKS;
    spill.max_keys = 0;
    spill.max_puts = spill.max_gets = n < MOVES_LEAST  ? MOVES_LEAST
                                      : n < MOVES_MOST ? (uint32_t)n
                                                       : MOVES_MOST;
    spill.put_bytes = spill.get_bytes = spill.max_puts * record_bytes;
    spill.min_tokens = 1;
    spill.load_bytes_s = UINT64_MAX; /* until it is measured */
    spill.compute_tokens_s = 1;
    spill.max_wait_ns = config->max_wait_ns;
    spill.give = kvpi_disk_moves_give;
    spill.take = kvpi_disk_moves_take;
    spill.engine = engine;
    const kvp_status status = kvp_spill_create(&spill, &disk->spill, text, sizeof text);
    if (status != KVP_OK)
        (void)kvpi_models_say(why, "disk", text);
    return status;
}

static kvp_status fill_disk(kvp_llama *engine, kvpi_disk *disk, const kvp_config *cache,
                            const kvp_llama_disk_config *config, kvp_why *why)
{
    kvp_stats stats;
    kvp_digest fingerprint;
    kvp_status status = kvp_cache_stats_get(engine->cache, &stats);
    if (status != KVP_OK)
        return status;
    disk->n_plans = stats.plans;
    disk->threads = config->threads;
    disk->record_blocks = engine->host.most_blocks;
    disk->lends_a_record = cache->lent_blocks >= disk->record_blocks;
    disk->max_seq_tokens = cache->max_seq_tokens;
    disk->stats.record_tokens = disk->record_blocks * engine->ids.block_tokens;
    disk->tokens = calloc(disk->max_seq_tokens, sizeof *disk->tokens);
    disk->left = calloc(engine->ids.n_ids, sizeof *disk->left);
    if (disk->tokens == NULL || disk->left == NULL)
        return KVP_E_NO_MEMORY;
    disk->state_bytes = kvpi_disk_moves_measure(engine, disk->stats.record_tokens);
    disk->stats.record_bytes = (disk->state_bytes + PAGE - 1) / PAGE * PAGE;
    if (disk->state_bytes == 0) {
        (void)kvpi_models_say(why, "model", "llama.cpp gives no bytes of KV");
        return KVP_E_IO;
    }
    status = kvpi_disk_moves_fingerprint(engine, disk, config->model, &fingerprint);
    if (status == KVP_OK)
        status = open_store(disk, config, &fingerprint, why);
    return status != KVP_OK ? status : open_spill(engine, disk, config, &fingerprint, why);
}

/* What the engine lacks. */
static int is_missing(const kvp_llama *engine, const kvp_config *cache, kvp_why *why)
{
    kvp_stats stats;
    if (engine->disk != NULL)
        return kvpi_models_say(why, "engine", "it has a disk already");
    if (engine->host.host_blocks == 0)
        return kvpi_models_say(why, "host_blocks",
                               "is 0: what is read from the disk goes to the host tier");
    if (cache->max_loads == 0)
        return kvpi_models_say(why, "max_loads", "is 0, expected 1 or more (kvp_config)");
    if (engine->max_loading == 0)
        return kvpi_models_say(why, "max_loading", "is 0, expected 1 or more (kvp_sched_config)");
    if (engine->is_out || kvp_cache_stats_get(engine->cache, &stats) != KVP_OK ||
        stats.cached_blocks + stats.held_blocks + stats.host_cached_blocks > 0)
        return kvpi_models_say(why, "engine", "it has run or restored something already");
    return 0;
}

/* Writes what is complete, as long as the disk goes on. */
static void close_disk(kvp_llama *engine)
{
    kvpi_disk *disk = engine->disk;
    for (uint32_t i = 0; i < CLOSE_WAITS_MS && !disk->stats.is_off; i++) {
        const uint32_t n_left = offer(engine, disk);
        work(engine, disk);
        if (n_left == 0 && figures(disk).puts == 0)
            break;
        if (disk->threads > 0)
            (void)kvp_store_wait(disk->store, MS);
    }
    free_disk(disk);
    engine->disk = NULL;
}

static const kvpi_disk_calls calls = {begin_step, end_plan, end_step, kvp_llama_disk_space_close,
                                      close_disk};

kvp_status kvp_llama_disk_open(kvp_llama *engine, const kvp_llama_disk_config *config,
                               kvp_why *out_why)
{
    kvp_config cache;
    kvp_why why;
    if (out_why == NULL)
        out_why = &why;
    memset(out_why, 0, sizeof *out_why);
    if (engine == NULL || config == NULL || config->struct_size != sizeof *config ||
        config->url == NULL || config->reserved != 0 || config->max_wait_ns == 0)
        return KVP_E_ARG;
    if (config->model == NULL || config->model[0] == '\0') {
        (void)kvpi_models_say(out_why, "model", "is empty: which weights these are");
        return KVP_E_ARG;
    }
    if (kvp_cache_config_get(engine->cache, &cache) != KVP_OK ||
        is_missing(engine, &cache, out_why))
        return KVP_E_STATE;
    kvpi_disk *disk = calloc(1, sizeof *disk);
    if (disk == NULL)
        return KVP_E_NO_MEMORY;
    const kvp_status status = fill_disk(engine, disk, &cache, config, out_why);
    if (status != KVP_OK) {
        free_disk(disk);
        return status;
    }
    engine->disk = disk;
    engine->disk_calls = &calls;
    return KVP_OK;
}

/* ---------------------------------------------------------------------- namespaces, statistics */

kvp_status kvp_llama_disk_space(kvp_llama *engine, kvp_ns ns, const void *name, size_t name_bytes,
                                uint64_t epoch)
{
    if (engine == NULL || ns.bits == 0)
        return KVP_E_ARG;
    const kvpi_disk *disk = engine->disk;
    return disk == NULL ? KVP_E_STATE : kvp_spill_space(disk->spill, ns, name, name_bytes, epoch);
}

void kvp_llama_disk_space_close(kvp_llama *engine, kvp_ns ns)
{
    if (engine != NULL && engine->disk != NULL)
        (void)kvp_spill_space_close(((kvpi_disk *)engine->disk)->spill, ns);
}

void kvp_llama_disk_stats_get(const kvp_llama *engine, kvp_llama_disk_stats *out_stats)
{
    if (engine == NULL || out_stats == NULL)
        return;
    memset(out_stats, 0, sizeof *out_stats);
    const kvpi_disk *disk = engine->disk;
    if (disk == NULL)
        return;
    const kvp_spill_stats spill = figures(disk);
    const uint64_t n_slow = disk->lends_a_record ? spill.decided_none : 0;
    *out_stats = disk->stats;
    (void)kvp_store_stats_get(disk->store, &out_stats->store);
    out_stats->slow = n_slow < disk->n_computed ? n_slow : disk->n_computed;
    out_stats->no_room = disk->n_computed - out_stats->slow;
    out_stats->writing = (uint32_t)spill.puts;
}

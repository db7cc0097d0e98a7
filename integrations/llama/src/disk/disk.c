/* disk: opens and closes, and what is done in each step. */
#include "disk.h"

#include "../models.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, MS = 1000000, CLOSE_WAITS_MS = 10000, DONE_AT_ONCE = 32 };

void kvp_llama_disk_config_init(kvp_llama_disk_config *config)
{
    if (config == NULL)
        return;
    memset(config, 0, sizeof *config);
    config->struct_size = sizeof *config;
    config->max_wait_ns = 10000ull * MS;
    config->threads = 1;
}

/* --------------------------------------------------------------------------------- the store */

static void take_done(kvp_llama *engine, kvpi_disk *disk, const kvp_store_done *done)
{
    const uint32_t ask = (uint32_t)(done->tag >> 32 & 0xFFFFFF), number = (uint32_t)done->tag;
    switch (done->tag >> 56) {
    case KVPI_TAG_PUT: kvpi_disk_puts_ended(disk, number, done->result); break;
    case KVPI_TAG_HAVE: kvpi_disk_gets_looked(engine, disk, ask, done->result); break;
    default: kvpi_disk_gets_ended(disk, ask, number, done->result); break;
    }
}

static void poll_store(kvp_llama *engine, kvpi_disk *disk)
{
    kvp_store_done done[DONE_AT_ONCE];
    uint32_t n = DONE_AT_ONCE;
    int is_idle = disk->threads > 0;
    while (!is_idle && kvp_store_work(disk->store, &is_idle) == KVP_OK)
        continue;
    while (n == DONE_AT_ONCE && kvp_store_poll(disk->store, done, DONE_AT_ONCE, &n) == KVP_OK)
        for (uint32_t i = 0; i < n; i++)
            take_done(engine, disk, &done[i]);
}

/* ----------------------------------------------------------------------------------- a step */

/* If every request waits for the disk, there is nothing better to do for a moment. */
static void wait_for_store(const kvp_llama *engine, const kvpi_disk *disk)
{
    kvp_sched_stats stats;
    if (disk->n_asking > 0 && disk->threads > 0 &&
        kvp_sched_stats_get(engine->sched, &stats) == KVP_OK && stats.running_requests == 0 &&
        stats.waiting_requests == 0)
        (void)kvp_store_wait(disk->store, MS);
}

static void begin_step(kvp_llama *engine)
{
    kvp_sched_expired expired;
    kvpi_disk *disk = engine->disk;
    if (!disk->stats.is_off) {
        (void)kvpi_disk_puts_offer(engine, disk);
        kvpi_disk_gets_ask(engine, disk);
    }
    wait_for_store(engine, disk);
    poll_store(engine, disk);
    kvpi_disk_gets_work(engine, disk);
    if (disk->n_asking > 0 &&
        kvp_sched_tick(engine->sched, kvpi_rates_now(&disk->rates), &expired) == KVP_OK)
        kvpi_disk_gets_expired(disk, &expired);
}

/* The step's copies have run. */
static void end_plan(kvp_llama *engine)
{
    (void)kvp_plan_done(engine->cache, ++engine->disk->n_plans);
}

/* ------------------------------------------------------------------------------- what it needs */

/* Bytes of the spare id's state, with one more token. 0: llama.cpp does not compute it. */
static size_t grow(kvp_llama *engine, llama_pos position)
{
    llama_token token = 0;
    llama_seq_id id = (llama_seq_id)kvpi_state_spare(&engine->ids), *ids = &id;
    int32_t count = 1;
    int8_t logits = 0;
    const struct llama_batch batch = {.n_tokens = 1,
                                      .token = &token,
                                      .pos = &position,
                                      .n_seq_id = &count,
                                      .seq_id = &ids,
                                      .logits = &logits};
    if (llama_decode(engine->context, batch) != 0)
        return 0;
    return llama_state_seq_get_size_ext(engine->context, id, 0);
}

/* A state has a fixed number of bytes, and the same for each cell. */
static size_t measure_state(kvp_llama *engine, uint32_t n_tokens)
{
    const size_t one = grow(engine, 0), two = one > 0 ? grow(engine, 1) : 0;
    kvpi_state_close(&engine->ids);
    return two > one ? one + (n_tokens - 1) * (two - one) : 0;
}

/* Records that are written at once: in so many bytes, if that is not too few. */
static uint32_t count_puts(size_t block_bytes)
{
    const uint64_t n = ((uint64_t)256 << 20) / block_bytes;
    return n < KVPI_PUTS_LEAST  ? KVPI_PUTS_LEAST
           : n < KVPI_PUTS_MOST ? (uint32_t)n
                                : KVPI_PUTS_MOST;
}

static int make_ask(kvpi_disk *disk, kvpi_ask *ask)
{
    const size_t n = (size_t)disk->max_records + 1, n_blocks = n * disk->record_blocks;
    ask->tokens = calloc(disk->max_seq_tokens, sizeof *ask->tokens);
    ask->digests = calloc(n, sizeof *ask->digests);
    ask->keys = calloc(n, sizeof *ask->keys);
    ask->bits = calloc(n / 64 + 1, sizeof *ask->bits);
    ask->gets = calloc(n, sizeof *ask->gets);
    ask->blocks = calloc(n_blocks, sizeof *ask->blocks);
    ask->whole = calloc(n_blocks, sizeof *ask->whole);
    return ask->tokens != NULL && ask->digests != NULL && ask->keys != NULL && ask->bits != NULL &&
           ask->gets != NULL && ask->blocks != NULL && ask->whole != NULL;
}

static void free_ask(kvpi_ask *ask)
{
    free(ask->tokens);
    free(ask->digests);
    free(ask->keys);
    free(ask->bits);
    free(ask->gets);
    free(ask->blocks);
    free(ask->whole);
}

static int make_memory(kvp_llama *engine, kvpi_disk *disk, uint32_t max_namespaces)
{
    int is_there = 1;
    disk->n_spaces = max_namespaces;
    disk->n_ids = engine->ids.n_ids;
    disk->spaces = calloc(max_namespaces, sizeof *disk->spaces);
    disk->written = calloc(disk->n_ids, sizeof *disk->written);
    disk->asks = calloc(disk->n_asks, sizeof *disk->asks);
    disk->known = calloc(KVPI_KNOWN, sizeof *disk->known);
    disk->known_at = calloc(KVPI_KNOWN, sizeof *disk->known_at);
    engine->host.loading = calloc(engine->host.host_blocks, 1);
    for (uint32_t i = 0; i < disk->n_puts; i++) {
        disk->puts[i].tokens = calloc(disk->record_tokens, sizeof *disk->puts[i].tokens);
        is_there = is_there && disk->puts[i].tokens != NULL;
    }
    if (!is_there || disk->spaces == NULL || disk->written == NULL || disk->asks == NULL ||
        disk->known == NULL || disk->known_at == NULL || engine->host.loading == NULL)
        return 0;
    for (uint32_t i = 0; i < disk->n_asks && is_there; i++)
        is_there = make_ask(disk, &disk->asks[i]);
    return is_there;
}

static void free_disk(kvp_llama *engine, kvpi_disk *disk)
{
    kvp_store_close(disk->store);
    kvp_digester_destroy(disk->digester);
    for (uint32_t i = 0; disk->asks != NULL && i < disk->n_asks; i++)
        free_ask(&disk->asks[i]);
    for (uint32_t i = 0; i < disk->n_puts; i++) {
        free(disk->puts[i].tokens);
        kvpi_state_free(&disk->puts[i].bytes);
    }
    free(disk->asks);
    free(disk->spaces);
    free(disk->written);
    free(disk->known);
    free(disk->known_at);
    free(engine->host.loading);
    engine->host.loading = NULL;
    free(disk);
}

/* ------------------------------------------------------------------------------- open and close */

static kvp_status open_store(kvpi_disk *disk, const kvp_llama_disk_config *config, kvp_why *why)
{
    kvp_store_config store;
    char text[sizeof why->text];
    kvp_store_config_init(&store);
    store.url = config->url;
    store.fingerprint = disk->fingerprint;
    store.block_tokens = disk->record_tokens;
    store.block_bytes[0] = disk->block_bytes;
    store.record_blocks = 1;
    store.key_bytes = 0;
    store.threads = config->threads;
    const kvp_status status = kvp_store_open(&store, &disk->store, text, sizeof text);
    if (status != KVP_OK)
        (void)kvpi_models_say(why, "url", text);
    return status;
}

static kvp_status fill_disk(kvp_llama *engine, kvpi_disk *disk, const kvp_config *cache,
                            const kvp_llama_disk_config *config, kvp_why *why)
{
    kvp_stats stats;
    kvp_status status = kvp_cache_stats(engine->cache, &stats);
    if (status != KVP_OK)
        return status;
    disk->n_plans = stats.plans;
    disk->max_wait_ns = config->max_wait_ns;
    disk->threads = config->threads;
    disk->record_blocks = engine->host.most_blocks;
    disk->record_tokens = disk->record_blocks * engine->ids.block_tokens;
    disk->max_seq_tokens = cache->max_seq_tokens;
    disk->max_records = disk->max_seq_tokens / disk->record_tokens;
    disk->n_asks = cache->max_loads < KVPI_ASKS_MOST ? cache->max_loads : KVPI_ASKS_MOST;
    kvpi_rates_init(&disk->rates, engine->host.rates.now_ns, engine->host.rates.context);
    disk->state_bytes = measure_state(engine, disk->record_tokens);
    disk->block_bytes = (disk->state_bytes + PAGE - 1) / PAGE * PAGE;
    if (disk->state_bytes == 0) {
        (void)kvpi_models_say(why, "model", "llama.cpp gives no bytes of KV");
        return KVP_E_IO;
    }
    disk->n_puts = count_puts(disk->block_bytes);
    if (!make_memory(engine, disk, cache->max_namespaces))
        return KVP_E_NO_MEMORY;
    status = kvp_digester_create(&disk->digester);
    if (status == KVP_OK)
        status = kvpi_disk_names_fingerprint(disk, engine, config->model);
    return status != KVP_OK ? status : open_store(disk, config, why);
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
    if (engine->is_out || kvp_cache_stats(engine->cache, &stats) != KVP_OK ||
        stats.cached_blocks + stats.held_blocks + stats.host_cached_blocks > 0)
        return kvpi_models_say(why, "engine", "it has run or restored something already");
    return 0;
}

static void close_disk(kvp_llama *engine);

static void forget_space(kvp_llama *engine, kvp_ns ns)
{
    kvp_llama_disk_space_close(engine, ns);
}

static const kvpi_disk_calls calls = {begin_step, end_plan, forget_space, close_disk};

/* Writes what is complete, as long as the disk goes on. */
static void finish_writes(kvp_llama *engine, kvpi_disk *disk)
{
    for (uint32_t i = 0; i < CLOSE_WAITS_MS && !disk->stats.is_off; i++) {
        const int all = engine->is_out || kvpi_disk_puts_offer(engine, disk);
        poll_store(engine, disk);
        if (all && kvpi_disk_puts_count(disk) == 0)
            return;
        if (disk->threads > 0)
            (void)kvp_store_wait(disk->store, MS);
    }
}

static void close_disk(kvp_llama *engine)
{
    kvpi_disk *disk = engine->disk;
    finish_writes(engine, disk);
    kvp_store_close(disk->store); /* nothing is on its way any more */
    disk->store = NULL;
    kvpi_disk_gets_end(engine, disk);
    free_disk(engine, disk);
    engine->disk = NULL;
    engine->disk_calls = NULL;
}

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
    if (kvp_cache_config(engine->cache, &cache) != KVP_OK || is_missing(engine, &cache, out_why))
        return KVP_E_STATE;
    kvpi_disk *disk = calloc(1, sizeof *disk);
    if (disk == NULL)
        return KVP_E_NO_MEMORY;
    const kvp_status status = fill_disk(engine, disk, &cache, config, out_why);
    if (status != KVP_OK) {
        free_disk(engine, disk);
        return status;
    }
    engine->disk = disk;
    engine->disk_calls = &calls;
    return KVP_OK;
}

void kvp_llama_disk_stats_get(const kvp_llama *engine, kvp_llama_disk_stats *out_stats)
{
    if (engine == NULL || out_stats == NULL)
        return;
    memset(out_stats, 0, sizeof *out_stats);
    const kvpi_disk *disk = engine->disk;
    if (disk == NULL)
        return;
    *out_stats = disk->stats;
    (void)kvp_store_stats_get(disk->store, &out_stats->store);
    out_stats->record_tokens = disk->record_tokens;
    out_stats->record_bytes = disk->block_bytes;
    out_stats->asking = disk->n_asking;
    out_stats->writing = kvpi_disk_puts_count(disk);
}

/* engine: a context, a cache with a block for each block_tokens cells of it, and a scheduler. */
#include "engine.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The id that no engine uses is the last one. How many there are is in no header of llama.cpp; a
 * context with too many cannot be made. */
enum { SPARE_IDS = 1, LEAST_KEEPERS = 1, BLOCK_TOKENS_MOST = 1024, ALL_IDS = 256 };

void kvp_llama_config_init(kvp_llama_config *config)
{
    if (config == NULL)
        return;
    memset(config, 0, sizeof *config);
    config->struct_size = sizeof *config;
    config->block_tokens = 16;
    config->max_running = 32;
    config->max_requests = 1024;
    config->watermark = 0.01;
    config->wait_for_prefix = 1;
    config->arena_tokens = (uint64_t)1 << 20;
    config->stretch_tokens = 256;
}

kvp_status kvp_llama_check_model(const struct llama_model *model,
                                 const struct llama_context_params *params, kvp_why *out_why)
{
    if (out_why != NULL)
        memset(out_why, 0, sizeof *out_why);
    if (model == NULL || params == NULL)
        return KVP_E_ARG;
    if (!kvpi_models_fits(llama_context_default_params, out_why))
        return KVP_E_VERSION;
    return kvpi_models_refuses(model, params, out_why) ? KVP_E_ARG : KVP_OK;
}

/* ------------------------------------------------------------------------------------- creation */

static int is_outside(const char *field, uint64_t value, uint64_t lowest, uint64_t highest,
                      kvp_why *why)
{
    char text[sizeof why->text];
    if (value >= lowest && value <= highest)
        return 0;
    (void)snprintf(text, sizeof text, "%s is %llu, expected %llu to %llu", field,
                   (unsigned long long)value, (unsigned long long)lowest,
                   (unsigned long long)highest);
    return kvpi_models_say(why, field, text);
}

/* llama.cpp rounds n_ctx up to whole 256. */
static void find_window(kvp_llama *engine, const kvp_llama_config *config,
                        const struct llama_model *model, const struct llama_context_params *params)
{
    enum { CELLS_PAD = 256 };
    const int32_t n_swa = llama_model_n_swa(model);
    const uint64_t cells = params->n_ctx != 0 ? (uint64_t)params->n_ctx + CELLS_PAD : UINT64_MAX;
    const uint64_t longest = config->max_seq_tokens != 0 ? config->max_seq_tokens : cells;
    engine->window = n_swa > 0 ? (uint32_t)n_swa : 0;
    engine->id_width = engine->window > 0 && longest >= engine->window ? 2 : 1;
}

/* Ids for each sequence that runs: all may be replaced in one step, and what comes back from the
 * host may need a keeper for each new one, too. */
static uint32_t ids_each(const kvp_llama *engine, const kvp_llama_config *config)
{
    return (config->host_blocks > 0 ? 3 : 2) * engine->id_width;
}

/* Fills in what is 0 for a default. */
static int config_is_wrong(const kvp_llama *engine, kvp_llama_config *config, kvp_why *why)
{
    const uint32_t each = ids_each(engine, config);
    const uint32_t others = SPARE_IDS + LEAST_KEEPERS * engine->id_width;
    const uint32_t most = engine->window > 0 && engine->window < BLOCK_TOKENS_MOST
                              ? engine->window
                              : BLOCK_TOKENS_MOST;
    if (config->max_ids == 0)
        config->max_ids = ALL_IDS;
    return is_outside("block_tokens", config->block_tokens, 1, most, why) ||
           is_outside("max_ids", config->max_ids, each + others, ALL_IDS, why) ||
           is_outside("max_running", config->max_running, 1, (config->max_ids - others) / each,
                      why);
}

static kvp_status make_context(kvp_llama *engine, const kvp_llama_config *config,
                               struct llama_model *model, const struct llama_context_params *given,
                               kvp_why *why)
{
    struct llama_context_params params = *given;
    params.kv_unified = true;
    params.n_seq_max = config->max_ids;
    engine->model = model;
    engine->type_k = params.type_k;
    engine->type_v = params.type_v;
    engine->context = llama_init_from_model(model, params);
    if (engine->context == NULL) {
        (void)kvpi_models_say(why, "params", "llama.cpp made no context; its log says why");
        return KVP_E_NO_MEMORY;
    }
    if (llama_n_ctx_seq(engine->context) != llama_n_ctx(engine->context)) {
        (void)kvpi_models_say(why, "kv_unified", "llama.cpp did not make one pool for all ids");
        return KVP_E_ARG;
    }
    return KVP_OK;
}

/* What blocks of cells cannot do, of a configuration that the caller has prepared. */
static int cache_is_wrong(const kvp_config *cache, const kvp_llama_config *config, kvp_why *why)
{
    if (cache->struct_size != sizeof *cache)
        return kvpi_models_say(why, "cache", "fill it with kvp_config_init of this version");
    return (cache->unit_tokens != 0 &&
            is_outside("unit_tokens", cache->unit_tokens, config->block_tokens,
                       config->block_tokens, why)) ||
           is_outside("commit_policy", cache->commit_policy, KVP_ADOPT, KVP_ADOPT, why) ||
           is_outside("n_groups", cache->n_groups, 1, 1, why) ||
           is_outside("max_tree_tokens", cache->max_tree_tokens, 0, 0, why) ||
           is_outside("state_slots", cache->state_slots, 0, 0, why) ||
           is_outside("host_blocks", cache->host_blocks, 0, 0, why);
}

/* A step may write every block: what it had goes to the host, what it gets comes from there.
 * Evicted content is kept while the plan is less than half full. */
static uint32_t copies_of_a_step(const kvp_config *cache)
{
    const uint64_t n = 4 * (uint64_t)cache->n_blocks + cache->max_seqs;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

static kvp_status make_cache(kvp_llama *engine, const kvp_llama_config *config, kvp_why *why)
{
    kvp_config cache;
    const uint32_t all_cells = llama_n_ctx(engine->context);
    const uint32_t piece_cells =
        kvpi_state_piece(config->stretch_tokens, engine->window, config->block_tokens) *
        config->block_tokens;
    const uint32_t n_cells = config->host_blocks > 0 ? all_cells - piece_cells : all_cells;
    kvp_config_init(&cache);
    if (config->host_blocks > 0 &&
        (is_outside("stretch_tokens", config->stretch_tokens, 1, all_cells / 2, why) ||
         is_outside("block_tokens", piece_cells, 1, all_cells / 2, why)))
        return KVP_E_ARG;
    if (config->cache != NULL && cache_is_wrong(config->cache, config, why))
        return KVP_E_ARG;
    if (config->cache != NULL)
        cache = *config->cache;
    cache.block_tokens = config->block_tokens;
    cache.n_blocks = n_cells / config->block_tokens + 1;
    cache.max_seqs = config->host_blocks > 0 ? 2 * config->max_running : config->max_running;
    cache.host_blocks = config->host_blocks;
    if (cache.host_blocks == 0)
        cache.max_loads = cache.lent_blocks = 0;
    if (cache.host_blocks > 0 && cache.max_copies == 0)
        cache.max_copies = copies_of_a_step(&cache);
    cache.max_seq_tokens = config->max_seq_tokens != 0 ? config->max_seq_tokens : n_cells;
    cache.full_hit = KVP_FULL_HIT_RECOMPUTE; /* a token that is run again writes a cell */
    cache.steps = KVP_STEPS_ORDERED;
    cache.watermark = config->watermark;
    if (is_outside("max_seq_tokens", cache.max_seq_tokens, 1, n_cells, why))
        return KVP_E_ARG;
    const kvp_status status = kvp_config_check(&cache, why);
    return status != KVP_OK ? status : kvp_cache_create(&cache, NULL, 0, &engine->cache);
}

static kvp_status make_sched(kvp_llama *engine, const kvp_llama_config *config,
                             uint32_t step_tokens, kvp_why *why)
{
    kvp_sched_config sched;
    kvp_sched_config_init(&sched);
    if (config->sched != NULL && config->sched->struct_size != sizeof sched) {
        (void)kvpi_models_say(why, "sched", "fill it with kvp_sched_config_init of this version");
        return KVP_E_ARG;
    }
    if (config->sched != NULL)
        sched = *config->sched;
    engine->max_loading = sched.max_loading;
    sched.max_requests = config->max_requests;
    sched.max_running = config->max_running;
    sched.step_tokens = step_tokens;
    sched.chunk_tokens = config->chunk_tokens;
    sched.wait_for_prefix = config->wait_for_prefix;
    sched.arena_tokens = config->arena_tokens;
    const kvp_status status = kvp_sched_config_check(&sched, engine->cache, why);
    return status != KVP_OK ? status
                            : kvp_sched_create(&sched, engine->cache, NULL, 0, &engine->sched);
}

static kvp_status make_ids(kvp_llama *engine, const kvp_llama_config *config)
{
    kvp_config cache;
    const kvp_status status = kvp_cache_config_get(engine->cache, &cache);
    const uint32_t n_ids = config->max_ids - SPARE_IDS;
    const uint32_t n_running = ids_each(engine, config) * config->max_running;
    const kvpi_ids_sizes sizes = {.n_ids = n_ids,
                                  .max_keepers = n_ids - n_running,
                                  .window = engine->window,
                                  .block_tokens = cache.block_tokens,
                                  .row_blocks = (cache.max_seq_tokens + cache.block_tokens - 1) /
                                                cache.block_tokens,
                                  .pool_blocks = cache.n_blocks};
    engine->max_copies = cache.max_copies;
    engine->idle_blocks =
        config->idle_cells != 0 ? config->idle_cells / cache.block_tokens : UINT32_MAX;
    engine->max_swapped = cache.max_seqs;
    engine->swapped = calloc(cache.max_seqs, sizeof *engine->swapped);
    engine->copies = calloc(cache.max_copies, sizeof *engine->copies);
    engine->groups = calloc(n_ids, sizeof *engine->groups);
    if (status != KVP_OK || engine->copies == NULL || engine->groups == NULL ||
        engine->swapped == NULL)
        return status != KVP_OK ? status : KVP_E_NO_MEMORY;
    return kvpi_ids_init(&engine->ids, engine->cache, engine->context, &sizes);
}

static kvp_status make_host(kvp_llama *engine, const kvp_llama_config *config)
{
    const kvpi_host_sizes sizes = {
        .host_blocks = config->host_blocks,
        .most_blocks =
            kvpi_state_piece(config->stretch_tokens, engine->window, config->block_tokens),
        .max_copies = engine->max_copies};
    if (config->host_blocks == 0)
        return KVP_OK;
    kvpi_rates_init(&engine->host.rates, config->now_ns, config->clock);
    return kvpi_host_init(&engine->host, &engine->ids, &sizes);
}

static kvp_status make_batch(kvp_llama *engine, uint32_t step_tokens, uint32_t max_running)
{
    engine->batch.n_vocab = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(engine->model));
    engine->step_ids = calloc(max_running, sizeof *engine->step_ids);
    if (engine->step_ids == NULL)
        return KVP_E_NO_MEMORY;
    return kvpi_batch_init(&engine->batch, step_tokens, max_running);
}

static kvp_status make_engine(kvp_llama *engine, const kvp_llama_config *config,
                              struct llama_model *model, const struct llama_context_params *params,
                              kvp_why *why)
{
    kvp_status status = make_context(engine, config, model, params, why);
    if (status == KVP_OK)
        status = make_cache(engine, config, why);
    if (status != KVP_OK)
        return status;
    const uint32_t most = llama_n_batch(engine->context);
    const uint32_t step_tokens = config->step_tokens != 0 ? config->step_tokens : most;
    if (is_outside("step_tokens", step_tokens, config->max_running, most, why))
        return KVP_E_ARG;
    status = make_sched(engine, config, step_tokens, why);
    if (status == KVP_OK)
        status = make_ids(engine, config);
    if (status == KVP_OK)
        status = make_host(engine, config);
    return status != KVP_OK ? status : make_batch(engine, step_tokens, config->max_running);
}

kvp_status kvp_llama_create(const kvp_llama_config *config, struct llama_model *model,
                            const struct llama_context_params *params, kvp_llama **out_engine,
                            kvp_why *out_why)
{
    kvp_why why;
    memset(&why, 0, sizeof why);
    if (out_why != NULL)
        *out_why = why;
    if (config == NULL || config->struct_size != sizeof *config || out_engine == NULL)
        return KVP_E_ARG;
    kvp_llama_config checked = *config;
    kvp_status status = kvp_llama_check_model(model, params, out_why);
    if (status != KVP_OK)
        return status;
    kvp_llama *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return KVP_E_NO_MEMORY;
    const int lacks_host =
        checked.host_blocks > 0 && params->flash_attn_type != LLAMA_FLASH_ATTN_TYPE_ENABLED;
    if (lacks_host)
        checked.host_blocks = 0;
    find_window(engine, &checked, model, params);
    status = config_is_wrong(engine, &checked, &why) ||
                     (engine->id_width > 1 && kvpi_models_refuses_chunks(model, &why))
                 ? KVP_E_ARG
                 : make_engine(engine, &checked, model, params, &why);
    if (status == KVP_OK && lacks_host)
        (void)kvpi_models_say(&why, "flash_attn_type",
                              "there is no host tier: it needs flash attention, explicitly "
                              "enabled, because V lies transposed otherwise");
    if (out_why != NULL)
        *out_why = why;
    if (status != KVP_OK)
        kvp_llama_destroy(engine);
    else
        *out_engine = engine;
    return status;
}

void kvp_llama_destroy(kvp_llama *engine)
{
    if (engine == NULL)
        return;
    if (engine->disk != NULL)
        engine->disk_calls->close(engine);
    kvp_sched_destroy(engine->sched);
    kvp_cache_destroy(engine->cache);
    kvpi_batch_end(&engine->batch);
    kvpi_host_end(&engine->host);
    kvpi_ids_end(&engine->ids);
    if (engine->context != NULL)
        llama_free(engine->context);
    free(engine->step_ids);
    free(engine->copies);
    free(engine->swapped);
    free(engine->groups);
    free(engine);
}

/* -------------------------------------------------------------------------- what can be asked */

kvp_cache *kvp_llama_cache(const kvp_llama *engine)
{
    return engine->cache;
}

kvp_sched *kvp_llama_sched(const kvp_llama *engine)
{
    return engine->sched;
}

struct llama_context *kvp_llama_context(const kvp_llama *engine)
{
    return engine->context;
}

void kvp_llama_stats_get(const kvp_llama *engine, kvp_llama_stats *out_stats)
{
    if (engine == NULL || out_stats == NULL)
        return;
    const kvpi_ids *ids = &engine->ids;
    *out_stats = (kvp_llama_stats){.decodes = engine->decodes,
                                   .failed_decodes = engine->failed_decodes,
                                   .decoded_tokens = engine->decoded_tokens,
                                   .copies = ids->moves.copies,
                                   .removals = ids->moves.removals,
                                   .emptied = ids->emptied,
                                   .dropped_blocks = ids->dropped_blocks,
                                   .max_keepers = ids->max_keepers,
                                   .idle_blocks = ids->idle_blocks,
                                   .stretches_out = engine->host.stretches_out,
                                   .stretches_in = engine->host.stretches_in,
                                   .slow_blocks = engine->host.slow_blocks};
    kvpi_host_count(&engine->host, &out_stats->host_bytes, &out_stats->host_dead_bytes);
    for (uint32_t id = 0; id < ids->n_ids; id++) {
        out_stats->open_ids += ids->ids[id].state == KVPI_ID_OPEN;
        out_stats->keepers += ids->ids[id].state == KVPI_ID_KEEPER;
        out_stats->second_ids += ids->ids[id].state == KVPI_ID_SECOND;
        if (ids->ids[id].state == KVPI_ID_KEEPER)
            out_stats->kept_blocks += ids->ids[id].n_blocks;
    }
}

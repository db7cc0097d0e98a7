/* make: options of the engine, its adapter, and blocks for so many bytes. */
#include "make.h"
#include "cache_disk.h"
#include "restart.h"

#include "../../src/models.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_TOKENS = 1 << 22, EVENTS = 16 };

static int refuse(kvp_why *why, const char *option, const char *text)
{
    (void)kvpi_models_say(why, option, text);
    return -1;
}

static struct llama_context_params context_params(const kvpi_options *options)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_batch = options->batch_size;
    params.n_ubatch = options->ubatch_size;
    if (options->threads != 0)
        params.n_threads = params.n_threads_batch = (int32_t)options->threads;
    params.type_k = options->type_k;
    params.type_v = options->type_v;
    params.flash_attn_type = options->flash_attn;
    return params;
}

/* -------------------------------------------------------------------------------------- adapter */

/* Before the context is made: llama.cpp's graphs have room for the adapters that are loaded. */
static int load_adapter(kvpi_loop *loop, struct llama_model *model, kvp_why *why)
{
    if (loop->options->lora == NULL)
        return 0;
    loop->adapter = llama_adapter_lora_init(model, loop->options->lora);
    if (loop->adapter == NULL)
        return refuse(why, "--lora", "llama.cpp cannot load it for this model (-v: why)");
    if (llama_adapter_get_alora_n_invocation_tokens(loop->adapter) > 0)
        return refuse(why, "--lora", "it is activated by tokens (aLoRA), which is not supported");
    return 0;
}

/* All KV of this process is the adapter's: the engine has none of its own, and leaves it there. */
static int set_adapter(kvpi_loop *loop, kvp_why *why)
{
    float scale = 1;
    if (loop->adapter == NULL ||
        llama_set_adapters_lora(kvp_llama_context(loop->engine), &loop->adapter, 1, &scale) == 0)
        return 0;
    return refuse(why, "--lora", "llama.cpp refuses it");
}

/* ------------------------------------------------------------------------------------ host tier */

/* The bytes of one more token in a sequence's state. */
static uint64_t grow(struct llama_context *context)
{
    enum { FIRST = 16, TOKENS = 2 * FIRST };
    llama_token tokens[TOKENS] = {0};
    llama_pos positions[TOKENS];
    llama_seq_id id = 0, *ids[TOKENS];
    int32_t counts[TOKENS];
    int8_t logits[TOKENS] = {0};
    size_t n_bytes[2] = {0, 0};
    for (int32_t i = 0; i < TOKENS; i++) {
        positions[i] = i;
        ids[i] = &id;
        counts[i] = 1;
    }
    for (int32_t i = 0; i < 2; i++) {
        const struct llama_batch batch = {.n_tokens = FIRST,
                                          .token = tokens,
                                          .pos = &positions[i * FIRST],
                                          .n_seq_id = counts,
                                          .seq_id = ids,
                                          .logits = logits};
        if (llama_decode(context, batch) != 0)
            return 0;
        n_bytes[i] = llama_state_seq_get_size_ext(context, id, 0);
    }
    return n_bytes[1] > n_bytes[0] ? (n_bytes[1] - n_bytes[0]) / FIRST : 0;
}

/* Measured in a small context: libllama does not tell how many bytes of KV a token has. */
static uint64_t token_bytes(const kvpi_options *options, struct llama_model *model)
{
    enum { CELLS = 256 };
    struct llama_context_params params = context_params(options);
    params.n_ctx = params.n_batch = params.n_ubatch = CELLS;
    struct llama_context *context = llama_init_from_model(model, params);
    if (context == NULL)
        return 0;
    const uint64_t n = grow(context);
    llama_free(context);
    return n;
}

static int count_host_blocks(const kvpi_options *options, struct llama_model *model,
                             uint32_t *out_blocks, kvp_why *why)
{
    char text[160];
    *out_blocks = 0;
    if (options->host_memory == 0)
        return 0;
    const struct llama_context_params params = context_params(options);
    if (kvp_llama_check_model(model, &params, why) != KVP_OK) /* else it may have no cells */
        return -1;
    const uint64_t bytes = token_bytes(options, model) * options->block_tokens;
    if (bytes == 0)
        return refuse(why, "--host-memory", "llama.cpp gives no bytes of KV for this model");
    const uint64_t n = options->host_memory / bytes;
    if (n == 0 || n >= INT32_MAX) {
        (void)snprintf(text, sizeof text, "%llu bytes are %s blocks: a block has %llu bytes",
                       (unsigned long long)options->host_memory, n == 0 ? "no" : "too many",
                       (unsigned long long)bytes);
        return refuse(why, "--host-memory", text);
    }
    *out_blocks = (uint32_t)n + 1; /* and the null block */
    return 0;
}

/* --------------------------------------------------------------------------------------- engine */

static int set_limits(kvpi_loop *loop)
{
    kvp_config config;
    kvp_stats stats;
    if (kvp_cache_config_get(loop->cache, &config) != KVP_OK ||
        kvp_cache_stats_get(loop->cache, &stats) != KVP_OK)
        return -1;
    loop->limits = (kvpi_limits){.block_tokens = config.block_tokens,
                                 .usable_blocks = (uint32_t)stats.usable_blocks,
                                 .watermark_blocks = (uint32_t)stats.watermark_blocks,
                                 .max_seq_tokens = config.max_seq_tokens,
                                 .max_running = loop->options->parallel,
                                 .arena_tokens = ARENA_TOKENS};
    return 0;
}

static kvp_status create(kvpi_loop *loop, struct llama_model *model, uint32_t host_blocks,
                         kvp_why *why)
{
    static const struct {
        const char *field, *option;
    } names[] = {
        {"max_running", "-np"}, {"block_tokens", "--block-tokens"}, {"max_seq_tokens", "-c"}};
    const kvpi_options *options = loop->options;
    struct llama_context_params params = context_params(options);
    kvp_llama_config config;
    kvp_config cache;
    kvp_sched_config sched;
    kvp_llama_config_init(&config);
    kvp_config_init(&cache);
    kvp_sched_config_init(&sched);
    params.n_ctx =
        options->ctx_size != 0 ? options->ctx_size : (uint32_t)llama_model_n_ctx_train(model);
    cache.max_namespaces = options->max_tenants;
    /* So that what is cached can be listed, and told as it changes. */
    cache.max_events = options->publish != NULL ? (uint32_t)KVPI_PUBLISH_EVENTS : (uint32_t)EVENTS;
    if (options->cache_disk != NULL) {
        cache.max_loads = KVPI_DISK_LOADS;
        sched.max_loading = options->max_queue;
    }
    config.block_tokens = options->block_tokens;
    config.max_running = options->parallel;
    config.max_requests = options->max_queue;
    config.host_blocks = host_blocks;
    if (config.stretch_tokens > params.n_ctx / 4)
        config.stretch_tokens = params.n_ctx / 4;
    config.idle_cells = options->idle_cells;
    sched.max_samples = options->max_queue + 4 * options->parallel;
    if (sched.max_tries > options->max_queue)
        sched.max_tries = options->max_queue;
    config.arena_tokens = ARENA_TOKENS;
    config.cache = &cache;
    config.sched = &sched;
    const kvp_status status = kvp_llama_create(&config, model, &params, &loop->engine, why);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && status == KVP_E_ARG; i++)
        if (strcmp(why->field, names[i].field) == 0)
            (void)snprintf(why->field, sizeof why->field, "%s", names[i].option);
    return status;
}

int kvpi_make_engine(kvpi_loop *loop, struct llama_model *model, kvp_why *out_why)
{
    uint32_t host_blocks;
    if (load_adapter(loop, model, out_why) != 0 ||
        count_host_blocks(loop->options, model, &host_blocks, out_why) != 0 ||
        create(loop, model, host_blocks, out_why) != KVP_OK || set_adapter(loop, out_why) != 0)
        return -1;
    loop->cache = kvp_llama_cache(loop->engine);
    loop->sched = kvp_llama_sched(loop->engine);
    if (kvpi_restart_identify(loop, out_why) != 0 ||
        kvpi_cache_disk_open(loop->engine, loop->options, loop->identity, out_why) != 0)
        return -1;
    return set_limits(loop);
}

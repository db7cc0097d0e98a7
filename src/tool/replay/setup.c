/* Owns the way from options to numbers: how many blocks there are, and how long steps take.
 *
 *   blocks   --blocks
 *            else --memory / bytes of a block
 *            else, with a model, what its weights and overhead leave of the accelerator's memory,
 *            as `kvpager size` counts it
 *            else a quarter of a million tokens: enough to show hits, few enough for evictions
 *   slots    of a model with recurrent state: --state-slots
 *            else those that `kvpager size` counts for the same memory, or for those blocks
 *            on the host: --host-state-slots, else one for each sequence that fills --host-memory,
 *            or those blocks; such a sequence keeps no checkpoints
 *   host     --host-blocks, --host-memory; with a store 4 GiB, at most as many blocks as the device
 *   groups   with a model, those of `kvpager size`: a block is of one group (size.c)
 */
#include "tool/replay/setup.h"

#include <inttypes.h>

#include "tool/tool.h"

#define DEFAULT_CAPACITY_TOKENS 262144u
#define DEFAULT_HOST_BYTES      (UINT64_C(4) << 30) /* KV of the host is real beside a real store */

static void set_groups(const kvpi_size *size, kvpi_replay_options *replay)
{
    replay->n_groups = 0;
    for (uint32_t i = 0; i < size->n_groups; i++)
        for (uint32_t k = 0; k < size->groups[i].n_rows; k++)
            replay->groups[replay->n_groups++] = (kvp_group){
                size->groups[i].chunked ? KVP_CHUNKED : 0, (uint32_t)size->groups[i].window_tokens,
                (uint32_t)size->groups[i].block_tokens};
}

/* What the roofline does not time; NULL: nothing. */
static const char *beyond_roofline(const kvpi_model *model)
{
    if (kvpi_models_layers(model, KVPI_KEEPS_STATE) > 0)
        return "recurrent state";
    if (kvpi_models_layers(model, KVPI_KEEPS_INPUTS) > 0)
        return "entries of several tokens";
    return kvpi_models_layers(model, KVPI_KEEPS_INDEX) > 0 ? "indexers" : NULL;
}

/* A block has whole entries, and so has a unit. */
static int set_tokens(const kvpi_args *args, kvpi_replay_args *options, kvpi_replay_setup *out)
{
    kvpi_replay_options *replay = &options->load.replay;
    const uint64_t entry = kvpi_models_longest_entry(&out->model);
    replay->block_tokens = out->block_tokens = options->model.size.block_tokens;
    if (!kvpi_args_given(args, "--unit-tokens"))
        replay->unit_tokens = replay->block_tokens;
    if (replay->unit_tokens % entry == 0)
        return TOOL_OK;
    return kvpi_args_usage(args,
                           "--unit-tokens is %" PRIu64 ", and %s keeps an entry for %" PRIu64
                           " tokens: expected a multiple of %" PRIu64,
                           replay->unit_tokens, out->model.name, entry, entry);
}

static int read_model(const kvpi_args *args, kvpi_replay_args *options, kvpi_replay_setup *out)
{
    kvpi_model_args *model = &options->model;
    bool needs_room = options->load.replay.blocks == 0 && options->memory_bytes == 0;
    bool has_roofline = !options->sequential && out->step.is_roofline;
    bool needs_weights = needs_room || has_roofline;
    model->size.block_tokens = options->load.replay.block_tokens;
    if (!needs_weights)
        model->size.memory_bytes = 0;
    int status = kvpi_model_args_find(args, model, &out->model);
    const char *strange = status == TOOL_OK ? beyond_roofline(&out->model) : NULL;
    if (strange != NULL && has_roofline)
        return kvpi_tool_fail("replay",
                              "%s has %s, which the roofline does not know: give rates, such as "
                              "--prompt-token-ns, or --sequential",
                              out->model.name, strange);
    if (status == TOOL_OK)
        status = kvpi_model_args_check(args, needs_weights, has_roofline, &out->model, model);
    if (status != TOOL_OK)
        return status;
    if (kvpi_size_count(&out->model, &model->size, &out->size) != 0 && needs_room)
        return kvpi_model_args_fail_full(args, &out->model, model, &out->size);
    if (has_roofline)
        out->step.roofline = kvpi_step_roofline_of(&out->model, &model->size, &out->size,
                                                   model->device, &options->shares);
    if (set_tokens(args, options, out) != TOOL_OK)
        return TOOL_USAGE;
    out->token_bytes = out->size.pool_block_bytes / model->size.block_tokens;
    set_groups(&out->size, &options->load.replay);
    return TOOL_OK;
}

/* Gives the blocks that `bytes` are, named by the option that gave them. */
static int blocks_of(const kvpi_args *args, const char *option, uint64_t bytes,
                     const kvpi_replay_setup *setup, uint64_t *blocks)
{
    if (setup->token_bytes == 0)
        return kvpi_args_usage(args, "%s needs --kv-bytes-per-token", option);
    uint64_t n = bytes / setup->token_bytes / setup->block_tokens;
    if (n < 1 || n > KVPI_REPLAY_MAX_BLOCKS)
        return kvpi_args_usage(args,
                               "%s makes %" PRIu64 " blocks of %" PRIu64 " tokens with %" PRIu64
                               " bytes each, expected 1 to %" PRIu64,
                               option, n, setup->block_tokens, setup->token_bytes,
                               KVPI_REPLAY_MAX_BLOCKS);
    *blocks = n;
    return TOOL_OK;
}

/* Shares --memory, or what the device has for KV, between blocks and states. */
static int share_states(const kvpi_args *args, const kvpi_replay_args *options,
                        kvpi_replay_setup *setup, uint64_t *blocks)
{
    uint64_t bytes = options->memory_bytes != 0 ? options->memory_bytes : setup->size.kv_bytes;
    if (kvpi_size_share(&options->model.size, bytes, &setup->size) != 0 ||
        setup->size.pool_blocks > KVPI_REPLAY_MAX_BLOCKS)
        return kvpi_args_usage(args,
                               "%s has no room for the states of a sequence and blocks besides",
                               options->memory_bytes != 0 ? "--memory" : "--device");
    *blocks = setup->size.pool_blocks;
    return TOOL_OK;
}

static int check_states(const kvpi_args *args, const kvpi_replay_args *options,
                        const kvpi_replay_setup *setup)
{
    const kvpi_replay_options *replay = &options->load.replay;
    bool has_states = setup->size.state_bytes > 0;
    if (replay->state_slots > 0 && !has_states)
        return kvpi_args_usage(args, "--state-slots needs a model with recurrent state");
    if (replay->host_state_slots > 0 && !has_states)
        return kvpi_args_usage(args, "--host-state-slots needs a model with recurrent state");
    if (has_states && replay->keep_evicted == KVP_EVICTED_KEEP_ONCE)
        return kvpi_tool_fail("replay",
                              "--keep-evicted once is for models without recurrent state");
    return TOOL_OK;
}

/* Of a replay with a store, which loads into the host tier. */
static uint64_t default_host_blocks(const kvpi_replay_options *replay,
                                    const kvpi_replay_setup *setup)
{
    uint64_t blocks = DEFAULT_HOST_BYTES / setup->token_bytes / setup->block_tokens;
    if (blocks > replay->blocks)
        blocks = replay->blocks;
    return blocks > 0 ? blocks : 1;
}

/* A sequence on the host has its state there, and no checkpoint. */
static int count_host(const kvpi_args *args, kvpi_replay_args *options,
                      const kvpi_replay_setup *setup)
{
    kvpi_replay_options *replay = &options->load.replay;
    kvpi_size_options sequence = options->model.size;
    kvpi_size host = setup->size;
    if (replay->host_blocks == 0 && options->host_memory_bytes == 0 && replay->store.url != NULL)
        replay->host_blocks = default_host_blocks(replay, setup);
    if (replay->host_blocks == 0 && options->host_memory_bytes == 0)
        return TOOL_OK;
    if (host.state_bytes == 0)
        return options->host_memory_bytes == 0
                   ? TOOL_OK
                   : blocks_of(args, "--host-memory", options->host_memory_bytes, setup,
                               &replay->host_blocks);
    host.sequence_slots = 1;
    sequence.state_slots = replay->host_state_slots;
    if (options->host_memory_bytes == 0) {
        kvpi_size_fill(&sequence, replay->host_blocks, &host);
    } else if (kvpi_size_share(&sequence, options->host_memory_bytes, &host) != 0 ||
               host.pool_blocks > KVPI_REPLAY_MAX_BLOCKS)
        return kvpi_args_usage(args, "--host-memory has no room for a state and blocks besides");
    replay->host_blocks = host.pool_blocks;
    replay->host_state_slots = host.state_slots;
    return TOOL_OK;
}

static int count_blocks(const kvpi_args *args, kvpi_replay_args *options, kvpi_replay_setup *setup)
{
    uint64_t *blocks = &options->load.replay.blocks;
    int status = check_states(args, options, setup);
    if (status != TOOL_OK)
        return status;
    options->model.size.state_slots = options->load.replay.state_slots;
    if (*blocks == 0 && setup->size.state_bytes > 0)
        status = share_states(args, options, setup, blocks);
    else if (options->memory_bytes != 0)
        status = blocks_of(args, "--memory", options->memory_bytes, setup, blocks);
    else if (*blocks == 0 && options->has_model)
        status = blocks_of(args, "--device", setup->size.kv_bytes, setup, blocks);
    else if (*blocks == 0)
        *blocks = DEFAULT_CAPACITY_TOKENS / setup->block_tokens;
    return status == TOOL_OK ? count_host(args, options, setup) : status;
}

/* The report multiplies them. */
static int check_bytes(const kvpi_args *args, const kvpi_replay_args *options,
                       const kvpi_replay_setup *setup)
{
    uint64_t blocks = options->load.replay.blocks, host = options->load.replay.host_blocks;
    uint64_t tokens = (blocks > host ? blocks : host) * setup->block_tokens;
    if (tokens == 0 || setup->token_bytes <= INT64_MAX / tokens)
        return TOOL_OK;
    return kvpi_args_usage(args, "%s more than 2^63 bytes of KV",
                           options->kv_bytes_per_token != 0 ? "--kv-bytes-per-token makes"
                                                            : "--blocks and --host-blocks make");
}

static int check_policy(const kvpi_replay_args *options)
{
    const kvpi_replay_options *replay = &options->load.replay;
    bool learned = replay->policy == KVP_POLICY_LEARNED || options->policies.n > 1;
    if (learned &&
        (replay->n_groups > 1 || replay->groups[0].recent_tokens > 0 || replay->state_slots > 0))
        return kvpi_tool_fail("replay",
                              "--policy learned is for models whose layers keep all tokens");
    return TOOL_OK;
}

/* A place takes a window's blocks of each group: one in so many windows adds little, and hits lose
 * half as much at most. */
#define WINDOWS_A_PLACE 32u

static int set_retained(const kvpi_args *args, kvpi_replay_options *replay)
{
    uint64_t window = 0;
    for (uint32_t g = 0; g < replay->n_groups; g++)
        window =
            replay->groups[g].recent_tokens > window ? replay->groups[g].recent_tokens : window;
    if (replay->retain_tokens != 0 && window == 0)
        return kvpi_args_usage(args, "--retain-tokens is for models with windows");
    if (!kvpi_args_given(args, "--retain-tokens")) {
        uint64_t units = (WINDOWS_A_PLACE * window + replay->unit_tokens - 1) / replay->unit_tokens;
        uint64_t place = units * replay->unit_tokens;
        replay->retain_tokens = place <= INT32_MAX ? (uint32_t)place : KVP_RETAIN_PROMPTS;
    }
    if (replay->retain_tokens != KVP_RETAIN_PROMPTS &&
        replay->retain_tokens % replay->unit_tokens != 0)
        return kvpi_args_usage(
            args, "--retain-tokens is %" PRIu32 ", expected a multiple of --unit-tokens, %" PRIu64,
            replay->retain_tokens, replay->unit_tokens);
    return TOOL_OK;
}

/* Of a window a store has what a hit at a record's end needs: what was computed up to there must be
 * reported then. A scheduler's chunks do not end there, nor those that end with states. */
static int check_store(const kvpi_args *args, kvpi_replay_args *options,
                       const kvpi_replay_setup *setup)
{
    kvpi_replay_options *replay = &options->load.replay;
    if (replay->store.url == NULL)
        return TOOL_OK;
    const bool has_windows = replay->n_groups > 1 || replay->groups[0].recent_tokens > 0;
    if (has_windows && (!options->sequential || setup->size.state_bytes > 0))
        return kvpi_tool_fail("replay", "a store is for models whose layers keep all tokens; with "
                                        "--sequential also for others without recurrent state");
    if (has_windows && (options->why != NULL || options->report != NULL))
        return kvpi_args_usage(args, "%s and a store for a model with windows exclude each other",
                               options->why != NULL ? "--why" : "--report");
    replay->store.block_bytes = setup->token_bytes * setup->block_tokens;
    replay->store.state_bytes = setup->size.state_bytes;
    if (replay->store.block_bytes <= INT32_MAX && replay->store.state_bytes <= INT32_MAX)
        return TOOL_OK;
    return kvpi_args_usage(args, "a %s, too many for a store",
                           replay->store.block_bytes > INT32_MAX
                               ? "block has more than 2^31 bytes of KV"
                               : "state has more than 2^31 bytes");
}

/* What the blocks and slots hold. Slots that a memory was shared for are as many as they are. */
static void fill(kvpi_replay_args *options, kvpi_replay_setup *out)
{
    kvpi_size_options *size = &options->model.size;
    if (size->state_slots == 0)
        size->state_slots = out->size.state_slots;
    kvpi_size_fill(size, options->load.replay.blocks, &out->size);
    options->load.replay.state_slots = out->size.state_slots;
    if (out->size.state_bytes > 0)
        out->step.state_tokens = (double)out->size.state_bytes / (double)out->token_bytes;
}

int kvpi_replay_setup_make(const kvpi_args *args, kvpi_replay_args *options, kvpi_replay_setup *out)
{
    *out = (kvpi_replay_setup){.step = options->step,
                               .token_bytes = options->kv_bytes_per_token,
                               .block_tokens = options->load.replay.block_tokens};
    options->load.model = &out->step;
    int status = TOOL_OK;
    if (options->has_model)
        status = read_model(args, options, out);
    if (status == TOOL_OK)
        status = count_blocks(args, options, out);
    if (status == TOOL_OK && options->has_model)
        fill(options, out);
    if (status == TOOL_OK)
        status = check_bytes(args, options, out);
    status = status == TOOL_OK ? check_policy(options) : status;
    status = status == TOOL_OK ? set_retained(args, &options->load.replay) : status;
    return status == TOOL_OK ? check_store(args, options, out) : status;
}

kvpi_load_setting kvpi_replay_setup_setting(const kvpi_replay_setup *setup,
                                            const kvpi_replay_args *options)
{
    const kvpi_replay_options *replay = &options->load.replay;
    return (kvpi_load_setting){.step_model = &setup->step,
                               .model = &setup->model,
                               .device = options->model.device,
                               .size_options = &options->model.size,
                               .shares = &options->shares,
                               .speedup_milli = options->load.speedup_milli,
                               .block_tokens = replay->block_tokens,
                               .unit_tokens = replay->unit_tokens,
                               .retain_tokens = replay->retain_tokens,
                               .blocks = replay->blocks,
                               .host_blocks = replay->host_blocks,
                               .size = options->has_model ? &setup->size : NULL,
                               .token_bytes = setup->token_bytes,
                               .seed = replay->trace.key.seed,
                               .keep_evicted = replay->keep_evicted,
                               .prefix_cache = replay->prefix_cache,
                               .output = replay->trace.output};
}

/* The files of --snapshot-in and --snapshot-out. One that could not be written is an error, and
 * what was there stays; one that could not be read to its end, or is damaged, restores what is
 * whole, and the report says how much that is.
 */
#include "tool/replay/replay_snapshot.h"

#include <stdio.h>
#include <string.h>

#include "tool/tool.h"
#include "tool/input/input.h"

static kvp_snapshot_options options_of(const kvpi_replay_snapshot *snapshot)
{
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    options.model = snapshot->model;
    options.model_bytes = (uint32_t)strlen(snapshot->model);
    return options;
}

static int read_bytes(void *context, void *out, size_t capacity, size_t *out_n)
{
    *out_n = fread(out, 1, capacity, context);
    return ferror((FILE *)context) != 0;
}

/* A number of a replay, and of the one that saved. */
typedef struct setting {
    const char *option;
    unsigned long long here, there;
} setting;

static int fail_setting(const char *path, const setting *of)
{
    return kvpi_tool_fail("replay", "%s: saved with %s %llu, and this replay has %llu", path,
                          of->option, of->there, of->here);
}

/* Reads the head of the file once more, and names the first option that differs. */
static int fail_mismatch(const kvp_config *config, const kvpi_replay_snapshot *snapshot)
{
    kvp_snapshot_info info;
    kvpi_input input;
    char model[sizeof info.model + 1] = "";
    setting here[2] = {{"--trace-block", 0, 0}, {"--seed", 0, 0}};
    if (!kvpi_input_open(&input, snapshot->path, true))
        return kvpi_tool_fail("replay", "%s: %s", snapshot->path, input.why);
    const kvp_source source = {input.file, read_bytes};
    const kvp_status status = kvp_snapshot_peek(&source, &info);
    kvpi_input_close(&input);
    if (status == KVP_OK) {
        memcpy(model, info.model, info.model_bytes);
        const setting sizes[] = {{"--block-tokens", config->block_tokens, info.block_tokens},
                                 {"--unit-tokens", config->unit_tokens, info.unit_tokens},
                                 {"--blocks", config->n_blocks - 1, info.n_blocks - 1},
                                 {"--host-blocks", config->host_blocks - (config->host_blocks > 0),
                                  info.host_blocks - (info.host_blocks > 0)},
                                 {"--state-slots", config->state_slots - (config->state_slots > 0),
                                  info.state_slots - (info.state_slots > 0)}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (sizes[i].here != sizes[i].there)
                return fail_setting(snapshot->path, &sizes[i]);
    }
    /* NOLINTBEGIN(cert-err34-c): what is no number is another model, and named as that */
    if (sscanf(model, KVPI_REPLAY_SNAPSHOT_MODEL, &here[0].there, &here[1].there) == 2 &&
        sscanf(snapshot->model, KVPI_REPLAY_SNAPSHOT_MODEL, &here[0].here, &here[1].here) == 2)
        /* NOLINTEND(cert-err34-c) */
        for (size_t i = 0; i < 2; i++)
            if (here[i].here != here[i].there)
                return fail_setting(snapshot->path, &here[i]);
    return kvpi_tool_fail("replay", "%s: %s", snapshot->path,
                          strncmp(model, "replay,", 7) == 0
                              ? "saved with a --model whose layers keep other tokens"
                              : "not saved by 'kvpager replay --snapshot-out'");
}

int kvpi_replay_snapshot_load(kvp_cache *cache, const kvp_config *config,
                              kvpi_replay_snapshot *snapshot)
{
    const kvp_snapshot_options options = options_of(snapshot);
    kvpi_input input;
    if (!kvpi_input_open(&input, snapshot->path, true))
        return kvpi_tool_fail("replay", "%s: %s", snapshot->path, input.why);
    const kvp_source source = {input.file, read_bytes};
    const kvp_status status = kvp_snapshot_load(cache, &options, &source, &snapshot->report);
    kvpi_input_close(&input);
    if (status == KVP_E_MISMATCH)
        return fail_mismatch(config, snapshot);
    return status == KVP_OK
               ? TOOL_OK
               : kvpi_tool_fail("replay", "%s: %s", snapshot->path, kvp_status_text(status));
}

int kvpi_replay_snapshot_save(kvp_cache *cache, const kvpi_replay_snapshot *snapshot)
{
    const kvp_snapshot_options options = options_of(snapshot);
    int error = 0;
    const kvp_status status = kvp_snapshot_save_file(cache, &options, snapshot->path, &error);
    if (status == KVP_OK)
        return TOOL_OK;
    return kvpi_tool_fail("replay", "cannot write %s: %s", snapshot->path,
                          status == KVP_E_IO ? strerror(error) : kvp_status_text(status));
}

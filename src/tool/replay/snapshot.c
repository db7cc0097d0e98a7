/* The files of --snapshot-in and --snapshot-out. One that could not be written is an error, and
 * what was there stays; one that could not be read to its end, or is damaged, restores what is
 * whole, and the report says how much that is.
 */
#include "tool/replay/snapshot.h"

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

int kvpi_replay_snapshot_load(kvp_cache *cache, kvpi_replay_snapshot *snapshot)
{
    const kvp_snapshot_options options = options_of(snapshot);
    kvpi_input input;
    if (!kvpi_input_open(&input, snapshot->path, true))
        return kvpi_tool_fail("replay", "%s: %s", snapshot->path, input.why);
    const kvp_source source = {input.file, read_bytes};
    const kvp_status status = kvp_snapshot_load(cache, &options, &source, &snapshot->report);
    kvpi_input_close(&input);
    if (status == KVP_E_MISMATCH)
        return kvpi_tool_fail("replay",
                              "%s: of a replay with another --block-tokens, --unit-tokens, "
                              "--blocks, --state-slots, --host-blocks, --trace-block or --seed",
                              snapshot->path);
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

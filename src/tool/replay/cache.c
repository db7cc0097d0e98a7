/* Owns the life of a replay's cache: created if the machine can hold it, recorded from its first
 * call, and destroyed. A log is only complete if every byte of it was written.
 */
#include "tool/replay/cache.h"

#include <errno.h>
#include <string.h>

#include "tool/tool.h"
#include "tool/machine/machine.h"

int kvpi_replay_cache_fail(const char *call, kvp_status status)
{
    return kvpi_tool_fail("replay", "%s: %s", call, kvp_status_text(status));
}

/* Creating touches all of the bookkeeping, and systems that overcommit would kill the process. */
static int refuse_too_large(const kvp_config *config)
{
    size_t needed = 0;
    kvp_why why;
    if (kvp_config_check(config, &why) != KVP_OK)
        return kvpi_tool_fail("replay", "the cache: %s", why.text);
    kvp_status status = kvp_cache_bytes(config, &needed);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("sizing the cache", status);
    const uint64_t memory_bytes = kvpi_machine_memory_bytes();
    if (memory_bytes == 0 || needed <= memory_bytes)
        return TOOL_OK;
    return kvpi_tool_fail("replay",
                          "%u blocks need %zu MiB of bookkeeping, more than the machine has",
                          config->n_blocks - 1, needed >> 20);
}

static int create(const kvp_config *config, kvpi_replay_cache *out)
{
    if (refuse_too_large(config) != TOOL_OK)
        return TOOL_FAILED;
    kvp_status status = kvp_cache_create(config, NULL, 0, &out->cache);
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("creating the cache", status);
}

static int open_namespace(kvpi_replay_cache *cache)
{
    static const char name[] = KVPI_REPLAY_CACHE_NAME;
    kvp_status status = kvp_ns_open(cache->cache, name, sizeof name - 1, &cache->ns);
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("opening the namespace", status);
}

static int write_log(void *context, const void *bytes, size_t n_bytes)
{
    return fwrite(bytes, 1, n_bytes, context) == n_bytes ? 0 : -1;
}

static int start_log(kvpi_replay_cache *cache)
{
    const char *path = cache->path;
    if (path == NULL)
        return TOOL_OK;
    cache->log = fopen(path, "wb");
    if (cache->log == NULL)
        return kvpi_tool_fail("replay", "cannot write %s: %s", path, strerror(errno));
    kvp_sink sink = {.context = cache->log, .write = write_log};
    kvp_status status = kvp_cache_record_start(cache->cache, &sink);
    return status == KVP_OK ? TOOL_OK
                            : kvpi_replay_cache_fail("starting the operation log", status);
}

/* The file is closed whatever happened; it is only complete if all of this worked. */
static int stop_log(kvpi_replay_cache *cache)
{
    if (cache->log == NULL)
        return TOOL_OK;
    errno = 0;
    bool written = kvp_cache_record_stop(cache->cache) == KVP_OK;
    written = fclose(cache->log) == 0 && written;
    cache->log = NULL;
    return written ? TOOL_OK
                   : kvpi_tool_fail("replay", "cannot write %s: %s", cache->path,
                                    errno != 0 ? strerror(errno) : "the log is incomplete");
}

int kvpi_replay_cache_open(const kvp_config *config, const char *record,
                           kvpi_replay_snapshot *restore, kvpi_replay_cache *out)
{
    *out = (kvpi_replay_cache){.path = record};
    int status = create(config, out);
    if (status == TOOL_OK)
        status = start_log(out);
    if (status == TOOL_OK && restore != NULL && restore->path != NULL)
        status = kvpi_replay_snapshot_load(out->cache, config, restore);
    return status == TOOL_OK ? open_namespace(out) : status;
}

int kvpi_replay_cache_close(kvpi_replay_cache *cache, int status)
{
    int log_status = stop_log(cache);
    kvp_cache_destroy(cache->cache);
    cache->cache = NULL;
    return status != TOOL_OK ? status : log_status;
}

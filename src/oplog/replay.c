/* replay: runs a log on a new cache. The comparison is complete by construction: the new run
 * is recorded too, and each of its records must have the bytes that the log has.
 */
#include "oplog/replay.h"

#include <stdlib.h>
#include <string.h>

static int grow_replay(struct kvpi_oplog_memory *memory, size_t n_bytes)
{
    size_t capacity = memory->capacity < 4096 ? 4096 : memory->capacity;
    while (capacity - memory->n_bytes < n_bytes) {
        if (capacity > SIZE_MAX / 2)
            return 0;
        capacity *= 2;
    }
    uint8_t *bytes = realloc(memory->bytes, capacity);
    if (bytes == NULL)
        return 0;
    memory->bytes = bytes;
    memory->capacity = capacity;
    return 1;
}

int kvpi_oplog_memory_write(void *context, const void *bytes, size_t n_bytes)
{
    struct kvpi_oplog_memory *memory = context;
    if (memory->capacity - memory->n_bytes < n_bytes && !grow_replay(memory, n_bytes)) {
        memory->failed = 1;
        return 1;
    }
    memcpy(memory->bytes + memory->n_bytes, bytes, n_bytes);
    memory->n_bytes += n_bytes;
    return 0;
}

kvp_status kvpi_oplog_replay_begin(struct kvpi_oplog_replay *replay, const kvp_config *config)
{
    memset(replay, 0, sizeof *replay);
    kvp_status status = kvp_cache_create(config, NULL, 0, &replay->cache);
    if (status != KVP_OK)
        return status;
    kvp_sink sink = {&replay->made, kvpi_oplog_memory_write};
    status = kvp_cache_record_start(replay->cache, &sink);
    if (replay->made.failed != 0)
        status = KVP_E_NO_MEMORY;
    if (status != KVP_OK)
        kvpi_oplog_replay_end(replay);
    return status;
}

void kvpi_oplog_replay_end(struct kvpi_oplog_replay *replay)
{
    kvp_cache_destroy(replay->cache);
    kvp_outcome_free(&replay->outcome);
    free(replay->made.bytes);
    memset(replay, 0, sizeof *replay);
}

/* Audits, without leaving a record of it. */
static kvp_status replay_audit(struct kvpi_oplog_replay *replay, int level)
{
    if (level <= 0)
        return KVP_OK;
    size_t n_bytes = replay->made.n_bytes;
    kvp_status status = kvp_cache_check(replay->cache, level, &replay->violation);
    replay->made.n_bytes = n_bytes;
    return status;
}

kvp_status kvpi_oplog_replay_call(struct kvpi_oplog_replay *replay, const kvp_call *call,
                                  int check_level)
{
    replay->made.n_bytes = 0;
    kvp_status status = kvp_oplog_call_run(replay->cache, call, &replay->outcome);
    if (status == KVP_OK)
        status = replay_audit(replay, check_level);
    return replay->made.failed != 0 ? KVP_E_NO_MEMORY : status;
}

kvp_status kvpi_oplog_replay_record(struct kvpi_oplog_replay *replay, const kvp_record *record,
                                    int check_level)
{
    kvp_status status = kvpi_oplog_replay_call(replay, &record->call, check_level);
    if (status != KVP_OK && status != KVP_E_CORRUPT)
        return status == KVP_E_ARG ? KVP_E_MISMATCH : status;
    const struct kvpi_oplog_memory *made = &replay->made;
    if (made->n_bytes != record->n_bytes ||
        memcmp(made->bytes, record->bytes, record->n_bytes) != 0)
        return KVP_E_MISMATCH;
    return status;
}

kvp_status kvp_oplog_replay(kvp_oplog *log, int check_level, uint64_t *out_index)
{
    struct kvpi_oplog_replay replay;
    kvp_config config;
    if (out_index == NULL || check_level < 0 || check_level > 3)
        return KVP_E_ARG;
    kvp_status status = kvp_oplog_config(log, &config);
    if (status == KVP_OK)
        status = kvpi_oplog_replay_begin(&replay, &config);
    if (status != KVP_OK)
        return status;
    kvp_oplog_rewind(log);
    uint64_t index = 0;
    for (;; index++) {
        kvp_record record;
        int end;
        status = kvp_oplog_next(log, &record, &end);
        if (status != KVP_OK || end != 0)
            break;
        status = kvpi_oplog_replay_record(&replay, &record, check_level);
        if (status != KVP_OK)
            break;
    }
    kvpi_oplog_replay_end(&replay);
    if (status != KVP_OK)
        *out_index = index;
    return status;
}

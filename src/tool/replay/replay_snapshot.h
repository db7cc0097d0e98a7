/* What a replay leaves in its cache, kept in a file for a replay that goes on. */
#ifndef KVPI_REPLAY_SNAPSHOT_H
#define KVPI_REPLAY_SNAPSHOT_H

#include <kvpager/all.h>

typedef struct kvpi_replay_snapshot {
    const char *path;           /* NULL: none */
    char model[64];             /* what token values are made from; compared */
    kvp_snapshot_report report; /* of a load */
} kvpi_replay_snapshot;

/* How `model` is written, and read again. */
#define KVPI_REPLAY_SNAPSHOT_MODEL "replay, trace block %llu, seed %llu"

/* Restore into a new cache, made with `config`. Returns: TOOL_OK; TOOL_FAILED, a message was
 * printed: which option differs, if one does */
int kvpi_replay_snapshot_load(kvp_cache *cache, const kvp_config *config,
                              kvpi_replay_snapshot *snapshot);

/* Save, without KV: there is none. Returns: TOOL_OK; TOOL_FAILED, a message was printed */
int kvpi_replay_snapshot_save(kvp_cache *cache, const kvpi_replay_snapshot *snapshot);

#endif

/* The cache that a replay drives, and its operation log. */
#ifndef KVPI_REPLAY_CACHE_H
#define KVPI_REPLAY_CACHE_H

#include <kvpager/all.h>
#include <stdio.h>

#include "tool/replay/replay_snapshot.h"

/* Of the namespace: part of every content's hash. */
#define KVPI_REPLAY_CACHE_NAME "replay"

typedef struct kvpi_replay_cache {
    kvp_cache *cache;
    kvp_ns ns;
    FILE *log;        /* NULL: nothing is recorded */
    const char *path; /* of the log */
} kvpi_replay_cache;

/* Create a cache with one namespace, and start recording it where `record` names a file; or restore
 * what a snapshot holds into it first.
 *
 * Refuses, before anything is touched, what needs more bookkeeping than the machine has memory.
 *
 * Takes:   restore  NULL, or path NULL: nothing is restored
 * Gives:   out      on failure too: close it
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_replay_cache_open(const kvp_config *config, const char *record,
                           kvpi_replay_snapshot *restore, kvpi_replay_cache *out);

/* Finish the log and destroy the cache.
 *
 * Takes:   status   what the replay came to so far
 * Returns: `status` if that is not TOOL_OK, else whether the log is complete
 */
int kvpi_replay_cache_close(kvpi_replay_cache *cache, int status);

/* Print that a call failed.
 *
 * Returns: TOOL_FAILED
 */
int kvpi_replay_cache_fail(const char *call, kvp_status status);

#endif

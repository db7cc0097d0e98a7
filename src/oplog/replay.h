/* replay: makes a log's calls one by one on a new cache, which is recorded. */
#ifndef KVPI_OPLOG_REPLAY_H
#define KVPI_OPLOG_REPLAY_H

#include <kvpager/oplog.h>

struct kvpi_oplog_memory {
    uint8_t *bytes;
    size_t n_bytes;
    size_t capacity;
    int failed; /* the system gave no memory: bytes are missing */
};

struct kvpi_oplog_replay {
    kvp_cache *cache;
    struct kvpi_oplog_memory made; /* the header, then the record of the last call made */
    kvp_outcome outcome;           /* of the last call made */
    kvp_violation violation;       /* after KVP_E_CORRUPT */
};

/* A kvp_sink that appends to a kvpi_oplog_memory. */
int kvpi_oplog_memory_write(void *context, const void *bytes, size_t n_bytes);

/* Create the cache and begin recording: `made` holds the header.
 * Takes: replay is overwritten. Returns: KVP_OK, or what kvp_cache_create or the recording says;
 * then there is nothing to end. */
kvp_status kvpi_oplog_replay_begin(struct kvpi_oplog_replay *replay, const kvp_config *config);

/* Make a call; `made` holds its record, or nothing when the cache recorded none.
 * Takes:   check_level  0..3: kvp_cache_check afterwards
 * Returns: KVP_OK; KVP_E_CORRUPT with `violation`; KVP_E_ARG, KVP_E_NO_MEMORY: not made */
kvp_status kvpi_oplog_replay_call(struct kvpi_oplog_replay *replay, const kvp_call *call,
                                  int check_level);

/* Make the call of a record and compare what was recorded with the record.
 * Returns: also KVP_E_MISMATCH, which counts before KVP_E_CORRUPT */
kvp_status kvpi_oplog_replay_record(struct kvpi_oplog_replay *replay, const kvp_record *record,
                                    int check_level);

void kvpi_oplog_replay_end(struct kvpi_oplog_replay *replay);

#endif

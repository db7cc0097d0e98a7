/* oplog_drive: random runs of a cache that are recorded, for the tests of logs that run. The seed
 * gives the configuration, the calls and their arguments, right and wrong ones. */
#ifndef TEST_OPLOG_DRIVE_H
#define TEST_OPLOG_DRIVE_H

#include <kvpager/oplog.h>

#include "core/record/record.h"
#include "oplog/replay.h"

enum { OPLOG_DRIVE_CALLS = KVP_CALL_NS_INFO, OPLOG_DRIVE_SEQS = 12 };

struct oplog_driver {
    struct kvpi_oplog_replay replay;
    struct kvpi_oplog_memory log;
    uint64_t random;
    int tiers;
    int overlapped;
    int trees;
    uint64_t ns;
    uint64_t seqs[OPLOG_DRIVE_SEQS]; /* 0: none; also closed ones, now and then */
    uint64_t step;                   /* the newest */
    int32_t tokens[64];
    uint32_t counts[3];
    uint64_t handles[3];
    int32_t parents[64];
    int32_t leaves[3];
    kvp_range range;
    kvp_key key;
    uint32_t n_made[OPLOG_DRIVE_CALLS + 1];
    uint32_t n_ok[OPLOG_DRIVE_CALLS + 1];
    uint32_t n_moves;   /* of all accepts */
    uint32_t n_dropped; /* calls that needed what a window has dropped */
};

/* S = 4, U = 2, 23 blocks, nothing else. */
kvp_config oplog_drive_small(void);

/* Of four seeds two without and two with a host tier and events, one of these with overlapped
 * steps; then four such seeds with windows, groups and trees: seeds 4 to 7, 12 to 15, ... */
kvp_config oplog_drive_config(uint64_t seed);

/* Make a run, with the log in driver->log. End it after use. */
void oplog_drive_run(struct oplog_driver *driver, uint64_t seed, uint32_t n_calls);
void oplog_drive_end(struct oplog_driver *driver);

kvp_oplog *oplog_drive_open(const struct kvpi_oplog_memory *memory);

#endif

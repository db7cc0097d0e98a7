/* oplog_sample: an operation log made by hand, without a cache: one record of every call, every
 * field with a value of its own. For the tests of the log's bytes. */
#ifndef TEST_OPLOG_SAMPLE_H
#define TEST_OPLOG_SAMPLE_H

#include <kvpager/oplog.h>

#include "core/record/record.h"
#include "oplog/replay.h"

#define SAMPLE_CACHE_BITS UINT64_C(0x0123000000000000)

enum {
    SAMPLE_U = 4,
    SAMPLE_CALLS = KVP_CALL_RECLAIM, /* the last number that is recorded */
    SAMPLE_RECORDED = SAMPLE_CALLS - 2,
    SAMPLE_OUTCOMES = 4,
    SAMPLE_EVENTS = 3,
    SAMPLE_GROUPS = 3,
    SAMPLE_MOVES = 2, /* of each group */
    SAMPLE_MAX_MOVES = 5
};

/* What the records say. Handles are those of a cache with SAMPLE_CACHE_BITS. */
extern const int32_t sample_tokens[10];
extern const int32_t sample_uncached_set[3];
extern const kvp_hash sample_hashes[2];
extern const kvp_range sample_ranges[2];
extern const kvp_key sample_keys[2];
extern const kvp_seq sample_seqs[3];
extern const uint32_t sample_counts[3];
extern kvp_status sample_statuses[3];
extern const kvp_ns sample_ns;
extern const kvp_ns_info sample_ns_info;
extern const kvp_open_info sample_open_info;
extern const kvp_admission sample_admission;
extern const kvp_released sample_released;
extern const kvp_swapped sample_swapped;
extern const kvp_load sample_load; /* blocks: sample_tokens */
extern const kvp_loaded sample_loaded;
extern const kvp_mirrored sample_mirrored;
extern const kvp_block_info sample_block_info;
extern const kvp_shortage sample_shortage;
extern const int32_t sample_parents[5];
extern const int32_t sample_leaves[3];
extern const kvp_window sample_window;
extern const kvp_window_info sample_window_info;
extern const kvp_slot_move
    sample_moves[SAMPLE_GROUPS * SAMPLE_MAX_MOVES]; /* of -1: not looked at */
extern const kvp_event sample_events[SAMPLE_EVENTS];
extern const int32_t sample_event_tokens[SAMPLE_EVENTS * SAMPLE_U]; /* -1: not to be looked at */
kvp_config sample_config(void);
kvp_prompt sample_prompt(void);

/* sample_write_all writes every call with each of these. */
extern const kvp_status sample_outcomes[SAMPLE_OUTCOMES];

/* A log that is being recorded into memory; free memory.bytes. */
struct sample_log {
    struct kvpi_recorder recorder;
    struct kvpi_oplog_memory memory;
};

void sample_begin(struct sample_log *log); /* the header */
void sample_end(struct sample_log *log);

/* Write one record: the call `op`, which ended with `status`. */
void sample_write(struct kvpi_recorder *recorder, uint32_t op, kvp_status status);

/* Mix in decisions for every third call, host blocks for the later ones. */
void sample_decide(struct kvpi_recorder *recorder, uint32_t op);

/* A whole log: every call with every outcome. */
void sample_write_all(struct sample_log *log);

kvp_oplog *sample_open(const void *bytes, size_t n_bytes);

#endif

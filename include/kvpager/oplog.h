/* kvpager/oplog.h: operation logs. Read, run, compare and shrink what kvp_cache_record_start wrote.
 *
 * A log is the cache's configuration followed by one record for every call on the cache, with
 * arguments and results. Run on a new cache of the same configuration, it gives the same ids,
 * victims and statuses, bit for bit. This holds at any check level and on any machine. A record
 * that differs is a defect, or another version.
 *
 * Not recorded are calls refused for a NULL pointer or a wrong struct_size, destroy, record_start,
 * recover and checks (kvp_prompt_check). Reads that may run beside a change are not recorded either
 * (kvp_seq_info_get, kvp_events_read), nor those by which a store looks for work
 * (kvp_cache_cold_end, kvp_block_origin_get, kvp_block_prefix, kvp_block_keys), nor those of
 * recurrent state (kvp_seq_state_get, kvp_cache_state_stats_get). Other reads write to a running
 * recording, so they need exclusive access to the cache. Handles in a log are portable: they lack
 * the cache's number, so they are equal in every run.
 *
 * The bytes (little-endian; v = unsigned LEB128 varint; see docs/FORMATS.md):
 *   "kvpops1\n", configuration, records: op (1 byte), arguments, status, results.
 */
#ifndef KVPAGER_OPLOG_H
#define KVPAGER_OPLOG_H

#include "types.h"
#include "cache.h"
#include "drop.h"
#include "recording.h"
#include "events.h"
#include "lend.h"
#include "quotas.h"
#include "steps.h"
#include "swap.h"
#include "windows.h"
#include "states.h"
#include "trees.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every call on a cache that kvp_oplog_call_run makes; 16, 42 and those from 61 on are in no log.
 * Numbers are frozen; append only. X(NAME, number, text) */
#define KVP_CALL_TABLE(X)                                                                          \
    X(NS_OPEN, 1, "ns_open")                                                                       \
    X(NS_CLOSE, 2, "ns_close")                                                                     \
    X(NS_FLUSH, 3, "ns_flush")                                                                     \
    X(MATCH, 4, "match")                                                                           \
    X(OPEN, 5, "seq_open")                                                                         \
    X(EXTEND, 6, "seq_extend")                                                                     \
    X(EXTEND_MANY, 7, "seq_extend_many")                                                           \
    X(FILL, 8, "seq_fill")                                                                         \
    X(FILL_MANY, 9, "seq_fill_many")                                                               \
    X(COMMIT, 10, "seq_commit")                                                                    \
    X(COMMIT_MANY, 11, "seq_commit_many")                                                          \
    X(INVALIDATE, 12, "seq_invalidate")                                                            \
    X(FORK, 13, "seq_fork")                                                                        \
    X(TRUNCATE, 14, "seq_truncate")                                                                \
    X(CLOSE, 15, "seq_close")                                                                      \
    X(SEQ_INFO, 16, "seq_info_get")                                                                \
    X(SEQ_TOKENS, 17, "seq_tokens")                                                                \
    X(SEQ_BLOCK_TOKENS, 18, "seq_block_tokens")                                                    \
    X(ROW, 19, "seq_row")                                                                          \
    X(SLOTS, 20, "seq_slots")                                                                      \
    X(RETAIN, 21, "seq_retain")                                                                    \
    X(UNCACHE, 22, "seq_uncache")                                                                  \
    X(CAN_OPEN, 23, "can_open")                                                                    \
    X(CAN_EXTEND, 24, "can_extend")                                                                \
    X(PLAN_TAKE, 25, "plan_take")                                                                  \
    X(EVICTED, 26, "cache_evicted")                                                                \
    X(BLOCK_INFO, 27, "block_info_get")                                                            \
    X(BLOCK_TOKENS, 28, "block_tokens")                                                            \
    X(STATS, 29, "cache_stats")                                                                    \
    X(SHORTAGE, 30, "cache_shortage")                                                              \
    X(CHECK, 31, "check")                                                                          \
    X(RESET, 32, "cache_reset")                                                                    \
    X(CONFIG, 33, "cache_config")                                                                  \
    X(SWAP_OUT, 34, "seq_swap_out")                                                                \
    X(SWAP_IN, 35, "seq_swap_in")                                                                  \
    X(CAN_SWAP_OUT, 36, "can_swap_out")                                                            \
    X(CAN_SWAP_IN, 37, "can_swap_in")                                                              \
    X(STEP_BEGIN, 38, "step_begin")                                                                \
    X(STEP_COMMIT, 39, "step_commit")                                                              \
    X(STEP_DONE, 40, "step_done")                                                                  \
    X(STEP_FAILED, 41, "step_failed")                                                              \
    X(EVENTS_READ, 42, "events_read")                                                              \
    X(EVENTS_SNAPSHOT, 43, "events_snapshot")                                                      \
    X(WINDOW, 44, "seq_window")                                                                    \
    X(WINDOW_GET, 45, "seq_window_get")                                                            \
    X(EXTEND_TREE, 46, "seq_extend_tree")                                                          \
    X(ACCEPT, 47, "seq_accept")                                                                    \
    X(TREE, 48, "seq_tree")                                                                        \
    X(NS_QUOTA, 49, "ns_quota")                                                                    \
    X(NS_INFO, 50, "ns_info_get")                                                                  \
    X(PLAN_DONE, 51, "plan_done")                                                                  \
    X(MIRROR, 52, "mirror")                                                                        \
    X(BLOCKS_LEND, 53, "blocks_lend")                                                              \
    X(BLOCKS_RETURN, 54, "blocks_return")                                                          \
    X(LOAD_BEGIN, 55, "load_begin")                                                                \
    X(LOAD_DONE, 56, "load_done")                                                                  \
    X(LOAD_CANCEL, 57, "load_cancel")                                                              \
    X(DROP, 58, "cache_drop")                                                                      \
    X(RECLAIM, 59, "cache_reclaim")                                                                \
    X(CHECKPOINT, 60, "seq_checkpoint")                                                            \
    X(COLD_END, 61, "cold_end")                                                                    \
    X(BLOCK_ORIGIN, 62, "block_origin_get")                                                        \
    X(BLOCK_PREFIX, 63, "block_prefix")                                                            \
    X(STATE_GET, 64, "seq_state_get")                                                              \
    X(STATE_STATS, 65, "cache_state_stats")                                                        \
    X(PROMPT_END, 66, "seq_prompt_end")

/* The version of a log's bytes. Logs of another one are KVP_E_VERSION: record again, or run them
 * with the release that wrote them. */
#define KVP_OPLOG_VERSION 1

#define KVP_CALL_ENUM(name, number, text) KVP_CALL_##name = (number),
typedef enum kvp_call_op { KVP_CALL_TABLE(KVP_CALL_ENUM) } kvp_call_op;
#undef KVP_CALL_ENUM

/* The arguments of one call, whatever it is. Fields that the call does not have are zero. Handles
 * are portable bits (kvp_handle_flip). */
typedef struct kvp_call {
    uint32_t op;       /* KVP_CALL_... */
    uint64_t handle;   /* the namespace or sequence: ns_*, match, open, can_open; seq_* */
    uint32_t position; /* from, at, n_tokens of commit and truncate, block_idx, check's level */
    uint32_t count;    /* n_tokens of seq_tokens, slots; ns_quota, cache_reclaim: n_blocks; else the
                          capacity of what is asked for:
                          max_moves of accept, which counts as n_seqs x max_tree_tokens when it
                          is more; mirror, load_begin: spare_blocks */
    uint32_t group;
    uint32_t tier; /* block_info_get, block_tokens, ns_quota, cache_drop; cold_end,
                      block_origin_get, _prefix */
    int32_t block;
    uint32_t reserve_tokens;
    uint32_t flags; /* of the prompt or the batch */
    uint32_t retention;
    uint64_t tag;
    uint64_t number;       /* step_commit, done, failed: the step; events_read: from; plan_done;
                              load_done, load_cancel: the load; cold_end: the cursor's generation */
    kvp_range range;       /* retain, uncache; load_begin: entries */
    uint32_t no_report;    /* invalidate, step_failed: 1 when out_n_seqs was NULL */
    uint32_t with_tokens;  /* events_*, seq_tree: 1 when out_tokens was given */
    uint32_t with_parents; /* seq_tree: 1 when out_parents was given */
    kvp_window window;

    const int32_t *tokens;  /* [n_tokens]; NULL: values not given (extend); mirror, blocks_*,
                               cache_drop: the blocks */
    uint32_t n_tokens;      /* open, match, extend, fill: how many; batches: the sum of counts */
    const int32_t *parents; /* [n_tokens] extend_tree; or NULL */
    const kvp_hash *hashes; /* [n_hashes] or NULL */
    uint32_t n_hashes;
    const kvp_key *keys; /* [n_keys] or NULL */
    uint32_t n_keys;
    const kvp_range *ranges; /* [n_ranges] or NULL: kvp_prompt.uncached */
    uint32_t n_ranges;
    const uint64_t *handles; /* [n_seqs] batches, swaps, accept */
    const uint32_t *counts;  /* [n_seqs] batches: new tokens, or commit positions; NULL: one each */
    const int32_t *leaves;   /* [n_seqs] accept */
    uint32_t n_seqs;
    const uint8_t *name; /* [name_bytes]; load_done: what is whole */
    uint32_t name_bytes;
} kvp_call;

/* The results of one call, whatever it is. Those that the call does not give are zero; arrays are
 * in the outcome's own storage, good until it is used again. */
typedef struct kvp_outcome {
    kvp_status status;
    uint64_t handle; /* new namespace or sequence, portable bits */
    uint64_t number; /* step_begin: the step; step_done: the newest that has taken effect;
                        events_snapshot: of the newest event, also on KVP_E_TOO_SMALL; cold_end:
                        the cursor's generation */
    union {
        kvp_open_info open; /* open, match */
        kvp_released released;
        kvp_swapped swapped;
        kvp_admission admission;
        kvp_seq_info seq; /* .ns in portable bits */
        kvp_block_info block;
        kvp_stats stats;
        kvp_shortage shortage;
        kvp_violation violation;
        kvp_window_info window;
        kvp_ns_info ns;
        kvp_load load; /* load_begin: what is written, except `blocks` */
        kvp_loaded loaded;
        kvp_mirrored mirrored;
        kvp_block_origin origin; /* .ns in portable bits */
        kvp_cold_cursor cursor;
        kvp_state_info state;
        kvp_state_stats state_stats;
        uint64_t room[128];
    } u;
    uint32_t n;          /* entries of the array that the call gives; accept: for each group;
                            cache_drop, cache_reclaim: blocks that lost content; seq_checkpoint:
                            what it did */
    const int32_t *i32;  /* row, tokens; mirror, load_begin: host blocks; statuses of a batch with
                            KVP_BATCH_EACH; with_tokens: those of events, [n x U], 0 where an event
                            has none */
    const int64_t *i64;  /* slots */
    const uint64_t *u64; /* invalidate, step_failed: portable handles */
    const kvp_copy *copies;
    const kvp_evicted *evicted;
    const kvp_event *events;
    const int32_t *parents;     /* tree */
    const kvp_slot_move *moves; /* accept: [n_groups, n] */
    void *storage;              /* kvp_outcome_free */
    size_t storage_bytes;
    const kvp_cold *cold;
} kvp_outcome;

/* Name a call, as in "seq_open"; "?" for a number that is none. Static text. */
KVP_API const char *kvp_oplog_call_name(uint32_t op);

/* Run one call on a cache.
 *
 * Output buffers are no larger than the configuration allows. A larger count cannot succeed: the
 * call refuses it before it writes anything.
 *
 * Takes:   out_outcome  zeroed before its first use; its storage grows as needed
 * Returns: KVP_OK when the call was made (its own status is in the outcome); KVP_E_ARG for an
 *          unknown op, and for arrays that do not fit each other (n_hashes is not n_tokens / U;
 *          n_tokens of a batch is not the sum of its counts); KVP_E_NO_MEMORY */
KVP_API kvp_status kvp_oplog_call_run(kvp_cache *cache, const kvp_call *call,
                                      kvp_outcome *out_outcome);

/* Free an outcome's storage. */
KVP_API void kvp_outcome_free(kvp_outcome *outcome);

/* A log in memory, being read. */
typedef struct kvp_oplog kvp_oplog;

/* Open a log of n_bytes bytes, which stay the caller's and must outlive it.
 * Returns: KVP_OK; KVP_E_FORMAT; KVP_E_VERSION; KVP_E_NO_MEMORY; KVP_E_ARG */
KVP_API kvp_status kvp_oplog_open(const void *bytes, size_t n_bytes, kvp_oplog **out_log);

/* Close a log; its bytes stay the caller's, what was read from it is void. NULL is ignored. */
KVP_API void kvp_oplog_close(kvp_oplog *log);

/* Read the configuration of the recorded cache. uncached_tokens points into the log object.
 * Returns: KVP_OK; KVP_E_ARG. Thread: read. */
KVP_API kvp_status kvp_oplog_config(const kvp_oplog *log, kvp_config *out_config);

/* A record: the call, and where its bytes are. */
typedef struct kvp_record {
    kvp_call call; /* arrays are good until the next read */
    kvp_status status;
    uint64_t index;       /* of the record, from 0 */
    const uint8_t *bytes; /* [n_bytes] the whole record, op first */
    size_t n_bytes;
    size_t n_result_bytes; /* the last ones of them: status and results */
} kvp_record;

/* Read the next record. Gives: out_record; *out_end = 1 and no record at the end of the log.
 * Returns: KVP_OK; KVP_E_FORMAT: damaged or cut here; KVP_E_NO_MEMORY: it is still the next one */
KVP_API kvp_status kvp_oplog_next(kvp_oplog *log, kvp_record *out_record, int *out_end);

/* Begin again at the first record, also after damage. */
KVP_API void kvp_oplog_rewind(kvp_oplog *log);

/* Tell how far the log has been read, in bytes from its start: where the next record begins, or,
 * after KVP_E_FORMAT, where the damage is. */
KVP_API uint64_t kvp_oplog_offset(const kvp_oplog *log);

/* Run a whole log on a new cache and compare every record. The new run is recorded too, and must
 * give the log's bytes.
 *
 * Takes:   check_level  0..3: kvp_cache_check after every call
 * Gives:   out_index    of the first record that differs, after which the check failed, or that
 *                       cannot be read; written on failure only
 * Returns: KVP_OK; KVP_E_MISMATCH; KVP_E_CORRUPT; KVP_E_FORMAT; what kvp_cache_create returns for
 *          the log's configuration; KVP_E_NO_MEMORY; KVP_E_ARG */
KVP_API kvp_status kvp_oplog_replay(kvp_oplog *log, int check_level, uint64_t *out_index);

#ifdef __cplusplus
}
#endif
#endif

#include "oplog_sample.h"

#include <string.h>

#include "mocka.h"
#include "oplog_calls.h"

const int32_t sample_tokens[] = {1, 2, 3, 4, 5, 6, 7, 300, INT32_MAX, 10};
const int32_t sample_uncached_set[] = {7, -1, 1 << 30};
const kvp_hash sample_hashes[] = {{{1, 2, 3}}, {{255, 254}}};
const kvp_range sample_ranges[] = {{3, 4}, {5, UINT32_MAX}};
const kvp_key sample_keys[] = {{9, 0, 4, 3, "abc"}, {10, 2, 9, 0, NULL}};
const kvp_seq sample_seqs[] = {{SAMPLE_CACHE_BITS | 0x100001}, {SAMPLE_CACHE_BITS | 0x100002}, {0}};
const uint32_t sample_counts[] = {2, 0, 3};
kvp_status sample_statuses[] = {KVP_OK, KVP_E_NO_BLOCKS, KVP_E_HANDLE};
const kvp_ns sample_ns = {SAMPLE_CACHE_BITS | 0x80000005};
const kvp_ns_info sample_ns_info = {UINT64_MAX, KVP_NO_QUOTA, 300, 200, 7, 100000, 0, 0, 0, 0,
                                    0}; /* no log has the last four */
#define SEQ sample_seqs[0]

kvp_config sample_config(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 8;
    config.unit_tokens = SAMPLE_U;
    config.n_nodes = 77777;
    config.max_copies = 20;
    config.watermark = 0.01;
    config.hash_seed = UINT64_C(0xfedcba9876543210);
    config.test_hash_bits = 9;
    config.host_blocks = 40000;
    config.keep_evicted = 0;
    config.steps = KVP_STEPS_OVERLAPPED;
    config.max_steps_out = 7;
    config.max_events = 1u << 20;
    config.max_tree_tokens = 300;
    config.n_groups = SAMPLE_GROUPS;
    config.quotas = 1;
    config.max_loads = 300;
    config.lent_blocks = 20000;
    config.policy = KVP_POLICY_LEARNED;
    config.groups[1] = (kvp_group){4, 1024, 0};
    config.groups[2] = (kvp_group){0, UINT32_MAX, 0};
    config.n_uncached_tokens = 3;
    config.uncached_tokens = sample_uncached_set;
    return config;
}

void sample_begin(struct sample_log *log)
{
    kvp_config config = sample_config();
    memset(log, 0, sizeof *log);
    log->recorder.cache_bits = SAMPLE_CACHE_BITS;
    kvp_sink sink = {&log->memory, kvpi_oplog_memory_write};
    assert_int_equal(kvpi_record_begin(&log->recorder, &sink, &config), KVP_OK);
}

void sample_end(struct sample_log *log)
{
    assert_int_equal(kvpi_record_end(&log->recorder), KVP_OK);
}

kvp_prompt sample_prompt(void)
{
    return (kvp_prompt){sizeof(kvp_prompt), sample_tokens,     10, 200,
                        sample_hashes,      sample_keys,       2,  2,
                        sample_ranges,      KVP_OPEN_NO_MATCH, 7,  UINT64_MAX};
}

static kvp_batch full_batch(void)
{
    return (kvp_batch){sizeof(kvp_batch),
                       3,
                       KVP_BATCH_EACH,
                       sample_seqs,
                       sample_counts,
                       sample_tokens,
                       6,
                       1,
                       sample_keys,
                       sample_statuses};
}

const kvp_open_info sample_open_info = {9, 8, KVP_STOP_FULL_HIT, 6, 1, 7, 2, 3, 400, 500, 600};
const kvp_admission sample_admission = {KVP_ADMIT_LATER, 20, 300, UINT32_MAX, 6};
const kvp_released sample_released = {1, 70000};
const kvp_swapped sample_swapped = {300, 2, {4, 70001}};
const kvp_block_info sample_block_info = {KVP_BLOCK_HELD, 3, (uint64_t)1000 << 32, 7, 2, 8,
                                          {{9, 8, 7}},    6};
const kvp_shortage sample_shortage = {KVP_E_NEVER, 5, UINT64_C(1) << 40, KVP_HOST, 0};
static const kvp_violation VIOLATION = {"T1", 12345, "detail"};
static const kvp_copy COPIES[] = {{0, 0, 0, 0, 5, 6, 3}, {1, 2, 3, 4, 7, 1 << 29, 8}};
static const kvp_evicted EVICTED[] = {{{{4, 3, 2, 1}}, 9, KVP_DEVICE, 1, 2}};
const int32_t sample_parents[] = {-1, 0, INT32_MAX, -1, 300};
const int32_t sample_leaves[] = {-1, 299, 0};
const kvp_window sample_window = {4, 1u << 20};
const kvp_window_info sample_window_info = {{7, UINT32_MAX}, 2, 90000};
#define NO_MOVE                                                                                    \
    {                                                                                              \
        -1, -1                                                                                     \
    }
const kvp_slot_move sample_moves[] = {
    {40, 33}, {41, 34}, NO_MOVE, NO_MOVE, NO_MOVE,  {INT64_C(1) << 40, 7},
    {9, 8},   NO_MOVE,  NO_MOVE, NO_MOVE, {72, 65}, {73, 66},
    NO_MOVE,  NO_MOVE,  NO_MOVE,
};
static const int64_t SLOTS[] = {40, KVP_NO_SLOT, INT64_MAX};

const kvp_event sample_events[] = {
    {UINT64_C(1) << 33, KVP_EVENT_STORED, KVP_DEVICE, {{1, 2}}, {{3, 4}}, {{5}}, 8, SAMPLE_U, 1, 0},
    {UINT64_C(1) << 34, KVP_EVENT_REMOVED, KVP_HOST, {{5, 6}}, {{0}}, {{0}}, 0, 0, 2, 0},
    {UINT64_C(1) << 35,
     KVP_EVENT_STORED,
     KVP_HOST,
     {{7, 8}},
     {{9, 10}},
     {{11}},
     12,
     SAMPLE_U,
     0,
     0},
};
const int32_t sample_event_tokens[] = {1, 2, 3, 4, -1, -1, -1, -1, 9, 10, 11, 12};

static void write_prompt(struct kvpi_recorder *r, uint32_t op, const kvp_prompt *prompt,
                         kvp_status status)
{
    if (op == KVP_CALL_MATCH)
        kvpi_record_cache_match(r, sample_ns, prompt, status, &sample_open_info);
    else if (op == KVP_CALL_OPEN)
        kvpi_record_seq_open(r, sample_ns, prompt, status, &SEQ, &sample_open_info);
    else
        kvpi_record_cache_can_open(r, sample_ns, prompt, status, &sample_admission);
}

static void write_batch(struct kvpi_recorder *r, uint32_t op, const kvp_batch *batch,
                        kvp_status status)
{
    if (op == KVP_CALL_EXTEND_MANY)
        kvpi_record_seq_extend_many(r, batch, status);
    else if (op == KVP_CALL_FILL_MANY)
        kvpi_record_seq_fill_many(r, batch, status);
    else
        kvpi_record_cache_can_extend(r, batch, status, &sample_admission);
}

static void write_seq_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const uint32_t two = 2;
    const int32_t *row = sample_tokens;
    const uint32_t ten = 10;
    switch (op) {
    case KVP_CALL_EXTEND: kvpi_record_seq_extend(r, SEQ, sample_tokens, 3, 5, status); break;
    case KVP_CALL_FILL: kvpi_record_seq_fill(r, SEQ, sample_tokens, 3, status); break;
    case KVP_CALL_COMMIT: kvpi_record_seq_commit(r, SEQ, 1000, status); break;
    case KVP_CALL_INVALIDATE:
        kvpi_record_seq_invalidate(r, SEQ, 17, 8, status, sample_seqs + 1, &two);
        break;
    case KVP_CALL_FORK: kvpi_record_seq_fork(r, SEQ, KVP_END, 42, status, &sample_seqs[1]); break;
    case KVP_CALL_TRUNCATE: kvpi_record_seq_truncate(r, SEQ, 5, status, &sample_released); break;
    case KVP_CALL_CLOSE: kvpi_record_seq_close(r, SEQ, status, &sample_released); break;
    case KVP_CALL_SEQ_TOKENS: kvpi_record_seq_tokens(r, SEQ, 1, 10, status, sample_tokens); break;
    case KVP_CALL_SEQ_BLOCK_TOKENS:
        kvpi_record_seq_block_tokens(r, SEQ, 6, status, sample_tokens, &ten);
        break;
    case KVP_CALL_ROW: kvpi_record_seq_row(r, SEQ, 1, status, &row, &ten); break;
    case KVP_CALL_SLOTS: kvpi_record_seq_slots(r, SEQ, 1, 2, 3, status, SLOTS); break;
    case KVP_CALL_RETAIN: kvpi_record_seq_retain(r, SEQ, sample_ranges[1], 7, status); break;
    case KVP_CALL_UNCACHE: kvpi_record_seq_uncache(r, SEQ, sample_ranges[1], status); break;
    default: fail_msg("op %u has no writer", (unsigned)op);
    }
}

static void write_tier_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const uint64_t step = UINT64_C(1) << 40;
    const uint32_t two = 2;
    switch (op) {
    case KVP_CALL_SWAP_OUT:
        kvpi_record_seq_swap_out(r, sample_seqs, 3, status, &sample_swapped);
        break;
    case KVP_CALL_SWAP_IN:
        kvpi_record_seq_swap_in(r, sample_seqs, 3, 5, status, &sample_swapped);
        break;
    case KVP_CALL_CAN_SWAP_OUT:
        kvpi_record_cache_can_swap_out(r, sample_seqs, 3, status, &sample_admission);
        break;
    case KVP_CALL_CAN_SWAP_IN:
        kvpi_record_cache_can_swap_in(r, sample_seqs, 3, 5, status, &sample_admission);
        break;
    case KVP_CALL_STEP_BEGIN: kvpi_record_step_begin(r, 9, status, COPIES, 2, step); break;
    case KVP_CALL_STEP_COMMIT:
        kvpi_record_step_commit(r, step, sample_seqs, sample_counts, 3, status);
        break;
    case KVP_CALL_STEP_DONE: kvpi_record_step_done(r, step, status, step + 1); break;
    case KVP_CALL_STEP_FAILED:
        kvpi_record_step_failed(r, step, 8, status, sample_seqs + 1, &two);
        break;
    case KVP_CALL_EVENTS_SNAPSHOT:
        kvpi_record_events_snapshot(r, 9, 1, status, sample_events, sample_event_tokens, 3, step);
        break;
    default: fail_msg("op %u has no writer", (unsigned)op);
    }
}

static void write_accept(struct kvpi_recorder *r, kvp_status status)
{
    kvp_slot_move moves[SAMPLE_GROUPS * SAMPLE_MAX_MOVES];
    memcpy(moves, sample_moves, sizeof moves);
    const kvp_accept accept = {sizeof accept, 3,     SAMPLE_MAX_MOVES, sample_seqs,
                               sample_leaves, moves, SAMPLE_MOVES,     0};
    kvpi_record_seq_accept(r, &accept, SAMPLE_GROUPS, status);
}

static void write_tree_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const uint32_t five = 5;
    kvp_batch batch = full_batch();
    batch.flags = 0;
    switch (op) {
    case KVP_CALL_WINDOW:
        kvpi_record_seq_window(r, SEQ, 2, sample_window, status, &sample_released);
        break;
    case KVP_CALL_WINDOW_GET:
        kvpi_record_seq_window_get(r, SEQ, 2, status, &sample_window_info);
        break;
    case KVP_CALL_EXTEND_TREE:
        kvpi_record_seq_extend_tree(r, &batch, sample_parents, status);
        break;
    case KVP_CALL_ACCEPT: write_accept(r, status); break;
    case KVP_CALL_TREE:
        kvpi_record_seq_tree(r, SEQ, 9, status, sample_tokens, sample_parents, &five);
        break;
    case KVP_CALL_NS_QUOTA: kvpi_record_ns_quota(r, sample_ns, KVP_HOST, 4711, status); break;
    case KVP_CALL_NS_INFO: kvpi_record_ns_info_get(r, sample_ns, status, &sample_ns_info); break;
    default: fail_msg("op %u has no writer", (unsigned)op);
    }
}

static void write_cache_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const kvp_evicted *evicted = EVICTED;
    const uint32_t one = 1, two = 2;
    kvp_stats stats;
    kvp_config config = sample_config();
    memset(&stats, 3, sizeof stats);
    switch (op) {
    case KVP_CALL_NS_OPEN: kvpi_record_ns_open(r, "a\0b", 3, status, &sample_ns); break;
    case KVP_CALL_NS_CLOSE: kvpi_record_ns_close(r, sample_ns, status); break;
    case KVP_CALL_NS_FLUSH: kvpi_record_ns_flush(r, sample_ns, status); break;
    case KVP_CALL_COMMIT_MANY:
        kvpi_record_seq_commit_many(r, sample_seqs, sample_counts, 3, status);
        break;
    case KVP_CALL_PLAN_TAKE: kvpi_record_plan_take(r, 9, status, COPIES, &two); break;
    case KVP_CALL_EVICTED: kvpi_record_cache_evicted(r, status, &evicted, &one); break;
    case KVP_CALL_BLOCK_INFO:
        kvpi_record_block_info_get(r, 1, 2, -5, status, &sample_block_info);
        break;
    case KVP_CALL_BLOCK_TOKENS:
        kvpi_record_block_tokens(r, 1, KVP_HOST, 99, status, sample_tokens, &two);
        break;
    case KVP_CALL_STATS: kvpi_record_cache_stats_get(r, status, &stats); break;
    case KVP_CALL_SHORTAGE: kvpi_record_cache_shortage_get(r, status, &sample_shortage); break;
    case KVP_CALL_CHECK: kvpi_record_cache_check(r, -3, status, &VIOLATION); break;
    case KVP_CALL_RESET: kvpi_record_cache_reset(r, status); break;
    case KVP_CALL_CONFIG: kvpi_record_cache_config_get(r, status, &config); break;
    default:
        if (op >= KVP_CALL_WINDOW)
            write_tree_call(r, op, status);
        else if (op >= KVP_CALL_SWAP_OUT)
            write_tier_call(r, op, status);
        else
            write_seq_call(r, op, status);
        break;
    }
}

const kvp_load sample_load = {.struct_size = sizeof sample_load,
                              .group = 2,
                              .entries = {300, 304},
                              .spare_blocks = 4711,
                              .blocks = (int32_t *)(uintptr_t)sample_tokens,
                              .number = UINT64_C(1) << 41,
                              .after = 70000,
                              .n_blocks = 3,
                              .n_found = 200,
                              .n_elsewhere = 5};
const kvp_loaded sample_loaded = {1, 200, 30000, 0};
const kvp_mirrored sample_mirrored = {300, 2, 1, 0};

static void write_lend_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const uint64_t number = UINT64_C(1) << 41;
    const kvp_prompt prompt = sample_prompt();
    switch (op) {
    case KVP_CALL_PLAN_DONE: kvpi_record_plan_done(r, number, status); break;
    case KVP_CALL_MIRROR:
        kvpi_record_cache_mirror(r, sample_tokens, 4, 4711, status, sample_tokens + 4,
                                 &sample_mirrored);
        break;
    case KVP_CALL_BLOCKS_LEND: kvpi_record_cache_lend(r, sample_tokens, 4, status); break;
    case KVP_CALL_BLOCKS_RETURN: kvpi_record_cache_give_back(r, sample_tokens, 4, status); break;
    case KVP_CALL_LOAD_BEGIN:
        kvpi_record_load_begin(r, sample_ns, &prompt, &sample_load, status);
        break;
    case KVP_CALL_LOAD_DONE:
        kvpi_record_load_done(r, number, (const uint8_t *)"\1\0\1", 3, status, &sample_loaded);
        break;
    case KVP_CALL_LOAD_CANCEL: kvpi_record_load_cancel(r, number, status); break;
    case KVP_CALL_DROP: kvpi_record_cache_drop(r, KVP_HOST, sample_tokens, 4, status, 300); break;
    default: kvpi_record_cache_reclaim(r, 4711, status, 300); break;
    }
}

void sample_write(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    kvp_prompt prompt = sample_prompt();
    kvp_batch batch = full_batch();
    if (op == KVP_CALL_MATCH || op == KVP_CALL_OPEN || op == KVP_CALL_CAN_OPEN)
        write_prompt(r, op, &prompt, status);
    else if (op == KVP_CALL_EXTEND_MANY || op == KVP_CALL_FILL_MANY || op == KVP_CALL_CAN_EXTEND)
        write_batch(r, op, &batch, status);
    else if (op >= KVP_CALL_PLAN_DONE)
        write_lend_call(r, op, status);
    else
        write_cache_call(r, op, status);
}

const kvp_status sample_outcomes[] = {KVP_OK, KVP_E_TOO_SMALL, KVP_E_CORRUPT, KVP_E_ARG};

void sample_decide(struct kvpi_recorder *r, uint32_t op)
{
    if (op % 3 == 0)
        kvpi_record_decision(r, op >= KVP_CALL_SWAP_OUT ? -(int32_t)op : (int32_t)op);
}

void sample_write_all(struct sample_log *log)
{
    sample_begin(log);
    for (size_t i = 0; i < SAMPLE_OUTCOMES; i++)
        for (uint32_t op = 1; op <= SAMPLE_CALLS; op++) {
            if (!oplog_has_call(op))
                continue;
            sample_decide(&log->recorder, op);
            sample_write(&log->recorder, op, sample_outcomes[i]);
            assert_true(log->recorder.decisions == 0);
        }
    sample_end(log);
}

kvp_oplog *sample_open(const void *bytes, size_t n_bytes)
{
    kvp_oplog *log = NULL;
    assert_int_equal(kvp_oplog_open(bytes, n_bytes, &log), KVP_OK);
    return log;
}

/* The bytes of operation logs: what record.c writes is what oplog_decode.c reads, for every call;
 * any damage is found or harmless; the bytes themselves are frozen. Nothing here needs a cache: see
 * test_oplog_replay.c for logs that run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvpager/oplog.h>

#include "core/record.h"
#include "trace/oplog_decode.h"
#include "trace/oplog_replay.h"

#define CACHE_BITS UINT64_C(0x0123000000000000)
#define N_CALLS    33
#define U          4u

/* Of the log that write_all makes: its length, and its Adler-32. */
#define FROZEN_BYTES   3172
#define FROZEN_ADLER32 421055926u

static const int32_t TOKENS[] = {1, 2, 3, 4, 5, 6, 7, 300, INT32_MAX, 10};
static const int32_t UNCACHED_SET[] = {7, -1, 1 << 30};
static const kvp_hash HASHES[] = {{{1, 2, 3}}, {{255, 254}}};
static const kvp_range RANGES[] = {{3, 4}, {5, UINT32_MAX}};
static const kvp_key KEYS[] = {{9, 0, 4, 3, "abc"}, {10, 2, 9, 0, NULL}};
static const kvp_seq SEQS[] = {{CACHE_BITS | 0x100001}, {CACHE_BITS | 0x100002}, {0}};
static const uint32_t COUNTS[] = {2, 0, 3};
static kvp_status statuses[] = {KVP_OK, KVP_E_NO_BLOCKS, KVP_E_HANDLE};
static const kvp_ns NS = {CACHE_BITS | 0x80000005};
#define SEQ SEQS[0]

/* ------------------------------------------------------------------------- a log made by hand */

struct log {
    struct kvpi_recorder recorder;
    struct kvpi_oplog_memory memory;
};

static kvp_config make_config(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 8;
    config.unit_tokens = U;
    config.n_nodes = 77777;
    config.max_copies = 20;
    config.watermark = 0.01;
    config.hash_seed = UINT64_C(0xfedcba9876543210);
    config.n_uncached_tokens = 3;
    config.uncached_tokens = UNCACHED_SET;
    return config;
}

static void begin(struct log *log)
{
    kvp_config config = make_config();
    memset(log, 0, sizeof *log);
    log->recorder.cache_bits = CACHE_BITS;
    kvp_sink sink = {&log->memory, kvpi_oplog_memory_write};
    assert_int_equal(kvpi_record_begin(&log->recorder, &sink, &config), KVP_OK);
}

static void end(struct log *log)
{
    assert_int_equal(kvpi_record_end(&log->recorder), KVP_OK);
}

static kvp_prompt full_prompt(void)
{
    return (kvp_prompt){sizeof(kvp_prompt), TOKENS, 10,        200, HASHES, KEYS, 2, 2, RANGES,
                        KVP_OPEN_NO_MATCH,  7,      UINT64_MAX};
}

static kvp_batch full_batch(void)
{
    return (kvp_batch){sizeof(kvp_batch), 3, KVP_BATCH_EACH, SEQS, COUNTS, TOKENS, 6, 1, KEYS,
                       statuses};
}

static const kvp_open_info OPEN_INFO = {9, 8, KVP_STOP_FULL_HIT, 1, 2, 3, 400, 500};
static const kvp_admission ADMISSION = {KVP_ADMIT_LATER, 20, 300, UINT32_MAX};
static const kvp_released RELEASED = {1, 70000};
static const kvp_block_info BLOCK_INFO = {KVP_BLOCK_HELD, 3, 1000, 7, 2, 8, {{9, 8, 7}}};
static const kvp_shortage SHORTAGE = {KVP_E_NEVER, 5, UINT64_C(1) << 40};
static const kvp_violation VIOLATION = {"T1", 12345, "detail"};
static const kvp_copy COPIES[] = {{0, 0, 0, 0, 5, 6, 3}, {1, 2, 3, 4, 7, 1 << 29, 8}};
static const kvp_evicted EVICTED[] = {{{{4, 3, 2, 1}}, 9}};
static const int64_t SLOTS[] = {40, KVP_NO_SLOT, INT64_MAX};

static kvp_seq_info full_seq_info(void)
{
    static const uint32_t fields[] = {11, 10, 9, 8, 7, 600, 5, 4, 3, 2, UINT32_MAX, 6, UINT32_MAX};
    kvp_seq_info info = {.ns = NS, .tag = UINT64_MAX - 1};
    memcpy((char *)&info + offsetof(kvp_seq_info, tokens), fields, sizeof fields);
    return info;
}

static void write_prompt(struct kvpi_recorder *r, uint32_t op, const kvp_prompt *prompt,
                         kvp_status status)
{
    if (op == KVP_CALL_MATCH)
        kvpi_record_match(r, NS, prompt, status, &OPEN_INFO);
    else if (op == KVP_CALL_OPEN)
        kvpi_record_seq_open(r, NS, prompt, status, &SEQ, &OPEN_INFO);
    else
        kvpi_record_can_open(r, NS, prompt, status, &ADMISSION);
}

static void write_batch(struct kvpi_recorder *r, uint32_t op, const kvp_batch *batch,
                        kvp_status status)
{
    if (op == KVP_CALL_EXTEND_MANY)
        kvpi_record_seq_extend_many(r, batch, status);
    else if (op == KVP_CALL_FILL_MANY)
        kvpi_record_seq_fill_many(r, batch, status);
    else
        kvpi_record_can_extend(r, batch, status, &ADMISSION);
}

static void write_seq_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const uint32_t two = 2;
    const int32_t *row = TOKENS;
    const uint32_t ten = 10;
    const kvp_seq_info info = full_seq_info();
    switch (op) {
    case KVP_CALL_EXTEND: kvpi_record_seq_extend(r, SEQ, TOKENS, 3, 5, status); break;
    case KVP_CALL_FILL: kvpi_record_seq_fill(r, SEQ, TOKENS, 3, status); break;
    case KVP_CALL_COMMIT: kvpi_record_seq_commit(r, SEQ, 1000, status); break;
    case KVP_CALL_INVALIDATE:
        kvpi_record_seq_invalidate(r, SEQ, 17, 8, status, SEQS + 1, &two);
        break;
    case KVP_CALL_FORK: kvpi_record_seq_fork(r, SEQ, KVP_END, 42, status, &SEQS[1]); break;
    case KVP_CALL_TRUNCATE: kvpi_record_seq_truncate(r, SEQ, 5, status, &RELEASED); break;
    case KVP_CALL_CLOSE: kvpi_record_seq_close(r, SEQ, status, &RELEASED); break;
    case KVP_CALL_SEQ_INFO: kvpi_record_seq_info_get(r, SEQ, status, &info); break;
    case KVP_CALL_SEQ_TOKENS: kvpi_record_seq_tokens(r, SEQ, 1, 10, status, TOKENS); break;
    case KVP_CALL_SEQ_BLOCK_TOKENS:
        kvpi_record_seq_block_tokens(r, SEQ, 6, status, TOKENS, &ten);
        break;
    case KVP_CALL_ROW: kvpi_record_seq_row(r, SEQ, 1, status, &row, &ten); break;
    case KVP_CALL_SLOTS: kvpi_record_seq_slots(r, SEQ, 1, 2, 3, status, SLOTS); break;
    case KVP_CALL_RETAIN: kvpi_record_seq_retain(r, SEQ, RANGES[1], 7, status); break;
    case KVP_CALL_UNCACHE: kvpi_record_seq_uncache(r, SEQ, RANGES[1], status); break;
    default: fail_msg("op %u has no writer", (unsigned)op);
    }
}

static void write_cache_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    const kvp_evicted *evicted = EVICTED;
    const uint32_t one = 1, two = 2;
    kvp_stats stats;
    kvp_config config = make_config();
    memset(&stats, 3, sizeof stats);
    switch (op) {
    case KVP_CALL_NS_OPEN: kvpi_record_ns_open(r, "a\0b", 3, status, &NS); break;
    case KVP_CALL_NS_CLOSE: kvpi_record_ns_close(r, NS, status); break;
    case KVP_CALL_NS_FLUSH: kvpi_record_ns_flush(r, NS, status); break;
    case KVP_CALL_COMMIT_MANY: kvpi_record_seq_commit_many(r, SEQS, COUNTS, 3, status); break;
    case KVP_CALL_PLAN_TAKE: kvpi_record_plan_take(r, 9, status, COPIES, &two); break;
    case KVP_CALL_EVICTED: kvpi_record_cache_evicted(r, status, &evicted, &one); break;
    case KVP_CALL_BLOCK_INFO: kvpi_record_block_info_get(r, 1, -5, status, &BLOCK_INFO); break;
    case KVP_CALL_BLOCK_TOKENS: kvpi_record_block_tokens(r, 1, 99, status, TOKENS, &two); break;
    case KVP_CALL_STATS: kvpi_record_cache_stats(r, status, &stats); break;
    case KVP_CALL_SHORTAGE: kvpi_record_cache_shortage(r, status, &SHORTAGE); break;
    case KVP_CALL_CHECK: kvpi_record_check(r, -3, status, &VIOLATION); break;
    case KVP_CALL_RESET: kvpi_record_cache_reset(r, status); break;
    case KVP_CALL_CONFIG: kvpi_record_cache_config(r, status, &config); break;
    default: write_seq_call(r, op, status); break;
    }
}

/* One record of every call. */
static void write_call(struct kvpi_recorder *r, uint32_t op, kvp_status status)
{
    kvp_prompt prompt = full_prompt();
    kvp_batch batch = full_batch();
    if (op == KVP_CALL_MATCH || op == KVP_CALL_OPEN || op == KVP_CALL_CAN_OPEN)
        write_prompt(r, op, &prompt, status);
    else if (op == KVP_CALL_EXTEND_MANY || op == KVP_CALL_FILL_MANY || op == KVP_CALL_CAN_EXTEND)
        write_batch(r, op, &batch, status);
    else
        write_cache_call(r, op, status);
}

/* Every call, succeeding and failing, some with decisions. */
static const kvp_status OUTCOMES[] = {KVP_OK, KVP_E_TOO_SMALL, KVP_E_CORRUPT, KVP_E_ARG};

static void write_all(struct log *log)
{
    begin(log);
    for (size_t i = 0; i < sizeof OUTCOMES / sizeof *OUTCOMES; i++)
        for (uint32_t op = 1; op <= N_CALLS; op++) {
            if (op % 3 == 0)
                kvpi_record_decision(&log->recorder, (int32_t)op);
            write_call(&log->recorder, op, OUTCOMES[i]);
            assert_true(log->recorder.decisions == 0);
        }
    end(log);
}

/* ----------------------------------------------------------------------------------- round trip */

static uint64_t portable(uint64_t bits)
{
    return bits == 0 ? 0 : bits ^ CACHE_BITS;
}

static void check_tokens(const kvp_call *call, uint32_t n)
{
    assert_int_equal(call->n_tokens, n);
    assert_non_null(call->tokens);
    assert_memory_equal(call->tokens, TOKENS, n * sizeof *TOKENS);
}

static void check_keys(const kvp_call *call, uint32_t n)
{
    assert_int_equal(call->n_keys, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(call->keys[i].type, KEYS[i].type);
        assert_int_equal(call->keys[i].begin, KEYS[i].begin);
        assert_int_equal(call->keys[i].end, KEYS[i].end);
        assert_int_equal(call->keys[i].n_bytes, KEYS[i].n_bytes);
        if (KEYS[i].n_bytes > 0)
            assert_memory_equal(call->keys[i].bytes, KEYS[i].bytes, KEYS[i].n_bytes);
    }
}

static void check_prompt(const kvp_call *call)
{
    assert_true(call->handle == portable(NS.bits));
    check_tokens(call, 10);
    check_keys(call, 2);
    assert_int_equal(call->n_hashes, 10 / U);
    assert_memory_equal(call->hashes, HASHES, sizeof HASHES);
    assert_int_equal(call->n_ranges, 2);
    assert_memory_equal(call->ranges, RANGES, sizeof RANGES);
    assert_int_equal(call->reserve_tokens, 200);
    assert_int_equal(call->flags, KVP_OPEN_NO_MATCH);
    assert_int_equal(call->retention, 7);
    assert_true(call->tag == UINT64_MAX);
}

static void check_handles(const kvp_call *call)
{
    assert_int_equal(call->n_seqs, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(call->handles[i] == portable(SEQS[i].bits));
        assert_int_equal(call->counts[i], COUNTS[i]);
    }
}

static void check_batch(const kvp_call *call)
{
    check_handles(call);
    check_tokens(call, 5);
    check_keys(call, 1);
    assert_int_equal(call->reserve_tokens, 6);
    assert_int_equal(call->flags, KVP_BATCH_EACH);
}

static void check_seq_call(const kvp_call *call)
{
    assert_true(call->handle == portable(SEQ.bits));
    switch (call->op) {
    case KVP_CALL_EXTEND:
        assert_int_equal(call->reserve_tokens, 5);
        check_tokens(call, 3);
        break;
    case KVP_CALL_FILL: check_tokens(call, 3); break;
    case KVP_CALL_COMMIT: assert_int_equal(call->position, 1000); break;
    case KVP_CALL_INVALIDATE:
        assert_int_equal(call->position, 17);
        assert_int_equal(call->count, 8);
        assert_int_equal(call->no_report, 0);
        break;
    case KVP_CALL_FORK:
        assert_int_equal(call->position, KVP_END);
        assert_int_equal(call->tag, 42);
        break;
    case KVP_CALL_TRUNCATE: assert_int_equal(call->position, 5); break;
    case KVP_CALL_SEQ_TOKENS:
        assert_int_equal(call->position, 1);
        assert_int_equal(call->count, 10);
        break;
    case KVP_CALL_SEQ_BLOCK_TOKENS: assert_int_equal(call->position, 6); break;
    case KVP_CALL_ROW: assert_int_equal(call->group, 1); break;
    case KVP_CALL_SLOTS:
        assert_int_equal(call->group, 1);
        assert_int_equal(call->position, 2);
        assert_int_equal(call->count, 3);
        break;
    case KVP_CALL_RETAIN: assert_int_equal(call->retention, 7); /* fall through */
    case KVP_CALL_UNCACHE: assert_memory_equal(&call->range, &RANGES[1], sizeof(kvp_range)); break;
    default: assert_true(call->op == KVP_CALL_CLOSE || call->op == KVP_CALL_SEQ_INFO);
    }
}

static void check_call(const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_NS_OPEN:
        assert_int_equal(call->name_bytes, 3);
        assert_memory_equal(call->name, "a\0b", 3);
        break;
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH: assert_true(call->handle == portable(NS.bits)); break;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: check_prompt(call); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND: check_batch(call); break;
    case KVP_CALL_COMMIT_MANY: check_handles(call); break;
    case KVP_CALL_PLAN_TAKE: assert_int_equal(call->count, 9); break;
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS:
        assert_int_equal(call->group, 1);
        assert_int_equal(call->block, call->op == KVP_CALL_BLOCK_INFO ? -5 : 99);
        break;
    case KVP_CALL_CHECK: assert_int_equal((int32_t)call->position, -3); break;
    case KVP_CALL_EVICTED:
    case KVP_CALL_STATS:
    case KVP_CALL_SHORTAGE:
    case KVP_CALL_RESET:
    case KVP_CALL_CONFIG: break;
    default: check_seq_call(call);
    }
}

static void check_seq_info(const kvp_seq_info *info)
{
    kvp_seq_info expected = full_seq_info();
    expected.ns.bits = portable(expected.ns.bits);
    assert_true(info->ns.bits == expected.ns.bits && info->tag == expected.tag);
    assert_memory_equal(&info->tokens, &expected.tokens,
                        offsetof(kvp_seq_info, row_version) + sizeof info->row_version -
                            offsetof(kvp_seq_info, tokens));
}

static void check_digest(const struct kvpi_oplog_results *results, uint32_t n)
{
    assert_int_equal(results->outcome.n, n);
    assert_int_equal(results->has_digest, 1);
}

/* The results of a call that succeeded. */
static void check_results(uint32_t op, const struct kvpi_oplog_results *results)
{
    const kvp_outcome *o = &results->outcome;
    switch (op) {
    case KVP_CALL_NS_OPEN: assert_true(o->handle == portable(NS.bits)); break;
    case KVP_CALL_OPEN: assert_true(o->handle == portable(SEQ.bits)); /* fall through */
    case KVP_CALL_MATCH: assert_memory_equal(&o->u.open, &OPEN_INFO, sizeof OPEN_INFO); break;
    case KVP_CALL_FORK: assert_true(o->handle == portable(SEQS[1].bits)); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
        assert_int_equal(o->n, 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(-(int)results->statuses[i], statuses[i]);
        break;
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_CLOSE: assert_memory_equal(&o->u.released, &RELEASED, sizeof RELEASED); break;
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND:
        assert_memory_equal(&o->u.admission, &ADMISSION, sizeof ADMISSION);
        break;
    case KVP_CALL_INVALIDATE:
        assert_int_equal(o->n, 2);
        assert_true(o->u64[0] == portable(SEQS[1].bits) && o->u64[1] == 0);
        break;
    case KVP_CALL_SEQ_INFO: check_seq_info(&o->u.seq); break;
    case KVP_CALL_BLOCK_INFO:
        assert_memory_equal(&o->u.block, &BLOCK_INFO, sizeof BLOCK_INFO);
        break;
    case KVP_CALL_SHORTAGE:
        assert_int_equal(o->u.shortage.status, SHORTAGE.status);
        assert_int_equal(o->u.shortage.index, SHORTAGE.index);
        assert_true(o->u.shortage.missing_blocks == SHORTAGE.missing_blocks);
        break;
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_ROW: check_digest(results, 10); break;
    case KVP_CALL_SLOTS: check_digest(results, 3); break;
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_BLOCK_TOKENS: check_digest(results, 2); break;
    case KVP_CALL_EVICTED: check_digest(results, 1); break;
    case KVP_CALL_STATS: check_digest(results, sizeof(kvp_stats) / 8); break;
    default: break;
    }
}

static kvp_oplog *open_log(const void *bytes, size_t n_bytes)
{
    kvp_oplog *log = NULL;
    assert_int_equal(kvp_oplog_open(bytes, n_bytes, &log), KVP_OK);
    return log;
}

static void check_record(kvp_oplog *log, uint32_t op, kvp_status status)
{
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(at_end, 0);
    assert_int_equal(record.call.op, op);
    assert_int_equal(record.bytes[0], op);
    assert_int_equal(record.status, status);
    check_call(&record.call);
    const struct kvpi_oplog_results *results = kvpi_oplog_results(log);
    assert_int_equal(results->has_decisions, op % 3 == 0);
    if (status == KVP_OK)
        check_results(op, results);
    if (status == KVP_E_TOO_SMALL && (op == KVP_CALL_PLAN_TAKE || op == KVP_CALL_INVALIDATE))
        assert_int_equal(results->outcome.n, 2);
    if (status == KVP_E_CORRUPT && op == KVP_CALL_CHECK) {
        assert_string_equal(results->outcome.u.violation.invariant, "T1");
        assert_int_equal(results->outcome.u.violation.object, 12345);
    }
}

static void test_round_trip_of_every_call(void **state)
{
    (void)state;
    struct log made;
    write_all(&made);
    kvp_oplog *log = open_log(made.memory.bytes, made.memory.n_bytes);
    for (size_t i = 0; i < sizeof OUTCOMES / sizeof *OUTCOMES; i++)
        for (uint32_t op = 1; op <= N_CALLS; op++)
            check_record(log, op, OUTCOMES[i]);
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(at_end, 1);
    kvp_oplog_rewind(log);
    check_record(log, 1, KVP_OK);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

static void test_configuration(void **state)
{
    (void)state;
    struct log made;
    begin(&made);
    end(&made);
    kvp_oplog *log = open_log(made.memory.bytes, made.memory.n_bytes);
    kvp_config config, expected = make_config();
    assert_int_equal(kvp_oplog_config(log, &config), KVP_OK);
    assert_int_equal(config.struct_size, sizeof config);
    assert_memory_equal(config.uncached_tokens, UNCACHED_SET, sizeof UNCACHED_SET);
    assert_memory_equal(&config.watermark, &expected.watermark, sizeof config.watermark);
    assert_true(config.hash_seed == expected.hash_seed);
    assert_memory_equal(&config.block_tokens, &expected.block_tokens,
                        offsetof(kvp_config, prefix_cache) + sizeof config.prefix_cache -
                            offsetof(kvp_config, block_tokens));
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

/* Pointers given with nothing behind them, and not given: two things. */
static void test_null_and_none_differ(void **state)
{
    (void)state;
    struct log made;
    kvp_record record;
    int at_end;
    begin(&made);
    kvpi_record_seq_extend(&made.recorder, SEQ, NULL, 7, 0, KVP_OK);
    kvpi_record_seq_extend(&made.recorder, SEQ, TOKENS, 0, 7, KVP_OK);
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = 3, .seqs = SEQS};
    kvpi_record_seq_extend_many(&made.recorder, &batch, KVP_OK);
    kvpi_record_seq_invalidate(&made.recorder, SEQ, 1, 0, KVP_OK, NULL, NULL);
    end(&made);
    kvp_oplog *log = open_log(made.memory.bytes, made.memory.n_bytes);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_null(record.call.tokens);
    assert_int_equal(record.call.n_tokens, 7);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_non_null(record.call.tokens);
    assert_int_equal(record.call.n_tokens, 0);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_null(record.call.counts);
    assert_null(record.call.tokens);
    assert_int_equal(record.call.n_tokens, 3); /* one each */
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.no_report, 1);
    assert_int_equal(kvpi_oplog_results(log)->outcome.n, 0);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

/* Arrays longer than the writer's buffer go past it, in order. */
static void test_long_arrays(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct log made;
    kvp_record record;
    int at_end;
    int32_t *tokens = malloc(N * sizeof *tokens);
    kvp_seq *seqs = malloc(N * sizeof *seqs);
    uint32_t *counts = malloc(N * sizeof *counts);
    for (uint32_t i = 0; i < N; i++) {
        tokens[i] = (int32_t)(i * 2654435761u >> 1);
        seqs[i].bits = CACHE_BITS | (i + 1);
        counts[i] = i;
    }
    begin(&made);
    for (uint32_t n = 0; n < 400; n++)
        kvpi_record_seq_extend(&made.recorder, SEQ, tokens, n, n, KVP_OK);
    for (uint32_t n = 0; n < 200; n++) {
        kvp_prompt prompt = full_prompt();
        prompt.tokens = tokens;
        prompt.n_tokens = n;
        prompt.hashes = NULL;
        kvpi_record_decision(&made.recorder, 1);
        kvpi_record_seq_open(&made.recorder, NS, &prompt, KVP_OK, &SEQ, &OPEN_INFO);
    }
    kvpi_record_seq_extend(&made.recorder, SEQ, tokens, N, 1, KVP_OK);
    kvpi_record_seq_commit_many(&made.recorder, seqs, counts, N, KVP_OK);
    end(&made);
    kvp_oplog *log = open_log(made.memory.bytes, made.memory.n_bytes);
    for (uint32_t i = 0; i < 601; i++) {
        uint32_t n = i < 400 ? i : i < 600 ? i - 400 : N;
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.n_tokens, n);
        assert_memory_equal(record.call.tokens, tokens, n * sizeof *tokens);
    }
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_memory_equal(record.call.counts, counts, N * sizeof *counts);
    for (uint32_t i = 0; i < N; i++)
        assert_true(record.call.handles[i] == i + 1);
    kvp_oplog_close(log);
    free(tokens);
    free(seqs);
    free(counts);
    free(made.memory.bytes);
}

/* --------------------------------------------------------------------------------------- damage */

/* Reads to the end or the damage. Gives the number of whole records. */
static uint64_t read_all(kvp_oplog *log, kvp_status *status)
{
    kvp_record record;
    int at_end = 0;
    uint64_t n = 0;
    while ((*status = kvp_oplog_next(log, &record, &at_end)) == KVP_OK && at_end == 0) {
        assert_int_equal(record.index, n);
        assert_true(record.n_result_bytes >= 1 && record.n_result_bytes < record.n_bytes);
        n++;
    }
    return n;
}

/* A copy of exactly n bytes, so that a read past the end is found. */
static uint8_t *copy_of(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    struct log made;
    begin(&made);
    size_t header_bytes = made.memory.n_bytes;
    size_t ends[2 * N_CALLS + 1] = {header_bytes};
    for (uint32_t i = 0; i < 2 * N_CALLS; i++) {
        write_call(&made.recorder, i % N_CALLS + 1, i < N_CALLS ? KVP_OK : KVP_E_CORRUPT);
        ends[i + 1] = made.memory.n_bytes;
    }
    end(&made);
    uint64_t whole = 0;
    for (size_t n = 0; n <= made.memory.n_bytes; n++) {
        uint8_t *bytes = copy_of(made.memory.bytes, n);
        kvp_oplog *log = NULL;
        kvp_status status = kvp_oplog_open(bytes, n, &log);
        assert_int_equal(status, n < header_bytes ? KVP_E_FORMAT : KVP_OK);
        if (status == KVP_OK) {
            while (whole < 2 * N_CALLS && ends[whole + 1] <= n)
                whole++;
            assert_int_equal(read_all(log, &status), whole);
            assert_int_equal(status, ends[whole] == n ? KVP_OK : KVP_E_FORMAT);
            if (status != KVP_OK)
                assert_in_range(kvp_oplog_offset(log), ends[whole], n);
        }
        kvp_oplog_close(log);
        free(bytes);
    }
    free(made.memory.bytes);
}

static void test_flipped_bytes(void **state)
{
    (void)state;
    static const uint8_t masks[] = {0x01, 0x02, 0x10, 0x40, 0x80, 0xff};
    struct log made;
    write_all(&made);
    uint8_t *bytes = copy_of(made.memory.bytes, made.memory.n_bytes);
    for (size_t i = 0; i < made.memory.n_bytes; i++)
        for (size_t j = 0; j < sizeof masks; j++) {
            kvp_oplog *log = NULL;
            bytes[i] ^= masks[j];
            kvp_status status = kvp_oplog_open(bytes, made.memory.n_bytes, &log);
            assert_true(status == KVP_OK || i < 100);
            if (status == KVP_OK)
                read_all(log, &status);
            assert_true(status == KVP_OK || status == KVP_E_FORMAT || status == KVP_E_VERSION);
            kvp_oplog_close(log);
            bytes[i] ^= masks[j];
        }
    free(bytes);
    free(made.memory.bytes);
}

/* Puts bytes after a good header and expects damage at a place in them. */
static void expect_damage(const char *record, size_t n_bytes, size_t at)
{
    struct log made;
    begin(&made);
    end(&made);
    size_t header_bytes = made.memory.n_bytes;
    kvpi_oplog_memory_write(&made.memory, record, n_bytes);
    kvp_oplog *log = open_log(made.memory.bytes, made.memory.n_bytes);
    kvp_record read;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &read, &at_end), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_offset(log), header_bytes + at);
    assert_int_equal(kvp_oplog_next(log, &read, &at_end), KVP_E_FORMAT);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

#define EXPECT_DAMAGE(record, at) expect_damage(record, sizeof(record) - 1, at)

static void test_hostile_bytes(void **state)
{
    (void)state;
    EXPECT_DAMAGE("\0", 0);                                               /* no call 0 */
    EXPECT_DAMAGE("\x22", 0);                                             /* no call 34 */
    EXPECT_DAMAGE("\x02\x80", 2);                                         /* a varint that is cut */
    EXPECT_DAMAGE("\x02\x80\x00\x00", 1);                                 /* longer than needed */
    EXPECT_DAMAGE("\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00", 1); /* 2^64 */
    EXPECT_DAMAGE("\x0a\x01\x80\x80\x80\x80\x10\x00", 2);         /* 2^32 tokens to commit */
    EXPECT_DAMAGE("\x02\x01\x13", 2);                             /* no status -19 */
    EXPECT_DAMAGE("\x06\x01\x00\x02\x00\x00", 3);                 /* a bit without meaning */
    EXPECT_DAMAGE("\x06\x01\x00\x01\xff\xff\xff\xff\x0f\x00", 9); /* 2^32 - 1 tokens */
    EXPECT_DAMAGE("\x0b\xff\xff\xff\xff\x0f\x01\x01\x00", 1);     /* 2^32 - 1 sequences */
    EXPECT_DAMAGE("\x07\x11\x00\x00\x02\x01\x02\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f\x00", 17);
    EXPECT_DAMAGE("\x01\xff\xff\xff\xff\x0f\x61\x00", 6); /* a long name */
    EXPECT_DAMAGE("\x0c\x01\x00\x00\x02\x00", 4);         /* neither report nor not */
}

static void test_header_is_looked_at(void **state)
{
    (void)state;
    struct log made;
    kvp_oplog *log = NULL;
    begin(&made);
    end(&made);
    made.memory.bytes[6] = '2';
    assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log), KVP_E_VERSION);
    made.memory.bytes[6] = 'x';
    assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_open("", 0, &log), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_open(NULL, 5, &log), KVP_E_ARG);
    assert_null(log);
    free(made.memory.bytes);
}

/* ---------------------------------------------------------------------------- sinks that refuse */

struct short_sink {
    struct kvpi_oplog_memory memory;
    size_t limit;
};

static int write_short(void *context, const void *bytes, size_t n_bytes)
{
    struct short_sink *sink = context;
    if (sink->memory.n_bytes + n_bytes > sink->limit)
        return 1;
    return kvpi_oplog_memory_write(&sink->memory, bytes, n_bytes);
}

static void test_a_sink_that_refuses_ends_the_recording(void **state)
{
    (void)state;
    struct log whole;
    write_all(&whole);
    for (size_t limit = 0; limit < whole.memory.n_bytes; limit++) {
        struct kvpi_recorder recorder = {.cache_bits = CACHE_BITS};
        struct short_sink target = {.limit = limit};
        kvp_config config = make_config();
        kvp_sink sink = {&target, write_short};
        kvp_status status = kvpi_record_begin(&recorder, &sink, &config);
        assert_int_equal(recorder.on, status == KVP_OK);
        for (uint32_t op = 1; op <= N_CALLS && recorder.on; op++) {
            if (op % 3 == 0)
                kvpi_record_decision(&recorder, (int32_t)op);
            write_call(&recorder, op, KVP_OK);
        }
        if (status == KVP_OK)
            status = recorder.failed ? KVP_E_IO : KVP_OK;
        if (recorder.on || recorder.failed)
            assert_int_equal(kvpi_record_end(&recorder), status);
        assert_int_equal(kvpi_record_end(&recorder), KVP_E_STATE);
        if (target.memory.n_bytes > 0)
            assert_memory_equal(target.memory.bytes, whole.memory.bytes, target.memory.n_bytes);
        free(target.memory.bytes);
    }
    free(whole.memory.bytes);
}

/* Refuses one piece and takes all others. */
static int refuse_one(void *context, const void *bytes, size_t n_bytes)
{
    struct short_sink *sink = context;
    return sink->limit-- == 0 ? 1 : kvpi_oplog_memory_write(&sink->memory, bytes, n_bytes);
}

static void test_a_record_has_no_hole(void **state)
{
    (void)state;
    static int32_t tokens[1000];
    kvp_prompt prompt = full_prompt();
    prompt.tokens = tokens;
    prompt.n_tokens = 1000;
    prompt.hashes = NULL;
    struct kvpi_recorder recorder = {.cache_bits = CACHE_BITS};
    struct short_sink target = {.limit = 2}; /* header, start of the record; not the tokens */
    kvp_config config = make_config();
    kvp_sink sink = {&target, refuse_one};
    assert_int_equal(kvpi_record_begin(&recorder, &sink, &config), KVP_OK);
    size_t header_bytes = target.memory.n_bytes;
    kvpi_record_seq_open(&recorder, NS, &prompt, KVP_OK, &SEQ, &OPEN_INFO);
    assert_in_range(target.memory.n_bytes, header_bytes + 5, header_bytes + 40);
    assert_int_equal(recorder.on, 0);
    assert_int_equal(kvpi_record_end(&recorder), KVP_E_IO);
    free(target.memory.bytes);
}

/* --------------------------------------------------------------------------------------- frozen */

static void test_the_bytes_are_frozen(void **state)
{
    (void)state;
    static const uint8_t extend[] = {6, 0x81, 0x80, 0x40, 5, 1, 3, 1,    0, 0, 0, 2,
                                     0, 0,    0,    3,    0, 0, 0, 0x80, 0, 0, 0, 0};
    struct log made;
    begin(&made);
    size_t header_bytes = made.memory.n_bytes;
    kvpi_record_decision(&made.recorder, 1);
    made.recorder.decisions = UINT64_C(0x100000001); /* folds to 0: still said to be there */
    kvpi_record_seq_extend(&made.recorder, SEQ, TOKENS, 3, 5, KVP_OK);
    assert_int_equal(made.memory.n_bytes - header_bytes, sizeof extend);
    assert_memory_equal(made.memory.bytes + header_bytes, extend, sizeof extend);
    assert_memory_equal(made.memory.bytes, "kvplog1\n\x08\x04\x80\x08\x80\x02\x80\x80\x02\x10", 18);
    free(made.memory.bytes);
    /* All the rest by its Adler-32. */
    write_all(&made);
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < made.memory.n_bytes; i++) {
        a = (a + made.memory.bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    assert_int_equal(made.memory.n_bytes, FROZEN_BYTES);
    assert_int_equal(b << 16 | a, FROZEN_ADLER32);
    free(made.memory.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_of_every_call),
        cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_null_and_none_differ),
        cmocka_unit_test(test_long_arrays),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_header_is_looked_at),
        cmocka_unit_test(test_a_sink_that_refuses_ends_the_recording),
        cmocka_unit_test(test_a_record_has_no_hole),
        cmocka_unit_test(test_the_bytes_are_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The bytes of operation logs: what record.c writes is what oplog/decode.c reads, for every call;
 * the bytes themselves are frozen. Nothing here needs a cache: see test_oplog_damage.c for logs
 * that are not whole, and test_oplog_replay.c for logs that run. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "oplog_calls.h"
#include "oplog_sample.h"
#include "oplog/oplog.h"

/* Of the log that sample_write_all makes: its length, and its Adler-32. */
#define FROZEN_BYTES   5279
#define FROZEN_ADLER32 0x6bc1dc54u

#define SEQ sample_seqs[0]

/* ----------------------------------------------------------------------------------- round trip */

static uint64_t portable(uint64_t bits)
{
    return bits == 0 ? 0 : bits ^ SAMPLE_CACHE_BITS;
}

static void check_tokens(const kvp_call *call, uint32_t n)
{
    assert_int_equal(call->n_tokens, n);
    assert_non_null(call->tokens);
    assert_memory_equal(call->tokens, sample_tokens, n * sizeof *sample_tokens);
}

static void check_keys(const kvp_call *call, uint32_t n)
{
    assert_int_equal(call->n_keys, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(call->keys[i].type, sample_keys[i].type);
        assert_int_equal(call->keys[i].begin, sample_keys[i].begin);
        assert_int_equal(call->keys[i].end, sample_keys[i].end);
        assert_int_equal(call->keys[i].n_bytes, sample_keys[i].n_bytes);
        if (sample_keys[i].n_bytes > 0)
            assert_memory_equal(call->keys[i].bytes, sample_keys[i].bytes, sample_keys[i].n_bytes);
    }
}

static void check_prompt(const kvp_call *call)
{
    assert_true(call->handle == portable(sample_ns.bits));
    check_tokens(call, 10);
    check_keys(call, 2);
    assert_int_equal(call->n_hashes, 10 / SAMPLE_U);
    assert_memory_equal(call->hashes, sample_hashes, sizeof sample_hashes);
    assert_int_equal(call->n_ranges, 2);
    assert_memory_equal(call->ranges, sample_ranges, sizeof sample_ranges);
    assert_fields(*call, reserve_tokens, 200, flags, KVP_OPEN_NO_MATCH, retention, 7);
    assert_true(call->tag == UINT64_MAX);
}

static void check_handles(const kvp_call *call)
{
    assert_int_equal(call->n_seqs, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(call->handles[i] == portable(sample_seqs[i].bits));
}

static void check_counts(const kvp_call *call)
{
    check_handles(call);
    assert_memory_equal(call->counts, sample_counts, sizeof sample_counts);
}

static void check_batch(const kvp_call *call)
{
    check_counts(call);
    check_tokens(call, 5);
    check_keys(call, 1);
    assert_fields(*call, reserve_tokens, 6, flags,
                  call->op == KVP_CALL_EXTEND_TREE ? 0 : KVP_BATCH_EACH);
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
    case KVP_CALL_INVALIDATE: assert_fields(*call, position, 17, count, 8, no_report, 0); break;
    case KVP_CALL_FORK: assert_fields(*call, position, KVP_END, tag, 42); break;
    case KVP_CALL_TRUNCATE: assert_int_equal(call->position, 5); break;
    case KVP_CALL_SEQ_TOKENS: assert_fields(*call, position, 1, count, 10); break;
    case KVP_CALL_SEQ_BLOCK_TOKENS: assert_int_equal(call->position, 6); break;
    case KVP_CALL_ROW: assert_int_equal(call->group, 1); break;
    case KVP_CALL_SLOTS: assert_fields(*call, group, 1, position, 2, count, 3); break;
    case KVP_CALL_RETAIN: assert_int_equal(call->retention, 7); /* fall through */
    case KVP_CALL_UNCACHE:
        assert_memory_equal(&call->range, &sample_ranges[1], sizeof(kvp_range));
        break;
    default: assert_int_equal(call->op, KVP_CALL_CLOSE);
    }
}

static void check_tier_call(const kvp_call *call)
{
    const uint64_t step = UINT64_C(1) << 40;
    switch (call->op) {
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_IN: assert_int_equal(call->reserve_tokens, 5); /* fall through */
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_OUT: check_handles(call); break;
    case KVP_CALL_STEP_BEGIN: assert_int_equal(call->count, 9); break;
    case KVP_CALL_STEP_COMMIT: check_counts(call); /* fall through */
    case KVP_CALL_STEP_DONE: assert_true(call->number == step); break;
    case KVP_CALL_STEP_FAILED:
        assert_true(call->number == step);
        assert_fields(*call, count, 8, no_report, 0);
        break;
    case KVP_CALL_EVENTS_SNAPSHOT: assert_fields(*call, count, 9, with_tokens, 1); break;
    default: fail_msg("op %u has no check", (unsigned)call->op);
    }
}

static void check_tree_call(const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_WINDOW:
        assert_memory_equal(&call->window, &sample_window, sizeof sample_window); /* fall through */
    case KVP_CALL_WINDOW_GET:
        assert_true(call->handle == portable(SEQ.bits));
        assert_int_equal(call->group, 2);
        break;
    case KVP_CALL_EXTEND_TREE:
        check_batch(call);
        assert_memory_equal(call->parents, sample_parents, sizeof sample_parents);
        break;
    case KVP_CALL_ACCEPT:
        check_handles(call);
        assert_memory_equal(call->leaves, sample_leaves, sizeof sample_leaves);
        assert_int_equal(call->count, SAMPLE_MAX_MOVES);
        break;
    case KVP_CALL_TREE:
        assert_true(call->handle == portable(SEQ.bits));
        assert_int_equal(call->count, 9);
        assert_true(call->with_tokens == 1 && call->with_parents == 1);
        break;
    case KVP_CALL_NS_QUOTA:
        assert_int_equal(call->tier, KVP_HOST);
        assert_int_equal(call->count, 4711); /* fall through */
    case KVP_CALL_NS_INFO: assert_true(call->handle == portable(sample_ns.bits)); break;
    default: fail_msg("op %u has no check", (unsigned)call->op);
    }
}

static void check_lend_call(const kvp_call *call)
{
    const uint64_t number = UINT64_C(1) << 41;
    switch (call->op) {
    case KVP_CALL_MIRROR: assert_int_equal(call->count, 4711); /* fall through */
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN: check_tokens(call, 4); break;
    case KVP_CALL_RECLAIM: assert_int_equal(call->count, 4711); break;
    case KVP_CALL_DROP:
        check_tokens(call, 4);
        assert_int_equal(call->tier, KVP_HOST);
        break;
    case KVP_CALL_LOAD_BEGIN:
        check_prompt(call);
        assert_int_equal(call->group, 2);
        assert_true(call->range.begin == 300 && call->range.end == 304);
        assert_int_equal(call->count, 4711);
        break;
    case KVP_CALL_LOAD_DONE:
        assert_int_equal(call->name_bytes, 3);
        assert_memory_equal(call->name, "\1\0\1", 3); /* fall through */
    case KVP_CALL_PLAN_DONE:
    case KVP_CALL_LOAD_CANCEL: assert_true(call->number == number); break;
    default: fail_msg("op %u has no check", (unsigned)call->op);
    }
}

static void check_call(const kvp_call *call)
{
    if (call->op >= KVP_CALL_PLAN_DONE) {
        check_lend_call(call);
        return;
    }
    if (call->op >= KVP_CALL_WINDOW) {
        check_tree_call(call);
        return;
    }
    if (call->op >= KVP_CALL_SWAP_OUT) {
        check_tier_call(call);
        return;
    }
    switch (call->op) {
    case KVP_CALL_NS_OPEN:
        assert_int_equal(call->name_bytes, 3);
        assert_memory_equal(call->name, "a\0b", 3);
        break;
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH: assert_true(call->handle == portable(sample_ns.bits)); break;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: check_prompt(call); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND: check_batch(call); break;
    case KVP_CALL_COMMIT_MANY: check_counts(call); break;
    case KVP_CALL_PLAN_TAKE: assert_int_equal(call->count, 9); break;
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS:
        assert_fields(*call, group, 1, tier, call->op == KVP_CALL_BLOCK_INFO ? 2 : KVP_HOST, block,
                      call->op == KVP_CALL_BLOCK_INFO ? -5 : 99);
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

static void check_digest(const struct kvpi_oplog_results *results, uint32_t n)
{
    assert_int_equal(results->outcome.n, n);
    assert_int_equal(results->has_digest, 1);
}

/* Of numbers of `size` bytes each, as little-endian ones. */
static uint64_t digest_of(const void *numbers, size_t n_bytes, size_t size)
{
    const uint8_t *from = numbers;
    uint8_t bytes[256];
    const size_t turn = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : size - 1;
    assert_in_range(n_bytes, size, sizeof bytes);
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = from[i ^ turn];
    return XXH3_64bits(bytes, n_bytes);
}

/* The tokens of the two events that have some, one after the other. */
static void check_events(const struct kvpi_oplog_results *results)
{
    static const int32_t told[] = {1, 2, 3, 4, 9, 10, 11, 12};
    check_digest(results, SAMPLE_EVENTS);
    assert_fields(*results, has_tokens, 1, n_tokens, 8);
    assert_true(results->token_digest == digest_of(told, sizeof told, sizeof *told));
}

static void check_tier_results(uint32_t op, const struct kvpi_oplog_results *results)
{
    const uint64_t step = UINT64_C(1) << 40;
    const kvp_outcome *o = &results->outcome;
    switch (op) {
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
        assert_memory_equal(&o->u.swapped, &sample_swapped, sizeof sample_swapped);
        break;
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN:
        assert_memory_equal(&o->u.admission, &sample_admission, sizeof sample_admission);
        break;
    case KVP_CALL_STEP_BEGIN:
        check_digest(results, 2);
        assert_true(o->number == step);
        break;
    case KVP_CALL_STEP_DONE: assert_true(o->number == step + 1); break;
    case KVP_CALL_STEP_FAILED:
        assert_int_equal(o->n, 2);
        assert_true(o->u64[0] == portable(sample_seqs[1].bits) && o->u64[1] == 0);
        break;
    case KVP_CALL_EVENTS_SNAPSHOT:
        assert_true(o->number == step);
        check_events(results);
        break;
    default: assert_int_equal(op, KVP_CALL_STEP_COMMIT);
    }
}

/* What was moved, group after group; the nodes' values, then their parents. */
static void check_tree_results(uint32_t op, const struct kvpi_oplog_results *results)
{
    kvp_slot_move moves[SAMPLE_GROUPS][SAMPLE_MOVES];
    int32_t nodes[2][5];
    for (size_t group = 0; group < SAMPLE_GROUPS; group++)
        memcpy(moves[group], sample_moves + group * SAMPLE_MAX_MOVES, sizeof moves[group]);
    memcpy(nodes[0], sample_tokens, sizeof nodes[0]);
    memcpy(nodes[1], sample_parents, sizeof nodes[1]);
    const kvp_outcome *o = &results->outcome;
    switch (op) {
    case KVP_CALL_WINDOW:
        assert_memory_equal(&o->u.released, &sample_released, sizeof sample_released);
        break;
    case KVP_CALL_WINDOW_GET:
        assert_memory_equal(&o->u.window, &sample_window_info, sizeof sample_window_info);
        break;
    case KVP_CALL_ACCEPT:
        check_digest(results, SAMPLE_MOVES);
        assert_true(results->digest == digest_of(moves, sizeof moves, sizeof(int64_t)));
        break;
    case KVP_CALL_TREE:
        check_digest(results, 5);
        assert_true(results->digest == digest_of(nodes, sizeof nodes, sizeof nodes[0][0]));
        break;
    case KVP_CALL_NS_INFO:
        assert_memory_equal(&o->u.ns, &sample_ns_info, sizeof sample_ns_info);
        break;
    default: assert_true(op == KVP_CALL_EXTEND_TREE || op == KVP_CALL_NS_QUOTA);
    }
}

static void check_lend_results(uint32_t op, const struct kvpi_oplog_results *results)
{
    const kvp_outcome *o = &results->outcome;
    switch (op) {
    case KVP_CALL_MIRROR:
        assert_memory_equal(&o->u.mirrored, &sample_mirrored, sizeof sample_mirrored);
        check_digest(results, 4);
        break;
    case KVP_CALL_LOAD_BEGIN:
        assert_true(o->u.load.number == sample_load.number);
        assert_true(o->u.load.after == sample_load.after);
        assert_fields(o->u.load, n_blocks, sample_load.n_blocks, n_found, sample_load.n_found,
                      n_elsewhere, sample_load.n_elsewhere);
        check_digest(results, 4);
        break;
    case KVP_CALL_LOAD_DONE:
        assert_memory_equal(&o->u.loaded, &sample_loaded, sizeof sample_loaded);
        break;
    case KVP_CALL_DROP:
    case KVP_CALL_RECLAIM: assert_int_equal(o->n, 300); break;
    default: assert_int_equal(results->has_array, 0);
    }
}

/* The results of a call that succeeded. */
static void check_results(uint32_t op, const struct kvpi_oplog_results *results)
{
    const kvp_outcome *o = &results->outcome;
    switch (op) {
    case KVP_CALL_NS_OPEN: assert_true(o->handle == portable(sample_ns.bits)); break;
    case KVP_CALL_OPEN: assert_true(o->handle == portable(SEQ.bits)); /* fall through */
    case KVP_CALL_MATCH:
        assert_memory_equal(&o->u.open, &sample_open_info, sizeof sample_open_info);
        break;
    case KVP_CALL_FORK: assert_true(o->handle == portable(sample_seqs[1].bits)); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
        assert_int_equal(o->n, 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(-(int)results->statuses[i], sample_statuses[i]);
        break;
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_CLOSE:
        assert_memory_equal(&o->u.released, &sample_released, sizeof sample_released);
        break;
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND:
        assert_memory_equal(&o->u.admission, &sample_admission, sizeof sample_admission);
        break;
    case KVP_CALL_INVALIDATE:
        assert_int_equal(o->n, 2);
        assert_true(o->u64[0] == portable(sample_seqs[1].bits) && o->u64[1] == 0);
        break;
    case KVP_CALL_BLOCK_INFO:
        assert_memory_equal(&o->u.block, &sample_block_info, sizeof sample_block_info);
        break;
    case KVP_CALL_SHORTAGE:
        assert_fields(o->u.shortage, status, sample_shortage.status, index, sample_shortage.index);
        assert_true(o->u.shortage.missing_blocks == sample_shortage.missing_blocks);
        assert_int_equal(o->u.shortage.tier, sample_shortage.tier);
        break;
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_ROW: check_digest(results, 10); break;
    case KVP_CALL_SLOTS: check_digest(results, 3); break;
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_BLOCK_TOKENS: check_digest(results, 2); break;
    case KVP_CALL_EVICTED: check_digest(results, 1); break;
    case KVP_CALL_STATS: check_digest(results, sizeof(kvp_stats) / 8); break;
    default:
        if (op >= KVP_CALL_PLAN_DONE)
            check_lend_results(op, results);
        else if (op >= KVP_CALL_WINDOW)
            check_tree_results(op, results);
        else if (op >= KVP_CALL_SWAP_OUT)
            check_tier_results(op, results);
        break;
    }
}

/* How long the array is that did not fit, where a call says so. */
static void check_too_small(uint32_t op, const kvp_outcome *o)
{
    switch (op) {
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN:
    case KVP_CALL_INVALIDATE:
    case KVP_CALL_STEP_FAILED: assert_int_equal(o->n, 2); break;
    case KVP_CALL_ACCEPT: assert_int_equal(o->n, SAMPLE_MOVES); break;
    case KVP_CALL_TREE: assert_int_equal(o->n, 5); break;
    case KVP_CALL_EVENTS_SNAPSHOT:
        assert_int_equal(o->n, SAMPLE_EVENTS);
        assert_true(o->number == UINT64_C(1) << 40);
        break;
    default: assert_int_equal(o->n, 0);
    }
}

static void check_record(kvp_oplog *log, uint32_t op, kvp_status status)
{
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(at_end, 0);
    assert_int_equal(record.call.op, op);
    assert_fields(record, bytes[0], op, status, status);
    check_call(&record.call);
    const struct kvpi_oplog_results *results = kvpi_oplog_results(log);
    assert_int_equal(results->has_decisions, op % 3 == 0);
    if (status == KVP_OK)
        check_results(op, results);
    if (status == KVP_E_TOO_SMALL)
        check_too_small(op, &results->outcome);
    if (status == KVP_E_CORRUPT && op == KVP_CALL_CHECK) {
        assert_string_equal(results->outcome.u.violation.invariant, "T1");
        assert_int_equal(results->outcome.u.violation.object, 12345);
    }
}

TEST(test_round_trip_of_every_call)
{
    struct sample_log made;
    sample_write_all(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    for (size_t i = 0; i < SAMPLE_OUTCOMES; i++)
        for (uint32_t op = 1; op <= SAMPLE_CALLS; op++)
            if (oplog_has_call(op))
                check_record(log, op, sample_outcomes[i]);
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(at_end, 1);
    kvp_oplog_rewind(log);
    check_record(log, 1, KVP_OK);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

TEST(test_configuration)
{
    struct sample_log made;
    sample_begin(&made);
    sample_end(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    kvp_config config, expected = sample_config();
    assert_int_equal(kvp_oplog_config(log, &config), KVP_OK);
    assert_int_equal(kvp_oplog_config(NULL, &config), KVP_E_ARG);
    assert_int_equal(kvp_oplog_config(log, NULL), KVP_E_ARG);
    kvp_oplog_rewind(NULL);
    kvp_oplog_close(NULL);
    assert_int_equal(config.struct_size, sizeof config);
    assert_memory_equal(config.uncached_tokens, sample_uncached_set, sizeof sample_uncached_set);
    assert_memory_equal(&config.watermark, &expected.watermark, sizeof config.watermark);
    assert_true(config.hash_seed == expected.hash_seed);
    assert_memory_equal(&config.block_tokens, &expected.block_tokens,
                        offsetof(kvp_config, prefix_cache) + sizeof config.prefix_cache -
                            offsetof(kvp_config, block_tokens));
    assert_int_equal(config.test_hash_bits, expected.test_hash_bits);
    assert_memory_equal(&config.host_blocks, &expected.host_blocks,
                        offsetof(kvp_config, lent_blocks) + sizeof config.lent_blocks -
                            offsetof(kvp_config, host_blocks));
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

/* Pointers given with nothing behind them, and not given: two things. */
TEST(test_null_and_none_differ)
{
    struct sample_log made;
    kvp_record record;
    int at_end;
    sample_begin(&made);
    kvpi_record_seq_extend(&made.recorder, SEQ, NULL, 7, 0, KVP_OK);
    kvpi_record_seq_extend(&made.recorder, SEQ, sample_tokens, 0, 7, KVP_OK);
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = 3, .seqs = sample_seqs};
    kvpi_record_seq_extend_many(&made.recorder, &batch, KVP_OK);
    kvpi_record_seq_invalidate(&made.recorder, SEQ, 1, 0, KVP_OK, NULL, NULL);
    kvpi_record_step_failed(&made.recorder, 3, 0, KVP_OK, NULL, NULL);
    kvpi_record_events_snapshot(&made.recorder, 3, 1, KVP_OK, NULL, NULL, 0, 1);
    kvpi_record_events_snapshot(&made.recorder, 3, 0, KVP_OK, sample_events, NULL, SAMPLE_EVENTS,
                                1);
    sample_end(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
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
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.no_report, 1);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.with_tokens, 1);
    assert_fields(*kvpi_oplog_results(log), has_tokens, 1, has_digest, 0);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.with_tokens, 0);
    assert_int_equal(kvpi_oplog_results(log)->has_tokens, 0);
    check_digest(kvpi_oplog_results(log), SAMPLE_EVENTS);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

/* The arrays of a tree, each given or not; no nodes, with a pointer or without; more room than can
 * be needed. */
TEST(test_trees_have_what_was_asked_for)
{
    struct sample_log made;
    kvp_record record;
    int at_end;
    const uint32_t five = 5, zero = 0;
    sample_begin(&made);
    kvpi_record_seq_tree(&made.recorder, SEQ, 5, KVP_OK, sample_tokens, NULL, &five);
    kvpi_record_seq_tree(&made.recorder, SEQ, 5, KVP_OK, NULL, sample_parents, &five);
    kvpi_record_seq_tree(&made.recorder, SEQ, 5, KVP_OK, NULL, NULL, &zero);
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = 1, .seqs = sample_seqs};
    batch.n_tokens = &zero;
    kvpi_record_seq_extend_tree(&made.recorder, &batch, NULL, KVP_OK);
    kvpi_record_seq_extend_tree(&made.recorder, &batch, sample_parents, KVP_OK);
    kvp_accept accept = {sizeof accept, 0, UINT32_MAX, sample_seqs, sample_leaves, NULL, 0, 0};
    made.recorder.max_seqs = 2;
    for (accept.n_seqs = 0; accept.n_seqs < 4; accept.n_seqs++)
        kvpi_record_seq_accept(&made.recorder, &accept, SAMPLE_GROUPS, KVP_OK);
    sample_end(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    const struct kvpi_oplog_results *results = kvpi_oplog_results(log);
    for (int i = 0; i < 3; i++) {
        const int32_t *nodes = i == 0 ? sample_tokens : sample_parents;
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_fields(record.call, with_tokens, i == 0, with_parents, i == 1);
        assert_int_equal(results->has_digest, i < 2);
        assert_true(i == 2 ||
                    results->digest == digest_of(nodes, 5 * sizeof *nodes, sizeof *nodes));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.n_tokens, 0);
        assert_int_equal(record.call.parents != NULL, i == 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.count, 300 * (i < 2 ? i : 2));
    }
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

/* The caller's array as it was where an event has no tokens: nothing of it may be in a log. */
TEST(test_tokens_that_no_event_has_are_not_looked_at)
{
    struct sample_log made[2];
    int32_t tokens[SAMPLE_EVENTS * SAMPLE_U];
    memcpy(tokens, sample_event_tokens, sizeof tokens);
    for (int i = 0; i < 3; i++) {
        sample_begin(&made[i % 2]);
        kvpi_record_events_snapshot(&made[i % 2].recorder, 9, 1, KVP_OK, sample_events, tokens, 3,
                                    1);
        sample_end(&made[i % 2]);
        if (i == 0)
            memset(tokens + SAMPLE_U, 7, SAMPLE_U * sizeof *tokens);
        if (i == 1) {
            assert_int_equal(made[0].memory.n_bytes, made[1].memory.n_bytes);
            assert_memory_equal(made[0].memory.bytes, made[1].memory.bytes, made[0].memory.n_bytes);
            free(made[0].memory.bytes);
            tokens[2 * SAMPLE_U]++; /* and what an event has is looked at */
        }
    }
    assert_memory_not_equal(made[0].memory.bytes, made[1].memory.bytes, made[0].memory.n_bytes);
    free(made[0].memory.bytes);
    free(made[1].memory.bytes);
}

/* Arrays longer than the writer's buffer go past it, in order. */
TEST(test_long_arrays)
{
    enum { N = 100000 };
    struct sample_log made;
    kvp_record record;
    int at_end;
    int32_t *tokens = malloc(N * sizeof *tokens);
    kvp_seq *seqs = malloc(N * sizeof *seqs);
    uint32_t *counts = malloc(N * sizeof *counts);
    for (uint32_t i = 0; i < N; i++) {
        tokens[i] = (int32_t)(i * 2654435761u >> 1);
        seqs[i].bits = SAMPLE_CACHE_BITS | (i + 1);
        counts[i] = i;
    }
    sample_begin(&made);
    for (uint32_t n = 0; n < 400; n++)
        kvpi_record_seq_extend(&made.recorder, SEQ, tokens, n, n, KVP_OK);
    for (uint32_t n = 0; n < 200; n++) {
        kvp_prompt prompt = sample_prompt();
        prompt.tokens = tokens;
        prompt.n_tokens = n;
        prompt.hashes = NULL;
        kvpi_record_decision(&made.recorder, 1);
        kvpi_record_seq_open(&made.recorder, sample_ns, &prompt, KVP_OK, &SEQ, &sample_open_info);
    }
    kvpi_record_seq_extend(&made.recorder, SEQ, tokens, N, 1, KVP_OK);
    kvpi_record_seq_commit_many(&made.recorder, seqs, counts, N, KVP_OK);
    /* Handles of ten bytes, and some of nine: the last one ends anywhere in the buffer. */
    for (uint32_t i = 0; i < 300; i++)
        seqs[i].bits = (i < 10 ? UINT64_C(1) << 62 : UINT64_C(1) << 63) ^ SAMPLE_CACHE_BITS ^ i;
    for (uint32_t n = 40; n < 290; n++)
        kvpi_record_seq_swap_in(&made.recorder, seqs + n % 10, n, UINT32_MAX - n, KVP_OK,
                                &sample_swapped);
    sample_end(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
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
    for (uint32_t n = 40; n < 290; n++) {
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_true(record.call.n_seqs == n && record.call.reserve_tokens == UINT32_MAX - n);
        assert_true(record.call.handles[n - 1] == portable(seqs[n % 10 + n - 1].bits));
        assert_memory_equal(&kvpi_oplog_results(log)->outcome.u.swapped, &sample_swapped,
                            sizeof sample_swapped);
    }
    kvp_oplog_close(log);
    free(tokens);
    free(seqs);
    free(counts);
    free(made.memory.bytes);
}

TEST(test_a_log_with_states)
{
    static const uint8_t kept[] = {60, 0x81, 0x80, 0x40, 0, KVP_CHECKPOINT_MADE};
    static const uint8_t refused[] = {60, 0x81, 0x80, 0x40, 3};
    kvp_config config = sample_config(), read; /* what is read belongs to the log */
    kvp_record record;
    int at_end;
    struct sample_log made = {.recorder.cache_bits = SAMPLE_CACHE_BITS};
    const kvp_sink sink = {&made.memory, kvpi_oplog_memory_write};
    config.host_blocks = config.steps = config.max_loads = 0;
    config.state_slots = 300;
    assert_int_equal(kvpi_record_begin(&made.recorder, &sink, &config), KVP_OK);
    assert_memory_equal(made.memory.bytes, "kvpops1\n\x08\x04\x80\x08\x80\x02\x80\x80\x02\x10", 18);
    kvpi_record_seq_checkpoint(&made.recorder, SEQ, KVP_OK, KVP_CHECKPOINT_MADE);
    assert_memory_equal(made.memory.bytes + made.memory.n_bytes - sizeof kept, kept, sizeof kept);
    kvpi_record_seq_checkpoint(&made.recorder, SEQ, KVP_E_STATE, KVP_CHECKPOINT_SKIPPED);
    assert_memory_equal(made.memory.bytes + made.memory.n_bytes - sizeof refused, refused,
                        sizeof refused);
    kvpi_record_cache_config_get(&made.recorder, KVP_OK, &config);
    sample_end(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    assert_int_equal(kvp_oplog_config(log, &read), KVP_OK);
    assert_int_equal(read.state_slots, 300);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.op, KVP_CALL_CHECKPOINT);
    assert_true(record.call.handle == portable(SEQ.bits));
    assert_int_equal(kvpi_oplog_results(log)->outcome.n, KVP_CHECKPOINT_MADE);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.status, KVP_E_STATE);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.op, KVP_CALL_CONFIG);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(at_end, 1);
    kvp_oplog_close(log);
    free(made.memory.bytes);
    made = (struct sample_log){.recorder.cache_bits = SAMPLE_CACHE_BITS};
    config.host_blocks = 9;
    config.host_state_slots = 200;
    assert_int_equal(kvpi_record_begin(&made.recorder, &sink, &config), KVP_OK);
    sample_end(&made);
    log = sample_open(made.memory.bytes, made.memory.n_bytes);
    assert_int_equal(kvp_oplog_config(log, &read), KVP_OK);
    assert_int_equal(read.host_state_slots, 200);
    kvp_oplog_close(log);
    free(made.memory.bytes);
    sample_begin(&made);
    sample_end(&made);
    assert_int_equal(kvp_oplog_open(made.memory.bytes, 8, &log), KVP_E_FORMAT);
    made.memory.bytes[6] = '2';
    assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log), KVP_E_VERSION);
    free(made.memory.bytes);
}

/* --------------------------------------------------------------------------------------- frozen */

TEST(test_the_bytes_are_frozen)
{
    static const uint8_t extend[] = {6, 0x81, 0x80, 0x40, 5, 1, 3, 1,    0, 0, 0, 2,
                                     0, 0,    0,    3,    0, 0, 0, 0x80, 0, 0, 0, 0};
    static const uint8_t swap_in[] = {35, 1, 0x81, 0x80, 0x40, 5, 0, 0xac, 2, 2, 4, 0xf1, 0xa2, 4};
    struct sample_log made;
    sample_begin(&made);
    kvpi_record_seq_swap_in(&made.recorder, &SEQ, 1, 5, KVP_OK, &sample_swapped);
    assert_memory_equal(made.memory.bytes + made.memory.n_bytes - sizeof swap_in, swap_in,
                        sizeof swap_in);
    free(made.memory.bytes);
    sample_begin(&made);
    size_t header_bytes = made.memory.n_bytes;
    kvpi_record_decision(&made.recorder, 1);
    made.recorder.decisions = UINT64_C(0x100000001); /* folds to 0: still said to be there */
    kvpi_record_seq_extend(&made.recorder, SEQ, sample_tokens, 3, 5, KVP_OK);
    assert_int_equal(made.memory.n_bytes - header_bytes, sizeof extend);
    assert_memory_equal(made.memory.bytes + header_bytes, extend, sizeof extend);
    assert_memory_equal(made.memory.bytes, "kvpops1\n\x08\x04\x80\x08\x80\x02\x80\x80\x02\x10", 18);
    free(made.memory.bytes);
    /* All the rest by its Adler-32. */
    sample_write_all(&made);
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < made.memory.n_bytes; i++) {
        a = (a + made.memory.bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    assert_int_equal(made.memory.n_bytes, FROZEN_BYTES);
    assert_int_equal(b << 16 | a, FROZEN_ADLER32);
    free(made.memory.bytes);
}

TEST_MAIN(NULL, NULL)

/* Logs of real runs with calls left out: what is left is a log again, with the handles and steps
 * that it has now. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/oplog.h>

#include "oplog_drive.h"
#include "oplog/oplog.h"
#include "oplog/rerun.h"

static void rerun_everything(uint64_t seed)
{
    static struct oplog_driver d;
    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory again = {0};
    uint32_t items[400];
    size_t n_used;
    oplog_drive_run(&d, seed, 400);
    kvp_oplog *log = oplog_drive_open(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(rerun.n_records, 400);
    for (uint32_t i = 0; i < 400; i++)
        items[i] = i;
    kvp_sink sink = {&again, kvpi_oplog_memory_write};
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 400, 1, &sink, &n_used), KVP_OK);
    assert_int_equal(n_used, 400);
    assert_int_equal(again.n_bytes, d.log.n_bytes);
    assert_memory_equal(again.bytes, d.log.bytes, again.n_bytes);
    free(again.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

TEST(test_a_rerun_of_everything_is_the_same_log)
{
    for (uint64_t seed = 6; seed <= 8; seed++)
        rerun_everything(seed);
}

TEST(test_a_rerun_of_some_is_a_log)
{
    static struct oplog_driver d;
    struct kvpi_oplog_rerun rerun;
    oplog_drive_run(&d, 8, 400);
    kvp_oplog *log = oplog_drive_open(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    for (uint32_t step = 2; step < 40; step++) {
        struct kvpi_oplog_memory part = {0};
        kvp_sink sink = {&part, kvpi_oplog_memory_write};
        uint32_t items[400];
        size_t n = 0, n_used;
        for (uint32_t i = 0; i < 400; i++)
            if (i % step != step - 1)
                items[n++] = i;
        assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, n, 1, &sink, &n_used), KVP_OK);
        assert_true(rerun.n_calls > 100 && rerun.n_calls <= n);
        kvp_oplog *again = oplog_drive_open(&part);
        uint64_t index;
        assert_int_equal(kvp_oplog_replay(again, 0, &index), KVP_OK);
        kvp_oplog_close(again);
        free(part.bytes);
    }
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

/* Runs calls and records them. Gives the handle that the last one made. */
static uint64_t append(struct oplog_driver *d, kvp_call call)
{
    assert_int_equal(kvpi_oplog_replay_call(&d->replay, &call, 3), KVP_OK);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    return d->replay.outcome.handle;
}

/* Without the first open, the second sequence gets its place and handle. The rerun follows it, and
 * leaves out what the first one did. */
TEST(test_a_rerun_follows_handles)
{
    static struct oplog_driver d;
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvp_config config = oplog_drive_small();
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 5};
    uint64_t first = append(&d, open);
    uint64_t second = append(&d, open);
    append(&d, (kvp_call){.op = KVP_CALL_COMMIT, .handle = first, .position = 2});
    const uint64_t both[] = {first, second};
    const uint32_t counts[] = {3, 1};
    append(&d, (kvp_call){.op = KVP_CALL_EXTEND_MANY,
                          .handles = both,
                          .n_seqs = 2,
                          .counts = counts,
                          .tokens = tokens,
                          .n_tokens = 4});
    append(&d, (kvp_call){.op = KVP_CALL_CLOSE, .handle = second});
    append(&d, (kvp_call){.op = KVP_CALL_CLOSE, .handle = UINT64_C(0xdead)});

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 2, 3, 4, 5, 6};
    size_t n_used;
    kvp_oplog *log = oplog_drive_open(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 6, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 5); /* the commit of the first sequence went with it */
    kvp_oplog *again = oplog_drive_open(&part);
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(kvpi_oplog_results(again)->outcome.handle == first);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.n_seqs, 1);
    assert_true(record.call.handles[0] == first);
    assert_int_equal(record.call.n_tokens, 1);
    assert_int_equal(record.call.tokens[0], 4); /* the first sequence's three went with it */
    assert_int_equal(record.status, KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(record.call.handle == first && record.status == KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(record.call.handle == UINT64_C(0xdead) && record.status == KVP_E_HANDLE);
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

/* The same in every call that names several sequences: the first one is taken out. */
TEST(test_a_rerun_follows_handles_of_many)
{
    static struct oplog_driver d;
    static const int32_t tokens[] = {1, 2, 3, 4};
    static const uint32_t ops[] = {
        KVP_CALL_COMMIT_MANY, KVP_CALL_STEP_COMMIT, KVP_CALL_CAN_EXTEND,  KVP_CALL_CAN_SWAP_OUT,
        KVP_CALL_STEP_DONE,   KVP_CALL_EXTEND_TREE, KVP_CALL_STEP_BEGIN,  KVP_CALL_STEP_DONE,
        KVP_CALL_ACCEPT,      KVP_CALL_SWAP_OUT,    KVP_CALL_CAN_SWAP_IN, KVP_CALL_SWAP_IN};
    static const int32_t parents[] = {-1, -1, 0, 0};
    static const int32_t leaves[] = {-1, 2};
    const uint32_t counts[] = {1, 3};
    kvp_config config = oplog_drive_config(4);
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 3};
    uint64_t handles[2];
    for (int i = 0; i < 2; i++)
        handles[i] = append(&d, open);
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN, .count = 9});
    uint64_t n_done = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        int is_tree = ops[i] == KVP_CALL_EXTEND_TREE;
        append(&d, (kvp_call){.op = ops[i],
                              .number = ops[i] == KVP_CALL_STEP_COMMIT ? 1
                                        : ops[i] == KVP_CALL_STEP_DONE ? ++n_done
                                                                       : 0,
                              .count = 4,
                              .handles = handles,
                              .counts = counts,
                              .tokens = is_tree ? tokens : NULL,
                              .parents = is_tree ? parents : NULL,
                              .n_tokens = is_tree ? 4 : 0,
                              .leaves = leaves,
                              .n_seqs = 2});
    }

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    size_t n_used;
    kvp_oplog *log = oplog_drive_open(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 15, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 15);
    kvp_oplog *again = oplog_drive_open(&part);
    kvp_record record;
    int at_end;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.op, ops[i]);
        assert_int_equal(record.status, KVP_OK);
        if (ops[i] == KVP_CALL_STEP_BEGIN || ops[i] == KVP_CALL_STEP_DONE)
            continue;
        assert_int_equal(record.call.n_seqs, 1);
        assert_true(record.call.handles[0] == handles[0]);
        assert_true(record.call.counts == NULL || record.call.counts[0] == 3);
        if (ops[i] == KVP_CALL_EXTEND_TREE) {
            assert_int_equal(record.call.n_tokens, 3);
            assert_memory_equal(record.call.tokens, tokens + 1, 3 * sizeof *tokens);
            assert_memory_equal(record.call.parents, parents + 1, 3 * sizeof *parents);
        }
        if (ops[i] == KVP_CALL_ACCEPT) {
            assert_int_equal(record.call.leaves[0], 2);
            assert_int_equal(kvpi_oplog_results(again)->outcome.n, 1);
        }
    }
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

/* Without the first step, the second one gets its number. The rerun follows it, and leaves out what
 * was said of the first one; a step that was never begun stays the number it is. */
TEST(test_a_rerun_follows_steps)
{
    static struct oplog_driver d;
    kvp_config config = oplog_drive_config(4);
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    const uint64_t seq =
        append(&d, (kvp_call){.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 5});
    const uint32_t five = 5;
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN, .count = 9});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN, .count = 9});
    kvp_call commit = {.op = KVP_CALL_STEP_COMMIT, .handles = &seq, .counts = &five, .n_seqs = 1};
    for (commit.number = 1; commit.number <= 2; commit.number++)
        append(&d, commit);
    append(&d, (kvp_call){.op = KVP_CALL_STEP_DONE, .number = 7});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_FAILED, .number = 1});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_DONE, .number = 2});

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 1, 3, 4, 5, 6, 7, 8};
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint32_t ops[] = {KVP_CALL_NS_OPEN,     KVP_CALL_OPEN,      KVP_CALL_STEP_BEGIN,
                                   KVP_CALL_STEP_COMMIT, KVP_CALL_STEP_DONE, KVP_CALL_STEP_DONE};
    static const uint64_t numbers[] = {0, 0, 0, 1, 7, 1};
    size_t n_used;
    kvp_oplog *log = oplog_drive_open(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    /* All of it first: what that run made is forgotten. */
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, all, 9, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 9);
    part.n_bytes = 0;
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 8, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 6); /* what was said of the first step went with it */
    kvp_oplog *again = oplog_drive_open(&part);
    for (size_t i = 0; i < 6; i++) {
        kvp_record record;
        int at_end;
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
        assert_fields(record.call, op, ops[i], number, numbers[i]);
        assert_int_equal(record.status, numbers[i] == 7 ? KVP_E_ARG : KVP_OK);
    }
    assert_int_equal(kvpi_oplog_results(again)->outcome.number, 1);
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

TEST_MAIN(NULL, NULL)

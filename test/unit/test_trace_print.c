/* How `kvpager trace show` writes calls: a line for each call of a log, none forgotten. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oplog_sample.h"
#include "tool/log/trace.h"
#include "world.h"

#define PROMPT                                                                                     \
    "ns=0x80000005, tokens=[1 2 3 4 5 6 7 300 ...](10), reserve_tokens=200, n_hashes=2, "          \
    "keys=[type 9 at 0..4 616263(3 B); type 10 at 2..9 (0 B)], uncached=3..4, "                    \
    "uncached=5..4294967295, NO_MATCH, retention=7, tag=18446744073709551615"
#define BATCH "seqs=[0x100001 0x100002 0x0], counts=[2 0 3], tokens=[1 2 3 4 5]"
#define KEYS  "reserve_tokens=6, keys=[type 9 at 0..4 616263(3 B)]"

/* Each call of the sample. One that is not here fails. */
static const char *const calls[SAMPLE_CALLS + 1] = {
    [KVP_CALL_NS_OPEN] = "ns_open(name=\"a\\x00b\")",
    [KVP_CALL_NS_CLOSE] = "ns_close(ns=0x80000005)",
    [KVP_CALL_NS_FLUSH] = "ns_flush(ns=0x80000005)",
    [KVP_CALL_MATCH] = "match(" PROMPT ")",
    [KVP_CALL_OPEN] = "seq_open(" PROMPT ")",
    [KVP_CALL_EXTEND] = "seq_extend(seq=0x100001, reserve_tokens=5, tokens=[1 2 3])",
    [KVP_CALL_EXTEND_MANY] = "seq_extend_many(" BATCH ", " KEYS ", EACH)",
    [KVP_CALL_FILL] = "seq_fill(seq=0x100001, tokens=[1 2 3])",
    [KVP_CALL_FILL_MANY] = "seq_fill_many(" BATCH ", " KEYS ", EACH)",
    [KVP_CALL_COMMIT] = "seq_commit(seq=0x100001, n_tokens=1000)",
    [KVP_CALL_COMMIT_MANY] = "seq_commit_many(seqs=[0x100001 0x100002 0x0], n_tokens=[2 0 3])",
    [KVP_CALL_INVALIDATE] = "seq_invalidate(seq=0x100001, from=17, capacity=8)",
    [KVP_CALL_FORK] = "seq_fork(seq=0x100001, at=END, tag=42)",
    [KVP_CALL_TRUNCATE] = "seq_truncate(seq=0x100001, n_tokens=5)",
    [KVP_CALL_CLOSE] = "seq_close(seq=0x100001)",
    [KVP_CALL_SEQ_TOKENS] = "seq_tokens(seq=0x100001, from=1, n_tokens=10)",
    [KVP_CALL_SEQ_BLOCK_TOKENS] = "seq_block_tokens(seq=0x100001, block_idx=6)",
    [KVP_CALL_ROW] = "seq_row(seq=0x100001, group=1)",
    [KVP_CALL_SLOTS] = "seq_slots(seq=0x100001, group=1, from=2, n_tokens=3)",
    [KVP_CALL_RETAIN] = "seq_retain(seq=0x100001, range=5..4294967295, retention=7)",
    [KVP_CALL_UNCACHE] = "seq_uncache(seq=0x100001, range=5..4294967295)",
    [KVP_CALL_CAN_OPEN] = "can_open(" PROMPT ")",
    [KVP_CALL_CAN_EXTEND] = "can_extend(" BATCH ", " KEYS ", EACH)",
    [KVP_CALL_PLAN_TAKE] = "plan_take(capacity=9)",
    [KVP_CALL_EVICTED] = "cache_evicted()",
    [KVP_CALL_BLOCK_INFO] = "block_info_get(group=1, tier=2, block=-5)",
    [KVP_CALL_BLOCK_TOKENS] = "block_tokens(group=1, host, block=99)",
    [KVP_CALL_STATS] = "cache_stats()",
    [KVP_CALL_SHORTAGE] = "cache_shortage()",
    [KVP_CALL_CHECK] = "check(level=-3)",
    [KVP_CALL_RESET] = "cache_reset()",
    [KVP_CALL_CONFIG] = "cache_config()",
    [KVP_CALL_SWAP_OUT] = "seq_swap_out(seqs=[0x100001 0x100002 0x0])",
    [KVP_CALL_SWAP_IN] = "seq_swap_in(seqs=[0x100001 0x100002 0x0], reserve_tokens=5)",
    [KVP_CALL_CAN_SWAP_OUT] = "can_swap_out(seqs=[0x100001 0x100002 0x0])",
    [KVP_CALL_CAN_SWAP_IN] = "can_swap_in(seqs=[0x100001 0x100002 0x0], reserve_tokens=5)",
    [KVP_CALL_STEP_BEGIN] = "step_begin(capacity=9)",
    [KVP_CALL_STEP_COMMIT] =
        "step_commit(step=1099511627776, seqs=[0x100001 0x100002 0x0], n_tokens=[2 0 3])",
    [KVP_CALL_STEP_DONE] = "step_done(step=1099511627776)",
    [KVP_CALL_STEP_FAILED] = "step_failed(step=1099511627776, capacity=8)",
    [KVP_CALL_EVENTS_SNAPSHOT] = "events_snapshot(capacity=9, with_tokens)",
    [KVP_CALL_WINDOW] = "seq_window(seq=0x100001, group=2, window=4+1048576)",
    [KVP_CALL_WINDOW_GET] = "seq_window_get(seq=0x100001, group=2)",
    [KVP_CALL_EXTEND_TREE] =
        "seq_extend_tree(" BATCH ", parents=[-1 0 2147483647 -1 300], " KEYS ")",
    [KVP_CALL_ACCEPT] = "seq_accept(seqs=[0x100001 0x100002 0x0], leaves=[-1 299 0], max_moves=5)",
    [KVP_CALL_TREE] = "seq_tree(seq=0x100001, capacity=9, with_tokens, with_parents)",
    [KVP_CALL_NS_QUOTA] = "ns_quota(ns=0x80000005, host, n_blocks=4711)",
    [KVP_CALL_NS_INFO] = "ns_info_get(ns=0x80000005)",
    [KVP_CALL_PLAN_DONE] = "plan_done(n_plans=2199023255552)",
    [KVP_CALL_MIRROR] = "mirror(blocks=[1 2 3 4], spare_blocks=4711)",
    [KVP_CALL_BLOCKS_LEND] = "blocks_lend(blocks=[1 2 3 4])",
    [KVP_CALL_BLOCKS_RETURN] = "blocks_return(blocks=[1 2 3 4])",
    [KVP_CALL_LOAD_BEGIN] = "load_begin(" PROMPT ", group=2, entries=300..304, spare_blocks=4711)",
    [KVP_CALL_LOAD_DONE] = "load_done(load=2199023255552, whole=[1 0 1])",
    [KVP_CALL_LOAD_CANCEL] = "load_cancel(load=2199023255552)",
    [KVP_CALL_DROP] = "cache_drop(host, blocks=[1 2 3 4])",
    [KVP_CALL_RECLAIM] = "cache_reclaim(n_blocks=4711)",
};

/* What these gave, as it begins; of the others `kvpager trace` is tested. */
static const char *const results[SAMPLE_CALLS + 1] = {
    [KVP_CALL_MIRROR] = "= KVP_OK copied=300 found=2 left_out=1",
    [KVP_CALL_LOAD_BEGIN] =
        "= KVP_OK load=2199023255552 after=70000 n_blocks=3 n_found=200 n_elsewhere=5",
    [KVP_CALL_LOAD_DONE] = "= KVP_OK cached=1 dropped=200 failed=30000",
    [KVP_CALL_DROP] = "= KVP_OK n_dropped=300",
    [KVP_CALL_RECLAIM] = "= KVP_OK n_reclaimed=300",
};

static void check_text(const char *expected, const char *text, uint32_t op)
{
    if (expected == NULL || strncmp(expected, text, strlen(expected)) != 0)
        fail_msg("op %u: %s\n  expected: %s", (unsigned)op, text, expected ? expected : "nothing");
}

/* Print the call, and with `gave` what it gave; checks it against what is expected. */
static void check_line(const kvp_call *call, const struct kvpi_oplog_results *gave,
                       const char *expected)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    if (gave == NULL)
        kvpi_trace_print_call(out, call);
    else
        kvpi_trace_print_results(out, call, gave, 1);
    assert_int_equal(fclose(out), 0);
    check_text(expected, text, call->op);
    free(text);
}

/* Chunks are no window of sinks, and say so. */
TEST(test_windows)
{
    static const struct {
        kvp_window window;
        const char *text;
    } windows[] = {{{0, 0}, "seq_window(seq=0x7, window=full)"},
                   {{3, 9}, "seq_window(seq=0x7, window=3+9)"},
                   {{KVP_CHUNKED, 8}, "seq_window(seq=0x7, window=chunks of 8)"}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const kvp_call call = {.op = KVP_CALL_WINDOW, .handle = 7, .window = windows[i].window};
        check_line(&call, NULL, windows[i].text);
    }
    kvp_config config;
    char *text = NULL;
    size_t n_bytes = 0;
    kvp_config_init(&config);
    config.groups[0] = (kvp_group){KVP_CHUNKED, 8, 0};
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    kvpi_trace_print_config(out, &config);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, " n_groups=1 window=chunks of 8\n"));
    free(text);
}

TEST(test_every_call_has_its_arguments)
{
    struct sample_log made;
    uint32_t n = 0;
    sample_write_all(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    for (; n < SAMPLE_RECORDED; n++) {
        kvp_record record;
        int at_end;
        assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
        assert_int_equal(record.status, KVP_OK);
        check_line(&record.call, NULL, calls[record.call.op]);
        if (results[record.call.op] != NULL)
            check_line(&record.call, kvpi_oplog_results(log), results[record.call.op]);
    }
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

TEST_MAIN(NULL, NULL)

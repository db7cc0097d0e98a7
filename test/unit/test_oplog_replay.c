/* Logs of real runs: what was recorded replays bit for bit; what was altered is found where it
 * was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/oplog.h>

#include "oplog_calls.h"
#include "oplog_drive.h"
#include "oplog/oplog.h"
#include "oplog/replay.h"

TEST(test_recorded_runs_replay_bit_for_bit)
{
    static struct oplog_driver d;
    uint32_t n_ok[OPLOG_DRIVE_CALLS + 1] = {0};
    uint32_t n_moves = 0, n_dropped = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t index = UINT64_MAX;
        oplog_drive_run(&d, seed, 500);
        kvp_oplog *log = oplog_drive_open(&d.log);
        assert_int_equal(kvp_oplog_replay(log, seed % 2 == 0 ? 3 : 0, &index), KVP_OK);
        assert_true(index == UINT64_MAX);
        kvp_oplog_close(log);
        for (uint32_t op = 1; op <= OPLOG_DRIVE_CALLS; op++)
            n_ok[op] += d.n_ok[op];
        n_moves += d.n_moves;
        n_dropped += d.n_dropped;
        oplog_drive_end(&d);
    }
    for (uint32_t op = 1; op <= OPLOG_DRIVE_CALLS; op++)
        if (n_ok[op] == 0 && oplog_has_call(op))
            fail_msg("%s never succeeded", kvp_oplog_call_name(op));
    assert_true(n_moves > 20 && n_dropped > 20);
}

/* Every byte of the results is altered once; whatever is still a log must be found to differ, at
 * the record that was altered. */
static void alter_results(uint64_t seed)
{
    static struct oplog_driver d;
    oplog_drive_run(&d, seed, 200);
    kvp_oplog *log = oplog_drive_open(&d.log);
    kvp_record record;
    int at_end;
    uint64_t n_found = 0, n_damaged = 0;
    while (kvp_oplog_next(log, &record, &at_end) == KVP_OK && at_end == 0) {
        uint64_t offset = kvp_oplog_offset(log);
        uint8_t *first = d.log.bytes + offset - record.n_result_bytes;
        for (size_t i = 0; i < record.n_result_bytes; i++) {
            uint64_t index = UINT64_MAX;
            first[i] ^= 1;
            kvp_status status = kvp_oplog_replay(log, 0, &index);
            assert_true(status == KVP_E_MISMATCH || status == KVP_E_FORMAT);
            if (status == KVP_E_MISMATCH)
                assert_int_equal(index, record.index);
            n_found += status == KVP_E_MISMATCH;
            n_damaged += status == KVP_E_FORMAT;
            first[i] ^= 1;
        }
        kvpi_oplog_seek(log, offset, record.index + 1);
    }
    assert_true(n_found > 300 && n_found > 10 * n_damaged);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

TEST(test_altered_results_are_found)
{
    for (uint64_t seed = 2; seed <= 4; seed++)
        alter_results(seed);
}

TEST(test_a_cut_log_replays_as_far_as_it_goes)
{
    static struct oplog_driver d;
    oplog_drive_run(&d, 5, 60);
    d.log.n_bytes -= 1;
    kvp_oplog *log = oplog_drive_open(&d.log);
    uint64_t index = 0;
    assert_int_equal(kvp_oplog_replay(log, 3, &index), KVP_E_FORMAT);
    assert_int_equal(index, 59);
    kvp_oplog_close(log);
    oplog_drive_end(&d);
}

/* Every argument that is a number, as `huge`, one after the other. */
static void make_hostile_calls(struct kvpi_oplog_replay *replay, uint64_t seq, uint32_t huge)
{
    for (uint32_t op = KVP_CALL_NS_OPEN; op <= KVP_CALL_BLOCK_PREFIX; op++)
        for (int place = 0; place < 5; place++) {
            const int32_t leaf = place == 0 ? (int32_t)huge : -1;
            kvp_call call = {.op = op,
                             .handle = op <= KVP_CALL_OPEN || op >= KVP_CALL_NS_QUOTA ? 1 : seq};
            call.position = place == 0 ? huge : 0;
            call.count = place == 1 ? huge : 0;
            call.group = place == 2 ? huge : 0;
            call.tier = place == 4 ? huge : 0;
            call.number = place == 4 ? huge : 1;
            call.block = (int32_t)huge;
            call.reserve_tokens = place == 3 ? huge : 0;
            call.range = (kvp_range){0, huge};
            call.with_tokens = 1;
            call.with_parents = 1;
            call.window = (kvp_window){place == 2 ? huge : 0, place == 3 ? huge : 4};
            call.leaves = &leaf;
            call.handles = &seq;
            call.name = (const uint8_t *)"";
            call.n_seqs = op == KVP_CALL_COMMIT_MANY || op == KVP_CALL_FILL_MANY ? 0 : 1;
            call.counts = op == KVP_CALL_EXTEND_TREE ? NULL : &huge;
            if (op == KVP_CALL_EXTEND_TREE) {
                call.tokens = call.parents = &leaf;
                call.n_tokens = 1;
            }
            if (op == KVP_CALL_RESET || op == KVP_CALL_CLOSE || op == KVP_CALL_SWAP_OUT)
                continue;
            assert_int_equal(kvpi_oplog_replay_call(replay, &call, 3), KVP_OK);
        }
}

/* Counts that no call of this size of cache can have: refused, not followed. */
static void hostile_calls_on(const kvp_config *config)
{
    static const uint32_t huge[] = {61, 1000, 1u << 20, UINT32_MAX - 1, UINT32_MAX};
    struct kvpi_oplog_replay replay;
    kvp_config resolved;
    assert_int_equal(kvpi_oplog_replay_begin(&replay, config), KVP_OK);
    kvp_call call = {.op = KVP_CALL_NS_OPEN};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    call = (kvp_call){
        .op = KVP_CALL_OPEN, .handle = replay.outcome.handle, .tokens = tokens, .n_tokens = 5};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    uint64_t seq = replay.outcome.handle;
    call = (kvp_call){.op = KVP_CALL_COMMIT, .handle = seq, .position = 4};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        make_hostile_calls(&replay, seq, huge[i]);
    call = (kvp_call){.op = KVP_CALL_PROMPT_END + 1};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 0), KVP_E_ARG);
    kvp_hash hash = {{0}};
    call = (kvp_call){
        .op = KVP_CALL_OPEN, .tokens = tokens, .n_tokens = 1, .hashes = &hash, .n_hashes = 1};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 0), KVP_E_ARG);
    /* The most is a snapshot: every node in both tiers and each group, an event and U tokens
     * each; and the handle that every call here has. */
    kvp_config_init(&resolved);
    assert_int_equal(kvp_cache_config_peek(replay.cache, &resolved), KVP_OK);
    const size_t most = 2 * (size_t)resolved.n_groups * resolved.n_nodes *
                        (sizeof(kvp_event) + resolved.unit_tokens * 4);
    assert_true(replay.outcome.storage_bytes <= most + sizeof(kvp_seq));
    kvpi_oplog_replay_end(&replay);
}

TEST(test_hostile_calls_are_harmless)
{
    for (uint64_t seed = 2; seed <= 4; seed++) {
        kvp_config config = oplog_drive_config(seed);
        hostile_calls_on(&config);
    }
}

/* test_oplog_replay --write FILE SEED CALLS: a log for the tests of the command. */
static int write_log(char **argv)
{
    static struct oplog_driver d;
    oplog_drive_run(&d, strtoull(argv[3], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10));
    FILE *file = fopen(argv[2], "wb");
    if (file == NULL)
        return 1;
    size_t n = fwrite(d.log.bytes, 1, d.log.n_bytes, file);
    int failed = fclose(file) != 0 || n != d.log.n_bytes;
    oplog_drive_end(&d);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--write") == 0)
        return write_log(argv);
    return run_all_tests(NULL, NULL);
}

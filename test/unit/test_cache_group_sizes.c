/* Layer groups with blocks of their own sizes (windows.h): the order in which blocks are taken and
 * released, hits, forks and cuts inside the blocks of one group and not of the other, what is told
 * of them, and how logs and snapshots keep the sizes. Every way that blocks can lie is left to the
 * model test. */
#include <kvpager/oplog.h>
#include "groups.h"
#include "snaps.h"
#include "tiers.h"

#include "oplog/replay.h"

#include <stdlib.h>
#include <string.h>

/* U = 4; blocks of 4 with full attention, and of 8 with a window of R tokens; 0: none. */
static kvp_config sizes_config(uint32_t usable, uint32_t R)
{
    const kvp_window windows[] = {{0, 0}, {0, R}};
    kvp_config config = groups_config(4, usable, windows, 2);
    config.groups[1].block_tokens = 8;
    return config;
}

static world sizes_world(uint32_t usable, uint32_t R)
{
    const kvp_config config = sizes_config(usable, R);
    return make_world(&config);
}

/* The first n tokens of ints(0), then others. */
static const int32_t *parting(uint32_t n)
{
    static int32_t tokens[64];
    memcpy(tokens, ints(0), sizeof(tokens));
    tokens[n] = 1000;
    return tokens;
}

TEST(test_blocks_are_taken_in_the_order_of_their_first_tokens)
{
    scoped_world w = sizes_world(30, 0);
    kvp_config config;
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 20, &info);
    assert_row_in(&w, 0, seq, 1, 3, 4, 6, 7);
    assert_row_in(&w, 1, seq, 2, 5, 8);
    assert_int_equal(info.taken_blocks, 8);
    assert_int_equal(info_of(&w, seq).n_blocks, 5); /* of the first group */
    assert_ok(kvp_seq_extend(w.cache, seq, ints(20), 5, 0));
    assert_row_in(&w, 0, seq, 1, 3, 4, 6, 7, 9, 10);
    assert_row_in(&w, 1, seq, 2, 5, 8, 11);
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_int_equal(config.groups[0].block_tokens, 4); /* resolved */
    assert_int_equal(config.groups[1].block_tokens, 8);
    /* 25 tokens: block 10 was the last but one to be taken. Without content they go to the head. */
    assert_released(close_seq(&w, seq), 11, 0);
    assert_queue(&w, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                 22, 23, 24, 25, 26, 27, 28, 29, 30);
}

TEST(test_a_hit_inside_the_blocks_of_one_group)
{
    scoped_world w = sizes_world(15, 0);
    kvp_open_info info;
    leave_cached(&w, ints(0), 20); /* 1 3 4 6 7, and 2 5; 8 has half a block of it */
    const kvp_seq seq = open_seq(&w, parting(12), 16, &info);
    assert_fields(info, hit_tokens, 12, copied_tokens, 4, shared_blocks, 4, taken_blocks, 2);
    assert_row_in(&w, 0, seq, 1, 3, 4, 10);
    assert_row_in(&w, 1, seq, 2, 9);
    assert_plan(&w, {0, 1, KVP_DEVICE, KVP_DEVICE, 5, 9, 4});
    close_seq(&w, seq);
    const kvp_seq whole = open_seq(&w, parting(16), 17, &info); /* both end a block there */
    assert_fields(info, hit_tokens, 16, copied_tokens, 0);
    close_seq(&w, whole);
}

TEST(test_a_fork_copies_what_it_writes_in_one_group)
{
    scoped_world w = sizes_world(15, 0);
    const kvp_seq parent = open_done(&w, ints(0), 16);
    const kvp_seq child = fork_seq(&w, parent, 12);
    assert_row_in(&w, 0, child, 1, 3, 4);
    assert_row_in(&w, 1, child, 2, 5);
    assert_ok(kvp_seq_extend(w.cache, child, ints(100), 1, 0));
    assert_row_in(&w, 0, child, 1, 3, 4, 8);
    assert_row_in(&w, 1, child, 2, 7);
    assert_plan(&w, {0, 1, KVP_DEVICE, KVP_DEVICE, 5, 7, 4});
    close_seq(&w, child);
    close_seq(&w, parent);
}

/* R = 5: with 12 tokens computed, the next query sees from 8 on; with 13 from 9 on. */
TEST(test_a_window_drops_blocks_of_its_own_size)
{
    scoped_world w = sizes_world(15, 5);
    const kvp_seq seq = open_done(&w, ints(0), 11);
    assert_row_in(&w, 0, seq, 1, 3, 4);
    assert_row_in(&w, 1, seq, 2, 5);
    decode(&w, seq, 1);
    assert_row_in(&w, 1, seq, 0, 5);
    assert_int_equal(window_of(&w, 1, seq).dropped_end, 1);
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 11, NULL));
    assert_ok(kvp_seq_truncate(w.cache, seq, 12, NULL));
    close_seq(&w, seq);
}

/* Only the last block, of the group with the smallest, is computed again. */
TEST(test_a_full_hit_ends_at_the_last_block_of_any_group)
{
    kvp_config config = sizes_config(30, 0);
    kvp_open_info info;
    config.full_hit = KVP_FULL_HIT_RECOMPUTE;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 16);
    const kvp_seq seq = open_seq(&w, ints(0), 16, &info);
    assert_fields(info, hit_tokens, 12, copied_tokens, 4, stop, KVP_STOP_FULL_HIT);
    close_seq(&w, seq);
}

/* A token that two groups bring counts once; one that only the larger block has counts, too. */
TEST(test_tokens_from_the_host_count_once)
{
    kvp_config config = sizes_config(14, 0);
    kvp_open_info info;
    config.host_blocks = 30;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);    /* 1 3 4, and 2 5 */
    leave_cached(&w, ints(1000), 36); /* all 14 blocks */
    drop_plan(&w);
    info = match(&w, parting(12), 13);
    assert_fields(info, hit_tokens, 12, host_tokens, 12);
    assert_int_equal(info.host_blocks, 4); /* and half of one */
    const kvp_seq seq = open_seq(&w, parting(12), 13, &info);
    assert_fields(info, host_tokens, 12, copied_tokens, 4);
    close_seq(&w, seq);
}

/* The sources do not fit beside what is taken: the hit ends where blocks of all groups end. */
TEST(test_without_room_only_whole_blocks_of_all_are_hit)
{
    scoped_world w = sizes_world(8, 0);
    leave_cached(&w, ints(0), 20);
    kvp_open_info info = match(&w, parting(12), 20);
    assert_int_equal(info.hit_tokens, 12);
    const kvp_seq seq = open_seq(&w, parting(12), 20, &info);
    assert_fields(info, hit_tokens, 8, copied_tokens, 0, stop, KVP_STOP_NO_ROOM);
    close_seq(&w, seq);
}

TEST(test_slots_and_tokens_of_blocks)
{
    scoped_world w = sizes_world(15, 0);
    int64_t slots[4];
    int32_t tokens[8];
    uint32_t n;
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 6, 4, slots));
    assert_int_equal(slots[0], 3 * 4 + 2);
    assert_int_equal(slots[2], 4 * 4);
    assert_ok(kvp_seq_slots(w.cache, seq, 1, 6, 4, slots));
    assert_int_equal(slots[1], 2 * 8 + 7);
    assert_int_equal(slots[2], 5 * 8);
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 0, 12, 1, slots));
    assert_status(KVP_E_STATE, kvp_seq_slots(w.cache, seq, 1, 12, 1, slots));
    assert_ok(kvp_seq_block_tokens(w.cache, seq, 2, tokens, &n));
    assert_int_equal(n, 4);
    assert_int_equal(tokens[0], 8);
    assert_status(KVP_E_ARG, kvp_seq_block_tokens(w.cache, seq, 3, tokens, &n));
    /* a class is for what the rows of all groups have */
    assert_status(KVP_E_ARG, kvp_seq_retain(w.cache, seq, (kvp_range){0, 13}, 1));
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){8, 12}, 1));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_ok(kvp_block_tokens(w.cache, 1, KVP_DEVICE, 2, tokens, &n));
    assert_int_equal(n, 8);
    assert_int_equal(tokens[7], 7);
    close_seq(&w, seq);
}

TEST(test_a_log_says_the_sizes)
{
    const kvp_config config = sizes_config(15, 9);
    struct kvpi_oplog_memory memory = {0};
    const kvp_sink sink = {&memory, kvpi_oplog_memory_write};
    kvp_config read;
    kvp_oplog *log;
    uint64_t n_calls;
    world w = {0};
    assert_ok(kvp_cache_create(&config, NULL, 0, &w.cache));
    assert_ok(kvp_cache_record_start(w.cache, &sink));
    assert_ok(kvp_ns_open(w.cache, "", 0, &w.ns));
    leave_cached(&w, ints(0), 12);
    kvp_cache_destroy(w.cache);
    assert_ok(kvp_oplog_open(memory.bytes, memory.n_bytes, &log));
    assert_ok(kvp_oplog_config(log, &read));
    assert_int_equal(read.groups[0].block_tokens, 4);
    assert_int_equal(read.groups[1].block_tokens, 8);
    assert_int_equal(read.groups[1].recent_tokens, 9);
    assert_int_equal(read.state_slots, 0);
    assert_ok(kvp_oplog_replay(log, 3, &n_calls));
    kvp_oplog_close(log);
    free(memory.bytes);
}

TEST(test_a_snapshot_says_the_sizes)
{
    scoped_world w = sizes_world(15, 0);
    const kvp_config equal = groups_config(4, 15, (kvp_window[]){{0, 0}, {0, 0}}, 2);
    const kvp_config config = sizes_config(15, 0);
    kvp_snapshot_report report;
    kvp_cache *other;
    leave_cached(&w, ints(0), 16);
    snap s = snap_of(w.cache, NULL);
    assert_ok(kvp_cache_create(&equal, NULL, 0, &other));
    assert_status(KVP_E_MISMATCH, snap_load(&s, other, &report));
    kvp_cache_destroy(other);
    assert_ok(kvp_cache_create(&config, NULL, 0, &other));
    assert_ok(snap_load(&s, other, &report));
    assert_fields(report, blocks, 6, units, 8);
    world r = {.cache = other};
    assert_ok(kvp_ns_open(other, "", 0, &r.ns));
    assert_int_equal(match(&r, parting(12), 13).hit_tokens, 12);
    assert_sound(other);
    snap again = snap_of(other, NULL);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.bytes, s.bytes, s.n);
    snap_drop(&again);
    snap_drop(&s);
    kvp_cache_destroy(other);
}

TEST(test_a_snapshot_says_the_sizes_and_that_there_are_states)
{
    kvp_config config = sizes_config(15, 0);
    kvp_snapshot_report report;
    kvp_snapshot_info info;
    kvp_cache *cache, *other;
    config.state_slots = 4;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    snap s = snap_of(cache, NULL);
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_snapshot_peek(&source, &info));
    assert_int_equal(info.state_slots, 4);
    assert_int_equal(info.groups[1].block_tokens, 8);
    assert_ok(kvp_cache_create(&config, NULL, 0, &other));
    assert_ok(snap_load(&s, other, &report));
    kvp_cache_destroy(other);
    snap_drop(&s);
    kvp_cache_destroy(cache);
}

TEST_MAIN(NULL, NULL)

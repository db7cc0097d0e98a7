/* What can be asked: slots, rows, tokens, blocks, counters; and retention, which decides who goes
 * first. */
#include <string.h>

#include "world.h"

TEST(test_slots_of_computed_tokens_are_none_and_the_rest_are_distinct)
{
    scoped_world w = small_world(15);
    int64_t slots[12];
    leave_cached(&w, ints(0), 4);
    kvp_prompt prompt = prompt_of(ints(0), 10);
    prompt.reserve_tokens = 2;
    const kvp_seq seq = open_with(&w, &prompt, NULL); /* 1 2 3 */
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 0, 12, slots));
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(slots[i], i < 4 ? KVP_NO_SLOT : i + 4);
    assert_ok(kvp_seq_commit(w.cache, seq, 7));
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 6, 2, slots));
    assert_int_equal(slots[0], KVP_NO_SLOT);
    assert_int_equal(slots[1], 11);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 12, 0, NULL));
}

TEST(test_slots_outside_the_row_or_not_writable_are_refused)
{
    scoped_world w = small_world(15);
    int64_t slots[9] = {77};
    const kvp_seq seq = open_seq(&w, ints(0), 6, NULL);
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 0, 0, 9, slots));
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 0, 9, 0, slots));
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 0, UINT32_MAX, UINT32_MAX, slots));
    assert_status(KVP_E_STATE, kvp_seq_slots(w.cache, seq, 0, 0, 7, slots)); /* beyond 6 */
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    const kvp_seq child = fork_seq(&w, seq, 6);
    assert_ok(kvp_seq_slots(w.cache, child, 0, 0, 6, slots));
    assert_status(KVP_E_STATE, kvp_seq_slots(w.cache, child, 0, 6, 1, slots));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 3, NULL, 0, NULL));
    slots[0] = 77;
    assert_status(KVP_E_STATE, kvp_seq_slots(w.cache, seq, 0, 2, 2, slots));
    assert_int_equal(slots[0], 77);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 2, 1, slots));
}

/* M1, T3: no slot that may be written belongs to two sequences. */
TEST(test_writable_slots_of_all_sequences_are_distinct)
{
    const kvp_config config = config_of(4, 2, 40);
    scoped_world w = make_world(&config);
    uint64_t random = 9;
    kvp_seq seqs[6];
    seqs[0] = open_done(&w, ints(0), 9);
    for (int i = 1; i < 6; i++)
        seqs[i] = fork_seq(&w, seqs[0], 9 - (uint32_t)i % 3);
    for (int turn = 0; turn < 200; turn++) {
        uint8_t used[41 * 4] = {0};
        const kvp_seq seq = seqs[draw(&random, 6)];
        const uint32_t tokens = info_of(&w, seq).n_tokens;
        if (tokens > 20) {
            assert_ok(kvp_seq_truncate(w.cache, seq, draw(&random, tokens), NULL));
        } else if (draw(&random, 3) > 0) {
            assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
            assert_ok(kvp_seq_extend(w.cache, seq, ints((int32_t)draw(&random, 3)), 2, 1));
        } else if (info_of(&w, seq).writable_tokens >= tokens) {
            assert_ok(kvp_seq_commit(w.cache, seq, tokens));
        }
        (void)take_plan(&w, (kvp_copy[16]){{0}}, 16);
        for (int i = 0; i < 6; i++) {
            int64_t slots[64];
            const kvp_seq_info info = info_of(&w, seqs[i]);
            const uint32_t n = info.writable_tokens - info.computed_tokens;
            assert_ok(kvp_seq_slots(w.cache, seqs[i], 0, info.computed_tokens, n, slots));
            for (uint32_t k = 0; k < n; k++) {
                assert_in_range(slots[k], 4, sizeof(used) - 1); /* none in the null block */
                assert_int_equal(used[slots[k]]++, 0);
            }
        }
    }
}

TEST(test_tokens_read_back_from_anywhere)
{
    for (uint32_t U = 1; U <= 4; U *= 2) {
        const kvp_config config = config_of(4, U, 15);
        scoped_world w = make_world(&config);
        int32_t tokens[11];
        const kvp_seq seq = open_seq(&w, ints(5), 11, NULL);
        for (uint32_t from = 0; from <= 11; from++) {
            for (uint32_t n = 0; n <= 11 - from; n++) {
                assert_ok(kvp_seq_tokens(w.cache, seq, from, n, tokens));
                assert_memory_equal(tokens, ints(5 + (int32_t)from), n * sizeof(int32_t));
            }
        }
        assert_status(KVP_E_ARG, kvp_seq_tokens(w.cache, seq, 0, 12, tokens));
        assert_status(KVP_E_ARG, kvp_seq_tokens(w.cache, seq, 12, 0, tokens));
        assert_status(KVP_E_ARG, kvp_seq_tokens(w.cache, seq, 4, UINT32_MAX, tokens));
    }
}

TEST(test_tokens_of_a_blocks_place_in_the_row)
{
    scoped_world w = small_world(15);
    int32_t tokens[4] = {77, 77, 77, 77};
    uint32_t n = 77;
    kvp_prompt prompt = prompt_of(ints(0), 6);
    prompt.reserve_tokens = 4;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_block_tokens(w.cache, seq, 1, tokens, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(tokens, ints(4), 2 * sizeof(int32_t));
    assert_int_equal(tokens[2], 77);
    assert_ok(kvp_seq_block_tokens(w.cache, seq, 2, tokens, &n)); /* reserved */
    assert_int_equal(n, 0);
    n = 77;
    assert_status(KVP_E_ARG, kvp_seq_block_tokens(w.cache, seq, 3, tokens, &n));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    assert_status(KVP_E_UNKNOWN, kvp_seq_block_tokens(w.cache, seq, 1, tokens, &n));
    assert_int_equal(n, 77);
}

TEST(test_only_group_0_exists)
{
    scoped_world w = small_world(7);
    const int32_t *row;
    uint32_t n;
    int64_t slots[4];
    int32_t tokens[4];
    kvp_block_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_status(KVP_E_ARG, kvp_seq_row(w.cache, seq, 1, &row, &n));
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 1, 0, 4, slots));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_DEVICE, 1, &info));
    assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 1, KVP_DEVICE, 1, tokens, &n));
}

/* --------------------------------------------------------------------------------------- blocks */

TEST(test_a_block_through_its_life)
{
    const kvp_config config = config_of(4, 2, 2);
    scoped_world w = make_world(&config);
    kvp_block_info info = block_of(&w, 0);
    const kvp_hash none = {{0}};
    assert_int_equal(info.state, KVP_BLOCK_NULL);
    info = block_of(&w, 1);
    assert_int_equal(info.state, KVP_BLOCK_FREE);
    kvp_prompt prompt = prompt_of(ints(0), 3);
    prompt.retention = 4;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    info = block_of(&w, 1);
    assert_fields(info, state, KVP_BLOCK_HELD, ref_count, 1, retention, 4, sealed_tokens, 0);
    assert_memory_equal(&info.hash, &none, sizeof(none));
    assert_ok(kvp_seq_commit(w.cache, seq, 3));
    info = block_of(&w, 1);
    assert_fields(info, sealed_units, 1, sealed_tokens, 2);
    assert_memory_not_equal(&info.hash, &none, sizeof(none));
    close_seq(&w, seq);
    info = block_of(&w, 1);
    assert_fields(info, state, KVP_BLOCK_CACHED, ref_count, 0, generation, 0);
    (void)open_seq(&w, ints(100), 8, NULL);
    info = block_of(&w, 1);
    assert_fields(info, state, KVP_BLOCK_HELD, generation, 1);
    assert_int_equal(info.retention, 0); /* the taker's class */
    assert_int_equal(info.sealed_units, 0);
}

TEST(test_tokens_of_a_blocks_content)
{
    const kvp_config config = config_of(6, 2, 7);
    scoped_world w = make_world(&config);
    int32_t tokens[6];
    uint32_t n = 77;
    const kvp_seq seq = open_done(&w, ints(0), 11);
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, 1, tokens, &n));
    assert_int_equal(n, 6);
    assert_memory_equal(tokens, ints(0), 6 * sizeof(int32_t));
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, 2, tokens, &n));
    assert_int_equal(n, 4);
    assert_memory_equal(tokens, ints(6), 4 * sizeof(int32_t));
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, 3, tokens, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, 0, tokens, &n));
    assert_int_equal(n, 0);
    const int32_t outside[] = {-1, 8, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        kvp_block_info info;
        assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 0, KVP_DEVICE, outside[i], tokens, &n));
        assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, KVP_DEVICE, outside[i], &info));
    }
    close_seq(&w, seq);
}

/* Only the last unit of a block is attached to it, the one before to another block: all tokens up
 * to it are valid, and are read. */
TEST(test_sealed_tokens_reach_over_units_attached_elsewhere)
{
    const kvp_config config = config_of(4, 2, 7);
    scoped_world w = make_world(&config);
    int32_t tokens[4];
    uint32_t n;
    const kvp_seq first = open_done(&w, ints(0), 2);
    const kvp_seq second = open_seq(&w, ints(0), 4, NULL); /* a copy of unit 0 */
    (void)take_plan(&w, (kvp_copy[1]){{0}}, 1);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    const kvp_block_info info = block_of(&w, row_entry(&w, second, 0));
    assert_fields(info, sealed_units, 1, sealed_tokens, 4);
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, row_entry(&w, second, 0), tokens, &n));
    assert_int_equal(n, 4);
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    close_seq(&w, first);
}

/* ------------------------------------------------------------------------------------ retention */

TEST(test_lower_classes_are_evicted_first)
{
    scoped_world w = small_world(3);
    const uint32_t classes[] = {7, 1, 4};
    const kvp_evicted *evicted;
    for (int32_t i = 0; i < 3; i++) {
        kvp_prompt prompt = prompt_of(ints(100 * i), 4);
        prompt.retention = classes[i];
        const kvp_seq seq = open_with(&w, &prompt, NULL);
        assert_ok(kvp_seq_commit(w.cache, seq, 4));
        close_seq(&w, seq);
    }
    (void)open_seq(&w, ints(500), 12, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 3);
    assert_int_equal(evicted[0].block, 2);
    assert_int_equal(evicted[1].block, 3);
    assert_int_equal(evicted[2].block, 1);
}

TEST(test_retain_sets_the_class_of_the_blocks_a_range_touches)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 15);
    const uint32_t expected[][4] = {{0, 6, 6, 0}, {2, 6, 6, 0}, {2, 6, 6, 3}};
    const kvp_range ranges[] = {{7, 9}, {0, 1}, {12, 16}};
    const uint32_t classes[] = {6, 2, 3};
    for (int i = 0; i < 3; i++) {
        assert_ok(kvp_seq_retain(w.cache, seq, ranges[i], classes[i]));
        for (int32_t b = 1; b <= 4; b++)
            assert_int_equal(block_of(&w, b).retention, expected[i][b - 1]);
    }
    assert_int_equal(block_of(&w, 1).ref_count, 1);
    assert_int_equal(info_of(&w, seq).retention, 0); /* of what it takes, unchanged */
    const kvp_range bad[] = {{4, 4}, {5, 4}, {15, 17}, {0, UINT32_MAX}};
    for (int i = 0; i < 4; i++) {
        assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_retain(w.cache, seq, bad[i], 1)));
        assert_shortage(&w, KVP_E_ARG, 0, 0);
    }
    assert_unchanged(&w,
                     assert_status(KVP_E_ARG, kvp_seq_retain(w.cache, seq, (kvp_range){0, 4}, 8)));
    close_seq(&w, seq);
    assert_queue(&w, 2, 1);
    assert_queue(&w, 6, 3, 2);
    assert_queue(&w, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); /* 4 was never full: free */
    assert_no_queue(&w, 3);
}

TEST(test_the_last_sharer_to_set_a_class_wins)
{
    scoped_world w = small_world(15);
    const kvp_seq a = open_done(&w, ints(0), 4);
    const kvp_seq b = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_retain(w.cache, a, (kvp_range){0, 4}, 5));
    assert_ok(kvp_seq_retain(w.cache, b, (kvp_range){0, 4}, 1));
    close_seq(&w, b);
    close_seq(&w, a);
    assert_queue(&w, 1, 1);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.retention = 6; /* of blocks that it takes: a hit is not taken */
    close_seq(&w, open_with(&w, &prompt, NULL));
    assert_queue(&w, 1, 1);
}

/* ------------------------------------------------------------------------------------- the plan */

TEST(test_a_plan_is_asked_for_taken_and_empty)
{
    scoped_world w = small_world(15);
    kvp_copy copies[3];
    uint32_t n = 77;
    const kvp_seq parent = open_done(&w, ints(0), 6);
    for (int i = 0; i < 2; i++) {
        const kvp_seq child = fork_seq(&w, parent, 6);
        assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    }
    assert_unchanged(&w, assert_ok(kvp_plan_take(w.cache, NULL, 0, &n)));
    assert_int_equal(n, 2);
    copies[0].src_block = 77;
    assert_unchanged(&w, assert_status(KVP_E_TOO_SMALL, kvp_plan_take(w.cache, copies, 1, &n)));
    assert_int_equal(copies[0].src_block, 77);
    assert_int_equal(take_plan(&w, copies, 3), 2); /* over several calls */
    assert_int_equal(copies[0].phase, 0);
    assert_int_equal(copies[1].phase, 0); /* one source may be read twice */
    assert_fields(stats_of(&w), pending_copies, 0, copies, 2);
    assert_ok(kvp_plan_take(w.cache, NULL, 0, &n));
    assert_int_equal(n, 0);
}

TEST(test_a_copy_of_a_copy_is_in_the_next_phase)
{
    scoped_world w = small_world(15);
    kvp_copy copies[2];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_ok(kvp_seq_commit(w.cache, child, 7));
    const kvp_seq grandchild = fork_seq(&w, child, 7);
    assert_ok(kvp_seq_extend(w.cache, grandchild, ints(70), 1, 0));
    assert_int_equal(take_plan(&w, copies, 2), 2);
    assert_fields(copies[0], dst_block, copies[1].src_block, phase, 0);
    assert_int_equal(copies[1].phase, 1);
}

/* ------------------------------------------------------------------------------------- counters */

TEST(test_stats_count_what_happened)
{
    scoped_world w = small_world(3);
    kvp_stats s = stats_of(&w);
    assert_fields(s, usable_blocks, 3, free_blocks, 3, open_namespaces, 1, nodes_used, 1);
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 6, NULL);
    s = stats_of(&w);
    assert_fields(s, opens, 2, prompt_tokens, 14, cached_tokens, 4, taken_blocks, 3, evicted_blocks,
                  0);
    assert_fields(s, held_blocks, 2, cached_blocks, 1, free_blocks, 0, open_seqs, 1, sealed_units,
                  2);
    close_seq(&w, seq);
    const kvp_seq all = open_seq(&w, ints(100), 12, NULL);
    close_seq(&w, all);
    s = stats_of(&w);
    assert_int_equal(s.peak_held_blocks, 3); /* at the end of a call; it stays */
    assert_fields(s, held_blocks, 0, evicted_blocks, 2, forks, 0, refused, 0, parked_blocks, 0);
}

TEST(test_collisions_of_hashes_are_counted)
{
    kvp_config config = config_of(4, 4, 15);
    config.test_hash_bits = 1;
    scoped_world w = make_world(&config);
    for (int32_t i = 0; i < 3; i++)
        leave_cached(&w, ints(100 * i), 4);
    assert_true(stats_of(&w).hash_collisions > 0);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(match(&w, ints(100 * i), 4).hit_tokens, 4);
}

TEST(test_no_shortage_before_the_first_failure)
{
    scoped_world w = small_world(3);
    assert_shortage(&w, KVP_OK, 0, 0);
    (void)open_seq(&w, ints(0), 4, NULL);
    assert_shortage(&w, KVP_OK, 0, 0);
}

TEST(test_blocks_for_tokens_and_for_append)
{
    assert_int_equal(kvp_blocks_for_tokens(16, 0), 0);
    assert_int_equal(kvp_blocks_for_tokens(16, 1), 1);
    assert_int_equal(kvp_blocks_for_tokens(16, 16), 1);
    assert_int_equal(kvp_blocks_for_tokens(16, 17), 2);
    assert_int_equal(kvp_blocks_for_tokens(0, 17), 0);
    assert_int_equal(kvp_blocks_for_tokens(1, UINT64_MAX), UINT64_MAX);
    assert_int_equal(kvp_blocks_for_append(16, 15, 1, 0), 0);
    assert_int_equal(kvp_blocks_for_append(16, 16, 1, 0), 1);
    assert_int_equal(kvp_blocks_for_append(16, 16, 1, 16), 2);
    assert_int_equal(kvp_blocks_for_append(16, 0, 0, 0), 0);
    assert_int_equal(kvp_blocks_for_append(0, 5, 5, 5), 0);
}

TEST_MAIN(NULL, NULL)

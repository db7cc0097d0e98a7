/* Fork, truncate, close: what is shared, what is released, and in which order. */
#include <string.h>

#include "world.h"

/* ----------------------------------------------------------------------------------------- fork */

TEST(test_a_fork_takes_no_block_and_shares_the_partly_filled_one)
{
    scoped_world w = small_world(15);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const uint64_t taken = stats_of(&w).taken_blocks;
    kvp_seq child;
    assert_ok(kvp_seq_fork(w.cache, parent, KVP_END, 42, &child));
    assert_row(&w, child, 1, 2, 3);
    assert_fields(stats_of(&w), taken_blocks, taken, forks, 1);
    assert_int_equal(block_of(&w, 3).ref_count, 2);
    assert_int_equal(info_of(&w, child).tag, 42);
}

TEST(test_a_child_is_its_parent_cut_to_at)
{
    scoped_world w = small_world(31);
    kvp_prompt prompt = prompt_of(ints(0), 9);
    prompt.retention = 3;
    prompt.reserve_tokens = 8;
    leave_cached(&w, ints(0), 8);
    const kvp_seq parent = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(9), 4, 0));
    assert_ok(kvp_seq_commit(w.cache, parent, 13));
    for (uint32_t at = 0; at <= 13; at++) {
        const kvp_seq child = fork_seq(&w, parent, at);
        const kvp_seq_info info = info_of(&w, child);
        int32_t tokens[13];
        assert_fields(info, n_tokens, at, computed_tokens, at, writable_tokens, at, known_tokens,
                      at, kept_tokens, at);
        assert_fields(info, prompt_tokens, at < 9 ? at : 9, cached_tokens, at < 8 ? at : 8,
                      public_tokens, at / 4 * 4, n_blocks, (at + 3) / 4, last_token,
                      (int32_t)at - 1);
        assert_fields(info, retention, 3, row_version, 0, stop, info_of(&w, parent).stop);
        assert_int_equal(info.ns.bits, w.ns.bits);
        assert_ok(kvp_seq_tokens(w.cache, child, 0, at, tokens));
        assert_memory_equal(tokens, ints(0), at * sizeof(int32_t));
        close_seq(&w, child);
    }
}

TEST(test_parent_and_child_go_apart_by_copy_on_write)
{
    scoped_world w = small_world(15);
    kvp_copy copies[2];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* whoever writes first copies */
    assert_row(&w, child, 1, 3);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(6), 1, 0)); /* alone by now */
    assert_row(&w, parent, 1, 2);
    assert_int_equal(take_plan(&w, copies, 2), 1);
    const kvp_copy expected = {.src_block = 2, .dst_block = 3, .n_tokens = 2};
    assert_memory_equal(copies, &expected, sizeof(expected));
    int32_t tokens[7];
    assert_ok(kvp_seq_tokens(w.cache, child, 0, 7, tokens));
    assert_int_equal(tokens[6], 60);
    assert_ok(kvp_seq_tokens(w.cache, parent, 0, 7, tokens));
    assert_int_equal(tokens[6], 6);
}

TEST(test_slots_of_the_parent_keep_their_meaning)
{
    scoped_world w = small_world(15);
    int64_t before[3], after[3];
    kvp_prompt prompt = prompt_of(ints(0), 7);
    prompt.reserve_tokens = 1;
    const kvp_seq parent = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, parent, 5));
    assert_ok(kvp_seq_slots(w.cache, parent, 0, 5, 3, before));
    (void)fork_seq(&w, parent, 5);
    assert_ok(kvp_seq_slots(w.cache, parent, 0, 5, 3, after));
    assert_memory_equal(before, after, sizeof(before));
    assert_ok(kvp_seq_commit(w.cache, parent, 7)); /* and may be committed */
}

TEST(test_only_computed_tokens_with_values_can_be_forked)
{
    scoped_world w = small_world(15);
    kvp_seq child = {77};
    const kvp_seq seq = open_seq(&w, ints(0), 6, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_fork(w.cache, seq, 7, 0, &child)));
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, seq, 5, 0, &child)));
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, seq, KVP_END, 0, &child));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* computed, values of two unknown */
    assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, seq, KVP_END, 0, &child));
    assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, seq, 7, 0, &child));
    assert_int_equal(child.bits, 77);
    assert_ok(kvp_seq_fork(w.cache, seq, 6, 0, &child));
}

TEST(test_a_fork_needs_a_sequence)
{
    kvp_config config = config_of(4, 4, 7);
    config.max_seqs = 2;
    scoped_world w = make_world(&config);
    kvp_seq child = {77};
    const kvp_seq seq = open_done(&w, ints(0), 6);
    (void)fork_seq(&w, seq, 6);
    assert_unchanged(&w, assert_status(KVP_E_NO_SEQS, kvp_seq_fork(w.cache, seq, 6, 0, &child)));
    assert_shortage(&w, KVP_E_NO_SEQS, 0, 0);
    assert_status(KVP_E_ARG, kvp_seq_fork(w.cache, seq, 7, 0, &child)); /* values come first */
    assert_int_equal(child.bits, 77);
}

TEST(test_a_fork_lives_on_without_its_parent)
{
    scoped_world w = small_world(15);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const kvp_seq child = fork_seq(&w, parent, 10);
    const kvp_released released = close_seq(&w, parent);
    assert_int_equal(released.freed_blocks + released.cached_blocks, 0);
    assert_ok(kvp_seq_extend(w.cache, child, ints(10), 2, 0)); /* the last holder: no copy */
    assert_row(&w, child, 1, 2, 3);
    assert_ok(kvp_seq_commit(w.cache, child, 12));
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
}

/* ------------------------------------------------------------------------------------- truncate */

TEST(test_truncate_releases_what_lies_after_reserved_blocks_too)
{
    scoped_world w = small_world(15);
    kvp_released released;
    kvp_prompt prompt = prompt_of(ints(0), 14);
    prompt.reserve_tokens = 4;
    const kvp_seq seq = open_with(&w, &prompt, NULL); /* 1 to 5 */
    assert_ok(kvp_seq_commit(w.cache, seq, 14));
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, &released));
    assert_row(&w, seq, 1, 2);
    assert_int_equal(released.freed_blocks, 2);  /* the reserved one and the unfilled one */
    assert_int_equal(released.cached_blocks, 1); /* the third */
    assert_queue(&w, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3);
    const kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, n_tokens, 5, known_tokens, 5, prompt_tokens, 5, computed_tokens, 5);
    assert_fields(info, writable_tokens, 5, public_tokens, 4, row_version, 1, last_token, 4);
}

TEST(test_truncate_to_every_length_and_on_again)
{
    for (uint32_t U = 1; U <= 4; U *= 2) {
        const kvp_config config = config_of(4, U, 31);
        scoped_world w = make_world(&config);
        for (uint32_t n = 0; n <= 13; n++) {
            int32_t tokens[13];
            const kvp_seq seq = open_done(&w, ints(0), 13);
            assert_ok(kvp_seq_truncate(w.cache, seq, n, NULL));
            assert_ok(kvp_seq_extend(w.cache, seq, ints((int32_t)n), 13 - n, 0));
            assert_ok(kvp_seq_tokens(w.cache, seq, 0, 13, tokens));
            assert_memory_equal(tokens, ints(0), sizeof(tokens));
            assert_ok(kvp_seq_commit(w.cache, seq, 13));
            assert_int_equal(match(&w, ints(0), 13).hit_tokens, 13 / U * U);
            (void)take_plan(&w, (kvp_copy[4]){{0}}, 4);
            close_seq(&w, seq);
        }
    }
}

TEST(test_truncate_inside_a_block_without_releasing_keeps_the_rows_version)
{
    scoped_world w = small_world(15);
    kvp_released released = {7, 7};
    const kvp_seq seq = open_done(&w, ints(0), 7);
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, &released));
    assert_int_equal(info_of(&w, seq).row_version, 0);
    assert_int_equal(released.freed_blocks + released.cached_blocks, 0);
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, &released)); /* to what it has: nothing */
    released = (kvp_released){7, 7};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_truncate(w.cache, seq, 6, &released)));
    assert_shortage(&w, KVP_E_ARG, 0, 0);
    assert_int_equal(released.freed_blocks, 7);
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    assert_no_row(&w, seq);
    assert_int_equal(info_of(&w, seq).last_token, -1);
}

TEST(test_truncate_drops_unknown_values_first)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 3);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 5, 0));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(3), 2));
    assert_ok(kvp_seq_truncate(w.cache, seq, 7, NULL));
    assert_int_equal(info_of(&w, seq).known_tokens, 5);
    assert_status(KVP_E_STATE, kvp_seq_fill(w.cache, seq, ints(5), 3));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(5), 2));
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    assert_int_equal(info_of(&w, seq).known_tokens, 4);
}

/* ---------------------------------------------------------------------------------------- close */

TEST(test_close_releases_the_last_block_of_the_row_first)
{
    scoped_world w = small_world(6);
    const kvp_seq seq = open_seq(&w, ints(0), 19, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    const kvp_released released = close_seq(&w, seq);
    assert_fields(released, freed_blocks, 2, cached_blocks, 3);
    assert_queue(&w, 0, 4, 5, 6, 3, 2, 1);
    assert_status(KVP_E_HANDLE, kvp_seq_close(w.cache, seq, NULL));
    assert_shortage(&w, KVP_E_HANDLE, 0, 0);
}

TEST(test_a_closed_sequences_place_is_used_again_and_its_handle_is_not)
{
    scoped_world w = small_world(7);
    const kvp_seq first = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_close(w.cache, first, NULL));
    for (int i = 0; i < 20; i++) {
        const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
        assert_int_not_equal(seq.bits, first.bits);
        assert_status(KVP_E_HANDLE, kvp_seq_truncate(w.cache, first, 0, NULL));
        close_seq(&w, seq);
    }
}

TEST(test_everything_closed_leaves_no_node_without_a_block)
{
    const kvp_config config = config_of(4, 2, 7);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 20, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    assert_int_equal(stats_of(&w).nodes_used, 1 + 10);
    close_seq(&w, seq);
    assert_int_equal(stats_of(&w).nodes_used, 1 + 3);
    (void)open_seq(&w, ints(100), 28, NULL); /* evicts both */
    assert_int_equal(stats_of(&w).nodes_used, 1 + 14);
}

/* A copy that waits for a block which becomes free is taken out of the plan. */
TEST(test_a_closed_sequences_copy_leaves_the_plan)
{
    scoped_world w = small_world(15);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0));
    assert_int_equal(stats_of(&w).pending_copies, 1);
    close_seq(&w, child);
    assert_int_equal(stats_of(&w).pending_copies, 0);

    const kvp_seq again = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, again, ints(60), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, again, 8));
    close_seq(&w, again); /* cached: its content can be hit */
    assert_int_equal(stats_of(&w).pending_copies, 1);
}

TEST_MAIN(NULL, NULL)

/* Sequences with windows that are forked, rolled back, swapped, invalidated or hit by a failed
 * step: what they need of what was dropped. */
#include <string.h>

#include "groups.h"

enum { S = 4, ROW_MAX = 16 };

/* Would a row of n_blocks entries need one that is null, with the next query at q? */
static int lacks(const int32_t *row, uint32_t n_blocks, kvp_window window, uint32_t q)
{
    for (uint32_t i = 0; i < n_blocks; i++)
        if (row[i] == KVP_NULL_BLOCK && keeps(window, S, i, q))
            return 1;
    return 0;
}

/* The row is `before`, as far as it goes; what `window` does not keep at q is null. */
static void expect_entries(const world *w, kvp_seq seq, const int32_t *before, uint32_t n_blocks,
                           kvp_window window, uint32_t q)
{
    const int32_t *row = row_of(w, 0, seq);
    assert_int_equal(info_of(w, seq).n_blocks, n_blocks);
    for (uint32_t i = 0; i < n_blocks; i++)
        assert_int_equal(row[i], keeps(window, S, i, q) ? before[i] : KVP_NULL_BLOCK);
}

/* Every entry that the window keeps is there, and no other. */
static void expect_kept(const world *w, kvp_seq seq, kvp_window window)
{
    const kvp_seq_info info = info_of(w, seq);
    const int32_t *row = row_of(w, 0, seq);
    for (uint32_t i = 0; i < info.n_blocks; i++)
        assert_int_equal(row[i] != KVP_NULL_BLOCK, keeps(window, S, i, info.computed_tokens));
}

static uint32_t blocks_for(uint32_t n_tokens)
{
    return (uint32_t)kvp_blocks_for_tokens(S, n_tokens);
}

static void copy_row(const world *w, kvp_seq seq, int32_t row[ROW_MAX])
{
    memcpy(row, row_of(w, 0, seq), info_of(w, seq).n_blocks * sizeof(*row));
}

/* ----------------------------------------------------------------------------------------- fork */

static void check_fork(kvp_window window, uint32_t n, uint32_t at)
{
    kvp_seq child = {77};
    int32_t row[ROW_MAX];
    scoped_world w = window_world(31, window.sink_tokens, window.recent_tokens);
    const kvp_seq parent = open_done(&w, ints(0), n);
    copy_row(&w, parent, row);
    if (lacks(row, blocks_for(at), window, at)) {
        assert_unchanged(
            &w, assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, parent, at, 0, &child)));
        assert_shortage(&w, KVP_E_DROPPED, 0, 0);
        assert_int_equal(child.bits, 77);
    } else {
        child = fork_seq(&w, parent, at);
        expect_entries(&w, child, row, blocks_for(at), window, at);
        decode(&w, child, 7);
        expect_kept(&w, child, window);
        decode(&w, parent, 7);
        expect_kept(&w, parent, window);
        close_seq(&w, parent);
        decode(&w, child, 5);
        expect_kept(&w, child, window);
    }
}

TEST(test_fork_at_every_position)
{
    for (uint32_t K = 0; K <= 5; K++) {
        for (uint32_t R = 1; R <= 10; R++) {
            for (uint32_t n = 15; n <= 17; n++)
                for (uint32_t at = 0; at <= n; at++)
                    check_fork((kvp_window){K, R}, n, at);
        }
    }
}

TEST(test_a_childs_row_has_only_what_it_keeps)
{
    scoped_world w = small_world(15);
    const kvp_seq parent = open_done(&w, ints(0), 8);
    (void)set_window(&w, 0, parent, 0, 8);
    decode(&w, parent, 8);
    assert_row(&w, parent, 0, 0, 3, 4); /* at 16: 9 and after */
    const kvp_seq late = fork_seq(&w, parent, KVP_END);
    assert_row(&w, late, 0, 0, 3, 4);
    assert_dropped(&w, 0, late, 0, 2);
    assert_int_equal(window_of(&w, 0, late).window.recent_tokens, 8);
    assert_int_equal(info_of(&w, late).row_version, 0);
    assert_unchanged(
        &w, assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, parent, 14, 0, &(kvp_seq){0})));
    (void)fork_seq(&w, parent, 15); /* 8 and after */
}

TEST(test_where_a_sequence_that_was_taken_back_can_be_forked)
{
    scoped_world w = small_world(15);
    const kvp_seq parent = open_seq(&w, ints(0), 16, NULL);
    (void)set_window(&w, 0, parent, 0, 4);
    assert_ok(kvp_seq_commit(w.cache, parent, 7));
    assert_row(&w, parent, 0, 2, 3, 4);
    assert_ok(kvp_seq_invalidate(w.cache, parent, 7, NULL, 0, NULL));
    const kvp_seq at_end = fork_seq(&w, parent, 7);
    assert_row(&w, at_end, 0, 2);
    assert_ok(kvp_seq_close(w.cache, at_end, NULL));
    assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, parent, 8, 0, &(kvp_seq){0}));
    assert_status(KVP_E_ARG, kvp_seq_fork(w.cache, parent, 17, 0, &(kvp_seq){0}));
    assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, parent, 6, 0, &(kvp_seq){0}));
    assert_int_equal(info_of(&w, fork_seq(&w, parent, 0)).n_blocks, 0);
}

TEST(test_what_was_dropped_goes_before_a_place_for_the_child)
{
    kvp_config config = groups_config(4, 7, &(kvp_window){0, 4}, 1);
    config.max_seqs = 1;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, seq, 9, 0, &(kvp_seq){0}));
    assert_status(KVP_E_NO_SEQS, kvp_seq_fork(w.cache, seq, 16, 0, &(kvp_seq){0}));
}

/* ------------------------------------------------------------------------------------- truncate */

enum { UNSEALED, SEALED, SHARED };

static void check_truncate(kvp_window window, int kind, uint32_t computed, uint32_t to)
{
    kvp_config config = groups_config(S, 31, &window, 1);
    int32_t row[ROW_MAX];
    config.prefix_cache = kind != UNSEALED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 18, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, computed));
    if (kind == SHARED)
        (void)fork_seq(&w, seq, computed);
    const uint32_t q = computed < to ? computed : to;
    copy_row(&w, seq, row);
    if (lacks(row, blocks_for(to), window, q)) {
        kvp_released released = {7, 7};
        assert_unchanged(
            &w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, to, &released)));
        assert_shortage(&w, KVP_E_DROPPED, 0, 0);
        assert_int_equal(released.freed_blocks, 7);
    } else {
        assert_ok(kvp_seq_truncate(w.cache, seq, to, NULL));
        assert_memory_equal(row_of(&w, 0, seq), row, blocks_for(to) * sizeof(*row));
        assert_int_equal(info_of(&w, seq).computed_tokens, q);
        extend_seq(&w, seq, 20 - to);
        assert_ok(kvp_seq_commit(w.cache, seq, 20));
        expect_kept(&w, seq, window);
    }
}

TEST(test_truncate_to_every_length)
{
    const uint32_t computed[] = {18, 17, 13, 12};
    for (uint32_t K = 0; K <= 5; K++) {
        for (uint32_t R = 1; R <= 10; R += R > 5 ? 2 : 1) {
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t to = 0; to <= 18; to++)
                    check_truncate((kvp_window){K, R}, (int)(to + i) % 3, computed[i], to);
        }
    }
}

TEST(test_a_rolled_back_sequence_knows_what_it_dropped)
{
    scoped_world w = window_world(15, 4, 4);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_row(&w, seq, 1, 0, 0, 4);
    kvp_released released;
    assert_ok(kvp_seq_truncate(w.cache, seq, 15, &released)); /* 12 and after */
    assert_released(released, 0, 0);
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 14, NULL)));
    assert_status(KVP_E_ARG, kvp_seq_truncate(w.cache, seq, 16, NULL));
    assert_dropped(&w, 0, seq, 1, 3);
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, &released)); /* the sinks alone */
    assert_released(released, 0, 1);
    assert_row(&w, seq, 1);
    assert_dropped(&w, 0, seq, 0, 0);
    decode(&w, seq, 9);
    assert_row(&w, seq, 1, 0, row_entry(&w, seq, 2));
}

/* A drop at the end of a block, where nothing before the next query is seen: null entries only. */
TEST(test_a_row_of_null_entries_goes_on)
{
    scoped_world w = window_world(15, 0, 1);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    assert_row(&w, seq, 0, 0, 0);
    assert_int_equal(stats_of(&w).held_blocks, 0);
    const kvp_seq child = fork_seq(&w, seq, 8);
    assert_row(&w, child, 0, 0);
    assert_ok(kvp_seq_truncate(w.cache, seq, 8, NULL));
    decode(&w, seq, 1);
    assert_dropped(&w, 0, seq, 0, 2);
    assert_int_equal(stats_of(&w).held_blocks, 1);
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 7, NULL));
    assert_released(close_seq(&w, child), 0, 0);
    assert_released(close_seq(&w, seq), 1, 0);
}

/* ----------------------------------------------------------------------------------------- swap */

static world swap_world(uint32_t K, uint32_t R)
{
    kvp_config config = groups_config(4, 7, &(kvp_window){K, R}, 1);
    config.host_blocks = 8;
    return make_world(&config);
}

TEST(test_dropped_entries_are_not_swapped)
{
    scoped_world w = swap_world(4, 6);
    const kvp_seq seq = open_done(&w, ints(0), 18);
    assert_row(&w, seq, 1, 0, 0, 4, 5);
    assert_admission(can_swap_out(&w, &seq, 1), KVP_ADMIT_OK, 3, 7, 0);
    assert_moved(swap_out(&w, &seq, 1), 3, 0, 1, 2);
    assert_row(&w, seq, 1, 0, 0, 2, 3);
    assert_dropped(&w, 0, seq, 1, 3);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 4, 2, 4), TO_HOST(0, 5, 3, 2));

    assert_admission(can_swap_in(&w, &seq, 1, 1), KVP_ADMIT_OK, 3, 7, 0);
    assert_moved(swap_in(&w, &seq, 1, 1), 1, 2, 1, 2); /* 1 and 4 are there still */
    assert_row(&w, seq, 1, 0, 0, 4, 5);
    assert_plan(&w, TO_DEVICE(0, 3, 5, 2));
    assert_dropped(&w, 0, seq, 1, 3);
    decode(&w, seq, 4);
    assert_row(&w, seq, 1, 0, 0, 0, 5, row_entry(&w, seq, 5));
}

TEST(test_what_one_sequence_dropped_is_swapped_for_another)
{
    kvp_config config = tiers_config(4, 4, 7, 7);
    scoped_world w = make_world(&config);
    kvp_seq seqs[2];
    seqs[0] = open_done(&w, ints(0), 14);
    seqs[1] = fork_seq(&w, seqs[0], 14);
    (void)set_window(&w, 0, seqs[1], 0, 4);
    assert_row(&w, seqs[1], 0, 0, 3, 4);
    assert_moved(swap_out(&w, seqs, 2), 4, 0, 1, 3);
    assert_row(&w, seqs[0], 1, 2, 3, 4);
    assert_row(&w, seqs[1], 0, 0, 3, 4);
    assert_int_equal(host_block(&w, 1).ref_count, 1);
    assert_int_equal(host_block(&w, 3).ref_count, 2);
    drop_plan(&w);
    wipe_device(&w);
    assert_moved(swap_in(&w, &seqs[1], 1, 0), 2, 0, 0, 0);
    assert_moved(swap_in(&w, &seqs[0], 1, 0), 3, 1, 1, 3); /* the full block is shared again */
    assert_int_equal(row_entry(&w, seqs[0], 2), row_entry(&w, seqs[1], 2));
}

TEST(test_a_swapped_sequence_that_needs_what_was_dropped_stays_out)
{
    scoped_world w = swap_world(0, 4);
    kvp_admission admission;
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 14, NULL, 0, NULL));
    assert_moved(swap_out(&w, &seq, 1), 1, 0, 1, 0);
    drop_plan(&w);
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL)));
    assert_status(KVP_E_DROPPED, kvp_cache_can_swap_in(w.cache, &seq, 1, 0, &admission));
    assert_status(KVP_E_STATE, kvp_seq_truncate(w.cache, seq, 0, NULL));
    close_seq(&w, seq);
}

/* ----------------------------------------------------------------- invalidate, and failed steps */

/* Nothing computes anything for it, and nothing changes. */
static void expect_stuck(world *w, kvp_seq seq, uint32_t n_computed)
{
    const int32_t parent = -1;
    const uint32_t one = 1;
    kvp_status each = KVP_OK;
    kvp_admission admission;
    kvp_batch batch = batch_of(&seq, &one, 1);
    assert_unchanged(w, assert_status(KVP_E_DROPPED, kvp_seq_extend(w->cache, seq, NULL, 0, 0)));
    assert_unchanged(w, assert_status(KVP_E_DROPPED, kvp_seq_extend(w->cache, seq, NULL, 1, 0)));
    assert_shortage(w, KVP_E_DROPPED, 0, 0);
    assert_status(KVP_E_DROPPED, kvp_cache_can_extend(w->cache, &batch, &admission));
    assert_status(KVP_E_DROPPED, try_tree(w, seq, ints(7), &parent, 1));
    assert_status(KVP_E_DROPPED, kvp_seq_fork(w->cache, seq, n_computed, 0, &(kvp_seq){0}));
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w->cache, seq, n_computed, NULL));
    assert_status(KVP_E_STATE, kvp_seq_commit(w->cache, seq, n_computed + 1)); /* no slots */
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = &each;
    assert_ok(kvp_seq_extend_many(w->cache, &batch));
    assert_int_equal(each, KVP_E_DROPPED);
}

TEST(test_a_sequence_taken_back_to_where_it_needs_what_was_dropped)
{
    kvp_config config = groups_config(4, 15, &(kvp_window){0, 4}, 1);
    config.max_tree_tokens = 4;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 15, NULL, 0, NULL)); /* 12 and after: it is there */
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 14, NULL, 0, NULL)); /* 11 is not */
    expect_stuck(&w, seq, 14);
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 15, NULL)); /* 14 is to be run */
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 16, NULL));
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    decode(&w, seq, 9);
    assert_dropped(&w, 0, seq, 0, 1);
}

TEST(test_a_narrower_window_sets_a_stuck_sequence_free)
{
    scoped_world w = window_world(15, 0, 4);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 14, NULL, 0, NULL));
    assert_unchanged(&w, assert_status(KVP_E_DROPPED,
                                       kvp_seq_window(w.cache, seq, 0, (kvp_window){0, 4}, NULL)));
    (void)set_window(&w, 0, seq, 0, 3); /* 14 sees 12 and after */
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    assert_dropped(&w, 0, seq, 0, 3);
}

TEST(test_an_invalidation_takes_back_what_was_dropped_and_cached)
{
    scoped_world w = window_world(7, 0, 4);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_queue(&w, 0, 5, 6, 7, 3, 2, 1);
    const uint64_t generation = block_of(&w, 4).generation;
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    assert_queue(&w, 0, 3, 2, 5, 6, 7, 1); /* freed in row order, each to the head */
    assert_int_equal(stats_of(&w).detached_units, 3);
    assert_int_equal(block_of(&w, 4).generation, generation + 1);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
}

TEST(test_null_entries_are_not_shared)
{
    scoped_world w = window_world(15, 0, 4);
    kvp_seq sharers[2];
    uint32_t n = 77;
    const kvp_seq seq = open_done(&w, ints(0), 16);
    const kvp_seq other = open_done(&w, ints(100), 16);
    assert_row(&w, seq, 0, 0, 0, 4);
    assert_row(&w, other, 0, 0, 0, 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, sharers, 2, &n));
    assert_int_equal(n, 0);
    decode(&w, other, 1);
}

/* A step that should have brought a prefix from the host fails when part of it was dropped. */
TEST(test_a_failed_step_leaves_a_sequence_that_needs_what_was_dropped)
{
    kvp_config config = steps_config(4, 4, 7, 7);
    config.max_tree_tokens = 4;
    scoped_world w = make_world(&config);
    kvp_seq cut[2];
    kvp_open_info info;
    uint32_t n;
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 12, &info);
    assert_int_equal(info.host_tokens, 8);
    (void)set_window(&w, 0, seq, 0, 6);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 12)); /* 12 sees 7 and after */
    assert_dropped(&w, 0, seq, 0, 1);
    assert_ok(kvp_step_failed(w.cache, step, cut, 2, &n));
    assert_int_equal(n, 1);
    assert_int_equal(cut[0].bits, seq.bits);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    expect_stuck(&w, seq, 4);
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    decode(&w, seq, 12);
    assert_dropped(&w, 0, seq, 0, 1);
}

TEST(test_what_a_window_dropped_is_not_cut_by_a_failed_copy)
{
    const kvp_config config = steps_config(4, 4, 7, 7);
    scoped_world w = make_world(&config);
    kvp_seq cut[2];
    uint32_t n;
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    (void)set_window(&w, 0, seq, 0, 4); /* nothing of the copies is left in its row */
    assert_dropped(&w, 0, seq, 0, 2);
    assert_ok(kvp_step_failed(w.cache, step, cut, 2, &n));
    assert_int_equal(n, 0);
    assert_int_equal(info_of(&w, seq).computed_tokens, 12);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
}

/* ------------------------------------------------------------ what is computed again is private */

enum { TRUNCATED, INVALIDATED, FORKED };

/* Nine tokens are public; the sequence is taken back to `to`, and computes them again. */
static void check_taken_back(int how, uint32_t to, kvp_window window)
{
    const kvp_config config = config_of(S, 1, 15);
    const uint32_t sees = window.sink_tokens + window.recent_tokens;
    const uint32_t expected = to > sees || how == INVALIDATED ? to : sees;
    scoped_world w = make_world(&config);
    kvp_seq seq = open_done(&w, ints(0), 9);
    (void)set_window(&w, 0, seq, window.sink_tokens, window.recent_tokens);
    assert_int_equal(info_of(&w, seq).public_tokens, 9);
    if (how == TRUNCATED) {
        assert_ok(kvp_seq_truncate(w.cache, seq, to, NULL));
    } else if (how == INVALIDATED) {
        assert_ok(kvp_seq_invalidate(w.cache, seq, to, NULL, 0, NULL));
        assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    } else {
        seq = fork_seq(&w, seq, to);
    }
    extend_seq(&w, seq, 12 - info_of(&w, seq).n_tokens);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_int_equal(info_of(&w, seq).public_tokens, expected);
}

TEST(test_what_is_computed_again_under_a_window_is_private)
{
    for (int how = TRUNCATED; how <= FORKED; how++) {
        for (uint32_t to = 0; to <= 9; to++) { /* nothing is dropped yet */
            check_taken_back(how, to, (kvp_window){0, 6});
            check_taken_back(how, to, (kvp_window){4, 3});
        }
    }
}

TEST(test_a_failed_step_makes_it_private_too)
{
    const kvp_config config = steps_config(4, 4, 7, 7);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    (void)set_window(&w, 0, seq, 0, 2); /* entry 1 is kept; private from 8 on */
    assert_dropped(&w, 0, seq, 0, 1);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_step_failed(w.cache, step, NULL, 0, NULL));
    assert_fields(info_of(&w, seq), computed_tokens, 4, public_tokens, 4);
}

/* A private unit of equal tokens is not the public one. */
TEST(test_a_private_unit_is_nobody_elses)
{
    scoped_world w = small_world(15);
    kvp_seq sharers[1];
    uint32_t n = 77;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_seq other = open_seq(&w, ints(0), 4, NULL);
    (void)set_window(&w, 0, other, 0, 2);
    decode(&w, other, 4);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, sharers, 1, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, sharers, 1, &n));
    assert_int_equal(n, 1);
}

TEST_MAIN(NULL, NULL)

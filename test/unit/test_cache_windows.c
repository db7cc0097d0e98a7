/* Sliding windows: what is kept and what is dropped, when and in which order; windows of a
 * sequence's own. What cuts a sequence that has one: test_cache_windows_cut.c. */
#include "groups.h"

/* --------------------------------------------------------------------------------- what is kept */

/* Every entry of the row is there exactly when the window keeps it; the null ones are one run. */
static void expect_kept(const world *w, kvp_seq seq, kvp_window window, uint32_t S)
{
    const kvp_seq_info info = info_of(w, seq);
    const int32_t *row = row_of(w, 0, seq);
    uint32_t n_null = 0, first = 0;
    for (uint32_t i = 0; i < info.n_blocks; i++) {
        const int kept = keeps(window, S, i, info.computed_tokens);
        assert_int_equal(row[i] != KVP_NULL_BLOCK, kept);
        first = n_null == 0 && !kept ? i : first;
        n_null += (uint32_t)!kept;
    }
    assert_dropped(w, 0, seq, n_null > 0 ? first : 0, n_null > 0 ? first + n_null : 0);
    assert_fields(stats_of(w), dropped_blocks, n_null, held_blocks, info.n_blocks - n_null);
}

static void check_kept(uint32_t S, uint32_t K, uint32_t R)
{
    const kvp_window window = {K, R};
    const kvp_config config = groups_config(S, 31, &window, 1);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 1);
    expect_kept(&w, seq, window, S);
    for (uint32_t n = 2; n <= K + R + 3 * S && n <= 31; n++) {
        const uint64_t before = stats_of(&w).dropped_blocks;
        const uint64_t version = info_of(&w, seq).row_version;
        extend_seq(&w, seq, 1);
        assert_int_equal(stats_of(&w).dropped_blocks, before); /* at commit only */
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        expect_kept(&w, seq, window, S);
        assert_int_equal(info_of(&w, seq).row_version,
                         version + (stats_of(&w).dropped_blocks > before));
    }
}

TEST(test_what_is_kept_at_every_edge)
{
    for (uint32_t S = 1; S <= 5; S++) {
        for (uint32_t K = 0; K <= S + 2; K++)
            for (uint32_t R = 1; R <= 2 * S + 2; R++)
                check_kept(S, K, R);
    }
}

TEST(test_the_example_of_the_header)
{
    scoped_world w = window_world(7, 3, 6);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_row(&w, seq, 1, 0, 3, 4);
    decode(&w, seq, 1);
    assert_row(&w, seq, 1, 0, 0, 4, 5);
    assert_dropped(&w, 0, seq, 1, 3);
    assert_fields(window_of(&w, 0, seq).window, sink_tokens, 3, recent_tokens, 6);
    assert_int_equal(info_of(&w, seq).n_tokens, 17); /* positions and tokens stay */
    assert_int_equal(info_of(&w, seq).n_blocks, 5);
    int32_t tokens[17];
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 17, tokens));
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
}

TEST(test_a_window_larger_than_the_sequence_drops_nothing)
{
    const kvp_window windows[] = {{0, 64},         {64, 1},
                                  {32, 32},        {UINT32_MAX - 1, 1},
                                  {0, UINT32_MAX}, {UINT32_MAX - 1, UINT32_MAX}};
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
        scoped_world w = window_world(15, windows[i].sink_tokens, windows[i].recent_tokens);
        const kvp_seq seq = open_done(&w, ints(0), 50);
        decode(&w, seq, 10);
        assert_dropped(&w, 0, seq, 0, 0);
        assert_int_equal(stats_of(&w).dropped_blocks, 0);
    }
}

/* --------------------------------------------------------------------- when, and in which order */

TEST(test_a_chunk_has_all_its_blocks_until_its_commit)
{
    scoped_world w = window_world(7, 0, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 20, NULL);
    assert_row(&w, seq, 1, 2, 3, 4, 5);
    assert_ok(kvp_seq_commit(w.cache, seq, 6)); /* the next query, 6, sees 3 to 6 */
    assert_row(&w, seq, 1, 2, 3, 4, 5);
    assert_int_equal(info_of(&w, seq).row_version, 0);
    assert_ok(kvp_seq_commit(w.cache, seq, 7)); /* 4 to 7 */
    assert_row(&w, seq, 0, 2, 3, 4, 5);
    assert_ok(kvp_seq_commit(w.cache, seq, 7)); /* nothing new */
    assert_int_equal(info_of(&w, seq).row_version, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 20));
    assert_row(&w, seq, 0, 0, 0, 0, 5);
    assert_int_equal(info_of(&w, seq).row_version, 2); /* three entries, one change */
}

TEST(test_the_last_entry_is_released_first)
{
    world w = window_world(7, 0, 4);
    const kvp_seq seq = open_done(&w, ints(0), 20);
    assert_row(&w, seq, 0, 0, 0, 0, 5);
    assert_queue(&w, 0, 6, 7, 4, 3, 2, 1); /* sealed: to the tail */
    end_world(&w);

    kvp_config config = groups_config(4, 7, &(kvp_window){0, 4}, 1);
    config.prefix_cache = 0;
    w = make_world(&config);
    (void)open_done(&w, ints(0), 20);
    assert_queue(&w, 0, 1, 2, 3, 4, 6, 7); /* without content: to the head */
    end_world(&w);
}

TEST(test_what_was_dropped_keeps_its_class)
{
    scoped_world w = window_world(7, 0, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){0, 4}, 3));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_queue(&w, 3, 1);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){0, 12}, 5)); /* of what is there still */
    assert_queue(&w, 3, 1);
    assert_queue(&w, 0, 4, 5, 6, 7, 2);
    close_seq(&w, seq);
    assert_queue(&w, 5, 3);
}

TEST(test_sealed_content_is_found_until_it_is_evicted)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    assert_released(set_window(&w, 0, seq, 0, 4), 0, 3);
    assert_row(&w, seq, 0, 0, 0, 4);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_CACHED);
    kvp_open_info info = match(&w, ints(0), 20);
    assert_fields(info, hit_tokens, 16, cached_blocks, 3);

    const kvp_seq other = open_seq(&w, ints(0), 16, NULL); /* takes the dropped blocks out again */
    assert_row(&w, other, 1, 2, 3, 4);
    close_seq(&w, other);
    (void)open_seq(&w, ints(100), 16, NULL); /* three free blocks, and the head of the queue */
    info = match(&w, ints(0), 20);
    assert_fields(info, hit_tokens, 8, stop, KVP_STOP_NO_KV);
}

TEST(test_a_shared_block_stays_with_its_other_holder)
{
    scoped_world w = small_world(7);
    const kvp_seq parent = open_done(&w, ints(0), 14);
    const kvp_seq child = fork_seq(&w, parent, 14);
    assert_released(set_window(&w, 0, child, 4, 4), 0, 0);
    assert_row(&w, child, 1, 0, 3, 4);
    assert_row(&w, parent, 1, 2, 3, 4);
    assert_int_equal(block_of(&w, 1).ref_count, 2);
    assert_int_equal(block_of(&w, 2).ref_count, 1);
    assert_int_equal(info_of(&w, parent).row_version, 0);
    assert_int_equal(info_of(&w, child).row_version, 1);
    assert_released(close_seq(&w, parent), 0, 1); /* the child drops no block twice */
    assert_released(close_seq(&w, child), 1, 2);
}

TEST(test_what_is_adopted_is_dropped_like_the_rest)
{
    scoped_world w = window_world(7, 0, 4);
    const kvp_seq first = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq second = open_seq(&w, ints(0), 8, NULL);
    assert_row(&w, second, 3, 4);
    assert_ok(kvp_seq_commit(w.cache, first, 8));
    assert_ok(kvp_seq_commit(w.cache, second, 8));
    assert_row(&w, first, 0, 2);
    assert_row(&w, second, 0, 2);
    assert_int_equal(info_of(&w, second).row_version, 3); /* two were adopted, one dropped */
    assert_queue(&w, 0, 4, 3, 5, 6, 7, 1);
}

TEST(test_values_that_come_after_the_drop_seal_what_is_there)
{
    scoped_world w = window_world(7, 0, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 12, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    assert_row(&w, seq, 0, 0, 0, 4);
    assert_queue(&w, 0, 2, 3, 5, 6, 7, 1); /* 2 and 3 held nothing that anybody knows */
    assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 12));
    assert_int_equal(stats_of(&w).sealed_units, 2);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 16); /* nobody needs more than entry 3 */
    assert_int_equal(match(&w, ints(0), 15).hit_tokens, 4);
}

TEST(test_dropped_blocks_are_parked_while_a_step_is_out)
{
    kvp_config config = groups_config(4, 7, &(kvp_window){0, 4}, 1);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 12)); /* while its own step still reads them */
    assert_row(&w, seq, 0, 0, 3);
    assert_int_equal(stats_of(&w).parked_blocks, 2);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_PARKED);
    assert_queue(&w, 0, 4, 5, 6, 7);
    (void)done_step(&w, step);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
    assert_queue(&w, 0, 4, 5, 6, 7, 2, 1);
}

TEST(test_a_steps_own_commit_parks_only_for_later_steps)
{
    kvp_config config = groups_config(4, 7, &(kvp_window){0, 4}, 1);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    const uint64_t first = begin_step(&w);
    commit_at(&w, first, seq, 12);
    assert_row(&w, seq, 1, 2, 3); /* not before the step is done */
    (void)done_step(&w, first);
    assert_row(&w, seq, 0, 0, 3);
    assert_int_equal(stats_of(&w).parked_blocks, 0);

    extend_seq(&w, seq, 3);
    const uint64_t second = begin_step(&w);
    commit_at(&w, second, seq, 15);
    extend_seq(&w, seq, 1);
    const uint64_t third = begin_step(&w); /* may still read what the second one's commit drops */
    (void)done_step(&w, second);
    assert_row(&w, seq, 0, 0, 0, 4);
    assert_int_equal(stats_of(&w).parked_blocks, 1);
    (void)done_step(&w, third);
    assert_int_equal(stats_of(&w).parked_blocks, 0);
}

/* While a step is out that may write for a sequence, a block that its window drops is written by
 * the other holder in a copy (steps.h, writers that have left). */
static void check_left_block(int writes, int reported)
{
    const kvp_config config = steps_config(4, 4, 7, 0);
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq child = fork_seq(&w, parent, 8);
    if (writes)
        extend_seq(&w, parent, 1);
    const uint64_t step = begin_step(&w);
    (void)set_window(&w, 0, parent, 0, 3);
    assert_int_equal(row_entry(&w, parent, 0), KVP_NULL_BLOCK);
    assert_int_equal(block_of(&w, 1).ref_count, 1);
    assert_ok(kvp_seq_truncate(w.cache, child, 2, NULL));
    if (reported)
        (void)done_step(&w, step);
    extend_seq(&w, child, 1);
    assert_int_equal(row_entry(&w, child, 0) == 1, reported || !writes);
}

TEST(test_a_block_left_to_others_is_written_by_them_in_a_copy)
{
    check_left_block(1, 0);
    check_left_block(1, 1);
    check_left_block(0, 0);
}

/* ---------------------------------------------------------------------------- the smallest pool */

/* Tokens that fit before an extend fails; `limit` when none does. */
static uint32_t decode_until_full(const kvp_config *config, uint32_t limit)
{
    world w = make_world(config);
    uint32_t n = 0;
    kvp_status status = KVP_OK;
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    while (n < limit && status == KVP_OK) {
        const int32_t token = (int32_t)(n % 1000);
        status = kvp_seq_extend(w.cache, seq, &token, 1, 0);
        if (status == KVP_OK)
            assert_ok(kvp_seq_commit(w.cache, seq, ++n));
    }
    if (status != KVP_OK) {
        const uint32_t one = 1;
        assert_int_equal(status, KVP_E_NEVER); /* its own entries fill the pool */
        assert_shortage(&w, KVP_E_NEVER, 0, 1);
        assert_int_equal(can_extend(&w, &seq, &one, 1).verdict, KVP_ADMIT_NEVER);
    }
    end_world(&w);
    return n;
}

/* Blocks that a window needs while a token is computed: its sinks, and R tokens at the worst
 * place, which begin with the last token of a block. */
static uint32_t blocks_of_window(uint32_t S, uint32_t K, uint32_t R)
{
    return (K + S - 1) / S + (R - 1 + S - 1) / S + 1;
}

static void check_smallest_pool(uint32_t S, uint32_t K, uint32_t R, uint32_t n_tokens)
{
    const uint32_t least = blocks_of_window(S, K, R);
    kvp_config config = groups_config(S, least, &(kvp_window){K, R}, 1);
    config.max_seq_tokens = n_tokens;
    assert_int_equal(decode_until_full(&config, n_tokens), n_tokens);
    if (least > 1) {
        config.n_blocks--;
        assert_in_range(decode_until_full(&config, n_tokens), 0, n_tokens - 1);
    }
}

TEST(test_the_smallest_pool_that_holds_a_window_never_fills)
{
    for (uint32_t S = 1; S <= 5; S++) {
        for (uint32_t K = 0; K <= 6; K++)
            for (uint32_t R = 1; R <= 11; R++)
                check_smallest_pool(S, K, R, 120);
    }
}

TEST(test_it_does_not_in_ten_thousand_tokens)
{
    check_smallest_pool(1, 2, 3, 10000);
    check_smallest_pool(4, 0, 1, 10000);
    check_smallest_pool(4, 5, 6, 10000);
    check_smallest_pool(16, 4, 64, 10000);
}

/* ---------------------------------------------------------------------- a sequence's own window */

TEST(test_a_window_switched_on_late_drops_at_once)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 20);
    const kvp_seq other = open_done(&w, ints(100), 4);
    assert_released(set_window(&w, 0, seq, 4, 6), 0, 2);
    assert_row(&w, seq, 1, 0, 0, 4, 5);
    assert_int_equal(info_of(&w, seq).row_version, 1);
    assert_int_equal(window_of(&w, 0, other).window.recent_tokens, 0); /* nobody else's */
    extend_seq(&w, seq, 1);
    assert_row(&w, seq, 1, 0, 0, 4, 5, 7);
    assert_ok(kvp_seq_commit(w.cache, seq, 21)); /* 21 sees 16 and after */
    assert_row(&w, seq, 1, 0, 0, 0, 5, 7);
}

TEST(test_only_what_is_computed_is_dropped_by_a_late_window)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_seq(&w, ints(0), 20, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_released(set_window(&w, 0, seq, 0, 4), 0, 1); /* the query at 9 sees 6 and after */
    assert_row(&w, seq, 0, 2, 3, 4, 5);
    assert_ok(kvp_seq_commit(w.cache, seq, 20));
    assert_row(&w, seq, 0, 0, 0, 0, 5);
}

/* Set late, a window keeps what the next query sees, which may be the last token's, run again. */
static void check_set(uint32_t computed, kvp_window window)
{
    const uint32_t n = 14;
    const uint32_t q = computed < n - 1 ? computed : n - 1;
    scoped_world w = small_world(7);
    const kvp_seq seq = open_seq(&w, ints(0), n, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, computed));
    (void)set_window(&w, 0, seq, window.sink_tokens, window.recent_tokens);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(row_entry(&w, seq, i) != 0, i * 4 >= computed || keeps(window, 4, i, q));
    extend_seq(&w, seq, 3);
    assert_ok(kvp_seq_commit(w.cache, seq, 17));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(row_entry(&w, seq, i) != 0, keeps(window, 4, i, 17));
}

TEST(test_a_window_can_be_set_at_every_place)
{
    for (uint32_t computed = 0; computed <= 14; computed++) {
        for (uint32_t K = 0; K <= 9; K += 1 + K / 3)
            for (uint32_t R = 1; R <= 9; R++)
                check_set(computed, (kvp_window){K, R});
    }
}

TEST(test_a_narrower_window_drops_more)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 20);
    assert_released(set_window(&w, 0, seq, 8, 8), 0, 1);
    assert_row(&w, seq, 1, 2, 0, 4, 5);
    assert_released(set_window(&w, 0, seq, 8, 4), 0, 1);
    assert_row(&w, seq, 1, 2, 0, 0, 5);
    assert_released(set_window(&w, 0, seq, 4, 4), 0, 1); /* fewer sinks */
    assert_row(&w, seq, 1, 0, 0, 0, 5);
    assert_released(set_window(&w, 0, seq, 0, 4), 0, 1);
    assert_row(&w, seq, 0, 0, 0, 0, 5);
    assert_dropped(&w, 0, seq, 0, 4);
    assert_int_equal(info_of(&w, seq).row_version, 4);
    assert_released(set_window(&w, 0, seq, 0, 4), 0, 0);
    assert_int_equal(info_of(&w, seq).row_version, 4);
}

static kvp_status try_window(world *w, kvp_seq seq, uint32_t K, uint32_t R)
{
    kvp_released released = {7, 7};
    const kvp_status status = kvp_seq_window(w->cache, seq, 0, (kvp_window){K, R}, &released);
    assert_true(status == KVP_OK || (released.freed_blocks == 7 && released.cached_blocks == 7));
    return status;
}

TEST(test_a_wider_window_needs_what_it_keeps)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 26);
    (void)set_window(&w, 0, seq, 4, 4);
    assert_row(&w, seq, 1, 0, 0, 0, 0, 6, 7); /* 26 sees 23 and after */
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, try_window(&w, seq, 4, 8)));
    assert_shortage(&w, KVP_E_DROPPED, 0, 0);
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, try_window(&w, seq, 5, 4))); /* entry 1 */
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, try_window(&w, seq, 0, 0)));
    assert_ok(try_window(&w, seq, 4, 7)); /* 20 and after: they are all there */
    assert_ok(try_window(&w, seq, 1, 6)); /* the same blocks */
    assert_row(&w, seq, 1, 0, 0, 0, 0, 6, 7);
    decode(&w, seq, 2);
    assert_status(KVP_E_DROPPED, try_window(&w, seq, 1, 10));
    assert_ok(try_window(&w, seq, 1, 9));
    decode(&w, seq, 4); /* the wider one is in force: 32 sees 24 and after */
    assert_row(&w, seq, 1, 0, 0, 0, 0, 0, 7, 8);
}

TEST(test_back_to_full_attention_when_nothing_was_dropped)
{
    world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 9);
    (void)set_window(&w, 0, seq, 4, 12);
    assert_ok(try_window(&w, seq, 0, 0));
    decode(&w, seq, 30);
    assert_dropped(&w, 0, seq, 0, 0);
    assert_int_equal(stats_of(&w).dropped_blocks, 0);
    end_world(&w);

    w = window_world(15, 0, 4); /* a sequence of its own mind in a group that slides */
    const kvp_seq full = open_seq(&w, ints(0), 3, NULL);
    (void)set_window(&w, 0, full, 0, 0);
    assert_ok(kvp_seq_commit(w.cache, full, 3));
    decode(&w, full, 30);
    assert_dropped(&w, 0, full, 0, 0);
    end_world(&w);
}

TEST(test_what_a_call_for_a_window_refuses)
{
    kvp_config config = tiers_config(4, 4, 7, 7);
    scoped_world w = make_world(&config);
    kvp_window_info info = {.dropped_end = 77};
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_window window = {0, 4};
    const kvp_window no_recent = {1, 0};
    assert_status(KVP_E_ARG, kvp_seq_window(NULL, seq, 0, window, NULL));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_window(w.cache, seq, 1, window, NULL)));
    assert_unchanged(&w,
                     assert_status(KVP_E_ARG, kvp_seq_window(w.cache, seq, 0, no_recent, NULL)));
    assert_status(KVP_E_HANDLE, kvp_seq_window(w.cache, (kvp_seq){0}, 9, window, NULL));
    assert_shortage(&w, KVP_E_HANDLE, 0, 0);
    assert_status(KVP_E_ARG, kvp_seq_window_get(w.cache, seq, 1, &info));
    assert_status(KVP_E_ARG, kvp_seq_window_get(w.cache, seq, 0, NULL));
    assert_status(KVP_E_ARG, kvp_seq_window_get(NULL, seq, 0, &info));
    assert_status(KVP_E_HANDLE, kvp_seq_window_get(w.cache, (kvp_seq){0}, 0, &info));
    assert_int_equal(info.dropped_end, 77);
    (void)swap_out(&w, &seq, 1);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_window(w.cache, seq, 0, window, NULL)));
    assert_status(KVP_E_ARG, kvp_seq_window(w.cache, seq, 0, no_recent, NULL)); /* goes first */
}

/* ------------------------------------------------------------------ what it computes is private */

/* The first position whose query sees less than all keys before it. */
static uint32_t first_blind(kvp_window window)
{
    return window.recent_tokens == 0 ? UINT32_MAX : window.sink_tokens + window.recent_tokens;
}

static void check_private_from(kvp_window theirs, kvp_window own, uint32_t computed)
{
    const int same =
        theirs.sink_tokens == own.sink_tokens && theirs.recent_tokens == own.recent_tokens;
    const uint32_t sees =
        first_blind(theirs) < first_blind(own) ? first_blind(theirs) : first_blind(own);
    const uint32_t from = same ? 24 : sees < computed ? computed : sees < 24 ? sees : 24;
    kvp_config config = groups_config(4, 15, &theirs, 1);
    config.unit_tokens = 2;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, computed));
    (void)kvp_seq_window(w.cache, seq, 0, own, NULL);
    assert_int_equal(info_of(&w, seq).public_tokens, from < 12 ? from / 2 * 2 : 12);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    decode(&w, seq, 12);
    assert_int_equal(info_of(&w, seq).public_tokens, from / 2 * 2);
    assert_int_equal(stats_of(&w).sealed_units, from / 2);
}

TEST(test_what_is_computed_with_another_window_is_private)
{
    const kvp_window windows[] = {{0, 0}, {0, 6}, {2, 5}, {4, 12}, {0, 1}, {20, 2}};
    const size_t n = sizeof(windows) / sizeof(*windows);
    for (size_t theirs = 0; theirs < n; theirs++) {
        for (size_t own = 0; own < n; own++) {
            check_private_from(windows[theirs], windows[own], 0);
            check_private_from(windows[theirs], windows[own], 3);
        }
    }
    for (size_t own = 1; own < n; own++) {
        check_private_from((kvp_window){0, 0}, windows[own], 9);
        check_private_from((kvp_window){0, 0}, windows[own], 12);
    }
}

TEST(test_nobody_hits_what_a_window_of_its_own_has_computed)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    (void)set_window(&w, 0, seq, 0, 4);
    decode(&w, seq, 10);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
    (void)open_done(&w, ints(0), 16); /* computes them anew: these are everybody's */
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 16);
    assert_dropped(&w, 0, seq, 0, 3);

    const kvp_seq child = fork_seq(&w, seq, 16); /* and so is its child's */
    decode(&w, child, 4);
    assert_int_equal(info_of(&w, child).public_tokens, 4);
    assert_ok(try_window(&w, seq, 0, 3));
    assert_int_equal(info_of(&w, seq).public_tokens, 4);
}

/* The group's window again: what was computed meanwhile is private for good. What lies before it
 * and is computed again has the KV that others have. */
TEST(test_the_groups_window_again)
{
    scoped_world w = small_world(7);
    const kvp_seq other = open_done(&w, ints(100), 12);
    assert_ok(try_window(&w, other, 0, 64)); /* hides nothing: private from 64 on */
    assert_ok(try_window(&w, other, 0, 0));
    assert_ok(kvp_seq_truncate(w.cache, other, 2, NULL));
    assert_ok(kvp_seq_extend(w.cache, other, ints(200), 10, 0));
    assert_ok(kvp_seq_commit(w.cache, other, 12));
    assert_int_equal(info_of(&w, other).public_tokens, 12);

    assert_ok(try_window(&w, other, 0, 12)); /* from 12 on */
    decode(&w, other, 1);
    assert_ok(try_window(&w, other, 0, 0));
    assert_ok(kvp_seq_truncate(w.cache, other, 6, NULL));
    extend_seq(&w, other, 14);
    assert_ok(kvp_seq_commit(w.cache, other, 20));
    assert_int_equal(info_of(&w, other).public_tokens, 12); /* the third unit was computed again */
}

TEST(test_a_reset_forgets_windows)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 20);
    (void)set_window(&w, 0, seq, 0, 4);
    assert_ok(kvp_cache_reset(w.cache));
    const kvp_seq again = open_done(&w, ints(0), 20);
    assert_row(&w, again, 1, 2, 3, 4, 5);
    assert_int_equal(window_of(&w, 0, again).window.recent_tokens, 0);
    assert_ok(try_window(&w, again, 0, 4));
    close_seq(&w, again);
    const kvp_seq third = open_seq(&w, ints(100), 20, NULL); /* in the same place */
    assert_int_equal(window_of(&w, 0, third).window.recent_tokens, 0);
    assert_dropped(&w, 0, third, 0, 0);
}

TEST_MAIN(NULL, NULL)

/* Chunked-local attention as a kind of window: what is kept at every place, what is dropped at the
 * end of a chunk, what a hit needs. Every way in which a prompt's blocks can be there is in
 * test_cache_groups_match.c. */
#include "groups.h"

enum { S = 4, LENGTH = 26 };

/* Groups: full attention, and chunks of R tokens. */
static world chunk_world(uint32_t usable, uint32_t R)
{
    const kvp_window windows[] = {{0, 0}, {KVP_CHUNKED, R}};
    const kvp_config config = groups_config(S, usable, windows, 2);
    return make_world(&config);
}

static void expect_kept(const world *w, kvp_seq seq, kvp_window window, uint32_t size, uint32_t q)
{
    const kvp_seq_info info = info_of(w, seq);
    for (uint32_t i = 0; i < info.n_blocks; i++)
        assert_int_equal(row_of(w, 0, seq)[i] != KVP_NULL_BLOCK, keeps(window, size, i, q));
}

/* --------------------------------------------------------------------------------- what is kept */

static void check_kept(uint32_t size, uint32_t R)
{
    const kvp_window window = {KVP_CHUNKED, R};
    const kvp_config config = groups_config(size, 31, &window, 1);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 1);
    for (uint32_t n = 2; n <= 3 * R + size && n <= 31; n++) {
        const uint64_t before = stats_of(&w).dropped_blocks;
        extend_seq(&w, seq, 1);
        assert_int_equal(stats_of(&w).dropped_blocks, before);
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        expect_kept(&w, seq, window, size, n);
    }
}

TEST(test_what_is_kept_at_every_edge)
{
    for (uint32_t size = 1; size <= 5; size++)
        for (uint32_t R = 1; R <= 2 * size + 3; R++)
            check_kept(size, R);
}

/* R = 6, S = 4, the figure of windows.h. */
TEST(test_the_example_of_the_header)
{
    const kvp_window window = {KVP_CHUNKED, 6};
    const kvp_config config = groups_config(S, 15, &window, 1);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 11);
    assert_row(&w, seq, 0, 2, 3); /* 11 sees 6 and after */
    decode(&w, seq, 1);
    assert_row(&w, seq, 0, 0, 0); /* 12 begins a chunk, and a block */
    decode(&w, seq, 5);
    assert_dropped(&w, 0, seq, 0, 3); /* 17 sees 12 and after */
    decode(&w, seq, 1);
    assert_dropped(&w, 0, seq, 0, 4); /* 18 begins a chunk inside entry 4 */
    assert_fields(window_of(&w, 0, seq).window, sink_tokens, KVP_CHUNKED, recent_tokens, 6);
}

TEST(test_a_chunk_longer_than_the_sequence_drops_nothing)
{
    const uint32_t lengths[] = {61, 64, UINT32_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        scoped_world w = window_world(15, KVP_CHUNKED, lengths[i]);
        const kvp_seq seq = open_done(&w, ints(0), 50);
        decode(&w, seq, 10);
        assert_int_equal(stats_of(&w).dropped_blocks, 0);
    }
}

/* ----------------------------------------------------------------------------------------- hits */

/* Chunks of 8: with blocks of chunk 0 gone from its group, prompts hit what ends behind it. */
TEST(test_a_hit_needs_only_its_last_chunk)
{
    scoped_world w = chunk_world(14, 8);
    kvp_open_info info;
    const kvp_seq first = open_seq(&w, ints(0), 24, NULL);
    for (uint32_t i = 0; i < 6; i++) {
        retain_block(&w, row_of(&w, 0, first)[i], 2);
        retain_block(&w, row_of(&w, 1, first)[i], i < 2 ? 0 : 2); /* what goes first */
    }
    assert_ok(kvp_seq_commit(w.cache, first, 24));
    close_seq(&w, first);
    evict_blocks(&w, 4);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 0); /* 4: needs entry 0 */
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8); /* needs nothing of the group */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0); /* 7 runs again: needs 0 .. 7 */
    assert_int_equal(match(&w, ints(0), 14).hit_tokens, 12);
    assert_int_equal(match(&w, ints(0), 17).hit_tokens, 16);
    const kvp_seq seq = open_seq(&w, ints(0), 14, &info);
    assert_int_equal(info.hit_tokens, 12);
    assert_dropped(&w, 1, seq, 0, 2); /* entry 2 is of the chunk */
    assert_ok(kvp_seq_commit(w.cache, seq, 14));
    assert_dropped(&w, 1, seq, 0, 2);
}

TEST(test_a_hit_up_to_a_chunk_takes_nothing_of_the_group)
{
    scoped_world w = chunk_world(20, 8);
    kvp_open_info info;
    leave_cached(&w, ints(0), 16);
    const kvp_seq seq = open_seq(&w, ints(0), 17, &info);
    assert_int_equal(info.hit_tokens, 16);
    assert_int_equal(info.shared_blocks, 4); /* those of group 0 */
    assert_dropped(&w, 1, seq, 0, 4);
}

/* ----------------------------------------------------------------------- what else needs tokens */

static void check_back(uint32_t n, uint32_t at, uint32_t R)
{
    const kvp_window window = {KVP_CHUNKED, R};
    const int fits = at / R == n / R || n < R; /* nothing of its chunk was dropped */
    scoped_world w = window_world(31, KVP_CHUNKED, R);
    const kvp_seq seq = open_done(&w, ints(0), n);
    kvp_seq child = {0};
    int lacks = 0;
    for (uint32_t i = 0; i < kvp_blocks_for_tokens(S, at); i++)
        lacks |= keeps(window, S, i, at) && row_of(&w, 0, seq)[i] == KVP_NULL_BLOCK;
    assert_true(!fits || !lacks);
    const kvp_status status = kvp_seq_fork(w.cache, seq, at, 0, &child);
    assert_int_equal(status, lacks ? KVP_E_DROPPED : KVP_OK);
    if (status == KVP_OK) {
        expect_kept(&w, child, window, S, at);
        decode(&w, child, 5);
        expect_kept(&w, child, window, S, at + 5);
        close_seq(&w, child);
    }
    assert_int_equal(kvp_seq_truncate(w.cache, seq, at, NULL), lacks ? KVP_E_DROPPED : KVP_OK);
    if (!lacks) {
        decode(&w, seq, 7);
        expect_kept(&w, seq, window, S, at + 7);
    }
}

TEST(test_forks_and_cuts_at_every_place)
{
    for (uint32_t R = 1; R <= 11; R++) {
        for (uint32_t n = 14; n <= 18; n++)
            for (uint32_t at = 0; at <= n; at++)
                check_back(n, at, R);
    }
}

/* --------------------------------------------------------------------------- a sequence's own */

TEST(test_a_sequence_can_have_chunks_of_its_own)
{
    scoped_world w = window_world(31, 0, 0);
    const kvp_seq seq = open_done(&w, ints(0), LENGTH);
    assert_released(set_window(&w, 0, seq, KVP_CHUNKED, 10), 0, 5); /* 25, run again, sees 20 */
    assert_dropped(&w, 0, seq, 0, 5);
    assert_status(KVP_E_DROPPED, /* 26 would see 14 */
                  kvp_seq_window(w.cache, seq, 0, (kvp_window){KVP_CHUNKED, 14}, NULL));
    assert_status(KVP_E_DROPPED, kvp_seq_window(w.cache, seq, 0, (kvp_window){0, 12}, NULL));
    assert_released(set_window(&w, 0, seq, KVP_CHUNKED, 12), 0, 1); /* 24 and after */
}

/* A sink, and what of a new chunk lies before tokens that are gone, is of no use. */
TEST(test_what_lies_before_a_dropped_entry_goes_too)
{
    scoped_world w = window_world(31, 4, 1);
    const kvp_seq seq = open_done(&w, ints(0), 14);
    assert_dropped(&w, 0, seq, 1, 3);
    assert_released(set_window(&w, 0, seq, KVP_CHUNKED, 14), 0, 1); /* 13 would see entry 0 */
    assert_dropped(&w, 0, seq, 0, 3);
    extend_seq(&w, seq, 1); /* 14 begins a chunk */
    assert_ok(kvp_seq_commit(w.cache, seq, 15));
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 13, NULL));
}

/* Chunks and a window of as many tokens differ, from the first query on that does not see all. */
TEST(test_what_is_computed_with_other_chunks_is_private)
{
    scoped_world w = window_world(15, KVP_CHUNKED, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 24, NULL);
    assert_int_equal(info_of(&w, seq).public_tokens, 24);
    (void)set_window(&w, 0, seq, KVP_CHUNKED, 8);
    assert_int_equal(info_of(&w, seq).public_tokens, 24);
    (void)set_window(&w, 0, seq, 0, 8);
    assert_int_equal(info_of(&w, seq).public_tokens, 8);
}

/* -------------------------------------------------------------------------------------- refused */

TEST(test_chunks_of_no_tokens_are_refused)
{
    const kvp_window empty = {KVP_CHUNKED, 0};
    kvp_config config = groups_config(S, 15, &empty, 1);
    kvp_why why;
    assert_status(KVP_E_ARG, kvp_config_check(&config, &why));
    assert_string_equal(why.field, "groups[0].sink_tokens");
    scoped_world w = window_world(15, KVP_CHUNKED, 4);
    const kvp_seq seq = open_done(&w, ints(0), 9);
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_window(w.cache, seq, 0, empty, NULL)));
}

TEST_MAIN(NULL, NULL)

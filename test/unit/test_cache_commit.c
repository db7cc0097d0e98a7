/* Commit: sealing, adopting what is there, keeping duplicates; and invalidate, which takes it
 * back. */
#include <string.h>

#include "world.h"

static kvp_config keep_config(uint32_t S, uint32_t U, uint32_t usable)
{
    kvp_config config = config_of(S, U, usable);
    config.commit_policy = KVP_KEEP;
    return config;
}

/* -------------------------------------------------------------------------------------- sealing */

TEST(test_only_full_units_up_to_n_are_sealed)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 11, NULL);
    const uint32_t sealed[] = {0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10};
    for (uint32_t n = 0; n <= 11; n++) {
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        assert_int_equal(info_of(&w, seq).computed_tokens, n);
        assert_int_equal(match(&w, ints(0), 11).hit_tokens, sealed[n]);
        assert_int_equal(stats_of(&w).sealed_units, sealed[n] / 2);
    }
    assert_fields(block_of(&w, 1), sealed_tokens, 4, sealed_units, 2);
    assert_int_equal(block_of(&w, 3).sealed_tokens, 2);
    assert_row(&w, seq, 1, 2, 3);
    assert_int_equal(info_of(&w, seq).row_version, 0);
}

TEST(test_a_commit_of_what_is_computed_does_nothing)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    assert_unchanged(&w, assert_ok(kvp_seq_commit(w.cache, seq, 10)));
    assert_unchanged(&w, assert_ok(kvp_seq_commit(w.cache, seq, 3)));
    assert_unchanged(&w, assert_ok(kvp_seq_commit(w.cache, seq, 0)));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_commit(w.cache, seq, 11)));
    assert_shortage(&w, KVP_E_ARG, 0, 0);
}

TEST(test_slots_that_were_never_writable_are_not_committed)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_commit(w.cache, seq, 6)));
    assert_ok(kvp_seq_commit(w.cache, seq, 5));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
}

TEST(test_an_unfilled_value_is_not_sealed_until_it_is_known)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 2);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 7, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_int_equal(stats_of(&w).sealed_units, 0);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(2), 3));
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 4);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(5), 4));
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    assert_int_equal(stats_of(&w).sealed_units, 2);
}

/* ---------------------------------------------------------------------------------------- adopt */

TEST(test_adopt_switches_the_row_and_releases_ours)
{
    scoped_world w = small_world(15);
    const kvp_seq first = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq second = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, first, 8));
    assert_row(&w, second, 3, 4);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_row(&w, second, 1, 4);
    assert_int_equal(info_of(&w, second).row_version, 1);
    assert_int_equal(block_of(&w, 1).ref_count, 2);
    assert_fields(block_of(&w, 3), state, KVP_BLOCK_FREE, generation, 1);
    assert_ok(kvp_seq_commit(w.cache, second, 8));
    assert_row(&w, second, 1, 2);
    assert_int_equal(info_of(&w, second).row_version, 2);
    assert_fields(stats_of(&w), adopted_blocks, 2, sealed_units, 2);
}

TEST(test_adopt_holds_a_block_that_is_only_cached)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    leave_cached(&w, ints(0), 4); /* computed and left by another, meanwhile */
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_CACHED);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_row(&w, seq, 2);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_HELD);
}

TEST(test_adopt_waits_for_the_last_unit_of_the_block)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    const kvp_seq first = open_seq(&w, ints(0), 4, NULL);
    const kvp_seq second = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, first, 4));
    assert_ok(kvp_seq_commit(w.cache, second, 2));
    assert_row(&w, second, 2); /* a duplicate so far */
    assert_int_equal(stats_of(&w).adopted_blocks, 0);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_row(&w, second, 1);
    assert_fields(stats_of(&w), adopted_blocks, 1, duplicate_blocks, 0);
}

TEST(test_a_unit_of_a_fork_is_sealed_once)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0)); /* values unknown, computed */
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 2));
    const kvp_seq child = fork_seq(&w, seq, 6);
    assert_ok(kvp_seq_commit(w.cache, child, 6));
    assert_fields(stats_of(&w), sealed_units, 3, adopted_blocks, 0);
}

/* ----------------------------------------------------------------------------------------- keep */

TEST(test_keep_leaves_the_row_and_keeps_a_duplicate)
{
    const kvp_config config = keep_config(4, 4, 15);
    scoped_world w = make_world(&config);
    (void)open_done(&w, ints(0), 4);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_row(&w, second, 2);
    assert_int_equal(info_of(&w, second).row_version, 0);
    assert_int_equal(stats_of(&w).duplicate_blocks, 1);
    assert_int_equal(block_of(&w, 2).sealed_units, 0);
    const kvp_released released = close_seq(&w, second); /* duplicates are no content */
    assert_fields(released, freed_blocks, 1, cached_blocks, 0);
}

TEST(test_the_oldest_duplicate_takes_the_place_of_an_evicted_block)
{
    const kvp_config config = keep_config(4, 4, 3);
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq first = open_done(&w, ints(0), 4);
    kvp_seq later[2];
    for (int i = 0; i < 2; i++) {
        later[i] = open_with(&w, &prompt, NULL);
        assert_ok(kvp_seq_commit(w.cache, later[i], 4));
    }
    assert_row(&w, later[0], 2);
    assert_row(&w, later[1], 3);
    close_seq(&w, first);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_CACHED);
    const kvp_seq taker = open_seq(&w, ints(100), 4, NULL); /* evicts block 1 */
    assert_row(&w, taker, 1);
    assert_int_equal(block_of(&w, 2).sealed_units, 1);
    assert_int_equal(block_of(&w, 3).sealed_units, 0);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 4);
    assert_int_equal(close_seq(&w, later[0]).cached_blocks, 1); /* it has the content now */
}

TEST(test_a_duplicate_that_is_released_takes_no_place)
{
    const kvp_config config = keep_config(4, 4, 2);
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq first = open_done(&w, ints(0), 4);
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    close_seq(&w, second);
    close_seq(&w, first);
    (void)open_seq(&w, ints(100), 8, NULL);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
}

/* ------------------------------------------------------------------------------- many at a time */

TEST(test_commit_many_goes_in_order_and_is_all_or_nothing)
{
    scoped_world w = small_world(15);
    const kvp_seq seqs[] = {open_seq(&w, ints(0), 8, NULL), open_seq(&w, ints(0), 8, NULL),
                            open_seq(&w, ints(100), 4, NULL)};
    const uint32_t too_many[] = {8, 8, 5};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_commit_many(w.cache, seqs, too_many, 3)));
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    const uint32_t n[] = {8, 8, 4};
    assert_ok(kvp_seq_commit_many(w.cache, seqs, n, 3));
    assert_row(&w, seqs[0], 1, 2);
    assert_row(&w, seqs[1], 1, 2); /* the second adopts the first one's */
    assert_int_equal(stats_of(&w).sealed_units, 3);
    assert_ok(kvp_seq_commit_many(w.cache, NULL, NULL, 0));
}

TEST(test_commit_many_checks_handles_then_names_then_values_then_states)
{
    scoped_world w = small_world(15);
    const kvp_seq a = open_done(&w, ints(0), 4);
    const kvp_seq b = open_seq(&w, ints(100), 4, NULL);
    const uint32_t n[] = {4, 99, 4};
    assert_ok(kvp_seq_invalidate(w.cache, a, 0, NULL, 0, NULL));
    const kvp_seq stale[] = {b, b, {0}};
    assert_unchanged(&w, assert_status(KVP_E_HANDLE, kvp_seq_commit_many(w.cache, stale, n, 3)));
    assert_shortage(&w, KVP_E_HANDLE, 2, 0);
    const kvp_seq twice[] = {a, b, b};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_commit_many(w.cache, twice, n, 3)));
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_commit_many(w.cache, twice, n, 2)));
    assert_shortage(&w, KVP_E_STATE, 0, 0); /* sequences in order */
    const kvp_seq turned[] = {b, a};
    const uint32_t m[] = {99, 4};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_commit_many(w.cache, turned, m, 2)));
}

/* ----------------------------------------------------------------------------------- invalidate */

TEST(test_invalidate_takes_back_what_was_computed)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 11);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    const kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, computed_tokens, 5, writable_tokens, 5);
    assert_int_equal(info.public_tokens, 4); /* private from the unit of token 5 on */
    assert_int_equal(info.n_tokens, 11);
    assert_row(&w, seq, 1, 2, 3);
    assert_int_equal(match(&w, ints(0), 11).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 11).stop, KVP_STOP_MISS); /* cannot be found again */
    assert_int_equal(stats_of(&w).detached_units, 3);
    assert_int_equal(block_of(&w, 1).generation, 0);
    assert_int_equal(block_of(&w, 2).generation, 1); /* once, though two units went */
    assert_int_equal(block_of(&w, 2).sealed_units, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 11));
    assert_int_equal(match(&w, ints(0), 11).hit_tokens, 4); /* not published */
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(5), 6, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 11));
    assert_int_equal(match(&w, ints(0), 11).hit_tokens, 10); /* now it is */
}

TEST(test_invalidate_at_the_end_or_after_what_is_computed)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 8, NULL, 0, NULL));
    assert_fields(info_of(&w, seq), computed_tokens, 8, public_tokens, 8);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_unchanged(&w,
                     assert_status(KVP_E_ARG, kvp_seq_invalidate(w.cache, seq, 9, NULL, 0, NULL)));
    assert_shortage(&w, KVP_E_ARG, 0, 0);
}

TEST(test_cached_blocks_that_lose_their_last_unit_become_free_in_row_order)
{
    scoped_world w = small_world(7);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    assert_ok(kvp_seq_truncate(w.cache, seq, 8, NULL));
    assert_queue(&w, 0, 4, 5, 6, 7, 3);
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq victim = open_with(&w, &prompt, NULL); /* 4 5 6, its nodes have 1 2 3 */
    close_seq(&w, seq);
    assert_queue(&w, 0, 7, 3, 2, 1);
    assert_ok(kvp_seq_invalidate(w.cache, victim, 4, NULL, 0, NULL));
    assert_queue(&w, 0, 3, 2, 7, 1); /* 2, then 3, to the head */
    assert_int_equal(block_of(&w, 3).generation, 1);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
}

TEST(test_children_of_a_withdrawn_unit_cannot_be_reached)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    leave_cached(&w, ints(0), 12); /* somebody else went on from there */
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 0);
    leave_cached(&w, ints(0), 4);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 12).stop, KVP_STOP_MISS);
}

TEST(test_duplicates_lose_the_content_too)
{
    const kvp_config config = keep_config(4, 4, 15);
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq first = open_done(&w, ints(0), 4);
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    kvp_seq sharers[1];
    uint32_t n = 77;
    assert_ok(kvp_seq_invalidate(w.cache, first, 0, sharers, 1, &n));
    assert_int_equal(n, 1); /* no block in common, but the unit: it may have been copied */
    assert_int_equal(sharers[0].bits, second.bits);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    assert_int_equal(info_of(&w, second).public_tokens, 0); /* it has the withdrawn unit */
    assert_int_equal(close_seq(&w, second).freed_blocks, 1);
    assert_int_equal(stats_of(&w).detached_units, 1);
}

TEST(test_sequences_that_share_blocks_are_reported_in_the_order_of_their_places)
{
    scoped_world w = small_world(31);
    const kvp_seq a = open_done(&w, ints(0), 12);
    const kvp_seq b = fork_seq(&w, a, 12);
    const kvp_seq c = fork_seq(&w, a, 8);
    (void)open_seq(&w, ints(100), 12, NULL); /* shares nothing */
    const kvp_seq e = fork_seq(&w, a, 10);
    close_seq(&w, b);
    const kvp_seq f = fork_seq(&w, a, 9); /* b's place: before c and e */
    kvp_seq seqs[4] = {{77}, {77}, {77}, {77}};
    uint32_t n = 77;
    assert_unchanged(
        &w, assert_status(KVP_E_TOO_SMALL, kvp_seq_invalidate(w.cache, a, 8, seqs, 1, &n)));
    assert_int_equal(n, 2); /* c has no token from 8 on */
    assert_shortage(&w, KVP_E_TOO_SMALL, 0, 0);
    assert_unchanged(&w, assert_ok(kvp_seq_invalidate(w.cache, a, 9, NULL, 0, &n)));
    assert_int_equal(n, 1); /* f shares the block of token 9, but has no such token */
    assert_unchanged(&w, assert_ok(kvp_seq_invalidate(w.cache, a, 4, NULL, 0, &n)));
    assert_int_equal(n, 3);
    assert_ok(kvp_seq_invalidate(w.cache, a, 4, seqs, 4, &n));
    assert_int_equal(n, 3);
    assert_int_equal(seqs[0].bits, f.bits);
    assert_int_equal(seqs[1].bits, c.bits);
    assert_int_equal(seqs[2].bits, e.bits);
    assert_int_equal(seqs[3].bits, 77);
    const kvp_seq sharers[] = {f, c, e};
    for (int i = 0; i < 3; i++)
        assert_int_equal(info_of(&w, sharers[i]).public_tokens, 4); /* private from there on */
}

TEST(test_a_list_that_is_too_small_is_not_written)
{
    scoped_world w = small_world(31);
    const kvp_seq a = open_done(&w, ints(0), 8);
    (void)fork_seq(&w, a, 8);
    (void)fork_seq(&w, a, 8);
    kvp_seq seqs[1] = {{77}};
    uint32_t n;
    assert_status(KVP_E_TOO_SMALL, kvp_seq_invalidate(w.cache, a, 0, seqs, 1, &n));
    assert_int_equal(n, 2);
    assert_int_equal(seqs[0].bits, 77);
}

TEST_MAIN(NULL, NULL)

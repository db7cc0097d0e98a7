/* What a swapped sequence lives through, and what swaps do to others: closing, invalidation, flush,
 * duplicates, eviction on either tier, reset. */
#include <string.h>

#include "tiers.h"

/* ---------------------------------------------------------------------------------------- close */

TEST(test_a_swapped_sequence_can_be_closed)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 14);
    swap_out(&w, &seq, 1);
    const kvp_released released = close_seq(&w, seq);
    assert_int_equal(released.freed_blocks, 1); /* the host's */
    assert_int_equal(released.cached_blocks, 3);
    assert_host_queue(&w, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3, 2, 1);
    assert_fields(stats_of(&w), swapped_seqs, 0, open_seqs, 0);
    assert_status(KVP_E_HANDLE, kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL));
}

TEST(test_the_copy_of_a_block_that_became_free_leaves_the_plan)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    assert_plan(&w, TO_HOST(0, 1, 1, 4)); /* cached there: it can be hit */
}

TEST(test_a_freed_block_takes_no_copy_into_its_namesake_along)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 2);
    const kvp_seq child = fork_seq(&w, parent, 2);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 1, 0)); /* into block 2 of the device */
    const kvp_seq seqs[] = {open_done(&w, ints(100), 2), open_done(&w, ints(200), 2)};
    swap_out(&w, seqs, 2); /* into 1 and 2 of the host */
    close_seq(&w, child);
    assert_plan(&w, TO_HOST(0, 3, 1, 2), TO_HOST(0, 4, 2, 2));
}

TEST(test_a_swapped_sharer_closed_leaves_the_others_theirs)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 6)};
    swap_out(&w, seqs, 2);
    const kvp_released released = close_seq(&w, parent);
    assert_int_equal(released.freed_blocks + released.cached_blocks, 0);
    assert_int_equal(host_block(&w, 2).ref_count, 1);
    assert_admission(can_swap_in(&w, &seqs[1], 1, 1), KVP_ADMIT_OK, 2, 15, 0); /* alone: no copy */
    assert_moved(swap_in(&w, &seqs[1], 1, 1), 1, 1, 1, 1);
    assert_row(&w, seqs[1], 1, 2);
}

TEST(test_closing_all_gives_every_block_of_both_tiers_back)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 7), open_done(&w, ints(100), 5)};
    swap_out(&w, seqs, 3);
    swap_in(&w, seqs, 2, 1);
    for (int i = 0; i < 3; i++)
        close_seq(&w, seqs[i]);
    const kvp_stats s = stats_of(&w);
    assert_int_equal(s.free_blocks + s.cached_blocks, 15);
    assert_int_equal(s.host_free_blocks + s.host_cached_blocks, 15);
}

/* ----------------------------------------------------------------------------------- invalidate */

TEST(test_invalidation_reports_a_swapped_sharer_and_takes_the_hosts_kv_too)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq sharers[2];
    uint32_t n = 77;
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq child = fork_seq(&w, parent, 8);
    swap_out(&w, &child, 1);
    assert_ok(kvp_seq_invalidate(w.cache, parent, 4, sharers, 2, &n));
    assert_int_equal(n, 1);
    assert_int_equal(sharers[0].bits, child.bits);
    assert_int_equal(stats_of(&w).detached_units, 2); /* one on each tier */
    assert_fields(host_block(&w, 2), sealed_units, 0, state, KVP_BLOCK_HELD, generation, 1);
    assert_int_equal(block_of(&w, 2).generation, 1);
    assert_fields(host_block(&w, 1), generation, 0, sealed_units, 1);
    assert_int_equal(info_of(&w, child).public_tokens, 4);
    assert_int_equal(info_of(&w, child).computed_tokens, 8); /* the caller should close it */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
    const kvp_released released = close_seq(&w, child);
    assert_fields(released, freed_blocks, 1, cached_blocks, 1);
}

TEST(test_equal_numbers_on_the_other_tier_are_no_sharing)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq shared[1];
    uint32_t n = 77;
    const kvp_seq a = open_done(&w, ints(0), 8);
    const kvp_seq b = open_done(&w, ints(100), 8);
    swap_out(&w, &b, 1);
    assert_row(&w, a, 1, 2);
    assert_row(&w, b, 1, 2);
    assert_ok(kvp_seq_invalidate(w.cache, a, 0, shared, 1, &n));
    assert_int_equal(n, 0);
    assert_int_equal(info_of(&w, b).public_tokens, 8);
}

TEST(test_a_swapped_sequence_with_fewer_tokens_is_not_reported)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq shared[1];
    uint32_t n = 77;
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq child = fork_seq(&w, parent, 5);
    swap_out(&w, &child, 1);
    assert_ok(kvp_seq_invalidate(w.cache, parent, 5, shared, 1, &n));
    assert_int_equal(n, 0);
}

TEST(test_a_withdrawn_unit_cached_on_the_host_becomes_free)
{
    scoped_world w = tiers_world(15, 5);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    assert_host_queue(&w, 0, 4, 5, 3, 2, 1);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    assert_host_queue(&w, 0, 3, 2, 4, 5, 1); /* in row order, each to the head */
    assert_int_equal(host_block(&w, 2).generation, 1);
    assert_plan(&w, TO_HOST(0, 1, 1, 4)); /* nobody can read the others */
}

TEST(test_a_private_sequence_moves_all_by_copies)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* computed again, private */
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 1, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 0);
    leave_cached(&w, ints(0), 8); /* somebody else's is public, and not taken for ours */
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 1, 1, 1);
}

/* ------------------------------------------------------------------------- flush, spaces, reset */

TEST(test_a_flush_leaves_a_swapped_sequence_undisturbed)
{
    scoped_world w = tiers_world(15, 15);
    int32_t tokens[8];
    const kvp_seq seq = open_done(&w, ints(0), 8);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_moved(swap_in(&w, &seq, 1, 0), 0, 2, 0, 2); /* its own nodes still have them */
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 8, tokens));
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    assert_moved(swap_out(&w, &seq, 1), 0, 2, 0, 2);
    wipe_device(&w);
    assert_moved(swap_in(&w, &seq, 1, 0), 2, 0, 0, 2);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
}

TEST(test_a_swapped_sequence_outlives_its_namespace)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    assert_ok(kvp_ns_close(w.cache, w.ns));
    assert_moved(swap_in(&w, &seq, 1, 2), 1, 2, 1, 2);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(10), 2, 0));
    close_seq(&w, seq);
}

TEST(test_reset_empties_both_tiers)
{
    scoped_world w = tiers_world(7, 5);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 10), open_done(&w, ints(100), 4)};
    swap_out(&w, seqs, 2);
    swap_in(&w, seqs, 1, 0);
    assert_ok(kvp_cache_reset(w.cache));
    assert_queue(&w, 0, 1, 2, 3, 4, 5, 6, 7);
    assert_host_queue(&w, 0, 1, 2, 3, 4, 5);
    assert_no_plan(&w);
    const kvp_stats s = stats_of(&w);
    assert_fields(s, swapped_seqs, 0, host_free_blocks, 5);
    assert_int_equal(s.swap_outs, 2); /* counters go on */
    assert_int_equal(host_block(&w, 1).generation, 1);
    assert_int_equal(host_block(&w, 5).generation, 0);
    assert_status(KVP_E_HANDLE, kvp_seq_swap_in(w.cache, &seqs[1], 1, 0, NULL));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
}

/* ------------------------------------------------------------------------- keep, adopt, sharers */

/* Two sequences with the same 4 tokens, each in a block of its own (KVP_KEEP). */
static world two_of_the_same(kvp_seq seqs[2])
{
    kvp_config config = tiers_config(4, 4, 31, 15);
    config.commit_policy = KVP_KEEP;
    world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    seqs[0] = open_done(&w, ints(0), 4);
    seqs[1] = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seqs[1], 4));
    return w;
}

TEST(test_keep_has_duplicates_on_the_host_as_well)
{
    kvp_seq seqs[2];
    scoped_world w = two_of_the_same(seqs);
    assert_moved(swap_out(&w, seqs, 2), 2, 0, 1, 1);
    assert_row(&w, seqs[0], 1);
    assert_row(&w, seqs[1], 2);
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 0);
    assert_moved(swap_in(&w, seqs, 2, 0), 0, 1, 1, 1); /* one block is both of them now */
    assert_row(&w, seqs[0], 1);
    assert_row(&w, seqs[1], 1);
}

TEST(test_a_duplicate_on_the_host_takes_the_place_of_an_evicted_block)
{
    kvp_seq seqs[2];
    scoped_world w = two_of_the_same(seqs);
    const kvp_seq filler = open_done(&w, ints(100), 56);
    swap_out(&w, seqs, 2);
    close_seq(&w, seqs[0]); /* host 1 is cached, behind 13 free ones */
    assert_moved(swap_out(&w, &filler, 1), 14, 0, 0, 14);
    assert_int_equal(stats_of(&w).host_evicted_blocks, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 1);
    assert_int_equal(close_seq(&w, seqs[1]).cached_blocks, 1);
}

TEST(test_keep_in_two_calls_finds_what_the_first_one_brought)
{
    kvp_seq seqs[2];
    scoped_world w = two_of_the_same(seqs);
    assert_moved(swap_out(&w, &seqs[0], 1), 1, 0, 0, 1);
    assert_moved(swap_out(&w, &seqs[1], 1), 0, 1, 1, 0);
    assert_row(&w, seqs[1], 1);
    assert_int_equal(host_block(&w, 1).ref_count, 2);
}

TEST(test_who_computed_the_same_meanwhile_shares_it)
{
    scoped_world w = tiers_world(15, 15);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    wipe_device(&w);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq other = open_with(&w, &prompt, NULL); /* computes it once more */
    assert_ok(kvp_seq_commit(w.cache, other, 8));
    assert_admission(can_swap_in(&w, &seq, 1, 0), KVP_ADMIT_OK, 0, 13, 0);
    assert_moved(swap_in(&w, &seq, 1, 0), 0, 2, 0, 2);
    assert_row(&w, seq, row_entry(&w, other, 0), row_entry(&w, other, 1));
    assert_no_plan(&w);
}

TEST(test_a_swapped_sequence_does_not_disturb_a_sharer_that_writes)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    swap_out(&w, &parent, 1);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 2, 0)); /* the only holder here: no copy */
    assert_ok(kvp_seq_commit(w.cache, child, 8));
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 2)); /* runs before the child writes */
    assert_moved(swap_in(&w, &parent, 1, 1), 1, 1, 1, 1);
    assert_row(&w, parent, 1, 3);
    assert_plan(&w, TO_DEVICE(0, 2, 3, 2));
}

TEST(test_truncate_and_fork_work_again_after_the_way_back)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    const kvp_seq child = fork_seq(&w, seq, 7);
    assert_row(&w, child, 1, 2);
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL));
    assert_moved(swap_out(&w, &seq, 1), 1, 0, 0, 0); /* not a full unit any more: not found */
    assert_int_equal(info_of(&w, seq).public_tokens, 0);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 0, 1, 0);
}

/* ------------------------------------------------------------------------------------- eviction */

TEST(test_swap_out_evicts_on_the_host_and_tells)
{
    scoped_world w = tiers_world(15, 2);
    const kvp_evicted *evicted;
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    close_seq(&w, a);
    assert_host_queue(&w, 0, 2, 1);
    const kvp_hash hash = host_block(&w, 2).hash;
    const kvp_seq b = open_done(&w, ints(100), 4);
    swap_out(&w, &b, 1);
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_fields(evicted[0], block, 2, tier, KVP_HOST, kept, 0);
    assert_memory_equal(&evicted[0].hash, &hash, sizeof(hash));
    assert_row(&w, b, 2);
    assert_int_equal(host_block(&w, 2).generation, 1);
    assert_fields(stats_of(&w), host_evicted_blocks, 1, evicted_blocks, 0);
    /* The copy into block 2 for a is not needed any more. */
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 3, 2, 4));
}

TEST(test_found_blocks_are_held_before_others_are_taken)
{
    scoped_world w = tiers_world(15, 3);
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    close_seq(&w, a); /* 2 and 1 are cached behind the free 3 */
    const kvp_seq again = open_seq(&w, ints(0), 10, NULL);
    assert_ok(kvp_seq_commit(w.cache, again, 10));
    const kvp_seq b = open_done(&w, ints(100), 4);
    const kvp_seq b_first[] = {b, again};
    assert_admission(can_swap_out(&w, b_first, 2), KVP_ADMIT_NEVER, 4, 3, 1);
    assert_admission(can_swap_out(&w, &again, 1), KVP_ADMIT_OK, 3, 3, 0);
    assert_moved(swap_out(&w, &again, 1), 1, 2, 1, 2);
    assert_row(&w, again, 1, 2, 3);
}

/* Room on the device is made by evicting what the host then keeps, while we come from there. */
TEST(test_swap_in_evicts_on_the_device_and_keeps_it_on_the_host)
{
    scoped_world w = tiers_world(2, 4);
    const kvp_evicted *evicted;
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    drop_plan(&w);
    leave_cached(&w, ints(100), 8); /* takes 2 1, whose content the host has */
    assert_queue(&w, 0, 1, 2);
    assert_no_plan(&w);
    swap_in(&w, &a, 1, 0);
    assert_row(&w, a, 1, 2);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_fields(evicted[0], block, 1, kept, 1);
    assert_fields(evicted[1], block, 2, kept, 1);
    assert_plan(&w, TO_HOST(0, 1, 3, 4), TO_DEVICE(1, 1, 1, 4), TO_HOST(1, 2, 4, 4),
                TO_DEVICE(2, 2, 2, 4));
    assert_host_queue(&w, 0, 3, 4, 2, 1); /* kept at once, ours after */
    assert_int_equal(stats_of(&w).kept_blocks, 2);
    assert_int_equal(match(&w, ints(100), 8).host_tokens, 8);
}

/* The copies of the swap itself go before those that keep what it evicts. */
TEST(test_swap_in_keeps_room_in_the_plan_for_its_own_copies)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.max_copies = 4;
    scoped_world w = make_world(&config);
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    drop_plan(&w);
    leave_cached(&w, ints(100), 8);
    swap_in(&w, &a, 1, 0); /* 2 x 2 copies to come are the half of the plan */
    assert_fields(stats_of(&w), kept_blocks, 0, unkept_blocks, 2);
}

TEST(test_copies_on_write_of_a_swap_in_count_as_its_own_copies)
{
    kvp_config config = tiers_config(4, 4, 3, 5);
    config.max_copies = 6;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 6)};
    swap_out(&w, seqs, 2);
    drop_plan(&w);
    leave_cached(&w, ints(100), 12);
    swap_in(&w, seqs, 2, 1); /* two from the host, and one on the device */
    assert_fields(stats_of(&w), kept_blocks, 0, unkept_blocks, 3);
}

/* The host is full of what swaps in: nothing can be kept, and the swap goes ahead. */
TEST(test_swap_in_does_not_wait_for_room_to_keep)
{
    scoped_world w = tiers_world(2, 2);
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    drop_plan(&w);
    leave_cached(&w, ints(100), 8);
    assert_moved(swap_in(&w, &a, 1, 0), 2, 0, 0, 2);
    assert_plan(&w, TO_DEVICE(0, 1, 1, 4), TO_DEVICE(0, 2, 2, 4));
    assert_fields(stats_of(&w), unkept_blocks, 2, kept_blocks, 0);
}

TEST_MAIN(NULL, NULL)

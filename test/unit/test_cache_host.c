/* The host tier as a cache: prompts that get their blocks back from it, and what is read of it. */
#include <string.h>

#include "tiers.h"

/* --------------------------------------------------------------------------- hits from the host */

/* Twelve tokens whose blocks the device has lost, from the end of the row on, and the host has. */
static world kept_tail(uint32_t lost)
{
    world w = tiers_world(3, 7);
    leave_cached(&w, ints(0), 12); /* the queue is 3 2 1 */
    kvp_prompt prompt = prompt_of(NULL, 0);
    prompt.reserve_tokens = 4 * lost;
    close_seq(&w, open_with(&w, &prompt, NULL));
    drop_plan(&w);
    return w;
}

TEST(test_a_match_tells_the_tiers_apart)
{
    scoped_world w = kept_tail(2); /* 3 is host 1, 2 is host 2 */
    const kvp_open_info info = match(&w, ints(0), 14);
    const kvp_open_info expected = {.cached_tokens = 12,
                                    .hit_tokens = 12,
                                    .stop = KVP_STOP_END,
                                    .host_tokens = 8,
                                    .shared_blocks = 1,
                                    .host_blocks = 2,
                                    .cached_blocks = 1,
                                    .taken_blocks = 3};
    assert_memory_equal(&info, &expected, sizeof(info));
}

TEST(test_a_prompt_gets_its_blocks_back_from_the_host)
{
    scoped_world w = kept_tail(2);
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 12, &info);
    const kvp_open_info expected = {.cached_tokens = 11,
                                    .hit_tokens = 12,
                                    .stop = KVP_STOP_END,
                                    .host_tokens = 8,
                                    .shared_blocks = 1,
                                    .host_blocks = 2,
                                    .cached_blocks = 1,
                                    .taken_blocks = 2};
    assert_memory_equal(&info, &expected, sizeof(info));
    assert_row(&w, seq, 1, 3, 2);
    assert_plan(&w, TO_DEVICE(0, 2, 3, 4), TO_DEVICE(0, 1, 2, 4));
    assert_int_equal(block_of(&w, 3).sealed_units, 1);
    assert_fields(info_of(&w, seq), computed_tokens, 12, cached_tokens, 11);
    assert_int_equal(stats_of(&w).host_tokens, 8);
    assert_int_equal(match(&w, ints(0), 12).host_tokens, 0);
    assert_host_queue(&w, 0, 3, 4, 5, 6, 7, 1, 2); /* released from the end of the row */
}

TEST(test_a_host_block_in_the_middle_is_copied_alone)
{
    scoped_world w = tiers_world(3, 7);
    kvp_open_info info;
    const kvp_seq whole = open_done(&w, ints(0), 12);
    assert_ok(kvp_seq_retain(w.cache, whole, (kvp_range){0, 4}, 2));
    assert_ok(kvp_seq_retain(w.cache, whole, (kvp_range){8, 12}, 2));
    close_seq(&w, whole);
    close_seq(&w, evict_first(&w)); /* 2, of the lowest class */
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 12, &info);
    assert_row(&w, seq, 1, 2, 3);
    assert_fields(info, shared_blocks, 2, host_blocks, 1, cached_blocks, 2, taken_blocks, 1);
    assert_plan(&w, TO_DEVICE(0, 1, 2, 4));
}

TEST(test_a_hit_on_the_host_costs_a_taken_block)
{
    scoped_world w = kept_tail(2);
    kvp_prompt prompt = prompt_of(ints(0), 12);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 3, 3, 0);
    prompt.n_tokens = 13;
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_NEVER, 4, 3, 1);
    const kvp_seq other = open_seq(&w, ints(100), 4, NULL);
    prompt.n_tokens = 12;
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_LATER, 3, 2, 1);
    kvp_seq seq;
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_NO_BLOCKS, 0, 1);
    close_seq(&w, other);
}

TEST(test_device_only_ends_the_hit_where_the_host_begins)
{
    scoped_world w = kept_tail(2);
    kvp_open_info info;
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.flags = KVP_OPEN_DEVICE_ONLY;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
    assert_fields(info, hit_tokens, 4, host_tokens, 0, host_blocks, 0, stop, KVP_STOP_NO_KV);
    const kvp_seq seq = open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 4, shared_blocks, 1);
    assert_no_plan(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 12)); /* computed again: on both tiers now */
    assert_int_equal(match(&w, ints(0), 12).host_tokens, 0);
}

TEST(test_device_only_takes_what_the_device_has)
{
    scoped_world w = tiers_world(15, 15);
    kvp_open_info info;
    leave_cached(&w, ints(0), 12);
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.flags = KVP_OPEN_DEVICE_ONLY;
    (void)open_with(&w, &prompt, &info);
    assert_int_equal(info.hit_tokens, 12);
}

TEST(test_no_match_takes_nothing_from_the_host)
{
    scoped_world w = kept_tail(3);
    kvp_open_info info;
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.flags = KVP_OPEN_NO_MATCH;
    (void)open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 0, host_tokens, 0, stop, KVP_STOP_OFF);
    assert_no_plan(&w);
}

TEST(test_more_hits_than_the_plan_ever_has_room_for_are_given_up)
{
    kvp_config config = tiers_config(4, 4, 7, 7);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    kvp_open_info info;
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    drop_plan(&w);
    wipe_device(&w);
    const kvp_seq again = open_seq(&w, ints(0), 12, &info);
    assert_int_equal(info.hit_tokens, 8); /* max_copies - 1 blocks */
    assert_fields(info, host_blocks, 2, stop, KVP_STOP_NO_ROOM);
    assert_int_equal(info_of(&w, again).computed_tokens, 8);
    assert_int_equal(stats_of(&w).pending_copies, 2);
}

TEST(test_a_plan_that_is_full_now_refuses_the_open)
{
    kvp_config config = tiers_config(4, 4, 7, 7);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_seq other = open_done(&w, ints(100), 8);
    const kvp_prompt prompt = prompt_of(ints(0), 8);
    kvp_seq again = {77};
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    drop_plan(&w);
    kvp_seq filler = evict_first(&w); /* takes the free blocks, and the first cached one */
    close_seq(&w, filler);
    drop_plan(&w);
    swap_out(&w, &other, 1); /* two copies wait; one more would do */
    filler = fork_seq(&w, open_done(&w, ints(200), 2), 2);
    assert_ok(kvp_seq_extend(w.cache, filler, ints(0), 1, 0)); /* the third */
    assert_unchanged(
        &w, assert_status(KVP_E_PLAN_FULL, kvp_seq_open(w.cache, w.ns, &prompt, &again, NULL)));
    assert_shortage(&w, KVP_E_PLAN_FULL, 0, 0);
    assert_int_equal(again.bits, 77);
    drop_plan(&w);
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &again, NULL));
}

TEST(test_a_full_hit_that_is_recomputed_is_cut_on_the_host_as_well)
{
    kvp_config config = tiers_config(4, 4, 7, 7);
    config.full_hit = KVP_FULL_HIT_RECOMPUTE;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);
    wipe_device(&w);
    drop_plan(&w);
    const kvp_open_info info = match(&w, ints(0), 12);
    assert_fields(info, hit_tokens, 8, host_tokens, 8, stop, KVP_STOP_FULL_HIT);
}

TEST(test_a_hit_on_blocks_of_a_swapped_sequence_leaves_them_to_it)
{
    scoped_world w = tiers_world(7, 7);
    kvp_open_info info;
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    wipe_device(&w);
    const kvp_seq other = open_seq(&w, ints(0), 9, &info);
    assert_int_equal(info.host_tokens, 8);
    assert_int_equal(host_block(&w, 1).ref_count, 1);
    assert_int_equal(host_block(&w, 2).ref_count, 1);
    drop_plan(&w);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 2, 1, 2); /* finds what the other brought */
    assert_int_equal(row_entry(&w, seq, 0), row_entry(&w, other, 0));
}

TEST(test_an_open_keeps_room_in_the_plan_for_its_own_copies)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.max_copies = 4;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 8);
    assert_int_equal(stats_of(&w).kept_blocks, 2);
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
    assert_fields(stats_of(&w), kept_blocks, 2, unkept_blocks, 2);
}

TEST(test_another_namespace_gets_nothing_from_the_host)
{
    scoped_world w = kept_tail(3);
    kvp_ns other;
    kvp_open_info info;
    const kvp_prompt prompt = prompt_of(ints(0), 12);
    assert_ok(kvp_ns_open(w.cache, "other", 5, &other));
    assert_ok(kvp_cache_match(w.cache, other, &prompt, &info));
    assert_int_equal(info.hit_tokens, 0);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 0); /* nor this one, after a flush */
}

/* What comes from the host is taken before what must make way for it is kept there. */
TEST(test_sources_are_held_while_what_makes_way_is_kept)
{
    scoped_world w = tiers_world(2, 2);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 8); /* the first prompt is on the host now */
    drop_plan(&w);
    (void)open_seq(&w, ints(0), 8, &info);
    assert_fields(info, host_tokens, 8, evicted_blocks, 2);
    assert_fields(stats_of(&w), unkept_blocks, 2, pending_copies, 2);
    assert_int_equal(match(&w, ints(100), 8).hit_tokens, 0);
}

/* -------------------------------------------------------------------------------- smaller units */

TEST(test_a_hit_inside_a_block_is_copied_from_the_host)
{
    const kvp_config config = tiers_config(4, 2, 7, 7);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 6);
    wipe_device(&w); /* the queue was 3 4 5 6 7 2 1 */
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 7, &info);
    assert_fields(info, hit_tokens, 6, host_tokens, 6, host_blocks, 1);
    assert_fields(info, shared_blocks, 0, copied_tokens, 2, taken_blocks, 2);
    assert_row(&w, seq, 3, 4);
    assert_plan(&w, TO_DEVICE(0, 2, 3, 4), TO_DEVICE(0, 1, 4, 2));
    assert_int_equal(block_of(&w, 3).sealed_units, 2);
    assert_int_equal(block_of(&w, 4).sealed_units, 1); /* attached: no block of the device has it */
    assert_host_queue(&w, 0, 3, 4, 5, 6, 7, 1, 2);
}

TEST(test_the_hosts_block_of_a_hit_inside_a_block_costs_nothing)
{
    const kvp_config config = tiers_config(4, 2, 7, 7);
    scoped_world w = make_world(&config);
    const kvp_prompt prompt = prompt_of(ints(0), 7);
    leave_cached(&w, ints(0), 6);
    wipe_device(&w);
    drop_plan(&w);
    leave_cached(&w, ints(100), 28); /* block 1 of the device is cached, too */
    assert_int_equal(host_block(&w, 1).sealed_tokens, 2);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 2, 7, 0);
}

TEST(test_a_hit_inside_a_block_comes_from_the_device_if_it_is_there)
{
    const kvp_config config = tiers_config(4, 2, 7, 7);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    drop_plan(&w);
    const kvp_seq again = open_seq(&w, ints(0), 7, &info);
    assert_fields(info, hit_tokens, 6, host_tokens, 0);
    assert_row(&w, again, 1, 3);
    assert_plan(&w, ON_DEVICE(0, 2, 3, 2));
    assert_int_equal(block_of(&w, 3).sealed_units, 0);
}

/* The device has a block with the first unit only; the host has both. The whole block comes back,
 * the first unit a duplicate in it. */
TEST(test_units_that_the_device_has_are_duplicates_in_what_comes_back)
{
    const kvp_config config = tiers_config(4, 2, 7, 7);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    const kvp_seq seq = open_done(&w, ints(0), 4);
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    drop_plan(&w);
    wipe_device(&w);
    kvp_prompt prompt = prompt_of(ints(0), 3);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq first = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, first, 3));
    assert_int_equal(block_of(&w, row_entry(&w, first, 0)).sealed_units, 1);
    const kvp_seq both = open_seq(&w, ints(0), 5, &info);
    assert_fields(info, hit_tokens, 4, host_blocks, 1);
    assert_int_equal(info.host_tokens, 4); /* those that the plan copies */
    const int32_t block = row_entry(&w, both, 0);
    assert_int_equal(block_of(&w, block).sealed_units, 1);
    close_seq(&w, first);
    (void)evict_first(&w); /* the block with the first unit only */
    assert_int_equal(block_of(&w, block).sealed_units, 2);
}

/* -------------------------------------------------------------------------------------- reading */

TEST(test_blocks_of_the_host_are_numbered_on_their_own)
{
    world w = tiers_world(2, 4);
    kvp_block_info info;
    int32_t tokens[4];
    uint32_t n = 77;
    assert_ok(kvp_block_info_get(w.cache, 0, KVP_HOST, 4, &info));
    assert_int_equal(info.state, KVP_BLOCK_FREE);
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_HOST, 4, tokens, &n));
    assert_int_equal(n, 0);
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, KVP_HOST, 5, &info));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, KVP_HOST, -1, &info));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, KVP_DEVICE, 3, &info));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, 2, 1, &info));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_HOST, 1, &info));
    assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 0, KVP_HOST, 5, tokens, &n));
    assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 0, 2, 1, tokens, &n));
    end_world(&w);
    w = small_world(2);
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 0, KVP_HOST, 0, &info));
    assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 0, KVP_HOST, 0, tokens, &n));
    end_world(&w);
}

TEST_MAIN(NULL, NULL)

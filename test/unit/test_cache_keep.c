/* What the device evicts, kept on the host: what, in which order, and for want of what not. */
#include <string.h>

#include "tiers.h"

static kvp_hash hash_of(const world *w, uint32_t tier, int32_t block)
{
    return block_in(w, tier, block).hash;
}

static void expect_evicted(const world *w, uint32_t i, uint32_t tier, int32_t block, int kept)
{
    const kvp_evicted *evicted;
    assert_true(i < evicted_of(w, &evicted));
    assert_fields(evicted[i], tier, tier, block, block, kept, kept);
}

static uint32_t count_evicted(const world *w)
{
    const kvp_evicted *evicted;
    return evicted_of(w, &evicted);
}

TEST(test_what_the_device_evicts_is_kept_on_the_host)
{
    scoped_world w = tiers_world(2, 4);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 8);
    const kvp_hash hash = hash_of(&w, KVP_DEVICE, 2);
    (void)open_seq(&w, ints(100), 4, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 1);
    expect_evicted(&w, 0, KVP_DEVICE, 2, 1);
    assert_memory_equal(&evicted[0].hash, &hash, sizeof(hash));
    assert_plan(&w, TO_HOST(0, 2, 1, 4));
    const kvp_block_info info = host_block(&w, 1);
    assert_fields(info, state, KVP_BLOCK_CACHED, ref_count, 0, sealed_units, 1);
    assert_memory_equal(&info.hash, &hash, sizeof(hash));
    assert_host_queue(&w, 0, 2, 3, 4, 1);
    assert_fields(stats_of(&w), kept_blocks, 1, unkept_blocks, 0, evicted_blocks, 1);
}

TEST(test_nothing_is_kept_when_the_configuration_says_so)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.keep_evicted = 0;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    (void)open_seq(&w, ints(100), 8, NULL);
    assert_int_equal(count_evicted(&w), 2);
    expect_evicted(&w, 0, KVP_DEVICE, 2, 0);
    assert_no_plan(&w);
    assert_int_equal(stats_of(&w).kept_blocks, 0);
    assert_int_equal(stats_of(&w).unkept_blocks, 0); /* not wanted */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
}

TEST(test_without_a_host_tier_nothing_is_wanted_there)
{
    scoped_world w = small_world(2);
    leave_cached(&w, ints(0), 8);
    (void)open_seq(&w, ints(100), 8, NULL);
    expect_evicted(&w, 0, KVP_DEVICE, 2, 0);
    const kvp_stats s = stats_of(&w);
    assert_fields(s, unkept_blocks, 0, host_usable_blocks, 0, host_free_blocks, 0);
}

TEST(test_what_the_host_has_is_not_copied_again)
{
    scoped_world w = tiers_world(2, 4);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    drop_plan(&w);
    leave_cached(&w, ints(0), 8); /* back by copies */
    drop_plan(&w);
    wipe_device(&w);
    assert_no_plan(&w);
    assert_fields(stats_of(&w), kept_blocks, 2, unkept_blocks, 0);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 8);
}

/* The first block of three came back to the device alone, and leaves it again. */
TEST(test_what_the_host_has_goes_last_there_when_the_device_evicts_it)
{
    scoped_world w = tiers_world(3, 5);
    leave_cached(&w, ints(0), 12);
    wipe_device(&w); /* host 1, 2 and 3 have the third block, the second and the first */
    leave_cached(&w, ints(0), 4);
    drop_plan(&w);
    leave_cached(&w, ints(100), 8); /* the device has room for it beside that one */
    assert_host_queue(&w, 0, 4, 5, 1, 2, 3);
    close_seq(&w, open_seq(&w, ints(0), 12, NULL)); /* evicts what follows, and hits the rest */
    drop_plan(&w);
    assert_host_queue(&w, 0, 3, 4, 5, 1, 2);
    wipe_device(&w);
    assert_host_queue(&w, 0, 4, 5, 1, 2, 3);
    assert_int_equal(stats_of(&w).host_unreachable, 0);
}

TEST(test_what_a_flush_made_unreachable_is_not_kept)
{
    scoped_world w = tiers_world(2, 4);
    leave_cached(&w, ints(0), 8);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    wipe_device(&w);
    assert_no_plan(&w);
    assert_fields(stats_of(&w), kept_blocks, 0, unkept_blocks, 0, evicted_blocks, 2);
}

/* No node is free for a new root: what was cached is private from there on. */
TEST(test_what_a_flush_without_a_new_root_made_private_is_not_kept)
{
    kvp_config config = tiers_config(4, 4, 4, 4);
    config.n_nodes = 5;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 16);
    assert_int_equal(stats_of(&w).nodes_used, 5);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    wipe_device(&w);
    assert_fields(stats_of(&w), kept_blocks, 0, unkept_blocks, 0);
}

TEST(test_a_closed_namespaces_blocks_are_not_kept)
{
    scoped_world w = tiers_world(2, 4);
    kvp_ns other;
    kvp_seq seq;
    const kvp_prompt prompt = prompt_of(ints(0), 8);
    assert_ok(kvp_ns_open(w.cache, "other", 5, &other));
    assert_ok(kvp_seq_open(w.cache, other, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    close_seq(&w, seq);
    assert_ok(kvp_ns_close(w.cache, other));
    wipe_device(&w);
    assert_fields(stats_of(&w), kept_blocks, 0, unkept_blocks, 0);
}

TEST(test_nothing_is_kept_when_swapped_sequences_hold_the_whole_host)
{
    scoped_world w = tiers_world(3, 2);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    leave_cached(&w, ints(100), 4); /* takes the free 3 */
    assert_queue(&w, 0, 2, 1, 3);
    (void)open_seq(&w, ints(200), 12, NULL);
    assert_int_equal(count_evicted(&w), 3);
    expect_evicted(&w, 2, KVP_DEVICE, 3, 0);
    assert_no_plan(&w);
    assert_int_equal(stats_of(&w).unkept_blocks, 1); /* the host has the other two */
}

/* 2 x (copies that wait + those that the call will still add) < max_copies. */
TEST(test_half_of_the_plan_is_for_what_is_kept)
{
    static const uint32_t kept[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5};
    for (uint32_t max_copies = 1; max_copies < 12; max_copies++) {
        kvp_config config = tiers_config(4, 4, 5, 15);
        config.max_copies = max_copies;
        scoped_world w = make_world(&config);
        leave_cached(&w, ints(0), 20);
        (void)open_seq(&w, ints(100), 20, NULL);
        assert_fields(stats_of(&w), kept_blocks, kept[max_copies], unkept_blocks,
                      5 - kept[max_copies], pending_copies, kept[max_copies]);
    }
}

TEST(test_copies_that_wait_and_copies_to_come_leave_less_room_to_keep)
{
    kvp_config config = tiers_config(4, 4, 6, 15);
    config.max_copies = 6;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 2);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 2), fork_seq(&w, parent, 2)};
    leave_cached(&w, ints(100), 20); /* the other five blocks */
    kvp_batch batch = batch_of(seqs, NULL, 3);
    batch.tokens = ints(0);
    assert_ok(kvp_seq_extend_many(w.cache, &batch)); /* two take and copy, evicting one each */
    /* First take: 2 x (0 + 2) < 6. Second take: 2 x (kept 1 + copied 1 + 1 to come) is not. */
    assert_fields(stats_of(&w), kept_blocks, 1, unkept_blocks, 1, pending_copies, 3);
}

TEST(test_copies_that_were_to_come_and_came_count_once)
{
    kvp_config config = tiers_config(4, 4, 6, 15);
    config.max_copies = 7;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 2);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 2), fork_seq(&w, parent, 2)};
    leave_cached(&w, ints(100), 20);
    kvp_batch batch = batch_of(seqs, NULL, 3);
    batch.tokens = ints(0);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    /* First take: 2 x (0 + 2) < 7. Second take: 2 x (kept 1 + copied 1 + 1 to come) < 7. */
    assert_int_equal(stats_of(&w).kept_blocks, 2);
}

TEST(test_each_for_itself_counts_its_own_copies_to_come)
{
    kvp_config config = tiers_config(4, 4, 6, 15);
    config.max_copies = 6;
    scoped_world w = make_world(&config);
    kvp_status statuses[3];
    const kvp_seq parent = open_done(&w, ints(0), 2);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 2), fork_seq(&w, parent, 2)};
    leave_cached(&w, ints(100), 20);
    kvp_batch batch = batch_of(seqs, NULL, 3);
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = statuses;
    batch.tokens = ints(0);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    /* The first: 2 x (0 + 1) < 6. The second: 2 x (kept 1 + copied 1 + 1) is not. */
    assert_fields(stats_of(&w), kept_blocks, 1, unkept_blocks, 1);
}

TEST(test_a_kept_block_has_its_retention_class)
{
    scoped_world w = tiers_world(1, 4);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.retention = 3;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    close_seq(&w, seq);
    wipe_device(&w);
    assert_int_equal(host_block(&w, 1).retention, 3);
    assert_host_queue(&w, 3, 1);
}

TEST(test_only_sealed_slots_are_kept)
{
    const kvp_config config = tiers_config(6, 2, 1, 4);
    scoped_world w = make_world(&config);
    int32_t tokens[6];
    uint32_t n;
    leave_cached(&w, ints(0), 5); /* two units, and a token */
    wipe_device(&w);
    assert_plan(&w, TO_HOST(0, 1, 1, 4));
    assert_fields(host_block(&w, 1), sealed_units, 2, sealed_tokens, 4);
    assert_ok(kvp_block_tokens(w.cache, 0, KVP_HOST, 1, tokens, &n));
    assert_int_equal(n, 4);
    assert_memory_equal(tokens, ints(0), 4 * sizeof(int32_t));
}

/* A block with the second unit only, the first one being another's: both are kept. */
TEST(test_units_before_the_deepest_are_kept_with_it)
{
    const kvp_config config = tiers_config(4, 2, 2, 4);
    scoped_world w = make_world(&config);
    const kvp_seq first = open_done(&w, ints(0), 2);
    const kvp_seq second = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    close_seq(&w, second);
    drop_plan(&w);
    assert_int_equal(block_of(&w, 2).sealed_units, 1);
    (void)evict_first(&w);
    assert_plan(&w, TO_HOST(0, 2, 1, 4));
    assert_int_equal(host_block(&w, 1).sealed_units, 2);
    close_seq(&w, first);
}

/* Units that another block of the host has are duplicates in the kept one, and take its place. */
TEST(test_units_that_the_host_has_are_duplicates_in_the_kept_block)
{
    const kvp_config config = tiers_config(4, 2, 2, 4);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 2); /* block 1, the first unit only */
    wipe_device(&w);              /* host 1 */
    drop_plan(&w);
    leave_cached(&w, ints(0), 4); /* back, and the second */
    drop_plan(&w);
    wipe_device(&w);
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    assert_fields(host_block(&w, 2), sealed_units, 1, sealed_tokens, 4);
    kvp_seq seqs[2] = {open_done(&w, ints(100), 4), open_done(&w, ints(200), 4)};
    drop_plan(&w);
    swap_out(&w, seqs, 2); /* the free 3 and 4 */
    const kvp_seq last = open_done(&w, ints(300), 2);
    swap_out(&w, &last, 1); /* evicts host 1 */
    assert_int_equal(host_block(&w, 1).sealed_units, 1);
    assert_row(&w, last, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 2);
}

TEST(test_the_host_block_that_makes_way_stands_before_the_device_block)
{
    scoped_world w = tiers_world(1, 1);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 4);
    const kvp_hash first = hash_of(&w, KVP_DEVICE, 1);
    leave_cached(&w, ints(100), 4);
    const kvp_hash second = hash_of(&w, KVP_DEVICE, 1);
    assert_plan(&w, TO_HOST(0, 1, 1, 4));
    (void)open_seq(&w, ints(200), 4, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    expect_evicted(&w, 0, KVP_HOST, 1, 0);
    assert_memory_equal(&evicted[0].hash, &first, sizeof(first));
    expect_evicted(&w, 1, KVP_DEVICE, 1, 1);
    assert_memory_equal(&evicted[1].hash, &second, sizeof(second));
    assert_fields(stats_of(&w), host_evicted_blocks, 1, kept_blocks, 2, evicted_blocks, 2);
    assert_int_equal(host_block(&w, 1).generation, 1);
}

TEST(test_the_copy_into_an_evicted_host_block_leaves_the_plan)
{
    scoped_world w = tiers_world(1, 1);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    (void)open_seq(&w, ints(200), 4, NULL);
    assert_fields(stats_of(&w), pending_copies, 1, copies, 2);
    assert_plan(&w, TO_HOST(0, 1, 1, 4));
}

/* The copy that brought the content runs before the copy that keeps it. */
TEST(test_what_a_waiting_copy_brought_is_kept_by_a_copy_after_it)
{
    scoped_world w = tiers_world(3, 4);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    assert_ok(kvp_seq_extend(w.cache, child, ints(60), 2, 0)); /* 3, a copy of 2 */
    assert_ok(kvp_seq_commit(w.cache, child, 8));
    close_seq(&w, child);
    (void)open_seq(&w, ints(100), 4, NULL); /* evicts 3 */
    assert_plan(&w, ON_DEVICE(0, 2, 3, 2), TO_HOST(1, 3, 1, 4));
    close_seq(&w, parent);
}

TEST(test_the_host_evicts_what_was_kept_first)
{
    scoped_world w = tiers_world(1, 3);
    for (int32_t i = 0; i < 5; i++) {
        leave_cached(&w, ints(100 * i), 4);
        drop_plan(&w);
    }
    const uint32_t expected[] = {0, 4, 4, 4, 4};
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(match(&w, ints(100 * i), 4).hit_tokens, expected[i]);
        assert_int_equal(match(&w, ints(100 * i), 4).host_tokens, i == 4 ? 0 : expected[i]);
    }
}

TEST(test_one_call_may_evict_all_there_is_on_both_tiers)
{
    scoped_world w = tiers_world(4, 4);
    leave_cached(&w, ints(0), 16);
    leave_cached(&w, ints(100), 16);
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(200), 16, NULL);
    assert_int_equal(count_evicted(&w), 8);
    for (uint32_t i = 0; i < 8; i++) /* each time the host's block, then the device's */
        expect_evicted(&w, i, i % 2 ? KVP_DEVICE : KVP_HOST, (int32_t)i / 2 + 1, i % 2);
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    assert_int_equal(match(&w, ints(200), 16).hit_tokens, 16);
}

TEST_MAIN(NULL, NULL)

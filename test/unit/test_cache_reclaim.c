/* kvp_cache_reclaim (drop.h): which blocks lose their content, where they go, what later takes get.
 */
#include <kvpager/drop.h>
#include <kvpager/quotas.h>

#include "tiers.h"

static uint32_t reclaim(world *w, uint32_t n_blocks)
{
    uint32_t n = 77;
    assert_ok(kvp_cache_reclaim(w->cache, n_blocks, &n));
    return n;
}

TEST(test_the_coldest_are_free_where_they_stand)
{
    scoped_world w = small_world(6);
    leave_cached(&w, ints(0), 16);
    assert_queue(&w, 0, 5, 6, 4, 3, 2, 1);
    const kvp_block_info before = block_of(&w, 4);
    assert_int_equal(reclaim(&w, 2), 0); /* so many are free */
    assert_int_equal(reclaim(&w, 4), 2);
    assert_queue(&w, 0, 5, 6, 4, 3, 2, 1);
    assert_fields(block_of(&w, 4), state, KVP_BLOCK_FREE, generation, before.generation + 1);
    assert_int_equal(block_of(&w, 3).state, KVP_BLOCK_FREE);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_CACHED);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 8);
    const kvp_stats stats = stats_of(&w);
    assert_fields(stats, free_blocks, 4, cached_blocks, 2, evicted_blocks, 2);
    assert_int_equal(stats.taken_blocks, 4); /* nothing was taken for it */
    const kvp_evicted *evicted;
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].block, 4);
    assert_memory_equal(&evicted[0].hash, &before.hash, sizeof before.hash);
    assert_int_equal(evicted[1].block, 3);
    assert_int_equal(reclaim(&w, 4), 0);
    assert_int_equal(evicted_of(&w, &evicted), 0);
}

/* What is released without content meanwhile stands before what was reclaimed. */
TEST(test_later_ones_stand_behind)
{
    scoped_world w = small_world(6);
    leave_cached(&w, ints(0), 16);
    assert_int_equal(reclaim(&w, 3), 1); /* 5 6 4 | 3 2 1 */
    const kvp_seq seq = open_seq(&w, ints(100), 8, NULL);
    assert_row(&w, seq, 5, 6);
    close_seq(&w, seq);
    assert_queue(&w, 0, 5, 6, 4, 3, 2, 1);
    const kvp_seq other = open_seq(&w, ints(100), 12, NULL);
    assert_row(&w, other, 5, 6, 4);
    assert_int_equal(reclaim(&w, 1), 1);
    close_seq(&w, other);
    assert_queue(&w, 0, 5, 6, 4, 3, 2, 1);
    assert_int_equal(reclaim(&w, 5), 1);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_FREE);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_CACHED);
}

TEST(test_takes_get_what_they_would_have_got)
{
    scoped_world plain = small_world(9);
    scoped_world ahead = small_world(9);
    world *const worlds[] = {&plain, &ahead};
    kvp_seq seqs[2];
    for (int i = 0; i < 2; i++) {
        kvp_prompt kept = prompt_of(ints(500), 8);
        kept.retention = 3;
        const kvp_seq high = open_with(worlds[i], &kept, NULL);
        assert_ok(kvp_seq_commit(worlds[i]->cache, high, 8));
        close_seq(worlds[i], high);
        leave_cached(worlds[i], ints(0), 20);
    }
    assert_int_equal(reclaim(&ahead, 8), 6); /* 2 are free; the last one is of class 3 */
    assert_int_equal(stats_of(&ahead).evicted_blocks, 6);
    for (int i = 0; i < 2; i++)
        seqs[i] = open_seq(worlds[i], ints(1000), 32, NULL);
    for (uint32_t k = 0; k < 8; k++)
        assert_int_equal(row_entry(&ahead, seqs[1], k), row_entry(&plain, seqs[0], k));
    assert_int_equal(stats_of(&plain).evicted_blocks, 6);
    assert_int_equal(stats_of(&ahead).evicted_blocks, 6);
    assert_int_equal(match(&ahead, ints(500), 8).hit_tokens, 4);
}

TEST(test_lower_classes_first_and_all_in_class_0)
{
    scoped_world w = small_world(4);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    prompt.retention = 5;
    const kvp_seq high = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, high, 8));
    close_seq(&w, high); /* 2 1 of class 5 */
    leave_cached(&w, ints(100), 4);
    assert_queue(&w, 0, 4, 3);
    assert_queue(&w, 5, 2, 1);
    assert_int_equal(reclaim(&w, 3), 2);
    assert_queue(&w, 0, 4, 3, 2);
    assert_queue(&w, 5, 1);
    assert_int_equal(reclaim(&w, UINT32_MAX), 1);
    assert_queue(&w, 0, 4, 3, 2, 1);
    assert_int_equal(stats_of(&w).cached_blocks, 0);
    assert_int_equal(reclaim(&w, UINT32_MAX), 0);
}

TEST(test_none_is_free_before)
{
    scoped_world w = small_world(4);
    leave_cached(&w, ints(0), 16);
    assert_int_equal(reclaim(&w, 2), 2);
    assert_queue(&w, 0, 4, 3, 2, 1);
    const kvp_seq seq = open_seq(&w, ints(100), 8, NULL);
    assert_row(&w, seq, 4, 3);
    assert_int_equal(reclaim(&w, 2), 2);
    assert_int_equal(reclaim(&w, 2), 0);
    assert_queue(&w, 0, 2, 1);
    assert_int_equal(reclaim(&w, 9), 0); /* the others are held */
    close_seq(&w, seq);
}

TEST(test_each_unit_is_told)
{
    kvp_config config = config_of(4, 4, 4);
    config.max_events = 16;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 16);
    kvp_event event[8];
    uint32_t n;
    assert_int_equal(reclaim(&w, 2), 2);
    assert_ok(kvp_events_read(w.cache, 1, event, 8, NULL, &n));
    assert_int_equal(n, 6);
    for (uint32_t i = 0; i < 2; i++) { /* the last of the prompt first */
        assert_int_equal(event[4 + i].kind, KVP_EVENT_REMOVED);
        assert_int_equal(event[4 + i].tier, KVP_DEVICE);
        assert_memory_equal(&event[4 + i].hash, &event[3 - i].hash, sizeof event->hash);
    }
}

TEST(test_what_the_host_should_keep_is_kept)
{
    scoped_world w = tiers_world(4, 4);
    leave_cached(&w, ints(0), 16);
    assert_int_equal(reclaim(&w, 2), 2);
    assert_int_equal(stats_of(&w).kept_blocks, 2);
    const kvp_evicted *evicted;
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].kept, 1);
    assert_plan(&w, TO_HOST(0, 4, 1, 4), TO_HOST(0, 3, 2, 4));
    const kvp_open_info found = match(&w, ints(0), 16);
    assert_fields(found, hit_tokens, 16, host_tokens, 8);
}

/* The plan has room for four copies, and two of them stay for steps. */
TEST(test_half_of_the_plan_is_left)
{
    kvp_config config = tiers_config(4, 4, 6, 6);
    config.max_copies = 4;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 24);
    assert_int_equal(reclaim(&w, 5), 2);
    assert_fields(stats_of(&w), pending_copies, 2, unkept_blocks, 0);
    assert_int_equal(reclaim(&w, 5), 0);
    assert_int_equal(stats_of(&w).cached_blocks, 4);
    drop_plan(&w);
    assert_int_equal(reclaim(&w, 5), 2);
    drop_plan(&w);
    assert_int_equal(reclaim(&w, 5), 1);
    assert_int_equal(stats_of(&w).kept_blocks, 5);
}

/* Content that the host has needs no copy, so a full plan does not matter. */
TEST(test_what_the_host_has_needs_no_plan)
{
    kvp_config config = tiers_config(4, 4, 4, 8);
    config.max_copies = 2;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    assert_int_equal(reclaim(&w, 4), 1); /* to the host */
    drop_plan(&w);
    leave_cached(&w, ints(100), 4);
    leave_cached(&w, ints(0), 4); /* and back: it is on both */
    drop_plan(&w);
    assert_int_equal(reclaim(&w, 4), 2); /* the other one, which fills half of the plan, and it */
    assert_fields(stats_of(&w), pending_copies, 1, cached_blocks, 0);
    assert_int_equal(match(&w, ints(0), 4).host_tokens, 4);
}

TEST(test_parked_blocks_are_passed_over)
{
    scoped_world w = steps_world(3, 0);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    pass_step(&w);
    const uint64_t step = begin_step(&w);
    close_seq(&w, seq);
    assert_int_equal(reclaim(&w, 3), 0);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_PARKED);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    done_step(&w, step);
    assert_int_equal(reclaim(&w, 3), 2);
}

TEST(test_who_is_over_a_quota_gives_first)
{
    kvp_config config = config_of(4, 4, 5);
    config.quotas = 1;
    scoped_world w = make_world(&config);
    const kvp_ns first = w.ns;
    kvp_ns second;
    kvp_ns_info info;
    assert_ok(kvp_ns_open(w.cache, "second", 6, &second));
    leave_cached(&w, ints(0), 8); /* 2 1 */
    w.ns = second;
    leave_cached(&w, ints(100), 12); /* 5 4 3 */
    assert_queue(&w, 0, 2, 1, 5, 4, 3);
    assert_ok(kvp_ns_quota(w.cache, second, KVP_DEVICE, 1));
    assert_int_equal(reclaim(&w, 1), 1);
    assert_queue(&w, 0, 5, 2, 1, 4, 3);
    assert_ok(kvp_ns_info_get(w.cache, second, &info));
    assert_int_equal(info.blocks, 2);
    assert_int_equal(reclaim(&w, 3), 2); /* one more is over, then the oldest of all */
    assert_queue(&w, 0, 5, 4, 2, 1, 3);
    assert_ok(kvp_ns_info_get(w.cache, first, &info));
    assert_int_equal(info.blocks, 1);
}

/* The list has room for the longest sequence, for a block of each, and for 4,096. */
TEST(test_more_are_evicted_than_are_listed)
{
    kvp_config config = config_of(1, 1, 9000);
    config.max_seqs = 4;
    config.max_seq_tokens = 1000;
    scoped_world w = make_world(&config);
    for (int i = 0; i < 9; i++)
        leave_cached(&w, ints(i), 1000);
    const kvp_evicted *evicted;
    uint32_t n;
    assert_int_equal(reclaim(&w, 4096), 4096);
    assert_int_equal(evicted_of(&w, &evicted), 4096);
    const int32_t last = evicted[4095].block;
    assert_int_equal(reclaim(&w, 8193), 4097);
    assert_status(KVP_E_BEHIND, kvp_cache_evicted(w.cache, &evicted, &n));
    assert_int_equal(n, 4096);
    assert_int_equal(evicted[0].block, last - 1);
    assert_int_equal(stats_of(&w).evicted_blocks, 8193);
    assert_int_equal(reclaim(&w, 8194), 1); /* the list begins again */
    assert_int_equal(evicted_of(&w, &evicted), 1);
}

TEST(test_arguments)
{
    scoped_world w = small_world(4);
    uint32_t n = 77;
    leave_cached(&w, ints(0), 16);
    assert_status(KVP_E_ARG, kvp_cache_reclaim(NULL, 1, &n));
    assert_int_equal(n, 77);
    assert_unchanged(&w, assert_ok(kvp_cache_reclaim(w.cache, 0, NULL)));
    assert_ok(kvp_cache_reclaim(w.cache, 1, NULL));
    assert_int_equal(stats_of(&w).free_blocks, 1);
}

TEST_MAIN(NULL, NULL)

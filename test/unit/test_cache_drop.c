/* kvp_cache_drop (drop.h): what is dropped and what is not, where the blocks go, who is told. */
#include <string.h>

#include <kvpager/drop.h>
#include <kvpager/lend.h>
#include <kvpager/quotas.h>

#include "tiers.h"

static uint32_t drop(world *w, uint32_t tier, const int32_t *blocks, uint32_t n_blocks)
{
    uint32_t n = 77;
    assert_ok(kvp_cache_drop(w->cache, tier, blocks, n_blocks, &n));
    return n;
}

#define drop_device(w, ...)                                                                        \
    drop(w, KVP_DEVICE, (const int32_t[]){__VA_ARGS__},                                            \
         sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define drop_host(w, ...)                                                                          \
    drop(w, KVP_HOST, (const int32_t[]){__VA_ARGS__},                                              \
         sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

TEST(test_cached_blocks_become_free_and_are_taken_first)
{
    scoped_world w = small_world(6);
    leave_cached(&w, ints(0), 16);
    assert_queue(&w, 0, 5, 6, 4, 3, 2, 1);
    const kvp_block_info before = block_of(&w, 2);
    assert_int_equal(drop_device(&w, 2, 4), 2);
    assert_queue(&w, 0, 4, 2, 5, 6, 3, 1); /* the last one given is the first to go */
    const kvp_block_info after = block_of(&w, 2);
    assert_fields(after, state, KVP_BLOCK_FREE, sealed_units, 0, generation, before.generation + 1);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 16).stop, KVP_STOP_NO_KV);
    const kvp_stats stats = stats_of(&w);
    assert_fields(stats, evicted_blocks, 2, free_blocks, 4, cached_blocks, 2);
    assert_int_equal(stats.taken_blocks, 4); /* nothing was taken for it */
    const kvp_evicted *evicted;
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_fields(evicted[0], block, 2, kept, 0);
    assert_memory_equal(&evicted[0].hash, &before.hash, sizeof before.hash);
    assert_int_equal(evicted[1].block, 4);
}

/* Block 3 was behind block 2; when 2 is computed again, 3 is hit again. */
TEST(test_what_is_behind_a_dropped_block_waits_for_it)
{
    scoped_world w = small_world(6);
    leave_cached(&w, ints(0), 12);
    assert_int_equal(drop_device(&w, 2), 1);
    assert_int_equal(block_of(&w, 3).state, KVP_BLOCK_CACHED);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    leave_cached(&w, ints(0), 8);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
}

TEST(test_held_blocks_keep_their_content)
{
    scoped_world w = small_world(6);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    leave_cached(&w, ints(100), 4);
    /* 1 sealed and held, 2 held, 3 cached, and again; 4 is free. */
    assert_int_equal(drop_device(&w, 1, 2, 3, 3, 4), 1);
    assert_int_equal(match(&w, ints(0), 6).hit_tokens, 4);
    assert_int_equal(match(&w, ints(100), 4).hit_tokens, 0);
    assert_row(&w, seq, 1, 2);
    assert_int_equal(drop(&w, KVP_DEVICE, NULL, 0), 0);
    assert_ok(kvp_cache_drop(w.cache, KVP_DEVICE, (const int32_t[]){3}, 1, NULL));
    close_seq(&w, seq);
    assert_int_equal(drop_device(&w, 1), 1);
    assert_int_equal(match(&w, ints(0), 6).hit_tokens, 0);
}

/* Two sequences computed the same; with KVP_KEEP the second one's block is a duplicate. */
TEST(test_a_duplicate_takes_the_place)
{
    kvp_config config = config_of(4, 4, 6);
    config.commit_policy = KVP_KEEP;
    config.max_events = 16;
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    const kvp_seq first = open_done(&w, ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    close_seq(&w, first);
    assert_int_equal(drop_device(&w, 1), 1);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 4);
    assert_int_equal(block_of(&w, 2).sealed_units, 1);
    kvp_event event[2];
    uint32_t n;
    assert_ok(kvp_events_read(w.cache, 1, event, 2, NULL, &n));
    assert_int_equal(n, 1); /* stored once, and never removed */
}

TEST(test_each_unit_is_told)
{
    kvp_config config = config_of(8, 4, 4); /* two units a block */
    config.max_events = 16;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    kvp_event event[8];
    uint32_t n;
    assert_int_equal(drop_device(&w, 1), 1);
    assert_ok(kvp_events_read(w.cache, 1, event, 8, NULL, &n));
    assert_int_equal(n, 4);
    for (uint32_t i = 0; i < 2; i++) { /* the deepest first */
        assert_int_equal(event[2 + i].kind, KVP_EVENT_REMOVED);
        assert_int_equal(event[2 + i].tier, KVP_DEVICE);
        assert_memory_equal(&event[2 + i].hash, &event[1 - i].hash, sizeof event->hash);
    }
}

TEST(test_each_tier_by_itself_and_nothing_is_kept)
{
    scoped_world w = tiers_world(2, 4);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w); /* host blocks 1 and 2 have it */
    drop_plan(&w);
    leave_cached(&w, ints(0), 4);
    drop_plan(&w);
    const kvp_stats before = stats_of(&w);
    const int32_t block = block_of(&w, 1).state == KVP_BLOCK_CACHED ? 1 : 2;
    assert_int_equal(drop(&w, KVP_DEVICE, &block, 1), 1);
    assert_no_plan(&w);
    assert_int_equal(stats_of(&w).kept_blocks, before.kept_blocks);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 8); /* the host has it still */
    assert_int_equal(drop_host(&w, 1, 2, 3, 4), before.host_cached_blocks);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_fields(stats_of(&w), host_evicted_blocks,
                  before.host_evicted_blocks + before.host_cached_blocks, host_free_blocks, 4);
}

/* A device block that nobody reads yet, and that the plan was to fill. */
TEST(test_a_copy_into_a_dropped_block_is_not_made)
{
    scoped_world w = tiers_world(2, 4);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    drop_plan(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    const int32_t block = row_entry(&w, seq, 0);
    close_seq(&w, seq);
    assert_int_equal(stats_of(&w).pending_copies, 1);
    assert_int_equal(drop(&w, KVP_DEVICE, &block, 1), 1);
    assert_no_plan(&w);
}

TEST(test_a_parked_block_is_free_when_its_steps_are_done)
{
    scoped_world w = steps_world(3, 0);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    pass_step(&w);
    const uint64_t step = begin_step(&w);
    close_seq(&w, seq);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_PARKED);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_int_equal(drop_device(&w, 1, 2), 2);
    assert_int_equal(drop_device(&w, 1, 2), 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_PARKED);
    assert_queue(&w, 0, 3);
    done_step(&w, step);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_FREE);
    assert_fields(stats_of(&w), free_blocks, 3, cached_blocks, 0);
}

TEST(test_quotas_count_it_no_longer)
{
    kvp_config config = config_of(4, 4, 4);
    config.quotas = 1;
    scoped_world w = make_world(&config);
    kvp_ns_info info;
    leave_cached(&w, ints(0), 12);
    assert_int_equal(drop_device(&w, 1, 3), 2);
    assert_ok(kvp_ns_info_get(w.cache, w.ns, &info));
    assert_fields(info, blocks, 1, cached_blocks, 1);
}

TEST(test_what_a_store_reads_stays)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.max_loads = 1;
    scoped_world w = make_world(&config);
    int32_t host[1];
    leave_cached(&w, ints(0), 4);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1}, 1, 0, host, NULL));
    drop_plan(&w);
    assert_ok(kvp_plan_done(w.cache, stats_of(&w).plans));
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_int_equal(drop(&w, KVP_HOST, host, 1), 0);
    assert_ok(kvp_cache_give_back(w.cache, host, 1));
    assert_int_equal(drop(&w, KVP_HOST, host, 1), 1);
}

/* A prompt is hit as far as every group has it, so one group's block is enough. */
TEST(test_one_group_loses_its_block)
{
    kvp_config config = config_of(4, 4, 8);
    config.n_groups = 2;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8); /* 1 and 3 of group 0, 2 and 4 of group 1 */
    assert_int_equal(block_of(&w, 4).group, 1);
    assert_int_equal(drop_device(&w, 4), 1);
    assert_int_equal(block_of(&w, 3).state, KVP_BLOCK_CACHED);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 8).stop_group, 1);
}

TEST(test_what_is_refused_changes_nothing)
{
    world w = tiers_world(3, 3);
    uint32_t n = 77;
    leave_cached(&w, ints(0), 12);
    static const int32_t bad[] = {0, -1, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int32_t blocks[] = {1, 2, bad[i], 3};
        for (uint32_t tier = KVP_DEVICE; tier <= KVP_HOST; tier++) {
            assert_unchanged(
                &w, assert_status(KVP_E_ARG, kvp_cache_drop(w.cache, tier, blocks, 4, &n)));
            assert_shortage(&w, KVP_E_ARG, 2, 0);
        }
    }
    const int32_t one[] = {1};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_cache_drop(w.cache, 2, one, 1, &n)));
    assert_status(KVP_E_ARG, kvp_cache_drop(w.cache, 2, one, 0, &n));
    assert_status(KVP_E_ARG, kvp_cache_drop(w.cache, KVP_DEVICE, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_cache_drop(NULL, KVP_DEVICE, one, 1, &n));
    assert_int_equal(n, 77);
    end_world(&w);
    scoped_world plain = small_world(3);
    assert_status(KVP_E_ARG, kvp_cache_drop(plain.cache, KVP_HOST, one, 1, &n));
    assert_status(KVP_E_ARG, kvp_cache_drop(plain.cache, KVP_HOST, NULL, 0, &n));
}

TEST_MAIN(NULL, NULL)

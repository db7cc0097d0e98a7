/* Units on the host that no prompt can hit: how many there are, and which do not come about. */
#include <kvpager/drop.h>

#include "tiers.h"

static uint64_t lost(const world *w)
{
    return stats_of(w).host_unreachable;
}

static void drop_host(world *w, int32_t block)
{
    uint32_t n = 0;
    assert_ok(kvp_cache_drop(w->cache, KVP_HOST, &block, 1, &n));
    assert_int_equal(n, 1);
}

/* Four blocks of a prompt on the host: 1 has the last, 4 the first. The device is empty. */
static world on_host(void)
{
    world w = tiers_world(4, 7);
    leave_cached(&w, ints(0), 16);
    wipe_device(&w);
    drop_plan(&w);
    return w;
}

TEST(test_what_follows_a_lost_block_is_counted)
{
    scoped_world w = on_host();
    assert_int_equal(lost(&w), 0);
    drop_host(&w, 3); /* the second */
    assert_int_equal(lost(&w), 2);
    drop_host(&w, 1); /* the last, which was lost */
    assert_int_equal(lost(&w), 1);
    drop_host(&w, 4); /* the first */
    assert_int_equal(lost(&w), 1);
    assert_ok(kvp_cache_reset(w.cache));
    assert_int_equal(lost(&w), 0);
}

TEST(test_what_follows_is_found_again_when_the_block_is_computed)
{
    scoped_world w = on_host();
    drop_host(&w, 3);
    drop_host(&w, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(lost(&w), 2); /* the second is not computed yet */
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(lost(&w), 0);
    assert_int_equal(match(&w, ints(0), 16).host_tokens, 8);
}

/* Two prompts with one first block: what follows it in both, or in one. */
TEST(test_all_that_follows_is_counted_along_every_path)
{
    scoped_world w = tiers_world(5, 9);
    const int32_t other[] = {0, 1, 2, 3, 50, 51, 52, 53, 54, 55, 56, 57};
    leave_cached(&w, ints(0), 12);
    leave_cached(&w, other, 12);
    wipe_device(&w);
    drop_plan(&w);
    kvp_block_info first = {0};
    int32_t block = 0;
    do {
        first = host_block(&w, ++block);
    } while (first.state == KVP_BLOCK_CACHED);
    assert_int_equal(block, 6); /* 5 are there, and the first block is the last of them */
    drop_host(&w, 1);           /* an end */
    assert_int_equal(lost(&w), 0);
    drop_host(&w, 5);
    assert_int_equal(lost(&w), 3);
    leave_cached(&w, ints(0), 4);
    assert_int_equal(lost(&w), 0);
}

/* The prefix goes first, because its retention class is lower, and is not kept. */
TEST(test_the_device_keeps_nothing_that_has_lost_its_prefix)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.max_copies = 2; /* half of it: one copy */
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){4, 8}, 1));
    close_seq(&w, seq);
    leave_cached(&w, NULL, 0);
    const int32_t prefix = 1;
    uint32_t n = 0;
    assert_ok(kvp_cache_drop(w.cache, KVP_DEVICE, &prefix, 1, &n));
    (void)open_seq(&w, ints(100), 8, NULL);
    assert_no_plan(&w);
    assert_int_equal(stats_of(&w).kept_blocks, 0);
    assert_int_equal(stats_of(&w).unkept_blocks, 0); /* not wanted */
    assert_int_equal(lost(&w), 0);
}

/* A tail is kept, and the half of the plan is full when its prefix goes. */
TEST(test_a_full_plan_leaves_a_tail_without_its_prefix)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    config.max_copies = 2;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    (void)open_seq(&w, ints(100), 8, NULL);
    assert_fields(stats_of(&w), kept_blocks, 1, unkept_blocks, 1);
    assert_int_equal(lost(&w), 1);
}

TEST(test_a_prefix_on_its_way_to_the_host_is_on_no_tier)
{
    scoped_world w = steps_world(2, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t first = begin_step(&w);
    commit_at(&w, first, seq, 8);
    assert_int_equal(done_step(&w, first), first);
    close_seq(&w, seq);
    close_seq(&w, open_seq(&w, ints(100), 4, NULL)); /* evicts the tail */
    pass_step(&w);
    assert_int_equal(lost(&w), 0);
    (void)open_seq(&w, ints(100), 8, NULL); /* and the prefix */
    assert_int_equal(lost(&w), 1);
    pass_step(&w);
    assert_int_equal(lost(&w), 0);
}

TEST(test_what_follows_a_prefix_on_its_way_is_kept)
{
    scoped_world w = steps_world(2, 4);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const uint64_t first = begin_step(&w);
    commit_at(&w, first, seq, 8);
    assert_int_equal(done_step(&w, first), first);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){4, 8}, 1));
    close_seq(&w, seq);
    (void)open_seq(&w, ints(100), 8, NULL); /* evicts the prefix, then the tail */
    assert_int_equal(stats_of(&w).kept_blocks, 2);
    pass_step(&w);
    assert_int_equal(lost(&w), 0);
}

TEST(test_units_are_counted_and_not_blocks)
{
    const kvp_config config = tiers_config(4, 2, 4, 7);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);
    wipe_device(&w);
    drop_plan(&w);
    drop_host(&w, 2); /* the second */
    assert_int_equal(lost(&w), 2);
}

TEST(test_nothing_is_counted_where_hits_do_not_need_whole_prefixes)
{
    kvp_config config = tiers_config(4, 4, 4, 7);
    config.groups[0].recent_tokens = 8;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 16);
    wipe_device(&w);
    drop_plan(&w);
    drop_host(&w, 3);
    assert_int_equal(lost(&w), 0);
}

TEST_MAIN(NULL, NULL)

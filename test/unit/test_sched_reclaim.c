/* kvp_sched_reclaim (sched.h): what the next step is expected to take, and that it does not evict
 * then. Blocks of 4 tokens. */
#include <kvpager/drop.h>

#include "sched_world.h"

/* `usable` blocks, a multiple of 8, all of them cached. */
static sched_world full_world(uint32_t usable, uint32_t target, uint32_t max_running)
{
    const kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(max_running, 4096);
    config.free_target = target;
    sched_world s = make_sched_world(&cache_config, &config);
    for (uint32_t i = 0; i < usable; i += 8)
        leave_cached(&s.w, ints(1500 + 4 * (int32_t)i), 32);
    return s;
}

static uint32_t reclaim(const sched_world *s)
{
    uint32_t n = 77;
    assert_ok(kvp_sched_reclaim(s->sched, &n));
    check_sched(s);
    return n;
}

static uint64_t evicted_by(const sched_world *s)
{
    return stats_of(&s->w).evicted_blocks;
}

TEST(test_sequences_that_fill_their_block)
{
    scoped_sched_world s = full_world(640, 10, 8);
    (void)submit(&s, 100, 8, 9); /* goes on with a new block */
    (void)submit(&s, 300, 4, 9); /* likewise */
    (void)submit(&s, 500, 7, 9); /* has room */
    (void)submit(&s, 700, 8, 1); /* ends with its first token */
    const kvp_request gone = submit(&s, 900, 8, 9);
    const kvp_request paused = submit(&s, 1100, 8, 9);
    kvp_step step = make_step(&s);
    assert_ok(kvp_sched_abort(s.sched, gone));
    assert_ok(kvp_sched_pause(s.sched, paused));
    assert_int_equal(stats_of(&s.w).free_blocks, 2); /* what the aborted one had */
    assert_int_equal(reclaim(&s), 0);
    (void)finish_step(&s, &step);
    const uint64_t before = evicted_by(&s);
    step = make_step(&s);
    assert_int_equal(evicted_by(&s), before);
    assert_int_equal(stats_of(&s.w).free_blocks, 0);
    assert_int_equal(reclaim(&s), 1); /* the third fills its block now */
    (void)finish_step(&s, &step);
    step = make_step(&s);
    assert_int_equal(evicted_by(&s), before + 1);
    assert_int_equal(stats_of(&s.w).free_blocks, 0);
    (void)finish_step(&s, &step);
}

TEST(test_who_comes_in_next)
{
    scoped_sched_world s = full_world(640, 10, 2);
    (void)submit(&s, 100, 5, 9);
    kvp_step step = make_step(&s);
    (void)submit(&s, 300, 9, 9);
    (void)submit(&s, 500, 9, 9); /* there is no place for it */
    assert_int_equal(reclaim(&s), 3);
    (void)finish_step(&s, &step);
    const uint64_t before = evicted_by(&s);
    step = make_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(evicted_by(&s), before);
    (void)finish_step(&s, &step);
}

TEST(test_no_more_than_the_target)
{
    scoped_sched_world s = full_world(640, 10, 8);
    (void)submit(&s, 100, 5, 9);
    const kvp_step step = make_step(&s);
    (void)submit(&s, 300, 100, 9);
    assert_int_equal(reclaim(&s), 10);
    assert_int_equal(reclaim(&s), 0);
    (void)finish_step(&s, &step);
}

TEST(test_none_for_who_does_not_fit)
{
    scoped_sched_world s = full_world(64, 1, 8);
    (void)submit(&s, 100, 7, 9);
    (void)submit(&s, 300, 200, 9);
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_admitted, 2);
    (void)submit(&s, 500, 60, 9); /* 12 blocks are left, and it needs 15 */
    assert_fields(stats_of(&s.w), cached_blocks, 12, free_blocks, 0);
    assert_int_equal(reclaim(&s), 1); /* for the second one's next block */
    (void)finish_step(&s, &step);
}

TEST(test_only_while_a_step_is_out)
{
    scoped_sched_world s = full_world(64, 1, 8);
    uint32_t n = 77;
    assert_status(KVP_E_ARG, kvp_sched_reclaim(NULL, &n));
    assert_status(KVP_E_STATE, kvp_sched_reclaim(s.sched, &n));
    assert_int_equal(n, 77);
    (void)submit(&s, 100, 4, 9);
    const kvp_step step = make_step(&s);
    assert_ok(kvp_sched_reclaim(s.sched, NULL));
    assert_int_equal(stats_of(&s.w).free_blocks, 1);
    (void)finish_step(&s, &step);
    assert_status(KVP_E_STATE, kvp_sched_reclaim(s.sched, &n));
}

TEST(test_off_by_default)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    assert_int_equal(config.free_target, 0);
    scoped_sched_world s = full_world(64, 0, 8);
    (void)submit(&s, 100, 4, 9);
    const kvp_step step = make_step(&s);
    assert_int_equal(reclaim(&s), 0);
    (void)finish_step(&s, &step);
    assert_int_equal(stats_of(&s.w).free_blocks, 0);
}

TEST(test_the_largest_target)
{
    static const uint32_t pools[][2] = {{1, 1}, {64, 1}, {65, 2}, {6400, 100}};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const kvp_config cache_config = config_of(4, 4, pools[i][0]);
        scoped_world w = make_world(&cache_config);
        kvp_sched_config config = sched_config_of(4, 64);
        kvp_why why;
        config.free_target = pools[i][1];
        assert_ok(kvp_sched_config_check(&config, w.cache, &why));
        config.free_target++;
        assert_status(KVP_E_ARG, kvp_sched_config_check(&config, w.cache, &why));
        assert_string_equal(why.field, "free_target");
    }
}

TEST_MAIN(NULL, NULL)

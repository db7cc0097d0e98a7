/* KVP_EVICTED_KEEP_ONCE: what the device has, the host does not keep. */
#include <string.h>

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "tiers.h"

#include <kvpager/lend.h>

static kvp_config once_config(uint32_t usable, uint32_t host, uint32_t steps)
{
    kvp_config config = tiers_config(4, 4, usable, host);
    config.keep_evicted = KVP_EVICTED_KEEP_ONCE;
    config.steps = steps;
    return config;
}

static world once_world(uint32_t usable, uint32_t host, uint32_t steps)
{
    const kvp_config config = once_config(usable, host, steps);
    return make_world(&config);
}

static void assert_host_has(const world *w, uint64_t n_cached, uint64_t n_free)
{
    assert_fields(stats_of(w), host_cached_blocks, n_cached, host_free_blocks, n_free);
}

TEST(test_a_prompt_takes_its_blocks_off_the_host)
{
    scoped_world w = once_world(3, 4, KVP_STEPS_ORDERED);
    leave_cached(&w, ints(0), 12);
    wipe_device(&w); /* host 1, 2 and 3 have the third block, the second and the first */
    drop_plan(&w);
    assert_host_has(&w, 3, 1);
    const uint64_t evicted = stats_of(&w).host_evicted_blocks;
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_host_has(&w, 1, 3);
    assert_host_queue(&w, 0, 3, 2, 4,
                      1); /* first given up, last taken: the last of the row first */
    assert_plan(&w, TO_DEVICE(0, 3, 3, 4), TO_DEVICE(0, 2, 2, 4));
    assert_int_equal(stats_of(&w).host_evicted_blocks, evicted);
    assert_int_equal(match(&w, ints(0), 12).host_tokens, 4);
    close_seq(&w, seq);
    wipe_device(&w); /* and it is copied again */
    assert_host_has(&w, 3, 1);
    assert_int_equal(stats_of(&w).kept_blocks, 5);
}

TEST(test_a_host_block_that_is_read_by_the_plan_is_written_after_that)
{
    scoped_world w = once_world(2, 1, KVP_STEPS_ORDERED);
    leave_cached(&w, ints(0), 4);
    wipe_device(&w);
    drop_plan(&w);
    leave_cached(&w, ints(100), 4);
    close_seq(&w, open_seq(&w, ints(0), 4, NULL)); /* off the host, by the plan */
    (void)open_seq(&w, ints(200), 4, NULL);        /* what it evicts goes there */
    kvp_copy copies[4];
    uint32_t n = 0;
    assert_ok(kvp_plan_take(w.cache, copies, 4, &n));
    assert_int_equal(n, 2);
    assert_int_equal(copies[0].src_tier, KVP_HOST);
    assert_fields(copies[1], dst_tier, KVP_HOST, dst_block, copies[0].src_block);
    assert_true(copies[1].phase > copies[0].phase);
}

TEST(test_content_stays_on_the_host_until_its_copy_is_done)
{
    scoped_world w = once_world(2, 4, KVP_STEPS_OVERLAPPED);
    leave_cached(&w, ints(0), 4);
    (void)done_step(&w, begin_step(&w));
    close_seq(&w, evict_first(&w));
    (void)done_step(&w, begin_step(&w));
    assert_host_has(&w, 1, 3);
    kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    uint64_t step = begin_step(&w);
    assert_host_has(&w, 1, 3);
    uint32_t n_cut = 0;
    kvp_seq cut;
    assert_ok(kvp_step_failed(w.cache, step, &cut, 1, &n_cut));
    assert_int_equal(n_cut, 1);
    assert_host_has(&w, 1, 3); /* it is not lost */
    close_seq(&w, seq);
    seq = open_seq(&w, ints(0), 4, NULL);
    step = begin_step(&w);
    assert_host_has(&w, 1, 3);
    (void)done_step(&w, step);
    assert_host_has(&w, 0, 4);
    close_seq(&w, seq);
}

TEST(test_what_is_computed_again_leaves_the_host)
{
    scoped_world w = once_world(2, 4, KVP_STEPS_ORDERED);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    assert_host_has(&w, 2, 2);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    prompt.flags = KVP_OPEN_NO_MATCH;
    kvp_seq seq;
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
    assert_host_has(&w, 2, 2);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_host_has(&w, 1, 3);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_host_has(&w, 0, 4);
}

TEST(test_a_swapped_sequence_leaves_nothing_that_the_device_has)
{
    scoped_world w = once_world(4, 4, KVP_STEPS_ORDERED);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    (void)swap_out(&w, &seq, 1);
    assert_int_equal(stats_of(&w).host_held_blocks, 2);
    (void)swap_in(&w, &seq, 1, 0);
    assert_host_has(&w, 0, 4);
    (void)swap_out(&w, &seq, 1);
    close_seq(&w, seq); /* on the host: the device still has it */
    assert_host_has(&w, 0, 4);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_the_audit_finds_content_that_is_kept_twice)
{
    kvp_config config = tiers_config(4, 4, 2, 4);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    wipe_device(&w);
    leave_cached(&w, ints(0), 8); /* on both tiers */
    kvp_violation violation;
    assert_true(kvpi_audit(w.cache, 3, &violation));
    w.cache->keeps_once = 1;
    assert_true(kvpi_audit(w.cache, 2, &violation));
    assert_false(kvpi_audit(w.cache, 3, &violation));
    assert_string_equal(violation.detail, "B4 the host keeps what the device has");
    w.cache->keeps_once = 0;
}

TEST(test_there_is_no_mirror)
{
    scoped_world w = once_world(2, 4, KVP_STEPS_ORDERED);
    leave_cached(&w, ints(0), 4);
    const int32_t block = 1;
    int32_t host;
    assert_status(KVP_E_STATE, kvp_cache_mirror(w.cache, &block, 1, 0, &host, NULL));
}

TEST_MAIN(NULL, NULL)

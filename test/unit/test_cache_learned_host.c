/* The learned policy on the host: what is known of content there, who goes, what is not copied. */
#include "core/cache/state.h"
#include "scan.h"
#include "snaps.h"
#include "tiers.h"

static kvp_config host_config(uint32_t usable, uint32_t host)
{
    kvp_config config = tiers_config(4, 4, usable, host);
    config.policy = KVP_POLICY_LEARNED;
    config.max_namespaces = 1;
    return config;
}

static uint64_t hits_of(uint32_t policy, uint32_t keep, uint64_t *n_kept)
{
    kvp_config config = host_config(24, 24);
    config.policy = policy;
    config.keep_evicted = keep;
    kvp_cache *cache = NULL;
    uint64_t n_hits = 0;
    kvp_stats stats;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    (void)scan(cache, 60, &n_hits);
    assert_ok(kvp_cache_stats_get(cache, &stats));
    assert_int_equal(stats.host_unreachable, 0);
    *n_kept = stats.kept_blocks;
    kvp_cache_destroy(cache);
    return n_hits;
}

/* 93 blocks in turn, and room for 48: LRU loses each before it comes back. */
TEST(test_both_tiers_hit_what_lru_loses)
{
    uint64_t kept_by_lru, kept, kept_once;
    assert_int_equal(hits_of(KVP_POLICY_LRU, KVP_EVICTED_KEEP, &kept_by_lru), 0);
    const uint64_t learned = hits_of(KVP_POLICY_LEARNED, KVP_EVICTED_KEEP, &kept);
    const uint64_t once = hits_of(KVP_POLICY_LEARNED, KVP_EVICTED_KEEP_ONCE, &kept_once);
    const uint64_t n = 60 * SCAN_BLOCKS;
    assert_in_range(learned, n / 4, n); /* more than the device alone has: 24 of 93 */
    assert_in_range(once, n * 2 / 5, n * 48 / SCAN_BLOCKS);
    assert_true(once > learned);
    assert_in_range(kept, 1, kept_by_lru / 2); /* what is worth less is not copied */
}

/* A request of two blocks, which are no other number's. */
static void ask(kvp_cache *cache, kvp_ns ns, int32_t number, uint64_t *n_hits)
{
    const int32_t tokens[9] = {number};
    const kvp_prompt prompt = prompt_of(tokens, 9);
    (void)scan_one(cache, ns, &prompt, n_hits);
}

/* Content comes back when LRU has lost it, or never; then other content, all of which fits on both
 * tiers. Gives the hits of that. */
static uint64_t hits_of_new_habits(uint32_t policy, uint32_t usable)
{
    const int32_t n_late = (int32_t)(usable * 4 / 5), n_new = (int32_t)(usable * 9 / 10);
    kvp_config config = host_config(usable, usable);
    kvp_cache *cache = NULL;
    kvp_ns ns;
    uint64_t n_hits = 0;
    config.policy = policy;
    config.keep_evicted = KVP_EVICTED_KEEP_ONCE;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(kvp_ns_open(cache, "", 0, &ns));
    for (int32_t i = 0; i < 40 * n_late; i++) {
        ask(cache, ns, i % n_late, &n_hits);
        ask(cache, ns, 1000000 + i, &n_hits);
    }
    assert_int_equal(n_hits > 0, policy == KVP_POLICY_LEARNED);
    n_hits = 0;
    for (int32_t i = 0; i < 40 * n_new; i++)
        ask(cache, ns, 1000 + i % n_new, &n_hits);
    kvp_cache_destroy(cache);
    return n_hits;
}

/* The host has no guard: LRU hits all of it after a round. What is lost is bounded by what is
 * learned anew, each time that habits change. */
TEST(test_new_habits_cost_hits)
{
    for (uint32_t usable = 40; usable <= 160; usable *= 2) {
        const uint64_t all = 2 * 39 * (usable * 9 / 10);
        const uint64_t learned = hits_of_new_habits(KVP_POLICY_LEARNED, usable);
        assert_int_equal(hits_of_new_habits(KVP_POLICY_LRU, usable), all);
        print_message("%u + %u blocks: %u lost\n", usable, usable, (unsigned)(all - learned));
        assert_in_range(all - learned, 1, 4 * usable);
    }
}

TEST(test_a_host_block_is_as_old_as_its_content)
{
    const kvp_config config = host_config(2, 4);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    const struct kvpi_leaves *host = &w.cache->host.leaves;
    const struct kvpi_order_block *device = kvpi_leaves_known(&w.cache->pool.leaves, 1);
    assert_int_equal(device->stamp, 1);
    leave_cached(&w, ints(100), 4);
    leave_cached(&w, ints(200), 4); /* evicts the first */
    const struct kvpi_order_block *known = kvpi_leaves_known(host, 1);
    assert_fields(*known, stamp, 1, count, 1, queued, KVPI_POLICY_OTHERS + 1);
    const uint64_t number = known->number;
    leave_cached(&w, ints(0), 4); /* hit there: it is as old as before, but left later */
    assert_int_equal(known->stamp, 1);
    assert_true(known->number > number);
    const int32_t block = 1;
    assert_ok(kvp_cache_drop(w.cache, KVP_HOST, &block, 1, NULL));
    assert_fields(*known, count, 0, mark, 0);
}

/* The prefix of what the host has goes there, whatever it is worth. */
TEST(test_what_the_host_continues_is_copied)
{
    kvp_config config = host_config(24, 24);
    config.keep_evicted = KVP_EVICTED_KEEP_ONCE;
    kvp_cache *cache = NULL;
    uint64_t n_hits = 0;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    for (int round = 0; round < 30; round++) {
        kvp_stats stats;
        (void)scan(cache, 1, &n_hits);
        assert_ok(kvp_cache_stats_get(cache, &stats));
        assert_int_equal(stats.host_unreachable, 0);
    }
    kvp_cache_destroy(cache);
}

TEST(test_a_snapshot_has_both_tiers)
{
    kvp_config config = host_config(24, 24);
    kvp_cache *cache = NULL, *again = NULL;
    uint64_t before = 0, n_hits = 0, n_again = 0;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    (void)scan(cache, 40, &before);
    const kvp_snapshot_options options = snap_options();
    snap saved = snap_of(cache, &options);
    const uint64_t digest = scan(cache, 20, &n_hits);
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &again));
    assert_ok(snap_load(&saved, again, &report));
    assert_int_equal(report.learned, 1);
    assert_true(scan(again, 20, &n_again) == digest);
    assert_int_equal(n_again, n_hits);
    kvp_cache_destroy(again);
    /* Into a cache that keeps content once: it is on one tier, and all is sound. */
    config.keep_evicted = KVP_EVICTED_KEEP_ONCE;
    assert_ok(kvp_cache_create(&config, NULL, 0, &again));
    assert_ok(snap_load(&saved, again, &report));
    assert_int_equal(report.learned, 1);
    assert_sound(again);
    kvp_cache_destroy(again);
    kvp_cache_destroy(cache);
    snap_drop(&saved);
}

TEST_MAIN(NULL, NULL)

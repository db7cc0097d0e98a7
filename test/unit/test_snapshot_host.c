/* Duplicates on the host: two host blocks with one unit's KV. The older has the unit, the other
 * takes its place when the older loses its content; also after a snapshot. */
#include <string.h>

#include "snaps.h"
#include "tiers.h"

static const int32_t first[] = {1, 2, 3, 4};  /* units [1 2] and [3 4] */
static const int32_t second[] = {1, 2, 5, 6}; /* [1 2] again, as a copy of the first one's */
static const int32_t probe[] = {1, 2, 7, 8};

/* Two usable blocks on the device, three on the host; both prompts were cached, and evicted. */
static world make_duplicates(void)
{
    const kvp_config config = tiers_config(4, 2, 2, 3);
    world w = make_world(&config);
    leave_cached(&w, first, 4);
    drop_plan(&w);
    leave_cached(&w, second, 4);
    drop_plan(&w);
    wipe_device(&w);
    drop_plan(&w);
    assert_int_equal(match(&w, first, 4).host_tokens, 4);
    assert_int_equal(match(&w, second, 4).host_tokens, 4);
    return w;
}

/* Other prompts are evicted to the host until the first one's block has gone. */
static void evict_the_first(world *w)
{
    for (int32_t i = 0; i < 2; i++) {
        leave_cached(w, ints(1000 + 100 * i), 4);
        drop_plan(w);
    }
    wipe_device(w);
    drop_plan(w);
}

static uint32_t hits(world *w, const int32_t *tokens)
{
    return match(w, tokens, 4).cached_tokens;
}

TEST(test_host_duplicates_are_restored)
{
    scoped_world w = make_duplicates();
    kvp_cache *restored;
    kvp_snapshot_report report;
    kvp_config config;
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_ok(kvp_cache_create(&config, NULL, 0, &restored));
    snap s = snap_of(w.cache, NULL);
    assert_ok(snap_load(&s, restored, &report));
    assert_report(&report);
    assert_sound(restored);
    assert_int_equal(report.dropped_units, 0);
    snap again = snap_of(restored, NULL);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.bytes, s.bytes, s.n);

    world r = {.cache = restored};
    assert_ok(kvp_ns_open(restored, "", 0, &r.ns));
    world *const both[] = {&w, &r};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hits(both[i], probe), 2);
        evict_the_first(both[i]);
        assert_int_equal(hits(both[i], first), 2); /* [3 4] has gone ... */
        assert_int_equal(hits(both[i], probe), 2); /* ... and [1 2] is in the other block */
    }
    snap_drop(&s);
    snap_drop(&again);
    kvp_cache_destroy(restored);
}

TEST_MAIN(NULL, NULL)

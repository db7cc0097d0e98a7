/* When others fail: a sink that refuses its n-th write, for every n, and a system that gives no
 * memory. The calls on the cache are not affected. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tiers.h"

struct refusing {
    size_t refuse_at; /* the n-th write, from 0 */
    size_t n_writes;
    size_t n_after; /* writes after the one that was refused */
};

static int write_until(void *context, const void *bytes, size_t n_bytes)
{
    struct refusing *r = context;
    assert_true(bytes != NULL || n_bytes == 0);
    r->n_after += r->n_writes > r->refuse_at;
    return r->n_writes++ == r->refuse_at ? -1 : 0;
}

static void record_tiers(world *w, kvp_seq seq)
{
    kvp_event events[8];
    int32_t tokens[16];
    uint32_t n;
    uint64_t number;
    (void)can_swap_out(w, &seq, 1);
    swap_out(w, &seq, 1);
    (void)can_swap_in(w, &seq, 1, 3);
    drop_plan(w);
    swap_in(w, &seq, 1, 3);
    assert_status(KVP_E_TOO_SMALL, kvp_events_snapshot(w->cache, events, 1, NULL, &n, &number));
    assert_ok(kvp_events_snapshot(w->cache, NULL, 0, NULL, &n, &number));
    assert_ok(kvp_events_read(w->cache, number - 7, events, 8, tokens, &n));
    assert_status(KVP_E_STATE, kvp_step_begin(w->cache, NULL, 0, &n, &number));
    assert_status(KVP_E_ARG, kvp_step_done(w->cache, 1, NULL));
}

/* Calls with all kinds of records: long arrays, keys, refusals, reads. */
static void record_calls(world *w)
{
    static const char bytes[] = "cat";
    const kvp_key key = {1, 2, 9, 3, bytes};
    kvp_prompt prompt = prompt_of(ints(0), 200);
    kvp_copy copies[8];
    int32_t tokens[200];
    int64_t slots[8];
    prompt.keys = &key;
    prompt.n_keys = 1;
    assert_ok(kvp_ns_open(w->cache, NULL, 0, &w->ns));
    const kvp_seq seq = open_with(w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, 198));
    const kvp_seq child = fork_seq(w, seq, 198);
    assert_ok(kvp_seq_extend(w->cache, child, ints(7), 20, 3));
    assert_ok(kvp_seq_commit(w->cache, child, 218));
    kvp_batch batch = batch_of(&child, NULL, 1);
    batch.tokens = ints(9);
    assert_ok(kvp_seq_extend_many(w->cache, &batch));
    (void)take_plan(w, copies, 8);
    assert_ok(kvp_seq_tokens(w->cache, seq, 0, 200, tokens));
    assert_ok(kvp_seq_slots(w->cache, seq, 0, 195, 5, slots));
    assert_status(KVP_E_TOO_LONG, kvp_seq_extend(w->cache, seq, NULL, 100, 0));
    (void)match(w, ints(0), 150);
    (void)stats_of(w);
    assert_ok(kvp_seq_truncate(w->cache, seq, 50, NULL));
    record_tiers(w, child);
    close_seq(w, child);
    assert_ok(kvp_ns_flush(w->cache, w->ns));
}

static world make_recorded(struct refusing *r)
{
    kvp_config config = config_of(4, 2, 80);
    const kvp_sink sink = {r, write_until};
    world w = {.ns = {0}};
    config.max_unit_keys = 1;
    config.host_blocks = 81;
    config.max_events = 64;
    assert_ok(kvp_cache_bytes(&config, &w.arena_bytes));
    w.arena = aligned_alloc(64, w.arena_bytes);
    assert_non_null(w.arena);
    assert_ok(kvp_cache_create(&config, w.arena, w.arena_bytes, &w.cache));
    const kvp_status status = kvp_cache_record_start(w.cache, &sink);
    assert_int_equal(status, r->refuse_at < r->n_writes ? KVP_E_IO : KVP_OK);
    return w;
}

static observed run_recorded(struct refusing *r, kvp_status *out_stop)
{
    world w = make_recorded(r);
    record_calls(&w);
    *out_stop = kvp_cache_record_stop(w.cache);
    observed o = observe(&w);
    end_world(&w);
    return o;
}

/* Handles in it differ from run to run. Compare what does not: the stats at its beginning. */
static void expect_same_run(const observed *a, const observed *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->bytes, b->bytes, sizeof(kvp_stats));
}

TEST(test_a_sink_that_refuses_any_write_affects_no_call)
{
    struct refusing never = {.refuse_at = SIZE_MAX};
    kvp_status stop;
    observed expected = run_recorded(&never, &stop);
    assert_int_equal(stop, KVP_OK);
    assert_true(never.n_writes > 15);
    for (size_t n = 0; n < never.n_writes; n++) {
        struct refusing r = {.refuse_at = n};
        observed o = run_recorded(&r, &stop);
        /* Refused at the header nothing was started; else stop says so. */
        assert_int_equal(stop, n == 0 ? KVP_E_STATE : KVP_E_IO);
        assert_int_equal(r.n_after, 0);
        expect_same_run(&expected, &o);
        drop_observed(&o);
    }
    drop_observed(&expected);
}

TEST(test_a_refused_header_leaves_the_cache_ready_to_record)
{
    struct refusing r = {.refuse_at = 0};
    struct refusing never = {.refuse_at = SIZE_MAX};
    const kvp_sink sink = {&never, write_until};
    scoped_world w = make_recorded(&r);
    assert_status(KVP_E_STATE, kvp_cache_record_stop(w.cache));
    assert_ok(kvp_cache_record_start(w.cache, &sink));
    assert_status(KVP_E_STATE, kvp_cache_record_start(w.cache, &sink)); /* one at a time */
    record_calls(&w);
    assert_ok(kvp_cache_record_stop(w.cache));
    assert_status(KVP_E_STATE, kvp_cache_record_stop(w.cache));
    assert_status(KVP_E_STATE, kvp_cache_record_start(w.cache, &sink)); /* not new any more */
}

TEST(test_destroy_ends_a_recording_that_runs)
{
    struct refusing never = {.refuse_at = SIZE_MAX};
    world w = make_recorded(&never);
    record_calls(&w);
    const size_t n_writes = never.n_writes;
    kvp_cache_destroy(w.cache);
    memset(w.arena, 0xEE, w.arena_bytes);
    free(w.arena);
    assert_true(never.n_writes >= n_writes);
}

TEST(test_a_system_without_memory_is_no_memory)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: sanitizers need the address space\n");
    skip();
#else
    const kvp_config config = config_of(16, 16, 1u << 18);
    struct rlimit before, kept;
    kvp_cache *cache = NULL;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit tight = {16u << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &kept), 0);
    const kvp_status status = kvp_cache_create(&config, NULL, 0, &cache);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (kept.rlim_cur != tight.rlim_cur) {
        kvp_cache_destroy(cache);
        print_message("skipped: the system takes the limit and forgets it, as qemu's does\n");
        skip();
    }
    assert_int_equal(status, KVP_E_NO_MEMORY);
    assert_null(cache);
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    kvp_cache_destroy(cache);
#endif
}

TEST_MAIN(NULL, NULL)

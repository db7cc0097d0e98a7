/* Exclusive access: a call beside another one is refused, in release builds, too; and the counters,
 * which any thread may read at any time (the thread sanitizer's build looks for races here). */
#include <pthread.h>
#include <string.h>

#include "groups.h"

#include <kvpager/lend.h>
#include <kvpager/meta.h>
#include <kvpager/policy.h>
#include <kvpager/snapshot.h>
#include <kvpager/states.h>

/* ------------------------------------------------------------------------- a call inside a call */

/* A sink that calls the cache, which it must not. */
enum { CALLS = 23, TIER_CALLS = 9, LEND_CALLS = 9, GROUP_CALLS = 6 };

struct caller {
    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq seq;
    int armed;
    int n_calls;
    kvp_status statuses[CALLS + TIER_CALLS + LEND_CALLS + GROUP_CALLS];
};

static kvp_status *call_tiers(struct caller *c, kvp_status *s)
{
    kvp_admission admission;
    uint32_t n = 0;
    uint64_t number;
    *s++ = kvp_seq_swap_out(c->cache, &c->seq, 1, NULL);
    *s++ = kvp_seq_swap_in(c->cache, &c->seq, 1, 0, NULL);
    *s++ = kvp_cache_can_swap_out(c->cache, &c->seq, 1, &admission);
    *s++ = kvp_cache_can_swap_in(c->cache, &c->seq, 1, 0, &admission);
    *s++ = kvp_step_begin(c->cache, NULL, 0, &n, &number);
    *s++ = kvp_step_commit(c->cache, 1, &c->seq, &n, 1);
    *s++ = kvp_step_done(c->cache, 1, NULL);
    *s++ = kvp_step_failed(c->cache, 1, NULL, 0, NULL);
    *s++ = kvp_events_snapshot(c->cache, NULL, 0, NULL, &n, &number);
    return s;
}

static kvp_status *call_stores(struct caller *c, kvp_status *s)
{
    const kvp_prompt prompt = prompt_of(ints(0), 4);
    const uint8_t whole = 1;
    int32_t block = 1;
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 1}, .blocks = &block};
    *s++ = kvp_plan_done(c->cache, 0);
    *s++ = kvp_cache_mirror(c->cache, &block, 1, 0, &block, NULL);
    *s++ = kvp_cache_lend(c->cache, &block, 1);
    *s++ = kvp_cache_give_back(c->cache, &block, 1);
    *s++ = kvp_load_begin(c->cache, c->ns, &prompt, &load);
    *s++ = kvp_load_done(c->cache, 1, &whole, 1, NULL);
    *s++ = kvp_load_cancel(c->cache, 1);
    *s++ = kvp_cache_drop(c->cache, KVP_DEVICE, &block, 1, NULL);
    *s++ = kvp_cache_reclaim(c->cache, 1, NULL);
    return s;
}

static int read_nothing(void *context, void *out_bytes, size_t capacity, size_t *out_n)
{
    (void)context;
    (void)out_bytes;
    (void)capacity;
    *out_n = 0;
    return 0;
}

static kvp_status *call_groups(struct caller *c, kvp_status *s)
{
    static const int32_t parent = -1;
    static const int32_t nothing = -1;
    const uint32_t one = 1;
    const kvp_sink sink = {NULL, write_nothing};
    const kvp_source source = {NULL, read_nothing};
    const kvp_meta_batch rows = {.struct_size = sizeof(rows), .n_seqs = 1, .seqs = &c->seq};
    kvp_accept accept = {
        .struct_size = sizeof(accept), .n_seqs = 1, .seqs = &c->seq, .leaves = &nothing};
    kvp_snapshot_options options;
    kvp_snapshot_report report;
    kvp_meta_sizes sizes;
    kvp_batch batch = batch_of(&c->seq, &one, 1);
    batch.tokens = ints(0);
    kvp_snapshot_options_init(&options);
    *s++ = kvp_seq_extend_tree(c->cache, &batch, &parent);
    *s++ = kvp_seq_accept(c->cache, &accept);
    *s++ = kvp_seq_window(c->cache, c->seq, 0, (kvp_window){0, 4}, NULL);
    *s++ = kvp_meta_measure(c->cache, &rows, &sizes);
    *s++ = kvp_snapshot_save(c->cache, &options, &sink);
    *s++ = kvp_snapshot_load(c->cache, &options, &source, &report);
    return s;
}

static int write_and_call(void *context, const void *bytes, size_t n_bytes)
{
    struct caller *c = context;
    const kvp_prompt prompt = prompt_of(ints(0), 4);
    kvp_seq seq;
    kvp_open_info info;
    kvp_admission admission;
    uint32_t n;
    (void)bytes;
    (void)n_bytes;
    if (!c->armed)
        return 0;
    c->armed = 0;
    kvp_status *s = c->statuses;
    const kvp_batch batch = batch_of(&c->seq, NULL, 1);
    const uint32_t one = 1, none = 0;
    const kvp_batch fill = batch_of(&c->seq, &none, 1);
    kvp_ns ns;
    *s++ = kvp_seq_open(c->cache, c->ns, &prompt, &seq, NULL);
    *s++ = kvp_cache_match(c->cache, c->ns, &prompt, &info);
    *s++ = kvp_cache_can_open(c->cache, c->ns, &prompt, &admission);
    *s++ = kvp_seq_extend(c->cache, c->seq, ints(0), 1, 0);
    *s++ = kvp_seq_extend_many(c->cache, &batch);
    *s++ = kvp_cache_can_extend(c->cache, &batch, &admission);
    *s++ = kvp_seq_fill(c->cache, c->seq, ints(0), 0);
    *s++ = kvp_seq_fill_many(c->cache, &fill);
    *s++ = kvp_seq_commit(c->cache, c->seq, 1);
    *s++ = kvp_seq_commit_many(c->cache, &c->seq, &one, 1);
    *s++ = kvp_seq_invalidate(c->cache, c->seq, 0, NULL, 0, NULL);
    *s++ = kvp_seq_fork(c->cache, c->seq, 0, 0, &seq);
    *s++ = kvp_seq_truncate(c->cache, c->seq, 0, NULL);
    *s++ = kvp_seq_close(c->cache, c->seq, NULL);
    *s++ = kvp_seq_retain(c->cache, c->seq, (kvp_range){0, 1}, 1);
    *s++ = kvp_seq_uncache(c->cache, c->seq, (kvp_range){8, 9});
    *s++ = kvp_seq_prompt_end(c->cache, c->seq, 0);
    *s++ = kvp_ns_open(c->cache, "", 0, &ns);
    *s++ = kvp_ns_close(c->cache, c->ns);
    *s++ = kvp_ns_flush(c->cache, c->ns);
    *s++ = kvp_plan_take(c->cache, NULL, 0, &n);
    *s++ = kvp_cache_check(c->cache, 1, NULL);
    *s++ = kvp_cache_reset(c->cache);
    s = call_tiers(c, s);
    s = call_stores(c, s);
    s = call_groups(c, s);
    c->n_calls = (int)(s - c->statuses);
    return 0;
}

TEST(test_a_call_from_inside_a_call_is_busy)
{
    const kvp_config config = config_of(4, 4, 15);
    struct caller c;
    memset(&c, 0, sizeof(c));
    const kvp_sink sink = {&c, write_and_call};
    assert_ok(kvp_cache_create(&config, NULL, 0, &c.cache));
    assert_ok(kvp_cache_record_start(c.cache, &sink));
    assert_ok(kvp_ns_open(c.cache, NULL, 0, &c.ns));
    const kvp_prompt prompt = prompt_of(ints(100), 4);
    assert_ok(kvp_seq_open(c.cache, c.ns, &prompt, &c.seq, NULL));
    c.armed = 1;
    assert_ok(kvp_seq_commit(c.cache, c.seq, 4)); /* the call itself is not affected */
    assert_int_equal(c.n_calls, CALLS + TIER_CALLS + LEND_CALLS + GROUP_CALLS);
    for (int i = 0; i < c.n_calls; i++)
        assert_int_equal(c.statuses[i], KVP_E_BUSY);
    assert_ok(kvp_seq_close(c.cache, c.seq, NULL)); /* and the cache is free again */
    assert_ok(kvp_cache_check(c.cache, 3, NULL));
    kvp_cache_destroy(c.cache);
}

/* ------------------------------------------------------------------------- a call beside a call */

/* A sink that stays inside the call until it is told to go on. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int armed;
    int inside;
    int go;
    kvp_cache *cache;
    kvp_ns ns;
};

static int write_and_wait(void *context, const void *bytes, size_t n_bytes)
{
    struct gate *gate = context;
    (void)bytes;
    (void)n_bytes;
    pthread_mutex_lock(&gate->mutex);
    if (gate->armed) {
        gate->armed = 0;
        gate->inside = 1;
        pthread_cond_broadcast(&gate->changed);
        while (!gate->go)
            pthread_cond_wait(&gate->changed, &gate->mutex);
    }
    pthread_mutex_unlock(&gate->mutex);
    return 0;
}

static void *flush_once(void *context)
{
    struct gate *gate = context;
    static kvp_status status;
    status = kvp_ns_flush(gate->cache, gate->ns);
    return &status;
}

TEST(test_a_call_of_a_second_thread_is_busy)
{
    const kvp_config config = config_of(4, 4, 15);
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const kvp_sink sink = {&gate, write_and_wait};
    const kvp_seq seq = {0};
    uint32_t n_slots;
    pthread_t thread;
    void *status;
    assert_ok(kvp_cache_create(&config, NULL, 0, &gate.cache));
    assert_ok(kvp_cache_record_start(gate.cache, &sink));
    assert_ok(kvp_ns_open(gate.cache, NULL, 0, &gate.ns));
    gate.armed = 1;
    assert_int_equal(pthread_create(&thread, NULL, flush_once, &gate), 0);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.inside)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    assert_status(KVP_E_BUSY, kvp_ns_flush(gate.cache, gate.ns));
    assert_status(KVP_E_BUSY, kvp_cache_check(gate.cache, 3, NULL));
    assert_status(KVP_E_BUSY, kvp_state_swap_need(gate.cache, &seq, 0, 0, &n_slots));
    pthread_mutex_lock(&gate.mutex);
    gate.go = 1;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal(*(kvp_status *)status, KVP_OK); /* the first one was not disturbed */
    assert_ok(kvp_ns_flush(gate.cache, gate.ns));
    kvp_cache_destroy(gate.cache);
}

/* ------------------------------------------------------------------------------ from any thread */

struct reader {
    const kvp_cache *cache;
    int stop;
    int n_reads;
    int n_wrong;
};

/* Counters never go back, and gauges never exceed what there is. */
static void *read_stats(void *context)
{
    struct reader *reader = context;
    kvp_stats last;
    memset(&last, 0, sizeof(last));
    do {
        kvp_stats s;
        reader->n_wrong += kvp_cache_stats_get(reader->cache, &s) != KVP_OK;
        reader->n_wrong += s.opens < last.opens || s.taken_blocks < last.taken_blocks ||
                           s.sealed_units < last.sealed_units || s.refused < last.refused ||
                           s.prompt_tokens < last.prompt_tokens || s.forks < last.forks ||
                           s.evicted_blocks < last.evicted_blocks || s.copies < last.copies;
        reader->n_wrong += s.free_blocks > s.usable_blocks || s.held_blocks > s.usable_blocks ||
                           s.cached_blocks > s.usable_blocks || s.open_seqs > 8 ||
                           s.nodes_used > s.nodes_total || s.pending_copies > 80;
        last = s;
        __atomic_add_fetch(&reader->n_reads, 1, __ATOMIC_RELAXED);
    } while (!__atomic_load_n(&reader->stop, __ATOMIC_RELAXED));
    return NULL;
}

static void work(world *w, int32_t turn)
{
    kvp_copy copies[16];
    const kvp_seq seq = open_done(w, ints(turn % 7), 10);
    const kvp_seq child = fork_seq(w, seq, 9);
    assert_ok(kvp_seq_extend(w->cache, child, ints(turn), 3, 1));
    assert_ok(kvp_seq_commit(w->cache, child, 12));
    assert_ok(kvp_seq_extend(w->cache, seq, NULL, 4, 0));
    assert_ok(kvp_seq_fill(w->cache, seq, ints(10), 4));
    assert_status(KVP_E_NEVER, kvp_seq_extend(w->cache, seq, NULL, 100, 0));
    kvp_status statuses[1];
    const uint32_t too_many = 100;
    kvp_batch batch = batch_of(&seq, &too_many, 1);
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = statuses;
    assert_ok(kvp_seq_extend_many(w->cache, &batch));
    assert_int_equal(statuses[0], KVP_E_NEVER);
    (void)take_plan(w, copies, 16);
    assert_ok(kvp_seq_truncate(w->cache, seq, 5, NULL));
    assert_ok(kvp_seq_invalidate(w->cache, child, 6, NULL, 0, NULL));
    close_seq(w, seq);
    close_seq(w, child);
    if (turn % 50 == 0) {
        assert_ok(kvp_ns_flush(w->cache, w->ns));
        assert_ok(kvp_cache_reset(w->cache));
        assert_ok(kvp_cache_check(w->cache, 3, NULL));
    }
}

TEST(test_counters_may_be_read_beside_a_running_call)
{
    const kvp_config config = config_of(4, 2, 20);
    scoped_world w = make_world(&config);
    struct reader reader = {.cache = w.cache};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_stats, &reader), 0);
    /* Until both have done enough, however the machine shares itself out. */
    for (int32_t turn = 0; turn < 1500 || __atomic_load_n(&reader.n_reads, __ATOMIC_RELAXED) < 1500;
         turn++)
        work(&w, turn % 1500);
    __atomic_store_n(&reader.stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(reader.n_wrong, 0);
}

static void *work_in_thread(void *context)
{
    world *w = context;
    for (int32_t turn = 0; turn < 100; turn++)
        work(w, turn);
    return NULL;
}

/* Exclusive access, not one thread: two threads in turn, and two caches at a time. */
TEST(test_threads_may_take_turns_and_have_a_cache_each)
{
    const kvp_config config = config_of(4, 2, 20);
    world worlds[2] = {make_world(&config), make_world(&config)};
    pthread_t threads[2];
    work(&worlds[0], 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_in_thread, &worlds[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    work(&worlds[0], 2);
    end_world(&worlds[0]);
    end_world(&worlds[1]);
}

TEST_MAIN(fill_ints, NULL) /* before there are others */

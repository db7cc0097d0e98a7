/* The calls on tiers, steps and events: every bad handle, every pointer that may not be NULL, and
 * that nothing is changed then. */
#include <string.h>

#include "tiers.h"

/* What a test calls with: all arguments valid, to begin with. */
struct call {
    world *w;
    kvp_cache *cache;
    kvp_seq on_device;
    kvp_seq on_host;
    uint64_t step;
};

static world make_full_world(void)
{
    kvp_config config = steps_config(4, 4, 15, 15);
    config.max_events = 16;
    return make_world(&config);
}

static struct call call_on(world *w)
{
    struct call c = {.w = w, .cache = w->cache};
    c.on_device = open_done(w, ints(0), 8);
    c.on_host = open_done(w, ints(100), 8);
    swap_out(w, &c.on_host, 1);
    c.step = begin_step(w);
    return c;
}

#include "refused_calls.h"

CALLS(swap_out, kvp_seq_swap_out(c->cache, &c->on_device, 1, NULL))
CALLS(swap_in, kvp_seq_swap_in(c->cache, &c->on_host, 1, 1, NULL))
CALLS(can_swap_out, kvp_cache_can_swap_out(c->cache, &c->on_device, 1, &(kvp_admission){0}))
CALLS(can_swap_in, kvp_cache_can_swap_in(c->cache, &c->on_host, 1, 1, &(kvp_admission){0}))
CALLS(step_commit, kvp_step_commit(c->cache, c->step, &c->on_device, &(uint32_t){8}, 1))
CALLS(step_begin, kvp_step_begin(c->cache, (kvp_copy[16]){{0}}, 16, &(uint32_t){0}, &(uint64_t){0}))
CALLS(step_done, kvp_step_done(c->cache, c->step, NULL))
CALLS(step_failed, kvp_step_failed(c->cache, c->step, NULL, 0, NULL))
CALLS(events_read, kvp_events_read(c->cache, 1, &(kvp_event){0}, 1, NULL, &(uint32_t){0}))
CALLS(events_snapshot,
      kvp_events_snapshot(c->cache, (kvp_event[16]){{0}}, 16, NULL, &(uint32_t){0}, &(uint64_t){0}))

/* The first SEQ_CALLS take sequences. */
static const struct named_call calls[] = {
    CALL(can_swap_out, 0), CALL(can_swap_in, 0),     CALL(step_commit, 1), CALL(swap_out, 1),
    CALL(swap_in, 1),      CALL(step_begin, 1),      CALL(step_done, 1),   CALL(step_failed, 1),
    CALL(events_read, 0),  CALL(events_snapshot, 0),
};

enum { N_CALLS = sizeof(calls) / sizeof(*calls), SEQ_CALLS = 5 };

TEST(test_every_call_refuses_every_bad_sequence)
{
    scoped_world w = make_full_world();
    scoped_world other = make_full_world();
    struct call c = call_on(&w);
    const kvp_seq foreign = open_done(&other, ints(0), 8);
    const kvp_seq closed = open_seq(&w, ints(0), 4, NULL);
    close_seq(&w, closed);
    const kvp_seq bad[] = {{0}, closed, foreign, {UINT64_MAX}, {c.on_device.bits + 2}};
    for (size_t i = 0; i < SEQ_CALLS; i++) {
        for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
            c.on_device = bad[k];
            c.on_host = bad[k];
            expect_refusal(&calls[i], &c);
        }
    }
}

TEST(test_every_call_works_with_good_arguments)
{
    for (size_t i = 0; i < N_CALLS; i++) {
        scoped_world w = make_full_world();
        struct call c = call_on(&w);
        assert_ok(calls[i].call(&c));
    }
}

TEST(test_every_call_refuses_no_cache)
{
    scoped_world w = make_full_world();
    struct call c = call_on(&w);
    c.cache = NULL;
    for (size_t i = 0; i < N_CALLS; i++)
        assert_status(KVP_E_ARG, calls[i].call(&c));
}

/* Every changing call that succeeds starts the list of evicted blocks anew; the others leave it. */
TEST(test_changing_calls_start_the_list_of_evicted_blocks_anew)
{
    for (size_t i = 0; i < N_CALLS; i++) {
        const kvp_evicted *evicted;
        scoped_world w = make_full_world();
        struct call c = call_on(&w);
        leave_cached(&w, ints(200), 4);
        (void)done_step(&w, c.step);
        c.step = begin_step(&w);
        (void)evict_first(&w);
        assert_int_equal(evicted_of(&w, &evicted), 1);
        const kvp_status status = calls[i].call(&c);
        assert_int_equal(status, calls[i].call == call_swap_in ? KVP_E_NO_BLOCKS : KVP_OK);
        const uint32_t n = evicted_of(&w, &evicted);
        if (n != (calls[i].changes && status == KVP_OK ? 0 : 1)) {
            print_error("%s: %u\n", calls[i].name, (unsigned)n);
            fail();
        }
    }
}

TEST(test_swaps_refuse_missing_pointers)
{
    scoped_world w = make_full_world();
    struct call c = call_on(&w);
    kvp_admission admission;
    observed before = observe(&w);
    assert_status(KVP_E_ARG, kvp_seq_swap_out(w.cache, NULL, 1, NULL));
    assert_status(KVP_E_ARG, kvp_seq_swap_in(w.cache, NULL, 1, 0, NULL));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_out(w.cache, NULL, 1, &admission));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_in(w.cache, NULL, 1, 0, &admission));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_out(w.cache, &c.on_device, 1, NULL));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_in(w.cache, &c.on_host, 1, 0, NULL));
    assert_observed(&w, &before, __FILE__, __LINE__);
}

TEST(test_steps_refuse_missing_pointers)
{
    scoped_world w = make_full_world();
    struct call c = call_on(&w);
    kvp_copy copies[4];
    kvp_seq seqs[4];
    uint32_t n = 8;
    uint64_t step;
    observed before = observe(&w);
    assert_status(KVP_E_ARG, kvp_step_begin(w.cache, NULL, 1, &n, &step));
    assert_status(KVP_E_ARG, kvp_step_begin(w.cache, copies, 4, NULL, &step));
    assert_status(KVP_E_ARG, kvp_step_begin(w.cache, copies, 4, &n, NULL));
    assert_status(KVP_E_ARG, kvp_step_commit(w.cache, c.step, NULL, &n, 1));
    assert_status(KVP_E_ARG, kvp_step_commit(w.cache, c.step, &c.on_device, NULL, 1));
    assert_status(KVP_E_ARG, kvp_step_failed(w.cache, c.step, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_step_failed(w.cache, c.step, seqs, 4, NULL));
    assert_observed(&w, &before, __FILE__, __LINE__);
    assert_int_equal(n, 8);
}

TEST(test_events_refuse_missing_pointers)
{
    scoped_world w = make_full_world();
    (void)call_on(&w);
    kvp_event events[4];
    uint32_t n = 77;
    uint64_t number = 77;
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, 1, NULL, 1, NULL, &n));
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, 1, events, 4, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_events_snapshot(w.cache, NULL, 1, NULL, &n, &number));
    assert_status(KVP_E_ARG, kvp_events_snapshot(w.cache, events, 4, NULL, NULL, &number));
    assert_status(KVP_E_ARG, kvp_events_snapshot(w.cache, events, 4, NULL, &n, NULL));
    assert_int_equal(n, 77);
    assert_int_equal(number, 77);
}

TEST(test_no_sequences_are_nothing_to_do)
{
    scoped_world w = make_full_world();
    struct call c = call_on(&w);
    kvp_swapped swapped = {77, 77, {77, 77}};
    kvp_admission admission;
    assert_ok(kvp_seq_swap_out(w.cache, NULL, 0, &swapped));
    assert_moved(swapped, 0, 0, 0, 0);
    assert_ok(kvp_seq_swap_in(w.cache, NULL, 0, 5, &swapped));
    assert_moved(swapped, 0, 0, 0, 0);
    assert_ok(kvp_cache_can_swap_out(w.cache, NULL, 0, &admission));
    assert_int_equal(admission.verdict, KVP_ADMIT_OK);
    assert_ok(kvp_cache_can_swap_in(w.cache, NULL, 0, 0, &admission));
    assert_int_equal(admission.need_blocks, 0);
    assert_ok(kvp_step_commit(w.cache, c.step, NULL, NULL, 0));
}

TEST_MAIN(NULL, NULL)

/* Requests that are held while their prefix is loaded (sched.h, "loading"): who is listed, what
 * others may do meanwhile, when a hold ends, and what is found then. */
#include "sched_world.h"

#include <kvpager/lend.h>

enum { DUE = 1000 }; /* a deadline */

/* S = 4, `usable` blocks, 8 sequences; strict order: who waits in front blocks all others. */
static sched_world loading_world(uint32_t usable, uint32_t max_loading)
{
    const kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    config.max_loading = max_loading;
    config.max_passed_over = 0;
    return make_sched_world(&cache_config, &config);
}

static kvp_request submit_flags(sched_world *s, int32_t first, uint32_t flags, uint64_t deadline)
{
    const kvp_prompt prompt = prompt_of(ints(first), 8);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w.ns,
                                       .max_new_tokens = 2,
                                       .flags = flags,
                                       .load_deadline = deadline};
    return submit_with(s, &submission);
}

static uint32_t list(const sched_world *s, uint32_t n_first, kvp_request *out_requests)
{
    uint32_t n = 77;
    assert_ok(kvp_sched_loadable(s->sched, n_first, out_requests, &n));
    return n;
}

static kvp_sched_expired tick(sched_world *s, uint64_t now)
{
    kvp_sched_expired expired;
    assert_ok(kvp_sched_tick(s->sched, now, &expired));
    check_sched(s);
    return expired;
}

static void hold(sched_world *s, kvp_request request, uint64_t deadline)
{
    assert_ok(kvp_sched_hold(s->sched, request, deadline));
    check_sched(s);
    assert_fields(request_of(s, request), state, KVP_REQUEST_LOADING, holds_blocks, 0);
}

/* ------------------------------------------------------------------------------------ the list */

TEST(test_listed_in_the_order_of_admission_until_decided)
{
    scoped_sched_world s = loading_world(16, 2);
    kvp_request found[8];
    const kvp_request a = submit_rank(&s, 0, 8, 2, 1, 1);
    const kvp_request b = submit_rank(&s, 100, 8, 2, 0, 1);
    const kvp_request never = submit_flags(&s, 200, KVP_SUBMIT_NO_LOAD, 0);
    const kvp_request c = submit_rank(&s, 300, 8, 2, 0, 3);
    assert_int_equal(list(&s, 8, found), 3); /* b, c, a by rank */
    assert_int_equal(found[0].bits, b.bits);
    assert_int_equal(found[1].bits, c.bits);
    assert_int_equal(found[2].bits, a.bits);
    assert_int_equal(list(&s, 0, NULL), 0);
    assert_int_equal(list(&s, 1, found), 1);
    assert_int_equal(list(&s, 2, found), 1); /* `never` is the second in rank */
    assert_int_equal(list(&s, 3, found), 2);
    hold(&s, b, DUE);
    assert_int_equal(list(&s, 2, found), 1); /* who is held is no more in front */
    assert_int_equal(found[0].bits, c.bits);
    assert_ok(kvp_sched_skip_load(s.sched, c));
    assert_int_equal(request_of(&s, c).state, KVP_REQUEST_WAITING);
    assert_int_equal(list(&s, 8, found), 1);
    assert_int_equal(found[0].bits, a.bits);
    assert_ok(kvp_sched_release(s.sched, b));
    assert_int_equal(list(&s, 8, found), 1); /* once is enough */
    const kvp_request decided[] = {b, c, never};
    for (int i = 0; i < 3; i++) {
        assert_status(KVP_E_STATE, kvp_sched_hold(s.sched, decided[i], DUE));
        assert_status(KVP_E_STATE, kvp_sched_skip_load(s.sched, decided[i]));
        assert_status(KVP_E_STATE, kvp_sched_release(s.sched, decided[i]));
    }
    assert_int_equal(sched_stats_of(&s).skipped, 1);
    run_until_over(&s, 4);
}

TEST(test_no_more_are_held_than_may_be)
{
    sched_world s = loading_world(16, 1);
    kvp_request found[4];
    const kvp_request a = submit(&s, 0, 8, 2);
    const kvp_request b = submit(&s, 100, 8, 2);
    hold(&s, a, DUE);
    assert_status(KVP_E_AGAIN, kvp_sched_hold(s.sched, b, DUE));
    assert_int_equal(request_of(&s, b).state, KVP_REQUEST_WAITING);
    assert_int_equal(list(&s, 4, found), 1); /* it may be asked again */
    assert_ok(kvp_sched_release(s.sched, a));
    hold(&s, b, DUE);
    assert_ok(kvp_sched_release(s.sched, b));
    run_until_over(&s, 2);
    end_sched_world(&s);

    scoped_sched_world none = loading_world(16, 0);
    const kvp_request c = submit(&none, 0, 8, 2);
    assert_int_equal(list(&none, 4, found), 0);
    assert_status(KVP_E_STATE, kvp_sched_hold(none.sched, c, DUE));
    assert_status(KVP_E_STATE, kvp_sched_skip_load(none.sched, c));
    assert_int_equal(tick(&none, UINT64_MAX).n_requests, 0);
}

TEST(test_bad_arguments)
{
    scoped_sched_world s = loading_world(16, 1);
    kvp_request found[1];
    uint32_t n;
    const kvp_request gone = {.bits = 5};
    assert_status(KVP_E_ARG, kvp_sched_loadable(NULL, 1, found, &n));
    assert_status(KVP_E_ARG, kvp_sched_loadable(s.sched, 1, NULL, &n));
    assert_status(KVP_E_ARG, kvp_sched_loadable(s.sched, 1, found, NULL));
    assert_status(KVP_E_ARG, kvp_sched_hold(NULL, gone, DUE));
    assert_status(KVP_E_ARG, kvp_sched_skip_load(NULL, gone));
    assert_status(KVP_E_ARG, kvp_sched_release(NULL, gone));
    assert_status(KVP_E_ARG, kvp_sched_tick(NULL, 1, NULL));
    assert_status(KVP_E_HANDLE, kvp_sched_hold(s.sched, gone, DUE));
    assert_status(KVP_E_HANDLE, kvp_sched_skip_load(s.sched, gone));
    assert_status(KVP_E_HANDLE, kvp_sched_release(s.sched, gone));
    assert_ok(kvp_sched_tick(s.sched, 1, NULL));
}

/* ---------------------------------------------------------------------------- while it is held */

/* Order is strict, and the first in rank needs all blocks: waiting, it would keep the others out.
 */
TEST(test_others_go_past_a_held_request)
{
    scoped_sched_world s = loading_world(8, 4);
    const kvp_request runs = submit(&s, 500, 4, 20);
    (void)run_step(&s);
    const kvp_request large = submit_rank(&s, 0, 31, 1, -1, 1);
    const kvp_request small = submit(&s, 100, 4, 2);
    kvp_step step = run_step(&s);
    assert_int_equal(step.n_admitted, 0);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS] + step.waited[KVP_WAIT_ORDER], 2);
    const uint64_t tries = sched_stats_of(&s).tries;
    hold(&s, large, DUE);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, small.bits);
    assert_int_equal(step.n_loading, 1);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS] + step.waited[KVP_WAIT_ORDER], 0);
    assert_int_equal(sched_stats_of(&s).tries, tries + 1);
    assert_int_equal(request_of(&s, large).passed_over, 0);
    assert_int_equal(sched_stats_of(&s).passed_over, 0);
    (void)run_step(&s);
    assert_ok(kvp_sched_release(s.sched, large));
    const kvp_request late = submit(&s, 200, 4, 2);
    step = run_step(&s); /* back at its place: in front of `late`, which is not admitted */
    assert_int_equal(step.n_admitted, 0);
    assert_int_equal(request_of(&s, late).state, KVP_REQUEST_WAITING);
    assert_ok(kvp_sched_abort(s.sched, runs));
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, large.bits);
    run_until_over(&s, 3);
}

/* Nothing can run; nothing is lost. */
TEST(test_a_step_in_which_all_are_held)
{
    scoped_sched_world s = loading_world(16, 4);
    const kvp_request a = submit(&s, 0, 8, 2);
    const kvp_request b = submit(&s, 100, 8, 2);
    hold(&s, b, UINT64_MAX);
    hold(&s, a, DUE);
    for (int i = 0; i < 3; i++) {
        const kvp_step step = run_step(&s);
        assert_fields(step, n_seqs, 0, n_loading, 2);
    }
    assert_fields(sched_stats_of(&s), loading_requests, 2, waiting_requests, 0);
    const kvp_sched_expired none = tick(&s, DUE - 1);
    assert_fields(none, n_requests, 0, n_loading, 2, next_deadline, DUE);
    kvp_sched_expired expired = tick(&s, DUE);
    assert_int_equal(expired.n_requests, 1);
    assert_int_equal(expired.requests[0].bits, a.bits);
    assert_fields(expired, n_loading, 1, next_deadline, UINT64_MAX);
    assert_int_equal(tick(&s, UINT64_MAX - 1).n_requests, 0);
    expired = tick(&s, UINT64_MAX);
    assert_int_equal(expired.requests[0].bits, b.bits);
    assert_int_equal(expired.n_loading, 0);
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).expired, 2);
}

TEST(test_a_step_that_is_out_does_not_matter)
{
    scoped_sched_world s = loading_world(16, 4);
    (void)submit(&s, 0, 8, 3);
    const kvp_step step = make_step(&s);
    const kvp_request late = submit(&s, 100, 8, 2);
    const kvp_request later = submit(&s, 200, 8, 2);
    hold(&s, late, DUE);
    hold(&s, later, DUE);
    assert_int_equal(tick(&s, 1).n_loading, 2);
    assert_ok(kvp_sched_release(s.sched, late));
    assert_ok(kvp_sched_abort(s.sched, later));
    (void)finish_step(&s, &step);
    assert_int_equal(run_step(&s).n_admitted, 1);
    run_until_over(&s, 2);
}

/* ----------------------------------------------------------------------------- how a hold ends */

TEST(test_expired_ones_are_told_in_rank)
{
    scoped_sched_world s = loading_world(16, 4);
    const kvp_request last = submit_rank(&s, 0, 8, 2, 5, 1);
    const kvp_request stays = submit(&s, 100, 8, 2);
    const kvp_request first = submit(&s, 200, 8, 2);
    hold(&s, last, 10);
    hold(&s, stays, 31);
    hold(&s, first, 20);
    const kvp_sched_expired expired = tick(&s, 30);
    assert_int_equal(expired.n_requests, 2);
    assert_int_equal(expired.requests[0].bits, first.bits);
    assert_int_equal(expired.requests[1].bits, last.bits);
    assert_int_equal(expired.next_deadline, 31);
    assert_int_equal(tick(&s, 5).n_requests, 0); /* an earlier time takes nothing back */
    assert_int_equal(request_of(&s, first).state, KVP_REQUEST_WAITING);
    assert_status(KVP_E_STATE, kvp_sched_release(s.sched, first));
    assert_status(KVP_E_STATE, kvp_sched_hold(s.sched, first, DUE));
}

TEST(test_the_earlier_deadline_counts)
{
    scoped_sched_world s = loading_world(16, 4);
    const kvp_request own = submit_flags(&s, 0, KVP_SUBMIT_NO_STORE, 20);
    const kvp_request callers = submit_flags(&s, 100, 0, 90);
    assert_fields(request_of(&s, own), flags, KVP_SUBMIT_NO_STORE, load_deadline, 20);
    hold(&s, own, 50);
    hold(&s, callers, 50);
    assert_int_equal(request_of(&s, own).load_deadline, 20);
    assert_int_equal(request_of(&s, callers).load_deadline, 50);
    assert_int_equal(tick(&s, 20).requests[0].bits, own.bits);
    assert_int_equal(tick(&s, 49).n_requests, 0);
    assert_int_equal(tick(&s, 50).requests[0].bits, callers.bits);
    assert_int_equal(request_of(&s, callers).load_deadline, 90);
}

TEST(test_abort_pause_and_resume_of_held_ones)
{
    scoped_sched_world s = loading_world(16, 4);
    kvp_request found[4];
    const kvp_request aborted = submit(&s, 0, 8, 2);
    const kvp_request paused = submit_rank(&s, 100, 8, 2, 0, 2);
    const kvp_request stays = submit(&s, 200, 8, 2);
    hold(&s, aborted, DUE);
    hold(&s, paused, DUE);
    hold(&s, stays, DUE);
    assert_ok(kvp_sched_abort(s.sched, aborted));
    assert_status(KVP_E_HANDLE, kvp_sched_release(s.sched, aborted));
    assert_ok(kvp_sched_pause(s.sched, paused));
    check_sched(&s);
    assert_int_equal(request_of(&s, paused).state, KVP_REQUEST_PAUSED);
    assert_status(KVP_E_STATE, kvp_sched_release(s.sched, paused));
    assert_ok(kvp_sched_resume(s.sched, stays)); /* it is not paused: nothing happens */
    assert_int_equal(request_of(&s, stays).state, KVP_REQUEST_LOADING);
    const kvp_sched_expired expired = tick(&s, DUE);
    assert_int_equal(expired.n_requests, 1);
    assert_int_equal(expired.requests[0].bits, stays.bits);
    assert_ok(kvp_sched_resume(s.sched, paused));
    assert_int_equal(request_of(&s, paused).state, KVP_REQUEST_WAITING);
    assert_int_equal(list(&s, 4, found), 0); /* it was decided on */
    const kvp_sched_stats stats = sched_stats_of(&s);
    assert_fields(stats, held, 3, dropped, 2, expired, 1, aborted, 1);
    run_until_over(&s, 2);
    hold(&s, submit(&s, 300, 8, 2), DUE); /* and ends with the scheduler */
}

/* Its KV may have gone to a store: after a recompute it is listed again, and held again. */
TEST(test_held_again_after_a_recompute)
{
    scoped_sched_world s = loading_world(16, 4);
    kvp_request found[4];
    const kvp_request a = submit_rank(&s, 0, 8, 6, 0, 2);
    hold(&s, a, DUE);
    assert_ok(kvp_sched_release(s.sched, a));
    (void)run_step(&s);
    assert_int_equal(list(&s, 4, found), 0); /* it runs */
    assert_status(KVP_E_STATE, kvp_sched_hold(s.sched, a, DUE));
    const kvp_step step = make_step(&s);
    assert_int_equal(step.n_seqs, 2);
    assert_ok(kvp_sched_fail(s.sched));
    assert_int_equal(list(&s, 4, found), 1);
    hold(&s, a, DUE);
    assert_int_equal(run_step(&s).n_seqs, 0);
    assert_ok(kvp_sched_release(s.sched, a));
    assert_status(KVP_E_STATE, kvp_sched_hold(s.sched, a, DUE));
    run_until_over(&s, 1);
    assert_int_equal(sched_stats_of(&s).held, 2);
}

/* ---------------------------------------------------------------------------- with a real load */

/* A load of entries [0, n) of ints(first), of which the KV is in the memory when it is whole. */
static void load_prefix(sched_world *s, int32_t first, uint32_t n)
{
    int32_t blocks[16];
    uint8_t whole[16];
    const kvp_prompt prompt = prompt_of(ints(first), 4 * n);
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, n}, .blocks = blocks};
    uint64_t sum = 14695981039346656037u;
    assert_ok(kvp_load_begin(s->w.cache, s->w.ns, &prompt, &load));
    assert_int_equal(load.n_blocks, n);
    for (uint32_t i = 0; i < 4 * n; i++) {
        sum = sched_memory_sum(sum, ints(first)[i]);
        sched_memory_block(&s->memory, KVP_HOST, blocks[i / 4])[i % 4] = sum;
        whole[i / 4] = 1;
    }
    assert_ok(kvp_load_done(s->w.cache, load.number, whole, n, NULL));
}

static sched_world store_world(uint32_t usable, kvp_window window)
{
    kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.host_blocks = 33;
    cache_config.max_loads = 2;
    cache_config.groups[0] = (kvp_group){window.sink_tokens, window.recent_tokens, 0};
    config.max_loading = 4;
    return make_reading_world(&cache_config, &config);
}

/* A step that admits this request; gives where it begins to compute. */
static uint32_t run_one_of(sched_world *s, kvp_request request)
{
    const kvp_step step = make_step(s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, request.bits);
    const uint32_t begin = item_of(&step, request, 0)->begin;
    (void)finish_step(s, &step);
    return begin;
}

/* What is loaded for one is there for all, and each computes what is missing. */
TEST(test_what_was_loaded_for_one_is_there_for_all)
{
    scoped_sched_world s = store_world(24, (kvp_window){0, 0});
    const kvp_request one = submit(&s, 0, 24, 2);
    hold(&s, one, DUE);
    (void)run_step(&s);
    load_prefix(&s, 0, 4);
    const kvp_request other = submit(&s, 0, 20, 2); /* never held */
    assert_int_equal(run_one_of(&s, other), 16);
    assert_ok(kvp_sched_release(s.sched, one));
    assert_int_equal(run_one_of(&s, one), 20); /* with what the other has computed */
    run_until_over(&s, 2);
    assert_int_equal(sched_stats_of(&s).cached_tokens, 36);
}

/* With a window a loaded prefix needs few blocks: what lacked many may fit now, and is tried. */
TEST(test_a_load_makes_a_request_fit_that_was_given_up)
{
    scoped_sched_world s = store_world(11, (kvp_window){0, 4});
    for (int32_t i = 0; i < 3; i++)
        (void)submit(&s, 500 + 100 * i, 4, 12); /* nothing is sealed or dropped soon */
    (void)run_step(&s);
    const kvp_request waits = submit(&s, 0, 40, 2);
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    const uint64_t tries = sched_stats_of(&s).tries;
    step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(sched_stats_of(&s).tries, tries); /* so little changed that it must fail */
    load_prefix(&s, 0, 9);
    assert_int_equal(run_one_of(&s, waits), 36);
    run_until_over(&s, 4);
}

/* With a window, one unit that arrives may be all that a hit of ten units lacked. */
TEST(test_who_lacked_many_blocks_is_tried_when_one_is_loaded)
{
    kvp_config cache_config = config_of(4, 4, 12);
    cache_config.groups[0].recent_tokens = 4;
    cache_config.host_blocks = 9;
    cache_config.max_loads = 1;
    const kvp_sched_config config = sched_config_of(8, 64);
    scoped_sched_world s = make_sched_world(&cache_config, &config);
    for (int32_t i = 0; i < 3; i++)
        (void)submit(&s, 100 * i, 5, 20);
    (void)run_step(&s);
    const kvp_request late = submit(&s, 1000, 41, 1); /* 11 blocks, and 6 are held */
    (void)run_step(&s);
    assert_int_equal(request_of(&s, late).state, KVP_REQUEST_WAITING);
    int32_t block;
    const kvp_prompt prompt = prompt_of(ints(1000), 41);
    kvp_load load = {.struct_size = sizeof load, .entries = {9, 10}, .blocks = &block};
    assert_ok(kvp_load_begin(s.w.cache, s.w.ns, &prompt, &load));
    assert_ok(kvp_load_done(s.w.cache, load.number, (const uint8_t[]){1}, 1, NULL));
    const kvp_step step = run_step(&s);
    assert_non_null(item_of(&step, late, 0));
}

TEST_MAIN(NULL, NULL)

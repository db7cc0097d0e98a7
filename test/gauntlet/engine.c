/* Defects of schedulers and of transfers. The scheduler runs over test/common/sched_world.h, whose
 * memory has a sum of all tokens before in each slot and whose steps read what attention reads; a
 * transfer moves KV that follows from position, layer and head (transfer_world.h). Both stop the
 * program at the first thing that is wrong (cmocka's asserts), which is a failure, too. */
#include "scenes.h"

#include "sched_world.h"
#include "transfer_world.h"

enum { ENGINE_S = 4 };

/* ----------------------------------------------------------------------------- the scheduler */

/* A scheduler over `usable` blocks, 8 sequences, steps of 16 tokens: long prompts go in chunks. */
static sched_world chunked_world(uint32_t usable, double watermark)
{
    kvp_config config = config_of(ENGINE_S, ENGINE_S, usable);
    const kvp_sched_config sched_config = sched_config_of(8, 16);
    config.watermark = watermark;
    return make_reading_world(&config, &sched_config);
}

/* V8: ten long prompts, of which two fit; with a watermark and without. Whole prompts are admitted:
 * nobody is preempted half-way, and each token is computed once. */
static void long_prompts_do_not_thrash(rig *r)
{
    for (uint32_t k = 0; k < 2; k++) {
        scoped_sched_world s = chunked_world(26, k == 0 ? 0.0 : 0.08);
        for (int32_t i = 0; i < 10; i++)
            (void)submit(&s, 100 * i + 1, 40, 5);
        run_until_over(&s, 10);
        const kvp_sched_stats stats = sched_stats_of(&s);
        EXPECT_EQ(r, stats.preemptions, 0);
        EXPECT_EQ(r, stats.lost_tokens, 0);
        EXPECT_EQ(r, stats.scheduled_tokens, 10 * (40 + 4));
        EXPECT_EQ(r, stats.sampled_tokens, 10 * 5);
    }
}

/* V9: what can never run is refused when it is submitted, with the longest that can; that one runs,
 * and so do all that wait behind. */
static void what_can_never_run_is_refused_at_once(rig *r)
{
    scoped_sched_world s = chunked_world(16, 0.1);
    kvp_request request = {0};
    kvp_sched_limit limit = {0, 0};
    (void)submit(&s, 3000, 20, 4);
    EXPECT_STATUS(r, KVP_E_NEVER, try_submit(&s, 1, 100, 4, &request, &limit));
    EXPECT_EQ(r, request.bits, 0);
    EXPECT(r, limit.max_prompt_tokens > 0 && limit.max_prompt_tokens < 100);
    EXPECT_STATUS(r, KVP_E_NEVER,
                  try_submit(&s, 1, limit.max_prompt_tokens + 1, 1, &request, NULL));
    EXPECT_OK(r, try_submit(&s, 1, limit.max_prompt_tokens, 1, &request, NULL));
    (void)submit(&s, 2000, 20, 4);
    run_until_over(&s, 3);
    EXPECT_EQ(r, sched_stats_of(&s).refused, 2);
}

/* R5: two layer groups, one of them sliding, in a pool that holds little more than one request:
 * eight at once, and all end. */
static void windowed_groups_of_a_small_pool_all_end(rig *r)
{
    kvp_config config = config_of(ENGINE_S, ENGINE_S, 22);
    const kvp_sched_config sched_config = sched_config_of(8, 16);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){2, 6, 0};
    scoped_sched_world s = make_sched_world(&config, &sched_config);
    for (int32_t i = 0; i < 8; i++)
        (void)submit(&s, 100 * i + 1, 20, 12);
    run_until_over(&s, 8);
    EXPECT_EQ(r, sched_stats_of(&s).ended, 8);
    EXPECT_EQ(r, sched_stats_of(&s).sampled_tokens >= 8 * 12, 1);
}

/* R6: more is to be swapped out than the host has room for. It is computed anew instead; the
 * scheduler goes on, and everybody ends. A swap by itself is refused, with the blocks missing. */
static void overshoot_of_the_host_is_no_end(rig *r)
{
    for (uint32_t host = 1; host <= 6; host++) {
        scoped_sched_world s = swap_world(12, host);
        for (int32_t i = 0; i < 6; i++)
            (void)submit(&s, 100 * i + 1, 10, 16);
        run_until_over(&s, 6);
        EXPECT(r, sched_stats_of(&s).preemptions > 0);
        EXPECT(r, host > 2 || sched_stats_of(&s).recomputed > 0);
        const kvp_seq seq = open_done(&s.w, ints(2000), 40);
        EXPECT_STATUS(r, KVP_E_NEVER, kvp_seq_swap_out(s.w.cache, &seq, 1, NULL));
        EXPECT_EQ(r, shortage_of(&s.w).missing_blocks, 10 - host);
        EXPECT_EQ(r, info_of(&s.w, seq).tier, KVP_DEVICE);
        close_seq(&s.w, seq);
    }
}

/* A scheduler over `usable` blocks whose caller loads prefixes from a store. */
static sched_world loading_world(uint32_t usable)
{
    const kvp_config config = config_of(ENGINE_S, ENGINE_S, usable);
    kvp_sched_config sched_config = sched_config_of(8, 64);
    sched_config.max_loading = 4;
    return make_reading_world(&config, &sched_config);
}

/* V15: two requests wait for loads, and a third that ranks before them needs the whole pool. Those
 * that wait hold no block, so it runs at once; their loads end in the wrong order, and all end. */
static void requests_that_load_hold_no_blocks(rig *r)
{
    scoped_sched_world s = loading_world(7);
    const kvp_request a = submit(&s, 100, 16, 8);
    const kvp_request b = submit(&s, 200, 12, 8);
    EXPECT_OK(r, kvp_sched_hold(s.sched, a, 10));
    EXPECT_OK(r, kvp_sched_hold(s.sched, b, 20));
    EXPECT_EQ(r, run_step(&s).n_loading, 2);
    const kvp_request head = submit_rank(&s, 300, 24, 4, -1, 1);
    EXPECT_EQ(r, run_step(&s).n_admitted, 1);
    EXPECT_EQ(r, request_of(&s, head).state, KVP_REQUEST_RUNNING);
    EXPECT_OK(r, kvp_sched_release(s.sched, b));
    (void)run_step(&s);
    EXPECT_OK(r, kvp_sched_release(s.sched, a));
    run_until_over(&s, 3);
    EXPECT_EQ(r, sched_stats_of(&s).released, 2);
}

/* V16: a load fails and nobody says so. Others go on; at its deadline the request waits for
 * admission, and computes what was not loaded. What comes late is refused. */
static void load_that_is_never_answered_ends(rig *r)
{
    scoped_sched_world s = loading_world(16);
    kvp_sched_expired expired = {0};
    const kvp_request silent = submit(&s, 100, 16, 4);
    EXPECT_OK(r, kvp_sched_hold(s.sched, silent, 10));
    (void)submit(&s, 200, 16, 4);
    run_until_over(&s, 1);
    EXPECT_EQ(r, request_of(&s, silent).state, KVP_REQUEST_LOADING);
    EXPECT_EQ(r, run_step(&s).n_loading, 1);
    EXPECT_OK(r, kvp_sched_tick(s.sched, 9, &expired));
    EXPECT_EQ(r, expired.next_deadline, 10);
    EXPECT_OK(r, kvp_sched_tick(s.sched, 10, &expired));
    EXPECT_EQ(r, expired.n_requests, 1);
    EXPECT_EQ(r, run_step(&s).n_tokens, 16);
    EXPECT_STATUS(r, KVP_E_STATE, kvp_sched_release(s.sched, silent));
    EXPECT_STATUS(r, KVP_E_STATE, kvp_sched_hold(s.sched, silent, 20));
    run_until_over(&s, 2);
}

/* ---------------------------------------------------------------------------------- transfers */

enum { SENT_TOKENS = 19, SENT_CACHED = 4 };

static pair begin_transfer(void)
{
    const place_shape shape = small_place();
    pair p = make_pair(&shape, &shape, 3);
    open_both(&p, SENT_TOKENS, SENT_CACHED);
    reserve(&p);
    prefill(&p, (kvp_range){0, 9});
    mark(&p);
    progress_both(&p, 1);
    return p;
}

static void close_b(pair *p)
{
    close_seq(&p->b.w, p->seq_b);
    p->seq_b = (kvp_seq){0};
}

/* Whoever has the slots now writes nothing, so that what is written late is seen. */
static void expect_late_kv_is_refused(rig *r, pair *p, kvp_seq owner)
{
    watch_place(&p->b);
    prefill(p, (kvp_range){9, SENT_TOKENS}); /* the sender knows nothing yet */
    progress_both(p, 10);
    assert_nothing_else_changed(&p->b, owner, (kvp_range){0, 0});
    EXPECT_EQ(r, info_b(p).state, KVP_TRANSFER_FAILED);
    EXPECT_EQ(r, info_a(p).state, KVP_TRANSFER_FAILED);
    EXPECT_EQ(r, match(&p->b.w, ints(1), SENT_TOKENS).hit_tokens, SENT_CACHED);
}

/* V4: the request is aborted while its KV arrives: by abort, or by closing or cutting the sequence
 * under it. Every block comes back at once, and what arrives late is written nowhere. */
static void aborted_load_gives_everything_back(rig *r)
{
    for (uint32_t closes = 0; closes < 2; closes++) {
        scoped_pair p = begin_transfer();
        EXPECT_EQ(r, info_b(&p).state, KVP_TRANSFER_MOVING);
        if (!closes)
            EXPECT_OK(r, kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
        close_b(&p);
        const kvp_stats stats = stats_of(&p.b.w);
        EXPECT_EQ(r, stats.held_blocks, 0);
        EXPECT_EQ(r, stats.free_blocks + stats.cached_blocks, stats.usable_blocks);
        const kvp_seq next = open_seq(&p.b.w, ints(500), SENT_TOKENS, NULL); /* takes them */
        expect_late_kv_is_refused(r, &p, next);
        close_seq(&p.b.w, next);
    }
    scoped_pair p = begin_transfer();
    EXPECT_OK(r, kvp_seq_truncate(p.b.w.cache, p.seq_b, SENT_CACHED, NULL));
    EXPECT_OK(r, kvp_seq_extend(p.b.w.cache, p.seq_b, ints(500), SENT_TOKENS - SENT_CACHED, 0));
    expect_late_kv_is_refused(r, &p, p.seq_b);
}

/* R3: others want blocks while a sequence is sent. Its blocks are held: who wants them is refused.
 * Closed under the transfer, it is not sent on: both sides know, and nobody has half of it. */
static void what_is_being_sent_is_not_evicted(rig *r)
{
    for (uint32_t closes = 0; closes < 2; closes++) {
        scoped_pair p = begin_transfer();
        kvp_stats stats = stats_of(&p.a.w);
        kvp_prompt prompt = prompt_of(NULL, 0);
        kvp_seq none = {0};
        prompt.reserve_tokens = ENGINE_S * (uint32_t)(stats.free_blocks + stats.cached_blocks + 1);
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS,
                      kvp_seq_open(p.a.w.cache, p.a.w.ns, &prompt, &none, NULL));
        if (closes) {
            close_seq(&p.a.w, p.seq_a);
            p.seq_a = (kvp_seq){0};
        } else {
            prefill(&p, (kvp_range){9, SENT_TOKENS});
        }
        progress_both(&p, 10);
        EXPECT_EQ(r, info_a(&p).state, closes ? KVP_TRANSFER_FAILED : KVP_TRANSFER_COMPLETE);
        EXPECT_EQ(r, info_b(&p).state, closes ? KVP_TRANSFER_FAILED : KVP_TRANSFER_COMPLETE);
        EXPECT_EQ(r, info_of(&p.b.w, p.seq_b).computed_tokens, SENT_CACHED);
        EXPECT_EQ(r, has_kv(&p.b, p.seq_b, (kvp_range){0, SENT_TOKENS}), !closes);
        EXPECT_EQ(r, match(&p.b.w, ints(1), SENT_TOKENS).hit_tokens, SENT_CACHED);
    }
}

static const scene scenes[] = {
    {"V4", "aborted-load-gives-everything-back", "vllm#46283, #35506",
     aborted_load_gives_everything_back},
    {"V8", "long-prompts-do-not-thrash", "vllm#37307, #44594", long_prompts_do_not_thrash},
    {"V9", "what-can-never-run-is-refused-at-once", "vllm (align mode)",
     what_can_never_run_is_refused_at_once},
    {"V15", "requests-that-load-hold-no-blocks", "vllm#45388, #57104",
     requests_that_load_hold_no_blocks},
    {"V16", "load-that-is-never-answered-ends", "vllm#50719", load_that_is_never_answered_ends},
    {"R3", "what-is-being-sent-is-not-evicted", "TensorRT-LLM#12542",
     what_is_being_sent_is_not_evicted},
    {"R5", "windowed-groups-of-a-small-pool-all-end", "TensorRT-LLM#15401",
     windowed_groups_of_a_small_pool_all_end},
    {"R6", "overshoot-of-the-host-is-no-end", "TensorRT-LLM#13318",
     overshoot_of_the_host_is_no_end},
};

const scene_list engine_scenes = SCENES(scenes);

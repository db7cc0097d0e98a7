/* The scheduler with a host tier when far more is asked for than there is room for, for a long
 * time: nothing that comes in goes out in the same step, every request finishes, KV is always its
 * own. And what admission costs: one walk of the prompt. */
#include "sched_world.h"

#include <stdlib.h>
#include <string.h>

#include "oplog/replay.h"

struct load {
    sched_world s;
    uint64_t random;
    uint64_t n_submitted;
};

static void submit_random(struct load *load)
{
    load->n_submitted += submit_by_chance(&load->s, &load->random, 4, 4);
}

static int is_in(const kvp_request *requests, uint32_t n, kvp_request request)
{
    for (uint32_t i = 0; i < n; i++)
        if (requests[i].bits == request.bits)
            return 1;
    return 0;
}

static void run_load_step(struct load *load)
{
    const kvp_step step = make_step(&load->s);
    for (uint32_t i = 0; i < step.n_swapped_out; i++) {
        assert_false(is_in(step.swapped_in, step.n_swapped_in, step.swapped_out[i]));
        assert_false(is_in(step.admitted, step.n_admitted, step.swapped_out[i]));
    }
    for (uint32_t i = 0; i < step.n_preempted; i++) {
        assert_false(is_in(step.swapped_in, step.n_swapped_in, step.preempted[i]));
        assert_false(is_in(step.admitted, step.n_admitted, step.preempted[i]));
    }
    if (step.n_seqs > 0) {
        int32_t tokens[16];
        for (uint32_t i = 0; i < step.n_sampled; i++)
            tokens[i] = (int32_t)draw(&load->random, 5);
        run_work(&load->s, &step);
        assert_ok(kvp_sched_finish(load->s.sched, tokens, NULL, NULL));
    }
}

static void overload(uint32_t steps, uint32_t preempt, uint32_t host_usable)
{
    kvp_config cache_config = config_of(4, 4, 36);
    cache_config.host_blocks = host_usable + 1;
    cache_config.watermark = 0.08;
    cache_config.max_seqs = 28;
    cache_config.steps = steps;
    cache_config.keep_evicted = preempt != KVP_PREEMPT_SWAP;
    kvp_sched_config config = sched_config_of(16, 48);
    config.chunk_tokens = 16;
    config.max_passed_over = 3;
    config.preempt = preempt;
    config.swap_ahead = preempt == KVP_PREEMPT_CHEAPER;
    config.swap_cost = 30;
    config.swap_block_cost = 4;
    config.recompute_token_cost = 2;
    struct load load = {.s = make_sched_world(&cache_config, &config), .random = 5};
    load.s.reads_kv = 1;
    uint32_t n_steps = 0;
    for (; n_steps < 3000; n_steps++) {
        while (sched_stats_of(&load.s).waiting_requests < 20)
            submit_random(&load);
        run_load_step(&load);
    }
    while (sched_stats_of(&load.s).ended < load.n_submitted) {
        assert_true(n_steps++ < 8000);
        run_load_step(&load);
    }
    const kvp_sched_stats stats = sched_stats_of(&load.s);
    assert_true(stats.submitted > 400);
    assert_true(stats.swapped_out > 100);
    assert_true(preempt == KVP_PREEMPT_SWAP || stats.recomputed > 15);
    assert_true(preempt == KVP_PREEMPT_SWAP || stats.swapped_ahead > 30);
    assert_int_equal(stats.swapped_in, stats.swapped_out);
    end_sched_world(&load.s);
}

/* Far more is asked for than there is room for, all the time; everything finishes, in bounded
 * time. */
TEST(test_overload_finishes)
{
    overload(KVP_STEPS_ORDERED, KVP_PREEMPT_SWAP, 64);
    overload(KVP_STEPS_ORDERED, KVP_PREEMPT_CHEAPER, 64);
    overload(KVP_STEPS_OVERLAPPED, KVP_PREEMPT_SWAP, 64);
    overload(KVP_STEPS_OVERLAPPED, KVP_PREEMPT_CHEAPER, 12);
}

/* A prompt is walked when it is opened, and not before: neither to be submitted nor, where nothing
 * is promised to others, to be admitted. */
TEST(test_one_walk_an_admission)
{
    const kvp_config cache_config = config_of(4, 4, 16);
    const kvp_sched_config config = sched_config_of(8, 64);
    struct kvpi_oplog_memory log = {0};
    const kvp_sink sink = {.write = kvpi_oplog_memory_write, .context = &log};
    uint32_t n_opens = 0, n_asked = 0;
    sched_world s = {0};
    kvp_oplog *reader;
    kvp_record record;
    kvp_step step;
    int end = 0;
    assert_ok(kvp_cache_create(&cache_config, NULL, 0, &s.w.cache));
    assert_ok(kvp_cache_record_start(s.w.cache, &sink));
    assert_ok(kvp_ns_open(s.w.cache, "", 0, &s.w.ns));
    assert_ok(kvp_sched_create(&config, s.w.cache, NULL, 0, &s.sched));
    (void)submit(&s, 1, 6, 2);
    (void)submit(&s, 1, 7, 2);
    assert_ok(kvp_sched_step(s.sched, &step));
    assert_int_equal(step.n_admitted, 2);
    assert_ok(kvp_cache_record_stop(s.w.cache));
    assert_ok(kvp_oplog_open(log.bytes, log.n_bytes, &reader));
    while (kvp_oplog_next(reader, &record, &end) == KVP_OK && !end) {
        n_opens += record.call.op == KVP_CALL_OPEN;
        n_asked += record.call.op == KVP_CALL_CAN_OPEN || record.call.op == KVP_CALL_MATCH;
    }
    assert_int_equal(n_opens, 2);
    assert_int_equal(n_asked, 0);
    kvp_oplog_close(reader);
    kvp_sched_destroy(s.sched);
    kvp_cache_destroy(s.w.cache);
    free(log.bytes);
}

/* Two layer groups, with blocks of 4 tokens and of 32. */
static sched_world two_sizes_world(uint32_t usable)
{
    kvp_config cache_config = config_of(4, 4, usable);
    cache_config.n_groups = 2;
    cache_config.groups[1].block_tokens = 32;
    const kvp_sched_config config = sched_config_of(8, 64);
    return make_sched_world(&cache_config, &config);
}

/* Prompts of 28 equal tokens and others. */
static kvp_request submit_behind(sched_world *s, int32_t others, uint32_t n_others,
                                 uint32_t new_tokens)
{
    int32_t tokens[36];
    memcpy(tokens, ints(1), 28 * sizeof(*tokens));
    memcpy(tokens + 28, ints(others), n_others * sizeof(*tokens));
    const kvp_prompt prompt = prompt_of(tokens, 28 + n_others);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w.ns,
                                       .n_samples = 1,
                                       .max_new_tokens = new_tokens};
    return submit_with(s, &submission);
}

/* A hit of 28 tokens ends inside a block of 32, whose copy needs room. Without it nothing is hit,
 * for the other group's blocks alone are none: so two blocks that become available are worth eight
 * to a request that waits. */
TEST(test_room_for_a_source_brings_the_hit_back)
{
    sched_world s = two_sizes_world(14);
    (void)submit(&s, 1, 28, 1); /* leaves 7 blocks and 1 */
    (void)run_step(&s);
    (void)submit_behind(&s, 500, 4, 8); /* shares the 7, and has a copy of the 1 */
    const kvp_request small = submit(&s, 700, 3, 40);
    (void)run_step(&s);
    const kvp_request last = submit_behind(&s, 600, 4, 4);
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    assert_int_equal(step.n_seqs, 2);
    assert_ok(kvp_sched_abort(s.sched, small));
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, last.bits);
    end_sched_world(&s);
}

/* The same with a unit that is sealed: then the hit ends with a block, and needs no source. */
TEST(test_a_sealed_unit_brings_the_hit_back)
{
    sched_world s = two_sizes_world(13);
    (void)submit(&s, 1, 28, 1);
    (void)run_step(&s);
    (void)submit_behind(&s, 500, 4, 8);
    const kvp_request last = submit_behind(&s, 500, 8, 4);
    kvp_step step = run_step(&s);
    assert_int_equal(step.waited[KVP_WAIT_BLOCKS], 1);
    step = run_step(&s);
    assert_int_equal(step.n_admitted, 1);
    assert_int_equal(step.admitted[0].bits, last.bits);
    end_sched_world(&s);
}

TEST_MAIN(NULL, NULL)

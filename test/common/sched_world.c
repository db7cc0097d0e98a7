#include "sched_world.h"

#include "start_sched.h"

#include <string.h>

kvp_sched_config sched_config_of(uint32_t max_running, uint32_t step_tokens)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.max_requests = 64;
    config.max_samples = 128;
    config.max_running = max_running;
    config.step_tokens = step_tokens;
    config.chunk_tokens = 0;
    config.arena_tokens = 64 * 1024;
    return config;
}

sched_world make_sched_world(const kvp_config *cache_config, const kvp_sched_config *config)
{
    sched_world s = {.w = make_world(cache_config)};
    s.is_overlapped = cache_config->steps == KVP_STEPS_OVERLAPPED;
    assert_ok(kvp_sched_create(config, s.w.cache, NULL, 0, &s.sched));
    start_sched(s.sched);
    assert_true(sched_memory_create(&s.memory, s.w.cache));
    assert_true(sched_states_create(&s.states, s.w.cache, 0));
    return s;
}

sched_world make_reading_world(const kvp_config *cache_config, const kvp_sched_config *config)
{
    sched_world s = make_sched_world(cache_config, config);
    s.reads_kv = 1;
    return s;
}

sched_world small_sched_world(uint32_t usable)
{
    const kvp_config cache_config = config_of(4, 4, usable);
    const kvp_sched_config config = sched_config_of(8, 64);
    return make_sched_world(&cache_config, &config);
}

sched_world swap_world(uint32_t usable, uint32_t host_usable)
{
    kvp_config cache_config = config_of(4, 4, usable);
    kvp_sched_config config = sched_config_of(8, 64);
    cache_config.host_blocks = host_usable + 1;
    cache_config.max_seqs = 16;
    config.preempt = KVP_PREEMPT_SWAP;
    return make_reading_world(&cache_config, &config);
}

void check_sched(const sched_world *s)
{
    kvp_violation violation;
    if (kvp_sched_check(s->sched, &violation) != KVP_OK ||
        kvp_cache_check(s->w.cache, 3, &violation) != KVP_OK) {
        fail_msg("%s %llu: %s", violation.invariant, (unsigned long long)violation.object,
                 violation.detail);
    }
}

void end_sched_world(sched_world *s)
{
    check_sched(s);
    kvp_sched_destroy(s->sched);
    assert_int_equal(stats_of(&s->w).open_seqs, 0);
    assert_int_equal(stats_of(&s->w).held_blocks, 0);
    sched_memory_destroy(&s->memory);
    sched_states_destroy(&s->states);
    end_world(&s->w);
}

kvp_request submit_with(sched_world *s, const kvp_submission *submission)
{
    kvp_request request;
    assert_ok(kvp_sched_submit(s->sched, submission, &request, NULL));
    return request;
}

uint32_t submit_by_chance(sched_world *s, uint64_t *random, uint32_t rare, uint32_t n_most)
{
    const uint32_t n_samples = draw(random, rare) == 0 ? 1 + draw(random, n_most) : 1;
    const kvp_prompt prompt =
        prompt_of(ints((int32_t)(100 * draw(random, 12))), 1 + draw(random, 50));
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w.ns,
                                       .priority = (int32_t)draw(random, 3),
                                       .n_samples = n_samples,
                                       .max_new_tokens = 1 + draw(random, 40)};
    kvp_request request;
    return kvp_sched_submit(s->sched, &submission, &request, NULL) == KVP_OK;
}

kvp_status try_submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                      kvp_request *out_request, kvp_sched_limit *out_limit)
{
    const kvp_prompt prompt = prompt_of(ints(first), prompt_tokens);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w.ns,
                                       .max_new_tokens = new_tokens};
    return kvp_sched_submit(s->sched, &submission, out_request, out_limit);
}

kvp_request submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens)
{
    kvp_request request;
    assert_ok(try_submit(s, first, prompt_tokens, new_tokens, &request, NULL));
    return request;
}

kvp_request submit_rank(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                        int32_t priority, uint32_t n_samples)
{
    const kvp_prompt prompt = prompt_of(ints(first), prompt_tokens);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w.ns,
                                       .priority = priority,
                                       .n_samples = n_samples,
                                       .max_new_tokens = new_tokens};
    return submit_with(s, &submission);
}

static void take(sched_world *s)
{
    const uint32_t most = sizeof s->copies / sizeof s->copies[0];
    assert_ok(s->is_overlapped
                  ? kvp_step_begin(s->w.cache, s->copies, most, &s->n_copies, &s->number)
                  : kvp_plan_take(s->w.cache, s->copies, most, &s->n_copies));
}

kvp_step make_step(sched_world *s)
{
    kvp_step step;
    assert_ok(kvp_sched_step(s->sched, &step));
    check_sched(s);
    take(s);
    if (step.n_seqs == 0)
        run_work(s, &step);
    return step;
}

static void compute(sched_world *s, const kvp_step_seq *item, int is_reading)
{
    int32_t text[4096];
    const kvp_range range = {item->begin, item->begin + item->n_tokens};
    if (kvp_request_tokens(s->sched, item->request, item->sample, (kvp_range){0, range.end},
                           text) != KVP_OK)
        return; /* aborted */
    assert_true(is_reading ? sched_memory_read(&s->memory, s->w.cache, item->seq, text, range)
                           : sched_memory_write(&s->memory, s->w.cache, item->seq, text, range));
}

/* Recurrent state: all read before any writes. */
static void pass_states(sched_world *s, const kvp_step_seq *item, int is_writing)
{
    int32_t text[4096];
    const kvp_range range = {item->begin, item->begin + item->n_tokens};
    if (kvp_request_tokens(s->sched, item->request, item->sample, (kvp_range){0, range.end},
                           text) == KVP_OK)
        assert_true(sched_states_pass(&s->states, s->w.cache, item->seq, text, range, is_writing));
}

void run_work(sched_world *s, const kvp_step *step)
{
    assert_true(sched_memory_copy(&s->memory, s->copies, s->n_copies));
    assert_true(sched_states_copy(&s->states, s->copies, s->n_copies));
    for (uint32_t i = 0; i < (s->reads_kv ? 2 : 1) * step->n_seqs; i++)
        compute(s, &step->seqs[i % step->n_seqs], i >= step->n_seqs);
    for (uint32_t i = 0; i < 2 * step->n_seqs; i++)
        pass_states(s, &step->seqs[i % step->n_seqs], i >= step->n_seqs);
    if (s->is_overlapped)
        assert_ok(kvp_step_done(s->w.cache, s->number, NULL));
}

/* The i-th token of a step is 1000 + i. */
kvp_step_end finish_step(sched_world *s, const kvp_step *step)
{
    kvp_step_end end = {0, NULL};
    if (step->n_seqs > 0) {
        run_work(s, step);
        assert_ok(kvp_sched_finish(s->sched, ints(1000), NULL, &end));
    }
    check_sched(s);
    return end;
}

kvp_step run_step(sched_world *s)
{
    const kvp_step step = make_step(s);
    (void)finish_step(s, &step);
    return step;
}

void run_until_over(sched_world *s, uint64_t n_requests)
{
    for (uint32_t n = 0; sched_stats_of(s).ended < n_requests; n++) {
        assert_true(n < 10000);
        (void)run_step(s);
    }
}

void run_to(sched_world *s, kvp_request request, uint32_t n_tokens)
{
    while (sample_of(s, request, 0).n_tokens < n_tokens)
        (void)run_step(s);
}

kvp_request_info request_of(const sched_world *s, kvp_request request)
{
    kvp_request_info info;
    assert_ok(kvp_request_info_get(s->sched, request, &info));
    return info;
}

kvp_sample_info sample_of(const sched_world *s, kvp_request request, uint32_t sample)
{
    kvp_sample_info info;
    assert_ok(kvp_request_sample(s->sched, request, sample, &info));
    return info;
}

kvp_sched_stats sched_stats_of(const sched_world *s)
{
    kvp_sched_stats stats;
    assert_ok(kvp_sched_stats_get(s->sched, &stats));
    return stats;
}

const kvp_step_seq *item_of(const kvp_step *step, kvp_request request, uint32_t sample)
{
    for (uint32_t i = 0; i < step->n_seqs; i++)
        if (step->seqs[i].request.bits == request.bits && step->seqs[i].sample == sample)
            return &step->seqs[i];
    return NULL;
}

void start_both(sched_world *s, kvp_request *a, kvp_request *b)
{
    *a = submit(s, 1, 8, 8);
    *b = submit(s, 100, 8, 8);
    (void)run_step(s);
}

uint64_t begin_own(sched_world *s)
{
    kvp_copy copies[8];
    uint32_t n;
    uint64_t step;
    assert_ok(kvp_step_begin(s->w.cache, copies, 8, &n, &step));
    assert_int_equal(n, 0);
    return step;
}

#include "sched_world.h"

#include <string.h>

kvp_sched_config sched_config_of(uint32_t max_running, uint32_t step_tokens)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.max_requests = 64;
    config.max_samples = 128;
    config.max_running = max_running;
    config.step_tokens = step_tokens;
    config.arena_tokens = 64 * 1024;
    return config;
}

sched_world make_sched_world(const kvp_config *cache_config, const kvp_sched_config *config)
{
    sched_world s = {.w = make_world(cache_config)};
    assert_ok(kvp_sched_create(config, s.w.cache, NULL, 0, &s.sched));
    return s;
}

sched_world small_sched_world(uint32_t usable)
{
    const kvp_config cache_config = config_of(4, 4, usable);
    const kvp_sched_config config = sched_config_of(8, 64);
    return make_sched_world(&cache_config, &config);
}

void check_sched(const sched_world *s)
{
    kvp_violation violation;
    if (kvp_sched_check(s->sched, &violation) != KVP_OK ||
        kvp_check(s->w.cache, 3, &violation) != KVP_OK) {
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
    end_world(&s->w);
}

kvp_request submit_with(sched_world *s, const kvp_submission *submission)
{
    kvp_request request;
    assert_ok(kvp_sched_submit(s->sched, submission, &request, NULL));
    return request;
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

kvp_step make_step(sched_world *s)
{
    kvp_step step;
    kvp_copy copies[64];
    (void)take_plan(&s->w, copies, 64);
    assert_ok(kvp_sched_step(s->sched, &step));
    check_sched(s);
    return step;
}

/* The i-th token of a step is 1000 + i. */
kvp_step_end finish_step(sched_world *s, const kvp_step *step)
{
    kvp_step_end end = {0, NULL};
    if (step->n_seqs > 0) {
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
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        if (step->seqs[i].request.bits == request.bits && step->seqs[i].sample == sample) {
            return &step->seqs[i];
        }
    }
    return NULL;
}

/* What waiting for a prefix costs a step (kvp_sched_config.wait_for_prefix): a prompt of 4,000
 * tokens is computed 16 tokens a step, and 1,024 requests with the same prompt wait for it. They
 * find out in the first step, and look whether it goes on in each later one. */
#include "world.h"

#include <kvpager/sched.h>
#include <stdlib.h>

enum { FOLLOWERS = 1024, PROMPT = 4000, CHUNK = 16, LATER_STEPS = 64 };

typedef struct follow_state {
    world *w;
    kvp_sched *sched;
} follow_state;

static void *set_up(const bench_options *options)
{
    follow_state *s = allocate(sizeof *s);
    s->w = world_create(options, FOLLOWERS + 1, PROMPT + CHUNK, NULL);
    return s;
}

static void tear_down(void *state)
{
    follow_state *s = state;
    world_destroy(s->w);
    free(s);
}

static void begin(follow_state *s)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.max_requests = FOLLOWERS + 1;
    config.chunk_tokens = CHUNK;
    config.wait_for_prefix = 1;
    REQUIRE_OK(kvp_cache_reset(s->w->cache));
    REQUIRE_OK(kvp_sched_create(&config, s->w->cache, NULL, 0, &s->sched));
    world_fill_tokens(1, s->w->tokens, PROMPT);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->w->tokens, .n_tokens = PROMPT};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->w->ns,
                                       .max_new_tokens = 1,
                                       .flags = KVP_SUBMIT_BORROW};
    for (uint32_t i = 0; i <= FOLLOWERS; i++) {
        kvp_request request;
        REQUIRE_OK(kvp_sched_submit(s->sched, &submission, &request, NULL));
    }
}

static void step(follow_state *s)
{
    kvp_step made;
    REQUIRE_OK(kvp_sched_step(s->sched, &made));
    REQUIRE(made.n_seqs == 1 && made.waited[KVP_WAIT_PREFIX] == FOLLOWERS);
    REQUIRE_OK(kvp_sched_finish(s->sched, NULL, NULL, NULL));
}

static double first_step(void *state)
{
    follow_state *s = state;
    begin(s);
    const uint64_t start = now_ns();
    step(s);
    const uint64_t total = now_ns() - start;
    kvp_sched_destroy(s->sched);
    return (double)total / FOLLOWERS;
}

static double later_step(void *state)
{
    follow_state *s = state;
    begin(s);
    step(s);
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < LATER_STEPS; i++)
        step(s);
    const uint64_t total = now_ns() - start;
    kvp_sched_destroy(s->sched);
    return (double)total / (LATER_STEPS * FOLLOWERS);
}

static const measurement measurements[] = {
    {"follow_begin_1024", "ns", 0, 21, first_step, NULL,
     "a step in which 1,024 requests begin to wait for a prefix, per request: 4,000 tokens each"},
    {"follow_1024", "ns", 100, 21, later_step, NULL,
     "a later step, in which they still wait, per request"},
};

const group follow_group = {measurements, 2, set_up, tear_down};

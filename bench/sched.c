/* A scheduler's step: 1,024 requests that all decode, making the step and finishing it. The cache's
 * calls, room for one token each and the commit of it, are part of it; extend_commit_1024 is what
 * they cost alone. Lengths are staggered as there. */
#include "world.h"

#include <kvpager/sched.h>
#include <stdlib.h>

enum {
    REQUESTS = 1024,
    STEPS = 16,        /* of one sample: every sequence crosses one block boundary */
    TAIL_STEPS = 2048, /* of one sample of the tail */
    START_TOKENS = 512,
    MAX_TOKENS = 4096,
    NEW_TOKENS = MAX_TOKENS - START_TOKENS - BLOCK_TOKENS
};

typedef struct sched_state {
    world *w;
    kvp_sched *sched;
    bool evicting;
    bool reclaims;
    uint32_t n_groups; /* of layers */
    uint32_t grown;    /* tokens since the start, of every request */
    uint64_t random;
    int32_t tokens[STEPS][REQUESTS];
} sched_state;

/* Gives ns; the reclaim is for a pass to hide. */
static uint64_t step(sched_state *s, const int32_t *tokens)
{
    kvp_step made;
    const uint64_t start = now_ns();
    REQUIRE_OK(kvp_sched_step(s->sched, &made));
    const uint64_t middle = now_ns();
    if (s->reclaims)
        REQUIRE_OK(kvp_sched_reclaim(s->sched, NULL));
    const uint64_t next = now_ns();
    REQUIRE_OK(kvp_sched_finish(s->sched, tokens, NULL, NULL));
    return now_ns() - next + middle - start;
}

static void start_all(sched_state *s)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        kvp_prompt prompt = {.struct_size = sizeof prompt,
                             .tokens = s->w->tokens,
                             .n_tokens = START_TOKENS + i % BLOCK_TOKENS};
        const kvp_submission submission = {.struct_size = sizeof submission,
                                           .prompt = &prompt,
                                           .ns = s->w->ns,
                                           .max_new_tokens = NEW_TOKENS};
        kvp_request request;
        world_fill_tokens(s->w->next_number++, s->w->tokens, prompt.n_tokens);
        REQUIRE_OK(kvp_sched_submit(s->sched, &submission, &request, NULL));
    }
    kvp_step made;
    do {
        REQUIRE_OK(kvp_sched_step(s->sched, &made));
        REQUIRE_OK(kvp_sched_finish(s->sched, s->tokens[0], NULL, NULL));
    } while (made.n_decoding < REQUESTS);
    if (s->reclaims) /* for the next step: as between two */
        REQUIRE_OK(kvp_cache_reclaim(s->w->cache, REQUESTS / BLOCK_TOKENS, NULL));
    s->grown = 0;
}

static void create_sched(sched_state *s)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.arena_tokens = (uint64_t)REQUESTS * 2 * MAX_TOKENS;
    config.step_tokens = REQUESTS * 1024;
    config.free_target = s->reclaims ? REQUESTS : 0;
    REQUIRE_OK(kvp_sched_create(&config, s->w->cache, NULL, 0, &s->sched));
    start_all(s);
}

static sched_state *create(world *w, uint32_t n_groups, bool evicting, bool reclaims)
{
    sched_state *s = allocate(sizeof *s);
    s->w = w;
    s->n_groups = n_groups;
    s->evicting = evicting;
    s->reclaims = reclaims;
    if (evicting)
        world_shuffle(s->w);
    create_sched(s);
    return s;
}

static void *set_up_free(const bench_options *options)
{
    return create(world_create(options, REQUESTS, MAX_TOKENS, NULL), 1, false, false);
}

static void *set_up_grouped(const bench_options *options)
{
    return create(world_create_grouped(options, REQUESTS, MAX_TOKENS), 3, false, false);
}

static void *set_up_evicted(const bench_options *options)
{
    return create(world_create(options, REQUESTS, MAX_TOKENS, NULL), 1, true, false);
}

static void *set_up_reclaimed(const bench_options *options)
{
    return create(world_create(options, REQUESTS, MAX_TOKENS, NULL), 1, true, true);
}

static void tear_down(void *state)
{
    sched_state *s = state;
    kvp_sched_destroy(s->sched);
    world_destroy(s->w);
    free(s);
}

/* Begins anew when requests are nearly as long as they may be or as the pool has room for, or free
 * blocks run low. */
static void prepare(sched_state *s)
{
    const uint32_t room =
        s->w->n_blocks / s->n_groups / REQUESTS * BLOCK_TOKENS - START_TOKENS - BLOCK_TOKENS;
    bool too_long = s->grown + 2 * STEPS + 2 > (room < NEW_TOKENS ? room : NEW_TOKENS);
    if (too_long || (!s->evicting && world_stats(s->w).free_blocks < REQUESTS * s->n_groups)) {
        kvp_sched_destroy(s->sched);
        if (!s->evicting)
            REQUIRE_OK(kvp_cache_reset(s->w->cache));
        create_sched(s);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t j = 0; j < REQUESTS; j++)
            s->tokens[i][j] = (int32_t)(world_draw(&s->random) % 128256);
    }
}

/* Gives the time of each step, ns. */
static void take_steps(sched_state *s, double ns[STEPS])
{
    prepare(s);
    kvp_stats before = world_stats(s->w);
    for (uint32_t i = 0; i < STEPS; i++)
        ns[i] = (double)step(s, s->tokens[i]);
    kvp_stats after = world_stats(s->w);
    REQUIRE(after.taken_blocks - before.taken_blocks ==
            REQUESTS * STEPS / BLOCK_TOKENS * s->n_groups);
    REQUIRE(after.sealed_units - before.sealed_units ==
            REQUESTS * STEPS / BLOCK_TOKENS * s->n_groups);
    REQUIRE(after.evicted_blocks - before.evicted_blocks ==
            (s->evicting ? REQUESTS * STEPS / BLOCK_TOKENS : 0));
    s->grown += STEPS;
}

static double sched_step(void *state)
{
    double ns[STEPS];
    double total = 0;
    take_steps(state, ns);
    for (uint32_t i = 0; i < STEPS; i++)
        total += ns[i];
    return total / (STEPS * REQUESTS);
}

/* The time that 99.9 % of the steps stay within, by their median. */
static double sched_tail(void *state)
{
    static double ns[TAIL_STEPS];
    for (uint32_t i = 0; i < TAIL_STEPS; i += STEPS)
        take_steps(state, ns + i);
    sort_samples(ns, TAIL_STEPS);
    return quantile(ns, TAIL_STEPS, 0.999) / quantile(ns, TAIL_STEPS, 0.5);
}

static const measurement free_measurements[] = {
    {"sched_step_1024_free", "ns", 40, 101, sched_step, NULL,
     "a step with its finish, per running sequence, extend and commit included"},
};

static const measurement grouped_measurements[] = {
    {"sched_step_1024_groups", "ns", 64, 101, sched_step, NULL,
     "the same with three layer groups, two of which are windows; aim: 12 ns a group more"},
};

static const measurement evicted_measurements[] = {
    {"sched_step_1024_evicted", "ns", 40, 101, sched_step, NULL,
     "the same, every block taken by eviction"},
    {"sched_step_1024_evicted_tail", "x", 4, 15, sched_tail, NULL,
     "99.9 % of these steps, by their median"},
};

static const measurement reclaimed_measurements[] = {
    {"sched_step_1024_reclaimed", "ns", 40, 101, sched_step, NULL,
     "the same, evicted between the step and its finish, which is not timed"},
};

const group sched_free_group = {free_measurements, 1, set_up_free, tear_down};
const group sched_grouped_group = {grouped_measurements, 1, set_up_grouped, tear_down};
const group sched_evicted_group = {evicted_measurements, 2, set_up_evicted, tear_down};
const group sched_reclaimed_group = {reclaimed_measurements, 1, set_up_reclaimed, tear_down};

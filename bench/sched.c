/* A scheduler's step: 1,024 requests that all decode, making the step and finishing it. The cache's
 * calls, room for one token each and the commit of it, are part of it; extend_commit_1024 is what
 * they cost alone. Lengths are staggered as there. */
#include "sched.h"

#include <kvpager/sched.h>
#include <stdlib.h>

#include "world.h"

enum {
    REQUESTS = 1024,
    STEPS = 16,           /* every sequence crosses one block boundary */
    SAMPLE_STEPS = 16384, /* of a sample, times requests: as many STEPS as it takes */
    TAIL_STEPS = 2048,    /* of one sample of the tail */
    START_TOKENS = 512,
    MAX_TOKENS = 4096,
    NEW_TOKENS = MAX_TOKENS - START_TOKENS - BLOCK_TOKENS,
    MOST_GROWTH = NEW_TOKENS - 2
};

typedef struct sched_state {
    sched_scene scene;
    bool quick;
    world *w;
    kvp_sched *sched;
    uint32_t grown; /* tokens since the start, of every request */
    uint64_t random;
    int32_t *tokens; /* [STEPS][n_requests] */
} sched_state;

static void make_step(sched_state *s)
{
    kvp_step made;
    REQUIRE_OK(kvp_sched_step(s->sched, &made));
    world_take_plan(s->w);
}

static void finish_step(sched_state *s, uint32_t step)
{
    const int32_t *tokens = s->tokens + (size_t)step % STEPS * s->scene.n_requests;
    REQUIRE_OK(kvp_sched_finish(s->sched, tokens, NULL, NULL));
}

/* Gives ns; the reclaim is for a pass to hide. */
static uint64_t time_step(sched_state *s, uint32_t step)
{
    const uint64_t start = now_ns();
    make_step(s);
    const uint64_t middle = now_ns();
    if (s->scene.reclaims)
        REQUIRE_OK(kvp_sched_reclaim(s->sched, NULL));
    const uint64_t next = now_ns();
    finish_step(s, step);
    return now_ns() - next + middle - start;
}

static void start_all(sched_state *s)
{
    for (uint32_t i = 0; i < s->scene.n_requests; i++) {
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
        world_take_plan(s->w);
        REQUIRE_OK(kvp_sched_finish(s->sched, s->tokens, NULL, NULL));
    } while (made.n_decoding < s->scene.n_requests);
    if (s->scene.reclaims) /* for the next step: as between two */
        REQUIRE_OK(kvp_cache_reclaim(s->w->cache, s->scene.n_requests / BLOCK_TOKENS, NULL));
    s->grown = 0;
}

static void create_sched(sched_state *s)
{
    const uint32_t n = s->scene.n_requests;
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.max_requests = n;
    config.max_tries = n < config.max_tries ? n : config.max_tries;
    config.arena_tokens = (uint64_t)n * 2 * MAX_TOKENS;
    config.step_tokens = n * 1024;
    config.free_target = s->scene.reclaims ? n : 0;
    REQUIRE_OK(kvp_sched_create(&config, s->w->cache, NULL, 0, &s->sched));
    start_all(s);
}

static kvp_config config_for(const bench_options *options, sched_scene scene)
{
    kvp_config config = world_config(options, scene.n_requests, MAX_TOKENS);
    if (scene.n_groups == 3) {
        config.n_groups = 3;
        config.groups[1].recent_tokens = 128;
        config.groups[2].recent_tokens = 1024;
        config.n_blocks = 3 * (config.n_blocks - 1) + 1;
    }
    if (scene.host)
        config.host_blocks = config.n_blocks / 2;
    if (scene.states)
        config.state_slots = 4 * scene.n_requests + 1;
    return config;
}

void *sched_scene_create(const bench_options *options, sched_scene scene)
{
    const kvp_config config = config_for(options, scene);
    sched_state *s = allocate(sizeof *s);
    s->scene = scene;
    s->quick = options->quick;
    s->w = world_create_as(&config, NULL);
    s->tokens = allocate(STEPS * scene.n_requests * sizeof *s->tokens);
    if (scene.evicting)
        world_shuffle(s->w);
    create_sched(s);
    return s;
}

void sched_scene_destroy(void *state)
{
    sched_state *s = state;
    kvp_sched_destroy(s->sched);
    world_destroy(s->w);
    free(s->tokens);
    free(s);
}

/* Begins anew when requests are nearly as long as they may be or as the pool has room for, or free
 * blocks run low. */
static void prepare(sched_state *s, uint32_t n_steps)
{
    const uint32_t n = s->scene.n_requests;
    const uint32_t room =
        s->w->n_blocks / s->scene.n_groups / n * BLOCK_TOKENS - START_TOKENS - BLOCK_TOKENS;
    const bool too_long = s->grown + STEPS + n_steps > (room < MOST_GROWTH ? room : MOST_GROWTH);
    const uint64_t need = (uint64_t)n * n_steps / BLOCK_TOKENS * s->scene.n_groups;
    if (too_long || (!s->scene.evicting && world_stats(s->w).free_blocks < need)) {
        kvp_sched_destroy(s->sched);
        if (!s->scene.evicting)
            REQUIRE_OK(kvp_cache_reset(s->w->cache));
        create_sched(s);
    }
    for (uint32_t i = 0; i < STEPS * n; i++)
        s->tokens[i] = (int32_t)(world_draw(&s->random) % 128256);
}

static void verify(sched_state *s, const kvp_stats *before, uint32_t n_steps)
{
    const uint64_t n = (uint64_t)s->scene.n_requests * n_steps / BLOCK_TOKENS * s->scene.n_groups;
    const uint64_t n_evicted = s->scene.evicting ? n : 0;
    const kvp_stats after = world_stats(s->w);
    REQUIRE(after.taken_blocks - before->taken_blocks == n);
    REQUIRE(after.sealed_units - before->sealed_units == n);
    REQUIRE(after.evicted_blocks - before->evicted_blocks == n_evicted);
    REQUIRE(after.host_evicted_blocks - before->host_evicted_blocks ==
            (s->scene.host ? n_evicted : 0));
    s->grown += n_steps;
}

/* Gives the time of each step, ns. */
static void take_steps(sched_state *s, double ns[STEPS])
{
    prepare(s, STEPS);
    const kvp_stats before = world_stats(s->w);
    for (uint32_t i = 0; i < STEPS; i++)
        ns[i] = (double)time_step(s, i);
    verify(s, &before, STEPS);
}

static double step_reclaimed(void *state)
{
    double ns[STEPS];
    double total = 0;
    take_steps(state, ns);
    for (uint32_t i = 0; i < STEPS; i++)
        total += ns[i];
    return total / (STEPS * REQUESTS);
}

/* Requests are few in some scenes: many steps between two readings of the clock. */
double sched_scene_step(void *state)
{
    sched_state *s = state;
    const uint32_t n = s->scene.n_requests;
    const uint32_t fit = SAMPLE_STEPS / n / STEPS * STEPS;
    const uint32_t n_steps = fit < STEPS ? STEPS : fit > 1024 ? 1024 : fit;
    prepare(s, n_steps);
    const kvp_stats before = world_stats(s->w);
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < n_steps; i++) {
        make_step(s);
        finish_step(s, i);
    }
    const uint64_t total = now_ns() - start;
    verify(s, &before, n_steps);
    return (double)total / n_steps / n;
}

/* The time that 99.9 % of the steps stay within, by their median. */
static double sched_tail(void *state)
{
    static double ns[TAIL_STEPS];
    const sched_state *s = state;
    const uint32_t n = s->quick ? TAIL_STEPS / 8 : TAIL_STEPS;
    for (uint32_t i = 0; i < n; i += STEPS)
        take_steps(state, ns + i);
    sort_samples(ns, n);
    return quantile(ns, n, 0.999) / quantile(ns, n, 0.5);
}

static void *set_up_free(const bench_options *options)
{
    return sched_scene_create(options, (sched_scene){.n_requests = REQUESTS, .n_groups = 1});
}

static void *set_up_evicted(const bench_options *options)
{
    return sched_scene_create(
        options, (sched_scene){.n_requests = REQUESTS, .n_groups = 1, .evicting = true});
}

static void *set_up_reclaimed(const bench_options *options)
{
    return sched_scene_create(
        options,
        (sched_scene){.n_requests = REQUESTS, .n_groups = 1, .evicting = true, .reclaims = true});
}

/* A scene beside the plain one, whose samples alternate with its own. */
typedef struct pair {
    void *own;
    void *plain;
} pair;

static void *set_up_pair(const bench_options *options, sched_scene scene)
{
    pair *p = allocate(sizeof *p);
    p->own = sched_scene_create(options, scene);
    p->plain = sched_scene_create(
        options, (sched_scene){.n_requests = REQUESTS, .n_groups = 1, .evicting = scene.evicting});
    return p;
}

static void tear_down_pair(void *state)
{
    pair *p = state;
    sched_scene_destroy(p->own);
    sched_scene_destroy(p->plain);
    free(p);
}

static double step_own(void *state)
{
    pair *p = state;
    return sched_scene_step(p->own);
}

static double step_plain(void *state)
{
    pair *p = state;
    return sched_scene_step(p->plain);
}

static void *set_up_grouped(const bench_options *options)
{
    return set_up_pair(options, (sched_scene){.n_requests = REQUESTS, .n_groups = 3});
}

static void *set_up_grouped_evicted(const bench_options *options)
{
    return set_up_pair(options,
                       (sched_scene){.n_requests = REQUESTS, .n_groups = 3, .evicting = true});
}

static void *set_up_host(const bench_options *options)
{
    return set_up_pair(
        options,
        (sched_scene){.n_requests = REQUESTS, .n_groups = 1, .evicting = true, .host = true});
}

static void *set_up_states(const bench_options *options)
{
    return set_up_pair(options,
                       (sched_scene){.n_requests = REQUESTS, .n_groups = 1, .states = true});
}

static const measurement free_measurements[] = {
    {"sched_step_1024_free", "ns", 40, 101, sched_scene_step, NULL,
     "a step with its finish, per running sequence, extend and commit included"},
};

static const measurement evicted_measurements[] = {
    {"sched_step_1024_evicted", "ns", 40, 101, sched_scene_step, NULL,
     "the same, every block taken by eviction"},
    {"sched_step_1024_evicted_tail", "x", 4, 15, sched_tail, NULL,
     "99.9 % of these steps, by their median"},
};

static const measurement reclaimed_measurements[] = {
    {"sched_step_1024_reclaimed", "ns", 40, 101, step_reclaimed, NULL,
     "the same, evicted between the step and its finish, which is not timed"},
};

static const measurement grouped_measurements[] = {
    {"sched_step_1024_groups", "ns", 64, 101, step_own, step_plain,
     "blocks free, three layer groups, two of them windows; aim: 12 ns a group more than "
     "without; yardstick: without"},
};

static const measurement grouped_evicted_measurements[] = {
    {"sched_step_1024_groups_evicted", "ns", 64, 101, step_own, step_plain,
     "the same, every block taken by eviction"},
};

static const measurement host_measurements[] = {
    {"sched_step_1024_host", "ns", -2.0, 101, step_own, step_plain,
     "evicted blocks are copied to a host tier that is full, too; takes the plan; yardstick: "
     "without"},
};

static const measurement states_measurements[] = {
    {"sched_step_1024_states", "ns", -1.6, 101, step_own, step_plain,
     "blocks free, a slot of recurrent state for each sequence; yardstick: without"},
};

const group sched_free_group = {free_measurements, 1, set_up_free, sched_scene_destroy};
const group sched_grouped_group = {grouped_measurements, 1, set_up_grouped, tear_down_pair};
const group sched_evicted_group = {evicted_measurements, 2, set_up_evicted, sched_scene_destroy};
const group sched_reclaimed_group = {reclaimed_measurements, 1, set_up_reclaimed,
                                     sched_scene_destroy};
const group sched_grouped_evicted_group = {grouped_evicted_measurements, 1, set_up_grouped_evicted,
                                           tear_down_pair};
const group sched_host_group = {host_measurements, 1, set_up_host, tear_down_pair};
const group sched_states_group = {states_measurements, 1, set_up_states, tear_down_pair};

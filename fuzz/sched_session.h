/* sched_session: what fuzz_sched.c keeps of a scheduler and its requests, and how bytes become its
 * configuration. */
#ifndef KVP_FUZZ_SCHED_SESSION_H
#define KVP_FUZZ_SCHED_SESSION_H

#include <kvpager/all.h>
#include <kvpager/sched.h>
#include <kvpager/steps.h>

#include "../test/common/sched_memory.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

enum {
    MAX_CALLS = 400,
    MAX_REQUESTS = 12,
    MAX_SAMPLES = 4,
    MAX_PROMPT = 40,
    MAX_NEW = 24,
    MAX_TEXT = MAX_PROMPT + MAX_NEW,
    MAX_RUNNING = 8,
    MAX_DRAFTS = 4,
    MAX_BUDGET = 64,
    MAX_COPIES = 256,
    MAX_GROUPS = 3,
    DRAIN_STEPS = 40000
};

struct known {
    kvp_request handle;
    int is_here;
    int is_paused;
    int never_loads; /* it was submitted so */
    int is_decided;  /* whether it is held, since it last came to wait */
    int is_held;
    uint64_t deadline; /* of its hold; else of its submission */
    uint64_t recomputes;
    int came_in; /* in the step that was just made: 1 swapped in, 2 admitted */
    uint32_t prompt;
    uint32_t n_samples;
    uint32_t max_new;
    uint32_t passed;
    int32_t priority;
    uint64_t arrival;
    int32_t text[MAX_SAMPLES][MAX_TEXT];
    uint32_t n[MAX_SAMPLES];
    int has_ended[MAX_SAMPLES];
    int32_t borrowed[MAX_PROMPT];
};

struct session {
    const uint8_t *at;
    const uint8_t *end;
    kvp_cache *cache;
    kvp_sched *sched;
    kvp_sched_config config;
    kvp_config cache_config;
    kvp_ns ns;
    struct known known[MAX_REQUESTS];
    uint64_t n_submitted;
    uint64_t n_over;
    uint64_t now; /* the caller's clock */
    int is_out;
    kvp_step step;
    uint32_t counts[MAX_RUNNING]; /* tokens that become known of each sequence that decodes */
    kvp_copy copies[MAX_COPIES];  /* of the step */
    uint32_t n_copies;
    uint64_t step_number; /* overlapped: the cache's */
    kvp_seq own;          /* the caller's */
    uint64_t own_step;
    sched_memory memory;
};

static uint32_t take(struct session *s, uint32_t below)
{
    return s->at < s->end ? *s->at++ % below : 0;
}

static void check(struct session *s)
{
    kvp_violation violation;
    if (kvp_cache_check(s->cache, 3, &violation) != KVP_OK ||
        kvp_sched_check(s->sched, &violation) != KVP_OK) {
        fprintf(stderr, "%s %llu %s\n", violation.invariant, (unsigned long long)violation.object,
                violation.detail);
        abort();
    }
}

/* ------------------------------------------------------------------------------------- begin */

/* Layer groups, each with full attention or a window. */
static void draw_groups(struct session *s)
{
    s->cache_config.n_groups = 1 + take(s, MAX_GROUPS);
    for (uint32_t g = 0; g < s->cache_config.n_groups; g++) {
        kvp_group *window = &s->cache_config.groups[g];
        window->recent_tokens = take(s, 3) == 0 ? 0 : 1 + take(s, MAX_PROMPT);
        window->sink_tokens = window->recent_tokens == 0 || take(s, 2) ? 0 : take(s, 9) - 1;
    }
}

static int begin(struct session *s)
{
    static const uint32_t pools[] = {2, 3, 4, 6, 9, 16, 32, 64};
    const uint32_t shape = take(s, 256);
    kvp_config_init(&s->cache_config);
    s->cache_config.block_tokens = 1u << shape % 4;
    s->cache_config.unit_tokens = take(s, 4) == 0 ? 1 : 0;
    s->cache_config.n_blocks = 1 + pools[take(s, 8)];
    s->cache_config.max_seqs = MAX_RUNNING + 1;
    s->cache_config.max_seq_tokens = MAX_TEXT;
    s->cache_config.watermark = take(s, 3) * 0.125;
    s->cache_config.commit_policy = take(s, 4) == 0 ? KVP_KEEP : KVP_ADOPT;
    s->cache_config.full_hit = take(s, 4) == 0;
    s->cache_config.prefix_cache = take(s, 8) != 0;
    s->cache_config.max_copies = take(s, 4) == 0 ? MAX_RUNNING + take(s, 8) : 0;
    static const uint32_t hosts[] = {0, 0, 2, 3, 6, 17, 40, 80};
    s->cache_config.host_blocks = hosts[take(s, 8)];
    s->cache_config.keep_evicted = take(s, 2);
    s->cache_config.steps = take(s, 2);
    s->cache_config.max_seqs += take(s, 2) * MAX_RUNNING;
    kvp_sched_config_init(&s->config);
    s->config.max_requests = MAX_REQUESTS;
    s->config.max_samples = 2 * MAX_REQUESTS;
    s->config.max_running = 1 + take(s, MAX_RUNNING);
    s->config.step_tokens = s->config.max_running + take(s, MAX_BUDGET - MAX_RUNNING);
    s->config.chunk_tokens = take(s, 3) == 0 ? 1 + take(s, 8) : 0;
    s->config.max_passed_over = take(s, 4);
    s->config.max_tries = 1 + take(s, 4);
    s->config.arena_tokens = take(s, 4) == 0 ? 256 : 4096;
    s->config.preempt = take(s, 3);
    s->config.swap_ahead = take(s, 2);
    s->config.swap_cost = take(s, 3);
    s->config.swap_block_cost = take(s, 8);
    s->config.recompute_cost = take(s, 3);
    s->config.recompute_token_cost = take(s, 3);
    s->config.max_loading = shape / 4 % 4 * (shape / 4 % 4);
    s->config.wait_for_prefix = shape / 16 % 2;
    s->config.free_target = shape / 32 % 2;
    s->config.make_way = s->config.max_tries % 2;
    s->config.draft_tokens = shape / 64 % 2 == 0 ? 0 : 1 + take(s, MAX_DRAFTS);
    s->config.step_tokens += s->config.max_running * s->config.draft_tokens;
    if (shape >= 128)
        draw_groups(s);
    if (kvp_cache_create(&s->cache_config, NULL, 0, &s->cache) != KVP_OK)
        return 0;
    require(kvp_ns_open(s->cache, "a", 1, &s->ns) == KVP_OK);
    require(kvp_sched_create(&s->config, s->cache, NULL, 0, &s->sched) == KVP_OK);
    require(sched_memory_create(&s->memory, s->cache));
    return 1;
}

#endif

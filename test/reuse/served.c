/* Owns an engine's part: where chunks of a prompt end, and what is kept there.
 *
 *   prompt   |---- hit ----|--- chunk ---|--- chunk ---|--|     checkpoints: branch_end, prompt_end
 *   answer   |--|----------------|----------------|-----|       a token at a time
 *               U                U                U
 *
 * How an answer ends is not known before. So with `ends` the sequence is forked at each full unit,
 * and the fork before is closed: it holds the state there. When the answer has ended, the fork's
 * state becomes the checkpoint.
 */
#include "served.h"

#include <stdio.h>
#include <stdlib.h>

#include <kvpager/all.h>
#include <kvpager/states.h>

typedef struct engine {
    kvp_cache *cache;
    kvp_ns ns;
    const served_options *options;
    kvp_seq seq;
    kvp_seq last; /* the fork at the last full unit */
    int has_last;
} engine;

static void must(kvp_status status, const char *what)
{
    if (status != KVP_OK) {
        fprintf(stderr, "%s: %s\n", what, kvp_status_text(status));
        abort();
    }
}

static void drop_plan(const engine *e)
{
    kvp_copy copies[16];
    uint32_t n;
    must(kvp_plan_take(e->cache, copies, 16, &n), "plan");
}

static void step_to(const engine *e, uint32_t n, int keep)
{
    must(kvp_seq_commit(e->cache, e->seq, n), "commit");
    if (keep)
        must(kvp_seq_checkpoint(e->cache, e->seq, NULL), "checkpoint");
}

static uint32_t open_prompt(engine *e, const request *r)
{
    kvp_open_info info;
    kvp_state_info state;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = r->tokens, .n_tokens = r->n_prompt};
    must(kvp_seq_open(e->cache, e->ns, &prompt, &e->seq, &info), "open");
    drop_plan(e);
    must(kvp_seq_state_get(e->cache, e->seq, &state), "state");
    if (state.branch_end != 0)
        step_to(e, state.branch_end, 1);
    if (state.prompt_end != 0)
        step_to(e, state.prompt_end, 1);
    step_to(e, r->n_prompt, 0);
    return info.hit_tokens;
}

/* Another fork takes the place of the last one. Without room for it the last one stays. */
static void fork_here(engine *e, uint32_t at)
{
    kvp_seq fork;
    if (kvp_seq_fork(e->cache, e->seq, at, 0, &fork) != KVP_OK)
        return;
    if (e->has_last)
        must(kvp_seq_close(e->cache, e->last, NULL), "close");
    e->last = fork;
    e->has_last = 1;
}

static void answer(engine *e, const request *r)
{
    for (uint32_t i = 0; i < r->n_answer; i++) {
        const uint32_t n = r->n_prompt + i;
        if (e->options->ends && n % UNIT == 0)
            fork_here(e, n);
        must(kvp_seq_extend(e->cache, e->seq, r->tokens + n, 1, 0), "extend");
        must(kvp_seq_commit(e->cache, e->seq, n + 1), "commit");
        drop_plan(e);
    }
}

static void close_all(engine *e)
{
    if (e->has_last) {
        const kvp_status status = kvp_seq_checkpoint(e->cache, e->last, NULL);
        if (status != KVP_E_STATE) /* for its last unit no node was free */
            must(status, "checkpoint");
        must(kvp_seq_close(e->cache, e->last, NULL), "close");
    }
    e->has_last = 0;
    must(kvp_seq_close(e->cache, e->seq, NULL), "close");
}

served serve_all(const traffic *of, const served_options *options, uint32_t *reused)
{
    engine e = {.options = options};
    kvp_config config;
    kvp_state_stats stats;
    kvp_config_init(&config);
    config.block_tokens = UNIT;
    config.n_blocks = options->blocks + 1;
    config.max_seqs = 3;
    config.max_seq_tokens = of->max_tokens + UNIT;
    config.max_namespaces = 1;
    config.state_slots = options->slots + 1;
    must(kvp_cache_create(&config, NULL, 0, &e.cache), "create");
    must(kvp_ns_open(e.cache, "reuse", 5, &e.ns), "namespace");
    for (uint32_t i = 0; i < of->n_requests; i++) {
        reused[i] = open_prompt(&e, &of->requests[i]);
        answer(&e, &of->requests[i]);
        close_all(&e);
    }
    must(kvp_cache_state_stats_get(e.cache, &stats), "stats");
    kvp_cache_destroy(e.cache);
    return (served){stats.made, stats.skipped, stats.evicted};
}

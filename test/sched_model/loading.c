/* Calls on requests that may be held, compared with the oracle. And loads, as the caller of a store
 * would make them: begun for any request, ended some calls later, whole or not. */
#include "runner.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- loads */

/* With ordered steps the caller says which copies have run: all that were taken. */
void loading_plan_has_run(struct run *run)
{
    kvp_stats stats;
    REQUIRE(kvp_cache_stats_get(run->cache, &stats) == KVP_OK);
    if (run->cache_config.max_loads > 0 && run->cache_config.steps == KVP_STEPS_ORDERED)
        REQUIRE(kvp_plan_done(run->cache, stats.plans) == KVP_OK);
}

static void begin_load(struct run *run, const request *r, struct loading *loading)
{
    const sample *s = &r->samples[0];
    kvp_prompt prompt = {.struct_size = sizeof prompt};
    if (r->prompt < run->cache_config.block_tokens)
        return;
    const uint32_t group = draw(run, run->cache_config.n_groups);
    const uint32_t n_full = r->prompt / oracle_size(&run->o, group);
    if (n_full == 0)
        return;
    memcpy(loading->text, s->text, sizeof loading->text);
    prompt.tokens = loading->text;
    prompt.n_tokens = loading->n_tokens = r->prompt;
    loading->load =
        (kvp_load){.struct_size = sizeof loading->load, .group = group, .blocks = loading->blocks};
    loading->load.entries.begin = draw(run, 3) == 0 ? draw(run, n_full) : 0;
    loading->load.entries.end =
        loading->load.entries.begin + 1 + draw(run, n_full - loading->load.entries.begin);
    if (kvp_load_begin(run->cache, r->ns, &prompt, &loading->load) != KVP_OK)
        loading->load.number = 0;
}

/* The store has read: the KV of the blocks that are whole is there. */
static uint32_t read_blocks(struct run *run, const struct loading *loading, uint8_t *whole)
{
    const uint32_t S = oracle_size(&run->o, loading->load.group);
    const kvp_range entries = loading->load.entries;
    uint64_t sum = 14695981039346656037u;
    uint32_t n = 0;
    for (uint32_t at = 0; at < entries.end * S; at++) {
        const uint32_t entry = at / S;
        sum = sched_memory_sum(sum, loading->text[at]);
        if (entry < entries.begin || loading->blocks[entry - entries.begin] == 0)
            continue;
        const int32_t block = loading->blocks[entry - entries.begin];
        if (at % S == 0)
            whole[n++] = draw(run, 8) > 0;
        sched_memory_block(&run->memory, KVP_HOST, block)[at % S] = whole[n - 1] ? sum : 1;
    }
    return n;
}

static void end_load(struct run *run, struct loading *loading)
{
    uint8_t whole[MAX_TEXT];
    kvp_loaded loaded;
    kvp_stats stats;
    REQUIRE(kvp_cache_stats_get(run->cache, &stats) == KVP_OK);
    if (stats.plans_done < loading->load.after)
        return; /* others still work on its blocks */
    const uint32_t n = read_blocks(run, loading, whole);
    REQUIRE(n == loading->load.n_blocks);
    REQUIRE(kvp_load_done(run->cache, loading->load.number, whole, n, &loaded) == KVP_OK);
    run->o.met[MET_LOADED] += loaded.cached > 0;
    loading->load.number = 0;
}

void loading_cancel_all(struct run *run)
{
    for (uint32_t i = 0; i < N_LOADS; i++) {
        if (run->loads[i].load.number != 0)
            REQUIRE(kvp_load_cancel(run->cache, run->loads[i].load.number) == KVP_OK);
        run->loads[i].load.number = 0;
    }
}

/* Any request; more often one that is held, if there is one. */
static request *pick(struct run *run)
{
    request *r = &run->o.requests[draw(run, MAX_REQUESTS)];
    for (uint32_t i = 0; i < MAX_REQUESTS && draw(run, 8) > 0 && !(r->is_here && r->is_held); i++)
        r = &run->o.requests[(r - run->o.requests + 1) % MAX_REQUESTS];
    return r;
}

static void use_loads(struct run *run)
{
    struct loading *loading = &run->loads[draw(run, N_LOADS)];
    const request *r = pick(run);
    if (loading->load.number != 0)
        end_load(run, loading);
    else if (r->is_here && run->cache_config.max_loads > 0)
        begin_load(run, r, loading);
}

/* --------------------------------------------------------------------------------------- holds */

static void hold(struct run *run, request *r)
{
    const uint64_t deadline = draw(run, 8) == 0 ? UINT64_MAX : run->now + draw(run, 12);
    REQUIRE(kvp_sched_hold(run->sched, r->handle, deadline) == oracle_hold(&run->o, r, deadline));
}

static void skip(struct run *run, request *r)
{
    REQUIRE(kvp_sched_skip_load(run->sched, r->handle) == oracle_skip_load(&run->o, r));
}

static uint32_t list(struct run *run, kvp_request *found)
{
    kvp_request expected[MAX_REQUESTS];
    const uint32_t n_first = draw(run, MAX_REQUESTS + 1);
    uint32_t n;
    REQUIRE(kvp_sched_loadable(run->sched, n_first, found, &n) == KVP_OK);
    REQUIRE(n == oracle_loadable(&run->o, n_first, expected));
    REQUIRE(memcmp(found, expected, n * sizeof *found) == 0);
    return n;
}

static void decide_all(struct run *run)
{
    kvp_request found[MAX_REQUESTS];
    const uint32_t n = list(run, found);
    for (uint32_t i = 0; i < n; i++) {
        request *r = oracle_find(&run->o, found[i]);
        const uint32_t what = draw(run, 4);
        if (what < 2)
            hold(run, r);
        else if (what == 2)
            skip(run, r);
    }
}

static void tick(struct run *run, uint64_t now)
{
    kvp_request requests[MAX_REQUESTS];
    kvp_sched_expired expired, expected;
    oracle_tick(&run->o, now, requests, &expected);
    REQUIRE(kvp_sched_tick(run->sched, now, &expired) == KVP_OK);
    REQUIRE(expired.n_requests == expected.n_requests && expired.n_loading == expected.n_loading);
    REQUIRE(expired.next_deadline == expected.next_deadline);
    REQUIRE(memcmp(expired.requests, requests, expired.n_requests * sizeof *requests) == 0);
}

void loading_release_all(struct run *run)
{
    tick(run, UINT64_MAX);
    loading_cancel_all(run);
}

/* Calls on a request of any state: most are refused. */
static void call_one(struct run *run, request *r)
{
    const uint32_t call = draw(run, 6);
    if (!r->is_here)
        return;
    if (call < 3)
        REQUIRE(kvp_sched_release(run->sched, r->handle) == oracle_release(&run->o, r));
    else if (call < 5)
        hold(run, r);
    else
        skip(run, r);
}

void loading_call(struct run *run)
{
    const uint32_t call = draw(run, 16);
    if (call < 5) {
        decide_all(run);
    } else if (call < 7) {
        run->now += draw(run, 6);
        tick(run, draw(run, 8) == 0 ? run->now / 2 : run->now);
    } else if (call < 12) {
        use_loads(run);
    } else {
        call_one(run, pick(run));
    }
}

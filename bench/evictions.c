/* New prompts of 131,072 tokens: every block is taken, from cached blocks (evicting them) or from
 * free ones, and committed. And the same evictions ahead of need. */
#include "world.h"

#include <kvpager/quotas.h>
#include <stdlib.h>

typedef struct eviction_state {
    world *w;     /* full of cached blocks, random order */
    world *fresh; /* free blocks, ascending */
    world *over;  /* as `w`, with quotas: all is of a namespace that is over its own */
    seed_manager *seed;
    uint64_t seed_number;
} eviction_state;

static void *set_up(const bench_options *options)
{
    eviction_state *s = allocate(sizeof *s);
    s->w = world_create(options, 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->fresh = world_create(options, 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->over = world_create_counting(options, 8, PROMPT_TOKENS + BLOCK_TOKENS);
    s->seed_number = UINT64_C(1) << 44;
    world_shuffle(s->w);
    world_shuffle(s->over);
    REQUIRE_OK(kvp_ns_quota(s->over->cache, s->over->ns, KVP_DEVICE, PROMPT_BLOCKS / 2));
    s->seed = seed_manager_create_full(s->w->n_blocks);
    return s;
}

static void tear_down(void *state)
{
    eviction_state *s = state;
    seed_manager_destroy(s->seed);
    world_destroy(s->w);
    world_destroy(s->fresh);
    world_destroy(s->over);
    free(s);
}

typedef struct parts {
    double open;
    double commit;
} parts;

static parts open_commit(world *w, uint32_t n_evicted, bool cold)
{
    world_fill_tokens(w->next_number++, w->tokens, PROMPT_TOKENS);
    kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = w->tokens, .n_tokens = PROMPT_TOKENS};
    kvp_open_info info;
    kvp_seq seq;
    if (cold)
        world_flush(w);
    uint64_t start = now_ns();
    kvp_status opened = kvp_seq_open(w->cache, w->ns, &prompt, &seq, &info);
    uint64_t middle = now_ns();
    kvp_status committed = opened ? opened : kvp_seq_commit(w->cache, seq, PROMPT_TOKENS);
    uint64_t end = now_ns();
    REQUIRE_OK(opened);
    REQUIRE_OK(committed);
    REQUIRE(info.hit_tokens == 0 && info.taken_blocks == PROMPT_BLOCKS);
    REQUIRE(info.evicted_blocks == n_evicted);
    if (n_evicted)
        world_require_scattered(w, seq);
    kvp_released released;
    REQUIRE_OK(kvp_seq_close(w->cache, seq, &released));
    REQUIRE(released.cached_blocks == PROMPT_BLOCKS);
    return (parts){(double)(middle - start), (double)(end - middle)};
}

static double evict_cold(void *state)
{
    eviction_state *s = state;
    parts p = open_commit(s->w, PROMPT_BLOCKS, true);
    return p.open + p.commit;
}

static double evict_warm(void *state)
{
    eviction_state *s = state;
    parts p = open_commit(s->w, PROMPT_BLOCKS, false);
    return p.open + p.commit;
}

/* Victims come from the namespace's ring. */
static double evict_quotas(void *state)
{
    eviction_state *s = state;
    parts p = open_commit(s->over, PROMPT_BLOCKS, false);
    return p.open + p.commit;
}

static double evict_cold_open(void *state)
{
    eviction_state *s = state;
    return open_commit(s->w, PROMPT_BLOCKS, true).open;
}

static double evict_cold_commit(void *state)
{
    eviction_state *s = state;
    return open_commit(s->w, PROMPT_BLOCKS, true).commit;
}

/* The evictions of such a prompt alone; ns for each block. */
static double reclaim(world *w, bool cold)
{
    uint32_t n = 0;
    if (cold)
        world_flush(w);
    const uint64_t start = now_ns();
    const kvp_status status = kvp_cache_reclaim(w->cache, PROMPT_BLOCKS, &n);
    const uint64_t end = now_ns();
    REQUIRE_OK(status);
    REQUIRE(n == PROMPT_BLOCKS);
    (void)open_commit(w, 0, false); /* takes what is free, and leaves it cached */
    return (double)(end - start) / PROMPT_BLOCKS;
}

static double reclaim_cold(void *state)
{
    eviction_state *s = state;
    return reclaim(s->w, true);
}

static double reclaim_warm(void *state)
{
    eviction_state *s = state;
    return reclaim(s->w, false);
}

/* When the free blocks run low everything begins anew. */
static parts free_open_commit(world *w, bool cold)
{
    if (world_stats(w).free_blocks < PROMPT_BLOCKS)
        REQUIRE_OK(kvp_cache_reset(w->cache));
    return open_commit(w, 0, cold);
}

static double free_cold(void *state)
{
    eviction_state *s = state;
    parts p = free_open_commit(s->fresh, true);
    return p.open + p.commit;
}

static double free_warm(void *state)
{
    eviction_state *s = state;
    parts p = free_open_commit(s->fresh, false);
    return p.open + p.commit;
}

static double seed_evict(void *state)
{
    eviction_state *s = state;
    world_fill_tokens(s->seed_number++, s->w->tokens, PROMPT_TOKENS);
    uint64_t start = now_ns();
    seed_sequence *sequence = seed_sequence_create(s->w->tokens, PROMPT_TOKENS);
    REQUIRE(seed_can_allocate(s->seed, sequence));
    seed_allocate(s->seed, sequence);
    uint64_t end = now_ns();
    REQUIRE(sequence->n_cached_tokens == 0 && sequence->n_blocks == PROMPT_BLOCKS);
    seed_deallocate(s->seed, sequence);
    seed_sequence_destroy(sequence);
    return (double)(end - start);
}

static const measurement measurements[] = {
    {"open_evict_commit_131072", "ns", 1e6, 31, evict_cold, seed_evict,
     "cold; the yardstick is not flushed"},
    {"open_evict_commit_131072_warm", "ns", 0, 31, evict_warm, seed_evict, "without the flush"},
    {"open_evict_commit_131072_quota", "ns", 0, 31, evict_quotas, NULL,
     "warm with quotas, over one's own"},
    {"open_evict_131072", "ns", 0, 31, evict_cold_open, NULL, "of the cold one: the open"},
    {"commit_131072", "ns", 0, 31, evict_cold_commit, NULL, "of the cold one: the commit"},
    {"reclaim_8192", "ns", 100, 31, reclaim_cold, NULL, "per block, ahead of need; cold"},
    {"reclaim_8192_warm", "ns", 0, 31, reclaim_warm, NULL, "without the flush"},
    {"open_free_commit_131072", "ns", 0, 31, free_cold, NULL, "free blocks, ascending; cold"},
    {"open_free_commit_131072_warm", "ns", 0, 31, free_warm, NULL, "free blocks, ascending"},
};

const group evictions_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                               tear_down};

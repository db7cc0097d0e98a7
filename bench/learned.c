/* Closes and evictions with the learned policy: what it costs beside LRU, in the same run. Several
 * closes between two readings of the clock; the opens are outside. */
#include "world.h"

#include <stdlib.h>

enum { SHORT_BLOCKS = 128, SHORT_BATCH = 16, LONG_BATCH = 2, BATCHES = 16 };

typedef struct learned_state {
    world *lru;
    world *learned;
    world *full; /* learned, full of cached blocks in random order */
} learned_state;

static void *set_up(const bench_options *options)
{
    learned_state *s = allocate(sizeof *s);
    s->lru = world_create(options, SHORT_BATCH + 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->learned = world_create_learning(options, SHORT_BATCH + 8, PROMPT_TOKENS + BLOCK_TOKENS);
    s->full = world_create_learning(options, 8, PROMPT_TOKENS + BLOCK_TOKENS);
    world_shuffle(s->full);
    return s;
}

static void tear_down(void *state)
{
    learned_state *s = state;
    world_destroy(s->lru);
    world_destroy(s->learned);
    world_destroy(s->full);
    free(s);
}

/* The same prompts each time: they are hit from the second batch on. */
static double close_many(world *w, uint32_t n_blocks, uint32_t n)
{
    kvp_seq seqs[SHORT_BATCH];
    uint64_t total = 0;
    for (uint32_t batch = 0; batch <= BATCHES; batch++) { /* the first is not counted */
        for (uint32_t i = 0; i < n; i++) {
            world_fill_tokens(i, w->tokens, n_blocks * BLOCK_TOKENS);
            seqs[i] = world_open_committed(w, w->tokens, n_blocks * BLOCK_TOKENS);
        }
        kvp_status status = KVP_OK;
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < n && status == KVP_OK; i++)
            status = kvp_seq_close(w->cache, seqs[i], NULL);
        total += batch == 0 ? 0 : now_ns() - start;
        REQUIRE_OK(status);
    }
    return (double)total / (BATCHES * n);
}

static double close_short(void *state)
{
    learned_state *s = state;
    return close_many(s->lru, SHORT_BLOCKS, SHORT_BATCH);
}

static double close_short_learned(void *state)
{
    learned_state *s = state;
    return close_many(s->learned, SHORT_BLOCKS, SHORT_BATCH);
}

static double close_long(void *state)
{
    learned_state *s = state;
    return close_many(s->lru, PROMPT_BLOCKS, LONG_BATCH);
}

static double close_long_learned(void *state)
{
    learned_state *s = state;
    return close_many(s->learned, PROMPT_BLOCKS, LONG_BATCH);
}

static double evict_learned(void *state)
{
    learned_state *s = state;
    world *w = s->full;
    world_fill_tokens(w->next_number++, w->tokens, PROMPT_TOKENS);
    uint64_t start = now_ns();
    kvp_seq seq = world_open_committed(w, w->tokens, PROMPT_TOKENS);
    uint64_t end = now_ns();
    world_close(w, seq);
    return (double)(end - start);
}

static const char cached[] = "new pool; only holder, all sealed; hit before";

static const measurement measurements[] = {
    {"close_128_lru", "ns", 0, 51, close_short, NULL, cached},
    {"close_128_learned", "ns", 0, 51, close_short_learned, NULL, "the same, learned"},
    {"close_8192_lru", "ns", 0, 21, close_long, NULL, cached},
    {"close_8192_learned", "ns", 0, 21, close_long_learned, NULL, "the same, learned"},
    {"open_evict_commit_131072_learned", "ns", 0, 31, evict_learned, NULL,
     "warm; beside open_evict_commit_131072_warm"},
};

const group learned_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                             tear_down};

/* Closes and evictions with the learned policy: what it costs beside LRU, in the same run. Several
 * closes between two readings of the clock; the opens are outside. */
#include "world.h"

#include <stdlib.h>

enum { SHORT_BLOCKS = 128, SHORT_BATCH = 16, LONG_BATCH = 2, BATCHES = 16 };
enum { DECODED = 256, STEPS = 16, START_TOKENS = 512 };

typedef struct learned_state {
    world *lru;
    world *learned;
    world *full; /* learned, full of cached blocks in random order */
    world *full_lru;
} learned_state;

static void *set_up(const bench_options *options)
{
    learned_state *s = allocate(sizeof *s);
    s->lru = world_create(options, SHORT_BATCH + 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->learned = world_create_learning(options, SHORT_BATCH + 8, PROMPT_TOKENS + BLOCK_TOKENS);
    s->full = world_create_learning(options, DECODED, PROMPT_TOKENS + BLOCK_TOKENS);
    s->full_lru = world_create(options, DECODED, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    world_shuffle(s->full);
    world_shuffle(s->full_lru);
    return s;
}

static void tear_down(void *state)
{
    learned_state *s = state;
    world_destroy(s->lru);
    world_destroy(s->learned);
    world_destroy(s->full);
    world_destroy(s->full_lru);
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

static double evict(world *w)
{
    world_fill_tokens(w->next_number++, w->tokens, PROMPT_TOKENS);
    uint64_t start = now_ns();
    kvp_seq seq = world_open_committed(w, w->tokens, PROMPT_TOKENS);
    uint64_t end = now_ns();
    world_close(w, seq);
    return (double)(end - start);
}

static double evict_lru(void *state)
{
    learned_state *s = state;
    return evict(s->full_lru);
}

static double evict_learned(void *state)
{
    learned_state *s = state;
    return evict(s->full);
}

/* One more token for each, a block's worth of steps: each takes a block by eviction, and seals
 * one. */
static double decode(world *w)
{
    kvp_seq seqs[DECODED];
    uint32_t ends[DECODED];
    int32_t tokens[DECODED] = {0};
    uint64_t total = 0, random = w->next_number;
    for (uint32_t i = 0; i < DECODED; i++) {
        ends[i] = START_TOKENS + i % BLOCK_TOKENS;
        seqs[i] = world_open_new(w, ends[i]);
    }
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = DECODED, .seqs = seqs, .tokens = tokens};
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < DECODED; i++) {
            tokens[i] = (int32_t)(world_draw(&random) % 128256);
            ends[i]++;
        }
        uint64_t start = now_ns();
        kvp_status extended = kvp_seq_extend_many(w->cache, &batch);
        kvp_status committed = kvp_seq_commit_many(w->cache, seqs, ends, DECODED);
        total += now_ns() - start;
        REQUIRE_OK(extended);
        REQUIRE_OK(committed);
    }
    for (uint32_t i = 0; i < DECODED; i++)
        world_close(w, seqs[i]);
    return (double)total / (DECODED * STEPS);
}

static double decode_lru(void *state)
{
    learned_state *s = state;
    return decode(s->full_lru);
}

static double decode_learned(void *state)
{
    learned_state *s = state;
    return decode(s->full);
}

static const char cached[] = "new pool; only holder, all sealed; hit before";

static const measurement measurements[] = {
    {"close_128_lru", "ns", 0, 51, close_short, NULL, cached},
    {"close_128_learned", "ns", 0, 51, close_short_learned, NULL, "the same, learned"},
    {"close_8192_lru", "ns", 0, 21, close_long, NULL, cached},
    {"close_8192_learned", "ns", 0, 21, close_long_learned, NULL, "the same, learned"},
    {"open_evict_commit_131072_lru", "ns", 0, 31, evict_lru, NULL, "warm; full, shuffled"},
    {"open_evict_commit_131072_learned", "ns", 0, 31, evict_learned, NULL, "the same, learned"},
    {"extend_commit_256_lru", "ns", 0, 31, decode_lru, NULL, "of a sequence; blocks evicted"},
    {"extend_commit_256_learned", "ns", 0, 31, decode_learned, NULL, "the same, learned"},
};

const group learned_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                             tear_down};

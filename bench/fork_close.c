/* Fork, close and truncate, and the open of a short cached prompt. Many in a row between two
 * readings of the clock; what undoes them is outside.
 *
 * Twice: on a new pool, where the blocks of a row lie side by side (as others measure it), and on
 * one that has been in use for long, where they lie anywhere. */
#include "world.h"

#include <stdlib.h>

enum {
    SHORT_BLOCKS = 128,
    SHORT_TOKENS = SHORT_BLOCKS * BLOCK_TOKENS,
    SHORT_BATCH = 16,
    LONG_BATCH = 4,
    BATCHES = 64 /* of one sample */
};

/* One pool of ours and one of the yardstick's. */
typedef struct side {
    world *w;
    kvp_seq parent_short;
    kvp_seq parent_long;
    int32_t *prompts; /* [SHORT_BATCH, SHORT_TOKENS] cached */
    kvp_seq seqs[SHORT_BATCH];
    seed_manager *seed;
    seed_sequence *seed_short;
    seed_sequence *seed_long;
    seed_sequence *seed_seqs[SHORT_BATCH];
    uint64_t seed_number;
} side;

typedef struct fork_state {
    side fresh;
    side worn;
} fork_state;

static int32_t *prompt_at(const side *s, uint32_t i)
{
    return s->prompts + (size_t)i * SHORT_TOKENS;
}

static void set_up_side(side *s, const bench_options *options, bool worn)
{
    s->seed_number = UINT64_C(1) << 44;
    s->w = world_create(options, SHORT_BATCH + 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->prompts = allocate(SHORT_BATCH * SHORT_TOKENS * sizeof *s->prompts);
    if (worn)
        world_shuffle(s->w);
    s->seed = worn ? seed_manager_create_full(s->w->n_blocks)
                   : seed_manager_create(s->w->n_blocks, BLOCK_TOKENS, NULL);
    s->parent_short = world_open_new(s->w, SHORT_TOKENS);
    s->parent_long = world_open_new(s->w, PROMPT_TOKENS);
    s->seed_short = seed_open_new(s->seed, s->seed_number++, SHORT_TOKENS);
    s->seed_long = seed_open_new(s->seed, s->seed_number++, PROMPT_TOKENS);
    if (worn) {
        world_require_scattered(s->w, s->parent_short);
        world_require_scattered(s->w, s->parent_long);
    }
    for (uint32_t i = 0; i < SHORT_BATCH; i++) {
        world_fill_tokens(s->w->next_number++, prompt_at(s, i), SHORT_TOKENS);
        world_close(s->w, world_open_committed(s->w, prompt_at(s, i), SHORT_TOKENS));
    }
}

static void tear_down_side(side *s)
{
    seed_sequence_destroy(s->seed_short);
    seed_sequence_destroy(s->seed_long);
    seed_manager_destroy(s->seed);
    world_destroy(s->w);
    free(s->prompts);
}

static void *set_up(const bench_options *options)
{
    fork_state *s = allocate(sizeof *s);
    set_up_side(&s->fresh, options, false);
    set_up_side(&s->worn, options, true);
    return s;
}

static void tear_down(void *state)
{
    fork_state *s = state;
    tear_down_side(&s->fresh);
    tear_down_side(&s->worn);
    free(s);
}

static void close_all(side *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        world_close(s->w, s->seqs[i]);
}

/* --------------------------------------------------------------------------------------- forks */

static uint64_t fork_batch(side *s, kvp_seq parent, uint32_t n)
{
    kvp_status status = KVP_OK;
    uint64_t start = now_ns();
    for (uint32_t i = 0; i < n && status == KVP_OK; i++)
        status = kvp_seq_fork(s->w->cache, parent, KVP_END, i, &s->seqs[i]);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    return end - start;
}

/* The first batch of each sample warms the CPU caches that the yardstick has used, untimed. */
static double fork_many(side *s, kvp_seq parent, uint32_t n)
{
    kvp_seq_info expected;
    uint64_t total = 0;
    REQUIRE_OK(kvp_seq_info_get(s->w->cache, parent, &expected));
    for (uint32_t batch = 0; batch <= BATCHES; batch++) {
        uint64_t ns = fork_batch(s, parent, n);
        total += batch == 0 ? 0 : ns;
        kvp_seq_info info;
        REQUIRE_OK(kvp_seq_info_get(s->w->cache, s->seqs[n - 1], &info));
        REQUIRE(info.n_blocks == expected.n_blocks && info.computed_tokens == expected.n_tokens);
        close_all(s, n);
    }
    return (double)total / (BATCHES * n);
}

static double fork_short(void *state)
{
    fork_state *s = state;
    return fork_many(&s->fresh, s->fresh.parent_short, SHORT_BATCH);
}

static double fork_long(void *state)
{
    fork_state *s = state;
    return fork_many(&s->fresh, s->fresh.parent_long, LONG_BATCH);
}

static double fork_short_scattered(void *state)
{
    fork_state *s = state;
    return fork_many(&s->worn, s->worn.parent_short, SHORT_BATCH);
}

static double fork_long_scattered(void *state)
{
    fork_state *s = state;
    return fork_many(&s->worn, s->worn.parent_long, LONG_BATCH);
}

static double seed_fork_many(side *s, const seed_sequence *parent, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t batch = 0; batch <= BATCHES; batch++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < n; i++)
            s->seed_seqs[i] = seed_fork(s->seed, parent);
        total += batch == 0 ? 0 : now_ns() - start;
        for (uint32_t i = 0; i < n; i++) {
            REQUIRE(s->seed_seqs[i]->n_blocks == parent->n_blocks);
            seed_deallocate(s->seed, s->seed_seqs[i]);
            seed_sequence_destroy(s->seed_seqs[i]);
        }
    }
    return (double)total / (BATCHES * n);
}

static double seed_fork_short(void *state)
{
    fork_state *s = state;
    return seed_fork_many(&s->fresh, s->fresh.seed_short, SHORT_BATCH);
}

static double seed_fork_long(void *state)
{
    fork_state *s = state;
    return seed_fork_many(&s->fresh, s->fresh.seed_long, LONG_BATCH);
}

static double seed_fork_short_scattered(void *state)
{
    fork_state *s = state;
    return seed_fork_many(&s->worn, s->worn.seed_short, SHORT_BATCH);
}

static double seed_fork_long_scattered(void *state)
{
    fork_state *s = state;
    return seed_fork_many(&s->worn, s->worn.seed_long, LONG_BATCH);
}

/* ------------------------------------------------------------------------------ close, truncate */

static uint64_t close_batch(side *s)
{
    kvp_status status = KVP_OK;
    uint64_t start = now_ns();
    for (uint32_t i = 0; i < SHORT_BATCH && status == KVP_OK; i++)
        status = kvp_seq_close(s->w->cache, s->seqs[i], NULL);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    return end - start;
}

static void open_hits(side *s)
{
    for (uint32_t i = 0; i < SHORT_BATCH; i++) {
        kvp_open_info info;
        s->seqs[i] = world_open(s->w, prompt_at(s, i), SHORT_TOKENS, &info);
        REQUIRE(info.hit_tokens == SHORT_TOKENS && info.cached_blocks == SHORT_BLOCKS);
    }
}

static double close_holders(side *s, bool cold)
{
    uint32_t n_batches = cold ? 1 : BATCHES;
    uint64_t total = 0;
    for (uint32_t batch = 0; batch < n_batches; batch++) {
        open_hits(s);
        uint64_t cached = world_stats(s->w).cached_blocks;
        if (cold)
            world_flush(s->w);
        total += close_batch(s);
        REQUIRE(world_stats(s->w).cached_blocks == cached + SHORT_BATCH * SHORT_BLOCKS);
    }
    return (double)total / (n_batches * SHORT_BATCH);
}

static double close_own(void *state)
{
    fork_state *s = state;
    return close_holders(&s->fresh, false);
}

static double close_scattered(void *state)
{
    fork_state *s = state;
    return close_holders(&s->worn, false);
}

static double close_cold(void *state)
{
    fork_state *s = state;
    return close_holders(&s->worn, true);
}

static double close_forks(side *s)
{
    uint64_t total = 0;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        fork_batch(s, s->parent_short, SHORT_BATCH);
        uint64_t held = world_stats(s->w).held_blocks;
        total += close_batch(s);
        REQUIRE(world_stats(s->w).held_blocks == held);
    }
    return (double)total / (BATCHES * SHORT_BATCH);
}

static double close_shared(void *state)
{
    fork_state *s = state;
    return close_forks(&s->fresh);
}

static double truncate_half(void *state)
{
    fork_state *all = state;
    side *s = &all->fresh;
    uint64_t total = 0;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        kvp_released released = {0};
        kvp_status status = KVP_OK;
        open_hits(s);
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < SHORT_BATCH && status == KVP_OK; i++)
            status = kvp_seq_truncate(s->w->cache, s->seqs[i], SHORT_TOKENS / 2, &released);
        total += now_ns() - start;
        REQUIRE_OK(status);
        REQUIRE(released.cached_blocks == SHORT_BLOCKS / 2);
        close_all(s, SHORT_BATCH);
    }
    return (double)total / (BATCHES * SHORT_BATCH);
}

static double open_short(void *state)
{
    fork_state *s = state;
    uint64_t total = 0;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint64_t start = now_ns();
        open_hits(&s->worn);
        total += now_ns() - start;
        close_all(&s->worn, SHORT_BATCH);
    }
    return (double)total / (BATCHES * SHORT_BATCH);
}

/* The yardstick's are forks, or new prompts: to take cached ones back it would search its queue. */
static double seed_close(side *s, bool shared)
{
    uint64_t total = 0;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        for (uint32_t i = 0; i < SHORT_BATCH; i++)
            s->seed_seqs[i] = shared ? seed_fork(s->seed, s->seed_short)
                                     : seed_open_new(s->seed, s->seed_number++, SHORT_TOKENS);
        uint32_t n_free = seed_n_free(s->seed);
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < SHORT_BATCH; i++)
            seed_deallocate(s->seed, s->seed_seqs[i]);
        total += now_ns() - start;
        REQUIRE(seed_n_free(s->seed) == n_free + (shared ? 0 : SHORT_BATCH * SHORT_BLOCKS));
        for (uint32_t i = 0; i < SHORT_BATCH; i++)
            seed_sequence_destroy(s->seed_seqs[i]);
    }
    return (double)total / (BATCHES * SHORT_BATCH);
}

static double seed_close_own(void *state)
{
    fork_state *s = state;
    return seed_close(&s->fresh, false);
}

static double seed_close_scattered(void *state)
{
    fork_state *s = state;
    return seed_close(&s->worn, false);
}

static double seed_close_shared(void *state)
{
    fork_state *s = state;
    return seed_close(&s->fresh, true);
}

static const char side_by_side[] = "new pool";
static const char scattered[] = "pool long in use";

static const measurement measurements[] = {
    {"fork_128", "ns", 120, 101, fork_short, seed_fork_short, side_by_side},
    {"fork_128_scattered", "ns", 120, 101, fork_short_scattered, seed_fork_short_scattered,
     scattered},
    {"fork_8192", "ns", 6000, 51, fork_long, seed_fork_long, side_by_side},
    {"fork_8192_scattered", "ns", 6000, 51, fork_long_scattered, seed_fork_long_scattered,
     scattered},
    {"close_128", "ns", 200, 101, close_own, seed_close_own, "new pool; only holder, all sealed"},
    {"close_128_scattered", "ns", 200, 51, close_scattered, seed_close_scattered, scattered},
    {"close_128_cold", "ns", 0, 11, close_cold, NULL, "pool long in use; 16 closes after a flush"},
    {"close_128_shared", "ns", 200, 101, close_shared, seed_close_shared,
     "new pool; close of a fork"},
    {"truncate_128_to_64", "ns", 0, 51, truncate_half, NULL, "new pool; only holder"},
    {"open_hit_2048", "ns", 0, 51, open_short, NULL, "pool long in use; 16 such prompts"},
};

const group fork_close_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                                tear_down};

/* See world.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */

#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 << 20 };

/* Every page is touched beforehand: a page fault in the timed part would be the system's cost. */
static void *map_arena(size_t n_bytes)
{
    void *arena = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(arena != MAP_FAILED);
#ifdef MADV_HUGEPAGE
    madvise(arena, n_bytes, MADV_HUGEPAGE);
#endif
    memset(arena, 0, n_bytes);
    note_huge_pages();
    return arena;
}

kvp_config world_config(const bench_options *options, uint32_t max_seqs, uint32_t max_seq_tokens)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = (options->quick ? QUICK_POOL_BLOCKS : POOL_BLOCKS) + 1;
    config.max_seqs = max_seqs;
    config.max_seq_tokens = max_seq_tokens;
    return config;
}

world *world_create_as(const kvp_config *config, const kvp_sink *sink)
{
    world *w = allocate(sizeof *w);
    w->n_blocks = config->n_blocks - 1;
    w->n_groups = config->n_groups;
    w->max_seq_tokens = config->max_seq_tokens;
    w->max_copies = config->host_blocks ? config->max_seqs + 64 + config->n_blocks : 0;
    w->copies = w->max_copies ? allocate(w->max_copies * sizeof *w->copies) : NULL;
    REQUIRE_OK(kvp_cache_bytes(config, &w->arena_bytes));
    w->arena_bytes = (w->arena_bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    w->arena = map_arena(w->arena_bytes);
    w->tokens = allocate(PROMPT_TOKENS * sizeof *w->tokens);
    w->next_number = UINT64_C(1) << 32;
    REQUIRE_OK(kvp_cache_create(config, w->arena, w->arena_bytes, &w->cache));
    if (sink)
        REQUIRE_OK(kvp_cache_record_start(w->cache, sink));
    REQUIRE_OK(kvp_ns_open(w->cache, "bench", 5, &w->ns));
    return w;
}

world *world_create(const bench_options *options, uint32_t max_seqs, uint32_t max_seq_tokens,
                    const kvp_sink *sink)
{
    const kvp_config config = world_config(options, max_seqs, max_seq_tokens);
    return world_create_as(&config, sink);
}

world *world_create_counting(const bench_options *options, uint32_t max_seqs,
                             uint32_t max_seq_tokens)
{
    kvp_config config = world_config(options, max_seqs, max_seq_tokens);
    config.quotas = 1;
    return world_create_as(&config, NULL);
}

world *world_create_learning(const bench_options *options, uint32_t max_seqs,
                             uint32_t max_seq_tokens)
{
    kvp_config config = world_config(options, max_seqs, max_seq_tokens);
    config.policy = KVP_POLICY_LEARNED;
    return world_create_as(&config, NULL);
}

void world_destroy(world *w)
{
    kvp_cache_destroy(w->cache);
    munmap(w->arena, w->arena_bytes);
    free(w->copies);
    free(w->tokens);
    free(w);
}

uint64_t world_draw(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void world_fill_tokens(uint64_t number, int32_t *tokens, uint32_t n_tokens)
{
    uint64_t state = number * UINT64_C(0x2545f4914f6cdd1d);
    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = (int32_t)(world_draw(&state) % 128256); /* a vocabulary */
    if (n_tokens >= 3) {
        tokens[0] = (int32_t)(number & 0xffff); /* and different for certain */
        tokens[1] = (int32_t)(number >> 16 & 0xffff);
        tokens[2] = (int32_t)(number >> 32 & 0xffff);
    }
}

kvp_seq world_open(world *w, const int32_t *tokens, uint32_t n_tokens, kvp_open_info *out_info)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n_tokens};
    kvp_seq seq;
    REQUIRE_OK(kvp_seq_open(w->cache, w->ns, &prompt, &seq, out_info));
    return seq;
}

kvp_seq world_open_committed(world *w, const int32_t *tokens, uint32_t n_tokens)
{
    kvp_seq seq = world_open(w, tokens, n_tokens, NULL);
    REQUIRE_OK(kvp_seq_commit(w->cache, seq, n_tokens));
    return seq;
}

kvp_seq world_open_new(world *w, uint32_t n_tokens)
{
    world_fill_tokens(w->next_number++, w->tokens, n_tokens);
    return world_open_committed(w, w->tokens, n_tokens);
}

void world_close(world *w, kvp_seq seq)
{
    REQUIRE_OK(kvp_seq_close(w->cache, seq, NULL));
}

kvp_stats world_stats(const world *w)
{
    kvp_stats stats;
    REQUIRE_OK(kvp_cache_stats_get(w->cache, &stats));
    return stats;
}

uint32_t world_take_plan(world *w)
{
    uint32_t n = 0;
    if (w->max_copies)
        REQUIRE_OK(kvp_plan_take(w->cache, w->copies, w->max_copies, &n));
    return n;
}

static void open_and_close(world *w, uint64_t number, uint32_t n_tokens)
{
    world_fill_tokens(number, w->tokens, n_tokens);
    world_close(w, world_open_committed(w, w->tokens, n_tokens));
    world_take_plan(w);
}

void world_shuffle(world *w)
{
    const uint32_t n = w->n_blocks / w->n_groups;
    uint32_t *order = allocate(n * sizeof *order);
    uint64_t random = 1;
    for (uint32_t i = 0; i < n; i++) {
        open_and_close(w, i, BLOCK_TOKENS);
        uint32_t at = (uint32_t)(world_draw(&random) % (i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        open_and_close(w, order[i], BLOCK_TOKENS);
    free(order);
    uint32_t n_tokens = w->max_seq_tokens < PROMPT_TOKENS ? w->max_seq_tokens : PROMPT_TOKENS;
    for (uint32_t i = 0; i < w->n_blocks; i += n_tokens / BLOCK_TOKENS)
        open_and_close(w, w->next_number++, n_tokens);
    kvp_stats stats = world_stats(w);
    REQUIRE(stats.cached_blocks == w->n_blocks);
}

seed_sequence *seed_open_new(seed_manager *seed, uint64_t number, uint32_t n_tokens)
{
    int32_t *tokens = allocate(n_tokens * sizeof *tokens);
    world_fill_tokens(number, tokens, n_tokens);
    seed_sequence *sequence = seed_sequence_create(tokens, n_tokens);
    REQUIRE(seed_can_allocate(seed, sequence));
    seed_allocate(seed, sequence);
    free(tokens);
    return sequence;
}

seed_manager *seed_manager_create_full(uint32_t n_blocks)
{
    enum { TOKENS = 4096 };
    int32_t *order = allocate(n_blocks * sizeof *order);
    uint64_t random = 2;
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t at = (uint32_t)(world_draw(&random) % (i + 1));
        order[i] = order[at];
        order[at] = (int32_t)i;
    }
    seed_manager *seed = seed_manager_create(n_blocks, BLOCK_TOKENS, order);
    free(order);
    for (uint32_t i = 0; i < n_blocks; i += TOKENS / BLOCK_TOKENS) {
        seed_sequence *sequence = seed_open_new(seed, (UINT64_C(1) << 40) + i, TOKENS);
        seed_deallocate(seed, sequence);
        seed_sequence_destroy(sequence);
    }
    return seed;
}

void world_flush(const world *w)
{
    flush_caches(w->arena, w->arena_bytes);
}

void world_require_scattered(const world *w, kvp_seq seq)
{
    const int32_t *row;
    uint32_t n;
    uint32_t n_near = 0;
    REQUIRE_OK(kvp_seq_row(w->cache, seq, 0, &row, &n));
    for (uint32_t i = 1; i < n; i++)
        n_near += abs(row[i] - row[i - 1]) <= 64;
    REQUIRE(n_near * 50 <= n);
}

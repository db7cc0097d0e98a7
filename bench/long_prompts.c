/* Prompts of 131,072 tokens that are cached completely: open, match, hash. Pool of cached blocks in
 * random order. And, as a floor, memcmp of the same tokens. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

typedef struct long_state {
    world *w;
    world *fresh;    /* the same prompt cached, blocks and nodes adjacent */
    int32_t *prompt; /* [PROMPT_TOKENS] cached */
    int32_t *equal;  /* the same, elsewhere */
    kvp_hash *hashes;
    kvp_hash root;
    seed_manager *seed; /* YARDSTICK_BLOCKS; the same prompt cached */
} long_state;

static void *set_up(const bench_options *options)
{
    long_state *s = allocate(sizeof *s);
    s->w = world_create(options, 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    s->prompt = allocate(PROMPT_TOKENS * sizeof *s->prompt);
    s->equal = allocate(PROMPT_TOKENS * sizeof *s->equal);
    s->hashes = allocate(PROMPT_BLOCKS * sizeof *s->hashes);
    world_shuffle(s->w);
    world_fill_tokens(s->w->next_number++, s->prompt, PROMPT_TOKENS);
    memcpy(s->equal, s->prompt, PROMPT_TOKENS * sizeof *s->prompt);
    kvp_seq seq = world_open_committed(s->w, s->prompt, PROMPT_TOKENS);
    world_require_scattered(s->w, seq);
    world_close(s->w, seq);
    s->fresh = world_create(options, 8, PROMPT_TOKENS + BLOCK_TOKENS, NULL);
    world_close(s->fresh, world_open_committed(s->fresh, s->prompt, PROMPT_TOKENS));
    kvp_hash_input input = {
        .unit_tokens = BLOCK_TOKENS, .n_tokens = PROMPT_TOKENS, .tokens = s->prompt};
    REQUIRE_OK(kvp_hash_root(BLOCK_TOKENS, 0, "bench", 5, &s->root));
    REQUIRE_OK(kvp_hash_units(&input, &s->root, s->hashes));

    s->seed = seed_manager_create(YARDSTICK_BLOCKS, BLOCK_TOKENS, NULL);
    seed_sequence *sequence = seed_sequence_create(s->prompt, PROMPT_TOKENS);
    seed_allocate(s->seed, sequence);
    seed_deallocate(s->seed, sequence);
    seed_sequence_destroy(sequence);
    return s;
}

static void tear_down(void *state)
{
    long_state *s = state;
    seed_manager_destroy(s->seed);
    world_destroy(s->w);
    world_destroy(s->fresh);
    free(s->prompt);
    free(s->equal);
    free(s->hashes);
    free(s);
}

static double open_hit(world *w, const int32_t *tokens, const kvp_hash *hashes)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = tokens,
                         .n_tokens = PROMPT_TOKENS,
                         .hashes = hashes};
    kvp_open_info info;
    kvp_seq seq;
    uint64_t start = now_ns();
    kvp_status status = kvp_seq_open(w->cache, w->ns, &prompt, &seq, &info);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    REQUIRE(info.hit_tokens == PROMPT_TOKENS && info.cached_tokens == PROMPT_TOKENS - 1);
    REQUIRE(info.cached_blocks == PROMPT_BLOCKS && info.taken_blocks == 0);
    world_close(w, seq);
    return (double)(end - start);
}

/* Warm: just done once before. (The yardstick, in between, uses the CPU caches for itself.) */
static double open_hit_warm(void *state)
{
    const long_state *s = state;
    for (int i = 0; i < 3; i++) /* the yardstick, in between, uses the caches for itself */
        open_hit(s->w, s->prompt, NULL);
    return open_hit(s->w, s->prompt, NULL);
}

static double open_hit_cold(void *state)
{
    const long_state *s = state;
    world_flush(s->w);
    return open_hit(s->w, s->prompt, NULL);
}

static double open_hit_new_warm(void *state)
{
    const long_state *s = state;
    for (int i = 0; i < 3; i++)
        open_hit(s->fresh, s->prompt, NULL);
    return open_hit(s->fresh, s->prompt, NULL);
}

static double open_hit_new_cold(void *state)
{
    const long_state *s = state;
    world_flush(s->fresh);
    return open_hit(s->fresh, s->prompt, NULL);
}

static double open_hit_warm_hashed(void *state)
{
    long_state *s = state;
    open_hit(s->w, s->prompt, s->hashes);
    return open_hit(s->w, s->prompt, s->hashes);
}

static double open_hit_cold_hashed(void *state)
{
    long_state *s = state;
    world_flush(s->w);
    return open_hit(s->w, s->prompt, s->hashes);
}

static double seed_open_hit(void *state)
{
    long_state *s = state;
    uint64_t start = now_ns();
    seed_sequence *sequence = seed_sequence_create(s->prompt, PROMPT_TOKENS);
    REQUIRE(seed_can_allocate(s->seed, sequence));
    seed_allocate(s->seed, sequence);
    uint64_t end = now_ns();
    REQUIRE(sequence->n_cached_tokens == PROMPT_TOKENS);
    seed_deallocate(s->seed, sequence);
    seed_sequence_destroy(sequence);
    return (double)(end - start);
}

static double match_warm(void *state)
{
    long_state *s = state;
    kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->prompt, .n_tokens = PROMPT_TOKENS};
    kvp_open_info info;
    uint64_t start = now_ns();
    kvp_status status = kvp_cache_match(s->w->cache, s->w->ns, &prompt, &info);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    REQUIRE(info.hit_tokens == PROMPT_TOKENS);
    return (double)(end - start);
}

static double match_miss(void *state)
{
    long_state *s = state;
    int32_t first = s->prompt[0];
    s->prompt[0] = INT32_MAX; /* in no vocabulary */
    kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->prompt, .n_tokens = PROMPT_TOKENS};
    kvp_open_info info;
    uint64_t start = now_ns();
    kvp_status status = kvp_cache_match(s->w->cache, s->w->ns, &prompt, &info);
    uint64_t end = now_ns();
    s->prompt[0] = first;
    REQUIRE_OK(status);
    REQUIRE(info.hit_tokens == 0);
    return (double)(end - start);
}

static double close_hit(void *state)
{
    long_state *s = state;
    kvp_seq seq = world_open(s->w, s->prompt, PROMPT_TOKENS, NULL);
    kvp_released released;
    uint64_t start = now_ns();
    kvp_status status = kvp_seq_close(s->w->cache, seq, &released);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    REQUIRE(released.cached_blocks == PROMPT_BLOCKS);
    return (double)(end - start);
}

static double hash_units(void *state)
{
    long_state *s = state;
    kvp_hash_input input = {
        .unit_tokens = BLOCK_TOKENS, .n_tokens = PROMPT_TOKENS, .tokens = s->prompt};
    uint64_t start = now_ns();
    kvp_status status = kvp_hash_units(&input, &s->root, s->hashes);
    uint64_t end = now_ns();
    REQUIRE_OK(status);
    return (double)(end - start);
}

static double compare_tokens(void *state)
{
    long_state *s = state;
    uint64_t start = now_ns();
    int different = memcmp(s->prompt, s->equal, PROMPT_TOKENS * sizeof *s->prompt);
    uint64_t end = now_ns();
    REQUIRE(different == 0);
    return (double)(end - start);
}

static const char yardstick_note[] = "yardstick: 20,000 blocks, warm";

static const measurement measurements[] = {
    {"open_hit_warm_131072", "ns", 180e3, 51, open_hit_warm, seed_open_hit, yardstick_note},
    {"open_hit_cold_131072", "ns", 400e3, 31, open_hit_cold, seed_open_hit, yardstick_note},
    {"open_hit_new_warm_131072", "ns", 0, 51, open_hit_new_warm, NULL, "a new pool"},
    {"open_hit_new_cold_131072", "ns", 0, 31, open_hit_new_cold, NULL, "a new pool"},
    {"open_hit_warm_131072_hashed", "ns", 0, 51, open_hit_warm_hashed, NULL, "hashes given"},
    {"open_hit_cold_131072_hashed", "ns", 0, 31, open_hit_cold_hashed, NULL, "hashes given"},
    {"match_warm_131072", "ns", 0, 51, match_warm, NULL, "read only, all cached"},
    {"match_miss_131072", "ns", 0, 51, match_miss, NULL, "read only, first token differs"},
    {"close_hit_131072", "ns", 0, 51, close_hit, NULL, "8,192 blocks become cached"},
    {"hash_131072", "ns", 0, 51, hash_units, NULL, "part of open_hit"},
    {"memcmp_131072", "ns", 0, 51, compare_tokens, NULL, "the floor: not ours"},
};

const group long_prompts_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                                  tear_down};

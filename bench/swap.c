/* Swap a sequence of 128 blocks out and in again, and take both plans: what the bookkeeping of a
 * preemption costs. Once with private blocks, all copied both ways; once with sealed ones, which
 * both tiers keep: nothing is copied after the first time. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SWAP_BLOCKS = 128, SWAP_TOKENS = SWAP_BLOCKS * BLOCK_TOKENS, SWAPS = 16, POOL = 65536 };

typedef struct side {
    kvp_cache *cache;
    kvp_seq seq;
} side;

typedef struct swap_state {
    side private_side;
    side sealed;
    int32_t tokens[SWAP_TOKENS];
    kvp_copy copies[SWAP_BLOCKS];
} swap_state;

static void set_up_side(swap_state *s, side *at, uint32_t prefix_cache)
{
    kvp_config config;
    kvp_ns ns;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = config.host_blocks = POOL;
    config.prefix_cache = prefix_cache;
    kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->tokens, .n_tokens = SWAP_TOKENS};
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &at->cache));
    REQUIRE_OK(kvp_ns_open(at->cache, "bench", 5, &ns));
    REQUIRE_OK(kvp_seq_open(at->cache, ns, &prompt, &at->seq, NULL));
    REQUIRE_OK(kvp_seq_commit(at->cache, at->seq, SWAP_TOKENS));
}

static void *set_up(const bench_options *options)
{
    (void)options;
    swap_state *s = allocate(sizeof *s);
    for (int i = 0; i < SWAP_TOKENS; i++) {
        s->tokens[i] = i;
    }
    set_up_side(s, &s->private_side, 0);
    set_up_side(s, &s->sealed, 1);
    return s;
}

static void tear_down(void *state)
{
    swap_state *s = state;
    kvp_cache_destroy(s->private_side.cache);
    kvp_cache_destroy(s->sealed.cache);
    free(s);
}

static double swap_times(swap_state *s, const side *at, uint32_t expected_copies)
{
    uint32_t n = 0;
    const uint64_t begin = now_ns();
    for (int i = 0; i < SWAPS; i++) {
        REQUIRE_OK(kvp_seq_swap_out(at->cache, &at->seq, 1, NULL));
        REQUIRE_OK(kvp_plan_take(at->cache, s->copies, SWAP_BLOCKS, &n));
        REQUIRE(i == 0 || n == expected_copies);
        REQUIRE_OK(kvp_seq_swap_in(at->cache, &at->seq, 1, 0, NULL));
        REQUIRE_OK(kvp_plan_take(at->cache, s->copies, SWAP_BLOCKS, &n));
        REQUIRE(n == expected_copies);
    }
    return (double)(now_ns() - begin) / SWAPS;
}

static double swap_private(void *state)
{
    swap_state *s = state;
    return swap_times(s, &s->private_side, SWAP_BLOCKS);
}

static double swap_sealed(void *state)
{
    swap_state *s = state;
    return swap_times(s, &s->sealed, 0);
}

static const measurement measurements[] = {
    {"swap_128", "ns", 0, 51, swap_private, NULL, "out and in, 128 blocks copied each way"},
    {"swap_128_found", "ns", 0, 51, swap_sealed, NULL, "the same, content kept on both tiers"},
};

const group swap_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                          tear_down};

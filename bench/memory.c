/* How much bookkeeping a block costs: everything that grows with the pool, divided by its blocks.
 * One sequence of one block, so that the rows do not count. */
#include "bench.h"

static double bytes_per_block(void *state)
{
    (void)state;
    kvp_config config;
    size_t n_bytes;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = POOL_BLOCKS;
    config.max_seqs = 1;
    config.max_seq_tokens = BLOCK_TOKENS;
    config.max_namespaces = 1;
    REQUIRE_OK(kvp_cache_bytes(&config, &n_bytes));
    return (double)n_bytes / POOL_BLOCKS;
}

static const measurement measurements[] = {
    {"bookkeeping_bytes_per_block", "B", 108 + 4 * BLOCK_TOKENS, 1, bytes_per_block, NULL,
     "block and unit of 16 tokens; not a time"},
};

const group memory_group = {measurements, sizeof measurements / sizeof *measurements, NULL, NULL};

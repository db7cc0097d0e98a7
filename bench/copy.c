/* Cold blocks copied in random order, as a swap does: GB/s of KV, one thread, beside memcpy of the
 * same blocks, that is, of the same addresses in another order of the same kind.
 *
 * Two tiers of one layer in one piece, so that a block is one range of 64 KiB or 1 MiB. Each sample
 * takes the next blocks of a random permutation; what it touches is flushed before it.
 * After a sample the last block's bytes are compared. */
#include "bench.h"

#include <kvpager/memory.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADS = 8,
    HEAD_SIZE = 128,
    SAMPLE_BYTES = 64 << 20,
    TIER_BYTES = 1 << 30,
    QUICK_TIER_BYTES = 128 << 20,
    SAMPLES = 41
};

typedef struct copy_state {
    size_t block_bytes;
    uint32_t n_blocks; /* of each tier, null block included */
    uint32_t n_copies; /* in a sample */
    kvp_memory *device;
    kvp_memory *host;
    kvp_copier *copier;
    kvp_copy *copies; /* [n_blocks - 1] a permutation of the blocks on both sides */
    uint32_t next;
} copy_state;

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 33;
}

static kvp_memory *make_tier(uint32_t n_blocks, uint32_t block_tokens, int first)
{
    kvp_layout layout;
    kvp_memory_options options;
    kvp_memory *memory;
    kvp_layout_init(&layout);
    layout.type = KVP_BF16;
    layout.n_blocks = n_blocks;
    layout.block_tokens = block_tokens;
    layout.n_layers = 1;
    layout.n_heads = HEADS;
    layout.k.size = layout.v.size = HEAD_SIZE;
    REQUIRE_OK(kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL));
    kvp_memory_options_init(&options);
    options.touch = 1;
    REQUIRE_OK(kvp_memory_create(&layout, &options, &memory));
    memset(kvp_memory_tensor(memory, 0), first, layout.k.tensor_bytes);
    return memory;
}

static void shuffle(copy_state *s)
{
    uint64_t random = 1;
    const uint32_t n = s->n_blocks - 1;
    for (uint32_t i = 0; i < n; i++)
        s->copies[i] = (kvp_copy){.src_tier = KVP_DEVICE,
                                  .dst_tier = KVP_HOST,
                                  .src_block = (int32_t)i + 1,
                                  .dst_block = (int32_t)i + 1};
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t a = (uint32_t)(draw(&random) % (i + 1));
        uint32_t b = (uint32_t)(draw(&random) % (i + 1));
        int32_t block = s->copies[i].src_block;
        s->copies[i].src_block = s->copies[a].src_block;
        s->copies[a].src_block = block;
        block = s->copies[i].dst_block;
        s->copies[i].dst_block = s->copies[b].dst_block;
        s->copies[b].dst_block = block;
    }
}

static void *set_up(const bench_options *options, size_t block_bytes)
{
    copy_state *s = allocate(sizeof *s);
    kvp_copier_config config;
    const uint32_t block_tokens = (uint32_t)(block_bytes / (2 * HEADS * HEAD_SIZE * 2));
    s->block_bytes = block_bytes;
    s->n_blocks = (uint32_t)((options->quick ? QUICK_TIER_BYTES : TIER_BYTES) / block_bytes);
    s->n_copies = (uint32_t)(SAMPLE_BYTES / block_bytes);
    s->device = make_tier(s->n_blocks, block_tokens, 1);
    s->host = make_tier(s->n_blocks, block_tokens, 2);
    s->copies = allocate(s->n_blocks * sizeof *s->copies);
    shuffle(s);
    for (uint32_t i = 0; i + 1 < s->n_blocks; i++)
        s->copies[i].n_tokens = block_tokens;
    kvp_copier_config_init(&config);
    config.device = &s->device;
    config.host = &s->host;
    REQUIRE_OK(kvp_copier_create(&config, &s->copier));
    note_huge_pages();
    return s;
}

static void *set_up_64k(const bench_options *options)
{
    return set_up(options, 64 << 10);
}

static void *set_up_1m(const bench_options *options)
{
    return set_up(options, 1 << 20);
}

static void tear_down(void *state)
{
    copy_state *s = state;
    kvp_copier_destroy(s->copier);
    kvp_memory_destroy(s->device);
    kvp_memory_destroy(s->host);
    free(s->copies);
    free(s);
}

static char *block_at(kvp_memory *memory, int32_t block, size_t block_bytes)
{
    return (char *)kvp_memory_tensor(memory, 0) + (size_t)block * block_bytes;
}

/* The next copies, their blocks cold, and the last destination another than its source. */
static const kvp_copy *prepare(copy_state *s)
{
    if (s->next + s->n_copies > s->n_blocks - 1)
        s->next = 0;
    const kvp_copy *copies = s->copies + s->next;
    const kvp_copy *last = &copies[s->n_copies - 1];
    s->next += s->n_copies;
    memset(block_at(s->host, last->dst_block, s->block_bytes), 3, s->block_bytes);
    for (uint32_t i = 0; i < s->n_copies; i++) {
        flush_caches(block_at(s->device, copies[i].src_block, s->block_bytes), s->block_bytes);
        flush_caches(block_at(s->host, copies[i].dst_block, s->block_bytes), s->block_bytes);
    }
    return copies;
}

static double gb_per_s(const copy_state *s, const kvp_copy *copies, uint64_t ns)
{
    const kvp_copy *last = &copies[s->n_copies - 1];
    REQUIRE(memcmp(block_at(s->device, last->src_block, s->block_bytes),
                   block_at(s->host, last->dst_block, s->block_bytes), s->block_bytes) == 0);
    return (double)s->n_copies * (double)s->block_bytes / (double)ns;
}

static double by_copier(void *state)
{
    copy_state *s = state;
    const kvp_copy *copies = prepare(s);
    uint64_t start = now_ns();
    REQUIRE_OK(kvp_copier_run(s->copier, copies, s->n_copies, NULL));
    return gb_per_s(s, copies, now_ns() - start);
}

static double by_memcpy(void *state)
{
    copy_state *s = state;
    const kvp_copy *copies = prepare(s);
    uint64_t start = now_ns();
    for (uint32_t i = 0; i < s->n_copies; i++)
        memcpy(block_at(s->host, copies[i].dst_block, s->block_bytes),
               block_at(s->device, copies[i].src_block, s->block_bytes), s->block_bytes);
    return gb_per_s(s, copies, now_ns() - start);
}

static const measurement of_64k[] = {
    {"copy_64k", "GB/s", 1.15, SAMPLES, by_copier, by_memcpy,
     "cold blocks in random order, 1 thread; more is better"},
};

static const measurement of_1m[] = {
    {"copy_1m", "GB/s", 1.3, SAMPLES, by_copier, by_memcpy,
     "cold blocks in random order, 1 thread; more is better"},
};

const group copy_64k_group = {of_64k, 1, set_up_64k, tear_down};
const group copy_1m_group = {of_1m, 1, set_up_1m, tear_down};

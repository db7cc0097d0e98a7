/* What the spill's calls cost for a long prompt.
 *
 *   spill_sealed_131072  a report of a sequence of 131,072 tokens that has nothing new
 *   spill_hit_131072     a hit of 131,072 tokens whose records are stored
 *
 * The yardstick makes all digests. The store is in memory, blocks are small. */
#include "bench.h"

#ifdef KVP_BENCH_STORE

#include <kvpager/spill.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

typedef struct engine {
    kvp_cache *cache;
    kvp_ns ns;
    kvp_store *store;
    kvp_spill *spill;
    uint8_t *host;
    kvp_copy *copies; /* [max_copies] */
    uint32_t max_copies;
} engine;

static void create_store(engine *e, const char *url, uint32_t host_blocks, uint64_t block_bytes,
                         uint32_t record_blocks)
{
    kvp_store_config config;
    kvp_spill_config spill;
    char why[300] = "";
    kvp_store_config_init(&config);
    config.url = url;
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = BLOCK_TOKENS;
    config.block_bytes[0] = block_bytes;
    config.record_blocks = record_blocks;
    config.max_ops = 256;
    REQUIRE_OK(kvp_store_open(&config, &e->store, why, sizeof why));
    e->host = aligned_alloc(4096, (size_t)host_blocks * block_bytes);
    REQUIRE(e->host != NULL);
    memset(e->host, 0x5A, (size_t)host_blocks * block_bytes);
    kvp_spill_config_init(&spill);
    spill.cache = e->cache;
    spill.store = e->store;
    spill.fingerprint = config.fingerprint;
    spill.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    spill.block_bytes[0] = block_bytes;
    spill.host[0] = (kvp_spill_host){e->host, (size_t)block_bytes};
    spill.policy = KVP_SPILL_THROUGH;
    spill.max_puts = 4096;
    REQUIRE_OK(kvp_spill_create(&spill, &e->spill, why, sizeof why));
    REQUIRE_OK(kvp_spill_space(e->spill, e->ns, "bench", 5, 0));
}

static void destroy_engine(engine *e)
{
    kvp_store_close(e->store);
    kvp_spill_destroy(e->spill);
    kvp_cache_destroy(e->cache);
    free(e->host);
    free(e->copies);
}

static void run_plan(engine *e)
{
    kvp_stats stats;
    uint32_t n = 0;
    REQUIRE_OK(kvp_plan_take(e->cache, e->copies, e->max_copies, &n));
    REQUIRE_OK(kvp_cache_stats_get(e->cache, &stats));
    REQUIRE_OK(kvp_plan_done(e->cache, stats.plans));
}

/* -------------------------------------------------------------------------------- a long prompt */

enum { CALLS = 100, LONG_BLOCK_BYTES = 64, LONG_RECORD = 4 };

typedef struct long_state {
    engine e;
    kvp_seq seq;
    int32_t *tokens;
    kvp_digest *digests;
    kvp_digester *digester;
} long_state;

static void *set_up_long(const bench_options *options)
{
    long_state *s = allocate(sizeof *s);
    kvp_config config;
    kvp_spill_answer answers[1];
    kvp_spill_stats stats = {.puts = 1};
    uint32_t n;
    (void)options;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = PROMPT_BLOCKS + 16;
    config.host_blocks = 2 * PROMPT_BLOCKS;
    config.max_seqs = 4;
    config.max_seq_tokens = PROMPT_TOKENS;
    config.max_copies = 2 * PROMPT_BLOCKS;
    config.max_loads = 4;
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &s->e.cache));
    REQUIRE_OK(kvp_ns_open(s->e.cache, "bench", 5, &s->e.ns));
    s->e.max_copies = config.max_copies;
    s->e.copies = allocate(config.max_copies * sizeof *s->e.copies);
    create_store(&s->e, "memory:?size=64MiB", config.host_blocks, LONG_BLOCK_BYTES, LONG_RECORD);
    REQUIRE_OK(kvp_digester_create(&s->digester));
    s->tokens = allocate(PROMPT_TOKENS * sizeof *s->tokens);
    s->digests = allocate(PROMPT_BLOCKS * sizeof *s->digests);
    world_fill_tokens(1, s->tokens, PROMPT_TOKENS);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->tokens, .n_tokens = PROMPT_TOKENS};
    REQUIRE_OK(kvp_seq_open(s->e.cache, s->e.ns, &prompt, &s->seq, NULL));
    REQUIRE_OK(kvp_seq_commit(s->e.cache, s->seq, PROMPT_TOKENS));
    REQUIRE_OK(kvp_spill_sealed(s->e.spill, s->seq, now_ns()));
    while (stats.puts > 0) {
        run_plan(&s->e);
        REQUIRE_OK(kvp_spill_work(s->e.spill, now_ns(), answers, 1, &n));
        (void)kvp_store_wait(s->e.store, UINT64_C(1000000));
        REQUIRE_OK(kvp_spill_stats_get(s->e.spill, &stats));
    }
    REQUIRE(stats.written == PROMPT_TOKENS / (LONG_RECORD * BLOCK_TOKENS));
    return s;
}

static void tear_down_long(void *state)
{
    long_state *s = state;
    destroy_engine(&s->e);
    kvp_digester_destroy(s->digester);
    free(s->tokens);
    free(s->digests);
    free(s);
}

static double sealed(void *state)
{
    long_state *s = state;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        REQUIRE_OK(kvp_spill_sealed(s->e.spill, s->seq, start));
    return (double)(now_ns() - start) / (CALLS * 1000.0);
}

static double hit(void *state)
{
    long_state *s = state;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < CALLS; i++)
        REQUIRE_OK(kvp_spill_hit(s->e.spill, s->seq, PROMPT_TOKENS, start));
    return (double)(now_ns() - start) / (CALLS * 1000.0);
}

static double digests(void *state)
{
    long_state *s = state;
    const kvp_digest root = {{1}};
    const kvp_hash_input input = {
        .unit_tokens = BLOCK_TOKENS, .n_tokens = PROMPT_TOKENS, .tokens = s->tokens};
    const uint64_t start = now_ns();
    REQUIRE_OK(kvp_digest_blocks(s->digester, &input, &root, s->digests));
    return (double)(now_ns() - start) / 1000;
}

static const measurement long_rows[] = {
    {"spill_sealed_131072", "us", 20, 31, sealed, digests,
     "a report with nothing new; yardstick: all digests"},
    {"spill_hit_131072", "us", 0, 31, hit, digests, "a hit that is stored"},
};

const group spill_long_group = {long_rows, 2, set_up_long, tear_down_long};

#else

const group spill_long_group = {NULL, 0, NULL, NULL}; /* libkvpager_store is not built here */

#endif

/* Records of eight blocks for the benchmarks of one store: what they are, and its answers. After
 * bench.h. */
#ifndef KVP_BENCH_STORE_RECORDS_H
#define KVP_BENCH_STORE_RECORDS_H

#include <kvpager/store.h>
#include <string.h>

enum { RECORD_BLOCKS = 8 };

static inline kvp_identity record_of(uint64_t number)
{
    static const int32_t tokens[RECORD_BLOCKS];
    kvp_identity identity = {.kind = KVP_IDENTITY_TOKENS,
                             .slice = {.n_layers = 1, .n_heads = 1},
                             .block_tokens = 1,
                             .n_blocks = RECORD_BLOCKS,
                             .tokens = tokens};
    memset(identity.fingerprint.bytes, 7, sizeof identity.fingerprint.bytes);
    memcpy(identity.digest.bytes, &number, sizeof number);
    return identity;
}

/* Memory of RECORD_BLOCKS blocks, as their addresses. */
static inline void list_blocks(uint8_t *memory, size_t block_bytes, void *out[RECORD_BLOCKS])
{
    for (uint32_t b = 0; b < RECORD_BLOCKS; b++)
        out[b] = memory + (size_t)b * block_bytes;
}

static inline uint8_t *make_blocks(size_t block_bytes)
{
    uint8_t *memory = aligned_alloc(4096, RECORD_BLOCKS * block_bytes);
    REQUIRE(memory != NULL);
    memset(memory, 0x5A, RECORD_BLOCKS * block_bytes);
    return memory;
}

static inline kvp_store *open_records(const char *url, size_t block_bytes)
{
    kvp_store *store = NULL;
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = url;
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = 1;
    config.block_bytes[0] = block_bytes;
    config.record_blocks = RECORD_BLOCKS;
    config.key_bytes = 0;
    REQUIRE_OK(kvp_store_open(&config, &store, NULL, 0));
    return store;
}

/* The result of the only operation that is on its way. */
static inline uint32_t wait_for(kvp_store *store)
{
    kvp_store_done done = {0};
    uint32_t n = 0;
    while (n == 0) {
        (void)kvp_store_wait(store, UINT64_C(1000000000));
        REQUIRE_OK(kvp_store_poll(store, &done, 1, &n));
    }
    return done.result;
}

#endif

/* Records of the redis tests: chains whose tokens and KV are made of their numbers. */
#ifndef KVP_TEST_REDIS_RECORDS_H
#define KVP_TEST_REDIS_RECORDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/redis/redis.h"
#include "../store/store_inputs.h"

enum { BLOCK_BYTES = 5000, BLOCKS = 2, TOKENS = 4 };

struct record {
    int32_t tokens[BLOCKS * TOKENS];
    kvp_identity identity;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    kvp_digest key;
};

static inline void make_record(struct record *record, unsigned chain, unsigned n,
                               const struct record *parent)
{
    memset(record, 0, sizeof *record);
    record->identity = input_identity(record->tokens, BLOCKS, TOKENS, n, chain * 1000 + n * 100);
    record->identity.digest = input_digest(chain * 16 + n);
    if (parent)
        record->identity.parent = parent->key;
    for (int i = 0; i < BLOCKS; i++) {
        input_pattern(record->kv[i], BLOCK_BYTES, chain * 31 + n * 5 + (unsigned)i);
        record->blocks[i] = record->kv[i];
    }
    record->key = input_key(&record->identity);
}

static inline kvp_store_config config_of(const char *url)
{
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = BLOCKS;
    config.key_bytes = 100;
    config.max_ops = 32;
    config.threads = 0;
    return config;
}

static inline kvp_store *open_store(const kvp_store_config *config)
{
    kvp_store *store = NULL;
    char why[300];
    if (kvpi_store_open(config, &kvpi_redis_backend, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

static inline uint32_t put(kvp_store *store, struct record *record)
{
    assert_int_equal(kvp_store_put(store, &record->identity, record->blocks, 7), KVP_OK);
    return input_result(store);
}

/* Gets into other memory, and compares what comes. */
static inline uint32_t get(kvp_store *store, const struct record *record)
{
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    memset(kv, 0xEE, sizeof kv);
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    assert_int_equal(kvp_store_get(store, &record->identity, blocks, 8), KVP_OK);
    const uint32_t result = input_result(store);
    if (result == KVP_STORE_OK)
        assert_memory_equal(kv, record->kv, sizeof kv);
    return result;
}

static inline uint64_t have(kvp_store *store, const struct record *records, uint32_t n)
{
    kvp_digest keys[64];
    uint64_t bits = ~UINT64_C(0);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = records[i].key;
    assert_int_equal(kvp_store_have(store, keys, n, &bits, 9), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    return bits;
}

static inline kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

#endif

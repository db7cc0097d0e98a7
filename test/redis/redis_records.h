/* Records of the redis tests: what they hold, put and get. */
#ifndef KVP_TEST_REDIS_RECORDS_H
#define KVP_TEST_REDIS_RECORDS_H

#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "store/redis/redis.h"

#ifndef BLOCKS_ARE_LARGE
#define BLOCKS_ARE_LARGE 0 /* 1: records are large (form.h) */
#endif

enum { BLOCK_BYTES = BLOCKS_ARE_LARGE ? 33000 : 5000, BLOCKS = 2, TOKENS = 4 };

#include "../store/chain_records.h"

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

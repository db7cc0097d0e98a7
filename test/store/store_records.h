/* Records of one block each for the tests of the file store: what they hold, put and get. After
 * cmocka.h. */
#ifndef KVP_TEST_STORE_RECORDS_H
#define KVP_TEST_STORE_RECORDS_H

#include <string.h>

#include "store_inputs.h"

enum { BLOCK_BYTES = 4096, TOKENS = 4 };

struct record {
    int32_t tokens[TOKENS];
    kvp_identity identity;
    uint8_t kv[BLOCK_BYTES];
    void *block;
    kvp_digest key;
};

/* records[r], the one with number n of its chain: behind records[r - 1], unless n is 0. */
static inline void record_make(struct record *records, unsigned r, unsigned n, uint64_t space)
{
    struct record *record = &records[r];
    record->identity = input_identity(record->tokens, 1, TOKENS, n, r * 100);
    record->identity.digest = input_digest(r);
    record->identity.space = space;
    if (n > 0)
        record->identity.parent = records[r - 1].key;
    input_pattern(record->kv, BLOCK_BYTES, r);
    record->block = record->kv;
    record->key = input_key(&record->identity);
}

/* Of a store that has such records, and no thread. */
static inline kvp_store_config record_config(const char *url)
{
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = 1;
    config.key_bytes = 0;
    config.threads = 0;
    return config;
}

static inline uint32_t record_put(kvp_store *store, struct record *record)
{
    assert_int_equal(kvp_store_put(store, &record->identity, &record->block, 0), KVP_OK);
    return input_result(store);
}

/* What comes back is the record's KV. */
static inline uint32_t record_get(kvp_store *store, const struct record *record)
{
    uint8_t kv[BLOCK_BYTES];
    void *block = kv;
    assert_int_equal(kvp_store_get(store, &record->identity, &block, 0), KVP_OK);
    const uint32_t result = input_result(store);
    if (result == KVP_STORE_OK)
        assert_memory_equal(kv, record->kv, sizeof kv);
    return result;
}

#endif

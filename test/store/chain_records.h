/* Records of chains, whose tokens and KV are made of their numbers, and the store that has such
 * records. Before it an enum has BLOCK_BYTES, BLOCKS and TOKENS. After cmocka.h. */
#ifndef KVP_TEST_CHAIN_RECORDS_H
#define KVP_TEST_CHAIN_RECORDS_H

#include <string.h>

#include "store_inputs.h"

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

/* Without a thread. */
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

#endif

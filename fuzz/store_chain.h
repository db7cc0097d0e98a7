/* A chain of records that targets put into stores: one block each, all bytes of a record alike. */
#ifndef FUZZ_STORE_CHAIN_H
#define FUZZ_STORE_CHAIN_H

#include <string.h>

#include <kvpager/store.h>

#include "require.h"

enum { TOKENS = 4, BLOCK_BYTES = 64 };

struct record {
    int32_t tokens[TOKENS];
    kvp_identity identity;
    kvp_digest key;
    uint8_t kv[BLOCK_BYTES];
};

static inline void make_chain(struct record *records, int32_t n)
{
    kvp_digester *digester;
    require(kvp_digester_create(&digester) == KVP_OK);
    for (int32_t r = 0; r < n; r++) {
        struct record *record = &records[r];
        for (int32_t i = 0; i < TOKENS; i++)
            record->tokens[i] = r * 10 + i;
        record->identity = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                          .slice = {.n_layers = 1, .n_heads = 1},
                                          .fingerprint = {{1}},
                                          .digest = {{(uint8_t)(r + 1)}},
                                          .position = (uint32_t)r * TOKENS,
                                          .block_tokens = TOKENS,
                                          .n_blocks = 1,
                                          .tokens = record->tokens};
        if (r > 0)
            record->identity.parent = records[r - 1].key;
        require(kvp_record_key(digester, &record->identity.digest, 0, &record->identity.slice,
                               &record->key) == KVP_OK);
        memset(record->kv, r + 1, sizeof record->kv);
    }
    kvp_digester_destroy(digester);
}

#endif

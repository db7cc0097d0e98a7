/* Inputs of the store's tests, from the formulas of test/golden/make_store_vectors.py. */
#ifndef KVP_TEST_STORE_INPUTS_H
#define KVP_TEST_STORE_INPUTS_H

#include <stdint.h>

#include <kvpager/store.h>

static inline void close_store(kvp_store **store)
{
    kvp_store_close(*store);
}

#define scoped_store ENDED_BY(close_store) kvp_store /* of mocka.h */

enum { INPUT_TOKENS = 32, INPUT_KEYS = 2 };

/* n bytes start, start + 7, start + 14, ... */
static inline void input_pattern(void *out, size_t n, unsigned start)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out)[i] = (uint8_t)(start + 7 * i);
}

static inline kvp_digest input_digest(unsigned start)
{
    kvp_digest digest;
    input_pattern(digest.bytes, sizeof digest.bytes, start);
    return digest;
}

/* The record with number `n` of a chain, in a store whose fingerprint is input_digest(1); its
 * tokens are first, first + 1, ... */
static inline kvp_identity input_identity(int32_t *out_tokens, uint32_t n_blocks,
                                          uint32_t block_tokens, unsigned n, unsigned first)
{
    for (uint32_t i = 0; i < n_blocks * block_tokens; i++)
        out_tokens[i] = (int32_t)(first + i);
    return (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                          .slice = {.n_layers = 1, .n_heads = 1},
                          .fingerprint = input_digest(1),
                          .position = n * n_blocks * block_tokens,
                          .block_tokens = block_tokens,
                          .n_blocks = n_blocks,
                          .tokens = out_tokens};
}

/* All zero if there is no digester. */
static inline kvp_digest input_key(const kvp_identity *identity)
{
    kvp_digest key = {{0}};
    kvp_digester *digester;
    if (kvp_digester_create(&digester) != KVP_OK)
        return key;
    kvp_record_key(digester, &identity->digest, identity->group, &identity->slice, &key);
    kvp_digester_destroy(digester);
    return key;
}

/* The result of the only operation that is on its way, with or without the store's thread. */
static inline uint32_t input_result(kvp_store *store)
{
    kvp_store_done done = {0};
    uint32_t n = 0;
    while (n == 0) {
        if (kvp_store_work(store, NULL) == KVP_E_STATE)
            kvp_store_wait(store, UINT64_C(1000000000));
        kvp_store_poll(store, &done, 1, &n);
    }
    return done.result;
}

static inline void input_tokens(int32_t out_tokens[INPUT_TOKENS])
{
    for (int32_t i = 0; i < INPUT_TOKENS; i++)
        out_tokens[i] = i * 7919 % 50000;
}

static inline kvp_fingerprint_input input_fingerprint(void)
{
    kvp_fingerprint_input input;
    kvp_fingerprint_input_init(&input);
    input.weights = input_digest(1);
    input.compute_type = "bf16";
    input.type = KVP_BF16;
    input.k_size = input.v_size = 128;
    input.model_layers = 32;
    input.model_heads = 8;
    input.slice = (kvp_slice){.n_layers = 32, .n_heads = 8};
    input.block_tokens = input.unit_tokens = 16;
    return input;
}

enum { INPUT_OTHERS = 24 };

/* input_fingerprint with another value in one field each, every field once. Gives their number. */
static inline size_t input_other_fingerprints(kvp_fingerprint_input other[INPUT_OTHERS])
{
    const kvp_fingerprint_input same = input_fingerprint();
    size_t n = 0;
#define OTHER(field, value)                                                                        \
    do {                                                                                           \
        other[n] = same;                                                                           \
        other[n++].field = (value);                                                                \
    } while (0)
    OTHER(weights.bytes[31], 0);
    OTHER(quantisation, "awq");
    OTHER(compute_type, "f16");
    OTHER(type, KVP_F16);
    OTHER(scales, 1);
    OTHER(k_size, 127);
    OTHER(v_size, 0);
    OTHER(model_layers, 33);
    OTHER(model_heads, 9);
    OTHER(slice.first_layer, 1);
    other[n - 1].model_layers = 33;
    OTHER(slice.n_layers, 31);
    OTHER(slice.first_head, 1);
    other[n - 1].model_heads = 9;
    OTHER(slice.n_heads, 7);
    OTHER(block_tokens, 32);
    OTHER(unit_tokens, 8);
    OTHER(n_groups, 2);
    OTHER(groups[0].recent_tokens, 4096);
    OTHER(groups[0].recent_tokens, 4096);
    other[n - 1].groups[0].sink_tokens = 4;
    OTHER(groups[0].block_tokens, 32);
    OTHER(groups[0].block_tokens, 48);
    OTHER(order, "NSHD");
    OTHER(rope, "a");
    other[n - 1].rope_bytes = 1;
    OTHER(draft, "a");
    other[n - 1].draft_bytes = 1;
#undef OTHER
    return n;
}

static const kvp_key input_keys[INPUT_KEYS] = {
    {.type = 1, .begin = 3, .end = 20, .n_bytes = 5, .bytes = "image"},
    {.type = 2, .begin = 16, .end = 17},
};

#endif

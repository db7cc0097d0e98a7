/* Inputs of the store's tests, from the formulas of test/golden/make_store_vectors.py. */
#ifndef KVP_TEST_STORE_INPUTS_H
#define KVP_TEST_STORE_INPUTS_H

#include <stdint.h>

#include <kvpager/identity.h>

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

static const kvp_key input_keys[INPUT_KEYS] = {
    {.type = 1, .begin = 3, .end = 20, .n_bytes = 5, .bytes = "image"},
    {.type = 2, .begin = 16, .end = 17},
};

#endif

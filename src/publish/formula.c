/* formula: see formula.h. */
#include "publish/formula.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGEST_BYTES = 32,
    HEAD_BYTES = 5, /* of an item of CBOR: its kind, and a number of 32 bits */
    BYTES = 2,      /* major types */
    TEXT = 3,
    ARRAY = 4,
    CBOR_NULL = 0xf6
};

static const char SEED[] = "vllm-none-hash";

/* The head of an item: its type and the shortest form of a number. */
static size_t put_head(uint8_t *at, unsigned type, uint32_t number)
{
    const unsigned n_bytes = number < 24 ? 0 : number < 0x100 ? 1 : number < 0x10000 ? 2 : 4;
    const unsigned form = n_bytes == 0 ? number : n_bytes == 1 ? 24 : n_bytes == 2 ? 25 : 26;
    at[0] = (uint8_t)(type << 5 | form);
    for (unsigned i = 0; i < n_bytes; i++) {
        at[1 + i] = (uint8_t)(number >> 8 * (n_bytes - 1 - i));
    }
    return 1 + n_bytes;
}

static kvp_status digest_of(const struct kvpi_formula *formula, const uint8_t *bytes,
                            size_t n_bytes, uint8_t out_digest[DIGEST_BYTES])
{
    unsigned n = 0;
    return EVP_Digest(bytes, n_bytes, out_digest, &n, formula->digest, NULL) == 1 ? KVP_OK
                                                                                  : KVP_E_IO;
}

kvp_status kvpi_formula_open(struct kvpi_formula *formula, uint32_t unit_tokens)
{
    uint8_t seed[HEAD_BYTES + sizeof(SEED)];
    memset(formula, 0, sizeof(*formula));
    formula->n_bytes = 3 * HEAD_BYTES + DIGEST_BYTES + HEAD_BYTES * (size_t)unit_tokens + 1;
    formula->bytes = malloc(formula->n_bytes);
    formula->digest = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (formula->bytes == NULL || formula->digest == NULL) {
        const kvp_status status = formula->bytes == NULL ? KVP_E_NO_MEMORY : KVP_E_IO;
        kvpi_formula_close(formula);
        return status;
    }
    size_t n = put_head(seed, TEXT, sizeof(SEED) - 1);
    memcpy(seed + n, SEED, sizeof(SEED) - 1);
    n += sizeof(SEED) - 1;
    const kvp_status status = digest_of(formula, seed, n, formula->root);
    if (status != KVP_OK) {
        kvpi_formula_close(formula);
    }
    return status;
}

void kvpi_formula_close(struct kvpi_formula *formula)
{
    EVP_MD_free(formula->digest);
    free(formula->bytes);
    memset(formula, 0, sizeof(*formula));
}

kvp_status kvpi_formula_block(struct kvpi_formula *formula, const uint8_t before[DIGEST_BYTES],
                              const int32_t *tokens, uint32_t n_tokens,
                              uint8_t out_digest[DIGEST_BYTES])
{
    uint8_t *at = formula->bytes;
    at += put_head(at, ARRAY, 3);
    at += put_head(at, BYTES, DIGEST_BYTES);
    memcpy(at, before, DIGEST_BYTES);
    at += DIGEST_BYTES;
    at += put_head(at, ARRAY, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i++) {
        at += put_head(at, 0, (uint32_t)tokens[i]);
    }
    *at++ = CBOR_NULL;
    return digest_of(formula, formula->bytes, (size_t)(at - formula->bytes), out_digest);
}

uint64_t kvpi_wire_number(const uint8_t *bytes, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = n_bytes - 8; i < n_bytes; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

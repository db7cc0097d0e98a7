/* formula: vLLM's block hash with sha256_cbor and its default seed: SHA-256 over canonical CBOR of
 * (digest of the block before, tokens, null). Its number on the wire is the last 8 bytes. */
#ifndef KVPI_PUBLISH_FORMULA_H
#define KVPI_PUBLISH_FORMULA_H

#include <kvpager/types.h>

#include <stddef.h>
#include <stdint.h>

struct kvpi_formula {
    void *digest;   /* libcrypto's SHA-256 */
    uint8_t *bytes; /* [n_bytes] of one block as CBOR */
    size_t n_bytes;
    uint8_t root[32];
};

kvp_status kvpi_formula_open(struct kvpi_formula *formula, uint32_t unit_tokens);
void kvpi_formula_close(struct kvpi_formula *formula);

/* The digest of a block of tokens, none of them negative, behind `before`. KVP_E_IO: libcrypto
 * refuses. */
kvp_status kvpi_formula_block(struct kvpi_formula *formula, const uint8_t before[32],
                              const int32_t *tokens, uint32_t n_tokens, uint8_t out_digest[32]);

/* The last 8 of n_bytes, big-endian. */
uint64_t kvpi_wire_number(const uint8_t *bytes, size_t n_bytes);

#endif

/* chain: digests of blocks without keys, by the processor's own instructions for SHA-256.
 *
 *   message  | parent [32] | tokens [size] i32 | 0 u32 | padding of SHA-256 |
 *
 * All messages of a chain have the same length, so the padding is written once. A digest's words
 * are the first words of the next message: they stay in registers. What bounds a chain is the
 * latency of its rounds: 256 cycles for 16 tokens, where two rounds take four. */
#ifndef KVPI_STORE_CHAIN_H
#define KVPI_STORE_CHAIN_H

#include <kvpager/identity.h>

enum { KVPI_CHAIN_TOKENS = 64 /* of a block, at most */ };

/* tokens: [n][size], size 1..KVPI_CHAIN_TOKENS, n at least 1. parent may be one of out_digests. */
typedef void (*kvpi_chain_fn)(const kvp_digest *parent, const int32_t *tokens, uint32_t size,
                              uint32_t n, kvp_digest *out_digests);

/* NULL: this processor has no such instructions. */
kvpi_chain_fn kvpi_chain_x86(void);

#endif

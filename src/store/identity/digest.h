/* digest: the inside of a kvp_digester, for files that add pieces themselves. */
#ifndef KVPI_STORE_DIGEST_H
#define KVPI_STORE_DIGEST_H

#include "store/identity/chain.h"
#include "store/identity/crypto.h"

struct kvp_digester {
    struct kvpi_sha sha;
    kvpi_chain_fn chain; /* NULL: blocks without keys are hashed by libcrypto, too */
};

void kvpi_digest_add32(struct kvpi_sha *sha, uint32_t value);
void kvpi_digest_add64(struct kvpi_sha *sha, uint64_t value);
void kvpi_digest_add_slice(struct kvpi_sha *sha, const kvp_slice *slice);

#endif

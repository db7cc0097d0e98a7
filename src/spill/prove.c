/* prove: the blocks of a prefix, found by hashes. A hash only finds a candidate: tokens and
 * keys prove what a block is of. */
#include "spill/spill_state.h"

#include <string.h>

static uint32_t place_of_hash(const kvp_spill *spill, const kvp_hash *hash, uint32_t group)
{
    uint32_t place;
    memcpy(&place, hash->bytes, sizeof(place));
    return (place + group) & spill->flush.mask;
}

void kvpi_prove_index(kvp_spill *spill)
{
    struct kvpi_spill_flush *flush = &spill->flush;
    memset(flush->index, 0, ((size_t)flush->mask + 1) * sizeof(*flush->index));
    for (uint32_t block = 1; block < spill->cache.host_blocks; block++) {
        kvp_block_info info;
        if (kvp_block_info_get(spill->config.cache, 0, KVP_HOST, (int32_t)block, &info) != KVP_OK ||
            info.sealed_tokens < kvpi_spill_block_tokens(spill, info.group)) {
            continue;
        }
        uint32_t place = place_of_hash(spill, &info.hash, info.group);
        while (flush->index[place] != KVP_NULL_BLOCK) {
            place = (place + 1) & flush->mask;
        }
        flush->index[place] = (int32_t)block;
    }
}

static int32_t find_block(const kvp_spill *spill, const kvp_hash *hash, uint32_t group)
{
    const struct kvpi_spill_flush *flush = &spill->flush;
    uint32_t place = place_of_hash(spill, hash, group);
    for (; flush->index[place] != KVP_NULL_BLOCK; place = (place + 1) & flush->mask) {
        kvp_block_info info;
        if (kvp_block_info_get(spill->config.cache, group, KVP_HOST, flush->index[place], &info) ==
                KVP_OK &&
            info.group == group && info.sealed_tokens == kvpi_spill_block_tokens(spill, group) &&
            memcmp(&info.hash, hash, sizeof(*hash)) == 0) {
            return flush->index[place];
        }
    }
    return KVP_NULL_BLOCK;
}

kvp_status kvpi_prove_rows(kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                           const kvp_hash *root)
{
    const kvp_hash_input input = {.unit_tokens = spill->cache.unit_tokens,
                                  .n_tokens = prefix->n_tokens,
                                  .tokens = spill->tokens,
                                  .keys = prefix->n_keys > 0 ? spill->keys : NULL,
                                  .n_keys = prefix->n_keys};
    const kvp_status status = kvp_hash_units(&input, root, spill->flush.hashes);
    for (uint32_t g = 0; g < spill->cache.n_groups && status == KVP_OK; g++) {
        int32_t *row = spill->rows + (size_t)g * spill->max_entries;
        const uint32_t S = kvpi_spill_block_tokens(spill, g);
        const uint32_t per_block = S / spill->cache.unit_tokens;
        for (uint32_t i = 0; i < prefix->n_tokens / S; i++) {
            row[i] = find_block(spill, &spill->flush.hashes[(i + 1) * per_block - 1], g);
        }
    }
    return status;
}

static int same_key(const kvp_key *a, const kvp_key *b)
{
    return a->type == b->type && a->begin == b->begin && a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->bytes, b->bytes, a->n_bytes) == 0);
}

/* Keys of equal type and bytes have equal length, so their ends need not be compared. */
static int has_keys(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix, int32_t block,
                    uint32_t n_tokens)
{
    const struct kvpi_spill_flush *flush = &spill->flush;
    uint32_t n_expected = 0;
    uint32_t n = 0;
    while (n_expected < prefix->n_keys && spill->keys[n_expected].begin < n_tokens) {
        n_expected++;
    }
    if (kvp_block_keys(spill->config.cache, KVP_HOST, block, NULL, 0, &n) != KVP_OK ||
        n != n_expected || n > spill->config.max_keys) {
        return 0;
    }
    if (n > 0 &&
        kvp_block_keys(spill->config.cache, KVP_HOST, block, flush->keys, n, &n) != KVP_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!same_key(&flush->keys[i], &spill->keys[i])) {
            return 0;
        }
    }
    return 1;
}

int kvpi_prove_block(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix, int32_t block,
                     uint32_t n_tokens)
{
    uint32_t n = 0;
    return kvp_block_prefix(spill->config.cache, KVP_HOST, block, spill->flush.tokens, n_tokens,
                            &n) == KVP_OK &&
           n == n_tokens &&
           memcmp(spill->flush.tokens, spill->tokens, n * sizeof(*spill->tokens)) == 0 &&
           has_keys(spill, prefix, block, n_tokens);
}

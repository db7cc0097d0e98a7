/* learned: tells the policy what a request was, as its sequence is closed (policy.h).
 *
 *   row      [ hit | hit | hit | prompt | prompt | output | output, not full ]
 *   uses       <-------------- sealed, each in the block of its node ------->
 *   hits       <------------->  blocks that were on the device when it was opened
 *
 *   hits   [max_seqs]   by place: these; KVPI_NO_REQUEST: a fork, or free. And their sum
 *   names  [max_blocks] scratch: of the groups of blocks, 32 bits of the last unit's hash
 */
#include "core/seq/learned.h"

#include <string.h>

static uint32_t *hits_of(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    uint32_t *hits = kvpi_at(cache, cache->learning.hits_at);
    return &hits[kvpi_seq_place(&cache->table, seq)];
}

void kvpi_learned_open(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n_shared)
{
    const int32_t *row = kvpi_row(cache, seq, 0);
    uint32_t n = 0;
    while (n < n_shared && row[n] > 0) {
        n++;
    }
    *hits_of(cache, seq) = n;
    cache->learning.hits += n;
}

void kvpi_learned_reset(kvp_cache *cache)
{
    cache->learning.hits = 0;
    if (kvpi_learns(cache)) {
        memset(kvpi_at(cache, cache->learning.hits_at), 0xff,
               cache->table.max_seqs * sizeof(uint32_t));
    }
}

/* Leading entries of the row whose block has the KV of the whole entry as its content. */
static uint32_t count_sealed(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const int32_t *row = kvpi_row(cache, seq, 0);
    const uint32_t end = kvpi_min_u32(seq->n_blocks, seq->n_units / units_per_block);
    uint32_t n = 0;
    while (n < end && kvpi_block(&cache->pool, (uint32_t)row[n])->content ==
                          nodes[(n + 1) * units_per_block - 1]) {
        n++;
    }
    return n;
}

/* Blocks that LRU would not have room for either: what is held, but for what other requests hit.
 * They may have hit it in LRU, too, and there it is counted. */
static uint32_t count_held(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint64_t n_held = kvpi_read(&cache->pool.n_held);
    const uint64_t others = n_held - kvpi_min_u64(n_held, cache->learning.hits);
    return (uint32_t)(others > seq->n_blocks ? others : seq->n_blocks);
}

void kvpi_learned_close(kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t n_hits = *hits_of(cache, seq);
    *hits_of(cache, seq) = KVPI_NO_REQUEST;
    cache->learning.hits -= n_hits == KVPI_NO_REQUEST ? 0 : n_hits;
    if (n_hits == KVPI_NO_REQUEST || seq->tier != KVP_DEVICE) {
        return;
    }
    struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    const uint32_t units = kvpi_units_per_block(cache) * policy->group_blocks; /* of a group */
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const uint32_t n_blocks = count_sealed(cache, seq);
    uint32_t *names = kvpi_at(cache, cache->learning.names_at);
    for (uint32_t group = 0; group < n_blocks / policy->group_blocks; group++) {
        const uint32_t last = nodes[(size_t)(group + 1) * units - 1];
        names[group] = kvpi_hash_tag(&kvpi_node(&cache->prefix, last)->hash);
    }
    const struct kvpi_policy_request use = {
        .blocks = (const uint32_t *)kvpi_row(cache, seq, 0), /* none is null */
        .names = names,
        .n_blocks = n_blocks,
        .n_held = count_held(cache, seq),
        .n_prompt = kvpi_min_u32(n_blocks, seq->prompt / cache->config.block_tokens),
        .n_hits = n_hits,
        .prompt_tokens = seq->prompt,
        .output_tokens = seq->tokens - seq->prompt};
    const enum kvpi_policy_fallback fallback = kvpi_policy_fallback(policy);
    kvpi_policy_use(policy, &use);
    kvpi_count(&cache->counters.references, n_blocks);
    kvpi_count(&cache->counters.fallback_by[fallback], n_blocks);
    kvpi_set(&cache->counters.learned_hits, policy->hit_blocks);
    kvpi_set(&cache->counters.lru_hits, policy->lru_blocks);
}

/* learned: tells the policy what a request was, as its sequence is closed (policy.h).
 *
 *   row      [ hit | hit | hit | prompt | prompt | output | output, not full ]
 *   uses       <-------------- sealed, each in the block of its node ------->
 *   hits       <------------->  blocks that were on the device when it was opened
 *
 *   hits   [max_seqs]   by place: these; KVPI_NO_REQUEST: a fork, or free. And their sum
 *   groups [max_blocks] scratch: of blocks; their names are 32 bits of the last unit's hash
 *
 * And the public calls about the policy: core/policy knows no public header, here its tables become
 * the fields of policy.h.
 */
#include "core/seq/learned.h"

#include <kvpager/policy.h>

#include "base/sized.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"

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
    const uint32_t units_per_block = kvpi_units_per_block(cache, 0);
    const struct kvpi_block *blocks = kvpi_blocks(&cache->pool);
    const uint32_t *node = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const int32_t *row = kvpi_row(cache, seq, 0);
    const uint32_t end =
        kvpi_min_u32(kvpi_row_entries(cache, seq, 0), seq->n_units / units_per_block);
    uint32_t n = 0;
    for (node += units_per_block - 1; n < end && blocks[row[n]].content == *node; n++) {
        node += units_per_block;
    }
    return n;
}

/* Blocks that LRU would not have room for either: what is held, except what other requests hit.
 * They may have hit it in LRU, too, and there it is counted. */
static uint32_t count_held(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint64_t n_held = kvpi_read(&cache->pool.n_held);
    const uint64_t others = n_held - kvpi_min_u64(n_held, cache->learning.hits);
    const uint32_t ours = kvpi_row_entries(cache, seq, 0);
    return (uint32_t)(others > ours ? others : ours);
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
    const uint32_t units = kvpi_units_per_block(cache, 0) * policy->group_blocks; /* of a group */
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const uint32_t n_blocks = count_sealed(cache, seq);
    struct kvpi_policy_group *groups = kvpi_at(cache, cache->learning.groups_at);
    for (uint32_t group = 0; group < n_blocks / policy->group_blocks; group++) {
        const uint32_t last = nodes[(size_t)(group + 1) * units - 1];
        groups[group].name = kvpi_hash_tag(&kvpi_node(&cache->prefix, last)->hash);
    }
    const struct kvpi_policy_request use = {
        .blocks = (const uint32_t *)kvpi_row(cache, seq, 0), /* none is null */
        .groups = groups,
        .n_blocks = n_blocks,
        .n_held = count_held(cache, seq),
        .n_prompt = kvpi_min_u32(n_blocks, seq->prompt / kvpi_block_tokens(cache, 0)),
        .n_hits = n_hits,
        .prompt_tokens = seq->prompt,
        .output_tokens = seq->tokens - seq->prompt};
    const enum kvpi_policy_fallback fallback = kvpi_policy_fallback(policy);
    kvpi_policy_use(policy, &use);
    kvpi_count(&cache->counters.references, n_blocks);
    kvpi_count(&cache->fallback_by[fallback], n_blocks);
    kvpi_set(&cache->counters.learned_hits, policy->hit_blocks);
    kvpi_set(&cache->counters.lru_hits, policy->lru_blocks);
}

/* --------------------------------------------------------------------------------- public calls */

_Static_assert(KVP_POLICY_CLASSES == KVPI_CLASSES && KVP_POLICY_AGES == KVPI_BINS,
               "policy.h has the sizes of the tables");
_Static_assert(KVP_POLICY_ENTRY == KVPI_HITS_ONE, "as the counts are");
_Static_assert(KVP_POLICY_DENSITY == 1 << (KVPI_VALUE_BITS - 5), "an index is for C/32 references");
_Static_assert(KVP_POLICY_CREDIT == KVPI_POLICY_CREDIT_ONE, "as the guard's is");
_Static_assert((int)KVP_FALLBACK_COLD == KVPI_FALLBACK_COLD &&
                   (int)KVP_FALLBACK_GUARD == KVPI_FALLBACK_GUARD &&
                   (int)KVP_FALLBACK_GATE == KVPI_FALLBACK_GATE,
               "reasons have the same numbers");

kvp_status kvp_policy_info_get(const kvp_cache *cache, kvp_policy_info *out_info)
{
    if (cache == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    if (!kvpi_learns(cache)) {
        return KVP_E_STATE;
    }
    const struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    const uint64_t *by = cache->fallback_by;
    *out_info = (kvp_policy_info){.references = policy->references,
                                  .cold_references = kvpi_read(&by[KVPI_FALLBACK_COLD]),
                                  .guard_references = kvpi_read(&by[KVPI_FALLBACK_GUARD]),
                                  .gate_references = kvpi_read(&by[KVPI_FALLBACK_GATE]),
                                  .returned = policy->returned,
                                  .returned_late = policy->returned_late,
                                  .credit = policy->credit,
                                  .credit_floor = kvpi_policy_credit_floor(policy),
                                  .credit_limit = kvpi_policy_credit_limit(policy),
                                  .fallback = (uint32_t)kvpi_policy_fallback(policy),
                                  .entry_blocks = policy->group_blocks};
    return KVP_OK;
}

static void fill_class(const struct kvpi_hits *hits, uint32_t class_, kvp_policy_class *out)
{
    static const uint32_t uses[] = {1, 2, 3, 5}, output[] = {0, 32, 256, 512},
                          fresh[] = {0, 513, 4097, 32769};
    out->least_uses = uses[class_ / 16];
    out->least_output = output[class_ / 4 % 4];
    out->least_new = fresh[class_ % 4];
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        out->ages[b] = kvpi_bins_32nds(b);
    }
    memcpy(out->seen, hits->at_risk[class_], sizeof(out->seen));
    memcpy(out->used, hits->hits[class_], sizeof(out->used));
    kvpi_hits_index(hits, class_, out->density, out->best_density);
}

kvp_status kvp_policy_class_get(const kvp_cache *cache, uint32_t class_,
                                kvp_policy_class *out_class)
{
    if (cache == NULL || out_class == NULL || class_ >= KVP_POLICY_CLASSES) {
        return KVP_E_ARG;
    }
    if (!kvpi_learns(cache)) {
        return KVP_E_STATE;
    }
    fill_class(&kvpi_leaves_policy(&cache->pool.leaves)->hits, class_, out_class);
    return KVP_OK;
}

static kvp_status prompt_end(kvp_cache *cache, kvp_seq handle, uint32_t n_tokens)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return kvpi_fail(cache, KVP_E_HANDLE, 0, 0);
    }
    if (n_tokens > seq->tokens) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    kvpi_begin_change(cache);
    kvpi_set32(&seq->prompt, n_tokens);
    return KVP_OK;
}

kvp_status kvp_seq_prompt_end(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = prompt_end(cache, seq, n_tokens);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_prompt_end(&cache->recorder, seq, n_tokens, status);
    }
    return kvpi_leave(cache, status);
}

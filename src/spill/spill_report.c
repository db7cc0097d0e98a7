/* spill_report: what an engine reports of its sequences. Tokens, keys and rows are read from the
 * cache, and offered to the store. What was reported before has marks, and is not read again. */
#include "spill/spill_state.h"

#include <string.h>

static int32_t *row_at(const kvp_spill *spill, uint32_t group)
{
    return spill->rows + (size_t)group * spill->max_entries;
}

/* The rows of a sequence, in the scratch arrays: mirroring changes the cache. */
static kvp_status copy_rows(kvp_spill *spill, kvp_seq seq, uint32_t n_tokens)
{
    kvp_status status = KVP_OK;
    for (uint32_t g = 0; g < spill->cache.n_groups && status == KVP_OK; g++) {
        const int32_t *row;
        uint32_t n = 0;
        status = kvp_seq_row(spill->config.cache, seq, g, &row, &n);
        n = kvpi_spill_min(n, n_tokens / kvpi_spill_block_tokens(spill, g));
        if (status == KVP_OK) {
            memcpy(row_at(spill, g), row, n * sizeof(*row));
        }
    }
    return status;
}

/* A block whose prefix is the first n_tokens tokens; 0: no group has one in its row. */
static int32_t last_block(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix)
{
    for (uint32_t g = 0; g < spill->cache.n_groups; g++) {
        const uint32_t n = prefix->n_tokens / kvpi_spill_block_tokens(spill, g);
        const int32_t block = row_at(spill, g)[n - 1];
        kvp_block_origin origin;
        if (block != KVP_NULL_BLOCK &&
            kvp_block_origin_get(spill->config.cache, prefix->tier, block, &origin) == KVP_OK &&
            origin.ns.bits == prefix->space->ns.bits && origin.n_tokens == prefix->n_tokens) {
            return block;
        }
    }
    return KVP_NULL_BLOCK;
}

/* The keys of the prefix. A sequence does not give them, its blocks do: a prefix without such a
 * block becomes shorter. 0: its keys are too many. */
static int find_keys(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    prefix->n_keys = 0;
    for (; spill->cache.max_unit_keys > 0 && prefix->n_tokens > 0;
         prefix->n_tokens -= spill->record_tokens) {
        const int32_t block = last_block(spill, prefix);
        if (block == KVP_NULL_BLOCK) {
            spill->stats.no_block++;
            spill->stats.offered++;
            continue;
        }
        uint32_t n = 0;
        if (kvp_block_keys(spill->config.cache, prefix->tier, block, NULL, 0, &n) != KVP_OK ||
            n > spill->config.max_keys ||
            (n > 0 && kvp_block_keys(spill->config.cache, prefix->tier, block, spill->keys, n,
                                     &n) != KVP_OK)) {
            return 0;
        }
        kvpi_records_keep_keys(spill->keys, n, spill->key_bytes);
        prefix->n_keys = n;
        return 1;
    }
    return 1;
}

/* How many records have marks, counted from the start: the deepest mark says it. What ends in
 * duplicates of other blocks cannot be written, and is left out. */
static const struct kvpi_spill_mark *find_base(const kvp_spill *spill,
                                               struct kvpi_spill_prefix *prefix)
{
    const struct kvpi_spill_mark *mark = NULL;
    while (prefix->n_tokens > 0 &&
           !kvpi_records_has_end(spill, prefix, prefix->n_tokens / spill->record_tokens - 1)) {
        prefix->n_tokens -= spill->record_tokens;
    }
    prefix->base = prefix->n_tokens / spill->record_tokens;
    while (prefix->base > 0 &&
           (mark = kvpi_records_recall(spill, prefix, prefix->base - 1)) == NULL) {
        prefix->base--;
    }
    return mark;
}

/* Is there nothing to do: no new record, and none that was left out and has a place now? */
static int is_settled(kvp_spill *spill, struct kvpi_spill_prefix *prefix, int is_again)
{
    const struct kvpi_spill_mark *mark = find_base(spill, prefix);
    const uint32_t n_records = prefix->n_tokens / spill->record_tokens;
    if (!is_again || mark == NULL) {
        return prefix->n_tokens == 0;
    }
    prefix->next = mark->next;
    return prefix->base == n_records && (mark->next == n_records || !kvpi_offer_has_place(spill));
}

/* Keys, and the tokens that have no marks yet. 0: there is nothing to offer. */
static int read_prefix(kvp_spill *spill, struct kvpi_spill_prefix *prefix)
{
    const uint32_t n_tokens = prefix->n_tokens;
    if (!find_keys(spill, prefix) || prefix->n_tokens == 0) {
        return 0;
    }
    if (prefix->n_tokens < n_tokens) {
        (void)find_base(spill, prefix);
        prefix->next = 0;
    }
    const uint32_t begin = prefix->base * spill->record_tokens;
    return begin == prefix->n_tokens ||
           kvp_seq_tokens(spill->config.cache, prefix->seq, begin, prefix->n_tokens - begin,
                          spill->tokens + begin) == KVP_OK;
}

/* The first n_tokens tokens of a sequence: those that can be stored are offered. is_again: those
 * that were offered before are only offered again when they were left out. */
static kvp_status report(kvp_spill *spill, kvp_seq seq, const kvp_seq_info *info, uint32_t n_tokens,
                         int is_again)
{
    struct kvpi_spill_prefix prefix = {
        .space = kvpi_epochs_find(spill, info->ns), .tier = info->tier, .seq = seq};
    if (prefix.space == NULL) {
        return KVP_E_STATE;
    }
    n_tokens = kvpi_spill_min(n_tokens, info->computed_tokens);
    n_tokens = kvpi_spill_min(n_tokens, info->public_tokens);
    n_tokens = kvpi_spill_min(n_tokens, spill->config.max_tokens);
    prefix.n_tokens = n_tokens - n_tokens % spill->record_tokens;
    if (prefix.n_tokens == 0 || spill->is_stopping || spill->now_ns < spill->refusals.until_ns) {
        return KVP_OK;
    }
    kvp_status status = copy_rows(spill, seq, prefix.n_tokens);
    const int is_done = status == KVP_OK && is_settled(spill, &prefix, is_again);
    const int may_have_state = kvpi_spill_has_states(spill) > 0 && prefix.n_tokens == n_tokens;
    if (status != KVP_OK || (is_done && !may_have_state) || !read_prefix(spill, &prefix)) {
        return status;
    }
    if (!is_done) {
        status = kvpi_offer_prefix(spill, &prefix);
    }
    if (status == KVP_OK && may_have_state && prefix.n_tokens == n_tokens) {
        status = kvpi_offer_state(spill, &prefix);
    }
    /* A sequence has tokens that are not known; a block has more keys than a digest takes. */
    return status == KVP_E_UNKNOWN || status == KVP_E_ARG ? KVP_OK : status;
}

kvp_status kvp_spill_hit(kvp_spill *spill, kvp_seq seq, uint32_t hit_tokens, uint64_t now_ns)
{
    kvp_seq_info info;
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvp_seq_info_get(spill->config.cache, seq, &info);
    if (status != KVP_OK) {
        return status;
    }
    if (hit_tokens > info.n_tokens) {
        return KVP_E_ARG;
    }
    kvpi_rates_tick(spill, now_ns);
    return report(spill, seq, &info, hit_tokens, 0);
}

kvp_status kvp_spill_sealed(kvp_spill *spill, kvp_seq seq, uint64_t now_ns)
{
    kvp_seq_info info;
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvp_seq_info_get(spill->config.cache, seq, &info);
    if (status != KVP_OK || spill->config.policy == KVP_SPILL_SECOND) {
        return status;
    }
    kvpi_rates_tick(spill, now_ns);
    return report(spill, seq, &info, info.computed_tokens, 1);
}

/* drafts: token trees behind a sequence. */
#include "core/seq/drafts.h"

int kvpi_tree_parents_valid(const struct kvpi_seq *seq, const int32_t *parents, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (parents[i] < -1 || parents[i] >= (int64_t)seq->n_tree + i) {
            return 0;
        }
    }
    return 1;
}

void kvpi_tree_add(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens,
                   const int32_t *parents, uint32_t n)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    if (n == 0) {
        return;
    }
    memcpy(kvpi_tree_tokens(&cache->table, place) + seq->n_tree, tokens, n * sizeof(*tokens));
    memcpy(kvpi_tree_parents(&cache->table, place) + seq->n_tree, parents, n * sizeof(*parents));
    kvpi_set32(&seq->n_tree, seq->n_tree + n);
    seq->tree_step = cache->steps.begun + 1;
    kvpi_count(&cache->counters.tree_tokens, n);
}

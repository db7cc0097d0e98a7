/* filling: see filling.h. Hints only: nothing is changed here. */
#include "core/seq/filling.h"

#include "core/cache/tokens.h"

#include <string.h>

/* How many sequences later each load is asked for. */
#define NODES_BEHIND 2u
#define LINE_BEHIND  4u

_Static_assert(LINE_BEHIND < KVPI_FILLING_MAX, "a sequence waits until its last load is asked for");

/* Ask for the index line that the unit's hash names. */
static void prefetch_unit(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t token)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const kvp_hash *parent = &kvpi_node(prefix, kvpi_last_node(cache, seq))->hash;
    int32_t tokens[16];
    kvp_hash hash;
    memcpy(tokens, kvpi_row_partial(&cache->table, kvpi_seq_place(&cache->table, seq)),
           15 * sizeof(*tokens));
    tokens[15] = token;
    kvpi_hash_unit(parent, tokens, 16, NULL, 0, &hash);
    kvpi_prefix_prefetch_line(prefix, &hash);
}

/* Ask for the last node of one that waits, and for the node whose jump will name the new one. */
static void prefetch_nodes(const kvp_cache *cache, const struct kvpi_filling *filling, uint32_t i)
{
    const struct kvpi_seq *seq = filling->seqs[i % KVPI_FILLING_MAX];
    KVPI_ASSERT(i < filling->n);
    const uint32_t *end =
        kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq)) + seq->n_units;
    kvpi_prefetch(kvpi_node(&cache->prefix, kvpi_last_node(cache, seq)));
    if (seq->n_units >= KVPI_NODE_JUMP) {
        kvpi_prefetch(&kvpi_node(&cache->prefix, *(end - KVPI_NODE_JUMP))->jump);
    }
}

/* Ask for the line of the index that will be read for one that waits. */
static void prefetch_line(const kvp_cache *cache, const struct kvpi_filling *filling, uint32_t i)
{
    const uint32_t at = i % KVPI_FILLING_MAX;
    KVPI_ASSERT(i < filling->n);
    prefetch_unit(cache, filling->seqs[at], filling->tokens[at]);
}

/* Rare: inline, it would slow down the loop over the batch. */
__attribute__((noinline)) void kvpi_filling_add(const kvp_cache *cache,
                                                struct kvpi_filling *filling,
                                                const struct kvpi_seq *seq, int32_t token)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    const uint32_t i = filling->n++;
    kvpi_prefetch(&kvpi_row_nodes(&cache->table, place)[seq->n_units - (seq->n_units > 0)]);
    filling->seqs[i % KVPI_FILLING_MAX] = seq;
    filling->tokens[i % KVPI_FILLING_MAX] = token;
    if (i >= NODES_BEHIND) {
        prefetch_nodes(cache, filling, i - NODES_BEHIND);
    }
    if (i >= LINE_BEHIND) {
        prefetch_line(cache, filling, i - LINE_BEHIND);
    }
}

__attribute__((noinline)) void kvpi_filling_end(const kvp_cache *cache,
                                                const struct kvpi_filling *filling)
{
    const uint32_t n = filling->n;
    for (uint32_t i = n - kvpi_min_u32(n, NODES_BEHIND); i < n; i++) {
        prefetch_nodes(cache, filling, i);
    }
    for (uint32_t i = n - kvpi_min_u32(n, LINE_BEHIND); i < n; i++) {
        prefetch_line(cache, filling, i);
    }
}

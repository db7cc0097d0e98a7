/* filling: see filling.h. Hints only: nothing is changed here. */
#include "core/seq/filling.h"

#include "core/cache/tokens.h"

#include <string.h>

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

void kvpi_filling_prefetch(const kvp_cache *cache, struct kvpi_filling *filling)
{
    for (uint32_t i = 0; i < filling->n; i++) {
        const struct kvpi_seq *seq = filling->seqs[i];
        const uint32_t *end =
            kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq)) + seq->n_units;
        kvpi_prefetch(kvpi_node(&cache->prefix, kvpi_last_node(cache, seq)));
        if (seq->n_units >= KVPI_NODE_JUMP) { /* its jump will name the new node */
            kvpi_prefetch(&kvpi_node(&cache->prefix, *(end - KVPI_NODE_JUMP))->jump);
        }
    }
    for (uint32_t i = 0; i < filling->n; i++) {
        prefetch_unit(cache, filling->seqs[i], filling->tokens[i]);
    }
    filling->n = 0;
}

void kvpi_filling_add(const kvp_cache *cache, struct kvpi_filling *filling,
                      const struct kvpi_seq *seq, int32_t token)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    KVPI_ASSERT(filling->n < KVPI_FILLING_MAX);
    kvpi_prefetch(&kvpi_row_nodes(&cache->table, place)[seq->n_units - (seq->n_units > 0)]);
    filling->seqs[filling->n] = seq;
    filling->tokens[filling->n++] = token;
    if (filling->n == KVPI_FILLING_MAX) {
        kvpi_filling_prefetch(cache, filling);
    }
}

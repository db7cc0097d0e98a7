/* audit: every invariant. */
#ifndef KVPI_CACHE_AUDIT_H
#define KVPI_CACHE_AUDIT_H

#include "core/cache/state.h"

int kvpi_audit(kvp_cache *cache, int level, kvp_violation *out_violation);

/* The last kept node of a sequence, or its root; and the value of its last known token, or
 * KVPI_NO_TOKEN. Found without what calls use. */
static inline uint32_t kvpi_audit_node(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    return seq->n_units == 0 ? seq->root : nodes[seq->n_units - 1];
}

static inline uint32_t kvpi_audit_token(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t kept = seq->n_units * U;
    const int32_t *partial = kvpi_row_partial(&cache->table, kvpi_seq_place(&cache->table, seq));
    if (seq->known == 0 || (seq->unkept && seq->known > kept)) {
        return KVPI_NO_TOKEN;
    }
    if (seq->known > kept) {
        return (uint32_t)partial[(seq->known - 1) % U];
    }
    const struct kvpi_node *last = kvpi_node(&cache->prefix, kvpi_audit_node(cache, seq));
    return (uint32_t)kvpi_node_tokens(last)[U - 1];
}

#endif

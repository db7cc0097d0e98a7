/* rings: extends that give tokens slots of states of their own (states.h). The slots of a sequence
 * are in core/cache/states.c. */
#include "core/seq/rings.h"

#include "core/cache/states.h"

/* Has the sequence a ring? */
static int is_chain(const kvp_batch *batch, uint32_t index)
{
    return batch->flags == KVP_BATCH_RING || batch->n_tokens == NULL || batch->n_tokens[index] > 0;
}

static uint32_t tokens_after(const kvp_batch *batch, const struct kvpi_seq *seq, uint32_t index)
{
    return seq->tokens + (batch->n_tokens == NULL ? 1 : batch->n_tokens[index]);
}

int kvpi_rings_allowed(const kvp_cache *cache, const kvp_batch *batch)
{
    return (batch->flags == KVP_BATCH_RING || batch->flags == KVP_BATCH_RING_NEW) &&
           kvpi_has_states(cache);
}

void kvpi_rings_count(const kvp_cache *cache, const kvp_batch *batch, struct kvpi_faults *faults,
                      uint64_t *slots, uint32_t *out_first_short)
{
    const uint64_t available = kvpi_pool_available(&cache->states.pool);
    int is_short = *slots > available;
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, batch->seqs[i]);
        const uint32_t n_tokens = tokens_after(batch, seq, i);
        if (!is_chain(batch, i)) {
            continue;
        }
        if (n_tokens - seq->computed > KVP_STATE_RING_MAX) {
            kvpi_faults_other(faults, KVP_E_TOO_LONG, i);
        }
        if (kvpi_states_next(cache, seq) != kvpi_states_of(cache, seq)->read) {
            kvpi_faults_other(faults, KVP_E_STATE, i);
        }
        *slots += kvpi_states_ring_need(cache, seq, n_tokens);
        if (!is_short && *slots > available) {
            *out_first_short = i;
            is_short = 1;
        }
    }
}

void kvpi_rings_take(kvp_cache *cache, const kvp_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        if (is_chain(batch, i)) {
            kvpi_states_ring_grow(cache, kvpi_known_seq(cache, batch->seqs[i]));
        }
    }
}

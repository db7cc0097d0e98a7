/* commit: computed tokens are sealed. */
#ifndef KVPI_CALLS_COMMIT_H
#define KVPI_CALLS_COMMIT_H

#include "core/cache/dropped.h"

/* The same of windows and states, of more tokens than are computed. */
kvp_status kvpi_check_commit_parts(const kvp_cache *cache, const struct kvpi_seq *seq,
                                   uint32_t n_tokens, int by_step);

/* May the first n_tokens be declared computed: now, or when a step is done? */
static inline kvp_status kvpi_check_commit(const kvp_cache *cache, const struct kvpi_seq *seq,
                                           uint32_t n_tokens, int by_step)
{
    if (n_tokens > seq->tokens) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE || (n_tokens > seq->computed && n_tokens > seq->writable)) {
        return KVP_E_STATE;
    }
    return kvpi_unlikely((seq->windowed & (KVPI_WINDOWED_AHEAD | KVPI_STATEFUL)) != 0) &&
                   n_tokens > seq->computed
               ? kvpi_check_commit_parts(cache, seq, n_tokens, by_step)
               : KVP_OK;
}

/* The first n_tokens are computed: seal. */
void kvpi_commit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens);

#endif

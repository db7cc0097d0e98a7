/* commit: computed tokens are sealed. */
#ifndef KVPI_CALLS_COMMIT_H
#define KVPI_CALLS_COMMIT_H

#include "core/cache/state.h"

/* May the first n_tokens be declared computed? */
static inline kvp_status kvpi_check_commit(const struct kvpi_seq *seq, uint32_t n_tokens)
{
    if (n_tokens > seq->tokens) {
        return KVP_E_ARG;
    }
    return seq->tier != KVP_DEVICE || (n_tokens > seq->computed && n_tokens > seq->writable)
               ? KVP_E_STATE
               : KVP_OK;
}

/* The first n_tokens are computed: seal. */
void kvpi_commit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens);

#endif

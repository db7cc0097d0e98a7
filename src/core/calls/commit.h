/* commit: computed tokens are sealed. */
#ifndef KVPI_CALLS_COMMIT_H
#define KVPI_CALLS_COMMIT_H

#include "core/cache/dropped.h"

/* May the first n_tokens be declared computed? */
static inline kvp_status kvpi_check_commit(const kvp_cache *cache, const struct kvpi_seq *seq,
                                           uint32_t n_tokens)
{
    if (n_tokens > seq->tokens) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE || (n_tokens > seq->computed && n_tokens > seq->writable)) {
        return KVP_E_STATE;
    }
    return kvpi_unlikely((seq->windowed & KVPI_WINDOWED_AHEAD) != 0) && n_tokens > seq->computed &&
                   kvpi_windows_lack(cache, seq, n_tokens, seq->room)
               ? KVP_E_DROPPED
               : KVP_OK;
}

/* The first n_tokens are computed: seal. */
void kvpi_commit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens);

#endif

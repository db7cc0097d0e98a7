/* learned: what the learned policy learns of requests (core/policy). With another, nothing. */
#ifndef KVPI_SEQ_LEARNED_H
#define KVPI_SEQ_LEARNED_H

#include "core/cache/state.h"

static inline int kvpi_learns(const kvp_cache *cache)
{
    return kvpi_unlikely(cache->pool.leaves.on != 0);
}

/* No sequence is a request. */
void kvpi_learned_reset(kvp_cache *cache);

/* A sequence was opened, whose row begins with n_shared hit entries, those on the host negative. A
 * sequence that was not is a fork, and no request. */
void kvpi_learned_open(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n_shared);

/* It will be closed: if it is a request, that is over. */
void kvpi_learned_close(kvp_cache *cache, const struct kvpi_seq *seq);

#endif

/* steps: what a step that is out will not do any more. */
#ifndef KVPI_CALLS_STEPS_H
#define KVPI_CALLS_STEPS_H

#include "core/cache/state.h"

/* The sequence is about to be cut to n tokens: no step will commit more; with n = 0, nothing. */
void kvpi_steps_cut(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n);

void kvpi_steps_reset(kvp_cache *cache);

#endif

/* What the learned policy knows when a replay is done, as figures. */
#ifndef KVPI_TOOL_LEARNED_H
#define KVPI_TOOL_LEARNED_H

#include <kvpager/policy.h>

#include "tool/report/figures.h"

typedef struct kvpi_learned {
    kvp_policy_info info; /* entry_blocks 0: the policy is LRU */
    kvp_policy_class classes[KVP_POLICY_CLASSES];
} kvpi_learned;

/* Read it all; with LRU nothing. */
kvp_status kvpi_learned_read(const kvp_cache *cache, kvpi_learned *out);

/* Read the counters alone; with LRU they are 0. */
kvp_status kvpi_learned_counters(const kvp_cache *cache, kvp_policy_info *out);

/* Name the reason for which the policy is LRU now: none, cold, guard, gate. */
const char *kvpi_learned_fallback(const kvp_policy_info *info);

/* With the learned policy, add the list "learned"; else nothing. */
void kvpi_learned_add(kvpi_figures *to, const kvpi_learned *learned);

#endif

/* audit: every invariant. */
#ifndef KVPI_CACHE_AUDIT_H
#define KVPI_CACHE_AUDIT_H

#include "core/cache/state.h"

int kvpi_audit(kvp_cache *cache, int level, kvp_violation *out_violation);

#endif

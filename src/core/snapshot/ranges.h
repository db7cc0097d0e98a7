/* ranges: is what came from elsewhere within its arrays? */
#ifndef KVPI_SNAPSHOT_RANGES_H
#define KVPI_SNAPSHOT_RANGES_H

#include "core/cache/state.h"

/* Are the counts in the cache's own structure within their arrays? For one that is planned. */
int kvpi_counts_in_range(const kvp_cache *cache);

/* Does everything in it point inside? If so, kvpi_audit is safe on it. */
int kvpi_in_range(const kvp_cache *cache, kvp_violation *out_violation);

#endif

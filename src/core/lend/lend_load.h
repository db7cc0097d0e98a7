/* lend_load: host blocks that a store fills. See load.c. */
#ifndef KVPI_LEND_LOAD_H
#define KVPI_LEND_LOAD_H

#include "core/cache/state.h"

/* Forget every load, and what is lent. */
void kvpi_loads_reset(kvp_cache *cache);

#endif

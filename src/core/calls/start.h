/* start: counters that start anywhere, for tests. */
#ifndef KVPI_CALLS_START_H
#define KVPI_CALLS_START_H

#include "core/cache/state.h"

#if KVP_CHECK >= 1
/* For tests: a cache that was just created goes on as if steps, batches, calls, events and
 * generations of blocks had come to number `start`, and generations of places near it. */
void kvpi_start_at(kvp_cache *cache, uint64_t start);
#endif

#endif

/* Does the library allocate after kvp_cache_create? The linker sends every malloc, calloc, realloc,
 * aligned_alloc and mmap of this program through counters (tests.cmake, --wrap). */
#ifndef KVP_TEST_MODEL_ALLOCATIONS_H
#define KVP_TEST_MODEL_ALLOCATIONS_H

#include <stdint.h>

/* Run about `ops` random calls of several configurations on a cache alone, and count. Gives the
 * program's exit status. */
int allocations_run(uint64_t seed, uint64_t ops);

#endif

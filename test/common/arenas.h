/* arenas: caches in memory of the test's own, and a source of their bytes. */
#ifndef TEST_ARENAS_H
#define TEST_ARENAS_H

#include <kvpager/inspect.h>

typedef struct arena {
    uint8_t *bytes;
    size_t n;
    kvp_cache *cache;
} arena;

arena arena_of(const kvp_config *config); /* exactly as many bytes as it needs */
void arena_drop(arena *a);

kvp_arena_source arena_source(const arena *a);

#endif

#include "arenas.h"

#include <stdlib.h>
#include <string.h>

#include "world.h"

arena arena_of(const kvp_config *config)
{
    arena a = {0};
    assert_ok(kvp_cache_bytes(config, &a.n));
    a.bytes = aligned_alloc(64, a.n);
    assert_non_null(a.bytes);
    memset(a.bytes, 0xA5, a.n);
    assert_ok(kvp_cache_create(config, a.bytes, a.n, &a.cache));
    return a;
}

void arena_drop(arena *a)
{
    kvp_cache_destroy(a->cache);
    free(a->bytes);
    *a = (arena){0};
}

static int read_bytes(void *context, uint64_t offset, void *out, size_t n)
{
    const arena *a = context;
    assert_true(n <= a->n && offset <= a->n - n);
    memcpy(out, a->bytes + offset, n);
    return 0;
}

kvp_arena_source arena_source(const arena *a)
{
    return (kvp_arena_source){(void *)(uintptr_t)a, a->n, read_bytes};
}

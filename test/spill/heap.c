#include "heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpager/spill.h>

enum { PLACES = 256, GUARD = 64, GUARD_BYTE = 0xA5 };

heap_control heap;

static struct {
    uint8_t *bytes;
    size_t n;
} places[PLACES];

static uint32_t n_places;
static uint32_t n_spills;
static int is_creating;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__wrap_calloc(size_t n, size_t each);
void *__real_aligned_alloc(size_t alignment, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void __real_free(void *bytes);
void __wrap_free(void *bytes);
kvp_status __real_kvp_spill_create(const kvp_spill_config *config, kvp_spill **out_spill,
                                   char *out_why, size_t why_bytes);
kvp_status __wrap_kvp_spill_create(const kvp_spill_config *config, kvp_spill **out_spill,
                                   char *out_why, size_t why_bytes);
void __real_kvp_spill_destroy(kvp_spill *spill);
void __wrap_kvp_spill_destroy(kvp_spill *spill);

static void must(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "the memory of a spill: %s\n", what);
        abort();
    }
}

/* An allocation of n bytes, with room for the guard. */
static void *keep(uint8_t *bytes, size_t n)
{
    if (bytes == NULL)
        return NULL;
    must(n_places < PLACES, "too many allocations");
    memset(bytes + n, GUARD_BYTE, GUARD);
    places[n_places].bytes = bytes;
    places[n_places++].n = n;
    return bytes;
}

static int fails(void)
{
    return ++heap.n_allocations == heap.fails_at;
}

void *__wrap_malloc(size_t n)
{
    if (!is_creating)
        return __real_malloc(n);
    return fails() ? NULL : keep(__real_malloc(n + GUARD), n);
}

void *__wrap_calloc(size_t n, size_t each)
{
    if (!is_creating)
        return __real_calloc(n, each);
    return fails() ? NULL : keep(__real_calloc(1, n * each + GUARD), n * each);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    if (!is_creating)
        return __real_aligned_alloc(alignment, n);
    must(n % alignment == 0, "its size is not a multiple of the alignment");
    return fails() ? NULL : keep(__real_aligned_alloc(alignment, n + alignment), n);
}

void __wrap_free(void *bytes)
{
    uint32_t i = 0;
    while (i < n_places && places[i].bytes != bytes)
        i++;
    if (i < n_places && bytes != NULL) {
        for (uint32_t b = 0; b < GUARD; b++)
            must(places[i].bytes[places[i].n + b] == GUARD_BYTE, "written behind its end");
        places[i] = places[--n_places];
    }
    __real_free(bytes);
}

kvp_status __wrap_kvp_spill_create(const kvp_spill_config *config, kvp_spill **out_spill,
                                   char *out_why, size_t why_bytes)
{
    const uint32_t n_before = n_places;
    is_creating = 1;
    const kvp_status status = __real_kvp_spill_create(config, out_spill, out_why, why_bytes);
    is_creating = 0;
    n_spills += status == KVP_OK;
    must(status == KVP_OK || n_places == n_before, "what was not created has some");
    return status;
}

void __wrap_kvp_spill_destroy(kvp_spill *spill)
{
    __real_kvp_spill_destroy(spill);
    n_spills -= spill != NULL;
    must(n_spills > 0 || n_places == 0, "not all is freed");
}

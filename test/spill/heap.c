#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kvpager/spill.h>

enum { PLACES = 256, PAGE = 1 << 16 }; /* or less, on most systems */

heap_control heap;

static struct place {
    void *bytes;
    uint8_t *pages; /* the mapping; its last page is the guard */
    size_t n;       /* bytes of these */
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

/* n bytes of `filling` that end at a guard page. Elements of n bytes are
 * aligned, because n is a multiple of what they are aligned to. */
static void *allocate(size_t n, int filling)
{
    const size_t n_usable = (n + PAGE - 1) / PAGE * PAGE;
    if (++heap.n_allocations == heap.fails_at)
        return NULL;
    must(n > 0 && n_places < PLACES, "an allocation of nothing, or too many");
    struct place *place = &places[n_places++];
    place->n = n_usable + PAGE;
    place->pages = mmap(NULL, place->n, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(place->pages != MAP_FAILED, "mmap");
    must(mprotect(place->pages + n_usable, PAGE, PROT_NONE) == 0, "mprotect");
    place->bytes = place->pages + n_usable - n;
    if (filling != 0)
        memset(place->bytes, filling, n);
    return place->bytes;
}

void *__wrap_malloc(size_t n)
{
    return is_creating ? allocate(n, 0xA5) : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t each)
{
    return is_creating ? allocate(n * each, 0) : __real_calloc(n, each);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    if (!is_creating)
        return __real_aligned_alloc(alignment, n);
    must(n % alignment == 0, "its size is not a multiple of the alignment");
    return allocate(n, 0);
}

void __wrap_free(void *bytes)
{
    uint32_t i = 0;
    while (i < n_places && places[i].bytes != bytes)
        i++;
    if (i == n_places) {
        __real_free(bytes);
        return;
    }
    must(munmap(places[i].pages, places[i].n) == 0, "munmap");
    places[i] = places[--n_places];
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

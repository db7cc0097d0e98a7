/* mmap: see pages_system.h. What has mmap. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "base/pages/pages.h"
#include "base/pages/pages_system.h"
#include "base/platform/which.h"

#if !KVPI_WINDOWS

#include <sys/mman.h>

void *kvpi_pages_map_small(size_t bytes)
{
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapping == MAP_FAILED ? NULL : mapping;
}

void kvpi_pages_unmap(void *mapping, size_t mapped_bytes)
{
    (void)munmap(mapping, mapped_bytes);
}

/* A mapping that begins at a multiple of `alignment`: what is before and behind is given back. */
void *kvpi_pages_map_aligned(size_t bytes, size_t alignment)
{
    if (bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    unsigned char *mapping = kvpi_pages_map_small(bytes + alignment);
    if (!mapping) {
        return NULL;
    }
    const size_t before = (alignment - (uintptr_t)mapping % alignment) % alignment;
    if (before > 0) {
        (void)munmap(mapping, before);
    }
    if (before < alignment) {
        (void)munmap(mapping + before + bytes, alignment - before);
    }
    return mapping + before;
}

#endif

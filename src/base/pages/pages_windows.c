/* pages_windows: see pages_system.h. Large pages need a privilege that few accounts have
 * (SeLockMemoryPrivilege), and a node is no more than preferred: plain.c uses neither. */
#include "base/pages/pages.h"
#include "base/pages/pages_system.h"
#include "base/platform/which.h"

#if KVPI_WINDOWS

#include <windows.h>

void *kvpi_pages_map_small(size_t bytes)
{
    return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

/* More addresses are reserved than are used; a part of a reservation cannot be given back. */
void *kvpi_pages_map_aligned(size_t bytes, size_t alignment)
{
    if (bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    unsigned char *reserved = VirtualAlloc(NULL, bytes + alignment, MEM_RESERVE, PAGE_NOACCESS);
    if (!reserved) {
        return NULL;
    }
    const size_t before = (alignment - (uintptr_t)reserved % alignment) % alignment;
    void *mapping = VirtualAlloc(reserved + before, bytes, MEM_COMMIT, PAGE_READWRITE);
    if (!mapping) {
        (void)VirtualFree(reserved, 0, MEM_RELEASE);
    }
    return mapping;
}

void kvpi_pages_unmap(void *mapping, size_t mapped_bytes)
{
    MEMORY_BASIC_INFORMATION about;
    (void)mapped_bytes;
    if (VirtualQuery(mapping, &about, sizeof(about)) != 0) {
        (void)VirtualFree(about.AllocationBase, 0, MEM_RELEASE);
    }
}

#endif

/* map_windows: see map.h. Pages that are not written take no memory, but the system counts them
 * against what it could give (its commit limit), and refuses what is more. */
#include "base/platform/map.h"
#include "base/platform/which.h"

#if KVPI_WINDOWS

#include <windows.h>

void *kvpi_map(size_t bytes)
{
    return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void *kvpi_map_thin(size_t bytes)
{
    return kvpi_map(bytes);
}

void kvpi_unmap(void *memory, size_t bytes)
{
    (void)bytes;
    if (memory != NULL) {
        (void)VirtualFree(memory, 0, MEM_RELEASE);
    }
}

#endif

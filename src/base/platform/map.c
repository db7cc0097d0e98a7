/* map: see map.h. What has mmap. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */

#include "base/platform/map.h"
#include "base/platform/which.h"

#if !KVPI_WINDOWS

#include <sys/mman.h>

/* Hints: memory that is not written takes none, and which pages are wanted. */
#if KVPI_LINUX
enum { RESERVE_NONE = MAP_NORESERVE, WANT_HUGE = MADV_HUGEPAGE, WANT_SMALL = MADV_NOHUGEPAGE };
#define HINT(memory, bytes, advice) (void)madvise(memory, bytes, advice)
#else
enum { RESERVE_NONE = 0, WANT_HUGE, WANT_SMALL };
#define HINT(memory, bytes, advice) (void)(advice)
#endif

/* NULL when the system gives none; `advice` is a hint. */
static void *map(size_t bytes, int advice)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | RESERVE_NONE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    HINT(memory, bytes, advice);
    return memory;
}

/* Look-ups are random over the whole arena, and 4 KiB pages would miss the TLB. */
void *kvpi_map(size_t bytes)
{
    return map(bytes, WANT_HUGE);
}

void *kvpi_map_thin(size_t bytes)
{
    return map(bytes, WANT_SMALL);
}

void kvpi_unmap(void *memory, size_t bytes)
{
    (void)munmap(memory, bytes);
}

#endif

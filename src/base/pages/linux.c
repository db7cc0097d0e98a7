/* linux: see pages_system.h. Huge pages and nodes, which other systems have not. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_HUGETLB, syscall */

#include "base/pages/pages_system.h"
#include "base/platform/which.h"

#if KVPI_LINUX

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SMALL_PAGE ((size_t)4096)

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { BIND_ONLY = 2 /* MPOL_BIND */, NODES_MAX = 1024 };

void *kvpi_pages_map_reserved(size_t bytes)
{
    const int two_mib = 21 << MAP_HUGE_SHIFT;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | two_mib;
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return mapping == MAP_FAILED ? NULL : mapping;
}

int kvpi_pages_ask_for_huge(void *mapping, size_t bytes)
{
    return madvise(mapping, bytes, MADV_HUGEPAGE);
}

/* The raw call, so that programs need not link libnuma. */
int kvpi_pages_bind(void *mapping, size_t bytes, int32_t node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / BITS] = {0};
    if (node >= NODES_MAX) {
        return -1;
    }
    nodes[(uint32_t)node / BITS] = 1ul << ((uint32_t)node % BITS);
    if (syscall(SYS_mbind, mapping, bytes, BIND_ONLY, nodes, (unsigned long)NODES_MAX + 1, 0) ==
        0) {
        return 0;
    }
    return errno == ENOSYS && node == 0 ? 0 : -1; /* a kernel without nodes has node 0 only */
}

int kvpi_pages_populate(void *mapping, size_t bytes)
{
    if (madvise(mapping, bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -1;
    }
    for (size_t at = 0; at < bytes; at += SMALL_PAGE) { /* an older kernel */
        ((volatile unsigned char *)mapping)[at] = 0;
    }
    return 0;
}

#endif

/* pages: mappings, huge pages, NUMA nodes. Linux has all of it, others have mmap.
 *
 * Reserved huge pages are taken whole when they are mapped, so a mapping that succeeds can be
 * touched. That does not hold for pages of one node, which are found only when they are touched:
 * then they are touched here, where it can still be said that there are none.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_HUGETLB, syscall */

#include "base/pages.h"
#include "base/platform/which.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_PAGE ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)

static void *map_bytes(size_t bytes, int more_flags)
{
    void *mapping =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return mapping == MAP_FAILED ? NULL : mapping;
}

/* A mapping that begins at a multiple of `alignment`: what is before and behind is given back. */
static void *map_aligned(size_t bytes, size_t alignment)
{
    if (bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    unsigned char *mapping = map_bytes(bytes + alignment, 0);
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

#if KVPI_LINUX

#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { BIND_ONLY = 2 /* MPOL_BIND */, NODES_MAX = 1024 };

static void *map_reserved(size_t bytes)
{
    const int two_mib = 21 << MAP_HUGE_SHIFT;
    return map_bytes(bytes, MAP_HUGETLB | two_mib);
}

static int ask_for_huge(void *mapping, size_t bytes)
{
    return madvise(mapping, bytes, MADV_HUGEPAGE);
}

/* The raw call, so that nobody has to link libnuma. */
static int bind_to_node(void *mapping, size_t bytes, int32_t node)
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

static int populate(void *mapping, size_t bytes)
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

#else

static void *map_reserved(size_t bytes)
{
    (void)bytes;
    return NULL;
}

static int ask_for_huge(void *mapping, size_t bytes)
{
    (void)mapping;
    (void)bytes;
    return -1;
}

static int bind_to_node(void *mapping, size_t bytes, int32_t node)
{
    (void)mapping;
    (void)bytes;
    return node == 0 ? 0 : -1;
}

static int populate(void *mapping, size_t bytes)
{
    memset(mapping, 0, bytes);
    return 0;
}

#endif

/* Memory with the wanted kind of pages; not touched yet. */
static void *map_pages(size_t bytes, const kvp_memory_options *options, uint32_t *out_pages)
{
    const int may_reserve = options->pages == KVP_PAGES_HUGE ||
                            (options->pages == KVP_PAGES_AUTO && options->numa_node < 0);
    if (may_reserve) {
        void *mapping = map_reserved(bytes);
        if (mapping || options->pages == KVP_PAGES_HUGE) {
            *out_pages = KVP_PAGES_HUGE;
            return mapping;
        }
    }
    const int wants_huge = options->pages != KVP_PAGES_SMALL;
    void *mapping = wants_huge ? map_aligned(bytes, HUGE_PAGE) : map_bytes(bytes, 0);
    if (mapping) {
        const int is_huge = wants_huge && ask_for_huge(mapping, bytes) == 0;
        *out_pages = is_huge ? KVP_PAGES_TRANSPARENT : KVP_PAGES_SMALL;
    }
    return mapping;
}

kvp_status kvpi_pages_map(size_t bytes, const kvp_memory_options *options, void **out_mapping,
                          kvp_memory_info *out_info)
{
    const size_t page = options->pages == KVP_PAGES_SMALL ? SMALL_PAGE : HUGE_PAGE;
    uint32_t pages = KVP_PAGES_SMALL;
    if (bytes > SIZE_MAX - page) {
        return KVP_E_NO_MEMORY;
    }
    bytes = (bytes + page - 1) / page * page;
    void *mapping = map_pages(bytes, options, &pages);
    if (!mapping) {
        return KVP_E_NO_MEMORY;
    }
    const int is_bound = options->numa_node >= 0;
    const int must_touch = options->touch || (is_bound && pages == KVP_PAGES_HUGE);
    if ((is_bound && bind_to_node(mapping, bytes, options->numa_node) != 0) ||
        (must_touch && populate(mapping, bytes) != 0)) {
        kvpi_pages_unmap(mapping, bytes);
        return KVP_E_NO_MEMORY;
    }
    *out_mapping = mapping;
    *out_info = (kvp_memory_info){bytes, pages, options->numa_node};
    return KVP_OK;
}

void kvpi_pages_unmap(void *mapping, size_t mapped_bytes)
{
    (void)munmap(mapping, mapped_bytes);
}

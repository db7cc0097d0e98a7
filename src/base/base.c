/* base: the arena's layout and its memory.
 *
 * Owns nothing but the process-wide number of the next cache, which makes handles of two caches
 * differ. It is the one piece of state outside the caches, and takes part in no decision.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */

#include "base/base.h"
#include "base/platform/which.h"

#include <string.h>
#include <sys/mman.h>

/* Hints: memory that is not written takes none, and which pages are wanted. */
#if KVPI_LINUX
enum { RESERVE_NONE = MAP_NORESERVE, WANT_HUGE = MADV_HUGEPAGE, WANT_SMALL = MADV_NOHUGEPAGE };
#define HINT(memory, bytes, advice) (void)madvise(memory, bytes, advice)
#else
enum { RESERVE_NONE = 0, WANT_HUGE, WANT_SMALL };
#define HINT(memory, bytes, advice) (void)(advice)
#endif

size_t kvpi_layout_take(struct kvpi_layout *layout, uint64_t n, size_t size)
{
    const size_t line = KVPI_CACHE_LINE;
    size_t bytes;
    size_t end;
    const size_t offset = layout->bytes;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, line - 1, &bytes) ||
        __builtin_add_overflow(offset, bytes / line * line, &end)) {
        layout->overflow = 1;
        return offset;
    }
    layout->bytes = end;
    return offset;
}

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

typedef uint32_t __attribute__((may_alias)) word;

static int is_long(const void *address)
{
    return (uintptr_t)address % sizeof(kvpi_long_word) == 0;
}

void kvpi_store_words(void *to, const void *from, size_t n_bytes)
{
    char *t = to;
    const char *f = from;
    size_t i = 0;
    for (; is_long(t) && i + sizeof(kvpi_long_word) <= n_bytes; i += sizeof(kvpi_long_word)) {
        kvpi_long_word value;
        memcpy(&value, f + i, sizeof(value));
        __atomic_store_n((kvpi_long_word *)(void *)(t + i), value, __ATOMIC_RELAXED);
    }
    for (; i < n_bytes; i += sizeof(word)) {
        word value;
        memcpy(&value, f + i, sizeof(value));
        __atomic_store_n((word *)(void *)(t + i), value, __ATOMIC_RELAXED);
    }
}

void kvpi_load_words(void *to, const void *from, size_t n_bytes)
{
    char *t = to;
    const char *f = from;
    size_t i = 0;
    for (; is_long(f) && i + sizeof(kvpi_long_word) <= n_bytes; i += sizeof(kvpi_long_word)) {
        const kvpi_long_word value =
            __atomic_load_n((const kvpi_long_word *)(const void *)(f + i), __ATOMIC_RELAXED);
        memcpy(t + i, &value, sizeof(value));
    }
    for (; i < n_bytes; i += sizeof(word)) {
        const word value = __atomic_load_n((const word *)(const void *)(f + i), __ATOMIC_RELAXED);
        memcpy(t + i, &value, sizeof(value));
    }
}

uint16_t kvpi_cache_number(void)
{
    static uint32_t next; /* relaxed: only distinctness matters */
    uint16_t number;
    do {
        number = (uint16_t)__atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
    } while (number == 0);
    return number;
}

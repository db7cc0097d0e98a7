/* base: the arena's layout, and words that other threads read.
 *
 * Owns nothing but the process-wide number of the next cache, which makes handles of two caches
 * differ, and, in a library with checks, counts for tests. This is the only state outside the
 * caches, and takes part in no decision.
 */
#include "base/base.h"

#include <string.h>

#if KVP_CHECK >= 1
_Thread_local struct kvpi_fast kvpi_fast;
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

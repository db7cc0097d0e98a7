/* See meter.h. Sizes are those that the allocator gave, which are not less than what was asked. */
#define _GNU_SOURCE

#include "meter.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

static meter counted;
static bool runs;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *at, size_t bytes);

void meter_begin(void)
{
    counted = (meter){0};
    runs = true;
}

meter meter_end(void)
{
    runs = false;
    return counted;
}

static void add(uint64_t bytes)
{
    if (runs) {
        counted.n_asked++;
        counted.now += bytes;
        counted.peak = counted.now > counted.peak ? counted.now : counted.peak;
    }
}

/* What was there before is not counted when it goes. */
static void take(uint64_t bytes)
{
    if (runs)
        counted.now -= bytes < counted.now ? bytes : counted.now;
}

void *__wrap_malloc(size_t bytes)
{
    void *memory = __real_malloc(bytes);
    add(malloc_usable_size(memory));
    return memory;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    void *memory = __real_calloc(n, bytes);
    add(malloc_usable_size(memory));
    return memory;
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    const size_t before = malloc_usable_size(memory);
    void *grown = __real_realloc(memory, bytes);
    if (grown != NULL) {
        take(before);
        add(malloc_usable_size(grown));
    }
    return grown;
}

void __wrap_free(void *memory)
{
    take(malloc_usable_size(memory));
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *memory = __real_mmap(at, bytes, protection, flags, file, offset);
    add(memory == MAP_FAILED ? 0 : bytes);
    return memory;
}

int __wrap_munmap(void *at, size_t bytes)
{
    take(bytes);
    return __real_munmap(at, bytes);
}

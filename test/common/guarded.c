/* guarded: see guarded.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "guarded.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t bytes);
void __real_free(void *memory);

#if defined(_WIN32)

void *guarded_take(size_t bytes)
{
    void *memory = __real_malloc(bytes);
    if (memory)
        memset(memory, 0xA5, bytes);
    return memory;
}

void guarded_free(void *memory)
{
    __real_free(memory);
}

size_t guarded_held(void)
{
    return 0;
}

#else

#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS_MAX = 4096 };

static struct {
    uint8_t *at;
    size_t bytes;
} blocks[BLOCKS_MAX];
static uint32_t n_blocks;
static size_t n_held; /* bytes */

/* What lies in front of the guard: whole pages. */
static size_t mapped_bytes(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes / page + 1) * page;
}

/* Blocks of whole words of 8 bytes end exactly there; others as far in front as 16 allows. */
static size_t in_front(size_t bytes)
{
    return bytes % 8 == 0 ? bytes : (bytes + 15) & ~(size_t)15;
}

void *guarded_take(size_t bytes)
{
    const size_t n = mapped_bytes(in_front(bytes)), page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *mapping =
        mmap(NULL, n + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n_blocks == BLOCKS_MAX || mapping == MAP_FAILED ||
        mprotect(mapping + n, page, PROT_NONE) != 0)
        abort();
    blocks[n_blocks].at = mapping + n - in_front(bytes);
    blocks[n_blocks].bytes = bytes;
    n_held += bytes;
    return memset(blocks[n_blocks++].at, 0xA5, bytes);
}

void guarded_free(void *memory)
{
    uint32_t i = 0;
    while (i < n_blocks && blocks[i].at != memory)
        i++;
    if (i == n_blocks) {
        __real_free(memory);
        return;
    }
    const size_t bytes = blocks[i].bytes, n = mapped_bytes(in_front(bytes));
    (void)munmap((uint8_t *)memory + in_front(bytes) - n, n + (size_t)sysconf(_SC_PAGESIZE));
    n_held -= bytes;
    blocks[i] = blocks[--n_blocks];
}

size_t guarded_held(void)
{
    return n_held;
}

#endif

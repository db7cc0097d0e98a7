/* aligned: memory of the heap on a boundary. */
#ifndef KVPI_ALIGNED_H
#define KVPI_ALIGNED_H

#include <stddef.h>
#include <stdlib.h>

#if defined(_WIN32)

#include <malloc.h>

static inline void *kvpi_aligned_take(size_t alignment, size_t bytes)
{
    return _aligned_malloc(bytes, alignment);
}

static inline void kvpi_aligned_free(void *memory)
{
    _aligned_free(memory);
}

#else

/* `bytes` is a multiple of the alignment. */
static inline void *kvpi_aligned_take(size_t alignment, size_t bytes)
{
    return aligned_alloc(alignment, bytes);
}

static inline void kvpi_aligned_free(void *memory)
{
    free(memory);
}

#endif

#endif

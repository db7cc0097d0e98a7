/* scratch: cuts arrays out of the caller's scratch memory. With base NULL it only adds up, so that
 * the code that asks for the size is the code that takes. */
#ifndef KVPI_SCRATCH_H
#define KVPI_SCRATCH_H

#include "kvpager/attention.h"

struct kvpi_scratch {
    unsigned char *base; /* NULL: only count */
    size_t used;
    int overflow; /* a size did not fit; stays set */
};

/* n elements of `size` bytes, aligned to KVP_SCRATCH_ALIGN; NULL when only counting. */
static inline void *kvpi_scratch_take(struct kvpi_scratch *scratch, uint64_t n, size_t size)
{
    const size_t begin = scratch->used;
    if (n > (SIZE_MAX - KVP_SCRATCH_ALIGN - begin) / size) {
        scratch->overflow = 1;
        return NULL;
    }
    const size_t bytes = (size_t)n * size;
    scratch->used = begin + (bytes + KVP_SCRATCH_ALIGN - 1) / KVP_SCRATCH_ALIGN * KVP_SCRATCH_ALIGN;
    return scratch->base == NULL ? NULL : scratch->base + begin;
}

#endif

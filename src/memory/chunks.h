/* chunks: ranges to be copied, collected so that neighbours become one and the next ones are known
 * while one is copied. */
#ifndef KVPI_CHUNKS_H
#define KVPI_CHUNKS_H

#include <stdint.h>

#include "memory/copy/stream.h"

struct kvpi_chunk {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
};

enum { KVPI_CHUNKS = 256 };

struct kvpi_chunks {
    kvpi_stream_fn stream; /* NULL: memcpy, through the caches */
    uint32_t n;
    struct kvpi_chunk chunks[KVPI_CHUNKS];
};

void kvpi_chunks_begin(struct kvpi_chunks *chunks, kvpi_stream_fn stream);

/* Copy this range, now or later. Ranges of one collection may be copied in any order. */
void kvpi_chunks_add(struct kvpi_chunks *chunks, unsigned char *dst, const unsigned char *src,
                     size_t bytes);

/* Copy what is left. Other threads may read it then. */
void kvpi_chunks_end(struct kvpi_chunks *chunks);

#endif

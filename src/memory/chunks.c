/* chunks: see chunks.h.
 *
 * While a range is streamed, what lies AHEAD_BYTES further down is asked for, across the ends of
 * ranges: blocks lie anywhere, so the processor cannot guess the next one.
 *
 *     chunk 0            chunk 1                 chunk 2
 *     |======>.......|   |..............>.....|  |..........|
 *            ^ copied                   ^ asked for
 *            |<------- AHEAD_BYTES ---->|
 */
#include "memory/chunks.h"

#include <string.h>

/* One small page, at which the processor's own look-ahead ends. Half and twice as much were slower
 * in trials. */
enum { AHEAD_BYTES = 4096 };

/* A place in the ranges. */
struct cursor {
    uint32_t chunk;
    size_t offset;
};

void kvpi_chunks_begin(struct kvpi_chunks *chunks, kvpi_stream_fn stream)
{
    chunks->stream = stream;
    chunks->n = 0;
}

static void advance(const struct kvpi_chunks *chunks, struct cursor *at, size_t bytes)
{
    while (at->chunk < chunks->n && bytes >= chunks->chunks[at->chunk].bytes - at->offset) {
        bytes -= chunks->chunks[at->chunk].bytes - at->offset;
        at->chunk++;
        at->offset = 0;
    }
    at->offset += bytes;
}

static void stream_all(const struct kvpi_chunks *chunks)
{
    struct cursor at = {0, 0};
    struct cursor ahead = {0, 0};
    advance(chunks, &ahead, AHEAD_BYTES);
    while (at.chunk < chunks->n) {
        const struct kvpi_chunk *chunk = &chunks->chunks[at.chunk];
        const unsigned char *asked = chunk->src + at.offset;
        size_t bytes = chunk->bytes - at.offset;
        if (ahead.chunk < chunks->n) {
            const struct kvpi_chunk *next = &chunks->chunks[ahead.chunk];
            asked = next->src + ahead.offset;
            bytes = bytes < next->bytes - ahead.offset ? bytes : next->bytes - ahead.offset;
        }
        chunks->stream(chunk->dst + at.offset, chunk->src + at.offset, bytes, asked);
        advance(chunks, &at, bytes);
        if (ahead.chunk < chunks->n) {
            advance(chunks, &ahead, bytes);
        }
    }
}

static void copy_all(struct kvpi_chunks *chunks)
{
    if (chunks->stream) {
        stream_all(chunks);
    } else {
        for (uint32_t i = 0; i < chunks->n; i++) {
            memcpy(chunks->chunks[i].dst, chunks->chunks[i].src, chunks->chunks[i].bytes);
        }
    }
    chunks->n = 0;
}

void kvpi_chunks_add(struct kvpi_chunks *chunks, unsigned char *dst, const unsigned char *src,
                     size_t bytes)
{
    if (chunks->n > 0) {
        struct kvpi_chunk *last = &chunks->chunks[chunks->n - 1];
        if (last->dst + last->bytes == dst && last->src + last->bytes == src) {
            last->bytes += bytes;
            return;
        }
        if (chunks->n == KVPI_CHUNKS) {
            copy_all(chunks);
        }
    }
    chunks->chunks[chunks->n++] = (struct kvpi_chunk){dst, src, bytes};
}

void kvpi_chunks_end(struct kvpi_chunks *chunks)
{
    copy_all(chunks);
    if (chunks->stream) {
        kvpi_stream_end();
    }
}

/* See packed.h. */
#include "tool/recording/packed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(KVPI_HAS_ZSTD)
#include <zstd.h>
#endif

#define LEVEL 3

#if defined(KVPI_HAS_ZSTD)

static bool prepare(kvpi_frame_writer *writer, size_t n)
{
    const size_t bound = 4 + ZSTD_compressBound(n);
    if (writer->state == NULL) {
        writer->state = ZSTD_createCCtx();
        if (writer->state == NULL)
            return false;
        (void)ZSTD_CCtx_setParameter(writer->state, ZSTD_c_compressionLevel, LEVEL);
        (void)ZSTD_CCtx_setParameter(writer->state, ZSTD_c_checksumFlag, 1);
    }
    if (writer->capacity >= bound)
        return true;
    uint8_t *grown = realloc(writer->packed, bound);
    if (grown == NULL)
        return false;
    writer->packed = grown;
    writer->capacity = bound;
    return true;
}

int kvpi_frame_write(kvpi_frame_writer *writer, FILE *file, const void *payload, size_t n,
                     kvpi_recording_error *error)
{
    if (!prepare(writer, n))
        return kvpi_recording_fail(error, "cannot pack: out of memory");
    const size_t packed =
        ZSTD_compress2(writer->state, writer->packed + 4, writer->capacity - 4, payload, n);
    if (ZSTD_isError(packed))
        return kvpi_recording_fail(error, "cannot pack: %s", ZSTD_getErrorName(packed));
    for (unsigned i = 0; i < 4; i++)
        writer->packed[i] = (uint8_t)(packed >> (8 * i));
    if (fwrite(writer->packed, 1, 4 + packed, file) != 4 + packed || fflush(file) != 0)
        return kvpi_recording_fail(error, "cannot write: %s", strerror(errno));
    writer->n++;
    return 0;
}

void kvpi_frame_writer_free(kvpi_frame_writer *writer)
{
    (void)ZSTD_freeCCtx(writer->state);
    free(writer->packed);
}

/* Room for n bytes, of which what was there is not kept. */
static bool make_room(uint8_t **buffer, size_t *capacity, size_t n)
{
    if (*capacity >= n)
        return true;
    free(*buffer);
    *buffer = malloc(n);
    *capacity = *buffer == NULL ? 0 : n;
    return *buffer != NULL;
}

/* The packed bytes are there. */
static int unpack(kvpi_frame_reader *reader, size_t n_packed, size_t *n,
                  kvpi_recording_error *error)
{
    const unsigned long long size = ZSTD_getFrameContentSize(reader->packed, n_packed);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
        return kvpi_recording_fail(error, "the frame: no zstd frame that says its size");
    if (size > KVPI_RECORDING_MAX_PAYLOAD)
        return kvpi_recording_fail(error, "the frame: unpacks to more than 16 MiB");
    if (ZSTD_findFrameCompressedSize(reader->packed, n_packed) != n_packed)
        return kvpi_recording_fail(error, "the frame: is no whole zstd frame of its size");
    if (reader->state == NULL)
        reader->state = ZSTD_createDCtx();
    if (reader->state == NULL ||
        !make_room(&reader->payload, &reader->payload_capacity, (size_t)size + 1))
        return kvpi_recording_fail(error, "the frame: out of memory");
    *n =
        ZSTD_decompressDCtx(reader->state, reader->payload, (size_t)size, reader->packed, n_packed);
    if (ZSTD_isError(*n))
        return kvpi_recording_fail(error, "the frame is damaged: %s", ZSTD_getErrorName(*n));
    return 0;
}

/* Read in pieces, so that a claim of more bytes than there are costs no memory. */
static bool read_packed(kvpi_frame_reader *reader, FILE *file, size_t n, bool *no_memory)
{
    size_t done = 0;
    while (done < n) {
        const size_t piece = n - done < 65536 ? n - done : 65536;
        if (reader->packed_capacity < done + piece) {
            const size_t wanted = done + piece < 65536 ? 65536 : (done + piece) * 2;
            uint8_t *grown = realloc(reader->packed, wanted);
            *no_memory = grown == NULL;
            if (grown == NULL)
                return false;
            reader->packed = grown;
            reader->packed_capacity = wanted;
        }
        const size_t got = fread(reader->packed + done, 1, piece, file);
        done += got;
        if (got < piece)
            return false;
    }
    return true;
}

/* More of the frame may come: it is read again from its beginning, where the file can go back. */
static int go_back(const kvpi_frame_reader *reader, FILE *file)
{
    (void)fseek(file, (long)reader->offset, SEEK_SET);
    return KVPI_FRAME_CUT;
}

int kvpi_frame_read(kvpi_frame_reader *reader, FILE *file, const uint8_t **payload, size_t *n,
                    kvpi_recording_error *error)
{
    uint8_t head[4];
    bool no_memory = false;
    const size_t got = fread(head, 1, sizeof head, file);
    if (ferror(file))
        return kvpi_recording_fail(error, "cannot read: %s", strerror(errno));
    if (got < sizeof head)
        return go_back(reader, file);
    const size_t n_packed =
        head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (n_packed == 0 || n_packed > KVPI_RECORDING_MAX_PACKED)
        return kvpi_recording_fail(error, "the frame: its length is %zu, expected 1 to %u bytes",
                                   n_packed, (unsigned)KVPI_RECORDING_MAX_PACKED);
    if (!read_packed(reader, file, n_packed, &no_memory)) {
        if (no_memory)
            return kvpi_recording_fail(error, "the frame: out of memory");
        return ferror(file) ? kvpi_recording_fail(error, "cannot read: %s", strerror(errno))
                            : go_back(reader, file);
    }
    if (unpack(reader, n_packed, n, error) != 0)
        return KVPI_FRAME_WRONG;
    *payload = reader->payload;
    reader->offset += sizeof head + n_packed;
    reader->unpacked += *n;
    reader->n++;
    return KVPI_FRAME_READ;
}

void kvpi_frame_reader_free(kvpi_frame_reader *reader)
{
    (void)ZSTD_freeDCtx(reader->state);
    free(reader->packed);
    free(reader->payload);
}

#else

static const char missing[] = "this kvpager was built without libzstd";

int kvpi_frame_write(kvpi_frame_writer *writer, FILE *file, const void *payload, size_t n,
                     kvpi_recording_error *error)
{
    (void)writer, (void)file, (void)payload, (void)n;
    return kvpi_recording_fail(error, "no recordings: %s", missing);
}

void kvpi_frame_writer_free(kvpi_frame_writer *writer)
{
    (void)writer;
}

int kvpi_frame_read(kvpi_frame_reader *reader, FILE *file, const uint8_t **payload, size_t *n,
                    kvpi_recording_error *error)
{
    (void)reader, (void)file, (void)payload, (void)n;
    return kvpi_recording_fail(error, "no recordings: %s", missing);
}

void kvpi_frame_reader_free(kvpi_frame_reader *reader)
{
    (void)reader;
}

#endif

/* packed: between the files of the recording only: frames of it, packed by zstd, which has their
 * checksum. libzstd is optional (KVPI_HAS_ZSTD); without it writing and reading fail with a reason.
 *
 *   frame = u32 bytes of what follows, a zstd frame with its content's size and checksum
 */
#ifndef KVPI_RECORDING_PACKED_H
#define KVPI_RECORDING_PACKED_H

#include "tool/recording/recording.h"

typedef enum kvpi_frame_kind {
    KVPI_FRAME_HEADER = 1,
    KVPI_FRAME_REQUESTS = 2,
    KVPI_FRAME_END = 3
} kvpi_frame_kind;

/* What a request has besides. */
enum {
    KVPI_FRAME_CACHED = 1,
    KVPI_FRAME_FIRST = 2,
    KVPI_FRAME_LAST = 4,
    KVPI_FRAME_SESSION = 8,
    KVPI_FRAME_SCOPE = 16,
    KVPI_FRAME_UNSEEN = 32,
    KVPI_FRAME_AGAIN = 64,
    KVPI_FRAME_FLAGS = 127
};

#define KVPI_FRAME_MAX_TIME     (INT64_C(1) << 56) /* microseconds: the year 4253 */
#define KVPI_FRAME_MAX_CONTENTS (UINT64_C(1) << 60)

/* Zero it. */
typedef struct kvpi_frame_writer {
    uint64_t n; /* frames written */
    void *state;
    uint8_t *packed; /* [capacity] */
    size_t capacity;
} kvpi_frame_writer;

/* Write a frame, up to the system. Returns: 0; -1: error says why; the file may end in a part */
int kvpi_frame_write(kvpi_frame_writer *writer, FILE *file, const void *payload, size_t n,
                     kvpi_recording_error *error);
void kvpi_frame_writer_free(kvpi_frame_writer *writer);

/* Zero it. */
typedef struct kvpi_frame_reader {
    uint64_t n;      /* frames read */
    uint64_t offset; /* of the next one in the file */
    uint64_t unpacked;
    void *state;
    uint8_t *packed, *payload;
    size_t packed_capacity, payload_capacity;
} kvpi_frame_reader;

enum { KVPI_FRAME_CUT = 0, KVPI_FRAME_READ = 1, KVPI_FRAME_WRONG = -1 };

/* Read a frame.
 *
 * Gives:   payload  good until the next call
 * Returns: KVPI_FRAME_READ; KVPI_FRAME_CUT: the file ends before a whole frame; KVPI_FRAME_WRONG:
 *          error says why, without the offset
 */
int kvpi_frame_read(kvpi_frame_reader *reader, FILE *file, const uint8_t **payload, size_t *n,
                    kvpi_recording_error *error);
void kvpi_frame_reader_free(kvpi_frame_reader *reader);

#endif

/* unpack: what a file holds, byte after byte: as it stands, or unpacked where gzip or zstd packed
 * it, which its first bytes tell. Several packed pieces in a row are read as one, as by zcat.
 */
#ifndef KVPI_UNPACK_H
#define KVPI_UNPACK_H

#include <stdbool.h>
#include <stdio.h>

#include "tool/input/budget.h"

/* The largest window of zstd that is unpacked: what `zstd --ultra -20` makes. */
#define KVPI_UNPACK_WINDOW_LOG 25

typedef struct kvpi_unpack_packer kvpi_unpack_packer;

/* Zero it, and set file and budget. */
typedef struct kvpi_unpack {
    FILE *file;
    kvpi_budget *budget;
    unsigned char *in; /* NULL: nothing is packed */
    size_t at, n_in;
    size_t n_taken; /* memory that the budget counts */
    unsigned char head[4];
    bool has_begun;
    bool is_open; /* a packed piece has begun and not ended */
    void *state;  /* of the library */
    const kvpi_unpack_packer *packer;
    const char *wrong; /* NULL; else a sentence without the file's name */
} kvpi_unpack;

/* Read n bytes.
 *
 * Returns: how many there were: less at the end, when unpack->wrong is set, or when the file cannot
 *          be read (ferror). budget->is_over: the memory for it is not allowed
 */
size_t kvpi_unpack_read(kvpi_unpack *unpack, void *out, size_t n);

void kvpi_unpack_close(kvpi_unpack *unpack);

#endif

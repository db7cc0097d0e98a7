/* Owns the first bytes of kinds of files that people name by mistake. */
#include "tool/input/file_kind.h"

#include <string.h>

typedef struct kind {
    size_t at;
    const char *bytes;
    size_t n;
    const char *what;
} kind;

#define BYTES(text) text, sizeof(text) - 1

static const kind kinds[] = {
    {0, BYTES("version https://git-lfs"),
     "a Git LFS pointer, which stands for the file: 'git lfs pull' fetches it"},
    {0, BYTES("PK\003\004"), "a ZIP archive: unpack it first"},
    {0,
     BYTES("\xfd"
           "7zXZ"),
     "packed by xz: unpack it first (gzip and zstd are read as they are)"},
    {0, BYTES("BZh"), "packed by bzip2: unpack it first (gzip and zstd are read as they are)"},
    {257, BYTES("ustar"), "a tar archive: unpack it first"},
    {0, BYTES("PAR1"), "Parquet: convert it to JSON, an object a line"},
    {0, BYTES("ARROW1"), "Arrow: convert it to JSON, an object a line"},
    {0, BYTES("\x89HDF"), "HDF5"},
    {0, BYTES("SQLite format 3"), "an SQLite database"},
    {0,
     BYTES("\x7f"
           "ELF"),
     "a program"},
    {0, BYTES("%PDF"), "a PDF document"},
    {0, BYTES("\x89PNG"), "a PNG picture"},
    {0, BYTES("<!DOCTYPE"), "an HTML page: perhaps the one that links to the trace"},
    {0, BYTES("<!doctype"), "an HTML page: perhaps the one that links to the trace"},
    {0, BYTES("<html"), "an HTML page: perhaps the one that links to the trace"},
    {0, BYTES("<?xml"), "XML"},
    {0, BYTES("\xff\xfe"), "text in UTF-16, expected UTF-8"},
    {0, BYTES("\xfe\xff"), "text in UTF-16, expected UTF-8"},
    {0, BYTES("kvpops"), "an operation log: see kvpager trace"},
    {0, BYTES("kvpshot"), "a snapshot: see kvpager inspect"},
};

const char *kvpi_file_kind(const char *bytes, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].at + kinds[i].n &&
            memcmp(bytes + kinds[i].at, kinds[i].bytes, kinds[i].n) == 0)
            return kinds[i].what;
    return NULL;
}

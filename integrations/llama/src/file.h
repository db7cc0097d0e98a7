/* file: a file that is replaced as a whole, or stays as it was. */
#ifndef KVPI_LLAMA_FILE_H
#define KVPI_LLAMA_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct kvpi_file {
    FILE *file;
    char *path;
    char *part; /* the new file beside it, readable by its owner only */
    int error;  /* errno of what failed first */
} kvpi_file;

/* 0: it failed. kvpi_file_end must follow in any case. */
int kvpi_file_begin(kvpi_file *file, const char *path);
int kvpi_file_write(kvpi_file *file, const void *bytes, size_t n);

/* Write what is to be at an earlier place: the first n bytes of the file. */
int kvpi_file_write_first(kvpi_file *file, const void *bytes, size_t n);

/* Put the new file, synced to the disk, in the place of the old one. 0: the old one is there. */
int kvpi_file_replace(kvpi_file *file);
void kvpi_file_end(kvpi_file *file);

#endif

/* store_disk: a disk of a file store, in memory, that can be copied as a whole. */
#ifndef FUZZ_STORE_DISK_H
#define FUZZ_STORE_DISK_H

#include "store/file/disk.h"

enum {
    STORE_DISK_FILES = 24,
    STORE_DISK_HANDLES = 48,
    STORE_DISK_PATH = 100,
    STORE_DISK_BYTES = 128 << 10 /* of a file, at most */
};

struct store_disk_file {
    char path[STORE_DISK_PATH]; /* "": there is none */
    int n_open;
    int locked_by; /* handle + 1; 0: nobody */
    uint64_t n_bytes;
    uint8_t bytes[STORE_DISK_BYTES];
};

struct store_disk {
    struct store_disk_file files[STORE_DISK_FILES];
    int handles[STORE_DISK_HANDLES]; /* file + 1; 0: none */
};

struct kvpi_disk store_disk_interface(struct store_disk *disk);

/* What `from` has, without bytes behind the ends of files. */
void store_disk_copy(struct store_disk *to, const struct store_disk *from);

/* NULL: there is none. */
struct store_disk_file *store_disk_find(struct store_disk *disk, const char *path);

#endif

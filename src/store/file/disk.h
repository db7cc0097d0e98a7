/* disk: what the file back end asks of the system, so that a test can be the disk.
 *
 * Functions return 0 or an errno. Paths are absolute or relative to the working directory; a last
 * component that is a symbolic link is never followed. */
#ifndef KVPI_STORE_DISK_H
#define KVPI_STORE_DISK_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "store/identity/identity_record.h"

enum {
    KVPI_DISK_WRITE = 1,  /* else read only */
    KVPI_DISK_CREATE = 2, /* if it is not there; mode 0600 */
    KVPI_DISK_EMPTY = 4,  /* what it has goes */
    KVPI_DISK_DIRECT = 8  /* past the page cache: offsets, lengths and addresses by 4096; EINVAL:
                             the file system refuses, or would go through its cache */
};

/* How long lock waits for another process. SOON: up to a second. */
enum { KVPI_LOCK_NOW = 0, KVPI_LOCK_WAIT = 1, KVPI_LOCK_SOON = 2 };

/* What list tells of each entry of a directory. */
typedef void (*kvpi_disk_entry_fn)(void *context, const char *name, int is_directory);

struct kvpi_disk {
    void *context;
    int (*open)(void *context, const char *path, unsigned flags, int *out_file);
    void (*close)(void *context, int file);
    /* Read or write all spans at an offset. A read that meets the end of the file gives EIO. */
    int (*read)(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                uint64_t offset);
    int (*write)(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                 uint64_t offset);
    /* A file that was opened with KVPI_DISK_DIRECT goes through the page cache from now on. */
    int (*buffer)(void *context, int file);
    int (*size)(void *context, int file, uint64_t *out_bytes);
    /* Bytes that the disk of a directory has room for, without trying; UINT64_MAX: it does not say.
     */
    uint64_t (*room)(void *context, const char *path);
    /* Make the file this large, with room on the disk for all of it. What fails may have made it
     * larger: all that its size covers has room. */
    int (*allot)(void *context, int file, uint64_t bytes);
    /* Set room on the disk aside for the first so many bytes of the file; its size stays. ENOTSUP:
     * the file system cannot. */
    int (*reserve)(void *context, int file, uint64_t bytes);
    /* What was written survives a loss of power from now on. */
    int (*sync)(void *context, int file);
    int (*sync_directory)(void *context, const char *path);
    int (*rename)(void *context, const char *from, const char *to);
    int (*remove)(void *context, const char *path, int is_directory);
    int (*make_directory)(void *context, const char *path); /* 0700; 0 if it is there */
    int (*list)(void *context, const char *path, kvpi_disk_entry_fn entry, void *entry_context);
    /* Lock an open file against every other opening of it: EWOULDBLOCK, unless wait says so. The
     * lock goes with the last use of the opening: a transfer that is under way is one. */
    int (*lock)(void *context, int file, int wait);
};

extern const struct kvpi_disk kvpi_system_disk;

/* Whether an error says that there is no room: of the disk, or of what its owner may have of it. */
static inline int kvpi_disk_is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

#endif

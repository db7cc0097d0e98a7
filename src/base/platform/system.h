/* system: the system calls for writing a file whole, as a table of functions. A test can put a disk
 * there that is cut off at any moment.
 *
 * Each function returns 0 or more on success, else minus an error number of errno.h. A folder is
 * opened once, and names are relative to it, so the folder cannot be exchanged meanwhile.
 */
#ifndef KVPI_SYSTEM_H
#define KVPI_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

/* What a name stands for; a symbolic link is not followed. */
enum {
    KVPI_SYSTEM_NOTHING = 0,
    KVPI_SYSTEM_FILE,
    KVPI_SYSTEM_FOLDER,
    KVPI_SYSTEM_LINK,
    KVPI_SYSTEM_OTHER
};

struct kvpi_system {
    void *context;
    const char *separators; /* each may end the folder's part of a path */
    int (*open_folder)(void *context, const char *path);
    int (*kind_of)(void *context, int folder, const char *name); /* KVPI_SYSTEM_... */
    int (*create)(void *context, int folder, const char *name);  /* -EEXIST: something is there */
    int64_t (*write)(void *context, int file, const void *bytes, size_t n); /* how many were */
    int (*sync)(void *context, int file);          /* the bytes are on the disk */
    int (*sync_folder)(void *context, int folder); /* the names are */
    int (*rename)(void *context, int folder, const char *from, const char *to);
    int (*remove)(void *context, int folder, const char *name);
    int (*close)(void *context, int file_or_folder);
};

/* The system's own files. */
extern const struct kvpi_system kvpi_system_files;

#endif

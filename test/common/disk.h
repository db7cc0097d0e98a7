/* disk: a simulated one, on which files are saved (src/base/platform/system.h), for tests that cut
 * it off.
 *
 * What the process sees is one thing, what is on the disk another: bytes are there after a sync of
 * their file, names after a sync of their folder. Before that, a loss of power may leave any part:
 * each change of names may have happened or not, and of a file's bytes nothing, the first half,
 * zeros, or all may be there. disk_after gives every such outcome.
 *
 * A sync that fails loses what it was to write, and the next one says that all is well: so do real
 * systems.
 */
#ifndef TEST_DISK_H
#define TEST_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/platform/system.h"

enum { DISK_FILES = 8, DISK_NAMES = 8, DISK_CHANGES = 8, DISK_NAME_BYTES = 64 };
enum { DISK_NOTHING, DISK_HALF, DISK_ZEROS, DISK_ALL, DISK_CONTENTS };

typedef enum disk_call {
    DISK_OPEN,
    DISK_KIND,
    DISK_CREATE,
    DISK_WRITE,
    DISK_SYNC,
    DISK_SYNC_FOLDER,
    DISK_RENAME,
    DISK_REMOVE,
    DISK_CLOSE
} disk_call;

typedef struct disk_bytes {
    uint8_t *at;
    size_t n;
} disk_bytes;

typedef struct disk_file {
    disk_bytes seen, safe;
    bool is_lost; /* a sync failed */
} disk_file;

typedef struct disk_name {
    char of[DISK_NAME_BYTES]; /* "": none */
    int file;                 /* -1 - kind: no file but a KVPI_SYSTEM_... */
} disk_name;

typedef struct disk_names {
    disk_name at[DISK_NAMES];
} disk_names;

typedef struct disk_change {
    char from[DISK_NAME_BYTES]; /* goes; "": none */
    disk_name to;               /* comes; "": none */
} disk_change;

typedef struct disk {
    disk_file files[DISK_FILES];
    int n_files;
    disk_names seen, safe;
    disk_change changes[DISK_CHANGES]; /* of names, since the folder's last sync, in order */
    int n_changes;
    int n_calls;    /* so far */
    int cut_at;     /* the call before which the power goes; 0: never */
    bool halves;    /* half of the write that is cut happens */
    int fail_at;    /* the call that fails; 0: none */
    int error;      /* with this; 0: it is a write, and writes one byte only */
    disk_call last; /* what failed, or was cut */
    bool is_off;
} disk;

struct kvpi_system disk_system(disk *d);

/* Put a file there, or what is none (bytes NULL), which is on the disk. */
void disk_put(disk *d, const char *name, const disk_bytes *bytes, int kind);
void disk_drop(disk *d);

/* What the process sees under a name; NULL: nothing. */
const disk_bytes *disk_see(const disk *d, const char *name);

/* What may be there after a loss of power now: of the changes those with a bit in `happened`, of
 * bytes that no sync has made safe DISK_... The caller frees it. NULL: nothing has the name. */
disk_bytes disk_after(const disk *d, const char *name, unsigned happened, int content);

#endif

/* home: the directory that this writer owns, and all that bounds PATH.
 *
 *   PATH/lock                     held while PATH grows or directories go
 *   PATH/FFFFFFFFFFFFFFFF/        first half of the fingerprint, 16 hex digits
 *       wN/lock                   held by the writer while it lives; has when it was opened, u64
 *       wN/log                    which records there are
 *       wN/slab-NNNNNN            their slots
 *
 * A writer takes the first wN that no writer holds and that has the writer's own form, or makes the
 * next one. If writes of a dead writer are still under way in a wN after a second, it is passed
 * over. So an engine that restarts finds its records, and two engines at a time have a directory
 * each. */
#ifndef KVPI_STORE_HOME_H
#define KVPI_STORE_HOME_H

#include "store/file/slabs.h"

/* "directory/name"; "" when it is too long: no file is there, and none can be made. */
void kvpi_path_join(char out[KVPI_PATH_BYTES], const char *directory, const char *name);

void kvpi_path_copy(char out[KVPI_PATH_BYTES], const char *path);

/* Call a function for every home below a root. 0 or an errno: there may be more. */
typedef void (*kvpi_home_fn)(void *context, const char *path, const char *parent_name);
int kvpi_home_each(const struct kvpi_disk *disk, const char *root, kvpi_home_fn home,
                   void *context);

/* Lock a home that has no writer. 0 or an errno: EWOULDBLOCK: it has one. */
int kvpi_home_take(const struct kvpi_disk *disk, const char *path, int *out_lock);

/* Whether a home has a writer. Nothing is written. With the root's lock held, if there is one: a
 * writer that starts meanwhile waits, and does not take us for a writer. */
int kvpi_home_in_use(const struct kvpi_disk *disk, const char *path);

/* Lock a root against the start and growth of writers. 0 or an errno. Nothing is written. */
int kvpi_home_lock_root(const struct kvpi_disk *disk, const char *root, int *out_lock);

/* When a home was opened last. */
uint64_t kvpi_home_opened(const struct kvpi_disk *disk, const char *path);

/* The bytes that count for a home. 0 or an errno: there may be more. */
int kvpi_home_bytes(const struct kvpi_disk *disk, const char *path, uint64_t *out_bytes);

struct kvpi_home {
    const struct kvpi_disk *disk;
    char root[KVPI_PATH_BYTES];   /* PATH */
    char parent[KVPI_PATH_BYTES]; /* PATH/fingerprint */
    char path[KVPI_PATH_BYTES];   /* PATH/fingerprint/wN */
    uint32_t number;              /* N */
    int root_lock;
    int lock;
    int is_new;      /* its own name is not for sure yet */
    int is_unsynced; /* names of its files are not */
    uint64_t size;   /* bytes of all slabs and logs below PATH */
};

/* Take a home, with its log open: the one that was there, or an empty one.
 *
 * Takes:   form         as the writer wants it; slab_slots and n_slots of a home that was there win
 *          now          of the clock: greater than that of every opening before
 * Returns: KVP_OK; KVP_E_IO, KVP_E_ARG, and a sentence
 */
kvp_status kvpi_home_open(struct kvpi_home *home, const struct kvpi_disk *disk, const char *root,
                          const kvp_digest *fingerprint, uint64_t size,
                          const struct kvpi_log_form *form, uint64_t now, struct kvpi_log *out_log,
                          char *out_why, size_t why_bytes);
void kvpi_home_close(struct kvpi_home *home);

/* Names that came, went or moved in the home survive a loss of power from now on. 0 or an errno,
 * and then `is_unsynced` says so until a call succeeds. */
int kvpi_home_sync(struct kvpi_home *home);

/* Begin to make `bytes` more. 1: there is room below `size`, if need be because directories whose
 * writers are gone were removed; no other process grows until kvpi_home_end. 0: there is none, or
 * the disk failed. */
int kvpi_home_begin(struct kvpi_home *home, uint64_t bytes);
void kvpi_home_end(struct kvpi_home *home);

#endif

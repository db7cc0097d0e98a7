/* save: a snapshot goes into a new file beside the one that it is to replace.
 *
 *   1  open the folder
 *   2  make NAME.part-N, which must be new
 *   3  write the snapshot into it, and have it put on the disk (fsync)
 *   4  rename it to NAME: from here on NAME is the new snapshot
 *   5  have the folder put on the disk
 *
 * Up to 4 NAME has not been touched, and 4 happens as a whole or not at all. 3 is done before it,
 * so what has the name has the bytes. A fault before 4 removes the part. A fault in 5 cannot take
 * the rename back: NAME is the new snapshot, or after a loss of power the old one, each whole.
 *
 * A failed fsync is not tried again: the system may have dropped what it could not write, and calls
 * the file clean from then on.
 */
#include "base/platform/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Records are small, 80 bytes and more: gathered to pieces that are worth a call of the system. */
#define BUFFER_BYTES ((size_t)1 << 16)

/* A name has 255 bytes on most file systems; the part's keeps as much of it as leaves room. */
#define NAME_BYTES 220

/* A part is left behind by each process that was killed in the middle: as many are passed over. */
#define PARTS_MAX 1000

struct file_save {
    const struct kvpi_system *system;
    const char *name; /* in the folder */
    int folder;
    int file;
    int error; /* the first one */
    size_t n;  /* bytes in the buffer */
    unsigned char *buffer;
    char part[NAME_BYTES + 24];
};

static int fail_save(struct file_save *save, int error)
{
    if (save->error == 0) {
        save->error = error;
    }
    return -1;
}

/* ------------------------------------------------------------------------------------- writing */

static int write_all(struct file_save *save, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        const int64_t done = save->system->write(save->system->context, save->file, bytes, n);
        if (done == -EINTR) {
            continue;
        }
        if (done <= 0 || (uint64_t)done > n) {
            return fail_save(save, done < 0 ? (int)-done : EIO);
        }
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

static int flush_file(struct file_save *save)
{
    const size_t n = save->n;
    save->n = 0;
    return write_all(save, save->buffer, n);
}

static int take_saved(void *context, const void *bytes, size_t n)
{
    struct file_save *save = context;
    if (n > BUFFER_BYTES - save->n && flush_file(save) != 0) {
        return -1;
    }
    if (n > BUFFER_BYTES) {
        return write_all(save, bytes, n);
    }
    memcpy(save->buffer + save->n, bytes, n);
    save->n += n;
    return 0;
}

/* ----------------------------------------------------------------------------------- the steps */

static int open_folder(struct file_save *save, const char *path)
{
    const size_t n = (size_t)(save->name - path); /* with the last slash */
    char *folder = malloc(n + 2);
    if (folder == NULL) {
        return fail_save(save, ENOMEM);
    }
    memcpy(folder, path, n);
    folder[n] = '.';
    folder[n + 1] = '\0';
    do {
        save->folder = save->system->open_folder(save->system->context, folder);
    } while (save->folder == -EINTR);
    free(folder);
    return save->folder < 0 ? fail_save(save, -save->folder) : 0;
}

/* Only a file is replaced: what else has the name stays, and is not written through. */
static int check_target(struct file_save *save)
{
    const int kind = save->system->kind_of(save->system->context, save->folder, save->name);
    switch (kind) {
    case KVPI_SYSTEM_NOTHING:
    case KVPI_SYSTEM_FILE: return 0;
    case KVPI_SYSTEM_FOLDER: return fail_save(save, EISDIR);
    case KVPI_SYSTEM_LINK: return fail_save(save, ELOOP);
    case KVPI_SYSTEM_OTHER: return fail_save(save, ENOTSUP);
    default: return fail_save(save, -kind);
    }
}

static int create_part(struct file_save *save)
{
    save->file = -EEXIST;
    for (unsigned i = 0; i < PARTS_MAX && (save->file == -EEXIST || save->file == -EINTR); i++) {
        (void)snprintf(save->part, sizeof(save->part), "%.*s.part-%u", NAME_BYTES, save->name, i);
        save->file = save->system->create(save->system->context, save->folder, save->part);
    }
    return save->file < 0 ? fail_save(save, -save->file) : 0;
}

static int sync_part(struct file_save *save)
{
    int done;
    do {
        done = save->system->sync(save->system->context, save->file);
    } while (done == -EINTR);
    return done < 0 ? fail_save(save, -done) : 0;
}

static int close_part(struct file_save *save)
{
    const int done = save->system->close(save->system->context, save->file);
    return done < 0 ? fail_save(save, -done) : 0;
}

static int rename_part(struct file_save *save)
{
    const struct kvpi_system *system = save->system;
    const int done = system->rename(system->context, save->folder, save->part, save->name);
    return done < 0 ? fail_save(save, -done) : 0;
}

static void remove_part(const struct file_save *save)
{
    (void)save->system->remove(save->system->context, save->folder, save->part);
}

static int sync_folder(struct file_save *save)
{
    int done;
    do {
        done = save->system->sync_folder(save->system->context, save->folder);
    } while (done == -EINTR);
    return done < 0 ? fail_save(save, -done) : 0;
}

/* ------------------------------------------------------------------------------------ the whole */

/* Write the part, and put it in its place. */
static kvp_status save_part(struct file_save *save, kvp_cache *cache,
                            const kvp_snapshot_options *options)
{
    const kvp_sink sink = {save, take_saved};
    kvp_status status = kvp_snapshot_save(cache, options, &sink);
    int wrong = status != KVP_OK || flush_file(save) != 0 || sync_part(save) != 0;
    wrong = close_part(save) != 0 || wrong;
    wrong = wrong || rename_part(save) != 0;
    if (wrong) {
        remove_part(save);
        return status == KVP_OK ? KVP_E_IO : status;
    }
    return sync_folder(save) == 0 ? KVP_OK : KVP_E_IO;
}

static kvp_status save_in_folder(struct file_save *save, kvp_cache *cache,
                                 const kvp_snapshot_options *options)
{
    if (check_target(save) != 0 || create_part(save) != 0) {
        return KVP_E_IO;
    }
    return save_part(save, cache, options);
}

/* What is behind the last separator. */
static const char *name_in(const char *path, const char *separators)
{
    const char *name = path;
    for (size_t n = strcspn(name, separators); name[n] != '\0'; n = strcspn(name, separators)) {
        name += n + 1;
    }
    return name;
}

kvp_status kvpi_save_snapshot(kvp_cache *cache, const kvp_snapshot_options *options,
                              const char *path, const struct kvpi_system *system, int *out_error)
{
    if (path == NULL || *path == '\0') {
        return KVP_E_ARG;
    }
    struct file_save save = {.system = system, .name = name_in(path, system->separators)};
    kvp_status status = KVP_E_IO;
    save.buffer = malloc(BUFFER_BYTES);
    if (save.buffer == NULL) {
        return KVP_E_NO_MEMORY;
    }
    if (*save.name == '\0') {
        (void)fail_save(&save, EISDIR);
    } else if (open_folder(&save, path) == 0) {
        status = save_in_folder(&save, cache, options);
        (void)system->close(system->context, save.folder);
    }
    free(save.buffer);
    if (status == KVP_E_IO && out_error != NULL) {
        *out_error = save.error;
    }
    return status == KVP_E_IO && save.error == ENOMEM ? KVP_E_NO_MEMORY : status;
}

kvp_status kvp_snapshot_save_file(kvp_cache *cache, const kvp_snapshot_options *options,
                                  const char *path, int *out_error)
{
    return kvpi_save_snapshot(cache, options, path, &kvpi_system_files, out_error);
}

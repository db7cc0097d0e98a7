/* home: found or made, and kept within the limit of all homes below PATH.
 *
 * What a home takes is counted as its slabs and LOG_BYTES for each of their slots: room for a log
 * and for its successor, so that a log never needs to ask. */
#include "store/file/home.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/identity/identity_bytes.h"
#include "store/url.h"

enum { LOG_BYTES = 256, HOMES_MAX = 4096, NAME_BYTES = 256 };

void kvpi_path_join(char out[KVPI_PATH_BYTES], const char *directory, const char *name)
{
    const int n = snprintf(out, KVPI_PATH_BYTES, "%s/%s", directory, name);
    if (n < 0 || n >= KVPI_PATH_BYTES)
        *out = 0; /* no file is there, and none can be made */
}

void kvpi_path_copy(char out[KVPI_PATH_BYTES], const char *path)
{
    const int n = snprintf(out, KVPI_PATH_BYTES, "%s", path);
    if (n < 0 || n >= KVPI_PATH_BYTES)
        *out = 0;
}

/* Open the lock file of a directory and lock it. 0 or an errno. */
static int take_lock(const struct kvpi_disk *disk, const char *directory, int wait, int *out_file)
{
    char path[KVPI_PATH_BYTES];
    kvpi_path_join(path, directory, "lock");
    int file;
    int error = disk->open(disk->context, path, KVPI_DISK_WRITE | KVPI_DISK_CREATE, &file);
    if (error)
        return error;
    error = disk->lock(disk->context, file, wait);
    if (error)
        disk->close(disk->context, file);
    else
        *out_file = file;
    return error;
}

/* -------------------------------------------------------------------------------- what there is */

/* Names of one kind in a directory. */
struct names {
    char (*names)[NAME_BYTES];
    uint32_t n;
    uint32_t capacity;
    int directories;
    int error; /* there may be more */
};

/* Not that there is nothing, or nothing of ours: it could not be seen. */
static int is_unseen(int error)
{
    return error != 0 && error != ENOENT && error != ENOTDIR && error != EACCES && error != EPERM &&
           error != ELOOP;
}

static void take_name(void *context, const char *name, int is_directory)
{
    struct names *names = context;
    if (is_directory != names->directories || strlen(name) >= NAME_BYTES)
        return;
    if (names->n == names->capacity) {
        const uint32_t capacity = names->capacity ? names->capacity * 2 : 16;
        char(*more)[NAME_BYTES] =
            capacity <= 1 << 20 ? realloc(names->names, capacity * sizeof *more) : NULL;
        if (!more) {
            names->error = ENOMEM;
            return;
        }
        names->names = more;
        names->capacity = capacity;
    }
    memcpy(names->names[names->n++], name, strlen(name) + 1);
}

static struct names list(const struct kvpi_disk *disk, const char *path, int directories)
{
    struct names names = {.directories = directories};
    const int error = disk->list(disk->context, path, take_name, &names);
    if (is_unseen(error))
        names.error = error;
    return names;
}

/* Add the size of a file. 0 or an errno. */
static int add_bytes(const struct kvpi_disk *disk, const char *path, uint64_t *bytes)
{
    int file;
    uint64_t has = 0;
    int error = disk->open(disk->context, path, 0, &file);
    if (error)
        return is_unseen(error) ? error : 0;
    error = disk->size(disk->context, file, &has);
    disk->close(disk->context, file);
    *bytes += has;
    return error;
}

int kvpi_home_bytes(const struct kvpi_disk *disk, const char *path, uint64_t *out_bytes)
{
    char file[KVPI_PATH_BYTES];
    struct kvpi_log log;
    kvpi_path_join(file, path, "log");
    uint64_t slot_bytes = 4096;
    if (kvpi_log_open(&log, disk, file, 0) == KVP_OK) {
        slot_bytes = log.form.slot_bytes;
        kvpi_log_close(&log);
    }
    uint64_t bytes = 0;
    struct names files = list(disk, path, 0);
    int error = files.error;
    for (uint32_t i = 0; i < files.n && !error; i++) {
        if (strncmp(files.names[i], "slab-", 5) == 0) {
            kvpi_path_join(file, path, files.names[i]);
            error = add_bytes(disk, file, &bytes);
        }
    }
    free(files.names);
    *out_bytes = bytes + bytes / slot_bytes * LOG_BYTES;
    return error;
}

uint64_t kvpi_home_opened(const struct kvpi_disk *disk, const char *path)
{
    char name[KVPI_PATH_BYTES];
    uint8_t bytes[8] = {0};
    const struct kvpi_span span = {bytes, sizeof bytes};
    int file;
    kvpi_path_join(name, path, "lock");
    if (disk->open(disk->context, name, 0, &file) != 0)
        return 0;
    if (disk->read(disk->context, file, &span, 1, 0) != 0)
        memset(bytes, 0, sizeof bytes);
    disk->close(disk->context, file);
    return kvpi_get64(bytes);
}

static void remove_home(const struct kvpi_disk *disk, const char *path)
{
    char file[KVPI_PATH_BYTES];
    struct names files = list(disk, path, 0);
    /* The lock goes last: what is left of a home is still one. */
    for (uint32_t i = 0; i < files.n; i++) {
        kvpi_path_join(file, path, files.names[i]);
        if (strcmp(files.names[i], "lock") != 0)
            disk->remove(disk->context, file, 0);
    }
    free(files.names);
    kvpi_path_join(file, path, "lock");
    disk->remove(disk->context, file, 0);
    disk->remove(disk->context, path, 1);
}

/* ------------------------------------------------------------------------------------ the limit */

/* Adds up all homes, and finds the one without a writer that was opened longest ago. */
struct survey {
    const struct kvpi_home *home;
    int error; /* there may be more */
    uint64_t bytes;
    uint64_t oldest;
    char path[KVPI_PATH_BYTES];
};

/* For reading only: a root may be mounted so. */
static int lock_read_only(const struct kvpi_disk *disk, const char *directory, int wait,
                          int *out_file)
{
    char path[KVPI_PATH_BYTES];
    kvpi_path_join(path, directory, "lock");
    int file;
    int error = disk->open(disk->context, path, 0, &file);
    if (error)
        return error;
    error = disk->lock(disk->context, file, wait);
    if (error)
        disk->close(disk->context, file);
    else
        *out_file = file;
    return error;
}

int kvpi_home_lock_root(const struct kvpi_disk *disk, const char *root, int *out_lock)
{
    return lock_read_only(disk, root, 1, out_lock);
}

int kvpi_home_in_use(const struct kvpi_disk *disk, const char *path)
{
    int lock;
    const int error = lock_read_only(disk, path, 0, &lock);
    if (error)
        return error == EWOULDBLOCK;
    disk->close(disk->context, lock);
    return 0;
}

int kvpi_home_take(const struct kvpi_disk *disk, const char *path, int *out_lock)
{
    return take_lock(disk, path, 0, out_lock);
}

static int is_dead(const struct kvpi_disk *disk, const char *path)
{
    int lock;
    if (take_lock(disk, path, KVPI_LOCK_NOW, &lock) != 0)
        return 0;
    disk->close(disk->context, lock);
    return 1;
}

static void survey_home(void *context, const char *path, const char *parent_name)
{
    (void)parent_name;
    struct survey *survey = context;
    const struct kvpi_home *home = survey->home;
    uint64_t bytes;
    const int error = kvpi_home_bytes(home->disk, path, &bytes);
    survey->error = error ? error : survey->error;
    survey->bytes += bytes;
    if (strcmp(path, home->path) == 0 || !is_dead(home->disk, path))
        return;
    const uint64_t opened = kvpi_home_opened(home->disk, path);
    if (!*survey->path || opened < survey->oldest) {
        survey->oldest = opened;
        kvpi_path_copy(survey->path, path);
    }
}

int kvpi_home_each(const struct kvpi_disk *disk, const char *root, kvpi_home_fn home, void *context)
{
    struct names parents = {.directories = 1};
    int error = disk->list(disk->context, root, take_name, &parents);
    error = error ? error : parents.error;
    for (uint32_t i = 0; i < parents.n; i++) {
        char parent[KVPI_PATH_BYTES];
        kvpi_path_join(parent, root, parents.names[i]);
        struct names homes = list(disk, parent, 1);
        for (uint32_t j = 0; j < homes.n; j++) {
            char path[KVPI_PATH_BYTES];
            kvpi_path_join(path, parent, homes.names[j]);
            home(context, path, parents.names[i]);
        }
        error = error ? error : homes.error;
        free(homes.names);
    }
    free(parents.names);
    return error;
}

static struct survey survey_all(const struct kvpi_home *home)
{
    struct survey survey = {.home = home};
    const int error = kvpi_home_each(home->disk, home->root, survey_home, &survey);
    survey.error = error ? error : survey.error;
    return survey;
}

int kvpi_home_begin(struct kvpi_home *home, uint64_t bytes)
{
    if (take_lock(home->disk, home->root, KVPI_LOCK_WAIT, &home->root_lock) != 0)
        return 0;
    for (uint32_t i = 0; i < HOMES_MAX; i++) {
        struct survey survey = survey_all(home);
        if (survey.error)
            break; /* what cannot be seen may be anything */
        if (survey.bytes <= home->size && bytes <= home->size - survey.bytes)
            return 1;
        if (!*survey.path)
            break;
        remove_home(home->disk, survey.path);
    }
    kvpi_home_end(home);
    return 0;
}

void kvpi_home_end(struct kvpi_home *home)
{
    home->disk->close(home->disk->context, home->root_lock);
    home->root_lock = -1;
}

/* ---------------------------------------------------------------------------------- open, close */

static int same_form(const struct kvpi_log_form *a, const struct kvpi_log_form *b)
{
    return a->slot_bytes == b->slot_bytes && a->header_bytes == b->header_bytes &&
           a->record_blocks == b->record_blocks && a->block_tokens == b->block_tokens;
}

/* Nothing is under way into the slabs any more. A writer that was killed may have left writes to
 * the system; they keep the locks of the slabs (slabs.h) until they have landed. */
static int is_quiet(const struct kvpi_home *home)
{
    const struct kvpi_disk *disk = home->disk;
    struct names files = list(disk, home->path, 0);
    int quiet = files.error == 0;
    for (uint32_t i = 0; i < files.n && quiet; i++) {
        char path[KVPI_PATH_BYTES];
        int file;
        kvpi_path_join(path, home->path, files.names[i]);
        if (strncmp(files.names[i], "slab-", 5) != 0 ||
            disk->open(disk->context, path, 0, &file) != 0)
            continue;
        quiet = disk->lock(disk->context, file, KVPI_LOCK_SOON) != EWOULDBLOCK;
        disk->close(disk->context, file);
    }
    free(files.names);
    return quiet;
}

/* A full disk, whose power was lost before it had these bytes, refuses no one: when this home was
 * opened is not known then. */
static int note_opening(const struct kvpi_home *home, uint64_t now)
{
    uint8_t bytes[8];
    kvpi_put64(bytes, now);
    const struct kvpi_span span = {bytes, sizeof bytes};
    const int error = home->disk->write(home->disk->context, home->lock, &span, 1, 0);
    return kvpi_disk_is_full(error) ? 0 : error;
}

int kvpi_home_sync(struct kvpi_home *home)
{
    const struct kvpi_disk *disk = home->disk;
    int error = disk->sync_directory(disk->context, home->path);
    if (!error && home->is_new)
        error = disk->sync_directory(disk->context, home->parent);
    home->is_new &= error != 0;
    home->is_unsynced = error != 0;
    return error;
}

/* The lock of home->path is held, and nothing moves there. What is there is ours, or is made ours:
 * KVP_OK; KVP_E_MISMATCH: it has another form or version, or cannot be read, and stays as it is. */
static kvp_status move_in(struct kvpi_home *home, const struct kvpi_log_form *form, uint64_t now,
                          struct kvpi_log *out_log)
{
    char path[KVPI_PATH_BYTES];
    kvpi_path_join(path, home->path, "log");
    kvp_status status = kvpi_log_open(out_log, home->disk, path, 1);
    /* What cannot be read now may be read by the next start. */
    if (status == KVP_E_VERSION || status == KVP_E_IO)
        return KVP_E_MISMATCH;
    if (status == KVP_OK && !same_form(&out_log->form, form)) {
        kvpi_log_close(out_log);
        return KVP_E_MISMATCH;
    }
    if (status == KVP_OK && form->n_slots < out_log->form.slab_slots)
        kvpi_log_close(out_log); /* not one of its slabs fits any more: begin again */
    else if (status == KVP_OK) {
        const uint32_t slab_slots = out_log->form.slab_slots;
        out_log->form.n_slots = form->n_slots / slab_slots * slab_slots;
        return KVP_OK;
    }
    /* Nothing here, or nothing that tells what the slabs hold. */
    struct names files = list(home->disk, home->path, 0);
    for (uint32_t i = 0; i < files.n; i++) {
        char file[KVPI_PATH_BYTES];
        kvpi_path_join(file, home->path, files.names[i]);
        if (strcmp(files.names[i], "lock") != 0)
            home->disk->remove(home->disk->context, file, 0);
    }
    free(files.names);
    if (kvpi_log_create(out_log, home->disk, path, form, now) != 0)
        return KVP_E_IO;
    home->is_new = 1;
    (void)kvpi_home_sync(home); /* else the first sync of the store does it */
    return KVP_OK;
}

/* 0, or the system's number of what went wrong. */
static int make_directories(struct kvpi_home *home, const char *root, const kvp_digest *fingerprint)
{
    char name[17];
    for (unsigned i = 0; i < 8; i++)
        snprintf(name + 2 * i, 3, "%02x", (unsigned)fingerprint->bytes[i]);
    if (strlen(root) >= sizeof home->root - 64)
        return ENAMETOOLONG;
    kvpi_path_copy(home->root, root);
    kvpi_path_join(home->parent, root, name);
    const int error = home->disk->make_directory(home->disk->context, home->root);
    return error ? error : home->disk->make_directory(home->disk->context, home->parent);
}

/* With the root's lock held: a process that checks whether a home is in use locks it briefly, and
 * would be taken for its writer. */
static kvp_status choose_home(struct kvpi_home *home, const struct kvpi_log_form *form,
                              uint64_t now, struct kvpi_log *out_log, char *out_why,
                              size_t why_bytes)
{
    const struct kvpi_disk *disk = home->disk;
    for (home->number = 0; home->number < HOMES_MAX; home->number++) {
        char name[16];
        snprintf(name, sizeof name, "w%" PRIu32, home->number);
        kvpi_path_join(home->path, home->parent, name);
        int error = disk->make_directory(disk->context, home->path);
        if (!error)
            error = take_lock(disk, home->path, KVPI_LOCK_NOW, &home->lock);
        if (error == EWOULDBLOCK)
            continue; /* another process lives there */
        kvp_status status = KVP_E_IO;
        if (!error)
            status = is_quiet(home) ? move_in(home, form, now, out_log) : KVP_E_MISMATCH;
        if (status == KVP_OK && note_opening(home, now) == 0)
            return KVP_OK;
        if (!error)
            disk->close(disk->context, home->lock);
        home->lock = -1;
        if (status == KVP_E_MISMATCH)
            continue;
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "\"%s\" cannot be written: %s", home->path,
                        error ? strerror(error) : "input/output error");
    }
    return kvpi_why(KVP_E_IO, out_why, why_bytes, "\"%s\" has %d directories in use", home->parent,
                    HOMES_MAX);
}

kvp_status kvpi_home_open(struct kvpi_home *home, const struct kvpi_disk *disk, const char *root,
                          const kvp_digest *fingerprint, uint64_t size,
                          const struct kvpi_log_form *form, uint64_t now, struct kvpi_log *out_log,
                          char *out_why, size_t why_bytes)
{
    *home = (struct kvpi_home){.disk = disk, .size = size, .root_lock = -1, .lock = -1};
    int error = make_directories(home, root, fingerprint);
    if (error)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "the directory \"%s\" cannot be made: %s",
                        root, strerror(error));
    error = take_lock(disk, home->root, 1, &home->root_lock);
    if (error)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "\"%s/lock\" cannot be locked: %s",
                        home->root, strerror(error));
    const kvp_status status = choose_home(home, form, now, out_log, out_why, why_bytes);
    kvpi_home_end(home);
    return status;
}

void kvpi_home_close(struct kvpi_home *home)
{
    if (home->lock >= 0)
        home->disk->close(home->disk->context, home->lock);
    home->lock = -1;
}

/* sim_disk: files are arrays of bytes, twice: as they are now, and as they are for sure. */
#include "sim_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

enum { FILES = 64, NAMES = 64, HANDLES = 256, NAME_OPS = 512, PATH = 200 };

struct sim_file {
    int used;
    uint8_t *now;
    uint8_t *sure;
    uint64_t bytes;
    uint64_t sure_bytes;
    uint64_t reserved;
    uint64_t capacity;
    int locked_by; /* handle, or -1 */
};

struct name {
    char path[PATH]; /* "": free */
    int file;        /* or -1: a directory */
};

struct name_op {
    char path[PATH];
    int file; /* -2: removed */
};

struct sim_disk {
    struct sim_file files[FILES];
    struct name names[NAMES];
    struct name sure_names[NAMES];
    struct name_op ops[NAME_OPS]; /* since the last sync of any directory: one journal */
    uint32_t n_ops;
    struct {
        int file; /* -1: free */
        int writable;
    } handles[HANDLES];
    uint64_t count;
    uint64_t stop;
    uint64_t n_writes;
    uint64_t fail_write;
    int fail_error;
    uint64_t random;
    uint64_t room;
    uint32_t grain;
    int cannot_reserve;
    int tells_no_room;
};

static uint32_t draw(struct sim_disk *sim, uint32_t n)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return (uint32_t)(sim->random >> 33) % n;
}

/* Every operation begins with this. */
static int step(struct sim_disk *sim)
{
    return sim->count++ >= sim->stop ? EIO : 0;
}

/* ---------------------------------------------------------------------------------------- names */

static struct name *find(struct name *names, const char *path)
{
    for (int i = 0; i < NAMES; i++)
        if (*names[i].path && strcmp(names[i].path, path) == 0)
            return &names[i];
    return NULL;
}

static void set_name(struct name *names, const char *path, int file)
{
    struct name *name = find(names, path);
    if (file == -2) {
        if (name)
            *name->path = 0;
        return;
    }
    for (int i = 0; i < NAMES && !name; i++)
        if (!*names[i].path)
            name = &names[i];
    assert_non_null(name);
    assert_true(strlen(path) < PATH);
    strcpy(name->path, path);
    name->file = file;
}

static void make_names_sure(struct sim_disk *sim, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        set_name(sim->sure_names, sim->ops[i].path, sim->ops[i].file);
    sim->n_ops = 0;
}

static void journal(struct sim_disk *sim, const char *path, int file)
{
    set_name(sim->names, path, file);
    if (sim->n_ops == NAME_OPS)
        make_names_sure(sim, sim->n_ops);
    strcpy(sim->ops[sim->n_ops].path, path);
    sim->ops[sim->n_ops++].file = file;
}

/* Files that nothing names and nobody has open. */
static void collect(struct sim_disk *sim)
{
    for (int f = 0; f < FILES; f++) {
        int wanted = !sim->files[f].used;
        for (int i = 0; i < NAMES && !wanted; i++)
            wanted = (*sim->names[i].path && sim->names[i].file == f) ||
                     (*sim->sure_names[i].path && sim->sure_names[i].file == f);
        for (int h = 0; h < HANDLES && !wanted; h++)
            wanted = sim->handles[h].file == f;
        for (uint32_t i = 0; i < sim->n_ops && !wanted; i++)
            wanted = sim->ops[i].file == f;
        if (!wanted) {
            free(sim->files[f].now);
            free(sim->files[f].sure);
            memset(&sim->files[f], 0, sizeof sim->files[f]);
        }
    }
}

/* ---------------------------------------------------------------------------------------- files */

static void resize(struct sim_file *file, uint64_t bytes)
{
    if (bytes > file->capacity) {
        const uint64_t capacity = bytes * 2;
        file->now = realloc(file->now, capacity);
        file->sure = realloc(file->sure, capacity);
        assert_non_null(file->now);
        assert_non_null(file->sure);
        memset(file->now + file->capacity, 0, capacity - file->capacity);
        memset(file->sure + file->capacity, 0, capacity - file->capacity);
        file->capacity = capacity;
    }
    file->bytes = bytes;
}

static uint64_t taken_by(const struct sim_file *file)
{
    return file->bytes > file->reserved ? file->bytes : file->reserved;
}

/* Of all files that have a name or are open. */
static uint64_t taken(const struct sim_disk *sim)
{
    uint64_t bytes = 0;
    uint8_t wanted[FILES] = {0};
    for (int i = 0; i < NAMES; i++)
        if (*sim->names[i].path && sim->names[i].file >= 0)
            wanted[sim->names[i].file] = 1;
    for (int h = 0; h < HANDLES; h++)
        if (sim->handles[h].file >= 0)
            wanted[sim->handles[h].file] = 1;
    for (int f = 0; f < FILES; f++)
        bytes += wanted[f] ? taken_by(&sim->files[f]) : 0;
    return bytes;
}

/* Whether a file can take this many bytes of the disk in all. */
static int has_room(const struct sim_disk *sim, const struct sim_file *file, uint64_t bytes)
{
    if (sim->room == UINT64_MAX || bytes <= taken_by(file))
        return 1;
    const uint64_t more = bytes - taken_by(file);
    const uint64_t all = taken(sim);
    return all <= sim->room && more <= sim->room - all;
}

static int new_file(struct sim_disk *sim)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        collect(sim);
        for (int f = 0; f < FILES; f++) {
            if (!sim->files[f].used) {
                sim->files[f].used = 1;
                sim->files[f].locked_by = -1;
                return f;
            }
        }
        make_names_sure(sim, sim->n_ops); /* a disk may do so at any time */
    }
    fail_msg("the simulated disk has no file left");
    return -1;
}

static int sim_open(void *context, const char *path, unsigned flags, int *out_file)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    if (flags & KVPI_DISK_DIRECT)
        return EINVAL;
    struct name *name = find(sim->names, path);
    if (!name && !(flags & KVPI_DISK_CREATE))
        return ENOENT;
    if (!name)
        journal(sim, path, new_file(sim));
    const int file = find(sim->names, path)->file;
    if (file < 0)
        return EISDIR;
    if (flags & KVPI_DISK_EMPTY)
        sim->files[file].bytes = sim->files[file].reserved = 0;
    for (int h = 0; h < HANDLES; h++) {
        if (sim->handles[h].file < 0) {
            sim->handles[h].file = file;
            sim->handles[h].writable = (flags & KVPI_DISK_WRITE) != 0;
            *out_file = h;
            return 0;
        }
    }
    return EMFILE;
}

static void sim_close(void *context, int handle)
{
    struct sim_disk *sim = context;
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    if (file->locked_by == handle)
        file->locked_by = -1;
    sim->handles[handle].file = -1;
}

static int sim_read(void *context, int handle, const struct kvpi_span *spans, uint32_t n_spans,
                    uint64_t offset)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    const struct sim_file *file = &sim->files[sim->handles[handle].file];
    for (uint32_t i = 0; i < n_spans; offset += spans[i++].n_bytes) {
        if (offset + spans[i].n_bytes > file->bytes)
            return EIO;
        memcpy(spans[i].bytes, file->now + offset, spans[i].n_bytes);
    }
    return 0;
}

/* The operation at which the disk stops may have written a part. */
static int sim_write(void *context, int handle, const struct kvpi_span *spans, uint32_t n_spans,
                     uint64_t offset)
{
    struct sim_disk *sim = context;
    assert_true(sim->handles[handle].writable);
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    const int last = sim->count == sim->stop;
    const int stopped = step(sim);
    if (stopped && !last)
        return EIO;
    if (!stopped && ++sim->n_writes == sim->fail_write)
        return sim->fail_error;
    for (uint32_t i = 0; i < n_spans; offset += spans[i++].n_bytes) {
        if (stopped && draw(sim, 2) == 0)
            return EIO;
        if (!has_room(sim, file, offset + spans[i].n_bytes))
            return ENOSPC;
        if (offset + spans[i].n_bytes > file->bytes)
            resize(file, offset + spans[i].n_bytes);
        memcpy(file->now + offset, spans[i].bytes, spans[i].n_bytes);
    }
    return stopped;
}

static int sim_buffer(void *context, int handle)
{
    (void)context;
    (void)handle;
    return EINVAL; /* nothing was opened past a page cache */
}

static int sim_size(void *context, int handle, uint64_t *out_bytes)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    *out_bytes = sim->files[sim->handles[handle].file].bytes;
    return 0;
}

static uint64_t sim_room(void *context, const char *path)
{
    const struct sim_disk *sim = context;
    (void)path;
    if (sim->room == UINT64_MAX || sim->tells_no_room)
        return UINT64_MAX;
    const uint64_t all = taken(sim);
    return all < sim->room ? sim->room - all : 0;
}

static int sim_allot(void *context, int handle, uint64_t bytes)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    if (!has_room(sim, file, bytes))
        return ENOSPC;
    if (bytes > file->bytes)
        resize(file, bytes);
    return 0;
}

static int sim_reserve(void *context, int handle, uint64_t bytes)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    if (sim->cannot_reserve)
        return ENOTSUP;
    if (!has_room(sim, file, bytes))
        return ENOSPC;
    if (bytes > file->reserved)
        file->reserved = bytes;
    return 0;
}

static int sim_sync(void *context, int handle)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    if (file->bytes > 0)
        memcpy(file->sure, file->now, file->bytes);
    file->sure_bytes = file->bytes;
    return 0;
}

static int sim_sync_directory(void *context, const char *path)
{
    struct sim_disk *sim = context;
    (void)path;
    if (step(sim))
        return EIO;
    make_names_sure(sim, sim->n_ops);
    return 0;
}

static int sim_rename(void *context, const char *from, const char *to)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    const struct name *name = find(sim->names, from);
    if (!name)
        return ENOENT;
    /* One entry of the journal takes the old name's place; the other removes the first. */
    journal(sim, to, name->file);
    journal(sim, from, -2);
    return 0;
}

static int sim_remove(void *context, const char *path, int is_directory)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    const struct name *name = find(sim->names, path);
    if (!name)
        return ENOENT;
    if (is_directory != (name->file < 0))
        return EINVAL;
    journal(sim, path, -2);
    return 0;
}

static int sim_make_directory(void *context, const char *path)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    if (!find(sim->names, path))
        journal(sim, path, -1);
    return 0;
}

static int sim_list(void *context, const char *path, kvpi_disk_entry_fn entry, void *entry_context)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    const size_t n = strlen(path);
    for (int i = 0; i < NAMES; i++) {
        const char *name = sim->names[i].path;
        if (strncmp(name, path, n) == 0 && name[n] == '/' && !strchr(name + n + 1, '/'))
            entry(entry_context, name + n + 1, sim->names[i].file < 0);
    }
    return 0;
}

static int sim_lock(void *context, int handle, int wait)
{
    struct sim_disk *sim = context;
    if (step(sim))
        return EIO;
    struct sim_file *file = &sim->files[sim->handles[handle].file];
    if (file->locked_by >= 0 && file->locked_by != handle) {
        assert_false(wait); /* one thread: it would wait for ever */
        return EWOULDBLOCK;
    }
    file->locked_by = handle;
    return 0;
}

/* ----------------------------------------------------------------------------- what a test does */

struct sim_disk *sim_disk_create(uint64_t seed)
{
    struct sim_disk *sim = calloc(1, sizeof *sim);
    assert_non_null(sim);
    sim->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    sim->stop = sim->room = UINT64_MAX;
    sim->grain = 512;
    for (int h = 0; h < HANDLES; h++)
        sim->handles[h].file = -1;
    return sim;
}

void sim_disk_destroy(struct sim_disk *sim)
{
    for (int f = 0; f < FILES; f++) {
        free(sim->files[f].now);
        free(sim->files[f].sure);
    }
    free(sim);
}

struct kvpi_disk sim_disk_interface(struct sim_disk *sim)
{
    return (struct kvpi_disk){.context = sim,
                              .open = sim_open,
                              .close = sim_close,
                              .read = sim_read,
                              .write = sim_write,
                              .buffer = sim_buffer,
                              .size = sim_size,
                              .room = sim_room,
                              .allot = sim_allot,
                              .reserve = sim_reserve,
                              .sync = sim_sync,
                              .sync_directory = sim_sync_directory,
                              .rename = sim_rename,
                              .remove = sim_remove,
                              .make_directory = sim_make_directory,
                              .list = sim_list,
                              .lock = sim_lock};
}

void sim_disk_stop_after(struct sim_disk *sim, uint64_t n)
{
    sim->stop = n == UINT64_MAX ? n : sim->count + n;
}

uint64_t sim_disk_count(const struct sim_disk *sim)
{
    return sim->count;
}

void sim_disk_kill(struct sim_disk *sim)
{
    for (int h = 0; h < HANDLES; h++)
        sim->handles[h].file = -1;
    for (int f = 0; f < FILES; f++)
        sim->files[f].locked_by = -1;
    sim->stop = UINT64_MAX;
    collect(sim);
}

static uint64_t extent_of(const struct sim_file *file)
{
    return file->bytes > file->sure_bytes ? file->bytes : file->sure_bytes;
}

static uint64_t grain_at(const struct sim_disk *sim, const struct sim_file *file, uint64_t at)
{
    const uint64_t left = extent_of(file) - at;
    return left < sim->grain ? left : sim->grain;
}

static int is_unsynced(const struct sim_disk *sim, const struct sim_file *file, uint64_t at)
{
    return memcmp(file->now + at, file->sure + at, grain_at(sim, file, at)) != 0;
}

/* kept: NULL: drawn; else its lowest bits are used up. */
static void lose(struct sim_disk *sim, struct sim_file *file, uint64_t *kept)
{
    for (uint64_t at = 0; at < extent_of(file); at += sim->grain) {
        const uint64_t n = grain_at(sim, file, at);
        int keep = kept ? (int)(*kept & 1) : draw(sim, 2) != 0;
        if (kept && is_unsynced(sim, file, at))
            *kept >>= 1;
        if (keep)
            memcpy(file->sure + at, file->now + at, n);
        else
            memcpy(file->now + at, file->sure + at, n);
    }
    if (draw(sim, 2) == 0)
        file->bytes = file->sure_bytes;
    file->sure_bytes = file->bytes;
    if (draw(sim, 2) == 0)
        file->reserved = 0;
}

static void power_off(struct sim_disk *sim, uint64_t *kept)
{
    make_names_sure(sim, draw(sim, sim->n_ops + 1));
    memcpy(sim->names, sim->sure_names, sizeof sim->names);
    for (int f = 0; f < FILES; f++)
        if (sim->files[f].used)
            lose(sim, &sim->files[f], kept);
    sim_disk_kill(sim);
}

void sim_disk_power_off(struct sim_disk *sim)
{
    power_off(sim, NULL);
}

void sim_disk_power_off_but(struct sim_disk *sim, uint64_t kept)
{
    power_off(sim, &kept);
}

void sim_disk_grain(struct sim_disk *sim, uint32_t n_bytes)
{
    sim->grain = n_bytes;
}

uint32_t sim_disk_unsynced(const struct sim_disk *sim)
{
    uint32_t n = 0;
    for (int f = 0; f < FILES; f++)
        for (uint64_t at = 0; sim->files[f].used && at < extent_of(&sim->files[f]);
             at += sim->grain)
            n += (uint32_t)is_unsynced(sim, &sim->files[f], at);
    return n;
}

uint32_t sim_disk_handles(const struct sim_disk *sim)
{
    uint32_t n = 0;
    for (int h = 0; h < HANDLES; h++)
        n += sim->handles[h].file >= 0;
    return n;
}

int sim_disk_has(struct sim_disk *sim, const char *path)
{
    return find(sim->names, path) != NULL;
}

uint64_t sim_disk_bytes(const struct sim_disk *sim)
{
    uint64_t bytes = 0;
    for (int i = 0; i < NAMES; i++)
        if (*sim->names[i].path && sim->names[i].file >= 0)
            bytes += taken_by(&sim->files[sim->names[i].file]);
    return bytes;
}

void sim_disk_limit(struct sim_disk *sim, uint64_t room)
{
    sim->room = room;
}

void sim_disk_refuse_reserve(struct sim_disk *sim)
{
    sim->cannot_reserve = 1;
}

void sim_disk_tell_no_room(struct sim_disk *sim)
{
    sim->tells_no_room = 1;
}

void sim_disk_fail_write(struct sim_disk *sim, uint64_t n, int error)
{
    sim->fail_write = sim->n_writes + n;
    sim->fail_error = error;
}

static uint8_t *bytes_at(struct sim_disk *sim, const char *path, uint64_t offset, size_t n_bytes)
{
    const struct name *name = find(sim->names, path);
    if (!name || name->file < 0 || offset + n_bytes > sim->files[name->file].bytes)
        return NULL;
    return sim->files[name->file].now + offset;
}

int sim_disk_poke(struct sim_disk *sim, const char *path, uint64_t offset, const void *bytes,
                  size_t n_bytes)
{
    uint8_t *at = bytes_at(sim, path, offset, n_bytes);
    if (at)
        memcpy(at, bytes, n_bytes);
    return at != NULL;
}

void sim_disk_cut(struct sim_disk *sim, const char *path, uint64_t n_bytes)
{
    const struct name *name = find(sim->names, path);
    assert_non_null(name);
    struct sim_file *file = &sim->files[name->file];
    assert_true(n_bytes <= file->bytes);
    memset(file->now + n_bytes, 0, file->bytes - n_bytes);
    file->bytes = n_bytes;
}

int sim_disk_peek(struct sim_disk *sim, const char *path, uint64_t offset, void *out_bytes,
                  size_t n_bytes)
{
    const uint8_t *at = bytes_at(sim, path, offset, n_bytes);
    if (at)
        memcpy(out_bytes, at, n_bytes);
    return at != NULL;
}

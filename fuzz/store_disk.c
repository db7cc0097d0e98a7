/* store_disk: files in memory. Names are whole paths; a directory is what names begin with. */
#include "store_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

static int find(const struct store_disk *disk, const char *path)
{
    for (int f = 0; f < STORE_DISK_FILES; f++)
        if (strcmp(disk->files[f].path, path) == 0 && *path)
            return f;
    return -1;
}

static int make(struct store_disk *disk, const char *path)
{
    for (int f = 0; f < STORE_DISK_FILES; f++) {
        if (*disk->files[f].path || disk->files[f].n_open > 0)
            continue;
        disk->files[f].n_bytes = 0;
        strcpy(disk->files[f].path, path);
        return f;
    }
    return -1;
}

static int resize(struct store_disk_file *file, uint64_t n_bytes)
{
    if (n_bytes > STORE_DISK_BYTES)
        return ENOSPC;
    if (n_bytes > file->n_bytes)
        memset(file->bytes + file->n_bytes, 0, n_bytes - file->n_bytes);
    file->n_bytes = n_bytes;
    return 0;
}

static int disk_open(void *context, const char *path, unsigned flags, int *out_file)
{
    struct store_disk *disk = context;
    int f = find(disk, path);
    if (flags & KVPI_DISK_DIRECT)
        return EINVAL;
    if (!*path || strlen(path) >= sizeof disk->files->path)
        return ENAMETOOLONG;
    if (f < 0 && !(flags & KVPI_DISK_CREATE))
        return ENOENT;
    if (f < 0)
        f = make(disk, path);
    if (f < 0)
        return ENOSPC;
    int handle = 0;
    while (handle < STORE_DISK_HANDLES && disk->handles[handle] > 0)
        handle++;
    if (handle == STORE_DISK_HANDLES)
        return EMFILE;
    if (flags & KVPI_DISK_EMPTY)
        disk->files[f].n_bytes = 0;
    disk->handles[handle] = f + 1;
    disk->files[f].n_open++;
    *out_file = handle;
    return 0;
}

static struct store_disk_file *file_of(struct store_disk *disk, int handle)
{
    require(handle >= 0 && handle < STORE_DISK_HANDLES && disk->handles[handle] > 0);
    return &disk->files[disk->handles[handle] - 1];
}

static void disk_close(void *context, int handle)
{
    struct store_disk *disk = context;
    struct store_disk_file *file = file_of(disk, handle);
    file->n_open--;
    if (file->locked_by == handle + 1)
        file->locked_by = 0;
    disk->handles[handle] = 0;
}

static int move(struct store_disk *disk, int handle, const struct kvpi_span *spans,
                uint32_t n_spans, uint64_t offset, int write)
{
    struct store_disk_file *file = file_of(disk, handle);
    for (uint32_t i = 0; i < n_spans; i++) {
        const uint64_t n = spans[i].n_bytes;
        if (offset > STORE_DISK_BYTES || n > STORE_DISK_BYTES - offset)
            return write ? ENOSPC : EIO;
        if (offset + n > file->n_bytes && (!write || resize(file, offset + n) != 0))
            return EIO;
        if (write)
            memcpy(file->bytes + offset, spans[i].bytes, n);
        else
            memcpy(spans[i].bytes, file->bytes + offset, n);
        offset += n;
    }
    return 0;
}

static int disk_read(void *context, int handle, const struct kvpi_span *spans, uint32_t n_spans,
                     uint64_t offset)
{
    return move(context, handle, spans, n_spans, offset, 0);
}

static int disk_write(void *context, int handle, const struct kvpi_span *spans, uint32_t n_spans,
                      uint64_t offset)
{
    return move(context, handle, spans, n_spans, offset, 1);
}

static int disk_nothing(void *context, int handle)
{
    (void)file_of(context, handle);
    return 0;
}

static int disk_size(void *context, int handle, uint64_t *out_bytes)
{
    *out_bytes = file_of(context, handle)->n_bytes;
    return 0;
}

static uint64_t disk_room(void *context, const char *path)
{
    (void)context;
    (void)path;
    return UINT64_MAX;
}

static int disk_allot(void *context, int handle, uint64_t n_bytes)
{
    return resize(file_of(context, handle), n_bytes);
}

static int disk_reserve(void *context, int handle, uint64_t n_bytes)
{
    (void)file_of(context, handle);
    return n_bytes > STORE_DISK_BYTES ? ENOSPC : 0;
}

static int disk_sync_directory(void *context, const char *path)
{
    (void)context;
    (void)path;
    return 0;
}

static int disk_remove(void *context, const char *path, int is_directory)
{
    struct store_disk *disk = context;
    const int f = find(disk, path);
    if (is_directory)
        return 0;
    if (f < 0)
        return ENOENT;
    *disk->files[f].path = 0;
    return 0;
}

static int disk_rename(void *context, const char *from, const char *to)
{
    struct store_disk *disk = context;
    const int f = find(disk, from);
    if (f < 0)
        return ENOENT;
    (void)disk_remove(context, to, 0);
    strcpy(disk->files[f].path, to);
    return 0;
}

static int disk_make_directory(void *context, const char *path)
{
    (void)context;
    return *path ? 0 : ENOENT;
}

/* Each entry once: a directory is told by the first of its files. */
static int disk_list(void *context, const char *path, kvpi_disk_entry_fn entry, void *entry_context)
{
    struct store_disk *disk = context;
    const size_t n = strlen(path);
    char told[STORE_DISK_FILES][STORE_DISK_PATH];
    uint32_t n_told = 0;
    for (int f = 0; f < STORE_DISK_FILES; f++) {
        const char *name = disk->files[f].path;
        if (strncmp(name, path, n) != 0 || name[n] != '/')
            continue;
        const char *rest = name + n + 1;
        const size_t length = strcspn(rest, "/");
        char *one = told[n_told];
        memcpy(one, rest, length);
        one[length] = 0;
        uint32_t i = 0;
        while (i < n_told && strcmp(told[i], one) != 0)
            i++;
        n_told += i == n_told;
    }
    for (uint32_t i = 0; i < n_told; i++) {
        char whole[2 * STORE_DISK_PATH];
        strcpy(whole, path);
        strcat(whole, "/");
        strcat(whole, told[i]);
        entry(entry_context, told[i], find(disk, whole) < 0);
    }
    return 0;
}

static int disk_lock(void *context, int handle, int wait)
{
    struct store_disk_file *file = file_of(context, handle);
    (void)wait;
    if (file->locked_by > 0 && file->locked_by != handle + 1)
        return EWOULDBLOCK;
    file->locked_by = handle + 1;
    return 0;
}

struct kvpi_disk store_disk_interface(struct store_disk *disk)
{
    return (struct kvpi_disk){.context = disk,
                              .open = disk_open,
                              .close = disk_close,
                              .read = disk_read,
                              .write = disk_write,
                              .buffer = disk_nothing,
                              .size = disk_size,
                              .room = disk_room,
                              .allot = disk_allot,
                              .reserve = disk_reserve,
                              .sync = disk_nothing,
                              .sync_directory = disk_sync_directory,
                              .rename = disk_rename,
                              .remove = disk_remove,
                              .make_directory = disk_make_directory,
                              .list = disk_list,
                              .lock = disk_lock};
}

struct store_disk_file *store_disk_find(struct store_disk *disk, const char *path)
{
    const int f = find(disk, path);
    return f < 0 ? NULL : &disk->files[f];
}

void store_disk_copy(struct store_disk *to, const struct store_disk *from)
{
    memcpy(to->handles, from->handles, sizeof to->handles);
    for (int f = 0; f < STORE_DISK_FILES; f++) {
        memcpy(to->files[f].path, from->files[f].path, sizeof to->files[f].path);
        to->files[f].n_open = from->files[f].n_open;
        to->files[f].locked_by = from->files[f].locked_by;
        to->files[f].n_bytes = from->files[f].n_bytes;
        memcpy(to->files[f].bytes, from->files[f].bytes, (size_t)from->files[f].n_bytes);
    }
}

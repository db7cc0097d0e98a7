/* disk: the system's, by POSIX and flock. */
#define _GNU_SOURCE /* O_DIRECT, fallocate, statx */
#include "store/file/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/direct.h"
#include "store/file/stage.h"

enum { SPANS = 1 + KVP_RECORD_BLOCKS_MAX, SOON_NS = 5000000, SOON_TIMES = 200 };

static int disk_open(void *context, const char *path, unsigned flags, int *out_file)
{
    (void)context;
    int mode = O_CLOEXEC | O_NOFOLLOW | (flags & KVPI_DISK_WRITE ? O_RDWR : O_RDONLY);
    if (flags & KVPI_DISK_CREATE)
        mode |= O_CREAT;
    if (flags & KVPI_DISK_EMPTY)
        mode |= O_TRUNC;
    if (flags & KVPI_DISK_DIRECT)
        mode |= O_DIRECT;
    int file;
    do
        file = open(path, mode, 0600);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return errno;
    if (flags & KVPI_DISK_DIRECT && !kvpi_direct_works(file, KVPI_DIRECT_GRAIN)) {
        close(file);
        return EINVAL;
    }
    *out_file = file;
    return 0;
}

static void disk_close(void *context, int file)
{
    (void)context;
    close(file);
}

/* One preadv or pwritev. */
typedef ssize_t (*transfer_fn)(int file, const struct iovec *spans, int n_spans, off_t offset);

/* Takes n bytes away from the front. */
static void advance(struct iovec **spans, int *n_spans, size_t n)
{
    while (*n_spans > 0 && n >= (*spans)->iov_len) {
        n -= (*spans)->iov_len;
        (*spans)++;
        (*n_spans)--;
    }
    if (n > 0) {
        (*spans)->iov_base = (char *)(*spans)->iov_base + n;
        (*spans)->iov_len -= n;
    }
}

static int transfer(transfer_fn function, int file, const struct kvpi_span *spans, uint32_t n_spans,
                    uint64_t offset)
{
    struct iovec all[SPANS] = {{0}};
    if (n_spans > SPANS || offset > INT64_MAX)
        return EINVAL;
    for (uint32_t i = 0; i < n_spans; i++)
        all[i] = (struct iovec){.iov_base = spans[i].bytes, .iov_len = spans[i].n_bytes};
    struct iovec *rest = all;
    int n_rest = (int)n_spans;
    while (n_rest > 0) {
        const ssize_t n = function(file, rest, n_rest, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        offset += (uint64_t)n;
        advance(&rest, &n_rest, (size_t)n);
    }
    return 0;
}

static int disk_read(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                     uint64_t offset)
{
    (void)context;
    return transfer(preadv, file, spans, n_spans, offset);
}

static int disk_write(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                      uint64_t offset)
{
    (void)context;
    return transfer(pwritev, file, spans, n_spans, offset);
}

static int disk_buffer(void *context, int file)
{
    (void)context;
    const int flags = fcntl(file, F_GETFL);
    return flags >= 0 && fcntl(file, F_SETFL, flags & ~O_DIRECT) == 0 ? 0 : errno;
}

static int disk_size(void *context, int file, uint64_t *out_bytes)
{
    (void)context;
    struct stat stat;
    if (fstat(file, &stat) != 0)
        return errno;
    if (!S_ISREG(stat.st_mode))
        return EINVAL;
    *out_bytes = (uint64_t)stat.st_size;
    return 0;
}

/* What is set aside for root stays so. A file system that counts nothing says 0 of 0. */
static uint64_t disk_room(void *context, const char *path)
{
    (void)context;
    struct statvfs stat;
    if (statvfs(path, &stat) != 0 || stat.f_blocks == 0)
        return UINT64_MAX;
    return (uint64_t)stat.f_bavail * stat.f_frsize;
}

static int disk_allot(void *context, int file, uint64_t bytes)
{
    (void)context;
    int error;
    do
        error = posix_fallocate(file, 0, (off_t)bytes);
    while (error == EINTR);
    return error;
}

static int disk_reserve(void *context, int file, uint64_t bytes)
{
    (void)context;
    int error;
    do
        error = fallocate(file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0 ? 0 : errno;
    while (error == EINTR);
    return error == EOPNOTSUPP || error == ENOSYS ? ENOTSUP : error;
}

static int disk_sync(void *context, int file)
{
    (void)context;
    return fdatasync(file) == 0 ? 0 : errno;
}

static int disk_sync_directory(void *context, const char *path)
{
    (void)context;
    const int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return errno;
    const int error = fsync(file) == 0 ? 0 : errno;
    close(file);
    return error == EINVAL ? 0 : error; /* there are file systems that sync no directories */
}

static int disk_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to) == 0 ? 0 : errno;
}

static int disk_remove(void *context, const char *path, int is_directory)
{
    (void)context;
    return (is_directory ? rmdir(path) : unlink(path)) == 0 ? 0 : errno;
}

static int disk_make_directory(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

static int disk_list(void *context, const char *path, kvpi_disk_entry_fn entry, void *entry_context)
{
    (void)context;
    DIR *directory = opendir(path);
    if (!directory)
        return errno;
    for (const struct dirent *at = readdir(directory); at; at = readdir(directory)) {
        struct stat stat;
        if (at->d_name[0] == '.' ||
            fstatat(dirfd(directory), at->d_name, &stat, AT_SYMLINK_NOFOLLOW) != 0 ||
            !(S_ISDIR(stat.st_mode) || S_ISREG(stat.st_mode)))
            continue;
        entry(entry_context, at->d_name, S_ISDIR(stat.st_mode));
    }
    closedir(directory);
    return 0;
}

static int disk_lock(void *context, int file, int wait)
{
    (void)context;
    const struct timespec moment = {.tv_nsec = SOON_NS};
    uint32_t n_left = wait == KVPI_LOCK_SOON ? SOON_TIMES : 0;
    while (flock(file, wait == KVPI_LOCK_WAIT ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && n_left-- > 0)
            nanosleep(&moment, NULL);
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

const struct kvpi_disk kvpi_system_disk = {
    .open = disk_open,
    .close = disk_close,
    .read = disk_read,
    .write = disk_write,
    .buffer = disk_buffer,
    .size = disk_size,
    .room = disk_room,
    .allot = disk_allot,
    .reserve = disk_reserve,
    .sync = disk_sync,
    .sync_directory = disk_sync_directory,
    .rename = disk_rename,
    .remove = disk_remove,
    .make_directory = disk_make_directory,
    .list = disk_list,
    .lock = disk_lock,
};

/* posix: the system's own files. Only this one and windows.c open any in the library.
 *
 * New files are their owner's alone (0600): what is saved holds users' prompts. Nothing is opened
 * through a symbolic link, and no descriptor is handed on to a child.
 */
#define _POSIX_C_SOURCE  200809L
#define _DARWIN_C_SOURCE /* O_NOFOLLOW, O_DIRECTORY */

#include "base/platform/system.h"
#include "base/platform/which.h"

#if !KVPI_WINDOWS

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int error_of(int result)
{
    return result < 0 ? -errno : result;
}

static int open_directory(void *context, const char *path)
{
    (void)context;
    return error_of(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int kind_of_file(void *context, int folder, const char *name)
{
    struct stat about;
    (void)context;
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? KVPI_SYSTEM_NOTHING : -errno;
    }
    return S_ISREG(about.st_mode)   ? KVPI_SYSTEM_FILE
           : S_ISDIR(about.st_mode) ? KVPI_SYSTEM_FOLDER
           : S_ISLNK(about.st_mode) ? KVPI_SYSTEM_LINK
                                    : KVPI_SYSTEM_OTHER;
}

static int create_file(void *context, int folder, const char *name)
{
    (void)context;
    return error_of(openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                           S_IRUSR | S_IWUSR));
}

static int64_t write_bytes(void *context, int file, const void *bytes, size_t n)
{
    (void)context;
    const ssize_t done = write(file, bytes, n);
    return done < 0 ? -errno : done;
}

static int sync_file(void *context, int file)
{
    (void)context;
    return error_of(fsync(file));
}

/* A file system that cannot put a folder on the disk by itself says EINVAL: nothing to be done. */
static int sync_directory(void *context, int folder)
{
    (void)context;
    return fsync(folder) != 0 && errno != EINVAL ? -errno : 0;
}

static int rename_file(void *context, int folder, const char *from, const char *to)
{
    (void)context;
    return error_of(renameat(folder, from, folder, to));
}

static int remove_file(void *context, int folder, const char *name)
{
    (void)context;
    return error_of(unlinkat(folder, name, 0));
}

/* The descriptor is gone even when a signal came. */
static int close_file(void *context, int file)
{
    (void)context;
    return close(file) != 0 && errno != EINTR ? -errno : 0;
}

const struct kvpi_system kvpi_system_files = {
    NULL,           "/",         open_directory, kind_of_file, create_file, write_bytes, sync_file,
    sync_directory, rename_file, remove_file,    close_file};

#endif

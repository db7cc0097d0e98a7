/* file: see file.h. PATH.part-XXXXXX is written, synced and renamed. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, fsync, fdopen */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(kvpi_file *file)
{
    if (file->error == 0)
        file->error = errno != 0 ? errno : EIO;
    return 0;
}

int kvpi_file_begin(kvpi_file *file, const char *path)
{
    const size_t n = strlen(path);
    memset(file, 0, sizeof *file);
    file->path = malloc(n + 1);
    file->part = malloc(n + sizeof ".part-XXXXXX");
    if (file->path == NULL || file->part == NULL) {
        free(file->part);
        file->part = NULL;
        return failed(file);
    }
    memcpy(file->path, path, n + 1);
    memcpy(file->part, path, n);
    memcpy(file->part + n, ".part-XXXXXX", sizeof ".part-XXXXXX");
    const int fd = mkstemp(file->part);
    if (fd < 0) {
        (void)failed(file);
        free(file->part);
        file->part = NULL;
        return 0;
    }
    file->file = fdopen(fd, "wb");
    if (file->file == NULL) {
        (void)failed(file);
        (void)close(fd);
        return 0;
    }
    return 1;
}

int kvpi_file_write(kvpi_file *file, const void *bytes, size_t n)
{
    return file->error == 0 && (n == 0 || fwrite(bytes, n, 1, file->file) == 1) ? 1 : failed(file);
}

int kvpi_file_write_first(kvpi_file *file, const void *bytes, size_t n)
{
    return file->error == 0 && fseek(file->file, 0, SEEK_SET) == 0 ? kvpi_file_write(file, bytes, n)
                                                                   : failed(file);
}

/* The name is on the disk when the folder is. */
static int sync_folder(kvpi_file *file)
{
    const char *slash = strrchr(file->path, '/');
    char *folder = file->part; /* not needed any more, and long enough */
    if (slash == NULL) {
        memcpy(folder, ".", 2);
    } else {
        const size_t n = slash == file->path ? 1 : (size_t)(slash - file->path);
        memmove(folder, file->path, n);
        folder[n] = '\0';
    }
    const int fd = open(folder, O_RDONLY);
    const int is_synced = fd >= 0 && fsync(fd) == 0;
    if (!is_synced)
        (void)failed(file);
    if (fd >= 0)
        (void)close(fd);
    return is_synced;
}

int kvpi_file_replace(kvpi_file *file)
{
    if (file->error != 0 || fflush(file->file) != 0 || fsync(fileno(file->file)) != 0)
        return failed(file);
    const int is_closed = fclose(file->file) == 0;
    file->file = NULL;
    if (!is_closed || rename(file->part, file->path) != 0)
        return failed(file);
    const int is_synced = sync_folder(file);
    free(file->part);
    file->part = NULL;
    return is_synced;
}

void kvpi_file_end(kvpi_file *file)
{
    if (file->file != NULL)
        (void)fclose(file->file);
    if (file->part != NULL)
        (void)unlink(file->part);
    free(file->part);
    free(file->path);
    file->file = NULL;
    file->part = file->path = NULL;
}

/* See input.h. Everything is opened without waiting, looked at, and only then read as usual. */
#define _POSIX_C_SOURCE 200809L

#include "tool/input/input.h"

#if !defined(_WIN32)

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAT_BLOCK_BYTES 512u /* of st_blocks, whatever the file system's blocks are */

static bool refuse(kvpi_input *input, const char *why)
{
    snprintf(input->why, sizeof input->why, "%s", why);
    return false;
}

static bool refuse_open(kvpi_input *input, int error)
{
    snprintf(input->why, sizeof input->why, "cannot open: %s", strerror(error));
    return false;
}

static void note_size(kvpi_input *input, const struct stat *about)
{
    const uint64_t data = (uint64_t)about->st_blocks * STAT_BLOCK_BYTES;
    input->is_regular = true;
    input->n_bytes = (uint64_t)about->st_size;
    /* Very small files may lie in the file system's own records, and have no blocks. */
    input->data_bytes = input->n_bytes <= 4096 || data >= input->n_bytes ? input->n_bytes : data;
}

/* Does a process write to the pipe? What was read to find out goes back. */
static bool has_writer(kvpi_input *input, int fd)
{
    char first;
    const ssize_t n = read(fd, &first, 1);
    return n < 0 ? errno == EAGAIN : n > 0 && ungetc((unsigned char)first, input->file) != EOF;
}

static bool take_pipe(kvpi_input *input, int fd, bool pipes_too)
{
    if (!pipes_too)
        return refuse(input, "is a FIFO, expected a regular file");
    if (!has_writer(input, fd))
        return refuse(input, "is a FIFO to which nobody writes, expected a regular file or a pipe");
    return true;
}

static bool take(kvpi_input *input, int fd, bool pipes_too)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return refuse_open(input, errno);
    if (S_ISDIR(about.st_mode))
        return refuse_open(input, EISDIR);
    if (S_ISREG(about.st_mode)) {
        note_size(input, &about);
        return true;
    }
    if (!S_ISFIFO(about.st_mode))
        return refuse(input, "is a device, expected a regular file");
    return take_pipe(input, fd, pipes_too) &&
           (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0 || refuse_open(input, errno));
}

bool kvpi_input_open(kvpi_input *input, const char *path, bool pipes_too)
{
    struct stat about;
    memset(input, 0, sizeof *input);
    if (pipes_too && strcmp(path, "-") == 0) {
        input->file = stdin;
        if (fstat(fileno(stdin), &about) == 0 && S_ISREG(about.st_mode))
            note_size(input, &about);
        return true;
    }
    if (stat(path, &about) == 0 && (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode)))
        return refuse(input, "is a device, expected a regular file"); /* opening it may act */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return refuse_open(input, errno);
    input->file = fdopen(fd, "rb");
    if (input->file == NULL) {
        const int error = errno;
        close(fd);
        return refuse_open(input, error);
    }
    if (take(input, fd, pipes_too))
        return true;
    kvpi_input_close(input);
    return false;
}

void kvpi_input_close(kvpi_input *input)
{
    if (input->file != NULL && input->file != stdin)
        fclose(input->file);
    input->file = NULL;
}

bool kvpi_input_read_at(const kvpi_input *input, uint64_t offset, void *out, size_t n)
{
    char *at = out;
    while (n > 0) {
        const ssize_t got = pread(fileno(input->file), at, n, (off_t)offset);
        if (got <= 0)
            return false;
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

#endif

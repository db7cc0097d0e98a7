/* input_windows: see input.h. What fopen opens is looked at before it is taken. A file counts as
 * full of data, also where it has holes. */
#include "tool/input/input.h"

#if defined(_WIN32)

#include <errno.h>
#include <io.h>
#include <string.h>
#include <sys/stat.h>
#include <windows.h>

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

static void note_size(kvpi_input *input, const struct _stat64 *about)
{
    input->is_regular = true;
    input->n_bytes = input->data_bytes = (uint64_t)about->st_size;
}

bool kvpi_input_open(kvpi_input *input, const char *path, bool pipes_too)
{
    struct _stat64 about;
    memset(input, 0, sizeof *input);
    if (pipes_too && strcmp(path, "-") == 0) {
        input->file = stdin;
        if (_fstat64(_fileno(stdin), &about) == 0 && (about.st_mode & _S_IFMT) == _S_IFREG)
            note_size(input, &about);
        return true;
    }
    if (_stat64(path, &about) == 0 && (about.st_mode & _S_IFMT) == _S_IFDIR)
        return refuse(input, "is a folder, expected a regular file");
    input->file = fopen(path, "rb");
    if (input->file == NULL)
        return refuse_open(input, errno);
    if (_fstat64(_fileno(input->file), &about) == 0 && (about.st_mode & _S_IFMT) == _S_IFREG) {
        note_size(input, &about);
        return true;
    }
    kvpi_input_close(input);
    return refuse(input, "is a device or a pipe, expected a regular file");
}

void kvpi_input_close(kvpi_input *input)
{
    if (input->file != NULL && input->file != stdin)
        fclose(input->file);
    input->file = NULL;
}

bool kvpi_input_read_at(const kvpi_input *input, uint64_t offset, void *out, size_t n)
{
    const HANDLE file = (HANDLE)_get_osfhandle(_fileno(input->file));
    char *at = out;
    while (n > 0) {
        OVERLAPPED place = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
        const DWORD most = (DWORD)(n < (size_t)1 << 30 ? n : (size_t)1 << 30);
        DWORD got;
        if (!ReadFile(file, at, most, &got, &place) || got == 0)
            return false;
        at += got;
        offset += got;
        n -= got;
    }
    return true;
}

#endif

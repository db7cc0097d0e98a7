/* The command, with a system that fails: linked into a copy of it, which is otherwise the same
 * (tests.cmake). What it asks of the system is counted by kind: memory, files that are opened,
 * reads and writes, each of a few hundred bytes. With KVP_FAULT=KIND:N the N-th of a kind is
 * refused, and of writes all that come after it. At the end the counts are written to the file
 * KVP_FAULT_COUNTS. See tool_faults.py. From look to look at its clock KVP_TICK_US microseconds
 * pass (1), and the clock on the wall goes back: tool_clocks.py. */
#define _GNU_SOURCE /* fopencookie */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY, OPEN, READ, WRITE, KINDS };
enum { BUFFER_BYTES = 256 };

static const char *const names[KINDS] = {"memory", "open", "read", "write"};
static unsigned long n_asked[KINDS], fail_at[KINDS];

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__real_fdopen(int file, const char *mode);
int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int file, const void *bytes, size_t n);
int __real_rename(const char *from, const char *to);
int __real_openat(int folder, const char *path, int flags, ...);
int __real_fsync(int file);
int __real_gettimeofday(struct timeval *out_time, void *zone);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out_time);
int __wrap_gettimeofday(struct timeval *out_time, void *zone);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fdopen(int file, const char *mode);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int file, const void *bytes, size_t n);
int __wrap_rename(const char *from, const char *to);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_fsync(int file);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);

/* A full disk stays full. */
static int is_refused(int kind, int error)
{
    const unsigned long n = ++n_asked[kind];
    if (fail_at[kind] == 0 || (kind == WRITE ? n < fail_at[kind] : n != fail_at[kind]))
        return 0;
    errno = error;
    return 1;
}

/* -------------------------------------------------------------------------------------- memory */

void *__wrap_malloc(size_t bytes)
{
    return is_refused(MEMORY, ENOMEM) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused(MEMORY, ENOMEM) ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return is_refused(MEMORY, ENOMEM) ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused(MEMORY, ENOMEM) ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return is_refused(MEMORY, ENOMEM) ? MAP_FAILED
                                      : __real_mmap(at, bytes, protection, flags, file, offset);
}

/* --------------------------------------------------------------------------------------- files */

static ssize_t read_inner(void *context, char *bytes, size_t n)
{
    if (is_refused(READ, EIO))
        return -1;
    const size_t got = fread(bytes, 1, n, context);
    return ferror((FILE *)context) ? -1 : (ssize_t)got;
}

static ssize_t write_inner(void *context, const char *bytes, size_t n)
{
    if (is_refused(WRITE, ENOSPC))
        return 0;
    const size_t put = fwrite(bytes, 1, n, context);
    return fflush(context) == 0 ? (ssize_t)put : 0;
}

static int seek_inner(void *context, off64_t *offset, int whence)
{
    const int status = fseeko(context, *offset, whence);
    *offset = ftello(context);
    return status;
}

static int close_inner(void *context)
{
    return fclose(context);
}

static FILE *watched(FILE *inner, const char *mode)
{
    const cookie_io_functions_t functions = {read_inner, write_inner, seek_inner, close_inner};
    FILE *file = fopencookie(inner, mode, functions);
    char *buffer = __real_malloc(BUFFER_BYTES); /* as long as the process lives */
    if (file == NULL || buffer == NULL || setvbuf(file, buffer, _IOFBF, BUFFER_BYTES) != 0)
        abort();
    return file;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    FILE *inner = is_refused(OPEN, EACCES) ? NULL : __real_fopen(path, mode);
    return inner == NULL ? NULL : watched(inner, mode);
}

/* Of a file that open gave: that was refused already. */
FILE *__wrap_fdopen(int file, const char *mode)
{
    FILE *inner = __real_fdopen(file, mode);
    return inner == NULL ? NULL : watched(inner, mode);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
    va_end(more);
    return is_refused(OPEN, EACCES) ? -1 : __real_open(path, flags, mode);
}

ssize_t __wrap_write(int file, const void *bytes, size_t n)
{
    return is_refused(WRITE, ENOSPC) ? -1 : __real_write(file, bytes, n);
}

int __wrap_rename(const char *from, const char *to)
{
    return is_refused(OPEN, EACCES) ? -1 : __real_rename(from, to);
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
    va_end(more);
    return is_refused(OPEN, EACCES) ? -1 : __real_openat(folder, path, flags, mode);
}

int __wrap_fsync(int file)
{
    return is_refused(WRITE, EIO) ? -1 : __real_fsync(file);
}

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return is_refused(OPEN, EACCES) ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

/* ---------------------------------------------------------------------------------------- time */

static long tick_us = 1;

/* A tick from look to look: what is measured is the same in every run. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out_time)
{
    static long us;
    (void)clock;
    us += tick_us;
    *out_time = (struct timespec){us / 1000000, us % 1000000 * 1000};
    return 0;
}

/* The clock on the wall goes back an hour from look to look. */
int __wrap_gettimeofday(struct timeval *out_time, void *zone)
{
    static long n_looks;
    const int status = __real_gettimeofday(out_time, zone);
    out_time->tv_sec -= 3600 * n_looks++;
    return status;
}

/* ----------------------------------------------------------------------------- before and after */

static void write_counts(void)
{
    const char *path = getenv("KVP_FAULT_COUNTS");
    FILE *file = path == NULL ? NULL : __real_fopen(path, "w");
    for (int i = 0; file != NULL && i < KINDS; i++)
        fprintf(file, "%s %lu\n", names[i], n_asked[i]);
    if (file != NULL)
        fclose(file);
}

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("KVP_FAULT"), *tick = getenv("KVP_TICK_US");
    tick_us = tick == NULL ? tick_us : strtol(tick, NULL, 10);
    for (int i = 0; fault != NULL && i < KINDS; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(fault, names[i], n) == 0 && fault[n] == ':')
            fail_at[i] = strtoul(fault + n + 1, NULL, 10);
    }
    stdout = watched(stdout, "w");
    if (atexit(write_counts) != 0)
        abort();
}

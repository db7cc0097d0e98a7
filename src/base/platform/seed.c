/* seed: random bits from the system. Only this file and seed_windows.c ask for any.
 *
 * getrandom first: it needs no file, and waits at boot until there is something to give. Where it
 * is not there (an old kernel, a C library before glibc 2.25) or not allowed (a sandbox),
 * /dev/urandom, if that is a device: a plain file in its place would give all processes the same
 * seed.
 */
#define _GNU_SOURCE /* getrandom */

#include <kvpager/seed.h>

#include "base/platform/which.h"

#if !KVPI_WINDOWS

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if KVPI_LINUX && (!defined(__GLIBC__) || __GLIBC__ > 2 || __GLIBC_MINOR__ >= 25)

#include <sys/random.h>

/* 1: all of it; 0: it cannot be had here. */
static int from_system(uint8_t *out, size_t n_bytes)
{
    size_t n = 0;
    while (n < n_bytes) {
        const ssize_t got = getrandom(out + n, n_bytes - n, 0);
        if (got > 0) {
            n += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            return 0;
        }
    }
    return 1;
}

#else

static int from_system(uint8_t *out, size_t n_bytes)
{
    (void)out;
    (void)n_bytes;
    return 0;
}

#endif

static int open_device(void)
{
    int file;
    do {
        file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    } while (file < 0 && errno == EINTR);
    return file;
}

static int read_random(int file, uint8_t *out, size_t n_bytes)
{
    size_t n = 0;
    while (n < n_bytes) {
        const ssize_t got = read(file, out + n, n_bytes - n);
        if (got > 0) {
            n += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            return 0;
        }
    }
    return 1;
}

static int from_device(uint8_t *out, size_t n_bytes)
{
    struct stat about;
    const int file = open_device();
    if (file < 0) {
        return 0;
    }
    const int good =
        fstat(file, &about) == 0 && S_ISCHR(about.st_mode) && read_random(file, out, n_bytes);
    (void)close(file);
    return good;
}

kvp_status kvp_random_seed(uint64_t *out_seed)
{
    uint8_t bytes[sizeof(*out_seed)];
    if (out_seed == NULL) {
        return KVP_E_ARG;
    }
    if (!from_system(bytes, sizeof(bytes)) && !from_device(bytes, sizeof(bytes))) {
        return KVP_E_IO;
    }
    memcpy(out_seed, bytes, sizeof(bytes));
    return KVP_OK;
}

#endif

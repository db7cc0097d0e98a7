/* kvp_random_seed, with a system that interrupts, gives little, or fails. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mocka.h"

#include <kvpager/seed.h>

/* What the system says, call after call: an error (negative), or so many bytes at most. */
struct source {
    const int *says; /* [n] */
    uint32_t n;
    uint32_t at;
    uint8_t next; /* byte; they count up */
};

static struct source system_source, device_source;
static int is_faked, open_error, n_open_interrupts, is_file, n_opened, n_closed;

enum { DEVICE = 12345 };

ssize_t __real_getrandom(void *out, size_t n, unsigned flags);
ssize_t __real_read(int file, void *out, size_t n);
int __real_open(const char *path, int flags, ...);
int __real_fstat(int file, struct stat *about);
int __real_close(int file);
ssize_t __wrap_getrandom(void *out, size_t n, unsigned flags);
ssize_t __wrap_read(int file, void *out, size_t n);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fstat(int file, struct stat *about);
int __wrap_close(int file);

static ssize_t give(struct source *source, void *out, size_t n)
{
    assert_in_range(source->at, 0, source->n - 1);
    const int says = source->says[source->at++];
    if (says < 0) {
        errno = -says;
        return -1;
    }
    for (size_t i = 0; i < n && i < (size_t)says; i++)
        ((uint8_t *)out)[i] = source->next++;
    return n < (size_t)says ? (ssize_t)n : says;
}

ssize_t __wrap_getrandom(void *out, size_t n, unsigned flags)
{
    return is_faked ? give(&system_source, out, n) : __real_getrandom(out, n, flags);
}

ssize_t __wrap_read(int file, void *out, size_t n)
{
    return file == DEVICE ? give(&device_source, out, n) : __real_read(file, out, n);
}

int __wrap_open(const char *path, int flags, ...)
{
    if (!is_faked)
        return __real_open(path, flags);
    assert_string_equal(path, "/dev/urandom");
    assert_int_equal(flags, O_RDONLY | O_CLOEXEC);
    if (n_open_interrupts > 0 || open_error != 0) {
        errno = n_open_interrupts-- > 0 ? EINTR : open_error;
        return -1;
    }
    n_opened++;
    return DEVICE;
}

int __wrap_fstat(int file, struct stat *about)
{
    if (file != DEVICE)
        return __real_fstat(file, about);
    memset(about, 0, sizeof(*about));
    about->st_mode = is_file ? S_IFREG : S_IFCHR;
    return 0;
}

int __wrap_close(int file)
{
    n_closed += file == DEVICE;
    return file == DEVICE ? 0 : __real_close(file);
}

#define SAYS(...)                                                                                  \
    (struct source)                                                                                \
    {                                                                                              \
        .says = (const int[]){__VA_ARGS__}, .n = sizeof((const int[]){__VA_ARGS__}) / sizeof(int)  \
    }

/* The status, and whether out_seed is the next eight bytes from `first`, or untouched. */
static void expect(kvp_status status, uint8_t first)
{
    uint8_t want[8];
    uint64_t seed = 0x5555555555555555u;
    is_faked = 1;
    const kvp_status got = kvp_random_seed(&seed);
    is_faked = 0;
    for (uint8_t i = 0; i < 8; i++)
        want[i] = status == KVP_OK ? (uint8_t)(first + i) : 0x55;
    assert_int_equal(got, status);
    assert_memory_equal(&seed, want, sizeof(want));
    assert_int_equal(n_opened, n_closed);
}

TEST(test_two_seeds_differ)
{
    uint64_t seeds[64];
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(kvp_random_seed(&seeds[i]), KVP_OK);
        for (size_t k = 0; k < i; k++)
            assert_true(seeds[i] != seeds[k]);
    }
    assert_int_equal(kvp_random_seed(NULL), KVP_E_ARG);
}

TEST(test_getrandom_interrupted_and_short)
{
    system_source = SAYS(-EINTR, 3, -EINTR, -EINTR, 1, 4);
    expect(KVP_OK, 0);
    assert_int_equal(system_source.at, 6);
    assert_int_equal(n_opened, 0);
}

TEST(test_the_device_where_there_is_no_getrandom)
{
    static const int errors[] = {-ENOSYS, -EPERM, 0};
    for (size_t i = 0; i < 3; i++) {
        system_source = (struct source){.says = &errors[i], .n = 1};
        device_source = SAYS(-EINTR, 5, 3);
        device_source.next = 100;
        n_open_interrupts = 2;
        expect(KVP_OK, 100);
        assert_int_equal(n_opened, i + 1);
    }
    /* What getrandom gave before it failed is not used. */
    system_source = SAYS(7, -EIO);
    device_source = SAYS(8);
    expect(KVP_OK, 0);
}

TEST(test_no_source_is_a_status)
{
    static const int reads[] = {-EIO, 0};
    for (size_t i = 0; i < 2; i++) {
        system_source = SAYS(-ENOSYS);
        device_source = (struct source){.says = &reads[i], .n = 1};
        expect(KVP_E_IO, 0);
    }
    system_source = SAYS(-ENOSYS);
    device_source = SAYS(7, 0); /* it ends one byte short */
    expect(KVP_E_IO, 0);
    system_source = SAYS(-ENOSYS);
    open_error = ENOENT;
    expect(KVP_E_IO, 0);
    open_error = 0;
    system_source = SAYS(-ENOSYS);
    device_source = SAYS(8);
    is_file = 1; /* not a device: its bytes may be known */
    expect(KVP_E_IO, 0);
    assert_int_equal(device_source.at, 0);
    is_file = 0;
}

TEST_MAIN(NULL, NULL)

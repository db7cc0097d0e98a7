/* wake: a pipe, which every system with poll(2) has. Both ends never block. */
#define _POSIX_C_SOURCE 200809L
#include "store/wake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static int prepare(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

int kvpi_wake_open(struct kvpi_wake *wake)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    *wake = (struct kvpi_wake){.read_fd = ends[0], .write_fd = ends[1]};
    if (prepare(ends[0]) && prepare(ends[1]))
        return 0;
    kvpi_wake_close(wake);
    return -1;
}

void kvpi_wake_close(struct kvpi_wake *wake)
{
    close(wake->read_fd);
    close(wake->write_fd);
}

void kvpi_wake_raise(struct kvpi_wake *wake)
{
    if (atomic_exchange(&wake->raised, 1))
        return;
    /* A full pipe is readable: nothing is lost. */
    while (write(wake->write_fd, "", 1) < 0 && errno == EINTR) {}
}

void kvpi_wake_clear(struct kvpi_wake *wake)
{
    char bytes[64];
    ssize_t n;
    do
        n = read(wake->read_fd, bytes, sizeof bytes);
    while (n == (ssize_t)sizeof bytes || (n < 0 && errno == EINTR));
    atomic_exchange(&wake->raised, 0); /* last: nothing is read that a later raise has written */
}

int kvpi_wake_wait(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms) > 0;
}

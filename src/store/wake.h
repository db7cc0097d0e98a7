/* wake: a file descriptor that is readable from the moment it is raised until it is cleared. */
#ifndef KVPI_STORE_WAKE_H
#define KVPI_STORE_WAKE_H

#include <stdatomic.h>
#include <stdint.h>

/* raised spares raises in a row their system calls. It is 1 with nothing to read only while a raise
 * is under way. One thread clears; it looks for what it is woken for after the clearing. */
struct kvpi_wake {
    int read_fd;
    int write_fd;
    _Atomic int raised;
};

/* 0: done; -1: the system gave none. */
int kvpi_wake_open(struct kvpi_wake *wake);
void kvpi_wake_close(struct kvpi_wake *wake);
void kvpi_wake_raise(struct kvpi_wake *wake);
void kvpi_wake_clear(struct kvpi_wake *wake);

/* Wait until a descriptor is readable: 1, or timeout_ms (-1: none) have gone: 0. */
int kvpi_wake_wait(int fd, int timeout_ms);

#endif

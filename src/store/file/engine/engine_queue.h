/* engine_queue: what the engine asks of io_uring, so that a test can be the kernel.
 *
 *   add     a transfer is put in the queue; nothing happens yet
 *   submit  the system takes transfers, in the order in which they were added, as many as it can
 *   take    a transfer has ended, in any order; its result is bytes moved, or minus an errno
 *
 * All calls come from one thread at a time. Addresses that were handed over are in use until the
 * transfer has ended. */
#ifndef KVPI_STORE_QUEUE_H
#define KVPI_STORE_QUEUE_H

#include <stdint.h>
#include <sys/uio.h>

enum { KVPI_QUEUE_READ = 1, KVPI_QUEUE_WRITE = 2, KVPI_QUEUE_SYNC = 3 };

struct kvpi_queue_io {
    uint32_t kind;
    int file;
    uint64_t offset;
    const struct iovec *spans; /* [n_spans] */
    uint32_t n_spans;
    int fixed; /* 1: spans is one piece of what was fixed */
    uint32_t tag;
};

struct kvpi_queue_system {
    void *context;
    /* Make a queue in which `depth` transfers can be at a time. 0 or an errno: ENOTSUP where this
     * program was built without. */
    int (*open)(void *context, uint32_t depth, void **out_queue);
    void (*close)(void *queue);
    /* Pin memory, so that transfers need not. 0 or an errno. */
    int (*fix)(void *queue, void *bytes, size_t n_bytes);
    /* There is room: at most `depth` have been added and not taken. */
    void (*add)(void *queue, const struct kvpi_queue_io *io);
    /* 0 or an errno, and how many were taken by the system, also then. */
    int (*submit)(void *queue, uint32_t *out_n);
    /* 1: a transfer has ended. 0: none. */
    int (*take)(void *queue, uint32_t *out_tag, int32_t *out_result);
    /* Readable when there may be something to take; -1: there is none. */
    int (*descriptor)(void *queue);
};

extern const struct kvpi_queue_system kvpi_uring;

#endif

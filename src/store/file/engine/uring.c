/* uring: the kernel's io_uring, by liburing. No features but reading, writing and fdatasync, and
 * memory that is registered: what kernels since 5.6 have. */
#define _GNU_SOURCE /* liburing.h needs sigset_t and AT_FDCWD */
#include "store/file/engine/engine_queue.h"

#include <errno.h>
#include <stdlib.h>

#ifdef KVP_STORE_URING

#include <liburing.h>

enum { FIXED_MAX = 1 << 30 }; /* bytes of one transfer; what is behind them is another */

static int has_all(struct io_uring *ring)
{
    static const int needed[] = {IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_READ_FIXED,
                                 IORING_OP_WRITE_FIXED, IORING_OP_FSYNC};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    int has = probe != NULL;
    for (unsigned i = 0; has && i < sizeof needed / sizeof *needed; i++)
        has = io_uring_opcode_supported(probe, needed[i]);
    io_uring_free_probe(probe);
    return has;
}

static int uring_open(void *context, uint32_t depth, void **out_queue)
{
    (void)context;
    struct io_uring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return ENOMEM;
    int error = -io_uring_queue_init(depth, ring, 0);
    if (!error && !has_all(ring)) {
        io_uring_queue_exit(ring);
        error = ENOSYS;
    }
    if (error)
        free(ring);
    else
        *out_queue = ring;
    return error;
}

static void uring_close(void *queue)
{
    io_uring_queue_exit(queue);
    free(queue);
}

static int uring_fix(void *queue, void *bytes, size_t n_bytes)
{
    const struct iovec memory = {.iov_base = bytes, .iov_len = n_bytes};
    return -io_uring_register_buffers(queue, &memory, 1);
}

static void uring_add(void *queue, const struct kvpi_queue_io *io)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(queue);
    const struct iovec *spans = io->spans;
    const unsigned n_bytes =
        io->fixed && spans->iov_len < FIXED_MAX ? (unsigned)spans->iov_len : FIXED_MAX;
    if (io->kind == KVPI_QUEUE_SYNC)
        io_uring_prep_fsync(sqe, io->file, IORING_FSYNC_DATASYNC);
    else if (io->kind == KVPI_QUEUE_READ && io->fixed)
        io_uring_prep_read_fixed(sqe, io->file, spans->iov_base, n_bytes, io->offset, 0);
    else if (io->kind == KVPI_QUEUE_READ)
        io_uring_prep_readv(sqe, io->file, spans, io->n_spans, io->offset);
    else if (io->fixed)
        io_uring_prep_write_fixed(sqe, io->file, spans->iov_base, n_bytes, io->offset, 0);
    else
        io_uring_prep_writev(sqe, io->file, spans, io->n_spans, io->offset);
    io_uring_sqe_set_data64(sqe, io->tag);
}

static int uring_submit(void *queue, uint32_t *out_n)
{
    const int result = io_uring_submit(queue);
    *out_n = result > 0 ? (uint32_t)result : 0;
    return result < 0 ? -result : 0;
}

static int uring_take(void *queue, uint32_t *out_tag, int32_t *out_result)
{
    struct io_uring_cqe *cqe;
    if (io_uring_peek_cqe(queue, &cqe) != 0)
        return 0;
    *out_tag = (uint32_t)io_uring_cqe_get_data64(cqe);
    *out_result = cqe->res;
    io_uring_cqe_seen(queue, cqe);
    return 1;
}

static int uring_descriptor(void *queue)
{
    return ((const struct io_uring *)queue)->ring_fd;
}

const struct kvpi_queue_system kvpi_uring = {
    .open = uring_open,
    .close = uring_close,
    .fix = uring_fix,
    .add = uring_add,
    .submit = uring_submit,
    .take = uring_take,
    .descriptor = uring_descriptor,
};

#else

static int no_open(void *context, uint32_t depth, void **out_queue)
{
    (void)context;
    (void)depth;
    (void)out_queue;
    return ENOTSUP;
}

const struct kvpi_queue_system kvpi_uring = {.open = no_open};

#endif

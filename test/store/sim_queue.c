/* sim_queue: an array of transfers, the first of which the kernel has. */
#include "sim_queue.h"

#include <errno.h>
#include <string.h>

#include "mocka.h"

static uint32_t draw(struct sim_queue *queue, uint32_t n)
{
    queue->random ^= queue->random << 13;
    queue->random ^= queue->random >> 7;
    queue->random ^= queue->random << 17;
    return (uint32_t)(queue->random >> 33) % n;
}

static int sim_open(void *context, uint32_t depth, void **out_queue)
{
    struct sim_queue *queue = context;
    assert_true(depth <= SIM_QUEUE_DEPTH_MAX);
    if (queue->open_error)
        return queue->open_error;
    queue->random = queue->random * UINT64_C(0x9E3779B97F4A7C15) + 1;
    queue->n_ios = queue->n_taken = 0;
    queue->is_open = 1;
    *out_queue = queue;
    return 0;
}

static void sim_close(void *context)
{
    struct sim_queue *queue = context;
    assert_int_equal(queue->n_taken, 0); /* the kernel would still write */
    queue->is_open = 0;
}

static int sim_fix(void *context, void *bytes, size_t n_bytes)
{
    struct sim_queue *queue = context;
    if (!queue->fix_error) {
        queue->fixed = bytes;
        queue->fixed_bytes = n_bytes;
    }
    return queue->fix_error;
}

static void sim_add(void *context, const struct kvpi_queue_io *io)
{
    struct sim_queue *queue = context;
    assert_true(queue->n_ios < SIM_QUEUE_DEPTH_MAX);
    assert_true(io->n_spans <= 1 + KVP_RECORD_BLOCKS_MAX);
    for (uint32_t i = 0; i < queue->n_ios; i++)
        assert_int_not_equal(queue->ios[i].tag, io->tag);
    if (io->fixed) {
        const uint8_t *at = io->spans->iov_base;
        assert_int_equal(io->n_spans, 1);
        assert_true(queue->fixed && at >= queue->fixed &&
                    at + io->spans->iov_len <= queue->fixed + queue->fixed_bytes);
        queue->n_fixed++;
    }
    queue->ios[queue->n_ios++] = *io;
}

static int sim_submit(void *context, uint32_t *out_n)
{
    struct sim_queue *queue = context;
    *out_n = 0;
    const uint64_t number = ++queue->n_submits;
    if (queue->fail_submit && number >= queue->fail_submit &&
        number - queue->fail_submit <= queue->n_submit_failures)
        return queue->submit_error;
    uint32_t n = queue->n_ios - queue->n_taken;
    if (n > 0 && draw(queue, 100) < queue->part_rate)
        n = draw(queue, n + 1);
    /* Kernels copy the spans now: what becomes of them later must not matter. */
    for (uint32_t i = queue->n_taken; i < queue->n_taken + n; i++)
        if (queue->ios[i].kind != KVPI_QUEUE_SYNC)
            memcpy(queue->spans[i], queue->ios[i].spans,
                   queue->ios[i].n_spans * sizeof *queue->ios[i].spans);
    queue->n_taken += n;
    *out_n = n;
    return 0;
}

/* The first n bytes of the spans. */
static int32_t move(const struct sim_queue *queue, const struct kvpi_queue_io *io,
                    const struct iovec *all, uint64_t n)
{
    struct kvpi_span spans[1 + KVP_RECORD_BLOCKS_MAX];
    uint32_t n_spans = 0;
    uint64_t left = n;
    for (uint32_t i = 0; i < io->n_spans && left > 0; i++) {
        const uint64_t part = all[i].iov_len < left ? all[i].iov_len : left;
        spans[n_spans++] = (struct kvpi_span){all[i].iov_base, (size_t)part};
        left -= part;
    }
    const struct kvpi_disk *disk = queue->disk;
    const int error = io->kind == KVPI_QUEUE_READ
                          ? disk->read(disk->context, io->file, spans, n_spans, io->offset)
                          : disk->write(disk->context, io->file, spans, n_spans, io->offset);
    return error ? -error : (int32_t)n;
}

static int is_aligned(const struct kvpi_queue_io *io, const struct iovec *spans)
{
    uint64_t bits = io->offset;
    for (uint32_t i = 0; i < io->n_spans; i++)
        bits |= (uint64_t)(uintptr_t)spans[i].iov_base | spans[i].iov_len;
    return bits % 4096 == 0;
}

static int32_t run(struct sim_queue *queue, const struct kvpi_queue_io *io,
                   const struct iovec *spans)
{
    const struct kvpi_disk *disk = queue->disk;
    const uint64_t number = ++queue->n_results;
    if (queue->fail_result && number >= queue->fail_result &&
        number - queue->fail_result <= queue->n_result_failures)
        return queue->result;
    if (draw(queue, 100) < queue->again_rate) {
        queue->n_again++;
        return draw(queue, 2) ? -EAGAIN : -EINTR;
    }
    if (io->kind == KVPI_QUEUE_SYNC) {
        queue->n_syncs++;
        return -disk->sync(disk->context, io->file);
    }
    if (queue->direct && *queue->direct && !is_aligned(io, spans))
        return -EINVAL;
    uint64_t n = 0;
    for (uint32_t i = 0; i < io->n_spans; i++)
        n += spans[i].iov_len;
    if (n > 1 && draw(queue, 100) < queue->short_rate) {
        n = 1 + draw(queue, (uint32_t)n - 1);
        queue->n_short++;
    }
    return move(queue, io, spans, n);
}

static int sim_take(void *context, uint32_t *out_tag, int32_t *out_result)
{
    struct sim_queue *queue = context;
    if (queue->n_taken == 0 || draw(queue, 100) < queue->late_rate)
        return 0;
    if (draw(queue, 100) < queue->stray_rate) {
        const uint32_t which = draw(queue, 3);
        *out_tag = which < 2 ? queue->told[which] : draw(queue, UINT32_MAX);
        *out_result = draw(queue, 2) ? -EIO : (int32_t)draw(queue, 1 << 20);
        queue->n_stray++;
        return 1;
    }
    const uint32_t at = draw(queue, queue->n_taken);
    queue->n_out_of_order += at > 0;
    *out_tag = queue->ios[at].tag;
    queue->told[0] = queue->told[1];
    queue->told[1] = *out_tag;
    *out_result = run(queue, &queue->ios[at], queue->spans[at]);
    queue->n_ios--;
    queue->n_taken--;
    memmove(&queue->ios[at], &queue->ios[at + 1], (queue->n_ios - at) * sizeof *queue->ios);
    memmove(&queue->spans[at], &queue->spans[at + 1], (queue->n_ios - at) * sizeof *queue->spans);
    return 1;
}

static int sim_descriptor(void *context)
{
    (void)context;
    return -1;
}

struct kvpi_queue_system sim_queue_interface(struct sim_queue *queue)
{
    return (struct kvpi_queue_system){.context = queue,
                                      .open = sim_open,
                                      .close = sim_close,
                                      .fix = sim_fix,
                                      .add = sim_add,
                                      .submit = sim_submit,
                                      .take = sim_take,
                                      .descriptor = sim_descriptor};
}

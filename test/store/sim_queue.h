/* sim_queue: an io_uring whose kernel is the test. Transfers move bytes of any kvpi_disk when they
 * are taken, in random order, and each thing that the real one may answer can be asked for.
 *
 * On files that a queue is told to take for direct it checks what O_DIRECT checks: offsets, lengths
 * and addresses by 4096, else EINVAL. */
#ifndef KVP_TEST_SIM_QUEUE_H
#define KVP_TEST_SIM_QUEUE_H

#include "store/file/disk.h"
#include "store/file/engine/engine_queue.h"

enum { SIM_QUEUE_DEPTH_MAX = 64 };

struct sim_queue {
    const struct kvpi_disk *disk;
    const int *direct; /* does a file go past the page cache now? */
    uint64_t random;
    /* What to answer. */
    int open_error;
    int fix_error;
    uint64_t fail_submit; /* the n-th one, from 1; 0: none */
    int submit_error;
    uint64_t n_submit_failures; /* this one and so many after it fail */
    uint64_t fail_result;       /* the n-th transfer that ends */
    int32_t result;             /* instead of its own */
    uint64_t n_result_failures;
    unsigned short_rate; /* of 100: only a part moves */
    unsigned again_rate; /* of 100: EAGAIN or EINTR */
    unsigned late_rate;  /* of 100: nothing has ended yet */
    unsigned stray_rate; /* of 100: an answer comes a second time, or is of no transfer */
    unsigned part_rate;  /* of 100: a submission takes a part of what was added */
    /* What happened. */
    uint64_t n_submits;
    uint64_t n_results;
    uint64_t n_syncs;
    uint64_t n_short;
    uint64_t n_again;
    uint64_t n_stray;
    uint64_t n_fixed;
    uint64_t n_out_of_order;
    int is_open;
    /* Within. */
    struct kvpi_queue_io ios[SIM_QUEUE_DEPTH_MAX];
    struct iovec spans[SIM_QUEUE_DEPTH_MAX][1 + KVP_RECORD_BLOCKS_MAX];
    uint32_t n_ios;
    uint32_t told[2]; /* tags that were given, the newest last */
    uint32_t n_taken; /* the first so many are the kernel's */
    const uint8_t *fixed;
    size_t fixed_bytes;
};

/* The interface to one; it lives as long as `queue`. */
struct kvpi_queue_system sim_queue_interface(struct sim_queue *queue);

#endif

/* threads: operations that read, write and sync slots, by a few threads or at once. */
#ifndef KVPI_STORE_THREADS_H
#define KVPI_STORE_THREADS_H

#include <pthread.h>

#include "store/file/slabs.h"
#include "store/backend.h"
#include "store/wake.h"

enum { KVPI_THREADS_MAX = 32 };

struct kvpi_threads;

struct kvpi_thread {
    struct kvpi_threads *all;
    pthread_t thread;
    uint8_t *stage; /* its own */
};

struct kvpi_threads {
    struct kvpi_slabs *slabs;
    uint32_t n_max;
    uint32_t n_threads; /* 0: submit does the work */
    struct kvpi_thread threads[KVPI_THREADS_MAX];
    uint8_t *stages; /* [max(n_max, 1)] of slot_bytes */
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct kvpi_store_op *first; /* to do, by op->link */
    struct kvpi_store_op *last;
    struct kvpi_store_op *ended; /* done, not reaped */
    int closing;
    int raised;
    struct kvpi_wake wake; /* something is in `ended` */
    _Atomic uint64_t n_staged;
};

/* With room for n_max threads; none is started. 0 or an errno. */
int kvpi_threads_open(struct kvpi_threads *threads, struct kvpi_slabs *slabs, uint32_t n_max);

/* Start as many as the system gives: fewer are slower, not wrong. Nothing was submitted yet. */
void kvpi_threads_start(struct kvpi_threads *threads);

/* Waits for what was submitted. */
void kvpi_threads_close(struct kvpi_threads *threads);

/* op->place_in: the slabs that a get reads from; NULL: the engine's own. */
void kvpi_threads_submit(struct kvpi_threads *threads, struct kvpi_store_op *op);

uint32_t kvpi_threads_reap(struct kvpi_threads *threads, struct kvpi_store_op **out_ops,
                           uint32_t capacity);

#endif

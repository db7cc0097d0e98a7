/* engine: operations that read, write and sync slots, by a few threads or at once. */
#ifndef KVPI_STORE_ENGINE_H
#define KVPI_STORE_ENGINE_H

#include <pthread.h>

#include "store/file/slabs.h"
#include "store/backend.h"
#include "store/wake.h"

enum { KVPI_ENGINE_THREADS_MAX = 32 };

struct kvpi_engine {
    struct kvpi_slabs *slabs;
    uint32_t n_threads; /* 0: submit does the work */
    uint32_t n_started;
    pthread_t threads[KVPI_ENGINE_THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct kvpi_store_op *first; /* to do, by op->link */
    struct kvpi_store_op *last;
    struct kvpi_store_op *ended; /* done, not reaped */
    int closing;
    struct kvpi_wake wake; /* something is in `ended` */
};

/* 0 or an errno. */
int kvpi_engine_open(struct kvpi_engine *engine, struct kvpi_slabs *slabs, uint32_t n_threads);

/* Waits for what was submitted. */
void kvpi_engine_close(struct kvpi_engine *engine);

/* op->place_in: the slabs that a get reads from; NULL: the engine's own. */
void kvpi_engine_submit(struct kvpi_engine *engine, struct kvpi_store_op *op);

uint32_t kvpi_engine_reap(struct kvpi_engine *engine, struct kvpi_store_op **out_ops,
                          uint32_t capacity);

#endif

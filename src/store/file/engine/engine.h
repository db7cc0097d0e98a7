/* engine: reads, writes and syncs slots: by io_uring where the system lets us, else by threads.
 *
 * Which one it is, and why, is decided when it is opened. io_uring that stops working later is
 * given up: what it has under way it ends, and threads do the rest. */
#ifndef KVPI_STORE_ENGINE_H
#define KVPI_STORE_ENGINE_H

#include "store/file/engine/flight.h"
#include "store/file/engine/threads.h"

/* As the URL says: engine=auto (default), io_uring or threads. */
enum { KVPI_ENGINE_AUTO = 0, KVPI_ENGINE_URING = 1, KVPI_ENGINE_THREADS = 2 };

struct kvpi_engine_config {
    uint32_t choice;
    uint32_t n_threads;                    /* 0: operations are done when they begin */
    const struct kvpi_queue_system *queue; /* io_uring, or a test's */
};

struct kvpi_engine {
    struct kvpi_engine_config config;
    struct kvpi_slabs *slabs;
    int flies;    /* `flight` is open */
    int no_queue; /* why there is no io_uring: an errno */
    struct kvpi_flight flight;
    struct kvpi_threads threads; /* open in any case; started when they are needed */
    _Atomic int broken;          /* why io_uring was given up; an errno */
    _Atomic uint64_t n_staged;   /* operations that were copied through a stage */
};

/* 0 or an errno. ENOSYS ... of io_uring with choice KVPI_ENGINE_URING: engine->no_queue is set. */
int kvpi_engine_open(struct kvpi_engine *engine, struct kvpi_slabs *slabs,
                     const struct kvpi_engine_config *config);

/* All that was submitted has been reaped. Does not wait. */
void kvpi_engine_close(struct kvpi_engine *engine);

/* op->place_in: the slabs that a get reads from; NULL: the engine's own. */
void kvpi_engine_submit(struct kvpi_engine *engine, struct kvpi_store_op *op);

uint32_t kvpi_engine_reap(struct kvpi_engine *engine, struct kvpi_store_op **out_ops,
                          uint32_t capacity);

/* Until something may be there to reap, `wake` is readable, or timeout_ms (-1: none) have gone. */
void kvpi_engine_wait(const struct kvpi_engine *engine, int wake, int timeout_ms);

/* Say which engine works, why, and what it goes without. From any thread. */
void kvpi_engine_describe(const struct kvpi_engine *engine, char *out_text, size_t text_bytes);

/* Why there is no io_uring, in words. */
const char *kvpi_engine_why(int error);

#endif

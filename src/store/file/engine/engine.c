/* engine: two of them, and which one has the next operation. */
#include "store/file/engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

const char *kvpi_engine_why(int error)
{
    switch (error) {
    case ENOTSUP: return "built without liburing";
    case ENOSYS: return "the kernel has none, or a sandbox hides it";
    case EPERM:
    case EACCES: return "the system forbids it";
    default: return strerror(error);
    }
}

int kvpi_engine_open(struct kvpi_engine *engine, struct kvpi_slabs *slabs,
                     const struct kvpi_engine_config *config)
{
    *engine = (struct kvpi_engine){.config = *config, .slabs = slabs};
    if (config->choice != KVPI_ENGINE_THREADS && config->queue) {
        engine->no_queue = kvpi_flight_open(&engine->flight, config->queue, slabs);
        engine->flies = engine->no_queue == 0;
        if (!engine->flies && config->choice == KVPI_ENGINE_URING)
            return engine->no_queue;
    }
    const int error = kvpi_threads_open(&engine->threads, slabs, config->n_threads);
    if (error && engine->flies)
        kvpi_flight_close(&engine->flight);
    else if (!error && !engine->flies)
        kvpi_threads_start(&engine->threads);
    return error;
}

void kvpi_engine_close(struct kvpi_engine *engine)
{
    assert(!engine->flies || engine->flight.n_flying == 0);
    kvpi_threads_close(&engine->threads);
    if (engine->flies)
        kvpi_flight_close(&engine->flight);
}

/* What io_uring has not begun goes to threads. */
static void give_up_flight(struct kvpi_engine *engine)
{
    if (atomic_load_explicit(&engine->broken, memory_order_relaxed) == 0) {
        kvpi_threads_start(&engine->threads);
        /* Pairs with kvpi_engine_describe: it reads n_threads behind this. */
        atomic_store_explicit(&engine->broken, engine->flight.broken, memory_order_release);
    }
    struct kvpi_store_op *op;
    while ((op = kvpi_flight_salvage(&engine->flight)))
        kvpi_threads_submit(&engine->threads, op);
}

void kvpi_engine_submit(struct kvpi_engine *engine, struct kvpi_store_op *op)
{
    if (!engine->flies) {
        kvpi_threads_submit(&engine->threads, op);
        return;
    }
    kvpi_flight_submit(&engine->flight, op);
    if (engine->flight.broken)
        give_up_flight(engine);
}

uint32_t kvpi_engine_reap(struct kvpi_engine *engine, struct kvpi_store_op **out_ops,
                          uint32_t capacity)
{
    uint32_t n = 0;
    if (engine->flies) {
        n = kvpi_flight_reap(&engine->flight, out_ops, capacity);
        if (engine->flight.broken)
            give_up_flight(engine);
    }
    n += kvpi_threads_reap(&engine->threads, out_ops + n, capacity - n);
    atomic_store_explicit(&engine->n_staged,
                          engine->flight.n_staged +
                              atomic_load_explicit(&engine->threads.n_staged, memory_order_relaxed),
                          memory_order_relaxed);
    return n;
}

/* poll passes over a descriptor below 0. */
void kvpi_engine_wait(const struct kvpi_engine *engine, int wake, int timeout_ms)
{
    struct pollfd fds[3] = {{.fd = wake, .events = POLLIN},
                            {.fd = engine->threads.wake.read_fd, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    if (engine->flies) {
        fds[2].fd = engine->flight.system->descriptor(engine->flight.queue);
        if (kvpi_flight_is_stuck(&engine->flight) || fds[2].fd < 0)
            timeout_ms = 1;
    }
    poll(fds, 3, timeout_ms);
}

void kvpi_engine_describe(const struct kvpi_engine *engine, char *out_text, size_t text_bytes)
{
    const int broken = atomic_load_explicit(&engine->broken, memory_order_acquire);
    const char *file = atomic_load_explicit(&engine->slabs->refused, memory_order_relaxed)
                           ? "through the page cache: the file system has no direct I/O"
                           : "past the page cache";
    char how[200];
    if (broken)
        snprintf(how, sizeof how, "%u threads, because io_uring stopped working: %s",
                 engine->threads.n_threads, strerror(broken));
    else if (engine->flies && engine->flight.fixed)
        snprintf(how, sizeof how, "io_uring");
    else if (engine->flies)
        snprintf(how, sizeof how, "io_uring, without registered memory: %s",
                 strerror(engine->flight.unfixed));
    else if (engine->no_queue)
        snprintf(how, sizeof how, "%u threads, because there is no io_uring: %s",
                 engine->threads.n_threads, kvpi_engine_why(engine->no_queue));
    else
        snprintf(how, sizeof how, "%u threads, as asked for", engine->threads.n_threads);
    snprintf(out_text, text_bytes, "%s; %s", how, file);
}

/* engine: a list of work, a list of what is done, and threads between them. */
#include "store/file/engine.h"

#include <errno.h>
#include <stdlib.h>

static void work(struct kvpi_engine *engine, struct kvpi_store_op *op)
{
    struct kvpi_slabs *slabs = op->place_in ? op->place_in : engine->slabs;
    int error;
    if (op->kind == KVP_STORE_SYNC)
        error = kvpi_slabs_sync(slabs);
    else
        error = kvpi_slabs_transfer(slabs, op->kind == KVP_STORE_PUT, (uint32_t)op->place.slot,
                                    op->spans, op->n_spans);
    op->io_failed = error != 0;
}

/* With the lock held. */
static void put_ended(struct kvpi_engine *engine, struct kvpi_store_op *op)
{
    if (!engine->ended)
        kvpi_wake_raise(&engine->wake);
    op->link = engine->ended;
    engine->ended = op;
}

static void *run(void *context)
{
    struct kvpi_engine *engine = context;
    pthread_mutex_lock(&engine->lock);
    while (engine->first || !engine->closing) {
        struct kvpi_store_op *op = engine->first;
        if (!op) {
            pthread_cond_wait(&engine->work, &engine->lock);
            continue;
        }
        engine->first = op->link;
        pthread_mutex_unlock(&engine->lock);
        work(engine, op);
        pthread_mutex_lock(&engine->lock);
        put_ended(engine, op);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

int kvpi_engine_open(struct kvpi_engine *engine, struct kvpi_slabs *slabs, uint32_t n_threads)
{
    *engine = (struct kvpi_engine){.slabs = slabs, .n_threads = n_threads};
    if (kvpi_wake_open(&engine->wake) != 0)
        return EMFILE;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    int error = 0;
    while (engine->n_started < n_threads && !error) {
        error = pthread_create(&engine->threads[engine->n_started], NULL, run, engine);
        engine->n_started += !error;
    }
    if (error && engine->n_started == 0) {
        kvpi_engine_close(engine);
        return error;
    }
    return 0; /* fewer threads than asked for are slower, not wrong */
}

void kvpi_engine_close(struct kvpi_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->closing = 1;
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_started; i++)
        pthread_join(engine->threads[i], NULL);
    pthread_cond_destroy(&engine->work);
    pthread_mutex_destroy(&engine->lock);
    kvpi_wake_close(&engine->wake);
}

void kvpi_engine_submit(struct kvpi_engine *engine, struct kvpi_store_op *op)
{
    op->link = NULL;
    if (engine->n_threads == 0)
        work(engine, op);
    pthread_mutex_lock(&engine->lock);
    if (engine->n_threads == 0) {
        put_ended(engine, op);
    } else {
        if (engine->first)
            engine->last->link = op;
        else
            engine->first = op;
        engine->last = op;
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
}

uint32_t kvpi_engine_reap(struct kvpi_engine *engine, struct kvpi_store_op **out_ops,
                          uint32_t capacity)
{
    uint32_t n = 0;
    pthread_mutex_lock(&engine->lock);
    for (; engine->ended && n < capacity; engine->ended = out_ops[n++]->link)
        out_ops[n] = engine->ended;
    if (!engine->ended)
        kvpi_wake_clear(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
    return n;
}

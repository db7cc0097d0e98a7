/* threads: a list of work, a list of what is done, and threads between them. */
#define _POSIX_C_SOURCE 200809L /* sigset_t, pthread_sigmask */
#include "store/file/engine/threads.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/quiet.h"
#include "store/file/stage.h"

static void work(struct kvpi_threads *threads, struct kvpi_store_op *op, uint8_t *stage)
{
    struct kvpi_slabs *slabs = op->place_in ? op->place_in : threads->slabs;
    int staged = 0;
    int error;
    if (op->kind == KVP_STORE_SYNC)
        error = kvpi_slabs_sync(slabs);
    else
        error = kvpi_slabs_transfer(slabs, op->kind == KVP_STORE_PUT, (uint32_t)op->place.slot,
                                    op->spans, op->n_spans, stage, &staged);
    atomic_fetch_add_explicit(&threads->n_staged, (uint64_t)staged, memory_order_relaxed);
    op->io_failed = error != 0;
}

/* With the lock held. */
static void put_ended(struct kvpi_threads *threads, struct kvpi_store_op *op)
{
    if (!threads->raised)
        kvpi_wake_raise(&threads->wake);
    threads->raised = 1;
    op->link = threads->ended;
    threads->ended = op;
}

static void *run(void *context)
{
    const struct kvpi_thread *self = context;
    struct kvpi_threads *threads = self->all;
    pthread_mutex_lock(&threads->lock);
    while (threads->first || !threads->closing) {
        struct kvpi_store_op *op = threads->first;
        if (!op) {
            pthread_cond_wait(&threads->work, &threads->lock);
            continue;
        }
        threads->first = op->link;
        pthread_mutex_unlock(&threads->lock);
        work(threads, op, self->stage);
        pthread_mutex_lock(&threads->lock);
        put_ended(threads, op);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

int kvpi_threads_open(struct kvpi_threads *threads, struct kvpi_slabs *slabs, uint32_t n_max)
{
    *threads = (struct kvpi_threads){.slabs = slabs, .n_max = n_max};
    threads->stages = kvpi_stage_make(n_max > 0 ? n_max : 1, slabs->slot_bytes);
    if (!threads->stages)
        return ENOMEM;
    if (kvpi_wake_open(&threads->wake) != 0) {
        free(threads->stages);
        return EMFILE;
    }
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->work, NULL);
    return 0;
}

void kvpi_threads_start(struct kvpi_threads *threads)
{
    int error = 0;
    while (threads->n_threads < threads->n_max && !error) {
        struct kvpi_thread *next = &threads->threads[threads->n_threads];
        next->all = threads;
        next->stage = threads->stages + threads->n_threads * threads->slabs->slot_bytes;
        error = kvpi_quiet_start(&next->thread, run, next);
        threads->n_threads += !error;
    }
}

void kvpi_threads_close(struct kvpi_threads *threads)
{
    pthread_mutex_lock(&threads->lock);
    threads->closing = 1;
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    for (uint32_t i = 0; i < threads->n_threads; i++)
        pthread_join(threads->threads[i].thread, NULL);
    pthread_cond_destroy(&threads->work);
    pthread_mutex_destroy(&threads->lock);
    kvpi_wake_close(&threads->wake);
    free(threads->stages);
}

void kvpi_threads_submit(struct kvpi_threads *threads, struct kvpi_store_op *op)
{
    op->link = NULL;
    if (threads->n_threads == 0)
        work(threads, op, threads->stages);
    pthread_mutex_lock(&threads->lock);
    if (threads->n_threads == 0) {
        put_ended(threads, op);
    } else {
        if (threads->first)
            threads->last->link = op;
        else
            threads->first = op;
        threads->last = op;
        pthread_cond_signal(&threads->work);
    }
    pthread_mutex_unlock(&threads->lock);
}

uint32_t kvpi_threads_reap(struct kvpi_threads *threads, struct kvpi_store_op **out_ops,
                           uint32_t capacity)
{
    uint32_t n = 0;
    pthread_mutex_lock(&threads->lock);
    for (; threads->ended && n < capacity; threads->ended = out_ops[n++]->link)
        out_ops[n] = threads->ended;
    if (!threads->ended && threads->raised) {
        kvpi_wake_clear(&threads->wake);
        threads->raised = 0;
    }
    pthread_mutex_unlock(&threads->lock);
    return n;
}

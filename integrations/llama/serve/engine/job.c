/* job: two threads, one list. */
#define _GNU_SOURCE /* POLLRDHUP */

#include "job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

uint64_t kvpi_job_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

kvpi_job *kvpi_job_new(uint32_t n_samples)
{
    kvpi_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    kvpi_sampling_init(&job->sampling);
    job->n_samples = n_samples;
    job->samples = calloc(n_samples, sizeof *job->samples);
    job->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&job->references, 1);
    atomic_init(&job->is_cancelled, 0);
    (void)pthread_mutex_init(&job->mutex, NULL);
    if (job->samples == NULL || job->event < 0) {
        kvpi_job_drop(job);
        return NULL;
    }
    return job;
}

kvpi_job *kvpi_job_hold(kvpi_job *job)
{
    (void)atomic_fetch_add(&job->references, 1);
    return job;
}

void kvpi_piece_free(kvpi_piece *piece)
{
    free(piece->logprobs);
    free(piece);
}

void kvpi_job_drop(kvpi_job *job)
{
    if (atomic_fetch_sub(&job->references, 1) != 1)
        return;
    for (uint32_t i = 0; job->samples != NULL && i < job->n_samples; i++) {
        kvpi_sampler_free(&job->samples[i].sampler);
        kvpi_text_free(&job->samples[i].text);
    }
    while (job->first != NULL) {
        kvpi_piece *piece = job->first;
        job->first = piece->next;
        kvpi_piece_free(piece);
    }
    if (job->event >= 0)
        (void)close(job->event);
    (void)pthread_mutex_destroy(&job->mutex);
    free(job->sampling.grammar);
    free(job->samples);
    free(job->tokens);
    free(job->told);
    free(job);
}

static void wake(const kvpi_job *job)
{
    const uint64_t one = 1;
    (void)!write(job->event, &one, sizeof one); /* full: it wakes all the same */
}

int kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text)
{
    kvpi_piece *added = malloc(sizeof *added + piece->n_bytes);
    if (added == NULL)
        return -1;
    *added = *piece;
    added->next = NULL;
    if (piece->n_bytes > 0)
        memcpy(added->text, text, piece->n_bytes);
    (void)pthread_mutex_lock(&job->mutex);
    if (job->last != NULL)
        job->last->next = added;
    else
        job->first = added;
    job->last = added;
    job->new_tokens += piece->token >= 0;
    (void)pthread_mutex_unlock(&job->mutex);
    wake(job);
    return 0;
}

void kvpi_job_close(kvpi_job *job)
{
    (void)pthread_mutex_lock(&job->mutex);
    job->is_closed = 1;
    (void)pthread_mutex_unlock(&job->mutex);
    wake(job);
}

static kvpi_piece *take_all(kvpi_job *job, int *out_is_closed)
{
    (void)pthread_mutex_lock(&job->mutex);
    kvpi_piece *first = job->first;
    job->first = job->last = NULL;
    *out_is_closed = job->is_closed;
    (void)pthread_mutex_unlock(&job->mutex);
    return first;
}

kvpi_piece *kvpi_job_take(kvpi_job *job, int client)
{
    uint64_t count;
    int is_closed;
    struct pollfd polled[] = {{.fd = client, .events = POLLRDHUP},
                              {.fd = job->event, .events = POLLIN}};
    for (;;) {
        if (poll(polled, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if ((polled[0].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0)
            return NULL;
        /* Counted down before the list is taken: what is added later wakes again. */
        if (read(job->event, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
            return NULL;
        kvpi_piece *first = take_all(job, &is_closed);
        if (is_closed) /* the next call does not wait either */
            wake(job);
        if (first != NULL || is_closed)
            return first;
    }
}

/* quiet: threads of the library. A process's signals are for its own threads: the library's start
 * with all of them blocked, so that no handler of the process runs on one. Windows has no signals
 * that a thread could block. */
#ifndef KVPI_QUIET_H
#define KVPI_QUIET_H

#include <pthread.h>

#if defined(_WIN32)

static inline int kvpi_quiet_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    return pthread_create(thread, NULL, run, context);
}

#else

#include <signal.h>

/* pthread_create, and what it returns. */
static inline int kvpi_quiet_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif

#endif

/* process: see process.h. */
#define _POSIX_C_SOURCE 200809L /* pthread_atfork */

#include "base/platform/process.h"
#include "base/platform/which.h"

uint64_t kvpi_process_number;

#if KVPI_WINDOWS /* no process is a copy of another */

int kvpi_process_watch(void)
{
    return 1;
}

#else

#include <pthread.h>

static void raise_in_child(void)
{
    kvpi_process_number++;
}

int kvpi_process_watch(void)
{
    /* Two threads that come at once both register: the child's number is raised twice, no harm. */
    static uint32_t watched;
    if (__atomic_load_n(&watched, __ATOMIC_ACQUIRE) == 0) {
        if (pthread_atfork(NULL, NULL, raise_in_child) != 0) {
            return 0;
        }
        __atomic_store_n(&watched, 1, __ATOMIC_RELEASE);
    }
    return 1;
}

#endif

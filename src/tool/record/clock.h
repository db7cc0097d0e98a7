/* clock: the one that never goes back, whatever the system's does. A recording has the time since
 * 1970 of its beginning, and adds what has passed on this one. */
#ifndef KVPI_RECORD_CLOCK_H
#define KVPI_RECORD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t kvpi_monotonic_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#endif

/* What the system and the processor tell: a counter that is cheaper to read than the clock, and
 * what a thread was kept from running by. */
#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "steady.h"

#ifndef RUSAGE_THREAD
#define RUSAGE_THREAD RUSAGE_SELF /* the only one that runs */
#endif

struct rusage thread_usage(void)
{
    struct rusage usage;
    REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage;
}

#ifdef __x86_64__

#include <x86intrin.h>

uint64_t ticks(void)
{
    return __rdtsc();
}

#else

uint64_t ticks(void)
{
    return now_ns();
}

#endif

double ticks_by_ns(void)
{
    const uint64_t from_ns = now_ns();
    const uint64_t from = ticks();
    while (now_ns() - from_ns < 50000000)
        ;
    return (double)(ticks() - from) / (double)(now_ns() - from_ns);
}

/* A counter that is cheaper to read than the clock. */
#include "steady.h"

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

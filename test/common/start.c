/* start: see start.h. */
#include "start.h"

#include "core/cache/state.h"
#include "core/calls/start.h"
#include "sched/state.h"

static uint64_t number; /* the program's */

uint64_t start_number(void)
{
    return number;
}

#if KVP_CHECK >= 1

int start_at(uint64_t start)
{
    number = start;
    return 1;
}

void start_cache(kvp_cache *cache)
{
    if (number != 0) {
        kvpi_start_at(cache, number);
    }
}

void start_sched(kvp_sched *sched)
{
    if (number != 0) {
        kvpi_sched_start_at(sched, number);
    }
}

#else

int start_at(uint64_t start)
{
    return start == 0;
}

void start_cache(kvp_cache *cache)
{
    (void)cache;
}

void start_sched(kvp_sched *sched)
{
    (void)sched;
}

#endif

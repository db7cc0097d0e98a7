/* start: see start.h. */
#include "start.h"

#include "core/cache/state.h"
#include "core/calls/start.h"

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
    if (number != 0)
        kvpi_start_at(cache, number);
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

#endif

/* start_sched: see start.h. */
#include "start_sched.h"

#include "sched/sched_state.h"

#if KVP_CHECK >= 1

void start_sched(kvp_sched *sched)
{
    if (start_number() != 0)
        kvpi_sched_start_at(sched, start_number());
}

#else

void start_sched(kvp_sched *sched)
{
    (void)sched;
}

#endif

/* sched_start: a scheduler that has run for long, for tests. Not compiled into a library without
 * checks. */
#include "sched/state.h"

#if KVP_CHECK >= 1

#include <assert.h>

/* So far before the last generation no run of a test comes to it: places are not retired. */
#define LEFT (1u << 20)

void kvpi_sched_start_at(kvp_sched *sched, uint64_t start)
{
    const uint32_t most = KVPI_LAST_GENERATION - LEFT;
    assert(sched->arrivals == 0); /* nothing knows a number yet */
    sched->arrivals = start;
    sched->report.number = start;
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        sched->requests[i].generation = start < most ? (uint32_t)start : most;
    }
}

#endif

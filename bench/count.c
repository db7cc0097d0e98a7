/* Samples under callgrind: instructions instead of times (scripts/instructions.py).
 *
 * Valgrind runs the set-up without counting and counts in one sample, which repeats exactly. */
#include "bench.h"

#ifdef KVP_BENCH_CALLGRIND

#include <valgrind/callgrind.h>

void count_sample(const measurement *what, void *state)
{
    REQUIRE(RUNNING_ON_VALGRIND);
    what->ours(state); /* as in a measurement: pages are touched and tables warm */
    CALLGRIND_START_INSTRUMENTATION;
    what->ours(state);
    CALLGRIND_STOP_INSTRUMENTATION;
}

#else

void count_sample(const measurement *what, void *state)
{
    (void)what;
    (void)state;
    REQUIRE(!"built with valgrind's headers (Debian: apt-get install valgrind)");
}

#endif

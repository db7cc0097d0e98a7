/* Many calls, each timed: which takes longest, and is that the library or the system? */
#ifndef KVP_BENCH_STEADY_H
#define KVP_BENCH_STEADY_H

#include <sys/resource.h>

#include "bench.h"

/* Makes options->steady calls, three times the same ones, and prints how long they took. Gives the
 * exit status. */
int steady(const bench_options *options);

/* ticks.c: the processor's counter where there is one, else the clock. Reading it costs 10 ns. */
uint64_t ticks(void);

/* ticks.c: switches and page faults of this thread. */
struct rusage thread_usage(void);

/* Measured against the clock. */
double ticks_by_ns(void);

#endif

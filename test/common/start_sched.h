/* start_sched: start.h for a scheduler. A build without the scheduler has the rest. */
#ifndef TEST_START_SCHED_H
#define TEST_START_SCHED_H

#include <kvpager/sched.h>

#include "start.h"

/* Just after creation. */
void start_sched(kvp_sched *sched);

#endif

/* Replays a trace under load: requests arrive at their times, the scheduler makes steps, a model
 * says how long each takes. Time is simulated; no clock takes part in any decision. */
#ifndef KVPI_SIMULATE_H
#define KVPI_SIMULATE_H

#include <kvpager/sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/report/load_report.h"
#include "tool/replay/closed/closed.h"
#include "tool/replay/replay_cache.h"
#include "tool/models/step_model.h"
#include "tool/requests/requests.h"

/* Most requests that the scheduler has at a time; more that have arrived wait before its door, in
 * order. Far more than can run, so that the choice of whom to admit is not affected. */
#define KVPI_SIMULATE_MAX_REQUESTS 131072u

typedef struct kvpi_simulate_options {
    kvpi_replay_options replay;
    const kvpi_step_model *model;
    kvpi_closed_options closed;
    uint64_t speedup_milli; /* arrivals are so many thousandths as fast as in the trace */
    uint64_t watermark_milli;
    uint32_t max_running;
    uint32_t step_tokens;
    uint32_t chunk_tokens;
    uint32_t max_passed_over;
    uint32_t max_tries;
    uint32_t preempt; /* KVP_PREEMPT_... */
    bool swap_ahead;
    bool wait_for_prefix;
    bool measured; /* read the clock around the scheduler's calls */
} kvpi_simulate_options;

/* Replay.
 *
 * Requests that could never be served are counted, the others must all finish.
 *
 * Gives:   report   all but what it says is set by the caller
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed. When requests did not finish, the report
 *          is complete all the same, and says how many
 * Cost:    O(tokens + steps); memory for the tokens of the requests that are there, and 64 bytes
 *          for each request
 */
int kvpi_simulate_run(const kvpi_requests *requests, const kvpi_simulate_options *options,
                      kvpi_load_report *report);

#endif

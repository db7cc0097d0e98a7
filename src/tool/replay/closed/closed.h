/* A closed loop: requests of a session arrive when those that they wait for have ended in the
 * simulation, and as long after it as in the trace. docs/COMMAND.md has the rules. */
#ifndef KVPI_CLOSED_H
#define KVPI_CLOSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool/report/load_report.h"
#include "tool/requests/requests.h"

typedef struct kvpi_closed_options {
    bool on;
    bool goes_on;         /* after a request that is rejected, a session goes on */
    uint64_t sessions;    /* that run at once; 0: they start by rate, or as in the trace */
    uint64_t rate_milli;  /* sessions that start in 1000 seconds; 0: as above */
    uint64_t think_milli; /* gaps take so many thousandths */
    uint64_t cap_milli;   /* and at most so many thousandths of a second; 0: no limit */
    uint64_t seed;        /* of the rate */
} kvpi_closed_options;

typedef struct kvpi_closed kvpi_closed;

/* Lay out who waits for whom of the first n requests, and start the first sessions.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Owns:    the caller frees it
 * Cost:    O(n); 40 bytes a request
 */
int kvpi_closed_create(const kvpi_requests *requests, size_t n, const kvpi_closed_options *options,
                       kvpi_closed **out);
void kvpi_closed_free(kvpi_closed *closed);

/* Tell the next arrival of which the time is known: earliest first, ties in the trace's order.
 *
 * Gives:   out_ns   its time
 * Returns: false: no request comes before one ends
 */
bool kvpi_closed_next(kvpi_closed *closed, size_t *out_place, uint64_t *out_ns);

/* The next one is there. */
void kvpi_closed_arrived(kvpi_closed *closed);

/* A request that had arrived has ended, or was rejected. */
void kvpi_closed_ended(kvpi_closed *closed, size_t place, uint64_t now_ns, bool rejected);

/* Did the request's session end before it came? */
bool kvpi_closed_is_dropped(const kvpi_closed *closed, size_t place);

/* Say how the sessions went. */
void kvpi_closed_tell(const kvpi_closed *closed, kvpi_load_sessions *out);

#endif

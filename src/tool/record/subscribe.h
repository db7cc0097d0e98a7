/* subscribe: what an engine publishes, to lookups.h. libzmq has the wire. */
#ifndef KVPI_RECORD_SUBSCRIBE_H
#define KVPI_RECORD_SUBSCRIBE_H

#include "tool/record/counters.h"

typedef struct kvpi_subscribe_options {
    const char *command;             /* for messages */
    const char *path;                /* of the recording, likewise */
    const char *events, *replay;     /* tcp://HOST:PORT; replay may be NULL */
    const kvpi_counters_at *metrics; /* NULL: the engine reports look-ups */
    uint64_t period_ms;              /* from one question for counters to the next */
    kvpi_recorder_options recorder;  /* about.engine_blocks is asked for */
} kvpi_subscribe_options;

/* Record until SIGINT or SIGTERM. An engine that is away is waited for; what it sends is not
 * believed where its numbers or its bytes are wrong, and that is said.
 *
 * Returns: an exit status
 */
int kvpi_subscribe_run(const kvpi_subscribe_options *options);

#endif

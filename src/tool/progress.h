/* A line on the terminal that says how far things are. */
#ifndef KVPI_PROGRESS_H
#define KVPI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kvpi_progress {
    const char *what; /* "replaying", static */
    uint64_t total;   /* 0: not known, then only what is done is shown */
    uint64_t next_ns;
    uint64_t interval_ns;
    bool enabled;
    bool shown;
} kvpi_progress;

/* Begin. Shows nothing at all when stderr is not a terminal, and nothing in the first second. */
void kvpi_progress_start(kvpi_progress *progress, const char *what, uint64_t total);

/* Say how much is done. Call it as often as is convenient: it costs one clock reading, and on
 * anything but a terminal not even that. */
void kvpi_progress_update(kvpi_progress *progress, uint64_t done);

/* Wipe the line. */
void kvpi_progress_end(kvpi_progress *progress);

/* Read the monotonic clock, in nanoseconds. */
uint64_t kvpi_progress_now_ns(void);

#endif

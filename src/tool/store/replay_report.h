/* What a replay has to say of its store. */
#ifndef KVPI_REPLAY_REPORT_H
#define KVPI_REPLAY_REPORT_H

#include <kvpager/spill.h>
#include <kvpager/store.h>
#include <stdbool.h>
#include <stdio.h>

#include "tool/report/figures.h"

/* A URL as messages and reports show it: kvp_store_url_show. */
#define KVPI_STORE_URL_BYTES 4200u

/* One store of several, or the only one. */
typedef struct kvpi_store_part {
    const char *url;
    char described[304];
    char trouble[304]; /* the last thing that it said of itself when an operation had failed */
    uint64_t n_failed; /* operations that had failed then */
    kvp_store_stats stats;
} kvpi_store_part;

typedef struct kvpi_store_report {
    const char *url; /* NULL: there is no store; of several, the nearest */
    kvpi_store_part parts[KVP_STORE_STACK_MAX]; /* [n_parts] nearest first */
    uint32_t n_parts;
    bool is_model; /* in simulated time: latencies, too */
    bool through;  /* KVP_SPILL_THROUGH */
    bool has_states;
    uint32_t record_blocks;
    uint64_t unasked;     /* requests that the spill refused */
    uint64_t unfinished;  /* puts that had not ended when the replay did, and were given up */
    uint64_t most_queued; /* operations of the store that had not ended */
    uint64_t checked_blocks;
    uint64_t unchecked_blocks; /* copied from the host, of content that is not known */
    uint64_t wrong_blocks;
    uint64_t checked_states; /* recurrent ones: as blocks */
    uint64_t unchecked_states;
    uint64_t wrong_states;
    kvp_store_stats store; /* of all together */
    kvp_spill_stats spill;
} kvpi_store_report;

/* Fail the replay if KV was wrong.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_store_report_verdict(const kvpi_store_report *report);

/* Add the list "store"; null without a store. */
void kvpi_store_report_add(kvpi_figures *to, const kvpi_store_report *report);

/* Print its rows; nothing without a store. Takes: figures of the whole report */
void kvpi_store_report_print(const kvpi_store_report *report, const json_t *figures, FILE *file);

#endif

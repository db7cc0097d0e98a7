/* lookups: requests, as far as an engine's KV events tell of them.
 *
 * An event says which blocks were computed, and which block stands before them. A request that
 * hits all of its prompt says nothing. So:
 *
 *   - Blocks behind one that ends no open request are those of a new one: all before them was hit.
 *   - Blocks behind the end of an open request go on with it. They are its output, for all that is
 *     known: a prompt may be computed in several steps, too.
 *   - A request is closed when nothing came for QUIET_SECONDS.
 *   - Several blocks at once are a prompt's; a single one may be the end of a prompt and output.
 *   - What the engine's counters have besides are tokens of requests that were not seen.
 *
 * Where an engine reports look-ups (source 3 of recording.h), blocks from the first on that are
 * known are such a report: a new request that hit them. One that waits for room looks up in each
 * step: the same report in the next batch is no new request.
 */
#ifndef KVPI_RECORD_LOOKUPS_H
#define KVPI_RECORD_LOOKUPS_H

#include "tool/record/batch.h"
#include "tool/recording/recording.h"

#define KVPI_LOOKUPS_QUIET_SECONDS 60

typedef struct kvpi_lookups kvpi_lookups;

/* What an engine counts since its start. */
typedef struct kvpi_counters {
    uint64_t queries, hits; /* tokens that were looked up, and found */
} kvpi_counters;

/* Returns: NULL: no memory. Owns: the caller frees it, before the recorder */
kvpi_lookups *kvpi_lookups_new(kvpi_recorder *recorder, const kvpi_recording_about *about);
void kvpi_lookups_free(kvpi_lookups *lookups);

/* Take an event.
 *
 * Takes:   now_us   since 1970, not before that of the call before
 *          batch    number of its batch: only whether one follows the other
 *          is_old   of before the recording: it is learnt, and is no request
 * Returns: 0; -1: error->text, nothing more can be recorded
 */
int kvpi_lookups_event(kvpi_lookups *lookups, const kvpi_event *event, int64_t now_us,
                       uint64_t batch, bool is_old, kvpi_recording_error *error);

/* The engine has restarted: what it had is gone. */
void kvpi_lookups_restarted(kvpi_lookups *lookups);

/* Its counters fell, and neither an event nor a restart has come since. */
bool kvpi_lookups_has_fallen(const kvpi_lookups *lookups);

/* Take the engine's counters; the first ones are where the recording begins. Events of a look-up
 * come behind it: those of the call before are what must be accounted for, with is_last all, which
 * comes behind kvpi_lookups_end. Counters that fell are a restart.
 *
 * Returns: as above
 */
int kvpi_lookups_count(kvpi_lookups *lookups, const kvpi_counters *counters, int64_t now_us,
                       bool is_last, kvpi_recording_error *error);

/* Record all that is open. Returns: as above */
int kvpi_lookups_end(kvpi_lookups *lookups, kvpi_recording_error *error);

#endif

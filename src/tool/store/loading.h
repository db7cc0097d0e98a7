/* The store of a replay under load: requests wait in the scheduler's queue for loading while their
 * prefix comes. */
#ifndef KVPI_STORE_LOADING_H
#define KVPI_STORE_LOADING_H

#include <kvpager/sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/percentiles.h"
#include "tool/replay/simulate_jobs.h"
#include "tool/store/attach.h"

typedef struct kvpi_loading {
    kvpi_attach *attach; /* NULL: there is none, and no call does anything */
    kvp_cache *cache;
    kvp_sched *sched;
    kvpi_jobs *jobs;
    bool through;
    bool is_model;
    bool has_states;
    kvp_seq *chunks; /* [n_chunks] of prompts, computed by the step that is out */
    uint32_t n_chunks;
    uint64_t look_ns;                   /* a request is asked for so long after it is held */
    uint32_t looking[KVPI_ATTACH_ASKS]; /* [n_looking] held requests that are not asked for yet */
    uint32_t n_looking;
    uint32_t n_held;       /* requests that were asked for and not answered */
    uint64_t from_ns;      /* simulated time, when n_held was 0 for the last time, */
    uint64_t real_ns;      /* and this machine's */
    kvpi_histogram *waits; /* of requests, for their answer */
} kvpi_loading;

/* Attach a store, if there is one.
 *
 * Takes:   store    cache, sched and jobs
 *          report   filled until the store is closed
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed. Close it, whatever this gives
 */
int kvpi_loading_open(kvpi_loading *store, const kvpi_simulate_options *options, kvp_ns ns,
                      kvpi_store_report *report);

/* Before a step: release requests whose load has ended, ask for others, and hold them.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_loading_turn(kvpi_loading *store, uint64_t now_ns);

/* The step has admitted request i.
 *
 * Returns: as kvpi_loading_turn
 */
int kvpi_loading_admitted(kvpi_loading *store, size_t i, kvp_request request);

/* Tell what the store has of the prompt of request i, which is admitted; nothing without a store.
 *
 * Returns: as kvpi_loading_turn
 */
int kvpi_loading_see(const kvpi_loading *store, size_t i, kvpi_watch_store *out);

/* The step's plan is carried out, and what the spill copies behind it.
 *
 * Gives:   n_states   grows by the states that the spill copied to the host
 * Returns: as kvpi_loading_turn
 */
int kvpi_loading_copies(kvpi_loading *store, const kvp_copy *copies, uint32_t n,
                        uint64_t *n_states);

/* The step is computed, and is not finished yet: what a finish closes must be written before.
 *
 * Returns: as kvpi_loading_turn
 */
int kvpi_loading_computed(kvpi_loading *store, const kvp_step *step);

/* The step is finished: states that the scheduler kept are written.
 *
 * Returns: as kvpi_loading_turn
 */
int kvpi_loading_finished(kvpi_loading *store);

/* Nothing can run: wait for the store.
 *
 * Takes:   until_ns   at most until then; KVPI_JOB_NEVER: as long as requests are held
 * Gives:   the time; `now_ns` if something happens at once; until_ns if nothing is waited for
 */
uint64_t kvpi_loading_wait(kvpi_loading *store, uint64_t now_ns, uint64_t until_ns);

/* Close it: the report is complete.
 *
 * Gives:   waits   of requests that were held
 */
void kvpi_loading_close(kvpi_loading *store, kvpi_percentiles *waits);

#endif

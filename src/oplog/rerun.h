/* rerun: makes some of a log's calls on a new cache, and records them as another log. */
#ifndef KVPI_OPLOG_RERUN_H
#define KVPI_OPLOG_RERUN_H

#include "oplog/decode.h"
#include "oplog/replay.h"

struct kvpi_oplog_made; /* a handle, step or load that the log's calls make */

struct kvpi_oplog_list {
    struct kvpi_oplog_made *made; /* [n] ascending by bits */
    size_t n;
    size_t capacity;
};

struct kvpi_oplog_rerun {
    kvp_oplog *log;
    uint64_t *offsets; /* [n_records] */
    uint32_t n_records;
    struct kvpi_oplog_list handles, steps, loads;
    struct kvpi_oplog_buffer batch_handles, batch_counts, batch_tokens, batch_parents, batch_leaves;
    uint32_t n_calls;        /* made by the last run */
    kvp_violation violation; /* after KVP_E_CORRUPT */
};

/* Read a whole log.
 * Returns: KVP_OK; KVP_E_FORMAT; KVP_E_NO_MEMORY; KVP_E_TOO_LONG: 2^32 records. After a failure
 * n_records is the number of those before it, and nothing has to be closed */
kvp_status kvpi_oplog_rerun_open(struct kvpi_oplog_rerun *rerun, kvp_oplog *log);
void kvpi_oplog_rerun_close(struct kvpi_oplog_rerun *rerun);

/* Make the calls of the records `items` on a new cache, and write the new log to the sink, each
 * record as soon as its call has returned.
 *
 * Handles and steps: calls that use what a left-out call (or one that fails now) would have made
 * are left out too, and sequences so lost are taken out of batches. Handles and steps that no call
 * of the log has made stay the numbers that they are.
 *
 * Takes:   items        [n_items] indices of records, ascending
 *          check_level  0..3: kvp_cache_check after every call; ends the run when it finds
 *          something
 * Gives:   n_used       how many items it took until the end of the run
 * Returns: KVP_OK; KVP_E_CORRUPT with rerun->violation; KVP_E_IO when the sink refused bytes;
 *          KVP_E_NO_MEMORY; what kvp_cache_create says
 */
kvp_status kvpi_oplog_rerun_run(struct kvpi_oplog_rerun *rerun, const uint32_t *items,
                                size_t n_items, int check_level, const kvp_sink *sink,
                                size_t *n_used);

#endif

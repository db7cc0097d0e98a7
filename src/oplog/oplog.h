/* oplog: a log at a place in it, for those that run it. */
#ifndef KVPI_OPLOG_H
#define KVPI_OPLOG_H

#include "oplog/decode.h"

/* The results of the record that kvp_oplog_next gave last; good until the next read. */
const struct kvpi_oplog_results *kvpi_oplog_results(const kvp_oplog *log);

/* Go on with the record at `offset`, which must be where kvp_oplog_offset once said that a record
 * begins, as the record number `index`. */
void kvpi_oplog_seek(kvp_oplog *log, uint64_t offset, uint64_t index);

#endif

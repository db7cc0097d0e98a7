/* Device, host and a store together: what each of them hits, simulated at given sizes. */
#ifndef KVPI_MRC_TIERS_H
#define KVPI_MRC_TIERS_H

#include "tool/mrc/refs.h"

/* What is written to the store: KVP_SPILL_THROUGH, KVP_SPILL_SECOND. */
typedef enum kvpi_mrc_writes {
    KVPI_MRC_THROUGH, /* every full record of a request, when it ends */
    KVPI_MRC_SECOND   /* those of them that were hit */
} kvpi_mrc_writes;

/* Sizes in blocks. */
typedef struct kvpi_mrc_tiers_size {
    uint64_t device;
    uint64_t host;  /* 0: none, and no store */
    uint64_t store; /* 0: none */
    uint32_t record_blocks;
    kvpi_mrc_writes writes;
} kvpi_mrc_tiers_size;

typedef struct kvpi_mrc_tiers_hits {
    uint64_t tokens;         /* of all tiers */
    uint64_t host_tokens;    /* of whole blocks that the host had, and the device did not */
    uint64_t store_tokens;   /* of whole blocks that only the store had */
    uint64_t written_blocks; /* to the store */
} kvpi_mrc_tiers_hits;

/* One simulation. */
typedef struct kvpi_mrc_tiers_row {
    kvpi_mrc_tiers_size size;
    kvpi_mrc_tiers_hits hits;
    uint64_t one_block_tokens; /* of all tiers, were a record one block */
} kvpi_mrc_tiers_row;

typedef struct kvpi_mrc_tiers kvpi_mrc_tiers;

/* Make room for simulations of a trace's references, of which none was left out as a sample.
 *
 * Gives:   out      on success only
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Owns:    the caller frees it, before the references
 * Cost:    28 bytes a content
 */
int kvpi_mrc_tiers_make(const kvpi_mrc_refs *refs, const char *command, kvpi_mrc_tiers **out);
void kvpi_mrc_tiers_free(kvpi_mrc_tiers *tiers);

/* Serve all requests, one after the other, with tiers of these sizes.
 *
 * Takes:   size     a device of at least refs->min_blocks; a store of a record at least, or 0
 * Cost:    O(references)
 */
kvpi_mrc_tiers_hits kvpi_mrc_tiers_run(kvpi_mrc_tiers *tiers, const kvpi_mrc_tiers_size *size);

#endif

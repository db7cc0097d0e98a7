/* Other ways to choose what is evicted, simulated at one size each, to compare the cache's with. */
#ifndef KVPI_MRC_POLICIES_H
#define KVPI_MRC_POLICIES_H

#include "tool/mrc/refs.h"

typedef enum kvpi_mrc_policy {
    KVPI_MRC_FIFO,    /* evict what became cached first; hits do not count */
    KVPI_MRC_OPTIMUM, /* evict what is looked up last in the future (Belady) */
    KVPI_MRC_ARC,     /* of adaptive.h */
    KVPI_MRC_S3FIFO,  /* likewise */
    KVPI_MRC_LEARNED, /* of mrc_learned.h; not simulated here */
    KVPI_MRC_POLICIES
} kvpi_mrc_policy;

typedef struct kvpi_mrc_policies kvpi_mrc_policies;

/* Prepare for simulations of a trace's references: when each is looked up next, and room.
 *
 * Takes:   adaptive  KVPI_MRC_ARC and KVPI_MRC_S3FIFO are to be run, too
 * Gives:   out       on success only
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Owns:    the caller frees it, before the references
 * Cost:    O(references), 4 bytes each, and 16 bytes a content, 61 with the adaptive ones
 */
int kvpi_mrc_policies_make(const kvpi_mrc_refs *refs, const char *command, bool adaptive,
                           kvpi_mrc_policies **out);
void kvpi_mrc_policies_free(kvpi_mrc_policies *policies);

/* Serve all requests with a cache of so many usable blocks, at least refs->min_blocks.
 *
 * Returns: tokens that are hit; with sampling, an estimate
 * Cost:    O(references), of adaptive ones O(references x log contents)
 */
double kvpi_mrc_policies_run(kvpi_mrc_policies *policies, kvpi_mrc_policy policy, uint64_t blocks);

#endif

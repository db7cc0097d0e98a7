/* The cache's learned policy, simulated at one size or at several. */
#ifndef KVPI_MRC_LEARNED_H
#define KVPI_MRC_LEARNED_H

#include "tool/mrc/refs.h"

typedef struct kvpi_mrc_learned_hits {
    uint64_t tokens;
    uint64_t blocks;
} kvpi_mrc_learned_hits;

enum { KVPI_MRC_LEARNED_THREADS = 4 };

/* Serve all requests with caches of n sizes, up to KVPI_MRC_LEARNED_THREADS at a time, each with
 * its memory.
 *
 * Takes:   refs     of which none was left out as a sample
 *          blocks   [n] usable ones, at least refs->min_blocks
 * Gives:   out      [n]; on success only all of it
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Cost:    O(references) a size, and for each request some microseconds; memory 12 bytes a content,
 *          33 bytes a block, and 24 bytes for every 512 tokens of 17 caches
 */
int kvpi_mrc_learned_run_sizes(const kvpi_mrc_refs *refs, const uint64_t *blocks, size_t n,
                               kvpi_mrc_learned_hits *out);

#endif

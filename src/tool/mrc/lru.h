/* The hit ratio of the cache at every size, from one pass over a trace's block references. */
#ifndef KVPI_MRC_LRU_H
#define KVPI_MRC_LRU_H

#include "tool/mrc/refs.h"

typedef struct kvpi_mrc_hits {
    double tokens; /* whole numbers when every block was taken */
    double blocks;
    double error_tokens; /* one standard error; 0 when every block was taken */
} kvpi_mrc_hits;

typedef struct kvpi_mrc_curve {
    size_t n;         /* distances 0..n-1; larger ones do not occur */
    uint64_t *tokens; /* [n] that are hit at distance i or less */
    uint64_t *blocks; /* [n] the same in blocks */
    uint64_t *groups; /* [KVPI_MRC_GROUPS][n] tokens of each group; NULL without sampling */
    double *ns;       /* [n] of prefill that hits spare; NULL: not asked for */
    double rate;
    double expected_tokens; /* looked up, that the sample should have; and that it has, by group */
    uint64_t sampled_tokens[KVPI_MRC_GROUPS];
    uint64_t enough_blocks; /* the smallest size at which nothing more is hit at any larger one */
    uint64_t min_blocks;    /* the figures hold from this size on */
} kvpi_mrc_curve;

/* Prefill of a block of a prompt, in nanoseconds, and of it without its last token. */
typedef struct kvpi_mrc_spared {
    double ns, last_ns;
} kvpi_mrc_spared;

/* Make the curve.
 *
 * Takes:   spared   [refs->min_blocks] by place in a prompt; NULL: none, nor in samples
 * Gives:   out      on success only
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 * Owns:    the caller frees it
 * Cost:    O(references x log references) at worst; a prompt that was last used as a whole costs
 *          little more than reading it
 */
int kvpi_mrc_lru_make(const kvpi_mrc_refs *refs, const kvpi_mrc_spared *spared, const char *command,
                      kvpi_mrc_curve *out);
void kvpi_mrc_lru_free(kvpi_mrc_curve *curve);

/* Read the curve at a size, in usable blocks, at least min_blocks. */
kvpi_mrc_hits kvpi_mrc_lru_at(const kvpi_mrc_curve *curve, uint64_t blocks);

/* Tell the arithmetic of prefill that hits spare at a size, in nanoseconds; 0: not known. */
double kvpi_mrc_lru_ns_at(const kvpi_mrc_curve *curve, uint64_t blocks);

/* Give the smallest size, at least min_blocks, at which so many tokens are hit, or enough_blocks.
 * Cost: O(log n) */
uint64_t kvpi_mrc_lru_size_for(const kvpi_mrc_curve *curve, double tokens);

/* How large a cache hits what, a request at a time. */
typedef struct kvpi_mrc_sizes kvpi_mrc_sizes;

/* Begin, for requests in replay order.
 *
 * Takes:   options   as of kvpi_mrc_refs_make, with every block in the sample and no command
 * Returns: NULL for want of memory
 */
kvpi_mrc_sizes *kvpi_mrc_sizes_open(const kvpi_requests *requests, const kvpi_mrc_options *options);
/* NULL is ignored. */
void kvpi_mrc_sizes_close(kvpi_mrc_sizes *sizes);

/* Tell for each full block of a prompt the smallest cache, in usable blocks, that hits it, among
 * those that can serve every request. 0: none does, no request before had the block.
 *
 * Takes:   number   of the request, larger than at the call before
 * Gives:   [full blocks of the prompt], until the next call
 * Cost:    as kvpi_mrc_lru_make, for the requests up to this one
 */
const uint32_t *kvpi_mrc_sizes_of(kvpi_mrc_sizes *sizes, uint64_t number);

#endif

/* filling: sequences of a batch whose next token fills a unit of 16.
 *
 * What the fill touches is found by three loads, each of which needs the one before: the last node,
 * its hash, and with it the line of the index. For several sequences at once they take as long as
 * for one. For one alone it is no use.
 */
#ifndef KVPI_SEQ_FILLING_H
#define KVPI_SEQ_FILLING_H

#include "core/cache/state.h"

#define KVPI_FILLING_MAX 16u

struct kvpi_filling {
    uint32_t n; /* 0 at first */
    int32_t tokens[KVPI_FILLING_MAX];
    const struct kvpi_seq *seqs[KVPI_FILLING_MAX];
};

/* The token fills a public unit of the sequence. After so many, all that wait are asked for. */
void kvpi_filling_add(const kvp_cache *cache, struct kvpi_filling *filling,
                      const struct kvpi_seq *seq, int32_t token);

/* Ask for what the fills of those that wait touch; none waits any more. */
void kvpi_filling_prefetch(const kvp_cache *cache, struct kvpi_filling *filling);

#endif

/* filling: sequences of a batch whose next token fills a unit of 16.
 *
 * What the fill touches is found by three loads, each of which needs the one before: the last node,
 * its hash, and with it the line of the index. The sequences go by as on a belt. Each load is asked
 * for a few sequences after the one that it needs, so that none waits:
 *
 *   added   ...  a sequence that fills: its row of nodes
 *   2 later      the node, and the node whose jump will name the new one
 *   4 later      the hash, and the line of the index
 */
#ifndef KVPI_SEQ_FILLING_H
#define KVPI_SEQ_FILLING_H

#include "core/cache/state.h"

#define KVPI_FILLING_MAX 8u

struct kvpi_filling {
    uint32_t n;                       /* added; 0 at first */
    int32_t tokens[KVPI_FILLING_MAX]; /* both are rings */
    const struct kvpi_seq *seqs[KVPI_FILLING_MAX];
};

/* The token fills a public unit of the sequence. */
void kvpi_filling_add(const kvp_cache *cache, struct kvpi_filling *filling,
                      const struct kvpi_seq *seq, int32_t token);

/* No more are added: ask for what is left. */
void kvpi_filling_end(const kvp_cache *cache, const struct kvpi_filling *filling);

#endif

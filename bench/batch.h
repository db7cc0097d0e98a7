/* Sequences that decode: one token more for each, by the calls for many, in a full cache. */
#ifndef KVP_BENCH_BATCH_H
#define KVP_BENCH_BATCH_H

#include "world.h"

enum { BATCH_STEPS = 16 }; /* every sequence crosses one block boundary */

typedef struct batch {
    world *w;
    uint32_t n_seqs;
    uint32_t most_tokens; /* of a sequence */
    uint32_t grown;       /* tokens since the start, of every sequence */
    uint64_t random;
    kvp_seq *seqs;   /* [n_seqs] */
    uint32_t *ends;  /* [n_seqs] */
    int32_t *tokens; /* [BATCH_STEPS][n_seqs] */
} batch;

/* n_batches: that many share half of the pool. */
batch *batch_create(world *w, uint32_t n_seqs, uint32_t n_batches);
void batch_free(batch *b); /* may be NULL; leaves the world */

/* Before n_steps, a multiple of BATCH_STEPS: sequences that would be too long start anew. */
void batch_prepare(batch *b, uint32_t n_steps);
void batch_step(batch *b, uint32_t step);

#endif

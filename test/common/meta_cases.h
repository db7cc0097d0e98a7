/* meta_cases: random caches and batches for tests of metadata, and what a step of a sequence is,
 * told slowly by what the public headers let one read of it. */
#ifndef TEST_META_CASES_H
#define TEST_META_CASES_H

#include "world.h"

#include <kvpager/meta.h>

enum { META_SEQS = 16, META_TOKENS = 96, META_NODES = 16 };

/* A step of one sequence. A slot here is counted from the sequence's beginning: a token's is its
 * position, node j's is tokens + j. */
typedef struct meta_told {
    kvp_status status; /* what a call on this sequence alone gives */
    uint32_t begin, n, length, q, computed, tokens, S;
    uint32_t K, R;
    const int32_t *row;
    int32_t parents[META_NODES];
    uint32_t depth[META_NODES];
} meta_told;

void meta_tell(const world *w, const kvp_meta_batch *batch, uint32_t b, meta_told *out);

/* The first fault of the batch, as meta.h orders them. */
kvp_status meta_expected_status(const world *w, const kvp_meta_batch *batch);

/* The position of a slot for the model. */
uint32_t meta_position(const meta_told *t, uint32_t slot);

/* Does windows.h keep entry i, with q the step's first query? */
int meta_keeps_entry(const meta_told *t, uint32_t i);

/* Does meta.h keep the key of this slot? */
int meta_keeps_key(const meta_told *t, uint32_t slot);

/* Is `above` the node itself, or an ancestor of it? */
int meta_is_ancestor(const meta_told *t, int32_t above, int32_t node);

/* Does the query of slot x see the key of slot s? */
int meta_sees(const meta_told *t, uint32_t x, uint32_t s);

/* Everything random comes from here. */
void meta_seed(uint64_t seed);
uint32_t meta_below(uint32_t n);

/* 1 to 3 groups, with windows or without. */
world meta_random_world(void);

/* Open up to META_SEQS sequences, and let things happen to them. Gives how many there are. */
uint32_t meta_random_seqs(world *w, kvp_seq *seqs);

/* Some of the sequences, in any order, and what to compute of them: often what is the default, now
 * and then what is refused. Gives how many. */
uint32_t meta_random_batch(const world *w, const kvp_seq *seqs, uint32_t n, kvp_seq *out,
                           uint32_t *begin, uint32_t *n_tokens);

#endif

/* What the generator's files share with each other. */
#ifndef KVP_TEST_MODEL_GENERATE_PARTS_H
#define KVP_TEST_MODEL_GENERATE_PARTS_H

#include "generate.h"

static inline uint32_t below(generator *g, uint64_t n)
{
    return n ? (uint32_t)(generate_random(&g->state) % n) : 0;
}

static inline uint32_t up_to(generator *g, uint64_t most)
{
    return below(g, most + 1);
}

static inline bool chance(generator *g, uint32_t percent)
{
    return below(g, 100) < percent;
}

static inline bool rarely(generator *g)
{
    return below(g, 60) == 0;
}

/* generate.c: handles, members of a batch. */
uint64_t generate_bad_handle(generator *g);
const oracle_seq *generate_open_seq(generator *g);
uint32_t generate_members(generator *g, kvp_call *call, const oracle_seq **members);
uint32_t generate_commit(generator *g, const oracle_seq *seq);

/* generate_tiers.c: swaps, steps, events. */
void generate_tier_weights(generator *g);
uint32_t generate_instead(generator *g, uint32_t op);
void generate_swap(generator *g, kvp_call *call);
void generate_step(generator *g, kvp_call *call);
void generate_events(generator *g, kvp_call *call);

#endif

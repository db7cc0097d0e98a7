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

/* generate.c: handles, values, members of a batch. */
uint64_t generate_bad_handle(generator *g);
const oracle_seq *generate_open_seq(generator *g);
uint32_t generate_members(generator *g, kvp_call *call, const oracle_seq **members);
uint32_t generate_commit(generator *g, const oracle_seq *seq);
uint32_t generate_reserve(generator *g);
int32_t *generate_token_space(generator *g, uint32_t n);
int32_t generate_token_at(generator *g, const oracle_seq *seq, uint32_t position);
const oracle_seq *generate_seq(generator *g, kvp_call *call);
uint32_t generate_group(generator *g);

/* generate_tiers.c: swaps, steps, events. */
void generate_tier_weights(generator *g);
uint32_t generate_instead(generator *g, uint32_t op);
void generate_swap(generator *g, kvp_call *call);
void generate_step(generator *g, kvp_call *call);
void generate_events(generator *g, kvp_call *call);

/* generate_lend.c: what stores need. */
void generate_lend_weights(generator *g);
void generate_lend(generator *g, kvp_call *call);

/* generate_groups.c: windows, trees. */
void generate_group_weights(generator *g);
uint32_t generate_instead_of_tree(generator *g, uint32_t op);
const oracle_seq *generate_seq_with_tree(generator *g);
kvp_window generate_window(uint64_t *state, const kvp_config *config);
bool generate_following(generator *g, kvp_call *call);
void generate_follow(generator *g, const kvp_call *call, const kvp_outcome *outcome);
void generate_window_call(generator *g, kvp_call *call);
void generate_tree_call(generator *g, kvp_call *call);

/* generate_states.c: recurrent state. */
void generate_state_weights(generator *g);
bool generate_rings(generator *g, kvp_call *call, const oracle_seq **members, uint32_t *n);
uint32_t generate_step_end(generator *g, const oracle_seq *seq, uint32_t position);
uint32_t generate_kept_place(generator *g, const oracle_seq *seq, uint32_t position);
uint64_t generate_state_step(generator *g);
uint64_t generate_arrival(const generator *g);
bool generate_has_twin(const generator *g);
void generate_checkpoint(generator *g, kvp_call *call);

#endif

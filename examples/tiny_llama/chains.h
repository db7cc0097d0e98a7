/* chains: generation with a model that has recurrent state, with the scheduler, and with drafts in
 * chains. One step:
 *
 *   kvp_sched_step           which sequences compute which tokens, and how many drafts fit behind
 *   kvp_meta_state_rings     the slot for the state after each token of a chain
 *   one forward pass         over those tokens and the drafts
 *   kvp_sched_finish_drafts  the drafts that the model would have drawn itself, and one token more:
 *                            the sequence goes on with the state after the last accepted draft */
#ifndef TINY_LLAMA_CHAINS_H
#define TINY_LLAMA_CHAINS_H

#include <kvpager/kvpager.h>
#include <kvpager/sched.h>

#include "model.h"

typedef struct chains_options {
    uint32_t block_tokens;
    uint32_t n_blocks;    /* the null block included */
    uint32_t state_slots; /* slot 0 included */
    uint32_t max_running; /* up to 8 */
    uint32_t draft_tokens;
    uint32_t chunk_tokens; /* 0: prompts are cut by their ends only */
    uint32_t overlapped;   /* 1: KVP_STEPS_OVERLAPPED, without drafts */
    uint32_t lose_steps;   /* 1: the forward passes of steps 2, 4, 8, 16, ... write garbage */
    uint32_t times;        /* all of them so often */
} chains_options;

typedef struct chains_counts {
    kvp_sched_stats sched;
    uint64_t hits;    /* opens that began at a checkpoint */
    uint64_t missing; /* tokens that did not come as they are known */
} chains_counts;

chains_options chains_default_options(void);

/* Generate, in a cache of its own, and compare.
 *
 * Takes:   known       [n] generations whose out is there; those with beams are left out
 * Returns: KVP_OK, whatever the tokens are; what the cache and the scheduler return */
kvp_status chains_run(struct model *model, const chains_options *options,
                      const struct generation *known, uint32_t n, chains_counts *out_counts);

#endif

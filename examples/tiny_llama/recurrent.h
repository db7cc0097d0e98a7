/* recurrent: generation with a model that has recurrent state beside attention, without the
 * scheduler. One step, for any number of sequences:
 *
 *   kvp_seq_extend          the tokens that were drawn last
 *   kvp_meta_states         the slots of state that the step reads and writes
 *   one forward pass        chunks of prompts end where kvp_seq_state_get says
 *   kvp_seq_commit          the tokens
 *   kvp_seq_checkpoint      the state at the ends of those chunks, for prompts that begin alike
 *
 * Out of blocks or slots, the sequence that began last is closed, and opened again later. */
#ifndef TINY_LLAMA_RECURRENT_H
#define TINY_LLAMA_RECURRENT_H

#include <kvpager/kvpager.h>

#include "model.h"

typedef struct recurrent_options {
    uint32_t block_tokens;
    uint32_t unit_tokens; /* of a hit: may end inside a block; 0: a block */
    uint32_t n_blocks;    /* the null block included */
    uint32_t state_slots; /* slot 0 included */
    uint32_t max_running;
    uint32_t chunk_tokens; /* 0: prompts are cut by their ends only */
    uint32_t prefix_cache; /* 0, 1 */
    uint32_t fork;         /* 1: samples are forked where the prompt ends; 0: each is opened */
    uint32_t roll_back;    /* 1: half of each answer is taken back once, to the last checkpoint */
    uint32_t lose_steps;   /* 1: the forward passes of steps 2, 4, 8, 16, ... write garbage */
    uint32_t times;        /* all of them so often */
} recurrent_options;

typedef struct recurrent_counts {
    uint64_t steps;
    uint64_t computed_tokens; /* rows of the model */
    uint64_t cached_tokens;
    uint64_t preemptions;
    uint64_t rolled_back;
    uint64_t checkpoints;
    uint64_t hits;      /* opens that began at a checkpoint */
    uint64_t lost;      /* states, with steps that were lost */
    uint64_t different; /* tokens that are not the known ones */
} recurrent_counts;

recurrent_options recurrent_default_options(void);

/* Generate, in a cache of its own, and compare.
 *
 * Takes:   known       [n] generations whose out is there; those with beams are left out
 * Returns: KVP_OK, whatever the tokens are; KVP_E_NEVER: one of them does not fit alone; what the
 *          cache returns */
kvp_status recurrent_run(struct model *model, const recurrent_options *options,
                         const struct generation *known, uint32_t n, recurrent_counts *out_counts);

#endif

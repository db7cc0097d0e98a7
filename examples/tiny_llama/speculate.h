/* speculate: generation with drafts in token trees, without the scheduler: the loop of an engine
 * that has its own scheduler. One round, for any number of sequences:
 *
 *   kvp_seq_extend_many     the token that was drawn last
 *   kvp_seq_extend_tree     the tokens that the draft proposes after it
 *   one forward pass        over that token and all nodes, each seeing its ancestors
 *   kvp_seq_commit_many     the token
 *   kvp_seq_accept          the path that the model would have drawn itself
 *   kvp_copier_move         its KV, in each layer group, to where the path's tokens belong */
#ifndef TINY_LLAMA_SPECULATE_H
#define TINY_LLAMA_SPECULATE_H

#include <kvpager/kvpager.h>

#include "model.h"

typedef struct speculate_options {
    uint32_t block_tokens;
    uint32_t together; /* 1: all requests in one batch; 0: one after the other */
    uint32_t rounds;   /* forward passes for a tree: 1; 2: its last nodes are added after the first
                          pass, and computed in one of their own */
    uint32_t fork;     /* 1: each sequence is forked once, while it has a tree; both go on */
    uint32_t again;    /* 1: all requests once more, with half of the answer in the prompt, so that
                          what was accepted is hit */
    uint32_t impl;     /* of attention: KVP_ATTENTION_... */
} speculate_options;

typedef struct speculate_counts {
    uint64_t steps;  /* forward passes */
    uint64_t tokens; /* generated */
    uint64_t paths;  /* rounds, counted for each sequence */
    uint64_t accepted_tokens;
    uint64_t moved_slots; /* of one group */
    uint64_t cached_tokens;
    uint64_t copied_blocks;
    uint64_t dropped_blocks;
    uint64_t different; /* tokens that are not the known ones */
} speculate_counts;

/* Generate, in a cache of its own, and compare.
 *
 * Takes:   known       [n] generations whose out is there; those with beams are left out
 * Returns: KVP_OK, whatever the tokens are; KVP_E_TOO_LONG: more sequences, or tokens in one pass,
 *          than there is room for; what the cache returns */
kvp_status speculate_run(struct model *model, const speculate_options *options,
                         const struct generation *known, uint32_t n, speculate_counts *out_counts);

#endif

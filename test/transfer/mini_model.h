/* mini_model: a model of two layers with weights that are made up, computed with the library's
 * reference attention. What it gives for a token depends on every bit of the KV before it. */
#ifndef TEST_MINI_MODEL_H
#define TEST_MINI_MODEL_H

#include <kvpager/attention.h>
#include <kvpager/all.h>
#include <kvpager/memory.h>

enum { MINI_LAYERS = 2, MINI_HEADS = 2, MINI_QUERY_HEADS = 4, MINI_SIZE = 8, MINI_MAX_TOKENS = 64 };

typedef struct mini_model {
    kvp_cache *cache;
    uint32_t n_groups;
    kvp_memory *memory;                /* of all layers; NULL with two groups */
    kvp_memory *memories[MINI_LAYERS]; /* of a group, with one layer each */
    kvp_seq seq;
    uint64_t digest;    /* of everything that attention gave */
    int32_t next_token; /* after the last one computed */
    /* Called when K and V of all tokens before `end` are written in a layer; or NULL. */
    void (*written)(void *context, uint32_t layer, uint32_t end);
    void *context;
} mini_model;

/* A cache and its memory, with so many tokens in a block, in that order. Two groups: the second
 * layer has 2 sinks and a window of 9 tokens. */
mini_model mini_make(uint32_t block_tokens, const char *order, uint32_t n_groups);
void mini_end(mini_model *model);

/* Compute tokens [from, to) of the sequence and commit them. 0: a call failed. */
int mini_forward(mini_model *model, uint32_t from, uint32_t to);

/* Extend by the next token, and compute it. */
int mini_decode(mini_model *model);

#endif

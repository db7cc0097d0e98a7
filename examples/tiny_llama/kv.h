/* kv: the KV of a model in blocks. Used by engine.c and chains.c, with the scheduler, and by
 * speculate.c and recurrent.c, without.
 *
 *   kv_run_plan             copies that the step's rows need first
 *   kv_describe             the step's rows as arrays, for each layer group
 *   model_run               with kv_attend: new K and V to their slots, then attention
 *
 * A model without windows is one layer group. Else its layers with full attention are group 0, and
 * those with a window group 1. Each group has a separate memory with only its layers. */
#ifndef TINY_LLAMA_KV_H
#define TINY_LLAMA_KV_H

#include <kvpager/attention.h>
#include <kvpager/kvpager.h>
#include <kvpager/memory.h>
#include <kvpager/meta.h>

#include "model.h"

enum { KV_GROUPS = 2, KV_LEVELS = 8 };

typedef struct kv_options {
    kvp_config cache;     /* the groups are filled in, from the model */
    uint32_t max_seqs;    /* of a step */
    uint32_t step_tokens; /* of a step */
    uint32_t cascade;     /* 1: blocks that sequences share are listed once */
    uint32_t rope_mode;   /* KVP_ROPE_AT_WRITE; KVP_ROPE_AT_READ for models without windows */
    uint32_t type;        /* KVP_F32 ... */
    uint32_t impl;        /* of attention: KVP_ATTENTION_... */
} kv_options;

/* A layer group, and the step as it is for its layers. */
struct kv_group {
    kvp_memory *memory;
    kvp_memory *host_memory; /* NULL: there is no host tier */
    kvp_meta_csr csr;
    kvp_meta_windowed windowed; /* of the group with a window, in place of csr */
    void *meta_memory;
    kvp_meta_cascade cascade;
    kvp_meta_level meta_levels[KV_LEVELS];
    int32_t *cascade_memory;
    /* what layers are given; all of it lies in the arrays above */
    const int32_t *query_start;
    const int32_t *positions;
    const int64_t *slots;
    const int32_t *order;
    kvp_attention_level levels[KV_LEVELS];
    uint32_t n_levels;
    kvp_attention_window window;
};

struct kv {
    struct model *model;
    kv_options options; /* every default of options.cache resolved */
    kvp_cache *cache;
    kvp_ns ns;
    kvp_copier *copier;
    kvp_copy *copies;  /* [max_copies] */
    uint64_t n_copied; /* blocks, so far */
    uint32_t n_groups;
    struct kv_group groups[KV_GROUPS];
    uint32_t *layer_group; /* [L] */
    kvp_layer *layers;     /* [L] */
    uint32_t n_seqs;       /* of the step */
    kvp_meta_tree tree;    /* the same for all groups */
    void *tree_memory;
    uint32_t n_nodes; /* of the step's sequences; 0: no trees */
    void *scratch;
    size_t scratch_bytes;
};

/* On failure kv_destroy frees what there is; so it does of a struct that is all zero. */
kvp_status kv_create(struct model *model, const kv_options *options, struct kv *kv);
void kv_destroy(struct kv *kv);

/* out_step: the number of the step that begins, with KVP_STEPS_OVERLAPPED; else not written. */
kvp_status kv_run_plan(struct kv *kv, uint64_t *out_step);

/* Before the step's commit, which drops what windows leave behind. */
kvp_status kv_describe(struct kv *kv, const kvp_meta_batch *batch);

/* model_attend; the context is the struct kv. */
int kv_attend(void *context, const model_attention *attention);

#endif

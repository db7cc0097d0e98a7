/* engine: generation with kvpager. The scheduler decides what a step computes, and the cache
 * decides where its KV goes. The copier copies; metadata and attention do the rest. The model is
 * called once per step. */
#ifndef TINY_LLAMA_ENGINE_H
#define TINY_LLAMA_ENGINE_H

#include <kvpager/kvpager.h>
#include <kvpager/sched.h>

#include "model.h"

typedef struct engine_options {
    uint32_t block_tokens;
    uint32_t n_blocks; /* the null block included */
    uint32_t step_tokens;
    uint32_t chunk_tokens; /* 0: prompts are cut by step_tokens only */
    uint32_t max_running;
    uint32_t prefix_cache; /* 0, 1 */
    uint32_t cascade;      /* 1: blocks that sequences share are listed once */
    uint32_t rope_mode;    /* KVP_ROPE_AT_WRITE; KVP_ROPE_AT_READ for models without windows */
    uint32_t type;         /* KVP_F32 ... */
    uint32_t preempt;      /* KVP_PREEMPT_... */
    uint32_t host_blocks;  /* of the host tier, which also keeps what is evicted; 0: none */
    uint32_t overlapped;   /* 1: KVP_STEPS_OVERLAPPED */
    uint32_t impl;         /* of attention: KVP_ATTENTION_... */
    uint32_t lose_steps;   /* 1: the forward passes of steps 2, 4, 8, 16, ... are lost */
} engine_options;

engine_options engine_default_options(void);

struct engine;

/* model: stays the caller's, and must outlive the engine. */
kvp_status engine_create(struct model *model, const engine_options *options,
                         struct engine **out_engine);
void engine_destroy(struct engine *engine);

/* Generate all of them, together. What is cached afterwards stays for the next call. */
kvp_status engine_run(struct engine *engine, const struct generation *generations,
                      uint32_t n_generations);

/* What has happened so far. */
typedef struct engine_counts {
    uint64_t steps;
    uint64_t computed_tokens; /* rows of the model */
    uint64_t cached_tokens;   /* not computed thanks to the cache */
    uint64_t preemptions;     /* by recompute and by swap */
    uint64_t swaps;           /* out */
    uint64_t failed_steps;
    uint64_t copied_blocks;
    uint64_t dropped_blocks;
    uint64_t cascade_levels; /* of the deepest cascade */
} engine_counts;

engine_counts engine_counts_of(const struct engine *engine);

#endif

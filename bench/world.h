/* A cache in an arena of our own (so that it can be flushed out of the CPU caches), with a pool
 * whose blocks are in random order. */
#ifndef KVP_BENCH_WORLD_H
#define KVP_BENCH_WORLD_H

#include "bench.h"
#include "seed_manager.h"

typedef struct world {
    kvp_cache *cache;
    kvp_ns ns;
    void *arena;
    size_t arena_bytes;
    uint32_t n_blocks; /* usable */
    uint32_t max_seq_tokens;
    uint64_t next_number; /* of the next prompt that nobody has seen */
    int32_t *tokens;      /* [PROMPT_TOKENS] scratch */
    uint32_t n_groups;    /* of layers: a unit has a block in each */
    uint32_t max_copies;  /* with a host tier; else 0 */
    kvp_copy *copies;     /* [max_copies] */
} world;

/* The pool's size is by the options. sink: where every call is recorded, or NULL. */
world *world_create(const bench_options *options, uint32_t max_seqs, uint32_t max_seq_tokens,
                    const kvp_sink *sink);

/* The same with quotas: blocks are counted for namespaces. */
world *world_create_counting(const bench_options *options, uint32_t max_seqs,
                             uint32_t max_seq_tokens);

/* The configuration of world_create, to be changed; and a world of it. */
kvp_config world_config(const bench_options *options, uint32_t max_seqs, uint32_t max_seq_tokens);
world *world_create_as(const kvp_config *config, const kvp_sink *sink);

/* The same with the learned policy. */
world *world_create_learning(const bench_options *options, uint32_t max_seqs,
                             uint32_t max_seq_tokens);
void world_destroy(world *w);

/* Fill the pool with cached blocks in an order that is a random permutation: one prompt for each
 * block, all touched once in random order. Then long prompts take the whole pool in that order,
 * so that nodes are scattered as well. */
void world_shuffle(world *w);

/* The bookkeeping leaves the CPU caches. */
void world_flush(const world *w);

/* Tokens that only this number has, from the first unit on. */
void world_fill_tokens(uint64_t number, int32_t *tokens, uint32_t n_tokens);
uint64_t world_draw(uint64_t *state);

kvp_seq world_open(world *w, const int32_t *tokens, uint32_t n_tokens, kvp_open_info *out_info);
kvp_seq world_open_committed(world *w, const int32_t *tokens, uint32_t n_tokens);
kvp_seq world_open_new(world *w, uint32_t n_tokens); /* committed */
void world_close(world *w, kvp_seq seq);

/* Take the plan, as before a forward pass. Gives the number of copies. */
uint32_t world_take_plan(world *w);
kvp_stats world_stats(const world *w);

/* The yardstick with its whole pool cached, the queue in random order, as after world_shuffle. */
seed_manager *seed_manager_create_full(uint32_t n_blocks);
seed_sequence *seed_open_new(seed_manager *seed, uint64_t number, uint32_t n_tokens);

/* Are neighbours in the row far apart in the pool? At most 1 in 50 may be within 64 blocks. */
void world_require_scattered(const world *w, kvp_seq seq);

#endif

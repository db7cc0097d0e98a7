/* A cache, a store and a spill, and an engine that computes KV in a memory that can be checked.
 *
 * A token's KV is a number, made of the weights, the namespace, the layer group, and all tokens and
 * keys up to it. The engine compares every number that it reads. Copies run when the engine
 * computes, or when it is told to; a store reads and writes host blocks in between.
 *
 * With slots of recurrent state, a slot is a few numbers, made of all tokens and keys up to the
 * state's last one. A step compares the slot that it reads, and writes another. */
#ifndef KVP_TEST_SPILL_WORLD_H
#define KVP_TEST_SPILL_WORLD_H

#include <kvpager/all.h>
#include <kvpager/spill.h>
#include <kvpager/states.h>

#include "../shadow/random.h"

enum { WORLD_STEPS = 4, WORLD_TOKENS = 512, WORLD_SPACES = 2, WORLD_COPIES = 4096, WORLD_KEYS = 4 };

enum { WORLD_STATE = 3 }; /* numbers of a state */

typedef struct world_options {
    uint64_t seed;
    uint32_t block_tokens;
    uint32_t unit_tokens;
    uint32_t record_blocks;
    uint32_t n_groups;
    kvp_window windows[KVP_GROUPS_MAX];
    uint32_t group_tokens[KVP_GROUPS_MAX]; /* S of each group; 0: block_tokens */
    uint32_t group_blocks[KVP_GROUPS_MAX]; /* kvp_store_config.group_blocks */
    uint32_t n_blocks;
    uint32_t host_blocks;
    uint32_t n_nodes; /* 0: the cache's choice */
    uint32_t policy;
    uint32_t hash_bits;   /* kvp_config.test_hash_bits */
    uint32_t max_ops;     /* of the store */
    uint32_t state_slots; /* 0: no recurrent state */
    uint32_t host_state_slots;
    uint32_t keep_rate; /* of 100 ends of steps, those with a checkpoint that nothing asks for */
    const char *url;
    int lies;                /* the liar keeps the records */
    const int32_t *uncached; /* [n_uncached] kvp_config.uncached_tokens */
    uint32_t n_uncached;
    int overlapped;        /* steps overlap: they are reported late, and fail */
    int moves;             /* the engine gives and takes records: not what is in its memory */
    uint32_t refuse_rate;  /* of 100 of these, those that it refuses */
    uint32_t fail_rate;    /* of 100 steps */
    kvp_spill_config more; /* fields that are not 0 replace the world's: limits and rates */
} world_options;

/* A prompt, and what its KV is. */
typedef struct world_line {
    uint32_t space;
    uint32_t n_tokens;
    uint32_t n_keys;
    int32_t tokens[WORLD_TOKENS];
    kvp_key keys[WORLD_KEYS];
    uint64_t weights;          /* of its namespace when it was opened */
    uint64_t kv[WORLD_TOKENS]; /* of group 0; world_kv gives the others */
} world_line;

typedef struct world {
    world_options options;
    kvp_config config;
    kvp_cache *cache;
    kvp_store *store;
    kvp_spill *spill;
    kvp_digester *digester;
    kvp_ns spaces[WORLD_SPACES];
    uint64_t epochs[WORLD_SPACES]; /* and weights */
    uint64_t *device;              /* [n_blocks][the largest S] */
    uint64_t *host;                /* [host_blocks][the same] */
    uint64_t *states[2];           /* by tier [slots][WORLD_STATE] */
    uint64_t n_states_read;        /* states compared */
    kvp_copy copies[WORLD_COPIES]; /* taken, not run */
    uint32_t n_copies;
    uint64_t n_plans;            /* taken; all before the waiting copies have run */
    uint64_t steps[WORLD_STEPS]; /* overlapped: begun, not reported */
    bool step_fails[WORLD_STEPS];
    uint32_t n_steps;
    uint32_t keep_out;     /* the newest so many steps are not reported yet */
    uint64_t random;       /* overlapped */
    uint64_t n_failed;     /* steps */
    uint64_t n_refused[2]; /* records, to give and to take */
    uint64_t now;
    uint64_t n_read; /* numbers compared */
    bool is_lazy;    /* copies run when the engine computes, not before */
    verdict verdict;
} world;

/* Fill the options with the least world: one group, blocks of 4 tokens, records of 2 blocks. */
world_options world_defaults(void);
void world_open(world *w, const world_options *options);
void world_close(world *w);

/* S of a group. */
uint32_t world_tokens(const world_options *options, uint32_t group);

/* What the KV of a line's tokens is. */
void world_truth(const world *w, world_line *line);
uint64_t world_kv(const world_line *line, uint32_t position, uint32_t group);
/* Number i of the state after n tokens. */
uint64_t world_state(const world_line *line, uint32_t n, uint32_t i);
kvp_prompt world_prompt(const world_line *line);

/* Take the plan; run what was taken, and report it: of overlapped steps all but the newest
 * keep_out. */
void world_take(world *w);
void world_run(world *w);

/* Open the line, read all that was hit, compute and commit the rest in chunks. Reports to the
 * spill. KVP_E_NO_BLOCKS and the like leave nothing open. */
kvp_status world_compute(world *w, const world_line *line, kvp_seq *out_seq,
                         kvp_open_info *out_info);
/* Cut the sequence after `from` tokens, and go on with those of the line, without keys.
 * KVP_E_DROPPED: unchanged; a status of kvp_seq_extend: it is cut. */
kvp_status world_again(world *w, const world_line *line, kvp_seq seq, uint32_t from);
/* Read the sequence's KV up to n_tokens, as a query at q would. */
void world_read(world *w, kvp_seq seq, const world_line *line, uint32_t n_tokens);

/* Let the store work until it has nothing to do. */
void world_store(world *w);
/* Store and spill in turn until nothing waits; gives the last answer. */
kvp_spill_answer world_settle(world *w);
/* Ask, and wait for the answer; or not. */
kvp_spill_answer world_ask(world *w, const world_line *line, uint64_t tag);
kvp_spill_answer world_ask_now(world *w, const world_line *line, uint64_t tag);
/* Let the spill work a microsecond later; gives the number of answers. */
uint32_t world_work_once(world *w, kvp_spill_answer answers[8]);
kvp_spill_stats world_stats(const world *w);
/* Audit the spill: each call above does. */
void world_audit(world *w);

/* New weights: the namespace is flushed, and its epoch raised. */
void world_flush(world *w, uint32_t space);

/* Stop the spill; nothing is lent or loading any more. */
void world_stop(world *w);

#endif

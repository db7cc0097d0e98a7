/* state: what a cache is made of.
 *
 * The only header that brings the stages together. The cache lies at the start of its arena;
 * everything else is found by offsets from here. What is done with it is in the other headers of
 * this folder.
 */
#ifndef KVPI_CACHE_STATE_H
#define KVPI_CACHE_STATE_H

#include <kvpager/cache.h>
#include <kvpager/events.h>
#include <kvpager/lend.h>
#include <kvpager/quotas.h>
#include <kvpager/states.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include "base/base.h"
#include "base/sized.h"
#include "base/why.h"
#include "core/stages/hash.h"
#include "core/stages/plan.h"
#include "core/stages/pool.h"
#include "core/stages/prefix.h"
#include "core/record/record.h"
#include "core/stages/table.h"

#define KVPI_UNIT_KEYS_MAX 64u

/* A namespace's place. Open while the generation is odd. */
struct kvpi_space {
    uint64_t generation; /* retired: kvpi_handle_last_generation */
    uint64_t openers;    /* never wraps */
    uint32_t root;
    uint32_t name_bytes;
    uint8_t name[KVP_NAME_MAX_BYTES];
};

#define KVPI_STEPS_OUT_MAX 64u

/* Steps effective + 1 .. begun are out. Their copies are the plan's
 * first n_out, theirs in order. Step s has everything at place s % max. */
enum { KVPI_STEP_OUT = 0, KVPI_STEP_DONE, KVPI_STEP_FAILED };

struct kvpi_steps {
    uint32_t max;
    uint64_t begun;     /* never wraps; all other numbers of steps are this one, of some time */
    uint64_t effective; /* never wraps */
    uint64_t n_failed;  /* never wraps */
    uint8_t state[KVPI_STEPS_OUT_MAX]; /* of those that are out: KVPI_STEP_... */
    uint32_t n_copies[KVPI_STEPS_OUT_MAX];
    uint32_t n_commits[KVPI_STEPS_OUT_MAX]; /* sequences in its list */
    size_t places_at; /* u32 [max][max_seqs] places of the sequences that it commits, in order */
    size_t
        until_at; /* u32 [max][max_seqs] by place: 1 + the tokens it commits; 0: not in the list */
    size_t ahead_at; /* with recurrent state, u32 [max][max_seqs] by place: the slot that the step
                        leaves its state in, if it commits; 0: none (states.c) */
};

/* Events remembered: number e at place (e - 1) % capacity. Numbers have 64 bits: none wraps. */
struct kvpi_events {
    uint32_t capacity; /* 0: none are made */
    uint64_t newest;   /* number of the newest that is whole; never wraps */
    uint64_t begun;    /* number of the newest that was begun: that, or one more */
    size_t events_at;  /* kvp_event [capacity] */
    size_t tokens_at;  /* i32 [capacity][U] */
};

#define KVPI_LOADS_MAX 4096u

/* What stores and copies do with a host block. Numbers are those of plans (lend.h); one that is
 * over, 0 among them, says nothing. */
struct kvpi_lent {
    uint64_t used;    /* the newest plan with a copy from or to it */
    uint64_t written; /* the newest plan with a copy to it */
    uint32_t holds;   /* how often it is lent to be read */
    uint32_t node;    /* being loaded: its last unit's; else NO_NODE */
    uint32_t next;    /* of the same load, in row order; 0: the last one */
    uint32_t reserved;
};

struct kvpi_load {
    uint64_t number; /* 0: the place is free */
    uint64_t after;  /* the newest plan that used one of its blocks before */
    uint32_t node;   /* the last entry's last unit, which the load uses */
    uint32_t first;  /* its blocks, linked by `next`; of a state: the place of its slot */
    uint32_t n_blocks;
    uint32_t group; /* n_groups: of a state */
    uint64_t ns;    /* of a state: whose slot it will be, and in which class */
    uint32_t retention;
    uint32_t reserved;
};

/* Host blocks lent to stores, and host slots of state that loads fill, lend.h. L1 a block's holds
 * are references to it; L2 a block or slot that is being loaded has one reference, of its load, and
 * no content, and its node is marked as loading in the load's group; L3 at most `limit` blocks are
 * lent, and `slot_limit` slots. */
struct kvpi_lending {
    uint32_t max_loads; /* 0: nothing is lent, and there are no arrays */
    uint32_t limit;
    uint32_t slot_limit;
    uint64_t n_loads;    /* begun and not ended */
    uint64_t n_loading;  /* blocks */
    uint64_t n_slots;    /* slots of state that are being loaded */
    uint64_t n_reading;  /* blocks with holds */
    uint64_t number;     /* of the newest load; never wraps */
    uint64_t plans;      /* taken, with ordered steps; never wraps */
    uint64_t plans_done; /* of them */
    size_t lent_at;      /* struct kvpi_lent [host_blocks + host_state_slots]: slots are behind */
    size_t loads_at;     /* struct kvpi_load [max_loads] */
};

/* What is known of requests for the learned policy; with another, there are no arrays. */
struct kvpi_learning {
    uint64_t hits;    /* sum of those of all requests that are open */
    size_t hits_at;   /* u32 [max_seqs] by place; KVPI_NO_REQUEST: a fork, or free */
    size_t groups_at; /* struct kvpi_policy_group [max_blocks] */
};

#define KVPI_NO_REQUEST UINT32_MAX

/* What a failed step does to a sequence's state: what it and later steps leave behind is of no use;
 * or also the one that the sequence reads is. */
enum { KVPI_STATE_AHEAD_FAILS = 1, KVPI_STATE_FAILS };

/* A sequence's recurrent state (states.c). */
struct kvpi_state {
    uint32_t read;  /* slot with the state after the computed tokens; 0: none are, or it is lost */
    uint32_t write; /* slot that the next step writes; 0: none yet */
    uint32_t lost;
    uint32_t fails;      /* while a step fails: KVPI_STATE_... */
    uint32_t branch_end; /* as kvp_state_info */
    uint32_t prompt_end;
    uint32_t ring_at; /* computed tokens when it was taken */
    uint32_t n_ring;
    uint32_t ring[KVP_STATE_RING_MAX - 1]; /* [n_ring] what a step writes after each of its first
                                              tokens: drafts are behind them (states.c) */
};

/* Slots of recurrent state; no blocks in the pool: there is no such group. */
struct kvpi_states {
    struct kvpi_pool pool;
    struct kvpi_pool host; /* of swapped sequences; no slot has content */
    uint64_t taken;        /* this and the following never wrap */
    uint64_t made;
    uint64_t skipped;
    uint64_t hits;
    uint64_t evicted;
    uint64_t walked; /* nodes, as checkpoints came and went: for tests of what that costs */
    size_t seqs_at;  /* struct kvpi_state [max_seqs] */
};

/* The first two say whether a cache is here, and lies as ours do. */
struct kvp_cache {
    uint64_t mark;     /* kvpi_arena_mark() from create to destroy */
    uint64_t layout;   /* kvpi_arena_layout() */
    uint64_t calls;    /* twice the calls so far, never wraps; odd: one is inside */
    uint64_t process;  /* kvpi_process_number of who created it; not meaningful in a copy */
    kvp_config config; /* resolved; uncached_tokens is found by uncached_at */
    uint32_t block_tokens[KVP_GROUPS_MAX]; /* S of each layer group, and behind them of recurrent
                                              state, whose loads count entries of as many tokens */
    uint64_t arena_bytes;
    uint64_t self;       /* where it was created; a copy of the arena knows by it that it is one */
    uint32_t mapped;     /* the arena is ours to unmap */
    uint32_t watermark;  /* blocks */
    uint32_t grouped;    /* several groups, or one with a window: match_groups.c matches */
    uint32_t keeps_once; /* the host gives up what the device has: kvpi_give_up */
    uint32_t tells_attached; /* it, or readers of events, must know what a block gets */
    uint32_t used;           /* a namespace was opened: too late to record */
    uint64_t batch;          /* number of the batch that runs; never wraps */
    uint64_t n_open_spaces;
    uint32_t ahead[KVPI_POOL_JUMP]; /* hints of prefetch_victims: blocks soon to be taken */
    uint32_t ahead_at;  /* near: only its place among KVPI_POOL_JUMP, which divides 2^32, is used */
    uint64_t n_evicted; /* by the last change, those that are not listed among them */
    uint64_t evicted_room; /* of the list */
    kvp_shortage shortage;
    kvp_stats counters; /* none ever wraps; gauges that other rooms keep up are 0 here
    (calls/read.c) */
    uint64_t fallback_by[KVPI_FALLBACKS]; /* references, by what the policy was
    then */
    struct kvpi_recorder recorder;        /* not meaningful in a copy of the arena */
    struct kvpi_pool pool;                /* the device's blocks */
    struct kvpi_pool host;
    struct kvpi_prefix prefix;
    struct kvpi_table table;
    struct kvpi_plan plan;
    struct kvpi_steps steps;
    struct kvpi_events events;
    struct kvpi_lending lending;
    struct kvpi_learning learning;
    struct kvpi_states states;
    uint32_t space_bits;
    size_t spaces_at;   /* struct kvpi_space [max_namespaces] */
    size_t uncached_at; /* i32 [n_uncached_tokens] ascending */
    size_t evicted_at;  /* kvp_evicted [evicted_room + 1]: what is not listed is written behind */
    size_t hashes_at;   /* kvp_hash [max_units] scratch: the prompt's */
};

/* A place in the list for what is evicted. */
static inline kvp_evicted *kvpi_next_evicted(struct kvp_cache *cache)
{
    kvp_evicted *list = kvpi_at(cache, cache->evicted_at);
    return &list[kvpi_min_u64(cache->n_evicted++, cache->evicted_room)];
}

static inline struct kvpi_pool *kvpi_tier_pool(struct kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE ? &cache->pool : &cache->host;
}

/* The pool of a copy's source or destination. */
static inline struct kvpi_pool *kvpi_copy_pool(struct kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE                ? &cache->pool
           : tier == KVP_HOST                ? &cache->host
           : tier == (KVPI_SLOTS | KVP_HOST) ? &cache->states.host
                                             : &cache->states.pool;
}

static inline struct kvpi_lent *kvpi_lent(const struct kvp_cache *cache, uint32_t block)
{
    return (struct kvpi_lent *)kvpi_at(cache, cache->lending.lent_at) + block;
}

/* The place of a host slot among what is lent. */
static inline uint32_t kvpi_lent_slot(const struct kvp_cache *cache, uint32_t slot)
{
    return cache->config.host_blocks + slot;
}

static inline uint32_t kvpi_n_lent(const struct kvp_cache *cache)
{
    return cache->lending.max_loads == 0 ? 0
                                         : kvpi_lent_slot(cache, cache->config.host_state_slots);
}

/* The block or slot at a place. */
static inline struct kvpi_block *kvpi_lent_block(const struct kvp_cache *cache, uint32_t place)
{
    const uint32_t n = cache->config.host_blocks;
    return place < n ? kvpi_block(&cache->host, place) : kvpi_block(&cache->states.host, place - n);
}

static inline struct kvpi_load *kvpi_load_at(const struct kvp_cache *cache, uint32_t place)
{
    return (struct kvpi_load *)kvpi_at(cache, cache->lending.loads_at) + place;
}

/* Plans up to this one are over; later ones may run, or wait. */
static inline uint64_t kvpi_plans_over(const struct kvp_cache *cache)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED ? cache->steps.effective
                                                       : cache->lending.plans_done;
}

/* Plans that were taken: the one that waits is the next. */
static inline uint64_t kvpi_plans_taken(const struct kvp_cache *cache)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED ? cache->steps.begun : cache->lending.plans;
}

/* The places of a node for blocks: behind them is the one for its checkpoint. */
static inline uint32_t kvpi_block_wheres(const struct kvp_cache *cache)
{
    return KVPI_TIERS * cache->config.n_groups;
}

/* Where a block's content is attached: on its tier, for its group. */
static inline uint32_t kvpi_where(const struct kvp_cache *cache, uint32_t tier, uint32_t block)
{
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->pool : &cache->host;
    return KVPI_WHERE(tier, kvpi_block_group(kvpi_block(pool, block)));
}

/* The sequence's row in one group. */
static inline int32_t *kvpi_row(const struct kvp_cache *cache, const struct kvpi_seq *seq,
                                uint32_t group)
{
    return kvpi_group_row(&cache->table, group, kvpi_seq_place(&cache->table, seq));
}

/* S of a group, as these are. */
static inline uint32_t kvpi_block_tokens(const struct kvp_cache *cache, uint32_t group)
{
    return cache->block_tokens[group];
}

static inline uint32_t kvpi_units_per_block(const struct kvp_cache *cache, uint32_t group)
{
    return cache->prefix.units_per_block[group];
}

/* Entries of a group's row that n tokens need. */
static inline uint32_t kvpi_row_length(const struct kvp_cache *cache, uint32_t group,
                                       uint32_t n_tokens)
{
    return kvpi_ceil_div(n_tokens, kvpi_block_tokens(cache, group));
}

/* Entries of the sequence's row in a group. */
static inline uint32_t kvpi_row_entries(const struct kvp_cache *cache, const struct kvpi_seq *seq,
                                        uint32_t group)
{
    const uint32_t S = kvpi_block_tokens(cache, group);
    return (seq->room + S - 1) / S; /* room and S are far below 2^32 */
}

/* Entries of all groups stand in the order of their first tokens, those of one token in the order
 * of the groups. `begins`: is token t the first one of an entry of the group? */
static inline int kvpi_entry_begins(const struct kvp_cache *cache, uint32_t group, uint32_t t)
{
    return t % kvpi_block_tokens(cache, group) == 0;
}

/* The first token of the first entry, of any group, that begins at token t or behind it. */
static inline uint32_t kvpi_entry_from(const struct kvp_cache *cache, uint32_t t)
{
    uint32_t first = kvpi_row_length(cache, 0, t) * kvpi_block_tokens(cache, 0);
    for (uint32_t g = 1; g < cache->config.n_groups; g++) {
        first = kvpi_min_u32(first, kvpi_row_length(cache, g, t) * kvpi_block_tokens(cache, g));
    }
    return first;
}

/* The first token of the last entry, of any group, that begins before token t > 0. */
static inline uint32_t kvpi_entry_before(const struct kvp_cache *cache, uint32_t t)
{
    uint32_t past = (t - 1) % kvpi_block_tokens(cache, 0);
    for (uint32_t g = 1; g < cache->config.n_groups; g++) {
        past = kvpi_min_u32(past, (t - 1) % kvpi_block_tokens(cache, g));
    }
    return t - 1 - past;
}

/* The first token of the first entry, of any group, that has token t. */
static inline uint32_t kvpi_entry_of(const struct kvp_cache *cache, uint32_t t)
{
    uint32_t past = t % kvpi_block_tokens(cache, 0);
    for (uint32_t g = 1; g < cache->config.n_groups; g++) {
        past = kvpi_max_u32(past, t % kvpi_block_tokens(cache, g));
    }
    return t - past;
}

/* Slots that the sequence has in every group. */
static inline uint32_t kvpi_rows_slots(const struct kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_entry_from(cache, seq->room);
}

/* Entries of all groups, in that order, from those on that begin at a token or behind it. */
struct kvpi_entries {
    uint32_t t; /* where the next ones begin: those of each group whose `at` is that */
    uint32_t at[KVP_GROUPS_MAX];    /* where the group's next entry begins */
    uint32_t entry[KVP_GROUPS_MAX]; /* which one it is */
};

static inline struct kvpi_entries kvpi_entries_from(const struct kvp_cache *cache, uint32_t t)
{
    struct kvpi_entries entries = {.t = UINT32_MAX};
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        entries.entry[g] = kvpi_row_length(cache, g, t);
        entries.at[g] = entries.entry[g] * kvpi_block_tokens(cache, g);
        entries.t = kvpi_min_u32(entries.t, entries.at[g]);
    }
    return entries;
}

static inline void kvpi_entries_next(const struct kvp_cache *cache, struct kvpi_entries *entries)
{
    const uint32_t t = entries->t;
    entries->t = UINT32_MAX;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        if (entries->at[g] == t) {
            entries->at[g] += kvpi_block_tokens(cache, g);
            entries->entry[g]++;
        }
        entries->t = kvpi_min_u32(entries->t, entries->at[g]);
    }
}

/* The other way: to the last ones before. Gives 0 when there are none. */
static inline int kvpi_entries_back(const struct kvp_cache *cache, struct kvpi_entries *entries)
{
    uint32_t t = 0;
    uint32_t n = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t S = kvpi_block_tokens(cache, g);
        t = entries->entry[g] > 0 ? kvpi_max_u32(t, entries->at[g] - S) : t;
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        if (entries->entry[g] > 0 && entries->at[g] - kvpi_block_tokens(cache, g) == t) {
            entries->at[g] = t;
            entries->entry[g]--;
            n++;
        }
    }
    entries->t = t;
    return n > 0;
}

/* Do rows cut to n tokens lose an entry? */
static inline int kvpi_rows_lose(const struct kvp_cache *cache, const struct kvpi_seq *seq,
                                 uint32_t n)
{
    return seq->room > n && kvpi_entry_before(cache, seq->room) >= n;
}

static inline struct kvpi_seq *kvpi_find_seq(const kvp_cache *cache, kvp_seq seq)
{
    return kvpi_table_find(&cache->table, seq, cache->recorder.cache_bits);
}

/* The sequence of a handle that this call has found before. */
static inline struct kvpi_seq *kvpi_known_seq(const kvp_cache *cache, kvp_seq handle)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    KVPI_ASSERT(seq != NULL);
    return seq;
}

#endif

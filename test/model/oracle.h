/* The oracle: what cache.h, windows.h, trees.h, swap.h, steps.h, events.h and quotas.h in
 * include/kvpager say, as slow and plain code.
 *
 * It takes the same calls as a cache (kvp_call) and foretells every result (kvp_outcome). It was
 * written from the headers' comments alone and shares no code with the library but the content
 * hash, whose values it must report. When the two differ, one of them is wrong, or the header is.
 *
 * How it keeps its state, all of it visible here because the generator and the runner look at it:
 *
 *   nodes    an array; a child knows its parent, a parent its list of children
 *   blocks   one array for both tiers: the device's blocks, then the host's (host block b is number
 *            n_blocks + b in here); for each unit of a block: which node's KV it has, and how
 *   queues   for each tier eight arrays of block numbers, the head at index 0
 *   places   an array of sequences; rows (one for each layer group, 0: dropped), chain of nodes,
 *            tail and tree are arrays of their own
 *   copies   those out in steps, by step, then those of the plan
 *   steps    those out, by number; what they are to commit; what is parked, by release
 *
 * Handles are the cache's secret: oracle_learn takes them from the cache's outcome. So is how many
 * events a call makes: see view.h.
 */
#ifndef KVP_TEST_MODEL_ORACLE_H
#define KVP_TEST_MODEL_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvpager/cache.h"
#include "kvpager/events.h"
#include "kvpager/hash.h"
#include "kvpager/lend.h"
#include "kvpager/oplog.h"
#include "kvpager/policy.h"
#include "kvpager/quotas.h"
#include "kvpager/states.h"
#include "kvpager/steps.h"
#include "kvpager/swap.h"
#include "kvpager/trees.h"
#include "kvpager/windows.h"
#include "oracle_policy.h"

#define ORACLE_NONE UINT32_MAX

enum { ORACLE_TIERS = 2, ORACLE_MAX_STEPS = 64 };

/* An extra key of one unit: `offset` counts from the unit's first token. */
typedef struct oracle_key {
    uint32_t type;
    int32_t offset;
    uint32_t n_bytes;
    uint8_t bytes[KVP_KEY_MAX_BYTES];
} oracle_key;

typedef struct oracle_keys {
    oracle_key *items;
    uint32_t n;
    uint32_t capacity;
} oracle_keys;

/* Where a node's KV is, in one tier, for one layer group. */
typedef struct oracle_spot {
    int32_t block;       /* 0: nowhere */
    int32_t *duplicates; /* [n_duplicates] other blocks with its KV, the oldest first */
    uint32_t n_duplicates;
    uint32_t capacity;
} oracle_spot;

/* What KV is of: one unit after a given prefix; or the root of a namespace. */
typedef struct oracle_node {
    bool used;
    bool is_root;
    bool is_private;   /* never found by a match: a private unit, or withdrawn */
    bool has_ns;       /* root: its namespace still uses it */
    bool cut;          /* a sequence that had it computed was cut inside it */
    uint32_t parent;   /* of a root: itself */
    uint32_t root;     /* likewise */
    uint32_t depth;    /* units before it */
    uint32_t users;    /* sequences whose chain contains it */
    uint32_t children; /* how many */
    uint32_t first_child;
    uint32_t sibling; /* next child of the parent; next free node */
    int32_t *tokens;  /* [U] */
    oracle_keys keys;
    kvp_hash hash;
    uint32_t in_flight; /* blocks that will have its KV when a step takes effect */
    oracle_spot at[KVP_GROUPS_MAX][ORACLE_TIERS];
} oracle_node;

enum { UNIT_EMPTY = 0, UNIT_SEALED, UNIT_DUPLICATE, UNIT_IN_FLIGHT };

typedef struct oracle_block {
    uint32_t refs;
    uint64_t generation;
    uint32_t retention;
    uint32_t group;      /* that took it last */
    uint64_t raised_in;  /* number of the call that raised the generation last */
    uint64_t parked_for; /* step that must take effect before it is queued; 0: not parked */
    uint64_t touched_by; /* newest step that was out when one that may write left it; 0: none */
    uint64_t filled_by;  /* copy, in the plan or out, that its first slots come from; 0: none */
    bool kept;           /* its content came from an evicted block */
    bool spare;          /* no retained place needs what is in it */
    bool loading;        /* a load fills it */
    uint32_t lends;      /* how often it is lent to be read */
    uint64_t used_by, written_by; /* the newest plan with a copy from or to it; to it; 0: none */
    uint64_t ns_handle;           /* whom it was taken for last */
    uint32_t *unit_node;          /* [block_units] */
    uint8_t *unit_kind;           /* [block_units] UNIT_... */
} oracle_block;

typedef struct oracle_queue {
    int32_t *items; /* [n of the pool] */
    uint32_t n;
} oracle_queue;

/* One tier's blocks: numbers first .. first + n - 1, the first of them the null block. */
typedef struct oracle_pool {
    int32_t first;
    uint32_t n; /* 0: there is no such tier */
    uint32_t held;
    uint32_t turn; /* the place of the namespace that is asked first for a block, if it is over */
    oracle_queue queues[KVP_RETENTION_CLASSES];
} oracle_pool;

typedef struct oracle_copy {
    uint64_t id;      /* 1, 2, ... */
    uint64_t read_of; /* the copy, not yet effective, that filled the source; 0: none */
    uint64_t step;    /* that it is out in; 0: in the plan */
    bool keeps;       /* of an evicted block; with overlapped steps it holds its destination */
    bool spoiled;     /* by the step that fails in this call */
    int32_t from, to; /* block numbers */
    uint32_t group;
    uint32_t n_tokens;
    kvp_copy wire; /* of a state: as it is given; n_tokens 0: it is of blocks */
} oracle_copy;

typedef struct oracle_step {
    uint64_t number;
    bool reported, failed;
} oracle_step;

/* What a step that is out is to commit. */
typedef struct oracle_commitment {
    uint64_t step;
    uint32_t place;
    uint32_t n_tokens;
    bool dropped; /* as an earlier step failed */
} oracle_commitment;

/* A load; `number` 0: the place is free. */
typedef struct oracle_load {
    uint64_t number, after;
    uint32_t group, n, last; /* the node that keeps the path alive */
    int32_t *blocks;         /* [n] numbers; of a state, one slot of the host */
    uint32_t *nodes;         /* [n] of each entry's last unit */
    uint32_t retention;
    uint64_t ns_handle;
} oracle_load;

/* A slot of recurrent state. */
typedef struct oracle_slot {
    uint32_t refs, retention;
    uint64_t generation;
    uint32_t node;       /* whose checkpoint it is; ORACLE_NONE */
    uint64_t ns_handle;  /* whom it was taken for last */
    uint64_t used_by;    /* of the host: the newest plan with a copy from or to it */
    uint64_t parked_for; /* the step that it waits for; 0: none */
    uint64_t filled_by;  /* copy, in the plan or out, that brings the state; 0: none */
} oracle_slot;

/* What a step that is out leaves behind for a sequence: the state after so many tokens. */
typedef struct oracle_ahead {
    uint64_t step;
    uint32_t n_tokens, slot;
} oracle_ahead;

typedef struct oracle_ns {
    bool open;
    uint64_t handle;
    uint32_t openers;
    uint32_t root;
    uint8_t name[KVP_NAME_MAX_BYTES];
    uint32_t name_bytes;
    uint32_t quotas[KVP_STATE_SLOTS + 1];
    uint32_t flushes; /* since it was opened */
    bool left;        /* closed; the name is of the one that was here */
    bool reopened;    /* the one that was here before had this name, too */
} oracle_ns;

typedef struct oracle_seq {
    bool open;
    uint64_t handle;
    uint64_t ns_handle;
    uint64_t tag;
    uint32_t tier;
    uint32_t root;
    uint32_t tokens, known, prompt, cached, computed, writable;
    uint32_t stop, stop_group, retention;
    uint32_t parted;               /* tokens before the first unit that it made; ORACLE_NONE */
    uint64_t uncached_from;        /* lowest begin of its uncached ranges */
    uint64_t private_from;         /* first token whose KV a window of its own made another */
    int32_t *rows[KVP_GROUPS_MAX]; /* [n_row] of each group */
    uint32_t n_row[KVP_GROUPS_MAX], row_capacity[KVP_GROUPS_MAX];
    kvp_window windows[KVP_GROUPS_MAX];
    uint32_t *chain; /* [n_chain] nodes of the full kept units */
    uint32_t n_chain, chain_capacity;
    int32_t *tail; /* [U]: known tokens after the chain, n_tail of them */
    uint32_t n_tail;
    oracle_keys tail_keys;
    int32_t *tree_tokens, *tree_parents; /* [n_tree] */
    uint32_t n_tree, tree_capacity, parents_capacity;
    uint64_t tree_step; /* that the last round of its nodes is for */
    bool unkept;        /* values after the chain are not kept */
    bool flushed;       /* private because no node was free for a new root */
    uint64_t cut_by; /* newest step that was out when slots to be written were cut off; 0: none */
    bool is_fork;
    uint32_t hit_blocks; /* leading ones, on the device, when it was opened */
    bool version_known;  /* row_version: the cache's number at the last look, and */
    uint64_t version;
    bool row_changed;                  /* whether it must have risen since */
    uint32_t moves;                    /* swaps since: each raises it by one */
    uint32_t read_slot, write_slot;    /* of recurrent state; 0: none */
    bool lost;                         /* the state after its computed tokens */
    uint32_t ring[KVP_STATE_RING_MAX]; /* oracle_rings.c; 0: none */
    uint32_t ring_from;                /* where it began: the first tokens of those */
    uint32_t branch_end, prompt_end;
    oracle_ahead ahead[ORACLE_MAX_STEPS]; /* [n_ahead] in the order of their steps */
    uint32_t n_ahead;
    bool fails; /* what the step that fails was to commit rests on nothing */
} oracle_seq;

/* X(name): things that happen inside and that no result tells: for the runner's coverage. */
#define ORACLE_MARKS(X)                                                                            \
    X(lent_cached)       /* a block that nobody held */                                            \
    X(lent_lost)         /* a lent block lost its content */                                       \
    X(mirrored_held)     /* a block that somebody holds */                                         \
    X(load_waits)        /* for a plan that uses its block */                                      \
    X(load_elsewhere)    /* another load brings an entry */                                        \
    X(load_found)        /* an entry is there, and others are not */                               \
    X(load_unneeded)     /* somebody computed it meanwhile */                                      \
    X(load_flushed)      /* its namespace was flushed */                                           \
    X(load_withdrawn)    /* its unit was invalidated */                                            \
    X(load_state)        /* a state was loaded, and is a checkpoint */                             \
    X(load_state_no_kv)  /* one was not kept: there is no KV of its unit */                        \
    X(load_state_evicts) /* one was kept, and another checkpoint evicted */                        \
    X(load_state_waits)  /* for a plan that uses its slot */                                       \
    X(load_state_hit)    /* a checkpoint was hit whose state the plan still copies */              \
    X(load_state_awaits) /* a prompt passes one that is not hit, as steps are overlapped */        \
    X(load_state_fails)  /* the step of the copy failed */                                         \
    X(drop_held)         /* a block that is held was to be dropped */                              \
    X(drop_host)         /* a host block was */                                                    \
    X(drop_parked)       /* a parked one */                                                        \
    X(drop_promotes)     /* one whose unit goes on in a duplicate */                               \
    X(reclaim_behind)    /* a block became free behind others that were */                         \
    X(reclaim_class)     /* one of a higher retention class */                                     \
    X(reclaim_keeps)     /* its content is kept on the host */                                     \
    X(reclaim_waits)     /* none: the plan is half full */                                         \
    X(reclaim_over)      /* one of a namespace that is over its quota */                           \
    X(promotions)        /* a duplicate took a node's place */                                     \
    X(host_promotions)   /* on the host */                                                         \
    X(host_withdrawn)    /* a unit that had a block there */                                       \
    X(cut_withdrawn)     /* a unit that was cut, and is not the sequence's */                      \
    X(cut_reported)      /* and another sequence has it */                                         \
    X(freed_cached)      /* a cached block lost its last sealed unit without a take */             \
    X(freed_parked)      /* and a parked one */                                                    \
    X(removed_copies)    /* from the plan: the destination became free */                          \
    X(evicted_copies)    /* the destination was evicted */                                         \
    X(needed_copies)     /* stayed, as a later one reads the destination */                        \
    X(learned_oldest)    /* a victim that is the oldest and worth least */                         \
    X(learned_old)       /* another old one */                                                     \
    X(learned_young)     /* a young one: new content does not stay */                              \
    X(host_old)          /* the same on the host */                                                \
    X(host_young)        /* and there */                                                           \
    X(learned_leaf)      /* not the first of the queue, which is continued */                      \
    X(learned_no_leaf)   /* all of the class are continued */                                      \
    X(learned_returned)  /* content was used again */                                              \
    X(node_host)         /* a host block went for a node */                                        \
    X(node_device)       /* or one of the device */                                                \
    X(node_slot)         /* or a checkpoint without block */                                       \
    X(node_again)        /* and that freed none, or there was no more to go */                     \
    X(node_none)         /* nothing cached was left */                                             \
    X(load_node)         /* a load made room for a node of its path */                             \
    X(load_node_found)   /* by what it had found */                                                \
    X(spared)            /* an eviction while blocks of a higher class waited */                   \
    X(kept_roots)        /* a flush without a free node */                                         \
    X(kept_hits)         /* an open copied from a block that was kept */                           \
    X(kept_duplicates)   /* of units of an evicted block that is kept */                           \
    X(unkept_no_block)   /* no host block to keep an evicted one in */                             \
    X(unkept_plan)       /* no room in the plan for it */                                          \
    X(kept_evicts)       /* a host block was evicted for it */                                     \
    X(unwanted)          /* evicted, and the host has it */                                        \
    X(unwanted_spared)   /* evicted, and worth less than what the host has */                      \
    X(unwanted_lost)     /* evicted, and a unit before it is on no tier */                         \
    X(given_up)          /* on the host, as the device has it again */                             \
    X(stayed)            /* and there it goes last from now on */                                  \
    X(unwanted_flushed)  /* evicted, and nobody can find it */                                     \
    X(left_writers)      /* a block's only holder copies it: a step may still write it */          \
    X(settled_later)     /* a swapped block got a unit of its second holder */                     \
    X(effect_attached)   /* a unit in flight was attached */                                       \
    X(effect_duplicate)  /* or made a duplicate */                                                 \
    X(effect_nothing)    /* or neither: it has a block, and there are no duplicates */             \
    X(flight_lost)       /* a unit in flight was left out: its block was released */               \
    X(flight_withdrawn)  /* or it was withdrawn */                                                 \
    X(flight_taken)      /* or written over */                                                     \
    X(flight_failed)     /* or its step failed */                                                  \
    X(flight_read)       /* a copy reads what another copy, still in flight, wrote */              \
    X(parked)            /* a block */                                                             \
    X(parked_content)    /* with content */                                                        \
    X(parked_hit)        /* held again */                                                          \
    X(effects_chained)   /* a noted step took effect after the one before it */                    \
    X(commit_left)       /* a step's commit: its sequence was closed or swapped out */             \
    X(commit_dropped)    /* an earlier step failed */                                              \
    X(commit_harmless)   /* none is dropped for what left nothing uncomputed */                    \
    X(commit_passed_on)  /* a dropped one drops others */                                          \
    X(commit_cut)        /* truncated, invalidated, failed */                                      \
    X(commit_effective)  /* */                                                                     \
    X(failed_later)      /* a failed step's KV was copied on by a later copy */                    \
    X(failed_swapped)    /* a swapped sequence was cut */                                          \
    X(failed_kept)       /* an evicted block's copy failed */                                      \
    X(failed_noted)      /* a step failed while an earlier one is out */                           \
    X(dropped)           /* entries, by a commit or an accepted path */                            \
    X(dropped_free)      /* without content */                                                     \
    X(dropped_parked)    /* a step is out */                                                       \
    X(dropped_shared)    /* others hold the block */                                               \
    X(dropped_effect)    /* by a commit that a step made */                                        \
    X(retained)          /* an entry whose block a retained place needs */                         \
    X(retained_multiple) /* one that is a multiple */                                              \
    X(retained_end)      /* a prompt's end, */                                                     \
    X(retained_before)   /* or the unit before the last token */                                   \
    X(retained_hit)      /* where a hit ended */                                                   \
    X(retained_parted)   /* where a prompt left what was known */                                  \
    X(retained_renewed)  /* one went to the tail with the rest of its path */                      \
    X(retained_later)    /* one that was parked will, when it is queued */                         \
    X(spare)             /* a block that none needs went to the head */                            \
    X(spare_of_class)    /* of a retention class */                                                \
    X(spare_parked)      /* and one that was parked first */                                       \
    X(spare_hit)         /* one was held again */                                                  \
    X(spare_unkept)      /* one was evicted, and not kept on the host */                           \
    X(fork_dropped)      /* entries that a fork does not take over */                              \
    X(fill_dropped)      /* a unit was filled whose entry is null */                               \
    X(lacking)           /* a sequence came to need what was dropped */                            \
    X(lacking_healed)    /* and not any more: truncated, or by another window */                   \
    X(window_private)    /* public units became private by a window of its own */                  \
    X(match_other_keys)  /* a known unit but for its keys */                                       \
    X(match_hole)        /* a hit that has null entries */                                         \
    X(open_absent)       /* entries that no hit left null, as they are received */                 \
    X(commit_received)   /* a commit of a sequence that lacked what the tokens before it see */    \
    X(open_absent_hit)   /* a hit lost entries, as the rest is received */                         \
    X(match_back)        /* a prefix was found behind a shorter one that has no KV */              \
    X(match_passed)      /* over: a longer prefix, for the plan's room */                          \
    X(inside_groups)     /* several groups copy the units of a hit inside a block */               \
    X(inside_host)       /* one of them from the host */                                           \
    X(inside_state)      /* such a hit ends at a checkpoint */                                     \
    X(inside_passed)     /* over, as it has more copies than the plan holds */                     \
    X(inside_room)       /* given up for lack of room for its sources */                           \
    X(group_evicts)      /* a block was taken by another group than before */                      \
    X(tree_copied)       /* copy-on-write of an entry with nodes */                                \
    X(tree_dropped)      /* by truncate, invalidate, swap-out, close */                            \
    X(tree_failed)       /* by a failed step, nothing was cut */                                   \
    X(tree_cut)          /* by a failed step, of a sequence that was cut for another reason */     \
    X(tree_sealed)       /* a unit, by an accepted path */                                         \
    X(tree_adopts)       /* a block, by an accepted path */                                        \
    X(tree_drops)        /* entries, by an accepted path */                                        \
    X(tree_releases)     /* blocks behind an accepted path */                                      \
    X(quota_idle)        /* a full namespace took a free block */                                  \
    X(quota_own)         /* and one of its own, which was not the first of the queue */            \
    X(quota_own_host)    /* on the host */                                                         \
    X(quota_own_slot)    /* of slots */                                                            \
    X(quota_held)        /* and had none of its own to give */                                     \
    X(quota_others)      /* a block was taken from one that is over */                             \
    X(quota_others_slot) /* or a slot */                                                           \
    X(quota_turns)       /* and another one was over, too */                                       \
    X(quota_unkept)      /* not kept on the host, for others' sake */                              \
    X(state_alone)       /* a sequence writes the slot that it shared before */                    \
    X(state_evicts)      /* a checkpoint went for a slot */                                        \
    X(state_exposes)     /* a block that only it made reachable */                                 \
    X(state_follows)     /* or with its block */                                                   \
    X(state_released)    /* a commit let go of the slot that was read */                           \
    X(state_renewed)     /* one that others depend on went to the tail with its path */            \
    X(state_passed)      /* one between kept its place */                                          \
    X(state_back)        /* truncated to a checkpoint */                                           \
    X(state_unharmed)    /* an invalidation left what was read */                                  \
    X(state_lost)        /* or not */                                                              \
    X(state_shared)      /* a fork reads what its parent reads */                                  \
    X(state_copy_gone)   /* a copy into a slot that was released before it ran */                  \
    X(state_stays)       /* a checkpoint whose block is left on the other tier */                  \
    X(state_found)       /* a sequence swapped in finds its checkpoint */                          \
    X(state_swapped)     /* a state was copied to the other tier */                                \
    X(state_with)        /* for several sequences of a call */                                     \
    X(ring_taken)        /* a slot of a ring */                                                    \
    X(ring_none)         /* none: a sequence of the batch gets no tokens */                        \
    X(ring_more)         /* to a ring that was there */                                            \
    X(ring_kept)         /* a commit or a truncation goes on with a slot of the ring */            \
    X(ring_over)         /* whose step wrote over what it read */                                  \
    X(ring_all)          /* or none of its tokens is taken back */                                 \
    X(ring_dropped)      /* slots of a ring were released together */                              \
    X(ring_parked)       /* while steps were out */                                                \
    X(ring_out)          /* a ring was taken then */                                               \
    X(ring_late)         /* or committed, in part or whole */                                      \
    X(ring_behind)       /* or refused, because a step has a slot for the sequence */              \
    X(ring_declared)     /* a step was to commit a sequence with a ring */                         \
    X(state_there)       /* a checkpoint of a node that has one */                                 \
    X(state_no_slot)     /* skipped for lack of a slot */                                          \
    X(state_cut)         /* a hit was shorter for want of a checkpoint */                          \
    X(state_cut_groups)  /* of several groups of blocks */                                         \
    X(state_room)        /* a hit inside a block was given up for an earlier one */                \
    X(state_parked)      /* a slot */                                                              \
    X(state_parked_hit)  /* a checkpoint was held again */                                         \
    X(state_parked_gone) /* or went with its block, or was withdrawn */                            \
    X(state_ahead)       /* a step that is out leaves a state behind */                            \
    X(state_two_ahead)   /* and so does another one, for the same sequence */                      \
    X(state_ahead_cut)   /* a truncation went back to what one of them leaves */                   \
    X(state_ahead_back)  /* an invalidation took it back */                                        \
    X(state_ahead_fails) /* the step, or one before it, failed */                                  \
    X(state_ahead_stays) /* and an earlier one is still out */                                     \
    X(state_ahead_lost)  /* and with it the state */                                               \
    X(state_arriving)    /* no checkpoint is made of what a copy still brings */                   \
    X(state_awaited)     /* nor of a node whose checkpoint a copy still brings */                  \
    X(state_on_its_way)  /* a checkpoint whose block is kept on the host stays */                  \
    X(state_spoiled)     /* the step of the copy failed: the state is lost */                      \
    X(state_spoiled_out) /* on the host */                                                         \
    X(state_spoiled_two) /* of two sequences that share it */                                      \
    X(state_spoiled_on)  /* it was copied on, in a later step or in the plan */                    \
    X(state_spoiled_kv)  /* and the KV is all there */                                             \
    X(state_healed)      /* a checkpoint has the state, too */                                     \
    X(chunk_branches)    /* two places where to end chunks */

#define ORACLE_MARK_FIELD(name) uint64_t name;
typedef struct oracle_marks {
    ORACLE_MARKS(ORACLE_MARK_FIELD)
} oracle_marks;
#undef ORACLE_MARK_FIELD

typedef struct oracle {
    kvp_config config;          /* resolved */
    int32_t *uncached_tokens;   /* config's, our own copy */
    uint32_t unit, block_units; /* units of the largest block of any group */
    uint32_t watermark;
    uint32_t node_limit; /* roots included */
    uint64_t call_number;

    oracle_node *nodes;
    uint32_t n_nodes, nodes_capacity;
    uint32_t free_node; /* list of nodes[] entries to use again */
    uint32_t nodes_used;

    oracle_block *blocks; /* [of both tiers] */
    uint32_t n_all_blocks;
    oracle_pool pools[ORACLE_TIERS];

    oracle_slot *slots; /* [state_slots] */
    oracle_queue slot_queues[KVP_RETENTION_CLASSES];
    oracle_slot *host_slots; /* [host_state_slots] */
    oracle_queue host_slot_queue;
    uint32_t *parked_slots; /* [n_parked_slots] in the order of their release */
    uint32_t n_parked_slots;
    uint32_t slot_turn;          /* as a pool's */
    kvp_state_stats state_stats; /* counters */

    oracle_ns *namespaces; /* [max_namespaces] */
    uint32_t open_namespaces;

    oracle_seq *seqs; /* [max_seqs] */
    uint32_t open_seqs;
    uint32_t *free_places; /* [n_free_places], the last is taken next */
    uint32_t n_free_places;

    oracle_copy *copies; /* [n_copies, of them n_plan in the plan, the last ones] */
    uint32_t n_copies, n_plan;
    uint64_t copy_id;                    /* of the last one made */
    uint64_t to_come;                    /* copies that the running call will still add */
    bool leaves_device;                  /* a block that is copied to the host, and evicted next */
    oracle_step steps[ORACLE_MAX_STEPS]; /* [n_steps] */
    uint32_t n_steps;
    uint64_t step_number, effective; /* the newest begun, the newest effective */
    oracle_commitment *commitments;  /* [n_commitments] in the order of their calls */
    uint32_t n_commitments, commitments_capacity;
    int32_t *parked; /* [n_parked] in the order of their release */
    uint32_t n_parked;

    plain_policy *policy;                        /* NULL: the queue decides */
    uint64_t fallback_by[KVP_FALLBACK_GATE + 1]; /* references, by KVP_FALLBACK_... */

    oracle_load *loads; /* [max_loads] */
    uint64_t load_number;
    uint64_t plans, plans_done; /* with ordered steps */

    kvp_evicted *evicted; /* [n_evicted] by the last changing call */
    uint32_t n_evicted, evicted_capacity;
    kvp_shortage shortage;
    kvp_stats stats; /* counters, and peak_held_blocks */
    oracle_marks marks;

    uint64_t told;           /* changes whenever the set that events tell may have changed */
    kvp_event *history;      /* [max_events] event n is at index n % max_events: see view.h */
    int32_t *history_tokens; /* [max_events x U] */
    uint64_t newest_event;

    /* what the last call foretold */
    uint32_t new_place; /* of the sequence or namespace whose handle is to be learnt */
    int32_t *i32;
    int64_t *i64;
    uint64_t *u64;
    kvp_copy *wire;
    kvp_event *events;
    kvp_slot_move *moves; /* [n_groups, n] */
    uint32_t moves_capacity;
    kvp_cold *cold;
    uint32_t cold_capacity;
    uint32_t i32_capacity, i64_capacity, u64_capacity, wire_capacity, events_capacity;

    /* scratch */
    uint32_t *block_count;  /* [of both tiers] all zero between uses */
    bool *block_left;       /* likewise: a sequence that wrote would leave it */
    uint32_t *prompt_nodes; /* nodes of a match */
    uint32_t prompt_nodes_capacity;
    bool lied;             /* the last match was given hashes that are wrong in between, */
    uint32_t honest_units; /* and this is what it could have hit at most */
} oracle;

/* Make an oracle for a cache of this resolved configuration (kvp_cache_config_get). Exits when the
 * machine has no memory, like everything here. */
oracle *oracle_create(const kvp_config *resolved);
void oracle_destroy(oracle *o);

/* A new oracle goes on as if steps and events had come to number `start`. */
void oracle_start(oracle *o, uint64_t start);

/* Foretell the outcome of a call, and go to the state after it. */
void oracle_run(oracle *o, const kvp_call *call, kvp_outcome *out);

/* Take from the cache's outcome what cannot be foretold, handles and the height of a row version,
 * and put it into the foretold one where it is possible there. */
void oracle_learn(oracle *o, const kvp_call *call, const kvp_outcome *seen, kvp_outcome *foretold);

/* Look up by handle: place or ORACLE_NONE. */
uint32_t oracle_find_seq(const oracle *o, uint64_t handle);
uint32_t oracle_find_ns(const oracle *o, uint64_t handle);

/* Leading units that are public. */
uint32_t oracle_public_units(const oracle *o, const oracle_seq *seq);
uint32_t oracle_kept_tokens(const oracle *o, const oracle_seq *seq);
uint32_t oracle_available(const oracle *o, uint32_t tier);

/* The blocks of a tier that can be used. */
uint32_t oracle_usable(const oracle *o, uint32_t tier);

/* The tier of a block number, and the id that the cache gives it. */
uint32_t oracle_tier(const oracle *o, int32_t block);
int32_t oracle_id(const oracle *o, int32_t block);
uint32_t oracle_block_state(const oracle *o, int32_t block);

/* Are steps overlapped? */
bool oracle_overlapped(const oracle *o);

/* Is the node's hash in the set that events tell, for this tier and group? */
bool oracle_is_told(const oracle *o, uint32_t node, uint32_t tier, uint32_t group);

/* Is the call refused before it gets to the cache's state? */
bool oracle_lacks_pointers(const kvp_call *call);

/* What kvp_policy_info_get and kvp_policy_class_get give. */
kvp_status oracle_learned_info(const oracle *o, kvp_policy_info *out);
kvp_status oracle_learned_class(const oracle *o, uint32_t class_, kvp_policy_class *out);

/* Does the sequence need an entry that was dropped, to go on? */
bool oracle_lacks(const oracle *o, const oracle_seq *seq);

/* Where a match of a prompt ends, and what an open needs (the fields of kvp_open_info and more). */
typedef struct oracle_match {
    uint32_t root;
    uint32_t hit_units; /* nodes in oracle.prompt_nodes */
    uint32_t stop, stop_group;
    uint32_t full[KVP_GROUPS_MAX]; /* row entries that are hit, */
    uint32_t query;                /* the position that comes next */
    uint32_t dropped;              /* blocks of them that windows do not keep */
    uint32_t shared, on_host;      /* blocks of them */
    bool receives;                 /* KVP_OPEN_RECEIVE: query is the last token's */
    bool lost;                     /* and so a hit has lost some of its blocks */
    uint32_t absent;               /* blocks of the other entries that windows will not keep */
    uint32_t host_tokens;
    uint32_t cached, copied;
    uint32_t checkpoint;             /* the slot with the state after it */
    int32_t sources[KVP_GROUPS_MAX]; /* of a hit inside a block; 0: none */
    uint32_t copies;
    uint32_t entries[KVP_GROUPS_MAX]; /* of the row */
    uint32_t total;                   /* blocks of all rows */
    uint32_t taken, need;
    uint32_t watermark; /* that counts now */
    uint32_t limit;     /* usable minus watermark */
    bool fits;          /* need <= available minus watermark */
} oracle_match;

#endif

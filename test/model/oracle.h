/* The oracle: what include/kvpager/cache.h says, as slow and plain code.
 *
 * It takes the same calls as a cache (kvp_call) and foretells every result (kvp_outcome). It was
 * written from the header's comments alone and shares no code with the library but the content
 * hash, whose values it must report. When the two differ, one of them is wrong, or the header is.
 *
 * How it keeps its state, all of it visible here because the generator and the runner look at it:
 *
 *   nodes    an array; a child knows its parent, a parent its list of children
 *   blocks   an array; for each unit of a block: which node's KV it has, sealed or as duplicate
 *   queues   eight arrays of block ids, the head at index 0
 *   places   an array of sequences; row, chain of nodes and tail are arrays of their own
 *
 * Handles are the cache's secret: oracle_learn takes them from the cache's outcome.
 */
#ifndef KVP_TEST_MODEL_ORACLE_H
#define KVP_TEST_MODEL_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvpager/cache.h"
#include "kvpager/hash.h"
#include "kvpager/oplog.h"

#define ORACLE_NONE UINT32_MAX

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

/* What KV is of: one unit after a given prefix; or the root of a namespace. */
typedef struct oracle_node {
    bool used;
    bool is_root;
    bool is_private;   /* never found by a match: a private unit, or withdrawn */
    bool has_ns;       /* root: its namespace still uses it */
    uint32_t parent;   /* of a root: itself */
    uint32_t depth;    /* units before it */
    uint32_t users;    /* sequences whose chain contains it */
    uint32_t children; /* how many */
    uint32_t first_child;
    uint32_t sibling; /* next child of the parent; next free node */
    int32_t *tokens;  /* [U] */
    oracle_keys keys;
    kvp_hash hash;
    int32_t block;       /* where its KV is; 0: nowhere */
    int32_t *duplicates; /* [n_duplicates] other blocks with its KV, the oldest first */
    uint32_t n_duplicates;
    uint32_t duplicates_capacity;
} oracle_node;

enum { UNIT_EMPTY = 0, UNIT_SEALED, UNIT_DUPLICATE };

typedef struct oracle_block {
    uint32_t refs;
    uint32_t generation;
    uint32_t retention;
    uint64_t raised_in;  /* number of the call that raised the generation last */
    uint32_t *unit_node; /* [S/U] */
    uint8_t *unit_kind;  /* [S/U] UNIT_... */
} oracle_block;

typedef struct oracle_queue {
    int32_t *items; /* [N] */
    uint32_t n;
} oracle_queue;

typedef struct oracle_ns {
    bool open;
    uint64_t handle;
    uint32_t openers;
    uint32_t root;
    uint8_t name[KVP_NAME_MAX_BYTES];
    uint32_t name_bytes;
} oracle_ns;

typedef struct oracle_seq {
    bool open;
    uint64_t handle;
    uint64_t ns_handle;
    uint64_t tag;
    uint32_t root;
    uint32_t tokens, known, prompt, cached, computed, writable;
    uint32_t stop, retention;
    uint64_t uncached_from; /* lowest begin of its uncached ranges */
    int32_t *row;           /* [n_row] */
    uint32_t n_row, row_capacity;
    uint32_t *chain; /* [n_chain] nodes of the full kept units */
    uint32_t n_chain, chain_capacity;
    int32_t *tail; /* [U]: known tokens after the chain, n_tail of them */
    uint32_t n_tail;
    oracle_keys tail_keys;
    bool unkept;  /* values after the chain are not kept */
    bool flushed; /* private because no node was free for a new root */
    bool is_fork;
    bool version_known; /* row_version: the cache's number at the last look, and */
    uint32_t version;
    bool row_changed; /* whether it must have risen since */
} oracle_seq;

/* Things that happen inside and that no result tells: for the runner's coverage. */
typedef struct oracle_events {
    uint64_t promotions;     /* a duplicate took a node's place */
    uint64_t freed_cached;   /* a cached block lost its last sealed unit without a take */
    uint64_t removed_copies; /* from the plan */
    uint64_t spared;         /* an eviction while blocks of a higher class waited */
    uint64_t kept_roots;     /* a flush without a free node */
} oracle_events;

typedef struct oracle {
    kvp_config config;        /* resolved */
    int32_t *uncached_tokens; /* config's, our own copy */
    uint32_t unit, block_units;
    uint32_t watermark;
    uint32_t node_limit; /* roots included */
    uint64_t call_number;

    oracle_node *nodes;
    uint32_t n_nodes, nodes_capacity;
    uint32_t free_node; /* list of nodes[] entries to use again */
    uint32_t nodes_used;

    oracle_block *blocks; /* [N] */
    oracle_queue queues[KVP_RETENTION_CLASSES];
    uint32_t held;

    oracle_ns *namespaces; /* [max_namespaces] */
    uint32_t open_namespaces;

    oracle_seq *seqs; /* [max_seqs] */
    uint32_t open_seqs;
    uint32_t *free_places; /* [n_free_places], the last is taken next */
    uint32_t n_free_places;

    kvp_copy *plan; /* [n_plan] */
    uint32_t n_plan;
    kvp_evicted *evicted; /* [n_evicted] by the last changing call */
    uint32_t n_evicted, evicted_capacity;
    kvp_shortage shortage;
    kvp_stats stats; /* counters, and peak_held_blocks */
    oracle_events events;

    /* what the last call foretold */
    uint32_t new_place; /* of the sequence or namespace whose handle is to be learnt */
    int32_t *i32;
    int64_t *i64;
    uint64_t *u64;
    kvp_copy *copies;
    uint32_t i32_capacity, i64_capacity, u64_capacity, copies_capacity;

    /* scratch */
    uint32_t *block_count;  /* [N] all zero between uses */
    uint32_t *prompt_nodes; /* nodes of a match */
    uint32_t prompt_nodes_capacity;
    bool lied;             /* the last match was given hashes that are wrong in between, */
    uint32_t honest_units; /* and this is what it could have hit at most */
} oracle;

/* Make an oracle for a cache of this resolved configuration (kvp_cache_config). Exits when the
 * machine has no memory, like everything here. */
oracle *oracle_create(const kvp_config *resolved);
void oracle_destroy(oracle *o);

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
uint32_t oracle_available(const oracle *o);

/* Where a match of a prompt ends, and what an open needs (the fields of kvp_open_info and more). */
typedef struct oracle_match {
    uint32_t root;
    uint32_t hit_units; /* nodes in oracle.prompt_nodes */
    uint32_t stop;
    uint32_t shared, cached, copied;
    int32_t source; /* of a hit inside a block */
    uint32_t total, taken, need;
    uint32_t watermark; /* that counts now */
    uint32_t limit;     /* usable minus watermark */
    bool fits;          /* need <= available minus watermark */
} oracle_match;

#endif

/* kvpager/cache.h: the cache. Namespaces, sequences, blocks, admission, plans.
 *
 *   kvp_config config;
 *   kvp_config_init(&config);
 *   config.n_blocks = 4096;
 *   kvp_cache_create(&config, NULL, 0, &cache);            bookkeeping only: no KV memory here
 *   kvp_ns_open(cache, "llama-8b", 8, &ns);
 *   kvp_seq_open(cache, ns, &prompt, &seq, &info);         match the prefix, hold it, take the rest
 *   ... run the prompt's tokens from info.cached_tokens on; rows and slots tell where ...
 *   kvp_seq_commit(cache, seq, n);                         the first n tokens' KV is written
 *   kvp_seq_extend(cache, seq, &token, 1, 0);              room for the next token
 *   ...
 *   kvp_seq_close(cache, seq, NULL);                       full units stay cached
 *
 * Rules for every call:
 *
 *   - A call that fails changes nothing that can be observed and writes no output, except where its
 *     comment says so. kvp_cache_shortage() reports what was missing.
 *   - The first check that fails gives the status. Pointers and struct_size come first (E_ARG),
 *     then handles, in order (E_HANDLE), then a sequence named twice (E_ARG). Then, for each
 *     sequence in order: values and positions (E_ARG), states (E_STATE, then E_DROPPED),
 *     E_TOO_LONG, E_IN_FLIGHT. Last come E_NO_SEQS or E_NO_NAMESPACES, blocks (E_NEVER,
 *     E_NO_BLOCKS), and E_PLAN_FULL.
 *   - KVP_E_ARG: a NULL pointer that is not allowed, an impossible struct_size, or a value out of
 *     range. KVP_E_HANDLE: a handle that is closed, stale, zero or of another cache. Every call can
 *     return these two. Calls with "Thread: cache" can return KVP_E_BUSY. The comments list the
 *     other statuses.
 *   - After kvp_cache_create nothing allocates. No call blocks or reads a clock.
 *   - The same configuration and calls give the same block ids, victims, plans and statuses.
 *   - "Thread: cache" means exclusive access to the cache during the call, from any thread; another
 *     call gets KVP_E_BUSY (recover.h). "Thread: read" may run beside reads, "any" beside a change.
 *   - Pointers that a call gives point into the cache. They are valid until the next call that
 *     changes the cache.
 *   - This file describes one layer group without a window: group 0, the default. windows.h
 *     describes several groups and windows, trees.h token trees.
 *   - There are two tiers: the device, where sequences grow, and the host, if config.host_blocks is
 *     not 0 (swap.h; for stores lend.h). In this file, "block" means a block of the device.
 *   - Work runs in the order in which it was ordered. So a released block may be taken at once, and
 *     what the plan writes can be hit at once. steps.h describes work that overlaps.
 *
 * Life of a block:
 *
 *              take                       last holder leaves,
 *     free ----------> held --------------------------------------> cached
 *       ^               |   no node is attached                       |  ^
 *       |               v                                   hit: held |  | released again
 *       +--- content lost (generation + 1) <----- evicted by a take --+--+
 *
 * Order of the queue. Free and cached blocks wait in one queue per retention class. A take removes
 * the head of the lowest class that is not empty. A released block with content goes to the tail of
 * its class. A released block without content goes to the head of class 0. After creation and reset
 * the queue is 1, 2, ... N-1. A call that releases several blocks of a sequence releases the last
 * of its row first, so tails are evicted before the prefixes that they need.
 * KVP_POLICY_LEARNED chooses among the cached blocks of the lowest class (docs/POLICY.md).
 */
#ifndef KVPAGER_CACHE_H
#define KVPAGER_CACHE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ configuration and the cache */

/* What commit does when a full block's content is in another block already. */
enum {
    KVP_ADOPT = 0, /* switch the row to the block that is there, release ours (default) */
    KVP_KEEP = 1   /* rows are append-only: ours stays a private duplicate */
};

/* What open does when every token of the prompt is cached. */
enum {
    KVP_FULL_HIT_SHARE = 0,    /* share all; the last token's KV is there: not written (default) */
    KVP_FULL_HIT_RECOMPUTE = 1 /* end the hit at the last block boundary before the last token */
};

/* When a released block may be taken again: see steps.h. */
enum {
    KVP_STEPS_ORDERED = 0,   /* at once: later work runs after earlier work (default) */
    KVP_STEPS_OVERLAPPED = 1 /* when the steps that may still touch it are done */
};

/* Which cached block a take evicts: the head of the queue (default), or by what came back, without
 * quotas, groups, windows and KVP_KEEP (docs/POLICY.md). */
enum { KVP_POLICY_LRU = 0, KVP_POLICY_LEARNED = 1 };

typedef struct kvp_config {
    size_t struct_size;         /* set by kvp_config_init */
    uint32_t block_tokens;      /* S, 1..65536; default 16 */
    uint32_t unit_tokens;       /* U, divides S; 0 = S (default) */
    uint32_t n_blocks;          /* N, null block included, 2..2^31-1; default 1024 */
    uint32_t max_seqs;          /* open at once, forks included, 1..2^20; default 256 */
    uint32_t max_seq_tokens;    /* tokens and reserve of one sequence, 1..2^31-1; default 32768 */
    uint32_t max_namespaces;    /* open at once, 1..65536; default 16 */
    uint32_t n_nodes;           /* prefix nodes, roots included, > max_namespaces, up to 2^31-2;
                                    0 = enough for all units of the pools and 1/64 more, with a host
                                    tier 1/4, with states 1/1. None free: content is evicted */
    uint32_t max_unit_keys;     /* extra keys that may touch one unit, 0..64; default 0 */
    uint32_t max_copies;        /* that wait, or are out; 0 = max_seqs + 64, + n_blocks with host */
    uint32_t commit_policy;     /* KVP_ADOPT, KVP_KEEP */
    uint32_t full_hit;          /* KVP_FULL_HIT_SHARE, KVP_FULL_HIT_RECOMPUTE */
    uint32_t prefix_cache;      /* 0: nothing is matched or published; default 1 */
    double watermark;           /* 0 <= w < 1: floor(w * (N-1)) blocks kept free when opening */
    uint64_t hash_seed;         /* default 0 */
    uint32_t n_uncached_tokens; /* size of the set below; default 0 */
    uint32_t test_hash_bits;    /* tests only: bits of the hash for look-ups, 1..32; 0 = all */
    const int32_t *uncached_tokens; /* [n_uncached_tokens] ids never matched or published; copied */
    uint32_t host_blocks;     /* of the host tier, null block included; 0: none (default), else
                               2..2^31-1; with N fewer than 2^32-1 units of U; see swap.h */
    uint32_t keep_evicted;    /* on the host: KVP_EVICTED_KEEP (default), _DROP, _KEEP_ONCE */
    uint32_t steps;           /* KVP_STEPS_ORDERED, KVP_STEPS_OVERLAPPED */
    uint32_t max_steps_out;   /* steps begun and not reported, 1..64; default 4; see steps.h */
    uint32_t max_events;      /* events that are remembered; 0 (default): none are made; events.h */
    uint32_t max_tree_tokens; /* tokens of one sequence's tree, 0..65536; default 0; trees.h */
    uint32_t n_groups;        /* layer groups, 1..8; default 1; windows.h */
    kvp_window groups[KVP_GROUPS_MAX]; /* [n_groups] the window of each, {0, 0}: none */
    uint32_t quotas;                   /* 1: quotas of namespaces can be set; default 0; quotas.h */
    uint32_t max_loads;   /* begun at once, with a host tier, 0..4096; default 0: none; lend.h */
    uint32_t lent_blocks; /* most host blocks lent at once; 0 = half of them, with max_loads */
    uint32_t policy;      /* KVP_POLICY_LRU, KVP_POLICY_LEARNED */
    uint32_t state_slots; /* of recurrent state: 2..2^30, slot 0 too; 0 (default): none; states.h */
    uint32_t host_state_slots; /* the same on the host: if there are state_slots and host_blocks */
    uint32_t reserved;         /* 0 */
} kvp_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_SIZED void kvp_config_init(kvp_config *config);

/* Check a configuration, as kvp_cache_bytes and kvp_cache_create do.
 * Gives:   out_why      written always; may be NULL
 * Returns: KVP_OK; KVP_E_ARG. Thread: pure */
KVP_API kvp_status kvp_config_check(const kvp_config *config, kvp_why *out_why);

/* Say how many bytes of bookkeeping a configuration needs: the size of the arena.
 * Each unit of the pool needs about 128 + 4 U bytes; the system backs only what is touched. Each
 * sequence needs 4 bytes for each block and each unit of max_seq_tokens.
 * Returns: KVP_OK; KVP_E_ARG: not valid; KVP_E_TOO_LONG: more than size_t. Thread: pure */
KVP_API kvp_status kvp_cache_bytes(const kvp_config *config, size_t *out_bytes);

/* Create a cache.
 * Takes:   config       copied
 *          arena        NULL: the library maps memory (huge pages when the system grants them).
 *                       Else the caller's memory, 64-byte aligned, arena_bytes >= kvp_cache_bytes;
 *                       its content is ignored
 * Gives:   out_cache
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG; KVP_E_TOO_SMALL when arena_bytes is too small;
 *          KVP_E_NO_MEMORY when mapping fails
 * Owns:    the caller's arena stays the caller's, in use until destroy. A copy of its bytes (or of
 *          the kvp_cache_bytes bytes of a mapped cache), made between calls and 64-byte aligned, is
 *          another cache in the same state. The same handles work on it; a recording is not copied.
 *          Other processes that map the arena can inspect it (inspect.h)
 * Thread:  any. Blocks: never. Cost: O(arena); the only call that allocates */
KVP_API kvp_status kvp_cache_create(const kvp_config *config, void *arena, size_t arena_bytes,
                                    kvp_cache **out_cache);

/* Destroy the cache, and unmap the arena if the library mapped it. NULL is ignored. All handles
 * become void. A running recording is stopped. Thread: cache. */
KVP_API void kvp_cache_destroy(kvp_cache *cache);

/* Close every sequence, drop all content, and empty the plan.
 * Open namespaces stay open, with new roots. Sequence handles are stale. Counters keep their
 * values. Generations of blocks that had content or a holder rise by 1, and retention classes
 * become 0. Blocks are free in ascending order, and new sequences get the lowest places first.
 * Returns: KVP_OK. Thread: cache. Cost: O(N + nodes + sequences) */
KVP_API kvp_status kvp_cache_reset(kvp_cache *cache);

/* Read the configuration back, defaults resolved; uncached_tokens points into the cache.
 * Returns: KVP_OK. Thread: read. */
KVP_SIZED kvp_status kvp_cache_config(const kvp_cache *cache, kvp_config *out_config);

/* Counters since creation, and gauges. */
typedef struct kvp_stats {  /* up to steps_out: gauges; then counters */
    uint64_t usable_blocks; /* N - 1 = free + cached + held + parked */
    uint64_t free_blocks;
    uint64_t cached_blocks;
    uint64_t held_blocks;
    uint64_t parked_blocks;    /* released; a step that is out may still touch them: steps.h */
    uint64_t peak_held_blocks; /* largest held_blocks at the end of any call */
    uint64_t watermark_blocks;
    uint64_t open_seqs;
    uint64_t open_namespaces;
    uint64_t nodes_used; /* nodes alive, roots included */
    uint64_t nodes_total;
    uint64_t pending_copies;
    uint64_t host_usable_blocks; /* host_blocks - 1 = host free + cached + held + loading; or 0 */
    uint64_t host_free_blocks;
    uint64_t host_cached_blocks;
    uint64_t host_held_blocks; /* by swapped sequences, copies of steps that are out, stores */
    uint64_t swapped_seqs;     /* of open_seqs */
    uint64_t steps_out;
    uint64_t opens; /* sequences opened (forks not counted) */
    uint64_t forks;
    uint64_t prompt_tokens;    /* tokens of all opens */
    uint64_t cached_tokens;    /* sum of kvp_open_info.cached_tokens */
    uint64_t taken_blocks;     /* blocks taken from the queue, evicting or not */
    uint64_t evicted_blocks;   /* cached blocks whose content was dropped: by a take, or drop.h */
    uint64_t sealed_units;     /* units attached to a block by commit, fill */
    uint64_t adopted_blocks;   /* rows switched to a block that was there */
    uint64_t duplicate_blocks; /* full blocks kept though the content was there (KVP_KEEP) */
    uint64_t copies;           /* copies put into the plan */
    uint64_t detached_units;   /* sealed units overwritten or invalidated */
    uint64_t private_units;    /* units filled that are not public: uncacheable */
    uint64_t unkept_units;     /* units filled for which no node was free: tokens not kept */
    uint64_t hash_collisions;  /* look-ups in which an equal hash was not the same prefix */
    uint64_t refused; /* calls that returned KVP_E_NO_BLOCKS or KVP_E_NEVER; no sequences of EACH */
    uint64_t host_tokens; /* sum of kvp_open_info.host_tokens */
    uint64_t swap_outs;   /* sequences */
    uint64_t swap_ins;
    uint64_t swapped_out_blocks;  /* copied by swap-outs */
    uint64_t swapped_in_blocks;   /* copied by swap-ins */
    uint64_t kept_blocks;         /* evicted from the device and kept on the host by a copy */
    uint64_t unkept_blocks;       /* evicted, wanted on the host; no room there or in the plan */
    uint64_t host_evicted_blocks; /* cached host blocks whose content was dropped likewise */
    uint64_t steps;               /* begun */
    uint64_t failed_steps;
    uint64_t dropped_blocks;      /* row entries that became null because of windows */
    uint64_t tree_tokens;         /* added to trees */
    uint64_t accepted_tokens;     /* of trees, that became tokens of their sequences */
    uint64_t host_loading_blocks; /* gauge: loads fill them; lend.h */
    uint64_t host_lent_blocks;    /* gauge: those, and the ones that stores read */
    uint64_t open_loads;          /* gauge */
    uint64_t plans_done;          /* plans that are over */
    uint64_t plans;               /* taken; with overlapped steps: steps begun */
    uint64_t loads;               /* begun */
    uint64_t loaded_blocks;       /* and states, by loads, and cached */
    uint64_t dropped_loads;       /* blocks that were whole and not needed any more */
    uint64_t failed_loads;        /* blocks that were not whole */
    uint64_t mirrored_blocks;
    uint64_t references;          /* blocks used by sequences, as they closed: KVP_POLICY_LEARNED */
    uint64_t fallback_references; /* of these, while the policy was LRU */
    uint64_t learned_hits;        /* blocks that leading groups of prompts hit on the device, and */
    uint64_t lru_hits;            /* that LRU would have hit of them: docs/POLICY.md */
    uint64_t host_unreachable;    /* gauge: units on the host that no prompt can hit: swap.h */
} kvp_stats;

/* Read counters and gauges. Each number is right by itself, also beside a running call. Together
 * they are exact only between calls. Returns: KVP_OK. Thread: any. Cost: O(1). */
KVP_SIZED kvp_status kvp_cache_stats(const kvp_cache *cache, kvp_stats *out_stats);

/* Why the most recent failing call failed. */
typedef struct kvp_shortage {
    int32_t status;          /* kvp_status of that call; KVP_OK when no call has failed yet */
    uint32_t index;          /* of the sequence in a call for many, else 0 */
    uint64_t missing_blocks; /* KVP_E_NO_BLOCKS: more blocks needed now; KVP_E_NEVER: more than the
                                limit that can never be passed; else 0 */
    uint32_t tier;           /* whose: KVP_DEVICE, KVP_HOST; KVP_STATE_SLOTS and so on: states.h */
    uint32_t reserved;       /* 0 */
} kvp_shortage;

/* Tell what the most recent failing call missed. Only calls that change the cache count, and not if
 * a pointer or KVP_E_BUSY stopped them. A call that succeeds leaves the answer unchanged. With
 * KVP_BATCH_EACH it is about the last sequence that failed. Returns: KVP_OK. Thread: read. */
KVP_SIZED kvp_status kvp_cache_shortage(const kvp_cache *cache, kvp_shortage *out_shortage);

/* What kvp_check found. */
typedef struct kvp_violation {
    char invariant[8];  /* its number, as in "T1"; "" when nothing was found */
    uint64_t object;    /* block id, node index or sequence slot, by invariant */
    const char *detail; /* static text */
} kvp_violation;

/* Audit the cache.
 * Takes:   level        1: sums, O(1); 2: and pool and queue, O(N); 3: every invariant, O(all)
 * Gives:   out_violation  the first one found; written also on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_ARG (level not 1..3); KVP_E_CORRUPT. Thread: cache (changes nothing) */
KVP_API kvp_status kvp_check(kvp_cache *cache, int level, kvp_violation *out_violation);

/* ----------------------------------------------------------------------------------- namespaces */

/* Open a namespace by name. Namespaces separate tenants, adapters and model versions.
 * If the name is open already, the call gives the same handle and counts one more opener. Names are
 * compared byte by byte. Two namespaces never share anything.
 * Takes:   name         [name_bytes], 0..255 bytes
 * Returns: KVP_OK; KVP_E_NO_NAMESPACES: max_namespaces are open, or no node is free for the root
 * Thread:  cache. Cost: O(max_namespaces) */
KVP_API kvp_status kvp_ns_open(kvp_cache *cache, const void *name, size_t name_bytes,
                               kvp_ns *out_ns);

/* Close a namespace once. The last close flushes it, frees its place, and makes its handle stale.
 * Its open sequences continue. Returns: KVP_OK; KVP_E_HANDLE. Thread: cache. Cost: O(1). */
KVP_API kvp_status kvp_ns_close(kvp_cache *cache, kvp_ns ns);

/* Forget everything cached in the namespace: it gets a new root. What was cached cannot be hit any
 * more, and is evicted in its turn. Open sequences continue, but units that they seal from now on
 * cannot be hit either. If nothing was cached or opened in it, the call does nothing. If no node is
 * free for a new root, the old root stays. Then its first units cannot be found any more, the
 * sequences under it stay private, and the cost is O(nodes + sequences).
 * Returns: KVP_OK; KVP_E_HANDLE. Thread: cache. Cost: O(1) */
KVP_API kvp_status kvp_ns_flush(kvp_cache *cache, kvp_ns ns);

/* ------------------------------------------------------------------------------- match and open */

/* Flags of kvp_prompt. */
enum {
    KVP_OPEN_NO_MATCH = 1u,    /* take no hit, compute everything (prompt log-probabilities) */
    KVP_OPEN_DEVICE_ONLY = 2u, /* take no hit that would have to be copied from the host */
    KVP_OPEN_RECEIVE = 4u      /* what is not hit is computed elsewhere and comes as a whole: take
                                  no block for what windows drop on the way there (windows.h) */
};

/* A prompt. Initialise it by name: {.struct_size = sizeof(kvp_prompt), ...}. */
typedef struct kvp_prompt {
    size_t struct_size;
    const int32_t *tokens;   /* [n_tokens]; NULL only when n_tokens is 0 */
    uint32_t n_tokens;       /* may be 0: an empty sequence takes no block (unless it reserves) */
    uint32_t reserve_tokens; /* slots wanted beyond the tokens */
    const kvp_hash *hashes;  /* [n_tokens / U] from kvp_hash_units with this cache's U, seed, name
                                and the same keys; or NULL. First and last are verified
                                (KVP_E_ARG). A wrong one between them costs hits, and evicted
                                blocks are reported under it; it never makes a hit wrong */
    const kvp_key *keys;     /* [n_keys] ascending by begin, inside the tokens; or NULL */
    uint32_t n_keys;
    uint32_t n_uncached;
    const kvp_range *uncached; /* [n_uncached] positions that must not be cached, now or when they
                                  are reached later; or NULL */
    uint32_t flags;
    uint32_t retention; /* class, 0..7, of the blocks that this sequence takes; default 0 */
    uint64_t tag;       /* the caller's own */
} kvp_prompt;

/* Why a match ended where it did. */
enum {
    KVP_STOP_END = 0,      /* nothing more to match: every full unit of the prompt was hit */
    KVP_STOP_MISS = 1,     /* the next unit is not known after this prefix */
    KVP_STOP_NO_KV = 2,    /* the next unit is known but no block has its KV: a sequence is still
                             computing it, or it was evicted while something after it stayed */
    KVP_STOP_UNCACHED = 3, /* the next unit holds a token that must not be cached */
    KVP_STOP_OFF = 4,      /* prefix_cache is 0, or KVP_OPEN_NO_MATCH */
    KVP_STOP_FULL_HIT = 5, /* all was there; cut back by KVP_FULL_HIT_RECOMPUTE */
    KVP_STOP_NO_ROOM = 6   /* a hit inside a block was given up: its source and a block to copy it
                              to did not both fit. Or more blocks were on the host than the plan
                              can ever hold: max_copies - 1 */
};

typedef struct kvp_open_info {
    uint32_t cached_tokens; /* tokens that need not be computed: min(hit_tokens, n_tokens - 1) */
    uint32_t hit_tokens;    /* tokens whose KV is there: a multiple of U */
    uint32_t stop;          /* KVP_STOP_... */
    uint32_t host_tokens;   /* of hit_tokens, those that the plan copies from the host: any group */
    uint32_t shared_blocks; /* hit blocks that are shared: floor(hit_tokens / S) - host_blocks */
    uint32_t host_blocks;   /* hit blocks that are copied from the host, each to a taken one */
    uint32_t cached_blocks; /* of the shared ones, those that no sequence held: one each */
    uint32_t copied_tokens; /* hit_tokens % S: copied into a block that is taken */
    uint32_t taken_blocks;  /* blocks taken for the rest; open: done, match: would be */
    uint32_t evicted_blocks; /* open: cached blocks that lost their content; match: 0 */
    uint32_t stop_group;     /* KVP_STOP_NO_KV: the layer group that ended the match; else 0 */
} kvp_open_info;

/* Ask how much of a prompt is cached, without holding or changing anything.
 * Answers as kvp_seq_open would with enough blocks and an empty plan.
 * Returns: KVP_OK; KVP_E_TOO_LONG
 * Thread:  cache (uses scratch memory; changes nothing)
 * Cost:    O(n_tokens) */
KVP_SIZED kvp_status kvp_match(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                               kvp_open_info *out_info);

/* Check a prompt, as kvp_seq_open does before it looks for blocks.
 * Gives:   out_why      written always, zero for a handle or an arena that is refused; may be NULL
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_ARG as for kvp_seq_open
 * Thread:  cache (uses scratch memory; changes nothing, and is not recorded). Cost: O(n_tokens) */
KVP_API kvp_status kvp_prompt_check(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                    kvp_why *out_why);

/* Open a sequence: match the longest cached prefix, hold its blocks, take blocks for the rest.
 *
 * The call walks the units of the prompt from the namespace's root. A unit is hit if its node
 * follows the node before (tokens and keys are compared) and a block of either tier has its KV. The
 * walk ends at the first unit with a token that must not be cached. Only full units are hit. Then:
 *
 *   hit blocks   The hit fills floor(hit_tokens / S) row entries. An entry is shared if a device
 *                block has the KV of its last unit. Else it comes back from the host: a block is
 *                taken, and the plan gets a copy of S slots. Units that no device block has are
 *                attached to it; the others are duplicates there (see kvp_seq_commit).
 *                If a hit ends inside a block (U < S), the plan gets one copy of hit_tokens % S
 *                slots into a new block, with the same rule for its units. The source is a device
 *                block if the last unit hit is there.
 *                Sources of copies are held during the call. Those that no sequence holds then go
 *                to the tail of their queue: blocks of the host in row order, then the source of a
 *                hit inside a block. If that source is a device block, and it and the blocks to
 *                take do not fit together, the hit ends at the block boundary before
 *                (KVP_STOP_NO_ROOM).
 *   the rest     ceil((n_tokens + reserve_tokens) / S) minus the shared blocks are taken, in row
 *                order. kvp_cache_evicted lists the victims.
 *   order        First hits are held, in row order. Then blocks are taken, in row order; each copy
 *                enters the plan when its block is taken. Last, the other units get nodes.
 *   counts       tokens = prompt = n_tokens; computed = hit_tokens; cached = cached_tokens. If all
 *                n_tokens are hit, the last token must still run to get its logits. Its KV is
 *                there, so its slot is KVP_NO_SLOT.
 *   writable     slots of tokens from hit_tokens to n_tokens + reserve_tokens.
 *
 * The call succeeds exactly when kvp_can_open says OK (and a sequence is free). Example: S = U = 4,
 * and blocks for [1 2 3 4][5 6 7 8] are cached. Opening 1..8,9,10 shares two blocks and takes one,
 * cached_tokens 8. Opening 1..8 shares two and takes none, cached_tokens 7.
 *
 * If no node is free for a unit, here or when it fills later, content is evicted until one is, as
 * by kvp_cache_reclaim: of the host, then the device (not copied to the host), then checkpoints. If
 * none is free after 1,024 evictions, or nothing is cached, the sequence's tokens from there on are
 * not kept. They can be used, but not read back or published (stats.unkept_units).
 *
 * Takes:   prompt       read during the call only
 * Gives:   out_seq, out_info (may be NULL)
 * Returns: KVP_OK; KVP_E_NO_BLOCKS, KVP_E_NEVER (see kvp_can_open); KVP_E_NO_SEQS; KVP_E_TOO_LONG
 *          when n_tokens + reserve_tokens exceeds max_seq_tokens; KVP_E_PLAN_FULL; KVP_E_ARG also
 *          for: hashes that do not verify; keys that are not ascending, lie outside the tokens, are
 *          longer than KVP_KEY_MAX_BYTES, or more than max_unit_keys in a unit; empty ranges;
 *          retention > 7; a negative token id
 * After-failure: unchanged
 * Owns:    close the sequence to give everything back
 * Thread:  cache. Blocks: never
 * Cost:    O(n_tokens), about 16 ns per unit for a hit (bench/README.md); allocates nothing */
KVP_SIZED kvp_status kvp_seq_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  kvp_seq *out_seq, kvp_open_info *out_info);

/* ------------------------------------------------------------------------- extend, fill, commit */

/* A call for many sequences. Initialise it by name: {.struct_size = sizeof(kvp_batch), ...}. */
typedef struct kvp_batch {
    size_t struct_size;
    uint32_t n_seqs;          /* B */
    uint32_t flags;           /* 0: all or nothing; KVP_BATCH_EACH, KVP_BATCH_RING (states.h) */
    const kvp_seq *seqs;      /* [B], each once */
    const uint32_t *n_tokens; /* [B] new tokens of each, may be 0; NULL: one each */
    const int32_t *tokens;    /* [sum of n_tokens] concatenated; NULL: values not known yet */
    uint32_t reserve_tokens;  /* for each: slots wanted beyond the new tokens */
    uint32_t n_keys;
    const kvp_key *keys;  /* [n_keys] for a batch of ONE sequence: ascending, inside the new
                                  tokens (absolute positions); else NULL */
    kvp_status *statuses; /* [B] written with KVP_BATCH_EACH; else may be NULL */
} kvp_batch;

enum {
    KVP_BATCH_EACH = 1u /* each sequence by itself, in order. One that fails is left unchanged and
                           gets its status; the others continue. The call returns KVP_OK */
};

/* Make room for more tokens of a sequence.
 *
 * Afterwards the slots of all tokens that are not computed, and of `reserve_tokens` more, are
 * writable. In order:
 *   1. Copy-on-write. If such a slot lies in a block of the row that has other holders, a taken
 *      block replaces it (the row's version rises). If computed tokens lie in it, the plan gets a
 *      copy of its used slots: from its start to the sequence's tokens before this call. Computed
 *      public units that are sealed or duplicates in the old block are duplicates in the new one.
 *   2. Overwriting. In a block without other holders, the units from the first such slot on are
 *      detached from their nodes (detached_units). A duplicate elsewhere takes the place of each.
 *      They are also struck as duplicates.
 *   3. Blocks are taken until the row has ceil((tokens + new + reserve) / S), never fewer than now.
 * With values, full units become nodes. Without values (tokens NULL), the tokens exist, but their
 * values are unknown until kvp_seq_fill. While there are such tokens, extending with values is
 * KVP_E_STATE. With no tokens and no reserve, the call makes the slots of uncomputed tokens
 * writable (after invalidate or fork). Slots stay writable until truncate or invalidate cuts them.
 *
 * Returns: KVP_OK; KVP_E_NO_BLOCKS; KVP_E_NEVER; KVP_E_TOO_LONG; KVP_E_STATE, also when it is
 *          swapped out; KVP_E_PLAN_FULL; KVP_E_IN_FLIGHT: see steps.h; KVP_E_ARG also for a
 *          negative token id
 * After-failure: unchanged
 * Thread:  cache. Blocks: never
 * Cost:    O(n_tokens + blocks from the first uncomputed token on), allocates nothing */
KVP_API kvp_status kvp_seq_extend(kvp_cache *cache, kvp_seq seq, const int32_t *tokens,
                                  uint32_t n_tokens, uint32_t reserve_tokens);

/* Make room for more tokens of many sequences, in the order given: kvp_seq_extend for each.
 * Without KVP_BATCH_EACH the call is all or nothing. kvp_cache_shortage().index names the first
 * sequence at fault: for KVP_E_NO_BLOCKS, the first one for which the blocks do not suffice.
 * Returns: as kvp_seq_extend; KVP_E_NO_BLOCKS: counted over the whole batch; KVP_E_NEVER: one
 *          sequence alone can never fit (missing: the largest excess); KVP_E_ARG also for a
 *          sequence named twice, with KVP_BATCH_EACH too
 * Thread:  cache. Cost: as kvp_seq_extend */
KVP_API kvp_status kvp_seq_extend_many(kvp_cache *cache, const kvp_batch *batch);

/* Give the values of tokens that were extended without, in order.
 * Full units become nodes. Units that are computed already are sealed as by kvp_seq_commit.
 * Takes:   tokens       [n_tokens], n_tokens <= tokens without value
 * Returns: KVP_OK; KVP_E_STATE: there are fewer tokens without value
 * Thread:  cache. Cost: O(n_tokens) */
KVP_API kvp_status kvp_seq_fill(kvp_cache *cache, kvp_seq seq, const int32_t *tokens,
                                uint32_t n_tokens);

/* Give the values of tokens of many sequences: kvp_seq_fill for each, in the order given.
 * Takes:   batch        tokens must not be NULL unless all counts are 0; reserve_tokens must be 0;
 *                       keys (for one sequence) lie inside the filled tokens
 * Returns: as kvp_seq_fill. Thread: cache. Cost: O(tokens) */
KVP_API kvp_status kvp_seq_fill_many(kvp_cache *cache, const kvp_batch *batch);

/* Declare the KV of the first n_tokens computed: written, or ordered to be written before anything
 * can read it.
 *
 * Copies read it, too. An engine that commits ahead of the work must take the plan of that work
 * first. Then copies of what was committed (swaps, kept evictions, copy-on-write) come later.
 *
 * Every full public unit with known values up to n_tokens is sealed, in order. If its node has no
 * block, it gets the sequence's block. If it has another block, there are two cases:
 *   - KVP_KEEP, or the unit is not the last of its block: the sequence's block becomes a duplicate.
 *     If the other block loses its content, the oldest duplicate takes the node's place.
 *   - KVP_ADOPT and the last unit of its block: the row switches to the node's block, which is
 *     held, and the sequence's block is released (the row's version rises). This needs no block and
 *     cannot fail.
 * Duplicates are not content: a released block with only duplicates is free. In a block that stays
 * cached for its sealed units, they stay. If n_tokens are computed already, the call does nothing.
 *
 * Returns: KVP_OK; KVP_E_ARG when n_tokens exceeds the sequence's tokens; KVP_E_STATE when slots up
 *          to n_tokens were never made writable (after invalidate: extend first); KVP_E_DROPPED
 *          after KVP_OPEN_RECEIVE: fewer tokens than were to be received
 * Thread:  cache. Cost: O(units sealed) */
KVP_API kvp_status kvp_seq_commit(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens);

/* Declare the KV of many sequences computed: kvp_seq_commit for each, in order. All or nothing.
 * Takes:   seqs, n_tokens  [n_seqs], each sequence once
 * Returns: as kvp_seq_commit. Thread: cache. Cost: O(n_seqs + units sealed) */
KVP_API kvp_status kvp_seq_commit_many(kvp_cache *cache, const kvp_seq *seqs,
                                       const uint32_t *n_tokens, uint32_t n_seqs);

/* Take back the KV of tokens from `from` on: the step that was to write it failed.
 *
 * computed becomes min(computed, from), and nothing from there on is writable: call kvp_seq_extend
 * (with 0 tokens) before computing it again. Public units of the sequence from the one with token
 * `from` on are withdrawn. Their nodes lose every block (detached_units counts each attached unit)
 * and can never be found again. Neither can what any sequence computed after them, so these tokens
 * are computed again when they are opened. Cached blocks without a sealed unit left become free, in
 * row order. The sequence keeps its tokens and blocks, private from there on (truncate to `from`
 * and extend, to publish again).
 *
 * The call reports other sequences whose KV is or may be wrong, too; invalidate or close them. They
 * have more than `from` tokens and, from there on, a block of this row or the first withdrawn unit.
 * (A fork that has copied the block, and has no public unit there, is not known to share: the
 * caller knows its forks.) Every sequence with the first withdrawn unit is private from there on.
 * What a closed sequence left behind cannot be withdrawn. So if you commit ahead of the work, keep
 * the sequence open until the work has run, or flush.
 *
 * This is also how one prefix is forgotten, on both tiers: open it, invalidate from the first token
 * to forget, close. (docs/EMBEDDING.md, 10; kvp_ns_flush forgets a whole namespace.)
 *
 * Gives:   out_seqs     [capacity] the sharing sequences, in the order of their places (a new
 *                       sequence gets the place freed last, else the lowest); NULL: capacity is 0
 *          out_n_seqs   how many there are, capacity 0 asks; NULL: capacity 0, and do not report
 * Returns: KVP_OK; KVP_E_ARG when from exceeds the tokens; KVP_E_TOO_SMALL: nothing was changed
 * Thread:  cache. Cost: O(units from `from` on + open sequences x blocks from `from` on) */
KVP_API kvp_status kvp_seq_invalidate(kvp_cache *cache, kvp_seq seq, uint32_t from,
                                      kvp_seq *out_seqs, uint32_t capacity, uint32_t *out_n_seqs);

/* ------------------------------------------------------------------------ fork, truncate, close */

/* What a call released. With overlapped steps, a parked block counts as what it will become. */
typedef struct kvp_released {
    uint32_t freed_blocks;  /* became free */
    uint32_t cached_blocks; /* became cached */
} kvp_released;

/* Fork: make a second sequence that shares everything before `at`.
 *
 * The call takes no block. All blocks are shared by reference, also a partly filled last one. The
 * first sequence to write to a shared block gets its own copy (kvp_seq_extend). The child has
 * tokens = computed = at, no reserve and no writable slot. It has the parent's prompt and cached,
 * cut to at, its uncached ranges, retention class and namespace, and its keys as after
 * kvp_seq_truncate. Slots that the parent was given stay valid.
 *
 * A child shares KV, so there must be some: after an extend and before its commit the newest tokens
 * have slots only, and KVP_END is refused. Fork before the extend, or after the commit, or at the
 * computed tokens. (Else both would have the same step write the same slot, and a step that fails
 * would leave the child with KV that was never written.)
 *
 * Takes:   at           0..computed of the parent, in tokens whose values are known; KVP_END: all
 *                       tokens (which then must be computed and known)
 * Returns: KVP_OK; KVP_E_STATE when tokens before `at` are not computed or have no value; KVP_E_ARG
 *          when `at` exceeds the tokens; KVP_E_NO_SEQS
 * Thread:  cache. Cost: O(blocks), about 1 ns each */
KVP_API kvp_status kvp_seq_fork(kvp_cache *cache, kvp_seq parent, uint32_t at, uint64_t tag,
                                kvp_seq *out_child);

/* Roll back to n_tokens, at any place, also into shared and sealed blocks.
 * The call releases the blocks after ceil(n_tokens / S), with reserved ones. computed, known,
 * writable, prompt and cached are cut to n_tokens. Extra keys of the unit that is cut stay if they
 * begin before it, and then belong to that unit only. The call cannot fail for lack of anything.
 * kvp_seq_extend makes writable what the sequence writes next.
 * Gives: out_released may be NULL. Returns: KVP_OK; KVP_E_ARG when n_tokens exceeds the tokens
 * Thread: cache. Cost: O(blocks released) */
KVP_API kvp_status kvp_seq_truncate(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens,
                                    kvp_released *out_released);

/* Close a sequence: release every block, the last of the row first. Sealed content stays cached.
 * KVP_POLICY_LEARNED counts a use of its sealed blocks; truncate to 0 before, to count none.
 * Gives: out_released may be NULL. Returns: KVP_OK; KVP_E_HANDLE. Thread: cache.
 * Cost: O(blocks), 1 to 2 ns each. */
KVP_API kvp_status kvp_seq_close(kvp_cache *cache, kvp_seq seq, kvp_released *out_released);

/* ------------------------------------------------------------------------ what a sequence knows */

typedef struct kvp_seq_info {
    kvp_ns ns; /* as opened; may have been closed since */
    uint64_t tag;
    uint64_t row_version;   /* rises when an entry that was in the row is replaced or removed */
    uint32_t n_tokens;      /* all tokens, with or without value */
    uint32_t known_tokens;  /* those with a value */
    uint32_t prompt_tokens; /* given at open, or by kvp_seq_prompt_end (policy.h) */
    uint32_t cached_tokens; /* not computed thanks to the cache, at open */
    uint32_t computed_tokens;
    uint32_t writable_tokens; /* slots of [computed, writable) may be written; >= computed */
    uint32_t public_tokens; /* in leading units that others hit once computed; flushed ones, too */
    uint32_t kept_tokens;     /* leading tokens whose values the cache has: <= known_tokens */
    uint32_t n_blocks;        /* length of the row */
    uint32_t stop;            /* KVP_STOP_... of the match at open; of the parent's for a fork */
    int32_t last_token; /* value of the last known token; -1 when there is none, or not kept */
    uint32_t retention;
    uint32_t tier;        /* KVP_HOST: swapped out, the row's ids are the host's */
    uint32_t tree_tokens; /* tokens of its tree, not accepted yet, behind its tokens: trees.h */
    uint32_t stop_group;  /* as of kvp_open_info, at open; of the parent's for a fork */
    uint32_t reserved;    /* 0 */
} kvp_seq_info;

/* Read all that is known of a sequence, at one moment between two calls. Not recorded.
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_AGAIN: a call was inside at each of 8 tries. Thread: any */
KVP_SIZED kvp_status kvp_seq_info_get(const kvp_cache *cache, kvp_seq seq, kvp_seq_info *out_info);

/* Read token values back.
 * Gives:   out_tokens   [n_tokens]: values of positions from .. from + n_tokens - 1
 * Returns: KVP_OK; KVP_E_ARG when the range exceeds the tokens; KVP_E_UNKNOWN when a token in it
 *          has no value, or was not kept for lack of nodes. Thread: read. Cost: O(n_tokens) */
KVP_API kvp_status kvp_seq_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t from,
                                  uint32_t n_tokens, int32_t *out_tokens);

/* Read the tokens in block i of the row (not a block id): positions i*S .. min((i+1)*S, tokens).
 * Gives:   out_tokens   [S], out_n_tokens how many (0 for a reserved block)
 * Returns: KVP_OK; KVP_E_ARG when i is not in the row; KVP_E_UNKNOWN as above */
KVP_API kvp_status kvp_seq_block_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t block_idx,
                                        int32_t *out_tokens, uint32_t *out_n_tokens);

/* Give the row: the block ids, in order, reserved ones included.
 * Takes:   group        layer group
 * Gives:   out_row      [out_n_blocks] i32, in the cache: valid until the next call that changes it
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: no such group. Thread: read. Cost: O(1) */
KVP_API kvp_status kvp_seq_row(const kvp_cache *cache, kvp_seq seq, uint32_t group,
                               const int32_t **out_row, uint32_t *out_n_blocks);

/* Give the slots for the KV of tokens from .. from + n_tokens - 1: block * S + offset, or
 * KVP_NO_SLOT for a computed token. Positions may reach to writable_tokens, with reserved ones. The
 * slots are valid until the sequence's row version rises.
 * Gives:   out_slots    [n_tokens] i64
 * Returns: KVP_OK; KVP_E_ARG when the range exceeds the row (blocks * S); KVP_E_STATE when it holds
 *          slots that are neither computed nor writable (kvp_seq_extend)
 * Thread:  read. Cost: O(n_tokens) */
KVP_API kvp_status kvp_seq_slots(const kvp_cache *cache, kvp_seq seq, uint32_t group, uint32_t from,
                                 uint32_t n_tokens, int64_t *out_slots);

/* Set the retention class of the blocks that hold positions [begin, end). Lower classes are evicted
 * first. The class holds now and when the blocks become cached; the last call wins. It stays until
 * the block is taken again (then it is the taker's class).
 * Returns: KVP_OK; KVP_E_ARG: the range is empty or exceeds the row (blocks * S), or class > 7 */
KVP_API kvp_status kvp_seq_retain(kvp_cache *cache, kvp_seq seq, kvp_range range,
                                  uint32_t retention);

/* Add a range of positions that must not be cached; they may lie ahead of the tokens. Only the
 * lowest `begin` of all ranges matters: the unit that contains it and all later ones stay private.
 * Returns: KVP_OK; KVP_E_ARG for an empty range; KVP_E_STATE when the unit with range.begin is
 *          public already */
KVP_API kvp_status kvp_seq_uncache(kvp_cache *cache, kvp_seq seq, kvp_range range);

/* ------------------------------------------------------------------------------------ admission */

enum { KVP_ADMIT_OK = 0, KVP_ADMIT_LATER = 1, KVP_ADMIT_NEVER = 2 };

typedef struct kvp_admission {
    uint32_t verdict;        /* KVP_ADMIT_... */
    uint32_t need_blocks;    /* blocks that leave the queue: taken, and hits that are cached */
    uint32_t available;      /* free + cached now */
    uint32_t missing_blocks; /* LATER: how many more must become available; NEVER: by how many the
                                need alone exceeds the limit; OK: 0 */
    uint32_t copied_blocks;  /* kvp_can_swap_out, kvp_can_swap_in: new blocks that the plan would
                                copy to, copy-on-write not counted; else 0 */
} kvp_admission;

/* Ask whether kvp_seq_open would find its blocks now.
 *
 * need   = taken blocks + shared cached blocks. The source of a hit inside a block counts, too, if
 *        it is a cached device block (if that does not fit, the hit is cut, see kvp_seq_open).
 * OK     when need <= available - watermark. The watermark counts as 0 while no block is held.
 * NEVER  else, when all blocks of the sequence, ceil((n_tokens + reserve) / S), exceed usable -
 *        watermark.
 * LATER  else. Only blocks count: KVP_E_NO_SEQS and KVP_E_PLAN_FULL are not considered.
 *
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_ARG as for kvp_seq_open
 * Thread:  cache (uses scratch memory; changes nothing). Cost: O(n_tokens) */
KVP_SIZED kvp_status kvp_can_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  kvp_admission *out_admission);

/* Ask whether kvp_seq_extend_many (all or nothing) would find its blocks now. Copy-on-write is
 * counted exactly: if j sequences of the batch share a block with h holders in all, j copy it when
 * h > j, else j - 1. There is no watermark: running sequences may use all blocks.
 * OK when need <= available; NEVER when one sequence alone would have more than usable blocks (the
 * largest excess is missing_blocks); else LATER. Token values are not considered.
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_STATE: one is swapped out; KVP_E_IN_FLIGHT; KVP_E_ARG for
 *          a sequence named twice
 * Thread:  cache (uses scratch memory; changes nothing). Cost: as the extend */
KVP_SIZED kvp_status kvp_can_extend(kvp_cache *cache, const kvp_batch *batch,
                                    kvp_admission *out_admission);

/* Count the blocks of n_tokens tokens: ceil(n_tokens / block_tokens); 0 when block_tokens is 0.
 * Thread: pure. */
KVP_API uint64_t kvp_blocks_for_tokens(uint32_t block_tokens, uint64_t n_tokens);

/* Count the blocks that a sequence of n_tokens tokens without reserve needs in addition, for
 * `n_new` more tokens and `reserve` slots. Copy-on-write is not counted. Thread: pure. */
KVP_API uint64_t kvp_blocks_for_append(uint32_t block_tokens, uint64_t n_tokens, uint64_t n_new,
                                       uint64_t reserve);

/* --------------------------------------------------------------- what a call did: plan, evicted */

/* One block copy. */
typedef struct kvp_copy {
    uint32_t phase;   /* 0, 1, ...: phases run in order, copies of a phase in any order */
    uint16_t group;   /* layer group */
    uint8_t src_tier; /* KVP_DEVICE, KVP_HOST */
    uint8_t dst_tier;
    int32_t src_block;
    int32_t dst_block;
    uint32_t n_tokens; /* used slots, from the block's start: 1..S */
} kvp_copy;

/* Take the plan: the copies that must run, in order, before any forward pass that uses the rows.
 *
 * Copies wait in the plan, over several calls, until they are taken. A copy is removed if its
 * destination block becomes free or is evicted before that, unless a later copy in the plan reads
 * the block. (A destination that becomes cached keeps its copy: its content can be hit.) Within a
 * phase no block is both source and destination, and none is a destination twice. A new phase
 * begins only where this requires it. Phases count from 0 in each plan. A plan has at most
 * max_copies copies (kvp_cache_config). A smaller buffer is allowed: if it does not suffice, the
 * plan stays whole and waits, and the call can be made again with room for out_n_copies.
 *
 * Takes:   capacity     of out_copies; 0 asks for the number only, and takes nothing
 * Gives:   out_copies   [out_n_copies]; out_n_copies is written also on KVP_E_TOO_SMALL
 * Returns: KVP_OK: the plan is empty now; KVP_E_TOO_SMALL: nothing was taken; KVP_E_STATE with
 *          KVP_STEPS_OVERLAPPED: kvp_step_begin takes the plan
 * Thread:  cache. Cost: O(copies) */
KVP_API kvp_status kvp_plan_take(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                                 uint32_t *out_n_copies);

/* A cached block that lost its content: to a take, for a node, or by drop.h. */
typedef struct kvp_evicted {
    kvp_hash hash; /* of the deepest unit that was sealed in the block */
    int32_t block;
    uint8_t tier;   /* KVP_DEVICE, KVP_HOST */
    uint8_t kept;   /* 1: a device block whose content the plan copies to the host; the host block
                       that was evicted for it, if any, stands before it */
    uint16_t group; /* layer group */
} kvp_evicted;

/* Read what the most recent call that changed the cache evicted, in order. Each changing call that
 * succeeds starts the list again, often empty. Failing and reading calls leave it.
 * Gives:   out_evicted  [out_n] in the cache, valid until the next call that changes it
 * Returns: KVP_OK. Thread: read. Cost: O(1) */
KVP_API kvp_status kvp_cache_evicted(const kvp_cache *cache, const kvp_evicted **out_evicted,
                                     uint32_t *out_n);

/* --------------------------------------------------------------------------------------- blocks */

enum {
    KVP_BLOCK_NULL = 0,
    KVP_BLOCK_FREE = 1,
    KVP_BLOCK_CACHED = 2,
    KVP_BLOCK_HELD = 3,
    KVP_BLOCK_PARKED = 4
};

typedef struct kvp_block_info {
    uint32_t state;         /* KVP_BLOCK_... */
    uint32_t ref_count;     /* rows that refer to it, and copies out in steps that keep it */
    uint64_t generation;    /* rises by 1 when the block is evicted, released without a sealed unit,
                               freed by an invalidate or by reset (unless free); and, for a held
                               block, once per call that detaches sealed units from it */
    uint32_t retention;     /* class, 0..7; 0 for a block that was never taken */
    uint32_t sealed_units;  /* nodes attached to this block */
    uint32_t sealed_tokens; /* end of the deepest attached unit within the block, tokens; all before
                               it is valid KV of the same prefix */
    kvp_hash hash;          /* of the deepest attached unit; zero when there is none */
    uint32_t group;         /* layer group that took it last; 0: not taken since reset */
} kvp_block_info;

/* Read what is known of a block.
 * Takes:   group        a layer group, any of them: they share the pool
 *          tier         KVP_DEVICE, KVP_HOST
 *          block        0..N-1 of that tier
 * Returns: KVP_OK; KVP_E_ARG: no such group, tier or block. Thread: read. Cost: O(S / U) */
KVP_SIZED kvp_status kvp_block_info_get(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                        int32_t block, kvp_block_info *out_info);

/* Read the tokens of a block's sealed content: sealed_tokens of them, from the block's start.
 * Gives:   out_tokens   [S], out_n_tokens
 * Returns: as kvp_block_info_get. Thread: read. Cost: O(S) */
KVP_API kvp_status kvp_block_tokens(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                    int32_t block, int32_t *out_tokens, uint32_t *out_n_tokens);

#include "sized/cache.h"

#include "recording.h"

#ifdef __cplusplus
}
#endif
#endif

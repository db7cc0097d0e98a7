/* kvpager/cache.h: the cache, in full. Namespaces, sequences, blocks, admission, plans.
 * kvpager.h has the calls that every engine makes. Here are the others, and the rules in full.
 *
 * Rules for every call:
 *
 *   - A call that fails changes nothing that can be observed and writes no output, except where its
 *     comment says so. kvp_cache_shortage_get() reports what was missing.
 *   - The first check that fails gives the status. Pointers and struct_size come first (E_ARG),
 *     then handles, in order (E_HANDLE), then a sequence named twice (E_ARG). Then, for each
 *     sequence in order: values and positions (E_ARG), states (E_STATE, then E_DROPPED),
 *     E_TOO_LONG, E_IN_FLIGHT. Last come E_NO_SEQS or E_NO_NAMESPACES, blocks (E_NEVER,
 *     E_NO_BLOCKS), and E_PLAN_FULL.
 *   - KVP_E_ARG: a NULL pointer that is not allowed, another struct_size, or a value out of
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
 *
 * ------------------------------------------------------------------------- seven calls, in full
 *
 * Arena (kvp_cache_create). A copy of its bytes (or of the kvp_cache_bytes bytes of a mapped
 * cache), made between calls and 64-byte aligned, is another cache in the same state. The same
 * handles work on it; a recording is not copied. Other processes that map the arena can inspect it
 * (inspect.h).
 *
 * Open. kvp_prompt.hashes are those of kvp_hash_units with this cache's U and seed, the namespace's
 * name and the same keys. A wrong one between the first and the last costs hits, and evicted blocks
 * are reported under it; it never makes a hit wrong.
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
 *                (KVP_STOP_NO_ROOM). It also does where more blocks are on the host than the plan
 *                can ever hold: max_copies - 1.
 *   the rest     ceil((n_tokens + reserve_tokens) / S) minus the shared blocks are taken, in row
 *                order. kvp_cache_evicted lists the victims.
 *   order        First hits are held, in row order. If nodes are free for all other units, these
 *                get theirs next, so a unit that is known and not hit keeps its node whatever is
 *                evicted. Then blocks are taken, in row order; each copy enters the plan when its
 *                block is taken. Otherwise the other units get nodes last.
 * If no node is free for a unit, here or when it fills later, content is evicted until one is, as
 * by kvp_cache_reclaim: of the host, then the device (not copied to the host), then checkpoints. If
 * none is free after 1,024 evictions, or nothing is cached, the sequence's tokens from there on are
 * not kept. They can be used, but not read back or published (stats.unkept_units).
 *
 * Extend. In order:
 *   1. Copy-on-write. If such a slot lies in a block of the row that has other holders, a taken
 *      block replaces it (the row's version rises). If computed tokens lie in it, the plan gets a
 *      copy of its used slots: from its start to the sequence's tokens before this call. Computed
 *      public units that are sealed or duplicates in the old block are duplicates in the new one.
 *   2. Overwriting. In a block without other holders, the units from the first such slot on are
 *      detached from their nodes (detached_units). A duplicate elsewhere takes the place of each.
 *      They are also struck as duplicates.
 *   3. Blocks are taken until the row has ceil((tokens + new + reserve) / S), never fewer than now.
 *
 * Commit.
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
 * Invalidate.
 * Public units of the sequence from the one with token `from` on are withdrawn. Their nodes lose
 * every block (detached_units counts each attached unit) and can never be found again. Neither can
 * what any sequence computed after them, so these tokens are computed again when they are opened.
 * Cached blocks without a sealed unit left become free, in row order. The sequence keeps its tokens
 * and blocks, private from there on (truncate to `from` and extend, to publish again). A truncate
 * or fork inside a unit leaves KV of it without the unit. So public units after the same prefix go,
 * too, in the order of their hashes, that were cut so by a sequence that had them computed, and
 * begin with the same tokens up to `from`, whatever keys.
 *
 * The call reports other sequences whose KV is or may be wrong, too; invalidate or close them. They
 * have more than `from` tokens and, from there on, a block of this row or a withdrawn unit that
 * begins where the first one does. (A fork that copied the block, and has no public unit there, is
 * not known to share.) Every sequence with such a unit is private from there on. What a closed one
 * left behind cannot be withdrawn. So if you commit ahead of the work, keep the sequence open until
 * the work has run, or flush. This is also how one prefix is forgotten, on both tiers: open it,
 * invalidate from the first token to forget, close (docs/EMBEDDING.md, 10; or kvp_ns_flush).
 *
 * Fork.
 * A child shares KV, so there must be some: after an extend and before its commit the newest tokens
 * have slots only, and KVP_END is refused. Fork before the extend, or after the commit, or at the
 * computed tokens. (Else both would have the same step write the same slot, and a step that fails
 * would leave the child with KV that was never written.)
 *
 * Admission (kvp_cache_can_open).
 * need   = taken blocks + shared cached blocks. The source of a hit inside a block counts, too, if
 *        it is a cached device block (if that does not fit, the hit is cut, see kvp_seq_open).
 * OK     when need <= available - watermark. The watermark counts as 0 while no block is held.
 * NEVER  else, when all blocks of the sequence, ceil((n_tokens + reserve) / S), exceed usable -
 *        watermark.
 * LATER  else. Only blocks count: KVP_E_NO_SEQS and KVP_E_PLAN_FULL are not considered.
 *
 * The plan.
 * Copies wait in the plan, over several calls, until they are taken. A copy is removed if its
 * destination block becomes free or is evicted before that, unless a later copy in the plan reads
 * the block. (A destination that becomes cached keeps its copy: its content can be hit.) Within a
 * phase no block is both source and destination, and none is a destination twice. A new phase
 * begins only where this requires it. Phases count from 0 in each plan. A plan has at most
 * max_copies copies (kvp_cache_config_get). A smaller buffer is allowed: if it does not suffice,
 * the plan stays whole and waits, and the call can be made again with room for out_n_copies.
 */
#ifndef KVPAGER_CACHE_H
#define KVPAGER_CACHE_H

#include "kvpager.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ configuration and the cache */

/* Say how many bytes of bookkeeping a configuration needs: the size of the arena.
 * Each unit of the pool needs about 128 + 4 U bytes; the system backs only what is touched. Each
 * sequence needs 4 bytes for each block and each unit of max_seq_tokens.
 * Returns: KVP_OK; KVP_E_ARG: not valid; KVP_E_TOO_LONG: more than size_t. Thread: pure */
KVP_API kvp_status kvp_cache_bytes(const kvp_config *config, size_t *out_bytes);

/* Close every sequence, drop all content, and empty the plan.
 * Open namespaces stay open, with new roots. Sequence handles are stale. Counters keep their
 * values. Generations of blocks that had content or a holder rise by 1, and retention classes
 * become 0. Blocks are free in ascending order, and new sequences get the lowest places first.
 * Returns: KVP_OK. Thread: cache. Cost: O(N + nodes + sequences) */
KVP_API kvp_status kvp_cache_reset(kvp_cache *cache);

/* Read the configuration back, defaults resolved; uncached_tokens points into the cache.
 * Returns: KVP_OK. Thread: read. */
KVP_API kvp_status kvp_cache_config_get(const kvp_cache *cache, kvp_config *out_config);

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
KVP_API kvp_status kvp_cache_shortage_get(const kvp_cache *cache, kvp_shortage *out_shortage);

/* What kvp_cache_check found. */
typedef struct kvp_violation {
    char invariant[8];  /* its number, as in "T1"; "" when nothing was found */
    uint64_t object;    /* block id, node index or sequence slot, by invariant */
    const char *detail; /* static text */
} kvp_violation;

/* Audit the cache.
 * Takes:   level        1: sums, O(1); 2: and pool and queue, O(N); 3: every invariant, O(all)
 * Gives:   out_violation  the first one found; written also on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_ARG (level not 1..3); KVP_E_CORRUPT. Thread: cache (changes nothing) */
KVP_API kvp_status kvp_cache_check(kvp_cache *cache, int level, kvp_violation *out_violation);

/* ----------------------------------------------------------------------------------- namespaces */

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

/* Ask how much of a prompt is cached, without holding or changing anything.
 * Answers as kvp_seq_open would with enough blocks and an empty plan.
 * Returns: KVP_OK; KVP_E_TOO_LONG
 * Thread:  cache (uses scratch memory; changes nothing)
 * Cost:    O(n_tokens) */
KVP_API kvp_status kvp_cache_match(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                   kvp_open_info *out_info);

/* Check a prompt, as kvp_seq_open does before it looks for blocks.
 * Gives:   out_why      written always, zero for a handle or an arena that is refused; may be NULL
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_ARG as for kvp_seq_open
 * Thread:  cache (uses scratch memory; changes nothing, and is not recorded). Cost: O(n_tokens) */
KVP_API kvp_status kvp_prompt_check(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                    kvp_why *out_why);

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

/* Make room for more tokens of many sequences, in the order given: kvp_seq_extend for each.
 * Without KVP_BATCH_EACH the call is all or nothing. kvp_cache_shortage_get().index names the first
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

/* Declare the KV of many sequences computed: kvp_seq_commit for each, in order. All or nothing.
 * Takes:   seqs, n_tokens  [n_seqs], each sequence once
 * Returns: as kvp_seq_commit. Thread: cache. Cost: O(n_seqs + units sealed) */
KVP_API kvp_status kvp_seq_commit_many(kvp_cache *cache, const kvp_seq *seqs,
                                       const uint32_t *n_tokens, uint32_t n_seqs);

/* ------------------------------------------------------------------------ fork, truncate, close */

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
    uint32_t kept_tokens;   /* leading tokens whose values the cache has: <= known_tokens */
    uint32_t n_blocks;      /* length of the row */
    uint32_t stop;          /* KVP_STOP_... of the match at open; of the parent's for a fork */
    int32_t last_token;     /* value of the last known token; -1 when there is none, or not kept */
    uint32_t retention;
    uint32_t tier;        /* KVP_HOST: swapped out, the row's ids are the host's */
    uint32_t tree_tokens; /* tokens of its tree, not accepted yet, behind its tokens: trees.h */
    uint32_t stop_group;  /* as of kvp_open_info, at open; of the parent's for a fork */
    uint32_t reserved;    /* 0 */
} kvp_seq_info;

/* Read all that is known of a sequence, at one moment between two calls. Not recorded.
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_AGAIN: a call was inside at each of 8 tries. Thread: any */
KVP_API kvp_status kvp_seq_info_get(const kvp_cache *cache, kvp_seq seq, kvp_seq_info *out_info);

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

/* Ask whether kvp_seq_extend_many (all or nothing) would find its blocks now. Copy-on-write is
 * counted exactly: if j sequences of the batch share a block with h holders in all, j copy it when
 * h > j, else j - 1. There is no watermark: running sequences may use all blocks.
 * OK when need <= available; NEVER when one sequence alone would have more than usable blocks (the
 * largest excess is missing_blocks); else LATER. Token values are not considered.
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_STATE: one is swapped out; KVP_E_IN_FLIGHT; KVP_E_ARG for
 *          a sequence named twice
 * Thread:  cache (uses scratch memory; changes nothing). Cost: as the extend */
KVP_API kvp_status kvp_cache_can_extend(kvp_cache *cache, const kvp_batch *batch,
                                        kvp_admission *out_admission);

/* Count the blocks of n_tokens tokens: ceil(n_tokens / block_tokens); 0 when block_tokens is 0.
 * Thread: pure. */
KVP_API uint64_t kvp_blocks_for_tokens(uint32_t block_tokens, uint64_t n_tokens);

/* Count the blocks that a sequence of n_tokens tokens without reserve needs in addition, for
 * `n_new` more tokens and `reserve` slots. Copy-on-write is not counted. Thread: pure. */
KVP_API uint64_t kvp_blocks_for_append(uint32_t block_tokens, uint64_t n_tokens, uint64_t n_new,
                                       uint64_t reserve);

/* --------------------------------------------------------------- what a call did: plan, evicted */

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
 * succeeds starts the list again, often empty. Failing and reading calls leave it. It has room for
 * what one sequence of max_seq_tokens takes, a block more for each of max_seqs; at least for 4,096,
 * and for a 64th of n_blocks. Events (events.h) tell of all that a larger call evicts.
 * Gives:   out_evicted  [out_n] in the cache, valid until the next call that changes it
 * Returns: KVP_OK; KVP_E_BEHIND: the call evicted more, and these are the first
 * Thread:  read. Cost: O(1) */
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
KVP_API kvp_status kvp_block_info_get(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                      int32_t block, kvp_block_info *out_info);

/* Read the tokens of a block's sealed content: sealed_tokens of them, from the block's start.
 * Gives:   out_tokens   [S], out_n_tokens
 * Returns: as kvp_block_info_get. Thread: read. Cost: O(S) */
KVP_API kvp_status kvp_block_tokens(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                    int32_t block, int32_t *out_tokens, uint32_t *out_n_tokens);

#ifdef __cplusplus
}
#endif
#endif

/* kvpager/kvpager.h: the front door. These calls are all that most engines need:
 *
 *   kvp_config config;
 *   kvp_config_init(&config);                              then set n_blocks, max_seqs, ...
 *   kvp_cache_create(&config, NULL, 0, &cache);            bookkeeping only: no KV memory here
 *   kvp_ns_open(cache, "llama-8b", 8, &ns);
 *   kvp_seq_open(cache, ns, &prompt, &seq, &info);         match the prefix, hold it, take the rest
 *   ... run the prompt's tokens from info.cached_tokens on; rows and slots tell where ...
 *   kvp_seq_commit(cache, seq, n);                         the first n tokens' KV is written
 *   kvp_seq_extend(cache, seq, &token, 1, 0);              room for the next token
 *   kvp_seq_close(cache, seq, NULL);                       full units stay cached
 *
 * cache.h has the other calls and the rules in full, types.h the words; each feature has a header
 * of its own, and all.h includes them all.
 *
 * What goes wrong:
 *   - Two threads. "Thread: cache" means that no other call is inside the cache; a second one gets
 *     KVP_E_BUSY. "read" may run beside reads, "any" beside a change, "pure" anywhere.
 *   - A commit too soon. It promises that the KV is written before anything can read it. After a
 *     failed step call kvp_seq_invalidate; without it, others may hit KV that is not there.
 *   - A plan not taken. Its copies must run before the forward pass that uses the rows.
 *   - Old pointers. What a call points to lies in the cache, until the next call that changes it.
 *   - A full hit. If every token is cached, the last one still runs for its logits, and its slot,
 *     KVP_NO_SLOT, must not be written.
 *   - More than token ids (images, adapters). A hit promises equal ids, keys and namespace only.
 *   - struct_size. Set it by the init call, or by name: {.struct_size = sizeof x, ...}.
 *
 * A call that fails changes nothing and writes no output, except where its comment says so. Every
 * call can return KVP_E_ARG and KVP_E_HANDLE; calls on a cache, KVP_E_BUSY. After kvp_cache_create
 * nothing allocates; no call blocks or reads a clock.
 */
#ifndef KVPAGER_H
#define KVPAGER_H

#include "config.h"
#include "stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Create a cache.
 * Takes:   config       copied
 *          arena        NULL: the library maps memory (huge pages when the system grants them).
 *                       Else the caller's memory, 64-byte aligned, arena_bytes >= kvp_cache_bytes;
 *                       its content is ignored
 * Gives:   out_cache
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG; KVP_E_TOO_SMALL when arena_bytes is too small;
 *          KVP_E_NO_MEMORY when mapping fails
 * Owns:    the caller's arena stays the caller's, in use until destroy; a copy of its bytes is
 *          another cache in the same state (cache.h)
 * Thread:  any. Blocks: never. Cost: O(arena); the only call that allocates */
KVP_API kvp_status kvp_cache_create(const kvp_config *config, void *arena, size_t arena_bytes,
                                    kvp_cache **out_cache);

/* Destroy the cache, and unmap the arena if the library mapped it. NULL is ignored. All handles
 * become void. A running recording is stopped. Thread: cache. */
KVP_API void kvp_cache_destroy(kvp_cache *cache);

/* Open a namespace by name. Namespaces separate tenants, adapters and model versions.
 * If the name is open already, the call gives the same handle and counts one more opener. Names are
 * compared byte by byte. Two namespaces never share anything.
 * Takes:   name         [name_bytes], 0..255 bytes
 * Returns: KVP_OK; KVP_E_NO_NAMESPACES: max_namespaces are open, or no node is free for the root
 * Thread:  cache. Cost: O(max_namespaces) */
KVP_API kvp_status kvp_ns_open(kvp_cache *cache, const void *name, size_t name_bytes,
                               kvp_ns *out_ns);

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
    const kvp_hash *hashes;  /* [n_tokens / U] from kvp_hash_units (hash.h), or NULL. First and last
                                are verified (KVP_E_ARG); a wrong one costs hits, nothing else */
    const kvp_key *keys;     /* [n_keys] ascending by begin, inside the tokens; or NULL */
    uint32_t n_keys;
    uint32_t n_uncached;
    const kvp_range *uncached; /* [n_uncached] positions that must not be cached, now or when they
                                  are reached later; or NULL */
    uint32_t flags;
    uint32_t retention; /* class, 0..7, of the blocks that this sequence takes; default 0 */
    uint64_t tag;       /* the caller's own */
} kvp_prompt;

/* Why a match ended where it did: kvp_open_info.stop. */
enum {
    KVP_STOP_END = 0,      /* every full unit of the prompt was hit */
    KVP_STOP_MISS = 1,     /* the next unit is not known after this prefix */
    KVP_STOP_NO_KV = 2,    /* it is known, but no block has its KV: being computed, or evicted */
    KVP_STOP_UNCACHED = 3, /* the next unit holds a token that must not be cached */
    KVP_STOP_OFF = 4,      /* prefix_cache is 0, or KVP_OPEN_NO_MATCH */
    KVP_STOP_FULL_HIT = 5, /* all was there; cut back by KVP_FULL_HIT_RECOMPUTE */
    KVP_STOP_NO_ROOM = 6   /* no room for the copies that the hit needs: cache.h, "Open" */
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

enum { KVP_ADMIT_OK = 0, KVP_ADMIT_LATER = 1, KVP_ADMIT_NEVER = 2 };

typedef struct kvp_admission {
    uint32_t verdict;        /* KVP_ADMIT_... */
    uint32_t need_blocks;    /* blocks that leave the queue: taken, and hits that are cached */
    uint32_t available;      /* free + cached now */
    uint32_t missing_blocks; /* LATER: how many more must become available; NEVER: by how many the
                                need alone exceeds the limit; OK: 0 */
    uint32_t copied_blocks;  /* swap.h: new blocks that the plan would copy to; else 0 */
} kvp_admission;

/* Ask whether kvp_seq_open would find its blocks now.
 * OK when the blocks that would leave the queue are available and the watermark stays (it counts as
 * 0 while no block is held); NEVER when all blocks of the sequence exceed the pool less the
 * watermark; else LATER (cache.h, "Admission").
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_ARG as for kvp_seq_open
 * Thread:  cache (uses scratch memory; changes nothing). Cost: O(n_tokens) */
KVP_API kvp_status kvp_cache_can_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                      kvp_admission *out_admission);

/* Open a sequence: match the longest cached prefix, hold its blocks, take blocks for the rest.
 *
 * The call walks the units of the prompt from the namespace's root. A unit is hit if its node
 * follows the node before (tokens and keys are compared) and a block of either tier has its KV. The
 * walk ends at the first unit with a token that must not be cached. Only full units are hit. Then:
 *
 *   hit blocks   fill floor(hit_tokens / S) entries of the row: shared where the device has them,
 *                else copied from the host by the plan, as is a hit that ends inside a block
 *   the rest     ceil((n_tokens + reserve_tokens) / S) minus the shared blocks are taken, in row
 *                order. kvp_cache_evicted lists the victims.
 *   counts       tokens = prompt = n_tokens; computed = hit_tokens; cached = cached_tokens. If all
 *                n_tokens are hit, the last token must still run to get its logits. Its KV is
 *                there, so its slot is KVP_NO_SLOT.
 *   writable     slots of tokens from hit_tokens to n_tokens + reserve_tokens.
 *
 * The call succeeds exactly when kvp_cache_can_open says OK (and a sequence is free). Example: S =
 * U = 4, and blocks for [1 2 3 4][5 6 7 8] are cached. Opening 1..8,9,10 shares two blocks and
 * takes one, cached_tokens 8. Opening 1..8 shares two and takes none, cached_tokens 7.
 * cache.h, "Open", has the order of copies, and what happens when no node is free.
 * Takes:   prompt       read during the call only
 * Gives:   out_seq, out_info (may be NULL)
 * Returns: KVP_OK; KVP_E_NO_BLOCKS, KVP_E_NEVER (see kvp_cache_can_open); KVP_E_NO_SEQS;
 *          KVP_E_TOO_LONG when n_tokens + reserve_tokens exceeds max_seq_tokens; KVP_E_PLAN_FULL;
 *          KVP_E_ARG also for: hashes that do not verify; keys that are not ascending, lie outside
 *          the tokens, are longer than KVP_KEY_MAX_BYTES, or more than max_unit_keys in a unit;
 *          empty ranges; retention > 7; a negative token id
 * Owns:    close the sequence to give everything back
 * Thread:  cache. Cost: O(n_tokens), 16 ns per unit for a hit (bench/README.md), amortised */
KVP_API kvp_status kvp_seq_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                kvp_seq *out_seq, kvp_open_info *out_info);

/* Make room for more tokens of a sequence.
 *
 * Afterwards the slots of all tokens that are not computed, and of `reserve_tokens` more, are
 * writable, and the row has at least ceil((tokens + new + reserve) / S) blocks. A block that others
 * hold, too, is replaced before it is written (copy-on-write: the row's version rises, and the plan
 * copies what is computed); units of the sequence's own blocks that will be overwritten are
 * detached (cache.h, "Extend").
 *
 * With values, full units become nodes. Without values (tokens NULL), the tokens exist, but their
 * values are unknown until kvp_seq_fill. While there are such tokens, extending with values is
 * KVP_E_STATE. With no tokens and no reserve, the call makes the slots of uncomputed tokens
 * writable (after invalidate or fork). Slots stay writable until truncate or invalidate cuts them.
 * Returns: KVP_OK; KVP_E_NO_BLOCKS; KVP_E_NEVER; KVP_E_TOO_LONG; KVP_E_STATE, also when it is
 *          swapped out; KVP_E_PLAN_FULL; KVP_E_IN_FLIGHT: see steps.h; KVP_E_ARG also for a
 *          negative token id
 * Thread:  cache. Cost: O(n_tokens + blocks from the first uncomputed token on) */
KVP_API kvp_status kvp_seq_extend(kvp_cache *cache, kvp_seq seq, const int32_t *tokens,
                                  uint32_t n_tokens, uint32_t reserve_tokens);

/* Declare the KV of the first n_tokens computed: written, or ordered to be written before anything
 * can read it.
 * Copies read it, too. An engine that commits ahead of the work must take the plan of that work
 * first. Then copies of what was committed (swaps, kept evictions, copy-on-write) come later.
 *
 * Every full public unit with known values up to n_tokens is sealed: others can hit it from now on.
 * If another block has a full block's content already, KVP_ADOPT switches the row to that block
 * (its version rises), and KVP_KEEP keeps a duplicate (cache.h, "Commit").
 * Returns: KVP_OK; KVP_E_ARG when n_tokens exceeds the sequence's tokens; KVP_E_STATE when slots up
 *          to n_tokens were never made writable (after invalidate: extend first); KVP_E_DROPPED
 *          after KVP_OPEN_RECEIVE: fewer tokens than were to be received
 * Thread:  cache. Cost: O(units sealed) */
KVP_API kvp_status kvp_seq_commit(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens);

/* Take back the KV of tokens from `from` on: the step that was to write it failed.
 *
 * computed becomes min(computed, from), and nothing from there on is writable: call kvp_seq_extend
 * (with 0 tokens) before computing it again. The sequence's public units from the one with token
 * `from` on are withdrawn, with all that was computed after them, and can never be found again. The
 * sequence keeps its tokens and blocks, private from there on (truncate to `from` and extend, to
 * publish again). The call reports the other sequences whose KV is or may be wrong: invalidate or
 * close them, too. What a closed one left behind cannot be withdrawn, so if you commit ahead of the
 * work, keep the sequence open until the work has run. It is also how one prefix is forgotten, on
 * both tiers: open it, invalidate from the first token to forget, close (cache.h, "Invalidate").
 * Gives:   out_seqs     [capacity] the sharing sequences, in the order of their places (a new
 *                       sequence gets the place freed last, else the lowest); NULL: capacity is 0
 *          out_n_seqs   how many there are, capacity 0 asks; NULL: capacity 0, and do not report
 * Returns: KVP_OK; KVP_E_ARG when from exceeds the tokens; KVP_E_TOO_SMALL: nothing was changed
 * Thread:  cache. Cost: O(units + open sequences x blocks, from `from` on; nodes, per cut unit) */
KVP_API kvp_status kvp_seq_invalidate(kvp_cache *cache, kvp_seq seq, uint32_t from,
                                      kvp_seq *out_seqs, uint32_t capacity, uint32_t *out_n_seqs);

/* What a call released. With overlapped steps, a parked block counts as what it will become. */
typedef struct kvp_released {
    uint32_t freed_blocks;  /* became free */
    uint32_t cached_blocks; /* became cached */
} kvp_released;

/* Fork: make a second sequence that shares everything before `at`.
 * The call takes no block. All blocks are shared by reference, also a partly filled last one. The
 * first sequence to write to a shared block gets its own copy (kvp_seq_extend). The child has
 * tokens = computed = at, no reserve and no writable slot. It has the parent's prompt and cached,
 * cut to at, its uncached ranges, retention class and namespace, and its keys as after
 * kvp_seq_truncate. Slots that the parent was given stay valid.
 * Fork before an extend, after its commit, or at the computed tokens (cache.h, "Fork").
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
 * Copies wait in the plan, over several calls, until they are taken. Within a phase no block is
 * both source and destination, and none is a destination twice (cache.h, "The plan").
 * Takes:   capacity     of out_copies; 0 asks for the number only, and takes nothing
 * Gives:   out_copies   [out_n_copies]; out_n_copies is written also on KVP_E_TOO_SMALL
 * Returns: KVP_OK: the plan is empty now; KVP_E_TOO_SMALL: nothing was taken; KVP_E_STATE with
 *          KVP_STEPS_OVERLAPPED: kvp_step_begin takes the plan
 * Thread:  cache. Cost: O(copies) */
KVP_API kvp_status kvp_plan_take(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                                 uint32_t *out_n_copies);

#ifdef __cplusplus
}
#endif
#endif

/* kvpager/lend.h: what a store outside the cache needs. Host blocks lent to it, for a while.
 *
 *   config.max_loads = 64;                           blocks can be lent; at most half of the tier
 *   ...
 *   kvp_cache_cold_end(cache, KVP_HOST, &cursor, cold, 64, &n);      writing: what would go next,
 *   kvp_block_origin_get(cache, KVP_HOST, cold[0].block, &origin);            what it is,
 *   kvp_cache_lend(cache, &cold[0].block, 1);                 hold it while it is written,
 *   kvp_cache_give_back(cache, &cold[0].block, 1);               and let it go
 *
 *   kvp_load_begin(cache, ns, &prompt, &load);                 reading: host blocks to fill,
 *   kvp_load_done(cache, load.number, whole, load.n_blocks, NULL);   and which of them are whole
 *   kvp_seq_open(cache, ns, &prompt, &seq, &info);             finds them
 *
 * The engine's copies run in the order of plans. A store's reads and writes run beside them, so the
 * cache has to know which copies have run. Plans are counted from 1: with ordered steps each
 * kvp_plan_take that takes (capacity above 0) is one, and kvp_plan_done reports it; with overlapped
 * steps a plan is its step's, and is over when that has taken effect. A plan that failed is never
 * reported done with ordered steps: reset the cache, or go on without stores.
 *
 * Lent blocks. A host block is lent when a load fills it, or when a store reads it
 * (kvp_cache_lend). Until it is given back it is neither free nor cached, and is not taken. At
 * most config.lent_blocks are lent at once, so swap-outs always have the others:
 *
 *   usable = free + cached + held + loading      (kvp_stats; held: by rows, copies, and stores)
 *
 * kvp_cache_reset forgets loads, and takes back what is lent: no store may work on a block then.
 *
 * Loading. A load is of row entries of one layer group, the whole of each: S tokens whose units are
 * all public. A block that is being loaded belongs to no unit yet, so no match finds it. When it is
 * reported whole, its units are attached as commit attaches them, and it is cached. It is dropped,
 * and free, when it is not whole, when the entry's last unit got a block on either tier meanwhile,
 * or when that unit cannot be found any more (flushed, withdrawn). Where several layer groups need
 * the prefix, load each of them; a match uses what all groups have (windows.h).
 *
 * Loads of states. With recurrent state (states.h) a prefix is hit only where a state was kept. A
 * load of group n_groups and of one entry, [e - 1, e), brings the state after e x S tokens into a
 * slot of the host (host_state_slots). When that is reported whole, a slot of the device is taken,
 * evicting another checkpoint if need be. It is the checkpoint of the entry's last unit from then
 * on, cached, and the plan copies the state there. (With overlapped steps no prompt hits it before
 * the step of that plan is done.) The host slot is free. A state is dropped where a layer group has
 * no KV of that unit, so end the loads of blocks first. It is also dropped if no slot of the device
 * is available, or the plan has no room. Blocks behind the last state that a store has are not
 * worth loading. At most half of the usable host slots, rounded up, are loading at once. To write a
 * state to a store, fork the sequence at the checkpoint: the fork holds the slot,
 * kvp_state_info.read_slot, until it is closed.
 *
 * A block is not believed because it was loaded: the caller that reports it has compared the
 * record's tokens, keys and checksum with what was asked for.
 *
 * Without config.max_loads nothing of this costs memory; kvp_cache_cold_end, kvp_block_origin_get,
 * kvp_block_prefix, kvp_block_keys and kvp_cache_mirror work, the others are KVP_E_STATE.
 */
#ifndef KVPAGER_LEND_H
#define KVPAGER_LEND_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------- the cold end */

/* Where a walk along the queues stands. All zero: at the cold end. */
typedef struct kvp_cold_cursor {
    uint64_t generation; /* of the block */
    int32_t block;       /* the one that was given last; 0: none yet */
    uint32_t ended;      /* 1: there are no more */
} kvp_cold_cursor;

/* A cached block. */
typedef struct kvp_cold {
    uint64_t generation; /* kvp_block_info: while it stays, the block has the same content */
    int32_t block;
    uint32_t group;     /* layer group */
    uint32_t retention; /* class */
    uint32_t n_tokens;  /* of the prefix that ends in it: kvp_block_prefix */
    uint32_t elsewhere; /* 1: the other tier has its deepest unit, too */
    uint32_t findable;  /* 1: a match can find it: public, and not flushed */
} kvp_cold;

/* List cached blocks in the order in which takes evict them, from a cursor on.
 *
 * The order is that of the queue (cache.h): quotas may put others before it, and KVP_POLICY_LEARNED
 * evicts in another order. While nothing changes,
 * the same blocks come in the same order, however the list is cut into calls. When the block that
 * was given last has lost its content or is held, the list begins at the cold end again; when it
 * was queued again, it goes on from there.
 *
 * Takes:   tier         KVP_DEVICE, KVP_HOST
 *          cursor       zeroed at first; moved
 *          capacity     of out_cold; 0 asks for the number of cached blocks, and moves nothing
 * Gives:   out_cold     [out_n]; fewer than capacity only at the end
 * Returns: KVP_OK; KVP_E_ARG
 * After-failure: unchanged
 * Thread:  read. Not recorded. Cost: O(free blocks + capacity)
 */
KVP_API kvp_status kvp_cache_cold_end(const kvp_cache *cache, uint32_t tier,
                                      kvp_cold_cursor *cursor, kvp_cold *out_cold,
                                      uint32_t capacity, uint32_t *out_n);

/* ----------------------------------------------------------------------------- what a block is */

/* What the content of a block is of. All zero, but generation and group, when it has none. */
typedef struct kvp_block_origin {
    uint64_t generation; /* kvp_block_info */
    uint64_t after;      /* a host block: the plan whose copy writes it; 0: none that is counted */
    kvp_ns ns;           /* its namespace; 0: no match can find it: nothing to store */
    kvp_hash root;       /* of the namespace */
    kvp_hash parent;     /* of the unit before the block's first one, or of the root */
    kvp_hash hash;       /* of the deepest sealed unit */
    uint32_t group;      /* layer group */
    uint32_t first;      /* position of the block's first token */
    uint32_t n_tokens;   /* of the prefix: up to the end of the deepest sealed unit */
    uint32_t n_keys;     /* of the prefix: kvp_block_keys */
    uint32_t written;    /* 1: that plan is done: what the block holds may be read */
    uint32_t reserved;   /* 0 */
} kvp_block_origin;

/* Tell what the content of a block is of.
 * Returns: KVP_OK; KVP_E_ARG: no block of that tier
 * Thread:  read. Not recorded. Cost: O(prefix in units + max_namespaces) */
KVP_API kvp_status kvp_block_origin_get(const kvp_cache *cache, uint32_t tier, int32_t block,
                                        kvp_block_origin *out_origin);

/* Read the tokens of the prefix that ends with a block's deepest sealed unit.
 *
 * Takes:   capacity     of out_tokens; 0 asks for the number only
 * Gives:   out_tokens   [out_n_tokens]; out_n_tokens is written also on KVP_E_TOO_SMALL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL
 * Thread:  read. Not recorded. Cost: O(prefix)
 */
KVP_API kvp_status kvp_block_prefix(const kvp_cache *cache, uint32_t tier, int32_t block,
                                    int32_t *out_tokens, uint32_t capacity, uint32_t *out_n_tokens);

/* Read the extra keys of that prefix, as a prompt of these tokens may have had them: ascending, and
 * `end` one behind the first token of the last unit that the key touches (begin + 1 in its first).
 *
 * Takes:   capacity     of out_keys; 0 asks for the number only
 * Gives:   out_keys     [out_n_keys] bytes point into the cache, until the next call that changes
 *                       it; out_n_keys is written also on KVP_E_TOO_SMALL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL
 * Thread:  read. Not recorded. Cost: O(prefix x keys of a unit)
 */
KVP_API kvp_status kvp_block_keys(const kvp_cache *cache, uint32_t tier, int32_t block,
                                  kvp_key *out_keys, uint32_t capacity, uint32_t *out_n_keys);

/* -------------------------------------------------------------------------- plans that are over */

/* Report that the copies of the first n_plans plans have run. For ordered steps.
 * Returns: KVP_OK, also when that was reported; KVP_E_STATE: steps are overlapped, or max_loads is
 *          0; KVP_E_ARG: fewer plans were taken (kvp_stats.plans)
 * After-failure: unchanged. Thread: cache. Cost: O(1) */
KVP_API kvp_status kvp_plan_done(kvp_cache *cache, uint64_t n_plans);

/* ---------------------------------------------------------------------------------- to a store */

/* What a mirror did. copied + found + left_out blocks were looked at, in order; the others found no
 * room. */
typedef struct kvp_mirrored {
    uint32_t copied;   /* the plan copies them */
    uint32_t found;    /* the host has their deepest unit, or it is being loaded */
    uint32_t left_out; /* without sealed content that a match can find */
    uint32_t reserved; /* 0 */
} kvp_mirrored;

/* Copy sealed device blocks to the host by the plan, and keep both.
 *
 * For what is so hot that it is never evicted, and would never reach a store. For each block, in
 * order: a host block is taken (evicting there as ever), the plan copies the sealed slots, and the
 * units are attached as for an evicted block that is kept (swap.h); it is cached on the host, in
 * the device block's retention class. With overlapped steps it is found when its step has taken
 * effect; asked for again before, it is copied again. The call stops where there is no room: when
 * only spare_blocks host blocks would be free or cached besides, when a quota of the block's
 * namespace says so (quotas.h), or while 2 x (copies in the plan and in steps out) >= max_copies.
 * The KV of sealed units must be written by work that runs before the next plan.
 *
 * Takes:   blocks        [n_blocks] device blocks
 *          spare_blocks  host blocks that stay free or cached
 * Gives:   out_host      [n_blocks] the host block that is copied to, or that was found; 0: none
 *          out_mirrored  may be NULL
 * Returns: KVP_OK; KVP_E_ARG: no such block; KVP_E_STATE: there is no host tier, or it does not
 *          keep what the device has (KVP_EVICTED_KEEP_ONCE)
 * After-failure: unchanged
 * Thread:  cache        Blocks: never
 * Cost:    O(n_blocks), allocates nothing
 */
KVP_API kvp_status kvp_cache_mirror(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks,
                                    uint32_t spare_blocks, int32_t *out_host,
                                    kvp_mirrored *out_mirrored);

/* Hold host blocks while a store reads them, all or nothing.
 *
 * A block may be lent several times, and is given back as often. Its bytes stay what they are. Its
 * content may be detached meanwhile, by an invalidation: its generation has risen then, and what
 * the store has read must not be kept.
 *
 * Takes:   blocks       [n_blocks] host blocks with sealed content, cached or held
 * Returns: KVP_OK; KVP_E_ARG: no such block; KVP_E_STATE: no sealed content, or max_loads is 0;
 *          KVP_E_IN_FLIGHT: the copy that writes it has not run; KVP_E_AGAIN: lent_blocks are lent.
 *          kvp_cache_shortage_get().index: the first block at fault
 * After-failure: unchanged
 * Thread:  cache        Cost: O(n_blocks)
 */
KVP_API kvp_status kvp_cache_lend(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks);

/* Give lent blocks back, all or nothing. Those without a holder left are queued as by
 * kvp_seq_close, in the order given.
 * Returns: KVP_OK; KVP_E_ARG: one is not lent (so often); KVP_E_STATE: max_loads is 0
 * After-failure: unchanged. Thread: cache. Cost: O(n_blocks) */
KVP_API kvp_status kvp_cache_give_back(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks);

/* -------------------------------------------------------------------------------- from a store */

/* What to load. Zero it, set struct_size = sizeof(kvp_load), then the fields. */
typedef struct kvp_load {
    size_t struct_size;
    uint32_t group;        /* layer group; n_groups: the state after the entry */
    kvp_range entries;     /* row entries [begin, end): tokens from begin x S to end x S */
    uint32_t spare_blocks; /* host blocks, or slots, that stay free or cached: for swap-outs */
    int32_t *blocks;       /* [end - begin] written: the host block of each entry, or the host slot;
                              0: none */
    uint64_t number;       /* written: 1, 2, ... ; 0: there is nothing to load */
    uint64_t after;        /* written: the plan that must be over before a store may write; 0 */
    uint32_t n_blocks;     /* written: of the load */
    uint32_t n_found;      /* written: entries that are there, on either tier */
    uint32_t n_elsewhere;  /* written: entries that other loads bring */
    uint32_t reserved;     /* 0 */
} kvp_load;

/* Begin a load: host blocks for the entries of a prompt that are neither there nor being loaded.
 *
 * Nodes are made for the prompt's units up to the last entry, and live until the load ends; so what
 * is flushed meanwhile stays unreachable. If none is free, content is evicted for one, as by
 * kvp_seq_open. Host blocks of the group that have entries of the prompt from its start to the last
 * one are queued again, the last first, and not taken for the load.
 * The blocks taken have the prompt's retention class and count for the namespace.
 *
 * A store may write to the blocks from when plan `after` is over until the load ends, and nothing
 * else does.
 *
 * Takes:   prompt       its reserve, tag and flags are not looked at
 *          load         group, entries, spare_blocks, blocks
 * Gives:   load         blocks, number, after, n_blocks, n_found, n_elsewhere. With number 0
 *                       nothing was begun or changed
 * Returns: KVP_OK; KVP_E_TOO_LONG; KVP_E_ARG as for kvp_seq_open, for a group or entries that are
 *          none, and for a state of several entries; KVP_E_STATE: max_loads is 0, there is no host
 *          tier, or an entry is not full of public units; KVP_E_NEVER: more blocks than
 *          lent_blocks, or than the tier has beside spare_blocks; KVP_E_NO_BLOCKS: of the host, now
 *          (kvp_cache_shortage_get; tier KVP_HOST_STATE_SLOTS: a slot); KVP_E_AGAIN: max_loads are
 *          begun, lent_blocks are lent, or half of the slots, or no node is free: nothing is cached
 *          any more that could be evicted for one (kvp_seq_open)
 * After-failure: unchanged, but content may have been evicted for nodes (kvp_cache_evicted)
 * Owns:    the load ends by kvp_load_done or kvp_load_cancel
 * Thread:  cache        Blocks: never
 * Cost:    O(tokens up to the last entry), allocates nothing
 */
KVP_API kvp_status kvp_load_begin(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  kvp_load *load);

/* What became of a load's blocks. */
typedef struct kvp_loaded {
    uint32_t cached;   /* whole, and cached now */
    uint32_t dropped;  /* whole, and not needed: there already, flushed, withdrawn; a state also
                          without KV or room */
    uint32_t failed;   /* not whole */
    uint32_t reserved; /* 0 */
} kvp_loaded;

/* End a load: the store has finished with all its blocks.
 *
 * Cached blocks are queued, the last first, so that tails are evicted before their prefixes.
 *
 * Takes:   whole        [n_blocks] for each block that is not 0 in kvp_load.blocks, in their order:
 *                       1 when it has all bytes of the right record, else 0
 *          n_blocks     as kvp_load_begin gave it
 * Gives:   out_loaded   may be NULL
 * Returns: KVP_OK; KVP_E_ARG: no such load, or another n_blocks, or neither 0 nor 1;
 *          KVP_E_IN_FLIGHT: plan `after` is not over, so nothing can be whole
 * After-failure: unchanged
 * Thread:  cache        Cost: O(units of the load + its prefix), allocates nothing
 */
KVP_API kvp_status kvp_load_done(kvp_cache *cache, uint64_t load, const uint8_t *whole,
                                 uint32_t n_blocks, kvp_loaded *out_loaded);

/* End a load of which nothing is whole: all its blocks are free. A store that may still write to
 * them must be waited for first.
 * Returns: KVP_OK; KVP_E_ARG: no such load
 * After-failure: unchanged. Thread: cache. Cost: as kvp_load_done */
KVP_API kvp_status kvp_load_cancel(kvp_cache *cache, uint64_t load);

#ifdef __cplusplus
}
#endif
#endif

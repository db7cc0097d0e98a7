/* kvpager/swap.h: the host tier. Sequences are swapped out and in, and evicted blocks are kept.
 *
 *   config.host_blocks = 8192;
 *   ...
 *   kvp_seq_swap_out(cache, beams, 4, NULL);           all four or none; the plan copies their KV
 *   ...
 *   kvp_cache_can_swap_in(cache, beams, 4, 1, &admission);   with room for one more token each
 *   kvp_seq_swap_in(cache, beams, 4, 1, NULL);
 *
 * The host tier is a second pool of blocks with the same states, queues and rules (cache.h). A node
 * has at most one attached block in each tier. What is on both tiers is the same KV.
 *
 * A sequence is on one tier. If it is swapped out, its row holds the host's ids and its tokens
 * stay. It can be read (kvp_seq_info_get, _tokens, _block_tokens, _row, _window_get, _tree), closed
 * or swapped in; every other call on it is KVP_E_STATE. Sequences move to a tier in the order
 * given:
 *
 *   1. Row entries that hold computed tokens move: ceil(computed / S) of them. Entries behind have
 *      no KV and are only released. Each entry, in order, that no earlier entry of this call had:
 *        found   every unit of it is public and computed, and the last one's node has a block in
 *                the tier we move to: that block is held, nothing is copied;
 *        else    it needs a new block.
 *   2. For each entry that needs one, in the same order, a block is taken (evicting as usual). It
 *      has the retention class of the old block. The plan copies the most slots that any sequence
 *      of this call has computed there. Entries of several sequences that were one block are one
 *      block again. Public computed units of the sequence are attached to the new block where no
 *      block of that tier has them. Other units are duplicates there (none with KVP_ADOPT and U =
 *      S).
 *   3. The old rows are released: sequences in order, each from its last entry down. Sealed content
 *      stays cached where it was, so the way back may cost no copy.
 *   4. When swapping in, room is made as by kvp_seq_extend_many with no tokens and
 *      `reserve_tokens`, in order: blocks for uncomputed tokens and reserve, and copy-on-write of
 *      partly filled shared blocks that are about to be written. An extend within the reserve takes
 *      nothing more.
 *
 * row_version rises by one with each move. While swapped out, writable = computed: tokens that were
 * not committed are computed again after the swap-in.
 *
 * Evicted content (config.keep_evicted). A take may drop the content of a cached device block. The
 * content is kept if its deepest unit is public, under a root that is not flushed, and has no host
 * block; with ordered steps, not if a unit before it is on no tier. Then a host block is taken
 * (evicting there as usual), and the plan copies the sealed slots. Its public units, from the
 * block's start to the deepest, are attached to the host block where no host block has them. Other
 * units are duplicates. The host block is cached in the retention class of the evicted block, and
 * kvp_seq_open finds it there. Content is not kept (counted in unkept_blocks) if no host block is
 * free or cached. It is not kept either while 2 x c >= max_copies: c counts the copies in the plan,
 * in steps that are out, and those that the running call will still add (with KVP_BATCH_EACH: that
 * the current sequence will add).
 *
 * With KVP_POLICY_LEARNED the host evicts by what was learned, and content that is worth less than
 * what would have to go for it is not copied (docs/POLICY.md).
 *
 * The host's queues have content in the order in which the device evicted it. With keep_evicted, if
 * a take evicts a device block whose deepest unit has a cached host block, that one goes to the
 * tail of its class. An open releases the host blocks that it hit from the end of the row on. So
 * the host evicts tails before the prefixes that they need, as the device does.
 *
 * kvp_stats.host_unreachable counts units that are attached to host blocks although a unit before
 * them is on no tier. No prompt can hit them until that one is computed again. (By default a unit
 * is a block. With several layer groups, or a window in the configuration, nothing is counted.)
 * They come from copies that were refused for lack of blocks or room in the plan, from a prefix in
 * a lower retention class than what follows it, from drop.h and from kvp_seq_invalidate. With
 * overlapped steps a prefix that is on its way to the host is on no tier until it is there.
 *
 * With KVP_EVICTED_KEEP_ONCE no content is in a device block and in a cached host block: the host's
 * capacity adds to the device's, and each way between the two is a copy. A host block gives up its
 * content and is the first to be taken, once it has no holder and its unit has a device block.
 * For a prompt that hits it, that is at the end of the open with ordered steps. With overlapped
 * steps it is when the step of the copy takes effect; if that fails, the host block stays. This is
 * no eviction: kvp_cache_evicted does not list it. It needs units of one block, one layer group
 * without a window, KVP_ADOPT, no max_loads and no state_slots.
 *
 * Only plans touch the host's blocks, and plans run in order; so host blocks are never parked.
 */
#ifndef KVPAGER_SWAP_H
#define KVPAGER_SWAP_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* config.keep_evicted: what becomes of content that the device evicts. */
typedef enum kvp_keep_evicted {
    KVP_EVICTED_DROP = 0,
    KVP_EVICTED_KEEP = 1,     /* it is copied to the host, if it is not there */
    KVP_EVICTED_KEEP_ONCE = 2 /* the same; and the host gives up what the device has again */
} kvp_keep_evicted;

/* What a swap did. */
typedef struct kvp_swapped {
    uint32_t copied_blocks; /* new blocks that the plan copies to (copy-on-write not counted) */
    uint32_t found_blocks;  /* distinct blocks that were there already */
    kvp_released released;  /* blocks of the tier that was left */
} kvp_swapped;

/* Move sequences to the host, all or nothing.
 *
 * Takes:   seqs         [n_seqs], each once, on the device
 * Gives:   out_swapped  may be NULL
 * Returns: KVP_OK; KVP_E_ARG: a sequence named twice; KVP_E_STATE: one is swapped out already;
 *          KVP_E_NO_BLOCKS, KVP_E_NEVER (host blocks, see kvp_cache_can_swap_out); KVP_E_PLAN_FULL.
 *          kvp_cache_shortage_get().index: the first sequence at fault; 0 when blocks or the plan
 *          are
 * After-failure: unchanged
 * Thread:  cache        Blocks: never
 * Cost:    O(blocks of the sequences), allocates nothing
 */
KVP_API kvp_status kvp_seq_swap_out(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                    kvp_swapped *out_swapped);

/* Move sequences back to the device, with room for `reserve_tokens` more of each, all or nothing.
 *
 * Returns: as kvp_seq_swap_out, but blocks are the device's (see kvp_cache_can_swap_in), and
 *          KVP_E_STATE: one is not swapped out; KVP_E_DROPPED: one needs what a window has dropped;
 *          KVP_E_TOO_LONG when tokens + reserve exceed max_seq_tokens
 * Thread:  cache. Cost: as kvp_seq_swap_out
 */
KVP_API kvp_status kvp_seq_swap_in(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                   uint32_t reserve_tokens, kvp_swapped *out_swapped);

/* Ask whether kvp_seq_swap_out would find its blocks now. need_blocks, available and missing_blocks
 * are the host's: need = new blocks + found blocks that are cached. copied_blocks are the new ones.
 *
 * OK when need <= available; else NEVER when the sequences' distinct blocks, new and found, exceed
 * host_blocks - 1 (0 without a host tier); else LATER. The plan is not considered.
 *
 * Returns: KVP_OK; KVP_E_ARG, KVP_E_STATE as kvp_seq_swap_out
 * Thread:  cache (uses scratch memory; changes nothing). Cost: O(blocks)
 */
KVP_API kvp_status kvp_cache_can_swap_out(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                          kvp_admission *out_admission);

/* Ask whether kvp_seq_swap_in would find its blocks now. need = new blocks + found blocks that are
 * cached + what making room takes, with copy-on-write counted exactly.
 *
 * The watermark is kept free, as by kvp_cache_can_open. OK when need <= available - watermark (0
 * while nothing is held on the device); else NEVER when the distinct blocks that the sequences will
 * have exceed usable - watermark; else LATER.
 *
 * Example: four beams have 37 computed tokens each, S = 16. They share the first three blocks, and
 * nothing of them is left on the device. They need 3 new blocks; with reserve 1, 6.
 *
 * Returns: KVP_OK; KVP_E_ARG, KVP_E_STATE, KVP_E_DROPPED, KVP_E_TOO_LONG as kvp_seq_swap_in
 * Thread:  cache (uses scratch memory; changes nothing). Cost: O(blocks)
 */
KVP_API kvp_status kvp_cache_can_swap_in(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                         uint32_t reserve_tokens, kvp_admission *out_admission);

#ifdef __cplusplus
}
#endif
#endif

/* kvpager/drop.h: drop cached content: of the caller's choice, or ahead of need.
 *
 *   kvp_cache_drop(cache, KVP_DEVICE, blocks, n_blocks, NULL);    no match finds it from now on
 *   kvp_cache_reclaim(cache, n_blocks, NULL);                     the next takes need not evict
 *
 * Takes evict what the queues put first. kvp_cache_drop is for a caller that knows of content that
 * must not be found: the engine gave up the place where the KV of cached blocks lies, or a transfer
 * into them failed. Blocks that sequences hold are not dropped: kvp_seq_invalidate withdraws what a
 * sequence has, and reports the others that have it.
 *
 * kvp_cache_reclaim is for an engine whose accelerator waits while the next step is made. It does
 * the evictions of that step earlier, while a pass runs.
 */
#ifndef KVPAGER_DROP_H
#define KVPAGER_DROP_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Drop the content of cached blocks, in the order given.
 *
 * A cached block becomes free, as if a take had evicted it: its generation rises, kvp_cache_evicted
 * lists it as far as it has room, it counts in evicted_blocks or host_evicted_blocks, and an event
 * tells of each unit that its tier has no more. A unit that has a duplicate (KVP_KEEP) goes on in
 * that, and is found. Free blocks go to the head of class 0, so the last one given is taken first.
 * A parked block (steps.h) loses its content now, and is free when the steps that may touch it are
 * done.
 *
 * Each tier is dropped by itself. Nothing is copied to the host, whatever config.keep_evicted says,
 * and what the host has stays there and is found: if the content is wrong, drop it on both tiers.
 * Of several layer groups, only the blocks named lose theirs. Units behind a dropped one stay
 * cached; no match reaches them before the dropped one is computed, loaded or copied back again.
 *
 * A block keeps its content while it is held: by rows, by copies out in steps, by stores (lend.h).
 * Blocks without content are passed over, and so is a block that is named again.
 *
 * Takes:   tier           KVP_DEVICE, KVP_HOST
 *          blocks         [n_blocks] ids of that tier, without the null block
 * Gives:   out_n_dropped  blocks that lost content; may be NULL. kvp_block_info_get tells which of
 *                         the others are held
 * Returns: KVP_OK; KVP_E_ARG: there is no such tier, or no such block
 *          (kvp_cache_shortage_get().index: the first)
 * After-failure: unchanged
 * Thread:  cache        Blocks: never
 * Cost:    O(n_blocks x S / U), allocates nothing
 */
KVP_API kvp_status kvp_cache_drop(kvp_cache *cache, uint32_t tier, const int32_t *blocks,
                                  uint32_t n_blocks, uint32_t *out_n_dropped);

/* Evict the coldest cached blocks of the device now, until n_blocks are free.
 *
 * Call it after a pass was launched, with the number of blocks that the next step will take
 * (kvp_sched_reclaim counts them). Blocks lose their content in the order in which takes would
 * evict them, and with the same effects: as for kvp_cache_drop, and what config.keep_evicted keeps
 * is copied to the host by the plan. They become free behind the blocks that are free already. So
 * the takes that follow give the same blocks, in the same order, as without this call. With quotas
 * the order is that of takes for a namespace below its quota (quotas.h).
 *
 * What would have been hit before a take evicted it is lost. So ask for what the next step takes,
 * and for no more than a 64th of the pool (docs/TUNING.md). The cache never calls this by itself.
 *
 * With a host tier the call ends at the first block whose content should be kept while the plan is
 * half full: the other half is for copies that a step needs. Take the plan, and call it again.
 *
 * Takes:   n_blocks         free blocks that are wanted. If fewer are free or cached, all cached
 *                           ones lose their content
 * Gives:   out_n_reclaimed  blocks that lost content; may be NULL
 * Returns: KVP_OK
 * Thread:  cache        Blocks: never
 * Cost:    O(reclaimed x S / U), allocates nothing
 */
KVP_API kvp_status kvp_cache_reclaim(kvp_cache *cache, uint32_t n_blocks,
                                     uint32_t *out_n_reclaimed);

#ifdef __cplusplus
}
#endif
#endif

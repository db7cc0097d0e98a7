/* blocks: blocks and what is in them. */
#ifndef KVPI_CACHE_BLOCKS_H
#define KVPI_CACHE_BLOCKS_H

#include "core/cache/state.h"

/* Take blocks for the rows to have room for `end` tokens, evicting as needed; there are enough. */
void kvpi_take_blocks(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end);

/* Take one block, for a group and of a tier; it counts for `owner`, a namespace's handle. */
uint32_t kvpi_take_block(kvp_cache *cache, uint32_t where, uint32_t retention, uint64_t owner);

/* The namespace that a block counts for; 0: none, or blocks are not counted. */
static inline uint64_t kvpi_owner_of(const kvp_cache *cache, uint32_t tier, uint32_t block)
{
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->pool : &cache->host;
    return kvpi_pool_counts(pool) ? kvpi_owned(&pool->quotas, block)->owner : 0;
}

/* One reference less; counts what became free or cached. `released` may be NULL. */
void kvpi_release_block(kvp_cache *cache, uint32_t tier, uint32_t block, kvp_released *released);

/* The sequence leaves a block of its row: release it. If a step that is out may still write there,
 * a block that stays held is marked so (steps.h). */
void kvpi_leave_block(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t block,
                      kvp_released *released);

/* As kvpi_release_row: for several rows, one with null entries, or blocks that are given up. */
void kvpi_release_rows(kvp_cache *cache, struct kvpi_seq *seq, uint32_t keep,
                       kvp_released *released);

/* Release the rows' blocks, the last entry first, to those for `keep` tokens, at most the room that
 * there is, counting into `released`. */
static inline void kvpi_release_row(kvp_cache *cache, struct kvpi_seq *seq, uint32_t keep,
                                    kvp_released *released)
{
    if (kvpi_unlikely(cache->config.n_groups > 1 || (seq->windowed & KVPI_WINDOWED) != 0 ||
                      (cache->keeps_once && seq->tier == KVP_HOST))) {
        kvpi_release_rows(cache, seq, keep, released);
        return;
    }
    const int32_t *row = kvpi_row(cache, seq, 0);
    struct kvpi_pool *pool = kvpi_tier_pool(cache, seq->tier);
    const uint32_t n_keep = kvpi_row_length(cache, 0, keep);
    uint32_t n = kvpi_row_entries(cache, seq, 0);
    while (n > n_keep) {
        n = kvpi_pool_release_run(pool, row, n, n_keep, &released->cached_blocks);
        if (n > n_keep) {
            kvpi_leave_block(cache, seq, (uint32_t)row[--n], released);
        }
    }
    kvpi_set32(&seq->room, keep);
}

/* Detach the units of a block from place `from` on, strike its duplicates there. Gives how many
 * were detached. */
uint32_t kvpi_detach_units(kvp_cache *cache, uint32_t tier, uint32_t block, uint32_t from);

/* Take a node without duplicates off its block; a cached block left with nothing becomes free. */
void kvpi_detach_node(kvp_cache *cache, uint32_t where, uint32_t node);

/* Drop the content of a block without a holder: it becomes free, or will when it is not parked any
 * more. Gives 0, and does nothing, when it is held or has none. */
int kvpi_drop_content(kvp_cache *cache, uint32_t tier, uint32_t block);

/* Evict the coldest cached block of the device, which becomes free, behind all free ones. Gives 0,
 * and does nothing, when none is cached, or when its content should go to the host and the plan has
 * no room in its half. */
int kvpi_reclaim_block(kvp_cache *cache);

#define KVPI_NODE_EVICTIONS_MAX 1024u

/* Evict cached content until one more node is free. Gives 0 if none is after that. Nodes that are
 * meant to stay need a user. */
int kvpi_free_node(kvp_cache *cache);

/* With keeps_once: a host block without a holder, whose content the device has, becomes the
 * first free one. Otherwise nothing is done, as for block 0. */
void kvpi_give_up(kvp_cache *cache, uint32_t block);

/* Is a cached host block's content on the device, too? */
static inline int kvpi_is_twice(const kvp_cache *cache, uint32_t block)
{
    const struct kvpi_block *b = kvpi_block(&cache->host, block);
    return kvpi_block_is_cached(b) &&
           kvpi_node_at(&cache->prefix, b->content, KVP_DEVICE)->block != KVP_NULL_BLOCK;
}

/* With keeps_once: a host block that should have been given up. 0: there is none. */
static inline uint32_t kvpi_find_twice(const kvp_cache *cache)
{
    for (uint32_t block = 1; cache->keeps_once && block < cache->host.n_blocks; block++) {
        if (kvpi_is_twice(cache, block)) {
            return block;
        }
    }
    return 0;
}

/* Make the node impossible to find. */
void kvpi_withdraw_node(kvp_cache *cache, uint32_t node);

/* Copy a device block's units on to a host block by the plan: from the start to its deepest one,
 * which no host block has. There is room in both. Gives the host block, which is cached, or held by
 * its copy. */
uint32_t kvpi_copy_to_host(kvp_cache *cache, uint32_t block);

/* May a device block's content be copied to the host now, with a plan of which others need half? */
int kvpi_may_copy_to_host(kvp_cache *cache, uint32_t block);

/* Put a copy into the plan, one that the call had promised. */
void kvpi_add_copy(kvp_cache *cache, const struct kvpi_copy *copy);

/* The copy added last will bring the node's unit into the block: attached there, or a duplicate, or
 * awaited. */
void kvpi_copied_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block);

/* The unit's KV is in the block: attach it there, or make it a duplicate. */
void kvpi_settle_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block);

/* Seal unit u of the sequence in every group: commit's rule for one unit. Those up to `end` will
 * follow. */
void kvpi_seal_unit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t u, uint32_t end);

#endif

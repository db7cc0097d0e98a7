/* cache_blocks: blocks and what is in them. Take and evict, release, detach, seal.
 *
 * Where the pool's `content` and the tree's attached blocks meet. A block's content is the deepest
 * node that has the block attached; all attached nodes of a block lie on the path from there up,
 * within the block's units_per_block units (N3). Everything here keeps the two sides in step:
 *
 *   pool:    content(block) --> deepest attached node --> parent --> ...  (up to the block's start)
 *   prefix:  node->at.block ----------------^
 *            node->at.dups  --> other blocks with the same KV, oldest first
 */
#include "cache_state.h"

#define AHEAD 12u /* blocks or units that memory is asked for before they are needed */

/* The node has the block attached now: the block's content is at least that deep. */
static void settle_content(kvp_cache *cache, uint32_t block, uint32_t node)
{
    const uint32_t content = kvpi_block(&cache->pool, block)->content;
    if (content == KVPI_NO_NODE ||
        kvpi_node(&cache->prefix, content)->depth < kvpi_node(&cache->prefix, node)->depth) {
        kvpi_pool_set_content(&cache->pool, block, node);
    }
}

uint32_t kvpi_detach_units(kvp_cache *cache, uint32_t block, uint32_t from)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t deepest = kvpi_block(&cache->pool, block)->content;
    uint32_t n_detached = 0;
    uint32_t left = KVPI_NO_NODE; /* the deepest one that stays attached */
    for (uint32_t node = deepest; node != KVPI_NO_NODE && left == KVPI_NO_NODE;) {
        const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node));
        if (kvpi_node(prefix, node)->at.block == block) {
            if (place < from) {
                left = node;
                break;
            }
            const uint32_t heir = kvpi_prefix_detach(prefix, node);
            if (heir != 0) {
                settle_content(cache, heir, node);
            }
            n_detached++;
        }
        node = place == 0 ? KVPI_NO_NODE : kvpi_node(prefix, node)->parent;
    }
    kvpi_prefix_strike_dups(prefix, block, from);
    if (n_detached > 0) {
        kvpi_pool_set_content(&cache->pool, block, left);
        kvpi_prefix_reap(prefix, deepest);
    }
    return n_detached;
}

void kvpi_detach_node(kvp_cache *cache, uint32_t node)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    struct kvpi_pool *pool = &cache->pool;
    const uint32_t block = kvpi_node(prefix, node)->at.block;
    uint32_t left = kvpi_block(pool, block)->content;
    kvpi_node(prefix, node)->at.block = KVP_NULL_BLOCK;
    while (left != KVPI_NO_NODE && kvpi_node(prefix, left)->at.block != block) {
        const struct kvpi_node *n = kvpi_node(prefix, left);
        left = kvpi_prefix_place(prefix, n) == 0 ? KVPI_NO_NODE : n->parent;
    }
    if (left == KVPI_NO_NODE && kvpi_pool_refs(pool, block) == 0) {
        kvpi_pool_uncache(pool, block);
        kvpi_prefix_strike_dups(prefix, block, 0);
        kvpi_plan_drop(&cache->plan, block);
    } else {
        kvpi_pool_set_content(pool, block, left);
    }
}

/* Drop the content of the victim, a cached block, and say so in the list of evicted ones. */
static void evict(kvp_cache *cache, uint32_t block)
{
    const uint32_t content = kvpi_block(&cache->pool, block)->content;
    kvp_evicted *evicted = kvpi_at(cache, cache->evicted_at);
    evicted += cache->n_evicted++;
    evicted->hash = kvpi_node(&cache->prefix, content)->hash;
    evicted->block = (int32_t)block;
    kvpi_detach_units(cache, block, 0);
    kvpi_count(&cache->counters.evicted_blocks, 1);
}

/* Ask for the memory of victims to come: the block two jumps ahead, the node of the one a jump
 * ahead, the index slot of the one half a jump ahead. Hints only; a stale jump costs a line. */
static void prefetch_victims(kvp_cache *cache, uint32_t victim)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_block *blocks = kvpi_blocks(&cache->pool);
    const uint32_t next = blocks[victim].jump;
    const uint32_t i = cache->ahead_at++;
    kvpi_prefetch(&blocks[blocks[next].jump]);
    if (blocks[next].content != KVPI_NO_NODE) {
        const struct kvpi_node *node = kvpi_node(prefix, blocks[next].content);
        kvpi_prefetch(node);
        kvpi_prefetch(node + 1);
    }
    const uint32_t nearer = cache->ahead[(i + KVPI_POOL_JUMP / 2) % KVPI_POOL_JUMP];
    if (blocks[nearer].content != KVPI_NO_NODE) {
        kvpi_prefix_prefetch_slot(prefix, &kvpi_node(prefix, blocks[nearer].content)->hash);
    }
    cache->ahead[i % KVPI_POOL_JUMP] = next;
}

uint32_t kvpi_take_block(kvp_cache *cache, uint32_t retention)
{
    const uint32_t victim = kvpi_pool_victim(&cache->pool);
    prefetch_victims(cache, victim);
    if (kvpi_block(&cache->pool, victim)->content != KVPI_NO_NODE) {
        evict(cache, victim);
    }
    kvpi_record_decision(&cache->recorder, (int32_t)victim);
    kvpi_count(&cache->counters.taken_blocks, 1);
    return kvpi_pool_take(&cache->pool, retention);
}

void kvpi_take_blocks(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n)
{
    int32_t *row = kvpi_row_blocks(&cache->table, kvpi_seq_place(&cache->table, seq));
    for (uint32_t i = 0; i < n; i++) {
        row[seq->n_blocks++] = (int32_t)kvpi_take_block(cache, seq->retention);
    }
}

void kvpi_release_block(kvp_cache *cache, uint32_t block, kvp_released *released)
{
    struct kvpi_pool *pool = &cache->pool;
    const int cached = kvpi_block(pool, block)->content != KVPI_NO_NODE;
    if (kvpi_pool_refs(pool, block) == 1 && !cached) {
        kvpi_prefix_strike_dups(&cache->prefix, block, 0);
        kvpi_plan_drop(&cache->plan, block);
    }
    if (kvpi_pool_release(pool, block) == 0 && released != NULL) {
        released->cached_blocks += (uint32_t)cached;
        released->freed_blocks += (uint32_t)!cached;
    }
}

void kvpi_release_row(kvp_cache *cache, struct kvpi_seq *seq, uint32_t keep, kvp_released *released)
{
    const int32_t *row = kvpi_row_blocks(&cache->table, kvpi_seq_place(&cache->table, seq));
    for (;;) {
        seq->n_blocks =
            kvpi_pool_release_run(&cache->pool, row, seq->n_blocks, keep, &released->cached_blocks);
        if (seq->n_blocks == keep) {
            return;
        }
        kvpi_release_block(cache, (uint32_t)row[--seq->n_blocks], released);
    }
}

/* The row's entry becomes the block that has the content already. */
static void adopt(kvp_cache *cache, struct kvpi_seq *seq, int32_t *entry, uint32_t block)
{
    const uint32_t ours = (uint32_t)*entry;
    kvpi_pool_hold(&cache->pool, block);
    *entry = (int32_t)block;
    seq->row_version++;
    kvpi_release_block(cache, ours, NULL);
    kvpi_count(&cache->counters.adopted_blocks, 1);
}

void kvpi_seal_unit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t u, uint32_t end)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    if (u + AHEAD < end) {
        const uint32_t ahead = (u + AHEAD) / kvpi_units_per_block(cache);
        kvpi_prefetch(kvpi_node(&cache->prefix, kvpi_row_nodes(&cache->table, place)[u + AHEAD]));
        kvpi_prefetch(
            kvpi_block(&cache->pool, (uint32_t)kvpi_row_blocks(&cache->table, place)[ahead]));
    }
    const uint32_t units_per_block = kvpi_units_per_block(cache);
    const uint32_t unit_place = units_per_block == 1 ? 0 : u % units_per_block;
    const uint32_t block_idx = units_per_block == 1 ? u : u / units_per_block;
    const int last_of_block = unit_place == units_per_block - 1;
    const uint32_t node = kvpi_row_nodes(&cache->table, place)[u];
    struct kvpi_place *at = &kvpi_node(&cache->prefix, node)->at;
    int32_t *entry = &kvpi_row_blocks(&cache->table, place)[block_idx];
    const uint32_t ours = (uint32_t)*entry;
    if (at->block == KVP_NULL_BLOCK) {
        at->block = ours;
        settle_content(cache, ours, node);
        kvpi_count(&cache->counters.sealed_units, 1);
    } else if (at->block == ours) {
        return; /* a fork sealed it */
    } else if (last_of_block && cache->config.commit_policy == KVP_ADOPT) {
        adopt(cache, seq, entry, at->block);
    } else if (!kvpi_prefix_is_dup(&cache->prefix, ours, unit_place)) {
        kvpi_prefix_add_dup(&cache->prefix, node, ours);
        kvpi_count(&cache->counters.duplicate_blocks, (uint64_t)last_of_block);
    }
}

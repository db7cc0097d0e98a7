/* blocks: blocks and what is in them. Take and evict, release, detach, seal.
 *
 * Where the pool's `content` and the tree's attached blocks meet. A block's content is the deepest
 * node that has the block attached; all attached nodes of a block lie on the path from there up,
 * within the block's units (N3). Everything here keeps the two sides in step:
 *
 *   pool:    content(block) --> deepest attached node --> parent --> ...  (up to the block's start)
 *   prefix:  place in the node: block ------^      (kvpi_node_at: for each group and tier)
 *                               dups   --> other blocks with the same KV, oldest first
 *
 * What a copy brings into a block is attached there at once when steps are ordered; else it is
 * awaited until the step takes effect (core/calls/steps.c).
 */
#include "core/cache/blocks.h"
#include "core/cache/dropped.h"
#include "core/cache/events.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"
#include "core/cache/states.h"

#define AHEAD 12u /* blocks or units that memory is asked for before they are needed */

/* The last node of the block before the one that a unit lies in; of the first: the root. */
static uint32_t node_before_block(const kvp_cache *cache, uint32_t where, uint32_t node)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
    for (uint32_t i = 0; i <= place; i++) {
        node = kvpi_node(prefix, node)->parent;
    }
    return node;
}

/* The node has the block attached now: the block's content is at least that deep. */
static inline void settle_content(kvp_cache *cache, uint32_t where, uint32_t block, uint32_t node)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, KVPI_TIER_OF(where));
    struct kvpi_block *b = kvpi_block(pool, block);
    if (b->content != KVPI_NO_NODE &&
        kvpi_node(&cache->prefix, b->content)->depth >= kvpi_node(&cache->prefix, node)->depth) {
        return;
    }
    if (kvpi_unlikely(pool->leaves.on != 0)) {
        if (b->content == KVPI_NO_NODE) {
            *kvpi_leaves_above(&pool->leaves, block) = node_before_block(cache, where, node);
        }
        kvpi_leaves_content(pool, block, node);
    }
    b->content = node;
}

/* Readers, and the host, know of a node's new block. */
static void tell_attached(kvp_cache *cache, uint32_t where, uint32_t node)
{
    if (cache->events.capacity > 0) {
        kvpi_tell_stored(cache, where, node);
    }
    if (cache->keeps_once && KVPI_TIER_OF(where) == KVP_DEVICE) {
        kvpi_give_up(cache, kvpi_node_at(&cache->prefix, node, where + KVP_HOST)->block);
    }
}

/* The node, which had no block there, gets one. */
static inline void attach(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block)
{
    kvpi_node_at(&cache->prefix, node, where)->block = block;
    kvpi_prefix_moved(&cache->prefix, node);
    settle_content(cache, where, block, node);
    if (kvpi_unlikely(cache->tells_attached != 0)) {
        tell_attached(cache, where, node);
    }
}

/* The node has lost its last block there. */
static inline void tell_removed(kvp_cache *cache, uint32_t where, uint32_t node)
{
    if (kvpi_unlikely(cache->events.capacity > 0)) {
        kvpi_tell_removed(cache, where, node);
    }
}

/* Detach the only unit that a block may have, where none is ever a duplicate or awaited. */
static uint32_t detach_only_unit(kvp_cache *cache, uint32_t tier, uint32_t block)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    const uint32_t node = kvpi_block(pool, block)->content;
    const uint32_t where = kvpi_where(cache, tier, block);
    if (node == KVPI_NO_NODE) {
        return 0;
    }
    KVPI_ASSERT(kvpi_node_at(&cache->prefix, node, where)->block == block);
    kvpi_node_at(&cache->prefix, node, where)->block = KVP_NULL_BLOCK;
    kvpi_prefix_moved(&cache->prefix, node);
    tell_removed(cache, where, node);
    kvpi_pool_set_content(pool, block, KVPI_NO_NODE);
    kvpi_prefix_reap(&cache->prefix, node);
    return 1;
}

uint32_t kvpi_detach_units(kvp_cache *cache, uint32_t tier, uint32_t block, uint32_t from)
{
    if (from == 0 && !cache->prefix.has_dups) { /* then a block of any group has one unit */
        return detach_only_unit(cache, tier, block);
    }
    struct kvpi_prefix *prefix = &cache->prefix;
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    const uint32_t where = kvpi_where(cache, tier, block);
    const uint32_t deepest = kvpi_block(pool, block)->content;
    uint32_t n_detached = 0;
    uint32_t left = KVPI_NO_NODE; /* the deepest one that stays attached */
    for (uint32_t node = deepest; node != KVPI_NO_NODE;) {
        const uint32_t place =
            kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
        if (kvpi_node_at(prefix, node, where)->block == block) {
            if (place < from) {
                left = node;
                break;
            }
            const uint32_t heir = kvpi_prefix_detach(prefix, node, where);
            if (heir != 0) {
                settle_content(cache, where, heir, node);
            } else {
                tell_removed(cache, where, node);
            }
            n_detached++;
        }
        node = place == 0 ? KVPI_NO_NODE : kvpi_node(prefix, node)->parent;
    }
    if (n_detached > 0) {
        kvpi_pool_set_content(pool, block, left);
        kvpi_prefix_reap(prefix, deepest); /* before what is awaited goes: it may hang from here */
    }
    kvpi_prefix_strike_dups(prefix, where, block, from);
    return n_detached;
}

void kvpi_give_up(kvp_cache *cache, uint32_t block)
{
    if (block != 0 && kvpi_is_twice(cache, block)) {
        kvpi_detach_units(cache, KVP_HOST, block, 0);
        kvpi_plan_drop(&cache->plan, KVP_HOST, block);
        kvpi_pool_first(&cache->host, block);
    }
}

void kvpi_detach_node(kvp_cache *cache, uint32_t where, uint32_t node)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    struct kvpi_pool *pool = kvpi_tier_pool(cache, KVPI_TIER_OF(where));
    struct kvpi_place *at = kvpi_node_at(prefix, node, where);
    const uint32_t block = at->block;
    uint32_t left = kvpi_block(pool, block)->content;
    at->block = KVP_NULL_BLOCK;
    kvpi_prefix_moved(prefix, node);
    while (left != KVPI_NO_NODE && kvpi_node_at(prefix, left, where)->block != block) {
        const struct kvpi_node *n = kvpi_node(prefix, left);
        left = kvpi_prefix_place(prefix, n, KVPI_GROUP_OF(where)) == 0 ? KVPI_NO_NODE : n->parent;
    }
    if (left == KVPI_NO_NODE && kvpi_pool_refs(pool, block) == 0) {
        kvpi_pool_uncache(pool, block);
        kvpi_prefix_strike_dups(prefix, where, block, 0);
        kvpi_plan_drop(&cache->plan, KVPI_TIER_OF(where), block);
    } else {
        kvpi_pool_set_content(pool, block, left);
    }
}

void kvpi_withdraw_node(kvp_cache *cache, uint32_t node)
{
    if (cache->events.capacity > 0) {
        for (uint32_t where = 0; where < cache->prefix.n_where; where++) {
            if (kvpi_node_at(&cache->prefix, node, where)->block != KVP_NULL_BLOCK) {
                kvpi_tell_removed(cache, where, node);
            }
        }
    }
    kvpi_prefix_withdraw(&cache->prefix, node);
}

/* The plan that waits has a copy from or to a host block: who lends it has to know (lend.h). */
static void note_use(kvp_cache *cache, const struct kvpi_copy *copy)
{
    const uint64_t plan = kvpi_plans_taken(cache) + 1;
    if (cache->lending.max_loads == 0) {
        return;
    }
    if (copy->src_tier == KVP_HOST) {
        kvpi_lent(cache, copy->src)->used = plan;
    }
    if (copy->dst_tier == KVP_HOST) {
        kvpi_lent(cache, copy->dst)->used = plan;
        kvpi_lent(cache, copy->dst)->written = plan;
    }
}

void kvpi_add_copy(kvp_cache *cache, const struct kvpi_copy *copy)
{
    struct kvpi_copy added = *copy;
    added.group = kvpi_block_group(kvpi_block(kvpi_tier_pool(cache, copy->dst_tier), copy->dst));
    added.chained = copy->src_tier == KVP_HOST || kvpi_is_arriving(cache, copy->src);
    kvpi_plan_add(&cache->plan, &added);
    note_use(cache, &added);
    if (cache->config.steps == KVP_STEPS_OVERLAPPED && copy->dst_tier == KVP_DEVICE) {
        kvpi_pool_arriving(&cache->pool)[copy->dst] = cache->steps.begun + 1;
    }
    cache->plan.promised -= cache->plan.promised > 0;
    kvpi_count(&cache->counters.copies, 1);
}

void kvpi_settle_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t has = kvpi_node_at(prefix, node, where)->block;
    const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
    if (has == KVP_NULL_BLOCK) {
        attach(cache, where, node, block);
    } else if (has != block && prefix->has_dups == KVPI_DUPS_ALL &&
               !kvpi_prefix_is_dup(prefix, where, block, place)) {
        kvpi_prefix_add_dup(prefix, node, where, block);
    }
}

void kvpi_copied_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
    if (cache->config.steps == KVP_STEPS_ORDERED) {
        kvpi_settle_unit(cache, where, node, block);
    } else if (kvpi_node_at(prefix, node, where)->block != block &&
               !kvpi_prefix_is_dup(prefix, where, block, place)) {
        kvpi_prefix_await(prefix, node, where, block, cache->steps.begun + 1);
    }
}

/* Has the plan room for a copy of which others need half? */
static int has_half(const struct kvpi_plan *plan)
{
    return 2 * (plan->n + plan->n_out + plan->promised) < plan->capacity;
}

int kvpi_may_copy_to_host(kvp_cache *cache, uint32_t block)
{
    const uint64_t owner = kvpi_owner_of(cache, KVP_DEVICE, block);
    return kvpi_pool_available(&cache->host) != 0 && !kvpi_pool_displaces(&cache->host, owner) &&
           has_half(&cache->plan);
}

uint32_t kvpi_copy_to_host(kvp_cache *cache, uint32_t block)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_block *source = kvpi_block(&cache->pool, block);
    const uint32_t deepest = source->content;
    const uint32_t group = kvpi_block_group(source);
    const uint32_t where = KVPI_WHERE(KVP_HOST, group);
    const int overlapped = cache->config.steps == KVP_STEPS_OVERLAPPED;
    const uint32_t n_units = kvpi_prefix_place(prefix, kvpi_node(prefix, deepest), group) + 1;
    const uint32_t there = kvpi_take_block(cache, where, kvpi_block_class(source),
                                           kvpi_owner_of(cache, KVP_DEVICE, block));
    const struct kvpi_copy copy = {.dst_tier = KVP_HOST,
                                   .keeps = (uint8_t)overlapped,
                                   .group = group,
                                   .src = block,
                                   .dst = there,
                                   .n_tokens = n_units * prefix->unit_tokens};
    kvpi_plan_add(&cache->plan, &copy);
    note_use(cache, &copy);
    kvpi_count(&cache->counters.copies, 1);
    uint32_t node = deepest;
    for (uint32_t i = 0; i < n_units; i++, node = kvpi_node(prefix, node)->parent) {
        if (kvpi_node(prefix, node)->flags & KVPI_NODE_PUBLIC) {
            kvpi_copied_unit(cache, where, node, there);
        }
    }
    if (kvpi_unlikely(cache->host.leaves.on != 0)) {
        kvpi_leaves_follow(&cache->host.leaves, there, &cache->pool.leaves, block);
    }
    if (!overlapped) {
        kvpi_release_block(cache, KVP_HOST, there, NULL);
    }
    return there;
}

/* Has it lost its prefix, for good? With overlapped steps that may be on its way to the host. */
static int is_lost(const kvp_cache *cache, const struct kvpi_node *node)
{
    return (node->flags & KVPI_NODE_LOST) != 0 && cache->config.steps == KVP_STEPS_ORDERED;
}

/* Does no retained place need what is in it? (windows.h) */
static int goes_first(const kvp_cache *cache, uint32_t block)
{
    return (kvpi_block(&cache->pool, block)->refs & KVPI_REFS_FIRST) != 0;
}

/* Is the content of a cached device block wanted on the host when it is evicted? */
static int wants_host_copy(const kvp_cache *cache, uint32_t block)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t deepest = kvpi_block(&cache->pool, block)->content;
    const struct kvpi_node *n = kvpi_node(prefix, deepest);
    const uint32_t group = kvpi_block_group(kvpi_block(&cache->pool, block));
    if (goes_first(cache, block)) {
        return 0;
    }
    return cache->config.keep_evicted && (n->flags & KVPI_NODE_PUBLIC) && !is_lost(cache, n) &&
           kvpi_node_at(prefix, deepest, KVPI_WHERE(KVP_HOST, group))->block == KVP_NULL_BLOCK &&
           kvpi_prefix_is_live(prefix, n);
}

/* A device block is about to be evicted whose content the host has: it is the last there to go, as
 * if it had been copied now. Tails left the device before it, and leave the host before it, too. */
static void stay_on_host(kvp_cache *cache, uint32_t block)
{
    const struct kvpi_block *b = kvpi_block(&cache->pool, block);
    const uint32_t where = KVPI_WHERE(KVP_HOST, kvpi_block_group(b));
    const uint32_t there = kvpi_node_at(&cache->prefix, b->content, where)->block;
    if (cache->config.keep_evicted && there != 0 && !goes_first(cache, block) &&
        kvpi_block_is_cached(kvpi_block(&cache->host, there))) {
        kvpi_pool_hold(&cache->host, there);
        if (kvpi_unlikely(cache->host.leaves.on != 0)) {
            kvpi_leaves_follow(&cache->host.leaves, there, &cache->pool.leaves, block);
        }
        (void)kvpi_pool_release(&cache->host, there);
    }
}

/* Keep the content of a device block that is about to be evicted on the host, if there is room, and
 * if it is worth it. */
static int keep(kvp_cache *cache, uint32_t block)
{
    if (!wants_host_copy(cache, block)) {
        stay_on_host(cache, block);
        return 0;
    }
    if (kvpi_unlikely(cache->host.leaves.on != 0) &&
        kvpi_pool_spares(&cache->pool, block, &cache->host)) {
        return 0;
    }
    if (!kvpi_may_copy_to_host(cache, block)) {
        kvpi_count(&cache->counters.unkept_blocks, 1);
        return 0;
    }
    (void)kvpi_copy_to_host(cache, block);
    kvpi_count(&cache->counters.kept_blocks, 1);
    return 1;
}

/* A cached block loses its content, which the list of evicted ones tells. */
static void lose_content(kvp_cache *cache, uint32_t tier, uint32_t block, int kept)
{
    const uint32_t content = kvpi_block(kvpi_tier_pool(cache, tier), block)->content;
    kvp_evicted *evicted = kvpi_next_evicted(cache);
    evicted->hash = kvpi_node(&cache->prefix, content)->hash;
    evicted->block = (int32_t)block;
    evicted->tier = (uint8_t)tier;
    evicted->kept = (uint8_t)kept;
    evicted->group = (uint16_t)kvpi_block_group(kvpi_block(kvpi_tier_pool(cache, tier), block));
    kvpi_detach_units(cache, tier, block, 0);
    kvpi_plan_drop(&cache->plan, tier, block);
    kvpi_count(tier == KVP_DEVICE ? &cache->counters.evicted_blocks
                                  : &cache->counters.host_evicted_blocks,
               1);
}

/* Drop the content of the victim. */
static void evict(kvp_cache *cache, uint32_t tier, uint32_t block)
{
    const int kept = cache->config.host_blocks > 0 && tier == KVP_DEVICE && keep(cache, block);
    if (kvpi_unlikely(kvpi_has_states(cache))) {
        kvpi_states_follow(cache, tier, block, kept);
    }
    lose_content(cache, tier, block, kept);
}

int kvpi_drop_content(kvp_cache *cache, uint32_t tier, uint32_t block)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    const struct kvpi_block *b = kvpi_block(pool, block);
    if (kvpi_block_refs(b) > 0 || b->content == KVPI_NO_NODE) {
        return 0;
    }
    if (kvpi_has_states(cache)) {
        kvpi_states_follow(cache, tier, block, 0);
    }
    lose_content(cache, tier, block, 0);
    if (!(b->refs & KVPI_REFS_PARKED)) {
        kvpi_pool_first(pool, block);
    }
    return 1;
}

/* Ask for the memory of n victims to come, so that their pages are looked up side by side: the
 * blocks two jumps ahead, the nodes of those a jump ahead, the index lines of those half a jump
 * ahead. Inline for each n: a loop that counts takes longer, and GCC drops calls of what only
 * asks. */
__attribute__((always_inline)) static inline void prefetch_some(kvp_cache *cache, uint32_t victim,
                                                                uint32_t n, int learned)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_block *blocks = kvpi_blocks(&cache->pool);
    const uint32_t begin = cache->ahead_at;
    uint32_t block = blocks[victim].jump;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *ahead = &cache->ahead[(begin + i) % KVPI_POOL_JUMP];
        const uint32_t nearer = cache->ahead[(begin + i + KVPI_POOL_JUMP / 2) % KVPI_POOL_JUMP];
        kvpi_pool_prefetch(&cache->pool, blocks[block].jump);
        if (learned) {
            kvpi_leaves_prefetch_block(&cache->pool.leaves, blocks[block].jump);
            kvpi_leaves_prefetch_content(&cache->pool.leaves, blocks[block].content);
        }
        if (blocks[block].content != KVPI_NO_NODE) {
            const struct kvpi_node *node = kvpi_node(prefix, blocks[block].content);
            kvpi_prefetch(node);
            kvpi_prefetch(node + 1);
        }
        if (blocks[nearer].content != KVPI_NO_NODE) {
            kvpi_prefix_prefetch_line(prefix, &kvpi_node(prefix, blocks[nearer].content)->hash);
        }
        KVPI_NOTE(surprising_victims, *ahead != victim);
        *ahead = block;
        /* A stale jump may name a held block, whose `next` may be a host block's (swap.c). */
        block = kvpi_min_u32(blocks[block].next, cache->pool.n_blocks - 1);
        victim = blocks[victim].next;
    }
}

__attribute__((noinline)) static void prefetch_four(kvp_cache *cache, uint32_t victim)
{
    prefetch_some(cache, victim, 4, 0);
}

__attribute__((noinline)) static void prefetch_two_learned(kvp_cache *cache, uint32_t victim)
{
    prefetch_some(cache, victim, 2, 1);
}

/* Hints only; a stale jump costs a line. A victim has five lines, with the learned policy eight:
 * more of them at once would be more lines than a processor waits for. */
static inline void prefetch_victims(kvp_cache *cache, uint32_t victim)
{
    if (cache->ahead_at % 4 == 0 && !cache->pool.leaves.on) {
        prefetch_four(cache, victim);
    } else if (cache->ahead_at % 2 == 0 && kvpi_unlikely(cache->pool.leaves.on != 0)) {
        prefetch_two_learned(cache, victim);
    }
    cache->ahead_at++;
}

int kvpi_reclaim_block(kvp_cache *cache)
{
    uint32_t turn;
    const uint32_t block = kvpi_pool_coldest(&cache->pool, &turn);
    if (block == 0 || (cache->config.host_blocks > 0 && !has_half(&cache->plan) &&
                       wants_host_copy(cache, block))) {
        return 0;
    }
    prefetch_victims(cache, block);
    evict(cache, KVP_DEVICE, block);
    kvpi_pool_last(&cache->pool, block, turn);
    kvpi_record_decision(&cache->recorder, (int32_t)block);
    return 1;
}

/* ---------------------------------------------------------------------------- evicted for a node
 *
 * A node that has lost its block stays while nodes behind it are needed. If there are many such,
 * nodes run out before blocks do. What is new would get none, would not be cached, and would evict
 * nothing: the cache would stay as it is. So content is evicted for a node, as the queues say:
 *
 *   the host's blocks, the device's, of which the host keeps nothing, then checkpoints
 *
 * The host is first because what the device has there, too, is not lost by it. A checkpoint goes
 * with its block, so only those without one are left. Blocks become free behind the free ones.
 *
 * The first in a queue may have nodes behind it, and free none. So several go, up to a limit, which
 * bounds the time of a call. None of them was in vain: the next unit begins where this one ended.
 */

/* The coldest cached block of a tier goes. Gives 0 when none is cached. */
static int evict_coldest(kvp_cache *cache, uint32_t tier)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    uint32_t turn;
    const uint32_t block = pool->n_cached == 0 ? 0 : kvpi_pool_coldest(pool, &turn);
    if (block == 0) {
        return 0;
    }
    (void)kvpi_drop_content(cache, tier, block);
    kvpi_pool_last(pool, block, turn);
    kvpi_record_decision(&cache->recorder, tier == KVP_DEVICE ? (int32_t)block : -(int32_t)block);
    return 1;
}

__attribute__((noinline, cold)) int kvpi_free_node(kvp_cache *cache)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint64_t n_used = prefix->n_used;
    for (uint32_t n = 0; n < KVPI_NODE_EVICTIONS_MAX && prefix->n_used == n_used; n++) {
        if (!evict_coldest(cache, KVP_HOST) && !evict_coldest(cache, KVP_DEVICE) &&
            !kvpi_states_evict_coldest(cache)) {
            break;
        }
    }
    return prefix->n_used < n_used;
}

/* ---------------------------------------------------------------------- taken, released, sealed */

uint32_t kvpi_take_block(kvp_cache *cache, uint32_t where, uint32_t retention, uint64_t owner)
{
    const uint32_t tier = KVPI_TIER_OF(where);
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    const uint32_t victim =
        kvpi_pool_is_watched(pool) ? kvpi_pool_choose(pool, owner) : kvpi_pool_victim(pool);
    if (tier == KVP_DEVICE) {
        prefetch_victims(cache, victim);
    }
    if (kvpi_block(pool, victim)->content != KVPI_NO_NODE) {
        evict(cache, tier, victim);
    }
    kvpi_record_decision(&cache->recorder, tier == KVP_DEVICE ? (int32_t)victim : -(int32_t)victim);
    if (tier == KVP_DEVICE) {
        kvpi_count(&cache->counters.taken_blocks, 1);
        if (kvpi_unlikely(cache->config.steps == KVP_STEPS_OVERLAPPED)) {
            kvpi_pool_arriving(pool)[victim] = 0;
        }
    }
    kvpi_pool_take(pool, victim, retention, KVPI_GROUP_OF(where));
    if (kvpi_pool_counts(pool)) {
        kvpi_quotas_own(&pool->quotas, victim, owner);
    }
    return victim;
}

/* Of one row: the loop of every prompt that is opened. */
static void take_row(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    int32_t *row = kvpi_row(cache, seq, 0);
    const uint32_t n = kvpi_row_length(cache, 0, end);
    for (uint32_t i = kvpi_row_entries(cache, seq, 0); i < n; i++) {
        row[i] = (int32_t)kvpi_take_block(cache, KVPI_WHERE(KVP_DEVICE, 0), seq->retention,
                                          seq->ns.bits);
    }
}

static void take_rows(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    for (uint32_t t = kvpi_entry_from(cache, seq->room); t < end;
         t = kvpi_entry_from(cache, t + 1)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            if (kvpi_entry_begins(cache, g, t)) {
                kvpi_row(cache, seq, g)[t / kvpi_block_tokens(cache, g)] = (int32_t)kvpi_take_block(
                    cache, KVPI_WHERE(KVP_DEVICE, g), seq->retention, seq->ns.bits);
            }
        }
    }
}

void kvpi_take_blocks(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    if (end > seq->room) {
        cache->config.n_groups == 1 ? take_row(cache, seq, end) : take_rows(cache, seq, end);
        kvpi_set32(&seq->room, end);
    }
}

void kvpi_release_block(kvp_cache *cache, uint32_t tier, uint32_t block, kvp_released *released)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, tier);
    const int cached = kvpi_block(pool, block)->content != KVPI_NO_NODE;
    if (kvpi_pool_refs(pool, block) == 1 && !cached) {
        kvpi_prefix_strike_dups(&cache->prefix, kvpi_where(cache, tier, block), block, 0);
        kvpi_plan_drop(&cache->plan, tier, block);
    }
    if (kvpi_pool_release(pool, block) == 0 && released != NULL) {
        released->cached_blocks += (uint32_t)cached;
        released->freed_blocks += (uint32_t)!cached;
    }
}

void kvpi_leave_block(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t block,
                      kvp_released *released)
{
    struct kvpi_block *b = kvpi_block(kvpi_tier_pool(cache, seq->tier), block);
    if (kvpi_block_refs(b) > 1 && !kvpi_may_be_written(cache, seq)) {
        b->refs--;
    } else {
        kvpi_release_block(cache, seq->tier, block, released);
        if (kvpi_unlikely(cache->keeps_once && seq->tier == KVP_HOST)) {
            kvpi_give_up(cache, block);
        }
    }
}

/* To the tail of its queue, now if it is cached, or when it is not parked any more. It is not
 * parked again: no step has it. */
static void renew_block(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *b = kvpi_block(pool, block);
    if (kvpi_block_is_cached(b)) {
        const uint32_t parking = pool->parking;
        pool->parking = 0;
        kvpi_pool_hold(pool, block);
        (void)kvpi_pool_release(pool, block);
        pool->parking = parking;
    } else if (kvpi_block_refs(b) == 0) {
        b->refs &= ~KVPI_REFS_FIRST;
    }
}

/* A null entry's block, if it has no holder, goes to the tail with those that the sequence leaves,
 * when the place behind it needs it: else it would be evicted before what the place needs of
 * others. */
static void renew_entry(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group, uint32_t i,
                        uint32_t place)
{
    const uint32_t end = (i + 1) * kvpi_units_per_block(cache, group);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    if (end > seq->n_units || cache->config.groups[group].recent_tokens == 0 ||
        !kvpi_is_needed_at(cache, group, i, place)) {
        return;
    }
    const uint32_t block =
        kvpi_node_at(&cache->prefix, nodes[end - 1], KVPI_WHERE(KVP_DEVICE, group))->block;
    if (block != KVP_NULL_BLOCK) {
        renew_block(&cache->pool, block);
    }
}

void kvpi_release_rows(kvp_cache *cache, struct kvpi_seq *seq, uint32_t keep,
                       kvp_released *released)
{
    const int renews = cache->table.retains && seq->tier == KVP_DEVICE;
    while (kvpi_rows_lose(cache, seq, keep)) {
        const uint32_t t = kvpi_entry_before(cache, seq->room);
        const uint32_t place = renews ? kvpi_place_behind(cache, seq, t) : 0;
        kvpi_set32(&seq->room, t);
        for (uint32_t g = cache->config.n_groups; g > 0; g--) {
            const uint32_t i = t / kvpi_block_tokens(cache, g - 1);
            const int32_t block = kvpi_entry_begins(cache, g - 1, t)
                                      ? kvpi_row(cache, seq, g - 1)[i]
                                      : KVP_NULL_BLOCK;
            if (block != KVP_NULL_BLOCK) {
                kvpi_leave_block(cache, seq, (uint32_t)block, released);
            } else if (renews && kvpi_entry_begins(cache, g - 1, t)) {
                renew_entry(cache, seq, g - 1, i, place);
            }
        }
    }
    kvpi_set32(&seq->room, keep);
    if (seq->windowed & KVPI_WINDOWED) {
        kvpi_windows_cut(cache, seq);
    }
}

/* The row's entry becomes the block that has the content already. */
static void adopt(kvp_cache *cache, struct kvpi_seq *seq, int32_t *entry, uint32_t block)
{
    const uint32_t ours = (uint32_t)*entry;
    kvpi_pool_hold(&cache->pool, block);
    *entry = (int32_t)block;
    kvpi_set(&seq->row_version, seq->row_version + 1);
    kvpi_leave_block(cache, seq, ours, NULL);
    kvpi_count(&cache->counters.adopted_blocks, 1);
}

/* A copy that has not taken effect brings what is in the block before the unit: it is found when
 * that has. */
static void await_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block)
{
    kvpi_prefix_await(&cache->prefix, node, where, block, kvpi_pool_arriving(&cache->pool)[block]);
}

/* Seal unit u in one group. */
static inline void seal_in(kvp_cache *cache, struct kvpi_seq *seq, uint32_t u, uint32_t node,
                           uint32_t group)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache, group);
    const uint32_t unit_place = units_per_block == 1 ? 0 : u % units_per_block;
    const uint32_t block_idx = units_per_block == 1 ? u : u / units_per_block;
    const int last_of_block = unit_place == units_per_block - 1;
    const uint32_t where = KVPI_WHERE(KVP_DEVICE, group);
    const uint32_t has = kvpi_node_at(&cache->prefix, node, where)->block;
    int32_t *entry = &kvpi_row(cache, seq, group)[block_idx];
    const uint32_t ours = (uint32_t)*entry;
    if (kvpi_unlikely(ours == KVP_NULL_BLOCK)) {
        return; /* dropped before its values were known */
    }
    /* What was sealed in it before and cut off since was detached for its slots to be written. */
    KVPI_ASSERT(has != ours && !kvpi_prefix_is_dup(&cache->prefix, where, ours, unit_place));
    if (kvpi_unlikely(kvpi_is_arriving(cache, ours)) &&
        (has == KVP_NULL_BLOCK || !last_of_block || cache->config.commit_policy != KVP_ADOPT)) {
        await_unit(cache, where, node, ours);
    } else if (has == KVP_NULL_BLOCK) {
        attach(cache, where, node, ours);
        kvpi_count(&cache->counters.sealed_units, 1);
    } else if (last_of_block && cache->config.commit_policy == KVP_ADOPT) {
        adopt(cache, seq, entry, has);
    } else {
        kvpi_prefix_add_dup(&cache->prefix, node, where, ours);
        kvpi_count(&cache->counters.duplicate_blocks, (uint64_t)last_of_block);
    }
}

void kvpi_seal_unit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t u, uint32_t end)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, place);
    if (u + AHEAD < end) {
        const uint32_t units_per_block = kvpi_units_per_block(cache, 0);
        const uint32_t ahead = units_per_block == 1 ? u + AHEAD : (u + AHEAD) / units_per_block;
        const uint32_t block = (uint32_t)kvpi_row_blocks(&cache->table, place)[ahead];
        kvpi_prefetch(kvpi_node(&cache->prefix, nodes[u + AHEAD]));
        kvpi_pool_prefetch(&cache->pool, block);
        if (kvpi_unlikely(cache->pool.leaves.on != 0)) {
            kvpi_prefetch(kvpi_leaves_above(&cache->pool.leaves, block));
            kvpi_leaves_prefetch_content(&cache->pool.leaves, nodes[u + AHEAD]);
        }
    }
    seal_in(cache, seq, u, nodes[u], 0);
    for (uint32_t g = 1; g < cache->config.n_groups; g++) {
        seal_in(cache, seq, u, nodes[u], g);
    }
}

/* cold: what a store may want to write (lend.h). The cold end of the queues, and what the content
 * of a block is of.
 *
 *   sentinel of class 0 -> free .. free -> cached -> cached -> .. -> sentinel
 *   sentinel of class 1 -> cached -> ..          cursor ^ given last
 *
 * Nothing is changed and nothing noted: a cursor is the caller's, and is believed only when its
 * block still has the content that was given.
 */
#include "core/cache/spaces.h"
#include "core/cache/state.h"

#include <string.h>

static const struct kvpi_pool *pool_of(const kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE ? &cache->pool : &cache->host;
}

/* The first block of the queues from class `from` on; 0: there is none. */
static uint32_t first_from(const struct kvpi_pool *pool, uint32_t from)
{
    const uint32_t classes = from >= KVP_RETENTION_CLASSES ? 0 : pool->classes >> from << from;
    return classes == 0 ? 0
                        : kvpi_block(pool, pool->n_blocks + (uint32_t)__builtin_ctz(classes))->next;
}

/* The block behind this one in the queues; 0: it is the last one. */
static uint32_t behind(const struct kvpi_pool *pool, uint32_t block)
{
    const uint32_t next = kvpi_block(pool, block)->next;
    return next < pool->n_blocks ? next : first_from(pool, next - pool->n_blocks + 1);
}

/* Where a walk goes on. */
static uint32_t next_of_cursor(const struct kvpi_pool *pool, const kvp_cold_cursor *cursor)
{
    const uint32_t block = (uint32_t)cursor->block;
    if (block == 0 || block >= pool->n_blocks || !kvpi_block_is_cached(kvpi_block(pool, block)) ||
        kvpi_pool_generation(pool, block) != cursor->generation) {
        return first_from(pool, 0);
    }
    return behind(pool, block);
}

static int is_findable(const kvp_cache *cache, const struct kvpi_node *node)
{
    return (node->flags & KVPI_NODE_PUBLIC) != 0 && kvpi_prefix_is_live(&cache->prefix, node);
}

static void tell_cold(const kvp_cache *cache, uint32_t tier, uint32_t block, kvp_cold *out)
{
    const struct kvpi_pool *pool = pool_of(cache, tier);
    const struct kvpi_block *b = kvpi_block(pool, block);
    const struct kvpi_node *node = kvpi_node(&cache->prefix, b->content);
    const uint32_t other = KVPI_WHERE(1 - tier, kvpi_block_group(b));
    memset(out, 0, sizeof(*out));
    out->generation = kvpi_pool_generation(pool, block);
    out->block = (int32_t)block;
    out->group = kvpi_block_group(b);
    out->retention = kvpi_block_class(b);
    out->n_tokens = node->depth * cache->config.unit_tokens;
    out->elsewhere = kvpi_node_at(&cache->prefix, b->content, other)->block != KVP_NULL_BLOCK;
    out->findable = (uint32_t)is_findable(cache, node);
}

kvp_status kvp_cache_cold_end(const kvp_cache *cache, uint32_t tier, kvp_cold_cursor *cursor,
                              kvp_cold *out_cold, uint32_t capacity, uint32_t *out_n)
{
    if (cache == NULL || cursor == NULL || out_n == NULL || (out_cold == NULL && capacity > 0) ||
        tier >= KVPI_TIERS || cursor->ended > 1 || cursor->block < 0) {
        return KVP_E_ARG;
    }
    const struct kvpi_pool *pool = pool_of(cache, tier);
    uint32_t n = 0;
    if (capacity == 0) {
        *out_n = (uint32_t)pool->n_cached;
        return KVP_OK;
    }
    uint32_t block = pool->n_blocks == 0 || cursor->ended ? 0 : next_of_cursor(pool, cursor);
    for (; block != 0 && n < capacity; block = behind(pool, block)) {
        if (kvpi_block(pool, block)->content != KVPI_NO_NODE) {
            tell_cold(cache, tier, block, &out_cold[n++]);
        }
    }
    if (n > 0) {
        cursor->block = out_cold[n - 1].block;
        cursor->generation = out_cold[n - 1].generation;
    }
    cursor->ended = n < capacity;
    *out_n = n;
    return KVP_OK;
}

/* ------------------------------------------------------------------------------ what a block is */

static int is_block_of(const kvp_cache *cache, uint32_t tier, int32_t block)
{
    return tier < KVPI_TIERS && block >= 0 && (uint32_t)block < pool_of(cache, tier)->n_blocks;
}

/* The unit with depth d on the way up from a node that is deeper, or it. */
static uint32_t at_depth(const struct kvpi_prefix *prefix, uint32_t node, uint32_t depth)
{
    while (kvpi_node(prefix, node)->depth > depth) {
        node = kvpi_node(prefix, node)->parent;
    }
    return node;
}

static int64_t begin_of(const struct kvpi_node *node, const struct kvpi_key *key, uint32_t U)
{
    return (int64_t)(node->depth - 1) * U + key->offset;
}

/* Keys that begin in units up to this one. */
static uint32_t count_prefix_keys(const struct kvpi_prefix *prefix, uint32_t node)
{
    uint32_t n = 0;
    for (; kvpi_node(prefix, node)->depth > 0; node = kvpi_node(prefix, node)->parent) {
        for (uint32_t i = 0; i < kvpi_node(prefix, node)->n_keys; i++) {
            n += kvpi_node_keys(prefix, node)[i].offset >= 0;
        }
    }
    return n;
}

static void fill_origin(const kvp_cache *cache, uint32_t tier, uint32_t block,
                        kvp_block_origin *out)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_block *b = kvpi_block(pool_of(cache, tier), block);
    memset(out, 0, sizeof(*out));
    out->generation = kvpi_pool_generation(pool_of(cache, tier), block);
    out->group = kvpi_block_group(b);
    if (b->content == KVPI_NO_NODE) {
        return;
    }
    const struct kvpi_node *node = kvpi_node(prefix, b->content);
    const uint32_t place = kvpi_prefix_place(prefix, node, out->group);
    const uint32_t units = node->depth - place - 1; /* before the block */
    if (tier == KVP_HOST && cache->lending.max_loads > 0) {
        out->after = kvpi_lent(cache, block)->written;
    }
    out->ns.bits = is_findable(cache, node) ? kvpi_space_with_root(cache, node->root) : 0;
    out->root = kvpi_node(prefix, node->root)->hash;
    out->parent = kvpi_node(prefix, at_depth(prefix, b->content, units))->hash;
    out->hash = node->hash;
    out->first = units * prefix->unit_tokens;
    out->n_tokens = node->depth * prefix->unit_tokens;
    out->n_keys = prefix->max_unit_keys == 0 ? 0 : count_prefix_keys(prefix, b->content);
    out->written = out->after <= kvpi_plans_over(cache);
}

kvp_status kvp_block_origin_get(const kvp_cache *cache, uint32_t tier, int32_t block,
                                kvp_block_origin *out_origin)
{
    if (cache == NULL || out_origin == NULL || !is_block_of(cache, tier, block)) {
        return KVP_E_ARG;
    }
    fill_origin(cache, tier, (uint32_t)block, out_origin);
    return KVP_OK;
}

kvp_status kvp_block_prefix(const kvp_cache *cache, uint32_t tier, int32_t block,
                            int32_t *out_tokens, uint32_t capacity, uint32_t *out_n_tokens)
{
    if (cache == NULL || out_n_tokens == NULL || (out_tokens == NULL && capacity > 0) ||
        !is_block_of(cache, tier, block)) {
        return KVP_E_ARG;
    }
    const struct kvpi_prefix *prefix = &cache->prefix;
    const size_t U = prefix->unit_tokens;
    uint32_t node = kvpi_block(pool_of(cache, tier), (uint32_t)block)->content;
    *out_n_tokens = node == KVPI_NO_NODE ? 0 : kvpi_node(prefix, node)->depth * (uint32_t)U;
    if (capacity == 0 || *out_n_tokens > capacity) {
        return capacity == 0 ? KVP_OK : KVP_E_TOO_SMALL;
    }
    while (node != KVPI_NO_NODE && kvpi_node(prefix, node)->depth > 0) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        memcpy(out_tokens + (n->depth - 1) * U, kvpi_node_tokens(n), U * sizeof(int32_t));
        node = n->parent;
    }
    return KVP_OK;
}

/* The same key, seen from two units? */
static int is_same_key(const struct kvpi_key *a, const kvp_key *b)
{
    return a->type == b->type && a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->bytes, b->bytes, a->n_bytes) == 0);
}

/* A key that begins before the unit goes on in it: those of equal type and bytes are equally
 * long. */
static void carry_key(const struct kvpi_node *node, const struct kvpi_key *key, uint32_t U,
                      kvp_key *keys, uint32_t n)
{
    const uint32_t end = (node->depth - 1) * U + 1;
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i].begin == begin_of(node, key, U) && is_same_key(key, &keys[i])) {
            keys[i].end = kvpi_max_u32(keys[i].end, end);
        }
    }
}

/* From the last unit up: first where keys begin, then how far they go. */
static void fill_keys(const struct kvpi_prefix *prefix, uint32_t last, kvp_key *keys, uint32_t n)
{
    const uint32_t U = prefix->unit_tokens;
    uint32_t left = n;
    for (uint32_t at = last; left > 0; at = kvpi_node(prefix, at)->parent) {
        const struct kvpi_node *node = kvpi_node(prefix, at);
        for (uint32_t i = node->n_keys; i > 0; i--) {
            const struct kvpi_key *key = &kvpi_node_keys(prefix, at)[i - 1];
            if (key->offset >= 0) {
                const uint32_t begin = (uint32_t)begin_of(node, key, U);
                keys[--left] = (kvp_key){key->type, begin, begin + 1, key->n_bytes, key->bytes};
            }
        }
    }
    for (uint32_t at = last; kvpi_node(prefix, at)->depth > 0; at = kvpi_node(prefix, at)->parent) {
        const struct kvpi_node *node = kvpi_node(prefix, at);
        for (uint32_t i = 0; i < node->n_keys; i++) {
            const struct kvpi_key *key = &kvpi_node_keys(prefix, at)[i];
            if (key->offset < 0) {
                carry_key(node, key, U, keys, n);
            }
        }
    }
}

kvp_status kvp_block_keys(const kvp_cache *cache, uint32_t tier, int32_t block, kvp_key *out_keys,
                          uint32_t capacity, uint32_t *out_n_keys)
{
    if (cache == NULL || out_n_keys == NULL || (out_keys == NULL && capacity > 0) ||
        !is_block_of(cache, tier, block)) {
        return KVP_E_ARG;
    }
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t node = kvpi_block(pool_of(cache, tier), (uint32_t)block)->content;
    *out_n_keys =
        node == KVPI_NO_NODE || prefix->max_unit_keys == 0 ? 0 : count_prefix_keys(prefix, node);
    if (*out_n_keys > capacity) {
        return capacity == 0 ? KVP_OK : KVP_E_TOO_SMALL;
    }
    if (*out_n_keys > 0) {
        fill_keys(prefix, node, out_keys, *out_n_keys);
    }
    return KVP_OK;
}

/* calls_spaces: namespaces. What separates tenants is a root node: nothing hangs from two (W1).
 *
 * A namespace is a place with a name and a root. Flushing gives it a new root: what hangs from the
 * old one cannot be reached, lives as long as blocks or sequences need it, and takes the old root
 * with it when it goes.
 */
#include "core/cache/events.h"
#include "core/cache/frame.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/calls/calls_spaces.h"

#include <kvpager/states.h>
#include <string.h>

/* The open place of that name, or the lowest free one; max_namespaces when there is neither. */
static uint32_t find_place(const kvp_cache *cache, const void *name, size_t name_bytes)
{
    const uint64_t last = kvpi_handle_last_generation(cache->space_bits);
    const uint32_t n = cache->config.max_namespaces;
    uint32_t free_place = n;
    for (uint32_t place = 0; place < n; place++) {
        const struct kvpi_space *space = kvpi_space_at(cache, place);
        if (space->generation & 1) {
            if (space->name_bytes == name_bytes &&
                (name_bytes == 0 || memcmp(space->name, name, name_bytes) == 0)) {
                return place;
            }
        } else if (free_place == n && space->generation < last) {
            free_place = place;
        }
    }
    return free_place;
}

static uint32_t new_root(kvp_cache *cache, const struct kvpi_space *space)
{
    kvp_hash hash;
    (void)kvp_hash_root(cache->config.unit_tokens, cache->config.hash_seed, space->name,
                        space->name_bytes, &hash); /* sizes were checked */
    return kvpi_prefix_add_root(&cache->prefix, &hash);
}

/* Make a free place a namespace of that name, with no openers; 0 when no node is free. */
static int make_space(kvp_cache *cache, uint32_t place, const void *name, size_t name_bytes)
{
    struct kvpi_space *space = kvpi_space_at(cache, place);
    space->name_bytes = (uint32_t)name_bytes;
    if (name_bytes > 0) {
        memcpy(space->name, name, name_bytes);
    }
    space->root = new_root(cache, space);
    if (space->root == KVPI_NO_NODE) {
        return 0;
    }
    space->generation++;
    space->openers = 0;
    for (uint32_t pool = 0; pool < KVPI_POOLS; pool++) {
        kvpi_quotas_open(&kvpi_copy_pool(cache, pool)->quotas,
                         kvpi_space_handle(cache, place).bits);
    }
    kvpi_count(&cache->n_open_spaces, 1);
    return 1;
}

static kvp_status open_space(kvp_cache *cache, const void *name, size_t name_bytes, kvp_ns *out_ns)
{
    const uint32_t place = find_place(cache, name, name_bytes);
    if (place == cache->config.max_namespaces) {
        return KVP_E_NO_NAMESPACES;
    }
    struct kvpi_space *space = kvpi_space_at(cache, place);
    if (!(space->generation & 1) && !make_space(cache, place, name, name_bytes)) {
        return KVP_E_NO_NAMESPACES;
    }
    space->openers++;
    cache->used = 1;
    *out_ns = kvpi_space_handle(cache, place);
    return KVP_OK;
}

uint32_t kvpi_restore_space(kvp_cache *cache, const void *name, uint32_t name_bytes)
{
    const uint32_t place = (uint32_t)cache->n_open_spaces; /* none was ever closed */
    if (place == cache->config.max_namespaces || !make_space(cache, place, name, name_bytes)) {
        return KVPI_NO_NODE;
    }
    return kvpi_space_at(cache, place)->root;
}

kvp_status kvp_ns_open(kvp_cache *cache, const void *name, size_t name_bytes, kvp_ns *out_ns)
{
    kvp_status status = cache == NULL || out_ns == NULL || (name == NULL && name_bytes > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status =
        name_bytes > KVP_NAME_MAX_BYTES ? KVP_E_ARG : open_space(cache, name, name_bytes, out_ns);
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
    } else {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_ns_open(&cache->recorder, name, name_bytes, status, out_ns);
    }
    return kvpi_leave(cache, status);
}

/* The namespace has this root no longer. */
static void leave_root(kvp_cache *cache, uint32_t root)
{
    if (cache->events.capacity > 0) {
        kvpi_tell_cleared(cache, root);
    }
    kvpi_node(&cache->prefix, root)->flags &= ~(uint32_t)KVPI_NODE_LIVE;
    kvpi_prefix_unuse(&cache->prefix, root);
}

kvp_status kvp_ns_close(kvp_cache *cache, kvp_ns ns)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct kvpi_space *space = kvpi_find_space(cache, ns);
    if (space == NULL) {
        status = kvpi_fail(cache, KVP_E_HANDLE, 0, 0);
    } else {
        kvpi_begin_change(cache);
        if (--space->openers == 0) {
            for (uint32_t pool = 0; pool < KVPI_POOLS; pool++) {
                kvpi_quotas_close(&kvpi_copy_pool(cache, pool)->quotas, ns.bits);
            }
            space->generation++;
            leave_root(cache, space->root);
            kvpi_uncount(&cache->n_open_spaces, 1);
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_ns_close(&cache->recorder, ns, status);
    }
    return kvpi_leave(cache, status);
}

/* Flush without a new root, for want of a node: withdraw what hangs from it, end publishing. */
static void flush_in_place(kvp_cache *cache, uint32_t root)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    if (cache->events.capacity > 0) {
        kvpi_tell_cleared(cache, root);
    }
    for (uint32_t node = 1; node <= prefix->n_touched; node++) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        if ((n->flags & KVPI_NODE_PUBLIC) && n->root == root) {
            kvpi_prefix_withdraw(prefix, node);
        }
    }
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        if (seq->root == root) {
            kvpi_set32(&seq->n_public, 0);
            seq->uncached_from = 0;
        }
    }
}

static void flush(kvp_cache *cache, struct kvpi_space *space)
{
    const struct kvpi_node *root = kvpi_node(&cache->prefix, space->root);
    if (root->users == 1 && root->children == 0) {
        return; /* nothing was cached or opened */
    }
    const uint32_t fresh = new_root(cache, space);
    if (fresh == KVPI_NO_NODE) {
        flush_in_place(cache, space->root);
        return;
    }
    leave_root(cache, space->root);
    space->root = fresh;
}

kvp_status kvp_ns_flush(kvp_cache *cache, kvp_ns ns)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct kvpi_space *space = kvpi_find_space(cache, ns);
    if (space == NULL) {
        status = kvpi_fail(cache, KVP_E_HANDLE, 0, 0);
    } else {
        kvpi_begin_change(cache);
        flush(cache, space);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_ns_flush(&cache->recorder, ns, status);
    }
    return kvpi_leave(cache, status);
}

/* May a quota be set there? */
static kvp_status check_quota(kvp_cache *cache, kvp_ns ns, uint32_t tier)
{
    if (kvpi_find_space(cache, ns) == NULL) {
        return KVP_E_HANDLE;
    }
    if (tier > KVP_STATE_SLOTS || kvpi_copy_pool(cache, tier)->n_blocks == 0) {
        return KVP_E_ARG;
    }
    return cache->config.quotas ? KVP_OK : KVP_E_STATE;
}

kvp_status kvp_ns_quota(kvp_cache *cache, kvp_ns ns, uint32_t tier, uint32_t n_blocks)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = check_quota(cache, ns, tier);
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
        kvpi_quotas_set(&kvpi_copy_pool(cache, tier)->quotas, ns.bits, n_blocks);
    } else {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_ns_quota(&cache->recorder, ns, tier, n_blocks, status);
    }
    return kvpi_leave(cache, status);
}

void kvpi_reset_spaces(kvp_cache *cache)
{
    for (uint32_t place = 0; place < cache->config.max_namespaces; place++) {
        struct kvpi_space *space = kvpi_space_at(cache, place);
        if (space->generation & 1) {
            space->root = new_root(cache, space); /* n_nodes > max_namespaces: there is one */
        }
    }
}

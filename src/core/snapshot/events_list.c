/* events_list: the set that events tell of, listed as one of events (kvpager/events.h). */
#include "core/cache/events.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"

#include <string.h>

/* The set, as it is listed. */
struct listing {
    kvp_event *events;
    int32_t *tokens;
    uint32_t capacity;
    uint32_t n;
};

static void list_unit(const kvp_cache *cache, uint32_t node, struct listing *listing)
{
    const uint32_t U = cache->config.unit_tokens;
    for (uint32_t where = 0; where < cache->prefix.n_where; where++) {
        if (kvpi_node_at(&cache->prefix, node, where)->block == KVP_NULL_BLOCK ||
            kvpi_events_has_twin(cache, where, node, KVPI_NODE_MARKED)) {
            continue;
        }
        if (listing->n < listing->capacity) {
            kvp_event *event = &listing->events[listing->n];
            memset(event, 0, sizeof(*event));
            event->number = cache->events.newest;
            event->kind = KVP_EVENT_STORED;
            event->tier = KVPI_TIER_OF(where);
            event->group = where / KVPI_TIERS;
            kvpi_events_describe(cache, node, event);
            if (listing->tokens != NULL) {
                memcpy(listing->tokens + (size_t)listing->n * U,
                       kvpi_node_tokens(kvpi_node(&cache->prefix, node)),
                       (size_t)U * sizeof(int32_t));
            }
        }
        listing->n++;
    }
}

/* Does the way from its root lead over public nodes only? */
static int is_reachable(const struct kvpi_prefix *prefix, uint32_t node)
{
    while (kvpi_node(prefix, node)->flags & KVPI_NODE_PUBLIC) {
        node = kvpi_node(prefix, node)->parent;
    }
    return (kvpi_node(prefix, node)->flags & KVPI_NODE_ROOT) != 0;
}

/* List a node, after those of its ancestors that were not listed yet: marked ones were. */
static void list_path(kvp_cache *cache, uint32_t node, struct listing *listing)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    uint32_t *path = kvpi_row_nodes(&cache->table, kvpi_table_scratch(&cache->table));
    uint32_t n = 0; /* no path is longer than a row */
    while (!(kvpi_node(prefix, node)->flags & (KVPI_NODE_ROOT | KVPI_NODE_MARKED))) {
        path[n++] = node;
        node = kvpi_node(prefix, node)->parent;
    }
    while (n > 0) {
        struct kvpi_node *next = kvpi_node(prefix, path[--n]);
        if (next->flags & KVPI_NODE_PUBLIC) {
            list_unit(cache, path[n], listing);
        }
        next->flags |= KVPI_NODE_MARKED;
    }
}

/* What can be reached first, then what hangs behind withdrawn nodes: its ancestors' hashes may be
 * those of newer nodes. */
static void list_all(kvp_cache *cache, struct listing *listing)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    for (int reachable = 1; reachable >= 0; reachable--) {
        for (uint32_t i = 1; i <= prefix->n_touched; i++) {
            const struct kvpi_node *n = kvpi_node(prefix, i);
            if ((n->flags & KVPI_NODE_PUBLIC) && kvpi_prefix_is_live(prefix, n) &&
                is_reachable(prefix, i) == reachable) {
                list_path(cache, i, listing);
            }
        }
    }
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        kvpi_node(prefix, i)->flags &= ~(uint32_t)KVPI_NODE_MARKED;
    }
}

static kvp_status list_events(kvp_cache *cache, struct listing *listing)
{
    const uint32_t capacity = listing->capacity;
    if (cache->events.capacity == 0) {
        return KVP_E_STATE;
    }
    listing->capacity = 0; /* count first: nothing is written unless all of it fits */
    list_all(cache, listing);
    if (capacity == 0) {
        return KVP_OK;
    }
    if (listing->n > capacity) {
        return KVP_E_TOO_SMALL;
    }
    listing->capacity = capacity;
    listing->n = 0;
    list_all(cache, listing);
    return KVP_OK;
}

kvp_status kvp_events_snapshot(kvp_cache *cache, kvp_event *out_events, uint32_t capacity,
                               int32_t *out_tokens, uint32_t *out_n_events, uint64_t *out_number)
{
    struct listing listing = {out_events, out_tokens, capacity, 0};
    kvp_status status = cache == NULL || out_n_events == NULL || out_number == NULL ||
                                (out_events == NULL && capacity > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = list_events(cache, &listing);
    if (status != KVP_E_STATE) {
        *out_n_events = listing.n;
        *out_number = cache->events.newest;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_events_snapshot(&cache->recorder, capacity, out_tokens != NULL, status,
                                    out_events, out_tokens, listing.n, cache->events.newest);
    }
    return kvpi_leave(cache, status);
}

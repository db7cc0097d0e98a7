/* events: what is stored where, told to readers.
 *
 * A ring of the newest events, each with its unit's tokens; number e lies at (e - 1) % capacity.
 * Readers keep their own place in it, nothing is taken out. They may read while events are made:
 * the writer says which number it begins (`begun`) before it writes over that place, and which is
 * whole (`newest`) afterwards. A reader copies what is whole, and then looks whether any of it has
 * been overwritten since.
 *
 * Readers get the set of hashes that have KV in a tier, so a unit is reported only if no other node
 * of a live root has the same hash there: such twins hang behind a withdrawn node, where no prompt
 * finds them.
 */
#include "core/cache/events.h"
#include "core/cache/state.h"

#include <string.h>

int kvpi_events_has_twin(const kvp_cache *cache, uint32_t where, uint32_t node, uint32_t flags)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const kvp_hash *hash = &kvpi_node(prefix, node)->hash;
    struct kvpi_tags_search search = kvpi_tags_search(&prefix->tags, kvpi_prefix_tag(prefix, hash));
    for (uint32_t twin; (twin = kvpi_tags_next(&prefix->tags, &search)) != KVPI_NO_NODE;) {
        const struct kvpi_node *other = kvpi_node(prefix, twin);
        if (twin != node && (other->flags & flags) == flags &&
            kvpi_node_at(prefix, twin, where)->block != KVP_NULL_BLOCK &&
            kvpi_prefix_is_live(prefix, other) && memcmp(&other->hash, hash, sizeof(*hash)) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Is a change of the node's KV there a change of the set? */
static int is_told(const kvp_cache *cache, uint32_t where, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(&cache->prefix, node);
    return (n->flags & KVPI_NODE_PUBLIC) && kvpi_prefix_is_live(&cache->prefix, n) &&
           !kvpi_events_has_twin(cache, where, node, 0);
}

/* What a reader asks for. */
struct event_reading {
    uint64_t from;
    uint32_t capacity;
    kvp_event *out_events;
    int32_t *out_tokens;
};

static kvp_event *event_at(const kvp_cache *cache, uint64_t number)
{
    kvp_event *events = kvpi_at(cache, cache->events.events_at);
    return events + (number - 1) % cache->events.capacity;
}

static int32_t *tokens_at(const kvp_cache *cache, uint64_t number)
{
    int32_t *tokens = kvpi_at(cache, cache->events.tokens_at);
    return tokens + (size_t)((number - 1) % cache->events.capacity) * cache->config.unit_tokens;
}

/* Begin the next event: what lies in its place is not remembered any more. */
static kvp_event begin_event(kvp_cache *cache, uint32_t kind, uint32_t where)
{
    kvp_event event;
    memset(&event, 0, sizeof(event));
    event.number = cache->events.newest + 1;
    event.kind = kind;
    event.tier = KVPI_TIER_OF(where);
    event.group = where / KVPI_TIERS;
    kvpi_set(&cache->events.begun, event.number);
    kvpi_fence(); /* pairs with that of copy_events */
    return event;
}

static void end_event(kvp_cache *cache, const kvp_event *event)
{
    kvpi_store_words(event_at(cache, event->number), event, sizeof(*event));
    /* Pairs with the acquire of read_events. */
    __atomic_store_n(&cache->events.newest, event->number, __ATOMIC_RELEASE);
}

void kvpi_events_describe(const kvp_cache *cache, uint32_t node, kvp_event *event)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_node *n = kvpi_node(prefix, node);
    event->hash = n->hash;
    event->parent = kvpi_node(prefix, n->parent)->hash;
    event->root = kvpi_node(prefix, n->root)->hash;
    event->position = (n->depth - 1) * prefix->unit_tokens;
    event->n_tokens = prefix->unit_tokens;
}

void kvpi_tell_stored(kvp_cache *cache, uint32_t where, uint32_t node)
{
    if (is_told(cache, where, node)) {
        kvp_event event = begin_event(cache, KVP_EVENT_STORED, where);
        kvpi_events_describe(cache, node, &event);
        kvpi_store_words(tokens_at(cache, event.number),
                         kvpi_node_tokens(kvpi_node(&cache->prefix, node)),
                         (size_t)cache->config.unit_tokens * sizeof(int32_t));
        end_event(cache, &event);
    }
}

void kvpi_tell_removed(kvp_cache *cache, uint32_t where, uint32_t node)
{
    if (is_told(cache, where, node)) {
        kvp_event event = begin_event(cache, KVP_EVENT_REMOVED, where);
        event.hash = kvpi_node(&cache->prefix, node)->hash;
        end_event(cache, &event);
    }
}

void kvpi_tell_cleared(kvp_cache *cache, uint32_t root)
{
    kvp_event event = begin_event(cache, KVP_EVENT_CLEARED, 0);
    if (root != KVPI_NO_NODE) {
        event.hash = kvpi_node(&cache->prefix, root)->hash;
    }
    end_event(cache, &event);
}

/* ----------------------------------------------------------------------------------------- read */

/* Is the place of event `number` given to another, or will be by the one that is written now? */
static int is_gone(const struct kvpi_events *events, uint64_t number, uint64_t begun)
{
    return begun >= events->capacity && number <= begun - events->capacity;
}

/* How many events there are from `from` on, `capacity` at most; copied, whole or not. */
static uint32_t copy_events(const kvp_cache *cache, const struct event_reading *r, uint64_t newest)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint64_t there = newest + 1 - r->from;
    const uint32_t n = there < r->capacity ? (uint32_t)there : r->capacity;
    for (uint32_t i = 0; i < n; i++) {
        kvp_event *event = &r->out_events[i];
        kvpi_load_words(event, event_at(cache, r->from + i), sizeof(*event));
        if (r->out_tokens != NULL && event->n_tokens > 0) {
            kvpi_load_words(r->out_tokens + (size_t)i * U, tokens_at(cache, r->from + i),
                            (size_t)U * sizeof(int32_t));
        }
    }
    kvpi_fence(); /* pairs with that of begin_event */
    return n;
}

static kvp_status read_events(const kvp_cache *cache, const struct event_reading *r,
                              uint32_t *out_n)
{
    const struct kvpi_events *events = &cache->events;
    const uint64_t newest = __atomic_load_n(&events->newest, __ATOMIC_ACQUIRE);
    if (r->from > newest + 1) {
        return KVP_E_ARG;
    }
    if (is_gone(events, r->from, newest)) {
        return KVP_E_BEHIND;
    }
    *out_n = copy_events(cache, r, newest);
    return *out_n > 0 && is_gone(events, r->from, kvpi_read(&events->begun)) ? KVP_E_AGAIN : KVP_OK;
}

kvp_status kvp_events_read(const kvp_cache *cache, uint64_t from, kvp_event *out_events,
                           uint32_t capacity, int32_t *out_tokens, uint32_t *out_n_events)
{
    const struct event_reading r = {from, capacity, out_events, out_tokens};
    kvp_status status = KVP_E_AGAIN;
    uint32_t n = 0;
    if (cache == NULL || out_n_events == NULL || (out_events == NULL && capacity > 0) ||
        from == 0) {
        return KVP_E_ARG;
    }
    if (cache->events.capacity == 0) {
        return KVP_E_STATE;
    }
    for (uint32_t i = 0; i < KVPI_READ_TRIES && status == KVP_E_AGAIN; i++) {
        status = read_events(cache, &r, &n);
    }
    if (status == KVP_OK) {
        *out_n_events = n;
    }
    return status;
}

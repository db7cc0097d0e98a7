/* See view.h. */
#include "view.h"
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

enum { VIEW_CAPACITY = 16 }; /* events of one read */

view *view_create(oracle *o)
{
    view *v = oracle_allocate(1, sizeof *v);

    v->o = o;
    v->size = 256;
    v->table = oracle_allocate(v->size, sizeof *v->table);
    v->next = 1;
    v->told = UINT64_MAX;
    return v;
}

void view_destroy(view *v)
{
    if (!v)
        return;
    kvp_outcome_free(&v->outcome);
    free(v->table);
    free(v);
}

/* -------------------------------------------------------------------------------------- the set */

/* The element, or the place where it can be put. */
static view_element *find(const view *v, const kvp_hash *hash, uint32_t tier, uint32_t group)
{
    uint64_t key;
    uint32_t at;

    memcpy(&key, hash->bytes, sizeof key);
    for (at = (uint32_t)(key % v->size); v->table[at].used; at = (at + 1) % v->size)
        if (!v->table[at].gone && v->table[at].tier == tier && v->table[at].group == group &&
            memcmp(&v->table[at].hash, hash, sizeof *hash) == 0)
            break;
    return &v->table[at];
}

static void insert(view *v, const view_element *element)
{
    *find(v, &element->hash, element->tier, element->group) = *element;
    v->n_used++;
    v->n++;
}

static void grow(view *v)
{
    view_element *old = v->table;
    uint32_t size = v->size;

    if (2 * v->n_used < v->size)
        return;
    v->size = 4 * v->n > 256 ? 4 * v->n : 256;
    v->table = oracle_allocate(v->size, sizeof *v->table);
    v->n = v->n_used = 0;
    for (uint32_t i = 0; i < size; i++)
        if (old[i].used && !old[i].gone)
            insert(v, &old[i]);
    free(old);
}

static void clear(view *v, const kvp_hash *root)
{
    static const kvp_hash everything;
    bool all = memcmp(root, &everything, sizeof everything) == 0;

    for (uint32_t i = 0; i < v->size; i++) {
        view_element *e = &v->table[i];

        if (!e->used || e->gone || (!all && memcmp(&e->root, root, sizeof *root) != 0))
            continue;
        e->gone = true;
        v->n--;
    }
}

/* ----------------------------------------------------------------------------------- the events */

static const oracle_node *find_node(const oracle *o, const kvp_hash *hash)
{
    for (uint32_t i = 0; i < o->n_nodes; i++)
        if (o->nodes[i].used && memcmp(&o->nodes[i].hash, hash, sizeof *hash) == 0)
            return &o->nodes[i];
    return NULL;
}

/* Is everything that a STORED says of its unit so? (Not known when the unit has gone since.) */
static bool stored_well(const view *v, const kvp_event *event, const int32_t *tokens)
{
    const oracle_node *node = find_node(v->o, &event->hash);

    if (event->n_tokens != v->o->unit || event->tier >= ORACLE_TIERS || event->reserved ||
        event->group >= oracle_n_told(v->o))
        return false;
    if (!node)
        return true;
    return event->position == node->depth * v->o->unit &&
           memcmp(&event->root, &v->o->nodes[node->root].hash, sizeof event->root) == 0 &&
           memcmp(&event->parent, &v->o->nodes[node->parent].hash, sizeof event->parent) == 0 &&
           memcmp(tokens, node->tokens, v->o->unit * sizeof *tokens) == 0;
}

static bool is_zero(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    while (n && !at[n - 1])
        n--;
    return n == 0;
}

static const char *apply_stored(view *v, const kvp_event *event, const int32_t *tokens)
{
    view_element e;

    if (!stored_well(v, event, tokens))
        return "what an event says of a stored unit";
    memset(&e, 0, sizeof e);
    e.hash = event->hash;
    e.tier = event->tier;
    e.group = event->group;
    e.used = true;
    if (find(v, &e.hash, e.tier, e.group)->used)
        return "an event that stores what was stored";
    e.root = event->root;
    grow(v);
    insert(v, &e);
    return NULL;
}

static const char *apply(view *v, const kvp_event *event, const int32_t *tokens)
{
    bool bare = !event->reserved && !event->position && !event->n_tokens &&
                is_zero(&event->parent, sizeof event->parent) &&
                is_zero(&event->root, sizeof event->root) &&
                is_zero(tokens, v->o->unit * sizeof *tokens);
    view_element *e;

    switch (event->kind) {
    case KVP_EVENT_STORED: v->stored++; return apply_stored(v, event, tokens);
    case KVP_EVENT_REMOVED:
        e = find(v, &event->hash, event->tier, event->group);
        if (!bare || !e->used)
            return "an event that removes what was not stored";
        e->gone = true;
        v->n--;
        v->removed++;
        return NULL;
    case KVP_EVENT_CLEARED:
        clear(v, &event->hash);
        v->cleared++;
        return bare && !event->tier && !event->group ? NULL : "what an event that clears says";
    default: return "the kind of an event";
    }
}

/* ------------------------------------------------------------------------------------ following */

static kvp_status call_events(view *v, kvp_cache *cache, uint32_t op, uint64_t from, uint32_t count)
{
    kvp_call call = {.op = op, .number = from, .count = count, .with_tokens = 1};

    v->n_made += op != KVP_CALL_EVENTS_READ; /* which is in no log */
    return kvp_oplog_call_run(cache, &call, &v->outcome) == KVP_OK ? v->outcome.status
                                                                   : KVP_E_NO_MEMORY;
}

static void remember(view *v, const kvp_event *event, const int32_t *tokens)
{
    uint64_t at = event->number % v->o->config.max_events;

    v->o->history[at] = *event;
    memcpy(v->o->history_tokens + at * v->o->unit, tokens, v->o->unit * sizeof *tokens);
    v->o->newest_event = event->number;
}

/* Read until there is nothing new. `applying`: not only to remember. */
static const char *read_all(view *v, kvp_cache *cache, bool applying, kvp_status *out_status)
{
    for (;;) {
        *out_status = call_events(v, cache, KVP_CALL_EVENTS_READ, v->next, VIEW_CAPACITY);
        if (*out_status != KVP_OK || v->outcome.n == 0)
            return NULL;
        for (uint32_t i = 0; i < v->outcome.n; i++) {
            const int32_t *tokens = v->outcome.i32 + (size_t)i * v->o->unit;
            const char *why = NULL;

            if (v->outcome.events[i].number != v->next)
                return "the number of an event";
            v->next++;
            remember(v, &v->outcome.events[i], tokens);
            if (applying)
                why = apply(v, &v->outcome.events[i], tokens);
            if (why)
                return why;
        }
    }
}

/* Begin again with a snapshot; then read once more what is still remembered. */
static const char *catch_up(view *v, kvp_cache *cache)
{
    uint64_t newest, most = v->o->config.max_events;
    const char *why = NULL;
    kvp_status status;

    v->behind++;
    memset(v->table, 0, v->size * sizeof *v->table);
    v->n = v->n_used = 0;
    if (call_events(v, cache, KVP_CALL_EVENTS_SNAPSHOT, 0, UINT32_MAX) != KVP_OK)
        return "the status of a snapshot";
    newest = v->outcome.number;
    if (newest < v->next + most)
        return "a reader that is told to be behind, and is not";
    for (uint32_t i = 0; i < v->outcome.n && !why; i++) {
        why = v->outcome.events[i].kind != KVP_EVENT_STORED || v->outcome.events[i].number != newest
                  ? "an event of a snapshot"
                  : apply_stored(v, &v->outcome.events[i], v->outcome.i32 + (size_t)i * v->o->unit);
    }
    if (why)
        return why;
    v->next = newest - most + 1;
    why = read_all(v, cache, false, &status);
    return why ? why : status != KVP_OK ? "the status of a read after a snapshot" : NULL;
}

/* Is the set the oracle's? */
static const char *compare(view *v)
{
    const oracle *o = v->o;
    uint32_t n = 0;

    v->round++;
    for (uint32_t i = 0; i < o->n_nodes; i++) {
        for (uint32_t k = 0; k < ORACLE_TIERS * oracle_n_told(o); k++) {
            uint32_t tier = k % ORACLE_TIERS, group = k / ORACLE_TIERS;
            view_element *e;

            if (!oracle_is_told(o, i, tier, group))
                continue;
            e = find(v, &o->nodes[i].hash, tier, group);
            if (!e->used)
                return "the set that events tell: one is missing";
            n += e->round != v->round;
            e->round = v->round;
        }
    }
    v->told = o->told;
    return n == v->n ? NULL : "the set that events tell: one is too much";
}

const char *view_follow(view *v, kvp_cache *cache)
{
    uint64_t before = v->next;
    const char *why;
    kvp_status status;

    if (!v->o->config.max_events)
        return NULL;
    why = read_all(v, cache, true, &status);
    if (!why && status == KVP_E_BEHIND)
        why = catch_up(v, cache);
    else if (!why && status != KVP_OK)
        why = "the status of a read";
    if (why || (v->next == before && v->told == v->o->told))
        return why;
    return compare(v);
}

/* What events tell: the set of (hash, tier, group) whose KV can be found.
 *
 * How many events a call makes is not foretold, only what they come to. The runner reads them after
 * every call (view.h) and leaves those that are still remembered in o->history; from there reads
 * are foretold, and the number of the newest.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

bool oracle_is_told(const oracle *o, uint32_t i, uint32_t tier, uint32_t group)
{
    const oracle_node *node = &o->nodes[i];

    return node->used && !node->is_root && !node->is_private && node->at[group][tier].block &&
           o->nodes[node->root].has_ns;
}

/* Does a node before this one tell the same? Equal hashes are one element. */
static bool told_before(const oracle *o, uint32_t i, uint32_t tier, uint32_t group)
{
    for (uint32_t k = 0; k < i; k++)
        if (oracle_is_told(o, k, tier, group) &&
            memcmp(&o->nodes[k].hash, &o->nodes[i].hash, sizeof(kvp_hash)) == 0)
            return true;
    return false;
}

uint32_t oracle_n_told(const oracle *o)
{
    return o->config.n_groups + oracle_has_states(o);
}

static uint32_t count_told(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->n_nodes; i++) {
        for (uint32_t k = 0; k < ORACLE_TIERS * oracle_n_told(o); k++) {
            uint32_t tier = k % ORACLE_TIERS, group = k / ORACLE_TIERS;

            n += oracle_is_told(o, i, tier, group) && !told_before(o, i, tier, group);
        }
    }
    return n;
}

kvp_status oracle_events_read(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint64_t most = o->config.max_events, newest = o->newest_event, from = call->number;
    uint32_t n;

    if (!most)
        return from ? KVP_E_STATE : KVP_E_ARG;
    if (from == 0 || from > newest + 1)
        return KVP_E_ARG;
    if (newest >= most && from <= newest - most)
        return KVP_E_BEHIND;
    n = newest - from + 1 < call->count ? (uint32_t)(newest - from + 1) : call->count;
    out->n = n;
    o->events = oracle_grow(o->events, &o->events_capacity, n, sizeof *o->events);
    oracle_out_i32(o, (uint64_t)n * o->unit);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = (from + i) % most;

        o->events[i] = o->history[at];
        memcpy(o->i32 + (size_t)i * o->unit, o->history_tokens + at * o->unit,
               o->unit * sizeof *o->i32);
    }
    out->events = o->events;
    out->i32 = call->with_tokens ? o->i32 : NULL;
    return KVP_OK;
}

/* The order of a snapshot is the cache's; oracle_learn_snapshot looks at it. */
kvp_status oracle_events_snapshot(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    if (!o->config.max_events)
        return KVP_E_STATE;
    out->n = count_told(o);
    out->number = o->newest_event;
    return call->count && out->n > call->count ? KVP_E_TOO_SMALL : KVP_OK;
}

/* The next node after i that tells what an event says; ORACLE_NONE: there is none. */
static uint32_t next_told(const oracle *o, const kvp_event *event, uint32_t i)
{
    bool is_place = event->tier < ORACLE_TIERS && event->group < oracle_n_told(o);

    for (i++; i < o->n_nodes && is_place; i++)
        if (oracle_is_told(o, i, event->tier, event->group) &&
            memcmp(&o->nodes[i].hash, &event->hash, sizeof event->hash) == 0)
            return i;
    return ORACLE_NONE;
}

static bool is_listed(const kvp_outcome *snapshot, uint32_t n, const kvp_hash *hash)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(&snapshot->events[i].hash, hash, sizeof *hash) == 0)
            return true;
    return false;
}

static bool is_told_anywhere(const oracle *o, uint32_t i)
{
    for (uint32_t k = 0; k < ORACLE_TIERS * oracle_n_told(o); k++)
        if (oracle_is_told(o, i, k % ORACLE_TIERS, k / ORACLE_TIERS))
            return true;
    return false;
}

/* "Ancestors before descendants": is one of the node's not among the first n events? */
static bool comes_early(const oracle *o, uint32_t i, const kvp_outcome *snapshot, uint32_t n)
{
    for (uint32_t up = o->nodes[i].parent; !o->nodes[up].is_root; up = o->nodes[up].parent)
        if (is_told_anywhere(o, up) && !is_listed(snapshot, n, &o->nodes[up].hash))
            return true;
    return false;
}

/* Is it what an event should say of the node? */
static bool event_fits(const oracle *o, uint32_t i, const kvp_event *event, const int32_t *tokens)
{
    const oracle_node *node = &o->nodes[i];
    kvp_event wanted;

    memset(&wanted, 0, sizeof wanted);
    wanted.number = o->newest_event;
    wanted.kind = KVP_EVENT_STORED;
    wanted.tier = event->tier;
    wanted.group = event->group;
    wanted.hash = node->hash;
    wanted.parent = o->nodes[node->parent].hash;
    wanted.root = o->nodes[node->root].hash;
    wanted.position = node->depth * o->unit;
    wanted.n_tokens = o->unit;
    return memcmp(&wanted, event, sizeof wanted) == 0 &&
           (!tokens || memcmp(tokens, node->tokens, o->unit * sizeof *tokens) == 0);
}

/* Does event `at` tell of a node, in its turn, and for the first time? */
static bool comes_well(const oracle *o, const kvp_call *call, const kvp_outcome *snapshot,
                       uint32_t at)
{
    const kvp_event *event = &snapshot->events[at];
    const int32_t *tokens = call->with_tokens ? snapshot->i32 + (size_t)at * o->unit : NULL;

    for (uint32_t i = 0; i < at; i++)
        if (snapshot->events[i].tier == event->tier && snapshot->events[i].group == event->group &&
            memcmp(&snapshot->events[i].hash, &event->hash, sizeof event->hash) == 0)
            return false;
    for (uint32_t i = UINT32_MAX; (i = next_told(o, event, i)) != ORACLE_NONE;)
        if (event_fits(o, i, event, tokens) && !comes_early(o, i, snapshot, at))
            return true;
    return false;
}

void oracle_learn_snapshot(oracle *o, const kvp_call *call, const kvp_outcome *seen,
                           kvp_outcome *foretold)
{
    if (seen->n != foretold->n || !seen->events)
        return;
    for (uint32_t i = 0; i < seen->n; i++)
        if (!comes_well(o, call, seen, i))
            return; /* there are no events, and that differs */
    foretold->events = seen->events;
    foretold->i32 = seen->i32;
}

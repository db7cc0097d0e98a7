/* Room for a unit's node when all are in use: what is evicted for one (cache.h). */
#include "oracle_parts.h"

#include <string.h>

enum { EVICTIONS_MAX = 1024 };

/* The block of the tier that is evicted next goes, and nothing of it is kept. False: none is
 * cached. */
static bool evict_block(oracle *o, uint32_t tier)
{
    uint32_t turn = o->pools[tier].turn;
    int32_t block = o->pools[tier].n ? oracle_coldest(o, tier, &turn) : 0;

    if (!block)
        return false;
    o->pools[tier].turn = turn;
    oracle_queue_remove(o, block);
    oracle_evicted(o, block, false);
    oracle_put_behind_free(o, block);
    return true;
}

/* The checkpoint that is evicted next goes; its slot is the last of those that are free. */
static bool evict_checkpoint(oracle *o)
{
    uint32_t turn = o->slot_turn, at = 0;
    int32_t slot = oracle_has_states(o) ? oracle_coldest(o, KVP_STATE_SLOTS, &turn) : 0;
    oracle_queue *queue = &o->slot_queues[0];

    if (!slot)
        return false;
    o->slot_turn = turn;
    oracle_slot_clear(o, (uint32_t)slot);
    while (at < queue->n && o->slots[queue->items[at]].node == ORACLE_NONE)
        at++;
    memmove(queue->items + at + 1, queue->items + at, (queue->n - at) * sizeof *queue->items);
    queue->items[at] = slot;
    queue->n++;
    return true;
}

/* Evict until one more node is free. False: none is. */
bool oracle_free_node(oracle *o)
{
    uint32_t used = o->nodes_used;

    for (uint32_t n = 0; n < EVICTIONS_MAX && o->nodes_used == used; n++) {
        o->marks.node_again += n > 0;
        if (evict_block(o, KVP_HOST)) {
            o->marks.node_host++;
        } else if (evict_block(o, KVP_DEVICE)) {
            o->marks.node_device++;
        } else if (evict_checkpoint(o)) {
            o->marks.node_slot++;
        } else {
            o->marks.node_none++;
            return false;
        }
    }
    return o->nodes_used < used;
}

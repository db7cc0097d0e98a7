/* Blocks: the queue, taking and evicting, holding and releasing, the plan of copies.
 *
 * Free and cached blocks are in the queue of their class, free ones in that of class 0.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

static oracle_queue *queue_of(oracle *o, int32_t block)
{
    bool cached = oracle_block_sealed(o, block);

    return &o->queues[cached ? o->blocks[block].retention : 0];
}

bool oracle_block_sealed(const oracle *o, int32_t block)
{
    return oracle_block_depth(o, block) > 0;
}

void oracle_queue_put(oracle *o, int32_t block, bool at_tail)
{
    oracle_queue *queue = queue_of(o, block);

    if (at_tail) {
        queue->items[queue->n] = block;
    } else {
        memmove(queue->items + 1, queue->items, queue->n * sizeof *queue->items);
        queue->items[0] = block;
    }
    queue->n++;
}

void oracle_queue_remove(oracle *o, int32_t block)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        oracle_queue *queue = &o->queues[c];

        for (uint32_t i = 0; i < queue->n; i++) {
            if (queue->items[i] != block)
                continue;
            queue->n--;
            memmove(queue->items + i, queue->items + i + 1, (queue->n - i) * sizeof *queue->items);
            return;
        }
    }
}

/* Everything that the block had is gone: evicted, or free. */
static void clear_content(oracle *o, int32_t block)
{
    for (uint32_t k = 0; k < o->block_units; k++) {
        if (o->blocks[block].unit_kind[k] != UNIT_EMPTY)
            oracle_unit_clear(o, block, k, false);
    }
}

static void evict(oracle *o, int32_t block)
{
    oracle_block *b = &o->blocks[block];
    uint32_t deepest = b->unit_node[oracle_block_depth(o, block) - 1];

    o->evicted =
        oracle_grow(o->evicted, &o->evicted_capacity, o->n_evicted + 1u, sizeof *o->evicted);
    memset(&o->evicted[o->n_evicted], 0, sizeof *o->evicted);
    o->evicted[o->n_evicted].hash = o->nodes[deepest].hash;
    o->evicted[o->n_evicted++].block = block;
    o->stats.evicted_blocks++;
    b->generation++;
    clear_content(o, block);
}

/* Take the head of the lowest class. The caller knows that there is one. */
int32_t oracle_take(oracle *o, uint32_t retention)
{
    int32_t block = 0;

    for (uint32_t c = 0; !block; c++) {
        if (o->queues[c].n)
            block = o->queues[c].items[0];
    }
    oracle_queue_remove(o, block);
    if (oracle_block_sealed(o, block)) {
        for (uint32_t c = o->blocks[block].retention + 1; c < KVP_RETENTION_CLASSES; c++)
            o->events.spared += o->queues[c].n > 0;
        evict(o, block);
    }
    o->blocks[block].refs = 1;
    o->blocks[block].retention = retention;
    o->held++;
    o->stats.taken_blocks++;
    return block;
}

void oracle_hold(oracle *o, int32_t block)
{
    if (o->blocks[block].refs++ == 0) {
        oracle_queue_remove(o, block);
        o->held++;
    }
}

/* The plan's copies into a block that became free are of no use, but for what reads it later. */
static void plan_forget(oracle *o, int32_t block)
{
    bool read_later = false;

    for (uint32_t i = o->n_plan; i-- > 0;) {
        if (o->plan[i].dst_block == block && !read_later) {
            o->n_plan--;
            o->events.removed_copies++;
            memmove(&o->plan[i], &o->plan[i + 1], (o->n_plan - i) * sizeof *o->plan);
        } else if (o->plan[i].src_block == block) {
            read_later = true;
        }
    }
}

static void make_free(oracle *o, int32_t block)
{
    clear_content(o, block);
    o->blocks[block].generation++;
    plan_forget(o, block);
    oracle_queue_put(o, block, false);
}

/* A cached block lost its last sealed unit (its class's queue still has it). */
void oracle_free_cached(oracle *o, int32_t block)
{
    o->events.freed_cached++;
    oracle_queue_remove(o, block);
    make_free(o, block);
}

/* One holder less. `released` counts what became free and cached; may be NULL. */
void oracle_release(oracle *o, int32_t block, kvp_released *released)
{
    kvp_released ignored = {0};

    released = released ? released : &ignored;
    if (--o->blocks[block].refs)
        return;
    o->held--;
    if (oracle_block_sealed(o, block)) {
        oracle_queue_put(o, block, true);
        released->cached_blocks++;
    } else {
        make_free(o, block);
        released->freed_blocks++;
    }
}

/* ------------------------------------------------------------------------------------- the plan */

void oracle_plan_add(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens)
{
    kvp_copy *copy = &o->plan[o->n_plan++];

    memset(copy, 0, sizeof *copy);
    copy->src_block = source;
    copy->dst_block = destination;
    copy->n_tokens = n_tokens;
    o->stats.copies++;
}

static bool same_phase(const kvp_copy *a, const kvp_copy *b)
{
    return a->dst_block != b->dst_block && a->src_block != b->dst_block &&
           a->dst_block != b->src_block;
}

static void set_phases(kvp_copy *copies, uint32_t n)
{
    uint32_t phase = 0, begin = 0;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = begin; j < i; j++) {
            if (!same_phase(&copies[j], &copies[i])) {
                phase++;
                begin = i;
                break;
            }
        }
        copies[i].phase = phase;
    }
}

kvp_status oracle_plan_take(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t n = o->n_plan;

    out->n = n;
    if (n > call->count)
        return oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
    oracle_begin_change(o);
    o->copies = oracle_grow(o->copies, &o->copies_capacity, n, sizeof *o->copies);
    if (n)
        memcpy(o->copies, o->plan, n * sizeof *o->copies);
    set_phases(o->copies, n);
    out->copies = o->copies;
    o->n_plan = 0;
    return KVP_OK;
}

/* Blocks: the queues, taking and evicting, holding and releasing, parking.
 *
 * Free and cached blocks are in the queue of their tier and class, free ones in that of class 0.
 * Parked ones are in no queue.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

static oracle_pool *pool_of(oracle *o, int32_t block)
{
    return &o->pools[oracle_tier(o, block)];
}

static oracle_queue *queue_of(oracle *o, int32_t block)
{
    bool cached = oracle_block_sealed(o, block);

    return &pool_of(o, block)->queues[cached ? o->blocks[block].retention : 0];
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
        oracle_queue *queue = &pool_of(o, block)->queues[c];

        for (uint32_t i = 0; i < queue->n; i++) {
            if (queue->items[i] != block)
                continue;
            queue->n--;
            memmove(queue->items + i, queue->items + i + 1, (queue->n - i) * sizeof *queue->items);
            return;
        }
    }
}

/* ----------------------------------------------------------------------------- evicted, or kept */

/* Is a unit before the node's on no tier? Not where hits are not of whole prefixes. */
bool oracle_is_lost(const oracle *o, uint32_t node)
{
    if (!oracle_is_plain(o))
        return false;
    for (node = o->nodes[node].parent; !o->nodes[node].is_root; node = o->nodes[node].parent)
        if (!o->nodes[node].at[0][KVP_DEVICE].block && !o->nodes[node].at[0][KVP_HOST].block)
            return true;
    return false;
}

/* Can anybody find the node's KV, once it is on the host? */
static bool is_wanted(oracle *o, int32_t block, const oracle_node *node)
{
    uint32_t group = o->blocks[block].group;

    if (!o->pools[KVP_HOST].n || !o->config.keep_evicted)
        return false;
    if (o->blocks[block].spare) {
        o->marks.spare_unkept++;
        return false;
    }
    if (node->at[group][KVP_HOST].block) {
        o->marks.unwanted++;
        return false;
    }
    if (node->is_private || !o->nodes[node->root].has_ns) {
        o->marks.unwanted_flushed++;
        return false;
    }
    if (!oracle_overlapped(o) && oracle_is_lost(o, (uint32_t)(node - o->nodes))) {
        o->marks.unwanted_lost++;
        return false;
    }
    return true;
}

static bool has_host_block(oracle *o, uint64_t ns_handle)
{
    return oracle_available(o, KVP_HOST) > 0 && !oracle_displaces(o, ns_handle);
}

static bool has_plan(const oracle *o)
{
    return 2 * (o->n_copies + o->to_come) < o->config.max_copies;
}

bool oracle_may_copy_to_host(oracle *o, uint64_t ns_handle)
{
    return has_host_block(o, ns_handle) && has_plan(o);
}

static bool can_keep(oracle *o, uint64_t ns_handle)
{
    bool has_block = has_host_block(o, ns_handle), has_room = has_plan(o);

    o->marks.unkept_no_block += !has_block;
    o->marks.unkept_plan += has_block && !has_room;
    o->stats.unkept_blocks += !has_block || !has_room;
    return has_block && has_room;
}

/* The content of a device block goes on in a host block: the units of the prefix that ends in
 * `deepest`, from the block's start. */
int32_t oracle_copy_to_host(oracle *o, int32_t block, uint32_t deepest)
{
    uint64_t evicted = o->stats.host_evicted_blocks;
    uint32_t depth = oracle_block_depth(o, block);
    int32_t copy = oracle_take(o, KVP_HOST, o->blocks[block].group, o->blocks[block].retention,
                               o->blocks[block].ns_handle);

    o->blocks[copy].kept = true;
    o->marks.kept_evicts += o->stats.host_evicted_blocks > evicted;
    oracle_plan_keep(o, block, copy, depth * o->unit);
    for (uint32_t k = 0; k < depth; k++) {
        uint32_t node = deepest;

        for (uint32_t up = k; up + 1 < depth; up++)
            node = o->nodes[node].parent;
        if (o->nodes[node].is_private)
            continue;
        o->marks.kept_duplicates += oracle_spot_of(o, node, copy)->block != 0;
        oracle_node_copied(o, node, copy);
    }
    oracle_learned_follow(o, copy, block);
    o->leaves_device = true;
    if (!oracle_overlapped(o))
        oracle_release(o, copy, NULL);
    o->leaves_device = false;
    return copy;
}

static void tell_evicted(oracle *o, int32_t block, uint32_t deepest, bool kept)
{
    kvp_evicted *e;

    o->evicted =
        oracle_grow(o->evicted, &o->evicted_capacity, o->n_evicted + 1u, sizeof *o->evicted);
    e = &o->evicted[o->n_evicted++];
    memset(e, 0, sizeof *e);
    e->hash = o->nodes[deepest].hash;
    e->block = oracle_id(o, block);
    e->tier = (uint8_t)oracle_tier(o, block);
    e->kept = kept;
    e->group = (uint16_t)o->blocks[block].group;
}

/* With KVP_EVICTED_KEEP_ONCE: nobody holds the host block, and the device has its unit. */
void oracle_give_up(oracle *o, int32_t block)
{
    if (o->config.keep_evicted != KVP_EVICTED_KEEP_ONCE || !block ||
        oracle_block_state(o, block) != KVP_BLOCK_CACHED ||
        !o->nodes[o->blocks[block].unit_node[0]].at[0][KVP_DEVICE].block)
        return;
    o->marks.given_up++;
    oracle_free_cached(o, block);
}

/* What the host has of an evicted block leaves it last. */
static void put_last(oracle *o, int32_t block, int32_t evicted)
{
    if (!o->config.keep_evicted || !block || oracle_block_state(o, block) != KVP_BLOCK_CACHED)
        return;
    o->marks.stayed++;
    oracle_queue_remove(o, block);
    oracle_queue_put(o, block, true);
    oracle_learned_follow(o, block, evicted);
    oracle_learned_rest(o, block);
}

/* A block in no queue has lost its content to an eviction. */
void oracle_evicted(oracle *o, int32_t block, bool kept)
{
    bool on_device = oracle_tier(o, block) == KVP_DEVICE;

    oracle_state_follow(o, block, kept);
    tell_evicted(o, block, o->blocks[block].unit_node[oracle_block_depth(o, block) - 1], kept);
    o->stats.evicted_blocks += on_device;
    o->stats.host_evicted_blocks += !on_device;
    o->blocks[block].generation++;
    oracle_content_clear(o, block);
    oracle_plan_forget(o, block, &o->marks.evicted_copies);
}

static void evict(oracle *o, int32_t block)
{
    oracle_block *b = &o->blocks[block];
    uint32_t deepest = b->unit_node[oracle_block_depth(o, block) - 1];
    bool on_device = oracle_tier(o, block) == KVP_DEVICE;
    bool wanted = on_device && is_wanted(o, block, &o->nodes[deepest]);
    bool spared = wanted && oracle_learned_spares(o, block);
    bool kept = wanted && !spared && can_keep(o, b->ns_handle);

    if (kept)
        oracle_copy_to_host(o, block, deepest);
    else if (on_device && !wanted && !b->spare)
        put_last(o, o->nodes[deepest].at[b->group][KVP_HOST].block, block);
    o->marks.unwanted_spared += spared;
    o->stats.kept_blocks += kept;
    oracle_evicted(o, block, kept);
}

/* Take a block of the tier: the head of the lowest class, or what quotas put before it. The caller
 * knows that there is one. */
int32_t oracle_take(oracle *o, uint32_t tier, uint32_t group, uint32_t retention,
                    uint64_t ns_handle)
{
    oracle_pool *pool = &o->pools[tier];
    int32_t block = oracle_choose(o, tier, ns_handle);

    oracle_queue_remove(o, block);
    if (oracle_block_sealed(o, block)) {
        for (uint32_t c = o->blocks[block].retention + 1; c < KVP_RETENTION_CLASSES; c++)
            o->marks.spared += pool->queues[c].n > 0;
        o->marks.group_evicts += o->blocks[block].group != group;
        evict(o, block);
    }
    o->blocks[block].refs = 1;
    o->blocks[block].group = group;
    o->blocks[block].retention = retention;
    o->blocks[block].ns_handle = ns_handle;
    o->blocks[block].touched_by = 0;
    o->blocks[block].kept = o->blocks[block].spare = false;
    pool->held++;
    o->stats.taken_blocks += tier == KVP_DEVICE;
    return block;
}

/* ----------------------------------------------------------------------- parked, held, released */

static void park(oracle *o, int32_t block)
{
    o->blocks[block].parked_for = o->steps[o->n_steps - 1].number;
    o->parked[o->n_parked++] = block;
    o->marks.parked++;
    o->marks.parked_content += oracle_block_sealed(o, block);
}

static void leave_parked(oracle *o, uint32_t at)
{
    o->blocks[o->parked[at]].parked_for = 0;
    o->n_parked--;
    memmove(o->parked + at, o->parked + at + 1, (o->n_parked - at) * sizeof *o->parked);
}

/* May a step that is out still write into the block, for a holder that has left? */
bool oracle_is_touched(const oracle *o, int32_t block)
{
    return o->n_steps && o->blocks[block].touched_by >= o->steps[0].number;
}

/* Copies into it that wait in the plan are of no use any more. */
static void lose_content(oracle *o, int32_t block)
{
    oracle_content_clear(o, block);
    oracle_plan_forget(o, block, &o->marks.removed_copies);
    o->blocks[block].generation++;
}

void oracle_hold(oracle *o, int32_t block)
{
    if (o->blocks[block].refs++)
        return;
    o->marks.spare_hit += o->blocks[block].spare;
    pool_of(o, block)->held++;
    if (!o->blocks[block].parked_for) {
        oracle_queue_remove(o, block);
        return;
    }
    o->marks.parked_hit++;
    for (uint32_t i = o->n_parked; i-- > 0;)
        if (o->parked[i] == block)
            leave_parked(o, i);
}

/* A block that nobody holds lost its last sealed unit (its class's queue still has it). */
void oracle_free_cached(oracle *o, int32_t block)
{
    if (o->blocks[block].parked_for) {
        o->marks.freed_parked++;
        lose_content(o, block);
        return;
    }
    o->marks.freed_cached++;
    oracle_queue_remove(o, block);
    lose_content(o, block);
    oracle_queue_put(o, block, false);
}

/* kvp_cache_drop: what nobody holds loses its content, block by block. */
kvp_status oracle_drop(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    for (uint32_t i = 0; i < call->n_tokens; i++)
        if (call->tier >= ORACLE_TIERS || call->tokens[i] <= 0 ||
            (uint32_t)call->tokens[i] >= o->pools[call->tier].n)
            return oracle_fail(o, KVP_E_ARG, i, 0);
    if (call->tier >= ORACLE_TIERS || !o->pools[call->tier].n)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    oracle_begin_change(o);
    for (uint32_t i = 0; i < call->n_tokens; i++) {
        int32_t block = o->pools[call->tier].first + call->tokens[i];
        uint32_t depth = oracle_block_depth(o, block);
        uint64_t promoted = o->marks.promotions + o->marks.host_promotions;

        o->marks.drop_held += o->blocks[block].refs > 0;
        if (o->blocks[block].refs || !depth)
            continue;
        oracle_state_follow(o, block, false);
        tell_evicted(o, block, o->blocks[block].unit_node[depth - 1], false);
        o->stats.evicted_blocks += call->tier == KVP_DEVICE;
        o->stats.host_evicted_blocks += call->tier == KVP_HOST;
        o->marks.drop_host += call->tier == KVP_HOST;
        o->marks.drop_parked += o->blocks[block].parked_for != 0;
        oracle_free_cached(o, block);
        o->marks.drop_promotes += o->marks.promotions + o->marks.host_promotions > promoted;
        out->n++;
    }
    return KVP_OK;
}

static uint32_t count_free(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t i = 1; i < o->pools[KVP_DEVICE].n; i++)
        n += oracle_block_state(o, (int32_t)i) == KVP_BLOCK_FREE;
    return n;
}

/* Behind all free blocks, before all cached ones of class 0. */
void oracle_put_behind_free(oracle *o, int32_t block)
{
    oracle_queue *queue = &pool_of(o, block)->queues[0];
    uint32_t at = 0;

    while (at < queue->n && !oracle_block_sealed(o, queue->items[at]))
        at++;
    memmove(queue->items + at + 1, queue->items + at, (queue->n - at) * sizeof *queue->items);
    queue->items[at] = block;
    queue->n++;
    o->marks.reclaim_behind += at > 0;
}

/* kvp_cache_reclaim: evictions without takes, as long as too few blocks are free. */
kvp_status oracle_reclaim(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_begin_change(o);
    while (count_free(o) < call->count) {
        uint32_t turn = o->pools[KVP_DEVICE].turn;
        int32_t block = oracle_coldest(o, KVP_DEVICE, &turn);
        uint64_t kept = o->stats.kept_blocks;

        if (!block)
            break;
        if (!has_plan(o) &&
            is_wanted(o, block,
                      &o->nodes[o->blocks[block].unit_node[oracle_block_depth(o, block) - 1]])) {
            o->marks.reclaim_waits++;
            break;
        }
        o->pools[KVP_DEVICE].turn = turn;
        oracle_queue_remove(o, block);
        evict(o, block);
        o->marks.reclaim_class += o->blocks[block].retention > 0;
        o->marks.reclaim_keeps += o->stats.kept_blocks > kept;
        oracle_put_behind_free(o, block);
        out->n++;
    }
    return KVP_OK;
}

/* One holder less. `released` counts what became free and cached, or will once it is not parked any
 * more; may be NULL. */
void oracle_release(oracle *o, int32_t block, kvp_released *released)
{
    bool sealed = oracle_block_sealed(o, block);
    bool steps = o->n_steps && oracle_tier(o, block) == KVP_DEVICE;
    kvp_released ignored = {0};

    released = released ? released : &ignored;
    if (--o->blocks[block].refs)
        return;
    pool_of(o, block)->held--;
    o->blocks[block].spare = false;
    released->cached_blocks += sealed;
    released->freed_blocks += !sealed;
    if (!sealed) {
        lose_content(o, block);
        oracle_learned_lost(o, block);
    }
    oracle_learned_rest(o, block);
    if (steps)
        park(o, block);
    else
        oracle_queue_put(o, block, sealed);
    if (oracle_tier(o, block) == KVP_HOST && !o->leaves_device)
        oracle_give_up(o, block);
}

/* May a step that is out write for the sequence? */
bool oracle_is_writer(const oracle *o, const oracle_seq *seq)
{
    return o->n_steps && (seq->writable > seq->computed || seq->cut_by >= o->steps[0].number);
}

/* Nothing of the sequence from n_tokens on is computed or writable any more. */
void oracle_cut_slots(oracle *o, oracle_seq *seq, uint32_t n_tokens)
{
    if (o->n_steps && seq->writable > seq->computed && seq->writable > n_tokens)
        seq->cut_by = o->steps[o->n_steps - 1].number;
    seq->computed = oracle_lower(seq->computed, n_tokens);
    seq->writable = oracle_lower(seq->writable, n_tokens);
    oracle_windows_cut(o, seq);
}

/* A sequence leaves a block of its row. */
void oracle_leave(oracle *o, const oracle_seq *seq, int32_t block, kvp_released *released)
{
    if (oracle_is_writer(o, seq) && o->blocks[block].refs > 1)
        o->blocks[block].touched_by = o->steps[o->n_steps - 1].number;
    oracle_release(o, block, released);
}

/* Queue what was parked until this step. */
void oracle_unpark(oracle *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_parked;) {
        int32_t block = o->parked[i];

        if (o->blocks[block].parked_for != step) {
            i++;
            continue;
        }
        leave_parked(o, i);
        oracle_queue_put(o, block, oracle_block_sealed(o, block));
        if (o->blocks[block].spare && oracle_block_sealed(o, block)) {
            oracle_move_ahead(o, block, 0);
            o->marks.spare_parked++;
        }
    }
}

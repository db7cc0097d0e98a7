/* Where KV is: for each unit of a block, whose KV it has.
 *
 * In each tier, for each layer group, one block is attached to a node, and others may be its
 * duplicates. A duplicate is written down twice, in the node's list (by age) and in the block (by
 * position). With overlapped steps a copied unit is in flight until its step takes effect: the
 * block has it written down, the node only counts it.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* Which unit of a block of the group. */
static uint32_t unit_idx(const oracle *o, uint32_t node, uint32_t group)
{
    return o->nodes[node].depth % oracle_units(o, group);
}

static void write_down(oracle *o, uint32_t node, int32_t block, uint8_t kind)
{
    uint32_t idx = unit_idx(o, node, o->blocks[block].group);

    o->blocks[block].unit_node[idx] = node;
    o->blocks[block].unit_kind[idx] = kind;
}

/* Where KV such as this block's is, of the tier and of the group that took it. */
oracle_spot *oracle_spot_of(oracle *o, uint32_t node, int32_t block)
{
    return &o->nodes[node].at[o->blocks[block].group][oracle_tier(o, block)];
}

void oracle_node_attach(oracle *o, uint32_t node, int32_t block)
{
    oracle_spot_of(o, node, block)->block = block;
    o->told++;
    write_down(o, node, block, UNIT_SEALED);
    if (oracle_tier(o, block) == KVP_DEVICE)
        oracle_give_up(o, o->nodes[node].at[o->blocks[block].group][KVP_HOST].block);
}

void oracle_node_duplicate(oracle *o, uint32_t node, int32_t block)
{
    oracle_spot *spot = oracle_spot_of(o, node, block);

    spot->duplicates = oracle_grow(spot->duplicates, &spot->capacity, spot->n_duplicates + 1u,
                                   sizeof *spot->duplicates);
    spot->duplicates[spot->n_duplicates++] = block;
    write_down(o, node, block, UNIT_DUPLICATE);
}

/* With KVP_ADOPT and units as large as all blocks there are no duplicates. */
static bool has_duplicates(const oracle *o)
{
    return o->config.commit_policy == KVP_KEEP || o->block_units > 1;
}

/* The block has the node's KV by a copy that has run: attached if it is the first of its tier, else
 * a duplicate. Tells whether it was attached. */
bool oracle_node_found(oracle *o, uint32_t node, int32_t block)
{
    bool first = !oracle_spot_of(o, node, block)->block;

    if (first)
        oracle_node_attach(o, node, block);
    else if (has_duplicates(o))
        oracle_node_duplicate(o, node, block);
    return first;
}

/* The block gets the node's KV by a copy of the plan: found at once, or when the step is done. */
void oracle_node_copied(oracle *o, uint32_t node, int32_t block)
{
    if (oracle_overlapped(o))
        oracle_node_await(o, node, block);
    else
        oracle_node_found(o, node, block);
}

/* The block has the node's KV when the copy that fills the block has taken effect. */
void oracle_node_await(oracle *o, uint32_t node, int32_t block)
{
    if (o->blocks[block].unit_kind[unit_idx(o, node, o->blocks[block].group)] != UNIT_EMPTY)
        return;
    write_down(o, node, block, UNIT_IN_FLIGHT);
    o->nodes[node].in_flight++;
}

static void strike_duplicate(oracle_spot *spot, int32_t block)
{
    int32_t *list = spot->duplicates;
    uint32_t at = 0;

    while (list[at] != block)
        at++;
    spot->n_duplicates--;
    memmove(&list[at], &list[at + 1], (spot->n_duplicates - at) * sizeof *list);
}

static void raise_generation(oracle *o, int32_t block)
{
    if (o->blocks[block].raised_in != o->call_number)
        o->blocks[block].generation++;
    o->blocks[block].raised_in = o->call_number;
}

/* The block that is attached does not have the node's KV any more. The oldest duplicate takes over.
 */
static void detach(oracle *o, uint32_t node, int32_t block)
{
    oracle_spot *spot = oracle_spot_of(o, node, block);
    uint32_t tier = oracle_tier(o, block);

    spot->block = 0;
    o->told++;
    if (spot->n_duplicates) {
        int32_t heir = spot->duplicates[0];

        strike_duplicate(spot, heir);
        oracle_node_attach(o, node, heir);
        o->marks.promotions += tier == KVP_DEVICE;
        o->marks.host_promotions += tier == KVP_HOST;
    } else {
        oracle_node_prune(o, node);
    }
}

/* The block does not have this unit's KV any more. */
void oracle_unit_clear(oracle *o, int32_t block, uint32_t idx, bool raise)
{
    oracle_block *b = &o->blocks[block];
    uint32_t node = b->unit_node[idx];
    uint8_t kind = b->unit_kind[idx];

    b->unit_kind[idx] = UNIT_EMPTY;
    if (kind == UNIT_DUPLICATE)
        strike_duplicate(oracle_spot_of(o, node, block), block);
    if (kind == UNIT_IN_FLIGHT) {
        o->nodes[node].in_flight--;
        oracle_node_prune(o, node);
    }
    if (kind != UNIT_SEALED)
        return;
    oracle_learned_lost(o, block);
    if (raise) {
        o->stats.detached_units++;
        raise_generation(o, block);
    }
    detach(o, node, block);
}

/* Everything that the block had is gone: evicted, or free. */
void oracle_content_clear(oracle *o, int32_t block)
{
    for (uint32_t k = 0; k < o->block_units; k++) {
        o->marks.flight_lost += o->blocks[block].unit_kind[k] == UNIT_IN_FLIGHT;
        if (o->blocks[block].unit_kind[k] != UNIT_EMPTY)
            oracle_unit_clear(o, block, k, false);
    }
    o->blocks[block].filled_by = 0;
}

/* Invalidated: no block of the group has its KV, and nobody will find it again. What is in flight
 * stays so, and will be left out. */
void oracle_node_withdraw(oracle *o, uint32_t node, uint32_t group)
{
    uint32_t idx = unit_idx(o, node, group);

    o->nodes[node].is_private = true;
    o->told++;
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        const oracle_spot *spot = &o->nodes[node].at[group][tier];
        int32_t block = spot->block;

        while (spot->n_duplicates)
            oracle_unit_clear(o, spot->duplicates[0], idx, false);
        if (!block)
            continue;
        o->marks.host_withdrawn += tier == KVP_HOST;
        oracle_unit_clear(o, block, idx, o->blocks[block].refs > 0);
        o->stats.detached_units += o->blocks[block].refs == 0;
        if (o->blocks[block].refs == 0 && !oracle_block_sealed(o, block))
            oracle_free_cached(o, block);
    }
}

/* Units of the block up to the deepest sealed one; 0 when there is none. */
uint32_t oracle_block_depth(const oracle *o, int32_t block)
{
    uint32_t n = o->block_units;

    while (n && o->blocks[block].unit_kind[n - 1] != UNIT_SEALED)
        n--;
    return n;
}

bool oracle_block_sealed(const oracle *o, int32_t block)
{
    return oracle_block_depth(o, block) > 0;
}

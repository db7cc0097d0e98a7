/* Calls that stores need: mirrors, lent blocks, loads, and what is asked before. */
#include "generate_parts.h"
#include "oracle_parts.h"

#include <string.h>

void generate_lend_weights(generator *g)
{
    static const struct {
        uint32_t op, weight;
    } table[] = {
        {KVP_CALL_MIRROR, 25},     {KVP_CALL_BLOCKS_LEND, 40},  {KVP_CALL_BLOCKS_RETURN, 45},
        {KVP_CALL_LOAD_BEGIN, 60}, {KVP_CALL_LOAD_DONE, 45},    {KVP_CALL_LOAD_CANCEL, 6},
        {KVP_CALL_COLD_END, 12},   {KVP_CALL_BLOCK_ORIGIN, 10}, {KVP_CALL_BLOCK_PREFIX, 8},
        {KVP_CALL_PLAN_DONE, 35},
    };
    bool lends = g->o->config.max_loads > 0;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        g->weights[table[i].op] = lends ? 10 * table[i].weight : 5;
    if (lends && oracle_has_states(g->o)) { /* half of the loads are of a state */
        g->weights[KVP_CALL_LOAD_BEGIN] *= 4;
        g->weights[KVP_CALL_LOAD_DONE] *= 4;
        g->weights[KVP_CALL_PLAN_DONE] *= 2;
    }
    g->weights[KVP_CALL_DROP] = 40;
    g->weights[KVP_CALL_RECLAIM] = 30;
    if (lends && oracle_overlapped(g->o))
        g->weights[KVP_CALL_PLAN_DONE] = 5;
}

static int32_t draw_block(generator *g, uint32_t tier)
{
    uint32_t n = g->o->pools[tier].n;

    if (rarely(g))
        return chance(g, 50) ? (int32_t)n : chance(g, 50) ? 0 : -1;
    return n > 1 ? (int32_t)(1 + below(g, n - 1)) : 1;
}

/* Blocks that the call can be made for, mostly; sometimes one twice. */
static void make_blocks(generator *g, kvp_call *call)
{
    uint32_t tier = call->op == KVP_CALL_MIRROR ? KVP_DEVICE : KVP_HOST, n = up_to(g, 4);
    int32_t *blocks = generate_token_space(g, 8);
    const oracle *o = g->o;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t tries = 0; tries < 12; tries++) {
            int32_t block = o->pools[tier].first + (blocks[i] = draw_block(g, tier));
            bool in = blocks[i] > 0 && (uint32_t)blocks[i] < o->pools[tier].n;

            if (!in || (call->op == KVP_CALL_BLOCKS_RETURN ? o->blocks[block].lends > 0
                                                           : oracle_block_sealed(o, block)))
                break;
        }
        if (i && chance(g, 5))
            blocks[i] = blocks[i - 1];
    }
    call->tokens = blocks;
    call->n_tokens = n;
    if (call->op == KVP_CALL_MIRROR && chance(g, 30))
        call->count = below(g, 6);
}

/* Blocks of either tier: such as nobody holds, mostly. */
static void make_drop(generator *g, kvp_call *call)
{
    const oracle *o = g->o;
    int32_t *blocks = generate_token_space(g, 4);

    call->tier = rarely(g) ? ORACLE_TIERS : chance(g, o->config.host_blocks ? 40 : 5);
    call->n_tokens = up_to(g, 4);
    call->tokens = blocks;
    for (uint32_t i = 0; i < call->n_tokens; i++) {
        const oracle_pool *pool = &o->pools[call->tier % ORACLE_TIERS];

        blocks[i] = draw_block(g, call->tier % ORACLE_TIERS);
        for (uint32_t tries = 0; tries < 6 && blocks[i] > 0 && (uint32_t)blocks[i] < pool->n &&
                                 (o->blocks[pool->first + blocks[i]].refs ||
                                  !oracle_block_sealed(o, pool->first + blocks[i]));
             tries++)
            blocks[i] = draw_block(g, call->tier % ORACLE_TIERS);
        if (i && chance(g, 5))
            blocks[i] = blocks[i - 1];
    }
}

/* A few blocks more than are free, mostly: all of them would leave nothing to hit. */
static void make_reclaim(generator *g, kvp_call *call)
{
    uint32_t n = g->o->pools[KVP_DEVICE].n, n_free = 0;

    for (uint32_t i = 1; i < n; i++)
        n_free += oracle_block_state(g->o, (int32_t)i) == KVP_BLOCK_FREE;
    call->count = rarely(g) ? below(g, 2 * n) : n_free + up_to(g, 3);
}

/* Has the unit KV in each group, and no state? */
static bool lacks_state(const oracle *o, uint32_t node)
{
    bool has_kv = true;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        has_kv &= o->nodes[node].at[k][KVP_DEVICE].block || o->nodes[node].at[k][KVP_HOST].block;
    return has_kv && !oracle_checkpoint(o, node);
}

/* The last entry of the prompt that a state could be loaded for; 0: none. */
static uint32_t entry_without_state(generator *g, const kvp_call *call)
{
    oracle_keys keys = {0};
    uint32_t parent, found = 0, units = oracle_units(g->o, g->o->config.n_groups);

    if (oracle_prompt_status(g->o, call, &parent) != KVP_OK)
        return 0;
    for (uint32_t i = 0; i < call->n_tokens / g->o->unit && parent != ORACLE_NONE; i++) {
        oracle_unit_keys(g->o, call, i, &keys);
        parent = oracle_node_find(g->o, parent, call->tokens + (size_t)i * g->o->unit, &keys);
        if (parent != ORACLE_NONE && (i + 1) % units == 0 && lacks_state(g->o, parent))
            found = (i + 1) / units;
    }
    oracle_keys_free(&keys);
    return found;
}

/* A prompt, and which of its entries. */
static void make_load(generator *g, kvp_call *call)
{
    uint32_t most;

    if (g->lied) {
        call->hashes = NULL;
        call->n_hashes = 0;
        g->lied = false;
    }
    call->tag = call->flags = 0;
    call->reserve_tokens = 0;
    call->group = generate_group(g);
    most = call->n_tokens / oracle_size(g->o, call->group);
    call->range.end = chance(g, 60) ? most : up_to(g, most) + rarely(g);
    call->range.begin = chance(g, 60) ? 0 : up_to(g, call->range.end);
    if (chance(g, 60) && call->range.end > call->range.begin + 3)
        call->range.end = call->range.begin + 1 + below(g, 3);
    if (chance(g, 30))
        call->count = below(g, 6);
    if (oracle_has_states(g->o) && chance(g, 55)) {
        call->group = g->o->config.n_groups;
        call->count = chance(g, 10) ? below(g, 4) : 0;
        if (chance(g, 85) && entry_without_state(g, call))
            call->range.end = entry_without_state(g, call);
        call->range.begin = call->range.end - !rarely(g);
    }
}

/* One that is begun, mostly. */
static void make_load_end(generator *g, kvp_call *call)
{
    const oracle *o = g->o;
    const oracle_load *load = NULL;
    uint32_t n = 4;

    for (uint32_t i = 0; i < o->config.max_loads; i++)
        if (o->loads[i].number && (!load || chance(g, 50)))
            load = &o->loads[i];
    call->number = load && !rarely(g) ? load->number : o->load_number + below(g, 2);
    if (call->op == KVP_CALL_LOAD_CANCEL)
        return;
    if (load)
        n = load->n + (rarely(g) ? 1 : 0);
    call->name_bytes = n < KVP_NAME_MAX_BYTES ? n : KVP_NAME_MAX_BYTES;
    call->name = g->name;
    for (uint32_t i = 0; i < call->name_bytes; i++)
        g->name[i] = rarely(g) && rarely(g) ? 2 : chance(g, 80);
}

static void make_question(generator *g, kvp_call *call)
{
    const oracle *o = g->o;

    call->tier = rarely(g) ? 2 : chance(g, 65);
    call->block = call->tier < 2 ? draw_block(g, call->tier) : 1;
    call->count = chance(g, 60) ? 4096 : below(g, 8);
    if (call->op == KVP_CALL_COLD_END && call->block > 0 && call->tier < 2 &&
        (uint32_t)call->block < o->pools[call->tier].n)
        call->number =
            o->blocks[o->pools[call->tier].first + call->block].generation - (uint64_t)rarely(g);
    if (call->op == KVP_CALL_COLD_END && chance(g, 40))
        call->block = 0;
}

void generate_lend(generator *g, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_PLAN_DONE:
        call->number = g->o->plans + (rarely(g) ? 1 : 0);
        call->number -= chance(g, 20) && call->number > 1;
        break;
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN: make_blocks(g, call); break;
    case KVP_CALL_DROP: make_drop(g, call); break;
    case KVP_CALL_RECLAIM: make_reclaim(g, call); break;
    case KVP_CALL_LOAD_BEGIN: make_load(g, call); break;
    case KVP_CALL_LOAD_DONE:
    case KVP_CALL_LOAD_CANCEL: make_load_end(g, call); break;
    default: make_question(g, call); break;
    }
}

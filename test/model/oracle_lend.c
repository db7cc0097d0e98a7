/* What stores need: plans that are over, the cold end, what blocks are of, mirrors, lent blocks,
 * loads. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

static uint64_t plans_over(const oracle *o)
{
    return oracle_overlapped(o) ? o->effective : o->plans_done;
}

static uint32_t n_lent(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t b = o->config.n_blocks; b < o->n_all_blocks; b++)
        n += o->blocks[b].lends > 0 || o->blocks[b].loading;
    return n;
}

uint32_t oracle_loading(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t b = o->config.n_blocks; b < o->n_all_blocks; b++)
        n += o->blocks[b].loading;
    return n;
}

/* Loads of the group behind those of blocks are of a state. */
static bool is_of_state(const oracle *o, uint32_t group)
{
    return oracle_has_states(o) && group == o->config.n_groups;
}

uint32_t oracle_loading_slots(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->config.max_loads; i++)
        n += o->loads[i].number && is_of_state(o, o->loads[i].group);
    return n;
}

static kvp_status plan_done(oracle *o, const kvp_call *call)
{
    if (!o->config.max_loads || oracle_overlapped(o))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (call->number > o->plans)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    oracle_begin_change(o);
    if (call->number > o->plans_done)
        o->plans_done = call->number;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- reads */

/* The deepest sealed unit; ORACLE_NONE: there is none. */
static uint32_t deepest_of(const oracle *o, int32_t block)
{
    uint32_t depth = oracle_block_depth(o, block);

    return depth ? o->blocks[block].unit_node[depth - 1] : ORACLE_NONE;
}

static bool is_findable(const oracle *o, uint32_t node)
{
    return !o->nodes[node].is_private && o->nodes[o->nodes[node].root].has_ns;
}

static void tell_cold(const oracle *o, int32_t block, kvp_cold *cold)
{
    const oracle_block *b = &o->blocks[block];
    const oracle_node *node = &o->nodes[deepest_of(o, block)];

    memset(cold, 0, sizeof *cold);
    cold->generation = b->generation;
    cold->block = oracle_id(o, block);
    cold->group = b->group;
    cold->retention = b->retention;
    cold->n_tokens = (node->depth + 1) * o->unit;
    cold->elsewhere = node->at[b->group][1 - oracle_tier(o, block)].block != 0;
    cold->findable = is_findable(o, deepest_of(o, block));
}

/* All cached blocks in order, into o->cold. */
static uint32_t list_cold(oracle *o, uint32_t tier)
{
    uint32_t n = 0;

    o->cold = oracle_grow(o->cold, &o->cold_capacity, o->n_all_blocks, sizeof *o->cold);
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const oracle_queue *queue = &o->pools[tier].queues[c];

        for (uint32_t i = 0; i < queue->n; i++)
            if (oracle_block_sealed(o, queue->items[i]))
                tell_cold(o, queue->items[i], &o->cold[n++]);
    }
    return n;
}

static kvp_status cold_end(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_cold_cursor *cursor = &out->u.cursor;
    uint32_t n, from = 0;

    if (call->tier >= ORACLE_TIERS || call->block < 0)
        return KVP_E_ARG;
    n = list_cold(o, call->tier);
    cursor->block = call->block;
    cursor->generation = call->number;
    out->n = n;
    if (!call->count)
        return KVP_OK;
    for (uint32_t i = 0; i < n; i++)
        if (o->cold[i].block == call->block && o->cold[i].generation == call->number)
            from = i + 1;
    out->n = oracle_lower(n - from, call->count);
    out->cold = o->cold + from;
    cursor->ended = out->n < call->count;
    if (out->n) {
        cursor->block = out->cold[out->n - 1].block;
        cursor->generation = out->cold[out->n - 1].generation;
    }
    return KVP_OK;
}

static int32_t named(const oracle *o, const kvp_call *call)
{
    if (call->tier >= ORACLE_TIERS || call->block < 0 ||
        (uint32_t)call->block >= o->pools[call->tier].n)
        return -1;
    return o->pools[call->tier].first + call->block;
}

static uint64_t space_of(const oracle *o, uint32_t root)
{
    for (uint32_t i = 0; i < o->config.max_namespaces; i++)
        if (o->namespaces[i].open && o->namespaces[i].root == root)
            return o->namespaces[i].handle;
    return 0;
}

static kvp_status origin(const oracle *o, const kvp_call *call, kvp_block_origin *out)
{
    int32_t block = named(o, call);
    uint32_t node, up;

    if (block < 0)
        return KVP_E_ARG;
    out->generation = o->blocks[block].generation;
    out->group = o->blocks[block].group;
    node = deepest_of(o, block);
    if (node == ORACLE_NONE)
        return KVP_OK;
    if (call->tier == KVP_HOST && o->config.max_loads)
        out->after = o->blocks[block].written_by;
    out->written = out->after <= plans_over(o);
    out->ns.bits = is_findable(o, node) ? space_of(o, o->nodes[node].root) : 0;
    out->root = o->nodes[o->nodes[node].root].hash;
    out->hash = o->nodes[node].hash;
    out->n_tokens = (o->nodes[node].depth + 1) * o->unit;
    out->first = o->nodes[node].depth / oracle_units(o, out->group) * oracle_size(o, out->group);
    for (up = node; !o->nodes[up].is_root; up = o->nodes[up].parent) {
        for (uint32_t i = 0; i < o->nodes[up].keys.n; i++)
            out->n_keys += o->nodes[up].keys.items[i].offset >= 0;
        if (o->nodes[up].depth * o->unit == out->first)
            out->parent = o->nodes[o->nodes[up].parent].hash;
    }
    return KVP_OK;
}

static kvp_status prefix(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    int32_t block = named(o, call);
    uint32_t node;

    if (block < 0)
        return KVP_E_ARG;
    node = deepest_of(o, block);
    out->n = node == ORACLE_NONE ? 0 : (o->nodes[node].depth + 1) * o->unit;
    if (!call->count)
        return KVP_OK;
    if (out->n > call->count)
        return KVP_E_TOO_SMALL;
    out->i32 = oracle_out_i32(o, out->n);
    for (; node != ORACLE_NONE && !o->nodes[node].is_root; node = o->nodes[node].parent)
        memcpy(o->i32 + (size_t)o->nodes[node].depth * o->unit, o->nodes[node].tokens,
               o->unit * sizeof *o->i32);
    return KVP_OK;
}

/* --------------------------------------------------------------------------------- lend, mirror */

/* The first block of the call that is none; n_tokens: all are. */
static uint32_t first_wrong(const kvp_call *call, uint32_t n_blocks)
{
    uint32_t i = 0;

    while (i < call->n_tokens && call->tokens[i] > 0 && (uint32_t)call->tokens[i] < n_blocks)
        i++;
    return i;
}

static int32_t host_block(const oracle *o, const kvp_call *call, uint32_t i)
{
    return o->pools[KVP_HOST].first + call->tokens[i];
}

/* How often the call names block i before. */
static uint32_t named_before(const kvp_call *call, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < i; k++)
        n += call->tokens[k] == call->tokens[i];
    return n;
}

static kvp_status lend(oracle *o, const kvp_call *call)
{
    uint32_t wrong = first_wrong(call, o->config.host_blocks), n = n_lent(o);

    if (wrong < call->n_tokens)
        return oracle_fail(o, KVP_E_ARG, wrong, 0);
    if (!o->config.max_loads)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    for (uint32_t i = 0; i < call->n_tokens; i++) {
        const oracle_block *b = &o->blocks[host_block(o, call, i)];

        if (!oracle_block_sealed(o, host_block(o, call, i)))
            return oracle_fail(o, KVP_E_STATE, i, 0);
        if (b->written_by > plans_over(o))
            return oracle_fail(o, KVP_E_IN_FLIGHT, i, 0);
        if (!b->lends && !named_before(call, i) && ++n > o->config.lent_blocks)
            return oracle_fail(o, KVP_E_AGAIN, i, 0);
    }
    oracle_begin_change(o);
    for (uint32_t i = 0; i < call->n_tokens; i++) {
        o->marks.lent_cached += !o->blocks[host_block(o, call, i)].refs;
        o->blocks[host_block(o, call, i)].lends++;
        oracle_hold(o, host_block(o, call, i));
    }
    return KVP_OK;
}

static kvp_status give_back(oracle *o, const kvp_call *call)
{
    uint32_t wrong = first_wrong(call, o->config.host_blocks);

    if (wrong == call->n_tokens && !o->config.max_loads)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    for (uint32_t i = 0; i < wrong; i++)
        if (o->blocks[host_block(o, call, i)].lends <= named_before(call, i))
            return oracle_fail(o, KVP_E_ARG, i, 0);
    if (wrong < call->n_tokens)
        return oracle_fail(o, KVP_E_ARG, wrong, 0);
    oracle_begin_change(o);
    for (uint32_t i = 0; i < call->n_tokens; i++) {
        int32_t block = host_block(o, call, i);

        o->marks.lent_lost += !oracle_block_sealed(o, block);
        o->blocks[block].lends--;
        oracle_release(o, block, NULL);
    }
    return KVP_OK;
}

/* Is the node's block of this group being loaded? */
static bool is_loading(const oracle *o, uint32_t node, uint32_t group)
{
    for (uint32_t i = 0; i < o->config.max_loads; i++) {
        const oracle_load *load = &o->loads[i];

        for (uint32_t k = 0; load->number && load->group == group && k < load->n; k++)
            if (load->nodes[k] == node)
                return true;
    }
    return false;
}

/* One block; false: there is no room. */
static bool mirror_block(oracle *o, int32_t block, uint32_t spare, int32_t *host, kvp_mirrored *out)
{
    const oracle_block *b = &o->blocks[block];
    uint32_t node = deepest_of(o, block);

    if (node == ORACLE_NONE || !is_findable(o, node)) {
        out->left_out++;
        return true;
    }
    *host = o->nodes[node].at[b->group][KVP_HOST].block;
    if (*host || is_loading(o, node, b->group)) {
        *host = *host ? oracle_id(o, *host) : 0;
        out->found++;
        return true;
    }
    if (oracle_available(o, KVP_HOST) <= spare || !oracle_may_copy_to_host(o, b->ns_handle))
        return false;
    o->marks.mirrored_held += b->refs > 0;
    *host = oracle_id(o, oracle_copy_to_host(o, block, node));
    o->stats.mirrored_blocks++;
    out->copied++;
    return true;
}

static kvp_status mirror(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t wrong = first_wrong(call, o->config.n_blocks);

    if (wrong < call->n_tokens)
        return oracle_fail(o, KVP_E_ARG, wrong, 0);
    if (!o->config.host_blocks || o->config.keep_evicted == KVP_EVICTED_KEEP_ONCE)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    out->n = call->n_tokens;
    out->i32 = oracle_out_i32(o, call->n_tokens + 1u);
    memset(o->i32, 0, call->n_tokens * sizeof *o->i32);
    for (uint32_t i = 0; i < call->n_tokens; i++)
        if (!mirror_block(o, call->tokens[i], call->count, &o->i32[i], &out->u.mirrored))
            break;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- loads */

/* What a load of a prompt would be. */
typedef struct wish {
    uint32_t root, n_units, n_known; /* nodes in o->prompt_nodes */
    uint32_t n_new, n_touched; /* entries to load; host blocks of the prompt that are cached */
} wish;

static uint32_t public_units(const oracle *o, const kvp_call *call)
{
    uint32_t n = 0;

    while (o->config.prefix_cache && n < call->n_tokens / o->unit &&
           !oracle_is_uncached(o, call, n))
        n++;
    return n;
}

static kvp_status entries_status(const oracle *o, const kvp_call *call)
{
    bool is_state = is_of_state(o, call->group);

    if ((call->group >= o->config.n_groups && !is_state) || call->range.begin >= call->range.end ||
        call->range.end > call->n_tokens / oracle_size(o, call->group) ||
        (is_state && call->range.begin + 1 < call->range.end))
        return KVP_E_ARG;
    if (!o->config.max_loads ||
        call->range.end * oracle_units(o, call->group) > public_units(o, call))
        return KVP_E_STATE;
    return KVP_OK;
}

static void find_nodes(oracle *o, const kvp_call *call, wish *w)
{
    oracle_keys keys = {0};
    uint32_t parent = w->root;

    o->prompt_nodes = oracle_grow(o->prompt_nodes, &o->prompt_nodes_capacity, w->n_units,
                                  sizeof *o->prompt_nodes);
    for (uint32_t u = 0; u < w->n_units; u++) {
        oracle_unit_keys(o, call, u, &keys);
        if (parent != ORACLE_NONE)
            parent = oracle_node_find(o, parent, call->tokens + (size_t)u * o->unit, &keys);
        o->prompt_nodes[u] = parent;
        w->n_known += parent != ORACLE_NONE;
    }
    free(keys.items);
}

static void make_nodes(oracle *o, const kvp_call *call, const wish *w)
{
    oracle_keys keys = {0};
    kvp_hash hash;

    for (uint32_t u = w->n_known; u < w->n_units; u++) {
        const int32_t *tokens = call->tokens + (size_t)u * o->unit;
        uint32_t parent = u ? o->prompt_nodes[u - 1] : w->root;

        oracle_unit_keys(o, call, u, &keys);
        oracle_unit_hash(o, parent, tokens, &keys, &hash);
        o->prompt_nodes[u] = oracle_node_make(o, parent, tokens, &keys, &hash);
    }
    free(keys.items);
}

static uint32_t last_node(const oracle *o, const kvp_call *call, uint32_t entry)
{
    return o->prompt_nodes[(entry + 1) * oracle_units(o, call->group) - 1];
}

static int32_t there(const oracle *o, uint32_t node, uint32_t group, uint32_t tier)
{
    return node == ORACLE_NONE ? 0 : o->nodes[node].at[group][tier].block;
}

static bool is_there(const oracle *o, uint32_t node, uint32_t group)
{
    return there(o, node, group, KVP_DEVICE) || there(o, node, group, KVP_HOST);
}

static void count_entries(const oracle *o, const kvp_call *call, wish *w, kvp_load *load)
{
    w->n_new = w->n_touched = load->n_found = load->n_elsewhere = 0;
    for (uint32_t i = 0; i < call->range.end; i++) {
        uint32_t node = last_node(o, call, i);
        int32_t host = there(o, node, call->group, KVP_HOST);

        w->n_touched += host && oracle_block_state(o, host) == KVP_BLOCK_CACHED;
        if (i < call->range.begin)
            continue;
        if (is_there(o, node, call->group))
            load->n_found++;
        else if (node != ORACLE_NONE && is_loading(o, node, call->group))
            load->n_elsewhere++;
        else
            w->n_new++;
    }
}

static oracle_load *find_load(oracle *o, uint64_t number)
{
    for (uint32_t i = 0; i < o->config.max_loads; i++)
        if (o->loads[i].number == number)
            return &o->loads[i];
    return NULL;
}

/* One slot of the host; half of them, rounded up, at most. */
static kvp_status state_admit(oracle *o, const kvp_call *call)
{
    uint32_t usable = o->config.host_state_slots - 1, most = (usable + 1) / 2;

    if (1 + call->count > usable) {
        o->stats.refused++;
        return oracle_fail_blocks(o, KVP_E_NEVER, 0, KVP_HOST_STATE_SLOTS,
                                  1 + call->count - usable);
    }
    if (!find_load(o, 0) || oracle_loading_slots(o) == most)
        return oracle_fail_blocks(o, KVP_E_AGAIN, 0, KVP_HOST_STATE_SLOTS, 0);
    if (1 + call->count > o->host_slot_queue.n) {
        o->stats.refused++;
        return oracle_fail_blocks(o, KVP_E_NO_BLOCKS, 0, KVP_HOST_STATE_SLOTS,
                                  1 + call->count - o->host_slot_queue.n);
    }
    return KVP_OK;
}

static kvp_status load_admit(oracle *o, const kvp_call *call, const wish *w)
{
    if (is_of_state(o, call->group))
        return state_admit(o, call);
    uint64_t usable = oracle_usable(o, KVP_HOST), available = oracle_available(o, KVP_HOST);
    uint64_t spare = call->count, beside = spare > w->n_touched ? spare : w->n_touched;

    if (w->n_new > o->config.lent_blocks || w->n_new + spare > usable) {
        o->stats.refused++;
        return oracle_fail_blocks(o, KVP_E_NEVER, 0, KVP_HOST,
                                  w->n_new > o->config.lent_blocks
                                      ? w->n_new - o->config.lent_blocks
                                      : w->n_new + spare - usable);
    }
    if (!find_load(o, 0) || n_lent(o) + w->n_new > o->config.lent_blocks)
        return oracle_fail_blocks(o, KVP_E_AGAIN, 0, KVP_HOST, 0);
    if (w->n_new + beside > available) {
        o->stats.refused++;
        return oracle_fail_blocks(o, KVP_E_NO_BLOCKS, 0, KVP_HOST, w->n_new + beside - available);
    }
    return KVP_OK;
}

/* Nodes for the path: content that is evicted for them may be what the path has, but its known
 * nodes stay. */
static kvp_status find_room_for_nodes(oracle *o, const kvp_call *call, wish *w, kvp_load *load)
{
    uint32_t n = w->n_units - w->n_known, found = load->n_found;
    kvp_status status = KVP_OK;

    if (o->node_limit - o->nodes_used >= n)
        return KVP_OK;
    while (w->n_units < o->node_limit && o->node_limit - o->nodes_used < n && oracle_free_node(o))
        o->marks.load_node++;
    count_entries(o, call, w, load);
    o->marks.load_node_found += load->n_found < found;
    status = load_admit(o, call, w);
    if (status == KVP_OK && o->node_limit - o->nodes_used < n)
        return oracle_fail(o, KVP_E_AGAIN, 0, 0);
    return status;
}

static void take_entry(oracle *o, const kvp_call *call, oracle_load *load, uint32_t entry)
{
    int32_t block = oracle_take(o, KVP_HOST, call->group, call->retention, call->handle);

    load->blocks[load->n] = block;
    load->nodes[load->n++] = last_node(o, call, entry);
    o->blocks[block].loading = true;
    if (o->blocks[block].used_by > load->after)
        load->after = o->blocks[block].used_by;
    o->i32[entry - call->range.begin] = oracle_id(o, block);
}

static void take_state(oracle *o, const kvp_call *call, oracle_load *load)
{
    uint32_t slot = oracle_host_slot_take_for(o, call->retention, call->handle);

    load->blocks[0] = (int32_t)slot;
    load->nodes[0] = load->last;
    load->n = 1;
    load->after = o->host_slots[slot].used_by;
    o->i32[0] = (int32_t)slot;
    o->marks.load_state_waits += load->after > plans_over(o);
}

static void clear_blocks(oracle *o, const kvp_call *call)
{
    uint32_t n = call->range.end - call->range.begin;

    memset(oracle_out_i32(o, n), 0, n * sizeof *o->i32);
}

static void begin_load(oracle *o, const kvp_call *call, const wish *w, kvp_load *out)
{
    oracle_load *load = find_load(o, 0);

    clear_blocks(o, call);
    make_nodes(o, call, w);
    load->number = ++o->load_number;
    load->group = call->group;
    load->n = 0;
    load->after = 0;
    load->last = o->prompt_nodes[w->n_units - 1];
    load->retention = call->retention;
    load->ns_handle = call->handle;
    load->blocks = oracle_allocate(w->n_new, sizeof *load->blocks);
    load->nodes = oracle_allocate(w->n_new, sizeof *load->nodes);
    o->nodes[load->last].users++;
    for (uint32_t i = 0; i < call->range.end; i++) {
        int32_t host = there(o, last_node(o, call, i), call->group, KVP_HOST);

        if (host)
            oracle_hold(o, host);
    }
    for (uint32_t i = call->range.begin; i < call->range.end; i++) {
        uint32_t node = last_node(o, call, i);

        if (is_of_state(o, call->group))
            take_state(o, call, load);
        else if (!is_there(o, node, call->group) && !is_loading(o, node, call->group))
            take_entry(o, call, load, i);
    }
    for (uint32_t i = call->range.end; i-- > 0;) {
        int32_t host = there(o, last_node(o, call, i), call->group, KVP_HOST);

        if (host)
            oracle_release(o, host, NULL);
    }
    if (load->after <= plans_over(o))
        load->after = 0;
    o->marks.load_waits += load->after > 0;
    out->number = load->number;
    out->after = load->after;
    out->n_blocks = load->n;
    o->stats.loads = o->load_number;
}

static kvp_status begin_admitted(oracle *o, const kvp_call *call, wish *w, kvp_load *load)
{
    uint32_t known = w->n_known ? o->prompt_nodes[w->n_known - 1] : w->root;
    kvp_status status;

    oracle_begin_change(o);
    o->nodes[known].users++;
    status = find_room_for_nodes(o, call, w, load);
    if (status == KVP_OK)
        begin_load(o, call, w, load);
    o->nodes[known].users--;
    oracle_node_prune(o, known);
    return status;
}

static kvp_status load_begin(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    wish w = {0};
    kvp_load load = {0};
    kvp_status status = oracle_prompt_status(o, call, &w.root);

    if (status == KVP_OK)
        status = entries_status(o, call);
    if (status != KVP_OK)
        return oracle_fail(o, status, 0, 0);
    w.n_units = call->range.end * oracle_units(o, call->group);
    find_nodes(o, call, &w);
    count_entries(o, call, &w, &load);
    if (w.n_new)
        status = load_admit(o, call, &w);
    if (status != KVP_OK)
        return status;
    if (w.n_new)
        status = begin_admitted(o, call, &w, &load);
    if (status != KVP_OK)
        return status;
    o->marks.load_elsewhere += load.n_elsewhere > 0;
    o->marks.load_found += load.n_found > 0 && w.n_new > 0;
    out->n = call->range.end - call->range.begin;
    if (!w.n_new)
        clear_blocks(o, call);
    out->i32 = o->i32;
    out->u.load = load;
    return KVP_OK;
}

/* The units of the entry that ends with `node` are in the block. */
static void settle(oracle *o, uint32_t node, int32_t block)
{
    for (uint32_t i = 0; i < oracle_units(o, o->blocks[block].group);
         i++, node = o->nodes[node].parent)
        if (!o->nodes[node].is_private)
            oracle_node_found(o, node, block);
}

/* A state is of use where each group has the KV of its unit; it needs a slot, and a copy. */
static bool can_keep_state(oracle *o, uint32_t node)
{
    bool has_kv = true;

    for (uint32_t g = 0; g < o->config.n_groups; g++)
        has_kv &= is_there(o, node, g);
    o->marks.load_state_no_kv += !has_kv;
    return has_kv && oracle_free_slots(o) && oracle_plan_room(o);
}

static void end_block(oracle *o, const oracle_load *load, uint32_t i, bool whole, kvp_loaded *out)
{
    uint32_t node = load->nodes[i];
    bool is_state = is_of_state(o, load->group);

    if (!is_state)
        o->blocks[load->blocks[i]].loading = false;
    if (!whole) {
        out->failed++;
        o->stats.failed_loads++;
        return;
    }
    if (is_findable(o, node) && !is_there(o, node, load->group) &&
        (!is_state || can_keep_state(o, node))) {
        if (is_state)
            oracle_state_loaded(o, node, (uint32_t)load->blocks[i], load);
        else
            settle(o, node, load->blocks[i]);
        o->marks.load_state += is_state;
        out->cached++;
        o->stats.loaded_blocks++;
        return;
    }
    o->marks.load_unneeded += is_there(o, node, load->group);
    o->marks.load_flushed += !o->nodes[o->nodes[node].root].has_ns;
    o->marks.load_withdrawn += o->nodes[node].is_private;
    out->dropped++;
    o->stats.dropped_loads++;
}

/* `whole`: NULL, nothing is. */
static kvp_status load_end(oracle *o, const kvp_call *call, const uint8_t *whole, kvp_loaded *out)
{
    oracle_load *load = call->number ? find_load(o, call->number) : NULL;
    bool valid = load && (!whole || call->name_bytes == load->n);

    for (uint32_t i = 0; valid && whole && i < load->n; i++)
        valid = whole[i] <= 1;
    if (!valid)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (whole && load->after > plans_over(o))
        return oracle_fail(o, KVP_E_IN_FLIGHT, 0, 0);
    oracle_begin_change(o);
    for (uint32_t i = 0; i < load->n; i++)
        end_block(o, load, i, whole && whole[i], out);
    for (uint32_t i = load->n; i-- > 0;)
        if (is_of_state(o, load->group))
            oracle_host_slot_release(o, (uint32_t)load->blocks[i]);
        else
            oracle_release(o, load->blocks[i], NULL);
    o->nodes[load->last].users--;
    oracle_node_prune(o, load->last);
    oracle_load_forget(load);
    return KVP_OK;
}

void oracle_load_forget(oracle_load *load)
{
    free(load->blocks);
    free(load->nodes);
    memset(load, 0, sizeof *load);
}

/* Nothing is lent, and nothing loading, any more. */
void oracle_lend_reset(oracle *o)
{
    for (uint32_t i = 0; i < o->config.max_loads; i++)
        oracle_load_forget(&o->loads[i]);
    for (uint32_t b = 0; b < o->n_all_blocks; b++) {
        o->blocks[b].loading = false;
        o->blocks[b].lends = 0;
        o->blocks[b].used_by = o->blocks[b].written_by = 0;
    }
    o->plans_done = o->plans;
}

void oracle_lend_stats(const oracle *o, kvp_stats *s)
{
    s->host_loading_blocks = oracle_loading(o);
    s->host_lent_blocks = n_lent(o);
    s->host_held_blocks -= s->host_loading_blocks;
    for (uint32_t i = 0; i < o->config.max_loads; i++)
        s->open_loads += o->loads[i].number != 0;
    s->plans_done = plans_over(o);
    s->plans = oracle_overlapped(o) ? o->step_number : o->plans;
    s->loads = o->load_number;
}

kvp_status oracle_lend_call(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    switch (call->op) {
    case KVP_CALL_PLAN_DONE: return plan_done(o, call);
    case KVP_CALL_MIRROR: return mirror(o, call, out);
    case KVP_CALL_BLOCKS_LEND: return lend(o, call);
    case KVP_CALL_BLOCKS_RETURN: return give_back(o, call);
    case KVP_CALL_LOAD_BEGIN: return load_begin(o, call, out);
    case KVP_CALL_LOAD_DONE: return load_end(o, call, call->name, &out->u.loaded);
    case KVP_CALL_LOAD_CANCEL: return load_end(o, call, NULL, &out->u.loaded);
    case KVP_CALL_COLD_END: return cold_end(o, call, out);
    case KVP_CALL_BLOCK_ORIGIN: return origin(o, call, &out->u.origin);
    default: return prefix(o, call, out);
    }
}

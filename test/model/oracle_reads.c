/* Calls that change nothing: what is known of sequences, of blocks, and the counters. */
#include "oracle_parts.h"

#include <string.h>

static void seq_info(const oracle *o, const oracle_seq *seq, kvp_seq_info *info)
{
    uint32_t kept = oracle_kept_tokens(o, seq);

    info->ns.bits = seq->ns_handle;
    info->tag = seq->tag;
    info->n_tokens = seq->tokens;
    info->known_tokens = seq->known;
    info->prompt_tokens = seq->prompt;
    info->cached_tokens = seq->cached;
    info->computed_tokens = seq->computed;
    info->writable_tokens = seq->writable;
    info->public_tokens = oracle_public_units(o, seq) * o->unit;
    info->kept_tokens = kept;
    info->n_blocks = seq->n_row[0];
    info->stop = seq->stop;
    info->stop_group = seq->stop_group;
    info->last_token = -1;
    if (kept == seq->known && kept)
        info->last_token = seq->n_tail ? seq->tail[seq->n_tail - 1]
                                       : o->nodes[seq->chain[seq->n_chain - 1]].tokens[o->unit - 1];
    info->retention = seq->retention;
    info->tier = seq->tier;
    info->tree_tokens = seq->n_tree;
}

static int32_t value_at(const oracle *o, const oracle_seq *seq, uint32_t position)
{
    uint32_t unit = position / o->unit, offset = position % o->unit;

    return unit < seq->n_chain ? o->nodes[seq->chain[unit]].tokens[offset] : seq->tail[offset];
}

static kvp_status read_values(oracle *o, const oracle_seq *seq, uint64_t from, uint64_t end,
                              kvp_outcome *out)
{
    if (end > oracle_kept_tokens(o, seq) && end > from)
        return KVP_E_UNKNOWN;
    out->n = (uint32_t)(end - from);
    out->i32 = oracle_out_i32(o, end - from);
    for (uint64_t i = from; i < end; i++)
        o->i32[i - from] = value_at(o, seq, (uint32_t)i);
    return KVP_OK;
}

static kvp_status seq_tokens(oracle *o, const oracle_seq *seq, const kvp_call *call,
                             kvp_outcome *out)
{
    uint64_t end = (uint64_t)call->position + call->count;

    return end > seq->tokens ? KVP_E_ARG : read_values(o, seq, call->position, end, out);
}

static kvp_status seq_block_tokens(oracle *o, const oracle_seq *seq, const kvp_call *call,
                                   kvp_outcome *out)
{
    uint64_t from = (uint64_t)call->position * oracle_size(o, 0);
    uint64_t end = from + oracle_size(o, 0);

    if (call->position >= seq->n_row[0])
        return KVP_E_ARG;
    if (end > seq->tokens)
        end = seq->tokens;
    return read_values(o, seq, from, end > from ? end : from, out);
}

static kvp_status row(oracle *o, const oracle_seq *seq, const kvp_call *call, kvp_outcome *out)
{
    if (call->group >= o->config.n_groups)
        return KVP_E_ARG;
    out->n = seq->n_row[call->group];
    out->i32 = oracle_out_i32(o, out->n);
    for (uint32_t i = 0; i < out->n; i++)
        o->i32[i] = oracle_id(o, seq->rows[call->group][i]);
    return KVP_OK;
}

static kvp_status slots(oracle *o, const oracle_seq *seq, const kvp_call *call, kvp_outcome *out)
{
    uint64_t end = (uint64_t)call->position + call->count;
    uint32_t S = oracle_size(o, call->group);
    const int32_t *row;

    if (call->group >= o->config.n_groups || end > (uint64_t)seq->n_row[call->group] * S)
        return KVP_E_ARG;
    if (oracle_is_out(seq) || (call->count && end > seq->writable))
        return KVP_E_STATE;
    row = seq->rows[call->group];
    o->i64 = oracle_grow(o->i64, &o->i64_capacity, call->count, sizeof *o->i64);
    for (uint32_t i = 0; i < call->count; i++) {
        uint32_t at = call->position + i;

        o->i64[i] = at < seq->computed ? KVP_NO_SLOT : (int64_t)row[at / S] * S + at % S;
    }
    out->n = call->count;
    out->i64 = o->i64;
    return KVP_OK;
}

static kvp_status read_seq(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    const oracle_seq *seq;

    if (place == ORACLE_NONE)
        return KVP_E_HANDLE;
    seq = &o->seqs[place];
    switch (call->op) {
    case KVP_CALL_SEQ_INFO: seq_info(o, seq, &out->u.seq); return KVP_OK;
    case KVP_CALL_SEQ_TOKENS: return seq_tokens(o, seq, call, out);
    case KVP_CALL_SEQ_BLOCK_TOKENS: return seq_block_tokens(o, seq, call, out);
    case KVP_CALL_ROW: return row(o, seq, call, out);
    case KVP_CALL_WINDOW_GET: return oracle_window_get(o, seq, call, out);
    case KVP_CALL_TREE: return oracle_tree(o, seq, call, out);
    default: return slots(o, seq, call, out);
    }
}

/* --------------------------------------------------------------------------------------- blocks */

uint32_t oracle_block_state(const oracle *o, int32_t block)
{
    const oracle_block *b = &o->blocks[block];

    if (oracle_id(o, block) == 0)
        return KVP_BLOCK_NULL;
    if (b->refs)
        return KVP_BLOCK_HELD;
    if (b->parked_for)
        return KVP_BLOCK_PARKED;
    return oracle_block_sealed(o, block) ? KVP_BLOCK_CACHED : KVP_BLOCK_FREE;
}

/* The number of the block that a call names; -1: there is none. Its group may be any
 * that there is. */
static int32_t named_block(const oracle *o, const kvp_call *call)
{
    if (call->group >= o->config.n_groups || call->tier >= ORACLE_TIERS || call->block < 0 ||
        (uint32_t)call->block >= o->pools[call->tier].n)
        return -1;
    return o->pools[call->tier].first + call->block;
}

static kvp_status block_info(const oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_block_info *info = &out->u.block;
    int32_t block = named_block(o, call);
    const oracle_block *b;
    uint32_t depth;

    if (oracle_slot_info(o, call, info))
        return KVP_OK;
    if (block < 0)
        return KVP_E_ARG;
    b = &o->blocks[block];
    info->state = oracle_block_state(o, block);
    info->ref_count = b->refs;
    info->generation = b->generation;
    info->retention = b->retention;
    info->group = b->group;
    for (uint32_t k = 0; k < o->block_units; k++)
        info->sealed_units += b->unit_kind[k] == UNIT_SEALED;
    depth = oracle_block_depth(o, block);
    info->sealed_tokens = depth * o->unit;
    if (depth)
        info->hash = o->nodes[b->unit_node[depth - 1]].hash;
    return KVP_OK;
}

static kvp_status block_tokens(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    int32_t block = named_block(o, call);
    uint32_t depth, node;

    if (block < 0)
        return KVP_E_ARG;
    depth = oracle_block_depth(o, block);
    out->n = depth * o->unit;
    out->i32 = oracle_out_i32(o, out->n);
    node = depth ? o->blocks[block].unit_node[depth - 1] : 0;
    for (uint32_t k = depth; k-- > 0; node = o->nodes[node].parent)
        memcpy(o->i32 + k * o->unit, o->nodes[node].tokens, o->unit * sizeof *o->i32);
    return KVP_OK;
}

static uint64_t count_state(const oracle *o, uint32_t tier, uint32_t state)
{
    const oracle_pool *pool = &o->pools[tier];
    uint64_t n = 0;

    for (uint32_t i = 1; i < pool->n; i++)
        n += oracle_block_state(o, pool->first + (int32_t)i) == state;
    return n;
}

/* Units on the host that no prompt can hit. */
static uint64_t count_lost(const oracle *o)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < o->n_nodes; i++)
        n += o->nodes[i].used && o->nodes[i].at[0][KVP_HOST].block && oracle_is_lost(o, i);
    return n;
}

static void stats(const oracle *o, kvp_stats *s)
{
    *s = o->stats;
    s->usable_blocks = oracle_usable(o, KVP_DEVICE);
    s->free_blocks = count_state(o, KVP_DEVICE, KVP_BLOCK_FREE);
    s->cached_blocks = count_state(o, KVP_DEVICE, KVP_BLOCK_CACHED);
    s->held_blocks = o->pools[KVP_DEVICE].held;
    s->parked_blocks = o->n_parked;
    s->watermark_blocks = o->watermark;
    s->open_seqs = o->open_seqs;
    s->open_namespaces = o->open_namespaces;
    s->nodes_used = o->nodes_used;
    s->pending_copies = o->n_plan;
    s->host_usable_blocks = oracle_usable(o, KVP_HOST);
    s->host_free_blocks = count_state(o, KVP_HOST, KVP_BLOCK_FREE);
    s->host_cached_blocks = count_state(o, KVP_HOST, KVP_BLOCK_CACHED);
    s->host_held_blocks = o->pools[KVP_HOST].held;
    s->host_unreachable = count_lost(o);
    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        s->swapped_seqs += o->seqs[i].open && oracle_is_out(&o->seqs[i]);
    s->steps_out = o->n_steps;
    oracle_lend_stats(o, s);
}

kvp_status oracle_read(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    switch (call->op) {
    case KVP_CALL_EVICTED:
        out->n = o->n_evicted;
        out->evicted = o->evicted;
        return KVP_OK;
    case KVP_CALL_BLOCK_INFO: return block_info(o, call, out);
    case KVP_CALL_BLOCK_TOKENS: return block_tokens(o, call, out);
    case KVP_CALL_EVENTS_READ: return oracle_events_read(o, call, out);
    case KVP_CALL_EVENTS_SNAPSHOT: return oracle_events_snapshot(o, call, out);
    case KVP_CALL_STATS: stats(o, &out->u.stats); return KVP_OK;
    case KVP_CALL_SHORTAGE: out->u.shortage = o->shortage; return KVP_OK;
    default: return read_seq(o, call, out);
    }
}

/* kvp_block_info_get of a slot. */
bool oracle_slot_info(const oracle *o, const kvp_call *call, kvp_block_info *info)
{
    const oracle_slot *slot;
    bool host = call->tier == KVP_HOST;

    if (call->group != o->config.n_groups || call->tier > KVP_HOST || call->block < 0 ||
        (uint32_t)call->block >= (host ? o->config.host_state_slots : o->config.state_slots))
        return false;
    slot = host ? &o->host_slots[call->block] : &o->slots[call->block];
    info->ref_count = slot->refs;
    info->generation = slot->generation;
    info->retention = slot->retention;
    info->group = call->group;
    info->state = !call->block                               ? KVP_BLOCK_NULL
                  : slot->refs                               ? KVP_BLOCK_HELD
                  : slot->parked_for                         ? KVP_BLOCK_PARKED
                  : slot->node != ORACLE_NONE && call->block ? KVP_BLOCK_CACHED
                                                             : KVP_BLOCK_FREE;
    if (call->block && slot->node != ORACLE_NONE) {
        info->sealed_units = 1;
        info->hash = o->nodes[slot->node].hash;
    }
    return true;
}

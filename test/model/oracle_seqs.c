/* Invalidate, fork, truncate, close, reset; retain and uncache. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- invalidate */

/* Does another sequence refer, from this position on, to a block of the row? */
static bool shares_from(const oracle *o, const oracle_seq *seq, const oracle_seq *other,
                        uint32_t from)
{
    if (other->tokens <= from)
        return false;
    for (uint32_t i = from / o->config.block_tokens; i < seq->n_row; i++) {
        for (uint32_t k = from / o->config.block_tokens; k < other->n_row; k++) {
            if (other->row[k] == seq->row[i])
                return true;
        }
    }
    return false;
}

/* Does it have the first unit that is withdrawn? */
static bool has_withdrawn(const oracle *o, const oracle_seq *seq, const oracle_seq *other,
                          uint32_t from)
{
    uint32_t unit = from / o->unit;

    return unit < oracle_public_units(o, seq) && unit < other->n_chain &&
           other->chain[unit] == seq->chain[unit];
}

static uint32_t find_sharers(oracle *o, const oracle_seq *seq, uint32_t from)
{
    uint32_t n = 0;

    o->u64 = oracle_grow(o->u64, &o->u64_capacity, o->config.max_seqs, sizeof *o->u64);
    for (uint32_t i = 0; i < o->config.max_seqs; i++) {
        const oracle_seq *other = &o->seqs[i];

        if (other->open && other != seq &&
            (shares_from(o, seq, other, from) || has_withdrawn(o, seq, other, from)))
            o->u64[n++] = other->handle;
    }
    return n;
}

kvp_status oracle_invalidate(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), from = call->position, public_units;
    oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (from > seq->tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (!call->no_report) {
        out->n = find_sharers(o, seq, from);
        if (out->n > call->count)
            return oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
        out->u64 = o->u64;
    }
    oracle_begin_change(o);
    public_units = oracle_public_units(o, seq);
    for (uint32_t i = from / o->unit; i < public_units; i++)
        oracle_node_withdraw(o, seq->chain[i]);
    oracle_cut_slots(o, seq, from);
    oracle_commitments_cut(o, place, from);
    return KVP_OK;
}

/* ------------------------------------------------------------------------ fork, truncate, close */

/* The values of a unit that is cut at `n` of its tokens go back to the tail. */
static void cut_unit(oracle_seq *to, const oracle_node *node, uint32_t n)
{
    memcpy(to->tail, node->tokens, n * sizeof *to->tail);
    to->n_tail = n;
    oracle_keys_copy(&to->tail_keys, &node->keys, n ? n : INT64_MIN); /* no tokens, no keys */
}

static void cut_tail(oracle_seq *to, const oracle_seq *from, uint32_t n)
{
    uint32_t kept = 0;

    if (to != from)
        memcpy(to->tail, from->tail, n * sizeof *to->tail);
    to->n_tail = n;
    if (to != from)
        oracle_keys_copy(&to->tail_keys, &from->tail_keys, n);
    for (uint32_t i = 0; i < to->tail_keys.n; i++) {
        if (n && to->tail_keys.items[i].offset < (int64_t)n)
            to->tail_keys.items[kept++] = to->tail_keys.items[i];
    }
    to->tail_keys.n = kept;
}

/* Give `to` the known tokens of `from` before n, whose chain it has up to there. */
static void cut_values(const oracle *o, oracle_seq *to, const oracle_seq *from, uint32_t n)
{
    uint32_t kept = oracle_kept_tokens(o, from), end = oracle_lower(n, kept);
    uint32_t units = end / o->unit, rest = end % o->unit;

    to->unkept = from->unkept && n > kept;
    to->known = oracle_lower(from->known, n);
    if (units < from->n_chain)
        cut_unit(to, &o->nodes[from->chain[units]], rest);
    else
        cut_tail(to, from, rest);
}

kvp_status oracle_fork(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), at = call->position;
    const oracle_seq *parent;
    oracle_seq *child;

    (void)out;
    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    parent = &o->seqs[place];
    if (at == KVP_END)
        at = parent->tokens;
    if (at > parent->tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(parent) || at > parent->computed || at > parent->known)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (o->open_seqs == o->config.max_seqs)
        return oracle_fail(o, KVP_E_NO_SEQS, 0, 0);
    oracle_begin_change(o);
    o->new_place = oracle_place_take(o);
    child = &o->seqs[o->new_place];
    child->ns_handle = parent->ns_handle;
    child->tag = call->tag;
    child->root = parent->root;
    o->nodes[child->root].users++;
    child->tokens = child->computed = child->writable = at;
    child->prompt = oracle_lower(parent->prompt, at);
    child->cached = oracle_lower(parent->cached, at);
    child->stop = parent->stop;
    child->is_fork = true;
    child->retention = parent->retention;
    child->uncached_from = parent->uncached_from;
    child->flushed = parent->flushed;
    cut_values(o, child, parent, at);
    for (uint32_t i = 0; i < oracle_lower(at, oracle_kept_tokens(o, parent)) / o->unit; i++)
        oracle_chain_push(o, child, parent->chain[i]);
    child->n_row = oracle_ceil(at, o->config.block_tokens);
    child->row = oracle_grow(child->row, &child->row_capacity, child->n_row, sizeof *child->row);
    for (uint32_t i = 0; i < child->n_row; i++) {
        child->row[i] = parent->row[i];
        oracle_hold(o, child->row[i]);
    }
    o->stats.forks++;
    return KVP_OK;
}

/* Release the blocks from `first` on, the last one first. */
void oracle_row_release(oracle *o, oracle_seq *seq, uint32_t first, kvp_released *released)
{
    seq->row_changed |= seq->n_row > first;
    while (seq->n_row > first)
        oracle_leave(o, seq, seq->row[--seq->n_row], released);
}

static void release_chain(oracle *o, oracle_seq *seq, uint32_t first)
{
    while (seq->n_chain > first) {
        uint32_t node = seq->chain[--seq->n_chain];

        o->nodes[node].users--;
        oracle_node_prune(o, node);
    }
}

kvp_status oracle_truncate(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), n = call->position;
    oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (n > seq->tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    oracle_row_release(o, seq, oracle_ceil(n, o->config.block_tokens), &out->u.released);
    cut_values(o, seq, seq, n);
    release_chain(o, seq, n / o->unit);
    seq->tokens = n;
    oracle_cut_slots(o, seq, n);
    seq->prompt = oracle_lower(seq->prompt, n);
    seq->cached = oracle_lower(seq->cached, n);
    oracle_commitments_cut(o, place, n);
    return KVP_OK;
}

static void close_seq(oracle *o, oracle_seq *seq, kvp_released *released)
{
    oracle_row_release(o, seq, 0, released);
    release_chain(o, seq, 0);
    o->nodes[seq->root].users--;
    oracle_node_prune(o, seq->root);
    seq->open = false;
    o->open_seqs--;
}

kvp_status oracle_close(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle);

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    oracle_begin_change(o);
    oracle_commitments_forget(o, place);
    close_seq(o, &o->seqs[place], &out->u.released);
    o->free_places[o->n_free_places++] = place;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- reset */

static void forget_block(oracle *o, int32_t block)
{
    oracle_block *b = &o->blocks[block];
    bool used = b->refs > 0;

    for (uint32_t k = 0; k < o->block_units; k++) {
        used |= b->unit_kind[k] != UNIT_EMPTY;
        b->unit_kind[k] = UNIT_EMPTY;
    }
    b->generation += used;
    b->refs = b->retention = 0;
    b->filled_by = b->parked_for = b->touched_by = 0;
}

static void forget_node(oracle *o, uint32_t i)
{
    oracle_node *node = &o->nodes[i];

    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        node->at[tier].block = 0;
        node->at[tier].n_duplicates = 0;
    }
    node->in_flight = 0;
    if (node->is_root) {
        node->children = node->users = 0;
        node->first_child = ORACLE_NONE;
        oracle_node_prune(o, i);
    } else {
        node->used = false;
        node->sibling = o->free_node;
        o->free_node = i;
        o->nodes_used--;
    }
}

static void forget_pool(oracle *o, oracle_pool *pool)
{
    pool->held = 0;
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        pool->queues[c].n = 0;
    for (uint32_t i = 1; i < pool->n; i++)
        forget_block(o, pool->first + (int32_t)i);
    for (uint32_t i = 1; i < pool->n; i++)
        oracle_queue_put(o, pool->first + (int32_t)i, true);
}

/* All sequences, content, copies and steps are gone. The namespaces' roots stay. */
void oracle_reset(oracle *o)
{
    uint32_t max = o->config.max_seqs;

    for (uint32_t i = 0; i < max; i++) {
        o->seqs[i].open = false;
        o->seqs[i].n_row = o->seqs[i].n_chain = 0;
        o->free_places[i] = max - 1 - i;
    }
    o->n_free_places = max;
    o->open_seqs = o->n_plan = o->n_copies = 0;
    o->n_steps = o->n_commitments = o->n_parked = 0;
    o->effective = o->step_number; /* nothing is awaited any more */
    o->told++;
    for (uint32_t i = 0; i < o->n_nodes; i++) {
        if (o->nodes[i].used)
            forget_node(o, i);
    }
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        forget_pool(o, &o->pools[tier]);
}

/* ------------------------------------------------------------------------------ retain, uncache */

kvp_status oracle_retain(oracle *o, const kvp_call *call)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    const oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (call->range.begin >= call->range.end || call->retention >= KVP_RETENTION_CLASSES ||
        call->range.end > (uint64_t)seq->n_row * o->config.block_tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    for (uint32_t i = call->range.begin / o->config.block_tokens;
         i < oracle_ceil(call->range.end, o->config.block_tokens); i++)
        o->blocks[seq->row[i]].retention = call->retention;
    return KVP_OK;
}

kvp_status oracle_uncache(oracle *o, const kvp_call *call)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (call->range.begin >= call->range.end)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq) || call->range.begin / o->unit < oracle_public_units(o, seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    if (call->range.begin < seq->uncached_from)
        seq->uncached_from = call->range.begin;
    return KVP_OK;
}

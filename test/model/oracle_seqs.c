/* Invalidate, fork, truncate, close, reset; retain and uncache. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- invalidate */

/* Do two rows of a group have a block in common from this entry on? */
static bool rows_share(const oracle_seq *a, const oracle_seq *b, uint32_t group, uint32_t entry)
{
    for (uint32_t i = entry; i < a->n_row[group]; i++) {
        for (uint32_t k = entry; k < b->n_row[group]; k++)
            if (b->rows[group][k] == a->rows[group][i] && a->rows[group][i])
                return true;
    }
    return false;
}

/* Does another sequence refer, from this position on, to a block of the row? */
static bool shares_from(const oracle *o, const oracle_seq *seq, const oracle_seq *other,
                        uint32_t from)
{
    bool shares = false;

    for (uint32_t k = 0; k < o->config.n_groups && other->tokens > from; k++)
        shares |= rows_share(seq, other, k, from / oracle_size(o, k));
    return shares;
}

/* "That follow the same units as the one with token `from`, begin with the same tokens up to
 * `from`, whatever their keys, and were once cut by a truncate or fork." */
static bool was_cut(const oracle *o, const oracle_seq *seq, uint32_t from, uint32_t i)
{
    uint32_t unit = from / o->unit;
    const oracle_node *node = &o->nodes[i];
    const int32_t *tokens = unit < seq->n_chain ? o->nodes[seq->chain[unit]].tokens : seq->tail;

    return from < oracle_lower(seq->known, oracle_kept_tokens(o, seq)) && !node->is_root &&
           !node->is_private && node->cut &&
           node->parent == (unit ? seq->chain[unit - 1] : seq->root) &&
           memcmp(node->tokens, tokens, (from % o->unit + 1) * sizeof *tokens) == 0;
}

/* Does it have one of the units that are withdrawn first? (Where a window made it private, it does
 * not.) */
static bool has_withdrawn(const oracle *o, const oracle_seq *seq, const oracle_seq *other,
                          uint32_t from)
{
    uint32_t unit = from / o->unit;

    return unit < oracle_public_units(o, other) &&
           ((unit < oracle_public_units(o, seq) && other->chain[unit] == seq->chain[unit]) ||
            was_cut(o, seq, from, other->chain[unit]));
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

static void withdraw_unit(oracle *o, uint32_t node)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++)
        oracle_node_withdraw(o, node, k);
    oracle_state_withdraw(o, node);
}

/* Of the units that were cut the one with the lowest hash; ORACLE_NONE: there is none any more. */
static uint32_t next_cut(const oracle *o, const oracle_seq *seq, uint32_t from)
{
    uint32_t next = ORACLE_NONE;

    for (uint32_t i = 0; i < o->n_nodes; i++)
        if (o->nodes[i].used && was_cut(o, seq, from, i) &&
            (next == ORACLE_NONE ||
             memcmp(&o->nodes[i].hash, &o->nodes[next].hash, sizeof o->nodes[i].hash) < 0))
            next = i;
    return next;
}

/* Unit by unit, group by group. */
static void withdraw(oracle *o, const oracle_seq *seq, uint32_t from)
{
    uint32_t end = oracle_public_units(o, seq), cut;

    for (uint32_t i = from / o->unit; i < end; i++)
        withdraw_unit(o, seq->chain[i]);
    while ((cut = next_cut(o, seq, from)) != ORACLE_NONE) {
        o->marks.cut_withdrawn++;
        o->marks.cut_reported += o->nodes[cut].users > 0;
        o->nodes[cut].users++; /* lives until it is done */
        withdraw_unit(o, cut);
        o->nodes[cut].users--;
        oracle_node_prune(o, cut);
    }
}

kvp_status oracle_invalidate(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), from = call->position;
    uint32_t computed, kept = from;
    bool lacked;
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
        if (!call->count)
            return KVP_OK;
        if (out->n > call->count)
            return oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
        out->u64 = o->u64;
    }
    oracle_begin_change(o);
    lacked = oracle_lacks(o, seq);
    computed = seq->computed;
    withdraw(o, seq, from);
    if (oracle_has_states(o) && from < seq->tokens) /* what is not computed is given up, too */
        kept = oracle_lower(from, computed);
    oracle_cut_slots(o, seq, kept);
    if (from < seq->tokens)
        oracle_state_back(o, seq, computed);
    o->marks.tree_dropped += oracle_tree_drop(o, seq);
    o->marks.lacking += !lacked && oracle_lacks(o, seq);
    oracle_commitments_cut(o, place, kept);
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
    for (uint32_t i = 0; i < to->tail_keys.n; i++)
        if (n && to->tail_keys.items[i].offset < (int64_t)n)
            to->tail_keys.items[kept++] = to->tail_keys.items[i];
    to->tail_keys.n = kept;
}

/* Give `to` the known tokens of `from` before n, whose chain it has up to there. */
static void cut_values(oracle *o, oracle_seq *to, const oracle_seq *from, uint32_t n)
{
    uint32_t kept = oracle_kept_tokens(o, from), end = oracle_lower(n, kept);
    uint32_t units = end / o->unit, rest = end % o->unit;

    to->unkept = from->unkept && n > kept;
    to->known = oracle_lower(from->known, n);
    if (units < from->n_chain) {
        if (rest && units < oracle_public_units(o, from) && units < from->computed / o->unit)
            o->nodes[from->chain[units]].cut = true;
        cut_unit(to, &o->nodes[from->chain[units]], rest);
    } else {
        cut_tail(to, from, rest);
    }
}

/* The child refers to what it keeps. */
static void fork_rows(oracle *o, oracle_seq *child, const oracle_seq *parent)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++)
        child->n_row[k] = oracle_ceil(child->tokens, oracle_size(o, k));
    oracle_rows_grow(o, child, child->n_row);
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        for (uint32_t i = 0; i < child->n_row[k]; i++) {
            bool kept = oracle_keeps(o, k, child->windows[k], i, child->tokens);
            int32_t block = kept ? parent->rows[k][i] : 0;

            o->marks.fork_dropped += !kept && parent->rows[k][i];
            child->rows[k][i] = block;
            if (block)
                oracle_hold(o, block);
        }
    }
}

kvp_status oracle_fork(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), at = call->position;
    oracle_seq *parent, *child;

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
    if (oracle_state_fork_status(o, parent, at) == KVP_E_STATE)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (oracle_lacks_at(o, parent, at, at) ||
        oracle_state_fork_status(o, parent, at) == KVP_E_DROPPED)
        return oracle_fail(o, KVP_E_DROPPED, 0, 0);
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
    child->parted = parent->parted;
    child->stop = parent->stop;
    child->stop_group = parent->stop_group;
    child->is_fork = true;
    child->retention = parent->retention;
    child->uncached_from = parent->uncached_from;
    child->flushed = parent->flushed;
    child->private_from = parent->private_from;
    memcpy(child->windows, parent->windows, sizeof child->windows);
    oracle_windows_cut(o, child);
    cut_values(o, child, parent, at);
    for (uint32_t i = 0; i < oracle_lower(at, oracle_kept_tokens(o, parent)) / o->unit; i++)
        oracle_chain_push(o, child, parent->chain[i]);
    fork_rows(o, child, parent);
    oracle_state_fork(o, parent, child, at);
    o->stats.forks++;
    return KVP_OK;
}

/* A null entry's block, which a retained place needs, goes to the tail with what is released; one
 * that is parked does when it is queued. */
static void renew(oracle *o, const oracle_seq *seq, uint32_t group, uint32_t i)
{
    uint32_t end = (i + 1) * oracle_units(o, group);
    int32_t block =
        end > seq->n_chain ? 0 : o->nodes[seq->chain[end - 1]].at[group][KVP_DEVICE].block;

    if (!o->config.retain_tokens || !o->config.groups[group].recent_tokens || oracle_is_out(seq) ||
        !block || o->blocks[block].refs || !oracle_is_retained(o, seq, group, i))
        return;
    if (!o->blocks[block].parked_for) {
        oracle_queue_remove(o, block);
        oracle_queue_put(o, block, true);
    }
    o->marks.retained_later += o->blocks[block].parked_for != 0;
    o->blocks[block].spare = false;
    o->marks.retained_renewed++;
}

/* Release the blocks without any of the first tokens, the last one first. */
void oracle_row_release(oracle *o, oracle_seq *seq, uint32_t n_tokens, kvp_released *released)
{
    uint32_t n;
    oracle_entry *order = oracle_order(o, seq->n_row, &n);

    for (uint32_t at = n; at-- > 0;) {
        uint32_t k = order[at].group, i = order[at].i;

        if (i < oracle_ceil(n_tokens, oracle_size(o, k)))
            continue;
        seq->row_changed = true;
        seq->n_row[k] = i;
        if (seq->rows[k][i])
            oracle_leave(o, seq, seq->rows[k][i], released);
        else
            renew(o, seq, k, i);
    }
    free(order);
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
    bool lacked;
    oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (n > seq->tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (oracle_lacks_at(o, seq, n, oracle_lower(seq->computed, n)) || oracle_state_lacks(o, seq, n))
        return oracle_fail(o, KVP_E_DROPPED, 0, 0);
    oracle_begin_change(o);
    lacked = oracle_lacks(o, seq);
    oracle_state_cut(o, seq, n);
    oracle_row_release(o, seq, n, &out->u.released);
    cut_values(o, seq, seq, n);
    release_chain(o, seq, n / o->unit);
    seq->tokens = n;
    oracle_cut_slots(o, seq, n);
    o->marks.tree_dropped += oracle_tree_drop(o, seq);
    o->marks.lacking_healed += lacked && !oracle_lacks(o, seq);
    seq->prompt = oracle_lower(seq->prompt, n);
    seq->cached = oracle_lower(seq->cached, n);
    oracle_commitments_cut(o, place, n);
    return KVP_OK;
}

static void close_seq(oracle *o, oracle_seq *seq, kvp_released *released)
{
    oracle_row_release(o, seq, 0, released);
    oracle_state_close(o, seq);
    o->marks.tree_dropped += oracle_tree_drop(o, seq);
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
    oracle_learned_close(o, &o->seqs[place]);
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
    b->refs = b->retention = b->group = 0;
    b->filled_by = b->parked_for = b->touched_by = 0;
}

static void forget_node(oracle *o, uint32_t i)
{
    oracle_node *node = &o->nodes[i];

    for (uint32_t k = 0; k < KVP_GROUPS_MAX; k++) {
        for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
            node->at[k][tier].block = 0;
            node->at[k][tier].n_duplicates = 0;
        }
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
    pool->held = pool->turn = 0;
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
        memset(o->seqs[i].n_row, 0, sizeof o->seqs[i].n_row);
        o->seqs[i].n_chain = o->seqs[i].n_tree = 0;
        o->seqs[i].read_slot = o->seqs[i].write_slot = o->seqs[i].n_ahead = 0;
        o->free_places[i] = max - 1 - i;
    }
    o->n_free_places = max;
    o->open_seqs = o->n_plan = o->n_copies = 0;
    o->n_steps = o->n_commitments = o->n_parked = 0;
    o->effective = o->step_number; /* nothing is awaited any more */
    oracle_lend_reset(o);
    if (o->policy)
        plain_reset(o->policy);
    o->told++;
    for (uint32_t i = 0; i < o->n_nodes; i++)
        if (o->nodes[i].used)
            forget_node(o, i);
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        forget_pool(o, &o->pools[tier]);
    oracle_states_reset(o, false);
}

/* ------------------------------------------------------------------------------ retain, uncache */

/* Slots that the rows of all groups have. */
static uint64_t slots_of_all(const oracle *o, const oracle_seq *seq)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint64_t slots = (uint64_t)seq->n_row[k] * oracle_size(o, k);

        least = slots < least ? slots : least;
    }
    return least;
}

kvp_status oracle_retain(oracle *o, const kvp_call *call)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    const oracle_seq *seq;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (call->range.begin >= call->range.end || call->retention >= KVP_RETENTION_CLASSES ||
        call->range.end > slots_of_all(o, seq))
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t S = oracle_size(o, k);

        for (uint32_t i = call->range.begin / S; i < oracle_ceil(call->range.end, S); i++)
            if (seq->rows[k][i])
                o->blocks[seq->rows[k][i]].retention = call->retention;
    }
    return KVP_OK;
}

kvp_status oracle_prompt_end(oracle *o, const kvp_call *call)
{
    uint32_t place = oracle_find_seq(o, call->handle);

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    if (call->position > o->seqs[place].tokens)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    oracle_begin_change(o);
    o->seqs[place].prompt = call->position;
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

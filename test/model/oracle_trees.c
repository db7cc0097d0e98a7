/* Trees: nodes behind a sequence's tokens, and the path that is accepted. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* The tree is gone; its slots are what they were. Tells whether there was one. */
bool oracle_tree_drop(oracle *o, oracle_seq *seq)
{
    bool was = seq->n_tree > 0;

    (void)o;
    seq->n_tree = 0;
    seq->tree_step = 0;
    return was;
}

/* Is the step not over that the last round of nodes is for? */
bool oracle_tree_awaited(const oracle *o, const oracle_seq *seq)
{
    return oracle_overlapped(o) && seq->n_tree && seq->tree_step > o->effective;
}

/* Are the parents of n new nodes, the call's from `first` on, nodes that come before? */
bool oracle_parents_valid(const oracle_seq *seq, const kvp_call *call, uint64_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t parent = call->parents[first + i];

        if (parent < -1 || parent >= (int64_t)seq->n_tree + i)
            return false;
    }
    return true;
}

void oracle_tree_grow(oracle *o, oracle_seq *seq, const kvp_call *call, uint64_t first, uint32_t n)
{
    uint64_t all = (uint64_t)seq->n_tree + n;

    if (!n)
        return;
    seq->tree_tokens =
        oracle_grow(seq->tree_tokens, &seq->tree_capacity, all, sizeof *seq->tree_tokens);
    seq->tree_parents =
        oracle_grow(seq->tree_parents, &seq->parents_capacity, all, sizeof *seq->tree_parents);
    memcpy(seq->tree_tokens + seq->n_tree, call->tokens + first, n * sizeof *seq->tree_tokens);
    memcpy(seq->tree_parents + seq->n_tree, call->parents + first, n * sizeof *seq->tree_parents);
    seq->n_tree += n;
    seq->tree_step = o->step_number + 1;
    o->stats.tree_tokens += n;
}

/* --------------------------------------------------------------------------------------- accept */

/* The nodes of the path that ends in a leaf, the root first, into o->i32. Gives how many. */
static uint32_t find_path(oracle *o, const oracle_seq *seq, int32_t leaf)
{
    uint32_t n = 0, at;
    int32_t node;

    for (node = leaf; node >= 0; node = seq->tree_parents[node])
        n++;
    oracle_out_i32(o, n);
    for (node = leaf, at = n; node >= 0; node = seq->tree_parents[node])
        o->i32[--at] = node;
    return n;
}

/* Does a copy into one of these blocks wait in the plan? */
static bool is_awaited(const oracle *o, int32_t block)
{
    for (uint32_t i = o->n_copies - o->n_plan; i < o->n_copies; i++)
        if (o->copies[i].to == block)
            return true;
    return false;
}

static int64_t slot_of(const oracle *o, const oracle_seq *seq, uint32_t group, uint32_t position)
{
    uint32_t S = oracle_size(o, group);

    return (int64_t)seq->rows[group][position / S] * S + position % S;
}

/* Nodes of the path that have to move; and whether one moves from or to a block that waits. */
static uint32_t count_moves(oracle *o, const oracle_seq *seq, int32_t leaf, bool *out_waits)
{
    uint32_t n = find_path(o, seq, leaf), moves = 0;

    for (uint32_t t = 0; t < n; t++) {
        uint32_t from = seq->tokens + (uint32_t)o->i32[t], to = seq->tokens + t;

        if (o->i32[t] == (int32_t)t)
            continue;
        moves++;
        for (uint32_t k = 0; k < o->config.n_groups; k++)
            *out_waits |= is_awaited(o, seq->rows[k][from / oracle_size(o, k)]) ||
                          is_awaited(o, seq->rows[k][to / oracle_size(o, k)]);
    }
    return moves;
}

static kvp_status accept_status(oracle *o, const oracle_seq *seq, int32_t leaf, uint32_t *moves)
{
    bool waits = false;

    if (leaf < -1 || leaf >= (int64_t)seq->n_tree)
        return KVP_E_ARG;
    if (oracle_is_out(seq))
        return KVP_E_STATE;
    if (leaf < 0)
        return KVP_OK;
    *moves += count_moves(o, seq, leaf, &waits);
    if (seq->computed < seq->tokens || seq->known < seq->tokens || waits)
        return KVP_E_STATE;
    return oracle_tree_awaited(o, seq) ? KVP_E_IN_FLIGHT : KVP_OK;
}

static void put_moves(oracle *o, const oracle_seq *seq, uint32_t n_path, uint32_t n_all,
                      uint32_t *at)
{
    uint32_t first = *at;

    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        *at = first;
        for (uint32_t t = 0; t < n_path; t++) {
            kvp_slot_move *move = &o->moves[(size_t)k * n_all + *at];

            if (o->i32[t] == (int32_t)t)
                continue;
            move->src = slot_of(o, seq, k, seq->tokens + (uint32_t)o->i32[t]);
            move->dst = slot_of(o, seq, k, seq->tokens + t);
            ++*at;
        }
    }
}

static void accept_path(oracle *o, oracle_seq *seq, uint32_t n_path)
{
    uint64_t sealed = o->stats.sealed_units, adopted = o->stats.adopted_blocks;
    uint32_t from = oracle_settled_units(o, seq);
    int32_t *tokens = oracle_allocate(n_path, sizeof *tokens);
    kvp_call no_keys = {0};

    for (uint32_t t = 0; t < n_path; t++)
        tokens[t] = seq->tree_tokens[o->i32[t]];
    seq->tokens += n_path;
    oracle_values_add(o, seq, &no_keys, tokens, n_path);
    seq->computed = seq->tokens;
    oracle_seal(o, seq, from);
    o->marks.tree_drops += oracle_windows_drop(o, seq, seq->computed, NULL);
    o->marks.tree_sealed += o->stats.sealed_units > sealed;
    o->marks.tree_adopts += o->stats.adopted_blocks > adopted;
    o->stats.accepted_tokens += n_path;
    free(tokens);
}

static void accept_leaf(oracle *o, oracle_seq *seq, int32_t leaf, uint32_t n_moves, uint32_t *at)
{
    uint32_t n_path;

    if (!seq->n_tree)
        return;
    n_path = find_path(o, seq, leaf);
    if (n_path) {
        put_moves(o, seq, n_path, n_moves, at);
        accept_path(o, seq, n_path);
    }
    o->marks.tree_releases += seq->n_row[0] > oracle_ceil(seq->tokens, oracle_size(o, 0));
    oracle_row_release(o, seq, seq->tokens, NULL);
    oracle_cut_slots(o, seq, seq->tokens);
    oracle_tree_drop(o, seq);
}

/* All sequences are looked at first; *moves: nodes that have to move. */
static kvp_status all_status(oracle *o, const kvp_call *call, const oracle_batch *batch,
                             uint32_t *moves)
{
    kvp_status status = KVP_OK;

    for (uint32_t i = 0; i < batch->n && status == KVP_OK; i++) {
        status = accept_status(o, &o->seqs[batch->members[i].place], call->leaves[i], moves);
        if (status != KVP_OK)
            oracle_fail(o, status, i, 0);
    }
    return status;
}

kvp_status oracle_accept(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_batch batch;
    uint32_t n_moves = 0, at = 0;
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
    status = all_status(o, call, &batch, &n_moves);
    if (status == KVP_OK) {
        out->n = n_moves;
        if (n_moves > call->count)
            status = oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
    }
    if (status == KVP_OK) {
        oracle_begin_change(o);
        o->moves = oracle_grow(o->moves, &o->moves_capacity, (uint64_t)n_moves * o->config.n_groups,
                               sizeof *o->moves);
        out->moves = o->moves;
    }
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++)
        accept_leaf(o, &o->seqs[batch.members[i].place], call->leaves[i], n_moves, &at);
    oracle_batch_free(&batch);
    return status;
}

/* ----------------------------------------------------------------------------------------- read */

kvp_status oracle_tree(oracle *o, const oracle_seq *seq, const kvp_call *call, kvp_outcome *out)
{
    out->n = seq->n_tree;
    if (!call->count)
        return KVP_OK;
    if (seq->n_tree > call->count)
        return KVP_E_TOO_SMALL;
    oracle_out_i32(o, 2 * (uint64_t)seq->n_tree);
    if (seq->n_tree) {
        memcpy(o->i32, seq->tree_tokens, seq->n_tree * sizeof *o->i32);
        memcpy(o->i32 + seq->n_tree, seq->tree_parents, seq->n_tree * sizeof *o->i32);
    }
    out->i32 = call->with_tokens ? o->i32 : NULL;
    out->parents = call->with_parents ? o->i32 + seq->n_tree : NULL;
    return KVP_OK;
}

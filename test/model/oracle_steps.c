/* Overlapped steps: what they commit, taking effect, failing. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

static oracle_step *find_step(oracle *o, uint64_t number)
{
    for (uint32_t i = 0; i < o->n_steps; i++)
        if (o->steps[i].number == number)
            return &o->steps[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------- commitments */

static void strike_commitment(oracle *o, uint32_t at)
{
    o->n_commitments--;
    memmove(&o->commitments[at], &o->commitments[at + 1],
            (o->n_commitments - at) * sizeof *o->commitments);
}

/* What was to be committed of a sequence counts up to here; up to 0, it is forgotten. */
void oracle_commitments_cut(oracle *o, uint32_t place, uint32_t n_tokens)
{
    for (uint32_t i = o->n_commitments; i-- > 0;) {
        oracle_commitment *c = &o->commitments[i];

        if (c->place != place || c->n_tokens <= n_tokens)
            continue;
        c->n_tokens = n_tokens;
        if (!n_tokens)
            strike_commitment(o, i);
        o->marks.commit_cut++;
    }
}

/* Nothing is to be committed of a sequence any more: closed, or swapped out. */
void oracle_commitments_forget(oracle *o, uint32_t place)
{
    for (uint32_t i = o->n_commitments; i-- > 0;) {
        if (o->commitments[i].place != place)
            continue;
        strike_commitment(o, i);
        o->marks.commit_left++;
    }
}

/* What steps after this one were to commit of a sequence rests on what is not there. */
static void drop_later(oracle *o, uint32_t place, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_commitments; i++) {
        oracle_commitment *c = &o->commitments[i];

        if (c->place != place || c->step <= step)
            continue;
        o->marks.commit_dropped += !c->dropped;
        c->dropped = true;
    }
}

static bool is_dropped(const oracle *o, uint64_t step, uint32_t place)
{
    for (uint32_t i = 0; i < o->n_commitments; i++)
        if (o->commitments[i].step == step && o->commitments[i].place == place)
            return o->commitments[i].dropped;
    return false;
}

/* A sequence that is named again keeps its place in the order, and the larger count. */
static void promise(oracle *o, uint64_t step, const oracle_member *member)
{
    oracle_commitment *c;

    if (!member->n_tokens)
        return;
    if (!is_dropped(o, step, member->place))
        oracle_ahead_add(o, &o->seqs[member->place], step, member->n_tokens);
    for (uint32_t i = 0; i < o->n_commitments; i++) {
        c = &o->commitments[i];
        if (c->step == step && c->place == member->place) {
            c->n_tokens = c->n_tokens > member->n_tokens ? c->n_tokens : member->n_tokens;
            return;
        }
    }
    o->commitments = oracle_grow(o->commitments, &o->commitments_capacity, o->n_commitments + 1u,
                                 sizeof *o->commitments);
    c = &o->commitments[o->n_commitments++];
    c->step = step;
    c->place = member->place;
    c->n_tokens = member->n_tokens;
    c->dropped = false;
}

kvp_status oracle_step_commit(oracle *o, const kvp_call *call)
{
    const oracle_step *step;
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
    step = find_step(o, call->number);
    if (!step || step->failed)
        status = oracle_fail(o, KVP_E_ARG, 0, 0);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        const oracle_seq *seq = &o->seqs[batch.members[i].place];

        status = oracle_commit_status(o, seq, batch.members[i].n_tokens);
        if (status == KVP_OK && !is_dropped(o, call->number, batch.members[i].place))
            status = oracle_ahead_status(o, seq, call->number, batch.members[i].n_tokens);
        if (status != KVP_OK)
            oracle_fail(o, status, i, 0);
    }
    if (status == KVP_OK)
        oracle_begin_change(o);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++)
        promise(o, call->number, &batch.members[i]);
    oracle_batch_free(&batch);
    return status;
}

/* --------------------------------------------------------------------------------------- effect */

static void find_unit(oracle *o, int32_t block, uint32_t idx)
{
    uint32_t node = o->blocks[block].unit_node[idx];

    o->blocks[block].unit_kind[idx] = UNIT_EMPTY;
    if (o->nodes[node].is_private)
        o->marks.flight_withdrawn++;
    else if (oracle_node_found(o, node, block))
        o->marks.effect_attached++;
    else if (o->blocks[block].unit_kind[idx] == UNIT_DUPLICATE)
        o->marks.effect_duplicate++;
    else
        o->marks.effect_nothing++;
    o->nodes[node].in_flight--;
    oracle_node_prune(o, node);
}

/* Does the block get what it has from this copy, or from a later one of the same step? */
static bool filled_in_step(const oracle *o, const oracle_copy *copy)
{
    uint64_t filler = o->blocks[copy->to].filled_by;

    for (uint32_t i = 0; i < o->n_copies && filler != copy->id; i++)
        if (o->copies[i].id == filler)
            return o->copies[i].step == copy->step;
    return filler == copy->id;
}

/* A copy has run: what is in its block is found, unless it was left out meanwhile. */
static void copy_done(oracle *o, const oracle_copy *copy)
{
    oracle_block *b = &o->blocks[copy->to];

    if (oracle_copies_state(copy)) {
        oracle_slot *slot = oracle_slot_at(o, copy->to);

        slot->filled_by = slot->filled_by == copy->id ? 0 : slot->filled_by;
        return;
    }
    if (filled_in_step(o, copy)) {
        b->filled_by = 0;
        for (uint32_t k = 0; k < o->block_units; k++)
            if (b->unit_kind[k] == UNIT_IN_FLIGHT)
                find_unit(o, copy->to, k);
    }
    if (copy->keeps)
        oracle_release(o, copy->to, NULL);
}

static void commit(oracle *o, const oracle_commitment *c)
{
    oracle_seq *seq = &o->seqs[c->place];
    uint64_t dropped = o->marks.dropped;

    o->marks.commit_effective += c->n_tokens > seq->computed;
    oracle_commit_seq(o, seq, c->n_tokens);
    o->marks.dropped_effect += o->marks.dropped > dropped;
}

/* The first step that is out takes effect. */
static void take_effect(oracle *o)
{
    uint64_t number = o->steps[0].number;

    o->n_steps--;
    memmove(o->steps, o->steps + 1, o->n_steps * sizeof *o->steps);
    while (o->n_copies > o->n_plan && o->copies[0].step == number) {
        oracle_copy copy = o->copies[0];

        o->n_copies--;
        memmove(o->copies, o->copies + 1, o->n_copies * sizeof *o->copies);
        copy_done(o, &copy);
    }
    for (uint32_t i = 0; i < o->n_commitments;) {
        oracle_commitment c = o->commitments[i];

        if (c.step != number) {
            i++;
            continue;
        }
        strike_commitment(o, i);
        if (!c.dropped)
            commit(o, &c);
    }
    oracle_unpark(o, number);
    oracle_unpark_slots(o, number);
    o->effective = number;
}

static void take_effects(oracle *o)
{
    for (uint32_t n = 0; o->n_steps && o->steps[0].reported; n++) {
        o->marks.effects_chained += n > 0;
        take_effect(o);
    }
}

kvp_status oracle_step_done(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_step *step = find_step(o, call->number);

    if (!step || step->reported)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    oracle_begin_change(o);
    step->reported = true;
    take_effects(o);
    out->number = o->effective;
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------- failure */

/* Mark the copies that a failed step spoiled: its own, and what read of them later. */
static void mark_spoiled(oracle *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_copies; i++) {
        oracle_copy *copy = &o->copies[i];

        copy->spoiled = copy->step == step;
        for (uint32_t k = 0; k < i && !copy->spoiled; k++) {
            copy->spoiled = o->copies[k].spoiled && copy->read_of == o->copies[k].id;
            o->marks.failed_later += copy->spoiled;
        }
    }
}

static bool is_spoiled(const oracle *o, int32_t block)
{
    uint64_t filler = block ? o->blocks[block].filled_by : 0;

    for (uint32_t i = 0; i < o->n_copies && filler; i++)
        if (o->copies[i].spoiled && o->copies[i].id == filler)
            return true;
    return false;
}

/* The first computed token of a row entry, of any group, that a spoiled copy should have filled;
 * the computed tokens: there is none. */
static uint32_t spoiled_from(const oracle *o, const oracle_seq *seq)
{
    uint32_t first = seq->computed;

    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        for (uint32_t i = 0; i < seq->n_row[k]; i++)
            if (is_spoiled(o, seq->rows[k][i]))
                first = oracle_lower(first, i * oracle_size(o, k));
    }
    return first;
}

/* Does the sequence lose KV that it has computed, or its state? */
static bool is_cut(const oracle *o, const oracle_seq *seq)
{
    return spoiled_from(o, seq) < seq->computed || oracle_state_spoiled(o, seq);
}

/* Does the sequence have nodes of this step, or of a later one? */
static bool has_late_nodes(const oracle_seq *seq, uint64_t step)
{
    return seq->n_tree && seq->tree_step >= step;
}

/* Handles of the sequences that lose computed tokens or their tree, into o->u64. */
static uint32_t find_cut(oracle *o, uint64_t step)
{
    uint32_t n = 0;

    o->u64 = oracle_grow(o->u64, &o->u64_capacity, o->config.max_seqs, sizeof *o->u64);
    for (uint32_t i = 0; i < o->config.max_seqs; i++) {
        const oracle_seq *seq = &o->seqs[i];

        if (seq->open && (is_cut(o, seq) || has_late_nodes(seq, step)))
            o->u64[n++] = seq->handle;
    }
    return n;
}

/* What became of a sequence whose state a spoiled copy should have brought. */
static void note_spoiled(oracle *o, const oracle_seq *seq, bool spoiled, bool all_there)
{
    for (uint32_t i = 0; i < o->config.max_seqs && spoiled && seq->lost; i++) {
        o->marks.state_spoiled_two +=
            o->seqs[i].open && &o->seqs[i] != seq && oracle_state_spoiled(o, &o->seqs[i]);
    }
    o->marks.state_spoiled += spoiled && seq->lost && seq->tier == KVP_DEVICE;
    o->marks.state_spoiled_kv += spoiled && all_there;
    o->marks.state_healed += spoiled && seq->tier == KVP_DEVICE && seq->read_slot;
}

static void cut_seq(oracle *o, uint32_t place, uint32_t n_tokens, uint64_t step)
{
    oracle_seq *seq = &o->seqs[place];
    bool lacked = oracle_lacks(o, seq), spoiled = oracle_state_spoiled(o, seq);
    bool all_there = n_tokens == seq->computed;

    oracle_cut_slots(o, seq, n_tokens);
    oracle_state_back(o, seq, ORACLE_NONE);
    note_spoiled(o, seq, spoiled, all_there);
    o->marks.state_ahead_lost += seq->lost;
    o->marks.tree_cut += seq->n_tree && !has_late_nodes(seq, step);
    oracle_tree_drop(o, seq);
    drop_later(o, place, step);
    oracle_commitments_cut(o, place, n_tokens);
    if (seq->tier == KVP_HOST) {
        o->marks.failed_swapped++;
        oracle_row_release(o, seq, n_tokens, NULL);
    }
    o->marks.lacking += !lacked && oracle_lacks(o, seq);
}

/* What the step was to commit, and what rests on that; computed tokens are not cut yet. */
static void drop_commitments_of(oracle *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_commitments;) {
        oracle_commitment c = o->commitments[i];

        if (c.step != step) {
            i++;
            continue;
        }
        strike_commitment(o, i);
        o->marks.commit_harmless += c.n_tokens <= o->seqs[c.place].computed;
        if (c.n_tokens <= o->seqs[c.place].computed)
            continue;
        o->seqs[c.place].fails = true;
        o->marks.commit_passed_on += c.dropped;
        drop_later(o, c.place, step);
    }
}

/* What a spoiled copy wrote is never found. Those of the step itself let go of what they held. */
static void spoil(oracle *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_copies; i++) {
        oracle_copy *copy = &o->copies[i];
        oracle_block *b = &o->blocks[copy->to];

        if (oracle_copies_state(copy)) {
            o->marks.state_spoiled_on += copy->spoiled && copy->step != step;
            if (copy->step == step && copy->wire.dst_tier == KVP_DEVICE)
                oracle_state_missed(o, copy);
            continue;
        }
        for (uint32_t k = 0; k < o->block_units && copy->spoiled; k++) {
            if (b->filled_by != copy->id || b->unit_kind[k] != UNIT_IN_FLIGHT)
                continue;
            o->marks.flight_failed++;
            oracle_unit_clear(o, copy->to, k, false);
        }
        if (copy->step != step)
            continue;
        if (b->filled_by == copy->id)
            b->filled_by = 0;
        if (copy->keeps) {
            o->marks.failed_kept++;
            copy->keeps = false;
            oracle_release(o, copy->to, NULL);
        }
    }
}

static void fail_step(oracle *o, uint64_t step)
{
    drop_commitments_of(o, step);
    for (uint32_t i = 0; i < o->config.max_seqs; i++) {
        uint32_t n_tokens = o->seqs[i].open ? spoiled_from(o, &o->seqs[i]) : 0;
        bool cuts = o->seqs[i].open && is_cut(o, &o->seqs[i]);

        if (o->seqs[i].open && (o->seqs[i].fails || cuts))
            oracle_ahead_fail(o, &o->seqs[i], step);
        o->seqs[i].fails = false;
        if (cuts)
            cut_seq(o, i, n_tokens, step);
        else if (o->seqs[i].open && has_late_nodes(&o->seqs[i], step))
            o->marks.tree_failed += oracle_tree_drop(o, &o->seqs[i]);
    }
    spoil(o, step);
}

kvp_status oracle_step_failed(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_step *step = find_step(o, call->number);

    if (!step || step->reported)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    mark_spoiled(o, call->number);
    if (!call->no_report) {
        out->n = find_cut(o, call->number);
        if (!call->count)
            return KVP_OK;
        if (out->n > call->count)
            return oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
        out->u64 = o->u64;
    }
    oracle_begin_change(o);
    fail_step(o, call->number);
    step->reported = step->failed = true;
    o->marks.failed_noted += step != o->steps;
    o->stats.failed_steps++;
    take_effects(o);
    return KVP_OK;
}

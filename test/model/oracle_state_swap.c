/* Swapping: states move to the other tier with their sequences' blocks. Only the device has
 * checkpoints, so only the way back can find a state there. */
#include "oracle_parts.h"

static oracle_state_move *find(const oracle_state_moves *m, uint32_t from)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->items[i].from == from)
            return &m->items[i];
    return NULL;
}

void oracle_state_list(const oracle *o, oracle_state_moves *m, const oracle_seq *seq, uint32_t tier)
{
    oracle_state_move *item = find(m, seq->read_slot);
    uint32_t there = 0;

    if (!oracle_has_states(o) || !seq->read_slot)
        return;
    if (!item) {
        if (tier == KVP_DEVICE)
            there = oracle_state_kept(o, seq, seq->computed);
        m->n_new += !there;
        m->items = oracle_grow(m->items, &m->capacity, m->n + 1u, sizeof *m->items);
        for (uint32_t i = 0; there && i <= m->n; i++)
            if (i == m->n)
                m->n_cached += !o->slots[there].refs;
            else if (m->items[i].to == there)
                break;
        item = &m->items[m->n++];
        *item = (oracle_state_move){seq->read_slot, there, 0, there != 0};
    }
    item->readers++;
}

/* Does the sequence take a slot to write, when room is made for it? Not if it is alone with what it
 * reads, and that is no checkpoint. */
void oracle_state_room(const oracle *o, oracle_state_moves *m, const oracle_seq *seq,
                       uint64_t target)
{
    const oracle_state_move *item = find(m, seq->read_slot);

    if (oracle_has_states(o) && target > seq->computed)
        m->room += !seq->read_slot || item->found || item->readers > 1 || oracle_overlapped(o);
}

uint32_t oracle_state_missing(const oracle *o, const oracle_state_moves *m, uint32_t tier)
{
    uint32_t need = m->n_new + m->n_cached + m->room;
    uint32_t available = tier == KVP_HOST ? o->host_slot_queue.n : oracle_free_slots(o);

    return oracle_has_states(o) && need > available ? need - available : 0;
}

void oracle_state_hold_found(oracle *o, const oracle_state_moves *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        for (uint32_t k = 0; m->items[i].found && k < m->items[i].readers; k++)
            oracle_slot_hold(o, m->items[i].to);
        o->marks.state_found += m->items[i].found;
    }
}

/* The state of a sequence, if it is the first of those that share it. */
void oracle_state_copy(oracle *o, oracle_state_moves *m, const oracle_seq *seq, uint32_t tier)
{
    oracle_state_move *item = find(m, seq->read_slot);

    if (!seq->read_slot || item->to)
        return;
    if (tier == KVP_HOST) {
        item->to = oracle_host_slot_take(o, seq);
        o->host_slots[item->to].refs = item->readers;
    } else {
        item->to = oracle_slot_take(o, seq);
        o->slots[item->to].refs = item->readers;
    }
    o->marks.state_swapped++;
    o->marks.state_with += item->readers > 1;
    oracle_plan_state(o, tier, item->from, item->to);
}

void oracle_state_arrive(oracle *o, const oracle_state_moves *m, oracle_seq *seq)
{
    uint32_t there = seq->read_slot ? find(m, seq->read_slot)->to : 0;

    if (!oracle_has_states(o))
        return;
    oracle_state_leave(o, seq);
    seq->read_slot = there;
}

/* ----------------------------------------------------------------------------- steps that fail */

/* Does it read what a copy that is spoiled should have brought? */
bool oracle_state_spoiled(const oracle *o, const oracle_seq *seq)
{
    const oracle_slot *slots = seq->tier == KVP_HOST ? o->host_slots : o->slots;

    for (uint32_t i = 0; i < o->n_copies && seq->read_slot; i++)
        if (o->copies[i].spoiled && o->copies[i].id == slots[seq->read_slot].filled_by)
            return true;
    return false;
}

/* The copy of the step that failed was to bring the state. */
void oracle_state_missed(oracle *o, const oracle_copy *copy)
{
    oracle_slot *slot = oracle_slot_at(o, copy->to);
    uint32_t node = slot->node;

    if (slot->filled_by != copy->id)
        return;
    slot->filled_by = 0;
    if (node == ORACLE_NONE)
        return;
    o->marks.load_state_fails++;
    oracle_state_withdraw(o, node);
    oracle_node_prune(o, node);
}

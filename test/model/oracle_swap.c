/* Swapping: sequences move to the other tier.
 *
 * A move lists the distinct blocks that the sequences' computed tokens are in, in the order in
 * which rows name them, and where each goes. Everything that a move takes is counted on that list
 * before anything is changed.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* A block that moves. */
typedef struct moved {
    int32_t from;
    int32_t to; /* found there; 0: a new block, until it is taken */
    bool found;
    uint32_t slots;   /* the most that any sequence has computed in it */
    uint32_t holders; /* rows that refer to it once everything has moved, */
    uint32_t left;    /* how many of them leave it by copy-on-write when room is made */
} moved;

typedef struct move {
    uint32_t tier; /* where to */
    uint32_t reserve;
    uint32_t *places; /* [n_seqs] */
    uint32_t n_seqs;
    moved *blocks; /* [n_blocks] */
    uint32_t n_blocks, capacity;
    uint32_t n_new, n_found; /* distinct ones */
    uint32_t n_cached;       /* of those found */
    uint64_t room, copies;   /* blocks that making room takes; how many of them are copies */
    oracle_state_moves states;
} move;

/* ------------------------------------------------------------------------------ what is to move */

/* Entries of a group's row with computed tokens. */
static uint32_t n_entries(const oracle *o, const oracle_seq *seq, uint32_t group)
{
    return oracle_ceil(seq->computed, oracle_size(o, group));
}

/* Those of all rows, in order. */
static oracle_entry *order_of(const oracle *o, const oracle_seq *seq, uint32_t *out_n)
{
    uint32_t n[KVP_GROUPS_MAX] = {0};

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        n[k] = n_entries(o, seq, k);
    return oracle_order(o, n, out_n);
}

static moved *find_moved(const move *m, int32_t from)
{
    for (uint32_t i = 0; i < m->n_blocks; i++)
        if (m->blocks[i].from == from)
            return &m->blocks[i];
    return NULL;
}

/* The block of the other tier that has all that a row entry has; 0: none. */
static int32_t find_there(const oracle *o, const oracle_seq *seq, uint32_t group, uint32_t entry,
                          uint32_t tier)
{
    uint32_t units = (entry + 1) * oracle_units(o, group);

    if (seq->computed < units * o->unit || oracle_public_units(o, seq) < units)
        return 0;
    return o->nodes[seq->chain[units - 1]].at[group][tier].block;
}

static void count_found(const oracle *o, move *m, int32_t block)
{
    for (uint32_t i = 0; i < m->n_blocks; i++)
        if (m->blocks[i].to == block)
            return; /* two blocks with the same KV */
    m->n_found++;
    m->n_cached += oracle_block_state(o, block) == KVP_BLOCK_CACHED;
}

static void list_entry(const oracle *o, move *m, const oracle_seq *seq, uint32_t group,
                       uint32_t entry)
{
    uint32_t S = oracle_size(o, group);
    uint32_t slots = oracle_lower(seq->computed - entry * S, S);
    int32_t from = seq->rows[group][entry];
    moved *b = find_moved(m, from);

    if (!from)
        return;
    if (!b) {
        int32_t to = find_there(o, seq, group, entry, m->tier);

        if (to)
            count_found(o, m, to);
        m->n_new += !to;
        m->blocks = oracle_grow(m->blocks, &m->capacity, m->n_blocks + 1u, sizeof *m->blocks);
        b = &m->blocks[m->n_blocks++];
        memset(b, 0, sizeof *b);
        b->from = from;
        b->to = to;
        b->found = to != 0;
    }
    b->slots = b->slots > slots ? b->slots : slots;
    b->holders++;
}

/* A block that was found has other holders; and blocks with the same KV become one. */
static uint32_t holders_then(const oracle *o, const move *m, const moved *b)
{
    uint32_t n = 0;

    if (!b->found)
        return b->holders;
    for (uint32_t i = 0; i < m->n_blocks; i++)
        n += m->blocks[i].to == b->to ? m->blocks[i].holders : 0;
    return n + o->blocks[b->to].refs;
}

/* Is the last block copied on write when room is made? */
static void count_copy(const oracle *o, move *m, moved *b)
{
    for (uint32_t i = 0; b->found && m->blocks + i < b; i++)
        b = m->blocks[i].to == b->to ? &m->blocks[i] : b;
    /* No step writes yet for those that have moved: none of them marks what it leaves. */
    if (holders_then(o, m, b) - b->left <= 1 && !(b->found && oracle_is_touched(o, b->to)))
        return;
    b->left++;
    m->room++;
    m->copies++;
}

/* What making room for a sequence takes, once it has moved, after those before it in the call. */
static void count_room(const oracle *o, move *m, const oracle_seq *seq)
{
    uint64_t target = (uint64_t)seq->tokens + m->reserve;

    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t moves = n_entries(o, seq, k), wanted = oracle_ceil(target, oracle_size(o, k));

        m->room += wanted > moves ? wanted - moves : 0;
        if (target > seq->computed && seq->computed % oracle_size(o, k))
            count_copy(o, m, find_moved(m, seq->rows[k][moves - 1]));
    }
}

static void list_blocks(const oracle *o, move *m)
{
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        const oracle_seq *seq = &o->seqs[m->places[i]];

        for (uint32_t k = 0; k < o->config.n_groups; k++)
            for (uint32_t entry = 0; entry < n_entries(o, seq, k); entry++)
                list_entry(o, m, seq, k, entry);
    }
    for (uint32_t i = 0; i < m->n_seqs && m->tier == KVP_DEVICE; i++)
        count_room(o, m, &o->seqs[m->places[i]]);
    m->copies += m->n_new;
    for (uint32_t i = 0; i < m->n_seqs; i++)
        oracle_state_list(o, &m->states, &o->seqs[m->places[i]], m->tier);
    for (uint32_t i = 0; i < m->n_seqs && m->tier == KVP_DEVICE; i++) {
        const oracle_seq *seq = &o->seqs[m->places[i]];

        oracle_state_room(o, &m->states, seq, (uint64_t)seq->tokens + m->reserve);
    }
    m->copies += m->states.n_new;
}

/* Handles, named twice, tiers, lengths; and the list. *out_fault: the sequence. */
static kvp_status read_move(oracle *o, const kvp_call *call, move *m, uint32_t *out_fault)
{
    bool in = call->op == KVP_CALL_SWAP_IN || call->op == KVP_CALL_CAN_SWAP_IN;
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    memset(m, 0, sizeof *m);
    m->tier = in ? KVP_DEVICE : KVP_HOST;
    m->reserve = in ? call->reserve_tokens : 0;
    *out_fault = batch.fault;
    if (status != KVP_OK)
        return status;
    m->n_seqs = batch.n;
    m->places = oracle_allocate(batch.n, sizeof *m->places);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        const oracle_seq *seq = &o->seqs[batch.members[i].place];

        m->places[i] = batch.members[i].place;
        *out_fault = i;
        if (seq->tier == m->tier)
            status = KVP_E_STATE;
        else if (in && oracle_lacks(o, seq))
            status = KVP_E_DROPPED;
        else if (in && (uint64_t)seq->tokens + m->reserve > o->config.max_seq_tokens)
            status = KVP_E_TOO_LONG;
    }
    oracle_batch_free(&batch);
    if (status == KVP_OK)
        list_blocks(o, m);
    return status;
}

static void free_move(move *m)
{
    free(m->places);
    free(m->blocks);
    free(m->states.items);
}

/* ------------------------------------------------------------------------------------ admission */

static uint32_t admit(const oracle *o, const move *m, kvp_admission *admission)
{
    bool in = m->tier == KVP_DEVICE;
    uint64_t need = m->n_new + m->n_cached + m->room;
    uint64_t distinct = (uint64_t)m->n_new + m->n_found + m->room;
    uint32_t watermark = in && o->pools[KVP_DEVICE].held ? o->watermark : 0;
    uint32_t limit = oracle_usable(o, m->tier) - watermark;

    memset(admission, 0, sizeof *admission);
    admission->need_blocks = (uint32_t)need;
    admission->available = oracle_available(o, m->tier);
    admission->copied_blocks = m->n_new;
    if (need + watermark <= admission->available)
        return admission->verdict =
                   oracle_state_missing(o, &m->states, m->tier) ? KVP_ADMIT_LATER : KVP_ADMIT_OK;
    if (distinct > limit) {
        admission->missing_blocks = (uint32_t)(distinct - limit);
        return admission->verdict = KVP_ADMIT_NEVER;
    }
    admission->missing_blocks = (uint32_t)(need + watermark - admission->available);
    return admission->verdict = KVP_ADMIT_LATER;
}

kvp_status oracle_can_swap(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t fault;
    move m;
    kvp_status status = read_move(o, call, &m, &fault);

    if (status == KVP_OK)
        admit(o, &m, &out->u.admission);
    free_move(&m);
    return status;
}

static kvp_status move_status(oracle *o, const kvp_call *call, move *m)
{
    kvp_admission admission;
    uint32_t fault, verdict;
    kvp_status status = read_move(o, call, m, &fault);

    if (status != KVP_OK)
        return oracle_fail(o, status, fault, 0);
    verdict = admit(o, m, &admission);
    if (verdict == KVP_ADMIT_LATER && !admission.missing_blocks) {
        o->stats.refused++;
        return oracle_fail_blocks(o, KVP_E_NO_BLOCKS, 0,
                                  m->tier == KVP_HOST ? KVP_HOST_STATE_SLOTS : KVP_STATE_SLOTS,
                                  oracle_state_missing(o, &m->states, m->tier));
    }
    if (verdict != KVP_ADMIT_OK) {
        o->stats.refused++;
        return oracle_fail_blocks(o, verdict == KVP_ADMIT_NEVER ? KVP_E_NEVER : KVP_E_NO_BLOCKS, 0,
                                  m->tier, admission.missing_blocks);
    }
    if (m->copies > oracle_plan_room(o))
        return oracle_fail(o, KVP_E_PLAN_FULL, 0, 0);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- the move */

/* Step 1: hold what is there, once for each row entry that will refer to it. */
static void hold_found(oracle *o, const move *m)
{
    for (uint32_t i = 0; i < m->n_blocks; i++)
        for (uint32_t k = 0; k < m->blocks[i].holders && m->blocks[i].found; k++)
            oracle_hold(o, m->blocks[i].to);
}

/* The sequence's public computed units in this entry are in the new block. `later`: it is not the
 * first that has it. */
static void settle(oracle *o, const oracle_seq *seq, uint32_t entry, int32_t block, bool later)
{
    uint32_t units = oracle_units(o, o->blocks[block].group);
    uint32_t first = entry * units, end = first + units;

    end = oracle_lower(end, seq->computed / o->unit);
    end = oracle_lower(end, oracle_public_units(o, seq));
    for (uint32_t unit = first; unit < end; unit++) {
        if (o->blocks[block].unit_kind[unit - first] != UNIT_EMPTY)
            continue;
        o->marks.settled_later += later;
        oracle_node_copied(o, seq->chain[unit], block);
    }
}

static void take_entry(oracle *o, const move *m, const oracle_seq *seq, uint32_t group,
                       uint32_t entry)
{
    int32_t from = seq->rows[group][entry];
    moved *b = find_moved(m, from);
    bool later;

    if (!from || b->found)
        return;
    later = b->to != 0;
    if (!later) {
        b->to = oracle_take(o, m->tier, group, o->blocks[b->from].retention, seq->ns_handle);
        o->blocks[b->to].refs = b->holders;
        oracle_plan_add(o, b->from, b->to, b->slots);
    }
    settle(o, seq, entry, b->to, later);
}

/* Step 2: take what is not there, entry by entry, sequence by sequence. */
static void take_new(oracle *o, const move *m)
{
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        const oracle_seq *seq = &o->seqs[m->places[i]];
        uint32_t n;
        oracle_entry *order = order_of(o, seq, &n);

        for (uint32_t at = 0; at < n; at++)
            take_entry(o, m, seq, order[at].group, order[at].i);
        free(order);
    }
}

static void change_row(oracle *o, const move *m, oracle_seq *seq, kvp_released *released)
{
    bool changed = seq->row_changed;
    uint32_t n;
    oracle_entry *order;

    oracle_row_release(o, seq, seq->computed, released);
    seq->row_changed = changed; /* a swap raises the version once */
    order = oracle_order(o, seq->n_row, &n);
    for (uint32_t at = n; at-- > 0;) {
        int32_t *entry = &seq->rows[order[at].group][order[at].i], old = *entry;

        if (!old)
            continue;
        *entry = find_moved(m, old)->to;
        oracle_leave(o, seq, old, released);
    }
    free(order);
}

/* Step 3: the rows refer to the new tier, and let go of the old one. */
static void change_rows(oracle *o, const move *m, kvp_released *released)
{
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        oracle_seq *seq = &o->seqs[m->places[i]];

        change_row(o, m, seq, released);
        o->marks.tree_dropped += oracle_tree_drop(o, seq);
        oracle_state_arrive(o, &m->states, seq);
        seq->tier = m->tier;
        seq->writable = seq->computed;
        seq->cut_by = 0;
        seq->moves++;
        if (m->tier == KVP_HOST)
            oracle_commitments_forget(o, m->places[i]);
    }
}

kvp_status oracle_swap(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_swapped *swapped = &out->u.swapped;
    bool in = call->op == KVP_CALL_SWAP_IN;
    move m;
    kvp_status status = move_status(o, call, &m);

    if (status == KVP_OK) {
        oracle_begin_change(o);
        swapped->copied_blocks = m.n_new;
        swapped->found_blocks = m.n_found;
        o->to_come = m.copies;
        hold_found(o, &m);
        oracle_state_hold_found(o, &m.states);
        take_new(o, &m);
        for (uint32_t i = 0; i < m.n_seqs; i++)
            oracle_state_copy(o, &m.states, &o->seqs[m.places[i]], m.tier);
        change_rows(o, &m, &swapped->released);
        for (uint32_t i = 0; i < m.n_seqs && in; i++)
            oracle_make_room(o, &o->seqs[m.places[i]], 0, m.reserve);
        o->stats.swap_ins += in ? m.n_seqs : 0;
        o->stats.swap_outs += in ? 0 : m.n_seqs;
        o->stats.swapped_in_blocks += in ? m.n_new : 0;
        o->stats.swapped_out_blocks += in ? 0 : m.n_new;
    }
    free_move(&m);
    return status;
}

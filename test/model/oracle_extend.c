/* Batches, and extend, of tokens and of trees: copy-on-write, taking over, growing.
 *
 * The single form of a call is a batch of one. Blocks that a batch needs are counted before
 * anything is changed, sequence by sequence, as the calls one after the other would need them.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- batches */

static bool is_single(const kvp_call *call)
{
    return call->op == KVP_CALL_EXTEND || call->op == KVP_CALL_FILL || call->op == KVP_CALL_COMMIT;
}

static void read_members(const oracle *o, const kvp_call *call, oracle_batch *batch)
{
    bool single = is_single(call);
    uint64_t first = 0;

    batch->n = single ? 1 : call->n_seqs;
    batch->members = oracle_allocate(batch->n, sizeof *batch->members);
    for (uint32_t i = 0; i < batch->n; i++) {
        oracle_member *member = &batch->members[i];

        member->place = oracle_find_seq(o, single ? call->handle : call->handles[i]);
        if (single)
            member->n_tokens = call->op == KVP_CALL_COMMIT ? call->position : call->n_tokens;
        else
            member->n_tokens = call->counts ? call->counts[i] : 1;
        member->first_token = first;
        first += member->n_tokens;
    }
}

/* The first handle that is bad, then the second naming of a sequence, or n: none. */
static uint32_t find_fault(const oracle_batch *batch, kvp_status *out_status)
{
    *out_status = KVP_E_HANDLE;
    for (uint32_t i = 0; i < batch->n && !batch->each; i++)
        if (batch->members[i].place == ORACLE_NONE)
            return i;
    *out_status = KVP_E_ARG;
    for (uint32_t i = 0; i < batch->n; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (batch->members[k].place == batch->members[i].place &&
                batch->members[i].place != ORACLE_NONE)
                return i;
    }
    return batch->n;
}

kvp_status oracle_batch_read(oracle *o, const kvp_call *call, bool may_each, oracle_batch *batch)
{
    uint32_t most_flags = may_each ? KVP_BATCH_EACH : 0;
    bool reserves = call->op == KVP_CALL_FILL_MANY && call->reserve_tokens, wrong_flags;
    kvp_status status;

    memset(batch, 0, sizeof *batch);
    batch->each = may_each && (call->flags & KVP_BATCH_EACH);
    read_members(o, call, batch);
    wrong_flags = call->flags > most_flags && !oracle_ring_asked(o, call);
    /* Each for itself: flags are looked at first. */
    batch->fault = batch->each && wrong_flags ? batch->n : find_fault(batch, &status);
    if (batch->fault == batch->n) {
        batch->fault = 0; /* of the call as a whole */
        status = reserves || wrong_flags || (call->n_keys && batch->n != 1) ? KVP_E_ARG : KVP_OK;
    }
    if (status != KVP_OK)
        oracle_batch_free(batch);
    return status;
}

void oracle_batch_free(oracle_batch *batch)
{
    free(batch->members);
    batch->members = NULL;
}

/* --------------------------------------------------------------------------------------- counts */

/* What one sequence of a batch is about to need. */
typedef struct growth {
    uint64_t target;                      /* tokens, tree and reserve afterwards */
    uint32_t first_block[KVP_GROUPS_MAX]; /* of the row that holds a slot to be made writable */
    uint32_t end_block[KVP_GROUPS_MAX];   /* after the last such one that is in the row now */
    uint32_t entries[KVP_GROUPS_MAX];     /* of the row afterwards */
    uint64_t blocks;                      /* of all rows afterwards */
    uint32_t need;                        /* blocks to take */
    uint32_t copies;
    uint32_t slots; /* of state, to take */
} growth;

/* Must a sequence that writes into the block copy it? block_count: sequences of the batch that have
 * left it before this one; block_left: one of them may be writing it. */
static bool must_copy(const oracle *o, int32_t block)
{
    return o->blocks[block].refs - o->block_count[block] > 1 || oracle_is_touched(o, block) ||
           o->block_left[block];
}

/* One block of the row, of which a slot is to be made writable. */
static void measure_block(oracle *o, const oracle_seq *seq, int32_t block, bool computed, growth *g)
{
    if (!must_copy(o, block))
        return;
    o->block_count[block]++;
    o->block_left[block] |= oracle_is_writer(o, seq);
    g->need++;
    g->copies += computed;
}

static growth measure(oracle *o, const oracle_seq *seq, uint32_t n_tokens, uint32_t reserve)
{
    growth g = {0};
    uint32_t n;
    oracle_entry *order;

    g.target = (uint64_t)seq->tokens + seq->n_tree + n_tokens + reserve;
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t wanted = oracle_ceil(g.target, oracle_size(o, k));

        g.first_block[k] = seq->computed / oracle_size(o, k);
        g.end_block[k] = g.target > seq->computed ? oracle_lower(wanted, seq->n_row[k]) : 0;
        g.entries[k] = wanted > seq->n_row[k] ? wanted : seq->n_row[k];
        g.need += g.entries[k] - seq->n_row[k];
    }
    g.blocks = (uint64_t)oracle_n_blocks(o, seq) + g.need;
    g.slots = oracle_slots_needed(o, seq, g.target);
    order = oracle_order(o, g.end_block, &n);
    for (uint32_t at = 0; at < n; at++) {
        uint32_t k = order[at].group, i = order[at].i;

        if (i >= g.first_block[k])
            measure_block(o, seq, seq->rows[k][i], seq->computed > i * oracle_size(o, k), &g);
    }
    free(order);
    return g;
}

static void forget_counts(oracle *o)
{
    memset(o->block_count, 0, o->n_all_blocks * sizeof *o->block_count);
    memset(o->block_left, 0, o->n_all_blocks * sizeof *o->block_left);
}

/* --------------------------------------------------------------------------------------- extend */

/* Would a copy be made of tokens that are not computed yet, while a step may still write them? What
 * the sequences of the batch before this one would leave is counted, and so is this one. */
static bool reads_in_flight(oracle *o, const oracle_seq *seq, uint32_t n_tokens, uint32_t reserve)
{
    growth g = measure(o, seq, n_tokens, reserve);

    return o->n_steps && g.copies && (seq->tokens > seq->computed || oracle_tree_awaited(o, seq));
}

/* Values and positions, state, length: of one sequence, without looking at blocks. */
static kvp_status extend_status(oracle *o, const kvp_call *call, const oracle_member *member,
                                uint32_t n_seqs)
{
    const oracle_seq *seq = &o->seqs[member->place];
    bool values = call->tokens && member->n_tokens, tree = call->op == KVP_CALL_EXTEND_TREE;
    uint64_t end = (uint64_t)seq->tokens + member->n_tokens;

    for (uint32_t i = 0; values && i < member->n_tokens; i++)
        if (call->tokens[member->first_token + i] < 0)
            return KVP_E_ARG;
    if (n_seqs == 1 && call->n_keys) {
        uint32_t end_key = end > UINT32_MAX ? UINT32_MAX : (uint32_t)end;

        if (!values || !oracle_keys_valid(o, call, seq->tokens, end_key, &seq->tail_keys,
                                          seq->known / o->unit))
            return KVP_E_ARG;
    }
    if (tree && !oracle_parents_valid(seq, call, member->first_token, member->n_tokens))
        return KVP_E_ARG;
    if (oracle_is_out(seq) || (!tree && values && seq->known < seq->tokens) ||
        (!tree && seq->n_tree && member->n_tokens))
        return KVP_E_STATE;
    if (oracle_lacks(o, seq))
        return KVP_E_DROPPED;
    if (end + seq->n_tree + call->reserve_tokens > o->config.max_seq_tokens ||
        (tree && (uint64_t)seq->n_tree + member->n_tokens > o->config.max_tree_tokens))
        return KVP_E_TOO_LONG;
    return reads_in_flight(o, seq, member->n_tokens, call->reserve_tokens) ? KVP_E_IN_FLIGHT
                                                                           : KVP_OK;
}

/* Copy-on-write of block i of a group's row. */
static void copy_on_write(oracle *o, oracle_seq *seq, uint32_t group, uint32_t i)
{
    uint32_t S = oracle_size(o, group), used = seq->tokens + seq->n_tree - i * S;
    int32_t old = seq->rows[group][i];
    int32_t new = oracle_take(o, KVP_DEVICE, group, seq->retention, seq->ns_handle);

    seq->rows[group][i] = new;
    seq->row_changed = true;
    if (seq->computed > i * S) {
        o->marks.tree_copied += seq->n_tree && seq->tokens < (i + 1) * S;
        oracle_plan_add(o, old, new, used < S ? used : S);
        for (uint32_t k = 0; k < oracle_units(o, group); k++) {
            uint32_t unit = i * oracle_units(o, group) + k;

            if ((unit + 1) * o->unit <= seq->computed && unit < oracle_public_units(o, seq) &&
                o->blocks[old].unit_kind[k] != UNIT_EMPTY &&
                o->blocks[old].unit_node[k] == seq->chain[unit])
                oracle_node_copied(o, seq->chain[unit], new);
        }
    }
    oracle_leave(o, seq, old, NULL);
}

/* A block of our own: what is about to be written over is not sealed any more. */
static void take_over(oracle *o, const oracle_seq *seq, uint32_t group, uint32_t i)
{
    uint32_t begin = i * oracle_size(o, group);
    uint32_t first = seq->computed > begin ? (seq->computed - begin) / o->unit : 0;

    for (uint32_t k = first; k < o->block_units; k++) {
        int32_t block = seq->rows[group][i];

        o->marks.flight_taken += o->blocks[block].unit_kind[k] == UNIT_IN_FLIGHT;
        if (o->blocks[block].unit_kind[k] != UNIT_EMPTY)
            oracle_unit_clear(o, block, k, true);
    }
}

static void make_writable(oracle *o, oracle_seq *seq, uint32_t group, uint32_t i)
{
    int32_t block = seq->rows[group][i];

    o->marks.left_writers += o->blocks[block].refs == 1 && must_copy(o, block);
    if (must_copy(o, block))
        copy_on_write(o, seq, group, i);
    else
        take_over(o, seq, group, i);
}

/* Room for so many entries in the row of each group. */
void oracle_rows_grow(const oracle *o, oracle_seq *seq, const uint32_t *n)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++)
        seq->rows[k] = oracle_grow(seq->rows[k], &seq->row_capacity[k], n[k], sizeof *seq->rows[k]);
}

/* Make the slots of the entries that are there writable. */
static void write_entries(oracle *o, oracle_seq *seq, const growth *g)
{
    uint32_t n;
    oracle_entry *order = oracle_order(o, g->end_block, &n);

    for (uint32_t at = 0; at < n; at++)
        if (order[at].i >= g->first_block[order[at].group])
            make_writable(o, seq, order[at].group, order[at].i);
    free(order);
}

/* Take blocks for the others. */
static void take_entries(oracle *o, oracle_seq *seq, const growth *g)
{
    uint32_t n;
    oracle_entry *order = oracle_order(o, g->entries, &n);

    oracle_rows_grow(o, seq, g->entries);
    for (uint32_t at = 0; at < n; at++) {
        uint32_t k = order[at].group;

        if (order[at].i == seq->n_row[k])
            seq->rows[k][seq->n_row[k]++] =
                oracle_take(o, KVP_DEVICE, k, seq->retention, seq->ns_handle);
    }
    free(order);
}

/* Make the slots of what is not computed, of n_tokens more and of the reserve writable. The caller
 * adds the tokens. */
void oracle_make_room(oracle *o, oracle_seq *seq, uint32_t n_tokens, uint32_t reserve)
{
    growth g = measure(o, seq, n_tokens, reserve);

    forget_counts(o);
    write_entries(o, seq, &g);
    take_entries(o, seq, &g);
    oracle_state_grow(o, seq, g.target);
    if (seq->writable < g.target)
        seq->writable = (uint32_t)g.target;
}

static void extend_member(oracle *o, const kvp_call *call, const oracle_member *member)
{
    oracle_seq *seq = &o->seqs[member->place];

    oracle_make_room(o, seq, member->n_tokens, call->reserve_tokens);
    if (call->op == KVP_CALL_EXTEND_TREE) {
        oracle_tree_grow(o, seq, call, member->first_token, member->n_tokens);
        return;
    }
    seq->tokens += member->n_tokens;
    if (call->tokens)
        oracle_values_add(o, seq, call, call->tokens + member->first_token, member->n_tokens);
}

/* What a batch, or one sequence of it, needs. */
typedef struct demand {
    uint64_t need, copies, excess, slots;
    uint32_t never_at, short_at, full_at, slot_at; /* the sequences at fault; n: none */
} demand;

static demand add_up(oracle *o, const kvp_call *call, const oracle_member *members, uint32_t n)
{
    uint32_t usable = oracle_usable(o, KVP_DEVICE), available = oracle_available(o, KVP_DEVICE);
    demand d = {0, 0, 0, 0, n, n, n, n};

    for (uint32_t i = 0; i < n; i++) {
        const oracle_seq *seq = &o->seqs[members[i].place];
        growth g = measure(o, seq, members[i].n_tokens, call->reserve_tokens);

        if (g.blocks > usable) {
            d.never_at = oracle_lower(d.never_at, i);
            d.excess = d.excess > g.blocks - usable ? d.excess : g.blocks - usable;
        }
        d.need += g.need;
        d.copies += g.copies;
        d.slots += g.slots;
        d.slot_at = d.slots > oracle_free_slots(o) ? oracle_lower(d.slot_at, i) : d.slot_at;
        d.short_at = d.need > available ? oracle_lower(d.short_at, i) : d.short_at;
        d.full_at = d.copies > oracle_plan_room(o) ? oracle_lower(d.full_at, i) : d.full_at;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!oracle_ring_member(o, call, &members[i]))
            continue;
        d.slots += oracle_ring_need(&o->seqs[members[i].place], members[i].n_tokens);
        d.slot_at = d.slot_at == n && d.slots > oracle_free_slots(o) ? i : d.slot_at;
    }
    forget_counts(o);
    return d;
}

/* Blocks and copies of members [0, n): the status, and the sequence at fault. When there is room,
 * o->to_come says how many copies will be made. */
static kvp_status room_status(oracle *o, const kvp_call *call, const oracle_member *members,
                              uint32_t n, kvp_shortage *why)
{
    demand d = add_up(o, call, members, n);

    memset(why, 0, sizeof *why);
    o->to_come = d.copies;
    if (d.never_at < n) {
        why->index = d.never_at;
        why->missing_blocks = d.excess;
        return KVP_E_NEVER;
    }
    if (d.short_at < n) {
        why->index = d.short_at;
        why->missing_blocks = d.need - oracle_available(o, KVP_DEVICE);
        return KVP_E_NO_BLOCKS;
    }
    if (d.slot_at < n) {
        why->index = d.slot_at;
        why->tier = KVP_STATE_SLOTS;
        why->missing_blocks = d.slots - oracle_free_slots(o);
        return KVP_E_NO_BLOCKS;
    }
    why->index = d.full_at < n ? d.full_at : 0;
    return d.full_at < n ? KVP_E_PLAN_FULL : KVP_OK;
}

/* Looked at when all else is right. */
static kvp_status ring_status(oracle *o, const kvp_call *call, const oracle_batch *batch,
                              uint32_t *out_index)
{
    kvp_status status = KVP_OK;

    for (uint32_t i = 0; i < batch->n && status == KVP_OK; i++) {
        const oracle_member *member = &batch->members[i];

        if (!oracle_ring_member(o, call, member))
            continue;
        *out_index = i;
        status = oracle_ring_status(o, &o->seqs[member->place], member->n_tokens);
    }
    return status;
}

/* All or nothing: one verdict for the whole batch. */
static kvp_status batch_status(oracle *o, const kvp_call *call, const oracle_batch *batch)
{
    kvp_shortage why;
    kvp_status status;

    for (uint32_t i = 0; i < batch->n; i++) {
        status = extend_status(o, call, &batch->members[i], batch->n);
        if (status == KVP_OK)
            continue;
        forget_counts(o);
        return oracle_fail(o, status, i, 0);
    }
    forget_counts(o);
    status = ring_status(o, call, batch, &why.index);
    if (status != KVP_OK)
        return oracle_fail(o, status, why.index, 0);
    status = room_status(o, call, batch->members, batch->n, &why);
    o->stats.refused += status == KVP_E_NEVER || status == KVP_E_NO_BLOCKS;
    return status == KVP_OK
               ? KVP_OK
               : oracle_fail_blocks(o, status, why.index, why.tier, why.missing_blocks);
}

static kvp_status member_status(oracle *o, const kvp_call *call, const oracle_batch *batch,
                                uint32_t i)
{
    kvp_shortage why = {0};
    kvp_status status = KVP_E_HANDLE;

    if (batch->members[i].place != ORACLE_NONE)
        status = extend_status(o, call, &batch->members[i], batch->n);
    forget_counts(o);
    if (status == KVP_OK)
        status = room_status(o, call, &batch->members[i], 1, &why);
    return status == KVP_OK ? KVP_OK
                            : oracle_fail_blocks(o, status, i, why.tier, why.missing_blocks);
}

/* Is a NULL where none may be? A tree's values and parents may be left out only when there are no
 * nodes. The cache does not record such a call. */
bool oracle_lacks_pointers(const kvp_call *call)
{
    uint64_t n = call->counts ? 0 : call->n_seqs;

    if (call->op != KVP_CALL_EXTEND_TREE)
        return false;

    for (uint32_t i = 0; i < call->n_seqs && call->counts; i++)
        n += call->counts[i];
    return n && (!call->tokens || !call->parents);
}

kvp_status oracle_extend(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    bool tree = call->op == KVP_CALL_EXTEND_TREE;
    oracle_batch batch;
    kvp_status status;

    if (oracle_lacks_pointers(call))
        return KVP_E_ARG;
    status = oracle_batch_read(o, call, !tree, &batch);
    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
    if (tree && call->n_keys) {
        oracle_batch_free(&batch);
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    }
    if (!batch.each)
        status = batch_status(o, call, &batch);
    if (status == KVP_OK)
        oracle_begin_change(o);
    if (batch.each) {
        out->n = batch.n;
        out->i32 = oracle_out_i32(o, batch.n);
    }
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        kvp_status one = batch.each ? member_status(o, call, &batch, i) : KVP_OK;

        if (batch.each)
            o->i32[i] = one;
        if (one == KVP_OK)
            extend_member(o, call, &batch.members[i]);
    }
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++)
        if (oracle_ring_member(o, call, &batch.members[i]))
            oracle_ring_grow(o, &o->seqs[batch.members[i].place]);
    oracle_batch_free(&batch);
    return status;
}

/* Only states and lengths: values are not looked at. */
static kvp_status can_extend_status(oracle *o, const kvp_call *call, const oracle_member *member)
{
    const oracle_seq *seq = &o->seqs[member->place];
    uint64_t end = (uint64_t)seq->tokens + seq->n_tree + member->n_tokens + call->reserve_tokens;

    if (oracle_is_out(seq))
        return KVP_E_STATE;
    if (oracle_lacks(o, seq))
        return KVP_E_DROPPED;
    if (end > o->config.max_seq_tokens)
        return KVP_E_TOO_LONG;
    return reads_in_flight(o, seq, member->n_tokens, call->reserve_tokens) ? KVP_E_IN_FLIGHT
                                                                           : KVP_OK;
}

kvp_status oracle_can_extend(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_admission *admission = &out->u.admission;
    oracle_batch batch;
    uint32_t index;
    demand d = {0};
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    if (status != KVP_OK)
        return status;
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++)
        status = can_extend_status(o, call, &batch.members[i]);
    forget_counts(o);
    if (status == KVP_OK)
        status = ring_status(o, call, &batch, &index);
    if (status == KVP_OK)
        d = add_up(o, call, batch.members, batch.n);
    oracle_batch_free(&batch);
    if (status != KVP_OK)
        return status;
    admission->need_blocks = (uint32_t)d.need;
    admission->available = oracle_available(o, KVP_DEVICE);
    if (d.need <= admission->available && !d.excess && d.slots > oracle_free_slots(o))
        admission->verdict = KVP_ADMIT_LATER;
    if (d.need <= admission->available)
        return KVP_OK;
    admission->verdict = d.excess ? KVP_ADMIT_NEVER : KVP_ADMIT_LATER;
    admission->missing_blocks = (uint32_t)(d.excess ? d.excess : d.need - admission->available);
    return KVP_OK;
}

/* Batches, and extend: copy-on-write, taking over, growing.
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
    for (uint32_t i = 0; i < batch->n && !batch->each; i++) {
        if (batch->members[i].place == ORACLE_NONE)
            return i;
    }
    *out_status = KVP_E_ARG;
    for (uint32_t i = 0; i < batch->n; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (batch->members[k].place == batch->members[i].place &&
                batch->members[i].place != ORACLE_NONE)
                return i;
        }
    }
    return batch->n;
}

kvp_status oracle_batch_read(oracle *o, const kvp_call *call, bool may_each, oracle_batch *batch)
{
    uint32_t most_flags = may_each ? KVP_BATCH_EACH : 0;
    bool reserves = call->op == KVP_CALL_FILL_MANY && call->reserve_tokens;
    kvp_status status;

    memset(batch, 0, sizeof *batch);
    batch->each = may_each && (call->flags & KVP_BATCH_EACH);
    read_members(o, call, batch);
    batch->fault = find_fault(batch, &status);
    if (batch->fault == batch->n) {
        batch->fault = 0; /* of the call as a whole */
        status = reserves || call->flags > most_flags || (call->n_keys && batch->n != 1) ? KVP_E_ARG
                                                                                         : KVP_OK;
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
    uint64_t target;      /* tokens and reserve afterwards */
    uint32_t first_block; /* the first block of the row that holds a slot to be made writable */
    uint32_t end_block;   /* after the last such block that is in the row now */
    uint32_t blocks;      /* blocks of the row afterwards */
    uint32_t need;        /* blocks to take */
    uint32_t copies;
} growth;

static growth measure(oracle *o, const oracle_member *member, uint32_t reserve)
{
    const oracle_seq *seq = &o->seqs[member->place];
    uint32_t S = o->config.block_tokens;
    growth g = {0};
    uint32_t wanted;

    g.target = (uint64_t)seq->tokens + member->n_tokens + reserve;
    wanted = oracle_ceil(g.target, S);
    g.first_block = seq->computed / S;
    g.end_block = wanted < seq->n_row ? wanted : seq->n_row;
    if (g.target <= seq->computed)
        g.end_block = g.first_block;
    g.blocks = wanted > seq->n_row ? wanted : seq->n_row;
    g.need = g.blocks - seq->n_row;
    for (uint32_t i = g.first_block; i < g.end_block; i++) {
        int32_t block = seq->row[i];

        /* block_count: sequences of the batch that leave the block before this one does */
        if (o->blocks[block].refs - o->block_count[block] <= 1)
            continue;
        o->block_count[block]++;
        g.need++;
        g.copies += seq->computed > i * S;
    }
    return g;
}

static void forget_counts(oracle *o)
{
    memset(o->block_count, 0, o->config.n_blocks * sizeof *o->block_count);
}

/* --------------------------------------------------------------------------------------- extend */

/* Values and positions, state, length: of one sequence, without looking at blocks. */
static kvp_status extend_status(const oracle *o, const kvp_call *call, const oracle_member *member,
                                uint32_t n_seqs)
{
    const oracle_seq *seq = &o->seqs[member->place];
    bool values = call->tokens && member->n_tokens;
    uint64_t end = (uint64_t)seq->tokens + member->n_tokens;

    for (uint32_t i = 0; values && i < member->n_tokens; i++) {
        if (call->tokens[member->first_token + i] < 0)
            return KVP_E_ARG;
    }
    if (n_seqs == 1 && call->n_keys) {
        uint32_t end_key = end > UINT32_MAX ? UINT32_MAX : (uint32_t)end;

        if (!values || !oracle_keys_valid(o, call, seq->tokens, end_key, &seq->tail_keys,
                                          seq->known / o->unit))
            return KVP_E_ARG;
    }
    if (values && seq->known < seq->tokens)
        return KVP_E_STATE;
    return end + call->reserve_tokens > o->config.max_seq_tokens ? KVP_E_TOO_LONG : KVP_OK;
}

/* Copy-on-write of block i of the row. */
static void copy_on_write(oracle *o, oracle_seq *seq, uint32_t i)
{
    uint32_t S = o->config.block_tokens, used = seq->tokens - i * S;
    int32_t old = seq->row[i], new = oracle_take(o, seq->retention);

    seq->row[i] = new;
    seq->row_changed = true;
    if (seq->computed > i * S) {
        oracle_plan_add(o, old, new, used < S ? used : S);
        for (uint32_t k = 0; k < o->block_units; k++) {
            uint32_t unit = i * o->block_units + k;

            if ((unit + 1) * o->unit <= seq->computed && unit < oracle_public_units(o, seq) &&
                o->blocks[old].unit_kind[k] != UNIT_EMPTY &&
                o->blocks[old].unit_node[k] == seq->chain[unit])
                oracle_node_duplicate(o, seq->chain[unit], new);
        }
    }
    oracle_release(o, old, NULL);
}

/* A block of our own: what is about to be written over is not sealed any more. */
static void take_over(oracle *o, const oracle_seq *seq, uint32_t i)
{
    uint32_t begin = i * o->config.block_tokens;
    uint32_t first = seq->computed > begin ? (seq->computed - begin) / o->unit : 0;

    for (uint32_t k = first; k < o->block_units; k++) {
        if (o->blocks[seq->row[i]].unit_kind[k] != UNIT_EMPTY)
            oracle_unit_clear(o, seq->row[i], k, true);
    }
}

static void extend_member(oracle *o, const kvp_call *call, const oracle_member *member)
{
    oracle_seq *seq = &o->seqs[member->place];
    growth g = measure(o, member, call->reserve_tokens);

    forget_counts(o);
    for (uint32_t i = g.first_block; i < g.end_block; i++) {
        if (o->blocks[seq->row[i]].refs > 1)
            copy_on_write(o, seq, i);
        else
            take_over(o, seq, i);
    }
    seq->row = oracle_grow(seq->row, &seq->row_capacity, g.blocks, sizeof *seq->row);
    while (seq->n_row < g.blocks)
        seq->row[seq->n_row++] = oracle_take(o, seq->retention);
    seq->tokens += member->n_tokens;
    if (seq->writable < g.target)
        seq->writable = (uint32_t)g.target;
    if (call->tokens)
        oracle_values_add(o, seq, call, call->tokens + member->first_token, member->n_tokens);
}

/* Blocks and copies of members [0, n): the status, and the sequence at fault. */
static kvp_status room_status(oracle *o, const kvp_call *call, const oracle_member *members,
                              uint32_t n, kvp_shortage *why)
{
    uint32_t usable = o->config.n_blocks - 1, available = oracle_available(o);
    uint32_t room = o->config.max_copies - o->n_plan;
    uint32_t never_at = n, short_at = n, full_at = n;
    uint64_t excess = 0, need = 0, copies = 0;

    for (uint32_t i = 0; i < n; i++) {
        growth g = measure(o, &members[i], call->reserve_tokens);

        if (g.blocks > usable) {
            never_at = never_at < n ? never_at : i;
            excess = excess > g.blocks - usable ? excess : g.blocks - usable;
        }
        need += g.need;
        copies += g.copies;
        short_at = need > available && short_at == n ? i : short_at;
        full_at = copies > room && full_at == n ? i : full_at;
    }
    forget_counts(o);
    memset(why, 0, sizeof *why);
    if (never_at < n) {
        why->index = never_at;
        why->missing_blocks = excess;
        return KVP_E_NEVER;
    }
    if (short_at < n) {
        why->index = short_at;
        why->missing_blocks = need - available;
        return KVP_E_NO_BLOCKS;
    }
    why->index = full_at < n ? full_at : 0;
    return full_at < n ? KVP_E_PLAN_FULL : KVP_OK;
}

/* All or nothing: one verdict for the whole batch. */
static kvp_status batch_status(oracle *o, const kvp_call *call, const oracle_batch *batch)
{
    kvp_shortage why;
    kvp_status status;

    for (uint32_t i = 0; i < batch->n; i++) {
        status = extend_status(o, call, &batch->members[i], batch->n);
        if (status != KVP_OK)
            return oracle_fail(o, status, i, 0);
    }
    status = room_status(o, call, batch->members, batch->n, &why);
    o->stats.refused += status == KVP_E_NEVER || status == KVP_E_NO_BLOCKS;
    return status == KVP_OK ? KVP_OK : oracle_fail(o, status, why.index, why.missing_blocks);
}

static kvp_status member_status(oracle *o, const kvp_call *call, const oracle_batch *batch,
                                uint32_t i)
{
    kvp_shortage why = {0};
    kvp_status status = KVP_E_HANDLE;

    if (batch->members[i].place != ORACLE_NONE)
        status = extend_status(o, call, &batch->members[i], batch->n);
    if (status == KVP_OK)
        status = room_status(o, call, &batch->members[i], 1, &why);
    return status == KVP_OK ? KVP_OK : oracle_fail(o, status, i, why.missing_blocks);
}

kvp_status oracle_extend(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, true, &batch);

    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
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
    oracle_batch_free(&batch);
    return status;
}

kvp_status oracle_can_extend(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_admission *admission = &out->u.admission;
    uint64_t need = 0, excess = 0;
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    if (status != KVP_OK)
        return status;
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        const oracle_seq *seq = &o->seqs[batch.members[i].place];
        growth g;

        if ((uint64_t)seq->tokens + batch.members[i].n_tokens + call->reserve_tokens >
            o->config.max_seq_tokens) {
            status = KVP_E_TOO_LONG;
            break;
        }
        g = measure(o, &batch.members[i], call->reserve_tokens);
        need += g.need;
        if (g.blocks > o->config.n_blocks - 1 && g.blocks - (o->config.n_blocks - 1) > excess)
            excess = g.blocks - (o->config.n_blocks - 1);
    }
    forget_counts(o);
    oracle_batch_free(&batch);
    if (status != KVP_OK)
        return status;
    admission->need_blocks = (uint32_t)need;
    admission->available = oracle_available(o);
    if (need <= admission->available)
        return KVP_OK;
    admission->verdict = excess ? KVP_ADMIT_NEVER : KVP_ADMIT_LATER;
    admission->missing_blocks = (uint32_t)(excess ? excess : need - admission->available);
    return KVP_OK;
}

/* Values of tokens become units, units become nodes; what is computed is sealed. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

uint32_t oracle_public_units(const oracle *o, const oracle_seq *seq)
{
    uint32_t n = 0;

    while (!seq->flushed && n < seq->n_chain && !o->nodes[seq->chain[n]].is_private &&
           (uint64_t)(n + 1) * o->unit <= seq->private_from)
        n++;
    return n;
}

uint32_t oracle_kept_tokens(const oracle *o, const oracle_seq *seq)
{
    return seq->n_chain * o->unit + (seq->unkept ? 0 : seq->n_tail);
}

/* The next unit of the chain: may others match it? */
bool oracle_is_public(const oracle *o, const oracle_seq *seq, uint32_t unit_idx,
                      const int32_t *tokens)
{
    if (!o->config.prefix_cache || seq->flushed ||
        (uint64_t)(unit_idx + 1) * o->unit > seq->uncached_from ||
        (uint64_t)(unit_idx + 1) * o->unit > seq->private_from)
        return false;
    for (uint32_t i = 0; i < o->unit; i++) {
        for (uint32_t k = 0; k < o->config.n_uncached_tokens; k++)
            if (tokens[i] == o->config.uncached_tokens[k])
                return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- keys */

/* Are these keys ascending, inside [begin, end), well formed, and not too many in any unit, the
 * keys counted that the tail unit has already? */
bool oracle_keys_valid(const oracle *o, const kvp_call *call, uint32_t begin, uint32_t end,
                       const oracle_keys *tail, uint32_t tail_unit)
{
    for (uint32_t i = 0; i < call->n_keys; i++) {
        const kvp_key *key = &call->keys[i];

        if (key->begin < begin || key->end > end || key->begin >= key->end ||
            key->n_bytes > KVP_KEY_MAX_BYTES || (key->n_bytes && !key->bytes) ||
            (i && key->begin < call->keys[i - 1].begin))
            return false;
    }
    for (uint32_t i = 0; i < call->n_keys; i++) {
        /* The fullest unit is one in which some key begins or that one reaches from before. */
        uint32_t first = call->keys[i].begin / o->unit, last = (call->keys[i].end - 1) / o->unit;

        for (uint32_t unit = first; unit <= last; unit++) {
            uint64_t from = (uint64_t)unit * o->unit, n = 0;

            for (uint32_t k = 0; k < call->n_keys; k++)
                n += call->keys[k].begin < from + o->unit && call->keys[k].end > from;
            if (tail && unit == tail_unit)
                n += tail->n;
            if (n > o->config.max_unit_keys)
                return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- nodes */

void oracle_chain_push(oracle *o, oracle_seq *seq, uint32_t node)
{
    seq->chain =
        oracle_grow(seq->chain, &seq->chain_capacity, seq->n_chain + 1u, sizeof *seq->chain);
    seq->chain[seq->n_chain++] = node;
    o->nodes[node].users++;
}

/* The tail is full: it becomes a node, public or private; or is not kept. */
static void unit_full(oracle *o, oracle_seq *seq, uint32_t public_units)
{
    uint32_t i = seq->n_chain;
    uint32_t parent = i ? seq->chain[i - 1] : seq->root;
    bool is_public = public_units == i && oracle_is_public(o, seq, i, seq->tail);
    uint32_t node = ORACLE_NONE;
    kvp_hash hash;

    memset(&hash, 0, sizeof hash);
    if (is_public) {
        oracle_unit_hash(o, parent, seq->tail, &seq->tail_keys, &hash);
        node = oracle_node_find(o, parent, seq->tail, &seq->tail_keys);
    }
    if (node == ORACLE_NONE) {
        if (o->nodes_used >= o->node_limit)
            oracle_free_node(o);
        node = oracle_node_make(o, parent, seq->tail, &seq->tail_keys, &hash);
        if (node != ORACLE_NONE)
            o->nodes[node].is_private = !is_public;
        if (node != ORACLE_NONE && is_public)
            seq->parted = oracle_lower(seq->parted, i * o->unit);
    }
    seq->n_tail = 0;
    seq->tail_keys.n = 0;
    if (node == ORACLE_NONE) {
        seq->unkept = true;
        o->stats.unkept_units++;
        return;
    }
    o->stats.private_units += !is_public;
    oracle_chain_push(o, seq, node);
}

/* The keys of the call that touch the unit at `begin`, and lie in what is added now. */
static void add_keys(oracle *o, oracle_seq *seq, const kvp_call *call, uint32_t begin)
{
    for (uint32_t i = 0; i < call->n_keys; i++)
        if (call->keys[i].begin < begin + o->unit && call->keys[i].end > begin)
            oracle_keys_put(&seq->tail_keys, UINT32_MAX, &call->keys[i], begin);
}

/* Append values after the known ones. Keys and hashes, if any, are the call's. */
void oracle_values_add(oracle *o, oracle_seq *seq, const kvp_call *call, const int32_t *tokens,
                       uint32_t n_tokens)
{
    uint32_t public_units = oracle_public_units(o, seq);

    if (n_tokens && !seq->unkept)
        add_keys(o, seq, call, seq->n_chain * o->unit);
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint32_t unit = seq->known / o->unit;

        seq->known++;
        if (seq->unkept) {
            o->stats.unkept_units += seq->known % o->unit == 0;
            continue;
        }
        seq->tail[seq->n_tail++] = tokens[i];
        if (seq->n_tail < o->unit)
            continue;
        unit_full(o, seq, public_units);
        public_units += public_units + 1 == seq->n_chain && !seq->unkept &&
                        !o->nodes[seq->chain[unit]].is_private;
        if (i + 1 < n_tokens && !seq->unkept)
            add_keys(o, seq, call, seq->known);
    }
}

/* ----------------------------------------------------------------------------------------- seal */

/* Units of the sequence that are known, kept and computed. */
uint32_t oracle_settled_units(const oracle *o, const oracle_seq *seq)
{
    uint32_t tokens = seq->computed < seq->known ? seq->computed : seq->known;
    uint32_t units = tokens / o->unit;

    return units < seq->n_chain ? units : seq->n_chain;
}

static void adopt(oracle *o, oracle_seq *seq, uint32_t group, uint32_t block_idx, int32_t theirs)
{
    int32_t ours = seq->rows[group][block_idx];

    oracle_hold(o, theirs);
    seq->rows[group][block_idx] = theirs;
    seq->row_changed = true;
    oracle_leave(o, seq, ours, NULL);
    o->stats.adopted_blocks++;
}

/* One unit, in one group. A block that was dropped has nothing to be sealed. */
static void seal_unit(oracle *o, oracle_seq *seq, uint32_t group, uint32_t unit)
{
    uint32_t block_idx = unit / oracle_units(o, group);
    bool last = (unit + 1) % oracle_units(o, group) == 0;
    bool keep = o->config.commit_policy == KVP_KEEP;
    int32_t ours = seq->rows[group][block_idx];
    int32_t theirs = o->nodes[seq->chain[unit]].at[group][KVP_DEVICE].block;

    o->marks.fill_dropped += !ours;
    if (!ours)
        return;
    if (o->blocks[ours].filled_by && (keep || !last || !theirs)) {
        oracle_node_await(o, seq->chain[unit], ours);
    } else if (!theirs) {
        oracle_node_attach(o, seq->chain[unit], ours);
        o->stats.sealed_units++;
    } else if (keep || !last) {
        oracle_node_duplicate(o, seq->chain[unit], ours);
        o->stats.duplicate_blocks += last;
    } else {
        adopt(o, seq, group, block_idx, theirs);
    }
}

void oracle_seal(oracle *o, oracle_seq *seq, uint32_t from_unit)
{
    uint32_t end = oracle_settled_units(o, seq), public_units = oracle_public_units(o, seq);

    for (uint32_t i = from_unit; i < end && i < public_units; i++)
        for (uint32_t k = 0; k < o->config.n_groups; k++)
            seal_unit(o, seq, k, i);
}

/* ----------------------------------------------------------------------------------------- fill */

static kvp_status fill_status(const oracle *o, const kvp_call *call, const oracle_member *member,
                              uint32_t n_seqs)
{
    const oracle_seq *seq = &o->seqs[member->place];
    uint32_t unit = seq->known / o->unit;

    for (uint32_t i = 0; i < member->n_tokens; i++)
        if (call->tokens[member->first_token + i] < 0)
            return KVP_E_ARG;
    if (n_seqs == 1 && call->n_keys) {
        uint64_t end = (uint64_t)seq->known + member->n_tokens;

        if (!oracle_keys_valid(o, call, seq->known, end > UINT32_MAX ? UINT32_MAX : (uint32_t)end,
                               &seq->tail_keys, unit))
            return KVP_E_ARG;
    }
    return oracle_is_out(seq) || member->n_tokens > seq->tokens - seq->known ? KVP_E_STATE : KVP_OK;
}

static void fill_member(oracle *o, const kvp_call *call, const oracle_member *member)
{
    oracle_seq *seq = &o->seqs[member->place];
    uint32_t from = oracle_settled_units(o, seq);

    oracle_values_add(o, seq, call, call->tokens ? call->tokens + member->first_token : NULL,
                      member->n_tokens);
    oracle_seal(o, seq, from);
}

kvp_status oracle_fill(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, true, &batch);

    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK && !batch.each; i++) {
        status = fill_status(o, call, &batch.members[i], batch.n);
        if (status != KVP_OK)
            oracle_fail(o, status, i, 0);
    }
    if (status == KVP_OK) {
        oracle_begin_change(o);
        out->n = batch.each ? batch.n : 0;
        out->i32 = batch.each ? oracle_out_i32(o, batch.n) : NULL;
    }
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        kvp_status one = KVP_OK;

        if (batch.each) {
            one = batch.members[i].place == ORACLE_NONE
                      ? KVP_E_HANDLE
                      : fill_status(o, call, &batch.members[i], batch.n);
            o->i32[i] = one;
        }
        if (one == KVP_OK)
            fill_member(o, call, &batch.members[i]);
        else
            oracle_fail(o, one, i, 0);
    }
    oracle_batch_free(&batch);
    return status;
}

/* --------------------------------------------------------------------------------------- commit */

kvp_status oracle_commit_status(const oracle *o, const oracle_seq *seq, uint32_t n_tokens)
{
    if (n_tokens > seq->tokens)
        return KVP_E_ARG;
    if (oracle_is_out(seq) || (n_tokens > seq->computed && n_tokens > seq->writable))
        return KVP_E_STATE;
    return n_tokens > seq->computed && oracle_lacks_at(o, seq, UINT32_MAX, n_tokens) ? KVP_E_DROPPED
                                                                                     : KVP_OK;
}

void oracle_commit_seq(oracle *o, oracle_seq *seq, uint32_t n_tokens)
{
    uint32_t from = oracle_settled_units(o, seq);

    if (n_tokens <= seq->computed)
        return;
    o->marks.commit_received += oracle_lacks(o, seq);
    seq->computed = n_tokens;
    oracle_seal(o, seq, from);
    oracle_state_commit(o, seq);
    o->marks.dropped += oracle_windows_drop(o, seq, n_tokens, NULL);
}

kvp_status oracle_commit(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_batch batch;
    kvp_status status = oracle_batch_read(o, call, false, &batch);

    (void)out;
    if (status != KVP_OK)
        return oracle_fail(o, status, batch.fault, 0);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++) {
        status =
            oracle_commit_status(o, &o->seqs[batch.members[i].place], batch.members[i].n_tokens);
        if (status == KVP_OK)
            status = oracle_state_commit_status(o, &o->seqs[batch.members[i].place],
                                                batch.members[i].n_tokens);
        if (status != KVP_OK)
            oracle_fail(o, status, i, 0);
    }
    if (status == KVP_OK)
        oracle_begin_change(o);
    for (uint32_t i = 0; i < batch.n && status == KVP_OK; i++)
        oracle_commit_seq(o, &o->seqs[batch.members[i].place], batch.members[i].n_tokens);
    oracle_batch_free(&batch);
    return status;
}

/* Rings: what states.h says of the slots that a step over a chain of drafts leaves states in.
 *
 * A slot of a ring is known by the position of its token, modulo the most that are not computed.
 * The last token of all has none: its state goes to the slot to write.
 */
#include "oracle_parts.h"

static uint32_t *at(oracle_seq *seq, uint32_t position)
{
    return &seq->ring[position % KVP_STATE_RING_MAX];
}

uint32_t oracle_ring_slots(const oracle_seq *seq)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < KVP_STATE_RING_MAX; i++)
        n += seq->ring[i] != 0;
    return n;
}

bool oracle_ring_asked(const oracle *o, const kvp_call *call)
{
    return oracle_has_states(o) &&
           (call->flags == KVP_BATCH_RING || call->flags == KVP_BATCH_RING_NEW) &&
           (call->op == KVP_CALL_EXTEND_MANY || call->op == KVP_CALL_CAN_EXTEND);
}

bool oracle_ring_member(oracle *o, const kvp_call *call, const oracle_member *member)
{
    const oracle_seq *seq = &o->seqs[member->place];

    if (!oracle_ring_asked(o, call))
        return false;
    if (call->flags == KVP_BATCH_RING || member->n_tokens)
        return true;
    o->marks.ring_none += seq->tokens > seq->computed + 1;
    return false;
}

/* May the sequence have a ring, with n tokens more? Not behind what steps that are out commit. */
kvp_status oracle_ring_status(oracle *o, const oracle_seq *seq, uint32_t n_tokens)
{
    if (seq->tokens - seq->computed + n_tokens > KVP_STATE_RING_MAX)
        return KVP_E_TOO_LONG;
    o->marks.ring_behind += seq->n_ahead > 0;
    return seq->n_ahead ? KVP_E_STATE : KVP_OK;
}

/* Tokens that would have no slot of their own, once there are n more; the last one needs none. */
uint32_t oracle_ring_need(const oracle_seq *seq, uint32_t n_tokens)
{
    uint32_t n = 0;

    for (uint32_t p = seq->computed; p + 1 < seq->tokens + n_tokens; p++)
        n += !seq->ring[p % KVP_STATE_RING_MAX];
    return n;
}

void oracle_ring_grow(oracle *o, oracle_seq *seq)
{
    o->marks.ring_more += oracle_ring_slots(seq) && oracle_ring_need(seq, 0);
    o->marks.ring_out += o->n_steps > 0;
    for (uint32_t p = seq->computed; p + 1 < seq->tokens; p++) {
        if (*at(seq, p))
            continue;
        o->marks.ring_taken++;
        *at(seq, p) = oracle_slot_take(o, seq);
    }
    seq->ring_from = seq->computed;
}

/* Let go of the ring from a token on. */
static void release_from(oracle *o, oracle_seq *seq, uint32_t first)
{
    for (uint32_t p = first; p < seq->ring_from + KVP_STATE_RING_MAX; p++) {
        oracle_slot_release(o, *at(seq, p));
        *at(seq, p) = 0;
    }
}

void oracle_ring_drop(oracle *o, oracle_seq *seq)
{
    o->marks.ring_dropped += oracle_ring_slots(seq) > 0;
    o->marks.ring_parked += oracle_ring_slots(seq) && o->n_steps;
    release_from(o, seq, seq->ring_from);
}

/* The state after the first n tokens is what the sequence will go on with. */
void oracle_ring_keep(oracle *o, oracle_seq *seq, uint32_t n)
{
    uint32_t slot;

    if (!oracle_ring_slots(seq))
        return;
    if (n <= seq->ring_from) {
        oracle_ring_drop(o, seq);
        return;
    }
    if (n > seq->ring_from + KVP_STATE_RING_MAX || !*at(seq, n - 1)) {
        o->marks.ring_all += n == seq->tokens;
        return;
    }
    o->marks.ring_kept++;
    o->marks.ring_over += seq->write_slot == seq->read_slot;
    slot = *at(seq, n - 1);
    *at(seq, n - 1) = 0;
    release_from(o, seq, n);
    if (seq->write_slot != seq->read_slot)
        oracle_slot_release(o, seq->write_slot);
    seq->write_slot = slot;
}

/* More of its tokens are computed. */
void oracle_ring_commit(oracle *o, oracle_seq *seq)
{
    o->marks.ring_late += oracle_ring_slots(seq) && o->n_steps;
    oracle_ring_keep(o, seq, seq->computed);
    oracle_ring_drop(o, seq);
}

/* Recurrent state with overlapped steps: what steps that are out leave behind for a sequence. */
#include "oracle_parts.h"

#include <string.h>

/* A commit that no step makes: not while steps are to commit more of the sequence. */
kvp_status oracle_state_commit_status(const oracle *o, const oracle_seq *seq, uint32_t n)
{
    return oracle_has_states(o) && n > seq->computed && (seq->n_ahead || !seq->write_slot)
               ? KVP_E_STATE
               : KVP_OK;
}

/* May a step that is out be told to commit so much? The state of what it computes is in the slot to
 * write, and no later step may have been told before. With a ring it is not known yet which of its
 * tokens are accepted. */
kvp_status oracle_ahead_status(oracle *o, const oracle_seq *seq, uint64_t step, uint32_t n)
{
    uint32_t end = seq->computed;
    bool told = false;

    for (uint32_t i = 0; i < seq->n_ahead && seq->ahead[i].step <= step; i++) {
        end = seq->ahead[i].n_tokens;
        told = seq->ahead[i].step == step;
    }
    if (!oracle_has_states(o) || n <= end)
        return KVP_OK;
    o->marks.ring_declared += oracle_ring_slots(seq) > 0;
    if (oracle_ring_slots(seq))
        return KVP_E_STATE;
    if (seq->n_ahead && seq->ahead[seq->n_ahead - 1].step > step)
        return KVP_E_STATE;
    return told || seq->write_slot ? KVP_OK : KVP_E_STATE;
}

void oracle_ahead_add(oracle *o, oracle_seq *seq, uint64_t step, uint32_t n)
{
    oracle_ahead *last = seq->n_ahead ? &seq->ahead[seq->n_ahead - 1] : NULL;

    if (!oracle_has_states(o) || n <= (last ? last->n_tokens : seq->computed))
        return;
    if (last && last->step == step) {
        last->n_tokens = n;
        return;
    }
    seq->ahead[seq->n_ahead++] = (oracle_ahead){step, n, seq->write_slot};
    seq->write_slot = 0;
    o->marks.state_ahead++;
    o->marks.state_two_ahead += seq->n_ahead > 1;
}

/* The slot with the state after the computed tokens: of the step that takes effect, or else the one
 * that was written. */
uint32_t oracle_ahead_take(oracle_seq *seq)
{
    uint32_t slot = seq->write_slot;

    if (!seq->n_ahead || seq->ahead[0].n_tokens != seq->computed) {
        seq->write_slot = 0;
        return slot;
    }
    slot = seq->ahead[0].slot;
    seq->n_ahead--;
    memmove(seq->ahead, seq->ahead + 1, seq->n_ahead * sizeof *seq->ahead);
    return slot;
}

/* The last of them is of no use. */
void oracle_ahead_drop(oracle *o, oracle_seq *seq)
{
    oracle_slot_release(o, seq->ahead[--seq->n_ahead].slot);
}

/* The step failed, and what it was to commit is not there: nor is what rests on that. */
void oracle_ahead_fail(oracle *o, oracle_seq *seq, uint64_t step)
{
    while (seq->n_ahead && seq->ahead[seq->n_ahead - 1].step >= step) {
        o->marks.state_ahead_fails++;
        oracle_ahead_drop(o, seq);
    }
    o->marks.state_ahead_stays += seq->n_ahead > 0;
}

/* Would a sequence of n tokens, more than are computed, have a state after them? It has if no step
 * that is out goes further, or if one ends there. */
bool oracle_ahead_between(const oracle_seq *seq, uint32_t n)
{
    for (uint32_t i = 0; i < seq->n_ahead; i++)
        if (seq->ahead[i].n_tokens >= n)
            return seq->ahead[i].n_tokens > n;
    return false;
}

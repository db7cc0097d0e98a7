/* Calls on recurrent state: steps that end at units, and places that have a checkpoint. */
#include "generate_parts.h"
#include "oracle_parts.h"

void generate_state_weights(generator *g)
{
    uint32_t states = g->o->config.state_slots > 0;

    g->weights[KVP_CALL_CHECKPOINT] = states ? 1200 : 3;
    g->weights[KVP_CALL_STATE_GET] = states ? 100 : 3;
    g->weights[KVP_CALL_STATE_STATS] = states ? 30 : 3;
    if (states)
        g->weights[KVP_CALL_CAN_OPEN] *= 4; /* hits for which there is no room are rare */
    if (!states || !oracle_overlapped(g->o))
        return;
    g->weights[KVP_CALL_CHECKPOINT] = 300;
    g->weights[KVP_CALL_STEP_COMMIT] *= 3;
    g->weights[KVP_CALL_TRUNCATE] *= 2;
    g->weights[KVP_CALL_CLOSE] /= 2;
    if (g->o->config.host_blocks && chance(g, 60)) { /* states arrive, and steps fail */
        g->weights[KVP_CALL_STEP_FAILED] = g->weights[KVP_CALL_STEP_DONE];
        g->weights[KVP_CALL_SWAP_OUT] = 900;
        g->weights[KVP_CALL_SWAP_IN] = 1500;
        g->weights[KVP_CALL_CHECKPOINT] = 900;
        g->weights[KVP_CALL_FORK] *= 3;
    } else if (chance(g, 40)) { /* steps with copies fail */
        g->weights[KVP_CALL_STEP_FAILED] = g->weights[KVP_CALL_STEP_DONE];
        g->weights[KVP_CALL_FORK] *= 5;
        g->weights[KVP_CALL_PLAN_TAKE] = g->weights[KVP_CALL_CHECKPOINT] = 30;
    } else if (chance(g, 50)) { /* checkpoints are parked, hit and lost */
        g->weights[KVP_CALL_CHECKPOINT] = 1500;
        g->weights[KVP_CALL_CLOSE] *= 3;
        g->weights[KVP_CALL_INVALIDATE] *= 3;
    }
    if (chance(g, 30)) { /* chains of drafts: a step of each sequence is out, at most */
        g->weights[KVP_CALL_EXTEND_MANY] *= 8;
        g->weights[KVP_CALL_COMMIT] *= 8;
        g->weights[KVP_CALL_STEP_COMMIT] /= 4;
    } else if (chance(g, 70)) { /* several steps of a sequence are out */
        g->weights[KVP_CALL_COMMIT] = g->weights[KVP_CALL_COMMIT_MANY] = 5;
        g->weights[KVP_CALL_EXTEND] *= 2;
        g->weights[KVP_CALL_STEP_DONE] /= 2;
    }
}

/* The step that a scheduler would say something of: the newest, mostly; 0: any. */
uint64_t generate_state_step(generator *g)
{
    const oracle *o = g->o;

    return o->config.state_slots && o->n_steps && chance(g, 70) ? o->steps[o->n_steps - 1].number
                                                                : 0;
}

/* The step with a copy that is to bring a state; 0: none. */
uint64_t generate_arrival(const generator *g)
{
    for (uint32_t i = 0; i < g->o->n_copies; i++)
        if (oracle_copies_state(&g->o->copies[i]) && g->o->copies[i].step)
            return g->o->copies[i].step;
    return 0;
}

/* A sequence with the same tokens as one whose state is on its way, and a state of its own. */
static const oracle_seq *pick_twin(const generator *g)
{
    const oracle *o = g->o;

    for (uint32_t i = 0; i < o->config.max_seqs * o->config.max_seqs; i++) {
        const oracle_seq *seq = &o->seqs[i / o->config.max_seqs];
        const oracle_seq *twin = &o->seqs[i % o->config.max_seqs];

        if (seq->open && twin->open && seq->tier == KVP_DEVICE && twin->tier == KVP_DEVICE &&
            o->slots[seq->read_slot].filled_by && twin->read_slot &&
            !o->slots[twin->read_slot].filled_by && seq->computed == twin->computed &&
            seq->computed >= o->unit && seq->n_chain &&
            seq->computed / o->unit <= oracle_lower(seq->n_chain, twin->n_chain) &&
            seq->chain[seq->computed / o->unit - 1] == twin->chain[seq->computed / o->unit - 1])
            return twin;
    }
    return NULL;
}

bool generate_has_twin(const generator *g)
{
    return oracle_has_states(g->o) && oracle_overlapped(g->o) && pick_twin(g);
}

/* Makes the batch one with rings, or not. Of its sequences those are left that have not too many
 * tokens to compute, mostly. */
bool generate_rings(generator *g, kvp_call *call, const oracle_seq **members, uint32_t *n)
{
    uint32_t left = 0;

    if (!g->o->config.state_slots || call->op == KVP_CALL_FILL_MANY || chance(g, 50))
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        if (members[i] && !rarely(g) &&
            (members[i]->tokens - members[i]->computed > 11 ||
             (members[i]->n_ahead && chance(g, 40))))
            continue;
        g->handles[left] = call->handles[i];
        members[left++] = members[i];
    }
    call->n_seqs = *n = left;
    call->flags = (call->flags && rarely(g) ? call->flags : 0) |
                  (chance(g, 70) ? KVP_BATCH_RING : KVP_BATCH_RING_NEW);
    return true;
}

/* A token of a step with a ring. */
static uint32_t ring_place(generator *g, const oracle_seq *seq)
{
    return seq->computed + 1 + below(g, seq->tokens - seq->computed);
}

/* Where a step ends: at a unit, often at one that open has named. */
uint32_t generate_step_end(generator *g, const oracle_seq *seq, uint32_t position)
{
    uint32_t named = chance(g, 50) ? seq->branch_end : seq->prompt_end, unit = g->o->unit;

    if (oracle_ring_slots(seq) && chance(g, 60))
        return ring_place(g, seq);
    if (!g->o->config.state_slots || chance(g, 30))
        return position;
    if (named > seq->computed && named <= seq->tokens && chance(g, 60))
        return named;
    return position - position % unit > seq->computed ? position - position % unit : position;
}

/* A place that has a checkpoint, if one of a few has; or where a step leaves a state. */
uint32_t generate_kept_place(generator *g, const oracle_seq *seq, uint32_t position)
{
    if (oracle_ring_slots(seq) && chance(g, 50))
        return ring_place(g, seq);
    if (seq->n_ahead && chance(g, 50))
        return seq->ahead[below(g, seq->n_ahead)].n_tokens;
    if (!g->o->config.state_slots || !seq->n_chain || chance(g, 40))
        return position;
    if (g->o->config.host_blocks && oracle_overlapped(g->o) && chance(g, 50))
        return seq->computed; /* two of which one may leave the device */
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t unit = below(g, seq->n_chain);

        if (oracle_checkpoint(g->o, seq->chain[unit]))
            return (unit + 1) * g->o->unit;
    }
    return position;
}

/* A sequence that can have its state kept. */
void generate_checkpoint(generator *g, kvp_call *call)
{
    const oracle_seq *twin = oracle_has_states(g->o) && chance(g, 50) ? pick_twin(g) : NULL;

    if (twin) {
        call->handle = twin->handle;
        return;
    }
    for (uint32_t i = 0; i < 6; i++) {
        const oracle_seq *seq = generate_seq(g, call);

        if (seq && seq->computed && seq->computed % g->o->unit == 0 &&
            (seq->tokens == seq->computed || chance(g, 30)))
            return;
    }
}

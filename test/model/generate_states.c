/* Calls on recurrent state: steps that end at units, and places that have a checkpoint. */
#include "generate_parts.h"
#include "oracle_parts.h"

void generate_state_weights(generator *g)
{
    uint32_t states = g->o->config.state_slots > 0;

    g->weights[KVP_CALL_CHECKPOINT] = states ? 1200 : 3;
    g->weights[KVP_CALL_STATE_GET] = states ? 100 : 3;
    g->weights[KVP_CALL_STATE_STATS] = states ? 30 : 3;
}

/* Where a step ends: at a unit, often at one that open has named. */
uint32_t generate_step_end(generator *g, const oracle_seq *seq, uint32_t position)
{
    uint32_t named = chance(g, 50) ? seq->branch_end : seq->prompt_end, unit = g->o->unit;

    if (!g->o->config.state_slots || chance(g, 30))
        return position;
    if (named > seq->computed && named <= seq->tokens && chance(g, 60))
        return named;
    return position - position % unit > seq->computed ? position - position % unit : position;
}

/* A place that has a checkpoint, if one of a few has. */
uint32_t generate_kept_place(generator *g, const oracle_seq *seq, uint32_t position)
{
    if (!g->o->config.state_slots || !seq->n_chain || chance(g, 40))
        return position;
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
    for (uint32_t i = 0; i < 6; i++) {
        const oracle_seq *seq = generate_seq(g, call);

        if (seq && seq->computed && seq->computed % g->o->unit == 0 &&
            (seq->tokens == seq->computed || chance(g, 30)))
            return;
    }
}

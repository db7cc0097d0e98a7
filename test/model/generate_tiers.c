/* Calls of the host tier, of overlapped steps, of events. */
#include "generate_parts.h"
#include "oracle_parts.h"

#include <string.h>

static void weigh(generator *g, uint32_t op, uint32_t weight)
{
    weight *= 10;
    if (chance(g, 20))
        weight = chance(g, 50) ? weight / 4 + 1 : weight * 3;
    g->weights[op] = weight;
}

/* What the configuration cannot do is asked for now and then. */
void generate_tier_weights(generator *g)
{
    uint32_t host = g->o->config.host_blocks ? 1 : 0, overlapped = oracle_overlapped(g->o) ? 1 : 0;
    uint32_t events = g->o->config.max_events ? 1 : 0;

    weigh(g, KVP_CALL_SWAP_OUT, host ? 35 : 2);
    weigh(g, KVP_CALL_SWAP_IN, host ? 45 : 2);
    weigh(g, KVP_CALL_CAN_SWAP_OUT, host ? 12 : 1);
    weigh(g, KVP_CALL_CAN_SWAP_IN, host ? 15 : 1);
    weigh(g, KVP_CALL_STEP_BEGIN, overlapped ? 70 : 1);
    weigh(g, KVP_CALL_STEP_COMMIT, overlapped ? 80 : 1);
    weigh(g, KVP_CALL_STEP_DONE, overlapped ? 70 : 1);
    weigh(g, KVP_CALL_STEP_FAILED, overlapped ? (chance(g, 25) ? 40 : 10) : 1);
    weigh(g, KVP_CALL_EVENTS_READ, events ? 8 : 1);
    weigh(g, KVP_CALL_EVENTS_SNAPSHOT, events ? 5 : 1);
    if (host && chance(g, 30)) { /* beams, moved together */
        g->beams = true;
        weigh(g, KVP_CALL_OPEN, 50);
        weigh(g, KVP_CALL_CLOSE, 40);
        weigh(g, KVP_CALL_FORK, 250);
        weigh(g, KVP_CALL_COMMIT, 200);
        weigh(g, KVP_CALL_SWAP_OUT, 60);
        weigh(g, KVP_CALL_SWAP_IN, 90);
    }
    if (!overlapped)
        return;
    weigh(g, KVP_CALL_PLAN_TAKE, 1);
    weigh(g, KVP_CALL_COMMIT, 50);
    weigh(g, KVP_CALL_COMMIT_MANY, 15);
    if (chance(g, 25)) /* hardly a commit but by steps */
        g->weights[KVP_CALL_COMMIT] = g->weights[KVP_CALL_COMMIT_MANY] = 5;
}

/* A step whose commits were dropped as an earlier one failed; 0: none. */
static uint64_t dropped_step(const generator *g)
{
    for (uint32_t i = 0; i < g->o->n_commitments; i++)
        if (g->o->commitments[i].dropped)
            return g->o->commitments[i].step;
    return 0;
}

/* Another call, when there is nothing that this one could be made for. */
uint32_t generate_instead(generator *g, uint32_t op)
{
    const oracle *o = g->o;
    bool of_step =
        op == KVP_CALL_STEP_COMMIT || op == KVP_CALL_STEP_DONE || op == KVP_CALL_STEP_FAILED;
    uint32_t swapped = 0;

    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        swapped += o->seqs[i].open && o->seqs[i].tier == KVP_HOST;
    if (of_step && oracle_overlapped(o) && !o->n_steps && chance(g, 90))
        return KVP_CALL_STEP_BEGIN;
    if (op == KVP_CALL_STEP_BEGIN && o->n_steps == o->config.max_steps_out && chance(g, 85))
        return KVP_CALL_STEP_DONE;
    if (op == KVP_CALL_STEP_DONE && dropped_step(g) && chance(g, 80))
        return KVP_CALL_STEP_FAILED;
    if (op == KVP_CALL_SWAP_IN && !swapped && o->config.host_blocks && chance(g, 90))
        return KVP_CALL_SWAP_OUT;
    if (generate_has_twin(g) && chance(g, 15))
        return KVP_CALL_CHECKPOINT;
    if (generate_arrival(g) && chance(g, 10))
        return KVP_CALL_STEP_FAILED;
    /* Rather back than gone. */
    if (op == KVP_CALL_CLOSE && 2 * swapped > o->open_seqs && chance(g, 60))
        return KVP_CALL_SWAP_IN;
    return op;
}

/* ---------------------------------------------------------------------------------------- swaps */

static bool shares_blocks(const oracle_seq *a, const oracle_seq *b)
{
    return a->tier == b->tier && a->n_row[0] && b->n_row[0] && a->rows[0][0] == b->rows[0][0];
}

/* An open sequence of this tier, if a few tries find one. */
static const oracle_seq *pick_on(generator *g, uint32_t tier)
{
    const oracle_seq *seq = generate_open_seq(g);

    for (uint32_t i = 0; seq && seq->tier != tier && i < 12; i++)
        seq = generate_open_seq(g);
    return seq;
}

/* One sequence, or with those that share its blocks, or with some others. */
static uint32_t pick_group(generator *g, uint32_t tier, const oracle_seq **members)
{
    const oracle_seq *first = pick_on(g, tier);
    uint32_t n = 0, kind = g->beams ? 80 : below(g, 100), max = g->o->config.max_seqs;
    uint32_t start = below(g, max);

    if (!first)
        return 0;
    members[n++] = first;
    for (uint32_t i = 0; i < max && n < GENERATE_MEMBERS - 2 && kind >= 40; i++) {
        const oracle_seq *seq = &g->o->seqs[(start + i) % max];
        bool fits = kind < 85 ? seq->open && shares_blocks(seq, first) : seq->tier == tier;

        if (seq->open && seq != first && fits && chance(g, kind < 85 ? 80 : 40))
            members[n++] = seq;
    }
    if (n > 1 && chance(g, 50)) {
        members[0] = members[n - 1];
        members[n - 1] = first;
    }
    return n;
}

void generate_swap(generator *g, kvp_call *call)
{
    bool in = call->op == KVP_CALL_SWAP_IN || call->op == KVP_CALL_CAN_SWAP_IN;
    uint32_t tier = in ? KVP_HOST : KVP_DEVICE, n;
    const oracle_seq *members[GENERATE_MEMBERS];

    n = pick_group(g, rarely(g) ? 1 - tier : tier, members);
    if (rarely(g))
        n = 0;
    if (n && rarely(g))
        members[n++] = generate_open_seq(g); /* of any tier, and maybe one that is there */
    for (uint32_t i = 0; i < n; i++)
        g->handles[i] = members[i]->handle;
    if (rarely(g))
        g->handles[n++] = generate_bad_handle(g);
    call->handles = g->handles;
    call->n_seqs = n;
    if (!in || chance(g, 40))
        return;
    call->reserve_tokens = chance(g, 60) ? 1 : up_to(g, 2 * (uint64_t)g->o->config.block_tokens);
    if (rarely(g))
        call->reserve_tokens = UINT32_MAX - below(g, 3);
}

/* ---------------------------------------------------------------------------------------- steps */

/* The oldest step, the newest, any; or one that is not. */
static uint64_t pick_step(generator *g)
{
    const oracle *o = g->o;
    uint32_t kind = below(g, 100);

    if (!o->n_steps || kind < 3)
        return o->step_number + below(g, 3) - 1;
    if (kind < 45)
        return o->steps[0].number;
    if (kind < 65)
        return o->steps[o->n_steps - 1].number;
    return o->steps[below(g, o->n_steps)].number;
}

/* As a scheduler would: one that is not reported yet. */
static uint64_t pick_unreported(generator *g)
{
    uint64_t number = pick_step(g);

    for (uint32_t tries = 0; tries < 4; tries++) {
        for (uint32_t i = 0; i < g->o->n_steps; i++)
            if (g->o->steps[i].number == number && !g->o->steps[i].reported)
                return number;
        number = pick_step(g);
    }
    return number;
}

static void make_step_commit(generator *g, kvp_call *call)
{
    const oracle_seq *members[GENERATE_MEMBERS];
    uint32_t n = generate_members(g, call, members);

    call->flags = 0;
    call->number = generate_state_step(g);
    call->number = call->number ? call->number : pick_step(g);
    call->counts = g->counts;
    for (uint32_t i = 0; i < n; i++)
        g->counts[i] = rarely(g) ? 0 : generate_commit(g, members[i]);
}

void generate_step(generator *g, kvp_call *call)
{
    uint32_t max = g->o->config.max_seqs;

    switch (call->op) {
    case KVP_CALL_STEP_BEGIN:
        call->count = chance(g, 92) ? g->o->config.max_copies : below(g, 3);
        break;
    case KVP_CALL_STEP_COMMIT: make_step_commit(g, call); break;
    case KVP_CALL_STEP_DONE: call->number = pick_unreported(g); break;
    default:
        call->number = chance(g, 80) ? dropped_step(g) : 0;
        if (!call->number && chance(g, 50))
            call->number = generate_arrival(g);
        call->number = call->number ? call->number : pick_unreported(g);
        call->no_report = chance(g, 15);
        if (!call->no_report)
            call->count = chance(g, 90) ? max : below(g, 2);
        break;
    }
}

/* --------------------------------------------------------------------------------------- events */

void generate_events(generator *g, kvp_call *call)
{
    uint64_t newest = g->o->newest_event, most = g->o->config.max_events;
    uint64_t oldest = newest > most ? newest - most : 0;

    call->with_tokens = chance(g, 60);
    call->count = chance(g, 50) ? 4096 : below(g, 8);
    if (call->op == KVP_CALL_EVENTS_SNAPSHOT)
        return;
    /* From what is too old to what is too new, the edges preferred. */
    switch (below(g, 6)) {
    case 0: call->number = oldest + below(g, 3); break;
    case 1: call->number = newest + below(g, 3); break;
    case 2: call->number = below(g, newest + 2); break;
    default: call->number = oldest + 1 + below(g, newest - oldest + 1); break;
    }
}

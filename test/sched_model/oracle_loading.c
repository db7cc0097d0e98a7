/* The oracle's books of requests that are held while a store loads their prefix. See oracle.h. */
#include "oracle.h"

/* The first in rank after `last` (NULL: of all) that waits, or that is held. */
static request *next_one(oracle *o, const request *last, int held)
{
    request *best = NULL;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        if (r->is_here && r->where == NOWHERE && !r->is_paused && r->is_held == held &&
            (last == NULL || oracle_before(last, r)) && (best == NULL || oracle_before(r, best)))
            best = r;
    }
    return best;
}

static uint32_t count_held(oracle *o)
{
    uint32_t n = 0;
    for (const request *r = next_one(o, NULL, 1); r != NULL; r = next_one(o, r, 1))
        n++;
    return n;
}

static int is_open_question(const oracle *o, const request *r)
{
    return o->config.max_loading > 0 && r->where == NOWHERE && !r->is_paused && !r->is_held &&
           r->may_load;
}

uint32_t oracle_loadable(oracle *o, uint32_t n_first, kvp_request *out)
{
    uint32_t n = 0;
    const request *r = next_one(o, NULL, 0);
    for (uint32_t i = 0; i < n_first && r != NULL; i++, r = next_one(o, r, 0))
        if (is_open_question(o, r))
            out[n++] = r->handle;
    return n;
}

kvp_status oracle_hold(oracle *o, request *r, uint64_t deadline)
{
    if (!is_open_question(o, r))
        return KVP_E_STATE;
    if (count_held(o) == o->config.max_loading) {
        o->met[MET_HELD_FULL]++;
        return KVP_E_AGAIN;
    }
    o->met[MET_HELD]++;
    o->met[MET_HELD_AGAIN] += r->preemptions > 0;
    o->n_held++;
    r->may_load = 0;
    r->is_held = 1;
    r->held_until = deadline;
    if (r->load_deadline > 0 && r->load_deadline < deadline)
        r->held_until = r->load_deadline;
    return KVP_OK;
}

kvp_status oracle_skip_load(oracle *o, request *r)
{
    if (!is_open_question(o, r))
        return KVP_E_STATE;
    o->met[MET_SKIPPED]++;
    o->n_skipped++;
    r->may_load = 0;
    return KVP_OK;
}

kvp_status oracle_release(oracle *o, request *r)
{
    if (!r->is_held)
        return KVP_E_STATE;
    o->met[MET_RELEASED]++;
    o->n_released++;
    r->is_held = 0;
    return KVP_OK;
}

void oracle_tick(oracle *o, uint64_t now, kvp_request *out, kvp_sched_expired *out_expired)
{
    *out_expired = (kvp_sched_expired){.requests = out, .next_deadline = UINT64_MAX};
    for (request *r = next_one(o, NULL, 1); r != NULL; r = next_one(o, r, 1)) {
        if (r->held_until > now) {
            out_expired->n_loading++;
            if (r->held_until < out_expired->next_deadline)
                out_expired->next_deadline = r->held_until;
            continue;
        }
        o->met[MET_EXPIRED]++;
        o->met[MET_EXPIRED_EARLY] += r->held_until == r->load_deadline;
        o->n_expired++;
        r->is_held = 0;
        out[out_expired->n_requests++] = r->handle;
    }
}

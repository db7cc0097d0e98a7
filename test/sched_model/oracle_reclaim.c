/* The oracle of kvp_sched_reclaim: which blocks the next step is expected to take. See oracle.h. */
#include "oracle.h"

static uint32_t tokens_of(const request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++)
        if (!r->samples[i].has_ended)
            return r->samples[i].n;
    return 0;
}

/* Of sequences that the step that is out samples one token of, and that do not end with it. */
static uint64_t count_growing(const oracle *o)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < o->plan.n_items; i++) {
        const plan_item *item = &o->plan.items[i];
        if (item->request == GONE || item->n_sampled == 0)
            continue;
        const request *r = &o->requests[item->request];
        const sample *s = &r->samples[item->sample];
        if (r->where != ON_DEVICE || !r->takes_part || s->n + 1 >= r->prompt + r->max_new)
            continue;
        for (uint32_t g = 0; g < o->cache_config.n_groups; g++)
            n += (item->begin + item->n_tokens) % oracle_size(o, g) == 0;
    }
    return n;
}

/* The next in rank that waits for admission, or to be swapped in. */
static request *next_outside(oracle *o, const request *last, int where)
{
    request *best = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        if (r->is_here && r->where == where && !r->is_paused && !r->is_held &&
            (last == 0 || oracle_before(last, r)) && (best == 0 || oracle_before(r, best)))
            best = r;
    }
    return best;
}

static uint64_t count_expected(oracle *o, uint64_t available)
{
    uint64_t need = count_growing(o);
    uint32_t places = o->config.max_running;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &o->requests[i];
        if (r->is_here && r->where == ON_DEVICE)
            places -= oracle_live(r);
    }
    static const int order[] = {ON_HOST, NOWHERE};
    for (int i = 0; i < 2; i++) {
        for (const request *r = next_outside(o, 0, order[i]); r != 0;
             r = next_outside(o, r, order[i])) {
            const uint64_t n = oracle_blocks_of(o, tokens_of(r));
            if (need >= o->config.free_target)
                return need;
            if (oracle_live(r) > places || need + n > available)
                return need;
            places -= oracle_live(r);
            need += n;
        }
    }
    return need;
}

uint32_t oracle_reclaim(oracle *o, kvp_cache *copy)
{
    kvp_stats stats;
    uint64_t kept = o->watermark;
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        kept += o->requests[i].is_here ? o->requests[i].promised : 0;
    (void)kvp_cache_stats_get(copy, &stats);
    const uint64_t there = stats.free_blocks + stats.cached_blocks;
    const uint64_t need = count_expected(o, there > kept ? there - kept : 0);
    const uint64_t most = o->config.free_target;
    (void)kvp_cache_reclaim(copy, (uint32_t)(need < most ? need : most), &n);
    o->met[MET_RECLAIMED] += n > 0;
    o->met[MET_RECLAIMED_TWO] += n > 1;
    return n;
}

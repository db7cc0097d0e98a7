/* Which waiting requests the oracle keeps back because another one computes their prefix. See
 * oracle.h. */
#include "oracle.h"

static const sample *first_live(const request *r)
{
    const sample *s = r->samples;
    while (s->has_ended)
        s++;
    return s;
}

/* Hits are of whole units. */
static uint32_t grain_of(const oracle *o)
{
    return o->cache_config.unit_tokens;
}

/* In whole units; no more than what the other one computes now, and others may find. */
static uint32_t common_tokens(const oracle *o, const request *r, const request *other,
                              const sample *its)
{
    const sample *own = first_live(r);
    const uint32_t most = oracle_goal(o, r, own);
    const uint32_t its_goal = oracle_goal(o, other, its);
    kvp_seq_info info;
    uint32_t n = 0;
    if (kvp_seq_info_get(o->cache, its->seq, &info) != KVP_OK)
        return 0;
    while (n < most && n < its_goal && n < info.public_tokens && own->text[n] == its->text[n])
        n++;
    n = n / grain_of(o) * grain_of(o);
    return o->usable_slots > 0 ? oracle_last_kept(o, its, n, grain_of(o)) : n;
}

/* The sample whose sequence it is, while it runs. A request that was preempted by recompute has
 * another sequence when it runs again. */
static const sample *running_sample(const oracle *o, kvp_seq seq)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &o->requests[i];
        for (uint32_t j = 0; r->is_here && j < r->n_samples; j++)
            if (r->samples[j].seq.bits == seq.bits && r->where == ON_DEVICE && r->takes_part)
                return &r->samples[j];
    }
    return NULL;
}

/* The sample whose chunks come first after `last`. */
static const sample *next_under_way(oracle *o, uint64_t last, request **out_request)
{
    const sample *next = NULL;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
            const sample *s = &r->samples[j];
            if (s->under_way > last && (next == NULL || s->under_way < next->under_way)) {
                next = s;
                *out_request = r;
            }
        }
    }
    return next;
}

/* The first unit that a match lacks is one that the sample has yet to compute, and before `end`. */
static int match_ends_there(oracle *o, const request *r, const sample *its, uint32_t end)
{
    const sample *own = first_live(r);
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = own->text,
                               .n_tokens = oracle_goal(o, r, own),
                               .flags = r->flags};
    kvp_open_info info;
    if (kvp_cache_match(o->cache, r->ns, &prompt, &info) != KVP_OK || info.stop != KVP_STOP_NO_KV)
        return 0;
    if (o->usable_slots > 0)
        return info.hit_tokens < end;
    return info.hit_tokens + grain_of(o) <= end && info.hit_tokens + grain_of(o) > its->computed;
}

int oracle_keeps_back(oracle *o, request *r)
{
    const sample *leader = r->leader.bits == 0 ? NULL : running_sample(o, r->leader);
    request *other;
    if (!o->config.wait_for_prefix)
        return 0;
    if (leader != NULL && leader->under_way > 0 && leader->computed < r->follow_until) {
        o->met[MET_KEPT_BACK_AGAIN]++;
        return 1;
    }
    o->met[MET_LEADER_LOST] += r->leader.bits != 0 && leader == NULL;
    r->leader.bits = 0;
    uint64_t last = 0;
    for (const sample *s = next_under_way(o, 0, &other); s != NULL;
         s = next_under_way(o, last, &other)) {
        last = s->under_way;
        const uint32_t end = common_tokens(o, r, other, s);
        if (r->ns.bits != other->ns.bits || s->computed >= end || !match_ends_there(o, r, s, end)) {
            o->met[MET_STATE_NOT_FOLLOWED] += o->usable_slots > 0 && s->computed < end;
            continue;
        }
        r->leader = s->seq;
        r->follow_until = end;
        o->n_followed++;
        o->met[MET_KEPT_BACK]++;
        o->met[MET_STATE_FOLLOWED] += o->usable_slots > 0;
        o->met[MET_KEPT_BACK_GROUPS] += o->cache_config.n_groups > 1;
        o->met[MET_KEPT_BACK_ONCE_RUN] += r->preemptions > 0;
        o->met[MET_FOLLOWED_SAMPLE] += s > other->samples;
        return 1;
    }
    return 0;
}

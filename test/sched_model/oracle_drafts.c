/* What sched.h says of drafts: slots behind those that decode, for all of them or for nobody. See
 * oracle.h. */
#include "oracle.h"

static int runs(const request *r)
{
    return r->is_here && r->where == ON_DEVICE && r->takes_part;
}

/* No more than can be accepted: one token is sampled after them. */
static uint32_t most_drafts(const oracle *o, const request *r, const sample *s)
{
    const uint32_t left = r->prompt + r->max_new - s->n - 1;
    return left < o->config.draft_tokens ? left : o->config.draft_tokens;
}

static uint32_t clear(oracle *o)
{
    uint32_t n_chunks = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        for (uint32_t j = 0; j < r->n_samples; j++) {
            sample *s = &r->samples[j];
            s->drafts = 0;
            n_chunks += runs(r) && !oracle_is_ready(r) && !s->has_ended && s->seq.bits != 0 &&
                        s->core < oracle_goal(o, r, s);
        }
    }
    return n_chunks;
}

/* Where the scheduler has it among those that decode; n_decoding: nowhere. */
static uint32_t place_made(const oracle *o, const sample *s)
{
    uint32_t k = 0;
    while (k < o->made->n_decoding && o->made->seqs[k].seq.bits != s->seq.bits)
        k++;
    return k;
}

/* Those that decode, in the order of the scheduler's step. */
static uint32_t list_decoding(oracle *o, sample **list)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k <= o->made->n_decoding; k++) {
        for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
            request *r = &o->requests[i];
            for (uint32_t j = 0; runs(r) && oracle_is_ready(r) && j < r->n_samples; j++) {
                sample *s = &r->samples[j];
                if (!s->has_ended && place_made(o, s) == k) {
                    s->drafts = most_drafts(o, r, s);
                    list[n++] = s;
                }
            }
        }
    }
    return n;
}

/* Their newest token, and slots without values behind it. */
int oracle_extend_with_drafts(oracle *o)
{
    sample *list[MAX_SEQS];
    kvp_seq seqs[MAX_SEQS];
    uint32_t counts[MAX_SEQS];
    int32_t newest[MAX_SEQS];
    uint32_t n_drafts = 0;
    kvp_batch batch = {.struct_size = sizeof batch, .seqs = seqs, .n_tokens = counts};
    if (o->config.state_rings)
        batch.flags = KVP_BATCH_RING_NEW;
    if (clear(o) > 0 || o->config.draft_tokens == 0)
        return 0;
    batch.n_seqs = list_decoding(o, list);
    for (uint32_t i = 0; i < batch.n_seqs; i++) {
        seqs[i] = list[i]->seq;
        counts[i] = 1 + list[i]->drafts;
        newest[i] = list[i]->text[list[i]->n - 1];
        n_drafts += list[i]->drafts;
    }
    if (n_drafts == 0)
        return 0;
    const uint32_t n_decoding = batch.n_seqs;
    const uint32_t n_chunks = oracle_list_needing_slots(o, seqs + n_decoding);
    batch.n_seqs += n_chunks;
    for (uint32_t i = n_decoding; i < batch.n_seqs; i++)
        counts[i] = 0;
    if (kvp_seq_extend_many(o->cache, &batch) != KVP_OK) {
        kvp_shortage why;
        (void)kvp_cache_shortage_get(o->cache, &why);
        o->met[MET_DRAFTS_LACK_ROOM]++;
        o->met[MET_DRAFTS_LACK_SLOTS] += why.tier == KVP_STATE_SLOTS && o->config.state_rings;
        (void)clear(o);
        return 0;
    }
    batch.n_seqs = n_decoding;
    batch.n_tokens = NULL;
    batch.tokens = newest;
    batch.flags = 0;
    (void)kvp_seq_fill_many(o->cache, &batch);
    o->met[MET_DRAFTS]++;
    o->met[MET_DRAFT_RINGS] += o->config.state_rings;
    o->met[MET_DRAFT_RINGS_MOVE_ON] += o->config.state_rings && o->moves_on;
    o->met[MET_DRAFT_RINGS_AND_CHUNKS] += o->config.state_rings && n_chunks > 0;
    return 1;
}

uint32_t oracle_count_drafts(const oracle *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->plan.n_items; i++)
        n += o->plan.items[i].n_drafts;
    return n;
}

/* How many drafts of an item were accepted. */
uint32_t oracle_accepted(const plan_item *item)
{
    return item->n_results - item->n_sampled;
}

/* The accepted drafts of an item become tokens of its sample. The token after them is still to be
 * given. */
void oracle_accept(oracle *o, const plan_item *item, const int32_t *tokens)
{
    request *r = &o->requests[item->request];
    sample *s = &r->samples[item->sample];
    const uint32_t n = oracle_accepted(item);
    for (uint32_t i = 0; i < n; i++)
        s->text[s->n++] = tokens[i];
    s->computed += n;
    if (item->decodes)
        s->core = s->computed;
    s->drafts = 0;
    o->n_accepted += n;
    o->met[MET_ACCEPTED_ALL] += n > 0 && n == item->n_drafts;
    o->met[MET_ACCEPTED_SOME] += n > 0 && n < item->n_drafts;
    o->met[MET_ACCEPTED_NONE] += n == 0 && n < item->n_drafts;
    o->met[MET_ACCEPTED_GROUPS] += n > 0 && oracle_live(r) > 1;
    o->met[MET_ACCEPTED_STATES] += n > 0 && o->usable_slots > 0;
}

/* The items are computed, in a copy of the cache from before: `text` has the accepted drafts. */
void oracle_commit(const oracle *o, kvp_cache *copy)
{
    enum { FILL, COMMIT, CUT, PHASES };
    for (int phase = FILL; phase < PHASES; phase++) {
        for (uint32_t i = 0; i < o->plan.n_items; i++) {
            const plan_item *item = &o->plan.items[i];
            if (item->request == GONE)
                continue;
            const sample *s = &o->requests[item->request].samples[item->sample];
            const uint32_t end = item->begin + item->n_tokens + oracle_accepted(item);
            if (phase == FILL && item->n_drafts > 0)
                (void)kvp_seq_fill(copy, s->seq, s->text + s->n, oracle_accepted(item));
            if (phase == COMMIT)
                (void)kvp_seq_commit(copy, s->seq, end);
            if (phase == CUT && item->n_drafts > 0)
                (void)kvp_seq_truncate(copy, s->seq, end, NULL);
        }
    }
}

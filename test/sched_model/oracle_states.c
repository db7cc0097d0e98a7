/* What sched.h says of recurrent state: slots that are promised, chunks that end where a state
 * should be kept, and which states are. See oracle.h. */
#include "oracle.h"

static kvp_state_info state_of(const kvp_cache *cache, kvp_seq seq)
{
    kvp_state_info state = {0};
    (void)kvp_seq_state_get(cache, seq, &state);
    return state;
}

/* n beams that descend from n / 2 write n slots and read n / 2. If nothing that is read is written
 * over, n that descend from n write n and read n. */
uint32_t oracle_most_slots(const oracle *o, uint32_t n_samples)
{
    if (o->moves_on)
        return 2 * n_samples;
    return n_samples == 1 ? 1 : n_samples + n_samples / 2;
}

static uint64_t left_in(const kvp_cache *cache)
{
    kvp_state_stats stats;
    (void)kvp_cache_state_stats_get(cache, &stats);
    return stats.free_slots + stats.cached_slots;
}

uint64_t oracle_slots_left(const oracle *o)
{
    return left_in(o->cache);
}

static uint32_t promised_slots(const oracle *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n += o->requests[i].is_here ? o->requests[i].promised_slots : 0;
    return n;
}

/* Besides the `need` of its open. All read what the first one has written, so each has to take one.
 * If no step writes what it reads, each will hold two. */
static uint32_t slots_for_later(const oracle *o, const request *r, uint32_t need)
{
    const uint32_t n = oracle_live(r);
    if (o->moves_on)
        return 2 * n - need;
    return o->usable_slots == 0 || n == 1 ? 0 : n;
}

/* Has the next chunk of a sample no slot to write? */
int oracle_needs_slot(const oracle *o, const request *r, const sample *s)
{
    return o->moves_on && !s->has_ended && s->seq.bits != 0 && !oracle_is_ready(r) &&
           s->computed < oracle_goal(o, r, s) && state_of(o->cache, s->seq).write_slot == 0;
}

/* All of those, in the order of their chunks. */
uint32_t oracle_list_needing_slots(oracle *o, kvp_seq *out_seqs)
{
    uint32_t n = 0;
    uint64_t last = 0;
    for (const sample *next = NULL;; next = NULL) {
        int needs = 0;
        for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
            const request *r = &o->requests[i];
            for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
                const sample *s = &r->samples[j];
                if (s->under_way > last && (next == NULL || s->under_way < next->under_way)) {
                    next = s;
                    needs = oracle_needs_slot(o, r, s);
                }
            }
        }
        if (next == NULL)
            return n;
        last = next->under_way;
        if (needs)
            out_seqs[n++] = next->seq;
        o->met[MET_STATE_RENEWED] += needs != 0;
    }
}

/* Promises of slots end: when all samples have sequences, or, if each will hold two, when each has
 * computed something by itself. */
void oracle_slots_are_forked(request *r, const oracle *o)
{
    if (!o->moves_on)
        r->promised_slots = 0;
}

void oracle_slots_are_computed(oracle *o, request *r, int decodes)
{
    if (!o->moves_on || r->promised_slots == 0 || (!decodes && oracle_live(r) > 1))
        return;
    o->met[decodes ? MET_STATE_SETTLED : MET_STATE_MOVES_ON]++;
    r->promised_slots = 0;
}

static uint32_t distinct_reads(const kvp_cache *cache, const request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const uint32_t slot = state_of(cache, r->samples[i].seq).read_slot;
        uint32_t j = 0;
        while (j < i && state_of(cache, r->samples[j].seq).read_slot != slot)
            j++;
        n += slot != 0 && j == i;
    }
    return n;
}

/* Beams that read the same slot have one, and will have one each. */
void oracle_slots_are_reordered(oracle *o, request *r, const kvp_cache *cache)
{
    r->promised_slots = o->moves_on ? oracle_live(r) - distinct_reads(cache, r) : 0;
    o->met[MET_STATE_BEAMS] += r->promised_slots > 0;
}

int oracle_parked_slots_suffice(oracle *o, uint64_t missing)
{
    kvp_state_stats stats;
    (void)kvp_cache_state_stats_get(o->cache, &stats);
    const int do_suffice = missing > 0 && stats.parked_slots >= missing;
    o->met[MET_STATE_PARKED] += do_suffice != 0;
    return do_suffice;
}

int oracle_slots_fit(oracle *o, const request *r, const kvp_prompt *prompt)
{
    uint32_t need = 0;
    if (o->usable_slots == 0)
        return 1;
    (void)kvp_state_need(o->cache, r->ns, prompt, &need);
    const uint64_t all = (uint64_t)need + slots_for_later(o, r, need) + promised_slots(o);
    o->missing_slots = all > oracle_slots_left(o) ? all - oracle_slots_left(o) : 0;
    return o->missing_slots == 0;
}

/* Open it; as many slots of state go as were said to. */
kvp_status oracle_open_trunk(oracle *o, request *r, sample *trunk, const kvp_prompt *prompt)
{
    const uint64_t before = oracle_slots_left(o);
    uint32_t need = 0;
    kvp_open_info info;
    kvp_shortage shortage;
    const kvp_status asked = kvp_state_need(o->cache, r->ns, prompt, &need);
    const kvp_status status = kvp_seq_open(o->cache, r->ns, prompt, &trunk->seq, &info);
    (void)kvp_cache_shortage_get(o->cache, &shortage);
    o->lacks_slots = status == KVP_E_NO_BLOCKS && shortage.tier == KVP_STATE_SLOTS;
    if (status != KVP_OK)
        return status;
    if (asked != (o->usable_slots > 0 ? KVP_OK : KVP_E_STATE) ||
        before - oracle_slots_left(o) != need)
        o->wrong = "kvp_state_need";
    trunk->core = prompt->n_tokens;
    trunk->computed = info.cached_tokens;
    r->promised_slots = slots_for_later(o, r, need);
    o->met[MET_STATE_PROMISED] += r->promised_slots > 0;
    o->met[MET_STATE_HIT] += o->usable_slots > 0 && info.hit_tokens > 0;
    return KVP_OK;
}

/* Those that the request's samples hold, one or two each. */
static uint32_t list_slots(const oracle *o, const request *r, uint32_t *slots)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const kvp_state_info state = state_of(o->cache, r->samples[i].seq);
        if (r->samples[i].seq.bits == 0)
            continue;
        if (state.read_slot != 0)
            slots[n++] = state.read_slot;
        if (state.write_slot != 0 && state.write_slot != state.read_slot)
            slots[n++] = state.write_slot;
    }
    return n;
}

/* States that a swap copies. */
uint32_t oracle_states_to_copy(const oracle *o, const request *r)
{
    return distinct_reads(o->cache, r);
}

/* For later: when others are forked. At once: samples whose generated tokens are computed again,
 * and of which the cache has none that is not computed. */
static uint32_t slots_promised_back(const oracle *o, const request *r, uint32_t n_seqs,
                                    uint32_t taken)
{
    if (o->moves_on)
        return 2 * oracle_live(r) - taken;
    return n_seqs < oracle_live(r) ? slots_for_later(o, r, 0) : 0;
}

static uint32_t slots_at_once(const oracle *o, const request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples && !oracle_is_ready(r); i++) {
        const sample *s = &r->samples[i];
        n += s->seq.bits != 0 && s->core == s->computed && s->core < oracle_goal(o, r, s);
    }
    return n;
}

int oracle_slots_fit_back(oracle *o, const request *r, const kvp_seq *seqs, uint32_t n,
                          uint32_t reserve)
{
    uint32_t need = 0;
    if (o->usable_slots == 0)
        return 1;
    (void)kvp_state_swap_need(o->cache, seqs, n, reserve, &need);
    need += slots_at_once(o, r);
    const int fit =
        need + slots_promised_back(o, r, n, need) + promised_slots(o) <= oracle_slots_left(o);
    o->met[MET_STATE_BACK_WAITS] += !fit;
    return fit;
}

/* Swap it in; as many slots go as were said to. */
kvp_status oracle_swap_in(oracle *o, request *r, const kvp_seq *seqs, uint32_t n, uint32_t reserve)
{
    const uint64_t before = oracle_slots_left(o);
    uint32_t need = 0;
    kvp_state_stats stats;
    const kvp_status asked = kvp_state_swap_need(o->cache, seqs, n, reserve, &need);
    (void)kvp_cache_state_stats_get(o->cache, &stats);
    const uint64_t taken = stats.taken;
    const kvp_status status = kvp_seq_swap_in(o->cache, seqs, n, reserve, NULL);
    if (status != KVP_OK)
        return status;
    if (asked != (o->usable_slots > 0 ? KVP_OK : KVP_E_STATE) ||
        before - oracle_slots_left(o) != need)
        o->wrong = "kvp_state_swap_need";
    (void)kvp_cache_state_stats_get(o->cache, &stats);
    r->promised_slots = slots_promised_back(o, r, n, need + slots_at_once(o, r));
    o->met[MET_STATE_MOVED_BACK] += o->moves_on && need > 0;
    o->met[MET_STATE_BACK_PROMISED] += o->moves_on && r->promised_slots > 0;
    o->met[MET_STATE_SWAPPED_IN] += o->usable_slots > 0;
    o->met[MET_STATE_FOUND_BACK] += stats.taken - taken < need;
    return KVP_OK;
}

int oracle_releases_slot(const oracle *o, const request *r)
{
    uint32_t slots[2 * MAX_SAMPLES];
    const uint32_t n = list_slots(o, r, slots);
    for (uint32_t i = 0; i < n; i++) {
        kvp_block_info info;
        uint32_t own = 0;
        for (uint32_t j = 0; j < n; j++)
            own += slots[j] == slots[i];
        (void)kvp_block_info_get(o->cache, o->cache_config.n_groups, KVP_DEVICE, (int32_t)slots[i],
                                 &info);
        if (info.ref_count == own)
            return 1;
    }
    return 0;
}

/* A chunk does not go past a place where a state should be kept. */
uint32_t oracle_cut_chunk(oracle *o, const sample *s, uint32_t n)
{
    const kvp_state_info state = state_of(o->cache, s->seq);
    const uint32_t places[] = {state.branch_end, state.prompt_end};
    for (int i = 0; i < 2; i++) {
        if (places[i] > s->computed && places[i] < s->computed + n) {
            n = places[i] - s->computed;
            o->met[MET_STATE_CUT_CHUNK]++;
        }
    }
    return n;
}

/* The last state up to `end` that the sample has yet to leave, and others can hit. */
uint32_t oracle_last_kept(const oracle *o, const sample *s, uint32_t end, uint32_t grain)
{
    const kvp_state_info state = state_of(o->cache, s->seq);
    for (uint32_t at = end; at > s->computed; at--)
        if (at % grain == 0 && (at == state.branch_end || at == state.prompt_end))
            return at;
    return 0;
}

/* The items are computed: what becomes of their states, in a copy of the cache from before. */
void oracle_keep(oracle *o, kvp_cache *copy)
{
    oracle_commit(o, copy);
    for (uint32_t i = 0; i < o->plan.n_items; i++) {
        const plan_item *item = &o->plan.items[i];
        const uint32_t end = item->begin + item->n_tokens;
        if (item->request == GONE || item->decodes)
            continue;
        const kvp_seq seq = o->requests[item->request].samples[item->sample].seq;
        const kvp_state_info state = state_of(copy, seq);
        uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
        if (end != state.branch_end && end != state.prompt_end)
            continue;
        if (!o->moves_on && left_in(copy) <= promised_slots(o))
            o->met[MET_STATE_WITHHELD]++;
        else
            o->met[MET_STATE_SKIPPED] += kvp_seq_checkpoint(copy, seq, &outcome) != KVP_OK ||
                                         outcome == KVP_CHECKPOINT_SKIPPED;
        o->met[MET_STATE_KEPT] += outcome == KVP_CHECKPOINT_MADE;
        o->n_checkpoints += outcome == KVP_CHECKPOINT_MADE;
        o->n_skipped_checkpoints += outcome == KVP_CHECKPOINT_SKIPPED;
    }
}

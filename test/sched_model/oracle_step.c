/* The oracle's step: what sched.h says of it, from top to bottom. See oracle.h. */
#include "oracle.h"

#include <string.h>

static uint32_t ceil_div(uint32_t n, uint32_t per)
{
    return (n + per - 1) / per;
}

static uint32_t count_seqs(const oracle *o, int where, int only_paused)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &o->requests[i];
        if (r->is_here && r->where == where && (!only_paused || r->is_paused))
            n += oracle_live(r);
    }
    return n;
}

static uint32_t promised_blocks(const oracle *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n += o->requests[i].is_here ? o->requests[i].promised : 0;
    return n;
}

static kvp_stats stats_of(const oracle *o)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(o->cache, &stats);
    return stats;
}

/* The next in rank after `last` (NULL: the first) of those that `is_one`; NULL: none is left. */
static request *next_in_rank(oracle *o, const request *last, int (*is_one)(const request *r))
{
    request *best = NULL;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        if (r->is_here && is_one(r) && (last == NULL || oracle_before(last, r)) &&
            (best == NULL || oracle_before(r, best)))
            best = r;
    }
    return best;
}

static int runs(const request *r)
{
    return r->where == ON_DEVICE && r->takes_part;
}

static int comes_back(const request *r)
{
    return r->where == ON_DEVICE && !r->takes_part && !r->is_paused;
}

static int is_halted(const request *r)
{
    return r->where == ON_DEVICE && r->is_paused;
}

static int is_stored(const request *r)
{
    return r->where == ON_HOST && r->is_paused;
}

static int is_swapped(const request *r)
{
    return r->where == ON_HOST && !r->is_paused;
}

static int is_waiting(const request *r)
{
    return r->where == NOWHERE && !r->is_paused && !r->is_held;
}

static int is_held(const request *r)
{
    return r->is_held;
}

static uint32_t gather(const request *r, kvp_seq *seqs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++)
        if (r->samples[i].seq.bits != 0)
            seqs[n++] = r->samples[i].seq;
    return n;
}

/* ----------------------------------------------------------------------------- giving blocks up */

static void close_all(oracle *o, request *r)
{
    for (uint32_t i = r->n_samples; i > 0; i--) {
        const sample *s = &r->samples[i - 1];
        if (s->seq.bits != 0) {
            o->lost_tokens += s->computed;
            (void)kvp_seq_close(o->cache, s->seq, NULL);
        }
    }
    oracle_drop_sequences(r);
    o->plan.preempted[o->plan.n_preempted++] = r->handle;
    o->n_preempted++;
    r->preemptions++;
    o->met[MET_PREEMPTED]++;
}

static int swap_is_cheaper(oracle *o, const request *r)
{
    kvp_seq seqs[MAX_SAMPLES];
    kvp_admission admission;
    (void)kvp_cache_can_swap_out(o->cache, seqs, gather(r, seqs), &admission);
    if (admission.verdict != KVP_ADMIT_OK) {
        o->met[MET_NO_HOST_ROOM]++;
        return 0;
    }
    const uint64_t swap = o->config.swap_cost +
                          o->config.swap_block_cost * admission.copied_blocks +
                          o->config.swap_state_cost * oracle_states_to_copy(o, r);
    const uint64_t recompute =
        o->config.recompute_cost + o->config.recompute_token_cost * oracle_lost_tokens(o, r);
    o->met[swap <= recompute ? MET_CHEAPER_SWAP : MET_CHEAPER_RECOMPUTE]++;
    return swap <= recompute;
}

static int swap_out(oracle *o, request *r)
{
    kvp_seq seqs[MAX_SAMPLES];
    const uint32_t n = gather(r, seqs);
    if (kvp_seq_swap_out(o->cache, seqs, n, NULL) != KVP_OK) {
        o->met[MET_NO_HOST_ROOM]++;
        return 0;
    }
    o->met[MET_SWAPPED_OUT]++;
    o->met[MET_GROUP_SWAPPED] += n > 1;
    o->met[MET_PROMPT_SWAPPED] += n < oracle_live(r);
    r->where = ON_HOST;
    r->takes_part = 0;
    r->promised = r->promised_slots = 0;
    r->preemptions++;
    r->swaps++;
    o->met[MET_STATE_SWAPPED] += o->usable_slots > 0;
    for (uint32_t i = 0; i < r->n_samples; i++)
        r->samples[i].under_way = 0;
    o->plan.swapped_out[o->plan.n_swapped_out++] = r->handle;
    o->n_swapped_out++;
    return 1;
}

static void preempt(oracle *o, request *r)
{
    const uint32_t how = o->config.preempt;
    if (how != KVP_PREEMPT_RECOMPUTE)
        o->met[MET_WAY_BACK_TOO_LONG] += !oracle_way_back_fits(o, r);
    o->met[MET_PAUSED_VICTIM] += r->is_paused != 0;
    if (how != KVP_PREEMPT_RECOMPUTE && oracle_way_back_fits(o, r) &&
        (how == KVP_PREEMPT_SWAP || swap_is_cheaper(o, r)) && swap_out(o, r))
        return;
    close_all(o, r);
}

/* The last in rank of those that `is_one`, rank after `first` (NULL: any), and release something,
 * or need not. `ahead`: and can be swapped out. */
static request *last_victim(oracle *o, int (*is_one)(const request *r), const request *first,
                            int any, int ahead)
{
    request *best = NULL;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        if (!r->is_here || !is_one(r) || (first != NULL && !oracle_before(first, r)) ||
            (best != NULL && oracle_before(r, best)))
            continue;
        if (ahead && !oracle_way_back_fits(o, r))
            continue;
        if (!any && !(o->lacks_slots ? oracle_releases_slot(o, r) : oracle_releases_block(o, r))) {
            o->met[MET_RELEASES_NOTHING]++;
            continue;
        }
        best = r;
    }
    return best;
}

/* For a request that runs, or for NULL: one that wants to come in. */
static int take_victim(oracle *o, const request *for_whom, int by_force)
{
    for (int any = 0; any <= by_force; any++) {
        request *victim = last_victim(o, is_halted, NULL, any, 0);
        if (victim == NULL && for_whom != NULL)
            victim = last_victim(o, runs, for_whom, any, 0);
        if (victim != NULL) {
            o->met[MET_BY_FORCE] += any != 0;
            o->met[MET_STATE_VICTIM] += !any && o->lacks_slots;
            preempt(o, victim);
            return 1;
        }
    }
    return 0;
}

static int parked_suffice(oracle *o, uint64_t missing)
{
    if (o->lacks_slots)
        return oracle_parked_slots_suffice(o, missing);
    const int do_suffice = missing > 0 && stats_of(o).parked_blocks >= missing;
    o->met[MET_PARKED_ENOUGH] += do_suffice != 0;
    return do_suffice;
}

static void swap_ahead(oracle *o)
{
    o->lacks_slots = o->config.swap_ahead ? 0 : o->lacks_slots;
    for (;;) {
        const kvp_stats stats = stats_of(o);
        const request *first = next_in_rank(o, NULL, runs);
        if (!o->config.swap_ahead ||
            stats.free_blocks + stats.cached_blocks + stats.parked_blocks >= o->watermark)
            return;
        request *victim = last_victim(o, is_halted, NULL, 0, 1);
        if (victim == NULL && first != NULL)
            victim = last_victim(o, runs, first, 0, 1);
        if (victim == NULL || !swap_out(o, victim))
            return;
        o->n_swapped_ahead++;
        o->met[MET_AHEAD]++;
    }
}

/* ------------------------------------------------------------------------------------ extending */

static uint32_t missing_tokens(const oracle *o, const request *r, const sample *s)
{
    if (s->has_ended || s->seq.bits == 0)
        return 0;
    return oracle_is_ready(r) ? 1 : oracle_goal(o, r, s) - s->core;
}

/* What an extend is asked for: every sample that misses tokens, of one request or more. */
struct wanted {
    kvp_seq seqs[MAX_SEQS];
    uint32_t counts[MAX_SEQS];
    int32_t tokens[MAX_SEQS * MAX_TEXT];
    uint32_t n;
    uint32_t n_tokens;
};

static void want(const oracle *o, struct wanted *wanted, const request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const sample *s = &r->samples[i];
        const uint32_t missing = missing_tokens(o, r, s);
        if (missing == 0 && !oracle_needs_slot(o, r, s))
            continue;
        memcpy(wanted->tokens + wanted->n_tokens, s->text + s->core, missing * sizeof(int32_t));
        wanted->n_tokens += missing;
        wanted->seqs[wanted->n] = s->seq;
        wanted->counts[wanted->n++] = missing;
    }
}

/* All or nothing. */
static kvp_status extend_wanted(const oracle *o, const struct wanted *wanted)
{
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = wanted->n,
                             .seqs = wanted->seqs,
                             .n_tokens = wanted->counts,
                             .tokens = wanted->tokens};
    return wanted->n == 0 ? KVP_OK : kvp_seq_extend_many(o->cache, &batch);
}

static kvp_status extend(oracle *o, const request *r)
{
    struct wanted wanted = {.n = 0, .n_tokens = 0};
    want(o, &wanted, r);
    return extend_wanted(o, &wanted);
}

static void note_extended(const oracle *o, request *r)
{
    const int decodes = oracle_is_ready(r);
    for (uint32_t i = 0; i < r->n_samples; i++) {
        sample *s = &r->samples[i];
        if (!s->has_ended && s->seq.bits != 0 && (decodes || s->core < oracle_goal(o, r, s)))
            s->core = decodes ? s->n + s->drafts : oracle_goal(o, r, s);
    }
    r->decodes = decodes;
}

static void extend_or_leave_out(oracle *o, request *r, int takes_victims, int is_first)
{
    kvp_shortage shortage;
    kvp_status status = extend(o, r);
    while (status == KVP_E_NO_BLOCKS && takes_victims) {
        (void)kvp_cache_shortage_get(o->cache, &shortage);
        o->lacks_slots = shortage.tier == KVP_STATE_SLOTS;
        o->met[MET_STATE_SHORT] += o->lacks_slots != 0;
        if (parked_suffice(o, shortage.missing_blocks) || !take_victim(o, r, is_first))
            break;
        status = extend(o, r);
    }
    if (status == KVP_OK) {
        note_extended(o, r);
        return;
    }
    o->met[MET_LEFT_OUT]++;
    o->met[MET_LEFT_OUT_PLAN] += status == KVP_E_PLAN_FULL;
    o->met[MET_CAUGHT_UP_LATER] += !oracle_is_ready(r);
    o->plan.n_left_out++;
    r->takes_part = 0;
    for (uint32_t i = 0; i < r->n_samples; i++)
        r->samples[i].under_way = 0;
}

/* Where the scheduler has it. */
static uint32_t place_made(const oracle *o, kvp_seq seq)
{
    uint32_t i = 0;
    while (i < o->made->n_seqs && o->made->seqs[i].seq.bits != seq.bits)
        i++;
    return i;
}

/* One token each: in the order of the scheduler's step. It is free, and decides which checkpoints
 * go with blocks before slots are taken. */
static void sort_as_made(const oracle *o, struct wanted *wanted)
{
    for (uint32_t i = 1; i < wanted->n; i++) {
        for (uint32_t j = i;
             j > 0 && place_made(o, wanted->seqs[j]) < place_made(o, wanted->seqs[j - 1]); j--) {
            const kvp_seq seq = wanted->seqs[j];
            const int32_t token = wanted->tokens[j];
            wanted->seqs[j] = wanted->seqs[j - 1];
            wanted->tokens[j] = wanted->tokens[j - 1];
            wanted->seqs[j - 1] = seq;
            wanted->tokens[j - 1] = token;
        }
    }
}

/* One call for all, when all that is missing is a token of each that decodes. It differs from calls
 * one by one in nothing but kept evicted blocks: the cache looks at what the call will still copy.
 * */
static int extend_all(oracle *o)
{
    static struct wanted wanted;
    wanted.n = wanted.n_tokens = 0;
    for (const request *r = next_in_rank(o, NULL, runs); r != NULL; r = next_in_rank(o, r, runs)) {
        for (uint32_t i = 0; i < r->n_samples; i++)
            if (!oracle_is_ready(r) && missing_tokens(o, r, &r->samples[i]) > 0)
                return 0;
        if (oracle_is_ready(r))
            want(o, &wanted, r);
    }
    sort_as_made(o, &wanted);
    const uint32_t n_chunks = oracle_list_needing_slots(o, wanted.seqs + wanted.n);
    memset(wanted.counts + wanted.n, 0, n_chunks * sizeof *wanted.counts);
    wanted.n += n_chunks;
    return extend_wanted(o, &wanted) == KVP_OK;
}

static void extend_running(oracle *o)
{
    const request *first = next_in_rank(o, NULL, runs);
    const int all_are_extended = oracle_extend_with_drafts(o) || extend_all(o);
    for (request *r = next_in_rank(o, NULL, runs); r != NULL; r = next_in_rank(o, r, runs))
        if (all_are_extended)
            note_extended(o, r);
        else
            extend_or_leave_out(o, r, 1, r == first);
}

/* ------------------------------------------------------------------------------------ coming in */

/* Where its chunks stand in the order, from now on. */
static void join(oracle *o, request *r)
{
    r->takes_part = 1;
    for (uint32_t i = 0; i < r->n_samples && !oracle_is_ready(r); i++) {
        sample *s = &r->samples[i];
        if (!s->has_ended && s->seq.bits != 0 && s->computed < oracle_goal(o, r, s))
            s->under_way = ++o->clock;
    }
}

static uint64_t watermark_now(const oracle *o)
{
    return stats_of(o).held_blocks == 0 ? 0 : o->watermark;
}

/* Besides what the cache counts, `others` and all that is promised must fit. Gives 0 when not, and
 * how many are missing. */
static int fits(const oracle *o, const kvp_admission *admission, uint64_t others, uint64_t *missing)
{
    const uint64_t all = admission->need_blocks + others + promised_blocks(o) + watermark_now(o);
    *missing = all > admission->available ? all - admission->available : 0;
    return *missing == 0;
}

static kvp_status admit(oracle *o, request *r, uint64_t *missing)
{
    sample *trunk = oracle_trunk(r);
    const uint32_t others = oracle_blocks_for_later(o, r);
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = trunk->text,
                         .n_tokens = oracle_goal(o, r, trunk),
                         .flags = r->flags,
                         .tag = r->arrival};
    kvp_admission admission;
    kvp_status status = kvp_cache_can_open(o->cache, r->ns, &prompt, &admission);
    *missing = 0;
    o->lacks_slots = 0;
    if (status != KVP_OK)
        return status;
    const int have_blocks = (others + promised_blocks(o) == 0 && o->usable_slots == 0) ||
                            fits(o, &admission, others, missing);
    const int have_slots = oracle_slots_fit(o, r, &prompt);
    if (!have_blocks && admission.available < o->usable)
        return KVP_E_NO_BLOCKS;
    if (have_blocks && !have_slots && oracle_slots_left(o) < o->usable_slots) {
        o->lacks_slots = 1;
        o->met[MET_STATE_WAITS]++;
        return KVP_E_NO_BLOCKS;
    }
    if (!have_blocks || !have_slots) {
        o->met[have_blocks ? MET_STATE_HITS_GIVEN_UP : MET_HITS_GIVEN_UP]++;
        prompt.flags |= KVP_OPEN_NO_MATCH;
    }
    *missing = admission.missing_blocks;
    status = oracle_open_trunk(o, r, trunk, &prompt);
    if (status == KVP_OK)
        r->promised = others;
    return status;
}

static kvp_status swap_in(oracle *o, request *r, uint64_t *missing)
{
    const uint32_t reserve = (uint32_t)oracle_is_ready(r);
    kvp_seq seqs[MAX_SAMPLES];
    const uint32_t n = gather(r, seqs);
    const uint32_t promised = n < oracle_live(r) ? oracle_blocks_for_later(o, r) : 0;
    uint32_t at_once = 0;
    for (uint32_t i = 0; i < r->n_samples && !oracle_is_ready(r); i++) {
        const sample *s = &r->samples[i];
        if (s->seq.bits == 0 || s->core >= oracle_goal(o, r, s))
            continue;
        for (uint32_t g = 0; g < o->cache_config.n_groups; g++) {
            const uint32_t S = oracle_size(o, g);
            at_once += ceil_div(oracle_goal(o, r, s), S) - s->core / S;
        }
    }
    kvp_admission admission;
    kvp_status status = kvp_cache_can_swap_in(o->cache, seqs, n, reserve, &admission);
    if (status != KVP_OK)
        return status;
    if (promised + at_once + promised_blocks(o) + o->usable_slots > 0 &&
        !fits(o, &admission, (uint64_t)promised + at_once, missing))
        return KVP_E_NO_BLOCKS;
    *missing = admission.verdict == KVP_ADMIT_LATER ? admission.missing_blocks : 0;
    if (*missing == 0 && !oracle_slots_fit_back(o, r, seqs, n, reserve)) {
        o->lacks_slots = 1;
        return KVP_E_NO_BLOCKS;
    }
    status = oracle_swap_in(o, r, seqs, n, reserve);
    if (status == KVP_OK) {
        r->promised = promised;
        o->met[MET_PROMISED_BACK] += promised > 0;
    }
    return status;
}

/* Room among the sequences: of those on the device, and of those of the cache. */
static int has_places(oracle *o, const request *r)
{
    const uint32_t n = oracle_live(r);
    o->lacks_slots = 0;
    while (count_seqs(o, ON_DEVICE, 0) + n > o->config.max_running) {
        if (!take_victim(o, NULL, 1)) {
            o->met[MET_PLACES_SHORT]++;
            return 0;
        }
    }
    if (r->where == ON_HOST)
        return 1;
    for (;;) {
        const uint32_t stored = count_seqs(o, ON_HOST, 1);
        const uint32_t all = count_seqs(o, ON_DEVICE, 0) + count_seqs(o, ON_HOST, 0) + n;
        if (all <= o->cache_config.max_seqs)
            return 1;
        o->met[MET_CACHE_SEQS_SHORT]++;
        if (stored == 0 || all - stored > o->cache_config.max_seqs)
            return 0;
        close_all(o, last_victim(o, is_stored, NULL, 1, 0));
        o->met[MET_CLOSED_STORED]++;
    }
}

static kvp_status try_to_come_in(oracle *o, request *r)
{
    if (!has_places(o, r))
        return KVP_E_NO_SEQS;
    for (;;) {
        uint64_t missing = 0;
        const kvp_status status =
            r->where == ON_HOST ? swap_in(o, r, &missing) : admit(o, r, &missing);
        if (status == KVP_E_NEVER)
            missing = 0; /* not what parked blocks could make up for */
        else if (status != KVP_E_NO_BLOCKS)
            return status;
        if (o->lacks_slots && r->where == ON_HOST && oracle_slots_left(o) == o->usable_slots) {
            close_all(o, r);
            return KVP_E_DROPPED;
        }
        const int nobody_runs = next_in_rank(o, NULL, runs) == NULL;
        if (parked_suffice(o, o->lacks_slots ? o->missing_slots : missing) ||
            !take_victim(o, NULL, nobody_runs))
            return KVP_E_NO_BLOCKS;
    }
}

/* -------------------------------------------------------------------------- urgent requests */

/* Those that make way for a request: paused ones, and what runs with a larger priority value. */
static int makes_way(const request *r, const request *urgent)
{
    return is_halted(r) || (runs(r) && r->priority > urgent->priority);
}

static uint32_t places_to_have(const oracle *o, const request *urgent)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &o->requests[i];
        n += r->is_here && makes_way(r, urgent) ? oracle_live(r) : 0;
    }
    return n;
}

static uint32_t over(uint32_t n, uint32_t most)
{
    return n > most ? n - most : 0;
}

/* "If it lacks places only." */
static int has_the_rest(oracle *o, request *r)
{
    sample *trunk = oracle_trunk(r);
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = trunk->text,
                               .n_tokens = oracle_goal(o, r, trunk),
                               .flags = r->flags};
    kvp_admission admission;
    uint64_t missing;
    if (kvp_cache_can_open(o->cache, r->ns, &prompt, &admission) != KVP_OK)
        return 0;
    if (!fits(o, &admission, oracle_blocks_for_later(o, r), &missing))
        return admission.available == o->usable;
    return oracle_slots_fit(o, r, &prompt) || oracle_slots_left(o) == o->usable_slots;
}

static int make_way(oracle *o, request *r)
{
    const uint32_t n = oracle_live(r);
    const uint32_t most = o->config.max_running, all = o->cache_config.max_seqs;
    const uint32_t hosts = count_seqs(o, ON_HOST, 0);
    const int by_closing = count_seqs(o, ON_DEVICE, 0) + hosts + n > all;
    const uint32_t places = over(count_seqs(o, ON_DEVICE, 0) + n, most);
    const uint32_t seqs = over(count_seqs(o, ON_DEVICE, 0) + hosts + n, all);
    const uint32_t lacks = places > seqs ? places : seqs;
    if (lacks == 0 || places_to_have(o, r) < lacks || !has_the_rest(o, r))
        return 0;
    while (count_seqs(o, ON_DEVICE, 0) + n > most ||
           count_seqs(o, ON_DEVICE, 0) + count_seqs(o, ON_HOST, 0) + n > all) {
        request *victim = last_victim(o, is_halted, NULL, 1, 0);
        victim = victim != NULL ? victim : last_victim(o, runs, NULL, 1, 0);
        if (by_closing)
            close_all(o, victim);
        else
            preempt(o, victim);
        o->met[MET_MADE_WAY]++;
        o->met[MET_MADE_WAY_CLOSED] += by_closing != 0;
    }
    return 1;
}

static void let_urgent_in(oracle *o)
{
    for (request *r; o->config.make_way && (r = next_in_rank(o, NULL, is_waiting)) != NULL;) {
        uint64_t missing;
        if (oracle_keeps_back(o, r) || !make_way(o, r) || admit(o, r, &missing) != KVP_OK)
            return;
        r->where = ON_DEVICE;
        r->passed = 0;
        join(o, r);
        o->plan.admitted[o->plan.n_admitted++] = r->handle;
        o->met[MET_URGENT]++;
        o->met[MET_URGENT_PAST_SWAPPED] += next_in_rank(o, NULL, is_swapped) != NULL;
    }
}

/* Those that were tried in this step and did not fit. */
struct tried {
    request *requests[MAX_REQUESTS];
    uint32_t n;
    int nobody_more;
};

static void pass_over(oracle *o, struct tried *tried)
{
    for (uint32_t i = 0; i < tried->n; i++) {
        tried->requests[i]->passed++;
        o->met[MET_SWAPPED_PASSED] += tried->requests[i]->where == ON_HOST;
        if (tried->requests[i]->passed >= o->config.max_passed_over)
            tried->nobody_more = 1;
    }
}

/* Gives 1 when it came in. */
static int let_in(oracle *o, request *r, struct tried *tried, uint32_t *waited)
{
    const int was_swapped = r->where == ON_HOST;
    const kvp_status status = try_to_come_in(o, r);
    uint32_t reason;
    if (was_swapped && r->where == NOWHERE)
        return 0; /* it was closed */
    switch (status) {
    case KVP_OK:
        r->where = ON_DEVICE;
        r->passed = 0;
        join(o, r);
        pass_over(o, tried);
        return 1;
    case KVP_E_NO_BLOCKS: reason = KVP_WAIT_BLOCKS; break;
    case KVP_E_NO_SEQS: reason = KVP_WAIT_SEQS; break;
    case KVP_E_PLAN_FULL:
    case KVP_E_IN_FLIGHT: reason = KVP_WAIT_PLAN; break;
    default: o->plan.ended[o->plan.n_ended++] = oracle_refusal(o, r, status); return 0;
    }
    waited[reason]++;
    tried->requests[tried->n++] = r;
    if (r->passed >= o->config.max_passed_over) {
        o->met[MET_K_REACHED]++;
        tried->nobody_more = 1;
    }
    if (tried->n == o->config.max_tries) {
        o->met[MET_TRIES_REACHED]++;
        tried->nobody_more = 1;
    }
    return 0;
}

static void let_swapped_in(oracle *o, struct tried *tried, int is_tight)
{
    for (request *r = next_in_rank(o, NULL, is_swapped); r != NULL;
         r = next_in_rank(o, r, is_swapped)) {
        if (is_tight) {
            o->plan.waited_swapped[KVP_WAIT_PREEMPTION]++;
        } else if (tried->nobody_more) {
            o->plan.waited_swapped[KVP_WAIT_ORDER]++;
        } else if (let_in(o, r, tried, o->plan.waited_swapped)) {
            o->plan.swapped_in[o->plan.n_swapped_in++] = r->handle;
            o->n_swapped_in++;
            o->met[MET_SWAPPED_IN]++;
            extend_or_leave_out(o, r, 0, 0);
        }
    }
    o->met[MET_SWAPPED_WAIT_PLAN] += o->plan.waited_swapped[KVP_WAIT_PLAN];
    o->met[MET_SWAPPED_WAIT_SEQS] += o->plan.waited_swapped[KVP_WAIT_SEQS];
}

/* ----------------------------------------------------------------------------------- the items */

static void add_item(oracle *o, request *r, const sample *s, uint32_t n)
{
    const int is_at_end = s->computed + n == s->n;
    const uint32_t n_sampled = !is_at_end ? 0 : s->n == r->prompt ? oracle_live(r) : 1;
    o->plan.items[o->plan.n_items++] = (plan_item){
        .request = (uint32_t)(r - o->requests),
        .sample = (uint32_t)(s - r->samples),
        .begin = s->computed,
        .n_tokens = n,
        .n_sampled = n_sampled,
        .n_results = n_sampled,
        .decodes = r->decodes,
        .n_drafts = r->decodes ? s->drafts : 0,
    };
}

static void add_decoding(oracle *o)
{
    for (request *r = next_in_rank(o, NULL, runs); r != NULL; r = next_in_rank(o, r, runs)) {
        for (uint32_t i = 0; i < r->n_samples && r->decodes; i++)
            if (!r->samples[i].has_ended)
                add_item(o, r, &r->samples[i], 1);
    }
}

static void add_chunk(oracle *o, request *r, const sample *s, uint32_t *budget)
{
    uint32_t n = oracle_goal(o, r, s) - s->computed;
    if (o->config.chunk_tokens == KVP_SCHED_CHUNK_HALF && n > ceil_div(o->config.step_tokens, 2))
        n = ceil_div(o->config.step_tokens, 2);
    if (o->config.chunk_tokens != 0 && n > o->config.chunk_tokens)
        n = o->config.chunk_tokens;
    if (n > *budget)
        n = *budget;
    n = oracle_cut_chunk(o, s, n);
    *budget -= n;
    o->met[MET_GROUP_WAITS] += s->computed + n + 1 == s->n;
    add_item(o, r, s, n);
}

/* Earlier ones first. */
static void add_chunks(oracle *o, uint32_t *budget)
{
    uint64_t last = 0;
    while (*budget > 0) {
        request *of = NULL;
        sample *next = NULL;
        for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
            request *r = &o->requests[i];
            for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
                sample *s = &r->samples[j];
                if (s->under_way > last && (next == NULL || s->under_way < next->under_way)) {
                    next = s;
                    of = r;
                }
            }
        }
        if (next == NULL)
            return;
        last = next->under_way;
        add_chunk(o, of, next, budget);
    }
}

static void let_waiting_in(oracle *o, struct tried *tried, int is_tight, uint32_t budget)
{
    for (request *r = next_in_rank(o, NULL, is_waiting); r != NULL;
         r = next_in_rank(o, r, is_waiting)) {
        if (is_tight) {
            o->plan.waited[KVP_WAIT_PREEMPTION]++;
        } else if (budget == 0) {
            o->plan.waited[KVP_WAIT_TOKENS]++;
        } else if (tried->nobody_more) {
            o->plan.waited[KVP_WAIT_ORDER]++;
        } else if (oracle_keeps_back(o, r)) {
            o->plan.waited[KVP_WAIT_PREFIX]++;
        } else if (let_in(o, r, tried, o->plan.waited)) {
            o->met[MET_KEPT_BACK_PASSED] += o->plan.waited[KVP_WAIT_PREFIX] > 0;
            const request *held = next_in_rank(o, NULL, is_held);
            o->met[MET_HELD_PASSED] += held != NULL && oracle_before(held, r);
            o->plan.admitted[o->plan.n_admitted++] = r->handle;
            add_chunk(o, r, oracle_trunk(r), &budget);
        }
    }
    o->met[MET_WAIT_PLAN] += o->plan.waited[KVP_WAIT_PLAN];
    o->met[MET_WAIT_TOKENS] += o->plan.waited[KVP_WAIT_TOKENS];
}

/* ------------------------------------------------------------------------------ the whole of it */

void oracle_step(oracle *o, kvp_cache *copy)
{
    struct tried tried = {.n = 0};
    o->cache = copy;
    memset(&o->plan, 0, sizeof o->plan);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        o->requests[i].decodes = 0;
    for (request *r = next_in_rank(o, NULL, comes_back); r != NULL;
         r = next_in_rank(o, r, comes_back))
        join(o, r);
    let_urgent_in(o);
    swap_ahead(o);
    extend_running(o);
    const int is_tight = o->plan.n_preempted + o->plan.n_swapped_out + o->plan.n_left_out > 0;
    let_swapped_in(o, &tried, is_tight);
    add_decoding(o);
    uint32_t budget = o->config.step_tokens - o->plan.n_items - oracle_count_drafts(o);
    add_chunks(o, &budget);
    let_waiting_in(o, &tried, is_tight || o->plan.n_left_out > 0, budget);
    for (const request *r = next_in_rank(o, NULL, is_held); r != NULL;
         r = next_in_rank(o, r, is_held))
        o->plan.n_loading++;
    o->met[MET_ALL_HELD] += o->plan.n_items == 0 && o->plan.n_loading > 0;
    o->n_draft_tokens += oracle_count_drafts(o);
    o->is_out = o->plan.n_items > 0;
}

/* The oracle's books: requests, and what happens to them between steps. See oracle.h. */
#include "oracle.h"

#include <string.h>

static uint32_t ceil_div(uint32_t n, uint32_t per)
{
    return (n + per - 1) / per;
}

void oracle_begin(oracle *o, const kvp_sched_config *config, const kvp_cache *cache)
{
    kvp_stats stats;
    memset(o, 0, sizeof *o);
    o->config = *config;
    (void)kvp_cache_config_get(cache, &o->cache_config);
    (void)kvp_cache_stats_get(cache, &stats);
    if (o->config.max_samples == 0)
        o->config.max_samples = o->config.max_requests;
    if (o->config.max_running == 0)
        o->config.max_running = o->cache_config.max_seqs;
    o->usable = (uint32_t)stats.usable_blocks;
    o->usable_slots = o->cache_config.state_slots > 0 ? o->cache_config.state_slots - 1 : 0;
    o->moves_on = o->usable_slots > 0 && o->cache_config.steps == KVP_STEPS_OVERLAPPED;
    o->watermark = (uint32_t)stats.watermark_blocks;
}

request *oracle_find(oracle *o, kvp_request handle)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        if (o->requests[i].is_here && o->requests[i].handle.bits == handle.bits)
            return &o->requests[i];
    return NULL;
}

int oracle_before(const request *a, const request *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

uint32_t oracle_live(const request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++)
        n += !r->samples[i].has_ended;
    return n;
}

static int has_windows(const oracle *o)
{
    int has = 0;
    for (uint32_t g = 0; g < o->cache_config.n_groups; g++)
        has |= o->cache_config.groups[g].recent_tokens > 0;
    return has;
}

/* What a sample computes in chunks: all its tokens; but a group that computes generated tokens
 * again leaves the newest ones for a step in which all decode, and with windows or recurrent state
 * the trunk does not go past the prompt before the others are forked from it. */
uint32_t oracle_goal(const oracle *o, const request *r, const sample *s)
{
    uint32_t n_seqs = 0;
    if (oracle_live(r) == 1 || s->n == r->prompt)
        return s->n;
    for (uint32_t i = 0; i < r->n_samples; i++)
        n_seqs += !r->samples[i].has_ended && r->samples[i].seq.bits != 0;
    return (has_windows(o) || o->usable_slots > 0) && n_seqs < oracle_live(r) ? r->prompt
                                                                              : s->n - 1;
}

/* Do all live samples decode next? */
int oracle_is_ready(const request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const sample *s = &r->samples[i];
        if (!s->has_ended && (s->seq.bits == 0 || s->computed != s->core || s->core + 1 != s->n))
            return 0;
    }
    return 1;
}

void oracle_drop_sequences(request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        r->samples[i].seq.bits = 0;
        r->samples[i].core = r->samples[i].computed = 0;
        r->samples[i].under_way = 0;
    }
    r->promised = r->promised_slots = 0;
    r->where = NOWHERE;
    r->takes_part = 0;
    r->may_load = !r->never_loads; /* what it had may have gone to a store */
}

kvp_ended oracle_refusal(oracle *o, request *r, kvp_status status)
{
    const kvp_ended ended = {.request = r->handle,
                             .tag = r->arrival,
                             .sample = KVP_ALL_SAMPLES,
                             .reason = KVP_END_REFUSED,
                             .status = status,
                             .is_last = 1};
    o->met[MET_REFUSED]++;
    r->is_here = 0;
    return ended;
}

/* ------------------------------------------------------------------------------------- submit */

uint32_t oracle_size(const oracle *o, uint32_t group)
{
    return o->cache_config.groups[group].block_tokens;
}

uint64_t oracle_blocks_of(const oracle *o, uint64_t tokens)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < o->cache_config.n_groups; g++)
        n += (tokens + oracle_size(o, g) - 1) / oracle_size(o, g);
    return n;
}

static int prompt_fits(const oracle *o, uint32_t prompt, uint32_t n)
{
    return prompt + 1 <= o->cache_config.max_seq_tokens &&
           oracle_blocks_of(o, prompt) + (uint64_t)(n - 1) * o->cache_config.n_groups <=
               o->usable - o->watermark;
}

static int all_fits(const oracle *o, uint32_t prompt, uint64_t all, uint32_t n)
{
    uint64_t blocks = 0;
    for (uint32_t g = 0; g < o->cache_config.n_groups; g++) {
        const uint32_t S = oracle_size(o, g);
        const uint64_t full = prompt / S, last = (all + S - 1) / S;
        blocks += full + n * (last > full ? last - full : 0);
    }
    return blocks <= o->usable;
}

/* Has a sequence with the prompt room for one token more? */
static int goes_on(const oracle *o, uint32_t prompt)
{
    return all_fits(o, prompt, (uint64_t)prompt + 1, 1);
}

/* Beams may hold more slots of state than there are. */
static int lacks_slots_for_ever(const oracle *o, uint32_t n)
{
    return o->usable_slots > 0 && oracle_most_slots(o, n) > o->usable_slots;
}

/* The largest lengths, by trying all. */
static kvp_sched_limit limit_of(const oracle *o, uint32_t prompt, uint32_t n)
{
    kvp_sched_limit limit = {0, 0};
    if (lacks_slots_for_ever(o, n))
        return limit;
    for (uint32_t p = 1; p <= o->cache_config.max_seq_tokens; p++) {
        if (prompt_fits(o, p, n) && all_fits(o, p, (uint64_t)p + 1, n))
            limit.max_prompt_tokens = p;
        if (goes_on(o, prompt) && all_fits(o, prompt, p, n))
            limit.max_tokens = p;
    }
    return limit;
}

static uint32_t count_pages(const oracle *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n += o->requests[i].is_here ? o->requests[i].n_pages : 0;
    return n;
}

static kvp_status check_room(oracle *o, const request *r)
{
    const uint64_t all_pages =
        (o->config.arena_tokens + KVP_SCHED_PAGE_TOKENS - 1) / KVP_SCHED_PAGE_TOKENS;
    uint32_t n_requests = 0, n_samples = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        n_requests += (uint32_t)o->requests[i].is_here;
        n_samples += o->requests[i].is_here ? o->requests[i].n_samples : 0;
    }
    if (n_requests == o->config.max_requests || n_samples + r->n_samples > o->config.max_samples) {
        o->met[MET_REQUESTS_FULL]++;
        return KVP_E_NO_SEQS;
    }
    if (count_pages(o) + r->n_pages > all_pages) {
        o->met[MET_ARENA_FULL]++;
        return KVP_E_NO_BLOCKS;
    }
    return KVP_OK;
}

static void fill_in(oracle *o, request *r, const kvp_submission *submission)
{
    const kvp_prompt *prompt = submission->prompt;
    const int is_borrowed = (submission->flags & KVP_SUBMIT_BORROW) != 0;
    memset(r, 0, sizeof *r);
    r->ns = submission->ns;
    r->priority = submission->priority;
    r->prompt = prompt->n_tokens;
    r->flags = prompt->flags;
    r->max_new = submission->max_new_tokens;
    r->n_samples = submission->n_samples ? submission->n_samples : 1;
    r->n_pages = (is_borrowed ? 0 : ceil_div(r->prompt, KVP_SCHED_PAGE_TOKENS)) +
                 r->n_samples * ceil_div(r->max_new, KVP_SCHED_PAGE_TOKENS);
    r->arrival = o->arrivals + 1;
    r->never_loads = (submission->flags & KVP_SUBMIT_NO_LOAD) != 0;
    r->may_load = !r->never_loads;
    r->load_deadline = submission->load_deadline;
    for (uint32_t i = 0; i < r->n_samples && i < MAX_SAMPLES; i++) {
        r->samples[i].n = r->prompt;
        memcpy(r->samples[i].text, prompt->tokens, r->prompt * sizeof(int32_t));
    }
}

/* The request is here, but for its handle, when KVP_OK. */
kvp_status oracle_submit(oracle *o, const kvp_submission *submission, kvp_sched_limit *out_limit,
                         request **out_request)
{
    request *r = o->requests;
    while (r->is_here)
        r++;
    fill_in(o, r, submission);
    const uint64_t all = (uint64_t)r->prompt + r->max_new;
    if (r->n_samples > o->config.max_running ||
        (r->n_samples > 1 && r->n_samples * o->cache_config.n_groups > o->cache_config.max_copies))
        return KVP_E_ARG;
    *out_limit = limit_of(o, r->prompt, r->n_samples);
    if (all > o->cache_config.max_seq_tokens) {
        o->met[MET_TOO_LONG]++;
        return KVP_E_TOO_LONG;
    }
    o->met[MET_STATE_NEVER] += (uint64_t)lacks_slots_for_ever(o, r->n_samples);
    if (!prompt_fits(o, r->prompt, r->n_samples) || !all_fits(o, r->prompt, all, r->n_samples) ||
        lacks_slots_for_ever(o, r->n_samples)) {
        o->met[MET_NEVER]++;
        return KVP_E_NEVER;
    }
    const kvp_status status = check_room(o, r);
    if (status == KVP_OK) {
        o->arrivals++;
        r->is_here = 1;
        *out_request = r;
    }
    return status;
}

/* ------------------------------------------------------------------------ abort, pause, resume */

void oracle_abort(oracle *o, request *r)
{
    o->met[MET_ABORTED_SWAPPED] += r->where == ON_HOST;
    o->met[MET_ABORTED_HELD] += r->is_held != 0;
    o->n_dropped += r->is_held != 0;
    r->is_here = 0;
    for (uint32_t i = 0; o->is_out && i < o->plan.n_items; i++)
        if (o->plan.items[i].request == (uint32_t)(r - o->requests))
            o->plan.items[i].request = GONE;
}

void oracle_pause(oracle *o, request *r)
{
    o->met[MET_PAUSED_HELD] += r->is_held != 0;
    o->n_dropped += r->is_held != 0;
    r->is_held = 0;
    r->is_paused = 1;
    r->takes_part = 0;
    for (uint32_t i = 0; i < r->n_samples; i++)
        r->samples[i].under_way = 0;
}

void oracle_resume(oracle *o, request *r)
{
    o->met[MET_RESUMED_SWAPPED] += r->is_paused && r->where == ON_HOST;
    r->is_paused = 0;
}

/* ------------------------------------------------------------------------------------- finish */

static void give(oracle *o, request *r, uint32_t idx, int32_t token, int is_last, kvp_ended *ended,
                 uint32_t *n_ended)
{
    sample *s = &r->samples[idx];
    s->text[s->n++] = token;
    s->under_way = 0;
    (void)o;
    if (!is_last && s->n < r->prompt + r->max_new)
        return;
    s->has_ended = 1;
    s->seq.bits = 0;
    ended[(*n_ended)++] = (kvp_ended){.request = r->handle,
                                      .tag = r->arrival,
                                      .sample = idx,
                                      .reason = is_last ? KVP_END_STOPPED : KVP_END_LENGTH,
                                      .new_tokens = s->n - r->prompt,
                                      .is_last = oracle_live(r) == 0};
}

/* The others get sequences, forked at the prompt's end. `seq` is not known here. */
static void fork_others(const oracle *o, request *r, const sample *trunk)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        sample *s = &r->samples[i];
        if (!s->has_ended && s != trunk && s->seq.bits == 0) {
            s->seq.bits = 1; /* whoever compares learns its handle from the scheduler */
            s->core = s->computed = r->prompt;
        }
    }
    r->promised = 0;
    oracle_slots_are_forked(r, o);
}

static void finish_item(oracle *o, const plan_item *item, const int32_t *tokens,
                        const uint8_t *lasts, kvp_ended *ended, uint32_t *n_ended)
{
    request *r = &o->requests[item->request];
    sample *s = &r->samples[item->sample];
    const uint32_t end = item->begin + item->n_tokens;
    const int is_first_token = s->n == r->prompt && item->n_sampled > 0;
    s->computed = end;
    oracle_slots_are_computed(o, r, item->decodes);
    if (end >= r->prompt)
        fork_others(o, r, s);
    oracle_accept(o, item, tokens);
    uint32_t at = 0;
    tokens += oracle_accepted(item);
    for (uint32_t i = 0; i < r->n_samples && item->n_sampled > 0; i++) {
        if (!r->samples[i].has_ended && (is_first_token || i == item->sample)) {
            give(o, r, i, tokens[at], lasts[at], ended, n_ended);
            at++;
        }
    }
}

/* Who has chunks to compute from now on. */
static void begin_chunks(oracle *o, request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        sample *s = &r->samples[i];
        const int has_some =
            !s->has_ended && s->seq.bits != 0 && s->computed < oracle_goal(o, r, s);
        if (!has_some || !r->takes_part || oracle_is_ready(r))
            s->under_way = 0;
        else if (s->under_way == 0)
            s->under_way = ++o->clock;
    }
}

/* Chunks first, then those that decode: the order of `out_ended`. Tokens are in the order of items;
 * those of requests that are gone have been left in place. */
void oracle_finish(oracle *o, const int32_t *tokens, const uint8_t *ended, kvp_ended *out_ended,
                   uint32_t *out_n_ended)
{
    *out_n_ended = 0;
    for (int decodes = 0; decodes < 2; decodes++) {
        uint32_t at = 0, at_token = 0;
        for (uint32_t i = 0; i < o->plan.n_items; i++) {
            const plan_item *item = &o->plan.items[i];
            if (item->decodes == decodes && item->request != GONE)
                finish_item(o, item, tokens + at_token, ended + at, out_ended, out_n_ended);
            at += item->n_sampled;
            at_token += item->n_results;
        }
    }
    for (uint32_t i = 0; i < o->plan.n_items; i++)
        if (o->plan.items[i].request != GONE)
            begin_chunks(o, &o->requests[o->plan.items[i].request]);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        r->is_here = r->is_here && oracle_live(r) > 0;
    }
    o->is_out = 0;
}

/* --------------------------------------------------------------------------------------- fail */

static void lose(oracle *o, request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++)
        o->lost_tokens += r->samples[i].seq.bits != 0 ? r->samples[i].computed : 0;
    oracle_drop_sequences(r);
    r->preemptions++;
    o->n_preempted++;
}

/* Everybody in the step loses its sequences, and so does who has lost KV in the cache by it. */
void oracle_fail(oracle *o, const kvp_cache *cache)
{
    o->met[MET_FAILED]++;
    for (uint32_t i = 0; i < o->plan.n_items; i++) {
        request *r = &o->requests[o->plan.items[i].request % MAX_REQUESTS];
        if (o->plan.items[i].request != GONE && r->where == ON_DEVICE)
            lose(o, r);
    }
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &o->requests[i];
        for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
            kvp_seq_info info;
            kvp_state_info state = {0};
            (void)kvp_seq_state_get(cache, r->samples[j].seq, &state);
            if (r->samples[j].seq.bits != 0 &&
                kvp_seq_info_get(cache, r->samples[j].seq, &info) == KVP_OK &&
                (info.computed_tokens < r->samples[j].computed || state.lost)) {
                o->met[MET_STATE_LOST] += state.lost;
                o->met[MET_FAILED_ELSEWHERE]++;
                lose(o, r);
            }
        }
    }
    o->is_out = 0;
}

/* ------------------------------------------------------------------------------------ reorder */

kvp_status oracle_reorder(oracle *o, request *r, const uint32_t *parents, const int32_t *tokens)
{
    static request before;
    uint32_t newest = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        if (r->samples[i].has_ended)
            continue;
        newest = r->samples[i].n;
        if (parents[i] >= r->n_samples || (tokens != NULL && tokens[i] < 0) ||
            r->samples[parents[i]].has_ended)
            return KVP_E_ARG;
    }
    if (o->is_out || r->where != ON_DEVICE || !oracle_is_ready(r) || newest == r->prompt)
        return KVP_E_STATE;
    o->met[MET_REORDERED]++;
    o->met[MET_REORDERED_AFTER_SWAP] += r->swaps > 0;
    o->met[MET_REORDERED_WITH_ENDED] += oracle_live(r) < r->n_samples;
    before = *r;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        if (r->samples[i].has_ended)
            continue;
        const int32_t token =
            tokens != NULL ? tokens[i] : before.samples[i].text[before.samples[i].n - 1];
        memcpy(r->samples[i].text, before.samples[parents[i]].text, sizeof r->samples[i].text);
        r->samples[i].text[newest - 1] = token;
    }
    return KVP_OK;
}

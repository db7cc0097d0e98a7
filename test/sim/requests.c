/* Requests, and the steps that compute them. See sim.h. */
#include "sim.h"

#include <string.h>

sim_request *sim_find(sim *s, kvp_request handle)
{
    for (uint32_t i = 0; i < SIM_REQUESTS; i++) {
        if (s->requests[i].is_here && s->requests[i].handle.bits == handle.bits) {
            return &s->requests[i];
        }
    }
    return NULL;
}

static sim_request *pick(sim *s, bool is_here)
{
    const uint32_t first = sim_below(s, SIM_REQUESTS);
    for (uint32_t i = 0; i < SIM_REQUESTS; i++) {
        sim_request *r = &s->requests[(first + i) % SIM_REQUESTS];
        if (r->is_here == is_here) {
            return r;
        }
    }
    return NULL;
}

/* One of two images, or none: type 0. */
void sim_draw_key(sim *s, uint32_t n_tokens, kvp_key *out_key)
{
    static const uint8_t images[] = {1, 2};
    const uint32_t begin = 4 * sim_below(s, SIM_PROMPT / 4), which = sim_below(s, 5);
    *out_key = (kvp_key){.begin = begin, .end = begin + SIM_KEY, .n_bytes = 1};
    if (sim_has(s, SIM_OF_keys) && which < sizeof images && begin + SIM_KEY <= n_tokens) {
        out_key->type = 7;
        out_key->bytes = &images[which];
    }
}

/* The KV of its tokens, and of all that follow, depends on it. */
void sim_mix_key(const kvp_key *key, int32_t *text)
{
    for (uint32_t i = key->begin; i < key->end && key->type > 0; i++) {
        text[i] += 100 * *(const uint8_t *)key->bytes;
    }
}

kvp_prompt sim_prompt(const int32_t *tokens, uint32_t n, const kvp_key *key, uint64_t tag)
{
    return (kvp_prompt){.struct_size = sizeof(kvp_prompt),
                        .tokens = tokens,
                        .n_tokens = n,
                        .keys = key,
                        .n_keys = key->type > 0,
                        .tag = tag};
}

static void draw_request(sim *s, sim_request *r)
{
    const int32_t *document = s->documents[sim_below(s, SIM_DOCUMENTS)];
    memset(r, 0, sizeof *r);
    r->space = sim_below(s, SIM_SPACES);
    r->prompt = 1 + sim_below(s, SIM_PROMPT);
    r->n_samples = sim_percent(s, 75) ? 1 : 1 + sim_below(s, SIM_SAMPLES);
    r->n_samples = sim_has(s, SIM_OF_samples) ? r->n_samples : 1;
    r->max_new = 1 + sim_below(s, SIM_NEW);
    r->tag = ++s->n_tags;
    const uint32_t same = sim_percent(s, 70) ? r->prompt : sim_below(s, r->prompt);
    for (uint32_t i = 0; i < r->prompt; i++) {
        r->text[0][i] = i < same ? document[i] : (int32_t)sim_below(s, 3);
    }
    sim_draw_key(s, r->prompt, &r->key);
    for (uint32_t k = 0; k < r->n_samples; k++) {
        memcpy(r->text[k], r->text[0], sizeof r->text[0]);
        r->n[k] = r->prompt;
    }
}

/* Whether the store has more of it: then its answer comes later. */
static void ask_store(sim *s, sim_request *r, const kvp_prompt *prompt)
{
    const kvp_spill_request request = {.struct_size = sizeof request, .tag = r->tag};
    kvp_spill_answer answer = {0};
    const kvp_status status =
        kvp_spill_ask(s->spill, s->spaces[r->space], prompt, &request, s->now, &answer);
    if (status != KVP_E_AGAIN && sim_ok(s, "kvp_spill_ask", status)) {
        r->waits = answer.outcome == KVP_SPILL_WAITS;
    }
}

void sim_submit(sim *s)
{
    sim_request *r = pick(s, false);
    if (r == NULL) {
        return;
    }
    draw_request(s, r);
    const kvp_prompt prompt = sim_prompt(r->text[0], r->prompt, &r->key, r->tag);
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->spaces[r->space],
                                       .priority = sim_percent(s, 20) ? -1 : 0,
                                       .n_samples = r->n_samples,
                                       .max_new_tokens = r->max_new};
    const kvp_status status = kvp_sched_submit(s->sched, &submission, &r->handle, NULL);
    if (status == KVP_E_NEVER || kvp_status_class(status) == KVP_CLASS_RETRY) {
        return;
    }
    r->is_here = sim_ok(s, "kvp_sched_submit", status);
    ask_store(s, r, &prompt);
    if (r->waits) {
        const kvp_status held = kvp_sched_hold(s->sched, r->handle, s->now + sim_below(s, 1 << 26));
        r->is_held = held != KVP_E_AGAIN && sim_ok(s, "kvp_sched_hold", held);
        s->seen[SIM_held] += r->is_held;
    }
}

static void let_go(sim *s, sim_request *r)
{
    if (r->waits) {
        (void)sim_ok(s, "kvp_spill_abort", kvp_spill_abort(s->spill, r->tag));
    }
    r->is_here = r->waits = false;
}

static void abort_one(sim *s, sim_request *r)
{
    if (sim_ok(s, "kvp_sched_abort", kvp_sched_abort(s->sched, r->handle))) {
        let_go(s, r);
        s->seen[SIM_aborted]++;
    }
}

void sim_abort(sim *s)
{
    sim_request *r = pick(s, true);
    if (r != NULL) {
        abort_one(s, r);
    }
}

void sim_abort_all(sim *s, uint32_t space)
{
    for (uint32_t i = 0; i < SIM_REQUESTS; i++) {
        if (s->requests[i].is_here && s->requests[i].space == space) {
            abort_one(s, &s->requests[i]);
        }
    }
}

void sim_answered(sim *s, const kvp_spill_answer *answer)
{
    for (uint32_t i = 0; i < SIM_REQUESTS; i++) {
        sim_request *r = &s->requests[i];
        if (!r->is_here || !r->waits || r->tag != answer->tag) {
            continue;
        }
        if (r->is_held) {
            (void)sim_ok(s, "kvp_sched_release", kvp_sched_release(s->sched, r->handle));
        }
        r->waits = r->is_held = false;
        return;
    }
    verdict_bad(&s->verdict, "an answer of the spill that nobody waits for");
}

void sim_tick(sim *s)
{
    kvp_sched_expired expired = {0};
    (void)sim_ok(s, "kvp_sched_tick", kvp_sched_tick(s->sched, s->now, &expired));
    for (uint32_t i = 0; i < expired.n_requests; i++) {
        sim_request *r = sim_find(s, expired.requests[i]);
        if (r == NULL || !r->is_held) {
            verdict_bad(&s->verdict, "a hold is over that was none");
            return;
        }
        r->is_held = false;
    }
}

/* ---------------------------------------------------------------------------------------- steps */

static void note_ended(sim *s, const kvp_ended *ended, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sim_request *r = sim_find(s, ended[i].request);
        if (r == NULL || ended[i].reason == KVP_END_REFUSED) {
            verdict_bad(&s->verdict, "a request ended that is not here, or was refused");
            return;
        }
        for (uint32_t k = 0; k < r->n_samples; k++) {
            r->has_ended[k] |= ended[i].sample == k || ended[i].sample == KVP_ALL_SAMPLES;
        }
        if (ended[i].is_last) {
            let_go(s, r);
            s->seen[SIM_ended]++;
        }
    }
}

static void note_hit(sim *s, const sim_request *r, uint32_t n_tokens)
{
    const uint32_t last = s->config.n_groups - 1;
    if (n_tokens > 0) {
        s->seen[SIM_hits]++;
        s->seen[SIM_keys_hit] += r->key.type > 0 && n_tokens >= r->key.end;
        s->seen[SIM_quotas_hit] += s->config.quotas;
        s->seen[SIM_states_hit] += s->states.n > 0;
        s->seen[SIM_retained] += s->config.retain_tokens > 0;
        s->seen[SIM_entries_hit] += s->entry > 1;
        s->seen[SIM_sizes_hit] +=
            s->config.groups[0].block_tokens != s->config.groups[last].block_tokens;
    }
}

/* What was hit by those that came in is used again: their records may be written. */
static void note_admitted(sim *s)
{
    for (uint32_t i = 0; i < s->step.n_admitted; i++) {
        const sim_request *r = sim_find(s, s->step.admitted[i]);
        kvp_sample_info sample = {0};
        kvp_seq_info info;
        if (r == NULL || kvp_request_sample(s->sched, r->handle, 0, &sample) != KVP_OK ||
            sample.seq.bits == 0 || kvp_seq_info_get(s->cache, sample.seq, &info) != KVP_OK) {
            continue;
        }
        note_hit(s, r, info.cached_tokens);
        (void)sim_ok(s, "kvp_spill_hit",
                     kvp_spill_hit(s->spill, sample.seq, info.cached_tokens, s->now));
    }
}

static void next_step(sim *s)
{
    if (!sim_ok(s, "kvp_sched_step", kvp_sched_step(s->sched, &s->step))) {
        return;
    }
    sim_work *work = sim_work_begin(s);
    note_ended(s, s->step.ended, s->step.n_ended);
    note_admitted(s);
    s->seen[SIM_preempted] += s->step.n_preempted;
    s->seen[SIM_swapped] += s->step.n_swapped_in;
    if (work != NULL) {
        work->is_sched = s->step.n_seqs > 0;
        s->work = work->is_sched ? work : NULL;
        sim_tell(s, work);
        sim_drafts(s, work);
    }
}

/* What the step gives: of those that decode, the accepted drafts, too. */
static uint32_t sample_all(sim *s, int32_t *tokens, uint32_t *counts, uint8_t *ended)
{
    sched_sampled of[SIM_RUNNING * SIM_SAMPLES];
    uint32_t n_tokens = 0;
    const uint32_t n = sched_sampled_of(&s->step, of, SIM_RUNNING * SIM_SAMPLES);
    for (uint32_t i = 0; i < n; i++) {
        const sim_item *item = i < s->step.n_decoding ? &s->work->items[i] : NULL;
        const uint32_t n_accepted = item == NULL ? 0 : item->n_accepted;
        sim_request *r = sim_find(s, of[i].request);
        for (uint32_t k = 0; k <= n_accepted; k++) {
            const int32_t token =
                k < n_accepted ? item->text[item->range.end + k] : (int32_t)sim_below(s, 3);
            tokens[n_tokens++] = token;
            if (r != NULL && !r->has_ended[of[i].sample]) {
                r->text[of[i].sample][r->n[of[i].sample]++] = token;
            }
        }
        counts[i] = 1 + n_accepted;
        ended[i] = sim_percent(s, 4);
    }
    return n;
}

static void finish_step(sim *s)
{
    int32_t tokens[SIM_RUNNING * (SIM_SAMPLES + SIM_DRAFTS)];
    uint32_t counts[SIM_RUNNING * SIM_SAMPLES];
    uint8_t ended[SIM_RUNNING * SIM_SAMPLES];
    kvp_step_end end;
    const uint32_t n = sample_all(s, tokens, counts, ended);
    sim_work_done(s, s->work);
    sim_spill_reports(s);
    if (sim_ok(s, "kvp_sched_finish_drafts",
               kvp_sched_finish_drafts(s->sched, n > 0 ? tokens : NULL,
                                       s->step.n_drafts > 0 ? counts : NULL, ended, &end))) {
        note_ended(s, end.ended, end.n_ended);
    }
    sim_spill_reports(s);
}

void sim_advance(sim *s)
{
    if (s->work != NULL) {
        finish_step(s);
    } else {
        next_step(s);
    }
}

void sim_fail(sim *s)
{
    if (s->work != NULL) {
        sim_work_failed(s, s->work);
        (void)sim_ok(s, "kvp_sched_fail", kvp_sched_fail(s->sched));
        s->seen[SIM_failed_steps]++;
    }
}

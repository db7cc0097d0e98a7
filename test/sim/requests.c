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

static void draw_request(sim *s, sim_request *r)
{
    const int32_t *document = s->documents[sim_below(s, SIM_DOCUMENTS)];
    memset(r, 0, sizeof *r);
    r->space = sim_below(s, SIM_SPACES);
    r->prompt = 1 + sim_below(s, SIM_PROMPT);
    r->n_samples = sim_percent(s, 75) ? 1 : 1 + sim_below(s, SIM_SAMPLES);
    r->max_new = 1 + sim_below(s, SIM_NEW);
    r->tag = ++s->n_tags;
    const uint32_t same = sim_percent(s, 70) ? r->prompt : sim_below(s, r->prompt);
    for (uint32_t i = 0; i < r->prompt; i++) {
        r->text[0][i] = i < same ? document[i] : (int32_t)sim_below(s, 3);
    }
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
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = r->text[0], .n_tokens = r->prompt, .tag = r->tag};
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
        s->seen[SIM_hits] += info.cached_tokens > 0;
        s->seen[SIM_states_hit] += info.cached_tokens > 0 && s->states.n > 0;
        (void)sim_ok(s, "kvp_spill_hit",
                     kvp_spill_hit(s->spill, sample.seq, info.cached_tokens, s->now));
    }
}

static void take_copies(sim *s)
{
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sim_ok(
            s, "kvp_step_begin",
            kvp_step_begin(s->cache, s->copies, SIM_COPIES, &s->n_copies, &s->step_number));
    } else {
        s->n_plans++;
        (void)sim_ok(s, "kvp_plan_take",
                     kvp_plan_take(s->cache, s->copies, SIM_COPIES, &s->n_copies));
    }
    (void)sim_ok(s, "kvp_spill_copies",
                 kvp_spill_copies(s->spill, s->store_copies, SIM_STATES, &s->n_store_copies));
}

static void run_copies(sim *s)
{
    if (!sched_memory_copy(&s->memory, s->copies, s->n_copies) ||
        !sched_states_copy(&s->states, s->copies, s->n_copies) ||
        !sched_states_copy(&s->states, s->store_copies, s->n_store_copies)) {
        verdict_bad(&s->verdict, "a copy of a plan is none");
    }
}

/* The plan runs, then the pass of those that are still here: first all write KV, then all read it;
 * states are read before any is written. */
static void run_work(sim *s)
{
    run_copies(s);
    for (int is_reading = 0; is_reading < 2; is_reading++) {
        for (uint32_t i = 0; i < s->step.n_seqs; i++) {
            if (!sim_pass(s, i, is_reading != 0)) {
                return;
            }
        }
    }
}

static void report_work(sim *s)
{
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sim_ok(s, "kvp_step_done", kvp_step_done(s->cache, s->step_number, NULL));
    } else {
        (void)sim_ok(s, "kvp_plan_done", kvp_plan_done(s->cache, s->n_plans));
    }
}

static void next_step(sim *s)
{
    if (!sim_ok(s, "kvp_sched_step", kvp_sched_step(s->sched, &s->step))) {
        return;
    }
    take_copies(s);
    note_ended(s, s->step.ended, s->step.n_ended);
    note_admitted(s);
    s->seen[SIM_preempted] += s->step.n_preempted;
    s->seen[SIM_swapped] += s->step.n_swapped_in;
    sim_tell(s);
    s->is_out = s->step.n_seqs > 0;
    if (!s->is_out) {
        run_work(s);
        report_work(s);
    }
}

static uint32_t sample_all(sim *s, int32_t *tokens, uint8_t *ended)
{
    sched_sampled of[SIM_RUNNING * SIM_SAMPLES];
    const uint32_t n = sched_sampled_of(&s->step, of, SIM_RUNNING * SIM_SAMPLES);
    for (uint32_t i = 0; i < n; i++) {
        sim_request *r = sim_find(s, of[i].request);
        tokens[i] = (int32_t)sim_below(s, 3);
        ended[i] = sim_percent(s, 4);
        if (r != NULL && !r->has_ended[of[i].sample]) {
            r->text[of[i].sample][r->n[of[i].sample]++] = tokens[i];
        }
    }
    return n;
}

static void finish_step(sim *s)
{
    int32_t tokens[SIM_RUNNING * SIM_SAMPLES];
    uint8_t ended[SIM_RUNNING * SIM_SAMPLES];
    kvp_step_end end;
    run_work(s);
    report_work(s);
    sim_spill_reports(s);
    const uint32_t n = sample_all(s, tokens, ended);
    if (sim_ok(s, "kvp_sched_finish",
               kvp_sched_finish(s->sched, n > 0 ? tokens : NULL, ended, &end))) {
        note_ended(s, end.ended, end.n_ended);
    }
    sim_spill_reports(s);
    s->is_out = false;
}

void sim_advance(sim *s)
{
    if (s->is_out) {
        finish_step(s);
    } else {
        next_step(s);
    }
}

/* Of a step that fails, ordered ones have run their plan. */
void sim_fail(sim *s)
{
    if (!s->is_out) {
        return;
    }
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sched_memory_spoil(&s->memory, s->copies, s->n_copies);
        (void)sim_ok(s, "kvp_step_failed",
                     kvp_step_failed(s->cache, s->step_number, NULL, 0, NULL));
    } else {
        run_copies(s);
        sim_spoil_states(s);
        report_work(s);
    }
    (void)sim_ok(s, "kvp_sched_fail", kvp_sched_fail(s->sched));
    s->is_out = false;
    s->seen[SIM_failed_steps]++;
}

/* See drive_sched.h. */
#include "drive_sched.h"

#include "sched_memory.h"
#include "start_sched.h"

#include <kvpager/sched.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHED_REQUESTS = 10, SCHED_SAMPLES = 4, SCHED_TOKENS = 512, SCHED_OWN = 3 };

/* A request: its samples' tokens, prompt and generated. */
typedef struct job {
    bool is_open;
    kvp_request handle;
    uint32_t n_samples;
    uint32_t prompt_tokens;
    bool has_ended[SCHED_SAMPLES];
    truth_line lines[SCHED_SAMPLES];
    int32_t *prompt; /* [prompt_tokens] lent to the scheduler, as are the keys */
    kvp_key keys[TRUTH_KEYS];
    truth_key key_bytes[TRUTH_KEYS];
    uint32_t n_keys;
    bool is_held; /* as for a store */
    uint64_t held_until;
} job;

typedef struct sched_drive {
    drive base;
    kvp_sched *sched;
    kvp_sched_config config;
    job jobs[SCHED_REQUESTS];
    kvp_step step; /* that is out */
    work_step *work;
    bool is_out;
    work_step *own[SCHED_OWN]; /* [n_own] steps of the engine's own, which are out, too */
    uint32_t n_own;
    uint64_t hits_before_flush; /* tokens, until the namespace was flushed first */
    bool has_flushed;
    bool sampled_last;    /* the last thing that happened was a finish */
    uint64_t hold_random; /* of holds: without them everything else is as it was */
    uint64_t now;         /* the engine's clock */
} sched_drive;

static bool percent(sched_drive *d, uint32_t p)
{
    return random_percent(&d->base.random, p);
}

static uint32_t below(sched_drive *d, uint64_t n)
{
    return random_below(&d->base.random, n);
}

static uint32_t below_of_holds(sched_drive *d, uint64_t n)
{
    return random_below(&d->hold_random, n);
}

/* Whether a call on the scheduler went well; the scheduler is audited, too. */
static bool went(sched_drive *d, const char *call, kvp_status status, const kvp_status *also,
                 size_t n_also)
{
    kvp_violation violation;
    if (kvp_sched_check(d->sched, &violation) != KVP_OK) {
        verdict_bad(d->base.verdict, "kvp_sched_check: %s of %" PRIu64 ": %s", violation.invariant,
                    violation.object, violation.detail);
    }
    return drive_went(&d->base, call, status, also, n_also);
}

/* ---------------------------------------------------------------------------- jobs and subjects */

static job *find_job(sched_drive *d, kvp_request handle)
{
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++)
        if (d->jobs[i].is_open && d->jobs[i].handle.bits == handle.bits)
            return &d->jobs[i];
    return NULL;
}

static job *pick_job(sched_drive *d)
{
    const uint32_t first = below(d, SCHED_REQUESTS);
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++) {
        job *j = &d->jobs[(first + i) % SCHED_REQUESTS];
        if (j->is_open)
            return j;
    }
    return NULL;
}

static void end_job(job *j)
{
    for (uint32_t i = 0; i < j->n_samples; i++)
        truth_line_end(&j->lines[i]);
    free(j->prompt);
    memset(j, 0, sizeof(*j));
}

/* The sequence of a sample, with as many of its tokens as the cache has. */
static void sync_sample(sched_drive *d, const job *j, uint32_t sample)
{
    watch *w = d->base.w;
    kvp_sample_info info;
    kvp_seq_info seq;
    const kvp_status status = kvp_request_sample(d->sched, j->handle, sample, &info);
    if (status != KVP_OK || info.n_tokens != j->lines[sample].n) {
        verdict_bad(d->base.verdict,
                    "kvp_request_sample: %s, %" PRIu32 " tokens, should be %" PRIu32,
                    kvp_status_name(status), info.n_tokens, j->lines[sample].n);
        return;
    }
    if (info.seq.bits == 0 || kvp_seq_info_get(w->cache, info.seq, &seq) != KVP_OK)
        return;
    subject *s = watch_find(w, info.seq);
    if (s == NULL) {
        s = watch_new_subject(w, info.seq, "");
        if (s == NULL)
            return;
        drive_trace(&d->base, "sequence #%" PRIu64 " is sample %" PRIu32 " of request %" PRIx64,
                    s->serial, sample, j->handle.bits);
    }
    if (seq.n_tokens > j->lines[sample].n) {
        verdict_bad(d->base.verdict, "a sequence has more tokens than its sample");
        return;
    }
    truth_line_copy(&w->truth, &s->line, &j->lines[sample], seq.n_tokens);
    s->known = seq.known_tokens;
    s->scheduled = seq.computed_tokens;
    s->is_swapped = seq.tier == KVP_HOST;
}

static void forget_closed(sched_drive *d)
{
    watch *w = d->base.w;
    for (uint32_t i = 0; i < w->n_subjects; i++) {
        kvp_seq_info info;
        subject *s = &w->subjects[i];
        if (s->is_open && kvp_seq_info_get(w->cache, s->handle, &info) != KVP_OK) {
            drive_cut(&d->base, s, 0);
            watch_end_subject(w, s);
        }
    }
}

/* Know every sequence that is open, and no other. */
static void sync_subjects(sched_drive *d)
{
    forget_closed(d);
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++) {
        for (uint32_t k = 0; d->jobs[i].is_open && k < d->jobs[i].n_samples; k++)
            if (!d->jobs[i].has_ended[k])
                sync_sample(d, &d->jobs[i], k);
    }
}

/* -------------------------------------------------------------------------------------- submit */

static void set_up(sched_drive *d, job *j, const drive_stream *stream)
{
    const uint32_t n = j->prompt_tokens;
    j->prompt = random_allocate(n, sizeof(*j->prompt));
    memcpy(j->prompt, stream->tokens, n * sizeof(*j->prompt));
    for (uint32_t i = percent(d, 30) ? below(d, n) : n; i < n; i++)
        j->prompt[i] = (int32_t)below(d, d->base.alphabet);
    for (uint32_t i = 0; i < stream->keys.n_keys; i++) {
        if (stream->keys.keys[i].end <= n) {
            truth_key *key = &j->key_bytes[j->n_keys];
            *key = stream->keys.keys[i];
            j->keys[j->n_keys++] =
                (kvp_key){key->type, key->begin, key->end, key->n_bytes, key->bytes};
        }
    }
    for (uint32_t k = 0; k < j->n_samples; k++) {
        truth_line *line = &j->lines[k];
        truth_line_begin(&d->base.w->truth, line, "", d->base.w->config.max_seq_tokens);
        memcpy(line->keys, j->key_bytes, sizeof(line->keys));
        line->n_keys = j->n_keys;
        for (uint32_t i = 0; i < n; i++)
            truth_line_add(&d->base.w->truth, line, j->prompt[i]);
    }
}

static void submit_op(sched_drive *d)
{
    static const kvp_status also[] = {KVP_E_TOO_LONG, KVP_E_NEVER, KVP_E_NO_SEQS, KVP_E_NO_BLOCKS};
    const uint32_t most = d->base.w->config.max_seq_tokens;
    job *j = NULL;
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++)
        j = d->jobs[i].is_open ? j : &d->jobs[i];
    if (j == NULL || most < 2)
        return;
    j->n_samples = percent(d, 60) ? 1 : 1 + below(d, SCHED_SAMPLES);
    if (j->n_samples > d->config.max_running)
        j->n_samples = d->config.max_running;
    if (j->n_samples * d->base.w->config.n_groups > d->base.w->config.max_copies)
        j->n_samples = 1; /* forks copy a block of each group at once */
    j->prompt_tokens = 1 + below(d, percent(d, 60) ? (most + 1) / 2 : most - 1);
    set_up(d, j, &d->base.streams[below(d, DRIVE_STREAMS)]);
    const kvp_prompt prompt = {.struct_size = sizeof(prompt),
                               .tokens = j->prompt,
                               .n_tokens = j->prompt_tokens,
                               .n_keys = j->n_keys,
                               .keys = j->keys};
    const kvp_submission submission = {.struct_size = sizeof(submission),
                                       .prompt = &prompt,
                                       .ns = d->base.spaces[0],
                                       .priority = percent(d, 30) ? (int32_t)below(d, 3) - 1 : 0,
                                       .n_samples = j->n_samples,
                                       .max_new_tokens = 1 + below(d, most - j->prompt_tokens),
                                       .flags = percent(d, 50) ? KVP_SUBMIT_BORROW : 0};
    const kvp_status status = kvp_sched_submit(d->sched, &submission, &j->handle, NULL);
    if (!went(d, "kvp_sched_submit", status, also, sizeof(also) / sizeof(*also))) {
        end_job(j);
        return;
    }
    j->is_open = true;
    d->base.seen->points[COVER_keyed_prompts] += j->n_keys > 0;
    drive_trace(&d->base,
                "submit %" PRIx64 ": prompt %" PRIu32 ", new %" PRIu32 ", samples %" PRIu32,
                j->handle.bits, j->prompt_tokens, submission.max_new_tokens, j->n_samples);
}

/* ---------------------------------------------------------------------------------------- steps */

static void note_ended(sched_drive *d, const kvp_ended *ended, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        job *j = find_job(d, ended[i].request);
        if (j == NULL) {
            verdict_bad(d->base.verdict, "a request ended that is not here");
            return;
        }
        if (ended[i].reason == KVP_END_REFUSED) { /* nobody interferes */
            verdict_bad(d->base.verdict, "a request of %" PRIu32 " samples was refused: %s",
                        j->n_samples, kvp_status_name((kvp_status)ended[i].status));
        }
        for (uint32_t k = 0; k < j->n_samples; k++) {
            j->has_ended[k] =
                j->has_ended[k] || ended[i].sample == k || ended[i].sample == KVP_ALL_SAMPLES;
        }
        drive_trace(&d->base, "request %" PRIx64 " sample %" PRId32 " ended", ended[i].request.bits,
                    (int32_t)ended[i].sample);
        if (ended[i].is_last) {
            end_job(j);
            d->base.seen->points[COVER_requests_ended]++;
        }
    }
}

/* Requests of several samples that will fork them at a prompt's end that windows have passed. */
static void note_preempted(sched_drive *d)
{
    uint64_t *points = d->base.seen->points;
    points[COVER_recomputed] += d->step.n_preempted;
    for (uint32_t i = 0; i < d->step.n_preempted; i++) {
        const job *j = find_job(d, d->step.preempted[i]);
        uint32_t n = 0;
        for (uint32_t k = 0; j != NULL && k < j->n_samples; k++) {
            n += !j->has_ended[k] &&
                 j->lines[k].n > j->prompt_tokens + d->base.w->config.block_tokens;
        }
        points[COVER_recomputed_behind_windows] += n > 1 && drive_has_windows(&d->base.w->config);
    }
}

/* One of the engine's own steps is done, if it is finished: any of them. */
static void end_own(sched_drive *d, uint32_t i)
{
    work_step *step = d->own[i];
    if (!step->is_finished)
        return;
    const kvp_status status = kvp_step_done(d->base.w->cache, step->number, NULL);
    (void)went(d, "kvp_step_done", status, NULL, 0);
    drive_trace(&d->base, "own step %" PRIu64 " done", step->number);
    device_remove(&d->base.w->device, step);
    d->own[i] = d->own[--d->n_own];
}

static void end_all_own(sched_drive *d)
{
    device_drain(&d->base.w->device);
    while (d->n_own > 0)
        end_own(d, 0);
}

/* With overlapped steps: a step without sequences, which takes what is in the plan, or the end of
 * one. A step that has been reported counts until those before it are. */
static void own_op(sched_drive *d)
{
    watch *w = d->base.w;
    if (d->n_own > 0 && percent(d, 50)) {
        end_own(d, below(d, d->n_own));
    } else if (w->overlapped && d->n_own < SCHED_OWN &&
               watch_stats(w).steps_out < w->config.max_steps_out) {
        work_step *step;
        forget_closed(d);
        if (went(d, "kvp_step_begin", watch_submit(w, NULL, 0, &step), NULL, 0)) {
            step->is_safe = true;
            d->own[d->n_own++] = step;
            drive_trace(&d->base, "own step %" PRIu64 ": %" PRIu32 " copies", step->number,
                        step->n_copies);
        }
    }
}

static void make_step(sched_drive *d)
{
    watch *w = d->base.w;
    if (w->overlapped && watch_stats(w).steps_out == w->config.max_steps_out)
        end_all_own(d);
    if (!went(d, "kvp_sched_step", kvp_sched_step(d->sched, &d->step), NULL, 0))
        return;
    d->sampled_last = false;
    d->base.seen->points[COVER_waits_for_prefix] += d->step.waited[KVP_WAIT_PREFIX];
    note_preempted(d);
    note_ended(d, d->step.ended, d->step.n_ended);
    sync_subjects(d);
    work_item *items = random_allocate(d->step.n_seqs, sizeof(*items));
    for (uint32_t i = 0; i < d->step.n_seqs; i++) {
        const kvp_step_seq *part = &d->step.seqs[i];
        subject *s = watch_find(w, part->seq);
        const kvp_range range = {part->begin, part->begin + part->n_tokens};
        const job *j = find_job(d, part->request);
        if (s == NULL)
            verdict_bad(d->base.verdict, "a step has a sequence that no sample has");
        if (j == NULL || j->is_held)
            verdict_bad(d->base.verdict, "a step has a request that is held, or not here");
        if (s == NULL || !watch_make_item(w, s, range, &items[i])) {
            device_free_items(items, i);
            return;
        }
        if (s->scheduled < range.end)
            s->scheduled = range.end;
    }
    if (!went(d, "kvp_step_begin", watch_submit(w, items, d->step.n_seqs, &d->work), NULL, 0)) {
        device_free_items(items, d->step.n_seqs);
        return;
    }
    d->work->is_safe = d->step.n_seqs == 0;
    if (d->base.has_failures && !d->base.options.sweeps && d->step.n_seqs > 0 && percent(d, 10)) {
        d->work->fails = true;
        d->work->fail_after = w->overlapped ? below(d, d->work->n_copies + 2) : UINT32_MAX;
    }
    drive_trace(&d->base, "step %" PRIu64 ": %" PRIu32 " copies, %" PRIu32 " sequences%s",
                d->work->number, d->work->n_copies, d->step.n_seqs,
                d->work->fails ? ", will fail" : "");
    d->base.seen->points[COVER_three_steps_out] += watch_stats(w).steps_out >= 3;
    d->is_out = true;
}

/* Sampled tokens: the streams go on, mostly. */
static int32_t draw_token(sched_drive *d, uint32_t position)
{
    const drive_stream *stream = &d->base.streams[below(d, 2)];
    return percent(d, 80) ? stream->tokens[position] : (int32_t)below(d, d->base.alphabet);
}

/* The tokens that the step samples: they are the samples' now, of those that are still here. */
static void draw_sampled(sched_drive *d, int32_t *tokens, uint8_t *ended)
{
    sched_sampled of[SCHED_TOKENS];
    const uint32_t n = sched_sampled_of(&d->step, of, SCHED_TOKENS);
    for (uint32_t i = 0; i < n; i++) {
        job *j = find_job(d, of[i].request);
        tokens[i] = (int32_t)below(d, d->base.alphabet);
        ended[i] = percent(d, 4);
        if (j != NULL && !j->has_ended[of[i].sample]) {
            truth_line *line = &j->lines[of[i].sample];
            tokens[i] = draw_token(d, line->n);
            truth_line_add(&d->base.w->truth, line, tokens[i]);
        }
    }
}

static void reclaim_ahead(sched_drive *d)
{
    uint32_t n = 0;
    (void)went(d, "kvp_sched_reclaim", kvp_sched_reclaim(d->sched, &n), NULL, 0);
    d->base.seen->points[COVER_reclaimed] += n;
}

static void finish_step(sched_drive *d)
{
    static int32_t tokens[SCHED_TOKENS];
    static uint8_t ended[SCHED_TOKENS];
    kvp_step_end end = {0, NULL};
    if (d->base.w->overlapped) {
        const kvp_status status = kvp_step_done(d->base.w->cache, d->work->number, NULL);
        (void)went(d, "kvp_step_done", status, NULL, 0);
    }
    if (d->step.n_seqs > 0) {
        draw_sampled(d, tokens, ended);
        reclaim_ahead(d);
        (void)went(d, "kvp_sched_finish", kvp_sched_finish(d->sched, tokens, ended, &end), NULL, 0);
        note_ended(d, end.ended, end.n_ended);
    }
    d->sampled_last = d->step.n_sampled > 0;
}

static void fail_step(sched_drive *d)
{
    d->base.seen->points[COVER_failed_steps]++;
    if (d->base.w->overlapped) {
        const kvp_status status = kvp_step_failed(d->base.w->cache, d->work->number, NULL, 0, NULL);
        /* The scheduler is told next: its own audit would find it behind. */
        (void)drive_went(&d->base, "kvp_step_failed", status, NULL, 0);
    }
    (void)went(d, "kvp_sched_fail", kvp_sched_fail(d->sched), NULL, 0);
    device_told(&d->base.w->device, d->work->number);
}

static void end_step(sched_drive *d)
{
    device_drain(&d->base.w->device);
    if (d->work->fails && d->base.w->device.planted != PLANT_FORGOTTEN_STEP) {
        fail_step(d);
    } else {
        d->base.w->device.n_planted += d->work->fails;
        finish_step(d);
    }
    drive_trace(&d->base, "step %" PRIu64 " %s", d->work->number,
                d->work->fails ? "failed" : "done");
    device_remove(&d->base.w->device, d->work);
    d->is_out = false;
    sync_subjects(d);
}

/* --------------------------------------------------------------------------- at any other time */

static void pause_op(sched_drive *d)
{
    job *j = pick_job(d);
    if (j == NULL)
        return;
    if (percent(d, 40)) {
        d->base.seen->points[COVER_paused]++;
        (void)went(d, "kvp_sched_pause", kvp_sched_pause(d->sched, j->handle), NULL, 0);
        j->is_held = false;
    } else {
        (void)went(d, "kvp_sched_resume", kvp_sched_resume(d->sched, j->handle), NULL, 0);
    }
}

static void abort_op(sched_drive *d)
{
    job *j = pick_job(d);
    if (j != NULL) {
        d->base.seen->points[COVER_aborted]++;
        d->base.seen->points[COVER_aborted_while_out] += d->is_out;
        drive_trace(&d->base, "abort %" PRIx64, j->handle.bits);
        if (went(d, "kvp_sched_abort", kvp_sched_abort(d->sched, j->handle), NULL, 0))
            end_job(j);
    }
}

/* Beam search: samples become copies of others, with other newest tokens. */
static void reorder_op(sched_drive *d)
{
    static const kvp_status also[] = {KVP_E_STATE};
    uint32_t parents[SCHED_SAMPLES];
    int32_t tokens[SCHED_SAMPLES];
    truth_line lines[SCHED_SAMPLES];
    truth *t = &d->base.w->truth;
    job *j = pick_job(d);
    if (j == NULL || j->n_samples < 2 || d->is_out || !d->sampled_last)
        return;
    for (uint32_t k = 0; k < j->n_samples; k++) {
        parents[k] = below(d, j->n_samples);
        if (j->has_ended[k] || j->has_ended[parents[k]] || j->lines[k].n == j->prompt_tokens)
            return;
        tokens[k] = draw_token(d, j->lines[k].n - 1);
    }
    if (!went(d, "kvp_sched_reorder", kvp_sched_reorder(d->sched, j->handle, parents, tokens), also,
              1))
        return;
    d->base.seen->points[COVER_beams]++;
    for (uint32_t k = 0; k < j->n_samples; k++) {
        const truth_line *from = &j->lines[parents[k]];
        truth_line_begin(t, &lines[k], "", d->base.w->config.max_seq_tokens);
        truth_line_copy(t, &lines[k], from, from->n - 1);
        truth_line_add(t, &lines[k], tokens[k]);
    }
    for (uint32_t k = 0; k < j->n_samples; k++) {
        truth_line_end(&j->lines[k]);
        j->lines[k] = lines[k];
    }
    /* A handle may have gone to another sample. */
    for (uint32_t i = 0; i < d->base.w->n_subjects; i++)
        watch_end_subject(d->base.w, &d->base.w->subjects[i]);
    sync_subjects(d);
    drive_trace(&d->base, "reorder %" PRIx64, j->handle.bits);
}

/* Waiting requests that nothing is decided about: some are held, for a while. */
static void decide_op(sched_drive *d)
{
    static const kvp_status also[] = {KVP_E_AGAIN};
    kvp_request found[SCHED_REQUESTS];
    uint32_t n = 0;
    (void)went(d, "kvp_sched_loadable",
               kvp_sched_loadable(d->sched, 1 + below_of_holds(d, SCHED_REQUESTS), found, &n), NULL,
               0);
    for (uint32_t i = 0; i < n; i++) {
        job *j = find_job(d, found[i]);
        const uint32_t what = below_of_holds(d, 4);
        if (j == NULL || j->is_held) {
            verdict_bad(d->base.verdict, "a request may be held that is, or is not here");
        } else if (what == 0) {
            (void)went(d, "kvp_sched_skip_load", kvp_sched_skip_load(d->sched, found[i]), NULL, 0);
        } else if (what < 3) {
            const uint64_t until = d->now + below_of_holds(d, 8);
            const kvp_status status = kvp_sched_hold(d->sched, found[i], until);
            j->is_held = went(d, "kvp_sched_hold", status, also, 1);
            j->held_until = until;
            d->base.seen->points[COVER_requests_held] += j->is_held;
        }
    }
}

static void tick_op(sched_drive *d)
{
    kvp_sched_expired expired = {0};
    d->now += below_of_holds(d, 3);
    (void)went(d, "kvp_sched_tick", kvp_sched_tick(d->sched, d->now, &expired), NULL, 0);
    for (uint32_t i = 0; i < expired.n_requests; i++) {
        job *j = find_job(d, expired.requests[i]);
        if (j == NULL || !j->is_held) {
            verdict_bad(d->base.verdict, "a hold ended that had not begun");
            return;
        }
        j->is_held = false;
        d->base.seen->points[COVER_held_past_deadline]++;
    }
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++)
        if (d->jobs[i].is_open && d->jobs[i].is_held && d->jobs[i].held_until <= d->now)
            verdict_bad(d->base.verdict, "a request is held past its deadline");
}

/* Loads (drive_lend.c) come and go beside the holds; the engine ends a hold when it likes. */
static void loading_op(sched_drive *d)
{
    const uint32_t what = below_of_holds(d, 10);
    if (what < 3) {
        decide_op(d);
    } else if (what < 5) {
        tick_op(d);
    } else if (what < 9) {
        drive_lend_op(&d->base);
    } else {
        job *j = &d->jobs[below_of_holds(d, SCHED_REQUESTS)];
        if (j->is_open && j->is_held) {
            (void)went(d, "kvp_sched_release", kvp_sched_release(d->sched, j->handle), NULL, 0);
            j->is_held = false;
        }
    }
}

static void audit(sched_drive *d)
{
    watch *w = d->base.w;
    if (w->overlapped)
        watch_audit_attached(w);
    if (w->device.n_steps == 0 && watch_stats(w).pending_copies == 0) {
        sync_subjects(d);
        watch_audit_attached(w);
        watch_audit_computed(w);
    }
}

static void flush_op(sched_drive *d)
{
    if (!d->has_flushed) {
        d->hits_before_flush = watch_stats(d->base.w).cached_tokens;
        d->has_flushed = true;
    }
    d->base.seen->points[COVER_flushed]++;
    (void)went(d, "kvp_ns_flush", kvp_ns_flush(d->base.w->cache, d->base.spaces[0]), NULL, 0);
}

static void one_op(sched_drive *d)
{
    if (d->config.max_loading > 0 && random_percent(&d->hold_random, 25)) {
        loading_op(d);
        audit(d);
        return;
    }
    const uint32_t what = below(d, 100);
    if (what < 20) {
        submit_op(d);
    } else if (what < 26) {
        pause_op(d);
    } else if (what < 28) {
        abort_op(d);
    } else if (what < 29) {
        flush_op(d);
    } else if (what < 36) {
        reorder_op(d);
    } else if (what < 42) {
        own_op(d);
    } else if (!d->is_out) {
        make_step(d);
    } else if (what < 80) {
        for (uint32_t moves = below(d, 20); moves > 0 && device_move(&d->base.w->device); moves--) {
        }
    } else {
        end_step(d);
    }
    audit(d);
}

/* ---------------------------------------------------------------------------------- a whole run */

static bool make_sched(sched_drive *d)
{
    const kvp_config *config = &d->base.w->config;
    kvp_sched_config *c = &d->config;
    const uint32_t most =
        config->max_seqs < config->max_copies ? config->max_seqs : config->max_copies;
    kvp_sched_config_init(c);
    c->max_requests = SCHED_REQUESTS;
    c->max_samples = SCHED_REQUESTS * SCHED_SAMPLES;
    c->max_running = 1 + below(d, most);
    c->step_tokens = c->max_running + below(d, 60);
    c->chunk_tokens = percent(d, 40) ? 1 + below(d, 8) : 0;
    c->max_passed_over = below(d, 5);
    c->max_tries = 1 + below(d, 4);
    c->preempt = below(d, KVP_PREEMPT_CHEAPER + 1);
    c->swap_ahead = percent(d, 30);
    c->make_way = c->max_tries % 2;
    c->swap_cost = below(d, 20);
    c->swap_block_cost = below(d, 5);
    c->recompute_token_cost = below(d, 3);
    c->arena_tokens = percent(d, 25) ? 256 : 16384;
    d->hold_random = d->base.options.seed * 0xbf58476d1ce4e5b9u + d->base.options.index;
    c->max_loading = below_of_holds(d, 2) * (1 + below_of_holds(d, 4));
    c->wait_for_prefix = below_of_holds(d, 2);
    c->free_target = below_of_holds(d, 2) * ((d->base.w->config.n_blocks - 1 + 63) / 64);
    const kvp_status status = kvp_sched_create(c, d->base.w->cache, NULL, 0, &d->sched);
    if (status != KVP_OK || kvp_ns_open(d->base.w->cache, "", 0, &d->base.spaces[0]) != KVP_OK) {
        verdict_bad(d->base.verdict, "kvp_sched_create: %s", kvp_status_name(status));
        return false;
    }
    d->base.space_open[0] = true;
    start_sched(d->sched);
    return true;
}

/* Everything ends, and every block comes back. */
static void wind_up(sched_drive *d)
{
    if (d->is_out)
        end_step(d);
    end_all_own(d);
    if (d->has_flushed) {
        d->base.seen->points[COVER_hits_after_flush] +=
            watch_stats(d->base.w).cached_tokens - d->hits_before_flush;
    }
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++) {
        if (d->jobs[i].is_open) {
            (void)went(d, "kvp_sched_abort", kvp_sched_abort(d->sched, d->jobs[i].handle), NULL, 0);
            end_job(&d->jobs[i]);
        }
    }
    const kvp_stats stats = watch_stats(d->base.w);
    if (stats.held_blocks > 0 || stats.parked_blocks > 0 || stats.open_seqs > 0) {
        verdict_bad(d->base.verdict,
                    "after all were aborted %" PRIu64 " blocks are held, %" PRIu64
                    " parked, %" PRIu64 " sequences open",
                    stats.held_blocks, stats.parked_blocks, stats.open_seqs);
    }
}

bool drive_sched_run(const drive_options *options, verdict *v, coverage *seen)
{
    sched_drive d = {.base = {.verdict = v, .seen = seen}};
    if (!drive_begin(&d.base, options))
        return false;
    if (make_sched(&d)) {
        while (d.base.n_ops < options->ops && !v->is_bad) {
            d.base.n_ops++;
            one_op(&d);
        }
        if (!v->is_bad)
            wind_up(&d);
    }
    for (uint32_t i = 0; i < SCHED_REQUESTS; i++)
        if (d.jobs[i].is_open)
            end_job(&d.jobs[i]);
    kvp_sched_destroy(d.sched);
    drive_end(&d.base);
    return !v->is_bad;
}

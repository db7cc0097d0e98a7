/* See drive.h: steps, commits, reports, failures. */
#include "drive.h"

#include <inttypes.h>
#include <stdlib.h>

static bool percent(drive *d, uint32_t p)
{
    return random_percent(&d->random, p);
}

static uint32_t below(drive *d, uint64_t n)
{
    return random_below(&d->random, n);
}

static void raise_to(uint32_t *value, uint32_t other)
{
    if (*value < other)
        *value = other;
}

/* -------------------------------------------------------------------------------------- reports */

/* Whether a step before this one is not finished, or was not finished well, for this sequence: its
 * pass need not have seen that. */
static bool rests_on_other(const drive *d, uint32_t index, uint64_t serial)
{
    for (uint32_t e = 0; e < index; e++) {
        const work_step *step = d->w->device.steps[e];
        for (uint32_t k = 0; k < step->n_items; k++)
            if (step->items[k].serial == serial &&
                (!step->is_finished || step->fails || step->items[k].garbage != 0))
                return true;
    }
    return false;
}

/* What the device has finished, and what it finished well, may be committed. */
static void learn_finished(drive *d)
{
    for (uint32_t i = 0; i < d->w->device.n_steps; i++) {
        const work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++) {
            const work_item *item = &step->items[k];
            const subject *s = watch_find_serial(d->w, item->serial);
            if (step->is_finished && !step->fails && item->garbage == 0 && s != NULL &&
                !rests_on_other(d, i, item->serial))
                raise_to(drive_finished(d, s), item->commit_to);
        }
    }
}

void drive_invalidate(drive *d, subject *s, uint32_t from)
{
    kvp_seq sharers[DRIVE_MEMBERS];
    uint32_t n = 0;
    if (s->is_swapped) { /* it cannot be asked to forget a part */
        drive_close_now(d, s);
        return;
    }
    const kvp_status status =
        kvp_seq_invalidate(d->w->cache, s->handle, from, sharers, DRIVE_MEMBERS, &n);
    if (!drive_went(d, "kvp_seq_invalidate", status, NULL, 0))
        return;
    drive_trace(d, "invalidate #%" PRIu64 " from %" PRIu32 ", %" PRIu32 " sharers", s->serial, from,
                n);
    drive_drop_tree(d, s);
    drive_cut(d, s, from);
    s->may_lack = true;
    d->seen->points[COVER_invalidated]++;
    for (uint32_t i = 0; i < n; i++) {
        subject *other = watch_find(d->w, sharers[i]);
        d->seen->points[COVER_sharers_reported]++;
        if (other == NULL)
            verdict_bad(d->verdict, "kvp_seq_invalidate reports a sequence that is not open");
        else if (other->is_swapped || watch_info(d->w, other).computed_tokens > from ||
                 other->scheduled > from)
            drive_invalidate(d, other, from);
    }
}

/* Forks that have the token at `from`, too, may have copied its KV: the cache does not know. */
static void invalidate_forks(drive *d, const subject *s, uint32_t from)
{
    for (uint32_t i = 0; i < d->w->n_subjects && from < s->line.n; i++) {
        subject *other = &d->w->subjects[i];
        if (other != s && other->is_open && other->group == s->group && other->line.n > from &&
            other->line.kv[from] == s->line.kv[from] &&
            watch_info(d->w, other).computed_tokens > from)
            drive_invalidate(d, other, from);
    }
}

/* A failed pass of an ordered engine: nothing more is submitted until it is put right. */
static void put_right(drive *d)
{
    device *dev = &d->w->device;
    device_drain(dev);
    learn_finished(d);
    for (uint32_t i = 0; i < dev->n_steps; i++) {
        const work_step *step = dev->steps[i];
        for (uint32_t k = 0; step->fails && k < step->n_items; k++) {
            const work_item *item = &step->items[k];
            subject *s = watch_find_serial(d->w, item->serial);
            /* Some of them may have been accepted: then they are tokens. */
            const bool has_nodes =
                item->end > item->base && s != NULL && (!item->is_cut || s->line.n > item->base);
            if (s != NULL && item->writes && (item->commit_to > 0 || has_nodes)) {
                const uint32_t from = item->begin < item->base ? item->begin : item->base;
                drive_trace(d, "step %" PRIu64 " failed for #%" PRIu64, step->number, s->serial);
                drive_invalidate(d, s, from);
                invalidate_forks(d, s, from);
            }
        }
    }
    while (dev->n_steps > 0) {
        if (dev->steps[0]->fails) {
            device_told(dev, dev->steps[0]->number);
            d->seen->points[COVER_failed_steps]++;
        }
        device_remove(dev, dev->steps[0]);
    }
}

/* Whether a later step is to commit this sequence, also one that is reported, but only noted, when
 * this step was not to do so itself: the cache cannot know that the one rests on the other. */
static bool is_declared_later(const work_step *step, const work_item *item, const subject *s)
{
    return s->declared > step->submitted && !item->is_declared;
}

/* What is left of a failed step's work has to be done again. */
static void cut_failed_items(drive *d, const work_step *step)
{
    for (uint32_t k = 0; k < step->n_items; k++) {
        const work_item *item = &step->items[k];
        subject *s = watch_find_serial(d->w, item->serial);
        if (s == NULL || !item->writes || item->commit_to <= item->begin)
            continue;
        const uint32_t begin = item->begin;
        if (is_declared_later(step, item, s) || percent(d, 10))
            drive_invalidate(d, s, begin);
        drive_cut(d, s, begin);
    }
}

/* Trees that went with a failed step are those of sequences that are reported. */
static void drop_failed_trees(drive *d, const kvp_seq *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvp_seq_info info;
        subject *s = watch_find(d->w, seqs[i]);
        if (s != NULL && kvp_seq_info_get(d->w->cache, seqs[i], &info) == KVP_OK && s->tree.n > 0 &&
            info.tree_tokens == 0) {
            drive_drop_tree(d, s);
            d->seen->points[COVER_trees_lost]++;
        }
    }
}

static void report_failed(drive *d, work_step *step)
{
    kvp_seq cut[DRIVE_MEMBERS];
    uint32_t computed[DRIVE_MEMBERS] = {0};
    uint32_t n = 0;
    cut_failed_items(d, step);
    for (uint32_t i = 0; i < d->w->n_subjects; i++) {
        const subject *s = &d->w->subjects[i];
        computed[i] = s->is_open ? watch_info(d->w, s).computed_tokens : 0;
    }
    d->seen->points[COVER_failed_steps]++;
    d->seen->points[COVER_failed_plans] += step->fail_after < step->n_copies;
    const kvp_status status = kvp_step_failed(d->w->cache, step->number, cut, DRIVE_MEMBERS, &n);
    drive_trace(d, "step %" PRIu64 " failed, %" PRIu32 " sequences cut", step->number, n);
    if (!drive_went(d, "kvp_step_failed", status, NULL, 0))
        return;
    d->seen->points[COVER_cut_by_failure] += n;
    drop_failed_trees(d, cut, n);
    for (uint32_t i = 0; i < n; i++) {
        subject *s = watch_find(d->w, cut[i]);
        if (s == NULL) {
            verdict_bad(d->verdict, "kvp_step_failed reports a sequence that is not open");
            return;
        }
        /* One that only lost its tree goes on: what steps that are out compute for it counts. */
        const uint32_t left = watch_info(d->w, s).computed_tokens;
        if (left < computed[s - d->w->subjects]) {
            drive_cut(d, s, left);
            s->may_lack = true;
        }
    }
    device_told(&d->w->device, step->number);
    device_remove(&d->w->device, step);
}

static void report_done(drive *d, work_step *step, bool is_early)
{
    uint64_t effective = 0;
    const kvp_status status = kvp_step_done(d->w->cache, step->number, &effective);
    drive_trace(d, "step %" PRIu64 " done, effective %" PRIu64, step->number, effective);
    if (!drive_went(d, "kvp_step_done", status, NULL, 0))
        return;
    d->seen->points[COVER_noted_steps] += effective < step->number;
    if (is_early) {
        step->is_reported = true;
        d->w->device.n_planted++;
    } else {
        device_remove(&d->w->device, step);
    }
}

/* One that is finished, in any order; planted: one that is not. */
static work_step *choose_report(drive *d, bool *out_early)
{
    device *dev = &d->w->device;
    const uint32_t first = below(d, dev->n_steps);
    *out_early = false;
    for (uint32_t i = 0; i < dev->n_steps; i++) {
        work_step *step = dev->steps[(first + i) % dev->n_steps];
        if (step->is_finished && step->is_reported) {
            device_remove(dev, step);
            return choose_report(d, out_early);
        }
        if (!step->is_finished && !step->is_reported && dev->planted == PLANT_EARLY_DONE) {
            *out_early = true;
            return step;
        }
        if (step->is_finished)
            return step;
    }
    return NULL;
}

bool drive_report(drive *d)
{
    device *dev = &d->w->device;
    bool is_early;
    learn_finished(d);
    work_step *step = choose_report(d, &is_early);
    if (step == NULL)
        return false;
    if (!d->w->overlapped) {
        if (step->fails)
            put_right(d);
        else
            device_remove(dev, step);
        return true;
    }
    if (step->fails && dev->planted == PLANT_FORGOTTEN_STEP) {
        dev->n_planted++;
        step->fails = false;
    }
    if (step->fails)
        report_failed(d, step);
    else
        report_done(d, step, is_early);
    watch_audit_attached(d->w);
    return true;
}

void drive_settle(drive *d)
{
    do {
        device_drain(&d->w->device);
        while (!d->verdict->is_bad && drive_report(d)) {}
    } while (d->w->device.n_steps > 0 && !d->verdict->is_bad);
}

bool drive_before_release(drive *d, const subject *s)
{
    const uint64_t serial = s->serial;
    if (!d->w->overlapped && d->has_failures)
        drive_settle(d);
    return s->is_open && s->serial == serial;
}

void drive_rest(drive *d)
{
    drive_settle(d);
    if (watch_stats(d->w).pending_copies > 0) {
        drive_flush_plan(d);
        drive_settle(d);
    }
    if (!d->verdict->is_bad && watch_stats(d->w).pending_copies == 0) {
        watch_audit_attached(d->w);
        watch_audit_computed(d->w);
        drive_trace(d, "at rest, audited");
    }
}

void drive_device_op(drive *d)
{
    for (uint32_t moves = 1 + below(d, 12); moves > 0 && device_move(&d->w->device); moves--) {}
    if (percent(d, 60))
        (void)drive_report(d);
    if (d->w->overlapped && percent(d, 30))
        watch_audit_attached(d->w);
}

/* -------------------------------------------------------------------------------------- commits */

void drive_commit_op(drive *d)
{
    subject *s = drive_pick(d, false);
    if (s == NULL)
        return;
    learn_finished(d);
    const uint32_t computed = watch_info(d->w, s).computed_tokens;
    const uint32_t most = d->w->overlapped ? *drive_finished(d, s) : s->scheduled;
    if (most > computed) {
        const uint32_t n = percent(d, 70) ? most : computed + 1 + below(d, most - computed);
        d->seen->points[COVER_late_commits]++;
        drive_trace(d, "commit #%" PRIu64 " to %" PRIu32, s->serial, n);
        (void)drive_went(d, "kvp_seq_commit", kvp_seq_commit(d->w->cache, s->handle, n), NULL, 0);
    }
}

/* What an ordered engine commits when it schedules, all at once or one by one. */
static void commit_now(drive *d, const work_step *step)
{
    kvp_seq seqs[DRIVE_MEMBERS];
    uint32_t counts[DRIVE_MEMBERS], n = 0;
    const bool one_by_one = percent(d, 50);
    for (uint32_t k = 0; k < step->n_items; k++) {
        const subject *s = watch_find_serial(d->w, step->items[k].serial);
        if (s == NULL || step->items[k].commit_to == 0 || percent(d, 30))
            continue;
        seqs[n] = s->handle;
        counts[n] = step->items[k].commit_to;
        drive_trace(d, "commit #%" PRIu64 " to %" PRIu32, s->serial, counts[n]);
        if (one_by_one) {
            (void)drive_went(d, "kvp_seq_commit", kvp_seq_commit(d->w->cache, seqs[n], counts[n]),
                             NULL, 0);
        } else {
            n++;
        }
    }
    if (n > 0) {
        (void)drive_went(d, "kvp_seq_commit_many",
                         kvp_seq_commit_many(d->w->cache, seqs, counts, n), NULL, 0);
    }
}

/* What an overlapped engine declares with the step. */
static void declare(drive *d, work_step *step)
{
    kvp_seq seqs[DRIVE_MEMBERS];
    uint32_t counts[DRIVE_MEMBERS];
    for (uint32_t calls = 1 + below(d, 2); calls > 0; calls--) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < step->n_items; k++) {
            work_item *item = &step->items[k];
            subject *s = watch_find_serial(d->w, item->serial);
            if (s == NULL || item->commit_to == 0 || percent(d, 40))
                continue;
            item->is_declared = true;
            s->declared = step->submitted;
            seqs[n] = s->handle;
            counts[n] = item->commit_to;
            counts[n] -= percent(d, 10) ? below(d, item->commit_to - item->begin) : 0;
            drive_trace(d, "declare #%" PRIu64 " to %" PRIu32 " with step %" PRIu64, s->serial,
                        counts[n], step->number);
            n++;
        }
        d->seen->points[COVER_declared_commits] += n;
        const kvp_status status = kvp_step_commit(d->w->cache, step->number, seqs, counts, n);
        (void)drive_went(d, "kvp_step_commit", status, NULL, 0);
    }
}

/* ---------------------------------------------------------------------------------------- steps */

static bool is_full(drive *d)
{
    return d->w->device.n_steps >= DEVICE_STEPS ||
           (d->w->overlapped ? watch_stats(d->w).steps_out >= d->w->config.max_steps_out
                             : d->w->device.n_steps >= d->max_queued);
}

void drive_make_room(drive *d)
{
    while (is_full(d) && !d->verdict->is_bad) {
        while (!drive_report(d) && device_move(&d->w->device)) {}
    }
}

void drive_submit(drive *d, work_item *items, uint32_t n_items)
{
    work_step *step;
    const kvp_status also[] = {KVP_E_NO_STEPS};
    const kvp_status status = watch_submit(d->w, items, n_items, &step);
    if (!drive_went(d, "kvp_step_begin", status, also, 1)) {
        device_free_items(items, n_items);
        return;
    }
    d->seen->points[COVER_three_steps_out] += watch_stats(d->w).steps_out >= 3;
    if (d->has_failures && !d->options.sweeps && percent(d, 10) &&
        (n_items > 0 || d->w->overlapped)) {
        step->fails = true;
        step->fail_after = d->w->overlapped ? below(d, step->n_copies + 2) : UINT32_MAX;
    }
    drive_trace(d, "step %" PRIu64 ": %" PRIu32 " copies, %" PRIu32 " sequences%s", step->number,
                step->n_copies, n_items, step->fails ? ", will fail" : "");
    for (uint32_t i = 0; i < step->n_copies && d->options.trace; i++) {
        const kvp_copy *copy = &step->copies[i];
        drive_trace(d, "  phase %" PRIu32 ": %c%" PRId32 " -> %c%" PRId32 ", %" PRIu32 " slots",
                    copy->phase, "dh"[copy->src_tier], copy -> src_block, "dh"[copy->dst_tier],
                    copy -> dst_block, copy -> n_tokens);
    }
    for (uint32_t i = 0; i < n_items; i++) {
        subject *s = watch_find_serial(d->w, items[i].serial);
        raise_to(&s->scheduled, items[i].end < s->line.n ? items[i].end : s->line.n);
        raise_to(&s->tree.scheduled,
                 items[i].end - (items[i].end < s->line.n ? items[i].end : s->line.n));
        drive_trace(d, "  #%" PRIu64 " computes [%" PRIu32 ", %" PRIu32 ")%s", s->serial,
                    items[i].begin, items[i].end, items[i].writes ? "" : ", writes nothing");
    }
    if (d->w->overlapped) {
        if (n_items > 0 && percent(d, 65))
            declare(d, step);
    } else if (n_items > 0 && percent(d, 75)) {
        commit_now(d, step);
    }
}

void drive_flush_plan(drive *d)
{
    drive_make_room(d);
    drive_submit(d, NULL, 0);
}

/* Choose what a sequence computes next, and make it possible. False: not now. */
static bool choose_range(drive *d, subject *s, kvp_range *out_range)
{
    const kvp_seq_info info = watch_info(d->w, s);
    kvp_range range = {s->scheduled, s->line.n};
    if (s->scheduled < s->line.n) {
        if (percent(d, 40))
            range.end = range.begin + 1 + below(d, range.end - range.begin);
    } else if (s->line.n > 0 && info.computed_tokens == s->line.n && percent(d, 15) &&
               !watch_lacks(d->w, s, s->line.n - 1)) {
        range.begin = s->line.n - 1; /* its KV is there: only its output is wanted */
    } else if (drive_extend(d, s, 1 + below(d, 3), percent(d, 20) ? below(d, 4) : 0)) {
        range = (kvp_range){s->scheduled, s->line.n};
    } else {
        return false;
    }
    if (watch_info(d->w, s).writable_tokens < range.end && !drive_extend(d, s, 0, 0))
        return false;
    if (watch_lacks(d->w, s, range.begin)) {
        drive_lacking(d, s, KVP_E_DROPPED);
        return false;
    }
    *out_range = range;
    return true;
}

void drive_step(drive *d, subject *first)
{
    subject *chosen[DRIVE_MEMBERS];
    kvp_range ranges[DRIVE_MEMBERS];
    work_item *items = random_allocate(DRIVE_MEMBERS, sizeof(*items));
    uint32_t n = 0, n_items = 0;
    if (!percent(d, 5))
        drive_make_room(d);
    for (uint32_t tries = 1 + below(d, 5); tries > 0; tries--) {
        subject *s = first != NULL ? first : drive_pick(d, false);
        first = NULL;
        for (uint32_t i = 0; i < n; i++)
            s = chosen[i] == s ? NULL : s;
        if (s != NULL && choose_range(d, s, &ranges[n]))
            chosen[n++] = s;
    }
    for (uint32_t i = 0; i < n; i++) {
        /* A plan that was full was flushed in between, and what that reported may have cut it. */
        subject *s = chosen[i];
        const bool is_whole = ranges[i].end <= s->line.n && s->is_open && !s->is_swapped &&
                              (ranges[i].begin == s->scheduled ||
                               (ranges[i].end == s->line.n && s->scheduled == s->line.n));
        if (is_whole && !watch_lacks(d->w, s, ranges[i].begin) &&
            watch_info(d->w, s).writable_tokens >= ranges[i].end &&
            watch_make_item(d->w, s, ranges[i], &items[n_items]))
            n_items++;
    }
    if (n_items == 0)
        free(items);
    else
        drive_submit(d, items, n_items);
}

void drive_step_op(drive *d)
{
    drive_step(d, NULL);
}

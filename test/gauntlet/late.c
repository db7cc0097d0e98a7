/* See late.h. */
#include "late.h"

#include <string.h>

kvp_config late_config(uint32_t usable, uint32_t host_usable)
{
    kvp_config config = rig_config(usable);
    config.steps = KVP_STEPS_OVERLAPPED;
    config.host_blocks = host_usable == 0 ? 0 : host_usable + 1;
    return config;
}

late late_begin(rig *r, const kvp_config *config, uint64_t seed)
{
    late l = {.r = r, .w = watch_create(config, true, seed, &r->verdict)};
    l.w->device.taste = (uint32_t)(seed % 3);
    l.w->device.planted = r->planted == RIG_SHORT_COPY     ? PLANT_SHORT_COPY
                          : r->planted == RIG_SKIPPED_COPY ? PLANT_SKIPPED_COPY
                          : r->planted == RIG_WRONG_SLOT   ? PLANT_WRONG_SLOT
                                                           : PLANT_NOTHING;
    EXPECT_OK(r, kvp_ns_open(l.w->cache, "model", 5, &l.ns));
    return l;
}

subject *late_open(late *l, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_prompt prompt = rig_prompt(tokens, n_tokens);
    kvp_seq handle = {0};
    memset(&l->info, 0, sizeof(l->info));
    EXPECT_OK(l->r, kvp_seq_open(l->w->cache, l->ns, &prompt, &handle, &l->info));
    subject *s = watch_new_subject(l->w, handle, "model");
    for (uint32_t i = 0; i < n_tokens; i++)
        truth_line_add(&l->w->truth, &s->line, tokens[i]);
    s->known = n_tokens;
    s->scheduled = l->info.hit_tokens;
    watch_called(l->w, false);
    return s;
}

void late_extend(late *l, subject *s, const int32_t *tokens, uint32_t n_tokens)
{
    EXPECT_OK(l->r, kvp_seq_extend(l->w->cache, s->handle, tokens, n_tokens, 0));
    for (uint32_t i = 0; i < n_tokens; i++)
        truth_line_add(&l->w->truth, &s->line, tokens[i]);
    s->known += n_tokens;
    watch_called(l->w, true);
}

void late_close(late *l, subject *s)
{
    EXPECT_OK(l->r, kvp_seq_close(l->w->cache, s->handle, NULL));
    watch_end_subject(l->w, s);
    watch_called(l->w, false);
}

work_step *late_step(late *l, subject *const *seqs, uint32_t n_seqs)
{
    work_item *items = random_allocate(n_seqs, sizeof(*items));
    work_step *step = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        subject *s = seqs[i];
        const uint32_t begin = s->scheduled < s->line.n ? s->scheduled : s->line.n - 1;
        if (watch_make_item(l->w, s, (kvp_range){begin, s->line.n}, &items[n])) {
            items[n++].is_declared = true;
            s->scheduled = s->line.n;
        }
    }
    EXPECT_OK(l->r, watch_submit(l->w, items, n, &step));
    for (uint32_t i = 0; i < n_seqs && step != NULL; i++) {
        seqs[i]->declared = step->submitted;
        EXPECT_OK(l->r, kvp_step_commit(l->w->cache, step->number, &seqs[i]->handle,
                                        &seqs[i]->line.n, 1));
    }
    watch_called(l->w, false);
    return step;
}

void late_run(late *l, const work_step *step)
{
    while (!step->is_finished && device_move(&l->w->device)) {}
    EXPECT(l->r, step->is_finished);
}

void late_done(late *l, work_step *step)
{
    EXPECT_OK(l->r, kvp_step_done(l->w->cache, step->number, NULL));
    device_remove(&l->w->device, step);
    watch_called(l->w, false);
    watch_audit_attached(l->w);
}

uint32_t late_failed(late *l, work_step *step)
{
    kvp_seq cut[RIG_SEQS];
    uint32_t n = 0;
    EXPECT_OK(l->r, kvp_step_failed(l->w->cache, step->number, cut, RIG_SEQS, &n));
    device_told(&l->w->device, step->number);
    device_remove(&l->w->device, step);
    watch_called(l->w, false);
    for (uint32_t i = 0; i < l->w->n_subjects; i++) {
        subject *s = &l->w->subjects[i];
        if (s->is_open)
            s->scheduled = watch_info(l->w, s).computed_tokens;
    }
    watch_audit_attached(l->w);
    return n;
}

void late_finish(late *l, work_step *step)
{
    if (l->r->planted == RIG_EARLY_DONE) {
        late_done(l, step);
        return;
    }
    late_run(l, step);
    late_done(l, step);
}

void late_leave_cached(late *l, const int32_t *tokens, uint32_t n_tokens)
{
    subject *s = late_open(l, tokens, n_tokens);
    late_finish(l, late_step(l, &s, 1));
    late_close(l, s);
}

void late_end(late *l)
{
    watch *w = l->w;
    while (w->device.n_steps > 0 && !l->r->verdict.is_bad)
        late_finish(l, w->device.steps[0]);
    if (!l->r->verdict.is_bad) {
        late_finish(l, late_step(l, NULL, 0)); /* the copies that wait */
        watch_audit_attached(w);
        watch_audit_computed(w);
    }
    for (uint32_t i = 0; i < w->n_subjects; i++)
        if (w->subjects[i].is_open && !l->r->verdict.is_bad)
            late_close(l, &w->subjects[i]);
    const kvp_stats stats = watch_stats(w);
    EXPECT_EQ(l->r, stats.free_blocks + stats.cached_blocks, stats.usable_blocks);
    EXPECT_EQ(l->r, stats.host_free_blocks + stats.host_cached_blocks, stats.host_usable_blocks);
    l->r->n_slots += w->device.n_reads + w->n_audited_slots;
    watch_destroy(w);
}

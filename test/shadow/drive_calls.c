/* See drive.h: calls on sequences and namespaces. */
#include "drive.h"

#include <inttypes.h>
#include <string.h>

#define WENT(d, call, status, ...)                                                                 \
    drive_went(d, call, status, (const kvp_status[]){__VA_ARGS__},                                 \
               sizeof((const kvp_status[]){__VA_ARGS__}) / sizeof(kvp_status))

static bool percent(drive *d, uint32_t p)
{
    return random_percent(&d->random, p);
}

static uint32_t below(drive *d, uint64_t n)
{
    return random_below(&d->random, n);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ----------------------------------------------------------------------------------------- open */

static bool has_space(drive *d, uint32_t space)
{
    if (!d->space_open[space]) {
        const char *name = drive_space_name(space);
        const kvp_status status = kvp_ns_open(d->w->cache, name, strlen(name), &d->spaces[space]);
        d->space_open[space] = WENT(d, "kvp_ns_open", status, KVP_E_NO_NAMESPACES);
    }
    return d->space_open[space];
}

/* The prompt's hashes, made beforehand. */
static void add_hashes(drive *d, uint32_t space, kvp_prompt *prompt)
{
    const char *name = drive_space_name(space);
    const uint32_t U = d->w->config.unit_tokens;
    const kvp_hash_input input = {.unit_tokens = U,
                                  .n_tokens = prompt->n_tokens,
                                  .tokens = prompt->tokens,
                                  .n_keys = prompt->n_keys,
                                  .keys = prompt->keys};
    kvp_hash root;
    if (kvp_hash_root(U, d->w->config.hash_seed, name, strlen(name), &root) != KVP_OK ||
        kvp_hash_units(&input, &root, d->hashes) != KVP_OK)
        verdict_bad(d->verdict, "a prompt could not be hashed");
    prompt->hashes = d->hashes;
}

/* Where a prompt comes from: a stream's tokens, or first those of a sequence that is open, which
 * may not have run yet. */
typedef struct origin {
    uint32_t space, stream;
    const truth_line *keys;
    const truth_line *tokens; /* NULL: the stream's */
} origin;

/* A sequence of a step that will fail, and nobody knows yet; NULL: none. */
static const subject *pick_doomed(drive *d)
{
    for (uint32_t i = 0; i < d->w->device.n_steps; i++) {
        const work_step *step = d->w->device.steps[i];
        if (step->fails && step->n_items > 0)
            return watch_find_serial(d->w, step->items[below(d, step->n_items)].serial);
    }
    return NULL;
}

static origin draw_origin(drive *d)
{
    const uint32_t stream = below(d, DRIVE_STREAMS);
    const subject *s = percent(d, 25)   ? drive_pick(d, false)
                       : percent(d, 50) ? pick_doomed(d)
                                        : NULL;
    if (s != NULL)
        return (origin){s->space, s->stream, &s->line, &s->line};
    return (origin){percent(d, 60) ? 0 : below(d, DRIVE_SPACES), stream, &d->streams[stream].keys,
                    NULL};
}

/* The origin's first n tokens, now and then with another end. */
static void draw_prompt(drive *d, const origin *from, kvp_prompt *out_prompt, kvp_key *keys)
{
    const uint32_t most = d->w->config.max_seq_tokens;
    const uint32_t n = percent(d, 40) ? below(d, most + 1) : below(d, most / 2 + 2);
    kvp_prompt prompt = {.struct_size = sizeof(prompt), .tokens = d->tokens, .keys = keys};
    prompt.n_tokens = from->tokens != NULL && percent(d, 70) ? from->tokens->n : least(n, most);
    memcpy(d->tokens, d->streams[from->stream].tokens, prompt.n_tokens * sizeof(*d->tokens));
    if (from->tokens != NULL) {
        memcpy(d->tokens, from->tokens->tokens,
               least(prompt.n_tokens, from->tokens->n) * sizeof(*d->tokens));
    }
    if (percent(d, from->tokens == NULL ? 25 : 5) && prompt.n_tokens > 0)
        for (uint32_t i = below(d, prompt.n_tokens); i < prompt.n_tokens; i++)
            d->tokens[i] = (int32_t)below(d, d->alphabet);
    for (uint32_t i = 0; i < from->keys->n_keys; i++) {
        const truth_key *key = &from->keys->keys[i];
        if (key->end <= prompt.n_tokens) {
            keys[prompt.n_keys++] =
                (kvp_key){key->type, key->begin, key->end, key->n_bytes, key->bytes};
        }
    }
    prompt.reserve_tokens = percent(d, 25) ? below(d, d->w->config.block_tokens * 2) : 0;
    prompt.flags = percent(d, 5) ? KVP_OPEN_NO_MATCH : percent(d, 5) ? KVP_OPEN_DEVICE_ONLY : 0;
    prompt.retention = percent(d, 10) ? below(d, KVP_RETENTION_CLASSES) : 0;
    *out_prompt = prompt;
}

static void count_open(drive *d, uint32_t space, const kvp_prompt *prompt,
                       const kvp_open_info *info)
{
    uint64_t *points = d->seen->points;
    const uint32_t last = prompt->n_tokens == 0 ? 0 : prompt->n_tokens - 1;
    points[COVER_hits] += info->hit_tokens > 0;
    points[COVER_hits_after_flush] += info->hit_tokens > 0 && d->space_flushed[space];
    points[COVER_hits_after_reopening] += info->hit_tokens > 0 && d->space_closed[space];
    points[COVER_hits_inside_a_block] += info->copied_tokens > 0;
    points[COVER_hits_on_host] += info->host_tokens > 0;
    points[COVER_hits_in_full] += info->hit_tokens > 0 && info->hit_tokens == prompt->n_tokens;
    points[COVER_keyed_prompts] += prompt->n_keys > 0;
    points[COVER_hits_in_groups] += info->hit_tokens > 0 && d->w->config.n_groups > 1;
    if (info->hit_tokens > prompt->n_tokens ||
        info->cached_tokens != least(info->hit_tokens, last)) {
        verdict_bad(d->verdict, "an open of %" PRIu32 " tokens hit %" PRIu32 ", cached %" PRIu32,
                    prompt->n_tokens, info->hit_tokens, info->cached_tokens);
    }
}

/* A hit of which a window hides a part. */
static void count_dropped(drive *d, const subject *s)
{
    kvp_window_info info = {.dropped_end = 0};
    for (uint32_t g = 0; g < d->w->config.n_groups && info.dropped_end == 0; g++) {
        (void)drive_went(d, "kvp_seq_window_get",
                         kvp_seq_window_get(d->w->cache, s->handle, g, &info), NULL, 0);
    }
    d->seen->points[COVER_hits_behind_windows] += info.dropped_end > 0;
}

bool drive_draw_prompt(drive *d, kvp_prompt *out_prompt, kvp_key *keys, uint32_t *out_space)
{
    const origin from = draw_origin(d);
    *out_space = from.space;
    if (!has_space(d, from.space))
        return false;
    draw_prompt(d, &from, out_prompt, keys);
    return true;
}

void drive_open_op(drive *d)
{
    const origin from = draw_origin(d);
    kvp_key keys[TRUTH_KEYS];
    kvp_range range;
    kvp_prompt prompt;
    kvp_open_info info;
    kvp_seq handle;
    uint32_t told = from.space;
    if (!has_space(d, from.space))
        return;
    draw_prompt(d, &from, &prompt, keys);
    if (percent(d, 15))
        add_hashes(d, from.space, &prompt);
    if (percent(d, 6)) {
        range.begin = below(d, prompt.n_tokens + 8);
        range.end = range.begin + 1;
        prompt.uncached = &range;
        prompt.n_uncached = 1;
    }
    const kvp_status status =
        kvp_seq_open(d->w->cache, d->spaces[from.space], &prompt, &handle, &info);
    if (!WENT(d, "kvp_seq_open", status, KVP_E_NO_BLOCKS, KVP_E_NEVER, KVP_E_NO_SEQS,
              KVP_E_TOO_LONG, KVP_E_PLAN_FULL)) {
        if (status == KVP_E_PLAN_FULL)
            drive_flush_plan(d);
        return;
    }
    if (d->options.planted == PLANT_OTHER_SPACE && percent(d, 50)) {
        told = (from.space + 1) % DRIVE_SPACES;
        d->w->device.n_planted++;
    }
    subject *s = watch_new_subject(d->w, handle, drive_space_name(told));
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < from.keys->n_keys; i++)
        if (from.keys->keys[i].end <= prompt.n_tokens)
            s->line.keys[s->line.n_keys++] = from.keys->keys[i];
    for (uint32_t i = 0; i < prompt.n_tokens; i++)
        truth_line_add(&d->w->truth, &s->line, d->tokens[i]);
    s->known = prompt.n_tokens;
    s->scheduled = info.hit_tokens;
    s->stream = from.stream;
    s->space = from.space;
    s->arrived = info.host_tokens + info.copied_tokens > 0 ? d->n_ops : 0;
    s->group = (uint32_t)s->serial;
    s->group_size = 1 + below(d, 4);
    *drive_finished(d, s) = info.hit_tokens;
    drive_trace(d, "open #%" PRIu64 " tokens %" PRIu32 " hit %" PRIu32 " (host %" PRIu32 ")",
                s->serial, prompt.n_tokens, info.hit_tokens, info.host_tokens);
    count_open(d, from.space, &prompt, &info);
    count_dropped(d, s);
}

/* ------------------------------------------------------------------------------ extend and fill */

static int32_t next_token(drive *d, const subject *s, uint32_t position)
{
    return percent(d, 85) ? d->streams[s->stream].tokens[position] : (int32_t)below(d, d->alphabet);
}

/* A key among n new tokens; false: none. */
static bool draw_key(drive *d, subject *s, uint32_t n, truth_key *out_key)
{
    truth_key key = {.type = 1 + below(d, 2), .begin = s->line.n + below(d, n)};
    key.n_bytes = below(d, TRUTH_KEY_BYTES + 1);
    for (uint32_t i = 0; i < key.n_bytes; i++)
        key.bytes[i] = (uint8_t)below(d, 2);
    key.end = key.begin + truth_key_length(&d->w->truth, &key);
    *out_key = key;
    return key.end <= s->line.n + n &&
           truth_key_fits(&d->w->truth, &s->line, &key, d->w->config.max_unit_keys);
}

bool drive_waits(const drive *d, const subject *s)
{
    for (uint32_t i = 0; d->w->overlapped && i < d->w->device.n_steps; i++) {
        const work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++)
            if (step->items[k].serial == s->serial && !step->items[k].writes)
                return true;
    }
    return false;
}

bool drive_extend(drive *d, subject *s, uint32_t n, uint32_t reserve)
{
    truth_key key = {0};
    const uint32_t from = s->line.n;
    const bool has_values = s->known == s->line.n && (n == 0 || !percent(d, 30));
    const bool has_key = has_values && n > 0 && percent(d, 20) && draw_key(d, s, n, &key);
    const kvp_key new_key = {key.type, key.begin, key.end, key.n_bytes, key.bytes};
    kvp_batch batch = {.struct_size = sizeof(batch),
                       .n_seqs = 1,
                       .seqs = &s->handle,
                       .n_tokens = &n,
                       .tokens = has_values ? d->tokens : NULL,
                       .reserve_tokens = reserve,
                       .n_keys = has_key,
                       .keys = has_key ? &new_key : NULL};
    if ((uint64_t)from + n > d->w->config.max_seq_tokens || drive_waits(d, s) ||
        (n > 0 && s->tree.n > 0))
        return false;
    for (uint32_t i = 0; i < n; i++)
        d->tokens[i] = next_token(d, s, from + i);
    const kvp_status status = kvp_seq_extend_many(d->w->cache, &batch);
    if (!WENT(d, "kvp_seq_extend_many", status, KVP_E_NO_BLOCKS, KVP_E_NEVER, KVP_E_TOO_LONG,
              KVP_E_PLAN_FULL, KVP_E_IN_FLIGHT, KVP_E_DROPPED)) {
        drive_lacking(d, s, status);
        if (status == KVP_E_PLAN_FULL)
            drive_flush_plan(d);
        return false;
    }
    if (has_key)
        s->line.keys[s->line.n_keys++] = key;
    for (uint32_t i = 0; i < n; i++)
        truth_line_add(&d->w->truth, &s->line, d->tokens[i]);
    s->known = has_values ? s->line.n : s->known;
    drive_trace(d, "extend #%" PRIu64 " to %" PRIu32 " (known %" PRIu32 ") reserve %" PRIu32,
                s->serial, s->line.n, s->known, reserve);
    return true;
}

void drive_extend_op(drive *d)
{
    subject *s = drive_pick(d, false);
    if (s != NULL)
        (void)drive_extend(d, s, below(d, 4), percent(d, 30) ? below(d, 6) : 0);
}

/* Some sequences at once, one token each. */
void drive_extend_many_op(drive *d)
{
    kvp_seq seqs[DRIVE_MEMBERS];
    subject *members[DRIVE_MEMBERS];
    uint32_t counts[DRIVE_MEMBERS];
    kvp_status statuses[DRIVE_MEMBERS];
    const bool each = percent(d, 30);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->w->n_subjects && n < DRIVE_MEMBERS; i++) {
        subject *s = &d->w->subjects[i];
        if (s->is_open && !s->is_swapped && !s->may_lack && s->known == s->line.n &&
            s->line.n < d->w->config.max_seq_tokens && !drive_waits(d, s) && s->tree.n == 0 &&
            percent(d, 60)) {
            members[n] = s;
            seqs[n] = s->handle;
            counts[n] = 1;
            d->tokens[n] = next_token(d, s, s->line.n);
            n++;
        }
        if (n == d->w->config.max_seq_tokens)
            break;
    }
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = n,
                             .flags = each ? KVP_BATCH_EACH : 0,
                             .seqs = seqs,
                             .n_tokens = counts,
                             .tokens = d->tokens,
                             .statuses = statuses};
    if (n == 0 ||
        !WENT(d, "kvp_seq_extend_many", kvp_seq_extend_many(d->w->cache, &batch), KVP_E_NO_BLOCKS,
              KVP_E_NEVER, KVP_E_TOO_LONG, KVP_E_PLAN_FULL, KVP_E_IN_FLIGHT))
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (!each || statuses[i] == KVP_OK) {
            truth_line_add(&d->w->truth, &members[i]->line, d->tokens[i]);
            members[i]->known++;
            drive_trace(d, "extend #%" PRIu64 " to %" PRIu32, members[i]->serial,
                        members[i]->line.n);
        }
    }
}

void drive_fill_op(drive *d)
{
    for (uint32_t tries = 0; tries < 3; tries++) {
        subject *s = drive_pick(d, false);
        if (s == NULL || s->known == s->line.n)
            continue;
        const uint32_t n = 1 + below(d, s->line.n - s->known);
        const kvp_status status =
            kvp_seq_fill(d->w->cache, s->handle, s->line.tokens + s->known, n);
        if (drive_went(d, "kvp_seq_fill", status, NULL, 0)) {
            s->known += n;
            d->seen->points[COVER_filled]++;
            drive_trace(d, "fill #%" PRIu64 " to %" PRIu32, s->serial, s->known);
        }
        return;
    }
}

/* --------------------------------------------------------------------------- truncate and close */

static bool is_out(const drive *d, const subject *s)
{
    for (uint32_t i = 0; i < d->w->device.n_steps; i++) {
        const work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++)
            if (step->items[k].serial == s->serial)
                return true;
    }
    return false;
}

static void truncate_to(drive *d, subject *s, uint32_t n)
{
    if (!drive_before_release(d, s) || n > s->line.n)
        return;
    d->seen->points[COVER_truncated]++;
    d->seen->points[COVER_cut_while_out] += is_out(d, s);
    if (WENT(d, "kvp_seq_truncate", kvp_seq_truncate(d->w->cache, s->handle, n, NULL),
             KVP_E_DROPPED)) {
        s->may_lack = false;
        drive_drop_tree(d, s);
        truth_line_cut(&d->w->truth, &s->line, n);
        s->known = least(s->known, n);
        drive_cut(d, s, n);
        drive_trace(d, "truncate #%" PRIu64 " to %" PRIu32, s->serial, n);
    }
}

void drive_truncate_op(drive *d)
{
    subject *s = drive_pick(d, false);
    if (s != NULL) {
        const uint32_t back = 1 + below(d, percent(d, 60) ? 4 : s->line.n + 1);
        truncate_to(d, s, back > s->line.n ? 0 : s->line.n - back);
    }
}

void drive_close_now(drive *d, subject *s)
{
    const uint64_t serial = s->serial;
    d->seen->points[COVER_closed_while_out] += is_out(d, s);
    if (drive_went(d, "kvp_seq_close", kvp_seq_close(d->w->cache, s->handle, NULL), NULL, 0)) {
        drive_cut(d, s, 0);
        watch_end_subject(d->w, s);
        drive_trace(d, "close #%" PRIu64, serial);
    }
}

void drive_close(drive *d, subject *s)
{
    if (drive_before_release(d, s))
        drive_close_now(d, s);
}

void drive_close_op(drive *d)
{
    subject *s = drive_pick(d, percent(d, 20));
    if (s != NULL)
        drive_close(d, s);
}

/* -------------------------------------------------------------------------------- fork and beam */

subject *drive_fork(drive *d, const subject *parent, uint32_t at)
{
    kvp_seq handle;
    const kvp_status status = kvp_seq_fork(d->w->cache, parent->handle,
                                           percent(d, 50) && at == parent->line.n ? KVP_END : at,
                                           parent->serial, &handle);
    if (!WENT(d, "kvp_seq_fork", status, KVP_E_NO_SEQS, KVP_E_DROPPED)) {
        if (status == KVP_E_DROPPED && at == watch_info(d->w, parent).computed_tokens)
            drive_lacking(d, parent, status);
        return NULL;
    }
    subject *child = watch_new_subject(d->w, handle, "");
    if (child != NULL) {
        truth_line_copy(&d->w->truth, &child->line, &parent->line, at);
        child->known = child->scheduled = at;
        child->stream = percent(d, 70) ? parent->stream : below(d, DRIVE_STREAMS);
        child->space = parent->space;
        memcpy(child->windows, parent->windows, sizeof(child->windows));
        child->group = parent->group;
        child->group_size = parent->group_size;
        *drive_finished(d, child) = at;
        d->seen->points[COVER_forks]++;
        drive_trace(d, "fork #%" PRIu64 " at %" PRIu32 " gives #%" PRIu64, parent->serial, at,
                    child->serial);
    }
    return child;
}

void drive_fork_op(drive *d)
{
    subject *s = drive_pick(d, false);
    if (s == NULL)
        return;
    const kvp_seq_info info = watch_info(d->w, s);
    const uint32_t most = least(info.computed_tokens, s->known);
    for (uint32_t n = 1 + below(d, s->group_size); n > 0; n--)
        if (drive_fork(d, s, percent(d, 60) ? most : below(d, most + 1)) == NULL)
            return;
}

/* The sequence whose KV a copy brought last; or any. */
static subject *pick_arrived(drive *d)
{
    subject *newest = drive_pick(d, false);
    for (uint32_t i = 0; i < d->w->n_subjects && percent(d, 97); i++) {
        subject *s = &d->w->subjects[i];
        if (s->is_open && !s->is_swapped && s->arrived > newest->arrived)
            newest = s;
    }
    return newest;
}

/* A fork goes on at once, while steps are out: beside its parent, or in its place, when that gives
 * up what these steps still compute for it. */
void drive_replace_op(drive *d)
{
    subject *s = percent(d, 50) ? pick_arrived(d) : drive_pick(d, false);
    if (s == NULL || s->scheduled == 0)
        return;
    if (percent(d, 30))
        truncate_to(d, s, least(watch_info(d->w, s).computed_tokens, s->known));
    const uint32_t most = least(watch_info(d->w, s).computed_tokens, s->known);
    subject *child = drive_fork(d, s, most);
    if (child == NULL)
        return;
    const uint64_t serial = child->serial;
    const uint32_t what = below(d, 3);
    if (what == 0)
        drive_close(d, s);
    else if (what == 1)
        truncate_to(d, s, below(d, most + 1));
    if (child->is_open && child->serial == serial && !child->is_swapped)
        drive_step(d, child);
}

/* One step of beam search: some beams are forked, others closed; those that are left go on. */
void drive_beam_op(drive *d)
{
    subject *beams[DRIVE_MEMBERS];
    bool goes_on[DRIVE_MEMBERS] = {false};
    const subject *first = drive_pick(d, false);
    uint32_t n = 0;
    for (uint32_t i = 0; first != NULL && i < d->w->n_subjects && n < DRIVE_MEMBERS; i++) {
        subject *s = &d->w->subjects[i];
        if (s->is_open && !s->is_swapped && s->group == first->group && s->known == s->line.n &&
            watch_info(d->w, s).computed_tokens == s->line.n)
            beams[n++] = s;
    }
    if (n < 2)
        return;
    d->seen->points[COVER_beams]++;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t chosen = below(d, n);
        if (goes_on[chosen]) {
            subject *child = drive_fork(d, beams[chosen], beams[chosen]->line.n);
            if (child != NULL)
                (void)drive_extend(d, child, 1, 0);
        }
        goes_on[chosen] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!goes_on[i] && beams[i]->is_open)
            drive_close(d, beams[i]);
}

/* ------------------------------------------------------------------------------------ the rest */

void drive_invalidate_op(drive *d)
{
    subject *s = drive_pick(d, false);
    if (s != NULL)
        drive_invalidate(d, s, below(d, s->line.n + 1));
}

void drive_space_op(drive *d)
{
    const uint32_t space = below(d, DRIVE_SPACES);
    if (!d->space_open[space])
        return;
    if (percent(d, 30)) {
        d->space_open[space] = false;
        d->space_closed[space] = true;
        d->seen->points[COVER_spaces_closed]++;
        (void)drive_went(d, "kvp_ns_close", kvp_ns_close(d->w->cache, d->spaces[space]), NULL, 0);
    } else {
        d->space_flushed[space] = true;
        d->seen->points[COVER_flushed]++;
        (void)drive_went(d, "kvp_ns_flush", kvp_ns_flush(d->w->cache, d->spaces[space]), NULL, 0);
    }
    drive_trace(d, "flush or close namespace %" PRIu32, space);
}

/* Retention and what must not be cached: neither changes what KV is right. */
void drive_mark_op(drive *d)
{
    const subject *s = drive_pick(d, false);
    if (s == NULL)
        return;
    const kvp_seq_info info = watch_info(d->w, s);
    const kvp_range range = {below(d, s->line.n + 4), s->line.n + 5};
    if (percent(d, 50)) {
        (void)WENT(d, "kvp_seq_uncache", kvp_seq_uncache(d->w->cache, s->handle, range),
                   KVP_E_STATE);
    } else if (info.n_blocks > 0) {
        const kvp_range all = {0, watch_slots(d->w, s)};
        (void)drive_went(d, "kvp_seq_retain",
                         kvp_seq_retain(d->w->cache, s->handle, all, below(d, 8)), NULL, 0);
    }
}

/* ----------------------------------------------------------------------------------------- swap */

/* A sequence and those of its group, or any others, that are on this tier. */
static uint32_t draw_movers(drive *d, bool swapped, subject **out_movers, kvp_seq *out_handles)
{
    subject *first = drive_pick(d, swapped);
    const bool group = percent(d, 60);
    uint32_t n = 0;
    if (first == NULL)
        return 0;
    out_movers[n++] = first;
    for (uint32_t i = 0; i < d->w->n_subjects && n < DRIVE_MEMBERS; i++) {
        subject *s = &d->w->subjects[i];
        if (s != first && s->is_open && s->is_swapped == swapped &&
            (group ? s->group == first->group : percent(d, 15)))
            out_movers[n++] = s;
    }
    for (uint32_t i = 0; i < n; i++)
        out_handles[i] = out_movers[i]->handle;
    d->seen->points[COVER_swapped_groups] += group && n > 1;
    return n;
}

static void moved(drive *d, subject *s, bool to_host)
{
    s->is_swapped = to_host;
    if (to_host)
        s->tree.n = s->tree.scheduled = 0;
    drive_trace(d, "swap #%" PRIu64 " %s, computed %" PRIu32, s->serial, to_host ? "out" : "in",
                watch_info(d->w, s).computed_tokens);
    if (to_host) {
        d->seen->points[COVER_swapped_while_out] += is_out(d, s);
        drive_cut(d, s, 0);
        s->scheduled = watch_info(d->w, s).computed_tokens;
        *drive_finished(d, s) = s->scheduled;
    }
    s->arrived = d->n_ops;
    d->seen->points[to_host ? COVER_swapped_out : COVER_swapped_in]++;
}

/* Those that cannot come back. */
static void close_lacking(drive *d, subject **movers, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        any = any || movers[i]->may_lack;
        if (movers[i]->may_lack)
            drive_close(d, movers[i]);
    }
    if (!any)
        verdict_bad(d->verdict, "kvp_seq_swap_in: KVP_E_DROPPED, and nothing was taken back");
}

void drive_swap_op(drive *d)
{
    subject *movers[DRIVE_MEMBERS];
    kvp_seq handles[DRIVE_MEMBERS];
    kvp_swapped swapped;
    const bool to_host = percent(d, 45);
    const uint32_t reserve = percent(d, 50) ? below(d, 3) : 0;
    kvp_status status;
    if (d->w->config.host_blocks == 0)
        return;
    uint32_t n = draw_movers(d, !to_host, movers, handles);
    for (uint32_t i = 0; to_host && i < n; i++)
        (void)drive_before_release(d, movers[i]);
    if (n == 0)
        return;
    if (to_host)
        status = kvp_seq_swap_out(d->w->cache, handles, n, &swapped);
    else
        status = kvp_seq_swap_in(d->w->cache, handles, n, reserve, &swapped);
    if (WENT(d, "kvp_seq_swap", status, KVP_E_NO_BLOCKS, KVP_E_NEVER, KVP_E_PLAN_FULL,
             KVP_E_TOO_LONG, KVP_E_IN_FLIGHT, KVP_E_DROPPED))
        for (uint32_t i = 0; i < n; i++)
            moved(d, movers[i], to_host);
    else if (status == KVP_E_PLAN_FULL)
        drive_flush_plan(d);
    else if (status == KVP_E_DROPPED)
        close_lacking(d, movers, n);
}

void drive_reset_op(drive *d)
{
    device_cancel(&d->w->device);
    d->seen->points[COVER_resets]++;
    (void)drive_went(d, "kvp_cache_reset", kvp_cache_reset(d->w->cache), NULL, 0);
    for (uint32_t i = 0; i < d->w->n_subjects; i++)
        watch_end_subject(d->w, &d->w->subjects[i]);
    drive_lend_forget(d);
    drive_trace(d, "reset");
}

/* See drive.h: trees of draft tokens, in rounds, and the path that is accepted.
 *
 * Nodes are computed by the step that begins right after they were added: nothing is submitted in
 * between. What is accepted is moved by a step of the device's own, submitted at once: after the
 * plan that was taken last, before the next one.
 */
#include "drive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_MEMBERS = 3 };

static bool percent(drive *d, uint32_t p)
{
    return random_percent(&d->random, p);
}

static uint32_t below(drive *d, uint64_t n)
{
    return random_below(&d->random, n);
}

/* Nodes of earlier trees, which steps that are out have yet to compute, may have been accepted. */
void drive_drop_tree(drive *d, subject *s)
{
    for (uint32_t i = 0; i < d->w->device.n_steps && s->tree.n > 0; i++) {
        work_step *step = d->w->device.steps[i];
        for (uint32_t k = 0; k < step->n_items; k++) {
            work_item *item = &step->items[k];
            item->is_cut = item->is_cut || (item->serial == s->serial && item->end > item->base &&
                                            item->base == s->line.n);
        }
    }
    s->tree.n = 0;
    s->tree.scheduled = 0;
}

/* ---------------------------------------------------------------------------------------- grow */

typedef struct round {
    subject *members[TREE_MEMBERS];
    kvp_seq seqs[TREE_MEMBERS];
    uint32_t counts[TREE_MEMBERS];
    int32_t tokens[TREE_MEMBERS * WATCH_NODES];
    int32_t parents[TREE_MEMBERS * WATCH_NODES];
    uint32_t n, n_nodes;
} round;

static bool can_grow(const drive *d, const subject *s)
{
    return s->known == s->line.n && !s->may_lack && !drive_waits(d, s) &&
           s->tree.n < d->w->config.max_tree_tokens && s->tree.n == s->tree.scheduled &&
           (uint64_t)s->line.n + s->tree.n < d->w->config.max_seq_tokens;
}

/* New nodes of one sequence: the stream's tokens, mostly, so that what is accepted is hit. */
static void draw_nodes(drive *d, round *r, const subject *s)
{
    const uint32_t most = d->w->config.max_tree_tokens - s->tree.n;
    const uint32_t room = d->w->config.max_seq_tokens - s->line.n - s->tree.n;
    const uint32_t n = 1 + below(d, most < room ? most : room);
    const uint32_t last = d->w->config.max_seq_tokens - 1;
    uint32_t depths[WATCH_NODES];
    memcpy(depths, s->tree.depths, sizeof(depths));
    for (uint32_t i = s->tree.n; i < s->tree.n + n; i++) {
        const uint32_t kind = below(d, 100);
        const int32_t parent = i == 0 || kind < 20 ? -1
                               : kind < 50         ? (int32_t)i - 1
                                                   : (int32_t)below(d, i);
        depths[i] = parent < 0 ? 0 : depths[parent] + 1;
        const uint32_t p = s->line.n + depths[i] < last ? s->line.n + depths[i] : last;
        r->parents[r->n_nodes] = parent;
        r->tokens[r->n_nodes++] =
            percent(d, 70) ? d->streams[s->stream].tokens[p] : (int32_t)below(d, d->alphabet);
    }
    r->counts[r->n - 1] = n;
}

static void draw_round(drive *d, round *r)
{
    for (uint32_t tries = 1 + below(d, TREE_MEMBERS); tries > 0; tries--) {
        subject *s = drive_pick(d, false);
        for (uint32_t i = 0; i < r->n; i++)
            s = r->members[i] == s ? NULL : s;
        if (s != NULL && can_grow(d, s)) {
            r->members[r->n] = s;
            r->seqs[r->n++] = s->handle;
            draw_nodes(d, r, s);
        }
    }
}

static void add_nodes(drive *d, subject *s, const int32_t *tokens, const int32_t *parents,
                      uint32_t n)
{
    subject_tree *tree = &s->tree;
    d->seen->points[tree->n > 0 ? COVER_tree_rounds : COVER_trees]++;
    d->seen->points[COVER_trees_behind_tokens] += s->scheduled < s->line.n;
    for (uint32_t i = 0; i < n; i++, tree->n++) {
        tree->tokens[tree->n] = tokens[i];
        tree->parents[tree->n] = parents[i];
        tree->depths[tree->n] = parents[i] < 0 ? 0 : tree->depths[parents[i]] + 1;
    }
    drive_trace(d, "tree of #%" PRIu64 ": %" PRIu32 " nodes behind %" PRIu32, s->serial, tree->n,
                s->line.n);
}

/* The step that computes the nodes, and tokens before them that are not computed yet. */
static void compute_round(drive *d, const round *r)
{
    work_item *items = random_allocate(TREE_MEMBERS, sizeof(*items));
    for (uint32_t i = 0; i < r->n; i++) {
        subject *s = r->members[i];
        const kvp_range range = {s->scheduled < s->line.n ? s->scheduled
                                                          : s->line.n + s->tree.scheduled,
                                 s->line.n + s->tree.n};
        if (!watch_make_item(d->w, s, range, &items[i])) {
            device_free_items(items, i);
            return;
        }
        const uint8_t *seen = items[i].seen;
        d->seen->points[COVER_trees_through_windows] += memchr(seen, 0, range.begin) != NULL;
    }
    drive_submit(d, items, r->n);
}

void drive_tree_op(drive *d)
{
    static const kvp_status also[] = {KVP_E_NO_BLOCKS, KVP_E_NEVER, KVP_E_TOO_LONG, KVP_E_PLAN_FULL,
                                      KVP_E_IN_FLIGHT};
    round r = {.n = 0};
    drive_make_room(d);
    draw_round(d, &r);
    if (r.n == 0 || d->verdict->is_bad)
        return;
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = r.n,
                             .seqs = r.seqs,
                             .n_tokens = r.counts,
                             .tokens = r.tokens,
                             .reserve_tokens = percent(d, 20) ? below(d, 4) : 0};
    const kvp_status status = kvp_seq_extend_tree(d->w->cache, &batch, r.parents);
    if (!drive_went(d, "kvp_seq_extend_tree", status, also, sizeof(also) / sizeof(*also))) {
        if (status == KVP_E_PLAN_FULL)
            drive_flush_plan(d);
        return;
    }
    for (uint32_t i = 0, at = 0; i < r.n; at += r.counts[i], i++)
        add_nodes(d, r.members[i], r.tokens + at, r.parents + at, r.counts[i]);
    compute_round(d, &r);
}

/* -------------------------------------------------------------------------------------- accept */

/* A leaf: of some, the one whose path has most to move, or any. */
static int32_t draw_leaf(drive *d, const subject_tree *tree)
{
    int32_t leaf = (int32_t)below(d, tree->n);
    for (uint32_t tries = below(d, 4); tries > 0; tries--) {
        const uint32_t other = below(d, tree->n);
        if (tree->depths[other] < other && tree->depths[other] >= tree->depths[leaf])
            leaf = (int32_t)other;
    }
    return leaf;
}

/* A fork shares the block that nodes are to move to; who goes on writes to a copy of it, and that
 * is in the plan. */
static void share_nodes(drive *d, subject **members, const int32_t *leaves, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        subject *s = members[i];
        if (leaves[i] > (int32_t)s->tree.depths[leaves[i] < 0 ? 0 : leaves[i]] &&
            s->line.n % d->w->config.block_tokens != 0 && drive_fork(d, s, s->line.n) != NULL) {
            (void)drive_extend(d, s, 0, 0);
            return;
        }
    }
}

/* Whether what stands before the tree is there. */
static bool is_ready(drive *d, const subject *s)
{
    return s->tree.scheduled == s->tree.n && !s->may_lack && s->known == s->line.n &&
           watch_info(d->w, s).computed_tokens == s->line.n;
}

static bool are_ready(drive *d, subject **members, const int32_t *leaves, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++) {
        const subject *s = members[i];
        all = all && s->is_open && !s->is_swapped && s->tree.n > 0 &&
              (leaves[i] < 0 || is_ready(d, s));
    }
    return all;
}

static uint32_t draw_leaves(drive *d, subject **members, kvp_seq *seqs, int32_t *leaves)
{
    const uint32_t first = below(d, d->w->n_subjects);
    const uint32_t most = 1 + below(d, TREE_MEMBERS);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->w->n_subjects && n < most; i++) {
        subject *s = &d->w->subjects[(first + i) % d->w->n_subjects];
        if (!s->is_open || s->is_swapped || s->tree.n == 0)
            continue;
        const bool none = percent(d, 8) || (!is_ready(d, s) && percent(d, 25));
        if (none || is_ready(d, s)) {
            members[n] = s;
            seqs[n] = s->handle;
            leaves[n++] = none ? -1 : draw_leaf(d, &s->tree);
        }
    }
    return n;
}

static void take_path(drive *d, subject *s, int32_t leaf)
{
    subject_tree tree = s->tree;
    int32_t path[WATCH_NODES];
    uint32_t n = leaf < 0 ? 0 : tree.depths[leaf] + 1;
    const uint32_t n_path = n;
    d->seen->points[leaf < 0 ? COVER_accepted_nothing : COVER_accepted]++;
    for (int32_t node = leaf; node >= 0; node = tree.parents[node])
        path[--n] = node;
    drive_trace(d, "accept #%" PRIu64 " leaf %" PRId32 ", %" PRIu32 " tokens behind %" PRIu32,
                s->serial, leaf, n_path, s->line.n);
    if (leaf < 0) {
        drive_drop_tree(d, s);
        return;
    }
    for (uint32_t t = 0; t < n_path; t++) {
        truth_line_add(&d->w->truth, &s->line, tree.tokens[path[t]]);
        s->line.kv[s->line.n - 1] = tree.kv[path[t]];
    }
    s->known = s->scheduled = *drive_finished(d, s) = s->line.n;
    s->tree.n = s->tree.scheduled = 0;
}

static bool is_busy(const drive *d)
{
    for (uint32_t i = 0; i < d->w->device.n_steps; i++)
        if (!d->w->device.steps[i]->is_finished)
            return true;
    return false;
}

void drive_accept_op(drive *d)
{
    static const kvp_status also[] = {KVP_E_IN_FLIGHT, KVP_E_STATE, KVP_E_DROPPED};
    subject *members[TREE_MEMBERS];
    kvp_seq seqs[TREE_MEMBERS];
    int32_t leaves[TREE_MEMBERS];
    const uint32_t n = draw_leaves(d, members, seqs, leaves);
    const uint32_t room = TREE_MEMBERS * WATCH_NODES;
    kvp_accept accept = {.struct_size = sizeof(accept),
                         .n_seqs = n,
                         .max_moves = room,
                         .seqs = seqs,
                         .leaves = leaves};
    if (n == 0 || d->w->device.n_steps >= DEVICE_STEPS)
        return;
    if (percent(d, 70))
        share_nodes(d, members, leaves, n);
    if (!are_ready(d, members, leaves, n))
        return; /* the plan was full, and what was reported then has cut one */
    const uint64_t pending = watch_stats(d->w).pending_copies;
    accept.moves = random_allocate((size_t)d->w->config.n_groups * room, sizeof(*accept.moves));
    const kvp_status status = kvp_seq_accept(d->w->cache, &accept);
    if (!drive_went(d, "kvp_seq_accept", status, also, sizeof(also) / sizeof(*also))) {
        free(accept.moves);
        if ((status == KVP_E_IN_FLIGHT && !d->w->overlapped) || status == KVP_E_DROPPED)
            verdict_bad(d->verdict, "kvp_seq_accept: %s", kvp_status_name(status));
        if (status == KVP_E_STATE) {
            d->seen->points[COVER_accepted_before_copies]++;
            if (pending == 0)
                verdict_bad(d->verdict, "kvp_seq_accept: KVP_E_STATE, and no copy waits");
            drive_flush_plan(d);
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        take_path(d, members[i], leaves[i]);
    d->seen->points[COVER_accepted_while_out] += accept.n_moves > 0 && is_busy(d);
    for (uint32_t g = 1; g < d->w->config.n_groups; g++) {
        memmove(accept.moves + (size_t)g * accept.n_moves, accept.moves + (size_t)g * room,
                accept.n_moves * sizeof(*accept.moves));
    }
    if (accept.n_moves > 0)
        watch_submit_moves(d->w, accept.moves, accept.n_moves);
    else
        free(accept.moves);
}

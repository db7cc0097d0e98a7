/* wire_drive: see wire_drive.h. */
#include "wire_drive.h"

#include <kvpager/states.h>

#include <stdlib.h>
#include <string.h>

enum { USABLE = 60, STREAMS = 3, SLOTS = 30 };

static void begin(driver *d, const kvp_config *config, uint64_t seed)
{
    d->w = make_world(config);
    d->random = seed;
    assert_ok(kvp_wire_config_of(d->w.cache, &d->config));
    assert_int_equal(d->config.max_copies, DRIVE_COPIES);
    d->config.max_step_tokens = DRIVE_SEQS * DRIVE_TOKENS;
    assert_ok(kvp_wire_sender_create(&d->config, d->w.cache, NULL, 0, &d->sender));
}

static kvp_config small_config(uint32_t usable)
{
    kvp_config config = config_of(4, 2, usable);
    config.max_seqs = DRIVE_SEQS;
    config.max_seq_tokens = DRIVE_TOKENS;
    config.max_copies = DRIVE_COPIES;
    return config;
}

void drive_begin(driver *d, uint64_t seed)
{
    kvp_config config = small_config(USABLE);
    memset(d, 0, sizeof *d);
    begin(d, &config, seed);
}

static void begin_rich(driver *d, uint32_t S_1, uint32_t S_2, uint64_t seed)
{
    kvp_config config = small_config(DRIVE_GROUPS * USABLE);
    config.n_groups = DRIVE_GROUPS;
    config.groups[1] = (kvp_group){3, 6, S_1};
    config.groups[2] = (kvp_group){0, 9, S_2};
    config.max_tree_tokens = DRIVE_NODES;
    memset(d, 0, sizeof *d);
    d->rich = 1;
    begin(d, &config, seed);
}

void drive_begin_rich(driver *d, uint64_t seed)
{
    begin_rich(d, 0, 0, seed);
}

void drive_begin_sizes(driver *d, uint64_t seed)
{
    begin_rich(d, 6, 2, seed);
}

void drive_begin_states(driver *d, uint64_t seed)
{
    kvp_config config = small_config(DRIVE_GROUPS * USABLE);
    config.n_groups = DRIVE_GROUPS;
    config.groups[1] = (kvp_group){3, 6, 0};
    config.groups[2] = (kvp_group){0, 9, 0};
    config.host_blocks = 2 * USABLE;
    config.state_slots = SLOTS;
    config.host_state_slots = SLOTS - 2;
    memset(d, 0, sizeof *d);
    d->states = 1;
    begin(d, &config, seed);
}

void drive_end(driver *d)
{
    kvp_wire_sender_destroy(d->sender);
    end_world(&d->w);
}

/* ----------------------------------------------------------------------------- what can happen */

static uint32_t find(driver *d, int is_open)
{
    uint32_t start = draw(&d->random, DRIVE_SEQS);
    for (uint32_t i = 0; i < DRIVE_SEQS; i++) {
        uint32_t id = (start + i) % DRIVE_SEQS;
        if ((d->seqs[id].status != 0) == (is_open != 0))
            return id;
    }
    return DRIVE_SEQS;
}

static void take_place(driver *d, uint32_t id, kvp_seq seq)
{
    driven *s = &d->seqs[id];
    s->seq = seq;
    s->status = 1 + draw(&d->random, 3);
    s->touched = 1;
    s->first_token = 0;
    if (draw(&d->random, 3) == 0)
        s->first_token = draw(&d->random, 2) ? KVP_END : draw(&d->random, 20);
}

/* Prompts begin alike, so that prefixes are hit and blocks adopted. */
static int open_one(driver *d)
{
    int32_t tokens[DRIVE_TOKENS];
    uint32_t id = find(d, 0);
    uint32_t n = draw(&d->random, 40);
    uint32_t n_alike = draw(&d->random, n + 1);
    uint32_t stream = draw(&d->random, STREAMS);
    kvp_seq seq;
    if (id == DRIVE_SEQS)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < n_alike ? (int32_t)(1000 * stream + i) : (int32_t)draw(&d->random, 4);
    kvp_prompt prompt = prompt_of(tokens, n);
    prompt.reserve_tokens = draw(&d->random, 8) == 0 ? draw(&d->random, 12) : 0;
    if (kvp_seq_open(d->w.cache, d->w.ns, &prompt, &seq, NULL) != KVP_OK)
        return 0;
    take_place(d, id, seq);
    return 1;
}

static int fork_one(driver *d)
{
    uint32_t parent = find(d, 1);
    uint32_t id = find(d, 0);
    kvp_seq seq;
    if (parent == DRIVE_SEQS || id == DRIVE_SEQS)
        return 0;
    kvp_seq_info info = info_of(&d->w, d->seqs[parent].seq);
    uint32_t at = draw(&d->random, info.computed_tokens + 1);
    if (kvp_seq_fork(d->w.cache, d->seqs[parent].seq, at, 0, &seq) != KVP_OK)
        return 0;
    d->seqs[parent].touched = 1; /* it may have no slot of state to write any more */
    take_place(d, id, seq);
    return 1;
}

static int close_one(driver *d, uint32_t id)
{
    driven *s = &d->seqs[id];
    close_seq(&d->w, s->seq);
    if (s->told)
        d->closed[d->n_closed++] = id;
    memset(s, 0, sizeof *s);
    return 1;
}

static int extend_one(driver *d, uint32_t id)
{
    int32_t tokens[8];
    uint32_t n = draw(&d->random, 3) == 0 ? draw(&d->random, 8) : 1;
    uint32_t reserve = draw(&d->random, 10) == 0 ? draw(&d->random, 9) : 0;
    for (uint32_t i = 0; i < 8; i++)
        tokens[i] = (int32_t)draw(&d->random, draw(&d->random, 2) ? 3 : 200000);
    int no_values = draw(&d->random, 6) == 0;
    return kvp_seq_extend(d->w.cache, d->seqs[id].seq, no_values ? NULL : tokens, n, reserve) ==
           KVP_OK;
}

static int fill_one(driver *d, uint32_t id)
{
    int32_t tokens[DRIVE_TOKENS];
    kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
    uint32_t n = draw(&d->random, info.n_tokens - info.known_tokens + 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)draw(&d->random, 3);
    return kvp_seq_fill(d->w.cache, d->seqs[id].seq, tokens, n) == KVP_OK && n > 0;
}

static int commit_one(driver *d, uint32_t id)
{
    kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
    uint32_t n = draw(&d->random, 3) == 0 ? draw(&d->random, info.n_tokens + 1) : info.n_tokens;
    return kvp_seq_commit(d->w.cache, d->seqs[id].seq, n) == KVP_OK;
}

static int truncate_one(driver *d, uint32_t id)
{
    kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
    uint32_t n = draw(&d->random, 2) ? draw(&d->random, info.n_tokens + 1)
                                     : info.n_tokens - info.n_tokens / 8;
    return kvp_seq_truncate(d->w.cache, d->seqs[id].seq, n, NULL) == KVP_OK;
}

static int invalidate_one(driver *d, uint32_t id)
{
    kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
    uint32_t from = draw(&d->random, info.n_tokens + 1);
    for (uint32_t i = 0; i < DRIVE_SEQS; i++)
        d->seqs[i].touched |= d->seqs[i].status != 0;
    return kvp_seq_invalidate(d->w.cache, d->seqs[id].seq, from, NULL, 0, NULL) == KVP_OK;
}

/* Roll back what was drafted and put as many other tokens in their place: no count tells. */
static int redraft_one(driver *d, uint32_t id)
{
    kvp_seq seq = d->seqs[id].seq;
    kvp_seq_info info = info_of(&d->w, seq);
    int32_t tokens[4] = {7, 8, 9, 7};
    uint32_t n = 1 + draw(&d->random, 4);
    if (info.known_tokens != info.n_tokens || info.n_tokens < info.computed_tokens + n)
        return 0;
    if (kvp_seq_truncate(d->w.cache, seq, info.n_tokens - n, NULL) != KVP_OK)
        return 0; /* a window has dropped what it would need */
    tokens[0] = (int32_t)draw(&d->random, 200000);
    return kvp_seq_extend(d->w.cache, seq, tokens, n, 0) == KVP_OK;
}

static int window_one(driver *d, uint32_t id)
{
    kvp_window window = {draw(&d->random, 6), draw(&d->random, 20)};
    if (window.recent_tokens == 0)
        window.sink_tokens = 0;
    return kvp_seq_window(d->w.cache, d->seqs[id].seq, draw(&d->random, DRIVE_GROUPS), window,
                          NULL) == KVP_OK;
}

static int grow_tree(driver *d, uint32_t id)
{
    int32_t tokens[DRIVE_NODES], parents[DRIVE_NODES];
    const uint32_t n_nodes = info_of(&d->w, d->seqs[id].seq).tree_tokens;
    uint32_t n = draw(&d->random, 7);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)draw(&d->random, draw(&d->random, 2) ? 3 : 200000);
        parents[i] = (int32_t)draw(&d->random, n_nodes + i + 1) - 1;
    }
    kvp_batch batch = {.struct_size = sizeof batch,
                       .n_seqs = 1,
                       .seqs = &d->seqs[id].seq,
                       .n_tokens = &n,
                       .tokens = tokens};
    return kvp_seq_extend_tree(d->w.cache, &batch, parents) == KVP_OK && n > 0;
}

static int accept_one(driver *d, uint32_t id)
{
    kvp_slot_move moves[DRIVE_GROUPS * DRIVE_NODES];
    kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
    int32_t leaf = (int32_t)draw(&d->random, info.tree_tokens + 1) - 1;
    kvp_accept accept = {.struct_size = sizeof accept,
                         .n_seqs = 1,
                         .max_moves = DRIVE_NODES,
                         .seqs = &d->seqs[id].seq,
                         .leaves = &leaf,
                         .moves = moves};
    if (info.tree_tokens == 0 || d->n_moves + DRIVE_NODES > DRIVE_MOVES ||
        kvp_seq_accept(d->w.cache, &accept) != KVP_OK)
        return 0;
    for (uint32_t group = 0; group < DRIVE_GROUPS; group++)
        memcpy(d->moves + group * DRIVE_MOVES + d->n_moves, moves + group * DRIVE_NODES,
               accept.n_moves * sizeof *moves);
    d->n_moves += accept.n_moves;
    return 1;
}

/* The tree goes; another of the same size comes: no count tells. */
static int regrow_tree(driver *d, uint32_t id)
{
    int32_t nodes[2][DRIVE_NODES];
    uint32_t n;
    kvp_seq seq = d->seqs[id].seq;
    assert_ok(kvp_seq_tree(d->w.cache, seq, nodes[0], nodes[1], DRIVE_NODES, &n));
    if (n == 0 || kvp_seq_truncate(d->w.cache, seq, info_of(&d->w, seq).n_tokens, NULL) != KVP_OK)
        return 0;
    nodes[draw(&d->random, 2)][n - 1] = (int32_t)draw(&d->random, n);
    kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = nodes[0]};
    return kvp_seq_extend_tree(d->w.cache, &batch, nodes[1]) == KVP_OK;
}

static int checkpoint_one(driver *d, uint32_t id)
{
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    kvp_status status = kvp_seq_checkpoint(d->w.cache, d->seqs[id].seq, &outcome);
    return status == KVP_OK && outcome == KVP_CHECKPOINT_MADE;
}

/* Workers are told that it has ended, and of a new one when it is back. */
static int swap_one(driver *d, uint32_t id)
{
    driven *s = &d->seqs[id];
    if (s->swapped) {
        s->swapped = kvp_seq_swap_in(d->w.cache, &s->seq, 1, 0, NULL) != KVP_OK;
        return !s->swapped;
    }
    if (kvp_seq_swap_out(d->w.cache, &s->seq, 1, NULL) != KVP_OK)
        return 0;
    if (s->told)
        d->closed[d->n_closed++] = id;
    s->swapped = 1;
    s->told = 0;
    return 1;
}

/* A chain of drafts, with a slot for the state after each. */
static int ring_one(driver *d, uint32_t id)
{
    const uint32_t n = draw(&d->random, 8) == 0 ? draw(&d->random, 17) : draw(&d->random, 5);
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &d->seqs[id].seq,
                             .n_tokens = &n};
    return kvp_seq_extend_many(d->w.cache, &batch) == KVP_OK && n > 1;
}

static int change_state(driver *d, uint32_t kind, uint32_t id)
{
    d->seqs[id].touched = 1;
    switch (kind) {
    case DRIVE_KINDS: return checkpoint_one(d, id);
    case DRIVE_KINDS + 1: return swap_one(d, id);
    default: return ring_one(d, id);
    }
}

static int change_rich(driver *d, uint32_t kind, uint32_t id)
{
    d->seqs[id].touched = 1;
    switch (kind) {
    case DRIVE_PLAIN: return window_one(d, id);
    case DRIVE_PLAIN + 1: return accept_one(d, id);
    case DRIVE_PLAIN + 2: return regrow_tree(d, id);
    default: return grow_tree(d, id);
    }
}

static int change_one(driver *d, uint32_t kind, uint32_t id)
{
    d->seqs[id].touched = 1;
    if (draw(&d->random, 8) == 0)
        d->seqs[id].status = 1 + draw(&d->random, 255);
    switch (kind) {
    case 3: return close_one(d, id);
    case 4: return fill_one(d, id);
    case 5: return truncate_one(d, id);
    case 6: return draw(&d->random, 4) == 0 && invalidate_one(d, id);
    case 7: return redraft_one(d, id);
    case 8:
    case 9:
    case 10: return commit_one(d, id);
    default: return extend_one(d, id);
    }
}

/* Twice as often: windows and accepts, and what is done to states. */
static uint32_t kind_of_change(driver *d)
{
    const uint32_t kind = draw(&d->random, DRIVE_PLAIN + (d->rich || d->states ? 6 : 0));
    if (d->states)
        return kind < DRIVE_PLAIN ? kind : DRIVE_KINDS + (kind - DRIVE_PLAIN) % 3;
    return kind < DRIVE_KINDS ? kind : kind - 4;
}

void drive_change(driver *d)
{
    uint32_t n = 1 + draw(&d->random, 6);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = kind_of_change(d);
        uint32_t id = find(d, 1);
        int done = 0;
        if (kind == 0 || kind == 1)
            done = open_one(d);
        else if (kind == 2)
            done = fork_one(d);
        else if (id != DRIVE_SEQS && kind >= DRIVE_KINDS)
            done = change_state(d, kind, id);
        else if (id != DRIVE_SEQS && kind >= DRIVE_PLAIN)
            done = change_rich(d, kind, id);
        else if (id != DRIVE_SEQS)
            done = change_one(d, kind, id);
        d->n_changes[kind] += done != 0;
    }
}

/* ---------------------------------------------------------------------------------- the message */

static void sort_closed(driver *d)
{
    for (uint32_t i = 1; i < d->n_closed; i++) {
        for (uint32_t j = i; j > 0 && d->closed[j - 1] > d->closed[j]; j--) {
            uint32_t id = d->closed[j];
            d->closed[j] = d->closed[j - 1];
            d->closed[j - 1] = id;
        }
    }
}

static kvp_state_info state_of(const driver *d, kvp_seq seq)
{
    kvp_state_info state;
    assert_ok(kvp_seq_state_get(d->w.cache, seq, &state));
    return state;
}

static uint32_t fill_items(driver *d, int full, kvp_wire_item *items)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < DRIVE_SEQS; id++) {
        driven *s = &d->seqs[id];
        if (s->status == 0 || s->swapped || (!full && !s->touched && draw(&d->random, 3) != 0))
            continue;
        kvp_seq_info info = info_of(&d->w, s->seq);
        uint32_t n_tokens = info.n_tokens + info.tree_tokens;
        if (s->step_tokens > n_tokens || draw(&d->random, 4) == 0)
            s->step_tokens = draw(&d->random, 4) ? n_tokens > 0 : draw(&d->random, n_tokens + 1);
        if (d->states && state_of(d, s->seq).write_slot == 0)
            s->step_tokens = 0;
        items[n++] = (kvp_wire_item){.seq = s->seq,
                                     .worker_id = id,
                                     .status = s->status,
                                     .step_tokens = s->step_tokens,
                                     .first_token = s->first_token};
        s->told = 1;
        s->touched = 0;
    }
    return n;
}

void drive_message(driver *d, int full)
{
    kvp_wire_item items[DRIVE_SEQS];
    size_t needed = 0;
    uint32_t n_moves = d->n_moves;
    d->n_copies = take_plan(&d->w, d->copies, DRIVE_COPIES);
    sort_closed(d);
    kvp_wire_step step = {.struct_size = sizeof step,
                          .flags = full ? KVP_WIRE_FULL : 0,
                          .n_items = fill_items(d, full, items),
                          .items = items,
                          .closed = d->closed,
                          .n_closed = d->n_closed,
                          .n_copies = d->n_copies,
                          .copies = d->copies,
                          .moves = d->moves,
                          .n_moves = n_moves,
                          .max_moves = DRIVE_MOVES};
    assert_ok(kvp_wire_sender_encode(d->sender, &step, NULL, 0, &needed)); /* it is not told yet */
    assert_status(KVP_E_TOO_SMALL,
                  kvp_wire_sender_encode(d->sender, &step, d->bytes, needed - 1, &needed));
    assert_ok(kvp_wire_sender_encode(d->sender, &step, d->bytes, sizeof d->bytes, &d->n_bytes));
    assert_int_equal(d->n_bytes, needed);
    d->n_closed = 0;
    d->n_told = n_moves;
    memcpy(d->told, d->moves, sizeof d->told);
    d->n_moves = 0;
}

/* ------------------------------------------------------------------------------------ the sums */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ (sum >> 29);
}

static uint64_t mix_all(uint64_t sum, uint32_t id, const uint32_t *counts, uint32_t n_counts,
                        const int32_t *row, uint32_t n_blocks)
{
    sum = mix(sum, id);
    for (uint32_t i = 0; i < n_counts; i++)
        sum = mix(sum, counts[i]);
    for (uint32_t i = 0; i < n_blocks; i++)
        sum = mix(sum, (uint32_t)row[i]);
    return sum;
}

/* Rows of the other groups, windows, the tree. */
static uint64_t sum_of_groups(const driver *d, kvp_seq seq, uint32_t n_groups, uint64_t sum)
{
    int32_t tokens[DRIVE_NODES], parents[DRIVE_NODES];
    uint32_t n;
    for (uint32_t group = 0; group < n_groups; group++) {
        const int32_t *row;
        kvp_window_info info;
        assert_ok(kvp_seq_row(d->w.cache, seq, group, &row, &n));
        assert_ok(kvp_seq_window_get(d->w.cache, seq, group, &info));
        sum = mix_all(sum, group, (const uint32_t *)&info.window, 2, row, n);
    }
    assert_ok(kvp_seq_tree(d->w.cache, seq, tokens, parents, DRIVE_NODES, &n));
    sum = mix_all(sum, n, NULL, 0, tokens, n);
    return mix_all(sum, n, NULL, 0, parents, n);
}

static uint32_t entries_told(const kvp_wire_seq *s, const kvp_wire_config *config, uint32_t group)
{
    const uint32_t S =
        config->group_tokens[group] != 0 ? config->group_tokens[group] : config->block_tokens;
    return (uint32_t)kvp_blocks_for_tokens(S, s->row_tokens);
}

static uint64_t sum_of_groups_told(const kvp_wire_seq *s, const kvp_wire_config *config,
                                   uint64_t sum)
{
    for (uint32_t group = 0; group < config->n_groups; group++)
        sum = mix_all(sum, group, (const uint32_t *)&s->windows[group], 2,
                      s->row + (size_t)group * config->max_row_blocks,
                      entries_told(s, config, group));
    sum = mix_all(sum, s->tree_tokens, NULL, 0, s->node_tokens, s->tree_tokens);
    return mix_all(sum, s->tree_tokens, NULL, 0, s->node_parents, s->tree_tokens);
}

/* The slots that kernels of a single process are given. Who computes has some. */
static uint64_t sum_of_slots(const driver *d, const driven *s, uint64_t sum)
{
    int32_t writes[KVP_STATE_RING_MAX];
    uint32_t slots[2] = {0, 0}; /* read, and the number of those that are written */
    const int has_some = d->states && state_of(d, s->seq).write_slot != 0;
    if (has_some || (d->states && s->step_tokens > 0)) {
        assert_ok(kvp_meta_state_rings(d->w.cache, &s->seq, 1, KVP_STATE_RING_MAX,
                                       (int32_t *)&slots[0], &slots[1], writes));
    } else if (d->states) {
        slots[0] = state_of(d, s->seq).read_slot;
    }
    return mix_all(sum, 2, slots, 2, writes, slots[1]);
}

uint64_t drive_sum_cache(const driver *d)
{
    uint64_t sum = 1;
    for (uint32_t id = 0; id < DRIVE_SEQS; id++) {
        const driven *s = &d->seqs[id];
        const int32_t *row;
        uint32_t n;
        if (s->status == 0 || s->swapped)
            continue;
        kvp_seq_info info = info_of(&d->w, s->seq);
        assert_ok(kvp_seq_row(d->w.cache, s->seq, 0, &row, &n));
        uint32_t counts[] = {s->status,
                             info.n_tokens,
                             info.known_tokens,
                             info.computed_tokens,
                             info.cached_tokens,
                             s->step_tokens,
                             n,
                             (uint32_t)info.last_token};
        sum = mix_all(sum, id, counts, sizeof counts / sizeof *counts, row, n);
        sum = sum_of_groups(d, s->seq, d->config.n_groups, sum);
        sum = sum_of_slots(d, s, sum);
    }
    return sum;
}

uint64_t drive_sum_mirror(const kvp_wire_mirror *mirror, const kvp_wire_config *config)
{
    uint64_t sum = 1;
    for (uint32_t id = 0; id < config->max_seqs; id++) {
        kvp_wire_seq s;
        assert_ok(kvp_wire_mirror_seq(mirror, id, &s));
        if (s.status == 0)
            continue;
        uint32_t counts[] = {
            s.status,        s.n_tokens,    s.known_tokens, s.computed_tokens,
            s.cached_tokens, s.step_tokens, s.n_blocks,     (uint32_t)s.last_token};
        sum = mix_all(sum, id, counts, sizeof counts / sizeof *counts, s.row, s.n_blocks);
        sum = sum_of_groups_told(&s, config, sum);
        const uint32_t slots[] = {s.read_slot, s.n_write_slots};
        assert_int_equal(s.write_slot,
                         s.n_write_slots == 0 ? 0 : s.write_slots[s.n_write_slots - 1]);
        sum = mix_all(sum, 2, slots, 2, s.write_slots, s.n_write_slots);
    }
    return sum;
}

void drive_tell(driver *d, kvp_wire_mirror *mirror, kvp_wire_news *out_news)
{
    drive_change(d);
    drive_message(d, draw(&d->random, 50) == 0);
    uint8_t *bytes = malloc(d->n_bytes);
    assert_non_null(bytes);
    memcpy(bytes, d->bytes, d->n_bytes);
    assert_ok(kvp_wire_mirror_apply(mirror, bytes, d->n_bytes, out_news));
    free(bytes); /* what the news say lies in the mirror */
    assert_int_equal(drive_sum_mirror(mirror, &d->config), drive_sum_cache(d));
    assert_int_equal(kvp_wire_mirror_digest(mirror), kvp_wire_sender_digest(d->sender));
}

/* ------------------------------------------------------------------------------------- canaries */

enum { CANARY = 0x7EADBEEF };

kvp_wire_config drive_roomy(const driver *d)
{
    kvp_wire_config config = d->config;
    config.max_row_blocks += 2;
    return config;
}

canaries drive_put_canaries(const kvp_wire_mirror *mirror, const kvp_wire_config *config)
{
    canaries before = {{{0}}};
    for (uint32_t id = 0; id < config->max_seqs; id++) {
        kvp_wire_seq s;
        assert_ok(kvp_wire_mirror_seq(mirror, id, &s));
        for (uint32_t group = 0; group < config->n_groups; group++) {
            int32_t *row = (int32_t *)(uintptr_t)s.row + (size_t)group * config->max_row_blocks;
            before.blocks[id][group] = entries_told(&s, config, group);
            for (uint32_t i = before.blocks[id][group]; i < config->max_row_blocks; i++)
                row[i] = CANARY;
        }
    }
    return before;
}

void drive_assert_canaries(const kvp_wire_mirror *mirror, const kvp_wire_config *config,
                           const canaries *before)
{
    for (uint32_t id = 0; id < config->max_seqs; id++) {
        kvp_wire_seq s;
        assert_ok(kvp_wire_mirror_seq(mirror, id, &s));
        for (uint32_t group = 0; group < config->n_groups; group++) {
            const int32_t *row = s.row + (size_t)group * config->max_row_blocks;
            const uint32_t had = before->blocks[id][group];
            const uint32_t has = entries_told(&s, config, group);
            for (uint32_t i = has > had ? has : had; i < config->max_row_blocks; i++)
                assert_int_equal(row[i], CANARY);
        }
    }
}

/* Any bytes as what a scheduler does to a small cache, and as the messages that tell its workers:
 * sequences that are opened, forked, grown, rolled back, drafted, swapped and closed, with and
 * without layer groups, and messages that name some of them, rightly or not.
 *
 * What the sender refuses changes nothing: the next right message is taken. What it makes, a mirror
 * of the same sizes takes, and has what the cache has of every sequence that was named. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/all.h>
#include <kvpager/wire.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    N_IDS = 6,
    S = 4,
    MAX_TOKENS = 64,
    MAX_NODES = 8,
    MAX_MOVES = N_IDS * MAX_NODES,
    MAX_COPIES = 64,
    MAX_CALLS = 200,
    MESSAGE_BYTES = 1 << 15
};

/* One worker id. */
struct named {
    kvp_seq seq;
    int is_open;
    int is_told; /* the workers have a sequence by this id: maybe one that is closed by now */
    int is_swapped;
};

struct session {
    const uint8_t *at;
    const uint8_t *end;
    kvp_cache *cache;
    kvp_ns ns;
    kvp_wire_config config;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirror;
    struct named ids[N_IDS];
    int ended[N_IDS]; /* told, and closed since */
    int is_misled;    /* a spoilt message was right: ids may be of other sequences now */
    kvp_copy copies[MAX_COPIES];
    uint32_t n_copies;
    kvp_slot_move moves[KVP_GROUPS_MAX * MAX_MOVES];
    uint32_t n_moves;
};

static uint32_t take(struct session *s, uint32_t below)
{
    return s->at < s->end ? *s->at++ % below : 0;
}

static void begin(struct session *s)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.unit_tokens = take(s, 2) ? 2 : 0;
    config.n_groups = 1 + take(s, 3);
    config.n_blocks = 1 + 24 * config.n_groups;
    config.max_seqs = N_IDS;
    config.max_seq_tokens = MAX_TOKENS;
    config.max_copies = MAX_COPIES;
    config.max_tree_tokens = take(s, 2) ? MAX_NODES : 0;
    const uint32_t tiers = take(s, 4);
    config.host_blocks = tiers % 2 ? 30 : 0;
    if (tiers >= 2) {
        config.max_tree_tokens = 0;
        config.state_slots = 12;
        config.host_state_slots = config.host_blocks > 0 ? 12 : 0;
    }
    const uint32_t U = config.unit_tokens > 0 ? config.unit_tokens : S;
    for (uint32_t g = 1; g < config.n_groups; g++)
        config.groups[g] = (kvp_group){take(s, 6), 1 + take(s, 12), U * (1 + take(s, 5))};
    require(kvp_cache_create(&config, NULL, 0, &s->cache) == KVP_OK);
    require(kvp_ns_open(s->cache, "a", 1, &s->ns) == KVP_OK);
    require(kvp_wire_config_of(s->cache, &s->config) == KVP_OK);
    s->config.max_step_tokens = take(s, 4) == 0 ? 20 : N_IDS * MAX_TOKENS;
    s->config.max_copies = take(s, 4) == 0 ? 3 : MAX_COPIES;
    require(kvp_wire_sender_create(&s->config, s->cache, NULL, 0, &s->sender) == KVP_OK);
    require(kvp_wire_mirror_create(&s->config, NULL, 0, &s->mirror) == KVP_OK);
}

/* -------------------------------------------------------------------------- what is done to it */

static kvp_seq_info look(const struct session *s, const struct named *k)
{
    kvp_seq_info info;
    require(kvp_seq_info_get(s->cache, k->seq, &info) == KVP_OK);
    return info;
}

static void take_tokens(struct session *s, int32_t *tokens, uint32_t n)
{
    const uint32_t way = take(s, 4);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = way == 0 ? (int32_t)i * 1000 : (int32_t)take(s, way == 1 ? 256 : 3);
}

static void open_one(struct session *s, struct named *k)
{
    int32_t tokens[MAX_TOKENS];
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens};
    prompt.n_tokens = take(s, 40);
    prompt.reserve_tokens = take(s, 4) == 0 ? take(s, 12) : 0;
    take_tokens(s, tokens, prompt.n_tokens);
    k->is_open = kvp_seq_open(s->cache, s->ns, &prompt, &k->seq, NULL) == KVP_OK;
}

static void fork_one(struct session *s, struct named *k, const struct named *parent)
{
    if (parent->is_open && !parent->is_swapped)
        k->is_open = kvp_seq_fork(s->cache, parent->seq, look(s, parent).computed_tokens, 0,
                                  &k->seq) == KVP_OK;
}

static void close_one(struct session *s, uint32_t id)
{
    require(kvp_seq_close(s->cache, s->ids[id].seq, NULL) == KVP_OK);
    s->ended[id] |= s->ids[id].is_told;
    memset(&s->ids[id], 0, sizeof s->ids[id]);
}

static void swap_one(struct session *s, struct named *k)
{
    if (k->is_swapped)
        k->is_swapped = kvp_seq_swap_in(s->cache, &k->seq, 1, 0, NULL) != KVP_OK;
    else
        k->is_swapped = kvp_seq_swap_out(s->cache, &k->seq, 1, NULL) == KVP_OK;
}

static void grow_tree(struct session *s, const struct named *k)
{
    int32_t tokens[MAX_NODES], parents[MAX_NODES];
    const uint32_t n = take(s, MAX_NODES), n_nodes = look(s, k).tree_tokens;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &k->seq,
                             .n_tokens = &n,
                             .tokens = tokens};
    take_tokens(s, tokens, n);
    for (uint32_t i = 0; i < n; i++)
        parents[i] = (int32_t)take(s, n_nodes + i + 1) - 1;
    (void)kvp_seq_extend_tree(s->cache, &batch, parents);
}

/* Moves wait for the next message. */
static void accept_one(struct session *s, const struct named *k)
{
    kvp_slot_move moves[KVP_GROUPS_MAX * MAX_NODES];
    const int32_t leaf = (int32_t)take(s, look(s, k).tree_tokens + 1) - 1;
    kvp_accept accept = {.struct_size = sizeof accept,
                         .n_seqs = 1,
                         .max_moves = MAX_NODES,
                         .seqs = &k->seq,
                         .leaves = &leaf,
                         .moves = moves};
    if (s->n_moves + MAX_NODES > MAX_MOVES || kvp_seq_accept(s->cache, &accept) != KVP_OK)
        return;
    for (uint32_t g = 0; g < s->config.n_groups; g++)
        memcpy(s->moves + g * MAX_MOVES + s->n_moves, moves + g * MAX_NODES,
               accept.n_moves * sizeof *moves);
    s->n_moves += accept.n_moves;
}

/* A chain of drafts, with a slot of state for each. */
static void draft_chain(const struct session *s, const struct named *k, uint32_t n)
{
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &k->seq,
                             .n_tokens = &n};
    (void)kvp_seq_extend_many(s->cache, &batch);
}

static void change_one(struct session *s, const struct named *k, uint32_t what)
{
    int32_t tokens[MAX_TOKENS];
    const uint32_t n = take(s, 12);
    const kvp_seq_info info = look(s, k);
    const kvp_window window = {n == 0 ? 0 : take(s, 6), n};
    take_tokens(s, tokens, n);
    switch (what) {
    case 0: (void)kvp_seq_extend(s->cache, k->seq, take(s, 4) ? tokens : NULL, n, 0); break;
    case 1: (void)kvp_seq_extend(s->cache, k->seq, tokens, 1, n); break;
    case 2: (void)kvp_seq_fill(s->cache, k->seq, tokens, n); break;
    case 3: (void)kvp_seq_commit(s->cache, k->seq, info.n_tokens - (n > 8 ? n - 8 : 0)); break;
    case 4: (void)kvp_seq_truncate(s->cache, k->seq, info.n_tokens - n, NULL); break;
    case 5: (void)kvp_seq_invalidate(s->cache, k->seq, info.n_tokens - n, NULL, 0, NULL); break;
    case 6:
        if (s->config.state_slots > 0 && n < 6)
            (void)kvp_seq_checkpoint(s->cache, k->seq, NULL);
        else
            (void)kvp_seq_window(s->cache, k->seq, take(s, 3), window, NULL);
        break;
    case 7:
        if (s->config.state_slots > 0)
            draft_chain(s, k, n);
        else
            grow_tree(s, k);
        break;
    default: accept_one(s, k); break;
    }
}

/* A token for each: what most steps are. */
static void decode_all(struct session *s)
{
    const int32_t token = (int32_t)take(s, 256);
    for (uint32_t id = 0; id < N_IDS; id++) {
        const struct named *k = &s->ids[id];
        if (!k->is_open || k->is_swapped ||
            kvp_seq_extend(s->cache, k->seq, &token, 1, 0) != KVP_OK)
            continue;
        const kvp_seq_info info = look(s, k);
        require(kvp_seq_commit(s->cache, k->seq, info.known_tokens) == KVP_OK);
    }
}

/* ---------------------------------------------------------------------------------- the message */

struct message {
    kvp_wire_item items[N_IDS];
    uint32_t closed[N_IDS];
    kvp_wire_step step;
};

static uint32_t take_step(struct session *s, uint32_t n_tokens)
{
    return take(s, 4) == 3 ? take(s, n_tokens + 1) : n_tokens > 0;
}

/* With recurrent state it needs a slot to write. */
static int may_compute(const struct session *s, const struct named *k)
{
    return s->config.state_slots == 0 ||
           kvp_meta_states(s->cache, &k->seq, 1, NULL, NULL) == KVP_OK;
}

static void make_message(struct session *s, struct message *m)
{
    const uint32_t chosen = take(s, 256);
    const int is_full = s->is_misled || (chosen & 0xC0) == 0xC0;
    memset(m, 0, sizeof *m);
    m->step = (kvp_wire_step){.struct_size = sizeof m->step,
                              .flags = is_full ? KVP_WIRE_FULL : 0,
                              .items = m->items,
                              .closed = m->closed,
                              .copies = s->copies,
                              .n_copies = s->n_copies,
                              .moves = s->moves,
                              .n_moves = s->n_moves,
                              .max_moves = MAX_MOVES};
    for (uint32_t id = 0; id < N_IDS; id++) {
        if (s->ended[id])
            m->closed[m->step.n_closed++] = id;
        if (!s->ids[id].is_open || s->ids[id].is_swapped || (chosen >> id & 1) != 0)
            continue;
        const kvp_seq_info info = look(s, &s->ids[id]);
        const uint32_t step_tokens = take_step(s, info.n_tokens + info.tree_tokens);
        m->items[m->step.n_items++] =
            (kvp_wire_item){.seq = s->ids[id].seq,
                            .worker_id = id,
                            .status = take(s, 8) == 7 ? 1 + take(s, 255) : 1,
                            .step_tokens = may_compute(s, &s->ids[id]) ? step_tokens : 0,
                            .first_token = take(s, 4) == 0 ? KVP_END : 0};
    }
}

/* Something that a caller should not say; not everything is wrong in every state. */
static void spoil(struct session *s, struct message *m)
{
    kvp_wire_item *item = &m->items[take(s, N_IDS)];
    const uint32_t value = take(s, 256);
    switch (take(s, 12)) {
    case 0: item->worker_id = value; break;
    case 1: item->status = value == 0 ? 256 : 0; break;
    case 2: item->step_tokens = value << 4; break;
    case 3: item->seq.bits ^= value; break;
    case 4: item->first_token = value; break;
    case 5: m->closed[take(s, N_IDS)] = value; break;
    case 6: m->step.n_closed = value % (N_IDS + 1); break;
    case 7: m->step.flags = value; break;
    case 8: s->copies[value % MAX_COPIES].dst_block = (int32_t)value; break;
    case 9: s->copies[value % MAX_COPIES].phase = value; break;
    case 10: s->moves[value % MAX_MOVES].dst += (int64_t)value - 2; break;
    default: m->step.max_moves = value % (MAX_MOVES + 1); break;
    }
}

/* What a kernel of a single process would be given. */
static void compare_ring(const struct session *s, const kvp_wire_item *item,
                         const kvp_wire_seq *told)
{
    int32_t writes[KVP_STATE_RING_MAX];
    uint32_t n;
    if (told->n_write_slots == 0)
        return;
    require(kvp_meta_state_rings(s->cache, &item->seq, 1, KVP_STATE_RING_MAX, NULL, &n, writes) ==
                KVP_OK &&
            n == told->n_write_slots);
    require(memcmp(writes, told->write_slots, n * sizeof *writes) == 0);
}

static void compare(const struct session *s, const kvp_wire_item *item)
{
    kvp_seq_info info;
    kvp_wire_seq told;
    require(kvp_seq_info_get(s->cache, item->seq, &info) == KVP_OK);
    require(kvp_wire_mirror_seq(s->mirror, item->worker_id, &told) == KVP_OK);
    require(told.status == item->status && told.step_tokens == item->step_tokens);
    require(told.n_tokens == info.n_tokens && told.known_tokens == info.known_tokens);
    require(told.computed_tokens == info.computed_tokens);
    require(told.tree_tokens == info.tree_tokens);
    if (s->config.state_slots > 0) {
        kvp_state_info state;
        require(kvp_seq_state_get(s->cache, item->seq, &state) == KVP_OK);
        require(told.read_slot == state.read_slot && told.write_slot == state.write_slot);
        require(told.n_write_slots == (state.write_slot == 0 ? 0 : state.ring_slots + 1));
        compare_ring(s, item, &told);
    }
    for (uint32_t g = 0; g < s->config.n_groups; g++) {
        const int32_t *row;
        uint32_t n;
        require(kvp_seq_row(s->cache, item->seq, g, &row, &n) == KVP_OK);
        const uint32_t block_tokens = s->config.group_tokens[g] > 0 ? s->config.group_tokens[g] : S;
        require(n == kvp_blocks_for_tokens(block_tokens, told.row_tokens));
        require(memcmp(row, told.row + (size_t)g * s->config.max_row_blocks, n * sizeof *row) == 0);
    }
}

static void check_told(struct session *s, const struct message *m, const uint8_t *bytes, size_t n)
{
    kvp_wire_news news;
    require(kvp_wire_mirror_apply(s->mirror, bytes, n, &news) == KVP_OK);
    require(kvp_wire_mirror_digest(s->mirror) == kvp_wire_sender_digest(s->sender));
    require(news.n_items == m->step.n_items && news.n_copies == m->step.n_copies &&
            news.n_moves == m->step.n_moves);
    for (uint32_t i = 0; i < m->step.n_items; i++)
        compare(s, &m->items[i]);
    for (uint32_t id = 0; id < N_IDS; id++) {
        kvp_wire_seq told;
        require(kvp_wire_mirror_seq(s->mirror, id, &told) == KVP_OK);
        s->ids[id].is_told = told.status != 0;
        s->ended[id] = told.status != 0 && !s->ids[id].is_open;
    }
    s->n_moves = 0;
}

static kvp_status encode(const struct session *s, const struct message *m, uint8_t *bytes,
                         size_t *n)
{
    size_t needed = 0;
    const kvp_status asked = kvp_wire_sender_encode(s->sender, &m->step, NULL, 0, &needed);
    const kvp_status status = kvp_wire_sender_encode(s->sender, &m->step, bytes, MESSAGE_BYTES, n);
    require(asked == status || (asked == KVP_OK && status == KVP_E_TOO_SMALL));
    require(asked != KVP_OK || (needed > MESSAGE_BYTES) == (status != KVP_OK));
    require(status != KVP_OK || needed == *n);
    return status;
}

/* With a spoilt message before it, sometimes; it may turn out to be right. */
static void tell(struct session *s)
{
    static uint8_t bytes[MESSAGE_BYTES];
    size_t n;
    struct message right, m;
    require(kvp_plan_take(s->cache, s->copies, MAX_COPIES, &s->n_copies) == KVP_OK);
    make_message(s, &right);
    const struct session before = *s;
    for (uint32_t i = take(s, 4); i > 0; i--) {
        const uint64_t digest = kvp_wire_sender_digest(s->sender);
        m = right;
        m.step.items = m.items;
        m.step.closed = m.closed;
        spoil(s, &m);
        if (encode(s, &m, bytes, &n) == KVP_OK) {
            check_told(s, &m, bytes, n);
            s->is_misled = 1;
            return;
        }
        require(kvp_wire_sender_digest(s->sender) == digest);
        memcpy(s->copies, before.copies, sizeof s->copies);
        memcpy(s->moves, before.moves, sizeof s->moves);
    }
    const kvp_status status = encode(s, &right, bytes, &n);
    require(status == KVP_OK || status == KVP_E_TOO_SMALL || status == KVP_E_UNKNOWN);
    if (status != KVP_OK)
        return;
    check_told(s, &right, bytes, n);
    s->is_misled = 0;
}

static void run_call(struct session *s)
{
    const uint32_t what = take(s, 16), id = take(s, N_IDS);
    struct named *k = &s->ids[id];
    if (what >= 13)
        tell(s);
    else if (what == 10)
        decode_all(s);
    else if (!k->is_open && what % 3 == 0)
        fork_one(s, k, &s->ids[take(s, N_IDS)]);
    else if (!k->is_open)
        open_one(s, k);
    else if (what == 12)
        swap_one(s, k);
    else if (what == 11)
        close_one(s, id);
    else if (!k->is_swapped)
        change_one(s, k, what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session s;
    memset(&s, 0, sizeof s);
    s.at = data;
    s.end = data + size;
    begin(&s);
    for (uint32_t i = 0; i < MAX_CALLS && s.at < s.end; i++)
        run_call(&s);
    require(kvp_cache_check(s.cache, 3, NULL) == KVP_OK);
    kvp_wire_sender_destroy(s.sender);
    kvp_wire_mirror_destroy(s.mirror);
    kvp_cache_destroy(s.cache);
    return 0;
}

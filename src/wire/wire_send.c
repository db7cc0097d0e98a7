/* wire_send: the sender. What the cache says, less what the workers have, is the message.
 *
 * A message is made in three steps, so that a failure leaves everything as it was:
 *   prepare   read each named sequence from the cache and find what kind of entry it needs
 *   write     the bytes; a buffer that is too small only counts
 *   remember  what was prepared becomes what the workers have
 *
 * Values. A worker is told each value once. Whether values that it was told have been replaced
 * since (a rejected draft was rolled back, and others came) cannot be seen in the counts, so the
 * sender keeps a hash of those that may be: from `base` on, the first token whose computation was
 * not over. Older ones cannot change without the computed count falling below base.
 *
 *          0 ........ base ...... computed ...... known ...... tokens
 *            computed      in flight      to be computed   no value yet
 *                     [------- hashed -----------)
 *
 * Trees are remembered node by node, and compared. Rows, windows and nodes of the step being made
 * are read from the cache again when they are written, and when they are remembered: it does not
 * change meanwhile.
 *
 * S1  memos[i] is of the sequence with worker id i, as of the last message that named it.
 * S2  What table says is what every worker has that took the last message.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/wire_send.h"
#include "base/aligned.h"
#include "base/sized.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct kvp_wire_sender sender;
typedef struct kvpi_wire_pending pending;
typedef struct kvpi_wire_out writer;

/* ------------------------------------------------------------------------------------ creation */

struct sender_places {
    struct kvpi_wire_table_places table;
    size_t memos;
    size_t pending;
    size_t rows;
    size_t windows;
    size_t tokens;
    size_t parents;
    size_t writes;
    size_t bytes;
};

static kvp_status plan_sender(const kvp_wire_config *config, struct sender_places *places)
{
    struct kvpi_wire_layout layout = {0};
    if (!kvpi_wire_config_is_valid(config))
        return KVP_E_ARG;
    kvpi_wire_layout_take(&layout, 1, sizeof(sender));
    places->memos = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(struct kvpi_wire_memo));
    places->pending = kvpi_wire_layout_take(&layout, config->max_seqs, sizeof(pending));
    const uint64_t n_rows = (uint64_t)config->max_seqs * config->n_groups;
    places->rows = kvpi_wire_layout_take(&layout, n_rows, sizeof(int32_t *));
    places->windows = kvpi_wire_layout_take(&layout, n_rows, sizeof(kvp_window));
    places->tokens = kvpi_wire_layout_take(&layout, config->max_tree_tokens, sizeof(int32_t));
    places->parents = kvpi_wire_layout_take(&layout, config->max_tree_tokens, sizeof(int32_t));
    const uint64_t n_writes = (uint64_t)config->max_seqs * KVP_STATE_RING_MAX;
    places->writes =
        kvpi_wire_layout_take(&layout, config->state_slots > 0 ? n_writes : 0, sizeof(int32_t));
    places->table = kvpi_wire_table_plan(&layout, config);
    places->bytes = layout.bytes;
    return layout.overflow ? KVP_E_TOO_LONG : KVP_OK;
}

kvp_status kvp_wire_sender_bytes(const kvp_wire_config *config, size_t *out_bytes)
{
    struct sender_places places;
    config = kvpi_sized(config, sizeof(*config));
    kvp_status status = out_bytes == NULL ? KVP_E_ARG : plan_sender(config, &places);
    if (status == KVP_OK)
        *out_bytes = places.bytes;
    return status;
}

/* Do the ids of this cache fit? A mirror of these sizes asks for slots where the cache has some. */
static int ids_fit(const kvp_wire_config *config, const kvp_config *cache)
{
    return config->n_blocks >= cache->n_blocks && config->host_blocks >= cache->host_blocks &&
           config->state_slots >= cache->state_slots &&
           config->host_state_slots >= cache->host_state_slots &&
           (config->state_slots > 0) == (cache->state_slots > 0);
}

static int groups_fit(const kvp_wire_config *config, const kvp_config *cache)
{
    for (uint32_t g = 0; g < config->n_groups && g < cache->n_groups; g++) {
        if (cache->groups[g].block_tokens != kvpi_wire_block_tokens(config, g))
            return 0;
    }
    return config->n_groups == cache->n_groups;
}

kvp_status kvp_wire_sender_create(const kvp_wire_config *config, const kvp_cache *cache,
                                  void *memory, size_t memory_bytes, kvp_wire_sender **out_sender)
{
    struct sender_places places;
    kvp_config cache_config;
    uint32_t owned;
    if (out_sender == NULL)
        return KVP_E_ARG;
    config = kvpi_sized(config, sizeof(*config));
    kvp_status status = plan_sender(config, &places);
    if (status == KVP_OK)
        status = kvp_cache_config_get(cache, &cache_config);
    if (status != KVP_OK)
        return status;
    if (!groups_fit(config, &cache_config) || !ids_fit(config, &cache_config))
        return KVP_E_ARG;
    status = kvpi_wire_memory(&memory, memory_bytes, places.bytes, &owned);
    if (status != KVP_OK)
        return status;
    sender *s = memory;
    *s = (sender){.cache = cache, .config = *config, .owned = owned};
    s->memos = (struct kvpi_wire_memo *)(void *)((char *)memory + places.memos);
    s->pending = (pending *)(void *)((char *)memory + places.pending);
    s->rows = (const int32_t **)(void *)((char *)memory + places.rows);
    s->windows = (kvp_window *)(void *)((char *)memory + places.windows);
    s->tokens = (int32_t *)(void *)((char *)memory + places.tokens);
    s->parents = (int32_t *)(void *)((char *)memory + places.parents);
    s->writes = (int32_t *)(void *)((char *)memory + places.writes);
    kvpi_wire_table_init(&s->table, config, memory, places.table);
    *out_sender = s;
    return KVP_OK;
}

void kvp_wire_sender_destroy(kvp_wire_sender *s)
{
    if (s != NULL && s->owned)
        kvpi_aligned_free(s);
}

#if KVP_CHECK >= 1
void kvpi_wire_start_at(sender *s, uint64_t start)
{
    s->number = start;
}
#endif

/* ------------------------------------------------------------------------------------- prepare */

static kvp_status hash_values(const sender *s, const kvp_wire_item *item, uint32_t from,
                              uint32_t to, uint64_t *out_hash)
{
    int32_t chunk[KVPI_WIRE_CHUNK];
    uint64_t hash = from;
    for (uint32_t n; from < to; from += n) {
        const int32_t *values;
        n = to - from < KVPI_WIRE_CHUNK ? to - from : KVPI_WIRE_CHUNK;
        kvp_status status = kvpi_wire_load_values(s, item, from, n, chunk, &values);
        if (status != KVP_OK)
            return status;
        hash = XXH3_64bits_withSeed(values, n * sizeof *values, hash);
    }
    *out_hash = hash;
    return KVP_OK;
}

/* The first token whose computation is not over; those of the step are taken to be in flight, also
 * when the engine commits what it has only scheduled. */
static uint32_t base_of(const struct kvpi_wire_seq *seq)
{
    uint32_t done = kvpi_wire_least(seq->computed, seq->known);
    return done - kvpi_wire_least(done, seq->step);
}

/* Where the values begin that the worker does not have. */
static kvp_status find_from(const sender *s, const kvp_wire_item *item, pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct kvpi_wire_memo *memo = &s->memos[p->id];
    uint64_t hash;
    if (p->now.known >= old->known && p->now.computed >= memo->base) {
        kvp_status status = hash_values(s, item, memo->base, old->known, &hash);
        if (status != KVP_OK)
            return status;
        if (hash == memo->hash) {
            p->from = old->known;
            return KVP_OK;
        }
    }
    p->from = kvpi_wire_least(memo->base, kvpi_wire_least(p->now.computed, p->now.known));
    return KVP_OK;
}

/* Is it one token more, with its value, the one before computed, and the rest as it was? */
static int is_decode(const struct kvpi_wire_seq *old, const pending *p)
{
    const struct kvpi_wire_seq *now = &p->now;
    return now->status == old->status && now->tokens == old->tokens + 1 &&
           now->known == old->known + 1 && now->computed == old->computed + 1 &&
           now->cached == old->cached && now->step == old->step && p->from == old->known &&
           p->same == old->grains && p->more == 0;
}

static uint32_t kind_of_change(const sender *s, const pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    if (p->is_new)
        return KVPI_WIRE_NEW;
    if (is_decode(old, p) && p->now.grains == old->grains)
        return KVPI_WIRE_DECODE;
    if (is_decode(old, p) && p->now.grains == kvpi_wire_grains_next(&s->table, old->grains))
        return KVPI_WIRE_DECODE_BLOCK;
    return KVPI_WIRE_CHANGE;
}

static kvp_status read_groups(const sender *s, const kvp_wire_item *item, pending *p)
{
    kvp_status status = KVP_OK;
    uint64_t end = UINT64_MAX; /* where the first row ends */
    for (uint32_t group = 0; group < s->config.n_groups && status == KVP_OK; group++) {
        kvp_window_info info;
        uint32_t n;
        const size_t at = kvpi_wire_groups_at(s, p) + group;
        status = kvp_seq_row(s->cache, item->seq, group, &s->rows[at], &n);
        if (status == KVP_OK)
            status = kvp_seq_window_get(s->cache, item->seq, group, &info);
        if (status != KVP_OK)
            return status;
        s->windows[at] = info.window;
        const uint64_t end_of_row = (uint64_t)n * s->table.block_tokens[group];
        end = end_of_row < end ? end_of_row : end;
    }
    if (end / s->table.grain > s->table.max_grains)
        return KVP_E_TOO_SMALL;
    p->now.grains = (uint32_t)(end / s->table.grain);
    return KVP_OK;
}

/* The slots of recurrent state: a sequence that computes needs the one before and one to write. */
static kvp_status find_slots(const sender *s, const kvp_wire_item *item, pending *p)
{
    kvp_state_info state;
    uint32_t n;
    kvp_status status = kvp_seq_state_get(s->cache, item->seq, &state);
    if (status != KVP_OK)
        return status;
    p->now.read_slot = state.read_slot;
    p->now.write_slot = state.write_slot;
    p->now.n_ring = state.ring_slots;
    if (item->step_tokens > 0 && state.lost)
        return KVP_E_DROPPED;
    if (item->step_tokens > 0 && state.write_slot == 0)
        return KVP_E_STATE;
    kvpi_wire_writes_of(s, p)[0] = (int32_t)state.write_slot;
    return state.ring_slots == 0 ? KVP_OK
                                 : kvp_meta_state_rings(s->cache, &item->seq, 1, KVP_STATE_RING_MAX,
                                                        NULL, &n, kvpi_wire_writes_of(s, p));
}

/* Are its slots of state others than the worker's? Those of a new sequence are 0. */
static int is_other_slot(const sender *s, const pending *p)
{
    static const struct kvpi_wire_seq none;
    const struct kvpi_wire_seq *had = p->is_new ? &none : &s->table.seqs[p->id];
    return p->now.read_slot != had->read_slot || p->now.write_slot != had->write_slot ||
           p->now.n_ring != had->n_ring ||
           (p->now.n_ring > 0 &&
            memcmp(kvpi_wire_writes_of(s, p), kvpi_wire_writes(&s->table, p->id),
                   p->now.n_ring * sizeof(int32_t)) != 0);
}

/* Which of windows, tree and slots the worker does not have. */
static kvp_status find_more(const sender *s, const kvp_wire_item *item, pending *p)
{
    const uint32_t n_old = p->is_new ? 0 : s->table.seqs[p->id].nodes;
    const int32_t *tokens = kvpi_wire_node_tokens(&s->table, p->id);
    const int32_t *parents = kvpi_wire_node_parents(&s->table, p->id);
    uint32_t n = 0;
    for (uint32_t group = 0; group < s->config.n_groups; group++) {
        if (kvpi_wire_is_other_window(s, p, group))
            p->more |= KVPI_WIRE_WINDOWS;
    }
    if (p->now.nodes > 0) {
        kvp_status status = kvpi_wire_load_tree(s, item->seq, &n);
        if (status != KVP_OK)
            return status;
    }
    for (uint32_t i = 0; i < kvpi_wire_least(n, n_old); i++, p->from_node++) {
        if (tokens[i] != s->tokens[i] || parents[i] != s->parents[i])
            break;
    }
    if (p->from_node < n || p->from_node < n_old)
        p->more |= KVPI_WIRE_TREE;
    if (s->config.state_slots > 0 && is_other_slot(s, p))
        p->more |= p->now.n_ring > 0 ? KVPI_WIRE_RING : KVPI_WIRE_SLOTS;
    return KVP_OK;
}

static kvp_status read_seq(const sender *s, const kvp_wire_item *item, pending *p)
{
    kvp_seq_info info;
    kvp_status status = kvp_seq_info_get(s->cache, item->seq, &info);
    if (status != KVP_OK)
        return status;
    status = read_groups(s, item, p);
    if (status != KVP_OK)
        return status;
    if (item->status < 1 || item->status > 255 ||
        item->step_tokens > info.n_tokens + info.tree_tokens)
        return KVP_E_ARG;
    if (info.tier != KVP_DEVICE)
        return KVP_E_STATE;
    p->now.status = item->status;
    p->now.tokens = info.n_tokens;
    p->now.known = info.known_tokens;
    p->now.computed = info.computed_tokens;
    p->now.cached = info.cached_tokens;
    p->now.step = item->step_tokens;
    p->now.last = info.last_token;
    p->now.nodes = info.tree_tokens;
    if (item->tokens != NULL && info.known_tokens > 0)
        p->now.last = item->tokens[info.known_tokens - 1];
    if (item->tokens != NULL && p->now.known > 0 && p->now.last < 0)
        return KVP_E_ARG;
    p->memo.handle = item->seq.bits;
    p->memo.row_version = info.row_version;
    p->now.read_slot = p->now.write_slot = p->now.n_ring = 0;
    return s->config.state_slots == 0 ? KVP_OK : find_slots(s, item, p);
}

static kvp_status prepare_item(const sender *s, const kvp_wire_item *item, int is_new, pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[item->worker_id];
    const struct kvpi_wire_memo *memo = &s->memos[item->worker_id];
    p->id = item->worker_id;
    p->is_new = is_new;
    p->same = p->more = p->from_node = 0;
    kvp_status status = read_seq(s, item, p);
    if (status == KVP_OK)
        status = find_more(s, item, p);
    if (status != KVP_OK)
        return status;
    if (is_new) {
        p->from = kvpi_wire_least(item->first_token, p->now.known);
    } else {
        if (memo->handle != item->seq.bits)
            return KVP_E_ARG;
        if (memo->row_version == p->memo.row_version)
            p->same = old->grains;
        status = find_from(s, item, p);
    }
    if (status != KVP_OK)
        return status;
    p->kind = kind_of_change(s, p);
    p->memo.base = base_of(&p->now);
    return hash_values(s, item, p->memo.base, p->now.known, &p->memo.hash);
}

/* Closed ids ascend and are known; an item's id is new where it is one of them. */
static kvp_status check_closed(const sender *s, const kvp_wire_step *step)
{
    if (step->n_closed > 0 && step->closed == NULL)
        return KVP_E_ARG;
    for (uint32_t i = 0; i < step->n_closed; i++) {
        uint32_t id = step->closed[i];
        if (id >= s->config.max_seqs || s->table.seqs[id].status == 0 ||
            (i > 0 && id <= step->closed[i - 1]))
            return KVP_E_ARG;
    }
    return KVP_OK;
}

static kvp_status check_step_copies(const sender *s, const kvp_wire_step *step)
{
    if (step->n_copies > 0 && step->copies == NULL)
        return KVP_E_ARG;
    if (step->n_copies > s->config.max_copies)
        return KVP_E_TOO_SMALL;
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[i];
        if (!kvpi_wire_is_block(&s->config, copy->group, copy->src_tier, copy->src_block) ||
            !kvpi_wire_is_block(&s->config, copy->group, copy->dst_tier, copy->dst_block) ||
            copy->src_block == KVP_NULL_BLOCK || copy->dst_block == KVP_NULL_BLOCK ||
            copy->n_tokens < 1 || copy->n_tokens > kvpi_wire_copy_tokens(&s->config, copy->group) ||
            copy->phase < (i > 0 ? step->copies[i - 1].phase : 0))
            return KVP_E_ARG;
    }
    return KVP_OK;
}

/* May two groups' slots be of one token? */
static int is_one_token(int64_t slot, int64_t other, int64_t common)
{
    return slot % common == other % common;
}

/* A group's move `move`, and the same one of each group before it. */
static int is_move(const sender *s, const kvp_slot_move *moves, uint32_t max_moves, uint32_t group)
{
    const uint32_t *S = s->table.block_tokens;
    const kvp_slot_move *move = moves + (size_t)group * max_moves;
    const int64_t end = (int64_t)s->config.n_blocks * S[group];
    if (move->src < S[group] || move->src >= end || move->dst < S[group] || move->dst >= end)
        return 0;
    for (uint32_t g = 0; g < group; g++) {
        const kvp_slot_move *other = moves + (size_t)g * max_moves;
        const int64_t common = kvpi_wire_common(S[group], S[g]);
        if (!is_one_token(move->src, other->src, common) ||
            !is_one_token(move->dst, other->dst, common))
            return 0;
    }
    return 1;
}

/* A move of one position has its place in a block of each group. */
static kvp_status check_moves(const sender *s, const kvp_wire_step *step)
{
    if (step->n_moves > 0 && (step->moves == NULL || step->n_moves > step->max_moves))
        return KVP_E_ARG;
    if (step->n_moves > s->config.max_moves)
        return KVP_E_TOO_SMALL;
    for (uint32_t group = 0; group < s->config.n_groups; group++) {
        for (uint32_t i = 0; i < step->n_moves; i++) {
            if (!is_move(s, &step->moves[i], step->max_moves, group))
                return KVP_E_ARG;
        }
    }
    return KVP_OK;
}

static kvp_status prepare_step(sender *s, const kvp_wire_step *step, int full)
{
    uint64_t n_values = 0;
    uint32_t c = 0; /* walks along the closed ids */
    s->parts = s->table.sizes | (step->n_moves > 0 ? KVPI_WIRE_MOVES : 0u);
    for (uint32_t i = 0; i < step->n_items; i++) {
        const kvp_wire_item *item = &step->items[i];
        uint32_t id = item->worker_id;
        if (id >= s->config.max_seqs || (i > 0 && id <= step->items[i - 1].worker_id))
            return KVP_E_ARG;
        while (c < step->n_closed && step->closed[c] < id)
            c++;
        int is_closed = c < step->n_closed && step->closed[c] == id;
        int is_new = full || is_closed || s->table.seqs[id].status == 0;
        kvp_status status = prepare_item(s, item, is_new, &s->pending[i]);
        if (status != KVP_OK)
            return status;
        n_values += s->pending[i].now.known - s->pending[i].from;
        s->parts |= s->pending[i].more != 0 ? KVPI_WIRE_MORE : 0;
    }
    return n_values > s->config.max_step_tokens ? KVP_E_TOO_SMALL : KVP_OK;
}

/* --------------------------------------------------------------------------------------- write */

static void put_wire_head(const sender *s, writer *out, int full)
{
    uint8_t *head = out->bytes;
    memcpy(head + KVPI_WIRE_AT_MAGIC, KVPI_WIRE_MAGIC, 4);
    head[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    head[KVPI_WIRE_AT_KIND] = full ? KVPI_WIRE_FULL_STATE : KVPI_WIRE_STEP;
    head[KVPI_WIRE_AT_GROUPS] = (uint8_t)s->config.n_groups;
    head[KVPI_WIRE_AT_PARTS] = (uint8_t)s->parts;
    kvpi_bytes_store(head + KVPI_WIRE_AT_LENGTH, out->n, 4);
    kvpi_bytes_store(head + KVPI_WIRE_AT_BLOCK_TOKENS, s->table.grain, 4);
    kvpi_bytes_store(head + KVPI_WIRE_AT_EPOCH, s->config.epoch, 8);
    kvpi_bytes_store(head + KVPI_WIRE_AT_NUMBER, s->number + 1, 8);
    kvpi_bytes_store(head + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(head, out->n), 8);
}

/* ------------------------------------------------------------------------------------ remember */

/* Windows, tree and slots, if they are others than before. */
static void remember_more(const sender *s, const kvp_wire_item *item, const pending *p)
{
    uint32_t n;
    if (p->more & KVPI_WIRE_WINDOWS)
        memcpy(kvpi_wire_windows(&s->table, p->id), &s->windows[kvpi_wire_groups_at(s, p)],
               s->config.n_groups * sizeof *s->windows);
    if (p->now.nodes > p->from_node && kvpi_wire_load_tree(s, item->seq, &n) == KVP_OK) {
        memcpy(kvpi_wire_node_tokens(&s->table, p->id), s->tokens, n * sizeof *s->tokens);
        memcpy(kvpi_wire_node_parents(&s->table, p->id), s->parents, n * sizeof *s->parents);
    }
    if (p->more & (KVPI_WIRE_SLOTS | KVPI_WIRE_RING))
        memcpy(kvpi_wire_writes(&s->table, p->id), kvpi_wire_writes_of(s, p),
               (p->now.n_ring + 1) * sizeof(int32_t));
}

static void remember_item(sender *s, const kvp_wire_item *item, const pending *p)
{
    const uint32_t n_groups = s->config.n_groups;
    s->table.n_seqs += s->table.seqs[p->id].status == 0;
    for (uint32_t group = 0; group < n_groups && p->now.grains > p->same; group++) {
        const uint32_t same = kvpi_wire_entries(&s->table, group, p->same);
        const uint32_t n = kvpi_wire_entries(&s->table, group, p->now.grains) - same;
        memcpy(kvpi_wire_row(&s->table, p->id, group) + same, kvpi_wire_row_of(s, p, group) + same,
               n * sizeof(int32_t));
    }
    if (p->more != 0)
        remember_more(s, item, p);
    s->table.seqs[p->id] = p->now;
    s->memos[p->id] = p->memo;
}

static void remember(sender *s, const kvp_wire_step *step, int full)
{
    if (full) {
        kvpi_wire_table_clear(&s->table);
    } else {
        for (uint32_t i = 0; i < step->n_closed; i++)
            kvpi_wire_table_remove(&s->table, step->closed[i]);
    }
    for (uint32_t i = 0; i < step->n_items; i++)
        remember_item(s, &step->items[i], &s->pending[i]);
    s->number++;
}

kvp_status kvp_wire_sender_encode(kvp_wire_sender *s, const kvp_wire_step *step, void *bytes,
                                  size_t capacity, size_t *out_n_bytes)
{
    step = kvpi_sized(step, sizeof(*step));
    if (s == NULL || step == NULL || (step->n_items > 0 && step->items == NULL) ||
        (bytes == NULL && capacity > 0) || out_n_bytes == NULL ||
        (step->flags | KVP_WIRE_FULL) != KVP_WIRE_FULL)
        return KVP_E_ARG;
    int full = (step->flags & KVP_WIRE_FULL) != 0 || s->number == 0;
    writer out = {bytes, capacity, KVP_WIRE_HEAD_BYTES};
    kvp_status status = check_closed(s, step);
    if (status == KVP_OK)
        status = check_step_copies(s, step);
    if (status == KVP_OK)
        status = check_moves(s, step);
    if (status == KVP_OK)
        status = prepare_step(s, step, full);
    if (status != KVP_OK)
        return status;
    status = kvpi_wire_write(s, step, full, &out);
    if (status != KVP_OK)
        return status;
    if (out.n > UINT32_MAX)
        return KVP_E_TOO_LONG;
    *out_n_bytes = out.n;
    if (capacity == 0)
        return KVP_OK;
    if (out.n > capacity)
        return KVP_E_TOO_SMALL;
    put_wire_head(s, &out, full);
    remember(s, step, full);
    return KVP_OK;
}

uint64_t kvp_wire_sender_digest(const kvp_wire_sender *s)
{
    return s == NULL ? 0 : kvpi_wire_table_digest(&s->table);
}

/* mirror: the worker's side. A message is read twice, by the same code: first to see that it
 * is right to its end and fits what is there, then to apply it. The first reading writes nothing.
 *
 * M1  Nothing is believed: every number is compared with what it may be before it is used, so that
 *     any bytes at all, with a right checksum too, leave a state that keeps the table's rules.
 * M2  Both readings take the same way: what the second one finds has been checked by the first.
 *     (It finds closed ids removed already; the first looks them up among the closed ones.)
 * M3  Each worker id is named once, in ascending order; so no entry depends on another one.
 */
#include "wire/mirror.h"

#include <string.h>

#include "wire/wire_bytes.h"
#include "base/sized.h"

typedef struct kvp_wire_mirror mirror;
typedef struct kvpi_wire_in in_bytes;

/* One reading. */
struct wire_reading {
    mirror *m;
    in_bytes in;
    int apply;
    int full;
    uint32_t parts; /* KVPI_WIRE_MOVES ... */
    kvp_wire_news news;
    uint32_t n_values;
    uint32_t at_block; /* the block id read last */
    in_bytes closed;   /* first reading: reads the closed ids again, along with the entries */
    uint32_t closed_left;
    uint32_t closed_id; /* the one read last, + 1; 0: none yet */
};

/* -------------------------------------------------------------------------------- closed, plan */

static int wrong_body(struct wire_reading *r)
{
    return kvpi_wire_wrong(&r->in, KVP_E_FORMAT);
}

static int too_small(struct wire_reading *r)
{
    return kvpi_wire_wrong(&r->in, KVP_E_TOO_SMALL);
}

/* Walks to a worker id: `next` is the one after the id before. */
static int get_id(const mirror *m, in_bytes *in, uint32_t gap, uint32_t next, uint32_t *out_id)
{
    if (gap > KVP_WIRE_MAX_SEQS || next + gap >= m->config.max_seqs)
        return kvpi_wire_wrong(in, KVP_E_TOO_SMALL);
    *out_id = next + gap;
    return 1;
}

static int get_closed_id(const mirror *m, in_bytes *in, uint32_t next, uint32_t *out_id)
{
    uint32_t gap;
    return kvpi_wire_get(in, &gap) && get_id(m, in, gap, next, out_id);
}

static int read_closed(struct wire_reading *r)
{
    mirror *m = r->m;
    uint32_t n;
    if (!kvpi_wire_get(&r->in, &n) || (r->full && n > 0))
        return wrong_body(r);
    r->closed = r->in;
    r->closed_left = n;
    for (uint32_t i = 0, id, next = 0; i < n; i++, next = id + 1) {
        if (!get_closed_id(m, &r->in, next, &id))
            return 0;
        if (m->table.seqs[id].status == 0)
            return wrong_body(r);
        if (r->apply) {
            m->closed[i] = id;
            kvpi_wire_table_remove(&m->table, id);
        }
    }
    r->news.n_closed = n;
    return 1;
}

/* Is this id among the closed ones? Asked with ascending ids, in the first reading. */
static int is_closed(struct wire_reading *r, uint32_t id)
{
    while (r->closed_left > 0 && r->closed_id <= id) {
        uint32_t closed = 0;
        if (!get_closed_id(r->m, &r->closed, r->closed_id, &closed))
            return 0; /* cannot be: these bytes have been read before */
        r->closed_id = closed + 1;
        r->closed_left--;
    }
    return r->closed_id == id + 1;
}

static int is_known(struct wire_reading *r, uint32_t id)
{
    if (r->m->table.seqs[id].status == 0)
        return 0;
    return r->apply || (!r->full && !is_closed(r, id));
}

static int get_any_block(struct wire_reading *r, uint32_t group, uint32_t tier, uint32_t *at_block,
                         int32_t *out_block)
{
    if (!kvpi_wire_get_way(&r->in, at_block))
        return 0;
    if (*at_block > INT32_MAX ||
        !kvpi_wire_is_block(&r->m->config, group, tier, (int32_t)*at_block))
        return too_small(r);
    *out_block = (int32_t)*at_block;
    return 1;
}

/* One that KV is in: not the null block, of which a row may have entries. */
static int get_real_block(struct wire_reading *r, uint32_t group, uint32_t tier, uint32_t *at_block,
                          int32_t *out_block)
{
    return get_any_block(r, group, tier, at_block, out_block) &&
           (*out_block != KVP_NULL_BLOCK || wrong_body(r));
}

/* A block of the device. */
static int get_block(struct wire_reading *r, uint32_t *at_block, int32_t *out_block)
{
    return get_any_block(r, 0, KVP_DEVICE, at_block, out_block);
}

static int read_copy(struct wire_reading *r, uint32_t *phase, uint32_t *at_block, kvp_copy *copy)
{
    uint32_t phases, group, src_tier, dst_tier;
    if (!kvpi_wire_get(&r->in, &phases) || !kvpi_wire_get(&r->in, &group) ||
        !kvpi_wire_get_byte(&r->in, &src_tier) || !kvpi_wire_get_byte(&r->in, &dst_tier))
        return 0;
    if (src_tier > KVP_HOST || dst_tier > KVP_HOST || group > r->m->config.n_groups)
        return wrong_body(r);
    if (!get_real_block(r, group, src_tier, at_block, &copy->src_block) ||
        !get_real_block(r, group, dst_tier, at_block, &copy->dst_block) ||
        !kvpi_wire_get(&r->in, &copy->n_tokens))
        return 0;
    if (phases > UINT32_MAX - *phase || copy->n_tokens < 1 ||
        copy->n_tokens > kvpi_wire_copy_tokens(&r->m->config, group))
        return wrong_body(r);
    *phase += phases;
    copy->phase = *phase;
    copy->group = (uint16_t)group;
    copy->src_tier = (uint8_t)src_tier;
    copy->dst_tier = (uint8_t)dst_tier;
    return 1;
}

static int read_copies(struct wire_reading *r)
{
    uint32_t n;
    uint32_t phase = 0;
    uint32_t at_block = 0;
    if (!kvpi_wire_get(&r->in, &n))
        return 0;
    if (n > r->m->config.max_copies)
        return too_small(r);
    for (uint32_t i = 0; i < n; i++) {
        kvp_copy copy;
        if (!read_copy(r, &phase, &at_block, &copy))
            return 0;
        if (r->apply)
            r->m->copies[i] = copy;
    }
    r->news.n_copies = n;
    return 1;
}

/* A slot, from its place in a block and the block. */
static int read_slot(struct wire_reading *r, uint32_t group, uint32_t *at_block, uint32_t place,
                     int64_t *out_slot)
{
    int32_t block;
    if (!get_real_block(r, group, KVP_DEVICE, at_block, &block))
        return 0;
    *out_slot = (int64_t)block * r->m->table.block_tokens[group] + place;
    return 1;
}

/* A token's place in its block of the group, which each group before may have for it, too. */
static int read_place(struct wire_reading *r, uint32_t group, uint32_t *places)
{
    const uint32_t *S = r->m->table.block_tokens;
    if (group > 0 && S[group] == S[group - 1]) {
        places[group] = places[group - 1];
        return 1;
    }
    if (!kvpi_wire_get(&r->in, &places[group]))
        return 0;
    int is_right = places[group] < S[group];
    for (uint32_t g = 0; g < group; g++) {
        const uint32_t common = kvpi_wire_common(S[group], S[g]);
        is_right &= places[group] % common == places[g] % common;
    }
    return is_right || wrong_body(r);
}

static int read_move(struct wire_reading *r, uint32_t *at_block, uint32_t i, uint32_t n)
{
    uint32_t src[KVP_GROUPS_MAX], dst[KVP_GROUPS_MAX];
    for (uint32_t group = 0; group < r->m->config.n_groups; group++) {
        kvp_slot_move move;
        if (!read_place(r, group, src) || !read_place(r, group, dst) ||
            !read_slot(r, group, at_block, src[group], &move.src) ||
            !read_slot(r, group, at_block, dst[group], &move.dst))
            return 0;
        if (r->apply)
            r->m->moves[(size_t)group * n + i] = move;
    }
    return 1;
}

/* Messages without moves do not say so: it is in their head. */
static int read_moves(struct wire_reading *r)
{
    uint32_t n;
    uint32_t at_block = 0;
    if (!(r->parts & KVPI_WIRE_MOVES))
        return 1;
    if (!kvpi_wire_get(&r->in, &n) || n == 0)
        return wrong_body(r);
    if (n > r->m->config.max_moves)
        return too_small(r);
    for (uint32_t i = 0; i < n; i++) {
        if (!read_move(r, &at_block, i, n))
            return 0;
    }
    r->news.n_moves = n;
    return 1;
}

/* ------------------------------------------------------------------------------------- entries */

/* Values of positions from .. from + n - 1; `last` becomes the last one. */
static int read_values(struct wire_reading *r, kvp_wire_news_item *item, int32_t *last)
{
    if (item->n_values > r->m->config.max_step_tokens - r->n_values)
        return too_small(r);
    item->values = r->m->values + r->n_values;
    for (uint32_t i = 0; i < item->n_values; i++) {
        uint32_t value;
        if (!kvpi_wire_get_31(&r->in, &value))
            return 0;
        if (r->apply)
            r->m->values[r->n_values + i] = (int32_t)value;
        *last = (int32_t)value;
    }
    r->n_values += item->n_values;
    return 1;
}

/* 0 stands for "none": -1. */
static int read_last(struct wire_reading *r, int32_t *last)
{
    uint32_t code;
    if (!kvpi_wire_get(&r->in, &code))
        return 0;
    if (code > (uint32_t)INT32_MAX + 1)
        return wrong_body(r);
    *last = (int32_t)(code - 1);
    return 1;
}

/* Reads row entries from `*i` on, of which there are `end`: a block, or a run of dropped ones. */
static int read_entries(struct wire_reading *r, int32_t *row, uint32_t *i, uint32_t end)
{
    const uint32_t before = r->at_block;
    uint32_t more = 0;
    int32_t block;
    if (!get_block(r, &r->at_block, &block))
        return 0;
    if (block == KVP_NULL_BLOCK) {
        r->at_block = before;
        if (!kvpi_wire_get(&r->in, &more))
            return 0;
        if (more >= end - *i)
            return wrong_body(r);
    }
    for (uint32_t k = 0; k <= more && r->apply; k++)
        row[*i + k] = block;
    *i += more + 1;
    return 1;
}

/* What rows have more, with n grains more. */
static int read_appended(struct wire_reading *r, uint32_t id, uint64_t n, uint32_t *grains)
{
    const struct kvpi_wire_table *table = &r->m->table;
    if (n > table->max_grains - *grains)
        return too_small(r);
    const uint32_t all = *grains + (uint32_t)n;
    for (uint32_t group = 0; group < table->n_groups; group++) {
        int32_t *row = kvpi_wire_row(table, id, group);
        const uint32_t end = kvpi_wire_entries(table, group, all);
        for (uint32_t i = kvpi_wire_entries(table, group, *grains); i < end;) {
            if (!read_entries(r, row, &i, end))
                return 0;
        }
    }
    *grains = all;
    return 1;
}

static int read_replaced(struct wire_reading *r, int32_t *row, uint32_t n_blocks)
{
    uint32_t n;
    if (!kvpi_wire_get(&r->in, &n))
        return 0;
    for (uint32_t i = 0, next = 0; i < n; i++) {
        uint32_t gap;
        if (!kvpi_wire_get(&r->in, &gap))
            return 0;
        if (next >= n_blocks || gap >= n_blocks - next)
            return wrong_body(r);
        next += gap;
        if (!read_entries(r, row, &next, n_blocks))
            return 0;
    }
    return 1;
}

static int read_wire_row(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now)
{
    const struct kvpi_wire_table *table = &r->m->table;
    uint32_t n;
    if (!kvpi_wire_get(&r->in, &n))
        return 0;
    if (n > now->grains)
        return wrong_body(r);
    now->grains -= n;
    for (uint32_t group = 0; group < table->n_groups; group++) {
        if (!read_replaced(r, kvpi_wire_row(table, id, group),
                           kvpi_wire_entries(table, group, now->grains)))
            return 0;
    }
    return kvpi_wire_get(&r->in, &n) && read_appended(r, id, n, &now->grains);
}

/* -------------------------------------------------------------------- windows, trees and slots */

static int read_windows(struct wire_reading *r, uint32_t id)
{
    kvp_window *windows = kvpi_wire_windows(&r->m->table, id);
    uint32_t n;
    if (!kvpi_wire_get(&r->in, &n) || n == 0)
        return wrong_body(r);
    for (uint32_t i = 0, next = 0; i < n; i++) {
        uint32_t gap;
        kvp_window window;
        if (!kvpi_wire_get(&r->in, &gap) || gap >= r->m->config.n_groups - next)
            return wrong_body(r);
        if (!kvpi_wire_get(&r->in, &window.sink_tokens) ||
            !kvpi_wire_get(&r->in, &window.recent_tokens))
            return 0;
        if (window.recent_tokens == 0 && window.sink_tokens > 0)
            return wrong_body(r);
        next += gap;
        if (r->apply)
            windows[next] = window;
        next++;
    }
    return 1;
}

/* A node's parent is told as how far before it stands; 0: it is a root. */
static int read_node(struct wire_reading *r, uint32_t id, uint32_t node)
{
    uint32_t token, before;
    if (!kvpi_wire_get_31(&r->in, &token) || !kvpi_wire_get(&r->in, &before))
        return 0;
    if (before > node)
        return wrong_body(r);
    if (r->apply) {
        kvpi_wire_node_tokens(&r->m->table, id)[node] = (int32_t)token;
        kvpi_wire_node_parents(&r->m->table, id)[node] =
            before == 0 ? -1 : (int32_t)(node - before);
    }
    return 1;
}

/* How many of the last nodes are void, and those that follow what is left. */
static int read_wire_tree(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now,
                          kvp_wire_news_item *item)
{
    uint32_t n_void, n;
    if (!kvpi_wire_get(&r->in, &n_void) || n_void > now->nodes || !kvpi_wire_get(&r->in, &n) ||
        (n == 0 && n_void == 0))
        return wrong_body(r);
    now->nodes -= n_void;
    item->from_node = now->nodes;
    if (n > r->m->config.max_tree_tokens - now->nodes)
        return too_small(r);
    for (uint32_t i = 0; i < n; i++) {
        if (!read_node(r, id, now->nodes + i))
            return 0;
    }
    now->nodes += n;
    return 1;
}

/* A slot of recurrent state, as the way from the one before. */
static int get_state_slot(struct wire_reading *r, uint32_t *at)
{
    return kvpi_wire_get_way(&r->in, at) && (*at < r->m->config.state_slots || too_small(r));
}

/* Slots that a step writes besides the last one: each is another one, and none is 0. */
static int read_ring(struct wire_reading *r, struct kvpi_wire_seq *now, int32_t *writes)
{
    uint32_t n;
    uint32_t slot = now->write_slot;
    if (!kvpi_wire_get(&r->in, &n) || n < 1 || n >= KVP_STATE_RING_MAX || slot == 0)
        return wrong_body(r);
    writes[n] = (int32_t)slot;
    for (uint32_t i = 0; i < n; i++) {
        if (!get_state_slot(r, &slot))
            return 0;
        int is_wrong = slot == 0 || slot == now->write_slot;
        for (uint32_t k = 0; k < i; k++)
            is_wrong |= writes[k] == (int32_t)slot;
        if (is_wrong)
            return wrong_body(r);
        writes[i] = (int32_t)slot;
    }
    now->n_ring = n;
    return 1;
}

/* The slots of recurrent state that the sequence reads and writes. */
static int read_wire_slots(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now,
                           int has_ring)
{
    int32_t writes[KVP_STATE_RING_MAX];
    uint32_t slot;
    if (!kvpi_wire_get_31(&r->in, &slot))
        return 0;
    now->read_slot = slot;
    if (slot >= r->m->config.state_slots)
        return too_small(r);
    if (!get_state_slot(r, &slot))
        return 0;
    now->write_slot = slot;
    now->n_ring = 0;
    writes[0] = (int32_t)slot;
    if (has_ring && !read_ring(r, now, writes))
        return 0;
    if (r->apply)
        memcpy(kvpi_wire_writes(&r->m->table, id), writes, (now->n_ring + 1) * sizeof *writes);
    return 1;
}

/* The second byte of bits, where the message has them, and what it announces. */
static int read_more(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now,
                     kvp_wire_news_item *item)
{
    uint32_t bits;
    if (!(r->parts & KVPI_WIRE_MORE))
        return 1;
    if (!kvpi_wire_get_byte(&r->in, &bits) ||
        bits > (KVPI_WIRE_WINDOWS | KVPI_WIRE_TREE | KVPI_WIRE_RING))
        return wrong_body(r);
    const uint32_t slots = bits & (KVPI_WIRE_SLOTS | KVPI_WIRE_RING);
    return (!(bits & KVPI_WIRE_WINDOWS) || read_windows(r, id)) &&
           (!(bits & KVPI_WIRE_TREE) || read_wire_tree(r, id, now, item)) &&
           (slots == 0 || read_wire_slots(r, id, now, slots == KVPI_WIRE_RING));
}

static int read_new(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now,
                    kvp_wire_news_item *item)
{
    in_bytes *in = &r->in;
    uint32_t n_grains;
    if (is_known(r, id))
        return wrong_body(r);
    *now = (struct kvpi_wire_seq){.last = -1};
    item->is_new = 1;
    if (!kvpi_wire_get_byte(in, &now->status) || !kvpi_wire_get_31(in, &now->tokens) ||
        !kvpi_wire_get(in, &now->computed) || !kvpi_wire_get(in, &now->cached) ||
        !kvpi_wire_get(in, &now->step) || !kvpi_wire_get_31(in, &item->from) ||
        !kvpi_wire_get_31(in, &item->n_values) || !read_values(r, item, &now->last))
        return 0;
    now->known = item->from + item->n_values;
    if (item->n_values == 0 && !read_last(r, &now->last))
        return 0;
    return kvpi_wire_get(in, &n_grains) && read_appended(r, id, n_grains, &now->grains) &&
           read_more(r, id, now, item);
}

/* How many of the known values are void, and the values that follow what is left. */
static int read_changed_values(struct wire_reading *r, struct kvpi_wire_seq *now,
                               kvp_wire_news_item *item)
{
    uint32_t n_void;
    if (!kvpi_wire_get(&r->in, &n_void) || n_void > now->known ||
        !kvpi_wire_get_31(&r->in, &item->n_values))
        return wrong_body(r);
    item->from = now->known - n_void;
    now->known = item->from + item->n_values;
    return read_values(r, item, &now->last);
}

static int read_change(struct wire_reading *r, uint32_t id, struct kvpi_wire_seq *now,
                       kvp_wire_news_item *item)
{
    in_bytes *in = &r->in;
    uint32_t flags;
    return kvpi_wire_get_byte(in, &flags) &&
           (!(flags & KVPI_WIRE_STATUS) || kvpi_wire_get_byte(in, &now->status)) &&
           (!(flags & KVPI_WIRE_TOKENS) || kvpi_wire_get_way(in, &now->tokens)) &&
           (!(flags & KVPI_WIRE_COMPUTED) || kvpi_wire_get_way(in, &now->computed)) &&
           (!(flags & KVPI_WIRE_CACHED) || kvpi_wire_get(in, &now->cached)) &&
           (!(flags & KVPI_WIRE_STEP_TOKENS) || kvpi_wire_get(in, &now->step)) &&
           (!(flags & KVPI_WIRE_VALUES) || read_changed_values(r, now, item)) &&
           (!(flags & KVPI_WIRE_LAST) || read_last(r, &now->last)) &&
           (!(flags & KVPI_WIRE_ROW) || read_wire_row(r, id, now)) && read_more(r, id, now, item);
}

/* Is there a slot to write for those who compute, no state of no tokens, and no slot of a ring
 * without a token? */
static int slots_are_sound(const mirror *m, const struct kvpi_wire_seq *seq)
{
    return (seq->read_slot == 0 || seq->tokens > 0) &&
           (m->config.state_slots == 0 ||
            ((seq->step == 0 || seq->write_slot != 0) &&
             (seq->n_ring == 0 || seq->n_ring < seq->tokens - seq->computed)));
}

/* Counts that contradict each other, rows that end nowhere or too early for their tokens. */
static int seq_is_sound(const mirror *m, const struct kvpi_wire_seq *seq)
{
    const uint64_t row_tokens = (uint64_t)seq->grains * m->table.grain;
    return seq->status != 0 && seq->tokens <= INT32_MAX && seq->known <= seq->tokens &&
           seq->computed <= seq->tokens && seq->cached <= seq->tokens &&
           seq->step <= seq->tokens + seq->nodes &&
           (uint64_t)seq->tokens + seq->nodes <= row_tokens &&
           kvpi_wire_grains(&m->table, row_tokens) == seq->grains && slots_are_sound(m, seq);
}

/* One token more, which is computed: most items of most messages, so no copy is changed. */
static int read_decode(struct wire_reading *r, uint32_t id, uint32_t kind)
{
    struct kvpi_wire_seq *seq = &r->m->table.seqs[id];
    kvp_wire_news_item item = {
        .worker_id = id, .from = seq->known, .n_values = 1, .from_node = seq->nodes};
    const struct kvpi_wire_table *table = &r->m->table;
    uint32_t grains = seq->grains;
    int32_t last;
    if (!read_values(r, &item, &last) ||
        (kind == KVPI_WIRE_DECODE_BLOCK &&
         !read_appended(r, id, kvpi_wire_grains_next(table, grains) - grains, &grains)) ||
        seq->tokens >= INT32_MAX ||
        (uint64_t)grains * table->grain <= (uint64_t)seq->tokens + seq->nodes)
        return wrong_body(r);
    if (r->apply) {
        seq->tokens++;
        seq->known++;
        seq->computed++;
        seq->grains = grains;
        seq->last = last;
        r->m->items[r->news.n_items] = item;
    }
    r->news.n_items++;
    return 1;
}

static int read_item(struct wire_reading *r, uint32_t id, uint32_t kind)
{
    mirror *m = r->m;
    if (kind != KVPI_WIRE_NEW && !is_known(r, id))
        return wrong_body(r);
    if (kind <= KVPI_WIRE_DECODE_BLOCK)
        return read_decode(r, id, kind);
    struct kvpi_wire_seq now = m->table.seqs[id];
    kvp_wire_news_item item = {.worker_id = id, .from = now.known, .from_node = now.nodes};
    const int ok =
        kind == KVPI_WIRE_NEW ? read_new(r, id, &now, &item) : read_change(r, id, &now, &item);
    if (!ok || !seq_is_sound(m, &now))
        return wrong_body(r);
    if (r->apply) {
        m->table.n_seqs += item.is_new;
        m->table.seqs[id] = now;
        m->items[r->news.n_items] = item;
    }
    r->news.n_items++;
    return 1;
}

static int read_items(struct wire_reading *r)
{
    uint32_t n_items;
    uint32_t next = 0;
    if (!kvpi_wire_get(&r->in, &n_items))
        return 0;
    while (r->news.n_items < n_items) {
        uint32_t head, id;
        uint32_t more = 0; /* of a run, after its first */
        if (!kvpi_wire_get(&r->in, &head) || !get_id(r->m, &r->in, head >> 2, next, &id))
            return 0;
        if ((head & 3) <= KVPI_WIRE_DECODE_BLOCK && !kvpi_wire_get(&r->in, &more))
            return 0;
        if (more >= n_items - r->news.n_items || more >= r->m->config.max_seqs - id)
            return wrong_body(r);
        for (uint32_t last = id + more; id <= last; id++) {
            if (!read_item(r, id, head & 3))
                return 0;
        }
        next = id;
    }
    return r->in.at == r->in.end || wrong_body(r);
}

/* --------------------------------------------------------------------------------------- apply */

/* Blocks of several sizes: they are this mirror's. */
static int read_sizes(struct wire_reading *r)
{
    const struct kvpi_wire_table *table = &r->m->table;
    uint32_t S;
    for (uint32_t group = 0; group < table->n_groups; group++) {
        if (table->sizes == 0)
            return 1;
        if (!kvpi_wire_get(&r->in, &S))
            return 0;
        if (S != table->block_tokens[group])
            return kvpi_wire_wrong(&r->in, KVP_E_MISMATCH);
    }
    return 1;
}

static kvp_status read_body(mirror *m, const uint8_t *bytes, const kvp_wire_head *head, int apply,
                            kvp_wire_news *out_news)
{
    struct wire_reading r = {
        .m = m,
        .in = {bytes + KVP_WIRE_HEAD_BYTES, bytes + head->n_bytes, KVP_OK},
        .apply = apply,
        .full = head->full != 0,
        .parts = bytes[KVPI_WIRE_AT_PARTS],
        .news = {.full = head->full,
                 .items = m->items,
                 .closed = m->closed,
                 .copies = m->copies,
                 .moves = m->moves},
    };
    if (apply && r.full)
        kvpi_wire_table_clear(&m->table);
    if (!read_sizes(&r) || !read_closed(&r) || !read_copies(&r) || !read_moves(&r) ||
        !read_items(&r))
        return r.in.status;
    *out_news = r.news;
    return KVP_OK;
}

kvp_status kvp_wire_peek(const void *bytes, size_t n_bytes, kvp_wire_head *out_head)
{
    const uint8_t *at = bytes;
    if (bytes == NULL || out_head == NULL)
        return KVP_E_ARG;
    if (n_bytes < KVP_WIRE_HEAD_BYTES || memcmp(at, KVPI_WIRE_MAGIC, 4) != 0)
        return KVP_E_FORMAT;
    if (at[KVPI_WIRE_AT_VERSION] != KVPI_WIRE_VERSION)
        return KVP_E_VERSION;
    kvp_wire_head head = {
        .epoch = kvpi_bytes_load(at + KVPI_WIRE_AT_EPOCH, 8),
        .number = kvpi_bytes_load(at + KVPI_WIRE_AT_NUMBER, 8),
        .full = at[KVPI_WIRE_AT_KIND] == KVPI_WIRE_FULL_STATE,
        .n_bytes = (uint32_t)kvpi_bytes_load(at + KVPI_WIRE_AT_LENGTH, 4),
    };
    if ((!head.full && at[KVPI_WIRE_AT_KIND] != KVPI_WIRE_STEP) || at[KVPI_WIRE_AT_GROUPS] < 1 ||
        at[KVPI_WIRE_AT_GROUPS] > KVP_GROUPS_MAX ||
        at[KVPI_WIRE_AT_PARTS] > (KVPI_WIRE_MOVES | KVPI_WIRE_MORE | KVPI_WIRE_SIZES) ||
        head.epoch == 0 || head.number == 0 || head.n_bytes < KVP_WIRE_HEAD_BYTES)
        return KVP_E_FORMAT;
    *out_head = head;
    return KVP_OK;
}

/* Is it this message's turn? A full one needs to be newer only. */
static int is_next(const mirror *m, const kvp_wire_head *head)
{
    if (head->full)
        return head->epoch > m->epoch || (head->epoch == m->epoch && head->number > m->number);
    return m->epoch != 0 && head->epoch == m->epoch && head->number - 1 == m->number;
}

static kvp_status check(mirror *m, const uint8_t *bytes, size_t n_bytes, kvp_wire_head *head)
{
    kvp_status status = kvp_wire_peek(bytes, n_bytes, head);
    kvp_wire_news news;
    if (status != KVP_OK)
        return status;
    if (head->n_bytes != n_bytes ||
        kvpi_bytes_load(bytes + KVPI_WIRE_AT_CHECKSUM, 8) != kvpi_wire_checksum(bytes, n_bytes))
        return KVP_E_FORMAT;
    if (kvpi_bytes_load(bytes + KVPI_WIRE_AT_BLOCK_TOKENS, 4) != m->table.grain ||
        (bytes[KVPI_WIRE_AT_PARTS] & KVPI_WIRE_SIZES) != m->table.sizes ||
        bytes[KVPI_WIRE_AT_GROUPS] != m->config.n_groups)
        return KVP_E_MISMATCH;
    if (!is_next(m, head))
        return KVP_E_STATE;
    return read_body(m, bytes, head, 0, &news);
}

kvp_status kvp_wire_mirror_apply(kvp_wire_mirror *m, const void *bytes, size_t n_bytes,
                                 kvp_wire_news *out_news)
{
    kvp_wire_head head;
    kvp_wire_news news;
    if (m == NULL || bytes == NULL)
        return KVP_E_ARG;
    kvp_status status = check(m, bytes, n_bytes, &head);
    if (status == KVP_OK)
        status = read_body(m, bytes, &head, 1, &news);
    if (status != KVP_OK)
        return status;
    m->epoch = head.epoch;
    m->number = head.number;
    if (out_news != NULL)
        *out_news = news;
    return KVP_OK;
}

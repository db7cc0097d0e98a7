/* wire_write: the bytes of a message's body; docs/FORMATS.md is the description that writer and
 * reader follow. What is written is what wire_send.c has prepared; here nothing is decided but the
 * form.
 *
 * Every list may be written into a buffer that is too small: then it is counted.
 */
#include "wire/wire_send.h"

typedef struct kvp_wire_sender sender;
typedef struct kvpi_wire_pending pending;
typedef struct kvpi_wire_out writer;

static kvp_status put_values(const sender *s, writer *out, const kvp_wire_item *item,
                             const pending *p)
{
    int32_t chunk[KVPI_WIRE_CHUNK];
    for (uint32_t at = p->from, n; at < p->now.known; at += n) {
        const int32_t *values;
        n = kvpi_wire_least(p->now.known - at, KVPI_WIRE_CHUNK);
        kvp_status status = kvpi_wire_load_values(s, item, at, n, chunk, &values);
        if (status != KVP_OK)
            return status;
        for (uint32_t i = 0; i < n; i++) {
            if (values[i] < 0)
                return KVP_E_ARG;
            kvpi_wire_put(out, (uint32_t)values[i]);
        }
    }
    return KVP_OK;
}

/* An entry, as the way from the block written before: neighbours in the pool cost one byte. Behind
 * a dropped one it is said how many more of them follow, and the way goes on from the block before.
 * Gives the number of entries, 1 or the run's. */
static uint32_t put_entries(writer *out, const int32_t *row, uint32_t end, uint32_t *at_block)
{
    uint32_t n = 1;
    kvpi_wire_put_way(out, *at_block, (uint32_t)row[0]);
    if (row[0] != KVP_NULL_BLOCK) {
        *at_block = (uint32_t)row[0];
        return 1;
    }
    while (n < end && row[n] == KVP_NULL_BLOCK)
        n++;
    kvpi_wire_put(out, n - 1);
    return n;
}

/* What the rows have behind so many grains. */
static void put_blocks(const sender *s, writer *out, const pending *p, uint32_t from,
                       uint32_t *at_block)
{
    for (uint32_t group = 0; group < s->config.n_groups; group++) {
        const int32_t *row = kvpi_wire_row_of(s, p, group);
        const uint32_t end = kvpi_wire_entries(&s->table, group, p->now.grains);
        for (uint32_t i = kvpi_wire_entries(&s->table, group, from); i < end;)
            i += put_entries(out, row + i, end - i, at_block);
    }
}

static void put_windows(const sender *s, writer *out, const pending *p)
{
    const kvp_window *windows = &s->windows[kvpi_wire_groups_at(s, p)];
    uint32_t n = 0;
    for (uint32_t group = 0; group < s->config.n_groups; group++)
        n += (uint32_t)kvpi_wire_is_other_window(s, p, group);
    kvpi_wire_put(out, n);
    for (uint32_t group = 0, next = 0; group < s->config.n_groups; group++) {
        if (!kvpi_wire_is_other_window(s, p, group))
            continue;
        kvpi_wire_put(out, group - next);
        kvpi_wire_put(out, windows[group].sink_tokens);
        kvpi_wire_put(out, windows[group].recent_tokens);
        next = group + 1;
    }
}

static kvp_status put_tree(const sender *s, writer *out, const kvp_wire_item *item,
                           const pending *p)
{
    const uint32_t n_old = p->is_new ? 0 : s->table.seqs[p->id].nodes;
    uint32_t n = 0;
    kvp_status status = kvpi_wire_load_tree(s, item->seq, &n);
    if (status != KVP_OK)
        return status;
    kvpi_wire_put(out, n_old - p->from_node);
    kvpi_wire_put(out, n - p->from_node);
    for (uint32_t i = p->from_node; i < n; i++) {
        if (s->tokens[i] < 0)
            return KVP_E_ARG;
        kvpi_wire_put(out, (uint32_t)s->tokens[i]);
        kvpi_wire_put(out, s->parents[i] < 0 ? 0 : i - (uint32_t)s->parents[i]);
    }
    return KVP_OK;
}

/* The slot to write comes first, as without a ring. */
static void put_state_slots(const sender *s, writer *out, const pending *p)
{
    const int32_t *writes = kvpi_wire_writes_of(s, p);
    uint32_t at = p->now.read_slot;
    kvpi_wire_put(out, at);
    kvpi_wire_put_way(out, at, p->now.write_slot);
    at = p->now.write_slot;
    if (p->now.n_ring > 0)
        kvpi_wire_put(out, p->now.n_ring);
    for (uint32_t i = 0; i < p->now.n_ring; i++) {
        kvpi_wire_put_way(out, at, (uint32_t)writes[i]);
        at = (uint32_t)writes[i];
    }
}

static kvp_status put_more(const sender *s, writer *out, const kvp_wire_item *item,
                           const pending *p)
{
    if (!(s->parts & KVPI_WIRE_MORE))
        return KVP_OK;
    kvpi_wire_put_byte(out, p->more);
    if (p->more & KVPI_WIRE_WINDOWS)
        put_windows(s, out, p);
    const kvp_status status = p->more & KVPI_WIRE_TREE ? put_tree(s, out, item, p) : KVP_OK;
    if (p->more & (KVPI_WIRE_SLOTS | KVPI_WIRE_RING))
        put_state_slots(s, out, p);
    return status;
}

static kvp_status put_new(const sender *s, writer *out, const kvp_wire_item *item, const pending *p,
                          uint32_t *at_block)
{
    const struct kvpi_wire_seq *now = &p->now;
    kvpi_wire_put_byte(out, now->status);
    kvpi_wire_put(out, now->tokens);
    kvpi_wire_put(out, now->computed);
    kvpi_wire_put(out, now->cached);
    kvpi_wire_put(out, now->step);
    kvpi_wire_put(out, p->from);
    kvpi_wire_put(out, now->known - p->from);
    kvp_status status = put_values(s, out, item, p);
    if (now->known == p->from)
        kvpi_wire_put(out, (uint32_t)(now->last + 1));
    kvpi_wire_put(out, now->grains);
    put_blocks(s, out, p, 0, at_block);
    return status != KVP_OK ? status : put_more(s, out, item, p);
}

/* The entries of a group that differ among those that both rows have, each with those of its run;
 * NULL: count only. */
static uint32_t put_replaced(const sender *s, writer *out, const pending *p, uint32_t group,
                             uint32_t *at_block)
{
    const int32_t *row = kvpi_wire_row_of(s, p, group);
    const int32_t *old_row = kvpi_wire_row(&s->table, p->id, group);
    writer nowhere = {0};
    uint32_t nothing = 0;
    const uint32_t both = kvpi_wire_least(s->table.seqs[p->id].grains, p->now.grains);
    const uint32_t n_both = kvpi_wire_entries(&s->table, group, both);
    uint32_t n = 0;
    for (uint32_t i = kvpi_wire_entries(&s->table, group, p->same), next = 0; i < n_both; i++) {
        if (old_row[i] == row[i])
            continue;
        n++;
        if (out != NULL)
            kvpi_wire_put(out, i - next);
        next = i + put_entries(out != NULL ? out : &nowhere, row + i, n_both - i,
                               out != NULL ? at_block : &nothing);
        i = next - 1;
    }
    return n;
}

static int is_row_other(const sender *s, const pending *p)
{
    uint32_t n = 0;
    for (uint32_t group = 0; group < s->config.n_groups && n == 0; group++)
        n = put_replaced(s, NULL, p, group, NULL);
    return p->now.grains != s->table.seqs[p->id].grains || n > 0;
}

static void put_row(const sender *s, writer *out, const pending *p, uint32_t *at_block)
{
    const uint32_t old = s->table.seqs[p->id].grains;
    const uint32_t both = kvpi_wire_least(old, p->now.grains);
    kvpi_wire_put(out, old - both);
    for (uint32_t group = 0; group < s->config.n_groups; group++) {
        kvpi_wire_put(out, put_replaced(s, NULL, p, group, NULL));
        put_replaced(s, out, p, group, at_block);
    }
    kvpi_wire_put(out, p->now.grains - both);
    put_blocks(s, out, p, both, at_block);
}

static uint32_t change_flags(const sender *s, const pending *p)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct kvpi_wire_seq *now = &p->now;
    uint32_t flags = 0;
    int has_values = p->from != now->known;
    flags |= now->status != old->status ? KVPI_WIRE_STATUS : 0;
    flags |= now->tokens != old->tokens ? KVPI_WIRE_TOKENS : 0;
    flags |= now->computed != old->computed ? KVPI_WIRE_COMPUTED : 0;
    flags |= now->cached != old->cached ? KVPI_WIRE_CACHED : 0;
    flags |= now->step != old->step ? KVPI_WIRE_STEP_TOKENS : 0;
    flags |= has_values || p->from != old->known ? KVPI_WIRE_VALUES : 0;
    flags |= !has_values && now->last != old->last ? KVPI_WIRE_LAST : 0;
    flags |= is_row_other(s, p) ? KVPI_WIRE_ROW : 0;
    return flags;
}

static kvp_status put_change(const sender *s, writer *out, const kvp_wire_item *item,
                             const pending *p, uint32_t *at_block)
{
    const struct kvpi_wire_seq *old = &s->table.seqs[p->id];
    const struct kvpi_wire_seq *now = &p->now;
    uint32_t flags = change_flags(s, p);
    kvp_status status = KVP_OK;
    kvpi_wire_put_byte(out, flags);
    if (flags & KVPI_WIRE_STATUS)
        kvpi_wire_put_byte(out, now->status);
    if (flags & KVPI_WIRE_TOKENS)
        kvpi_wire_put_way(out, old->tokens, now->tokens);
    if (flags & KVPI_WIRE_COMPUTED)
        kvpi_wire_put_way(out, old->computed, now->computed);
    if (flags & KVPI_WIRE_CACHED)
        kvpi_wire_put(out, now->cached);
    if (flags & KVPI_WIRE_STEP_TOKENS)
        kvpi_wire_put(out, now->step);
    if (flags & KVPI_WIRE_VALUES) {
        kvpi_wire_put(out, old->known - p->from);
        kvpi_wire_put(out, now->known - p->from);
        status = put_values(s, out, item, p);
    }
    if (flags & KVPI_WIRE_LAST)
        kvpi_wire_put(out, (uint32_t)(now->last + 1));
    if (flags & KVPI_WIRE_ROW)
        put_row(s, out, p, at_block);
    return status != KVP_OK ? status : put_more(s, out, item, p);
}

/* How many items from i on are one run: the same kind, one worker id after the other. */
static uint32_t run_length(const sender *s, uint32_t i, uint32_t n_items)
{
    const pending *first = &s->pending[i];
    uint32_t n = 1;
    while (i + n < n_items && s->pending[i + n].kind == first->kind &&
           s->pending[i + n].id == first->id + n)
        n++;
    return n;
}

static void put_run(const sender *s, writer *out, const pending *run, uint32_t n,
                    uint32_t *at_block)
{
    kvpi_wire_put(out, n - 1);
    for (uint32_t i = 0; i < n; i++) {
        kvpi_wire_put(out, (uint32_t)run[i].now.last);
        if (run[i].kind == KVPI_WIRE_DECODE_BLOCK)
            put_blocks(s, out, &run[i], s->table.seqs[run[i].id].grains, at_block);
    }
}

static kvp_status put_items(const sender *s, writer *out, const kvp_wire_step *step)
{
    uint32_t next_id = 0;
    uint32_t at_block = 0;
    kvp_status status = KVP_OK;
    kvpi_wire_put(out, step->n_items);
    for (uint32_t i = 0, n; i < step->n_items && status == KVP_OK; i += n) {
        const pending *p = &s->pending[i];
        n = 1;
        kvpi_wire_put(out, (p->id - next_id) << 2 | p->kind);
        if (p->kind == KVPI_WIRE_NEW) {
            status = put_new(s, out, &step->items[i], p, &at_block);
        } else if (p->kind == KVPI_WIRE_CHANGE) {
            status = put_change(s, out, &step->items[i], p, &at_block);
        } else {
            n = run_length(s, i, step->n_items);
            put_run(s, out, p, n, &at_block);
        }
        next_id = p->id + n;
    }
    return status;
}

static void put_closed(writer *out, const kvp_wire_step *step)
{
    uint32_t next_id = 0;
    kvpi_wire_put(out, step->n_closed);
    for (uint32_t i = 0; i < step->n_closed; i++) {
        kvpi_wire_put(out, step->closed[i] - next_id);
        next_id = step->closed[i] + 1;
    }
}

static void put_copies(writer *out, const kvp_wire_step *step)
{
    uint32_t phase = 0;
    uint32_t at_block = 0;
    kvpi_wire_put(out, step->n_copies);
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const kvp_copy *copy = &step->copies[i];
        kvpi_wire_put(out, copy->phase - phase);
        kvpi_wire_put(out, copy->group);
        kvpi_wire_put_byte(out, copy->src_tier);
        kvpi_wire_put_byte(out, copy->dst_tier);
        kvpi_wire_put_way(out, at_block, (uint32_t)copy->src_block);
        kvpi_wire_put_way(out, (uint32_t)copy->src_block, (uint32_t)copy->dst_block);
        kvpi_wire_put(out, copy->n_tokens);
        phase = copy->phase;
        at_block = (uint32_t)copy->dst_block;
    }
}

static void put_slot_block(writer *out, int64_t slot, uint32_t S, uint32_t *at_block)
{
    const uint32_t block = (uint32_t)(slot / S);
    kvpi_wire_put_way(out, *at_block, block);
    *at_block = block;
}

/* Places in a block are those of the group before, if its blocks have the same size. */
static void put_moves(const sender *s, writer *out, const kvp_wire_step *step)
{
    uint32_t at_block = 0;
    if (step->n_moves == 0)
        return;
    kvpi_wire_put(out, step->n_moves);
    for (uint32_t i = 0; i < step->n_moves; i++) {
        for (uint32_t group = 0, told = 0; group < s->config.n_groups; group++) {
            const kvp_slot_move *move = &step->moves[(size_t)group * step->max_moves + i];
            const uint32_t S = s->table.block_tokens[group];
            if (S != told) {
                kvpi_wire_put(out, (uint32_t)(move->src % S));
                kvpi_wire_put(out, (uint32_t)(move->dst % S));
            }
            told = S;
            put_slot_block(out, move->src, S, &at_block);
            put_slot_block(out, move->dst, S, &at_block);
        }
    }
}

/* Blocks of one size are in the head. */
static void put_sizes(const sender *s, writer *out)
{
    for (uint32_t group = 0; group < s->config.n_groups; group++) {
        if (s->table.sizes != 0)
            kvpi_wire_put(out, s->table.block_tokens[group]);
    }
}

kvp_status kvpi_wire_write(const sender *s, const kvp_wire_step *step, int full, writer *out)
{
    const kvp_wire_step none = {0};
    put_sizes(s, out);
    put_closed(out, full ? &none : step);
    put_copies(out, step);
    put_moves(s, out, step);
    return put_items(s, out, step);
}

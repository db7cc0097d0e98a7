/* receive: the side that has room. Messages in, KV into reserved slots, nothing committed.
 *
 *   cells of a transfer, [L, H] of each group, group after group:
 *                                next        position that must come next in this layer and head
 *                                link, part  who began it, in which attempt: alone may go on
 *                                phase       OPEN no sender has; BEGUN; DONE: all of it is there,
 *                                            and the sender stands by it
 *
 * T1  A cell is begun once. A transfer is MOVING when one is, and COMPLETE when all are done.
 * T2  Bytes are written only: for a BEGUN cell, by its sender, at `next`, below `end`, not into the
 *     gap, where the row has null entries, after the checksum, and while the sequence is what it
 *     was when its slots were handed out.
 *     What says where they go is read from a copy (kvpi_side_take): a hostile peer that changes a
 *     message in shared memory meanwhile changes its own KV only.
 * T3  A link that has begun nothing of a transfer cannot make it fail.
 * T4  A message is taken from a link only while a reply fits: a refusal is never lost for room.
 *     How a transfer ended is owed to every link that began a part, until it takes it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "transfer/transfer_rows.h"
#include "transfer/side.h"
#include "base/sized.h"

enum { CELL_OPEN = 0, CELL_BEGUN = 1, CELL_DONE = 2 };

struct cell {
    uint64_t part; /* of a mark: a place and its generation, which is retired */
    uint32_t next;
    uint16_t link;
    uint16_t phase;
};

struct receiving {
    struct kvpi_transfer t;
    uint64_t row_version; /* the sequence's, when the slots were handed out: never wraps */
    uint32_t n_checked;
    kvp_hash tokens;
    kvp_hash space;
    uint64_t ticket; /* its body's checksum */
    uint64_t begun;  /* a bit for each link that began a part */
    uint32_t cells_left;
    int32_t state_slot;             /* that the sequence writes; 0: there is no state */
    kvp_range gaps[KVP_GROUPS_MAX]; /* what windows have dropped, and does not come */
    struct cell *cells;             /* [n_cells] */
};

struct kvp_receiver {
    struct kvpi_side side;
    struct receiving *receivings; /* [max_transfers] */
    struct cell *cells;
    kvp_receiver_stats stats; /* never wrap */
    uint32_t n_ended;         /* since it was told last; stays at the largest number */
};

typedef struct kvp_receiver receiver;

/* A message that was taken, while it is looked at. bytes, front: as of struct kvpi_message. */
struct incoming {
    const uint8_t *bytes, *front;
    size_t n_bytes;
    uint32_t link;
    struct kvpi_transfer_head head;
    struct receiving *r; /* NULL: not here */
};

static const uint8_t *body_of(const struct incoming *in)
{
    return in->front + KVPI_TRANSFER_HEAD_BYTES;
}

static const uint8_t *kv_of(const struct incoming *in)
{
    return in->bytes + KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_CHUNK_BYTES;
}

/* ------------------------------------------------------------------------------------ creation */

kvp_status kvp_receiver_create(const kvp_transfer_config *config, kvp_receiver **out_receiver)
{
    if (!out_receiver)
        return KVP_E_ARG;
    receiver *self = calloc(1, sizeof *self);
    if (!self)
        return KVP_E_NO_MEMORY;
    kvp_status status = kvpi_side_init(&self->side, config);
    if (status != KVP_OK)
        goto fail;
    const uint32_t n = self->side.config.max_transfers;
    const uint64_t n_cells = (uint64_t)n * self->side.n_cells;
    status = n_cells > SIZE_MAX / sizeof(struct cell) ? KVP_E_TOO_LONG : KVP_E_NO_MEMORY;
    if (status == KVP_E_TOO_LONG)
        goto fail;
    self->receivings = calloc(n, sizeof *self->receivings);
    self->cells = calloc((size_t)n_cells, sizeof *self->cells);
    if (!self->receivings || !self->cells)
        goto fail;
    for (uint32_t i = 0; i < n; i++)
        self->receivings[i].cells = self->cells + i * (n_cells / n);
    *out_receiver = self;
    return KVP_OK;
fail:
    kvp_receiver_destroy(self);
    return status;
}

void kvp_receiver_destroy(kvp_receiver *self)
{
    if (!self)
        return;
    free(self->receivings);
    free(self->cells);
    free(self);
}

#if KVP_CHECK >= 1
void kvpi_receiver_start_at(receiver *self, uint64_t start)
{
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++)
        self->receivings[i].t.generation = kvpi_transfer_start(start);
}
#endif

static struct receiving *find_receiving(const receiver *self, uint64_t id)
{
    const uint32_t place = (uint32_t)id - 1;
    if (place >= self->side.config.max_transfers)
        return NULL;
    struct receiving *r = &self->receivings[place];
    return r->t.state != 0 && kvpi_transfer_id(&r->t, place) == id ? r : NULL;
}

static struct kvpi_transfer_head result_head(const receiver *self, uint64_t id)
{
    return (struct kvpi_transfer_head){
        .kind = KVPI_TRANSFER_RESULT, .epoch = self->side.config.epoch, .id = id};
}

/* ------------------------------------------------------------------------------- how it ends */

/* Tell those who are owed it, as far as their links take it. */
static void pay(receiver *self, struct receiving *r)
{
    const uint32_t place = (uint32_t)(r - self->receivings);
    const struct kvpi_transfer_head head = result_head(self, kvpi_transfer_id(&r->t, place));
    for (uint32_t i = 0; i < self->side.config.max_links && r->t.owed != 0; i++) {
        const uint64_t bit = UINT64_C(1) << i;
        if ((r->t.owed & bit) != 0 &&
            kvpi_side_tell(&self->side, i, &head, r->t.status) != KVP_E_AGAIN)
            r->t.owed &= ~bit;
    }
}

static void end_receiving(receiver *self, struct receiving *r, uint32_t state, kvp_status status)
{
    r->t.state = state;
    r->t.status = status;
    r->t.owed = r->begun;
    self->n_ended += self->n_ended < UINT32_MAX;
    pay(self, r);
}

static void fail_receiving(receiver *self, struct receiving *r, kvp_status status)
{
    end_receiving(self, r, KVP_TRANSFER_FAILED, status);
}

/* A link is gone, and with it what came from there. */
static void lose(receiver *self, uint32_t link, kvp_status status)
{
    const uint64_t bit = UINT64_C(1) << link;
    kvpi_side_break(&self->side, link, status);
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++) {
        struct receiving *r = &self->receivings[i];
        if ((r->begun & bit) == 0)
            continue;
        r->begun &= ~bit;
        r->t.owed &= ~bit;
        if (kvpi_transfer_lives(&r->t))
            fail_receiving(self, r, status);
    }
}

/* -------------------------------------------------------------------------------------- links */

kvp_status kvp_receiver_attach(kvp_receiver *self, const kvp_link *link, uint32_t *out_link)
{
    return self ? kvpi_side_attach(&self->side, link, out_link) : KVP_E_ARG;
}

kvp_status kvp_receiver_detach(kvp_receiver *self, uint32_t link)
{
    if (!self || !kvpi_side_has_link(&self->side, link))
        return KVP_E_ARG;
    lose(self, link, KVP_E_PEER);
    self->side.links[link].attached = 0;
    return KVP_OK;
}

kvp_status kvp_receiver_link(const kvp_receiver *self, uint32_t link)
{
    return self && kvpi_side_has_link(&self->side, link) ? self->side.links[link].broken
                                                         : KVP_E_ARG;
}

/* ------------------------------------------------------------------------------------- reserve */

/* R2: is the sequence as it was when its slots were handed out? */
static kvp_status look_at_seq(const receiver *self, const struct receiving *r)
{
    kvp_seq_info info;
    if (kvp_seq_info_get(self->side.config.cache, r->t.seq, &info) != KVP_OK)
        return KVP_E_HANDLE;
    const int same = info.tier == KVP_DEVICE && info.computed_tokens == r->t.begin &&
                     info.writable_tokens >= r->t.end && info.n_tokens >= r->t.end &&
                     info.row_version == r->row_version;
    int32_t slot;
    const kvp_status status = same ? kvpi_side_slot(&self->side, r->t.seq, &slot) : KVP_E_STATE;
    return status == KVP_OK && slot != r->state_slot ? KVP_E_STATE : status;
}

/* Scales are of whole blocks, in some group, and the transfer begins inside one? */
static int cuts_scales(const receiver *self, uint32_t begin)
{
    for (uint32_t g = 0; g < self->side.shape.n_groups; g++)
        if (kvpi_group_has_scales(&self->side.shape.groups[g]) &&
            begin % kvpi_shape_block_tokens(&self->side.shape, g) != 0)
            return 1;
    return 0;
}

static kvp_status check_reserve(const receiver *self, const kvp_receive *receive,
                                kvp_seq_info *info, uint32_t *out_end)
{
    const kvp_status status = kvp_seq_info_get(self->side.config.cache, receive->seq, info);
    if (status != KVP_OK)
        return status;
    const uint32_t end_ = receive->end == KVP_END ? info->n_tokens : receive->end;
    if (end_ > info->n_tokens || end_ <= info->computed_tokens)
        return KVP_E_ARG;
    if (info->tier != KVP_DEVICE || info->writable_tokens < end_)
        return KVP_E_STATE;
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++) {
        const struct kvpi_transfer *t = &self->receivings[i].t;
        if (t->state != 0 && t->seq.bits == receive->seq.bits)
            return KVP_E_STATE;
    }
    *out_end = end_;
    return cuts_scales(self, info->computed_tokens) ? KVP_E_MISMATCH : KVP_OK;
}

/* The runs of a group. Blocks that follow each other in the pool are one run. */
static uint32_t put_runs(const receiver *self, const struct receiving *r, uint32_t g,
                         struct kvpi_run_writer *out)
{
    const uint32_t S = kvpi_shape_block_tokens(&self->side.shape, g);
    const int32_t *row = NULL;
    uint32_t n_row, n_runs = 0;
    kvp_slot_run run = {0, 0};
    out->at = 0;
    if (g == self->side.n_kv_groups) {
        run = (kvp_slot_run){r->state_slot, 1};
        kvpi_run_put(out, &run);
        return 1;
    }
    if (kvp_seq_row(self->side.config.cache, r->t.seq, g, &row, &n_row) != KVP_OK)
        return 0;
    for (uint32_t at = kvpi_gap_skip(&r->gaps[g], r->t.begin), n; at < r->t.end;
         at = kvpi_gap_skip(&r->gaps[g], at + n)) {
        const int64_t slot = (int64_t)row[at / S] * S + at % S;
        const uint32_t until = kvpi_gap_until(&r->gaps[g], at, r->t.end);
        n = S - at % S < until - at ? S - at % S : until - at;
        if (run.n_tokens > 0 && slot == run.slot + run.n_tokens) {
            run.n_tokens += n;
            continue;
        }
        if (run.n_tokens > 0)
            kvpi_run_put(out, &run);
        run = (kvp_slot_run){slot, n};
        n_runs++;
    }
    if (run.n_tokens > 0)
        kvpi_run_put(out, &run);
    return n_runs;
}

static struct kvpi_shape shape_of(const receiver *self, const struct receiving *r)
{
    struct kvpi_shape shape = self->side.shape;
    shape.begin = r->t.begin;
    shape.end = r->t.end;
    shape.space = r->space;
    for (uint32_t g = 0; g < shape.n_groups; g++)
        shape.groups[g].gap = r->gaps[g];
    return shape;
}

/* The ticket of a transfer that is about to begin; its size in any case. */
static kvp_status put_ticket(const receiver *self, struct receiving *r, uint8_t *out,
                             size_t capacity, size_t *out_n_bytes)
{
    const uint32_t n_groups = self->side.shape.n_groups;
    const size_t fixed = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_TICKET_BYTES(n_groups);
    const size_t room = capacity > fixed ? capacity - fixed : 0;
    struct kvpi_run_writer runs = {room > 0 ? out + fixed : NULL, room, 0, 0};
    uint32_t n_runs[KVP_GROUPS_MAX];
    for (uint32_t g = 0; g < n_groups; g++)
        n_runs[g] = put_runs(self, r, g, &runs);
    const struct kvpi_shape shape = shape_of(self, r);
    const uint32_t place = (uint32_t)(r - self->receivings);
    *out_n_bytes = fixed + runs.n;
    if (capacity == 0)
        return KVP_OK;
    if (capacity < fixed + runs.n)
        return KVP_E_TOO_SMALL;
    assert(out != NULL);
    uint8_t *at = out + KVPI_TRANSFER_HEAD_BYTES;
    kvpi_shape_put(&shape, at);
    at += KVPI_TRANSFER_SHAPE_BYTES(n_groups);
    kvpi_bytes_store(at, r->n_checked, 4);
    kvpi_bytes_store(at + 4, 0, 4);
    memcpy(at + 8, r->tokens.bytes, 16);
    for (uint32_t g = 0; g < n_groups; g++)
        kvpi_bytes_store(at + 24 + (size_t)4 * g, n_runs[g], 4);
    const struct kvpi_transfer_head head = {.kind = KVPI_TRANSFER_TICKET,
                                            .epoch = self->side.config.epoch,
                                            .id = kvpi_transfer_id(&r->t, place)};
    kvpi_transfer_seal(out, *out_n_bytes, &head);
    r->ticket = kvpi_bytes_load(out + KVPI_TRANSFER_AT_BODY, 8);
    return KVP_OK;
}

static struct receiving *free_place(const receiver *self)
{
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++)
        if (kvpi_transfer_is_free(&self->receivings[i].t))
            return &self->receivings[i];
    return NULL;
}

kvp_status kvp_receiver_reserve(kvp_receiver *self, const kvp_receive *receive, void *out_bytes,
                                size_t capacity, size_t *out_n_bytes, uint64_t *out_id)
{
    kvp_seq_info info;
    uint32_t end_;
    receive = kvpi_sized(receive, sizeof(*receive));
    if (!self || !receive || (!receive->space && receive->space_bytes > 0) ||
        (!out_bytes && capacity > 0) || !out_n_bytes || !out_id)
        return KVP_E_ARG;
    kvp_status status = check_reserve(self, receive, &info, &end_);
    if (status != KVP_OK)
        return status;
    struct receiving *r = free_place(self);
    if (!r)
        return KVP_E_AGAIN;
    struct receiving fresh = {.t = {.generation = r->t.generation + 1,
                                    .begin = info.computed_tokens,
                                    .end = end_,
                                    .seq = receive->seq},
                              .row_version = info.row_version,
                              .n_checked = info.kept_tokens < end_ ? info.kept_tokens : end_,
                              .space = kvpi_transfer_hash(receive->space, receive->space_bytes),
                              .cells_left = self->side.n_cells,
                              .cells = r->cells};
    status = kvpi_side_gaps(&self->side, &fresh.t, fresh.gaps);
    if (status == KVP_OK)
        status = kvpi_side_slot(&self->side, receive->seq, &fresh.state_slot);
    if (status == KVP_OK)
        status = kvpi_transfer_tokens(self->side.config.cache, receive->seq, fresh.n_checked,
                                      &fresh.tokens);
    if (status != KVP_OK)
        return status;
    const struct receiving before = *r;
    *r = fresh;
    status = put_ticket(self, r, out_bytes, capacity, out_n_bytes);
    if (status != KVP_OK || capacity == 0) {
        *r = before;
        return status;
    }
    memset(r->cells, 0, self->side.n_cells * sizeof *r->cells);
    r->t.state = KVP_TRANSFER_WAITING;
    *out_id = kvpi_transfer_id(&r->t, (uint32_t)(r - self->receivings));
    return KVP_OK;
}

/* --------------------------------------------------------------------------------------- begin */

static struct cell *cell_at(const receiver *self, const struct receiving *r, uint32_t group,
                            uint32_t layer, uint32_t head)
{
    const kvp_slice *slice = &self->side.shape.groups[group].slice;
    return &r->cells[self->side.groups[group].first_cell +
                     (size_t)(layer - slice->first_layer) * slice->n_heads + head -
                     slice->first_head];
}

/* Are all cells of a group's slice in a phase (and, except for OPEN, of this message's sender)? */
static int all_cells(const receiver *self, const struct incoming *in, uint32_t group,
                     const kvp_slice *slice, uint32_t phase)
{
    for (uint32_t l = slice->first_layer; l < slice->first_layer + slice->n_layers; l++) {
        for (uint32_t h = slice->first_head; h < slice->first_head + slice->n_heads; h++) {
            const struct cell *cell = cell_at(self, in->r, group, l, h);
            const int is_theirs = cell->link == in->link && cell->part == in->head.part;
            if (cell->phase != phase || (phase != CELL_OPEN && !is_theirs))
                return 0;
        }
    }
    return 1;
}

static void set_cells(const receiver *self, const struct receiving *r, uint32_t group,
                      const kvp_slice *slice, const struct cell *value)
{
    for (uint32_t l = slice->first_layer; l < slice->first_layer + slice->n_layers; l++)
        for (uint32_t h = slice->first_head; h < slice->first_head + slice->n_heads; h++)
            *cell_at(self, r, group, l, h) = *value;
}

static void refuse(receiver *self, const struct incoming *in, kvp_status status)
{
    const struct kvpi_transfer_head head = {
        .kind = KVPI_TRANSFER_RESULT, .epoch = in->head.epoch, .id = in->head.id};
    self->stats.refused++;
    self->stats.last_refusal = status;
    (void)kvpi_side_tell(&self->side, in->link, &head, status); /* T4: there is room */
}

static kvp_status check_begin(const receiver *self, const struct incoming *in,
                              struct kvpi_shape *theirs)
{
    const size_t n_body = in->n_bytes - KVPI_TRANSFER_HEAD_BYTES;
    if (!kvpi_shape_get(body_of(in), n_body, theirs) ||
        n_body != KVPI_TRANSFER_BEGIN_BYTES(theirs->n_groups) || !kvpi_shape_is_sound(theirs))
        return KVP_E_FORMAT;
    if (!in->r)
        return KVP_E_HANDLE;
    if (!kvpi_transfer_lives(&in->r->t))
        return KVP_E_STATE;
    const struct kvpi_shape ours = shape_of(self, in->r);
    if (kvpi_shape_differs(theirs, &ours, NULL) || !kvpi_shape_is_part(theirs, &ours) ||
        kvpi_bytes_load(body_of(in) + KVPI_TRANSFER_SHAPE_BYTES(ours.n_groups), 8) != in->r->ticket)
        return KVP_E_MISMATCH;
    for (uint32_t g = 0; g < ours.n_groups; g++)
        if (!all_cells(self, in, g, &theirs->groups[g].slice, CELL_OPEN))
            return KVP_E_STATE;
    return KVP_OK;
}

static void on_begin(receiver *self, const struct incoming *in)
{
    struct kvpi_shape theirs;
    struct receiving *r = in->r;
    kvp_status status = check_begin(self, in, &theirs);
    if (status == KVP_OK) {
        status = look_at_seq(self, r);
        if (status != KVP_OK)
            fail_receiving(self, r, status);
    }
    if (status != KVP_OK) {
        refuse(self, in, status);
        return;
    }
    for (uint32_t g = 0; g < theirs.n_groups; g++) {
        const uint32_t first = kvpi_gap_skip(&r->gaps[g], kvpi_shape_begin(&theirs, g));
        const struct cell begun = {in->head.part, first, (uint16_t)in->link, CELL_BEGUN};
        set_cells(self, r, g, &theirs.groups[g].slice, &begun);
    }
    r->begun |= UINT64_C(1) << in->link;
    r->t.state = KVP_TRANSFER_MOVING;
}

/* --------------------------------------------------------------------------------------- chunks */

/* Tokens, or bytes of a state. */
static uint32_t positions_end(const receiver *self, const struct receiving *r, uint32_t g)
{
    const struct kvpi_shape *shape = &self->side.shape;
    return kvpi_group_is_state(&shape->groups[g]) ? kvpi_shape_end(shape, g) : r->t.end;
}

/* With scales a chunk is what one block has of the transfer: its scales come with it. */
static int is_own_block(const receiver *self, const struct receiving *r,
                        const struct kvpi_chunk *chunk)
{
    const uint32_t S = kvpi_shape_block_tokens(&self->side.shape, chunk->group);
    const uint32_t rest = r->t.end - chunk->position;
    return chunk->position % S == 0 && chunk->n_tokens == (rest < S ? rest : S);
}

/* T2, all but the sequence. */
static int chunk_fits(const receiver *self, const struct incoming *in,
                      const struct kvpi_chunk *chunk)
{
    const struct receiving *r = in->r;
    const kvp_slice slice = {chunk->layer, 1, chunk->first_head, chunk->n_heads};
    if (chunk->group >= self->side.shape.n_groups)
        return 0;
    const struct kvpi_shape_group *group = &self->side.shape.groups[chunk->group];
    if (!kvpi_slice_within(&slice, &group->slice) ||
        !all_cells(self, in, chunk->group, &slice, CELL_BEGUN))
        return 0;
    for (uint32_t h = 0; h < chunk->n_heads; h++)
        if (cell_at(self, r, chunk->group, chunk->layer, chunk->first_head + h)->next !=
            chunk->position)
            return 0;
    const uint32_t until = kvpi_gap_until(&r->gaps[chunk->group], chunk->position,
                                          positions_end(self, r, chunk->group));
    if (chunk->n_tokens == 0 || chunk->n_tokens > until - chunk->position)
        return 0;
    return !kvpi_group_has_scales(group) || is_own_block(self, r, chunk);
}

/* Write a chunk that fits and is of the right length. */
static kvp_status take_chunk(receiver *self, const struct incoming *in,
                             const struct kvpi_chunk *chunk)
{
    const uint32_t g = chunk->group;
    const kvp_layer layer = kvpi_side_memory(&self->side, g, chunk->layer);
    uint32_t n_row;
    struct kvpi_rows rows = {.layer = &layer,
                             .first_head =
                                 chunk->first_head - self->side.shape.groups[g].slice.first_head,
                             .n_heads = chunk->n_heads,
                             .position = chunk->position,
                             .n_tokens = chunk->n_tokens};
    const int is_state = g == self->side.n_kv_groups;
    const size_t kv_bytes = is_state
                                ? (size_t)chunk->n_tokens * chunk->n_heads
                                : kvpi_rows_token_bytes(&layer, chunk->n_heads) * chunk->n_tokens +
                                      kvpi_rows_scale_bytes(&layer, chunk->n_heads);
    if (in->n_bytes != KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_CHUNK_BYTES + kv_bytes)
        return KVP_E_FORMAT;
    kvp_status status = look_at_seq(self, in->r);
    if (is_state)
        rows.row = &in->r->state_slot;
    else if (status == KVP_OK)
        status = kvp_seq_row(self->side.config.cache, in->r->t.seq, g, &rows.row, &n_row);
    if (status != KVP_OK)
        return status;
    if (is_state)
        kvpi_rows_scatter_state(&rows, kv_of(in));
    else
        kvpi_rows_scatter(&rows, kv_of(in));
    const uint32_t next = kvpi_gap_skip(&in->r->gaps[g], chunk->position + chunk->n_tokens);
    for (uint32_t h = 0; h < chunk->n_heads; h++)
        cell_at(self, in->r, g, chunk->layer, chunk->first_head + h)->next = next;
    in->r->t.chunks++;
    in->r->t.bytes += kv_bytes;
    self->stats.chunks++;
    self->stats.bytes += kv_bytes;
    return KVP_OK;
}

static void on_chunk(receiver *self, const struct incoming *in)
{
    struct kvpi_chunk chunk;
    kvp_status status = KVP_E_FORMAT;
    if (in->n_bytes >= KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_CHUNK_BYTES) {
        if (kvpi_chunk_get(body_of(in), &chunk) && chunk_fits(self, in, &chunk))
            status = take_chunk(self, in, &chunk);
    }
    if (status != KVP_OK)
        fail_receiving(self, in->r, status);
}

/* ------------------------------------------------------------------------------- done, give up */

/* Is the slice of a group this sender's, and is all of it there? */
static int has_all(const receiver *self, const struct incoming *in, uint32_t g,
                   const kvp_slice *slice)
{
    if (!kvpi_slice_within(slice, &self->side.shape.groups[g].slice) ||
        !all_cells(self, in, g, slice, CELL_BEGUN))
        return 0;
    for (uint32_t l = slice->first_layer; l < slice->first_layer + slice->n_layers; l++)
        for (uint32_t h = slice->first_head; h < slice->first_head + slice->n_heads; h++)
            if (cell_at(self, in->r, g, l, h)->next != positions_end(self, in->r, g))
                return 0;
    return 1;
}

/* slices [n_groups] is written in any case but that of a wrong length. */
static kvp_status check_done(const receiver *self, const struct incoming *in, kvp_slice *slices)
{
    const uint32_t n_groups = self->side.shape.n_groups;
    uint32_t n = 0;
    if (in->n_bytes != KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_DONE_BYTES(n_groups))
        return KVP_E_FORMAT;
    for (uint32_t g = 0; g < n_groups; g++) {
        kvpi_slice_get(body_of(in) + (size_t)16 * g, &slices[g]);
        if (kvpi_slice_is_empty(&slices[g]))
            continue;
        if (!has_all(self, in, g, &slices[g]))
            return KVP_E_FORMAT;
        n++;
    }
    if (n == 0)
        return KVP_E_FORMAT;
    if (memcmp(body_of(in) + (size_t)16 * n_groups, in->r->tokens.bytes, 16) != 0)
        return KVP_E_MISMATCH;
    return look_at_seq(self, in->r);
}

static void on_done(receiver *self, const struct incoming *in)
{
    kvp_slice slices[KVP_GROUPS_MAX];
    struct receiving *r = in->r;
    const kvp_status status = check_done(self, in, slices);
    if (status != KVP_OK) {
        fail_receiving(self, r, status);
        return;
    }
    const struct cell done = {in->head.part, r->t.end, (uint16_t)in->link, CELL_DONE};
    for (uint32_t g = 0; g < self->side.shape.n_groups; g++) {
        set_cells(self, r, g, &slices[g], &done);
        r->cells_left -= slices[g].n_layers * slices[g].n_heads;
    }
    if (r->cells_left == 0)
        end_receiving(self, r, KVP_TRANSFER_COMPLETE, KVP_OK);
}

static void on_give_up(receiver *self, const struct incoming *in)
{
    const int is_long_enough = in->n_bytes == KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_STATUS_BYTES;
    in->r->begun &= ~(UINT64_C(1) << in->link); /* it knows */
    in->r->t.by_peer = 1;
    fail_receiving(self, in->r, is_long_enough ? kvpi_side_told(body_of(in)) : KVP_E_FORMAT);
}

/* ------------------------------------------------------------------------------------ messages */

/* T3: of a transfer that has ended, or that this link has no part in. */
static int is_late(const struct incoming *in)
{
    return !in->r || !kvpi_transfer_lives(&in->r->t) ||
           (in->r->begun & UINT64_C(1) << in->link) == 0;
}

static void look_at(receiver *self, struct incoming *in)
{
    self->stats.messages++;
    if (!kvpi_transfer_read_head(in->front, in->n_bytes, &in->head)) {
        self->stats.damaged++;
        return;
    }
    in->r = in->head.epoch == self->side.config.epoch ? find_receiving(self, in->head.id) : NULL;
    const kvp_status status = kvpi_transfer_verify(&in->head, in->bytes, in->n_bytes);
    if (in->head.kind == KVPI_TRANSFER_BEGIN) {
        if (status != KVP_OK)
            refuse(self, in, status);
        else
            on_begin(self, in);
    } else if (is_late(in)) {
        self->stats.late++;
        if (in->head.kind == KVPI_TRANSFER_DONE && !in->r)
            refuse(self, in, KVP_E_HANDLE);
    } else if (status != KVP_OK) {
        fail_receiving(self, in->r, status);
    } else if (in->head.kind == KVPI_TRANSFER_CHUNK) {
        on_chunk(self, in);
    } else if (in->head.kind == KVPI_TRANSFER_DONE) {
        on_done(self, in);
    } else if (in->head.kind == KVPI_TRANSFER_GIVE_UP) {
        on_give_up(self, in);
    } else {
        fail_receiving(self, in->r, KVP_E_FORMAT);
    }
}

/* Take one message. 0: there is none now. */
static int take_message(receiver *self, uint32_t link)
{
    const kvp_link *l = &self->side.links[link].link;
    const size_t reply_bytes = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_STATUS_BYTES;
    struct kvpi_message message;
    uint8_t *reply;
    if (kvpi_side_lend(&self->side, link, reply_bytes, &reply) == KVP_E_AGAIN)
        return 0;
    const kvp_status status = kvpi_side_take(&self->side, link, &message);
    if (status == KVP_E_AGAIN && self->side.links[link].broken == KVP_OK)
        return 0;
    if (status != KVP_OK) {
        lose(self, link, status == KVP_E_AGAIN ? self->side.links[link].broken : status);
        return 0;
    }
    struct incoming in = {message.bytes, message.front, message.n_bytes, .link = link};
    look_at(self, &in);
    l->give_back(l->context);
    return 1;
}

kvp_status kvp_receiver_progress(kvp_receiver *self, uint32_t max_messages, uint32_t *out_n_ended)
{
    if (!self)
        return KVP_E_ARG;
    const uint32_t n_most = max_messages == 0 ? KVP_PROGRESS_MESSAGES : max_messages;
    for (uint32_t i = 0; i < self->side.config.max_links; i++) {
        const struct kvpi_side_link *link = &self->side.links[i];
        if (!link->attached)
            continue;
        link->link.progress(link->link.context);
        for (uint32_t n = 0; n < n_most; n++)
            if (!take_message(self, i))
                break;
    }
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++)
        if (self->receivings[i].t.owed != 0)
            pay(self, &self->receivings[i]);
    if (out_n_ended) {
        *out_n_ended = self->n_ended;
        self->n_ended = 0;
    }
    return KVP_OK;
}

/* ------------------------------------------------------------------------------- the rest of it */

kvp_status kvp_receiver_info_get(const kvp_receiver *self, uint64_t id, kvp_transfer_info *out_info)
{
    if (!self || !out_info)
        return KVP_E_ARG;
    const struct receiving *r = find_receiving(self, id);
    if (!r)
        return KVP_E_HANDLE;
    kvpi_transfer_tell(&r->t, out_info);
    return KVP_OK;
}

kvp_status kvp_receiver_abort(kvp_receiver *self, uint64_t id, kvp_status reason)
{
    if (!self || !kvpi_transfer_is_failure(reason))
        return KVP_E_ARG;
    struct receiving *r = find_receiving(self, id);
    if (!r)
        return KVP_E_HANDLE;
    if (!kvpi_transfer_lives(&r->t))
        return KVP_E_STATE;
    fail_receiving(self, r, reason);
    return KVP_OK;
}

kvp_status kvp_receiver_close(kvp_receiver *self, uint64_t id)
{
    if (!self)
        return KVP_E_ARG;
    struct receiving *r = find_receiving(self, id);
    if (!r)
        return KVP_E_HANDLE;
    if (kvpi_transfer_lives(&r->t))
        return KVP_E_STATE;
    if (r->t.owed != 0)
        pay(self, r);
    r->t.state = 0;
    r->t.owed = 0;
    r->begun = 0;
    return KVP_OK;
}

kvp_status kvp_receiver_stats_get(const kvp_receiver *self, kvp_receiver_stats *out_stats)
{
    if (!self || !out_stats)
        return KVP_E_ARG;
    *out_stats = self->stats;
    return KVP_OK;
}

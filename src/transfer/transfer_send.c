/* transfer_send: the side that computes. KV out of slots that are ready, into messages.
 *
 *   layers of a transfer [L]:  sent    tokens before it were sent, except those of the gap
 *                              ready   tokens before it are written
 *
 *   begin <= sent <= min(ready, end), or sent is the end of the gap
 *
 * Of a layer of state, sent counts bytes of each head. It is sent when the tokens before `end`, and
 * no others, are computed: from the slot that the sequence reads, or that steps which are out have
 * read.
 *
 * P1  Nothing is copied ahead: a chunk is gathered straight into the link's buffer. So the sequence
 *     must stay until all is sent, and is looked at before, and its window for tokens that it has
 *     dropped.
 * P2  The last word (DONE) is said when everything is sent, the sequence's own cache counts it as
 *     computed, and the tokens are those that the receiver knows. What a step that fails has
 *     written is thus sent perhaps, but never vouched for.
 * P3  Transfers take turns: each sends what it has, the next call begins with the next one.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "transfer/transfer_rows.h"
#include "transfer/side.h"
#include "transfer/shm.h"
#include "base/sized.h"
#include "base/why.h"

#include <kvpager/states.h>

struct send_progress {
    uint32_t sent;
    uint32_t ready;
};

struct sending {
    struct kvpi_transfer t;
    uint32_t link;
    uint32_t computed;  /* as last seen: it must not fall */
    uint32_t n_checked; /* tokens whose values the receiver knows */
    int follows;        /* what is computed is ready */
    uint64_t epoch;     /* the receiver's */
    uint64_t ticket_id;
    uint64_t ticket; /* its body's checksum */
    kvp_hash tokens;
    int32_t state_slot;                    /* that a state is sent from; 0: not yet known */
    struct kvpi_shape shape;               /* what is sent */
    struct send_progress *layers;          /* [L] of all groups */
    uint32_t chunk_tokens[KVP_GROUPS_MAX]; /* that a message holds at most */
};

struct kvp_sender {
    struct kvpi_side side;
    struct sending *sendings; /* [max_transfers] */
    struct send_progress *layers;
    uint32_t turn;
    uint32_t n_ended; /* since it was told last; stays at the largest number */
};

typedef struct kvp_sender sender;

/* ------------------------------------------------------------------------------------ creation */

kvp_status kvp_sender_create(const kvp_transfer_config *config, kvp_sender **out_sender)
{
    if (!out_sender)
        return KVP_E_ARG;
    sender *self = calloc(1, sizeof *self);
    if (!self)
        return KVP_E_NO_MEMORY;
    kvp_status status = kvpi_side_init(&self->side, config);
    if (status != KVP_OK)
        goto fail;
    const uint32_t n = self->side.config.max_transfers;
    const uint32_t n_layers = self->side.n_layers;
    self->sendings = calloc(n, sizeof *self->sendings);
    self->layers = calloc((size_t)n * n_layers, sizeof *self->layers);
    status = KVP_E_NO_MEMORY;
    if (!self->sendings || !self->layers)
        goto fail;
    for (uint32_t i = 0; i < n; i++)
        self->sendings[i].layers = self->layers + (size_t)i * n_layers;
    *out_sender = self;
    return KVP_OK;
fail:
    kvp_sender_destroy(self);
    return status;
}

void kvp_sender_destroy(kvp_sender *self)
{
    if (!self)
        return;
    free(self->sendings);
    free(self->layers);
    free(self);
}

#if KVP_CHECK >= 1
void kvpi_sender_start_at(sender *self, uint64_t start)
{
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++)
        self->sendings[i].t.generation = kvpi_transfer_start(start);
}
#endif

static struct sending *find_sending(const sender *self, uint64_t id)
{
    const uint32_t place = (uint32_t)id - 1;
    if (place >= self->side.config.max_transfers)
        return NULL;
    struct sending *s = &self->sendings[place];
    return s->t.state != 0 && kvpi_transfer_id(&s->t, place) == id ? s : NULL;
}

/* The number of a mark, its own id turned round: its messages are no other's, as the place is
 * retired before its generations begin again. */
static uint64_t attempt_of(const sender *self, const struct sending *s)
{
    const uint64_t place = (uint64_t)(s - self->sendings) + 1;
    return place << 32 | s->t.generation;
}

static struct kvpi_transfer_head head_of(const sender *self, const struct sending *s, uint32_t kind)
{
    return (struct kvpi_transfer_head){
        .kind = kind, .part = attempt_of(self, s), .epoch = s->epoch, .id = s->ticket_id};
}

/* ------------------------------------------------------------------------------- how it ends */

static void pay_receiver(sender *self, struct sending *s)
{
    const struct kvpi_transfer_head head = head_of(self, s, KVPI_TRANSFER_GIVE_UP);
    if (s->t.owed != 0 && kvpi_side_tell(&self->side, s->link, &head, s->t.status) != KVP_E_AGAIN)
        s->t.owed = 0;
}

static void end_sending(sender *self, struct sending *s, uint32_t state, kvp_status status)
{
    s->t.state = state;
    s->t.status = status;
    self->n_ended += self->n_ended < UINT32_MAX;
}

/* Fail, and let the receiver know, if it has heard of this transfer. */
static void fail_sending(sender *self, struct sending *s, kvp_status status)
{
    s->t.owed = s->t.state != KVP_TRANSFER_WAITING;
    end_sending(self, s, KVP_TRANSFER_FAILED, status);
    pay_receiver(self, s);
}

static void lose_receiver(sender *self, uint32_t link, kvp_status status)
{
    kvpi_side_break(&self->side, link, status);
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++) {
        struct sending *s = &self->sendings[i];
        if (s->t.state == 0 || s->link != link)
            continue;
        s->t.owed = 0;
        if (kvpi_transfer_lives(&s->t))
            end_sending(self, s, KVP_TRANSFER_FAILED, status);
    }
}

/* -------------------------------------------------------------------------------------- links */

kvp_status kvp_sender_attach(kvp_sender *self, const kvp_link *link, uint32_t *out_link)
{
    return self ? kvpi_side_attach(&self->side, link, out_link) : KVP_E_ARG;
}

kvp_status kvp_sender_detach(kvp_sender *self, uint32_t link)
{
    if (!self || !kvpi_side_has_link(&self->side, link))
        return KVP_E_ARG;
    lose_receiver(self, link, KVP_E_PEER);
    self->side.links[link].attached = 0;
    return KVP_OK;
}

kvp_status kvp_sender_link(const kvp_sender *self, uint32_t link)
{
    return self && kvpi_side_has_link(&self->side, link) ? self->side.links[link].broken
                                                         : KVP_E_ARG;
}

/* ---------------------------------------------------------------------------------------- mark */

/* Tokens that a message holds; 0: not even the least that must go together. */
static uint32_t tokens_of_message(const sender *self, uint32_t link, uint32_t group,
                                  const kvp_slice *slice)
{
    const uint32_t S = kvpi_shape_block_tokens(&self->side.shape, group);
    size_t room = self->side.links[link].link.max_message - KVPI_TRANSFER_HEAD_BYTES -
                  KVPI_TRANSFER_CHUNK_BYTES;
    const kvp_layer layer = kvpi_side_memory(&self->side, group, slice->first_layer);
    const size_t scales = kvpi_rows_scale_bytes(&layer, slice->n_heads);
    const size_t token = kvpi_group_is_state(&self->side.shape.groups[group])
                             ? slice->n_heads /* a byte of each */
                             : kvpi_rows_token_bytes(&layer, slice->n_heads);
    room = room > scales ? room - scales : 0;
    const size_t n = room / token < INT32_MAX ? room / token : INT32_MAX;
    if (scales > 0)
        return n >= S ? S : 0;
    return (uint32_t)n;
}

static int is_marked(const sender *self, uint32_t link, const struct kvpi_ticket *ticket)
{
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++) {
        const struct sending *s = &self->sendings[i];
        if (s->t.state != 0 && s->link == link && s->epoch == ticket->head.epoch &&
            s->ticket_id == ticket->head.id)
            return 1;
    }
    return 0;
}

/* The tokens that the receiver knows, if we know as many: KVP_OK also when we do not yet. */
static kvp_status check_tokens(const sender *self, const struct sending *s,
                               const kvp_seq_info *info)
{
    kvp_hash tokens;
    if (info->kept_tokens < s->n_checked)
        return KVP_OK;
    const kvp_status status =
        kvpi_transfer_tokens(self->side.config.cache, s->t.seq, s->n_checked, &tokens);
    if (status != KVP_OK)
        return status;
    return memcmp(&tokens, &s->tokens, sizeof tokens) == 0 ? KVP_OK : KVP_E_MISMATCH;
}

/* What this side can send of what the ticket asks for. KVP_E_MISMATCH: nothing; `why` says what is
 * in the way, if it is in the shapes. */
static kvp_status meet_ticket(const sender *self, const kvp_send *send,
                              const struct kvpi_ticket *ticket, struct kvpi_shape *shape,
                              kvp_why *why)
{
    int has_part = 0;
    *shape = self->side.shape;
    shape->space = kvpi_transfer_hash(send->space, send->space_bytes);
    shape->begin = ticket->shape.begin;
    shape->end = ticket->shape.end;
    if (kvpi_shape_differs(&ticket->shape, shape, why))
        return KVP_E_MISMATCH;
    for (uint32_t g = 0; g < shape->n_groups; g++) {
        struct kvpi_shape_group *group = &shape->groups[g];
        const uint64_t begin = shape->begin;
        group->gap = ticket->shape.groups[g].gap;
        has_part |= kvpi_slice_meet(&self->side.shape.groups[g].slice,
                                    &ticket->shape.groups[g].slice, &group->slice);
        if (kvpi_why_if(
                why, kvpi_group_has_scales(group) && begin % kvpi_shape_block_tokens(shape, g) != 0,
                "begin", &begin, "with scales it must be the start of a block"))
            return KVP_E_MISMATCH;
    }
    return kvpi_why_if(why, !has_part, "slice", NULL, "there is no layer and head in common")
               ? KVP_E_MISMATCH
               : KVP_OK;
}

/* Measure what a message holds; KVP_E_TOO_SMALL: not even the least of some group. */
static kvp_status measure_chunks(const sender *self, struct sending *s)
{
    for (uint32_t g = 0; g < s->shape.n_groups; g++) {
        const kvp_slice *slice = &s->shape.groups[g].slice;
        if (kvpi_slice_is_empty(slice))
            continue;
        s->chunk_tokens[g] = tokens_of_message(self, s->link, g, slice);
        if (s->chunk_tokens[g] == 0)
            return KVP_E_TOO_SMALL;
    }
    return KVP_OK;
}

/* What the transfer is to be, except its place and state. */
static kvp_status describe_sending(const sender *self, const kvp_send *send,
                                   const kvp_seq_info *info, const struct kvpi_ticket *ticket,
                                   struct sending *out)
{
    struct kvpi_shape shape;
    kvp_status status = meet_ticket(self, send, ticket, &shape, NULL);
    if (status != KVP_OK)
        return status;
    *out = (struct sending){.t = {.begin = shape.begin, .end = shape.end, .seq = send->seq},
                            .link = send->link,
                            .computed = info->computed_tokens,
                            .n_checked = ticket->n_checked,
                            .follows = send->ready_tokens == KVP_END,
                            .epoch = ticket->head.epoch,
                            .ticket_id = ticket->head.id,
                            .ticket = ticket->head.body,
                            .tokens = ticket->tokens,
                            .shape = shape};
    status = check_tokens(self, out, info);
    if (status == KVP_OK)
        status = measure_chunks(self, out);
    return status == KVP_OK ? self->side.links[send->link].broken : status;
}

static kvp_status check_mark(const sender *self, const kvp_send *send, kvp_seq_info *info,
                             struct kvpi_ticket *ticket)
{
    if (!kvpi_side_has_link(&self->side, send->link))
        return KVP_E_ARG;
    kvp_status status = kvpi_ticket_get(send->ticket, send->ticket_bytes, ticket);
    if (status == KVP_OK)
        status = kvp_seq_info_get(self->side.config.cache, send->seq, info);
    if (status != KVP_OK)
        return status;
    if (send->ready_tokens != KVP_END && send->ready_tokens > info->n_tokens)
        return KVP_E_ARG;
    if (info->tier != KVP_DEVICE || is_marked(self, send->link, ticket))
        return KVP_E_STATE;
    return KVP_OK;
}

kvp_status kvp_sender_mark(kvp_sender *self, const kvp_send *send, uint64_t *out_id)
{
    struct kvpi_ticket ticket;
    struct sending fresh;
    kvp_seq_info info;
    send = kvpi_sized(send, sizeof(*send));
    if (!self || !send || !send->ticket || (!send->space && send->space_bytes > 0) ||
        send->reserved != 0 || !out_id)
        return KVP_E_ARG;
    kvp_status status = check_mark(self, send, &info, &ticket);
    if (status == KVP_OK)
        status = describe_sending(self, send, &info, &ticket, &fresh);
    if (status != KVP_OK)
        return status;
    uint32_t place = 0;
    while (place < self->side.config.max_transfers &&
           !kvpi_transfer_is_free(&self->sendings[place].t))
        place++;
    if (place == self->side.config.max_transfers)
        return KVP_E_AGAIN;
    struct sending *s = &self->sendings[place];
    fresh.t.generation = s->t.generation + 1;
    fresh.t.state = KVP_TRANSFER_WAITING;
    fresh.layers = s->layers;
    *s = fresh;
    const uint32_t ready = s->follows ? info.computed_tokens : send->ready_tokens;
    for (uint32_t g = 0; g < s->shape.n_groups; g++) {
        struct send_progress *layers = s->layers + self->side.groups[g].first_layer;
        const int is_state = kvpi_group_is_state(&s->shape.groups[g]);
        const uint32_t sent =
            kvpi_gap_skip(&s->shape.groups[g].gap, kvpi_shape_begin(&s->shape, g));
        for (uint32_t l = 0; l < self->side.shape.groups[g].slice.n_layers; l++)
            layers[l] = (struct send_progress){sent, is_state ? 0 : ready};
    }
    *out_id = kvpi_transfer_id(&s->t, place);
    return KVP_OK;
}

kvp_status kvp_send_check(const kvp_sender *self, const kvp_send *send, kvp_why *out_why)
{
    struct kvpi_ticket ticket;
    struct kvpi_shape shape;
    const kvp_send *known = kvpi_sized(send, sizeof(*send));
    kvpi_why_clear(out_why);
    if (kvpi_why_if(out_why, !self, "sender", NULL, "is NULL") ||
        kvpi_why_missing(out_why, send, known, "send") ||
        kvpi_why_if(out_why, !known->ticket, "ticket", NULL, "is NULL") ||
        kvpi_why_if(out_why, !known->space && known->space_bytes > 0, "space", NULL,
                    "is NULL, and space_bytes is not 0"))
        return KVP_E_ARG;
    const kvp_status status = kvpi_ticket_get(known->ticket, known->ticket_bytes, &ticket);
    (void)kvpi_why_if(out_why, status == KVP_E_FORMAT, "ticket", NULL, "is none, or is damaged");
    (void)kvpi_why_if(out_why, status == KVP_E_VERSION, "ticket", NULL, "is of another version");
    return status == KVP_OK ? meet_ticket(self, known, &ticket, &shape, out_why) : status;
}

/* ------------------------------------------------------------------------------------- sending */

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Tokens before this one may be sent in a layer of a group, the gap aside: with scales whole
 * blocks, for a scale may rise as long as tokens come to its block. */
static uint32_t sendable(const struct sending *s, uint32_t g, const struct send_progress *layer)
{
    const struct kvpi_shape_group *group = &s->shape.groups[g];
    uint32_t up_to = min(layer->ready, kvpi_shape_end(&s->shape, g));
    if (kvpi_group_has_scales(group) && up_to < s->t.end)
        up_to -= up_to % kvpi_shape_block_tokens(&s->shape, g);
    return layer->sent < up_to ? kvpi_gap_until(&group->gap, layer->sent, up_to) : layer->sent;
}

static uint32_t most_ready(const sender *self, const struct sending *s)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < self->side.n_kv_layers; l++)
        most = s->layers[l].ready > most ? s->layers[l].ready : most;
    return most;
}

/* K and V of the first n_tokens tokens are written in layers [first, end_sending). */
static void set_ready(struct sending *s, uint32_t first, uint32_t end_, uint32_t n_tokens)
{
    for (uint32_t l = first; l < end_; l++)
        if (s->layers[l].ready < n_tokens)
            s->layers[l].ready = n_tokens;
}

/* P1, P2: is the sequence still what it was? What was computed since is ready, if it follows. */
static kvp_status look_at_sent_seq(const sender *self, struct sending *s, kvp_seq_info *info)
{
    if (kvp_seq_info_get(self->side.config.cache, s->t.seq, info) != KVP_OK)
        return KVP_E_HANDLE;
    if (info->tier != KVP_DEVICE || info->n_tokens < most_ready(self, s) ||
        info->computed_tokens < s->computed)
        return KVP_E_STATE;
    s->computed = info->computed_tokens;
    if (s->follows)
        set_ready(s, 0, self->side.n_kv_layers, s->computed);
    return KVP_OK;
}

/* Has a layer of the group something to send still? */
static int has_more(const sender *self, const struct sending *s, uint32_t g)
{
    const kvp_slice *slice = &s->shape.groups[g].slice;
    for (uint32_t l = 0; l < slice->n_layers; l++)
        if (s->layers[kvpi_side_layer(&self->side, g, slice->first_layer + l)].sent <
            kvpi_shape_end(&s->shape, g))
            return 1;
    return 0;
}

/* Find the state after `end` tokens. Its layers are ready, whole, unless a step may be writing it:
 * when there are tokens that are not computed, and what is read would be written. KVP_E_DROPPED: it
 * is gone; KVP_E_STATE: it is another slot's than before. */
static kvp_status look_at_state(const sender *self, struct sending *s, const kvp_seq_info *info)
{
    const uint32_t g = self->side.n_kv_groups;
    kvp_state_info state;
    if (!kvpi_side_has_state(&self->side) || info->computed_tokens < s->t.end ||
        !has_more(self, s, g))
        return KVP_OK;
    const kvp_status status = kvp_seq_state_get(self->side.config.cache, s->t.seq, &state);
    if (status != KVP_OK)
        return status;
    if (info->computed_tokens > s->t.end || state.lost)
        return KVP_E_DROPPED;
    if (s->state_slot != 0 && s->state_slot != (int32_t)state.computed_slot)
        return KVP_E_STATE;
    const int is_written = info->n_tokens > s->t.end && state.read_slot == state.write_slot;
    const uint32_t first = self->side.n_kv_layers;
    for (uint32_t l = first; l < self->side.n_layers; l++)
        s->layers[l].ready = is_written ? 0 : kvpi_shape_end(&s->shape, g);
    s->state_slot = is_written ? s->state_slot : (int32_t)state.computed_slot;
    return KVP_OK;
}

static kvp_status send_begin(sender *self, struct sending *s)
{
    const struct kvpi_transfer_head head = head_of(self, s, KVPI_TRANSFER_BEGIN);
    const uint32_t n_groups = s->shape.n_groups;
    const size_t n_bytes = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_BEGIN_BYTES(n_groups);
    uint8_t *message;
    kvp_status status = kvpi_side_lend(&self->side, s->link, n_bytes, &message);
    if (status != KVP_OK)
        return status;
    uint8_t *body = message + KVPI_TRANSFER_HEAD_BYTES;
    kvpi_shape_put(&s->shape, body);
    kvpi_bytes_store(body + KVPI_TRANSFER_SHAPE_BYTES(n_groups), s->ticket, 8);
    status = kvpi_side_post(&self->side, s->link, n_bytes, &head);
    if (status == KVP_OK)
        s->t.state = KVP_TRANSFER_MOVING;
    return status;
}

/* Has a window dropped tokens that a layer of the group has still to send, ready or not? */
static int is_sent_off(const sender *self, const struct sending *s, uint32_t g)
{
    const struct kvpi_shape_group *group = &s->shape.groups[g];
    kvp_range dropped;
    if (kvpi_group_is_state(group))
        return 0;
    if (kvpi_side_dropped(&self->side, s->t.seq, g, &dropped) != KVP_OK)
        return 1;
    dropped.end = min(dropped.end, s->t.end);
    for (uint32_t l = 0; l < group->slice.n_layers; l++) {
        const uint32_t at = kvpi_side_layer(&self->side, g, group->slice.first_layer + l);
        uint32_t from = s->layers[at].sent;
        from = kvpi_gap_skip(&group->gap, from > dropped.begin ? from : dropped.begin);
        if (from < dropped.end)
            return 1;
    }
    return 0;
}

/* Write what is before the KV of a chunk; `out` is where the KV goes. */
static void begin_chunk(const sender *self, const struct sending *s, const struct kvpi_chunk *chunk,
                        uint8_t *message, struct kvpi_rows_out *out)
{
    uint8_t *body = message + KVPI_TRANSFER_HEAD_BYTES;
    kvpi_chunk_put(chunk, body);
    out->at = body + KVPI_TRANSFER_CHUNK_BYTES;
    out->is_shared = kvpi_shm_is_link(&self->side.links[s->link].link);
    kvpi_checksum_begin(&out->sum);
    kvpi_checksum_add(&out->sum, body, KVPI_TRANSFER_CHUNK_BYTES);
}

/* One message of a layer (of the model). */
static kvp_status send_chunk(sender *self, struct sending *s, uint32_t g, uint32_t l,
                             uint32_t n_tokens)
{
    struct kvpi_transfer_head head = head_of(self, s, KVPI_TRANSFER_CHUNK);
    const struct kvpi_shape_group *group = &s->shape.groups[g];
    struct send_progress *progress = &s->layers[kvpi_side_layer(&self->side, g, l)];
    const kvp_layer layer = kvpi_side_memory(&self->side, g, l);
    const struct kvpi_chunk chunk = {
        l, group->slice.first_head, group->slice.n_heads, progress->sent, n_tokens, g};
    uint32_t n_row;
    struct kvpi_rows rows = {.layer = &layer,
                             .first_head =
                                 chunk.first_head - self->side.shape.groups[g].slice.first_head,
                             .n_heads = chunk.n_heads,
                             .position = chunk.position,
                             .n_tokens = n_tokens};
    uint8_t *message;
    struct kvpi_rows_out out;
    const int is_state = kvpi_group_is_state(group);
    const size_t kv_bytes = is_state ? (size_t)n_tokens * chunk.n_heads
                                     : kvpi_rows_token_bytes(&layer, chunk.n_heads) * n_tokens +
                                           kvpi_rows_scale_bytes(&layer, chunk.n_heads);
    const size_t n_bytes = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_CHUNK_BYTES + kv_bytes;
    kvp_status status = KVP_OK;
    if (is_state)
        rows.row = &s->state_slot;
    else
        status = kvp_seq_row(self->side.config.cache, s->t.seq, g, &rows.row, &n_row);
    if (status == KVP_OK)
        status = kvpi_side_lend(&self->side, s->link, n_bytes, &message);
    if (status != KVP_OK)
        return status;
    begin_chunk(self, s, &chunk, message, &out);
    if (is_state)
        kvpi_rows_gather_state(&rows, &out);
    else
        kvpi_rows_gather(&rows, &out);
    head.body = kvpi_checksum_end(&out.sum);
    status = kvpi_side_post_summed(&self->side, s->link, n_bytes, &head);
    if (status != KVP_OK)
        return status;
    progress->sent = kvpi_gap_skip(&group->gap, progress->sent + n_tokens);
    s->t.chunks++;
    s->t.bytes += kv_bytes;
    return KVP_OK;
}

static kvp_status send_layer(sender *self, struct sending *s, uint32_t g, uint32_t l)
{
    const struct send_progress *layer = &s->layers[kvpi_side_layer(&self->side, g, l)];
    kvp_status status = KVP_OK;
    while (status == KVP_OK && layer->sent < sendable(s, g, layer)) {
        const uint32_t rest = sendable(s, g, layer) - layer->sent;
        status = send_chunk(self, s, g, l, min(rest, s->chunk_tokens[g]));
    }
    return status;
}

/* Send what there is of a group. out_all becomes 0 if there will be more. */
static kvp_status send_group(sender *self, struct sending *s, uint32_t g, int *out_all)
{
    const kvp_slice *slice = &s->shape.groups[g].slice;
    kvp_status status = is_sent_off(self, s, g) ? KVP_E_DROPPED : KVP_OK;
    for (uint32_t i = 0; status == KVP_OK && i < slice->n_layers; i++) {
        status = send_layer(self, s, g, slice->first_layer + i);
    }
    if (has_more(self, s, g))
        *out_all = 0;
    return status;
}

static kvp_status send_done(sender *self, struct sending *s, const kvp_seq_info *info)
{
    const struct kvpi_transfer_head head = head_of(self, s, KVPI_TRANSFER_DONE);
    const uint32_t n_groups = s->shape.n_groups;
    const size_t n_bytes = KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_DONE_BYTES(n_groups);
    uint8_t *message;
    if (info->kept_tokens < s->n_checked)
        return info->known_tokens < s->n_checked ? KVP_E_AGAIN : KVP_E_UNKNOWN;
    kvp_status status = check_tokens(self, s, info);
    if (status == KVP_OK)
        status = kvpi_side_lend(&self->side, s->link, n_bytes, &message);
    if (status != KVP_OK)
        return status;
    uint8_t *at = message + KVPI_TRANSFER_HEAD_BYTES;
    for (uint32_t g = 0; g < n_groups; g++, at += 16)
        kvpi_slice_put(&s->shape.groups[g].slice, at);
    memcpy(at, s->tokens.bytes, 16);
    status = kvpi_side_post(&self->side, s->link, n_bytes, &head);
    if (status == KVP_OK)
        s->t.state = KVP_TRANSFER_SENT;
    return status;
}

/* Send all that can be sent now. Returns KVP_OK, KVP_E_AGAIN, or why the transfer cannot go on. */
static kvp_status send_ready(sender *self, struct sending *s)
{
    kvp_seq_info info;
    int all = 1;
    kvp_status status = look_at_sent_seq(self, s, &info);
    if (status == KVP_OK)
        status = look_at_state(self, s, &info);
    if (status == KVP_OK && s->t.state == KVP_TRANSFER_WAITING)
        status = send_begin(self, s);
    for (uint32_t g = 0; status == KVP_OK && g < s->shape.n_groups; g++)
        status = send_group(self, s, g, &all);
    if (status == KVP_OK && all && info.computed_tokens >= s->t.end)
        status = send_done(self, s, &info);
    return status;
}

static void push(sender *self, struct sending *s)
{
    if (s->t.state != KVP_TRANSFER_WAITING && s->t.state != KVP_TRANSFER_MOVING)
        return;
    const kvp_status status = send_ready(self, s);
    /* Of a link that broke just now, answers may be left: progress takes them, then says so. */
    if (status != KVP_OK && status != KVP_E_AGAIN && self->side.links[s->link].broken == KVP_OK)
        fail_sending(self, s, status);
}

kvp_status kvp_sender_ready(kvp_sender *self, uint64_t id, uint32_t layer, uint32_t n_tokens)
{
    kvp_seq_info info;
    if (!self)
        return KVP_E_ARG;
    struct sending *s = find_sending(self, id);
    if (!s)
        return KVP_E_HANDLE;
    if (layer != KVP_LAYERS_ALL && layer >= self->side.n_kv_layers)
        return KVP_E_ARG;
    if (!kvpi_transfer_lives(&s->t))
        return KVP_E_STATE;
    if (kvp_seq_info_get(self->side.config.cache, s->t.seq, &info) == KVP_OK &&
        n_tokens > info.n_tokens)
        return KVP_E_ARG;
    if (layer == KVP_LAYERS_ALL)
        set_ready(s, 0, self->side.n_kv_layers, n_tokens);
    else
        set_ready(s, layer, layer + 1, n_tokens);
    push(self, s);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- answers */

static struct sending *find_ticket(const sender *self, uint32_t link,
                                   const struct kvpi_transfer_head *head)
{
    for (uint32_t i = 0; i < self->side.config.max_transfers; i++) {
        struct sending *s = &self->sendings[i];
        if (kvpi_transfer_lives(&s->t) && s->link == link && s->epoch == head->epoch &&
            s->ticket_id == head->id)
            return s;
    }
    return NULL;
}

static void look_at_message(sender *self, uint32_t link, const struct kvpi_message *message)
{
    const size_t n_bytes = message->n_bytes;
    struct kvpi_transfer_head head;
    if (!kvpi_transfer_read_head(message->front, n_bytes, &head))
        return;
    struct sending *s = find_ticket(self, link, &head);
    if (!s)
        return;
    const kvp_status status = kvpi_transfer_verify(&head, message->bytes, n_bytes);
    if (status != KVP_OK || head.kind != KVPI_TRANSFER_RESULT ||
        n_bytes != KVPI_TRANSFER_HEAD_BYTES + KVPI_TRANSFER_STATUS_BYTES) {
        fail_sending(self, s, status == KVP_OK ? KVP_E_FORMAT : status);
        return;
    }
    const uint8_t *body = message->front + KVPI_TRANSFER_HEAD_BYTES;
    if (kvpi_bytes_load32(body) != KVP_OK) {
        s->t.by_peer = 1;
        end_sending(self, s, KVP_TRANSFER_FAILED, kvpi_side_told(body));
    } else if (s->t.state == KVP_TRANSFER_SENT) {
        end_sending(self, s, KVP_TRANSFER_COMPLETE, KVP_OK);
    } else {
        fail_sending(self, s, KVP_E_FORMAT);
    }
}

static void take_answers(sender *self, uint32_t link)
{
    const kvp_link *l = &self->side.links[link].link;
    struct kvpi_message message;
    kvp_status status = KVP_OK;
    l->progress(l->context);
    for (uint32_t n = 0; n < KVP_PROGRESS_MESSAGES; n++) {
        status = kvpi_side_take(&self->side, link, &message);
        if (status != KVP_OK)
            break;
        look_at_message(self, link, &message);
        l->give_back(l->context);
    }
    if (status == KVP_E_AGAIN)
        status = self->side.links[link].broken;
    if (status != KVP_OK)
        lose_receiver(self, link, status);
}

kvp_status kvp_sender_progress(kvp_sender *self, uint32_t *out_n_ended)
{
    if (!self)
        return KVP_E_ARG;
    for (uint32_t i = 0; i < self->side.config.max_links; i++)
        if (self->side.links[i].attached)
            take_answers(self, i);
    const uint32_t n = self->side.config.max_transfers;
    assert(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        struct sending *s = &self->sendings[(self->turn + i) % n];
        push(self, s);
        pay_receiver(self, s);
    }
    self->turn = (self->turn + 1) % n;
    if (out_n_ended) {
        *out_n_ended = self->n_ended;
        self->n_ended = 0;
    }
    return KVP_OK;
}

/* ------------------------------------------------------------------------------- the rest of it */

kvp_status kvp_sender_info_get(const kvp_sender *self, uint64_t id, kvp_transfer_info *out_info)
{
    if (!self || !out_info)
        return KVP_E_ARG;
    const struct sending *s = find_sending(self, id);
    if (!s)
        return KVP_E_HANDLE;
    kvpi_transfer_tell(&s->t, out_info);
    return KVP_OK;
}

kvp_status kvp_sender_abort(kvp_sender *self, uint64_t id, kvp_status reason)
{
    if (!self || !kvpi_transfer_is_failure(reason))
        return KVP_E_ARG;
    struct sending *s = find_sending(self, id);
    if (!s)
        return KVP_E_HANDLE;
    if (!kvpi_transfer_lives(&s->t))
        return KVP_E_STATE;
    fail_sending(self, s, reason);
    return KVP_OK;
}

kvp_status kvp_sender_close(kvp_sender *self, uint64_t id)
{
    if (!self)
        return KVP_E_ARG;
    struct sending *s = find_sending(self, id);
    if (!s)
        return KVP_E_HANDLE;
    if (kvpi_transfer_lives(&s->t))
        return KVP_E_STATE;
    pay_receiver(self, s);
    s->t.state = 0;
    s->t.owed = 0;
    return KVP_OK;
}

/* transfer_bytes: the messages of a transfer, written and read. No state, no memory of its own.
 *
 * Readers take any bytes. A number is compared with what it may be before it is used; where a
 * meaning has one form, another form is damage. */
#include "transfer/transfer_bytes.h"

#include <string.h>

#include "base/checksum.h"
#include "base/sized.h"
#include "base/why.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t MAGIC[4] = {'k', 'v', 'p', 'x'};

/* Slots fit: blocks are below 2^31, tokens of a block at most 2^16. */
#define SLOT_END (INT64_C(1) << 47)

/* ------------------------------------------------------------------------------------- the head */

void kvpi_transfer_put_head(uint8_t *message, size_t n_bytes, const struct kvpi_transfer_head *head)
{
    memcpy(message, MAGIC, sizeof MAGIC);
    message[KVPI_TRANSFER_AT_VERSION] = KVPI_TRANSFER_VERSION;
    message[KVPI_TRANSFER_AT_KIND] = (uint8_t)head->kind;
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_PLACE, head->part >> 32, 2);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_LENGTH, n_bytes, 4);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_PART, (uint32_t)head->part, 4);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_EPOCH, head->epoch, 8);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_ID, head->id, 8);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_BODY, head->body, 8);
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_HEAD, kvpi_checksum(message, KVPI_TRANSFER_AT_HEAD),
                     8);
}

void kvpi_transfer_seal(uint8_t *message, size_t n_bytes, const struct kvpi_transfer_head *head)
{
    struct kvpi_transfer_head sealed = *head;
    sealed.body =
        kvpi_checksum(message + KVPI_TRANSFER_HEAD_BYTES, n_bytes - KVPI_TRANSFER_HEAD_BYTES);
    kvpi_transfer_put_head(message, n_bytes, &sealed);
}

int kvpi_transfer_read_head(const uint8_t *message, size_t n_bytes,
                            struct kvpi_transfer_head *out_head)
{
    if (n_bytes < KVPI_TRANSFER_HEAD_BYTES || memcmp(message, MAGIC, sizeof MAGIC) != 0 ||
        kvpi_bytes_load(message + KVPI_TRANSFER_AT_HEAD, 8) !=
            kvpi_checksum(message, KVPI_TRANSFER_AT_HEAD))
        return 0;
    out_head->version = message[KVPI_TRANSFER_AT_VERSION];
    out_head->kind = message[KVPI_TRANSFER_AT_KIND];
    out_head->n_bytes = kvpi_bytes_load32(message + KVPI_TRANSFER_AT_LENGTH);
    out_head->part = kvpi_bytes_load(message + KVPI_TRANSFER_AT_PLACE, 2) << 32 |
                     kvpi_bytes_load32(message + KVPI_TRANSFER_AT_PART);
    out_head->epoch = kvpi_bytes_load(message + KVPI_TRANSFER_AT_EPOCH, 8);
    out_head->id = kvpi_bytes_load(message + KVPI_TRANSFER_AT_ID, 8);
    out_head->body = kvpi_bytes_load(message + KVPI_TRANSFER_AT_BODY, 8);
    return 1;
}

kvp_status kvpi_transfer_verify(const struct kvpi_transfer_head *head, const uint8_t *message,
                                size_t n_bytes)
{
    if (head->version != KVPI_TRANSFER_VERSION)
        return KVP_E_VERSION;
    if (head->n_bytes != n_bytes || (head->part >> 32 == 0) != ((uint32_t)head->part == 0) ||
        head->body !=
            kvpi_checksum(message + KVPI_TRANSFER_HEAD_BYTES, n_bytes - KVPI_TRANSFER_HEAD_BYTES))
        return KVP_E_FORMAT;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------- shapes and slices */

void kvpi_slice_put(const kvp_slice *slice, uint8_t *out)
{
    kvpi_bytes_store(out, slice->first_layer, 4);
    kvpi_bytes_store(out + 4, slice->n_layers, 4);
    kvpi_bytes_store(out + 8, slice->first_head, 4);
    kvpi_bytes_store(out + 12, slice->n_heads, 4);
}

void kvpi_slice_get(const uint8_t *in, kvp_slice *out_slice)
{
    out_slice->first_layer = kvpi_bytes_load32(in);
    out_slice->n_layers = kvpi_bytes_load32(in + 4);
    out_slice->first_head = kvpi_bytes_load32(in + 8);
    out_slice->n_heads = kvpi_bytes_load32(in + 12);
}

static int range_within(uint64_t first, uint64_t n, uint64_t whole_first, uint64_t whole_n)
{
    return n > 0 && first >= whole_first && first + n <= whole_first + whole_n;
}

int kvpi_slice_within(const kvp_slice *slice, const kvp_slice *whole)
{
    return range_within(slice->first_layer, slice->n_layers, whole->first_layer, whole->n_layers) &&
           range_within(slice->first_head, slice->n_heads, whole->first_head, whole->n_heads);
}

static uint32_t meet(uint64_t a, uint64_t n_a, uint64_t b, uint64_t n_b, uint32_t *out_first)
{
    const uint64_t first = a > b ? a : b;
    const uint64_t end = a + n_a < b + n_b ? a + n_a : b + n_b;
    *out_first = (uint32_t)first;
    return first < end ? (uint32_t)(end - first) : 0;
}

int kvpi_slice_meet(const kvp_slice *a, const kvp_slice *b, kvp_slice *out_slice)
{
    kvp_slice both;
    both.n_layers =
        meet(a->first_layer, a->n_layers, b->first_layer, b->n_layers, &both.first_layer);
    both.n_heads = meet(a->first_head, a->n_heads, b->first_head, b->n_heads, &both.first_head);
    const int is_there = both.n_layers > 0 && both.n_heads > 0;
    *out_slice = is_there ? both : (kvp_slice){0, 0, 0, 0};
    return is_there;
}

static void put_group(const struct kvpi_shape_group *group, uint8_t *out)
{
    const uint32_t numbers[4] = {group->type, group->flags, group->k_size, group->v_size};
    const uint32_t ranges[4] = {group->window.sink_tokens, group->window.recent_tokens,
                                group->gap.begin, group->gap.end};
    for (int i = 0; i < 4; i++) {
        kvpi_bytes_store(out + 4 * i, numbers[i], 4);
        kvpi_bytes_store(out + 32 + 4 * i, ranges[i], 4);
    }
    kvpi_slice_put(&group->slice, out + 16);
    kvpi_bytes_store(out + 48, group->block_tokens, 8);
}

void kvpi_shape_put(const struct kvpi_shape *shape, uint8_t *out)
{
    const uint32_t numbers[4] = {shape->begin, shape->end, 0, shape->n_groups};
    for (int i = 0; i < 4; i++)
        kvpi_bytes_store(out + 4 * i, numbers[i], 4);
    kvpi_bytes_store(out + 16, shape->model_version, 8);
    memcpy(out + 24, shape->model.bytes, 16);
    memcpy(out + 40, shape->space.bytes, 16);
    for (uint32_t g = 0; g < shape->n_groups; g++)
        put_group(&shape->groups[g], out + KVPI_TRANSFER_SHAPE_BYTES(g));
}

static int get_group(const uint8_t *in, struct kvpi_shape_group *out_group)
{
    out_group->type = kvpi_bytes_load32(in);
    out_group->flags = kvpi_bytes_load32(in + 4);
    out_group->k_size = kvpi_bytes_load32(in + 8);
    out_group->v_size = kvpi_bytes_load32(in + 12);
    kvpi_slice_get(in + 16, &out_group->slice);
    out_group->window = (kvp_window){kvpi_bytes_load32(in + 32), kvpi_bytes_load32(in + 36)};
    out_group->gap = (kvp_range){kvpi_bytes_load32(in + 40), kvpi_bytes_load32(in + 44)};
    out_group->block_tokens = kvpi_bytes_load32(in + 48);
    return kvpi_bytes_load32(in + 52) == 0;
}

int kvpi_shape_get(const uint8_t *in, size_t n_bytes, struct kvpi_shape *out_shape)
{
    if (n_bytes < KVPI_TRANSFER_SHAPE_BYTES(1))
        return 0;
    out_shape->begin = kvpi_bytes_load32(in);
    out_shape->end = kvpi_bytes_load32(in + 4);
    out_shape->n_groups = kvpi_bytes_load32(in + 12);
    out_shape->model_version = kvpi_bytes_load(in + 16, 8);
    memcpy(out_shape->model.bytes, in + 24, 16);
    memcpy(out_shape->space.bytes, in + 40, 16);
    if (out_shape->n_groups < 1 || out_shape->n_groups > KVP_GROUPS_MAX ||
        n_bytes < KVPI_TRANSFER_SHAPE_BYTES(out_shape->n_groups))
        return 0;
    for (uint32_t g = 0; g < out_shape->n_groups; g++)
        if (!get_group(in + KVPI_TRANSFER_SHAPE_BYTES(g), &out_shape->groups[g]))
            return 0;
    return kvpi_bytes_load32(in + 8) == 0;
}

int kvpi_shape_is_sound(const struct kvpi_shape *shape)
{
    const uint32_t last = shape->n_groups - 1;
    for (uint32_t g = 0; g <= last; g++) {
        const struct kvpi_shape_group *group = &shape->groups[g];
        if (group->flags > KVPI_SHAPE_FLAGS)
            return 0;
        if (kvpi_group_is_state(group) &&
            (g == 0 || g < last || group->block_tokens != 1 || group->type != KVP_BYTES ||
             kvpi_group_has_scales(group) || group->k_size == 0 ||
             group->k_size > KVP_STATE_BYTES_MAX || group->v_size > KVP_STATE_BYTES_MAX ||
             (group->window.sink_tokens | group->window.recent_tokens | group->gap.begin |
              group->gap.end) != 0))
            return 0;
    }
    return 1;
}

static int is_other(kvp_why *why, uint32_t group, const char *field, uint64_t theirs, uint64_t ours)
{
    return kvpi_why_element(why, "groups", group, field, theirs, ours, ours);
}

static int group_differs(const struct kvpi_shape *theirs, const struct kvpi_shape *ours, uint32_t g,
                         kvp_why *why)
{
    const struct kvpi_shape_group *a = &theirs->groups[g], *b = &ours->groups[g];
    return is_other(why, g, ".sink_tokens", a->window.sink_tokens, b->window.sink_tokens) ||
           is_other(why, g, ".recent_tokens", a->window.recent_tokens, b->window.recent_tokens) ||
           is_other(why, g, ".type", a->type, b->type) ||
           is_other(why, g, ".k_size", a->k_size, b->k_size) ||
           is_other(why, g, ".v_size", a->v_size, b->v_size) ||
           is_other(why, g, ".flags", a->flags, b->flags) ||
           /* A scale is of a block: only an equal block can take it over. */
           (kvpi_group_has_scales(b) &&
            is_other(why, g, ".block_tokens", a->block_tokens, b->block_tokens));
}

int kvpi_shape_differs(const struct kvpi_shape *theirs, const struct kvpi_shape *ours, kvp_why *why)
{
    if (kvpi_why_range(why, "model_version", theirs->model_version, ours->model_version,
                       ours->model_version) ||
        kvpi_why_if(why, memcmp(&theirs->model, &ours->model, sizeof ours->model) != 0, "model",
                    NULL, "is another one") ||
        kvpi_why_if(why, memcmp(&theirs->space, &ours->space, sizeof ours->space) != 0, "space",
                    NULL, "is another one") ||
        kvpi_why_range(why, "n_groups", theirs->n_groups, ours->n_groups, ours->n_groups))
        return 1;
    for (uint32_t g = 0; g < ours->n_groups; g++)
        if (group_differs(theirs, ours, g, why))
            return 1;
    return 0;
}

static int same_ranges(const struct kvpi_shape *theirs, const struct kvpi_shape *ours)
{
    for (uint32_t g = 0; g < ours->n_groups; g++)
        if (theirs->groups[g].gap.begin != ours->groups[g].gap.begin ||
            theirs->groups[g].gap.end != ours->groups[g].gap.end)
            return 0;
    return theirs->begin == ours->begin && theirs->end == ours->end;
}

int kvpi_shape_is_part(const struct kvpi_shape *theirs, const struct kvpi_shape *ours)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < ours->n_groups; g++) {
        const kvp_slice *slice = &theirs->groups[g].slice;
        if (kvpi_slice_is_empty(slice))
            continue;
        if (!kvpi_slice_within(slice, &ours->groups[g].slice))
            return 0;
        n++;
    }
    return n > 0 && same_ranges(theirs, ours);
}

/* --------------------------------------------------------------------------------------- chunks */

void kvpi_chunk_put(const struct kvpi_chunk *chunk, uint8_t *out)
{
    const uint32_t numbers[8] = {chunk->layer,
                                 chunk->first_head,
                                 chunk->n_heads,
                                 chunk->position,
                                 chunk->n_tokens,
                                 chunk->group,
                                 0,
                                 0};
    for (int i = 0; i < 8; i++)
        kvpi_bytes_store(out + 4 * i, numbers[i], 4);
}

int kvpi_chunk_get(const uint8_t *in, struct kvpi_chunk *out_chunk)
{
    out_chunk->layer = kvpi_bytes_load32(in);
    out_chunk->first_head = kvpi_bytes_load32(in + 4);
    out_chunk->n_heads = kvpi_bytes_load32(in + 8);
    out_chunk->position = kvpi_bytes_load32(in + 12);
    out_chunk->n_tokens = kvpi_bytes_load32(in + 16);
    out_chunk->group = kvpi_bytes_load32(in + 20);
    return kvpi_bytes_load(in + 24, 8) == 0;
}

/* --------------------------------------------------------------------------------------- hashes */

static kvp_hash canonical(XXH128_hash_t hash)
{
    XXH128_canonical_t bytes;
    kvp_hash out;
    XXH128_canonicalFromHash(&bytes, hash);
    memcpy(out.bytes, bytes.digest, sizeof out.bytes);
    return out;
}

kvp_hash kvpi_transfer_hash(const void *bytes, size_t n_bytes)
{
    return canonical(XXH3_128bits(n_bytes > 0 ? bytes : "", n_bytes));
}

kvp_status kvpi_transfer_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t n_tokens,
                                kvp_hash *out_hash)
{
    enum { PIECE = 256 };
    XXH3_state_t state;
    int32_t tokens[PIECE];
    uint8_t bytes[4 * PIECE];
    (void)XXH3_128bits_reset(&state);
    for (uint32_t at = 0, n; at < n_tokens; at += n) {
        n = n_tokens - at < PIECE ? n_tokens - at : PIECE;
        const kvp_status status = kvp_seq_tokens(cache, seq, at, n, tokens);
        if (status != KVP_OK)
            return status;
        for (uint32_t i = 0; i < n; i++)
            kvpi_bytes_store(bytes + 4 * (size_t)i, (uint32_t)tokens[i], 4);
        (void)XXH3_128bits_update(&state, bytes, 4 * (size_t)n);
    }
    *out_hash = canonical(XXH3_128bits_digest(&state));
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------- tickets */

static void put_number(struct kvpi_run_writer *out, uint64_t value)
{
    uint8_t bytes[KVPI_VARINT_BYTES];
    const unsigned n = kvpi_varint_store(bytes, value);
    for (unsigned i = 0; i < n; i++) {
        if (out->n < out->capacity)
            out->bytes[out->n] = bytes[i];
        out->n++;
    }
}

/* 0, -1, 1, -2, ... are 0, 1, 2, 3, ... */
void kvpi_run_put(struct kvpi_run_writer *out, const kvp_slot_run *run)
{
    const int64_t way = run->slot - out->at;
    put_number(out, ((uint64_t)way << 1) ^ (way < 0 ? UINT64_MAX : 0));
    put_number(out, run->n_tokens);
    out->at = run->slot + run->n_tokens;
}

/* A number below 2^49, in its shortest form. */
static int get_number(const uint8_t **at, const uint8_t *end, uint64_t *out_value)
{
    return kvpi_varint_load(at, end, (UINT64_C(1) << 49) - 1, out_value);
}

/* A run of slots from `least` on: those before it are of the null block. */
static int get_run(const uint8_t **at, const uint8_t *end, int64_t least, int64_t *slot,
                   kvp_slot_run *out_run)
{
    uint64_t code, n_tokens;
    if (!get_number(at, end, &code) || !get_number(at, end, &n_tokens) || n_tokens == 0 ||
        n_tokens > INT32_MAX)
        return 0;
    *slot += (int64_t)(code >> 1) ^ ((code & 1) != 0 ? -1 : 0);
    if (*slot < least || *slot + (int64_t)n_tokens > SLOT_END)
        return 0;
    *out_run = (kvp_slot_run){*slot, (uint32_t)n_tokens};
    *slot += (int64_t)n_tokens;
    return 1;
}

/* The tokens of a group that are to come: those of the range that are not in its gap; one slot. */
static uint32_t tokens_of(const struct kvpi_shape *shape, uint32_t group)
{
    const kvp_range *gap = &shape->groups[group].gap;
    if (kvpi_group_is_state(&shape->groups[group]))
        return 1;
    return shape->end - shape->begin - (gap->end - gap->begin);
}

/* Read the runs of a group, the first `capacity` of them into out_runs; `at` goes to their end. */
static int get_runs(const struct kvpi_ticket *ticket, uint32_t group, const uint8_t **at,
                    kvp_slot_run *out_runs, uint32_t capacity)
{
    const int64_t least = kvpi_shape_block_tokens(&ticket->shape, group);
    uint64_t n_tokens = 0;
    int64_t slot = 0;
    for (uint32_t i = 0; i < ticket->n_runs[group]; i++) {
        const int64_t before = slot;
        kvp_slot_run run;
        if (!get_run(at, ticket->runs_end, least, &slot, &run) || (i > 0 && run.slot == before))
            return 0;
        n_tokens += run.n_tokens;
        if (i < capacity)
            out_runs[i] = run;
    }
    return n_tokens == tokens_of(&ticket->shape, group);
}

static int has_slice(const kvp_slice *slice)
{
    static const kvp_slice WHOLE = {0, UINT32_MAX, 0, UINT32_MAX};
    return slice->n_layers <= KVP_LAYERS_MAX && slice->n_heads <= KVP_HEADS_MAX &&
           kvpi_slice_within(slice, &WHOLE);
}

static int has_range(const struct kvpi_ticket *t)
{
    const struct kvpi_shape *shape = &t->shape;
    if (shape->begin >= shape->end || shape->end > INT32_MAX || t->n_checked > shape->end)
        return 0;
    for (uint32_t g = 0; g < shape->n_groups; g++) {
        const kvp_range *gap = &shape->groups[g].gap;
        const int is_none = gap->begin == 0 && gap->end == 0;
        const uint32_t S = kvpi_shape_block_tokens(shape, g);
        if (!has_slice(&shape->groups[g].slice) || S == 0 || S > KVP_BLOCK_TOKENS_MAX ||
            (!is_none &&
             (gap->begin < shape->begin || gap->begin >= gap->end || gap->end > shape->end)))
            return 0;
    }
    return 1;
}

kvp_status kvpi_ticket_get(const void *bytes, size_t n_bytes, struct kvpi_ticket *out_ticket)
{
    struct kvpi_ticket *t = out_ticket;
    const uint8_t *body = (const uint8_t *)bytes + KVPI_TRANSFER_HEAD_BYTES;
    if (!kvpi_transfer_read_head(bytes, n_bytes, &t->head))
        return KVP_E_FORMAT;
    const kvp_status status = kvpi_transfer_verify(&t->head, bytes, n_bytes);
    if (status != KVP_OK)
        return status;
    const size_t n_body = n_bytes - KVPI_TRANSFER_HEAD_BYTES;
    if (t->head.kind != KVPI_TRANSFER_TICKET || t->head.id == 0 ||
        !kvpi_shape_get(body, n_body, &t->shape) ||
        n_body < KVPI_TRANSFER_TICKET_BYTES(t->shape.n_groups))
        return KVP_E_FORMAT;
    const uint8_t *rest = body + KVPI_TRANSFER_SHAPE_BYTES(t->shape.n_groups);
    t->n_checked = kvpi_bytes_load32(rest);
    memcpy(t->tokens.bytes, rest + 8, 16);
    if (kvpi_bytes_load32(rest + 4) != 0 || !has_range(t) || !kvpi_shape_is_sound(&t->shape))
        return KVP_E_FORMAT;
    const uint8_t *at = body + KVPI_TRANSFER_TICKET_BYTES(t->shape.n_groups);
    t->runs_end = (const uint8_t *)bytes + n_bytes;
    for (uint32_t g = 0; g < t->shape.n_groups; g++) {
        t->n_runs[g] = kvpi_bytes_load32(rest + 24 + (size_t)4 * g);
        t->runs[g] = at;
        if (!get_runs(t, g, &at, NULL, 0))
            return KVP_E_FORMAT;
    }
    return at == t->runs_end ? KVP_OK : KVP_E_FORMAT;
}

static kvp_ticket tell_ticket(const struct kvpi_ticket *t, uint32_t group)
{
    const struct kvpi_shape_group *g = &t->shape.groups[group];
    return (kvp_ticket){.epoch = t->head.epoch,
                        .id = t->head.id,
                        .model_version = t->shape.model_version,
                        .type = g->type,
                        .k_size = g->k_size,
                        .v_size = g->v_size,
                        .block_tokens = kvpi_shape_block_tokens(&t->shape, group),
                        .slice = g->slice,
                        .begin = t->shape.begin,
                        .end = t->shape.end,
                        .n_runs = t->n_runs[group],
                        .n_groups = t->shape.n_groups,
                        .gap = g->gap,
                        .window = g->window};
}

kvp_status kvp_ticket_group(const void *bytes, size_t n_bytes, uint32_t of_group,
                            kvp_ticket *out_ticket, kvp_slot_run *out_runs, uint32_t capacity)
{
    struct kvpi_ticket t;
    if (!bytes || (!out_runs && capacity > 0))
        return KVP_E_ARG;
    const kvp_status status = kvpi_ticket_get(bytes, n_bytes, &t);
    if (status != KVP_OK)
        return status;
    if (of_group >= t.shape.n_groups)
        return KVP_E_ARG;
    if (out_ticket)
        *out_ticket = tell_ticket(&t, of_group);
    if (capacity == 0)
        return KVP_OK;
    if (capacity < t.n_runs[of_group])
        return KVP_E_TOO_SMALL;
    const uint8_t *at = t.runs[of_group];
    (void)get_runs(&t, of_group, &at, out_runs, capacity); /* they were right before */
    return KVP_OK;
}

kvp_status kvp_ticket_read(const void *bytes, size_t n_bytes, kvp_ticket *out_ticket,
                           kvp_slot_run *out_runs, uint32_t capacity)
{
    return kvp_ticket_group(bytes, n_bytes, 0, out_ticket, out_runs, capacity);
}

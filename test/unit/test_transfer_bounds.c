/* Messages of transfers, each right but for one field: at its bound it is taken, one below or above
 * it is refused, and nothing is written. Tickets are read alone; the others go to a receiver. */
#include <string.h>

#include "base/checksum.h"
#include "bounds.h"
#include "transfer_by_hand.h"

/* STATED: the last group is one of state. SIZED: another group before it, with blocks of 2. */
enum { HEAD = KVPI_TRANSFER_HEAD_BYTES, TOKENS = 9, STATED = 1, SIZED = 2, MOST_BYTES = 1024 };

#define FORMAT   KVP_E_FORMAT
#define MISMATCH KVP_E_MISMATCH
#define NONE     NO_BOUND

/* ---------------------------------------------------------------------------------- tickets */

/* All that a ticket says. */
struct parts {
    struct kvpi_transfer_head head;
    struct kvpi_shape shape;
    uint32_t n_checked;
    uint32_t reserved;
    uint32_t more_runs; /* than there are, of the first group */
    uint64_t more_tokens;
    uint64_t slot; /* of the first run of the first group */
    uint64_t second_slot;
    uint64_t state_slot, state_slots;
    uint32_t more_bytes;
};

struct ticket_row {
    struct bound bound;
    size_t at;
    uint32_t n_bytes; /* of the field */
    uint32_t flags;
};

#define IN(field)     offsetof(struct parts, field), sizeof(((struct parts *)0)->field)
#define GROUP(field)  IN(shape.groups[0].field)
#define SECOND(field) IN(shape.groups[1].field)
#define STATE(field)  IN(shape.groups[1].field)

static const struct ticket_row of_tickets[] = {
    {{"version", 1, 1, KVP_E_VERSION, KVP_E_VERSION}, IN(head.version), 0},
    {{"kind", 1, 1, NONE, FORMAT}, IN(head.kind), 0},
    {{"part", 0, 0, NONE, FORMAT}, IN(head.part), 0},
    {{"id", 1, UINT64_MAX, FORMAT, NONE}, IN(head.id), 0},
    {{"bytes behind the runs", 0, 0, NONE, FORMAT}, IN(more_bytes), 0},
    {{"begin", 0, TOKENS - 1, NONE, FORMAT}, IN(shape.begin), 0},
    {{"end", 1, INT32_MAX, FORMAT, FORMAT}, IN(shape.end), 0},
    {{"block_tokens", 1, KVP_BLOCK_TOKENS_MAX, FORMAT, FORMAT}, GROUP(block_tokens), 0},
    {{"block_tokens of the first", 1, KVP_BLOCK_TOKENS_MAX, FORMAT, FORMAT},
     GROUP(block_tokens),
     SIZED},
    {{"block_tokens of the second", 1, KVP_BLOCK_TOKENS_MAX, FORMAT, FORMAT},
     SECOND(block_tokens),
     SIZED},
    {{"slots of one token", 2, (INT64_C(1) << 47) - TOKENS, FORMAT, FORMAT},
     IN(second_slot),
     SIZED},
    {{"block_tokens of a state", 1, 1, FORMAT, FORMAT},
     IN(shape.groups[2].block_tokens),
     STATED | SIZED},
    {{"n_groups", 1, KVP_GROUPS_MAX, FORMAT, FORMAT}, IN(shape.n_groups), 0},
    {{"n_checked", 0, TOKENS, NONE, FORMAT}, IN(n_checked), 0},
    {{"reserved", 0, 0, NONE, FORMAT}, IN(reserved), 0},
    {{"first_layer", 0, UINT32_MAX - 2, NONE, FORMAT}, GROUP(slice.first_layer), 0},
    {{"n_layers", 1, KVP_LAYERS_MAX, FORMAT, FORMAT}, GROUP(slice.n_layers), 0},
    {{"first_head", 0, UINT32_MAX - 2, NONE, FORMAT}, GROUP(slice.first_head), 0},
    {{"n_heads", 1, KVP_HEADS_MAX, FORMAT, FORMAT}, GROUP(slice.n_heads), 0},
    {{"n_runs", 0, 0, NONE, FORMAT}, IN(more_runs), 0},
    {{"tokens of the runs", 0, 0, FORMAT, FORMAT}, IN(more_tokens), 0},
    {{"slot, behind the null block", 4, (INT64_C(1) << 47) - TOKENS, FORMAT, FORMAT}, IN(slot), 0},
    {{"type of a state", KVP_BYTES, KVP_BYTES, FORMAT, FORMAT}, STATE(type), STATED},
    {{"flags", 0, 7, NONE, FORMAT}, GROUP(flags), 0},
    {{"flags of the last group", 0, KVPI_SHAPE_STATE, NONE, FORMAT}, STATE(flags), STATED},
    {{"k_size of a state", 1, KVP_STATE_BYTES_MAX, FORMAT, FORMAT}, STATE(k_size), STATED},
    {{"v_size of a state", 0, KVP_STATE_BYTES_MAX, NONE, FORMAT}, STATE(v_size), STATED},
    {{"sinks of a state", 0, 0, NONE, FORMAT}, STATE(window.sink_tokens), STATED},
    {{"window of a state", 0, 0, NONE, FORMAT}, STATE(window.recent_tokens), STATED},
    {{"slot of a state", 1, (INT64_C(1) << 47) - 1, FORMAT, FORMAT}, IN(state_slot), STATED},
    {{"slots of a state", 1, 1, FORMAT, FORMAT}, IN(state_slots), STATED},
};

static struct parts right_parts(uint32_t flags)
{
    const struct kvpi_shape_group kv = {
        .type = KVP_F32, .k_size = 4, .v_size = 4, .block_tokens = 4, .slice = {0, 2, 0, 2}};
    struct kvpi_shape_group state = kv;
    state.type = KVP_BYTES;
    state.flags = KVPI_SHAPE_STATE;
    state.block_tokens = 1;
    const uint32_t n_groups = 1 + (flags & STATED) + flags / SIZED;
    struct parts p = {
        .head = {.version = KVPI_TRANSFER_VERSION, .kind = KVPI_TRANSFER_TICKET, .id = 1},
        .shape = {.end = TOKENS, .n_groups = n_groups},
        .slot = KVP_BLOCK_TOKENS_MAX,
        .second_slot = KVP_BLOCK_TOKENS_MAX,
        .state_slot = 1,
        .state_slots = 1};
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++)
        p.shape.groups[g] = kv;
    if (flags & SIZED)
        p.shape.groups[1].block_tokens = 2;
    if (flags & STATED)
        p.shape.groups[n_groups - 1] = state;
    return p;
}

/* As many tokens as a group has, in one run or in two that do not touch. */
static uint32_t put_tokens(struct kvpi_run_writer *out, uint64_t slot, uint64_t n)
{
    uint32_t n_runs = 0;
    for (uint64_t part; n > 0; n -= part, slot += part + 1, n_runs++) {
        part = n < INT32_MAX ? n : INT32_MAX;
        kvpi_run_put(out, &(kvp_slot_run){(int64_t)slot, (uint32_t)part});
    }
    return n_runs;
}

static size_t ticket_of(const struct parts *p, uint8_t *out)
{
    const uint32_t said = p->shape.n_groups; /* more than there can be, or none */
    const uint32_t n_groups = said == 0 || said > KVP_GROUPS_MAX ? 1 : said;
    const size_t fixed = HEAD + KVPI_TRANSFER_TICKET_BYTES(n_groups);
    uint8_t *rest = out + HEAD + KVPI_TRANSFER_SHAPE_BYTES(n_groups);
    struct kvpi_run_writer runs = {out + fixed, MOST_BYTES - fixed, 0, 0};
    struct kvpi_shape shape = p->shape;
    memset(out, 0, MOST_BYTES);
    shape.n_groups = n_groups;
    kvpi_shape_put(&shape, out + HEAD);
    kvpi_bytes_store(out + HEAD + 12, said, 4);
    kvpi_bytes_store(rest, p->n_checked, 4);
    kvpi_bytes_store(rest + 4, p->reserved, 4);
    for (uint32_t g = 0; g < n_groups; g++) {
        const kvp_range gap = shape.groups[g].gap;
        const uint64_t n = shape.end - shape.begin - (gap.end - gap.begin) + p->more_tokens;
        const int is_state = (shape.groups[g].flags & KVPI_SHAPE_STATE) != 0;
        runs.at = 0;
        uint32_t n_runs = is_state ? put_tokens(&runs, p->state_slot, p->state_slots)
                                   : put_tokens(&runs, g == 0 ? p->slot : p->second_slot, n);
        n_runs += g == 0 ? p->more_runs : 0;
        kvpi_bytes_store(rest + 24 + (size_t)4 * g, n_runs, 4);
    }
    const size_t n = said == n_groups ? fixed + runs.n + p->more_bytes : MOST_BYTES;
    kvpi_transfer_seal(out, n, &p->head);
    out[KVPI_TRANSFER_AT_VERSION] = (uint8_t)p->head.version;
    kvpi_bytes_store(out + KVPI_TRANSFER_AT_HEAD, kvpi_checksum(out, KVPI_TRANSFER_AT_HEAD), 8);
    return n;
}

static int read_ticket(const struct parts *p)
{
    uint8_t bytes[MOST_BYTES];
    kvp_ticket ticket;
    const size_t n = ticket_of(p, bytes);
    return (int)kvp_ticket_read(bytes, n, &ticket, NULL, 0);
}

static int try_ticket(const struct bound *bound, void *context, uint64_t value)
{
    const struct ticket_row *row = context;
    struct parts p = right_parts(row->flags);
    (void)bound;
    if (row->n_bytes == 8) {
        memcpy((char *)&p + row->at, &value, 8);
    } else {
        const uint32_t number = (uint32_t)value;
        memcpy((char *)&p + row->at, &number, 4);
    }
    return read_ticket(&p);
}

TEST(test_tickets)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_tickets / sizeof *of_tickets; i++) {
        struct ticket_row row = of_tickets[i];
        n_wrong += bounds_wrong(&row.bound, try_ticket, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* What two slices have in common; nothing is said in one form. */
TEST(test_slices)
{
    static const struct {
        kvp_slice a, b, both;
    } cases[] = {
        {{2, 4, 1, 3}, {4, 4, 0, 2}, {4, 2, 1, 1}}, {{2, 4, 1, 3}, {0, 9, 0, 9}, {2, 4, 1, 3}},
        {{2, 4, 1, 3}, {5, 1, 3, 1}, {5, 1, 3, 1}}, {{2, 4, 1, 3}, {6, 1, 1, 3}, {0, 0, 0, 0}},
        {{2, 4, 1, 3}, {0, 2, 1, 3}, {0, 0, 0, 0}}, {{2, 4, 1, 3}, {2, 4, 4, 1}, {0, 0, 0, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const kvp_slice *both = &cases[i].both;
        for (int turned = 0; turned < 2; turned++) {
            kvp_slice out;
            const kvp_slice *a = turned ? &cases[i].b : &cases[i].a;
            const kvp_slice *b = turned ? &cases[i].a : &cases[i].b;
            assert_int_equal(kvpi_slice_meet(a, b, &out), both->n_layers > 0);
            assert_memory_equal(&out, both, sizeof out);
            assert_int_equal(kvpi_slice_is_empty(&out), both->n_layers == 0);
        }
    }
}

/* Tokens of [begin, end) that do not come: at least one, none before the transfer, none behind. */
TEST(test_gaps)
{
    static const struct {
        kvp_range gap;
        kvp_status status;
    } cases[] = {{{2, 3}, KVP_OK}, {{2, 2}, FORMAT}, {{1, 3}, FORMAT},
                 {{8, 9}, KVP_OK}, {{9, 9}, FORMAT}, {{8, 10}, FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts p = right_parts(0);
        p.shape.begin = 2;
        p.shape.groups[0].gap = cases[i].gap;
        assert_int_equal(read_ticket(&p), cases[i].status);
    }
    struct parts p = right_parts(STATED);
    p.shape.begin = 2;
    p.shape.groups[1].gap = (kvp_range){2, 3};
    assert_int_equal(read_ticket(&p), FORMAT);
}

/* -------------------------------------------------------------------------------- to a receiver */

struct message_row {
    struct bound bound;
    size_t at; /* in the body; or: */
    uint32_t n_bytes;
};

enum { LENGTH = 1000 }; /* the value is what the body has more than it should; + 1000 */

/* A pair of two layers from 3 and two heads from 5, with nine tokens to come. */
static pair make_waiting(void)
{
    place_shape shape = small_place();
    shape.slice = (kvp_slice){3, 2, 5, 2};
    pair p = make_pair(&shape, &shape, 8);
    open_both(&p, TOKENS, 0);
    reserve(&p);
    watch_place(&p.b);
    return p;
}

/* What was said of the message: 0, it was taken. */
static int said(const pair *p)
{
    const kvp_status status = answer(p);
    return status == KVP_E_AGAIN ? 0 : (int)status;
}

static size_t change(uint8_t *body, size_t n, const struct message_row *row, uint64_t value)
{
    if (row->at == LENGTH)
        return n + (size_t)value - LENGTH;
    kvpi_bytes_store(body + row->at, value, row->n_bytes);
    return n;
}

/* One layer and one head, of all tokens. */
static const struct message_row of_begins[] = {
    {{"begin", 0, 0, NONE, MISMATCH}, 0, 4},
    {{"end", TOKENS, TOKENS, MISMATCH, MISMATCH}, 4, 4},
    {{"word before the groups", 0, 0, NONE, FORMAT}, 8, 4},
    {{"n_groups", 1, 1, FORMAT, FORMAT}, 12, 4},
    {{"model_version", 3, 3, MISMATCH, MISMATCH}, 16, 8},
    {{"type", KVP_F32, KVP_F32, NONE, MISMATCH}, 56, 4},
    {{"flags", 0, 0, NONE, MISMATCH}, 60, 4},
    {{"the first unknown flag", 0, 0, NONE, FORMAT}, 61, 1},
    {{"k_size", 4, 4, MISMATCH, MISMATCH}, 64, 4},
    {{"v_size", 4, 4, MISMATCH, MISMATCH}, 68, 4},
    {{"first_layer", 3, 4, MISMATCH, MISMATCH}, 72, 4},
    {{"n_layers", 1, 2, MISMATCH, MISMATCH}, 76, 4},
    {{"first_head", 5, 6, MISMATCH, MISMATCH}, 80, 4},
    {{"n_heads", 1, 2, MISMATCH, MISMATCH}, 84, 4},
    {{"sink_tokens", 0, 0, NONE, MISMATCH}, 88, 4},
    {{"recent_tokens", 0, 0, NONE, MISMATCH}, 92, 4},
    {{"gap's begin", 0, 0, NONE, MISMATCH}, 96, 4},
    {{"gap's end", 0, 0, NONE, MISMATCH}, 100, 4},
    {{"word behind the blocks' size", 0, 0, NONE, FORMAT}, 108, 4},
    {{"length", LENGTH, LENGTH, FORMAT, FORMAT}, LENGTH, 0},
};

static int try_begin(const struct bound *bound, void *context, uint64_t value)
{
    pair p = make_waiting();
    uint8_t body[KVPI_TRANSFER_BEGIN_BYTES(1) + 1] = {0};
    struct kvpi_shape shape = right_shape(&p);
    (void)bound;
    shape.groups[0].slice = (kvp_slice){3, 1, 5, 1};
    kvpi_shape_put(&shape, body);
    memcpy(body + KVPI_TRANSFER_SHAPE_BYTES(1), p.ticket + KVPI_TRANSFER_AT_BODY, 8);
    const size_t n = change(body, KVPI_TRANSFER_BEGIN_BYTES(1), context, value);
    send_body(&p, KVPI_TRANSFER_BEGIN, body, n);
    const int refusal = said(&p);
    const uint32_t state = info_b(&p).state;
    assert_int_equal(state, refusal == 0 ? KVP_TRANSFER_MOVING : KVP_TRANSFER_WAITING);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
    end_pair(&p);
    return refusal;
}

/* One layer's first token of one head. */
static const struct message_row of_chunks[] = {
    {{"layer", 3, 4, FORMAT, FORMAT}, 0, 4},
    {{"first_head", 5, 6, FORMAT, FORMAT}, 4, 4},
    {{"n_heads", 1, 2, FORMAT, FORMAT}, 8, 4},
    {{"position", 0, 0, FORMAT, FORMAT}, 12, 4},
    {{"n_tokens", 1, TOKENS, FORMAT, FORMAT}, 16, 4},
    {{"group", 0, 0, FORMAT, FORMAT}, 20, 4},
    {{"reserved", 0, 0, NONE, FORMAT}, 24, 4},
    {{"reserved, too", 0, 0, NONE, FORMAT}, 28, 4},
    {{"length", LENGTH, LENGTH, FORMAT, FORMAT}, LENGTH, 0},
};

static int try_chunk(const struct bound *bound, void *context, uint64_t value)
{
    pair p = make_waiting();
    const struct kvpi_shape shape = right_shape(&p);
    const struct kvpi_chunk chunk = {3, 5, 1, 0, 1, 0};
    uint8_t body[MOST_BYTES - HEAD];
    (void)bound;
    memset(body, 0x5A, sizeof body);
    kvpi_chunk_put(&chunk, body);
    size_t n = change(body, KVPI_TRANSFER_CHUNK_BYTES, context, value);
    n += (size_t)8 * 4 * kvpi_bytes_load32(body + 8) * kvpi_bytes_load32(body + 16);
    send_begin(&p, &shape);
    send_body(&p, KVPI_TRANSFER_CHUNK, body, n);
    const int refusal = said(&p);
    assert_int_equal(info_b(&p).chunks, refusal == 0);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, refusal == 0 ? TOKENS : 0});
    end_pair(&p);
    return refusal;
}

/* Of one layer and one head, when all is there. */
static const struct message_row of_dones[] = {
    {{"first_layer", 3, 4, FORMAT, FORMAT}, 0, 4},
    {{"n_layers", 1, 2, FORMAT, FORMAT}, 4, 4},
    {{"first_head", 5, 6, FORMAT, FORMAT}, 8, 4},
    {{"n_heads", 1, 2, FORMAT, FORMAT}, 12, 4},
    {{"length", LENGTH, LENGTH, FORMAT, FORMAT}, LENGTH, 0},
};

static void send_tokens(pair *p, uint32_t n_tokens)
{
    uint8_t body[MOST_BYTES - HEAD];
    memset(body, 0x5A, sizeof body);
    for (uint32_t layer = 3; layer < 5; layer++) {
        const struct kvpi_chunk chunk = {layer, 5, 2, 0, n_tokens, 0};
        kvpi_chunk_put(&chunk, body);
        send_body(p, KVPI_TRANSFER_CHUNK, body,
                  KVPI_TRANSFER_CHUNK_BYTES + (size_t)8 * 4 * 2 * n_tokens);
    }
}

static int try_done_of(const struct message_row *row, uint64_t value, uint32_t n_tokens)
{
    pair p = make_waiting();
    const struct kvpi_shape shape = right_shape(&p);
    struct kvpi_ticket ticket;
    uint8_t body[KVPI_TRANSFER_DONE_BYTES(1) + 1] = {0};
    const kvp_slice slice = {3, 1, 5, 1};
    assert_ok(kvpi_ticket_get(p.ticket, p.n_ticket, &ticket));
    kvpi_slice_put(&slice, body);
    memcpy(body + 16, ticket.tokens.bytes, 16);
    const size_t n =
        row == NULL ? KVPI_TRANSFER_DONE_BYTES(1) : change(body, sizeof body - 1, row, value);
    send_begin(&p, &shape);
    send_tokens(&p, n_tokens);
    send_body(&p, KVPI_TRANSFER_DONE, body, n);
    const int refusal = said(&p);
    end_pair(&p);
    return refusal;
}

static int try_done(const struct bound *bound, void *context, uint64_t value)
{
    (void)bound;
    return try_done_of(context, value, TOKENS);
}

static int try_tokens(const struct bound *bound, void *context, uint64_t value)
{
    (void)bound;
    (void)context;
    return try_done_of(NULL, 0, (uint32_t)value);
}

static void check_all(const struct message_row *rows, size_t n, bounds_try *decode)
{
    int n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct message_row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, decode, &row);
    }
    assert_int_equal(n_wrong, 0);
}

TEST(test_begins)
{
    check_all(of_begins, sizeof of_begins / sizeof *of_begins, try_begin);
}

TEST(test_chunks)
{
    check_all(of_chunks, sizeof of_chunks / sizeof *of_chunks, try_chunk);
}

TEST(test_dones)
{
    const struct bound tokens = {"tokens that have come", TOKENS, TOKENS, FORMAT, FORMAT};
    check_all(of_dones, sizeof of_dones / sizeof *of_dones, try_done);
    assert_int_equal(bounds_wrong(&tokens, try_tokens, NULL), 0);
}

TEST_MAIN(NULL, NULL)

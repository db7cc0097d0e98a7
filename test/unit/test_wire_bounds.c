/* Worker messages, each right but for one field: at its bound a mirror takes them, one below or
 * above it refuses them, and has what it had. */
#include <limits.h>
#include <string.h>

#include "bounds.h"
#include "wire/wire_bytes.h"
#include "world.h"

enum { STEP = KVPI_WIRE_STEP, FULL = KVPI_WIRE_FULL_STATE, MOST_NUMBERS = 64 };

enum {
    BLOCKS = 10,
    HOST_BLOCKS = 6,
    SEQS = 4,
    ROW = 6,
    VALUES = 18,
    COPIES = 2,
    GROUPS = 2,
    NODES = 3,
    MOVES = 2,
    SLOTS = 20,
    HOST_SLOTS = 3
};

/* Numbers of a body. Those that are not themselves: */
#define END       INT64_MAX
#define X         (INT64_MAX - 1) /* the value that is tried */
#define TIMES     (INT64_MAX - 2) /* a number n follows, and n numbers: they are there X times */
#define ROW_BITS  (INT64_MAX - 3) /* the byte KVPI_WIRE_ROW: a number of that value has two */
#define ID(kind)  (INT64_MIN + (kind))     /* the head of a run, X ids further */
#define FROM(old) (INT64_MIN + 16 + (old)) /* the way from a number to X */
#define WAY(by)   (2 * (by))

struct row {
    struct bound bound;
    uint32_t kind, parts;
    int64_t body[MOST_NUMBERS]; /* up to END */
};

/* The mirror has worker ids 2 and 3 before each row. The first has six tokens, of which two are
 * computed, one was cached, two are in this step and four have values; rows 1 2 and 3 4; it reads
 * slot 1 and writes slot 2. */
static const int64_t before[] = {
    0, 0, 2,      2 * 4 + KVPI_WIRE_NEW, 1, 6, 2, 1, 2, 0, 4, 5, 5, 5, 5, 2, 2,  2, 2, 2,
    4, 1, WAY(1), KVPI_WIRE_NEW,         1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 2, 0, END};

#define CHANGE(bits)  0, 0, 1, 2 * 4 + KVPI_WIRE_CHANGE, bits
#define MORE(bits)    CHANGE(0), bits
#define NEW           0, 0, 1, KVPI_WIRE_NEW
#define EMPTY_ROWS    0
#define ROWS_OF_TWO   2, 2, 2, 2, 2
#define ROWS_OF_SIX   6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
#define TWENTY_TOKENS NEW, 1, 20, 0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0
#define COPY          1, 0, 0, 0, WAY(1), WAY(1), 1
#define MOVE          1, 0, WAY(1), WAY(1), WAY(1), WAY(1)

#define BOUND(field, least, most, below, above)                                                    \
    {                                                                                              \
        field, least, most, below, above                                                           \
    }
#define FORMAT KVP_E_FORMAT
#define SMALL  KVP_E_TOO_SMALL
#define NONE   NO_BOUND

static const struct row rows[] = {
    /* Ids that end. */
    {BOUND("closed, of a full message", 0, 0, NONE, FORMAT), FULL, 0, {X, 0, 0, END}},
    {BOUND("second closed id", 0, 0, NONE, SMALL), STEP, 0, {2, 2, X, 0, 0, END}},
    /* Copies. */
    {BOUND("copies", 0, COPIES, NONE, SMALL), STEP, 0, {0, X, TIMES, 7, COPY, 0, END}},
    {BOUND("phases in all", 0, UINT32_MAX - 1, NONE, FORMAT),
     STEP,
     0,
     {0, 2, COPY, X, 0, 0, 0, 0, WAY(1), 1, 0, END}},
    {BOUND("group of a copy", 0, GROUPS, NONE, FORMAT),
     STEP,
     0,
     {0, 1, 0, X, 0, 0, WAY(1), WAY(1), 1, 0, END}},
    {BOUND("tier of a source", 0, 1, NONE, FORMAT),
     STEP,
     0,
     {0, 1, 0, 0, X, 0, WAY(1), WAY(1), 1, 0, END}},
    {BOUND("tier of a destination", 0, 1, NONE, FORMAT),
     STEP,
     0,
     {0, 1, 0, 0, 0, X, WAY(1), WAY(1), 1, 0, END}},
    {BOUND("source", 1, BLOCKS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 0, 0, 0, FROM(0), 0, 1, 0, END}},
    {BOUND("source on the host", 1, HOST_BLOCKS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 0, 1, 0, FROM(0), 0, 1, 0, END}},
    {BOUND("source, a slot", 1, HOST_SLOTS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 2, 1, 0, FROM(0), 0, 1, 0, END}},
    {BOUND("destination", 1, BLOCKS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 0, 0, 0, WAY(3), FROM(3), 1, 0, END}},
    {BOUND("destination on the host", 1, HOST_BLOCKS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 1, 0, 1, WAY(3), FROM(3), 1, 0, END}},
    {BOUND("destination, a slot", 1, SLOTS - 1, FORMAT, SMALL),
     STEP,
     0,
     {0, 1, 0, 2, 0, 0, WAY(3), FROM(3), 1, 0, END}},
    {BOUND("tokens of a copy", 1, 4, FORMAT, FORMAT),
     STEP,
     0,
     {0, 1, 0, 1, 0, 0, WAY(1), WAY(1), X, 0, END}},
    {BOUND("states of a copy", 1, 1, FORMAT, FORMAT),
     STEP,
     0,
     {0, 1, 0, 2, 0, 0, WAY(1), WAY(1), X, 0, END}},
    /* Moves. */
    {BOUND("moves", 1, MOVES, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MOVES,
     {0, 0, X, TIMES, 6, 0, 1, WAY(1), 0, 0, 0, 0, END}},
    {BOUND("place of a source", 0, 3, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MOVES,
     {0, 0, 1, X, 0, WAY(1), 0, 0, 0, 0, END}},
    {BOUND("place of a destination", 0, 3, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MOVES,
     {0, 0, 1, 0, X, WAY(1), 0, 0, 0, 0, END}},
    {BOUND("source of a move", 1, BLOCKS - 1, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MOVES,
     {0, 0, 1, 0, 1, FROM(0), 0, 0, 0, 0, END}},
    {BOUND("destination of a move", 1, BLOCKS - 1, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MOVES,
     {0, 0, 1, 0, 1, WAY(3), 0, 0, FROM(3), 0, END}},
    /* Runs. */
    {BOUND("sequences, and a run of two", 2, 2, FORMAT, FORMAT),
     STEP,
     0,
     {0, 0, X, 2 * 4 + KVPI_WIRE_DECODE, 1, 7, 7, END}},
    {BOUND("length of a run", 1, 1, NONE, FORMAT),
     STEP,
     0,
     {0, 0, 2, 2 * 4 + KVPI_WIRE_DECODE, X, 7, 7, END}},
    {BOUND("id that decodes", 2, 3, FORMAT, SMALL),
     STEP,
     0,
     {0, 0, 1, ID(KVPI_WIRE_DECODE), 0, 7, END}},
    {BOUND("id that changes", 2, 3, FORMAT, SMALL),
     STEP,
     0,
     {0, 0, 1, ID(KVPI_WIRE_CHANGE), 0, END}},
    {BOUND("id that is new", 0, 1, NONE, FORMAT),
     STEP,
     0,
     {0, 0, 1, ID(KVPI_WIRE_NEW), 1, 0, 0, 0, 0, 0, 0, 0, 0, END}},
    {BOUND("id of a full message", 0, SEQS - 1, NONE, SMALL),
     FULL,
     0,
     {0, 0, 1, ID(KVPI_WIRE_NEW), 1, 0, 0, 0, 0, 0, 0, 0, 0, END}},
    {BOUND("token", 0, INT32_MAX, NONE, FORMAT),
     STEP,
     0,
     {0, 0, 1, 2 * 4 + KVPI_WIRE_DECODE, 0, X, END}},
    {BOUND("block of a decode", 1, BLOCKS - 1, NONE, SMALL),
     STEP,
     0,
     {0, 0, 1, 2 * 4 + KVPI_WIRE_DECODE_BLOCK, 0, 7, WAY(1), FROM(1), END}},
    /* New sequences. */
    {BOUND("status", 1, 127, FORMAT, NONE),
     FULL,
     0,
     {NEW, X, 0, 0, 0, 0, 0, 0, 0, EMPTY_ROWS, END}},
    {BOUND("tokens, of two blocks", 4, 8, FORMAT, FORMAT),
     FULL,
     0,
     {NEW, 1, X, 0, 0, 0, 4, 0, 9, ROWS_OF_TWO, END}},
    {BOUND("computed", 0, 6, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, X, 0, 0, 0, 0, 9, ROWS_OF_TWO, END}},
    {BOUND("cached", 0, 6, NONE, FORMAT), FULL, 0, {NEW, 1, 6, 0, X, 0, 0, 0, 9, ROWS_OF_TWO, END}},
    {BOUND("tokens in the step", 0, 6, NONE, FORMAT),
     FULL,
     KVPI_WIRE_MORE,
     {NEW, 1, 6, 0, 0, X, 0, 0, 9, ROWS_OF_TWO, KVPI_WIRE_SLOTS, 0, WAY(1), END}},
    {BOUND("tokens in the step, without a slot", 0, 0, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, X, 0, 0, 9, ROWS_OF_TWO, END}},
    {BOUND("first value", 0, 4, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, X, 2, 7, 7, ROWS_OF_TWO, END}},
    {BOUND("values of a sequence", 1, 6, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, 0, X, TIMES, 1, 7, ROWS_OF_TWO, END}},
    {BOUND("values of a message", 1, VALUES, NONE, SMALL),
     FULL,
     0,
     {NEW, 1, 20, 0, 0, 0, 0, X, TIMES, 1, 7, ROWS_OF_SIX, END}},
    {BOUND("value", 0, INT32_MAX, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, 0, 1, X, ROWS_OF_TWO, END}},
    {BOUND("last token", 0, (uint64_t)INT32_MAX + 1, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, 0, 0, X, ROWS_OF_TWO, END}},
    {BOUND("blocks of rows", 2, ROW, FORMAT, SMALL),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, 0, 0, 9, X, TIMES, 1, 2, TIMES, 1, 0, END}},
    {BOUND("entry", 1, BLOCKS - 1, NONE, SMALL),
     FULL,
     0,
     {NEW, 1, 4, 0, 0, 0, 0, 0, 9, 1, WAY(2), FROM(2), END}},
    {BOUND("entries dropped", 1, 1, NONE, FORMAT),
     FULL,
     0,
     {NEW, 1, 6, 0, 0, 0, 0, 0, 9, 2, 0, X, 2, 2, END}},
    /* Changes. */
    {BOUND("changed status", 1, 127, FORMAT, NONE), STEP, 0, {CHANGE(KVPI_WIRE_STATUS), X, END}},
    {BOUND("changed tokens", 4, 8, FORMAT, FORMAT),
     STEP,
     0,
     {CHANGE(KVPI_WIRE_TOKENS), FROM(6), END}},
    {BOUND("changed computed", 0, 6, FORMAT, FORMAT),
     STEP,
     0,
     {CHANGE(KVPI_WIRE_COMPUTED), FROM(2), END}},
    {BOUND("changed cached", 0, 6, NONE, FORMAT), STEP, 0, {CHANGE(KVPI_WIRE_CACHED), X, END}},
    {BOUND("changed step", 0, 6, NONE, FORMAT), STEP, 0, {CHANGE(KVPI_WIRE_STEP_TOKENS), X, END}},
    {BOUND("void values", 0, 4, NONE, FORMAT), STEP, 0, {CHANGE(KVPI_WIRE_VALUES), X, 0, END}},
    {BOUND("further values", 0, 2, NONE, FORMAT),
     STEP,
     0,
     {CHANGE(KVPI_WIRE_VALUES), 0, X, TIMES, 1, 7, END}},
    {BOUND("changed last token", 0, (uint64_t)INT32_MAX + 1, NONE, FORMAT),
     STEP,
     0,
     {CHANGE(KVPI_WIRE_LAST), X, END}},
    {BOUND("removed blocks", 0, 2, NONE, FORMAT),
     STEP,
     0,
     {CHANGE(ROW_BITS), X, 0, 0, 2, 2, 2, 2, 2, END}},
    {BOUND("replaced entries", 0, 2, NONE, FORMAT),
     STEP,
     0,
     {CHANGE(ROW_BITS), 0, X, TIMES, 2, 0, 2, 0, 0, END}},
    {BOUND("place of a replaced entry", 0, 1, NONE, FORMAT),
     STEP,
     0,
     {CHANGE(ROW_BITS), 0, 0, 1, X, 2, 0, END}},
    {BOUND("appended blocks", 0, ROW - 2, NONE, SMALL),
     STEP,
     0,
     {CHANGE(ROW_BITS), 0, 0, 0, X, TIMES, 1, 2, TIMES, 1, 0, END}},
    /* Windows, trees, slots of recurrent state. */
    {BOUND("second bits", 11, 11, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(X), 1, 0, 1, 5, 0, 1, 7, 0, 1, WAY(1), 1, WAY(1), END}},
    {BOUND("windows", 1, GROUPS, FORMAT, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_WINDOWS), X, TIMES, 3, 0, 1, 5, END}},
    {BOUND("group of a window", 0, GROUPS - 1, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_WINDOWS), 1, X, 1, 5, END}},
    {BOUND("group of a second window", 0, 0, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_WINDOWS), 2, 0, 1, 5, X, 1, 5, END}},
    {BOUND("sinks without recent tokens", 0, 0, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_WINDOWS), 1, 0, X, 0, END}},
    {BOUND("recent tokens beside sinks", 1, UINT32_MAX, FORMAT, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_WINDOWS), 1, 0, 1, X, END}},
    {BOUND("void nodes", 0, 0, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_TREE), X, 1, 7, 0, END}},
    {BOUND("nodes that have slots", 1, 2, FORMAT, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_TREE), 0, X, TIMES, 2, 7, 0, END}},
    {BOUND("nodes", 1, NODES, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MORE,
     {CHANGE(ROW_BITS), 0, 0, 0, 1, 2, 2, 2, 0, X, TIMES, 2, 7, 0, END}},
    {BOUND("token of a node", 0, INT32_MAX, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_TREE), 0, 1, X, 0, END}},
    {BOUND("parent of the first node", 0, 0, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_TREE), 0, 1, 7, X, END}},
    {BOUND("parent of the second node", 0, 1, NONE, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_TREE), 0, 2, 7, 0, 7, X, END}},
    {BOUND("slot that is read", 0, SLOTS - 1, NONE, SMALL),
     STEP,
     KVPI_WIRE_MORE,
     {CHANGE(KVPI_WIRE_STEP_TOKENS), 0, KVPI_WIRE_SLOTS, X, 0, END}},
    {BOUND("slot that is read, of no tokens", 0, 0, NONE, FORMAT),
     FULL,
     KVPI_WIRE_MORE,
     {NEW, 1, 0, 0, 0, 0, 0, 0, 0, EMPTY_ROWS, KVPI_WIRE_SLOTS, X, WAY(1), END}},
    {BOUND("slot that is written", 1, SLOTS - 1, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_SLOTS), 3, FROM(3), END}},
    {BOUND("slots of a ring", 1, KVP_STATE_RING_MAX - 1, FORMAT, FORMAT),
     FULL,
     KVPI_WIRE_MORE,
     {TWENTY_TOKENS, KVPI_WIRE_RING, 0, WAY(1), X, TIMES, 1, WAY(1), END}},
    {BOUND("slots of a ring of four tokens", 1, 3, FORMAT, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_RING), 0, WAY(1), X, TIMES, 1, WAY(1), END}},
    {BOUND("slot of a ring", 1, SLOTS - 2, FORMAT, FORMAT),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_RING), 0, WAY(SLOTS - 1), 1, FROM(SLOTS - 1), END}},
    {BOUND("last slot of a ring", 2, SLOTS - 1, FORMAT, SMALL),
     STEP,
     KVPI_WIRE_MORE,
     {MORE(KVPI_WIRE_RING), 0, WAY(1), 1, FROM(1), END}},
};

/* --------------------------------------------------------------------------------- the messages */

static void put_number(struct kvpi_wire_out *out, int64_t number, uint64_t x)
{
    if (number == X) {
        kvpi_wire_put(out, (uint32_t)(x & UINT32_MAX));
        if (x > UINT32_MAX) {
            /* One too many for 32 bits: 2^32. */
            static const uint8_t wide[] = {0x80, 0x80, 0x80, 0x80, 0x10};
            out->n--; /* which was put as 0 */
            for (size_t i = 0; i < sizeof wide; i++)
                kvpi_wire_put_byte(out, wide[i]);
        }
    } else if (number == ROW_BITS) {
        kvpi_wire_put_byte(out, KVPI_WIRE_ROW);
    } else if (number >= FROM(0) && number < 0) {
        kvpi_wire_put_way(out, (uint32_t)(number - FROM(0)), (uint32_t)x);
    } else if (number < 0) {
        kvpi_wire_put(out, (uint32_t)x * 4 + (uint32_t)(number - ID(0)));
    } else {
        kvpi_wire_put(out, (uint32_t)number);
    }
}

static void put_body(struct kvpi_wire_out *out, const int64_t *body, uint64_t x)
{
    for (; *body != END; body++) {
        if (*body != TIMES) {
            put_number(out, *body, x);
            continue;
        }
        const int64_t n = body[1];
        for (uint64_t i = 0; i < x && out->n < 1000; i++)
            for (int64_t k = 0; k < n; k++)
                put_number(out, body[2 + k], x);
        body += 1 + n;
    }
}

struct message {
    uint8_t bytes[2048];
    size_t n;
};

static void seal(struct message *m)
{
    kvpi_bytes_store(m->bytes + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(m->bytes, m->n), 8);
}

static struct message message_of(uint32_t kind, uint32_t parts, uint64_t number,
                                 const int64_t *body, uint64_t x)
{
    struct message m = {.bytes = {'k', 'v', 'p', 'm'}};
    struct kvpi_wire_out out = {m.bytes, sizeof m.bytes, KVP_WIRE_HEAD_BYTES};
    put_body(&out, body, x);
    m.n = out.n;
    m.bytes[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    m.bytes[KVPI_WIRE_AT_KIND] = (uint8_t)kind;
    m.bytes[KVPI_WIRE_AT_GROUPS] = GROUPS;
    m.bytes[KVPI_WIRE_AT_PARTS] = (uint8_t)parts;
    kvpi_bytes_store(m.bytes + KVPI_WIRE_AT_LENGTH, m.n, 4);
    kvpi_bytes_store(m.bytes + KVPI_WIRE_AT_BLOCK_TOKENS, 4, 4);
    kvpi_bytes_store(m.bytes + KVPI_WIRE_AT_EPOCH, 1, 8);
    kvpi_bytes_store(m.bytes + KVPI_WIRE_AT_NUMBER, number, 8);
    seal(&m);
    return m;
}

static kvp_wire_mirror *make_mirror(void)
{
    kvp_wire_config config;
    kvp_wire_mirror *mirror;
    kvp_wire_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = BLOCKS;
    config.host_blocks = HOST_BLOCKS;
    config.max_seqs = SEQS;
    config.max_row_blocks = ROW;
    config.max_step_tokens = VALUES;
    config.max_copies = COPIES;
    config.n_groups = GROUPS;
    config.max_tree_tokens = NODES;
    config.max_moves = MOVES;
    config.state_slots = SLOTS;
    config.host_state_slots = HOST_SLOTS;
    assert_ok(kvp_wire_mirror_create(&config, NULL, 0, &mirror));
    const struct message m = message_of(FULL, KVPI_WIRE_MORE, 1, before, 0);
    assert_ok(kvp_wire_mirror_apply(mirror, m.bytes, m.n, NULL));
    return mirror;
}

/* Apply a message to what there is before each row. */
static int give(const struct message *m)
{
    kvp_wire_mirror *mirror = make_mirror();
    const uint64_t digest = kvp_wire_mirror_digest(mirror);
    const kvp_status status = kvp_wire_mirror_apply(mirror, m->bytes, m->n, NULL);
    if (status != KVP_OK)
        assert_true(kvp_wire_mirror_digest(mirror) == digest);
    kvp_wire_mirror_destroy(mirror);
    return (int)status;
}

static int give_row(const struct bound *bound, void *context, uint64_t value)
{
    const struct row *row = context;
    (void)bound;
    const struct message m = message_of(row->kind, row->parts, 2, row->body, value);
    return give(&m);
}

TEST(test_bodies)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, give_row, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* ------------------------------------------------------------------------------------- the head */

struct head_row {
    struct bound bound;
    uint32_t at, n_bytes, kind;
};

static const struct head_row of_heads[] = {
    {BOUND("version", 1, 1, KVP_E_VERSION, KVP_E_VERSION), KVPI_WIRE_AT_VERSION, 1, STEP},
    {BOUND("kind", STEP, FULL, FORMAT, FORMAT), KVPI_WIRE_AT_KIND, 1, STEP},
    {BOUND("groups", GROUPS, GROUPS, KVP_E_MISMATCH, KVP_E_MISMATCH), KVPI_WIRE_AT_GROUPS, 1, STEP},
    {BOUND("length", 43, 43, FORMAT, FORMAT), KVPI_WIRE_AT_LENGTH, 4, STEP},
    {BOUND("block_tokens", 4, 4, KVP_E_MISMATCH, KVP_E_MISMATCH), KVPI_WIRE_AT_BLOCK_TOKENS, 4,
     STEP},
    {BOUND("epoch", 1, 1, FORMAT, KVP_E_STATE), KVPI_WIRE_AT_EPOCH, 8, STEP},
    {BOUND("number", 2, 2, KVP_E_STATE, KVP_E_STATE), KVPI_WIRE_AT_NUMBER, 8, STEP},
    {BOUND("epoch of a full message", 1, UINT64_MAX, FORMAT, NONE), KVPI_WIRE_AT_EPOCH, 8, FULL},
    {BOUND("number of a full message", 2, UINT64_MAX, KVP_E_STATE, NONE), KVPI_WIRE_AT_NUMBER, 8,
     FULL},
};

static int give_head(const struct bound *bound, void *context, uint64_t value)
{
    static const int64_t nothing[] = {0, 0, 0, END};
    const struct head_row *row = context;
    (void)bound;
    struct message m = message_of(row->kind, 0, 2, nothing, 0);
    kvpi_bytes_store(m.bytes + row->at, value, row->n_bytes);
    seal(&m);
    return give(&m);
}

TEST(test_heads)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_heads / sizeof *of_heads; i++) {
        struct head_row row = of_heads[i];
        n_wrong += bounds_wrong(&row.bound, give_head, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* Alone a head is looked at without a mirror. */
static const struct head_row of_peeks[] = {
    {BOUND("version", 1, 1, KVP_E_VERSION, KVP_E_VERSION), KVPI_WIRE_AT_VERSION, 1, STEP},
    {BOUND("groups", 1, KVP_GROUPS_MAX, FORMAT, FORMAT), KVPI_WIRE_AT_GROUPS, 1, STEP},
    {BOUND("parts", 0, 7, NONE, FORMAT), KVPI_WIRE_AT_PARTS, 1, STEP},
    {BOUND("length", KVP_WIRE_HEAD_BYTES, UINT32_MAX, FORMAT, NONE), KVPI_WIRE_AT_LENGTH, 4, STEP},
    {BOUND("epoch", 1, UINT64_MAX, FORMAT, NONE), KVPI_WIRE_AT_EPOCH, 8, STEP},
    {BOUND("number", 1, UINT64_MAX, FORMAT, NONE), KVPI_WIRE_AT_NUMBER, 8, STEP},
};

static int peek_head(const struct bound *bound, void *context, uint64_t value)
{
    static const int64_t nothing[] = {0, 0, 0, END};
    const struct head_row *row = context;
    kvp_wire_head head;
    (void)bound;
    struct message m = message_of(row->kind, 0, 2, nothing, 0);
    kvpi_bytes_store(m.bytes + row->at, value, row->n_bytes);
    return (int)kvp_wire_peek(m.bytes, KVP_WIRE_HEAD_BYTES, &head);
}

TEST(test_heads_alone)
{
    static const int64_t nothing[] = {0, 0, 0, END};
    const struct message m = message_of(STEP, 0, 2, nothing, 0);
    kvp_wire_head head;
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_peeks / sizeof *of_peeks; i++) {
        struct head_row row = of_peeks[i];
        n_wrong += bounds_wrong(&row.bound, peek_head, &row);
    }
    assert_int_equal(n_wrong, 0);
    assert_status(KVP_OK, kvp_wire_peek(m.bytes, KVP_WIRE_HEAD_BYTES, &head));
    assert_status(FORMAT, kvp_wire_peek(m.bytes, KVP_WIRE_HEAD_BYTES - 1, &head));
}

TEST_MAIN(NULL, NULL)

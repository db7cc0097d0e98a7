/* Operation logs, each right but for one field: at its bound the record is read, and one below or
 * above it the log ends: at that field, or where it is cut because of a count. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bounds.h"
#include "core/record/record.h"
#include "oplog_sample.h"

enum { MOST_NUMBERS = 32, FORMAT = KVP_E_FORMAT, ELSEWHERE = 1 };

#define NONE NO_BOUND

/* Numbers of a record. Those that are not themselves: */
#define END   UINT64_MAX
#define X     (UINT64_MAX - 1)       /* the value that is tried */
#define TIMES (UINT64_MAX - 2)       /* a number n follows, and n numbers: they are there X times */
#define BYTE  (UINT64_MAX - 3)       /* the value as one byte */
#define EIGHT 0, 0, 0, 0, 0, 0, 0, 0 /* a digest */

struct row {
    struct bound bound;
    uint64_t record[MOST_NUMBERS];
};

#define PROMPT(given, n) KVP_CALL_MATCH, 1, given, 0, 0, 0, 0, n

static const struct row rows[] = {
    {{"op", KVP_CALL_NS_CLOSE, KVP_CALL_NS_FLUSH, NONE, NONE}, {BYTE, 1, 0, END}},
    {{"op, the first", 1, 1, FORMAT, NONE}, {BYTE, 0, 0, 1, END}},
    {{"handle", 0, UINT64_MAX - 100, NONE, NONE}, {KVP_CALL_NS_CLOSE, X, 0, END}},
    {{"status", 0, 22, NONE, FORMAT}, {KVP_CALL_NS_CLOSE, 1, BYTE, END}},
    {{"further status", 30, 31, FORMAT, FORMAT}, {KVP_CALL_NS_CLOSE, 1, BYTE, END}},
    {{"bytes of a name", 0, 2, NONE, FORMAT}, {KVP_CALL_NS_OPEN, X, 1, 1, 1, END}},
    {{"a number of 32 bits", 0, UINT32_MAX, NONE, FORMAT}, {KVP_CALL_COMMIT, 1, X, 0, END}},
    {{"reserve_tokens", 0, UINT32_MAX, NONE, FORMAT}, {KVP_CALL_EXTEND, 1, X, 0, 0, 0, END}},
    {{"what is given of values", 0, 1, NONE, FORMAT}, {KVP_CALL_EXTEND, 1, 0, BYTE, 0, 0, END}},
    {{"values", 0, 2, NONE, FORMAT}, {KVP_CALL_EXTEND, 1, 0, 1, X, 0, 0, 0, 0, 0, 0, 0, 0, 0, END}},
    {{"what is given of a prompt", 15, 15, NONE, FORMAT},
     {KVP_CALL_MATCH, 1, BYTE, 0, 0, 0, 0, 0, 0, 0, 1, END}},
    {{"tokens of a prompt", 0, UINT32_MAX, NONE, FORMAT}, {PROMPT(0, X), 1, END}},
    {{"tokens of a prompt that are given", 1, 1, NONE, FORMAT}, {PROMPT(1, X), 0, 0, 0, 0, 1, END}},
    {{"keys", 1, 1, NONE, FORMAT}, {PROMPT(2, 0), X, 1, 0, 1, 0, 1, END}},
    {{"begin of a key", 0, UINT32_MAX, NONE, FORMAT}, {PROMPT(2, 0), 1, 1, X, 1, 0, 1, END}},
    {{"bytes of a key", 0, 2, NONE, FORMAT}, {PROMPT(2, 0), 1, 1, 0, 1, X, 1, 1, 1, END}},
    {{"ranges", 0, 2, NONE, FORMAT}, {PROMPT(8, 0), X, 1, 1, 1, 1, 1, END}},
    {{"what is given of a batch", 0, 0, NONE, NONE}, {KVP_CALL_EXTEND_MANY, BYTE, 0, 0, 0, 0, END}},
    {{"what is given of a batch, all", 19, 19, NONE, NONE},
     {KVP_CALL_EXTEND_MANY, BYTE, 0, 0, 0, 0, 0, END}},
    {{"what is given of a tree", 51, 51, NONE, NONE},
     {KVP_CALL_EXTEND_TREE, BYTE, 0, 0, 0, 0, 0, END}},
    {{"a batch has no parents", 0, 3, NONE, NONE},
     {KVP_CALL_EXTEND_MANY, BYTE, 0, 0, 0, 0, 0, END}},
    {{"a tree of hashes", 3, 3, NONE, FORMAT}, {KVP_CALL_EXTEND_TREE, BYTE, 0, 0, 0, 0, 0, END}},
    {{"sequences of a batch", 0, 2, NONE, FORMAT},
     {KVP_CALL_EXTEND_MANY, 0, 0, 0, X, 1, 1, 1, END}},
    {{"counts of a batch", 1, 2, NONE, FORMAT},
     {KVP_CALL_EXTEND_MANY, 17, 0, 0, 1, 1, X, 0, 0, 0, 0, 0, 0, 0, 0, 0, END}},
    {{"sequences to commit", 0, 2, NONE, FORMAT}, {KVP_CALL_COMMIT_MANY, X, 1, 1, 1, 1, 0, END}},
    {{"a status of each", 0, 22, NONE, FORMAT},
     {KVP_CALL_EXTEND_MANY, 0, 0, KVP_BATCH_EACH, 1, 1, 0, BYTE, END}},
    {{"no report", 0, 1, NONE, FORMAT}, {KVP_CALL_INVALIDATE, 1, 0, 0, X, 0, 0, END}},
    {{"sequences of a report", 0, 2, NONE, FORMAT},
     {KVP_CALL_INVALIDATE, 1, 0, 9, 0, 0, X, 1, 1, END}},
    {{"a signed number", 0, UINT32_MAX, NONE, FORMAT}, {KVP_CALL_BLOCK_TOKENS, 0, 0, X, 1, END}},
    {{"a digest of nothing", 0, 0, NONE, FORMAT}, {KVP_CALL_EVICTED, 0, X, 0, 0, 0, END}},
    {{"a digest", 1, UINT32_MAX, NONE, FORMAT}, {KVP_CALL_EVICTED, 0, X, EIGHT, END}},
    {{"with tokens", 0, 1, NONE, FORMAT}, {KVP_CALL_EVENTS_SNAPSHOT, 0, X, 0, 1, 0, END}},
    {{"leaves", 0, 2, NONE, FORMAT}, {KVP_CALL_ACCEPT, X, 1, 1, 1, 1, 1, 1, END}},
    {{"what is wanted of a tree", 0, 1, NONE, FORMAT}, {KVP_CALL_TREE, 1, 0, BYTE, 0, 0, END}},
    {{"parents are wanted of a tree", 32, 33, FORMAT, FORMAT},
     {KVP_CALL_TREE, 1, 0, BYTE, 0, 0, END}},
    {{"blocks", 0, 1, NONE, FORMAT}, {KVP_CALL_BLOCKS_LEND, X, 0, 0, 0, 0, 0, END}},
};

struct bytes {
    uint8_t at[512];
    size_t n, x, behind_x; /* where X begins and ends */
};

static void put(struct bytes *out, uint64_t number)
{
    out->n += kvpi_varint_store(out->at + out->n, number);
}

static void put_record(struct bytes *out, const uint64_t *number, uint64_t x)
{
    for (; *number != END; number++) {
        if (*number == X || *number == BYTE) {
            out->x = out->n;
            if (*number == X)
                put(out, x);
            else
                out->at[out->n++] = (uint8_t)x;
            out->behind_x = out->n;
        } else {
            put(out, *number);
        }
    }
}

static int read_record(const struct bound *bound, void *context, uint64_t value)
{
    const struct row *row = context;
    struct sample_log made;
    struct bytes bytes = {.n = 0};
    kvp_record record;
    int at_end;
    (void)bound;
    sample_begin(&made);
    sample_end(&made);
    const size_t header = made.memory.n_bytes;
    put_record(&bytes, row->record, value);
    kvpi_oplog_memory_write(&made.memory, bytes.at, bytes.n);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    const kvp_status status = kvp_oplog_next(log, &record, &at_end);
    const uint64_t at = kvp_oplog_offset(log) - header;
    kvp_oplog_close(log);
    free(made.memory.bytes);
    if (status != KVP_OK && at != bytes.x && at != bytes.behind_x && at != bytes.n) {
        print_error("refused at byte %d\n", (int)at);
        return ELSEWHERE;
    }
    return (int)status;
}

TEST(test_records)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, read_record, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* ---------------------------------------------------------------------------------- the header */

struct header_row {
    struct bound bound;
    size_t at; /* 4 bytes of the configuration */
    uint32_t state_slots;
};

#define FIELD(name) offsetof(kvp_config, name)

/* The rest is for kvp_cache_create to judge. */
static const struct header_row of_headers[] = {
    {{"unit_tokens", 1, KVP_BLOCK_TOKENS_MAX, FORMAT, FORMAT}, FIELD(unit_tokens), 0},
    {{"n_groups", 1, KVP_GROUPS_MAX, FORMAT, NONE}, FIELD(n_groups), 0},
    {{"block_tokens", 0, UINT32_MAX, NONE, NONE}, FIELD(block_tokens), 0},
    {{"state_slots", 1, UINT32_MAX, NONE, NONE}, FIELD(state_slots), 0},
};

static int open_header(const struct bound *bound, void *context, uint64_t value)
{
    const struct header_row *row = context;
    struct kvpi_recorder recorder = {0};
    struct kvpi_oplog_memory memory = {0};
    const kvp_sink sink = {&memory, kvpi_oplog_memory_write};
    kvp_config config = sample_config();
    kvp_oplog *log = NULL;
    const uint32_t number = (uint32_t)value;
    (void)bound;
    memcpy((char *)&config + row->at, &number, sizeof number);
    assert_int_equal(kvpi_record_begin(&recorder, &sink, &config), KVP_OK);
    const kvp_status status = kvp_oplog_open(memory.bytes, memory.n_bytes, &log);
    kvp_oplog_close(log);
    free(memory.bytes);
    return (int)status;
}

TEST(test_headers)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_headers / sizeof *of_headers; i++) {
        struct header_row row = of_headers[i];
        n_wrong += bounds_wrong(&row.bound, open_header, &row);
    }
    assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL)

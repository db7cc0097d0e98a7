/* Operation logs that are not whole: any damage is found or harmless; a sink that refuses leaves
 * the beginning of a log. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "oplog_calls.h"
#include "oplog_sample.h"
#include "oplog/decode.h"

#define SEQ sample_seqs[0]

/* Reads to the end or the damage. Gives the number of whole records. */
static uint64_t read_all(kvp_oplog *log, kvp_status *status)
{
    kvp_record record;
    int at_end = 0;
    uint64_t n = 0;
    while ((*status = kvp_oplog_next(log, &record, &at_end)) == KVP_OK && at_end == 0) {
        assert_int_equal(record.index, n);
        assert_true(record.n_result_bytes >= 1 && record.n_result_bytes < record.n_bytes);
        n++;
    }
    return n;
}

/* A copy of exactly n bytes, so that a read past the end is found. */
static uint8_t *copy_of(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

TEST(test_cut_at_every_byte)
{
    struct sample_log made;
    sample_begin(&made);
    size_t header_bytes = made.memory.n_bytes;
    size_t ends[2 * SAMPLE_RECORDED + 1] = {header_bytes};
    uint32_t n_ends = 0;
    for (uint32_t i = 0; i < 2 * SAMPLE_CALLS; i++) {
        if (!oplog_has_call(i % SAMPLE_CALLS + 1))
            continue;
        sample_write(&made.recorder, i % SAMPLE_CALLS + 1,
                     i < SAMPLE_CALLS ? KVP_OK : KVP_E_CORRUPT);
        ends[++n_ends] = made.memory.n_bytes;
    }
    assert_int_equal(n_ends, 2 * SAMPLE_RECORDED);
    sample_end(&made);
    uint64_t whole = 0;
    for (size_t n = 0; n <= made.memory.n_bytes; n++) {
        uint8_t *bytes = copy_of(made.memory.bytes, n);
        kvp_oplog *log = NULL;
        kvp_status status = kvp_oplog_open(bytes, n, &log);
        assert_int_equal(status, n < header_bytes ? KVP_E_FORMAT : KVP_OK);
        if (status == KVP_OK) {
            while (whole < 2 * SAMPLE_RECORDED && ends[whole + 1] <= n)
                whole++;
            assert_int_equal(read_all(log, &status), whole);
            assert_int_equal(status, ends[whole] == n ? KVP_OK : KVP_E_FORMAT);
            if (status != KVP_OK)
                assert_in_range(kvp_oplog_offset(log), ends[whole], n);
        }
        kvp_oplog_close(log);
        free(bytes);
    }
    free(made.memory.bytes);
}

TEST(test_flipped_bytes)
{
    static const uint8_t masks[] = {0x01, 0x02, 0x10, 0x40, 0x80, 0xff};
    struct sample_log made;
    sample_write_all(&made);
    uint8_t *bytes = copy_of(made.memory.bytes, made.memory.n_bytes);
    for (size_t i = 0; i < made.memory.n_bytes; i++)
        for (size_t j = 0; j < sizeof masks; j++) {
            kvp_oplog *log = NULL;
            bytes[i] ^= masks[j];
            kvp_status status = kvp_oplog_open(bytes, made.memory.n_bytes, &log);
            assert_true(status == KVP_OK || i < 100);
            if (status == KVP_OK)
                read_all(log, &status);
            assert_true(status == KVP_OK || status == KVP_E_FORMAT || status == KVP_E_VERSION);
            kvp_oplog_close(log);
            bytes[i] ^= masks[j];
        }
    free(bytes);
    free(made.memory.bytes);
}

/* Puts bytes after a good header and expects damage at a place in them. */
static void expect_damage(const char *record, size_t n_bytes, size_t at)
{
    struct sample_log made;
    sample_begin(&made);
    sample_end(&made);
    size_t header_bytes = made.memory.n_bytes;
    kvpi_oplog_memory_write(&made.memory, record, n_bytes);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes);
    kvp_record read;
    int at_end;
    assert_int_equal(kvp_oplog_next(log, &read, &at_end), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_offset(log), header_bytes + at);
    assert_int_equal(kvp_oplog_next(log, &read, &at_end), KVP_E_FORMAT);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

#define EXPECT_DAMAGE(record, at) expect_damage(record, sizeof(record) - 1, at)

TEST(test_hostile_bytes)
{
    EXPECT_DAMAGE("\0", 0);                                               /* no call 0 */
    EXPECT_DAMAGE("\x3d", 0);                                             /* 61 is in no log */
    EXPECT_DAMAGE("\x02\x80", 1);                                         /* a varint that is cut */
    EXPECT_DAMAGE("\x02\x80\x00\x00", 1);                                 /* longer than needed */
    EXPECT_DAMAGE("\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00", 1); /* 2^64 */
    EXPECT_DAMAGE("\x0a\x01\x80\x80\x80\x80\x10\x00", 2);         /* 2^32 tokens to commit */
    EXPECT_DAMAGE("\x02\x01\x17", 2);                             /* no status -23 */
    EXPECT_DAMAGE("\x06\x01\x00\x02\x00\x00", 3);                 /* a bit without meaning */
    EXPECT_DAMAGE("\x06\x01\x00\x01\xff\xff\xff\xff\x0f\x00", 9); /* 2^32 - 1 tokens */
    EXPECT_DAMAGE("\x0b\xff\xff\xff\xff\x0f\x01\x01\x00", 1);     /* 2^32 - 1 sequences */
    EXPECT_DAMAGE("\x07\x11\x00\x00\x02\x01\x02\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f\x00", 17);
    EXPECT_DAMAGE("\x01\xff\xff\xff\xff\x0f\x61\x00", 6); /* a long name */
    EXPECT_DAMAGE("\x0c\x01\x00\x00\x02\x00", 4);         /* neither report nor not */
    EXPECT_DAMAGE("\x29\x01\x00\x02\x00", 3);             /* of a failed step, too */
    EXPECT_DAMAGE("\x22\xff\xff\xff\xff\x0f\x01\x00", 1); /* 2^32 - 1 sequences to swap */
    EXPECT_DAMAGE("\x26\x80\x80\x80\x80\x10\x00", 1);     /* room for 2^32 copies */
    EXPECT_DAMAGE("\x27\x01\x02\x01\x01\x00", 2);         /* two sequences, bytes for one */
    EXPECT_DAMAGE("\x2b\x09\x02\x00", 2);                 /* neither tokens nor not */
    EXPECT_DAMAGE("\x2b\x09\x01\x00\x01\x00\x01\x02", 7); /* half a digest of tokens */
    EXPECT_DAMAGE("\x07\x20\x00\x00\x00\x00", 1);         /* parents, but no tree */
    EXPECT_DAMAGE("\x2e\x30\x00\x00\x01\x01\xff\xff\xff\xff\x0f\x00", 11);
    EXPECT_DAMAGE("\x2f\xff\xff\xff\xff\x0f\x01\x01", 1);         /* 2^32 - 1 leaves */
    EXPECT_DAMAGE("\x2f\x02\x01\x02\x00\x80", 5);                 /* the second leaf is cut */
    EXPECT_DAMAGE("\x30\x01\x09\x02\x00", 3);                     /* an array that is none */
    EXPECT_DAMAGE("\x2c\x01\x00\x80\x80\x80\x80\x10\x01\x00", 3); /* 2^32 sinks */
    EXPECT_DAMAGE("\x10\x01\x02", 0);                             /* seq_info_get */
    EXPECT_DAMAGE("\x2a\x01\x08\x00\x00\x00", 0);                 /* events_read */
}

TEST(test_a_damaged_log_is_read_again_from_its_start)
{
    struct sample_log made;
    kvp_status status;
    sample_write_all(&made);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes - 1);
    const uint64_t n = read_all(log, &status);
    assert_true(n >= SAMPLE_RECORDED - 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(status, KVP_E_FORMAT);
        kvp_oplog_rewind(log);
        assert_int_equal(read_all(log, &status), n);
    }
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

TEST(test_header_is_looked_at)
{
    struct sample_log made;
    kvp_oplog *log = NULL;
    sample_begin(&made);
    sample_end(&made);
    /* Behind the number of groups: they, watermark and seed, the uncached tokens. */
    size_t groups_at = made.memory.n_bytes - 13 - 16 - 14 - 1;
    assert_int_equal(made.memory.bytes[groups_at], SAMPLE_GROUPS);
    for (int i = 0; i < 2; i++) {
        made.memory.bytes[groups_at] = i == 0 ? 0 : KVP_GROUPS_MAX + 1;
        assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log),
                         KVP_E_FORMAT);
    }
    uint8_t nine[512] = {0}; /* a header that is right, with six groups more */
    const size_t n_front = groups_at + 15, n_back = made.memory.n_bytes - n_front;
    assert_in_range(made.memory.n_bytes, 1, sizeof nine - 18);
    memcpy(nine, made.memory.bytes, n_front);
    memcpy(nine + n_front + 18, made.memory.bytes + n_front, n_back);
    nine[groups_at] = 9;
    assert_int_equal(kvp_oplog_open(nine, n_front + 18 + n_back, &log), KVP_E_FORMAT);
    struct kvpi_recorder recorder = {0};
    struct kvpi_oplog_memory memory = {0};
    kvp_config config = sample_config();
    kvp_sink sink = {&memory, kvpi_oplog_memory_write};
    config.n_groups = 0; /* and not a byte of a group */
    assert_int_equal(kvpi_record_begin(&recorder, &sink, &config), KVP_OK);
    assert_int_equal(kvp_oplog_open(memory.bytes, memory.n_bytes, &log), KVP_E_FORMAT);
    free(memory.bytes);
    for (uint8_t version = '0'; version <= '9'; version++) {
        made.memory.bytes[6] = version;
        if (version != '1')
            assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log),
                             KVP_E_VERSION);
    }
    made.memory.bytes[5] = 'x';
    assert_int_equal(kvp_oplog_open(made.memory.bytes, made.memory.n_bytes, &log), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_open("", 0, &log), KVP_E_FORMAT);
    assert_int_equal(kvp_oplog_open(NULL, 5, &log), KVP_E_ARG);
    assert_null(log);
    free(made.memory.bytes);
}

/* ---------------------------------------------------------------------------- sinks that refuse */

struct short_sink {
    struct kvpi_oplog_memory memory;
    size_t limit;
};

static int write_short(void *context, const void *bytes, size_t n_bytes)
{
    struct short_sink *sink = context;
    if (sink->memory.n_bytes + n_bytes > sink->limit)
        return 1;
    return kvpi_oplog_memory_write(&sink->memory, bytes, n_bytes);
}

TEST(test_a_sink_that_refuses_ends_the_recording)
{
    struct sample_log whole;
    sample_write_all(&whole);
    for (size_t limit = 0; limit < whole.memory.n_bytes; limit++) {
        struct kvpi_recorder recorder = {.cache_bits = SAMPLE_CACHE_BITS};
        struct short_sink target = {.limit = limit};
        kvp_config config = sample_config();
        kvp_sink sink = {&target, write_short};
        kvp_status status = kvpi_record_begin(&recorder, &sink, &config);
        assert_int_equal(recorder.on, status == KVP_OK);
        for (uint32_t op = 1; op <= SAMPLE_CALLS && recorder.on; op++) {
            if (!oplog_has_call(op))
                continue;
            sample_decide(&recorder, op);
            sample_write(&recorder, op, KVP_OK);
        }
        if (status == KVP_OK)
            status = recorder.failed ? KVP_E_IO : KVP_OK;
        if (recorder.on || recorder.failed)
            assert_int_equal(kvpi_record_end(&recorder), status);
        assert_int_equal(kvpi_record_end(&recorder), KVP_E_STATE);
        if (target.memory.n_bytes > 0)
            assert_memory_equal(target.memory.bytes, whole.memory.bytes, target.memory.n_bytes);
        free(target.memory.bytes);
    }
    free(whole.memory.bytes);
}

/* Refuses one piece and takes all others. */
static int refuse_one(void *context, const void *bytes, size_t n_bytes)
{
    struct short_sink *sink = context;
    return sink->limit-- == 0 ? 1 : kvpi_oplog_memory_write(&sink->memory, bytes, n_bytes);
}

TEST(test_a_record_has_no_hole)
{
    static int32_t tokens[1000];
    kvp_prompt prompt = sample_prompt();
    prompt.tokens = tokens;
    prompt.n_tokens = 1000;
    prompt.hashes = NULL;
    struct kvpi_recorder recorder = {.cache_bits = SAMPLE_CACHE_BITS};
    struct short_sink target = {.limit = 2}; /* header, start of the record; not the tokens */
    kvp_config config = sample_config();
    kvp_sink sink = {&target, refuse_one};
    assert_int_equal(kvpi_record_begin(&recorder, &sink, &config), KVP_OK);
    size_t header_bytes = target.memory.n_bytes;
    kvpi_record_seq_open(&recorder, sample_ns, &prompt, KVP_OK, &SEQ, &sample_open_info);
    /* Where their bytes have to be turned, some tokens leave with the start. */
    const int is_little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    assert_in_range(target.memory.n_bytes, header_bytes + 5,
                    header_bytes + (is_little ? 40 : 1000));
    assert_int_equal(recorder.on, 0);
    assert_int_equal(kvpi_record_end(&recorder), KVP_E_IO);
    free(target.memory.bytes);
}

/* A call whose number is behind those of calls that are in no log: whole, and cut. */
TEST(test_a_call_behind_those_that_are_in_no_log)
{
    static const uint8_t told[] = {66, 0x81, 0x80, 0x40, 5, 0};
    kvp_record record;
    kvp_status status;
    int at_end;
    struct sample_log made = {.recorder.cache_bits = SAMPLE_CACHE_BITS};
    sample_begin(&made);
    kvpi_record_seq_prompt_end(&made.recorder, SEQ, 5, KVP_OK);
    assert_memory_equal(made.memory.bytes + made.memory.n_bytes - sizeof told, told, sizeof told);
    kvp_oplog *log = sample_open(made.memory.bytes, made.memory.n_bytes - 1);
    assert_int_equal(read_all(log, &status), 0);
    assert_int_equal(status, KVP_E_FORMAT);
    kvp_oplog_close(log);
    sample_end(&made);
    log = sample_open(made.memory.bytes, made.memory.n_bytes);
    assert_int_equal(kvp_oplog_next(log, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.op, KVP_CALL_PROMPT_END);
    assert_string_equal(kvp_oplog_call_name(record.call.op), "seq_prompt_end");
    assert_int_equal(record.call.position, 5);
    assert_int_equal(record.status, KVP_OK);
    kvp_oplog_close(log);
    free(made.memory.bytes);
}

TEST_MAIN(NULL, NULL)

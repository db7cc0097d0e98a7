/* Batches of events as vLLM and SGLang send them, by bytes: what is read, and what is refused. */
#include <string.h>

#include "mocka.h"
#include "tool/record/batch.h"

/* Text of C and its length. */
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

/* [2.5, [...], 0] around one event. */
#define BATCH(event) "\x93\xcb\x40\x04\x00\x00\x00\x00\x00\x00\x91" event "\x00"
#define TYPE         "\xa4type"
#define HASHES                                                                                     \
    "\xac"                                                                                         \
    "block_hashes"
#define PARENT "\xb1parent_block_hash"
#define SIZE                                                                                       \
    "\xaa"                                                                                         \
    "block_size"
#define MEDIUM "\xa6medium"
#define STORED                                                                                     \
    "\xab"                                                                                         \
    "BlockStored"
#define REMOVED                                                                                    \
    "\xac"                                                                                         \
    "BlockRemoved"
#define CLEARED                                                                                    \
    "\xb0"                                                                                         \
    "AllBlocksCleared"

static kvpi_event read_one(kvpi_batch *batch, const uint8_t *bytes, size_t n)
{
    kvpi_event event, none;
    if (kvpi_batch_begin(batch, bytes, n) != 0 || kvpi_batch_next(batch, &event) != 1)
        fail_msg("%s", batch->error.text);
    assert_int_equal(kvpi_batch_next(batch, &none), 0);
    return event;
}

static void refuse(const uint8_t *bytes, size_t n, const char *why)
{
    kvpi_batch batch = {0};
    kvpi_event event;
    int result = kvpi_batch_begin(&batch, bytes, n);
    while (result == 0 && (result = kvpi_batch_next(&batch, &event)) == 1)
        result = 0;
    assert_int_equal(result, -1);
    assert_string_equal(batch.error.text, why);
    kvpi_batch_free(&batch);
}

TEST(test_maps)
{
    kvpi_batch batch = {0};
    kvpi_event event = read_one(
        &batch, BYTES(BATCH("\x86" SIZE "\x10" TYPE STORED HASHES
                            "\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xfe\x05" PARENT
                            "\xcd\x01\x00" MEDIUM "\xa3GPU\xa1x\x82\x01\x92\x02\xc3\xa1y\xc0")));
    assert_int_equal(event.kind, KVPI_EVENT_STORED);
    assert_true(event.has_parent && event.is_device && batch.time == 2.5);
    assert_fields(event, parent, 256, n_hashes, 2);
    assert_true(event.hashes[0] == UINT64_MAX - 1 && event.hashes[1] == 5);
    assert_int_equal(event.block_tokens, 16);
    event = read_one(&batch, BYTES(BATCH("\x82" TYPE REMOVED HASHES "\x91\x07")));
    assert_int_equal(event.kind, KVPI_EVENT_REMOVED);
    assert_true(event.is_device && event.hashes[0] == 7);
    event = read_one(&batch, BYTES(BATCH("\x81" TYPE CLEARED)));
    assert_int_equal(event.kind, KVPI_EVENT_CLEARED);
    event = read_one(&batch, BYTES(BATCH("\x81" TYPE "\xa3New")));
    assert_int_equal(event.kind, KVPI_EVENT_OTHER);
    kvpi_batch_free(&batch);
}

TEST(test_arrays)
{
    kvpi_batch batch = {0};
    kvpi_event event =
        read_one(&batch, BYTES(BATCH("\x98" STORED "\x91\x01\xc0\x92\x09\x08\x20\xc0\xa3"
                                     "CPU\xa1x")));
    assert_int_equal(event.kind, KVPI_EVENT_STORED);
    assert_false(event.has_parent || event.is_device);
    assert_int_equal(event.block_tokens, 32);
    event = read_one(&batch, BYTES(BATCH("\x93" REMOVED "\x91\x01\xa3GPU")));
    assert_true(event.kind == KVPI_EVENT_REMOVED && event.is_device);
    event = read_one(&batch, BYTES(BATCH("\x91" CLEARED)));
    assert_int_equal(event.kind, KVPI_EVENT_CLEARED);
    kvpi_batch_free(&batch);
}

TEST(test_hashes)
{
    kvpi_batch batch = {0};
#define MINUS_5 "\xd3\xff\xff\xff\xff\xff\xff\xff\xfb"
#define TEN     "\xc4\x0a\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"
    kvpi_event event = read_one(
        &batch, BYTES(BATCH("\x82" TYPE REMOVED HASHES "\x94\xff" MINUS_5 "\xd0\x80" TEN)));
    assert_int_equal(event.n_hashes, 4);
    assert_true(event.hashes[0] == UINT64_MAX && event.hashes[1] == UINT64_MAX - 4);
    assert_true(event.hashes[2] == UINT64_MAX - 127);
    assert_true(event.hashes[3] == UINT64_C(0x030405060708090a)); /* the last 8 bytes */
    event = read_one(&batch, BYTES(BATCH("\x83" TYPE REMOVED HASHES "\x91\x01\xa9group_idx\x01")));
    assert_false(event.is_device); /* of another layer group */
    kvpi_batch_free(&batch);
}

TEST(test_refused)
{
    refuse(BYTES(""), "the batch is cut off, expected an array of time, events and rank");
    refuse(BYTES("\xa1x"), "the batch is text, expected an array of time, events and rank");
    refuse(BYTES("\x91\x01"), "the batch is an array, expected an array of time, events and rank");
    refuse(BYTES("\x92\xc0\x90"), "the batch's time is nil, expected a number");
    refuse(BYTES("\x92\xcb\x7f\xf8\0\0\0\0\0\0\x90"), "the batch's time is not finite");
    refuse(BYTES("\x92\xca\x7f\x80\0\0\x90"), "the batch's time is not finite");
    refuse(BYTES("\x92\x01\x80"), "the batch's events is a map, expected an array");
    refuse(BYTES("\x92\x01\x91\x05"), "an event is an integer, expected a map, or an array");
    refuse(BYTES("\x92\x01\x91\x80"), "an event without a type");
    refuse(BYTES("\x92\x01\x91\x81" TYPE "\x01"), "type is an integer, expected text");
    refuse(BYTES("\x92\x01\x91\x81\x01\x02"), "a field's name is an integer, expected text");
    refuse(BYTES("\x92\x01\x91\x81" TYPE), "the batch is cut off, or no msgpack");
    refuse(BYTES("\x92\x01\x91\x81" TYPE STORED), "BlockStored of 0 blocks of 0 tokens");
    refuse(BYTES("\x92\x01\x91\x81" HASHES "\x91\xc4\x01x"),
           "a hash of block_hashes is bytes, expected a number, or 8 bytes or more");
    refuse(BYTES("\x92\x01\x91\x81" HASHES "\xdd\xff\xff\xff\xff\x01"),
           "block_hashes is an array, expected an array that is whole");
    refuse(BYTES("\x92\x01\x91\x81\xa1x\xdd\xff\xff\xff\xff\x01"),
           "the batch is cut off: 4294967294 values are missing");
    refuse(BYTES("\x92\x01\x91\x81\xa1x\xc1"), "the batch is cut off, or no msgpack");
    refuse(BYTES("\x92\x01\x91\x81" SIZE "\xca\x3f\x80\x00\x00"),
           "block_size is a number, expected an integer");
    refuse(BYTES("\x92\x01\x91\x81" MEDIUM "\x90"), "medium is an array, expected text");
}

/* Blocks, each of whose hashes is 0; tokens of a block. */
TEST(test_an_event_at_its_bounds)
{
    static uint8_t bytes[200 + (1 << 20)];
    static const char blocks[] =
        "\x92\x01\x91\x83" SIZE "\x10" TYPE STORED HASHES "\xdd\x00\x10\x00";
    kvpi_batch batch = {0};
    memcpy(bytes, blocks, sizeof blocks - 1);
    kvpi_event event = read_one(&batch, bytes, sizeof blocks + (1 << 20));
    assert_int_equal(event.n_hashes, 1 << 20);
    bytes[sizeof blocks - 1] = 1;
    refuse(bytes, sizeof blocks + (1 << 20) + 1,
           "BlockStored of 1048577 blocks, expected 1048576 at most");
#define OF_SIZE(size) BATCH("\x83" SIZE size TYPE STORED HASHES "\x91\x07")
    event = read_one(&batch, BYTES(OF_SIZE("\x01")));
    assert_int_equal(event.block_tokens, 1);
    event = read_one(&batch, BYTES(OF_SIZE("\xce\x7f\xff\xff\xff")));
    assert_int_equal(event.block_tokens, INT32_MAX);
    refuse(BYTES(OF_SIZE("\x00")), "BlockStored of 1 blocks of 0 tokens");
    refuse(BYTES(OF_SIZE("\xce\x80\x00\x00\x00")), "BlockStored of 1 blocks of 2147483648 tokens");
    kvpi_batch_free(&batch);
}

TEST_MAIN(NULL, NULL)

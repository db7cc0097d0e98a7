/* The writer's way for machines of another byte order, taken on this one: each element has the
 * bytes that docs/FORMATS.md gives it, and both ways agree. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#define KVPI_RECORD_PORTABLE
#include "core/record/put.h"

#include "oplog/replay.h"

/* What lies in memory is what the log has, on little-endian machines: so any bytes will do. */
static void fill(uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
}

static void check_element(const void *data, const uint8_t *expected, enum kvpi_element element)
{
    uint8_t stored[KVPI_ELEMENT_BYTES_MAX + 1];
    memset(stored, 0xee, sizeof stored);
    kvpi_put_store_element(stored, data, 1, element);
    assert_memory_equal(stored, expected, KVPI_ELEMENT_BYTES[element]);
    assert_int_equal(stored[KVPI_ELEMENT_BYTES[element]], 0xee);
}

TEST(test_elements_are_stored_little_endian)
{
    static const uint8_t copy[] = {4,    3,    2, 1, 6, 5, 7, 8, 0xfe, 0xff,
                                   0xff, 0xff, 9, 0, 0, 0, 3, 0, 0,    0};
    static const uint8_t evicted[] = {1,  2,  3,  4,  5,    6,    7,    8,    9, 10, 11, 12,
                                      13, 14, 15, 16, 0xfd, 0xff, 0xff, 0xff, 1, 4,  2,  3};
    static const uint8_t event[] = {8,  7,  6,  5,  4,  3,  2,  1,  1,  0,  0,  0,  2,  0,  0,  0,
                                    1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                    21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36,
                                    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56,
                                    0,  1,  0,  0,  4,  0,  0,  0,  5,  6,  0,  0,  7,  0,  0,  0};
    static const uint8_t move[] = {8,    7,    6,    5,    4,    3,    2,    1,
                                   0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t number[] = {8, 7, 6, 5, 4, 3, 2, 1};
    const kvp_copy copies[2] = {{0}, {0x01020304, 0x0506, 7, 8, -2, 9, 3}};
    kvp_evicted victims[2] = {{{{0}}, 0, 0, 0, 0}, {{{0}}, -3, 1, 4, 0x0302}};
    kvp_event events[2] = {{0}, {0}};
    const uint64_t numbers[2] = {0, UINT64_C(0x0102030405060708)};
    const kvp_slot_move moves[2] = {{0, 0}, {INT64_C(0x0102030405060708), -2}};
    const uint32_t words[2] = {0, 0x05060708};
    memcpy(victims[1].hash.bytes, evicted, 16);
    events[1] = (kvp_event){numbers[1], 1, 2, {{0}}, {{0}}, {{0}}, 256, 4, 0x0605, 7};
    memcpy(events[1].hash.bytes, event + 16, 16);
    memcpy(events[1].parent.bytes, event + 32, 16);
    memcpy(events[1].root.bytes, event + 48, 16);
    check_element(copies, copy, KVPI_ELEMENT_COPY);
    check_element(victims, evicted, KVPI_ELEMENT_EVICTED);
    check_element(events, event, KVPI_ELEMENT_EVENT);
    check_element(moves, move, KVPI_ELEMENT_MOVE);
    check_element(numbers, number, KVPI_ELEMENT_64);
    check_element(words, number, KVPI_ELEMENT_32);
    check_element("\0x", (const uint8_t *)"x", KVPI_ELEMENT_BYTE);
}

/* Lengths below, at and beyond the pieces that are hashed and written at a time. */
TEST(test_both_ways_agree)
{
    enum { N = 200 };
    static uint64_t memory[N * KVPI_ELEMENT_BYTES_MAX / 8];
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        skip();
    fill((uint8_t *)memory, sizeof memory);
    for (int element = KVPI_ELEMENT_BYTE; element <= KVPI_ELEMENT_MOVE; element++)
        for (size_t n = 1; n <= N; n++) {
            size_t n_bytes = n * KVPI_ELEMENT_BYTES[element];
            struct kvpi_oplog_memory made = {0};
            struct kvpi_recorder recorder = {.sink = {&made, kvpi_oplog_memory_write}};
            struct kvpi_writer writer;
            assert_true(kvpi_put_digest_of(memory, n, (enum kvpi_element)element) ==
                        XXH3_64bits(memory, n_bytes));
            kvpi_put_begin(&writer, &recorder, 1);
            kvpi_put_array(&writer, memory, n, (enum kvpi_element)element);
            kvpi_put_finish(&writer);
            assert_int_equal(made.n_bytes, n_bytes + 1);
            assert_memory_equal(made.bytes + 1, memory, n_bytes);
            free(made.bytes);
        }
}

TEST_MAIN(NULL, NULL)

/* put: the bytes of a record, on their way to the sink: numbers, arrays and digests, in one
 * byte order on every machine. For record.c alone.
 */
#ifndef KVPI_RECORD_PUT_H
#define KVPI_RECORD_PUT_H

#include "core/record/record.h"

#include <string.h>

#include "base/base.h"
#include "base/bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Longest run of fixed fields: those of a configuration and the number of its groups, 27 varints of
 * 5 bytes. */
#define KVPI_GROUP_BYTES  136u
#define KVPI_BUFFER_BYTES 512u

struct kvpi_writer {
    struct kvpi_recorder *recorder;
    size_t n_bytes;
    uint8_t bytes[KVPI_BUFFER_BYTES];
};

/* ---------------------------------------------------------------------- bytes to the sink */

static inline void kvpi_put_send(struct kvpi_writer *writer, const void *bytes, size_t n_bytes)
{
    struct kvpi_recorder *recorder = writer->recorder;
    if (recorder->failed == 0 && n_bytes > 0 &&
        recorder->sink.write(recorder->sink.context, bytes, n_bytes) != 0)
        recorder->failed = 1;
}

__attribute__((noinline)) static void kvpi_put_flush(struct kvpi_writer *writer)
{
    kvpi_put_send(writer, writer->bytes, writer->n_bytes);
    writer->n_bytes = 0;
}

/* Makes room for n_bytes, at most KVPI_BUFFER_BYTES. */
static inline void kvpi_put_room(struct kvpi_writer *writer, size_t n_bytes)
{
    if (kvpi_unlikely(KVPI_BUFFER_BYTES - writer->n_bytes < n_bytes))
        kvpi_put_flush(writer);
}

static inline void kvpi_put_begin(struct kvpi_writer *writer, struct kvpi_recorder *recorder,
                                  uint8_t op)
{
    writer->recorder = recorder;
    writer->bytes[0] = op;
    writer->n_bytes = 1;
}

static inline void kvpi_put_finish(struct kvpi_writer *writer)
{
    kvpi_put_flush(writer);
    if (kvpi_unlikely(writer->recorder->failed != 0))
        writer->recorder->on = 0;
}

/* ------------------------------------------------------------ numbers; the caller made room */

static inline void kvpi_put_byte(struct kvpi_writer *writer, uint8_t value)
{
    writer->bytes[writer->n_bytes++] = value;
}

static inline void kvpi_put_varint(struct kvpi_writer *writer, uint64_t value)
{
    writer->n_bytes += kvpi_varint_store(writer->bytes + writer->n_bytes, value);
}

/* 0, -1, 1, -2, ... -> 0, 1, 2, 3, ... */
static inline void kvpi_put_signed(struct kvpi_writer *writer, int32_t value)
{
    kvpi_put_varint(writer, ((uint32_t)value << 1) ^ (value < 0 ? UINT32_MAX : 0));
}

static inline void kvpi_put_fixed(struct kvpi_writer *writer, uint64_t value, unsigned n_bytes)
{
    kvpi_bytes_store(writer->bytes + writer->n_bytes, value, n_bytes);
    writer->n_bytes += n_bytes;
}

static inline void kvpi_put_handle(struct kvpi_writer *writer, uint64_t bits)
{
    kvpi_put_varint(writer, kvpi_record_flip(writer->recorder, bits));
}

/* --------------------------------------------------------------------------------- arrays */

/* What an array consists of. */
enum kvpi_element {
    KVPI_ELEMENT_BYTE,
    KVPI_ELEMENT_32,
    KVPI_ELEMENT_64,
    KVPI_ELEMENT_COPY,
    KVPI_ELEMENT_EVICTED,
    KVPI_ELEMENT_EVENT,
    KVPI_ELEMENT_MOVE
};

/* The bytes of each field, in order: a log has the structs without a gap, as they lie in memory
 * where that is little-endian. */
#define KVPI_ELEMENT_HASH "1111111111111111"
static const char *const KVPI_ELEMENT_FIELDS[] = {
    "1",
    "4",
    "8",
    "4211444",
    KVPI_ELEMENT_HASH "4112",
    "844" KVPI_ELEMENT_HASH KVPI_ELEMENT_HASH KVPI_ELEMENT_HASH "4444",
    "88",
};
static const size_t KVPI_ELEMENT_BYTES[] = {1, 4, 8, 20, 24, 80, 16};
#define KVPI_ELEMENT_BYTES_MAX 80u

_Static_assert(sizeof(kvp_copy) == 20 && sizeof(kvp_evicted) == 24 && sizeof(kvp_event) == 80 &&
                   sizeof(kvp_slot_move) == 16 && sizeof(kvp_hash) == 16,
               "no padding");
_Static_assert(offsetof(kvp_copy, group) == 4 && offsetof(kvp_copy, src_tier) == 6 &&
                   offsetof(kvp_copy, dst_tier) == 7 && offsetof(kvp_copy, src_block) == 8 &&
                   offsetof(kvp_copy, dst_block) == 12 && offsetof(kvp_copy, n_tokens) == 16,
               "the order that the log has");
_Static_assert(offsetof(kvp_evicted, block) == 16 && offsetof(kvp_evicted, tier) == 20 &&
                   offsetof(kvp_evicted, kept) == 21 && offsetof(kvp_evicted, group) == 22,
               "the order that the log has");
_Static_assert(offsetof(kvp_event, kind) == 8 && offsetof(kvp_event, tier) == 12 &&
                   offsetof(kvp_event, hash) == 16 && offsetof(kvp_event, parent) == 32 &&
                   offsetof(kvp_event, root) == 48 && offsetof(kvp_event, position) == 64 &&
                   offsetof(kvp_event, n_tokens) == 68 && offsetof(kvp_event, group) == 72 &&
                   offsetof(kvp_event, reserved) == 76,
               "the order that the log has");
_Static_assert(offsetof(kvp_slot_move, dst) == 8, "the order that the log has");
_Static_assert(sizeof(kvp_stats) % 8 == 0, "64-bit numbers only");

/* KVPI_RECORD_PORTABLE: a test takes the other way on a little-endian machine, too. */
static inline int kvpi_put_is_direct(void)
{
#ifdef KVPI_RECORD_PORTABLE
    return 0;
#else
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
#endif
}

/* A number of 1, 2, 4 or 8 bytes as this machine has it. */
static inline uint64_t kvpi_put_native(const uint8_t *at, unsigned n_bytes)
{
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (n_bytes) {
    case 1: return at[0];
    case 2: memcpy(&two, at, sizeof two); return two;
    case 4: memcpy(&four, at, sizeof four); return four;
    default: memcpy(&eight, at, sizeof eight); return eight;
    }
}

/* Stores one element as the log has it. */
static inline void kvpi_put_store_element(uint8_t *out, const void *data, size_t idx,
                                          enum kvpi_element element)
{
    const uint8_t *at = (const uint8_t *)data + idx * KVPI_ELEMENT_BYTES[element];
    for (const char *field = KVPI_ELEMENT_FIELDS[element]; *field != 0; field++) {
        unsigned n_bytes = (unsigned)(*field - '0');
        kvpi_bytes_store(out, kvpi_put_native(at, n_bytes), n_bytes);
        at += n_bytes;
        out += n_bytes;
    }
}

static inline void kvpi_put_bytes(struct kvpi_writer *writer, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    if (n_bytes > KVPI_BUFFER_BYTES - writer->n_bytes) {
        kvpi_put_flush(writer);
        if (n_bytes > KVPI_BUFFER_BYTES / 2) {
            kvpi_put_send(writer, bytes, n_bytes);
            return;
        }
    }
    memcpy(writer->bytes + writer->n_bytes, bytes, n_bytes);
    writer->n_bytes += n_bytes;
}

/* The elements themselves, without their number. */
static inline void kvpi_put_array(struct kvpi_writer *writer, const void *data, size_t n,
                                  enum kvpi_element element)
{
    if (kvpi_put_is_direct()) {
        kvpi_put_bytes(writer, data, n * KVPI_ELEMENT_BYTES[element]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        kvpi_put_room(writer, KVPI_ELEMENT_BYTES_MAX);
        kvpi_put_store_element(writer->bytes + writer->n_bytes, data, i, element);
        writer->n_bytes += KVPI_ELEMENT_BYTES[element];
    }
}

/* In pieces: equal to the hash of all bytes at once. */
static inline void kvpi_put_update(XXH3_state_t *state, const void *data, size_t n,
                                   enum kvpi_element element)
{
    if (kvpi_put_is_direct()) {
        XXH3_64bits_update(state, data, n * KVPI_ELEMENT_BYTES[element]);
        return;
    }
    uint8_t bytes[KVPI_BUFFER_BYTES];
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        kvpi_put_store_element(bytes + n_bytes, data, i, element);
        n_bytes += KVPI_ELEMENT_BYTES[element];
        if (n_bytes > KVPI_BUFFER_BYTES - KVPI_ELEMENT_BYTES_MAX || i + 1 == n) {
            XXH3_64bits_update(state, bytes, n_bytes);
            n_bytes = 0;
        }
    }
}

static inline uint64_t kvpi_put_digest_of(const void *data, size_t n, enum kvpi_element element)
{
    if (kvpi_put_is_direct())
        return XXH3_64bits(data, n * KVPI_ELEMENT_BYTES[element]);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    kvpi_put_update(&state, data, n, element);
    return XXH3_64bits_digest(&state);
}

/* The number of elements, and their digest when there are any. */
static inline void kvpi_put_digest(struct kvpi_writer *writer, const void *data, uint32_t n,
                                   enum kvpi_element element)
{
    kvpi_put_varint(writer, n);
    if (n > 0)
        kvpi_put_fixed(writer, kvpi_put_digest_of(data, n, element), 8);
}

#endif

/* record_put: the bytes of a record, on their way to the sink: numbers, arrays and digests, in one
 * byte order on every machine. For record*.c alone, so that each call compiles into one piece.
 */
#ifndef KVPI_RECORD_PUT_H
#define KVPI_RECORD_PUT_H

#include "core/record/record.h"

#include <string.h>

#include "base/base.h"
#include "base/bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Longest run of fixed fields: the windows of a configuration, 16 varints of 5 bytes, two numbers
 * of 8, a count. */
#define KVPI_GROUP_BYTES  128u
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

static inline void kvpi_put_flush(struct kvpi_writer *writer)
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

static inline void kvpi_put_fields(struct kvpi_writer *writer, const uint32_t *fields,
                                   size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++)
        kvpi_put_varint(writer, fields[i]);
}

/* --------------------------------------------------------------------------------- arrays */

/* What an array consists of: where memory is little-endian these are their bytes as they lie. */
enum kvpi_element {
    KVPI_ELEMENT_BYTE,
    KVPI_ELEMENT_32,
    KVPI_ELEMENT_64,
    KVPI_ELEMENT_COPY,
    KVPI_ELEMENT_EVICTED,
    KVPI_ELEMENT_EVENT,
    KVPI_ELEMENT_MOVE
};

static const size_t KVPI_ELEMENT_BYTES[] = {1, 4, 8, 20, 24, 80, 16};
#define KVPI_ELEMENT_BYTES_MAX 80u

_Static_assert(sizeof(kvp_copy) == 20 && sizeof(kvp_evicted) == 24 && sizeof(kvp_event) == 80 &&
                   sizeof(kvp_slot_move) == 16,
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
_Static_assert(sizeof(kvp_hash) == 16 && sizeof(kvp_status) == 4 && sizeof(kvp_range) == 8,
               "packed");
_Static_assert(sizeof(kvp_stats) % 8 == 0, "64-bit numbers only");
_Static_assert(sizeof(kvp_open_info) == 11 * 4 && sizeof(kvp_admission) == 5 * 4 &&
                   sizeof(kvp_swapped) == 4 * 4 && sizeof(kvp_released) == 2 * 4 &&
                   sizeof(kvp_block_info) == 8 + 6 * 4 + 16 && sizeof(kvp_shortage) == 4 * 4 + 8 &&
                   sizeof(kvp_seq_info) == 3 * 8 + 14 * 4 && sizeof(kvp_window) == 2 * 4 &&
                   sizeof(kvp_window_info) == 4 * 4 && sizeof(kvp_ns_info) == 8 + 6 * 4,
               "every field is recorded");

/* KVPI_RECORD_PORTABLE: a test takes the other way on a little-endian machine, too. */
static inline int kvpi_put_is_direct(void)
{
#ifdef KVPI_RECORD_PORTABLE
    return 0;
#else
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
#endif
}

static inline void kvpi_put_store(uint8_t *out, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static inline void kvpi_put_store_copy(uint8_t *out, const kvp_copy *copy)
{
    kvpi_put_store(out, copy->phase, 4);
    kvpi_put_store(out + 4, copy->group, 2);
    kvpi_put_store(out + 6, copy->src_tier, 1);
    kvpi_put_store(out + 7, copy->dst_tier, 1);
    kvpi_put_store(out + 8, (uint32_t)copy->src_block, 4);
    kvpi_put_store(out + 12, (uint32_t)copy->dst_block, 4);
    kvpi_put_store(out + 16, copy->n_tokens, 4);
}

static inline void kvpi_put_store_evicted(uint8_t *out, const kvp_evicted *evicted)
{
    memcpy(out, evicted->hash.bytes, sizeof evicted->hash.bytes);
    kvpi_put_store(out + 16, (uint32_t)evicted->block, 4);
    kvpi_put_store(out + 20, evicted->tier, 1);
    kvpi_put_store(out + 21, evicted->kept, 1);
    kvpi_put_store(out + 22, evicted->group, 2);
}

static inline void kvpi_put_store_event(uint8_t *out, const kvp_event *event)
{
    kvpi_put_store(out, event->number, 8);
    kvpi_put_store(out + 8, event->kind, 4);
    kvpi_put_store(out + 12, event->tier, 4);
    memcpy(out + 16, event->hash.bytes, sizeof event->hash.bytes);
    memcpy(out + 32, event->parent.bytes, sizeof event->parent.bytes);
    memcpy(out + 48, event->root.bytes, sizeof event->root.bytes);
    kvpi_put_store(out + 64, event->position, 4);
    kvpi_put_store(out + 68, event->n_tokens, 4);
    kvpi_put_store(out + 72, event->group, 4);
    kvpi_put_store(out + 76, event->reserved, 4);
}

static inline void kvpi_put_store_move(uint8_t *out, const kvp_slot_move *move)
{
    kvpi_put_store(out, (uint64_t)move->src, 8);
    kvpi_put_store(out + 8, (uint64_t)move->dst, 8);
}

/* Stores one element as the log has it. */
static inline void kvpi_put_store_element(uint8_t *out, const void *data, size_t idx,
                                          enum kvpi_element element)
{
    switch (element) {
    case KVPI_ELEMENT_BYTE: out[0] = ((const uint8_t *)data)[idx]; break;
    case KVPI_ELEMENT_32: kvpi_put_store(out, ((const uint32_t *)data)[idx], 4); break;
    case KVPI_ELEMENT_64: kvpi_put_store(out, ((const uint64_t *)data)[idx], 8); break;
    case KVPI_ELEMENT_COPY: kvpi_put_store_copy(out, (const kvp_copy *)data + idx); break;
    case KVPI_ELEMENT_EVICTED: kvpi_put_store_evicted(out, (const kvp_evicted *)data + idx); break;
    case KVPI_ELEMENT_EVENT: kvpi_put_store_event(out, (const kvp_event *)data + idx); break;
    case KVPI_ELEMENT_MOVE: kvpi_put_store_move(out, (const kvp_slot_move *)data + idx); break;
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

/* ------------------------------------------------------------ what several calls have in common */

static inline void kvpi_put_handles(struct kvpi_writer *writer, const kvp_seq *seqs,
                                    uint32_t n_seqs)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_handle(writer, seqs[i].bits);
    }
}

static inline void kvpi_put_varints(struct kvpi_writer *writer, const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_varint(writer, values[i]);
    }
}

/* Which pointers were given: a bit each, so that "none" and "none of them" stay two things. */
enum {
    KVPI_HAS_TOKENS = 1,
    KVPI_HAS_KEYS = 2,
    KVPI_HAS_HASHES = 4,   /* prompt */
    KVPI_HAS_UNCACHED = 8, /* prompt */
    KVPI_HAS_COUNTS = 16,  /* batch */
    KVPI_HAS_PARENTS = 32  /* trees */
};

static inline uint8_t kvpi_put_has(const void *pointer, unsigned bit)
{
    return (uint8_t)(pointer != NULL ? bit : 0);
}

static inline void kvpi_put_keys(struct kvpi_writer *writer, const kvp_key *keys, uint32_t n_keys)
{
    kvpi_put_room(writer, KVPI_VARINT_BYTES);
    kvpi_put_varint(writer, n_keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        kvpi_put_room(writer, KVPI_GROUP_BYTES);
        kvpi_put_fields(
            writer, (const uint32_t[]){keys[i].type, keys[i].begin, keys[i].end, keys[i].n_bytes},
            4);
        kvpi_put_bytes(writer, keys[i].bytes, keys[i].n_bytes);
    }
}

static inline size_t kvpi_put_sum_of_counts(const kvp_batch *batch)
{
    if (batch->n_tokens == NULL)
        return batch->n_seqs;
    size_t sum = 0;
    for (uint32_t i = 0; i < batch->n_seqs; i++)
        sum += batch->n_tokens[i];
    return sum;
}

/* Parents stand behind all that the other batches have, too. */
static inline void kvpi_put_batch(struct kvpi_writer *writer, const kvp_batch *batch,
                                  const int32_t *parents)
{
    kvpi_put_byte(writer, (uint8_t)(kvpi_put_has(batch->tokens, KVPI_HAS_TOKENS) |
                                    kvpi_put_has(batch->keys, KVPI_HAS_KEYS) |
                                    kvpi_put_has(batch->n_tokens, KVPI_HAS_COUNTS) |
                                    kvpi_put_has(parents, KVPI_HAS_PARENTS)));
    kvpi_put_fields(writer, (const uint32_t[]){batch->reserve_tokens, batch->flags, batch->n_seqs},
                    3);
    kvpi_put_handles(writer, batch->seqs, batch->n_seqs);
    if (batch->n_tokens != NULL)
        kvpi_put_varints(writer, batch->n_tokens, batch->n_seqs);
    if (batch->tokens != NULL)
        kvpi_put_array(writer, batch->tokens, kvpi_put_sum_of_counts(batch), KVPI_ELEMENT_32);
    if (batch->keys != NULL)
        kvpi_put_keys(writer, batch->keys, batch->n_keys);
    if (parents != NULL)
        kvpi_put_array(writer, parents, kvpi_put_sum_of_counts(batch), KVPI_ELEMENT_32);
}

static inline void kvpi_put_window(struct kvpi_writer *writer, kvp_window window)
{
    kvpi_put_varint(writer, window.sink_tokens);
    kvpi_put_varint(writer, window.recent_tokens);
}

/* Ends the arguments: status, decisions (R3). Leaves room for a group of results. */
static inline void kvpi_put_status(struct kvpi_writer *writer, kvp_status status)
{
    uint64_t decisions = writer->recorder->decisions;
    uint8_t code = (uint8_t)(-(int)status & 0x7f);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    if (decisions == 0) {
        kvpi_put_byte(writer, code);
        return;
    }
    kvpi_put_byte(writer, (uint8_t)(code | 0x80));
    kvpi_put_fixed(writer, (uint32_t)(decisions ^ (decisions >> 32)), 4);
    writer->recorder->decisions = 0;
}

static inline void kvpi_put_admission(struct kvpi_writer *writer, const kvp_admission *admission)
{
    kvpi_put_fields(writer,
                    (const uint32_t[]){admission->verdict, admission->need_blocks,
                                       admission->available, admission->missing_blocks,
                                       admission->copied_blocks},
                    5);
}

static inline void kvpi_put_released(struct kvpi_writer *writer, kvp_status status,
                                     const kvp_released *released)
{
    kvpi_put_status(writer, status);
    if (status != KVP_OK)
        return;
    kvpi_put_varint(writer, released->freed_blocks);
    kvpi_put_varint(writer, released->cached_blocks);
}

/* Sequences whose KV is wrong: their number when it was asked for, they themselves when they
 * fitted. */
static inline void kvpi_put_report(struct kvpi_writer *writer, uint32_t capacity, kvp_status status,
                                   const kvp_seq *seqs, const uint32_t *n_seqs)
{
    if (n_seqs == NULL || (status != KVP_OK && status != KVP_E_TOO_SMALL))
        return;
    kvpi_put_varint(writer, *n_seqs);
    if (status == KVP_OK && capacity > 0)
        kvpi_put_handles(writer, seqs, *n_seqs);
}

#endif

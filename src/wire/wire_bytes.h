/* wire_bytes: the bytes of a message, one number at a time. docs/FORMATS.md is the description that
 * writer and reader follow.
 *
 * The writer counts on when its buffer is full, so that one pass tells the size that is needed. The
 * reader stops at the first thing that is wrong: `status` says what, and every later read fails.
 */
#ifndef KVPI_WIRE_BYTES_H
#define KVPI_WIRE_BYTES_H

#include <kvpager/wire.h>

#include "base/bytes.h"

#define KVPI_WIRE_MAGIC   "kvpm"
#define KVPI_WIRE_VERSION 1u

/* Where the fields of the head are. */
enum {
    KVPI_WIRE_AT_MAGIC = 0,
    KVPI_WIRE_AT_VERSION = 4,
    KVPI_WIRE_AT_KIND = 5,
    KVPI_WIRE_AT_GROUPS = 6,
    KVPI_WIRE_AT_PARTS = 7,
    KVPI_WIRE_AT_LENGTH = 8,
    KVPI_WIRE_AT_BLOCK_TOKENS = 12,
    KVPI_WIRE_AT_EPOCH = 16,
    KVPI_WIRE_AT_NUMBER = 24,
    KVPI_WIRE_AT_CHECKSUM = 32
};

enum { KVPI_WIRE_STEP = 1, KVPI_WIRE_FULL_STATE = 2 };

/* What else the body has, besides what every body has. */
enum {
    KVPI_WIRE_MOVES = 1, /* moves of slots, between the copies and the items */
    KVPI_WIRE_MORE = 2,  /* a second byte of bits in each change and each new item */
    KVPI_WIRE_SIZES = 4  /* the block_tokens of each layer group, first */
};

/* What a group of sequences is, in the two low bits of its head. */
enum {
    KVPI_WIRE_DECODE = 0,       /* a run: one token more, one more computed, nothing else */
    KVPI_WIRE_DECODE_BLOCK = 1, /* a run: the same, and one block appended */
    KVPI_WIRE_CHANGE = 2,       /* one sequence: a bit for each thing that follows */
    KVPI_WIRE_NEW = 3           /* one sequence, everything */
};

/* The bits of a change, in the order in which what they announce follows. */
enum {
    KVPI_WIRE_STATUS = 1,
    KVPI_WIRE_TOKENS = 2,
    KVPI_WIRE_COMPUTED = 4,
    KVPI_WIRE_CACHED = 8,
    KVPI_WIRE_STEP_TOKENS = 16,
    KVPI_WIRE_VALUES = 32,
    KVPI_WIRE_LAST = 64,
    KVPI_WIRE_ROW = 128
};

/* The second byte of bits, in the same way. */
enum {
    KVPI_WIRE_WINDOWS = 1,
    KVPI_WIRE_TREE = 2,
    KVPI_WIRE_SLOTS = 4, /* the slots of state, without a ring */
    KVPI_WIRE_RING = 8   /* the same, with a ring */
};

/* XXH3-64 of head and body, the checksum itself left out. */
uint64_t kvpi_wire_checksum(const uint8_t *message, size_t n_bytes);

/* ------------------------------------------------------------------------------------- writing */

struct kvpi_wire_out {
    uint8_t *bytes;
    size_t capacity;
    size_t n; /* may exceed capacity: so many are needed */
};

static inline void kvpi_wire_put_byte(struct kvpi_wire_out *out, uint32_t value)
{
    if (out->n < out->capacity)
        out->bytes[out->n] = (uint8_t)value;
    out->n++;
}

static inline void kvpi_wire_put(struct kvpi_wire_out *out, uint32_t value)
{
    while (value >= 0x80) {
        kvpi_wire_put_byte(out, (value & 0x7f) | 0x80);
        value >>= 7;
    }
    kvpi_wire_put_byte(out, value);
}

/* The way from one number to another, both below 2^31: 0, -1, 1, -2, ... -> 0, 1, 2, 3, ... */
static inline void kvpi_wire_put_way(struct kvpi_wire_out *out, uint32_t from, uint32_t to)
{
    uint32_t way = to - from;
    kvpi_wire_put(out, (way << 1) ^ (to < from ? UINT32_MAX : 0));
}

/* ------------------------------------------------------------------------------------- reading */

struct kvpi_wire_in {
    const uint8_t *at;
    const uint8_t *end;
    kvp_status status;
};

/* Gives 0, for the caller to return. */
static inline int kvpi_wire_wrong(struct kvpi_wire_in *in, kvp_status status)
{
    if (in->status == KVP_OK)
        in->status = status;
    in->at = in->end;
    return 0;
}

static inline int kvpi_wire_get_byte(struct kvpi_wire_in *in, uint32_t *out)
{
    if (in->at == in->end)
        return kvpi_wire_wrong(in, KVP_E_FORMAT);
    *out = *in->at++;
    return 1;
}

/* One meaning has one form: a number longer than needed is damage. */
static inline int kvpi_wire_get(struct kvpi_wire_in *in, uint32_t *out)
{
    uint64_t value;
    if (!kvpi_varint_load(&in->at, in->end, UINT32_MAX, &value))
        return kvpi_wire_wrong(in, KVP_E_FORMAT);
    *out = (uint32_t)value;
    return 1;
}

/* A number below 2^31. */
static inline int kvpi_wire_get_31(struct kvpi_wire_in *in, uint32_t *out)
{
    return kvpi_wire_get(in, out) && (*out <= INT32_MAX || kvpi_wire_wrong(in, KVP_E_FORMAT));
}

/* Walks from a number below 2^31 to another one. */
static inline int kvpi_wire_get_way(struct kvpi_wire_in *in, uint32_t *at)
{
    uint32_t code;
    if (!kvpi_wire_get(in, &code))
        return 0;
    /* A way that leads below 0 or beyond 2^31 - 1 ends, in 32 bits, at 2^31 or above. */
    *at += (code >> 1) ^ ((code & 1) != 0 ? UINT32_MAX : 0);
    return *at <= INT32_MAX || kvpi_wire_wrong(in, KVP_E_FORMAT);
}

#endif

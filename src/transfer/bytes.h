/* bytes: the messages of a transfer. docs/TRANSFER.md is the description that both sides
 * follow.
 *
 * Every message begins with a head of 48 bytes with its own checksum. The head has the checksum of
 * the body, so the transfer of a damaged body is still known. */
#ifndef KVPI_TRANSFER_BYTES_H
#define KVPI_TRANSFER_BYTES_H

#include <kvpager/transfer.h>

#include "base/bytes.h"

enum {
    KVPI_TRANSFER_VERSION = 2,
    KVPI_TRANSFER_HEAD_BYTES = 48,
    KVPI_TRANSFER_SHAPE_BYTES = 88,
    KVPI_TRANSFER_TICKET_BYTES = 112, /* of the body before the runs */
    KVPI_TRANSFER_BEGIN_BYTES = 96,
    KVPI_TRANSFER_CHUNK_BYTES = 32, /* before K and V */
    KVPI_TRANSFER_DONE_BYTES = 32,
    KVPI_TRANSFER_STATUS_BYTES = 8
};

/* Kinds of messages, and who sends them. */
enum {
    KVPI_TRANSFER_TICKET = 1,  /* the receiver, by any way there is */
    KVPI_TRANSFER_BEGIN = 2,   /* the sender */
    KVPI_TRANSFER_CHUNK = 3,   /* the sender */
    KVPI_TRANSFER_DONE = 4,    /* the sender */
    KVPI_TRANSFER_GIVE_UP = 5, /* the sender */
    KVPI_TRANSFER_RESULT = 6   /* the receiver */
};

/* Where the fields of the head are. */
enum {
    KVPI_TRANSFER_AT_MAGIC = 0,
    KVPI_TRANSFER_AT_VERSION = 4,
    KVPI_TRANSFER_AT_KIND = 5,
    KVPI_TRANSFER_AT_PLACE = 6,
    KVPI_TRANSFER_AT_LENGTH = 8,
    KVPI_TRANSFER_AT_PART = 12,
    KVPI_TRANSFER_AT_EPOCH = 16,
    KVPI_TRANSFER_AT_ID = 24,
    KVPI_TRANSFER_AT_BODY = 32, /* checksum of the body */
    KVPI_TRANSFER_AT_HEAD = 40  /* checksum of the 40 bytes before */
};

/* What the flags of a shape say. */
enum { KVPI_SHAPE_K_SCALES = 1, KVPI_SHAPE_V_SCALES = 2, KVPI_SHAPE_BIG_ENDIAN = 4 };

struct kvpi_transfer_head {
    uint32_t version;
    uint32_t kind;
    uint32_t n_bytes;
    uint64_t part; /* the sender's number of the attempt, place << 32 | generation, of which neither
                      is 0; 0 from a receiver */
    uint64_t epoch;
    uint64_t id;
    uint64_t body;
};

/* What KV is, and of whom: all that must be equal, and the slice and range. */
struct kvpi_shape {
    uint32_t type;
    uint32_t flags;
    uint32_t k_size;
    uint32_t v_size;
    uint32_t block_tokens;
    kvp_slice slice;
    uint32_t begin;
    uint32_t end;
    uint64_t model_version;
    kvp_hash model;
    kvp_hash space;
};

struct kvpi_ticket {
    struct kvpi_transfer_head head;
    struct kvpi_shape shape;
    uint32_t n_checked; /* tokens whose values the receiver knows */
    uint32_t n_runs;
    kvp_hash tokens; /* of their values */
    const uint8_t *runs;
    const uint8_t *runs_end;
};

/* One layer's K and V of some heads and tokens. */
struct kvpi_chunk {
    uint32_t layer; /* the model's number, and so is the head's */
    uint32_t first_head;
    uint32_t n_heads;
    uint32_t position;
    uint32_t n_tokens;
};

/* Write the head of a message whose body is there: kind, part, epoch and id are `head`'s. */
void kvpi_transfer_seal(uint8_t *message, size_t n_bytes, const struct kvpi_transfer_head *head);

/* Read a head. 0: it is none, or is damaged, and nothing in it can be believed. */
int kvpi_transfer_read_head(const uint8_t *message, size_t n_bytes,
                            struct kvpi_transfer_head *out_head);

/* Verify the rest of a message whose head was read: version, length, body. */
kvp_status kvpi_transfer_verify(const struct kvpi_transfer_head *head, const uint8_t *message,
                                size_t n_bytes);

void kvpi_shape_put(const struct kvpi_shape *shape, uint8_t *out);
void kvpi_shape_get(const uint8_t *in, struct kvpi_shape *out_shape);

/* Tell whether KV of one shape can be the other's: all but slice and range. */
int kvpi_shape_fits(const struct kvpi_shape *a, const struct kvpi_shape *b);

static inline int kvpi_shape_has_scales(const struct kvpi_shape *shape)
{
    return (shape->flags & (KVPI_SHAPE_K_SCALES | KVPI_SHAPE_V_SCALES)) != 0;
}

void kvpi_slice_put(const kvp_slice *slice, uint8_t *out);
void kvpi_slice_get(const uint8_t *in, kvp_slice *out_slice);

/* Tell whether a slice is not empty, does not wrap, and lies in another one. */
int kvpi_slice_within(const kvp_slice *slice, const kvp_slice *whole);

/* What two slices have in common. 0: nothing. */
int kvpi_slice_meet(const kvp_slice *a, const kvp_slice *b, kvp_slice *out_slice);

void kvpi_chunk_put(const struct kvpi_chunk *chunk, uint8_t *out);
void kvpi_chunk_get(const uint8_t *in, struct kvpi_chunk *out_chunk);

/* Hash names and other bytes that both sides must have alike. */
kvp_hash kvpi_transfer_hash(const void *bytes, size_t n_bytes);

/* Hash the values of a sequence's first n tokens; KVP_E_UNKNOWN: the cache does not keep them. */
kvp_status kvpi_transfer_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t n_tokens,
                                kvp_hash *out_hash);

/* Append a run to a ticket: slot and length as LEB128, the slot as the way from the end of the run
 * before. Counts on when the buffer is full. */
struct kvpi_run_writer {
    uint8_t *bytes;
    size_t capacity;
    size_t n;
    int64_t at;
};

void kvpi_run_put(struct kvpi_run_writer *out, const kvp_slot_run *run);

/* Read a ticket to its end, and verify it. Nothing is believed. */
kvp_status kvpi_ticket_get(const void *bytes, size_t n_bytes, struct kvpi_ticket *out_ticket,
                           kvp_slot_run *out_runs, uint32_t capacity);

#endif

/* transfer_bytes: the messages of a transfer. docs/FORMATS.md is the description that both sides
 * follow.
 *
 * Every message begins with a head of 48 bytes with its own checksum. The head has the checksum of
 * the body, so the transfer of a damaged body is still known. */
#ifndef KVPI_TRANSFER_BYTES_H
#define KVPI_TRANSFER_BYTES_H

#include <kvpager/transfer.h>

#include "base/bytes.h"

enum {
    KVPI_TRANSFER_VERSION = 1,
    KVPI_TRANSFER_HEAD_BYTES = 48,
    KVPI_TRANSFER_CHUNK_BYTES = 32, /* before K and V */
    KVPI_TRANSFER_STATUS_BYTES = 8
};

/* Bytes of the parts of bodies, which depend on the number of layer groups. */
#define KVPI_TRANSFER_SHAPE_BYTES(n_groups)  (56u + 56u * (n_groups))
#define KVPI_TRANSFER_TICKET_BYTES(n_groups) (80u + 60u * (n_groups)) /* before the runs */
#define KVPI_TRANSFER_BEGIN_BYTES(n_groups)  (64u + 56u * (n_groups))
#define KVPI_TRANSFER_DONE_BYTES(n_groups)   (16u + 16u * (n_groups))

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
enum {
    KVPI_SHAPE_K_SCALES = 1,
    KVPI_SHAPE_V_SCALES = 2,
    KVPI_SHAPE_BIG_ENDIAN = 4,
    KVPI_SHAPE_STATE = 8,
    KVPI_SHAPE_FLAGS = 15 /* all that there are */
};

struct kvpi_transfer_head {
    uint32_t version; /* kvpi_transfer_seal writes KVPI_TRANSFER_VERSION */
    uint32_t kind;
    uint32_t n_bytes;
    uint64_t part; /* the sender's number of the attempt, place << 32 | generation, of which neither
                      is 0; 0 from a receiver */
    uint64_t epoch;
    uint64_t id;
    uint64_t body;
};

/* What the KV of one layer group is, and which part of it. */
struct kvpi_shape_group {
    uint32_t type;
    uint32_t flags;
    uint32_t k_size;
    uint32_t v_size;
    uint32_t block_tokens; /* S; of a state 1 */
    kvp_slice slice; /* layers in the numbers of the group; BEGIN: all 0 if it has none of them */
    kvp_window window;
    kvp_range gap; /* tokens that the window has dropped at the receiver; 0, 0: none */
};

/* What KV is, and of whom: all that must be equal, and the slices and range. */
struct kvpi_shape {
    uint32_t begin;
    uint32_t end;
    uint32_t n_groups;
    uint64_t model_version;
    kvp_hash model;
    kvp_hash space;
    struct kvpi_shape_group groups[KVP_GROUPS_MAX];
};

struct kvpi_ticket {
    struct kvpi_transfer_head head;
    struct kvpi_shape shape;
    uint32_t n_checked; /* tokens whose values the receiver knows */
    kvp_hash tokens;    /* of their values */
    uint32_t n_runs[KVP_GROUPS_MAX];
    const uint8_t *runs[KVP_GROUPS_MAX];
    const uint8_t *runs_end;
};

/* One layer's K and V of some heads and tokens; or bytes of the state of some heads. */
struct kvpi_chunk {
    uint32_t layer; /* the model's number, and so is the head's */
    uint32_t first_head;
    uint32_t n_heads;
    uint32_t position; /* of a state: the first byte, in each head */
    uint32_t n_tokens; /* and how many of each */
    uint32_t group;
};

/* Write the head of a message whose body is there: kind, part, epoch and id are `head`'s. */
void kvpi_transfer_seal(uint8_t *message, size_t n_bytes, const struct kvpi_transfer_head *head);

/* The same where head->body is the body's checksum already. */
void kvpi_transfer_put_head(uint8_t *message, size_t n_bytes,
                            const struct kvpi_transfer_head *head);

/* Read a head. 0: it is none, or is damaged, and nothing in it can be believed. */
int kvpi_transfer_read_head(const uint8_t *message, size_t n_bytes,
                            struct kvpi_transfer_head *out_head);

/* Verify the rest of a message whose head was read: version, length, body. */
kvp_status kvpi_transfer_verify(const struct kvpi_transfer_head *head, const uint8_t *message,
                                size_t n_bytes);

void kvpi_shape_put(const struct kvpi_shape *shape, uint8_t *out);

/* Read a shape from n_bytes. 0: they are too few, there are too many groups, or a word that must be
 * 0 is not. */
int kvpi_shape_get(const uint8_t *in, size_t n_bytes, struct kvpi_shape *out_shape);

/* Can KV of one shape not be the other's? All but slices, range and gaps is compared; `why`, which
 * may be NULL, names the first difference. */
int kvpi_shape_differs(const struct kvpi_shape *theirs, const struct kvpi_shape *ours,
                       kvp_why *why);

/* Is one of as many groups a part of the other: the same range and gaps, and in each group a slice
 * of its own, or none, but not none in all? */
int kvpi_shape_is_part(const struct kvpi_shape *theirs, const struct kvpi_shape *ours);

/* Are all flags known, and is recurrent state the last of several groups, without window and gap,
 * or nowhere? */
int kvpi_shape_is_sound(const struct kvpi_shape *shape);

static inline int kvpi_group_is_state(const struct kvpi_shape_group *group)
{
    return (group->flags & KVPI_SHAPE_STATE) != 0;
}

/* The positions of a group that are sent: tokens, or the bytes of a head's state. */
static inline uint32_t kvpi_shape_begin(const struct kvpi_shape *shape, uint32_t group)
{
    return kvpi_group_is_state(&shape->groups[group]) ? 0 : shape->begin;
}

static inline uint32_t kvpi_shape_end(const struct kvpi_shape *shape, uint32_t group)
{
    const struct kvpi_shape_group *g = &shape->groups[group];
    return kvpi_group_is_state(g) ? g->k_size + g->v_size : shape->end;
}

/* S of a group, of this side's shape or the other's. */
static inline uint32_t kvpi_shape_block_tokens(const struct kvpi_shape *shape, uint32_t group)
{
    return shape->groups[group].block_tokens;
}

static inline int kvpi_group_has_scales(const struct kvpi_shape_group *group)
{
    return (group->flags & (KVPI_SHAPE_K_SCALES | KVPI_SHAPE_V_SCALES)) != 0;
}

/* The position after `at` tokens of a group: behind the gap, when the gap begins there. */
static inline uint32_t kvpi_gap_skip(const kvp_range *gap, uint32_t at)
{
    return at >= gap->begin && at < gap->end ? gap->end : at;
}

/* Where tokens from `at` on end that are without the gap: at it, or at `end`. */
static inline uint32_t kvpi_gap_until(const kvp_range *gap, uint32_t at, uint32_t end)
{
    return at < gap->begin && gap->begin < end ? gap->begin : end;
}

void kvpi_slice_put(const kvp_slice *slice, uint8_t *out);
void kvpi_slice_get(const uint8_t *in, kvp_slice *out_slice);

/* Is nothing in the slice, and said so in the one form for that? */
static inline int kvpi_slice_is_empty(const kvp_slice *slice)
{
    return (slice->first_layer | slice->n_layers | slice->first_head | slice->n_heads) == 0;
}

/* Tell whether a slice is not empty, does not wrap, and lies in another one. */
int kvpi_slice_within(const kvp_slice *slice, const kvp_slice *whole);

/* What two slices have in common. 0: nothing, and the slice is empty. */
int kvpi_slice_meet(const kvp_slice *a, const kvp_slice *b, kvp_slice *out_slice);

void kvpi_chunk_put(const struct kvpi_chunk *chunk, uint8_t *out);

/* Read it. 0: the 8 bytes behind its numbers are not 0. */
int kvpi_chunk_get(const uint8_t *in, struct kvpi_chunk *out_chunk);

/* Hash names and other bytes that both sides must have alike. */
kvp_hash kvpi_transfer_hash(const void *bytes, size_t n_bytes);

/* Hash the values of a sequence's first n tokens; KVP_E_UNKNOWN: the cache does not keep them. */
kvp_status kvpi_transfer_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t n_tokens,
                                kvp_hash *out_hash);

/* Append a run to a ticket: slot and length as LEB128, the slot as the way from `at`, the end of
 * the run before in its group. Counts on when the buffer is full. */
struct kvpi_run_writer {
    uint8_t *bytes;
    size_t capacity;
    size_t n;
    int64_t at;
};

void kvpi_run_put(struct kvpi_run_writer *out, const kvp_slot_run *run);

/* Read a ticket to its end, and verify it. Nothing is believed. */
kvp_status kvpi_ticket_get(const void *bytes, size_t n_bytes, struct kvpi_ticket *out_ticket);

#endif

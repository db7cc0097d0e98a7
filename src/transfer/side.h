/* side: what a sender and a receiver have in common. Links, their own shape, ids.
 *
 * An id is generation << 32 | place + 1: one that was closed is never taken for the next one in its
 * place. A place that has come to its last generation is retired when it is closed. */
#ifndef KVPI_TRANSFER_SIDE_H
#define KVPI_TRANSFER_SIDE_H

#include "transfer/transfer_bytes.h"

struct kvpi_side_link {
    kvp_link link;
    uint32_t attached;
    kvp_status broken; /* KVP_OK: it works */
};

/* A layer group. Its layers follow those of the group before, and so do its cells: the layers times
 * the heads. */
struct kvpi_side_group {
    const kvp_memory *memory;
    uint32_t first_layer;
    uint32_t first_cell;
};

struct kvpi_side {
    kvp_transfer_config config; /* model and memories are NULL: see shape, groups */
    struct kvpi_shape shape;    /* range, gaps and space are set for each transfer */
    struct kvpi_side_group groups[KVP_GROUPS_MAX];
    uint32_t n_kv_groups; /* without the one of state */
    uint32_t n_kv_layers; /* of these groups */
    uint32_t n_layers;    /* of all groups */
    uint32_t n_cells;
    struct kvpi_side_link links[KVP_TRANSFER_LINKS_MAX];
};

#define KVPI_LAST_TRANSFER UINT32_MAX

/* What every transfer has, on both sides. */
struct kvpi_transfer {
    uint32_t generation; /* of the id; retired: at KVPI_LAST_TRANSFER */
    uint32_t state;      /* KVP_TRANSFER_...; 0: the place is empty */
    kvp_status status;
    uint32_t by_peer;
    uint32_t begin;
    uint32_t end;
    kvp_seq seq;
    uint64_t owed;   /* a bit for each link that is to be told how it ended */
    uint64_t chunks; /* never wraps */
    uint64_t bytes;  /* never wraps */
};

/* Returns: KVP_OK; KVP_E_ARG */
kvp_status kvpi_side_init(struct kvpi_side *side, const kvp_transfer_config *config);

kvp_status kvpi_side_attach(struct kvpi_side *side, const kvp_link *link, uint32_t *out_link);

static inline int kvpi_side_has_state(const struct kvpi_side *side)
{
    return side->n_kv_groups < side->shape.n_groups;
}

/* Find the place of a layer of a group, in the model's number, among the layers of all groups. */
static inline uint32_t kvpi_side_layer(const struct kvpi_side *side, uint32_t group, uint32_t layer)
{
    return side->groups[group].first_layer + layer - side->shape.groups[group].slice.first_layer;
}

/* Describe a layer of a group, in the model's number. */
static inline kvp_layer kvpi_side_memory(const struct kvpi_side *side, uint32_t group,
                                         uint32_t layer)
{
    kvp_layer out;
    (void)kvp_memory_layer(side->groups[group].memory,
                           layer - side->shape.groups[group].slice.first_layer, &out);
    return out;
}

/* Tell what a sequence's window in a group has dropped, as tokens; 0, 0: nothing. */
kvp_status kvpi_side_dropped(const struct kvpi_side *side, kvp_seq seq, uint32_t group,
                             kvp_range *out_dropped);

/* Find what the receiver's windows have dropped of a transfer's range, for each group.
 * KVP_E_DROPPED: something of it, or of what lies before it, is kept after `end` tokens, and so
 * will be read. */
kvp_status kvpi_side_gaps(const struct kvpi_side *side, const struct kvpi_transfer *t,
                          kvp_range *out_gaps);

/* The slot that a state goes into, which a sequence with writable slots writes; 0 without states.
 * KVP_E_STATE: it has the state that the sequence goes on from, if the transfer fails. */
kvp_status kvpi_side_slot(const struct kvpi_side *side, kvp_seq seq, int32_t *out_slot);

static inline int kvpi_side_has_link(const struct kvpi_side *side, uint32_t link)
{
    return link < side->config.max_links && side->links[link].attached;
}

/* Say that a link is broken, once and for all. */
void kvpi_side_break(struct kvpi_side *side, uint32_t link, kvp_status status);

/* Lend a buffer of a link that is not broken; breaks it if it is. */
kvp_status kvpi_side_lend(struct kvpi_side *side, uint32_t link, size_t n_bytes, uint8_t **out);

/* What is decided upon is in front of a message: all of it but a chunk's KV. */
enum { KVPI_FRONT_BYTES = 576 };

/* A message that was taken. A link may give memory that its peer still writes to: what says where
 * KV goes is read from `front`, a copy, and only KV from `bytes`. */
struct kvpi_message {
    const uint8_t *bytes; /* [n_bytes]; `front` itself, if all is there */
    size_t n_bytes;
    uint8_t front[KVPI_FRONT_BYTES];
};

/* Take a link's next message. Returns: as kvp_link.take; the bytes are the link's */
kvp_status kvpi_side_take(const struct kvpi_side *side, uint32_t link,
                          struct kvpi_message *message);

/* Seal a message in the buffer that was lent, and post it. */
kvp_status kvpi_side_post(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                          const struct kvpi_transfer_head *head);

/* Post a message whose body's checksum is in its head. */
kvp_status kvpi_side_post_summed(struct kvpi_side *side, uint32_t link, size_t n_bytes,
                                 const struct kvpi_transfer_head *head);

/* Send a message that is a status: kind, epoch and id are in `head`. */
kvp_status kvpi_side_tell(struct kvpi_side *side, uint32_t link,
                          const struct kvpi_transfer_head *head, kvp_status status);

/* The status in such a message, for the other side's failure: no success, and none that is not. */
kvp_status kvpi_side_told(const uint8_t *body);

static inline int kvpi_transfer_lives(const struct kvpi_transfer *t)
{
    return t->state == KVP_TRANSFER_WAITING || t->state == KVP_TRANSFER_MOVING ||
           t->state == KVP_TRANSFER_SENT;
}

/* Can a new transfer have the place? */
static inline int kvpi_transfer_is_free(const struct kvpi_transfer *t)
{
    return t->state == 0 && t->generation < KVPI_LAST_TRANSFER;
}

static inline uint64_t kvpi_transfer_id(const struct kvpi_transfer *t, uint32_t place)
{
    return (uint64_t)t->generation << 32 | (place + 1);
}

/* A status that a transfer can fail with. */
int kvpi_transfer_is_failure(kvp_status status);

void kvpi_transfer_tell(const struct kvpi_transfer *t, kvp_transfer_info *out_info);

#if KVP_CHECK >= 1
/* For tests: the generations of a sender, or receiver, that was just created go on from `start`. */
void kvpi_sender_start_at(kvp_sender *self, uint64_t start);
void kvpi_receiver_start_at(kvp_receiver *self, uint64_t start);

/* That generation: the last one, or before. */
static inline uint32_t kvpi_transfer_start(uint64_t start)
{
    return start < KVPI_LAST_TRANSFER ? (uint32_t)start : KVPI_LAST_TRANSFER;
}
#endif

#endif

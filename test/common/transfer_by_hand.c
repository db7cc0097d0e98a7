/* transfer_by_hand: see transfer_by_hand.h. */
#include "transfer_by_hand.h"

#include <string.h>

enum { HEAD = KVPI_TRANSFER_HEAD_BYTES };

struct kvpi_shape right_shape(const pair *p)
{
    struct kvpi_ticket ticket;
    assert_ok(kvpi_ticket_get(p->ticket, p->n_ticket, &ticket));
    return ticket.shape;
}

size_t make_message(const pair *p, uint32_t kind, const void *body, size_t n, uint8_t *out)
{
    if (n > 0)
        memcpy(out + HEAD, body, n);
    kvpi_transfer_seal(out, HEAD + n,
                       &(struct kvpi_transfer_head){.kind = kind, .epoch = 77, .id = p->id_b});
    return HEAD + n;
}

void post(const kvp_link *link, const uint8_t *bytes, size_t n)
{
    void *buffer;
    assert_ok(link->lend(link->context, n, &buffer));
    memcpy(buffer, bytes, n);
    assert_ok(link->post(link->context, n));
}

void send_body(pair *p, uint32_t kind, const void *body, size_t n)
{
    uint8_t message[KVP_LINK_MESSAGE_MIN];
    assert_true(HEAD + n <= sizeof message);
    post(&p->ends[0], message, make_message(p, kind, body, n, message));
    assert_ok(kvp_receiver_progress(p->receiver, 0, NULL));
}

void send_begin(pair *p, const struct kvpi_shape *shape)
{
    uint8_t body[KVPI_TRANSFER_BEGIN_BYTES(KVP_GROUPS_MAX)];
    kvpi_shape_put(shape, body);
    memcpy(body + KVPI_TRANSFER_SHAPE_BYTES(shape->n_groups), p->ticket + KVPI_TRANSFER_AT_BODY, 8);
    send_body(p, KVPI_TRANSFER_BEGIN, body, KVPI_TRANSFER_BEGIN_BYTES(shape->n_groups));
}

kvp_status answer(const pair *p)
{
    const void *bytes;
    size_t n;
    struct kvpi_transfer_head head;
    if (p->ends[0].take(p->ends[0].context, &bytes, &n) != KVP_OK)
        return KVP_E_AGAIN;
    assert_true(kvpi_transfer_read_head(bytes, n, &head));
    assert_ok(kvpi_transfer_verify(&head, bytes, n));
    assert_int_equal(head.kind, KVPI_TRANSFER_RESULT);
    const kvp_status status = (kvp_status)(int32_t)kvpi_bytes_load32((const uint8_t *)bytes + HEAD);
    p->ends[0].give_back(p->ends[0].context);
    return status;
}

/* transfer_by_hand: a sender that the test plays itself, with messages of its own making. See
 * transfer_world.h. */
#ifndef TEST_TRANSFER_BY_HAND_H
#define TEST_TRANSFER_BY_HAND_H

#include "transfer_world.h"

#include "transfer/transfer_bytes.h"

/* What a right sender would say of itself: the ticket's shape. */
struct kvpi_shape right_shape(const pair *p);

/* Write a message with its body, sealed for the transfer of p.
 * Gives its size. */
size_t make_message(const pair *p, uint32_t kind, const void *body, size_t n, uint8_t *out);

void post(const kvp_link *link, const uint8_t *bytes, size_t n);

/* Send it to the receiver, which takes it. */
void send_body(pair *p, uint32_t kind, const void *body, size_t n);
void send_begin(pair *p, const struct kvpi_shape *shape);

/* The receiver's answer, or KVP_E_AGAIN when there is none. */
kvp_status answer(const pair *p);

#endif

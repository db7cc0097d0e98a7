/* transfer_rows: the bytes of some tokens of one layer, out of a memory and into it. */
#ifndef KVPI_TRANSFER_ROWS_H
#define KVPI_TRANSFER_ROWS_H

#include <kvpager/memory.h>

#include "base/checksum.h"

/* Tokens [position, position + n_tokens) of a sequence, some heads of a layer. */
struct kvpi_rows {
    const kvp_layer *layer;
    const int32_t *row;  /* block ids of the sequence, as far as the tokens reach */
    uint32_t first_head; /* of the layer */
    uint32_t n_heads;
    uint32_t position;
    uint32_t n_tokens;
};

/* Count the bytes of one token, and those of the scales that a message has besides. */
size_t kvpi_rows_token_bytes(const kvp_layer *layer, uint32_t n_heads);
size_t kvpi_rows_scale_bytes(const kvp_layer *layer, uint32_t n_heads);

/* In a message: K of each token, of each head, then V likewise, then the scales of K and of V, of
 * each head, of the block that all these tokens are in. */
struct kvpi_rows_out {
    uint8_t *at;                    /* the message's next byte */
    int is_shared;                  /* another processor reads the message where it lies */
    struct kvpi_checksum_state sum; /* of what is before it, and becomes that of what is gathered */
};

void kvpi_rows_gather(const struct kvpi_rows *rows, struct kvpi_rows_out *out);
void kvpi_rows_scatter(const struct kvpi_rows *rows, const uint8_t *in);

/* The same of bytes of a state, in a slot: `row` is the slot; position and n_tokens are bytes of
 * each head, of its K with its V behind it. In a message: those of each head. */
void kvpi_rows_gather_state(const struct kvpi_rows *rows, struct kvpi_rows_out *out);
void kvpi_rows_scatter_state(const struct kvpi_rows *rows, const uint8_t *in);

#endif

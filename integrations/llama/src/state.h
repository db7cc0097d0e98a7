/* state: KV of cells as bytes, by way of the spare id, which has no cells between these calls.
 *
 *   out      cells of an id ---- seq_cp ----> spare ---- get_data ----> bytes
 *   in       bytes ---- set_data ----> spare ---- seq_cp ----> keepers
 *
 * Reading takes no cell. Putting takes one for each token of the bytes, until what the keepers do
 * not share is given back by kvpi_state_close. */
#ifndef KVPI_LLAMA_STATE_H
#define KVPI_LLAMA_STATE_H

#include "ids.h"

#include <stddef.h>

typedef struct kvpi_bytes {
    uint8_t *data; /* of malloc */
    size_t n;
    size_t room;
    uint32_t is_lent; /* 1: the data is another's, and its room is all there is */
} kvpi_bytes;

/* Room for n bytes; what is there stays. 0: no memory. */
int kvpi_state_reserve(kvpi_bytes *bytes, size_t n);
void kvpi_state_free(kvpi_bytes *bytes);

/* The id that no engine uses for sequences. */
static inline uint32_t kvpi_state_spare(const kvpi_ids *ids)
{
    return ids->n_ids;
}

/* Blocks of a piece that has at most so many tokens: at least one. llama.cpp leaves out of a state
 * what is a window or more before its end. */
static inline uint32_t kvpi_state_piece(uint32_t tokens, uint32_t window, uint32_t block_tokens)
{
    const uint32_t n = window != 0 && window < tokens ? window : tokens;
    return n > block_tokens ? n / block_tokens : 1;
}

/* Append cells [begin, end) of an id to `out`. KVP_E_NO_MEMORY; KVP_E_CORRUPT: llama.cpp gave
 * another number of bytes than it said. */
kvp_status kvpi_state_get(kvpi_ids *ids, uint32_t id, uint32_t begin, uint32_t end,
                          kvpi_bytes *out);

/* Give the spare id cells [begin, end) from such bytes. 0: llama.cpp refused them, or has no cells;
 * then the spare id is empty. Else kvpi_state_close must follow. */
int kvpi_state_open(kvpi_ids *ids, const uint8_t *bytes, size_t n, uint32_t begin, uint32_t end);
void kvpi_state_close(kvpi_ids *ids);

/* A checksum of bytes, which lie as malloc gives them, and of what `before` stands for. */
kvp_hash kvpi_state_sum(const kvp_hash *before, const void *bytes, size_t n);

#endif

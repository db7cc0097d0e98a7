/* strips: what a block consists of, and where the same lies in another memory.
 *
 * A strip is one part (K, V, scales) of one layer of a block. Strips of a pair of memories are made
 * once; copying a block goes through them and gives ranges of bytes, as long as both sides allow.
 */
#ifndef KVPI_STRIPS_H
#define KVPI_STRIPS_H

#include <kvpager/memory.h>

#include "memory/chunks.h"

/* How the strips of one part are walked: the same for all its layers. */
struct kvpi_strip_shape {
    size_t run_bytes; /* that lie side by side on both sides */
    struct kvpi_strip_dim {
        uint32_t count; /* of tokens: S, and fewer in a block that is partly used */
        uint32_t is_tokens;
        size_t src_stride;
        size_t dst_stride;
    } dims[3]; /* tokens, heads, runs; ascending by src_stride */
    uint32_t n_dims;
    uint32_t n_pieces; /* 1, or: the runs of the two sides differ, and a row is so many pieces */
    size_t src_run_bytes;
    size_t src_run_stride;
    size_t dst_run_bytes;
    size_t dst_run_stride;
    size_t src_block_stride;
    size_t dst_block_stride;
};

struct kvpi_strip {
    unsigned char *src; /* of block 0 */
    unsigned char *dst;
    uint32_t shape;
};

struct kvpi_strips {
    struct kvpi_strip_shape shapes[4];
    struct kvpi_strip *strips; /* [n], ascending by src */
    uint32_t n;
};

/* How many strips memories of this layout have. */
uint32_t kvpi_strips_count(const kvp_layout *layout);

/* Make the strips that copy from src to dst, which hold the same. `strips` has room for all. */
void kvpi_strips_make(const kvp_memory *src, const kvp_memory *dst, struct kvpi_strip *strips,
                      struct kvpi_strips *out);

/* Add what strip i of a block's first n_tokens slots consists of to the ranges to be copied. */
void kvpi_strips_copy(const struct kvpi_strips *strips, uint32_t i, const kvp_copy *copy,
                      struct kvpi_chunks *chunks);

#endif

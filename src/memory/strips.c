/* strips: from strides to ranges of bytes.
 *
 * A strip is a box of tokens, heads and runs. As long as a dimension's stride is, on both sides,
 * the bytes that lie side by side so far, it makes the range longer; the dimensions that are left
 * are loops. With S = 16, H = 8, D = 128 bf16, both sides HND:
 *
 *     16 of 16 tokens    256 -> x 16 tokens = 4,096 -> x 8 heads = 32,768     1 range
 *      3 of 16 tokens    256 ->  x 3 tokens =   768 ; heads are 4,096 apart   8 ranges
 *
 * Ranges that continue across strips (K and V, layers) are joined where they are collected, so
 * strips are in the order of the source's addresses.
 *
 * Where one side has its elements in other runs than the other, a row is copied in pieces of what
 * lies side by side on both: that is right, not fast.
 */
#include "memory/strips.h"

#include "memory/layout.h"
#include "memory/memory.h"

static uint32_t greatest_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void add_strip_dim(struct kvpi_strip_shape *shape, struct kvpi_strip_dim dim)
{
    uint32_t at = shape->n_dims;
    if (dim.count == 1) {
        return;
    }
    for (; at > 0 && shape->dims[at - 1].src_stride > dim.src_stride; at--) {
        shape->dims[at] = shape->dims[at - 1];
    }
    shape->dims[at] = dim;
    shape->n_dims++;
}

static struct kvpi_strip_shape make_shape(const kvp_layout *src, const kvp_layout *dst, int index)
{
    const kvp_part *from = kvpi_layout_part(src, index);
    const kvp_part *to = kvpi_layout_part(dst, index);
    const size_t element = kvpi_layout_element_bytes(src, index);
    struct kvpi_strip_shape shape = {.run_bytes = from->run * element,
                                     .n_pieces = 1,
                                     .src_block_stride = from->block_stride,
                                     .dst_block_stride = to->block_stride};
    if (from->run == to->run) {
        add_strip_dim(&shape, (struct kvpi_strip_dim){from->size / from->run, 0, from->run_stride,
                                                      to->run_stride});
    } else {
        const uint32_t run = greatest_divisor(from->run, to->run);
        shape.run_bytes = run * element;
        shape.n_pieces = from->size / run;
        shape.src_run_bytes = from->run * element;
        shape.src_run_stride = from->run_stride;
        shape.dst_run_bytes = to->run * element;
        shape.dst_run_stride = to->run_stride;
    }
    if (index < 2) {
        add_strip_dim(&shape, (struct kvpi_strip_dim){src->block_tokens, 1, from->token_stride,
                                                      to->token_stride});
    }
    add_strip_dim(&shape,
                  (struct kvpi_strip_dim){src->n_heads, 0, from->head_stride, to->head_stride});
    return shape;
}

uint32_t kvpi_strips_count(const kvp_layout *layout)
{
    uint32_t n = 0;
    for (int i = 0; i < KVPI_PARTS; i++) {
        n += kvpi_layout_part(layout, i)->size ? layout->n_layers : 0;
    }
    return n;
}

/* Shell's sort: a few thousand at most, once. */
static void sort_by_source(struct kvpi_strip *strips, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n; i++) {
            const struct kvpi_strip strip = strips[i];
            uint32_t at = i;
            for (; at >= gap && (uintptr_t)strips[at - gap].src > (uintptr_t)strip.src; at -= gap) {
                strips[at] = strips[at - gap];
            }
            strips[at] = strip;
        }
    }
}

void kvpi_strips_make(const kvp_memory *src, const kvp_memory *dst, struct kvpi_strip *strips,
                      struct kvpi_strips *out)
{
    out->strips = strips;
    out->n = 0;
    for (int i = 0; i < KVPI_PARTS; i++) {
        if (kvpi_layout_part(&src->layout, i)->size == 0) {
            continue;
        }
        out->shapes[i] = make_shape(&src->layout, &dst->layout, i);
        for (uint32_t layer = 0; layer < src->layout.n_layers; layer++) {
            strips[out->n++] = (struct kvpi_strip){kvpi_memory_base(src, i, layer),
                                                   kvpi_memory_base(dst, i, layer), (uint32_t)i};
        }
    }
    sort_by_source(strips, out->n);
}

static void copy_row(const struct kvpi_strip_shape *shape, unsigned char *dst,
                     const unsigned char *src, struct kvpi_chunks *chunks)
{
    for (uint32_t i = 0; i < shape->n_pieces; i++) {
        const size_t at = i * shape->run_bytes;
        kvpi_chunks_add(
            chunks,
            dst + at / shape->dst_run_bytes * shape->dst_run_stride + at % shape->dst_run_bytes,
            src + at / shape->src_run_bytes * shape->src_run_stride + at % shape->src_run_bytes,
            shape->run_bytes);
    }
}

/* The dimensions from `n` - 1 down to `first` are loops; below, `bytes` lie side by side. */
static void copy_dims(const struct kvpi_strip_shape *shape, const uint32_t *counts, uint32_t first,
                      size_t bytes, struct kvpi_chunk at, struct kvpi_chunks *chunks)
{
    uint32_t index[3] = {0, 0, 0};
    for (;;) {
        unsigned char *dst = at.dst;
        const unsigned char *src = at.src;
        uint32_t i = first;
        for (uint32_t d = first; d < shape->n_dims; d++) {
            dst += index[d] * shape->dims[d].dst_stride;
            src += index[d] * shape->dims[d].src_stride;
        }
        if (shape->n_pieces > 1) {
            copy_row(shape, dst, src, chunks);
        } else {
            kvpi_chunks_add(chunks, dst, src, bytes);
        }
        while (i < shape->n_dims && ++index[i] == counts[i]) {
            index[i++] = 0;
        }
        if (i == shape->n_dims) {
            return;
        }
    }
}

void kvpi_strips_copy(const struct kvpi_strips *strips, uint32_t i, const kvp_copy *copy,
                      struct kvpi_chunks *chunks)
{
    const struct kvpi_strip *strip = &strips->strips[i];
    const struct kvpi_strip_shape *shape = &strips->shapes[strip->shape];
    const struct kvpi_chunk at = {strip->dst + (size_t)copy->dst_block * shape->dst_block_stride,
                                  strip->src + (size_t)copy->src_block * shape->src_block_stride,
                                  0};
    uint32_t counts[3] = {0, 0, 0};
    uint32_t first = 0;
    size_t bytes = shape->run_bytes;
    for (uint32_t d = 0; d < shape->n_dims; d++) {
        counts[d] = shape->dims[d].is_tokens ? copy->n_tokens : shape->dims[d].count;
    }
    while (shape->n_pieces == 1 && first < shape->n_dims &&
           (counts[first] == 1 ||
            (shape->dims[first].src_stride == bytes && shape->dims[first].dst_stride == bytes))) {
        bytes *= counts[first++];
    }
    copy_dims(shape, counts, first, bytes, at, chunks);
}

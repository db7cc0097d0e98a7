/* shape: are pointers, strides and layers fit to be used? */
#ifndef KVPI_SHAPE_H
#define KVPI_SHAPE_H

#include "kvpager/attention.h"

/* The extent of a tensor of vectors. */
struct kvpi_shape {
    uint32_t n_tokens;
    uint32_t n_heads;
    uint32_t dims;
};

/* Neither NULL nor misaligned for elements of `align` bytes. */
static inline int kvpi_is_aligned(const void *pointer, size_t align)
{
    return pointer != NULL && (uintptr_t)pointer % align == 0;
}

/* One that exists, and that this processor can run. */
int kvpi_impl_is_valid(uint32_t impl);

/* Do a layer's numbers make no sense, as far as that can be told without knowing its tensors? `why`
 * (base/why.h) says which. */
int kvpi_layer_wrong(const kvp_layer *layer, kvp_why *why);

/* A tensor that may be read: data is there (unless no vector is), and nothing wraps around. */
int kvpi_rows_are_valid(const kvp_rows *rows, const struct kvpi_shape *shape);

/* One that may be written: and no two elements lie in the same place. */
int kvpi_rows_out_are_valid(const kvp_rows_out *rows, const struct kvpi_shape *shape);

/* Strides with the default resolved. */
void kvpi_rows_resolve(kvp_rows *rows, const struct kvpi_shape *shape);
void kvpi_rows_out_resolve(kvp_rows_out *rows, const struct kvpi_shape *shape);

/* The vector of a token and head; strides resolved. */
static inline const float *kvpi_shape_row(const kvp_rows *rows, uint32_t token, uint32_t head)
{
    return rows->data + token * rows->token_stride + head * rows->head_stride;
}

static inline float *kvpi_row_out(const kvp_rows_out *rows, uint32_t token, uint32_t head)
{
    return rows->data + token * rows->token_stride + head * rows->head_stride;
}

#endif

/* shape: what can be told of pointers and strides before anything is read through them.
 *
 * Tensors are [tokens, heads, dims] with the elements of a vector side by side. Two strides nest
 * when the larger one covers all that the smaller one reaches; only then are all elements apart.
 * (Strides that interleave without meeting exist; such tensors do not occur, and are refused.)
 */
#include "attention/shape.h"

#include "attention/fast/kernels.h"
#include "base/why.h"

int kvpi_impl_is_valid(uint32_t impl)
{
    return impl == KVP_ATTENTION_REFERENCE || kvpi_kernels_find(impl) != NULL;
}

/* ----------------------------------------------------------------------------------------
 * layers */

static int is_part_valid(const kvp_layer_part *part, uint32_t type)
{
    const size_t element = type == KVP_Q8_0 ? sizeof(uint16_t) : kvp_type_bytes(type);
    if (type == KVP_Q8_0 && (part->size % KVP_Q8_0_ELEMENTS != 0 || part->run != part->size))
        return 0;
    if (part->size < 1 || part->size > KVP_HEAD_SIZE_MAX || part->run < 1 ||
        part->size % part->run != 0)
        return 0;
    if ((uintptr_t)part->base % element != 0 || part->block_stride % element != 0 ||
        part->token_stride % element != 0 || part->head_stride % element != 0 ||
        (part->run != part->size && part->run_stride % element != 0))
        return 0;
    if (part->scales == NULL)
        return 1;
    return (type == KVP_INT8 || type == KVP_E4M3) && (uintptr_t)part->scales % sizeof(float) == 0 &&
           part->scale_block_stride % sizeof(float) == 0 &&
           part->scale_head_stride % sizeof(float) == 0;
}

int kvpi_layer_wrong(const kvp_layer *layer, kvp_why *why)
{
    if (kvpi_why_if(why, layer == NULL, "layer", NULL, "is NULL"))
        return 1;
    return kvpi_why_range(why, "layer.type", layer->type, KVP_F32, KVP_Q8_0) ||
           kvpi_why_range(why, "layer.n_blocks", layer->n_blocks, 2, INT32_MAX) ||
           kvpi_why_range(why, "layer.block_tokens", layer->block_tokens, 1,
                          KVP_BLOCK_TOKENS_MAX) ||
           kvpi_why_range(why, "layer.n_heads", layer->n_heads, 1, KVP_HEADS_MAX) ||
           kvpi_why_if(why, layer->k.base == NULL || !is_part_valid(&layer->k, layer->type),
                       "layer.k", NULL, "no memory, or strides or sizes that cannot be") ||
           kvpi_why_if(why, layer->type == KVP_Q8_0 && layer->v.base == NULL, "layer.v", NULL,
                       "q8_0 needs a V") ||
           kvpi_why_if(why, layer->v.base != NULL && !is_part_valid(&layer->v, layer->type),
                       "layer.v", NULL, "strides or sizes that cannot be");
}

/* ---------------------------------------------------------------------------------------
 * tensors */

static void resolve_shape(size_t *token_stride, size_t *head_stride, const struct kvpi_shape *shape)
{
    if (*token_stride != 0 || *head_stride != 0)
        return;
    *head_stride = shape->dims;
    *token_stride = (size_t)shape->n_heads * shape->dims;
}

void kvpi_rows_resolve(kvp_rows *rows, const struct kvpi_shape *shape)
{
    resolve_shape(&rows->token_stride, &rows->head_stride, shape);
}

void kvpi_rows_out_resolve(kvp_rows_out *rows, const struct kvpi_shape *shape)
{
    resolve_shape(&rows->token_stride, &rows->head_stride, shape);
}

/* reach += (n - 1) * stride, in elements of f32; 0 when the bytes do not fit. */
static int extend_reach(size_t *reach, uint32_t n, size_t stride)
{
    if (n <= 1)
        return 1;
    const size_t most = PTRDIFF_MAX / sizeof(float) - *reach;
    if (stride > most / (n - 1))
        return 0;
    *reach += (n - 1) * stride;
    return 1;
}

/* Elements from the first to behind the last; 0 when that does not fit. */
static size_t reach_of(const kvp_rows *rows, const struct kvpi_shape *shape)
{
    size_t reach = shape->dims;
    if (!extend_reach(&reach, shape->n_heads, rows->head_stride) ||
        !extend_reach(&reach, shape->n_tokens, rows->token_stride))
        return 0;
    return reach;
}

static int is_empty(const struct kvpi_shape *shape)
{
    return shape->n_tokens == 0 || shape->n_heads == 0;
}

int kvpi_rows_are_valid(const kvp_rows *rows, const struct kvpi_shape *shape)
{
    kvp_rows resolved = *rows;
    if (is_empty(shape))
        return 1;
    kvpi_rows_resolve(&resolved, shape);
    const size_t reach = reach_of(&resolved, shape);
    return reach != 0 && kvpi_is_aligned(rows->data, sizeof(float)) &&
           reach * sizeof(float) <= UINTPTR_MAX - (uintptr_t)rows->data;
}

static int are_apart(const kvp_rows *rows, const struct kvpi_shape *shape)
{
    struct {
        uint32_t n;
        size_t stride;
    } inner = {shape->n_heads, rows->head_stride}, outer = {shape->n_tokens, rows->token_stride};
    if (outer.n > 1 && (inner.n <= 1 || outer.stride < inner.stride)) {
        inner.n = shape->n_tokens;
        inner.stride = rows->token_stride;
        outer.n = shape->n_heads;
        outer.stride = rows->head_stride;
    }
    if (inner.n > 1 && inner.stride < shape->dims)
        return 0;
    return outer.n <= 1 || outer.stride >= (inner.n - 1) * inner.stride + shape->dims;
}

int kvpi_rows_out_are_valid(const kvp_rows_out *rows, const struct kvpi_shape *shape)
{
    kvp_rows resolved = {rows->data, rows->token_stride, rows->head_stride};
    if (is_empty(shape))
        return 1;
    kvpi_rows_resolve(&resolved, shape);
    return kvpi_rows_are_valid(&resolved, shape) && are_apart(&resolved, shape);
}

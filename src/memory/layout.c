/* layout: is a description of strides right, and what part of it is a device's.
 *
 * A part is a box of elements: for each dimension a count and a stride, and innermost a run of
 * bytes that lie side by side. Boxes in one tensor must not overlap, neither themselves nor each
 * other. In general that is a hard question about integers; the boxes that come from tensors are
 * nested, and then it is easy:
 *
 *   I1  ordered by stride, each stride is at least the span of what lies inside it. So the elements
 *       of one box are apart, and a box's span is known:
 *
 *         stride 48  |aaaa aaaa aaaa      |aaaa aaaa aaaa      |     span = (2-1) 48 + (3-1) 5 + 4
 *         stride 5    |    |    |
 *
 *   I2  two boxes that begin `delta` bytes apart are apart if their spans are; else if their
 *       outermost strides are equal, and so are the boxes inside at every distance that is
 *       possible: by I1 these are delta modulo stride, and that minus one stride.
 *
 * Dimensions of count 1 take no part. Layers are a dimension where one tensor has them all;
 * otherwise a tensor has at most one layer of each part.
 */
#include "memory/layout.h"
#include "base/sized.h"
#include "base/why.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_DIMS = 5 }; /* layer, block, token, head, run */

struct dim {
    uint64_t count;
    uint64_t stride;
};

struct box {
    struct dim dims[MAX_DIMS];    /* ascending by stride */
    uint64_t spans[MAX_DIMS + 1]; /* [i] of the dimensions before i, and the run */
    int n_dims;
};

static bool add_overflows(uint64_t a, uint64_t b, uint64_t *out_sum)
{
    return __builtin_add_overflow(a, b, out_sum);
}

static bool multiply_overflows(uint64_t a, uint64_t b, uint64_t *out_product)
{
    return __builtin_mul_overflow(a, b, out_product);
}

void kvp_layout_init(kvp_layout *layout)
{
    if (layout == NULL)
        return;
    *layout = (kvp_layout){.struct_size = sizeof(*layout)};
}

/* ----------------------------------------------------------------------------------- one box */

static void add_dim(struct box *box, uint64_t count, uint64_t stride)
{
    int at = box->n_dims;
    if (count == 1) {
        return;
    }
    for (; at > 0 && box->dims[at - 1].stride > stride; at--) {
        box->dims[at] = box->dims[at - 1];
    }
    box->dims[at] = (struct dim){count, stride};
    box->n_dims++;
}

/* The box of a part, all its layers if they are in one tensor. Gives what is wrong with it (I1). */
static const char *make_box(const kvp_layout *layout, int part_index, struct box *box)
{
    const kvp_part *part = kvpi_layout_part(layout, part_index);
    const size_t element = kvpi_layout_element_bytes(layout, part_index);
    box->n_dims = 0;
    add_dim(box, part->tensor_step == 0 ? layout->n_layers : 1, part->layer_stride);
    add_dim(box, layout->n_blocks, part->block_stride);
    add_dim(box, part_index < 2 ? layout->block_tokens : 1, part->token_stride);
    add_dim(box, layout->n_heads, part->head_stride);
    add_dim(box, part->size / part->run, part->run_stride);
    uint64_t span = part->run * element;
    for (int i = 0; i < box->n_dims; i++) {
        const struct dim *dim = &box->dims[i];
        uint64_t reach;
        if (dim->stride % element != 0) {
            return "a stride does not keep elements aligned";
        }
        if (dim->stride < span) {
            return "strides overlap";
        }
        box->spans[i] = span;
        if (multiply_overflows(dim->count - 1, dim->stride, &reach) ||
            add_overflows(span, reach, &span)) {
            return "the strides reach further than memory does";
        }
    }
    box->spans[box->n_dims] = span;
    return NULL;
}

/* Does every layer of the part lie inside its tensor? */
static const char *check_extent(const kvp_layout *layout, const kvp_part *part,
                                const struct box *box)
{
    const uint64_t last_layer = layout->n_layers - 1;
    uint64_t end = box->spans[box->n_dims];
    uint64_t layers = 0;
    if (part->tensor + last_layer * part->tensor_step >= layout->n_tensors) {
        return "a part names a tensor that there is not";
    }
    if (part->tensor_bytes > PTRDIFF_MAX) {
        return "a tensor is larger than memory";
    }
    if (add_overflows(end, part->offset, &end) ||
        (part->tensor_step > 0 && (multiply_overflows(last_layer, part->layer_stride, &layers) ||
                                   add_overflows(end, layers, &end))) ||
        end > part->tensor_bytes) {
        return "a part does not fit its tensor";
    }
    return NULL;
}

static const char *check_part(const kvp_layout *layout, int part_index, struct box *out_box)
{
    const kvp_part *part = kvpi_layout_part(layout, part_index);
    const size_t element = kvpi_layout_element_bytes(layout, part_index);
    if (part->run == 0 || part->run > part->size || part->size % part->run != 0) {
        return "run does not divide size";
    }
    if (part->offset % element != 0 ||
        (layout->n_layers > 1 && part->layer_stride % element != 0)) {
        return "an offset does not keep elements aligned";
    }
    const char *why = make_box(layout, part_index, out_box);
    return why ? why : check_extent(layout, part, out_box);
}

/* ----------------------------------------------------------------------------------- two boxes */

/* I2, for the dimensions below a and b; box b begins delta bytes after box a. */
static bool boxes_apart(const struct box *box_a, int a, const struct box *box_b, int b,
                        int64_t delta)
{
    if (delta >= (int64_t)box_a->spans[a] || -delta >= (int64_t)box_b->spans[b]) {
        return true;
    }
    if (a == 0 || b == 0 || box_a->dims[a - 1].stride != box_b->dims[b - 1].stride) {
        return false;
    }
    const int64_t stride = (int64_t)box_a->dims[a - 1].stride;
    const int64_t most = (int64_t)box_a->dims[a - 1].count - 1;
    const int64_t least = -((int64_t)box_b->dims[b - 1].count - 1);
    int64_t steps = delta / stride;
    steps -= delta % stride < 0;
    for (int64_t k = steps; k <= steps + 1; k++) {
        if (k >= least && k <= most &&
            !boxes_apart(box_a, a - 1, box_b, b - 1, delta - k * stride)) {
            return false;
        }
    }
    return true;
}

/* The place of a layer of a part in its tensor. */
static int64_t layer_offset(const kvp_part *part, uint64_t layer)
{
    return (int64_t)(part->offset + layer * part->layer_stride);
}

/* The layer of a part that lies in a tensor; 0 where all do, or -1. */
static int64_t layer_in(const kvp_layout *layout, const kvp_part *part, uint64_t tensor)
{
    if (tensor < part->tensor) {
        return -1;
    }
    if (part->tensor_step == 0) {
        return tensor == part->tensor ? 0 : -1;
    }
    const uint64_t layer = (tensor - part->tensor) / part->tensor_step;
    return (tensor - part->tensor) % part->tensor_step == 0 && layer < layout->n_layers
               ? (int64_t)layer
               : -1;
}

static const char *check_pair(const kvp_layout *layout, const kvp_part *a, const struct box *box_a,
                              const kvp_part *b, const struct box *box_b)
{
    const uint32_t n_tensors = a->tensor_step == 0 ? 1 : layout->n_layers;
    for (uint32_t i = 0; i < n_tensors; i++) {
        const uint64_t tensor = a->tensor + (uint64_t)i * a->tensor_step;
        const int64_t layer = layer_in(layout, b, tensor);
        if (layer < 0) {
            continue;
        }
        if (a->tensor_bytes != b->tensor_bytes) {
            return "two parts of a tensor differ in its bytes";
        }
        const int64_t delta = layer_offset(b, (uint64_t)layer) - layer_offset(a, i);
        if (!boxes_apart(box_a, box_a->n_dims, box_b, box_b->n_dims, delta)) {
            return "two parts overlap, or cannot be shown apart";
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ the whole */

int kvpi_layout_shape_wrong(const kvp_layout *layout, kvp_why *why)
{
    const int is_state = layout->type == KVP_BYTES;
    const uint64_t most = is_state ? KVP_STATE_BYTES_MAX : KVP_HEAD_SIZE_MAX;
    return (!is_state && kvpi_why_range(why, "type", layout->type, KVP_F32, KVP_E4M3)) ||
           kvpi_why_range(why, "n_blocks", layout->n_blocks, 2, INT32_MAX) ||
           kvpi_why_range(why, "block_tokens", layout->block_tokens, 1,
                          is_state ? 1 : KVP_BLOCK_TOKENS_MAX) ||
           kvpi_why_range(why, "n_layers", layout->n_layers, 1, KVP_LAYERS_MAX) ||
           kvpi_why_range(why, "n_heads", layout->n_heads, 1, KVP_HEADS_MAX) ||
           kvpi_why_range(why, "k.size", layout->k.size, 1, most) ||
           kvpi_why_range(why, "v.size", layout->v.size, 0, most) ||
           kvpi_why_range(why, "first_layer", layout->first_layer, 0,
                          UINT32_MAX - layout->n_layers) ||
           kvpi_why_range(why, "first_head", layout->first_head, 0, UINT32_MAX - layout->n_heads);
}

static int scales_wrong(const kvp_layout *layout, kvp_why *why)
{
    const kvp_part *k = &layout->k_scales;
    const kvp_part *v = &layout->v_scales;
    const char *which = k->size ? "k_scales" : "v_scales";
    return kvpi_why_range(why, "k_scales.size", k->size, 0, 1) ||
           kvpi_why_range(why, "v_scales.size", v->size, 0, 1) ||
           kvpi_why_range(why, "k_scales.token_stride", k->size ? k->token_stride : 0, 0, 0) ||
           kvpi_why_range(why, "v_scales.token_stride", v->size ? v->token_stride : 0, 0, 0) ||
           kvpi_why_if(why, v->size && layout->v.size == 0, "v_scales", NULL,
                       "scales of a V that there is not") ||
           kvpi_why_if(why, (k->size || v->size) && !kvpi_type_has_scales(layout->type), which,
                       NULL, "the type has no scales");
}

/* The parts, one by one and in pairs; each with those before it. */
static int parts_wrong(const kvp_layout *layout, kvp_why *why)
{
    static const char *const names[KVPI_PARTS] = {"k", "v", "k_scales", "v_scales"};
    struct box boxes[KVPI_PARTS];
    for (int a = 0; a < KVPI_PARTS; a++) {
        const kvp_part *part = kvpi_layout_part(layout, a);
        if (part->size == 0) {
            continue;
        }
        const char *text = check_part(layout, a, &boxes[a]);
        for (int b = 0; !text && b < a; b++) {
            const kvp_part *other = kvpi_layout_part(layout, b);
            if (other->size) {
                text = check_pair(layout, part, &boxes[a], other, &boxes[b]);
            }
        }
        if (kvpi_why_if(why, text != NULL, names[a], NULL, text)) {
            return 1;
        }
    }
    return 0;
}

int kvpi_layout_wrong(const kvp_layout *layout, kvp_why *why)
{
    return kvpi_layout_shape_wrong(layout, why) ||
           kvpi_why_range(why, "n_tensors", layout->n_tensors, 1, 4 * KVP_LAYERS_MAX) ||
           scales_wrong(layout, why) || parts_wrong(layout, why);
}

kvp_status kvp_layout_check(const kvp_layout *layout, kvp_why *out_why)
{
    const kvp_layout *known = kvpi_sized(layout, sizeof(*layout));
    kvpi_why_clear(out_why);
    return kvpi_why_missing(out_why, layout, known, "layout") || kvpi_layout_wrong(known, out_why)
               ? KVP_E_ARG
               : KVP_OK;
}

/* --------------------------------------------------------------------------------------- slices */

static void slice_part(kvp_part *part, uint32_t layers, uint32_t heads)
{
    if (part->size) {
        part->tensor += layers * part->tensor_step;
        part->offset += layers * part->layer_stride + heads * part->head_stride;
    }
}

kvp_status kvp_layout_slice(const kvp_layout *layout, const kvp_slice *slice, kvp_layout *out_slice)
{
    layout = kvpi_sized(layout, sizeof(*layout));
    if (!layout || !slice || !out_slice || kvpi_layout_wrong(layout, NULL)) {
        return KVP_E_ARG;
    }
    const uint64_t layers = (uint64_t)slice->first_layer - layout->first_layer;
    const uint64_t heads = (uint64_t)slice->first_head - layout->first_head;
    if (slice->first_layer < layout->first_layer || slice->first_head < layout->first_head ||
        slice->n_layers == 0 || slice->n_heads == 0 ||
        layers + slice->n_layers > layout->n_layers || heads + slice->n_heads > layout->n_heads) {
        return KVP_E_ARG;
    }
    kvp_layout result = *layout;
    result.first_layer = slice->first_layer;
    result.n_layers = slice->n_layers;
    result.first_head = slice->first_head;
    result.n_heads = slice->n_heads;
    slice_part(&result.k, (uint32_t)layers, (uint32_t)heads);
    slice_part(&result.v, (uint32_t)layers, (uint32_t)heads);
    slice_part(&result.k_scales, (uint32_t)layers, (uint32_t)heads);
    slice_part(&result.v_scales, (uint32_t)layers, (uint32_t)heads);
    *out_slice = result;
    return KVP_OK;
}

uint64_t kvp_layout_block_bytes(const kvp_layout *layout)
{
    layout = kvpi_sized(layout, sizeof(*layout));
    if (!layout) {
        return 0;
    }
    const uint64_t rows = (uint64_t)layout->n_heads * layout->n_layers;
    const uint64_t elements = ((uint64_t)layout->k.size + layout->v.size) * layout->block_tokens;
    const uint64_t scales = (uint64_t)layout->k_scales.size + layout->v_scales.size;
    return rows * (elements * kvp_type_bytes(layout->type) + scales * sizeof(float));
}

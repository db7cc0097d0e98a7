/* layer: K and V of single tokens as f32, in and out. */
#include "memory/layer.h"

#include <float.h>

#include "memory/convert.h"

void kvpi_layer_raise_scale(const kvp_layer *layer, const kvp_layer_part *part, uint64_t block,
                            uint32_t head, float scale)
{
    float *at = kvpi_layer_scale(part, block, head);
    const float before = *at;
    for (uint32_t token = 0; token < layer->block_tokens; token++) {
        const int64_t slot = (int64_t)(block * layer->block_tokens + token);
        const struct kvpi_row row = kvpi_layer_row(layer, part, slot, head);
        for (uint32_t i = 0; i < row.n_runs; i++) {
            kvpi_convert_rescale(layer->type, before, scale, row.run, row.at + i * row.run_stride);
        }
    }
    *at = scale;
}

static const kvp_layer_part *part_of_slice(const kvp_layer *layer, int which, int64_t slot,
                                           uint32_t head)
{
    if (!layer || layer->type == KVP_BYTES || (which != KVP_K && which != KVP_V) || slot < 0 ||
        layer->block_tokens == 0 || slot / layer->block_tokens >= layer->n_blocks ||
        head >= layer->n_heads) {
        return NULL;
    }
    const kvp_layer_part *part = which == KVP_K ? &layer->k : &layer->v;
    return part->base ? part : NULL;
}

kvp_status kvp_layer_read(const kvp_layer *layer, int which, int64_t slot, uint32_t head,
                          float *out_values)
{
    const kvp_layer_part *part = part_of_slice(layer, which, slot, head);
    if (!part || !out_values) {
        return KVP_E_ARG;
    }
    const struct kvpi_row row = kvpi_layer_row(layer, part, slot, head);
    const uint64_t block = (uint64_t)slot / layer->block_tokens;
    const float scale = part->scales ? *kvpi_layer_scale(part, block, head) : 1;
    for (uint32_t i = 0; i < row.n_runs; i++) {
        kvpi_convert_read(layer->type, scale, row.at + i * row.run_stride, row.run,
                          out_values + (size_t)i * row.run);
    }
    return KVP_OK;
}

/* The scale that the block and head has when a token with these values has come to it. */
static float settle_scale(const kvp_layer *layer, const kvp_layer_part *part, int64_t slot,
                          uint32_t head, const float *values)
{
    if (!part->scales) {
        return 1;
    }
    const uint64_t block = (uint64_t)slot / layer->block_tokens;
    float *at = kvpi_layer_scale(part, block, head);
    const float needed = kvp_type_scale(layer->type, kvpi_convert_max_abs(values, part->size));
    if (slot % layer->block_tokens == 0) {
        *at = needed;
    } else if (!(*at >= needed && *at <= FLT_MAX)) {
        kvpi_layer_raise_scale(layer, part, block, head, needed);
    }
    return *at;
}

kvp_status kvp_layer_write(const kvp_layer *layer, int which, int64_t slot, uint32_t head,
                           const float *values)
{
    const kvp_layer_part *part = part_of_slice(layer, which, slot == KVP_NO_SLOT ? 0 : slot, head);
    if (!part || !values || layer->type == KVP_Q8_0) {
        return KVP_E_ARG;
    }
    if (slot == KVP_NO_SLOT) {
        return KVP_OK;
    }
    const float scale = settle_scale(layer, part, slot, head, values);
    const struct kvpi_row row = kvpi_layer_row(layer, part, slot, head);
    for (uint32_t i = 0; i < row.n_runs; i++) {
        kvpi_convert_write(layer->type, scale, values + (size_t)i * row.run, row.run,
                           row.at + i * row.run_stride);
    }
    return KVP_OK;
}

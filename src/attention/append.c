/* append: see append.h. A token's turn is worked out once for all heads. What vectors do not do
 * (rows in runs, e4m3, a scale that rises, NaN) goes through kvp_layer_write. */
#include "attention/append.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "attention/shape.h"

void kvpi_fast_append_scratch(struct kvpi_fast_append *out, const kvp_append *append,
                              struct kvpi_scratch *scratch)
{
    const uint32_t dims = append->layer->k.size;
    const int turns = append->rope.mode == KVP_ROPE_AT_WRITE;
    const uint64_t n_pairs = turns ? kvpi_rope_pairs(&append->rope, dims) : 0;
    out->frequencies = kvpi_scratch_take(scratch, n_pairs, sizeof *out->frequencies);
    out->turn = kvpi_scratch_take(scratch, 2 * n_pairs, sizeof *out->turn);
    out->row = kvpi_scratch_take(scratch, turns ? dims : 0, sizeof *out->row);
}

static void set_turn(const struct kvpi_rope *rope, double position, double *turn)
{
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        const double angle = position * rope->frequencies[pair];
        turn[2 * (size_t)pair] = cos(angle) * rope->magnitude;
        turn[2 * (size_t)pair + 1] = sin(angle) * rope->magnitude;
    }
}

static const float *turned_key(const struct kvpi_rope *rope, const double *turn, const float *row,
                               uint32_t dims, float *out)
{
    const uint32_t step = rope->is_interleaved ? 2 : 1;
    const uint32_t apart = rope->is_interleaved ? 1 : rope->n_pairs;
    for (uint32_t e = 0; e < dims; e++)
        out[e] = row[e];
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        const size_t at = rope->first_dim + (size_t)pair * step;
        const double x = row[at], y = row[at + apart];
        const double c = turn[2 * (size_t)pair], s = turn[2 * (size_t)pair + 1];
        out[at] = (float)(x * c - y * s);
        out[at + apart] = (float)(x * s + y * c);
    }
    return out;
}

/* The scale that the block has with this row in it; 0: it has to rise, which is not done here. */
static float settle_append_scale(const kvp_layer *layer, const kvp_layer_part *part, int64_t slot,
                                 uint32_t head, float largest)
{
    unsigned char *scales = (unsigned char *)(void *)part->scales;
    const uint64_t block = (uint64_t)slot / layer->block_tokens;
    if (scales == NULL)
        return 1.0f;
    float *at = (float *)(void *)(scales + block * part->scale_block_stride +
                                  head * part->scale_head_stride);
    const float needed = kvp_type_scale(layer->type, largest);
    if (slot % layer->block_tokens == 0)
        *at = needed;
    return *at >= needed && *at <= FLT_MAX ? *at : 0.0f;
}

/* 0: nothing was written. */
static int write_fast(const kvp_layer *layer, const struct kvpi_kernels *kernels,
                      const kvp_layer_part *part, int64_t slot, const float *row, uint32_t head)
{
    unsigned char *at = part->base + (uint64_t)slot / layer->block_tokens * part->block_stride +
                        (uint64_t)slot % layer->block_tokens * part->token_stride +
                        head * part->head_stride;
    if (part->run != part->size || layer->type == KVP_E4M3)
        return 0;
    if (layer->type != KVP_INT8)
        return kernels->write(layer->type, row, part->size, at);
    const float largest = kernels->largest(row, part->size);
    if (!(largest <= FLT_MAX))
        return 0;
    const float scale = settle_append_scale(layer, part, slot, head, largest);
    if (scale == 0.0f)
        return 0;
    kernels->write_int8(row, scale, part->size, (int8_t *)at);
    return 1;
}

static void write_appended_row(const kvp_layer *layer, const struct kvpi_kernels *kernels,
                               int which, int64_t slot, const float *row, uint32_t head)
{
    const kvp_layer_part *part = which == KVP_V ? &layer->v : &layer->k;
    if (write_fast(layer, kernels, part, slot, row, head))
        return;
    const kvp_status status = kvp_layer_write(layer, which, slot, head, row);
    assert(status == KVP_OK); /* everything was checked */
    (void)status;
}

void kvpi_fast_append(const kvp_append *append, const struct kvpi_kernels *kernels,
                      const struct kvpi_fast_append *scratch)
{
    const kvp_layer *layer = append->layer;
    const int turns = append->rope.mode == KVP_ROPE_AT_WRITE;
    struct kvpi_rope rope = {.n_pairs = 0};
    if (turns)
        kvpi_rope_make(&rope, &append->rope, layer->k.size, scratch->frequencies);
    for (uint32_t token = 0; token < append->n_tokens; token++) {
        const int64_t slot = append->slots[token];
        if (slot == KVP_NO_SLOT)
            continue;
        if (turns)
            set_turn(&rope, append->positions[token], scratch->turn);
        for (uint32_t head = 0; head < layer->n_heads; head++) {
            const float *row = kvpi_shape_row(&append->k, token, head);
            if (turns)
                row = turned_key(&rope, scratch->turn, row, layer->k.size, scratch->row);
            write_appended_row(layer, kernels, KVP_K, slot, row, head);
            if (layer->v.base != NULL)
                write_appended_row(layer, kernels, KVP_V, slot,
                                   kvpi_shape_row(&append->v, token, head), head);
        }
    }
}

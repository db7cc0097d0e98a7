/* layer: single tokens of one layer. Where they lie, and how they change their scale. */
#ifndef KVPI_LAYER_H
#define KVPI_LAYER_H

#include <kvpager/memory.h>

/* K or V of one token and head: runs of elements, the first one at `at`. */
struct kvpi_row {
    unsigned char *at;
    size_t run_bytes;
    size_t run_stride;
    uint32_t run;    /* elements */
    uint32_t n_runs; /* n_runs x run = size */
};

static inline struct kvpi_row kvpi_layer_row(const kvp_layer *layer, const kvp_layer_part *part,
                                             int64_t slot, uint32_t head)
{
    const uint64_t block = (uint64_t)slot / layer->block_tokens;
    const uint64_t token = (uint64_t)slot % layer->block_tokens;
    return (struct kvpi_row){part->base + block * part->block_stride + token * part->token_stride +
                                 head * part->head_stride,
                             part->run * kvp_type_bytes(layer->type), part->run_stride, part->run,
                             part->size / part->run};
}

/* The scale of a block and head, of a part that has scales. */
static inline float *kvpi_layer_scale(const kvp_layer_part *part, uint64_t block, uint32_t head)
{
    unsigned char *scales = (unsigned char *)(void *)part->scales;
    return (float *)(void *)(scales + block * part->scale_block_stride +
                             head * part->scale_head_stride);
}

/* Give a block and head a larger scale, and round all its slots to it. */
void kvpi_layer_raise_scale(const kvp_layer *layer, const kvp_layer_part *part, uint64_t block,
                            uint32_t head, float scale);

#endif

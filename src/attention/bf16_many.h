/* bf16_many: K and V of bf16 for many queries: made f32 once a tile, then as in many_rows.h.
 *
 * work: [dims, 64] K, then [64, v_dims] V. */
#ifndef KVPI_BF16_MANY_H
#define KVPI_BF16_MANY_H

#include "attention/bf16_wide.h"
#include "attention/many_rows.h"

static size_t kvpi_many_bf16_bytes(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * (dims + v_dims) * sizeof(float);
}

static void kvpi_scores_many_bf16(const struct kvpi_tile *tile, float *s)
{
    kvpi_scores_many(tile, KVP_BF16, s);
}

static void kvpi_values_many_bf16(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    float *memory = (float *)tile->work + (size_t)KVPI_TILE * tile->dims;
    const unsigned char *rows[KVPI_TILE];
    struct kvpi_tile wide = *tile;
    wide.v = (struct kvpi_tile_rows){.rows = rows};
    for (uint32_t i = 0; i < tile->n_keys; i++) {
        float *to = memory + (size_t)i * tile->v_dims;
        const unsigned char *from = tile->v.rows[i] + tile->v.offset;
        for (uint32_t e = 0; i % 4 == 0 && e < tile->v_dims; e += LINE / 2)
            kvpi_ask_four(tile->ahead);
        kvpi_read_elements(KVP_BF16, 1.0f, from, tile->v_dims, to);
        rows[i] = (const unsigned char *)to;
    }
    kvpi_sum_values_f32(&wide, weights, sums, 0);
}

static const struct kvpi_path kvpi_bf16_many_path = {.type = KVP_BF16,
                                                     .row_pad = MANY_ROWS,
                                                     .dims_pad = 32,
                                                     .slack = 8.0f,
                                                     .query_bytes = sizeof(float),
                                                     .work_bytes = kvpi_many_bf16_bytes,
                                                     .pack = kvpi_pack_many,
                                                     .scores = kvpi_scores_many_bf16,
                                                     .values = kvpi_values_many_bf16,
                                                     .few_rows = FEW_ROWS,
                                                     .few = &kvpi_bf16_wide_path};

#endif

/* narrow_many: many queries on K and V of f16, bf16, int8 and q8_0, in products of f32 as in
 * many_rows.h: K is made f32 as it is turned round, V once a tile. For few queries see narrow.h,
 * bf16_wide.h.
 *
 * work: [dims, 64] K, then [64, v_dims] V. */
#ifndef KVPI_NARROW_MANY_H
#define KVPI_NARROW_MANY_H

#include "attention/kernels/x86/bf16_wide.h"
#include "attention/fast/many_rows.h"
#include "attention/fast/narrow.h"

static void kvpi_scores_narrow_many(const struct kvpi_tile *tile, float *s)
{
    switch (tile->type) {
    case KVP_F16: kvpi_scores_many(tile, KVP_F16, s); break;
    case KVP_BF16: kvpi_scores_many(tile, KVP_BF16, s); break;
    case KVP_Q8_0: kvpi_scores_many(tile, KVP_Q8_0, s); break;
    default: kvpi_scores_many(tile, KVP_INT8, s); break;
    }
    if (tile->k.scales != NULL)
        kvpi_scale_keys(s, tile->n_rows, tile->k.scales, s);
}

#define NARROW_MANY_PATH(type_, dims_, few_)                                                       \
    {                                                                                              \
        .type = (type_), .row_pad = MANY_ROWS, .dims_pad = (dims_), .slack = 8.0f,                 \
        .query_bytes = sizeof(float), .work_bytes = kvpi_narrow_bytes, .pack = kvpi_pack_many,     \
        .scores = kvpi_scores_narrow_many, .values = kvpi_values_wide, .few_rows = NARROW_FEW,     \
        .few = (few_)                                                                              \
    }

static const struct kvpi_path kvpi_f16_many_path =
    NARROW_MANY_PATH(KVP_F16, LINE / 2, &kvpi_f16_narrow_path);
static const struct kvpi_path kvpi_bf16_many_path =
    NARROW_MANY_PATH(KVP_BF16, LINE / 2, &kvpi_bf16_wide_path);
static const struct kvpi_path kvpi_int8_many_path =
    NARROW_MANY_PATH(KVP_INT8, LINE, &kvpi_int8_narrow_path);
static const struct kvpi_path kvpi_q8_0_many_path =
    NARROW_MANY_PATH(KVP_Q8_0, KVP_Q8_0_ELEMENTS, &kvpi_q8_0_narrow_path);

#endif

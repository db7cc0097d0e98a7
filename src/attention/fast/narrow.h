/* narrow: K and V of f16, bf16, int8 and q8_0 in place, multiplied as f32. For processors that
 * convert them to f32 in an instruction or two, but cannot multiply them. For few queries the
 * conversion is in registers, for many queries once a tile.
 *
 * work: [64, dims] K, then [64, v_dims] V. */
#ifndef KVPI_NARROW_H
#define KVPI_NARROW_H

#include "attention/fast/kernels_body.h"

enum { NARROW_FEW = 8 };

/* Rows of scores or weights x their keys' scales. */
static void kvpi_scale_keys(const float *rows, uint32_t n_rows, const float *scales, float *out)
{
    for (uint32_t row = 0; row < n_rows; row++) {
        for (uint32_t key = 0; key < KVPI_TILE; key += LANES) {
            const size_t at = (size_t)row * KVPI_TILE + key;
            kvpi_vec_store(out + at,
                           kvpi_vec_mul(kvpi_vec_load(rows + at), kvpi_vec_load(scales + key)));
        }
    }
}

/* Rows in f32. */
struct kvpi_wide_rows {
    const unsigned char *rows[KVPI_TILE];
};

static struct kvpi_tile_rows kvpi_widen_rows(const struct kvpi_tile *tile,
                                             const struct kvpi_tile_rows *from, uint32_t dims,
                                             float *memory, struct kvpi_wide_rows *out)
{
    const uint32_t lines =
        dims * kvpi_element_bytes(tile->type) / LINE + (tile->type == KVP_Q8_0 ? 1 : 0);
    for (uint32_t i = 0; i < tile->n_keys; i++) {
        float *to = memory + (size_t)i * dims;
        for (uint32_t line = 0; i % 4 == 0 && line < lines; line++)
            kvpi_ask_four(tile->ahead);
        kvpi_read_elements(tile->type, from->scales != NULL ? from->scales[i] : 1.0f,
                           from->rows[i] + from->offset, dims, to);
        out->rows[i] = (const unsigned char *)to;
    }
    for (uint32_t i = tile->n_keys; i < KVPI_TILE; i++)
        out->rows[i] = (const unsigned char *)memory; /* the first key's */
    return (struct kvpi_tile_rows){.rows = out->rows};
}

/* --------------------------------------------------------------------------------------- scores */

static void kvpi_scores_in_registers(const struct kvpi_tile *tile, float *s)
{
    switch (tile->type) {
    case KVP_F16: kvpi_scores_of(tile, KVP_F16, 1, s); break;
    case KVP_BF16: kvpi_scores_of(tile, KVP_BF16, 1, s); break;
    case KVP_Q8_0: kvpi_scores_of(tile, KVP_Q8_0, 1, s); break;
    default: kvpi_scores_of(tile, KVP_INT8, 1, s); break;
    }
    if (tile->k.scales != NULL)
        kvpi_scale_keys(s, tile->n_rows, tile->k.scales, s);
}

static void kvpi_scores_wide(const struct kvpi_tile *tile, float *s)
{
    struct kvpi_wide_rows rows;
    struct kvpi_tile wide = *tile;
    wide.k = kvpi_widen_rows(tile, &tile->k, tile->dims, tile->work, &rows);
    kvpi_scores_of(&wide, KVP_F32, 0, s);
}

static void kvpi_scores_narrow(const struct kvpi_tile *tile, float *s)
{
    if (tile->n_rows <= NARROW_FEW)
        kvpi_scores_in_registers(tile, s);
    else
        kvpi_scores_wide(tile, s);
}

/* --------------------------------------------------------------------------------------- values */

static void kvpi_values_in_registers(const struct kvpi_tile *tile, const float *weights,
                                     float *sums)
{
    float scaled[NARROW_FEW * KVPI_TILE];
    if (tile->v.scales != NULL) {
        kvpi_scale_keys(weights, tile->n_rows, tile->v.scales, scaled);
        weights = scaled;
    }
    switch (tile->type) {
    case KVP_F16: kvpi_values_of(tile, KVP_F16, weights, sums, 1); break;
    case KVP_BF16: kvpi_values_of(tile, KVP_BF16, weights, sums, 1); break;
    case KVP_Q8_0: kvpi_values_of(tile, KVP_Q8_0, weights, sums, 1); break;
    default: kvpi_values_of(tile, KVP_INT8, weights, sums, 1); break;
    }
}

static void kvpi_values_wide(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    struct kvpi_wide_rows rows;
    struct kvpi_tile wide = *tile;
    float *memory = (float *)tile->work + (size_t)KVPI_TILE * tile->dims;
    wide.v = kvpi_widen_rows(tile, &tile->v, tile->v_dims, memory, &rows);
    kvpi_values_of(&wide, KVP_F32, weights, sums, 0);
}

static void kvpi_values_narrow(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    if (tile->n_rows <= NARROW_FEW)
        kvpi_values_in_registers(tile, weights, sums);
    else
        kvpi_values_wide(tile, weights, sums);
}

static size_t kvpi_narrow_bytes(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * (dims + v_dims) * sizeof(float);
}

static const struct kvpi_path kvpi_f16_narrow_path = {.type = KVP_F16,
                                                      .row_pad = ROWS,
                                                      .dims_pad = LINE / 2,
                                                      .slack = 8.0f,
                                                      .query_bytes = sizeof(float),
                                                      .work_bytes = kvpi_narrow_bytes,
                                                      .pack = kvpi_pack_f32,
                                                      .scores = kvpi_scores_narrow,
                                                      .values = kvpi_values_narrow};

static const struct kvpi_path kvpi_bf16_narrow_path = {.type = KVP_BF16,
                                                       .row_pad = ROWS,
                                                       .dims_pad = LINE / 2,
                                                       .slack = 8.0f,
                                                       .query_bytes = sizeof(float),
                                                       .work_bytes = kvpi_narrow_bytes,
                                                       .pack = kvpi_pack_f32,
                                                       .scores = kvpi_scores_narrow,
                                                       .values = kvpi_values_narrow};

static const struct kvpi_path kvpi_int8_narrow_path = {.type = KVP_INT8,
                                                       .row_pad = ROWS,
                                                       .dims_pad = LINE,
                                                       .slack = 8.0f,
                                                       .query_bytes = sizeof(float),
                                                       .work_bytes = kvpi_narrow_bytes,
                                                       .pack = kvpi_pack_f32,
                                                       .scores = kvpi_scores_narrow,
                                                       .values = kvpi_values_narrow};

static const struct kvpi_path kvpi_q8_0_narrow_path = {.type = KVP_Q8_0,
                                                       .row_pad = ROWS,
                                                       .dims_pad = KVP_Q8_0_ELEMENTS,
                                                       .slack = 8.0f,
                                                       .query_bytes = sizeof(float),
                                                       .work_bytes = kvpi_narrow_bytes,
                                                       .pack = kvpi_pack_f32,
                                                       .scores = kvpi_scores_narrow,
                                                       .values = kvpi_values_narrow};

#endif

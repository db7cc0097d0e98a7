/* amx_few: bf16 on AMX tiles, for the few queries of a decode step. K and V are both used as they
 * lie; each line of them is loaded once, and multiplied by all queries:
 *
 *     scores   [16 keys, 32 dims] x [32 dims, queries]        scores, transposed
 *     values   [2 x queries, 2 x 16 keys] x [16 keys, 32 dims]
 *
 * A product of tiles sums over neighbours, and neighbours in a row of V are two dims of one key. So
 * a query has two rows of weights, (w, 0) for the even dims and (0, w) for the odd ones. Half of
 * the products are with 0, but that costs less than interleaving V.
 *
 * A query is two rows of bf16: the second has what rounding removed from the first. Side by side in
 * the tile, it costs nothing. */
#ifndef KVPI_AMX_FEW_H
#define KVPI_AMX_FEW_H

#include "attention/kernels/x86/amx_tiles.h"
#include "attention/kernels/x86/bf16_rows.h"

enum { AMX_FEW_ROWS = 8, AMX_FEW_PAD = 4, SUM_TILES = 4 };

/* Tiles 0 to 3 take sums and 7 weights, two rows for each query; 4 K or V; 5 queries and 6 scores,
 * two columns for each query. */
static void kvpi_begin_amx_few(uint32_t n_rows)
{
    struct kvpi_tile_config config = kvpi_full_tiles();
    for (int i = 0; i < SUM_TILES; i++)
        config.rows[i] = (uint8_t)(2 * n_rows);
    config.rows[7] = (uint8_t)(2 * n_rows);
    config.row_bytes[5] = config.row_bytes[6] = (uint16_t)(2 * n_rows * sizeof(float));
    kvpi_set_tiles(&config);
}

static void kvpi_end_amx(void)
{
    _tile_release();
}

/* [dims / 32, 16 pairs, 2, rows] pairs: the queries, then what they leave out. */
static void kvpi_pack_amx_few(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    uint32_t *to = out;
    for (uint32_t e = 0; e < dims; e += 32, to += (size_t)2 * GROUP * n_rows) {
        for (uint32_t row = 0; row < n_rows; row++) {
            uint32_t pairs[2][GROUP];
            for (uint32_t i = 0; i < 2; i++)
                kvpi_split_bf16(rows + (size_t)row * dims + e + (size_t)i * LANES,
                                (uint16_t *)(void *)pairs[0] + i * LANES,
                                (uint16_t *)(void *)pairs[1] + i * LANES);
            for (uint32_t p = 0; p < GROUP; p++) {
                to[(2 * p) * n_rows + row] = pairs[0][p];
                to[(2 * p + 1) * n_rows + row] = pairs[1][p];
            }
        }
    }
}

/* Bytes [at, at + n_bytes) of 16 rows, where they lie or in `work`; zeros behind the last row. */
static const unsigned char *kvpi_group_rows(const struct kvpi_tile *tile,
                                            const struct kvpi_tile_rows *rows, uint32_t first,
                                            size_t at, size_t n_bytes, size_t *out_stride)
{
    unsigned char *work = tile->work;
    *out_stride = rows->stride;
    if (rows->stride != 0 && first + GROUP <= tile->n_keys)
        return kvpi_row_at(rows, first) + at;
    *out_stride = n_bytes;
    for (uint32_t i = 0; i < GROUP; i++) {
        if (first + i < tile->n_keys)
            memcpy(work + i * n_bytes, kvpi_row_at(rows, first + i) + at, n_bytes);
        else
            memset(work + i * n_bytes, 0, n_bytes);
    }
    return work;
}

/* As many lines as a tile has. */
INLINE void kvpi_ask_tile(struct kvpi_ahead *ahead)
{
    for (uint32_t i = 0; i < GROUP / 4; i++)
        kvpi_ask_four(ahead);
}

/* [16 keys, 2, rows] to rows of s, the two halves of each query added up. */
INLINE void kvpi_store_amx_scores(const float *c, uint32_t n_rows, float *s)
{
    for (uint32_t row = 0; row < n_rows; row += AMX_FEW_PAD) {
        __m512 high[AMX_FEW_PAD], low[AMX_FEW_PAD];
        kvpi_turn_round(c + row, (size_t)2 * n_rows, high);
        kvpi_turn_round(c + n_rows + row, (size_t)2 * n_rows, low);
        for (uint32_t i = 0; i < AMX_FEW_PAD; i++)
            kvpi_vec_store(s + (size_t)(row + i) * KVPI_TILE, kvpi_vec_add(high[i], low[i]));
    }
}

static void kvpi_scores_amx_few(const struct kvpi_tile *tile, float *s)
{
    _Alignas(64) float c[GROUP * 2 * AMX_FEW_ROWS];
    const uint32_t row_bytes = 2 * tile->dims;
    const size_t q_stride = 2 * tile->n_rows * sizeof(float);
    for (uint32_t key = 0; key < tile->n_keys; key += GROUP) {
        const unsigned char *q = tile->queries;
        size_t stride;
        const unsigned char *k = kvpi_group_rows(tile, &tile->k, key, 0, row_bytes, &stride);
        _tile_zero(6);
        for (uint32_t at = 0; at < row_bytes; at += CHUNK, q += GROUP * q_stride) {
            kvpi_ask_tile(tile->ahead);
            _tile_loadd(5, q, q_stride);
            _tile_loadd(4, k + at, stride);
            _tile_dpbf16ps(6, 4, 5);
        }
        _tile_stored(6, c, q_stride);
        kvpi_store_amx_scores(c, tile->n_rows, s + key);
    }
}

/* [4 x 16 keys][2 x rows, 16 keys] pairs. */
static void kvpi_pair_few_weights(const float *weights, uint32_t n_rows, uint32_t *out)
{
    for (uint32_t key = 0; key < KVPI_TILE; key += GROUP) {
        for (uint32_t row = 0; row < n_rows; row++, out += 2 * GROUP) {
            const __m256bh w =
                _mm512_cvtneps_pbh(kvpi_vec_load(weights + (size_t)row * KVPI_TILE + key));
            const __m512i even = _mm512_cvtepu16_epi32((__m256i)w);
            _mm512_store_si512((void *)out, even);
            _mm512_store_si512((void *)(out + GROUP), _mm512_slli_epi32(even, 16));
        }
    }
}

/* What the first `n` tiles have summed so far. A row of sums is the even dims, then the odd ones,
 * as far apart as query from query. */
INLINE void kvpi_load_few_sums(const float *sums, size_t stride, uint32_t n)
{
    _tile_loadd(0, sums, stride);
    if (n < SUM_TILES)
        return;
    _tile_loadd(1, sums + GROUP, stride);
    _tile_loadd(2, sums + 2 * GROUP, stride);
    _tile_loadd(3, sums + 3 * GROUP, stride);
}

INLINE void kvpi_store_few_sums(float *sums, size_t stride, uint32_t n)
{
    _tile_stored(0, sums, stride);
    if (n < SUM_TILES)
        return;
    _tile_stored(1, sums + GROUP, stride);
    _tile_stored(2, sums + 2 * GROUP, stride);
    _tile_stored(3, sums + 3 * GROUP, stride);
}

/* `n`, 1 or SUM_TILES, times 32 dims from byte `at` of the rows on. */
INLINE void kvpi_value_amx_block(const struct kvpi_tile *tile, const uint32_t *weights, size_t at,
                                 uint32_t n, float *sums)
{
    const size_t sum_stride = tile->v_dims / 2 * sizeof *sums;
    sums += at / 4;
    kvpi_load_few_sums(sums, sum_stride, n);
    for (uint32_t key = 0; key < tile->n_keys; key += GROUP) {
        size_t stride;
        const unsigned char *v =
            kvpi_group_rows(tile, &tile->v, key, at, (size_t)n * CHUNK, &stride);
        _tile_loadd(7, weights + (size_t)key * 2 * tile->n_rows, CHUNK);
        for (uint32_t i = 0; i < n; i++) {
            kvpi_ask_tile(tile->ahead);
            _tile_loadd(4, v + (size_t)i * CHUNK, stride);
            switch (i) {
            case 0: _tile_dpbf16ps(0, 7, 4); break;
            case 1: _tile_dpbf16ps(1, 7, 4); break;
            case 2: _tile_dpbf16ps(2, 7, 4); break;
            default: _tile_dpbf16ps(3, 7, 4); break;
            }
        }
    }
    kvpi_store_few_sums(sums, sum_stride, n);
}

static void kvpi_values_amx_few(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    _Alignas(64) uint32_t pairs[KVPI_TILE * 2 * AMX_FEW_ROWS];
    const size_t row_bytes = 2 * (size_t)tile->v_dims, block = SUM_TILES * CHUNK;
    size_t at = 0;
    kvpi_pair_few_weights(weights, tile->n_rows, pairs);
    for (; at + block <= row_bytes; at += block)
        kvpi_value_amx_block(tile, pairs, at, SUM_TILES, sums);
    for (; at < row_bytes; at += CHUNK)
        kvpi_value_amx_block(tile, pairs, at, 1, sums);
}

/* Even dims and odd ones side by side again. */
static void kvpi_order_amx_few(float *sums, uint32_t v_dims, float *memory)
{
    memcpy(memory, sums, v_dims * sizeof *sums);
    for (uint32_t e = 0; e < v_dims; e += 2 * LANES)
        kvpi_vec_interleave(kvpi_vec_load(memory + e / 2),
                            kvpi_vec_load(memory + v_dims / 2 + e / 2), sums + e);
}

static const struct kvpi_path kvpi_amx_few_path = {.type = KVP_BF16,
                                                   .row_pad = AMX_FEW_PAD,
                                                   .dims_pad = 32,
                                                   .slack = 8.0f,
                                                   .query_bytes = 4,
                                                   .work_bytes = kvpi_no_work_bytes,
                                                   .begin = kvpi_begin_amx_few,
                                                   .end = kvpi_end_amx,
                                                   .pack = kvpi_pack_amx_few,
                                                   .scores = kvpi_scores_amx_few,
                                                   .values = kvpi_values_amx_few,
                                                   .order = kvpi_order_amx_few};

#endif

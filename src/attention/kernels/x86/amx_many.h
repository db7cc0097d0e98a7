/* amx_many: bf16 on AMX tiles, for many queries, 16 at a time.
 *
 * K is used in place: 16 keys are the rows of one tile, queries the columns of the other. So scores
 * have a key in each row and 16 queries side by side. They stay so in softmax, which then needs no
 * operation across a register. Weights are transposed when they are half as long. V is interleaved
 * two by two, because products are summed over neighbours:
 *
 *     scores   [16 keys, 32 dims] x [32 dims, 16 queries]   less what weights are relative to
 *     softmax  [64 keys, 16 queries]                        weights in pairs of keys, turned round
 *     values   [16 queries, 32 keys] x [32 keys, 16 dims]   sums, dims in the order of unpacking
 *                                                           (see `order`)
 *
 * A tile's K and V, queries, weights and sums do not fit the first cache. So scores and softmax are
 * computed for all queries while K is cached. Then values are computed while a block of V is
 * cached, which was interleaved just before. */
#ifndef KVPI_AMX_MANY_H
#define KVPI_AMX_MANY_H

#include <float.h>

#include "attention/kernels/x86/amx_tiles.h"
#include "attention/kernels/x86/bf16_rows.h"

enum {
    QUARTERS = KVPI_TILE / GROUP,
    BLOCK = 64,                     /* dims whose values are summed at once */
    WEIGHTS = KVPI_TILE / 2 * GROUP /* pairs of a group */
};

static void kvpi_begin_amx_many(uint32_t n_rows)
{
    const struct kvpi_tile_config config = kvpi_full_tiles();
    (void)n_rows;
    kvpi_set_tiles(&config);
}

/* -------------------------------------------------------------------------------------- K and V */

/* Where K is, and how far its keys are apart. */
struct kvpi_many_keys {
    const unsigned char *quarters[QUARTERS];
    size_t chunk_bytes;
    size_t stride;
};

/* [chunks, 64 keys, 64 bytes], the first key once more behind n_keys. */
static void kvpi_gather_keys(const struct kvpi_tile *tile, unsigned char *out)
{
    for (uint32_t i = 0; i < KVPI_TILE; i++) {
        const unsigned char *row = kvpi_row_at(&tile->k, i < tile->n_keys ? i : 0);
        unsigned char *to = out + (size_t)i * CHUNK;
        for (uint32_t at = 0; at < 2 * tile->dims; at += CHUNK, to += (size_t)KVPI_TILE * CHUNK)
            memcpy(to, row + at, CHUNK);
    }
}

/* As they lie, if there are 64 and even ones. */
static struct kvpi_many_keys kvpi_find_keys(const struct kvpi_tile *tile)
{
    const int is_even = tile->k.stride != 0 && tile->n_keys == KVPI_TILE;
    struct kvpi_many_keys keys = {.chunk_bytes = is_even ? CHUNK : (size_t)KVPI_TILE * CHUNK,
                                  .stride = is_even ? tile->k.stride : CHUNK};
    if (!is_even)
        kvpi_gather_keys(tile, tile->work);
    for (uint32_t i = 0; i < QUARTERS; i++)
        keys.quarters[i] = is_even ? kvpi_row_at(&tile->k, i * GROUP)
                                   : (const unsigned char *)tile->work + (size_t)i * TILE_BYTES;
    return keys;
}

/* `n_dims` of V as [keys / 32, 4 x 16 dims, 16 pairs, 64 bytes], zeros behind n_keys. */
static void kvpi_interleave_values(const struct kvpi_tile *tile, uint32_t first, uint32_t n_dims,
                                   unsigned char *out)
{
    for (uint32_t pair = 0; pair < KVPI_TILE / 2; pair++) {
        unsigned char *to = out + pair / 16 * (BLOCK / GROUP * TILE_BYTES) + pair % 16 * CHUNK;
        const __mmask16 has_a = 2 * pair < tile->n_keys ? 0xFFFF : 0;
        const __mmask16 has_b = 2 * pair + 1 < tile->n_keys ? 0xFFFF : 0;
        const unsigned char *row_a = kvpi_row_at(&tile->v, has_a ? 2 * pair : 0) + 2 * first;
        const unsigned char *row_b = kvpi_row_at(&tile->v, has_b ? 2 * pair + 1 : 0) + 2 * first;
        for (uint32_t at = 0; at < 2 * n_dims; at += CHUNK, to += 2 * TILE_BYTES) {
            const __m512i a = _mm512_maskz_loadu_epi32(has_a, row_a + at);
            const __m512i b = _mm512_maskz_loadu_epi32(has_b, row_b + at);
            _mm512_store_si512((void *)to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512((void *)(to + TILE_BYTES), _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* 64 rows of K, then a block of V. */
static size_t kvpi_amx_many_bytes(uint32_t dims, uint32_t v_dims)
{
    (void)v_dims;
    return (size_t)KVPI_TILE * 2 * (dims + BLOCK);
}

/* [rows / 16, dims / 32, high and low, 16, 64 bytes]: row p of a tile has elements 2p, 2p + 1 of 16
 * queries; behind them, whether the low ones count. */
static void kvpi_pack_amx_many(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    memcpy((uint32_t *)out + (size_t)n_rows * dims, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row++) {
        uint32_t *to = (uint32_t *)out + (size_t)(row - row % GROUP) * dims + row % GROUP;
        for (uint32_t e = 0; e < dims; e += 32, to += 2 * GROUP * GROUP) {
            uint32_t pairs[2][GROUP];
            for (uint32_t i = 0; i < 2; i++)
                kvpi_split_bf16(rows + (size_t)row * dims + e + (size_t)i * GROUP,
                                (uint16_t *)(void *)pairs[0] + i * GROUP,
                                (uint16_t *)(void *)pairs[1] + i * GROUP);
            for (uint32_t p = 0; p < GROUP; p++) {
                to[p * GROUP] = pairs[0][p];
                to[(p + GROUP) * GROUP] = pairs[1][p];
            }
        }
    }
}

/* A head's queries on their way through a tile. */
struct kvpi_many {
    const struct kvpi_tile *tile;
    const struct kvpi_softmax *softmax;
    struct kvpi_many_keys keys;
    const float *begin; /* [M] what scores begin with */
    float *weights;     /* [M / 16][2, 16 queries, 16 pairs] */
    float most;         /* that 64 weights add up to while none is far above 1 */
    uint32_t has_low;
};

/* --------------------------------------------------------------------------------------- scores */

/* [64 keys, 16 queries] of 32 dims, added to tiles 0 to 3. */
INLINE void kvpi_score_chunk(const struct kvpi_many_keys *keys, size_t at, const unsigned char *q,
                             uint32_t has_low)
{
    _tile_loadd(6, q, CHUNK);
    _tile_loadd(4, keys->quarters[0] + at, keys->stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, keys->quarters[1] + at, keys->stride);
    _tile_dpbf16ps(1, 5, 6);
    if (has_low) {
        _tile_loadd(7, q + TILE_BYTES, CHUNK);
        _tile_dpbf16ps(0, 4, 7);
        _tile_dpbf16ps(1, 5, 7);
    }
    _tile_loadd(4, keys->quarters[2] + at, keys->stride);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(5, keys->quarters[3] + at, keys->stride);
    _tile_dpbf16ps(3, 5, 6);
    if (has_low) {
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
}

INLINE void kvpi_score_group(const struct kvpi_many *many, uint32_t group, float *out)
{
    const struct kvpi_tile *tile = many->tile;
    const uint32_t n_chunks = tile->dims / 32;
    const float *begin = many->begin + (size_t)group * GROUP;
    const unsigned char *q =
        (const unsigned char *)tile->queries + (size_t)group * n_chunks * 2 * TILE_BYTES;
    _tile_loadd(0, begin, 0);
    _tile_loadd(1, begin, 0);
    _tile_loadd(2, begin, 0);
    _tile_loadd(3, begin, 0);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++, q += 2 * TILE_BYTES) {
        kvpi_ahead_step(tile->ahead);
        kvpi_score_chunk(&many->keys, chunk * many->keys.chunk_bytes, q, many->has_low);
    }
    _tile_stored(0, out, CHUNK);
    _tile_stored(1, out + GROUP * GROUP, CHUNK);
    _tile_stored(2, out + 2 * GROUP * GROUP, CHUNK);
    _tile_stored(3, out + 3 * GROUP * GROUP, CHUNK);
}

/* -------------------------------------------------------------------------------------- softmax */

static void kvpi_load_masks(const struct kvpi_softmax *softmax, uint32_t first, __m512i out[2])
{
    uint32_t halves[2][GROUP] = {{0}};
    for (uint32_t i = 0; i < GROUP && first + i < softmax->n_rows; i++) {
        const uint64_t mask =
            softmax->masks != NULL ? softmax->masks[(first + i) / softmax->group] : UINT64_MAX;
        halves[0][i] = (uint32_t)mask;
        halves[1][i] = (uint32_t)(mask >> 32);
    }
    out[0] = _mm512_loadu_si512(halves[0]);
    out[1] = _mm512_loadu_si512(halves[1]);
}

/* What weights of 16 queries are relative to; 0 for those that have seen nothing yet. */
INLINE vec kvpi_base_of_group(const struct kvpi_softmax *softmax, uint32_t first)
{
    const vec base = kvpi_vec_load(softmax->largest + first);
    return kvpi_vec_pick(_mm512_cmp_ps_mask(base, kvpi_vec_all(-FLT_MAX), _CMP_GT_OQ), base,
                         kvpi_vec_zero());
}

/* Caps scores, and hides what is not seen and what is not there. */
static void kvpi_settle_group(const struct kvpi_softmax *softmax, uint32_t first, float *scores)
{
    const vec base = kvpi_base_of_group(softmax, first);
    __m512i masks[2];
    kvpi_load_masks(softmax, first, masks);
    for (uint32_t key = 0; key < KVPI_TILE; key++, scores += GROUP) {
        const __m512i bit = _mm512_set1_epi32((int32_t)(1u << key % 32));
        const __mmask16 seen =
            key < softmax->n_keys ? _mm512_test_epi32_mask(masks[key / 32], bit) : 0;
        vec x = kvpi_vec_load(scores);
        if (softmax->cap > 0.0f)
            x = kvpi_vec_sub(kvpi_cap_scores(x, softmax->cap), base);
        kvpi_vec_store(scores, kvpi_vec_pick(seen, x, kvpi_vec_all(-INFINITY)));
    }
}

INLINE vec kvpi_largest_of_group(const float *scores)
{
    vec largest[4];
    for (uint32_t i = 0; i < 4; i++)
        largest[i] = kvpi_vec_load(scores + (size_t)i * GROUP);
    for (uint32_t key = 4; key < KVPI_TILE; key += 4) {
        for (uint32_t i = 0; i < 4; i++)
            largest[i] =
                kvpi_vec_max(kvpi_vec_load(scores + (size_t)(key + i) * GROUP), largest[i]);
    }
    return kvpi_vec_max(kvpi_vec_max(largest[0], largest[1]), kvpi_vec_max(largest[2], largest[3]));
}

/* Rows that have seen nothing yet, or see something far above their base, get another one, and
 * their scores follow. */
static void kvpi_raise_bases(const struct kvpi_softmax *softmax, uint32_t first, float *scores)
{
    const vec base = kvpi_base_of_group(softmax, first);
    const vec largest = kvpi_largest_of_group(scores);
    const vec old = kvpi_vec_load(softmax->largest + first);
    const vec raised = kvpi_vec_add(largest, base);
    uint32_t above =
        _mm512_cmp_ps_mask(raised, kvpi_vec_add(old, kvpi_vec_all(softmax->slack)), _CMP_GT_OQ);
    float to[GROUP];
    kvpi_vec_store(to, raised);
    for (uint32_t row = 0; above != 0; row++, above >>= 1) {
        if (above & 1)
            kvpi_scale_row(softmax, first + row, to[row]);
    }
    const vec by = kvpi_vec_sub(kvpi_base_of_group(softmax, first), base);
    for (uint32_t key = 0; key < KVPI_TILE; key++, scores += GROUP)
        kvpi_vec_store(scores, kvpi_vec_sub(kvpi_vec_load(scores), by));
}

/* Weights are cut off to bf16, not rounded. What is lost by that, on average of all numbers, they
 * have before, and their sum has not. */
#define LOST 2.8177e-3f

/* 2^x within 8e-5, a twentieth of what bf16 can tell, and what will be lost. */
INLINE vec kvpi_weight_of(vec x)
{
    const vec f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const float more = 1.0f + LOST;
    vec y = kvpi_vec_fma(f, kvpi_vec_all(7.802452e-2f * more), kvpi_vec_all(2.2606717e-1f * more));
    y = kvpi_vec_fma(y, f, kvpi_vec_all(6.9583353e-1f * more));
    y = kvpi_vec_fma(y, f, kvpi_vec_all(9.9992522e-1f * more));
    return _mm512_scalef_ps(y, x); /* by the whole part of x */
}

/* The first in the low half. */
INLINE vec kvpi_pair_of(vec a, vec b)
{
    return _mm512_castsi512_ps(_mm512_mask_blend_epi16(
        0xAAAAAAAA, _mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b)));
}

/* Weights in pairs of keys, [32 pairs, 16 queries], and their sum. */
INLINE vec kvpi_weigh(const float *scores, float *pairs)
{
    vec totals[2] = {kvpi_vec_zero(), kvpi_vec_zero()};
    for (uint32_t key = 0; key < KVPI_TILE; key += 2, scores += 2 * GROUP, pairs += GROUP) {
        const vec a = kvpi_weight_of(kvpi_vec_load(scores));
        const vec b = kvpi_weight_of(kvpi_vec_load(scores + GROUP));
        totals[0] = kvpi_vec_add(totals[0], a);
        totals[1] = kvpi_vec_add(totals[1], b);
        kvpi_vec_store(pairs, kvpi_pair_of(a, b));
    }
    return kvpi_vec_mul(kvpi_vec_add(totals[0], totals[1]), kvpi_vec_all(1.0f / (1.0f + LOST)));
}

/* [2 x 16 pairs, 16 queries] to [2, 16 queries, 16 pairs]. */
INLINE void kvpi_turn_weights(const float *pairs, float *out)
{
    for (uint32_t half = 0; half < 2; half++, pairs += GROUP * GROUP) {
        for (uint32_t r = 0; r < GROUP; r += 4, out += 4 * GROUP) {
            __m512 rows[4];
            kvpi_turn_round(pairs + r, GROUP, rows);
            for (uint32_t i = 0; i < 4; i++)
                kvpi_vec_store(out + (size_t)i * GROUP, rows[i]);
        }
    }
}

/* Whether a row has seen nothing yet. */
static inline int kvpi_are_new(const struct kvpi_softmax *softmax, uint32_t first)
{
    const vec base = kvpi_vec_load(softmax->largest + first);
    return _mm512_cmp_ps_mask(base, kvpi_vec_all(-FLT_MAX), _CMP_LE_OQ) != 0;
}

/* Also if a weight is no number. */
static inline int kvpi_are_above(vec total, float most)
{
    return _mm512_cmp_ps_mask(total, kvpi_vec_all(most), _CMP_NLE_UQ) != 0;
}

/* Scores of a group become weights. */
INLINE void kvpi_weigh_group(const struct kvpi_many *many, uint32_t group, float *scores)
{
    _Alignas(64) float pairs[WEIGHTS];
    const struct kvpi_softmax *softmax = many->softmax;
    const uint32_t first = group * GROUP;
    if (softmax->masks != NULL || softmax->cap > 0.0f || softmax->n_keys < KVPI_TILE)
        kvpi_settle_group(softmax, first, scores);
    if (kvpi_are_new(softmax, first))
        kvpi_raise_bases(softmax, first, scores);
    vec total = kvpi_weigh(scores, pairs);
    if (kvpi_are_above(total, many->most)) {
        kvpi_raise_bases(softmax, first, scores);
        total = kvpi_weigh(scores, pairs);
    }
    kvpi_turn_weights(pairs, many->weights + (size_t)group * WEIGHTS);
    kvpi_vec_store(softmax->total + first,
                   kvpi_vec_add(kvpi_vec_load(softmax->total + first), total));
}

/* --------------------------------------------------------------------------------------- values */

/* Sums of a block of dims, whose V is at `v`; `n`, 2 or 4, times 16. */
INLINE void kvpi_sum_block(const struct kvpi_tile *tile, const unsigned char *v, uint32_t n,
                           const float *weights, float *sums)
{
    const size_t stride = tile->v_dims * sizeof(float);
    kvpi_ahead_step(tile->ahead);
    kvpi_ahead_step(tile->ahead);
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + GROUP, stride);
    if (n == 4) {
        _tile_loadd(2, sums + 2 * GROUP, stride);
        _tile_loadd(3, sums + 3 * GROUP, stride);
    }
    for (uint32_t half = 0; half < 2; half++, weights += WEIGHTS / 2, v += 4 * TILE_BYTES) {
        _tile_loadd(6, weights, CHUNK);
        _tile_loadd(4, v, CHUNK);
        _tile_dpbf16ps(0, 6, 4);
        _tile_loadd(5, v + TILE_BYTES, CHUNK);
        _tile_dpbf16ps(1, 6, 5);
        if (n == 4) {
            _tile_loadd(4, v + 2 * TILE_BYTES, CHUNK);
            _tile_dpbf16ps(2, 6, 4);
            _tile_loadd(5, v + 3 * TILE_BYTES, CHUNK);
            _tile_dpbf16ps(3, 6, 5);
        }
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + GROUP, stride);
    if (n == 4) {
        _tile_stored(2, sums + 2 * GROUP, stride);
        _tile_stored(3, sums + 3 * GROUP, stride);
    }
}

/* Of all groups, one block of dims after the other. */
static void kvpi_sum_groups(const struct kvpi_many *many, unsigned char *work)
{
    const struct kvpi_tile *tile = many->tile;
    for (uint32_t e = 0; e < tile->v_dims; e += BLOCK) {
        const uint32_t n_dims = tile->v_dims - e < BLOCK ? tile->v_dims - e : BLOCK;
        kvpi_interleave_values(tile, e, n_dims, work);
        for (uint32_t group = 0; group < tile->n_rows / GROUP; group++)
            kvpi_sum_block(tile, work, n_dims / GROUP, many->weights + (size_t)group * WEIGHTS,
                           many->softmax->sums + (size_t)group * GROUP * tile->v_dims + e);
    }
}

/* ------------------------------------------------------------------------------------- together */

/* All lines of the next head will have been asked for when this one's rows are through. */
static void kvpi_begin_steps(const struct kvpi_tile *tile)
{
    const uint32_t dims = tile->dims + tile->v_dims;
    tile->ahead->fours = KVPI_TILE * 2 * dims / CHUNK / 4;
    tile->ahead->steps = tile->n_rows / GROUP * (dims / 32);
    tile->ahead->sum = 0;
}

/* Scores are relative to their bases from the beginning; those that are to be capped are not. */
static void kvpi_begin_scores(const struct kvpi_softmax *softmax, uint32_t n_rows, float *out)
{
    for (uint32_t row = 0; row < n_rows; row += GROUP) {
        const vec base = softmax->cap > 0.0f ? kvpi_vec_zero() : kvpi_base_of_group(softmax, row);
        kvpi_vec_store(out + row, kvpi_vec_sub(kvpi_vec_zero(), base));
    }
}

static void kvpi_attend_amx_many(const struct kvpi_tile *tile, const struct kvpi_softmax *softmax)
{
    _Alignas(64) float scores[KVPI_TILE * GROUP];
    const uint32_t n_groups = tile->n_rows / GROUP;
    float *weights = softmax->s, *begin = softmax->s + (size_t)n_groups * WEIGHTS;
    struct kvpi_many many = {.tile = tile,
                             .softmax = softmax,
                             .keys = kvpi_find_keys(tile),
                             .begin = begin,
                             .weights = weights,
                             .most = ldexpf(KVPI_TILE, (int)softmax->slack)};
    memcpy(&many.has_low, (const uint32_t *)tile->queries + (size_t)tile->n_rows * tile->dims,
           sizeof many.has_low);
    kvpi_begin_steps(tile);
    kvpi_begin_scores(softmax, tile->n_rows, begin);
    for (uint32_t group = 0; group < n_groups; group++) {
        kvpi_score_group(&many, group, scores);
        kvpi_weigh_group(&many, group, scores);
    }
    kvpi_sum_groups(&many, (unsigned char *)tile->work + (size_t)KVPI_TILE * 2 * tile->dims);
}

static const struct kvpi_path kvpi_amx_many_path = {.type = KVP_BF16,
                                                    .row_pad = GROUP,
                                                    .dims_pad = 32,
                                                    .slack = 8.0f,
                                                    .query_bytes = 5,
                                                    .work_bytes = kvpi_amx_many_bytes,
                                                    .begin = kvpi_begin_amx_many,
                                                    .end = kvpi_end_amx,
                                                    .pack = kvpi_pack_amx_many,
                                                    .asks_early = 1,
                                                    .attend = kvpi_attend_amx_many,
                                                    .order = kvpi_order_bf16,
                                                    .few_rows = AMX_FEW_ROWS,
                                                    .few = &kvpi_amx_few_path};

#endif

/* kernels_amx: tiles of bf16, for many queries. Compiled as kernels_avx2.c is.
 *
 * A tile has up to 16 rows of 64 bytes. K is used as it lies: 16 keys are the rows of one tile,
 * queries are the columns of the other, and scores come out with a key in each row; they are turned
 * round on the way to s. V is interleaved two by two, because products are summed over neighbours:
 *
 *     scores   [16 keys, 32 dims] x [32 dims, 16 queries]   s, transposed
 *     values   [16 queries, 32 keys] x [32 keys, 16 dims]   sums, dims in the order of unpacking
 *                                                           (`order` mends it)
 *
 * Tiles are set up before an item and given back behind it; of few queries, see amx_few.h. */
#include "attention/kernels.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512VNNI__)

#include "attention/vec_avx512.h"

#include "attention/amx_few.h"
#include "attention/amx_tiles.h"
#include "attention/bf16_rows.h"
#include "attention/f16_rows.h"
#include "attention/int8_rows.h"
#include "attention/kernels_body.h"
#include "attention/many_rows.h"

static void begin_amx_many(uint32_t n_rows)
{
    const struct kvpi_tile_config config = kvpi_full_tiles();
    (void)n_rows;
    kvpi_set_tiles(&config);
}

/* -------------------------------------------------------------------------------------- K and V */

/* Where 16 keys and 64 bytes of them lie, and how far apart. */
struct keys_at {
    const unsigned char *first;
    size_t group_bytes; /* 0: each group by its first row */
    size_t chunk_bytes;
    size_t stride;
    const struct kvpi_tile *tile;
};

/* Where they are not even, they have been gathered: [chunks, 64 keys, 64 bytes]. */
static int keys_are_even(const struct kvpi_tile *tile)
{
    return tile->k.stride != 0 && tile->n_keys % GROUP == 0;
}

static struct keys_at find_keys(const struct kvpi_tile *tile)
{
    if (keys_are_even(tile))
        return (struct keys_at){.chunk_bytes = CHUNK, .stride = tile->k.stride, .tile = tile};
    return (struct keys_at){.first = tile->work,
                            .group_bytes = TILE_BYTES,
                            .chunk_bytes = (size_t)KVPI_TILE * CHUNK,
                            .stride = CHUNK};
}

static inline const unsigned char *keys_of(const struct keys_at *at, uint32_t group, uint32_t chunk)
{
    const unsigned char *first = at->group_bytes != 0 ? at->first + group * at->group_bytes
                                                      : kvpi_row_at(&at->tile->k, group * GROUP);
    return first + chunk * at->chunk_bytes;
}

/* Zeros behind n_keys. */
static void gather_keys(const struct kvpi_tile *tile, unsigned char *out)
{
    const uint32_t n = (tile->n_keys + GROUP - 1) / GROUP * GROUP;
    for (uint32_t i = 0; i < n; i++) {
        const __mmask16 is_there = i < tile->n_keys ? 0xFFFF : 0;
        const unsigned char *row = kvpi_row_at(&tile->k, is_there ? i : 0);
        unsigned char *to = out + (size_t)i * CHUNK;
        for (uint32_t at = 0; at < 2 * tile->dims; at += CHUNK, to += (size_t)KVPI_TILE * CHUNK)
            _mm512_store_si512((void *)to, _mm512_maskz_loadu_epi32(is_there, row + at));
    }
}

/* Behind K. */
static unsigned char *turned_values(const struct kvpi_tile *tile)
{
    return (unsigned char *)tile->work + (size_t)KVPI_TILE * 2 * tile->dims;
}

/* V as [keys / 32, dims / 16, 16 pairs, 64 bytes], zeros behind n_keys. */
static void interleave_bf16(const struct kvpi_tile *tile, unsigned char *out)
{
    const uint32_t n_pairs = tile->n_keys > 32 ? 32 : 16, row_bytes = tile->v_dims * 2;
    const size_t chunk_bytes = (size_t)tile->v_dims / GROUP * TILE_BYTES;
    for (uint32_t pair = 0; pair < n_pairs; pair++) {
        unsigned char *to = out + pair / 16 * chunk_bytes + pair % 16 * CHUNK;
        const __mmask16 has_a = 2 * pair < tile->n_keys ? 0xFFFF : 0;
        const __mmask16 has_b = 2 * pair + 1 < tile->n_keys ? 0xFFFF : 0;
        const unsigned char *row_a = kvpi_row_at(&tile->v, has_a ? 2 * pair : 0);
        const unsigned char *row_b = kvpi_row_at(&tile->v, has_b ? 2 * pair + 1 : 0);
        for (uint32_t at = 0; at < row_bytes; at += CHUNK, to += 2 * TILE_BYTES) {
            const __m512i a = _mm512_maskz_loadu_epi32(has_a, row_a + at);
            const __m512i b = _mm512_maskz_loadu_epi32(has_b, row_b + at);
            _mm512_store_si512((void *)to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512((void *)(to + TILE_BYTES), _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* All lines of the next head will have been asked for when this one's rows are through. */
static void begin_steps(const struct kvpi_tile *tile)
{
    const uint32_t dims = tile->dims + tile->v_dims;
    tile->ahead->fours = KVPI_TILE * 2 * dims / CHUNK / 4;
    tile->ahead->steps = tile->n_of_all / GROUP * (dims / 32 + GROUP / SOFTMAX_ROWS);
    tile->ahead->sum = 0;
}

static void prepare_bf16(const struct kvpi_tile *tile)
{
    begin_steps(tile);
    if (!keys_are_even(tile))
        gather_keys(tile, tile->work);
    interleave_bf16(tile, turned_values(tile));
}

/* 64 rows of K, then of V. */
static size_t work_bytes_16(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * 2 * (dims + v_dims);
}

/* [dims / 32, high and low, 16, 64 bytes]: row p of a tile has elements 2p, 2p + 1 of 16 queries;
 * then whether the low ones count. */
static void pack_bf16(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    memcpy((uint32_t *)out + (size_t)n_rows * dims, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row++) {
        uint32_t *to = (uint32_t *)out + row;
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

/* [4 x 16 keys, 16 queries] of 64 keys. */
static void score_bf16(const struct kvpi_tile *tile, const struct keys_at *at, uint32_t n_chunks,
                       int has_low, float *c)
{
    const unsigned char *q = tile->queries;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++, q += 2 * TILE_BYTES) {
        kvpi_ahead_step(tile->ahead);
        _tile_loadd(6, q, CHUNK);
        _tile_loadd(4, keys_of(at, 0, chunk), at->stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, keys_of(at, 1, chunk), at->stride);
        _tile_dpbf16ps(1, 5, 6);
        if (has_low) {
            _tile_loadd(7, q + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(0, 4, 7);
            _tile_dpbf16ps(1, 5, 7);
        }
        _tile_loadd(4, keys_of(at, 2, chunk), at->stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, keys_of(at, 3, chunk), at->stride);
        _tile_dpbf16ps(3, 5, 6);
        if (has_low) {
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, CHUNK);
    _tile_stored(1, c + GROUP * GROUP, CHUNK);
    _tile_stored(2, c + 2 * GROUP * GROUP, CHUNK);
    _tile_stored(3, c + 3 * GROUP * GROUP, CHUNK);
}

/* The same where there are fewer. */
static void score_some_bf16(const struct kvpi_tile *tile, const struct keys_at *at,
                            uint32_t n_chunks, uint32_t n_groups, float *c)
{
    for (uint32_t group = 0; group < n_groups; group++) {
        _tile_zero(0);
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
            const unsigned char *q = (const unsigned char *)tile->queries + chunk * 2 * TILE_BYTES;
            _tile_loadd(4, keys_of(at, group, chunk), at->stride);
            _tile_loadd(6, q, CHUNK);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, q + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(0, 4, 7);
        }
        _tile_stored(0, c + (size_t)group * GROUP * GROUP, CHUNK);
    }
}

static void scores_bf16(const struct kvpi_tile *tile, float *s)
{
    _Alignas(64) float c[KVPI_TILE * GROUP];
    const uint32_t n_chunks = tile->dims * 2 / CHUNK;
    const uint32_t n_groups = (tile->n_keys + GROUP - 1) / GROUP;
    const struct keys_at at = find_keys(tile);
    uint32_t has_low;
    memcpy(&has_low, (const uint32_t *)tile->queries + (size_t)GROUP * tile->dims, sizeof has_low);
    if (n_groups < KVPI_TILE / GROUP)
        score_some_bf16(tile, &at, n_chunks, n_groups, c);
    else
        score_bf16(tile, &at, n_chunks, (int)has_low, c);
    for (uint32_t group = 0; group < n_groups; group++) {
        for (uint32_t r = 0; r < tile->n_used; r += 4) {
            __m512 rows[4];
            kvpi_turn_round(c + (size_t)group * GROUP * GROUP + r, GROUP, rows);
            for (uint32_t i = 0; i < 4; i++)
                kvpi_vec_store(s + (size_t)(r + i) * KVPI_TILE + (size_t)group * GROUP, rows[i]);
        }
    }
}

/* --------------------------------------------------------------------------------------- values */

/* Weights of up to 16 rows as [2, 16, 32] bf16. */
static void pack_weights(const float *weights, uint32_t n_used, unsigned char *out)
{
    for (uint32_t r = 0; r < GROUP; r++) {
        const float *w = weights + (size_t)r * KVPI_TILE;
        for (uint32_t half = 0; half < 2; half++) {
            __m512i pairs = _mm512_setzero_si512();
            if (r < n_used)
                pairs = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(w + 32 * half + 16),
                                                     _mm512_loadu_ps(w + 32 * half));
            _mm512_store_si512((void *)(out + (size_t)half * TILE_BYTES + (size_t)r * CHUNK),
                               pairs);
        }
    }
}

/* Sums of two times 32 dims, of 64 or, if there are not as many keys, 32. A tile is stored a while
 * after the last product with it: meanwhile there are the other three. */
static void sum_values_bf16(const unsigned char *v, size_t half_bytes, uint32_t n_keys,
                            size_t stride, float *sums)
{
    _tile_loadd(0, sums, stride);
    _tile_loadd(4, v, CHUNK);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(1, sums + GROUP, stride);
    _tile_loadd(5, v + TILE_BYTES, CHUNK);
    _tile_dpbf16ps(1, 6, 5);
    _tile_loadd(2, sums + 2 * GROUP, stride);
    _tile_loadd(4, v + 2 * TILE_BYTES, CHUNK);
    _tile_dpbf16ps(2, 6, 4);
    _tile_loadd(3, sums + 3 * GROUP, stride);
    _tile_loadd(5, v + 3 * TILE_BYTES, CHUNK);
    _tile_dpbf16ps(3, 6, 5);
    if (n_keys > 32) {
        v += half_bytes;
        _tile_loadd(4, v, CHUNK);
        _tile_dpbf16ps(0, 7, 4);
        _tile_loadd(5, v + TILE_BYTES, CHUNK);
        _tile_dpbf16ps(1, 7, 5);
        _tile_loadd(4, v + 2 * TILE_BYTES, CHUNK);
        _tile_dpbf16ps(2, 7, 4);
        _tile_loadd(5, v + 3 * TILE_BYTES, CHUNK);
        _tile_dpbf16ps(3, 7, 5);
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + GROUP, stride);
    _tile_stored(2, sums + 2 * GROUP, stride);
    _tile_stored(3, sums + 3 * GROUP, stride);
}

/* The last 32 dims, where they are not two times as many. */
static void sum_last_values_bf16(const unsigned char *v, size_t half_bytes, uint32_t n_keys,
                                 size_t stride, float *sums)
{
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + GROUP, stride);
    _tile_loadd(4, v, CHUNK);
    _tile_dpbf16ps(0, 6, 4);
    _tile_loadd(5, v + TILE_BYTES, CHUNK);
    _tile_dpbf16ps(1, 6, 5);
    if (n_keys > 32) {
        _tile_loadd(4, v + half_bytes, CHUNK);
        _tile_dpbf16ps(0, 7, 4);
        _tile_loadd(5, v + half_bytes + TILE_BYTES, CHUNK);
        _tile_dpbf16ps(1, 7, 5);
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + GROUP, stride);
}

static void values_bf16(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    _Alignas(64) unsigned char packed[2 * TILE_BYTES];
    const size_t half_bytes = (size_t)tile->v_dims / GROUP * TILE_BYTES;
    const size_t stride = tile->v_dims * sizeof *sums;
    const unsigned char *v = turned_values(tile);
    uint32_t e = 0;
    pack_weights(weights, tile->n_used, packed);
    _tile_loadd(6, packed, CHUNK);
    _tile_loadd(7, packed + TILE_BYTES, CHUNK);
    for (; e + 64 <= tile->v_dims; e += 64, v += 4 * TILE_BYTES) {
        kvpi_ahead_step(tile->ahead);
        kvpi_ahead_step(tile->ahead);
        sum_values_bf16(v, half_bytes, tile->n_keys, stride, sums + e);
    }
    if (e < tile->v_dims) {
        kvpi_ahead_step(tile->ahead);
        sum_last_values_bf16(v, half_bytes, tile->n_keys, stride, sums + e);
    }
}

static const struct kvpi_path bf16_path = {.type = KVP_BF16,
                                           .row_pad = GROUP,
                                           .dims_pad = 32,
                                           .slack = 8.0f,
                                           .query_bytes = 5,
                                           .work_bytes = work_bytes_16,
                                           .begin = begin_amx_many,
                                           .end = kvpi_end_amx,
                                           .pack = pack_bf16,
                                           .rows_at_once = GROUP,
                                           .asks_early = 1,
                                           .prepare = prepare_bf16,
                                           .scores = scores_bf16,
                                           .values = values_bf16,
                                           .order = kvpi_order_bf16,
                                           .few_rows = AMX_FEW_ROWS,
                                           .few = &kvpi_amx_few_path};

const struct kvpi_kernels *kvpi_kernels_amx(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTN_AMX,
                                                .f32 = &kvpi_f32_many_path,
                                                .f16 = &kvpi_f16_rows_path,
                                                .bf16 = &bf16_path,
                                                .int8 = &kvpi_int8_rows_path,
                                                .read = kvpi_read_elements,
                                                .softmax = kvpi_softmax_f32,
                                                .combine = kvpi_combine_rows,
                                                .write = kvpi_write_elements,
                                                .largest = kvpi_largest_value,
                                                .write_int8 = kvpi_write_int8};
    return &kernels;
}

#else

const struct kvpi_kernels *kvpi_kernels_amx(void)
{
    return NULL;
}

#endif

/* kernels_amx: tiles of bf16, for many queries. Compiled as kernels_avx2.c is.
 *
 * A tile has up to 16 rows of 64 bytes. Products are summed over neighbours, so that K is turned
 * round in pairs of dims, and V is interleaved two by two, once for all queries:
 *
 *     scores   [16 queries, 32 dims] x [32 dims, 16 keys]
 *     values   [16 queries, 32 keys] x [32 keys, 16 dims]   dims in the order of unpacking
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

/* ------------------------------------------------------------------------------- rows of a tile */

/* ----------------------------------------------------------------------------------------- bf16 */

/* [rows / 16, dims / 32, high and low, 16, 64 bytes]: rows as they are; and whether the low ones
 * count. */
static void pack_bf16(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    memcpy((uint32_t *)out + (size_t)n_rows * dims, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row++) {
        uint16_t *to = (uint16_t *)out + (size_t)row / GROUP * GROUP * 2 * dims + row % GROUP * 32;
        for (uint32_t e = 0; e < dims; e += 32, to += TILE_BYTES) {
            for (uint32_t i = 0; i < 32; i += LANES)
                kvpi_split_bf16(rows + (size_t)row * dims + e + i, to + i,
                                to + TILE_BYTES / 2 + i);
        }
    }
}

/* 16 bytes of each fourth of 16 keys. */
static inline __m512 every_fourth_key(const struct kvpi_tile *tile, uint32_t key, size_t at)
{
    const unsigned char *const *rows = tile->k.rows + key;
    at += tile->k.offset;
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows[0] + at)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows[4] + at)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows[8] + at)), 2);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(rows[12] + at)), 3);
    return _mm512_castsi512_ps(x);
}

/* K as [keys / 16, dims / 32, 16 pairs of dims, 16 keys]. It takes as long as turning the scores of
 * 64 queries, and is done once for all of them. */
static void turn_keys(const struct kvpi_tile *tile, float *out)
{
    for (uint32_t key = 0; key < tile->n_keys; key += GROUP) {
        for (size_t at = 0; at < (size_t)2 * tile->dims; at += 16, out += 4 * GROUP) {
            __m512 x[4], pairs[4];
            for (uint32_t i = 0; i < 4; i++)
                x[i] = every_fourth_key(tile, key + i, at);
            kvpi_turn_fours(x, pairs);
            for (uint32_t i = 0; i < 4; i++)
                kvpi_vec_store(out + (size_t)i * GROUP, pairs[i]);
        }
    }
}

/* 16 queries' scores of 64 keys. */
static void score_bf16(const unsigned char *q, const unsigned char *k, uint32_t n_chunks,
                       uint32_t has_low, struct kvpi_ahead *ahead, float *s)
{
    const size_t group = (size_t)n_chunks * TILE_BYTES, stride = KVPI_TILE * sizeof *s;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++, q += 2 * TILE_BYTES, k += TILE_BYTES) {
        kvpi_ahead_step(ahead);
        _tile_loadd(6, q, CHUNK);
        _tile_loadd(4, k, CHUNK);
        _tile_dpbf16ps(0, 6, 4);
        _tile_loadd(5, k + group, CHUNK);
        _tile_dpbf16ps(1, 6, 5);
        if (has_low) {
            _tile_loadd(7, q + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(0, 7, 4);
            _tile_dpbf16ps(1, 7, 5);
        }
        _tile_loadd(4, k + 2 * group, CHUNK);
        _tile_dpbf16ps(2, 6, 4);
        _tile_loadd(5, k + 3 * group, CHUNK);
        _tile_dpbf16ps(3, 6, 5);
        if (has_low) {
            _tile_dpbf16ps(2, 7, 4);
            _tile_dpbf16ps(3, 7, 5);
        }
    }
    _tile_stored(0, s, stride);
    _tile_stored(1, s + GROUP, stride);
    _tile_stored(2, s + 2 * GROUP, stride);
    _tile_stored(3, s + 3 * GROUP, stride);
}

/* The same for the first of a tile's keys, where there are fewer than 64. */
static void score_some_bf16(const unsigned char *q, const unsigned char *k, uint32_t n_chunks,
                            uint32_t n_groups, float *s)
{
    for (uint32_t group = 0; group < n_groups; group++) {
        _tile_zero(0);
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++, k += TILE_BYTES) {
            const unsigned char *from = q + (size_t)chunk * 2 * TILE_BYTES;
            _tile_loadd(4, k, CHUNK);
            _tile_loadd(6, from, CHUNK);
            _tile_dpbf16ps(0, 6, 4);
            _tile_loadd(7, from + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(0, 7, 4);
        }
        _tile_stored(0, s + (size_t)group * GROUP, KVPI_TILE * sizeof *s);
    }
}

static void scores_bf16(const struct kvpi_tile *tile, float *s)
{
    const uint32_t n_chunks = tile->dims * 2 / CHUNK;
    const uint32_t n_groups = (tile->n_keys + GROUP - 1) / GROUP;
    const unsigned char *q = tile->queries;
    uint32_t has_low;
    memcpy(&has_low, q + (size_t)4 * tile->n_rows * tile->dims, sizeof has_low);
    for (uint32_t row = 0; row < tile->n_rows; row += GROUP, s += GROUP * KVPI_TILE) {
        if (n_groups == 4)
            score_bf16(q, tile->work, n_chunks, has_low, tile->ahead, s);
        else
            score_some_bf16(q, tile->work, n_chunks, n_groups, s);
        q += (size_t)n_chunks * 2 * TILE_BYTES;
    }
}

static __m512i value_chunk(const struct kvpi_tile *tile, uint32_t key, uint32_t at)
{
    return key < tile->n_keys ? _mm512_loadu_si512((const void *)(kvpi_row_at(&tile->v, key) + at))
                              : _mm512_setzero_si512();
}

/* Behind K. */
static unsigned char *turned_values(const struct kvpi_tile *tile)
{
    return (unsigned char *)tile->work + (size_t)KVPI_TILE * 2 * tile->dims;
}

/* V as [keys / 32, dims / 16, 16 pairs, 64 bytes]. */
static void interleave_bf16(const struct kvpi_tile *tile, unsigned char *out)
{
    const uint32_t n_pairs = tile->n_keys > 32 ? 32 : 16, row_bytes = tile->v_dims * 2;
    const size_t chunk_bytes = (size_t)tile->v_dims / GROUP * TILE_BYTES;
    for (uint32_t pair = 0; pair < n_pairs; pair++) {
        unsigned char *to = out + pair / 16 * chunk_bytes + pair % 16 * CHUNK;
        for (uint32_t at = 0; at < row_bytes; at += CHUNK, to += 2 * TILE_BYTES) {
            const __m512i a = value_chunk(tile, 2 * pair, at);
            const __m512i b = value_chunk(tile, 2 * pair + 1, at);
            _mm512_store_si512((void *)to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512((void *)(to + TILE_BYTES), _mm512_unpackhi_epi16(a, b));
        }
    }
}

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

/* 16 rows of sums. */
static void sum_rows_bf16(const struct kvpi_tile *tile, const unsigned char *weights, float *sums)
{
    const size_t half_bytes = (size_t)tile->v_dims / GROUP * TILE_BYTES;
    const size_t stride = tile->v_dims * sizeof *sums;
    const unsigned char *v = turned_values(tile);
    uint32_t e = 0;
    _tile_loadd(6, weights, CHUNK);
    _tile_loadd(7, weights + TILE_BYTES, CHUNK);
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

/* Rows of the group from `row` on that are more than padding. */
static uint32_t used_rows(const struct kvpi_tile *tile, uint32_t row)
{
    const uint32_t left = tile->n_used > row ? tile->n_used - row : 0;
    return left < GROUP ? left : GROUP;
}

/* The next 16 rows' weights are packed before these are used: what has been stored takes a while
 * until a tile can be loaded from it. */
static void values_bf16(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    _Alignas(64) unsigned char packed[2][2 * TILE_BYTES];
    pack_weights(weights, used_rows(tile, 0), packed[0]);
    for (uint32_t row = 0; row < tile->n_rows; row += GROUP) {
        const uint32_t next = row + GROUP;
        if (next < tile->n_rows)
            pack_weights(weights + (size_t)next * KVPI_TILE, used_rows(tile, next),
                         packed[next / GROUP % 2]);
        sum_rows_bf16(tile, packed[row / GROUP % 2], sums + (size_t)row * tile->v_dims);
    }
}

/* 64 rows of K, then of V. */
static size_t work_bytes_16(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * 2 * (dims + v_dims);
}

/* All lines of the next head will have been asked for when this one's rows are through. */
static void begin_steps(const struct kvpi_tile *tile)
{
    const uint32_t dims = tile->dims + tile->v_dims;
    tile->ahead->fours = KVPI_TILE * 2 * dims / CHUNK / 4;
    tile->ahead->steps = tile->n_of_all / GROUP * (dims / 32 + GROUP / SOFTMAX_STEP);
    tile->ahead->sum = 0;
}

static void prepare_bf16(const struct kvpi_tile *tile)
{
    begin_steps(tile);
    turn_keys(tile, tile->work);
    interleave_bf16(tile, turned_values(tile));
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
                                           .rows_at_once = ROWS_AT_ONCE,
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

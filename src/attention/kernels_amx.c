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

/* ------------------------------------------------------------------------------- rows of a tile */

static void copy_row(unsigned char *to, const unsigned char *from)
{
    _mm512_store_si512((void *)to, _mm512_loadu_si512((const void *)from));
}

/* K in memory of our own, [chunks, 64 keys, 64 bytes], zeros behind n_keys. */
static void gather_keys(const struct kvpi_tile *tile, uint32_t n_chunks, unsigned char *out)
{
    const uint32_t n = (tile->n_keys + GROUP - 1) / GROUP * GROUP;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n_chunks; c++) {
            unsigned char *to = out + ((size_t)c * KVPI_TILE + i) * CHUNK;
            if (i < tile->n_keys)
                copy_row(to, kvpi_row_at(&tile->k, i) + (size_t)c * CHUNK);
            else
                _mm512_store_si512((void *)to, _mm512_setzero_si512());
        }
    }
}

/* Where 16 keys and 64 bytes of them lie, and how far apart. */
struct keys_at {
    const unsigned char *first;
    size_t group_bytes; /* 0: each group by its first row */
    size_t chunk_bytes;
    size_t stride;
    const struct kvpi_tile *tile;
};

static struct keys_at find_keys(const struct kvpi_tile *tile, uint32_t n_chunks)
{
    /* Many queries look at each key, so that it is worth moving it to where reading is cheap. */
    if (tile->k.stride != 0 && tile->n_rows == GROUP && tile->n_keys % GROUP == 0)
        return (struct keys_at){.chunk_bytes = CHUNK, .stride = tile->k.stride, .tile = tile};
    gather_keys(tile, n_chunks, tile->work);
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

/* Rows of the group that are more than padding. */
static uint32_t used_rows(const struct kvpi_tile *tile, uint32_t row)
{
    const uint32_t left = tile->n_used > row ? tile->n_used - row : 0;
    return left < GROUP ? left : GROUP;
}

/* ----------------------------------------------------------------------------------------- bf16 */

/* [rows / 16, dims / 32, high and low, 16, 64 bytes]: row p of a tile has elements 2p, 2p + 1 of 16
 * queries. */
static void pack_bf16(const float *rows, uint32_t n_rows, uint32_t dims, void *out)
{
    const uint32_t has_low = (uint32_t)kvpi_has_long(rows, n_rows, dims);
    memcpy((uint32_t *)out + (size_t)n_rows * dims, &has_low, sizeof has_low);
    for (uint32_t row = 0; row < n_rows; row++) {
        uint32_t *to = (uint32_t *)out + (size_t)row / GROUP * GROUP * dims + row % GROUP;
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

static void score_long_bf16(const struct keys_at *at, const unsigned char *q, uint32_t n_chunks,
                            struct kvpi_pace *pace, float *c)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++, q += 2 * TILE_BYTES) {
        kvpi_pace_step(pace);
        _tile_loadd(6, q, CHUNK);
        _tile_loadd(7, q + TILE_BYTES, CHUNK);
        _tile_loadd(4, keys_of(at, 0, chunk), at->stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, keys_of(at, 1, chunk), at->stride);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(0, 4, 7);
        _tile_loadd(4, keys_of(at, 2, chunk), at->stride);
        _tile_dpbf16ps(1, 5, 7);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, keys_of(at, 3, chunk), at->stride);
        _tile_dpbf16ps(3, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, CHUNK);
    _tile_stored(1, c + GROUP * GROUP, CHUNK);
    _tile_stored(2, c + 2 * GROUP * GROUP, CHUNK);
    _tile_stored(3, c + 3 * GROUP * GROUP, CHUNK);
}

/* Only the high rows of queries. */
static void score_short_bf16(const struct keys_at *at, const unsigned char *q, uint32_t n_chunks,
                             struct kvpi_pace *pace, float *c)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++, q += 2 * TILE_BYTES) {
        kvpi_pace_step(pace);
        _tile_loadd(6, q, CHUNK);
        _tile_loadd(4, keys_of(at, 0, chunk), at->stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, keys_of(at, 1, chunk), at->stride);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(4, keys_of(at, 2, chunk), at->stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, keys_of(at, 3, chunk), at->stride);
        _tile_dpbf16ps(3, 5, 6);
    }
    _tile_stored(0, c, CHUNK);
    _tile_stored(1, c + GROUP * GROUP, CHUNK);
    _tile_stored(2, c + 2 * GROUP * GROUP, CHUNK);
    _tile_stored(3, c + 3 * GROUP * GROUP, CHUNK);
}

/* The same for the first of a tile's keys, where there are fewer than 64. */
static void score_some_bf16(const struct keys_at *at, const unsigned char *q, uint32_t n_chunks,
                            uint32_t n_groups, struct kvpi_pace *pace, float *c)
{
    for (uint32_t group = 0; group < n_groups; group++) {
        _tile_zero(0);
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
            if (group == 0)
                kvpi_pace_step(pace);
            const unsigned char *from = q + (size_t)chunk * 2 * TILE_BYTES;
            _tile_loadd(4, keys_of(at, group, chunk), at->stride);
            _tile_loadd(6, from, CHUNK);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, from + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(0, 4, 7);
        }
        _tile_stored(0, c + (size_t)group * GROUP * GROUP, CHUNK);
    }
}

static void store_scores(const float *c, uint32_t n_groups, uint32_t n_used, float *s)
{
    for (uint32_t group = 0; group < n_groups; group++) {
        for (uint32_t r = 0; r < n_used; r += 4) {
            __m512 rows[4];
            kvpi_turn_round(c + (size_t)group * GROUP * GROUP + r, GROUP, rows);
            for (uint32_t i = 0; i < 4; i++)
                _mm512_storeu_ps(s + (size_t)(r + i) * KVPI_TILE + (size_t)group * GROUP, rows[i]);
        }
    }
}

/* What a tile has stored takes a while until it can be read: each 16 queries' scores are turned
 * round when the next ones have been computed. */
static void scores_bf16(const struct kvpi_tile *tile, float *s)
{
    _Alignas(64) float c[2][KVPI_TILE * GROUP];
    const uint32_t n_chunks = tile->dims * 2 / CHUNK;
    const uint32_t n_groups = (tile->n_keys + GROUP - 1) / GROUP;
    const unsigned char *q = tile->queries;
    const struct keys_at at = find_keys(tile, n_chunks);
    struct kvpi_pace pace = kvpi_pace_begin(tile, tile->dims * 2, tile->n_rows / GROUP * n_chunks);
    uint32_t has_low, row = 0;
    memcpy(&has_low, (const uint32_t *)tile->queries + (size_t)tile->n_rows * tile->dims,
           sizeof has_low);
    for (; row < tile->n_rows; row += GROUP, q += (size_t)n_chunks * 2 * TILE_BYTES) {
        float *to = c[row / GROUP % 2];
        if (n_groups == 4 && has_low)
            score_long_bf16(&at, q, n_chunks, &pace, to);
        else if (n_groups == 4)
            score_short_bf16(&at, q, n_chunks, &pace, to);
        else
            score_some_bf16(&at, q, n_chunks, n_groups, &pace, to);
        if (row > 0)
            store_scores(c[row / GROUP % 2 ^ 1], n_groups, GROUP,
                         s + (size_t)(row - GROUP) * KVPI_TILE);
    }
    row -= GROUP;
    store_scores(c[row / GROUP % 2], n_groups, used_rows(tile, row), s + (size_t)row * KVPI_TILE);
}

static __m512i value_chunk(const struct kvpi_tile *tile, uint32_t key, uint32_t at)
{
    return key < tile->n_keys ? _mm512_loadu_si512((const void *)(kvpi_row_at(&tile->v, key) + at))
                              : _mm512_setzero_si512();
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

/* 16 rows of sums, two times 16 dims at a time. */
static void sum_values_bf16(const struct kvpi_tile *tile, const unsigned char *weights,
                            struct kvpi_pace *pace, float *sums)
{
    const size_t chunk_bytes = (size_t)tile->v_dims / GROUP * TILE_BYTES;
    const size_t stride = tile->v_dims * sizeof *sums;
    const unsigned char *v = tile->work;
    _tile_loadd(6, weights, CHUNK);
    _tile_loadd(7, weights + TILE_BYTES, CHUNK);
    for (uint32_t e = 0; e < tile->v_dims; e += 2 * GROUP, v += 2 * TILE_BYTES) {
        kvpi_pace_step(pace);
        _tile_loadd(0, sums + e, stride);
        _tile_loadd(1, sums + e + GROUP, stride);
        _tile_loadd(4, v, CHUNK);
        _tile_dpbf16ps(0, 6, 4);
        _tile_loadd(5, v + TILE_BYTES, CHUNK);
        _tile_dpbf16ps(1, 6, 5);
        if (tile->n_keys > 32) {
            _tile_loadd(4, v + chunk_bytes, CHUNK);
            _tile_dpbf16ps(0, 7, 4);
            _tile_loadd(5, v + chunk_bytes + TILE_BYTES, CHUNK);
            _tile_dpbf16ps(1, 7, 5);
        }
        _tile_stored(0, sums + e, stride);
        _tile_stored(1, sums + e + GROUP, stride);
    }
}

/* The next 16 rows' weights are packed before these are used, for the same reason as above. */
static void values_bf16(const struct kvpi_tile *tile, const float *weights, float *sums)
{
    _Alignas(64) unsigned char packed[2][2 * TILE_BYTES];
    struct kvpi_pace pace =
        kvpi_pace_begin(tile, tile->v_dims * 2, tile->n_rows / GROUP * (tile->v_dims / GROUP / 2));
    pack_weights(weights, used_rows(tile, 0), packed[0]);
    interleave_bf16(tile, tile->work);
    for (uint32_t row = 0; row < tile->n_rows; row += GROUP) {
        const uint32_t next = row + GROUP;
        if (next < tile->n_rows)
            pack_weights(weights + (size_t)next * KVPI_TILE, used_rows(tile, next),
                         packed[next / GROUP % 2]);
        sum_values_bf16(tile, packed[row / GROUP % 2], &pace, sums + (size_t)row * tile->v_dims);
    }
}

/* K gathered, or V interleaved: 64 rows. */
static size_t work_bytes_16(uint32_t dims, uint32_t v_dims)
{
    return (size_t)KVPI_TILE * 2 * (dims > v_dims ? dims : v_dims);
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

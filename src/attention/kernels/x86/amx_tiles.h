/* amx_tiles: what the kernels on AMX tiles have in common. A tile has up to 16 rows of 64 bytes. */
#ifndef KVPI_AMX_TILES_H
#define KVPI_AMX_TILES_H

#include "attention/fast/kernels_body.h"

enum { GROUP = 16, CHUNK = 64 /* bytes of a row */, TILE_BYTES = GROUP * CHUNK };

struct kvpi_tile_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Eight full tiles. */
static inline struct kvpi_tile_config kvpi_full_tiles(void)
{
    struct kvpi_tile_config config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = CHUNK;
        config.rows[i] = GROUP;
    }
    return config;
}

static inline void kvpi_set_tiles(const struct kvpi_tile_config *config)
{
    /* The intrinsic is declared as if it read eight bytes; the others are used as well. */
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

static inline const unsigned char *kvpi_row_at(const struct kvpi_tile_rows *rows, uint32_t i)
{
    return rows->rows[i] + rows->offset;
}

/* Four numbers of each fourth of 16 rows. */
INLINE __m512 kvpi_every_fourth(const float *at, size_t stride)
{
    __m512 x = _mm512_castps128_ps512(_mm_load_ps(at));
    x = _mm512_insertf32x4(x, _mm_load_ps(at + 4 * stride), 1);
    x = _mm512_insertf32x4(x, _mm_load_ps(at + 8 * stride), 2);
    return _mm512_insertf32x4(x, _mm_load_ps(at + 12 * stride), 3);
}

/* Four columns of [16 keys, `stride` numbers] as rows. */
INLINE void kvpi_turn_round(const float *c, size_t stride, __m512 out[4])
{
    const __m512 x0 = kvpi_every_fourth(c, stride);
    const __m512 x1 = kvpi_every_fourth(c + stride, stride);
    const __m512 x2 = kvpi_every_fourth(c + 2 * stride, stride);
    const __m512 x3 = kvpi_every_fourth(c + 3 * stride, stride);
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(x0, x1));
    const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(x2, x3));
    const __m512d c2 = _mm512_castps_pd(_mm512_unpackhi_ps(x0, x1));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(x2, x3));
    out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c2, d));
    out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c2, d));
}

#endif

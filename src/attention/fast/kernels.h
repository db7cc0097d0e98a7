/* kernels: what is done with a tile of keys, in one form for each set of instructions.
 *
 * fast.c walks over sequences, blocks and heads, and knows nothing of vectors; a kernel knows
 * nothing of sequences and blocks. Between them is the tile: up to 64 keys of one KV head, and the
 * rows of queries that look at them (every query of an item, times the query heads that share the
 * KV head):
 *
 *     scores    s[row][key]  = q . k              [M, 64]
 *     softmax   s becomes weights; largest, total and sums keep the running softmax
 *     values    sums[row]   += weights . v        [M, Dv padded]
 *
 * A path is these for one type of elements: on the type itself where the processor can multiply it,
 * else on rows of f32 that fast.c has converted.
 *
 * Scores are in base 2: queries come multiplied by log2(e), so that a weight is a power of two.
 */
#ifndef KVPI_KERNELS_H
#define KVPI_KERNELS_H

#include "kvpager/attention.h"

enum {
    KVPI_TILE = 64,    /* keys of a tile, at most: bits of a mask */
    KVPI_ROW_PAD = 16, /* floats: rows of sums and of f32 are padded to it, with zeros */
    KVPI_WIDE_PAD = 64 /* bytes: rows of other types likewise */
};

/* Rows of a tile, K or V: row i at rows[i] + offset. */
struct kvpi_tile_rows {
    const unsigned char *const *rows; /* [n_keys] */
    size_t offset;
    size_t stride;       /* bytes from row to row within each 16 keys; 0: not even */
    const float *scales; /* [n_keys]; NULL: 1 */
};

enum { KVPI_LINE = 64 /* bytes */, KVPI_UNIT = 16 /* pieces */ };

/* What is asked for while a tile is computed, four lines for each four that are used, the rows of K
 * before those of V; see ahead.h. It does not run out: the last pieces are asked for again. In
 * order of addresses, a unit is a piece, and `turn` and `next` are not used. */
struct kvpi_ahead {
    const unsigned char *const *unit; /* the pieces whose columns are asked for */
    const unsigned char *const *next; /* of this column, four at a time */
    const unsigned char *const *turn; /* behind the unit */
    const unsigned char *const *end;
    size_t at;    /* of the column, from the pieces on */
    size_t begin; /* of the first column */
    size_t past;  /* the last one */
    uint32_t in_order;
    /* Where work takes few steps: so many times four lines in so many of them. */
    uint32_t fours, steps, sum;
};

struct kvpi_lines {
    const unsigned char *at[4];
};

/* The next column of the unit, or the first one of the next unit. */
static inline void kvpi_ahead_turn(struct kvpi_ahead *ahead)
{
    ahead->at += KVPI_LINE;
    if (ahead->at == ahead->past) {
        ahead->at = ahead->begin;
        if (ahead->turn < ahead->end) {
            ahead->unit = ahead->turn;
            ahead->turn =
                ahead->end - ahead->unit < KVPI_UNIT ? ahead->end : ahead->unit + KVPI_UNIT;
        }
    }
    ahead->next = ahead->unit;
}

/* Four lines of a piece that follow each other. */
static inline struct kvpi_lines kvpi_ahead_in_order(struct kvpi_ahead *ahead)
{
    struct kvpi_lines lines;
    for (uint32_t i = 0; i < 4; i++)
        lines.at[i] = *ahead->unit + ahead->at + (size_t)i * KVPI_LINE;
    ahead->at += (size_t)4 * KVPI_LINE;
    if (ahead->at == ahead->past) {
        ahead->at = ahead->begin;
        ahead->unit += ahead->unit + 1 < ahead->end;
    }
    return lines;
}

static inline struct kvpi_lines kvpi_ahead_next(struct kvpi_ahead *ahead)
{
    struct kvpi_lines lines;
    if (ahead->in_order)
        return kvpi_ahead_in_order(ahead);
    for (int i = 0; i < 4; i++)
        lines.at[i] = ahead->next[i] + ahead->at;
    ahead->next += 4;
    if (ahead->next == ahead->turn)
        kvpi_ahead_turn(ahead);
    return lines;
}

struct kvpi_tile {
    uint32_t n_rows; /* M, a multiple of the padding that the path asks for */
    uint32_t n_used; /* of them, those that are not padding: the first */
    uint32_t n_keys; /* 1..64 */
    uint32_t type;   /* of K and V, as the path has it */
    uint32_t dims;   /* D, padded */
    uint32_t v_dims; /* Dv, padded */
    struct kvpi_tile_rows k, v;
    const void *queries; /* as `pack` left them */
    void *work;          /* the path's own memory */
    struct kvpi_ahead *ahead;
};

/* The running softmax of the rows of one KV head. */
struct kvpi_softmax {
    uint32_t n_rows;
    uint32_t n_keys;
    uint32_t group;  /* rows that share a mask */
    uint32_t v_dims; /* padded */
    float cap;       /* soft cap, of scores that are not in base 2 yet; 0: none */
    float slack;
    const uint64_t *masks; /* [n_rows / group] the keys that a query sees; NULL: all */
    float *s;              /* [M, 64] scores, then weights; 0 behind n_keys */
    float *largest;        /* [M] what weights are relative to */
    float *total;          /* [M] */
    float *sums;           /* [M, v_dims] */
};

/* How one type of elements is multiplied. */
struct kvpi_path {
    uint32_t type;      /* of the rows that it reads: KVP_F32 for the one that takes all types */
    uint32_t row_pad;   /* M is padded to a multiple of it */
    uint32_t dims_pad;  /* elements: D and Dv are padded to it; rows with others are copied */
    float slack;        /* how far a weight may exceed 1 before sums are scaled; in powers of 2 */
    size_t query_bytes; /* of a packed query, for each padded element */
    size_t (*work_bytes)(uint32_t dims, uint32_t v_dims); /* of the path's own memory */
    void (*begin)(uint32_t n_rows); /* before an item's first tile; NULL: nothing to do */
    void (*end)(void);              /* behind its last one */
    void (*pack)(const float *rows, uint32_t n_rows, uint32_t dims, void *out);
    uint32_t asks_early; /* lines are used all at once, so are asked for while the whole head before
                              them is computed, not shortly before their use */
    void (*scores)(const struct kvpi_tile *tile, float *s);
    void (*values)(const struct kvpi_tile *tile, const float *weights, float *sums);
    /* All three, where a path goes its own way, `s` its memory; NULL: one after the other. */
    void (*attend)(const struct kvpi_tile *tile, const struct kvpi_softmax *softmax);
    /* A row of sums as it should be, with the help of as much memory; NULL: it is. */
    void (*order)(float *sums, uint32_t v_dims, float *memory);
    uint32_t few_rows;           /* items of up to so many rows are better done by `few` */
    const struct kvpi_path *few; /* the same type and padding of dims; NULL: they are not */
};

struct kvpi_kernels {
    uint32_t impl; /* KVP_ATTENTION_... */
    const struct kvpi_path *f32;
    const struct kvpi_path *f16, *bf16, *int8, *q8_0; /* NULL: by f32 */
    void (*read)(uint32_t type, float scale, const void *elements, uint32_t n, float *out);
    void (*softmax)(const struct kvpi_softmax *softmax);
    /* out[e] = sum of shares[i] * rows[i][e]; shares of 0 are skipped */
    void (*combine)(const float *const *rows, const float *shares, uint32_t n, uint32_t size,
                    float *out);
    /* Elements of f32, f16 or bf16; 0: nothing written, there is a NaN among them. */
    int (*write)(uint32_t type, const float *values, uint32_t n, void *out);
    /* The largest |value|; more than any number if one of them is none. */
    float (*largest)(const float *values, uint32_t n);
    /* Numbers / scale, rounded to the nearest, ties to even. */
    void (*write_int8)(const float *values, float scale, uint32_t n, int8_t *out);
};

/* Bytes of a row of n elements side by side. */
static inline size_t kvpi_row_bytes(uint32_t type, uint32_t n)
{
    return type == KVP_Q8_0 ? (size_t)n / KVP_Q8_0_ELEMENTS * KVP_Q8_0_BYTES
                            : n * kvp_type_bytes(type);
}

/* The kernels of an implementation; NULL for the reference, and for one that this processor does
 * not have. */
const struct kvpi_kernels *kvpi_kernels_find(uint32_t impl);

/* Of each file; NULL where it was compiled for another processor. */
const struct kvpi_kernels *kvpi_kernels_portable(void);
const struct kvpi_kernels *kvpi_kernels_avx2(void);
const struct kvpi_kernels *kvpi_kernels_avx512(void);
const struct kvpi_kernels *kvpi_kernels_avx512_bf16(void);
const struct kvpi_kernels *kvpi_kernels_avx512_fp16(void);
const struct kvpi_kernels *kvpi_kernels_amx(void);
const struct kvpi_kernels *kvpi_kernels_neon(void);

#endif

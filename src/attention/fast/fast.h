/* fast: attention with vectors and threads. What these are called with was checked, as for the
 * reference. */
#ifndef KVPI_FAST_H
#define KVPI_FAST_H

#include "attention/fast/ahead.h"
#include "attention/fast/kernels.h"
#include "attention/attention_plan.h"
#include "attention/fast/tile.h"

/* Scratch memory of one thread: an item's. */
struct kvpi_desk {
    float *rows;                  /* [rows, D] queries of one head */
    unsigned char *queries;       /* [heads, rows] packed */
    double *turn;                 /* [queries + 1, pairs, 2]; the last: of position 1 */
    float *s;                     /* [rows, 64] */
    float *sums;                  /* [heads, rows, Dv] */
    float *largest;               /* [heads, rows] */
    float *total;                 /* [heads, rows] */
    uint64_t *masks;              /* [2, queries] */
    struct kvpi_reach *reaches;   /* [queries] */
    struct kvpi_places *places;   /* [2] this tile and the next */
    struct kvpi_pieces pieces[2]; /* of both */
    float *scales;                /* [2, 64] of K and V */
    unsigned char *k_memory;      /* [64, row] staged */
    unsigned char *v_memory;
    const unsigned char **k_rows; /* [64] */
    const unsigned char **v_rows;
    void *work;
    struct kvpi_turns turns;
    uint32_t *list; /* [max_keys] */
};

struct kvpi_fast {
    const struct kvpi_kernels *kernels;
    const struct kvpi_path *path;
    uint32_t n_threads;
    uint32_t dims;     /* padded */
    uint32_t v_dims;   /* padded */
    uint32_t max_rows; /* of an item, padded */
    double *frequencies;
    struct kvpi_plan plan;
    float *part_sums;        /* [parts, Q, Dv] */
    float *part_stats;       /* [parts, Q, 2] largest, total */
    struct kvpi_desk *desks; /* [n_threads] */
};

void kvpi_fast_scratch(struct kvpi_fast *out, const kvp_attention *attention,
                       const struct kvpi_kernels *kernels, struct kvpi_scratch *scratch);

/* `places` as kvpi_batch_make leaves it. */
void kvpi_fast_attention(struct kvpi_fast *fast, const struct kvpi_batch *batch,
                         const int32_t *places);

void kvpi_fast_merge(const kvp_merge *merge, const struct kvpi_kernels *kernels);

#endif

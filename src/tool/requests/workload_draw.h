/* Between the generator's files only: random draws in integer arithmetic.
 *
 * The generator is splitmix64: tiny, and every stream of it can be seeded on its own, so that what
 * one conversation draws does not depend on what others do.
 */
#ifndef KVPI_WORKLOAD_DRAW_H
#define KVPI_WORKLOAD_DRAW_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvpi_draw {
    uint64_t state;
} kvpi_draw;

/* A distribution by its quantiles: `permyriad` of 10,000 draws are below `value`. The first point
 * is at 0, the last at 10,000, both ascend; between points it is linear. */
typedef struct kvpi_draw_point {
    uint32_t permyriad;
    uint32_t value;
} kvpi_draw_point;

/* Begin stream `stream` of a seed. */
kvpi_draw kvpi_draw_seed(uint64_t seed, uint64_t stream);

/* Draw 64 random bits. */
uint64_t kvpi_draw_bits(kvpi_draw *draw);

/* Draw from 0..n-1, n >= 1. */
uint32_t kvpi_draw_below(kvpi_draw *draw, uint32_t n);

/* Draw from a table of quantiles. */
uint32_t kvpi_draw_from(kvpi_draw *draw, const kvpi_draw_point *points);

/* Draw the time to the next arrival of a Poisson process, given the mean time.
 *
 * Takes:   mean_us  0..2^50
 */
int64_t kvpi_draw_gap(kvpi_draw *draw, int64_t mean_us);

/* Draw a rank from 0..n-1, the r-th with weight 1 / (r + 1) (Zipf with exponent 1).
 *
 * Cost: O(n)
 */
uint32_t kvpi_draw_rank(kvpi_draw *draw, uint32_t n);

#endif

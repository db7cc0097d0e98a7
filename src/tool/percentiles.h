/* Percentiles: of figures that are all there, and of counts of figures that would be too many. */
#ifndef KVPI_PERCENTILES_H
#define KVPI_PERCENTILES_H

#include <stddef.h>
#include <stdint.h>

/* By nearest rank: p99 of n values is the ceil(0.99 n)-th smallest, a value that occurred. All 0
 * for no values. */
typedef struct kvpi_percentiles {
    uint64_t n;
    double mean;
    uint64_t p50;
    uint64_t p90;
    uint64_t p95;
    uint64_t p99;
    uint64_t max;
} kvpi_percentiles;

/* Sort the values, ascending, and read their percentiles.
 *
 * Takes:   values   [n], sorted in place; NULL only when n is 0
 */
kvpi_percentiles kvpi_percentiles_of(uint64_t *values, size_t n);

/* Counts of values by size: 128 classes for each power of two. */
enum { KVPI_HISTOGRAM_PARTS = 128, KVPI_HISTOGRAM_CLASSES = (64 - 7 + 1) * KVPI_HISTOGRAM_PARTS };

typedef struct kvpi_histogram {
    uint64_t n;
    double sum;
    uint64_t max;
    uint64_t counts[KVPI_HISTOGRAM_CLASSES];
} kvpi_histogram;

/* Count a value. Takes: histogram, all zero at first. */
void kvpi_histogram_add(kvpi_histogram *histogram, uint64_t value);

/* Read the percentiles: mean and max are exact, the others the largest value of the class of the
 * exact one (and at most max): equal below 256, else too large by less than 1 in 128. */
kvpi_percentiles kvpi_histogram_percentiles(const kvpi_histogram *histogram);

#endif

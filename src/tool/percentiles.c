/* Owns order statistics.
 *
 * Figures of requests are kept and sorted. Figures of steps and tokens are too many to keep, and
 * are counted in classes:
 *
 *   value          class                               width
 *   0..127         value                               1
 *   2^e + r        (e - 6) x 128 + r / 2^(e - 7)       2^(e - 7), e >= 7
 */
#include "tool/percentiles.h"

#include <stdlib.h>

#define PARTS_BITS 7

/* Rank from 1. n x percent fits: there are fewer than 2^57 values. */
static uint64_t rank_of(uint64_t n, unsigned percent)
{
    uint64_t rank = (n * percent + 99) / 100;
    return rank == 0 ? 1 : rank;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

kvpi_percentiles kvpi_percentiles_of(uint64_t *values, size_t n)
{
    kvpi_percentiles out = {.n = n};
    double sum = 0;
    if (n == 0)
        return out;
    qsort(values, n, sizeof *values, compare);
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i];
    out.mean = sum / (double)n;
    out.p50 = values[rank_of(n, 50) - 1];
    out.p90 = values[rank_of(n, 90) - 1];
    out.p95 = values[rank_of(n, 95) - 1];
    out.p99 = values[rank_of(n, 99) - 1];
    out.max = values[n - 1];
    return out;
}

/* Position of the highest bit that is set. */
static unsigned exponent_of(uint64_t value)
{
    unsigned e = 0;
    for (unsigned step = 32; step > 0; step /= 2)
        if (value >> step != 0) {
            value >>= step;
            e += step;
        }
    return e;
}

static size_t class_of(uint64_t value)
{
    if (value < KVPI_HISTOGRAM_PARTS)
        return (size_t)value;
    unsigned e = exponent_of(value);
    return (size_t)(e - PARTS_BITS) * KVPI_HISTOGRAM_PARTS + (size_t)(value >> (e - PARTS_BITS));
}

static uint64_t largest_in(size_t class)
{
    if (class < KVPI_HISTOGRAM_PARTS)
        return class;
    unsigned shift = (unsigned)(class / KVPI_HISTOGRAM_PARTS) - 1;
    uint64_t part = class % KVPI_HISTOGRAM_PARTS + KVPI_HISTOGRAM_PARTS;
    return (part << shift) + ((UINT64_C(1) << shift) - 1);
}

void kvpi_histogram_add(kvpi_histogram *histogram, uint64_t value)
{
    histogram->counts[class_of(value)]++;
    histogram->n++;
    histogram->sum += (double)value;
    if (value > histogram->max)
        histogram->max = value;
}

kvpi_percentiles kvpi_histogram_percentiles(const kvpi_histogram *histogram)
{
    kvpi_percentiles out = {.n = histogram->n, .max = histogram->max};
    uint64_t *const places[] = {&out.p50, &out.p90, &out.p95, &out.p99};
    enum { N_PERCENTS = sizeof places / sizeof *places };
    static const unsigned percents[] = {50, 90, 95, 99};
    uint64_t passed = 0;
    size_t next = 0;
    if (histogram->n == 0)
        return out;
    out.mean = histogram->sum / (double)histogram->n;
    for (size_t class = 0; class < KVPI_HISTOGRAM_CLASSES && next < N_PERCENTS; class ++) {
        passed += histogram->counts[class];
        while (next < N_PERCENTS && passed >= rank_of(histogram->n, percents[next])) {
            uint64_t value = largest_in(class);
            *places[next++] = value < histogram->max ? value : histogram->max;
        }
    }
    return out;
}

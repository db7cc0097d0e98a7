/* Random draws whose results are the same on every machine: no libc generator, no floating point.
 *
 * Heavy tails come from tables of quantiles (a median, a 90th and a 99th percentile say more to a
 * reader than a mean and a sigma); the exponential distribution of arrivals is such a table too.
 */
#include "tool/requests/workload_draw.h"

#include <assert.h>

/* Quantiles of the exponential distribution with mean 1000: -1000 ln(1 - q). The end is cut at 10
 * means; the chords between the points make the mean 2 % larger, which does not matter here. */
static const kvpi_draw_point exponential[] = {
    {0, 0},       {1000, 105},  {2000, 223},  {3000, 357},  {4000, 511},   {5000, 693},
    {6000, 916},  {7000, 1204}, {8000, 1609}, {9000, 2303}, {9500, 2996},  {9800, 3912},
    {9900, 4605}, {9950, 5298}, {9990, 6908}, {9999, 9210}, {10000, 10000}};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

kvpi_draw kvpi_draw_seed(uint64_t seed, uint64_t stream)
{
    return (kvpi_draw){mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + stream)};
}

uint64_t kvpi_draw_bits(kvpi_draw *draw)
{
    draw->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(draw->state);
}

uint32_t kvpi_draw_below(kvpi_draw *draw, uint32_t n)
{
    return (uint32_t)(((kvpi_draw_bits(draw) >> 32) * n) >> 32);
}

/* Draws 2^16 places for each of the 10,000, so that steep ends are fine enough. */
uint32_t kvpi_draw_from(kvpi_draw *draw, const kvpi_draw_point *points)
{
    uint64_t place = kvpi_draw_below(draw, UINT32_C(10000) << 16);
    while (place >= (uint64_t)points[1].permyriad << 16)
        points++;
    uint64_t width = (uint64_t)(points[1].permyriad - points[0].permyriad) << 16;
    uint64_t inside = place - ((uint64_t)points[0].permyriad << 16);
    uint64_t height = points[1].value - points[0].value;
    return points[0].value + (uint32_t)(height * inside / width);
}

int64_t kvpi_draw_gap(kvpi_draw *draw, int64_t mean_us)
{
    return mean_us * (int64_t)kvpi_draw_from(draw, exponential) / 1000;
}

static uint64_t weight_of(uint32_t rank)
{
    return (UINT64_C(1) << 20) / (rank + 1);
}

uint32_t kvpi_draw_rank(kvpi_draw *draw, uint32_t n)
{
    assert(n > 0);
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < n; rank++)
        total += weight_of(rank);
    uint64_t place = kvpi_draw_bits(draw) % total;
    uint32_t rank = 0;
    for (; place >= weight_of(rank); rank++)
        place -= weight_of(rank);
    return rank;
}

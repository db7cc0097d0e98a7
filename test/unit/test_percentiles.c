/* Percentiles by nearest rank, and histograms against them. */
#include <stdlib.h>

#include "mocka.h"
#include "xorshift.h"
#include "tool/percentiles.h"

enum { N_RANDOM = 5000 };

TEST(test_nothing)
{
    static kvpi_histogram histogram;
    (void)state;
    kvpi_percentiles p = kvpi_percentiles_of(NULL, 0);
    assert_int_equal(p.n, 0);
    assert_int_equal(p.p50 + p.p90 + p.p95 + p.p99 + p.max, 0);
    assert_true(p.mean == 0);
    p = kvpi_histogram_percentiles(&histogram);
    assert_int_equal(p.n, 0);
    assert_int_equal(p.p50 + p.p90 + p.p95 + p.p99 + p.max, 0);
    assert_true(p.mean == 0);
}

static void expect(uint64_t *values, size_t n, const uint64_t expected[5])
{
    kvpi_percentiles p = kvpi_percentiles_of(values, n);
    assert_fields(p, n, n, p50, expected[0], p90, expected[1]);
    assert_fields(p, p95, expected[2], p99, expected[3], max, expected[4]);
}

TEST(test_nearest_rank)
{
    expect((uint64_t[]){7}, 1, (uint64_t[]){7, 7, 7, 7, 7});
    expect((uint64_t[]){9, 3}, 2, (uint64_t[]){3, 9, 9, 9, 9});
    expect((uint64_t[]){9, 3, 5}, 3, (uint64_t[]){5, 9, 9, 9, 9});
    uint64_t hundred[100], more[101];
    for (uint64_t i = 0; i < 101; i++) {
        more[i] = 101 - i;
        if (i < 100)
            hundred[i] = (i * 37 + 11) % 100 + 1; /* 1..100 */
    }
    expect(hundred, 100, (uint64_t[]){50, 90, 95, 99, 100});
    expect(more, 101, (uint64_t[]){51, 91, 96, 100, 101});
    assert_int_equal(more[0], 1);
    assert_int_equal(more[100], 101);
}

TEST(test_mean)
{
    kvpi_percentiles p = kvpi_percentiles_of((uint64_t[]){1, 2, 6}, 3);
    assert_true(p.mean == 3);
    p = kvpi_percentiles_of((uint64_t[]){UINT64_MAX, UINT64_MAX}, 2);
    assert_true(p.mean == 18446744073709551616.0);
}

static void expect_within(uint64_t rough, uint64_t exact)
{
    assert_true(rough >= exact);
    assert_true(rough - exact <= exact / 128);
    if (exact < 256)
        assert_int_equal(rough, exact);
}

/* Values of `bits` bits and fewer. */
static void compare_with_histogram(unsigned bits, size_t n, uint64_t *seed)
{
    static kvpi_histogram histogram;
    static uint64_t values[N_RANDOM];
    histogram = (kvpi_histogram){.n = 0};
    for (size_t i = 0; i < n; i++) {
        values[i] = draw(seed) >> (64 - bits) >> draw(seed) % bits;
        kvpi_histogram_add(&histogram, values[i]);
    }
    kvpi_percentiles exact = kvpi_percentiles_of(values, n);
    kvpi_percentiles rough = kvpi_histogram_percentiles(&histogram);
    assert_fields(rough, n, exact.n, max, exact.max);
    assert_true(rough.mean <= exact.mean * (1 + 1e-12) && rough.mean >= exact.mean * (1 - 1e-12));
    expect_within(rough.p50, exact.p50);
    expect_within(rough.p90, exact.p90);
    expect_within(rough.p95, exact.p95);
    expect_within(rough.p99, exact.p99);
    assert_true(rough.p50 <= rough.p90 && rough.p90 <= rough.p95 && rough.p95 <= rough.p99 &&
                rough.p99 <= rough.max);
}

TEST(test_histogram)
{
    uint64_t seed = 20;
    (void)state;
    for (unsigned bits = 1; bits <= 64; bits++)
        for (size_t n = 1; n <= N_RANDOM; n *= 7)
            compare_with_histogram(bits, n, &seed);
}

/* Every value at a border of classes. */
TEST(test_histogram_borders)
{
    for (unsigned e = 0; e < 64; e++)
        for (int offset = -1; offset <= 1; offset++) {
            kvpi_histogram *histogram = calloc(1, sizeof *histogram);
            uint64_t value = (UINT64_C(1) << e) + (uint64_t)(int64_t)offset;
            assert_non_null(histogram);
            kvpi_histogram_add(histogram, value);
            kvpi_histogram_add(histogram, UINT64_MAX);
            kvpi_percentiles p = kvpi_histogram_percentiles(histogram);
            expect_within(p.p50, value);
            assert_int_equal(p.p99, UINT64_MAX);
            free(histogram);
        }
}

TEST_MAIN(NULL, NULL)

/* Bins of ages, and the index: against probabilities and sums in floating point that are written
 * from the formulas in hits.h, by the definition and slowly. */
#include <math.h>
#include <string.h>

#include "core/policy/bins.h"
#include "core/policy/hits.h"
#include "world.h"

enum { CLASSES = KVPI_CLASSES, BINS = KVPI_BINS };

/* In sixteenths of C. */
static const double edges[BINS + 1] = {0,  1,  1.5, 2,  3,  4,  6,   8,   12,
                                       16, 24, 32,  48, 64, 96, 128, 192, 256};

/* ------------------------------------------------------------------------------------- the bins */

TEST(test_edges)
{
    for (uint32_t b = 0; b <= BINS; b++) {
        assert_true(kvpi_bins_32nds(b) == (uint32_t)(2 * edges[b]));
        assert_true(kvpi_bins_edge(1600, b) == (uint64_t)(100 * edges[b]));
    }
    assert_int_equal(kvpi_bins_edge(UINT32_MAX, BINS), (uint64_t)UINT32_MAX * KVPI_SPAN);
    assert_int_equal(kvpi_bins_edge(10, 1), 1); /* 0.625, and ages are whole */
}

/* Every age of some sizes, those that leave bins empty among them. */
TEST(test_bins_of_ages)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 16, 31, 32, 33, 100, 4097};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t n = sizes[i];
        for (uint64_t age = 0; age <= 17 * (uint64_t)n; age++) {
            uint32_t bin = 0;
            while (bin < BINS && (double)age >= edges[bin + 1] * n / 16)
                bin++;
            assert_int_equal(kvpi_bins_of(n, age), bin);
            assert_true(age >= kvpi_bins_edge(n, bin));
            assert_true(bin == BINS || age < kvpi_bins_edge(n, bin + 1));
        }
    }
}

TEST(test_units)
{
    assert_int_equal(kvpi_bins_shift(1), 0);
    assert_int_equal(kvpi_bins_shift(8191), 0);
    assert_int_equal(kvpi_bins_shift(8192), 1);
    assert_int_equal(kvpi_bins_shift(1 << 20), 8);
    assert_int_equal(kvpi_bins_shift(UINT32_MAX), 19);
}

/* ------------------------------------------------------------------------------------ the index */

struct slow {
    double h[CLASSES][BINS];
    double near[CLASSES][BINS];
    double far[CLASSES][BINS];
};

static void slow_chances(const struct kvpi_hits *hits, struct slow *slow)
{
    double g[BINS];
    for (int b = 0; b < BINS; b++) {
        double used = 480 * 0.02, at_risk = 480;
        for (int c = 0; c < CLASSES; c++) {
            used += hits->hits[c][b];
            at_risk += hits->at_risk[c][b];
        }
        g[b] = used / at_risk;
    }
    for (int c = 0; c < CLASSES; c++) {
        double used = 1600, expected = 1600;
        for (int b = 0; b < BINS; b++) {
            used += hits->hits[c][b];
            expected += hits->at_risk[c][b] * g[b];
        }
        for (int b = 0; b < BINS; b++) {
            const double believed = fmin(0.9, g[b] * used / expected);
            slow->h[c][b] = (hits->hits[c][b] + 1600 * believed) / (hits->at_risk[c][b] + 1600.0);
        }
    }
}

/* What content at the beginning of bin a gives for a 32nd of C, if it goes at the end of bin e. */
static double pays(const double h[BINS], int a, int e)
{
    double gain = 0, price = 0;
    for (int b = a; b <= e; b++) {
        double left = 1;
        for (int before = a; before < b; before++)
            left *= 1 - h[before];
        gain += left * h[b];
        price += 2 * (edges[b + 1] - edges[b]) * left * (1 - h[b] / 2);
    }
    return gain / price;
}

static void slow_index(const struct kvpi_hits *hits, struct slow *slow)
{
    slow_chances(hits, slow);
    for (int c = 0; c < CLASSES; c++) {
        for (int a = 0; a < BINS; a++) {
            slow->near[c][a] = 0;
            for (int e = a; e < BINS; e++)
                slow->near[c][a] = fmax(slow->near[c][a], pays(slow->h[c], a, e));
        }
        for (int a = 0; a < BINS; a++) {
            slow->far[c][a] = 0;
            for (int b = a; b < BINS; b++)
                slow->far[c][a] = fmax(slow->far[c][a], slow->near[c][b]);
        }
    }
}

/* A probability has 24 bits, and a value is made of at most 17 of them. */
static void expect_near(uint32_t value, double slow)
{
    const double found = (double)value / (1 << KVPI_VALUE_BITS);
    if (fabs(found - slow) > slow * 1e-4 + 2e-7)
        fail_msg("the value is %.12g, expected %.12g", found, slow);
}

static void expect_index(const struct kvpi_hits *hits)
{
    static struct slow slow;
    slow_index(hits, &slow);
    for (int c = 0; c < CLASSES; c++) {
        for (int a = 0; a < BINS; a++) {
            expect_near(hits->now[c][a], slow.near[c][a]);
            expect_near(hits->best[c][a], slow.far[c][a]);
        }
        assert_int_equal(hits->now[c][BINS], 0);
        assert_int_equal(hits->best[c][BINS], 0);
    }
    assert_null(kvpi_hits_check(hits));
}

/* Every class has its turn, and its index is made. */
static void learn_all(struct kvpi_hits *hits)
{
    for (int turn = 0; turn < KVPI_HITS_TURNS; turn++)
        kvpi_hits_learn(hits);
    for (uint32_t c = 0; c < CLASSES; c++)
        kvpi_hits_settle(hits, c);
}

/* At first every class is worth the same, at every age. */
TEST(test_index_of_nothing)
{
    struct kvpi_hits hits;
    (void)state;
    memset(&hits, 0xA5, sizeof hits);
    kvpi_hits_reset(&hits);
    for (uint32_t c = 0; c < CLASSES; c++)
        kvpi_hits_settle(&hits, c);
    expect_index(&hits);
    for (int c = 1; c < CLASSES; c++)
        assert_memory_equal(hits.now[c], hits.now[0], sizeof hits.now[0]);
}

static void count(struct kvpi_hits *hits, uint32_t class_, uint32_t bin, uint32_t used,
                  uint32_t outlived)
{
    for (uint32_t i = 0; i < used; i++)
        kvpi_hits_used(hits, class_, bin);
    for (uint32_t i = 0; i < outlived; i++)
        kvpi_hits_outlived(hits, class_, bin);
}

/* Classes that differ in how much comes back and when: nothing, all at once, late, at random. */
TEST(test_index_of_counts)
{
    static struct kvpi_hits hits;
    uint64_t random = 7;
    (void)state;
    for (int round = 0; round < 20; round++) {
        kvpi_hits_reset(&hits);
        for (uint32_t c = 0; c < CLASSES; c++) {
            const uint32_t kind = draw(&random, 4);
            for (uint32_t b = 0; b < BINS; b++) {
                const uint32_t n = draw(&random, 1u << draw(&random, 9));
                const uint32_t used = kind == 0   ? 0
                                      : kind == 1 ? n
                                      : kind == 2 ? (b > 10 ? n : 0)
                                                  : draw(&random, n + 1);
                count(&hits, c, b, used, n - used);
            }
        }
        learn_all(&hits);
        expect_index(&hits);
    }
}

/* As much as is ever counted before it is halved: nothing overflows. */
TEST(test_index_of_many)
{
    static struct kvpi_hits hits;
    const uint32_t most = KVPI_HITS_MOST;
    (void)state;
    for (int used = 0; used <= 1; used++) {
        kvpi_hits_reset(&hits);
        for (uint32_t b = 0; b < BINS; b++) {
            hits.at_risk[3][b] = hits.at_risk[CLASSES][b] = most;
            hits.hits[3][b] = hits.hits[CLASSES][b] = used && b < 2 ? most : 0;
        }
        count(&hits, 3, 0, 10, 10); /* more is not counted */
        count(&hits, 4, 0, 10, 10);
        assert_int_equal(hits.at_risk[3][0], most);
        assert_int_equal(hits.at_risk[4][0], 0);
        learn_all(&hits);
        expect_index(&hits);
    }
}

static void expect_same_index(const struct kvpi_hits *a, const struct kvpi_hits *b, uint32_t class_)
{
    uint32_t now[2][BINS], best[2][BINS];
    kvpi_hits_index(a, class_, now[0], best[0]);
    kvpi_hits_index(b, class_, now[1], best[1]);
    assert_memory_equal(now[0], now[1], sizeof now[0]);
    assert_memory_equal(best[0], best[1], sizeof best[0]);
}

/* Some classes at a time, in turn. */
TEST(test_turns)
{
    static struct kvpi_hits hits, before;
    (void)state;
    kvpi_hits_reset(&hits);
    for (uint32_t c = 0; c < CLASSES; c++) {
        kvpi_hits_settle(&hits, c);
        count(&hits, c, c % BINS, 100, 0);
    }
    for (uint32_t turn = 0; turn < CLASSES; turn += 4) {
        before = hits;
        kvpi_hits_learn(&hits);
        for (uint32_t c = 0; c < CLASSES; c++) {
            kvpi_hits_settle(&hits, c);
            const int same = memcmp(hits.now[c], before.now[c], sizeof hits.now[c]) == 0;
            assert_int_equal(same, c < turn || c >= turn + 4);
        }
    }
    expect_index(&hits);
}

/* An index is made of what was counted when its class had its turn, whenever it is made. */
TEST(test_late)
{
    static struct kvpi_hits late, early;
    uint64_t random = 3;
    (void)state;
    kvpi_hits_reset(&late);
    kvpi_hits_reset(&early);
    for (int round = 0; round < 200; round++) {
        for (uint32_t n = 0; n < 20; n++) {
            const uint32_t c = draw(&random, CLASSES), b = draw(&random, BINS);
            const uint32_t used = draw(&random, 9), outlived = draw(&random, 9);
            count(&late, c, b, used, outlived);
            count(&early, c, b, used, outlived);
        }
        kvpi_hits_learn(&late);
        kvpi_hits_learn(&early);
        for (uint32_t c = 0; c < CLASSES; c++)
            kvpi_hits_settle(&early, c);
        if (round % 50 == 49) {
            kvpi_hits_halve(&late);
            kvpi_hits_halve(&early);
        }
        kvpi_hits_settle(&late, draw(&random, CLASSES)); /* now and then one is asked for */
        for (uint32_t c = 0; c < CLASSES; c++)
            expect_same_index(&late, &early, c);
    }
    assert_null(kvpi_hits_check(&late));
}

TEST(test_halve)
{
    static struct kvpi_hits hits;
    (void)state;
    kvpi_hits_reset(&hits);
    count(&hits, 0, 2, 3, 4);
    count(&hits, 63, 2, 1, 0);
    kvpi_hits_halve(&hits);
    assert_int_equal(hits.hits[0][2], 24);
    assert_int_equal(hits.at_risk[0][2], 56);
    assert_int_equal(hits.hits[CLASSES][2], 32);
    assert_int_equal(hits.at_risk[CLASSES][2], 64);
    for (int i = 0; i < 5; i++) { /* also what is odd */
        kvpi_hits_halve(&hits);
        assert_null(kvpi_hits_check(&hits));
    }
    assert_int_equal(hits.hits[63][2], 0);
}

/* ------------------------------------------------------------------------------------ the audit */

static void expect_wrong(struct kvpi_hits *hits, uint32_t *field, uint32_t value, const char *rule)
{
    const uint32_t before = *field;
    *field = value;
    const char *detail = kvpi_hits_check(hits);
    assert_non_null(detail);
    assert_memory_equal(detail, rule, 2);
    *field = before;
    assert_null(kvpi_hits_check(hits));
}

TEST(test_audit)
{
    static struct kvpi_hits hits;
    (void)state;
    kvpi_hits_reset(&hits);
    count(&hits, 5, 3, 10, 10);
    learn_all(&hits);
    expect_wrong(&hits, &hits.hits[5][3], 21 * KVPI_HITS_ONE, "P1");
    expect_wrong(&hits, &hits.hits[CLASSES][3], 0, "P2");
    expect_wrong(&hits, &hits.at_risk[CLASSES][0], 1, "P2");
    expect_wrong(&hits, &hits.best[5][3], 0, "P3");
    expect_wrong(&hits, &hits.now[5][3], UINT32_MAX, "P3");
    expect_wrong(&hits, &hits.turn, CLASSES, "P4");
    expect_wrong(&hits, &hits.turn, 2, "P4");
    hits.waiting = 1 << 5;
    expect_wrong(&hits, &hits.hits_then[5][3], UINT32_MAX, "P5");
    expect_wrong(&hits, &hits.all_hits_then[1][0], UINT32_MAX, "P5");
    hits.waiting = 0; /* of a class that does not wait nothing is made from them */
    hits.hits_then[5][3] = UINT32_MAX;
    assert_null(kvpi_hits_check(&hits));
}

TEST_MAIN(NULL, NULL)

/* Intervals of simulated time: they widen, and nothing that was put into them is lost. */
#include "mocka.h"
#include "tool/replay/load_timeline.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

static const kvpi_load_level one = {.running = 1, .held_blocks = 10};

TEST(test_begins_with_milliseconds)
{
    kvpi_load_timeline timeline;
    (void)state;
    kvpi_load_timeline_init(&timeline);
    assert_int_equal(timeline.n, 0);
    kvpi_load_timeline_at(&timeline, 0)->steps++;
    kvpi_load_timeline_at(&timeline, MS - 1)->steps++;
    kvpi_load_timeline_at(&timeline, MS)->steps++;
    assert_fields(timeline, width_ns, MS, n, 2);
    assert_int_equal(timeline.intervals[0].steps, 2);
    assert_int_equal(timeline.intervals[1].steps, 1);
}

/* 3.5 ms from 1.5 ms on: half of one, three whole ones. */
TEST(test_spans_are_divided)
{
    kvpi_load_timeline timeline;
    (void)state;
    kvpi_load_timeline_init(&timeline);
    kvpi_load_timeline_span(&timeline, 3 * MS / 2, 5 * MS, &one);
    kvpi_load_timeline_span(&timeline, 7 * MS, 7 * MS, &one); /* nothing */
    assert_int_equal(timeline.n, 5);
    const double expected[] = {0, 0.5, 1, 1, 1};
    for (size_t i = 0; i < 5; i++) {
        kvpi_load_level mean = kvpi_load_timeline_mean(&timeline, i, 5 * MS);
        assert_true(mean.running == expected[i]);
        assert_true(mean.held_blocks == 10 * expected[i]);
        assert_true(mean.waiting == 0 && mean.swapped == 0 && mean.host_held_blocks == 0);
    }
}

/* The last interval is as long as what of it there was. */
TEST(test_mean_of_the_last_interval)
{
    kvpi_load_timeline timeline;
    (void)state;
    kvpi_load_timeline_init(&timeline);
    kvpi_load_timeline_span(&timeline, 0, 5 * MS / 4, &one);
    assert_true(kvpi_load_timeline_mean(&timeline, 0, 5 * MS / 4).running == 1);
    assert_true(kvpi_load_timeline_mean(&timeline, 1, 5 * MS / 4).running == 1);
    assert_true(kvpi_load_timeline_mean(&timeline, 1, 3 * MS / 2).running == 0.5);
    assert_true(kvpi_load_timeline_mean(&timeline, 1, MS).running == 0);
}

TEST(test_widths)
{
    static const uint64_t widths[] = {
        MS,       5 * MS,   10 * MS,   50 * MS,   100 * MS,  500 * MS,   S,
        5 * S,    10 * S,   30 * S,    60 * S,    300 * S,   600 * S,    1800 * S,
        3600 * S, 7200 * S, 21600 * S, 43200 * S, 86400 * S, 172800 * S, 345600 * S};
    kvpi_load_timeline timeline;
    (void)state;
    kvpi_load_timeline_init(&timeline);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        kvpi_load_timeline_at(&timeline, widths[i] * KVPI_LOAD_MAX_INTERVALS - 1);
        assert_fields(timeline, width_ns, widths[i], n, KVPI_LOAD_MAX_INTERVALS);
        if (i > 0)
            assert_int_equal(widths[i] % widths[i - 1], 0);
    }
}

static void add_one_of_each(kvpi_load_timeline *timeline, uint64_t at_ns)
{
    kvpi_load_interval *part = kvpi_load_timeline_at(timeline, at_ns);
    part->arrived += 1;
    part->finished += 2;
    part->steps += 3;
    part->prompt_tokens += 4;
    part->output_tokens += 5;
    part->input_tokens += 6;
    part->hit_tokens += 7;
    part->preemptions += 8;
}

static void expect_sums(const kvpi_load_timeline *timeline, uint64_t n, double span_ns)
{
    kvpi_load_interval sum = {0};
    for (size_t i = 0; i < timeline->n; i++) {
        const kvpi_load_interval *part = &timeline->intervals[i];
        sum.levels.running += part->levels.running;
        sum.levels.waiting += part->levels.waiting;
        sum.levels.swapped += part->levels.swapped;
        sum.levels.held_blocks += part->levels.held_blocks;
        sum.levels.host_held_blocks += part->levels.host_held_blocks;
        sum.levels.cached_blocks += part->levels.cached_blocks;
        sum.levels.host_cached_blocks += part->levels.host_cached_blocks;
        sum.arrived += part->arrived;
        sum.finished += part->finished;
        sum.steps += part->steps;
        sum.prompt_tokens += part->prompt_tokens;
        sum.output_tokens += part->output_tokens;
        sum.input_tokens += part->input_tokens;
        sum.hit_tokens += part->hit_tokens;
        sum.preemptions += part->preemptions;
    }
    assert_fields(sum, arrived, n, finished, 2 * n, steps, 3 * n, prompt_tokens, 4 * n);
    assert_fields(sum, output_tokens, 5 * n, input_tokens, 6 * n, hit_tokens, 7 * n, preemptions,
                  8 * n);
    assert_true(sum.levels.running == span_ns);
    assert_true(sum.levels.waiting == 2 * span_ns);
    assert_true(sum.levels.swapped == 3 * span_ns);
    assert_true(sum.levels.held_blocks == 4 * span_ns);
    assert_true(sum.levels.host_held_blocks == 5 * span_ns);
    assert_true(sum.levels.cached_blocks == 6 * span_ns);
    assert_true(sum.levels.host_cached_blocks == 7 * span_ns);
}

/* Twelve hours of spans and counts, in a clock of 77 ms, and earlier ones filled in late. */
TEST(test_widening_loses_nothing)
{
    static const kvpi_load_level levels = {1, 2, 3, 4, 5, 6, 7};
    kvpi_load_timeline timeline;
    uint64_t n = 0, late_ns = 0, end_ns = 12 * 3600 * S;
    (void)state;
    kvpi_load_timeline_init(&timeline);
    for (uint64_t at = 0; at < end_ns; at += 77 * MS) {
        uint64_t to = at + 77 * MS < end_ns ? at + 77 * MS : end_ns;
        kvpi_load_timeline_span(&timeline, at, to, &levels);
        add_one_of_each(&timeline, at);
        n++;
        if (n % 1000 == 0) {
            kvpi_load_timeline_span(&timeline, at / 2, at, &levels);
            late_ns += at - at / 2;
        }
        assert_true(timeline.n <= KVPI_LOAD_MAX_INTERVALS);
    }
    expect_sums(&timeline, n, (double)(end_ns + late_ns));
    kvpi_load_timeline_limit(&timeline, 20);
    assert_fields(timeline, n, 12, width_ns, 3600 * S);
    expect_sums(&timeline, n, (double)(end_ns + late_ns));
    kvpi_load_timeline_limit(&timeline, 1);
    assert_int_equal(timeline.n, 1);
    expect_sums(&timeline, n, (double)(end_ns + late_ns));
}

TEST_MAIN(NULL, NULL)

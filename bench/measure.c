/* Samples, their order statistics, and what happens when a result is wrong. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <time.h>

#include "bench.h"

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void require_true(bool condition, const char *text, const char *file, int line)
{
    if (!condition) {
        fprintf(stderr, "kvp_bench: %s:%d: this must hold and does not: %s\n", file, line, text);
        exit(1);
    }
}

void require_ok(kvp_status status, const char *text, const char *file, int line)
{
    if (status != KVP_OK) {
        fprintf(stderr, "kvp_bench: %s:%d: %s gave %s (%s)\n", file, line, text,
                kvp_status_name(status), kvp_status_text(status));
        exit(1);
    }
}

void *allocate(size_t n_bytes)
{
    void *bytes = calloc(1, n_bytes);
    REQUIRE(bytes != NULL);
    return bytes;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_samples(double *samples, uint32_t n)
{
    qsort(samples, n, sizeof *samples, compare_doubles);
}

double quantile(const double *sorted, uint32_t n, double fraction)
{
    double at = fraction * (n - 1);
    uint32_t low = (uint32_t)at;
    uint32_t high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

result measure(const measurement *what, void *state, void *yardstick_state,
               const bench_options *options)
{
    static double ours[MAX_SAMPLES];
    static double theirs[MAX_SAMPLES];
    uint32_t n = what->n_samples;
    if (n > 1 && options->quick)
        n = 3;
    if (n > 1 && options->n_samples)
        n = options->n_samples;
    /* The first of each is not counted: pages are touched and branches learned in it. */
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t at = i == 0 ? 0 : i - 1;
        ours[at] = what->ours(state);
        if (what->yardstick)
            theirs[at] = what->yardstick(yardstick_state);
    }
    sort_samples(ours, n);
    sort_samples(theirs, what->yardstick ? n : 0);
    double median = quantile(ours, n, 0.5);
    double yardstick = what->yardstick ? quantile(theirs, n, 0.5) : -1;
    return (result){.name = what->name,
                    .unit = what->unit,
                    .note = what->note,
                    .aim = what->yardstick && yardstick < 0 ? 0 : what->aim, /* of what? */
                    .median = median,
                    .min = ours[0],
                    .max = ours[n - 1],
                    .spread = (quantile(ours, n, 0.75) - quantile(ours, n, 0.25)) / median,
                    .yardstick_median = yardstick};
}

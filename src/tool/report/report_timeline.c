/* Cuts a replay into intervals. The steps are those of a clock face, so that a row begins at a time
 * that people can name; the smallest step that needs at most 20 rows is taken. A trace that spans
 * less than two seconds has no time worth showing and is cut by the number of requests.
 */
#include "tool/report/report.h"

#define US_PER_SECOND UINT64_C(1000000)

static uint64_t choose_step_us(uint64_t span_us)
{
    static const uint32_t seconds[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                       600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
    size_t n = sizeof seconds / sizeof *seconds;
    for (size_t i = 0; i < n; i++)
        if (span_us / (seconds[i] * US_PER_SECOND) < KVPI_REPORT_MAX_INTERVALS)
            return seconds[i] * US_PER_SECOND;
    uint64_t step = seconds[n - 1] * US_PER_SECOND;
    while (span_us / step >= KVPI_REPORT_MAX_INTERVALS)
        step *= 2;
    return step;
}

void kvpi_report_timeline_init(kvpi_report_timeline *timeline, int64_t first_us, int64_t last_us,
                               uint64_t n_requests)
{
    uint64_t span = (uint64_t)(last_us - first_us);
    *timeline = (kvpi_report_timeline){.first_us = first_us};
    timeline->by_time = span >= 2 * US_PER_SECOND;
    if (!timeline->by_time)
        span = n_requests - 1;
    timeline->step =
        timeline->by_time ? choose_step_us(span) : span / KVPI_REPORT_MAX_INTERVALS + 1;
    timeline->n = (size_t)(span / timeline->step) + 1;
}

kvpi_report_interval *kvpi_report_timeline_at(kvpi_report_timeline *timeline, uint64_t place,
                                              int64_t timestamp_us)
{
    uint64_t at = timeline->by_time ? (uint64_t)(timestamp_us - timeline->first_us) : place;
    return &timeline->intervals[at / timeline->step];
}

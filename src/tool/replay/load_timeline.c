/* Owns the intervals of a simulation. How long it will take is not known beforehand, so it begins
 * with intervals of a millisecond, and widens them when they do not reach. Each width divides the
 * next, so that widening joins whole intervals and loses nothing but detail.
 */
#include "tool/replay/load_timeline.h"

#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

/* Beyond the last width it doubles. */
static uint64_t next_width(uint64_t width_ns)
{
    static const uint32_t widths_ms[] = {
        1,     5,      10,     50,      100,     500,     1000,     5000,     10000,   30000,
        60000, 300000, 600000, 1800000, 3600000, 7200000, 21600000, 43200000, 86400000};
    for (size_t i = 0; i < sizeof widths_ms / sizeof *widths_ms; i++)
        if (widths_ms[i] * NS_PER_MS > width_ns)
            return widths_ms[i] * NS_PER_MS;
    return width_ns * 2;
}

void kvpi_load_timeline_init(kvpi_load_timeline *timeline)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->width_ns = NS_PER_MS;
}

static void add_level(kvpi_load_level *sum, const kvpi_load_level *level, double times)
{
    sum->running += level->running * times;
    sum->waiting += level->waiting * times;
    sum->swapped += level->swapped * times;
    sum->held_blocks += level->held_blocks * times;
    sum->host_held_blocks += level->host_held_blocks * times;
    sum->cached_blocks += level->cached_blocks * times;
    sum->host_cached_blocks += level->host_cached_blocks * times;
}

static void add_policy(kvpi_load_policy *sum, const kvpi_load_policy *part)
{
    sum->references += part->references;
    sum->cold_references += part->cold_references;
    sum->guard_references += part->guard_references;
    sum->gate_references += part->gate_references;
    sum->learned_hits += part->learned_hits;
    sum->lru_hits += part->lru_hits;
}

void kvpi_load_policy_note(kvpi_load_interval *part, kvpi_load_policy *before, const kvp_stats *now,
                           const kvp_policy_info *info)
{
    const kvpi_load_policy all = {.references = now->references,
                                  .cold_references = info->cold_references,
                                  .guard_references = info->guard_references,
                                  .gate_references = info->gate_references,
                                  .learned_hits = now->learned_hits,
                                  .lru_hits = now->lru_hits};
    const kvpi_load_policy since = {
        .references = all.references - before->references,
        .cold_references = all.cold_references - before->cold_references,
        .guard_references = all.guard_references - before->guard_references,
        .gate_references = all.gate_references - before->gate_references,
        .learned_hits = all.learned_hits - before->learned_hits,
        .lru_hits = all.lru_hits - before->lru_hits};
    add_policy(&part->policy, &since);
    *before = all;
}

static void add_interval(kvpi_load_interval *sum, const kvpi_load_interval *part)
{
    add_level(&sum->levels, &part->levels, 1);
    sum->arrived += part->arrived;
    sum->finished += part->finished;
    sum->steps += part->steps;
    sum->prompt_tokens += part->prompt_tokens;
    sum->output_tokens += part->output_tokens;
    sum->input_tokens += part->input_tokens;
    sum->hit_tokens += part->hit_tokens;
    sum->preemptions += part->preemptions;
    sum->evictions += part->evictions;
    add_policy(&sum->policy, &part->policy);
}

static void widen(kvpi_load_timeline *timeline)
{
    uint64_t wider_ns = next_width(timeline->width_ns);
    size_t times = (size_t)(wider_ns / timeline->width_ns);
    for (size_t i = 0; i < timeline->n; i++) {
        kvpi_load_interval part = timeline->intervals[i];
        memset(&timeline->intervals[i], 0, sizeof part);
        add_interval(&timeline->intervals[i / times], &part);
    }
    timeline->n = (timeline->n + times - 1) / times;
    timeline->width_ns = wider_ns;
}

kvpi_load_interval *kvpi_load_timeline_at(kvpi_load_timeline *timeline, uint64_t at_ns)
{
    while (at_ns / timeline->width_ns >= KVPI_LOAD_MAX_INTERVALS)
        widen(timeline);
    size_t i = (size_t)(at_ns / timeline->width_ns);
    if (i >= timeline->n)
        timeline->n = i + 1;
    return &timeline->intervals[i];
}

void kvpi_load_timeline_span(kvpi_load_timeline *timeline, uint64_t from_ns, uint64_t to_ns,
                             const kvpi_load_level *level)
{
    if (from_ns >= to_ns)
        return;
    (void)kvpi_load_timeline_at(timeline, to_ns - 1);
    uint64_t width_ns = timeline->width_ns;
    for (uint64_t at = from_ns; at < to_ns;) {
        uint64_t i = at / width_ns, end = (i + 1) * width_ns;
        end = end < to_ns ? end : to_ns;
        add_level(&timeline->intervals[i].levels, level, (double)(end - at));
        at = end;
    }
}

void kvpi_load_timeline_limit(kvpi_load_timeline *timeline, size_t max_intervals)
{
    while (timeline->n > max_intervals)
        widen(timeline);
}

kvpi_load_level kvpi_load_timeline_mean(const kvpi_load_timeline *timeline, size_t i,
                                        uint64_t end_ns)
{
    kvpi_load_level mean = {0};
    uint64_t from_ns = i * timeline->width_ns;
    uint64_t ns = end_ns > from_ns ? end_ns - from_ns : 0;
    ns = ns < timeline->width_ns ? ns : timeline->width_ns;
    if (ns > 0)
        add_level(&mean, &timeline->intervals[i].levels, 1 / (double)ns);
    return mean;
}

/* A simulation's course: what there was, cut into equal intervals of simulated time. */
#ifndef KVPI_LOAD_TIMELINE_H
#define KVPI_LOAD_TIMELINE_H

#include <kvpager/policy.h>
#include <stddef.h>
#include <stdint.h>

#define KVPI_LOAD_MAX_INTERVALS 100

/* How many of each there are at a time. As part of an interval: how many, times nanoseconds. */
typedef struct kvpi_load_level {
    double running; /* requests */
    double waiting;
    double swapped;
    double held_blocks;
    double host_held_blocks;
    double cached_blocks; /* for the page only, as are the next and evictions */
    double host_cached_blocks;
} kvpi_load_level;

/* With the learned policy, for the page: counters of kvp_stats and kvp_policy_info. */
typedef struct kvpi_load_policy {
    uint64_t references;
    uint64_t cold_references;
    uint64_t guard_references;
    uint64_t gate_references;
    uint64_t learned_hits;
    uint64_t lru_hits;
} kvpi_load_policy;

/* Counts of steps belong to the interval in which the step began. */
typedef struct kvpi_load_interval {
    kvpi_load_level levels;
    uint64_t arrived;
    uint64_t finished;
    uint64_t steps;
    uint64_t prompt_tokens; /* computed */
    uint64_t output_tokens;
    uint64_t input_tokens; /* of requests that were admitted for the first time */
    uint64_t hit_tokens;   /* of these */
    uint64_t preemptions;
    uint64_t evictions;
    kvpi_load_policy policy;
} kvpi_load_interval;

/* The width is one that people count in, and grows with the time that is covered. */
typedef struct kvpi_load_timeline {
    uint64_t width_ns;
    size_t n; /* intervals, up to the last that something fell into */
    kvpi_load_interval intervals[KVPI_LOAD_MAX_INTERVALS];
} kvpi_load_timeline;

/* Begin at time 0 with intervals of a millisecond. */
void kvpi_load_timeline_init(kvpi_load_timeline *timeline);

/* Add a level that held from one time to another, from_ns <= to_ns. Cost: O(intervals touched) */
void kvpi_load_timeline_span(kvpi_load_timeline *timeline, uint64_t from_ns, uint64_t to_ns,
                             const kvpi_load_level *level);

/* Give the interval of a time, to count in. Owns: valid until the next call. */
kvpi_load_interval *kvpi_load_timeline_at(kvpi_load_timeline *timeline, uint64_t at_ns);

/* Count in an interval what was counted since `before`, which becomes what is now. */
void kvpi_load_policy_note(kvpi_load_interval *part, kvpi_load_policy *before, const kvp_stats *now,
                           const kvp_policy_info *info);

/* Widen the intervals until there are at most so many, 1 or more. */
void kvpi_load_timeline_limit(kvpi_load_timeline *timeline, size_t max_intervals);

/* Give the mean levels of interval i; the last one is divided by what of it lies before end_ns. */
kvpi_load_level kvpi_load_timeline_mean(const kvpi_load_timeline *timeline, size_t i,
                                        uint64_t end_ns);

#endif

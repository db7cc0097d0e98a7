/* What a run has met: how often each call gave each status, and interesting situations. */
#ifndef KVP_TEST_MODEL_COVERAGE_H
#define KVP_TEST_MODEL_COVERAGE_H

#include <stdio.h>

#include "oracle.h"

enum { COVERAGE_OPS = 40, COVERAGE_STATUSES = 20, COVERAGE_STOPS = 7 };

/* X(name): situations that a long run must meet. */
#define COVERAGE_TABLE(X)                                                                          \
    X(full_hit)                                                                                    \
    X(hit_inside_block)                                                                            \
    X(hit_with_keys)                                                                               \
    X(hit_of_cached_block)                                                                         \
    X(hit_of_held_block)                                                                           \
    X(open_evicts)                                                                                 \
    X(lie_between_hashes)                                                                          \
    X(hash_collision)                                                                              \
    X(copy_on_write)                                                                               \
    X(copy_on_write_without_copy)                                                                  \
    X(units_overwritten)                                                                           \
    X(adoption)                                                                                    \
    X(duplicate_kept)                                                                              \
    X(duplicate_promoted)                                                                          \
    X(fork_inside_block)                                                                           \
    X(fork_of_fork)                                                                                \
    X(truncate_into_sealed)                                                                        \
    X(truncate_into_shared)                                                                        \
    X(invalidate_withdraws)                                                                        \
    X(invalidate_reports)                                                                          \
    X(invalidate_frees_cached)                                                                     \
    X(unkept_unit)                                                                                 \
    X(private_unit)                                                                                \
    X(unknown_values)                                                                              \
    X(fill_seals)                                                                                  \
    X(batch_refused_whole)                                                                         \
    X(batch_each_partly)                                                                           \
    X(copy_removed)                                                                                \
    X(plan_of_two_phases)                                                                          \
    X(watermark_refuses)                                                                           \
    X(retention_spares)                                                                            \
    X(flush_under_sequence)                                                                        \
    X(flush_without_free_node)                                                                     \
    X(reset_with_content)

#define COVERAGE_ENUM(name) COVER_##name,
typedef enum coverage_point { COVERAGE_TABLE(COVERAGE_ENUM) COVER_COUNT } coverage_point;
#undef COVERAGE_ENUM

typedef struct coverage {
    uint64_t calls[COVERAGE_OPS][COVERAGE_STATUSES];
    uint64_t members[COVERAGE_STATUSES]; /* of batches with KVP_BATCH_EACH */
    uint64_t stops[COVERAGE_STOPS];
    uint64_t verdicts[3];
    uint64_t points[COVER_COUNT];
    uint64_t total;
} coverage;

/* What has to be remembered of the time before a call. */
typedef struct coverage_before {
    kvp_stats stats;
    oracle_events events;
    uint32_t available, held, n_row, public_units;
    bool fork;
} coverage_before;

void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before);
void coverage_count(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                    const coverage_before *before);

/* Print the counts; and tell, one a line, what was never met. Gives the number of those. */
void coverage_print(FILE *file, const coverage *c);
uint32_t coverage_missing(FILE *file, const coverage *c);

#endif

/* What a run has met: how often each call gave each status, and interesting situations. */
#ifndef KVP_TEST_MODEL_COVERAGE_H
#define KVP_TEST_MODEL_COVERAGE_H

#include <stdio.h>

#include "oracle.h"

enum { COVERAGE_OPS = 40, COVERAGE_STATUSES = 20, COVERAGE_STOPS = 7 };

/* X(name, must be met in a long run) */
#define COVERAGE_TABLE(X)                                                                          \
    X(full_hit, 1)                                                                                 \
    X(hit_inside_block, 1)                                                                         \
    X(open_copies, 1)                                                                              \
    X(open_evicts, 1)                                                                              \
    X(hit_of_cached_block, 1)                                                                      \
    X(hit_of_held_block, 1)                                                                        \
    X(copy_on_write, 1)                                                                            \
    X(copy_on_write_without_copy, 1)                                                               \
    X(units_overwritten, 1)                                                                        \
    X(adoption, 1)                                                                                 \
    X(duplicate_kept, 1)                                                                           \
    X(duplicate_promoted, 1)                                                                       \
    X(fork_inside_block, 1)                                                                        \
    X(fork_of_fork, 1)                                                                             \
    X(truncate_into_sealed, 1)                                                                     \
    X(truncate_into_shared, 1)                                                                     \
    X(invalidate_withdraws, 1)                                                                     \
    X(invalidate_reports, 1)                                                                       \
    X(invalidate_frees_cached, 1)                                                                  \
    X(unkept, 1)                                                                                   \
    X(private_unit, 1)                                                                             \
    X(unknown_values, 1)                                                                           \
    X(fill_seals, 1)                                                                               \
    X(batch_all_or_nothing_refused, 1)                                                             \
    X(batch_each_partly, 1)                                                                        \
    X(copy_removed, 1)                                                                             \
    X(plan_phases, 1)                                                                              \
    X(watermark_refuses, 1)                                                                        \
    X(retention_spares, 1)                                                                         \
    X(hash_collision, 1)                                                                           \
    X(lying_hashes, 1)                                                                             \
    X(keys_hit, 1)                                                                                 \
    X(flush_under_sequence, 1)                                                                     \
    X(reset, 1)

#define COVERAGE_ENUM(name, needed) COVER_##name,
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
    uint32_t n_plan, free_blocks, seq_tokens, seq_computed, seq_row_shared, seq_sealed_at;
    uint32_t n_unknown;
    bool was_fork;
} coverage_before;

void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before);
void coverage_count(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                    const coverage_before *before);

/* Print the counts; and tell, one a line, what was never met. Gives the number of those. */
void coverage_print(FILE *file, const coverage *c);
uint32_t coverage_missing(FILE *file, const coverage *c);

#endif

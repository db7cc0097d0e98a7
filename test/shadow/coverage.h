/* coverage: what a run has met. A long run fails when it never met something on its engine's list,
 * since a test that never gets there cannot fail there. */
#ifndef KVP_TEST_SHADOW_COVERAGE_H
#define KVP_TEST_SHADOW_COVERAGE_H

#include <stdint.h>
#include <stdio.h>

/* X(name, engines: O ordered, V overlapped, S scheduler; * any) */
#define COVERAGE_TABLE(X)                                                                          \
    X(copies_on_device, "OVS")                                                                     \
    X(copies_to_host, "OVS")                                                                       \
    X(copies_from_host, "OVS")                                                                     \
    X(plans_of_phases, "OV")                                                                       \
    X(copies_reordered, "OVS")                                                                     \
    X(copies_late, "OV")                                                                           \
    X(hits, "OVS")                                                                                 \
    X(hits_inside_a_block, "OV")                                                                   \
    X(hits_on_host, "OVS")                                                                         \
    X(hits_in_full, "OV")                                                                          \
    X(collisions_of_4_bits, "OVS")                                                                 \
    X(collisions_of_1_bit, "OVS")                                                                  \
    X(adopted, "OVS")                                                                              \
    X(duplicates, "OVS")                                                                           \
    X(detached, "OV")                                                                              \
    X(evicted, "OVS")                                                                              \
    X(kept, "OVS")                                                                                 \
    X(not_kept, "OVS")                                                                             \
    X(host_evicted, "OVS")                                                                         \
    X(poisoned, "OVS")                                                                             \
    X(forks, "OVS")                                                                                \
    X(beams, "OVS")                                                                                \
    X(truncated, "OV")                                                                             \
    X(filled, "OV")                                                                                \
    X(keyed_prompts, "OVS")                                                                        \
    X(flushed, "OVS")                                                                              \
    X(hits_after_flush, "OVS")                                                                     \
    X(spaces_closed, "OV")                                                                         \
    X(hits_after_reopening, "OV")                                                                  \
    X(swapped_out, "OVS")                                                                          \
    X(swapped_in, "OVS")                                                                           \
    X(swapped_groups, "OV")                                                                        \
    X(invalidated, "OV")                                                                           \
    X(sharers_reported, "OV")                                                                      \
    X(resets, "OV")                                                                                \
    X(refused_no_blocks, "OV")                                                                     \
    X(refused_plan_full, "OV")                                                                     \
    X(refused_in_flight, "V")                                                                      \
    X(refused_no_steps, "V")                                                                       \
    X(failed_steps, "OVS")                                                                         \
    X(failed_plans, "V")                                                                           \
    X(cut_by_failure, "V")                                                                         \
    X(garbage_forgiven, "OV")                                                                      \
    X(parked, "VS")                                                                                \
    X(parked_without_content, "V")                                                                 \
    X(three_steps_out, "VS")                                                                       \
    X(passes_side_by_side, "V")                                                                    \
    X(noted_steps, "V")                                                                            \
    X(declared_commits, "V")                                                                       \
    X(late_commits, "OV")                                                                          \
    X(closed_while_out, "OV")                                                                      \
    X(cut_while_out, "OV")                                                                         \
    X(swapped_while_out, "OV")                                                                     \
    X(hits_in_groups, "OVS")                                                                       \
    X(hits_behind_windows, "OV")                                                                   \
    X(hidden_from_queries, "OVS")                                                                  \
    X(dropped_by_windows, "OVS")                                                                   \
    X(parked_by_windows, "V")                                                                      \
    X(own_windows, "OV")                                                                           \
    X(own_windows_set_back, "OV")                                                                  \
    X(own_windows_while_out, "OV")                                                                 \
    X(own_kv, "OV")                                                                                \
    X(trees, "OV")                                                                                 \
    X(tree_rounds, "OV")                                                                           \
    X(trees_behind_tokens, "OV")                                                                   \
    X(trees_through_windows, "OV")                                                                 \
    X(trees_lost, "V")                                                                             \
    X(accepted, "OV")                                                                              \
    X(accepted_nothing, "OV")                                                                      \
    X(accepted_while_out, "OV")                                                                    \
    X(accepted_before_copies, "O")                                                                 \
    X(moves, "OV")                                                                                 \
    X(refused_dropped, "OV")                                                                       \
    X(lacking, "OV")                                                                               \
    X(loaded, "OVS")                                                                               \
    X(loads_waited, "OVS")                                                                         \
    X(loads_torn, "OVS")                                                                           \
    X(loads_dropped, "OVS")                                                                        \
    X(lent, "OVS")                                                                                 \
    X(lent_with_keys, "OV")                                                                        \
    X(lent_and_lost, "OV")                                                                         \
    X(mirrored, "OVS")                                                                             \
    X(dropped, "OV")                                                                               \
    X(reclaimed, "OVS")                                                                            \
    X(recomputed, "S")                                                                             \
    X(recomputed_behind_windows, "S")                                                              \
    X(paused, "S")                                                                                 \
    X(requests_held, "S")                                                                          \
    X(held_past_deadline, "S")                                                                     \
    X(waits_for_prefix, "S")                                                                       \
    X(aborted, "S")                                                                                \
    X(aborted_while_out, "S")                                                                      \
    X(requests_ended, "S")

#define COVERAGE_ENUM(name, engines) COVER_##name,
enum { COVERAGE_TABLE(COVERAGE_ENUM) COVER_POINTS };
#undef COVERAGE_ENUM

typedef struct coverage {
    uint64_t points[COVER_POINTS];
    uint64_t n_planted;             /* how often a planted defect was committed */
    uint64_t n_asked[2], n_refused; /* of the last configuration: see device.h */
} coverage;

void coverage_print(FILE *file, const coverage *c, uint32_t engine);

/* How many points of this engine's list were never met; names them on `file`. */
uint32_t coverage_missing(FILE *file, const coverage *c, uint32_t engine);

#endif

/* What a run has met: how often each call gave each status, and interesting situations. */
#ifndef KVP_TEST_MODEL_COVERAGE_H
#define KVP_TEST_MODEL_COVERAGE_H

#include <stdio.h>

#include "oracle.h"

enum { COVERAGE_OPS = 80, COVERAGE_STATUSES = 32, COVERAGE_STOPS = 7 };

/* The calls that ask for admission. */
enum { COVERAGE_ASKED = 4 };

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
    X(collision_of_4_bits)                                                                         \
    X(collision_of_1_bit)                                                                          \
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
    X(size_asked)                                                                                  \
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
    X(reset_with_content)                                                                          \
    X(reset_with_steps_out)                                                                        \
    X(hit_after_flush)                                                                             \
    X(hit_after_reopening)                                                                         \
    X(host_hit)                                                                                    \
    X(host_hit_inside_block)                                                                       \
    X(host_and_device_hit)                                                                         \
    X(hit_cut_for_the_plan)                                                                        \
    X(hit_of_device_only)                                                                          \
    X(open_keeps_evicted)                                                                          \
    X(extend_keeps_evicted)                                                                        \
    X(swap_out_copies)                                                                             \
    X(swap_out_finds)                                                                              \
    X(swap_out_of_sharers)                                                                         \
    X(swap_out_of_uncomputed)                                                                      \
    X(swap_out_inside_block)                                                                       \
    X(swap_out_evicts)                                                                             \
    X(swap_out_without_copy)                                                                       \
    X(swap_in_copies)                                                                              \
    X(swap_in_finds)                                                                               \
    X(swap_in_of_sharers)                                                                          \
    X(swap_in_with_reserve)                                                                        \
    X(swap_in_copies_on_write)                                                                     \
    X(swap_in_evicts)                                                                              \
    X(swap_in_keeps_evicted)                                                                       \
    X(swap_in_found_by_watermark)                                                                  \
    X(swap_with_steps_out)                                                                         \
    X(swapped_closed)                                                                              \
    X(swapped_refused)                                                                             \
    X(swapped_reported)                                                                            \
    X(host_units_withdrawn)                                                                        \
    X(cut_units_withdrawn)                                                                         \
    X(cut_units_reported)                                                                          \
    X(host_short)                                                                                  \
    X(plan_of_three_phases)                                                                        \
    X(plan_of_both_ways)                                                                           \
    X(step_with_copies)                                                                            \
    X(step_done_out_of_order)                                                                      \
    X(step_commit_of_noted)                                                                        \
    X(step_commit_twice)                                                                           \
    X(step_failed_with_copies)                                                                     \
    X(step_failed_reports)                                                                         \
    X(full_of_copies_out)                                                                          \
    X(close_with_steps_out)                                                                        \
    X(truncate_with_steps_out)                                                                     \
    X(extend_with_steps_out)                                                                       \
    X(extend_with_three_out)                                                                       \
    X(three_done_out_of_order)                                                                     \
    X(one_of_three_failed)                                                                         \
    X(hit_of_several_groups)                                                                       \
    X(hit_with_window)                                                                             \
    X(hit_cut_by_group)                                                                            \
    X(hit_full_with_window)                                                                        \
    X(plan_of_several_groups)                                                                      \
    X(evicted_of_a_group)                                                                          \
    X(hit_with_chunks)                                                                             \
    X(hit_up_to_a_chunk)                                                                           \
    X(hit_into_a_chunk)                                                                            \
    X(window_drops)                                                                                \
    X(chunk_drops)                                                                                 \
    X(window_widened)                                                                              \
    X(window_taken_back)                                                                           \
    X(fork_with_holes)                                                                             \
    X(truncate_before_holes)                                                                       \
    X(swap_out_with_holes)                                                                         \
    X(swap_in_with_holes)                                                                          \
    X(failed_with_window)                                                                          \
    X(tree_of_several_roots)                                                                       \
    X(tree_in_rounds)                                                                              \
    X(tree_behind_uncomputed)                                                                      \
    X(tree_behind_unknown)                                                                         \
    X(tree_of_several)                                                                             \
    X(extend_behind_tree)                                                                          \
    X(accept_nothing)                                                                              \
    X(accept_in_place)                                                                             \
    X(accept_with_moves)                                                                           \
    X(accept_of_several)                                                                           \
    X(accept_for_several_groups)                                                                   \
    X(accept_before_done)                                                                          \
    X(accept_waits_for_plan)                                                                       \
    X(events_stored)                                                                               \
    X(events_removed)                                                                              \
    X(events_cleared)                                                                              \
    X(events_behind)

#define COVERAGE_ENUM(name) COVER_##name,
typedef enum coverage_point { COVERAGE_TABLE(COVERAGE_ENUM) COVER_COUNT } coverage_point;
#undef COVERAGE_ENUM

typedef struct coverage {
    uint64_t calls[COVERAGE_OPS][COVERAGE_STATUSES];
    uint64_t members[COVERAGE_STATUSES]; /* of batches with KVP_BATCH_EACH */
    uint64_t stops[COVERAGE_STOPS];
    uint64_t verdicts[COVERAGE_ASKED][3];
    uint64_t points[COVER_COUNT];
    oracle_marks marks;
} coverage;

/* What has to be remembered of the time before a call. */
typedef struct coverage_before {
    kvp_stats stats;
    oracle_marks marks;
    uint32_t available, held, n_row, public_units, n_plan, n_steps, tier;
    uint32_t distinct, entries, uncomputed, inside; /* of a swap's sequences */
    uint64_t oldest_step;
    uint32_t n_commitments, n_copies_of_step;
    bool fork, noted, holes;
    uint32_t n_tree, n_trees;
    kvp_window window;
} coverage_before;

void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before);
void coverage_count(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                    const coverage_before *before);

/* Print the counts; and tell, one a line, what was never met. Gives the number of those. */
void coverage_print(FILE *file, const coverage *c);
uint32_t coverage_missing(FILE *file, const coverage *c);

#endif

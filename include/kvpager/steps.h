/* kvpager/steps.h: overlapped steps. For engines that schedule ahead of work that still runs.
 *
 *   config.steps = KVP_STEPS_OVERLAPPED;
 *   ...
 *   kvp_seq_extend_many(cache, &batch);                     schedule step 7 while 5 and 6 run
 *   kvp_step_begin(cache, copies, capacity, &n, &step);     its plan, and its number
 *   kvp_step_commit(cache, step, seqs, n_tokens, n_seqs);   what will be computed when it is done
 *   ... start the copies, start the forward pass ...
 *   kvp_step_done(cache, 5, NULL);                          later, when the device says so
 *
 * The work of a step is its plan, then its forward pass. What the engine promises:
 *
 *   - plans run one after the other, in the order in which steps began, phase after phase; a
 *     forward pass starts when its step's plan has run (so all plans before it have run, too);
 *   - a forward pass starts when earlier ones of the same sequences are finished;
 *   - a sequence of which a step that is out computes a token again whose KV is there (KVP_NO_SLOT:
 *     a prompt that was hit whole) is not extended before that step is reported; its next token
 *     comes from that step;
 *   - a step is reported done when its plan and its forward pass are finished, and failed when
 *     nothing of it runs any more. Reports may come in any order.
 *
 * Otherwise forward passes may run at the same time, and after later plans. What the cache does:
 *
 *   - Parking. A device block whose last reference goes while steps are out is parked: it is
 *     neither free nor cached, and is not taken, until all steps that were out then are reported.
 *     With content it can be hit meanwhile (its need is 0 for kvp_can_open: it leaves no queue).
 *     When the last of those steps is reported, its parked blocks are queued in the order of their
 *     release, as kvp_seq_close would have: cached ones to the tail of their class, free ones to
 *     the head. (A parked block that loses its content stays parked, without. Its generation rises
 *     when it is released without content, or loses it.)
 *   - Writers that have left. A sequence leaves a block (closed, truncated, swapped out, copied on
 *     write, adopted, dropped by a window) that stays held by others, while steps are out that may
 *     write for it: it has slots that are writable and not computed, or a truncate, an
 *     invalidation, an accepted tree or a failure has cut such slots off while one of these steps
 *     was out. Until the newest step that was out then is over, making a slot of that block
 *     writable is copy-on-write, also for a sequence that has it alone. (A swap forgets what was
 *     cut: the sequence has other blocks then.)
 *   - Copies. What a plan writes counts as computed for the sequence that the copy was made for,
 *     and is found by others, that is: attached, or made a duplicate, when its step is done; not
 *     before. So is what kvp_seq_commit and kvp_seq_fill seal in such a block meanwhile (not
 *     counted in sealed_units), except that KVP_ADOPT switches to a block that is there. Units
 *     that are written over, withdrawn or released by then are left out. Steps
 *     take effect in the order in which they began: a step reported done before an earlier one was
 *     reported is only noted.
 *     A host block that keeps an evicted block's content is held by its copy until then.
 *   - A copy whose source would be tokens that are not computed yet (copy-on-write of a shared
 *     block that holds uncomputed tokens of the sequence) is refused while steps are out:
 *     KVP_E_IN_FLIGHT. Commit them, or wait.
 *   - Copies count against max_copies from when they are put into the plan until their step takes
 *     effect.
 *
 * Closing, truncating, swapping a sequence of a step that is out is allowed: the bookkeeping
 * changes at once, the memory is parked. kvp_seq_commit works as ever: call it for work that is
 * finished. kvp_cache_reset forgets the steps that are out: nothing may run any more.
 */
#ifndef KVPAGER_STEPS_H
#define KVPAGER_STEPS_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin a step: give it a number, and take the plan as its own.
 *
 * Takes:   capacity     of out_copies; 0 asks for the number only, and begins nothing
 * Gives:   out_copies   [out_n_copies] as kvp_plan_take; out_n_copies is written also on
 *                       KVP_E_TOO_SMALL
 *          out_step     1, 2, ... since creation
 * Returns: KVP_OK; KVP_E_STATE: the cache's steps are ordered; KVP_E_NO_STEPS: max_steps_out are
 *          out (those that are only noted are, too); KVP_E_TOO_SMALL
 * After-failure: unchanged
 * Thread:  cache        Cost: O(copies)
 */
KVP_API kvp_status kvp_step_begin(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                                  uint32_t *out_n_copies, uint64_t *out_step);

/* Declare: when `step` takes effect, the first n_tokens[i] of seqs[i] are computed.
 *
 * Takes effect then as kvp_seq_commit_many would, in the order given, call after call; for what is
 * left of it: a sequence that was closed or swapped out meanwhile is left
 * out, one that was truncated or invalidated counts up to there (a longer one later is not meant).
 * A step that fails commits nothing. Declare the work of every step that later ones rest on: when a
 * step fails whose work was not declared here, what was declared for later ones still counts.
 *
 * Takes:   seqs         [n_seqs] each once. Named again in a later call for the same step, it keeps
 *                       its place in the order, and the larger count
 *          n_tokens     [n_seqs]; 0 does nothing
 * Returns: KVP_OK; KVP_E_ARG: `step` is not out, a sequence is named twice, or n_tokens[i] exceeds
 *          its tokens; KVP_E_STATE: swapped out, or its slots up to n_tokens[i] were never made
 *          writable
 * After-failure: unchanged
 * Thread:  cache        Cost: O(n_seqs)
 */
KVP_API kvp_status kvp_step_commit(kvp_cache *cache, uint64_t step, const kvp_seq *seqs,
                                   const uint32_t *n_tokens, uint32_t n_seqs);

/* Report a step done. When every step before it was reported, it takes effect, and so do later ones
 * that were noted: it is out no more, its copies are found, then its commits are made, then blocks
 * that were parked for it are queued.
 *
 * Gives:   out_effective  may be NULL: the newest step that has taken effect
 * Returns: KVP_OK; KVP_E_ARG: it is not out, or was reported already
 * Thread:  cache. Cost: O(its copies, commits and parked blocks)
 */
KVP_API kvp_status kvp_step_done(kvp_cache *cache, uint64_t step, uint64_t *out_effective);

/* Report that a step failed: its copies may not have run, its forward pass neither.
 *
 * Nothing that it should have copied or committed is ever found or counted. Each sequence whose row
 * refers to a block that a copy of it should have filled has computed tokens up to that row entry
 * only (writable likewise: extend before computing them again; swapped out: row entries beyond are
 * released). So do sequences that later copies, of steps that are out and of the plan, gave such KV
 * to. Commits that steps out after it were to make for these sequences, and for those of which it
 * was to commit tokens that are not computed, are dropped, too (and stay dropped when they are
 * declared again; should their step fail, they drop others as if they had not been); commits of
 * steps before it end where the sequences were cut.
 *
 * Not reported are sequences of which commits were dropped and nothing was cut: those that the
 * caller declared for the failed step. What is to be computed again begins at each one's
 * computed_tokens; work of steps that are out and rest on nothing of the failed one must not be
 * done twice.
 *
 * Gives:   out_seqs     [capacity] the sequences whose computed tokens were cut, or tree dropped,
 *                       in the order of their places; NULL: capacity is 0
 *          out_n_seqs   how many there are; written also on KVP_E_TOO_SMALL. With capacity 0 that
 *                       is all, and the step has not failed yet. NULL: capacity 0, and do not
 *                       report
 * Returns: KVP_OK; KVP_E_ARG as kvp_step_done; KVP_E_TOO_SMALL: nothing was changed
 * Thread:  cache. Cost: O(copies out + rows of all sequences)
 */
KVP_API kvp_status kvp_step_failed(kvp_cache *cache, uint64_t step, kvp_seq *out_seqs,
                                   uint32_t capacity, uint32_t *out_n_seqs);

#ifdef __cplusplus
}
#endif
#endif

/* kvpager/steps.h: overlapped steps, for engines that schedule ahead of work that still runs.
 *
 *   config.steps = KVP_STEPS_OVERLAPPED;
 *   ...
 *   kvp_seq_extend_many(cache, &batch);                     schedule step 7 while 5 and 6 run
 *   kvp_step_begin(cache, copies, capacity, &n, &step);     its plan, and its number
 *   kvp_step_commit(cache, step, seqs, n_tokens, n_seqs);   what will be computed when it is done
 *   ... start the copies, start the forward pass ...
 *   kvp_step_done(cache, 5, NULL);                          later, when the device says so
 *
 * The work of a step is its plan, then its forward pass. A step is "out" from kvp_step_begin until
 * it is reported done or failed and takes effect. The engine promises:
 *
 *   - Plans run one after the other, in the order in which their steps began, phase after phase. A
 *     forward pass starts when the plan of its step has run, and so all earlier plans.
 *   - A forward pass starts when earlier passes of the same sequences are finished.
 *   - A step that is out may compute a token again whose KV is there (KVP_NO_SLOT: a prompt that
 *     was hit whole). The sequence is not extended before that step is reported, because its next
 *     token comes from that step.
 *   - A step is reported done when its plan and its forward pass are finished. It is reported
 *     failed when nothing of it runs any more. Reports may come in any order.
 *
 * Otherwise forward passes may run at the same time, and after later plans. The cache does this:
 *
 *   - Parking. If the last reference to a device block goes while steps are out, the block is
 *     parked. It is neither free nor cached, and is not taken, until all steps that were out then
 *     are reported. If it has content, it can be hit (its need is 0 for kvp_cache_can_open: it
 *     leaves no queue). When the last of those steps is reported, its parked blocks are queued in
 *     the order of their release, as by kvp_seq_close: cached blocks to the tail of their class
 *     (windows.h: some to its head), free blocks to the head. (A parked block that loses its
 *     content stays parked. Its generation rises when it is released without content, or loses it.)
 *   - Writers that have left. A sequence may leave a block that other sequences hold, while steps
 *     are out that may still write for it. It leaves by close, truncate, swap-out, copy-on-write,
 *     adoption or a window. Steps may write for it if it has slots that are writable and not
 *     computed. They may also do so if a truncate, an invalidation, an accepted tree or a failure
 *     has cut such slots while one of these steps was out. Until the newest of these steps is over,
 *     making a slot of that block writable is copy-on-write, also for a sequence that has it alone.
 *     (A swap forgets what was cut: the sequence has other blocks then.)
 *   - Copies. What a plan writes counts as computed for the sequence that the copy was made for.
 *     Other sequences find it when its step is done, not before: then it is attached, or made a
 *     duplicate. The same holds for what kvp_seq_commit and kvp_seq_fill seal in such a block
 *     meanwhile (not counted in sealed_units), except that KVP_ADOPT switches to a block that is
 *     there. Units that are overwritten, withdrawn or released by then are left out. Steps take
 *     effect in the order in which they began. A step that is reported done before an earlier one
 *     is reported is only noted. A host block that keeps an evicted block's content is held by its
 *     copy until then.
 *   - Refused copies. Copy-on-write of a shared block that holds uncomputed tokens of the sequence
 *     would copy tokens that are not computed yet. While steps are out it is refused:
 *     KVP_E_IN_FLIGHT. Commit the tokens, or wait.
 *   - Copies count against max_copies from when they enter the plan until their step takes effect.
 *
 * Sequences of a step that is out may be closed, truncated or swapped. The bookkeeping changes at
 * once; the memory is parked. kvp_seq_commit works as without steps: call it for work that is
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
 *          out (steps that are only noted count); KVP_E_TOO_SMALL
 * After-failure: unchanged
 * Thread:  cache        Cost: O(copies)
 */
KVP_API kvp_status kvp_step_begin(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                                  uint32_t *out_n_copies, uint64_t *out_step);

/* Declare: when `step` takes effect, the first n_tokens[i] of seqs[i] are computed.
 *
 * Then the step commits as kvp_seq_commit_many would, in the order given, call after call. Only
 * what is left counts: a sequence that was closed or swapped out meanwhile is skipped. A sequence
 * that was truncated or invalidated counts up to there, even if it has grown again. A step that
 * fails commits nothing. Declare the work of every step that later steps build on. If a step fails
 * whose work was not declared here, what was declared for later steps still counts.
 *
 * Takes:   seqs         [n_seqs] each once. Named again in a later call for the same step, a
 *                       sequence keeps its place in the order, and the larger count
 *          n_tokens     [n_seqs]; 0 does nothing
 * Returns: KVP_OK; KVP_E_ARG: `step` is not out, a sequence is named twice, or n_tokens[i] exceeds
 *          its tokens; KVP_E_STATE: swapped out, or its slots up to n_tokens[i] were never made
 *          writable; KVP_E_DROPPED as kvp_seq_commit
 * After-failure: unchanged
 * Thread:  cache        Cost: O(n_seqs)
 */
KVP_API kvp_status kvp_step_commit(kvp_cache *cache, uint64_t step, const kvp_seq *seqs,
                                   const uint32_t *n_tokens, uint32_t n_seqs);

/* Report a step done. It takes effect when every step before it was reported, and so do later steps
 * that were noted. Then the step is not out any more. Its copies can be found, its commits are
 * made, and blocks that were parked for it are queued, in this order.
 *
 * Gives:   out_effective  may be NULL: the newest step that has taken effect
 * Returns: KVP_OK; KVP_E_ARG: it is not out, or was reported already
 * Thread:  cache. Cost: O(its copies, commits and parked blocks)
 */
KVP_API kvp_status kvp_step_done(kvp_cache *cache, uint64_t step, uint64_t *out_effective);

/* Report that a step failed: its copies and its forward pass may not have run.
 *
 * Nothing that it should have copied or committed is ever found or counted. A sequence whose row
 * refers to a block that a copy of the step should have filled is cut: it has computed tokens up to
 * that row entry only. (The same holds for writable: extend before computing them again. If the
 * sequence is swapped out, row entries beyond are released.) Sequences that got such KV by later
 * copies, in steps that are out or in the plan, are cut, too. The same holds for recurrent state
 * (states.h): a sequence that reads a slot that a copy should have filled is cut where its KV ends
 * that is left, perhaps after all its computed tokens, and loses its state.
 *
 * Some commits are dropped: those of later steps for sequences that were cut, and for
 * sequences of which the failed step was to commit tokens that are not computed. They stay dropped
 * when they are declared again. If their step fails, they drop others as if they had not been
 * dropped. Commits of earlier steps end where the sequences were cut.
 *
 * The call does not report sequences that lost commits only: the caller declared them for the
 * failed step. Each sequence continues at its computed_tokens. Work of steps that are out and do
 * not build on the failed step must not be done twice.
 *
 * Gives:   out_seqs     [capacity] the sequences whose computed tokens were cut, whose state did
 *                       not arrive, or whose tree was dropped, in the order of their places; NULL:
 *                       capacity is 0
 *          out_n_seqs   how many there are; written also on KVP_E_TOO_SMALL. With capacity 0 the
 *                       call only asks, and the step has not failed yet. NULL: capacity 0, and do
 *                       not report
 * Returns: KVP_OK; KVP_E_ARG as kvp_step_done; KVP_E_TOO_SMALL: nothing was changed
 * Thread:  cache. Cost: O(copies out + rows of all sequences)
 */
KVP_API kvp_status kvp_step_failed(kvp_cache *cache, uint64_t step, kvp_seq *out_seqs,
                                   uint32_t capacity, uint32_t *out_n_seqs);

#ifdef __cplusplus
}
#endif
#endif

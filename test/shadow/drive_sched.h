/* drive_sched: an engine behind the scheduler (sched.h), over the shadow.
 *
 * Requests are submitted, paused, resumed, aborted and reordered at any time; the scheduler's steps
 * go to the device, one at a time, and are finished, or fail. What a sample's tokens are is kept
 * here, so that every sequence that the scheduler opens, forks, moves or opens anew is known by
 * what it should contain. The cache is ordered, or overlapped: then a step is begun after
 * kvp_sched_step, and reported before kvp_sched_finish.
 */
#ifndef KVP_TEST_SHADOW_DRIVE_SCHED_H
#define KVP_TEST_SHADOW_DRIVE_SCHED_H

#include "drive.h"

/* Run one configuration of DRIVE_SCHED. False with the reason in the verdict. */
bool drive_sched_run(const drive_options *options, verdict *v, coverage *seen);

#endif

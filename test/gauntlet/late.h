/* late: an engine whose work runs late. For scenes that need steps out, on the shadow's device.
 *
 * Nothing runs when it is submitted: late_run lets the device make random moves that steps.h allows
 * (device.h), until a step is finished. Scenes are played with several seeds. The same promises as
 * rig.h's: content that was dropped is poisoned, every read is compared, the cache is audited after
 * each call. One layer group without a window.
 */
#ifndef KVP_TEST_GAUNTLET_LATE_H
#define KVP_TEST_GAUNTLET_LATE_H

#include "rig.h"

#include <kvpager/steps.h>

enum { LATE_SEEDS = 8 };

typedef struct late {
    rig *r;
    watch *w;
    kvp_ns ns;
    kvp_open_info info; /* of the last open */
} late;

/* Overlapped steps over rig_config, four out. */
kvp_config late_config(uint32_t usable, uint32_t host_usable);

late late_begin(rig *r, const kvp_config *config, uint64_t seed);
void late_end(late *l); /* runs and reports what is out, audits: every block must come back */

subject *late_open(late *l, const int32_t *tokens, uint32_t n_tokens);
void late_extend(late *l, subject *s, const int32_t *tokens, uint32_t n_tokens);
void late_close(late *l, subject *s);

/* Begin a step that computes what is not scheduled of these, and declare it. */
work_step *late_step(late *l, subject *const *seqs, uint32_t n_seqs);
void late_run(late *l, const work_step *step); /* until it is finished; others move, too */
void late_done(late *l, work_step *step);
uint32_t late_failed(late *l, work_step *step); /* finished: it failed. Gives: sequences cut */
void late_finish(late *l, work_step *step);     /* run, and report done */
void late_leave_cached(late *l, const int32_t *tokens, uint32_t n_tokens);

#endif

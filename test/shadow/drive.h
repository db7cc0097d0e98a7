/* drive: an engine that does anything that it may do, in any order.
 *
 * Random calls over the public interface: sequences are opened, computed in chunks, extended,
 * forked, rolled back, swapped, closed; steps are submitted to a device that runs them late, and
 * reported in any order. What the engine promises (cache.h, steps.h) it keeps; nothing else.
 *
 *   ordered      commits when it schedules, or later; when a pass failed it lets the device come to
 *                rest, invalidates what the pass was to write, and what is reported to share it.
 *                Where steps may fail, it does not close, cut or move a sequence before all that
 *                was submitted is known to have run
 *   overlapped   up to max_steps_out steps; commits with the step, or when the work is finished
 *
 * In half of the configurations there are layer groups, or windows, and sequences get windows of
 * their own at any time; in half of these there are trees.
 *
 * A configuration and everything that happens in it is decided by a seed and an index.
 */
#ifndef KVP_TEST_SHADOW_DRIVE_H
#define KVP_TEST_SHADOW_DRIVE_H

#include "coverage.h"
#include "watch.h"

enum { DRIVE_STREAMS = 5, DRIVE_SPACES = 3, DRIVE_MEMBERS = 32 };

typedef enum drive_engine {
    DRIVE_ORDERED = 0,
    DRIVE_OVERLAPPED = 1,
    DRIVE_SCHED = 2,
    DRIVE_ENGINES = 3
} drive_engine;

typedef struct drive_options {
    drive_engine engine;
    uint64_t seed, index;
    uint64_t ops;
    plant planted;
    bool sweeps;                   /* nothing fails but */
    uint64_t fail_at[DEVICE_WORK]; /* this copy, this pass, from 1; 0: none */
    bool trace;                    /* print what is done */
    const char *block; /* with it: each change of this block, "d7" or "h7"; NULL: none */
} drive_options;

/* Tokens that several sequences have in common. */
typedef struct drive_stream {
    int32_t *tokens; /* [max_seq_tokens] */
    truth_line keys; /* only its keys are used */
} drive_stream;

enum { DRIVE_LOADS = 4, DRIVE_LENT = 6 };

/* A load that was begun; number 0: none. */
typedef struct drive_load {
    uint64_t number, after;
    uint32_t group, n;
    bool is_started;   /* the store has begun to write */
    int32_t *blocks;   /* [n] */
    uint64_t *tags;    /* [n, S] what is right */
    uint32_t *written; /* [n] slots */
    bool *spoilt;      /* [n] something else was written, too */
} drive_load;

/* A host block that a store reads. */
typedef struct drive_lent {
    int32_t block;
    kvp_block_origin origin; /* when it was lent */
} drive_lent;

typedef struct drive {
    drive_options options;
    watch *w;
    verdict *verdict;
    coverage *seen;
    uint64_t random;
    uint64_t n_ops;
    bool has_failures;   /* steps fail now and then */
    uint32_t max_queued; /* steps that may be out */
    uint32_t alphabet;
    drive_stream streams[DRIVE_STREAMS];
    kvp_ns spaces[DRIVE_SPACES];
    bool space_open[DRIVE_SPACES];
    bool space_flushed[DRIVE_SPACES], space_closed[DRIVE_SPACES]; /* ever */
    uint32_t *finished; /* [max_seqs] by place of the subject: tokens that may be committed late */
    int32_t *tokens;    /* [max_seq_tokens] scratch */
    kvp_hash *hashes;   /* [max_seq_tokens] scratch */
    drive_load loads[DRIVE_LOADS]; /* as many as config.max_loads, at most */
    drive_lent lent[DRIVE_LENT];   /* [n_lent] */
    uint32_t n_lent;
    kvp_block_info traced; /* options.block when last looked at */
} drive;

/* Draw the configuration `index` of a seed for an engine. */
void drive_config(const drive_options *options, kvp_config *out_config, bool *out_failures);

/* Run one configuration. False with the reason in the verdict when something was wrong. */
bool drive_run(const drive_options *options, verdict *v, coverage *seen);

/* The parts that every engine has: cache, streams, counters; after drive_begin, drive_end once. */
bool drive_begin(drive *d, const drive_options *options);
void drive_end(drive *d);

/* ------------------------------------------------ drive_calls.c, drive_steps.c, drive_windows.c,
 * drive_trees.c, drive_lend.c */

void drive_trace(const drive *d, const char *format, ...) VERDICT_FORMAT;

/* Whether the status is OK; one that is neither OK nor on the list is a bad verdict. Every call
 * that may change the cache ends here. */
bool drive_went(drive *d, const char *call, kvp_status status, const kvp_status *also,
                size_t n_also);

subject *drive_pick(drive *d, bool swapped); /* a random open sequence; NULL: none */
const char *drive_space_name(uint32_t space);
uint32_t *drive_finished(drive *d, const subject *s);

/* The engine's own account when a sequence is cut to n tokens that count. */
void drive_cut(drive *d, subject *s, uint32_t n);

/* Whether the configuration has groups or windows; half of them have none, and no trees. */
bool drive_has_windows(const kvp_config *config);
void drive_draw_windows(uint64_t *random, kvp_config *config);

/* A call was refused for want of dropped entries: bad unless the sequence may lack some. */
void drive_lacking(drive *d, const subject *s, kvp_status status);

bool drive_extend(drive *d, subject *s, uint32_t n, uint32_t reserve);
subject *drive_fork(drive *d, const subject *parent, uint32_t at); /* NULL: refused */
void drive_close(drive *d, subject *s);
void drive_close_now(drive *d, subject *s);

void drive_open_op(drive *d);
void drive_extend_op(drive *d);
void drive_extend_many_op(drive *d);
void drive_fill_op(drive *d);
void drive_fork_op(drive *d);
void drive_beam_op(drive *d);
void drive_replace_op(drive *d);
void drive_truncate_op(drive *d);
void drive_close_op(drive *d);
void drive_invalidate_op(drive *d);
void drive_space_op(drive *d);
void drive_mark_op(drive *d);
void drive_swap_op(drive *d);
void drive_reset_op(drive *d);
void drive_window_op(drive *d);
void drive_tree_op(drive *d);
void drive_accept_op(drive *d);
void drive_lend_op(drive *d);
void drive_drop_op(drive *d);
void drive_reclaim_op(drive *d);

/* drive_lend.c: nothing is lent or loading any more. */
void drive_lend_forget(drive *d);

/* A prompt of what sequences have in common; false: its namespace cannot be opened. */
bool drive_draw_prompt(drive *d, kvp_prompt *out_prompt, kvp_key *keys, uint32_t *out_space);

/* The sequence's tree is gone. */
void drive_drop_tree(drive *d, subject *s);

/* Whether a step that is out computes a token of it again: it must wait for that. */
bool drive_waits(const drive *d, const subject *s);

void drive_step(drive *d, subject *first); /* first: one that takes part, or NULL */
void drive_step_op(drive *d);
void drive_commit_op(drive *d);
void drive_device_op(drive *d);
void drive_make_room(drive *d);                                  /* a step more may be out */
void drive_submit(drive *d, work_item *items, uint32_t n_items); /* it owns the items */
void drive_flush_plan(drive *d);                                 /* a step without sequences */
bool drive_report(drive *d); /* one finished step; false: there is none */
void drive_settle(drive *d); /* everything runs and is reported */
void drive_rest(drive *d);   /* and audited, the plan too */

/* Before an ordered engine gives something up that may yet turn out to have failed: everything runs
 * and is reported. False: the sequence was closed for it. */
bool drive_before_release(drive *d, const subject *s);

/* The KV of s from `from` on is bad: tell the cache, and go on with those that share it. */
void drive_invalidate(drive *d, subject *s, uint32_t from);

#endif

/* device: an engine's back end that takes its time.
 *
 * Work comes in steps: a plan, and a forward pass over some sequences. Nothing runs when it is
 * submitted; device_move makes one small move that the promises of steps.h allow, chosen at random:
 *
 *   ordered      one stream: the copies of a step's plan, then its forward pass, then the next step
 *   overlapped   plans in the order of steps, phase after phase, whatever forward passes do;
 *                a forward pass any time after its plan, but after the earlier ones of the same
 *                sequences; beside other passes, and beside later plans
 *
 * A forward pass goes through its sequences one by one, in any order. It starts with one: in every
 * layer group, the KV of every position before that its queries see must be right; then it writes
 * its tokens' KV. Later it is finished with it:
 * everything must still be right. So whoever writes in between to what is read is found out.
 *
 * What kvp_seq_accept moves is a step of its own, with moves for a plan and no forward pass: it
 * runs after the plan before it, and before the next one and the forward passes of that.
 *
 * Work may fail: a plan after some of its copies, or a forward pass. What it should have written is
 * garbage then, and what is computed from garbage is garbage of the same step. To read garbage is
 * forgiven only in a step that was submitted before the caller told that it knows (device_told).
 */
#ifndef KVP_TEST_SHADOW_DEVICE_H
#define KVP_TEST_SHADOW_DEVICE_H

#include "shadow.h"
#include "truth.h"

/* Defects on purpose: what the shadow must be able to see. */
typedef enum plant {
    PLANT_NOTHING = 0,
    PLANT_SKIPPED_COPY,   /* one copy of a plan is not run */
    PLANT_EARLY_COPY,     /* a copy runs before the phase before it */
    PLANT_NO_PARKING,     /* overlapped work on a cache that thinks it is ordered */
    PLANT_EARLY_DONE,     /* a step is reported done that is not */
    PLANT_SHORT_COPY,     /* a copy moves a slot too few */
    PLANT_WRONG_SLOT,     /* a token's KV goes to the slot of the token before */
    PLANT_FORGOTTEN_STEP, /* a failed step is reported done */
    PLANT_OTHER_SPACE,    /* one namespace's KV is taken for another's */
    PLANT_OTHER_GROUP,    /* the rows of two layer groups are taken for each other's */
    PLANT_COPY_GROUP,     /* a copy is of another layer group */
    PLANT_EARLY_DROP,     /* the cache drops entries that a pass will read */
    PLANT_UNPARKED_DROP,  /* what windows dropped is taken while steps are out */
    PLANT_OWN_WINDOW,     /* the cache does not know of a sequence's own window */
    PLANT_SKIPPED_MOVE,   /* an accepted node is not moved */
    PLANT_EARLY_LOAD,     /* a store writes before the plan that uses its block is over */
    PLANT_TORN_LOAD,      /* a block is reported whole that is not */
    PLANTS
} plant;

const char *plant_name(plant what);

/* A block that lost content since the last step. */
typedef struct work_drop {
    uint32_t tier;
    int32_t block;
    uint32_t kept;  /* slots before this one held something after the drop, and still do */
    uint32_t valid; /* when the plan has run, slots from here on hold nothing */
    bool is_whole;  /* all of it is gone before the plan writes to it */
    bool is_early;  /* planted: it is still parked */
    bool is_poisoned[SHADOW_MEMORIES];
    uint64_t call;
} work_drop;

/* One sequence of a forward pass: computes positions [begin, end); those from `base` on are nodes
 * of its tree. */
typedef struct work_item {
    uint64_t serial; /* of the sequence */
    uint32_t begin, end;
    uint32_t base; /* tokens, when this was scheduled */
    uint32_t n_row;
    int32_t *rows;  /* [n_groups, n_row] as they were when this was scheduled */
    int64_t *slots; /* [n_groups, end - begin] */
    uint64_t *tags; /* [end] what is right, but for the group */
    uint8_t *seen;  /* [n_groups, end] 1: one of its queries sees this position */
    bool writes;
    bool is_declared;   /* the cache was told to commit it with the step */
    uint32_t commit_to; /* what tokens of it still count: cut when the sequence is; 0: none */
    bool is_cut;        /* nobody will know all of its result */
    uint64_t garbage;   /* the failed step whose garbage it read; 0: none */
    uint32_t stage;     /* 0 waits, 1 runs, 2 finished */
} work_item;

typedef struct work_step {
    uint64_t number;
    uint64_t plan;      /* ordered: the cache's plan, 1, 2, ...; 0: none */
    uint64_t submitted; /* 1, 2, ... */
    kvp_copy *copies;   /* [n_copies] */
    uint32_t *order;    /* [n_copies] in which the second memory runs them */
    uint32_t n_copies, n_run;
    kvp_slot_move *moves; /* [n_groups, n_moves] instead of copies; the cache has no such step */
    uint32_t n_moves;
    work_drop *drops; /* [n_drops] */
    uint32_t n_drops;
    work_item *items; /* [n_items] */
    uint32_t n_items;
    bool plan_done;
    bool fails;
    uint32_t fail_after; /* copies; n_copies or more: the forward pass fails, not the plan */
    bool is_safe;        /* never fails: nobody could put that right */
    bool is_finished;
    bool is_reported; /* too early */
} work_step;

typedef struct work_failure {
    uint64_t step;
    uint64_t told; /* steps submitted when the caller was told; UINT64_MAX: it was not */
} work_failure;

enum { DEVICE_STEPS = 72 };

/* Work that can be made to fail, one by one. */
enum { DEVICE_COPY = 0, DEVICE_PASS = 1, DEVICE_WORK = 2 };

typedef struct device {
    shadow *memory;
    verdict *verdict;
    uint64_t random;
    bool overlapped;
    uint32_t taste; /* of which steps move first: 0 the oldest, 1 the newest, 2 any */
    plant planted;
    uint64_t n_planted;             /* how often it was done */
    work_step *steps[DEVICE_STEPS]; /* [n_steps] in the order of submission, until removed */
    uint32_t n_steps;
    uint64_t n_submitted;
    work_failure *failures; /* [n_failures] */
    uint32_t n_failures;
    uint64_t n_copies[SHADOW_TIERS][SHADOW_TIERS];
    uint64_t n_later_phases, n_items, n_reads, n_unseen, n_moves, n_forgiven, n_poisoned, n_beside;
    uint64_t
        fail_at[DEVICE_WORK]; /* the copy, the pass of a sequence that fails, from 1; 0: none */
    uint64_t n_asked[DEVICE_WORK], n_refused; /* copies and passes that could fail; did */
    uint64_t n_reordered, n_late; /* copies: in another order than listed; after a later step */
} device;

void device_init(device *d, shadow *memory, verdict *v, bool overlapped, uint64_t seed);
void device_end(device *d);

void device_clear_item(work_item *item); /* what it points to */
void device_free_items(work_item *items, uint32_t n_items);

/* Whether moves were ordered that have not run. */
bool device_has_moves(const device *d);

/* Give the device a step: it owns it, and its arrays, from now on. */
void device_submit(device *d, work_step *step);

/* Make one move. False when there is nothing to do. */
bool device_move(device *d);
void device_drain(device *d);

/* Forget a finished step, or all of them: nothing runs any more. */
void device_remove(device *d, work_step *step);
void device_cancel(device *d);

/* The caller knows that the step failed. */
void device_told(device *d, uint64_t step);

#endif

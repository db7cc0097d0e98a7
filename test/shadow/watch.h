/* watch: a cache, the memory that its blocks stand for, and what everybody's KV should be.
 *
 * What both drivers share (drive.h, drive_sched.h). After each call it looks at every block: one
 * whose generation rose has lost content, and is poisoned in the memory with the next plan, at the
 * earliest before the plan writes to it, at the latest when it has run. A parked block is left as
 * it is until it is parked no more: steps that are out may still read it. A block that stays held
 * has lost only what an extend is about to write over; what else raises its generation leaves
 * duplicates in it that may yet be attached.
 *
 * Audits:
 *   attached   what blocks are said to hold is there, tag by tag. With overlapped steps: always,
 *              because nothing is attached before it is written, but for accepted nodes that have
 *              yet to move. Ordered: when the device is idle
 *   computed   every computed token's KV is where its sequence's rows say, in either tier, and what
 *              its windows keep is there; when the device is idle and the plan is empty
 */
#ifndef KVP_TEST_SHADOW_WATCH_H
#define KVP_TEST_SHADOW_WATCH_H

#include "device.h"

enum { WATCH_NODES = 16 };

/* A sequence's tree. */
typedef struct subject_tree {
    uint32_t n;
    uint32_t scheduled; /* nodes whose KV steps write, or have written */
    int32_t tokens[WATCH_NODES], parents[WATCH_NODES];
    uint32_t depths[WATCH_NODES];
    uint64_t kv[WATCH_NODES]; /* of those that are scheduled */
} subject_tree;

/* A sequence of the cache. */
typedef struct subject {
    bool is_open;
    bool is_swapped;
    kvp_seq handle;
    uint64_t serial;
    truth_line line;     /* all its tokens, also those whose values the cache does not know yet */
    uint32_t known;      /* values that the cache knows */
    uint32_t scheduled;  /* tokens whose KV is there, or that steps out will write */
    uint64_t declared;   /* the newest step that is to commit it: step.submitted */
    uint64_t arrived;    /* when a copy last brought its KV: by the driver's count */
    uint32_t space;      /* its namespace */
    uint32_t stream;     /* where its tokens come from, mostly */
    uint32_t group;      /* of forks */
    uint32_t group_size; /* at most so many in it, while it lives */
    kvp_window windows[KVP_GROUPS_MAX]; /* [n_groups] in force */
    subject_tree tree;
    bool may_lack; /* taken back by a failure: it may need what was dropped, and then has to go */
} subject;

typedef struct watch {
    kvp_config config; /* as resolved */
    kvp_cache *cache;
    bool overlapped; /* config.steps */
    verdict *verdict;
    shadow *memory;
    truth truth;
    device device;
    subject *subjects; /* [n_subjects] */
    uint32_t n_subjects;
    uint64_t n_serials;
    uint64_t n_plans;                    /* taken, with ordered steps */
    uint64_t n_calls;                    /* that may have changed the cache */
    uint64_t *generations[SHADOW_TIERS]; /* [N] when last looked at */
    uint8_t *states[SHADOW_TIERS];
    work_drop *drops; /* [n_drops] since the last step */
    uint32_t n_drops, drops_capacity;
    uint64_t n_dropped; /* row entries, ever */
    uint64_t n_audits, n_audited_slots, n_parked, n_parked_drops, n_parked_windows, n_own_kv;
} watch;

/* Make a cache and everything around it; NULL and a bad verdict when it is refused. */
watch *watch_create(const kvp_config *config, bool device_overlapped, uint64_t seed, verdict *v);
void watch_destroy(watch *w);

/* A call that may change the cache was made: look at what it did to the blocks. `writes_over`: it
 * makes room in blocks that sequences have already (extend). */
void watch_called(watch *w, bool writes_over);

/* kvp_stats and kvp_seq_info, which never fail here. */
kvp_stats watch_stats(watch *w);
kvp_seq_info watch_info(watch *w, const subject *s);

/* S of a layer group. */
static inline uint32_t watch_block_tokens(const watch *w, uint32_t group)
{
    return w->config.groups[group].block_tokens;
}

/* The window of a layer group, as it is configured. */
static inline kvp_window watch_window(const watch *w, uint32_t group)
{
    return (kvp_window){w->config.groups[group].sink_tokens, w->config.groups[group].recent_tokens};
}

/* Slots that the rows of all groups have. */
uint32_t watch_slots(watch *w, const subject *s);

subject *watch_new_subject(watch *w, kvp_seq handle, const char *space); /* NULL: no room */
void watch_end_subject(watch *w, subject *s);
subject *watch_find(watch *w, kvp_seq handle);
subject *watch_find_serial(watch *w, uint64_t serial);

/* Whether an entry that the window keeps for a next query at this position is null. */
bool watch_lacks(watch *w, const subject *s, uint32_t query);

/* Order what was accepted to be moved: moves [n_groups, n_moves] are the device's from then on. */
void watch_submit_moves(watch *w, kvp_slot_move *moves, uint32_t n_moves);

/* Make the item that computes positions [begin, end) of a sequence and its tree; false with a bad
 * verdict when rows and slots are not what they should be. */
bool watch_make_item(watch *w, subject *s, kvp_range range, work_item *out_item);

/* Take the plan and give it to the device with these items, which it owns from then on (not when
 * this fails). Overlapped: a step begins; KVP_E_NO_STEPS when that is refused. */
kvp_status watch_submit(watch *w, work_item *items, uint32_t n_items, work_step **out_step);

/* With ordered steps: the plans, from the first one on, whose copies have run. */
uint64_t watch_plans_run(const watch *w);

/* A store will fill a host block when plan `after` is over: later plans do not poison what was
 * dropped from it before. */
void watch_forget_drop(watch *w, int32_t block, uint64_t after);

void watch_audit_attached(watch *w);
void watch_audit_computed(watch *w);

#endif

/* cache_state: what a cache is made of, and the steps that the cache files share.
 *
 * The only header that brings the stages together; only cache*.c include it. The cache lies at the
 * start of its arena; everything else is found by offsets from here.
 */
#ifndef KVPI_CACHE_STATE_H
#define KVPI_CACHE_STATE_H

#include <kvpager/cache.h>
#include <kvpager/events.h>
#include <kvpager/lend.h>
#include <kvpager/quotas.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include "base/base.h"
#include "base/sized.h"
#include "base/why.h"
#include "core/stages/hash.h"
#include "core/stages/plan.h"
#include "core/stages/pool.h"
#include "core/stages/prefix.h"
#include "core/record/record.h"
#include "core/stages/table.h"

#define KVPI_UNIT_KEYS_MAX 64u

/* A namespace's place. Open while the generation is odd. */
struct kvpi_space {
    uint64_t generation; /* retired: kvpi_handle_last_generation */
    uint64_t openers;    /* never wraps */
    uint32_t root;
    uint32_t name_bytes;
    uint8_t name[KVP_NAME_MAX_BYTES];
};

/* Counters behind kvp_stats, none of which ever wraps; the gauges are where they are kept up. */
struct kvpi_counters {
    uint64_t peak_held_blocks;
    uint64_t opens;
    uint64_t forks;
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t taken_blocks;
    uint64_t evicted_blocks;
    uint64_t sealed_units;
    uint64_t adopted_blocks;
    uint64_t duplicate_blocks;
    uint64_t copies;
    uint64_t detached_units;
    uint64_t private_units;
    uint64_t unkept_units;
    uint64_t refused;
    uint64_t host_tokens;
    uint64_t swap_outs;
    uint64_t swap_ins;
    uint64_t swapped_out_blocks;
    uint64_t swapped_in_blocks;
    uint64_t kept_blocks;
    uint64_t unkept_blocks;
    uint64_t host_evicted_blocks;
    uint64_t swapped_seqs; /* a gauge */
    uint64_t dropped_blocks;
    uint64_t tree_tokens;
    uint64_t accepted_tokens;
    uint64_t loaded_blocks;
    uint64_t dropped_loads;
    uint64_t failed_loads;
    uint64_t mirrored_blocks;
};

#define KVPI_STEPS_OUT_MAX 64u

/* Steps effective + 1 .. begun are out. Their copies are the plan's
 * first n_out, theirs in order. Step s has everything at place s % max. */
enum { KVPI_STEP_OUT = 0, KVPI_STEP_DONE, KVPI_STEP_FAILED };

struct kvpi_steps {
    uint32_t max;
    uint64_t begun;     /* never wraps; all other numbers of steps are this one, of some time */
    uint64_t effective; /* never wraps */
    uint64_t n_failed;  /* never wraps */
    uint8_t state[KVPI_STEPS_OUT_MAX]; /* of those that are out: KVPI_STEP_... */
    uint32_t n_copies[KVPI_STEPS_OUT_MAX];
    uint32_t n_commits[KVPI_STEPS_OUT_MAX]; /* sequences in its list */
    size_t places_at; /* u32 [max][max_seqs] places of the sequences that it commits, in order */
    size_t
        until_at; /* u32 [max][max_seqs] by place: 1 + the tokens it commits; 0: not in the list */
};

/* Events remembered: number e at place (e - 1) % capacity. Numbers have 64 bits: none wraps. */
struct kvpi_events {
    uint32_t capacity; /* 0: none are made */
    uint64_t newest;   /* number of the newest that is whole; never wraps */
    uint64_t begun;    /* number of the newest that was begun: that, or one more */
    size_t events_at;  /* kvp_event [capacity] */
    size_t tokens_at;  /* i32 [capacity][U] */
};

#define KVPI_LOADS_MAX 4096u

/* What stores and copies do with a host block. Numbers are those of plans (lend.h); one that is
 * over, 0 among them, says nothing. */
struct kvpi_lent {
    uint64_t used;    /* the newest plan with a copy from or to it */
    uint64_t written; /* the newest plan with a copy to it */
    uint32_t holds;   /* how often it is lent to be read */
    uint32_t node;    /* being loaded: its last unit's; else NO_NODE */
    uint32_t next;    /* of the same load, in row order; 0: the last one */
    uint32_t reserved;
};

struct kvpi_load {
    uint64_t number; /* 0: the place is free */
    uint64_t after;  /* the newest plan that used one of its blocks before */
    uint32_t node;   /* the last entry's last unit, which the load uses */
    uint32_t first;  /* its blocks, linked by `next` */
    uint32_t n_blocks;
    uint32_t group;
};

/* Host blocks lent to stores, lend.h. L1 a block's holds are references to it; L2 a block that is
 * being loaded has one reference, of its load, and no content, and its node is marked as loading in
 * the load's group; L3 what is lent is at most `limit`. */
struct kvpi_lending {
    uint32_t max_loads; /* 0: nothing is lent, and there are no arrays */
    uint32_t limit;
    uint64_t n_loads;    /* begun and not ended */
    uint64_t n_loading;  /* blocks */
    uint64_t n_reading;  /* blocks with holds */
    uint64_t number;     /* of the newest load; never wraps */
    uint64_t plans;      /* taken, with ordered steps; never wraps */
    uint64_t plans_done; /* of them */
    size_t lent_at;      /* struct kvpi_lent [host_blocks] */
    size_t loads_at;     /* struct kvpi_load [max_loads] */
};

/* The first two say whether a cache is here, and lies as ours do. */
struct kvp_cache {
    uint64_t mark;     /* kvpi_arena_mark() from create to destroy */
    uint64_t layout;   /* kvpi_arena_layout() */
    uint64_t calls;    /* twice the calls so far, never wraps; odd: one is inside */
    uint64_t process;  /* kvpi_process_number of who created it; not meaningful in a copy */
    kvp_config config; /* resolved; uncached_tokens is found by uncached_at */
    uint64_t arena_bytes;
    uint64_t self;      /* where it was created; a copy of the arena knows by it that it is one */
    uint32_t mapped;    /* the arena is ours to unmap */
    uint32_t watermark; /* blocks */
    uint32_t grouped;   /* several groups, or one with a window: match_groups.c matches */
    uint32_t used;      /* a namespace was opened: too late to record */
    uint64_t batch;     /* number of the batch that runs; never wraps */
    uint64_t n_open_spaces;
    uint32_t ahead[KVPI_POOL_JUMP]; /* hints of prefetch_victims: blocks soon to be taken */
    uint32_t ahead_at; /* near: only its place among KVPI_POOL_JUMP, which divides 2^32, is used */
    uint64_t n_evicted;
    kvp_shortage shortage;
    struct kvpi_counters counters;
    struct kvpi_recorder recorder; /* not meaningful in a copy of the arena */
    struct kvpi_pool pool;         /* the device's blocks */
    struct kvpi_pool host;
    struct kvpi_prefix prefix;
    struct kvpi_table table;
    struct kvpi_plan plan;
    struct kvpi_steps steps;
    struct kvpi_events events;
    struct kvpi_lending lending;
    uint32_t space_bits;
    size_t spaces_at;   /* struct kvpi_space [max_namespaces] */
    size_t uncached_at; /* i32 [n_uncached_tokens] ascending */
    size_t evicted_at;  /* kvp_evicted [2 (n_blocks - 1) + host_blocks]: each take on the device
                           evicts at most one block here and one there, a swap out the host's */
    size_t hashes_at;   /* kvp_hash [max_units] scratch: the prompt's */
};

/* The units of a prompt, matched. */
struct kvpi_match {
    const kvp_prompt *prompt;
    const kvp_hash *hashes; /* [n_public]: the prompt's own, or scratch, where they were made */
    kvp_hash *scratch;      /* NULL when the caller gave hashes */
    uint32_t root;
    uint32_t place;       /* whose row holds nodes and blocks of the match */
    uint32_t n_units;     /* full units of the prompt */
    uint32_t n_public;    /* leading ones that can be published */
    uint32_t n_hits;      /* leading ones that are hit */
    uint32_t stale_hints; /* 1: jumps of hit nodes do not lead along this path */
    uint32_t stop;
    uint32_t stop_group;
    uint32_t n_shared; /* hit row entries; blocks on the host stand in the row as negative ids */
    uint32_t n_kept;   /* hit blocks: entries of all groups that are not null */
    uint32_t n_unheld; /* of them, those that are cached on the device */
    uint32_t n_idle;   /* of them, those on the device that nobody holds: cached or parked */
    uint32_t n_host;   /* of them, those on the host */
    uint32_t n_host_entries; /* row entries with such, in any group */
    uint32_t n_seen;   /* how many of them were looked at, and held if `hold`; row entries of all
                          groups */
    uint32_t hold;     /* 1: for an open. Blocks are held as they are matched, while their
                               memory is at hand; kvpi_match_let_go puts them back exactly */
    uint32_t n_blocks; /* that the sequence will have */
    uint32_t source;   /* block to copy hits inside a block from; 0: none */
    uint32_t source_tier;
    uint32_t first_host; /* host blocks that are copied from, held until the open is done */
};

static inline struct kvpi_pool *kvpi_tier_pool(struct kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE ? &cache->pool : &cache->host;
}

static inline struct kvpi_lent *kvpi_lent(const struct kvp_cache *cache, uint32_t block)
{
    return (struct kvpi_lent *)kvpi_at(cache, cache->lending.lent_at) + block;
}

static inline struct kvpi_load *kvpi_load_at(const struct kvp_cache *cache, uint32_t place)
{
    return (struct kvpi_load *)kvpi_at(cache, cache->lending.loads_at) + place;
}

/* Plans up to this one are over; later ones may run, or wait. */
static inline uint64_t kvpi_plans_over(const struct kvp_cache *cache)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED ? cache->steps.effective
                                                       : cache->lending.plans_done;
}

/* Plans that were taken: the one that waits is the next. */
static inline uint64_t kvpi_plans_taken(const struct kvp_cache *cache)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED ? cache->steps.begun : cache->lending.plans;
}

/* Where a block's content is attached: on its tier, for its group. */
static inline uint32_t kvpi_where(const struct kvp_cache *cache, uint32_t tier, uint32_t block)
{
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->pool : &cache->host;
    return KVPI_WHERE(tier, kvpi_block_group(kvpi_block(pool, block)));
}

/* The sequence's row in one group. */
static inline int32_t *kvpi_row(const struct kvp_cache *cache, const struct kvpi_seq *seq,
                                uint32_t group)
{
    return kvpi_group_row(&cache->table, group, kvpi_seq_place(&cache->table, seq));
}

static inline uint32_t kvpi_units_per_block(const struct kvp_cache *cache)
{
    return cache->prefix.units_per_block;
}

/* Enter and leave every public call that needs the cache for itself: the mark that one is inside,
 * which is the guard (KVP_E_BUSY) and what inspect.h looks at; the peak, the check levels. */
kvp_status kvpi_enter(const kvp_cache *cache);
kvp_status kvpi_leave(const kvp_cache *cache, kvp_status status);

/* Put the mark; 0: it is there. Exact: of two at once, one. 7.5 ns.
 * Acquire pairs with the release of kvpi_leave: calls in turn from several threads are fine. */
static inline int kvpi_mark_exact(uint64_t *calls)
{
    return (__atomic_fetch_or(calls, 1u, __ATOMIC_ACQUIRE) & 1u) == 0;
}

/* The same in 1 ns: two that load at once may both put it. */
static inline int kvpi_mark_plain(uint64_t *calls)
{
    const uint64_t now = __atomic_load_n(calls, __ATOMIC_ACQUIRE);
    if (kvpi_unlikely((now & 1u) != 0)) {
        return 0;
    }
    __atomic_store_n(calls, now | 1u, __ATOMIC_RELAXED);
    return 1;
}

/* Reads beside a change: what is read between these two is of one moment when no call was inside at
 * the first one, and the second one gives the same number. What changes stores it by kvpi_set*. */
enum { KVPI_READ_TRIES = 8 };

static inline uint64_t kvpi_read_begin(const kvp_cache *cache)
{
    return __atomic_load_n(&cache->calls, __ATOMIC_ACQUIRE); /* pairs with kvpi_leave */
}

static inline uint64_t kvpi_read_end(const kvp_cache *cache)
{
    kvpi_fence(); /* pairs with that of kvpi_enter */
    return kvpi_read(&cache->calls);
}

/* Does a recording run? Not in a copy, nor in a child of the process that has the cache. */
int kvpi_recording_here(const kvp_cache *cache);

static inline int kvpi_recording(const kvp_cache *cache)
{
    return cache->recorder.on && kvpi_recording_here(cache);
}

/* Note why a changing call fails; gives `status` back. The blocks are the device's. */
kvp_status kvpi_fail(kvp_cache *cache, kvp_status status, uint32_t index, uint64_t missing);

/* A changing call goes ahead: what the last one evicted is forgotten. */
void kvpi_begin_change(kvp_cache *cache);

static inline struct kvpi_seq *kvpi_find_seq(const kvp_cache *cache, kvp_seq seq)
{
    return kvpi_table_find(&cache->table, seq, cache->recorder.cache_bits);
}

/* The sequence of a handle that this call has found before. */
static inline struct kvpi_seq *kvpi_known_seq(const kvp_cache *cache, kvp_seq handle)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    KVPI_ASSERT(seq != NULL);
    return seq;
}

struct kvpi_space *kvpi_find_space(const kvp_cache *cache, kvp_ns ns);

/* The first thing wrong with a batch, in one pass: a bad handle goes before a sequence named
 * twice, and that before anything else. */
struct kvpi_fault {
    kvp_status status;
    uint32_t index;
};

struct kvpi_faults {
    uint64_t batch; /* its number: marks the sequences that were named */
    struct kvpi_fault handle;
    struct kvpi_fault twice;
    struct kvpi_fault other;
};

static inline struct kvpi_faults kvpi_faults_begin(kvp_cache *cache)
{
    return (struct kvpi_faults){++cache->batch, {KVP_OK, 0}, {KVP_OK, 0}, {KVP_OK, 0}};
}

/* The next sequence of the batch; NULL ends the pass: nothing can come before a bad handle. */
static inline struct kvpi_seq *kvpi_faults_find(const kvp_cache *cache, struct kvpi_faults *faults,
                                                kvp_seq handle, uint32_t index)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        faults->handle = (struct kvpi_fault){KVP_E_HANDLE, index};
        return NULL;
    }
    if (seq->batch == faults->batch && faults->twice.status == KVP_OK) {
        faults->twice = (struct kvpi_fault){KVP_E_ARG, index};
    }
    seq->batch = faults->batch;
    return seq;
}

static inline void kvpi_faults_other(struct kvpi_faults *faults, kvp_status status, uint32_t index)
{
    if (status != KVP_OK && faults->other.status == KVP_OK) {
        faults->other = (struct kvpi_fault){status, index};
    }
}

static inline int kvpi_faults_any(const struct kvpi_faults *faults)
{
    return (faults->handle.status | faults->twice.status | faults->other.status) != KVP_OK;
}

/* Fail with the one that goes first. */
kvp_status kvpi_faults_fail(kvp_cache *cache, const struct kvpi_faults *faults);

/* --- core/calls/life.c */

/* What of this build decides how an arena lies: its version, and the sizes of what lies there. */
uint64_t kvpi_arena_layout(void);

/* The bytes of KVP_ARENA_MARK. */
uint64_t kvpi_arena_mark(void);

/* Has it the sizes and offsets that its configuration gives, and is that one valid? Afterwards
 * these can be trusted, wherever the bytes come from; nothing else can. */
int kvpi_is_planned(const kvp_cache *cache);

/* --- core/calls/start.c */

#if KVP_CHECK >= 1
/* For tests: a cache that was just created goes on as if steps, batches, calls, events and
 * generations of blocks had come to number `start`, and generations of places near it. */
void kvpi_start_at(kvp_cache *cache, uint64_t start);
#endif

/* --- core/calls/seqs.c */

/* May the first n_tokens be declared computed? */
static inline kvp_status kvpi_check_commit(const struct kvpi_seq *seq, uint32_t n_tokens)
{
    if (n_tokens > seq->tokens) {
        return KVP_E_ARG;
    }
    return seq->tier != KVP_DEVICE || (n_tokens > seq->computed && n_tokens > seq->writable)
               ? KVP_E_STATE
               : KVP_OK;
}

/* The first n_tokens are computed: seal. */
void kvpi_commit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens);

/* --- match.c */

/* A pointer missing, the prompt itself among them. */
int kvpi_bad_prompt(const kvp_prompt *prompt);

/* Check a prompt and fill in `match` up to n_public; statuses as kvp_seq_open gives them. */
kvp_status kvpi_match_prepare(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                              struct kvpi_match *match);

/* Walk the tree: hits, their nodes and blocks into the row of `place`; what it would take. */
void kvpi_match_walk(kvp_cache *cache, uint32_t place, struct kvpi_match *match);

/* The open is refused: undo what the walk held. */
void kvpi_match_let_go(kvp_cache *cache, struct kvpi_match *match);

/* --- match_groups.c: the same for several groups, and for windows (windows.h) */

/* The first n_hits units were found: cut them to the longest prefix of which each group has what it
 * keeps; write its blocks into the rows, count them, and hold them for an open. */
void kvpi_match_groups(kvp_cache *cache, struct kvpi_match *match);

/* Put back in reverse order what kvpi_match_groups held. */
void kvpi_match_groups_let_go(kvp_cache *cache, const struct kvpi_match *match);

/* --- match.c */

/* Hash the public units that were not hit. */
void kvpi_match_hash_rest(const kvp_cache *cache, struct kvpi_match *match);

/* Count the blocks; cut a hit inside a block when there is no room for its source. */
void kvpi_match_admit(const kvp_cache *cache, struct kvpi_match *match, kvp_admission *out);

void kvpi_match_info(const kvp_cache *cache, const struct kvpi_match *match, kvp_open_info *out);

/* --- blocks.c: blocks and what is in them */

/* Take blocks for n more entries of the rows, evicting as needed; there are enough. */
void kvpi_take_blocks(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n);

/* Take one block, for a group and of a tier; it counts for `owner`, a namespace's handle. */
uint32_t kvpi_take_block(kvp_cache *cache, uint32_t where, uint32_t retention, uint64_t owner);

/* The namespace that a block counts for; 0: none, or blocks are not counted. */
static inline uint64_t kvpi_owner_of(const kvp_cache *cache, uint32_t tier, uint32_t block)
{
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->pool : &cache->host;
    return kvpi_pool_counts(pool) ? kvpi_owned(&pool->quotas, block)->owner : 0;
}

/* One reference less; counts what became free or cached. `released` may be NULL. */
void kvpi_release_block(kvp_cache *cache, uint32_t tier, uint32_t block, kvp_released *released);

/* The sequence leaves a block of its row: release it. If a step that is out may still write there,
 * a block that stays held is marked so (steps.h). */
void kvpi_leave_block(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t block,
                      kvp_released *released);

/* Release the rows' blocks from the last entry down to `keep`, counting into `released`. */
void kvpi_release_row(kvp_cache *cache, struct kvpi_seq *seq, uint32_t keep,
                      kvp_released *released);

/* Detach the units of a block from place `from` on, strike its duplicates there. Gives how many
 * were detached. */
uint32_t kvpi_detach_units(kvp_cache *cache, uint32_t tier, uint32_t block, uint32_t from);

/* Take a node without duplicates off its block; a cached block left with nothing becomes free. */
void kvpi_detach_node(kvp_cache *cache, uint32_t where, uint32_t node);

/* Make the node impossible to find. */
void kvpi_withdraw_node(kvp_cache *cache, uint32_t node);

/* Copy a device block's units on to a host block by the plan: from the start to its deepest one,
 * which no host block has. There is room in both. Gives the host block, which is cached, or held by
 * its copy. */
uint32_t kvpi_copy_to_host(kvp_cache *cache, uint32_t block);

/* May a device block's content be copied to the host now, with a plan of which others need half? */
int kvpi_may_copy_to_host(kvp_cache *cache, uint32_t block);

/* Put a copy into the plan, one that the call had promised. */
void kvpi_add_copy(kvp_cache *cache, const struct kvpi_copy *copy);

/* The copy added last will bring the node's unit into the block: attached there, or a duplicate, or
 * awaited. */
void kvpi_copied_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block);

/* The unit's KV is in the block: attach it there, or make it a duplicate. */
void kvpi_settle_unit(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block);

/* Seal unit u of the sequence in every group: commit's rule for one unit. Those up to `end` will
 * follow. */
void kvpi_seal_unit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t u, uint32_t end);

/* --- core/calls/extend.c */

/* Make slots [computed, end) writable and the row long enough; there are enough blocks. */
void kvpi_make_room(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end);

/* All or nothing. parents: NULL, or the batch adds nodes to trees. */
kvp_status kvpi_extend_all(kvp_cache *cache, const kvp_batch *batch, const int32_t *parents);

/* Pointers wrong? */
int kvpi_bad_batch(const kvp_batch *batch);

/* --- windows.c: see windows.h */

/* The sequence has the configured windows, and nothing dropped. */
void kvpi_windows_open(const kvp_cache *cache, struct kvpi_seq *seq);

/* The sequence closes. */
void kvpi_windows_close(const kvp_cache *cache, struct kvpi_seq *seq);

/* Would a row of n_blocks entries keep one that was dropped, with the next query at q? */
int kvpi_windows_lack(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t q,
                      uint32_t n_blocks);

/* KVP_E_DROPPED when the sequence cannot go on, for want of what was dropped. */
static inline kvp_status kvpi_check_windows(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return seq->windowed && kvpi_windows_lack(cache, seq, seq->computed, seq->n_blocks)
               ? KVP_E_DROPPED
               : KVP_OK;
}

/* Drop what is not kept with the next query at the computed tokens. */
void kvpi_windows_drop(kvp_cache *cache, struct kvpi_seq *seq, kvp_released *released);

/* The child, whose rows are the parent's, keeps what it needs at its end. */
void kvpi_windows_fork(const kvp_cache *cache, const struct kvpi_seq *parent,
                       const struct kvpi_seq *child);

/* The rows were cut to n_blocks entries. */
void kvpi_windows_cut(const kvp_cache *cache, struct kvpi_seq *seq);

/* It was taken back to fewer computed tokens: what it computes again with a window of its own is
 * not what others compute. */
void kvpi_windows_back(const kvp_cache *cache, struct kvpi_seq *seq);

/* Entries of all groups that are null. */
uint32_t kvpi_windows_count_null(const kvp_cache *cache, const struct kvpi_seq *seq);

/* --- core/calls/trees.c: see trees.h */

/* Are they -1, or nodes that come before? */
int kvpi_tree_parents_valid(const struct kvpi_seq *seq, const int32_t *parents, uint32_t n);

/* Is a step out that the tree was given to? */
static inline int kvpi_tree_in_flight(const struct kvp_cache *cache, const struct kvpi_seq *seq)
{
    return seq->n_tree > 0 && cache->config.steps == KVP_STEPS_OVERLAPPED &&
           seq->tree_step > cache->steps.effective;
}

void kvpi_tree_add(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens,
                   const int32_t *parents, uint32_t n);

/* --- core/calls/steps.c */

static inline uint64_t kvpi_steps_out(const struct kvp_cache *cache)
{
    return cache->steps.begun - cache->steps.effective;
}

/* May a step that is out still write into the block, for a sequence that has left it? */
static inline int kvpi_is_touched(const struct kvp_cache *cache, uint32_t block)
{
    return cache->pool.parking != 0 &&
           kvpi_pool_touched(&cache->pool)[block] > cache->steps.effective;
}

/* Will a copy that is out, or waits, bring content into the block? */
static inline int kvpi_is_arriving(const struct kvp_cache *cache, uint32_t block)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED &&
           kvpi_pool_arriving(&cache->pool)[block] > cache->steps.effective;
}

/* May a step that is out write slots of the sequence? Those that it was given and has not computed,
 * or that were cut off it. */
static inline int kvpi_may_be_written(const struct kvp_cache *cache, const struct kvpi_seq *seq)
{
    return cache->pool.parking != 0 &&
           (seq->writable > seq->computed || seq->cut_step > cache->steps.effective);
}

/* The sequence is about to be cut to n tokens: no step will commit more; with n = 0, nothing. */
void kvpi_steps_cut(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n);

void kvpi_steps_reset(kvp_cache *cache);

/* --- core/calls/load.c */

/* Forget every load, and what is lent. */
void kvpi_loads_reset(kvp_cache *cache);

/* --- events.c */

void kvpi_tell_stored(kvp_cache *cache, uint32_t where, uint32_t node);
void kvpi_tell_removed(kvp_cache *cache, uint32_t where, uint32_t node);

/* The namespace of this root is flushed; NO_NODE: everything is gone. */
void kvpi_tell_cleared(kvp_cache *cache, uint32_t root);

/* --- tokens.c: tokens and the units they make */

int kvpi_is_uncached(const kvp_cache *cache, const int32_t *tokens, uint32_t n,
                     uint32_t *out_first);
int kvpi_any_negative(const int32_t *tokens, uint32_t n);

/* Append known values; full units become nodes. Keys as in kvp_batch. */
void kvpi_append_tokens(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens, uint32_t n,
                        const kvp_key *keys, uint32_t n_keys);

/* Do the keys fit max_unit_keys in every unit of tokens [from, to), where `pending` are there? */
int kvpi_keys_fit(const kvp_cache *cache, const kvp_key *keys, uint32_t n_keys, uint32_t from,
                  uint32_t to, uint32_t pending);

/* Put unit u's node into the row and move the sequence's use to it. */
void kvpi_push_node(kvp_cache *cache, struct kvpi_seq *seq, uint32_t node, int is_public);

/* Leave `from`'s first n tokens in `seq` (which may be the same): counts, partial unit, keys, and
 * the use of the last node. */
void kvpi_cut_tokens(kvp_cache *cache, const struct kvpi_seq *from, struct kvpi_seq *seq,
                     uint32_t n);

/* The last kept node, or the root. */
uint32_t kvpi_last_node(const kvp_cache *cache, const struct kvpi_seq *seq);

/* Read values [from, from + n); 0 when some are not known. */
int kvpi_read_tokens(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from, uint32_t n,
                     int32_t *out);

/* The value of its last known token; KVPI_NO_TOKEN: there is none, or it is not kept. Found anew,
 * and noted in `last`. */
uint32_t kvpi_last_token(const kvp_cache *cache, const struct kvpi_seq *seq);
void kvpi_note_last(const kvp_cache *cache, struct kvpi_seq *seq);

/* --- spaces.c */

/* A namespace that is there and not open (0 openers), for what is restored into a cache in which
 * none was opened, nor restored with that name. Gives its root; NO_NODE: there is no place or node
 * for it. */
uint32_t kvpi_restore_space(kvp_cache *cache, const void *name, uint32_t name_bytes);

/* The handle of the open namespace that has this root; 0: there is none.
 * Cost: O(max_namespaces). */
uint64_t kvpi_space_with_root(const kvp_cache *cache, uint32_t root);

/* Does this handle's namespace have the root that the node hangs from? */
int kvpi_space_has(const kvp_cache *cache, uint64_t owner, const struct kvpi_node *node);

/* Give every namespace a new root (reset). */
void kvpi_reset_spaces(kvp_cache *cache);

/* --- core/snapshot/ranges.c: bytes from elsewhere */

/* Are the counts in the cache's own structure within their arrays? For one that is planned. */
int kvpi_counts_in_range(const kvp_cache *cache);

/* Does everything in it point inside? If so, kvpi_audit is safe on it. */
int kvpi_in_range(const kvp_cache *cache, kvp_violation *out_violation);

/* --- audit.c */

int kvpi_audit(kvp_cache *cache, int level, kvp_violation *out_violation);

#endif

/* swap: sequences move between tiers. Out and in are the same move, seen from two sides.
 *
 * All sequences of a call move together, so that what they share is shared there, too. The old
 * blocks are held by the rows until the end, and a held block stands in no queue: its links carry
 * the move, while it is marked.
 *
 *   old block, marked:  next   the block it becomes: found there, or taken; 0: still to be taken
 *                       prev   counting: entries of the call's rows that have it;
 *                              moving: 1 when it is copied, 0 when its content was found
 *
 * (Not `jump`: it may be written while a block is held, as a block queued earlier.)
 *
 * Counting marks and clears the marks again; moving counts, and then goes on from the marks. What
 * is found there is marked, too, while it is counted, so that it is counted once.
 */
#include "core/cache/blocks.h"
#include "core/cache/dropped.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/seq/states_move.h"
#include "core/seq/seq_windows.h"
#include "core/calls/extend.h"
#include "core/calls/steps.h"

#include <string.h>

struct move {
    uint32_t from;
    uint32_t to;
    const kvp_seq *seqs;
    uint32_t n_seqs;
    uint32_t reserve;
    /* counted: */
    uint32_t n_new;
    uint32_t n_found;
    uint32_t n_cached; /* of the found ones, those that leave the queue */
    uint32_t n_room;   /* blocks that making room takes, copy-on-write included */
    uint32_t n_writes; /* copies on write */
    struct kvpi_states_move states;
};

/* Has the sequence unit u, public and computed? Asked for each entry: no division. */
static inline int has_unit(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t u)
{
    const uint32_t computed = kvpi_min_u32(seq->computed, seq->known);
    return u < seq->n_public && (u + (uint64_t)1) * cache->config.unit_tokens <= computed;
}

/* The block of the tier we move to that has all of entry i of a group's row; 0: there is none. */
static uint32_t find_there(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t i,
                           uint32_t where)
{
    const uint32_t last = (i + 1) * kvpi_units_per_block(cache, KVPI_GROUP_OF(where)) - 1;
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    return has_unit(cache, seq, last) ? kvpi_node_at(&cache->prefix, nodes[last], where)->block : 0;
}

/* The rows of one sequence and the blocks of the tier it leaves, found once for all its entries. */
struct rows {
    int32_t *entries;          /* of group 0 */
    size_t stride;             /* from an entry to the same one of the next group */
    struct kvpi_block *blocks; /* of the tier */
};

static inline struct rows rows_of(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t tier)
{
    const struct kvpi_table *table = &cache->table;
    return (struct rows){kvpi_row(cache, seq, 0),
                         (size_t)(table->max_seqs + 1) * table->block_stride,
                         kvpi_blocks(kvpi_tier_pool(cache, tier))};
}

static inline int32_t *moved_entry(const struct rows *rows, uint32_t group, uint32_t i)
{
    return &rows->entries[group * rows->stride + i];
}

/* The old block of entry i of a group's row; NULL: it was dropped. */
static inline struct kvpi_block *old_block(const struct rows *rows, uint32_t group, uint32_t i)
{
    const int32_t block = *moved_entry(rows, group, i);
    return block == KVP_NULL_BLOCK ? NULL : &rows->blocks[block];
}

/* Mark and count one row entry. */
static inline void count_moved_entry(kvp_cache *cache, const struct kvpi_seq *seq,
                                     struct kvpi_block *old, uint32_t group, uint32_t i,
                                     struct move *move)
{
    if (old == NULL) {
        return;
    }
    if (!(old->refs & KVPI_REFS_MARKED)) {
        const uint32_t there = find_there(cache, seq, i, KVPI_WHERE(move->to, group));
        old->refs |= KVPI_REFS_MARKED;
        old->next = there;
        old->prev = 0;
        move->n_new += there == 0;
        if (there != 0) {
            struct kvpi_block *found = kvpi_block(kvpi_tier_pool(cache, move->to), there);
            if (!(found->refs & KVPI_REFS_MARKED)) {
                found->refs |= KVPI_REFS_MARKED;
                move->n_found++;
                move->n_cached += (uint32_t)kvpi_block_is_cached(found);
            }
        }
    }
    old->prev++;
}

/* Count what making room takes after the move (see count_need in extend.c). A block that was
 * found is held by all sequences that have it; a new one only by entries of this call. */
static void count_room(kvp_cache *cache, const struct kvpi_seq *seq, struct move *move)
{
    const uint32_t end = seq->tokens + move->reserve;
    const struct rows rows = rows_of(cache, seq, move->from);
    if (end <= seq->computed) {
        return;
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        move->n_room += kvpi_row_length(cache, g, end) - kvpi_row_length(cache, g, seq->computed);
        if (seq->computed % kvpi_block_tokens(cache, g) == 0) {
            continue;
        }
        struct kvpi_block *old = old_block(&rows, g, seq->computed / kvpi_block_tokens(cache, g));
        KVPI_ASSERT(old != NULL); /* windows drop full blocks only */
        if (old->next != 0 || old->prev > 1) {
            old->prev -= old->next == 0;
            move->n_room++;
            move->n_writes++;
        }
    }
}

/* The same for states: all that move first. */
static void count_states(kvp_cache *cache, struct move *move)
{
    move->states.to = move->to;
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        kvpi_states_count(cache, kvpi_known_seq(cache, move->seqs[k]), &move->states);
    }
    for (uint32_t k = 0; k < move->n_seqs && move->to == KVP_DEVICE; k++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, move->seqs[k]);
        if (seq->tokens + move->reserve > seq->computed) {
            kvpi_states_count_room(cache, seq, &move->states);
        }
    }
}

static void count_move(kvp_cache *cache, struct move *move)
{
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, move->seqs[k]);
        const struct rows rows = rows_of(cache, seq, move->from);
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const uint32_t n = kvpi_row_length(cache, g, seq->computed);
            for (uint32_t i = 0; i < n; i++) {
                count_moved_entry(cache, seq, old_block(&rows, g, i), g, i, move);
            }
        }
    }
    for (uint32_t k = 0; k < move->n_seqs && move->to == KVP_DEVICE; k++) {
        count_room(cache, kvpi_known_seq(cache, move->seqs[k]), move);
    }
    if (kvpi_has_states(cache)) {
        count_states(cache, move);
    }
}

/* Take the marks off the blocks that were found; those of the old ones too, with `all`. What stays
 * marked tells from now on whether it is copied. */
static void clear_marks(kvp_cache *cache, const struct move *move, int all)
{
    struct kvpi_block *there = kvpi_blocks(kvpi_tier_pool(cache, move->to));
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, move->seqs[k]);
        if (kvpi_has_states(cache)) {
            kvpi_states_clear(cache, seq, move->to, all);
        }
        const struct rows rows = rows_of(cache, seq, move->from);
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const uint32_t n = kvpi_row_length(cache, g, seq->computed);
            for (uint32_t i = 0; i < n; i++) {
                struct kvpi_block *old = old_block(&rows, g, i);
                if (old == NULL) {
                    continue;
                }
                if (old->next != 0) {
                    there[old->next].refs &= ~KVPI_REFS_MARKED;
                }
                old->prev = old->next == 0;
                old->refs &= all ? ~KVPI_REFS_MARKED : UINT32_MAX;
            }
        }
    }
}

/* Slots of state that are missing. */
static uint64_t missing_slots(kvp_cache *cache, const struct move *move)
{
    return kvpi_has_states(cache) ? kvpi_states_missing(cache, &move->states) : 0;
}

/* Is there room? The verdict as kvp_cache_can_swap_out and kvp_cache_can_swap_in give it. */
static void judge(kvp_cache *cache, const struct move *move, kvp_admission *out)
{
    const struct kvpi_pool *pool = kvpi_tier_pool(cache, move->to);
    const uint64_t usable = pool->n_blocks == 0 ? 0 : pool->n_blocks - 1;
    const uint64_t available = kvpi_pool_available(pool);
    const uint64_t watermark = move->to == KVP_DEVICE && pool->n_held > 0 ? cache->watermark : 0;
    const uint64_t need = (uint64_t)move->n_new + move->n_cached + move->n_room;
    const uint64_t total = (uint64_t)move->n_new + move->n_found + move->n_room;
    memset(out, 0, sizeof(*out));
    out->need_blocks = (uint32_t)need;
    out->available = (uint32_t)available;
    out->copied_blocks = move->n_new;
    if (need + watermark <= available) {
        out->verdict = missing_slots(cache, move) > 0 ? KVP_ADMIT_LATER : KVP_ADMIT_OK;
    } else if (total + watermark > usable) {
        out->verdict = KVP_ADMIT_NEVER;
        out->missing_blocks = (uint32_t)(total + watermark - usable);
    } else {
        out->verdict = KVP_ADMIT_LATER;
        out->missing_blocks = (uint32_t)(need + watermark - available);
    }
}

/* Hold what was found, once for each row entry. */
static void hold_found(kvp_cache *cache, const struct move *move, const struct kvpi_seq *seq)
{
    const struct rows rows = rows_of(cache, seq, move->from);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t n = kvpi_row_length(cache, g, seq->computed);
        for (uint32_t i = 0; i < n; i++) {
            const struct kvpi_block *old = old_block(&rows, g, i);
            if (old != NULL && old->next != 0) {
                kvpi_pool_hold(kvpi_tier_pool(cache, move->to), old->next);
            }
        }
    }
}

/* Have an entry of a group's row copied; gives the new block. */
static inline uint32_t copy_entry(kvp_cache *cache, const struct move *move,
                                  const struct kvpi_seq *seq, const struct rows *rows,
                                  uint32_t group, uint32_t i)
{
    const uint32_t S = kvpi_block_tokens(cache, group);
    const uint32_t n_tokens = kvpi_min_u32(S, seq->computed - i * S);
    struct kvpi_block *old = old_block(rows, group, i);
    KVPI_ASSERT(old != NULL);
    if (old->next == 0) {
        old->next = kvpi_take_block(cache, KVPI_WHERE(move->to, group), kvpi_block_class(old),
                                    seq->ns.bits);
        kvpi_add_copy(cache, &(struct kvpi_copy){.src_tier = (uint8_t)move->from,
                                                 .dst_tier = (uint8_t)move->to,
                                                 .src = (uint32_t)*moved_entry(rows, group, i),
                                                 .dst = old->next,
                                                 .n_tokens = n_tokens});
    } else { /* copied already, for a sequence that may have fewer tokens there */
        kvpi_pool_hold(kvpi_tier_pool(cache, move->to), old->next);
        kvpi_plan_raise(&cache->plan, move->to, old->next, n_tokens);
    }
    return old->next;
}

/* Copy an entry that was not found, and settle the units in it. */
static inline void move_entry(kvp_cache *cache, const struct move *move, const struct kvpi_seq *seq,
                              const struct rows *rows, uint32_t group, uint32_t i)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache, group);
    const struct kvpi_block *old = old_block(rows, group, i);
    if (old == NULL || old->prev == 0) {
        return;
    }
    const uint32_t there = copy_entry(cache, move, seq, rows, group, i);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const uint32_t end = (i + 1) * units_per_block;
    for (uint32_t u = i * units_per_block; u < end && has_unit(cache, seq, u); u++) {
        kvpi_copied_unit(cache, KVPI_WHERE(move->to, group), nodes[u], there);
    }
}

/* Entries of the row where there is one group, which needs no order; else 0. */
static uint32_t count_single(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return cache->config.n_groups == 1 ? kvpi_row_length(cache, 0, seq->computed) : 0;
}

static void copy_entries(kvp_cache *cache, const struct move *move, const struct kvpi_seq *seq)
{
    const struct rows rows = rows_of(cache, seq, move->from);
    const uint32_t n = count_single(cache, seq);
    struct kvpi_entries entries = kvpi_entries_from(cache, n > 0 ? seq->computed : 0);
    for (uint32_t i = 0; i < n; i++) {
        move_entry(cache, move, seq, &rows, 0, i);
    }
    for (; entries.t < seq->computed; kvpi_entries_next(cache, &entries)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            if (entries.at[g] == entries.t) {
                move_entry(cache, move, seq, &rows, g, entries.entry[g]);
            }
        }
    }
}

/* An entry becomes the new block; the old one is released. */
static inline void change_entry(kvp_cache *cache, const struct kvpi_seq *seq,
                                const struct rows *rows, uint32_t group, uint32_t i,
                                kvp_released *released)
{
    int32_t *entry = moved_entry(rows, group, i);
    struct kvpi_block *old = old_block(rows, group, i);
    if (old != NULL) {
        const uint32_t source = (uint32_t)*entry;
        *entry = (int32_t)old->next;
        old->refs &= ~KVPI_REFS_MARKED;
        kvpi_leave_block(cache, seq, source, released);
    }
}

/* The rows' entries become the new blocks; the old ones are released, the last one first. */
static void change_row(kvp_cache *cache, const struct move *move, struct kvpi_seq *seq,
                       kvp_released *released)
{
    const struct rows rows = rows_of(cache, seq, move->from);
    kvpi_release_row(cache, seq, seq->computed, released);
    const uint32_t n = count_single(cache, seq);
    struct kvpi_entries entries = kvpi_entries_from(cache, n > 0 ? 0 : seq->computed);
    for (uint32_t i = n; i > 0; i--) {
        change_entry(cache, seq, &rows, 0, i - 1, released);
    }
    while (kvpi_entries_back(cache, &entries)) {
        for (uint32_t g = cache->config.n_groups; g > 0; g--) {
            if (entries.at[g - 1] == entries.t) {
                change_entry(cache, seq, &rows, g - 1, entries.entry[g - 1], released);
            }
        }
    }
    if (seq->windowed & KVPI_STATEFUL) {
        kvpi_states_arrive(cache, seq);
    }
    kvpi_set16(&seq->tier, (uint16_t)move->to);
    kvpi_set32(&seq->writable, seq->computed);
    seq->exclusive = 0;
    seq->cut_step = 0; /* no step knows the new blocks */
    kvpi_set32(&seq->n_tree, 0);
    kvpi_set(&seq->row_version, seq->row_version + 1);
    kvpi_steps_cut(cache, seq, 0);
}

static void run_move(kvp_cache *cache, const struct move *move, kvp_released *released)
{
    const int has_states = kvpi_has_states(cache);
    for (uint32_t k = 0; k < move->n_seqs && move->n_found > 0; k++) {
        hold_found(cache, move, kvpi_known_seq(cache, move->seqs[k]));
    }
    for (uint32_t k = 0; k < move->n_seqs && has_states; k++) {
        kvpi_states_hold_found(cache, kvpi_known_seq(cache, move->seqs[k]), move->to);
    }
    clear_marks(cache, move, 0);
    cache->plan.promised = move->n_new + move->n_writes + move->states.n_new;
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        copy_entries(cache, move, kvpi_known_seq(cache, move->seqs[k]));
    }
    for (uint32_t k = 0; k < move->n_seqs && has_states; k++) {
        kvpi_states_copy(cache, kvpi_known_seq(cache, move->seqs[k]), move->to);
    }
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        change_row(cache, move, kvpi_known_seq(cache, move->seqs[k]), released);
    }
    for (uint32_t k = 0; k < move->n_seqs && move->to == KVP_DEVICE; k++) {
        struct kvpi_seq *seq = kvpi_known_seq(cache, move->seqs[k]);
        const uint32_t end = seq->tokens + move->reserve;
        if (end > seq->computed) {
            kvpi_make_room(cache, seq, end);
            kvpi_set32(&seq->writable, end);
        }
    }
}

static kvp_status check_moved_seq(const kvp_cache *cache, const struct kvpi_seq *seq,
                                  const struct move *move)
{
    if (seq->tier != move->from) {
        return KVP_E_STATE;
    }
    const kvp_status status =
        move->to == KVP_DEVICE ? kvpi_check_windows(cache, seq) : KVP_OK; /* it is to go on there */
    if (status != KVP_OK) {
        return status;
    }
    return (uint64_t)seq->tokens + move->reserve > cache->table.max_tokens ? KVP_E_TOO_LONG
                                                                           : KVP_OK;
}

/* Handles, names, states, lengths, as cache.h orders them. */
static kvp_status check_move(kvp_cache *cache, const struct move *move)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    for (uint32_t k = 0; k < move->n_seqs; k++) {
        const struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, move->seqs[k], k);
        if (seq == NULL) {
            break;
        }
        kvpi_faults_other(&faults, check_moved_seq(cache, seq, move), k);
    }
    return kvpi_faults_any(&faults) ? kvpi_faults_fail(cache, &faults) : KVP_OK;
}

static void count_moved(kvp_cache *cache, const struct move *move)
{
    kvp_stats *c = &cache->counters;
    if (move->to == KVP_HOST) {
        kvpi_count(&c->swap_outs, move->n_seqs);
        kvpi_count(&c->swapped_out_blocks, move->n_new);
        kvpi_count(&c->swapped_seqs, move->n_seqs);
    } else {
        kvpi_count(&c->swap_ins, move->n_seqs);
        kvpi_count(&c->swapped_in_blocks, move->n_new);
        kvpi_uncount(&c->swapped_seqs, move->n_seqs);
    }
}

static kvp_status swap(kvp_cache *cache, struct move *move, kvp_swapped *out)
{
    kvp_admission admission;
    kvp_status status = check_move(cache, move);
    if (status != KVP_OK) {
        return status;
    }
    count_move(cache, move);
    judge(cache, move, &admission);
    if (admission.verdict != KVP_ADMIT_OK) {
        clear_marks(cache, move, 1);
        status = admission.verdict == KVP_ADMIT_NEVER ? KVP_E_NEVER : KVP_E_NO_BLOCKS;
        const uint64_t n_slots = admission.missing_blocks == 0 ? missing_slots(cache, move) : 0;
        (void)kvpi_fail(cache, status, 0, n_slots > 0 ? n_slots : admission.missing_blocks);
        cache->shortage.tier = n_slots == 0             ? move->to
                               : move->to == KVP_DEVICE ? KVP_STATE_SLOTS
                                                        : KVP_HOST_STATE_SLOTS;
        return status;
    }
    if ((uint64_t)move->n_new + move->n_writes + move->states.n_new >
        kvpi_plan_room(&cache->plan)) {
        clear_marks(cache, move, 1);
        return kvpi_fail(cache, KVP_E_PLAN_FULL, 0, 0);
    }
    memset(out, 0, sizeof(*out));
    kvpi_begin_change(cache);
    run_move(cache, move, &out->released);
    count_moved(cache, move);
    out->copied_blocks = move->n_new;
    out->found_blocks = move->n_found;
    return KVP_OK;
}

static kvp_status ask(kvp_cache *cache, struct move *move, kvp_admission *out)
{
    const kvp_shortage shortage = cache->shortage; /* asking is not failing */
    const kvp_status status = check_move(cache, move);
    cache->shortage = shortage;
    if (status == KVP_OK) {
        count_move(cache, move);
        judge(cache, move, out);
        clear_marks(cache, move, 1);
    }
    return status;
}

kvp_status kvp_seq_swap_out(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                            kvp_swapped *out_swapped)
{
    struct move move = {.from = KVP_DEVICE, .to = KVP_HOST, .seqs = seqs, .n_seqs = n_seqs};
    kvp_swapped swapped;
    kvp_status status =
        cache == NULL || (seqs == NULL && n_seqs > 0) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = swap(cache, &move, &swapped);
    if (status == KVP_OK && out_swapped != NULL) {
        *out_swapped = swapped;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_swap_out(&cache->recorder, seqs, n_seqs, status, &swapped);
    }
    return kvpi_leave(cache, status);
}

static struct move move_back(const kvp_seq *seqs, uint32_t n_seqs, uint32_t reserve_tokens)
{
    return (struct move){.from = KVP_HOST,
                         .to = KVP_DEVICE,
                         .seqs = seqs,
                         .n_seqs = n_seqs,
                         .reserve = reserve_tokens};
}

kvp_status kvp_seq_swap_in(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                           uint32_t reserve_tokens, kvp_swapped *out_swapped)
{
    struct move move = move_back(seqs, n_seqs, reserve_tokens);
    kvp_swapped swapped;
    kvp_status status =
        cache == NULL || (seqs == NULL && n_seqs > 0) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = swap(cache, &move, &swapped);
    if (status == KVP_OK && out_swapped != NULL) {
        *out_swapped = swapped;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_swap_in(&cache->recorder, seqs, n_seqs, reserve_tokens, status, &swapped);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_cache_can_swap_out(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                  kvp_admission *out_admission)
{
    struct move move = {.from = KVP_DEVICE, .to = KVP_HOST, .seqs = seqs, .n_seqs = n_seqs};
    kvp_status status = cache == NULL || (seqs == NULL && n_seqs > 0) || out_admission == NULL
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = ask(cache, &move, out_admission);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_can_swap_out(&cache->recorder, seqs, n_seqs, status, out_admission);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_cache_can_swap_in(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                 uint32_t reserve_tokens, kvp_admission *out_admission)
{
    struct move move = move_back(seqs, n_seqs, reserve_tokens);
    kvp_status status = cache == NULL || (seqs == NULL && n_seqs > 0) || out_admission == NULL
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = ask(cache, &move, out_admission);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_can_swap_in(&cache->recorder, seqs, n_seqs, reserve_tokens, status,
                                      out_admission);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_state_swap_need(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                               uint32_t reserve_tokens, uint32_t *out_slots)
{
    struct move move = move_back(seqs, n_seqs, reserve_tokens);
    kvp_admission ignored;
    kvp_status status = cache == NULL || (seqs == NULL && n_seqs > 0) || out_slots == NULL
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = ask(cache, &move, &ignored);
    if (status == KVP_OK && !kvpi_has_states(cache)) {
        status = KVP_E_STATE;
    }
    if (status == KVP_OK) {
        *out_slots = move.states.n_new + move.states.n_cached + move.states.n_room;
    }
    return kvpi_leave(cache, status);
}

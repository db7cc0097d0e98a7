/* steps: overlapped steps. Begin, commit, done, failed.
 *
 * Steps have numbers. They begin in order, are reported in any order, and take effect in order:
 *
 *   1 ........ effective | effective + 1 ........ begun | begun + 1
 *   in effect            | out, or only noted           | the plan that waits
 *
 * The copies of the steps that are out are the first ones of the plan, step after step. What they
 * bring into a block is awaited there (prefix.h) under the step's number; taking effect attaches
 * what is awaited still. Commits of a step are a list of sequences, by place, and how far each
 * goes; a sequence that is cut, moved or closed meanwhile is cut in the lists, too.
 *
 * A failed step leaves blocks with bad content. From it on, copy by copy, what is read from a bad
 * block is bad, and what is written over from a good one is good; the marks of blocks tell, while
 * one call runs.
 */
#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/seq/seq_windows.h"
#include "core/calls/commit.h"
#include "core/calls/steps.h"

#include <string.h>

/* In a step's list: the sequence is not committed, because what it rests on failed. */
#define DROPPED 0x80000000u

static uint32_t slot_of_copy(const struct kvpi_steps *steps, uint64_t step)
{
    return (uint32_t)(step % steps->max);
}

static uint32_t *places_of_step(const kvp_cache *cache, uint64_t step)
{
    return kvpi_of_step(cache, cache->steps.places_at, step);
}

static uint32_t *until_of(const kvp_cache *cache, uint64_t step)
{
    return kvpi_of_step(cache, cache->steps.until_at, step);
}

/* Begun, and not in effect yet. */
static int is_out(const struct kvpi_steps *steps, uint64_t step)
{
    return step > steps->effective && step <= steps->begun;
}

/* Out, and not reported yet. */
static int is_awaited(const struct kvpi_steps *steps, uint64_t step)
{
    return is_out(steps, step) && steps->state[slot_of_copy(steps, step)] == KVPI_STEP_OUT;
}

void kvpi_steps_reset(kvp_cache *cache)
{
    struct kvpi_steps *steps = &cache->steps;
    if (cache->config.steps == KVP_STEPS_OVERLAPPED) {
        const size_t bytes = (size_t)steps->max * cache->table.max_seqs * sizeof(uint32_t);
        memset(kvpi_at(cache, steps->until_at), 0, bytes);
        if (kvpi_has_states(cache)) {
            memset(kvpi_at(cache, steps->ahead_at), 0, bytes);
        }
    }
    kvpi_set(&steps->effective, steps->begun);
}

/* Take a place out of a step's list. */
static void unlist(kvp_cache *cache, uint64_t step, uint32_t place)
{
    uint32_t *places = places_of_step(cache, step);
    uint32_t *n = &cache->steps.n_commits[slot_of_copy(&cache->steps, step)];
    uint32_t i = 0;
    while (places[i] != place) {
        i++;
    }
    memmove(places + i, places + i + 1, (*n - i - 1) * sizeof(*places));
    (*n)--;
    until_of(cache, step)[place] = 0;
}

/* No step commits more than n tokens of the sequence at `place`. */
static void cut_commits(kvp_cache *cache, uint32_t place, uint32_t n)
{
    for (uint64_t step = cache->steps.effective + 1; step <= cache->steps.begun; step++) {
        uint32_t *until = &until_of(cache, step)[place];
        if (*until == 0) {
            continue;
        }
        if (n == 0) {
            unlist(cache, step, place);
        } else {
            *until = kvpi_min_u32(*until & ~DROPPED, n + 1) | (*until & DROPPED);
        }
    }
}

/* Steps from `from` on will commit nothing of it. What they were to commit is remembered: should
 * one of them fail, later ones rest on it. */
static void drop_commits(kvp_cache *cache, uint64_t from, uint32_t place)
{
    for (uint64_t step = from; step <= cache->steps.begun; step++) {
        uint32_t *until = &until_of(cache, step)[place];
        *until |= *until != 0 ? DROPPED : 0;
    }
}

void kvpi_steps_cut(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n)
{
    if (kvpi_unlikely(kvpi_steps_out(cache) > 0)) {
        cut_commits(cache, kvpi_seq_place(&cache->table, seq), n);
        if (seq->writable > kvpi_max_u32(seq->computed, n)) {
            seq->cut_step = cache->steps.begun;
        }
    }
}

/* ---------------------------------------------------------------------------------------- begin */

/* What is released from now on goes to this list; 0: it is queued. */
static void park_for(kvp_cache *cache, uint32_t list)
{
    cache->pool.parking = list;
    cache->pool.newest = cache->steps.begun;
    if (kvpi_has_states(cache)) {
        cache->states.pool.parking = list;
        cache->states.pool.newest = cache->steps.begun;
    }
}

static kvp_status begin_step(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                             uint32_t *out_n)
{
    struct kvpi_steps *steps = &cache->steps;
    if (cache->config.steps != KVP_STEPS_OVERLAPPED) {
        return KVP_E_STATE;
    }
    if (kvpi_steps_out(cache) == steps->max) {
        return KVP_E_NO_STEPS;
    }
    *out_n = (uint32_t)cache->plan.n;
    if (capacity == 0) {
        return KVP_OK;
    }
    if (*out_n > capacity) {
        return KVP_E_TOO_SMALL;
    }
    kvpi_begin_change(cache);
    kvpi_count(&steps->begun, 1);
    const uint32_t slot = slot_of_copy(steps, steps->begun);
    steps->state[slot] = KVPI_STEP_OUT;
    steps->n_copies[slot] = *out_n;
    steps->n_commits[slot] = 0;
    kvpi_plan_take(&cache->plan, out_copies, 1);
    park_for(cache, 1 + slot);
    return KVP_OK;
}

kvp_status kvp_step_begin(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                          uint32_t *out_n_copies, uint64_t *out_step)
{
    kvp_status status = cache == NULL || out_n_copies == NULL || out_step == NULL ||
                                (out_copies == NULL && capacity > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = begin_step(cache, out_copies, capacity, out_n_copies);
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, 0);
    } else if (capacity > 0) {
        *out_step = cache->steps.begun;
    }
    if (kvpi_recording(cache)) {
        const int counted = status == KVP_OK || status == KVP_E_TOO_SMALL;
        kvpi_record_step_begin(&cache->recorder, capacity, status, out_copies,
                               counted ? *out_n_copies : 0, cache->steps.begun);
    }
    return kvpi_leave(cache, status);
}

/* --------------------------------------------------------------------------------------- commit */

/* May the sequence be listed with so many tokens? */
static kvp_status check_listed(const kvp_cache *cache, const struct kvpi_seq *seq, uint64_t step,
                               uint32_t n_tokens)
{
    const kvp_status status = kvpi_check_commit(cache, seq, n_tokens);
    return status == KVP_OK && (seq->windowed & KVPI_STATEFUL) && is_out(&cache->steps, step) &&
                   !(until_of(cache, step)[kvpi_seq_place(&cache->table, seq)] & DROPPED)
               ? kvpi_states_check_ahead(cache, seq, step, n_tokens)
               : status;
}

static kvp_status commit(kvp_cache *cache, uint64_t step, const kvp_seq *seqs,
                         const uint32_t *n_tokens, uint32_t n_seqs)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    if (!is_out(&cache->steps, step) ||
        cache->steps.state[slot_of_copy(&cache->steps, step)] == KVPI_STEP_FAILED) {
        kvpi_faults_other(&faults, KVP_E_ARG, 0);
    }
    for (uint32_t i = 0; i < n_seqs; i++) {
        const struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, seqs[i], i);
        if (seq == NULL) {
            break;
        }
        kvpi_faults_other(&faults, check_listed(cache, seq, step, n_tokens[i]), i);
    }
    if (kvpi_faults_any(&faults)) {
        return kvpi_faults_fail(cache, &faults);
    }
    kvpi_begin_change(cache);
    uint32_t *places = places_of_step(cache, step);
    uint32_t *until = until_of(cache, step);
    uint32_t *n = &cache->steps.n_commits[slot_of_copy(&cache->steps, step)];
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct kvpi_seq *seq = kvpi_known_seq(cache, seqs[i]);
        const uint32_t place = kvpi_seq_place(&cache->table, seq);
        if (n_tokens[i] == 0) {
            continue;
        }
        if ((seq->windowed & KVPI_STATEFUL) && !(until[place] & DROPPED)) {
            kvpi_states_ahead(cache, seq, step, n_tokens[i]);
        }
        if (until[place] == 0) {
            places[(*n)++] = place;
        }
        until[place] =
            kvpi_max_u32(until[place] & ~DROPPED, 1 + n_tokens[i]) | (until[place] & DROPPED);
    }
    return KVP_OK;
}

kvp_status kvp_step_commit(kvp_cache *cache, uint64_t step, const kvp_seq *seqs,
                           const uint32_t *n_tokens, uint32_t n_seqs)
{
    kvp_status status = cache == NULL || ((seqs == NULL || n_tokens == NULL) && n_seqs > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = commit(cache, step, seqs, n_tokens, n_seqs);
    if (kvpi_recording(cache)) {
        kvpi_record_step_commit(&cache->recorder, step, seqs, n_tokens, n_seqs, status);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------------- done */

/* What a copy brought is there: settle the units that are awaited still. */
static void settle_copy(kvp_cache *cache, const struct kvpi_copy *copy, uint64_t step)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    if (copy->dst_tier & KVPI_SLOTS) {
        return; /* that it is there is known by the number of its step */
    }
    /* Not the copy's group: the block may have been taken again by another one in the same plan. */
    const uint32_t where = kvpi_where(cache, copy->dst_tier, copy->dst);
    const uint32_t first = kvpi_prefix_slot(prefix, where, copy->dst, 0);
    for (uint32_t slot = first; slot < first + prefix->block_slots; slot++) {
        if (!kvpi_prefix_is_awaited(prefix, slot, step)) {
            continue;
        }
        const uint32_t node = kvpi_prefix_dups(prefix)[slot].node;
        kvpi_prefix_use(prefix, node); /* lives on while it changes from awaited to settled */
        kvpi_prefix_remove_dup(prefix, where, slot);
        if (kvpi_node(prefix, node)->flags & KVPI_NODE_PUBLIC) {
            kvpi_settle_unit(cache, where, node, copy->dst);
        }
        kvpi_prefix_unuse(prefix, node);
    }
    if (copy->keeps) {
        kvpi_release_block(cache, copy->dst_tier, copy->dst, NULL);
        if (cache->keeps_once) {
            kvpi_give_up(cache, copy->dst); /* computed again meanwhile */
        }
    }
}

/* Make the step's commits, or, with `failed`, forget them. */
static void make_commits(kvp_cache *cache, uint64_t step, int failed)
{
    const uint32_t *places = places_of_step(cache, step);
    uint32_t *until = until_of(cache, step);
    const uint32_t n = cache->steps.n_commits[slot_of_copy(&cache->steps, step)];
    for (uint32_t i = 0; i < n; i++) {
        if (!failed && !(until[places[i]] & DROPPED)) {
            kvpi_commit(cache, kvpi_seq_at(&cache->table, places[i]), until[places[i]] - 1);
        }
        until[places[i]] = 0;
    }
}

/* The oldest step takes effect: it was reported. */
static void take_effect(kvp_cache *cache)
{
    struct kvpi_steps *steps = &cache->steps;
    const uint64_t step = steps->effective + 1;
    const uint32_t slot = slot_of_copy(steps, step);
    kvpi_count(&steps->effective, 1); /* what its commits release is not parked for it */
    if (steps->effective == steps->begun) {
        park_for(cache, 0);
    }
    const int failed = steps->state[slot] == KVPI_STEP_FAILED;
    for (uint32_t i = 0; i < steps->n_copies[slot] && !failed; i++) {
        settle_copy(cache, &kvpi_plan_copies(&cache->plan)[i], step);
    }
    make_commits(cache, step, failed);
    kvpi_plan_forget(&cache->plan, steps->n_copies[slot]);
    kvpi_pool_unpark(&cache->pool, slot);
    if (kvpi_has_states(cache)) {
        kvpi_pool_unpark(&cache->states.pool, slot);
    }
}

static void report(kvp_cache *cache, uint64_t step, uint8_t state)
{
    struct kvpi_steps *steps = &cache->steps;
    steps->state[slot_of_copy(steps, step)] = state;
    while (steps->effective < steps->begun && !is_awaited(steps, steps->effective + 1)) {
        take_effect(cache);
    }
}

kvp_status kvp_step_done(kvp_cache *cache, uint64_t step, uint64_t *out_effective)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    if (is_awaited(&cache->steps, step)) {
        kvpi_begin_change(cache);
        report(cache, step, KVPI_STEP_DONE);
        if (out_effective != NULL) {
            *out_effective = cache->steps.effective;
        }
    } else {
        status = kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_step_done(&cache->recorder, step, status, cache->steps.effective);
    }
    return kvpi_leave(cache, status);
}

/* --------------------------------------------------------------------------------------- failed */

static struct kvpi_block *block_of_slot(kvp_cache *cache, uint32_t tier, uint32_t block)
{
    return kvpi_block(kvpi_copy_pool(cache, tier), block);
}

/* The copies before those of `step`: of older steps. */
static uint64_t copies_before(const struct kvpi_steps *steps, uint64_t step)
{
    uint64_t n = 0;
    for (uint64_t s = steps->effective + 1; s < step; s++) {
        n += steps->n_copies[slot_of_copy(steps, s)];
    }
    return n;
}

/* Mark the blocks that have bad content, all copies done, or clear the marks. */
static void mark_bad(kvp_cache *cache, uint64_t step)
{
    const struct kvpi_plan *plan = &cache->plan;
    const struct kvpi_copy *copies = kvpi_plan_copies(plan);
    const uint64_t first = copies_before(&cache->steps, step);
    const uint64_t end = first + cache->steps.n_copies[slot_of_copy(&cache->steps, step)];
    for (uint64_t i = first; i < plan->n_out + plan->n; i++) {
        struct kvpi_block *dst = block_of_slot(cache, copies[i].dst_tier, copies[i].dst);
        const uint32_t src = block_of_slot(cache, copies[i].src_tier, copies[i].src)->refs;
        if (i < end || (copies[i].chained && (src & KVPI_REFS_MARKED))) {
            dst->refs |= KVPI_REFS_MARKED;
        } else {
            dst->refs &= ~KVPI_REFS_MARKED;
        }
    }
}

static void clear_bad(kvp_cache *cache)
{
    const struct kvpi_plan *plan = &cache->plan;
    const struct kvpi_copy *copies = kvpi_plan_copies(plan);
    for (uint64_t i = 0; i < plan->n_out + plan->n; i++) {
        block_of_slot(cache, copies[i].dst_tier, copies[i].dst)->refs &= ~KVPI_REFS_MARKED;
    }
}

/* Has the block of a row bad content? The null block never has. */
static int is_bad(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t block)
{
    /* A device block that was taken again since has nothing of a copy in it. */
    return (block_of_slot(cache, seq->tier, block)->refs & KVPI_REFS_MARKED) &&
           (seq->tier == KVP_HOST || kvpi_is_arriving(cache, block));
}

/* The tokens of a sequence that lie before its first bad block, of any group. */
static uint32_t count_good(kvp_cache *cache, const struct kvpi_seq *seq)
{
    uint32_t n_good = seq->computed;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t S = kvpi_block_tokens(cache, g);
        const int32_t *row = kvpi_row(cache, seq, g);
        for (uint32_t i = 0; (uint64_t)i * S < n_good; i++) {
            if (is_bad(cache, seq, (uint32_t)row[i])) {
                n_good = i * S;
            }
        }
    }
    return n_good;
}

/* Does it read a state that will not come? */
static int lacks_state(kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t slot =
        seq->windowed & KVPI_STATEFUL ? kvpi_states_of(cache, seq)->read : KVP_NULL_BLOCK;
    return slot != 0 &&
           (block_of_slot(cache, KVPI_SLOTS | seq->tier, slot)->refs & KVPI_REFS_MARKED) &&
           (seq->tier == KVP_HOST || kvpi_states_arrives(cache, slot));
}

/* Is something of what is computed bad? */
static int is_cut(kvp_cache *cache, const struct kvpi_seq *seq)
{
    return count_good(cache, seq) < seq->computed || lacks_state(cache, seq);
}

/* Was the step, or one after it, to compute nodes of the sequence's tree? */
static int loses_tree(const struct kvpi_seq *seq, uint64_t step)
{
    return seq->n_tree > 0 && seq->tree_step >= step;
}

/* List the sequences that will be cut, or lose their tree; give how many there are. */
static uint32_t find_cut(kvp_cache *cache, uint64_t step, kvp_seq *out_seqs, uint32_t capacity)
{
    uint32_t n = 0;
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        if (is_cut(cache, seq) || loses_tree(seq, step)) {
            if (n < capacity) {
                out_seqs[n] = kvpi_table_handle(&cache->table, seq, cache->recorder.cache_bits);
            }
            n++;
        }
    }
    return n;
}

/* What is awaited in bad blocks will not come. */
static void strike_awaited(kvp_cache *cache, uint64_t step)
{
    const struct kvpi_plan *plan = &cache->plan;
    const struct kvpi_copy *copies = kvpi_plan_copies(plan);
    struct kvpi_prefix *prefix = &cache->prefix;
    for (uint64_t i = copies_before(&cache->steps, step); i < plan->n_out + plan->n; i++) {
        const uint32_t tier = copies[i].dst_tier;
        if (tier & KVPI_SLOTS) {
            continue;
        }
        const uint32_t where = kvpi_where(cache, tier, copies[i].dst);
        const uint32_t first = kvpi_prefix_slot(prefix, where, copies[i].dst, 0);
        if (!(block_of_slot(cache, tier, copies[i].dst)->refs & KVPI_REFS_MARKED)) {
            continue;
        }
        for (uint32_t slot = first; slot < first + prefix->block_slots; slot++) {
            const struct kvpi_dup *dup = &kvpi_prefix_dups(prefix)[slot];
            if (dup->node != KVPI_NO_NODE && dup->next == KVPI_AWAITED) {
                kvpi_prefix_remove_dup(prefix, where, slot);
            }
        }
    }
}

/* Cut the sequences that the failed step leaves with bad KV, and what later steps would commit for
 * them, and for those that it would have committed itself. */
static void cut_seqs(kvp_cache *cache, uint64_t step)
{
    const uint32_t *until = until_of(cache, step);
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        const uint32_t place = kvpi_seq_place(&cache->table, seq);
        const int cuts = is_cut(cache, seq);
        if (loses_tree(seq, step) || cuts) {
            kvpi_set32(&seq->n_tree, 0);
        }
        if (cuts || (until[place] & ~DROPPED) > seq->computed + 1) {
            drop_commits(cache, step, place);
            if (seq->windowed & KVPI_STATEFUL) {
                kvpi_states_of(cache, seq)->fails =
                    cuts ? KVPI_STATE_FAILS : KVPI_STATE_AHEAD_FAILS;
            }
        }
        if (cuts) {
            const uint32_t n_good = count_good(cache, seq);
            kvpi_steps_cut(cache, seq, n_good);
            kvpi_set32(&seq->computed, n_good);
            kvpi_set32(&seq->writable, kvpi_min_u32(seq->writable, n_good));
            seq->exclusive = 0;
            if (seq->windowed & KVPI_WINDOWED) {
                kvpi_windows_back(cache, seq);
            }
        }
    }
}

/* Slots of what failed are released. */
static void take_states_back(kvp_cache *cache, uint64_t step)
{
    for (uint32_t place = 0; place < cache->table.max_seqs && kvpi_has_states(cache); place++) {
        struct kvpi_seq *seq = kvpi_seq_at(&cache->table, place);
        const uint32_t fails = kvpi_states_of(cache, seq)->fails;
        kvpi_states_of(cache, seq)->fails = 0;
        if (fails != 0) {
            kvpi_states_drop_ahead(cache, seq, step);
        }
        if (fails == KVPI_STATE_FAILS) {
            kvpi_states_back(cache, seq, 0);
        }
    }
}

/* Swapped sequences that were cut give back the blocks that hold no KV any more. */
static void shorten_swapped(kvp_cache *cache)
{
    kvp_released released = {0, 0};
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        if (seq->tier == KVP_HOST && kvpi_rows_lose(cache, seq, seq->computed)) {
            kvpi_release_row(cache, seq, seq->computed, &released);
            kvpi_set(&seq->row_version, seq->row_version + 1);
        }
    }
}

/* The step's copy will not fill the block any more: what is computed there now counts at once. */
static void forget_arrival(kvp_cache *cache, uint32_t block, uint64_t step)
{
    uint64_t *arriving = &kvpi_pool_arriving(&cache->pool)[block];
    *arriving = *arriving == step ? 0 : *arriving;
}

static void fail_step(kvp_cache *cache, uint64_t step)
{
    struct kvpi_steps *steps = &cache->steps;
    const uint64_t first = copies_before(steps, step);
    strike_awaited(cache, step);
    cut_seqs(cache, step);
    clear_bad(cache); /* before anything is queued, or dropped from the plan */
    take_states_back(cache, step);
    shorten_swapped(cache);
    for (uint64_t i = 0; i < steps->n_copies[slot_of_copy(steps, step)]; i++) {
        struct kvpi_copy *copy = &kvpi_plan_copies(&cache->plan)[first + i];
        if (copy->dst_tier == KVP_DEVICE) {
            forget_arrival(cache, copy->dst, step);
        } else if (copy->dst_tier == (KVPI_SLOTS | KVP_DEVICE)) {
            kvpi_states_miss(cache, copy->dst, step);
        }
        if (copy->keeps) {
            copy->keeps = 0;
            kvpi_release_block(cache, copy->dst_tier, copy->dst, NULL);
        }
    }
    kvpi_count(&steps->n_failed, 1);
    report(cache, step, KVPI_STEP_FAILED);
}

static kvp_status failed(kvp_cache *cache, uint64_t step, kvp_seq *out_seqs, uint32_t capacity,
                         uint32_t *out_n_seqs)
{
    if (!is_awaited(&cache->steps, step)) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    mark_bad(cache, step);
    if (out_n_seqs != NULL) {
        *out_n_seqs = find_cut(cache, step, out_seqs, capacity);
        if (capacity == 0 || *out_n_seqs > capacity) {
            clear_bad(cache);
            return capacity == 0 ? KVP_OK : kvpi_fail(cache, KVP_E_TOO_SMALL, 0, 0);
        }
    }
    kvpi_begin_change(cache);
    fail_step(cache, step);
    return KVP_OK;
}

kvp_status kvp_step_failed(kvp_cache *cache, uint64_t step, kvp_seq *out_seqs, uint32_t capacity,
                           uint32_t *out_n_seqs)
{
    kvp_status status = cache == NULL || (capacity > 0 && (out_seqs == NULL || out_n_seqs == NULL))
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = failed(cache, step, out_seqs, capacity, out_n_seqs);
    if (kvpi_recording(cache)) {
        kvpi_record_step_failed(&cache->recorder, step, capacity, status, out_seqs, out_n_seqs);
    }
    return kvpi_leave(cache, status);
}

/* extend: room for more tokens, and their values. For one sequence and for many.
 *
 * The many form is the real one. All or nothing comes from counting first: the count goes through
 * the batch as the change will, and takes references off shared blocks as copy-on-write will, so
 * that of the last holders exactly one keeps the block. It marks what it took by making the row's
 * entry negative, and puts everything back before the change, or the refusal:
 *
 *   row, before    5  9 12          refs[12] = 2
 *   counted        5  9 -12         refs[12] = 1, one block needed
 *   put back       5  9 12          refs[12] = 2
 */
#include "core/cache/blocks.h"
#include "core/seq/drafts.h"
#include "core/cache/dropped.h"
#include "core/cache/frame.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/cache/tokens.h"
#include "core/seq/filling.h"
#include "core/seq/rings.h"
#include "core/seq/seq_windows.h"
#include "core/calls/extend.h"

#include <string.h>

/* What an extend of one sequence needs. */
struct need {
    uint32_t end;    /* tokens, those of the tree, new ones, reserve */
    uint32_t blocks; /* to take, shared ones to be replaced included */
    uint64_t rows;   /* entries that the rows will have, null ones not counted */
    uint32_t shared; /* references that the count took off */
    uint32_t copies;
    uint32_t slots; /* of state */
    int in_flight;  /* a copy would read what a step that is out still writes */
};

/* The arguments of one sequence of a batch. */
struct part {
    const int32_t *tokens; /* NULL: without values */
    uint32_t n_tokens;
    const kvp_key *keys;
    uint32_t n_keys;
    const int32_t *parents; /* not NULL: they are nodes of a tree */
    int asked;              /* the question is for room only: tokens, or nodes of a tree */
};

static struct part part_of_batch(const kvp_batch *batch, const int32_t *parents, uint32_t index,
                                 uint64_t first_token)
{
    return (struct part){.tokens = batch->tokens == NULL ? NULL : batch->tokens + first_token,
                         .n_tokens = batch->n_tokens == NULL ? 1 : batch->n_tokens[index],
                         .keys = batch->keys,
                         .n_keys = batch->n_keys,
                         .parents = parents == NULL ? NULL : parents + first_token};
}

/* Where slots must be writable to. */
static inline uint32_t end_of(const struct kvpi_seq *seq, const struct part *part, uint32_t reserve)
{
    return seq->tokens + seq->n_tree + part->n_tokens + reserve;
}

/* Is anything to be done to make slots [computed, end) writable? */
static inline int needs_room(const struct kvpi_seq *seq, uint32_t end)
{
    return end > seq->exclusive && end > seq->computed;
}

/* Does the entry of the group hold KV that copy-on-write must keep: computed tokens, or nodes of a
 * tree? */
static inline int is_used(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                          uint32_t i)
{
    const uint64_t begin = (uint64_t)i * kvpi_block_tokens(cache, group);
    return begin < seq->computed || (seq->n_tree > 0 && begin < seq->tokens + seq->n_tree);
}

/* May a step that is out still be writing what a copy of the entry would read? */
static inline int is_in_flight(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_steps_out(cache) > 0 &&
           (seq->tokens > seq->computed || kvpi_tree_in_flight(cache, seq));
}

/* Count one entry of one row, if it is shared: a reference less, and the entry marked. */
static inline void count_entry(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                               uint32_t i, struct need *need)
{
    int32_t *entry = &kvpi_row(cache, seq, group)[i];
    struct kvpi_block *block = kvpi_block(&cache->pool, (uint32_t)*entry);
    const uint32_t refs = block->refs;
    if ((refs & KVPI_REFS_MASK) > 1 || (refs & KVPI_REFS_MARKED) ||
        kvpi_is_touched(cache, (uint32_t)*entry)) {
        /* Steps may still write for one that leaves: then none of the batch keeps the block. */
        block->refs = (refs - 1) | (kvpi_may_be_written(cache, seq) ? KVPI_REFS_MARKED : 0);
        *entry = -*entry;
        need->blocks++;
        need->shared++;
        if (is_used(cache, seq, group, i)) {
            need->copies++;
            need->in_flight |= is_in_flight(cache, seq);
        }
    }
}

/* Has the group an entry that begins at token t, with slots that are not computed? */
static inline int is_written(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                             uint32_t t)
{
    return kvpi_entry_begins(cache, group, t) &&
           t + kvpi_block_tokens(cache, group) > seq->computed;
}

/* Count what it takes to make slots [computed, end) writable and the rows long enough, taking
 * references off shared blocks (see the top). */
static struct need count_need(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    struct need need = {.end = end};
    for (uint32_t t = kvpi_entry_of(cache, seq->computed); t < end && t < seq->room;
         t = kvpi_entry_from(cache, t + 1)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            if (is_written(cache, seq, g, t)) {
                count_entry(cache, seq, g, t / kvpi_block_tokens(cache, g), &need);
            }
        }
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t n = kvpi_row_length(cache, g, end);
        const uint32_t had = kvpi_row_entries(cache, seq, g);
        need.rows += n;
        need.blocks += n > had ? n - had : 0;
    }
    if (seq->windowed & KVPI_WINDOWED) {
        need.rows -= kvpi_windows_count_null(cache, seq);
    }
    if (seq->windowed & KVPI_STATEFUL) {
        need.slots = kvpi_states_need(cache, seq);
    }
    return need;
}

/* Values of a batch that belong to no sequence. */
static kvp_status check_batch(const kvp_cache *cache, const kvp_batch *batch,
                              const int32_t *parents)
{
    return (parents != NULL && (batch->flags | batch->n_keys) != 0) ||
                   (batch->flags > KVP_BATCH_EACH && !kvpi_rings_allowed(cache, batch)) ||
                   (batch->n_keys > 0 && batch->n_seqs != 1)
               ? KVP_E_ARG
               : KVP_OK;
}

/* Put back what count_need took off. */
static void put_back(kvp_cache *cache, struct kvpi_seq *seq)
{
    struct kvpi_block *blocks = kvpi_blocks(&cache->pool);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        int32_t *row = kvpi_row(cache, seq, g);
        const uint32_t n = kvpi_row_entries(cache, seq, g);
        for (uint32_t i = seq->computed / kvpi_block_tokens(cache, g); i < n; i++) {
            if (row[i] < 0) {
                row[i] = -row[i];
                blocks[row[i]].refs = (blocks[row[i]].refs + 1) & ~KVPI_REFS_MARKED;
            }
        }
    }
}

/* Replace a shared block of a row by a taken one. */
static void copy_on_write(kvp_cache *cache, struct kvpi_seq *seq, uint32_t group, uint32_t i)
{
    const uint32_t S = kvpi_block_tokens(cache, group);
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t units_per_block = kvpi_units_per_block(cache, group);
    const uint32_t where = KVPI_WHERE(KVP_DEVICE, group);
    int32_t *entry = &kvpi_row(cache, seq, group)[i];
    const uint32_t old = (uint32_t)*entry;
    const uint32_t copy = kvpi_take_block(cache, where, seq->retention, seq->ns.bits);
    if (is_used(cache, seq, group, i)) {
        const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
        const uint32_t end = kvpi_min_u32(seq->computed / U, seq->n_public);
        const uint32_t used = seq->tokens + seq->n_tree;
        kvpi_add_copy(cache, &(struct kvpi_copy){.src = old,
                                                 .dst = copy,
                                                 .n_tokens = kvpi_min_u32(S, used - i * S)});
        for (uint32_t u = i * units_per_block; u < end; u++) {
            if (kvpi_node_at(&cache->prefix, nodes[u], where)->block == old ||
                kvpi_prefix_is_dup(&cache->prefix, where, old, u % units_per_block)) {
                kvpi_copied_unit(cache, where, nodes[u], copy);
            }
        }
    }
    *entry = (int32_t)copy;
    kvpi_set(&seq->row_version, seq->row_version + 1);
    kvpi_leave_block(cache, seq, old, NULL);
}

/* No other sequence has the entry's block: its units from the first slot to be written on are given
 * up. */
static void write_over(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group, uint32_t i)
{
    const uint32_t block = (uint32_t)kvpi_row(cache, seq, group)[i];
    const uint32_t begin = i * kvpi_block_tokens(cache, group);
    const uint32_t from = kvpi_max_u32(seq->computed, begin) - begin;
    const uint32_t n =
        kvpi_detach_units(cache, KVP_DEVICE, block, from / cache->config.unit_tokens);
    if (n > 0) {
        kvpi_count(&cache->counters.detached_units, n);
        kvpi_pool_raise(&cache->pool, block);
    }
}

void kvpi_make_room(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    KVPI_NOTE(rows_looked_at, 1);
    for (uint32_t t = kvpi_entry_of(cache, seq->computed); t < end && t < seq->room;
         t = kvpi_entry_from(cache, t + 1)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            if (!is_written(cache, seq, g, t)) {
                continue;
            }
            const uint32_t i = t / kvpi_block_tokens(cache, g);
            const uint32_t block = (uint32_t)kvpi_row(cache, seq, g)[i];
            if (kvpi_pool_refs(&cache->pool, block) > 1 || kvpi_is_touched(cache, block)) {
                copy_on_write(cache, seq, g, i);
            } else {
                write_over(cache, seq, g, i);
            }
        }
    }
    kvpi_take_blocks(cache, seq, end);
    if (seq->windowed & KVPI_STATEFUL) {
        kvpi_states_grow(cache, seq);
    }
    seq->exclusive = kvpi_rows_slots(cache, seq);
}

static kvp_status check_keys(const kvp_cache *cache, const struct kvpi_seq *seq,
                             const struct part *part, uint32_t begin, uint32_t end)
{
    return kvpi_keys_valid(part->keys, part->n_keys, begin, end) &&
                   kvpi_keys_fit(cache, part->keys, part->n_keys, begin, end, seq->n_partial_keys)
               ? KVP_OK
               : KVP_E_ARG;
}

/* Token ids and keys; keys go with values and lie inside them, at `begin` and after. */
static inline kvp_status check_values(const kvp_cache *cache, const struct kvpi_seq *seq,
                                      const struct part *part, uint32_t begin)
{
    const uint32_t n = part->tokens == NULL ? 0 : part->n_tokens;
    if (n == 1 ? part->tokens[0] < 0 : kvpi_any_negative(part->tokens, n)) {
        return KVP_E_ARG;
    }
    if (part->n_keys == 0) {
        return KVP_OK;
    }
    return check_keys(cache, seq, part, begin, begin + kvpi_min_u32(n, UINT32_MAX - begin));
}

/* Values, states and length, in that order. */
static inline kvp_status check_extend(const kvp_cache *cache, const struct kvpi_seq *seq,
                                      const struct part *part, uint32_t reserve)
{
    if (check_values(cache, seq, part, seq->tokens) != KVP_OK ||
        (part->parents != NULL && !kvpi_tree_parents_valid(seq, part->parents, part->n_tokens))) {
        return KVP_E_ARG;
    }
    const int grows = part->parents == NULL && part->n_tokens > 0 && !part->asked;
    if ((grows && part->tokens != NULL && seq->known < seq->tokens) || (grows && seq->n_tree > 0) ||
        seq->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    const kvp_status status = kvpi_check_windows(cache, seq);
    if (status != KVP_OK) {
        return status;
    }
    return (uint64_t)seq->tokens + seq->n_tree + part->n_tokens + reserve >
                       cache->table.max_tokens ||
                   (part->parents != NULL &&
                    (uint64_t)seq->n_tree + part->n_tokens > cache->table.max_tree)
               ? KVP_E_TOO_LONG
               : KVP_OK;
}

static inline void extend(kvp_cache *cache, struct kvpi_seq *seq, const struct part *part,
                          uint32_t end)
{
    const uint32_t U = cache->config.unit_tokens;
    if (needs_room(seq, end)) {
        kvpi_make_room(cache, seq, end);
    }
    kvpi_set32(&seq->writable, kvpi_max_u32(seq->writable, end));
    if (kvpi_unlikely(part->parents != NULL)) {
        kvpi_tree_add(cache, seq, part->tokens, part->parents, part->n_tokens);
        return;
    }
    kvpi_set32(&seq->tokens, seq->tokens + part->n_tokens);
    if (part->tokens == NULL) {
        return;
    }
    const uint32_t at = seq->known - seq->n_units * U;
    if (part->n_tokens == 1 && part->n_keys == 0 && at + 1 < U) { /* decoding inside a unit */
        kvpi_row_partial(&cache->table, kvpi_seq_place(&cache->table, seq))[at] = part->tokens[0];
        kvpi_set32(&seq->last, seq->unkept ? KVPI_NO_TOKEN : (uint32_t)part->tokens[0]);
        kvpi_set32(&seq->known, seq->known + 1);
        return;
    }
    kvpi_append_tokens(cache, seq, part->tokens, part->n_tokens, part->keys, part->n_keys);
}

/* What a whole batch needs. */
struct batch_need {
    uint64_t blocks;
    uint64_t shared;
    uint64_t copies;
    uint64_t slots;        /* of state */
    uint64_t excess;       /* of the one that is longest beyond the pool */
    uint32_t first_excess; /* the first one that can never fit */
    uint32_t first_short;  /* the first one at which available blocks run out */
    uint32_t first_full;   /* the first one at which the plan is full */
    uint32_t first_slot;   /* the first one at which slots of state run out */
};

static void add_need(const kvp_cache *cache, const struct need *need, uint32_t index,
                     struct batch_need *total)
{
    const uint64_t usable = cache->config.n_blocks - 1;
    if (need->rows > usable) {
        if (total->excess == 0) {
            total->first_excess = index;
        }
        if (need->rows - usable > total->excess) {
            total->excess = need->rows - usable;
        }
    }
    const uint64_t available = kvpi_pool_available(&cache->pool);
    if (total->blocks <= available && total->blocks + need->blocks > available) {
        total->first_short = index;
    }
    const uint64_t room = kvpi_plan_room(&cache->plan);
    if (total->copies <= room && total->copies + need->copies > room) {
        total->first_full = index;
    }
    total->blocks += need->blocks;
    total->shared += need->shared;
    total->copies += need->copies;
    if (kvpi_unlikely(need->slots > 0)) {
        total->slots += need->slots;
        if (total->slots == kvpi_pool_available(&cache->states.pool) + 1) {
            total->first_slot = index;
        }
    }
}

static kvp_status judge_need(kvp_cache *cache, const struct batch_need *need)
{
    const uint64_t available = kvpi_pool_available(&cache->pool);
    if (need->excess > 0) {
        return kvpi_fail(cache, KVP_E_NEVER, need->first_excess, need->excess);
    }
    if (need->blocks > available) {
        return kvpi_fail(cache, KVP_E_NO_BLOCKS, need->first_short, need->blocks - available);
    }
    if (kvpi_unlikely(need->slots > 0) && need->slots > kvpi_pool_available(&cache->states.pool)) {
        return kvpi_fail_slots(cache, need->first_slot,
                               need->slots - kvpi_pool_available(&cache->states.pool));
    }
    if (need->copies > kvpi_plan_room(&cache->plan)) {
        return kvpi_fail(cache, KVP_E_PLAN_FULL, need->first_full, 0);
    }
    return KVP_OK;
}

/* Are units that fill worth being asked for ahead? Of several sequences, units of 16 tokens. */
static int asks_ahead(const kvp_cache *cache, const kvp_batch *batch, const int32_t *parents,
                      int values)
{
    return batch->n_seqs > 1 && batch->tokens != NULL && values && parents == NULL &&
           cache->config.unit_tokens == 16;
}

/* Does one more token fill a public unit of 16? */
static inline int fills_unit(const struct kvpi_seq *seq, const struct part *part)
{
    return part->n_tokens == 1 && seq->known == seq->n_public * 16 + 15;
}

/* Count one sequence of a batch. */
static inline kvp_status count_one(kvp_cache *cache, struct kvpi_seq *seq, const struct part *part,
                                   uint32_t reserve, uint32_t index, struct batch_need *total)
{
    const uint32_t end = end_of(seq, part, reserve);
    if (needs_room(seq, end)) {
        const struct need need = count_need(cache, seq, end);
        add_need(cache, &need, index, total);
        if (need.in_flight) {
            return KVP_E_IN_FLIGHT;
        }
    }
    return KVP_OK;
}

/* Count a whole batch, and put everything back. `values`: look at token values and states too. */
static kvp_status count_batch(kvp_cache *cache, const kvp_batch *batch, const int32_t *parents,
                              int values, struct batch_need *total)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    struct kvpi_filling filling;
    uint64_t first_token = 0;
    uint32_t i = 0;
    const int ahead = asks_ahead(cache, batch, parents, values);
    filling.n = 0;
    kvpi_faults_other(&faults, check_batch(cache, batch, parents), 0);
    memset(total, 0, sizeof(*total));
    for (; i < batch->n_seqs; i++) {
        struct part part = part_of_batch(batch, parents, i, first_token);
        struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, batch->seqs[i], i);
        if (seq == NULL) {
            break;
        }
        first_token += part.n_tokens;
        if (kvpi_faults_any(&faults)) {
            continue; /* only a bad handle can still come first; nothing is counted any more */
        }
        if (!values) {
            part.tokens = NULL;
            part.n_keys = 0;
            part.asked = 1;
        }
        kvp_status status = check_extend(cache, seq, &part, batch->reserve_tokens);
        if (status == KVP_OK) {
            status = count_one(cache, seq, &part, batch->reserve_tokens, i, total);
            if (ahead && kvpi_unlikely(fills_unit(seq, &part))) {
                kvpi_filling_add(cache, &filling, seq, part.tokens[0]);
            }
        }
        kvpi_faults_other(&faults, status, i);
    }
    if (filling.n > 0) {
        kvpi_filling_end(cache, &filling);
    }
    for (uint32_t k = 0; k < i && total->shared > 0; k++) {
        put_back(cache, kvpi_known_seq(cache, batch->seqs[k]));
    }
    if (kvpi_unlikely(batch->flags > KVP_BATCH_EACH) && !kvpi_faults_any(&faults)) {
        kvpi_rings_count(cache, batch, &faults, &total->slots, &total->first_slot);
    }
    return kvpi_faults_any(&faults) ? kvpi_faults_fail(cache, &faults) : KVP_OK;
}

kvp_status kvpi_extend_all(kvp_cache *cache, const kvp_batch *batch, const int32_t *parents)
{
    struct batch_need need;
    uint64_t first_token = 0;
    kvp_status status = count_batch(cache, batch, parents, 1, &need);
    if (status == KVP_OK) {
        status = judge_need(cache, &need);
    }
    if (status != KVP_OK) {
        return status;
    }
    kvpi_begin_change(cache);
    cache->plan.promised = (uint32_t)need.copies;
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        struct kvpi_seq *seq = kvpi_known_seq(cache, batch->seqs[i]);
        const struct part part = part_of_batch(batch, parents, i, first_token);
        extend(cache, seq, &part, end_of(seq, &part, batch->reserve_tokens));
        first_token += part.n_tokens;
    }
    return KVP_OK;
}

/* One sequence of a batch that goes each for itself. */
static kvp_status extend_one_of(kvp_cache *cache, const kvp_batch *batch, uint32_t index,
                                const struct part *part)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[index]);
    struct batch_need total;
    if (seq == NULL) {
        return kvpi_fail(cache, KVP_E_HANDLE, index, 0);
    }
    kvp_status status = check_extend(cache, seq, part, batch->reserve_tokens);
    if (status != KVP_OK) {
        return kvpi_fail(cache, status, index, 0);
    }
    memset(&total, 0, sizeof(total));
    status = count_one(cache, seq, part, batch->reserve_tokens, index, &total);
    put_back(cache, seq);
    if (status != KVP_OK) {
        return kvpi_fail(cache, status, index, 0);
    }
    status = judge_need(cache, &total);
    if (status == KVP_OK) {
        cache->plan.promised = (uint32_t)total.copies;
        extend(cache, seq, part, end_of(seq, part, batch->reserve_tokens));
    }
    return status;
}

static kvp_status find_each(kvp_cache *cache, const kvp_batch *batch)
{
    const uint64_t number = ++cache->batch;
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[i]);
        if (seq != NULL && seq->batch == number) {
            return kvpi_fail(cache, KVP_E_ARG, i, 0);
        }
        if (seq != NULL) {
            seq->batch = number;
        }
    }
    return KVP_OK;
}

static kvp_status extend_each(kvp_cache *cache, const kvp_batch *batch)
{
    uint64_t first_token = 0;
    const kvp_status status = find_each(cache, batch);
    if (status != KVP_OK) {
        return status;
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct part part = part_of_batch(batch, NULL, i, first_token);
        KVPI_ASSERT(batch->statuses != NULL); /* see kvpi_bad_batch */
        batch->statuses[i] = extend_one_of(cache, batch, i, &part);
        first_token += part.n_tokens;
    }
    return KVP_OK;
}

static kvp_status extend_batch(kvp_cache *cache, const kvp_batch *batch)
{
    if (batch->flags == 0) {
        return kvpi_extend_all(cache, batch, NULL);
    }
    if (!(batch->flags & KVP_BATCH_EACH)) {
        const kvp_status status = kvpi_extend_all(cache, batch, NULL);
        if (status == KVP_OK) {
            kvpi_rings_take(cache, batch);
        }
        return status;
    }
    const kvp_status status = check_batch(cache, batch, NULL);
    return status != KVP_OK ? kvpi_fail(cache, status, 0, 0) : extend_each(cache, batch);
}

kvp_status kvp_seq_extend_many(kvp_cache *cache, const kvp_batch *batch)
{
    batch = kvpi_sized(batch, sizeof(*batch));
    kvp_status status = cache == NULL || kvpi_bad_batch(batch) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = extend_batch(cache, batch);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_extend_many(&cache->recorder, batch, status);
    }
    return kvpi_leave(cache, status);
}

/* The batch of one sequence. */
static kvp_batch batch_of_one(const kvp_seq *seq, const int32_t *tokens, const uint32_t *n_tokens)
{
    return (kvp_batch){.struct_size = sizeof(kvp_batch),
                       .n_seqs = 1,
                       .seqs = seq,
                       .n_tokens = n_tokens,
                       .tokens = tokens};
}

kvp_status kvp_seq_extend(kvp_cache *cache, kvp_seq seq, const int32_t *tokens, uint32_t n_tokens,
                          uint32_t reserve_tokens)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    kvp_batch batch = batch_of_one(&seq, tokens, &n_tokens);
    batch.reserve_tokens = reserve_tokens;
    status = extend_batch(cache, &batch);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_extend(&cache->recorder, seq, tokens, n_tokens, reserve_tokens, status);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------------- fill */

static kvp_status check_fill(const kvp_cache *cache, const struct kvpi_seq *seq,
                             const struct part *part)
{
    if (check_values(cache, seq, part, seq->known) != KVP_OK) {
        return KVP_E_ARG;
    }
    return part->n_tokens > seq->tokens - seq->known || seq->tier != KVP_DEVICE ? KVP_E_STATE
                                                                                : KVP_OK;
}

static void fill(kvp_cache *cache, struct kvpi_seq *seq, const struct part *part)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t before = kvpi_min_u32(seq->computed, seq->known) / U;
    kvpi_append_tokens(cache, seq, part->tokens, part->n_tokens, part->keys, part->n_keys);
    const uint32_t after = kvpi_min_u32(seq->computed, seq->known) / U;
    for (uint32_t u = before; u < kvpi_min_u32(after, seq->n_public); u++) {
        kvpi_seal_unit(cache, seq, u, after);
    }
}

static kvp_status check_fill_batch(const kvp_cache *cache, const kvp_batch *batch)
{
    const int is_wrong = batch->reserve_tokens > 0 || batch->flags > KVP_BATCH_EACH;
    return is_wrong ? KVP_E_ARG : check_batch(cache, batch, NULL);
}

static kvp_status fill_one_of(kvp_cache *cache, const kvp_batch *batch, uint32_t index,
                              const struct part *part)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, batch->seqs[index]);
    const kvp_status status = seq == NULL ? KVP_E_HANDLE : check_fill(cache, seq, part);
    if (status != KVP_OK) {
        return kvpi_fail(cache, status, index, 0);
    }
    fill(cache, seq, part);
    return KVP_OK;
}

static kvp_status fill_each(kvp_cache *cache, const kvp_batch *batch)
{
    uint64_t first_token = 0;
    const kvp_status status = find_each(cache, batch);
    if (status != KVP_OK) {
        return status;
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct part part = part_of_batch(batch, NULL, i, first_token);
        batch->statuses[i] = fill_one_of(cache, batch, i, &part);
        first_token += part.n_tokens;
    }
    return KVP_OK;
}

static kvp_status fill_all(kvp_cache *cache, const kvp_batch *batch)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    uint64_t first_token = 0;
    kvpi_faults_other(&faults, check_fill_batch(cache, batch), 0);
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, batch->seqs[i], i);
        if (seq == NULL) {
            break;
        }
        const struct part part = part_of_batch(batch, NULL, i, first_token);
        kvpi_faults_other(&faults, check_fill(cache, seq, &part), i);
        first_token += part.n_tokens;
    }
    if (kvpi_faults_any(&faults)) {
        return kvpi_faults_fail(cache, &faults);
    }
    kvpi_begin_change(cache);
    first_token = 0;
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct part part = part_of_batch(batch, NULL, i, first_token);
        fill(cache, kvpi_known_seq(cache, batch->seqs[i]), &part);
        first_token += part.n_tokens;
    }
    return KVP_OK;
}

static int bad_fill(const kvp_batch *batch)
{
    if (kvpi_bad_batch(batch)) {
        return 1;
    }
    for (uint32_t i = 0; i < batch->n_seqs && batch->tokens == NULL; i++) {
        if (batch->n_tokens == NULL || batch->n_tokens[i] > 0) {
            return 1;
        }
    }
    return 0;
}

static kvp_status fill_batch(kvp_cache *cache, const kvp_batch *batch)
{
    if (!(batch->flags & KVP_BATCH_EACH)) {
        return fill_all(cache, batch);
    }
    const kvp_status status = check_fill_batch(cache, batch);
    return status != KVP_OK ? kvpi_fail(cache, status, 0, 0) : fill_each(cache, batch);
}

kvp_status kvp_seq_fill_many(kvp_cache *cache, const kvp_batch *batch)
{
    batch = kvpi_sized(batch, sizeof(*batch));
    kvp_status status = cache == NULL || bad_fill(batch) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = fill_batch(cache, batch);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_fill_many(&cache->recorder, batch, status);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_seq_fill(kvp_cache *cache, kvp_seq seq, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_batch batch = batch_of_one(&seq, tokens, &n_tokens);
    kvp_status status = cache == NULL || bad_fill(&batch) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = fill_batch(cache, &batch);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_fill(&cache->recorder, seq, tokens, n_tokens, status);
    }
    return kvpi_leave(cache, status);
}

/* ------------------------------------------------------------------------------------ admission */

static kvp_status can_extend(kvp_cache *cache, const kvp_batch *batch, kvp_admission *out)
{
    struct batch_need need;
    const kvp_shortage shortage = cache->shortage; /* asking is not failing */
    const kvp_status status = count_batch(cache, batch, NULL, 0, &need);
    cache->shortage = shortage;
    if (status != KVP_OK) {
        return status;
    }
    const uint64_t available = kvpi_pool_available(&cache->pool);
    memset(out, 0, sizeof(*out));
    out->need_blocks = (uint32_t)need.blocks;
    out->available = (uint32_t)available;
    if (need.excess > 0) {
        out->verdict = KVP_ADMIT_NEVER;
        out->missing_blocks = (uint32_t)need.excess;
    } else if (need.blocks > available) {
        out->verdict = KVP_ADMIT_LATER;
        out->missing_blocks = (uint32_t)(need.blocks - available);
    } else if (need.slots > kvpi_pool_available(&cache->states.pool)) {
        out->verdict = KVP_ADMIT_LATER;
    }
    return KVP_OK;
}

kvp_status kvp_cache_can_extend(kvp_cache *cache, const kvp_batch *batch,
                                kvp_admission *out_admission)
{
    batch = kvpi_sized(batch, sizeof(*batch));
    kvp_status status = cache == NULL || kvpi_bad_batch(batch) || out_admission == NULL
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = can_extend(cache, batch, out_admission);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_can_extend(&cache->recorder, batch, status, out_admission);
    }
    return kvpi_leave(cache, status);
}

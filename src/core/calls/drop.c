/* drop: content that goes: KV of a sequence that is taken back (cache.h), cached content that the
 * caller wants dropped, and the coldest ahead of need (drop.h).
 *
 * A prompt that finds a unit has its KV, so the units of what is taken back must not be found any
 * more. The chain has those of the sequence. It may have had others: truncate and fork keep the
 * first tokens of a unit, and their KV, without the unit. Then the end of the row may be
 * overwritten, copied on write, or swapped, and the unit's KV may be in a block of the host. So the
 * unit is marked when it is cut, and found here by its content:
 *
 *   chain         [n0][n1]         invalidate from 6, U = 4: the unit with token 6 is the second
 *   partial               [t]
 *   children of n0   n1  [4 5 6 9]x  [4 5 8 8]x  [4 5 6 2]     x: cut; n1, and the first of them
 *
 * What comes after a withdrawn unit is not found either.
 */
#include <kvpager/drop.h>

#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/cache/tokens.h"
#include "core/calls/steps.h"
#include "core/seq/seq_windows.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- invalidate */

/* The units that begin at the same place as the first one that is taken back, and have its KV. */
struct taken {
    uint32_t u;
    uint32_t node;   /* the sequence's; NO_NODE: it has no public unit there */
    uint32_t parent; /* the node before; NO_NODE: no unit that was cut is to be looked for */
    uint32_t n_same; /* tokens that those begin with, too */
    const int32_t *tokens;
};

static struct taken taken_of(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, place);
    struct taken taken = {.u = from / U};
    if (taken.u < seq->n_public) {
        taken.node = nodes[taken.u];
    }
    if (from < (seq->unkept ? seq->n_units * U : seq->known)) {
        taken.parent = taken.u > 0 ? nodes[taken.u - 1] : seq->root;
        taken.n_same = from % U + 1;
        taken.tokens = taken.u < seq->n_units
                           ? kvpi_node_tokens(kvpi_node(&cache->prefix, nodes[taken.u]))
                           : kvpi_row_partial(&cache->table, place);
    }
    return taken;
}

static int is_taken(const kvp_cache *cache, const struct taken *taken, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(&cache->prefix, node);
    const uint32_t flags = KVPI_NODE_PUBLIC | KVPI_NODE_CUT;
    return node == taken->node ||
           (taken->parent != KVPI_NO_NODE && n->parent == taken->parent &&
            (n->flags & flags) == flags &&
            kvpi_same_tokens(kvpi_node_tokens(n), taken->tokens, taken->n_same));
}

/* Does `other` refer, from the entries of token `from` on, to a block of `seq`'s rows? */
static int shares_blocks(const kvp_cache *cache, const struct kvpi_seq *seq,
                         const struct kvpi_seq *other, uint32_t from)
{
    const uint32_t room = kvpi_min_u32(seq->room, other->room);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t *ours = kvpi_row(cache, seq, g);
        const int32_t *theirs = kvpi_row(cache, other, g);
        const uint32_t end = kvpi_row_length(cache, g, room);
        /* A block has the same index in every row of its group. */
        for (uint32_t i = from / kvpi_block_tokens(cache, g); i < end; i++) {
            if (ours[i] == theirs[i] && ours[i] != KVP_NULL_BLOCK) {
                return 1;
            }
        }
    }
    return 0;
}

/* Has it one of the first units that are withdrawn? Its KV may be a copy. */
static int has_taken(const kvp_cache *cache, const struct taken *taken, const struct kvpi_seq *seq)
{
    const struct kvpi_table *table = &cache->table;
    return seq->n_public > taken->u &&
           is_taken(cache, taken, kvpi_row_nodes(table, kvpi_seq_place(table, seq))[taken->u]);
}

/* List the sequences that share blocks from token `from` on; give how many there are. */
static uint32_t find_sharers(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from,
                             kvp_seq *out_seqs, uint32_t capacity)
{
    const struct kvpi_table *table = &cache->table;
    const struct taken taken = taken_of(cache, seq, from);
    uint32_t n = 0;
    for (struct kvpi_seq *other = NULL; (other = kvpi_next_open(table, other)) != NULL;) {
        if (other == seq || other->tokens <= from ||
            (!(other->tier == seq->tier && shares_blocks(cache, seq, other, from)) &&
             !has_taken(cache, &taken, other))) {
            continue;
        }
        if (n < capacity) {
            out_seqs[n] = kvpi_table_handle(table, other, cache->recorder.cache_bits);
        }
        n++;
    }
    return n;
}

/* Sequences with one of these units stop publishing from it on. The units are public still. */
static void end_publishing(kvp_cache *cache, const struct taken *taken)
{
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        if (has_taken(cache, taken, seq)) {
            kvpi_set32(&seq->n_public, taken->u);
        }
    }
}

/* Raise the generation of every held block that the units are attached to, once. */
static void raise_generations(kvp_cache *cache, uint32_t where, const uint32_t *nodes, uint32_t n)
{
    struct kvpi_pool *pool = kvpi_tier_pool(cache, KVPI_TIER_OF(where));
    const struct kvpi_prefix *prefix = &cache->prefix;
    for (uint32_t i = 0; i < n && pool->n_blocks > 0; i++) {
        const uint32_t block = kvpi_node_at(prefix, nodes[i], where)->block;
        struct kvpi_block *b = kvpi_block(pool, block);
        if (block != 0 && !(b->refs & KVPI_REFS_MARKED)) {
            if (kvpi_block_refs(b) > 0) {
                kvpi_pool_raise(pool, block);
            }
            b->refs |= KVPI_REFS_MARKED;
        }
    }
    for (uint32_t i = 0; i < n && pool->n_blocks > 0; i++) {
        kvpi_block(pool, kvpi_node_at(prefix, nodes[i], where)->block)->refs &= ~KVPI_REFS_MARKED;
    }
}

/* Withdraw one unit: no block has it, no prompt finds it. Its node lives: sequences have it. */
static void withdraw_unit(kvp_cache *cache, uint32_t node)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    kvpi_withdraw_node(cache, node);
    for (uint32_t where = 0; where < kvpi_block_wheres(cache); where++) {
        const struct kvpi_place *at = kvpi_node_at(prefix, node, where);
        while (at->dups != 0) {
            kvpi_prefix_remove_dup(prefix, where, at->dups);
        }
        if (at->block != KVP_NULL_BLOCK) {
            kvpi_count(&cache->counters.detached_units, 1);
            kvpi_detach_node(cache, where, node);
        }
    }
    if (kvpi_has_states(cache)) {
        kvpi_states_withdraw(cache, node);
    }
}

/* Withdraw units that follow one another. */
static void withdraw_units(kvp_cache *cache, const uint32_t *nodes, uint32_t n)
{
    for (uint32_t where = 0; where < kvpi_block_wheres(cache); where++) {
        raise_generations(cache, where, nodes, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        withdraw_unit(cache, nodes[i]);
    }
}

/* Of the nodes to withdraw the one whose hash is lowest: the order does not depend on how nodes
 * are numbered. */
static uint32_t next_cut(const kvp_cache *cache, const struct taken *taken)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    uint32_t next = KVPI_NO_NODE;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        if (is_taken(cache, taken, i) &&
            (next == KVPI_NO_NODE ||
             memcmp(&kvpi_node(prefix, i)->hash, &kvpi_node(prefix, next)->hash, sizeof(kvp_hash)) <
                 0)) {
            next = i;
        }
    }
    return next;
}

/* Units that were cut, which no sequence may have now. */
static void withdraw_cut(kvp_cache *cache, struct taken *taken)
{
    uint32_t node;
    taken->node = KVPI_NO_NODE; /* is withdrawn */
    if (!(kvpi_node(&cache->prefix, taken->parent)->flags & KVPI_NODE_CUTS)) {
        return;
    }
    while ((node = next_cut(cache, taken)) != KVPI_NO_NODE) {
        kvpi_prefix_use(&cache->prefix, node);
        withdraw_units(cache, &node, 1);
        kvpi_prefix_unuse(&cache->prefix, node);
    }
}

static void withdraw(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    struct taken taken = taken_of(cache, seq, from);
    const uint32_t n_public = kvpi_max_u32(seq->n_public, taken.u);
    end_publishing(cache, &taken);
    withdraw_units(cache, nodes + taken.u, n_public - taken.u);
    withdraw_cut(cache, &taken);
}

static void invalidate(kvp_cache *cache, struct kvpi_seq *seq, uint32_t from)
{
    const uint32_t computed = seq->computed;
    const int withdraws_state = (seq->windowed & KVPI_STATEFUL) && from < seq->tokens;
    withdraw(cache, seq, from);
    /* With states, what steps that are out leave behind is taken back, too. */
    kvpi_steps_cut(cache, seq, withdraws_state ? kvpi_min_u32(from, computed) : from);
    kvpi_set32(&seq->computed, kvpi_min_u32(seq->computed, from));
    kvpi_set32(&seq->writable, kvpi_min_u32(seq->writable, from));
    seq->exclusive = 0;
    kvpi_set32(&seq->n_tree, 0);
    if (seq->windowed & KVPI_WINDOWED) {
        kvpi_windows_back(cache, seq);
    }
    if (withdraws_state) {
        kvpi_states_back(cache, seq, seq->computed == computed);
    }
}

static kvp_status invalidate_seq(kvp_cache *cache, kvp_seq handle, uint32_t from, kvp_seq *out_seqs,
                                 uint32_t capacity, uint32_t *out_n_seqs)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL || from > seq->tokens) {
        return kvpi_fail(cache, seq == NULL ? KVP_E_HANDLE : KVP_E_ARG, 0, 0);
    }
    if (seq->tier != KVP_DEVICE) {
        return kvpi_fail(cache, KVP_E_STATE, 0, 0);
    }
    if (out_n_seqs != NULL) {
        *out_n_seqs = find_sharers(cache, seq, from, NULL, 0);
        if (capacity == 0) {
            return KVP_OK;
        }
        if (*out_n_seqs > capacity) {
            return kvpi_fail(cache, KVP_E_TOO_SMALL, 0, 0);
        }
        (void)find_sharers(cache, seq, from, out_seqs, capacity);
    }
    kvpi_begin_change(cache);
    invalidate(cache, seq, from);
    return KVP_OK;
}

kvp_status kvp_seq_invalidate(kvp_cache *cache, kvp_seq seq, uint32_t from, kvp_seq *out_seqs,
                              uint32_t capacity, uint32_t *out_n_seqs)
{
    kvp_status status = cache == NULL || (capacity > 0 && (out_seqs == NULL || out_n_seqs == NULL))
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = invalidate_seq(cache, seq, from, out_seqs, capacity, out_n_seqs);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_invalidate(&cache->recorder, seq, from, capacity, status, out_seqs,
                                   out_n_seqs);
    }
    return kvpi_leave(cache, status);
}

/* ------------------------------------------------------------------------------- drop, reclaim */

/* A take's eviction without the take. */
static kvp_status drop_blocks(kvp_cache *cache, uint32_t tier, const int32_t *blocks,
                              uint32_t n_blocks, uint32_t *n_dropped)
{
    const uint32_t limit = tier == KVP_DEVICE ? cache->config.n_blocks
                           : tier == KVP_HOST ? cache->config.host_blocks
                                              : 0;
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (blocks[i] <= 0 || (uint32_t)blocks[i] >= limit) {
            return kvpi_fail(cache, KVP_E_ARG, i, 0);
        }
    }
    if (limit == 0) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < n_blocks; i++) {
        *n_dropped += (uint32_t)kvpi_drop_content(cache, tier, (uint32_t)blocks[i]);
    }
    return KVP_OK;
}

kvp_status kvp_cache_drop(kvp_cache *cache, uint32_t tier, const int32_t *blocks, uint32_t n_blocks,
                          uint32_t *out_n_dropped)
{
    uint32_t n_dropped = 0;
    kvp_status status =
        cache == NULL || (blocks == NULL && n_blocks > 0) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = drop_blocks(cache, tier, blocks, n_blocks, &n_dropped);
    if (status == KVP_OK && out_n_dropped != NULL) {
        *out_n_dropped = n_dropped;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_drop(&cache->recorder, tier, blocks, n_blocks, status, n_dropped);
    }
    return kvpi_leave(cache, status);
}

static uint32_t reclaim(kvp_cache *cache, uint32_t n_blocks)
{
    uint32_t n = 0;
    kvpi_begin_change(cache);
    while (cache->pool.n_free < n_blocks && kvpi_reclaim_block(cache)) {
        n++;
    }
    return n;
}

kvp_status kvp_cache_reclaim(kvp_cache *cache, uint32_t n_blocks, uint32_t *out_n_reclaimed)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    const uint32_t n_reclaimed = reclaim(cache, n_blocks);
    if (out_n_reclaimed != NULL) {
        *out_n_reclaimed = n_reclaimed;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_reclaim(&cache->recorder, n_blocks, KVP_OK, n_reclaimed);
    }
    return kvpi_leave(cache, KVP_OK);
}

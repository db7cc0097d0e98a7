/* trees: token trees behind a sequence's tokens; see trees.h.
 *
 *   row slots    | tokens ........ | node 0 | node 1 | node 2 | node 3 | reserve ...
 *   parents                          -1       0        0        1
 *   accept leaf 3:     path 0 1 3    stays    stays             moves to node 2's slot
 *
 * Nodes have slots and nothing else: no unit, no place in a prefix. Their values and parents lie
 * beside the row. What is accepted is appended as any tokens are, and committed.
 */
#include "core/cache/blocks.h"
#include "core/cache/dropped.h"
#include "core/cache/frame.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"
#include "core/cache/tokens.h"
#include "core/seq/seq_windows.h"
#include "core/calls/commit.h"
#include "core/calls/extend.h"
#include "core/calls/steps.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- extend */

static int bad_tree_batch(const kvp_batch *batch, const int32_t *parents)
{
    if (kvpi_bad_batch(batch)) {
        return 1;
    }
    for (uint32_t i = 0; i < batch->n_seqs && (batch->tokens == NULL || parents == NULL); i++) {
        if (batch->n_tokens == NULL || batch->n_tokens[i] > 0) {
            return 1;
        }
    }
    return 0;
}

kvp_status kvp_seq_extend_tree(kvp_cache *cache, const kvp_batch *batch, const int32_t *parents)
{
    static const int32_t none = 0;
    batch = kvpi_sized(batch, sizeof(*batch));
    kvp_status status =
        cache == NULL || bad_tree_batch(batch, parents) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = kvpi_extend_all(cache, batch, parents == NULL ? &none : parents);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_extend_tree(&cache->recorder, batch, parents, status);
    }
    return kvpi_leave(cache, status);
}

/* --------------------------------------------------------------------------------------- accept */

/* Nodes on the way from a root to the leaf. */
static uint32_t count_path(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t leaf)
{
    const int32_t *parents = kvpi_tree_parents(&cache->table, kvpi_seq_place(&cache->table, seq));
    uint32_t n = 0;
    for (; leaf >= 0; leaf = parents[leaf]) {
        n++;
    }
    return n;
}

/* The way from a root to the leaf, [n], into scratch. */
static const int32_t *find_path(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t leaf,
                                uint32_t n)
{
    const struct kvpi_table *table = &cache->table;
    const int32_t *parents = kvpi_tree_parents(table, kvpi_seq_place(table, seq));
    int32_t *path = kvpi_tree_parents(table, kvpi_table_scratch(table));
    for (; leaf >= 0; leaf = parents[leaf]) {
        path[--n] = leaf;
    }
    return path;
}

/* Does a copy into the block of this position wait in the plan, in any group? */
static int waits_for_copy(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t position)
{
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const uint32_t i = position / kvpi_block_tokens(cache, g);
        if (kvpi_plan_waits(&cache->plan, KVP_DEVICE, (uint32_t)kvpi_row(cache, seq, g)[i])) {
            return 1;
        }
    }
    return 0;
}

/* Count the nodes that move; *waits when a copy into one of their blocks waits in the plan. */
static uint32_t count_moves(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t leaf,
                            int *waits)
{
    const uint32_t n_path = count_path(cache, seq, leaf);
    const int32_t *path = find_path(cache, seq, leaf, n_path);
    uint32_t n = 0;
    for (uint32_t t = 0; t < n_path; t++) {
        if (path[t] != (int32_t)t) {
            n++;
            *waits |= waits_for_copy(cache, seq, seq->tokens + t) ||
                      waits_for_copy(cache, seq, seq->tokens + (uint32_t)path[t]);
        }
    }
    return n;
}

/* One sequence; counts its moves. */
static kvp_status check_accept(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t leaf,
                               uint64_t *n_moves)
{
    int waits = 0;
    if (leaf < -1 || leaf >= (int64_t)seq->n_tree) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    if (leaf < 0) {
        return KVP_OK;
    }
    *n_moves += count_moves(cache, seq, leaf, &waits);
    if (seq->computed < seq->tokens || seq->known < seq->tokens || waits) {
        return KVP_E_STATE;
    }
    /* A tree begins where nothing is lacking, and what brings the tokens back drops it. */
    KVPI_ASSERT(kvpi_check_windows(cache, seq) == KVP_OK);
    return kvpi_tree_in_flight(cache, seq) ? KVP_E_IN_FLIGHT : KVP_OK;
}

static int64_t slot_of_node(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                            uint32_t position)
{
    const uint32_t S = kvpi_block_tokens(cache, group);
    return (int64_t)kvpi_row(cache, seq, group)[position / S] * S + position % S;
}

/* Where the nodes of the path move, and their values: to scratch, as the tokens that follow. */
static const int32_t *move_path(const kvp_cache *cache, const struct kvpi_seq *seq,
                                const int32_t *path, uint32_t n_path, kvp_accept *accept)
{
    const struct kvpi_table *table = &cache->table;
    const int32_t *nodes = kvpi_tree_tokens(table, kvpi_seq_place(table, seq));
    int32_t *tokens = kvpi_tree_tokens(table, kvpi_table_scratch(table));
    for (uint32_t t = 0; t < n_path; t++) {
        tokens[t] = nodes[path[t]];
        for (uint32_t g = 0; g < cache->config.n_groups && path[t] != (int32_t)t; g++) {
            kvp_slot_move *move = &accept->moves[(size_t)g * accept->max_moves + accept->n_moves];
            move->src = slot_of_node(cache, seq, g, seq->tokens + (uint32_t)path[t]);
            move->dst = slot_of_node(cache, seq, g, seq->tokens + t);
        }
        accept->n_moves += path[t] != (int32_t)t;
    }
    return tokens;
}

/* Slots behind the tokens are given back, and their blocks. */
static void cut_behind(kvp_cache *cache, struct kvpi_seq *seq)
{
    const int loses = kvpi_rows_lose(cache, seq, seq->tokens);
    kvp_released released = {0, 0};
    kvpi_steps_cut(cache, seq, seq->tokens);
    kvpi_release_row(cache, seq, seq->tokens, &released);
    kvpi_set(&seq->row_version, seq->row_version + (uint64_t)loses);
    kvpi_set32(&seq->writable, kvpi_min_u32(seq->writable, seq->tokens));
    seq->exclusive = kvpi_min_u32(seq->exclusive, kvpi_rows_slots(cache, seq));
}

static void accept_path(kvp_cache *cache, struct kvpi_seq *seq, int32_t leaf, kvp_accept *accept)
{
    const uint32_t n = count_path(cache, seq, leaf);
    if (seq->n_tree == 0) {
        return;
    }
    if (n > 0) {
        const int32_t *path = find_path(cache, seq, leaf, n);
        const int32_t *tokens = move_path(cache, seq, path, n, accept);
        kvpi_set32(&seq->n_tree, 0);
        kvpi_set32(&seq->tokens, seq->tokens + n);
        kvpi_append_tokens(cache, seq, tokens, n, NULL, 0);
        kvpi_commit(cache, seq, seq->tokens);
        kvpi_count(&cache->counters.accepted_tokens, n);
    }
    kvpi_set32(&seq->n_tree, 0);
    cut_behind(cache, seq);
}

static kvp_status accept_all(kvp_cache *cache, kvp_accept *accept)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    uint64_t n_moves = 0;
    for (uint32_t i = 0; i < accept->n_seqs; i++) {
        const struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, accept->seqs[i], i);
        if (seq == NULL) {
            break;
        }
        kvpi_faults_other(&faults, check_accept(cache, seq, accept->leaves[i], &n_moves), i);
    }
    if (kvpi_faults_any(&faults)) {
        return kvpi_faults_fail(cache, &faults);
    }
    accept->n_moves = (uint32_t)n_moves; /* each is a slot of the pool: they fit */
    if (n_moves > accept->max_moves) {
        return kvpi_fail(cache, KVP_E_TOO_SMALL, 0, 0);
    }
    kvpi_begin_change(cache);
    accept->n_moves = 0;
    for (uint32_t i = 0; i < accept->n_seqs; i++) {
        accept_path(cache, kvpi_known_seq(cache, accept->seqs[i]), accept->leaves[i], accept);
    }
    return KVP_OK;
}

kvp_status kvp_seq_accept(kvp_cache *cache, kvp_accept *accept)
{
    accept = kvpi_sized(accept, sizeof(*accept));
    kvp_status status =
        cache == NULL || accept == NULL ||
                ((accept->seqs == NULL || accept->leaves == NULL) && accept->n_seqs > 0) ||
                (accept->moves == NULL && accept->max_moves > 0)
            ? KVP_E_ARG
            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = accept_all(cache, accept);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_accept(&cache->recorder, accept, cache->config.n_groups, status);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------------- read */

static kvp_status read_tree(const kvp_cache *cache, const struct kvpi_seq *seq, int32_t *out_tokens,
                            int32_t *out_parents, uint32_t capacity)
{
    const struct kvpi_table *table = &cache->table;
    const uint32_t place = kvpi_seq_place(table, seq);
    const size_t n_bytes = capacity > 0 ? seq->n_tree * sizeof(int32_t) : 0;
    if (capacity > 0 && seq->n_tree > capacity) {
        return KVP_E_TOO_SMALL;
    }
    if (out_tokens != NULL && n_bytes > 0) {
        memcpy(out_tokens, kvpi_tree_tokens(table, place), n_bytes);
    }
    if (out_parents != NULL && n_bytes > 0) {
        memcpy(out_parents, kvpi_tree_parents(table, place), n_bytes);
    }
    return KVP_OK;
}

kvp_status kvp_seq_tree(const kvp_cache *cache, kvp_seq seq, int32_t *out_tokens,
                        int32_t *out_parents, uint32_t capacity, uint32_t *out_n_nodes)
{
    if (cache == NULL || out_n_nodes == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    kvp_status status = KVP_E_HANDLE;
    if (s != NULL) {
        *out_n_nodes = s->n_tree;
        status = read_tree(cache, s, out_tokens, out_parents, capacity);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_tree((struct kvpi_recorder *)(uintptr_t)&cache->recorder, seq, capacity,
                             status, out_tokens, out_parents, out_n_nodes);
    }
    return status;
}

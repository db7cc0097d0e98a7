/* states: slots of recurrent state, and the sequences that read and write them (states.h). */
#ifndef KVPI_CACHE_STATES_H
#define KVPI_CACHE_STATES_H

#include "core/cache/inflight.h"
#include "core/cache/state.h"

static inline int kvpi_has_states(const kvp_cache *cache)
{
    return cache->states.pool.n_blocks != 0;
}

static inline struct kvpi_pool *kvpi_states_pool(kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE ? &cache->states.pool : &cache->states.host;
}

static inline struct kvpi_state *kvpi_states_of(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    return (struct kvpi_state *)kvpi_at(cache, cache->states.seqs_at) +
           kvpi_seq_place(&cache->table, seq);
}

/* The slot that a step leaves the sequence's state in; 0: none. */
static inline uint32_t *kvpi_ahead_of(const kvp_cache *cache, const struct kvpi_seq *seq,
                                      uint64_t step)
{
    return &kvpi_of_step(cache, cache->steps.ahead_at, step)[kvpi_seq_place(&cache->table, seq)];
}

/* The tokens of that state. */
static inline uint32_t kvpi_ahead_end(const kvp_cache *cache, const struct kvpi_seq *seq,
                                      uint64_t step)
{
    return kvpi_of_step(cache, cache->steps.until_at, step)[kvpi_seq_place(&cache->table, seq)] - 1;
}

/* Of the checkpoints at a node and below it, how many its parent counts (S5). */
static inline uint32_t kvpi_below_told(uint32_t below)
{
    return below < 2 ? below : 2;
}

/* Where a node's checkpoint is attached. */
static inline uint32_t kvpi_states_where(const kvp_cache *cache)
{
    return KVPI_WHERE(KVP_DEVICE, cache->config.n_groups);
}

/* The slot with the state after a node's last token; 0: none. */
static inline uint32_t kvpi_checkpoint_of(const kvp_cache *cache, uint32_t node)
{
    return kvpi_node_at(&cache->prefix, node, kvpi_states_where(cache))->block;
}

/* Will a copy that waits, or is out, bring the state into a slot of the device? */
static inline int kvpi_states_arrives(const kvp_cache *cache, uint32_t slot)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED &&
           kvpi_pool_arriving(&cache->states.pool)[slot] > cache->steps.effective;
}

/* The same, if its state is there already: what can be hit, and gone back to. */
static inline uint32_t kvpi_checkpoint_there(const kvp_cache *cache, uint32_t node)
{
    const uint32_t slot = kvpi_checkpoint_of(cache, node);
    return slot != 0 && kvpi_states_arrives(cache, slot) ? 0 : slot;
}

/* Has each group a block with the node's unit, on some tier? */
static inline int kvpi_states_has_kv(const kvp_cache *cache, uint32_t node)
{
    uint32_t g = 0;
    while (g < cache->config.n_groups &&
           (kvpi_node_at(&cache->prefix, node, KVPI_WHERE(KVP_DEVICE, g))->block |
            kvpi_node_at(&cache->prefix, node, KVPI_WHERE(KVP_HOST, g))->block) != 0) {
        g++;
    }
    return g == cache->config.n_groups;
}

/* The checkpoint after the sequence's first n tokens; 0: none that is there, or n is 0. */
uint32_t kvpi_states_kept(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* Has it a slot to write, or must it take one? 1: one. */
uint32_t kvpi_states_need(const kvp_cache *cache, const struct kvpi_seq *seq);

/* Make sure that it has a slot to write; there is one if it must be taken. */
void kvpi_states_grow(kvp_cache *cache, const struct kvpi_seq *seq);

/* A new sequence begins at a checkpoint, or with 0 at the initial state. */
void kvpi_states_open(kvp_cache *cache, struct kvpi_seq *seq, uint32_t checkpoint);

/* May a commit outside steps raise its computed tokens to n? */
kvp_status kvpi_states_check_commit(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* More tokens are computed: the state is in the slot that was written after the last of them. */
void kvpi_states_commit(kvp_cache *cache, struct kvpi_seq *seq);

/* The slot that the next step reads; 0: the initial state, or it is lost. */
uint32_t kvpi_states_next(const kvp_cache *cache, const struct kvpi_seq *seq);

/* A step that is out will commit n tokens: may it? Then the slot to write is that step's. The list
 * of the step is as it was before. */
kvp_status kvpi_states_check_ahead(const kvp_cache *cache, const struct kvpi_seq *seq,
                                   uint64_t step, uint32_t n);
void kvpi_states_ahead(kvp_cache *cache, struct kvpi_seq *seq, uint64_t step, uint32_t n);

/* What steps from `step` on leave behind is of no use. */
void kvpi_states_drop_ahead(kvp_cache *cache, const struct kvpi_seq *seq, uint64_t step);

/* Slots of rings that it takes so that each token that is not computed has one, once there are
 * n_tokens; take them. */
uint32_t kvpi_states_ring_need(const kvp_cache *cache, const struct kvpi_seq *seq,
                               uint32_t n_tokens);
void kvpi_states_ring_grow(kvp_cache *cache, const struct kvpi_seq *seq);

/* The ring ends: the state after the first n tokens is in the slot to write from now on. The ring
 * keeps those before. Nothing happens if its step leaves no state of its own there. */
void kvpi_states_ring_cut(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* Nothing of the ring is of use. */
void kvpi_states_ring_drop(kvp_cache *cache, const struct kvpi_seq *seq);

/* What a node's parent counts of it, as flags of the node while the counts are taken apart. */
#define KVPI_TOLD_SHIFT 24u

/* Take everything off the counts that belongs there, or put it back: `by` -1, 1. */
static inline void kvpi_states_move_below(const kvp_cache *cache, uint32_t by)
{
    for (uint32_t i = 1; i <= cache->prefix.n_touched; i++) {
        const struct kvpi_node *node = kvpi_node(&cache->prefix, i);
        if (kvpi_prefix_is_alive(&cache->prefix, i)) {
            *kvpi_node_below(&cache->prefix, i) += kvpi_checkpoint_of(cache, i) != 0 ? by : 0;
            *kvpi_node_below(&cache->prefix, node->parent) += by * (node->flags >> KVPI_TOLD_SHIFT);
        }
    }
}

/* For the audit: S5, of all nodes. Gives the one at which it does not hold. */
static inline int kvpi_states_below_valid(const kvp_cache *cache, uint64_t *out_node)
{
    int valid = 1;
    const struct kvpi_prefix *prefix = &cache->prefix;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const uint32_t told = kvpi_below_told(*kvpi_node_below(prefix, i));
        kvpi_node(prefix, i)->flags |= kvpi_node(prefix, i)->parent == KVPI_NO_NODE
                                           ? 0
                                           : told << KVPI_TOLD_SHIFT; /* a root has no node above */
    }
    kvpi_states_move_below(cache, UINT32_MAX);
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        if (kvpi_prefix_is_alive(prefix, i) && *kvpi_node_below(prefix, i) != 0) {
            *out_node = i;
            valid = 0;
        }
    }
    kvpi_states_move_below(cache, 1);
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        kvpi_node(prefix, i)->flags &= (1u << KVPI_TOLD_SHIFT) - 1;
    }
    return valid;
}

/* For the audit: S9. */
static inline int kvpi_states_ring_valid(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const struct kvpi_pool *pool = &cache->states.pool;
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (state->n_ring == 0) {
        return 1;
    }
    if (state->n_ring >= KVP_STATE_RING_MAX || state->write == 0 || seq->tier != KVP_DEVICE ||
        state->ring_at != seq->computed || state->n_ring >= seq->tokens - seq->computed ||
        kvpi_states_next(cache, seq) != state->read) {
        return 0;
    }
    for (uint32_t i = 0; i < state->n_ring; i++) {
        const uint32_t slot = state->ring[i];
        if (slot == 0 || slot >= pool->n_blocks || kvpi_block_refs(kvpi_block(pool, slot)) != 1 ||
            kvpi_block(pool, slot)->content != KVPI_NO_NODE) {
            return 0;
        }
    }
    return 1;
}

/* For the audit: S7. */
static inline int kvpi_states_ahead_valid(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const struct kvpi_pool *pool = &cache->states.pool;
    uint32_t end = seq->computed;
    for (uint64_t s = cache->steps.effective + 1; s <= cache->steps.begun; s++) {
        const uint32_t slot = *kvpi_ahead_of(cache, seq, s);
        if (slot == 0) {
            continue;
        }
        const struct kvpi_block *block = kvpi_block(pool, slot);
        if (slot >= pool->n_blocks || kvpi_block_refs(block) != 1 ||
            block->content != KVPI_NO_NODE || kvpi_ahead_end(cache, seq, s) <= end ||
            kvpi_ahead_end(cache, seq, s) > seq->tokens) {
            return 0;
        }
        end = kvpi_ahead_end(cache, seq, s);
    }
    return 1;
}

/* For the audit: S10. */
static inline int kvpi_states_arrival_valid(const kvp_cache *cache, uint32_t slot)
{
    const struct kvpi_steps *steps = &cache->steps;
    const struct kvpi_block *block = kvpi_block(&cache->states.pool, slot);
    const struct kvpi_copy *copy = kvpi_plan_copies(&cache->plan);
    if (!kvpi_states_arrives(cache, slot) ||
        (kvpi_block_refs(block) == 0 && block->content == KVPI_NO_NODE)) {
        return 1; /* it is unused, and the copy may have been dropped */
    }
    const uint64_t step = kvpi_pool_arriving(&cache->states.pool)[slot];
    for (uint64_t s = steps->effective + 1; s < step && s <= steps->begun; s++) {
        copy += steps->n_copies[s % steps->max];
    }
    uint64_t n = step > steps->begun ? cache->plan.n : steps->n_copies[step % steps->max];
    while (n > 0 && (copy->dst != slot || copy->dst_tier != (KVPI_SLOTS | KVP_DEVICE))) {
        copy++;
        n--;
    }
    return n > 0 && step <= steps->begun + 1 &&
           (kvpi_block_refs(block) == 0 || block->content == KVPI_NO_NODE);
}

/* For the audit: `by` more references of each slot that the sequence has. */
static inline void kvpi_states_refer(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t by)
{
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    struct kvpi_pool *pool = kvpi_states_pool(cache, seq->tier);
    kvpi_block(pool, state->read)->refs += state->read != 0 ? by : 0;
    kvpi_block(pool, state->write)->refs +=
        state->write != 0 && state->write != state->read ? by : 0;
    for (uint32_t i = 0; i < state->n_ring; i++) {
        kvpi_block(pool, state->ring[i])->refs += by;
    }
    for (uint64_t s = cache->steps.effective + 1; s <= cache->steps.begun; s++) {
        const uint32_t slot = *kvpi_ahead_of(cache, seq, s);
        kvpi_block(pool, slot)->refs += slot != 0 ? by : 0;
    }
}

/* Could the sequence be taken back to n tokens? */
int kvpi_states_lacks(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* It will be, and has more computed tokens still. */
void kvpi_states_cut(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n);

/* What steps leave behind is taken back. Is what it reads the state after the computed tokens? */
void kvpi_states_back(kvp_cache *cache, struct kvpi_seq *seq, int is_there);

kvp_status kvpi_states_check_fork(const kvp_cache *cache, const struct kvpi_seq *parent,
                                  uint32_t at);
void kvpi_states_fork(kvp_cache *cache, struct kvpi_seq *parent, const struct kvpi_seq *child,
                      uint32_t at);

/* The sequence closes, or leaves its tier; its nodes are in its row still. Closing forgets what it
 * had. */
void kvpi_states_leave(kvp_cache *cache, const struct kvpi_seq *seq);
void kvpi_states_close(kvp_cache *cache, const struct kvpi_seq *seq);

/* A slot is the node's checkpoint from now on; it had none. */
void kvpi_states_attach(kvp_cache *cache, uint32_t node, uint32_t slot);

/* Keep the state after the computed tokens. Gives KVP_CHECKPOINT_... */
uint32_t kvpi_states_checkpoint(kvp_cache *cache, const struct kvpi_seq *seq);

/* The node's checkpoint is none any more: it was withdrawn. */
void kvpi_states_withdraw(kvp_cache *cache, uint32_t node);

/* A cached block is about to lose its content: so do the checkpoints that need it. `kept`: the
 * content is on its way to the other tier. */
void kvpi_states_follow(kvp_cache *cache, uint32_t tier, uint32_t block, int kept);

/* The copy of the step that was to bring a state into the slot has failed. */
void kvpi_states_miss(kvp_cache *cache, uint32_t slot, uint64_t step);

/* Take a slot, in a retention class, for a namespace, evicting a checkpoint if need be; of the
 * host, where nothing is evicted. */
uint32_t kvpi_states_take_for(kvp_cache *cache, uint32_t retention, uint64_t ns);
uint32_t kvpi_states_take_host_for(kvp_cache *cache, uint32_t retention, uint64_t ns);

/* Evict the coldest cached checkpoint: its slot becomes free, behind all free ones. Gives 0 when
 * none is cached. */
int kvpi_states_evict_coldest(kvp_cache *cache);

static inline uint32_t kvpi_states_take(kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_states_take_for(cache, seq->retention, seq->ns.bits);
}

static inline uint32_t kvpi_states_take_host(kvp_cache *cache, const struct kvpi_seq *seq)
{
    return kvpi_states_take_host_for(cache, seq->retention, seq->ns.bits);
}

/* Copy a state to the other tier, by the plan, which has room. */
void kvpi_states_copy_to(kvp_cache *cache, uint32_t to, uint32_t src, uint32_t dst);

/* One holder less; 0: nothing. */
void kvpi_states_release(kvp_cache *cache, uint32_t tier, uint32_t slot);

#endif

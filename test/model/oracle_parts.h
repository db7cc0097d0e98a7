/* What the oracle's files share with each other, and with nobody else. */
#ifndef KVP_TEST_MODEL_ORACLE_PARTS_H
#define KVP_TEST_MODEL_ORACLE_PARTS_H

#include "oracle.h"

/* oracle.c */
void *oracle_allocate(size_t count, size_t size);
void *oracle_grow(void *items, uint32_t *capacity, uint64_t needed, size_t size);
int32_t *oracle_out_i32(oracle *o, uint64_t n);
kvp_status oracle_fail(oracle *o, kvp_status status, uint32_t index, uint64_t missing);
kvp_status oracle_fail_blocks(oracle *o, kvp_status status, uint32_t index, uint32_t tier,
                              uint64_t missing);
void oracle_begin_change(oracle *o);

/* S of a group; of recurrent state, whose loads count entries, the cache's. */
static inline uint32_t oracle_size(const oracle *o, uint32_t group)
{
    uint32_t S = group < o->config.n_groups ? o->config.groups[group].block_tokens : 0;

    return S ? S : o->config.block_tokens;
}

/* Units of its blocks. */
static inline uint32_t oracle_units(const oracle *o, uint32_t group)
{
    return oracle_size(o, group) / o->unit;
}

static inline kvp_window oracle_window_of(const oracle *o, uint32_t group)
{
    return (kvp_window){o->config.groups[group].sink_tokens, o->config.groups[group].recent_tokens};
}

/* Entry i of the row of a group. */
typedef struct oracle_entry {
    uint32_t group, i;
} oracle_entry;

oracle_entry *oracle_order(const oracle *o, const uint32_t *n_entries, uint32_t *out_n);

/* Is a call on a sequence refused because it is swapped out? */
static inline bool oracle_is_out(const oracle_seq *seq)
{
    return seq->tier == KVP_HOST;
}

/* oracle_nodes.c: nodes and keys. */
uint32_t oracle_root_make(oracle *o, const uint8_t *name, uint32_t name_bytes);
uint32_t oracle_node_find(const oracle *o, uint32_t parent, const int32_t *tokens,
                          const oracle_keys *keys);
bool oracle_has_tokens(const oracle *o, uint32_t parent, const int32_t *tokens);
uint32_t oracle_node_make(oracle *o, uint32_t parent, const int32_t *tokens,
                          const oracle_keys *keys, const kvp_hash *hash);
void oracle_node_prune(oracle *o, uint32_t node);
void oracle_unit_hash(const oracle *o, uint32_t parent, const int32_t *tokens,
                      const oracle_keys *keys, kvp_hash *out_hash);
bool oracle_keys_put(oracle_keys *keys, uint32_t limit, const kvp_key *key, uint32_t unit_begin);
void oracle_keys_free(oracle_keys *keys);
void oracle_keys_copy(oracle_keys *to, const oracle_keys *from, int64_t below_offset);

/* oracle_units.c: which block has which node's KV. */
oracle_spot *oracle_spot_of(oracle *o, uint32_t node, int32_t block);
void oracle_node_attach(oracle *o, uint32_t node, int32_t block);
void oracle_node_duplicate(oracle *o, uint32_t node, int32_t block);
bool oracle_node_found(oracle *o, uint32_t node, int32_t block);
void oracle_node_copied(oracle *o, uint32_t node, int32_t block);
void oracle_node_await(oracle *o, uint32_t node, int32_t block);
void oracle_unit_clear(oracle *o, int32_t block, uint32_t unit_idx, bool raise);
void oracle_content_clear(oracle *o, int32_t block);
void oracle_node_withdraw(oracle *o, uint32_t node, uint32_t group);
uint32_t oracle_block_depth(const oracle *o, int32_t block);
bool oracle_block_sealed(const oracle *o, int32_t block);

/* oracle_blocks.c: queues, taking and evicting, holding and releasing, parking. */
void oracle_queue_put(oracle *o, int32_t block, bool at_tail);
void oracle_queue_remove(oracle *o, int32_t block);
int32_t oracle_take(oracle *o, uint32_t tier, uint32_t group, uint32_t retention,
                    uint64_t ns_handle);
void oracle_hold(oracle *o, int32_t block);
void oracle_release(oracle *o, int32_t block, kvp_released *released);
bool oracle_is_writer(const oracle *o, const oracle_seq *seq);
void oracle_cut_slots(oracle *o, oracle_seq *seq, uint32_t n_tokens);
void oracle_leave(oracle *o, const oracle_seq *seq, int32_t block, kvp_released *released);
void oracle_free_cached(oracle *o, int32_t block);
void oracle_give_up(oracle *o, int32_t block);
kvp_status oracle_drop(oracle *o, const kvp_call *call, kvp_outcome *out);
void oracle_evicted(oracle *o, int32_t block, bool kept);
void oracle_put_behind_free(oracle *o, int32_t block);
kvp_status oracle_reclaim(oracle *o, const kvp_call *call, kvp_outcome *out);
void oracle_unpark(oracle *o, uint64_t step);
bool oracle_is_lost(const oracle *o, uint32_t node);
bool oracle_is_touched(const oracle *o, int32_t block);

/* A device block's content goes on in a host block; gives that. Is there room for it? */
int32_t oracle_copy_to_host(oracle *o, int32_t block, uint32_t deepest);
bool oracle_may_copy_to_host(oracle *o, uint64_t ns_handle);

/* oracle_room.c: a node when none is free. */
bool oracle_free_node(oracle *o);

/* oracle_quotas.c: whose blocks go first. */
int32_t oracle_choose(oracle *o, uint32_t tier, uint64_t ns_handle);
int32_t oracle_coldest(oracle *o, uint32_t tier, uint32_t *turn);
bool oracle_displaces(oracle *o, uint64_t ns_handle);
kvp_status oracle_quota_call(oracle *o, const kvp_call *call, kvp_outcome *out);

/* oracle_learned.c: the learned policy. */
void oracle_learned_create(oracle *o);
int32_t oracle_learned_choose(oracle *o, int32_t first);
void oracle_learned_close(oracle *o, const oracle_seq *seq);
void oracle_learned_rest(oracle *o, int32_t block);
void oracle_learned_lost(oracle *o, int32_t block);
bool oracle_learned_spares(oracle *o, int32_t block);
void oracle_learned_follow(oracle *o, int32_t block, int32_t other);

/* oracle_plan.c: copies. */
uint32_t oracle_plan_room(const oracle *o);
void oracle_plan_add(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens);
void oracle_plan_keep(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens);
void oracle_plan_forget(oracle *o, int32_t block, uint64_t *mark);
kvp_status oracle_plan_take(oracle *o, const kvp_call *call, kvp_outcome *out);

/* oracle_steps.c */
kvp_status oracle_step_begin(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_step_commit(oracle *o, const kvp_call *call);
kvp_status oracle_step_done(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_step_failed(oracle *o, const kvp_call *call, kvp_outcome *out);
void oracle_commitments_cut(oracle *o, uint32_t place, uint32_t n_tokens);
void oracle_commitments_forget(oracle *o, uint32_t place);

/* oracle_swap.c */
kvp_status oracle_swap(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_can_swap(oracle *o, const kvp_call *call, kvp_outcome *out);

/* oracle_told.c: what events tell. */
uint32_t oracle_n_told(const oracle *o); /* groups */
kvp_status oracle_events_read(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_events_snapshot(oracle *o, const kvp_call *call, kvp_outcome *out);
void oracle_learn_snapshot(oracle *o, const kvp_call *call, const kvp_outcome *seen,
                           kvp_outcome *foretold);

/* oracle_lend.c: what stores need. */
kvp_status oracle_lend_call(oracle *o, const kvp_call *call, kvp_outcome *out);
void oracle_lend_stats(const oracle *o, kvp_stats *s);
void oracle_lend_reset(oracle *o);
void oracle_load_forget(oracle_load *load);
uint32_t oracle_loading(const oracle *o);
uint32_t oracle_loading_slots(const oracle *o);
uint32_t oracle_host_slot_take_for(oracle *o, uint32_t retention, uint64_t ns_handle);
void oracle_host_slot_release(oracle *o, uint32_t slot);
void oracle_state_loaded(oracle *o, uint32_t node, uint32_t host_slot, const oracle_load *load);

/* oracle_open.c */
kvp_status oracle_prompt_status(const oracle *o, const kvp_call *call, uint32_t *out_root);
void oracle_unit_keys(const oracle *o, const kvp_call *call, uint32_t unit, oracle_keys *keys);
bool oracle_is_uncached(const oracle *o, const kvp_call *call, uint32_t unit);
kvp_status oracle_match_call(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_can_open(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_open(oracle *o, const kvp_call *call, kvp_outcome *out);
uint32_t oracle_place_take(oracle *o);

/* oracle_values.c: values of tokens become units; computed units are sealed. */
bool oracle_is_public(const oracle *o, const oracle_seq *seq, uint32_t unit_idx,
                      const int32_t *tokens);
void oracle_values_add(oracle *o, oracle_seq *seq, const kvp_call *call, const int32_t *tokens,
                       uint32_t n_tokens);
void oracle_chain_push(oracle *o, oracle_seq *seq, uint32_t node);
bool oracle_keys_valid(const oracle *o, const kvp_call *call, uint32_t begin, uint32_t end,
                       const oracle_keys *tail, uint32_t tail_unit);
kvp_status oracle_fill(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_commit(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_commit_status(const oracle *o, const oracle_seq *seq, uint32_t n_tokens);
void oracle_commit_seq(oracle *o, oracle_seq *seq, uint32_t n_tokens);
uint32_t oracle_settled_units(const oracle *o, const oracle_seq *seq);
void oracle_seal(oracle *o, oracle_seq *seq, uint32_t from_unit);

/* oracle_windows.c: what windows keep, and drop. */
bool oracle_is_plain(const oracle *o);
bool oracle_keeps(const oracle *o, uint32_t group, kvp_window window, uint32_t entry,
                  uint64_t query);
bool oracle_lacks_at(const oracle *o, const oracle_seq *seq, uint32_t n_tokens, uint64_t query);
uint32_t oracle_n_blocks(const oracle *o, const oracle_seq *seq);
uint32_t oracle_windows_drop(oracle *o, oracle_seq *seq, uint32_t query, kvp_released *released);
void oracle_windows_cut(const oracle *o, oracle_seq *seq);
kvp_status oracle_window(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_window_get(oracle *o, const oracle_seq *seq, const kvp_call *call,
                             kvp_outcome *out);

/* oracle_states.c: recurrent state. */
bool oracle_has_states(const oracle *o);
uint32_t oracle_checkpoint(const oracle *o, uint32_t node);
uint32_t oracle_checkpoint_there(const oracle *o, uint32_t node);
/* What the slots of sequences that move to the other tier become. */
typedef struct oracle_state_move {
    uint32_t from, to; /* slots; 0: not taken yet */
    uint32_t readers;  /* sequences of the call */
    bool found;
} oracle_state_move;

typedef struct oracle_state_moves {
    oracle_state_move *items;
    uint32_t n, capacity;
    uint32_t n_new, n_cached, room;
} oracle_state_moves;

void oracle_state_list(const oracle *o, oracle_state_moves *m, const oracle_seq *seq,
                       uint32_t tier);
void oracle_state_room(const oracle *o, oracle_state_moves *m, const oracle_seq *seq,
                       uint64_t target);
uint32_t oracle_state_missing(const oracle *o, const oracle_state_moves *m, uint32_t tier);
void oracle_state_hold_found(oracle *o, const oracle_state_moves *m);
void oracle_state_copy(oracle *o, oracle_state_moves *m, const oracle_seq *seq, uint32_t tier);
void oracle_state_arrive(oracle *o, const oracle_state_moves *m, oracle_seq *seq);
void oracle_state_leave(oracle *o, oracle_seq *seq);
uint32_t oracle_state_kept(const oracle *o, const oracle_seq *seq, uint32_t n);
void oracle_slot_release(oracle *o, uint32_t slot);
void oracle_slot_hold(oracle *o, uint32_t slot);
uint32_t oracle_slot_take(oracle *o, const oracle_seq *seq);
uint32_t oracle_host_slot_take(oracle *o, const oracle_seq *seq);
int32_t oracle_slot_number(const oracle *o, uint32_t tier, uint32_t slot);
oracle_slot *oracle_slot_at(const oracle *o, int32_t number);
bool oracle_copies_state(const oracle_copy *copy);
bool oracle_state_spoiled(const oracle *o, const oracle_seq *seq);
void oracle_state_missed(oracle *o, const oracle_copy *copy);
void oracle_plan_state(oracle *o, uint32_t to_tier, uint32_t source, uint32_t destination);
uint32_t oracle_free_slots(const oracle *o);
void oracle_states_create(oracle *o);
void oracle_states_reset(oracle *o, bool fresh);
uint32_t oracle_slots_needed(const oracle *o, const oracle_seq *seq, uint64_t end);
uint32_t oracle_slots_missing(const oracle *o, bool has_entries, uint32_t checkpoint);
void oracle_state_grow(oracle *o, oracle_seq *seq, uint64_t end);
void oracle_state_open(oracle *o, oracle_seq *seq, const kvp_call *call, uint32_t hit_units,
                       uint32_t checkpoint);
void oracle_state_opened(const oracle *o, oracle_seq *seq);
void oracle_state_commit(oracle *o, oracle_seq *seq);
kvp_status oracle_state_commit_status(const oracle *o, const oracle_seq *seq, uint32_t n);
kvp_status oracle_ahead_status(oracle *o, const oracle_seq *seq, uint64_t step, uint32_t n);
void oracle_ahead_add(oracle *o, oracle_seq *seq, uint64_t step, uint32_t n);
uint32_t oracle_ahead_take(oracle_seq *seq);
void oracle_ahead_drop(oracle *o, oracle_seq *seq);
bool oracle_ahead_between(const oracle_seq *seq, uint32_t n);
void oracle_ahead_fail(oracle *o, oracle_seq *seq, uint64_t step);
void oracle_unpark_slots(oracle *o, uint64_t step);
bool oracle_is_retained(oracle *o, const oracle_seq *seq, uint32_t group, uint32_t i);
void oracle_move_ahead(oracle *o, int32_t block, uint32_t n);
bool oracle_slot_is_idle(const oracle *o, uint32_t slot);
bool oracle_state_lacks(const oracle *o, const oracle_seq *seq, uint32_t n);
void oracle_state_cut(oracle *o, oracle_seq *seq, uint32_t n);
void oracle_state_back(oracle *o, oracle_seq *seq, uint32_t before);
kvp_status oracle_state_fork_status(const oracle *o, const oracle_seq *parent, uint32_t at);
void oracle_state_fork(oracle *o, oracle_seq *parent, oracle_seq *child, uint32_t at);
void oracle_state_close(oracle *o, oracle_seq *seq);
uint32_t oracle_ring_slots(const oracle_seq *seq);
bool oracle_ring_asked(const oracle *o, const kvp_call *call);
kvp_status oracle_ring_status(oracle *o, const oracle_seq *seq, uint32_t n_tokens);
uint32_t oracle_ring_need(const oracle_seq *seq, uint32_t n_tokens);
void oracle_ring_grow(oracle *o, oracle_seq *seq);
void oracle_ring_keep(oracle *o, oracle_seq *seq, uint32_t n);
void oracle_ring_drop(oracle *o, oracle_seq *seq);
void oracle_ring_commit(oracle *o, oracle_seq *seq);
void oracle_state_withdraw(oracle *o, uint32_t node);
void oracle_slot_clear(oracle *o, uint32_t slot);
void oracle_state_follow(oracle *o, int32_t block, bool kept);
kvp_status oracle_checkpoint_call(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_state_read(const oracle *o, const kvp_call *call, kvp_outcome *out);
bool oracle_slot_info(const oracle *o, const kvp_call *call, kvp_block_info *info);

/* oracle_trees.c */
bool oracle_tree_drop(oracle *o, oracle_seq *seq);
bool oracle_tree_awaited(const oracle *o, const oracle_seq *seq);
void oracle_tree_grow(oracle *o, oracle_seq *seq, const kvp_call *call, uint64_t first, uint32_t n);
bool oracle_parents_valid(const oracle_seq *seq, const kvp_call *call, uint64_t first, uint32_t n);
kvp_status oracle_accept(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_tree(oracle *o, const oracle_seq *seq, const kvp_call *call, kvp_outcome *out);

/* oracle_extend.c */
void oracle_rows_grow(const oracle *o, oracle_seq *seq, const uint32_t *n);
void oracle_make_room(oracle *o, oracle_seq *seq, uint32_t n_tokens, uint32_t reserve);
kvp_status oracle_extend(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_can_extend(oracle *o, const kvp_call *call, kvp_outcome *out);

/* One sequence of a batch: its values are tokens[first_token ...]. */
typedef struct oracle_member {
    uint32_t place;
    uint32_t n_tokens;
    uint64_t first_token;
} oracle_member;

/* Handles of a batch, or of the single form; the whole call's own errors. */
typedef struct oracle_batch {
    uint32_t n;
    uint32_t fault; /* when it was refused: the sequence at fault */
    bool each;
    oracle_member *members; /* [n]; place ORACLE_NONE: a bad handle (EACH) */
} oracle_batch;

/* Is it one of those of the batch that have a ring? */
bool oracle_ring_member(oracle *o, const kvp_call *call, const oracle_member *member);
kvp_status oracle_batch_read(oracle *o, const kvp_call *call, bool may_each, oracle_batch *out);
void oracle_batch_free(oracle_batch *batch);

/* oracle_seqs.c: invalidate, fork, truncate, close, reset. */
kvp_status oracle_invalidate(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_fork(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_truncate(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_close(oracle *o, const kvp_call *call, kvp_outcome *out);
kvp_status oracle_retain(oracle *o, const kvp_call *call);
kvp_status oracle_uncache(oracle *o, const kvp_call *call);
kvp_status oracle_prompt_end(oracle *o, const kvp_call *call);
void oracle_reset(oracle *o);
void oracle_row_release(oracle *o, oracle_seq *seq, uint32_t n_tokens, kvp_released *released);

/* oracle_reads.c */
kvp_status oracle_read(oracle *o, const kvp_call *call, kvp_outcome *out);

static inline uint32_t oracle_lower(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t oracle_ceil(uint64_t n, uint32_t by)
{
    return (uint32_t)((n + by - 1) / by);
}

#endif

/* Recurrent state with overlapped steps and a host tier: a state that a copy brings is there when
 * its step is done. If that fails, those who share the slot lose their state, and nobody else. */
#include <kvpager/lend.h>
#include <kvpager/states.h>

#include "groups.h"
#include "slots.h"
#include "tiers.h"

/* Blocks of 4 tokens, one unit each; 16 blocks and 8 slots on the device, 9 and 4 on the host. */
static world moving_world(uint32_t max_loads)
{
    kvp_config config = steps_config(4, 4, 16, 9);
    config.state_slots = 9;
    config.host_state_slots = 5;
    config.max_loads = max_loads;
    return make_world(&config);
}

/* Begin a step. Gives its number, and its copies of states. */
static uint64_t begin(const world *w, kvp_copy *out_states, uint32_t *out_n)
{
    kvp_copy copies[64];
    uint32_t n;
    uint64_t step;
    *out_n = 0;
    assert_ok(kvp_step_begin(w->cache, copies, 64, &n, &step));
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].group == 1)
            out_states[(*out_n)++] = copies[i];
    return step;
}

/* A step without copies of states. */
static uint64_t begin_other(const world *w)
{
    kvp_copy states[4];
    uint32_t n;
    const uint64_t step = begin(w, states, &n);
    assert_int_equal(n, 0);
    return step;
}

/* A step with one copy of a state. */
static uint64_t begin_move(const world *w, uint32_t to, int32_t src, int32_t dst)
{
    kvp_copy states[4];
    uint32_t n;
    const uint64_t step = begin(w, states, &n);
    assert_int_equal(n, 1);
    assert_fields(states[0], src_tier, !to, dst_tier, to, src_block, src, dst_block, dst, n_tokens,
                  1);
    return step;
}

/* Gives how many sequences lost something; the first of them is `first`. */
static uint32_t fail_step(const world *w, uint64_t step, kvp_seq first)
{
    kvp_seq seqs[8] = {{0}};
    uint32_t n;
    assert_ok(kvp_step_failed(w->cache, step, seqs, 8, &n));
    assert_true(n == 0 || seqs[0].bits == first.bits);
    return n;
}

static void assert_audited(const world *w)
{
    kvp_violation violation;
    assert_ok(kvp_cache_check(w->cache, 3, &violation));
}

/* A sequence of n tokens, computed; its state is in slot 1. */
static kvp_seq open_computed(world *w, uint32_t n)
{
    const kvp_seq seq = open_seq(w, ints(0), n, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    assert_slots(w, seq, 1, 0);
    return seq;
}

/* On the host, all copies done; its state is in slot 1 there, and slot 2 of the device is next. */
static kvp_seq open_moved(world *w, uint32_t n)
{
    const kvp_seq seq = open_computed(w, n);
    const kvp_seq other = open_seq(w, ints(500), 1, NULL); /* takes slot 2 */
    (void)swap_out(w, &seq, 1);
    (void)done_step(w, begin_move(w, KVP_HOST, 1, 1));
    assert_slots(w, seq, 1, 0);
    close_seq(w, other);
    return seq;
}

TEST(test_a_state_moves_while_steps_are_out)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_computed(&w, 8);
    const uint64_t before = begin_other(&w);
    (void)swap_out(&w, &seq, 1);
    assert_int_equal(slots_of(&w).parked_slots, 1); /* the one that is copied */
    assert_int_equal(slots_of(&w).host_held_slots, 1);
    const uint64_t out = begin_move(&w, KVP_HOST, 1, 1);
    (void)done_step(&w, before);
    assert_int_equal(slots_of(&w).parked_slots, 0);
    (void)swap_in(&w, &seq, 1, 1);
    const uint64_t in = begin_move(&w, KVP_DEVICE, 1, 1);
    const kvp_state_info info = state_of(&w, seq);
    assert_int_equal(info.read_slot, 1);
    assert_int_not_equal(info.write_slot, 1); /* though it is alone with what it reads */
    assert_int_equal(info.lost, 0);
    (void)done_step(&w, out);
    (void)done_step(&w, in);
    assert_int_equal(slots_of(&w).held_slots, 2);
}

/* One for the state, and one to write: though it is alone with what it reads. */
TEST(test_the_way_back_takes_two_slots)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    kvp_seq others[7];
    uint32_t need = 77;
    for (uint32_t i = 0; i < 7; i++)
        others[i] = open_seq(&w, ints(100 + 10 * (int32_t)i), 1, NULL);
    assert_ok(kvp_state_swap_need(w.cache, &seq, 1, 1, &need));
    assert_int_equal(need, 2);
    assert_admission(can_swap_in(&w, &seq, 1, 1), KVP_ADMIT_LATER, 3, 9, 0);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_in(w.cache, &seq, 1, 1, NULL));
    assert_shortage_in(&w, KVP_STATE_SLOTS, KVP_E_NO_BLOCKS, 0, 1);
    assert_ok(kvp_state_swap_need(w.cache, &seq, 1, 0, &need));
    assert_int_equal(need, 1);
    close_seq(&w, others[0]);
    (void)swap_in(&w, &seq, 1, 1);
    assert_int_equal(slots_of(&w).free_slots, 0);
}

/* The state after the computed tokens goes, not the one that a step leaves. */
TEST(test_what_steps_leave_stays_behind)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_computed(&w, 4);
    const uint32_t n = 5;
    assert_ok(kvp_seq_extend(w.cache, seq, ints(50), 1, 0)); /* writes slot 2 */
    const uint64_t step = begin_other(&w);
    assert_ok(kvp_step_commit(w.cache, step, &seq, &n, 1));
    assert_slots(&w, seq, 2, 0);
    (void)swap_out(&w, &seq, 1);
    assert_int_equal(slots_of(&w).parked_slots, 2);
    const uint64_t out = begin_move(&w, KVP_HOST, 1, 1);
    (void)done_step(&w, step);
    (void)done_step(&w, out);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
}

TEST(test_a_state_that_did_not_arrive_is_lost)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 6);
    (void)swap_in(&w, &seq, 1, 1);
    kvp_seq child;
    assert_ok(kvp_seq_fork(w.cache, seq, KVP_END, 0, &child));
    const kvp_seq stranger = open_seq(&w, ints(100), 3, NULL);
    const uint32_t slot = state_of(&w, seq).read_slot;
    const uint64_t step = begin_move(&w, KVP_DEVICE, 1, (int32_t)slot);
    assert_int_equal(fail_step(&w, step, seq), 2);
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_int_equal(state_of(&w, child).lost, 1);
    assert_int_equal(state_of(&w, stranger).lost, 0);
    assert_status(KVP_E_DROPPED, kvp_seq_extend(w.cache, seq, ints(0), 1, 0));
    assert_int_equal(slots_of(&w).held_slots, 1);
}

/* The KV was found on the device: only the state had to be copied. */
TEST(test_kv_that_is_there_stays)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    assert_int_equal(swap_in(&w, &seq, 1, 0).copied_blocks, 0);
    const uint32_t slot = state_of(&w, seq).read_slot;
    const uint64_t step = begin_move(&w, KVP_DEVICE, 1, (int32_t)slot);
    assert_int_equal(fail_step(&w, step, seq), 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
    assert_int_equal(state_of(&w, seq).lost, 1);
}

/* What a later step would commit of it rests on the state; so does what the earlier one would. */
TEST(test_commits_of_a_lost_state_are_dropped)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    const uint64_t before = begin_other(&w);
    const uint32_t n = 9;
    (void)swap_in(&w, &seq, 1, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(50), 1, 0));
    const uint32_t slot = state_of(&w, seq).read_slot;
    const uint64_t step = begin_move(&w, KVP_DEVICE, 1, (int32_t)slot);
    assert_ok(kvp_step_commit(w.cache, before, &seq, &n, 1));
    assert_int_equal(fail_step(&w, step, seq), 1);
    (void)done_step(&w, before);
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_int_equal(slots_of(&w).held_slots, 0);
}

/* A checkpoint that another sequence made in the meantime has the same state. */
TEST(test_a_checkpoint_takes_the_place_of_a_lost_state)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_computed(&w, 8);
    kvp_seq child;
    assert_ok(kvp_seq_fork(w.cache, seq, KVP_END, 0, &child)); /* reads slot 1, too */
    (void)swap_out(&w, &seq, 1);
    (void)done_step(&w, begin_move(&w, KVP_HOST, 1, 1));
    (void)swap_in(&w, &seq, 1, 0);
    const uint64_t step = begin_move(&w, KVP_DEVICE, 1, 2);
    assert_int_equal(checkpoint(&w, child), KVP_CHECKPOINT_MADE);
    assert_int_equal(fail_step(&w, step, seq), 1);
    assert_slots(&w, seq, 1, 0);
    assert_int_equal(state_of(&w, seq).lost, 0);
}

TEST(test_no_checkpoint_of_what_is_not_there)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    (void)swap_in(&w, &seq, 1, 0);
    const uint32_t slot = state_of(&w, seq).read_slot;
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    const uint64_t before = begin_move(&w, KVP_DEVICE, 1, (int32_t)slot);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    assert_int_equal(slots_of(&w).skipped, 2);
    (void)done_step(&w, before);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
}

/* A state on the host that never came there: the sequence can only be closed. */
TEST(test_a_state_that_did_not_leave_is_lost)
{
    scoped_world w = moving_world(0);
    const kvp_seq other = open_seq(&w, ints(0), 9, NULL);
    assert_ok(kvp_seq_commit(w.cache, other, 9));
    (void)swap_out(&w, &other, 1); /* its KV is on the host, too */
    (void)done_step(&w, begin_move(&w, KVP_HOST, 1, 1));
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    const kvp_swapped swapped = swap_out(&w, &seq, 1);
    assert_int_equal(swapped.copied_blocks, 0);
    const uint64_t step = begin_move(&w, KVP_HOST, (int32_t)1, 2);
    assert_int_equal(fail_step(&w, step, seq), 1);
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
    assert_int_equal(slots_of(&w).host_held_slots, 1);
    assert_status(KVP_E_DROPPED, kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL));
    assert_int_equal(state_of(&w, other).lost, 0);
    close_seq(&w, seq);
}

/* With its KV the sequence loses all tokens: none of them needs a state. */
TEST(test_nothing_is_left_of_a_sequence_that_did_not_leave)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_computed(&w, 6);
    (void)swap_out(&w, &seq, 1);
    const uint64_t step = begin_move(&w, KVP_HOST, 1, 1);
    assert_int_equal(fail_step(&w, step, seq), 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 0);
    assert_int_equal(state_of(&w, seq).lost, 0);
    assert_int_equal(slots_of(&w).host_held_slots, 0);
    (void)swap_in(&w, &seq, 1, 0);
    assert_int_equal(state_of(&w, seq).read_slot, 0);
}

/* Out, in, and out again before any of it has run: all rests on the first copy. */
TEST(test_what_was_copied_on_is_lost_too)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    (void)swap_in(&w, &seq, 1, 0);
    const int32_t slot = (int32_t)state_of(&w, seq).read_slot;
    const uint64_t in = begin_move(&w, KVP_DEVICE, 1, slot);
    (void)swap_out(&w, &seq, 1);
    const int32_t there = (int32_t)state_of(&w, seq).read_slot;
    const uint64_t out = begin_move(&w, KVP_HOST, slot, there);
    assert_int_equal(fail_step(&w, in, seq), 1);
    assert_int_equal(state_of(&w, seq).lost, 1);
    (void)done_step(&w, out);
}

/* A slot that was taken anew since has nothing of the copy that failed. */
TEST(test_a_slot_that_was_taken_anew_is_good)
{
    scoped_world w = moving_world(0);
    const kvp_seq seq = open_moved(&w, 8);
    (void)swap_in(&w, &seq, 1, 0);
    const int32_t slot = (int32_t)state_of(&w, seq).read_slot;
    (void)swap_out(&w, &seq, 1); /* the copy that brings it stays: this one reads of it */
    assert_audited(&w);
    const kvp_seq other = open_seq(&w, ints(100), 2, NULL);
    assert_int_equal(state_of(&w, other).write_slot, slot);
    kvp_copy states[4];
    uint32_t n;
    const uint64_t step = begin(&w, states, &n);
    assert_int_equal(n, 2);
    assert_ok(kvp_seq_commit(w.cache, other, 2));
    assert_int_equal(fail_step(&w, step, seq), 1);
    assert_fields(state_of(&w, other), lost, 0, read_slot, slot);
}

/* ---------------------------------------------------------------------------------------- loads */

/* The KV of two blocks is cached, and the state after them was loaded. */
static kvp_prompt load_state(world *w)
{
    const kvp_prompt prompt = prompt_of(ints(0), 9);
    int32_t slot = 0;
    const uint8_t whole = 1;
    kvp_load load = {.struct_size = sizeof(load), .group = 1, .entries = {1, 2}, .blocks = &slot};
    close_seq(w, open_computed(w, 8));
    assert_ok(kvp_load_begin(w->cache, w->ns, &prompt, &load));
    assert_int_equal(load.n_blocks, 1);
    assert_ok(kvp_load_done(w->cache, load.number, &whole, 1, NULL));
    return prompt;
}

static uint32_t hit_of(world *w, const kvp_prompt *prompt)
{
    kvp_open_info info;
    kvp_seq seq;
    assert_ok(kvp_seq_open(w->cache, w->ns, prompt, &seq, &info));
    close_seq(w, seq);
    return info.hit_tokens;
}

TEST(test_a_loaded_state_is_hit_when_it_is_there)
{
    scoped_world w = moving_world(2);
    const kvp_prompt prompt = load_state(&w);
    assert_audited(&w);
    assert_int_equal(hit_of(&w, &prompt), 0);
    kvp_copy states[4];
    uint32_t n;
    const uint64_t step = begin(&w, states, &n);
    assert_int_equal(n, 1);
    assert_int_equal(hit_of(&w, &prompt), 0);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL); /* computes it, too */
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    (void)done_step(&w, step);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_THERE);
    assert_int_equal(hit_of(&w, &prompt), 8);
}

TEST(test_a_loaded_state_that_did_not_arrive_is_none)
{
    scoped_world w = moving_world(2);
    const kvp_prompt prompt = load_state(&w);
    kvp_copy states[4];
    uint32_t n;
    const uint64_t step = begin(&w, states, &n);
    assert_int_equal(slots_of(&w).cached_slots, 1);
    assert_int_equal(fail_step(&w, step, (kvp_seq){0}), 0);
    assert_int_equal(slots_of(&w).cached_slots, 0);
    assert_int_equal(hit_of(&w, &prompt), 0);
}

/* ------------------------------------------------------------------------------------ evictions */

/* A block that goes to the host leaves its checkpoint. With ordered steps it is there at once. */
TEST(test_a_checkpoint_waits_for_its_block)
{
    kvp_config config = steps_config(4, 4, 4, 9);
    config.state_slots = 9;
    config.host_state_slots = 5;
    config.keep_evicted = KVP_EVICTED_KEEP;
    scoped_world w = make_world(&config);
    const kvp_prompt prompt = prompt_of(ints(0), 9);
    const kvp_seq seq = open_computed(&w, 8);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    close_seq(&w, seq);
    close_seq(&w, open_seq(&w, ints(100), 16, NULL)); /* evicts both blocks */
    assert_int_equal(slots_of(&w).cached_slots, 1);
    assert_int_equal(hit_of(&w, &prompt), 0);
    (void)done_step(&w, begin_other(&w));
    assert_int_equal(hit_of(&w, &prompt), 8);
}

TEST_MAIN(NULL, NULL)

/* Recurrent state with a host tier: sequences that are swapped, slots that are missing, checkpoints
 * whose blocks are on the other tier. */
#include <kvpager/states.h>
#include <kvpager/swap.h>

#include "groups.h"
#include "slots.h"

static world host_world(uint32_t usable, uint32_t slots, uint32_t host_slots)
{
    kvp_config config = config_of(4, 4, usable);
    config.state_slots = slots;
    config.host_blocks = 9;
    config.host_state_slots = host_slots;
    return make_world(&config);
}

/* The copies of states in the plan, which is taken. */
static uint32_t take_states(const world *w, kvp_copy *out)
{
    kvp_copy copies[64];
    uint32_t n, n_states = 0;
    assert_ok(kvp_plan_take(w->cache, copies, 64, &n));
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].group == 1)
            out[n_states++] = copies[i];
    return n_states;
}

static void assert_copy(const kvp_copy *copy, uint32_t to, int32_t src, int32_t dst)
{
    assert_fields(*copy, src_tier, !to, dst_tier, to, src_block, src, dst_block, dst, n_tokens, 1);
}

static void assert_missing(const world *w, uint32_t tier, uint64_t missing)
{
    kvp_shortage shortage;
    assert_ok(kvp_cache_shortage_get(w->cache, &shortage));
    assert_fields(shortage, tier, tier, missing_blocks, missing);
}

TEST(test_out_and_in)
{
    scoped_world w = host_world(8, 5, 3);
    kvp_copy copy[4];
    kvp_state_stats stats;
    kvp_block_info info;
    uint32_t outcome;
    const kvp_seq seq = open_done(&w, ints(0), 8); /* reads and writes slot 1 */
    assert_slots(&w, seq, 1, 1);
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    assert_slots(&w, seq, 1, 0); /* of the host */
    assert_int_equal(take_states(&w, copy), 1);
    assert_copy(copy, KVP_HOST, 1, 1);
    assert_ok(kvp_cache_state_stats_get(w.cache, &stats));
    assert_fields(stats, free_slots, 4, host_usable_slots, 2, host_held_slots, 1, host_free_slots,
                  1);
    assert_ok(kvp_block_info_get(w.cache, 1, KVP_HOST, 1, &info));
    assert_int_equal(info.state, KVP_BLOCK_HELD);
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_HOST, 3, &info));
    assert_status(KVP_E_STATE, kvp_seq_checkpoint(w.cache, seq, &outcome));
    int32_t slots[2];
    assert_status(KVP_E_STATE, kvp_meta_states(w.cache, &seq, 1, &slots[0], &slots[1]));
    const kvp_seq other = open_seq(&w, ints(50), 3, NULL); /* takes slot 1 */
    assert_ok(kvp_seq_swap_in(w.cache, &seq, 1, 1, NULL));
    assert_slots(&w, seq, 2, 2); /* alone: it writes what it reads */
    assert_int_equal(take_states(&w, copy), 1);
    assert_copy(copy, KVP_DEVICE, 1, 2);
    close_seq(&w, seq);
    close_seq(&w, other);
}

/* Sequences that share a state share its copy, and then each needs a slot to write. */
TEST(test_what_is_shared_is_copied_once)
{
    scoped_world w = host_world(8, 6, 2);
    kvp_copy copy[4];
    kvp_seq seqs[2] = {open_done(&w, ints(0), 6)};
    assert_ok(kvp_seq_fork(w.cache, seqs[0], KVP_END, 0, &seqs[1]));
    assert_ok(kvp_seq_swap_out(w.cache, seqs, 2, NULL));
    assert_int_equal(take_states(&w, copy), 1);
    assert_slots(&w, seqs[0], 1, 0);
    assert_slots(&w, seqs[1], 1, 0);
    assert_ok(kvp_seq_swap_in(w.cache, seqs, 2, 1, NULL));
    assert_int_equal(take_states(&w, copy), 1);
    assert_slots(&w, seqs[0], 1, 2);
    assert_slots(&w, seqs[1], 1, 3);
    close_seq(&w, seqs[0]);
    close_seq(&w, seqs[1]);
}

/* One slot that they read, and one for each to write. */
TEST(test_slots_of_those_that_share)
{
    scoped_world w = host_world(8, 6, 2);
    kvp_copy copy[4];
    kvp_seq seqs[2] = {open_done(&w, ints(0), 6)};
    assert_ok(kvp_seq_fork(w.cache, seqs[0], KVP_END, 0, &seqs[1]));
    assert_ok(kvp_seq_swap_out(w.cache, seqs, 2, NULL));
    (void)take_states(&w, copy);
    kvp_seq more[3];
    for (int32_t i = 0; i < 3; i++)
        more[i] = open_seq(&w, ints(100 * (i + 1)), 3, NULL);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_in(w.cache, seqs, 2, 1, NULL));
    assert_missing(&w, KVP_STATE_SLOTS, 1);
    close_seq(&w, more[2]);
    assert_ok(kvp_seq_swap_in(w.cache, seqs, 2, 1, NULL));
    close_seq(&w, more[0]);
    close_seq(&w, more[1]);
    close_seq(&w, seqs[0]);
    close_seq(&w, seqs[1]);
}

/* A checkpoint that is there still is read where it is. */
TEST(test_a_checkpoint_is_found)
{
    scoped_world w = host_world(8, 4, 2);
    kvp_copy copy[4];
    uint32_t outcome;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    assert_int_equal(take_states(&w, copy), 1);
    assert_ok(kvp_seq_swap_in(w.cache, &seq, 1, 1, NULL));
    assert_int_equal(take_states(&w, copy), 0);
    const kvp_state_info info = state_of(&w, seq);
    assert_int_equal(info.read_slot, 1);
    assert_true(info.write_slot > 1);
    close_seq(&w, seq);
}

/* The checkpoint that a sequence finds is no room for the slot that it writes. */
TEST(test_a_found_checkpoint_is_not_available)
{
    scoped_world w = host_world(8, 4, 2);
    kvp_admission admission;
    kvp_copy copy[4];
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    (void)take_states(&w, copy);
    const kvp_seq more[2] = {open_seq(&w, ints(100), 3, NULL), open_seq(&w, ints(200), 3, NULL)};
    assert_ok(kvp_cache_can_swap_in(w.cache, &seq, 1, 1, &admission));
    assert_int_equal(admission.verdict, KVP_ADMIT_LATER);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_in(w.cache, &seq, 1, 1, NULL));
    assert_missing(&w, KVP_STATE_SLOTS, 1);
    close_seq(&w, more[0]);
    assert_ok(kvp_seq_swap_in(w.cache, &seq, 1, 1, NULL));
    close_seq(&w, more[1]);
    close_seq(&w, seq);
}

/* Neither way is begun without slots: the calls say which are missing, and nothing has changed. */
TEST(test_slots_that_are_missing)
{
    scoped_world w = host_world(8, 4, 2);
    kvp_admission admission;
    kvp_copy copy[4];
    const kvp_seq seqs[2] = {open_done(&w, ints(0), 4), open_done(&w, ints(50), 4)};
    assert_ok(kvp_cache_can_swap_out(w.cache, seqs, 2, &admission));
    assert_fields(admission, verdict, KVP_ADMIT_LATER, missing_blocks, 0);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_out(w.cache, seqs, 2, NULL));
    assert_missing(&w, KVP_HOST_STATE_SLOTS, 1);
    assert_ok(kvp_seq_swap_out(w.cache, seqs, 1, NULL));
    (void)take_states(&w, copy);
    const kvp_seq more[2] = {open_seq(&w, ints(100), 3, NULL), open_seq(&w, ints(200), 3, NULL)};
    assert_ok(kvp_cache_can_swap_in(w.cache, seqs, 1, 1, &admission));
    assert_fields(admission, verdict, KVP_ADMIT_LATER, missing_blocks, 0);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_in(w.cache, seqs, 1, 1, NULL));
    assert_missing(&w, KVP_STATE_SLOTS, 1);
    close_seq(&w, more[0]);
    assert_ok(kvp_seq_swap_in(w.cache, seqs, 1, 1, NULL));
    close_seq(&w, more[1]);
    close_seq(&w, seqs[0]);
    close_seq(&w, seqs[1]);
}

/* A copy into a slot that is free again is taken out of the plan. */
TEST(test_copies_nobody_needs)
{
    scoped_world w = host_world(8, 4, 2);
    kvp_copy copy[4];
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    close_seq(&w, seq);
    assert_int_equal(take_states(&w, copy), 0);
}

/* A block that is kept on the host leaves its checkpoint where it is; the prompt hits both. When
 * the host loses the block, too, the checkpoint goes. */
TEST(test_checkpoints_of_blocks_on_the_host)
{
    scoped_world w = host_world(4, 6, 2);
    kvp_state_stats stats;
    kvp_open_info info;
    kvp_copy copy[4];
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    close_seq(&w, seq);
    leave_cached(&w, ints(100), 15); /* takes all four blocks */
    (void)take_states(&w, copy);
    assert_ok(kvp_cache_state_stats_get(w.cache, &stats));
    assert_int_equal(stats.cached_slots, 1);
    const kvp_seq again = open_seq(&w, ints(0), 11, &info);
    assert_fields(info, hit_tokens, 8, host_blocks, 2);
    assert_int_equal(state_of(&w, again).read_slot, 1);
    close_seq(&w, again);
    for (int i = 2; i < 6; i++)
        leave_cached(&w, ints(100 * i), 15);
    (void)take_states(&w, copy);
    assert_ok(kvp_cache_state_stats_get(w.cache, &stats));
    assert_fields(stats, cached_slots, 0, evicted, 1);
}

/* A hit ends inside a block that only the host has: what it needs of it is copied from there. */
TEST(test_a_hit_inside_a_block_on_the_host)
{
    kvp_config config = config_of(4, 2, 4);
    config.state_slots = 6;
    config.host_blocks = 9;
    config.host_state_slots = 2;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    kvp_copy copies[8];
    uint32_t n;
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    close_seq(&w, seq);
    leave_cached(&w, ints(100), 15); /* takes all four blocks */
    drop_plan(&w);
    const kvp_seq again = open_seq(&w, ints(0), 8, &info);
    assert_fields(info, hit_tokens, 6, host_blocks, 1, host_tokens, 6);
    assert_ok(kvp_plan_take(w.cache, copies, 8, &n));
    assert_int_equal(copies[n - 1].src_tier, KVP_HOST);
    assert_int_equal(copies[n - 1].dst_block, row_of(&w, 0, again)[1]);
    assert_int_equal(copies[n - 1].n_tokens, 2);
}

/* The plan has room for fewer blocks than the prompt has on the host. */
TEST(test_a_hit_that_the_plan_cuts)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 8;
    config.host_blocks = 32;
    config.host_state_slots = 2;
    config.max_copies = 4;
    scoped_world w = make_world(&config);
    kvp_copy copies[8];
    uint32_t n;
    kvp_seq seq = open_seq(&w, ints(0), 24, NULL);
    for (uint32_t tokens = 4; tokens <= 24; tokens += 4) {
        uint32_t outcome = KVP_CHECKPOINT_MADE;
        assert_ok(kvp_seq_commit(w.cache, seq, tokens));
        if (tokens == 8 || tokens == 24)
            assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
        assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    }
    close_seq(&w, seq);
    for (int32_t i = 0; i < 8; i++) { /* one after the other leaves the device */
        leave_cached(&w, ints(100 + 10 * i), 4);
        assert_ok(kvp_plan_take(w.cache, copies, 8, &n));
    }
    kvp_open_info info;
    (void)open_seq(&w, ints(0), 25, &info);
    assert_fields(info, hit_tokens, 8, host_tokens, 8, stop, KVP_STOP_NO_ROOM);
}

/* A hit inside a block that is given up ends at a checkpoint of fewer blocks: those behind it are
 * not copied from the host, and do not count. */
TEST(test_host_tokens_of_a_hit_that_was_given_up)
{
    kvp_config config = config_of(8, 4, 4);
    config.state_slots = 8;
    config.host_blocks = 8;
    config.host_state_slots = 2;
    scoped_world w = make_world(&config);
    uint32_t outcome;
    kvp_open_info info;
    kvp_seq seq = open_seq(&w, ints(0), 20, NULL);
    for (uint32_t tokens = 8; tokens <= 20; tokens += 12) {
        assert_ok(kvp_seq_commit(w.cache, seq, tokens));
        assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
        assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    }
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){16, 20}, 1));
    close_seq(&w, seq);
    close_seq(&w, open_seq(&w, ints(200), 24, NULL)); /* the first two go to the host */
    drop_plan(&w);
    info = match(&w, ints(0), 25);
    assert_fields(info, hit_tokens, 20, host_tokens, 16);
    kvp_prompt prompt = prompt_of(ints(0), 25);
    prompt.reserve_tokens = 7; /* 4 blocks, and no fifth for the source of the third */
    seq = open_with(&w, &prompt, &info);
    assert_fields(info, stop, KVP_STOP_NO_ROOM, hit_tokens, 8, host_blocks, 1, host_tokens, 8);
    assert_int_equal(stats_of(&w).host_tokens, 8);
    assert_int_equal(info.taken_blocks, 4);
    close_seq(&w, seq);
}

/* A state that is lost stays lost on the host, and the sequence cannot come back. */
TEST(test_a_lost_state)
{
    scoped_world w = host_world(8, 4, 2);
    kvp_copy copy[4];
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    assert_int_equal(take_states(&w, copy), 0);
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_status(KVP_E_DROPPED, kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL));
    close_seq(&w, seq);
}

TEST_MAIN(NULL, NULL)

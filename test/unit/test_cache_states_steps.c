/* Recurrent state with overlapped steps (states.h): no step writes the slot that it reads, steps
 * build on what others leave behind, a failed step goes back to what it read, slots are parked. */
#include <kvpager/states.h>

#include "groups.h"
#include "tiers.h"
#include "slots.h"

static world steps_of_states(uint32_t S, uint32_t state_slots)
{
    kvp_config config = steps_config(S, 4, 16, 0);
    config.state_slots = state_slots;
    return make_world(&config);
}

/* Free, cached, held and parked slots. */
#define assert_counts(w, free_, cached_, held_, parked_)                                           \
    do {                                                                                           \
        kvp_state_stats stats_;                                                                    \
        assert_ok(kvp_cache_state_stats_get((w)->cache, &stats_));                                 \
        assert_int_equal(stats_.free_slots, free_);                                                \
        assert_int_equal(stats_.cached_slots, cached_);                                            \
        assert_int_equal(stats_.held_slots, held_);                                                \
        assert_int_equal(stats_.parked_slots, parked_);                                            \
    } while (0)

/* Begin the next step, which will commit n tokens of the sequence; 0: nothing. */
static uint64_t begin(const world *w, kvp_seq seq, uint32_t n)
{
    kvp_copy copies[16];
    uint32_t n_copies;
    uint64_t step;
    assert_ok(kvp_step_begin(w->cache, copies, 16, &n_copies, &step));
    assert_ok(kvp_step_commit(w->cache, step, &seq, &n, 1));
    return step;
}

static void grow(const world *w, kvp_seq seq, uint32_t n)
{
    assert_ok(kvp_seq_extend(w->cache, seq, n == 0 ? NULL : ints(500), n, 0));
}

/* Step 1 has computed four of its tokens, and their state is kept. */
static kvp_seq open_kept(world *w, uint32_t n_tokens)
{
    const kvp_seq seq = open_seq(w, ints(0), n_tokens, NULL);
    (void)begin(w, seq, 4);
    (void)done_step(w, 1);
    assert_int_equal(checkpoint(w, seq), KVP_CHECKPOINT_MADE);
    return seq;
}

static void fail_step(const world *w, uint64_t step)
{
    assert_ok(kvp_step_failed(w->cache, step, NULL, 0, NULL));
}

/* 12 tokens, of which steps 1 to 3 compute 4 each, in slots 1 to 3. Slot 4 is next. */
static world three_out(uint32_t state_slots, kvp_seq *out_seq)
{
    world w = steps_of_states(4, state_slots);
    *out_seq = open_seq(&w, ints(0), 12, NULL);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(begin(&w, *out_seq, 4 * i), i);
        grow(&w, *out_seq, 0);
    }
    assert_slots(&w, *out_seq, 3, 4);
    return w;
}

TEST(test_a_step_reads_what_the_one_before_it_leaves)
{
    scoped_world w = steps_of_states(4, 6);
    int32_t read = 77, write = 77;
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_slots(&w, seq, 0, 1);
    (void)begin(&w, seq, 4);
    assert_slots(&w, seq, 1, 0);
    assert_status(KVP_E_STATE, kvp_meta_states(w.cache, &seq, 1, &read, &write));
    assert_int_equal(read, 77);
    grow(&w, seq, 0);
    assert_ok(kvp_meta_states(w.cache, &seq, 1, &read, &write));
    assert_int_equal(read, 1);
    assert_int_equal(write, 2);
    (void)begin(&w, seq, 8);
    assert_slots(&w, seq, 2, 0);
    assert_counts(&w, 3, 0, 2, 0);
    (void)done_step(&w, 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    assert_counts(&w, 3, 0, 2, 0); /* slot 1 has the state after 4 tokens */
    (void)done_step(&w, 2);
    assert_counts(&w, 4, 0, 1, 0);
    assert_slots(&w, seq, 2, 0);
}

TEST(test_what_is_released_waits_for_the_steps)
{
    kvp_seq seq;
    scoped_world w = three_out(5, &seq);
    const kvp_prompt other = prompt_of(ints(100), 5);
    close_seq(&w, seq);
    assert_counts(&w, 0, 0, 0, 4);
    assert_admission(can_open(&w, &other), KVP_ADMIT_LATER, 2, 13, 0);
    assert_int_equal(done_step(&w, 3), 0); /* noted only */
    assert_counts(&w, 0, 0, 0, 4);
    (void)done_step(&w, 1);
    (void)done_step(&w, 2);
    assert_counts(&w, 4, 0, 0, 0);
    assert_admission(can_open(&w, &other), KVP_ADMIT_OK, 2, 16, 0);
}

TEST(test_slots_are_queued_in_the_order_of_their_release)
{
    kvp_seq seq;
    scoped_world w = three_out(5, &seq);
    close_seq(&w, seq); /* the slot that is written, those of steps 3 to 1 */
    for (uint64_t step = 1; step <= 3; step++)
        (void)done_step(&w, step);
    for (int32_t first = 100, slot = 1; slot <= 3; slot++, first += 100)
        assert_slots(&w, open_seq(&w, ints(first), 1, NULL), 0, slot);
}

TEST(test_a_failed_step_goes_back_to_what_it_read)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    (void)done_step(&w, 1);
    fail_step(&w, 2); /* step 3 rests on it */
    assert_slots(&w, seq, 1, 4);
    assert_counts(&w, 1, 0, 2, 2);
    (void)done_step(&w, 3);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    assert_counts(&w, 3, 0, 2, 0);
    (void)begin(&w, seq, 8);
    (void)done_step(&w, 4);
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
    assert_slots(&w, seq, 4, 0);
}

TEST(test_a_failure_leaves_what_earlier_steps_will_leave)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    fail_step(&w, 3);
    assert_slots(&w, seq, 2, 4); /* of step 2, which is out */
    (void)begin(&w, seq, 12);
    for (uint64_t step = 1; step <= 4; step += step == 2 ? 2 : 1)
        (void)done_step(&w, step);
    assert_int_equal(info_of(&w, seq).computed_tokens, 12);
    assert_slots(&w, seq, 4, 0);
}

TEST(test_a_dropped_commit_takes_no_slot)
{
    kvp_seq seq;
    scoped_world w = three_out(8, &seq);
    const uint32_t n = 12;
    fail_step(&w, 2);
    assert_slots(&w, seq, 1, 4);
    assert_ok(kvp_step_commit(w.cache, 3, &seq, &n, 1)); /* stays dropped */
    assert_slots(&w, seq, 1, 4);
    (void)begin(&w, seq, 8);
    assert_slots(&w, seq, 4, 0);
}

TEST(test_back_to_where_a_step_ends)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    const uint32_t between[] = {1, 5, 7, 9, 11};
    for (uint32_t i = 0; i < 5; i++) {
        assert_unchanged(
            &w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, between[i], NULL)));
    }
    assert_ok(kvp_seq_truncate(w.cache, seq, 8, NULL));
    assert_slots(&w, seq, 2, 4);
    assert_counts(&w, 1, 0, 3, 1);
    (void)done_step(&w, 1);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL)); /* what is computed */
    assert_slots(&w, seq, 1, 4);
    (void)done_step(&w, 2); /* counts up to there */
    (void)done_step(&w, 3);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    assert_counts(&w, 3, 0, 2, 0);
    grow(&w, seq, 3);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL)); /* no step is out that ran them */
}

TEST(test_back_to_nothing)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    assert_slots(&w, seq, 0, 4);
    assert_counts(&w, 1, 0, 1, 3);
}

TEST(test_an_invalidation_takes_back_what_steps_would_leave)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    (void)done_step(&w, 1);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 10, NULL, 0, NULL));
    assert_slots(&w, seq, 1, 4); /* the state after 4 tokens is there */
    assert_int_equal(info_of(&w, seq).writable_tokens, 4);
    (void)done_step(&w, 2);
    (void)done_step(&w, 3);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 3, NULL, 0, NULL));
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_counts(&w, 5, 0, 0, 0);
}

TEST(test_in_what_order_steps_are_told)
{
    scoped_world w = steps_of_states(4, 8);
    const uint32_t counts[] = {8, 10, 12, 4};
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    (void)begin(&w, seq, 0);
    (void)begin(&w, seq, 0);
    assert_slots(&w, seq, 0, 1);
    assert_ok(kvp_step_commit(w.cache, 2, &seq, &counts[0], 1));
    assert_slots(&w, seq, 1, 0);
    assert_ok(kvp_step_commit(w.cache, 2, &seq, &counts[1], 1)); /* the larger count, same slot */
    assert_ok(kvp_step_commit(w.cache, 2, &seq, &counts[0], 1));
    assert_slots(&w, seq, 1, 0);
    assert_unchanged(&w,
                     assert_status(KVP_E_STATE, kvp_step_commit(w.cache, 1, &seq, &counts[3], 1)));
    (void)begin(&w, seq, 0);
    assert_unchanged(&w,
                     assert_status(KVP_E_STATE, kvp_step_commit(w.cache, 3, &seq, &counts[2], 1)));
    assert_ok(kvp_step_commit(w.cache, 3, &seq, &counts[1], 1)); /* no more than step 2 */
    grow(&w, seq, 0);
    assert_ok(kvp_step_commit(w.cache, 3, &seq, &counts[2], 1));
    assert_slots(&w, seq, 2, 0);
    (void)done_step(&w, 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 0);
    (void)done_step(&w, 2);
    assert_int_equal(info_of(&w, seq).computed_tokens, 10);
    (void)done_step(&w, 3);
    assert_int_equal(info_of(&w, seq).computed_tokens, 12);
}

TEST(test_an_earlier_step_goes_no_further_than_a_later_one_began)
{
    scoped_world w = steps_of_states(4, 8);
    const uint32_t counts[] = {4, 8};
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    (void)begin(&w, seq, 0);
    (void)begin(&w, seq, 8);
    grow(&w, seq, 0); /* there is a slot to write */
    for (uint32_t i = 0; i < 2; i++) {
        assert_unchanged(
            &w, assert_status(KVP_E_STATE, kvp_step_commit(w.cache, 1, &seq, &counts[i], 1)));
    }
}

TEST(test_commits_outside_steps)
{
    scoped_world w = steps_of_states(4, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_slots(&w, seq, 1, 0);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_commit(w.cache, seq, 8)));
    assert_ok(kvp_seq_commit(w.cache, seq, 4)); /* nothing to do */
    grow(&w, seq, 0);
    assert_slots(&w, seq, 1, 2);
    (void)begin(&w, seq, 8);
    grow(&w, seq, 0);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_commit(w.cache, seq, 8)));
    (void)done_step(&w, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_slots(&w, seq, 3, 0);
}

TEST(test_a_checkpoint_needs_no_slot_and_waits_for_no_step)
{
    kvp_seq seq;
    scoped_world w = three_out(5, &seq); /* all slots are held */
    (void)done_step(&w, 1);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    assert_slots(&w, seq, 3, 4);
    (void)done_step(&w, 2);
    assert_counts(&w, 0, 0, 3, 1); /* released while step 3 is out */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
    const kvp_prompt same = prompt_of(ints(0), 8);
    uint32_t need;
    assert_ok(kvp_state_need(w.cache, w.ns, &same, &need));
    assert_int_equal(need, 1); /* what is parked leaves no queue */
    assert_admission(can_open(&w, &same), KVP_ADMIT_LATER, 1, 13, 0);
    (void)done_step(&w, 3);
    assert_counts(&w, 1, 1, 2, 0);
    assert_ok(kvp_state_need(w.cache, w.ns, &same, &need));
    assert_int_equal(need, 2);
}

TEST(test_a_checkpoint_is_made_when_all_slots_are_held)
{
    scoped_world w = steps_of_states(4, 3);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    (void)begin(&w, seq, 4);
    grow(&w, seq, 0);
    (void)begin(&w, seq, 8);
    (void)done_step(&w, 1);
    assert_counts(&w, 0, 0, 2, 0);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    assert_slots(&w, seq, 2, 0);
    (void)done_step(&w, 2);
    assert_counts(&w, 0, 1, 1, 0);
    grow(&w, seq, 0); /* evicts it */
    assert_slots(&w, seq, 2, 1);
}

TEST(test_a_cached_checkpoint_is_not_parked_by_a_close)
{
    scoped_world w = steps_of_states(4, 6);
    const kvp_seq seq = open_kept(&w, 9);
    grow(&w, seq, 0);
    (void)begin(&w, seq, 8);
    (void)done_step(&w, 2);
    assert_counts(&w, 3, 1, 1, 0);
    (void)begin(&w, seq, 0);
    close_seq(&w, seq);
    assert_counts(&w, 3, 1, 0, 1);
}

TEST(test_a_parked_checkpoint_is_hit)
{
    scoped_world w = steps_of_states(4, 4);
    const kvp_seq seq = open_kept(&w, 6);
    kvp_block_info slot;
    (void)begin(&w, seq, 0);
    close_seq(&w, seq);
    assert_ok(kvp_block_info_get(w.cache, 1, KVP_DEVICE, 1, &slot));
    assert_fields(slot, state, KVP_BLOCK_PARKED, sealed_units, 1);
    kvp_open_info info;
    const kvp_seq again = open_seq(&w, ints(0), 6, &info);
    assert_int_equal(info.hit_tokens, 4);
    assert_slots(&w, again, 1, 2);
    (void)done_step(&w, 2);
    assert_counts(&w, 1, 0, 2, 0);
}

TEST(test_a_parked_checkpoint_is_withdrawn)
{
    scoped_world w = steps_of_states(4, 6);
    const kvp_seq seq = open_kept(&w, 9);
    grow(&w, seq, 0);
    (void)begin(&w, seq, 8);
    grow(&w, seq, 0);
    (void)begin(&w, seq, 9);
    (void)done_step(&w, 2);
    assert_counts(&w, 2, 0, 2, 1);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    assert_counts(&w, 2, 0, 0, 3);
    (void)done_step(&w, 3);
    assert_counts(&w, 5, 0, 0, 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
}

TEST(test_forks_share_what_no_step_writes)
{
    scoped_world w = steps_of_states(4, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    (void)begin(&w, seq, 4);
    grow(&w, seq, 0);
    (void)begin(&w, seq, 8);
    (void)done_step(&w, 1);
    const kvp_seq child = fork_seq(&w, seq, 4); /* while a step is out that reads the same */
    assert_slots(&w, child, 1, 0);
    grow(&w, child, 2);
    assert_slots(&w, child, 1, 3);
    close_seq(&w, seq);
    assert_slots(&w, child, 1, 3);
    (void)done_step(&w, 2);
    (void)begin(&w, child, 6); /* alone with slot 1 now, and still another one is written */
    assert_slots(&w, child, 3, 0);
    (void)done_step(&w, 3);
    assert_counts(&w, 6, 0, 1, 0);
}

TEST(test_a_copy_that_failed_takes_the_state_with_it)
{
    scoped_world w = steps_of_states(8, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 6, NULL);
    kvp_seq cut[4];
    uint32_t n_cut;
    (void)begin(&w, seq, 6);
    (void)done_step(&w, 1);
    const kvp_seq child = fork_seq(&w, seq, 6);
    grow(&w, child, 1);
    (void)begin(&w, child, 7); /* has the copy of the half-full block in its plan */
    assert_ok(kvp_step_failed(w.cache, 2, cut, 4, &n_cut));
    assert_int_equal(n_cut, 1);
    assert_int_equal(cut[0].bits, child.bits);
    assert_int_equal(info_of(&w, child).computed_tokens, 0);
    assert_slots(&w, child, 0, 0); /* from the initial state, once it is extended */
    assert_slots(&w, seq, 1, 0);
}

TEST(test_a_state_behind_a_failed_copy_is_lost)
{
    scoped_world w = steps_of_states(8, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 14, NULL);
    (void)begin(&w, seq, 14);
    (void)done_step(&w, 1);
    const kvp_seq child = fork_seq(&w, seq, 14);
    grow(&w, child, 1);
    (void)begin(&w, child, 15);
    fail_step(&w, 2);
    assert_int_equal(info_of(&w, child).computed_tokens, 8);
    assert_int_equal(state_of(&w, child).lost, 1);
    assert_slots(&w, child, 0, 0);
    assert_status(KVP_E_DROPPED, kvp_seq_extend(w.cache, child, NULL, 0, 0));
    assert_counts(&w, 6, 0, 1, 0);
}

TEST(test_a_reset_forgets_what_steps_would_leave)
{
    kvp_seq seq;
    scoped_world w = three_out(6, &seq);
    kvp_cache_reset(w.cache);
    assert_counts(&w, 5, 0, 0, 0);
    const kvp_seq other = open_seq(&w, ints(0), 4, NULL);
    assert_slots(&w, other, 0, 1);
    (void)begin(&w, other, 4);
    assert_slots(&w, other, 1, 0);
}

/* --------------------------------------------------------------------------------------- rings */

static kvp_status draft_as(const world *w, kvp_seq seq, uint32_t n, uint32_t flags)
{
    kvp_batch batch = batch_of(&seq, &n, 1);
    kvp_admission admission;
    batch.flags = flags;
    const kvp_status asked = kvp_cache_can_extend(w->cache, &batch, &admission);
    const kvp_status status = kvp_seq_extend_many(w->cache, &batch);
    assert_int_equal(status == KVP_OK, asked == KVP_OK && admission.verdict == KVP_ADMIT_OK);
    return status;
}

static kvp_status draft(const world *w, kvp_seq seq, uint32_t n)
{
    return draft_as(w, seq, n, KVP_BATCH_RING);
}

/* Four tokens are computed, in slot 1. Step 2 has a chain of three, in slots 3, 4 and 2. */
static world chain_out(uint32_t state_slots, kvp_seq *out_seq)
{
    world w = steps_of_states(4, state_slots);
    int32_t read;
    uint32_t n;
    int32_t writes[KVP_STATE_RING_MAX];
    *out_seq = open_seq(&w, ints(0), 4, NULL);
    (void)begin(&w, *out_seq, 4);
    (void)done_step(&w, 1);
    assert_ok(draft(&w, *out_seq, 3));
    assert_ok(kvp_meta_state_rings(w.cache, out_seq, 1, KVP_STATE_RING_MAX, &read, &n, writes));
    assert_int_equal(read, 1);
    assert_int_equal(n, 3);
    assert_memory_equal(writes, ((int32_t[]){3, 4, 2}), 3 * sizeof(int32_t));
    assert_int_equal(begin(&w, *out_seq, 0), 2);
    return w;
}

TEST(test_a_chain_goes_on_with_what_was_accepted)
{
    kvp_seq seq;
    scoped_world w = chain_out(8, &seq);
    assert_counts(&w, 3, 0, 4, 0);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 2));
    assert_ok(kvp_seq_commit(w.cache, seq, 6)); /* its pass has run; it is not reported yet */
    assert_slots(&w, seq, 4, 0);
    assert_counts(&w, 3, 0, 1, 3);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    grow(&w, seq, 1);
    assert_slots(&w, seq, 4, 5);
    assert_int_equal(begin(&w, seq, 7), 3);
    assert_counts(&w, 2, 0, 2, 3);
    (void)done_step(&w, 2);
    assert_counts(&w, 5, 0, 2, 0);
    (void)done_step(&w, 3);
    assert_slots(&w, seq, 5, 0);
}

TEST(test_a_chain_is_committed_when_its_step_is_over)
{
    kvp_seq seq;
    scoped_world w = chain_out(8, &seq);
    (void)done_step(&w, 2);
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, NULL)); /* the token alone */
    assert_slots(&w, seq, 1, 3);
    assert_ok(kvp_seq_commit(w.cache, seq, 5));
    assert_slots(&w, seq, 3, 0);
    assert_counts(&w, 6, 0, 1, 0);
}

/* Which state it leaves is not known before its pass has run. */
TEST(test_a_step_does_not_declare_a_chain)
{
    kvp_seq seq;
    scoped_world w = chain_out(8, &seq);
    const uint32_t four = 4;
    for (uint32_t n = 5; n <= 7; n++)
        assert_status(KVP_E_STATE, kvp_step_commit(w.cache, 2, &seq, &n, 1));
    assert_ok(kvp_step_commit(w.cache, 2, &seq, &four, 1)); /* computed already */
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, NULL));     /* no draft is left */
    const uint32_t five = 5;
    assert_ok(kvp_step_commit(w.cache, 2, &seq, &five, 1));
    assert_slots(&w, seq, 3, 0);
    (void)done_step(&w, 2);
    assert_slots(&w, seq, 3, 0);
    assert_int_equal(info_of(&w, seq).computed_tokens, 5);
}

TEST(test_no_chain_behind_a_step)
{
    scoped_world w = steps_of_states(4, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    (void)begin(&w, seq, 4);
    assert_status(KVP_E_STATE, draft(&w, seq, 3));
    assert_counts(&w, 6, 0, 1, 0);
    const kvp_seq other = open_seq(&w, ints(100), 1, NULL); /* step 1 has nothing of it */
    assert_ok(draft(&w, other, 2));
    assert_status(KVP_E_STATE, draft(&w, seq, 0));
    assert_ok(draft_as(&w, seq, 0, KVP_BATCH_RING_NEW)); /* no tokens: a slot to write */
    assert_slots(&w, seq, 1, 5);
    assert_int_equal(state_of(&w, seq).ring_slots, 0);
    assert_status(KVP_E_STATE, draft_as(&w, seq, 1, KVP_BATCH_RING_NEW));
    kvp_batch one_each = batch_of(&seq, NULL, 1);
    one_each.flags = KVP_BATCH_RING_NEW;
    assert_status(KVP_E_STATE, kvp_seq_extend_many(w.cache, &one_each));
    (void)done_step(&w, 1);
    assert_ok(draft(&w, seq, 1));
}

TEST(test_a_chain_that_failed_runs_again)
{
    kvp_seq seq;
    world w = chain_out(8, &seq);
    fail_step(&w, 2);
    assert_slots(&w, seq, 1, 2);
    assert_int_equal(state_of(&w, seq).ring_slots, 2);
    assert_int_equal(begin(&w, seq, 0), 3);
    assert_ok(kvp_seq_commit(w.cache, seq, 7)); /* all */
    assert_slots(&w, seq, 2, 0);
    (void)done_step(&w, 3);
    end_world(&w);
    /* Or it is given up. What the step may write still is parked. */
    w = chain_out(8, &seq);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    assert_slots(&w, seq, 1, 2);
    assert_counts(&w, 3, 0, 2, 2);
    fail_step(&w, 2);
    assert_counts(&w, 5, 0, 2, 0);
    end_world(&w);
}

TEST(test_a_chain_is_closed_while_it_is_out)
{
    kvp_seq seq;
    scoped_world w = chain_out(5, &seq);
    const kvp_seq child = fork_seq(&w, seq, 4);
    assert_ok(kvp_seq_invalidate(w.cache, child, 4, NULL, 0, NULL)); /* of the child only */
    close_seq(&w, seq);
    assert_counts(&w, 0, 0, 1, 3);
    assert_status(KVP_E_NO_BLOCKS, draft(&w, child, 1));
    (void)done_step(&w, 2);
    assert_ok(draft(&w, child, 3));
    assert_counts(&w, 0, 0, 4, 0);
}

TEST_MAIN(NULL, NULL)

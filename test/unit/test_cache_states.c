/* Recurrent state (states.h): slots that are read and written, checkpoints, hits that end there,
 * ways back, and what is refused. */
#include <kvpager/states.h>

#include "groups.h"
#include "slots.h"

#include <string.h>

static world state_world(uint32_t usable, uint32_t state_slots)
{
    kvp_config config = config_of(4, 4, usable);
    config.state_slots = state_slots;
    return make_world(&config);
}

/* A step of the sequence ends at n tokens, and its state is kept. */
static void keep_at(const world *w, kvp_seq seq, uint32_t n)
{
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    assert_int_equal(checkpoint(w, seq), KVP_CHECKPOINT_MADE);
}

/* Leave n tokens cached, with a checkpoint after each of the first `kept` units. */
static void leave_kept(world *w, const int32_t *tokens, uint32_t n, uint32_t kept)
{
    const kvp_seq seq = open_seq(w, tokens, n, NULL);
    for (uint32_t u = 1; u <= kept; u++)
        keep_at(w, seq, 4 * u);
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    close_seq(w, seq);
}

/* ----------------------------------------------------------------------------- reads and writes */

TEST(test_a_step_reads_one_slot_and_writes_one)
{
    scoped_world w = state_world(8, 5);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_slots(&w, seq, 0, 1);
    assert_fields(state_of(&w, seq), prompt_end, 8, branch_end, 0);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_slots(&w, seq, 1, 1);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    assert_slots(&w, seq, 1, 2);
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_THERE);
    int32_t read = -1, write = -1;
    assert_ok(kvp_meta_states(w.cache, &seq, 1, &read, &write));
    assert_true(read == 1 && write == 2);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_slots(&w, seq, 2, 2);
    const kvp_state_stats s = slots_of(&w);
    assert_true(s.usable_slots == 4 && s.free_slots == 2 && s.cached_slots == 1 &&
                s.held_slots == 1);
    assert_true(s.taken == 2 && s.made == 1 && s.skipped == 0 && s.hits == 0 && s.evicted == 0);
    close_seq(&w, seq);
    assert_int_equal(slots_of(&w).free_slots, 3);
}

TEST(test_an_empty_sequence_takes_a_slot_when_it_grows)
{
    scoped_world w = state_world(8, 3);
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    assert_slots(&w, seq, 0, 0);
    assert_status(KVP_E_STATE, kvp_meta_states(w.cache, &seq, 1, NULL, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_slots(&w, seq, 0, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(0), 1, 0));
    assert_slots(&w, seq, 0, 1);
}

/* ----------------------------------------------------------------------------------------- hits */

TEST(test_a_hit_reads_the_checkpoint_and_copies_nothing)
{
    scoped_world w = state_world(16, 8);
    kvp_open_info info;
    leave_kept(&w, ints(0), 9, 2);
    const uint32_t kept = 2; /* 1 is the first unit's, and 3 was written at last */
    const kvp_seq a = open_seq(&w, ints(0), 9, &info);
    assert_fields(info, hit_tokens, 8, cached_tokens, 8, stop, KVP_STOP_END, copied_tokens, 0);
    assert_int_equal(state_of(&w, a).read_slot, kept);
    assert_int_equal(state_of(&w, a).prompt_end, 0); /* it is there */
    const kvp_seq b = open_seq(&w, ints(0), 9, NULL);
    assert_int_equal(state_of(&w, b).read_slot, kept);
    assert_true(state_of(&w, a).write_slot != state_of(&w, b).write_slot);
    assert_int_equal(slots_of(&w).hits, 2);
    assert_int_equal(stats_of(&w).copies, 0);
    kvp_block_info slot;
    assert_ok(kvp_block_info_get(w.cache, 1, KVP_DEVICE, (int32_t)kept, &slot));
    assert_fields(slot, state, KVP_BLOCK_HELD, ref_count, 2, sealed_units, 1, group, 1);
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_DEVICE, 8, &slot));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_HOST, 1, &slot));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 2, KVP_DEVICE, 1, &slot));
}

TEST(test_a_hit_ends_at_a_checkpoint)
{
    scoped_world w = state_world(16, 8);
    leave_kept(&w, ints(0), 17, 1);
    kvp_open_info info = match(&w, ints(0), 17);
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_NO_KV, stop_group, 1);
    info = match(&w, ints(0), 5); /* nothing was cut */
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_END, stop_group, 0);
    info = match(&w, ints(0), 4); /* the last token is computed: its unit is not matched */
    assert_fields(info, hit_tokens, 0, stop, KVP_STOP_END);
    info = match(&w, ints(0), 0);
    assert_int_equal(info.hit_tokens, 0);
}

TEST(test_a_hit_may_end_inside_a_block)
{
    kvp_config config = config_of(8, 4, 8);
    config.state_slots = 8;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_kept(&w, ints(0), 17, 3);
    info = match(&w, ints(0), 17); /* 4, 8 and 12 are kept, 16 is not */
    assert_fields(info, hit_tokens, 12, copied_tokens, 4, stop_group, 1);
    const kvp_seq seq = open_seq(&w, ints(0), 17, &info);
    assert_int_equal(info.hit_tokens, 12);
    kvp_copy copy;
    assert_int_equal(take_plan(&w, &copy, 1), 1);
    assert_int_equal(copy.n_tokens, 4);
    assert_int_equal(info_of(&w, seq).computed_tokens, 12);
}

/* No room for the source: the hit goes back to a whole block that has a checkpoint, or further. */
TEST(test_a_hit_inside_a_block_that_does_not_fit)
{
    kvp_config config = config_of(8, 4, 4);
    config.state_slots = 8;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    kvp_seq seq = open_seq(&w, ints(0), 21, NULL); /* three blocks; 4 and 20 are kept */
    keep_at(&w, seq, 4);
    keep_at(&w, seq, 20);
    assert_ok(kvp_seq_commit(w.cache, seq, 21));
    close_seq(&w, seq);
    assert_int_equal(match(&w, ints(0), 25).hit_tokens, 20);
    kvp_prompt prompt = prompt_of(ints(0), 25);
    prompt.reserve_tokens = 7;
    seq = open_with(&w, &prompt, &info); /* 4 blocks, and no fifth for the source */
    assert_fields(info, hit_tokens, 0, stop, KVP_STOP_NO_ROOM, stop_group, 0);
    assert_slots(&w, seq, 0, state_of(&w, seq).write_slot);
}

TEST(test_hits_of_several_groups_end_at_any_unit)
{
    kvp_config config = config_of(8, 4, 32);
    config.state_slots = 8;
    config.n_groups = 2;
    config.groups[1] = (kvp_group){0, 8, 0};
    scoped_world w = make_world(&config);
    leave_kept(&w, ints(0), 33, 3); /* 4, 8, 12 */
    const kvp_open_info info = match(&w, ints(0), 33);
    assert_fields(info, hit_tokens, 12, copied_tokens, 4, stop, KVP_STOP_NO_KV, stop_group, 2);
    const kvp_seq seq = open_seq(&w, ints(0), 33, NULL);
    assert_int_equal(state_of(&w, seq).prompt_end, 32);
    assert_int_equal(state_of(&w, seq).branch_end, 0); /* all of it is known */
}

/* Hits of several groups end at any unit, and so do chunks. */
TEST(test_chunks_end_where_hits_do)
{
    kvp_config config = config_of(8, 4, 32);
    config.state_slots = 8;
    config.n_groups = 2;
    scoped_world w = make_world(&config);
    int32_t other[32];
    leave_cached(&w, ints(0), 32);
    memcpy(other, ints(0), sizeof(other));
    other[14] = other[31] = 1000;
    const kvp_seq seq = open_seq(&w, other, 32, NULL); /* 12 tokens are known, and 28 end a unit */
    assert_fields(state_of(&w, seq), branch_end, 12, prompt_end, 28);
    assert_int_equal(state_of(&w, open_seq(&w, ints(100), 4, NULL)).prompt_end, 0);
    keep_at(&w, seq, 12);
    keep_at(&w, seq, 28);
    assert_int_equal(match(&w, other, 32).hit_tokens, 28);
    assert_int_equal(match(&w, ints(0), 32).hit_tokens, 12);
}

TEST(test_open_names_where_chunks_should_end)
{
    scoped_world w = state_world(32, 16);
    int32_t other[21];
    leave_cached(&w, ints(0), 21);
    memcpy(other, ints(0), sizeof(other));
    for (uint32_t i = 12; i < 21; i++)
        other[i] = 1000 + (int32_t)i;
    const kvp_seq seq = open_seq(&w, other, 21, NULL);
    assert_fields(state_of(&w, seq), branch_end, 12, prompt_end, 20);
    keep_at(&w, seq, 12);
    keep_at(&w, seq, 20);
    assert_int_equal(match(&w, other, 21).hit_tokens, 20);
    assert_int_equal(match(&w, ints(0), 21).hit_tokens, 12); /* the third prompt has it */
    const kvp_seq child = fork_seq(&w, seq, 20);
    assert_int_equal(state_of(&w, child).branch_end | state_of(&w, child).prompt_end, 0);
    kvp_prompt prompt = prompt_of(ints(100), 21);
    prompt.n_uncached = 1;
    prompt.uncached = &(kvp_range){9, 10};
    assert_int_equal(state_of(&w, open_with(&w, &prompt, NULL)).prompt_end, 8);
}

/* ---------------------------------------------------------------------------------- checkpoints */

TEST(test_a_checkpoint_without_a_slot_is_skipped)
{
    scoped_world w = state_world(8, 2);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_unchanged(&w, assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED));
    assert_slots(&w, seq, 1, 1);
    assert_int_equal(slots_of(&w).skipped, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 1, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 5));
}

TEST(test_a_checkpoint_that_nobody_could_reach_is_skipped)
{
    scoped_world w = state_world(16, 8);
    kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.n_uncached = 1;
    prompt.uncached = &(kvp_range){2, 3};
    seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    seq = open_done(&w, ints(50), 4);
    (void)fork_seq(&w, seq, 4); /* which might go on in the slot alone */
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_SKIPPED);
    assert_int_equal(slots_of(&w).skipped, 3);
}

/* A sequence that alone reads what others read before, and has another slot to write. */
TEST(test_a_checkpoint_beside_a_slot_to_write)
{
    scoped_world w = state_world(16, 3);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    const kvp_seq child = fork_seq(&w, seq, 4);
    const int32_t token = 9;
    assert_ok(kvp_seq_extend(w.cache, child, &token, 1, 0));
    close_seq(&w, seq);
    assert_slots(&w, child, 1, 2);
    assert_int_equal(slots_of(&w).free_slots, 0);
    assert_int_equal(checkpoint(&w, child), KVP_CHECKPOINT_MADE);
    assert_slots(&w, child, 1, 2);
}

TEST(test_what_checkpoint_refuses)
{
    world w = state_world(16, 8);
    uint32_t outcome;
    kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_status(KVP_E_ARG, kvp_seq_checkpoint(NULL, seq, &outcome));
    assert_status(KVP_E_HANDLE, kvp_seq_checkpoint(w.cache, (kvp_seq){0}, &outcome));
    assert_status(KVP_E_STATE, kvp_seq_checkpoint(w.cache, seq, &outcome)); /* nothing computed */
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_unchanged(&w, /* they end no unit */
                     assert_status(KVP_E_STATE, kvp_seq_checkpoint(w.cache, seq, &outcome)));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 3, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_status(KVP_E_STATE, kvp_seq_checkpoint(w.cache, seq, &outcome)); /* not known */
    assert_ok(kvp_seq_fill(w.cache, seq, ints(9), 3));
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    end_world(&w);
    w = small_world(8);
    seq = open_done(&w, ints(0), 4);
    kvp_state_info info;
    assert_status(KVP_E_STATE, kvp_seq_checkpoint(w.cache, seq, &outcome));
    assert_status(KVP_E_STATE, kvp_seq_state_get(w.cache, seq, &info));
    assert_status(KVP_E_STATE, kvp_meta_states(w.cache, &seq, 1, NULL, NULL));
    assert_int_equal(slots_of(&w).usable_slots, 0);
    end_world(&w);
}

/* The checkpoint of a namespace that is closed goes, and its blocks go to the head of the queue. */
TEST(test_blocks_of_a_closed_namespace_are_exposed)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 3;
    config.quotas = 1;
    config.max_namespaces = 2;
    scoped_world w = make_world(&config);
    const kvp_ns own = w.ns;
    assert_ok(kvp_ns_open(w.cache, "other", 5, &w.ns));
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    keep_at(&w, seq, 8);
    close_seq(&w, seq);
    assert_ok(kvp_ns_close(w.cache, w.ns));
    w.ns = own;
    (void)open_seq(&w, ints(50), 1, NULL);
    (void)open_seq(&w, ints(60), 1, NULL);
    assert_int_equal(slots_of(&w).evicted, 1);
}

/* ----------------------------------------------------------------------------- ways back, forks */

TEST(test_truncate_goes_back_to_a_checkpoint)
{
    scoped_world w = state_world(16, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 13, NULL);
    keep_at(&w, seq, 4);
    assert_ok(kvp_seq_commit(w.cache, seq, 13));
    assert_slots(&w, seq, 2, 2);
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 8, NULL)));
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 5, NULL)));
    assert_ok(kvp_seq_truncate(w.cache, seq, 13, NULL));
    assert_slots(&w, seq, 2, 2);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    assert_slots(&w, seq, 1, 2);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 5, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_slots(&w, seq, 2, 2);
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    assert_slots(&w, seq, 0, 2);
}

TEST(test_fork_needs_the_state)
{
    scoped_world w = state_world(16, 8);
    kvp_seq child;
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    keep_at(&w, seq, 4);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_slots(&w, seq, 2, 2);
    assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, seq, 8, 0, &child));
    child = fork_seq(&w, seq, 4);
    assert_slots(&w, child, 1, 0);
    assert_slots(&w, seq, 2, 2);
    assert_slots(&w, fork_seq(&w, seq, 0), 0, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(9), 1, 0));
    /* A step may be writing the slot that is read. */
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_fork(w.cache, seq, 9, 0, &child)));
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    child = fork_seq(&w, seq, KVP_END);
    assert_slots(&w, seq, 2, 0);
    assert_slots(&w, child, 2, 0);
    assert_status(KVP_E_STATE, kvp_meta_states(w.cache, &seq, 1, NULL, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(10), 1, 0));
    assert_slots(&w, seq, 2, 3);
    assert_ok(kvp_seq_commit(w.cache, seq, 11));
    assert_slots(&w, seq, 3, 3);
    assert_ok(kvp_seq_extend(w.cache, child, ints(10), 1, 0));
    assert_slots(&w, child, 2, 2); /* alone with it now */
}

TEST(test_what_was_read_survives_a_failed_step)
{
    scoped_world w = state_world(16, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    keep_at(&w, seq, 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 8, NULL, 0, NULL)); /* the step of the 9th failed */
    assert_slots(&w, seq, 1, 2);
    assert_int_equal(state_of(&w, seq).lost, 0);
    assert_status(KVP_E_STATE, kvp_seq_commit(w.cache, seq, 9)); /* extend first */
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_slots(&w, seq, 2, 2);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 9, NULL, 0, NULL)); /* takes nothing back */
    assert_slots(&w, seq, 2, 2);
}

TEST(test_a_state_that_was_written_over_is_lost)
{
    scoped_world w = state_world(16, 8);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    keep_at(&w, seq, 4);
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    assert_slots(&w, seq, 2, 2);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 11, NULL, 0, NULL));
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_slots(&w, seq, 0, 0);
    kvp_seq child;
    assert_status(KVP_E_DROPPED, kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_status(KVP_E_DROPPED, kvp_meta_states(w.cache, &seq, 1, NULL, NULL));
    assert_status(KVP_E_DROPPED, kvp_seq_fork(w.cache, seq, 10, 0, &child));
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 12, NULL));
    assert_slots(&w, fork_seq(&w, seq, 4), 1, 0);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    assert_slots(&w, seq, 1, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL)); /* back to the checkpoint */
    assert_fields(state_of(&w, seq), lost, 0, read_slot, 1);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 2, NULL, 0, NULL)); /* which is withdrawn */
    assert_int_equal(state_of(&w, seq).lost, 1);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 0);
    kvp_block_info slot;
    assert_ok(kvp_block_info_get(w.cache, 1, KVP_DEVICE, 1, &slot)); /* the fork holds it still */
    assert_fields(slot, state, KVP_BLOCK_HELD, sealed_units, 0);
}

/* ------------------------------------------------------------------------- admission, eviction */

TEST(test_admission_counts_slots)
{
    scoped_world w = state_world(32, 4);
    kvp_seq seq;
    leave_kept(&w, ints(0), 5, 1); /* slot 1 is cached */
    const kvp_seq a = open_seq(&w, ints(50), 1, NULL);
    const kvp_prompt prompt = prompt_of(ints(0), 5);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK); /* one free, one that it reads */
    const kvp_seq b = open_seq(&w, ints(60), 1, NULL);
    const kvp_admission admission = can_open(&w, &prompt);
    assert_fields(admission, verdict, KVP_ADMIT_LATER, missing_blocks, 0);
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 1);
    assert_int_equal(shortage_of(&w).tier, KVP_STATE_SLOTS);
    seq = open_seq(&w, ints(70), 1, NULL); /* evicts the checkpoint */
    const kvp_evicted *evicted = NULL;
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_fields(*evicted, group, 1, block, 1);
    assert_int_equal(slots_of(&w).evicted, 1);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_LATER);
    assert_ok(kvp_seq_commit(w.cache, a, 1));
    const kvp_seq child = fork_seq(&w, a, 1);
    const kvp_seq both[] = {a, child};
    const uint32_t one[] = {1, 1};
    assert_int_equal(can_extend(&w, both, one, 2).verdict, KVP_ADMIT_LATER);
    kvp_batch batch = batch_of(both, one, 2);
    assert_unchanged(&w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &batch)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 2);
    assert_int_equal(shortage_of(&w).tier, KVP_STATE_SLOTS);
    close_seq(&w, b);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &batch));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 1, 1);
    close_seq(&w, seq);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
}

TEST(test_the_last_checkpoint_of_a_row_goes_last)
{
    scoped_world w = state_world(32, 6);
    leave_kept(&w, ints(0), 13, 3);                    /* slots 1, 2, 3; 4 was written at last */
    const kvp_seq a = open_seq(&w, ints(50), 1, NULL); /* free ones first */
    const kvp_seq b = open_seq(&w, ints(60), 1, NULL);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 4);
    (void)open_seq(&w, ints(70), 1, NULL);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    (void)open_seq(&w, ints(80), 1, NULL);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 12);
    close_seq(&w, a);
    close_seq(&w, b);
}

TEST(test_a_block_takes_its_checkpoint_with_it)
{
    scoped_world w = state_world(4, 8);
    const kvp_evicted *evicted = NULL;
    leave_kept(&w, ints(0), 13, 3);                    /* 4 blocks; the last has no content */
    const kvp_seq a = open_seq(&w, ints(50), 8, NULL); /* the free one, and the third unit's */
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_fields(evicted[0], group, 1, block, 3);
    assert_int_equal(evicted[1].group, 0);
    assert_memory_equal(&evicted[0].hash, &evicted[1].hash, sizeof(kvp_hash));
    assert_int_equal(slots_of(&w).cached_slots, 2);
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 8);
    close_seq(&w, a);
}

TEST(test_a_held_checkpoint_stays_with_its_node)
{
    scoped_world w = state_world(4, 8);
    leave_kept(&w, ints(0), 5, 1);
    const kvp_seq seq = open_seq(&w, ints(0), 5, NULL);
    assert_int_equal(state_of(&w, seq).read_slot, 1);
    assert_ok(kvp_seq_window(w.cache, seq, 0, (kvp_window){0, 1}, NULL)); /* lets go of block 1 */
    (void)open_seq(&w, ints(50), 12, NULL);
    assert_int_equal(slots_of(&w).evicted, 0);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 0);
    assert_ok(kvp_seq_commit(w.cache, seq, 5));
    assert_int_equal(slots_of(&w).cached_slots, 1);
}

/* A checkpoint goes for its slot: blocks that lead to no other one go next. */
TEST(test_blocks_without_a_state_go_first)
{
    scoped_world w = state_world(9, 5);
    leave_kept(&w, ints(0), 8, 1);          /* blocks 1, 2; slot 1 after the first */
    leave_kept(&w, ints(50), 8, 2);         /* blocks 3, 4; slots 2 and 3 */
    leave_kept(&w, ints(100), 8, 0);        /* blocks 5, 6 */
    (void)open_seq(&w, ints(140), 1, NULL); /* block 7, and the slot that is free */
    assert_int_equal(slots_of(&w).cached_slots, 3);
    assert_queue(&w, 0, 8, 9, 2, 1, 4, 3, 6, 5);
    (void)open_seq(&w, ints(150), 1, NULL); /* block 8, slot 1 */
    assert_queue(&w, 0, 9, 1, 2, 4, 3, 6, 5);
    (void)open_seq(&w, ints(160), 1, NULL); /* block 9, slot 2: slot 3 needs its block */
    assert_queue(&w, 0, 1, 2, 4, 3, 6, 5);
    (void)open_seq(&w, ints(170), 1, NULL); /* block 1, slot 3 */
    assert_queue(&w, 0, 4, 3, 2, 6, 5);
}

TEST(test_events_tell_checkpoints)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 3;
    config.max_events = 16;
    scoped_world w = make_world(&config);
    kvp_event events[16];
    uint32_t n = 0;
    leave_kept(&w, ints(0), 5, 1);
    assert_ok(kvp_events_read(w.cache, 1, events, 16, NULL, &n));
    assert_int_equal(n, 2); /* the unit's block, its state */
    assert_fields(events[1], kind, KVP_EVENT_STORED, group, 1);
    assert_memory_equal(&events[1].hash, &events[0].hash, sizeof(kvp_hash));
    const kvp_seq a = open_seq(&w, ints(50), 1, NULL);
    const kvp_seq b = open_seq(&w, ints(60), 1, NULL);
    assert_ok(kvp_events_read(w.cache, 1, events, 16, NULL, &n));
    assert_int_equal(n, 3);
    assert_fields(events[2], kind, KVP_EVENT_REMOVED, group, 1);
    close_seq(&w, a);
    close_seq(&w, b);
}

TEST(test_reset_frees_slots)
{
    scoped_world w = state_world(8, 6);
    leave_kept(&w, ints(0), 5, 1);
    (void)open_seq(&w, ints(50), 1, NULL);
    assert_ok(kvp_cache_reset(w.cache));
    assert_int_equal(slots_of(&w).free_slots, 5);
    assert_slots(&w, open_seq(&w, ints(0), 5, NULL), 0, 1);
}

/* ----------------------------------------------------------------------------------- refusals */

static void assert_wrong(const kvp_config *config, const char *field)
{
    kvp_why why;
    kvp_cache *cache = NULL;
    assert_status(KVP_E_ARG, kvp_config_check(config, &why));
    assert_string_equal(why.field, field);
    assert_status(KVP_E_ARG, kvp_cache_create(config, NULL, 0, &cache));
}

TEST(test_what_it_cannot_be_combined_with)
{
    kvp_config base = config_of(4, 4, 8);
    kvp_config config;
    base.state_slots = 1;
    assert_wrong(&base, "state_slots");
    base.state_slots = (1u << 30) + 1;
    assert_wrong(&base, "state_slots");
    base.state_slots = 8;
    assert_ok(kvp_config_check(&base, NULL));
    config = base;
    config.host_blocks = 8; /* and no slots there */
    assert_wrong(&config, "host_state_slots");
    config.host_state_slots = 1;
    assert_wrong(&config, "host_state_slots");
    config.host_state_slots = 2;
    assert_ok(kvp_config_check(&config, NULL));
    config.max_loads = 1;
    assert_ok(kvp_config_check(&config, NULL));
    config.steps = KVP_STEPS_OVERLAPPED;
    assert_ok(kvp_config_check(&config, NULL));
    config = base;
    config.host_state_slots = 2; /* and no host */
    assert_wrong(&config, "host_state_slots");
    config = base;
    config.steps = KVP_STEPS_OVERLAPPED;
    assert_ok(kvp_config_check(&config, NULL));
    config.host_blocks = 8;
    assert_wrong(&config, "host_state_slots");
    config.host_state_slots = 8;
    assert_ok(kvp_config_check(&config, NULL));
    config = base;
    config.max_tree_tokens = 1;
    assert_wrong(&config, "max_tree_tokens");
    config = base;
    config.n_groups = 8;
    assert_wrong(&config, "n_groups");
    config.n_groups = 7;
    assert_ok(kvp_config_check(&config, NULL));
    config = base;
    config.policy = KVP_POLICY_LEARNED;
    assert_wrong(&config, "policy");
}

TEST_MAIN(NULL, NULL)

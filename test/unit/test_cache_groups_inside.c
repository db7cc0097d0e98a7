/* Hits that end inside a block when there are several layer groups, or windows: each group copies
 * its leading units of that block (windows.h). Every way that blocks can lie is in
 * test_cache_groups_match.c; here are single cases in full. */
#include <kvpager/states.h>

#include "groups.h"
#include "slots.h"

#include <string.h>

enum { S = 4 };

/* S = 4, U = 2: full attention, and a window of R tokens. */
static kvp_config inside_config(uint32_t usable, uint32_t R)
{
    const kvp_window windows[] = {{0, 0}, {0, R}};
    kvp_config config = groups_config(S, usable, windows, 2);
    config.unit_tokens = 2;
    return config;
}

/* The first n tokens of ints(0), then others. */
static const int32_t *parting(uint32_t n)
{
    static int32_t tokens[32];
    memcpy(tokens, ints(0), sizeof(tokens));
    tokens[n] = 1000;
    return tokens;
}

TEST(test_each_group_copies_its_units)
{
    const kvp_config config = inside_config(15, 8);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, parting(6), 9, &info);
    assert_fields(info, hit_tokens, 6, copied_tokens, 2, shared_blocks, 2);
    assert_fields(info, taken_blocks, 4, host_tokens, 0, stop, KVP_STOP_MISS);
    assert_row_in(&w, 0, seq, 1, 5, 7);
    assert_row_in(&w, 1, seq, 2, 6, 8);
    assert_plan(&w, {0, 0, KVP_DEVICE, KVP_DEVICE, 3, 5, 2},
                {0, 1, KVP_DEVICE, KVP_DEVICE, 4, 6, 2});
    assert_int_equal(block_of(&w, 3).state, KVP_BLOCK_CACHED); /* held during the call only */
    assert_int_equal(block_of(&w, 4).state, KVP_BLOCK_CACHED);
    assert_int_equal(info_of(&w, seq).computed_tokens, 6);
}

/* The window keeps nothing of the entries before, and the entry that the hit ends in. */
TEST(test_a_window_drops_what_lies_before)
{
    const kvp_config config = inside_config(15, 2);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 12);
    const kvp_seq seq = open_seq(&w, parting(10), 12, &info);
    assert_fields(info, hit_tokens, 10, shared_blocks, 2);
    assert_row_in(&w, 0, seq, 1, 3, 7);
    assert_row_in(&w, 1, seq, 0, 0, 8);
    assert_dropped(&w, 1, seq, 0, 2);
    assert_plan(&w, {0, 0, KVP_DEVICE, KVP_DEVICE, 5, 7, 2},
                {0, 1, KVP_DEVICE, KVP_DEVICE, 6, 8, 2});
}

TEST(test_sources_go_to_the_tail)
{
    const kvp_config config = inside_config(8, 8);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    assert_queue(&w, 0, 5, 6, 7, 8, 2, 1, 4, 3);
    const kvp_seq seq = open_seq(&w, ints(0), 3, NULL);
    assert_row_in(&w, 0, seq, 5);
    assert_row_in(&w, 1, seq, 6);
    assert_queue(&w, 0, 7, 8, 4, 3, 2, 1);
}

/* One group has the units on the device, the other one on the host. */
TEST(test_a_source_may_be_on_the_host)
{
    kvp_config config = inside_config(5, 8);
    config.host_blocks = 5;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    retain_block(&w, row_of(&w, 0, seq)[0], 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    close_seq(&w, seq);
    evict_blocks(&w, 4); /* three free ones, and the window's */
    drop_plan(&w);
    kvp_prompt prompt = prompt_of(ints(0), 3);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 3); /* two, and the source that is cached */
    prompt.flags = KVP_OPEN_DEVICE_ONLY;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
    assert_fields(info, hit_tokens, 0, stop, KVP_STOP_NO_KV, stop_group, 1);
    const kvp_seq hit = open_seq(&w, ints(0), 3, &info);
    assert_fields(info, hit_tokens, 2, copied_tokens, 2, host_tokens, 2, host_blocks, 0);
    const int32_t full = row_of(&w, 0, hit)[0];
    const int32_t window = row_of(&w, 1, hit)[0];
    assert_plan(&w, {0, 0, KVP_DEVICE, KVP_DEVICE, 1, full, 2},
                {0, 1, KVP_HOST, KVP_DEVICE, 1, window, 2});
    assert_int_equal(block_of(&w, full).sealed_units, 0); /* the source has the unit */
    assert_int_equal(block_of(&w, window).sealed_units, 1);
}

/* Each group's source counts, if it is cached. Without room for both the hit ends before. */
TEST(test_without_room_for_all_sources_the_hit_is_cut)
{
    const kvp_config config = inside_config(5, 8);
    world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    kvp_prompt prompt = prompt_of(parting(6), 8);
    assert_int_equal(match(&w, prompt.tokens, 8).hit_tokens, 6);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 2 + 2); /* 2 hits, and 2 for the rest */
    const kvp_seq cut = open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 4, copied_tokens, 0, stop, KVP_STOP_NO_ROOM, shared_blocks, 2);
    assert_no_plan(&w);
    close_seq(&w, cut);
    end_world(&w);

    const kvp_config larger = inside_config(6, 8);
    w = make_world(&larger);
    leave_cached(&w, ints(0), 8);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 2 + 2 + 2);
    (void)open_with(&w, &prompt, &info);
    assert_int_equal(info.hit_tokens, 6);
    end_world(&w);
}

/* What a hit that is cut held, and what the shorter one holds instead, is put back by a refusal. */
TEST(test_a_refusal_after_a_cut_changes_nothing)
{
    const kvp_config config = inside_config(8, 4);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);
    const kvp_seq other = open_seq(&w, ints(100), 1, NULL);
    kvp_prompt prompt = prompt_of(parting(10), 12);
    prompt.reserve_tokens = 4;
    kvp_seq seq = {77};
    kvp_open_info info = match(&w, prompt.tokens, 12);
    assert_int_equal(info.hit_tokens, 10);
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_int_equal(seq.bits, 77);
    close_seq(&w, other);
}

/* The hit of 10 needs entry 1 of the window only. The one of 8, to which it is cut, needs entry 0,
 * too. */
TEST(test_a_cut_hit_is_judged_anew)
{
    const kvp_config config = inside_config(6, 6);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 12);
    info = match(&w, parting(10), 12);
    assert_fields(info, hit_tokens, 10, shared_blocks, 3);
    const kvp_seq seq = open_seq(&w, parting(10), 12, &info);
    assert_fields(info, stop, KVP_STOP_NO_ROOM, hit_tokens, 8, shared_blocks, 4);
    assert_row_in(&w, 0, seq, 1, 3, 6);
    assert_row_in(&w, 1, seq, 2, 4, 5);
}

TEST(test_a_full_plan_refuses_all_copies)
{
    kvp_config config = inside_config(15, 8);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_prompt prompt = prompt_of(ints(0), 3);
    leave_cached(&w, ints(0), 4);
    (void)open_with(&w, &prompt, NULL);
    kvp_seq seq = {77};
    assert_unchanged(/* room for one copy */
                     &w, assert_status(KVP_E_PLAN_FULL,
                                       kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_int_equal(seq.bits, 77);
    drop_plan(&w);
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

/* A plan that could never hold the copies of all groups: hits are of whole blocks. */
TEST(test_a_plan_of_one_copy_has_no_hits_inside)
{
    kvp_config config = inside_config(15, 8);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    const kvp_open_info info = match(&w, parting(6), 8);
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_NO_ROOM);
}

/* The rest is received: the window will not keep the entry that the hit ends in. */
TEST(test_what_is_not_kept_when_the_rest_is_there_is_not_copied)
{
    const kvp_config config = inside_config(15, 4);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    kvp_prompt prompt = prompt_of(parting(6), 16);
    prompt.flags = KVP_OPEN_RECEIVE;
    const kvp_seq seq = open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 6, copied_tokens, 2);
    const int32_t *row = row_of(&w, 1, seq);
    assert_true(row[0] == 0 && row[1] == 0 && row[2] == 0 && row[3] != 0);
    assert_plan(&w, {0, 0, KVP_DEVICE, KVP_DEVICE, 3, row_of(&w, 0, seq)[1], 2});
    assert_ok(kvp_seq_commit(w.cache, seq, 15));
}

/* A group that lacks a unit inside the block ends the hit at the unit before. */
TEST(test_a_group_may_end_the_hit_inside_a_block)
{
    const kvp_config config = inside_config(15, 8);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    const kvp_open_info info = match(&w, ints(0), 9);
    assert_int_equal(info.hit_tokens, 6); /* computed so far */
    assert_fields(info, stop, KVP_STOP_NO_KV, stop_group, 0);
}

/* ----------------------------------------------------------------------------- recurrent state */

static void keep_at(const world *w, kvp_seq seq, uint32_t n)
{
    uint32_t outcome = 99;
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    assert_ok(kvp_seq_checkpoint(w->cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
}

static void leave_kept(world *w, const uint32_t *ends, uint32_t n)
{
    const kvp_seq seq = open_seq(w, ints(0), 16, NULL);
    for (uint32_t i = 0; i < n; i++)
        keep_at(w, seq, ends[i]);
    assert_ok(kvp_seq_commit(w->cache, seq, 16));
    close_seq(w, seq);
}

TEST(test_a_checkpoint_inside_a_block_is_hit)
{
    kvp_config config = inside_config(23, 4);
    config.state_slots = 8;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_kept(&w, (const uint32_t[]){6, 10}, 2);
    const kvp_seq seq = open_seq(&w, ints(0), 16, &info);
    assert_fields(info, hit_tokens, 10, copied_tokens, 2, stop, KVP_STOP_NO_KV);
    assert_int_equal(info.stop_group, 2); /* the state's: both others have more */
    assert_true(state_of(&w, seq).read_slot != 0);
    assert_fields(state_of(&w, seq), prompt_end, 14, branch_end, 0);
    const int32_t *row = row_of(&w, 1, seq);
    assert_true(row[0] == 0 && row[1] != 0); /* the query at 10 sees 7 and after */
    assert_plan(&w, {0, 0, KVP_DEVICE, KVP_DEVICE, 5, row_of(&w, 0, seq)[2], 2},
                {0, 1, KVP_DEVICE, KVP_DEVICE, 6, row_of(&w, 1, seq)[2], 2});
}

/* No room for the sources of 10: 8 has no state, and so 4 is hit; not 6, which has sources, too. */
TEST(test_a_cut_hit_ends_at_a_checkpoint)
{
    kvp_config config = inside_config(9, 8);
    config.state_slots = 8;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_kept(&w, (const uint32_t[]){4, 6, 10}, 3);
    kvp_prompt prompt = prompt_of(ints(0), 16);
    assert_int_equal(match(&w, prompt.tokens, 16).hit_tokens, 10);
    const kvp_admission admission = can_open(&w, &prompt);
    assert_fields(admission, verdict, KVP_ADMIT_OK, need_blocks, 8);
    const kvp_seq seq = open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_NO_ROOM, stop_group, 0);
    assert_true(state_of(&w, seq).read_slot != 0);
}

TEST_MAIN(NULL, NULL)

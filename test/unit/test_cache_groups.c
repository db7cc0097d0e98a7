/* Several layer groups: rows and blocks, takes and releases, sealing, copy-on-write, swap, the
 * host, events, admission. Which prefix is hit: test_cache_groups_match.c. */
#include <string.h>

#include "groups.h"

static const kvp_window full_and_window[] = {{0, 0}, {0, 4}};

/* S = U = 4; two groups: full attention, and R = 4. */
static kvp_config two_groups(uint32_t usable, uint32_t host)
{
    kvp_config config = groups_config(4, usable, full_and_window, 2);
    config.host_blocks = host == 0 ? 0 : host + 1;
    return config;
}

static world two_world(uint32_t usable, uint32_t host)
{
    const kvp_config config = two_groups(usable, host);
    return make_world(&config);
}

/* -------------------------------------------------------------------------------- configuration */

static kvp_status try_config(kvp_config *config)
{
    size_t n_bytes = 0;
    return kvp_cache_bytes(config, &n_bytes);
}

TEST(test_which_groups_may_be_configured)
{
    kvp_config config;
    kvp_config_init(&config);
    assert_fields(config, n_groups, 1, max_tree_tokens, 0);
    assert_ok(try_config(&config));
    config.n_groups = 0;
    assert_status(KVP_E_ARG, try_config(&config));
    config.n_groups = KVP_GROUPS_MAX + 1;
    assert_status(KVP_E_ARG, try_config(&config));
    config.n_groups = KVP_GROUPS_MAX;
    assert_ok(try_config(&config));
    config.groups[7] = (kvp_group){3, 0, 0}; /* sinks of full attention */
    assert_status(KVP_E_ARG, try_config(&config));
    config.groups[7] = (kvp_group){3, 1, 0};
    assert_ok(try_config(&config));
    config.n_groups = 7; /* of a group that there is not */
    assert_status(KVP_E_ARG, try_config(&config));
    kvp_config_init(&config);
    config.max_tree_tokens = KVP_TREE_TOKENS_MAX + 1;
    assert_status(KVP_E_ARG, try_config(&config));
}

TEST(test_a_group_that_is_not_there)
{
    scoped_world w = two_world(15, 0);
    const int32_t *row = NULL;
    uint32_t n = 77;
    int64_t slot = 77;
    int32_t tokens[4];
    kvp_block_info info;
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_seq_row(w.cache, seq, 1, &row, &n));
    assert_status(KVP_E_ARG, kvp_seq_row(w.cache, seq, 2, &row, &n));
    assert_status(KVP_E_ARG, kvp_seq_slots(w.cache, seq, 2, 0, 1, &slot));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 2, KVP_DEVICE, 1, &info));
    assert_status(KVP_E_ARG, kvp_block_tokens(w.cache, 2, KVP_DEVICE, 1, tokens, &n));
    assert_status(KVP_E_ARG, kvp_seq_window(w.cache, seq, 2, (kvp_window){0, 4}, NULL));
    assert_int_equal(n, 1);
    assert_int_equal(slot, 77);
}

/* ------------------------------------------------------------------------ rows, takes, releases */

TEST(test_takes_go_entry_by_entry_and_releases_backwards)
{
    scoped_world w = two_world(9, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_row_in(&w, 0, seq, 1, 3, 5);
    assert_row_in(&w, 1, seq, 2, 4, 6);
    assert_int_equal(info_of(&w, seq).n_blocks, 3);
    assert_int_equal(stats_of(&w).taken_blocks, 6);
    assert_int_equal(block_of(&w, 3).group, 0);
    assert_int_equal(block_of(&w, 4).group, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 12)); /* 12 sees 9 and after */
    assert_row_in(&w, 0, seq, 1, 3, 5);
    assert_row_in(&w, 1, seq, 0, 0, 6);
    assert_dropped(&w, 0, seq, 0, 0);
    assert_dropped(&w, 1, seq, 0, 2);
    assert_int_equal(info_of(&w, seq).row_version, 1);
    assert_queue(&w, 0, 7, 8, 9, 4, 2);
    extend_seq(&w, seq, 1);
    assert_row_in(&w, 0, seq, 1, 3, 5, 7);
    assert_row_in(&w, 1, seq, 0, 0, 6, 8);
    assert_released(close_seq(&w, seq), 2, 4);
    assert_queue(&w, 0, 7, 8, 9, 4, 2, 6, 5, 3, 1);
}

TEST(test_a_class_is_of_an_entrys_blocks_in_all_groups)
{
    scoped_world w = two_world(9, 0);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){4, 8}, 2));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    close_seq(&w, seq);
    assert_queue(&w, 2, 4, 3);
    assert_queue(&w, 0, 7, 8, 9, 2, 6, 5, 1);
}

TEST(test_entries_of_several_windows_are_dropped_backwards_together)
{
    const kvp_window windows[] = {{0, 8}, {4, 4}, {0, 4}};
    const kvp_config config = groups_config(4, 15, windows, 3);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 20);
    assert_row_in(&w, 0, seq, 0, 0, 0, 10, 13);
    assert_row_in(&w, 1, seq, 2, 0, 0, 0, 14);
    assert_row_in(&w, 2, seq, 0, 0, 0, 0, 15);
    assert_queue(&w, 0, 12, 11, 9, 8, 7, 6, 5, 4, 3, 1);
    assert_int_equal(info_of(&w, seq).row_version, 1);
    assert_int_equal(stats_of(&w).dropped_blocks, 10);
}

TEST(test_slots_are_of_the_groups_blocks)
{
    scoped_world w = two_world(15, 0);
    int64_t slots[6];
    const kvp_seq seq = open_seq(&w, ints(0), 6, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 1));
    assert_ok(kvp_seq_slots(w.cache, seq, 1, 0, 6, slots));
    const int64_t expected[] = {KVP_NO_SLOT, 9, 10, 11, 16, 17};
    assert_memory_equal(slots, expected, sizeof(slots));
}

TEST(test_as_many_groups_as_there_may_be)
{
    const kvp_window windows[KVP_GROUPS_MAX] = {{0, 0}, {0, 1}, {0, 2}, {0, 3},
                                                {0, 4}, {0, 5}, {1, 1}, {5, 1}};
    const kvp_config config = groups_config(4, 24, windows, KVP_GROUPS_MAX);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 12); /* 12 sees, with R = 5, 8 and after */
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        for (uint32_t i = 0; i < 3; i++) {
            const int32_t block = (int32_t)(i * KVP_GROUPS_MAX + g + 1);
            assert_int_equal(block_of(&w, block).group, g);
            assert_int_equal(row_of(&w, g, seq)[i], keeps(windows[g], 4, i, 12) ? block : 0);
        }
    }
    close_seq(&w, seq);
    const kvp_open_info info = match(&w, ints(0), 13);
    assert_fields(info, hit_tokens, 12, shared_blocks, 3 + 0 + 1 + 1 + 1 + 1 + 1 + 2);
}

TEST(test_every_group_may_slide)
{
    const kvp_window windows[] = {{0, 4}, {2, 3}};
    const kvp_config config = groups_config(4, 5, windows, 2);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    decode(&w, seq, 200);
    assert_int_equal(match(&w, ints(0), 200).hit_tokens, 200);
    assert_int_equal(match(&w, ints(0), 199).hit_tokens, 196); /* dropped last, and cached */
    assert_int_equal(match(&w, ints(0), 195).hit_tokens, 0);
    close_seq(&w, seq);
}

/* ----------------------------------------------------------------------------- sealing, sharing */

TEST(test_a_node_has_a_block_of_every_group)
{
    kvp_config config = two_groups(15, 0);
    config.unit_tokens = 2;
    scoped_world w = make_world(&config);
    int32_t tokens[4];
    uint32_t n;
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 7));
    assert_int_equal(stats_of(&w).sealed_units, 6);
    assert_int_equal(block_of(&w, 3).sealed_tokens, 2);
    assert_int_equal(block_of(&w, 4).sealed_units, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(block_of(&w, 3).sealed_units, 2);
    assert_int_equal(block_of(&w, 4).sealed_tokens, 4);
    const kvp_block_info infos[] = {block_of(&w, 3), block_of(&w, 4)};
    assert_memory_equal(&infos[0].hash, &infos[1].hash, sizeof(kvp_hash));
    assert_ok(kvp_block_tokens(w.cache, 1, KVP_DEVICE, 4, tokens, &n));
    assert_int_equal(n, 4);
    assert_memory_equal(tokens, ints(4), sizeof(tokens));
}

TEST(test_a_row_switches_in_the_groups_that_have_the_block)
{
    scoped_world w = two_world(15, 0);
    const kvp_seq first = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq second = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq third = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, first, 8)); /* drops 2 */
    assert_row_in(&w, 0, first, 1, 3);
    assert_row_in(&w, 1, first, 0, 4);
    (void)open_seq(&w, ints(100), 8, NULL); /* 13, 14, 15, and 2, evicted */
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_row_in(&w, 0, second, 1, 7);
    assert_row_in(&w, 1, second, 6, 8); /* nobody else has it in this group */
    assert_ok(kvp_seq_commit(w.cache, third, 4));
    assert_row_in(&w, 1, third, 6, 12);
    assert_int_equal(stats_of(&w).adopted_blocks, 3);
    assert_ok(kvp_seq_commit(w.cache, second, 8));
    assert_row_in(&w, 0, second, 1, 3);
    assert_row_in(&w, 1, second, 0, 4);
    assert_int_equal(block_of(&w, 6).ref_count, 1);
}

TEST(test_duplicates_are_of_a_group)
{
    kvp_config config = two_groups(9, 0);
    config.commit_policy = KVP_KEEP;
    scoped_world w = make_world(&config);
    const kvp_seq first = open_seq(&w, ints(0), 4, NULL);
    const kvp_seq second = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_commit(w.cache, first, 4));
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_int_equal(stats_of(&w).duplicate_blocks, 2);
    close_seq(&w, first);                    /* 2, then 1 */
    (void)open_seq(&w, ints(100), 12, NULL); /* evicts 2: group 1's place goes to 4 */
    assert_row_in(&w, 0, second, 3);
    assert_row_in(&w, 1, second, 4);
    assert_int_equal(block_of(&w, 4).sealed_units, 1);
    assert_int_equal(block_of(&w, 3).sealed_units, 0);
    assert_int_equal(block_of(&w, 1).sealed_units, 1);
    assert_int_equal(match(&w, ints(0), 5).hit_tokens, 4);
}

TEST(test_copy_on_write_copies_every_group)
{
    kvp_config config = two_groups(15, 0);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq child = fork_seq(&w, parent, 6);
    const kvp_seq other = fork_seq(&w, parent, 6);
    const uint32_t one = 1;
    assert_row_in(&w, 1, child, 2, 4);
    assert_int_equal(block_of(&w, 4).ref_count, 3);
    assert_admission(can_extend(&w, &child, &one, 1), KVP_ADMIT_OK, 2, 11, 0);
    extend_seq(&w, child, 1);
    assert_row_in(&w, 0, child, 1, 5);
    assert_row_in(&w, 1, child, 2, 6);
    assert_int_equal(info_of(&w, child).row_version, 2);
    assert_unchanged(&w,
                     assert_status(KVP_E_PLAN_FULL, kvp_seq_extend(w.cache, other, ints(6), 1, 0)));
    kvp_copy copies[3];
    assert_int_equal(take_plan(&w, copies, 3), 2);
    const kvp_copy expected[] = {{.src_block = 3, .dst_block = 5, .n_tokens = 2},
                                 {.src_block = 4, .dst_block = 6, .n_tokens = 2, .group = 1}};
    assert_memory_equal(copies, expected, sizeof(expected));
    extend_seq(&w, other, 1);
}

/* The block of one group may be shared when that of the other is not. */
TEST(test_copy_on_write_copies_only_what_is_shared)
{
    scoped_world w = two_world(15, 0);
    const uint32_t one = 1;
    const kvp_seq parent = open_done(&w, ints(0), 12);
    const kvp_seq child = fork_seq(&w, parent, 12);
    assert_ok(kvp_seq_truncate(w.cache, parent, 11, NULL));
    decode(&w, child, 8); /* its window leaves entry 2 of group 1 */
    assert_dropped(&w, 1, child, 0, 4);
    assert_admission(can_extend(&w, &parent, &one, 1), KVP_ADMIT_OK, 1, 8, 0);
    extend_seq(&w, parent, 1);
    assert_int_equal(row_of(&w, 1, parent)[2], 6);
    assert_int_not_equal(row_of(&w, 0, parent)[2], 5);
    assert_int_equal(stats_of(&w).pending_copies, 1);
}

TEST(test_an_invalidation_withdraws_every_group)
{
    scoped_world w = two_world(9, 0);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    assert_queue(&w, 0, 7, 8, 9, 4, 2);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    assert_int_equal(stats_of(&w).detached_units, 4);
    assert_queue(&w, 0, 4, 7, 8, 9, 2);
    assert_int_equal(block_of(&w, 5).sealed_units + block_of(&w, 6).sealed_units, 0);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
}

TEST(test_a_step_fails_in_one_group)
{
    kvp_config config = two_groups(16, 15);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    kvp_seq cut[1];
    uint32_t n;
    leave_cached(&w, ints(0), 8); /* 2 was dropped, then 4 3 1 were closed */
    evict_blocks(&w, 14);         /* 12 free ones, 2 and 4 */
    assert_int_equal(stats_of(&w).kept_blocks, 2);
    pass_step(&w);
    const kvp_seq seq = open_seq(&w, ints(0), 9, &info);
    assert_int_equal(info.hit_tokens, 8);
    assert_int_equal(info.host_blocks, 1); /* the window's entry 1, and no more */
    assert_int_equal(info.host_tokens, 4);
    assert_int_equal(row_of(&w, 0, seq)[1], 3);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_step_failed(w.cache, step, cut, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(info_of(&w, seq).computed_tokens, 4);
    assert_dropped(&w, 1, seq, 0, 1);
    assert_status(KVP_E_DROPPED, kvp_seq_extend(w.cache, seq, NULL, 0, 0)); /* 4 sees 1 and on */
    assert_ok(kvp_seq_truncate(w.cache, seq, 0, NULL));
    decode(&w, seq, 9);
}

/* --------------------------------------------------------------------------- the host, and swap */

TEST(test_what_is_evicted_is_kept_for_its_group)
{
    scoped_world w = two_world(7, 7);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 8);
    assert_queue(&w, 0, 5, 6, 7, 2, 4, 3, 1);
    kvp_prompt prompt = prompt_of(NULL, 0);
    prompt.reserve_tokens = 12;
    close_seq(&w, open_with(&w, &prompt, NULL)); /* 5 6, 7 2, 4 3 */
    assert_plan(&w, {0, 1, KVP_DEVICE, KVP_HOST, 2, 1, 4}, {0, 1, KVP_DEVICE, KVP_HOST, 4, 2, 4},
                TO_HOST(0, 3, 3, 4));
    assert_int_equal(host_block(&w, 1).group, 1);
    assert_int_equal(host_block(&w, 3).group, 0);
    assert_int_equal(stats_of(&w).kept_blocks, 3);

    (void)open_with(&w, &prompt, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 0); /* what was freed goes first */
    prompt.reserve_tokens = 0;
    const kvp_admission admission = can_open(&w, &prompt);
    assert_int_equal(admission.verdict, KVP_ADMIT_OK);
}

TEST(test_the_list_of_evicted_blocks_names_the_group)
{
    scoped_world w = two_world(4, 0);
    const kvp_evicted *evicted;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_hash hash = block_of(&w, 2).hash;
    close_seq(&w, seq);
    assert_queue(&w, 0, 2, 4, 3, 1);
    (void)open_seq(&w, ints(100), 4, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_fields(evicted[0], block, 2, group, 1);
    assert_memory_equal(&evicted[0].hash, &hash, sizeof(hash));
    assert_fields(evicted[1], block, 4, group, 1);
    (void)open_seq(&w, ints(200), 4, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].group, 0);
    assert_int_equal(evicted[1].kept, 0);
}

TEST(test_a_sequence_is_swapped_in_all_groups)
{
    scoped_world w = two_world(10, 9);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    assert_row_in(&w, 0, seq, 1, 3, 5);
    assert_row_in(&w, 1, seq, 0, 4, 6);
    assert_admission(can_swap_out(&w, &seq, 1), KVP_ADMIT_OK, 5, 9, 0);
    assert_moved(swap_out(&w, &seq, 1), 5, 0, 2, 3);
    assert_row_in(&w, 0, seq, 1, 2, 4);
    assert_row_in(&w, 1, seq, 0, 3, 5);
    assert_queue(&w, 0, 5, 6, 7, 8, 9, 10, 2, 4, 3, 1);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 3, 2, 4), {0, 1, KVP_DEVICE, KVP_HOST, 4, 3, 4},
                TO_HOST(0, 5, 4, 2), {0, 1, KVP_DEVICE, KVP_HOST, 6, 5, 2});
    wipe_device(&w);
    /* Entry 0 has four slots in one group, the rest and one more in both. */
    assert_admission(can_swap_in(&w, &seq, 1, 3), KVP_ADMIT_OK, 7, 10, 0);
    assert_moved(swap_in(&w, &seq, 1, 3), 5, 0, 2, 3);
    assert_int_equal(info_of(&w, seq).n_blocks, 4);
    assert_dropped(&w, 1, seq, 0, 1);
    decode(&w, seq, 3);
}

/* Two sequences that share a partly filled block and are about to write it: one copies, in both
 * groups. */
TEST(test_room_after_a_swap_is_of_all_groups)
{
    scoped_world w = two_world(10, 9);
    kvp_seq seqs[2];
    seqs[0] = open_done(&w, ints(0), 6);
    seqs[1] = fork_seq(&w, seqs[0], 6);
    assert_moved(swap_out(&w, seqs, 2), 4, 0, 2, 2);
    drop_plan(&w);
    wipe_device(&w);
    assert_admission(can_swap_in(&w, seqs, 2, 0), KVP_ADMIT_OK, 4, 10, 0);
    assert_admission(can_swap_in(&w, seqs, 2, 1), KVP_ADMIT_OK, 6, 10, 0);
    assert_moved(swap_in(&w, seqs, 2, 1), 4, 0, 2, 2);
    assert_fields(stats_of(&w), held_blocks, 6, pending_copies, 6);
    assert_int_equal(row_of(&w, 1, seqs[0])[0], row_of(&w, 1, seqs[1])[0]);
    assert_int_not_equal(row_of(&w, 0, seqs[0])[1], row_of(&w, 0, seqs[1])[1]);
    assert_int_not_equal(row_of(&w, 1, seqs[0])[1], row_of(&w, 1, seqs[1])[1]);
}

TEST(test_blocks_are_found_on_the_other_tier_for_each_group)
{
    scoped_world w = two_world(9, 9);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    (void)swap_out(&w, &seq, 1);
    drop_plan(&w);
    assert_queue(&w, 0, 5, 6, 7, 8, 9, 2, 4, 3, 1);
    evict_blocks(&w, 6); /* 2 */
    evict_blocks(&w, 8); /* 4, 3: of the second entry both */
    assert_moved(swap_in(&w, &seq, 1, 0), 2, 1, 0, 3);
    assert_int_equal(row_of(&w, 0, seq)[0], 1);
}

/* --------------------------------------------------------------------------------------- events */

/* Apply all events to an empty set, and count its elements: [tier][group]. */
static void count_stored(const world *w, int counts[2][2])
{
    kvp_event events[64];
    uint32_t n;
    memset(counts, 0, 4 * sizeof(int));
    assert_ok(kvp_events_read(w->cache, 1, events, 64, NULL, &n));
    for (uint32_t i = 0; i < n; i++) {
        assert_in_range(events[i].group, 0, 1);
        counts[events[i].tier][events[i].group] += events[i].kind == KVP_EVENT_STORED ? 1 : -1;
    }
}

static void expect_set(world *w, int device0, int device1, int host0, int host1)
{
    kvp_event snapshot[64];
    int counts[2][2];
    uint64_t number;
    uint32_t n;
    count_stored(w, counts);
    assert_int_equal(counts[KVP_DEVICE][0], device0);
    assert_int_equal(counts[KVP_DEVICE][1], device1);
    assert_int_equal(counts[KVP_HOST][0], host0);
    assert_int_equal(counts[KVP_HOST][1], host1);
    assert_ok(kvp_events_snapshot(w->cache, snapshot, 64, NULL, &n, &number));
    for (uint32_t i = 0; i < n; i++)
        counts[snapshot[i].tier][snapshot[i].group]--;
    assert_int_equal(counts[0][0] | counts[0][1] | counts[1][0] | counts[1][1], 0);
}

TEST(test_events_are_of_a_group)
{
    kvp_config config = two_groups(9, 9);
    config.max_events = 64;
    scoped_world w = make_world(&config);
    kvp_event events[3];
    uint32_t n;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    expect_set(&w, 2, 2, 0, 0); /* what is dropped is stored still */
    assert_ok(kvp_events_read(w.cache, 1, events, 3, NULL, &n));
    assert_int_equal(events[0].group, 0);
    assert_int_equal(events[1].group, 1); /* unit by unit */
    assert_int_equal(events[1].position, 0);
    assert_fields(events[2], group, 0, position, 4);
    close_seq(&w, seq);
    evict_blocks(&w, 6); /* 5 free blocks, and 2 */
    expect_set(&w, 2, 1, 0, 1);
    evict_blocks(&w, 8);
    expect_set(&w, 1, 0, 1, 2);
}

/* ------------------------------------------------------------------------------------ admission */

TEST(test_admission_counts_the_blocks_of_all_groups)
{
    scoped_world w = two_world(9, 0);
    kvp_seq seq = {77};
    kvp_prompt prompt = prompt_of(ints(0), 16);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 8, 9, 0);
    prompt.reserve_tokens = 1; /* a prompt is given all its blocks at once, windows or not */
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_NEVER, 10, 9, 1);
    assert_unchanged(&w,
                     assert_status(KVP_E_NEVER, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_NEVER, 0, 1);

    leave_cached(&w, ints(0), 16);
    prompt = prompt_of(ints(0), 18); /* 4 and 1 entries hit, one more in both */
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 7, 9, 0);
    const kvp_seq other = open_seq(&w, ints(100), 3, NULL);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_OK, 7, 7, 0);
    const kvp_seq third = open_seq(&w, ints(200), 3, NULL);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_LATER, 7, 5, 2);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 2);
    assert_int_equal(seq.bits, 77);
    close_seq(&w, third);
    close_seq(&w, other);
}

TEST(test_never_counts_what_is_not_null)
{
    kvp_config config = two_groups(7, 0);
    config.watermark = 0.15; /* one block */
    scoped_world w = make_world(&config);
    uint32_t n = 1;
    const kvp_seq seq = open_seq(&w, NULL, 0, NULL);
    decode(&w, seq, 16); /* 4 entries, and 1 */
    assert_int_equal(stats_of(&w).held_blocks, 5);
    assert_admission(can_extend(&w, &seq, &n, 1), KVP_ADMIT_OK, 2, 2, 0);
    n = 5;
    assert_admission(can_extend(&w, &seq, &n, 1), KVP_ADMIT_NEVER, 4, 2, 2);
    assert_unchanged(&w, assert_status(KVP_E_NEVER, kvp_seq_extend(w.cache, seq, NULL, 5, 0)));
    decode(&w, seq, 4); /* 5, and 1: the last that fits */
    assert_status(KVP_E_NEVER, kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    close_seq(&w, seq);

    kvp_prompt prompt = prompt_of(ints(0), 21); /* 5 entries hit of the one, 1 of the other */
    assert_int_equal(match(&w, ints(0), 21).hit_tokens, 20);
    assert_admission(can_open(&w, &prompt), KVP_ADMIT_NEVER, 8, 7, 1); /* nobody holds a block */
    (void)open_seq(&w, ints(0), 20, NULL);
    assert_int_equal(can_open(&w, &prompt).missing_blocks, 2); /* and the watermark */
}

TEST(test_an_extend_of_many_is_all_or_nothing_in_all_groups)
{
    scoped_world w = two_world(9, 0);
    const uint32_t n_tokens[] = {1, 1};
    kvp_status statuses[2];
    kvp_seq seqs[2];
    seqs[0] = open_done(&w, ints(0), 8); /* 3 blocks */
    seqs[1] = open_done(&w, ints(100), 4);
    kvp_seq other = open_seq(&w, ints(200), 1, NULL); /* two blocks are left */
    kvp_batch batch = batch_of(seqs, n_tokens, 2);
    assert_admission(can_extend(&w, seqs, n_tokens, 2), KVP_ADMIT_LATER, 4, 2, 2);
    assert_unchanged(&w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &batch)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 1, 2);
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = statuses;
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_int_equal(statuses[0], KVP_OK);
    assert_int_equal(statuses[1], KVP_E_NO_BLOCKS);
    close_seq(&w, other);
    extend_seq(&w, seqs[1], 1);
}

TEST_MAIN(NULL, NULL)

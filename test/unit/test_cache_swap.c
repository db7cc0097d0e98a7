/* Swap: what moves to the host and back, what is shared there, what is found and not copied, what
 * is released and in which order. */
#include <string.h>

#include "tiers.h"

/* ----------------------------------------------------------------------------------- one by one */

TEST(test_swap_out_moves_what_is_computed_and_releases_the_rest)
{
    scoped_world w = tiers_world(15, 15);
    kvp_prompt prompt = prompt_of(ints(0), 10);
    prompt.reserve_tokens = 8;
    const kvp_seq seq = open_with(&w, &prompt, NULL); /* 1 to 5 */
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_moved(swap_out(&w, &seq, 1), 3, 0, 3, 2);
    assert_row(&w, seq, 1, 2, 3);
    assert_queue(&w, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 2, 1);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 4), TO_HOST(0, 3, 3, 1));
}

TEST(test_a_swapped_sequence_keeps_its_tokens_and_can_be_asked)
{
    scoped_world w = tiers_world(15, 15);
    int32_t tokens[10];
    kvp_prompt prompt = prompt_of(ints(0), 10);
    prompt.reserve_tokens = 8;
    prompt.tag = 42;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_int_equal(info_of(&w, seq).tier, KVP_DEVICE);
    kvp_seq_info before = info_of(&w, seq);
    swap_out(&w, &seq, 1);
    const kvp_seq_info info = info_of(&w, seq);
    before.n_blocks = 3;
    before.writable_tokens = 9; /* the tenth is computed again after the swap-in */
    before.row_version++;
    before.tier = KVP_HOST;
    assert_memory_equal(&info, &before, sizeof(info));
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 10, tokens));
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    uint32_t n;
    assert_ok(kvp_seq_block_tokens(w.cache, seq, 2, tokens, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(tokens, ints(8), 2 * sizeof(int32_t));
}

TEST(test_the_hosts_block_has_the_same_content)
{
    scoped_world w = tiers_world(15, 15);
    int32_t tokens[4];
    uint32_t n;
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    for (int32_t block = 1; block <= 2; block++) {
        const kvp_block_info info = host_block(&w, block);
        const kvp_hash hash = block_of(&w, block).hash;
        assert_fields(info, state, KVP_BLOCK_HELD, ref_count, 1, sealed_units, 1, sealed_tokens, 4);
        assert_memory_equal(&info.hash, &hash, sizeof(hash));
        assert_ok(kvp_block_tokens(w.cache, 0, KVP_HOST, block, tokens, &n));
        assert_int_equal(n, 4);
        assert_memory_equal(tokens, ints(4 * (block - 1)), sizeof(tokens));
    }
    assert_fields(host_block(&w, 3), state, KVP_BLOCK_HELD, sealed_units, 0);
    assert_int_equal(host_block(&w, 4).state, KVP_BLOCK_FREE);
    assert_int_equal(host_block(&w, 0).state, KVP_BLOCK_NULL);
}

TEST(test_swap_in_copies_what_the_device_has_not)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    wipe_device(&w); /* its queue is 3, 4, ... 15, 2, 1 */
    assert_moved(swap_in(&w, &seq, 1, 0), 3, 0, 1, 2);
    assert_row(&w, seq, 3, 4, 5);
    assert_plan(&w, TO_DEVICE(0, 1, 3, 4), TO_DEVICE(0, 2, 4, 4), TO_DEVICE(0, 3, 5, 2));
    assert_int_equal(block_of(&w, 3).sealed_units, 1);
    assert_int_equal(block_of(&w, 4).sealed_units, 1);
    assert_int_equal(match(&w, ints(0), 8).host_tokens, 0);
    assert_int_equal(info_of(&w, seq).tier, KVP_DEVICE);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(10), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
}

TEST(test_what_is_there_already_is_held_and_not_copied)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 0, 2);
    drop_plan(&w);
    for (int i = 0; i < 3; i++) { /* both tiers have all of it by now */
        assert_moved(swap_in(&w, &seq, 1, 0), 0, 2, 0, 2);
        assert_row(&w, seq, 1, 2);
        assert_int_equal(block_of(&w, 2).ref_count, 1);
        assert_moved(swap_out(&w, &seq, 1), 0, 2, 0, 2);
        assert_row(&w, seq, 1, 2);
        assert_int_equal(host_block(&w, 2).ref_count, 1);
    }
    assert_no_plan(&w);
}

TEST(test_the_partly_filled_block_moves_with_its_fill_each_time)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    drop_plan(&w);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 2, 1, 2);
    assert_row(&w, seq, 1, 2, 3);
    assert_plan(&w, TO_DEVICE(0, 3, 3, 2));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(10), 1, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 11));
    assert_moved(swap_out(&w, &seq, 1), 1, 2, 1, 2);
    assert_row(&w, seq, 1, 2, 3);
    assert_plan(&w, TO_HOST(0, 3, 3, 3));
}

/* The way there and back in one plan: the second copy reads what the first one writes. */
TEST(test_a_plan_that_goes_there_and_back_has_two_phases)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    assert_row(&w, seq, 1, 2);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 2), TO_DEVICE(1, 2, 2, 2));
}

TEST(test_tokens_that_were_not_committed_get_room_again)
{
    scoped_world w = tiers_world(15, 15);
    int64_t slots[4];
    const int64_t expected[] = {10, 11, 12, 13};
    const kvp_seq seq = open_seq(&w, ints(0), 10, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 2, 1);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 1, 1, 1);
    assert_row(&w, seq, 1, 2, 3);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 2), TO_DEVICE(1, 2, 2, 2));
    assert_int_equal(info_of(&w, seq).writable_tokens, 10);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 6, 4, slots));
    assert_memory_equal(slots, expected, sizeof(slots));
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    assert_int_equal(match(&w, ints(0), 10).hit_tokens, 8);
}

TEST(test_the_reserve_of_a_swap_in_is_there_for_the_next_extend)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    swap_out(&w, &seq, 1);
    assert_moved(swap_in(&w, &seq, 1, 5), 0, 2, 0, 2);
    assert_row(&w, seq, 1, 2, 3, 4); /* 13 tokens' worth */
    assert_int_equal(info_of(&w, seq).writable_tokens, 13);
    const uint64_t taken = stats_of(&w).taken_blocks;
    assert_ok(kvp_seq_extend(w.cache, seq, ints(8), 5, 0));
    assert_int_equal(stats_of(&w).taken_blocks, taken);
    assert_int_equal(stats_of(&w).pending_copies, 2); /* those of the way out */
}

TEST(test_nothing_computed_moves_nothing)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seqs[] = {open_seq(&w, NULL, 0, NULL), open_seq(&w, ints(0), 6, NULL)};
    assert_moved(swap_out(&w, seqs, 2), 0, 0, 2, 0);
    assert_no_row(&w, seqs[1]);
    assert_int_equal(info_of(&w, seqs[0]).tier, KVP_HOST);
    assert_int_equal(info_of(&w, seqs[1]).n_tokens, 6);
    assert_moved(swap_in(&w, seqs, 2, 1), 0, 0, 0, 0);
    assert_row(&w, seqs[0], 1);
    assert_row(&w, seqs[1], 2, 3);
    assert_no_plan(&w);
}

TEST(test_computed_tokens_without_values_move_and_can_be_filled_later)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 1, 1);
    assert_int_equal(host_block(&w, 2).sealed_units, 0);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 1, 1, 1);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 4));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

/* -------------------------------------------------------------------------------------- sharing */

/* A parent of 10 tokens, and forks of it at 10 and at 9. */
static void open_three(world *w, kvp_seq seqs[3])
{
    seqs[0] = open_done(w, ints(0), 10);
    seqs[1] = fork_seq(w, seqs[0], 10);
    seqs[2] = fork_seq(w, seqs[0], 9);
}

TEST(test_sharing_survives_there_and_back_in_one_call)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq seqs[3];
    open_three(&w, seqs);
    assert_moved(swap_out(&w, seqs, 3), 3, 0, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_row(&w, seqs[i], 1, 2, 3);
        assert_int_equal(host_block(&w, i + 1).ref_count, 3);
    }
    assert_moved(swap_in(&w, seqs, 3, 0), 1, 2, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_row(&w, seqs[i], 1, 2, 3);
        assert_int_equal(block_of(&w, i + 1).ref_count, 3);
    }
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 4), TO_HOST(0, 3, 3, 2),
                TO_DEVICE(1, 3, 3, 2));
}

TEST(test_a_shared_block_is_copied_with_the_most_slots_that_anyone_has)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq seqs[3];
    open_three(&w, seqs);
    const kvp_seq nine_first[] = {seqs[2], seqs[0]};
    assert_moved(swap_out(&w, nine_first, 2), 3, 0, 0, 0); /* the other one stays */
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 4), TO_HOST(0, 3, 3, 2));
    assert_moved(swap_in(&w, &seqs[2], 1, 0), 1, 2, 0, 0);
    assert_plan(&w, TO_DEVICE(0, 3, 4, 1)); /* of those that move now */
    assert_row(&w, seqs[2], 1, 2, 4);
}

TEST(test_in_two_calls_sealed_blocks_stay_shared_and_unsealed_ones_do_not)
{
    scoped_world w = tiers_world(15, 15);
    kvp_seq seqs[3];
    open_three(&w, seqs);
    close_seq(&w, seqs[2]);
    assert_moved(swap_out(&w, &seqs[0], 1), 3, 0, 0, 0);
    assert_moved(swap_out(&w, &seqs[1], 1), 1, 2, 1, 2);
    assert_row(&w, seqs[0], 1, 2, 3);
    assert_row(&w, seqs[1], 1, 2, 4);
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 4), TO_HOST(0, 3, 3, 2),
                TO_HOST(0, 3, 4, 2));
    assert_moved(swap_in(&w, &seqs[0], 1, 0), 1, 2, 1, 0); /* the other one holds the rest */
    assert_moved(swap_in(&w, &seqs[1], 1, 0), 1, 2, 1, 2);
    assert_row(&w, seqs[0], 1, 2, 3);
    assert_row(&w, seqs[1], 1, 2, 4);
    assert_plan(&w, TO_DEVICE(0, 3, 3, 2), TO_DEVICE(0, 4, 4, 2));
}

TEST(test_blocks_are_taken_in_the_order_of_the_sequences)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq a = open_done(&w, ints(0), 8);   /* 1 2 */
    const kvp_seq b = open_done(&w, ints(100), 6); /* 3 4 */
    const kvp_seq b_first[] = {b, a};
    assert_moved(swap_out(&w, b_first, 2), 4, 0, 1, 3);
    assert_row(&w, b, 1, 2);
    assert_row(&w, a, 3, 4);
    assert_plan(&w, TO_HOST(0, 3, 1, 4), TO_HOST(0, 4, 2, 2), TO_HOST(0, 1, 3, 4),
                TO_HOST(0, 2, 4, 4));
    /* b first, each from its last entry down: 4 is free, 3 cached, then 2 and 1 */
    assert_queue(&w, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3, 2, 1);
}

TEST(test_who_stays_keeps_the_blocks_and_they_are_found_on_the_way_back)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const kvp_seq child = fork_seq(&w, parent, 10);
    assert_moved(swap_out(&w, &child, 1), 3, 0, 0, 0);
    assert_ok(kvp_seq_extend(w.cache, parent, ints(10), 1, 0)); /* alone by now: no copy */
    assert_row(&w, parent, 1, 2, 3);
    assert_ok(kvp_seq_commit(w.cache, parent, 11));
    drop_plan(&w);
    assert_admission(can_swap_in(&w, &child, 1, 0), KVP_ADMIT_OK, 1, 12, 0);
    assert_moved(swap_in(&w, &child, 1, 0), 1, 2, 1, 2);
    assert_row(&w, child, 1, 2, 4);
    assert_plan(&w, TO_DEVICE(0, 3, 4, 2));
}

/* The header's example: four beams with 37 computed tokens each, S = 16. */
static void open_beams(world *w, kvp_seq beams[4])
{
    const kvp_config config = tiers_config(16, 16, 15, 15);
    *w = make_world(&config);
    beams[0] = open_done(w, ints(0), 37);
    for (int i = 1; i < 4; i++)
        beams[i] = fork_seq(w, beams[0], 37);
}

TEST(test_four_beams_need_three_blocks_and_six_with_a_reserve)
{
    scoped_world w;
    kvp_seq beams[4];
    open_beams(&w, beams);
    assert_moved(swap_out(&w, beams, 4), 3, 0, 1, 2);
    drop_plan(&w);
    wipe_device(&w); /* its queue is 3, 4, ... 15, 2, 1 */
    assert_admission(can_swap_in(&w, beams, 4, 0), KVP_ADMIT_OK, 3, 15, 0);
    assert_admission(can_swap_in(&w, beams, 4, 1), KVP_ADMIT_OK, 6, 15, 0);
    assert_moved(swap_in(&w, beams, 4, 1), 3, 0, 1, 2);
    assert_int_equal(stats_of(&w).free_blocks, 15 - 6);
    assert_row(&w, beams[0], 3, 4, 6); /* whoever comes last keeps the shared one */
    assert_row(&w, beams[1], 3, 4, 7);
    assert_row(&w, beams[2], 3, 4, 8);
    assert_row(&w, beams[3], 3, 4, 5);
    assert_plan(&w, TO_DEVICE(0, 1, 3, 16), TO_DEVICE(0, 2, 4, 16), TO_DEVICE(0, 3, 5, 5),
                ON_DEVICE(1, 5, 6, 5), ON_DEVICE(1, 5, 7, 5), ON_DEVICE(1, 5, 8, 5));
}

TEST(test_beams_swapped_in_by_two_copy_for_those_that_come)
{
    scoped_world w;
    kvp_seq beams[4];
    open_beams(&w, beams);
    swap_out(&w, beams, 4);
    drop_plan(&w);
    wipe_device(&w);
    assert_admission(can_swap_in(&w, beams, 2, 1), KVP_ADMIT_OK, 4, 15, 0);
    assert_moved(swap_in(&w, beams, 2, 1), 3, 0, 0, 0);
    assert_row(&w, beams[0], 3, 4, 6);
    assert_row(&w, beams[1], 3, 4, 5);
    assert_admission(can_swap_in(&w, beams + 2, 2, 1), KVP_ADMIT_OK, 2, 11, 0);
    assert_moved(swap_in(&w, beams + 2, 2, 1), 1, 2, 1, 2);
    assert_row(&w, beams[2], 3, 4, 8);
    assert_row(&w, beams[3], 3, 4, 7);
}

TEST(test_copy_on_write_of_a_swap_in_is_exact_at_every_fill)
{
    for (uint32_t n = 1; n <= 9; n++) {
        scoped_world w = tiers_world(31, 15);
        kvp_seq seqs[3] = {open_done(&w, ints(0), n)};
        seqs[1] = fork_seq(&w, seqs[0], n);
        seqs[2] = fork_seq(&w, seqs[0], n);
        swap_out(&w, seqs, 3);
        wipe_device(&w);
        for (uint32_t reserve = 0; reserve <= 5; reserve++) {
            const uint32_t room = (n + reserve + 3) / 4 - (n + 3) / 4; /* blocks for each */
            const uint32_t copies = n % 4 != 0 && reserve > 0 ? 2 : 0;
            assert_int_equal(can_swap_in(&w, seqs, 3, reserve).need_blocks,
                             (n + 3) / 4 + 3 * room + copies);
        }
        const uint64_t copies = stats_of(&w).copies;
        assert_moved(swap_in(&w, seqs, 3, 1), (n + 3) / 4, 0, n % 4 != 0, n / 4);
        assert_int_equal(stats_of(&w).copies - copies, (n + 3) / 4 + (n % 4 != 0 ? 2 : 0));
    }
}

/* One has all of the block, the other six of its eight tokens: found for the first, it is for both,
 * and whoever is short of it copies to write. */
TEST(test_a_block_that_one_has_in_part_is_found_if_who_has_all_comes_first)
{
    for (int whole_first = 0; whole_first < 2; whole_first++) {
        scoped_world w = tiers_world(15, 15);
        const kvp_seq whole = open_done(&w, ints(0), 8);
        const kvp_seq part = fork_seq(&w, whole, 6);
        const kvp_seq seqs[] = {whole_first ? whole : part, whole_first ? part : whole};
        swap_out(&w, seqs, 2);
        drop_plan(&w);
        assert_row(&w, part, 1, 2);
        assert_int_equal(host_block(&w, 2).sealed_units, 1);
        const kvp_admission admission = can_swap_in(&w, seqs, 2, 1);
        assert_int_equal(admission.need_blocks, 4); /* 1 and 2, found or not; a copy; the ninth */
        assert_int_equal(admission.copied_blocks, whole_first ? 0 : 1);
        assert_moved(swap_in(&w, seqs, 2, 1), whole_first ? 0 : 1, whole_first ? 2 : 1, 0, 2);
        if (whole_first) {
            assert_row(&w, whole, 1, 2, 3);
            assert_row(&w, part, 1, 4);
            assert_plan(&w, ON_DEVICE(0, 2, 4, 2));
        } else {
            assert_row(&w, part, 1, 4); /* copies what it shares with the other one */
            assert_row(&w, whole, 1, 3, 5);
            assert_plan(&w, TO_DEVICE(0, 2, 3, 4), ON_DEVICE(1, 3, 4, 2));
        }
    }
}

/* -------------------------------------------------------------------------------- smaller units */

TEST(test_units_inside_a_block_are_found_with_it)
{
    const kvp_config config = tiers_config(4, 2, 15, 15);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 7);
    assert_moved(swap_out(&w, &seq, 1), 2, 0, 0, 2);
    assert_int_equal(host_block(&w, 1).sealed_units, 2);
    assert_fields(host_block(&w, 2), sealed_units, 1, sealed_tokens, 2);
    assert_moved(swap_in(&w, &seq, 1, 0), 1, 1, 0, 2);
    assert_row(&w, seq, 1, 3); /* the second block is not full: copied, though 2 has its unit */
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_CACHED);
    assert_int_equal(block_of(&w, 3).sealed_units, 0); /* a duplicate there */
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 3), TO_DEVICE(1, 2, 3, 3));
    evict_first(&w);                                   /* 2 */
    assert_int_equal(block_of(&w, 3).sealed_units, 1); /* takes its place */
    assert_int_equal(match(&w, ints(0), 7).host_tokens, 0);
}

TEST(test_a_full_block_of_units_is_found_by_its_last_one)
{
    const kvp_config config = tiers_config(4, 2, 15, 15);
    scoped_world w = make_world(&config);
    kvp_seq seq = open_done(&w, ints(0), 2);               /* 1 has the first unit */
    const kvp_seq longer = open_seq(&w, ints(0), 4, NULL); /* 2 a copy of it, and the second */
    assert_ok(kvp_seq_commit(w.cache, longer, 4));
    drop_plan(&w);
    swap_out(&w, &longer, 1);
    assert_int_equal(host_block(&w, 1).sealed_units, 2); /* no block of the host had the first */
    assert_moved(swap_in(&w, &longer, 1, 0), 0, 1, 0, 1);
    assert_row(&w, longer, 2);
    close_seq(&w, seq);
}

/* ----------------------------------------------------------------------------- classes, numbers */

TEST(test_blocks_keep_their_retention_class)
{
    scoped_world w = tiers_world(15, 15);
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.retention = 3;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){4, 8}, 5));
    swap_out(&w, &seq, 1);
    const uint32_t classes[] = {3, 5, 3};
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(host_block(&w, i + 1).retention, classes[i]);
    drop_plan(&w);
    wipe_device(&w);
    swap_in(&w, &seq, 1, 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(block_of(&w, row_entry(&w, seq, i)).retention, classes[i]);
    assert_int_equal(block_of(&w, row_entry(&w, seq, 3)).retention, 3); /* the sequence's */
    assert_host_queue(&w, 3, 3, 1); /* released from the last down, each to its own class */
    assert_host_queue(&w, 5, 2);
}

TEST(test_a_found_block_keeps_its_own_class)
{
    scoped_world w = tiers_world(15, 15);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.retention = 3;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){0, 4}, 6));
    assert_moved(swap_out(&w, &seq, 1), 0, 1, 0, 1);
    assert_int_equal(host_block(&w, 1).retention, 3);
}

TEST(test_generations_rise_where_content_is_lost)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    assert_int_equal(block_of(&w, 1).generation, 0);
    assert_int_equal(block_of(&w, 2).generation, 1); /* released without a sealed unit */
    assert_int_equal(host_block(&w, 2).generation, 0);
    swap_in(&w, &seq, 1, 0);
    assert_int_equal(host_block(&w, 1).generation, 0);
    assert_int_equal(host_block(&w, 2).generation, 1);
}

TEST(test_the_rows_version_rises_by_one_with_each_move)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 8), open_seq(&w, NULL, 0, NULL)};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(info_of(&w, seqs[0]).row_version, i);
        assert_int_equal(info_of(&w, seqs[1]).row_version, i); /* an empty row, too */
        if (i % 2 == 0)
            swap_out(&w, seqs, 2);
        else
            swap_in(&w, seqs, 2, 0);
    }
}

TEST(test_statistics_of_swaps)
{
    scoped_world w = tiers_world(15, 7);
    kvp_seq seqs[3];
    open_three(&w, seqs);
    swap_out(&w, seqs, 3);
    kvp_stats s = stats_of(&w);
    assert_fields(s, swap_outs, 3, swap_ins, 0, swapped_seqs, 3, open_seqs, 3);
    assert_fields(s, swapped_out_blocks, 3, pending_copies, 3, host_usable_blocks, 7,
                  host_held_blocks, 3);
    assert_fields(s, host_free_blocks, 4, held_blocks, 0, free_blocks, 13, cached_blocks, 2);
    assert_int_equal(s.taken_blocks, 3); /* of the device */
    swap_in(&w, seqs, 2, 0);
    s = stats_of(&w);
    assert_fields(s, swap_ins, 2, swapped_seqs, 1, swapped_in_blocks, 1);
    assert_fields(s, held_blocks, 3, host_held_blocks, 3, taken_blocks, 4);
    swap_in(&w, seqs + 2, 1, 0);
    s = stats_of(&w);
    assert_fields(s, swap_ins, 3, swapped_in_blocks, 2, host_held_blocks, 0, host_cached_blocks, 2,
                  host_free_blocks, 5);
}

TEST_MAIN(NULL, NULL)

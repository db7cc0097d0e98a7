/* Extend and fill: room, copy-on-write, writing over sealed slots, lookahead, values that come
 * later, and the same for many sequences. */
#include <string.h>

#include "world.h"

/* -------------------------------------------------------------------------------------- growing */

TEST(test_blocks_are_taken_as_tokens_and_reserve_need_them_and_never_fewer)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_seq(&w, ints(0), 3, NULL);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(3), 1, 0));
    assert_row(&w, seq, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 1, 4));
    assert_row(&w, seq, 1, 2, 3);
    assert_int_equal(info_of(&w, seq).writable_tokens, 9);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(5), 1, 0)); /* the reserve stays */
    assert_row(&w, seq, 1, 2, 3);
    assert_fields(info_of(&w, seq), writable_tokens, 9, n_tokens, 6);
    assert_int_equal(info_of(&w, seq).row_version, 0); /* nothing that was there went */
}

TEST(test_reserved_slots_are_written_without_another_block)
{
    scoped_world w = small_world(15);
    int64_t slots[6];
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 6)); /* lookahead */
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 6, 6, slots));
    for (int64_t i = 0; i < 6; i++)
        assert_int_equal(slots[i], 4 + 6 + i); /* blocks 1 2 3: slots 4 to 15 */
    assert_int_equal(info_of(&w, seq).n_tokens, 6);
    const uint64_t taken = stats_of(&w).taken_blocks;
    assert_ok(kvp_seq_extend(w.cache, seq, ints(6), 6, 0));
    assert_int_equal(stats_of(&w).taken_blocks, taken);
}

TEST(test_a_new_block_is_taken_in_the_sequences_class)
{
    scoped_world w = small_world(15);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.retention = 5;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    close_seq(&w, seq);
    assert_queue(&w, 5, 2, 1);
    assert_int_equal(block_of(&w, 2).retention, 5);
}

TEST(test_growth_that_does_not_fit_says_what_is_missing)
{
    scoped_world w = small_world(4);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const kvp_seq other = open_seq(&w, ints(100), 4, NULL);
    assert_unchanged(&w,
                     assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend(w.cache, seq, ints(8), 8, 0)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 1);
    assert_unchanged(&w, assert_status(KVP_E_NEVER, kvp_seq_extend(w.cache, seq, ints(8), 8, 8)));
    assert_shortage(&w, KVP_E_NEVER, 0, 2);
    assert_int_equal(stats_of(&w).refused, 2);
    close_seq(&w, other);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(8), 8, 0));
}

TEST(test_tokens_end_at_max_seq_tokens)
{
    scoped_world w = small_world(100);
    const kvp_seq seq = open_seq(&w, ints(0), 250, NULL);
    const uint32_t cases[][2] = {{7, 0},          {0, 7},          {6, 1},
                                 {UINT32_MAX, 0}, {0, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_unchanged(
            &w, assert_status(KVP_E_TOO_LONG,
                              kvp_seq_extend(w.cache, seq, NULL, cases[i][0], cases[i][1])));
        assert_shortage(&w, KVP_E_TOO_LONG, 0, 0);
    }
    assert_ok(kvp_seq_extend(w.cache, seq, ints(250), 5, 1));
}

TEST(test_negative_ids_are_refused_everywhere)
{
    scoped_world w = small_world(15);
    int32_t tokens[6] = {1, 2, 3, 4, 5, -1};
    kvp_seq seq;
    kvp_open_info info;
    const kvp_prompt prompt = prompt_of(tokens, 6);
    assert_unchanged(&w,
                     assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_status(KVP_E_ARG, kvp_cache_match(w.cache, w.ns, &prompt, &info));
    seq = open_seq(&w, ints(0), 3, NULL);
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_extend(w.cache, seq, tokens, 6, 0)));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 6, 0));
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_seq_fill(w.cache, seq, tokens, 6)));
    assert_ok(kvp_seq_fill(w.cache, seq, tokens, 5));
}

/* -------------------------------------------------------------------------------- copy-on-write */

TEST(test_a_shared_block_is_copied_up_to_the_tokens_before_the_call)
{
    scoped_world w = small_world(15);
    kvp_copy copies[2];
    const kvp_seq parent = open_done(&w, ints(0), 7);
    const kvp_seq child = fork_seq(&w, parent, 7);
    assert_ok(kvp_seq_extend(w.cache, child, ints(70), 5, 0));
    assert_row(&w, child, 1, 3, 4);
    assert_int_equal(info_of(&w, child).row_version, 1);
    assert_int_equal(take_plan(&w, copies, 2), 1);
    assert_fields(copies[0], src_block, 2, dst_block, 3, n_tokens, 3);
}

TEST(test_a_shared_block_without_computed_tokens_is_replaced_without_a_copy)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq child = fork_seq(&w, parent, 8);
    const kvp_seq copying = fork_seq(&w, parent, 7);
    assert_ok(kvp_seq_extend(w.cache, copying, ints(70), 1, 0)); /* block 3; the plan is full */
    assert_ok(kvp_seq_invalidate(w.cache, child, 4, NULL, 0, NULL));
    assert_ok(kvp_seq_extend(w.cache, child, NULL, 0, 0));
    assert_row(&w, child, 1, 4);
    assert_row(&w, parent, 1, 2);
    assert_int_equal(stats_of(&w).pending_copies, 1);
}

TEST(test_computed_units_of_a_copied_block_are_duplicates_in_the_new_one)
{
    const kvp_config config = config_of(4, 2, 3);
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 4);
    const kvp_seq child = fork_seq(&w, parent, 3);
    assert_ok(kvp_seq_extend(w.cache, child, ints(30), 1, 0));
    assert_row(&w, child, 2);
    close_seq(&w, parent);
    (void)open_seq(&w, ints(100), 8, NULL); /* evicts block 1: 2 takes its place for unit 0 */
    assert_fields(block_of(&w, 2), sealed_units, 1, sealed_tokens, 2);
    assert_int_equal(match(&w, ints(0), 2).hit_tokens, 2);
}

TEST(test_writing_over_sealed_slots_detaches_their_units)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL)); /* unit 3 is still sealed */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(60), 1, 0));
    assert_row(&w, seq, 1, 2);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 6);
    assert_int_equal(stats_of(&w).detached_units, 1);
    assert_fields(block_of(&w, 2), generation, 1, sealed_tokens, 2);
    assert_int_equal(stats_of(&w).pending_copies, 0);
}

TEST(test_a_duplicate_takes_the_place_of_what_is_written_over)
{
    kvp_config config = config_of(4, 4, 15);
    config.commit_policy = KVP_KEEP;
    scoped_world w = make_world(&config);
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq first = open_done(&w, ints(0), 4);
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    assert_ok(kvp_seq_truncate(w.cache, first, 2, NULL));
    assert_ok(kvp_seq_extend(w.cache, first, ints(20), 1, 0));
    assert_int_equal(block_of(&w, 1).sealed_units, 0);
    assert_int_equal(block_of(&w, 2).sealed_units, 1);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 4);
    assert_ok(kvp_seq_truncate(w.cache, second, 2, NULL)); /* and now the last one */
    assert_ok(kvp_seq_extend(w.cache, second, ints(20), 1, 0));
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
}

TEST(test_a_full_plan_refuses_a_copy)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    kvp_copy copies[1];
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq children[] = {fork_seq(&w, parent, 6), fork_seq(&w, parent, 6)};
    kvp_batch batch = batch_of(children, NULL, 2);
    batch.tokens = ints(60);
    assert_int_equal(can_extend(&w, children, NULL, 2).verdict, KVP_ADMIT_OK); /* blocks only */
    assert_unchanged(&w, assert_status(KVP_E_PLAN_FULL, kvp_seq_extend_many(w.cache, &batch)));
    assert_shortage(&w, KVP_E_PLAN_FULL, 1, 0);
    assert_ok(kvp_seq_extend(w.cache, children[0], ints(60), 1, 0));
    assert_unchanged(
        &w, assert_status(KVP_E_PLAN_FULL, kvp_seq_extend(w.cache, children[1], ints(60), 1, 0)));
    assert_int_equal(take_plan(&w, copies, 1), 1);
    assert_ok(kvp_seq_extend(w.cache, children[1], ints(60), 1, 0));
}

/* Of j sequences of a batch that share a block with h holders, j copy if h > j, else j - 1. */
TEST(test_copies_of_a_batch_are_counted_exactly)
{
    for (uint32_t h = 1; h <= 5; h++) {
        for (uint32_t j = 1; j <= h; j++) {
            scoped_world w = small_world(15);
            kvp_seq seqs[5];
            const uint32_t none[5] = {0};
            seqs[0] = open_done(&w, ints(0), 6);
            for (uint32_t i = 1; i < h; i++)
                seqs[i] = fork_seq(&w, seqs[0], 6);
            const uint32_t copies = h > j ? j : j - 1;
            assert_int_equal(can_extend(&w, seqs, NULL, j).need_blocks, copies);
            assert_int_equal(can_extend(&w, seqs, none, j).need_blocks, 0);
            const uint64_t before = stats_of(&w).taken_blocks;
            kvp_batch batch = batch_of(seqs, NULL, j);
            batch.tokens = ints(60);
            assert_ok(kvp_seq_extend_many(w.cache, &batch));
            assert_int_equal(stats_of(&w).taken_blocks - before, copies);
            assert_int_equal(stats_of(&w).pending_copies, copies);
        }
    }
}

TEST(test_can_extend_and_extend_agree)
{
    kvp_config config = config_of(4, 2, 10);
    config.max_seq_tokens = 48;
    scoped_world w = make_world(&config);
    uint64_t random = 3;
    kvp_seq seqs[4];
    seqs[0] = open_done(&w, ints(0), 6);
    for (int i = 1; i < 4; i++)
        seqs[i] = fork_seq(&w, seqs[0], 6);
    for (int turn = 0; turn < 3000; turn++) {
        uint32_t n[4];
        const uint32_t first = draw(&random, 4);
        const uint32_t n_seqs = 1 + draw(&random, 4 - first);
        for (uint32_t i = 0; i < 4; i++)
            n[i] = draw(&random, 4);
        kvp_batch batch = batch_of(seqs + first, n, n_seqs);
        kvp_admission a;
        batch.tokens = ints((int32_t)draw(&random, 3));
        batch.reserve_tokens = draw(&random, 3);
        const kvp_status asked = kvp_cache_can_extend(w.cache, &batch, &a);
        const kvp_status status = kvp_seq_extend_many(w.cache, &batch);
        if (asked == KVP_OK) {
            assert_int_equal(status, a.verdict == KVP_ADMIT_OK      ? KVP_OK
                                     : a.verdict == KVP_ADMIT_LATER ? KVP_E_NO_BLOCKS
                                                                    : KVP_E_NEVER);
        } else {
            assert_int_equal(status, asked);
        }
        if (status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER)
            assert_int_equal(shortage_of(&w).missing_blocks, a.missing_blocks);
        const uint32_t some = draw(&random, 4);
        const kvp_seq_info info = info_of(&w, seqs[some]);
        if (draw(&random, 3) == 0 || status != KVP_OK) {
            const uint32_t cut = info.n_tokens - draw(&random, info.n_tokens + 1);
            assert_ok(kvp_seq_truncate(w.cache, seqs[some], cut, NULL));
        } else {
            assert_ok(kvp_seq_commit(w.cache, seqs[some], info.n_tokens));
        }
        if (draw(&random, 5) == 0 && info_of(&w, seqs[0]).computed_tokens > 0) {
            const uint32_t at = info_of(&w, seqs[0]).computed_tokens;
            close_seq(&w, seqs[3]);
            seqs[3] = fork_seq(&w, seqs[0], at);
        }
        (void)take_plan(&w, (kvp_copy[16]){{0}}, 16);
    }
}

/* ----------------------------------------------------------------------- values that come later */

TEST(test_tokens_without_values_become_units_when_they_are_filled)
{
    scoped_world w = small_world(15);
    int32_t tokens[9];
    const kvp_seq seq = open_done(&w, ints(0), 3);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 6, 0));
    kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, n_tokens, 9, known_tokens, 3, last_token, 2, public_tokens, 0);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_extend(w.cache, seq, ints(9), 1, 0)));
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0)); /* no values: allowed */
    assert_status(KVP_E_UNKNOWN, kvp_seq_tokens(w.cache, seq, 2, 2, tokens));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(3), 2));
    info = info_of(&w, seq);
    assert_fields(info, known_tokens, 5, public_tokens, 4);
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_fill(w.cache, seq, ints(5), 5)));
    assert_ok(kvp_seq_fill(w.cache, seq, ints(5), 4));
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 9, tokens));
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(9), 1, 0));
    assert_unchanged(&w, assert_status(KVP_E_STATE, kvp_seq_fill(w.cache, seq, ints(0), 1)));
    assert_unchanged(&w, assert_ok(kvp_seq_fill(w.cache, seq, NULL, 0)));
}

TEST(test_a_fill_adopts_as_a_commit_does)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_row(&w, seq, 1, 3);
    assert_ok(kvp_seq_fill(w.cache, seq, ints(4), 4));
    assert_row(&w, seq, 1, 2);
    assert_int_equal(stats_of(&w).adopted_blocks, 1);
}

/* -------------------------------------------------------------------------------- no nodes left */

TEST(test_without_nodes_everything_works_but_tokens_are_not_kept)
{
    kvp_config config = config_of(4, 4, 15);
    config.n_nodes = 6; /* the root, and five units */
    scoped_world w = make_world(&config);
    int32_t tokens[30];
    const kvp_seq seq = open_done(&w, ints(0), 30);
    kvp_seq_info info = info_of(&w, seq);
    assert_fields(info, known_tokens, 30, kept_tokens, 20, public_tokens, 20, last_token, -1);
    assert_int_equal(stats_of(&w).unkept_units, 2);
    assert_status(KVP_E_UNKNOWN, kvp_seq_tokens(w.cache, seq, 19, 2, tokens));
    assert_ok(kvp_seq_tokens(w.cache, seq, 0, 20, tokens));
    assert_memory_equal(tokens, ints(0), 20 * sizeof(int32_t));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(30), 4, 0));
    assert_int_equal(stats_of(&w).unkept_units, 3); /* tokens 28 to 31 */
    const kvp_seq child = fork_seq(&w, seq, 30);    /* its tokens are not kept either */
    assert_int_equal(info_of(&w, child).kept_tokens, 20);
    close_seq(&w, child);
    assert_ok(kvp_seq_truncate(w.cache, seq, 22, NULL));
    assert_int_equal(info_of(&w, seq).kept_tokens, 20);
    assert_ok(kvp_seq_truncate(w.cache, seq, 18, NULL)); /* within what is kept */
    info = info_of(&w, seq);
    assert_fields(info, kept_tokens, 18, last_token, 17);
    assert_int_equal(close_seq(&w, seq).cached_blocks, 5); /* the fifth is sealed still */
}

TEST(test_a_unit_that_finds_no_node_while_decoding_is_not_kept)
{
    kvp_config config = config_of(4, 4, 15);
    config.n_nodes = 5;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 15);
    for (int32_t i = 15; i < 24; i++) {
        assert_ok(kvp_seq_extend(w.cache, seq, ints(i), 1, 0));
        assert_int_equal(info_of(&w, seq).kept_tokens, i + 1 < 20 ? i + 1 : 16);
    }
    assert_ok(kvp_seq_commit(w.cache, seq, 24));
    assert_int_equal(stats_of(&w).unkept_units, 2);
    assert_int_equal(match(&w, ints(0), 24).hit_tokens, 16);
}

TEST_MAIN(NULL, NULL)

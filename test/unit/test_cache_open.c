/* Match and open: what is hit, what is taken, why a hit stopped, and when an open is refused. */
#include <string.h>

#include "world.h"

/* ----------------------------------------------------------------------------------------- hits */

TEST(test_the_example_of_the_header)
{
    scoped_world w = small_world(15);
    kvp_open_info info;
    leave_cached(&w, ints(1), 8);
    const kvp_seq longer = open_seq(&w, ints(1), 10, &info);
    assert_fields(info, shared_blocks, 2, taken_blocks, 1, cached_tokens, 8, cached_blocks, 2);
    (void)open_seq(&w, ints(1), 8, &info);
    assert_fields(info, shared_blocks, 2, taken_blocks, 0, cached_tokens, 7, hit_tokens, 8);
    assert_int_equal(info.cached_blocks, 0); /* held by then */
    assert_row(&w, longer, 1, 2, 3);
}

TEST(test_a_new_prompt_takes_blocks_in_row_order)
{
    scoped_world w = small_world(15);
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 9, &info);
    const kvp_open_info expected = {.stop = KVP_STOP_MISS, .taken_blocks = 3};
    assert_memory_equal(&info, &expected, sizeof(info));
    assert_row(&w, seq, 1, 2, 3);
    const kvp_seq_info s = info_of(&w, seq);
    assert_fields(s, n_tokens, 9, known_tokens, 9, prompt_tokens, 9, cached_tokens, 0,
                  computed_tokens, 0);
    assert_fields(s, writable_tokens, 9, public_tokens, 8, kept_tokens, 9, n_blocks, 3, last_token,
                  8);
    assert_int_equal(s.ns.bits, w.ns.bits);
}

TEST(test_an_empty_prompt_takes_nothing_and_a_reserve_takes_its_blocks)
{
    scoped_world w = small_world(15);
    kvp_open_info info;
    kvp_prompt prompt = prompt_of(NULL, 0);
    const kvp_seq empty = open_with(&w, &prompt, &info);
    assert_no_row(&w, empty);
    assert_fields(info, taken_blocks, 0, stop, KVP_STOP_END);
    assert_int_equal(info_of(&w, empty).last_token, -1);
    prompt.reserve_tokens = 5;
    const kvp_seq reserving = open_with(&w, &prompt, &info);
    assert_row(&w, reserving, 1, 2);
    assert_int_equal(info.taken_blocks, 2);
    assert_int_equal(info_of(&w, reserving).writable_tokens, 5);
    prompt = prompt_of(ints(0), 8);
    prompt.reserve_tokens = 1;
    assert_row(&w, open_with(&w, &prompt, NULL), 3, 4, 5);
}

TEST(test_a_full_hit_takes_nothing_and_its_last_token_is_not_written)
{
    scoped_world w = small_world(7);
    kvp_open_info info;
    int64_t slot;
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, &info);
    assert_fields(info, taken_blocks, 0, cached_tokens, 7, stop, KVP_STOP_END);
    assert_fields(info_of(&w, seq), computed_tokens, 8, cached_tokens, 7);
    assert_ok(kvp_seq_slots(w.cache, seq, 0, 7, 1, &slot));
    assert_int_equal(slot, KVP_NO_SLOT);
}

TEST(test_recompute_ends_a_full_hit_at_the_last_block_before_the_last_token)
{
    kvp_config config = config_of(4, 2, 15);
    config.full_hit = KVP_FULL_HIT_RECOMPUTE;
    scoped_world w = make_world(&config);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, &info);
    assert_fields(info, stop, KVP_STOP_FULL_HIT, hit_tokens, 4, cached_tokens, 4, copied_tokens, 0,
                  taken_blocks, 1);
    assert_row(&w, seq, 1, 3);
    assert_int_equal(match(&w, ints(0), 6).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 6).stop, KVP_STOP_FULL_HIT);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8); /* not a full hit */
    assert_int_equal(match(&w, ints(0), 9).stop, KVP_STOP_END);
}

TEST(test_a_hit_ends_where_the_prefix_does)
{
    scoped_world w = small_world(15);
    int32_t other[12];
    leave_cached(&w, ints(0), 12);
    for (uint32_t differ = 0; differ < 12; differ++) {
        memcpy(other, ints(0), sizeof(other));
        other[differ] = 1000;
        const kvp_open_info info = match(&w, other, 12);
        assert_fields(info, hit_tokens, differ / 4 * 4, stop, KVP_STOP_MISS);
    }
}

/* More units than a look-ahead: nodes of the path are named by those above them, and where prompts
 * part the names lead the wrong way. Tokens decide all the same. */
TEST(test_long_prompts_that_part_are_hit_whichever_was_opened_last)
{
    enum { N = 200, PARTS = 4 };
    const uint32_t parts_at[PARTS] = {200, 150, 72, 3}; /* tokens shared with the first */
    scoped_world w = small_world(250);
    int32_t prompts[PARTS][N];
    uint64_t random = 2;
    for (int32_t i = 0; i < PARTS; i++) {
        memcpy(prompts[i], ints(0), sizeof(prompts[i]));
        for (uint32_t k = parts_at[i]; k < N; k++)
            prompts[i][k] += 1000 * (i + 1);
        leave_cached(&w, prompts[i], N);
    }
    for (int turn = 0; turn < 300; turn++) {
        const uint32_t which = draw(&random, PARTS);
        const uint32_t n = draw(&random, N + 1);
        kvp_open_info info;
        const kvp_seq seq = open_seq(&w, prompts[which], n, &info);
        assert_int_equal(info.hit_tokens, n / 4 * 4);
        close_seq(&w, seq);
        int32_t other[N];
        memcpy(other, prompts[which], sizeof(other));
        const uint32_t differ = draw(&random, N);
        other[differ] = 4000;
        assert_int_equal(match(&w, other, N).hit_tokens, differ / 4 * 4);
    }
}

TEST(test_a_unit_that_is_still_computed_stops_the_match)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    const kvp_open_info info = match(&w, ints(0), 8);
    assert_fields(info, hit_tokens, 4, stop, KVP_STOP_NO_KV);
}

TEST(test_a_unit_whose_kv_was_evicted_before_its_children_stops_the_match)
{
    scoped_world w = small_world(3);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){4, 8}, 1));
    close_seq(&w, seq);
    const kvp_seq other = open_seq(&w, ints(100), 8, NULL); /* takes 3, then 1 */
    assert_row(&w, other, 3, 1);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 8).stop, KVP_STOP_NO_KV);
    close_seq(&w, other);
    close_seq(&w, open_done(&w, ints(0), 4)); /* computed again, the rest is there again */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_no_match_computes_everything)
{
    scoped_world w = small_world(15);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq seq = open_with(&w, &prompt, &info);
    assert_fields(info, hit_tokens, 0, stop, KVP_STOP_OFF);
    assert_row(&w, seq, 3, 4);
    assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* and adopts what is there */
    assert_row(&w, seq, 1, 2);
}

TEST(test_without_prefix_cache_nothing_is_matched_or_published)
{
    kvp_config config = config_of(4, 4, 15);
    config.prefix_cache = 0;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_int_equal(info_of(&w, seq).public_tokens, 0);
    const kvp_released released = close_seq(&w, seq);
    assert_fields(released, freed_blocks, 2, cached_blocks, 0);
    assert_int_equal(match(&w, ints(0), 8).stop, KVP_STOP_OFF);
    assert_int_equal(stats_of(&w).private_units, 2);
}

TEST(test_a_match_says_what_open_then_does)
{
    const kvp_config config = config_of(8, 2, 31);
    scoped_world w = make_world(&config);
    uint64_t random = 5;
    for (int turn = 0; turn < 300; turn++) {
        int32_t tokens[40];
        const uint32_t n = draw(&random, 40);
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = (int32_t)(i < 10 ? 0 : draw(&random, 2));
        kvp_open_info info;
        const kvp_open_info expected = match(&w, tokens, n);
        const kvp_seq seq = open_seq(&w, tokens, n, &info);
        info.evicted_blocks = 0;
        if (info.stop != KVP_STOP_NO_ROOM)
            assert_memory_equal(&info, &expected, sizeof(info));
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        (void)take_plan(&w, (kvp_copy[1]){{0}}, 1);
        close_seq(&w, seq);
    }
}

/* -------------------------------------------------------------------------- hits inside a block */

TEST(test_a_hit_inside_a_block_is_copied)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    kvp_copy copies[2];
    leave_cached(&w, ints(0), 8);
    int32_t prompt[9];
    memcpy(prompt, ints(0), sizeof(prompt));
    prompt[6] = 600;
    const kvp_seq seq = open_seq(&w, prompt, 9, &info);
    assert_fields(info, hit_tokens, 6, shared_blocks, 1, copied_tokens, 2, taken_blocks, 2);
    assert_row(&w, seq, 1, 3, 4);
    assert_int_equal(block_of(&w, 2).state, KVP_BLOCK_CACHED); /* held during the call only */
    assert_int_equal(take_plan(&w, copies, 2), 1);
    const kvp_copy expected = {.src_block = 2, .dst_block = 3, .n_tokens = 2};
    assert_memory_equal(&copies[0], &expected, sizeof(expected));
    assert_int_equal(stats_of(&w).copies, 1);
}

TEST(test_the_source_of_a_copy_goes_to_the_tail)
{
    const kvp_config config = config_of(4, 2, 4);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    assert_queue(&w, 0, 3, 4, 1, 2);
    const kvp_seq seq = open_seq(&w, ints(0), 3, NULL);
    assert_row(&w, seq, 3);
    assert_queue(&w, 0, 4, 2, 1);
}

/* One block cached, two free: the copy and its source both fit, or, with one block more to take,
 * they do not. */
TEST(test_a_hit_inside_a_block_without_room_is_given_up)
{
    const kvp_config config = config_of(4, 2, 3);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    kvp_copy copies[1];
    leave_cached(&w, ints(0), 4);
    int32_t prompt[12];
    memcpy(prompt, ints(0), sizeof(prompt));
    prompt[2] = 200;
    const kvp_prompt long_one = prompt_of(prompt, 12);
    assert_int_equal(match(&w, prompt, 12).hit_tokens, 2); /* a match has room */
    assert_int_equal(can_open(&w, &long_one).verdict, KVP_ADMIT_OK);
    assert_int_equal(can_open(&w, &long_one).need_blocks, 3);
    const kvp_seq seq = open_with(&w, &long_one, &info);
    assert_fields(info, stop, KVP_STOP_NO_ROOM, hit_tokens, 0, copied_tokens, 0, evicted_blocks, 1);
    assert_int_equal(take_plan(&w, copies, 1), 0);
    assert_int_equal(info_of(&w, seq).stop, KVP_STOP_NO_ROOM);
    close_seq(&w, seq);

    leave_cached(&w, ints(0), 4);
    const kvp_prompt short_one = prompt_of(prompt, 8);
    assert_int_equal(can_open(&w, &short_one).need_blocks, 3); /* two, and the source */
    (void)open_with(&w, &short_one, &info);
    assert_fields(info, stop, KVP_STOP_MISS, hit_tokens, 2);
}

TEST(test_a_held_source_needs_no_room)
{
    const kvp_config config = config_of(4, 2, 2);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    (void)open_done(&w, ints(0), 4);
    const kvp_prompt prompt = prompt_of(ints(0), 3);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 1);
    (void)open_with(&w, &prompt, &info);
    assert_int_equal(info.hit_tokens, 2);
}

TEST(test_a_full_plan_refuses_a_hit_inside_a_block)
{
    kvp_config config = config_of(4, 2, 15);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    kvp_copy copies[1];
    const kvp_prompt prompt = prompt_of(ints(0), 3);
    leave_cached(&w, ints(0), 4);
    (void)open_with(&w, &prompt, NULL);
    kvp_seq seq = {77};
    assert_unchanged(
        &w, assert_status(KVP_E_PLAN_FULL, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_PLAN_FULL, 0, 0);
    assert_int_equal(seq.bits, 77);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK); /* counts blocks only */
    assert_int_equal(take_plan(&w, copies, 1), 1);
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

/* ------------------------------------------------------------------------------------ admission */

TEST(test_admission_counts_what_leaves_the_queue)
{
    scoped_world w = small_world(7);
    leave_cached(&w, ints(0), 8);
    const kvp_seq holder = open_seq(&w, ints(0), 4, NULL);
    kvp_prompt prompt = prompt_of(ints(0), 12);
    prompt.reserve_tokens = 3;
    const kvp_admission a = can_open(&w, &prompt);
    assert_int_equal(a.verdict, KVP_ADMIT_OK);
    assert_int_equal(a.need_blocks, 3); /* block 2, which nobody holds, and two to take */
    assert_fields(a, available, 6, missing_blocks, 0);
    close_seq(&w, holder);
    assert_int_equal(can_open(&w, &prompt).need_blocks, 4);
}

TEST(test_later_says_how_many_blocks_are_missing_and_never_by_how_many)
{
    scoped_world w = small_world(4);
    kvp_seq out = {77};
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL);
    kvp_prompt prompt = prompt_of(ints(100), 12);
    kvp_admission a = can_open(&w, &prompt);
    assert_fields(a, verdict, KVP_ADMIT_LATER, need_blocks, 3, available, 1, missing_blocks, 2);
    const uint64_t refused = stats_of(&w).refused;
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &out, NULL)));
    assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 2);
    prompt.reserve_tokens = 10;
    a = can_open(&w, &prompt);
    assert_fields(a, verdict, KVP_ADMIT_NEVER, missing_blocks, 2);
    assert_unchanged(&w,
                     assert_status(KVP_E_NEVER, kvp_seq_open(w.cache, w.ns, &prompt, &out, NULL)));
    assert_shortage(&w, KVP_E_NEVER, 0, 2);
    assert_int_equal(stats_of(&w).refused, refused + 2);
    assert_int_equal(out.bits, 77);
    close_seq(&w, seq);
    prompt.reserve_tokens = 4;
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &out, NULL));
    assert_shortage(&w, KVP_E_NEVER, 0, 2); /* success leaves it as it is */
}

TEST(test_the_watermark_counts_while_a_block_is_held)
{
    kvp_config config = config_of(4, 4, 9);
    config.watermark = 0.25; /* floor(2.25) = 2 blocks */
    scoped_world w = make_world(&config);
    assert_int_equal(stats_of(&w).watermark_blocks, 2);
    const kvp_prompt all = prompt_of(ints(0), 36);
    assert_int_equal(can_open(&w, &all).verdict, KVP_ADMIT_OK); /* nothing is held */
    const kvp_seq first = open_seq(&w, ints(100), 4, NULL);
    kvp_admission a = can_open(&w, &all);
    assert_int_equal(a.verdict, KVP_ADMIT_NEVER); /* 9 > 9 - 2 */
    assert_int_equal(a.missing_blocks, 2);
    const kvp_prompt seven = prompt_of(ints(0), 28);
    a = can_open(&w, &seven);
    assert_int_equal(a.verdict, KVP_ADMIT_LATER); /* 7 + 2 > 8 */
    assert_int_equal(a.missing_blocks, 1);
    const kvp_prompt six = prompt_of(ints(0), 24);
    assert_int_equal(can_open(&w, &six).verdict, KVP_ADMIT_OK);
    assert_ok(kvp_seq_extend(w.cache, first, NULL, 32, 0)); /* running sequences may use it */
    close_seq(&w, first);
    assert_int_equal(can_open(&w, &all).verdict, KVP_ADMIT_OK);
}

TEST(test_an_open_succeeds_exactly_when_can_open_says_so)
{
    kvp_config config = config_of(4, 2, 12);
    config.watermark = 0.2;
    scoped_world w = make_world(&config);
    uint64_t random = 11;
    kvp_seq open[8];
    uint32_t n_open = 0;
    for (int turn = 0; turn < 2000; turn++) {
        int32_t tokens[64];
        const uint32_t n = draw(&random, 60);
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = (int32_t)(i < 8 ? 0 : draw(&random, 2));
        kvp_prompt prompt = prompt_of(tokens, n);
        prompt.reserve_tokens = draw(&random, 4);
        const kvp_admission a = can_open(&w, &prompt);
        kvp_seq seq;
        const kvp_status status = kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL);
        assert_int_equal(status, a.verdict == KVP_ADMIT_OK      ? KVP_OK
                                 : a.verdict == KVP_ADMIT_LATER ? KVP_E_NO_BLOCKS
                                                                : KVP_E_NEVER);
        if (status == KVP_OK) {
            assert_ok(kvp_seq_commit(w.cache, seq, draw(&random, n + 1)));
            open[n_open++] = seq;
        } else {
            assert_shortage(&w, status, 0, a.missing_blocks);
        }
        if (n_open > draw(&random, 4) + 1)
            close_seq(&w, open[--n_open]);
        (void)take_plan(&w, (kvp_copy[16]){{0}}, 16);
    }
}

TEST(test_no_sequence_to_spare_is_refused)
{
    kvp_config config = config_of(4, 4, 7);
    config.max_seqs = 1;
    scoped_world w = make_world(&config);
    kvp_seq seq = {77};
    const kvp_seq first = open_seq(&w, ints(0), 4, NULL);
    const kvp_prompt prompt = prompt_of(ints(0), 4);
    assert_unchanged(
        &w, assert_status(KVP_E_NO_SEQS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    assert_shortage(&w, KVP_E_NO_SEQS, 0, 0);
    assert_int_equal(stats_of(&w).refused, 0); /* not for want of blocks */
    assert_int_equal(seq.bits, 77);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK);
    assert_int_equal(match(&w, ints(0), 4).stop, KVP_STOP_NO_KV);
    close_seq(&w, first);
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

TEST(test_tokens_and_reserve_end_at_max_seq_tokens)
{
    scoped_world w = small_world(100);
    kvp_open_info info;
    kvp_admission admission;
    kvp_seq seq;
    kvp_prompt prompt = prompt_of(ints(0), 250);
    prompt.reserve_tokens = 7;
    const uint32_t reserves[] = {7, UINT32_MAX - 249, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        prompt.reserve_tokens = reserves[i];
        assert_status(KVP_E_TOO_LONG, kvp_cache_match(w.cache, w.ns, &prompt, &info));
        assert_status(KVP_E_TOO_LONG, kvp_cache_can_open(w.cache, w.ns, &prompt, &admission));
        assert_unchanged(
            &w, assert_status(KVP_E_TOO_LONG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
        assert_shortage(&w, KVP_E_TOO_LONG, 0, 0);
    }
    prompt = prompt_of(ints(0), 257);
    assert_status(KVP_E_TOO_LONG, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
    prompt = prompt_of(ints(0), 250);
    prompt.reserve_tokens = 6;
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL));
}

/* ------------------------------------------------------------------------------- what it evicts */

TEST(test_victims_are_listed_in_order_with_their_deepest_hash)
{
    const kvp_config config = config_of(4, 2, 3);
    scoped_world w = make_world(&config);
    kvp_open_info info;
    const kvp_evicted *evicted;
    const kvp_seq seq = open_done(&w, ints(0), 10);
    kvp_hash hashes[3];
    for (int32_t b = 1; b <= 3; b++)
        hashes[b - 1] = block_of(&w, b).hash;
    close_seq(&w, seq);
    (void)open_seq(&w, ints(100), 8, &info);
    assert_int_equal(info.evicted_blocks, 2);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].block, 3); /* the tail goes before the prefixes it needs */
    assert_memory_equal(&evicted[0].hash, &hashes[2], sizeof(kvp_hash));
    assert_int_equal(evicted[1].block, 2);
    assert_memory_equal(&evicted[1].hash, &hashes[1], sizeof(kvp_hash));
    assert_int_equal(stats_of(&w).evicted_blocks, 2);

    kvp_seq none;
    const kvp_prompt too_much = prompt_of(ints(200), 16);
    assert_status(KVP_E_NEVER, kvp_seq_open(w.cache, w.ns, &too_much, &none, NULL));
    (void)match(&w, ints(0), 4);
    assert_int_equal(evicted_of(&w, &evicted), 2); /* failing and reading calls leave it */
    (void)open_seq(&w, NULL, 0, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 0);
}

TEST(test_hits_are_held_before_blocks_are_taken)
{
    scoped_world w = small_world(3);
    kvp_open_info info;
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 4);
    assert_queue(&w, 0, 2, 1, 3); /* the hits would be the first victims */
    const kvp_seq seq = open_seq(&w, ints(0), 12, &info);
    assert_row(&w, seq, 1, 2, 3);
    assert_int_equal(info.evicted_blocks, 1);
}

/* The hits are held while the call looks; that does not bring the watermark into force. */
TEST(test_its_own_hits_are_not_held_for_the_watermark)
{
    kvp_config config = config_of(4, 4, 4);
    config.watermark = 0.5;
    scoped_world w = make_world(&config);
    const kvp_prompt prompt = prompt_of(ints(0), 16);
    leave_cached(&w, ints(0), 8);
    assert_int_equal(can_open(&w, &prompt).verdict, KVP_ADMIT_OK);
    (void)open_with(&w, &prompt, NULL);
}

TEST_MAIN(NULL, NULL)

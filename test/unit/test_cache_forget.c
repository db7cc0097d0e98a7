/* Forgetting one prefix: open it, invalidate from the first token to forget, close. These tests
 * hold what docs/EMBEDDING.md promises. */
#include <string.h>

#include "tiers.h"

static kvp_status forget(world *w, const int32_t *tokens, uint32_t n, uint32_t from)
{
    const kvp_prompt prompt = prompt_of(tokens, n);
    kvp_seq seq;
    const kvp_status status = kvp_seq_open(w->cache, w->ns, &prompt, &seq, NULL);
    if (status == KVP_OK) {
        assert_ok(kvp_seq_invalidate(w->cache, seq, from, NULL, 0, NULL));
        close_seq(w, seq);
    }
    return status;
}

TEST(test_what_comes_before_and_beside_stays)
{
    scoped_world w = small_world(15);
    const int32_t beside[8] = {0, 1, 2, 3, 100, 101, 102, 103};
    leave_cached(&w, ints(0), 12);
    leave_cached(&w, beside, 8);
    kvp_ns other;
    kvp_seq seq;
    const kvp_prompt prompt = prompt_of(ints(0), 12);
    assert_ok(kvp_ns_open(w.cache, "other", 5, &other));
    assert_ok(kvp_seq_open(w.cache, other, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    close_seq(&w, seq);

    assert_ok(forget(&w, ints(0), 12, 5)); /* in the second unit */
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    assert_int_equal(match(&w, ints(0), 12).stop, KVP_STOP_MISS);
    assert_int_equal(match(&w, beside, 8).hit_tokens, 8);
    kvp_open_info info;
    assert_ok(kvp_cache_match(w.cache, other, &prompt, &info));
    assert_int_equal(info.hit_tokens, 12);
    assert_int_equal(stats_of(&w).cached_blocks, 5); /* two became free */
}

TEST(test_the_shortest_prompt_hides_what_continues_it)
{
    scoped_world w = small_world(7);
    leave_cached(&w, ints(0), 16);
    assert_ok(forget(&w, ints(0), 8, 4));
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
    assert_int_equal(stats_of(&w).cached_blocks, 3); /* two of them in vain, until evicted */
    leave_cached(&w, ints(0), 16);                   /* computed anew: the old ones stay hidden */
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 16);
}

TEST(test_an_open_sequence_goes_on_and_publishes_nothing_of_it)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    assert_ok(forget(&w, ints(0), 8, 4));
    assert_fields(info_of(&w, seq), computed_tokens, 10, public_tokens, 4);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(10), 6, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    assert_row(&w, seq, 1, 2, 3, 4);
    close_seq(&w, seq);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
    assert_int_equal(stats_of(&w).free_blocks, 14);
}

TEST(test_both_tiers_forget)
{
    scoped_world w = tiers_world(3, 7);
    leave_cached(&w, ints(0), 12);
    kvp_prompt prompt = prompt_of(NULL, 0);
    prompt.reserve_tokens = 12; /* evicts all three; the host keeps them */
    close_seq(&w, open_with(&w, &prompt, NULL));
    drop_plan(&w);
    assert_int_equal(match(&w, ints(0), 12).host_tokens, 12);
    assert_ok(forget(&w, ints(0), 12, 4));
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 4);
    assert_int_equal(stats_of(&w).host_cached_blocks, 1);
    assert_plan(&w, TO_DEVICE(0, 3, 3, 4)); /* the first unit's; copies of what is free are gone */
}

TEST(test_a_gap_does_not_save_what_comes_after_it)
{
    scoped_world w = small_world(3);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    const kvp_range first = {0, 4}, last = {8, 12};
    assert_ok(kvp_seq_retain(w.cache, seq, first, 1));
    assert_ok(kvp_seq_retain(w.cache, seq, last, 1));
    close_seq(&w, seq);
    close_seq(&w, open_seq(&w, ints(100), 3, NULL)); /* evicts the second block */
    assert_int_equal(match(&w, ints(0), 12).stop, KVP_STOP_NO_KV);
    assert_ok(forget(&w, ints(0), 8, 4));
    leave_cached(&w, ints(0), 8); /* the second one again: the third must not come back with it */
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 8);
}

TEST(test_without_room_for_what_is_not_cached_nothing_changes)
{
    scoped_world w = small_world(4);
    leave_cached(&w, ints(0), 4);
    (void)open_done(&w, ints(100), 12);
    assert_unchanged(&w, assert_status(KVP_E_NO_BLOCKS, forget(&w, ints(0), 8, 0)));
    assert_ok(forget(&w, ints(0), 4, 0)); /* no further than what is cached: takes no block */
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
}

TEST_MAIN(NULL, NULL)

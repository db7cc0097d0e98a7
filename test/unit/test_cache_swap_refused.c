/* Swaps that are refused, and why; what can_swap_out and can_swap_in count; what a swapped sequence
 * does not allow. */
#include <string.h>

#include "tiers.h"

/* Both the call and the question: the call's status, and nothing changed. */
static void expect_out(world *w, kvp_status expected, const kvp_seq *seqs, uint32_t n_seqs)
{
    kvp_swapped swapped = {77, 77, {77, 77}};
    assert_unchanged(w,
                     assert_status(expected, kvp_seq_swap_out(w->cache, seqs, n_seqs, &swapped)));
    assert_int_equal(swapped.copied_blocks, 77);
    assert_int_equal(swapped.released.cached_blocks, 77);
}

static void expect_in(world *w, kvp_status expected, const kvp_seq *seqs, uint32_t n_seqs,
                      uint32_t reserve)
{
    kvp_swapped swapped = {77, 77, {77, 77}};
    assert_unchanged(
        w, assert_status(expected, kvp_seq_swap_in(w->cache, seqs, n_seqs, reserve, &swapped)));
    assert_int_equal(swapped.found_blocks, 77);
    assert_int_equal(swapped.released.freed_blocks, 77);
}

static void expect_questions(world *w, kvp_status out, kvp_status in, const kvp_seq *seqs,
                             uint32_t n_seqs)
{
    kvp_admission admission = {77, 77, 77, 77, 77};
    const kvp_shortage before = shortage_of(w);
    assert_unchanged(
        w, assert_status(out, kvp_cache_can_swap_out(w->cache, seqs, n_seqs, &admission)));
    assert_int_equal(admission.verdict == 77, out != KVP_OK);
    admission.verdict = 77;
    assert_unchanged(
        w, assert_status(in, kvp_cache_can_swap_in(w->cache, seqs, n_seqs, 0, &admission)));
    assert_int_equal(admission.verdict == 77, in != KVP_OK);
    const kvp_shortage after = shortage_of(w);
    assert_memory_equal(&before, &after, sizeof(before));
}

/* --------------------------------------------------------------------------------------- states */

TEST(test_a_sequence_on_the_tier_that_it_would_move_to_is_refused)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 6), open_done(&w, ints(100), 6)};
    swap_out(&w, &seqs[1], 1);
    expect_out(&w, KVP_E_STATE, seqs, 2);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_STATE, 1, 0);
    expect_in(&w, KVP_E_STATE, seqs, 2, 0);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_STATE, 0, 0);
    expect_questions(&w, KVP_E_STATE, KVP_E_STATE, seqs, 2);
    expect_questions(&w, KVP_OK, KVP_E_STATE, seqs, 1);
    expect_questions(&w, KVP_E_STATE, KVP_OK, seqs + 1, 1);
}

TEST(test_a_bad_handle_goes_before_a_sequence_named_twice_and_that_before_a_state)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq closed = open_done(&w, ints(50), 6);
    close_seq(&w, closed);
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq b = open_done(&w, ints(100), 6);
    swap_out(&w, &b, 1);
    const kvp_seq twice_and_bad[] = {a, b, a, closed};
    expect_out(&w, KVP_E_HANDLE, twice_and_bad, 4);
    assert_shortage(&w, KVP_E_HANDLE, 3, 0);
    expect_in(&w, KVP_E_HANDLE, twice_and_bad, 4, 1000);
    expect_questions(&w, KVP_E_HANDLE, KVP_E_HANDLE, twice_and_bad, 4);
    expect_out(&w, KVP_E_ARG, twice_and_bad, 3);
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    expect_in(&w, KVP_E_ARG, twice_and_bad, 3, 1000);
    assert_shortage(&w, KVP_E_ARG, 2, 0);
    expect_questions(&w, KVP_E_ARG, KVP_E_ARG, twice_and_bad, 3);
}

TEST(test_a_reserve_beyond_the_longest_sequence_is_too_long)
{
    scoped_world w = tiers_world(200, 15);
    kvp_admission admission;
    const kvp_seq seqs[] = {open_done(&w, ints(0), 4), open_done(&w, ints(100), 6)};
    swap_out(&w, seqs, 2);
    expect_in(&w, KVP_E_TOO_LONG, seqs, 2, 251); /* 6 + 251 > 256 */
    assert_shortage(&w, KVP_E_TOO_LONG, 1, 0);
    expect_in(&w, KVP_E_TOO_LONG, seqs, 2, 253);
    assert_shortage(&w, KVP_E_TOO_LONG, 0, 0);
    expect_in(&w, KVP_E_TOO_LONG, seqs, 2, UINT32_MAX);
    assert_unchanged(&w, assert_status(KVP_E_TOO_LONG,
                                       kvp_cache_can_swap_in(w.cache, seqs, 2, 251, &admission)));
    assert_moved(swap_in(&w, seqs, 2, 250), 1, 2, 1, 2);
}

/* --------------------------------------------------------------------------------------- blocks */

TEST(test_too_few_blocks_on_the_host_are_told_with_their_tier)
{
    scoped_world w = tiers_world(15, 4);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 8), open_done(&w, ints(100), 10)};
    swap_out(&w, &seqs[0], 1);
    assert_admission(can_swap_out(&w, &seqs[1], 1), KVP_ADMIT_LATER, 3, 2, 1);
    expect_out(&w, KVP_E_NO_BLOCKS, &seqs[1], 1);
    assert_shortage_in(&w, KVP_HOST, KVP_E_NO_BLOCKS, 0, 1);
    assert_int_equal(stats_of(&w).refused, 1);
    assert_status(KVP_E_ARG, kvp_seq_truncate(w.cache, seqs[1], 11, NULL));
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_ARG, 0, 0);
    close_seq(&w, seqs[0]); /* cached ones count as available */
    assert_admission(can_swap_out(&w, &seqs[1], 1), KVP_ADMIT_OK, 3, 4, 0);
    swap_out(&w, &seqs[1], 1);
}

TEST(test_more_blocks_than_the_host_has_never_fit)
{
    scoped_world w = tiers_world(15, 4);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 8), open_done(&w, ints(100), 12)};
    assert_admission(can_swap_out(&w, seqs, 2), KVP_ADMIT_NEVER, 5, 4, 1);
    expect_out(&w, KVP_E_NEVER, seqs, 2);
    assert_shortage_in(&w, KVP_HOST, KVP_E_NEVER, 0, 1);
}

TEST(test_shared_blocks_count_once)
{
    scoped_world w = tiers_world(15, 3);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 10), fork_seq(&w, parent, 5)};
    assert_admission(can_swap_out(&w, seqs, 3), KVP_ADMIT_OK, 3, 3, 0);
    assert_moved(swap_out(&w, seqs, 3), 3, 0, 1, 2);
}

TEST(test_found_blocks_cost_only_when_nobody_holds_them)
{
    scoped_world w = tiers_world(15, 4);
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 8)};
    swap_out(&w, &seqs[0], 1);
    assert_admission(can_swap_out(&w, &seqs[1], 1), KVP_ADMIT_OK, 0, 2, 0);
    close_seq(&w, seqs[0]);
    assert_admission(can_swap_out(&w, &seqs[1], 1), KVP_ADMIT_OK, 2, 4, 0);
}

TEST(test_found_blocks_count_for_never_though_somebody_holds_them)
{
    scoped_world w = tiers_world(15, 4);
    const kvp_seq parent = open_done(&w, ints(0), 8);
    const kvp_seq longer = fork_seq(&w, parent, 8);
    assert_ok(kvp_seq_extend(w.cache, longer, ints(8), 12, 0));
    assert_ok(kvp_seq_commit(w.cache, longer, 20));
    swap_out(&w, &parent, 1);
    const kvp_admission admission = can_swap_out(&w, &longer, 1);
    assert_int_equal(admission.verdict, KVP_ADMIT_NEVER); /* 2 found and 3 new, of 4 */
    assert_fields(admission, need_blocks, 3, copied_blocks, 3, missing_blocks, 1);
}

TEST(test_without_a_host_tier_nothing_that_is_computed_can_be_swapped_out)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    const kvp_seq fresh = open_seq(&w, ints(100), 6, NULL);
    assert_admission(can_swap_out(&w, &seq, 1), KVP_ADMIT_NEVER, 2, 0, 2);
    expect_out(&w, KVP_E_NEVER, &seq, 1);
    assert_shortage_in(&w, KVP_HOST, KVP_E_NEVER, 0, 2);
    assert_admission(can_swap_out(&w, &fresh, 1), KVP_ADMIT_OK, 0, 0, 0);
    assert_moved(swap_out(&w, &fresh, 1), 0, 0, 2, 0); /* needs none */
    assert_moved(swap_in(&w, &fresh, 1, 0), 0, 0, 0, 0);
}

TEST(test_too_few_blocks_on_the_device_are_told_with_their_tier)
{
    scoped_world w = tiers_world(5, 15);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    swap_out(&w, &seq, 1);
    const kvp_seq other = open_done(&w, ints(100), 12); /* leaves 2 */
    assert_admission(can_swap_in(&w, &seq, 1, 0), KVP_ADMIT_LATER, 3, 2, 1);
    assert_admission(can_swap_in(&w, &seq, 1, 3), KVP_ADMIT_LATER, 4, 2, 2);
    expect_in(&w, KVP_E_NO_BLOCKS, &seq, 1, 3);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_NO_BLOCKS, 0, 2);
    close_seq(&w, other);
    swap_in(&w, &seq, 1, 3);
}

/* What the sequences will have: entries of the row, reserve, and copies for those that write. */
TEST(test_more_blocks_than_the_device_has_never_fit)
{
    scoped_world w = tiers_world(5, 15);
    const kvp_seq parent = open_done(&w, ints(0), 10);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 10), fork_seq(&w, parent, 10)};
    swap_out(&w, seqs, 3);
    assert_admission(can_swap_in(&w, seqs, 3, 2), KVP_ADMIT_OK, 5, 5, 0);
    assert_admission(can_swap_in(&w, seqs, 3, 3), KVP_ADMIT_NEVER, 8, 5, 3);
    expect_in(&w, KVP_E_NEVER, seqs, 3, 3);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_NEVER, 0, 3);
    swap_in(&w, seqs, 3, 2);
}

TEST(test_the_watermark_is_kept_free_unless_nothing_is_held)
{
    kvp_config config = tiers_config(4, 4, 10, 15);
    config.watermark = 0.2;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    swap_out(&w, &seq, 1);
    assert_admission(can_swap_in(&w, &seq, 1, 28), KVP_ADMIT_OK, 10, 10, 0);
    const kvp_seq other = open_done(&w, ints(100), 20); /* leaves 5, of which 2 are kept free */
    assert_admission(can_swap_in(&w, &seq, 1, 0), KVP_ADMIT_OK, 3, 5, 0);
    assert_admission(can_swap_in(&w, &seq, 1, 1), KVP_ADMIT_LATER, 4, 5, 1);
    expect_in(&w, KVP_E_NO_BLOCKS, &seq, 1, 1);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_NO_BLOCKS, 0, 1);
    assert_admission(can_swap_in(&w, &seq, 1, 21), KVP_ADMIT_NEVER, 9, 5, 1);
    assert_admission(can_swap_in(&w, &seq, 1, 20), KVP_ADMIT_LATER, 8, 5, 5);
    expect_in(&w, KVP_E_NEVER, &seq, 1, 21);
    assert_shortage_in(&w, KVP_DEVICE, KVP_E_NEVER, 0, 1);
    swap_in(&w, &seq, 1, 0);
    close_seq(&w, other);
}

/* For every number of blocks that somebody else holds, the answer is what the call does. */
TEST(test_the_answer_is_what_the_call_does)
{
    for (uint32_t held = 0; held <= 9; held++) {
        for (uint32_t reserve = 0; reserve <= 8; reserve += 2) {
            kvp_config config = tiers_config(4, 4, 9, 5);
            config.watermark = 0.12;
            scoped_world w = make_world(&config);
            const kvp_seq parent = open_done(&w, ints(0), 10);
            const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 9)};
            swap_out(&w, seqs, 2);
            kvp_prompt prompt = prompt_of(NULL, 0);
            prompt.reserve_tokens = 4 * held;
            const kvp_admission other = can_open(&w, &prompt);
            if (other.verdict == KVP_ADMIT_OK)
                (void)open_with(&w, &prompt, NULL);
            const kvp_admission admission = can_swap_in(&w, seqs, 2, reserve);
            const kvp_stats before = stats_of(&w);
            const kvp_status status = kvp_seq_swap_in(w.cache, seqs, 2, reserve, NULL);
            const kvp_status expected[] = {KVP_OK, KVP_E_NO_BLOCKS, KVP_E_NEVER};
            assert_int_equal(status, expected[admission.verdict]);
            const kvp_stats after = stats_of(&w);
            assert_int_equal(before.free_blocks + before.cached_blocks - after.free_blocks -
                                 after.cached_blocks,
                             status == KVP_OK ? admission.need_blocks : 0);
            if (status != KVP_OK)
                assert_int_equal(shortage_of(&w).missing_blocks, admission.missing_blocks);
        }
    }
}

/* ----------------------------------------------------------------------------------------- plan */

TEST(test_a_plan_without_room_for_all_copies_refuses_the_swap)
{
    kvp_config config = tiers_config(4, 4, 15, 15);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seqs[] = {open_done(&w, ints(0), 10), open_done(&w, ints(100), 4)};
    expect_out(&w, KVP_E_PLAN_FULL, seqs, 2);
    assert_shortage(&w, KVP_E_PLAN_FULL, 0, 0);
    assert_int_equal(can_swap_out(&w, seqs, 2).verdict, KVP_ADMIT_OK); /* does not look at it */
    swap_out(&w, seqs, 1);                                             /* exactly full */
    expect_out(&w, KVP_E_PLAN_FULL, seqs + 1, 1);
    drop_plan(&w);
    swap_out(&w, seqs + 1, 1);
}

TEST(test_copies_on_write_of_a_swap_in_need_room_in_the_plan_too)
{
    kvp_config config = tiers_config(4, 4, 15, 15);
    config.max_copies = 3;
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 6);
    const kvp_seq seqs[] = {parent, fork_seq(&w, parent, 6), fork_seq(&w, parent, 6)};
    swap_out(&w, seqs, 3);
    drop_plan(&w);
    wipe_device(&w);
    expect_in(&w, KVP_E_PLAN_FULL, seqs, 3, 1); /* 2 from the host, 2 on the device */
    assert_shortage(&w, KVP_E_PLAN_FULL, 0, 0);
    assert_int_equal(can_swap_in(&w, seqs, 3, 1).verdict, KVP_ADMIT_OK);
    swap_in(&w, seqs, 2, 1); /* 2 and 1 */
    drop_plan(&w);
    swap_in(&w, seqs + 2, 1, 1);
}

TEST(test_blocks_go_before_the_plan)
{
    kvp_config config = tiers_config(4, 4, 15, 2);
    config.max_copies = 1;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    expect_out(&w, KVP_E_NEVER, &seq, 1);
}

/* ------------------------------------------------------------ what cannot be done while swapped */

struct asked {
    world *w;
    kvp_seq seqs[2]; /* on the device, swapped out */
};

static void refuse(kvp_status status, const char *what)
{
    if (status != KVP_E_STATE)
        print_error("%s\n", what);
    assert_int_equal(status, KVP_E_STATE);
}

#define REFUSED(asked, index, call)                                                                \
    do {                                                                                           \
        observed before_ = observe((asked)->w);                                                    \
        refuse(call, #call);                                                                       \
        assert_observed((asked)->w, &before_, __FILE__, __LINE__);                                 \
        assert_shortage((asked)->w, KVP_E_STATE, index, 0);                                        \
    } while (0)

static void expect_singles_refused(struct asked *a)
{
    kvp_cache *cache = a->w->cache;
    const kvp_seq seq = a->seqs[1];
    kvp_seq child;
    REFUSED(a, 0, kvp_seq_extend(cache, seq, ints(0), 1, 0));
    REFUSED(a, 0, kvp_seq_extend(cache, seq, NULL, 0, 0));
    REFUSED(a, 0, kvp_seq_fill(cache, seq, ints(0), 0));
    REFUSED(a, 0, kvp_seq_commit(cache, seq, 6));
    REFUSED(a, 0, kvp_seq_commit(cache, seq, 0));
    REFUSED(a, 0, kvp_seq_invalidate(cache, seq, 0, NULL, 0, NULL));
    REFUSED(a, 0, kvp_seq_fork(cache, seq, KVP_END, 0, &child));
    REFUSED(a, 0, kvp_seq_fork(cache, seq, 0, 0, &child));
    REFUSED(a, 0, kvp_seq_truncate(cache, seq, 0, NULL));
    REFUSED(a, 0, kvp_seq_truncate(cache, seq, 6, NULL));
    REFUSED(a, 0, kvp_seq_retain(cache, seq, (kvp_range){0, 1}, 1));
    REFUSED(a, 0, kvp_seq_uncache(cache, seq, (kvp_range){100, 101}));
}

static void expect_batches_refused(struct asked *a)
{
    static const uint32_t none[] = {0, 0};
    static const uint32_t six[] = {6, 6};
    kvp_cache *cache = a->w->cache;
    kvp_batch batch = batch_of(a->seqs, NULL, 2);
    kvp_admission admission;
    batch.tokens = ints(0);
    REFUSED(a, 1, kvp_seq_extend_many(cache, &batch));
    batch.n_tokens = none;
    REFUSED(a, 1, kvp_seq_fill_many(cache, &batch));
    REFUSED(a, 1, kvp_seq_commit_many(cache, a->seqs, six, 2));
    assert_unchanged(a->w, refuse(kvp_cache_can_extend(cache, &batch, &admission), "can_extend"));
}

static void expect_reads_refused(struct asked *a)
{
    int64_t slots[6];
    assert_unchanged(a->w, refuse(kvp_seq_slots(a->w->cache, a->seqs[1], 0, 0, 6, slots), "slots"));
    assert_unchanged(a->w, refuse(kvp_seq_slots(a->w->cache, a->seqs[1], 0, 0, 0, slots), "slots"));
}

TEST(test_a_swapped_sequence_allows_no_other_call)
{
    scoped_world w = tiers_world(15, 15);
    struct asked a = {&w, {open_done(&w, ints(0), 6), open_done(&w, ints(100), 6)}};
    swap_out(&w, &a.seqs[1], 1);
    expect_singles_refused(&a);
    expect_batches_refused(&a);
    expect_reads_refused(&a);
}

TEST(test_each_for_itself_leaves_the_swapped_ones_out)
{
    scoped_world w = tiers_world(15, 15);
    kvp_status statuses[2] = {77, 77};
    const kvp_seq seqs[] = {open_done(&w, ints(0), 6), open_done(&w, ints(100), 6)};
    swap_out(&w, &seqs[0], 1);
    kvp_batch batch = batch_of(seqs, NULL, 2);
    batch.flags = KVP_BATCH_EACH;
    batch.tokens = ints(6);
    batch.statuses = statuses;
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_int_equal(statuses[0], KVP_E_STATE);
    assert_int_equal(statuses[1], KVP_OK);
    assert_shortage(&w, KVP_E_STATE, 0, 0);
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 6);
    assert_int_equal(info_of(&w, seqs[1]).n_tokens, 7);
}

TEST(test_values_go_before_the_state)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    const int32_t negative = -1;
    swap_out(&w, &seq, 1);
    assert_status(KVP_E_ARG, kvp_seq_commit(w.cache, seq, 7));
    assert_status(KVP_E_ARG, kvp_seq_truncate(w.cache, seq, 7, NULL));
    assert_status(KVP_E_ARG, kvp_seq_extend(w.cache, seq, &negative, 1, 0));
    assert_status(KVP_E_ARG, kvp_seq_invalidate(w.cache, seq, 7, NULL, 0, NULL));
    assert_status(KVP_E_STATE, kvp_seq_extend(w.cache, seq, NULL, 300, 0)); /* and not too long */
}

TEST_MAIN(NULL, NULL)

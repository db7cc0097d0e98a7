/* Calls for many sequences: all or nothing, or each for itself; which fault goes first; and the
 * questions that are asked before. */
#include <string.h>

#include "world.h"

enum { B = 3 };

struct trio {
    world w;
    kvp_seq seqs[B];
};

/* Three sequences of 3 tokens in blocks 1, 2, 3 of `usable`. */
static struct trio make_trio(uint32_t usable)
{
    struct trio t;
    t.w = small_world(usable);
    for (int32_t i = 0; i < B; i++)
        t.seqs[i] = open_seq(&t.w, ints(100 * i), 3, NULL);
    return t;
}

TEST(test_without_counts_each_gets_one_token)
{
    struct trio t = make_trio(15);
    const int32_t tokens[B] = {3, 103, 203};
    kvp_batch batch = batch_of(t.seqs, NULL, B);
    batch.tokens = tokens;
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    for (int32_t i = 0; i < B; i++) {
        assert_int_equal(info_of(&t.w, t.seqs[i]).last_token, 100 * i + 3);
        assert_int_equal(info_of(&t.w, t.seqs[i]).public_tokens, 4);
    }
    end_world(&t.w);
}

TEST(test_counts_cut_the_tokens_and_blocks_go_out_in_order)
{
    struct trio t = make_trio(15);
    const uint32_t n[B] = {5, 0, 2};
    const int32_t tokens[] = {3, 4, 5, 6, 7, 203, 204};
    kvp_batch batch = batch_of(t.seqs, n, B);
    batch.tokens = tokens;
    batch.reserve_tokens = 1;
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    assert_row(&t.w, t.seqs[0], 1, 4, 5);
    assert_row(&t.w, t.seqs[1], 2);
    assert_row(&t.w, t.seqs[2], 3, 6);
    int32_t back[8];
    assert_ok(kvp_seq_tokens(t.w.cache, t.seqs[0], 0, 8, back));
    assert_memory_equal(back, ints(0), sizeof(back));
    assert_ok(kvp_seq_tokens(t.w.cache, t.seqs[2], 0, 5, back));
    assert_memory_equal(back, ints(200), 5 * sizeof(int32_t));
    batch.n_seqs = 0;
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    end_world(&t.w);
}

TEST(test_all_or_nothing_names_the_first_at_which_blocks_run_out)
{
    struct trio t = make_trio(5); /* two are free */
    const uint32_t n[B] = {5, 5, 5};
    kvp_batch batch = batch_of(t.seqs, n, B);
    batch.tokens = ints(500);
    const kvp_admission a = can_extend(&t.w, t.seqs, n, B);
    assert_fields(a, verdict, KVP_ADMIT_LATER, need_blocks, 3, available, 2, missing_blocks, 1);
    assert_unchanged(&t.w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(t.w.cache, &batch)));
    assert_shortage(&t.w, KVP_E_NO_BLOCKS, 2, 1);
    close_seq(&t.w, t.seqs[2]);
    batch.n_seqs = 2;
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    end_world(&t.w);
}

TEST(test_never_tells_the_largest_excess_of_one_sequence)
{
    struct trio t = make_trio(5);
    const uint32_t n[B] = {1, 21, 25};
    kvp_batch batch = batch_of(t.seqs, n, B);
    const kvp_admission a = can_extend(&t.w, t.seqs, n, B);
    assert_int_equal(a.verdict, KVP_ADMIT_NEVER);
    assert_int_equal(a.missing_blocks, 2); /* 28 tokens are 7 blocks of 5 */
    assert_unchanged(&t.w, assert_status(KVP_E_NEVER, kvp_seq_extend_many(t.w.cache, &batch)));
    assert_shortage(&t.w, KVP_E_NEVER, 1, 2); /* the first of them */
    end_world(&t.w);
}

TEST(test_each_for_itself_changes_those_that_fit)
{
    struct trio t = make_trio(5);
    kvp_status statuses[5];
    const kvp_seq seqs[] = {t.seqs[0], {77}, t.seqs[1], t.seqs[2]};
    const uint32_t n[] = {5, 1, 9, 5};
    kvp_batch batch = batch_of(seqs, n, 4);
    batch.flags = KVP_BATCH_EACH;
    batch.tokens = ints(500);
    batch.statuses = statuses;
    const uint64_t refused = stats_of(&t.w).refused;
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    assert_int_equal(statuses[0], KVP_OK); /* takes one of two */
    assert_int_equal(statuses[1], KVP_E_HANDLE);
    assert_int_equal(statuses[2], KVP_E_NO_BLOCKS); /* two of one */
    assert_int_equal(statuses[3], KVP_OK);
    assert_shortage(&t.w, KVP_E_NO_BLOCKS, 2, 1);      /* the last one that failed */
    assert_int_equal(stats_of(&t.w).refused, refused); /* the call was not */
    assert_row(&t.w, t.seqs[0], 1, 4);
    assert_row(&t.w, t.seqs[1], 2);
    assert_row(&t.w, t.seqs[2], 3, 5);
    int32_t token;
    assert_ok(kvp_seq_tokens(t.w.cache, t.seqs[2], 3, 1, &token));
    assert_int_equal(token, 515); /* tokens of those that fail are skipped */
    end_world(&t.w);
}

TEST(test_each_for_itself_gives_every_kind_of_status)
{
    struct trio t = make_trio(15);
    kvp_status statuses[B];
    const uint32_t n[B] = {1, 1, 300};
    int32_t tokens[302] = {1, -1};
    kvp_batch batch = batch_of(t.seqs, n, B);
    assert_ok(kvp_seq_extend(t.w.cache, t.seqs[0], NULL, 1, 0));
    batch.flags = KVP_BATCH_EACH;
    batch.tokens = tokens;
    batch.statuses = statuses;
    observed before = observe(&t.w);
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    assert_int_equal(statuses[0], KVP_E_STATE);
    assert_int_equal(statuses[1], KVP_E_ARG);
    assert_int_equal(statuses[2], KVP_E_TOO_LONG);
    assert_observed(&t.w, &before, __FILE__, __LINE__);
    const kvp_seq same[] = {t.seqs[0], t.seqs[1], t.seqs[0]};
    statuses[0] = (kvp_status)77;
    batch.seqs = same;
    assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_extend_many(t.w.cache, &batch)));
    assert_shortage(&t.w, KVP_E_ARG, 2, 0); /* twice, for the whole call */
    assert_int_equal(statuses[0], 77);
    end_world(&t.w);
}

TEST(test_fill_many_fills_each_for_itself_too)
{
    struct trio t = make_trio(15);
    kvp_status statuses[B];
    const uint32_t n[B] = {2, 2, 2};
    const uint32_t m[B] = {1, 3, 2};
    const int32_t tokens[] = {3, 103, 104, 105, 203, 204};
    kvp_batch batch = batch_of(t.seqs, n, B);
    assert_ok(kvp_seq_extend_many(t.w.cache, &batch));
    batch.n_tokens = m;
    batch.tokens = tokens;
    assert_unchanged(&t.w, assert_status(KVP_E_STATE, kvp_seq_fill_many(t.w.cache, &batch)));
    assert_shortage(&t.w, KVP_E_STATE, 1, 0);
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = statuses;
    assert_ok(kvp_seq_fill_many(t.w.cache, &batch));
    assert_int_equal(statuses[0], KVP_OK);
    assert_int_equal(statuses[1], KVP_E_STATE);
    assert_int_equal(statuses[2], KVP_OK);
    assert_int_equal(info_of(&t.w, t.seqs[0]).last_token, 3);
    assert_int_equal(info_of(&t.w, t.seqs[1]).last_token, 102);
    assert_int_equal(info_of(&t.w, t.seqs[2]).last_token, 204);
    const kvp_seq stale[] = {t.seqs[0], {0}, t.seqs[2]};
    batch.seqs = stale;
    assert_ok(kvp_seq_fill_many(t.w.cache, &batch));
    assert_int_equal(statuses[1], KVP_E_HANDLE);
    const kvp_seq twice[] = {t.seqs[0], t.seqs[1], t.seqs[1]};
    batch.seqs = twice;
    assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_fill_many(t.w.cache, &batch)));
    end_world(&t.w);
}

TEST(test_a_fill_takes_values_and_no_reserve)
{
    struct trio t = make_trio(15);
    const uint32_t none[B] = {0, 0, 0};
    const uint32_t one[B] = {0, 1, 0};
    kvp_batch batch = batch_of(t.seqs, none, B);
    assert_ok(kvp_seq_fill_many(t.w.cache, &batch)); /* all counts are 0 */
    batch.n_tokens = one;
    assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_fill_many(t.w.cache, &batch)));
    batch.n_tokens = NULL;
    assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_fill_many(t.w.cache, &batch)));
    batch = batch_of(t.seqs, none, B);
    batch.tokens = ints(0);
    batch.reserve_tokens = 1;
    assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_fill_many(t.w.cache, &batch)));
    assert_shortage(&t.w, KVP_E_ARG, 0, 0);
    end_world(&t.w);
}

/* What is checked first: a bad handle anywhere, a sequence named twice, then each in order. */
TEST(test_the_order_of_the_checks)
{
    struct trio t = make_trio(15);
    const uint32_t n[B] = {1, 300, 1};
    const int32_t bad[302] = {-1};
    const kvp_seq seqs[][B] = {{t.seqs[0], t.seqs[0], {0}},
                               {t.seqs[0], t.seqs[1], t.seqs[0]},
                               {t.seqs[0], t.seqs[1], t.seqs[2]},
                               {t.seqs[2], t.seqs[1], t.seqs[0]}};
    const kvp_status expected[] = {KVP_E_HANDLE, KVP_E_ARG, KVP_E_ARG, KVP_E_TOO_LONG};
    const uint32_t index[] = {2, 2, 0, 1};
    for (size_t i = 0; i < 4; i++) {
        kvp_batch batch = batch_of(seqs[i], n, B);
        kvp_admission a;
        batch.tokens = i < 3 ? bad : ints(0);
        assert_unchanged(&t.w, assert_status(expected[i], kvp_seq_extend_many(t.w.cache, &batch)));
        assert_shortage(&t.w, expected[i], index[i], 0);
        const kvp_status asked =
            kvp_cache_can_extend(t.w.cache, &batch, &a); /* values are not looked at */
        assert_int_equal(asked, i < 2 ? expected[i] : KVP_E_TOO_LONG);
    }
    end_world(&t.w);
}

TEST(test_asking_leaves_the_last_shortage_alone)
{
    struct trio t = make_trio(3);
    kvp_admission a = {77, 77, 77, 77, 77};
    const uint32_t n[B] = {5, 300, 1};
    kvp_batch batch = batch_of(t.seqs, n, B);
    assert_status(KVP_E_NEVER, kvp_seq_extend(t.w.cache, t.seqs[0], ints(3), 12, 0));
    const uint64_t refused = stats_of(&t.w).refused;
    assert_unchanged(&t.w,
                     assert_status(KVP_E_TOO_LONG, kvp_cache_can_extend(t.w.cache, &batch, &a)));
    assert_int_equal(a.verdict, 77); /* not written */
    batch.n_seqs = 1;
    assert_unchanged(&t.w, assert_ok(kvp_cache_can_extend(t.w.cache, &batch, &a)));
    assert_int_equal(a.verdict, KVP_ADMIT_LATER);
    assert_shortage(&t.w, KVP_E_NEVER, 0, 1);
    assert_int_equal(stats_of(&t.w).refused, refused);
    end_world(&t.w);
}

TEST(test_unknown_flags_are_refused)
{
    struct trio t = make_trio(15);
    kvp_status statuses[B];
    kvp_batch batch = batch_of(t.seqs, NULL, B);
    batch.statuses = statuses;
    batch.tokens = ints(0);
    for (uint32_t flags = 2; flags <= 3; flags++) {
        batch.flags = flags;
        assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_extend_many(t.w.cache, &batch)));
        assert_unchanged(&t.w, assert_status(KVP_E_ARG, kvp_seq_fill_many(t.w.cache, &batch)));
    }
    kvp_prompt prompt = prompt_of(ints(0), 4);
    kvp_seq seq;
    prompt.flags = 8;
    assert_unchanged(
        &t.w, assert_status(KVP_E_ARG, kvp_seq_open(t.w.cache, t.w.ns, &prompt, &seq, NULL)));
    prompt.flags = 0;
    prompt.retention = KVP_RETENTION_CLASSES;
    assert_unchanged(
        &t.w, assert_status(KVP_E_ARG, kvp_seq_open(t.w.cache, t.w.ns, &prompt, &seq, NULL)));
    end_world(&t.w);
}

TEST(test_a_large_batch_of_decoding_sequences)
{
    enum { MANY = 64, STEPS = 40 };
    kvp_config config = config_of(16, 16, 400);
    config.max_seqs = MANY;
    scoped_world w = make_world(&config);
    kvp_seq seqs[MANY];
    uint32_t n[MANY];
    for (int32_t i = 0; i < MANY; i++)
        seqs[i] = open_done(&w, ints(40 * i), 10);
    for (uint32_t step = 0; step < STEPS; step++) {
        int32_t tokens[MANY];
        for (uint32_t i = 0; i < MANY; i++) {
            tokens[i] = (int32_t)(40 * i + 10 + step);
            n[i] = 11 + step;
        }
        kvp_batch batch = batch_of(seqs, NULL, MANY);
        batch.tokens = tokens;
        assert_ok(kvp_seq_extend_many(w.cache, &batch));
        assert_ok(kvp_seq_commit_many(w.cache, seqs, n, MANY));
    }
    for (int32_t i = 0; i < MANY; i++) {
        assert_int_equal(match(&w, ints(40 * i), 50).hit_tokens, 48);
        close_seq(&w, seqs[i]);
    }
}

TEST_MAIN(NULL, NULL)

/* Rings of slots for the states that a chain of drafts leaves behind (states.h, "Rings"): what is
 * taken, what a commit and a truncation go on with, what is released, and what is refused. */
#include <kvpager/states.h>
#include <kvpager/swap.h>

#include "groups.h"

#include <string.h>

enum { MOST = KVP_STATE_RING_MAX };

static world ring_world(uint32_t state_slots)
{
    kvp_config config = config_of(4, 4, 32);
    config.state_slots = state_slots;
    return make_world(&config);
}

/* 8 tokens are computed; the state after them is in slot 1. */
static kvp_seq begin(world *w)
{
    const kvp_seq seq = open_seq(w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, 8));
    return seq;
}

static kvp_batch ring_batch(const kvp_seq *seqs, uint32_t n_seqs, const uint32_t *n_tokens)
{
    return (kvp_batch){.struct_size = sizeof(kvp_batch),
                       .n_seqs = n_seqs,
                       .flags = KVP_BATCH_RING,
                       .seqs = seqs,
                       .n_tokens = n_tokens};
}

static kvp_status extend(const world *w, kvp_seq seq, uint32_t n_tokens)
{
    const kvp_batch batch = ring_batch(&seq, 1, &n_tokens);
    return kvp_seq_extend_many(w->cache, &batch);
}

static uint64_t free_slots(const world *w)
{
    kvp_state_stats stats;
    assert_ok(kvp_cache_state_stats_get(w->cache, &stats));
    return stats.free_slots;
}

/* The slots that the step reads and writes. */
static void expect(const world *w, kvp_seq seq, int32_t read, const int32_t *writes, uint32_t n)
{
    int32_t slots[MOST], got, last;
    uint32_t n_slots;
    kvp_state_info info;
    assert_ok(kvp_meta_state_rings(w->cache, &seq, 1, MOST, &got, &n_slots, slots));
    assert_int_equal(got, read);
    assert_int_equal(n_slots, n);
    assert_memory_equal(slots, writes, n * sizeof(*writes));
    for (uint32_t i = n; i < MOST; i++)
        assert_int_equal(slots[i], -1);
    assert_ok(kvp_meta_states(w->cache, &seq, 1, &got, &last));
    assert_true(got == read && last == writes[n - 1]);
    assert_ok(kvp_seq_state_get(w->cache, seq, &info));
    assert_int_equal(info.ring_slots, n - 1);
}

#define assert_writes(w, seq, read, ...)                                                           \
    expect(w, seq, read, (const int32_t[]){__VA_ARGS__},                                           \
           sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ------------------------------------------------------------------------------ taken, and kept */

TEST(test_each_token_has_a_slot)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    assert_int_equal(free_slots(&w), 8);
    assert_ok(extend(&w, seq, 4));
    assert_writes(&w, seq, 1, 2, 3, 4, 1); /* the last token's overwrites what is read */
    assert_int_equal(free_slots(&w), 5);
    assert_ok(kvp_seq_commit(w.cache, seq, 10)); /* one draft is accepted */
    assert_writes(&w, seq, 3, 3);
    assert_int_equal(free_slots(&w), 8);
    assert_ok(kvp_seq_truncate(w.cache, seq, 10, NULL));
    assert_writes(&w, seq, 3, 3);
}

TEST(test_all_or_none_of_the_drafts_are_accepted)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 3));
    assert_ok(kvp_seq_commit(w.cache, seq, 11));
    assert_writes(&w, seq, 1, 1);
    assert_int_equal(free_slots(&w), 8);
    assert_ok(extend(&w, seq, 3));
    int32_t slots[MOST];
    uint32_t n;
    assert_ok(kvp_meta_state_rings(w.cache, &seq, 1, MOST, NULL, &n, slots));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_writes(&w, seq, slots[0], slots[0]);
    assert_int_equal(free_slots(&w), 8);
}

/* Drafts that are taken back before the commit leave the states of those before. */
TEST(test_truncate_first)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 5));
    assert_writes(&w, seq, 1, 2, 3, 4, 5, 1);
    assert_ok(kvp_seq_truncate(w.cache, seq, 11, NULL));
    assert_writes(&w, seq, 1, 2, 3, 4);
    assert_ok(kvp_seq_truncate(w.cache, seq, 10, NULL));
    assert_writes(&w, seq, 1, 2, 3);
    assert_int_equal(free_slots(&w), 6);
    assert_ok(kvp_seq_commit(w.cache, seq, 10));
    assert_writes(&w, seq, 3, 3);
    assert_int_equal(free_slots(&w), 8);
}

/* A step that reads a checkpoint leaves it alone. */
TEST(test_a_checkpoint_is_read)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    uint32_t outcome;
    assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    assert_ok(extend(&w, seq, 3));
    assert_writes(&w, seq, 1, 3, 4, 2);
    assert_ok(kvp_seq_truncate(w.cache, seq, 8, NULL)); /* the whole step is */
    assert_writes(&w, seq, 1, 2);
    assert_int_equal(free_slots(&w), 7);
    assert_ok(extend(&w, seq, 2));
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_ok(kvp_seq_truncate(w.cache, seq, 8, NULL)); /* beyond the ring, a checkpoint */
    assert_int_equal(free_slots(&w), 7);
    assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, 7, NULL));
}

/* With more tokens a ring grows; without the flag they share the slot to write. */
TEST(test_more_tokens)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 2));
    assert_writes(&w, seq, 1, 2, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0));
    assert_writes(&w, seq, 1, 2, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 8)); /* nothing */
    assert_writes(&w, seq, 1, 2, 1);
    assert_ok(extend(&w, seq, 0)); /* the last one of before has another slot now */
    assert_writes(&w, seq, 1, 2, 3, 4, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0));
    assert_ok(kvp_seq_truncate(w.cache, seq, 13, NULL));
    assert_writes(&w, seq, 1, 2, 3, 4, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 13));
    assert_writes(&w, seq, 1, 1);
}

TEST(test_a_failed_step_and_a_close_release_it)
{
    scoped_world w = ring_world(10);
    kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 4));
    close_seq(&w, seq);
    assert_int_equal(free_slots(&w), 9);
    seq = begin(&w);
    uint32_t outcome;
    assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
    assert_ok(extend(&w, seq, 4));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 8, NULL, 0, NULL));
    assert_int_equal(free_slots(&w), 7);
    assert_ok(extend(&w, seq, 0)); /* the tokens are there still */
    assert_int_equal(free_slots(&w), 4);
}

/* Nothing is taken back from n_tokens on: a step that writes the ring goes on. */
TEST(test_an_invalidate_from_the_end_leaves_it)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 4));
    const uint64_t before = free_slots(&w);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 12, NULL, 0, NULL));
    assert_int_equal(free_slots(&w), before);
    assert_writes(&w, seq, 1, 2, 3, 4, 1);
    assert_ok(kvp_seq_commit(w.cache, seq, 10)); /* the drafts of that step */
    assert_int_equal(info_of(&w, seq).computed_tokens, 10);
}

/* On the way to the host and back the ring is lost, and the tokens are not. */
TEST(test_swap)
{
    kvp_config config = config_of(4, 4, 32);
    config.state_slots = 10;
    config.host_blocks = 16;
    config.host_state_slots = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, 4));
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    assert_int_equal(free_slots(&w), 9);
    assert_ok(kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL));
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(w.cache, seq, &info));
    assert_int_equal(info.ring_slots, 0);
    assert_ok(extend(&w, seq, 0));
    assert_ok(kvp_seq_state_get(w.cache, seq, &info));
    assert_int_equal(info.ring_slots, 3);
}

/* A fork reads what its parent reads, and has no part in the ring. */
TEST(test_fork)
{
    scoped_world w = ring_world(10);
    const kvp_seq seq = begin(&w);
    uint32_t outcome;
    assert_ok(kvp_seq_checkpoint(w.cache, seq, &outcome));
    assert_ok(extend(&w, seq, 4));
    kvp_seq child;
    assert_ok(kvp_seq_fork(w.cache, seq, 8, 0, &child));
    assert_ok(extend(&w, child, 2));
    assert_writes(&w, seq, 1, 3, 4, 5, 2);
    assert_writes(&w, child, 1, 7, 6);
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    assert_writes(&w, child, 1, 7, 6);
}

/* ------------------------------------------------------------------------------------ admission */

TEST(test_slots_are_counted)
{
    scoped_world w = ring_world(7); /* 6 usable */
    const kvp_seq seqs[2] = {begin(&w), open_seq(&w, ints(100), 1, NULL)};
    assert_ok(kvp_seq_commit(w.cache, seqs[1], 1));
    const uint32_t counts[2] = {3, 4};
    kvp_batch batch = ring_batch(seqs, 2, counts);
    kvp_admission admission;
    kvp_shortage why;
    assert_ok(kvp_cache_can_extend(w.cache, &batch, &admission));
    assert_fields(admission, verdict, KVP_ADMIT_LATER, missing_blocks, 0);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &batch));
    assert_ok(kvp_cache_shortage_get(w.cache, &why));
    assert_fields(why, tier, KVP_STATE_SLOTS, missing_blocks, 1, index, 1);
    assert_int_equal(free_slots(&w), 4);
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 8);
    const uint32_t fewer[2] = {3, 3};
    batch.n_tokens = fewer;
    assert_ok(kvp_cache_can_extend(w.cache, &batch, &admission));
    assert_int_equal(admission.verdict, KVP_ADMIT_OK);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_int_equal(free_slots(&w), 0);
    assert_writes(&w, seqs[0], 1, 3, 4, 1);
    assert_writes(&w, seqs[1], 2, 5, 6, 2);
}

/* ------------------------------------------------------------------------------------- refusals */

TEST(test_at_most_seventeen)
{
    scoped_world w = ring_world(40);
    const kvp_seq seq = begin(&w);
    assert_ok(extend(&w, seq, MOST));
    assert_int_equal(free_slots(&w), 38 - (MOST - 1));
    assert_status(KVP_E_TOO_LONG, extend(&w, seq, 1));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 1, 0));
    assert_status(KVP_E_TOO_LONG, extend(&w, seq, 0));
    const uint32_t none = 0;
    const kvp_batch batch = ring_batch(&seq, 1, &none);
    kvp_admission admission;
    assert_status(KVP_E_TOO_LONG, kvp_cache_can_extend(w.cache, &batch, &admission));
    assert_ok(kvp_seq_commit(w.cache, seq, 9)); /* 17 are left: they have one slot between them */
    assert_int_equal(free_slots(&w), 38);
}

/* No token more, when all are computed, and one more without counts: neither needs a ring. */
TEST(test_none_and_one)
{
    scoped_world w = ring_world(40);
    const kvp_seq seq = begin(&w);
    const kvp_batch one_each = ring_batch(&seq, 1, NULL);
    const uint64_t n_free = free_slots(&w);
    assert_ok(extend(&w, seq, 0));
    assert_ok(kvp_seq_extend_many(w.cache, &one_each));
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(w.cache, seq, &info));
    assert_int_equal(info.ring_slots, 0);
    assert_int_equal(free_slots(&w), n_free);
}

static void expect_wrong(const kvp_config *config)
{
    scoped_world w = make_world(config);
    const kvp_seq seq = open_seq(&w, ints(0), 1, NULL);
    const uint32_t two = 2;
    const kvp_batch batch = ring_batch(&seq, 1, &two);
    kvp_admission admission;
    assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch));
    assert_status(KVP_E_ARG, kvp_cache_can_extend(w.cache, &batch, &admission));
}

TEST(test_the_flag_is_refused)
{
    kvp_config config = config_of(4, 4, 16);
    expect_wrong(&config); /* no states */
    scoped_world w = ring_world(8);
    const kvp_seq seq = begin(&w);
    const uint32_t two = 2;
    kvp_status status;
    kvp_batch batch = ring_batch(&seq, 1, &two);
    batch.flags |= KVP_BATCH_EACH;
    batch.statuses = &status;
    assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, &batch));
    batch.flags = KVP_BATCH_RING;
    batch.tokens = ints(0);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 2, 0));
    assert_status(KVP_E_ARG, kvp_seq_fill_many(w.cache, &batch));
}

TEST(test_metadata_is_refused)
{
    world w = ring_world(10);
    const kvp_seq seqs[2] = {begin(&w), open_seq(&w, NULL, 0, NULL)};
    int32_t read[2] = {-5, -5};
    int32_t writes[2][MOST] = {{-5}};
    uint32_t n[2] = {5, 5};
    const kvp_seq none = {0};
    assert_ok(extend(&w, seqs[0], 3));
    assert_status(KVP_E_ARG, kvp_meta_state_rings(NULL, seqs, 1, MOST, read, n, *writes));
    assert_status(KVP_E_ARG, kvp_meta_state_rings(w.cache, NULL, 1, MOST, read, n, *writes));
    assert_status(KVP_E_ARG, kvp_meta_state_rings(w.cache, seqs, 1, MOST, read, NULL, *writes));
    assert_status(KVP_E_ARG, kvp_meta_state_rings(w.cache, seqs, 1, MOST, read, n, NULL));
    assert_status(KVP_E_HANDLE, kvp_meta_state_rings(w.cache, &none, 1, MOST, read, n, *writes));
    assert_status(KVP_E_STATE, kvp_meta_state_rings(w.cache, seqs, 2, MOST, read, n, *writes));
    assert_status(KVP_E_TOO_SMALL, kvp_meta_state_rings(w.cache, seqs, 1, 2, read, n, *writes));
    assert_true(read[0] == -5 && n[0] == 5 && writes[0][0] == -5);
    assert_ok(kvp_meta_state_rings(w.cache, seqs, 1, 3, read, n, *writes));
    assert_ok(kvp_meta_state_rings(w.cache, NULL, 0, 0, NULL, NULL, NULL));
    end_world(&w);
    const kvp_config config = config_of(4, 4, 16);
    w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 1, NULL);
    assert_status(KVP_E_STATE, kvp_meta_state_rings(w.cache, &seq, 1, MOST, read, n, *writes));
    end_world(&w);
}

TEST_MAIN(NULL, NULL)

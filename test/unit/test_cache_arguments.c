/* Every call that takes a handle, with every kind of bad one; every call, with every pointer that
 * may not be NULL. */
#include <string.h>

#include <kvpager/oplog.h>

#include "world.h"

/* What a test calls with: all arguments valid, to begin with. */
struct call {
    world *w;
    kvp_cache *cache;
    kvp_seq seq;
    kvp_ns ns;
    kvp_prompt prompt;
    kvp_batch batch;
    kvp_sink sink;
};

static struct call call_on(world *w)
{
    static kvp_status statuses[1];
    struct call c = {.w = w, .cache = w->cache, .ns = w->ns};
    c.seq = open_done(w, ints(0), 8);
    c.prompt = prompt_of(ints(100), 8);
    c.sink.write = write_nothing;
    c.batch = batch_of(NULL, NULL, 1);
    c.batch.statuses = statuses;
    return c;
}

#include "refused_calls.h"

static const uint32_t none, one = 1;

/* On a sequence. */
CALLS(extend, kvp_seq_extend(c->cache, c->seq, ints(0), 1, 0))
CALLS(extend_many, (c->batch.seqs = &c->seq, c->batch.tokens = ints(0),
                    kvp_seq_extend_many(c->cache, &c->batch)))
CALLS(can_extend,
      (c->batch.seqs = &c->seq, kvp_cache_can_extend(c->cache, &c->batch, &(kvp_admission){0})))
CALLS(fill, kvp_seq_fill(c->cache, c->seq, ints(0), 0))
CALLS(fill_many,
      (c->batch.seqs = &c->seq, c->batch.n_tokens = &none, kvp_seq_fill_many(c->cache, &c->batch)))
CALLS(commit, kvp_seq_commit(c->cache, c->seq, 1))
CALLS(commit_many, kvp_seq_commit_many(c->cache, &c->seq, &one, 1))
CALLS(invalidate, kvp_seq_invalidate(c->cache, c->seq, 8, (kvp_seq[4]){{0}}, 4, &(uint32_t){0}))
CALLS(fork, kvp_seq_fork(c->cache, c->seq, 0, 0, &(kvp_seq){0}))
CALLS(truncate, kvp_seq_truncate(c->cache, c->seq, 8, NULL))
CALLS(close, kvp_seq_close(c->cache, c->seq, NULL))
CALLS(info, kvp_seq_info_get(c->cache, c->seq, &(kvp_seq_info){0}))
CALLS(tokens, kvp_seq_tokens(c->cache, c->seq, 0, 1, &(int32_t){0}))
CALLS(block_tokens, kvp_seq_block_tokens(c->cache, c->seq, 0, (int32_t[4]){0}, &(uint32_t){0}))
CALLS(row, kvp_seq_row(c->cache, c->seq, 0, &(const int32_t *){NULL}, &(uint32_t){0}))
CALLS(slots, kvp_seq_slots(c->cache, c->seq, 0, 0, 1, &(int64_t){0}))
CALLS(retain, kvp_seq_retain(c->cache, c->seq, (kvp_range){0, 1}, 1))
CALLS(uncache, kvp_seq_uncache(c->cache, c->seq, (kvp_range){8, 9}))

/* On a namespace. */
CALLS(ns_flush, kvp_ns_flush(c->cache, c->ns))
CALLS(ns_close, kvp_ns_close(c->cache, c->ns))
CALLS(match, kvp_cache_match(c->cache, c->ns, &c->prompt, &(kvp_open_info){0}))
CALLS(can_open, kvp_cache_can_open(c->cache, c->ns, &c->prompt, &(kvp_admission){0}))
CALLS(open, kvp_seq_open(c->cache, c->ns, &c->prompt, &(kvp_seq){0}, NULL))

static const struct named_call seq_calls[] = {
    CALL(extend, 1), CALL(extend_many, 1), CALL(can_extend, 0),   CALL(fill, 1), CALL(fill_many, 1),
    CALL(commit, 1), CALL(commit_many, 1), CALL(invalidate, 1),   CALL(fork, 1), CALL(truncate, 1),
    CALL(info, 0),   CALL(tokens, 0),      CALL(block_tokens, 0), CALL(row, 0),  CALL(slots, 0),
    CALL(retain, 1), CALL(uncache, 1),     CALL(close, 1),
};

static const struct named_call ns_calls[] = {
    CALL(match, 0), CALL(can_open, 0), CALL(open, 1), CALL(ns_flush, 1), CALL(ns_close, 1),
};

enum {
    SEQ_CALLS = sizeof(seq_calls) / sizeof(*seq_calls),
    NS_CALLS = sizeof(ns_calls) / sizeof(*ns_calls)
};

TEST(test_every_call_refuses_every_bad_sequence)
{
    scoped_world w = small_world(15);
    scoped_world other = small_world(15);
    struct call c = call_on(&w);
    const kvp_seq foreign = open_done(&other, ints(0), 8);
    const kvp_seq closed = open_seq(&w, ints(0), 4, NULL);
    close_seq(&w, closed);
    const kvp_seq bad[] = {{0}, closed, foreign, {UINT64_MAX}, {c.seq.bits + 2}};
    for (size_t i = 0; i < SEQ_CALLS; i++) {
        for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
            c.seq = bad[k];
            expect_refusal(&seq_calls[i], &c);
        }
    }
}

TEST(test_every_call_refuses_every_bad_namespace)
{
    scoped_world w = small_world(15);
    scoped_world other = small_world(15);
    struct call c = call_on(&w);
    kvp_ns closed;
    assert_ok(kvp_ns_open(w.cache, "x", 1, &closed));
    assert_ok(kvp_ns_close(w.cache, closed));
    const kvp_ns bad[] = {{0}, closed, other.ns, {UINT64_MAX}, {c.seq.bits ^ 1}};
    for (size_t i = 0; i < NS_CALLS; i++) {
        for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
            c.ns = bad[k];
            expect_refusal(&ns_calls[i], &c);
        }
    }
}

TEST(test_every_call_works_with_good_handles)
{
    scoped_world w = small_world(31);
    struct call c = call_on(&w);
    for (size_t i = 0; i < SEQ_CALLS; i++)
        assert_ok(seq_calls[i].call(&c));
    for (size_t i = 0; i < NS_CALLS; i++)
        assert_ok(ns_calls[i].call(&c));
}

/* Every changing call that succeeds starts the list of evicted blocks anew; the others leave it. */
static void expect_list(const struct named_call *named, struct call *c, int32_t turn)
{
    const kvp_evicted *evicted;
    leave_cached(c->w, ints(200 + 100 * turn), 4 * (uint32_t)stats_of(c->w).free_blocks);
    const kvp_seq seq = open_seq(c->w, ints(3000 + 20 * turn), 4, NULL);
    assert_int_equal(evicted_of(c->w, &evicted), 1);
    assert_ok(named->call(c));
    const uint32_t n = evicted_of(c->w, &evicted);
    if (n != (named->call == call_open ? 2 : !named->changes)) {
        print_error("%s: %u\n", named->name, (unsigned)n);
        fail();
    }
    close_seq(c->w, seq);
}

TEST(test_every_changing_call_starts_the_list_of_evicted_blocks_anew)
{
    scoped_world w = small_world(9);
    struct call c = call_on(&w);
    assert_ok(kvp_seq_extend(w.cache, c.seq, NULL, 0, 8)); /* so that no call but open takes */
    for (size_t i = 0; i < SEQ_CALLS; i++)
        expect_list(&seq_calls[i], &c, (int32_t)i);
    for (size_t i = 0; i < NS_CALLS - 1; i++) /* nothing can be opened after ns_close */
        expect_list(&ns_calls[i], &c, (int32_t)(SEQ_CALLS + i));
}

TEST(test_every_call_refuses_no_cache)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    c.cache = NULL;
    for (size_t i = 0; i < SEQ_CALLS; i++)
        assert_status(KVP_E_ARG, seq_calls[i].call(&c));
    for (size_t i = 0; i < NS_CALLS; i++)
        assert_status(KVP_E_ARG, ns_calls[i].call(&c));
    kvp_config config;
    kvp_stats stats;
    kvp_shortage shortage;
    kvp_violation violation;
    kvp_ns ns;
    kvp_block_info info;
    const kvp_evicted *evicted;
    int32_t tokens[4];
    uint32_t n;
    assert_status(KVP_E_ARG, kvp_cache_reset(NULL));
    assert_status(KVP_E_ARG, kvp_cache_config_get(NULL, &config));
    assert_status(KVP_E_ARG, kvp_cache_stats_get(NULL, &stats));
    assert_status(KVP_E_ARG, kvp_cache_shortage_get(NULL, &shortage));
    assert_status(KVP_E_ARG, kvp_cache_check(NULL, 1, &violation));
    assert_status(KVP_E_ARG, kvp_ns_open(NULL, "", 0, &ns));
    assert_status(KVP_E_ARG, kvp_plan_take(NULL, NULL, 0, &n));
    assert_status(KVP_E_ARG, kvp_cache_evicted(NULL, &evicted, &n));
    assert_status(KVP_E_ARG, kvp_block_info_get(NULL, 0, KVP_DEVICE, 1, &info));
    assert_status(KVP_E_ARG, kvp_block_tokens(NULL, 0, KVP_DEVICE, 1, tokens, &n));
    assert_status(KVP_E_ARG, kvp_cache_record_start(NULL, &c.sink));
    assert_status(KVP_E_ARG, kvp_cache_record_stop(NULL));
}

TEST(test_reading_calls_refuse_missing_outputs)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    kvp_cache *cache = w.cache;
    const kvp_evicted *evicted;
    const int32_t *row;
    int32_t tokens[4];
    uint32_t n;
    assert_status(KVP_E_ARG, kvp_cache_config_get(cache, NULL));
    assert_status(KVP_E_ARG, kvp_cache_stats_get(cache, NULL));
    assert_status(KVP_E_ARG, kvp_cache_shortage_get(cache, NULL));
    assert_status(KVP_E_ARG, kvp_cache_evicted(cache, NULL, &n));
    assert_status(KVP_E_ARG, kvp_cache_evicted(cache, &evicted, NULL));
    assert_status(KVP_E_ARG, kvp_block_info_get(cache, 0, KVP_DEVICE, 1, NULL));
    assert_status(KVP_E_ARG, kvp_block_tokens(cache, 0, KVP_DEVICE, 1, NULL, &n));
    assert_status(KVP_E_ARG, kvp_block_tokens(cache, 0, KVP_DEVICE, 1, tokens, NULL));
    assert_status(KVP_E_ARG, kvp_seq_info_get(cache, c.seq, NULL));
    assert_status(KVP_E_ARG, kvp_seq_tokens(cache, c.seq, 0, 1, NULL));
    assert_ok(kvp_seq_tokens(cache, c.seq, 0, 0, NULL));
    assert_status(KVP_E_ARG, kvp_seq_block_tokens(cache, c.seq, 0, NULL, &n));
    assert_status(KVP_E_ARG, kvp_seq_block_tokens(cache, c.seq, 0, tokens, NULL));
    assert_status(KVP_E_ARG, kvp_seq_row(cache, c.seq, 0, NULL, &n));
    assert_status(KVP_E_ARG, kvp_seq_row(cache, c.seq, 0, &row, NULL));
    assert_status(KVP_E_ARG, kvp_seq_slots(cache, c.seq, 0, 0, 1, NULL));
    assert_status(KVP_E_ARG, kvp_cache_match(cache, w.ns, &c.prompt, NULL));
    assert_status(KVP_E_ARG, kvp_cache_can_open(cache, w.ns, &c.prompt, NULL));
    c.batch.seqs = &c.seq;
    assert_status(KVP_E_ARG, kvp_cache_can_extend(cache, &c.batch, NULL));
}

static void expect_bad_prompt(struct call *c)
{
    kvp_open_info info;
    kvp_admission admission;
    kvp_seq seq;
    assert_unchanged(
        c->w, assert_status(KVP_E_ARG, kvp_seq_open(c->cache, c->ns, &c->prompt, &seq, NULL)));
    assert_status(KVP_E_ARG, kvp_cache_match(c->cache, c->ns, &c->prompt, &info));
    assert_status(KVP_E_ARG, kvp_cache_can_open(c->cache, c->ns, &c->prompt, &admission));
}

TEST(test_prompts_refuse_missing_pointers)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    const kvp_prompt good = c.prompt;
    kvp_seq seq;
    kvp_open_info info;
    kvp_admission admission;
    c.prompt.struct_size--;
    expect_bad_prompt(&c);
    c.prompt = good;
    c.prompt.tokens = NULL;
    expect_bad_prompt(&c);
    c.prompt = good;
    c.prompt.n_keys = 1;
    expect_bad_prompt(&c);
    c.prompt = good;
    c.prompt.n_uncached = 1;
    expect_bad_prompt(&c);
    assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, NULL, &seq, NULL));
    assert_status(KVP_E_ARG, kvp_seq_open(w.cache, w.ns, &good, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_cache_match(w.cache, w.ns, NULL, &info));
    assert_status(KVP_E_ARG, kvp_cache_can_open(w.cache, w.ns, NULL, &admission));
}

static void expect_bad_batch(struct call *c, kvp_batch batch)
{
    kvp_admission admission;
    assert_unchanged(c->w, assert_status(KVP_E_ARG, kvp_seq_extend_many(c->cache, &batch)));
    assert_unchanged(c->w, assert_status(KVP_E_ARG, kvp_seq_fill_many(c->cache, &batch)));
    assert_status(KVP_E_ARG, kvp_cache_can_extend(c->cache, &batch, &admission));
}

TEST(test_batches_refuse_missing_pointers)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    kvp_admission admission;
    c.batch.seqs = &c.seq;
    kvp_batch batch = c.batch;
    batch.struct_size++;
    expect_bad_batch(&c, batch);
    batch = c.batch;
    batch.seqs = NULL;
    expect_bad_batch(&c, batch);
    batch = c.batch;
    batch.n_keys = 1;
    expect_bad_batch(&c, batch);
    batch = c.batch;
    batch.flags = KVP_BATCH_EACH;
    batch.statuses = NULL;
    expect_bad_batch(&c, batch);
    batch.n_seqs = 0; /* none is needed then */
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_status(KVP_E_ARG, kvp_seq_extend_many(w.cache, NULL));
    assert_status(KVP_E_ARG, kvp_seq_fill_many(w.cache, NULL));
    assert_status(KVP_E_ARG, kvp_cache_can_extend(w.cache, NULL, &admission));
}

TEST(test_arrays_of_one_entry_may_not_be_missing)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    kvp_cache *cache = w.cache;
    kvp_hash hash = {{0}};
    kvp_admission admission;
    kvp_swapped swapped;
    uint32_t n = 0;
    uint64_t step;
    observed before = observe(&w);
    const kvp_hash_input no_tokens = {.unit_tokens = 1, .n_tokens = 1};
    const kvp_hash_input no_keys = {
        .unit_tokens = 1, .tokens = ints(0), .n_tokens = 1, .n_keys = 1};
    const kvp_hash_input no_output = {.unit_tokens = 1, .tokens = ints(0), .n_tokens = 1};
    assert_status(KVP_E_ARG, kvp_events_read(cache, 0, NULL, 1, NULL, &n));
    assert_status(KVP_E_ARG, kvp_events_snapshot(cache, NULL, 1, NULL, &n, &step));
    assert_status(KVP_E_ARG, kvp_meta_states(cache, NULL, 1, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_cache_seqs(cache, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_cache_drop(cache, KVP_DEVICE, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_cache_lend(cache, NULL, 1));
    assert_status(KVP_E_ARG, kvp_cache_give_back(cache, NULL, 1));
    assert_status(KVP_E_ARG, kvp_seq_swap_out(cache, NULL, 1, &swapped));
    assert_status(KVP_E_ARG, kvp_seq_swap_in(cache, NULL, 1, 0, &swapped));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_out(cache, NULL, 1, &admission));
    assert_status(KVP_E_ARG, kvp_cache_can_swap_in(cache, NULL, 1, 0, &admission));
    assert_status(KVP_E_ARG, kvp_state_swap_need(cache, NULL, 1, 0, &n));
    assert_status(KVP_E_ARG, kvp_step_begin(cache, NULL, 1, &n, &step));
    assert_status(KVP_E_ARG, kvp_seq_invalidate(cache, c.seq, 8, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_hash_root(1, 0, NULL, 1, &hash));
    assert_status(KVP_E_ARG, kvp_hash_units(&no_tokens, &hash, &hash));
    assert_status(KVP_E_ARG, kvp_hash_units(&no_keys, &hash, &hash));
    assert_status(KVP_E_ARG, kvp_hash_units(&no_output, &hash, NULL));
    assert_observed(&w, &before, __FILE__, __LINE__);
}

TEST(test_other_calls_refuse_missing_pointers)
{
    scoped_world w = small_world(15);
    struct call c = call_on(&w);
    kvp_cache *cache = w.cache;
    kvp_seq seqs[1];
    uint32_t n = 1;
    kvp_ns ns;
    const kvp_sink no_write = {NULL, NULL};
    observed before = observe(&w);
    assert_status(KVP_E_ARG, kvp_ns_open(cache, NULL, 1, &ns));
    assert_status(KVP_E_ARG, kvp_ns_open(cache, "", 0, NULL));
    assert_status(KVP_E_ARG, kvp_seq_fill(cache, c.seq, NULL, 1));
    assert_status(KVP_E_ARG, kvp_seq_commit_many(cache, NULL, &n, 1));
    assert_status(KVP_E_ARG, kvp_seq_commit_many(cache, &c.seq, NULL, 1));
    assert_status(KVP_E_ARG, kvp_seq_invalidate(cache, c.seq, 0, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_seq_invalidate(cache, c.seq, 0, seqs, 1, NULL));
    assert_status(KVP_E_ARG, kvp_seq_fork(cache, c.seq, 0, 0, NULL));
    assert_status(KVP_E_ARG, kvp_plan_take(cache, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_plan_take(cache, NULL, 0, NULL));
    assert_status(KVP_E_ARG, kvp_cache_record_start(cache, NULL));
    assert_status(KVP_E_ARG, kvp_cache_record_start(cache, &no_write));
    const int32_t leaf = -1;
    kvp_accept accept = {.struct_size = sizeof(accept), .n_seqs = 1, .leaves = &leaf};
    assert_status(KVP_E_ARG, kvp_seq_accept(cache, NULL));
    assert_status(KVP_E_ARG, kvp_seq_accept(cache, &accept));
    accept.seqs = &c.seq;
    accept.leaves = NULL;
    assert_status(KVP_E_ARG, kvp_seq_accept(cache, &accept));
    assert_int_equal(kvp_handle_flip(NULL, 5), 5);
    assert_observed(&w, &before, __FILE__, __LINE__);
}

TEST_MAIN(NULL, NULL)

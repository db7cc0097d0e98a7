/* Events: what is told of what is stored where, and what is not; numbers, the ring, snapshots. */
#include "events_world.h"

/* ---------------------------------------------------------------------------- one after another */

static void read_one(const world *w, uint64_t *from, kvp_event *out, int32_t tokens[4])
{
    uint32_t n = 77;
    assert_ok(kvp_events_read(w->cache, *from, out, 1, tokens, &n));
    assert_int_equal(n, 1);
    assert_int_equal(out->number, *from);
    (*from)++;
}

static void expect_none(const world *w, uint64_t from)
{
    kvp_event event;
    uint32_t n = 77;
    assert_ok(kvp_events_read(w->cache, from, &event, 1, NULL, &n));
    if (n != 0)
        print_error("kind %u, tier %u\n", (unsigned)event.kind, (unsigned)event.tier);
    assert_int_equal(n, 0);
}

/* Unit i (from 0) of the chain, whose tokens are those from `first` on. */
static void expect_stored(const world *w, uint64_t *from, uint32_t tier, const kvp_hash *chain,
                          uint32_t i)
{
    kvp_event event;
    int32_t tokens[4];
    read_one(w, from, &event, tokens);
    assert_fields(event, kind, KVP_EVENT_STORED, tier, tier);
    assert_memory_equal(&event.hash, &chain[i + 1], sizeof(kvp_hash));
    assert_memory_equal(&event.parent, &chain[i], sizeof(kvp_hash));
    assert_fields(event, position, 4 * i, n_tokens, 4);
    for (uint32_t k = 1; k < 4; k++)
        assert_int_equal(tokens[k], tokens[0] + (int32_t)k);
    assert_int_equal(tokens[0] % 100, 4 * i); /* chains here begin at hundreds */
}

static void expect_other(const world *w, uint64_t *from, uint32_t kind, uint32_t tier,
                         const kvp_hash *hash)
{
    kvp_event event;
    int32_t tokens[4];
    read_one(w, from, &event, tokens);
    assert_fields(event, kind, kind, tier, tier);
    assert_memory_equal(&event.hash, hash, sizeof(*hash));
    assert_memory_equal(&event.parent, &no_hash, sizeof(no_hash));
    assert_fields(event, position, 0, n_tokens, 0);
}

static void expect_removed(const world *w, uint64_t *from, uint32_t tier, const kvp_hash *hash)
{
    expect_other(w, from, KVP_EVENT_REMOVED, tier, hash);
}

static void expect_cleared(const world *w, uint64_t *from, const kvp_hash *hash)
{
    expect_other(w, from, KVP_EVENT_CLEARED, 0, hash);
}

/* Read all that is new, whatever it is. */
static uint64_t skip_all(const world *w, uint64_t from)
{
    kvp_event events[64];
    uint32_t n;
    assert_ok(kvp_events_read(w->cache, from, events, 64, NULL, &n));
    assert_true(n < 64);
    return from + n;
}

/* --------------------------------------------------------------------------- stored and removed */

TEST(test_a_unit_is_stored_when_it_is_sealed)
{
    scoped_world w = events_world(15, 0);
    kvp_hash chain[4];
    uint64_t from = 1;
    chain_of("", 100, 3, chain);
    const kvp_seq seq = open_seq(&w, ints(100), 10, NULL);
    expect_none(&w, from); /* nothing can be found yet */
    assert_ok(kvp_seq_commit(w.cache, seq, 9));
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 1);
    expect_none(&w, from);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(110), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    expect_stored(&w, &from, KVP_DEVICE, chain, 2);
    expect_none(&w, from);
}

TEST(test_who_shares_what_is_there_tells_nothing)
{
    scoped_world w = events_world(15, 0);
    kvp_prompt prompt = prompt_of(ints(0), 8);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const uint64_t from = skip_all(&w, 1);
    (void)fork_seq(&w, seq, 6);
    (void)open_seq(&w, ints(0), 8, NULL);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq other = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, other, 8)); /* adopts */
    close_seq(&w, other);
    close_seq(&w, seq);
    expect_none(&w, from);
}

TEST(test_a_unit_is_removed_when_it_is_evicted)
{
    scoped_world w = events_world(2, 0);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    leave_cached(&w, ints(0), 8);
    uint64_t from = skip_all(&w, 1);
    (void)open_seq(&w, ints(100), 8, NULL);
    expect_removed(&w, &from, KVP_DEVICE, &chain[2]); /* tails first */
    expect_removed(&w, &from, KVP_DEVICE, &chain[1]);
    expect_none(&w, from);
}

TEST(test_each_tier_has_its_events)
{
    scoped_world w = events_world(15, 15);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    uint64_t from = skip_all(&w, 1);
    swap_out(&w, &seq, 1);
    expect_stored(&w, &from, KVP_HOST, chain, 0);
    expect_stored(&w, &from, KVP_HOST, chain, 1);
    wipe_device(&w);
    expect_removed(&w, &from, KVP_DEVICE, &chain[2]);
    expect_removed(&w, &from, KVP_DEVICE, &chain[1]);
    swap_in(&w, &seq, 1, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 1);
    swap_out(&w, &seq, 1);
    close_seq(&w, seq);
    expect_none(&w, from);
}

TEST(test_a_duplicate_that_takes_the_place_is_not_told)
{
    kvp_config config = events_config(2, 0);
    config.commit_policy = KVP_KEEP;
    scoped_world w = make_world(&config);
    kvp_hash chain[2];
    kvp_prompt prompt = prompt_of(ints(0), 4);
    chain_of("", 0, 1, chain);
    const kvp_seq first = open_done(&w, ints(0), 4);
    uint64_t from = skip_all(&w, 1);
    prompt.flags = KVP_OPEN_NO_MATCH;
    const kvp_seq second = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, second, 4));
    close_seq(&w, first);
    close_seq(&w, open_seq(&w, ints(100), 4, NULL)); /* evicts the first block */
    expect_none(&w, from);
    close_seq(&w, second);
    wipe_device(&w);
    expect_removed(&w, &from, KVP_DEVICE, &chain[1]);
    expect_none(&w, from);
}

TEST(test_what_is_written_over_is_removed)
{
    scoped_world w = events_world(15, 0);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    expect_none(&w, from); /* there is it still */
    assert_ok(kvp_seq_extend(w.cache, seq, ints(60), 1, 0));
    expect_removed(&w, &from, KVP_DEVICE, &chain[2]);
    expect_none(&w, from);
}

/* Somebody else's units behind a withdrawn one stay in the set, and their hashes are those of the
 * units that are computed anew: one element, until the last of both goes. */
TEST(test_equal_hashes_are_one_element)
{
    scoped_world w = events_world(7, 0);
    kvp_hash chain[4];
    chain_of("", 0, 3, chain);
    const kvp_seq seq = open_done(&w, ints(0), 4); /* 1 */
    leave_cached(&w, ints(0), 12);                 /* 2 and 3 go on from there */
    uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    expect_removed(&w, &from, KVP_DEVICE, &chain[1]);
    expect_none(&w, from);
    const kvp_seq anew = open_done(&w, ints(0), 12); /* 4 5 6 */
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_none(&w, from);
    close_seq(&w, evict_first(&w)); /* 7 and 3 */
    assert_int_equal(block_of(&w, 3).sealed_units, 0);
    expect_none(&w, from);
    close_seq(&w, anew);
    close_seq(&w, seq);
    assert_queue(&w, 0, 1, 7, 3, 2, 6, 5, 4);
    close_seq(&w, evict_first(&w)); /* 2: 5 has its hash */
    expect_none(&w, from);
    close_seq(&w, evict_first(&w)); /* 6: the last of its hash */
    expect_removed(&w, &from, KVP_DEVICE, &chain[3]);
    expect_none(&w, from);
}

TEST(test_with_overlapped_steps_it_is_told_when_the_step_takes_effect)
{
    kvp_config config = events_config(15, 15);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    kvp_hash chain[3];
    uint64_t from = 1;
    chain_of("", 0, 2, chain);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    commit_at(&w, begin_step(&w), seq, 8);
    expect_none(&w, from);
    (void)done_step(&w, 1);
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 1);
    swap_out(&w, &seq, 1);
    (void)begin_step(&w);
    expect_none(&w, from);
    (void)done_step(&w, 2);
    expect_stored(&w, &from, KVP_HOST, chain, 0);
    expect_stored(&w, &from, KVP_HOST, chain, 1);
    expect_none(&w, from);
}

TEST(test_a_failed_step_tells_nothing)
{
    kvp_config config = events_config(15, 15);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const uint64_t from = skip_all(&w, 1);
    swap_out(&w, &seq, 1);
    assert_ok(kvp_step_failed(w.cache, begin_step(&w), NULL, 0, NULL));
    close_seq(&w, seq);
    expect_none(&w, from);
}

/* -------------------------------------------------------------------------------------- cleared */

TEST(test_a_flush_clears_and_what_goes_later_is_silent)
{
    scoped_world w = events_world(2, 2);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    leave_cached(&w, ints(0), 8);
    uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    expect_cleared(&w, &from, &chain[0]);
    wipe_device(&w); /* and nothing is kept */
    expect_none(&w, from);
    leave_cached(&w, ints(0), 8); /* the same hashes, under the new root */
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 1);
    expect_none(&w, from);
}

TEST(test_a_flush_of_nothing_clears_nothing)
{
    scoped_world w = events_world(2, 0);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    expect_none(&w, 1);
}

TEST(test_a_flush_without_a_new_root_clears_as_well)
{
    kvp_config config = events_config(4, 0);
    config.n_nodes = 5;
    scoped_world w = make_world(&config);
    kvp_hash chain[2];
    chain_of("", 0, 1, chain);
    leave_cached(&w, ints(0), 16);
    uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    expect_cleared(&w, &from, &chain[0]);
    wipe_device(&w);
    expect_none(&w, from);
    leave_cached(&w, ints(0), 4);
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
}

TEST(test_the_same_hashes_are_stored_anew_though_flushed_ones_wait)
{
    scoped_world w = events_world(4, 0);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    leave_cached(&w, ints(0), 8);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    uint64_t from = skip_all(&w, 1);
    leave_cached(&w, ints(0), 8); /* 3 4, beside 1 2 of the old root */
    expect_stored(&w, &from, KVP_DEVICE, chain, 0);
    expect_stored(&w, &from, KVP_DEVICE, chain, 1);
    (void)open_seq(&w, ints(100), 8, NULL); /* takes 2 1 */
    expect_none(&w, from);
}

TEST(test_what_is_sealed_after_a_flush_cannot_be_found_and_is_not_told)
{
    scoped_world w = events_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    const uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(4), 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    close_seq(&w, seq);
    expect_none(&w, from);
}

TEST(test_each_namespace_is_cleared_by_its_root)
{
    scoped_world w = events_world(15, 0);
    const kvp_prompt prompt = prompt_of(ints(0), 4);
    kvp_hash mine[2], other[2];
    kvp_ns ns;
    kvp_seq seq;
    uint64_t from = 1;
    chain_of("", 0, 1, mine);
    chain_of("other", 0, 1, other);
    leave_cached(&w, ints(0), 4);
    assert_ok(kvp_ns_open(w.cache, "other", 5, &ns));
    assert_ok(kvp_ns_open(w.cache, "other", 5, &ns)); /* twice */
    assert_ok(kvp_seq_open(w.cache, ns, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    expect_stored(&w, &from, KVP_DEVICE, mine, 0);
    expect_stored(&w, &from, KVP_DEVICE, other, 0);
    assert_ok(kvp_ns_close(w.cache, ns));
    expect_none(&w, from); /* it has an opener still */
    assert_ok(kvp_ns_close(w.cache, ns));
    expect_cleared(&w, &from, &other[0]);
    expect_none(&w, from);
}

TEST(test_reset_clears_everything)
{
    scoped_world w = events_world(7, 7);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    kvp_hash chain[3];
    chain_of("", 0, 2, chain);
    swap_out(&w, &seq, 1);
    uint64_t from = skip_all(&w, 1);
    assert_ok(kvp_cache_reset(w.cache));
    expect_cleared(&w, &from, &no_hash);
    expect_none(&w, from);
    leave_cached(&w, ints(0), 4);
    expect_stored(&w, &from, KVP_DEVICE, chain, 0); /* numbers go on */
}

/* ---------------------------------------------------------------------------- reading, the ring */

TEST(test_only_the_newest_events_are_remembered)
{
    kvp_config config = events_config(15, 0);
    config.max_events = 4;
    scoped_world w = make_world(&config);
    kvp_event events[8];
    uint32_t n = 77;
    leave_cached(&w, ints(0), 40); /* 1 to 10 */
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, 1, events, 8, NULL, &n));
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, 6, events, 8, NULL, &n));
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, 6, events, 0, NULL, &n));
    assert_int_equal(n, 77);
    assert_ok(kvp_events_read(w.cache, 7, events, 8, NULL, &n));
    assert_int_equal(n, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_fields(events[i], number, 7 + i, position, 4 * (6 + i));
    assert_ok(kvp_events_read(w.cache, 11, events, 8, NULL, &n));
    assert_int_equal(n, 0);
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, 12, events, 8, NULL, &n));
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, 0, events, 8, NULL, &n));
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, UINT64_MAX, events, 8, NULL, &n));
    assert_int_equal(n, 0);
}

TEST(test_reading_takes_nothing_away)
{
    scoped_world w = events_world(15, 0);
    kvp_event events[8], again[8];
    int32_t tokens[32];
    uint32_t n;
    leave_cached(&w, ints(0), 32);
    assert_unchanged(&w, assert_ok(kvp_events_read(w.cache, 1, events, 8, tokens, &n)));
    assert_int_equal(n, 8);
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    assert_ok(kvp_events_read(w.cache, 1, again, 8, NULL, &n));
    assert_memory_equal(events, again, sizeof(events));
    assert_ok(kvp_events_read(w.cache, 3, again, 2, tokens, &n)); /* as many as there is room for */
    assert_int_equal(n, 2);
    assert_memory_equal(&events[2], again, 2 * sizeof(*again));
    assert_memory_equal(tokens, ints(8), 8 * sizeof(int32_t));
    assert_memory_equal(tokens + 8, ints(8), 8 * sizeof(int32_t)); /* no more was written */
    assert_ok(kvp_events_read(w.cache, 1, NULL, 0, NULL, &n));
    assert_int_equal(n, 0);
}

TEST(test_tokens_stand_at_their_events_place)
{
    scoped_world w = events_world(2, 0);
    kvp_event events[8];
    int32_t tokens[32];
    uint32_t n;
    memset(tokens, 0x55, sizeof(tokens));
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 8); /* STORED of the first, REMOVED, two STORED */
    assert_ok(kvp_events_read(w.cache, 1, events, 8, tokens, &n));
    assert_int_equal(n, 4);
    assert_int_equal(events[1].kind, KVP_EVENT_REMOVED);
    assert_memory_equal(tokens, ints(0), 4 * sizeof(int32_t));
    assert_memory_equal(tokens + 8, ints(100), 8 * sizeof(int32_t));
}

TEST(test_without_events_there_is_nothing_to_read)
{
    scoped_world w = small_world(7);
    kvp_event event;
    uint32_t n = 77;
    uint64_t number = 77;
    leave_cached(&w, ints(0), 4);
    assert_status(KVP_E_STATE, kvp_events_read(w.cache, 1, &event, 1, NULL, &n));
    assert_status(KVP_E_STATE, kvp_events_snapshot(w.cache, &event, 1, NULL, &n, &number));
    assert_int_equal(n, 77);
    assert_int_equal(number, 77);
}

TEST(test_a_snapshot_lists_the_set_from_the_root_on)
{
    scoped_world w = events_world(15, 15);
    kvp_event events[6];
    int32_t tokens[24];
    kvp_hash chain[4];
    uint32_t n = 77;
    uint64_t number = 77;
    chain_of("", 0, 3, chain);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    swap_out(&w, &seq, 1);
    const uint64_t next = skip_all(&w, 1);
    assert_unchanged(&w, assert_ok(kvp_events_snapshot(w.cache, events, 6, tokens, &n, &number)));
    assert_int_equal(n, 6);
    assert_int_equal(number, next - 1);
    uint32_t seen[3] = {0, 0, 0};
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t unit = events[i].position / 4;
        assert_fields(events[i], kind, KVP_EVENT_STORED, number, number);
        assert_memory_equal(&events[i].hash, &chain[unit + 1], sizeof(kvp_hash));
        assert_memory_equal(&events[i].parent, &chain[unit], sizeof(kvp_hash));
        assert_int_equal(events[i].n_tokens, 4);
        assert_memory_equal(tokens + (size_t)4 * i, ints(4 * (int32_t)unit), 16);
        assert_true(unit == 0 || seen[unit - 1] > 0); /* ancestors before descendants */
        seen[unit] |= 1u << events[i].tier;
    }
    assert_true(seen[0] == 3 && seen[1] == 3 && seen[2] == 3);
}

TEST(test_a_snapshot_asks_for_room)
{
    scoped_world w = events_world(15, 0);
    kvp_event events[2] = {{.number = 77}, {.number = 77}};
    uint32_t n = 77;
    uint64_t number = 77;
    assert_ok(kvp_events_snapshot(w.cache, NULL, 0, NULL, &n, &number)); /* empty */
    assert_int_equal(n, 0);
    assert_int_equal(number, 0);
    leave_cached(&w, ints(0), 12);
    assert_unchanged(&w, assert_ok(kvp_events_snapshot(w.cache, NULL, 0, NULL, &n, &number)));
    assert_int_equal(n, 3);
    assert_int_equal(number, 3);
    n = 77;
    assert_status(KVP_E_TOO_SMALL, kvp_events_snapshot(w.cache, events, 2, NULL, &n, &number));
    assert_int_equal(n, 3);
    assert_int_equal(events[0].number, 77);
}

TEST_MAIN(NULL, NULL)

/* Caches that have run for long: scenes of overlapped steps, of handles and of events with numbers
 * that are about to leave 31, 32 and 63 bits. A scene goes as it goes in a fresh cache. */
#include "start.h"
#include "tiers.h"

/* A scene is played with the counters at each of these, and at the numbers next to them. */
static const uint64_t corners[] = {0x7FFFFFFF, 0x80000005, 0xFFFFFFFF, (uint64_t)1 << 63};

enum { N_CORNERS = sizeof(corners) / sizeof(*corners), NEAR = 3 };

static void play(void (*scene)(uint64_t start), uint64_t start)
{
    assert_true(start_at(start));
    scene(start);
}

static void at_corners(void (*scene)(uint64_t start))
{
    play(scene, 0);
    play(scene, 5);
    for (size_t i = 0; i < N_CORNERS; i++)
        for (uint64_t start = corners[i] - NEAR; start <= corners[i] + NEAR; start++)
            play(scene, start);
}

static uint32_t need_of_one(world *w, kvp_seq seq)
{
    static const uint32_t one = 1;
    return can_extend(w, &seq, &one, 1).need_blocks;
}

/* A block that nobody has left is written in place, whatever is out. */
static void play_untouched(uint64_t start)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(6), 1, 0));
    close_seq(&w, fork_seq(&w, seq, 6)); /* its block is looked at before it is written to */
    assert_int_equal(begin_step(&w), start + 1);
    assert_int_equal(need_of_one(&w, seq), 0);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(7), 1, 0));
    assert_row(&w, seq, 1, 2);
    assert_empty_step(&w, start + 2);
}

TEST(test_a_block_that_was_never_left_is_not_touched)
{
    at_corners(play_untouched);
}

/* The writer is cut, and leaves, while its step is out: who stays gets a copy until it is done. One
 * of the step before has left the block, too. */
static void play_cut_writer(uint64_t start)
{
    for (int waits = 0; waits < 2; waits++) {
        scoped_world w = steps_world(15, 0);
        const kvp_seq first = open_done(&w, ints(0), 6);
        assert_ok(kvp_seq_extend(w.cache, first, ints(6), 1, 0));
        (void)begin_step(&w); /* writes slot 10 */
        const kvp_seq writer = fork_seq(&w, first, 6);
        close_seq(&w, first);
        (void)done_step(&w, start + 1);
        assert_ok(kvp_seq_extend(w.cache, writer, ints(6), 1, 0));
        const uint64_t step = begin_step(&w); /* writes it again */
        assert_ok(kvp_seq_truncate(w.cache, writer, 6, NULL));
        const kvp_seq heir = fork_seq(&w, writer, 6);
        close_seq(&w, writer);
        assert_int_equal(need_of_one(&w, heir), 1);
        if (waits) {
            (void)done_step(&w, step);
            assert_int_equal(need_of_one(&w, heir), 0);
        }
        assert_ok(kvp_seq_extend(w.cache, heir, ints(60), 1, 0));
        assert_int_equal(row_entry(&w, heir, 1), waits ? 2 : 3);
    }
}

TEST(test_a_block_that_a_cut_writer_left_is_copied_until_its_step_is_done)
{
    at_corners(play_cut_writer);
}

/* Numbers go on while the sequences stay: what steps left long ago is forgotten. */
static void play_many_steps(uint64_t start)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq writer = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_extend(w.cache, writer, ints(6), 1, 0));
    const uint64_t step = begin_step(&w);
    const kvp_seq heir = fork_seq(&w, writer, 6);
    close_seq(&w, writer);
    assert_int_equal(need_of_one(&w, heir), 1);
    assert_int_equal(done_step(&w, step), start + 1);
    for (int i = 0; i < 2 * NEAR + 2; i++) {
        const uint64_t next = begin_step(&w);
        assert_int_equal(need_of_one(&w, heir), 0);
        (void)done_step(&w, next);
    }
}

TEST(test_a_block_is_not_touched_by_steps_of_long_ago)
{
    at_corners(play_many_steps);
}

/* What a copy brings counts when its step takes effect, and is awaited until then. */
static void play_arrival(uint64_t start)
{
    scoped_world w = steps_world(15, 0);
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq b = fork_seq(&w, a, 6);
    assert_ok(kvp_seq_extend(w.cache, b, ints(6), 2, 0)); /* block 3 is a copy of block 2 */
    assert_step(&w, start + 1, {0, 0, KVP_DEVICE, KVP_DEVICE, 2, 3, 2});
    commit_at(&w, start + 1, b, 8);
    assert_ok(kvp_seq_commit(w.cache, b, 8));
    assert_int_equal(match(&w, ints(0), 12).cached_tokens, 4);
    assert_int_equal(done_step(&w, start + 1), start + 1);
    assert_int_equal(match(&w, ints(0), 12).cached_tokens, 8);
}

TEST(test_what_a_copy_brings_is_awaited_until_its_step_takes_effect)
{
    at_corners(play_arrival);
}

/* A sequence that reads what a copy brings loses it when the copy's step fails; one that took the
 * block anew does not. */
static void play_failure(uint64_t start)
{
    scoped_world w = steps_world(15, 15);
    kvp_seq cut[4];
    uint32_t n_cut;
    const kvp_seq a = open_done(&w, ints(0), 8);
    swap_out(&w, &a, 1);
    pass_step(&w);
    wipe_device(&w);
    pass_step(&w);
    swap_in(&w, &a, 1, 0);
    const uint64_t step = begin_step(&w);
    assert_int_equal(step, start + 3);
    assert_ok(kvp_step_failed(w.cache, step, cut, 4, &n_cut));
    assert_int_equal(n_cut, 1);
    assert_int_equal(info_of(&w, a).computed_tokens, 0);
}

TEST(test_a_failed_step_takes_back_what_its_copies_were_to_bring)
{
    at_corners(play_failure);
}

/* A tree that a step was given can be accepted when the step is done, not before. */
static void play_tree(uint64_t start)
{
    static const int32_t parents[] = {-1, 0};
    static const int32_t leaf = 1;
    kvp_config config = steps_config(4, 4, 15, 0);
    config.max_tree_tokens = 8;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    const uint32_t two = 2;
    kvp_batch batch = batch_of(&seq, &two, 1);
    batch.tokens = ints(50);
    kvp_accept accept = {.struct_size = sizeof(accept), .n_seqs = 1, .seqs = &seq, .leaves = &leaf};
    assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
    const uint64_t step = begin_step(&w);
    assert_int_equal(step, start + 1);
    assert_status(KVP_E_IN_FLIGHT, kvp_seq_accept(w.cache, &accept));
    (void)done_step(&w, step);
    (void)begin_step(&w); /* was not given the tree */
    assert_ok(kvp_seq_accept(w.cache, &accept));
    assert_int_equal(info_of(&w, seq).computed_tokens, 8);
}

TEST(test_a_tree_is_in_flight_until_its_step_is_done)
{
    at_corners(play_tree);
}

/* A tree goes with the step that was to compute it, and stays when a later one fails. */
static void play_failed_tree(uint64_t start)
{
    static const int32_t parents[] = {-1, 0};
    for (int later = 0; later < 2; later++) {
        kvp_config config = steps_config(4, 4, 15, 0);
        config.max_tree_tokens = 8;
        scoped_world w = make_world(&config);
        const kvp_seq seq = open_done(&w, ints(0), 6);
        const uint32_t two = 2;
        kvp_batch batch = batch_of(&seq, &two, 1);
        batch.tokens = ints(50);
        assert_ok(kvp_seq_extend_tree(w.cache, &batch, parents));
        const uint64_t step = begin_step(&w);
        const uint64_t next = begin_step(&w);
        assert_int_equal(next, start + 2);
        assert_ok(kvp_step_failed(w.cache, later ? next : step, NULL, 0, NULL));
        assert_int_equal(info_of(&w, seq).tree_tokens, later ? 2 : 0);
    }
}

TEST(test_a_tree_is_lost_with_its_step)
{
    at_corners(play_failed_tree);
}

/* Readers follow events over every corner, and are told when they are behind. */
static void play_events(uint64_t start)
{
    kvp_config config = tiers_config(4, 4, 15, 0);
    kvp_event events[8];
    uint32_t n;
    config.max_events = 8;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12);
    assert_ok(kvp_events_read(w.cache, start + 1, events, 8, NULL, &n));
    assert_int_equal(n, 3);
    for (uint32_t i = 0; i < n; i++)
        assert_fields(events[i], number, start + 1 + i, kind, KVP_EVENT_STORED, position, 4 * i);
    assert_ok(kvp_events_read(w.cache, start + 4, events, 8, NULL, &n));
    assert_int_equal(n, 0);
    assert_status(KVP_E_ARG, kvp_events_read(w.cache, start + 5, events, 8, NULL, &n));
    leave_cached(&w, ints(100), 28);
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, start + 2, events, 8, NULL, &n));
    assert_ok(kvp_events_read(w.cache, start + 3, events, 8, NULL, &n));
    assert_int_equal(n, 8);
    assert_int_equal(events[7].number, start + 10);
}

TEST(test_events_are_numbered_on)
{
    at_corners(play_events);
}

/* Handles of closed sequences and namespaces stay stale. */
static void play_handles(uint64_t start)
{
    (void)start; /* generations are near it */
    scoped_world w = steps_world(15, 0);
    kvp_seq old = open_seq(&w, ints(0), 4, NULL);
    kvp_ns old_ns;
    assert_ok(kvp_ns_open(w.cache, "a", 1, &old_ns));
    for (int i = 0; i < 2 * NEAR + 2; i++) {
        kvp_ns ns;
        close_seq(&w, old);
        assert_ok(kvp_ns_close(w.cache, old_ns));
        const kvp_seq seq = open_seq(&w, ints(0), 4, NULL);
        assert_ok(kvp_ns_open(w.cache, "a", 1, &ns));
        assert_status(KVP_E_HANDLE, kvp_seq_close(w.cache, old, NULL));
        assert_status(KVP_E_HANDLE, kvp_ns_close(w.cache, old_ns));
        old = seq;
        old_ns = ns;
    }
}

TEST(test_closed_handles_stay_stale)
{
    at_corners(play_handles);
}

int main(void)
{
    if (!start_at(1))
        return 0; /* a library without checks cannot */
    return run_all_tests(NULL, NULL);
}

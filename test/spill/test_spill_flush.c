/* Scenes of a spill's flush: it is late, it is stopped, and there is little room for writes. */
#include "scenes.h"

enum { LATE = 1000000000, CALLS = 400, RECORDS = 8 };

/* Two prompts of 40 tokens that share 16: eight records of which the engine has reported none. */
static void open_cached(world *w, world_options *options, world_line lines[2])
{
    open_world(w, options);
    for (int i = 0; i < 2; i++) {
        lines[i] = line_of(w, 40, 16, 100 * (i + 1));
        compute(w, &lines[i]);
    }
}

static uint32_t n_flushed; /* calls */
static uint32_t slowness;  /* calls for which the store does nothing, and then all */

static kvp_status call_flush(world *w, uint64_t deadline_ns)
{
    const kvp_status status = flush_once(w, deadline_ns, n_flushed++ % (slowness + 1) == slowness);
    if (status == KVP_OK) /* what is synced was written before */
        assert_int_equal(world_stats(w).puts, 0);
    return status;
}

static kvp_status flush_until(world *w, uint64_t deadline_ns)
{
    kvp_status status = KVP_E_AGAIN;
    for (int i = 0; i < CALLS && status == KVP_E_AGAIN; i++)
        status = call_flush(w, deadline_ns);
    return status;
}

static void expect_all_is_stored(world *w, const world_line lines[2])
{
    assert_int_equal(world_stats(w).written, RECORDS);
    forget_cache(w);
    for (int i = 0; i < 2; i++)
        assert_int_equal(world_ask(w, &lines[i], 1 + (uint64_t)i).hit_tokens, 40);
}

/* Nothing more is begun, what is told is not all, and the next flush writes the rest. */
static void be_late_after_each_call(uint32_t max_ops)
{
    uint32_t n_late = 0, n_part = 0;
    kvp_status status = KVP_E_STATE;
    for (uint32_t n_calls = 0; status == KVP_E_STATE; n_calls++) {
        world_line lines[2];
        scoped_world w;
        assert_true(n_calls < CALLS);
        world_options options = world_defaults();
        options.max_ops = max_ops;
        open_cached(&w, &options, lines);
        n_flushed = 0;
        status = KVP_E_AGAIN;
        for (uint32_t i = 0; i < n_calls && status == KVP_E_AGAIN; i++)
            status = call_flush(&w, w.now + LATE);
        if (status == KVP_E_AGAIN) {
            const kvp_spill_stats before = world_stats(&w);
            status = flush_until(&w, w.now);
            const kvp_spill_stats after = world_stats(&w);
            assert_int_equal(after.offered, before.offered);
            assert_in_range(after.written, before.written, before.written + max_ops);
            assert_int_equal(after.taken_back, 0);
            n_late += status == KVP_E_STATE;
            n_part += after.written > 0 && after.written < RECORDS;
            if (status == KVP_OK) /* nothing was left to begin */
                assert_int_equal(after.written, RECORDS);
            assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        }
        expect_all_is_stored(&w, lines);
    }
    assert_int_equal(status, KVP_OK);
    assert_true(n_late >= 5 && n_part >= 2);
}

TEST(the_time_is_over_after_each_call)
{
    slowness = 0;
    be_late_after_each_call(1);
    slowness = 5;
    be_late_after_each_call(1);
    be_late_after_each_call(3);
    slowness = 0;
}

/* What is stopped is over: the next one begins with what is cached then. */
TEST(a_flush_that_is_stopped)
{
    for (uint32_t n_calls = 0; n_calls < 12; n_calls++) {
        world_line lines[2];
        scoped_world w;
        world_options options = world_defaults();
        open_cached(&w, &options, lines);
        kvp_status status = KVP_E_AGAIN;
        for (uint32_t i = 0; i < n_calls && status == KVP_E_AGAIN; i++)
            status = call_flush(&w, w.now + LATE);
        world_stop(&w);
        const world_line late = line_of(&w, 40, 16, 300);
        compute(&w, &late);
        assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        assert_int_equal(world_stats(&w).written, RECORDS + 3);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &late, 9).hit_tokens, 40);
    }
}

/* What has no place now is offered again, and is not counted as left out. */
TEST(there_is_room_for_one_write)
{
    for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
        world_line lines[2];
        scoped_world w;
        world_options options = world_defaults();
        if (by_bytes)
            options.more.put_bytes = 64; /* a record */
        else
            options.more.max_puts = 1;
        open_cached(&w, &options, lines);
        const kvp_spill_stats before = world_stats(&w);
        slowness = 5;
        assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        slowness = 0;
        const kvp_spill_stats after = world_stats(&w);
        assert_fields(after, no_place, before.no_place, over_budget, before.over_budget);
        assert_int_equal(after.offered - after.no_place - after.over_budget, after.written);
        expect_all_is_stored(&w, lines);
    }
}

/* What is being written when the time is over is written, and the rest of all namespaces is not. */
TEST(late_writes_are_kept)
{
    scoped_world w;
    world_options options = world_defaults();
    options.max_ops = 1;
    open_world(&w, &options);
    for (uint32_t space = 0; space < WORLD_SPACES; space++) {
        world_line line = line_of(&w, 40, 0, 100);
        line.space = space;
        world_truth(&w, &line);
        compute(&w, &line);
    }
    for (int i = 0; i < CALLS && world_stats(&w).puts < 10; i++)
        assert_int_equal(flush_once(&w, w.now + LATE, 0), KVP_E_AGAIN);
    assert_int_equal(world_stats(&w).puts, 10);
    assert_int_equal(flush_once(&w, w.now, 0), KVP_E_AGAIN);
    assert_fields(world_stats(&w), puts, 1, lost, 9);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 1, taken_back, 0);
}

/* The host has room for some: for what would be evicted last. */
TEST(what_is_hottest_is_written)
{
    enum { USABLE = 29, SPARE = 4, LINES = 4, S = 4 };
    kvp_stats stats;
    world_line lines[LINES + 1];
    scoped_world w;
    world_options options = world_defaults();
    options.record_blocks = 4;
    options.n_blocks = 100;
    options.host_blocks = USABLE + 1;
    options.more.spare_blocks = SPARE;
    open_world(&w, &options);
    for (int i = 0; i <= LINES; i++) {
        lines[i] = line_of(&w, 64, 0, 100 * (i + 1));
        compute(&w, &lines[i]);
        if (i < LINES - 1)
            continue;
        assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        /* The last line, and nine blocks of the one before; then the next line. */
        assert_int_equal(world_stats(&w).written, i == LINES - 1 ? 4 + 2 : 4 + 2 + 4);
        assert_int_equal(kvp_cache_stats_get(w.cache, &stats), KVP_OK);
        assert_fields(stats, mirrored_blocks, USABLE - SPARE + (i == LINES ? 16 : 0));
    }
    forget_cache(&w);
    const uint32_t hits[LINES + 1] = {0, 0, 32, 48, 48}; /* half of the host is lent at once */
    for (int i = 0; i <= LINES; i++)
        assert_int_equal(world_ask(&w, &lines[i], (uint64_t)i).hit_tokens, hits[i]);
}

/* The namespace is flushed after the first blocks were mirrored: the others are left out. */
TEST(what_goes_meanwhile_is_left_out)
{
    enum { FIRST = 64 }; /* blocks of a call */
    kvp_stats stats;
    scoped_world w;
    world_options options = world_defaults();
    options.n_blocks = options.host_blocks = 200;
    open_world(&w, &options);
    const world_line line = line_of(&w, 400, 0, 100);
    compute(&w, &line);
    assert_int_equal(call_flush(&w, w.now + LATE), KVP_E_AGAIN);
    world_flush(&w, 0);
    n_flushed = 0;
    assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
    assert_true(n_flushed < 10);
    assert_int_equal(kvp_cache_stats_get(w.cache, &stats), KVP_OK);
    assert_int_equal(stats.mirrored_blocks, FIRST);
    assert_int_equal(world_stats(&w).offered, 0);
}

/* What the host has already is written, too. */
TEST(what_only_the_host_has_is_written)
{
    enum { LINES = 6 };
    world_line lines[LINES];
    scoped_world w;
    world_options options = world_defaults();
    options.n_blocks = 20; /* of one line */
    options.host_blocks = 150;
    open_world(&w, &options);
    for (int i = 0; i < LINES; i++) {
        lines[i] = line_of(&w, 64, 0, 100 * (i + 1));
        compute(&w, &lines[i]);
    }
    assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
    assert_int_equal(world_stats(&w).written, LINES * 8);
    forget_cache(&w);
    for (int i = 0; i < LINES; i++) {
        assert_int_equal(world_ask(&w, &lines[i], (uint64_t)i).hit_tokens, 64);
        assert_int_equal(compute(&w, &lines[i]).hit_tokens, 64);
    }
}

/* Of a prefix that ends inside a record, the key in the rest is left out. */
TEST(a_key_behind_the_last_record)
{
    for (uint32_t begin = 4; begin <= 11; begin++) {
        scoped_world w;
        world_options options = world_defaults();
        open_world(&w, &options);
        world_line line = line_of(&w, 12, 0, 100);
        const world_line other = line_of(&w, 12, 0, 200);
        line.keys[line.n_keys++] =
            (kvp_key){.type = 1, .begin = begin, .end = begin + 1, .bytes = "cat", .n_bytes = 3};
        world_truth(&w, &line);
        compute(&w, &line);
        compute(&w, &other); /* and the next prefix has none */
        assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        assert_int_equal(world_stats(&w).written, 2);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 8);
        assert_int_equal(world_ask(&w, &other, 2).hit_tokens, 8);
        assert_int_equal(compute(&w, &line).hit_tokens, 8);
    }
}

/* The same when only the block behind the record is offered: those of the record are held. */
TEST(a_key_of_the_block_behind)
{
    for (uint32_t begin = 7; begin <= 11; begin++) {
        kvp_cold_cursor cursor = {0};
        kvp_cold cold[4];
        int32_t blocks[4], host[4];
        uint32_t n = 0;
        scoped_world w;
        world_options options = world_defaults();
        open_world(&w, &options);
        world_line line = line_of(&w, 12, 0, 100);
        line.keys[line.n_keys++] =
            (kvp_key){.type = 1, .begin = begin, .end = begin + 1, .bytes = "cat", .n_bytes = 3};
        world_truth(&w, &line);
        compute(&w, &line);
        assert_int_equal(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 4, &n), KVP_OK);
        assert_int_equal(n, 3);
        for (uint32_t i = 0; i < n; i++)
            blocks[i] = cold[i].block;
        assert_int_equal(kvp_cache_mirror(w.cache, blocks, n, 0, host, NULL), KVP_OK);
        world_settle(&w);
        assert_int_equal(kvp_cache_lend(w.cache, host + 1, 2), KVP_OK);
        assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
        assert_int_equal(world_stats(&w).written, 1);
        assert_int_equal(kvp_cache_give_back(w.cache, host + 1, 2), KVP_OK);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 8);
    }
}

/* What the engine gives is offered when it is reported: a flush waits for it, and syncs. */
TEST(what_was_given_is_synced)
{
    scoped_world w;
    world_options options = world_defaults();
    options.moves = 1;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    for (int is_late = 1; is_late >= 0; is_late--) {
        compute(&w, &line);
        assert_int_equal(world_stats(&w).puts, 8);
        slowness = 2;
        assert_int_equal(flush_until(&w, is_late ? w.now : w.now + LATE),
                         is_late ? KVP_E_STATE : KVP_OK);
        slowness = 0;
        assert_int_equal(world_stats(&w).written, is_late ? 0 : 8);
    }
}

/* The engine goes on meanwhile: when one step is done, the next one is out. */
TEST(a_step_is_always_out)
{
    world_line lines[2];
    scoped_world w;
    world_options options = world_defaults();
    options.overlapped = 1;
    open_cached(&w, &options, lines);
    w.keep_out = 1;
    n_flushed = 0;
    assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
    assert_int_equal(n_flushed, 22); /* none is waited for in vain */
    w.keep_out = 0;
    world_run(&w);
    expect_all_is_stored(&w, lines);
}

/* The host fills up after the first blocks were mirrored, and each plan has copies of the engine's
 * own: what found no room is not waited for. */
TEST(the_host_fills_up_meanwhile)
{
    world w;
    world_options options = world_defaults();
    options.n_blocks = options.host_blocks = 200;
    options.more.spare_blocks = 99;
    open_world(&w, &options);
    const world_line lines[3] = {line_of(&w, 400, 0, 100), line_of(&w, 240, 0, 200),
                                 line_of(&w, 6, 0, 300)};
    const kvp_prompt prompts[2] = {world_prompt(&lines[0]), world_prompt(&lines[2])};
    kvp_seq seqs[2];
    compute(&w, &lines[0]);
    compute(&w, &lines[1]);
    assert_int_equal(call_flush(&w, w.now + LATE), KVP_E_AGAIN);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvp_seq_open(w.cache, w.spaces[0], &prompts[i], &seqs[i], NULL), KVP_OK);
    assert_int_equal(kvp_seq_swap_out(w.cache, &seqs[0], 1, NULL), KVP_OK); /* 99 blocks are left */
    assert_int_equal(kvp_seq_commit(w.cache, seqs[1], 6), KVP_OK);
    kvp_status status = KVP_E_AGAIN;
    for (int i = 0; i < CALLS && status == KVP_E_AGAIN; i++) {
        assert_int_equal(i % 2 == 0 ? kvp_seq_swap_out(w.cache, &seqs[1], 1, NULL)
                                    : kvp_seq_swap_in(w.cache, &seqs[1], 1, 0, NULL),
                         KVP_OK);
        status = call_flush(&w, w.now + LATE);
    }
    assert_int_equal(status, KVP_OK);
    close_world(&w);
}

/* The host lends three blocks, and a record has four: it is left out, and holds nothing up. */
TEST(records_of_more_blocks_than_are_lent)
{
    scoped_world w;
    world_options options = world_defaults();
    options.record_blocks = 4;
    options.host_blocks = 8;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 16, 16, 0);
    compute(&w, &line);
    assert_int_equal(flush_until(&w, w.now + LATE), KVP_OK);
    assert_int_equal(world_stats(&w).puts + world_stats(&w).written, 0);
    assert_true(world_stats(&w).no_block > 0);
}

TEST_MAIN(NULL, NULL)

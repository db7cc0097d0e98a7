/* Taking KV back after the unit that has it was cut: whatever happened to the sequence between its
 * commit and the invalidate, nobody hits a token that was taken back. */
#include <kvpager/states.h>

#include <string.h>

#include "groups.h"

enum { U = 4, N = 12 };

/* -------------------------------------------------------------- each way, in each kind of cache */

/* Caches in which all tokens of ints(0), [N], are computed. */
static const struct {
    const char *name;
    uint32_t S, host, keeps, steps;
    uint32_t window; /* of a second group; 0: there is none */
    uint32_t least;  /* tokens that are left: with fewer, some would be missing that were dropped */
} kinds[] = {
    {"units are blocks", 4, 0, KVP_ADOPT, KVP_STEPS_ORDERED, 0, 0},
    {"and are kept", 4, 0, KVP_KEEP, KVP_STEPS_ORDERED, 0, 0},
    {"three units to a block", 12, 0, KVP_ADOPT, KVP_STEPS_ORDERED, 0, 0},
    {"a host tier", 4, 12, KVP_ADOPT, KVP_STEPS_ORDERED, 0, 0},
    {"and three units to a block", 12, 12, KVP_KEEP, KVP_STEPS_ORDERED, 0, 0},
    {"two groups", 4, 16, KVP_ADOPT, KVP_STEPS_ORDERED, 16, 0},
    {"the second without its first block", 4, 16, KVP_ADOPT, KVP_STEPS_ORDERED, 8, 10},
    {"overlapped steps", 4, 12, KVP_ADOPT, KVP_STEPS_OVERLAPPED, 0, 0},
    {"of three units to a block", 12, 12, KVP_KEEP, KVP_STEPS_OVERLAPPED, 0, 0},
};

enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

static world world_of(size_t kind)
{
    kvp_config config = steps_config(kinds[kind].S, U, 24, kinds[kind].host);
    config.commit_policy = kinds[kind].keeps;
    config.steps = kinds[kind].steps;
    config.max_tree_tokens = 4;
    config.n_groups = kinds[kind].window > 0 ? 2 : 1;
    config.groups[1].recent_tokens = kinds[kind].window;
    return make_world(&config);
}

/* What waits in the plan runs. */
static void run_plan(world *w, size_t kind)
{
    kvp_copy copies[64];
    uint32_t n;
    uint64_t step, effective;
    if (kinds[kind].steps == KVP_STEPS_OVERLAPPED) {
        assert_ok(kvp_step_begin(w->cache, copies, 64, &n, &step));
        assert_ok(kvp_step_done(w->cache, step, &effective));
    } else {
        drop_plan(w);
    }
}

/* The sequence is `open`; give the one that is invalidated, cut at n tokens. */
typedef kvp_seq way(world *w, size_t kind, kvp_seq open, uint32_t n);

static kvp_seq truncates(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    (void)kind;
    assert_ok(kvp_seq_truncate(w->cache, open, n, NULL));
    return open;
}

static kvp_seq forks(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    (void)kind;
    const kvp_seq child = fork_seq(w, open, n);
    close_seq(w, open); /* cannot be told any more */
    return child;
}

static kvp_seq truncates_and_swaps(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    truncates(w, kind, open, n);
    if (kinds[kind].host > 0) {
        run_plan(w, kind);
        swap_out(w, &open, 1);
        run_plan(w, kind);
        swap_in(w, &open, 1, 0);
        run_plan(w, kind);
    }
    return open;
}

static kvp_seq swaps_and_truncates(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    if (kinds[kind].host > 0) {
        swap_out(w, &open, 1); /* the host has all units */
        run_plan(w, kind);
        swap_in(w, &open, 1, 0);
        run_plan(w, kind);
    }
    return truncates(w, kind, open, n);
}

static kvp_seq goes_on_otherwise(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    swaps_and_truncates(w, kind, open, n);
    assert_ok(kvp_seq_extend(w->cache, open, ints(100), 2 * U - n % U, 0)); /* a unit of its own */
    if (kinds[kind].steps == KVP_STEPS_OVERLAPPED)
        run_plan(w, kind);
    assert_ok(kvp_seq_commit(w->cache, open, info_of(w, open).n_tokens));
    return open;
}

static kvp_seq copies_on_write(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    truncates(w, kind, open, n);
    const kvp_seq child = fork_seq(w, open, n);
    assert_ok(kvp_seq_extend(w->cache, open, ints(100), 1, 0));
    close_seq(w, child); /* the old block is cached */
    run_plan(w, kind);
    return open;
}

static kvp_seq drops_a_tree(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    const int32_t parents[] = {-1, 0};
    truncates(w, kind, open, n);
    kvp_slot_move moves[16];
    add_tree(w, open, ints(200), parents, 2);
    run_plan(w, kind);
    accept_path(w, open, 1, moves, 8);
    return open;
}

static kvp_seq gets_a_window(world *w, size_t kind, kvp_seq open, uint32_t n)
{
    truncates(w, kind, open, n);
    set_window(w, 0, open, 0, 4);
    return open;
}

static const struct {
    const char *name;
    way *go;
} ways[] = {
    {"truncate", truncates},
    {"fork", forks},
    {"truncate, swap", truncates_and_swaps},
    {"swap, truncate", swaps_and_truncates},
    {"other tokens", goes_on_otherwise},
    {"copy-on-write", copies_on_write},
    {"tree", drops_a_tree},
    {"window", gets_a_window},
};

static void try_way(size_t kind, size_t i, uint32_t n, uint32_t from)
{
    scoped_world w = world_of(kind);
    const kvp_seq seq = ways[i].go(&w, kind, open_done(&w, ints(0), N), n);
    assert_ok(kvp_seq_invalidate(w.cache, seq, from, NULL, 0, NULL));
    close_seq(&w, seq);
    const uint32_t hit = match(&w, ints(0), N).hit_tokens;
    if (hit > from) {
        print_error("%s, %s, cut at %u, invalidate from %u: %u tokens are hit\n", kinds[kind].name,
                    ways[i].name, n, from, hit);
    }
    assert_true(hit <= from);
}

TEST(test_nothing_that_was_taken_back_is_hit)
{
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
            for (uint32_t n = kinds[kind].least + 1; n < N; n++)
                for (uint32_t from = 0; from < n; from++)
                    try_way(kind, i, n, from);
        }
    }
}

/* With recurrent state a sequence goes back to ends of units only. */
TEST(test_states_allow_no_cut_inside_a_unit)
{
    kvp_config config = config_of(4, 4, 15);
    config.state_slots = 8;
    scoped_world w = make_world(&config);
    kvp_seq child;
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    for (uint32_t n = 1; n < 8; n++) {
        assert_status(n == 4 ? KVP_OK : KVP_E_DROPPED, kvp_seq_fork(w.cache, seq, n, 0, &child));
        if (n != 4)
            assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, seq, n, NULL));
    }
}

/* ----------------------------------------------------------------------------------- what stays */

TEST(test_what_was_cut_off_stays)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(60), 2, 0)); /* overwrites: its block is its own */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 4);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    leave_cached(&w, ints(0), 8);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL)); /* it has no more tokens */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(50), 1, 0));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL)); /* another token than there */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

/* Nobody was ever cut in it: the sequence's first tokens are its own. */
TEST(test_units_that_begin_alike_stay)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_of_a_unit_that_is_not_computed_nothing_is_known)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 6));
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    leave_cached(&w, ints(0), 8); /* by another one */
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, NULL, 0, NULL));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

/* -------------------------------------------------------------------------------------- sharers */

TEST(test_whoever_has_the_unit_is_told_and_private)
{
    scoped_world w = small_world(15);
    kvp_seq told[4];
    uint32_t n;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_seq other = open_seq(&w, ints(0), 9, NULL); /* hits both units */
    const kvp_seq beside = open_done(&w, ints(0), 4);
    assert_ok(kvp_seq_truncate(w.cache, seq, 6, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(60), 2, 0)); /* its block is a copy from now on */
    const uint64_t detached = stats_of(&w).detached_units;
    assert_ok(kvp_seq_invalidate(w.cache, seq, 5, told, 4, &n));
    assert_int_equal(n, 1);
    assert_int_equal(told[0].bits, other.bits);
    assert_int_equal(stats_of(&w).detached_units - detached, 1); /* what it has is not computed */
    assert_int_equal(info_of(&w, other).public_tokens, 4);
    assert_int_equal(info_of(&w, beside).public_tokens, 4);
    assert_int_equal(block_of(&w, row_entry(&w, other, 1)).sealed_units, 0);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 4);
}

/* Two units that were cut: the one with the lower hash goes first, so its block is taken last. */
TEST(test_units_go_in_the_order_of_their_hashes)
{
    for (int32_t i = 0; i < 8; i++) {
        scoped_world w = small_world(15);
        const int32_t units[2][4] = {{0, 1, 2, 300 + i}, {0, 1, 2, 400 + i}};
        kvp_hash hashes[2];
        int32_t blocks[2];
        for (uint32_t k = 0; k < 2; k++) {
            const kvp_seq seq = open_done(&w, units[k], 4);
            const kvp_seq keeper = open_seq(&w, units[k], 4, NULL);
            blocks[k] = row_entry(&w, seq, 0);
            hashes[k] = block_of(&w, blocks[k]).hash;
            assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL));
            close_seq(&w, seq);
            close_seq(&w, keeper);
        }
        const kvp_seq seq = open_done(&w, ints(0), 3);
        assert_ok(kvp_seq_invalidate(w.cache, seq, 1, NULL, 0, NULL));
        const int first = memcmp(&hashes[0], &hashes[1], sizeof(kvp_hash)) < 0 ? 0 : 1;
        close_seq(&w, seq);
        const kvp_seq taker = open_seq(&w, ints(50), 12, NULL);
        assert_int_equal(row_entry(&w, taker, 1), blocks[1 - first]); /* behind the closed one's */
        assert_int_equal(row_entry(&w, taker, 2), blocks[first]);
    }
}

/* All its keys begin behind `from`; KV up to there is the same. */
TEST(test_keys_do_not_matter)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_unit_keys = 2;
    scoped_world w = make_world(&config);
    const kvp_key key = {.begin = 3, .end = 4, .n_bytes = 1, .bytes = (const uint8_t *)"k"};
    kvp_prompt prompt = prompt_of(ints(0), 4);
    prompt.keys = &key;
    prompt.n_keys = 1;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 2, NULL, 0, NULL));
    kvp_open_info info;
    assert_ok(kvp_cache_match(w.cache, w.ns, &prompt, &info));
    assert_int_equal(info.hit_tokens, 0);
}

TEST(test_events_tell_of_it)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_events = 16;
    scoped_world w = make_world(&config);
    kvp_event event;
    uint32_t n;
    const kvp_seq seq = open_done(&w, ints(0), 4);
    const kvp_hash hash = block_of(&w, row_entry(&w, seq, 0)).hash;
    assert_ok(kvp_seq_truncate(w.cache, seq, 3, NULL));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    assert_ok(kvp_events_read(w.cache, 2, &event, 1, NULL, &n));
    assert_int_equal(n, 1);
    assert_int_equal(event.kind, KVP_EVENT_REMOVED);
    assert_memory_equal(&event.hash, &hash, sizeof(hash));
    assert_int_equal(stats_of(&w).nodes_used, 1); /* the root: the unit's node is gone */
}

TEST_MAIN(NULL, NULL)

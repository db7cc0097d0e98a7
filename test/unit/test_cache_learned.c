/* The learned policy in a cache: what is refused, what counts as a use, who may go, what is kept in
 * copies and snapshots, and what the audit sees. Which of those that may go is chosen, is
 * test_policy_plain's, and random calls are test/model's. */
#include <stdlib.h>
#include <string.h>

#include "snaps.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "core/snapshot/ranges.h"

#include <kvpager/drop.h>
#include <kvpager/inspect.h>
#include <kvpager/policy.h>
#include <kvpager/recover.h>
#include <kvpager/windows.h>

static kvp_config learned_config(uint32_t usable)
{
    kvp_config config = config_of(4, 4, usable);
    config.policy = KVP_POLICY_LEARNED;
    return config;
}

static world learned_world(uint32_t usable)
{
    const kvp_config config = learned_config(usable);
    return make_world(&config);
}

/* ----------------------------------------------------------------------------------------- uses */

TEST(test_only_closes_of_requests_count)
{
    scoped_world w = learned_world(16);
    const kvp_seq a = open_done(&w, ints(0), 10); /* two full blocks, and a part of one */
    const kvp_seq fork = fork_seq(&w, a, 10);
    close_seq(&w, fork);
    assert_int_equal(stats_of(&w).references, 0);
    close_seq(&w, a);
    assert_int_equal(stats_of(&w).references, 2);
    assert_int_equal(stats_of(&w).fallback_references, 2); /* not warm yet */
    const kvp_seq b = open_done(&w, ints(0), 10);
    assert_ok(kvp_seq_truncate(w.cache, b, 0, NULL)); /* as for a preemption */
    close_seq(&w, b);
    assert_int_equal(stats_of(&w).references, 2);
    const kvp_seq c = open_seq(&w, ints(100), 8, NULL); /* never computed: nothing is sealed */
    close_seq(&w, c);
    assert_int_equal(stats_of(&w).references, 2);
    leave_cached(&w, ints(0), 10);
    assert_fields(stats_of(&w), references, 4, learned_hits, 2, lru_hits, 2);
}

/* A long row is released in pieces: its blocks go from its end to its beginning, as in one. */
TEST(test_a_long_row_goes_from_its_end)
{
    enum { N = 300 };
    kvp_config config = learned_config(N + 20);
    config.max_seq_tokens = 4 * N;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 4 * N);
    const int32_t *row;
    int32_t blocks[N];
    uint32_t n;
    assert_ok(kvp_seq_row(w.cache, seq, 0, &row, &n));
    memcpy(blocks, row, sizeof(blocks));
    close_seq(&w, seq);
    assert_int_equal(stats_of(&w).cached_blocks, N);
    const kvp_evicted *evicted;
    assert_ok(kvp_cache_reclaim(w.cache, N + 20, &n));
    assert_int_equal(n, N);
    assert_int_equal(evicted_of(&w, &evicted), N);
    for (int32_t i = 0; i < N; i++)
        assert_int_equal(evicted[i].block, blocks[N - 1 - i]);
}

TEST(test_a_reset_forgets_all_but_the_counters)
{
    scoped_world w = learned_world(16);
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(0), 8);
    assert_int_equal(stats_of(&w).lru_hits, 2);
    assert_ok(kvp_cache_reset(w.cache));
    assert_int_equal(stats_of(&w).references, 4);
    leave_cached(&w, ints(0), 8);
    assert_int_equal(stats_of(&w).references, 6);
    assert_int_equal(kvpi_leaves_policy(&w.cache->pool.leaves)->references, 2);
}

/* A sequence that is swapped out when it is closed: its device blocks were left before. */
TEST(test_a_close_on_the_host_is_no_use)
{
    kvp_config config = learned_config(8);
    config.host_blocks = 9;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    kvp_swapped swapped;
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, &swapped));
    close_seq(&w, seq);
    assert_int_equal(stats_of(&w).references, 0);
}

/* Of six blocks a running request holds four that it did not hit: LRU would have two for others. */
TEST(test_lru_has_no_room_for_what_is_held)
{
    for (int held = 0; held <= 1; held++) {
        scoped_world w = learned_world(6);
        const kvp_seq running = held ? open_done(&w, ints(500), 16) : (kvp_seq){0};
        leave_cached(&w, ints(0), 4);
        leave_cached(&w, ints(100), 4);
        leave_cached(&w, ints(200), 4);
        leave_cached(&w, ints(0), 4);
        assert_fields(stats_of(&w), learned_hits, held ? 0 : 1, lru_hits, held ? 0 : 1);
        if (held)
            close_seq(&w, running);
    }
}

/* A request that comes back: opened with 8 tokens of prompt, and 32 that it generated before. */
TEST(test_what_is_behind_the_prompt_is_output)
{
    for (uint32_t told = 0; told <= 1; told++) {
        scoped_world w = learned_world(16);
        const struct kvpi_policy *policy = kvpi_leaves_policy(&w.cache->pool.leaves);
        for (uint32_t i = 0; i < 2; i++) {
            const kvp_seq seq = open_done(&w, ints(0), 40);
            const int32_t first = row_entry(&w, seq, 0);
            if (told)
                assert_ok(kvp_seq_prompt_end(w.cache, seq, 8));
            assert_int_equal(info_of(&w, seq).prompt_tokens, told ? 8 : 40);
            close_seq(&w, seq);
            assert_int_equal(kvpi_order_block(policy->order, (uint32_t)first)->class_,
                             16 * i + 4 * told);
        }
        assert_int_equal(stats_of(&w).learned_hits, told ? 2 : 10); /* of the prompt */
        assert_int_equal(stats_of(&w).lru_hits, told ? 2 : 10);
    }
}

TEST(test_where_a_prompt_cannot_end)
{
    scoped_world w = learned_world(16);
    const kvp_seq seq = open_done(&w, ints(0), 10);
    assert_status(KVP_E_ARG, kvp_seq_prompt_end(NULL, seq, 1));
    assert_status(KVP_E_HANDLE, kvp_seq_prompt_end(w.cache, (kvp_seq){0}, 1));
    assert_status(KVP_E_ARG, kvp_seq_prompt_end(w.cache, seq, 11));
    assert_int_equal(info_of(&w, seq).prompt_tokens, 10);
    assert_ok(kvp_seq_prompt_end(w.cache, seq, 0));
    assert_ok(kvp_seq_prompt_end(w.cache, seq, 10));
    assert_ok(kvp_seq_prompt_end(w.cache, seq, 6));
    assert_ok(kvp_seq_truncate(w.cache, seq, 5, NULL)); /* it is never behind the tokens */
    assert_int_equal(info_of(&w, seq).prompt_tokens, 5);
    assert_ok(kvp_cache_check(w.cache, 3, NULL));
    close_seq(&w, seq);
}

/* -------------------------------------------------------------------------- what can be read */

static kvp_policy_info learned_info(const world *w)
{
    kvp_policy_info info;
    assert_ok(kvp_policy_info_get(w->cache, &info));
    return info;
}

/* Content of 4 blocks comes back at one age, and no other: it is in the table, in its class. */
TEST(test_what_was_learned_can_be_read)
{
    scoped_world w = learned_world(64); /* C: a bin of 32 references is C/2 */
    kvp_policy_class table;
    for (uint32_t i = 0; i < 40; i++) {
        leave_cached(&w, ints(0), 16); /* 4 blocks, each a group; used again after 32 references */
        for (uint32_t other = 0; other < 7; other++)
            leave_cached(&w, ints(1000 + 4 * (int32_t)(7 * i + other)), 16);
    }
    assert_ok(kvp_policy_class_get(w.cache, 48, &table));
    assert_fields(table, least_uses, 5, least_output, 0, least_new, 0);
    const uint32_t at = 7; /* 16 of 32nds of C */
    assert_int_equal(table.ages[at], 16);
    assert_int_equal(table.ages[at + 1], 24);
    assert_int_equal(table.used[at], 35 * 4 * KVP_POLICY_ENTRY); /* uses 6 to 40 */
    assert_int_equal(table.seen[at], table.used[at]);
    assert_int_equal(table.seen[0], 36 * 4 * KVP_POLICY_ENTRY); /* and the last one's rest */
    assert_int_equal(table.used[0], 0);
    assert_int_equal(table.seen[at + 1], 0);
    assert_true(table.density[at] > 8 * (uint64_t)table.density[at + 1]);
    assert_true(table.best_density[0] >= table.density[at]);
    assert_true(table.density[at] > 2 * KVP_POLICY_DENSITY); /* within C/4, nearly always */
    assert_ok(kvp_policy_class_get(w.cache, 16 + 9, &table));
    assert_fields(table, least_uses, 2, least_output, 256, least_new, 513);
    assert_int_equal(table.seen[0], 0); /* never */
    assert_true(table.density[0] > 0);  /* as others are */
}

TEST(test_why_it_is_lru)
{
    scoped_world w = learned_world(64);
    assert_fields(learned_info(&w), fallback, KVP_FALLBACK_COLD, entry_blocks, 1);
    for (int32_t i = 0; i < 64; i++)
        leave_cached(&w, ints(0), 16);
    kvp_policy_info info = learned_info(&w); /* all comes back from LRU, which is looked at now */
    assert_fields(info, references, 256, cold_references, 128, fallback, KVP_FALLBACK_GATE);
    assert_fields(info, gate_references, 0, returned, 63 * 4, returned_late, 0);
    assert_int_equal(info.credit, 63 * 4); /* half a percent each */
    assert_fields(info, credit_floor, -(8 + (1 << 18)) * KVP_POLICY_CREDIT, credit_limit,
                  (16 + (1 << 18)) * KVP_POLICY_CREDIT);
    leave_cached(&w, ints(0), 16);
    assert_int_equal(learned_info(&w).gate_references, 4);
    kvpi_leaves_policy(&w.cache->pool.leaves)->distrusted = 1; /* the guard comes first */
    assert_int_equal(learned_info(&w).fallback, KVP_FALLBACK_GUARD);
    leave_cached(&w, ints(0), 16);
    assert_fields(learned_info(&w), guard_references, 4, gate_references, 4);
    kvpi_leaves_policy(&w.cache->pool.leaves)->gated = 0;
    kvpi_leaves_policy(&w.cache->pool.leaves)->distrusted = 0;
    assert_int_equal(learned_info(&w).fallback, KVP_FALLBACK_NONE);
    leave_cached(&w, ints(0), 16);
    info = learned_info(&w);
    assert_int_equal(info.cold_references + info.guard_references + info.gate_references,
                     stats_of(&w).fallback_references);
    assert_ok(kvp_cache_reset(w.cache)); /* counters keep their values */
    assert_fields(learned_info(&w), gate_references, 4, references, 0, fallback, KVP_FALLBACK_COLD);
}

TEST(test_reads_that_are_refused)
{
    kvp_config config = config_of(4, 4, 7);
    world lru = make_world(&config), w = learned_world(7);
    kvp_policy_info info;
    kvp_policy_class table;
    assert_status(KVP_E_STATE, kvp_policy_info_get(lru.cache, &info));
    assert_status(KVP_E_STATE, kvp_policy_class_get(lru.cache, 0, &table));
    assert_status(KVP_E_ARG, kvp_policy_info_get(NULL, &info));
    assert_status(KVP_E_ARG, kvp_policy_info_get(w.cache, NULL));
    assert_status(KVP_E_ARG, kvp_policy_class_get(NULL, 0, &table));
    assert_status(KVP_E_ARG, kvp_policy_class_get(w.cache, 0, NULL));
    assert_status(KVP_E_ARG, kvp_policy_class_get(w.cache, KVP_POLICY_CLASSES, &table));
    assert_ok(kvp_policy_class_get(w.cache, KVP_POLICY_CLASSES - 1, &table));
    end_world(&lru);
    end_world(&w);
}

/* --------------------------------------------------------------------------------------- leaves */

/* A window of its own drops the first block, which is released before what continues it: it stands
 * first in the queue, and is no leaf. */
TEST(test_what_is_continued_stays)
{
    scoped_world w = learned_world(4);
    const kvp_seq a = open_done(&w, ints(0), 12); /* blocks 1, 2, 3 */
    assert_ok(kvp_seq_window(w.cache, a, 0, (kvp_window){0, 4}, NULL));
    assert_int_equal(stats_of(&w).cached_blocks, 2);
    close_seq(&w, a);
    const kvp_evicted *evicted;
    const kvp_seq b = open_seq(&w, ints(500), 8, NULL); /* takes the free block, and one */
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_int_equal(evicted[0].block, 3);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 8);
    close_seq(&w, b);
}

/* The class that goes first has only blocks that others continue: its oldest goes all the same. */
TEST(test_a_take_never_fails_for_lack_of_leaves)
{
    scoped_world w = learned_world(3);
    const kvp_seq a = open_done(&w, ints(0), 12);
    assert_ok(kvp_seq_retain(w.cache, a, (kvp_range){8, 12}, 3));
    close_seq(&w, a);
    const kvp_evicted *evicted;
    const kvp_seq b = open_seq(&w, ints(500), 12, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 3);
    assert_int_equal(evicted[0].block, 2); /* queued before block 1, and continued by 3 */
    assert_int_equal(evicted[1].block, 1); /* a leaf by then: nothing of its group is left */
    assert_int_equal(evicted[2].block, 3);
    close_seq(&w, b);
}

/* A refused open holds and lets go: nothing may show of it, though the ends of classes change. */
TEST(test_a_refused_open_leaves_no_trace)
{
    scoped_world w = learned_world(6);
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 8);
    const kvp_seq held = open_done(&w, ints(200), 8);
    const kvp_prompt prompt = prompt_of(ints(0), 24);
    kvp_seq seq;
    assert_unchanged(
        &w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(w.cache, w.ns, &prompt, &seq, NULL)));
    close_seq(&w, held);
}

/* -------------------------------------------------------------------------------------- victims */

/* 48 prompts of two blocks in turn, and room for 32: LRU hits nothing. Gives the hit blocks of the
 * last 20 of 100 rounds. */
static uint32_t hits_of_a_scan(uint32_t policy)
{
    kvp_config config = config_of(4, 4, 64);
    uint32_t n_hits = 0;
    config.policy = policy;
    world w = make_world(&config);
    for (int round = 0; round < 100; round++) {
        for (int32_t i = 0; i < 48; i++) {
            kvp_open_info info;
            const kvp_seq seq = open_seq(&w, ints(80 * i), 8, &info);
            assert_ok(kvp_seq_commit(w.cache, seq, 8));
            close_seq(&w, seq);
            n_hits += round < 80 ? 0 : info.hit_tokens / 4;
        }
    }
    end_world(&w);
    return n_hits;
}

/* Of 47 prompts between two uses, 31 can stay beside the one that is used: the optimum, of many
 * rounds. */
TEST(test_a_scan_that_does_not_fit)
{
    const uint32_t optimum = 20 * 48 * 2 * 31 / 47;
    assert_int_equal(hits_of_a_scan(KVP_POLICY_LRU), 0);
    assert_in_range(hits_of_a_scan(KVP_POLICY_LEARNED), optimum * 9 / 10, 20 * 32 * 2);
}

/* ------------------------------------------------------------------------- copies and snapshots */

TEST(test_a_snapshot_brings_blocks_in_their_order)
{
    const kvp_config config = learned_config(6);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 12);
    kvp_snapshot_options options = snap_options();
    snap s = snap_of(w.cache, &options);
    kvp_cache *cache = NULL;
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(snap_load(&s, cache, &report));
    assert_sound(cache);
    assert_int_equal(report.blocks, 5);
    kvp_ns ns;
    kvp_seq seq;
    const kvp_evicted *evicted;
    uint32_t n;
    const kvp_prompt prompt = prompt_of(ints(500), 24);
    assert_ok(kvp_ns_open(cache, "", 0, &ns));
    assert_ok(kvp_seq_open(cache, ns, &prompt, &seq, NULL));
    assert_ok(kvp_cache_evicted(cache, &evicted, &n));
    const int32_t expected[] = {2, 1, 5, 4, 3}; /* the older request's first; tails first */
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(evicted[i].block, expected[i]);
    assert_sound(cache);
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

static int read_world(void *context, uint64_t offset, void *out_bytes, size_t n_bytes)
{
    const world *w = context;
    memcpy(out_bytes, (const char *)w->arena + offset, n_bytes);
    return 0;
}

/* Another process sees it whole, and sees damage. */
TEST(test_it_can_be_inspected)
{
    scoped_world w = learned_world(8);
    leave_cached(&w, ints(0), 12);
    const kvp_arena_source source = {&w, w.arena_bytes, read_world};
    kvp_arena_options options;
    kvp_arena_report report;
    kvp_arena_options_init(&options);
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    assert_int_equal(report.config.policy, KVP_POLICY_LEARNED);
    assert_int_equal(report.stats.references, 3);
    struct kvpi_policy *policy = kvpi_leaves_policy(&w.cache->pool.leaves);
    policy->order[0].n_queued++;
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_DAMAGED);
    assert_string_equal(report.violation.invariant, "O2");
    policy->order[0].n_queued--;
}

/* ------------------------------------------------------------------------------------ the audit */

#define EXPECT_WRONG(w, place, value, invariant_)                                                  \
    do {                                                                                           \
        kvp_violation found_;                                                                      \
        const uint64_t old_ = (uint64_t)(place);                                                   \
        (place) = (value);                                                                         \
        assert_int_equal(kvpi_audit((w)->cache, 2, &found_), 0);                                   \
        assert_string_equal(found_.invariant, invariant_);                                         \
        (place) = (__typeof__(place))old_;                                                         \
        assert_int_equal(kvpi_audit((w)->cache, 3, NULL), 1);                                      \
    } while (0)

TEST(test_the_audit_sees_what_is_wrong)
{
    scoped_world w = learned_world(8);
    leave_cached(&w, ints(0), 12); /* blocks 1, 2, 3 */
    const kvp_seq held = open_done(&w, ints(100), 8);
    const struct kvpi_leaves *leaves = &w.cache->pool.leaves;
    struct kvpi_policy *policy = kvpi_leaves_policy(leaves);
    const uint32_t first = kvpi_block(&w.cache->pool, 1)->content;
    EXPECT_WRONG(&w, kvpi_leaf(leaves, first)->block, 2, "F1");
    EXPECT_WRONG(&w, kvpi_leaf(leaves, first)->block, 0, "F1");
    EXPECT_WRONG(&w, kvpi_leaf(leaves, leaves->n_contents)->block, 1, "F1");
    EXPECT_WRONG(&w, *kvpi_leaves_above(leaves, 2), leaves->n_contents + 1, "F2");
    EXPECT_WRONG(&w, *kvpi_leaves_above(leaves, 2), 0, "F2");
    EXPECT_WRONG(&w, kvpi_leaf(leaves, first)->continued, 2, "F2");
    EXPECT_WRONG(&w, kvpi_order_block(policy->order, 3)->mark, 0, "F4");
    EXPECT_WRONG(&w, kvpi_order_block(policy->order, 4)->mark, 1, "F4");
    EXPECT_WRONG(&w, kvpi_order_block(policy->order, 3)->queued, 0, "F3");
    EXPECT_WRONG(&w, kvpi_order_block(policy->order, 2)->queued, 1, "F3");
    EXPECT_WRONG(&w, kvpi_order_block(policy->order, 3)->queued, 2, "F3");
    EXPECT_WRONG(&w, policy->credit, INT64_MAX, "V2");
    EXPECT_WRONG(&w, policy->references, 2, "V1");
    EXPECT_WRONG(&w, policy->rests, 2, "V1");
    EXPECT_WRONG(&w, kvpi_ghost_entry(&policy->ghost, policy->ghost.cursors[16])->stamp, 77, "G1");
    kvp_violation found; /* a sum over sequences: at the highest level */
    w.cache->learning.hits++;
    assert_int_equal(kvpi_audit(w.cache, 3, &found), 0);
    assert_string_equal(found.invariant, "V3");
    w.cache->learning.hits--;
    close_seq(&w, held);
}

/* Foreign bytes: the sizes by which everything else would be found. */
TEST(test_foreign_sizes_are_not_believed)
{
    scoped_world w = learned_world(8);
    leave_cached(&w, ints(0), 12);
    struct kvpi_policy *policy = kvpi_leaves_policy(&w.cache->pool.leaves);
    kvp_violation found;
    assert_true(kvpi_in_range(w.cache, &found));
    uint32_t *const sizes[] = {
        &policy->n_blocks,      &policy->block_tokens,      &policy->ungated,
        &policy->group_blocks,  &policy->ghost.n_blocks,    &policy->ghost.n_places,
        &policy->ghost.n_lists, &policy->order[0].n_blocks, &policy->order[7].n_blocks,
        &policy->order[3].lane, &policy->ghost.edges[5]};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        ++*sizes[i];
        assert_false(kvpi_in_range(w.cache, &found));
        assert_string_equal(found.invariant, "F4");
        --*sizes[i];
    }
    size_t *const offsets[] = {&policy->ghost.entries_at, &policy->ghost.lists_at,
                               &policy->order[0].blocks_at, &policy->order[5].blocks_at};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        *offsets[i] += 64;
        assert_false(kvpi_in_range(w.cache, &found));
        *offsets[i] -= 64;
    }
    assert_ok(kvp_cache_recover(w.cache, &found));
}

TEST_MAIN(NULL, NULL)

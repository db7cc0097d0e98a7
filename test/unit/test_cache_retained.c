/* Retained places (windows.h): what goes to the head of its queue, and what to the tail. Each world
 * has one group with a window, S = U = 4, and a fresh pool, which gives blocks 1, 2, 3 ... in
 * order: entry i is in block i + 1. */
#include "groups.h"

#include <kvpager/drop.h>
#include <kvpager/lend.h>
#include <kvpager/policy.h>
#include <kvpager/oplog.h>
#include <stdlib.h>
#include <string.h>

#include "oplog/replay.h"

enum { N = 64 };

static kvp_config retained(uint32_t R, uint32_t retain_tokens)
{
    kvp_config config = groups_config(4, N, &(kvp_window){0, R}, 1);
    config.retain_tokens = retain_tokens;
    return config;
}

/* The cached blocks of the device are these, the next to go first. */
#define assert_cold(w, ...)                                                                        \
    assert_cold_is(w, (const int32_t[]){__VA_ARGS__},                                              \
                   sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void assert_cold_is(const world *w, const int32_t *expected, uint32_t n_expected)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[N];
    uint32_t n;
    assert_ok(kvp_cache_cold_end(w->cache, KVP_DEVICE, &cursor, cold, N, &n));
    for (uint32_t i = 0; i < n && i < n_expected; i++)
        assert_int_equal(cold[i].block, expected[i]);
    assert_int_equal(n, n_expected);
}

/* A prompt of n tokens, computed at once, and so many generated ones. */
static kvp_seq run(world *w, uint32_t n, uint32_t n_generated)
{
    const kvp_seq seq = open_done(w, ints(0), n);
    decode(w, seq, n_generated);
    return seq;
}

TEST(test_the_example_of_the_header)
{
    const kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    scoped_world w = make_world(&config);
    (void)run(&w, 26, 20);
    assert_cold(&w, 10, 9, 8, 7, 1, 2, 3, 4, 5, 6);
}

TEST(test_without_places_all_go_to_the_tail)
{
    const kvp_config config = retained(6, 0);
    scoped_world w = make_world(&config);
    (void)run(&w, 26, 20);
    assert_cold(&w, 5, 4, 3, 2, 1, 6, 7, 8, 9, 10);
}

/* A hit at 16 sees 11..15, one at 32 sees 27..31, and one at the unit before the last token, 36,
 * sees 31..35. */
TEST(test_multiples)
{
    const kvp_config config = retained(6, 16);
    scoped_world w = make_world(&config);
    (void)run(&w, 40, 0);
    assert_cold(&w, 1, 2, 5, 6, 8, 7, 4, 3);
}

/* Longer prompts hit at 24, the same one at 20: they see 22..23 and 18..19. */
TEST(test_both_ends_of_a_prompt)
{
    const kvp_config config = retained(3, KVP_RETAIN_PROMPTS);
    scoped_world w = make_world(&config);
    (void)run(&w, 24, 16);
    assert_cold(&w, 9, 8, 7, 1, 2, 3, 4, 5, 6);
}

/* A chunk of 8 tokens is needed by places inside it, not by the one at its end. */
TEST(test_chunks)
{
    kvp_config config = retained(8, 20);
    config.groups[0].sink_tokens = KVP_CHUNKED;
    scoped_world w = make_world(&config);
    (void)run(&w, 32, 8); /* places 20, 40, 32 and 28: 16..19 and 24..27 */
    assert_cold(&w, 9, 10, 1, 2, 3, 4, 6, 8, 7, 5);
}

/* Of a prompt that is opened in part the end is where the caller says. */
TEST(test_a_prompt_in_parts)
{
    const kvp_config config = retained(3, KVP_RETAIN_PROMPTS);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    extend_seq(&w, seq, 12);
    assert_ok(kvp_seq_prompt_end(w.cache, seq, 24));
    assert_ok(kvp_seq_commit(w.cache, seq, 24));
    decode(&w, seq, 16);
    assert_cold(&w, 9, 8, 7, 3, 4, 1, 2, 5, 6);
}

/* The second prompt has 20 tokens in common with the first, and a block for 16 of them. It retains
 * both places: hits there see 11..15, and 15..19. What is released is put among what is renewed,
 * as in the row. */
TEST(test_a_hit_and_a_parting)
{
    const kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    scoped_world w = make_world(&config);
    int32_t other[40];
    close_seq(&w, run(&w, 40, 0));
    assert_cold(&w, 1, 2, 3, 4, 5, 6, 7, 10, 9, 8);
    assert_ok(kvp_cache_drop(w.cache, KVP_DEVICE, (const int32_t[]){5}, 1, NULL));
    memcpy(other, ints(0), sizeof other);
    for (uint32_t i = 20; i < 40; i++)
        other[i] += 1000;
    const kvp_seq seq = open_done(&w, other, 40);
    assert_int_equal(info_of(&w, seq).cached_tokens, 16);
    const int32_t parting = 5; /* freed last: taken first, for 16..19; behind it 11, 12 ... */
    assert_cold(&w, 11, 12, 1, 2, 6, 7, 10, 9, 8, 13, parting, 4, 3);
    close_seq(&w, seq);
    assert_cold(&w, 11, 12, 1, 2, 6, 7, 10, 9, 8, 15, 14, 13, parting, 4, 3);
}

/* What a group without a window keeps is needed for each hit, whatever a sequence's own drops. */
TEST(test_a_window_of_its_own)
{
    const kvp_window windows[] = {{0, 0}, {0, 64}};
    kvp_config config = groups_config(4, N, windows, 2);
    config.retain_tokens = KVP_RETAIN_PROMPTS;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 16);
    set_window(&w, 0, seq, 0, 4);
    assert_cold(&w, 5, 3, 1);
}

TEST(test_sinks_stay)
{
    kvp_config config = retained(4, KVP_RETAIN_PROMPTS);
    config.groups[0].sink_tokens = 4;
    scoped_world w = make_world(&config);
    const kvp_seq seq = run(&w, 32, 0);
    set_window(&w, 0, seq, 0, 4); /* without sinks */
    assert_cold(&w, 2, 3, 4, 5, 6, 7, 1);
}

/* What a step parks goes to the head when the step is done, unless it was hit and released. */
TEST(test_parked_blocks)
{
    kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 26, NULL);
    const uint64_t step = begin_step(&w);
    assert_ok(kvp_seq_commit(w.cache, seq, 26));
    assert_int_equal(stats_of(&w).parked_blocks, 5);
    close_seq(&w, open_done(&w, ints(0), 8));
    assert_ok(kvp_step_done(w.cache, step, NULL));
    assert_cold(&w, 3, 4, 5, 2, 1);
}

/* What places need was cached before, and no step has it: a close does not make it wait for one. */
TEST(test_a_close_parks_only_what_it_held)
{
    kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    config.steps = KVP_STEPS_OVERLAPPED;
    scoped_world w = make_world(&config);
    const kvp_seq seq = run(&w, 26, 20);
    const kvp_stats before = stats_of(&w);
    const uint64_t step = begin_step(&w);
    close_seq(&w, seq);
    const kvp_stats after = stats_of(&w);
    assert_fields(after, parked_blocks, before.held_blocks, cached_blocks, before.cached_blocks);
    assert_ok(kvp_step_done(w.cache, step, NULL));
}

TEST(test_the_host_does_not_keep_them)
{
    kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    config.n_blocks = 9;
    config.host_blocks = 9;
    scoped_world w = make_world(&config);
    close_seq(&w, run(&w, 26, 0)); /* entries 0 .. 3 are needed by no place */
    evict_blocks(&w, 6);           /* two free ones, and these */
    assert_fields(stats_of(&w), evicted_blocks, 4, kept_blocks, 0);
    evict_blocks(&w, 8);
    assert_int_equal(stats_of(&w).kept_blocks, 2); /* entries 4 and 5 */
}

TEST(test_a_log_says_it)
{
    const kvp_config config = retained(6, KVP_RETAIN_PROMPTS);
    struct kvpi_oplog_memory memory = {0};
    const kvp_sink sink = {&memory, kvpi_oplog_memory_write};
    kvp_config read;
    kvp_oplog *log;
    uint64_t n_calls;
    world w = {0};
    assert_ok(kvp_cache_create(&config, NULL, 0, &w.cache));
    assert_ok(kvp_cache_record_start(w.cache, &sink));
    assert_ok(kvp_ns_open(w.cache, "", 0, &w.ns));
    close_seq(&w, run(&w, 26, 20));
    kvp_cache_destroy(w.cache);
    assert_ok(kvp_oplog_open(memory.bytes, memory.n_bytes, &log));
    assert_ok(kvp_oplog_config(log, &read));
    assert_int_equal(read.retain_tokens, KVP_RETAIN_PROMPTS);
    assert_ok(kvp_oplog_replay(log, 3, &n_calls));
    kvp_oplog_close(log);
    free(memory.bytes);
}

static void assert_wrong(const kvp_config *config, const char *problem)
{
    kvp_why why;
    assert_status(KVP_E_ARG, kvp_config_check(config, &why));
    assert_string_equal(why.field, "retain_tokens");
    assert_non_null(strstr(why.text, problem));
}

TEST(test_what_is_refused)
{
    kvp_config config = retained(6, 6);
    assert_wrong(&config, "no multiple of unit_tokens");
    config.retain_tokens = (uint32_t)INT32_MAX + 1;
    assert_wrong(&config, "2147483648");
    config.retain_tokens = INT32_MAX - 3;
    assert_ok(kvp_config_check(&config, NULL));
    config.unit_tokens = 2;
    config.retain_tokens = 6;
    assert_ok(kvp_config_check(&config, NULL));
}

/* Without windows nothing is dropped: there is nothing to keep places in. */
TEST(test_no_memory_without_windows)
{
    kvp_config config = config_of(4, 4, N);
    size_t plain, retaining;
    assert_ok(kvp_cache_bytes(&config, &plain));
    config.retain_tokens = KVP_RETAIN_PROMPTS;
    assert_ok(kvp_cache_bytes(&config, &retaining));
    assert_int_equal(retaining, plain);
}

TEST_MAIN(NULL, NULL)

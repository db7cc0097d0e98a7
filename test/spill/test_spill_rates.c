/* How fast records come, how fast the engine computes, what is worth loading at that, and how much
 * may be written. */
#include "scenes.h"

#include "../shadow/random.h"

enum { RECORD = 8, RECORD_BYTES = 64 };

#define SECOND UINT64_C(1000000000)
#define DAY    (86400 * SECOND)

/* ------------------------------------------------------------------------------- what is learnt */

/* A quarter of what is measured; all of it if nothing was known, and never nothing. */
TEST(computing_is_measured)
{
    static const struct {
        uint64_t rate, n_tokens, took_ns, learnt;
    } cases[] = {
        {10000, 20000, SECOND, 12500},
        {10000, 20000, 2 * SECOND, 10000},
        {10000, 0, SECOND, 10000},
        {10000, 20000, 0, 10000},
        {10000, 1, 1, 10000 - 2500 + 250000000},
        {4, 1, 4 * SECOND, 3},
        {1, 1, 4 * SECOND, 1},
        {4, UINT64_MAX, 1, 3 + (UINT64_C(1) << 48)}, /* no more than 2^50 is believed */
        {UINT64_MAX, 20000, SECOND, 20000},
        {UINT64_MAX, 1, 4 * SECOND, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scoped_world w;
        world_options options = world_defaults();
        options.more.compute_tokens_s = cases[i].rate;
        open_world(&w, &options);
        assert_int_equal(kvp_spill_computed(w.spill, cases[i].n_tokens, cases[i].took_ns), KVP_OK);
        assert_int_equal(world_stats(&w).compute_tokens_s, cases[i].learnt);
    }
    assert_int_equal(kvp_spill_computed(NULL, 1, 1), KVP_E_ARG);
}

/* One read at a time, each of which takes a millisecond. */
static void load_once(world *w, const world_line *line)
{
    forget_cache(w);
    assert_int_equal(world_ask(w, line, 1).outcome, KVP_SPILL_LOADED);
}

/* When 4 MiB were read, and not before. */
TEST(loading_is_measured)
{
    enum { TOKENS = 512, BYTES = 8 * TOKENS, N = (4 << 20) / BYTES };
    scoped_world w;
    world_options options = world_defaults();
    options.block_tokens = options.unit_tokens = 64;
    options.record_blocks = 8;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    world_line line = line_of(&w, TOKENS, TOKENS, 0);
    compute(&w, &line);
    world_settle(&w);
    for (uint32_t i = 1; i < N; i++)
        load_once(&w, &line);
    assert_fields(world_stats(&w), loaded, N - 1, load_bytes_s, SECOND);
    load_once(&w, &line);
    assert_int_equal(world_stats(&w).load_bytes_s, SECOND - SECOND / 4 + 1000 * BYTES / 4);
    for (uint32_t i = 0; i < N - 1; i++) /* it begins anew */
        load_once(&w, &line);
    assert_int_equal(world_stats(&w).load_bytes_s, SECOND - SECOND / 4 + 1000 * BYTES / 4);
}

/* A store that was slow once is tried again after 512 requests that computed instead. */
TEST(what_was_measured_is_forgotten)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.load_bytes_s = UINT64_MAX;
    options.more.compute_tokens_s = 1000000;
    const world_line line = open_stored(&w, &options);
    for (uint32_t round = 0; round < 2; round++) {
        load_once(&w, &line);
        assert_true(world_stats(&w).load_bytes_s < 8 * UINT64_C(1000000));
        forget_cache(&w);
        for (uint32_t i = 0; i < 512; i++)
            assert_int_equal(world_ask(&w, &line, i).outcome, KVP_SPILL_COMPUTE);
        assert_fields(world_stats(&w), load_bytes_s, UINT64_MAX, decided_none, 512 * (round + 1));
    }
}

/* ------------------------------------------------------------------------------------ decisions */

/* By the words of the header. */
static uint32_t decide_slowly(const kvp_spill_question *q)
{
    for (uint32_t x = q->n_tokens; x > 0; x--) {
        if (x != q->n_tokens && x % q->step_tokens != 0)
            continue;
        const double seconds = ((double)q->queued_bytes + (double)q->bytes * x / q->n_tokens) /
                               (double)q->load_bytes_s;
        if (seconds <= (double)q->left_ns / 1e9)
            return x >= q->min_tokens && seconds <= x / (double)q->compute_tokens_s ? x : 0;
    }
    return 0;
}

/* Numbers that divide without a rest, so that both sides are often equal. */
TEST(decisions_are_those_of_the_words)
{
    uint64_t random = 7;
    uint32_t n_parts = 0, n_all = 0;
    for (int i = 0; i < 20000; i++) {
        const uint32_t n = 1u << random_below(&random, 7);
        kvp_spill_question q = {.struct_size = sizeof q, .n_tokens = n};
        q.bytes = n * (UINT64_C(1) << random_below(&random, 4));
        q.queued_bytes = random_below(&random, 3) * 8u;
        q.load_bytes_s = UINT64_C(1) << random_below(&random, 4);
        q.compute_tokens_s = UINT64_C(1) << random_below(&random, 3);
        q.left_ns = random_below(&random, 40) * SECOND;
        q.step_tokens = 1 + random_below(&random, 12);
        q.min_tokens = random_below(&random, 12);
        uint32_t is = 777;
        assert_int_equal(kvp_spill_decide(&q, &is), KVP_OK);
        assert_int_equal(is, decide_slowly(&q));
        n_parts += is > 0 && is < n;
        n_all += is == n;
    }
    assert_true(n_parts > 500 && n_all > 500);
}

/* As many tokens as 32 bits can count, of which some come in time. */
TEST(a_part_of_many_tokens)
{
    const uint32_t step = 5000, most = UINT32_MAX / step * step;
    kvp_spill_question q = {.struct_size = sizeof q,
                            .bytes = most,
                            .load_bytes_s = step,
                            .compute_tokens_s = 1,
                            .n_tokens = most,
                            .step_tokens = step};
    for (uint64_t n_steps = 0; n_steps <= most / step; n_steps += most / step / 5) {
        uint32_t n = 777;
        q.left_ns = n_steps * SECOND + SECOND / 2;
        assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
        assert_int_equal(n, n_steps * step);
    }
}

TEST(a_question_without_a_rate_is_refused)
{
    const kvp_spill_question right = {.struct_size = sizeof right,
                                      .bytes = 8,
                                      .load_bytes_s = 1,
                                      .compute_tokens_s = 1,
                                      .left_ns = UINT64_MAX,
                                      .n_tokens = 8,
                                      .step_tokens = 1};
    for (int i = 0; i < 6; i++) {
        kvp_spill_question q = right;
        uint32_t n = 777;
        q.struct_size -= i == 1;
        q.load_bytes_s -= i == 2;
        q.compute_tokens_s -= i == 3;
        q.step_tokens -= i == 4;
        q.reserved += i == 5;
        assert_int_equal(kvp_spill_decide(&q, &n), i == 0 ? KVP_OK : KVP_E_ARG);
        assert_int_equal(n, i == 0 ? 8 : 777);
    }
    assert_int_equal(kvp_spill_decide(&right, NULL), KVP_E_ARG);
}

/* -------------------------------------------------------------------------------------- budgets */

static uint64_t puts_of(world *w, int32_t first)
{
    const uint64_t before = world_stats(w).puts;
    const world_line line = line_of(w, 10 * RECORD, 0, first);
    const kvp_prompt prompt = world_prompt(&line);
    kvp_seq seq;
    assert_int_equal(kvp_seq_open(w->cache, w->spaces[0], &prompt, &seq, NULL), KVP_OK);
    assert_int_equal(kvp_seq_commit(w->cache, seq, line.n_tokens), KVP_OK);
    assert_int_equal(kvp_spill_sealed(w->spill, seq, w->now), KVP_OK);
    assert_int_equal(kvp_seq_close(w->cache, seq, NULL), KVP_OK);
    world_take(w);
    world_run(w);
    world_audit(w);
    assert_good(w);
    return world_stats(w).puts - before;
}

static void open_budget(world *w, world_options *options)
{
    options->policy = KVP_SPILL_THROUGH;
    options->n_blocks = options->host_blocks = 300;
    open_world(w, options);
}

/* At most a second is saved up; what is less than a byte is not lost. */
TEST(bytes_of_a_second)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.put_bytes_s = 4 * RECORD_BYTES;
    open_budget(&w, &options);
    assert_int_equal(puts_of(&w, 1000), 4);
    assert_int_equal(puts_of(&w, 2000), 0);
    w.now += SECOND / 8;
    assert_int_equal(puts_of(&w, 3000), 0);
    w.now += SECOND / 8 * 3;
    assert_int_equal(puts_of(&w, 4000), 2);
    for (int32_t i = 1; i <= 128; i++) { /* half a byte each time */
        w.now += SECOND / 512;
        assert_int_equal(puts_of(&w, 5000 + 100 * i), i == 128);
    }
    w.now += 10 * SECOND;
    assert_int_equal(puts_of(&w, 90000), 4);
}

/* A record that is more than a second's bytes is written all the same, when they have come. */
TEST(a_record_of_several_seconds)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.put_bytes_s = RECORD_BYTES / 4;
    open_budget(&w, &options);
    assert_int_equal(puts_of(&w, 1000), 1);
    w.now += 4 * SECOND - SECOND / 16;
    assert_int_equal(puts_of(&w, 2000), 0);
    w.now += SECOND / 16;
    assert_int_equal(puts_of(&w, 3000), 1);
    w.now += 100 * SECOND;
    assert_int_equal(puts_of(&w, 4000), 1);
}

TEST(bytes_of_a_day)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.put_bytes_day = 4 * RECORD_BYTES - 1;
    open_budget(&w, &options);
    w.now = 3 * DAY;
    assert_int_equal(puts_of(&w, 1000), 3);
    w.now = 4 * DAY - 1;
    assert_int_equal(puts_of(&w, 2000), 0);
    w.now = 4 * DAY;
    assert_int_equal(puts_of(&w, 3000), 3);
    assert_int_equal(puts_of(&w, 4000), 0);
}

TEST(bytes_at_once)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.put_bytes = 4 * RECORD_BYTES - 1;
    open_budget(&w, &options);
    assert_int_equal(puts_of(&w, 1000), 3);
    assert_int_equal(puts_of(&w, 2000), 0);
    world_settle(&w);
    assert_int_equal(puts_of(&w, 3000), 3);
    assert_fields(world_stats(&w), put_bytes, 3 * RECORD_BYTES, over_budget, 7 + 10 + 7);
}

TEST_MAIN(NULL, NULL)

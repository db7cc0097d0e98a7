/* Scenes of a spill: what it writes, what it loads, what it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "liar.h"
#include "world.h"

static void assert_good(const world *w)
{
    if (w->verdict.is_bad)
        fail_msg("%s", w->verdict.why);
}

static void open_world(world *w, const world_options *options)
{
    world_open(w, options);
    assert_good(w);
}

static void close_world(world *w)
{
    world_stop(w);
    world_close(w);
    assert_good(w);
}

/* n tokens: `same` of them are those of every line, the others begin with `first`. */
static world_line line_of(const world *w, uint32_t n, uint32_t same, int32_t first)
{
    world_line line = {.n_tokens = n};
    for (uint32_t p = 0; p < n; p++)
        line.tokens[p] = p < same ? (int32_t)p : first + (int32_t)p;
    world_truth(w, &line);
    return line;
}

static kvp_open_info compute(world *w, const world_line *line)
{
    kvp_open_info info = {0};
    kvp_seq seq;
    assert_int_equal(world_compute(w, line, &seq, &info), KVP_OK);
    assert_int_equal(kvp_seq_close(w->cache, seq, NULL), KVP_OK);
    assert_good(w);
    return info;
}

/* As after a restart: the cache has nothing, the store what it had. */
static void forget_cache(world *w)
{
    world_stop(w);
    assert_int_equal(kvp_cache_reset(w->cache), KVP_OK);
    assert_good(w);
}

static void comes_back_after_a_restart(void **state)
{
    (void)state;
    world_options options;
    world w;
    world_defaults(&options);
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0); /* 8 blocks and 3 tokens: 4 records */
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4);
    forget_cache(&w);
    const kvp_spill_answer answer = world_ask(&w, &line, 5);
    assert_int_equal(answer.tag, 5);
    assert_int_equal(answer.outcome, KVP_SPILL_LOADED);
    assert_int_equal(answer.hit_tokens, 32);
    assert_int_equal(answer.more_tokens, 32);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
    assert_int_equal(world_stats(&w).loaded, 4);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4); /* not again */
    assert_int_equal(world_ask(&w, &line, 6).outcome, KVP_SPILL_NOTHING);
    close_world(&w);
}

static void only_what_is_hit_is_written(void **state)
{
    (void)state;
    world_options options;
    world w;
    world_defaults(&options);
    open_world(&w, &options);
    const world_line first = line_of(&w, 40, 20, 100);
    const world_line second = line_of(&w, 40, 20, 200);
    compute(&w, &first);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 0);
    assert_int_equal(compute(&w, &second).hit_tokens, 20);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 2); /* 16 of the 20 tokens */
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &first, 1).hit_tokens, 16);
    compute(&w, &first);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_after_a_restart),
        cmocka_unit_test(only_what_is_hit_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

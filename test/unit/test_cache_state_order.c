/* Which checkpoint goes next: what the close of a sequence renews (states.h). */
#include <kvpager/states.h>

#include "core/cache/state.h"
#include "slots.h"

#include <string.h>

/* A prompt of units of four equal tokens, named by letters, and one token more. */
static kvp_seq open_path(world *w, const char *path, kvp_open_info *info)
{
    int32_t tokens[64];
    const uint32_t n = 4 * (uint32_t)strlen(path);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = path[i / 4];
    tokens[n] = 'z';
    return open_seq(w, tokens, n + 1, info);
}

/* Serve a prompt. The state is kept after its last full unit. */
static void serve(world *w, const char *path)
{
    const kvp_seq seq = open_path(w, path, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, 4 * (uint32_t)strlen(path)));
    assert_int_equal(checkpoint(w, seq), KVP_CHECKPOINT_MADE);
    close_seq(w, seq);
}

/* The units of the prompt that are hit. */
static uint32_t units_hit(world *w, const char *path)
{
    int32_t tokens[64];
    const uint32_t n = 4 * (uint32_t)strlen(path);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = path[i / 4];
    tokens[n] = 'z';
    return match(w, tokens, n + 1).hit_tokens / 4;
}

static world order_world(void)
{
    kvp_config config = config_of(4, 4, 128);
    config.state_slots = 32;
    config.max_seqs = 32;
    return make_world(&config);
}

/* n sequences without a known prefix take all free slots, and those of n checkpoints. */
static void evict(world *w, uint32_t n)
{
    for (n += (uint32_t)slots_of(w).free_slots; n > 0; n--)
        (void)open_seq(w, ints(1000), 1, NULL);
}

/* A conversation that goes on needs the last one only: those before keep their places. */
TEST(test_checkpoints_on_the_way_are_not_renewed)
{
    scoped_world w = order_world();
    serve(&w, "a");
    serve(&w, "ab");
    serve(&w, "x");
    serve(&w, "abc"); /* reads ab: a, x, ab, abc */
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "a"), 0);
    assert_int_equal(units_hit(&w, "x"), 1);
    assert_int_equal(units_hit(&w, "ab"), 2);
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "x"), 0);
    assert_int_equal(units_hit(&w, "ab"), 2);
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "ab"), 0);
    assert_int_equal(units_hit(&w, "abc"), 3);
}

/* What has two others beside the path goes last, also if it was not read. */
TEST(test_a_place_where_paths_part_is_renewed)
{
    scoped_world w = order_world();
    serve(&w, "a");
    serve(&w, "ap");
    serve(&w, "aq");
    serve(&w, "ar");
    serve(&w, "y");
    serve(&w, "ars"); /* reads ar, passes a: ap, aq, y, ar, ars, a */
    evict(&w, 3);
    assert_int_equal(units_hit(&w, "y"), 0);
    assert_int_equal(units_hit(&w, "aq"), 1);
    assert_int_equal(units_hit(&w, "ars"), 3);
    evict(&w, 2);
    assert_int_equal(units_hit(&w, "ars"), 1);
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "ars"), 0);
}

/* One is not enough: an answer that later prompts lack leaves one beside each turn. */
TEST(test_one_other_beside_the_path_renews_nothing)
{
    scoped_world w = order_world();
    serve(&w, "a");
    serve(&w, "ap");
    serve(&w, "aq");
    serve(&w, "y");
    serve(&w, "aqr"); /* reads aq, passes a: ap, a, y, aq, aqr */
    evict(&w, 2);
    assert_int_equal(units_hit(&w, "a"), 0);
    assert_int_equal(units_hit(&w, "y"), 1);
}

/* What leaves the path further down is for the place there. */
TEST(test_others_count_for_the_nearest_one_above)
{
    scoped_world w = order_world();
    serve(&w, "a");
    serve(&w, "ab");
    serve(&w, "abp");
    serve(&w, "abq");
    serve(&w, "y");
    serve(&w, "abr"); /* reads ab: a, abp, abq, y, abr, ab */
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "a"), 0);
    assert_int_equal(units_hit(&w, "abp"), 3);
    evict(&w, 3);
    assert_int_equal(units_hit(&w, "y"), 0);
    assert_int_equal(units_hit(&w, "abr"), 3);
    evict(&w, 1);
    assert_int_equal(units_hit(&w, "abr"), 2);
}

/* A close that made and read nothing renews the last one that its path has. */
TEST(test_a_path_that_ends_above_renews_its_own_last_one)
{
    scoped_world w = order_world();
    serve(&w, "a");
    serve(&w, "abc");
    serve(&w, "y");
    close_seq(&w, open_path(&w, "ab", NULL)); /* abc, y, a */
    evict(&w, 2);
    assert_int_equal(units_hit(&w, "y"), 0);
    assert_int_equal(units_hit(&w, "abc"), 1);
}

/* A long path, with a checkpoint every few units: each comes and goes at the cost of the units up
 * to the one before the last, whatever their depth. */
TEST(test_an_eviction_costs_no_more_than_making_it_did)
{
    enum { UNITS = 512, EVERY = 8, N = UNITS / EVERY };
    kvp_config config = config_of(4, 4, UNITS + 2 * N);
    config.max_seq_tokens = 4 * UNITS + 4;
    config.max_seqs = 2 * N;
    config.state_slots = N + 8;
    scoped_world w = make_world(&config);
    const uint64_t *walked = &w.cache->states.walked;
    const kvp_seq seq = open_seq(&w, ints(0), 4 * UNITS + 1, NULL);
    for (uint32_t u = EVERY; u <= UNITS; u += EVERY) {
        const uint64_t before = *walked;
        assert_ok(kvp_seq_commit(w.cache, seq, 4 * u));
        assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
        assert_true(*walked - before <= 2 * EVERY + 1); /* of 512 units that are before it */
    }
    close_seq(&w, seq);
    evict(&w, 0); /* takes what is free */
    const uint64_t made = *walked;
    for (uint32_t n = 0; n < N; n++) {
        const uint64_t before = *walked;
        evict(&w, 1);
        assert_true(n + 2 >= N || *walked - before <= 2 * EVERY + 1);
    }
    assert_int_equal(slots_of(&w).evicted, N);
    assert_true(*walked - made <= 2 * made); /* counts and blocks, which are exposed once */
}

TEST_MAIN(NULL, NULL)

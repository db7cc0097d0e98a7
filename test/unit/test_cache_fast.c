/* Fast ways: that they are taken. To lose one changes no result, only the time. */
#include <string.h>

#include "base/base.h"
#include "world.h"

#if KVP_CHECK >= 1

enum { S = 4, UNITS = 100, NAMED = 16 /* by the index, at once */ };

static int32_t one[UNITS * S], other[UNITS * S];

static void make_prompts(uint32_t same_units)
{
    for (int32_t i = 0; i < UNITS * S; i++) {
        one[i] = i;
        other[i] = i < (int32_t)same_units * S ? i : i + 1000;
    }
}

/* What it takes to find a prompt whose first units are in the cache, and to compute the others. */
static void assert_found(world *w, const int32_t *tokens, uint64_t by_index, uint64_t by_jump)
{
    memset(&kvpi_fast, 0, sizeof(kvpi_fast));
    const kvp_seq seq = open_done(w, tokens, UNITS * S);
    assert_fields(kvpi_fast, by_index, by_index, by_jump, by_jump);
    close_seq(w, seq);
}

/* A jump leads 16 units ahead along the path that was opened last. */
TEST(test_a_prompt_is_found_by_jumps)
{
    kvp_config config = config_of(S, S, 3 * UNITS);
    config.max_seq_tokens = UNITS * S;
    scoped_world w = make_world(&config);
    make_prompts(40);
    assert_found(&w, one, 0, 0);
    assert_found(&w, one, NAMED, UNITS - NAMED);
    assert_found(&w, other, NAMED, 40 - NAMED);
    assert_found(&w, other, NAMED, UNITS - NAMED); /* its own units lead along it */
    assert_found(&w, one, 2 * NAMED, UNITS - 2 * NAMED);
    assert_found(&w, one, NAMED, UNITS - NAMED);
}

enum { WHOLE = 40 * 16 }; /* of the usual units, which are followed by a loop of their own */

/* A prompt of 40 units is open and cached, and what comes opens it again. */
static kvp_seq open_usual(world *w)
{
    kvp_config config = config_of(16, 16, 200);
    config.max_seq_tokens = WHOLE;
    config.max_unit_keys = 1;
    *w = make_world(&config);
    leave_cached(w, ints(0), WHOLE);
    return open_done(w, ints(0), WHOLE); /* jumps lead along it */
}

/* Blocks of 16 tokens have a loop of their own. */
TEST(test_usual_units_are_found_in_a_row)
{
    world w;
    const kvp_seq seq = open_usual(&w);
    memset(&kvpi_fast, 0, sizeof(kvpi_fast));
    close_seq(&w, open_done(&w, ints(0), WHOLE));
    assert_int_equal(kvpi_fast.in_a_row, WHOLE / 16 - NAMED);
    close_seq(&w, seq);
    end_world(&w);
}

static uint32_t hits_of(world *w, const kvp_prompt *prompt)
{
    kvp_open_info info;
    assert_ok(kvp_cache_match(w->cache, w->ns, prompt, &info));
    return info.hit_tokens;
}

/* Jumps lead to a unit of the same tokens and the same prefix, that has keys: it is no hit, and the
 * plain one is found by the index. */
TEST(test_a_jump_to_a_unit_with_keys)
{
    scoped_world w;
    const kvp_seq seq = open_usual(&w);
    const kvp_key image = {1, 20 * 16, 21 * 16, 1, "a"};
    kvp_prompt prompt = prompt_of(ints(0), WHOLE);
    prompt.n_keys = 1;
    prompt.keys = &image;
    kvp_seq with;
    kvp_open_info info;
    assert_ok(kvp_seq_open(w.cache, w.ns, &prompt, &with, &info));
    assert_int_equal(info.hit_tokens, 20 * 16);
    assert_ok(kvp_seq_commit(w.cache, with, WHOLE));
    close_seq(&w, with);
    assert_int_equal(hits_of(&w, &prompt), WHOLE);
    prompt = prompt_of(ints(0), WHOLE);
    assert_int_equal(hits_of(&w, &prompt), WHOLE);
    const kvp_seq again = open_done(&w, ints(0), WHOLE);
    const int32_t *row, *plain;
    uint32_t n;
    assert_ok(kvp_seq_row(w.cache, again, 0, &row, &n));
    assert_ok(kvp_seq_row(w.cache, seq, 0, &plain, &n));
    assert_memory_equal(row, plain, n * sizeof(*row));
    close_seq(&w, again);
    close_seq(&w, seq);
}

/* Jumps lead to a unit of the same prefix, with other tokens. */
TEST(test_a_jump_to_other_tokens)
{
    scoped_world w;
    int32_t tokens[WHOLE];
    const kvp_seq seq = open_usual(&w);
    memcpy(tokens, ints(0), sizeof(tokens));
    tokens[30 * 16 + 15]++;
    const kvp_prompt prompt = prompt_of(tokens, WHOLE);
    assert_int_equal(hits_of(&w, &prompt), 30 * 16);
    close_seq(&w, seq);
}

/* Jumps lead to units that were withdrawn: no hit, though their sequence still has them. */
TEST(test_a_jump_to_a_withdrawn_unit)
{
    scoped_world w;
    const kvp_seq seq = open_usual(&w);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 20 * 16, NULL, 0, NULL));
    const kvp_prompt prompt = prompt_of(ints(0), WHOLE);
    assert_int_equal(hits_of(&w, &prompt), 20 * 16);
    close_seq(&w, open_done(&w, ints(0), WHOLE));
    assert_int_equal(hits_of(&w, &prompt), WHOLE);
    close_seq(&w, seq);
}

/* Decode n tokens; assert how often the row was looked at. */
static void assert_decoded(world *w, kvp_seq seq, uint32_t n, uint64_t looks)
{
    memset(&kvpi_fast, 0, sizeof(kvpi_fast));
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(kvp_seq_extend(w->cache, seq, ints((int32_t)i), 1, 0));
        assert_ok(kvp_seq_commit(w->cache, seq, info_of(w, seq).n_tokens));
    }
    assert_int_equal(kvpi_fast.rows_looked_at, looks);
}

/* A row is looked at when it needs a block, and once when it may be shared. */
TEST(test_a_decoded_token_looks_at_its_row_when_it_needs_a_block)
{
    const kvp_config config = config_of(16, 16, 40);
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    assert_decoded(&w, seq, 11, 0); /* up to 16: the prompt's block */
    assert_decoded(&w, seq, 64, 4);
    assert_decoded(&w, seq, 4, 1);
    const kvp_seq fork = fork_seq(&w, seq, info_of(&w, seq).n_tokens);
    assert_decoded(&w, fork, 8, 1); /* its copy */
    assert_decoded(&w, seq, 8, 1);
    close_seq(&w, fork);
    assert_decoded(&w, seq, 4, 0);
}

/* What is taken next is known a jump ahead, in the order of the queue: whether it is cached, or
 * free because it was never computed. */
TEST(test_victims_are_known_before)
{
    enum { JUMP = 16 };
    kvp_config config = config_of(S, S, UNITS);
    config.max_seq_tokens = UNITS * S;
    for (int is_computed = 0; is_computed < 2; is_computed++) {
        scoped_world w = make_world(&config);
        make_prompts(0);
        close_seq(&w,
                  is_computed ? open_done(&w, one, UNITS * S) : open_seq(&w, one, UNITS * S, NULL));
        memset(&kvpi_fast, 0, sizeof(kvpi_fast));
        close_seq(&w, open_done(&w, other, UNITS * S));
        assert_int_equal(stats_of(&w).evicted_blocks, is_computed ? UNITS : 0);
        assert_true(kvpi_fast.surprising_victims <= JUMP);
    }
}

#endif

/* A library without checks counts nothing. */
TEST(test_a_library_without_checks_counts_nothing)
{
    KVPI_NOTE(by_jump, 1);
}

TEST_MAIN(NULL, NULL)

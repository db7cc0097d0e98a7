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
    assert_int_equal(kvpi_fast.by_index, by_index);
    assert_int_equal(kvpi_fast.by_jump, by_jump);
    close_seq(w, seq);
}

/* A jump leads 16 units ahead along the path that was opened last. */
TEST(test_a_prompt_is_found_by_jumps)
{
    kvp_config config = config_of(S, S, 3 * UNITS);
    config.max_seq_tokens = UNITS * S;
    world w = make_world(&config);
    make_prompts(40);
    assert_found(&w, one, 0, 0);
    assert_found(&w, one, NAMED, UNITS - NAMED);
    assert_found(&w, other, NAMED, 40 - NAMED);
    assert_found(&w, other, NAMED, UNITS - NAMED); /* its own units lead along it */
    assert_found(&w, one, 2 * NAMED, UNITS - 2 * NAMED);
    assert_found(&w, one, NAMED, UNITS - NAMED);
    end_world(&w);
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
    world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 5);
    assert_decoded(&w, seq, 11, 0); /* up to 16: the prompt's block */
    assert_decoded(&w, seq, 64, 4);
    assert_decoded(&w, seq, 4, 1);
    const kvp_seq fork = fork_seq(&w, seq, info_of(&w, seq).n_tokens);
    assert_decoded(&w, fork, 8, 1); /* its copy */
    assert_decoded(&w, seq, 8, 1);
    close_seq(&w, fork);
    assert_decoded(&w, seq, 4, 0);
    end_world(&w);
}

/* What is taken next is known a jump ahead, in the order of the queue: whether it is cached, or
 * free because it was never computed. */
TEST(test_victims_are_known_before)
{
    enum { JUMP = 16 };
    kvp_config config = config_of(S, S, UNITS);
    config.max_seq_tokens = UNITS * S;
    for (int is_computed = 0; is_computed < 2; is_computed++) {
        world w = make_world(&config);
        make_prompts(0);
        close_seq(&w,
                  is_computed ? open_done(&w, one, UNITS * S) : open_seq(&w, one, UNITS * S, NULL));
        memset(&kvpi_fast, 0, sizeof(kvpi_fast));
        close_seq(&w, open_done(&w, other, UNITS * S));
        assert_int_equal(stats_of(&w).evicted_blocks, is_computed ? UNITS : 0);
        assert_true(kvpi_fast.surprising_victims <= JUMP);
        end_world(&w);
    }
}

#endif

/* A library without checks counts nothing. */
TEST(test_a_library_without_checks_counts_nothing)
{
    KVPI_NOTE(by_jump, 1);
}

TEST_MAIN(NULL, NULL)

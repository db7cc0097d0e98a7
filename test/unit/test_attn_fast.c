/* Fast attention against the reference: every implementation that this machine has, on the worlds
 * of attn_world: all options in combination, every format of metadata, every type and layout. */
#include <math.h>
#include <string.h>

#include "mocka.h"
#include "attn_impls.h"
#include "attn_meta.h"

#ifdef __SANITIZE_THREAD__ /* which makes every access slow */
enum { CASES = 60 };
#else
enum { CASES = 1500 };
#endif

static uint32_t pool_for(const attn_params *params)
{
    return 8 + ATTENTION_MAX_SEQS * (2 + 40 / params->block_tokens);
}

static double tolerance_of(uint32_t type)
{
    switch (type) {
    case KVP_F32: return 1e-5;
    case KVP_F16:
    case KVP_BF16: return 1e-2;
    default: return 3e-2;
    }
}

/* A number that was not written in one must not be in the other; largest error over largest out. */
static void assert_close(const attn_meta *found, const attn_meta *expected)
{
    double largest = 0.0, off = 0.0;
    for (size_t i = 0; i < expected->n_out; i++) {
        if (expected->out[i] == -12345.5f || found->out[i] == -12345.5f) {
            assert_true(expected->out[i] == found->out[i]);
            continue;
        }
        if (isnan(found->out[i]))
            fail_msg("NaN at %u", (unsigned)i);
        largest = fmax(largest, fabs(expected->out[i]));
        off = fmax(off, fabs(expected->out[i] - (double)found->out[i]));
    }
    if (off > tolerance_of(found->world->params.type) * largest)
        fail_msg("off by %g of %g, type %u", off, largest, (unsigned)found->world->params.type);
    for (size_t i = 0; i < expected->n_lse; i++) {
        const double a = expected->lse[i], b = found->lse[i];
        if (isinf(a) || isinf(b))
            assert_true(a == b);
        else if (fabs(a - b) > 2.0 * tolerance_of(found->world->params.type) * fmax(1.0, fabs(a)))
            fail_msg("lse %g, not %g", b, a);
    }
}

static void check_case(uint64_t seed, kvp_attention_team *team)
{
    uint64_t random = seed;
    const attn_params params = attn_draw_params(&random);
    attn_world world = attn_begin(&params, pool_for(&params), random);
    attn_add_some(&world, 1 + attn_draw(&world.random, ATTENTION_MAX_SEQS), seed % 2 == 0,
                  seed % 3 > 0);
    attn_append_all(&world);
    attn_how how = attn_draw_how(&world);
    attn_meta *expected = attn_describe(&world, &how);
    assert_int_equal(attn_run(expected), KVP_OK);
    for (attn_running_impl = KVP_ATTENTION_PORTABLE; attn_running_impl <= KVP_ATTENTION_NEON;
         attn_running_impl++) {
        if (!attn_impls_has(attn_running_impl))
            continue;
        how.impl = attn_running_impl;
        how.team = NULL;
        attn_meta *alone = attn_describe(&world, &how);
        assert_int_equal(attn_run(alone), KVP_OK);
        assert_close(alone, expected);
        how.team = team;
        attn_meta *together = attn_describe(&world, &how);
        assert_int_equal(attn_run(together), KVP_OK);
        assert_memory_equal(alone->out, together->out, alone->n_out * sizeof(float));
        assert_memory_equal(alone->lse, together->lse, alone->n_lse * sizeof(float));
        attn_forget(alone);
        attn_forget(together);
    }
    attn_forget(expected);
    attn_end(&world);
}

TEST_WITH(test_random_cases_against_the_reference, NULL, attn_name_the_case)
{
    kvp_attention_team *team = NULL;
    (void)state;
    assert_int_equal(kvp_attention_team_create(3, &team), KVP_OK);
    for (attn_running_case = 1; attn_running_case <= CASES; attn_running_case++)
        check_case(attn_running_case, team);
    attn_running_case = 0;
    kvp_attention_team_destroy(team);
}

/* A cascade by hand: one row for both sequences of a batch, and nothing after it. */
static void share_everything(attn_meta *meta)
{
    meta->levels[0].n_rows = 1;
    meta->levels[0].n_blocks /= 2;
    meta->levels[0].query_start = meta->level_query_start[0];
    meta->level_query_start[0][1] = meta->query_start[2];
    meta->levels[1].n_rows = 2;
    meta->attention.n_levels = 2;
}

/* The queries' own keys are shared, too: none may see those after it for that. */
static void check_shared_queries(uint64_t seed)
{
    uint64_t random = seed;
    attn_params params = attn_draw_params(&random);
    params.causal = 1;
    attn_world world = attn_begin(&params, pool_for(&params), random);
    attn_add(&world, &(attn_wish){.n_tokens = 33, .n_queries = 1 + (uint32_t)(seed % 5)});
    attn_append_all(&world);
    attn_how how = {.format = ATTENTION_CSR, .n_batch = 2}; /* sequence 0, twice */
    attn_meta *expected = attn_describe(&world, &how);
    assert_int_equal(attn_run(expected), KVP_OK);
    for (attn_running_impl = KVP_ATTENTION_REFERENCE; attn_running_impl <= KVP_ATTENTION_NEON;
         attn_running_impl++) {
        if (!attn_impls_has(attn_running_impl))
            continue;
        how.impl = attn_running_impl;
        attn_meta *found = attn_describe(&world, &how);
        share_everything(found);
        assert_int_equal(attn_run(found), KVP_OK);
        assert_close(found, expected);
        attn_forget(found);
    }
    attn_forget(expected);
    attn_end(&world);
}

TEST_WITH(test_queries_in_a_shared_row_see_what_is_before_them, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 50; attn_running_case++)
        check_shared_queries(attn_running_case);
    attn_running_case = 0;
}

/* Sequences 0 and 1 begin with two blocks, 2 and 3 with three others; the next two all have. */
enum { SHORT = 2, LONG = 3, COMMON = 2 };

static void share_the_middle(attn_world *world)
{
    const uint32_t S = world->params.block_tokens;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t before = i < 2 ? SHORT : LONG, own = 1 + attn_draw(&world->random, 2 * S);
        attn_add(world, &(attn_wish){.n_tokens = (before + COMMON) * S + own,
                                     .n_queries = 1 + attn_draw(&world->random, own)});
    }
    attn_seq *s = world->seqs;
    for (uint32_t i = 0; i < SHORT + COMMON; i++)
        s[1].blocks[i] = s[0].blocks[i];
    for (uint32_t i = 0; i < COMMON; i++)
        s[2].blocks[LONG + i] = s[0].blocks[SHORT + i];
    for (uint32_t i = 0; i < LONG + COMMON; i++)
        s[3].blocks[i] = s[2].blocks[i];
}

static void put_row(attn_meta *meta, uint32_t level, const int32_t *blocks, uint32_t n,
                    uint32_t last_len)
{
    kvp_attention_level *l = &meta->levels[level];
    memcpy(meta->blocks[level] + l->n_blocks, blocks, n * sizeof *blocks);
    l->n_blocks += n;
    meta->last_len[level][l->n_rows++] = (int32_t)last_len;
    meta->row_start[level][l->n_rows] = (int32_t)l->n_blocks;
}

/* Level 0 has a row for each beginning, level 1 one row for all four, across both. */
static void describe_the_middle(attn_meta *meta)
{
    const attn_seq *s = meta->world->seqs;
    const uint32_t S = meta->world->params.block_tokens;
    for (uint32_t level = 0; level < 3; level++)
        meta->levels[level].n_rows = meta->levels[level].n_blocks = 0;
    put_row(meta, 0, s[0].blocks, SHORT, S);
    put_row(meta, 0, s[2].blocks, LONG, S);
    put_row(meta, 1, s[0].blocks + SHORT, COMMON, S);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t before = (i < 2 ? SHORT : LONG) + COMMON, n = s[i].n_blocks - before;
        put_row(meta, 2, s[i].blocks + before, n, s[i].n_tokens - (s[i].n_blocks - 1) * S);
    }
    meta->level_query_start[0][1] = meta->query_start[2];
    meta->level_query_start[0][2] = meta->level_query_start[1][1] = meta->query_start[4];
    meta->levels[0].query_start = meta->level_query_start[0];
    meta->levels[1].query_start = meta->level_query_start[1];
    meta->attention.n_levels = 3;
}

static void check_row_across_rows(uint64_t seed)
{
    uint64_t random = seed;
    attn_params params = attn_draw_params(&random);
    params.causal = 1;
    attn_world world = attn_begin(&params, pool_for(&params), random);
    share_the_middle(&world);
    attn_append_all(&world);
    attn_how how = attn_how_of(&world, ATTENTION_CSR);
    attn_meta *expected = attn_describe(&world, &how);
    assert_int_equal(attn_run(expected), KVP_OK);
    attn_assert_right(expected);
    for (attn_running_impl = KVP_ATTENTION_REFERENCE; attn_running_impl <= KVP_ATTENTION_NEON;
         attn_running_impl++) {
        if (attn_running_impl != KVP_ATTENTION_REFERENCE && !attn_impls_has(attn_running_impl))
            continue;
        how.impl = attn_running_impl;
        attn_meta *found = attn_describe(&world, &how);
        describe_the_middle(found);
        assert_int_equal(attn_run(found), KVP_OK);
        assert_close(found, expected);
        attn_forget(found);
    }
    attn_forget(expected);
    attn_end(&world);
}

TEST_WITH(test_a_row_for_sequences_of_two_rows_of_the_level_before, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 100; attn_running_case++)
        check_row_across_rows(attn_running_case);
    attn_running_case = 0;
}

/* What is appended is the same, bit for bit, scales included; also over what was there before. */
static void check_append(uint64_t seed)
{
    uint64_t random = seed;
    const attn_params params = attn_draw_params(&random);
    const attn_wish wish = {.n_tokens = 40, .n_queries = 1};
    attn_world expected, found;
    expected = attn_begin(&params, pool_for(&params), random);
    expected.append_impl = KVP_ATTENTION_REFERENCE;
    attn_add(&expected, &wish);
    attn_append_all(&expected);
    attn_append_all(&expected);
    for (attn_running_impl = KVP_ATTENTION_PORTABLE; attn_running_impl <= KVP_ATTENTION_NEON;
         attn_running_impl++) {
        if (!attn_impls_has(attn_running_impl))
            continue;
        found = attn_begin(&params, pool_for(&params), random);
        found.append_impl = attn_running_impl;
        attn_add(&found, &wish);
        attn_append_all(&found);
        attn_append_all(&found);
        assert_memory_equal(found.memory, expected.memory, expected.n_bytes);
        if (expected.scales != NULL)
            assert_memory_equal(found.scales, expected.scales,
                                (size_t)2 * expected.n_blocks * params.n_heads * sizeof(float));
        attn_end(&found);
    }
    attn_end(&expected);
}

TEST_WITH(test_append_is_the_reference_bit_for_bit, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 600; attn_running_case++)
        check_append(attn_running_case);
    attn_running_case = 0;
}

ATTN_IMPLS_MAIN

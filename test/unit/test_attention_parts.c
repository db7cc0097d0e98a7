/* Attention over parts of the keys, merged, is attention over all of them: for every window and
 * place of the cut, type and implementation, with trees, dropped blocks and several sequences. */
#include <math.h>
#include <string.h>

#include "mocka.h"
#include "attn_impls.h"
#include "attn_meta.h"

enum { MAX_PARTS = 3 };

static double tolerance_of(uint32_t impl, uint32_t type)
{
    if (impl == KVP_ATTENTION_REFERENCE)
        return 1e-6;
    switch (type) {
    case KVP_F32: return 1e-5;
    case KVP_F16:
    case KVP_BF16: return 1e-2;
    default: return 3e-2;
    }
}

/* Where each sequence's parts end, in blocks; the last one ends with the row. */
struct cuts {
    uint32_t n_parts;
    uint32_t ends[ATTENTION_MAX_SEQS][MAX_PARTS];
};

static uint32_t part_begin(const struct cuts *cuts, uint32_t seq, uint32_t part)
{
    return part == 0 ? 0 : cuts->ends[seq][part - 1];
}

/* Blocks before those that hold a sequence's own queries and its tree. */
static uint32_t past_blocks(const attn_world *world, const attn_seq *seq)
{
    const uint32_t n_last = seq->n_queries > seq->n_tree ? seq->n_queries : seq->n_tree;
    return (seq->n_tokens - n_last) / world->params.block_tokens;
}

/* A part's lists: of each sequence the blocks of the part, null where no query looks. */
static void set_lists(attn_meta *meta, const struct cuts *cuts, uint32_t part)
{
    const attn_world *world = meta->world;
    const uint32_t S = world->params.block_tokens;
    uint32_t n = 0;
    for (uint32_t i = 0; i < world->n_seqs; i++) {
        const attn_seq *seq = &world->seqs[i];
        const uint32_t begin = part_begin(cuts, i, part), end = cuts->ends[i][part];
        const uint32_t last = end * S < seq->n_tokens ? S : seq->n_tokens - (end - 1) * S;
        for (uint32_t block = begin; block < end; block++)
            meta->blocks[0][n++] = seq->recent == 0 || attn_is_needed(world, seq, block)
                                       ? seq->blocks[block]
                                       : KVP_NULL_BLOCK;
        meta->row_start[0][i + 1] = (int32_t)n;
        meta->last_len[0][i] = begin == end ? 0 : (int32_t)last;
        meta->key_offset[i] = (int32_t)(begin * S);
        meta->sink_len[i] = meta->window_offset[i] = 0;
    }
    meta->levels[0].n_blocks = n;
    meta->attention.window.sink_len = meta->sink_len;
    meta->attention.window.window_offset = meta->window_offset;
    meta->attention.window.key_offset = meta->key_offset;
}

/* The queries over one part of the keys. The last one has their own keys and the trees. */
static attn_meta *run_part(const attn_world *world, const struct cuts *cuts, uint32_t part,
                           uint32_t impl)
{
    attn_how how = attn_how_of(world, ATTENTION_CSR);
    how.impl = impl;
    attn_meta *meta = attn_describe(world, &how);
    set_lists(meta, cuts, part);
    if (part + 1 < cuts->n_parts) {
        meta->attention.causal = 0;
        meta->attention.sink_logits = NULL;
        meta->attention.window.query_positions = meta->positions;
        memset(&meta->attention.tree, 0, sizeof meta->attention.tree);
    }
    assert_int_equal(attn_run(meta), KVP_OK);
    return meta;
}

static void merge_parts(attn_meta *const *parts, uint32_t n, attn_meta *into)
{
    kvp_partial partials[MAX_PARTS];
    kvp_merge merge;
    kvp_merge_init(&merge);
    for (uint32_t i = 0; i < n; i++)
        partials[i] = (kvp_partial){.out = {parts[i]->out, 0, 0}, .lse = {parts[i]->lse, 0, 0}};
    merge.impl = into->attention.impl;
    merge.n_partials = n;
    merge.partials = partials;
    merge.n_tokens = (uint32_t)into->query_start[into->how.n_batch];
    merge.n_heads = into->attention.n_heads;
    merge.size = into->world->params.v_size;
    merge.out.data = into->out;
    merge.lse.data = into->lse;
    assert_int_equal(kvp_merge_run(&merge), KVP_OK);
}

/* Against the oracle, which knows no parts: the largest error over the largest number. */
static void assert_whole(const attn_meta *meta)
{
    const attn_world *world = meta->world;
    const double tolerance = tolerance_of(meta->attention.impl, world->params.type);
    double largest = 1e-3, off = 0.0, lse_off = 0.0;
    for (uint32_t i = 0; i < world->n_seqs; i++) {
        const uint32_t n = world->seqs[i].n_queries * meta->attention.n_heads;
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t query = j / meta->attention.n_heads, head = j % meta->attention.n_heads;
            double expected[32], lse;
            attn_expect(world, &world->seqs[i], query, head, expected, &lse);
            const float *out = attn_out(meta, i, query, head);
            for (uint32_t e = 0; e < world->params.v_size; e++) {
                assert_true(isfinite(out[e]));
                largest = fmax(largest, fabs(expected[e]));
                off = fmax(off, fabs(expected[e] - (double)out[e]));
            }
            const double found = attn_lse(meta, i, query, head);
            assert_true(isinf(lse) == isinf(found));
            if (!isinf(lse))
                lse_off = fmax(lse_off, fabs(lse - found) / fmax(1.0, fabs(lse)));
        }
    }
    if (off > tolerance * largest || lse_off > 2.0 * tolerance)
        fail_msg("off by %g of %g, lse by %g", off, largest, lse_off);
}

static void check_cuts(const attn_world *world, const struct cuts *cuts, uint32_t impl)
{
    attn_meta *parts[MAX_PARTS];
    attn_how how = attn_how_of(world, ATTENTION_CSR);
    how.impl = attn_running_impl = impl;
    attn_meta *merged = attn_describe(world, &how);
    for (uint32_t i = 0; i < cuts->n_parts; i++)
        parts[i] = run_part(world, cuts, i, impl);
    merge_parts(parts, cuts->n_parts, merged);
    assert_whole(merged);
    for (uint32_t i = 0; i < cuts->n_parts; i++)
        attn_forget(parts[i]);
    attn_forget(merged);
}

static void check_impls(const attn_world *world, const struct cuts *cuts)
{
    for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++)
        if (impl == KVP_ATTENTION_REFERENCE || attn_impls_has(impl))
            check_cuts(world, cuts, impl);
}

/* -------------------------------------------------------------------------------------- by hand */

/* One head whose K is 0, so that a result is the mean of the V that is seen: 1, 3, 5, ... */
static void begin_means(attn_world *world, const attn_wish *wish, uint32_t causal)
{
    attn_params params = {.type = KVP_F32,
                          .n_heads = 1,
                          .group = 1,
                          .k_size = 1,
                          .v_size = 1,
                          .block_tokens = 4,
                          .causal = causal};
    kvp_rope_init(&params.rope);
    *world = attn_begin(&params, 4 + wish->n_tokens / 4, 1);
    attn_add(world, wish);
    for (uint32_t i = 0; i < wish->n_tokens; i++) {
        world->seqs[0].k[i] = 0.0f;
        world->seqs[0].v[i] = 2.0f * (float)i + 1.0f;
    }
    attn_append_all(world);
}

/* Six keys, queries at 4 and 5, which see three keys each. */
TEST(test_mean_of_a_window)
{
    static const attn_wish wish = {.n_tokens = 6, .n_queries = 2, .recent = 3};
    const struct cuts cuts = {.n_parts = 2, .ends = {{1, 2}}};
    attn_world world;
    begin_means(&world, &wish, 1);
    for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++) {
        if (impl != KVP_ATTENTION_REFERENCE && !attn_impls_has(impl))
            continue;
        const attn_how how = attn_how_of(&world, ATTENTION_CSR);
        attn_meta *parts[2], *merged = attn_describe(&world, &how);
        for (uint32_t i = 0; i < 2; i++)
            parts[i] = run_part(&world, &cuts, i, impl);
        merge_parts(parts, 2, merged);
        assert_true(fabsf(merged->out[0] - 7.0f) < 1e-5f);
        assert_true(fabsf(merged->out[1] - 9.0f) < 1e-5f);
        for (uint32_t i = 0; i < 2; i++)
            attn_forget(parts[i]);
        attn_forget(merged);
    }
    attn_end(&world);
}

static void expect_mean(const attn_meta *meta, uint32_t query)
{
    const attn_seq *seq = &meta->world->seqs[0];
    const int32_t p = meta->positions[query];
    double sum = 0.0, n = 0.0;
    for (int32_t i = 0; i < (int32_t)seq->n_tokens; i++) {
        if (i >= (int32_t)seq->sinks && (i > p || i <= p - (int32_t)seq->recent))
            continue;
        sum += 2.0 * i + 1.0;
        n += 1.0;
    }
    const double out = *attn_out(meta, 0, query, 0), lse = attn_lse(meta, 0, query, 0);
    if (n == 0.0 ? out != 0.0 || lse != -(double)INFINITY
                 : fabs(out - sum / n) > 1e-3 || fabs(lse - log(n)) > 1e-5)
        fail_msg("position %d: %g, not %g", (int)p, out, sum / n);
}

/* Queries anywhere, in any order: before a part, in it, behind it. */
TEST_WITH(test_positions_in_any_order, NULL, attn_name_the_case)
{
    uint64_t random = 5;
    for (attn_running_case = 1; attn_running_case <= 200; attn_running_case++) {
        const attn_wish wish = {.n_tokens = 40 + attn_draw(&random, 24),
                                .n_queries = 1 + attn_draw(&random, 9),
                                .sinks = attn_draw(&random, 3) * attn_draw(&random, 7),
                                .recent = 1 + attn_draw(&random, 12)};
        int32_t positions[ATTENTION_MAX_TOKENS];
        attn_world world;
        begin_means(&world, &wish, 0);
        for (uint32_t i = 0; i < wish.n_queries; i++)
            positions[i] = (int32_t)attn_draw(&random, wish.n_tokens + 20);
        for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++) {
            if (impl != KVP_ATTENTION_REFERENCE && !attn_impls_has(impl))
                continue;
            attn_how how = attn_how_of(&world, ATTENTION_CSR);
            how.impl = attn_running_impl = impl;
            attn_meta *meta = attn_describe(&world, &how);
            memcpy(meta->positions, positions, wish.n_queries * sizeof *positions);
            assert_int_equal(attn_run(meta), KVP_OK);
            for (uint32_t i = 0; i < wish.n_queries; i++)
                expect_mean(meta, i);
            attn_forget(meta);
        }
        attn_end(&world);
    }
    attn_running_case = 0;
}

/* --------------------------------------------------------------------------------- every window */

enum { TOKENS = 11, QUERIES = 3, PAST_BLOCKS = 4 };

static void check_windows(uint32_t type, uint32_t sinks)
{
    attn_params params = {.type = type,
                          .n_heads = 2,
                          .group = 2,
                          .k_size = 8,
                          .v_size = 6,
                          .block_tokens = 2,
                          .causal = 1};
    kvp_rope_init(&params.rope);
    params.rope.mode = type % 2 == 0 ? KVP_ROPE_AT_WRITE : KVP_ROPE_NONE;
    for (uint32_t recent = 1; recent <= TOKENS + 1; recent++) {
        const attn_wish wish = {
            .n_tokens = TOKENS, .n_queries = QUERIES, .sinks = sinks, .recent = recent};
        attn_running_case = 100 * sinks + recent;
        attn_world world = attn_begin(&params, 16, 7 * attn_running_case + type);
        attn_add(&world, &wish);
        attn_append_all(&world);
        for (uint32_t cut = 1; cut <= PAST_BLOCKS; cut++) {
            const struct cuts two = {.n_parts = 2, .ends = {{cut, world.seqs[0].n_blocks}}};
            const struct cuts three = {.n_parts = 3,
                                       .ends = {{cut / 2, cut, world.seqs[0].n_blocks}}};
            check_impls(&world, &two);
            check_impls(&world, &three);
        }
        attn_end(&world);
    }
    attn_running_case = 0;
}

TEST_WITH(test_every_window_and_cut, NULL, attn_name_the_case)
{
    static const uint32_t types[] = {KVP_F32, KVP_F16, KVP_BF16, KVP_INT8, KVP_E4M3};
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t sinks = 0; sinks <= TOKENS; sinks += sinks < 5 ? 1 : 3)
            check_windows(types[i], sinks);
}

/* ------------------------------------------------------------------------------------ at random */

static struct cuts draw_cuts(attn_world *world)
{
    struct cuts cuts = {.n_parts = 2 + attn_draw(&world->random, MAX_PARTS - 1)};
    for (uint32_t i = 0; i < world->n_seqs; i++) {
        uint32_t end = past_blocks(world, &world->seqs[i]);
        cuts.ends[i][cuts.n_parts - 1] = world->seqs[i].n_blocks;
        for (uint32_t part = cuts.n_parts - 1; part-- > 0;) {
            end = attn_draw(&world->random, end + 1);
            cuts.ends[i][part] = end;
        }
    }
    return cuts;
}

TEST_WITH(test_random_batches, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 300; attn_running_case++) {
        uint64_t random = attn_running_case;
        attn_params params = attn_draw_params(&random);
        params.causal = 1;
        if (params.rope.mode == KVP_ROPE_AT_READ)
            params.rope.mode = KVP_ROPE_NONE;
        attn_world world =
            attn_begin(&params, 8 + ATTENTION_MAX_SEQS * (2 + 40 / params.block_tokens), random);
        attn_add_some(&world, 1 + attn_draw(&world.random, ATTENTION_MAX_SEQS),
                      attn_running_case % 2 == 0, 1);
        attn_append_all(&world);
        const struct cuts cuts = draw_cuts(&world);
        check_impls(&world, &cuts);
        attn_end(&world);
    }
    attn_running_case = 0;
}

/* -------------------------------------------------------------------------------------- refused */

static kvp_status run_changed(void (*change)(attn_meta *meta))
{
    static const attn_wish wish = {.n_tokens = 9, .n_queries = 2, .recent = 3};
    attn_params params = {.type = KVP_F32,
                          .n_heads = 1,
                          .group = 1,
                          .k_size = 2,
                          .v_size = 2,
                          .block_tokens = 4,
                          .causal = 0};
    kvp_rope_init(&params.rope);
    attn_world world = attn_begin(&params, 8, 1);
    attn_add(&world, &wish);
    attn_append_all(&world);
    attn_how how = attn_how_of(&world, ATTENTION_CSR);
    how.impl = attn_running_impl;
    attn_meta *meta = attn_describe(&world, &how);
    change(meta);
    const kvp_status status = attn_run(meta);
    if (status != KVP_OK)
        attn_assert_untouched(meta);
    attn_forget(meta);
    attn_end(&world);
    return status;
}

static void nothing(attn_meta *meta)
{
    (void)meta;
}

static void no_positions(attn_meta *meta)
{
    meta->attention.window.query_positions = NULL;
}

static void no_positions_no_window(attn_meta *meta)
{
    meta->attention.window.query_positions = NULL;
    meta->recent[0] = 0;
}

static void no_positions_but_causal(attn_meta *meta)
{
    meta->attention.window.query_positions = NULL;
    meta->attention.causal = 1;
}

static void negative(attn_meta *meta)
{
    meta->positions[1] = -1;
}

static void misaligned(attn_meta *meta)
{
    meta->attention.window.query_positions =
        (const int32_t *)(const void *)((const char *)meta->positions + 1);
}

static void turned_when_read(attn_meta *meta)
{
    meta->attention.rope.mode = KVP_ROPE_AT_READ;
    meta->attention.causal = 1;
}

static void turned_when_read_and_no_position(attn_meta *meta)
{
    meta->attention.rope.mode = KVP_ROPE_AT_READ;
    meta->attention.window.query_positions = NULL;
    meta->recent[0] = 0;
}

static void null_in_a_window(attn_meta *meta) /* the first query's begins at 5 */
{
    meta->blocks[0][1] = KVP_NULL_BLOCK;
}

static void null_before_it(attn_meta *meta)
{
    meta->blocks[0][0] = KVP_NULL_BLOCK;
}

static void null_in_an_earlier_window(
    attn_meta *meta) /* the second query's, which is not the last */
{
    meta->positions[1] = 2;
    meta->blocks[0][0] = KVP_NULL_BLOCK;
}

static void null_between_windows(attn_meta *meta) /* 0..2 and 8: nobody looks at 4..7 */
{
    meta->positions[0] = 10;
    meta->positions[1] = 2;
    meta->blocks[0][1] = KVP_NULL_BLOCK;
}

static void null_between_windows_that_rise(attn_meta *meta)
{
    meta->positions[0] = 2;
    meta->positions[1] = 10;
    meta->blocks[0][1] = KVP_NULL_BLOCK;
}

TEST(test_positions_are_needed)
{
    for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++) {
        if (impl != KVP_ATTENTION_REFERENCE && !attn_impls_has(impl))
            continue;
        attn_running_impl = impl;
        assert_int_equal(run_changed(nothing), KVP_OK);
        assert_int_equal(run_changed(no_positions), KVP_E_ARG);
        assert_int_equal(run_changed(no_positions_no_window), KVP_OK);
        assert_int_equal(run_changed(no_positions_but_causal), KVP_OK);
        assert_int_equal(run_changed(negative), KVP_E_ARG);
        assert_int_equal(run_changed(misaligned), KVP_E_ARG);
        assert_int_equal(run_changed(turned_when_read), KVP_E_ARG);
        assert_int_equal(run_changed(turned_when_read_and_no_position), KVP_E_ARG);
        assert_int_equal(run_changed(null_in_a_window), KVP_E_ARG);
        assert_int_equal(run_changed(null_before_it), KVP_OK);
        assert_int_equal(run_changed(null_in_an_earlier_window), KVP_E_ARG);
        assert_int_equal(run_changed(null_between_windows), KVP_OK);
        assert_int_equal(run_changed(null_between_windows_that_rise), KVP_OK);
    }
}

ATTN_IMPLS_MAIN

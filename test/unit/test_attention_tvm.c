/* What TVM's PagedAttentionKVCache gets wrong in attention must be right here: a batch that would
 * show each mistake, against the oracle, and the mistake itself, which must give another result. */
#include <math.h>
#include <string.h>

#include "mocka.h"
#include "attn_meta.h"

static attn_params params_of(uint32_t n_heads, uint32_t group, uint32_t block_tokens)
{
    attn_params params = {.type = KVP_F32,
                          .n_heads = n_heads,
                          .group = group,
                          .k_size = 8,
                          .v_size = 8,
                          .block_tokens = block_tokens,
                          .causal = 1};
    kvp_rope_init(&params.rope);
    return params;
}

static attn_meta *run_right(const attn_world *world, uint32_t format)
{
    const attn_how how = attn_how_of(world, format);
    attn_meta *meta = attn_describe(world, &how);
    assert_int_equal(attn_run(meta), KVP_OK);
    attn_assert_right(meta);
    return meta;
}

/* How far apart the results of a sequence's last query are. */
static double distance(const attn_meta *a, const attn_meta *b, uint32_t seq)
{
    const uint32_t query = a->world->seqs[seq].n_queries - 1;
    double most = 0.0;
    for (uint32_t e = 0; e < 8; e++) {
        const double off = fabs(attn_out(a, seq, query, 0)[e] - attn_out(b, seq, query, 0)[e]);
        most = off > most ? off : most;
    }
    return most;
}

/* Defect 5: in a batch with trees at different depths of the prefix, TVM runs the shallow one
 * without its mask, and siblings see each other. */
TEST(test_defect_5_trees_at_different_depths)
{
    const attn_params params = params_of(2, 1, 4);
    attn_world world = attn_begin(&params, 40, 1);
    attn_add(&world, &(attn_wish){.n_tokens = 21, .n_queries = 5, .n_tree = 5});
    attn_add(&world, &(attn_wish){.n_tokens = 9, .n_queries = 5, .n_tree = 5});
    attn_add(&world, &(attn_wish){.n_tokens = 22, .n_queries = 5, .n_tree = 5, .shared_blocks = 4});
    attn_add(&world, &(attn_wish){.n_tokens = 14, .n_queries = 2, .shared_blocks = 2});
    for (uint32_t n = 0; n < 3; n++) { /* five siblings */
        attn_seq *seq = &world.seqs[n];
        const uint32_t n_committed = seq->n_tokens - seq->n_tree;
        for (uint32_t i = 0; i < 5; i++) {
            seq->parents[i] = -1;
            seq->positions[n_committed + i] = (int32_t)n_committed;
        }
    }
    attn_append_all(&world);
    for (uint32_t format = 0; format < ATTENTION_FORMATS; format++) {
        attn_meta *meta = run_right(&world, format);
        const attn_how how = attn_how_of(&world, format);
        attn_meta *without = attn_describe(&world, &how);
        without->attention.tree = (kvp_attention_tree){.start = NULL};
        assert_int_equal(attn_run(without), KVP_OK);
        for (uint32_t n = 0; n < 3; n++)
            assert_true(distance(meta, without, n) > 1e-3);
        attn_forget(meta);
        attn_forget(without);
    }
    attn_end(&world);
}

/* Defect 13: TVM counts a layer's window from each block of a forked sequence, so that the end of
 * the shared prefix is seen besides. Prefix 16, suffix 9, R = 8: the suffix's last eight, nothing
 * else. */
TEST(test_defect_13_a_window_over_a_forked_prefix)
{
    const attn_params params = params_of(1, 2, 4);
    attn_world world = attn_begin(&params, 40, 2);
    attn_add(&world, &(attn_wish){.n_tokens = 16});
    attn_add(&world, &(attn_wish){.n_tokens = 25, .n_queries = 9, .recent = 8, .shared_blocks = 4});
    attn_append_all(&world);
    const attn_seq *seq = &world.seqs[1];
    uint32_t n_seen = 0;
    for (uint32_t key = 0; key < 25; key++)
        n_seen += (uint32_t)attn_sees(&world, seq, 8, key);
    assert_int_equal(n_seen, 8);
    for (uint32_t format = 0; format < ATTENTION_FORMATS; format++) {
        attn_meta *meta = run_right(&world, format);
        const attn_how how = attn_how_of(&world, format);
        attn_meta *wider = attn_describe(&world, &how);
        wider->recent[1] = 16; /* as if the prefix's last eight were seen, too */
        if (format == ATTENTION_DENSE || format == ATTENTION_CSR || format == ATTENTION_CASCADE) {
            assert_int_equal(attn_run(wider), KVP_OK);
            assert_true(distance(meta, wider, 1) > 1e-3);
        }
        attn_forget(meta);
        attn_forget(wider);
    }
    attn_end(&world);
}

/* TVM's kernels were wrong for 28 query heads: only 32 were tested. */
TEST(test_head_counts_that_are_no_powers_of_two)
{
    static const uint32_t counts[][2] = {{4, 7}, {1, 28}, {3, 5}, {7, 1}, {5, 6}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const attn_params params = params_of(counts[i][0], counts[i][1], 3);
        attn_world world = attn_begin(&params, 40, 3 + i);
        attn_add(&world, &(attn_wish){.n_tokens = 17, .n_queries = 4});
        attn_add(&world, &(attn_wish){.n_tokens = 8, .n_queries = 1});
        attn_append_all(&world);
        for (uint32_t format = 0; format < ATTENTION_FORMATS; format++)
            attn_forget(run_right(&world, format));
        attn_end(&world);
    }
}

/* TVM turned the keys of windowed layers with a base of its own, whatever the model's. */
TEST(test_windows_turn_with_the_model_s_base)
{
    for (uint32_t mode = KVP_ROPE_AT_WRITE; mode <= KVP_ROPE_AT_READ; mode++) {
        attn_world world, other;
        attn_params params = params_of(2, 2, 4);
        params.rope.mode = mode;
        params.rope.theta = 500000.0;
        world = attn_begin(&params, 40, 9);
        params.rope.theta = 10000.0;
        other = attn_begin(&params, 40, 9);
        for (int i = 0; i < 2; i++) {
            attn_world *w = i == 0 ? &world : &other;
            attn_add(w, &(attn_wish){.n_tokens = 30, .n_queries = 1, .sinks = 2, .recent = 12});
            attn_append_all(w);
        }
        attn_meta *a = run_right(&world, ATTENTION_DROPPED),
                  *b = run_right(&other, ATTENTION_DROPPED);
        assert_true(distance(a, b, 0) > 1e-4);
        attn_forget(a);
        attn_forget(b);
        attn_end(&world);
        attn_end(&other);
    }
}

/* TVM merges a prefix only for neighbours in the batch; whoever stands between must not matter. */
TEST(test_sharers_need_not_be_neighbours)
{
    const attn_params params = params_of(2, 2, 4);
    attn_world world = attn_begin(&params, 60, 11);
    attn_add(&world, &(attn_wish){.n_tokens = 18, .n_queries = 1});
    attn_add(&world, &(attn_wish){.n_tokens = 11, .n_queries = 3});
    attn_add(&world, &(attn_wish){.n_tokens = 20, .n_queries = 1, .shared_blocks = 4});
    attn_add(&world, &(attn_wish){.n_tokens = 6, .n_queries = 6});
    attn_add(&world, &(attn_wish){.n_tokens = 19, .n_queries = 2, .shared_blocks = 2});
    attn_append_all(&world);
    attn_meta *cascade = run_right(&world, ATTENTION_CASCADE),
              *plain = run_right(&world, ATTENTION_CSR);
    attn_assert_same(cascade, plain);
    assert_int_equal(cascade->levels[0].n_blocks, 2); /* listed once for three */
    assert_int_equal(cascade->levels[1].n_blocks, 2);
    attn_forget(cascade);
    attn_forget(plain);
    attn_end(&world);
}

TEST_MAIN(NULL, NULL)

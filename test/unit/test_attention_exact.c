/* Attention in numbers: cases that can be worked out by hand, the vectors of an independent program
 * (test/golden/make_attention_vectors.py), and merging. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include <golden/attention_vectors.h>
#include "attn_meta.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ------------------------------------------------------------------------------- golden vectors */

static void assert_close(double found, double expected, double off)
{
    if (!(fabs(found - expected) <= off))
        fail_msg("found %.17g, expected %.17g", found, expected);
}

TEST(test_frequencies)
{
    for (size_t i = 0; i < COUNT(rope_vectors); i++) {
        const rope_vector *vector = &rope_vectors[i];
        double found[64], magnitude;
        uint32_t n_pairs = 99;
        assert_int_equal(kvp_rope_frequencies(&vector->rope, vector->dims, NULL, 0, &n_pairs, NULL),
                         KVP_OK);
        assert_int_equal(n_pairs, vector->n_pairs);
        assert_int_equal(
            kvp_rope_frequencies(&vector->rope, vector->dims, found, 64, &n_pairs, &magnitude),
            KVP_OK);
        assert_close(magnitude, vector->magnitude, 1e-15);
        for (uint32_t pair = 0; pair < n_pairs; pair++)
            assert_close(found[pair] / vector->frequencies[pair], 1.0, 1e-13);
    }
}

TEST(test_frequencies_refused)
{
    kvp_rope rope;
    double found[8] = {7};
    uint32_t n_pairs = 99;
    kvp_rope_init(&rope);
    kvp_rope_init(NULL);
    assert_int_equal(kvp_rope_frequencies(&rope, 8, NULL, 0, &n_pairs, NULL), KVP_OK);
    assert_int_equal(n_pairs, 0); /* KVP_ROPE_NONE */
    rope.mode = KVP_ROPE_AT_READ;
    n_pairs = 99;
    assert_int_equal(kvp_rope_frequencies(NULL, 8, found, 8, &n_pairs, NULL), KVP_E_ARG);
    assert_int_equal(kvp_rope_frequencies(&rope, 0, found, 8, &n_pairs, NULL), KVP_E_ARG);
    assert_int_equal(kvp_rope_frequencies(&rope, 7, found, 8, &n_pairs, NULL), KVP_E_ARG);
    assert_int_equal(kvp_rope_frequencies(&rope, 8, NULL, 8, &n_pairs, NULL), KVP_E_ARG);
    assert_int_equal(kvp_rope_frequencies(&rope, 8, found, 8, NULL, NULL), KVP_E_ARG);
    assert_int_equal(n_pairs, 99);
    assert_int_equal(kvp_rope_frequencies(&rope, 8, found, 3, &n_pairs, NULL), KVP_E_TOO_SMALL);
    assert_int_equal(n_pairs, 4);
    assert_true(found[0] == 7);
}

/* A world with one sequence: the vector's. */
static void load_vector(attn_world *world, const attention_vector *vector)
{
    const attn_params params = {.type = KVP_F32,
                                .order = vector->latent ? ATTENTION_LATENT : ATTENTION_NHD,
                                .n_heads = vector->n_heads,
                                .group = vector->group,
                                .k_size = vector->k_size,
                                .v_size = vector->v_size,
                                .block_tokens = vector->block_tokens,
                                .causal = vector->causal,
                                .scale = vector->scale,
                                .soft_cap = vector->soft_cap,
                                .has_sinks = vector->has_sink_logits != 0,
                                .rope = vector->rope};
    const attn_wish wish = {vector->n_tokens, vector->n_queries, vector->n_tree,
                            vector->sinks,    vector->recent,    0};
    const size_t n_q = (size_t)vector->n_heads * vector->group;
    *world = attn_begin(&params, 32, 3);
    attn_add(world, &wish);
    attn_seq *seq = &world->seqs[0];
    const uint32_t n_committed = vector->n_tokens - vector->n_tree;
    memcpy(seq->k, vector->k,
           (size_t)vector->n_tokens * vector->n_heads * vector->k_size * sizeof(float));
    if (!vector->latent)
        memcpy(seq->v, vector->v,
               (size_t)vector->n_tokens * vector->n_heads * vector->v_size * sizeof(float));
    memcpy(seq->q, vector->q, vector->n_queries * n_q * vector->k_size * sizeof(float));
    memcpy(world->sink_logits, vector->sink_logits, n_q * sizeof(float));
    for (uint32_t i = 0; i < vector->n_tree; i++) {
        const int32_t parent = vector->parents[i];
        seq->parents[i] = parent;
        seq->positions[n_committed + i] =
            parent < 0 ? (int32_t)n_committed : seq->positions[(int32_t)n_committed + parent] + 1;
    }
    attn_append_all(world);
}

TEST(test_attention_vectors)
{
    for (size_t i = 0; i < COUNT(attention_vectors); i++) {
        const attention_vector *vector = &attention_vectors[i];
        attn_world world;
        load_vector(&world, vector);
        const uint32_t n_q = vector->n_heads * vector->group;
        for (uint32_t format = 0; format < ATTENTION_FORMATS; format++) {
            const attn_how how = attn_how_of(&world, format);
            attn_meta *meta = attn_describe(&world, &how);
            print_message("%s, format %u\n", vector->name, format);
            assert_int_equal(attn_run(meta), KVP_OK);
            for (uint32_t j = 0; j < vector->n_queries * n_q; j++) {
                const float *out = attn_out(meta, 0, j / n_q, j % n_q);
                for (uint32_t e = 0; e < vector->v_size; e++)
                    assert_close(out[e], vector->out[j * vector->v_size + e], 1e-6);
                assert_close(attn_lse(meta, 0, j / n_q, j % n_q), vector->lse[j], 1e-6);
            }
            attn_forget(meta);
        }
        attn_end(&world);
    }
}

/* -------------------------------------------------------------------------------------- by hand */

/* One head, D = 1, Dv = 1, blocks of two tokens: keys 0, ln 3, ln 5 in blocks 3 and 1; q = 1. */
struct tiny {
    float k[4][2];
    float v[4][2];
    float q[1];
    float out[1];
    float lse[1];
    kvp_layer layer;
    kvp_attention_level level;
    kvp_attention attention;
};

static const int32_t tiny_blocks[] = {3, 1};
static const int32_t tiny_lengths[] = {3};
static const int32_t tiny_queries[] = {0, 1};

static void make_tiny(struct tiny *tiny)
{
    memset(tiny, 0, sizeof *tiny);
    tiny->layer = (kvp_layer){.type = KVP_F32, .n_blocks = 4, .block_tokens = 2, .n_heads = 1};
    tiny->layer.k = (kvp_layer_part){.base = (unsigned char *)tiny->k,
                                     .block_stride = 8,
                                     .token_stride = 4,
                                     .size = 1,
                                     .run = 1};
    tiny->layer.v = tiny->layer.k;
    tiny->layer.v.base = (unsigned char *)tiny->v;
    tiny->k[3][0] = 0.0f;
    tiny->k[3][1] = logf(3.0f);
    tiny->k[1][0] = logf(5.0f);
    tiny->v[3][0] = 90.0f;
    tiny->v[3][1] = 9.0f;
    tiny->v[1][0] = 0.9f;
    tiny->q[0] = 1.0f;
    tiny->level = (kvp_attention_level){.n_rows = 1,
                                        .n_blocks = 2,
                                        .blocks = tiny_blocks,
                                        .row_stride = 2,
                                        .lengths = tiny_lengths};
    kvp_attention_init(&tiny->attention);
    tiny->attention.impl = KVP_ATTENTION_REFERENCE;
    tiny->attention.layer = &tiny->layer;
    tiny->attention.n_seqs = tiny->attention.n_tokens = tiny->attention.n_heads = 1;
    tiny->attention.query_start = tiny_queries;
    tiny->attention.levels = &tiny->level;
    tiny->attention.q.data = tiny->q;
    tiny->attention.out.data = tiny->out;
    tiny->attention.lse.data = tiny->lse;
}

static void expect_tiny(struct tiny *tiny, double out, double sum)
{
    _Alignas(KVP_SCRATCH_ALIGN) unsigned char scratch[1024];
    size_t n_bytes;
    assert_int_equal(kvp_attention_bytes(&tiny->attention, &n_bytes), KVP_OK);
    assert_true(n_bytes <= sizeof scratch);
    assert_int_equal(kvp_attention_run(&tiny->attention, scratch, n_bytes), KVP_OK);
    assert_close(tiny->out[0], out, 1e-6 * (1 + fabs(out)));
    assert_close(exp(tiny->lse[0]), sum, 1e-6 * sum);
}

TEST(test_by_hand)
{
    const float sink = logf(6.0f);
    const int32_t first_two[] = {2}, nothing[] = {0};
    struct tiny tiny;
    make_tiny(&tiny); /* weights 1/9, 3/9, 5/9 */
    expect_tiny(&tiny, 10.0 + 3.0 + 0.5, 9.0);
    tiny.level.lengths = first_two; /* 1/4, 3/4 */
    expect_tiny(&tiny, 22.5 + 6.75, 4.0);
    make_tiny(&tiny);
    tiny.attention.sink_logits = &sink; /* 1/15, 3/15, 5/15 */
    expect_tiny(&tiny, 6.0 + 1.8 + 0.3, 15.0);
    tiny.level.lengths = nothing; /* the sink is all that there is */
    tiny.attention.causal = 0;
    expect_tiny(&tiny, 0.0, 6.0);
    make_tiny(&tiny);
    tiny.attention.scale = 2.0; /* 1/35, 9/35, 25/35 */
    expect_tiny(&tiny, (90.0 + 81.0 + 22.5) / 35.0, 35.0);
    make_tiny(&tiny);
    tiny.attention.window.recent_tokens = 2; /* 3/8, 5/8 */
    expect_tiny(&tiny, 27.0 / 8.0 + 4.5 / 8.0, 8.0);
    tiny.attention.window.recent_tokens = 1;
    tiny.attention.window.sink_tokens = 1; /* 1/6, 5/6 */
    expect_tiny(&tiny, 15.0 + 0.75, 6.0);
    make_tiny(&tiny);
    tiny.attention.soft_cap = 1.0;
    const double a = exp(tanh(log(3.0))), b = exp(tanh(log(5.0)));
    expect_tiny(&tiny, (90.0 + 9.0 * a + 0.9 * b) / (1 + a + b), 1 + a + b);
}

TEST(test_nothing_to_see)
{
    const int32_t nothing[] = {0};
    _Alignas(KVP_SCRATCH_ALIGN) unsigned char scratch[1024];
    struct tiny tiny;
    make_tiny(&tiny);
    tiny.level.lengths = nothing;
    tiny.attention.causal = 0;
    tiny.out[0] = tiny.lse[0] = 5.0f;
    assert_int_equal(kvp_attention_run(&tiny.attention, scratch, sizeof scratch), KVP_OK);
    assert_true(tiny.out[0] == 0.0f);
    assert_true(tiny.lse[0] == -INFINITY);
}

/* What is not there does not hurt, what is broken shows. */
TEST(test_infinities_and_nan)
{
    _Alignas(KVP_SCRATCH_ALIGN) unsigned char scratch[1024];
    struct tiny tiny;
    make_tiny(&tiny);
    tiny.k[3][0] = -INFINITY; /* no weight */
    expect_tiny(&tiny, 27.0 / 8.0 + 4.5 / 8.0, 8.0);
    tiny.k[3][1] = tiny.k[1][0] = -INFINITY; /* nothing has any */
    assert_int_equal(kvp_attention_run(&tiny.attention, scratch, sizeof scratch), KVP_OK);
    assert_true(tiny.out[0] == 0.0f && tiny.lse[0] == -INFINITY);
    for (int i = 0; i < 4; i++) {
        make_tiny(&tiny);
        if (i == 3)
            tiny.k[3][1] = tiny.k[1][0] = NAN;
        tiny.k[i == 2 ? 1 : 3][i == 1] = NAN;
        assert_int_equal(kvp_attention_run(&tiny.attention, scratch, sizeof scratch), KVP_OK);
        assert_true(isnan(tiny.out[0]) && isnan(tiny.lse[0]));
    }
}

/* ---------------------------------------------------------------------------------------- merge */

/* A sequence's keys cut into parts at block borders, each attended by itself. */
enum { PARTS = 3 };

/* Runs a test with every implementation of the merge that this machine has. */
static uint32_t merge_impl;

static void with_every_merge(void (*test)(void))
{
    for (merge_impl = KVP_ATTENTION_REFERENCE; merge_impl <= KVP_ATTENTION_NEON; merge_impl++)
        if (kvp_attention_has(merge_impl))
            test();
}

static attn_params merge_params(int has_sinks)
{
    attn_params params = {.type = KVP_F32,
                          .n_heads = 2,
                          .group = 2,
                          .k_size = 8,
                          .v_size = 6,
                          .block_tokens = 4,
                          .causal = 1,
                          .has_sinks = has_sinks};
    kvp_rope_init(&params.rope);
    return params;
}

/* Part i has blocks [3 i, 3 i + 3) of the row; the last one the queries' own keys. */
static attn_meta *run_part(const attn_world *world, uint32_t i)
{
    const attn_how how = attn_how_of(world, ATTENTION_CSR);
    attn_meta *meta = attn_describe(world, &how);
    const attn_seq *seq = &world->seqs[0];
    const uint32_t n = i + 1 < PARTS ? 3 : seq->n_blocks - 3 * i;
    meta->levels[0].blocks = meta->blocks[0] + (size_t)3 * i;
    meta->levels[0].n_blocks = n;
    meta->row_start[0][1] = (int32_t)n;
    if (i + 1 < PARTS) {
        meta->last_len[0][0] = 4;
        meta->attention.causal = 0;
        meta->attention.sink_logits = NULL;
    }
    assert_int_equal(attn_run(meta), KVP_OK);
    return meta;
}

static kvp_partial partial_of(const attn_meta *meta)
{
    return (kvp_partial){.out = {meta->out, 0, 0}, .lse = {meta->lse, 0, 0}};
}

static kvp_merge merge_of(const kvp_partial *partials, uint32_t n, attn_meta *into)
{
    kvp_merge merge;
    kvp_merge_init(&merge);
    merge.impl = merge_impl;
    merge.n_partials = n;
    merge.partials = partials;
    merge.n_tokens = (uint32_t)into->query_start[1];
    merge.n_heads = into->attention.n_heads;
    merge.size = into->world->params.v_size;
    merge.out.data = into->out;
    merge.lse.data = into->lse;
    return merge;
}

static void assert_alike(const attn_meta *a, const attn_meta *b)
{
    for (size_t i = 0; i < (size_t)a->query_start[1] * a->attention.n_heads; i++) {
        for (size_t e = 0; e < 6; e++)
            assert_close(a->out[i * 6 + e], b->out[i * 6 + e], 5e-7);
        assert_close(a->lse[i], b->lse[i], 1e-6);
    }
}

static void check_parts(int has_sinks, uint64_t seed)
{
    attn_meta *parts[PARTS], *made[3];
    kvp_partial partials[PARTS];
    const attn_params params = merge_params(has_sinks);
    attn_world world = attn_begin(&params, 32, seed);
    attn_add(&world, &(attn_wish){.n_tokens = 33, .n_queries = 5});
    attn_append_all(&world);
    const attn_how how = attn_how_of(&world, ATTENTION_CSR);
    attn_meta *whole = attn_describe(&world, &how);
    assert_int_equal(attn_run(whole), KVP_OK);
    for (uint32_t i = 0; i < PARTS; i++) {
        parts[i] = run_part(&world, i);
        partials[i] = partial_of(parts[i]);
        made[i] = attn_describe(&world, &how);
    }
    kvp_merge all = merge_of(partials, PARTS, made[0]); /* a b c */
    assert_int_equal(kvp_merge_run(&all), KVP_OK);
    assert_alike(made[0], whole);
    kvp_merge front = merge_of(partials, 2, made[1]); /* (a b) c, into a b itself */
    assert_int_equal(kvp_merge_run(&front), KVP_OK);
    const kvp_partial left[] = {partial_of(made[1]), partials[2]};
    front.partials = left;
    assert_int_equal(kvp_merge_run(&front), KVP_OK);
    assert_alike(made[1], made[0]);
    kvp_merge back = merge_of(partials + 1, 2, made[2]); /* (b c) a */
    assert_int_equal(kvp_merge_run(&back), KVP_OK);
    const kvp_partial right[] = {partial_of(made[2]), partials[0]};
    back.partials = right;
    assert_int_equal(kvp_merge_run(&back), KVP_OK);
    assert_alike(made[2], made[0]);
    for (uint32_t i = 0; i < PARTS; i++) {
        attn_forget(parts[i]);
        attn_forget(made[i]);
    }
    attn_forget(whole);
    attn_end(&world);
}

static void check_all_parts(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        check_parts(seed % 2 == 0, seed);
}

TEST(test_parts_merge_to_the_whole_in_any_order)
{
    with_every_merge(check_all_parts);
}

/* out = (1 x 4 + 3 x 8) / 4 where the sums are 1 and 3. */
static void check_merge_by_hand(void)
{
    const float outs[3] = {4.0f, 8.0f, NAN};
    const float lses[3] = {0.0f, logf(3.0f), -INFINITY};
    float out = 0, lse = 0;
    const kvp_partial partials[] = {{{&outs[0], 0, 0}, {&lses[0], 0, 0}},
                                    {{&outs[1], 0, 0}, {&lses[1], 0, 0}},
                                    {{&outs[2], 0, 0}, {&lses[2], 0, 0}}};
    kvp_merge merge;
    kvp_merge_init(&merge);
    merge.impl = merge_impl;
    merge.n_tokens = merge.n_heads = merge.size = 1;
    merge.n_partials = 3; /* the third saw nothing: it does not count, whatever is in it */
    merge.partials = partials;
    merge.out.data = &out;
    merge.lse.data = &lse;
    assert_int_equal(kvp_merge_run(&merge), KVP_OK);
    assert_close(out, 7.0, 1e-6);
    assert_close(lse, log(4.0), 1e-6);
    merge.n_partials = 1;
    assert_int_equal(kvp_merge_run(&merge), KVP_OK);
    assert_true(out == 4.0f && lse == 0.0f);
    merge.partials = partials + 2; /* nothing at all */
    assert_int_equal(kvp_merge_run(&merge), KVP_OK);
    assert_true(out == 0.0f && lse == -INFINITY);
    const float broken = NAN; /* an lse that is broken shows */
    const kvp_partial with_nan[] = {partials[0], {{&outs[1], 0, 0}, {&broken, 0, 0}}};
    merge.partials = with_nan;
    merge.n_partials = 2;
    assert_int_equal(kvp_merge_run(&merge), KVP_OK);
    assert_true(isnan(out) && isnan(lse));
}

TEST(test_merge_by_hand)
{
    with_every_merge(check_merge_by_hand);
}

#define MERGE_REFUSED(change)                                                                      \
    do {                                                                                           \
        float out[4] = {5, 5, 5, 5}, lse[4] = {5, 5, 5, 5};                                        \
        kvp_partial partial = {{values, 0, 0}, {values, 0, 0}};                                    \
        kvp_merge merge;                                                                           \
        kvp_merge *m = &merge;                                                                     \
        kvp_merge_init(m);                                                                         \
        merge.n_tokens = 2;                                                                        \
        merge.n_heads = 2;                                                                         \
        merge.size = 1;                                                                            \
        merge.n_partials = 1;                                                                      \
        merge.partials = &partial;                                                                 \
        merge.out.data = out;                                                                      \
        merge.lse.data = lse;                                                                      \
        assert_int_equal(kvp_merge_run(m), KVP_OK);                                                \
        out[0] = 5;                                                                                \
        change;                                                                                    \
        assert_int_equal(kvp_merge_run(m), KVP_E_ARG);                                             \
        assert_true(out[0] == 5);                                                                  \
    } while (0)

TEST(test_merge_refused)
{
    static const float values[4] = {1, 2, 3, 4};
    assert_int_equal(kvp_merge_run(NULL), KVP_E_ARG);
    kvp_merge_init(NULL);
    MERGE_REFUSED(m->struct_size++);
    MERGE_REFUSED(m->impl = 99);
    MERGE_REFUSED(m->n_partials = 0);
    MERGE_REFUSED(m->n_partials = KVP_MERGE_MAX + 1);
    MERGE_REFUSED(m->size = 0);
    MERGE_REFUSED(m->partials = NULL);
    MERGE_REFUSED(m->partials = (const kvp_partial *)((const char *)&partial + 1));
    MERGE_REFUSED(partial.out.data = NULL);
    MERGE_REFUSED(partial.lse.data = NULL);
    MERGE_REFUSED(m->out.data = NULL);
    MERGE_REFUSED(m->out.data = (float *)((char *)out + 2));
    MERGE_REFUSED((m->out.token_stride = 1, m->out.head_stride = 1));
    MERGE_REFUSED((m->lse.token_stride = 0, m->lse.head_stride = 1));
    MERGE_REFUSED(m->out.token_stride = SIZE_MAX);
}

TEST_MAIN(NULL, NULL)

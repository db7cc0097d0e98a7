/* Fast attention against the reference where a batch is cut: long sequences in splits, many queries
 * in tiles, shared prefixes in segments; heads of usual sizes, blocks that kernels use as they lie
 * and blocks that they do not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>

#include "attn_impls.h"
#include "attn_world.h"

/* What is to be tried: sequences of the same length, the first `shared` tokens in common. */
struct shape {
    uint32_t heads;
    uint32_t group;
    uint32_t dims;
    uint32_t block_tokens;
    uint32_t n_seqs;
    uint32_t n_tokens;
    uint32_t n_queries;
    uint32_t shared;
    uint32_t recent;
    const char *order;
};

static const struct shape shapes[] = {
    {2, 4, 128, 64, 2, 2500, 1, 0, 0, KVP_ORDER_CPU},
    {2, 4, 128, 16, 1, 1100, 3, 0, 0, KVP_ORDER_FLASHINFER_NHD},
    {1, 4, 128, 16, 1, 200, 100, 0, 0, KVP_ORDER_FLASHINFER_HND},
    {2, 2, 64, 16, 2, 300, 150, 0, 70, KVP_ORDER_CPU},
    {2, 3, 80, 5, 3, 330, 20, 0, 0, KVP_ORDER_CPU},
    {2, 4, 128, 16, 5, 1400, 1, 1200, 0, KVP_ORDER_CPU},
    {1, 8, 64, 16, 12, 200, 6, 160, 0, KVP_ORDER_VLLM_NHD},
    {1, 1, 96, 32, 3, 2100, 1, 0, 1500, KVP_ORDER_VLLM_HND},
    {1, 1, 16, 64, 1, 70000, 1, 0, 0, KVP_ORDER_CPU},
    {1, 130, 48, 16, 1, 120, 2, 0, 0, KVP_ORDER_CPU},
    {2, 4, 128, 16, 2, 150, 8, 128, 0, KVP_ORDER_VLLM_PAGED_K},
};

static const uint32_t types[] = {KVP_F32, KVP_F16, KVP_BF16, KVP_INT8, KVP_E4M3};

struct batch {
    const struct shape *shape;
    kvp_memory *memory;
    kvp_layer layer;
    int32_t *blocks[2];
    int32_t *row_start[2];
    int32_t *last_len[2];
    int32_t *level_start[2];
    int32_t *query_start;
    kvp_attention_level levels[2];
    float *q;
    size_t n_out;
    double tolerance;
};

static void *take(size_t n_bytes)
{
    void *made = calloc(1, n_bytes + 1);
    assert_non_null(made);
    return made;
}

static void fill(struct batch *b, uint64_t *random)
{
    const struct shape *shape = b->shape;
    float *values = take(shape->dims * sizeof *values);
    for (uint32_t block = 1; block < b->layer.n_blocks; block++) {
        for (uint32_t i = 0; i < shape->block_tokens * shape->heads * 2; i++) {
            const int64_t slot = (int64_t)block * shape->block_tokens + i / 2 / shape->heads;
            for (uint32_t e = 0; e < shape->dims; e++)
                values[e] = (float)(1.7 * attn_draw_real(random));
            assert_int_equal(
                kvp_layer_write(&b->layer, (int)i % 2, slot, i / 2 % shape->heads, values), KVP_OK);
        }
    }
    free(values);
}

/* All elements of K and V. */
static void fill_all(struct batch *b, float value)
{
    float values[128];
    assert_true(b->shape->dims <= 128);
    for (uint32_t e = 0; e < b->shape->dims; e++)
        values[e] = value;
    for (int64_t slot = 0; slot < (int64_t)b->layer.n_blocks * b->shape->block_tokens; slot++) {
        for (uint32_t head = 0; head < b->shape->heads; head++) {
            assert_int_equal(kvp_layer_write(&b->layer, KVP_K, slot, head, values), KVP_OK);
            assert_int_equal(kvp_layer_write(&b->layer, KVP_V, slot, head, values), KVP_OK);
        }
    }
}

static void make_memory(struct batch *b, uint32_t type, uint32_t n_blocks, uint64_t *random)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = type;
    layout.n_blocks = n_blocks;
    layout.block_tokens = b->shape->block_tokens;
    layout.n_layers = 1;
    layout.n_heads = b->shape->heads;
    layout.k.size = layout.v.size = b->shape->dims;
    const int is_split = b->shape->order == shapes[10].order;
    assert_int_equal(
        kvp_layout_arrange(&layout, b->shape->order, is_split ? KVP_ORDER_VLLM_PAGED_V : NULL),
        KVP_OK);
    if (type == KVP_INT8 || type == KVP_E4M3)
        assert_int_equal(kvp_layout_add_scales(&layout, "N2H"), KVP_OK);
    assert_int_equal(kvp_memory_create(&layout, NULL, &b->memory), KVP_OK);
    assert_int_equal(kvp_memory_layer(b->memory, 0, &b->layer), KVP_OK);
    fill(b, random);
}

/* Level 0: what all share; level 1: the rest of each. Without shared blocks, level 1 only. */
static void make_rows(struct batch *b)
{
    const struct shape *s = b->shape;
    const uint32_t shared = s->shared / s->block_tokens;
    const uint32_t own = (s->n_tokens + s->block_tokens - 1) / s->block_tokens - shared;
    for (int i = 0; i < 2; i++) {
        b->blocks[i] = take((shared + (size_t)s->n_seqs * own) * sizeof(int32_t));
        b->row_start[i] = take((s->n_seqs + 1) * sizeof(int32_t));
        b->last_len[i] = take(s->n_seqs * sizeof(int32_t));
        b->level_start[i] = take((s->n_seqs + 1) * sizeof(int32_t));
    }
    b->query_start = take((s->n_seqs + 1) * sizeof(int32_t));
    for (uint32_t i = 0; i < shared; i++)
        b->blocks[0][i] = 1 + (int32_t)i;
    b->row_start[0][1] = (int32_t)shared;
    b->last_len[0][0] = (int32_t)s->block_tokens;
    b->level_start[0][1] = (int32_t)(s->n_seqs * s->n_queries);
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        for (uint32_t j = 0; j < own; j++)
            b->blocks[1][i * own + j] = 1 + (int32_t)(shared + (j * 7 % own) * s->n_seqs + i);
        if (own % 7 == 0) /* not a permutation then */
            for (uint32_t j = 0; j < own; j++)
                b->blocks[1][i * own + j] = 1 + (int32_t)(shared + j * s->n_seqs + i);
        b->row_start[1][i + 1] = (int32_t)((i + 1) * own);
        b->last_len[1][i] = (int32_t)((s->n_tokens - 1) % s->block_tokens) + 1;
        b->query_start[i + 1] = b->level_start[1][i + 1] = (int32_t)((i + 1) * s->n_queries);
    }
    for (int i = 0; i < 2; i++)
        b->levels[i] = (kvp_attention_level){.n_rows = i == 0 ? 1 : s->n_seqs,
                                             .n_blocks = i == 0 ? shared : s->n_seqs * own,
                                             .blocks = b->blocks[i],
                                             .row_start = b->row_start[i],
                                             .last_len = b->last_len[i],
                                             .query_start = b->level_start[i]};
}

static double tolerance_of(uint32_t type)
{
    return type == KVP_F32 ? 1e-5 : type == KVP_F16 || type == KVP_BF16 ? 1e-2 : 3e-2;
}

static void make_batch(struct batch *b, const struct shape *shape, uint32_t type)
{
    uint64_t random = type;
    *b = (struct batch){.shape = shape, .tolerance = tolerance_of(type)};
    const uint32_t n_blocks =
        shape->n_seqs * ((shape->n_tokens + shape->block_tokens - 1) / shape->block_tokens) + 1;
    make_memory(b, type, n_blocks, &random);
    make_rows(b);
    b->n_out = (size_t)shape->n_seqs * shape->n_queries * shape->heads * shape->group * shape->dims;
    b->q = take(b->n_out * sizeof *b->q);
    for (size_t i = 0; i < b->n_out; i++)
        b->q[i] = (float)(1.7 * attn_draw_real(&random));
}

static void end_batch(struct batch *b)
{
    kvp_memory_destroy(b->memory);
    for (int i = 0; i < 2; i++) {
        free(b->blocks[i]);
        free(b->row_start[i]);
        free(b->last_len[i]);
        free(b->level_start[i]);
    }
    free(b->query_start);
    free(b->q);
}

/* Results of one implementation: out, then lse. */
static float *run(const struct batch *b, uint32_t impl, uint32_t rope_mode,
                  kvp_attention_team *team)
{
    const struct shape *s = b->shape;
    kvp_attention attention;
    size_t n_bytes;
    float *found = take((b->n_out + b->n_out / s->dims) * sizeof *found);
    kvp_attention_init(&attention);
    attention.impl = impl;
    attention.team = team;
    attention.layer = &b->layer;
    attention.n_seqs = s->n_seqs;
    attention.n_tokens = s->n_seqs * s->n_queries;
    attention.n_heads = s->heads * s->group;
    attention.query_start = b->query_start;
    attention.levels = s->shared > 0 ? b->levels : b->levels + 1;
    attention.n_levels = s->shared > 0 ? 2 : 1;
    attention.q.data = b->q;
    attention.out.data = found;
    attention.lse.data = found + b->n_out;
    attention.window.recent_tokens = s->recent;
    attention.window.sink_tokens = s->recent > 0 ? 4 : 0;
    attention.rope.mode = rope_mode;
    assert_int_equal(kvp_attention_bytes(&attention, &n_bytes), KVP_OK);
    void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes + KVP_SCRATCH_ALIGN);
    assert_non_null(scratch);
    memset(scratch, 0xA5, n_bytes);
    assert_int_equal(kvp_attention_run(&attention, scratch, n_bytes), KVP_OK);
    free(scratch);
    return found;
}

static void assert_close(const struct batch *b, const float *found, const float *expected)
{
    double largest = 0.0, off = 0.0;
    for (size_t i = 0; i < b->n_out; i++) {
        largest = fmax(largest, fabs(expected[i]));
        off = isnan(found[i]) ? INFINITY : fmax(off, fabs(expected[i] - (double)found[i]));
    }
    if (!(off <= b->tolerance * largest))
        fail_msg("off by %g of %g", off, largest);
    for (size_t i = b->n_out; i < b->n_out + b->n_out / b->shape->dims; i++)
        assert_true(fabs(expected[i] - (double)found[i]) <=
                    b->tolerance * fmax(1, fabs(expected[i])));
}

static void check_batch(const struct batch *b, uint32_t rope_mode, kvp_attention_team *team)
{
    float *expected = run(b, KVP_ATTENTION_REFERENCE, rope_mode, NULL);
    for (uint32_t impl = KVP_ATTENTION_PORTABLE; impl <= KVP_ATTENTION_NEON; impl++) {
        if (!attn_impls_has(impl))
            continue;
        float *alone = run(b, impl, rope_mode, NULL), *together = run(b, impl, rope_mode, team);
        assert_memory_equal(alone, together,
                            (b->n_out + b->n_out / b->shape->dims) * sizeof *alone);
        assert_close(b, alone, expected);
        free(alone);
        free(together);
    }
    free(expected);
}

static void check(const struct shape *shape, uint32_t type, uint32_t rope_mode,
                  kvp_attention_team *team)
{
    struct batch b;
    make_batch(&b, shape, type);
    check_batch(&b, rope_mode, team);
    end_batch(&b);
}

#ifdef __SANITIZE_THREAD__ /* which makes every access slow */
enum { N_TYPES = 1, MOST_TOKENS = 300 };
#else
enum { N_TYPES = sizeof types / sizeof *types, MOST_TOKENS = 1 << 20 };
#endif

TEST(test_shapes_against_the_reference)
{
    kvp_attention_team *team = NULL;
    (void)state;
    assert_int_equal(kvp_attention_team_create(4, &team), KVP_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t t = 0; t < N_TYPES && shapes[i].n_tokens <= MOST_TOKENS; t++) {
            print_message("shape %u, type %u\n", (unsigned)i, (unsigned)types[t]);
            check(&shapes[i], types[t], KVP_ROPE_NONE, team);
        }
        if (shapes[i].n_tokens < 1000 && shapes[i].n_tokens <= MOST_TOKENS)
            check(&shapes[i], KVP_BF16, KVP_ROPE_AT_READ, team);
    }
    kvp_attention_team_destroy(team);
}

/* One sequence; with 20 queries, kernels for many are used. */
static struct shape one_sequence(uint32_t n_tokens, uint32_t n_queries)
{
    return (struct shape){2, 4, 128, 64, 1, n_tokens, n_queries, 0, 0, KVP_ORDER_CPU};
}

/* Nothing is infinite on the way that is not at its end. */
TEST(test_large_elements)
{
    const struct shape few = one_sequence(200, 1), many = one_sequence(200, 20);
    kvp_attention_team *team = NULL;
    (void)state;
    assert_int_equal(kvp_attention_team_create(2, &team), KVP_OK);
    for (int i = 0; i < 4; i++) {
        struct batch b;
        make_batch(&b, i % 2 == 0 ? &few : &many, KVP_F16);
        fill_all(&b, i < 2 ? 60000.0f : -60000.0f);
        for (size_t e = 0; e < b.n_out; e++)
            b.q[e] = 1e-6f;
        check_batch(&b, KVP_ROPE_NONE, team);
        end_batch(&b);
    }
    kvp_attention_team_destroy(team);
}

/* All weights are 1, which every type can tell: out is the mean, and lse shows whether queries that
 * are longer than their keys' elements count in full. */
TEST(test_equal_scores)
{
    const struct shape few = one_sequence(300, 1), many = one_sequence(300, 20);
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct batch b;
        make_batch(&b, i % 2 == 0 ? &few : &many, types[i / 4]);
        if (i / 2 % 2 == 0)
            fill_all(&b, 0x1p-6f);
        for (size_t e = 0; e < b.n_out; e++)
            b.q[e] = i / 2 % 2 == 0 ? 64.0f + 0x1.8p-3f : 0.0f;
        b.tolerance = types[i / 4] == KVP_F16 ? 1e-3 : 1e-4;
        check_batch(&b, KVP_ROPE_NONE, NULL);
        end_batch(&b);
    }
}

/* A key weighs 500 times as much as each other one, and has nothing to say: all that comes out are
 * the small weights. */
TEST(test_small_weights)
{
    const struct shape few = one_sequence(64, 1), many = one_sequence(64, 20);
    const float zeros[128] = {0};
    const float exact = 9.0f / 128.0f * sqrtf(128.0f) / 1.44269504f; /* 9/128 as it is multiplied */
    (void)state;
    for (size_t i = 0; i < 2 * sizeof types / sizeof *types; i++) {
        struct batch b;
        make_batch(&b, i % 2 == 0 ? &few : &many, types[i / 2]);
        fill_all(&b, 1.0f);
        const int64_t slot = (int64_t)b.blocks[1][0] * b.shape->block_tokens + 3;
        for (uint32_t head = 0; head < b.shape->heads; head++) {
            assert_int_equal(kvp_layer_write(&b.layer, KVP_V, slot, head, zeros), KVP_OK);
            assert_int_equal(kvp_layer_write(&b.layer, KVP_K, slot, head, zeros), KVP_OK);
        }
        for (size_t e = 0; e < b.n_out; e++)
            b.q[e] = -exact;
        check_batch(&b, KVP_ROPE_NONE, NULL);
        end_batch(&b);
    }
}

/* K of a token is its position, times `step`. */
static void fill_rising(struct batch *b, float step)
{
    const uint32_t block_tokens = b->shape->block_tokens;
    float values[128];
    assert_true(b->shape->dims <= 128 && b->shape->n_seqs == 1);
    for (uint32_t position = 0; position < b->shape->n_tokens; position++) {
        const int32_t block = b->blocks[1][position / block_tokens];
        const int64_t slot = (int64_t)block * block_tokens + position % block_tokens;
        for (uint32_t e = 0; e < b->shape->dims; e++)
            values[e] = (float)position * step;
        for (uint32_t head = 0; head < b->shape->heads; head++)
            assert_int_equal(kvp_layer_write(&b->layer, KVP_K, slot, head, values), KVP_OK);
    }
}

/* What weights are relative to changes a little, a lot or never from tile to tile. */
TEST(test_rising_and_falling_scores)
{
    const struct shape few = one_sequence(700, 1), many = one_sequence(700, 20);
    static const float steps[] = {0.0005f, 0.005f, 0.05f, 0.5f, -0.0005f, -0.05f};
    (void)state;
    for (size_t i = 0; i < 4 * sizeof steps / sizeof *steps; i++) {
        struct batch b;
        make_batch(&b, i % 2 == 0 ? &few : &many, i / 2 % 2 == 0 ? KVP_F16 : KVP_BF16);
        fill_rising(&b, steps[i / 4]);
        for (size_t e = 0; e < b.n_out; e++)
            b.q[e] = e / b.shape->dims % 2 == 0 ? 1.0f : -0.25f; /* one head up, one down */
        check_batch(&b, KVP_ROPE_NONE, NULL);
        end_batch(&b);
    }
}

TEST(test_teams)
{
    kvp_attention_team *team = NULL;
    (void)state;
    assert_int_equal(kvp_attention_team_create(0, &team), KVP_E_ARG);
    assert_int_equal(kvp_attention_team_create(KVP_ATTENTION_TEAM_MAX + 1, &team), KVP_E_ARG);
    assert_int_equal(kvp_attention_team_create(1, NULL), KVP_E_ARG);
    assert_null(team);
    assert_int_equal(kvp_attention_team_create(1, &team), KVP_OK);
    kvp_attention_team_destroy(team);
    kvp_attention_team_destroy(NULL);
}

/* A pool of one thread, which does the shares from the last to the first. */
static void run_backwards(void *pool, kvp_attention_work work, void *data, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;)
        work(data, i, n);
    ((uint32_t *)pool)[0]++;
    ((uint32_t *)pool)[1] = n;
}

TEST(test_wrapped_teams)
{
    kvp_attention_team *team = NULL;
    uint32_t runs[2] = {0, 0}; /* how many, and the shares of the last one */
    (void)state;
    assert_int_equal(kvp_attention_team_wrap(0, run_backwards, runs, &team), KVP_E_ARG);
    assert_int_equal(
        kvp_attention_team_wrap(KVP_ATTENTION_TEAM_MAX + 1, run_backwards, runs, &team), KVP_E_ARG);
    assert_int_equal(kvp_attention_team_wrap(2, NULL, runs, &team), KVP_E_ARG);
    assert_int_equal(kvp_attention_team_wrap(2, run_backwards, runs, NULL), KVP_E_ARG);
    assert_null(team);
    assert_int_equal(kvp_attention_team_wrap(3, run_backwards, runs, &team), KVP_OK);
    check(&shapes[3], KVP_F32, KVP_ROPE_NONE, team);
    assert_true(runs[0] > 0);
    assert_int_equal(runs[1], 3);
    kvp_attention_team_destroy(team);
}

TEST(test_implementations)
{
    assert_true(kvp_attention_has(KVP_ATTENTION_AUTO));
    assert_true(kvp_attention_has(KVP_ATTENTION_REFERENCE));
    assert_true(kvp_attention_has(KVP_ATTENTION_PORTABLE));
    assert_false(kvp_attention_has(KVP_ATTENTION_NEON + 1));
    for (uint32_t impl = KVP_ATTENTION_AVX2; impl < KVP_ATTENTION_AMX; impl++)
        assert_true(kvp_attention_has(impl) || !kvp_attention_has(impl + 1));
#ifdef __AARCH64EL__
    assert_true(kvp_attention_has(KVP_ATTENTION_NEON));
#else
    assert_false(kvp_attention_has(KVP_ATTENTION_NEON));
#endif
}

/* No two implementations give the same bits. */
TEST(test_the_default_is_the_fastest)
{
    const struct shape shape = one_sequence(300, 20);
    struct batch b;
    uint32_t fastest = KVP_ATTENTION_NEON;
    (void)state;
    while (!kvp_attention_has(fastest))
        fastest--;
    make_batch(&b, &shape, KVP_F32);
    float *expected = run(&b, fastest, KVP_ROPE_NONE, NULL);
    float *found = run(&b, KVP_ATTENTION_AUTO, KVP_ROPE_NONE, NULL);
    assert_memory_equal(found, expected, b.n_out * sizeof *found);
    free(found);
    free(expected);
    end_batch(&b);
}

ATTN_IMPLS_MAIN

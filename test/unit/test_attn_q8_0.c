/* q8_0: attention over K and V as ggml stores them, by every implementation, beside sums of its own
 * in double precision; and every call that has to refuse the type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>

#include "attn_impls.h"
#include "attn_world.h"

enum { GROUP = 34 /* bytes: the scale, then 32 elements */ };

struct shape {
    uint32_t heads, group, k_size, v_size, n_keys, n_queries;
    uint32_t gap; /* bytes between two tokens; even */
    double cap;
};

static const struct shape shapes[] = {
    {1, 1, 32, 32, 1, 1, 0, 0.0},     {2, 4, 128, 128, 700, 1, 0, 0.0},
    {3, 3, 64, 64, 130, 2, 6, 0.0},   {2, 4, 128, 128, 300, 40, 0, 0.0},
    {1, 8, 256, 64, 90, 3, 34, 10.0}, {2, 2, 96, 160, 75, 33, 2, 0.0},
    {1, 12, 64, 128, 65, 7, 0, 30.0},
};

struct batch {
    const struct shape *shape;
    kvp_layer layer;
    unsigned char *memory;
    int32_t *blocks;
    int32_t row_start[2], last_len[1], query_start[2];
    kvp_attention_level level;
    float *q, *sinks;
    double *want;
    size_t n_out;
};

static void *take(size_t n_bytes)
{
    void *made = calloc(1, n_bytes + 1);
    assert_non_null(made);
    return made;
}

/* Scales of all sizes that an f16 has, among them 0, denormal and negative ones. */
static uint16_t draw_scale(uint64_t *random)
{
    switch (attn_draw(random, 12)) {
    case 0: return 0;
    case 1: return (uint16_t)(1 + attn_draw(random, 1023)); /* below 2^-14 */
    case 2: return (uint16_t)(0x8000 | (0x2000 + attn_draw(random, 1024)));
    default: return (uint16_t)(0x2000 + attn_draw(random, 0x400)); /* 2^-7 to 2^-6 */
    }
}

static void fill(unsigned char *at, size_t n_groups, uint64_t *random)
{
    for (size_t i = 0; i < n_groups; i++, at += GROUP) {
        const uint16_t scale = draw_scale(random);
        memcpy(at, &scale, sizeof scale);
        for (size_t e = 0; e < 32; e++)
            at[2 + e] = (unsigned char)attn_draw(random, 256);
    }
}

/* The value of an element, from its bits. */
static double element(const kvp_layer_part *part, uint32_t key, uint32_t head, uint32_t e)
{
    const unsigned char *group = part->base + (size_t)(key + 1) * part->block_stride +
                                 head * part->head_stride + e / 32 * (size_t)GROUP;
    uint16_t bits;
    memcpy(&bits, group, sizeof bits);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000 ? -magnitude : magnitude) *
           (group[2 + e % 32] - (group[2 + e % 32] >= 128 ? 256.0 : 0.0));
}

static kvp_layer_part lay_out(unsigned char *base, const struct shape *shape, uint32_t size)
{
    const size_t head = size / 32 * (size_t)GROUP, token = shape->heads * head + shape->gap;
    return (kvp_layer_part){.base = base,
                            .block_stride = token,
                            .token_stride = token,
                            .head_stride = head,
                            .size = size,
                            .run = size};
}

static void make_batch(struct batch *b, const struct shape *shape)
{
    uint64_t random = shape->n_keys;
    const uint32_t n_blocks = shape->n_keys + 1;
    *b = (struct batch){.shape = shape};
    kvp_layer_part k = lay_out(NULL, shape, shape->k_size), v = lay_out(NULL, shape, shape->v_size);
    b->memory = take(n_blocks * (k.block_stride + v.block_stride));
    k.base = b->memory;
    v.base = b->memory + n_blocks * k.block_stride;
    for (uint32_t block = 0; block < n_blocks; block++) {
        fill(k.base + block * k.block_stride, shape->heads * shape->k_size / 32, &random);
        fill(v.base + block * v.block_stride, shape->heads * shape->v_size / 32, &random);
    }
    b->layer = (kvp_layer){.type = KVP_Q8_0,
                           .n_blocks = n_blocks,
                           .block_tokens = 1,
                           .n_heads = shape->heads,
                           .k = k,
                           .v = v};
    b->blocks = take(shape->n_keys * sizeof *b->blocks);
    for (uint32_t i = 0; i < shape->n_keys; i++)
        b->blocks[i] = 1 + (int32_t)i;
    b->row_start[1] = (int32_t)shape->n_keys;
    b->last_len[0] = 1;
    b->query_start[1] = (int32_t)shape->n_queries;
    b->level = (kvp_attention_level){.n_rows = 1,
                                     .n_blocks = shape->n_keys,
                                     .blocks = b->blocks,
                                     .row_start = b->row_start,
                                     .last_len = b->last_len};
    const size_t n_rows = (size_t)shape->n_queries * shape->heads * shape->group;
    b->q = take(n_rows * shape->k_size * sizeof *b->q);
    for (size_t i = 0; i < n_rows * shape->k_size; i++)
        b->q[i] = (float)attn_draw_real(&random);
    b->sinks = take(shape->heads * shape->group * sizeof *b->sinks);
    for (uint32_t i = 0; i < shape->heads * shape->group; i++)
        b->sinks[i] = (float)attn_draw_real(&random);
    b->n_out = n_rows * shape->v_size;
}

static void end_batch(struct batch *b)
{
    free(b->memory);
    free(b->blocks);
    free(b->q);
    free(b->sinks);
    free(b->want);
}

static double score_of(const struct batch *b, size_t row, uint32_t key, uint32_t head)
{
    const struct shape *s = b->shape;
    double score = 0.0;
    for (uint32_t e = 0; e < s->k_size; e++)
        score += (double)b->q[row * s->k_size + e] * element(&b->layer.k, key, head, e);
    score /= sqrt(s->k_size);
    return s->cap > 0.0 ? s->cap * tanh(score / s->cap) : score;
}

/* Every query head by itself, its keys one after the other. */
static void sum_all(struct batch *b)
{
    const struct shape *s = b->shape;
    const uint32_t n_heads = s->heads * s->group;
    double *weights = take(s->n_keys * sizeof *weights);
    b->want = take(b->n_out * sizeof *b->want);
    for (size_t row = 0; row < (size_t)s->n_queries * n_heads; row++) {
        const uint32_t query = (uint32_t)(row / n_heads), head = (uint32_t)(row % n_heads);
        const uint32_t n_seen = s->n_keys - s->n_queries + query + 1;
        double largest = b->sinks[head], total = 0.0, *out = b->want + row * s->v_size;
        for (uint32_t key = 0; key < n_seen; key++) {
            weights[key] = score_of(b, row, key, head / s->group);
            largest = fmax(largest, weights[key]);
        }
        total = exp(b->sinks[head] - largest);
        for (uint32_t key = 0; key < n_seen; key++) {
            weights[key] = exp(weights[key] - largest);
            total += weights[key];
            for (uint32_t e = 0; e < s->v_size; e++)
                out[e] += weights[key] * element(&b->layer.v, key, head / s->group, e);
        }
        for (uint32_t e = 0; e < s->v_size; e++)
            out[e] /= total;
    }
    free(weights);
}

static kvp_attention call_of(const struct batch *b)
{
    const struct shape *s = b->shape;
    kvp_attention call;
    kvp_attention_init(&call);
    call.layer = &b->layer;
    call.n_seqs = 1;
    call.n_tokens = s->n_queries;
    call.n_heads = s->heads * s->group;
    call.query_start = b->query_start;
    call.levels = &b->level;
    call.q.data = b->q;
    call.soft_cap = s->cap;
    call.sink_logits = b->sinks;
    return call;
}

static float *run(const struct batch *b, kvp_attention *call)
{
    size_t n_bytes;
    float *found = take(b->n_out * sizeof *found);
    call->out.data = found;
    assert_int_equal(kvp_attention_bytes(call, &n_bytes), KVP_OK);
    void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, (n_bytes + KVP_SCRATCH_ALIGN) & ~(size_t)63);
    assert_non_null(scratch);
    assert_int_equal(kvp_attention_run(call, scratch, n_bytes), KVP_OK);
    free(scratch);
    return found;
}

static void expect(const struct batch *b, const float *found, uint32_t impl)
{
    double largest = 0.0, off = 0.0;
    for (size_t i = 0; i < b->n_out; i++) {
        largest = fmax(largest, fabs(b->want[i]));
        off = fmax(off, fabs(b->want[i] - (double)found[i]));
    }
    if (!(off <= 1e-5 * largest))
        fail_msg("off by %g of %g, implementation %u", off, largest, (unsigned)impl);
}

TEST(test_every_implementation)
{
    kvp_attention_team *team = NULL;
    (void)state;
    assert_int_equal(kvp_attention_team_create(3, &team), KVP_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct batch b;
        print_message("shape %u\n", (unsigned)i);
        make_batch(&b, &shapes[i]);
        sum_all(&b);
        for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++) {
            if (!attn_impls_has(impl))
                continue;
            kvp_attention call = call_of(&b);
            call.impl = impl;
            float *alone = run(&b, &call);
            expect(&b, alone, impl);
            call.team = team;
            float *together = run(&b, &call);
            assert_memory_equal(alone, together, b.n_out * sizeof *alone);
            free(alone);
            free(together);
        }
        end_batch(&b);
    }
    kvp_attention_team_destroy(team);
}

/* K that is turned when it is read goes another way. */
TEST(test_turned_keys)
{
    struct batch b;
    (void)state;
    make_batch(&b, &shapes[2]);
    kvp_attention call = call_of(&b);
    call.rope.mode = KVP_ROPE_AT_READ;
    call.impl = KVP_ATTENTION_REFERENCE;
    float *expected = run(&b, &call);
    b.want = take(b.n_out * sizeof *b.want);
    for (size_t i = 0; i < b.n_out; i++)
        b.want[i] = expected[i];
    for (uint32_t impl = KVP_ATTENTION_PORTABLE; impl <= KVP_ATTENTION_NEON; impl++) {
        if (!attn_impls_has(impl))
            continue;
        call.impl = impl;
        float *found = run(&b, &call);
        expect(&b, found, impl);
        free(found);
    }
    free(expected);
    end_batch(&b);
}

TEST(test_layers_are_read)
{
    struct batch b;
    float values[256];
    (void)state;
    make_batch(&b, &shapes[5]);
    for (uint32_t key = 0; key < b.shape->n_keys; key++) {
        for (uint32_t head = 0; head < b.shape->heads; head++) {
            assert_int_equal(kvp_layer_read(&b.layer, KVP_V, key + 1, head, values), KVP_OK);
            for (uint32_t e = 0; e < b.shape->v_size; e++)
                assert_true((double)values[e] == element(&b.layer.v, key, head, e));
        }
    }
    end_batch(&b);
}

static void refuse(const struct batch *b, const kvp_layer *layer, const char *field)
{
    kvp_why why;
    kvp_attention call = call_of(b);
    call.layer = layer;
    assert_int_equal(kvp_attention_check(&call, &why), KVP_E_ARG);
    assert_string_equal(why.field, field);
}

TEST(test_layers_that_cannot_be)
{
    struct batch b;
    float scale = 1.0f;
    (void)state;
    make_batch(&b, &shapes[1]);
    kvp_layer layer = b.layer;
    kvp_why why;
    kvp_attention call = call_of(&b);
    assert_int_equal(kvp_attention_check(&call, &why), KVP_OK);
    layer.k.run = 32;
    refuse(&b, &layer, "layer.k");
    layer = b.layer;
    layer.k.size = layer.k.run = 120;
    refuse(&b, &layer, "layer.k");
    layer = b.layer;
    layer.v.token_stride++;
    refuse(&b, &layer, "layer.v");
    layer = b.layer;
    layer.v.scales = &scale;
    refuse(&b, &layer, "layer.v");
    layer = b.layer;
    layer.v.base = NULL;
    refuse(&b, &layer, "layer.v");
    layer = b.layer;
    layer.type = KVP_Q8_0 + 1;
    refuse(&b, &layer, "layer.type");
    end_batch(&b);
}

TEST(test_nothing_writes_it)
{
    struct batch b;
    float values[128] = {0};
    kvp_why why;
    kvp_append append;
    kvp_layout layout;
    (void)state;
    make_batch(&b, &shapes[1]);
    assert_int_equal(kvp_layer_write(&b.layer, KVP_K, 1, 0, values), KVP_E_ARG);
    kvp_append_init(&append);
    append.layer = &b.layer;
    append.n_tokens = 1;
    assert_int_equal(kvp_append_check(&append, &why), KVP_E_ARG);
    assert_string_equal(why.field, "layer.type");
    kvp_layout_init(&layout);
    layout.type = KVP_Q8_0;
    layout.n_blocks = 2;
    layout.block_tokens = layout.n_layers = layout.n_heads = 1;
    layout.k.size = layout.v.size = 32;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_CPU, NULL), KVP_E_ARG);
    assert_int_equal(kvp_type_bytes(KVP_Q8_0), 0);
    assert_true(kvp_type_scale(KVP_Q8_0, 5.0f) == 1.0f);
    assert_int_equal(kvp_type_to_f32(KVP_Q8_0, 1.0f, b.memory, 32, values), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_Q8_0, 1.0f, values, 32, b.memory), KVP_E_ARG);
    end_batch(&b);
}

ATTN_IMPLS_MAIN

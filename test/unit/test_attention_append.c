/* Appending K and V: the values that are stored, and that nothing else is written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "attn_world.h"

enum { N_BLOCKS = 24 };

/* What append was told to store: K turned if it is to be, V as it is. */
static double wanted(const attn_world *world, int which, uint32_t token, uint32_t head, uint32_t e)
{
    const attn_params *p = &world->params;
    const attn_seq *seq = &world->seqs[0];
    const size_t row = (size_t)token * p->n_heads + head;
    double x[32], turned[32];
    if (which == KVP_V)
        return seq->v[row * p->v_size + e];
    for (uint32_t i = 0; i < p->k_size; i++)
        turned[i] = x[i] = seq->k[row * p->k_size + i];
    if (p->rope.mode == KVP_ROPE_AT_WRITE)
        attn_turn(&p->rope, p->k_size, seq->positions[token], x, turned);
    return (float)turned[e];
}

static void assert_stored(const attn_world *world, int which, uint32_t token, uint32_t head,
                          uint32_t e)
{
    const attn_params *p = &world->params;
    const int32_t block = world->seqs[0].blocks[token / p->block_tokens];
    const double value = wanted(world, which, token, head, e);
    const double found = attn_stored(world, which, block, token % p->block_tokens, head, e);
    const double largest = 3.5; /* 2 x sqrt(2), stretched by YaRN: no scale is larger */
    double off = 1e-6 * fabs(value);
    if (p->type == KVP_INT8)
        off = largest / 127.0;
    else if (p->type == KVP_E4M3)
        off = fabs(value) / 8.0 + largest / 448.0 / 256.0;
    else if (p->type != KVP_F32) /* turned values may lie on the other side of a tie */
        off =
            which == KVP_K && p->rope.mode == KVP_ROPE_AT_WRITE ? fabs(value) / 120.0 + 1e-7 : 0.0;
    const double nearest =
        p->type == KVP_F16 || p->type == KVP_BF16 ? attn_nearest(p->type, value) : value;
    if (!(fabs(found - nearest) <= off))
        fail_msg("type %u: %g is stored as %g", p->type, value, found);
}

static void check_values(const attn_world *world)
{
    const attn_params *p = &world->params;
    for (uint32_t token = 0; token < world->seqs[0].n_tokens; token++) {
        for (uint32_t head = 0; head < p->n_heads; head++) {
            for (uint32_t e = 0; e < p->k_size; e++)
                assert_stored(world, KVP_K, token, head, e);
            for (uint32_t e = 0; e < p->v_size && p->order != ATTENTION_LATENT; e++)
                assert_stored(world, KVP_V, token, head, e);
        }
    }
}

/* Bytes that are not 0xFF any more lie in elements of the sequence's tokens: paint those over, and
 * all is 0xFF again. (When a scale rises, every slot of the block is rounded once more.) */
static void paint(attn_world *world, const kvp_layer_part *part, size_t size)
{
    const attn_seq *seq = &world->seqs[0];
    const uint32_t S = world->params.block_tokens;
    const uint32_t n_tokens = part->scales != NULL ? seq->n_blocks * S : seq->n_tokens;
    for (uint32_t token = 0; token < n_tokens; token++) {
        for (uint32_t head = 0; head < world->params.n_heads; head++) {
            for (uint32_t e = 0; e < part->size; e++)
                memset(part->base + (size_t)seq->blocks[token / S] * part->block_stride +
                           token % S * part->token_stride + head * part->head_stride +
                           (part->run == part->size ? 0 : e / part->run * part->run_stride) +
                           e % part->run * size,
                       0xFF, size);
        }
    }
}

static void check_nothing_else_is_written(attn_world *world)
{
    const attn_params *p = &world->params;
    const size_t size = kvp_type_bytes(p->type);
    const size_t k_bytes = N_BLOCKS * world->layer.k.block_stride;
    const size_t bytes = p->order == ATTENTION_HND || p->order == ATTENTION_LATENT
                             ? k_bytes
                             : k_bytes + N_BLOCKS * world->layer.v.block_stride;
    paint(world, &world->layer.k, size);
    if (p->order != ATTENTION_LATENT)
        paint(world, &world->layer.v, size);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(world->memory[i], 0xFF);
}

TEST(test_every_type_and_layout)
{
    static const uint32_t types[] = {KVP_F32, KVP_F16, KVP_BF16, KVP_INT8, KVP_E4M3};
    for (uint32_t i = 0; i < 5 * ATTENTION_ORDERS; i++) {
        uint64_t random = 100 + i;
        attn_params params = attn_draw_params(&random);
        params.type = types[i / ATTENTION_ORDERS];
        params.order = i % ATTENTION_ORDERS;
        params.n_heads = params.order == ATTENTION_LATENT ? 1 : 2;
        params.k_size = 8;
        params.v_size = 6;
        kvp_rope_init(&params.rope);
        params.rope.mode = i % 3;
        attn_world world = attn_begin(&params, N_BLOCKS, random);
        attn_add(&world, &(attn_wish){.n_tokens = 11, .n_queries = 1, .n_tree = i % 2 ? 4 : 0});
        attn_append_all(&world);
        check_values(&world);
        check_nothing_else_is_written(&world);
        attn_end(&world);
    }
}

TEST(test_random_ropes)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = seed;
        attn_params params = attn_draw_params(&random);
        params.type = KVP_F32;
        attn_world world = attn_begin(&params, N_BLOCKS, random);
        attn_add(&world, &(attn_wish){.n_tokens = 12, .n_queries = 1});
        attn_append_all(&world);
        check_values(&world);
        attn_end(&world);
    }
}

/* ---------------------------------------------------------------------------------- small cases */

/* One head of two elements, blocks of two tokens. */
struct tiny {
    float k[4][2][2];
    float v[4][2][1];
    kvp_layer layer;
    kvp_append append;
};

static void begin(struct tiny *tiny)
{
    memset(tiny, 0, sizeof *tiny);
    tiny->layer = (kvp_layer){.type = KVP_F32, .n_blocks = 4, .block_tokens = 2, .n_heads = 1};
    tiny->layer.k = (kvp_layer_part){.base = (unsigned char *)tiny->k,
                                     .block_stride = 16,
                                     .token_stride = 8,
                                     .size = 2,
                                     .run = 2};
    tiny->layer.v = (kvp_layer_part){.base = (unsigned char *)tiny->v,
                                     .block_stride = 8,
                                     .token_stride = 4,
                                     .size = 1,
                                     .run = 1};
    kvp_append_init(&tiny->append);
    tiny->append.layer = &tiny->layer;
}

static const float k_rows[3][2] = {{1, 0}, {0, 1}, {2, 0}};
static const float v_rows[3] = {10, 20, 30};

static void run_tiny(struct tiny *tiny, const int64_t *slots, const int32_t *positions)
{
    _Alignas(KVP_SCRATCH_ALIGN) unsigned char scratch[256];
    size_t n_bytes;
    tiny->append.n_tokens = 3;
    tiny->append.slots = slots;
    tiny->append.positions = positions;
    tiny->append.k.data = &k_rows[0][0];
    tiny->append.v.data = v_rows;
    assert_int_equal(kvp_append_bytes(&tiny->append, &n_bytes), KVP_OK);
    assert_true(n_bytes <= sizeof scratch);
    assert_int_equal(kvp_append_run(&tiny->append, scratch, n_bytes), KVP_OK);
}

TEST(test_slots_say_where)
{
    struct tiny tiny;
    begin(&tiny);
    run_tiny(&tiny, (const int64_t[]){7, KVP_NO_SLOT, 2}, NULL);
    assert_true(tiny.k[3][1][0] == 1 && tiny.k[3][1][1] == 0 && tiny.v[3][1][0] == 10);
    assert_true(tiny.k[1][0][0] == 2 && tiny.k[1][0][1] == 0 && tiny.v[1][0][0] == 30);
    for (int block = 0; block < 4; block++) {
        for (int token = 0; token < 2; token++)
            if (block * 2 + token != 7 && block * 2 + token != 2)
                assert_true(tiny.v[block][token][0] == 0);
    }
}

/* Whatever the first token is; a block that is nobody's lies before and after the layer's. */
TEST(test_tokens_without_a_slot_are_written_nowhere)
{
    for (uint32_t impl = KVP_ATTENTION_REFERENCE; impl <= KVP_ATTENTION_NEON; impl++) {
        struct tiny tiny;
        if (!kvp_attention_has(impl))
            continue;
        begin(&tiny);
        tiny.layer.n_blocks = 2;
        tiny.layer.k.base = (unsigned char *)tiny.k[1];
        tiny.layer.v.base = (unsigned char *)tiny.v[1];
        tiny.append.impl = impl;
        run_tiny(&tiny, (const int64_t[]){KVP_NO_SLOT, 3, KVP_NO_SLOT}, NULL);
        const float k[4][2][2] = {[2] = {{0, 0}, {0, 1}}};
        const float v[4][2][1] = {[2] = {{0}, {20}}};
        assert_memory_equal(tiny.k, k, sizeof k);
        assert_memory_equal(tiny.v, v, sizeof v);
    }
}

/* A quarter turn for each position: (1, 0) at 1 is (0, 1); (0, 1) at 2 is (0, -1). */
TEST(test_a_quarter_turn)
{
    struct tiny tiny;
    const double frequency = 1.57079632679489661923;
    begin(&tiny);
    tiny.append.rope.mode = KVP_ROPE_AT_WRITE;
    tiny.append.rope.frequencies = &frequency;
    run_tiny(&tiny, (const int64_t[]){2, 3, 4}, (const int32_t[]){1, 2, 3});
    assert_true(fabsf(tiny.k[1][0][0] - 0) < 1e-6f && fabsf(tiny.k[1][0][1] - 1) < 1e-6f);
    assert_true(fabsf(tiny.k[1][1][0] - 0) < 1e-6f && fabsf(tiny.k[1][1][1] + 1) < 1e-6f);
    assert_true(fabsf(tiny.k[2][0][0] - 0) < 1e-6f && fabsf(tiny.k[2][0][1] + 2) < 1e-6f);
    assert_true(tiny.v[1][0][0] == 10 && tiny.v[1][1][0] == 20 && tiny.v[2][0][0] == 30);
}

/* Stored as it comes when it is to be turned at read. */
TEST(test_turned_at_read_is_stored_as_it_comes)
{
    struct tiny tiny;
    begin(&tiny);
    tiny.append.rope.mode = KVP_ROPE_AT_READ;
    run_tiny(&tiny, (const int64_t[]){2, 3, 4}, NULL);
    assert_memory_equal(tiny.k[1], k_rows, sizeof k_rows);
}

/* One K with gaps between tokens: a slice of a fused [T, K and V] tensor. */
TEST(test_strides_of_a_fused_tensor)
{
    struct tiny tiny;
    const float fused[3][4] = {{1, 2, 3, 9}, {4, 5, 6, 9}, {7, 8, 0, 9}};
    const int64_t slots[] = {2, 3, 4};
    begin(&tiny);
    tiny.append.n_tokens = 3;
    tiny.append.slots = slots;
    tiny.append.k = (kvp_rows){&fused[0][0], 4, 2};
    tiny.append.v = (kvp_rows){&fused[0][2], 4, 1};
    assert_int_equal(kvp_append_run(&tiny.append, NULL, 0), KVP_OK);
    assert_true(tiny.k[1][1][0] == 4 && tiny.k[1][1][1] == 5 && tiny.v[1][1][0] == 6);
    assert_true(tiny.k[2][0][0] == 7 && tiny.k[2][0][1] == 8 && tiny.v[2][0][0] == 0);
}

TEST(test_no_tokens)
{
    struct tiny tiny;
    begin(&tiny);
    assert_int_equal(kvp_append_run(&tiny.append, NULL, 0), KVP_OK);
}

/* ------------------------------------------------------------------------------------- refusals */

/* Run with one thing changed: refused, and nothing written. */
#define REFUSED(status, change)                                                                    \
    do {                                                                                           \
        struct tiny tiny, before;                                                                  \
        kvp_append *a = &tiny.append;                                                              \
        kvp_layer *layer = &tiny.layer;                                                            \
        begin(&tiny);                                                                              \
        a->n_tokens = 3;                                                                           \
        a->slots = good_slots;                                                                     \
        a->positions = good_positions;                                                             \
        a->k.data = &k_rows[0][0];                                                                 \
        a->v.data = v_rows;                                                                        \
        a->rope.mode = KVP_ROPE_AT_WRITE;                                                          \
        (void)layer;                                                                               \
        change;                                                                                    \
        before = tiny;                                                                             \
        assert_int_equal(kvp_append_run(a, scratch, n_bytes), status);                             \
        assert_memory_equal(&tiny, &before, sizeof tiny);                                          \
    } while (0)

TEST(test_refusals)
{
    static const int64_t good_slots[] = {2, 3, 4};
    static const int32_t good_positions[] = {0, 1, 2};
    _Alignas(KVP_SCRATCH_ALIGN) unsigned char memory[512];
    void *scratch = memory;
    size_t n_bytes = sizeof memory;
    const double not_finite = (double)NAN;
    assert_int_equal(kvp_append_run(NULL, scratch, n_bytes), KVP_E_ARG);
    assert_int_equal(kvp_append_bytes(NULL, &n_bytes), KVP_E_ARG);
    REFUSED(KVP_E_ARG, a->struct_size--);
    REFUSED(KVP_E_ARG, a->impl = 99);
    REFUSED(KVP_E_ARG, a->layer = NULL);
    REFUSED(KVP_E_ARG, a->slots = NULL);
    REFUSED(KVP_E_ARG, a->slots = (const int64_t *)((const char *)good_slots + 4));
    REFUSED(KVP_E_ARG, a->slots = ((const int64_t[]){2, 8, 4})); /* behind the last block */
    REFUSED(KVP_E_ARG, a->slots = ((const int64_t[]){2, 3, 1})); /* in the null block */
    REFUSED(KVP_E_ARG, a->slots = ((const int64_t[]){2, 3, -2}));
    REFUSED(KVP_E_ARG, a->positions = NULL);
    REFUSED(KVP_E_ARG, a->positions = ((const int32_t[]){0, -1, 2}));
    REFUSED(KVP_E_ARG, a->k.data = NULL);
    REFUSED(KVP_E_ARG, a->k.data = (const float *)((const char *)k_rows + 1));
    REFUSED(KVP_E_ARG, a->v.data = NULL);
    REFUSED(KVP_E_ARG, a->k.token_stride = SIZE_MAX / 2);
    REFUSED(KVP_E_ARG, a->k.token_stride = SIZE_MAX / sizeof(float) - 1);
    REFUSED(KVP_E_ARG, a->k.data = (const float *)(UINTPTR_MAX - 7)); /* wraps around */
    REFUSED(KVP_E_ARG, a->rope.mode = 3);
    REFUSED(KVP_E_ARG, a->rope.struct_size = 0);
    REFUSED(KVP_E_ARG, a->rope.pairing = 2);
    REFUSED(KVP_E_ARG, a->rope.scaling = 4);
    REFUSED(KVP_E_ARG, a->rope.first_dim = 2);
    REFUSED(KVP_E_ARG, a->rope.first_dim = 1); /* one element is left: no pair */
    REFUSED(KVP_E_ARG, a->rope.n_dims = 3);
    REFUSED(KVP_E_ARG, a->rope.n_dims = 4);
    REFUSED(KVP_E_ARG, a->rope.theta = 0.0);
    REFUSED(KVP_E_ARG, a->rope.magnitude = -1.0);
    REFUSED(KVP_E_ARG, a->rope.frequencies = &not_finite);
    REFUSED(KVP_E_ARG, (a->rope.scaling = KVP_ROPE_LINEAR, a->rope.factor = 0.0));
    REFUSED(KVP_E_ARG, a->rope.scaling = KVP_ROPE_LLAMA3); /* original_tokens */
    REFUSED(KVP_E_ARG, (a->rope.scaling = KVP_ROPE_YARN, a->rope.original_tokens = 0));
    REFUSED(KVP_E_ARG, (a->rope.scaling = KVP_ROPE_LLAMA3, a->rope.original_tokens = 8,
                        a->rope.low_freq_factor = 4.0));
    REFUSED(KVP_E_ARG, (a->rope.scaling = KVP_ROPE_YARN, a->rope.original_tokens = 8,
                        a->rope.beta_slow = 33.0));
    REFUSED(KVP_E_ARG,
            (a->rope.scaling = KVP_ROPE_YARN, a->rope.original_tokens = 8, a->rope.theta = 1.0));
    REFUSED(KVP_E_ARG, layer->type = 0);
    REFUSED(KVP_E_ARG, layer->type = 6);
    REFUSED(KVP_E_ARG, (layer->n_blocks = 1, a->n_tokens = 0));
    REFUSED(KVP_E_ARG, layer->block_tokens = 0);
    REFUSED(KVP_E_ARG, layer->n_heads = 0);
    REFUSED(KVP_E_ARG, layer->k.base = NULL);
    REFUSED(KVP_E_ARG, layer->k.base++);
    REFUSED(KVP_E_ARG, layer->k.run = 0);
    REFUSED(KVP_E_ARG, layer->k.size = 3);
    REFUSED(KVP_E_ARG, layer->k.token_stride = 6);
    REFUSED(KVP_E_ARG, layer->k.scales = &tiny.v[0][0][0]); /* f32 has none */
    REFUSED(KVP_E_ARG, layer->v.base = NULL);               /* latent, and V is given */
    n_bytes = 1;
    REFUSED(KVP_E_TOO_SMALL, (void)0);
    n_bytes = sizeof memory - 1;
    scratch = memory + 1;
    REFUSED(KVP_E_ARG, (void)0);
    scratch = NULL;
    REFUSED(KVP_E_ARG, (void)0);
}

TEST_MAIN(NULL, NULL)

/* Fast attention: decode beside a plain read of the same pool, int8 beside bf16, a cascade beside
 * the same batch without, prefill.
 *
 * Decode: eight KV heads of 128, four query heads for each, sequences that fill the pool, their
 * blocks in random order; a sample attends once, and so reads the whole pool. The yardstick reads
 * it from end to end, with as many threads. Two rows have other shapes: three heads of 64, and
 * latent KV (MLA). */
#include "bench.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LATENT_V = 512, /* of each 576 */
    SEQS = 8,
    ATTENTION_BLOCK = 64,
    SHARED_TOKENS = 8192,
    OWN_TOKENS = 256,
    CASCADE_SEQS = 16,
    PREFILL_TOKENS = 4096,
    SAMPLES = 15
};

static const size_t pool_bytes = (size_t)1 << 30, quick_pool_bytes = (size_t)64 << 20;
static const size_t count_pool_bytes = (size_t)4 << 20;

typedef struct attn_shape {
    uint32_t n_heads;
    uint32_t group; /* query heads for each */
    uint32_t size;
    uint32_t v_size; /* 0: V is the first LATENT_V of K */
} attn_shape;

static const attn_shape common_shape = {8, 4, 128, 128};
static const attn_shape small_shape = {3, 3, 64, 64};   /* SmolLM2 of 135 M */
static const attn_shape latent_shape = {1, 16, 576, 0}; /* DeepSeek-V2-Lite */

typedef struct attn_state {
    attn_shape shape;
    kvp_memory *memory;
    kvp_layer layer;
    size_t n_bytes; /* of the pool */
    uint32_t impl;  /* KVP_ATTENTION_... */
    uint32_t n_seqs;
    uint32_t n_tokens; /* of a sequence */
    uint32_t row_blocks;
    int32_t *blocks;      /* [n_seqs, row_blocks] */
    int32_t *lengths;     /* [n_seqs] */
    int32_t *query_start; /* [n_seqs + 1] */
    float *q;
    float *out;
    void *scratch;
    size_t scratch_bytes;
    kvp_attention_team *team;
    uint64_t sum; /* of what was read */
} attn_state;

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 33;
}

static float draw_value(uint64_t *state)
{
    return (float)(draw(state) % 2001) / 1000.0f - 1.0f;
}

/* ----------------------------------------------------------------------------------------- pool */

/* Numbers of the type: the same again and again, each time from another place. */
static void fill(kvp_memory *memory, uint32_t type, size_t n_bytes)
{
    enum { N = 1 << 18 };
    static float values[N];
    unsigned char *to = kvp_memory_tensor(memory, 0);
    unsigned char *elements = allocate((size_t)2 * N * sizeof(float));
    uint64_t random = 1;
    const size_t n = N * kvp_type_bytes(type);
    for (size_t i = 0; i < N; i++)
        values[i] = draw_value(&random);
    REQUIRE_OK(kvp_type_from_f32(type, type == KVP_INT8 ? 1.0f / 127 : 1.0f, values, N, elements));
    memcpy(elements + n, elements, n);
    for (size_t at = 0; at < n_bytes; at += n) {
        const size_t from = draw(&random) % (n / 64) * 64;
        memcpy(to + at, elements + from, n_bytes - at < n ? n_bytes - at : n);
    }
    free(elements);
}

static void make_pool(attn_state *s, const attn_shape *shape, uint32_t type, size_t n_bytes)
{
    kvp_layout layout;
    kvp_memory_options options;
    kvp_layout_init(&layout);
    layout.type = type;
    layout.block_tokens = ATTENTION_BLOCK;
    layout.n_layers = 1;
    layout.n_heads = shape->n_heads;
    layout.k.size = shape->size;
    layout.v.size = shape->v_size;
    const size_t block = (size_t)shape->n_heads * (shape->size + shape->v_size) * ATTENTION_BLOCK *
                         kvp_type_bytes(type);
    layout.n_blocks = (uint32_t)(n_bytes / block) + 1;
    s->shape = *shape;
    REQUIRE_OK(
        kvp_layout_arrange(&layout, shape->v_size == 0 ? KVP_ORDER_LATENT : KVP_ORDER_CPU, NULL));
    if (type == KVP_INT8)
        REQUIRE_OK(kvp_layout_add_scales(&layout, "N2H"));
    kvp_memory_options_init(&options);
    options.touch = 1;
    REQUIRE_OK(kvp_memory_create(&layout, &options, &s->memory));
    REQUIRE_OK(kvp_memory_layer(s->memory, 0, &s->layer));
    s->n_bytes = (layout.n_blocks - 1) * block;
    fill(s->memory, type, layout.k.tensor_bytes);
    for (size_t i = 0; type == KVP_INT8 && i < (size_t)2 * shape->n_heads * layout.n_blocks; i++)
        ((float *)kvp_memory_tensor(s->memory, layout.k_scales.tensor))[i] = 1.0f / 127;
    note_huge_pages();
}

/* Rows of blocks that nobody shares, in random order. */
static void make_rows(attn_state *s, uint32_t n_seqs, uint32_t n_tokens, uint32_t n_queries)
{
    uint64_t random = 7;
    const uint32_t n = s->layer.n_blocks - 1;
    int32_t *order = allocate(n * sizeof *order);
    const size_t rows =
        (size_t)n_seqs * n_queries * s->shape.n_heads * s->shape.group * s->shape.size;
    s->n_seqs = n_seqs;
    s->n_tokens = n_tokens;
    s->row_blocks = n_tokens / ATTENTION_BLOCK;
    REQUIRE((uint64_t)s->row_blocks * n_seqs <= n);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (int32_t)i + 1;
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)(draw(&random) % (i + 1));
        const int32_t block = order[i];
        order[i] = order[j];
        order[j] = block;
    }
    s->blocks = order;
    s->lengths = allocate(n_seqs * sizeof *s->lengths);
    s->query_start = allocate((n_seqs + 1) * sizeof *s->query_start);
    for (uint32_t i = 0; i < n_seqs; i++) {
        s->lengths[i] = (int32_t)n_tokens;
        s->query_start[i + 1] = (int32_t)((i + 1) * n_queries);
    }
    s->q = allocate(rows * sizeof *s->q);
    s->out = allocate(rows * sizeof *s->out);
    for (size_t i = 0; i < rows; i++)
        s->q[i] = 2 * draw_value(&random);
}

static kvp_attention describe(attn_state *s, const kvp_attention_level *level)
{
    kvp_attention attention;
    kvp_attention_init(&attention);
    attention.layer = &s->layer;
    attention.impl = s->impl;
    attention.n_seqs = s->n_seqs;
    attention.n_tokens = (uint32_t)s->query_start[s->n_seqs];
    attention.n_heads = s->shape.n_heads * s->shape.group;
    attention.v_size = s->shape.v_size == 0 ? LATENT_V : 0;
    attention.query_start = s->query_start;
    attention.levels = level;
    attention.q.data = s->q;
    attention.out.data = s->out;
    attention.team = s->team;
    return attention;
}

static kvp_attention_level rows_of(const attn_state *s)
{
    return (kvp_attention_level){.n_rows = s->n_seqs,
                                 .n_blocks = s->n_seqs * s->row_blocks,
                                 .blocks = s->blocks,
                                 .row_stride = s->row_blocks,
                                 .lengths = s->lengths};
}

/* ns of a call; the result is looked at. */
static double run(attn_state *s, const kvp_attention *attention)
{
    size_t n_bytes;
    REQUIRE_OK(kvp_attention_bytes(attention, &n_bytes));
    if (n_bytes > s->scratch_bytes) {
        free(s->scratch);
        s->scratch_bytes = (n_bytes / KVP_SCRATCH_ALIGN + 1) * KVP_SCRATCH_ALIGN;
        s->scratch = aligned_alloc(KVP_SCRATCH_ALIGN, s->scratch_bytes);
        REQUIRE(s->scratch != NULL);
    }
    s->out[0] = 100.0f;
    const uint64_t start = now_ns();
    REQUIRE_OK(kvp_attention_run(attention, s->scratch, s->scratch_bytes));
    const uint64_t ns = now_ns() - start;
    REQUIRE(s->out[0] > -1.01f && s->out[0] < 1.01f);
    return (double)ns;
}

static void tear_down(void *state)
{
    attn_state *s = state;
    kvp_memory_destroy(s->memory);
    kvp_attention_team_destroy(s->team);
    free(s->blocks);
    free(s->lengths);
    free(s->query_start);
    free(s->q);
    free(s->out);
    free(s->scratch);
    free(s);
}

/* --------------------------------------------------------------------------------------- decode */

static void *set_up_shape(const bench_options *options, const attn_shape *shape, uint32_t type,
                          uint32_t n_threads)
{
    attn_state *s = allocate(sizeof *s);
    make_pool(s, shape, type,
              options->count   ? count_pool_bytes
              : options->quick ? quick_pool_bytes
                               : pool_bytes);
    if (options->count)
        s->impl = KVP_ATTENTION_PORTABLE; /* the same on every processor */
    const uint32_t n_blocks = (s->layer.n_blocks - 1) / SEQS;
    make_rows(s, SEQS, n_blocks * ATTENTION_BLOCK, 1);
    if (n_threads > 1)
        REQUIRE_OK(kvp_attention_team_create(n_threads, &s->team));
    return s;
}

static void *set_up_decode(const bench_options *options, uint32_t type, uint32_t n_threads)
{
    return set_up_shape(options, &common_shape, type, n_threads);
}

static double decode(void *state)
{
    attn_state *s = state;
    const kvp_attention_level level = rows_of(s);
    const kvp_attention attention = describe(s, &level);
    return (double)s->n_bytes / run(s, &attention);
}

/* Two operations for each element of K and of V that a query head meets. */
static double decode_latent(void *state)
{
    attn_state *s = state;
    const kvp_attention_level level = rows_of(s);
    const kvp_attention attention = describe(s, &level);
    const double keys = (double)s->n_seqs * s->n_tokens * s->shape.group;
    return 2.0 * keys * (s->shape.size + LATENT_V) / run(s, &attention);
}

struct part {
    const uint64_t *from;
    size_t n; /* numbers, a multiple of 64 */
    uint64_t sum;
};

/* The best of plain loops: sums over lines that follow each other, in the widest registers. */
#if defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#endif
static void *
read_part(void *argument)
{
    struct part *part = argument;
    uint64_t sums[32] = {0};
    for (size_t i = 0; i < part->n; i += 32) {
        for (size_t j = 0; j < 32; j++)
            sums[j] += part->from[i + j];
    }
    for (size_t j = 0; j < 32; j++)
        part->sum += sums[j];
    return NULL;
}

static double read_pool(attn_state *s, uint32_t n_threads)
{
    struct part parts[2] = {{0}};
    pthread_t thread;
    const uint64_t *pool = kvp_memory_tensor(s->memory, 0);
    const size_t n = s->n_bytes / sizeof *pool / n_threads / 64 * 64;
    for (uint32_t i = 0; i < n_threads; i++)
        parts[i] = (struct part){.from = pool + i * n, .n = n};
    const uint64_t start = now_ns();
    if (n_threads > 1)
        REQUIRE(pthread_create(&thread, NULL, read_part, &parts[1]) == 0);
    (void)read_part(&parts[0]);
    if (n_threads > 1)
        REQUIRE(pthread_join(thread, NULL) == 0);
    const uint64_t ns = now_ns() - start;
    s->sum += parts[0].sum + parts[1].sum;
    return (double)(n * n_threads * sizeof *pool) / (double)ns;
}

static double read_1t(void *state)
{
    return read_pool(state, 1);
}

static double read_2t(void *state)
{
    return read_pool(state, 2);
}

static void *f32_1t(const bench_options *options)
{
    return set_up_decode(options, KVP_F32, 1);
}

static void *f32_2t(const bench_options *options)
{
    return set_up_decode(options, KVP_F32, 2);
}

static void *f16_1t(const bench_options *options)
{
    return set_up_decode(options, KVP_F16, 1);
}

static void *f16_2t(const bench_options *options)
{
    return set_up_decode(options, KVP_F16, 2);
}

static void *bf16_1t(const bench_options *options)
{
    return set_up_decode(options, KVP_BF16, 1);
}

static void *bf16_2t(const bench_options *options)
{
    return set_up_decode(options, KVP_BF16, 2);
}

static void *int8_1t(const bench_options *options)
{
    return set_up_decode(options, KVP_INT8, 1);
}

static void *int8_2t(const bench_options *options)
{
    return set_up_decode(options, KVP_INT8, 2);
}

static void *bf16_small(const bench_options *options)
{
    return set_up_shape(options, &small_shape, KVP_BF16, 1);
}

static void *bf16_latent(const bench_options *options)
{
    return set_up_shape(options, &latent_shape, KVP_BF16, 1);
}

/* -------------------------------------------------------------------------------------- cascade */

typedef struct cascade {
    attn_state s; /* rows: the whole of each sequence */
    kvp_attention_level levels[2];
    int32_t shared_blocks[SHARED_TOKENS / ATTENTION_BLOCK];
    int32_t row_start[2][CASCADE_SEQS + 1];
    int32_t last_len[2][CASCADE_SEQS];
    int32_t query_start[2][CASCADE_SEQS + 1];
    int32_t own_blocks[CASCADE_SEQS * OWN_TOKENS / ATTENTION_BLOCK];
} cascade;

static void *set_up_cascade(const bench_options *options)
{
    enum { SHARED = SHARED_TOKENS / ATTENTION_BLOCK, OWN = OWN_TOKENS / ATTENTION_BLOCK };
    cascade *c = allocate(sizeof *c);
    (void)options;
    make_pool(&c->s, &common_shape, KVP_BF16, (size_t)128 << 20);
    make_rows(&c->s, 1, SHARED_TOKENS, 1);
    attn_state *s = &c->s;
    const int32_t *order = s->blocks;
    int32_t *rows = allocate((size_t)CASCADE_SEQS * (SHARED + OWN) * sizeof *rows);
    memcpy(c->shared_blocks, order, sizeof c->shared_blocks);
    memcpy(c->own_blocks, order + SHARED, sizeof c->own_blocks);
    for (size_t i = 0; i < CASCADE_SEQS; i++) {
        memcpy(rows + i * (SHARED + OWN), order, sizeof c->shared_blocks);
        memcpy(rows + i * (SHARED + OWN) + SHARED, c->own_blocks + i * OWN, OWN * sizeof *rows);
        c->last_len[1][i] = ATTENTION_BLOCK;
        c->row_start[1][i + 1] = (int32_t)(i + 1) * OWN;
        c->query_start[1][i + 1] = (int32_t)i + 1;
    }
    free(s->q);
    free(s->out);
    free(s->lengths);
    free(s->query_start);
    make_rows(s, CASCADE_SEQS, OWN_TOKENS, 1); /* for q and lengths */
    free(s->blocks);
    s->blocks = rows;
    s->row_blocks = SHARED + OWN;
    s->n_tokens = SHARED_TOKENS + OWN_TOKENS;
    for (uint32_t i = 0; i < CASCADE_SEQS; i++)
        s->lengths[i] = SHARED_TOKENS + OWN_TOKENS;
    free((void *)(uintptr_t)order);
    c->row_start[0][1] = SHARED;
    c->last_len[0][0] = ATTENTION_BLOCK;
    c->query_start[0][1] = CASCADE_SEQS;
    const uint32_t n_rows[] = {1, CASCADE_SEQS}, n_blocks[] = {SHARED, CASCADE_SEQS * OWN};
    for (uint32_t i = 0; i < 2; i++)
        c->levels[i] = (kvp_attention_level){.n_rows = n_rows[i],
                                             .n_blocks = n_blocks[i],
                                             .blocks = i == 0 ? c->shared_blocks : c->own_blocks,
                                             .row_start = c->row_start[i],
                                             .last_len = c->last_len[i],
                                             .query_start = c->query_start[i]};
    return c;
}

/* Tokens that are decoded in a second. */
static double with_cascade(void *state)
{
    cascade *c = state;
    kvp_attention attention = describe(&c->s, c->levels);
    attention.n_levels = 2;
    return CASCADE_SEQS * 1e9 / run(&c->s, &attention);
}

static double without_cascade(void *state)
{
    cascade *c = state;
    const kvp_attention_level level = rows_of(&c->s);
    const kvp_attention attention = describe(&c->s, &level);
    return CASCADE_SEQS * 1e9 / run(&c->s, &attention);
}

/* -------------------------------------------------------------------------------------- prefill */

static void *set_up_prefill(const bench_options *options)
{
    attn_state *s = allocate(sizeof *s);
    const uint32_t n_tokens = options->quick ? 256 : PREFILL_TOKENS;
    make_pool(s, &common_shape, KVP_BF16, (size_t)64 << 20);
    make_rows(s, 1, n_tokens, n_tokens);
    return s;
}

/* Two multiplications and two additions for each element of q and of out, and key that is seen. */
static double prefill(void *state)
{
    attn_state *s = state;
    const kvp_attention_level level = rows_of(s);
    const kvp_attention attention = describe(s, &level);
    const double n = s->n_tokens, pairs = n * (n + 1) / 2;
    return 4.0 * pairs * s->shape.n_heads * s->shape.group * s->shape.size / run(s, &attention);
}

#define DECODE(type, threads, aim)                                                                 \
    static const measurement of_##type##_##threads[] = {                                           \
        {"attn_decode_" #type "_" #threads, "GB/s", aim, SAMPLES, decode, read_##threads,          \
         "blocks in random order; more is better"},                                                \
    };                                                                                             \
    const group attn_##type##_##threads##_group = {of_##type##_##threads, 1, type##_##threads,     \
                                                   tear_down};

DECODE(f32, 1t, 0.75)
DECODE(f32, 2t, 0.85)
DECODE(f16, 1t, 0.75)
DECODE(f16, 2t, 0.85)
DECODE(bf16, 1t, 0.75)
DECODE(bf16, 2t, 0.85)
DECODE(int8, 1t, 0)
DECODE(int8, 2t, 0)

static const measurement of_small[] = {
    {"attn_decode_bf16_h64_1t", "GB/s", 0, SAMPLES, decode, read_1t,
     "3 KV heads of 64; more is better"},
};

static const measurement of_latent[] = {
    {"attn_decode_bf16_mla_1t", "GFLOP/s", 0, SAMPLES, decode_latent, NULL,
     "latent KV of 576, 16 query heads; more is better"},
};

static const measurement of_cascade[] = {
    {"attn_cascade_bf16_1t", "tokens/s", 4.0, SAMPLES, with_cascade, without_cascade,
     "16 sequences, 8,192 tokens shared, 256 own; more is better"},
};

static const measurement of_prefill[] = {
    {"attn_prefill_bf16_1t", "GFLOP/s", 250, SAMPLES, prefill, NULL,
     "4,096 tokens, causal; more is better"},
};

const group attn_small_group = {of_small, 1, bf16_small, tear_down};
const group attn_latent_group = {of_latent, 1, bf16_latent, tear_down};
const group attn_cascade_group = {of_cascade, 1, set_up_cascade, tear_down};
const group attn_prefill_group = {of_prefill, 1, set_up_prefill, tear_down};

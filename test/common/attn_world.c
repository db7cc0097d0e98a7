/* attn_world: memory by hand, sequences by lot, and the oracle. Nothing here is made to be fast. */
#include "attn_world.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

static const double pi = 3.14159265358979323846;

/* ----------------------------------------------------------------------------------------
 * chance */

uint32_t attn_draw(uint64_t *random, uint32_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return n == 0 ? 0 : (uint32_t)((*random >> 33) % n);
}

double attn_draw_real(uint64_t *random)
{
    return attn_draw(random, 1u << 24) / (double)(1u << 23) - 1.0;
}

static kvp_rope draw_rope(uint64_t *random, uint32_t dims)
{
    kvp_rope rope;
    kvp_rope_init(&rope);
    rope.mode = attn_draw(random, 3);
    rope.pairing = attn_draw(random, 2);
    rope.scaling = attn_draw(random, 4);
    rope.theta = attn_draw(random, 2) ? 10000.0 : 500000.0;
    rope.factor = 1.0 + attn_draw(random, 8);
    rope.original_tokens = 16u << attn_draw(random, 8);
    rope.yarn_exact = attn_draw(random, 2);
    rope.magnitude = attn_draw(random, 4) == 0 ? 1.25 : 0.0;
    if (dims >= 4 && attn_draw(random, 3) == 0) {
        rope.n_dims = 2 + 2 * attn_draw(random, dims / 2 - 1);
        rope.first_dim = attn_draw(random, dims - rope.n_dims + 1);
    }
    if (dims < 2 || (dims - rope.first_dim) % 2 != 0)
        rope.mode = rope.n_dims == 0 ? (uint32_t)KVP_ROPE_NONE : rope.mode;
    return rope;
}

attn_params attn_draw_params(uint64_t *random)
{
    static const uint32_t types[] = {KVP_F32, KVP_F32, KVP_F16, KVP_BF16, KVP_INT8, KVP_E4M3};
    attn_params params = {.type = types[attn_draw(random, 6)],
                          .order = attn_draw(random, ATTENTION_ORDERS),
                          .n_heads = 1 + attn_draw(random, 3),
                          .group = 1 + attn_draw(random, 3),
                          .k_size = 1 + attn_draw(random, 20),
                          .v_size = 1 + attn_draw(random, 20),
                          .block_tokens = 1 + attn_draw(random, 8),
                          .causal = attn_draw(random, 5) != 0,
                          .has_sinks = attn_draw(random, 3) == 0};
    if (params.order == ATTENTION_SPLIT)
        params.k_size = 4 * (1 + params.k_size / 4);
    if (params.order == ATTENTION_LATENT) {
        params.n_heads = 1;
        params.v_size = 1 + attn_draw(random, params.k_size);
    }
    if (attn_draw(random, 2))
        params.scale = attn_draw_real(random) + 1.5;
    if (attn_draw(random, 3) == 0)
        params.soft_cap = 0.5 + attn_draw(random, 3);
    params.rope = draw_rope(random, params.k_size);
    if (params.rope.mode == KVP_ROPE_AT_READ)
        params.causal = 1; /* turned by what a query sees, which must be all that there is */
    return params;
}

/* ----------------------------------------------------------------------------------------
 * memory */

static size_t type_size(uint32_t type)
{
    return type == KVP_F32 ? 4 : type == KVP_F16 || type == KVP_BF16 ? 2 : 1;
}

/* K and V of one layer: strides in bytes, as attn_world.h draws the orders. Returns the bytes. */
static size_t lay_out(attn_world *world)
{
    const attn_params *p = &world->params;
    const size_t size = type_size(p->type), S = p->block_tokens, H = p->n_heads, D = p->k_size,
                 Dv = p->v_size, N = world->n_blocks;
    kvp_layer_part *k = &world->layer.k, *v = &world->layer.v;
    k->size = k->run = (uint32_t)D;
    v->size = v->run = (uint32_t)Dv;
    if (p->order == ATTENTION_HND) {
        k->token_stride = D * size;
        k->head_stride = S * D * size;
        v->token_stride = Dv * size;
        v->head_stride = S * Dv * size;
        k->block_stride = v->block_stride = H * S * (D + Dv) * size;
        k->base = world->memory;
        v->base = world->memory + H * S * D * size;
        return N * k->block_stride;
    }
    if (p->order == ATTENTION_SPLIT) {
        k->run = 4;
        k->token_stride = 4 * size;
        k->run_stride = S * 4 * size;
        v->run = 1;
        v->token_stride = size;
        v->run_stride = S * size;
        k->head_stride = D * S * size;
        v->head_stride = Dv * S * size;
        k->block_stride = H * k->head_stride;
        v->block_stride = H * v->head_stride;
    } else {
        k->head_stride = D * size;
        v->head_stride = Dv * size;
        k->token_stride = H * k->head_stride;
        v->token_stride = H * v->head_stride;
        k->block_stride = S * k->token_stride + 3 * size;
        v->block_stride = S * v->token_stride + 5 * size;
    }
    k->base = world->memory;
    v->base = p->order == ATTENTION_LATENT ? NULL : world->memory + N * k->block_stride;
    if (p->order == ATTENTION_LATENT)
        memset(v, 0, sizeof *v);
    return N * (k->block_stride + v->block_stride);
}

static void add_scales(attn_world *world)
{
    const size_t H = world->params.n_heads, N = world->n_blocks;
    kvp_layer_part *const parts[] = {&world->layer.k, &world->layer.v};
    world->scales = malloc(2 * N * H * sizeof *world->scales);
    assert_non_null(world->scales);
    memset(world->scales, 0xFF, 2 * N * H * sizeof *world->scales);
    for (size_t i = 0; i < 2; i++) {
        if (parts[i]->base == NULL)
            continue;
        parts[i]->scales = world->scales + i * H; /* [N, 2, H] */
        parts[i]->scale_block_stride = 2 * H * sizeof(float);
        parts[i]->scale_head_stride = sizeof(float);
    }
}

attn_world attn_begin(const attn_params *params, uint32_t n_blocks, uint64_t seed)
{
    const uint32_t n_heads = params->n_heads * params->group;
    attn_world world = {.params = *params,
                        .n_blocks = n_blocks,
                        .random = seed,
                        .layer = {.type = params->type,
                                  .n_blocks = n_blocks,
                                  .block_tokens = params->block_tokens,
                                  .n_heads = params->n_heads}};
    const size_t bytes = lay_out(&world);
    world.memory = malloc(bytes);
    assert_non_null(world.memory);
    memset(world.memory, 0xFF, bytes);
    world.n_bytes = bytes;
    (void)lay_out(&world);
    if (params->type == KVP_INT8 || params->type == KVP_E4M3)
        add_scales(&world);
    world.sink_logits = malloc(n_heads * sizeof *world.sink_logits);
    assert_non_null(world.sink_logits);
    for (uint32_t i = 0; i < n_heads; i++)
        world.sink_logits[i] = (float)(2.0 * attn_draw_real(&world.random));
    return world;
}

void attn_end(attn_world *world)
{
    for (uint32_t i = 0; i < world->n_seqs; i++) {
        free(world->seqs[i].k);
        free(world->seqs[i].v);
        free(world->seqs[i].q);
    }
    free(world->sink_logits);
    free(world->scales);
    free(world->memory);
}

/* ------------------------------------------------------------------------------------- decoders */

static double small_float(unsigned bits, int n_mantissa, int n_exponent, int bias)
{
    const unsigned mantissa = bits & ((1u << n_mantissa) - 1);
    const int exponent = (int)(bits >> n_mantissa & ((1u << n_exponent) - 1));
    const double sign = bits >> (n_mantissa + n_exponent) & 1 ? -1.0 : 1.0;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - n_mantissa);
    return sign * ldexp(mantissa + (1u << n_mantissa), exponent - bias - n_mantissa);
}

/* The value of an element's bits; all values that are finite. */
static double decode(uint32_t type, uint32_t bits)
{
    switch (type) {
    case KVP_F16: return (bits >> 10 & 31) == 31 ? (double)NAN : small_float(bits, 10, 5, 15);
    case KVP_BF16: return (bits >> 7 & 255) == 255 ? (double)NAN : small_float(bits, 7, 8, 127);
    case KVP_INT8: return (double)bits - (bits >= 128 ? 256.0 : 0.0);
    default: return (bits & 127) == 127 ? (double)NAN : small_float(bits, 3, 4, 7);
    }
}

double attn_stored(const attn_world *world, int which, int32_t block, uint32_t offset,
                   uint32_t head, uint32_t e)
{
    const kvp_layer_part *part = which == KVP_V ? &world->layer.v : &world->layer.k;
    const size_t size = type_size(world->params.type);
    const size_t run = part->run == part->size ? 0 : e / part->run * part->run_stride;
    const unsigned char *at = part->base + (size_t)block * part->block_stride +
                              offset * part->token_stride + head * part->head_stride + run +
                              e % part->run * size;
    double scale = 1.0;
    float f;
    uint16_t h;
    if (part->scales != NULL)
        scale =
            world->scales[((size_t)block * 2 + (which == KVP_V)) * world->params.n_heads + head];
    if (size == 4) {
        memcpy(&f, at, 4);
        return f;
    }
    if (size == 1)
        return (float)(decode(world->params.type, *at) * scale); /* in f32, memory.h says */
    memcpy(&h, at, 2);
    return decode(world->params.type, h);
}

double attn_nearest(uint32_t type, double value)
{
    const uint32_t n = type_size(type) == 2 ? 65536 : 256;
    double best = 0.0, best_off = INFINITY;
    uint32_t best_bits = 0;
    for (uint32_t bits = 0; bits < n; bits++) {
        const double candidate = decode(type, bits), off = fabs(candidate - value);
        if (off < best_off || (off == best_off && (bits & 1) == 0 && (best_bits & 1) == 1)) {
            best = candidate;
            best_off = off;
            best_bits = bits;
        }
    }
    return best;
}

/* -------------------------------------------------------------------------------------
 * sequences */

static float *draw_vectors(attn_world *world, size_t n, double size)
{
    float *vectors = malloc((n + 1) * sizeof *vectors);
    assert_non_null(vectors);
    for (size_t i = 0; i < n; i++)
        vectors[i] = (float)(size * attn_draw_real(&world->random));
    return vectors;
}

static int is_used(const attn_world *world, int32_t block)
{
    for (uint32_t i = 0; i < world->n_seqs; i++) {
        for (uint32_t j = 0; j < world->seqs[i].n_blocks; j++)
            if (world->seqs[i].blocks[j] == block)
                return 1;
    }
    return 0;
}

static int32_t draw_block(attn_world *world, const attn_seq *seq)
{
    for (;;) {
        const int32_t block = 1 + (int32_t)attn_draw(&world->random, world->n_blocks - 1);
        int is_ours = 0;
        for (uint32_t i = 0; i < seq->n_blocks; i++)
            is_ours |= seq->blocks[i] == block;
        if (!is_ours && !is_used(world, block))
            return block;
    }
}

static void draw_tree(attn_world *world, attn_seq *seq)
{
    const uint32_t n_committed = seq->n_tokens - seq->n_tree;
    for (uint32_t i = 0; i < n_committed; i++)
        seq->positions[i] = (int32_t)i;
    for (uint32_t i = 0; i < seq->n_tree; i++) {
        seq->parents[i] = (int32_t)attn_draw(&world->random, i + 1) - 1;
        seq->positions[n_committed + i] =
            seq->parents[i] < 0 ? (int32_t)n_committed
                                : seq->positions[n_committed + (uint32_t)seq->parents[i]] + 1;
    }
}

void attn_add(attn_world *world, const attn_wish *wish)
{
    const attn_params *p = &world->params;
    attn_seq *seq = &world->seqs[world->n_seqs];
    const attn_seq *first = &world->seqs[0];
    const uint32_t n_shared_tokens = wish->shared_blocks * p->block_tokens;
    const uint32_t n_q = p->n_heads * p->group;
    assert_true(world->n_seqs < ATTENTION_MAX_SEQS && wish->n_tokens <= ATTENTION_MAX_TOKENS);
    memset(seq, 0, sizeof *seq);
    seq->n_tokens = wish->n_tokens;
    seq->n_queries = wish->n_queries;
    seq->n_tree = wish->n_tree;
    seq->chunked = wish->sinks == KVP_CHUNKED;
    seq->sinks = wish->recent > 0 && !seq->chunked ? wish->sinks : 0;
    seq->recent = wish->recent;
    seq->n_shared = wish->shared_blocks;
    seq->k = draw_vectors(world, (size_t)seq->n_tokens * p->n_heads * p->k_size, 2.0);
    seq->v = draw_vectors(world, (size_t)seq->n_tokens * p->n_heads * p->v_size, 1.0);
    seq->q = draw_vectors(world, (size_t)seq->n_queries * n_q * p->k_size, 2.0);
    draw_tree(world, seq);
    if (n_shared_tokens > 0) {
        memcpy(seq->k, first->k, (size_t)n_shared_tokens * p->n_heads * p->k_size * sizeof *seq->k);
        memcpy(seq->v, first->v, (size_t)n_shared_tokens * p->n_heads * p->v_size * sizeof *seq->v);
    }
    for (uint32_t i = 0; i * p->block_tokens < seq->n_tokens; i++) {
        seq->blocks[i] = i < seq->n_shared ? first->blocks[i] : draw_block(world, seq);
        seq->n_blocks = i + 1;
    }
    world->n_seqs++;
}

void attn_add_some(attn_world *world, uint32_t n, int with_trees, int with_windows)
{
    uint64_t *random = &world->random;
    const uint32_t S = world->params.block_tokens;
    for (uint32_t i = 0; i < n; i++) {
        attn_wish wish = {.n_tokens = attn_draw(random, 40)};
        wish.n_queries = attn_draw(random, 3) == 0 ? wish.n_tokens : attn_draw(random, 2);
        if (attn_draw(random, 3) == 0)
            wish.n_queries = attn_draw(random, wish.n_tokens + 1);
        wish.n_queries = wish.n_queries > wish.n_tokens ? wish.n_tokens : wish.n_queries;
        if (with_trees && attn_draw(random, 2)) {
            wish.n_tree = attn_draw(random, wish.n_tokens + 1);
            wish.n_tree = wish.n_tree > 12 ? 12 : wish.n_tree;
        }
        if (with_windows && attn_draw(random, 3) > 0) {
            wish.recent = 1 + attn_draw(random, 20);
            wish.sinks = attn_draw(random, 6);
            wish.sinks = wish.sinks == 5 ? KVP_CHUNKED : wish.sinks;
        }
        if (i > 0 && attn_draw(random, 2)) { /* only what is neither's to write in this step */
            const attn_seq *first = &world->seqs[0];
            const uint32_t n_old = wish.n_queries > wish.n_tree ? wish.n_queries : wish.n_tree;
            const uint32_t n_old_first =
                first->n_queries > first->n_tree ? first->n_queries : first->n_tree;
            const uint32_t mine = (wish.n_tokens - n_old) / S,
                           its = (first->n_tokens - n_old_first) / S;
            wish.shared_blocks = attn_draw(random, 1 + (mine < its ? mine : its));
        }
        attn_add(world, &wish);
    }
}

/* ----------------------------------------------------------------------------------------
 * append */

void attn_append(attn_world *world, uint32_t seq_index, uint32_t from, uint32_t to)
{
    const attn_params *p = &world->params;
    const attn_seq *seq = &world->seqs[seq_index];
    int64_t slots[ATTENTION_MAX_TOKENS];
    kvp_append append;
    size_t n_bytes;
    kvp_append_init(&append);
    append.impl = world->append_impl;
    append.layer = &world->layer;
    append.n_tokens = to - from;
    append.slots = slots;
    append.positions = seq->positions + from;
    append.rope = p->rope;
    append.k.data = seq->k + (size_t)from * p->n_heads * p->k_size;
    if (p->order != ATTENTION_LATENT)
        append.v.data = seq->v + (size_t)from * p->n_heads * p->v_size;
    for (uint32_t i = from; i < to; i++) {
        const uint32_t S = p->block_tokens;
        slots[i - from] = i / S < seq->n_shared && seq_index > 0
                              ? KVP_NO_SLOT
                              : (int64_t)seq->blocks[i / S] * S + i % S;
    }
    assert_int_equal(kvp_append_bytes(&append, &n_bytes), KVP_OK);
    void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes + KVP_SCRATCH_ALIGN);
    assert_non_null(scratch);
    assert_int_equal(kvp_append_run(&append, scratch, n_bytes), KVP_OK);
    free(scratch);
}

void attn_append_all(attn_world *world)
{
    for (uint32_t i = 0; i < world->n_seqs; i++)
        attn_append(world, i, 0, world->seqs[i].n_tokens);
}

/* -------------------------------------------------------------------------------- rotary
 * embedding */

/* Published formulas, by wavelength where llama3 has them so. */
static double frequency_of(const kvp_rope *rope, uint32_t n, uint32_t pair)
{
    const double plain = 1.0 / pow(rope->theta, 2.0 * pair / n);
    const double old = rope->original_tokens;
    if (rope->scaling == KVP_ROPE_LINEAR)
        return plain / rope->factor;
    if (rope->scaling == KVP_ROPE_LLAMA3) {
        const double wavelength = 2.0 * pi / plain;
        if (wavelength < old / rope->high_freq_factor)
            return plain;
        if (wavelength > old / rope->low_freq_factor)
            return plain / rope->factor;
        const double smooth = (old / wavelength - rope->low_freq_factor) /
                              (rope->high_freq_factor - rope->low_freq_factor);
        return (1.0 - smooth) * plain / rope->factor + smooth * plain;
    }
    if (rope->scaling == KVP_ROPE_YARN) {
        double low = n * log(old / (rope->beta_fast * 2.0 * pi)) / (2.0 * log(rope->theta));
        double high = n * log(old / (rope->beta_slow * 2.0 * pi)) / (2.0 * log(rope->theta));
        low = rope->yarn_exact ? low : floor(low);
        high = rope->yarn_exact ? high : ceil(high);
        low = low < 0.0 ? 0.0 : low;
        high = high > n - 1.0 ? n - 1.0 : high;
        high = high <= low ? low + 0.001 : high;
        double ramp = (pair - low) / (high - low);
        ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
        return plain * (1.0 - ramp) + plain / rope->factor * ramp;
    }
    return plain;
}

void attn_turn(const kvp_rope *rope, uint32_t dims, double position, const double *x, double *out)
{
    const uint32_t n = rope->n_dims != 0 ? rope->n_dims : dims - rope->first_dim;
    double magnitude = rope->magnitude;
    if (magnitude == 0.0)
        magnitude = rope->scaling == KVP_ROPE_YARN && rope->factor > 1.0
                        ? 0.1 * log(rope->factor) + 1.0
                        : 1.0;
    for (uint32_t i = 0; i < dims; i++)
        out[i] = x[i];
    for (uint32_t pair = 0; pair < n / 2; pair++) {
        const uint32_t a = rope->first_dim + (rope->pairing == KVP_ROPE_SPLIT ? pair : 2 * pair);
        const uint32_t b = a + (rope->pairing == KVP_ROPE_SPLIT ? n / 2 : 1);
        const double angle = position * frequency_of(rope, n, pair);
        const double complex turned = (x[a] + x[b] * I) * cexp(angle * I) * magnitude;
        out[a] = creal(turned);
        out[b] = cimag(turned);
    }
}

/* ------------------------------------------------------------------------------------- the
 * oracle */

int attn_may_see(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t key)
{
    const uint32_t n_committed = seq->n_tokens - seq->n_tree;
    const uint32_t self = seq->n_tokens - seq->n_queries + query;
    if (!world->params.causal && seq->n_tree == 0)
        return 1;
    if (key < n_committed)
        return key <= self;
    if (self < n_committed)
        return 0;
    int32_t node = (int32_t)(self - n_committed);
    while (node >= 0 && node != (int32_t)(key - n_committed))
        node = seq->parents[node];
    return node >= 0;
}

int attn_sees(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t key)
{
    const int32_t self = seq->positions[seq->n_tokens - seq->n_queries + query];
    const int32_t position = seq->positions[key];
    if (!attn_may_see(world, seq, query, key))
        return 0;
    if (seq->chunked)
        return position / (int32_t)seq->recent == self / (int32_t)seq->recent && position <= self;
    return seq->recent == 0 || position < (int32_t)seq->sinks ||
           (position > self - (int32_t)seq->recent && position <= self);
}

static void load(const attn_world *world, const attn_seq *seq, int which, uint32_t key,
                 uint32_t head, double *out)
{
    const uint32_t S = world->params.block_tokens;
    const uint32_t n = which == KVP_V ? world->params.v_size : world->params.k_size;
    const int part = world->params.order == ATTENTION_LATENT ? KVP_K : which;
    for (uint32_t e = 0; e < n; e++)
        out[e] = attn_stored(world, part, seq->blocks[key / S], key % S, head, e);
}

static double score(const attn_world *world, const double *q, const double *k)
{
    const attn_params *p = &world->params;
    double sum = 0.0;
    for (uint32_t e = 0; e < p->k_size; e++)
        sum += q[e] * k[e];
    sum *= p->scale != 0.0 ? p->scale : 1.0 / sqrt(p->k_size);
    return p->soft_cap > 0.0 ? p->soft_cap * tanh(sum / p->soft_cap) : sum;
}

void attn_expect(const attn_world *world, const attn_seq *seq, uint32_t query, uint32_t head,
                 double *out, double *out_lse)
{
    const attn_params *p = &world->params;
    const uint32_t self = seq->n_tokens - seq->n_queries + query;
    const float *given = seq->q + ((size_t)query * p->n_heads * p->group + head) * p->k_size;
    double q[32], k[32], v[32], plain[32];
    long double sum = p->has_sinks ? expl(world->sink_logits[head]) : 0.0L, sums[32] = {0};
    uint32_t n_seen = 0, rank = 0;
    for (uint32_t key = 0; key < seq->n_tokens; key++)
        n_seen += (uint32_t)attn_sees(world, seq, query, key);
    for (uint32_t e = 0; e < p->k_size; e++)
        plain[e] = q[e] = given[e];
    if (p->rope.mode == KVP_ROPE_AT_WRITE)
        attn_turn(&p->rope, p->k_size, seq->positions[self], plain, q);
    if (p->rope.mode == KVP_ROPE_AT_READ)
        attn_turn(&p->rope, p->k_size, n_seen - 1.0, plain, q);
    for (uint32_t key = 0; key < seq->n_tokens; key++) {
        if (!attn_sees(world, seq, query, key))
            continue;
        load(world, seq, KVP_K, key, head / p->group, plain);
        load(world, seq, KVP_V, key, head / p->group, v);
        if (p->rope.mode == KVP_ROPE_AT_READ)
            attn_turn(&p->rope, p->k_size, rank, plain, k);
        else
            memcpy(k, plain, sizeof k);
        const long double weight = expl(score(world, q, k));
        sum += weight;
        for (uint32_t e = 0; e < p->v_size; e++)
            sums[e] += weight * v[e];
        rank++;
    }
    for (uint32_t e = 0; e < p->v_size; e++)
        out[e] = sum > 0.0L ? (double)(sums[e] / sum) : 0.0;
    *out_lse = sum > 0.0L ? (double)logl(sum) : -(double)INFINITY;
}

/* Fuzz target: bytes become the metadata of an attention call. A batch that fits is described,
 * dense, in lists or as a cascade, with windows, trees and masks; then bytes overwrite some of its
 * numbers, and the call is made.
 *
 * K and V, of any type, are written by append calls, which must leave the same bits whatever the
 * implementation. Every array is an allocation of its own, as long as its count says, so that a
 * look behind it is seen. The call is made with every implementation. One that fails must have
 * written nothing. One that succeeds gives weighted means of V: no larger than the largest of V,
 * not NaN, which is what the null block is full of; and merged with nothing it stays what it is. */
#include <kvpager/attention.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MAX_SEQS = 4,
    MAX_KEYS = 40,
    MAX_LEVELS = 3,
    N_ARRAYS = 40,
    D = 4,
    H = 2,
    Q = 4,
    TOKEN = 2 * H * D
};

struct session {
    const uint8_t *at;
    const uint8_t *end;
    uint32_t random; /* for what need not be chosen: block ids, q, bits */
    kvp_layer layer;
    unsigned char *kv; /* [N, S, 2, H, D] of the layer's type */
    float *scales;     /* [2, N, H] */
    kvp_attention attention;
    kvp_attention_level levels[MAX_LEVELS];
    uint32_t n_queries;
    uint32_t n_tree;
    uint32_t n_keys[MAX_SEQS];
    uint32_t queries[MAX_SEQS];
    uint32_t tree[MAX_SEQS];
    int32_t *arrays[N_ARRAYS]; /* what may be overwritten; owned */
    uint32_t lengths[N_ARRAYS];
    uint32_t n_arrays;
};

static uint32_t byte(struct session *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static uint32_t below(struct session *s, uint32_t n)
{
    return byte(s) % n;
}

static uint32_t any(struct session *s)
{
    s->random = s->random * 1664525u + 1013904223u;
    return s->random >> 16;
}

/* An array of exactly n numbers, all 0. */
static int32_t *array(struct session *s, uint32_t n)
{
    int32_t *made = malloc(n * sizeof *made + (n == 0));
    require(made != NULL && s->n_arrays < N_ARRAYS);
    memset(made, 0, n * sizeof *made);
    s->arrays[s->n_arrays] = made;
    s->lengths[s->n_arrays++] = n;
    return made;
}

static float *rows(size_t n, float value)
{
    float *made = malloc(n * sizeof *made + (n == 0));
    require(made != NULL);
    for (size_t i = 0; i < n; i++)
        made[i] = value;
    return made;
}

/* ---------------------------------------------------------------------------------------- a
 * batch */

static void describe_part(struct session *s, kvp_layer_part *part, size_t first, size_t bytes)
{
    const uint32_t n_blocks = s->layer.n_blocks, block_tokens = s->layer.block_tokens;
    *part = (kvp_layer_part){.base = s->kv + first * bytes,
                             .block_stride = block_tokens * (size_t)TOKEN * bytes,
                             .token_stride = TOKEN * bytes,
                             .head_stride = D * bytes,
                             .size = D,
                             .run = D};
    if (s->layer.type == KVP_INT8 || s->layer.type == KVP_E4M3) {
        part->scales = s->scales + (first > 0 ? (size_t)n_blocks * H : 0);
        part->scale_block_stride = H * sizeof(float);
        part->scale_head_stride = sizeof(float);
    }
}

/* New K and V for every slot but those of block 0, in the order of `slots`. */
static void append_all(struct session *s, uint32_t impl, const int64_t *slots, uint32_t n)
{
    kvp_append append;
    size_t n_bytes;
    const size_t n_values = (size_t)n * H * D;
    float *k = rows(n_values, 0), *v = rows(n_values, 0);
    int32_t *positions = malloc(n * sizeof *positions);
    require(positions != NULL);
    for (size_t i = 0; i < n_values; i++) {
        k[i] = (float)((i * 2654435761u >> 7) % 201) / 100.0f - 1.0f;
        v[i] = (float)((i * 2246822519u >> 9) % 201) / 100.0f - 1.0f;
    }
    for (uint32_t i = 0; i < n; i++)
        positions[i] = (int32_t)(i * 3);
    kvp_append_init(&append);
    append.impl = impl;
    append.n_tokens = n;
    append.layer = &s->layer;
    append.slots = slots;
    append.positions = positions;
    append.k.data = k;
    append.v.data = v;
    append.rope.mode = slots[0] % 2 == 0 ? KVP_ROPE_AT_WRITE : KVP_ROPE_NONE;
    require(kvp_append_bytes(&append, &n_bytes) == KVP_OK);
    void *scratch =
        aligned_alloc(KVP_SCRATCH_ALIGN, (n_bytes / KVP_SCRATCH_ALIGN + 1) * KVP_SCRATCH_ALIGN);
    require(scratch != NULL && kvp_append_run(&append, scratch, n_bytes) == KVP_OK);
    free(scratch);
    free(positions);
    free(k);
    free(v);
}

/* The null block is full of NaN; the others are empty, then written. */
static void clear_kv(struct session *s, size_t block_bytes)
{
    const size_t n_blocks = s->layer.n_blocks, n_scales = n_blocks * H;
    memset(s->kv, 0xFF, block_bytes);
    memset(s->kv + block_bytes, 0, (n_blocks - 1) * block_bytes);
    memset(s->scales, 0, 2 * n_scales * sizeof *s->scales);
    for (uint32_t h = 0; h < H; h++)
        s->scales[h] = s->scales[n_scales + h] = NAN;
}

/* Every implementation writes the same bits. */
static void fill_layer(struct session *s, size_t block_bytes)
{
    const uint32_t S = s->layer.block_tokens, n = (s->layer.n_blocks - 1) * S;
    const size_t n_bytes = s->layer.n_blocks * block_bytes;
    const size_t n_scales = 2 * (size_t)s->layer.n_blocks * H;
    const uint32_t other =
        KVP_ATTENTION_PORTABLE + any(s) % (KVP_ATTENTION_NEON - KVP_ATTENTION_PORTABLE + 1);
    int64_t *slots = malloc(n * sizeof *slots);
    unsigned char *expected = malloc(n_bytes + n_scales * sizeof(float));
    require(slots != NULL && expected != NULL);
    for (uint32_t i = 0; i < n; i++)
        slots[i] = any(s) % 16 == 0 && i > 0 ? KVP_NO_SLOT : (int64_t)S + n - 1 - i;
    clear_kv(s, block_bytes);
    append_all(s, KVP_ATTENTION_REFERENCE, slots, n);
    memcpy(expected, s->kv, n_bytes);
    memcpy(expected + n_bytes, s->scales, n_scales * sizeof(float));
    if (kvp_attention_has(other)) {
        clear_kv(s, block_bytes);
        append_all(s, other, slots, n);
        require(memcmp(expected, s->kv, n_bytes) == 0);
        require(memcmp(expected + n_bytes, s->scales, n_scales * sizeof(float)) == 0);
    }
    free(expected);
    free(slots);
}

static void make_layer(struct session *s)
{
    static const uint32_t types[] = {KVP_F32, KVP_F16, KVP_BF16, KVP_INT8, KVP_E4M3};
    const uint32_t type = types[s->random % 10 < 5 ? s->random % 10 : 0];
    const uint32_t n_blocks = 2 + below(s, 12), block_tokens = 1 + below(s, 7);
    const size_t bytes = kvp_type_bytes(type), block_bytes = block_tokens * TOKEN * bytes;
    s->kv = malloc(n_blocks * block_bytes);
    s->scales = rows(2 * (size_t)n_blocks * H, 0);
    require(s->kv != NULL);
    s->layer =
        (kvp_layer){.type = type, .n_blocks = n_blocks, .block_tokens = block_tokens, .n_heads = H};
    describe_part(s, &s->layer.k, 0, bytes);
    describe_part(s, &s->layer.v, H * D, bytes);
    fill_layer(s, block_bytes);
}

static void make_sequences(struct session *s)
{
    kvp_attention *a = &s->attention;
    a->n_seqs = below(s, MAX_SEQS + 1);
    int32_t *starts = array(s, a->n_seqs + 1);
    a->query_start = starts;
    for (uint32_t i = 0; i < a->n_seqs; i++) {
        s->n_keys[i] = below(s, MAX_KEYS + 1);
        s->queries[i] = below(s, s->n_keys[i] + 1) % 6;
        s->tree[i] = below(s, 3) == 0 ? below(s, s->n_keys[i] + 1) : 0;
        s->n_queries += s->queries[i];
        s->n_tree += s->tree[i];
        starts[i + 1] = (int32_t)s->n_queries;
    }
    a->n_tokens = s->n_queries + below(s, 2);
}

static int32_t draw_block(struct session *s)
{
    return 1 + (int32_t)(any(s) % (s->layer.n_blocks - 1));
}

static void make_dense(struct session *s, kvp_attention_level *level)
{
    level->row_stride = MAX_KEYS;
    level->n_blocks = level->n_rows * level->row_stride;
    int32_t *blocks = array(s, level->n_blocks), *lengths = array(s, level->n_rows);
    for (uint32_t i = 0; i < level->n_blocks; i++)
        blocks[i] = draw_block(s);
    for (uint32_t i = 0; i < level->n_rows; i++)
        lengths[i] = (int32_t)s->n_keys[i];
    level->blocks = blocks;
    level->lengths = lengths;
}

/* `share` of each sequence's blocks that belong to this level: all, or what is left. */
static void make_csr(struct session *s, kvp_attention_level *level, const uint32_t *n_slots)
{
    const uint32_t S = s->layer.block_tokens;
    int32_t *starts = array(s, level->n_rows + 1), *last = array(s, level->n_rows);
    for (uint32_t i = 0; i < level->n_rows; i++) {
        const uint32_t n = (n_slots[i] + S - 1) / S;
        starts[i + 1] = starts[i] + (int32_t)n;
        last[i] = n == 0 ? 0 : (int32_t)(n_slots[i] - (n - 1) * S);
    }
    level->n_blocks = (uint32_t)starts[level->n_rows];
    int32_t *blocks = array(s, level->n_blocks);
    for (uint32_t i = 0; i < level->n_blocks; i++)
        blocks[i] = draw_block(s);
    level->blocks = blocks;
    level->row_start = starts;
    level->last_len = last;
}

/* Level 0: one row for all, of whole blocks that all have; level 1: the rest, in another order. */
static void make_cascade(struct session *s)
{
    kvp_attention *a = &s->attention;
    const uint32_t S = s->layer.block_tokens;
    uint32_t shared = a->n_seqs > 0 ? MAX_KEYS : 0, rest[MAX_SEQS];
    int32_t *starts = array(s, 2), *order = array(s, a->n_seqs);
    for (uint32_t i = 0; i < a->n_seqs; i++) {
        const uint32_t n = (s->n_keys[i] - s->queries[i]) / S * S;
        shared = n < shared ? n : shared;
        order[i] = (int32_t)(a->n_seqs - 1 - i);
    }
    for (uint32_t i = 0; i < a->n_seqs; i++)
        rest[i] = s->n_keys[order[i]] - shared;
    starts[1] = (int32_t)s->n_queries;
    s->levels[0].n_rows = 1;
    s->levels[0].query_start = starts;
    make_csr(s, &s->levels[0], &shared);
    make_csr(s, &s->levels[1], rest);
    a->n_levels = 2;
    a->order = order;
}

static void make_lists(struct session *s)
{
    for (uint32_t i = 0; i < MAX_LEVELS; i++)
        s->levels[i].n_rows = s->attention.n_seqs;
    switch (below(s, 3)) {
    case 0: make_dense(s, &s->levels[0]); break;
    case 1: make_csr(s, &s->levels[0], s->n_keys); break;
    default: make_cascade(s); break;
    }
}

static void make_window(struct session *s)
{
    kvp_attention_window *window = &s->attention.window;
    const uint32_t n = s->attention.n_seqs, which = below(s, 4);
    if (which & 1) {
        int32_t *sinks = array(s, n), *recent = array(s, n);
        for (uint32_t i = 0; i < n; i++) {
            sinks[i] = (int32_t)below(s, 6);
            recent[i] = (int32_t)below(s, 12);
        }
        window->sinks = (const uint32_t *)sinks;
        window->recent = (const uint32_t *)recent;
    }
    if (which & 2) {
        window->sink_len = array(s, n);
        window->window_offset = array(s, n);
        window->key_offset = array(s, n);
    }
    if (below(s, 3) == 0) {
        int32_t *positions = array(s, s->attention.n_tokens);
        for (uint32_t i = 0; i < s->n_queries; i++)
            positions[i] = (int32_t)below(s, 2 * MAX_KEYS);
        window->query_positions = positions;
    }
}

static void make_tree(struct session *s)
{
    kvp_attention_tree *tree = &s->attention.tree;
    const uint32_t n_seqs = s->attention.n_seqs, which = below(s, 3);
    if (which == 0)
        return;
    int32_t *starts = array(s, n_seqs + 1);
    for (uint32_t i = 0; i < n_seqs; i++)
        starts[i + 1] = starts[i] + (int32_t)s->tree[i];
    tree->start = starts;
    tree->n_tokens = s->n_tree;
    if (which == 1) {
        int32_t *intervals = array(s, 2 * s->n_tree);
        for (uint32_t i = 0; i < s->n_tree; i++) {
            intervals[2 * i] = (int32_t)i;
            intervals[2 * i + 1] = (int32_t)(i + 1 + below(s, 4));
        }
        tree->intervals = intervals;
        return;
    }
    int32_t *bytes = array(s, n_seqs + 1);
    for (uint32_t i = 0; i < n_seqs; i++)
        bytes[i + 1] = bytes[i] + (int32_t)((s->queries[i] * s->n_keys[i] + 7) / 8);
    tree->n_bytes = (uint32_t)bytes[n_seqs];
    int32_t *bits = array(s, (tree->n_bytes + 3) / 4);
    for (uint32_t i = 0; i < tree->n_bytes; i++)
        ((uint8_t *)bits)[i] = (uint8_t)any(s);
    tree->bits = (const uint8_t *)bits;
    tree->bits_start = bytes;
}

/* ------------------------------------------------------------------------------------- what is
 * wrong */

static int32_t odd_number(struct session *s)
{
    static const int32_t extremes[] = {INT32_MAX, INT32_MIN, -1, 65536};
    const uint32_t which = byte(s);
    return which < 240 ? (int32_t)(which % 64) - 4 : extremes[which % 4];
}

static void overwrite(struct session *s)
{
    kvp_attention *a = &s->attention;
    const uint32_t which = below(s, N_ARRAYS + 8);
    if (which < s->n_arrays && s->lengths[which] > 0) {
        s->arrays[which][byte(s) % s->lengths[which]] = odd_number(s);
        return;
    }
    switch (which - N_ARRAYS) {
    case 0: a->causal = below(s, 3); break;
    case 1: a->order = NULL; break;
    case 2: a->window.recent_tokens = byte(s); break;
    case 3: a->window.sink_tokens = below(s, 20); break;
    case 4: a->rope.mode = below(s, 4); break;
    case 5: a->rope.n_dims = below(s, 6); break;
    case 6: a->rope.scaling = below(s, 5); break;
    default: a->soft_cap = (double)below(s, 9) - 1.0; break;
    }
}

/* -------------------------------------------------------------------------------------------
 * run */

static void check(const struct session *s, kvp_status status, const float *out, const float *lse)
{
    const uint32_t n = s->attention.n_tokens * Q, n_written = s->n_queries * Q;
    require(status == KVP_OK || status == KVP_E_ARG);
    if (status == KVP_OK && s->attention.query_start[s->attention.n_seqs] != (int32_t)s->n_queries)
        return; /* fewer queries than there were: right as it is, and less to compare */
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = 0; e < D; e++) {
            const float value = out[i * D + e];
            require(status == KVP_OK && i < n_written ? fabsf(value) <= 1.00001f : value == 7.5f);
        }
        require(status == KVP_OK && i < n_written ? !isnan(lse[i]) : lse[i] == 7.5f);
    }
}

/* Merged with attention over no keys, a result is what it was. */
static void check_merge(uint32_t impl, uint32_t n_tokens, const float *out, const float *lse)
{
    const size_t n = (size_t)n_tokens * Q;
    float *nothing = rows(n * D, NAN), *minus_infinity = rows(n, -INFINITY);
    float *merged = rows(n * D, 7.5f), *merged_lse = rows(n, 7.5f);
    const kvp_partial partials[] = {{.out.data = nothing, .lse.data = minus_infinity},
                                    {.out.data = out, .lse.data = lse}};
    kvp_merge merge;
    kvp_merge_init(&merge);
    merge.impl = impl;
    merge.n_partials = 2;
    merge.n_tokens = n_tokens;
    merge.n_heads = Q;
    merge.size = D;
    merge.partials = partials;
    merge.out.data = merged;
    merge.lse.data = merged_lse;
    require(kvp_merge_run(&merge) == KVP_OK);
    for (size_t i = 0; i < n; i++) {
        require(merged_lse[i] == lse[i] || fabsf(merged_lse[i] - lse[i]) < 1e-5f);
        for (uint32_t e = 0; e < D; e++)
            require(fabsf(merged[i * D + e] - out[i * D + e]) < 1e-5f);
    }
    free(nothing);
    free(minus_infinity);
    free(merged);
    free(merged_lse);
}

static kvp_status run(struct session *s, uint32_t impl)
{
    kvp_attention *a = &s->attention;
    kvp_status status = KVP_OK;
    a->impl = impl;
    const size_t n = (size_t)a->n_tokens * Q;
    float *q = rows(n * D, 0.0f), *out = rows(n * D, 7.5f), *lse = rows(n, 7.5f);
    size_t n_bytes = 0;
    for (size_t i = 0; i < n * D; i++)
        q[i] = (float)(any(s) % 256) / 64.0f - 2.0f;
    a->q.data = q;
    a->out.data = out;
    a->lse.data = lse;
    const kvp_status sized = kvp_attention_bytes(a, &n_bytes);
    require(sized == KVP_OK || sized == KVP_E_ARG || sized == KVP_E_TOO_LONG);
    if (sized == KVP_OK && n_bytes < 1u << 24) {
        void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes + KVP_SCRATCH_ALIGN);
        require(scratch != NULL);
        status = kvp_attention_run(a, scratch, n_bytes);
        check(s, status, out, lse);
        if (status == KVP_OK)
            check_merge(impl, a->n_tokens, out, lse);
        free(scratch);
    } else {
        static _Alignas(KVP_SCRATCH_ALIGN) unsigned char little[64];
        status = kvp_attention_run(a, little, sizeof little);
        require(sized == KVP_OK ? status == KVP_E_TOO_SMALL || status == KVP_E_ARG
                                : status == sized);
    }
    free(q);
    free(out);
    free(lse);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session s = {.at = data, .end = data + size};
    s.random = byte(&s);
    kvp_attention_init(&s.attention);
    make_layer(&s);
    s.attention.layer = &s.layer;
    s.attention.levels = s.levels;
    s.attention.n_heads = Q;
    make_sequences(&s);
    make_lists(&s);
    make_window(&s);
    make_tree(&s);
    s.attention.positions = array(&s, s.attention.n_tokens);
    s.attention.rope.original_tokens = 16;
    for (uint32_t n = below(&s, 6); n > 0; n--)
        overwrite(&s);
    const kvp_status status = run(&s, KVP_ATTENTION_REFERENCE);
    for (uint32_t impl = KVP_ATTENTION_PORTABLE; impl <= KVP_ATTENTION_NEON; impl++) {
        if (kvp_attention_has(impl)) {
            const kvp_status other = run(&s, impl);
            require(other == status || other == KVP_E_TOO_SMALL || status == KVP_E_TOO_SMALL);
        }
    }
    for (uint32_t i = 0; i < s.n_arrays; i++)
        free(s.arrays[i]);
    free(s.kv);
    free(s.scales);
    return 0;
}

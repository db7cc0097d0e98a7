/* mini_model: see the header. Sums run in a fixed order, so two processes of one program agree in
 * every bit. */
#include "mini_model.h"

#include <stdlib.h>
#include <string.h>

enum { HIDDEN = MINI_QUERY_HEADS * MINI_SIZE, KV = MINI_HEADS * MINI_SIZE };

struct step {
    uint32_t n;
    float x[MINI_MAX_TOKENS][HIDDEN];
    float q[MINI_MAX_TOKENS][HIDDEN];
    float k[MINI_MAX_TOKENS][KV];
    float v[MINI_MAX_TOKENS][KV];
    float out[MINI_MAX_TOKENS][HIDDEN];
    int64_t slots[MINI_MAX_TOKENS];
};

static const kvp_group WINDOW = {2, 9, 0};

mini_model mini_make(uint32_t block_tokens, const char *order, uint32_t n_groups)
{
    mini_model m = {.n_groups = n_groups};
    kvp_config config;
    kvp_layout layout;
    kvp_ns ns;
    kvp_config_init(&config);
    config.block_tokens = block_tokens;
    config.n_blocks = 2 * n_groups * MINI_MAX_TOKENS / block_tokens + 2;
    config.n_groups = n_groups;
    if (n_groups > 1)
        config.groups[1] = WINDOW;
    config.max_seqs = 4;
    config.max_seq_tokens = MINI_MAX_TOKENS;
    kvp_layout_init(&layout);
    layout.type = KVP_F32;
    layout.n_blocks = config.n_blocks;
    layout.block_tokens = block_tokens;
    layout.n_layers = MINI_LAYERS / n_groups;
    layout.n_heads = MINI_HEADS;
    layout.k.size = layout.v.size = MINI_SIZE;
    if (kvp_cache_create(&config, NULL, 0, &m.cache) != KVP_OK ||
        kvp_ns_open(m.cache, NULL, 0, &ns) != KVP_OK ||
        kvp_layout_arrange(&layout, order, NULL) != KVP_OK)
        abort();
    for (uint32_t g = 0; g < n_groups; g++)
        if (kvp_memory_create(&layout, NULL, &m.memories[g]) != KVP_OK)
            abort();
    m.memory = n_groups == 1 ? m.memories[0] : NULL;
    return m;
}

void mini_end(mini_model *m)
{
    for (uint32_t g = 0; g < m->n_groups; g++)
        kvp_memory_destroy(m->memories[g]);
    kvp_cache_destroy(m->cache);
}

/* A number in -1 .. 1 that is always the same. */
static float weight(uint32_t which, uint32_t i, uint32_t j)
{
    uint32_t mixed = which * 2654435761u ^ i * 2246822519u ^ j * 3266489917u;
    mixed = (mixed ^ mixed >> 15) * 668265263u;
    return (float)((mixed >> 8) & 0xffff) / 32768.0f - 1.0f;
}

static void multiply(uint32_t which, const float *x, uint32_t n_out, float *out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = 0;
        for (uint32_t j = 0; j < HIDDEN; j++)
            out[i] += weight(which, i, j) * x[j] * 0.25f;
    }
}

static int append(const struct step *step, const kvp_layer *layer)
{
    kvp_append append_;
    kvp_append_init(&append_);
    append_.n_tokens = step->n;
    append_.layer = layer;
    append_.slots = step->slots;
    append_.k = (kvp_rows){step->k[0], 0, 0};
    append_.v = (kvp_rows){step->v[0], 0, 0};
    size_t n_bytes;
    if (kvp_append_bytes(&append_, &n_bytes) != KVP_OK)
        return 0;
    void *scratch =
        aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes + KVP_SCRATCH_ALIGN - n_bytes % KVP_SCRATCH_ALIGN);
    const kvp_status status = kvp_append_run(&append_, scratch, n_bytes);
    free(scratch);
    return status == KVP_OK;
}

static int attend(const mini_model *m, struct step *step, uint32_t group, const kvp_layer *layer,
                  uint32_t to)
{
    const int32_t query_start[2] = {0, (int32_t)step->n}, length = (int32_t)to;
    const int32_t *row;
    uint32_t n_row;
    size_t n_bytes;
    if (kvp_seq_row(m->cache, m->seq, group, &row, &n_row) != KVP_OK)
        return 0;
    const kvp_attention_level level = {
        .n_rows = 1, .n_blocks = n_row, .blocks = row, .row_stride = n_row, .lengths = &length};
    kvp_attention a;
    kvp_attention_init(&a);
    a.impl = KVP_ATTENTION_REFERENCE;
    a.layer = layer;
    a.n_seqs = 1;
    a.n_tokens = step->n;
    a.n_heads = MINI_QUERY_HEADS;
    a.query_start = query_start;
    if (group > 0) {
        a.window.sink_tokens = WINDOW.sink_tokens;
        a.window.recent_tokens = WINDOW.recent_tokens;
    }
    a.n_levels = 1;
    a.levels = &level;
    a.q = (kvp_rows){step->q[0], 0, 0};
    a.out = (kvp_rows_out){step->out[0], 0, 0};
    if (kvp_attention_bytes(&a, &n_bytes) != KVP_OK)
        return 0;
    void *scratch =
        aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes + KVP_SCRATCH_ALIGN - n_bytes % KVP_SCRATCH_ALIGN);
    const kvp_status status = kvp_attention_run(&a, scratch, n_bytes);
    free(scratch);
    return status == KVP_OK;
}

static int run_layer(mini_model *m, struct step *step, uint32_t l, uint32_t to)
{
    kvp_layer layer;
    const uint32_t group = m->n_groups > 1 ? l : 0;
    if (kvp_memory_layer(m->memories[group], m->n_groups > 1 ? 0 : l, &layer) != KVP_OK ||
        kvp_seq_slots(m->cache, m->seq, group, to - step->n, step->n, step->slots) != KVP_OK)
        return 0;
    for (uint32_t t = 0; t < step->n; t++) {
        multiply(3 * l, step->x[t], HIDDEN, step->q[t]);
        multiply(3 * l + 1, step->x[t], KV, step->k[t]);
        multiply(3 * l + 2, step->x[t], KV, step->v[t]);
    }
    if (!append(step, &layer))
        return 0;
    if (m->written)
        m->written(m->context, l, to);
    if (!attend(m, step, group, &layer, to))
        return 0;
    for (uint32_t t = 0; t < step->n; t++)
        for (uint32_t i = 0; i < HIDDEN; i++)
            step->x[t][i] = 0.5f * step->x[t][i] + step->out[t][i];
    return 1;
}

static void digest_of(mini_model *m, const float *x)
{
    uint32_t bits[HIDDEN];
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < HIDDEN; i++)
        m->digest = (m->digest ^ bits[i]) * UINT64_C(0x100000001b3);
    m->next_token = (int32_t)(m->digest >> 40 & 0x3ff);
}

int mini_forward(mini_model *m, uint32_t from, uint32_t to)
{
    static struct step step;
    int32_t tokens[MINI_MAX_TOKENS];
    step.n = to - from;
    if (kvp_seq_tokens(m->cache, m->seq, from, step.n, tokens) != KVP_OK)
        return 0;
    for (uint32_t t = 0; t < step.n; t++)
        for (uint32_t i = 0; i < HIDDEN; i++)
            step.x[t][i] = weight(100 + (uint32_t)tokens[t], i, from + t);
    for (uint32_t l = 0; l < MINI_LAYERS; l++)
        if (!run_layer(m, &step, l, to))
            return 0;
    m->digest = UINT64_C(0xcbf29ce484222325);
    digest_of(m, step.x[step.n - 1]);
    return kvp_seq_commit(m->cache, m->seq, to) == KVP_OK;
}

int mini_decode(mini_model *m)
{
    kvp_seq_info info;
    const uint64_t before = m->digest;
    const int32_t token = m->next_token;
    if (kvp_seq_extend(m->cache, m->seq, &token, 1, 0) != KVP_OK ||
        kvp_seq_info_get(m->cache, m->seq, &info) != KVP_OK ||
        !mini_forward(m, info.n_tokens - 1, info.n_tokens))
        return 0;
    m->digest ^= before * 31;
    return 1;
}

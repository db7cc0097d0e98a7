/* See gguf.h. Owns what the keys of a GGUF header mean for each architecture, as llama.cpp reads
 * them (release 11549, src/models):
 *
 *   layers     block_count, without the last nextn_predict_layers, which draft
 *   heads      attention.head_count_kv, one for all or one a layer; missing: attention.head_count
 *   sizes      attention.key_length and value_length, or embedding_length / heads; key_length_swa
 *              and value_length_swa in layers with a window
 *   window     attention.sliding_window, in the layers that sliding_window_pattern lists. Where it
 *              is a number p, or missing and the architecture has a p: all but every p-th layer
 *   MLA        key_length values, no others, where key_length_mla and value_length_mla are there
 *   states     ssm.*, kda.*, shortconv.*; in layers without KV heads, or all but every
 *              full_attention_interval-th
 *
 * An architecture that is not in the table keeps all tokens in all layers; it is refused if it has
 * a key that would say otherwise.
 */
#include "tool/models/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/models/gguf_header.h"
#include "tool/models/gguf_rules.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX_KERNEL   64
#define MAX_CHANNELS (1u << 20)

typedef struct gguf_reader {
    const kvpi_gguf_header *header;
    kvpi_gguf_rule rule;
    kvpi_model *model;
    uint32_t n_layers; /* block_count, drafting layers included */
    uint32_t n_kept;   /* without them */
    uint32_t window;
    uint32_t k_dim[2], v_dim[2]; /* without a window, with one */
    kvpi_models_state state;
} gguf_reader;

/* -------------------------------------------------------------------------------- single keys */

static const char *name_of(kvpi_gguf_key key)
{
    static const char *const names[] = {
#define KEY(name, text, most) text,
        KVPI_GGUF_KEYS(KEY)
#undef KEY
    };
    return names[key];
}

static bool has(const gguf_reader *in, kvpi_gguf_key key)
{
    return in->header->keys[key].n > 0;
}

/* Reads a number; *out is left alone when the key is missing. */
static int read_one(const gguf_reader *in, kvpi_gguf_key key, uint32_t min, uint32_t max,
                    uint32_t *out)
{
    const kvpi_gguf_values *values = &in->header->keys[key];
    const char *architecture = in->header->architecture;
    if (values->n == 0)
        return 0;
    if (values->is_array)
        return kvpi_gguf_wrong(in->header, "%s.%s is an array, expected a number", architecture,
                               name_of(key));
    if (values->of[0] < min || values->of[0] > max)
        return kvpi_gguf_wrong(in->header, "%s.%s is %" PRIu32 ", expected %" PRIu32 " to %" PRIu32,
                               architecture, name_of(key), values->of[0], min, max);
    *out = values->of[0];
    return 0;
}

static int need_one(const gguf_reader *in, kvpi_gguf_key key, uint32_t max, uint32_t *out)
{
    return has(in, key) ? read_one(in, key, 1, max, out)
                        : kvpi_gguf_wrong(in->header, "has no %s.%s, expected 1 to %" PRIu32,
                                          in->header->architecture, name_of(key), max);
}

/* Checks that a key has one value, or one for each layer, all at most max. */
static int check_layers(const gguf_reader *in, kvpi_gguf_key key, uint32_t max)
{
    const kvpi_gguf_values *values = &in->header->keys[key];
    if (values->is_array && values->n != in->n_layers)
        return kvpi_gguf_wrong(in->header,
                               "%s.%s has %" PRIu32 " values, expected %" PRIu32 ", one a layer",
                               in->header->architecture, name_of(key), values->n, in->n_layers);
    for (uint32_t i = 0; i < values->n; i++)
        if (values->of[i] > max)
            return kvpi_gguf_wrong(in->header, "%s.%s has %" PRIu32 ", expected at most %" PRIu32,
                                   in->header->architecture, name_of(key), values->of[i], max);
    return 0;
}

static uint32_t of_layer(const gguf_reader *in, kvpi_gguf_key key, uint32_t layer)
{
    const kvpi_gguf_values *values = &in->header->keys[key];
    if (values->n == 0)
        return 0;
    return values->of[values->is_array ? layer : 0];
}

static uint32_t kv_heads_of(const gguf_reader *in, uint32_t layer)
{
    return of_layer(in, has(in, KVPI_GGUF_KV_HEADS) ? KVPI_GGUF_KV_HEADS : KVPI_GGUF_HEADS, layer);
}

/* ------------------------------------------------------------------------------- which layers */

static bool has_window(const gguf_reader *in, uint32_t layer)
{
    const kvpi_gguf_rule *is = &in->rule;
    if (in->window == 0)
        return false;
    if (strcmp(is->architecture, "lfm2") == 0)
        return true; /* all that attend */
    const kvpi_gguf_values *pattern = &in->header->keys[KVPI_GGUF_PATTERN];
    if (pattern->is_array)
        return pattern->of[layer] != 0;
    const uint32_t p = pattern->n > 0 ? pattern->of[0] : is->pattern;
    if (p == 0)
        return true;
    return is->full_first ? layer % p != 0 : layer % p < p - 1;
}

static bool is_recurrent(const gguf_reader *in, uint32_t layer)
{
    uint32_t interval = in->rule.interval;
    switch (in->rule.recurrent) {
    case KVPI_GGUF_NOT_RECURRENT: return false;
    case KVPI_GGUF_BESIDE_KV: return true;
    case KVPI_GGUF_WITHOUT_KV: return kv_heads_of(in, layer) == 0;
    case KVPI_GGUF_WITHOUT_KV_OR_FF:
        return kv_heads_of(in, layer) == 0 && of_layer(in, KVPI_GGUF_FF, layer) == 0;
    case KVPI_GGUF_INTERVALS: break;
    }
    if (has(in, KVPI_GGUF_RECURRENT))
        return of_layer(in, KVPI_GGUF_RECURRENT, layer) != 0;
    interval = has(in, KVPI_GGUF_INTERVAL) ? of_layer(in, KVPI_GGUF_INTERVAL, 0) : interval;
    return (layer + 1) % interval != 0;
}

/* The layers from this one on read the KV of others. */
static uint32_t kv_layers(const gguf_reader *in)
{
    const uint32_t shared = of_layer(in, KVPI_GGUF_SHARED_LAYERS, 0);
    if (in->rule.kv_layers > 0)
        return in->rule.kv_layers;
    return shared < in->n_layers ? in->n_layers - shared : 0;
}

/* ------------------------------------------------------------------------------ what they keep */

static int read_window(gguf_reader *in)
{
    const kvpi_gguf_rule *is = &in->rule;
    const char *architecture = in->header->architecture;
    uint32_t window = is->windows == KVPI_GGUF_ALWAYS ? is->window : 0;
    if (read_one(in, KVPI_GGUF_WINDOW, 0, KVPI_MODELS_MAX_WINDOW, &window) != 0 ||
        check_layers(in, KVPI_GGUF_PATTERN, KVPI_MODELS_MAX_LAYERS) != 0)
        return -1;
    if (is->windows == KVPI_GGUF_NO_WINDOWS) {
        if (window > 0)
            snprintf(in->model->strange, sizeof in->model->strange,
                     "\"%s.attention.sliding_window\"", architecture);
        return 0;
    }
    if (is->windows == KVPI_GGUF_ALWAYS && window == 0 && !is->chunked)
        return need_one(in, KVPI_GGUF_WINDOW, KVPI_MODELS_MAX_WINDOW, &window);
    if (window > 0 && is->pattern == 0 && !in->header->keys[KVPI_GGUF_PATTERN].is_array &&
        is->recurrent == KVPI_GGUF_NOT_RECURRENT)
        return kvpi_gguf_wrong(in->header, "has no %s.%s, expected one value a layer", architecture,
                               name_of(KVPI_GGUF_PATTERN));
    if (is->is_fixed && window > 0)
        window = is->window;
    in->window = is->if_layers == 0 || is->if_layers == in->n_layers ? window : 0;
    return 0;
}

static int read_dims(gguf_reader *in)
{
    const uint32_t heads = of_layer(in, KVPI_GGUF_HEADS, 0);
    const uint32_t max = in->rule.mla ? KVPI_MODELS_MAX_LATENT : KVPI_MODELS_MAX_HEAD_DIM;
    uint32_t hidden = 0, dim;
    if (need_one(in, KVPI_GGUF_HIDDEN, KVPI_MODELS_MAX_HIDDEN, &hidden) != 0)
        return -1;
    dim = heads > 0 ? hidden / heads : 0;
    in->k_dim[0] = in->v_dim[0] = dim;
    if (read_one(in, KVPI_GGUF_K_DIM, 1, max, &in->k_dim[0]) != 0 ||
        read_one(in, KVPI_GGUF_V_DIM, 1, max, &in->v_dim[0]) != 0)
        return -1;
    if (in->k_dim[0] < 1 || in->k_dim[0] > max || in->v_dim[0] < 1 || in->v_dim[0] > max)
        return kvpi_gguf_wrong(in->header,
                               "%s.embedding_length is %" PRIu32 " for %" PRIu32
                               " heads, expected 1 to %" PRIu32 " values a head",
                               in->header->architecture, hidden, heads, max);
    in->k_dim[1] = in->k_dim[0];
    in->v_dim[1] = in->v_dim[0];
    return read_one(in, KVPI_GGUF_K_DIM_WINDOWED, 1, max, &in->k_dim[1]) != 0 ||
                   read_one(in, KVPI_GGUF_V_DIM_WINDOWED, 1, max, &in->v_dim[1]) != 0
               ? -1
               : 0;
}

/* Kimi's: three projections of equal size are convolved. */
static int read_kda(const gguf_reader *in, uint32_t steps, kvpi_models_state *state)
{
    uint32_t dim = 0;
    if (need_one(in, KVPI_GGUF_KDA_DIM, KVPI_MODELS_MAX_HEAD_DIM, &dim) != 0)
        return -1;
    *state = (kvpi_models_state){.heads = of_layer(in, KVPI_GGUF_HEADS, 0),
                                 .head_values = dim * dim,
                                 .conv_of_head = 3 * dim,
                                 .conv_steps = steps > 0 ? steps - 1 : 3};
    return 0;
}

static int read_lightning(const gguf_reader *in, kvpi_models_state *state)
{
    *state = (kvpi_models_state){.heads = of_layer(in, KVPI_GGUF_HEADS, 0),
                                 .head_values = in->k_dim[0] * in->k_dim[0]};
    return 0;
}

static int read_short(const gguf_reader *in, kvpi_models_state *state)
{
    uint32_t steps = 0, hidden = 0;
    if (need_one(in, KVPI_GGUF_SHORT_CONV, MAX_KERNEL, &steps) != 0 ||
        need_one(in, KVPI_GGUF_HIDDEN, KVPI_MODELS_MAX_HIDDEN, &hidden) != 0)
        return -1;
    *state = (kvpi_models_state){.heads = hidden, .conv_of_head = 1, .conv_steps = steps - 1};
    return 0;
}

/* Mamba's, and those of gated delta nets, which have the same keys. Mamba's first version has a
 * state for each channel; the others, heads of several. */
static int read_ssm(const gguf_reader *in, uint32_t steps, kvpi_models_state *state)
{
    uint32_t inner = 0, values = 0, heads = 0, groups = 0;
    if (need_one(in, KVPI_GGUF_CONV_STEPS, MAX_KERNEL, &steps) != 0 ||
        need_one(in, KVPI_GGUF_INNER, MAX_CHANNELS, &inner) != 0 ||
        need_one(in, KVPI_GGUF_STATE, KVPI_MODELS_MAX_HEAD_DIM, &values) != 0 ||
        read_one(in, KVPI_GGUF_STATE_HEADS, 0, MAX_CHANNELS, &heads) != 0 ||
        read_one(in, KVPI_GGUF_STATE_GROUPS, 0, KVPI_MODELS_MAX_HEADS, &groups) != 0)
        return -1;
    if (strcmp(in->rule.state_kind, "Mamba") == 0)
        heads = inner, groups = 0;
    if (heads == 0 || inner % heads != 0 || inner / heads > KVPI_MODELS_MAX_HEAD_DIM)
        return kvpi_gguf_wrong(in->header,
                               "%s.%s is %" PRIu32 ", expected a divisor of ssm.inner_size %" PRIu32
                               " that leaves 1 to %d",
                               in->header->architecture, name_of(KVPI_GGUF_STATE_HEADS), heads,
                               inner, KVPI_MODELS_MAX_HEAD_DIM);
    *state = (kvpi_models_state){.heads = heads,
                                 .groups = groups,
                                 .head_values = inner / heads * values,
                                 .conv_of_head = inner / heads,
                                 .conv_of_group = 2 * values,
                                 .conv_steps = steps - 1};
    return 0;
}

static int read_state(gguf_reader *in)
{
    const char *kind = in->rule.state_kind;
    uint32_t steps = 0;
    if (kind == NULL)
        return 0;
    if (read_one(in, KVPI_GGUF_CONV_STEPS, 0, MAX_KERNEL, &steps) != 0 ||
        check_layers(in, KVPI_GGUF_RECURRENT, 1) != 0)
        return -1;
    uint32_t interval = 1;
    if (read_one(in, KVPI_GGUF_INTERVAL, 1, KVPI_MODELS_MAX_LAYERS, &interval) != 0)
        return -1;
    in->model->state_kind = kind;
    in->model->state_dtype_is_said =
        kind[0] == 'K' || in->rule.recurrent == KVPI_GGUF_WITHOUT_KV_OR_FF;
    if (kind[0] == 'K')
        return read_kda(in, steps, &in->state);
    if (kind[0] == 'l')
        return read_lightning(in, &in->state);
    return kind[0] == 's' ? read_short(in, &in->state) : read_ssm(in, steps, &in->state);
}

/* ---------------------------------------------------------------------------------- the layers */

static bool is_latent(const gguf_reader *in)
{
    return in->rule.mla && of_layer(in, KVPI_GGUF_K_DIM_MLA, 0) > 0 &&
           of_layer(in, KVPI_GGUF_V_DIM_MLA, 0) > 0;
}

static kvpi_models_kind kind_of(const gguf_reader *in, uint32_t layer)
{
    const bool windowed = has_window(in, layer);
    kvpi_models_kind kind = {.keeps = KVPI_KEEPS_HEADS,
                             .n_layers = 1,
                             .kv_heads = kv_heads_of(in, layer),
                             .k_dim = in->k_dim[windowed],
                             .v_dim = in->v_dim[windowed],
                             .entry_tokens = 1,
                             .window_tokens = windowed ? in->window : 0,
                             .chunked = windowed && in->rule.chunked};
    if (!is_latent(in))
        return kind;
    const uint32_t rank = of_layer(in, KVPI_GGUF_KV_RANK, 0), width = kind.k_dim * kind.kv_heads;
    const uint32_t latent = rank > 0 && rank < width ? rank : width;
    return (kvpi_models_kind){.keeps = KVPI_KEEPS_LATENT,
                              .n_layers = 1,
                              .entry_tokens = 1,
                              .latent = latent,
                              .rope = width - latent};
}

static int add(const gguf_reader *in, const kvpi_models_kind *kind)
{
    return kvpi_models_add(in->model, kind)
               ? 0
               : kvpi_gguf_wrong(in->header,
                                 "its layers keep more than %d different things, expected fewer",
                                 KVPI_MODELS_MAX_KINDS);
}

static int add_layer(const gguf_reader *in, uint32_t layer)
{
    const bool recurrent = is_recurrent(in, layer);
    const kvpi_models_kind kind = kind_of(in, layer);
    const kvpi_models_kind index = {.keeps = KVPI_KEEPS_INDEX,
                                    .n_layers = 1,
                                    .entry_tokens = 1,
                                    .index_dim = of_layer(in, KVPI_GGUF_INDEX_DIM, 0)};
    const kvpi_models_kind state = {.keeps = KVPI_KEEPS_STATE, .n_layers = 1, .state = in->state};
    if (recurrent && add(in, &state) != 0)
        return -1;
    if ((recurrent && in->rule.recurrent != KVPI_GGUF_BESIDE_KV) || layer >= kv_layers(in) ||
        kv_heads_of(in, layer) == 0)
        return 0;
    if (kind.keeps == KVPI_KEEPS_LATENT &&
        (kind.latent > KVPI_MODELS_MAX_LATENT || kind.rope > KVPI_MODELS_MAX_HEAD_DIM))
        return kvpi_gguf_wrong(in->header,
                               "%s.%s is %" PRIu32 " with %" PRIu32 " KV heads and %" PRIu32
                               " in kv_lora_rank, expected one head",
                               in->header->architecture, name_of(KVPI_GGUF_K_DIM), in->k_dim[0],
                               kv_heads_of(in, layer), of_layer(in, KVPI_GGUF_KV_RANK, 0));
    if (in->rule.index && add(in, &index) != 0)
        return -1;
    return add(in, &kind);
}

static int add_layers(const gguf_reader *in)
{
    const uint32_t most = KVPI_MODELS_MAX_LAYERS / (in->n_layers > 0 ? in->n_layers : 1);
    uint32_t n_loops = 1;
    if (read_one(in, KVPI_GGUF_LOOPS, 1, most, &n_loops) != 0)
        return -1;
    for (uint32_t i = 0; i < in->n_kept * n_loops; i++)
        if (add_layer(in, i % in->n_kept) != 0)
            return -1;
    in->model->n_layers = in->n_kept;
    in->model->n_passes = n_loops;
    if (kvpi_models_layers(in->model, KVPI_KEEPS_HEADS) +
            kvpi_models_layers(in->model, KVPI_KEEPS_LATENT) ==
        0)
        return kvpi_gguf_wrong(in->header, "%s.%s leaves no layer with KV, expected at least one",
                               in->header->architecture, name_of(KVPI_GGUF_KV_HEADS));
    return 0;
}

static int read_counts(gguf_reader *in)
{
    uint32_t drafting = 0, shared = 0;
    if (need_one(in, KVPI_GGUF_LAYERS, KVPI_MODELS_MAX_LAYERS, &in->n_layers) != 0 ||
        read_one(in, KVPI_GGUF_DRAFT_LAYERS, 0, in->n_layers - 1, &drafting) != 0 ||
        read_one(in, KVPI_GGUF_SHARED_LAYERS, 0, in->n_layers - 1, &shared) != 0 ||
        check_layers(in, KVPI_GGUF_HEADS, KVPI_MODELS_MAX_HEADS) != 0 ||
        check_layers(in, KVPI_GGUF_KV_HEADS, KVPI_MODELS_MAX_HEADS) != 0 ||
        check_layers(in, KVPI_GGUF_FF, UINT32_MAX) != 0)
        return -1;
    in->n_kept = in->n_layers - drafting;
    if (!has(in, KVPI_GGUF_HEADS))
        return kvpi_gguf_wrong(in->header, "has no %s.%s, expected 1 to %d",
                               in->header->architecture, name_of(KVPI_GGUF_HEADS),
                               KVPI_MODELS_MAX_HEADS);
    for (uint32_t i = 0; i < in->header->keys[KVPI_GGUF_HEADS].n; i++)
        if (in->header->keys[KVPI_GGUF_HEADS].of[i] > in->model->q_heads)
            in->model->q_heads = in->header->keys[KVPI_GGUF_HEADS].of[i];
    for (uint32_t i = 0; i < in->n_kept; i++) {
        const uint32_t heads = of_layer(in, KVPI_GGUF_HEADS, i), kv_heads = kv_heads_of(in, i);
        if (kv_heads > 0 && (heads < kv_heads || heads % kv_heads != 0))
            return kvpi_gguf_wrong(in->header,
                                   "%s.%s is %" PRIu32 " in layer %" PRIu32
                                   ", expected a divisor of %" PRIu32 " heads",
                                   in->header->architecture, name_of(KVPI_GGUF_KV_HEADS), kv_heads,
                                   i, heads);
    }
    return 0;
}

/* Keys that mean that layers differ: an architecture has those that its rule reads. */
static int check_keys(const gguf_reader *in)
{
    const kvpi_gguf_rule *is = &in->rule;
    const bool windowed = is->windows != KVPI_GGUF_NO_WINDOWS;
    const bool recurrent = is->recurrent != KVPI_GGUF_NOT_RECURRENT;
    const struct {
        kvpi_gguf_key key;
        bool known;
    } keys[] = {
        {KVPI_GGUF_WINDOW, is->is_known},
        {KVPI_GGUF_K_DIM_WINDOWED, windowed},
        {KVPI_GGUF_V_DIM_WINDOWED, windowed},
        {KVPI_GGUF_K_DIM_MLA, is->mla},
        {KVPI_GGUF_INDEX_DIM, is->index},
        {KVPI_GGUF_RATIOS, false},
        {KVPI_GGUF_SHARED_LAYERS, windowed},
        {KVPI_GGUF_RECURRENT, is->recurrent == KVPI_GGUF_INTERVALS},
        {KVPI_GGUF_INTERVAL, is->recurrent == KVPI_GGUF_INTERVALS},
        {KVPI_GGUF_CONV_STEPS, recurrent},
        {KVPI_GGUF_STATE, recurrent},
        {KVPI_GGUF_KDA_DIM, recurrent},
        {KVPI_GGUF_SHORT_CONV, recurrent},
        {KVPI_GGUF_LOOPS, is->loops},
    };
    for (size_t i = 0; i < COUNT(keys); i++) {
        const kvpi_gguf_values *values = &in->header->keys[keys[i].key];
        bool is_set = false;
        for (uint32_t j = 0; j < values->n; j++)
            is_set = is_set || values->of[j] != 0;
        if (is_set && !keys[i].known)
            return kvpi_gguf_wrong(in->header,
                                   "has %s.%s, expected none in an architecture of which this "
                                   "command knows no more than its heads",
                                   in->header->architecture, name_of(keys[i].key));
    }
    return 0;
}

static int read_model(gguf_reader *in)
{
    const char *refused;
    in->rule = kvpi_gguf_rule_of(in->header->architecture, &refused);
    if (refused != NULL)
        return kvpi_gguf_wrong(in->header,
                               "general.architecture is %s, which %s: expected one that this "
                               "command can count",
                               in->header->architecture, refused);
    if (check_keys(in) != 0 || read_counts(in) != 0 || read_dims(in) != 0 || read_window(in) != 0 ||
        read_state(in) != 0)
        return -1;
    if (in->rule.index) {
        uint32_t dim = 0;
        if (need_one(in, KVPI_GGUF_INDEX_DIM, KVPI_MODELS_MAX_HEAD_DIM, &dim) != 0)
            return -1;
    }
    return add_layers(in);
}

static int read_whole(const kvpi_gguf_header *header, kvpi_model *model, kvpi_gguf *about)
{
    gguf_reader in = {.header = header, .model = model};
    *model = (kvpi_model){.name = header->name,
                          .parameters = header->parameters,
                          .kv_dtype = KVPI_DTYPE_F16,
                          .activations_dtype = KVPI_DTYPE_F16,
                          .state_dtype = KVPI_DTYPE_F32,
                          .weights_dtype = KVPI_DTYPE_F16,
                          .unknown = "a GGUF file says how large its tensors are, not what for"};
    *about = (kvpi_gguf){.version = header->version, .n_tensors = header->n_tensors};
    memcpy(about->architecture, header->architecture, sizeof about->architecture);
    if (header->unknown[0] == '\0') {
        about->weights_bytes = header->weights_bytes;
    } else {
        model->parameters = 0; /* their bytes are not known */
        snprintf(model->unknown, sizeof model->unknown, "%s", header->unknown);
    }
    if (read_one(&in, KVPI_GGUF_CONTEXT, 0, UINT32_MAX, &about->context_tokens) != 0)
        return -1;
    return read_model(&in);
}

int kvpi_gguf_read(const char *path, kvpi_model *model, kvpi_gguf *about, kvpi_models_error *error)
{
    kvpi_gguf_header *header = malloc(sizeof *header);
    kvpi_model read;
    if (header == NULL) {
        snprintf(error->text, sizeof error->text, "%.400s: out of memory", path);
        return -1;
    }
    int result = kvpi_gguf_header_read(path, header, error);
    if (result == 0)
        result = read_whole(header, &read, about);
    if (result == 0)
        *model = read;
    free(header);
    return result;
}

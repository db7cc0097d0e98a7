/* Owns what the keys of a config.json say about layers that keep a recurrent state.
 *
 *   kind                  its layers                                  told by the key
 *   gated delta net       layer_types, or all but every               linear_num_value_heads
 *                         full_attention_interval-th
 *   Kimi delta attention  linear_attn_config, counted from 1          linear_attn_config
 *   Mamba-2               hybrid_override_pattern: M, * attention,    mamba_num_heads
 *                         - and E neither; or layers_block_type
 *   Mamba-2               layer_types                                 mamba_n_heads
 *   Mamba                 all but those at attn_layer_offset of       attn_layer_period and
 *                         each attn_layer_period                      mamba_d_state
 *   short convolution     layer_types, or all but full_attn_idxs      conv_L_cache
 *   lightning attention   attn_type_list: 0; 1 is attention           attn_type_list
 *
 * A state has two parts (models.h): a matrix for each head, and the last inputs of a convolution of
 * k steps, which needs k - 1 of them.
 *
 *                         heads, groups           matrix of a head   convolved: of a head, a group
 *   gated delta net       value heads, key heads  key x value        value, 2 x key
 *   Kimi delta attention  heads                   size x size        3 x size (query, key, value)
 *   Mamba-2               heads, groups           size x state       size, 2 x state
 *   Mamba                 channels                1 x state          1
 *   short convolution     channels                -                  1
 *   lightning attention   heads                   size x size        -
 *
 * Refuses: models without attention, and windows beside recurrent layers.
 */
#include "tool/models/recurrent.h"

#include <inttypes.h>
#include <string.h>

#include "tool/requests/json_kind.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX_KERNEL   64

struct kvpi_recurrent {
    const char *title;
    const char *key, *second_key;
    const char *known[10]; /* keys, or how they begin; NULL after the last */
    int (*read)(const kvpi_entries *reader, kvpi_model *model);
};

/* Layers by what they keep. */
typedef struct layer_count {
    uint32_t attention, recurrent, other;
} layer_count;

/* ------------------------------------------------------------------------------------- layers */

static int keep_count(const kvpi_entries *reader, const char *key, const layer_count *count,
                      kvpi_model *model)
{
    kvpi_models_attention *a = &model->attention;
    uint32_t n = count->attention + count->recurrent + count->other;
    if (n != a->n_layers)
        return kvpi_entries_wrong(reader,
                                  "%s%s tells of %" PRIu32 " layers, num_hidden_layers is %" PRIu32,
                                  reader->part, key, n, a->n_layers);
    if (count->attention == 0)
        return kvpi_entries_wrong(reader,
                                  "%s%s has no layer with attention: this command counts states "
                                  "beside blocks of KV",
                                  reader->part, key);
    a->n_layers = count->attention;
    model->states.n_layers = count->recurrent;
    model->n_other_layers = count->other;
    return 0;
}

/* A kind of layer by its name; NULL when it is none of these. */
static uint32_t *count_of(layer_count *count, const char *type, const char *recurrent)
{
    if (strcmp(type, recurrent) == 0)
        return &count->recurrent;
    if (strcmp(type, "attention") == 0 || strcmp(type, "full_attention") == 0)
        return &count->attention;
    return strcmp(type, "mlp") == 0 || strcmp(type, "moe") == 0 ? &count->other : NULL;
}

/* layer_types and its like: an array of names. */
static int read_types(const kvpi_entries *reader, const char *key, const char *recurrent,
                      kvpi_model *model)
{
    const json_t *types = kvpi_entries_get(reader, key);
    layer_count count = {0};
    if (!json_is_array(types))
        return kvpi_entries_wrong(reader, "%s%s is %s, expected an array", reader->part, key,
                                  kvpi_json_kind(types));
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL)
            return kvpi_entries_wrong(reader, "%s%s[%zu] is not a string", reader->part, key, i);
        uint32_t *of = count_of(&count, type, recurrent);
        if (of == NULL)
            return kvpi_entries_wrong(reader,
                                      "%s%s[%zu] is \"%.60s\", expected %s, attention or "
                                      "full_attention",
                                      reader->part, key, i, type, recurrent);
        ++*of;
    }
    return keep_count(reader, key, &count, model);
}

/* A string with a letter for each layer. */
static int read_pattern(const kvpi_entries *reader, kvpi_model *model)
{
    static const char key[] = "hybrid_override_pattern";
    const char *pattern = json_string_value(kvpi_entries_get(reader, key));
    layer_count count = {0};
    if (pattern == NULL)
        return kvpi_entries_wrong(reader, "%s%s is %s, expected a string", reader->part, key,
                                  kvpi_json_kind(kvpi_entries_get(reader, key)));
    for (const char *at = pattern; *at != '\0'; at++) {
        if (strchr("M*-E", *at) == NULL)
            return kvpi_entries_wrong(reader, "%s%s has '%c', expected M, *, - or E", reader->part,
                                      key, *at);
        count.recurrent += *at == 'M';
        count.attention += *at == '*';
        count.other += *at == '-' || *at == 'E';
    }
    return keep_count(reader, key, &count, model);
}

/* An array of numbers of layers, which are not looked at one by one. */
static int read_numbers(const kvpi_entries *reader, const char *key, const json_t *layers,
                        kvpi_model *model)
{
    uint32_t n = (uint32_t)json_array_size(layers);
    if (!json_is_array(layers) || json_array_size(layers) > model->attention.n_layers)
        return kvpi_entries_wrong(reader, "%s%s is no array of at most %" PRIu32 " layers",
                                  reader->part, key, model->attention.n_layers);
    const layer_count count = {.attention = n, .recurrent = model->attention.n_layers - n};
    return keep_count(reader, key, &count, model);
}

/* ------------------------------------------------------------------------------------- states */

static int read_delta_net(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_states *s = &model->states;
    const uint32_t max = KVPI_MODELS_MAX_HEADS, max_dim = KVPI_MODELS_MAX_HEAD_DIM;
    uint32_t key_dim = 0, value_dim = 0, kernel = 0, interval = 4;
    if (kvpi_entries_need_whole(reader, "linear_num_value_heads", max, &s->heads) != 0 ||
        kvpi_entries_need_whole(reader, "linear_num_key_heads", max, &s->groups) != 0 ||
        kvpi_entries_need_whole(reader, "linear_key_head_dim", max_dim, &key_dim) != 0 ||
        kvpi_entries_need_whole(reader, "linear_value_head_dim", max_dim, &value_dim) != 0 ||
        kvpi_entries_need_whole(reader, "linear_conv_kernel_dim", MAX_KERNEL, &kernel) != 0 ||
        kvpi_entries_read_whole(reader, "full_attention_interval", 1, KVPI_MODELS_MAX_LAYERS,
                                &interval) != 0)
        return -1;
    s->head_values = key_dim * value_dim;
    s->conv_of_head = value_dim;
    s->conv_of_group = 2 * key_dim;
    s->conv_steps = kernel - 1;
    if (kvpi_entries_get(reader, "layer_types") != NULL)
        return read_types(reader, "layer_types", "linear_attention", model);
    const uint32_t n_full = model->attention.n_layers / interval;
    const layer_count count = {.attention = n_full,
                               .recurrent = model->attention.n_layers - n_full};
    return keep_count(reader, "full_attention_interval", &count, model);
}

static int read_kimi(const kvpi_entries *outer, kvpi_model *model)
{
    static const char key[] = "linear_attn_config.full_attn_layers";
    kvpi_models_states *s = &model->states;
    kvpi_entries reader = *outer; /* its messages name the key alone */
    uint32_t dim = 0, kernel = 0;
    reader.object = kvpi_entries_get(outer, "linear_attn_config");
    reader.part = "linear_attn_config.";
    if (!json_is_object(reader.object))
        return kvpi_entries_wrong(outer, "%slinear_attn_config is %s, expected an object",
                                  outer->part, kvpi_json_kind(reader.object));
    if (kvpi_entries_need_whole(&reader, "num_heads", KVPI_MODELS_MAX_HEADS, &s->heads) != 0 ||
        kvpi_entries_need_whole(&reader, "head_dim", KVPI_MODELS_MAX_HEAD_DIM, &dim) != 0 ||
        kvpi_entries_need_whole(&reader, "short_conv_kernel_size", MAX_KERNEL, &kernel) != 0)
        return -1;
    s->head_values = dim * dim;
    s->conv_of_head = 3 * dim;
    s->conv_steps = kernel - 1;
    return read_numbers(outer, key, json_object_get(reader.object, "full_attn_layers"), model);
}

/* Mamba-2's part of the state, whose keys go by two sets of names. */
static int read_mamba2(const kvpi_entries *reader, const char *state_key, const char *kernel_key,
                       uint32_t head_dim, kvpi_models_states *s)
{
    uint32_t state = 0, kernel = 0;
    if (kvpi_entries_need_whole(reader, state_key, KVPI_MODELS_MAX_HEAD_DIM, &state) != 0 ||
        kvpi_entries_need_whole(reader, kernel_key, MAX_KERNEL, &kernel) != 0)
        return -1;
    s->head_values = head_dim * state;
    s->conv_of_head = head_dim;
    s->conv_of_group = 2 * state;
    s->conv_steps = kernel - 1;
    return 0;
}

static int read_nemotron(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_states *s = &model->states;
    const uint32_t max = KVPI_MODELS_MAX_HEADS;
    uint32_t head_dim = 0;
    if (kvpi_entries_need_whole(reader, "mamba_num_heads", max, &s->heads) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_num_groups", 1, max, &s->groups) != 0 ||
        kvpi_entries_need_whole(reader, "n_groups", max, &s->groups) != 0 ||
        kvpi_entries_need_whole(reader, "mamba_head_dim", KVPI_MODELS_MAX_HEAD_DIM, &head_dim) !=
            0 ||
        read_mamba2(reader, "ssm_state_size", "conv_kernel", head_dim, s) != 0)
        return -1;
    return kvpi_entries_get(reader, "layers_block_type") != NULL
               ? read_types(reader, "layers_block_type", "mamba", model)
               : read_pattern(reader, model);
}

/* A head's size may be missing, or "auto": the expanded hidden size, divided by the heads. */
static int read_granite(const kvpi_entries *reader, kvpi_model *model)
{
    static const char dim_key[] = "mamba_d_head";
    kvpi_models_states *s = &model->states;
    const uint32_t max = KVPI_MODELS_MAX_HEADS;
    uint32_t head_dim = 0, expand = 2;
    s->groups = 1;
    if (kvpi_entries_need_whole(reader, "mamba_n_heads", max, &s->heads) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_expand", 1, 16, &expand) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_n_groups", 1, max, &s->groups) != 0)
        return -1;
    head_dim = expand * model->mlp.hidden / s->heads;
    if (!json_is_string(kvpi_entries_get(reader, dim_key)) &&
        kvpi_entries_read_whole(reader, dim_key, 1, KVPI_MODELS_MAX_HEAD_DIM, &head_dim) != 0)
        return -1;
    if (head_dim == 0 || head_dim > KVPI_MODELS_MAX_HEAD_DIM)
        return kvpi_entries_wrong(reader, "no \"%s%s\", and %" PRIu32 " values for a head",
                                  reader->part, dim_key, head_dim);
    if (read_mamba2(reader, "mamba_d_state", "mamba_d_conv", head_dim, s) != 0)
        return -1;
    return read_types(reader, "layer_types", "mamba", model);
}

static int read_jamba(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_states *s = &model->states;
    const uint32_t n_layers = model->attention.n_layers;
    uint32_t expand = 2, kernel = 0, period = 0, offset = 0;
    if (kvpi_entries_need_whole(reader, "mamba_d_state", KVPI_MODELS_MAX_HEAD_DIM,
                                &s->head_values) != 0 ||
        kvpi_entries_need_whole(reader, "mamba_d_conv", MAX_KERNEL, &kernel) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_expand", 1, 16, &expand) != 0 ||
        kvpi_entries_need_whole(reader, "attn_layer_period", n_layers, &period) != 0 ||
        kvpi_entries_read_whole(reader, "attn_layer_offset", 0, period - 1, &offset) != 0)
        return -1;
    if (model->mlp.hidden == 0)
        return kvpi_entries_wrong(reader, "no \"%shidden_size\"", reader->part);
    s->heads = expand * model->mlp.hidden;
    s->conv_of_head = 1;
    s->conv_steps = kernel - 1;
    const uint32_t n_attention = (n_layers - offset + period - 1) / period;
    const layer_count count = {.attention = n_attention, .recurrent = n_layers - n_attention};
    return keep_count(reader, "attn_layer_period", &count, model);
}

static int read_short_conv(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_states *s = &model->states;
    uint32_t kernel = 0;
    s->heads = model->mlp.hidden;
    if (kvpi_entries_need_whole(reader, "hidden_size", KVPI_MODELS_MAX_HIDDEN, &s->heads) != 0 ||
        kvpi_entries_need_whole(reader, "conv_L_cache", MAX_KERNEL, &kernel) != 0)
        return -1;
    s->conv_of_head = 1;
    s->conv_steps = kernel - 1;
    if (kvpi_entries_get(reader, "layer_types") != NULL)
        return read_types(reader, "layer_types", "conv", model);
    return read_numbers(reader, "full_attn_idxs", kvpi_entries_get(reader, "full_attn_idxs"),
                        model);
}

static int read_lightning(const kvpi_entries *reader, kvpi_model *model)
{
    static const char key[] = "attn_type_list";
    const json_t *types = kvpi_entries_get(reader, key);
    kvpi_models_states *s = &model->states;
    layer_count count = {0};
    uint32_t dim = 0;
    if (kvpi_entries_need_whole(reader, "num_attention_heads", KVPI_MODELS_MAX_HEADS, &s->heads) !=
            0 ||
        kvpi_entries_need_whole(reader, "head_dim", KVPI_MODELS_MAX_HEAD_DIM, &dim) != 0)
        return -1;
    s->head_values = dim * dim;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *type = json_array_get(types, i);
        if (!json_is_integer(type) || json_integer_value(type) < 0 || json_integer_value(type) > 1)
            return kvpi_entries_wrong(reader, "%s%s[%zu] is not 0 or 1", reader->part, key, i);
        count.recurrent += json_integer_value(type) == 0;
        count.attention += json_integer_value(type) == 1;
    }
    return keep_count(reader, key, &count, model);
}

/* -------------------------------------------------------------------------------------- kinds */

static const kvpi_recurrent kinds[] = {
    {.title = "gated delta net",
     .key = "linear_num_value_heads",
     .known = {"linear_", "full_attention_interval", "mamba_ssm_dtype"},
     .read = read_delta_net},
    {.title = "Kimi delta attention",
     .key = "linear_attn_config",
     .known = {"linear_attn_config", "mamba_ssm_dtype"},
     .read = read_kimi},
    {.title = "Mamba-2",
     .key = "mamba_num_heads",
     .known = {"mamba_", "ssm_state_size", "hybrid_override_pattern", "layers_block_type",
               "mtp_layers_block_type", "mtp_hybrid_override_pattern", "use_mamba_kernels"},
     .read = read_nemotron},
    {.title = "Mamba-2",
     .key = "mamba_n_heads",
     .second_key = "layer_types",
     .known = {"mamba_d_state", "mamba_d_conv", "mamba_d_head", "mamba_n_", "mamba_expand"},
     .read = read_granite},
    {.title = "Mamba",
     .key = "attn_layer_period",
     .second_key = "mamba_d_state",
     .known = {"attn_layer_period", "attn_layer_offset", "mamba_d_state", "mamba_d_conv",
               "mamba_expand", "mamba_dt_rank", "mamba_conv_bias", "mamba_proj_bias",
               "use_mamba_kernels"},
     .read = read_jamba},
    {.title = "short convolution",
     .key = "conv_L_cache",
     .known = {"full_attn_idxs"},
     .read = read_short_conv},
    {.title = "lightning attention", .key = "attn_type_list", .read = read_lightning},
};

/* 1 in attn_type_list is attention; a list of nothing else is of a model without a state. */
static bool has_zero(const json_t *types)
{
    for (size_t i = 0; i < json_array_size(types); i++)
        if (json_is_integer(json_array_get(types, i)) &&
            json_integer_value(json_array_get(types, i)) == 0)
            return true;
    return false;
}

const kvpi_recurrent *kvpi_recurrent_find(const kvpi_entries *reader)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const kvpi_recurrent *kind = &kinds[i];
        const json_t *value = kvpi_entries_get(reader, kind->key);
        if (!kvpi_entries_is_set(value) ||
            (kind->second_key != NULL && kvpi_entries_get(reader, kind->second_key) == NULL))
            continue;
        if (kind->read != read_lightning || has_zero(value))
            return kind;
    }
    return NULL;
}

bool kvpi_recurrent_knows(const kvpi_recurrent *kind, const char *key)
{
    for (size_t i = 0; kind != NULL && i < COUNT(kind->known) && kind->known[i] != NULL; i++)
        if (strncmp(key, kind->known[i], strlen(kind->known[i])) == 0)
            return true;
    return false;
}

/* The type of the matrices; the inputs of convolutions have the model's. */
static int read_state_dtype(const kvpi_entries *reader, kvpi_models_states *s)
{
    static const char *const keys[] = {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"};
    static const struct {
        const char *name;
        kvpi_dtype dtype;
    } known[] = {
        {"float32", KVPI_DTYPE_F32}, {"bfloat16", KVPI_DTYPE_BF16}, {"float16", KVPI_DTYPE_F16}};
    s->dtype = KVPI_DTYPE_F32;
    for (size_t i = 0; i < COUNT(keys); i++) {
        const json_t *value = kvpi_entries_get(reader, keys[i]);
        const char *name = json_string_value(value);
        size_t k = 0;
        if (value == NULL)
            continue;
        while (name != NULL && k < COUNT(known) && strcmp(known[k].name, name) != 0)
            k++;
        if (name == NULL || k == COUNT(known))
            return kvpi_entries_wrong(reader,
                                      "%s%s is \"%.60s\", expected float32, bfloat16 or "
                                      "float16",
                                      reader->part, keys[i],
                                      name != NULL ? name : kvpi_json_kind(value));
        s->dtype = known[k].dtype;
    }
    return 0;
}

int kvpi_recurrent_read(const kvpi_recurrent *kind, const kvpi_entries *reader, kvpi_model *model)
{
    const json_t *use = kvpi_entries_get(reader, "use_sliding_window");
    model->states.kind = kind->title;
    if (kvpi_entries_is_set(kvpi_entries_get(reader, "sliding_window")) && !json_is_false(use))
        return kvpi_entries_wrong(reader,
                                  "has \"%ssliding_window\" beside layers with recurrent state, "
                                  "which this command cannot count",
                                  reader->part);
    return read_state_dtype(reader, &model->states) != 0 ? -1 : kind->read(reader, model);
}

/* Owns what the keys of a config.json say about the state of a recurrent layer. Which layers are
 * recurrent is layers.c's.
 *
 *   kind                  told by the key
 *   gated delta net       linear_num_value_heads
 *   Kimi delta attention  linear_attn_config, or linear_num_heads
 *   Mamba-2               mamba_num_heads, mamba_n_heads, or mamba_headdim
 *   Mamba                 mamba_d_state beside attn_layer_period
 *   short convolution     conv_L_cache; of keys, values and outputs: sconv_kernel_size
 *   lightning attention   attn_type_list with a 0; lightning_nkv; MiniMax's layer_types
 *   RG-LRU                lru_width
 *   ZAYA's convolutions   cca_time0
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
 *   of keys and outputs   KV heads, 1             -                  key and value, 2 x hidden
 *   lightning attention   heads                   size x size        -
 *   RG-LRU                channels                1                  1
 *   ZAYA's convolutions   KV heads                -                  see read_zaya
 *
 * Parameters are those of a layer's matrices, convolutions left out.
 */
#include "tool/models/config/recurrent.h"

#include <inttypes.h>
#include <string.h>

#include "tool/requests/json_kind.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX_KERNEL   64

static const uint32_t max_heads = KVPI_MODELS_MAX_HEADS, max_dim = KVPI_MODELS_MAX_HEAD_DIM;
static const char of_state[] = "how large a state is";

struct kvpi_recurrent {
    const char *title;
    const char *key, *second_key;
    const char *known[10]; /* keys, or how they begin; NULL after the last */
    int (*read)(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out);
};

static int need(const kvpi_entries *reader, const char *key, uint32_t max, uint32_t *out)
{
    return kvpi_entries_need_whole(reader, key, of_state, max, out);
}

/* The steps of a convolution that are kept. */
static int read_kernel(const kvpi_entries *reader, const char *key, kvpi_models_state *s)
{
    uint32_t kernel = 0;
    if (need(reader, key, MAX_KERNEL, &kernel) != 0)
        return -1;
    s->conv_steps = kernel - 1;
    return 0;
}

/* ------------------------------------------------------------------------------------- states */

static int read_delta_net(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t key_dim = 0, value_dim = 0;
    if (need(reader, "linear_num_value_heads", max_heads, &s->heads) != 0 ||
        need(reader, "linear_num_key_heads", max_heads, &s->groups) != 0 ||
        need(reader, "linear_key_head_dim", max_dim, &key_dim) != 0 ||
        need(reader, "linear_value_head_dim", max_dim, &value_dim) != 0 ||
        read_kernel(reader, "linear_conv_kernel_dim", s) != 0)
        return -1;
    s->head_values = key_dim * value_dim;
    s->conv_of_head = value_dim;
    s->conv_of_group = 2 * key_dim;
    const uint64_t keys = (uint64_t)s->groups * key_dim, values = (uint64_t)s->heads * value_dim;
    out->parameters = hidden * (2 * keys + 3 * values + 2 * s->heads);
    return 0;
}

/* In an object, or under names of their own. */
static int read_kimi(const kvpi_entries *outer, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    kvpi_entries reader = *outer; /* its messages name the key alone */
    const bool flat = kvpi_entries_get(outer, "linear_num_heads") != NULL;
    uint32_t dim = 0;
    if (!flat) {
        reader.object = kvpi_entries_get(outer, "linear_attn_config");
        reader.part = "linear_attn_config.";
    }
    if (!json_is_object(reader.object))
        return kvpi_entries_wrong(outer, "%slinear_attn_config is %s, expected an object",
                                  outer->part, kvpi_json_kind(reader.object));
    if (need(&reader, flat ? "linear_num_heads" : "num_heads", max_heads, &s->heads) != 0 ||
        need(&reader, flat ? "linear_head_dim" : "head_dim", max_dim, &dim) != 0 ||
        read_kernel(&reader, flat ? "linear_conv_kernel_dim" : "short_conv_kernel_size", s) != 0)
        return -1;
    s->head_values = dim * dim;
    s->conv_of_head = 3 * dim;
    const uint64_t width = (uint64_t)s->heads * dim;
    out->parameters = 4 * hidden * width + 2 * (hidden + width) * dim + hidden * s->heads;
    return 0;
}

/* Mamba-2's part of the state, whose keys go by several names. */
static int read_mamba2(const kvpi_entries *reader, const char *state_key, const char *kernel_key,
                       uint32_t head_dim, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t state = 0;
    if (need(reader, state_key, max_dim, &state) != 0 || read_kernel(reader, kernel_key, s) != 0)
        return -1;
    s->head_values = head_dim * state;
    s->conv_of_head = head_dim;
    s->conv_of_group = 2 * state;
    const uint64_t inner = (uint64_t)s->heads * head_dim;
    out->parameters = hidden * (3 * inner + 2 * (uint64_t)s->groups * state + s->heads);
    return 0;
}

static int read_nemotron(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t head_dim = 0;
    if (need(reader, "mamba_num_heads", max_heads, &s->heads) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_num_groups", 1, max_heads, &s->groups) != 0 ||
        need(reader, "n_groups", max_heads, &s->groups) != 0 ||
        need(reader, "mamba_head_dim", max_dim, &head_dim) != 0)
        return -1;
    return read_mamba2(reader, "ssm_state_size", "conv_kernel", head_dim, hidden, out);
}

static int read_zamba2(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t head_dim = 0;
    s->groups = 1;
    if (need(reader, "n_mamba_heads", max_heads, &s->heads) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_ngroups", 1, max_heads, &s->groups) != 0 ||
        need(reader, "mamba_headdim", max_dim, &head_dim) != 0)
        return -1;
    return read_mamba2(reader, "mamba_d_state", "mamba_d_conv", head_dim, hidden, out);
}

/* A head's size may be missing, or "auto": the expanded hidden size, divided by the heads. */
static int read_granite(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    static const char dim_key[] = "mamba_d_head";
    kvpi_models_state *s = &out->state;
    uint32_t head_dim = 0, expand = 2;
    s->groups = 1;
    if (need(reader, "mamba_n_heads", max_heads, &s->heads) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_expand", 1, 16, &expand) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_n_groups", 1, max_heads, &s->groups) != 0)
        return -1;
    head_dim = (uint32_t)(expand * hidden / s->heads);
    if (!json_is_string(kvpi_entries_get(reader, dim_key)) &&
        kvpi_entries_read_whole(reader, dim_key, 1, max_dim, &head_dim) != 0)
        return -1;
    if (head_dim == 0 || head_dim > max_dim)
        return kvpi_entries_wrong(reader, "no \"%s%s\", and %" PRIu32 " values for a head",
                                  reader->part, dim_key, head_dim);
    return read_mamba2(reader, "mamba_d_state", "mamba_d_conv", head_dim, hidden, out);
}

static int read_mamba(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t expand = 2, rank = (uint32_t)(hidden / 16);
    if (need(reader, "mamba_d_state", max_dim, &s->head_values) != 0 ||
        read_kernel(reader, "mamba_d_conv", s) != 0 ||
        kvpi_entries_read_whole(reader, "mamba_expand", 1, 16, &expand) != 0)
        return -1;
    if (hidden == 0)
        return kvpi_entries_wrong(reader, "no \"%shidden_size\", which says %s", reader->part,
                                  of_state);
    if (json_is_integer(kvpi_entries_get(reader, "mamba_dt_rank")) &&
        kvpi_entries_read_whole(reader, "mamba_dt_rank", 1, KVPI_MODELS_MAX_HIDDEN, &rank) != 0)
        return -1;
    s->heads = (uint32_t)(expand * hidden);
    s->conv_of_head = 1;
    out->parameters = s->heads * (3 * hidden + 2 * (uint64_t)rank + 2 * (uint64_t)s->head_values);
    return 0;
}

static int read_short_conv(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    s->conv_of_head = 1;
    out->parameters = 4 * hidden * hidden;
    return need(reader, "hidden_size", KVPI_MODELS_MAX_HIDDEN, &s->heads) != 0
               ? -1
               : read_kernel(reader, "conv_L_cache", s);
}

/* Inkling: of a layer's keys, values, and two outputs. */
static int read_sconv(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    static const char *const keys[] = {"sconv_kernel_size", "conv_kernel_size", NULL};
    out->of_kv = true;
    out->state.groups = 1;
    out->state.conv_of_group = (uint32_t)(2 * hidden);
    if (hidden == 0)
        return kvpi_entries_wrong(reader, "no \"%shidden_size\", which says %s", reader->part,
                                  of_state);
    return read_kernel(reader, kvpi_entries_name(reader, keys), &out->state);
}

static int keep_matrices(uint32_t dim, uint64_t hidden, kvpi_recurrence *out)
{
    out->state.head_values = dim * dim;
    out->parameters = 5 * hidden * out->state.heads * dim; /* query, key, value, gate, output */
    return 0;
}

static int read_lightning(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    uint32_t dim = 0;
    if (need(reader, "num_attention_heads", max_heads, &out->state.heads) != 0)
        return -1;
    dim = (uint32_t)(hidden / out->state.heads);
    dim = dim <= max_dim ? dim : 0;
    return need(reader, "head_dim", max_dim, &dim) != 0 ? -1 : keep_matrices(dim, hidden, out);
}

/* MiniCPM-SALA: its other layers choose among all keys, and keep all. */
static int read_mixers(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    uint32_t dim = 0;
    return need(reader, "lightning_nkv", max_heads, &out->state.heads) != 0 ||
                   need(reader, "lightning_head_dim", max_dim, &dim) != 0
               ? -1
               : keep_matrices(dim, hidden, out);
}

static int read_rg_lru(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    s->head_values = s->conv_of_head = 1;
    if (need(reader, "lru_width", KVPI_MODELS_MAX_HIDDEN, &s->heads) != 0)
        return -1;
    out->parameters = 3 * hidden * s->heads;
    return read_kernel(reader, "conv1d_width", s);
}

/* The last queries and keys of a token's two convolutions, and half a value, which is of the token
 * before. */
static int read_zaya(const kvpi_entries *reader, uint64_t hidden, kvpi_recurrence *out)
{
    kvpi_models_state *s = &out->state;
    uint32_t q_heads = 0, dim = 0, first = 0, second = 0;
    (void)hidden;
    if (need(reader, "num_attention_heads", max_heads, &q_heads) != 0 ||
        need(reader, "num_key_value_heads", max_heads, &s->heads) != 0 ||
        need(reader, "head_dim", max_dim, &dim) != 0 ||
        need(reader, "cca_time0", MAX_KERNEL, &first) != 0 ||
        need(reader, "cca_time1", MAX_KERNEL, &second) != 0)
        return -1;
    s->conv_of_head = (first + second - 2) * (q_heads / s->heads + 1) * dim + dim / 2;
    s->conv_steps = 1;
    return 0;
}

/* -------------------------------------------------------------------------------------- kinds */

static const kvpi_recurrent kinds[] = {
    {.title = "gated delta net",
     .key = "linear_num_value_heads",
     .known = {"linear_", "full_attention_interval", "mamba_ssm_dtype"},
     .read = read_delta_net},
    {.title = "Kimi delta attention",
     .key = "linear_num_heads",
     .known = {"linear_", "kda_", "layer_group_size", "short_conv_kernel_size", "mamba_ssm_dtype"},
     .read = read_kimi},
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
     .key = "mamba_headdim",
     .known = {"mamba_", "n_mamba_heads", "hybrid_layer_ids", "layers_block_type",
               "use_mamba_kernels"},
     .read = read_zamba2},
    {.title = "Mamba-2",
     .key = "mamba_n_heads",
     .second_key = "layer_types",
     .known = {"mamba_d_state", "mamba_d_conv", "mamba_d_head", "mamba_n_", "mamba_expand"},
     .read = read_granite},
    {.title = "Mamba-2",
     .key = "mamba_n_heads",
     .second_key = "attn_layer_indices",
     .known = {"mamba_", "attn_layer_indices"},
     .read = read_granite},
    {.title = "Mamba-2",
     .key = "mamba_n_heads",
     .second_key = "mamba_d_ssm",
     .known = {"mamba_", "attn_layer_indices", "ssm_"},
     .read = read_granite},
    {.title = "Mamba",
     .key = "attn_layer_period",
     .second_key = "mamba_d_state",
     .known = {"attn_layer_period", "attn_layer_offset", "mamba_", "n_mamba_heads",
               "layers_block_type", "use_mamba", "hidden_mamba_act"},
     .read = read_mamba},
    {.title = "short convolution",
     .key = "conv_L_cache",
     .known = {"full_attn_idxs"},
     .read = read_short_conv},
    {.title = "short convolution",
     .key = "sconv_kernel_size",
     .known = {"local_layer_ids", "use_sconv", "number_of_conv_states", "sliding_window_size"},
     .read = read_sconv},
    {.title = "short convolution",
     .key = "conv_kernel_size",
     .second_key = "swa_num_key_value_heads",
     .known = {"number_of_conv_states"},
     .read = read_sconv},
    {.title = "RG-LRU",
     .key = "lru_width",
     .known = {"lru_width", "block_types", "attention_window_size"},
     .read = read_rg_lru},
    {.title = "CCA convolutions", .key = "cca_time0", .known = {"cca_time"}, .read = read_zaya},
    {.title = "lightning attention",
     .key = "linear_attn_alpha_factor",
     .known = {"linear_attn_", "full_attn_"},
     .read = read_lightning},
    {.title = "lightning attention", .key = "attn_type_list", .read = read_lightning},
    {.title = "lightning attention",
     .key = "mixer_types",
     .second_key = "lightning_nkv",
     .known = {"mixer_types", "lightning_"},
     .read = read_mixers},
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
        if (strcmp(kind->key, "attn_type_list") == 0 && !has_zero(value))
            continue;
        if (kind->second_key == NULL || strcmp(kind->second_key, "mamba_d_ssm") != 0 ||
            strcmp(kvpi_entries_model_type(reader), "falcon_h1") == 0)
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
static int read_state_dtype(const kvpi_entries *reader, kvpi_model *model)
{
    static const char *const keys[] = {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"};
    static const struct {
        const char *name;
        kvpi_dtype dtype;
    } known[] = {
        {"float32", KVPI_DTYPE_F32}, {"bfloat16", KVPI_DTYPE_BF16}, {"float16", KVPI_DTYPE_F16}};
    model->state_dtype = KVPI_DTYPE_F32;
    model->state_dtype_is_said = kvpi_entries_get(reader, "linear_attn_config") != NULL ||
                                 kvpi_entries_get(reader, "mamba_num_heads") != NULL;
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
        model->state_dtype = known[k].dtype;
        model->state_dtype_is_said = true;
    }
    return 0;
}

int kvpi_recurrent_read(const kvpi_recurrent *kind, const kvpi_entries *reader, kvpi_model *model,
                        kvpi_recurrence *out)
{
    *out = (kvpi_recurrence){.of_kv = false};
    model->state_kind = kind->title;
    return read_state_dtype(reader, model) != 0 ? -1 : kind->read(reader, model->mlp.hidden, out);
}

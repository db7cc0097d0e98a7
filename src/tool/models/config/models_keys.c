/* Owns what is done about keys of a config.json that change what layers keep and that the reader
 * does not count, and about keys that it has never heard of.
 *
 * Of the language model's part only, and of the objects in it that describe attention or layers:
 *
 *   refused   keys of the first table, when they are switched on
 *   refused   keys that say which layers attend to what (`telling`), unless layer_types does
 *   refused   numbers and lists that name heads, sizes of heads or kinds of layers, unless all of
 *             them are what was counted
 *   listed    other numbers and lists whose names may mean KV
 *
 * Null, false, empty and zero mean nothing. A name with one of `harmless` in it is about something
 * else: scales, dropout, tokens, experts, vision, drafts.
 */
#include "tool/models/config/models_keys.h"

#include <stdio.h>
#include <string.h>

#include "tool/models/config/widths.h"
#include "tool/requests/json_kind.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX_DEPTH    3

/* Keys that change what a layer stores in ways that the arithmetic does not know. */
static const struct {
    const char *key, *why;
} refused_keys[] = {
    {"hybrid_override_pattern", "some layers are state-space layers"},
    {"hybrid_layer_ids", "some layers are state-space layers"},
    {"attn_layer_indices", "some layers are state-space layers"},
    {"attn_layer_period", "some layers are state-space layers"},
    {"mamba_d_state", "some layers are state-space layers, and no list says which attend "
                      "(layer_types, attn_layer_indices)"},
    {"mamba_d_ssm", "some layers are state-space layers"},
    {"mb_per_layer", "some layers are state-space layers"},
    {"linear_attn_config", "some layers are linear attention"},
    {"linear_num_value_heads", "some layers are linear attention"},
    {"full_attention_interval", "some layers are linear attention"},
    {"layer_group_size", "some layers are linear attention"},
    {"full_attn_idxs", "some layers are convolutions"},
    {"lru_width", "some layers are recurrent"},
    {"block_types", "some layers are recurrent"},
    {"hyena_layer_idxs", "some layers are convolutions"},
    {"cross_attention_layers", "some layers attend to an image"},
    {"kv_reuse_group", "layers share one KV"},
    {"use_cla", "layers share one KV"},
};

/* What is in the names of keys that say which layers attend to what: of a key with one of these
 * that is not known, nothing is assumed. */
static const char *const telling[] = {
    "mamba",     "ssm_",       "linear_att", "recurrent",  "rwkv",         "hyena",
    "lru_",      "deltanet",   "hybrid",     "sliding",    "swa_",         "window",
    "att_chunk", "attn_chunk", "chunk_att",  "local_att",  "global_att",   "full_att",
    "attn_type", "attn_layer", "layer_type", "block_type", "attention_ty", "attention_la",
    "dense_att", "blocksparse"};

/* The same, beside "head": of layers that run more than once, and of layers that differ in more
 * than layer_types says. */
static const char *const changing[] = {
    "nkv",       "query_group",     "attention_group", "multi_query", "kv_channels",
    "kv_source", "mixer_types",     "ut_steps",        "num_loops",   "loop_num",
    "_loops",    "compress_ratios", "sparse_index",    "index_dim",   "kv_lora",
    "kv_share",  "kv_layer",        "key_value",       "kv_group",
};

/* What is in other names that may mean KV. */
static const char *const possible[] = {"kv", "cache", "attn", "attention", "compress_", "indexer"};

/* Read by this command, or known to change nothing that is counted. */
static const char *const known_keys[] = {
    "sliding_window",
    "use_sliding_window",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "max_window_layers",
    "attn_type_list",
    "context_window",
    "attention_chunk_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "attention_head_dim",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_head_dim",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "rope_head_dim",
    "v_head_dim",
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "mixer_types",
    "block_types",
    "attention_layers",
    "hybrid_layer_pattern",
    "local_layer_ids",
    "kv_channels",
    "block_configs",
    "cla_share_factor",
    "multi_query_group_num",
    "num_attention_groups",
    "attention_other_setting",
    "global_head_dim",
    "global_v_head_dim",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "kv_source_layers",
    "kv_source_layer_ids",
    "index_source_layer_ids",
    "num_key_value_heads_per_layer",
    "num_swa_key_value_heads",
    "swa_num_key_value_heads",
    "swa_num_attention_heads",
    "swa_head_dim",
    "swa_v_head_dim",
    "swa_kv_lora_rank",
    "swa_qk_rope_head_dim",
    "swa_qk_nope_head_dim",
    "swa_q_lora_rank",
    "sliding_num_key_value_heads",
    "sliding_head_dim",
    "sliding_v_head_dim",
    "total_ut_steps",
    "loop_num_passes",
    "loop_layer_index_start",
    "loop_layer_index_end",
    "n_recurrent_loops",
    "n_recurrent_layers",
    "n_input_layers",
    "recurrent_kv_cache_mode",
    "compress_ratios",
    "compress_rates",
    "index_head_dim",
    "index_n_heads",
    "index_kpool",
    "indexer_types",
    "indexer_head_dim",
    "indexer_n_heads",
    "indexer_kv_heads",
    "indexer_compress_ratio",
    "indexer_budget",
    "sparse_index_dim",
    "sparse_attention_freq",
    "global_attn_every_n_layers",
    "per_layer_config",
    "num_key_value_groups",          /* of query heads for one */
    "num_attention_heads_per_layer", /* of queries, as these two */
    "num_sliding_attention_heads",
    "conv_L_cache",          /* the kernel of a short convolution */
    "attention_hidden_size", /* of the input, Zamba's */
    "n_layers_per_attn_res_block",
    "index_topk",       /* how many are attended to */
    "keep_window_size", /* Doge: of a mask, all tokens are kept */
    "attention_type",   /* BigBird's, which keeps all */
    "attn_type",        /* MPT's */
};

/* What is in names of other things. */
static const char *const harmless[] = {
    "drop",          "bias",      "scale",   "scaling",     "multiplier", "token",    "expert",
    "softcap",       "logit_cap", "prob",    "temperature", "theta",      "_eps",     "norm",
    "init",          "implement", "lm_head", "mtp",         "draft",      "medusa",   "eagle",
    "vision",        "visual",    "image",   "video",       "audio",      "speech",   "resampler",
    "perceiver",     "projector", "moe_",    "prediction",  "aligner",    "pred_",    "ngram",
    "head_in_index", "index_",    "sconv",   "gate",        "scalar",     "relative", "num_labels",
    "classifier",    "rope_",     "rotary",
};

/* Objects whose keys are looked at, too: what is in their names. */
static const char *const inner[] = {"attn", "attention", "layer", "head", "kv", "cache", "mixer"};

static bool has_one(const char *key, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(key, words[i]) != NULL)
            return true;
    return false;
}

/* "head" begins a word, unlike in "ahead". */
static bool names_heads(const char *key)
{
    for (const char *at = strstr(key, "head"); at != NULL; at = strstr(at + 1, "head"))
        if (at == key || at[-1] == '_')
            return true;
    return false;
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < COUNT(known_keys); i++)
        if (strcmp(known_keys[i], key) == 0)
            return true;
    return false;
}

/* Models that attend to nothing. */
static int check_recurrent_only(const kvpi_entries *reader)
{
    static const char *const types[] = {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"};
    const char *type = kvpi_entries_model_type(reader);
    for (size_t i = 0; i < COUNT(types); i++)
        if (strcmp(types[i], type) == 0)
            return kvpi_entries_wrong(reader,
                                      "model_type is \"%s\", whose layers keep a state and no KV: "
                                      "this command counts states beside blocks of KV",
                                      type);
    return 0;
}

static int check_telling(const kvpi_entries *reader, const kvpi_recurrent *recurrent)
{
    json_t *object = (json_t *)reader->object; /* only read */
    if (kvpi_layers_are_listed(reader))
        return 0; /* the list says all there is to say */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        if (has_one(key, telling, COUNT(telling)) && !is_known(key) &&
            strncmp(key, "layernorm_", 10) != 0 &&
            kvpi_entries_is_set(json_object_iter_value(at)) &&
            !kvpi_recurrent_knows(recurrent, key))
            return kvpi_entries_wrong(
                reader,
                "has \"%s%.60s\", which this command does not know: layers may not be "
                "full attention",
                reader->part, key);
    }
    return 0;
}

/* Other names for the number of layers: a file that has two has one number, or layers of another
 * kind in between. */
static int check_layers(const kvpi_entries *reader)
{
    static const char *const names[] = {"num_layers", "n_layers", "n_layer"};
    const json_t *layers = kvpi_entries_get(reader, "num_hidden_layers");
    for (size_t i = 0; i < COUNT(names); i++) {
        const json_t *other = kvpi_entries_get(reader, names[i]);
        if (json_is_integer(layers) && json_is_integer(other) &&
            json_integer_value(layers) != json_integer_value(other) &&
            strcmp(kvpi_entries_model_type(reader), "longcat_flash") != 0)
            return kvpi_entries_wrong(
                reader,
                "%s%s is %" JSON_INTEGER_FORMAT ", num_hidden_layers is %" JSON_INTEGER_FORMAT,
                reader->part, names[i], json_integer_value(other), json_integer_value(layers));
    }
    return 0;
}

int kvpi_keys_check(const kvpi_entries *reader, const kvpi_recurrent *recurrent)
{
    if (check_recurrent_only(reader) != 0)
        return -1;
    for (size_t i = 0; i < COUNT(refused_keys); i++)
        if (strcmp(refused_keys[i].key, "use_cla") == 0 &&
            kvpi_entries_get(reader, "cla_share_factor") != NULL)
            continue;
        else if (kvpi_entries_is_set(kvpi_entries_get(reader, refused_keys[i].key)) &&
                 !kvpi_recurrent_knows(recurrent, refused_keys[i].key))
            return kvpi_entries_wrong(reader, "has \"%s%s\": %s, which this command cannot count",
                                      reader->part, refused_keys[i].key, refused_keys[i].why);
    bool cross = false;
    if (kvpi_entries_read_bool(reader, "is_encoder_decoder", &cross) != 0)
        return -1;
    if (cross)
        return kvpi_entries_wrong(
            reader, "is_encoder_decoder is true: cross-attention, which this command cannot count");
    if (kvpi_entries_get(reader, "decoder_layers") != NULL &&
        kvpi_entries_get(reader, "num_hidden_layers") == NULL)
        return kvpi_entries_wrong(reader,
                                  "has \"%sdecoder_layers\": they attend to an encoder, too, which "
                                  "this command cannot count",
                                  reader->part);
    if (check_layers(reader) != 0)
        return -1;
    return check_telling(reader, recurrent);
}

/* ------------------------------------------------------------------------------ strange keys */

/* Whether a number, or all of a list, says what was counted. */
static bool says_counted(const char *key, const json_t *value, const kvpi_widths *widths,
                         const kvpi_model *model)
{
    static const char *const sizes[] = {"dim", "size", "channels"};
    static const char *const repeats[] = {"steps", "loop"};
    static const char *const counted[] = {"channels", "group", "nkv", "key_value"};
    const json_int_t number = json_integer_value(value);
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!says_counted(key, json_array_get(value, i), widths, model))
                return false;
        return true;
    }
    if (!json_is_integer(value))
        return false;
    if (has_one(key, repeats, COUNT(repeats)))
        return number == 1;
    if (!names_heads(key) && !has_one(key, counted, COUNT(counted)))
        return false;
    return has_one(key, sizes, COUNT(sizes))
               ? number == widths->full.k_dim
               : number == widths->full.q_heads || number == widths->full.kv_heads;
}

static bool is_number_or_list(const json_t *value)
{
    return json_is_number(value) || json_is_array(value);
}

static void list_strange(const kvpi_entries *reader, const char *key, kvpi_model *model)
{
    size_t used = strlen(model->strange);
    const char *comma = used > 0 ? ", " : "";
    if (used + strlen(comma) + strlen(reader->part) + strlen(key) + 3 < sizeof model->strange)
        snprintf(model->strange + used, sizeof model->strange - used, "%s\"%s%s\"", comma,
                 reader->part, key);
}

static int check_key(const kvpi_entries *reader, const char *key, const json_t *value,
                     const kvpi_widths *widths, kvpi_model *model)
{
    const bool of_latent = widths->full.kv_rank > 0 && strcmp(key, "v_head_dim") == 0;
    if (!is_number_or_list(value) || !kvpi_entries_is_set(value) || is_known(key) || of_latent ||
        has_one(key, harmless, COUNT(harmless)))
        return 0;
    if (names_heads(key) || has_one(key, changing, COUNT(changing)))
        return says_counted(key, value, widths, model)
                   ? 0
                   : kvpi_entries_wrong(reader,
                                        "has \"%s%.60s\", which this command does not know: "
                                        "layers may keep something else",
                                        reader->part, key);
    if (has_one(key, possible, COUNT(possible)) && !has_one(key, telling, COUNT(telling)))
        list_strange(reader, key, model);
    return 0;
}

/* The keys of an object, and of those in it that describe attention or layers. */
static int check_object(const kvpi_entries *reader, const kvpi_recurrent *recurrent, int depth,
                        const kvpi_widths *widths, kvpi_model *model)
{
    json_t *object = (json_t *)reader->object; /* only read */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        char part[128];
        kvpi_entries inside = *reader;
        if (kvpi_recurrent_knows(recurrent, key))
            continue;
        if (!json_is_object(value)) {
            if (check_key(reader, key, value, widths, model) != 0)
                return -1;
        } else if (depth < MAX_DEPTH && has_one(key, inner, COUNT(inner)) &&
                   !has_one(key, harmless, COUNT(harmless))) {
            snprintf(part, sizeof part, "%.60s%.60s.", reader->part, key);
            inside.object = value;
            inside.part = part;
            if (check_object(&inside, recurrent, depth + 1, widths, model) != 0)
                return -1;
        }
    }
    return 0;
}

int kvpi_keys_check_strange(const kvpi_entries *reader, const kvpi_recurrent *recurrent,
                            const kvpi_widths *widths, kvpi_model *model)
{
    return check_object(reader, recurrent, 0, widths, model);
}

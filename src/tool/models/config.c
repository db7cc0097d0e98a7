/* Reads a model's shape from a Hugging Face config.json.
 *
 * Owns what its keys mean, which of them may be missing, and what is then meant: the defaults of
 * transformers' configuration classes, because files leave out what equals a default. Refuses what
 * it would get wrong: layers that keep something else than keys and values and that recurrent.c
 * does not know, layers that share one KV, heads that differ by layer, cross-attention; and keys
 * that it does not know whose names say that layers differ in what they attend to. What only
 * weights need may be missing: `unknown` says so, and the KV figures still hold.
 *
 * Window of a layer, first rule that applies:
 *
 *   1  layer_types names each layer's kind
 *   2  attention_chunk_size: the layers with rotary positions, those with 1 in no_rope_layers; else
 *      all but every no_rope_layer_interval-th. They attend in chunks of that size
 *   3  use_sliding_window is false, or a Qwen does not set it: none
 *   4  sliding_window is null, or missing without a default: none
 *   5  sliding_window_pattern p, or layer_switch p: all layers but every p-th
 *   6  max_window_layers m beside use_sliding_window: the layers from m on
 *   7  all layers
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/input/budget.h"
#include "tool/input/input.h"
#include "tool/models/entries.h"
#include "tool/models/recurrent.h"
#include "tool/requests/json_kind.h"

/* A config.json is a few kilobytes; one with a rope factor per frequency, or a map of labels, a few
 * hundred. */
#define MAX_FILE_BYTES (16u << 20)

/* What a configuration class of transformers assumes when a key is missing. 0: the key is needed,
 * or has the default of most. */
typedef struct kvpi_family {
    const char *model_type;
    uint32_t q_heads, kv_heads, head_dim, vocab;
    uint32_t window, pattern;
    uint32_t chunk, interval; /* of attention_chunk_size, no_rope_layer_interval */
    bool tied, ungated;
} family;

static const family families[] = {
    {.model_type = "gemma", .head_dim = 256, .tied = true},
    {.model_type = "gemma2", .head_dim = 256, .window = 4096, .pattern = 2, .tied = true},
    {.model_type = "gemma3_text",
     .q_heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 262208,
     .window = 4096,
     .pattern = 6,
     .tied = true},
    {.model_type = "cohere", .tied = true},
    {.model_type = "cohere2", .window = 4096, .pattern = 4, .tied = true},
    {.model_type = "gpt_oss", .kv_heads = 8, .head_dim = 64, .window = 128, .pattern = 2},
    {.model_type = "llama4_text",
     .q_heads = 40,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 202048,
     .chunk = 8192,
     .interval = 4},
    {.model_type = "mistral", .kv_heads = 8, .window = 4096},
    {.model_type = "mixtral", .kv_heads = 8},
    {.model_type = "falcon", .ungated = true},
    {.model_type = "gpt_neox", .ungated = true},
    {.model_type = "nemotron", .ungated = true},
    {.model_type = "phi", .ungated = true},
    {.model_type = "qwen3_next", .kv_heads = 2, .head_dim = 256},
    {.model_type = "starcoder2", .ungated = true},
};

/* Keys that change what a layer stores in ways that the arithmetic does not know. */
static const struct {
    const char *key, *why;
} refused_keys[] = {
    {"attn_layer_period", "some layers are state-space layers"},
    {"attn_layer_indices", "some layers are state-space layers"},
    {"hybrid_override_pattern", "some layers are state-space layers"},
    {"hybrid_layer_ids", "some layers are state-space layers"},
    {"layers_block_type", "some layers are state-space layers"},
    {"mamba_d_state", "some layers are state-space layers"},
    {"mamba_d_ssm", "some layers are state-space layers"},
    {"mb_per_layer", "some layers are state-space layers"},
    {"linear_attn_config", "some layers are linear attention"},
    {"linear_num_value_heads", "some layers are linear attention"},
    {"full_attention_interval", "some layers are linear attention"},
    {"layer_group_size", "some layers are linear attention"},
    {"full_attn_idxs", "some layers are convolutions"},
    {"block_types", "some layers are recurrent"},
    {"lru_width", "some layers are recurrent"},
    {"hyena_layer_idxs", "some layers are convolutions"},
    {"hybrid_layer_pattern", "layers differ in their heads"},
    {"num_swa_key_value_heads", "layers differ in their heads"},
    {"swa_num_key_value_heads", "layers differ in their heads"},
    {"num_key_value_heads_per_layer", "layers differ in their heads"},
    {"attention_other_setting", "layers differ in their heads"},
    {"block_configs", "layers differ in their heads"},
    {"num_kv_shared_layers", "layers share one KV"},
    {"kv_reuse_group", "layers share one KV"},
    {"use_cla", "layers share one KV"},
    {"index_head_dim", "an indexer keeps keys of its own"},
};

/* What is in the names of keys that say which layers attend to what: of a key with one of these
 * that is not known, nothing is assumed. */
static const char *const telling[] = {
    "mamba",     "ssm_",       "linear_att", "recurrent",  "rwkv",         "hyena",
    "lru_",      "deltanet",   "hybrid",     "sliding",    "swa_",         "window",
    "att_chunk", "attn_chunk", "chunk_att",  "local_att",  "global_att",   "full_att",
    "attn_type", "attn_layer", "layer_type", "block_type", "attention_ty", "attention_la",
    "dense_att", "blocksparse"};

/* Read below, or harmless. */
static const char *const known_keys[] = {
    "sliding_window",    "use_sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
    "max_window_layers", "attn_type_list",     "context_window"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---------------------------------------------------------------------------------- attention */

static bool is_known(const char *key)
{
    for (size_t i = 0; i < COUNT(known_keys); i++)
        if (strcmp(known_keys[i], key) == 0)
            return true;
    return false;
}

static bool is_telling(const char *key)
{
    for (size_t i = 0; i < COUNT(telling); i++)
        if (strstr(key, telling[i]) != NULL)
            return !is_known(key);
    return false;
}

static int check_unknown(const kvpi_entries *reader, const kvpi_recurrent *recurrent)
{
    json_t *object = (json_t *)reader->object; /* only read */
    if (kvpi_entries_get(reader, "layer_types") != NULL)
        return 0; /* it says all there is to say */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at))
        if (is_telling(json_object_iter_key(at)) &&
            kvpi_entries_is_set(json_object_iter_value(at)) &&
            !kvpi_recurrent_knows(recurrent, json_object_iter_key(at)))
            return kvpi_entries_wrong(
                reader,
                "has \"%s%.60s\", which this command does not know: layers may not be "
                "full attention",
                reader->part, json_object_iter_key(at));
    return 0;
}

/* 1 is attention on all tokens; a list with 0, for linear attention, is recurrent.c's. */
static int check_type_list(const kvpi_entries *reader)
{
    const json_t *types = kvpi_entries_get(reader, "attn_type_list");
    if (types != NULL && !json_is_array(types))
        return kvpi_entries_wrong(reader, "%sattn_type_list is %s, expected an array", reader->part,
                                  kvpi_json_kind(types));
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *type = json_array_get(types, i);
        if (!json_is_integer(type) || json_integer_value(type) < 0 || json_integer_value(type) > 1)
            return kvpi_entries_wrong(reader, "%sattn_type_list[%zu] is not 0 or 1", reader->part,
                                      i);
    }
    return 0;
}

static int check_known(const kvpi_entries *reader, const kvpi_recurrent *recurrent)
{
    for (size_t i = 0; i < COUNT(refused_keys); i++)
        if (kvpi_entries_is_set(kvpi_entries_get(reader, refused_keys[i].key)) &&
            !kvpi_recurrent_knows(recurrent, refused_keys[i].key))
            return kvpi_entries_wrong(reader, "has \"%s%s\": %s, which this command cannot count",
                                      reader->part, refused_keys[i].key, refused_keys[i].why);
    bool cross = false;
    if (kvpi_entries_read_bool(reader, "is_encoder_decoder", &cross) != 0)
        return -1;
    return cross ? kvpi_entries_wrong(
                       reader, "is_encoder_decoder is true: cross-attention, which this command "
                               "cannot count")
           : check_type_list(reader) != 0 ? -1
                                          : check_unknown(reader, recurrent);
}

static int read_latent(const kvpi_entries *reader, kvpi_models_latent *latent)
{
    const uint32_t max = KVPI_MODELS_MAX_LATENT;
    if (kvpi_entries_read_whole(reader, "kv_lora_rank", 1, max, &latent->kv_rank) != 0)
        return -1;
    if (latent->kv_rank == 0)
        return 0;
    if (kvpi_entries_need_whole(reader, "qk_rope_head_dim", KVPI_MODELS_MAX_HEAD_DIM,
                                &latent->rope_dim) != 0)
        return -1;
    if (kvpi_entries_read_whole(reader, "q_lora_rank", 1, max, &latent->q_rank) != 0)
        return -1;
    if (kvpi_entries_read_whole(reader, "qk_nope_head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM,
                                &latent->nope_dim) != 0)
        return -1;
    return kvpi_entries_read_whole(reader, "v_head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM,
                                   &latent->v_dim);
}

/* Falcon's way to say it: multi_query is one KV head, unless the new architecture counts them. */
static int read_falcon_heads(const kvpi_entries *reader, uint32_t *kv_heads)
{
    bool multi_query = false, new_architecture = false;
    if (kvpi_entries_read_bool(reader, "multi_query", &multi_query) != 0 ||
        kvpi_entries_read_bool(reader, "new_decoder_architecture", &new_architecture) != 0)
        return -1;
    if (new_architecture)
        return kvpi_entries_need_whole(reader, "num_kv_heads", KVPI_MODELS_MAX_HEADS, kv_heads);
    if (multi_query)
        *kv_heads = 1;
    return 0;
}

static int read_heads(const kvpi_entries *reader, kvpi_models_attention *a)
{
    const uint32_t max = KVPI_MODELS_MAX_HEADS;
    a->q_heads = reader->family->q_heads;
    a->kv_heads = reader->family->kv_heads;
    if (kvpi_entries_need_whole(reader, "num_attention_heads", max, &a->q_heads) != 0 ||
        read_falcon_heads(reader, &a->kv_heads) != 0 ||
        kvpi_entries_read_whole(reader, "num_key_value_heads", 1, max, &a->kv_heads) != 0)
        return -1;
    if (a->kv_heads == 0)
        a->kv_heads = a->q_heads;
    if (a->kv_heads > a->q_heads || a->q_heads % a->kv_heads != 0)
        return kvpi_entries_wrong(reader,
                                  "%snum_attention_heads %" PRIu32
                                  " is not divisible by num_key_value_heads %" PRIu32,
                                  reader->part, a->q_heads, a->kv_heads);
    return 0;
}

static int read_head_dim(const kvpi_entries *reader, const kvpi_model *model,
                         kvpi_models_attention *a)
{
    if (model->latent.kv_rank > 0) {
        a->head_dim = model->latent.nope_dim + model->latent.rope_dim;
        return 0;
    }
    a->head_dim = reader->family->head_dim;
    if (kvpi_entries_read_whole(reader, "attention_head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM,
                                &a->head_dim) != 0 ||
        kvpi_entries_read_whole(reader, "head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM, &a->head_dim) != 0)
        return -1;
    if (a->head_dim != 0)
        return 0;
    uint32_t hidden = model->mlp.hidden;
    if (hidden == 0)
        return kvpi_entries_wrong(
            reader, "no \"%shead_dim\" and no \"%shidden_size\" to divide by the heads",
            reader->part, reader->part);
    if (hidden % a->q_heads != 0)
        return kvpi_entries_wrong(reader,
                                  "%shidden_size %" PRIu32
                                  " is not divisible by num_attention_heads %" PRIu32
                                  ", and there is no \"head_dim\"",
                                  reader->part, hidden, a->q_heads);
    a->head_dim = hidden / a->q_heads;
    if (a->head_dim > KVPI_MODELS_MAX_HEAD_DIM)
        return kvpi_entries_wrong(reader, "a head has %" PRIu32 " values, more than %d",
                                  a->head_dim, KVPI_MODELS_MAX_HEAD_DIM);
    return 0;
}

/* ------------------------------------------------------------------------------------ windows */

/* Rule 1. Counts the layers with a window; *key is where its size stands. */
static int read_layer_types(const kvpi_entries *reader, const json_t *types,
                            kvpi_models_attention *a, const char **key)
{
    if (!json_is_array(types))
        return kvpi_entries_wrong(reader, "%slayer_types is %s, expected an array", reader->part,
                                  kvpi_json_kind(types));
    if (json_array_size(types) != a->n_layers)
        return kvpi_entries_wrong(reader,
                                  "%slayer_types has %zu entries, num_hidden_layers is %" PRIu32,
                                  reader->part, json_array_size(types), a->n_layers);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool sliding = type != NULL && strcmp(type, "sliding_attention") == 0;
        bool chunked = type != NULL && strcmp(type, "chunked_attention") == 0;
        if (type == NULL)
            return kvpi_entries_wrong(reader, "%slayer_types[%" PRIu32 "] is not a string",
                                      reader->part, i);
        if (!sliding && !chunked && strcmp(type, "full_attention") != 0)
            return kvpi_entries_wrong(reader,
                                      "%slayer_types[%" PRIu32
                                      "] is \"%.60s\", expected full_attention, "
                                      "sliding_attention or chunked_attention",
                                      reader->part, i, type);
        if (a->n_windowed > 0 && (sliding || chunked) &&
            sliding != (strcmp(*key, "sliding_window") == 0))
            return kvpi_entries_wrong(reader,
                                      "%slayer_types has sliding_attention and chunked_attention; "
                                      "one model has one of them here",
                                      reader->part);
        if (sliding || chunked) {
            a->n_windowed++;
            *key = sliding ? "sliding_window" : "attention_chunk_size";
        }
    }
    return 0;
}

/* Rule 2. */
static int read_chunks(const kvpi_entries *reader, kvpi_models_attention *a)
{
    const json_t *layers = kvpi_entries_get(reader, "no_rope_layers");
    uint32_t interval = reader->family->interval;
    if (kvpi_entries_read_whole(reader, "no_rope_layer_interval", 1, KVPI_MODELS_MAX_LAYERS,
                                &interval) != 0)
        return -1;
    if (!kvpi_entries_is_set(layers)) {
        a->n_windowed = interval == 0 ? 0 : a->n_layers - a->n_layers / interval;
        return interval == 0
                   ? kvpi_entries_wrong(reader,
                                        "has \"%sattention_chunk_size\", and nothing says which "
                                        "layers it is of: layer_types, no_rope_layers",
                                        reader->part)
                   : 0;
    }
    if (json_array_size(layers) != a->n_layers)
        return kvpi_entries_wrong(reader,
                                  "%sno_rope_layers has %zu entries, num_hidden_layers is %" PRIu32,
                                  reader->part, json_array_size(layers), a->n_layers);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const json_t *rope = json_array_get(layers, i);
        if (!json_is_integer(rope) || json_integer_value(rope) < 0 || json_integer_value(rope) > 1)
            return kvpi_entries_wrong(reader, "%sno_rope_layers[%" PRIu32 "] is not 0 or 1",
                                      reader->part, i);
        a->n_windowed += json_integer_value(rope) == 1;
    }
    return 0;
}

static bool has_chunks(const kvpi_entries *reader)
{
    const json_t *chunk = json_object_get(reader->object, "attention_chunk_size");
    return chunk != NULL ? !json_is_null(chunk) : reader->family->chunk > 0;
}

/* Rules 5 to 7. */
static int read_window_layers(const kvpi_entries *reader, bool use_given, kvpi_models_attention *a)
{
    uint32_t pattern = reader->family->pattern, from = 0;
    if (kvpi_entries_read_whole(reader, "_sliding_window_pattern", 1, a->n_layers, &pattern) != 0 ||
        kvpi_entries_read_whole(reader, "layer_switch", 1, a->n_layers, &pattern) != 0 ||
        kvpi_entries_read_whole(reader, "sliding_window_pattern", 1, a->n_layers, &pattern) != 0)
        return -1;
    if (pattern == 0 && use_given &&
        kvpi_entries_read_whole(reader, "max_window_layers", 0, KVPI_MODELS_MAX_LAYERS, &from) != 0)
        return -1;
    if (pattern > 0)
        a->n_windowed = a->n_layers - a->n_layers / pattern;
    else
        a->n_windowed = from < a->n_layers ? a->n_layers - from : 0;
    return 0;
}

/* Rules 3 and 4: whether sliding_window, which may be a leftover, is in force. */
static int has_window(const kvpi_entries *reader, bool *use_given, bool *out)
{
    const json_t *raw = json_object_get(reader->object, "sliding_window");
    bool use = strncmp(kvpi_entries_model_type(reader), "qwen", 4) != 0;
    *use_given = kvpi_entries_get(reader, "use_sliding_window") != NULL;
    if (kvpi_entries_read_bool(reader, "use_sliding_window", &use) != 0)
        return -1;
    bool some = raw != NULL ? !json_is_null(raw) : reader->family->window > 0;
    *out = use && some;
    return 0;
}

static int read_windows(const kvpi_entries *reader, kvpi_models_attention *a, bool *chunked)
{
    const json_t *types = kvpi_entries_get(reader, "layer_types");
    const char *key = "sliding_window";
    bool use_given = false, windowed = true;
    if (types != NULL) {
        if (read_layer_types(reader, types, a, &key) != 0)
            return -1;
    } else if (has_chunks(reader)) {
        key = "attention_chunk_size";
        if (read_chunks(reader, a) != 0)
            return -1;
    } else if (has_window(reader, &use_given, &windowed) != 0 ||
               (windowed && read_window_layers(reader, use_given, a) != 0)) {
        return -1;
    }
    if (a->n_windowed == 0)
        return 0;
    *chunked = strcmp(key, "sliding_window") != 0;
    a->window_tokens = *chunked ? reader->family->chunk : reader->family->window;
    return kvpi_entries_need_whole(reader, key, KVPI_MODELS_MAX_WINDOW, &a->window_tokens);
}

/* ------------------------------------------------------------------------------------ weights */

/* Number of experts, by the names that it goes by. */
static int read_expert_counts(const kvpi_entries *reader, kvpi_models_experts *experts)
{
    static const char *const keys[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    static const char *const used[] = {"experts_per_token", "num_experts_per_token",
                                       "num_experts_per_tok"};
    for (size_t i = 0; i < COUNT(keys); i++)
        if (kvpi_entries_read_whole(reader, keys[i], 0, KVPI_MODELS_MAX_EXPERTS,
                                    &experts->n_experts) != 0)
            return -1;
    for (size_t i = 0; i < COUNT(used); i++)
        if (kvpi_entries_read_whole(reader, used[i], 1, KVPI_MODELS_MAX_EXPERTS,
                                    &experts->per_token) != 0)
            return -1;
    if (experts->n_experts == 0)
        return 0;
    if (experts->per_token == 0)
        return kvpi_entries_wrong(reader, "no \"%snum_experts_per_tok\"", reader->part);
    if (experts->per_token > experts->n_experts)
        return kvpi_entries_wrong(
            reader, "%snum_experts_per_tok is %" PRIu32 ", there are %" PRIu32 " experts",
            reader->part, experts->per_token, experts->n_experts);
    return 0;
}

/* What an expert is and which layers have them. */
static int read_experts(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_experts *experts = &model->experts;
    uint32_t n_layers = model->attention.n_layers, n_shared = 0, step = 1;
    if (read_expert_counts(reader, experts) != 0)
        return -1;
    if (experts->n_experts == 0)
        return 0;
    experts->intermediate = model->mlp.intermediate;
    const uint32_t max = KVPI_MODELS_MAX_INTERMEDIATE;
    if (kvpi_entries_read_whole(reader, "moe_intermediate_size", 1, max, &experts->intermediate) !=
            0 ||
        kvpi_entries_read_whole(reader, "n_shared_experts", 0, KVPI_MODELS_MAX_SHARED, &n_shared) !=
            0)
        return -1;
    experts->shared_intermediate = n_shared * experts->intermediate;
    if (kvpi_entries_read_whole(reader, "shared_expert_intermediate_size", 0, max,
                                &experts->shared_intermediate) != 0 ||
        kvpi_entries_read_whole(reader, "first_k_dense_replace", 0, n_layers,
                                &experts->n_dense_layers) != 0 ||
        kvpi_entries_read_whole(reader, "decoder_sparse_step", 1, n_layers, &step) != 0)
        return -1;
    if (step > 1)
        experts->n_dense_layers = n_layers - n_layers / step;
    else if (json_array_size(kvpi_entries_get(reader, "mlp_only_layers")) <= n_layers)
        experts->n_dense_layers +=
            (uint32_t)json_array_size(kvpi_entries_get(reader, "mlp_only_layers"));
    if (experts->n_dense_layers > n_layers)
        experts->n_dense_layers = n_layers;
    return 0;
}

/* Says in model->unknown what the count of parameters lacks. */
static void note_unknown(const kvpi_entries *reader, kvpi_model *model)
{
    const kvpi_models_mlp *mlp = &model->mlp;
    const kvpi_models_latent *latent = &model->latent;
    const char *missing = NULL, *uneven = NULL;
    if (mlp->hidden == 0)
        missing = "hidden_size";
    else if (mlp->vocab == 0)
        missing = "vocab_size";
    else if (mlp->intermediate == 0)
        missing = "intermediate_size";
    else if (latent->kv_rank > 0 && latent->nope_dim == 0)
        missing = "qk_nope_head_dim";
    else if (latent->kv_rank > 0 && latent->v_dim == 0)
        missing = "v_head_dim";
    else if (kvpi_entries_get(reader, "interleave_moe_layer_step") != NULL)
        uneven = "interleave_moe_layer_step";
    else if (json_is_array(kvpi_entries_get(reader, "moe_layer_freq")))
        uneven = "moe_layer_freq";
    if (model->states.n_layers > 0)
        snprintf(model->unknown, sizeof model->unknown,
                 "parameters of layers with recurrent state are not counted");
    else if (missing != NULL)
        snprintf(model->unknown, sizeof model->unknown, "no \"%s%s\"", reader->part, missing);
    else if (uneven != NULL)
        snprintf(model->unknown, sizeof model->unknown, "\"%s%s\" is not understood", reader->part,
                 uneven);
}

static int read_mlp(const kvpi_entries *reader, kvpi_models_mlp *mlp)
{
    mlp->vocab = reader->family->vocab;
    mlp->tied = reader->family->tied;
    mlp->ungated = reader->family->ungated;
    if (kvpi_entries_read_whole(reader, "hidden_size", 1, KVPI_MODELS_MAX_HIDDEN, &mlp->hidden) !=
            0 ||
        kvpi_entries_read_whole(reader, "intermediate_size", 1, KVPI_MODELS_MAX_INTERMEDIATE,
                                &mlp->intermediate) != 0 ||
        kvpi_entries_read_whole(reader, "vocab_size", 1, KVPI_MODELS_MAX_VOCAB, &mlp->vocab) != 0)
        return -1;
    return kvpi_entries_read_bool(reader, "tie_word_embeddings", &mlp->tied);
}

/* --------------------------------------------------------------------------------- data types */

static int read_dtype(const kvpi_entries *reader, kvpi_model *model)
{
    static const struct {
        const char *name;
        kvpi_dtype dtype;
    } known[] = {{"bfloat16", KVPI_DTYPE_BF16},
                 {"float16", KVPI_DTYPE_F16},
                 {"half", KVPI_DTYPE_F16},
                 {"float32", KVPI_DTYPE_F32},
                 {"float", KVPI_DTYPE_F32}};
    const char *key = "torch_dtype";
    const json_t *value = kvpi_entries_get_outer(reader, key);
    if (value == NULL)
        value = kvpi_entries_get_outer(reader, key = "dtype");
    if (value == NULL)
        return 0;
    const char *name = json_string_value(value);
    if (name == NULL)
        return kvpi_entries_wrong(reader, "%s is %s, expected a string", key,
                                  kvpi_json_kind(value));
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) {
            model->kv_dtype = model->weights_dtype = known[i].dtype;
            return 0;
        }
    return kvpi_entries_wrong(reader, "%s is \"%.60s\", expected bfloat16, float16 or float32", key,
                              name);
}

/* How the weights were quantised; a way that is not known leaves them unknown. */
static void read_quantization(const kvpi_entries *reader, kvpi_model *model)
{
    const json_t *object = kvpi_entries_get_outer(reader, "quantization_config");
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    json_int_t bits = json_integer_value(json_object_get(object, "bits"));
    if (json_is_true(json_object_get(object, "load_in_4bit")))
        bits = 4;
    else if (json_is_true(json_object_get(object, "load_in_8bit")))
        bits = 8;
    if (object == NULL)
        return;
    if (method != NULL && (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0))
        model->weights_dtype = KVPI_DTYPE_FP8;
    else if (method != NULL && strcmp(method, "mxfp4") == 0)
        model->weights_dtype = KVPI_DTYPE_MXFP4;
    else if (bits == 4 || bits == 8)
        model->weights_dtype = bits == 4 ? KVPI_DTYPE_INT4 : KVPI_DTYPE_INT8;
    else
        snprintf(model->unknown_dtype, sizeof model->unknown_dtype,
                 "quantization_config is of the method \"%.40s\"", method != NULL ? method : "?");
}

/* ----------------------------------------------------------------------------------- the file */

/* Which layers keep what. */
static int read_kept(const kvpi_entries *reader, const kvpi_recurrent *recurrent, kvpi_model *model)
{
    return recurrent != NULL ? kvpi_recurrent_read(recurrent, reader, model)
                             : read_windows(reader, &model->attention, &model->chunked);
}

static int read_model(const kvpi_entries *reader, kvpi_model *model)
{
    kvpi_models_attention *a = &model->attention;
    const kvpi_recurrent *recurrent = kvpi_recurrent_find(reader);
    if (check_known(reader, recurrent) != 0 ||
        kvpi_entries_need_whole(reader, "num_hidden_layers", KVPI_MODELS_MAX_LAYERS,
                                &a->n_layers) != 0 ||
        read_mlp(reader, &model->mlp) != 0 || read_latent(reader, &model->latent) != 0 ||
        read_heads(reader, a) != 0 || read_head_dim(reader, model, a) != 0 ||
        read_kept(reader, recurrent, model) != 0 || read_experts(reader, model) != 0 ||
        read_dtype(reader, model) != 0)
        return -1;
    note_unknown(reader, model);
    read_quantization(reader, model);
    return 0;
}

/* Finds the language model's part and its family. */
static int enter(kvpi_entries *reader)
{
    static const family none;
    static const struct {
        const char *key, *part;
    } parts[] = {{"text_config", "text_config."},
                 {"llm_config", "llm_config."},
                 {"language_config", "language_config."}};
    if (!json_is_object(reader->root))
        return kvpi_entries_wrong(reader, "is %s, expected an object",
                                  kvpi_json_kind(reader->root));
    reader->object = reader->root;
    for (size_t i = 0; i < COUNT(parts) && reader->object == reader->root; i++) {
        const json_t *inner = json_object_get(reader->root, parts[i].key);
        if (!json_is_object(inner))
            continue;
        reader->object = inner;
        reader->part = parts[i].part;
    }
    reader->family = &none;
    for (size_t i = 0; i < COUNT(families); i++)
        if (strcmp(families[i].model_type, kvpi_entries_model_type(reader)) == 0)
            reader->family = &families[i];
    return 0;
}

static int parse(kvpi_entries *reader, const char *bytes, size_t n_bytes, kvpi_model *out)
{
    json_error_t problem;
    kvpi_model model = {.name = reader->name};
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        return kvpi_entries_wrong(reader, "not valid JSON in line %d: %s", problem.line,
                                  problem.text);
    reader->root = root;
    int result = enter(reader);
    if (result == 0)
        result = read_model(reader, &model);
    json_decref(root);
    if (result == 0)
        *out = model;
    return result;
}

/* Gives the whole file, for the caller to free; NULL with the error recorded. */
static char *read_all(const kvpi_entries *reader, FILE *file, size_t *n_bytes)
{
    char *bytes = malloc(MAX_FILE_BYTES + 1);
    if (bytes == NULL) {
        kvpi_entries_wrong(reader, "out of memory");
        return NULL;
    }
    errno = 0;
    *n_bytes = fread(bytes, 1, MAX_FILE_BYTES + 1, file);
    if (ferror(file))
        kvpi_entries_wrong(reader, "cannot read: %s", strerror(errno));
    else if (*n_bytes > MAX_FILE_BYTES)
        kvpi_entries_wrong(reader, "larger than %u MiB, which no config.json is",
                           MAX_FILE_BYTES >> 20);
    else if (*n_bytes == 0)
        kvpi_entries_wrong(reader, "the file is empty");
    else
        return bytes;
    free(bytes);
    return NULL;
}

int kvpi_models_read(const char *path, kvpi_model *out, kvpi_models_error *error)
{
    kvpi_entries reader = {
        .name = strcmp(path, "-") == 0 ? "standard input" : path, .part = "", .error = error};
    kvpi_budget budget = {0};
    kvpi_input input;
    size_t n_bytes = 0;
    if (!kvpi_input_open(&input, path, true))
        return kvpi_entries_wrong(&reader, "%s", input.why);
    char *bytes = read_all(&reader, input.file, &n_bytes);
    kvpi_input_close(&input);
    if (bytes == NULL)
        return -1;
    budget.read = budget.used = n_bytes;
    kvpi_budget_json(&budget);
    int result = parse(&reader, bytes, n_bytes, out);
    kvpi_budget_json_end();
    if (budget.is_over)
        result = kvpi_entries_wrong(
            &reader, "needs more memory than %" PRIu64 " MiB, which no config.json does",
            kvpi_budget_limit(&budget) >> 20);
    free(bytes);
    return result;
}

/* Reads a model's shape from a Hugging Face config.json.
 *
 * Owns the way from the file to kinds of layers: what each layer does (layers.c), how wide it is
 * (widths.c), what its state is (recurrent.c), then one kind for all layers that keep the same.
 * models_keys.c refuses what it would get wrong. What only weights need may be missing or wrong
 * (experts.c): `unknown` says so, and the KV figures still hold. Data types are here, too.
 *
 * Python writes Infinity and NaN, which JSON does not have. They are read as values that no number
 * may be.
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
#include "tool/models/config/config.h"
#include "tool/models/config/experts.h"
#include "tool/models/config/family.h"
#include "tool/models/config/models_keys.h"
#include "tool/models/config/widths.h"
#include "tool/requests/json_kind.h"

/* A config.json is a few kilobytes; one with a rope factor per frequency, or a map of labels, a few
 * hundred. */
#define MAX_FILE_BYTES (16u << 20)

#define COUNT(array) (sizeof(array) / sizeof *(array))

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
            model->kv_dtype = model->weights_dtype = model->activations_dtype = known[i].dtype;
            return 0;
        }
    return kvpi_entries_wrong(reader, "%s is \"%.60s\", expected bfloat16, float16 or float32", key,
                              name);
}

/* KV that the checkpoint has scales for: compressed-tensors' way to say it, or ModelOpt's. */
static void read_kv_scheme(const kvpi_entries *reader, kvpi_model *model)
{
    const json_t *object = kvpi_entries_get_outer(reader, "quantization_config");
    const json_t *scheme = json_object_get(object, "kv_cache_scheme");
    const char *algorithm = json_string_value(json_object_get(object, "kv_cache_quant_algo"));
    const char *type = json_string_value(json_object_get(scheme, "type"));
    const json_int_t bits = json_integer_value(json_object_get(scheme, "num_bits"));
    const bool is_float = type != NULL && strcmp(type, "float") == 0;
    const bool is_whole = type != NULL && strcmp(type, "int") == 0;
    if (!kvpi_entries_is_set(scheme)) {
        if (algorithm != NULL && strcmp(algorithm, "FP8") == 0)
            model->kv_dtype = KVPI_DTYPE_FP8;
        else if (algorithm != NULL && strcmp(algorithm, "NVFP4") == 0)
            model->kv_dtype = KVPI_DTYPE_NVFP4;
        return;
    }
    if (bits == 8 && (is_float || is_whole))
        model->kv_dtype = is_float ? KVPI_DTYPE_FP8 : KVPI_DTYPE_INT8;
    else if (bits == 4 && is_float &&
             json_integer_value(json_object_get(scheme, "group_size")) == 16)
        model->kv_dtype = KVPI_DTYPE_NVFP4;
    else
        snprintf(model->unknown_kv_dtype, sizeof model->unknown_kv_dtype,
                 "quantization_config.kv_cache_scheme is not of 8 bits, or nvfp4");
}

/* Bits and type of the weights, as compressed-tensors and ModelOpt have them: of the first group
 * that has some. */
static json_int_t read_groups(const json_t *object, bool *is_float)
{
    json_t *groups = json_object_get(object, "config_groups");
    for (void *at = json_object_iter(groups); at != NULL; at = json_object_iter_next(groups, at)) {
        const json_t *weights = json_object_get(json_object_iter_value(at), "weights");
        const char *type = json_string_value(json_object_get(weights, "type"));
        *is_float = type != NULL && strcmp(type, "float") == 0;
        if (weights != NULL)
            return json_integer_value(json_object_get(weights, "num_bits"));
    }
    return 0;
}

/* DeepSeek V4: its fp8 files have experts of 4 bits. */
static bool has_fp4_experts(const kvpi_entries *reader, const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "expert_dtype"));
    if (type == NULL)
        type = json_string_value(kvpi_entries_get_outer(reader, "expert_dtype"));
    return type != NULL && strcmp(type, "fp4") == 0;
}

/* How the weights were quantised; a way that is not known leaves them unknown. */
static void read_quantization(const kvpi_entries *reader, kvpi_model *model)
{
    const json_t *object = kvpi_entries_get_outer(reader, "quantization_config");
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    const char *algorithm = json_string_value(json_object_get(object, "quant_algo"));
    json_int_t bits = json_integer_value(json_object_get(object, "bits"));
    bool is_float = false;
    if (object == NULL)
        return;
    if (bits == 0)
        bits = read_groups(object, &is_float);
    if (json_is_true(json_object_get(object, "load_in_4bit")))
        bits = 4;
    else if (json_is_true(json_object_get(object, "load_in_8bit")))
        bits = 8;
    if (algorithm != NULL && strcmp(algorithm, "NVFP4") == 0)
        bits = 4, is_float = true;
    if ((method != NULL && (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0)) ||
        (algorithm != NULL && strcmp(algorithm, "FP8") == 0))
        model->weights_dtype = has_fp4_experts(reader, object) ? KVPI_DTYPE_MXFP4 : KVPI_DTYPE_FP8;
    else if (method != NULL && strcmp(method, "mxfp4") == 0)
        model->weights_dtype = KVPI_DTYPE_MXFP4;
    else if (bits == 4)
        model->weights_dtype = is_float ? KVPI_DTYPE_NVFP4 : KVPI_DTYPE_INT4;
    else if (bits == 8)
        model->weights_dtype = is_float ? KVPI_DTYPE_FP8 : KVPI_DTYPE_INT8;
    else
        snprintf(model->unknown_dtype, sizeof model->unknown_dtype,
                 "quantization_config is of the method \"%.40s\"", method != NULL ? method : "?");
}

/* ---------------------------------------------------------------------------------------- kinds */

/* Matrices of one layer's attention: query, key, value, output. */
static uint64_t count_attention(const kvpi_model *model, const kvpi_width *w, uint32_t q_dim)
{
    const kvpi_models_latent *l = &model->latent;
    uint64_t hidden = model->mlp.hidden, q_heads = w->q_heads;
    if (w->kv_rank == 0)
        return hidden * (q_heads * ((uint64_t)q_dim + w->v_dim) +
                         w->kv_heads * ((uint64_t)w->k_dim + w->v_dim));
    uint64_t q_width = q_heads * (w->nope + w->rope);
    uint64_t query = l->q_rank == 0 ? hidden * q_width : (hidden + q_width) * l->q_rank;
    uint64_t down = hidden * (w->kv_rank + w->rope);
    uint64_t up = (uint64_t)w->kv_rank * q_heads * (w->nope + l->v_dim);
    return query + down + up + q_heads * l->v_dim * hidden;
}

/* V4's one vector is K and V, its output of low rank; V3.2's indexer and V4's are alike. */
static uint64_t count_compressed(const kvpi_entries *reader, const kvpi_model *model,
                                 const kvpi_width *w, uint32_t entry_tokens)
{
    uint32_t groups = 1, rank = 0;
    const uint64_t hidden = model->mlp.hidden, dim = w->kv_rank + w->rope, width = w->q_heads * dim;
    if (kvpi_entries_read_whole(reader, "o_groups", 1, KVPI_MODELS_MAX_HEADS, &groups) != 0 ||
        kvpi_entries_read_whole(reader, "o_lora_rank", 1, KVPI_MODELS_MAX_HIDDEN, &rank) != 0)
        return 0;
    return (hidden + width) * model->latent.q_rank + hidden * dim +
           rank * (width + groups * hidden) +
           (entry_tokens > 1 ? hidden * dim * (entry_tokens == 4 ? 4 : 2) : 0);
}

static uint64_t count_indexer(const kvpi_entries *reader, const kvpi_model *model, uint32_t dim)
{
    uint32_t heads = 0;
    const uint64_t from = model->latent.q_rank > 0 ? model->latent.q_rank : model->mlp.hidden;
    if (kvpi_entries_read_whole(reader, "index_n_heads", 1, KVPI_MODELS_MAX_HEADS, &heads) != 0)
        return 0;
    return from * heads * dim + (uint64_t)model->mlp.hidden * (dim + heads);
}

/* What kinds are made of. */
typedef struct parts {
    kvpi_layers layers;
    kvpi_widths widths;
    kvpi_recurrence recurrence;
    bool gated; /* a second query matrix is a gate */
} parts;

static kvpi_models_kind attention_kind(const kvpi_width *w, bool windowed, const parts *of)
{
    const bool scaled = of->widths.index_dim > 0 || of->layers.compressed;
    kvpi_models_kind kind = {.window_tokens = windowed ? w->window : 0};
    if (w->kv_rank > 0) {
        kind.keeps = KVPI_KEEPS_LATENT;
        kind.latent = w->kv_rank;
        kind.rope = w->rope;
        if (of->layers.compressed)
            kind.scale_bytes = of->layers.recomputed ? w->kv_rank / 32 : w->kv_rank / 64 + 1;
        else if (scaled)
            kind.scale_bytes = (w->kv_rank + 127) / 128 * 4;
        return kind;
    }
    kind.keeps = KVPI_KEEPS_HEADS;
    kind.kv_heads = w->kv_heads;
    kind.k_dim = w->k_dim;
    kind.v_dim = w->v_dim;
    return kind;
}

/* Adds what one layer keeps; `only` of what it does, so that kinds come in one order. */
static bool add_layer(const parts *of, uint32_t i, const kvpi_width *w, uint8_t only,
                      kvpi_model *model)
{
    const kvpi_layers *layers = &of->layers;
    const uint8_t does = layers->does[i];
    const bool reads = (does & KVPI_LAYER_READS) != 0;
    const uint32_t entries = layers->entries[i], index = of->widths.index_tokens;
    kvpi_models_kind kind = attention_kind(w, (only & ~KVPI_LAYER_FULL) != 0, of);
    kind.n_layers = layers->times[i];
    if (only == KVPI_LAYER_FULL && layers->compressed) { /* entries beside a window */
        kind.n_layers = entries > 0 && !reads ? kind.n_layers : 0;
        kind.entry_tokens = entries > 1 ? entries : 0;
        return kvpi_models_add(model, &kind);
    }
    if ((does & only) == 0)
        return true;
    switch (only) {
    case KVPI_LAYER_INDEX:
        kind = (kvpi_models_kind){.keeps = KVPI_KEEPS_INDEX,
                                  .n_layers = kind.n_layers,
                                  .index_dim = of->widths.index_dim,
                                  .entry_tokens = entries > 1 ? entries
                                                  : index > 1 ? index
                                                              : 0};
        kind.scale_bytes = of->widths.index_scaled ? (kind.index_dim + 127) / 128 * 4 : 0;
        break;
    case KVPI_LAYER_STATE:
        kind = (kvpi_models_kind){
            .keeps = KVPI_KEEPS_STATE, .n_layers = kind.n_layers, .state = of->recurrence.state};
        if (of->recurrence.of_kv) {
            kind.state.heads = w->kv_heads;
            kind.state.conv_of_head = w->k_dim + w->v_dim;
        }
        break;
    default:
        kind.chunked = only == KVPI_LAYER_CHUNK;
        kind.recomputed = layers->recomputed;
        kind.n_layers = reads && !layers->compressed ? 0 : kind.n_layers;
        break;
    }
    return kvpi_models_add(model, &kind);
}

/* What a compressor has seen of an entry that is not complete, and of the one before: K and V, or
 * gates, in f32. */
static bool add_inputs(const parts *of, kvpi_model *model)
{
    const kvpi_layers *layers = &of->layers;
    const uint32_t dim = of->widths.full.kv_rank + of->widths.full.rope;
    for (uint32_t i = 0; i < layers->n; i++) {
        const uint32_t tokens = layers->entries[i];
        const kvpi_models_kind kind = {
            .keeps = KVPI_KEEPS_INPUTS,
            .n_layers =
                tokens > 1 && (layers->does[i] & KVPI_LAYER_READS) == 0 ? layers->times[i] : 0,
            .window_tokens = tokens == 4 ? 8 : tokens,
            .k_dim = tokens == 4 ? 4 * dim : 2 * dim};
        if (!kvpi_models_add(model, &kind))
            return false;
    }
    return true;
}

static void count_mixers(const kvpi_entries *reader, const parts *of, uint32_t i,
                         const kvpi_width *w, kvpi_model *model)
{
    const uint8_t does = of->layers.does[i];
    if (of->layers.compressed)
        model->mixers += count_compressed(reader, model, w, of->layers.entries[i]);
    else if ((does & KVPI_LAYER_ATTENDS) != 0)
        model->mixers += count_attention(model, w, of->gated ? 2 * w->k_dim : w->k_dim);
    if ((does & KVPI_LAYER_STATE) != 0)
        model->mixers += of->recurrence.parameters;
    if ((does & KVPI_LAYER_INDEX) != 0)
        model->mixers += count_indexer(reader, model, of->widths.index_dim);
}

static int add_kinds(const kvpi_entries *reader, const parts *of, kvpi_model *model)
{
    static const uint8_t order[] = {KVPI_LAYER_FULL, KVPI_LAYER_WINDOW, KVPI_LAYER_CHUNK,
                                    KVPI_LAYER_INDEX, KVPI_LAYER_STATE};
    kvpi_width w;
    bool fits = true;
    for (size_t k = 0; k < COUNT(order); k++)
        for (uint32_t i = 0; i < of->layers.n; i++) {
            if (kvpi_widths_of_layer(reader, &of->widths, &of->layers, i, &w) != 0)
                return -1;
            fits = fits && add_layer(of, i, &w, order[k], model);
            if (k == 0)
                count_mixers(reader, of, i, &w, model);
        }
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if ((model->kinds[i].entry_tokens & (model->kinds[i].entry_tokens - 1)) != 0)
            return kvpi_entries_wrong(reader,
                                      "an entry is of %" PRIu32 " tokens, expected a power of two",
                                      model->kinds[i].entry_tokens);
    if (fits && (!of->layers.compressed || add_inputs(of, model)))
        return 0;
    return kvpi_entries_wrong(reader, "layers keep more than %d different things",
                              KVPI_MODELS_MAX_KINDS);
}

/* ----------------------------------------------------------------------------------- the file */

static int read_hidden(const kvpi_entries *reader, uint32_t *hidden)
{
    static const char *const keys[] = {"hidden_size", "n_embd",  "d_model",
                                       "embed_dim",   "emb_dim", NULL};
    return kvpi_entries_read_whole(reader, kvpi_entries_name(reader, keys), 1,
                                   KVPI_MODELS_MAX_HIDDEN, hidden);
}

/* What only the matrices of latent attention need. */
static int read_latent(const kvpi_entries *reader, kvpi_models_latent *latent)
{
    return kvpi_entries_read_whole(reader, "q_lora_rank", 1, KVPI_MODELS_MAX_LATENT,
                                   &latent->q_rank) != 0 ||
                   kvpi_entries_read_whole(reader, "qk_nope_head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM,
                                           &latent->nope_dim) != 0
               ? -1
               : kvpi_entries_read_whole(reader, "v_head_dim", 1, KVPI_MODELS_MAX_HEAD_DIM,
                                         &latent->v_dim);
}

static int read_parts(const kvpi_entries *reader, kvpi_model *model, parts *of)
{
    const kvpi_recurrent *recurrent = kvpi_recurrent_find(reader);
    of->gated = reader->family->gated_attention;
    if (read_hidden(reader, &model->mlp.hidden) != 0 || kvpi_keys_check(reader, recurrent) != 0 ||
        kvpi_layers_read(reader, recurrent, &of->layers) != 0 ||
        kvpi_widths_read(reader, &of->layers, model->mlp.hidden, &of->widths) != 0 ||
        kvpi_keys_check_strange(reader, recurrent, &of->widths, model) != 0 ||
        read_latent(reader, &model->latent) != 0 ||
        kvpi_entries_read_bool(reader, "attn_output_gate", &of->gated) != 0)
        return -1;
    if (kvpi_layers_count(&of->layers, KVPI_LAYER_STATE) == 0)
        return 0;
    return kvpi_recurrent_read(recurrent, reader, model, &of->recurrence);
}

static int read_model(const kvpi_entries *reader, kvpi_model *model)
{
    parts *of = calloc(1, sizeof *of);
    if (of == NULL)
        return kvpi_entries_wrong(reader, "out of memory");
    int status = read_parts(reader, model, of);
    model->q_heads = of->widths.full.q_heads;
    for (uint32_t i = 0; i < of->layers.n; i++)
        model->n_layers += of->layers.times[i];
    model->n_passes = status == 0 && of->layers.times[0] == of->layers.times[of->layers.n - 1]
                          ? of->layers.times[0]
                          : 1;
    if (status == 0)
        status = add_kinds(reader, of, model);
    if (status == 0)
        status = read_dtype(reader, model);
    if (status == 0) {
        if (of->layers.recomputed) /* DeepSeek V4.1 is trained for it */
            model->kv_dtype = KVPI_DTYPE_NVFP4;
        model->n_memory_layers =
            (uint32_t)json_array_size(kvpi_entries_get(reader, "engram_layer_ids"));
        kvpi_experts_read(reader, &of->layers, model);
        read_quantization(reader, model);
        read_kv_scheme(reader, model);
    }
    free(of);
    return status;
}

/* Finds the language model's part and its family. */
static int enter(kvpi_entries *reader)
{
    static const struct {
        const char *outer, *key, *part;
    } parts_of[] = {{NULL, "text_config", "text_config."},
                    {NULL, "llm_config", "llm_config."},
                    {NULL, "language_config", "language_config."},
                    {"thinker_config", "text_config", "thinker_config.text_config."},
                    {"llm_config", "text_config", "llm_config.text_config."}};
    if (!json_is_object(reader->root)) {
        kvpi_entries_wrong(reader, "is %s, expected an object", kvpi_json_kind(reader->root));
        return -1;
    }
    reader->object = reader->root;
    for (size_t i = 0; i < COUNT(parts_of) && reader->object == reader->root; i++) {
        const json_t *outer = parts_of[i].outer == NULL
                                  ? reader->root
                                  : json_object_get(reader->root, parts_of[i].outer);
        const json_t *inner = json_object_get(outer, parts_of[i].key);
        if (!json_is_object(inner))
            continue;
        reader->object = inner;
        reader->part = parts_of[i].part;
    }
    reader->family = kvpi_family_of(kvpi_entries_model_type(reader));
    return 0;
}

/* Replaces Infinity, -Infinity and NaN outside strings by a text of as many bytes. */
static void replace_infinite(char *bytes, size_t n_bytes)
{
    bool in_text = false;
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] == '"')
            in_text = !in_text;
        else if (in_text && bytes[i] == '\\')
            i++;
        else if (!in_text && n_bytes - i >= 8 && memcmp(&bytes[i], "Infinity", 8) == 0) {
            memcpy(&bytes[i], "\"\x7f\"     ", 8);
            if (i > 0 && bytes[i - 1] == '-')
                bytes[i - 1] = ' ';
            i += 7;
        } else if (!in_text && n_bytes - i >= 3 && memcmp(&bytes[i], "NaN", 3) == 0) {
            memcpy(&bytes[i], "\"\x7f\"", 3);
            i += 2;
        }
    }
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

int kvpi_models_parse(const char *name, const char *text, size_t n_bytes, kvpi_model *out,
                      kvpi_models_error *error)
{
    kvpi_entries reader = {.name = name, .part = "", .error = error};
    return parse(&reader, text, n_bytes, out);
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
    replace_infinite(bytes, n_bytes);
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

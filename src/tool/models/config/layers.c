/* Owns what the keys of a config.json say about each layer.
 *
 * The number of layers is num_hidden_layers, or a name that it has in older files, or the length of
 * a list of layers. LongCat's layers attend twice, and are two layers here.
 *
 * What a layer does, first rule that applies:
 *
 *    1  a list of names, one a layer: layer_types, layers_block_type, mixer_types,
 *       attention_layers; block_types, repeated
 *    2  hybrid_override_pattern, a letter a layer: M a state, * attention, - and E neither
 *    3  a list of numbers, one a layer: hybrid_layer_pattern (1 a window), attn_type_list (0 a
 *       state)
 *    4  compress_ratios: a window, and entries of so many tokens; block_configs, one a layer: no_op
 *       and replace_with_linear attend to nothing
 *    5  numbers of the layers with attention: full_attn_idxs,
 *       linear_attn_config.full_attn_layers (from 1 on), attn_layer_indices; hybrid_layer_ids,
 *       which have a state, too; or of those with a window: local_layer_ids
 *    6  a period: attn_layer_period and attn_layer_offset; full_attention_interval,
 *       layer_group_size, global_attn_every_n_layers: the last layer of each so many
 *    7  Falcon-H1: attention and a state in all layers
 *    8  attention_chunk_size: the layers with rotary positions, those with 1 in no_rope_layers;
 *       else all but every no_rope_layer_interval-th. They attend in chunks of that size
 *    9  use_sliding_window is false, or a Qwen does not set it: no window
 *   10  the window's size is null, or missing without a default: no window
 *   11  sliding_window_pattern p, or layer_switch p: all layers but every p-th
 *   12  max_window_layers m beside use_sliding_window: the layers from m on
 *   13  all layers have a window
 */
#include "tool/models/config/layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/models/config/family.h"
#include "tool/requests/json_kind.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ------------------------------------------------------------------------------- by their names */

enum { HAS_ENTRIES = 64 };

static const struct {
    const char *name;
    uint8_t does;
} names[] = {
    {"full_attention", KVPI_LAYER_FULL},
    {"attention", KVPI_LAYER_FULL},
    {"global", KVPI_LAYER_FULL},
    {"minicpm4", KVPI_LAYER_FULL},
    {"sliding_attention", KVPI_LAYER_WINDOW},
    {"local", KVPI_LAYER_WINDOW},
    {"chunked_attention", KVPI_LAYER_CHUNK},
    {"indexed_attention", KVPI_LAYER_FULL | KVPI_LAYER_INDEX},
    {"deepseek_sparse_attention", KVPI_LAYER_FULL | KVPI_LAYER_INDEX},
    {"qwen_sparse_attention", KVPI_LAYER_FULL | KVPI_LAYER_INDEX},
    {"minimax_m3_sparse", KVPI_LAYER_FULL | KVPI_LAYER_INDEX},
    {"compressed_sparse_attention", KVPI_LAYER_WINDOW | KVPI_LAYER_INDEX | HAS_ENTRIES},
    {"heavily_compressed_attention", KVPI_LAYER_WINDOW | HAS_ENTRIES},
    {"linear_attention", KVPI_LAYER_STATE},
    {"mamba", KVPI_LAYER_STATE},
    {"mamba2", KVPI_LAYER_STATE},
    {"conv", KVPI_LAYER_STATE},
    {"recurrent", KVPI_LAYER_STATE},
    {"lightning", KVPI_LAYER_STATE},
    {"lightning-attn", KVPI_LAYER_STATE},
    {"hybrid", KVPI_LAYER_FULL | KVPI_LAYER_STATE},
    {"hybrid_sliding", KVPI_LAYER_WINDOW | KVPI_LAYER_STATE},
    {"mlp", 0},
    {"moe", 0},
};

/* V4's rates by kind of layer, as transformers 5 writes them. */
static int read_rate(const kvpi_entries *reader, const char *name, uint16_t *out)
{
    const kvpi_entries inside = {
        reader->name,      reader->root,   kvpi_entries_get(reader, "compress_rates"),
        "compress_rates.", reader->family, reader->error};
    uint32_t rate = strcmp(name, "compressed_sparse_attention") == 0 ? 4 : 128;
    if (inside.object != NULL &&
        kvpi_entries_read_whole(&inside, name, 1, KVPI_MODELS_MAX_ENTRY, &rate) != 0)
        return -1;
    *out = (uint16_t)rate;
    return 0;
}

static int read_name(const kvpi_entries *reader, const kvpi_recurrent *recurrent, const char *key,
                     const json_t *value, uint32_t i, kvpi_layers *out)
{
    const char *name = json_string_value(value);
    size_t k = 0;
    if (name == NULL)
        return kvpi_entries_wrong(reader, "%s%s[%" PRIu32 "] is not a string", reader->part, key,
                                  i);
    while (k < COUNT(names) && strcmp(names[k].name, name) != 0)
        k++;
    if (k == COUNT(names))
        return kvpi_entries_wrong(reader,
                                  "%s%s[%" PRIu32 "] is \"%.60s\", a kind of layer that this "
                                  "command does not know",
                                  reader->part, key, i, name);
    if ((names[k].does & KVPI_LAYER_STATE) != 0 && recurrent == NULL)
        return kvpi_entries_wrong(reader,
                                  "%s%s[%" PRIu32 "] is \"%.60s\", and no key that this command "
                                  "knows says what its state is",
                                  reader->part, key, i, name);
    out->does[i] = names[k].does & (uint8_t)~HAS_ENTRIES;
    if (names[k].does == KVPI_LAYER_FULL && strcmp(key, "block_types") == 0)
        out->does[i] = KVPI_LAYER_WINDOW; /* Griffin's attention is local */
    out->compressed = out->compressed || (names[k].does & HAS_ENTRIES) != 0;
    return (names[k].does & HAS_ENTRIES) != 0 ? read_rate(reader, name, &out->entries[i]) : 0;
}

static int read_names(const kvpi_entries *reader, const kvpi_recurrent *recurrent, const char *key,
                      kvpi_layers *out)
{
    const bool repeated = strcmp(key, "block_types") == 0;
    const json_t *list = kvpi_entries_need_array(reader, key, repeated ? 1 : out->n, repeated);
    if (list == NULL)
        return -1;
    for (uint32_t i = 0; i < out->n; i++)
        if (read_name(reader, recurrent, key, json_array_get(list, i % json_array_size(list)), i,
                      out) != 0)
            return -1;
    return 0;
}

/* ----------------------------------------------------------------------------- by their numbers */

/* A string with a letter for each layer. */
static int read_letters(const kvpi_entries *reader, kvpi_layers *out)
{
    static const char key[] = "hybrid_override_pattern";
    const char *pattern = json_string_value(kvpi_entries_get(reader, key));
    if (pattern == NULL)
        return kvpi_entries_wrong(reader, "%s%s is %s, expected a string", reader->part, key,
                                  kvpi_json_kind(kvpi_entries_get(reader, key)));
    for (size_t i = 0; pattern[i] != '\0'; i++) {
        if (strchr("M*-E", pattern[i]) == NULL)
            return kvpi_entries_wrong(reader, "%s%s has '%c', expected M, *, - or E", reader->part,
                                      key, pattern[i]);
        if (i < out->n)
            out->does[i] = pattern[i] == 'M'   ? KVPI_LAYER_STATE
                           : pattern[i] == '*' ? KVPI_LAYER_FULL
                                               : 0;
    }
    if (strlen(pattern) != out->n)
        return kvpi_entries_wrong(reader, "%s%s tells of %zu layers, num_hidden_layers is %" PRIu32,
                                  reader->part, key, strlen(pattern), out->n);
    return 0;
}

/* A list of 0 and 1, or of whole numbers up to `max`. */
static int read_digit(const kvpi_entries *reader, const char *key, size_t i, json_int_t max,
                      json_int_t *out)
{
    const json_t *value = json_array_get(kvpi_entries_get(reader, key), i);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out <= max)
        return 0;
    return max == 1 ? kvpi_entries_wrong(reader, "%s%s[%zu] is not 0 or 1", reader->part, key, i)
                    : kvpi_entries_wrong(reader,
                                         "%s%s[%zu] is no whole number from 0 to "
                                         "%" JSON_INTEGER_FORMAT,
                                         reader->part, key, i, max);
}

static int read_digits(const kvpi_entries *reader, const char *key, uint8_t zero, uint8_t one,
                       kvpi_layers *out)
{
    json_int_t digit = 0;
    if (kvpi_entries_need_array(reader, key, out->n, false) == NULL)
        return -1;
    for (uint32_t i = 0; i < out->n; i++) {
        if (read_digit(reader, key, i, 1, &digit) != 0)
            return -1;
        out->does[i] = digit == 0 ? zero : one;
    }
    return 0;
}

/* DeepSeek V4: drafts' layers follow. */
static int read_ratios(const kvpi_entries *reader, kvpi_layers *out)
{
    static const char key[] = "compress_ratios";
    json_int_t ratio = 0;
    if (kvpi_entries_need_array(reader, key, out->n, true) == NULL)
        return -1;
    out->compressed = true;
    for (uint32_t i = 0; i < out->n; i++) {
        if (read_digit(reader, key, i, KVPI_MODELS_MAX_ENTRY, &ratio) != 0)
            return -1;
        out->entries[i] = (uint16_t)ratio;
        out->does[i] = ratio == 4 ? KVPI_LAYER_WINDOW | KVPI_LAYER_INDEX : KVPI_LAYER_WINDOW;
    }
    return 0;
}

/* Layers of which a search left out some: Nemotron's. */
static int read_blocks(const kvpi_entries *reader, kvpi_layers *out)
{
    static const char key[] = "block_configs";
    const json_t *list = kvpi_entries_need_array(reader, key, out->n, false);
    if (list == NULL)
        return -1;
    for (uint32_t i = 0; i < out->n; i++) {
        const json_t *attention = json_object_get(json_array_get(list, i), "attention");
        if (!json_is_object(attention))
            return kvpi_entries_wrong(reader, "%s%s[%" PRIu32 "] has no \"attention\"",
                                      reader->part, key, i);
        out->does[i] = json_is_true(json_object_get(attention, "no_op")) ||
                               json_is_true(json_object_get(attention, "replace_with_linear"))
                           ? 0
                           : KVPI_LAYER_FULL;
    }
    return 0;
}

/* A list of the numbers of some layers, counted from `first` on. */
static int read_numbers(const kvpi_entries *reader, const char *key, const json_t *list,
                        uint32_t first, uint8_t inside, uint8_t outside, kvpi_layers *out)
{
    if (!json_is_array(list) || json_array_size(list) > out->n)
        return kvpi_entries_wrong(reader, "%s%s is no array of at most %" PRIu32 " layers",
                                  reader->part, key, out->n);
    memset(out->does, outside, out->n);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t at = json_integer_value(value) - first;
        if (!json_is_integer(value) || at < 0 || at >= out->n)
            return kvpi_entries_wrong(reader, "%s%s[%zu] is no layer of %" PRIu32, reader->part,
                                      key, i, out->n);
        out->does[at] = inside;
    }
    return 0;
}

/* The layer at `offset` of each `period` attends. */
static int read_period(const kvpi_entries *reader, const char *key, const char *offset_key,
                       uint8_t others, uint32_t period, kvpi_layers *out)
{
    if (kvpi_entries_read_whole(reader, key, 1, KVPI_MODELS_MAX_LAYERS, &period) != 0)
        return -1;
    uint32_t offset = period - 1;
    if (offset_key != NULL &&
        kvpi_entries_read_whole(reader, offset_key, 0, period - 1, &offset) != 0)
        return -1;
    for (uint32_t i = 0; i < out->n; i++)
        out->does[i] = i % period == offset ? KVPI_LAYER_FULL : others;
    return 0;
}

/* -------------------------------------------------------------------------------------- windows */

/* Rule 8. */
static int read_chunks(const kvpi_entries *reader, kvpi_layers *out)
{
    static const char key[] = "no_rope_layers";
    uint32_t interval = reader->family->interval;
    if (kvpi_entries_read_whole(reader, "no_rope_layer_interval", 1, KVPI_MODELS_MAX_LAYERS,
                                &interval) != 0)
        return -1;
    if (kvpi_entries_is_set(kvpi_entries_get(reader, key)))
        return read_digits(reader, key, KVPI_LAYER_FULL, KVPI_LAYER_CHUNK, out);
    if (interval == 0)
        return kvpi_entries_wrong(reader,
                                  "has \"%sattention_chunk_size\", and nothing says which layers "
                                  "it is of: layer_types, no_rope_layers",
                                  reader->part);
    return read_period(reader, "no_rope_layer_interval", NULL, KVPI_LAYER_CHUNK, interval, out);
}

static bool has_chunks(const kvpi_entries *reader)
{
    const json_t *chunk = json_object_get(reader->object, "attention_chunk_size");
    return chunk != NULL ? !json_is_null(chunk) : reader->family->chunk > 0;
}

/* Rules 11 to 13. */
static int read_window_layers(const kvpi_entries *reader, bool use_given, kvpi_layers *out)
{
    uint32_t pattern = reader->family->pattern, from = 0;
    if (kvpi_entries_read_whole(reader, "_sliding_window_pattern", 1, out->n, &pattern) != 0 ||
        kvpi_entries_read_whole(reader, "layer_switch", 1, out->n, &pattern) != 0 ||
        kvpi_entries_read_whole(reader, "sliding_window_pattern", 1, out->n, &pattern) != 0)
        return -1;
    if (pattern == 0 && use_given &&
        kvpi_entries_read_whole(reader, "max_window_layers", 0, KVPI_MODELS_MAX_LAYERS, &from) != 0)
        return -1;
    for (uint32_t i = 0; i < out->n; i++)
        if (pattern > 0 ? (i + 1) % pattern != 0 : i >= from)
            out->does[i] = KVPI_LAYER_WINDOW;
    return 0;
}

/* Rules 9 and 10: whether the window, which may be a leftover, is in force. */
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

static int read_windows(const kvpi_entries *reader, kvpi_layers *out)
{
    bool use_given = false, windowed = false;
    memset(out->does, KVPI_LAYER_FULL, out->n);
    if (has_chunks(reader))
        return read_chunks(reader, out);
    if (has_window(reader, &use_given, &windowed) != 0)
        return -1;
    return windowed ? read_window_layers(reader, use_given, out) : 0;
}

/* ------------------------------------------------------------------------------------ the rules */

static const char *const lists[] = {"layer_types",      "layers_block_type", "mixer_types",
                                    "attention_layers", "block_types",       NULL};

static bool has(const kvpi_entries *reader, const char *key)
{
    return kvpi_entries_is_set(kvpi_entries_get(reader, key));
}

/* Rules 5 to 7, for layers with a state, or a window, beside those that attend to all tokens. */
static int read_mixed(const kvpi_entries *reader, bool recurrent, kvpi_layers *out)
{
    static const struct {
        const char *key;
        uint8_t inside, outside;
    } numbers[] = {{"full_attn_idxs", KVPI_LAYER_FULL, KVPI_LAYER_STATE},
                   {"attn_layer_indices", KVPI_LAYER_FULL, KVPI_LAYER_STATE},
                   {"hybrid_layer_ids", KVPI_LAYER_FULL | KVPI_LAYER_STATE, KVPI_LAYER_STATE},
                   {"local_layer_ids", KVPI_LAYER_WINDOW, KVPI_LAYER_FULL}};
    const json_t *linear = kvpi_entries_get(reader, "linear_attn_config");
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const bool of_states = (numbers[i].outside & KVPI_LAYER_STATE) != 0;
        const uint8_t more = recurrent && !of_states ? KVPI_LAYER_STATE : 0; /* Inkling: in all */
        if (has(reader, numbers[i].key) && (recurrent || !of_states))
            return read_numbers(reader, numbers[i].key, kvpi_entries_get(reader, numbers[i].key), 0,
                                numbers[i].inside | more, numbers[i].outside | more, out);
    }
    if (linear != NULL && !json_is_object(linear))
        return kvpi_entries_wrong(reader, "%slinear_attn_config is %s, expected an object",
                                  reader->part, kvpi_json_kind(linear));
    if (linear != NULL && (recurrent || json_object_get(linear, "full_attn_layers") != NULL))
        return read_numbers(reader, "linear_attn_config.full_attn_layers",
                            json_object_get(linear, "full_attn_layers"), 1, KVPI_LAYER_FULL,
                            KVPI_LAYER_STATE, out);
    if (!recurrent)
        return has(reader, "global_attn_every_n_layers")
                   ? read_period(reader, "global_attn_every_n_layers", NULL, KVPI_LAYER_WINDOW, 1,
                                 out)
                   : read_windows(reader, out);
    if (has(reader, "attn_layer_period"))
        return read_period(reader, "attn_layer_period", "attn_layer_offset", KVPI_LAYER_STATE, 1,
                           out);
    if (has(reader, "layer_group_size"))
        return read_period(reader, "layer_group_size", NULL, KVPI_LAYER_STATE, 1, out);
    if (strcmp(kvpi_entries_model_type(reader), "falcon_h1") == 0) {
        memset(out->does, KVPI_LAYER_FULL | KVPI_LAYER_STATE, out->n);
        return 0;
    }
    if (has(reader, "linear_num_value_heads"))
        return read_period(reader, "full_attention_interval", NULL, KVPI_LAYER_STATE, 4, out);
    return kvpi_entries_wrong(reader,
                              "has layers with recurrent state, and nothing says which: no "
                              "\"%slayer_types\"",
                              reader->part);
}

/* dots3-note: two layers, and every fourth from the second on, attend to all tokens. */
static void follow_dots3(kvpi_layers *out)
{
    for (uint32_t i = 0; i < out->n; i++)
        out->does[i] = i < 2 || i % 4 == 1 ? KVPI_LAYER_FULL : KVPI_LAYER_WINDOW;
}

static int refuse_window(const kvpi_entries *reader)
{
    if (!has(reader, "sliding_window") ||
        json_is_false(kvpi_entries_get(reader, "use_sliding_window")))
        return 0;
    return kvpi_entries_wrong(reader,
                              "has \"%ssliding_window\" beside layers with recurrent state, and "
                              "no list says which layers it is of",
                              reader->part);
}

static int read_kinds(const kvpi_entries *reader, const kvpi_recurrent *recurrent, kvpi_layers *out)
{
    const char *list = kvpi_entries_name(reader, lists);
    const json_t *types = kvpi_entries_get(reader, "attn_type_list");
    if (has(reader, list) && (strcmp(list, "block_types") != 0 || recurrent != NULL))
        return read_names(reader, recurrent, list, out);
    if (strncmp(kvpi_entries_model_type(reader), "dots3_note", 10) == 0) {
        follow_dots3(out);
        return 0;
    }
    if (has(reader, "hybrid_layer_pattern"))
        return read_digits(reader, "hybrid_layer_pattern", KVPI_LAYER_FULL, KVPI_LAYER_WINDOW, out);
    if (has(reader, "compress_ratios"))
        return read_ratios(reader, out);
    if (has(reader, "block_configs"))
        return read_blocks(reader, out);
    if (recurrent != NULL && !has(reader, "local_layer_ids") && refuse_window(reader) != 0)
        return -1;
    if (recurrent != NULL && has(reader, "hybrid_override_pattern"))
        return read_letters(reader, out);
    if (types != NULL && json_array_size(types) != out->n && recurrent != NULL)
        return kvpi_entries_wrong(reader,
                                  "%sattn_type_list tells of %zu layers, num_hidden_layers is "
                                  "%" PRIu32,
                                  reader->part, json_array_size(types), out->n);
    if (types != NULL)
        return read_digits(reader, "attn_type_list", KVPI_LAYER_STATE, KVPI_LAYER_FULL, out);
    return read_mixed(reader, recurrent != NULL, out);
}

/* -------------------------------------------------------------------------- how many, how often */

static int read_count(const kvpi_entries *reader, kvpi_layers *out)
{
    static const char *const counts[] = {"num_hidden_layers", "n_layer", "n_layers",
                                         "num_layers",        "layers",  NULL};
    const json_t *list = kvpi_entries_get(reader, kvpi_entries_name(reader, lists));
    const json_t *letters = kvpi_entries_get(reader, "hybrid_override_pattern");
    const char *key = kvpi_entries_name(reader, counts);
    const bool twice = strcmp(kvpi_entries_model_type(reader), "longcat_flash") == 0;
    uint32_t max = KVPI_MODELS_MAX_LAYERS;
    if (twice && kvpi_entries_get(reader, "num_layers") != NULL) {
        key = "num_layers";
        max /= 2;
    }
    if (kvpi_entries_get(reader, key) == NULL) {
        const size_t n = letters != NULL ? json_string_length(letters) : json_array_size(list);
        out->n = n <= max ? (uint32_t)n : 0;
    }
    if (kvpi_entries_need_whole(reader, key, "how many layers keep KV", max, &out->n) != 0)
        return -1;
    if (max < KVPI_MODELS_MAX_LAYERS)
        out->n *= 2;
    return 0;
}

/* Layers that run more than once for a token keep KV each time. */
static int read_loops(const kvpi_entries *reader, kvpi_layers *out)
{
    const uint32_t max = KVPI_MODELS_MAX_LAYERS;
    uint32_t all = 1, n = 1, from = 0, to = 0, first = 0, more = 0;
    const char *mode = json_string_value(kvpi_entries_get(reader, "recurrent_kv_cache_mode"));
    if (kvpi_entries_read_whole(reader, "total_ut_steps", 1, max, &all) != 0 ||
        kvpi_entries_read_whole(reader, "loop_num_passes", 1, max, &n) != 0 ||
        kvpi_entries_read_whole(reader, "loop_layer_index_start", 0, out->n, &from) != 0 ||
        kvpi_entries_read_whole(reader, "loop_layer_index_end", from, out->n, &to) != 0 ||
        kvpi_entries_read_whole(reader, "n_recurrent_loops", 1, max, &n) != 0 ||
        kvpi_entries_read_whole(reader, "n_input_layers", 0, out->n, &first) != 0 ||
        kvpi_entries_read_whole(reader, "n_recurrent_layers", 0, out->n - first, &more) != 0)
        return -1;
    if (more > 0)
        from = first, to = first + more;
    if (n > 1 && to <= from)
        return kvpi_entries_wrong(reader,
                                  "%s%s is %" PRIu32 ", and nothing says which layers loop: "
                                  "loop_layer_index_start and _end, n_recurrent_layers",
                                  reader->part,
                                  kvpi_entries_get(reader, "loop_num_passes") != NULL
                                      ? "loop_num_passes"
                                      : "n_recurrent_loops",
                                  n);
    if (mode != NULL && strcmp(mode, "last_loop") == 0)
        n = 1;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < out->n; i++) {
        out->times[i] = (uint16_t)(i >= from && i < to ? n : all);
        sum += out->times[i];
    }
    if (sum <= max)
        return 0;
    return kvpi_entries_wrong(reader, "%" PRIu64 " layers run for a token, more than %" PRIu32, sum,
                              max);
}

/* ---------------------------------------------------------------------------- sharing, indexers */

static bool lists_number(const json_t *list, uint32_t number)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == number)
            return true;
    return false;
}

/* Layers that read what another keeps: the last ones, those that a list does not name, or all but
 * every cla_share_factor-th. */
static int read_shared(const kvpi_entries *reader, kvpi_layers *out)
{
    const json_t *ids = kvpi_entries_get(reader, "kv_source_layer_ids");
    const json_t *sources = kvpi_entries_get(reader, "kv_source_layers");
    uint32_t n_shared = 0, step = 1;
    if (kvpi_entries_read_whole(reader, "num_kv_shared_layers", 0, out->n, &n_shared) != 0 ||
        (json_is_true(kvpi_entries_get(reader, "use_cla")) &&
         kvpi_entries_read_whole(reader, "cla_share_factor", 1, out->n, &step) != 0))
        return -1;
    if (sources != NULL &&
        kvpi_entries_need_array(reader, "kv_source_layers", out->n, false) == NULL)
        return -1;
    if (n_shared == out->n)
        return kvpi_entries_wrong(reader,
                                  "%snum_kv_shared_layers is %" PRIu32 ": all layers, which "
                                  "keep nothing of their own",
                                  reader->part, n_shared);
    out->recomputed = kvpi_entries_is_set(ids) && out->compressed;
    for (uint32_t i = 0; i < out->n; i++)
        if (i >= out->n - n_shared || i % step != 0 ||
            (kvpi_entries_is_set(ids) && !lists_number(ids, i)) ||
            (sources != NULL && json_integer_value(json_array_get(sources, i)) != i))
            out->does[i] |= KVPI_LAYER_READS;
    return 0;
}

/* Which layers with an indexer keep its keys: a schedule of GLM's, or a list. */
static int read_schedule(const kvpi_entries *reader, kvpi_layers *out)
{
    const json_t *types = kvpi_entries_get(reader, "indexer_types");
    const json_t *pattern = kvpi_entries_get(reader, "index_topk_pattern");
    const char *letters = json_string_value(pattern);
    uint32_t step = 1, offset = 2;
    if (kvpi_entries_read_whole(reader, "index_topk_freq", 1, out->n, &step) != 0 ||
        kvpi_entries_read_whole(reader, "index_skip_topk_offset", 0, out->n, &offset) != 0)
        return -1;
    if (types == NULL && letters == NULL)
        types = pattern;
    if ((json_is_array(types) && json_array_size(types) != out->n) ||
        (letters != NULL && strlen(letters) != out->n))
        return kvpi_entries_wrong(reader, "%s%s has not one entry for each of %" PRIu32 " layers",
                                  reader->part,
                                  letters != NULL ? "index_topk_pattern" : "indexer_types", out->n);
    for (uint32_t i = 0; i < out->n; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool keeps = type != NULL      ? type[0] == 'f' || type[0] == 'F'
                           : letters != NULL ? letters[i] == 'F'
                                             : i + 1 < offset || (i + 1 - offset) % step == 0;
        if (!keeps)
            out->does[i] &= (uint8_t)~KVPI_LAYER_INDEX;
    }
    return 0;
}

static int read_indexers(const kvpi_entries *reader, kvpi_layers *out)
{
    const json_t *ids = kvpi_entries_get(reader, "index_source_layer_ids");
    const json_t *sparse = kvpi_entries_get(reader, "sparse_attention_config");
    const json_t *step = json_object_get(sparse, "sparse_attention_freq");
    const bool indexed = has(reader, "index_head_dim") || has(reader, "indexer_head_dim") ||
                         json_object_get(sparse, "sparse_index_dim") != NULL;
    bool named = out->compressed;
    for (uint32_t i = 0; i < out->n; i++) {
        named = named || (out->does[i] & KVPI_LAYER_INDEX) != 0;
        if (!indexed)
            out->does[i] &= (uint8_t)~KVPI_LAYER_INDEX;
    }
    for (uint32_t i = 0; i < out->n && indexed; i++) {
        if (!named && (out->does[i] & KVPI_LAYER_FULL) != 0 &&
            (step == NULL || kvpi_entries_is_set(json_array_get(step, i))))
            out->does[i] |= KVPI_LAYER_INDEX;
        if (kvpi_entries_is_set(ids))
            out->does[i] = (uint8_t)((out->does[i] & ~KVPI_LAYER_INDEX) |
                                     (lists_number(ids, i) ? KVPI_LAYER_INDEX : 0));
    }
    if (step != NULL && json_array_size(step) != out->n)
        return kvpi_entries_wrong(
            reader,
            "%ssparse_attention_config.sparse_attention_freq has %zu entries, "
            "num_hidden_layers is %" PRIu32,
            reader->part, json_array_size(step), out->n);
    return indexed ? read_schedule(reader, out) : 0;
}

bool kvpi_layers_are_listed(const kvpi_entries *reader)
{
    return has(reader, "layer_types") || has(reader, "attention_layers") ||
           has(reader, "hybrid_layer_pattern") ||
           strncmp(kvpi_entries_model_type(reader), "dots3_note", 10) == 0;
}

uint32_t kvpi_layers_count(const kvpi_layers *layers, uint8_t what)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < layers->n; i++)
        n += (layers->does[i] & what) != 0 ? layers->times[i] : 0;
    return n;
}

int kvpi_layers_read(const kvpi_entries *reader, const kvpi_recurrent *recurrent, kvpi_layers *out)
{
    memset(out, 0, sizeof *out);
    if (read_count(reader, out) != 0 || read_kinds(reader, recurrent, out) != 0 ||
        read_loops(reader, out) != 0 || read_shared(reader, out) != 0 ||
        read_indexers(reader, out) != 0)
        return -1;
    if (kvpi_layers_count(out, KVPI_LAYER_ATTENDS) == 0)
        return kvpi_entries_wrong(
            reader,
            "%s%s has no layer with attention: this command counts states "
            "beside blocks of KV",
            reader->part,
            kvpi_entries_get(reader, "attn_type_list") != NULL ? "attn_type_list"
            : has(reader, kvpi_entries_name(reader, lists))    ? kvpi_entries_name(reader, lists)
                                                               : "full_attention_interval");
    return 0;
}

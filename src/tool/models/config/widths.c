/* Owns what the keys of a config.json say about the heads of a layer, their widths, latent vectors,
 * the size of a window, and an indexer's keys.
 *
 *   all layers   num_attention_heads, num_key_value_heads, head_dim, v_head_dim; kv_lora_rank and
 *                qk_rope_head_dim for latent vectors. Older names of them are here, too
 *   windowed     swa_*, sliding_*, attention_other_setting: what is missing is as in all layers
 *   full         num_global_key_value_heads, global_head_dim: the same
 *   one layer    per_layer_config, as transformers 5 writes it; num_key_value_heads_per_layer;
 *                block_configs
 *
 * DeepSeek V4 keeps one vector of head_dim values, K and V at once: a latent one.
 */
#include "tool/models/config/widths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/models/config/family.h"
#include "tool/requests/json_kind.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const uint32_t max_heads = KVPI_MODELS_MAX_HEADS, max_dim = KVPI_MODELS_MAX_HEAD_DIM;

/* ----------------------------------------------------------------------------------- all layers */

/* The number of KV heads, by its names and by older ways to say it. */
static int read_kv_heads(const kvpi_entries *reader, uint32_t *kv_heads)
{
    bool one = strcmp(kvpi_entries_model_type(reader), "gpt_bigcode") == 0, grouped = false;
    bool new_falcon = false;
    const json_t *attention = kvpi_entries_get(reader, "attn_config");
    kvpi_entries inside = *reader;
    if (kvpi_entries_read_bool(reader, "multi_query", &one) != 0 ||
        kvpi_entries_read_bool(reader, "new_decoder_architecture", &new_falcon) != 0 ||
        kvpi_entries_read_bool(reader, "multi_query_attention", &grouped) != 0)
        return -1;
    if (new_falcon)
        return kvpi_entries_need_whole(reader, "num_kv_heads", "how many KV heads a layer has",
                                       max_heads, kv_heads);
    if (one)
        *kv_heads = 1;
    if (grouped)
        return kvpi_entries_need_whole(reader, "multi_query_group_num",
                                       "how many KV heads a layer has", max_heads, kv_heads);
    inside.object = attention;
    inside.part = "attn_config.";
    if (json_is_object(attention) && kvpi_entries_get(reader, "d_model") != NULL &&
        kvpi_entries_read_whole(&inside, "kv_n_heads", 1, max_heads, kv_heads) != 0)
        return -1;
    if (kvpi_entries_read_whole(reader, "num_attention_groups", 1, max_heads, kv_heads) != 0)
        return -1;
    return one ? 0 : kvpi_entries_read_whole(reader, "num_key_value_heads", 1, max_heads, kv_heads);
}

static int check_heads(const kvpi_entries *reader, const kvpi_width *w, const char *of)
{
    if (w->kv_rank > 0 || (w->kv_heads <= w->q_heads && w->q_heads % w->kv_heads == 0))
        return 0;
    return kvpi_entries_wrong(
        reader, "%snum_attention_heads %" PRIu32 " is not divisible by %s%" PRIu32 "%s",
        reader->part, w->q_heads, of[0] == '\0' ? "num_key_value_heads " : "", w->kv_heads, of);
}

static int read_heads(const kvpi_entries *reader, kvpi_width *w)
{
    static const char *const keys[] = {"num_attention_heads", "n_head",          "n_heads",
                                       "num_heads",           "attention_heads", NULL};
    const bool older = kvpi_entries_get(reader, "num_hidden_layers") == NULL;
    w->q_heads = reader->family->q_heads;
    w->kv_heads = reader->family->kv_heads;
    if (kvpi_entries_need_whole(reader, older ? kvpi_entries_name(reader, keys) : keys[0],
                                "how many heads a layer has", max_heads, &w->q_heads) != 0 ||
        read_kv_heads(reader, &w->kv_heads) != 0)
        return -1;
    if (w->kv_heads == 0)
        w->kv_heads = w->q_heads;
    return check_heads(reader, w, "");
}

static int read_head_dim(const kvpi_entries *reader, uint32_t hidden, kvpi_width *w)
{
    static const char *const keys[] = {"kv_channels", "attention_head_dim", "head_dim"};
    w->k_dim = reader->family->head_dim;
    for (size_t i = 0; i < COUNT(keys); i++)
        if (kvpi_entries_read_whole(reader, keys[i], 1, max_dim, &w->k_dim) != 0)
            return -1;
    if (w->k_dim != 0)
        return 0;
    if (hidden == 0)
        return kvpi_entries_wrong(
            reader, "no \"%shead_dim\" and no \"%shidden_size\" to divide by the heads",
            reader->part, reader->part);
    if (hidden % w->q_heads != 0)
        return kvpi_entries_wrong(reader,
                                  "%shidden_size %" PRIu32
                                  " is not divisible by num_attention_heads %" PRIu32
                                  ", and there is no \"head_dim\"",
                                  reader->part, hidden, w->q_heads);
    w->k_dim = hidden / w->q_heads;
    if (w->k_dim > max_dim)
        return kvpi_entries_wrong(reader, "a head has %" PRIu32 " values, more than %d", w->k_dim,
                                  KVPI_MODELS_MAX_HEAD_DIM);
    return 0;
}

/* Latent vectors; their rope part may be empty. */
static int read_latent(const kvpi_entries *reader, kvpi_width *w)
{
    if (kvpi_entries_get(reader, "kv_lora_rank") == NULL)
        return 0;
    if (kvpi_entries_get(reader, "qk_rope_head_dim") == NULL)
        return kvpi_entries_wrong(
            reader, "no \"%sqk_rope_head_dim\", which says how wide a latent vector is",
            reader->part);
    if (kvpi_entries_read_whole(reader, "kv_lora_rank", 1, KVPI_MODELS_MAX_LATENT, &w->kv_rank) !=
            0 ||
        kvpi_entries_read_whole(reader, "qk_rope_head_dim", 0, max_dim, &w->rope) != 0)
        return -1;
    return kvpi_entries_read_whole(reader, "qk_nope_head_dim", 1, max_dim, &w->nope);
}

/* DeepSeek V4. V4.1 quantises the rope part, too. */
static int read_compressed(const kvpi_entries *reader, bool recomputed, kvpi_width *w)
{
    uint32_t dim = 0;
    if (kvpi_entries_need_whole(reader, "head_dim", "how wide an entry is", max_dim, &dim) != 0)
        return -1;
    w->rope = 64;
    if (kvpi_entries_read_whole(reader, "qk_rope_head_dim", 0, dim - 1, &w->rope) != 0)
        return -1;
    if (recomputed)
        w->rope = 0;
    w->kv_rank = dim - w->rope;
    return 0;
}

/* ------------------------------------------------------------------------------ kinds of layers */

/* Reads what layers of one kind have otherwise, by names that end alike. */
static int read_own(const kvpi_entries *reader, const char *const *prefixes, kvpi_width *w)
{
    static const struct {
        const char *key;
        size_t at;
        uint32_t min, max;
    } own[] = {{"num_attention_heads", offsetof(kvpi_width, q_heads), 1, KVPI_MODELS_MAX_HEADS},
               {"num_key_value_heads", offsetof(kvpi_width, kv_heads), 1, KVPI_MODELS_MAX_HEADS},
               {"head_dim", offsetof(kvpi_width, k_dim), 1, KVPI_MODELS_MAX_HEAD_DIM},
               {"v_head_dim", offsetof(kvpi_width, v_dim), 1, KVPI_MODELS_MAX_HEAD_DIM},
               {"kv_lora_rank", offsetof(kvpi_width, kv_rank), 1, KVPI_MODELS_MAX_LATENT},
               {"qk_rope_head_dim", offsetof(kvpi_width, rope), 0, KVPI_MODELS_MAX_HEAD_DIM},
               {"qk_nope_head_dim", offsetof(kvpi_width, nope), 1, KVPI_MODELS_MAX_HEAD_DIM}};
    for (size_t p = 0; prefixes[p] != NULL; p++)
        for (size_t i = 0; i < COUNT(own); i++) {
            char key[64];
            snprintf(key, sizeof key, "%s%s", prefixes[p], own[i].key);
            if (kvpi_entries_read_whole(reader, key, own[i].min, own[i].max,
                                        (uint32_t *)((char *)w + own[i].at)) != 0)
                return -1;
        }
    return 0;
}

/* Step 3.5's heads of layers with a window. */
static int read_other_setting(const kvpi_entries *reader, kvpi_width *w)
{
    kvpi_entries inside = *reader;
    inside.object = kvpi_entries_get(reader, "attention_other_setting");
    inside.part = "attention_other_setting.";
    if (!json_is_object(inside.object))
        return 0;
    return kvpi_entries_read_whole(&inside, "num_attention_heads", 1, max_heads, &w->q_heads) !=
                       0 ||
                   kvpi_entries_read_whole(&inside, "num_attention_groups", 1, max_heads,
                                           &w->kv_heads) != 0 ||
                   kvpi_entries_read_whole(&inside, "head_dim", 1, max_dim, &w->k_dim) != 0
               ? -1
               : 0;
}

static int read_windowed(const kvpi_entries *reader, kvpi_width *w)
{
    static const char *const prefixes[] = {"sliding_", "swa_", NULL};
    if (kvpi_entries_read_whole(reader, "num_sliding_attention_heads", 1, max_heads, &w->q_heads) !=
            0 ||
        kvpi_entries_read_whole(reader, "num_swa_key_value_heads", 1, max_heads, &w->kv_heads) !=
            0 ||
        read_other_setting(reader, w) != 0)
        return -1;
    return read_own(reader, prefixes, w);
}

/* Gemma 4's heads of full layers. */
static int read_full(const kvpi_entries *reader, kvpi_width *w)
{
    bool same_kv = false; /* only then do their heads have a number of their own */
    if (reader->family->full_head_dim > 0)
        w->k_dim = reader->family->full_head_dim;
    if (kvpi_entries_read_bool(reader, "attention_k_eq_v", &same_kv) != 0 ||
        (same_kv && kvpi_entries_read_whole(reader, "num_global_key_value_heads", 1, max_heads,
                                            &w->kv_heads) != 0) ||
        kvpi_entries_read_whole(reader, "global_head_dim", 1, max_dim, &w->k_dim) != 0)
        return -1;
    return kvpi_entries_read_whole(reader, "global_v_head_dim", 1, max_dim, &w->v_dim);
}

/* How many tokens layers with a window, or with chunks, keep. */
static int read_window(const kvpi_entries *reader, const kvpi_layers *layers, kvpi_width *w)
{
    static const char *const keys[] = {"sliding_window", "sliding_window_size",
                                       "attention_window_size", "window_size", NULL};
    const bool chunked = kvpi_layers_count(layers, KVPI_LAYER_CHUNK) > 0;
    const bool windowed = kvpi_layers_count(layers, KVPI_LAYER_WINDOW) > 0;
    if (chunked && windowed)
        return kvpi_entries_wrong(reader,
                                  "%slayer_types has sliding_attention and chunked_attention; one "
                                  "model has one of them here",
                                  reader->part);
    if (!chunked && !windowed)
        return 0;
    w->window = chunked ? reader->family->chunk : reader->family->window;
    return kvpi_entries_need_whole(
        reader, chunked ? "attention_chunk_size" : kvpi_entries_name(reader, keys),
        "how many tokens a layer with a window keeps", KVPI_MODELS_MAX_WINDOW, &w->window);
}

static int read_index(const kvpi_entries *reader, kvpi_widths *out)
{
    static const char *const dims[] = {"index_head_dim", "indexer_head_dim", NULL};
    static const char *const pools[] = {"index_kpool", "indexer_compress_ratio", NULL};
    kvpi_entries inside = *reader;
    out->index_tokens = 1;
    out->index_scaled = out->full.kv_rank > 0;
    if (kvpi_entries_read_whole(reader, kvpi_entries_name(reader, dims), 1, max_dim,
                                &out->index_dim) != 0 ||
        kvpi_entries_read_whole(reader, kvpi_entries_name(reader, pools), 1, KVPI_MODELS_MAX_ENTRY,
                                &out->index_tokens) != 0)
        return -1;
    inside.object = kvpi_entries_get(reader, "sparse_attention_config");
    inside.part = "sparse_attention_config.";
    return json_is_object(inside.object)
               ? kvpi_entries_read_whole(&inside, "sparse_index_dim", 1, max_dim, &out->index_dim)
               : 0;
}

int kvpi_widths_read(const kvpi_entries *reader, const kvpi_layers *layers, uint32_t hidden,
                     kvpi_widths *out)
{
    kvpi_width *w = &out->full;
    uint32_t v_dim = 0;
    memset(out, 0, sizeof *out);
    if (read_heads(reader, w) != 0 || read_latent(reader, w) != 0 ||
        (layers->compressed && read_compressed(reader, layers->recomputed, w) != 0) ||
        (w->kv_rank == 0 && read_head_dim(reader, hidden, w) != 0) ||
        kvpi_entries_read_whole(reader, "v_head_dim", 1, max_dim, &v_dim) != 0 ||
        read_index(reader, out) != 0)
        return -1;
    w->v_dim = v_dim;
    out->windowed = out->full;
    const kvpi_width base = out->full;
    if (read_windowed(reader, &out->windowed) != 0 || read_full(reader, &out->full) != 0 ||
        read_window(reader, layers, &out->windowed) != 0)
        return -1;
    if (kvpi_layers_count(layers, KVPI_LAYER_WINDOW) == 0 &&
        (out->windowed.kv_heads != base.kv_heads || out->windowed.k_dim != base.k_dim ||
         out->windowed.v_dim != base.v_dim || out->windowed.kv_rank != base.kv_rank))
        return kvpi_entries_wrong(
            reader,
            "has heads of layers with a window, and nothing says which layers "
            "have one: no \"%slayer_types\"",
            reader->part);
    return kvpi_layers_count(layers, KVPI_LAYER_FULL) > 0
               ? check_heads(reader, &out->full, " KV heads of full layers")
               : 0;
}

/* ------------------------------------------------------------------------------------ one layer */

/* Keys of per_layer_config that say nothing of KV. */
static bool is_of_weights(const char *key)
{
    static const char *const words[] = {
        "intermediate", "expert", "mlp", "moe", "q_lora", "rope_theta", "num_attention_heads"};
    for (size_t i = 0; i < COUNT(words); i++)
        if (strstr(key, words[i]) != NULL)
            return true;
    return false;
}

static int read_entry(const kvpi_entries *reader, const char *layer, const json_t *entry,
                      bool windowed, kvpi_width *w)
{
    static const char *const plain[] = {"", NULL};
    static const char *const known[] = {"num_key_value_heads", "head_dim",
                                        "v_head_dim",          "kv_lora_rank",
                                        "qk_rope_head_dim",    "qk_nope_head_dim"};
    const kvpi_entries inside = {reader->name,        reader->root,   entry,
                                 "per_layer_config.", reader->family, reader->error};
    json_t *object = (json_t *)entry; /* only read */
    if (windowed && kvpi_entries_read_whole(&inside, "sliding_window", 1, KVPI_MODELS_MAX_WINDOW,
                                            &w->window) != 0)
        return -1;
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        bool found = is_of_weights(key) || (windowed && strcmp(key, "sliding_window") == 0);
        for (size_t i = 0; i < COUNT(known) && !found; i++)
            found = strcmp(known[i], key) == 0;
        if (!found)
            return kvpi_entries_wrong(reader,
                                      "%sper_layer_config[%.20s] has \"%.60s\", which this command "
                                      "does not know",
                                      reader->part, layer, key);
    }
    return read_own(&inside, plain, w);
}

/* Nemotron's heads of one layer: query heads for each KV head. */
static int read_block(const kvpi_entries *reader, const json_t *block, kvpi_width *w)
{
    const kvpi_entries inside = {reader->name,
                                 reader->root,
                                 json_object_get(block, "attention"),
                                 "block_configs.attention.",
                                 reader->family,
                                 reader->error};
    uint32_t group = 0;
    if (kvpi_entries_need_whole(&inside, "n_heads_in_group", "how many KV heads a layer has",
                                max_heads, &group) != 0)
        return -1;
    w->kv_heads = w->q_heads / group > 0 ? w->q_heads / group : 1;
    return check_heads(reader, w, " KV heads of a layer");
}

int kvpi_widths_of_layer(const kvpi_entries *reader, const kvpi_widths *widths,
                         const kvpi_layers *layers, uint32_t layer, kvpi_width *out)
{
    const json_t *layers_own = kvpi_entries_get(reader, "per_layer_config");
    const json_t *heads = kvpi_entries_get(reader, "num_key_value_heads_per_layer");
    const json_t *blocks = kvpi_entries_get(reader, "block_configs");
    const bool windowed = (layers->does[layer] & KVPI_LAYER_FULL) == 0;
    const json_t *entry = NULL;
    char number[2][12];
    *out = windowed ? widths->windowed : widths->full;
    snprintf(number[0], sizeof number[0], "%" PRIu32, layer);
    snprintf(number[1], sizeof number[1], "%02" PRIu32, layer);
    for (size_t i = 0; i < 2 && entry == NULL; i++)
        entry = json_object_get(layers_own, number[i]);
    if (entry != NULL && read_entry(reader, number[1], entry, windowed, out) != 0)
        return -1;
    if (json_is_array(heads)) {
        const json_t *value = json_array_get(heads, layer);
        if (json_array_size(heads) != layers->n || !json_is_integer(value) ||
            json_integer_value(value) < 1 || json_integer_value(value) > max_heads)
            return kvpi_entries_wrong(reader,
                                      "%snum_key_value_heads_per_layer has not a number of heads "
                                      "for each of %" PRIu32 " layers",
                                      reader->part, layers->n);
        out->kv_heads = (uint32_t)json_integer_value(value);
    }
    if (blocks != NULL && (layers->does[layer] & KVPI_LAYER_FULL) != 0 &&
        read_block(reader, json_array_get(blocks, layer), out) != 0)
        return -1;
    if (out->v_dim == 0)
        out->v_dim = out->k_dim;
    return entry != NULL ? check_heads(reader, out, " KV heads of a layer") : 0;
}

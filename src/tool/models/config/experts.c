/* Owns what the keys of a config.json say about MLPs and experts, in the names of every family, and
 * which layers have them:
 *
 *   mlp_layer_types          a name for each layer
 *   moe_layer_freq           1 for each layer with experts; or a number: every so many-th layer
 *   moe_layers_enum          "4,5,6": the numbers of those layers; moe_layers: a list of them
 *   mlp_only_layers          the numbers of the others
 *   first_k_dense_replace, num_dense_layers, dense_mlp_idx
 *                            so many layers without experts, first
 *   decoder_sparse_step, interleave_moe_layer_step
 *                            every so many-th layer has experts
 *   expert_layer_period and expert_layer_offset
 *                            the same, from an offset on
 *   moe_layer_start_index, moe_layer_end_index, moe_layer_interval
 *                            ERNIE's way
 *
 * In a file whose list of layers names MLPs, layers with attention have none.
 */
#include "tool/models/config/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/models/config/family.h"

static const uint32_t max_width = KVPI_MODELS_MAX_INTERMEDIATE,
                      max_experts = KVPI_MODELS_MAX_EXPERTS;

/* Reads a number that goes by several names. A list, which some files have there, is not read. */
static int read_named(const kvpi_entries *reader, const char *const *names, uint32_t min,
                      uint32_t max, uint32_t *out)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (kvpi_entries_get(reader, names[i]) != NULL &&
            !json_is_array(kvpi_entries_get(reader, names[i])))
            return kvpi_entries_read_whole(reader, names[i], min, max, out);
    return 0;
}

static int read_mlp(const kvpi_entries *reader, kvpi_models_mlp *mlp)
{
    static const char *const widths[] = {"intermediate_size_mlp",
                                         "dense_intermediate_size",
                                         "intermediate_size",
                                         "ffn_hidden_size",
                                         "ffn_dim",
                                         "n_inner",
                                         NULL};
    static const char *const vocabs[] = {"vocab_size", "padded_vocab_size", NULL};
    const bool older =
        kvpi_entries_get(reader, "n_embd") != NULL || kvpi_entries_get(reader, "d_model") != NULL;
    mlp->vocab = reader->family->vocab;
    mlp->tied = reader->family->tied;
    mlp->ungated = reader->family->ungated;
    if (read_named(reader, widths, 1, max_width, &mlp->intermediate) != 0 ||
        read_named(reader, vocabs, 1, KVPI_MODELS_MAX_VOCAB, &mlp->vocab) != 0)
        return -1;
    if (mlp->intermediate == 0 && older)
        mlp->intermediate = 4 * mlp->hidden;
    return kvpi_entries_read_bool(reader, "tie_word_embeddings", &mlp->tied);
}

/* ----------------------------------------------------------------------- which layers have them */

/* Numbers of layers in a list, or in a text such as "4,5,6". */
static uint32_t count_numbers(const json_t *value)
{
    uint32_t n = (uint32_t)json_array_size(value);
    for (const char *at = json_string_value(value); at != NULL && *at != '\0'; n++) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return n;
}

/* Layers that a list of names or of 0 and 1 gives experts. */
static uint32_t count_listed(const json_t *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const char *name = json_string_value(value);
        n += name != NULL ? strcmp(name, "dense") != 0 : json_integer_value(value) != 0;
    }
    return n;
}

/* ERNIE's way: every moe_layer_interval-th of some layers in a row has experts. */
static int read_interval(const kvpi_entries *reader, uint32_t n, uint32_t *n_sparse)
{
    uint32_t first = 0, last = n - 1, interval = 1;
    if (json_is_array(kvpi_entries_get(reader, "moe_layer_start_index")))
        return 0;
    if (kvpi_entries_read_whole(reader, "moe_layer_start_index", 0, n, &first) != 0 ||
        kvpi_entries_read_whole(reader, "moe_layer_end_index", 0, n, &last) != 0 ||
        kvpi_entries_read_whole(reader, "moe_layer_interval", 1, n, &interval) != 0)
        return -1;
    *n_sparse = 0;
    for (uint32_t i = first; i <= last && i < n; i++)
        *n_sparse += (i + 1) % interval == 0;
    return 0;
}

/* Every step-th layer, after some without. */
static int read_steps(const kvpi_entries *reader, uint32_t n, uint32_t *n_sparse)
{
    static const char *const firsts[] = {"first_k_dense_replace", "num_dense_layers",
                                         "moe_layer_num_skipped", "dense_mlp_idx", NULL};
    static const char *const steps[] = {"decoder_sparse_step", "interleave_moe_layer_step",
                                        "expert_layer_period", "moe_layer_freq", NULL};
    uint32_t first = 0, step = 1, offset = 0;
    if (read_named(reader, firsts, 0, n, &first) != 0 ||
        read_named(reader, steps, 1, n, &step) != 0)
        return -1;
    offset = step - 1;
    if (kvpi_entries_read_whole(reader, "expert_layer_offset", 0, step - 1, &offset) != 0)
        return -1;
    *n_sparse = 0;
    for (uint32_t i = first; i < n; i++)
        *n_sparse += i % step == offset;
    const uint32_t n_only = count_numbers(kvpi_entries_get(reader, "mlp_only_layers"));
    *n_sparse -= n_only < *n_sparse ? n_only : *n_sparse;
    return 0;
}

static int count_sparse(const kvpi_entries *reader, uint32_t n, uint32_t *n_sparse)
{
    static const char *const lists[] = {"mlp_layer_types", "moe_layer_freq", NULL};
    static const char *const numbers[] = {"moe_layers_enum", "moe_layers", NULL};
    const char *list = kvpi_entries_name(reader, lists);
    const json_t *some = kvpi_entries_get(reader, kvpi_entries_name(reader, numbers));
    if (json_is_array(kvpi_entries_get(reader, list))) {
        *n_sparse = count_listed(kvpi_entries_get(reader, list));
        return 0;
    }
    if (count_numbers(some) > 0) {
        *n_sparse = count_numbers(some);
        return 0;
    }
    if (kvpi_entries_get(reader, "moe_layer_interval") != NULL)
        return read_interval(reader, n, n_sparse);
    return read_steps(reader, n, n_sparse);
}

/* -------------------------------------------------------------------------------- what they are */

static int read_counts(const kvpi_entries *reader, kvpi_models_experts *experts)
{
    static const char *const names[] = {"n_routed_experts", "num_experts", "num_local_experts",
                                        "moe_num_experts", NULL};
    static const char *const used[] = {"num_experts_per_tok",
                                       "num_experts_per_token",
                                       "experts_per_token",
                                       "top_k_experts",
                                       "moe_top_k",
                                       "moe_topk",
                                       "moe_k",
                                       NULL};
    if (read_named(reader, names, 0, max_experts, &experts->n_experts) != 0 ||
        read_named(reader, used, 1, max_experts, &experts->per_token) != 0)
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

static int read_widths(const kvpi_entries *reader, kvpi_model *model)
{
    static const char *const widths[] = {"moe_intermediate_size", "expert_ffn_hidden_size", NULL};
    static const char *const counts[] = {"n_shared_experts", "num_shared_experts",
                                         "moe_num_shared_experts", "num_shared_expert", NULL};
    static const char *const shared[] = {
        "shared_expert_intermediate_size",  "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",         "share_expert_dim",
        "shared_experts_intermediate_size", NULL};
    kvpi_models_experts *experts = &model->experts;
    uint32_t n_shared = 0;
    experts->intermediate = model->mlp.intermediate;
    if (kvpi_entries_get(reader, "intermediate_size_mlp") != NULL ||
        kvpi_entries_get(reader, "dense_intermediate_size") != NULL) {
        if (kvpi_entries_read_whole(reader, "intermediate_size", 1, max_width,
                                    &experts->intermediate) != 0)
            return -1;
    }
    if (strcmp(kvpi_entries_model_type(reader), "llama4_text") == 0)
        experts->shared_intermediate = experts->intermediate;
    if (read_named(reader, widths, 1, max_width, &experts->intermediate) != 0 ||
        read_named(reader, counts, 0, KVPI_MODELS_MAX_SHARED, &n_shared) != 0)
        return -1;
    bool beside = false; /* Gemma 4's MLP, in each layer beside the experts */
    if (kvpi_entries_read_bool(reader, "enable_moe_block", &beside) != 0)
        return -1;
    if (beside)
        experts->shared_intermediate = model->mlp.intermediate;
    if (n_shared > 0)
        experts->shared_intermediate = n_shared * experts->intermediate;
    return read_named(reader, shared, 0, max_width, &experts->shared_intermediate);
}

static int read_experts(const kvpi_entries *reader, const kvpi_layers *layers, kvpi_model *model)
{
    kvpi_models_experts *experts = &model->experts;
    const char *pattern = json_string_value(kvpi_entries_get(reader, "hybrid_override_pattern"));
    const json_t *blocks = kvpi_entries_get(reader, "layers_block_type");
    uint32_t n_sparse = 0, n_dense = 0;
    if (read_counts(reader, experts) != 0)
        return -1;
    for (size_t i = 0; pattern != NULL && pattern[i] != '\0'; i++) {
        n_dense += pattern[i] == '-';
        n_sparse += pattern[i] == 'E';
    }
    for (size_t i = 0; pattern == NULL && i < json_array_size(blocks); i++) {
        const char *type = json_string_value(json_array_get(blocks, i));
        n_dense += type != NULL && strcmp(type, "mlp") == 0;
        n_sparse += type != NULL && strcmp(type, "moe") == 0;
    }
    if (n_dense + n_sparse > 0 &&
        n_dense + n_sparse <= layers->n) { /* MLPs are layers of their own */
        model->n_mlp_layers = n_dense + n_sparse;
        experts->n_dense_layers = experts->n_experts > 0 ? n_dense : 0;
        return experts->n_experts > 0 ? read_widths(reader, model) : 0;
    }
    model->n_mlp_layers = layers->n;
    if (experts->n_experts == 0)
        return 0;
    if (read_widths(reader, model) != 0)
        return -1;
    if (strcmp(kvpi_entries_model_type(reader), "longcat_flash") == 0) {
        model->n_mlp_layers += layers->n / 2; /* two MLPs and experts in each pair of layers */
        experts->n_dense_layers = layers->n;
        return 0;
    }
    if (count_sparse(reader, layers->n, &n_sparse) != 0)
        return -1;
    experts->n_dense_layers = n_sparse < layers->n ? layers->n - n_sparse : 0;
    return 0;
}

/* A number of experts by a name that is not known; NULL: there is none. */
static const char *find_experts(const kvpi_entries *reader)
{
    json_t *object = (json_t *)reader->object; /* only read */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        if (strstr(key, "_experts") != NULL && strstr(key, "per_tok") == NULL &&
            strstr(key, "shared") == NULL && strstr(key, "top") == NULL &&
            (json_integer_value(value) > 1 || json_array_size(value) > 0))
            return key;
    }
    return NULL;
}

/* Gives what the count of parameters lacks; NULL: nothing. */
static const char *find_missing(const kvpi_layers *layers, const kvpi_model *model)
{
    const bool latent = kvpi_models_layers(model, KVPI_KEEPS_LATENT) > 0 && !layers->compressed;
    if (model->mlp.hidden == 0)
        return "hidden_size";
    if (model->mlp.vocab == 0)
        return "vocab_size";
    if (model->mlp.intermediate == 0 &&
        (model->experts.n_experts == 0 || model->experts.n_dense_layers > 0))
        return "intermediate_size";
    if (model->experts.n_experts > 0 && model->experts.intermediate == 0)
        return "moe_intermediate_size";
    if (latent && model->latent.nope_dim == 0)
        return "qk_nope_head_dim";
    return latent && model->latent.v_dim == 0 ? "v_head_dim" : NULL;
}

void kvpi_experts_read(const kvpi_entries *reader, const kvpi_layers *layers, kvpi_model *model)
{
    kvpi_models_error error = {""};
    kvpi_entries soft = *reader;
    soft.name = "";
    soft.error = &error;
    if (read_mlp(&soft, &model->mlp) != 0 || read_experts(&soft, layers, model) != 0) {
        snprintf(model->unknown, sizeof model->unknown, "%.110s", error.text + strlen(": "));
        return;
    }
    const char *missing = find_missing(layers, model);
    const char *uneven = model->experts.n_experts == 0 ? find_experts(reader) : NULL;
    if (missing != NULL)
        snprintf(model->unknown, sizeof model->unknown, "no \"%s%s\"", reader->part, missing);
    else if (kvpi_entries_is_set(kvpi_entries_get(reader, "hidden_size_per_layer_input")))
        snprintf(model->unknown, sizeof model->unknown, "embeddings of each layer are not counted");
    else if (uneven != NULL)
        snprintf(model->unknown, sizeof model->unknown, "\"%s%s\" is not understood", reader->part,
                 uneven);
}

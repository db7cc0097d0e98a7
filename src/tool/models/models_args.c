/* Owns what the options about models and accelerators mean, and their messages. Each
 * command that has them keeps its own table of options.
 */
#include "tool/models/models_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/input/nearest.h"
#include "tool/models/config/config.h"
#include "tool/size/size_report.h"
#include "tool/text.h"
#include "tool/tool.h"

const char *const kvpi_model_args_list[] = {"--list", NULL};
const char *const kvpi_model_args_size_list[] = {"'kvpager size --list'", NULL};

void kvpi_model_args_init(kvpi_model_args *model_args, const char *list)
{
    *model_args = (kvpi_model_args){.list = list,
                                    .size = {.tensor_parallel = 1,
                                             .block_tokens = 16,
                                             .context_tokens = 8192,
                                             .checkpoints = 2,
                                             .utilization_milli = 900,
                                             .overhead_bytes = KVPI_MODEL_ARGS_OVERHEAD_BYTES}};
}

int kvpi_model_args_dtype(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                          void *at)
{
    uint32_t choice = 0;
    if (kvpi_args_choice(args, option, text, &choice) != 0)
        return KVPI_ARGS_WRONG;
    *(kvpi_dtype *)at = kvpi_models_dtype_of(text);
    return 0;
}

int kvpi_model_args_overhead(const kvpi_args *args, const kvpi_args_option *option,
                             const char *text, void *at)
{
    *(uint64_t *)at = 0;
    return strcmp(text, "0") == 0 ? 0 : kvpi_args_size(args, option, text, at);
}

int kvpi_model_args_device(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                           void *at)
{
    size_t n;
    const kvpi_device *all = kvpi_devices_all(&n), *found = kvpi_devices_find(text);
    kvpi_nearest nearest = kvpi_nearest_begin(text);
    *(const kvpi_device **)at = found;
    if (found != NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        kvpi_nearest_try(&nearest, all[i].name);
    return kvpi_args_wrong(args, "--device is '%s', which is not in %s%s", text, option->choices[0],
                           kvpi_nearest_say(&nearest).of);
}

int kvpi_model_args_find(const kvpi_args *args, const kvpi_model_args *model_args, kvpi_model *out)
{
    if (model_args->config_path != NULL) {
        kvpi_models_error error;
        if (kvpi_models_read(model_args->config_path, out, &error) != 0)
            return kvpi_tool_fail(args->command, "%s", error.text);
        if (out->strange[0] != '\0')
            kvpi_tool_fail(args->command,
                           "%s has %s, which this command does not know: check its KV, it may "
                           "differ",
                           out->name, out->strange);
        return TOOL_OK;
    }
    if (kvpi_models_find(model_args->model_name, out))
        return TOOL_OK;
    size_t n;
    const kvpi_models_row *all = kvpi_models_rows(&n);
    const char *slash = strrchr(model_args->model_name, '/');
    kvpi_nearest nearest = kvpi_nearest_begin(slash != NULL ? slash + 1 : model_args->model_name);
    for (size_t i = 0; i < n; i++)
        kvpi_nearest_try(&nearest, all[i].name);
    return kvpi_args_usage(args, "--model is '%s', which is not in %s (or give --model-config)%s",
                           model_args->model_name, model_args->list, kvpi_nearest_say(&nearest).of);
}

static kvpi_text of_heads(const kvpi_model *model)
{
    kvpi_text out = {""};
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps == KVPI_KEEPS_HEADS && strlen(out.of) + 24 < sizeof out.of)
            snprintf(out.of + strlen(out.of), sizeof out.of - strlen(out.of),
                     "%s %" PRIu32 " KV heads", out.of[0] == '\0' ? " with" : ",",
                     model->kinds[i].kv_heads);
    return out;
}

/* A block has whole entries. */
static int check_entries(const kvpi_args *args, const kvpi_model *model, kvpi_size_options *size)
{
    const uint32_t most = kvpi_models_longest_entry(model);
    if (size->block_tokens % most == 0)
        return TOOL_OK;
    if (kvpi_args_given(args, "--block-tokens"))
        return kvpi_args_usage(args,
                               "--block-tokens is %" PRIu64 ", and %s keeps an entry for %" PRIu32
                               " tokens: expected a multiple of %" PRIu32,
                               size->block_tokens, model->name, most, most);
    size->block_tokens = most;
    return TOOL_OK;
}

int kvpi_model_args_check(const kvpi_args *args, bool needs_weights, bool needs_parameters,
                          kvpi_model *model, kvpi_model_args *model_args)
{
    const bool kv_dtype_given = kvpi_args_given(args, "--dtype");
    const bool has_states = kvpi_models_layers(model, KVPI_KEEPS_STATE) > 0;
    kvpi_size_options *size = &model_args->size;
    if (!kvpi_models_divides(model, size->tensor_parallel))
        return kvpi_args_usage(
            args, "--tp is %" PRIu32 ", which does not divide %" PRIu32 " query heads%s%s",
            size->tensor_parallel, model->q_heads, of_heads(model).of,
            has_states ? ", or the heads of a state" : "");
    if (kvpi_args_given(args, "--state-dtype") && !has_states)
        return kvpi_args_usage(args, "--state-dtype needs a model with recurrent state");
    if (kvpi_args_given(args, "--index-dtype") && kvpi_models_find_index(model) == NULL)
        return kvpi_args_usage(
            args, "--index-dtype needs a model with an indexer, and '%s' has none", model->name);
    if (kvpi_args_given(args, "--index-dtype"))
        kvpi_models_set_index_dtype(model, model_args->index_dtype);
    if (!kvpi_args_given(args, "--state-dtype"))
        size->state_dtype = model->state_dtype;
    if (!kv_dtype_given && model->unknown_kv_dtype[0] != '\0')
        return kvpi_tool_fail(args->command, "%s: %s: give --dtype", model->name,
                              model->unknown_kv_dtype);
    if (!kv_dtype_given)
        size->kv_dtype = model->kv_dtype;
    if (size->kv_dtype == KVPI_DTYPE_K8V4 && kvpi_models_layers(model, KVPI_KEEPS_LATENT) > 0)
        return kvpi_args_usage(args,
                               "--dtype k8v4 is of keys and values, and '%s' keeps latent "
                               "vectors, which are both",
                               model->name);
    if (!kvpi_args_given(args, "--weights-dtype"))
        size->weights_dtype = model->weights_dtype;
    else
        model->unknown_dtype[0] = '\0';
    if (needs_parameters && model->unknown[0] != '\0')
        return kvpi_tool_fail(args->command,
                              "%s: %s, needed for the time of a step (or give rates, such as "
                              "--prompt-token-ns, or --sequential)",
                              model->name, model->unknown);
    if (check_entries(args, model, size) != TOOL_OK)
        return TOOL_USAGE;
    if (!needs_weights || size->weights_bytes != 0)
        return TOOL_OK;
    if (!kvpi_models_weighs(model))
        return kvpi_tool_fail(args->command,
                              "%s: %s, needed to count the weights (or give --weights)",
                              model->name, model->unknown);
    if (model->unknown_dtype[0] != '\0')
        return kvpi_tool_fail(args->command, "%s: %s: give --weights-dtype or --weights",
                              model->name, model->unknown_dtype);
    return TOOL_OK;
}

int kvpi_model_args_fail_full(const kvpi_args *args, const kvpi_model *model,
                              const kvpi_model_args *model_args, const kvpi_size *size)
{
    kvpi_size_options other = model_args->size;
    kvpi_size result;
    char hint[64] = "";
    for (other.tensor_parallel = 1; other.tensor_parallel <= model->q_heads;
         other.tensor_parallel++)
        if (kvpi_models_divides(model, other.tensor_parallel) &&
            kvpi_size_count(model, &other, &result) == 0) {
            snprintf(hint, sizeof hint, "; --tp %" PRIu32 " would fit", other.tensor_parallel);
            break;
        }
    return kvpi_tool_fail(args->command,
                          "%s: no room for KV: of %.2f GiB usable, weights take %.2f GiB and "
                          "overhead %.2f GiB%s",
                          model->name, kvpi_size_gib(size->usable_bytes),
                          kvpi_size_gib(size->weights_bytes), kvpi_size_gib(other.overhead_bytes),
                          hint);
}

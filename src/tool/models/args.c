/* Owns what the options about models and accelerators mean, and their messages. Two subcommands
 * have them: each keeps its own table of options and calls these for the values.
 */
#include "tool/models/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/size/report.h"
#include "tool/tool.h"

void kvpi_model_args_init(kvpi_model_args *model_args, const char *list, bool has_weights)
{
    *model_args = (kvpi_model_args){.list = list,
                                    .has_weights = has_weights,
                                    .size = {.tensor_parallel = 1,
                                             .block_tokens = 16,
                                             .context_tokens = 8192,
                                             .checkpoints = 2,
                                             .utilization_milli = 900,
                                             .overhead_bytes = KVPI_MODEL_ARGS_OVERHEAD_BYTES}};
}

int kvpi_model_args_dtype(const kvpi_args *args, int option, const char *value, bool of_kv,
                          kvpi_model_args *model_args)
{
    size_t choice = 0;
    if (kvpi_args_choice(args, option, value,
                         of_kv ? kvpi_models_kv_dtypes : kvpi_models_weights_dtypes, &choice) != 0)
        return KVPI_ARGS_WRONG;
    if (of_kv) {
        model_args->size.kv_dtype = (kvpi_dtype)choice;
        model_args->kv_dtype_given = true;
    } else {
        model_args->size.weights_dtype = (kvpi_dtype)choice;
        model_args->weights_dtype_given = true;
    }
    return 0;
}

int kvpi_model_args_state_dtype(const kvpi_args *args, int option, const char *value,
                                kvpi_model_args *model_args)
{
    static const char *const names[] = {"f32", "bf16", "f16", NULL};
    static const kvpi_dtype dtypes[] = {KVPI_DTYPE_F32, KVPI_DTYPE_BF16, KVPI_DTYPE_F16};
    size_t choice = 0;
    if (kvpi_args_choice(args, option, value, names, &choice) != 0)
        return KVPI_ARGS_WRONG;
    model_args->size.state_dtype = dtypes[choice];
    model_args->state_dtype_given = true;
    return 0;
}

int kvpi_model_args_tp(const kvpi_args *args, int option, const char *value,
                       kvpi_model_args *model_args)
{
    static const uint64_t range[2] = {1, KVPI_MODELS_MAX_HEADS};
    uint64_t number = 0;
    if (kvpi_args_number(args, option, value, range, &number) != 0)
        return KVPI_ARGS_WRONG;
    model_args->size.tensor_parallel = (uint32_t)number;
    return 0;
}

int kvpi_model_args_utilization(const kvpi_args *args, int option, const char *value,
                                kvpi_model_args *model_args)
{
    static const uint64_t range[2] = {1, 1000};
    return kvpi_args_milli(args, option, value, range, &model_args->size.utilization_milli);
}

int kvpi_model_args_overhead(const kvpi_args *args, int option, const char *value,
                             kvpi_model_args *model_args)
{
    model_args->size.overhead_bytes = 0;
    if (strcmp(value, "0") == 0)
        return 0;
    return kvpi_args_size(args, option, value, &model_args->size.overhead_bytes);
}

int kvpi_model_args_find(const kvpi_args *args, const kvpi_model_args *model_args, kvpi_model *out)
{
    if (model_args->config_path != NULL) {
        kvpi_models_error error;
        if (kvpi_models_read(model_args->config_path, out, &error) != 0)
            return kvpi_tool_fail(args->command, "%s", error.text);
        return TOOL_OK;
    }
    const kvpi_model *row = kvpi_models_find(model_args->model_name);
    if (row == NULL) {
        kvpi_args_wrong(args, "--model is '%s', which is not in %s (or give --model-config)",
                        model_args->model_name, model_args->list);
        return TOOL_USAGE;
    }
    *out = *row;
    return TOOL_OK;
}

int kvpi_model_args_check(const kvpi_args *args, bool needs_weights, kvpi_model *model,
                          kvpi_model_args *model_args)
{
    kvpi_size_options *size = &model_args->size;
    if (!kvpi_models_divides(model, size->tensor_parallel)) {
        kvpi_args_wrong(args,
                        "--tp is %" PRIu32 ", which does not divide %" PRIu32
                        " query heads with %" PRIu32 " KV heads%s",
                        size->tensor_parallel, model->attention.q_heads, model->attention.kv_heads,
                        model->states.n_layers > 0 ? ", or the heads of a state" : "");
        return TOOL_USAGE;
    }
    if (model_args->state_dtype_given && model->states.n_layers == 0) {
        kvpi_args_wrong(args, "--state-dtype needs a model with recurrent state");
        return TOOL_USAGE;
    }
    if (!model_args->state_dtype_given)
        size->state_dtype = model->states.dtype;
    if (!model_args->kv_dtype_given)
        size->kv_dtype = model->kv_dtype;
    if (!model_args->weights_dtype_given)
        size->weights_dtype = model->weights_dtype;
    else
        model->unknown_dtype[0] = '\0';
    if (!needs_weights)
        return TOOL_OK;
    if (model->unknown[0] != '\0')
        return kvpi_tool_fail(args->command, "%s: %s, needed to count the weights%s", model->name,
                              model->unknown,
                              model_args->has_weights ? " (or give --weights)" : "");
    if (model->unknown_dtype[0] != '\0')
        return kvpi_tool_fail(args->command, "%s: %s: give --weights-dtype%s", model->name,
                              model->unknown_dtype, model_args->has_weights ? " or --weights" : "");
    return TOOL_OK;
}

int kvpi_model_args_fail_full(const kvpi_args *args, const kvpi_model *model,
                              const kvpi_model_args *model_args, const kvpi_size *size)
{
    kvpi_size_options other = model_args->size;
    kvpi_size result;
    char hint[64] = "";
    for (other.tensor_parallel = 1; other.tensor_parallel <= model->attention.q_heads;
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

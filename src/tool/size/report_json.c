/* The figures of `kvpager size` for programs: one object, the names of which are an interface. */
#include <jansson.h>

#include "tool/size/report.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* NULL when the text is not UTF-8, as a path may be. */
static json_t *string_or_null(const char *text)
{
    json_t *value = text != NULL ? json_string(text) : NULL;
    return value != NULL ? value : json_null();
}

static json_t *integer_if(bool known, uint64_t value)
{
    return known ? integer(value) : json_null();
}

/* json_object_set_new takes over the value, and refuses NULL: so any failure shows in the sum. */
static int add_shape(json_t *object, const kvpi_model *model)
{
    const kvpi_models_attention *a = &model->attention;
    const kvpi_models_latent *latent = &model->latent;
    bool mla = latent->kv_rank > 0;
    int wrong = 0;
    wrong += json_object_set_new(object, "model", string_or_null(model->name));
    wrong += json_object_set_new(object, "source", string_or_null(model->source));
    wrong += json_object_set_new(object, "layers", integer(a->n_layers));
    wrong += json_object_set_new(object, "windowed_layers", integer(a->n_windowed));
    wrong += json_object_set_new(object, "window_tokens",
                                 integer_if(a->n_windowed > 0, a->window_tokens));
    wrong += json_object_set_new(object, "query_heads", integer(a->q_heads));
    wrong += json_object_set_new(object, "kv_heads", integer_if(!mla, a->kv_heads));
    wrong += json_object_set_new(object, "head_dim", integer_if(!mla, a->head_dim));
    wrong += json_object_set_new(object, "latent_values",
                                 integer_if(mla, (uint64_t)latent->kv_rank + latent->rope_dim));
    return wrong;
}

static int add_parameters(json_t *object, const kvpi_model *model)
{
    bool known = model->unknown[0] == '\0', published = model->parameters != 0;
    kvpi_models_count count = {.total = 0};
    if (known)
        count = kvpi_models_count_parameters(model);
    int wrong = 0;
    wrong += json_object_set_new(object, "parameters",
                                 integer_if(known, published ? model->parameters : count.total));
    wrong += json_object_set_new(object, "parameters_are_estimated",
                                 known ? json_boolean(!published) : json_null());
    wrong += json_object_set_new(object, "parameters_from_shape", integer_if(known, count.total));
    wrong += json_object_set_new(object, "active_parameters", integer_if(known, count.active));
    return wrong;
}

static int add_options(json_t *object, const kvpi_size_report *report)
{
    const kvpi_size_options *options = report->options;
    const kvpi_model *model = report->model;
    json_t *dtype = NULL;
    if (options->weights_bytes == 0 && model->unknown[0] == '\0' && model->unknown_dtype[0] == '\0')
        dtype = json_string(kvpi_models_weights_dtypes[options->weights_dtype]);
    int wrong = 0;
    wrong += json_object_set_new(object, "kv_dtype",
                                 json_string(kvpi_models_kv_dtypes[options->kv_dtype]));
    wrong += json_object_set_new(object, "weights_dtype", dtype != NULL ? dtype : json_null());
    wrong += json_object_set_new(object, "tensor_parallel", integer(options->tensor_parallel));
    wrong += json_object_set_new(object, "block_tokens", integer(options->block_tokens));
    wrong += json_object_set_new(object, "context_tokens", integer(options->context_tokens));
    wrong += json_object_set_new(object, "sink_tokens", integer(options->sink_tokens));
    return wrong;
}

static json_t *group_object(const kvpi_size_group *group, bool fits)
{
    json_t *object = json_object();
    bool windowed = group->window_tokens > 0;
    int wrong = 0;
    wrong += json_object_set_new(object, "layers", integer(group->n_layers));
    wrong +=
        json_object_set_new(object, "window_tokens", integer_if(windowed, group->window_tokens));
    wrong += json_object_set_new(object, "bytes_per_token", integer(group->token_bytes));
    wrong += json_object_set_new(object, "bytes_per_block", integer(group->block_bytes));
    wrong += json_object_set_new(object, "blocks_per_sequence", integer(group->sequence_blocks));
    wrong += json_object_set_new(object, "bytes_per_sequence", integer(group->sequence_bytes));
    wrong += json_object_set_new(object, "layer_groups", integer(group->n_rows));
    wrong += json_object_set_new(object, "blocks", integer_if(fits, group->blocks));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_kv(json_t *object, const kvpi_size_report *report)
{
    const kvpi_size *size = report->size;
    bool fits = report->options->memory_bytes != 0;
    json_t *groups = json_array();
    int wrong = 0;
    wrong += json_object_set_new(object, "bytes_per_token", integer(size->token_bytes));
    wrong += json_object_set_new(object, "bytes_per_block",
                                 integer(size->pool_token_bytes * report->options->block_tokens));
    wrong += json_object_set_new(object, "layers_per_group", integer(size->row_layers));
    wrong += json_object_set_new(object, "layer_groups", integer(size->n_rows));
    wrong += json_object_set_new(object, "padded_layers", integer(size->padded_layers));
    wrong += json_object_set_new(object, "blocks_per_sequence", integer(size->sequence_in_blocks));
    wrong += json_object_set_new(object, "bytes_per_sequence", integer(size->sequence_bytes));
    wrong += json_object_set_new(object, "groups", groups);
    for (uint32_t i = 0; wrong == 0 && i < size->n_groups; i++)
        wrong = json_array_append_new(groups, group_object(&size->groups[i], fits));
    return wrong;
}

static int add_memory(json_t *object, const kvpi_size_report *report)
{
    const kvpi_size_options *options = report->options;
    const kvpi_size *size = report->size;
    bool fits = options->memory_bytes != 0;
    const char *device = report->device != NULL ? report->device->name : NULL;
    int wrong = 0;
    wrong += json_object_set_new(object, "device", string_or_null(device));
    wrong += json_object_set_new(object, "memory_bytes", integer_if(fits, options->memory_bytes));
    wrong += json_object_set_new(object, "utilization",
                                 json_real((double)options->utilization_milli / 1000));
    wrong += json_object_set_new(object, "usable_bytes", integer_if(fits, size->usable_bytes));
    wrong += json_object_set_new(object, "weights_bytes", integer_if(fits, size->weights_bytes));
    wrong += json_object_set_new(object, "overhead_bytes", integer(options->overhead_bytes));
    wrong += json_object_set_new(object, "kv_memory_bytes", integer_if(fits, size->kv_bytes));
    wrong += json_object_set_new(object, "blocks", integer_if(fits, size->pool_blocks));
    wrong += json_object_set_new(object, "tokens", integer_if(fits, size->tokens));
    wrong += json_object_set_new(object, "sequences", integer_if(fits, size->sequences));
    return wrong;
}

/* Writes the object, unless something went wrong before, and lets go of it. */
static int finish(json_t *object, int wrong, FILE *file)
{
    if (wrong == 0)
        wrong = json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(object);
    return wrong != 0 || fputc('\n', file) == EOF ? -1 : 0;
}

int kvpi_size_print_json(const kvpi_size_report *report, FILE *file)
{
    json_t *object = json_object();
    int wrong = add_shape(object, report->model) + add_parameters(object, report->model) +
                add_options(object, report) + add_kv(object, report) + add_memory(object, report);
    return finish(object, wrong, file);
}

static json_t *model_object(const kvpi_model *model)
{
    json_t *object = json_object();
    int wrong = add_shape(object, model) + add_parameters(object, model);
    wrong += json_object_set_new(object, "weights_dtype",
                                 json_string(kvpi_models_weights_dtypes[model->weights_dtype]));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *device_object(const kvpi_device *device)
{
    json_t *object = json_object();
    int wrong = 0;
    wrong += json_object_set_new(object, "device", json_string(device->name));
    wrong += json_object_set_new(object, "title", json_string(device->title));
    wrong += json_object_set_new(object, "memory_bytes", integer(device->memory_bytes));
    wrong += json_object_set_new(object, "bytes_per_second", json_real(device->bytes_per_second));
    wrong += json_object_set_new(object, "bf16_flops", json_real(device->flops));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

int kvpi_size_list_json(FILE *file)
{
    size_t n_models, n_devices;
    const kvpi_model *models = kvpi_models_all(&n_models);
    const kvpi_device *devices = kvpi_devices_all(&n_devices);
    json_t *object = json_object(), *of_models = json_array(), *of_devices = json_array();
    int wrong = json_object_set_new(object, "models", of_models) +
                json_object_set_new(object, "devices", of_devices);
    for (size_t i = 0; wrong == 0 && i < n_models; i++)
        wrong = json_array_append_new(of_models, model_object(&models[i]));
    for (size_t i = 0; wrong == 0 && i < n_devices; i++)
        wrong = json_array_append_new(of_devices, device_object(&devices[i]));
    return finish(object, wrong, file);
}

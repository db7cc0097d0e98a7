/* kvpager size: how many bytes of KV a model needs, and how much fits beside its weights.
 *
 * Owns the options and what they mean together. Models and accelerators are in models*.c and
 * devices.c, the arithmetic in size.c, what is printed in size_report.c.
 */
#include <inttypes.h>
#include <kvpager/kvpager.h>
#include <string.h>

#include "args.h"
#include "devices.h"
#include "models.h"
#include "size.h"
#include "size_report.h"
#include "tool.h"

/* Activations of a prefill step of a few thousand tokens, captured graphs, buffers of collectives:
 * between one and four GiB in engines of today. Measure yours. */
#define DEFAULT_OVERHEAD_BYTES (UINT64_C(2) << 30)

#define MAX_CONTEXT_TOKENS (UINT64_C(1) << 27) /* models.h counts on it */

typedef struct size_command {
    kvpi_size_options size;
    const char *model_name;
    const char *config_path;
    const kvpi_device *device;
    bool kv_dtype_given;
    bool weights_dtype_given;
    bool json;
    bool list;
    bool help;
} size_command;

enum {
    OPT_MODEL,
    OPT_MODEL_CONFIG,
    OPT_DEVICE,
    OPT_MEMORY,
    OPT_TP,
    OPT_DTYPE,
    OPT_BLOCK_TOKENS,
    OPT_CONTEXT,
    OPT_SINKS,
    OPT_WEIGHTS_DTYPE,
    OPT_WEIGHTS,
    OPT_UTILIZATION,
    OPT_OVERHEAD,
    OPT_JSON,
    OPT_LIST,
    OPT_HELP
};

static const kvpi_args_option options_table[] = {
    [OPT_MODEL] = {"--model", "NAME", "a model of --list", 0},
    [OPT_MODEL_CONFIG] = {"--model-config", "FILE",
                          "or any model: its Hugging Face config.json; '-' is\n"
                          "standard input",
                          0},
    [OPT_DEVICE] = {"--device", "NAME", "an accelerator of --list", 0},
    [OPT_MEMORY] = {"--memory", "SIZE",
                    "or its memory, such as 80GiB or 24G (K, M, G, T are\n"
                    "powers of 1024, kB, MB ... of 1000)",
                    0},
    [OPT_TP] = {"--tp", "N",
                "tensor parallel over N accelerators (default 1): KV\n"
                "heads and weights are divided; KV heads are repeated\n"
                "when there are fewer, latent vectors (MLA) always",
                0},
    [OPT_DTYPE] = {"--dtype", "TYPE", "of KV: bf16, f16, f32, fp8, int8\n(default: the model's)",
                   0},
    [OPT_BLOCK_TOKENS] = {"--block-tokens", "N", "tokens per block, 1 to 65536 (default 16)", 0},
    [OPT_CONTEXT] = {"--context", "N", "tokens of a sequence (default 8192)", 0},
    [OPT_SINKS] = {"--sinks", "N", "first tokens that layers with a window keep too\n(default 0)",
                   0},
    [OPT_WEIGHTS_DTYPE] = {"--weights-dtype", "TYPE",
                           "bf16, f16, f32, fp8, int8, int4, mxfp4 (default: the\n"
                           "model's)",
                           0},
    [OPT_WEIGHTS] = {"--weights", "SIZE", "of all weights, instead of counting parameters", 0},
    [OPT_UTILIZATION] = {"--utilization", "F", "share of the memory that is used (default 0.9)", 0},
    [OPT_OVERHEAD] = {"--overhead", "SIZE",
                      "activations, graphs, buffers on each accelerator\n(default 2GiB)", 0},
    [OPT_JSON] = {"--json", NULL, "print one JSON object instead of the table", 0},
    [OPT_LIST] = {"--list", NULL, "print the models and accelerators that have names", 0},
    [OPT_HELP] = {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS (sizeof options_table / sizeof *options_table)

static void print_help(void)
{
    fputs("Usage: kvpager size --model NAME [OPTIONS]\n"
          "       kvpager size --model-config FILE [OPTIONS]\n"
          "       kvpager size --list\n"
          "\n"
          "Say how many bytes of KV a model needs per token, block and sequence and, with\n"
          "--device or --memory, how many blocks, tokens and sequences fit beside its\n"
          "weights. Known: grouped-query attention, multi-head latent attention (MLA),\n"
          "layers with a sliding window.\n"
          "\n"
          "Options:\n",
          stdout);
    kvpi_args_print(options_table, N_OPTIONS);
    fputs("\n"
          "A layer with a window of R tokens needs no more blocks than the window touches:\n"
          "ceil((R - 1) / block) + 1, and ceil(N / block) for N sinks. The two kinds of\n"
          "layers share the memory as sequences of --context tokens fill it, one after the\n"
          "other, the last one as far as it goes.\n"
          "\n"
          "In --json all bytes are of one accelerator; \"groups\" has the layers without a\n"
          "window first; what was not asked for or is not known is null.\n",
          stdout);
}

/* ---------------------------------------------------------------------------------- options */

static int apply_dtype(const kvpi_args *args, int option, const char *value, size_command *command)
{
    size_t choice = 0;
    bool of_kv = option == OPT_DTYPE;
    if (kvpi_args_choice(args, option, value,
                         of_kv ? kvpi_models_kv_dtypes : kvpi_models_weights_dtypes, &choice) != 0)
        return KVPI_ARGS_WRONG;
    if (of_kv) {
        command->size.kv_dtype = (kvpi_dtype)choice;
        command->kv_dtype_given = true;
    } else {
        command->size.weights_dtype = (kvpi_dtype)choice;
        command->weights_dtype_given = true;
    }
    return 0;
}

static int apply_number(const kvpi_args *args, int option, const char *value, size_command *command)
{
    static const uint64_t block_tokens[2] = {1, KVP_BLOCK_TOKENS_MAX};
    static const uint64_t context[2] = {1, MAX_CONTEXT_TOKENS}, sinks[2] = {0, MAX_CONTEXT_TOKENS};
    static const uint64_t tp[2] = {1, KVPI_MODELS_MAX_HEADS}, share[2] = {1, 1000};
    kvpi_size_options *size = &command->size;
    uint64_t number = 0;
    switch (option) {
    case OPT_BLOCK_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &size->block_tokens);
    case OPT_CONTEXT: return kvpi_args_number(args, option, value, context, &size->context_tokens);
    case OPT_SINKS: return kvpi_args_number(args, option, value, sinks, &size->sink_tokens);
    case OPT_UTILIZATION:
        return kvpi_args_milli(args, option, value, share, &size->utilization_milli);
    case OPT_TP:
        if (kvpi_args_number(args, option, value, tp, &number) != 0)
            return KVPI_ARGS_WRONG;
        size->tensor_parallel = (uint32_t)number;
        return 0;
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_device(const kvpi_args *args, const char *value, size_command *command)
{
    command->device = kvpi_devices_find(value);
    if (command->device == NULL)
        return kvpi_args_wrong(args, "--device is '%s', which is not in --list (or give --memory)",
                               value);
    return 0;
}

static int apply_option(const kvpi_args *args, int option, const char *value, size_command *command)
{
    kvpi_size_options *size = &command->size;
    switch (option) {
    case OPT_MODEL: command->model_name = value; return 0;
    case OPT_MODEL_CONFIG: command->config_path = value; return 0;
    case OPT_DEVICE: return apply_device(args, value, command);
    case OPT_MEMORY: return kvpi_args_size(args, option, value, &size->memory_bytes);
    case OPT_WEIGHTS: return kvpi_args_size(args, option, value, &size->weights_bytes);
    case OPT_OVERHEAD:
        size->overhead_bytes = 0;
        return strcmp(value, "0") == 0 ? 0
                                       : kvpi_args_size(args, option, value, &size->overhead_bytes);
    case OPT_DTYPE:
    case OPT_WEIGHTS_DTYPE: return apply_dtype(args, option, value, command);
    case OPT_JSON: command->json = true; return 0;
    case OPT_LIST: command->list = true; return 0;
    case OPT_HELP: command->help = true; return 0;
    case KVPI_ARGS_OPERAND:
        return kvpi_args_wrong(args, "'%s' is not expected: a file is named with --model-config",
                               value);
    default: return apply_number(args, option, value, command);
    }
}

static int check_options(const kvpi_args *args, size_command *command)
{
    if (command->list)
        return 0;
    if (command->model_name == NULL && command->config_path == NULL)
        return kvpi_args_wrong(args, "no model is named: --model, --model-config");
    if (command->model_name != NULL && command->config_path != NULL)
        return kvpi_args_wrong(args, "--model and --model-config exclude each other");
    if (command->device != NULL && command->size.memory_bytes != 0)
        return kvpi_args_wrong(args, "--device and --memory exclude each other");
    if (command->device != NULL)
        command->size.memory_bytes = command->device->memory_bytes;
    return 0;
}

static int parse_options(kvpi_args *args, size_command *command)
{
    const char *value = NULL;
    for (;;) {
        int option = kvpi_args_next(args, &value);
        if (option == KVPI_ARGS_END)
            return check_options(args, command);
        if (apply_option(args, option, value, command) != 0)
            return -1;
        if (command->help)
            return 0;
    }
}

/* ------------------------------------------------------------------------------- the command */

static int find_model(const kvpi_args *args, const size_command *command, kvpi_model *out)
{
    if (command->config_path != NULL) {
        kvpi_models_error error;
        if (kvpi_models_read(command->config_path, out, &error) != 0)
            return kvpi_tool_fail("size", "%s", error.text);
        return TOOL_OK;
    }
    const kvpi_model *row = kvpi_models_find(command->model_name);
    if (row == NULL) {
        kvpi_args_wrong(args, "--model is '%s', which is not in --list (or give --model-config)",
                        command->model_name);
        return TOOL_USAGE;
    }
    *out = *row;
    return TOOL_OK;
}

/* Options that the model does not go with. */
static int check_model(const kvpi_args *args, kvpi_model *model, size_command *command)
{
    kvpi_size_options *size = &command->size;
    if (!kvpi_models_divides(model, size->tensor_parallel)) {
        kvpi_args_wrong(args,
                        "--tp is %" PRIu32 ", which does not divide %" PRIu32
                        " query heads with %" PRIu32 " KV heads",
                        size->tensor_parallel, model->attention.q_heads, model->attention.kv_heads);
        return TOOL_USAGE;
    }
    if (size->sink_tokens > 0 && model->attention.n_windowed == 0) {
        kvpi_args_wrong(args, "--sinks needs a model with sliding-window layers");
        return TOOL_USAGE;
    }
    if (!command->kv_dtype_given)
        size->kv_dtype = model->kv_dtype;
    if (!command->weights_dtype_given)
        size->weights_dtype = model->weights_dtype;
    else
        model->unknown_dtype[0] = '\0';
    if (size->memory_bytes == 0 || size->weights_bytes != 0)
        return TOOL_OK;
    if (model->unknown[0] != '\0')
        return kvpi_tool_fail("size", "%s: %s, needed to count the weights (or give --weights)",
                              model->name, model->unknown);
    if (model->unknown_dtype[0] != '\0')
        return kvpi_tool_fail("size", "%s: %s: give --weights-dtype or --weights", model->name,
                              model->unknown_dtype);
    return TOOL_OK;
}

/* Looks for the smallest number of accelerators on which the model leaves room for KV. */
static int fail_full(const kvpi_model *model, const kvpi_size_options *options,
                     const kvpi_size *size)
{
    kvpi_size_options other = *options;
    kvpi_size result;
    char hint[64] = "";
    for (other.tensor_parallel = 1; other.tensor_parallel <= model->attention.q_heads;
         other.tensor_parallel++)
        if (kvpi_models_divides(model, other.tensor_parallel) &&
            kvpi_size_count(model, &other, &result) == 0) {
            snprintf(hint, sizeof hint, "; --tp %" PRIu32 " would fit", other.tensor_parallel);
            break;
        }
    return kvpi_tool_fail("size",
                          "%s: no room for KV: of %.2f GiB usable, weights take %.2f GiB and "
                          "overhead %.2f GiB%s",
                          model->name, kvpi_size_gib(size->usable_bytes),
                          kvpi_size_gib(size->weights_bytes),
                          kvpi_size_gib(options->overhead_bytes), hint);
}

static int count_and_report(const kvpi_model *model, const size_command *command)
{
    kvpi_size size;
    const kvpi_size_report report = {
        .model = model, .device = command->device, .options = &command->size, .size = &size};
    if (kvpi_size_count(model, &command->size, &size) != 0)
        return fail_full(model, &command->size, &size);
    if (!command->json)
        kvpi_size_print(&report, stdout);
    else if (kvpi_size_print_json(&report, stdout) != 0 && !ferror(stdout))
        return kvpi_tool_fail("size", "out of memory");
    return TOOL_OK;
}

static int list(const size_command *command)
{
    if (!command->json)
        kvpi_size_list(stdout);
    else if (kvpi_size_list_json(stdout) != 0 && !ferror(stdout))
        return kvpi_tool_fail("size", "out of memory");
    return TOOL_OK;
}

int cmd_size(int argc, char **argv)
{
    kvpi_args args = {.command = "size",
                      .argc = argc,
                      .argv = argv,
                      .options = options_table,
                      .n_options = N_OPTIONS,
                      .next = 1};
    size_command command = {.size = {.tensor_parallel = 1,
                                     .block_tokens = 16,
                                     .context_tokens = 8192,
                                     .utilization_milli = 900,
                                     .overhead_bytes = DEFAULT_OVERHEAD_BYTES}};
    kvpi_model model;
    if (parse_options(&args, &command) != 0)
        return TOOL_USAGE;
    if (command.help) {
        print_help();
        return TOOL_OK;
    }
    if (command.list)
        return list(&command);
    int status = find_model(&args, &command, &model);
    if (status == TOOL_OK)
        status = check_model(&args, &model, &command);
    if (status == TOOL_OK)
        status = count_and_report(&model, &command);
    return status;
}

/* kvpager size: how many bytes of KV a model needs, and how much fits beside its weights.
 *
 * Owns the options and what they mean together. Models and accelerators are in models*.c and
 * devices.c, the arithmetic in size.c, what is printed in tool/size/report.c.
 */
#include <inttypes.h>
#include <kvpager/kvpager.h>
#include <string.h>

#include "tool/args.h"
#include "tool/models/devices.h"
#include "tool/models/args.h"
#include "tool/size/size.h"
#include "tool/size/report.h"
#include "tool/tool.h"

#define MAX_CONTEXT_TOKENS (UINT64_C(1) << 27) /* models.h counts on it */

typedef struct size_command {
    kvpi_model_args model;
    bool checkpoints_given;
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
    OPT_STATE_DTYPE,
    OPT_CHECKPOINTS,
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
    [OPT_STATE_DTYPE] = {"--state-dtype", "TYPE",
                         "of the matrices of recurrent states: f32, bf16, f16\n(default: what the "
                         "file says, or f32)",
                         0},
    [OPT_CHECKPOINTS] = {"--checkpoints", "N",
                         "states that a sequence keeps, besides the one it goes\non with "
                         "(default 2)",
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
          "layers with a sliding window, layers with recurrent state beside attention\n"
          "(gated delta nets, Kimi Linear, Mamba, Mamba-2, lightning attention, short\n"
          "convolutions).\n"
          "\n"
          "Options:\n",
          stdout);
    kvpi_args_print(options_table, N_OPTIONS);
    fputs("\n"
          "A layer with a window of R tokens needs no more blocks than the window touches:\n"
          "ceil((R - 1) / block) + 1, and ceil(N / block) for N sinks. A model with both\n"
          "kinds of layers is cut into layer groups of equally many layers, so that they\n"
          "share one pool of equal blocks, 'kvpager replay' alike: the layers without a\n"
          "window exactly, the others padded. Sequences of --context tokens fill the pool,\n"
          "one after the other, the last one as far as it goes. (While a prompt is\n"
          "computed, its sequence needs blocks of all its tokens in all groups.)\n"
          "\n"
          "Recurrent states have slots of their own. The memory is shared so that sequences\n"
          "of --context tokens run out of blocks and slots together. The parameters of such\n"
          "models are not counted: give --weights.\n"
          "\n"
          "In --json all bytes are of one accelerator; \"groups\" has the layers without a\n"
          "window first, with blocks of S tokens in all of them; \"blocks\" and\n"
          "\"bytes_per_block\" are of the pool; what was not asked for or is not known is\n"
          "null.\n",
          stdout);
}

/* ---------------------------------------------------------------------------------- options */

static int apply_number(const kvpi_args *args, int option, const char *value, size_command *command)
{
    static const uint64_t block_tokens[2] = {1, KVP_BLOCK_TOKENS_MAX};
    static const uint64_t checkpoints[2] = {0, KVPI_MODELS_MAX_CHECKPOINTS};
    static const uint64_t context[2] = {1, MAX_CONTEXT_TOKENS}, sinks[2] = {0, MAX_CONTEXT_TOKENS};
    kvpi_size_options *size = &command->model.size;
    switch (option) {
    case OPT_BLOCK_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &size->block_tokens);
    case OPT_CONTEXT: return kvpi_args_number(args, option, value, context, &size->context_tokens);
    case OPT_SINKS: return kvpi_args_number(args, option, value, sinks, &size->sink_tokens);
    case OPT_CHECKPOINTS:
        command->checkpoints_given = true;
        return kvpi_args_number(args, option, value, checkpoints, &size->checkpoints);
    case OPT_UTILIZATION: return kvpi_model_args_utilization(args, option, value, &command->model);
    case OPT_TP: return kvpi_model_args_tp(args, option, value, &command->model);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_device(const kvpi_args *args, const char *value, size_command *command)
{
    command->model.device = kvpi_devices_find(value);
    if (command->model.device == NULL)
        return kvpi_args_wrong(args, "--device is '%s', which is not in --list (or give --memory)",
                               value);
    return 0;
}

static int apply_option(const kvpi_args *args, int option, const char *value, size_command *command)
{
    kvpi_size_options *size = &command->model.size;
    switch (option) {
    case OPT_MODEL: command->model.model_name = value; return 0;
    case OPT_MODEL_CONFIG: command->model.config_path = value; return 0;
    case OPT_DEVICE: return apply_device(args, value, command);
    case OPT_MEMORY: return kvpi_args_size(args, option, value, &size->memory_bytes);
    case OPT_WEIGHTS: return kvpi_args_size(args, option, value, &size->weights_bytes);
    case OPT_OVERHEAD: return kvpi_model_args_overhead(args, option, value, &command->model);
    case OPT_DTYPE: return kvpi_model_args_dtype(args, option, value, true, &command->model);
    case OPT_STATE_DTYPE: return kvpi_model_args_state_dtype(args, option, value, &command->model);
    case OPT_WEIGHTS_DTYPE:
        return kvpi_model_args_dtype(args, option, value, false, &command->model);
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
    kvpi_model_args *model = &command->model;
    if (command->list)
        return 0;
    if (model->model_name == NULL && model->config_path == NULL)
        return kvpi_args_wrong(args, "no model is named: --model, --model-config");
    if (model->model_name != NULL && model->config_path != NULL)
        return kvpi_args_wrong(args, "--model and --model-config exclude each other");
    if (model->device != NULL && model->size.memory_bytes != 0)
        return kvpi_args_wrong(args, "--device and --memory exclude each other");
    if (model->device != NULL)
        model->size.memory_bytes = model->device->memory_bytes;
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

static int check_model(const kvpi_args *args, kvpi_model *model, size_command *command)
{
    const kvpi_size_options *size = &command->model.size;
    if (size->sink_tokens > 0 && model->attention.n_windowed == 0) {
        kvpi_args_wrong(args, "--sinks needs a model with sliding-window layers");
        return TOOL_USAGE;
    }
    if (size->sink_tokens > 0 && model->chunked) {
        kvpi_args_wrong(args, "--sinks needs a sliding window, and '%s' attends in chunks",
                        model->name);
        return TOOL_USAGE;
    }
    if (command->checkpoints_given && model->states.n_layers == 0) {
        kvpi_args_wrong(args, "--checkpoints needs a model with recurrent state");
        return TOOL_USAGE;
    }
    bool needs_weights = size->memory_bytes != 0 && size->weights_bytes == 0;
    return kvpi_model_args_check(args, needs_weights, model, &command->model);
}

static int count_and_report(const kvpi_args *args, const kvpi_model *model,
                            const size_command *command)
{
    kvpi_size size;
    const kvpi_size_report report = {.model = model,
                                     .device = command->model.device,
                                     .options = &command->model.size,
                                     .size = &size};
    if (kvpi_size_count(model, &command->model.size, &size) != 0)
        return kvpi_model_args_fail_full(args, model, &command->model, &size);
    if (command->json)
        return kvpi_figures_tell("size", kvpi_size_figures(&report));
    kvpi_size_print(&report, stdout);
    return TOOL_OK;
}

static int list(const size_command *command)
{
    if (command->json)
        return kvpi_figures_tell("size", kvpi_size_list_figures());
    kvpi_size_list(stdout);
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
    size_command command = {.json = false};
    kvpi_model model;
    kvpi_model_args_init(&command.model, "--list", true);
    if (parse_options(&args, &command) != 0)
        return TOOL_USAGE;
    if (command.help) {
        print_help();
        return TOOL_OK;
    }
    if (command.list)
        return list(&command);
    int status = kvpi_model_args_find(&args, &command.model, &model);
    if (status == TOOL_OK)
        status = check_model(&args, &model, &command);
    if (status == TOOL_OK)
        status = count_and_report(&args, &model, &command);
    return status;
}

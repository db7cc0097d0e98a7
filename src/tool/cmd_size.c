/* kvpager size: how many bytes of KV a model needs, and how much fits beside its weights.
 *
 * Owns the options and what they mean together. Models and accelerators are in models*.c and
 * devices.c, the arithmetic in size.c, what is printed in tool/size/size_report.c.
 */
#include <inttypes.h>
#include <kvpager/all.h>
#include <string.h>

#include "tool/args.h"
#include "tool/models/devices.h"
#include "tool/models/gguf.h"
#include "tool/models/models_args.h"
#include "tool/size/engine_report.h"
#include "tool/size/size.h"
#include "tool/size/size_report.h"
#include "tool/tool.h"

#define MAX_CONTEXT_TOKENS (UINT64_C(1) << 27) /* models.h counts on it */

typedef struct size_command {
    kvpi_model_args model;
    kvpi_engine_options engine;
    const char *gguf_path;
    kvpi_gguf gguf;
    bool json;
    bool list;
} size_command;

#define AT(member) .at = offsetof(size_command, member)

static int refuse_operand(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                          void *at)
{
    (void)option;
    (void)at;
    return kvpi_args_wrong(
        args, "'%s' is not expected: a file is named with --model-config or --gguf", text);
}

static const kvpi_args_option options_table[] = {
    {"--model", "NAME", "a model of --list, or its Hugging Face id", kvpi_args_text,
     AT(model.model_name), .title = "Options"},
    KVPI_MODEL_CONFIG(size_command, model,
                      "or any model: its Hugging Face config.json; '-' is\n"
                      "standard input"),
    {"--gguf", "FILE",
     "or any model: its GGUF file, of which the first\n"
     "megabytes will do; '-' is standard input",
     kvpi_args_text, AT(gguf_path)},
    KVPI_MODEL_DEVICE(size_command, model, "an accelerator of --list", kvpi_model_args_list),
    {"--memory", "SIZE",
     "or its memory, such as 80GiB or 24G (K, M, G, T are\n"
     "powers of 1024, kB, MB ... of 1000)",
     kvpi_args_size, AT(model.size.memory_bytes)},
    KVPI_MODEL_TP(size_command, model,
                  "tensor parallel over N accelerators (default 1): KV\n"
                  "heads and weights are divided; KV heads are repeated\n"
                  "when there are fewer, latent vectors (MLA) always"),
    KVPI_MODEL_DTYPE(size_command, model, "\n(default: the model's)"),
    KVPI_MODEL_INDEX_DTYPE(size_command, model),
    {"--block-tokens", "N", "tokens per block, 1 to 65536 (default 16)", kvpi_args_number,
     AT(model.size.block_tokens), 1, KVP_BLOCK_TOKENS_MAX},
    {"--context", "N", "tokens of a sequence (default 8192)", kvpi_args_number,
     AT(model.size.context_tokens), 1, MAX_CONTEXT_TOKENS},
    {"--sinks", "N", "first tokens that layers with a window keep too\n(default 0)",
     kvpi_args_number, AT(model.size.sink_tokens), 0, MAX_CONTEXT_TOKENS},
    KVPI_MODEL_STATE_DTYPE(size_command, model),
    {"--checkpoints", "N",
     "states that a sequence keeps, besides the one it goes\non with "
     "(default 2)",
     kvpi_args_number, AT(model.size.checkpoints), 0, KVPI_MODELS_MAX_CHECKPOINTS},
    KVPI_MODEL_MEMORY(size_command, model,
                      "activations, graphs, buffers on each accelerator\n(default 2GiB)"),
    {"--engine", "NAME",
     "also what vllm would log when it starts, or what\n"
     "llama.cpp would allocate",
     kvpi_args_choice, AT(engine.engine), .choices = kvpi_engine_names},
    {"--batch", "N",
     "tokens of its steps: --max-num-batched-tokens, -ub\n"
     "(default: the engine's)",
     kvpi_args_number, AT(engine.batch_tokens), 1, MAX_CONTEXT_TOKENS},
    {"--parallel", "N",
     "llama.cpp's -np: sequences (default 1), which share\n"
     "--context, its -c",
     kvpi_args_number32, AT(engine.n_sequences), 1, 256},
    {"--kv-unified", NULL, "llama.cpp's: one cache for all sequences", kvpi_args_yes,
     AT(engine.unified)},
    {"--swa-full", NULL, "llama.cpp's: windows have cells for all tokens", kvpi_args_yes,
     AT(engine.full_windows)},
    {"--json", NULL, "print one JSON object instead of the table", kvpi_args_yes, AT(json)},
    {"--list", NULL, "print the models and accelerators that have names", kvpi_args_yes, AT(list)},
    KVPI_ARGS_HELP,
    {.read = refuse_operand},
};

/* Options of an engine; its defaults are set. */
static int check_engine(const kvpi_args *args, size_command *command)
{
    static const char *const of_llama[] = {"--parallel", "--kv-unified", "--swa-full", NULL};
    kvpi_size_options *size = &command->model.size;
    const kvpi_engine engine = command->engine.engine;
    if (engine == KVPI_ENGINE_NONE && kvpi_args_given(args, "--batch"))
        return kvpi_args_needs(args, "--batch", "--engine");
    if (engine != KVPI_ENGINE_LLAMA && kvpi_args_any(args, of_llama) != NULL)
        return kvpi_args_needs(args, kvpi_args_any(args, of_llama), "--engine llama.cpp");
    if (engine == KVPI_ENGINE_NONE)
        return 0;
    if (kvpi_args_given(args, "--index-dtype")) /* of their own */
        return kvpi_args_exclude(args, "--index-dtype", "--engine");
    if (!kvpi_args_given(args, "--utilization"))
        size->utilization_milli = engine == KVPI_ENGINE_VLLM ? KVPI_VLLM_UTILIZATION_MILLI : 1000;
    if (engine == KVPI_ENGINE_LLAMA && size->tensor_parallel > 1)
        return kvpi_args_exclude(args, "--tp", "--engine llama.cpp");
    if (engine == KVPI_ENGINE_VLLM && size->block_tokens % 16 != 0)
        return kvpi_args_wrong(
            args, "--block-tokens is %" PRIu64 ", expected a multiple of 16 with --engine vllm",
            size->block_tokens);
    return 0;
}

static int check_options(const kvpi_args *args, void *options)
{
    size_command *command = options;
    kvpi_model_args *model = &command->model;
    if (command->list)
        return 0;
    static const char *const names[] = {"--model", "--model-config", "--gguf", NULL};
    const char *name = kvpi_args_any(args, names);
    if (name == NULL)
        return kvpi_args_wrong(args, "no model is named: --model, --model-config, --gguf");
    for (size_t i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) != 0 && kvpi_args_given(args, names[i]))
            return kvpi_args_exclude(args, name, names[i]);
    if (command->gguf_path != NULL && kvpi_args_given(args, "--weights-dtype"))
        return kvpi_args_exclude(args, "--gguf", "--weights-dtype");
    if (check_engine(args, command) != 0)
        return KVPI_ARGS_WRONG;
    if (model->device != NULL && model->size.memory_bytes != 0)
        return kvpi_args_wrong(args, "--device and --memory exclude each other");
    if (model->device != NULL)
        model->size.memory_bytes = model->device->memory_bytes;
    return 0;
}

static const kvpi_args_command size_options = {
    .name = "size",
    .about = "Usage: kvpager size --model NAME [OPTIONS]\n"
             "       kvpager size --model-config FILE [OPTIONS]\n"
             "       kvpager size --gguf FILE [OPTIONS]\n"
             "       kvpager size --list\n"
             "\n"
             "Say how many bytes of KV a model needs per token, block and sequence and, with\n"
             "--device or --memory, how many blocks, tokens and sequences fit beside its\n"
             "weights. Known: grouped-query attention, multi-head latent attention (MLA),\n"
             "indexers, layers with a sliding window or with an entry for several tokens,\n"
             "layers that share KV or loop, recurrent state (gated delta nets, Kimi delta\n"
             "attention, Mamba, Mamba-2, lightning attention, short convolutions, RG-LRU).\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table,
    .more = "\n"
            "A layer with a window of R tokens needs no more blocks than the window touches:\n"
            "ceil((R - 1) / block) + 1, and ceil(N / block) for N sinks. Layers that keep\n"
            "different tokens are cut into layer groups that share one pool of blocks of\n"
            "equal bytes, 'kvpager replay' alike. A group's blocks have --block-tokens, or 2,\n"
            "4, 8 or 16 times as many: so that a sequence of 8,192 tokens has the fewest\n"
            "bytes in whole blocks. Sequences of --context tokens fill the pool, one after\n"
            "the other, the last one as far as it goes. (While a prompt is computed, its\n"
            "sequence needs blocks of all its tokens in all groups.)\n"
            "\n"
            "Recurrent states have slots of their own. The memory is shared so that sequences\n"
            "of --context tokens run out of blocks and slots together.\n"
            "\n"
            "'token', 'entry', 'index key', 'state' and 'context' are the model's own, in\n"
            "any engine. Blocks, slots and groups are kvpager's. A block has whole entries:\n"
            "--block-tokens is a multiple of their tokens, and by default at least as many.\n"
            "In fp8, latent vectors beside an indexer have scales and a rope part of 16 bits,\n"
            "as engines store them: 656 B in DeepSeek V3.2. Index keys are then fp8, too,\n"
            "unless --index-dtype says another type.\n"
            "\n"
            "With --engine, lines below \"By the rules of\" are what that release computes from\n"
            "the memory for KV, which stays an estimate of this command. --utilization is\n"
            "then 0.92 (vllm) or 1 (llama.cpp) by default, --dtype of llama.cpp f16, and\n"
            "--state-dtype of vllm the activations', unless the file says another.\n"
            "\n"
            "In --json all bytes are of one accelerator; \"groups\" has the layers without a\n"
            "window first, with blocks of S tokens in all of them; \"blocks\" and\n"
            "\"bytes_per_block\" are of the pool; what was not asked for or is not known is\n"
            "null.\n",
    .check = check_options};

/* ------------------------------------------------------------------------------- the command */

static int check_model(const kvpi_args *args, kvpi_model *model, size_command *command)
{
    const kvpi_size_options *size = &command->model.size;
    const kvpi_models_kind *windowed = kvpi_models_find_window(model);
    if (size->sink_tokens > 0 && windowed == NULL)
        return kvpi_args_usage(args, "--sinks needs a model with sliding-window layers");
    if (size->sink_tokens > 0 && windowed->chunked)
        return kvpi_args_usage(args, "--sinks needs a sliding window, and '%s' attends in chunks",
                               model->name);
    if (kvpi_args_given(args, "--checkpoints") && kvpi_models_layers(model, KVPI_KEEPS_STATE) == 0)
        return kvpi_args_usage(args, "--checkpoints needs a model with recurrent state");
    if (command->engine.engine == KVPI_ENGINE_LLAMA && !kvpi_args_given(args, "--dtype"))
        model->kv_dtype = KVPI_DTYPE_F16, model->unknown_kv_dtype[0] = '\0';
    if (command->engine.engine == KVPI_ENGINE_VLLM && !model->state_dtype_is_said)
        model->state_dtype = model->activations_dtype;
    const int status =
        kvpi_model_args_check(args, size->memory_bytes != 0, false, model, &command->model);
    if (status == TOOL_OK && command->engine.engine != KVPI_ENGINE_NONE &&
        !kvpi_engine_has_dtype(command->engine.engine, size->kv_dtype))
        return kvpi_args_usage(args, "--dtype is %s, expected one that %s has: bf16, f16, f32, %s",
                               kvpi_models_dtypes[size->kv_dtype],
                               kvpi_engine_names[command->engine.engine],
                               command->engine.engine == KVPI_ENGINE_VLLM ? "fp8" : "q8_0, q4_0");
    return status;
}

static json_t *gguf_figures(const kvpi_model *model, const kvpi_gguf *gguf)
{
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_text(&figures, "architecture", gguf->architecture);
    kvpi_figures_integer(&figures, "version", gguf->version);
    kvpi_figures_integer(&figures, "tensors", gguf->n_tensors);
    kvpi_figures_integer_if(&figures, model->parameters > 0, "parameters", model->parameters);
    kvpi_figures_integer_if(&figures, gguf->weights_bytes > 0, "weights_bytes",
                            gguf->weights_bytes);
    kvpi_figures_integer_if(&figures, gguf->context_tokens > 0, "context_tokens",
                            gguf->context_tokens);
    return kvpi_figures_end(&figures);
}

/* Adds what was asked for; NULL: memory was short. */
static json_t *all_figures(const kvpi_size_report *report, const size_command *command,
                           const kvpi_engine_report *engine)
{
    json_t *figures = kvpi_size_figures(report);
    json_t *gguf =
        command->gguf_path != NULL ? gguf_figures(report->model, &command->gguf) : json_null();
    json_t *of_engine = engine != NULL ? kvpi_engine_figures(engine) : json_null();
    int failed = json_object_set_new(figures, "gguf", gguf);
    failed |= json_object_set_new(figures, "engine", of_engine);
    if (failed == 0)
        return figures;
    json_decref(figures);
    return NULL;
}

static int report_all(const kvpi_size_report *report, const size_command *command,
                      const kvpi_engine_report *engine)
{
    if (command->json)
        return kvpi_figures_tell("size", all_figures(report, command, engine));
    kvpi_size_print(report, stdout);
    if (engine != NULL)
        kvpi_engine_print(engine, stdout);
    return TOOL_OK;
}

static int count_and_report(const kvpi_args *args, const kvpi_model *model,
                            const size_command *command)
{
    char why[160];
    kvpi_size size;
    kvpi_engine_report engine;
    const bool from_file = command->gguf_path != NULL && !kvpi_args_given(args, "--weights");
    const kvpi_size_report report = {.model = model,
                                     .device = command->model.device,
                                     .options = &command->model.size,
                                     .size = &size,
                                     .weights_from = from_file ? "the file's tensors" : NULL};
    if (kvpi_size_count(model, &command->model.size, &size) != 0)
        return kvpi_model_args_fail_full(args, model, &command->model, &size);
    if (command->engine.engine == KVPI_ENGINE_NONE)
        return report_all(&report, command, NULL);
    if (kvpi_engine_count(model, command->model.device, &command->model.size, &size,
                          &command->engine, &engine, why, sizeof why) != 0)
        return kvpi_tool_fail(args->command, "%s: %s", model->name, why);
    return report_all(&report, command, &engine);
}

static int find_model(const kvpi_args *args, size_command *command, kvpi_model *out)
{
    kvpi_models_error error;
    if (command->gguf_path == NULL)
        return kvpi_model_args_find(args, &command->model, out);
    command->engine.from_gguf = true;
    if (kvpi_gguf_read(command->gguf_path, out, &command->gguf, &error) != 0)
        return kvpi_tool_fail(args->command, "%s", error.text);
    if (out->strange[0] != '\0')
        kvpi_tool_fail(args->command,
                       "%s has %s, which llama.cpp does not use: all its layers "
                       "keep all tokens",
                       out->name, out->strange);
    if (!kvpi_args_given(args, "--weights"))
        command->model.size.weights_bytes = command->gguf.weights_bytes;
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
    kvpi_args args;
    size_command command = {.engine = {.engine = KVPI_ENGINE_NONE, .n_sequences = 1}};
    kvpi_model model;
    kvpi_model_args_init(&command.model, "--list");
    int status = kvpi_args_parse(&args, &size_options, argc, argv, &command);
    if (status != KVPI_ARGS_GO)
        return status;
    if (command.list)
        return list(&command);
    status = find_model(&args, &command, &model);
    if (status == TOOL_OK)
        status = check_model(&args, &model, &command);
    if (status == TOOL_OK)
        status = count_and_report(&args, &model, &command);
    return status;
}

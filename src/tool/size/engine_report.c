/* See engine_report.h. The arithmetic is in engine_vllm.c and engine_llama.c. */
#include "tool/size/engine_report.h"

#include <inttypes.h>
#include <string.h>

#include "tool/report/figures.h"
#include "tool/size/size_report.h"
#include "tool/text.h"

#define LLAMA_BATCH_TOKENS 512

const char *const kvpi_engine_names[] = {"vllm", "llama.cpp", NULL};

/* As they and their releases are called. */
static const char *const titles[] = {"vLLM 0.32", "llama.cpp (release 11549)"};

bool kvpi_engine_has_dtype(kvpi_engine engine, kvpi_dtype dtype)
{
    if (dtype == KVPI_DTYPE_BF16 || dtype == KVPI_DTYPE_F16 || dtype == KVPI_DTYPE_F32)
        return true;
    return engine == KVPI_ENGINE_VLLM ? dtype == KVPI_DTYPE_FP8
                                      : dtype == KVPI_DTYPE_Q8_0 || dtype == KVPI_DTYPE_Q4_0;
}

/* ----------------------------------------------------------------------------------- the counts */

static int count_vllm(const kvpi_model *model, const kvpi_device *device, kvpi_engine_report *out,
                      char *why, size_t n_why)
{
    kvpi_vllm_layers layers[KVPI_VLLM_MAX_LAYERS];
    const kvpi_size_options *size = out->size;
    const bool is_a100 = device != NULL && strncmp(device->name, "a100", 4) == 0;
    char unknown[80];
    out->of_vllm = (kvpi_vllm_options){
        .block_tokens = size->block_tokens,
        .context_tokens = size->context_tokens,
        .batch_tokens = out->options.batch_tokens != 0
                            ? out->options.batch_tokens
                            : kvpi_vllm_batch_tokens(size->memory_bytes, is_a100),
        .memory_bytes = out->memory_bytes};
    uint32_t n = kvpi_vllm_layers_of(model, size->tensor_parallel, size->kv_dtype,
                                     size->state_dtype, layers, unknown, sizeof unknown);
    if (n == 0) {
        snprintf(why, n_why, "it has %s, of which --engine vllm knows no rule", unknown);
        return -1;
    }
    if (kvpi_vllm_plan(layers, n, &out->of_vllm, &out->vllm) == 0)
        return 0;
    snprintf(why, n_why, "vLLM cannot give its layers pages of one size, and does not start");
    return -1;
}

static int count_llama(const kvpi_model *model, kvpi_engine_report *out, char *why, size_t n_why)
{
    char refused[80];
    out->of_llama = (kvpi_llama_options){.context_tokens = out->size->context_tokens,
                                         .n_sequences = out->options.n_sequences,
                                         .batch_tokens = out->options.batch_tokens != 0
                                                             ? out->options.batch_tokens
                                                             : LLAMA_BATCH_TOKENS,
                                         .unified = out->options.unified,
                                         .full_windows = out->options.full_windows,
                                         .all_windowed = out->options.from_gguf,
                                         .dtype = out->size->kv_dtype,
                                         .memory_bytes = out->memory_bytes};
    if (kvpi_llama_count(model, &out->of_llama, &out->llama, refused, sizeof refused) == 0)
        return 0;
    snprintf(why, n_why, "it has %s, which --engine llama.cpp cannot count", refused);
    return -1;
}

int kvpi_engine_count(const kvpi_model *model, const kvpi_device *device,
                      const kvpi_size_options *size, const kvpi_size *counted,
                      const kvpi_engine_options *options, kvpi_engine_report *out, char *why,
                      size_t n_why)
{
    *out = (kvpi_engine_report){.options = *options,
                                .size = size,
                                .has_memory = size->memory_bytes != 0,
                                .memory_bytes = size->memory_bytes != 0 ? counted->kv_bytes : 0,
                                .sequence_bytes = counted->held_bytes +
                                                  counted->sequence_slots * counted->state_bytes +
                                                  counted->running_bytes};
    return options->engine == KVPI_ENGINE_VLLM ? count_vllm(model, device, out, why, n_why)
                                               : count_llama(model, out, why, n_why);
}

/* ----------------------------------------------------------------------------------- for people */

static kvpi_text real(double value)
{
    kvpi_text out;
    snprintf(out.of, sizeof out.of, "%.2f", value);
    return out;
}

static void print_memory(const kvpi_engine_report *report, FILE *file)
{
    if (!report->has_memory)
        return;
    fputs("\nBy kvpager's rules\n", file);
    kvpi_size_row(file, "memory for KV", kvpi_size_gib_text(report->memory_bytes),
                  "%s B, above: its estimate", kvpi_text_count(report->memory_bytes).of);
}

static const char *const spec_labels[] = {"full layers", "MLA layers", "windowed layers",
                                          "state layers"};

static void print_vllm_layers(const kvpi_vllm *plan, const kvpi_vllm_layers *of, FILE *file)
{
    char formula[160] = "";
    if (of->n_groups == 0)
        snprintf(formula, sizeof formula, "in a group with others");
    else
        snprintf(formula, sizeof formula, "in %" PRIu32 " group%s", of->n_groups,
                 of->n_groups == 1 ? "" : "s");
    if (plan->group_layers > 0)
        snprintf(formula + strlen(formula), sizeof formula - strlen(formula), " of %" PRIu32,
                 plan->group_layers);
    if (of->unused_layers > 0)
        snprintf(formula + strlen(formula), sizeof formula - strlen(formula),
                 ", %" PRIu32 " places unused", of->unused_layers);
    kvpi_size_row(file, spec_labels[of->spec], kvpi_text_count(of->n_layers), "%s", formula);
    if (of->block_tokens > 0)
        snprintf(formula, sizeof formula, "%s tokens x %s B", kvpi_text_count(of->block_tokens).of,
                 kvpi_text_count(of->token_bytes).of);
    else
        snprintf(formula, sizeof formula, "a state of %s B", kvpi_text_count(of->token_bytes).of);
    if (of->unused_bytes > 0)
        snprintf(formula + strlen(formula), sizeof formula - strlen(formula), ", %s B unused",
                 kvpi_text_count(of->unused_bytes).of);
    kvpi_size_row(file, "  page", kvpi_text_count(of->page_bytes), "%s", formula);
}

static void print_vllm_capacity(const kvpi_engine_report *report, FILE *file)
{
    const kvpi_vllm *plan = &report->vllm;
    const kvpi_text context = kvpi_text_count(report->of_vllm.context_tokens);
    kvpi_size_row(file, "blocks", kvpi_text_count(plan->blocks), "memory for KV / block");
    if (!plan->starts) {
        kvpi_size_row(file, "tokens", kvpi_text_count(0),
                      "it does not start: a request needs more");
        kvpi_size_row(file, "  would start", kvpi_text_count(plan->most_context_tokens),
                      "--max-model-len, at most");
        return;
    }
    kvpi_size_row(file, "concurrency", real(plan->concurrency), "blocks / request");
    kvpi_size_row(file, "tokens", kvpi_text_count(plan->tokens), "concurrency x %s", context.of);
    fprintf(file,
            "\n  GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per\n"
            "  request: %.2fx\n",
            kvpi_text_count(plan->tokens).of, context.of, plan->concurrency);
    fputs("\nBy kvpager's rules\n", file);
    kvpi_size_row(file, "held at once", kvpi_text_count(plan->held_tokens),
                  "tokens: one prompt computed, others decode");
}

static void print_vllm(const kvpi_engine_report *report, FILE *file)
{
    const kvpi_vllm *plan = &report->vllm;
    uint64_t in_flight = 2 * report->of_vllm.batch_tokens;
    bool windowed = false;
    for (uint32_t i = 0; i < plan->n; i++) {
        print_vllm_layers(plan, &plan->layers[i], file);
        windowed = windowed || plan->layers[i].spec == KVPI_VLLM_WINDOW;
    }
    kvpi_size_row(file, "block", kvpi_text_count(plan->block_bytes),
                  plan->group_layers > 0 ? "bytes: a page for each layer of a group"
                                         : "bytes: all pages of the largest group");
    if (windowed)
        kvpi_size_row(file, "in flight", kvpi_text_count(in_flight),
                      "tokens of 2 batches, beside a window");
    kvpi_size_row(file, "request", kvpi_text_count(plan->request_blocks),
                  "blocks that %s tokens need", kvpi_text_count(report->of_vllm.context_tokens).of);
    kvpi_size_row(file, "decoding", kvpi_text_count(plan->decoding_blocks), "of them, %s B",
                  kvpi_text_count(plan->decoding_blocks * plan->block_bytes).of);
    kvpi_size_row(file, "  in kvpager", kvpi_text_count(report->sequence_bytes),
                  "B for the same tokens");
    if (report->has_memory)
        print_vllm_capacity(report, file);
}

static void print_llama_layers(const kvpi_engine_report *report, const kvpi_llama_layers *of,
                               FILE *file)
{
    const char *label = of->windowed ? "windowed layers" : "full layers";
    if (of->state) {
        kvpi_size_row(file, "state layers", kvpi_text_count(of->bytes),
                      "%" PRIu32 " x %s B (f32) x %" PRIu32, of->n_layers,
                      kvpi_text_count(of->cell_bytes).of, report->of_llama.n_sequences);
        return;
    }
    kvpi_size_row(file, label, kvpi_text_count(of->bytes),
                  "%" PRIu32 " x %s B x %s cells x %" PRIu32, of->n_layers,
                  kvpi_text_count(of->cell_bytes).of, kvpi_text_count(of->cells).of,
                  report->llama.n_caches);
}

static void print_llama(const kvpi_engine_report *report, FILE *file)
{
    const kvpi_llama *counted = &report->llama;
    const char *name = kvpi_models_dtypes[report->of_llama.dtype];
    fprintf(file, "  -c %" PRIu64 " -np %" PRIu32 "%s -ub %" PRIu64 " -ctk %s -ctv %s%s\n",
            report->of_llama.context_tokens, report->of_llama.n_sequences,
            report->of_llama.unified ? " -kvu" : "", report->of_llama.batch_tokens, name, name,
            report->of_llama.full_windows ? " --swa-full" : "");
    kvpi_size_row(file, "longest sequence", kvpi_text_count(counted->sequence_cells),
                  "tokens; %" PRIu32 " cache%s of as many cells", counted->n_caches,
                  counted->n_caches == 1 ? "" : "s");
    for (uint32_t i = 0; i < counted->n; i++)
        print_llama_layers(report, &counted->layers[i], file);
    kvpi_size_row(file, "allocated", kvpi_text_count(counted->bytes), "bytes, %s",
                  kvpi_size_gib_text(counted->bytes).of);
    if (!report->has_memory)
        return;
    fputs("\nBy kvpager's rules\n", file);
    kvpi_size_row(file, "fits", kvpi_text_count(counted->most_context_tokens), "-c at most; %s %s",
                  kvpi_text_count(report->of_llama.context_tokens).of,
                  counted->fits ? "fit" : "do not fit");
}

void kvpi_engine_print(const kvpi_engine_report *report, FILE *file)
{
    print_memory(report, file);
    fprintf(file, "\nBy the rules of %s\n", titles[report->options.engine]);
    if (report->options.engine == KVPI_ENGINE_VLLM)
        print_vllm(report, file);
    else
        print_llama(report, file);
}

/* ---------------------------------------------------------------------------------- the figures */

static void add_vllm(kvpi_figures *to, const kvpi_engine_report *report)
{
    static const char *const specs[] = {"full", "mla", "window", "state"};
    const kvpi_vllm *plan = &report->vllm;
    const bool known = report->has_memory, starts = known && plan->starts;
    kvpi_figures_integer(to, "batch_tokens", report->of_vllm.batch_tokens);
    kvpi_figures_open_array(to, "layers");
    for (uint32_t i = 0; i < plan->n; i++) {
        const kvpi_vllm_layers *of = &plan->layers[i];
        kvpi_figures_open(to, NULL);
        kvpi_figures_text(to, "spec", specs[of->spec]);
        kvpi_figures_integer(to, "layers", of->n_layers);
        kvpi_figures_integer(to, "groups", of->n_groups);
        kvpi_figures_integer(to, "unused_layers", of->unused_layers);
        kvpi_figures_integer_if(to, of->block_tokens > 0, "block_tokens", of->block_tokens);
        kvpi_figures_integer(to, "bytes_per_page", of->page_bytes);
        kvpi_figures_integer(to, "unused_bytes_per_page", of->unused_bytes);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
    kvpi_figures_integer(to, "bytes_per_block", plan->block_bytes);
    kvpi_figures_integer(to, "blocks_per_request", plan->request_blocks);
    kvpi_figures_integer(to, "blocks_while_decoding", plan->decoding_blocks);
    kvpi_figures_integer(to, "kvpager_bytes_while_decoding", report->sequence_bytes);
    kvpi_figures_integer_if(to, known, "blocks", plan->blocks);
    kvpi_figures_json(to, "starts", known ? json_boolean(plan->starts) : json_null());
    kvpi_figures_integer_if(to, known && !plan->starts, "max_model_len", plan->most_context_tokens);
    kvpi_figures_json(to, "concurrency", starts ? json_real(plan->concurrency) : json_null());
    kvpi_figures_integer_if(to, starts, "tokens", plan->tokens);
    kvpi_figures_integer_if(to, starts, "held_tokens", plan->held_tokens);
}

static void add_llama(kvpi_figures *to, const kvpi_engine_report *report)
{
    const kvpi_llama *counted = &report->llama;
    const bool known = report->has_memory;
    kvpi_figures_integer(to, "batch_tokens", report->of_llama.batch_tokens);
    kvpi_figures_integer(to, "sequences", report->of_llama.n_sequences);
    kvpi_figures_integer(to, "caches", counted->n_caches);
    kvpi_figures_integer(to, "tokens_per_sequence", counted->sequence_cells);
    kvpi_figures_open_array(to, "layers");
    for (uint32_t i = 0; i < counted->n; i++) {
        const kvpi_llama_layers *of = &counted->layers[i];
        kvpi_figures_open(to, NULL);
        kvpi_figures_integer(to, "layers", of->n_layers);
        kvpi_figures_flag(to, "windowed", of->windowed);
        kvpi_figures_flag(to, "state", of->state);
        kvpi_figures_integer(to, "cells", of->cells);
        kvpi_figures_integer(to, "bytes", of->bytes);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
    kvpi_figures_integer(to, "allocated_bytes", counted->bytes);
    kvpi_figures_json(to, "fits", known ? json_boolean(counted->fits) : json_null());
    kvpi_figures_integer_if(to, known, "max_context_tokens", counted->most_context_tokens);
}

json_t *kvpi_engine_figures(const kvpi_engine_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_text(&figures, "engine", kvpi_engine_names[report->options.engine]);
    kvpi_figures_text(&figures, "release", titles[report->options.engine]);
    kvpi_figures_integer_if(&figures, report->has_memory, "kv_memory_bytes", report->memory_bytes);
    if (report->options.engine == KVPI_ENGINE_VLLM)
        add_vllm(&figures, report);
    else
        add_llama(&figures, report);
    return kvpi_figures_end(&figures);
}

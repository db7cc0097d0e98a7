/* The figures of `kvpager size`. Owns their list; its keys are an interface and stay. Owns also the
 * layout for people: each figure with its formula in words.
 *
 *   label (16) value (15)  formula (44)
 */
#include "tool/size/report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* --------------------------------------------------------------------------------- the figures */

static void add_shape(kvpi_figures *to, const kvpi_model *model)
{
    const kvpi_models_attention *a = &model->attention;
    const kvpi_models_latent *latent = &model->latent;
    bool mla = latent->kv_rank > 0;
    kvpi_figures_text(to, "model", model->name);
    kvpi_figures_text(to, "source", model->source);
    kvpi_figures_integer(to, "layers",
                         (uint64_t)a->n_layers + model->states.n_layers + model->n_other_layers);
    kvpi_figures_integer(to, "windowed_layers", a->n_windowed);
    kvpi_figures_integer_if(to, a->n_windowed > 0, "window_tokens", a->window_tokens);
    kvpi_figures_flag(to, "chunked", model->chunked);
    kvpi_figures_integer(to, "state_layers", model->states.n_layers);
    kvpi_figures_text(to, "state_kind", model->states.n_layers > 0 ? model->states.kind : NULL);
    kvpi_figures_integer(to, "query_heads", a->q_heads);
    kvpi_figures_integer_if(to, !mla, "kv_heads", a->kv_heads);
    kvpi_figures_integer_if(to, !mla, "head_dim", a->head_dim);
    kvpi_figures_integer_if(to, mla, "latent_values", (uint64_t)latent->kv_rank + latent->rope_dim);
}

static void add_parameters(kvpi_figures *to, const kvpi_model *model)
{
    bool known = model->unknown[0] == '\0', published = model->parameters != 0;
    kvpi_models_count count = {.total = 0};
    if (known)
        count = kvpi_models_count_parameters(model);
    kvpi_figures_integer_if(to, known, "parameters", published ? model->parameters : count.total);
    kvpi_figures_json(to, "parameters_are_estimated",
                      known ? json_boolean(!published) : json_null());
    kvpi_figures_integer_if(to, known, "parameters_from_shape", count.total);
    kvpi_figures_integer_if(to, known, "active_parameters", count.active);
}

static void add_options(kvpi_figures *to, const kvpi_size_report *report)
{
    const kvpi_size_options *options = report->options;
    const kvpi_model *model = report->model;
    bool known =
        options->weights_bytes == 0 && model->unknown[0] == '\0' && model->unknown_dtype[0] == '\0';
    kvpi_figures_text(to, "kv_dtype", kvpi_models_kv_dtypes[options->kv_dtype]);
    kvpi_figures_text(to, "weights_dtype",
                      known ? kvpi_models_weights_dtypes[options->weights_dtype] : NULL);
    kvpi_figures_integer(to, "tensor_parallel", options->tensor_parallel);
    kvpi_figures_integer(to, "block_tokens", options->block_tokens);
    kvpi_figures_integer(to, "context_tokens", options->context_tokens);
    kvpi_figures_integer(to, "sink_tokens", options->sink_tokens);
    kvpi_figures_text(to, "state_dtype",
                      model->states.n_layers > 0 ? kvpi_models_kv_dtypes[options->state_dtype]
                                                 : NULL);
}

static void add_group(kvpi_figures *to, const kvpi_size_group *group, bool fits)
{
    bool windowed = group->window_tokens > 0;
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "layers", group->n_layers);
    kvpi_figures_integer_if(to, windowed, "window_tokens", group->window_tokens);
    kvpi_figures_integer(to, "bytes_per_token", group->token_bytes);
    kvpi_figures_integer(to, "bytes_per_block", group->block_bytes);
    kvpi_figures_integer(to, "blocks_per_sequence", group->sequence_blocks);
    kvpi_figures_integer(to, "bytes_per_sequence", group->sequence_bytes);
    kvpi_figures_integer(to, "layer_groups", group->n_rows);
    kvpi_figures_integer_if(to, fits, "blocks", group->blocks);
    kvpi_figures_close(to);
}

static void add_kv(kvpi_figures *to, const kvpi_size_report *report)
{
    const kvpi_size *size = report->size;
    bool fits = report->options->memory_bytes != 0;
    kvpi_figures_integer(to, "bytes_per_token", size->token_bytes);
    kvpi_figures_integer(to, "bytes_per_block",
                         size->pool_token_bytes * report->options->block_tokens);
    kvpi_figures_integer(to, "layers_per_group", size->row_layers);
    kvpi_figures_integer(to, "layer_groups", size->n_rows);
    kvpi_figures_integer(to, "padded_layers", size->padded_layers);
    kvpi_figures_integer(to, "blocks_per_sequence", size->sequence_in_blocks);
    kvpi_figures_integer(to, "bytes_per_state", size->state_bytes);
    kvpi_figures_integer(to, "states_per_sequence", size->sequence_slots);
    kvpi_figures_integer(to, "bytes_per_sequence", size->sequence_bytes);
    kvpi_figures_open_array(to, "groups");
    for (uint32_t i = 0; i < size->n_groups; i++)
        add_group(to, &size->groups[i], fits);
    kvpi_figures_close(to);
}

static void add_memory(kvpi_figures *to, const kvpi_size_report *report)
{
    const kvpi_size_options *options = report->options;
    const kvpi_size *size = report->size;
    bool fits = options->memory_bytes != 0;
    const char *device = report->device != NULL ? report->device->name : NULL;
    kvpi_figures_text(to, "device", device);
    kvpi_figures_integer_if(to, fits, "memory_bytes", options->memory_bytes);
    kvpi_figures_real(to, "utilization", (double)options->utilization_milli / 1000);
    kvpi_figures_integer_if(to, fits, "usable_bytes", size->usable_bytes);
    kvpi_figures_integer_if(to, fits, "weights_bytes", size->weights_bytes);
    kvpi_figures_integer(to, "overhead_bytes", options->overhead_bytes);
    kvpi_figures_integer_if(to, fits, "kv_memory_bytes", size->kv_bytes);
    kvpi_figures_integer_if(to, fits, "blocks", size->pool_blocks);
    kvpi_figures_integer_if(to, fits, "state_slots", size->state_slots);
    kvpi_figures_integer_if(to, fits, "tokens", size->tokens);
    kvpi_figures_integer_if(to, fits, "sequences", size->sequences);
}

json_t *kvpi_size_figures(const kvpi_size_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_shape(&figures, report->model);
    add_parameters(&figures, report->model);
    add_options(&figures, report);
    add_kv(&figures, report);
    add_memory(&figures, report);
    return kvpi_figures_end(&figures);
}

static void add_model(kvpi_figures *to, const kvpi_model *model)
{
    kvpi_figures_open(to, NULL);
    add_shape(to, model);
    add_parameters(to, model);
    kvpi_figures_text(to, "weights_dtype", kvpi_models_weights_dtypes[model->weights_dtype]);
    kvpi_figures_close(to);
}

static void add_device(kvpi_figures *to, const kvpi_device *device)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "device", device->name);
    kvpi_figures_text(to, "title", device->title);
    kvpi_figures_integer(to, "memory_bytes", device->memory_bytes);
    kvpi_figures_real(to, "bytes_per_second", device->bytes_per_second);
    kvpi_figures_real(to, "bf16_flops", device->flops);
    kvpi_figures_close(to);
}

json_t *kvpi_size_list_figures(void)
{
    size_t n_models, n_devices;
    const kvpi_model *models = kvpi_models_all(&n_models);
    const kvpi_device *devices = kvpi_devices_all(&n_devices);
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_open_array(&figures, "models");
    for (size_t i = 0; i < n_models; i++)
        add_model(&figures, &models[i]);
    kvpi_figures_close(&figures);
    kvpi_figures_open_array(&figures, "devices");
    for (size_t i = 0; i < n_devices; i++)
        add_device(&figures, &devices[i]);
    kvpi_figures_close(&figures);
    return kvpi_figures_end(&figures);
}

/* --------------------------------------------------------------------------------- for people */

static kvpi_text gib(uint64_t bytes)
{
    kvpi_text out;
    snprintf(out.of, sizeof out.of, "%.2f GiB", kvpi_size_gib(bytes));
    return out;
}

static void print_row(FILE *file, const char *label, kvpi_text value, const char *formula, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

static void print_row(FILE *file, const char *label, kvpi_text value, const char *formula, ...)
{
    va_list args;
    va_start(args, formula);
    fprintf(file, "  %-16s %15s  ", label, value.of);
    vfprintf(file, formula, args);
    fputc('\n', file);
    va_end(args);
}

static const char *kv_name(const kvpi_size_report *report)
{
    return kvpi_models_kv_dtypes[report->options->kv_dtype];
}

static const char *weights_name(const kvpi_size_report *report)
{
    return kvpi_models_weights_dtypes[report->options->weights_dtype];
}

static void print_head(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size_options *options = report->options;
    fprintf(file, "%s", kvpi_escape(report->model->name).of);
    if (report->device != NULL)
        fprintf(file, " on %s", report->device->title);
    fprintf(file, "\n%s KV", kv_name(report));
    if (options->memory_bytes != 0 && options->weights_bytes == 0)
        fprintf(file, ", %s weights", weights_name(report));
    fprintf(file, ", blocks of %s tokens", kvpi_text_count(options->block_tokens).of);
    if (options->tensor_parallel > 1)
        fprintf(file, ", tensor parallel over %" PRIu32, options->tensor_parallel);
    fputs("\n\n", file);
}

/* -------------------------------------------------------------------------------- the model */

static void print_heads(const kvpi_size_report *report, FILE *file)
{
    char formula[96];
    const kvpi_models_attention *a = &report->model->attention;
    const kvpi_models_latent *latent = &report->model->latent;
    uint32_t tp = report->options->tensor_parallel;
    if (latent->kv_rank > 0) {
        print_row(file, "latent (MLA)", kvpi_text_count(kvpi_models_kv_values(report->model, tp)),
                  "%" PRIu32 " + %" PRIu32 " values per token and layer%s", latent->kv_rank,
                  latent->rope_dim, tp > 1 ? "; on each" : "");
        return;
    }
    int used = snprintf(formula, sizeof formula, "x %" PRIu32 " values; %" PRIu32 " query heads",
                        a->head_dim, a->q_heads);
    if (tp > 1)
        snprintf(formula + used, sizeof formula - (size_t)used,
                 a->kv_heads % tp == 0 ? "; %" PRIu32 " each" : "; 1 each", a->kv_heads / tp);
    print_row(file, "KV heads", kvpi_text_count(a->kv_heads), "%s", formula);
}

static void print_parameters(const kvpi_size_report *report, FILE *file)
{
    const kvpi_model *model = report->model;
    if (model->unknown[0] != '\0')
        return;
    kvpi_models_count parameters = kvpi_models_count_parameters(model);
    bool published = model->parameters != 0;
    print_row(file, "parameters", kvpi_text_count(published ? model->parameters : parameters.total),
              published ? "published" : "estimate, from the config's shapes");
    if (model->experts.n_experts == 0)
        return;
    print_row(file, "active", kvpi_text_count(parameters.active),
              "%" PRIu32 " of %" PRIu32 " experts a token; estimate", model->experts.per_token,
              model->experts.n_experts);
}

static void print_model(const kvpi_size_report *report, FILE *file)
{
    char formula[96];
    const kvpi_models_attention *a = &report->model->attention;
    uint32_t n_full = a->n_layers - a->n_windowed;
    fputs("The model\n", file);
    if (n_full > 0)
        print_row(file, "full layers", kvpi_text_count(n_full), "keep all tokens");
    if (a->n_windowed > 0) {
        int used = snprintf(formula, sizeof formula,
                            report->model->chunked ? "attend in chunks of %s tokens"
                                                   : "keep the last %s tokens",
                            kvpi_text_count(a->window_tokens).of);
        if (report->options->sink_tokens > 0)
            snprintf(formula + used, sizeof formula - (size_t)used, " and the first %s",
                     kvpi_text_count(report->options->sink_tokens).of);
        print_row(file, "windowed layers", kvpi_text_count(a->n_windowed), "%s", formula);
    }
    if (report->model->states.n_layers > 0)
        print_row(file, "state layers", kvpi_text_count(report->model->states.n_layers),
                  "%s: one state a sequence", report->model->states.kind);
    if (report->model->n_other_layers > 0)
        print_row(file, "other layers", kvpi_text_count(report->model->n_other_layers),
                  "keep nothing");
    print_heads(report, file);
    print_parameters(report, file);
}

/* ------------------------------------------------------------------------------ bytes of KV */

static void print_token(const kvpi_size_report *report, const kvpi_size_group *group,
                        const char *label, FILE *file)
{
    static const int bytes_of[] = {2, 2, 4, 1, 1};
    const kvpi_model *model = report->model;
    uint64_t values = kvpi_models_kv_values(model, report->options->tensor_parallel);
    int bytes = bytes_of[report->options->kv_dtype];
    if (model->latent.kv_rank > 0)
        print_row(file, label, kvpi_text_count(group->token_bytes),
                  "%" PRIu32 " layers x %" PRIu64 " values x %d B", group->n_layers, values, bytes);
    else
        print_row(file, label, kvpi_text_count(group->token_bytes),
                  "2 x %" PRIu32 " layers x %" PRIu64 " heads x %" PRIu32 " x %d B",
                  group->n_layers, values / 2 / model->attention.head_dim,
                  model->attention.head_dim, bytes);
}

static void print_sequence(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        bool windowed = group->window_tokens > 0;
        if (size->n_groups == 1 && !windowed)
            continue;
        print_row(file, windowed ? "  windowed" : "  full", kvpi_text_count(group->sequence_bytes),
                  windowed ? "at most %s blocks%s" : "%s blocks%s",
                  kvpi_text_count(group->sequence_blocks).of, windowed ? ", begun anywhere" : "");
    }
}

static void print_bytes(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    char formula[96];
    bool two = size->n_groups == 2;
    fprintf(file, "\nBytes of KV%s%s\n",
            report->options->tensor_parallel > 1 ? " on each accelerator" : "",
            report->model->latent.kv_rank > 0 ? "" : " (2: a key and a value)");
    for (uint32_t i = 0; i < size->n_groups; i++) {
        bool windowed = size->groups[i].window_tokens > 0;
        const char *label = windowed ? "token, windowed" : "token, full";
        print_token(report, &size->groups[i], two ? label : "token", file);
    }
    for (uint32_t i = 0; i < size->n_groups; i++) {
        bool windowed = size->groups[i].window_tokens > 0;
        const char *label = windowed ? "block, windowed" : "block, full";
        print_row(file, two ? label : "block", kvpi_text_count(size->groups[i].block_bytes),
                  "%s tokens", kvpi_text_count(report->options->block_tokens).of);
    }
    if (size->state_bytes > 0)
        print_row(file, "state", kvpi_text_count(size->state_bytes), "%" PRIu32 " layers x %s B",
                  report->model->states.n_layers,
                  kvpi_text_count(size->state_bytes / report->model->states.n_layers).of);
    int used = snprintf(formula, sizeof formula, "%s tokens",
                        kvpi_text_count(report->options->context_tokens).of);
    if (!two && size->groups[0].window_tokens == 0)
        snprintf(formula + used, sizeof formula - (size_t)used, ": %s blocks",
                 kvpi_text_count(size->groups[0].sequence_blocks).of);
    if (size->state_bytes > 0)
        snprintf(formula + strlen(formula), sizeof formula - strlen(formula),
                 ", %" PRIu64 " state%s", size->sequence_slots,
                 size->sequence_slots == 1 ? "" : "s");
    print_row(file, "sequence", kvpi_text_count(size->sequence_bytes), "%s", formula);
    print_sequence(report, file);
}

/* -------------------------------------------------------------------------------- what fits */

static void describe_weights(const kvpi_size_report *report, char *formula, size_t n_bytes)
{
    const kvpi_size_options *options = report->options;
    const char *what = "parameters as %s";
    if (options->weights_dtype == KVPI_DTYPE_MXFP4 && report->model->experts.n_experts > 0)
        what = "experts as %s, the rest as bf16";
    else if (options->weights_dtype > KVPI_DTYPE_F32)
        what = "layers as %s, embeddings as bf16";
    int used = options->weights_bytes != 0 ? snprintf(formula, n_bytes, "--weights")
                                           : snprintf(formula, n_bytes, what, weights_name(report));
    if (options->tensor_parallel > 1)
        snprintf(formula + used, n_bytes - (size_t)used, " / %" PRIu32, options->tensor_parallel);
}

static void print_memory(const kvpi_size_report *report, FILE *file)
{
    char formula[96];
    const kvpi_size_options *options = report->options;
    const kvpi_size *size = report->size;
    fputs(options->tensor_parallel > 1 ? "\nMemory of each accelerator\n" : "\nMemory\n", file);
    print_row(file, "total", gib(options->memory_bytes),
              report->device != NULL ? "as its driver reports" : "--memory");
    print_row(file, "usable", gib(size->usable_bytes),
              "total x %" PRIu64 ".%03" PRIu64 " (--utilization)",
              options->utilization_milli / 1000, options->utilization_milli % 1000);
    describe_weights(report, formula, sizeof formula);
    print_row(file, "weights", gib(size->weights_bytes), "%s", formula);
    print_row(file, "overhead", gib(options->overhead_bytes),
              "activations, graphs, buffers (--overhead)");
    print_row(file, "KV", gib(size->kv_bytes), "usable - weights - overhead");
}

/* The pool of a model whose layers keep different tokens: its blocks are of one layer group. */
static void print_pool(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    print_row(file, "layer groups", kvpi_text_count(size->n_rows),
              "of %" PRIu32 " layers: %" PRIu32 " full, %" PRIu32 " windowed", size->row_layers,
              size->groups[0].n_rows, size->groups[1].n_rows);
    if (size->padded_layers > 0) {
        print_row(file, "  padding", kvpi_text_count(size->padded_layers), "x %s B x %s, not used",
                  kvpi_text_count(size->pool_token_bytes / size->row_layers).of,
                  kvpi_text_count(report->options->block_tokens).of);
    }
    print_row(file, "blocks", kvpi_text_count(size->pool_blocks),
              "KV / %s B; the null block on top",
              kvpi_text_count(size->pool_token_bytes * report->options->block_tokens).of);
    for (uint32_t i = 0; i < size->n_groups; i++) {
        print_row(file, i == 0 ? "  full" : "  windowed", kvpi_text_count(size->groups[i].blocks),
                  "in %" PRIu32 " group%s, as sequences fill them", size->groups[i].n_rows,
                  size->groups[i].n_rows == 1 ? "" : "s each");
    }
}

static void print_fit(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    bool two = size->n_groups == 2;
    fputs("\nWhat fits\n", file);
    if (two)
        print_pool(report, file);
    else
        print_row(file, "blocks", kvpi_text_count(size->pool_blocks),
                  size->state_bytes > 0 ? "what KV has beside the slots / block"
                                        : "KV / block; the null block on top");
    if (size->state_bytes > 0)
        print_row(file, "state slots", kvpi_text_count(size->state_slots),
                  "%" PRIu64 " for a sequence; slot 0 on top", size->sequence_slots);
    print_row(file, "tokens", kvpi_text_count(size->tokens), "blocks%s x %s", two ? ", full" : "",
              kvpi_text_count(report->options->block_tokens).of);
    print_row(file, "sequences", kvpi_text_count(size->sequences),
              "blocks / %s of a sequence of %s tokens",
              kvpi_text_count(size->sequence_in_blocks).of,
              kvpi_text_count(report->options->context_tokens).of);
}

void kvpi_size_print(const kvpi_size_report *report, FILE *file)
{
    print_head(report, file);
    print_model(report, file);
    print_bytes(report, file);
    if (report->options->memory_bytes == 0) {
        fputs("\nHow much fits: --device NAME or --memory SIZE.\n", file);
        return;
    }
    print_memory(report, file);
    print_fit(report, file);
}

/* --------------------------------------------------------------------------------- the tables */

static void list_model(const kvpi_model *model, FILE *file)
{
    const kvpi_models_attention *a = &model->attention;
    kvpi_text kind;
    if (model->latent.kv_rank > 0)
        snprintf(kind.of, sizeof kind.of, "MLA");
    else
        snprintf(kind.of, sizeof kind.of, "%" PRIu32 " x %" PRIu32, a->kv_heads, a->head_dim);
    kvpi_text window = {"-"};
    if (a->n_windowed > 0)
        snprintf(window.of, sizeof window.of, "%" PRIu32 " of %" PRIu32, a->window_tokens,
                 a->n_windowed);
    fprintf(file, "  %-17s %9.1f %7" PRIu32 " %9s %11s  %9s\n", model->name,
            (double)model->parameters / 1e9, a->n_layers, kind.of, window.of,
            kvpi_text_count(UINT64_C(2) * a->n_layers * kvpi_models_kv_values(model, 1)).of);
}

void kvpi_size_list(FILE *file)
{
    size_t n_models, n_devices;
    const kvpi_model *models = kvpi_models_all(&n_models);
    const kvpi_device *devices = kvpi_devices_all(&n_devices);
    fprintf(file, "Models (--model)\n  %-17s %9s %7s %9s %11s  %9s\n", "", "10^9", "", "KV heads",
            "window, of", "16-bit KV");
    fprintf(file, "  %-17s %9s %7s %9s %11s  %9s\n", "name", "param.", "layers", "x size",
            "n layers", "B / token");
    for (size_t i = 0; i < n_models; i++)
        list_model(&models[i], file);
    fprintf(file, "\nAccelerators (--device), per second\n  %-13s %-29s %10s %7s %11s\n", "name",
            "", "memory", "TB", "bf16 TFLOP");
    for (size_t i = 0; i < n_devices; i++)
        fprintf(file, "  %-13s %-29s %10s %7.2f %11.1f\n", devices[i].name, devices[i].title,
                gib(devices[i].memory_bytes).of, devices[i].bytes_per_second / 1e12,
                devices[i].flops / 1e12);
}

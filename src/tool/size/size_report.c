/* The figures of `kvpager size`. Owns their list; its keys are an interface and stay. Owns also the
 * layout for people: each figure with its formula in words.
 *
 *   label (16) value (15)  formula (44)
 */
#include "tool/size/size_report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* --------------------------------------------------------------------------------- the figures */

static const char *const keeps[] = {"heads", "latent", "index", "state", "inputs"};

static void add_kind(kvpi_figures *to, const kvpi_models_kind *kind, uint32_t tp, kvpi_dtype dtype)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "keeps", keeps[kind->keeps]);
    kvpi_figures_integer(to, "layers", kind->n_layers);
    kvpi_figures_integer_if(to, kind->window_tokens > 0, "window_tokens", kind->window_tokens);
    kvpi_figures_flag(to, "chunked", kind->chunked);
    kvpi_figures_flag(to, "recomputed", kind->recomputed);
    kvpi_figures_integer(to, "tokens_per_entry", kind->entry_tokens > 1 ? kind->entry_tokens : 1);
    kvpi_figures_integer_if(to, kind->kv_heads > 0, "kv_heads", kind->kv_heads);
    kvpi_figures_integer_if(to, kind->kv_heads > 0, "key_dim", kind->k_dim);
    kvpi_figures_integer_if(to, kind->kv_heads > 0, "value_dim", kind->v_dim);
    kvpi_figures_integer_if(to, kind->latent > 0, "latent_values", kind->latent + kind->rope);
    kvpi_figures_integer_if(to, kind->index_dim > 0, "index_values", kind->index_dim);
    kvpi_figures_integer_if(to, kind->keeps != KVPI_KEEPS_STATE, "bytes_per_entry",
                            kvpi_models_entry_bytes(kind, tp, dtype));
    kvpi_figures_close(to);
}

/* The kinds in a few numbers: heads are those of layers with a window, if there are some. */
static void add_shape(kvpi_figures *to, const kvpi_model *model, uint32_t tp, kvpi_dtype dtype)
{
    const kvpi_models_kind *full = kvpi_models_find_kind(model, KVPI_KEEPS_HEADS, false);
    const kvpi_models_kind *heads = kvpi_models_find_kind(model, KVPI_KEEPS_HEADS, true);
    const kvpi_models_kind *latent = kvpi_models_find_kind(model, KVPI_KEEPS_LATENT, false);
    const kvpi_models_kind *window = kvpi_models_find_window(model);
    const uint32_t n_states = kvpi_models_layers(model, KVPI_KEEPS_STATE);
    const bool own = full != NULL && heads != NULL &&
                     (full->kv_heads != heads->kv_heads || full->k_dim != heads->k_dim);
    heads = heads != NULL ? heads : full;
    kvpi_figures_text(to, "model", model->name);
    kvpi_figures_text(to, "source", model->source);
    kvpi_figures_integer(to, "layers", model->n_layers);
    kvpi_figures_integer(to, "windowed_layers", kvpi_size_windowed(model));
    kvpi_figures_integer_if(to, window != NULL, "window_tokens",
                            window != NULL ? window->window_tokens : 0);
    kvpi_figures_flag(to, "chunked", window != NULL && window->chunked);
    kvpi_figures_integer(to, "state_layers", n_states);
    kvpi_figures_text(to, "state_kind", n_states > 0 ? model->state_kind : NULL);
    kvpi_figures_integer(to, "query_heads", model->q_heads);
    kvpi_figures_integer_if(to, heads != NULL, "kv_heads", heads != NULL ? heads->kv_heads : 0);
    kvpi_figures_integer_if(to, heads != NULL, "head_dim", heads != NULL ? heads->k_dim : 0);
    kvpi_figures_integer_if(to, own, "full_kv_heads", own ? full->kv_heads : 0);
    kvpi_figures_integer_if(to, own, "full_head_dim", own ? full->k_dim : 0);
    kvpi_figures_integer_if(to, latent != NULL, "latent_values",
                            latent != NULL ? (uint64_t)latent->latent + latent->rope : 0);
    kvpi_figures_open_array(to, "kinds");
    for (uint32_t i = 0; i < model->n_kinds; i++)
        add_kind(to, &model->kinds[i], tp, dtype);
    kvpi_figures_close(to);
}

/* A round number is what was announced. */
static bool is_published(const kvpi_model *model)
{
    return model->parameters % 100000000 != 0;
}

static void add_parameters(kvpi_figures *to, const kvpi_model *model)
{
    bool known = model->unknown[0] == '\0', some = kvpi_models_weighs(model);
    kvpi_models_count count = {.total = 0};
    if (known)
        count = kvpi_models_count_parameters(model);
    kvpi_figures_integer_if(to, some, "parameters",
                            model->parameters != 0 ? model->parameters : count.total);
    kvpi_figures_json(to, "parameters_are_estimated",
                      some ? json_boolean(!is_published(model)) : json_null());
    kvpi_figures_integer_if(to, known, "parameters_from_shape", count.total);
    kvpi_figures_integer_if(to, known, "active_parameters", count.active);
    kvpi_figures_integer(to, "ngram_memory_layers", model->n_memory_layers);
}

static const char *index_name(const kvpi_size_report *report, const kvpi_models_kind *kind)
{
    return kvpi_models_dtypes[kvpi_models_index_dtype(kind, report->options->kv_dtype)];
}

static void add_options(kvpi_figures *to, const kvpi_size_report *report)
{
    const kvpi_size_options *options = report->options;
    const kvpi_model *model = report->model;
    bool known =
        options->weights_bytes == 0 && kvpi_models_weighs(model) && model->unknown_dtype[0] == '\0';
    const kvpi_models_kind *index = kvpi_models_find_index(model);
    kvpi_figures_text(to, "kv_dtype", kvpi_models_dtypes[options->kv_dtype]);
    kvpi_figures_text(to, "index_dtype", index != NULL ? index_name(report, index) : NULL);
    kvpi_figures_text(to, "weights_dtype",
                      known ? kvpi_models_dtypes[options->weights_dtype] : NULL);
    kvpi_figures_integer(to, "tensor_parallel", options->tensor_parallel);
    kvpi_figures_integer(to, "block_tokens", options->block_tokens);
    kvpi_figures_integer(to, "context_tokens", options->context_tokens);
    kvpi_figures_integer(to, "sink_tokens", options->sink_tokens);
    kvpi_figures_text(to, "state_dtype",
                      kvpi_models_layers(model, KVPI_KEEPS_STATE) > 0
                          ? kvpi_models_dtypes[options->state_dtype]
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
    kvpi_figures_integer(to, "layers_per_group", kvpi_size_row_layers(group));
    kvpi_figures_integer(to, "block_tokens", group->block_tokens);
    kvpi_figures_integer_if(to, fits, "blocks", group->blocks);
    kvpi_figures_close(to);
}

static void add_kv(kvpi_figures *to, const kvpi_size_report *report)
{
    const kvpi_size *size = report->size;
    bool fits = report->options->memory_bytes != 0;
    kvpi_figures_integer(to, "bytes_per_token", size->token_bytes);
    kvpi_figures_integer(to, "bytes_per_block", size->pool_block_bytes);
    kvpi_figures_integer(to, "layers_per_group", kvpi_size_row_layers(&size->groups[0]));
    kvpi_figures_integer(to, "layer_groups", size->n_rows);
    kvpi_figures_integer(to, "blocks_per_sequence", size->sequence_in_blocks);
    kvpi_figures_integer(to, "padding_per_sequence", size->padding_bytes);
    kvpi_figures_integer(to, "bytes_per_state", size->state_bytes);
    kvpi_figures_integer(to, "states_per_sequence", size->sequence_slots);
    kvpi_figures_integer(to, "bytes_per_sequence", size->sequence_bytes);
    kvpi_figures_integer(to, "bytes_of_context", size->content_bytes);
    kvpi_figures_integer(to, "bytes_while_running", size->running_bytes);
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
    add_shape(&figures, report->model, report->options->tensor_parallel, report->options->kv_dtype);
    add_parameters(&figures, report->model);
    add_options(&figures, report);
    add_kv(&figures, report);
    add_memory(&figures, report);
    return kvpi_figures_end(&figures);
}

static void add_model(kvpi_figures *to, const kvpi_model *model, const char *date)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "date", date);
    add_shape(to, model, 1, model->kv_dtype);
    add_parameters(to, model);
    kvpi_figures_text(to, "weights_dtype", kvpi_models_dtypes[model->weights_dtype]);
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
    kvpi_figures_json(to, "fp8_flops",
                      device->fp8_flops > 0 ? json_real(device->fp8_flops) : json_null());
    kvpi_figures_json(to, "fp4_flops",
                      device->fp4_flops > 0 ? json_real(device->fp4_flops) : json_null());
    kvpi_figures_close(to);
}

json_t *kvpi_size_list_figures(void)
{
    size_t n_models, n_devices;
    const kvpi_models_row *rows = kvpi_models_rows(&n_models);
    kvpi_model model;
    const kvpi_device *devices = kvpi_devices_all(&n_devices);
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_open_array(&figures, "models");
    for (size_t i = 0; i < n_models; i++) {
        kvpi_models_read_row(&rows[i], &model);
        add_model(&figures, &model, rows[i].date);
    }
    kvpi_figures_close(&figures);
    kvpi_figures_open_array(&figures, "devices");
    for (size_t i = 0; i < n_devices; i++)
        add_device(&figures, &devices[i]);
    kvpi_figures_close(&figures);
    return kvpi_figures_end(&figures);
}

/* --------------------------------------------------------------------------------- for people */

kvpi_text kvpi_size_gib_text(uint64_t bytes)
{
    kvpi_text out;
    snprintf(out.of, sizeof out.of, "%.2f GiB", kvpi_size_gib(bytes));
    return out;
}

void kvpi_size_row(FILE *file, const char *label, kvpi_text value, const char *formula, ...)
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
    return kvpi_models_dtypes[report->options->kv_dtype];
}

static const char *weights_name(const kvpi_size_report *report)
{
    return kvpi_models_dtypes[report->options->weights_dtype];
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
    const kvpi_model *model = report->model;
    const uint32_t tp = report->options->tensor_parallel;
    const kvpi_models_kind *before = NULL;
    for (uint32_t pass = 0; pass < 2; pass++) /* as the figures: those with a window first */
        for (uint32_t i = 0; i < model->n_kinds; i++) {
            const kvpi_models_kind *kind = &model->kinds[i];
            char formula[96];
            const bool first = before == NULL;
            if (kind->keeps != KVPI_KEEPS_HEADS || (kind->window_tokens == 0) != (pass == 1) ||
                (!first && before->kv_heads == kind->kv_heads && before->k_dim == kind->k_dim &&
                 before->v_dim == kind->v_dim))
                continue;
            int used = kind->k_dim == kind->v_dim
                           ? snprintf(formula, sizeof formula, "x %" PRIu32 " values", kind->k_dim)
                           : snprintf(formula, sizeof formula, "x (%" PRIu32 " + %" PRIu32 ")",
                                      kind->k_dim, kind->v_dim);
            if (first)
                used += snprintf(formula + used, sizeof formula - (size_t)used,
                                 "; %" PRIu32 " query heads", model->q_heads);
            if (first && tp > 1)
                snprintf(formula + used, sizeof formula - (size_t)used,
                         kind->kv_heads % tp == 0 ? "; %" PRIu32 " each" : "; 1 each",
                         kind->kv_heads / tp);
            kvpi_size_row(file,
                          first       ? "KV heads"
                          : pass == 1 ? "  full layers"
                                      : "  other layers",
                          kvpi_text_count(kind->kv_heads), "%s", formula);
            before = kind;
        }
}

static void print_parameters(const kvpi_size_report *report, FILE *file)
{
    const kvpi_model *model = report->model;
    const bool known = model->unknown[0] == '\0';
    kvpi_models_count parameters = {.total = 0};
    if (known)
        parameters = kvpi_models_count_parameters(model);
    if (kvpi_models_weighs(model))
        kvpi_size_row(
            file, "parameters",
            kvpi_text_count(model->parameters != 0 ? model->parameters : parameters.total), "%s",
            report->weights_from     ? report->weights_from
            : is_published(model)    ? "published"
            : model->parameters != 0 ? "as announced"
                                     : "estimate, from the config's shapes");
    if (model->n_memory_layers > 0)
        kvpi_size_row(file, "n-gram memory", kvpi_text_count(model->n_memory_layers),
                      "layers have tables, not in the weights");
    if (known && model->experts.n_experts > 0)
        kvpi_size_row(file, "active", kvpi_text_count(parameters.active),
                      "%" PRIu32 " of %" PRIu32 " experts a token; estimate",
                      model->experts.per_token, model->experts.n_experts);
}

/* What a kind keeps, in words. */
static void describe_kind(const kvpi_size_report *report, const kvpi_models_kind *kind, char *text,
                          size_t n_bytes)
{
    const kvpi_text window = kvpi_text_count(kind->window_tokens);
    if (kind->keeps == KVPI_KEEPS_STATE)
        snprintf(text, n_bytes, "%s: one state a sequence", report->model->state_kind);
    else if (kind->keeps == KVPI_KEEPS_INPUTS)
        snprintf(text, n_bytes, "inputs of %s tokens, while it runs", window.of);
    else if (kind->keeps == KVPI_KEEPS_INDEX && kind->entry_tokens > 1)
        snprintf(text, n_bytes, "keep a key for %" PRIu32 " tokens, in %s", kind->entry_tokens,
                 index_name(report, kind));
    else if (kind->keeps == KVPI_KEEPS_INDEX)
        snprintf(text, n_bytes, "keep a key for each token, in %s", index_name(report, kind));
    else if (kind->recomputed)
        snprintf(text, n_bytes, "see the last %s tokens, not cached", window.of);
    else if (kind->chunked)
        snprintf(text, n_bytes, "attend in chunks of %s tokens", window.of);
    else if (kind->window_tokens > 0 && report->options->sink_tokens > 0)
        snprintf(text, n_bytes, "keep the last %s tokens and the first %s", window.of,
                 kvpi_text_count(report->options->sink_tokens).of);
    else if (kind->window_tokens > 0)
        snprintf(text, n_bytes, "keep the last %s tokens", window.of);
    else if (kind->entry_tokens > 1)
        snprintf(text, n_bytes, "keep an entry for %" PRIu32 " tokens", kind->entry_tokens);
    else
        snprintf(text, n_bytes, "keep all tokens");
}

static void print_model(const kvpi_size_report *report, FILE *file)
{
    const kvpi_model *model = report->model;
    uint32_t n_alone = 0;
    fputs("The model\n", file);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        static const char *const labels[] = {"full layers", "full layers", "indexers",
                                             "state layers", "open layers"};
        const kvpi_models_kind *kind = &model->kinds[i];
        char formula[128];
        describe_kind(report, kind, formula, sizeof formula);
        kvpi_size_row(file,
                      kind->window_tokens > 0 && kind->keeps <= KVPI_KEEPS_INDEX
                          ? "windowed layers"
                          : labels[kind->keeps],
                      kvpi_text_count(kind->n_layers), "%s", formula);
        if (kind->keeps != KVPI_KEEPS_INDEX && kind->keeps != KVPI_KEEPS_INPUTS)
            n_alone += kind->n_layers;
    }
    if (n_alone < model->n_layers)
        kvpi_size_row(file, "other layers", kvpi_text_count(model->n_layers - n_alone),
                      "keep nothing of their own");
    print_heads(report, file);
    for (uint32_t i = 0, before = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (kind->keeps != KVPI_KEEPS_LATENT || kind->latent == before)
            continue;
        before = kind->latent;
        kvpi_size_row(file, "latent (MLA)", kvpi_text_count(kind->latent + kind->rope),
                      "%" PRIu32 " + %" PRIu32 " values an entry and layer%s", kind->latent,
                      kind->rope, report->options->tensor_parallel > 1 ? "; on each" : "");
    }
    print_parameters(report, file);
}

/* ------------------------------------------------------------------------------ bytes of KV */

/* How an entry's bytes come about. Of types with shared scales only the sum is told. */
static void describe_bytes(const kvpi_size_report *report, const kvpi_models_kind *kind, char *text,
                           size_t n_bytes)
{
    const kvpi_size_options *options = report->options;
    const uint32_t share = kind->kv_heads / options->tensor_parallel, heads = share > 0 ? share : 1;
    const char *const s = heads == 1 ? "" : "s";
    const uint64_t bytes =
        kvpi_models_entry_bytes(kind, options->tensor_parallel, options->kv_dtype);
    uint64_t values =
        kind->keeps == KVPI_KEEPS_INDEX ? kind->index_dim : (uint64_t)kind->latent + kind->rope;
    if (kind->keeps == KVPI_KEEPS_HEADS)
        values = (uint64_t)heads * (kind->k_dim + kind->v_dim);
    int used = 0;
    if (bytes % values != 0)
        used = snprintf(text, n_bytes, "%" PRIu32 " layers x %s B with scales", kind->n_layers,
                        kvpi_text_count(bytes).of);
    else if (kind->keeps != KVPI_KEEPS_HEADS)
        used = snprintf(text, n_bytes, "%" PRIu32 " layers x %" PRIu64 " values x %" PRIu64 " B",
                        kind->n_layers, values, bytes / values);
    else if (kind->k_dim == kind->v_dim)
        used = snprintf(text, n_bytes,
                        "2 x %" PRIu32 " layers x %" PRIu32 " head%s x %" PRIu32 " x %" PRIu64 " B",
                        kind->n_layers, heads, s, kind->k_dim, bytes / values);
    else
        used = snprintf(text, n_bytes,
                        "%" PRIu32 " layers x %" PRIu32 " head%s x (%" PRIu32 " + %" PRIu32
                        ") x %" PRIu64 " B",
                        kind->n_layers, heads, s, kind->k_dim, kind->v_dim, bytes / values);
    if (kind->entry_tokens > 1)
        snprintf(text + used, n_bytes - (size_t)used, ", of %" PRIu32 " tokens",
                 kind->entry_tokens);
}

static void print_kinds(const kvpi_size_report *report, FILE *file)
{
    const kvpi_model *model = report->model;
    const kvpi_size_options *options = report->options;
    uint32_t n = 0, n_rows = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        n += model->kinds[i].keeps <= KVPI_KEEPS_LATENT && !model->kinds[i].recomputed;
        n_rows += model->kinds[i].keeps <= KVPI_KEEPS_INDEX && !model->kinds[i].recomputed;
    }
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        char formula[120];
        if (kind->keeps > KVPI_KEEPS_INDEX || kind->recomputed)
            continue;
        const char *label = kind->window_tokens > 0 ? "token, windowed" : "token, full";
        describe_bytes(report, kind, formula, sizeof formula);
        kvpi_size_row(
            file,
            kind->keeps == KVPI_KEEPS_INDEX ? "index key"
            : kind->entry_tokens > 1        ? "entry"
            : n > 1                         ? label
                                            : "token",
            kvpi_text_count(kind->n_layers * kvpi_models_entry_bytes(kind, options->tensor_parallel,
                                                                     options->kv_dtype)),
            "%s", formula);
    }
    if (n_rows > 1)
        kvpi_size_row(file, "token, all", kvpi_text_count(report->size->token_bytes), "%s%s",
                      report->size->groups[0].span_tokens > 1 ? "entries by their share"
                                                              : "together",
                      kvpi_size_windowed(model) > 0 ? "; inside the windows" : "");
}

static void print_sequence(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        bool windowed = group->window_tokens > 0;
        if (size->n_groups == 1 && !windowed)
            continue;
        kvpi_size_row(
            file, windowed ? "  windowed" : "  full", kvpi_text_count(group->sequence_bytes),
            windowed ? "at most %s blocks%s" : "%s blocks%s",
            kvpi_text_count(group->sequence_blocks).of, windowed ? ", begun anywhere" : "");
    }
}

static void print_bytes(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    char formula[96];
    const uint32_t n_states = kvpi_models_layers(report->model, KVPI_KEEPS_STATE);
    bool two = size->n_groups > 1;
    fprintf(file, "\nBytes of KV%s%s\n",
            report->options->tensor_parallel > 1 ? " on each accelerator" : "",
            kvpi_models_layers(report->model, KVPI_KEEPS_HEADS) > 0 ? " (2: a key and a value)"
                                                                    : "");
    print_kinds(report, file);
    for (uint32_t i = 0; i < size->n_groups; i++) {
        bool windowed = size->groups[i].window_tokens > 0;
        const char *label = windowed ? "block, windowed" : "block, full";
        kvpi_size_row(file, two ? label : "block", kvpi_text_count(size->groups[i].block_bytes),
                      "%s tokens", kvpi_text_count(size->groups[i].block_tokens).of);
    }
    if (size->state_bytes > 0)
        kvpi_size_row(file, "state", kvpi_text_count(size->state_bytes),
                      "%" PRIu32 " layers x %s B", n_states,
                      kvpi_text_count(size->state_bytes / n_states).of);
    kvpi_size_row(file, "context", kvpi_text_count(size->content_bytes),
                  "%s tokens%s, without blocks",
                  kvpi_text_count(report->options->context_tokens).of,
                  size->state_bytes > 0 ? ", one state" : "");
    if (size->running_bytes > 0)
        kvpi_size_row(file, "  while it runs", kvpi_text_count(size->running_bytes),
                      "beside: not cached");
    int used = snprintf(formula, sizeof formula, "%s tokens",
                        kvpi_text_count(report->options->context_tokens).of);
    if (!two && size->groups[0].window_tokens == 0)
        snprintf(formula + used, sizeof formula - (size_t)used, ": %s blocks",
                 kvpi_text_count(size->groups[0].sequence_blocks).of);
    if (size->state_bytes > 0)
        snprintf(formula + strlen(formula), sizeof formula - strlen(formula),
                 ", %" PRIu64 " state%s", size->sequence_slots,
                 size->sequence_slots == 1 ? "" : "s");
    kvpi_size_row(file, "sequence", kvpi_text_count(size->sequence_bytes), "%s", formula);
    print_sequence(report, file);
}

/* -------------------------------------------------------------------------------- what fits */

static void describe_weights(const kvpi_size_report *report, char *formula, size_t n_bytes)
{
    const kvpi_size_options *options = report->options;
    const char *what = "parameters as %s";
    if (report->model->unknown[0] != '\0')
        what = "parameters as %s";
    else if (options->weights_dtype == KVPI_DTYPE_MXFP4 && report->model->experts.n_experts > 0)
        what = "experts as %s, the rest as bf16";
    else if (options->weights_dtype > KVPI_DTYPE_F32)
        what = "layers as %s, embeddings as bf16";
    const char *from = report->weights_from != NULL ? report->weights_from : "--weights";
    int used = options->weights_bytes != 0 ? snprintf(formula, n_bytes, "%s", from)
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
    kvpi_size_row(file, "total", kvpi_size_gib_text(options->memory_bytes),
                  report->device != NULL ? "as its driver reports" : "--memory");
    kvpi_size_row(file, "usable", kvpi_size_gib_text(size->usable_bytes),
                  "total x %" PRIu64 ".%03" PRIu64 " (--utilization)",
                  options->utilization_milli / 1000, options->utilization_milli % 1000);
    describe_weights(report, formula, sizeof formula);
    kvpi_size_row(file, "weights", kvpi_size_gib_text(size->weights_bytes), "%s", formula);
    kvpi_size_row(file, "overhead", kvpi_size_gib_text(options->overhead_bytes),
                  "activations, graphs, buffers (--overhead)");
    kvpi_size_row(file, "KV", kvpi_size_gib_text(size->kv_bytes), "usable - weights - overhead");
}

/* The pool of a model whose layers keep different tokens: its blocks are of one layer group. */
static void print_pool(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    kvpi_size_row(file, "layer groups", kvpi_text_count(size->n_rows),
                  "in one pool of blocks of %s B", kvpi_text_count(size->pool_block_bytes).of);
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        kvpi_size_row(file, group->window_tokens == 0 ? "  full" : "  windowed",
                      kvpi_text_count(group->n_rows), "of %" PRIu64 " layers, blocks of %s tokens",
                      kvpi_size_row_layers(group), kvpi_text_count(group->block_tokens).of);
    }
    if (size->padding_bytes > 0)
        kvpi_size_row(file, "  padding", kvpi_text_count(size->padding_bytes),
                      "B of a sequence's blocks, not used");
    kvpi_size_row(file, "blocks", kvpi_text_count(size->pool_blocks),
                  "KV / block; the null block on top");
    for (uint32_t i = 0; i < size->n_groups; i++) {
        kvpi_size_row(file, i == 0 ? "  full" : "  windowed",
                      kvpi_text_count(size->groups[i].blocks),
                      "in %" PRIu32 " group%s, as sequences fill them", size->groups[i].n_rows,
                      size->groups[i].n_rows == 1 ? "" : "s each");
    }
}

static void print_fit(const kvpi_size_report *report, FILE *file)
{
    const kvpi_size *size = report->size;
    bool two = size->n_groups > 1;
    fputs("\nWhat fits\n", file);
    if (two)
        print_pool(report, file);
    else
        kvpi_size_row(file, "blocks", kvpi_text_count(size->pool_blocks),
                      size->state_bytes > 0 ? "what KV has beside the slots / block"
                                            : "KV / block; the null block on top");
    if (size->state_bytes > 0)
        kvpi_size_row(file, "state slots", kvpi_text_count(size->state_slots),
                      "%" PRIu64 " for a sequence; slot 0 on top", size->sequence_slots);
    kvpi_size_row(file, "tokens", kvpi_text_count(size->tokens), "blocks%s x %s",
                  two ? ", full" : "", kvpi_text_count(size->groups[0].block_tokens).of);
    const bool by_slots = size->sequences < size->pool_blocks / size->sequence_in_blocks;
    kvpi_size_row(file, "sequences", kvpi_text_count(size->sequences),
                  "%s / %s of a sequence of %s tokens", by_slots ? "slots" : "blocks",
                  kvpi_text_count(by_slots ? size->sequence_slots : size->sequence_in_blocks).of,
                  kvpi_text_count(report->options->context_tokens).of);
}

void kvpi_size_print(const kvpi_size_report *report, FILE *file)
{
    print_head(report, file);
    print_model(report, file);
    print_bytes(report, file);
    if (report->options->memory_bytes != 0) {
        print_memory(report, file);
        print_fit(report, file);
    }
    fputs("\nThe model's: token, entry, index key, state, context.\n"
          "kvpager's: block, sequence, what fits.\n",
          file);
    if (report->options->memory_bytes == 0)
        fputs("\nHow much fits: --device NAME or --memory SIZE.\n", file);
}

/* --------------------------------------------------------------------------------- the tables */

static void list_model(const kvpi_model *model, FILE *file)
{
    const kvpi_models_kind *heads = kvpi_models_find_kind(model, KVPI_KEEPS_HEADS, true);
    const kvpi_models_kind *window = kvpi_models_find_window(model);
    const kvpi_size_options options = {
        .tensor_parallel = 1, .block_tokens = 1, .context_tokens = 1, .kv_dtype = model->kv_dtype};
    kvpi_size size;
    const bool known = model->unknown[0] == '\0';
    const uint64_t parameters = model->parameters != 0 || !known
                                    ? model->parameters
                                    : kvpi_models_count_parameters(model).total;
    kvpi_text kind = {"MLA"}, width = {"-"}, count = {"-"};
    kvpi_size_count(model, &options, &size);
    heads = heads != NULL ? heads : kvpi_models_find_kind(model, KVPI_KEEPS_HEADS, false);
    if (heads != NULL)
        snprintf(kind.of, sizeof kind.of, "%" PRIu32 " x %" PRIu32, heads->kv_heads, heads->k_dim);
    if (window != NULL)
        snprintf(width.of, sizeof width.of, "%" PRIu32 " of %" PRIu32, window->window_tokens,
                 kvpi_size_windowed(model));
    if (parameters > 0)
        snprintf(count.of, sizeof count.of, "%.1f", (double)parameters / 1e9);
    fprintf(file, "  %-28s %6s %6" PRIu32 " %9s %10s  %9s\n", model->name, count.of,
            model->n_layers, kind.of, width.of, kvpi_text_count(size.token_bytes).of);
}

/* FLOPs of 16, 8 and 4 bits, those that it has. */
static void list_device(const kvpi_device *device, FILE *file)
{
    const double rates[] = {device->flops, device->fp8_flops, device->fp4_flops};
    kvpi_text flops = {""};
    for (size_t i = 0; i < 3 && rates[i] > 0; i++)
        snprintf(flops.of + strlen(flops.of), sizeof flops.of - strlen(flops.of), "%s%.0f",
                 i > 0 ? "/" : "", rates[i] / 1e12);
    fprintf(file, "  %-15s %-29s %10s %5.2f %15s\n", device->name, device->title,
            kvpi_size_gib_text(device->memory_bytes).of, device->bytes_per_second / 1e12, flops.of);
}

void kvpi_size_list(FILE *file)
{
    size_t n_models, n_devices;
    const kvpi_models_row *rows = kvpi_models_rows(&n_models);
    kvpi_model model;
    const kvpi_device *devices = kvpi_devices_all(&n_devices);
    fprintf(file, "Models (--model)\n  %-28s %6s %6s %9s %10s  %9s\n", "", "10^9", "", "KV heads",
            "window, of", "KV");
    fprintf(file, "  %-28s %6s %6s %9s %10s  %9s\n", "name", "param.", "layers", "x size",
            "n layers", "B / token");
    for (size_t i = 0; i < n_models; i++) {
        kvpi_models_read_row(&rows[i], &model);
        list_model(&model, file);
    }
    fprintf(file, "\nAccelerators (--device), per second\n  %-15s %-29s %10s %5s %15s\n", "name",
            "", "memory", "TB", "TFLOP 16/8/4");
    for (size_t i = 0; i < n_devices; i++)
        list_device(&devices[i], file);
}

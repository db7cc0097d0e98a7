/* kvpager mrc: the hit ratio of a trace at every size of the cache.
 *
 *   trace --(mrc/refs.c)--> block references --(mrc/lru.c)----> the curve
 *                                           --(mrc/policies)--> other policies, at some sizes
 *                                           --(mrc/tiers.c)---> host and store, at some sizes
 *
 * The options are in mrc/mrc_args.c, what is printed in mrc/mrc_figures.c and
 * mrc/report. Here: which sizes are shown.
 */
#include <inttypes.h>
#include <kvpager/all.h>
#include <stdlib.h>
#include <string.h>

#include "tool/args.h"
#include "tool/mrc/mrc_args.h"
#include "tool/mrc/policies/mrc_learned.h"
#include "tool/mrc/lru.h"
#include "tool/mrc/policies/policies.h"
#include "tool/mrc/refs.h"
#include "tool/mrc/mrc_report.h"
#include "tool/mrc/rows.h"
#include "tool/report/page.h"
#include "tool/progress.h"
#include "tool/replay/replay_cache.h"
#include "tool/tool.h"

typedef struct mrc_command {
    kvpi_args args;
    kvpi_mrc_args options;
    kvpi_model model;
    kvpi_step_model step;
    kvpi_requests *requests;
    kvpi_mrc_refs refs;
    kvpi_mrc_curve curve;
    kvpi_mrc_report report;
    json_t *figures; /* of the report */
} mrc_command;

/* ------------------------------------------------------------------------------------- memory */

/* A cache with windows drops what falls out of them, and where states are kept decides what can be
 * hit: no list of last uses tells either. */
static int refuse_kinds(const mrc_command *command)
{
    const char *name = command->model.name;
    const bool from_file = command->options.model.config_path != NULL;
    const kvpi_models_kind *windowed = kvpi_models_find_window(&command->model);
    const uint32_t n_states = kvpi_models_layers(&command->model, KVPI_KEEPS_STATE);
    char what[120] = "";
    int used = 0;
    if (windowed != NULL)
        used = snprintf(what, sizeof what, "%" PRIu32 " layers with %s of %" PRIu32 " tokens",
                        windowed->n_layers, windowed->chunked ? "chunks" : "a window",
                        windowed->window_tokens);
    if (n_states > 0)
        snprintf(what + used, sizeof what - (size_t)used,
                 "%s%" PRIu32 " layers with recurrent state", used > 0 ? " and " : "", n_states);
    if (what[0] == '\0')
        return TOOL_OK;
    return kvpi_tool_fail(
        "mrc",
        "%s is '%s', which has %s: the curve is of caches that keep all tokens of "
        "a layer. For one size: kvpager replay --sequential --memory SIZE %s %s",
        from_file ? "--model-config" : "--model", name, what,
        from_file ? "--model-config" : "--model",
        from_file ? command->options.model.config_path : name);
}

static int count_memory(mrc_command *command)
{
    kvpi_model_args *model = &command->options.model;
    kvpi_size size;
    kvpi_mrc_report *report = &command->report;
    const bool has_price = command->options.price_milli > 0;
    report->token_bytes = command->options.kv_bytes_per_token;
    report->price_milli = command->options.price_milli;
    if (model->model_name == NULL && model->config_path == NULL)
        return TOOL_OK;
    model->size.block_tokens = command->options.options.block_tokens;
    if (model->device != NULL)
        model->size.memory_bytes = model->device->memory_bytes;
    int status = kvpi_model_args_find(&command->args, model, &command->model);
    if (status == TOOL_OK)
        status = kvpi_model_args_check(&command->args, model->device != NULL, has_price,
                                       &command->model, model);
    if (status == TOOL_OK)
        status = refuse_kinds(command);
    if (status != TOOL_OK)
        return status;
    if (kvpi_size_count(&command->model, &model->size, &size) != 0)
        return kvpi_model_args_fail_full(&command->args, &command->model, model, &size);
    report->token_bytes = size.token_bytes;
    report->model = &command->model;
    report->device = model->device;
    report->tensor_parallel = model->size.tensor_parallel;
    if (model->device != NULL)
        report->device_blocks = size.pool_blocks;
    if (has_price)
        command->step = (kvpi_step_model){
            .is_roofline = true,
            .roofline = kvpi_step_roofline_of(&command->model, &model->size, &size, model->device,
                                              &command->options.shares)};
    return TOOL_OK;
}

/* The report multiplies them, and a sum over sizes is never made. */
static int check_bytes(const mrc_command *command)
{
    uint64_t token_bytes = command->report.token_bytes;
    uint64_t tokens = command->curve.enough_blocks * command->refs.block_tokens;
    if (token_bytes <= INT64_MAX / (tokens + 1))
        return TOOL_OK;
    return kvpi_args_usage(&command->args, "--kv-bytes-per-token makes more than 2^63 bytes of KV");
}

/* --------------------------------------------------------------------------------- the sizes */

static void add_point(kvpi_mrc_report *report, uint64_t blocks)
{
    size_t at = report->n_points;
    for (size_t i = 0; i < report->n_points; i++)
        if (report->points[i].blocks == blocks)
            return;
    if (at == KVPI_MRC_MAX_POINTS + 1)
        return;
    for (; at > 0 && report->points[at - 1].blocks > blocks; at--)
        report->points[at] = report->points[at - 1];
    report->points[at] =
        (kvpi_mrc_point){.blocks = blocks, .is_device = blocks == report->device_blocks};
    for (size_t i = 0; i < KVPI_MRC_POLICIES; i++)
        report->points[at].tokens[i] = KVPI_MRC_NONE;
    report->n_points++;
}

/* First of all, so that there is a place for it; the report says so when it is too small. */
static void add_device(mrc_command *command)
{
    kvpi_mrc_report *report = &command->report;
    report->is_device_shown = report->device_blocks >= command->curve.min_blocks;
    if (report->device != NULL && report->is_device_shown)
        add_point(report, report->device_blocks);
}

static int take_sizes(mrc_command *command)
{
    uint64_t block_bytes = command->report.token_bytes * command->refs.block_tokens;
    for (size_t i = 0; i < command->options.sizes.n; i++) {
        const kvpi_mrc_size *size = &command->options.sizes.of[i];
        uint64_t blocks = size->is_bytes ? size->number / block_bytes : size->number;
        if (blocks > KVPI_REPLAY_MAX_BLOCKS)
            return kvpi_args_usage(&command->args,
                                   "--sizes has %" PRIu64 " blocks, expected at most %" PRIu64,
                                   blocks, KVPI_REPLAY_MAX_BLOCKS);
        if (blocks < command->curve.min_blocks)
            command->report.small_blocks[command->report.n_small++] = blocks;
        else
            add_point(&command->report, blocks);
    }
    return TOOL_OK;
}

static void choose_sizes(mrc_command *command)
{
    const kvpi_mrc_curve *curve = &command->curve;
    uint64_t blocks = 1;
    add_point(&command->report, curve->min_blocks);
    add_point(&command->report, curve->enough_blocks);
    while (blocks <= curve->min_blocks)
        blocks *= 2;
    for (; blocks < curve->enough_blocks; blocks *= 2)
        add_point(&command->report, blocks);
}

static void fill_point(mrc_command *command, kvpi_mrc_policies *policies, kvpi_mrc_point *point,
                       kvpi_progress *progress, uint64_t n_done)
{
    for (kvpi_mrc_policy i = 0; i < KVPI_MRC_LEARNED; i++) {
        if (command->options.shown.of[i])
            point->tokens[i] = kvpi_mrc_policies_run(policies, i, point->blocks);
        kvpi_progress_update(progress, n_done);
    }
}

static int fill_learned(mrc_command *command)
{
    kvpi_mrc_report *report = &command->report;
    uint64_t blocks[KVPI_MRC_MAX_POINTS + 1];
    kvpi_mrc_learned_hits hits[KVPI_MRC_MAX_POINTS + 1];
    for (size_t i = 0; i < report->n_points; i++)
        blocks[i] = report->points[i].blocks;
    int status = kvpi_mrc_learned_run_sizes(&command->refs, blocks, report->n_points, hits);
    for (size_t i = 0; i < report->n_points && status == TOOL_OK; i++)
        report->points[i].tokens[KVPI_MRC_LEARNED] = (double)hits[i].tokens;
    return status;
}

static int fill_points(mrc_command *command)
{
    const bool *shown = command->options.shown.of;
    const bool adaptive = shown[KVPI_MRC_ARC] || shown[KVPI_MRC_S3FIFO];
    const bool simulated = shown[KVPI_MRC_FIFO] || shown[KVPI_MRC_OPTIMUM] || adaptive;
    kvpi_mrc_policies *policies = NULL;
    kvpi_mrc_report *report = &command->report;
    kvpi_progress progress;
    int status = TOOL_OK;
    for (size_t i = 0; i < report->n_points; i++)
        report->points[i].lru = kvpi_mrc_lru_at(&command->curve, report->points[i].blocks);
    if (!simulated && !shown[KVPI_MRC_LEARNED])
        return TOOL_OK;
    if (simulated && kvpi_mrc_policies_make(&command->refs, "mrc", adaptive, &policies) != TOOL_OK)
        return TOOL_FAILED;
    if (shown[KVPI_MRC_LEARNED])
        status = fill_learned(command);
    kvpi_progress_start(&progress, "other policies at sizes", report->n_points);
    for (size_t i = 0; i < report->n_points && status == TOOL_OK; i++) {
        fill_point(command, policies, &report->points[i], &progress, i);
        kvpi_progress_update(&progress, i + 1);
    }
    kvpi_progress_end(&progress);
    kvpi_mrc_policies_free(policies);
    return status;
}

static void find_shares(mrc_command *command)
{
    const kvpi_mrc_curve *curve = &command->curve;
    double most = kvpi_mrc_lru_at(curve, curve->enough_blocks).tokens;
    for (size_t i = 0; i < KVPI_MRC_SHARES; i++)
        command->report.share_blocks[i] =
            kvpi_mrc_lru_size_for(curve, most * kvpi_mrc_shares[i] / 100);
}

/* --------------------------------------------------------------------------------- the output */

static int write_curve(const mrc_command *command)
{
    const char *path = command->options.curve;
    if (path == NULL)
        return TOOL_OK;
    FILE *file = kvpi_tool_open("mrc", path);
    if (file == NULL)
        return TOOL_FAILED;
    kvpi_mrc_report_print_curve(&command->report, file);
    return kvpi_tool_close("mrc", path, file, 0);
}

static int print(const mrc_command *command)
{
    if (command->options.json)
        return kvpi_figures_tell("mrc", json_incref(command->figures));
    kvpi_mrc_report_print(&command->report, command->figures, stdout);
    return TOOL_OK;
}

static void describe(mrc_command *command)
{
    const kvpi_requests *requests = command->requests;
    kvpi_mrc_report *report = &command->report;
    report->format = kvpi_requests_format_name(kvpi_requests_get_format(requests));
    report->about = kvpi_requests_describe(requests);
    report->agains = kvpi_requests_agains(requests, &report->n_agains);
    report->is_cut = command->refs.n_requests < kvpi_requests_count(requests);
    report->options = &command->options.options;
    report->refs = &command->refs;
    report->curve = &command->curve;
    report->shown = command->options.shown;
    report->mended = kvpi_requests_mended(requests);
    report->span_us = kvpi_requests_get(requests, command->refs.n_requests - 1)->timestamp_us -
                      kvpi_requests_get(requests, 0)->timestamp_us;
}

static int make_report(mrc_command *command)
{
    int status = check_bytes(command);
    describe(command);
    add_device(command);
    if (status == TOOL_OK)
        status = take_sizes(command);
    if (status == TOOL_OK && command->report.n_small == command->options.sizes.n)
        choose_sizes(command); /* none was asked for, or none that there can be */
    if (status == TOOL_OK)
        status = fill_points(command);
    if (status == TOOL_OK)
        status = kvpi_mrc_rows_make(&command->args, &command->options, &command->report);
    if (status == TOOL_OK)
        status =
            kvpi_mrc_retention_make(&command->refs, command->requests, &command->report.retention);
    if (status != TOOL_OK)
        return status;
    find_shares(command);
    command->figures = kvpi_mrc_report_figures(&command->report);
    if (command->figures == NULL)
        return kvpi_tool_fail("mrc", "out of memory");
    if (command->options.report != NULL)
        status = kvpi_page_mrc(command->options.report, &command->report, command->figures);
    return status == TOOL_OK ? write_curve(command) : status;
}

static int make_curve(mrc_command *command)
{
    const kvpi_mrc_refs *refs = &command->refs;
    const uint32_t n_tokens = (uint32_t)refs->block_tokens;
    kvpi_mrc_spared *spared = NULL;
    if (command->options.price_milli > 0) {
        spared = malloc(((size_t)refs->min_blocks + 1) * sizeof *spared);
        if (spared == NULL)
            return kvpi_tool_fail("mrc", "out of memory for the price of prefill");
        for (uint32_t i = 0; i < refs->min_blocks; i++)
            spared[i] = (kvpi_mrc_spared){
                kvpi_step_prefill_ns(&command->step, i * n_tokens, (i + 1) * n_tokens),
                kvpi_step_prefill_ns(&command->step, i * n_tokens, (i + 1) * n_tokens - 1)};
    }
    int status = kvpi_mrc_lru_make(refs, spared, "mrc", &command->curve);
    free(spared);
    return status;
}

static int run(mrc_command *command)
{
    kvpi_mrc_args *options = &command->options;
    int status = count_memory(command);
    if (status == TOOL_OK)
        status = kvpi_trace_args_read(&command->args, &options->options.trace,
                                      options->options.block_tokens, &command->requests);
    if (status == TOOL_OK)
        status = kvpi_mrc_refs_make(command->requests, &options->options, &command->refs);
    if (status == TOOL_OK)
        status = make_curve(command);
    if (status == TOOL_OK)
        status = make_report(command);
    return status == TOOL_OK ? print(command) : status;
}

int cmd_mrc(int argc, char **argv)
{
    static char buffer[1 << 18]; /* in use until the process ends */
    mrc_command command = {.requests = NULL};
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    int status = kvpi_mrc_args_parse(argc, argv, &command.args, &command.options);
    if (status == KVPI_ARGS_GO)
        status = run(&command);
    json_decref(command.figures);
    free(command.report.tiers);
    kvpi_mrc_lru_free(&command.curve);
    kvpi_mrc_refs_free(&command.refs);
    kvpi_requests_free(command.requests);
    return status;
}

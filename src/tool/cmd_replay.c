/* kvpager replay: reads a request trace, replays it, reports.
 *
 * The options are in replay/args.c, what they come to in replay/setup.c; requests/ reads the trace.
 * Two kinds of replay: under load (replay/simulate_run.c, told by report/load_report.c), and one
 * request after the other (replay/replay.c, told by report/report.c).
 */
#include <kvpager/all.h>

#include "tool/args.h"
#include "tool/report/load_report.h"
#include "tool/report/page.h"
#include "tool/report/policies_report.h"
#include "tool/replay/replay_cache.h"
#include "tool/replay/replay_args.h"
#include "tool/replay/cache.h"
#include "tool/replay/setup.h"
#include "tool/report/report.h"
#include "tool/replay/simulate.h"
#include "tool/tool.h"
#include "tool/log/log_args.h"

/* After the report, which says why for each. */
static int check_served(uint64_t rejected, uint64_t requests)
{
    return rejected < requests || requests == 0
               ? TOOL_OK
               : kvpi_tool_fail("replay",
                                "no request could be served: all of them need more blocks "
                                "than there are, or have no prompt");
}

static int tell_sequential(const kvpi_replay_args *options, const kvpi_report *report,
                           json_t *figures)
{
    if (options->report != NULL) {
        kvpi_watch_end(options->load.replay.watch);
        if (kvpi_page_sequential(options->report, report, figures, options->load.replay.watch) !=
            TOOL_OK)
            return TOOL_FAILED;
    }
    if (options->json || figures == NULL)
        return kvpi_figures_tell("replay", json_incref(figures));
    kvpi_report_print(report, figures, stdout);
    return TOOL_OK;
}

static kvpi_report begin_sequential(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                                    const kvpi_requests *requests)
{
    const kvpi_replay_options *replay = &options->load.replay;
    kvpi_report report = {.path = replay->trace.path,
                          .format = kvpi_requests_format_name(kvpi_requests_get_format(requests)),
                          .about = kvpi_requests_describe(requests),
                          .block_tokens = replay->block_tokens,
                          .unit_tokens = replay->unit_tokens,
                          .retain_tokens = replay->retain_tokens,
                          .blocks = replay->blocks,
                          .host_blocks = replay->host_blocks,
                          .keep_evicted = replay->keep_evicted,
                          .model = options->has_model ? &setup->model : NULL,
                          .device = options->has_model ? options->model.device : NULL,
                          .size = options->has_model ? &setup->size : NULL,
                          .context_tokens = options->model.size.context_tokens,
                          .seed = replay->trace.key.seed,
                          .prefix_cache = replay->prefix_cache,
                          .output = replay->trace.output,
                          .mended = kvpi_requests_mended(requests),
                          .why = replay->watch != NULL ? &replay->watch->why : NULL};
    report.memory_bytes = report.blocks * report.block_tokens * setup->token_bytes;
    report.host_memory_bytes = report.host_blocks * report.block_tokens * setup->token_bytes;
    return report;
}

static int replay_sequential(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                             const kvpi_requests *requests)
{
    kvpi_report report = begin_sequential(options, setup, requests);
    int status = kvpi_replay_run(requests, &options->load.replay, &report);
    if (status != TOOL_OK)
        return status;
    json_t *figures = kvpi_report_figures(&report);
    status = tell_sequential(options, &report, figures);
    json_decref(figures);
    return status == TOOL_OK ? check_served(report.rejected, report.requests) : status;
}

static int tell_load(const kvpi_replay_args *options, const kvpi_load_report *report,
                     json_t *figures)
{
    if (options->report != NULL) {
        kvpi_watch_end(options->load.replay.watch);
        if (kvpi_page_load(options->report, report, figures, options->load.replay.watch) != TOOL_OK)
            return TOOL_FAILED;
    }
    if (options->json || figures == NULL)
        return kvpi_figures_tell("replay", json_incref(figures));
    kvpi_load_report_print(report, figures, stdout);
    return TOOL_OK;
}

static kvpi_load_report begin_load(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                                   const kvpi_requests *requests)
{
    return (kvpi_load_report){
        .path = options->load.replay.trace.path,
        .format = kvpi_requests_format_name(kvpi_requests_get_format(requests)),
        .about = kvpi_requests_describe(requests),
        .mended = kvpi_requests_mended(requests),
        .why = options->load.replay.watch != NULL ? &options->load.replay.watch->why : NULL,
        .setting = kvpi_replay_setup_setting(setup, options)};
}

static int replay_under_load(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                             const kvpi_requests *requests)
{
    kvpi_load_report report = begin_load(options, setup, requests);
    int status = kvpi_simulate_run(requests, &options->load, &report);
    if (status != TOOL_OK && report.unfinished == 0)
        return status;
    json_t *figures = kvpi_load_report_figures(&report);
    int told = tell_load(options, &report, figures);
    json_decref(figures);
    if (told == TOOL_OK && status == TOOL_OK)
        return check_served(kvpi_load_report_rejected(&report), report.requests);
    return told == TOOL_OK ? status : told;
}

/* -------------------------------------------------------------------------- several policies */

/* The same replay with one policy; what is compared of it. */
static int replay_policy(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                         const kvpi_requests *requests, kvpi_policies_row *row)
{
    kvpi_replay_args own = *options;
    own.load.replay.policy = row->policy;
    if (own.sequential) {
        kvpi_report report = begin_sequential(&own, setup, requests);
        int status = kvpi_replay_run(requests, &own.load.replay, &report);
        row->input_tokens = report.input_tokens;
        row->hit_tokens = report.hit_tokens;
        row->cache = report.cache;
        row->figures = status == TOOL_OK ? kvpi_report_figures(&report) : NULL;
        return status == TOOL_OK ? check_served(report.rejected, report.requests) : status;
    }
    kvpi_load_report report = begin_load(&own, setup, requests);
    int status = kvpi_simulate_run(requests, &own.load, &report);
    row->input_tokens = report.input_tokens;
    row->hit_tokens = report.hit_tokens;
    row->cache = report.cache;
    row->figures = status == TOOL_OK ? kvpi_load_report_figures(&report) : NULL;
    return status == TOOL_OK ? check_served(kvpi_load_report_rejected(&report), report.requests)
                             : status;
}

static int tell_policies(const kvpi_replay_args *options, const kvpi_policies_report *report)
{
    json_t *figures = NULL;
    int status = TOOL_OK;
    if (options->json || options->report != NULL)
        figures = kvpi_policies_figures(report);
    if (options->report != NULL)
        status = kvpi_page_policies(options->report, report->path, figures);
    if (status == TOOL_OK && options->json)
        return kvpi_figures_tell("replay", figures);
    json_decref(figures);
    if (status == TOOL_OK)
        kvpi_policies_print(report, stdout);
    return status;
}

static int replay_policies(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                           const kvpi_requests *requests)
{
    const kvpi_replay_options *replay = &options->load.replay;
    kvpi_policies_report report = {.path = replay->trace.path,
                                   .blocks = replay->blocks,
                                   .block_tokens = replay->block_tokens,
                                   .sequential = options->sequential};
    int status = TOOL_OK;
    for (; report.n < options->policies.n && status == TOOL_OK; report.n++) {
        report.rows[report.n].policy = options->policies.of[report.n];
        status = replay_policy(options, setup, requests, &report.rows[report.n]);
    }
    if (status == TOOL_OK)
        status = tell_policies(options, &report);
    for (size_t i = 0; i < report.n; i++)
        json_decref(report.rows[i].figures);
    return status;
}

static kvpi_watch_cache watched_cache(const kvpi_replay_options *replay)
{
    kvpi_watch_cache cache = {.name = KVPI_REPLAY_CACHE_NAME,
                              .unit_tokens = (uint32_t)replay->unit_tokens,
                              .n_groups = replay->n_groups};
    while (cache.n_full < cache.n_groups && replay->groups[cache.n_full].recent_tokens == 0)
        cache.n_full++;
    return cache;
}

/* How large a cache would have kept what is evicted is known of one queue of whole blocks. */
static void open_sizes(const kvpi_replay_args *options, const kvpi_requests *requests,
                       kvpi_replay_options *replay)
{
    const kvpi_mrc_options mrc = {
        .trace = replay->trace, .block_tokens = replay->block_tokens, .sample_millionths = 1000000};
    const bool known = options->sequential && replay->policy == KVP_POLICY_LRU &&
                       replay->n_groups == 1 && replay->groups[0].recent_tokens == 0 &&
                       replay->state_slots == 0 && replay->unit_tokens == replay->block_tokens &&
                       replay->prefix_cache && replay->reclaim == 0 && replay->skip == 0 &&
                       replay->snapshot_in == NULL;
    replay->sizes = known ? kvpi_mrc_sizes_open(requests, &mrc) : NULL;
}

static int replay_watched(kvpi_replay_args *options, const kvpi_replay_setup *setup,
                          const kvpi_requests *requests)
{
    kvpi_watch watch = {.n_prefixes = 0};
    kvpi_replay_options *replay = &options->load.replay;
    const kvpi_watch_cache cache = watched_cache(replay);
    int status = kvpi_reasons_begin(&watch.why, options->why);
    if (status == TOOL_OK)
        status = kvpi_watch_begin(&watch, &cache);
    if (status == TOOL_OK)
        open_sizes(options, requests, replay);
    replay->watch = &watch;
    if (!options->sequential) {
        watch.why.in_ms = true;
        watch.why.model = options->load.model;
    }
    if (status == TOOL_OK)
        status = options->sequential ? replay_sequential(options, setup, requests)
                                     : replay_under_load(options, setup, requests);
    replay->watch = NULL;
    kvpi_mrc_sizes_close(replay->sizes);
    kvpi_watch_free(&watch);
    const int written = kvpi_reasons_end(&watch.why);
    return status == TOOL_OK ? written : status;
}

/* The watch is there only when an option asks for what it sees. */
static int replay_and_report(kvpi_replay_args *options, const kvpi_replay_setup *setup,
                             const kvpi_requests *requests)
{
    if (options->policies.n > 1)
        return replay_policies(options, setup, requests);
    if (options->report != NULL || options->why != NULL)
        return replay_watched(options, setup, requests);
    return options->sequential ? replay_sequential(options, setup, requests)
                               : replay_under_load(options, setup, requests);
}

int cmd_replay(int argc, char **argv)
{
    kvpi_args args;
    kvpi_replay_args options;
    kvpi_replay_setup setup;
    kvpi_requests *requests = NULL;
    /* A report is written in one piece, at the end, where an error still has its reason. */
    static char buffer[1 << 18]; /* in use until the process ends */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    int status = kvpi_replay_args_parse(argc, argv, &args, &options);
    if (status != KVPI_ARGS_GO)
        return status;
    status = kvpi_replay_setup_make(&args, &options, &setup);
    if (status == TOOL_OK)
        status = kvpi_trace_args_read(&args, &options.load.replay.trace,
                                      options.load.replay.block_tokens, &requests);
    if (status == TOOL_OK)
        status = replay_and_report(&options, &setup, requests);
    kvpi_requests_free(requests);
    return status;
}

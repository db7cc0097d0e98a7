/* kvpager replay: reads a request trace, replays it, reports.
 *
 * The options are in replay_args.c, what they come to in replay_setup.c; the trace is read in
 * src/trace. Two kinds of replay: under load (simulate.c, told by load_report*.c), and one request
 * after the other (replay.c, told by report*.c).
 */
#include <inttypes.h>
#include <kvpager/kvpager.h>

#include "args.h"
#include "load_report.h"
#include "progress.h"
#include "replay.h"
#include "replay_args.h"
#include "replay_setup.h"
#include "report.h"
#include "simulate.h"
#include "tool.h"
#include "trace/requests.h"

static void on_progress(void *context, uint64_t bytes_read)
{
    kvpi_progress_update(context, bytes_read);
}

static int read_requests(const kvpi_replay_args *options, kvpi_requests **out)
{
    kvpi_requests_options reading;
    kvpi_requests_error error;
    kvpi_progress progress;
    kvpi_progress_start(&progress, "reading bytes", 0);
    kvpi_requests_options_init(&reading);
    reading.trace_block = options->load.replay.trace_block;
    reading.lenient = options->lenient;
    reading.on_progress = on_progress;
    reading.progress_context = &progress;
    int result = kvpi_requests_read(options->path, &reading, &error, out);
    kvpi_progress_end(&progress);
    return result == 0 ? TOOL_OK : kvpi_tool_fail("replay", "%s", error.text);
}

/* Only content with ids has a block of its own that ours must divide. */
static int check_block_size(const kvpi_args *args, const kvpi_replay_args *options,
                            const kvpi_requests *requests)
{
    uint64_t block_tokens = options->load.replay.block_tokens;
    uint64_t trace_block = (uint64_t)options->load.replay.trace_block;
    if (kvpi_requests_get_format(requests) != KVPI_REQUESTS_MOONCAKE ||
        trace_block % block_tokens == 0)
        return TOOL_OK;
    kvpi_args_wrong(args,
                    "--block-tokens %" PRIu64 " does not divide the %" PRIu64
                    " tokens that an id of the trace stands for (--trace-block)",
                    block_tokens, trace_block);
    return TOOL_USAGE;
}

static void tell_mended(const kvpi_replay_args *options, const kvpi_requests *requests)
{
    uint64_t mended = kvpi_requests_mended(requests);
    if (mended > 0)
        fprintf(stderr,
                "kvpager replay: %s: %" PRIu64
                " requests had too few or too many ids (--lenient)\n",
                options->path, mended);
}

static int check_written(int result)
{
    return result != 0 && !ferror(stdout) ? kvpi_tool_fail("replay", "out of memory") : TOOL_OK;
}

static int replay_sequential(const kvpi_replay_args *options, const kvpi_requests *requests)
{
    const kvpi_replay_options *replay = &options->load.replay;
    kvpi_report report = {.path = options->path,
                          .format = kvpi_requests_format_name(kvpi_requests_get_format(requests)),
                          .block_tokens = replay->block_tokens,
                          .blocks = replay->blocks,
                          .seed = replay->seed,
                          .prefix_cache = replay->prefix_cache,
                          .output = replay->output,
                          .mended = kvpi_requests_mended(requests)};
    report.memory_bytes = report.blocks * report.block_tokens * options->kv_bytes_per_token;
    int status = kvpi_replay_run(requests, replay, &report);
    if (status != TOOL_OK)
        return status;
    if (options->json)
        return check_written(kvpi_report_print_json(&report, stdout));
    kvpi_report_print(&report, stdout);
    return TOOL_OK;
}

static int replay_under_load(const kvpi_replay_args *options, const kvpi_replay_setup *setup,
                             const kvpi_requests *requests)
{
    kvpi_load_report report = {.path = options->path,
                               .format =
                                   kvpi_requests_format_name(kvpi_requests_get_format(requests)),
                               .mended = kvpi_requests_mended(requests),
                               .setting = kvpi_replay_setup_setting(setup, options)};
    int status = kvpi_simulate_run(requests, &options->load, &report);
    if (status != TOOL_OK && report.unfinished == 0)
        return status;
    if (!options->json)
        kvpi_load_report_print(&report, stdout);
    else if (check_written(kvpi_load_report_print_json(&report, stdout)) != TOOL_OK)
        return TOOL_FAILED;
    return status;
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
    if (kvpi_replay_args_parse(argc, argv, &args, &options) != 0)
        return TOOL_USAGE;
    if (options.help) {
        kvpi_replay_args_help();
        return TOOL_OK;
    }
    int status = kvpi_replay_setup_make(&args, &options, &setup);
    if (status == TOOL_OK)
        status = read_requests(&options, &requests);
    if (status == TOOL_OK)
        status = check_block_size(&args, &options, requests);
    if (status == TOOL_OK) {
        tell_mended(&options, requests);
        status = options.sequential ? replay_sequential(&options, requests)
                                    : replay_under_load(&options, &setup, requests);
    }
    kvpi_requests_free(requests);
    return status;
}

/* Owns what every subcommand that takes a request trace does with it first. */
#include "read_trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "progress.h"
#include "tool.h"

static void on_progress(void *context, uint64_t bytes_read)
{
    kvpi_progress_update(context, bytes_read);
}

static int read_file(const kvpi_args *args, const kvpi_read_trace_options *options,
                     kvpi_requests **out)
{
    kvpi_requests_options reading;
    kvpi_requests_error error;
    kvpi_progress progress;
    kvpi_progress_start(&progress, "reading bytes", 0);
    kvpi_requests_options_init(&reading);
    reading.trace_block = options->trace_block;
    reading.lenient = options->lenient;
    reading.on_progress = on_progress;
    reading.progress_context = &progress;
    int result = kvpi_requests_read(options->path, &reading, &error, out);
    kvpi_progress_end(&progress);
    return result == 0 ? TOOL_OK : kvpi_tool_fail(args->command, "%s", error.text);
}

/* Only content with ids has a block of its own that ours must divide. */
static int check_block_size(const kvpi_args *args, const kvpi_read_trace_options *options,
                            const kvpi_requests *requests)
{
    if (kvpi_requests_get_format(requests) != KVPI_REQUESTS_MOONCAKE ||
        (uint64_t)options->trace_block % options->block_tokens == 0)
        return TOOL_OK;
    kvpi_args_wrong(args,
                    "--block-tokens %" PRIu64 " does not divide the %" PRId32
                    " tokens that an id of the trace stands for (--trace-block)",
                    options->block_tokens, options->trace_block);
    return TOOL_USAGE;
}

int kvpi_read_trace(const kvpi_args *args, const kvpi_read_trace_options *options,
                    kvpi_requests **out)
{
    kvpi_requests *requests = NULL;
    int status = read_file(args, options, &requests);
    if (status == TOOL_OK)
        status = check_block_size(args, options, requests);
    if (status != TOOL_OK) {
        kvpi_requests_free(requests);
        return status;
    }
    size_t mended = kvpi_requests_mended(requests);
    if (mended > 0)
        fprintf(stderr, "kvpager %s: %s: %zu requests had too few or too many ids (--lenient)\n",
                args->command, options->path, mended);
    *out = requests;
    return TOOL_OK;
}

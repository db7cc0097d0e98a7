/* Owns what every subcommand that takes a request trace does with it first: which trace, what of
 * it, and reading it.
 */
#include "tool/log/log_args.h"

#include <inttypes.h>
#include <stdio.h>

#include "tool/progress.h"
#include "tool/tool.h"
#include "tool/input/escape.h"

void kvpi_trace_args_init(kvpi_trace_args *trace)
{
    *trace = (kvpi_trace_args){.limit = UINT64_MAX, .key = {.trace_block = 512}, .output = true};
}

int kvpi_trace_args_check(const kvpi_args *args, const kvpi_trace_args *trace)
{
    return trace->path == NULL ? kvpi_args_wrong(args, "no trace file is named") : 0;
}

/* ------------------------------------------------------------------------------------- reading */

static void on_progress(void *context, uint64_t bytes_read)
{
    kvpi_progress_update(context, bytes_read);
}

static int read_file(const kvpi_args *args, const kvpi_trace_args *trace, kvpi_requests **out)
{
    kvpi_requests_options reading;
    kvpi_requests_error error;
    kvpi_progress progress;
    kvpi_progress_start(&progress, "reading bytes", 0);
    kvpi_requests_options_init(&reading);
    reading.trace_block = trace->key.trace_block;
    reading.lenient = trace->lenient;
    reading.max_memory = trace->max_memory;
    reading.on_progress = on_progress;
    reading.progress_context = &progress;
    int result = kvpi_requests_read(trace->path, &reading, &error, out);
    kvpi_progress_end(&progress);
    return result == 0 ? TOOL_OK : kvpi_tool_fail(args->command, "%s", error.text);
}

/* Only content with ids has a block of its own that ours must divide. */
static int check_block_size(const kvpi_args *args, const kvpi_trace_args *trace,
                            uint64_t block_tokens, const kvpi_requests *requests)
{
    if (kvpi_requests_get_format(requests) != KVPI_REQUESTS_MOONCAKE ||
        (uint64_t)trace->key.trace_block % block_tokens == 0)
        return TOOL_OK;
    return kvpi_args_usage(args,
                           "--block-tokens %" PRIu64 " does not divide the %" PRId32
                           " tokens that an id of the trace stands for (--trace-block)",
                           block_tokens, trace->key.trace_block);
}

int kvpi_trace_args_read(const kvpi_args *args, const kvpi_trace_args *trace, uint64_t block_tokens,
                         kvpi_requests **out)
{
    kvpi_requests *requests = NULL;
    int status = read_file(args, trace, &requests);
    if (status == TOOL_OK)
        status = check_block_size(args, trace, block_tokens, requests);
    if (status != TOOL_OK) {
        kvpi_requests_free(requests);
        return status;
    }
    size_t mended = kvpi_requests_mended(requests);
    if (mended > 0)
        fprintf(stderr, "kvpager %s: %s: %zu requests had too few or too many ids (--lenient)\n",
                args->command, kvpi_escape(trace->path).of, mended);
    *out = requests;
    return TOOL_OK;
}

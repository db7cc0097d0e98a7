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
    *trace = (kvpi_trace_args){.limit = UINT64_MAX,
                               .format = KVPI_REQUESTS_FORMATS,
                               .unit = KVPI_REQUESTS_UNITS,
                               .output = true};
}

/* argv has room: what was read of it is not needed there any more. */
int kvpi_trace_args_add(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                        void *at)
{
    kvpi_trace_args *trace = at;
    (void)option;
    trace->paths = args->argv + 1;
    trace->paths[trace->n_paths++] = args->argv[args->next - 1];
    if (trace->n_paths == 1) {
        trace->path = text;
        return 0;
    }
    snprintf(trace->label, sizeof trace->label, "%.250s and %zu more", trace->paths[0],
             trace->n_paths - 1);
    trace->path = trace->label;
    return 0;
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
    reading.format = trace->format;
    reading.unit = trace->unit;
    reading.merge_models = trace->merge_models;
    reading.trace_block = trace->key.trace_block;
    reading.lenient = trace->lenient;
    reading.max_memory = trace->max_memory;
    reading.on_progress = on_progress;
    reading.progress_context = &progress;
    int result = kvpi_requests_read_all(trace->paths, trace->n_paths, &reading, &error, out);
    kvpi_progress_end(&progress);
    return result == 0 ? TOOL_OK : kvpi_tool_fail(args->command, "%s", error.text);
}

/* Only content with ids has a block of its own. */
static int check_block_size(const kvpi_args *args, const kvpi_requests *requests,
                            uint64_t block_tokens)
{
    const int32_t trace_block = kvpi_requests_describe(requests)->trace_block;
    if (trace_block == 0 || (uint64_t)trace_block % block_tokens == 0 ||
        block_tokens % (uint64_t)trace_block == 0)
        return TOOL_OK;
    return kvpi_args_usage(args,
                           "--block-tokens %" PRIu64 " neither divides the %" PRId32
                           " tokens that an id of the trace stands for (--trace-block), nor is "
                           "a multiple of them",
                           block_tokens, trace_block);
}

int kvpi_trace_args_read(const kvpi_args *args, kvpi_trace_args *trace, uint64_t block_tokens,
                         kvpi_requests **out)
{
    kvpi_requests *requests = NULL;
    int status = read_file(args, trace, &requests);
    if (status == TOOL_OK)
        status = check_block_size(args, requests, block_tokens);
    if (status != TOOL_OK) {
        kvpi_requests_free(requests);
        return status;
    }
    trace->key.trace_block = kvpi_requests_describe(requests)->trace_block;
    size_t mended = kvpi_requests_mended(requests);
    if (mended > 0)
        fprintf(stderr, "kvpager %s: %s: %zu requests had too few or too many ids (--lenient)\n",
                args->command, kvpi_escape(trace->path).of, mended);
    *out = requests;
    return TOOL_OK;
}

/* Reading a request trace for a subcommand: progress, messages, what goes with which block size. */
#ifndef KVPI_READ_TRACE_H
#define KVPI_READ_TRACE_H

#include "args.h"
#include "trace/requests.h"

typedef struct kvpi_read_trace_options {
    const char *path; /* "-" is standard input */
    int32_t trace_block;
    uint64_t block_tokens; /* must divide the block that an id of the trace stands for */
    bool lenient;
} kvpi_read_trace_options;

/* Read a trace, and say on stderr how many requests were mended.
 *
 * Gives:   out      on TOOL_OK only
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_read_trace(const kvpi_args *args, const kvpi_read_trace_options *options,
                    kvpi_requests **out);

#endif

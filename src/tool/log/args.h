/* The options that name a request trace, and what of it is read: `replay` and `mrc` have them. */
#ifndef KVPI_TRACE_ARGS_H
#define KVPI_TRACE_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/args.h"
#include "tool/requests/requests.h"

/* They come first in the table of a subcommand that has them. */
enum {
    KVPI_TRACE_LIMIT,
    KVPI_TRACE_OUTPUT_TOKENS,
    KVPI_TRACE_BLOCK,
    KVPI_TRACE_LENIENT,
    KVPI_TRACE_SEED,
    KVPI_TRACE_MAX_MEMORY,
    KVPI_TRACE_OPTIONS /* how many there are */
};

#define KVPI_TRACE_OPTIONS_TABLE                                                                   \
    [KVPI_TRACE_LIMIT] = {"--limit", "N", "the first N requests only", 0},                         \
    [KVPI_TRACE_OUTPUT_TOKENS] = {"--output-tokens", "on|off",                                     \
                                  "generate output tokens (default on); off: a request\n"          \
                                  "ends with its prompt",                                          \
                                  0},                                                              \
    [KVPI_TRACE_BLOCK] = {"--trace-block", "N", "tokens per id in the trace (default 512)", 0},    \
    [KVPI_TRACE_LENIENT] = {"--lenient", NULL,                                                     \
                            "go on when a request has too few ids (what they do\n"                 \
                            "not cover is unshared) or too many (they are dropped)",               \
                            0},                                                                    \
    [KVPI_TRACE_SEED] = {"--seed", "S", "other token values with the same sharing (default 0)",    \
                         0},                                                                       \
    [KVPI_TRACE_MAX_MEMORY] = {"--max-memory", "SIZE",                                             \
                               "for reading the trace (default 64MiB and 16 times\n"               \
                               "what was read)",                                                   \
                               0}

typedef struct kvpi_trace_args {
    const char *path;      /* "-" is standard input */
    uint64_t limit;        /* requests, the first in replay order */
    kvpi_requests_key key; /* tokens per id, and the seed */
    bool output;           /* append generated tokens */
    bool lenient;
    uint64_t max_memory; /* bytes for reading it; 0: by what was read */
} kvpi_trace_args;

/* Set the defaults. No file is named yet. */
void kvpi_trace_args_init(kvpi_trace_args *trace);

/* Take what kvpi_args_next gave: one of these options, or KVPI_ARGS_OPERAND, the file.
 *
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed
 */
int kvpi_trace_args_apply(const kvpi_args *args, int option, const char *value,
                          kvpi_trace_args *trace);

/* Refuse a command line without a file. Returns: as kvpi_trace_args_apply */
int kvpi_trace_args_check(const kvpi_args *args, const kvpi_trace_args *trace);

/* Read the trace, and say on stderr how many requests were mended.
 *
 * Takes:   block_tokens  must divide the block that an id of the trace stands for
 * Gives:   out      on TOOL_OK only
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_trace_args_read(const kvpi_args *args, const kvpi_trace_args *trace, uint64_t block_tokens,
                         kvpi_requests **out);

#endif

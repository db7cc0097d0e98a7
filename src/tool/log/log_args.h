/* The options that name a request trace, and what of it is read: `replay` and `mrc` have them. */
#ifndef KVPI_TRACE_ARGS_H
#define KVPI_TRACE_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/args.h"
#include "tool/requests/requests.h"

/* They come first in the table of a subcommand that has them: `trace` is the member of its options
 * that they go to. Behind all options, KVPI_TRACE_FILE names the file.
 * NOLINTBEGIN(bugprone-macro-parentheses): types and members */
#define KVPI_TRACE_OPTIONS(type, trace)                                                            \
    {"--limit",                                                                                    \
     "N",                                                                                          \
     "the first N requests only",                                                                  \
     kvpi_args_number,                                                                             \
     .at = offsetof(type, trace.limit),                                                            \
     1,                                                                                            \
     UINT64_MAX,                                                                                   \
     .title = "Trace"},                                                                            \
        {"--output-tokens",                                                                        \
         "on|off",                                                                                 \
         "generate output tokens (default on); off: a request\n"                                   \
         "ends with its prompt",                                                                   \
         kvpi_args_either,                                                                         \
         .at = offsetof(type, trace.output),                                                       \
         .choices = kvpi_args_on_off},                                                             \
        {"--trace-block",                                                                          \
         "N",                                                                                      \
         "tokens per id in the trace (default 512), where its\n"                                   \
         "format does not say",                                                                    \
         kvpi_args_number32,                                                                       \
         .at = offsetof(type, trace.key.trace_block),                                              \
         1,                                                                                        \
         KVPI_REQUESTS_MAX_TRACE_BLOCK},                                                           \
        {"--format",                                                                               \
         "NAME",                                                                                   \
         "read the files as this format (default: the one that\n"                                  \
         "the first object or line shows)",                                                        \
         kvpi_args_choice,                                                                         \
         .at = offsetof(type, trace.format),                                                       \
         .choices = kvpi_requests_names},                                                          \
        {"--time-unit",                                                                            \
         "UNIT",                                                                                   \
         "of times that are numbers: s, ms, us or ns (default:\n"                                  \
         "that of the format)",                                                                    \
         kvpi_args_choice,                                                                         \
         .at = offsetof(type, trace.unit),                                                         \
         .choices = kvpi_requests_units},                                                          \
        {"--merge-models", NULL, "of conversations: models share content", kvpi_args_yes,          \
         .at = offsetof(type, trace.merge_models)},                                                \
        {"--lenient", NULL,                                                                        \
         "go on when a request has too few ids (what they do\n"                                    \
         "not cover is unshared) or too many (they are dropped)",                                  \
         kvpi_args_yes, .at = offsetof(type, trace.lenient)},                                      \
        {"--seed",                                                                                 \
         "S",                                                                                      \
         "other token values with the same sharing (default 0)",                                   \
         kvpi_args_number,                                                                         \
         .at = offsetof(type, trace.key.seed),                                                     \
         0,                                                                                        \
         INT64_MAX},                                                                               \
    {                                                                                              \
        "--max-memory", "SIZE",                                                                    \
            "for reading the trace (default 64MiB and 16 times\n"                                  \
            "what was read)",                                                                      \
            kvpi_args_size, .at = offsetof(type, trace.max_memory)                                 \
    }
#define KVPI_TRACE_FILE(type, trace)                                                               \
    {                                                                                              \
        NULL, NULL, "file", kvpi_trace_args_add, .at = offsetof(type, trace)                       \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

typedef struct kvpi_trace_args {
    char **paths; /* [n_paths] files and folders; "-" is standard input */
    size_t n_paths;
    const char *path; /* what it is called: that of the only one, or `label` */
    char label[300];
    kvpi_requests_format format; /* KVPI_REQUESTS_FORMATS: recognise it */
    kvpi_requests_unit unit;     /* KVPI_REQUESTS_UNITS: that of the format */
    bool merge_models;
    uint64_t limit;        /* requests, the first in replay order */
    kvpi_requests_key key; /* tokens per id, 0 until they are known, and the seed */
    bool output;           /* append generated tokens */
    bool lenient;
    uint64_t max_memory; /* bytes for reading it; 0: by what was read */
} kvpi_trace_args;

/* Set the defaults. No file is named yet. */
void kvpi_trace_args_init(kvpi_trace_args *trace);

/* Take a file; they stand at the beginning of argv then. */
kvpi_args_reader kvpi_trace_args_add;

/* Refuse a command line without a file. Returns: 0; KVPI_ARGS_WRONG, a message was printed */
int kvpi_trace_args_check(const kvpi_args *args, const kvpi_trace_args *trace);

/* Read the trace, and say on stderr how many requests were mended.
 *
 * Takes:   block_tokens  must divide the block that an id of the trace stands for, or be a multiple
 * Gives:   trace    key.trace_block, as the trace says
 *          out      on TOOL_OK only
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 */
int kvpi_trace_args_read(const kvpi_args *args, kvpi_trace_args *trace, uint64_t block_tokens,
                         kvpi_requests **out);

#endif

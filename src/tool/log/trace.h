/* What the files of `kvpager trace` share: a log from a file, and calls as text. */
#ifndef KVPI_CMD_TRACE_H
#define KVPI_CMD_TRACE_H

#include <kvpager/oplog.h>
#include <stdio.h>

#include "tool/args.h"
#include "tool/input/budget.h"
#include "oplog/oplog.h"

/* A log and the file that it came from. All zero: nothing to close. */
struct kvpi_trace_file {
    const char *path;
    uint8_t *bytes;
    size_t n_bytes;
    kvp_oplog *log;
    kvpi_budget budget;
};

/* Read a whole log into memory.
 * Takes:   command     for the message: "trace show"
 *          max_memory  bytes; 0: by what the file has
 * Returns: 0; TOOL_FAILED, a message was printed and nothing has to be closed */
int kvpi_trace_open(struct kvpi_trace_file *file, const char *command, const char *path,
                    uint64_t max_memory);

/* Refuse a log whose cache needs more than its budget as soon as it is created.
 * Returns: 0; TOOL_FAILED, a message was printed */
int kvpi_trace_check_cache(struct kvpi_trace_file *file, const char *command);

/* Options of a subcommand that runs a log: `type` has the path first, and max_memory. */
#define KVPI_TRACE_MAX_MEMORY(type)                                                                \
    {                                                                                              \
        "--max-memory", "SIZE",                                                                    \
            "for the log and a new cache of its configuration (default\n"                          \
            "64MiB and 16 times what the log has)",                                                \
            kvpi_args_size, .at = offsetof(type, max_memory)                                       \
    }

/* Refuses a command line without a log. Takes options that have its path first. */
int kvpi_trace_check_path(const kvpi_args *args, void *options);

void kvpi_trace_close(struct kvpi_trace_file *file);

/* Say where the log is damaged: after kvp_oplog_next gave `status`, at the record number `index`.
 * Returns: TOOL_FAILED */
int kvpi_trace_damaged(const struct kvpi_trace_file *file, const char *command, kvp_status status,
                       uint64_t index);

/* Print "block_tokens 16, unit_tokens 16, ...", one line. */
void kvpi_trace_print_config(FILE *out, const kvp_config *config);

/* Print "seq_open(ns=0x1, tokens=[1 2 3])", no end of line. */
void kvpi_trace_print_call(FILE *out, const kvp_call *call);

/* Print "= KVP_OK seq=0x100001", no end of line; with `all`, everything that was recorded. */
void kvpi_trace_print_results(FILE *out, const kvp_call *call,
                              const struct kvpi_oplog_results *results, int all);

/* Subcommands; argv[0] is "replay". Each returns an exit status. */
int kvpi_trace_replay(int argc, char **argv);
int kvpi_trace_shrink(int argc, char **argv);

#endif

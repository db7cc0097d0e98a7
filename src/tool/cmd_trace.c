/* kvpager trace: operation logs on the command line. show and diff read them; replay and shrink run
 * them on a cache (log/replay.c, log/shrink.c).
 */
#include "tool/log/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/text.h"
#include "tool/tool.h"
#include "tool/input/escape.h"
#include "tool/input/input.h"

/* ----------------------------------------------------------------------------------------- show */

struct show {
    const char *path;
    uint64_t from;
    uint64_t count;
    bool results;
};

#define AT(member) .at = offsetof(struct show, member)

static const kvpi_args_option show_options[] = {
    {"--from", "N", "begin with call #N (default 0)", kvpi_args_number, AT(from), 0, UINT64_MAX},
    {"--count", "N", "show N calls at most", kvpi_args_number, AT(count), 0, UINT64_MAX},
    {"--results", NULL, "show all that was recorded of the results, not the status only",
     kvpi_args_yes, AT(results)},
    KVPI_ARGS_HELP,
    {NULL, NULL, "log", kvpi_args_file, AT(path)},
};

#define N_OPTIONS(options) (sizeof(options) / sizeof *(options))

static const kvpi_args_command show_command = {
    .name = "trace show",
    .about = "Usage: kvpager trace show LOG [OPTIONS]\n\n"
             "Prints the configuration of the recorded cache, then one line for each call.\n\n",
    .options = show_options,
    .n_options = N_OPTIONS(show_options),
    .check = kvpi_trace_check_path};

static int show_calls(const struct show *show, struct kvpi_trace_file *file)
{
    for (uint64_t index = 0;; index++) {
        kvp_record record;
        int end;
        kvp_status status = kvp_oplog_next(file->log, &record, &end);
        if (status != KVP_OK)
            return kvpi_trace_damaged(file, "trace show", status, index);
        if (end != 0 || (index >= show->from && index - show->from >= show->count))
            return TOOL_OK;
        if (index < show->from)
            continue;
        printf("#%" PRIu64 "  ", index);
        kvpi_trace_print_call(stdout, &record.call);
        fputc(' ', stdout);
        kvpi_trace_print_results(stdout, &record.call, kvpi_oplog_results(file->log),
                                 show->results);
        fputc('\n', stdout);
    }
}

static int run_show(int argc, char **argv)
{
    kvpi_args args;
    struct show show = {.count = UINT64_MAX};
    struct kvpi_trace_file file;
    kvp_config config;
    int status = kvpi_args_parse(&args, &show_command, argc, argv, &show);
    if (status != KVPI_ARGS_GO)
        return status;
    status = kvpi_trace_open(&file, "trace show", show.path, 0);
    if (status != TOOL_OK)
        return status;
    kvp_oplog_config(file.log, &config);
    kvpi_trace_print_config(stdout, &config);
    status = show_calls(&show, &file);
    kvpi_trace_close(&file);
    return status;
}

/* ----------------------------------------------------------------------------------------- diff */

struct diff {
    const char *paths[2];
};

static int take_log(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                    void *at)
{
    struct diff *diff = at;
    (void)option;
    if (diff->paths[1] != NULL)
        return kvpi_args_wrong(args, "two logs at a time: '%s' is too many", text);
    diff->paths[diff->paths[0] != NULL] = text;
    return 0;
}

static int check_logs(const kvpi_args *args, void *options)
{
    const struct diff *diff = options;
    return diff->paths[1] == NULL ? kvpi_args_wrong(args, "which two logs?") : 0;
}

static const kvpi_args_option diff_options[] = {
    KVPI_ARGS_HELP,
    {.read = take_log},
};

static const kvpi_args_command diff_command = {
    .name = "trace diff",
    .about = "Usage: kvpager trace diff LOG LOG\n\n"
             "Prints the first call that differs between two logs, with its results.\n"
             "Exit status: 0 no difference, 1 a difference, or an unreadable log, 2 wrong usage.\n"
             "\n",
    .options = diff_options,
    .n_options = N_OPTIONS(diff_options),
    .check = check_logs};

static void print_side(const struct kvpi_trace_file *file, const kvp_record *record, int end)
{
    printf("  %s: ", kvpi_escape(file->path).of);
    if (end != 0) {
        puts("(ends here)");
        return;
    }
    kvpi_trace_print_call(stdout, &record->call);
    fputc(' ', stdout);
    kvpi_trace_print_results(stdout, &record->call, kvpi_oplog_results(file->log), 1);
    fputc('\n', stdout);
}

static int diff_calls(struct kvpi_trace_file files[2])
{
    for (uint64_t index = 0;; index++) {
        kvp_record records[2] = {0};
        int end[2];
        for (int i = 0; i < 2; i++) {
            kvp_status status = kvp_oplog_next(files[i].log, &records[i], &end[i]);
            if (status != KVP_OK)
                return kvpi_trace_damaged(&files[i], "trace diff", status, index);
        }
        if (end[0] != 0 && end[1] != 0) {
            printf("no difference in %" PRIu64 " calls\n", index);
            return TOOL_OK;
        }
        if (end[0] == end[1] && records[0].n_bytes == records[1].n_bytes &&
            memcmp(records[0].bytes, records[1].bytes, records[0].n_bytes) == 0)
            continue;
        printf("call #%" PRIu64 " differs:\n", index);
        print_side(&files[0], &records[0], end[0]);
        print_side(&files[1], &records[1], end[1]);
        return TOOL_FAILED;
    }
}

static int diff_files(struct kvpi_trace_file files[2])
{
    uint64_t first[2] = {kvp_oplog_offset(files[0].log), kvp_oplog_offset(files[1].log)};
    if (first[0] == first[1] && memcmp(files[0].bytes, files[1].bytes, (size_t)first[0]) == 0)
        return diff_calls(files);
    puts("the configurations differ:");
    for (int i = 0; i < 2; i++) {
        kvp_config config;
        kvp_oplog_config(files[i].log, &config);
        printf("  %s: ", kvpi_escape(files[i].path).of);
        kvpi_trace_print_config(stdout, &config);
    }
    return TOOL_FAILED;
}

static int run_diff(int argc, char **argv)
{
    kvpi_args args;
    struct diff diff = {{NULL, NULL}};
    struct kvpi_trace_file files[2];
    int status = kvpi_args_parse(&args, &diff_command, argc, argv, &diff);
    if (status != KVPI_ARGS_GO)
        return status;
    status = kvpi_trace_open(&files[0], "trace diff", diff.paths[0], 0);
    if (status != TOOL_OK)
        return status;
    status = kvpi_trace_open(&files[1], "trace diff", diff.paths[1], 0);
    if (status == TOOL_OK) {
        status = diff_files(files);
        kvpi_trace_close(&files[1]);
    }
    kvpi_trace_close(&files[0]);
    return status;
}

/* ------------------------------------------------------------------------------------- dispatch */

static const kvpi_args_subcommand subcommands[] = {
    {"show", run_show, "print the configuration and one line for each call"},
    {"replay", kvpi_trace_replay,
     "make the same calls on a new cache and compare the results, bit for bit"},
    {"diff", run_diff, "print the first call that differs between two logs"},
    {"shrink", kvpi_trace_shrink, "find a small log that still fails"},
};

static const kvpi_args_commands commands = {
    .name = "kvpager trace",
    .kind = "subcommand",
    .about = "Usage: kvpager trace show LOG [--from N] [--count N] [--results]\n"
             "       kvpager trace replay LOG [--check LEVEL]\n"
             "       kvpager trace diff LOG LOG\n"
             "       kvpager trace shrink LOG -o OUT [--command CMD]\n"
             "\n"
             "Operation logs hold every call on a cache, with arguments and results, as\n"
             "kvp_cache_record_start writes them (docs/FORMATS.md).\n"
             "\n",
    .more = "\n"
            "'kvpager trace show --help' and so on print the options.\n"
            "Exit status: 0 done, 1 failed or different, 2 wrong usage.\n",
    .width = 7,
    .of = subcommands,
    .n = sizeof subcommands / sizeof *subcommands};

int cmd_trace(int argc, char **argv)
{
    return kvpi_args_dispatch(&commands, argc, argv);
}

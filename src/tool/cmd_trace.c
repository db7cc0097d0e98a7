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

static const kvpi_args_option show_options[] = {
    {"--from", "N", "begin with call #N (default 0)", 0},
    {"--count", "N", "show N calls at most", 0},
    {"--results", NULL, "show all that was recorded of the results, not the status only", 0},
    {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS(options) (sizeof(options) / sizeof *(options))

struct show {
    const char *path;
    uint64_t from;
    uint64_t count;
    int results;
    int help;
};

static int parse_show(int argc, char **argv, struct show *show)
{
    static const uint64_t any[2] = {0, UINT64_MAX};
    kvpi_args args = {.command = "trace show",
                      .argc = argc,
                      .argv = argv,
                      .next = 1,
                      .options = show_options,
                      .n_options = N_OPTIONS(show_options)};
    const char *value;
    int option, wrong = 0;
    while (wrong == 0 && (option = kvpi_args_next(&args, &value)) != KVPI_ARGS_END) {
        switch (option) {
        case 0: wrong = kvpi_args_number(&args, option, value, any, &show->from); break;
        case 1: wrong = kvpi_args_number(&args, option, value, any, &show->count); break;
        case 2: show->results = 1; break;
        case 3: show->help = 1; return 0;
        case KVPI_ARGS_OPERAND:
            if (show->path != NULL)
                return kvpi_args_wrong(&args, "one log at a time: '%s' is too many", value);
            show->path = value;
            break;
        default: return KVPI_ARGS_WRONG;
        }
    }
    if (wrong == 0 && show->path == NULL)
        return kvpi_args_wrong(&args, "which log?");
    return wrong;
}

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

int kvpi_trace_show(int argc, char **argv)
{
    struct show show = {.count = UINT64_MAX};
    struct kvpi_trace_file file;
    kvp_config config;
    if (parse_show(argc, argv, &show) != 0)
        return TOOL_USAGE;
    if (show.help) {
        puts("Usage: kvpager trace show LOG [OPTIONS]\n\n"
             "Prints the configuration of the recorded cache, then one line for each call.\n");
        kvpi_args_print(show_options, N_OPTIONS(show_options));
        return TOOL_OK;
    }
    int status = kvpi_trace_open(&file, "trace show", show.path, 0);
    if (status != TOOL_OK)
        return status;
    kvp_oplog_config(file.log, &config);
    kvpi_trace_print_config(stdout, &config);
    status = show_calls(&show, &file);
    kvpi_trace_close(&file);
    return status;
}

/* ----------------------------------------------------------------------------------------- diff */

static const kvpi_args_option diff_options[] = {{"--help", NULL, "print this text", 'h'}};

static int parse_diff(int argc, char **argv, const char *paths[2], int *help)
{
    kvpi_args args = {.command = "trace diff",
                      .argc = argc,
                      .argv = argv,
                      .next = 1,
                      .options = diff_options,
                      .n_options = N_OPTIONS(diff_options)};
    const char *value;
    int option, n = 0;
    *help = 0;
    while ((option = kvpi_args_next(&args, &value)) != KVPI_ARGS_END) {
        if (option == 0) {
            *help = 1;
            return 0;
        }
        if (option != KVPI_ARGS_OPERAND)
            return KVPI_ARGS_WRONG;
        if (n == 2)
            return kvpi_args_wrong(&args, "two logs at a time: '%s' is too many", value);
        paths[n++] = value;
    }
    return n == 2 ? 0 : kvpi_args_wrong(&args, "which two logs?");
}

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

int kvpi_trace_diff(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL};
    struct kvpi_trace_file files[2];
    int help;
    if (parse_diff(argc, argv, paths, &help) != 0)
        return TOOL_USAGE;
    if (help) {
        puts(
            "Usage: kvpager trace diff LOG LOG\n\n"
            "Prints the first call that differs between two logs, with its results.\n"
            "Exit status: 0 no difference, 1 a difference, or an unreadable log, 2 wrong usage.\n");
        kvpi_args_print(diff_options, N_OPTIONS(diff_options));
        return TOOL_OK;
    }
    int status = kvpi_trace_open(&files[0], "trace diff", paths[0], 0);
    if (status != TOOL_OK)
        return status;
    status = kvpi_trace_open(&files[1], "trace diff", paths[1], 0);
    if (status == TOOL_OK) {
        status = diff_files(files);
        kvpi_trace_close(&files[1]);
    }
    kvpi_trace_close(&files[0]);
    return status;
}

/* ------------------------------------------------------------------------------------- dispatch */

static void print_usage(FILE *out)
{
    fputs("Usage: kvpager trace show LOG [--from N] [--count N] [--results]\n"
          "       kvpager trace replay LOG [--check LEVEL]\n"
          "       kvpager trace diff LOG LOG\n"
          "       kvpager trace shrink LOG -o OUT [--command CMD]\n"
          "\n"
          "Operation logs hold every call on a cache, with arguments and results, as\n"
          "kvp_record_start writes them (docs/OPLOG.md).\n"
          "\n"
          "  show    print the configuration and one line for each call\n"
          "  replay  make the same calls on a new cache and compare the results, bit for bit\n"
          "  diff    print the first call that differs between two logs\n"
          "  shrink  find a small log that still fails\n"
          "\n"
          "'kvpager trace show --help' and so on print the options.\n"
          "Exit status: 0 done, 1 failed or different, 2 wrong usage.\n",
          out);
}

int cmd_trace(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"show", kvpi_trace_show},
                    {"replay", kvpi_trace_replay},
                    {"diff", kvpi_trace_diff},
                    {"shrink", kvpi_trace_shrink}};
    if (argc < 2) {
        print_usage(stderr);
        return TOOL_USAGE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return TOOL_OK;
    }
    fprintf(stderr, "kvpager trace: unknown %s '%s'\nTry 'kvpager trace --help'.\n",
            argv[1][0] == '-' ? "option" : "subcommand", kvpi_escape(argv[1]).of);
    return TOOL_USAGE;
}

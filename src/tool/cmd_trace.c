/* kvpager trace: operation logs on the command line. show and diff read them; replay and shrink run
 * them on a cache (cmd_trace_run.c, tool/log/shrink.c).
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

/* ------------------------------------------------------------------------------------- the file */

/* Reads to the end of the stream. Gives NULL when the machine refused, errno says why, or when the
 * budget is over. */
static uint8_t *read_all(FILE *stream, kvpi_budget *budget, size_t *n_bytes)
{
    size_t capacity = (size_t)1 << 16, n = 0;
    uint8_t *bytes = malloc(capacity);
    while (bytes != NULL) {
        const size_t got = fread(bytes + n, 1, capacity - n, stream);
        n += got;
        budget->read += got;
        if (n < capacity)
            break;
        uint8_t *grown = capacity > SIZE_MAX / 2
                             ? NULL
                             : kvpi_budget_realloc(budget, bytes, capacity, 2 * capacity);
        if (grown == NULL)
            free(bytes);
        bytes = grown;
        capacity *= 2;
    }
    if (bytes != NULL && ferror(stream)) {
        free(bytes);
        return NULL;
    }
    *n_bytes = n;
    return bytes;
}

static int refuse_memory(const struct kvpi_trace_file *file, const char *command, const char *what)
{
    const kvpi_budget *budget = &file->budget;
    return kvpi_tool_fail(command, "%s: %s needs more than %s of memory%s (--max-memory)",
                          file->path, what, kvpi_text_bytes((double)kvpi_budget_limit(budget)).of,
                          budget->max == 0 ? ", which is 64 MiB and 16 times its bytes" : "");
}

/* A file with holes is not read for more than its budget, and not at all if it cannot be held. */
static int read_file(struct kvpi_trace_file *file, const char *command)
{
    kvpi_input input;
    if (!kvpi_input_open(&input, file->path, true))
        return kvpi_tool_fail(command, "%s: %s", file->path, input.why);
    kvpi_budget holes = {.max = file->budget.max, .read = input.data_bytes};
    if (input.is_regular && !kvpi_budget_take(&holes, input.n_bytes)) {
        kvpi_input_close(&input);
        file->budget = holes;
        return refuse_memory(file, command, "its length, most of which are holes,");
    }
    errno = 0;
    file->bytes = read_all(input.file, &file->budget, &file->n_bytes);
    const int error = errno;
    kvpi_input_close(&input);
    if (file->bytes == NULL && file->budget.is_over)
        return refuse_memory(file, command, "the log");
    return file->bytes == NULL ? kvpi_tool_fail(command, "%s: %s", file->path, strerror(error))
                               : TOOL_OK;
}

static int refuse_header(const char *command, const char *path, kvp_status status)
{
    if (status == KVP_E_VERSION)
        return kvpi_tool_fail(command,
                              "%s: an operation log of another version; this program reads "
                              "version %d: record it anew, or use the release that wrote it",
                              path, KVP_OPLOG_VERSION);
    if (status == KVP_E_FORMAT)
        return kvpi_tool_fail(command,
                              "%s: not an operation log, or cut or damaged within its "
                              "configuration",
                              path);
    return kvpi_tool_fail(command, "%s: %s", path, kvp_status_text(status));
}

int kvpi_trace_open(struct kvpi_trace_file *file, const char *command, const char *path,
                    uint64_t max_memory)
{
    memset(file, 0, sizeof *file);
    file->path = path;
    file->budget.max = max_memory;
    if (read_file(file, command) != TOOL_OK)
        return TOOL_FAILED;
    kvp_status status = kvp_oplog_open(file->bytes, file->n_bytes, &file->log);
    if (status == KVP_OK)
        return TOOL_OK;
    size_t n_bytes = file->n_bytes;
    kvpi_trace_close(file);
    if (n_bytes == 0)
        return kvpi_tool_fail(command, "%s: is empty", path);
    return refuse_header(command, path, status);
}

/* What a new cache writes to at once, rounded up: for a block its place in a queue and marks, for a
 * unit's slot a duplicate's place, for a node one of the index, for sequences and namespaces their
 * places. */
static uint64_t new_cache_bytes(const kvp_config *c)
{
    const uint64_t blocks = (uint64_t)c->n_blocks + c->host_blocks;
    const uint64_t per_block = c->unit_tokens == 0 ? 1 : c->block_tokens / c->unit_tokens;
    const uint64_t slots = blocks * per_block;
    const bool has_dups = per_block > 1 || c->commit_policy == KVP_KEEP || c->steps != 0;
    return blocks * 64 + (has_dups ? slots * 16 : 0) + (c->n_nodes == 0 ? slots : c->n_nodes) * 16 +
           (uint64_t)c->max_seqs * (512 + 8 * (uint64_t)c->max_steps_out) +
           (uint64_t)c->max_namespaces * 512;
}

int kvpi_trace_check_cache(struct kvpi_trace_file *file, const char *command)
{
    kvp_config config;
    kvp_oplog_config(file->log, &config);
    return kvpi_budget_take(&file->budget, new_cache_bytes(&config))
               ? TOOL_OK
               : refuse_memory(file, command, "a cache of its configuration");
}

void kvpi_trace_close(struct kvpi_trace_file *file)
{
    kvp_oplog_close(file->log);
    free(file->bytes);
    memset(file, 0, sizeof *file);
}

int kvpi_trace_damaged(const struct kvpi_trace_file *file, const char *command, kvp_status status,
                       uint64_t index)
{
    uint64_t offset = kvp_oplog_offset(file->log);
    if (status != KVP_E_FORMAT)
        return kvpi_tool_fail(command, "%s: call #%" PRIu64 ": %s", file->path, index,
                              kvp_status_text(status));
    return kvpi_tool_fail(command, "%s: offset %" PRIu64 ": %s, in call #%" PRIu64, file->path,
                          offset, offset == file->n_bytes ? "the log ends" : "damaged", index);
}

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

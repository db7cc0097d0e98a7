/* kvpager trace shrink: a smaller log that still fails.
 *
 * Which calls are left out is delta debugging (oplog/shrink.c); what is left is run and recorded
 * again (oplog/rerun.c), so that each candidate is a true log. What "fails" means:
 *
 *     default        the run comes to a state in which kvp_cache_check(3) finds a violation
 *     --command CMD  the shell command exits with another status than 0, {} standing for the
 *                    candidate's path; candidates are made by a child process, so that they may
 *                    crash this program, too
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/log/trace.h"
#include "tool/progress.h"
#include "tool/tool.h"
#include "tool/input/escape.h"
#include "tool/machine/machine.h"
#include "oplog/rerun.h"
#include "oplog/shrink.h"

#define COMMAND "trace shrink"
#define MOST    (1u << 30) /* bytes of a write */

struct settings {
    const char *path;
    const char *out;
    const char *command;
    uint64_t max_memory; /* bytes; 0: by the log's */
};

struct shrinking {
    const struct settings *settings;
    struct kvpi_oplog_rerun rerun;
    char *candidate; /* path: OUT.candidate */
    char *line;      /* what the shell is given; NULL without --command */
    uint64_t tries;
    kvpi_progress progress;
};

/* --------------------------------------------------------------------------------- command line */

static int check_options(const kvpi_args *args, void *options)
{
    const struct settings *settings = options;
    if (kvpi_trace_check_path(args, options) != 0)
        return KVPI_ARGS_WRONG;
    if (settings->out == NULL)
        return kvpi_args_wrong(args, "-o OUT says where the smaller log goes");
    if (strcmp(settings->path, settings->out) == 0)
        return kvpi_args_wrong(args, "-o is the log itself");
    if (settings->command != NULL && !kvpi_machine_can_run_apart())
        return kvpi_args_wrong(args, "--command needs processes that this system does not have");
    if (settings->command != NULL && strstr(settings->command, "{}") == NULL)
        return kvpi_args_wrong(args, "--command is '%s', expected {} where the log's path goes",
                               settings->command);
    return 0;
}

#define AT(member) .at = offsetof(struct settings, member)

static const kvpi_args_option options[] = {
    {"--output", "OUT", "where to write the smaller log; it must not be LOG", kvpi_args_text,
     AT(out), .letter = 'o'},
    {"--command", "CMD",
     "a log fails when this shell command does; {} is the log's path.\n"
     "Without: when a check of the whole cache finds a violation",
     kvpi_args_text, AT(command)},
    KVPI_TRACE_MAX_MEMORY(struct settings),
    KVPI_ARGS_HELP,
    {NULL, NULL, "log", kvpi_args_file, AT(path)},
};

static const kvpi_args_command shrink_command = {
    .name = COMMAND,
    .about = "Usage: kvpager trace shrink LOG -o OUT [--command CMD]\n\n"
             "Leaves calls out as long as the log still fails, and writes what is left. Calls are\n"
             "made anew without those left out; what used their handles is left out with them.\n\n"
             "  kvpager trace shrink run.kvplog -o small.kvplog\n"
             "  kvpager trace shrink run.kvplog -o small.kvplog \\\n"
             "      --command 'kvpager trace replay --check 3 {}'\n\n"
             "The command's output is not shown. A candidate that hangs hangs the search: put\n"
             "'timeout 10' before the command where that can be.\n\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .check = check_options};

/* The path in single quotes, as the shell wants it: at most 4 bytes for each one of it, and 2. */
static size_t quote(char *out, const char *path)
{
    size_t n = 0;
    out[n++] = '\'';
    for (; *path != '\0'; path++) {
        if (*path == '\'') {
            memcpy(out + n, "'\\''", 4);
            n += 4;
        } else {
            out[n++] = *path;
        }
    }
    out[n++] = '\'';
    return n;
}

/* The command with each {} replaced, made silent. NULL: no memory. */
static char *command_line(const char *command, const char *path)
{
    static const char silence[] = "exec </dev/null >/dev/null 2>&1\n";
    size_t n_places = 0;
    for (const char *at = command; (at = strstr(at, "{}")) != NULL; at += 2)
        n_places++;
    char *line = malloc(sizeof silence + strlen(command) + n_places * (4 * strlen(path) + 2));
    if (line == NULL)
        return NULL;
    memcpy(line, silence, sizeof silence - 1);
    size_t n = sizeof silence - 1;
    for (const char *at = command; *at != '\0';) {
        if (strncmp(at, "{}", 2) == 0) {
            n += quote(line + n, path);
            at += 2;
        } else {
            line[n++] = *at++;
        }
    }
    line[n] = '\0';
    return line;
}

/* ------------------------------------------------------------ candidates, and whether they fail */

static int write_file(void *context, const void *bytes, size_t n_bytes)
{
    int fd = *(const int *)context;
    const uint8_t *at = bytes;
    while (n_bytes > 0) {
        const unsigned most = n_bytes < MOST ? (unsigned)n_bytes : MOST; /* as Windows has it */
        ssize_t n = write(fd, at, most);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 1;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

static int ignore_bytes(void *context, const void *bytes, size_t n_bytes)
{
    (void)context;
    (void)bytes;
    (void)n_bytes;
    return 0;
}

/* Runs the items and writes the candidate file, each record as soon as it is there. */
static kvp_status write_candidate(struct shrinking *s, const uint32_t *items, size_t n_items,
                                  int check_level)
{
    size_t n_used;
    int fd = open(s->candidate, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return KVP_E_IO;
    kvp_sink sink = {&fd, write_file};
    kvp_status status =
        kvpi_oplog_rerun_run(&s->rerun, items, n_items, check_level, &sink, &n_used);
    if (close(fd) != 0 && status == KVP_OK)
        status = KVP_E_IO;
    return status;
}

struct candidate {
    struct shrinking *s;
    const uint32_t *items;
    size_t n_items;
};

static int write_in_child(void *context)
{
    const struct candidate *c = context;
    return write_candidate(c->s, c->items, c->n_items, 0) == KVP_E_IO ? 2 : 0;
}

/* The same in a child. What it wrote counts, even if it crashed: an audit after the call that broke
 * the cache is a crash. */
static kvp_status write_candidate_apart(struct shrinking *s, const uint32_t *items, size_t n_items)
{
    struct candidate candidate = {s, items, n_items};
    const int result = kvpi_machine_run_apart(write_in_child, &candidate);
    return result < 0 ? KVP_E_NO_MEMORY : result == 2 ? KVP_E_IO : KVP_OK;
}

/* Gives 1 when the command fails, 0 when not, -1 when it could not be run or was interrupted. */
static int command_fails(struct shrinking *s)
{
    const int status = kvpi_machine_shell(s->line);
    if (status == -1 || status == 126 || status == 127) {
        kvpi_progress_end(&s->progress);
        kvpi_tool_fail(COMMAND, "cannot run '%s'", s->settings->command);
        return -1;
    }
    return status == 128 + SIGINT ? -1 : status != 0;
}

/* kvpi_shrink_fails. */
static int fails(void *context, const uint32_t *items, size_t n_items, size_t *n_needed)
{
    struct shrinking *s = context;
    kvpi_progress_update(&s->progress, s->tries++);
    kvp_status status;
    if (s->line != NULL) {
        status = write_candidate_apart(s, items, n_items);
        if (status == KVP_OK)
            return command_fails(s);
    } else {
        kvp_sink nowhere = {NULL, ignore_bytes};
        status = kvpi_oplog_rerun_run(&s->rerun, items, n_items, 3, &nowhere, n_needed);
        if (status == KVP_OK || status == KVP_E_CORRUPT)
            return status == KVP_E_CORRUPT;
    }
    kvpi_progress_end(&s->progress);
    kvpi_tool_fail(COMMAND, "%s: %s", s->candidate, kvp_status_text(status));
    return -1;
}

/* ------------------------------------------------------------------------------------ the whole */

static int write_result(struct shrinking *s, const uint32_t *items, size_t n_items)
{
    kvp_status status = s->line != NULL ? write_candidate_apart(s, items, n_items)
                                        : write_candidate(s, items, n_items, 3);
    if (status != KVP_OK && status != KVP_E_CORRUPT)
        return kvpi_tool_fail(COMMAND, "%s: %s", s->candidate, kvp_status_text(status));
    if (kvpi_machine_rename(s->candidate, s->settings->out) != 0)
        return kvpi_tool_fail(COMMAND, "%s: %s", s->settings->out, strerror(errno));
    printf("%" PRIu32 " calls -> %zu after %" PRIu64 " tries, written to %s\n", s->rerun.n_records,
           n_items, s->tries, kvpi_escape(s->settings->out).of);
    return TOOL_OK;
}

static int search(struct shrinking *s)
{
    size_t n_items = s->rerun.n_records;
    uint32_t *items = malloc((n_items + 1) * sizeof *items);
    if (items == NULL)
        return kvpi_tool_fail(COMMAND, "%s", kvp_status_text(KVP_E_NO_MEMORY));
    for (size_t i = 0; i < n_items; i++)
        items[i] = (uint32_t)i;
    kvpi_progress_start(&s->progress, "shrinking, tries", 0);
    size_t n_needed = n_items;
    int result = fails(s, items, n_items, &n_needed);
    kvp_status status = KVP_OK;
    if (result > 0) {
        n_items = n_needed < n_items ? n_needed : n_items;
        status = kvpi_shrink(items, &n_items, fails, s);
    }
    kvpi_progress_end(&s->progress);
    int code = TOOL_FAILED;
    if (result == 0)
        kvpi_tool_fail(COMMAND, "%s: nothing to shrink: %s", s->settings->path,
                       s->line != NULL ? "the command succeeds on the whole log, run anew"
                                       : "no check finds a violation");
    else if (status == KVP_E_NO_MEMORY)
        kvpi_tool_fail(COMMAND, "%s", kvp_status_text(status));
    else if (result > 0 && status == KVP_OK)
        code = write_result(s, items, n_items);
    free(items);
    return code;
}

static int shrink_log(const struct settings *settings, kvp_oplog *log,
                      const struct kvpi_trace_file *file)
{
    struct shrinking s = {.settings = settings};
    kvp_status status = kvpi_oplog_rerun_open(&s.rerun, log);
    if (status != KVP_OK)
        return kvpi_trace_damaged(file, COMMAND, status, s.rerun.n_records);
    int code = TOOL_FAILED;
    size_t n = strlen(settings->out) + sizeof ".candidate";
    s.candidate = malloc(n);
    if (s.candidate != NULL) {
        snprintf(s.candidate, n, "%s.candidate", settings->out);
        s.line = settings->command != NULL ? command_line(settings->command, s.candidate) : NULL;
    }
    if (s.candidate == NULL || (s.line == NULL && settings->command != NULL))
        kvpi_tool_fail(COMMAND, "%s", kvp_status_text(KVP_E_NO_MEMORY));
    else
        code = search(&s);
    if (code != TOOL_OK && s.candidate != NULL)
        unlink(s.candidate);
    free(s.line);
    free(s.candidate);
    kvpi_oplog_rerun_close(&s.rerun);
    return code;
}

int kvpi_trace_shrink(int argc, char **argv)
{
    kvpi_args args;
    struct settings settings = {0};
    struct kvpi_trace_file file;
    int status = kvpi_args_parse(&args, &shrink_command, argc, argv, &settings);
    if (status != KVPI_ARGS_GO)
        return status;
    status = kvpi_trace_open(&file, COMMAND, settings.path, settings.max_memory);
    if (status != TOOL_OK)
        return status;
    status = kvpi_trace_check_cache(&file, COMMAND);
    if (status == TOOL_OK)
        status = shrink_log(&settings, file.log, &file);
    kvpi_trace_close(&file);
    return status;
}

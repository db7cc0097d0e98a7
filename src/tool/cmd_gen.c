/* kvpager gen: writes a synthetic workload as Mooncake JSONL.
 *
 * Owns the file that is written. A file that could not be finished is removed, unless it is a
 * device or a pipe: half a trace looks like a whole one.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tool/args.h"
#include "tool/progress.h"
#include "tool/tool.h"
#include "tool/requests/workload.h"

typedef struct gen_options {
    kvpi_workload_options workload;
    uint64_t n_requests;
    const char *path; /* NULL: stdout */
} gen_options;

#define AT(member) .at = offsetof(gen_options, member)

static const char *const profile_names[] = {"chat",   "agent", "rag", "users",
                                            "agents", "mixed", NULL};

static int read_output(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                       void *at)
{
    (void)args;
    (void)option;
    *(const char **)at = strcmp(text, "-") == 0 ? NULL : text;
    return 0;
}

static int refuse_operand(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                          void *at)
{
    (void)option;
    (void)at;
    return kvpi_args_wrong(args, "'%s' is not expected: the output file is named with -o", text);
}

static const kvpi_args_option options_table[] = {
    {"--profile", "NAME",
     "chat: conversations of many turns, few system prompts\n"
     "agent: tool loops, many short turns, growing context\n"
     "rag: questions about documents of skewed popularity\n"
     "users: a question each, all behind one system prompt\n"
     "agents: sessions of coding agents, as recorded ones,\n"
     "for replay --arrivals closed\n"
     "mixed: the first three, interleaved by time (default)",
     kvpi_args_choice, AT(workload.profile), .choices = profile_names, .title = "Options"},
    {"--requests", "N", "how many requests to write (default 1000)", kvpi_args_number,
     AT(n_requests), 1, 1000000000, .letter = 'n'},
    {"--seed", "S", "same seed, same bytes, on every machine (default 1)", kvpi_args_number,
     AT(workload.seed), 0, INT64_MAX},
    {"--rate", "R", "mean requests per second in the long run (default 4)", kvpi_args_milli,
     AT(workload.rate_milli), KVPI_WORKLOAD_MIN_RATE_MILLI, KVPI_WORKLOAD_MAX_RATE_MILLI},
    {"--output", "FILE", "write to FILE instead of standard output", read_output, AT(path),
     .letter = 'o'},
    KVPI_ARGS_HELP,
    {.read = refuse_operand},
};

static const kvpi_args_command command = {
    .name = "gen",
    .about = "Usage: kvpager gen [--profile NAME] [--requests N] [OPTIONS]\n"
             "\n"
             "Write a synthetic request trace in the Mooncake JSONL format: a request a line,\n"
             "with its time in milliseconds, its input and output length in tokens, and an id\n"
             "for every 512 tokens of its input. Two requests that share an id share all that\n"
             "comes before it, too.\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table};

static int write_requests(FILE *file, const gen_options *gen, kvpi_workload *workload)
{
    kvpi_progress progress;
    int status = TOOL_OK;
    kvpi_progress_start(&progress, "writing requests", gen->n_requests);
    for (uint64_t i = 0; i < gen->n_requests && status == TOOL_OK; i++) {
        kvpi_workload_request request;
        if (kvpi_workload_next(workload, &request) != 0)
            status = kvpi_tool_fail("gen", "out of memory");
        else if (kvpi_workload_write(file, &request) != 0)
            status = kvpi_tool_fail("gen", "cannot write %s: %s",
                                    gen->path != NULL ? gen->path : "to standard output",
                                    strerror(errno));
        kvpi_progress_update(&progress, i + 1);
    }
    kvpi_progress_end(&progress);
    return status;
}

static int generate(FILE *file, const gen_options *gen)
{
    kvpi_workload *workload;
    if (kvpi_workload_create(&gen->workload, &workload) != 0)
        return kvpi_tool_fail("gen", "out of memory");
    int status = write_requests(file, gen, workload);
    kvpi_workload_destroy(workload);
    return status;
}

static void remove_unfinished(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode))
        remove(path);
}

static int generate_file(const gen_options *gen)
{
    FILE *file = kvpi_tool_open("gen", gen->path);
    if (file == NULL)
        return TOOL_FAILED;
    int status = generate(file, gen);
    if (fclose(file) != 0 && status == TOOL_OK)
        status = kvpi_tool_fail("gen", "cannot write %s: %s", gen->path, strerror(errno));
    if (status != TOOL_OK)
        remove_unfinished(gen->path);
    return status;
}

int cmd_gen(int argc, char **argv)
{
    kvpi_args args;
    gen_options gen = {.n_requests = 1000};
    kvpi_workload_options_init(&gen.workload);
    const int status = kvpi_args_parse(&args, &command, argc, argv, &gen);
    if (status != KVPI_ARGS_GO)
        return status;
    return gen.path == NULL ? generate(stdout, &gen) : generate_file(&gen);
}

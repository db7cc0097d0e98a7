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
    bool help;
} gen_options;

enum { OPT_PROFILE, OPT_REQUESTS, OPT_SEED, OPT_RATE, OPT_OUTPUT, OPT_HELP };

static const kvpi_args_option options_table[] = {
    [OPT_PROFILE] = {"--profile", "NAME",
                     "chat: conversations of many turns, few system prompts\n"
                     "agent: tool loops, many short turns, growing context\n"
                     "rag: questions about documents of skewed popularity\n"
                     "users: a question each, all behind one system prompt\n"
                     "mixed: the first three, interleaved by time (default)",
                     0},
    [OPT_REQUESTS] = {"--requests", "N", "how many requests to write (default 1000)", 'n'},
    [OPT_SEED] = {"--seed", "S", "same seed, same bytes, on every machine (default 1)", 0},
    [OPT_RATE] = {"--rate", "R", "mean requests per second in the long run (default 4)", 0},
    [OPT_OUTPUT] = {"--output", "FILE", "write to FILE instead of standard output", 'o'},
    [OPT_HELP] = {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS (sizeof options_table / sizeof *options_table)

static const char *const profile_names[] = {"chat", "agent", "rag", "users", "mixed", NULL};

static void print_help(void)
{
    fputs("Usage: kvpager gen [--profile NAME] [--requests N] [OPTIONS]\n"
          "\n"
          "Write a synthetic request trace in the Mooncake JSONL format: a request a line,\n"
          "with its time in milliseconds, its input and output length in tokens, and an id\n"
          "for every 512 tokens of its input. Two requests that share an id share all that\n"
          "comes before it, too.\n"
          "\n"
          "Options:\n",
          stdout);
    kvpi_args_print(options_table, N_OPTIONS);
}

static int apply_option(const kvpi_args *args, int option, const char *value, gen_options *gen)
{
    static const uint64_t any[2] = {0, INT64_MAX}, count[2] = {1, 1000000000};
    static const uint64_t rate[2] = {KVPI_WORKLOAD_MIN_RATE_MILLI, KVPI_WORKLOAD_MAX_RATE_MILLI};
    size_t choice = 0;
    uint64_t number = 0;
    int result = 0;
    switch (option) {
    case OPT_PROFILE:
        result = kvpi_args_choice(args, option, value, profile_names, &choice);
        gen->workload.profile = (kvpi_workload_profile)choice;
        return result;
    case OPT_REQUESTS: return kvpi_args_number(args, option, value, count, &gen->n_requests);
    case OPT_SEED: return kvpi_args_number(args, option, value, any, &gen->workload.seed);
    case OPT_RATE:
        result = kvpi_args_milli(args, option, value, rate, &number);
        gen->workload.rate_milli = (uint32_t)number;
        return result;
    case OPT_OUTPUT: gen->path = strcmp(value, "-") == 0 ? NULL : value; return 0;
    case OPT_HELP: gen->help = true; return 0;
    case KVPI_ARGS_OPERAND:
        return kvpi_args_wrong(args, "'%s' is not expected: the output file is named with -o",
                               value);
    default: return KVPI_ARGS_WRONG;
    }
}

static int parse_options(int argc, char **argv, gen_options *gen)
{
    kvpi_args args = {.command = "gen",
                      .argc = argc,
                      .argv = argv,
                      .options = options_table,
                      .n_options = N_OPTIONS,
                      .next = 1};
    *gen = (gen_options){.n_requests = 1000};
    kvpi_workload_options_init(&gen->workload);
    const char *value = NULL;
    for (;;) {
        int option = kvpi_args_next(&args, &value);
        if (option == KVPI_ARGS_END)
            return 0;
        if (apply_option(&args, option, value, gen) != 0)
            return -1;
        if (gen->help)
            return 0;
    }
}

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
    FILE *file = fopen(gen->path, "wb");
    if (file == NULL)
        return kvpi_tool_fail("gen", "cannot write %s: %s", gen->path, strerror(errno));
    int status = generate(file, gen);
    if (fclose(file) != 0 && status == TOOL_OK)
        status = kvpi_tool_fail("gen", "cannot write %s: %s", gen->path, strerror(errno));
    if (status != TOOL_OK)
        remove_unfinished(gen->path);
    return status;
}

int cmd_gen(int argc, char **argv)
{
    gen_options gen;
    if (parse_options(argc, argv, &gen) != 0)
        return TOOL_USAGE;
    if (gen.help) {
        print_help();
        return TOOL_OK;
    }
    return gen.path == NULL ? generate(stdout, &gen) : generate_file(&gen);
}

/* kvpager inspect: what is in a snapshot, or in the arena of a cache that another process works on.
 * Which of the two a file is, its first bytes say.
 */
#include <string.h>

#include "tool/args.h"
#include "tool/inspect/inspect.h"
#include "tool/text.h"
#include "tool/tool.h"

#define COMMAND     "inspect"
#define DEFAULT_TOP 10

static const kvpi_args_option options[] = {
    {"--json", NULL, "print one JSON object", 0},
    {"--top", "N", "show the N largest prefixes and longest sequences (default 10)", 0},
    {"--max-memory", "SIZE", "for looking (default 64MiB and 16 times what the file has)", 0},
    {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS (sizeof options / sizeof *options)

static int parse(int argc, char **argv, kvpi_inspect_args *in, bool *help)
{
    static const uint64_t any[2] = {0, UINT32_MAX};
    kvpi_args args = {.command = COMMAND,
                      .argc = argc,
                      .argv = argv,
                      .next = 1,
                      .options = options,
                      .n_options = N_OPTIONS};
    const char *value;
    int option, wrong = 0;
    while (wrong == 0 && (option = kvpi_args_next(&args, &value)) != KVPI_ARGS_END) {
        switch (option) {
        case 0: in->json = true; break;
        case 1: wrong = kvpi_args_number(&args, option, value, any, &in->top); break;
        case 2: wrong = kvpi_args_size(&args, option, value, &in->max_memory); break;
        case 3: *help = true; return 0;
        case KVPI_ARGS_OPERAND:
            wrong = in->path != NULL ? kvpi_args_wrong(&args, "one file only") : 0;
            in->path = value;
            break;
        default: wrong = KVPI_ARGS_WRONG;
        }
    }
    return wrong == 0 && in->path == NULL ? kvpi_args_wrong(&args, "which file?") : wrong;
}

static bool is_arena(FILE *file)
{
    char first[KVP_ARENA_MARK_BYTES];
    const size_t n = fread(first, 1, sizeof first, file);
    rewind(file);
    return n == sizeof first && memcmp(first, KVP_ARENA_MARK, n) == 0;
}

static int inspect(const kvpi_inspect_args *in)
{
    kvpi_input input;
    if (!kvpi_input_open(&input, in->path, false))
        return kvpi_tool_fail(COMMAND, "%s: %s", in->path, input.why);
    const int result =
        is_arena(input.file) ? kvpi_inspect_arena(in, &input) : kvpi_inspect_snapshot(in, &input);
    kvpi_input_close(&input);
    return result;
}

int cmd_inspect(int argc, char **argv)
{
    kvpi_inspect_args in = {.top = DEFAULT_TOP};
    bool help = false;
    if (parse(argc, argv, &in, &help) != 0)
        return TOOL_USAGE;
    if (help) {
        printf(
            "Say what is in a snapshot of a cache, or in the memory of one at work, and whether\n"
            "it is whole.\n"
            "\n"
            "Usage: kvpager inspect [OPTIONS] FILE\n"
            "\n"
            "FILE is a snapshot, or what a process has mapped and created a cache in\n"
            "(/dev/shm/...). The process is not stopped; it is looked at between two of its\n"
            "calls, or else said that numbers may not add up.\n"
            "\n"
            "Options:\n");
        kvpi_args_print(options, N_OPTIONS);
        printf("\nExit status: 0 all of it can be restored, or nothing is damaged; 1 not; 2 wrong\n"
               "usage.\n");
        return TOOL_OK;
    }
    return inspect(&in);
}

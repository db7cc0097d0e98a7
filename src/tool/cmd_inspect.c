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

#define AT(member) .at = offsetof(kvpi_inspect_args, member)

static int check_options(const kvpi_args *args, void *options)
{
    const kvpi_inspect_args *in = options;
    return in->path == NULL ? kvpi_args_wrong(args, "which file?") : 0;
}

static const kvpi_args_option options_table[] = {
    {"--json", NULL, "print one JSON object", kvpi_args_yes, AT(json), .title = "Options"},
    {"--top", "N", "show the N largest prefixes and longest sequences (default 10)",
     kvpi_args_number, AT(top), 0, UINT32_MAX},
    {"--max-memory", "SIZE", "for looking (default 64MiB and 16 times what the file has)",
     kvpi_args_size, AT(max_memory)},
    KVPI_ARGS_HELP,
    {NULL, NULL, "file", kvpi_args_file, AT(path)},
};

static const kvpi_args_command command = {
    .name = COMMAND,
    .about = "Say what is in a snapshot of a cache, or in the memory of one at work, and whether\n"
             "it is whole.\n"
             "\n"
             "Usage: kvpager inspect [OPTIONS] FILE\n"
             "\n"
             "FILE is a snapshot, or what a process has mapped and created a cache in\n"
             "(/dev/shm/...). The process is not stopped; it is looked at between two of its\n"
             "calls, or else said that numbers may not add up.\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table,
    .more = "\nExit status: 0 all of it can be restored, or nothing is damaged; 1 not; 2 wrong\n"
            "usage.\n",
    .check = check_options};

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
    kvpi_args args;
    kvpi_inspect_args in = {.top = DEFAULT_TOP};
    const int status = kvpi_args_parse(&args, &command, argc, argv, &in);
    return status == KVPI_ARGS_GO ? inspect(&in) : status;
}

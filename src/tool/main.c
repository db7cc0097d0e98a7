/* The kvpager command. Owns the way in and the way out: which subcommand is meant, and that output
 * that could not be written makes the command fail, whatever the subcommand thought.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage; 141 when the output has no reader.
 */
#include <errno.h>
#include <jansson.h>
#include <kvpager/all.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/args.h"
#include "tool/tool.h"
#include "tool/input/escape.h"
#include "tool/machine/machine.h"

static const kvpi_args_subcommand subcommands[] = {
    {"replay", cmd_replay, "replay a request trace through the cache and report"},
    {"mrc", cmd_mrc, "say what a cache of every size would hit"},
    {"compare", cmd_compare, "show what differs between two replays"},
    {"size", cmd_size, "say how much KV a model needs and how much of it fits"},
    {"gen", cmd_gen, "write a synthetic request trace"},
#if defined(KVPI_HAS_RECORD)
    {"record", cmd_record, "record what a running engine is asked"},
#endif
    {"events", cmd_events, "print and check recordings of running engines"},
    {"inspect", cmd_inspect, "say what is in a snapshot, or in a cache at work"},
    {"store", cmd_store, "look at stores of KV, verify, clean and measure them"},
    {"trace", cmd_trace, "show, replay, compare and shrink operation logs"},
};

static const kvpi_args_commands commands = {
    .name = "kvpager",
    .kind = "command",
    .about = "kvpager: the memory manager for the KV cache of large language models\n"
             "\n"
             "Usage: kvpager COMMAND [OPTIONS]\n"
             "\n"
             "Commands:\n",
    .more = "\n"
            "Options:\n"
            "  --help     print this text; 'kvpager help COMMAND' explains a command\n"
            "  --version  print the version\n"
            "\n"
            "Exit status: 0 done, 1 failed (a file, memory, a full disk), 2 wrong usage.\n"
            "\n"
            "Try: kvpager gen --profile chat --requests 500 -o chat.jsonl\n"
            "     kvpager replay chat.jsonl\n",
    .width = 10,
    .of = subcommands,
    .n = sizeof subcommands / sizeof *subcommands};

int kvpi_tool_fail(const char *command, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "kvpager %s: ", command);
    va_start(arguments, format);
    kvpi_escape_print(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

/* A write that failed in a subcommand leaves its mark on the stream; errno may be gone by then. */
static int finish_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    if (status == TOOL_OK)
        fprintf(stderr, "kvpager: cannot write to standard output: %s\n",
                errno != 0 ? strerror(errno) : "write error");
    return status == TOOL_OK ? TOOL_FAILED : status;
}

/* kvpager help COMMAND [WORD] is kvpager COMMAND [WORD] --help. */
static int dispatch(int argc, char **argv)
{
    char option[] = "--help";
    char *words[] = {argv[0], option, NULL, NULL, NULL};
    if (argc < 2 || (strcmp(argv[1], "help") != 0 && strcmp(argv[1], "--version") != 0))
        return kvpi_args_dispatch(&commands, argc, argv);
    if (argv[1][0] == '-') {
        printf("kvpager %s\n", kvp_version());
        return TOOL_OK;
    }
    const int n = argc < 4 ? argc - 2 : 2;
    for (int i = 0; i < n; i++)
        words[1 + i] = argv[2 + i];
    words[1 + n] = option;
    return kvpi_args_dispatch(&commands, 2 + n, words);
}

/* Memory for jansson. It must never see a request refused: version 2.14 then cuts a string that it
 * reads, without a word, or frees a value twice. */
static void *allocate_json(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fputs("kvpager: out of memory\n", stderr);
        exit(TOOL_FAILED);
    }
    return memory;
}

int main(int argc, char **argv)
{
    json_set_alloc_funcs(allocate_json, free);
    /* The terminal's character set, for the report; numbers stay as in "C". */
    setlocale(LC_CTYPE, "");
    kvpi_machine_start();
    return finish_output(dispatch(argc, argv));
}

/* The kvpager command. Owns the way in and the way out: which subcommand is meant, and that output
 * that could not be written makes the command fail, whatever the subcommand thought.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <jansson.h>
#include <kvpager/kvpager.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"
#include "tool/input/escape.h"
#include "tool/machine/machine.h"

typedef struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} subcommand;

static const subcommand subcommands[] = {
    {"replay", cmd_replay, "replay a request trace through the cache and report"},
    {"mrc", cmd_mrc, "say what a cache of every size would hit"},
    {"compare", cmd_compare, "show what differs between two replays"},
    {"size", cmd_size, "say how much KV a model needs and how much of it fits"},
    {"gen", cmd_gen, "write a synthetic request trace"},
    {"inspect", cmd_inspect, "say what is in a snapshot, or in a cache at work"},
    {"store", cmd_store, "look at stores of KV, verify, clean and measure them"},
    {"trace", cmd_trace, "show, replay, compare and shrink operation logs"},
};

#define N_SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

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

static void print_usage(FILE *file)
{
    fputs("kvpager: the memory manager for the KV cache of large language models\n"
          "\n"
          "Usage: kvpager COMMAND [OPTIONS]\n"
          "\n"
          "Commands:\n",
          file);
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        fprintf(file, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
    fputs("\n"
          "Options:\n"
          "  --help     print this text; 'kvpager COMMAND --help' explains a command\n"
          "  --version  print the version\n"
          "\n"
          "Exit status: 0 done, 1 failed (a file, memory, a full disk), 2 wrong usage.\n"
          "\n"
          "Try: kvpager gen --profile chat --requests 500 -o chat.jsonl\n"
          "     kvpager replay chat.jsonl\n",
          file);
}

static int refuse(const char *word)
{
    fprintf(stderr, "kvpager: unknown %s '%s'\nTry 'kvpager --help'.\n",
            word[0] == '-' ? "option" : "command", kvpi_escape(word).of);
    return TOOL_USAGE;
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

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return TOOL_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_usage(stdout);
        return TOOL_OK;
    }
    if (strcmp(word, "--version") == 0) {
        printf("kvpager %s\n", kvp_version());
        return TOOL_OK;
    }
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (strcmp(subcommands[i].name, word) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    return refuse(word);
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
    /* The terminal's character set, for the report; numbers stay as in "C". A closed pipe is to be
     * an error of the write, with a message, not the silent end of the process. */
    setlocale(LC_CTYPE, "");
    kvpi_machine_start();
    return finish_output(dispatch(argc, argv));
}

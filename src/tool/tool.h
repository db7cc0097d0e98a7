/* The kvpager command: what its files share. One file per subcommand; main.c dispatches. */
#ifndef KVPI_TOOL_H
#define KVPI_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* the input or the machine: a file, memory, a full disk */
    TOOL_USAGE = 2   /* the command line */
};

/* Subcommands. argv[0] is the subcommand's name; each returns an exit status and leaves flushing
 * stdout, and noticing that this failed, to main. */
int cmd_compare(int argc, char **argv);
int cmd_gen(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_mrc(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_size(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_trace(int argc, char **argv);

/* Print "kvpager COMMAND: message" to stderr.
 *
 * Returns: TOOL_FAILED, for the caller to return
 */
int kvpi_tool_fail(const char *command, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#endif

/* The kvpager command: what its files share. One file per subcommand; main.c dispatches. */
#ifndef KVPI_TOOL_H
#define KVPI_TOOL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Exit statuses. */
enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* the input or the machine: a file, memory, a full disk */
    TOOL_USAGE = 2   /* the command line */
};

/* Subcommands. argv[0] is the subcommand's name; each returns an exit status and leaves flushing
 * stdout, and noticing that this failed, to main. */
int cmd_compare(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_gen(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_mrc(int argc, char **argv);
int cmd_record(int argc, char **argv);
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

/* Open a file to be written. NULL: a message was printed. What it sets errno to is that of the
 * first write that fails, as long as nothing else changes it. */
static inline FILE *kvpi_tool_open(const char *command, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        kvpi_tool_fail(command, "cannot write %s: %s", path, strerror(errno));
    errno = 0;
    return file;
}

/* Close it.
 *
 * Takes:   error    errno of a write that failed, of which the stream knows; 0: errno has it
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
static inline int kvpi_tool_close(const char *command, const char *path, FILE *file, int error)
{
    const bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed)
        return TOOL_OK;
    error = error != 0 ? error : errno;
    return kvpi_tool_fail(command, "cannot write %s: %s", path,
                          error != 0 ? strerror(error) : "write error");
}

#endif

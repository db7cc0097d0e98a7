/* machine: what the command asks of the system besides files: POSIX (posix.c) or Windows. */
#ifndef KVPI_MACHINE_H
#define KVPI_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* Make standard input and output plain bytes, a closed connection an error of the write, and end
 * without a word, as 128 + SIGPIPE, when a pipe that is the output is closed. First call of the
 * program. */
void kvpi_machine_start(void);

/* Does the terminal show UTF-8, by the locale? */
bool kvpi_machine_shows_utf8(void);

/* Bytes of physical memory; 0: not known. */
uint64_t kvpi_machine_memory_bytes(void);

/* rename(2): what has the new name is replaced. 0, or -1 with errno. */
int kvpi_machine_rename(const char *from, const char *to);

/* Can a part of the program run in a process of its own? Without, the next two give -1. */
bool kvpi_machine_can_run_apart(void);

/* Run a function in a copy of this process, and wait for its end.
 *
 * Returns: what `run` returned, 0 to 255; 0 also when it crashed; -1: there is no such process
 */
int kvpi_machine_run_apart(int (*run)(void *context), void *context);

/* Run a line of the shell.
 *
 * Returns: its exit status; 128 + the signal that ended it; -1: there is no shell
 */
int kvpi_machine_shell(const char *line);

#endif

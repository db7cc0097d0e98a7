/* machine_posix: see machine.h. */
#define _DEFAULT_SOURCE /* _SC_PHYS_PAGES */

#include "tool/machine/machine.h"

#if !defined(_WIN32)

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program as the signal would, if its output has no reader any more. A connection that was
 * closed is an error of its write only. */
static void end_at_closed_output(int number)
{
    const int before = errno;
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0)
        _exit(128 + number);
    errno = before;
}

void kvpi_machine_start(void)
{
    struct sigaction action = {.sa_handler = end_at_closed_output};
    (void)sigaction(SIGPIPE, &action, NULL);
}

bool kvpi_machine_shows_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

uint64_t kvpi_machine_memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages <= 0 || page_bytes <= 0 ? 0 : (uint64_t)pages * (uint64_t)page_bytes;
}

int kvpi_machine_rename(const char *from, const char *to)
{
    return rename(from, to);
}

bool kvpi_machine_can_run_apart(void)
{
    return true;
}

int kvpi_machine_run_apart(int (*run)(void *context), void *context)
{
    int result;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0)
        _exit(run(context));
    while (waitpid(child, &result, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(result) ? WEXITSTATUS(result) : 0;
}

int kvpi_machine_shell(const char *line)
{
    const int result = system(line);
    if (result == -1)
        return -1;
    return WIFSIGNALED(result) ? 128 + WTERMSIG(result) : WEXITSTATUS(result);
}

#endif

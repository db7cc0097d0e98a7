/* machine_windows: see machine.h. No process is a copy of another there. */
#include "tool/machine/machine.h"

#if defined(_WIN32)

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

void kvpi_machine_start(void)
{
    (void)_setmode(_fileno(stdin), _O_BINARY);
    (void)_setmode(_fileno(stdout), _O_BINARY);
    (void)_setmode(_fileno(stderr), _O_BINARY);
    _fmode = _O_BINARY; /* of files that are opened from now on */
}

bool kvpi_machine_shows_utf8(void)
{
    return GetConsoleOutputCP() == CP_UTF8;
}

uint64_t kvpi_machine_memory_bytes(void)
{
    MEMORYSTATUSEX about = {.dwLength = sizeof about};
    return GlobalMemoryStatusEx(&about) ? about.ullTotalPhys : 0;
}

int kvpi_machine_rename(const char *from, const char *to)
{
    if (MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING))
        return 0;
    errno = GetLastError() == ERROR_ACCESS_DENIED ? EACCES : EIO;
    return -1;
}

bool kvpi_machine_can_run_apart(void)
{
    return false;
}

int kvpi_machine_run_apart(int (*run)(void *context), void *context)
{
    (void)run;
    (void)context;
    return -1;
}

int kvpi_machine_shell(const char *line)
{
    (void)line;
    return -1;
}

#endif

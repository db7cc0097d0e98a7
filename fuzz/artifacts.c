/* artifacts: libFuzzer writes failing and slow inputs beside the program, not where it was started.
 * An -artifact_prefix that is given decides. */
#include <stdio.h>
#include <string.h>

enum { ARGS_MAX = 4096 };

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Weak: a target may have one of its own. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char prefix[4096];
    static char *args[ARGS_MAX];
    const char *name = *argc > 0 ? strrchr((*argv)[0], '/') : NULL;
    if (name == NULL || *argc + 2 > ARGS_MAX) {
        return 0;
    }
    snprintf(prefix, sizeof(prefix), "-artifact_prefix=%.*s", (int)(name + 1 - (*argv)[0]),
             (*argv)[0]);
    args[0] = (*argv)[0];
    args[1] = prefix;
    memcpy(args + 2, *argv + 1, (size_t)(*argc - 1) * sizeof(*args)); /* the last one decides */
    *argv = args;
    *argc += 1;
    return 0;
}

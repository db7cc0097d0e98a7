/* Shrinking: remove calls from a script while it still fails.
 *
 * Delta debugging: first everything after the failing call goes, then runs of calls, of half the
 * length each round, until no single call can be missed. The difference must stay of the same kind.
 */
#include "script.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIGNATURE_NONE = 0, SIGNATURE_SIGNAL = 128 }; /* those between are the session's */

/* How does the script fail? Not at all, by a difference of some kind, by a signal. Tried
 * in a child, so that an assert or a crash is only an answer. */
static int signature_of(const script *p, const session_options *options)
{
    pid_t child;
    int state = 0;
    uint32_t index, signature;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(2);
        alarm(60);
        if (script_run(p, options, false, &index, &signature))
            _exit(SIGNATURE_NONE);
        _exit((int)signature);
    }
    if (child < 0 || waitpid(child, &state, 0) != child)
        return SIGNATURE_NONE;
    if (WIFSIGNALED(state))
        return SIGNATURE_SIGNAL + WTERMSIG(state);
    return WIFEXITED(state) ? WEXITSTATUS(state) : SIGNATURE_NONE;
}

static bool fails(const script *p, const session_options *options, int signature)
{
    return signature_of(p, options) == signature;
}

static uint32_t count_kept(const script *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->keep[i];
    return n;
}

/* Try to do without kept calls number [from, from + n). */
static bool drop(script *p, const session_options *options, int signature, uint32_t from,
                 uint32_t n)
{
    bool *before = malloc(p->n ? p->n : 1);
    uint32_t at = 0;
    bool fewer;

    if (!before)
        return false;
    memcpy(before, p->keep, p->n);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->keep[i] && at++ >= from && at <= from + n)
            p->keep[i] = false;
    fewer = fails(p, options, signature);
    if (!fewer)
        memcpy(p->keep, before, p->n);
    free(before);
    return fewer;
}

/* Keep the shortest beginning that fails. */
static void cut_end(script *p, const session_options *options, int signature)
{
    uint32_t good = 0, bad = p->n;

    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;

        for (uint32_t i = 0; i < p->n; i++)
            p->keep[i] = i < middle;
        if (fails(p, options, signature))
            bad = middle;
        else
            good = middle;
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->keep[i] = i < bad;
}

bool script_shrink(script *p, const session_options *options)
{
    int signature = signature_of(p, options);

    if (signature == SIGNATURE_NONE)
        return false;
    cut_end(p, options, signature);
    for (uint32_t chunk = count_kept(p) / 2 + 1;; chunk = chunk / 2) {
        bool any = true;

        while (any) {
            any = false;
            for (uint32_t from = 0; from < count_kept(p);)
                if (drop(p, options, signature, from, chunk))
                    any = true;
                else
                    from += chunk;
            any = any && chunk == 1;
        }
        if (chunk <= 1)
            break;
    }
    return true;
}

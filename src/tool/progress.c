/* Owns the progress line: one line of stderr, rewritten in place five times a second, wiped at the
 * end so that the report stands alone. Quick commands never show it. For tests, KVPAGER_PROGRESS_NS
 * is when it is shown first, and how often.
 */
#define _POSIX_C_SOURCE 200809L

#include "tool/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS    UINT64_C(1000000000)
#define INTERVAL_NS UINT64_C(200000000)

uint64_t kvpi_progress_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void kvpi_progress_start(kvpi_progress *progress, const char *what, uint64_t total)
{
    const char *asked = getenv("KVPAGER_PROGRESS_NS");
    *progress = (kvpi_progress){.what = what, .total = total, .interval_ns = INTERVAL_NS};
    progress->enabled = isatty(STDERR_FILENO) == 1;
    if (progress->enabled)
        progress->next_ns = kvpi_progress_now_ns() + FIRST_NS;
    if (asked != NULL) {
        progress->interval_ns = strtoull(asked, NULL, 10);
        progress->next_ns = progress->interval_ns;
    }
}

void kvpi_progress_update(kvpi_progress *progress, uint64_t done)
{
    if (!progress->enabled || kvpi_progress_now_ns() < progress->next_ns)
        return;
    if (progress->total > 0)
        fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " (%" PRIu64 " %%)\033[K", progress->what,
                done, progress->total, done * 100 / progress->total);
    else
        fprintf(stderr, "\r%s: %" PRIu64 "\033[K", progress->what, done);
    fflush(stderr);
    progress->shown = true;
    progress->next_ns = kvpi_progress_now_ns() + progress->interval_ns;
}

void kvpi_progress_end(kvpi_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

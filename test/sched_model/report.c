/* What a run of kvp_sched_model has met. See runner.h. */
#include "runner.h"

#include <stdio.h>

enum { LONG_RUN = 200000, VERY_LONG_RUN = 3000000 };

int report(const uint64_t *met, uint64_t n_calls, int is_verbose)
{
#define SITUATION_TEXT(name) #name,
    static const char *const names[] = {SITUATIONS(SITUATION_TEXT) RARE_SITUATIONS(SITUATION_TEXT)};
    int status = 0;
    for (uint32_t i = 0; i < N_SITUATIONS; i++) {
        if (is_verbose)
            printf("%-22s %" PRIu64 "\n", names[i], met[i]);
        if (met[i] == 0 && n_calls >= (i < N_COMMON ? LONG_RUN : VERY_LONG_RUN)) {
            fprintf(stderr, "kvp_sched_model: never met: %s\n", names[i]);
            status = 1;
        }
    }
    printf("kvp_sched_model: %" PRIu64 " calls, all equal\n", n_calls);
    return status;
}

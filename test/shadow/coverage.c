/* See coverage.h. */
#include "coverage.h"

#include <inttypes.h>
#include <string.h>

#define NAME(name, engines) #name,
static const char *const names[] = {COVERAGE_TABLE(NAME)};
#undef NAME

#define ENGINES(name, engines) engines,
static const char *const engines_of[] = {COVERAGE_TABLE(ENGINES)};
#undef ENGINES

static int concerns(uint32_t point, uint32_t engine)
{
    return strchr(engines_of[point], "OVS"[engine]) != NULL;
}

void coverage_print(FILE *file, const coverage *c, uint32_t engine)
{
    for (uint32_t i = 0; i < COVER_POINTS; i++)
        if (concerns(i, engine) || c->points[i] > 0)
            fprintf(file, "  %-24s %" PRIu64 "\n", names[i], c->points[i]);
}

uint32_t coverage_missing(FILE *file, const coverage *c, uint32_t engine)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < COVER_POINTS; i++) {
        if (concerns(i, engine) && c->points[i] == 0) {
            fprintf(file, "kvp_shadow: never met: %s\n", names[i]);
            missing++;
        }
    }
    return missing;
}

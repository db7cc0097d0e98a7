/* See coverage.h. */
#include "coverage.h"

#include <inttypes.h>
#include <string.h>
void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before)
{
    (void)o; (void)call; memset(before, 0, sizeof *before);
}
void coverage_count(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                    const coverage_before *before)
{
    (void)o; (void)before;
    c->calls[call->op][-out->status]++;
}
void coverage_print(FILE *file, const coverage *c) { (void)file; (void)c; }
uint32_t coverage_missing(FILE *file, const coverage *c) { (void)file; (void)c; return 0; }

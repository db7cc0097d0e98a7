/* The hits of a recording of plain events, between bounds.
 *
 * A cache of more blocks than the engine's hits what the engine has hit, and what the engine had to
 * compute again: if so few others had been evicted in between that the larger cache has it yet. An
 * LRU list says how few, whatever was hit meanwhile; what is not sure is which of these blocks were
 * a prompt's.
 *
 * A smaller cache hits no more than the engine. At least it hits what the curve has: there, tokens
 * of requests that sent no event are content of their own, that pushes out as much as it can and
 * is never hit.
 */
#ifndef KVPI_MRC_BOUNDS_H
#define KVPI_MRC_BOUNDS_H

#include "tool/mrc/mrc_report.h"

typedef struct kvpi_mrc_bounds {
    double least, most; /* tokens hit */
} kvpi_mrc_bounds;

kvpi_mrc_bounds kvpi_mrc_bounds_at(const kvpi_mrc_report *report, const kvpi_mrc_point *point);

/* Add "hit_tokens_at_least" and the like to a size; print the table. Nothing of other traces, of
 * several files, or of the first requests of one. */
void kvpi_mrc_bounds_add(kvpi_figures *to, const kvpi_mrc_report *report,
                         const kvpi_mrc_point *point);
void kvpi_mrc_bounds_print(const kvpi_mrc_report *report, FILE *file);

#endif

/* Why tokens of prompts were computed, for people and programs: see tool/watch/reasons.h. */
#ifndef KVPI_REASONS_REPORT_H
#define KVPI_REASONS_REPORT_H

#include <stdio.h>

#include "tool/watch/reasons.h"
#include "tool/report/figures.h"

/* Add the figures as a list "why".
 *
 * Takes:   why  NULL: nothing was asked, and nothing is added
 */
void kvpi_reasons_figures(kvpi_figures *to, kvpi_reasons *why);

/* Print the table, and the worst requests; nothing where why is NULL. */
void kvpi_reasons_print(kvpi_reasons *why, FILE *file);

#endif

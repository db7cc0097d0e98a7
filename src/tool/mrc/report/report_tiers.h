/* The part of a curve's report that is about host and store. */
#ifndef KVPI_MRC_REPORT_TIERS_H
#define KVPI_MRC_REPORT_TIERS_H

#include "tool/mrc/mrc_report.h"
#include "tool/report/figures.h"

/* Add "store_writes" and the list "tiers", empty without --host-sizes. */
void kvpi_mrc_report_tiers_add(kvpi_figures *to, const kvpi_mrc_report *report);

/* Print the table; nothing without --host-sizes. */
void kvpi_mrc_report_tiers_print(const kvpi_mrc_report *report, FILE *file);

#endif

/* The part of a curve's report that says what hits are worth: prefill that is saved, its price,
 * how long content has to be kept. */
#ifndef KVPI_MRC_REPORT_WORTH_H
#define KVPI_MRC_REPORT_WORTH_H

#include "tool/mrc/mrc_report.h"
#include "tool/report/figures.h"

/* Add what LRU's hits save of prefill at a size: accelerators' seconds, and their price. */
void kvpi_mrc_report_saved_add(kvpi_figures *to, const kvpi_mrc_report *report, uint64_t blocks);

/* Add the list "retention". */
void kvpi_mrc_report_worth_add(kvpi_figures *to, const kvpi_mrc_report *report);

/* Print both tables; that of prefill only with an accelerator. */
void kvpi_mrc_report_worth_print(const kvpi_mrc_report *report, FILE *file);

#endif

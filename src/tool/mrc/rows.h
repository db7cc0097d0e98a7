/* Which sizes of device, host and store are simulated together, and the simulations. */
#ifndef KVPI_MRC_ROWS_H
#define KVPI_MRC_ROWS_H

#include "tool/mrc/mrc_args.h"
#include "tool/mrc/mrc_report.h"

/* Make report->tiers: a row for each host size beside each size that is shown, and for each store
 * size and number of blocks of a record; nothing without --host-sizes.
 *
 * Takes:   report   with refs, token_bytes and points
 * Returns: TOOL_OK; TOOL_USAGE, TOOL_FAILED, a message was printed
 * Owns:    the caller frees report->tiers
 * Cost:    O(references) a row, and again for the store if a record had one block
 */
int kvpi_mrc_rows_make(const kvpi_args *args, const kvpi_mrc_args *options,
                       kvpi_mrc_report *report);

#endif

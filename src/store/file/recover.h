/* recover: an index made from a log. */
#ifndef KVPI_STORE_RECOVER_H
#define KVPI_STORE_RECOVER_H

#include "store/file/log.h"
#include "store/index.h"

/* Put every record that the log knows, and whose parent it knows, back into an index that is empty.
 * A record in a slot from n_slots on is gone: its slab was cut short. Slots get the generations
 * that the log saw last, used or not. No slot is free afterwards: kvpi_index_free makes them so.
 *
 * Gives:   out_n_damaged   entries of the log that were left out
 * Returns: KVP_OK; KVP_E_IO; KVP_E_NO_MEMORY
 * Cost:    O(entries + slots), whatever the log says
 */
kvp_status kvpi_recover(struct kvpi_log *log, struct kvpi_index *index, uint32_t n_slots,
                        uint64_t *out_n_damaged);

#endif

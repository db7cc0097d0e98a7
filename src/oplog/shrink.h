/* shrink: finds a small part of a list that still fails (delta debugging). */
#ifndef KVPI_SHRINK_H
#define KVPI_SHRINK_H

#include <kvpager/types.h>

/* Try a part of the list: items are the positions kept, ascending.
 * Gives:   n_needed  n_items beforehand; may be set lower, when so many of the first are enough
 * Returns: 1 when it still fails; 0 when it does not; a negative number to give up */
typedef int (*kvpi_shrink_fails)(void *context, const uint32_t *items, size_t n_items,
                                 size_t *n_needed);

/* Remove items as long as the rest fails.
 *
 * At the end no single one can be removed any more (1-minimal), if `fails` is a function of the
 * items alone. Cost: from O(log n) tries per item that stays to O(n^2) at worst.
 *
 * Takes:   items    [n_items] a list that fails; usually 0, 1, 2, ...
 * Gives:   items    [n_items] the list that is left
 * Returns: KVP_OK; KVP_E_STATE when `fails` gave up (items: the best so far); KVP_E_NO_MEMORY
 */
kvp_status kvpi_shrink(uint32_t *items, size_t *n_items, kvpi_shrink_fails fails, void *context);

#endif

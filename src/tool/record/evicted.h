/* evicted: how many blocks were evicted after a given one, and have not come back. In a cache of so
 * many blocks more, and one, it would still be there.
 *
 * Evictions are numbered; a tree of sums counts those that are still out. When its numbers are used
 * up, those of blocks that are known are given again, and the others count with the next of them.
 */
#ifndef KVPI_RECORD_EVICTED_H
#define KVPI_RECORD_EVICTED_H

#include "tool/recording/recent.h"

/* Zero it. */
typedef struct kvpi_evicted {
    uint32_t *sums; /* [n_numbers + 1] Fenwick's: of sums[i], numbers up to i */
    uint32_t *old;  /* [n_old] what 1, 2 ... were before they were given again */
    uint32_t n_numbers, last, n_old;
} kvpi_evicted;

/* Number an eviction. Returns: 0: no memory. Cost: O(log n), now and then O(n log n) */
uint32_t kvpi_evicted_add(kvpi_evicted *evicted, kvpi_recent *chains);

/* The next one gives numbers again: others that are kept must go through kvpi_evicted_now then. */
bool kvpi_evicted_is_full(const kvpi_evicted *evicted);

/* What a number is since then: of one that is forgotten, the last one before it. Cost: O(log n) */
uint32_t kvpi_evicted_now(const kvpi_evicted *evicted, uint32_t old);

/* How many were evicted after it, up to number `last`, and are still out. Cost: O(log n) */
uint32_t kvpi_evicted_after(const kvpi_evicted *evicted, uint32_t number, uint32_t last);

/* It is back. Cost: O(log n) */
void kvpi_evicted_remove(kvpi_evicted *evicted, uint32_t number);
void kvpi_evicted_free(kvpi_evicted *evicted);

#endif
